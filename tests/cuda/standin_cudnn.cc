/* standin_cudnn.cc: see the header. */
#include "kernels/attention/cudnn.h"

#if __has_include(<cudnn_graph.h>)
#include "tests/cuda/standin_cudnn.h"

#include "tests/cuda/emulated.h"

#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <map>
#include <memory>
#include <set>
#include <stdio.h>
#include <string.h>
#include <string>
#include <vector>

/* ---- what descriptors have ---- */

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<unsigned char> bytes;
};

struct net;

struct thing {
    uint64_t magic;
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<int, attribute> has;
    std::shared_ptr<const net> graph; /* of a graph, and of what is made for it */
    int64_t engine, workspace;
};

enum : uint64_t { THING = 0x64657363726970 };
enum : int { ANY_COUNT = -1, NO_KIND = -1 };

/* What may be set: of which type, how many, in descriptors of which kind; whether it has to be. */
struct rule {
    int of, name, type, count, kind;
    bool needed;
};

#define NUMBER(of, name, type, count, needed) \
    {CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, NO_KIND, needed}
#define INSIDE(of, name, kind, count, needed)                                                                        \
    {CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, kind, needed}
#define TENSOR_IN(of, name, needed) INSIDE(of, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 1, needed)

static const rule rules[] = {
    NUMBER(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, true),
    NUMBER(TENSOR, TENSOR_DIMENSIONS, INT64, 4, true),
    NUMBER(TENSOR, TENSOR_STRIDES, INT64, 4, true),
    NUMBER(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, true),
    NUMBER(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, true),
    NUMBER(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
    NUMBER(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, false),
    NUMBER(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, true),
    NUMBER(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, true),
    NUMBER(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, true),
    NUMBER(POINTWISE, POINTWISE_AXIS, INT64, 1, false),
    NUMBER(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, true),
    NUMBER(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, true),
    TENSOR_IN(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, true),
    TENSOR_IN(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, true),
    TENSOR_IN(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, true),
    INSIDE(OPERATION_MATMUL, OPERATION_MATMUL_DESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR, 1, true),
    INSIDE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 1, true),
    TENSOR_IN(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, true),
    TENSOR_IN(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, false),
    TENSOR_IN(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, false),
    TENSOR_IN(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, true),
    TENSOR_IN(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, true),
    TENSOR_IN(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, true),
    INSIDE(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 1, true),
    TENSOR_IN(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, true),
    TENSOR_IN(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, true),
    NUMBER(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, true),
    INSIDE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, NO_KIND, ANY_COUNT, true),
    INSIDE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 1, true),
    NUMBER(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, true),
    INSIDE(ENGINE, ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 1, true),
    NUMBER(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1, true),
    NUMBER(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1, true),
    NUMBER(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64, 1, true),
    INSIDE(ENGINECFG, ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1, true),
    INSIDE(ENGINECFG, ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, ANY_COUNT, false),
    NUMBER(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, true),
    INSIDE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 1, true),
    NUMBER(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, ANY_COUNT, true),
    NUMBER(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, ANY_COUNT, true),
    NUMBER(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, true),
};

static thread_local std::string last;

static cudnnStatus_t bad(const char *why, int64_t what = 0)
{
    char text[160];
    snprintf(text, sizeof text, "%s (%lld)", why, (long long)what);
    last = text;
    return CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t unsupported(const char *why)
{
    last = why;
    return CUDNN_STATUS_NOT_SUPPORTED;
}

#define ENTER(name)                                                \
    if (const int status_ = standin_cudnn_enter(name); status_)    \
    return last = "the stand-in was told to fail", (cudnnStatus_t)status_
#define NEED(condition, ...)       \
    do {                           \
        if (!(condition))          \
            return bad(__VA_ARGS__); \
    } while (0)

static size_t bytes_of(int type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default:
        return sizeof(int);
    }
}

static const rule *rule_of(const thing *at, int name)
{
    for (const rule &r : rules)
        if (r.of == (int)at->type && r.name == name)
            return &r;
    return nullptr;
}

