/* graph/onnx/emit.h: from the forward pass of a weir_graph to the nodes of an ONNX file. include/weir/onnx.h says what a user sees
 * of it.
 *
 *     export.c    which nodes of the graph the outputs need, what the values are called in the file, and the loop over the nodes
 *     emit.c      writes nodes and constants: the functions below
 *     emit_*.c    a function for each op of weir, which writes the nodes that compute it; emit_table.c lists them
 *     write.c     the file, with the parameters' values
 *
 * A value of the file is a name. A tensor of the graph gets its name when the node that makes it is converted; parameters, states and
 * inputs have theirs from the start. Truth values are u8 in weir and bool in ONNX: they are u8 between two nodes of the graph.
 *
 * The file has version 17 of the operators, which knows layer normalization and is read by all that reads ONNX today.
 *
 * Everything lives in the exporter's pool; one thread. The graph is only read.
 */
#ifndef GRAPH_ONNX_EMIT_H
#define GRAPH_ONNX_EMIT_H

#include "graph/model/build.h"
#include "graph/onnx/export.h"
#include "graph/onnx/model.h"
#include "graph/base/proto_write.h"

#include <weir/onnx.h>

#define EXPORT_OPSET 17

typedef struct onnx_exporter {
    const weir_graph *graph;
    const char *path;
    int program;                     /* in graph->programs */
    pool pool;
    bool *needed;                    /* for each node of the graph */
    const char **name;               /* of each tensor of the graph in the file; NULL: none yet */
    const char **taken;              /* hash set of the file's names */
    int taken_count, taken_room;
    POOL_LIST(const weir_tensor *) params; /* that are read, in the order of the graph */
    const graph_node *node;          /* that is being converted */
    struct proto_out nodes, constants, inputs, outputs; /* fields of the file's graph */
    struct proto_out making;         /* the node that is being written */
    const char *op;                  /* of it */
    const char *why;                 /* there is no form of the node that is converted; a part of a sentence */
    weir_status status;              /* of the first fault */
} onnx_exporter;

/* ---- export.c, write.c ---- */

/* Chooses the nodes, converts them, and fills nodes, constants, inputs, outputs and params. */
bool export_nodes(onnx_exporter *ex, const onnx_export_opts *opts);
/* Writes the file. */
weir_status export_write(onnx_exporter *ex, const onnx_export_opts *opts);

/* Writes the nodes that compute ex->node. False: there is no such conversion, and ex->why says more than that, or is NULL; or a fault,
 * which is in ex->status. */
typedef bool (*onnx_emit)(onnx_exporter *ex);
onnx_emit export_find(const char *op);

