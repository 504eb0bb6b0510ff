/* graph/onnx/model.c: from the bytes of an ONNX file to structures.
 *
 * Each message is one loop over its fields with a switch. A fault sets the reader's status once, with the sentence; the loops go
 * on to their end, which is near, as a message that is cut has no more fields. Elements are taken from the file's bytes as they
 * lie there if they are aligned, else copied. Memory that a file can ask for is bounded by its size: elements by the bytes that
 * hold them, and all else by ONNX_ITEMS_MAX.
 */
#include "graph/onnx/model.h"
#include "graph/base/proto.h"

#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    pool *pool;
    const char *path;
    int nodes, items;
    weir_status status;
} reader;

#define WRONG(r, ...) ((r)->status ? (r)->status : ((r)->status = error_set(__VA_ARGS__)))

/* ---- types ---- */

const char *onnx_type_name(int type)
{
    switch (type) {
#define X(number, name, ctype, bytes) \
    case number: return #name;
        ONNX_TYPE_LIST(X)
#undef X
    case 8: return "STRING";
    default: return "a type that weir does not know";
    }
}

size_t onnx_type_bytes(int type)
{
    switch (type) {
#define X(number, name, ctype, bytes) \
    case number: return bytes;
        ONNX_TYPE_LIST(X)
#undef X
    default: return 0;
    }
}

bool onnx_type_real(int type)
{
    return type == ONNX_FLOAT || type == ONNX_FLOAT16 || type == ONNX_BFLOAT16 || type == ONNX_DOUBLE;
}

/* ---- what every message needs ---- */

/* Counts what a list grows by. */
static bool one_more(reader *r)
{
    if (++r->items > ONNX_ITEMS_MAX)
        WRONG(r, WEIR_E_UNSUPPORTED, "%s: it has more than %d parts (nodes, names, attributes); weir reads no more", r->path,
              ONNX_ITEMS_MAX);
    else if (r->pool->failed)
        WRONG(r, WEIR_E_MEMORY, "%s: no memory to read it", r->path);
    return !r->status;
}

#define PUSH(r, list) (one_more(r) ? POOL_PUSH((r)->pool, (list)) : NULL)

/* A name or another text, with a 0 at its end. One with a 0 inside of it is cut there. */
static const char *take_text(reader *r, const struct proto *bytes)
{
    char *text = pool_alloc(r->pool, bytes->left + 1);
    if (text)
        memcpy(text, bytes->at, bytes->left);
    return text ? text : "";
}

static void ended(reader *r, const struct proto *message, const char *what)
{
    if (message->bad)
        WRONG(r, WEIR_E_IO, "%s: not a whole ONNX file: %s is cut, or is no protobuf message", r->path, what);
}

static const char *take_name(reader *r, const struct proto_field *field)
{
    return field->wire == PROTO_BYTES ? take_text(r, &field->bytes) : "";
}

/* ---- tensors ---- */

/* The elements of a tensor's message. They are in one of the places. */
typedef struct tensor_parts {
    int64_t dim[ONNX_DIMS_MAX];
    int rank;
    struct proto raw;
    bool has_raw, external;
    const char *location;
    uint64_t offset, length;
    bool has_length;
} tensor_parts;

static void take_dims(reader *r, struct proto_field *field, tensor_parts *parts)
{
    uint64_t dim;
    while (proto_number(field, PROTO_VARINT, &dim)) {
        if (parts->rank == ONNX_DIMS_MAX || dim > INT64_MAX / 16)
            WRONG(r, WEIR_E_UNSUPPORTED, "%s: a tensor has more than %d dimensions, or one that is negative or too large", r->path,
                  ONNX_DIMS_MAX);
        else
            parts->dim[parts->rank++] = (int64_t)dim;
    }
}

static void take_external(reader *r, struct proto entry, tensor_parts *parts)
{
    const char *key = "", *value = "";
    struct proto_field f;
    while (proto_next(&entry, &f)) {
        if (f.number == 1)
            key = take_name(r, &f);
        else if (f.number == 2)
            value = take_name(r, &f);
    }
    ended(r, &entry, "an entry of external data");
    if (!strcmp(key, "location"))
        parts->location = value;
    else if (!strcmp(key, "offset"))
        parts->offset = strtoull(value, NULL, 10);
    else if (!strcmp(key, "length"))
        parts->length = strtoull(value, NULL, 10), parts->has_length = true;
}

