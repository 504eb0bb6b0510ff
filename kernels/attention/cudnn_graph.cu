/* cudnn_graph.cu: see the header. */
#include "kernels/attention/cudnn_graph.h"

#if __has_include(<cudnn_graph.h>)

enum { OPS_MOST = 48 };

/* ---- descriptors ---- */

bool cudnn_fine(cudnn_builder *b, cudnnStatus_t status, const char *what)
{
    if (!b->status && status) {
        b->status = status;
        b->what = what;
    }
    return !b->status;
}

descriptor cudnn_make(cudnn_builder *b, cudnnBackendDescriptorType_t type)
{
    descriptor made = nullptr;
    const cudnnStatus_t room = b->made_count < CUDNN_MADE_MOST ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
    if (b->status || !cudnn_fine(b, room, "too many descriptors"))
        return nullptr;
    if (cudnn_fine(b, b->cudnn->BackendCreateDescriptor(type, &made), "a descriptor cannot be made"))
        b->made[b->made_count++] = made;
    return made;
}

void cudnn_set(cudnn_builder *b, descriptor to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               const void *values, int64_t count)
{
    if (!b->status)
        cudnn_fine(b, b->cudnn->BackendSetAttribute(to, name, type, count, values), "an attribute is not taken");
}

void cudnn_set(cudnn_builder *b, descriptor to, cudnnBackendAttributeName_t name, descriptor value)
{
    cudnn_set(b, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
}

int64_t cudnn_get(cudnn_builder *b, descriptor from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  void *values, int64_t most)
{
    int64_t count = 0;
    if (!b->status)
        cudnn_fine(b, b->cudnn->BackendGetAttribute(from, name, type, most, &count, values), "an attribute cannot be read");
    return b->status ? 0 : count < most ? count : most;
}

descriptor cudnn_finalized(cudnn_builder *b, descriptor made, const char *what)
{
    if (!b->status)
        cudnn_fine(b, b->cudnn->BackendFinalize(made), what);
    return made;
}

void cudnn_destroy(cudnn_builder *b)
{
    while (b->made_count)
        b->cudnn->BackendDestroyDescriptor(b->made[--b->made_count]);
}

/* ---- a graph ---- */

/* Shapes of tensors: of q, of k, of k with rows and columns exchanged; of the scores, the same exchanged, one for each
 * row; a number; of q without gaps. */
enum form { OF_Q, OF_K, OF_K_ACROSS, OF_SCORES, OF_SCORES_ACROSS, OF_ROWS, OF_NUMBER, OF_Q_DENSE };

struct graph {
    cudnn_builder *b;
    const cudnn_problem *is;
    cudnnDataType_t half;
    descriptor ops[OPS_MOST];
    int op_count;
    int64_t next; /* id of a virtual tensor */
};

struct extent {
    int64_t dim[4], step[4];
};

static extent extent_of(const cudnn_problem *is, form form)
{
    const int64_t b = is->batch, h = is->heads, s = is->seq, k = is->keys, d = is->head_dim, dim = is->dim;
    switch (form) {
    case OF_Q:
        return {{b, h, s, d}, {s * dim, d, dim, 1}};
    case OF_Q_DENSE:
        return {{b, h, s, d}, {h * s * d, s * d, d, 1}};
    case OF_K:
        return {{b, h, k, d}, {k * dim, d, dim, 1}};
    case OF_K_ACROSS:
        return {{b, h, d, k}, {k * dim, d, 1, dim}};
    case OF_SCORES:
        return {{b, h, s, k}, {h * s * k, s * k, k, 1}};
    case OF_SCORES_ACROSS:
        return {{b, h, k, s}, {h * s * k, s * k, 1, k}};
    case OF_ROWS:
        return {{b, h, s, 1}, {h * s, s, 1, 1}};
    default:
        return {{1, 1, 1, 1}, {1, 1, 1, 1}};
    }
}

/* Halves begin at 16 bytes (cores_fit), and so do sums in the workspace; other f32 anywhere. */
static descriptor tensor(graph *g, form form, cudnnDataType_t type, int64_t id = ID_NONE)
{
    const descriptor made = cudnn_make(g->b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const extent is = extent_of(g->is, form);
    const bool is_virtual = id == ID_NONE, by_value = form == OF_NUMBER;
    const int64_t unique = is_virtual ? g->next++ : id;
    const int64_t aligned = type == g->half || id == ID_DQ_SUMS ? 16 : 4;
    cudnn_set(g->b, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
    cudnn_set(g->b, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, is.dim, 4);
    cudnn_set(g->b, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, is.step, 4);
    cudnn_set(g->b, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &unique);
    cudnn_set(g->b, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &aligned);
    cudnn_set(g->b, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
    if (by_value)
        cudnn_set(g->b, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
    return cudnn_finalized(g->b, made, "a tensor is not taken");
}

static descriptor scores(graph *g)
{
    return tensor(g, OF_SCORES, CUDNN_DATA_FLOAT);
}

static descriptor rows(graph *g)
{
    return tensor(g, OF_ROWS, CUDNN_DATA_FLOAT);
}

static descriptor number(graph *g, int64_t id)
{
    return tensor(g, OF_NUMBER, CUDNN_DATA_FLOAT, id);
}

static void add(graph *g, descriptor op)
{
    cudnn_finalized(g->b, op, "an operation is not taken");
    const cudnnStatus_t room = g->op_count < OPS_MOST ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
    if (cudnn_fine(g->b, room, "too many operations"))
        g->ops[g->op_count++] = op;
}

/* c = a b */
static descriptor multiply(graph *g, descriptor a, descriptor b, descriptor c)
{
    const descriptor how = cudnn_make(g->b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnn_set(g->b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums);
    cudnn_finalized(g->b, how, "a product is not taken");
    const descriptor op = cudnn_make(g->b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(g, op);
    return c;
}

/* y = mode(x, b); b and `where` may be NULL; axis: of an index. */
static descriptor each(graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor y,
                       cudnnDataType_t by = CUDNN_DATA_FLOAT, int64_t axis = -1, descriptor where = nullptr)
{
    const descriptor how = cudnn_make(g->b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnn_set(g->b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
    cudnn_set(g->b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &by);
    if (axis >= 0)
        cudnn_set(g->b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &axis);
    cudnn_finalized(g->b, how, "a function is not taken");
    const descriptor op = cudnn_make(g->b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (where)
        cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(g, op);
    return y;
}

static descriptor reduce(graph *g, cudnnReduceTensorOp_t by, descriptor x, descriptor y)
{
    const descriptor how = cudnn_make(g->b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnn_set(g->b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &by);
    cudnn_set(g->b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums);
    cudnn_finalized(g->b, how, "a reduction is not taken");
    const descriptor op = cudnn_make(g->b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(g, op);
    return y;
}

/* y: the same elements, with rows and columns exchanged. */
static descriptor across(graph *g, descriptor x, descriptor y)
{
    const descriptor op = cudnn_make(g->b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    cudnn_set(g->b, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(g, op);
    return y;
}

/* Scores; -inf where a query does not see the key. */
static descriptor seen(graph *g, descriptor x)
{
    if (!g->is->causal)
        return x;
    const descriptor row = tensor(g, OF_SCORES, CUDNN_DATA_INT32), column = tensor(g, OF_SCORES, CUDNN_DATA_INT32);
    const descriptor sees = tensor(g, OF_SCORES, CUDNN_DATA_BOOLEAN);
    each(g, CUDNN_POINTWISE_GEN_INDEX, x, nullptr, row, CUDNN_DATA_FLOAT, 2);
    each(g, CUDNN_POINTWISE_GEN_INDEX, x, nullptr, column, CUDNN_DATA_FLOAT, 3);
    each(g, CUDNN_POINTWISE_CMP_GE, row, column, sees, CUDNN_DATA_BOOLEAN);
    return each(g, CUDNN_POINTWISE_BINARY_SELECT, x, number(g, ID_UNSEEN), scores(g), CUDNN_DATA_FLOAT, -1, sees);
}

static void forward_ops(graph *g)
{
    const descriptor q = tensor(g, OF_Q, g->half, ID_Q), k = tensor(g, OF_K_ACROSS, g->half, ID_K);
    const descriptor s = multiply(g, q, k, scores(g));
    const descriptor x = seen(g, each(g, CUDNN_POINTWISE_MUL, s, number(g, ID_SCALE), scores(g)));
    const descriptor most = reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, rows(g));
    const descriptor e = each(g, CUDNN_POINTWISE_EXP, each(g, CUDNN_POINTWISE_SUB, x, most, scores(g)), nullptr, scores(g));
    const descriptor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, rows(g));
    const descriptor lse = tensor(g, OF_ROWS, CUDNN_DATA_FLOAT, ID_LSE);
    each(g, CUDNN_POINTWISE_ADD, most, each(g, CUDNN_POINTWISE_LOG, sum, nullptr, rows(g)), lse);
    const descriptor p = each(g, CUDNN_POINTWISE_DIV, e, sum, tensor(g, OF_SCORES, g->half));
    multiply(g, p, tensor(g, OF_K, g->half, ID_V), tensor(g, OF_Q, g->half, ID_OUT));
}

/* delta; the library's pattern has a factor in it, which is 1. */
static descriptor delta_ops(graph *g, descriptor dout)
{
    const descriptor out = tensor(g, OF_Q, g->half, ID_OUT);
    const descriptor both = each(g, CUDNN_POINTWISE_MUL, dout, out, tensor(g, OF_Q_DENSE, CUDNN_DATA_FLOAT));
    const descriptor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, rows(g));
    return each(g, CUDNN_POINTWISE_MUL, sum, number(g, ID_ONE), tensor(g, OF_ROWS, CUDNN_DATA_FLOAT, ID_DELTA));
}

static void gradient_ops(graph *g)
{
    const descriptor q = tensor(g, OF_Q, g->half, ID_Q), k = tensor(g, OF_K_ACROSS, g->half, ID_K);
    const descriptor v = tensor(g, OF_K_ACROSS, g->half, ID_V), dout = tensor(g, OF_Q, g->half, ID_DOUT);
    const descriptor delta = delta_ops(g, dout), scale = number(g, ID_SCALE);
    const descriptor lse = tensor(g, OF_ROWS, CUDNN_DATA_FLOAT, ID_LSE);
    const descriptor s = each(g, CUDNN_POINTWISE_MUL, multiply(g, q, k, scores(g)), scale, scores(g));
    const descriptor x = seen(g, each(g, CUDNN_POINTWISE_SUB, s, lse, scores(g)));
    const descriptor p = each(g, CUDNN_POINTWISE_EXP, x, nullptr, scores(g));
    multiply(g, across(g, p, tensor(g, OF_SCORES_ACROSS, g->half)), dout, tensor(g, OF_K, g->half, ID_DV));
    const descriptor dp = each(g, CUDNN_POINTWISE_SUB, multiply(g, dout, v, scores(g)), delta, scores(g));
    const descriptor ds = each(g, CUDNN_POINTWISE_MUL, each(g, CUDNN_POINTWISE_MUL, dp, p, scores(g)), scale, scores(g));
    multiply(g, across(g, ds, tensor(g, OF_SCORES_ACROSS, g->half)), q, tensor(g, OF_K, g->half, ID_DK));
    const descriptor dq = tensor(g, OF_Q, g->half, ID_DQ), rows_of_k = across(g, k, tensor(g, OF_K, g->half));
    if (!g->is->fast) {
        multiply(g, ds, rows_of_k, dq);
        return;
    }
    const descriptor sums = multiply(g, ds, rows_of_k, tensor(g, OF_Q_DENSE, CUDNN_DATA_FLOAT, ID_DQ_SUMS));
    each(g, CUDNN_POINTWISE_IDENTITY, sums, nullptr, dq);
}

descriptor cudnn_graph_of(cudnn_builder *b, cudnnHandle_t handle, const cudnn_problem *is)
{
    graph g = {b, is, is->dtype == WEIR_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16, {}, 0, ID_VIRTUAL};
    if (is->gradient)
        gradient_ops(&g);
    else
        forward_ops(&g);
    const descriptor made = cudnn_make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnn_set(b, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle);
    cudnn_set(b, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.ops, g.op_count);
    return cudnn_finalized(b, made, "its graph is not taken");
}
#endif