bool export_fault(onnx_exporter *ex, weir_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool export_no_memory(onnx_exporter *ex);

/* ---- names ---- */

/* `wanted`, or if that is taken, one that begins with it. It is taken then. */
const char *export_name(onnx_exporter *ex, const char *wanted);

/* ---- types ---- */

int export_type(weir_dtype dtype); /* enum onnx_type */

/* ---- the node that is converted ---- */

const char *emit_in(onnx_exporter *ex, int i);
/* The name of output o, which is the tensor's if nothing else has it. */
const char *emit_out(onnx_exporter *ex, int o);
/* Output o is the value of this name, which exists. */
bool emit_alias(onnx_exporter *ex, int o, const char *name);
static inline const weir_type *emit_type(const onnx_exporter *ex, int i)
{
    return &ex->node->in[i]->type;
}
static inline const weir_shape *emit_shape(const onnx_exporter *ex, int i)
{
    return &ex->node->in[i]->type.shape;
}
/* Number i of an attribute, by its name in the op's fields; 0: the op has none of this name. */
int64_t emit_int(const onnx_exporter *ex, const char *field, int i);
double emit_real(const onnx_exporter *ex, const char *field);
/* The attribute axis, counted from the front. */
int emit_axis(const onnx_exporter *ex, int rank);

/* ---- nodes of the file ---- */

/* A node with these inputs; attributes may follow. emit_end() ends it and returns the output's name: `out`, or a new one if that is
 * NULL. */
void emit_begin(onnx_exporter *ex, const char *op, const char *const *in);
#define EMIT_BEGIN(ex, op, ...) emit_begin((ex), (op), (const char *const[]){__VA_ARGS__, NULL})
void emit_set_int(onnx_exporter *ex, const char *name, int64_t value);
void emit_set_ints(onnx_exporter *ex, const char *name, const int64_t *value, int count);
void emit_set_real(onnx_exporter *ex, const char *name, double value);
void emit_set_text(onnx_exporter *ex, const char *name, const char *value);
void emit_set_scalar(onnx_exporter *ex, const char *name, weir_dtype dtype, double value); /* a tensor of one element */
const char *emit_end(onnx_exporter *ex, const char *out);
/* With two outputs. */
void emit_end_two(onnx_exporter *ex, const char *first, const char *second);

/* A node without attributes. */
#define EMIT(ex, out, op, ...) (EMIT_BEGIN((ex), (op), __VA_ARGS__), emit_end((ex), (out)))
/* The same as output 0 of the graph's node. */
#define EMIT_OUT(ex, op, ...) (EMIT((ex), emit_out((ex), 0), (op), __VA_ARGS__) != NULL)

/* ---- constants ---- */

const char *emit_number(onnx_exporter *ex, weir_dtype dtype, double value); /* a scalar */
const char *emit_ints(onnx_exporter *ex, const int64_t *value, int count);  /* i64 [count] */
const char *emit_reals(onnx_exporter *ex, const double *value, int count);  /* f32 [count], at most WEIR_DIMS_MAX */
const char *emit_f32(onnx_exporter *ex, const weir_shape *shape, const float *data);
const char *emit_f64(onnx_exporter *ex, const weir_shape *shape, const double *data);
/* start + step i, of the shape, which has one dimension that is not 1. */
const char *emit_range(onnx_exporter *ex, weir_dtype dtype, const weir_shape *shape, double start, double step);

/* ---- often used ---- */

const char *emit_cast(onnx_exporter *ex, const char *out, const char *x, int type);
const char *emit_bool(onnx_exporter *ex, const char *x); /* of u8 */
const char *emit_reshape(onnx_exporter *ex, const char *out, const char *x, const int64_t *dim, int rank);
const char *emit_transpose(onnx_exporter *ex, const char *out, const char *x, const int64_t *perm, int rank);
/* Over one axis; `keep`: it stays as 1. */
const char *emit_reduce(onnx_exporter *ex, const char *out, const char *op, const char *x, int64_t axis, bool keep);
/* x times, or plus, a number. */
const char *emit_by_number(onnx_exporter *ex, const char *out, const char *op, const char *x, weir_dtype dtype, double value);

/* Input i, in f32; and output 0 is y, which is f32, in its own dtype. */
const char *emit_in_f32(onnx_exporter *ex, int i);
bool emit_out_f32(onnx_exporter *ex, const char *y);

/* ---- ops, for emit_table.c ---- */

#define EMIT_LIST(X)                                                                                                     \
    X(alias) X(function) X(pair) X(test) X(logical) X(add_many) X(affine) X(cast) X(where) X(masked) X(clip) X(gelu)     \
    X(silu) X(gelu_erf) X(reduce) X(sum_to) X(softmax) X(argmax) X(reshape) X(expand) X(transpose) X(slice)              \
    X(slice_step) X(pad) X(concat) X(append) X(constant) X(range) X(gather) X(gather_nd) X(resize) X(cumsum)             \
    X(top_k) X(matmul) X(linear) X(conv) X(pool) X(layernorm) X(rmsnorm) X(attention) X(attention_kept) X(rope) X(embedding)     \
    X(cross_entropy) X(label_count) X(class_lse) X(class_loss)
#define X(name) bool emit_op_##name(onnx_exporter *ex);
EMIT_LIST(X)
#undef X

#endif