/* Elements; -1: they cannot be counted. */
static int64_t elements_of(const tensor_parts *parts)
{
    int64_t count = 1;
    bool empty = false;
    for (int d = 0; d < parts->rank; d++) {
        empty |= !parts->dim[d];
        if (parts->dim[d] && __builtin_mul_overflow(count, parts->dim[d], &count))
            return -1;
    }
    return empty ? 0 : count;
}

/* Copies the numbers of the fields 4, 5, 7, 10 and 11 to `data`: what each type uses. Returns how many there were. */
static int64_t take_numbers(const struct proto *message, int type, int64_t room, void *data)
{
    struct proto rest = *message;
    struct proto_field f;
    int64_t count = 0;
    while (proto_next(&rest, &f)) {
        const int wire = f.number == 4 ? PROTO_4_BYTES : f.number == 10 ? PROTO_8_BYTES : PROTO_VARINT;
        uint64_t bits;
        if (f.number != 4 && f.number != 5 && f.number != 7 && f.number != 10 && f.number != 11)
            continue;
        for (; proto_number(&f, wire, &bits); count++) {
            if (count >= room)
                continue;
            memcpy((char *)data + (size_t)count * onnx_type_bytes(type), &bits, onnx_type_bytes(type)); /* little-endian */
        }
    }
    return count;
}

/* Whether a path stays below the folder that it is looked up in. */
static bool path_below(const char *path)
{
    if (*path == '/' || !*path)
        return false;
    for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (at[0] == '.' && at[1] == '.' && (at[2] == '/' || !at[2]))
            return false;
    return true;
}

/* The file of external data, opened; -1 and *why. Links are followed as long as they stay below the model's folder. */
static int open_external(reader *r, const char *location, const char **why)
{
    char folder[PATH_MAX], file[PATH_MAX];
    const char *slash = strrchr(r->path, '/');
    char *beside = pool_text(r->pool, "%.*s", slash ? (int)(slash - r->path + 1) : 1, slash ? r->path : ".");
    char *full = pool_text(r->pool, "%s/%s", beside ? beside : "", location);
    *why = "it is not below the model's folder";
    if (!path_below(location) || !beside || !full)
        return -1;
    if (!realpath(beside, folder) || !realpath(full, file)) {
        *why = strerror(errno);
        return -1;
    }
    const size_t length = strlen(folder);
    if (strncmp(folder, file, length) != 0 || (file[length] != '/' && length > 1))
        return -1;
    return reading_open(file, why);
}

static void *read_external(reader *r, const tensor_parts *parts, const char *name, uint64_t bytes)
{
    const char *why = "it names no file";
    int fd = parts->location ? open_external(r, parts->location, &why) : -1;
    struct stat st = {0};
    void *data = NULL;
    if (fd < 0 || fstat(fd, &st)) {
        WRONG(r, WEIR_E_IO, "%s: external data of tensor %s: %s: %s", r->path, name, parts->location ? parts->location : "", why);
        return NULL;
    }
    uint64_t have = (uint64_t)st.st_size, done = 0;
    const bool fits = parts->offset <= have && bytes <= have - parts->offset && (!parts->has_length || parts->length == bytes);
    data = fits ? pool_alloc(r->pool, bytes) : NULL;
    for (ssize_t part = 1; data && done < bytes && part > 0; done += part > 0 ? (uint64_t)part : 0)
        part = pread(fd, (char *)data + done, bytes - done, (off_t)(parts->offset + done));
    close(fd);
    if (!data || done < bytes)
        WRONG(r, fits && !data ? WEIR_E_MEMORY : WEIR_E_IO, "%s: external data of tensor %s: %s has %llu bytes; the tensor needs %llu, from byte %llu",
              r->path, name, parts->location, (unsigned long long)have, (unsigned long long)bytes,
              (unsigned long long)parts->offset);
    return data;
}

