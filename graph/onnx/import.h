/* graph/onnx/import.h: from the nodes of an ONNX file to a weir_graph. include/weir/onnx.h says what a user sees of it.
 *
 * Each name in the file stands for a value. The importer goes through the nodes in their order and gives each output a value:
 *
 *     known     its elements are there at import: a constant, an initializer, a shape, and all that is computed from these.
 *               fold.c computes it on the host
 *     tensor    a tensor of the graph, built by one of the functions in ops_*.c, with the public DSL
 *
 * A known value becomes a parameter the first time that an op of the graph reads it. So integer arithmetic of shapes leaves
 * nothing behind in the graph.
 *
 * A function that converts an operator reads the node's inputs and attributes by the functions below and sets its outputs. It
 * returns false after onnx_refuse(), which names file and node. The node's number is the line in all errors of the graph:
 * "model.onnx:12: matmul: ...".
 *
 * Everything lives in the graph's pool; one thread.
 */
#ifndef GRAPH_ONNX_IMPORT_H
#define GRAPH_ONNX_IMPORT_H

#include "graph/onnx/array.h"
#include "graph/onnx/model.h"

#include <weir/onnx.h>
#include <weir/weir.h>

typedef struct onnx_value {
    const char *name;
    int type;                /* enum onnx_type */
    const onnx_array *known; /* NULL: only the graph knows it */
    weir_tensor *tensor;     /* NULL: no op has read it yet */
    bool weight;             /* an initializer of real numbers: a parameter that can be trained */
    bool normed;             /* the batch norm that reads it is in the weights of the convolution that made it */
    const onnx_node *reader; /* in the table of readers: the last node that reads it, */
    int readers;             /* and how many there are; outputs of graphs count */
} onnx_value;

/* Values by their names. */
typedef struct onnx_names {
    onnx_value **slot;       /* a hash table */
    int count, room;
} onnx_names;

typedef struct onnx_importer {
    weir_graph *graph;
    pool *pool;              /* the graph's */
    const char *path;
    const weir_onnx_opts *opts;
    int64_t opset;
    onnx_names values;       /* that there are by now */
    onnx_names readers;      /* of all names */
    const onnx_node *node;   /* that is being converted */
    weir_src src;            /* of it */
    int made;                /* tensors that it made besides its outputs */
    weir_status status;      /* of the first fault */
} onnx_importer;

typedef bool (*onnx_convert)(onnx_importer *im); /* of im->node */

/* An operator that is known. */
typedef struct onnx_operator {
    const char *op;
    onnx_convert fold;       /* computes it if all inputs are known; NULL: no */
    onnx_convert convert;    /* builds it; NULL: only known inputs can be */
} onnx_operator;

const onnx_operator *onnx_operator_find(const char *op);

#define ONNX_OPSET_MAX 23 /* the newest version of the operators that is understood */

/* ---- faults ---- */