static thing *here(cudnnBackendDescriptor_t handle)
{
    thing *at = (thing *)handle;
    return at && at->magic == THING ? at : nullptr;
}

template <class T> static std::vector<T> all_of(const thing *at, int name)
{
    std::vector<T> values;
    const auto found = at->has.find(name);
    if (found != at->has.end()) {
        values.resize((size_t)found->second.count);
        memcpy((void *)values.data(), found->second.bytes.data(), found->second.bytes.size());
    }
    return values;
}

template <class T> static T one_of(const thing *at, int name, T otherwise = T())
{
    const auto found = at->has.find(name);
    if (found != at->has.end())
        memcpy((void *)&otherwise, found->second.bytes.data(), sizeof otherwise);
    return otherwise;
}

static const thing *inside(const thing *at, int name)
{
    return one_of<const thing *>(at, name);
}

/* ---- a graph, without descriptors ---- */

struct tensor {
    cudnnDataType_t type;
    int64_t dim[4], step[4], id, aligned;
    bool is_virtual, by_value;
};

struct node {
    cudnnBackendDescriptorType_t type;
    int mode;
    int64_t axis;
    int64_t x, b, t, y; /* ids; 0: none */
};

struct net {
    cudnnHandle_t handle;
    std::map<int64_t, tensor> tensors;
    std::vector<node> nodes; /* each behind those that make what it reads */
};