/* The raw bytes where they are, if the elements are aligned there, else a copy of them. */
static void *raw_elements(reader *r, const struct proto *raw, size_t element)
{
    return (uintptr_t)raw->at % element ? pool_copy(r->pool, raw->at, raw->left) : (void *)raw->at;
}

static void take_elements(reader *r, const struct proto *message, const tensor_parts *parts, onnx_initializer *tensor)
{
    onnx_array *a = &tensor->array;
    const size_t element = onnx_type_bytes(a->type);
    const int64_t count = elements_of(parts);
    a->rank = parts->rank;
    memcpy(a->dim, parts->dim, sizeof a->dim);
    if (!element || count < 0 || count > INT64_MAX / 16) {
        WRONG(r, element ? WEIR_E_IO : WEIR_E_UNSUPPORTED, "%s: tensor %s is of %s%s", r->path, tensor->name, onnx_type_name(a->type),
              element ? ", and has too many elements" : ", which weir does not read");
        return;
    }
    const uint64_t bytes = (uint64_t)count * element;
    if (parts->external) {
        a->data = read_external(r, parts, tensor->name, bytes);
        return;
    }
    int64_t have = parts->has_raw ? (int64_t)(parts->raw.left / element) : take_numbers(message, a->type, 0, NULL);
    if (have != count || (parts->has_raw && parts->raw.left % element)) {
        WRONG(r, WEIR_E_IO, "%s: tensor %s has %lld elements; its shape needs %lld", r->path, tensor->name, (long long)have,
              (long long)count);
        return;
    }
    if (parts->has_raw) {
        a->data = raw_elements(r, &parts->raw, element);
        return;
    }
    void *data = pool_alloc(r->pool, bytes + 8);
    if (data)
        take_numbers(message, a->type, count, data);
    a->data = data;
}

static void take_tensor(reader *r, struct proto message, onnx_initializer *tensor)
{
    const struct proto whole = message;
    tensor_parts parts = {0};
    struct proto_field f;
    *tensor = (onnx_initializer){.name = ""};
    while (proto_next(&message, &f)) {
        switch (f.number) {
        case 1: take_dims(r, &f, &parts); break;
        case 2: tensor->array.type = f.integer <= INT_MAX ? (int)f.integer : INT_MAX; break;
        case 8: tensor->name = take_name(r, &f); break;
        case 9: parts.raw = f.bytes, parts.has_raw = true; break;
        case 13: take_external(r, f.bytes, &parts); break;
        case 14: parts.external = f.integer == 1; break;
        default: break;
        }
    }
    ended(r, &message, "a tensor");
    if (!r->status)
        take_elements(r, &whole, &parts, tensor);
    if (!r->status && r->pool->failed)
        WRONG(r, WEIR_E_MEMORY, "%s: no memory to read it", r->path);
}

/* ---- attributes, nodes, graphs ---- */

static void take_graph(reader *r, struct proto message, int depth, onnx_graph *graph);

static void take_attribute(reader *r, struct proto message, int depth, onnx_attribute *a)
{
    struct proto_field f;
    uint64_t bits;
    *a = (onnx_attribute){.name = ""};
    while (proto_next(&message, &f) && !r->status) {
        onnx_initializer *tensor;
        onnx_graph *graph;
        switch (f.number) {
        case 1: a->name = take_name(r, &f); break;
        case 2: a->f = proto_float(f.integer); break;
        case 3: a->i = (int64_t)f.integer; break;
        case 4: a->s = take_name(r, &f); break;
        case 5:
            tensor = one_more(r) ? POOL_NEW(r->pool, onnx_initializer, 1) : NULL;
            if (tensor)
                take_tensor(r, f.bytes, tensor), a->t = &tensor->array;
            break;
        case 6:
            graph = one_more(r) ? POOL_NEW(r->pool, onnx_graph, 1) : NULL;
            if (graph)
                take_graph(r, f.bytes, depth + 1, graph), a->g = graph;
            break;
        case 7:
            while (proto_number(&f, PROTO_4_BYTES, &bits)) {
                double *at = PUSH(r, &a->floats);
                if (at)
                    *at = proto_float(bits);
            }
            break;
        case 8:
            while (proto_number(&f, PROTO_VARINT, &bits)) {
                int64_t *at = PUSH(r, &a->ints);
                if (at)
                    *at = (int64_t)bits;
            }
            break;
        case 9: {
            const char **at = PUSH(r, &a->strings);
            if (at)
                *at = take_name(r, &f);
            break;
        }
        default: break;
        }
    }
    ended(r, &message, "an attribute");
}

