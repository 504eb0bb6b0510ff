/* graph/onnx/export.h: an ONNX file of a weir_graph. emit.h says how it is made, include/weir/onnx.h what a user sees of it. The graph
 * is only read. Any thread.
 */
#ifndef GRAPH_ONNX_EXPORT_H
#define GRAPH_ONNX_EXPORT_H

#include <weir/graph.h>

/* Gives a value. The elements go to value->data, which has room for them; NULL: there is no memory, which is an error. */
typedef weir_status (*onnx_read_value)(void *ctx, const char *name, weir_array *value);

typedef struct onnx_export_opts {
    const char *program;             /* NULL: main */
    const char *const *fetch;        /* names; ends at the first NULL. None: all fetches that the forward pass makes */
    onnx_read_value read;
    void *ctx;
    uint64_t inline_most;            /* bytes of values that are in the model itself; 0: 2^30 */
    bool writes;                     /* else values are read, in the same order, and nothing is written */
} onnx_export_opts;

/* E_ARGUMENT: no such program or fetch, a parameter without a value; E_UNSUPPORTED: ops that ONNX lacks, all in one sentence. */
weir_status onnx_export(const weir_graph *graph, const char *path, const onnx_export_opts *opts);

#endif
