/* kernels/attention/cudnn.cu: attention of halves by cuDNN's fused kernels; attention.c has the rules and says what it computes.
 *
 * The library is told what to compute as a graph of small operations (matmul, pointwise, reduction, reshape), and has an
 * engine that makes all of it in one kernel. Its C interface for that (the backend API) is all that is used: descriptors are
 * made, given attributes and finalized. Operands are [batch, heads, rows, head_dim] with the strides that they have here, so
 * nothing is moved:
 *
 *     forward      S = Q K^T     X = scale S, -inf above the diagonal     m = max X     l = sum e^(X - m)
 *                  lse = m + log l     P = e^(X - m) / l, in halves     O = P V
 *     gradient     delta = sum dO * O     P = e^(scale Q K^T - lse), 0 above the diagonal     dV = P^T dO
 *                  dS = scale P (dO V^T - delta)     dK = dS^T Q     dQ = dS K
 *
 * lse and delta are in memory; so a forward pass of this library and a gradient by weir's own kernels go together, and the
 * other way round. All the rest has ids of virtual tensors.
 *
 * The same bits each time. The library's fastest gradient adds to dQ from several blocks in any order, and says nothing of
 * that in its engine's notes. What makes the difference is the graph: with dQ in halves as the product's own result, and no
 * sums in f32 in memory, dS goes to the workspace as a whole and dQ is a product of its own. That is its documented way to
 * be deterministic; it takes rows x keys halves for each head, so the gradient is made in parts of some sequences or heads
 * (parts_of(), which is also what plans give it). On cards of the 10th generation only one configuration of one engine
 * is; it is asked for by its number, up to the version from which it has another name.
 *
 * An engine's plan is made once for each distinct problem and kept, with all that it was made of, as what the library has
 * for another card or shape may differ. It takes some tenths of a second, up to ten on the newest cards, at the first such
 * call. A call then makes one descriptor, of addresses. Of the engines, the first is taken that the library's heuristic
 * lists, whose notes do not say that it is nondeterministic, and that needs no more workspace than there is.
 */
#include "kernels/attention/cudnn.h"

#include "kernels/attention/cores.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char choice_name[] = "WEIR_CUDA_ATTENTION";