static tensor tensor_of(const thing *at)
{
    tensor is = {};
    is.type = one_of<cudnnDataType_t>(at, CUDNN_ATTR_TENSOR_DATA_TYPE);
    memcpy(is.dim, all_of<int64_t>(at, CUDNN_ATTR_TENSOR_DIMENSIONS).data(), sizeof is.dim);
    memcpy(is.step, all_of<int64_t>(at, CUDNN_ATTR_TENSOR_STRIDES).data(), sizeof is.step);
    is.id = one_of<int64_t>(at, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    is.aligned = one_of<int64_t>(at, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    is.is_virtual = one_of<bool>(at, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    is.by_value = one_of<bool>(at, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    return is;
}

static int64_t size_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : 4;
}

static cudnnStatus_t check_tensor(const thing *at)
{
    const tensor is = tensor_of(at);
    for (int i = 0; i < 4; i++)
        NEED(is.dim[i] > 0 && is.step[i] > 0, "a dimension and its stride are positive", i);
    NEED(is.aligned >= size_of(is.type) && !(is.aligned & (is.aligned - 1)), "an alignment is a power of two", is.aligned);
    NEED(!is.is_virtual || !is.by_value, "what is passed by value is not virtual", is.id);
    NEED(!is.by_value || is.dim[0] * is.dim[1] * is.dim[2] * is.dim[3] == 1, "one number is passed by value", is.id);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_product(const thing *at)
{
    const tensor a = tensor_of(inside(at, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    const tensor b = tensor_of(inside(at, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    const tensor c = tensor_of(inside(at, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    for (int i = 0; i < 2; i++)
        NEED(a.dim[i] == c.dim[i] && b.dim[i] == c.dim[i], "a product's batches differ", i);
    NEED(a.dim[2] == c.dim[2] && b.dim[3] == c.dim[3] && a.dim[3] == b.dim[2], "a product's matrices do not fit", c.id);
    return CUDNN_STATUS_SUCCESS;
}

/* Operands that a function takes. */
static int operands_of(int mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
        return 2;
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX:
    case CUDNN_POINTWISE_IDENTITY:
        return 1;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return 3;
    default:
        return 0;
    }
}

static bool spreads(const tensor &from, const tensor &to)
{
    for (int i = 0; i < 4; i++)
        if (from.dim[i] != 1 && from.dim[i] != to.dim[i])
            return false;
    return true;
}

static cudnnStatus_t check_function(const thing *at)
{
    const thing *how = inside(at, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = one_of<int>(how, CUDNN_ATTR_POINTWISE_MODE), count = operands_of(mode);
    const int names[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                         CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    const tensor y = tensor_of(inside(at, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    NEED(count, "a function that the stand-in does not know", mode);
    for (int i = 0; i < 3; i++) {
        const thing *operand = inside(at, names[i]);
        NEED((operand != nullptr) == (i < count), "a function has another number of operands", mode);
        NEED(!operand || spreads(tensor_of(operand), y), "an operand does not spread over the result", names[i]);
    }
    const int64_t axis = one_of<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
    NEED((mode == CUDNN_POINTWISE_GEN_INDEX) == (axis >= 0 && axis < 4), "an index has an axis, and nothing else has", mode);
    NEED(mode != CUDNN_POINTWISE_GEN_INDEX || y.type == CUDNN_DATA_INT32, "an index is an integer", y.type);
    NEED((mode == CUDNN_POINTWISE_CMP_GE) == (y.type == CUDNN_DATA_BOOLEAN), "what is compared is a boolean", mode);
    NEED(mode != CUDNN_POINTWISE_BINARY_SELECT || tensor_of(inside(at, names[2])).type == CUDNN_DATA_BOOLEAN,
         "a boolean selects", mode);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reduction(const thing *at)
{
    const tensor x = tensor_of(inside(at, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    const tensor y = tensor_of(inside(at, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    const int mode = one_of<int>(inside(at, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR);
    NEED(mode == CUDNN_REDUCE_TENSOR_ADD || mode == CUDNN_REDUCE_TENSOR_MAX, "a reduction that the stand-in does not know",
         mode);
    NEED(spreads(y, x), "a reduction's result is no part of its operand", y.id);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reshape(const thing *at)
{
    const tensor x = tensor_of(inside(at, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    const tensor y = tensor_of(inside(at, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    NEED(y.is_virtual, "only a virtual tensor is reshaped to", y.id);
    for (int i = 0; i < 4; i++) {
        const int other = i < 2 ? i : 5 - i;
        NEED(x.dim[i] == y.dim[other] && x.step[i] == y.step[other], "these are not the same elements", i);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Notes the tensor that the operation has there; its id, or 0. */
static int64_t note(net *to, const thing *op, int name, bool *unique)
{
    const thing *at = inside(op, name);
    if (!at)
        return 0;
    const tensor is = tensor_of(at);
    const auto found = to->tensors.emplace(is.id, is);
    *unique = *unique && (found.second || !memcmp(&found.first->second, &is, sizeof is));
    return is.id;
}

static node node_of(net *to, const thing *op, bool *unique)
{
    node made = {op->type, 0, -1, 0, 0, 0, 0};
    switch ((int)op->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        made.x = note(to, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, unique);
        made.b = note(to, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, unique);
        made.y = note(to, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, unique);
        return made;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
        const thing *how = inside(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        made.mode = one_of<int>(how, CUDNN_ATTR_POINTWISE_MODE);
        made.axis = one_of<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
        made.x = note(to, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, unique);
        made.b = note(to, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, unique);
        made.t = note(to, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, unique);
        made.y = note(to, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, unique);
        return made;
    }
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        made.mode = one_of<int>(inside(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR);
        made.x = note(to, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, unique);
        made.y = note(to, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, unique);
        return made;
    default:
        made.x = note(to, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, unique);
        made.y = note(to, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, unique);
        return made;
    }
}

/* Puts nodes behind those that make what they read. */
static cudnnStatus_t order(net *all)
{
    std::map<int64_t, int> made, read;
    std::vector<node> left = all->nodes;
    for (const node &n : left) {
        made[n.y]++;
        for (int64_t id : {n.x, n.b, n.t})
            read[id]++;
    }
    for (const auto &t : all->tensors) {
        NEED(made[t.first] <= 1 && (made[t.first] == 1 || !t.second.is_virtual), "a tensor is made once", t.first);
        NEED(!t.second.is_virtual || read[t.first], "a virtual tensor is never read", t.first);
        NEED(!t.second.by_value || !made[t.first], "what is passed by value is not made", t.first);
    }
    all->nodes.clear();
    for (bool moved = true; moved && !left.empty();) {
        moved = false;
        for (size_t i = 0; i < left.size(); i++)
            if (made[left[i].x] <= 0 && made[left[i].b] <= 0 && made[left[i].t] <= 0) {
                made[left[i].y] = 0;
                all->nodes.push_back(left[i]);
                left.erase(left.begin() + (ptrdiff_t)i--);
                moved = true;
            }
    }
    NEED(left.empty(), "operations go round in a circle", (int64_t)left.size());
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_graph(thing *at)
{
    auto made = std::make_shared<net>();
    bool unique = true;
    made->handle = one_of<cudnnHandle_t>(at, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    for (const thing *op : all_of<const thing *>(at, CUDNN_ATTR_OPERATIONGRAPH_OPS))
        made->nodes.push_back(node_of(made.get(), op, &unique));
    NEED(unique, "two tensors have one id");
    const cudnnStatus_t status = order(made.get());
    at->graph = made;
    return status;
}

/* ---- engines ---- */

enum : int64_t { ENGINE_WAVERS = 1, ENGINE_LARGE, ENGINE_UNSUPPORTED, ENGINE_PINNED = 5, ENGINE_GOOD };

/* dS of a gradient, which most need that are deterministic; not where dQ is added up in memory. */
static int64_t workspace_of(const net &graph, int64_t engine)
{
    if (engine == ENGINE_LARGE)
        return INT64_C(1) << 40;
    if (engine == ENGINE_PINNED)
        return 0;
    if (graph.tensors.count(ID_DQ_SUMS))
        return 256;
    for (const auto &t : graph.tensors)
        if (t.first == ID_DQ) {
            const tensor &q = t.second, &k = graph.tensors.at(ID_DK);
            return q.dim[0] * q.dim[1] * ((q.dim[2] + 63) / 64 * 64) * ((k.dim[2] + 127) / 128 * 128) * 2 + 256;
        }
    return 256;
}

static void become_engine(thing *at, std::shared_ptr<const net> graph, int64_t engine)
{
    at->graph = graph;
    at->engine = engine;
    at->workspace = workspace_of(*graph, engine) + standin_cudnn_more();
    at->finalized = true;
}

/* Of the library's engines one can be asked for by its number; on a card of the 10th generation, so configured. */
static cudnnStatus_t check_config(thing *at)
{
    const thing *engine = inside(at, CUDNN_ATTR_ENGINECFG_ENGINE);
    std::map<int, int64_t> knobs;
    for (const thing *choice : all_of<const thing *>(at, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES))
        knobs[one_of<int>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] =
            one_of<int64_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    if (engine->engine != ENGINE_PINNED || standin_cudnn_major() != 10 || knobs.size() != 2 ||
        knobs[CUDNN_KNOB_TYPE_KERNEL_CFG] != 31 || knobs[CUDNN_KNOB_TYPE_STAGES] != 2)
        return unsupported("there is no such configuration here");
    become_engine(at, engine->graph, engine->engine);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_plan(thing *at)
{
    const thing *config = inside(at, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    NEED(one_of<cudnnHandle_t>(at, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) == config->graph->handle,
         "the graph has another handle");
    if (config->engine == ENGINE_UNSUPPORTED)
        return unsupported("this engine has no kernel for it after all");
    become_engine(at, config->graph, config->engine);
    standin_cudnn_planned();
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_pack(const thing *at)
{
    const std::vector<int64_t> ids = all_of<int64_t>(at, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    NEED(ids.size() == all_of<void *>(at, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size(), "ids and addresses differ in number");
    NEED(std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size(), "an id is there twice");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check(thing *at)
{
    switch ((int)at->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(at);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return check_product(at);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_function(at);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return check_reduction(at);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return check_reshape(at);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return check_graph(at);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        at->graph = inside(at, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        at->graph = inside(at, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->graph;
        at->engine = one_of<int64_t>(at, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return check_config(at);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return check_plan(at);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return check_pack(at);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

/* ---- what a graph computes ---- */

struct work {
    std::shared_ptr<const net> graph;
    std::map<int64_t, void *> memory;
    std::map<int64_t, float> numbers;
    std::map<int64_t, std::vector<double>> values; /* of virtual tensors, with their strides */
    void *workspace;
    int64_t workspace_bytes;
};

struct place {
    int64_t at[4];
};

static int64_t offset(const tensor &is, const place &p)
{
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (is.dim[i] == 1 ? 0 : p.at[i]) * is.step[i];
    return sum;
}

/* From the first on. */
static int64_t elements_of(const tensor &is)
{
    return 1 + offset(is, {{is.dim[0] - 1, is.dim[1] - 1, is.dim[2] - 1, is.dim[3] - 1}});
}

static double rounded(cudnnDataType_t type, double x)
{
    switch (type) {
    case CUDNN_DATA_HALF:
        return (double)__half2float(__float2half_rn((float)x));
    case CUDNN_DATA_BFLOAT16:
        return (double)__bfloat162float(__float2bfloat16_rn((float)x));
    default:
        return x;
    }
}

static double load(work *w, int64_t id, const place &p)
{
    const tensor &is = w->graph->tensors.at(id);
    const int64_t at = offset(is, p);
    if (is.by_value)
        return w->numbers.at(id);
    if (is.is_virtual)
        return w->values.at(id)[(size_t)at];
    const void *from = w->memory.at(id);
    if (is.type == CUDNN_DATA_FLOAT)
        return ((const float *)from)[at];
    return is.type == CUDNN_DATA_HALF ? (double)__half2float(((const __half *)from)[at])
                                      : (double)__bfloat162float(((const __nv_bfloat16 *)from)[at]);
}

static void store(work *w, int64_t id, const place &p, double x)
{
    const tensor &is = w->graph->tensors.at(id);
    const int64_t at = offset(is, p);
    if (is.is_virtual)
        w->values.at(id)[(size_t)at] = rounded(is.type, x);
    else if (is.type == CUDNN_DATA_FLOAT)
        ((float *)w->memory.at(id))[at] = (float)x;
    else if (is.type == CUDNN_DATA_HALF)
        ((__half *)w->memory.at(id))[at] = __float2half_rn((float)x);
    else
        ((__nv_bfloat16 *)w->memory.at(id))[at] = __float2bfloat16_rn((float)x);
}

/* Calls to(place) for every element. */
template <class F> static void everywhere(const tensor &is, F to)
{
    place p;
    for (p.at[0] = 0; p.at[0] < is.dim[0]; p.at[0]++)
        for (p.at[1] = 0; p.at[1] < is.dim[1]; p.at[1]++)
            for (p.at[2] = 0; p.at[2] < is.dim[2]; p.at[2]++)
                for (p.at[3] = 0; p.at[3] < is.dim[3]; p.at[3]++)
                    to(p);
}

static double function(const node &n, double x, double b, double t, const place &p)
{
    switch (n.mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return exp(x);
    case CUDNN_POINTWISE_LOG:
        return log(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_GEN_INDEX:
        return (double)p.at[n.axis];
    default: /* CUDNN_POINTWISE_BINARY_SELECT */
        return t != 0 ? x : b;
    }
}

static void make_product(work *w, const node &n)
{
    const int64_t inner = w->graph->tensors.at(n.x).dim[3];
    everywhere(w->graph->tensors.at(n.y), [&](const place &p) {
        double sum = 0;
        for (int64_t i = 0; i < inner; i++)
            sum += load(w, n.x, {{p.at[0], p.at[1], p.at[2], i}}) * load(w, n.b, {{p.at[0], p.at[1], i, p.at[3]}});
        store(w, n.y, p, sum);
    });
}

static void make_function(work *w, const node &n)
{
    everywhere(w->graph->tensors.at(n.y), [&](const place &p) {
        store(w, n.y, p, function(n, load(w, n.x, p), n.b ? load(w, n.b, p) : 0, n.t ? load(w, n.t, p) : 0, p));
    });
}

static void make_reduction(work *w, const node &n)
{
    const bool sums = n.mode == CUDNN_REDUCE_TENSOR_ADD;
    everywhere(w->graph->tensors.at(n.y), [&](const place &p) { store(w, n.y, p, sums ? 0 : -INFINITY); });
    everywhere(w->graph->tensors.at(n.x), [&](const place &p) {
        const double x = load(w, n.x, p), y = load(w, n.y, p);
        store(w, n.y, p, sums ? x + y : std::max(x, y));
    });
}

static void make_reshape(work *w, const node &n)
{
    everywhere(w->graph->tensors.at(n.y),
               [&](const place &p) { store(w, n.y, p, load(w, n.x, {{p.at[0], p.at[1], p.at[3], p.at[2]}})); });
}

static void run_work(void *data)
{
    const std::unique_ptr<work> w((work *)data);
    memset(w->workspace, 0xff, (size_t)w->workspace_bytes);
    for (const auto &t : w->graph->tensors)
        if (t.second.is_virtual)
            w->values[t.first].resize((size_t)elements_of(t.second));
    for (const node &n : w->graph->nodes)
        if (n.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            make_product(w.get(), n);
        else if (n.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            make_function(w.get(), n);
        else if (n.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            make_reduction(w.get(), n);
        else
            make_reshape(w.get(), n);
}

/* ---- the calls ---- */

struct context {
    cudaStream_t stream;
    bool has_stream;
};

static size_t get_version(void)
{
    return (size_t)standin_cudnn_version();
}

static const char *get_error_string(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_BAD_PARAM          ? "CUDNN_STATUS_BAD_PARAM"
           : status == CUDNN_STATUS_NOT_SUPPORTED    ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                     : "another status";
}

static void get_last_error_string(char *message, size_t bytes)
{
    snprintf(message, bytes, "%s", last.c_str());
    last.clear();
}

static cudnnStatus_t create(cudnnHandle_t *handle)
{
    static context contexts[64]; /* which a program keeps */
    static int count;
    ENTER("cudnnCreate");
    NEED(count < 64, "too many handles");
    *handle = (cudnnHandle_t)&contexts[count++];
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    ENTER("cudnnSetStream");
    ((context *)handle)->stream = stream;
    ((context *)handle)->has_stream = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *to)
{
    ENTER("cudnnBackendCreateDescriptor");
    *to = new thing{THING, type, false, {}, nullptr, 0, 0};
    standin_cudnn_count(1);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t handle)
{
    thing *at = here(handle);
    NEED(at, "there is no such descriptor");
    at->magic = 0;
    delete at;
    standin_cudnn_count(-1);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count, const void *from)
{
    thing *at = here(handle);
    ENTER("cudnnBackendSetAttribute");
    NEED(at && from, "nothing is set");
    const rule *by = rule_of(at, name);
    NEED(!at->finalized, "it is finalized", name);
    NEED(by && by->type == (int)type, "it has no such attribute of that type", name);
    NEED(by->count == ANY_COUNT ? count > 0 : count == by->count, "an attribute has another number of elements", name);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        const thing *other = here(((cudnnBackendDescriptor_t const *)from)[i]);
        NEED(other && other->finalized, "a descriptor in it is not finalized", name);
        NEED(by->kind == NO_KIND || by->kind == (int)other->type, "a descriptor in it is of another kind", name);
    }
    const size_t bytes = (size_t)count * bytes_of(type);
    at->has[name] = {type, count, std::vector<unsigned char>((const unsigned char *)from, (const unsigned char *)from + bytes)};
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t handle)
{
    thing *at = here(handle);
    ENTER("cudnnBackendFinalize");
    NEED(at && !at->finalized, "it is finalized");
    for (const rule &r : rules)
        NEED(r.of != (int)at->type || !r.needed || at->has.count(r.name), "an attribute was not set", r.name);
    const cudnnStatus_t status = check(at);
    at->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

static cudnnStatus_t get_results(const thing *at, int64_t most, int64_t *count, void *to)
{
    static const int64_t engines[] = {ENGINE_WAVERS, ENGINE_LARGE, ENGINE_UNSUPPORTED, ENGINE_GOOD};
    const bool best = one_of<int>(at, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
    *count = best ? (int64_t)(sizeof engines / sizeof *engines) : 0;
    for (int64_t i = 0; i < most && i < *count; i++) {
        thing *config = here(((cudnnBackendDescriptor_t *)to)[i]);
        NEED(config && !config->finalized && config->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "it is no new configuration");
        become_engine(config, at->graph, engines[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

template <class T> static cudnnStatus_t give(int64_t most, int64_t *count, void *to, T value)
{
    NEED(most >= 1 && to, "nothing is asked for");
    memcpy(to, &value, sizeof value);
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t const handle, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *to)
{
    const thing *at = here(handle);
    ENTER("cudnnBackendGetAttribute");
    NEED(at && at->finalized, "it is not finalized", name);
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return get_results(at, most, count, to);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        thing *engine = here(*(cudnnBackendDescriptor_t *)to);
        NEED(engine && !engine->finalized && engine->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR, "it is no new engine");
        become_engine(engine, at->graph, at->engine);
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE)
        return give(most, count, to, at->engine == ENGINE_WAVERS ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                                  : CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    if ((name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE || name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) &&
        type == CUDNN_TYPE_INT64)
        return give(most, count, to, at->workspace);
    return bad("it has no such attribute of that type", name);
}

/* Takes the addresses of a pack: all that is in memory or by value, and nothing else. */
static cudnnStatus_t take_pack(work *to, const thing *pack)
{
    const std::vector<int64_t> ids = all_of<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const std::vector<void *> at = all_of<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    size_t wanted = 0;
    for (const auto &t : to->graph->tensors)
        wanted += !t.second.is_virtual;
    NEED(ids.size() == wanted, "so many addresses are wanted, and not others", (int64_t)wanted);
    for (size_t i = 0; i < ids.size(); i++) {
        const auto found = to->graph->tensors.find(ids[i]);
        NEED(found != to->graph->tensors.end() && !found->second.is_virtual, "there is no such tensor in memory", ids[i]);
        NEED(at[i] && (uintptr_t)at[i] % (uintptr_t)found->second.aligned == 0, "an address is not aligned as was said", ids[i]);
        if (found->second.by_value) {
            memcpy(&to->numbers[ids[i]], at[i], sizeof(float));
        } else {
            to->memory[ids[i]] = at[i];
            standin_cudnn_touches(at[i], elements_of(found->second) * size_of(found->second.type));
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle, cudnnBackendDescriptor_t pack_handle)
{
    const thing *plan = here(plan_handle), *pack = here(pack_handle);
    const context *in = (const context *)handle;
    ENTER("cudnnBackendExecute");
    NEED(plan && plan->finalized && plan->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "there is no such plan");
    NEED(pack && pack->finalized && pack->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "there is no such pack");
    NEED(handle == plan->graph->handle && in->has_stream, "the handle is another one, or has no stream");
    auto w = std::make_unique<work>();
    w->graph = plan->graph;
    w->workspace = one_of<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    w->workspace_bytes = plan->workspace;
    NEED(w->workspace && (uintptr_t)w->workspace % 256 == 0, "a workspace begins at 256 bytes");
    standin_cudnn_touches(w->workspace, w->workspace_bytes);
    const cudnnStatus_t status = take_pack(w.get(), pack);
    if (status)
        return status;
    standin_cudnn_ran(plan->engine);
    standin_launch((void *)in->stream, run_work, w.release());
    return cudaPeekAtLastError() ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

const cudnn_calls *standin_cudnn(void)
{
    static const cudnn_calls calls = {get_version,       get_error_string,   get_last_error_string, create,
                                      set_stream,        create_descriptor,  destroy_descriptor,    set_attribute,
                                      get_attribute,     finalize,           execute};
    return standin_cudnn_version() ? &calls : nullptr;
}
#endif
