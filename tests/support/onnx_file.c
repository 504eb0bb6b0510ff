#include "tests/support/onnx_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- protobuf ---- */

static void put(struct onnx_bytes *b, const void *bytes, size_t count)
{
    if (b->count + count > b->room) {
        b->room = 2 * (b->count + count) + 64;
        b->at = realloc(b->at, b->room);
        assert(b->at);
    }
    if (count)
        memcpy(b->at + b->count, bytes, count);
    b->count += count;
}

static void put_varint(struct onnx_bytes *b, uint64_t value)
{
    do {
        const unsigned char byte = (unsigned char)(value & 127) | (value > 127 ? 128 : 0);
        put(b, &byte, 1);
    } while (value >>= 7);
}

static void put_number(struct onnx_bytes *b, int field, int64_t value)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)value);
}

static void put_bytes(struct onnx_bytes *b, int field, const void *bytes, size_t count)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, count);
    put(b, bytes, count);
}

static void put_text(struct onnx_bytes *b, int field, const char *text)
{
    put_bytes(b, field, text, strlen(text));
}

/* A message inside of another; `inner` is freed. */
static void put_message(struct onnx_bytes *b, int field, struct onnx_bytes inner)
{
    put_bytes(b, field, inner.at, inner.count);
    free(inner.at);
}

/* ---- parts of a model ---- */

static void end_node(struct onnx_file *f)
{
    if (f->node.count)
        put_message(&f->graph, 1, f->node);
    f->node = (struct onnx_bytes){0};
}

void onnx_file_input(struct onnx_file *f, const char *name, int type, int rank, const int64_t *dim)
{
    struct onnx_bytes port = {0}, of = {0}, tensor = {0}, shape = {0};
    for (int d = 0; d < rank; d++) {
        struct onnx_bytes size = {0};
        if (dim[d] >= 0)
            put_number(&size, 1, dim[d]);
        else
            put_text(&size, 2, "batch");
        put_message(&shape, 1, size);
    }
    put_number(&tensor, 1, type);
    put_message(&tensor, 2, shape);
    put_message(&of, 1, tensor);
    put_text(&port, 1, name);
    put_message(&port, 2, of);
    put_message(&f->graph, 11, port);
}

void onnx_file_output(struct onnx_file *f, const char *name)
{
    struct onnx_bytes port = {0};
    end_node(f);
    put_text(&port, 1, name);
    put_message(&f->graph, 12, port);
}

static struct onnx_bytes tensor_of(const char *name, int type, int rank, const int64_t *dim)
{
    struct onnx_bytes t = {0};
    for (int d = 0; d < rank; d++)
        put_number(&t, 1, dim[d]);
    put_number(&t, 2, type);
    put_text(&t, 8, name);
    return t;
}

void onnx_file_constant(struct onnx_file *f, const char *name, int type, int rank, const int64_t *dim, const void *data)
{
    struct onnx_bytes t = tensor_of(name, type, rank, dim);
    size_t count = onnx_type_bytes(type);
    for (int d = 0; d < rank; d++)
        count *= (size_t)dim[d];
    put_bytes(&t, 9, data, count);
    put_message(&f->graph, 5, t);
}

static void put_entry(struct onnx_bytes *t, const char *key, const char *value)
{
    struct onnx_bytes entry = {0};
    put_text(&entry, 1, key);
    put_text(&entry, 2, value);
    put_message(t, 13, entry);
}

void onnx_file_external(struct onnx_file *f, const char *name, int64_t count, const char *location, const char *offset)
{
    struct onnx_bytes t = tensor_of(name, ONNX_FLOAT, 1, &count);
    put_entry(&t, "location", location);
    put_entry(&t, "offset", offset);
    put_number(&t, 14, 1);
    put_message(&f->graph, 5, t);
}

static void put_names(struct onnx_bytes *b, int field, const char *names)
{
    while (*names) {
        const size_t length = strcspn(names, " ");
        put_bytes(b, field, names, length == 1 && *names == '-' ? 0 : length);
        names += length + (names[length] == ' ');
    }
}

void onnx_file_node(struct onnx_file *f, const char *op, const char *in, const char *out)
{
    end_node(f);
    put_names(&f->node, 1, in);
    put_names(&f->node, 2, out);
    put_text(&f->node, 4, op);
}

void onnx_file_int(struct onnx_file *f, const char *name, int64_t value)
{
    struct onnx_bytes a = {0};
    put_text(&a, 1, name);
    put_number(&a, 3, value);
    put_message(&f->node, 5, a);
}

void onnx_file_ints(struct onnx_file *f, const char *name, int count, const int64_t *value)
{
    struct onnx_bytes a = {0};
    put_text(&a, 1, name);
    for (int i = 0; i < count; i++)
        put_number(&a, 8, value[i]);
    put_message(&f->node, 5, a);
}

void onnx_file_text(struct onnx_file *f, const char *name, const char *value)
{
    struct onnx_bytes a = {0};
    put_text(&a, 1, name);
    put_text(&a, 4, value);
    put_message(&f->node, 5, a);
}

void onnx_file_graph(struct onnx_file *f, const char *name, struct onnx_file *inner)
{
    struct onnx_bytes a = {0};
    end_node(inner);
    put_text(&a, 1, name);
    put_message(&a, 6, inner->graph);
    put_message(&f->node, 5, a);
    *inner = (struct onnx_file){0};
}

struct onnx_bytes onnx_file_bytes(struct onnx_file *f)
{
    struct onnx_bytes model = {0}, opset = {0};
    end_node(f);
    put_text(&opset, 1, "");
    put_number(&opset, 2, f->opset);
    put_number(&model, 1, 8);
    put_message(&model, 8, opset);
    put_message(&model, 7, f->graph);
    *f = (struct onnx_file){0};
    return model;
}

void onnx_file_save(struct onnx_file *f, const char *path)
{
    struct onnx_bytes bytes = onnx_file_bytes(f);
    FILE *file = fopen(path, "wb");
    assert(file);
    const size_t written = fwrite(bytes.at, 1, bytes.count, file);
    assert(written == bytes.count);
    fclose(file);
    free(bytes.at);
}
