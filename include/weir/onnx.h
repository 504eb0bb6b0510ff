/* weir/onnx.h: models from ONNX files (https://onnx.ai), and graphs as such files.
 *
 *     weir_graph *g = weir_graph_from_onnx("net.onnx", .shape = {{"image", {1, 3, 224, 224}}}, .fetch = true);
 *     weir_plan *plan = weir_compile(g);
 *     weir_session *s = weir_session_open(plan);
 *     weir_session_write_values(s, g);                    // the parameters, as the file has them
 *
 * The graph is one as the DSL builds it. Its tensors have the file's names, so a program can go on from them: fetch others, add a
 * loss, train, split it over devices, save it. A convolution whose weights take in a batch norm has that norm's name. Values of real
 * numbers that the file stores as initializers are parameters; other constants are frozen parameters. Every size is known when the
 * graph is built: shapes and all that is computed from shapes and constants is computed during the import.
 *
 * The line in an error of such a graph is the number of the node in the file, from 1: "net.onnx:12: matmul: inner sizes ...".
 *
 * Files are not trusted: with any content, a call returns a graph or an error that names the file and the node.
 */
#ifndef WEIR_ONNX_H
#define WEIR_ONNX_H

#include <weir/graph.h>
#include <weir/session.h>

WEIR_C_BEGIN

#define WEIR_ONNX_NAMES_MAX 32

/* The shape of an input. It replaces the file's, which may leave sizes open. */
typedef struct weir_onnx_shape {
    const char *name;
    int64_t shape[WEIR_DIMS_MAX]; /* ends at the first 0; all 0: a scalar */
} weir_onnx_shape;

/* The value of an input that is known at import: shapes, axes and the like have to be. It is converted to the input's type. Borrowed
 * for the call. */
typedef struct weir_onnx_value {
    const char *name;
    const weir_array *value;
    const char *file;             /* in place of `value`: a file with one tensor as ONNX stores it (.pb) */
} weir_onnx_value;

/* Input `in` of a step is output `out` of the step before; zeros in the first one. */
typedef struct weir_onnx_state {
    const char *in, *out;
} weir_onnx_state;

typedef struct weir_onnx_opts {
    size_t size;
    weir_src src;
    const char *name;                             /* of the graph [the path] */
    const char *devices;                          /* of its mesh, as for weir_mesh_new() ["cpu:0"] */
    weir_onnx_shape shape[WEIR_ONNX_NAMES_MAX];   /* ends at the first without a name */
    weir_onnx_value value[WEIR_ONNX_NAMES_MAX];
    weir_onnx_state state[WEIR_ONNX_NAMES_MAX];
    bool fetch;                                   /* fetch the model's outputs, by their names */
} weir_onnx_opts;

/* Builds a graph from the file at `path`. Inputs are weir_input()s that the program pushes. Owned by the caller. NULL and
 * weir_error(): the file cannot be read (E_IO), is damaged, or has operators, types or sizes that weir does not have; the
 * sentence lists all unknown operators at once. Any thread. */
#define weir_graph_from_onnx(path, ...) weir_graph_from_onnx_at(path, WEIR_OPTS(weir_onnx_opts, __VA_ARGS__))
weir_graph *weir_graph_from_onnx_at(const char *path, const weir_onnx_opts *opts);

/* Returns the tensor with this name, or NULL and weir_error(), which names the most similar ones. Works for every graph. */
weir_tensor *weir_graph_tensor(weir_graph *graph, const char *name);

/* The value that a parameter has in the file that a graph was read from. */
typedef struct weir_graph_value {
    const char *name;
    bool frozen;
    weir_array value;      /* owned by the graph; not to be changed */
} weir_graph_value;

/* Returns the number of parameters that have a value, and writes the first `room` of them to `list` (may be NULL). A graph that was
 * not read from a file has none. */
int weir_graph_values(const weir_graph *graph, weir_graph_value *list, int room);

/* Writes these values to the session's parameters, on all ranks, as weir_session_write() does. Values of parameters that the plan
 * does not have are left out. */
weir_status weir_session_write_values(weir_session *session, const weir_graph *graph);

/* ---- writing ---- */

typedef struct weir_to_onnx_opts {
    size_t size;
    weir_src src;
    const char *program;                     /* of the graph [main] */
    const char *fetch[WEIR_ONNX_NAMES_MAX];  /* the outputs; ends at the first NULL [all fetches that the forward pass makes] */
    weir_session *session;                   /* has the values of the parameters; at rest */
    const char *params;                      /* or a checkpoint has them, as weir_checkpoint_open() takes it */
} weir_to_onnx_opts;

/* Writes the forward pass of a program as an ONNX file, with version 17 of the operators, which ONNX Runtime and others run.
 *
 *     weir_graph_to_onnx(g, "net.onnx", .program = "eval", .session = s);
 *
 * The inputs are the weir_input()s that the outputs need, with the sizes that they have in the graph (of one micro-batch), the outputs are
 * weir_fetch()es, and parameters are initializers, all by their names. A state of .delay = 1 that the program sets is an input NAME and
 * an output NAME.next. Dropout is left out. Values come from .session or .params; without both, from the file that the graph was read
 * from. More than 2^30 bytes of values go to a second file, PATH.data.
 *
 * With .session all ranks of it call this, and rank 0 writes. A file that is there is replaced when the new one is whole. E_ARGUMENT: no
 * such program or fetch, nothing is fetched, a parameter has no value. E_UNSUPPORTED: ops that ONNX lacks, all in one sentence. E_IO:
 * the file cannot be written, or the checkpoint not be read. Otherwise as weir_session_read(). The session's thread; without one
 * any. */
#define weir_graph_to_onnx(graph, path, ...) weir_graph_to_onnx_at(graph, path, WEIR_OPTS(weir_to_onnx_opts, __VA_ARGS__))
weir_status weir_graph_to_onnx_at(const weir_graph *graph, const char *path, const weir_to_onnx_opts *opts);

WEIR_C_END
#endif
