/* actors/keep/format/safetensors.c: the header of a safetensors file.
 *
 * The claims of a header are compared with the file before anything is allocated by them. Shapes are multiplied with overflow
 * in mind; the tensors, sorted by their first byte, must meet end to end, which is at once the proof that none overlaps
 * another, that none lies outside, and that there are no holes in which a file of two meanings could hide something (the
 * format forbids them for that).
 */
#define _GNU_SOURCE
#include "actors/keep/format/safetensors.h"

#include "actors/keep/format/files.h"
#include "actors/keep/format/json.h"
#include "graph/base/base.h"
#include "graph/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- dtypes ---- */

static const struct dtype {
    const char *name;
    size_t bytes;
    weir_dtype read_as;
} dtypes[] = {
#define X(name, bytes, dtype) {#name, bytes, dtype},
    SAFETENSORS_DTYPE_LIST(X)
#undef X
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t safetensors_dtype_bytes(enum safetensors_dtype dtype)
{
    return dtypes[dtype].bytes;
}

weir_dtype safetensors_dtype_read_as(enum safetensors_dtype dtype)
{
    return dtype < SAFETENSORS_DTYPES ? dtypes[dtype].read_as : WEIR_DTYPE_NONE;
}

enum safetensors_dtype safetensors_dtype_of(weir_dtype dtype)
{
    static const enum safetensors_dtype stored[WEIR_DTYPES] = {
        [WEIR_I32] = SAFETENSORS_I32, [WEIR_U8] = SAFETENSORS_U8,
        [WEIR_F16] = SAFETENSORS_F16, [WEIR_BF16] = SAFETENSORS_BF16,
        [WEIR_I64] = SAFETENSORS_I64, [WEIR_I8] = SAFETENSORS_I8,
    };
    return stored[dtype]; /* F32 is 0 */
}

static enum safetensors_dtype find_dtype(const char *name)
{
    int i = 0;
    while (i < SAFETENSORS_DTYPES && strcmp(dtypes[i].name, name) != 0)
        i++;
    return (enum safetensors_dtype)i;
}

/* ---- writing ---- */

static json_t *shape_json(const weir_shape *shape)
{
    json_t *array = json_array();
    for (int d = 0; d < shape->rank; d++)
        json_array_append_new(array, json_integer(shape->dim[d]));
    return array;
}

static json_t *header_json(struct safetensors_header *header)
{
    json_t *json = json_object(), *metadata = json_object();
    uint64_t at = 0;
    for (int i = 0; i < header->metadata.count; i++)
        json_object_set_new(metadata, header->metadata.item[i].key, json_string(header->metadata.item[i].value));
    json_object_set_new(json, "__metadata__", metadata);
    for (int i = 0; i < header->tensors.count; i++) {
        struct safetensors_tensor *t = &header->tensors.item[i];
        t->begin = at;
        t->end = at += (uint64_t)weir_shape_count(&t->shape) * safetensors_dtype_bytes(t->dtype);
        json_object_set_new(json, t->name,
                            json_pack("{s:s, s:o, s:[I,I]}", "dtype", safetensors_dtype_name(t->dtype), "shape",
                                      shape_json(&t->shape), "data_offsets", (json_int_t)t->begin, (json_int_t)t->end));
    }
    return json;
}

static void put_length(unsigned char *to, uint64_t length)
{
    for (int i = 0; i < SAFETENSORS_PREFIX; i++)
        to[i] = (unsigned char)(length >> 8 * i);
}

const void *safetensors_encode(struct pool *p, struct safetensors_header *header)
{
    json_t *json = header_json(header);
    size_t wanted = (size_t)header->tensors.count + 1, length = json_dumpb(json, NULL, 0, JSON_COMPACT);
    bool whole = length && json_object_size(json) == wanted; /* a name twice, or no memory, would leave fewer */
    header->data_at = (SAFETENSORS_PREFIX + length + SAFETENSORS_ALIGN - 1) / SAFETENSORS_ALIGN * SAFETENSORS_ALIGN;
    unsigned char *bytes = whole ? pool_alloc(p, header->data_at) : NULL;
    if (bytes) {
        memset(bytes, ' ', header->data_at);
        put_length(bytes, header->data_at - SAFETENSORS_PREFIX);
        json_dumpb(json, (char *)bytes + SAFETENSORS_PREFIX, length, JSON_COMPACT);
    } else {
        error_set(WEIR_E_MEMORY, "no memory for the header of %d tensors, or a name is there twice, or is not UTF-8",
                  header->tensors.count);
    }
    json_decref(json);
    return bytes;
}

/* ---- reading ---- */

/* The product; -1: it cannot be counted. */
static int64_t count_elements(const int64_t *dim, size_t dims)
{
    int64_t count = 1;
    bool empty = false;
    for (size_t d = 0; d < dims; d++) {
        empty |= !dim[d];
        if (dim[d] && __builtin_mul_overflow(count, dim[d], &count))
            return -1;
    }
    return empty ? 0 : count;
}

/* The shape as the file has it. One of more dimensions than are read becomes one that counts its elements. */
static weir_status take_shape(struct pool *p, struct keep_object *o, struct safetensors_tensor *t)
{
    size_t dims = json_array_size(keep_json_array(o, "shape"));
    if (dims > SAFETENSORS_DIMS_MAX)
        return o->status = error_set(WEIR_E_IO, "%s: \"shape\" has %zu dimensions; weir reads at most %d", o->where, dims,
                                     SAFETENSORS_DIMS_MAX);
    int64_t *dim = POOL_NEW(p, int64_t, dims + 1);
    if (!dim)
        return o->status = error_set(WEIR_E_MEMORY, "%s: no memory for its header", o->where);
    keep_json_numbers(o, "shape", (int)dims, dim);
    t->dims = (int)dims;
    t->dim = dim;
    if (dims > WEIR_DIMS_MAX)
        t->shape = (weir_shape){1, {count_elements(dim, dims)}};
    else {
        t->shape.rank = (int)dims;
        memcpy(t->shape.dim, dim, dims * sizeof *dim);
    }
    if (!o->status && !shape_countable(&t->shape))
        o->status = error_set(WEIR_E_IO, "%s: has more elements than can be counted", o->where);
    return o->status;
}

/* Where the tensor's bytes are, and that they are as many as its shape says, where its type is known. */
static weir_status take_offsets(struct keep_object *o, struct safetensors_tensor *t, uint64_t data_bytes)
{
    int64_t offset[2] = {0};
    uint64_t bytes;
    keep_json_numbers(o, "data_offsets", 2, offset);
    if (o->status)
        return o->status;
    t->begin = (uint64_t)offset[0];
    t->end = (uint64_t)offset[1];
    if (t->begin > t->end || t->end > data_bytes)
        return o->status = error_set(WEIR_E_IO, "%s: its data, bytes %" PRIu64 " to %" PRIu64
                                     ", is not in the file, which has %" PRIu64 " bytes of data",
                                     o->where, t->begin, t->end, data_bytes);
    if (t->dtype == SAFETENSORS_DTYPES)
        return WEIR_OK;
    bytes = (uint64_t)weir_shape_count(&t->shape) * dtypes[t->dtype].bytes;
    if (bytes != t->end - t->begin)
        return o->status = error_set(WEIR_E_IO, "%s: has %" PRIu64 " bytes of data, its shape and type do not",
                                     o->where, t->end - t->begin);
    return WEIR_OK;
}

static weir_status take_tensor(struct pool *p, const char *file, const char *name, const json_t *json,
                               uint64_t data_bytes, struct safetensors_header *header)
{
    char where[512];
    snprintf(where, sizeof where, "%s: tensor %s", file, name);
    struct keep_object o = {.json = json, .where = where};
    struct safetensors_tensor t = {.name = pool_text(p, "%s", name)};
    if (!json_is_object(json))
        return error_set(WEIR_E_IO, "%s: is not described by a JSON object", where);
    const char *dtype = keep_json_text(&o, "dtype");
    t.dtype = find_dtype(dtype);
    t.type = pool_text(p, "%s", dtype);
    if (!o.status && !*dtype)
        return error_set(WEIR_E_IO, "%s: \"dtype\" is empty", where);
    take_shape(p, &o, &t);
    take_offsets(&o, &t, data_bytes);
    if (keep_json_end(&o))
        return o.status;
    struct safetensors_tensor *to = POOL_PUSH(p, &header->tensors);
    if (!to || !t.name || !t.type)
        return error_set(WEIR_E_MEMORY, "%s: no memory for its header", file);
    *to = t;
    return WEIR_OK;
}

static weir_status take_metadata(struct pool *p, const char *file, const json_t *json,
                                 struct safetensors_header *header)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return error_set(WEIR_E_IO, "%s: __metadata__ is not a JSON object", file);
    json_object_foreach((json_t *)json, key, value)
    {
        struct safetensors_text *to = POOL_PUSH(p, &header->metadata);
        if (!json_is_string(value))
            return error_set(WEIR_E_IO, "%s: __metadata__: \"%s\" is not a text", file, key);
        if (!to)
            return error_set(WEIR_E_MEMORY, "%s: no memory for its header", file);
        to->key = pool_text(p, "%s", key);
        to->value = pool_text(p, "%s", json_string_value(value));
    }
    return WEIR_OK;
}