static weir_status refused(const weir_kernel_args *args, weir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static weir_status refused(const weir_kernel_args *args, weir_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (args->error_bytes)
        vsnprintf(args->error, args->error_bytes, format, list);
    va_end(list);
    return status;
}

#if __has_include(<cudnn_graph.h>)

enum { OLDEST = 91900, NEWER_KNOBS = 92300, PLANS = 1024, DEVICES = 64, MADE_MOST = 256, OPS_MOST = 48, CONFIGS_MOST = 8 };

typedef cudnnBackendDescriptor_t descriptor;

/* ---- the library ---- */

#ifdef WEIR_EMULATED
#include "tests/cuda/standin_cudnn.h"

static const cudnn_calls *loaded(const char **why)
{
    *why = "there is no libcudnn.so.9";
    return standin_cudnn();
}

static int device_here(int *major)
{
    *major = standin_cudnn_major();
    return 0;
}

#else
#include <dlfcn.h>

static cudnn_calls calls;
static char trouble[200]; /* why there are none; "": there are */
static pthread_once_t once = PTHREAD_ONCE_INIT;

template <class F> static void find(void *library, const char *name, F *call)
{
    *call = library ? (F)dlsym(library, name) : nullptr;
    if (library && !*call)
        snprintf(trouble, sizeof trouble, "libcudnn.so.9 has no %s", name);
}

static void fill()
{
    static const char *const names[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"};
    void *library = nullptr;
    for (int i = 0; i < 2 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(trouble, sizeof trouble, "%.190s", dlerror());
#define X(name) find(library, "cudnn" #name, &calls.name);
    CUDNN_CALLS(X)
#undef X
}

static const cudnn_calls *loaded(const char **why)
{
    pthread_once(&once, fill);
    *why = trouble;
    return *trouble ? nullptr : &calls;
}

/* The device that this thread has chosen, and its generation; -1: there is none, or there are too many. */
static int device_here(int *major)
{
    int device = 0;
    if (cudaGetDevice(&device) || cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device))
        return -1;
    return device < DEVICES ? device : -1;
}
#endif

static void version_text(int version, const char *format, char *text, size_t bytes)
{
    snprintf(text, bytes, format, version / 10000, version % 10000 / 100, version % 100);
}

/* NULL, with the reason, which is the thread's: it is not there, or older than all that follows. */
static const cudnn_calls *library(const char **why)
{
    static thread_local char old[80];
    const cudnn_calls *cudnn = loaded(why);
    if (!cudnn || cudnn->GetVersion() >= OLDEST)
        return cudnn;
    version_text((int)cudnn->GetVersion(), "cuDNN %d.%d.%d is older than 9.19", old, sizeof old);
    *why = old;
    return nullptr;
}

/* ---- descriptors ---- */

/* What a plan depends on; compared as bytes, so it has no gaps. Of a part (parts_of()), in elements. */
struct problem {
    int64_t device, major, gradient, dtype, batch, heads, seq, keys, head_dim, dim, causal, room;
};

/* Descriptors in the making. After a call that failed, nothing is called any more. */
struct builder {
    const cudnn_calls *cudnn;
    cudnnStatus_t status;
    const char *what;           /* it was that failed */
    descriptor made[MADE_MOST]; /* owned */
    int made_count;
};

static bool fine(builder *b, cudnnStatus_t status, const char *what)
{
    if (!b->status && status) {
        b->status = status;
        b->what = what;
    }
    return !b->status;
}

/* The library has no way to do this, which is no error. */
static bool unsupported(cudnnStatus_t status)
{
    return CUDNN_STATUS_CATEGORY((int)status) == CUDNN_STATUS_NOT_SUPPORTED;
}

static descriptor make(builder *b, cudnnBackendDescriptorType_t type)
{
    descriptor made = nullptr;
    if (b->status || !fine(b, b->made_count < MADE_MOST ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors"))
        return nullptr;
    if (fine(b, b->cudnn->BackendCreateDescriptor(type, &made), "a descriptor cannot be made"))
        b->made[b->made_count++] = made;
    return made;
}

template <class T>
static void set(builder *b, descriptor to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T *values,
                int64_t count = 1)
{
    if (!b->status)
        fine(b, b->cudnn->BackendSetAttribute(to, name, type, count, values), "an attribute is not taken");
}

static void set(builder *b, descriptor to, cudnnBackendAttributeName_t name, descriptor value)
{
    set(b, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
}

/* How many there were. */
template <class T>
static int64_t get(builder *b, descriptor from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T *values,
                   int64_t most)
{
    int64_t count = 0;
    if (!b->status)
        fine(b, b->cudnn->BackendGetAttribute(from, name, type, most, &count, values), "an attribute cannot be read");
    return b->status ? 0 : count < most ? count : most;
}

static descriptor finalized(builder *b, descriptor made, const char *what)
{
    if (!b->status)
        fine(b, b->cudnn->BackendFinalize(made), what);
    return made;
}

static void destroy(builder *b)
{
    while (b->made_count)
        b->cudnn->BackendDestroyDescriptor(b->made[--b->made_count]);
}

/* ---- a graph ---- */

/* Shapes of tensors: of q, of k, of k with rows and columns exchanged; of the scores, the same exchanged, one for each row;
 * a number. */
enum form { OF_Q, OF_K, OF_K_ACROSS, OF_SCORES, OF_SCORES_ACROSS, OF_ROWS, OF_NUMBER, OF_Q_DENSE };

struct graph {
    builder *b;
    const problem *is;
    cudnnDataType_t half;
    descriptor ops[OPS_MOST];
    int op_count;
    int64_t next; /* id of a virtual tensor */
};

struct extent {
    int64_t dim[4], step[4];
};

static extent extent_of(const problem *is, form form)
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

/* Halves begin at 16 bytes (cores_fit), f32 anywhere. */
static descriptor tensor(graph *g, form form, cudnnDataType_t type, int64_t id = ID_NONE)
{
    const descriptor made = make(g->b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const extent is = extent_of(g->is, form);
    const bool is_virtual = id == ID_NONE, by_value = form == OF_NUMBER;
    const int64_t unique = is_virtual ? g->next++ : id, aligned = type == g->half ? 16 : 4;
    set(g->b, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
    set(g->b, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, is.dim, 4);
    set(g->b, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, is.step, 4);
    set(g->b, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &unique);
    set(g->b, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &aligned);
    set(g->b, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
    if (by_value)
        set(g->b, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
    return finalized(g->b, made, "a tensor is not taken");
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
    finalized(g->b, op, "an operation is not taken");
    if (fine(g->b, g->op_count < OPS_MOST ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR, "too many operations"))
        g->ops[g->op_count++] = op;
}

/* c = a b */
static descriptor multiply(graph *g, descriptor a, descriptor b, descriptor c)
{
    const descriptor how = make(g->b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    set(g->b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums);
    finalized(g->b, how, "a product is not taken");
    const descriptor op = make(g->b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set(g->b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(g, op);
    return c;
}

/* y = mode(x, b); b and `where` may be NULL; axis: of an index. */
static descriptor each(graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor y,
                       cudnnDataType_t by = CUDNN_DATA_FLOAT, int64_t axis = -1, descriptor where = nullptr)
{
    const descriptor how = make(g->b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g->b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
    set(g->b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &by);
    if (axis >= 0)
        set(g->b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &axis);
    finalized(g->b, how, "a function is not taken");
    const descriptor op = make(g->b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (where)
        set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
    set(g->b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(g, op);
    return y;
}

static descriptor reduce(graph *g, cudnnReduceTensorOp_t by, descriptor x, descriptor y)
{
    const descriptor how = make(g->b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    set(g->b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &by);
    set(g->b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums);
    finalized(g->b, how, "a reduction is not taken");
    const descriptor op = make(g->b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(g->b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set(g->b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set(g->b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(g, op);
    return y;
}

/* y: the same elements, with rows and columns exchanged. */
static descriptor across(graph *g, descriptor x, descriptor y)
{
    const descriptor op = make(g->b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set(g->b, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set(g->b, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
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
    multiply(g, ds, across(g, k, tensor(g, OF_K, g->half)), tensor(g, OF_Q, g->half, ID_DQ));
}

static descriptor graph_of(builder *b, cudnnHandle_t handle, const problem *is)
{
    graph g = {b, is, is->dtype == WEIR_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16, {}, 0, ID_VIRTUAL};
    if (is->gradient)
        gradient_ops(&g);
    else
        forward_ops(&g);
    const descriptor made = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(b, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle);
    set(b, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.ops, g.op_count);
    return finalized(b, made, "its graph is not taken");
}

/* ---- an engine ---- */

/* What the heuristic lists, best first; how many. */
static int64_t listed(builder *b, descriptor graph, cudnnBackendHeurMode_t mode, descriptor (&configs)[CONFIGS_MOST])
{
    const descriptor asked = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(b, asked, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, asked, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    finalized(b, asked, "its engines cannot be asked for");
    for (descriptor &config : configs)
        config = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return get(b, asked, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, configs, CONFIGS_MOST);
}

/* The configuration that is deterministic on cards of the 10th generation. */
static descriptor pinned(builder *b, descriptor graph)
{
    static const struct {
        cudnnBackendKnobType_t type;
        int64_t value;
    } knobs[] = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}};
    const int64_t number = 5;
    const descriptor engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    descriptor choices[2];
    set(b, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    set(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &number);
    finalized(b, engine, "its engine is not taken");
    for (int i = 0; i < 2; i++) {
        choices[i] = make(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        set(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, &knobs[i].type);
        set(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, &knobs[i].value);
        finalized(b, choices[i], "its engine's choices are not taken");
    }
    const descriptor config = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    set(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    set(b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, choices, 2);
    return finalized(b, config, "its engine's configuration is not taken");
}

/* Whether its engine says that results may differ from call to call. */
static bool wavers(builder *b, descriptor config)
{
    const descriptor engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    descriptor got[] = {engine};
    get(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, got, 1);
    const int64_t count = get(b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes,
                              CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    bool found = false;
    for (int64_t i = 0; i < count; i++)
        found |= notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return found;
}

/* Bytes that it takes; more than any room where it cannot be asked. */
static int64_t workspace_of(builder *b, descriptor from, cudnnBackendAttributeName_t name)
{
    int64_t bytes = 0;
    return get(b, from, name, CUDNN_TYPE_INT64, &bytes, 1) == 1 ? bytes : INT64_MAX;
}

/* The plan of an engine; NULL where it does not fit. The configuration's workspace is asked first: a plan takes long. */
static descriptor plan_of(builder *b, cudnnHandle_t handle, const problem *is, descriptor config)
{
    if (wavers(b, config) || workspace_of(b, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) > is->room)
        return nullptr;
    const descriptor plan = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle);
    set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalized(b, plan, "its plan is not taken");
    const int64_t bytes = workspace_of(b, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    return !b->status && bytes <= is->room ? plan : nullptr;
}

/* The first of them whose plan fits. That the library does not support one is no error. */
static descriptor first_fit(builder *b, cudnnHandle_t handle, const problem *is, const descriptor *configs, int64_t count)
{
    descriptor plan = nullptr;
    for (int64_t i = 0; i < count && !plan && !b->status; i++) {
        plan = plan_of(b, handle, is, configs[i]);
        if (unsupported(b->status))
            b->status = CUDNN_STATUS_SUCCESS;
    }
    return plan;
}

static descriptor best_plan(builder *b, cudnnHandle_t handle, const problem *is)
{
    const descriptor graph = graph_of(b, handle, is);
    descriptor configs[CONFIGS_MOST], plan = nullptr;
    if (is->gradient && is->major == 10) {
        configs[0] = pinned(b, graph);
        return first_fit(b, handle, is, configs, 1);
    }
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for (int i = 0; i < 2 && !plan && !b->status; i++)
        plan = first_fit(b, handle, is, configs, listed(b, graph, modes[i], configs));
    return plan;
}

/* ---- what is kept ---- */

struct kept {
    problem asked;
    descriptor plan; /* NULL: the library has none */
    builder owner;   /* of that and all that it was made of */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept *all_kept[PLANS];         /* under `lock`, as the others */
static int kept_count;
static cudnnHandle_t handles[DEVICES];

static weir_status failed(const weir_kernel_args *args, const problem *is, const cudnn_calls *cudnn, const char *what,
                          cudnnStatus_t status)
{
    char more[160] = "";
    cudnn->GetLastErrorString(more, sizeof more);
    return refused(args, WEIR_E_KERNEL,
                   "cuDNN: attention%s of %lld x %lld heads of %lld, %lld queries and %lld keys: %s: %s%s%s (%s=own does without)",
                   is->gradient ? "'s gradient" : "", (long long)is->batch, (long long)is->heads, (long long)is->head_dim,
                   (long long)is->seq, (long long)is->keys, what, cudnn->GetErrorString(status), *more ? ", " : "", more,
                   choice_name);
}

static kept *new_kept(const cudnn_calls *cudnn, const problem *is)
{
    kept *made = (kept *)calloc(1, sizeof *made);
    if (made) {
        made->asked = *is;
        made->owner.cudnn = cudnn;
    }
    return made;
}

static void kept_free(kept *one)
{
    destroy(&one->owner);
    free(one);
}

/* Under the lock. */
static kept *find_kept(const problem *is)
{
    for (int i = 0; i < kept_count; i++)
        if (!memcmp(&all_kept[i]->asked, is, sizeof *is))
            return all_kept[i];
    return nullptr;
}

/* Makes the plan of the problem, or notes that there is none. Under the lock. */
static weir_status new_plan(const weir_kernel_args *args, const cudnn_calls *cudnn, const problem *is, kept **to)
{
    kept *made = new_kept(cudnn, is);
    if (!made)
        return refused(args, WEIR_E_MEMORY, "no memory for a plan of cuDNN's");
    builder *b = &made->owner;
    made->plan = best_plan(b, handles[is->device], is);
    if (b->status && !unsupported(b->status)) {
        const weir_status status = failed(args, is, cudnn, b->what, b->status);
        kept_free(made);
        return status;
    }
    if (b->status)
        made->plan = nullptr;
    if (!made->plan)
        destroy(b);
    *to = made;
    return WEIR_OK;
}

/* ---- a call ---- */

/* Where the operands of a part begin. */
struct operand {
    int64_t id;
    void *at;
};

static char *from(const weir_view *view, int64_t elements)
{
    return (char *)view->data + elements * (view->dtype == WEIR_F32 ? 4 : 2);
}

/* Adds the operands of the part from sequence `batch` and head `head` on; how many there are then. */
static int operands_of(const weir_kernel_args *args, const attention_sizes &z, const problem *is, int64_t batch, int64_t head,
                       float *delta, operand *to)
{
    const int64_t q = (batch * z.seq * z.dim) + head * z.head_dim, k = (batch * z.keys * z.dim) + head * z.head_dim;
    const int64_t row = (batch * z.heads + head) * z.seq;
    const weir_view *in = args->in, *out = args->out;
    const operand both[] = {{ID_Q, from(&in[0], q)}, {ID_K, from(&in[1], k)}, {ID_V, from(&in[2], k)}};
    const operand made[] = {{ID_OUT, from(&out[0], q)}, {ID_LSE, from(&out[1], row)}};
    int count = 3;
    memcpy(to, both, sizeof both);
    if (!is->gradient) {
        memcpy(to + count, made, sizeof made);
        return count + 2;
    }
    const operand more[] = {{ID_OUT, from(&in[3], q)}, {ID_LSE, from(&in[4], row)}, {ID_DOUT, from(&in[5], q)},
                            {ID_DQ, from(&out[0], q)}, {ID_DK, from(&out[1], k)},   {ID_DV, from(&out[2], k)},
                            {ID_DELTA, delta}};
    memcpy(to + count, more, sizeof more);
    return count + 7;
}

/* Enqueues a part. Under the lock: the handle has a stream. */
static cudnnStatus_t enqueue(builder *b, cudnnHandle_t handle, descriptor plan, const operand *operands, int count, void *room)
{
    int64_t ids[16];
    void *at[16];
    for (int i = 0; i < count; i++) {
        ids[i] = operands[i].id;
        at[i] = operands[i].at;
    }
    const descriptor pack = make(b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids, count);
    set(b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, at, count);
    set(b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &room);
    finalized(b, pack, "addresses are not taken");
    if (!b->status)
        fine(b, b->cudnn->BackendExecute(handle, plan, pack), "it does not start");
    destroy(b);
    return b->status;
}

/* The numbers of the graph, which the library reads when it is called. */
static int numbers_of(const problem *is, float *scale, operand *to)
{
    static float unseen = -INFINITY, one = 1;
    int count = 0;
    to[count++] = {ID_SCALE, scale};
    if (is->causal)
        to[count++] = {ID_UNSEEN, &unseen};
    if (is->gradient)
        to[count++] = {ID_ONE, &one};
    return count;
}

/* The workspace: sums of the gradient's rows, and what is left of it. */
struct rooms {
    char *sums, *rest;
    int64_t bytes;
};

static char *up(char *at)
{
    const uintptr_t more = (uintptr_t)FUSED_ALIGNMENT - 1;
    return (char *)(((uintptr_t)at + more) & ~more);
}

static rooms rooms_of(const weir_kernel_args *args, const attention_sizes &z, bool gradient)
{
    char *const first = up((char *)args->workspace);
    char *const rest = gradient ? up(first + z.all * z.seq * (int64_t)sizeof(float)) : first;
    return {first, rest, (char *)args->workspace + args->workspace_bytes - rest};
}

/* Enqueues all parts of the call. Under the lock. */
static weir_status run(const weir_kernel_args *args, const attention_sizes &z, const kept *by, const rooms *room)
{
    const problem *is = &by->asked;
    const cudnnHandle_t handle = handles[is->device];
    builder b = {};
    float scale = z.scale;
    operand operands[16];
    const int numbers = numbers_of(is, &scale, operands);
    b.cudnn = by->owner.cudnn;
    fine(&b, b.cudnn->SetStream(handle, (cudaStream_t)args->queue), "the queue is not taken");
    for (int64_t batch = 0; batch < z.all / z.heads && !b.status; batch += is->batch)
        for (int64_t head = 0; head < z.heads && !b.status; head += is->heads) {
            const int count = operands_of(args, z, is, batch, head, (float *)room->sums, operands + numbers);
            enqueue(&b, handle, by->plan, operands, numbers + count, room->rest);
        }
    const weir_status told = launched(args); /* what the driver says of it is clearer than the library's number */
    return b.status && !told ? failed(args, is, b.cudnn, b.what, b.status) : told;
}

/* Under the lock. *why: it is not for the library. */
static weir_status made_by(const weir_kernel_args *args, const attention_sizes &z, const cudnn_calls *cudnn, const problem *is,
                           const rooms *room, const char **why)
{
    kept *found = find_kept(is);
    const bool is_new = !found;
    weir_status status = WEIR_OK;
    if (!handles[is->device]) {
        const cudnnStatus_t error = cudnn->Create(&handles[is->device]);
        if (error)
            return failed(args, is, cudnn, "it does not begin", error);
    }
    if (is_new)
        status = new_plan(args, cudnn, is, &found);
    if (!status && found->plan)
        status = run(args, z, found, room);
    else if (!status)
        *why = "cuDNN has no engine for this shape on this card that gives the same bits each time in this workspace";
    if (is_new && found && kept_count < PLANS)
        all_kept[kept_count++] = found;
    else if (is_new && found)
        kept_free(found);
    return status;
}

/* Why the call is not for the library, whatever that has; NULL: it may be. */
static const char *unfit(const weir_kernel_args *args, const attention_sizes &z, bool gradient)
{
    if (!cores_fit(args, z) || z.head_dim > FUSED_HEAD_MOST)
        return "attention is by cuDNN where it is of halves, with heads of a multiple of 8, up to 128";
    if (!z.all || !z.seq || (gradient && z.seq == 1 && z.keys == 1))
        return "cuDNN has no gradient of one query of one key, and nothing of none";
    return nullptr;
}

static weir_status attempt(const weir_kernel_args *args, const attention_sizes &z, bool gradient, const char **why)
{
    int major = 0;
    const int device = device_here(&major);
    const rooms room = rooms_of(args, z, gradient);
    if ((*why = unfit(args, z, gradient)))
        return WEIR_OK;
    const char *absent;
    const cudnn_calls *cudnn = library(&absent);
    const int64_t batch = z.all / z.heads;
    const attention_parts parts = gradient ? parts_of(batch, z.heads, z.seq, z.keys) : attention_parts{batch, z.heads, 0};
    const int64_t bytes = parts.bytes + FUSED_BYTES_MORE;
    if (!cudnn)
        *why = absent;
    else if (device < 0)
        *why = "no device is chosen that cuDNN could use";
    else if (!parts.heads || room.bytes < bytes)
        *why = "scores of one head are more than the workspace of a gradient by cuDNN may be";
    else if (gradient && major != 8 && major != 9 && (major != 10 || cudnn->GetVersion() >= NEWER_KNOBS))
        *why = "of this version of cuDNN it is not known how its gradient gives the same bits each time on this card";
    if (*why)
        return WEIR_OK;
    const problem is = {device, major, gradient, args->in[0].dtype, parts.batch, parts.heads, z.seq, z.keys, z.head_dim,
                        z.dim, z.causal, bytes};
    pthread_mutex_lock(&lock);
    const weir_status status = made_by(args, z, cudnn, &is, &room, why);
    pthread_mutex_unlock(&lock);
    return status;
}

extern "C" void cudnn_told(char *text, size_t bytes)
{
    const char *wanted = getenv(choice_name), *why = "";
    const cudnn_calls *cudnn = library(&why);
    if (wanted && !strcmp(wanted, "own"))
        snprintf(text, bytes, "attention by weir (%s=own)", choice_name);
    else if (cudnn)
        version_text((int)cudnn->GetVersion(), "attention by cuDNN %d.%d.%d", text, bytes);
    else
        snprintf(text, bytes, "attention by weir (%s)", why);
}

#else /* its headers were not found when this was built */

static const char not_built[] = "weir was built without cuDNN's headers";

static weir_status attempt(const weir_kernel_args *, const attention_sizes &, bool, const char **why)
{
    *why = not_built;
    return WEIR_OK;
}

extern "C" void cudnn_told(char *text, size_t bytes)
{
    snprintf(text, bytes, "attention by weir (%s)", not_built);
}
#endif

weir_status cudnn_attention(const weir_kernel_args *args, const attention_sizes &z, bool gradient, bool *taken)
{
    const char *wanted = getenv(choice_name), *why = nullptr;
    *taken = false;
    if (wanted && !strcmp(wanted, "own"))
        return WEIR_OK;
    if (wanted && strcmp(wanted, "cudnn"))
        return refused(args, WEIR_E_UNSUPPORTED, "%s is \"%.40s\"; it may be own or cudnn", choice_name, wanted);
    const weir_status status = attempt(args, z, gradient, &why);
    if (why && wanted)
        return refused(args, WEIR_E_UNSUPPORTED, "%s=cudnn, but %s", choice_name, why);
    *taken = !why;
    return status;
}
