/* graph/onnx/model.h: an ONNX file as structures (https://onnx.ai/onnx/repo-docs/IR.html). It says what the file says; import.h
 * makes a graph of it.
 *
 *     onnx_model   the versions of the operator sets, and the main graph
 *     onnx_graph   nodes in an order in which each comes behind its inputs; initializers (constants and weights); inputs; outputs
 *     onnx_node    an operator with names of values, "" for one that is left out, and attributes
 *     onnx_array   constant elements: of an initializer, an attribute, or made by fold.h
 *
 * The file is not trusted. Every count is bounded by the bytes that hold it, an array has exactly the elements that its shape
 * says, and a graph inside of a graph inside of ... ends after ONNX_DEPTH. Texts end with a 0.
 *
 * Everything lives in a pool of the caller's, which holds the file's bytes, too. Any thread; keeps no state.
 */
#ifndef GRAPH_ONNX_MODEL_H
#define GRAPH_ONNX_MODEL_H

#include "graph/base/pool.h"

#include <weir/base.h>

#define ONNX_DEPTH 16            /* of graphs in attributes */
#define ONNX_DIMS_MAX 16         /* of an array */
#define ONNX_ITEMS_MAX 4000000   /* nodes, names, attributes and so on of one file */

/* Types of elements that are read: number in the file, name, C type, bytes. */
#define ONNX_TYPE_LIST(X)        \
    X(1, FLOAT, float, 4)        \
    X(2, UINT8, uint8_t, 1)      \
    X(3, INT8, int8_t, 1)        \
    X(4, UINT16, uint16_t, 2)    \
    X(5, INT16, int16_t, 2)      \
    X(6, INT32, int32_t, 4)      \
    X(7, INT64, int64_t, 8)      \
    X(9, BOOL, uint8_t, 1)       \
    X(10, FLOAT16, uint16_t, 2)  \
    X(11, DOUBLE, double, 8)     \
    X(12, UINT32, uint32_t, 4)   \
    X(13, UINT64, uint64_t, 8)   \
    X(16, BFLOAT16, uint16_t, 2)

enum onnx_type {
    ONNX_NONE,
#define X(number, name, type, bytes) ONNX_##name = number,
    ONNX_TYPE_LIST(X)
#undef X
};

const char *onnx_type_name(int type);  /* "float"; "type 8" for one that is not read: static */
size_t onnx_type_bytes(int type);      /* 0: not read */
bool onnx_type_real(int type);

typedef struct onnx_array {
    int type;            /* enum onnx_type */
    int rank;
    int64_t dim[ONNX_DIMS_MAX];
    const void *data;    /* row-major, of the C type */
} onnx_array;

typedef struct onnx_graph onnx_graph;
typedef struct onnx_model onnx_model;

typedef struct onnx_initializer {
    const char *name;
    onnx_array array;
} onnx_initializer;

typedef struct onnx_attribute {
    const char *name;
    double f;
    int64_t i;
    const char *s;                  /* NULL: none */
    const onnx_array *t;            /* NULL: none */
    const onnx_graph *g;            /* NULL: none */
    POOL_LIST(double) floats;
    POOL_LIST(int64_t) ints;
    POOL_LIST(const char *) strings;
} onnx_attribute;

typedef struct onnx_node {
    const char *name, *op, *domain; /* "", if the file has none; the domain ai.onnx is "" */
    int number;                     /* among all nodes of the file, from 1, in its order */
    POOL_LIST(const char *) in;
    POOL_LIST(const char *) out;
    POOL_LIST(onnx_attribute) attributes;
} onnx_node;

/* An input or output. A dimension is -1 if the file gives it a name or nothing. */
typedef struct onnx_port {
    const char *name;
    int type;                       /* enum onnx_type; ONNX_NONE: no tensor of a known type */
    bool shaped;                    /* the file gives a shape */
    int rank;
    int64_t dim[ONNX_DIMS_MAX];
    const char *symbol[ONNX_DIMS_MAX]; /* the name of a dimension; NULL: none */
} onnx_port;

struct onnx_graph {
    POOL_LIST(onnx_node) nodes;
    POOL_LIST(onnx_initializer) initializers;
    POOL_LIST(onnx_port) inputs;
    POOL_LIST(onnx_port) outputs;
};

struct onnx_model {
    int64_t opset;                  /* of the domain ai.onnx; 0: the file uses none */
    onnx_graph graph;
    int nodes;                      /* of all graphs */
};

/* Reads the file into `p`. E_IO and weir_error(): it cannot be read, or is not what it should be; E_UNSUPPORTED: it has something
 * that weir does not read, which the error names. */
weir_status onnx_model_read(pool *p, const char *path, onnx_model *model);
/* The same of `count` bytes, which `p` or the caller keeps as long as the model is used. External data is looked for beside
 * `path`. */
weir_status onnx_model_decode(pool *p, const char *path, const void *bytes, size_t count, onnx_model *model);
/* A tensor alone, as the files of test data are. */
weir_status onnx_tensor_read(pool *p, const char *path, onnx_initializer *tensor);
weir_status onnx_tensor_decode(pool *p, const char *path, const void *bytes, size_t count, onnx_initializer *tensor);

/* The attribute, or NULL. */
const onnx_attribute *onnx_attribute_find(const onnx_node *node, const char *name);

#endif