static weir_status take_members(struct pool *p, const char *file, json_t *json, uint64_t data_bytes,
                                struct safetensors_header *header)
{
    const char *key;
    json_t *value;
    weir_status status = WEIR_OK;
    json_object_foreach(json, key, value)
    {
        status = !strcmp(key, "__metadata__") ? take_metadata(p, file, value, header)
                                              : take_tensor(p, file, key, value, data_bytes, header);
        if (status)
            break;
    }
    return !status && p->failed ? error_set(WEIR_E_MEMORY, "%s: no memory for its header", file) : status;
}

static int by_data(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end != y->end ? (x->end < y->end ? -1 : 1) : strcmp(x->name, y->name);
}

static weir_status check_data(const char *file, struct safetensors_header *header, uint64_t data_bytes)
{
    uint64_t at = 0;
    if (header->tensors.count)
        qsort(header->tensors.item, (size_t)header->tensors.count, sizeof *header->tensors.item, by_data);
    for (int i = 0; i < header->tensors.count; i++) {
        const struct safetensors_tensor *t = &header->tensors.item[i];
        if (t->begin < at)
            return error_set(WEIR_E_IO, "%s: tensor %s: its data overlaps that of %s", file, t->name,
                             header->tensors.item[i - 1].name);
        if (t->begin > at)
            return error_set(WEIR_E_IO, "%s: tensor %s: there is a hole of %" PRIu64 " bytes before its data", file,
                             t->name, t->begin - at);
        at = t->end;
    }
    if (at != data_bytes)
        return error_set(WEIR_E_IO, "%s: has %" PRIu64 " bytes behind its last tensor", file, data_bytes - at);
    return WEIR_OK;
}