/* "model.onnx:12: Conv conv1: ..." */
bool onnx_refuse(onnx_importer *im, weir_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define ONNX_UNSUPPORTED(im, ...) onnx_refuse((im), WEIR_E_UNSUPPORTED, __VA_ARGS__)
#define ONNX_WRONG(im, ...) onnx_refuse((im), WEIR_E_ARGUMENT, __VA_ARGS__)
bool onnx_no_memory(onnx_importer *im);

/* ---- values ---- */

/* The value of a name; NULL: no such. */
onnx_value *onnx_value_find(onnx_importer *im, const char *name);
/* The same, and makes it if there is none. NULL: no memory. */
onnx_value *onnx_value_make(onnx_importer *im, const char *name);

/* Counts the readers of all names of a graph. */
bool onnx_count_readers(onnx_importer *im, const onnx_graph *graph);
/* The only node that reads output k of this node; NULL: none or several do, or it is an output of the model. */
const onnx_node *onnx_only_reader(onnx_importer *im, int k);
/* How many nodes read a name. */
int onnx_readers(onnx_importer *im, const char *name);
bool onnx_has_in(const onnx_node *node, int i);
/* Input i, or NULL if the node leaves it out. */
onnx_value *onnx_in(onnx_importer *im, int i);
/* Its tensor: a known value becomes a parameter. NULL after a fault. */
weir_tensor *onnx_tensor(onnx_importer *im, onnx_value *value);
weir_tensor *onnx_tensor_in(onnx_importer *im, int i);
/* Its elements. NULL after a fault, which says how to give the value at import. */
const onnx_array *onnx_known_in(onnx_importer *im, int i);
/* The same as integers: at most `room`, to `list`. -1: a fault. */
int onnx_integers_in(onnx_importer *im, int i, int64_t *list, int room);
/* Sizes as weir has them: at most six, and none of 0. False after a fault. */
bool onnx_shape_of(onnx_importer *im, const char *name, int rank, const int64_t *dim, weir_shape *shape);
/* Rank and sizes of a value, known or not. */
weir_shape onnx_shape(onnx_importer *im, const onnx_value *value);

bool onnx_set_tensor(onnx_importer *im, int out, weir_tensor *tensor, int type);
/* Output 0, with the type of input 0. */
bool onnx_set_alike(onnx_importer *im, weir_tensor *tensor);
bool onnx_set_known(onnx_importer *im, int out, const onnx_array *array);
/* Output k is another value, or input i. */
bool onnx_set_value(onnx_importer *im, int out, const onnx_value *from);
bool onnx_set_same(onnx_importer *im, int out, int in);
/* A new array with room for its elements; NULL after a fault. */
onnx_array *onnx_array_new(onnx_importer *im, int type, int rank, const int64_t *dim);
onnx_array *onnx_scalar(onnx_importer *im, int type, double value);
/* A parameter with these elements; one that does not train is weir_constant() if all are equal. NULL after a fault. */
weir_tensor *onnx_parameter(onnx_importer *im, const char *name, const onnx_array *array, bool trains);
/* The same, frozen, which only the node that is being converted reads. */
weir_tensor *onnx_constant(onnx_importer *im, const onnx_array *array);

/* `base`, or if something of the graph has that name, one that begins with it. */
const char *onnx_fresh_name(onnx_importer *im, const char *base);
/* A name for a tensor of the node beside its outputs, and that of output k. */
const char *onnx_name(onnx_importer *im);
const char *onnx_out_name(onnx_importer *im, int out);
/* Options of a DSL function: .src and .name are the node's, or those of a part of it. */
#define ONNX_OPTS(im, type, ...) WEIR_OPTS_AT((im)->src, type, .name = __VA_ARGS__)
#define ONNX_PART(im, type, ...) WEIR_OPTS_AT((im)->src, type, .name = onnx_name(im), ##__VA_ARGS__)

/* The same for functions that take a name alone. */
#define PART(im) ONNX_PART(im, weir_op_opts)
#define OUT(im) ONNX_OPTS(im, weir_op_opts, onnx_out_name((im), 0))

/* ---- types ---- */

/* Of a tensor; WEIR_DTYPE_NONE: none has it. */
weir_dtype onnx_dtype(int type);

/* ---- attributes: the value, or what it is by default ---- */

int64_t onnx_int(onnx_importer *im, const char *name, int64_t by_default);
double onnx_real(onnx_importer *im, const char *name, double by_default);
const char *onnx_text(onnx_importer *im, const char *name, const char *by_default);
/* The number of integers, at most `room`; 0: there is no such attribute. */
int onnx_ints(onnx_importer *im, const char *name, int64_t *list, int room);
/* An axis of `rank` dimensions, counted from the end if it is negative. -1 after a fault. */
int onnx_axis(onnx_importer *im, int64_t axis, int rank);

/* Converts the nodes of a graph inside of a node, and makes its outputs those of the node. */
bool onnx_inline(onnx_importer *im, const onnx_graph *graph);

#endif
