/* tests/support/onnx_file.h: writes small ONNX files, for tests of what reads them.
 *
 *     struct onnx_file f = {.opset = 13};
 *     onnx_file_input(&f, "x", ONNX_FLOAT, 2, (int64_t[]){2, -1});      -1: the size is left open
 *     onnx_file_constant(&f, "w", ONNX_FLOAT, 1, (int64_t[]){3}, (float[]){1, 2, 3});
 *     onnx_file_node(&f, "Add", "x w", "y");                            names with spaces between them; - for one left out
 *     onnx_file_int(&f, "axis", 1);                                     an attribute of the last node
 *     onnx_file_output(&f, "y");
 *     onnx_file_save(&f, path);                                         and frees it
 *
 * Programmers' errors assert. One thread.
 */
#ifndef TESTS_SUPPORT_ONNX_FILE_H
#define TESTS_SUPPORT_ONNX_FILE_H

#include "graph/onnx/model.h"
#include "graph/base/proto_write.h"

#include <stddef.h>
#include <stdint.h>

struct onnx_file {
    int64_t opset;
    struct proto_out graph, node; /* of the graph, and of the node that is not yet in it */
};

void onnx_file_input(struct onnx_file *f, const char *name, int type, int rank, const int64_t *dim);
void onnx_file_output(struct onnx_file *f, const char *name);
void onnx_file_constant(struct onnx_file *f, const char *name, int type, int rank, const int64_t *dim, const void *data);
/* One whose elements are said to be `bytes` bytes from `offset` on in another file. */
void onnx_file_external(struct onnx_file *f, const char *name, int64_t count, const char *location, const char *offset);
void onnx_file_node(struct onnx_file *f, const char *op, const char *in, const char *out);
void onnx_file_int(struct onnx_file *f, const char *name, int64_t value);
void onnx_file_ints(struct onnx_file *f, const char *name, int count, const int64_t *value);
void onnx_file_text(struct onnx_file *f, const char *name, const char *value);
/* A graph inside of the last node: that of `inner`, which is freed. */
void onnx_file_graph(struct onnx_file *f, const char *name, struct onnx_file *inner);
/* The file's bytes; *f is empty then. */
struct proto_out onnx_file_bytes(struct onnx_file *f);
void onnx_file_save(struct onnx_file *f, const char *path);

#endif