/* The length of the text, of a file that has so many bytes. */
static weir_status take_length(const char *file, const unsigned char *bytes, uint64_t file_bytes, uint64_t *length)
{
    *length = 0;
    for (int i = 0; i < SAFETENSORS_PREFIX; i++)
        *length |= (uint64_t)bytes[i] << 8 * i;
    if (*length > SAFETENSORS_TEXT_MAX)
        return error_set(WEIR_E_IO, "%s: is not a safetensors file: its header would have %" PRIu64
                         " bytes, at most %d are allowed", file, *length, SAFETENSORS_TEXT_MAX);
    if (*length > file_bytes - SAFETENSORS_PREFIX)
        return error_set(WEIR_E_IO, "%s: is cut short: its header has %" PRIu64 " bytes, the file %" PRIu64, file,
                         *length, file_bytes);
    return WEIR_OK;
}

static weir_status too_short(const char *file)
{
    return error_set(WEIR_E_IO, "%s: is not a safetensors file: it is shorter than a header's length", file);
}

weir_status safetensors_decode(struct pool *p, const char *file, const void *bytes, size_t count, uint64_t file_bytes,
                               struct safetensors_header *header)
{
    uint64_t length;
    *header = (struct safetensors_header){.data_at = 0};
    if (count < SAFETENSORS_PREFIX || file_bytes < count)
        return too_short(file);
    weir_status status = take_length(file, bytes, file_bytes, &length);
    if (status)
        return status;
    const char *text = (const char *)bytes + SAFETENSORS_PREFIX;
    if (length > count - SAFETENSORS_PREFIX || !length || text[0] != '{')
        return error_set(WEIR_E_IO, "%s: is not a safetensors file: its header does not begin with {", file);
    json_t *json = keep_json_parse(file, text, length);
    if (!json)
        return WEIR_E_IO;
    header->data_at = SAFETENSORS_PREFIX + length;
    status = take_members(p, file, json, file_bytes - header->data_at, header);
    json_decref(json);
    return status ? status : check_data(file, header, file_bytes - header->data_at);
}

static weir_status io_error(const char *file)
{
    return error_set(WEIR_E_IO, "%s: cannot be read: %s", file, keep_read_fault());
}

weir_status safetensors_read(struct pool *p, const char *file, int fd, struct safetensors_header *header,
                             const void **raw)
{
    struct stat stat_of;
    unsigned char prefix[SAFETENSORS_PREFIX];
    uint64_t length;
    if (fstat(fd, &stat_of))
        return io_error(file);
    if (stat_of.st_size < SAFETENSORS_PREFIX)
        return too_short(file);
    if (!keep_read_all(fd, 0, prefix, sizeof prefix))
        return io_error(file);
    weir_status status = take_length(file, prefix, (uint64_t)stat_of.st_size, &length);
    unsigned char *bytes = status ? NULL : pool_alloc(p, SAFETENSORS_PREFIX + length);
    if (status || !bytes)
        return status ? status : error_set(WEIR_E_MEMORY, "%s: no memory for its header", file);
    if (!keep_read_all(fd, 0, bytes, SAFETENSORS_PREFIX + length))
        return io_error(file);
    if (raw)
        *raw = bytes;
    return safetensors_decode(p, file, bytes, SAFETENSORS_PREFIX + length, (uint64_t)stat_of.st_size, header);
}