static void take_node(reader *r, struct proto message, int depth, onnx_node *node)
{
    struct proto_field f;
    const char **name;
    *node = (onnx_node){.name = "", .op = "", .domain = "", .number = ++r->nodes};
    while (proto_next(&message, &f) && !r->status) {
        onnx_attribute *a;
        switch (f.number) {
        case 1:
            if ((name = PUSH(r, &node->in)))
                *name = take_name(r, &f);
            break;
        case 2:
            if ((name = PUSH(r, &node->out)))
                *name = take_name(r, &f);
            break;
        case 3: node->name = take_name(r, &f); break;
        case 4: node->op = take_name(r, &f); break;
        case 5:
            if ((a = PUSH(r, &node->attributes)))
                take_attribute(r, f.bytes, depth, a);
            break;
        case 7: node->domain = take_name(r, &f); break;
        default: break;
        }
    }
    if (!strcmp(node->domain, "ai.onnx"))
        node->domain = "";
    ended(r, &message, "a node");
}

static void take_dimension(reader *r, struct proto message, onnx_port *port)
{
    struct proto_field f;
    if (port->rank == ONNX_DIMS_MAX) {
        WRONG(r, WEIR_E_UNSUPPORTED, "%s: %s has more than %d dimensions", r->path, port->name, ONNX_DIMS_MAX);
        return;
    }
    port->dim[port->rank] = -1;
    while (proto_next(&message, &f)) {
        if (f.number == 1 && f.integer <= INT64_MAX / 16)
            port->dim[port->rank] = (int64_t)f.integer;
        else if (f.number == 2)
            port->symbol[port->rank] = take_name(r, &f);
    }
    ended(r, &message, "a dimension");
    port->rank++;
}

static void take_shape(reader *r, struct proto message, onnx_port *port)
{
    struct proto_field f;
    port->shaped = true;
    while (proto_next(&message, &f) && !r->status)
        if (f.number == 1)
            take_dimension(r, f.bytes, port);
    ended(r, &message, "a shape");
}

static void take_tensor_type(reader *r, struct proto message, onnx_port *port)
{
    struct proto_field f;
    while (proto_next(&message, &f) && !r->status) {
        if (f.number == 1)
            port->type = f.integer <= INT_MAX ? (int)f.integer : INT_MAX;
        else if (f.number == 2)
            take_shape(r, f.bytes, port);
    }
    ended(r, &message, "a type");
}

static void take_port(reader *r, struct proto message, onnx_port *port)
{
    struct proto_field f, t;
    struct proto type = {0};
    *port = (onnx_port){.name = ""};
    while (proto_next(&message, &f)) {
        if (f.number == 1)
            port->name = take_name(r, &f);
        else if (f.number == 2)
            type = f.bytes;
    }
    ended(r, &message, "an input or output");
    while (proto_next(&type, &t) && !r->status)
        if (t.number == 1)
            take_tensor_type(r, t.bytes, port);
    ended(r, &type, "a type");
}

static void take_graph(reader *r, struct proto message, int depth, onnx_graph *graph)
{
    struct proto_field f;
    if (depth > ONNX_DEPTH) {
        WRONG(r, WEIR_E_UNSUPPORTED, "%s: graphs lie more than %d deep in each other", r->path, ONNX_DEPTH);
        return;
    }
    while (proto_next(&message, &f) && !r->status) {
        onnx_node *node;
        onnx_initializer *tensor;
        onnx_port *port;
        switch (f.number) {
        case 1:
            if ((node = PUSH(r, &graph->nodes)))
                take_node(r, f.bytes, depth, node);
            break;
        case 5:
            if ((tensor = PUSH(r, &graph->initializers)))
                take_tensor(r, f.bytes, tensor);
            break;
        case 11:
            if ((port = PUSH(r, &graph->inputs)))
                take_port(r, f.bytes, port);
            break;
        case 12:
            if ((port = PUSH(r, &graph->outputs)))
                take_port(r, f.bytes, port);
            break;
        default: break;
        }
    }
    ended(r, &message, "a graph");
}

