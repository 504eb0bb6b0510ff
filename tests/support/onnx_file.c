#include "tests/support/onnx_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts of a model ---- */

static void end_node(struct onnx_file *f)
{
    if (f->node.count)
        proto_put_message(&f->graph, 1, &f->node);
    f->node = (struct proto_out){0};
}

void onnx_file_input(struct onnx_file *f, const char *name, int type, int rank, const int64_t *dim)
{
    struct proto_out port = {0}, of = {0}, tensor = {0}, shape = {0};
    for (int d = 0; d < rank; d++) {
        struct proto_out size = {0};
        if (dim[d] >= 0)
            proto_put_number(&size, 1, dim[d]);
        else
            proto_put_text(&size, 2, "batch");
        proto_put_message(&shape, 1, &size);
    }
    proto_put_number(&tensor, 1, type);
    proto_put_message(&tensor, 2, &shape);
    proto_put_message(&of, 1, &tensor);
    proto_put_text(&port, 1, name);
    proto_put_message(&port, 2, &of);
    proto_put_message(&f->graph, 11, &port);
}

void onnx_file_output(struct onnx_file *f, const char *name)
{
    struct proto_out port = {0};
    end_node(f);
    proto_put_text(&port, 1, name);
    proto_put_message(&f->graph, 12, &port);
}

static struct proto_out tensor_of(const char *name, int type, int rank, const int64_t *dim)
{
    struct proto_out t = {0};
    for (int d = 0; d < rank; d++)
        proto_put_number(&t, 1, dim[d]);
    proto_put_number(&t, 2, type);
    proto_put_text(&t, 8, name);
    return t;
}

void onnx_file_constant(struct onnx_file *f, const char *name, int type, int rank, const int64_t *dim, const void *data)
{
    struct proto_out t = tensor_of(name, type, rank, dim);
    size_t count = onnx_type_bytes(type);
    for (int d = 0; d < rank; d++)
        count *= (size_t)dim[d];
    proto_put_bytes(&t, 9, data, count);
    proto_put_message(&f->graph, 5, &t);
}

static void put_entry(struct proto_out *t, const char *key, const char *value)
{
    struct proto_out entry = {0};
    proto_put_text(&entry, 1, key);
    proto_put_text(&entry, 2, value);
    proto_put_message(t, 13, &entry);
}

void onnx_file_external(struct onnx_file *f, const char *name, int64_t count, const char *location, const char *offset)
{
    struct proto_out t = tensor_of(name, ONNX_FLOAT, 1, &count);
    put_entry(&t, "location", location);
    put_entry(&t, "offset", offset);
    proto_put_number(&t, 14, 1);
    proto_put_message(&f->graph, 5, &t);
}

static void put_names(struct proto_out *b, int field, const char *names)
{
    while (*names) {
        const size_t length = strcspn(names, " ");
        proto_put_bytes(b, field, names, length == 1 && *names == '-' ? 0 : length);
        names += length + (names[length] == ' ');
    }
}

void onnx_file_node(struct onnx_file *f, const char *op, const char *in, const char *out)
{
    end_node(f);
    put_names(&f->node, 1, in);
    put_names(&f->node, 2, out);
    proto_put_text(&f->node, 4, op);
}

void onnx_file_int(struct onnx_file *f, const char *name, int64_t value)
{
    struct proto_out a = {0};
    proto_put_text(&a, 1, name);
    proto_put_number(&a, 3, value);
    proto_put_message(&f->node, 5, &a);
}

void onnx_file_ints(struct onnx_file *f, const char *name, int count, const int64_t *value)
{
    struct proto_out a = {0};
    proto_put_text(&a, 1, name);
    for (int i = 0; i < count; i++)
        proto_put_number(&a, 8, value[i]);
    proto_put_message(&f->node, 5, &a);
}

void onnx_file_text(struct onnx_file *f, const char *name, const char *value)
{
    struct proto_out a = {0};
    proto_put_text(&a, 1, name);
    proto_put_text(&a, 4, value);
    proto_put_message(&f->node, 5, &a);
}

void onnx_file_graph(struct onnx_file *f, const char *name, struct onnx_file *inner)
{
    struct proto_out a = {0};
    end_node(inner);
    proto_put_text(&a, 1, name);
    proto_put_message(&a, 6, &inner->graph);
    proto_put_message(&f->node, 5, &a);
    *inner = (struct onnx_file){0};
}

struct proto_out onnx_file_bytes(struct onnx_file *f)
{
    struct proto_out model = {0}, opset = {0};
    end_node(f);
    proto_put_text(&opset, 1, "");
    proto_put_number(&opset, 2, f->opset);
    proto_put_number(&model, 1, 8);
    proto_put_message(&model, 8, &opset);
    proto_put_message(&model, 7, &f->graph);
    *f = (struct onnx_file){0};
    return model;
}

void onnx_file_save(struct onnx_file *f, const char *path)
{
    struct proto_out bytes = onnx_file_bytes(f);
    FILE *file = fopen(path, "wb");
    assert(file && !bytes.failed);
    const size_t written = fwrite(bytes.bytes, 1, bytes.count, file);
    assert(written == bytes.count);
    fclose(file);
    free(bytes.bytes);
}