static void take_opset(reader *r, struct proto message, onnx_model *model)
{
    const char *domain = "";
    uint64_t version = 0;
    struct proto_field f;
    while (proto_next(&message, &f)) {
        if (f.number == 1)
            domain = take_name(r, &f);
        else if (f.number == 2)
            version = f.integer;
    }
    ended(r, &message, "a version");
    if (!*domain || !strcmp(domain, "ai.onnx"))
        model->opset = version < 1000000 ? (int64_t)version : 1000000;
}

/* ---- files ---- */

weir_status onnx_model_decode(pool *p, const char *path, const void *bytes, size_t count, onnx_model *model)
{
    reader r = {.pool = p, .path = path};
    struct proto message = {bytes, count, false};
    struct proto_field f;
    bool graph = false;
    *model = (onnx_model){0};
    while (proto_next(&message, &f) && !r.status) {
        if (f.number == 7 && f.wire == PROTO_BYTES)
            graph = true, take_graph(&r, f.bytes, 0, &model->graph);
        else if (f.number == 8)
            take_opset(&r, f.bytes, model);
    }
    ended(&r, &message, "the file");
    if (!graph)
        WRONG(&r, WEIR_E_IO, "%s: not an ONNX file: it contains no graph", path);
    if (p->failed)
        WRONG(&r, WEIR_E_MEMORY, "%s: no memory to read it", path);
    model->nodes = r.nodes;
    return r.status;
}

weir_status onnx_tensor_decode(pool *p, const char *path, const void *bytes, size_t count, onnx_initializer *tensor)
{
    reader r = {.pool = p, .path = path};
    take_tensor(&r, (struct proto){bytes, count, false}, tensor);
    return r.status;
}

/* The whole file; NULL and weir_error(). */
static void *read_file(pool *p, const char *path, size_t *count)
{
    const char *why = NULL;
    int fd = reading_open(path, &why);
    struct stat st = {0};
    if (fd < 0 || fstat(fd, &st)) {
        error_set(WEIR_E_IO, "%s: cannot be read: %s", path, fd < 0 ? why : strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    *count = (size_t)st.st_size;
    char *bytes = pool_alloc(p, *count + 1);
    size_t done = 0;
    for (ssize_t part = 1; bytes && done < *count && part > 0; done += part > 0 ? (size_t)part : 0)
        part = read(fd, bytes + done, *count - done);
    close(fd);
    if (!bytes)
        error_set(WEIR_E_MEMORY, "%s: no memory for its %zu bytes", path, *count);
    else if (done < *count)
        error_set(WEIR_E_IO, "%s: cannot be read: it ended after %zu of %zu bytes", path, done, *count);
    return bytes && done == *count ? bytes : NULL;
}

weir_status onnx_model_read(pool *p, const char *path, onnx_model *model)
{
    size_t count = 0;
    const void *bytes = read_file(p, path, &count);
    if (!bytes)
        return p->failed ? WEIR_E_MEMORY : WEIR_E_IO;
    return onnx_model_decode(p, path, bytes, count, model);
}

weir_status onnx_tensor_read(pool *p, const char *path, onnx_initializer *tensor)
{
    size_t count = 0;
    const void *bytes = read_file(p, path, &count);
    if (!bytes)
        return p->failed ? WEIR_E_MEMORY : WEIR_E_IO;
    return onnx_tensor_decode(p, path, bytes, count, tensor);
}

const onnx_attribute *onnx_attribute_find(const onnx_node *node, const char *name)
{
    for (int i = 0; i < node->attributes.count; i++)
        if (!strcmp(node->attributes.item[i].name, name))
            return &node->attributes.item[i];
    return NULL;
}
