/* graph/plan/prove/validate_graph.c: is the table of the graph a graph?
 *
 * Nothing that runs a plan reads it. A proof does (graph/verify), and it believes what a graph of the program's own always keeps:
 * that a node reads what was made before it, that outputs have the types that their op infers, that an update changes a value of
 * its type. So all of that is asked here, of the table alone and before anyone builds a graph of it.
 *
 *     head      may there be a table, and is it of this version?
 *     members   in validate.c, as of all arrays: indexes, ranges that are disjoint, texts that end
 *     tensors   made by the node in whose range they lie, or a parameter or state
 *     nodes     order, programs, phases, rates; op, attributes, types
 *     names     which a proof finds things by, once each
 *
 * Sizes are bounded all together, so a sum of bytes that a proof makes does not overflow.
 */
#include "graph/plan/prove/validate.h"

#include "graph/base/base.h"
#include "graph/plan/form/fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DELAY_MAX = 1 << 16,
    PROGRAMS_MAX = 32, /* a bit each in `asked` */
    INFERRED_MAX = 8
};
#define ELEMENTS_MAX (UINT64_C(1) << 50) /* of all tensors, with every copy that a step has of them */

/* "graph_nodes[3] (h0/q): ..." and "graph_tensors[7] (x): ..." */
#define REFUSE_NODE(plan, n, format, ...)                                            \
    REFUSE_PLAN("graph_nodes[%" PRIu32 "] (%.60s): " format, n,                      \
                plan_graph_text(plan, (plan)->graph_nodes[n].name) __VA_OPT__(, ) __VA_ARGS__)
#define REFUSE_TENSOR(plan, t, format, ...)                                          \
    REFUSE_PLAN("graph_tensors[%" PRIu32 "] (%.60s): " format, t,                    \
                plan_graph_text(plan, (plan)->graph_tensors[t].name) __VA_OPT__(, ) __VA_ARGS__)

/* ---- head ---- */

static bool is_empty(const weir_plan *plan)
{
    for (int t = PLAN_RUN_ARRAYS; t < PLAN_ARRAYS; t++)
        if (plan_table_count(plan, &plan_tables[t]))
            return REFUSE_PLAN("%s: %" PRIu32 " of them, but the plan keeps no graph", plan_tables[t].name,
                               plan_table_count(plan, &plan_tables[t]));
    return !plan->table_hash || REFUSE_PLAN("graph_table.hash: %016" PRIx64 ", but the plan keeps no graph", plan->table_hash);
}

bool validate_graph_head(const weir_plan *plan)
{
    if (!plan->table_version)
        return is_empty(plan);
    if (plan->table_version != PLAN_TABLE_VERSION)
        return REFUSE_PLAN("version %" PRIu32 " of the table of a graph: this weir reads version %d; compile the graph again with "
                           ".keep_graph", plan->table_version, PLAN_TABLE_VERSION);
    if (plan->ranks > 1 || plan->part)
        return REFUSE_PLAN("graph_table: a plan that is spread over ranks keeps no graph");
    if (plan->programs_count > PROGRAMS_MAX)
        return REFUSE_PLAN("graph_table: the plan has %" PRIu32 " programs, a graph has at most %d", plan->programs_count,
                           PROGRAMS_MAX);
    return plan->graph_losses_count <= 1 || REFUSE_PLAN("graph_losses: %" PRIu32 ", can be one", plan->graph_losses_count);
}

/* ---- tensors ---- */

static weir_type type_of(const plan_graph_tensor *tensor)
{
    weir_type type = {.dtype = (weir_dtype)tensor->dtype, .shape.rank = (int)tensor->rank};
    memcpy(type.shape.dim, tensor->shape, tensor->rank * sizeof *tensor->shape);
    return type;
}

static bool validate_type(const weir_plan *plan, uint32_t t)
{
    const plan_graph_tensor *tensor = &plan->graph_tensors[t];
    const weir_type type = type_of(tensor);
    if (tensor->dtype == WEIR_DTYPE_NONE)
        return REFUSE_TENSOR(plan, t, "dtype: none");
    for (uint32_t d = 0; d < WEIR_DIMS_MAX; d++)
        if (d < tensor->rank ? tensor->shape[d] < 1 : tensor->shape[d] != 0)
            return REFUSE_TENSOR(plan, t, "shape: %" PRId64 " in dimension %" PRIu32 " of %" PRIu32, tensor->shape[d], d,
                                 tensor->rank);
    if (tensor->trains && !weir_dtype_real(type.dtype))
        return REFUSE_TENSOR(plan, t, "trains: %s does not", weir_dtype_name(type.dtype));
    return shape_countable(&type.shape) || REFUSE_TENSOR(plan, t, "shape: more elements than there can be");
}

/* A parameter or state. */
static bool validate_kept(const weir_plan *plan, uint32_t t)
{
    const plan_graph_tensor *tensor = &plan->graph_tensors[t];
    const bool random = tensor->init == WEIR_INIT_NORMAL || tensor->init == WEIR_INIT_UNIFORM;
    if (tensor->micro)
        return REFUSE_TENSOR(plan, t, "micro: a parameter or state exists once a step");
    if (!tensor->asked || (uint64_t)tensor->asked >> plan->programs_count)
        return REFUSE_TENSOR(plan, t, "asked: 0x%" PRIx32 ", of %" PRIu32 " programs", tensor->asked, plan->programs_count);
    if (tensor->delay > DELAY_MAX)
        return REFUSE_TENSOR(plan, t, "delay: %" PRIu32 ", of %d at most", tensor->delay, DELAY_MAX);
    if (tensor->init == WEIR_INIT_DEFAULT)
        return REFUSE_TENSOR(plan, t, "init: none");
    if (random && !weir_dtype_real((weir_dtype)tensor->dtype))
        return REFUSE_TENSOR(plan, t, "init: random numbers are f32, f16 or bf16");
    if (isnan(tensor->a) || isnan(tensor->b) || !validate_start_value(tensor->init, tensor->a, tensor->dtype))
        return REFUSE_TENSOR(plan, t, "a: %g is no %s", tensor->a, weir_dtype_name((weir_dtype)tensor->dtype));
    return tensor->update.i == PLAN_NONE || plan->graph_nodes[tensor->update.i].updates.i == t ||
           REFUSE_TENSOR(plan, t, "update: %" PRIu32 " changes another", tensor->update.i);
}

/* The output of a node. */
static bool validate_made(const weir_plan *plan, uint32_t t)
{
    const plan_graph_tensor *tensor = &plan->graph_tensors[t];
    const plan_graph_node *node = &plan->graph_nodes[tensor->node.i];
    if (!range_has(&node->out, t))
        return REFUSE_TENSOR(plan, t, "node: not in the range of its owner");
    if (tensor->micro != (node->micro && !node->fills))
        return REFUSE_TENSOR(plan, t, "micro: %" PRIu32 ", unlike its node", tensor->micro);
    return (tensor->update.i == PLAN_NONE && !tensor->asked && !tensor->frozen && !tensor->delay && !tensor->init &&
            tensor->a == 0 && tensor->b == 0) ||
           REFUSE_TENSOR(plan, t, "node: %" PRIu32 " makes it, so it is neither a parameter nor a state", tensor->node.i);
}

static bool validate_tensors(const weir_plan *plan)
{
    uint64_t elements = 0;
    for (uint32_t t = 0; t < plan->graph_tensors_count; t++) {
        const plan_graph_tensor *tensor = &plan->graph_tensors[t];
        if (!validate_type(plan, t) || !(tensor->node.i == PLAN_NONE ? validate_kept : validate_made)(plan, t))
            return false;
        const uint64_t copies = tensor->delay > 1 ? tensor->delay : tensor->micro ? plan->micro_batches : 1;
        const weir_type type = type_of(tensor);
        uint64_t all;
        if (__builtin_mul_overflow((uint64_t)weir_shape_count(&type.shape), copies, &all) || all > ELEMENTS_MAX - elements)
            return REFUSE_PLAN("graph_tensors: more than 2^50 elements together, up to graph_tensors[%" PRIu32 "]", t);
        elements += all;
    }
    return true;
}

/* ---- nodes ---- */

typedef struct node_call {
    const weir_plan *plan;
    uint32_t n;
    const plan_graph_node *node;
    const weir_op *op;
    weir_type in[WEIR_ARGS_MAX], out[INFERRED_MAX];
} node_call;

static const plan_graph_tensor *input(const node_call *c, uint32_t i)
{
    return &c->plan->graph_tensors[c->plan->graph_refs[c->node->in.first + i].i];
}

static bool is_op(const node_call *c, const char *name)
{
    return !strcmp(c->op->name, name);
}

/* Ops whose kernel calls the program, and those alone, are nodes of that kind. */
static bool validate_node_host(const node_call *c)
{
    static const char *const ops[PLAN_HOST_KINDS] = {[PLAN_SOURCE] = "source", [PLAN_PUSH] = "source", [PLAN_SINK] = "sink",
                                                     [PLAN_PULL] = "sink", [PLAN_CALL] = "call"};
    const uint32_t host = c->node->host;
    if (c->node->by_hand && host != 1 + PLAN_CALL && host != 1 + PLAN_SOURCE)
        return REFUSE_NODE(c->plan, c->n, "by_hand: only calls and sources are split by hand");
    const bool calls = is_op(c, "source") || is_op(c, "sink") || is_op(c, "call");
    return (host ? is_op(c, ops[host - 1]) : !calls) ||
           REFUSE_NODE(c->plan, c->n, "host: %" PRIu32 " in a node of op %s", host, c->op->name);
}

static bool validate_counts(const node_call *c)
{
    const uint32_t in = c->node->in.count, out = c->node->out.count, words = (uint32_t)(c->op->attrs_bytes / 8);
    if (in < (uint32_t)c->op->in_min || in > (uint32_t)c->op->in_max)
        return REFUSE_NODE(c->plan, c->n, "in: %" PRIu32 ", %s takes %d to %d", in, c->op->name, c->op->in_min, c->op->in_max);
    if (out > (uint32_t)c->op->out_count || (out < (uint32_t)c->op->out_count && !c->op->out_fewer) || out > INFERRED_MAX)
        return REFUSE_NODE(c->plan, c->n, "out: %" PRIu32 ", %s has %d", out, c->op->name, c->op->out_count);
    return c->node->attrs.count == words ||
           REFUSE_NODE(c->plan, c->n, "attrs: %" PRIu32 " words, %s has %" PRIu32, c->node->attrs.count, c->op->name, words);
}

/* A node reads what was made before it, in its own program and in no later phase. */
static bool validate_input(const node_call *c, uint32_t i, bool *micro)
{
    const plan_graph_tensor *tensor = input(c, i);
    const plan_graph_node *from = tensor->node.i == PLAN_NONE ? NULL : &c->plan->graph_nodes[tensor->node.i];
    *micro |= tensor->micro;
    if (!from)
        return true;
    if (tensor->node.i >= c->n)
        return REFUSE_NODE(c->plan, c->n, "in: input %" PRIu32 " is made by graph_nodes[%" PRIu32 "], which does not come before it",
                           i, tensor->node.i);
    if (from->program.i != c->node->program.i)
        return REFUSE_NODE(c->plan, c->n, "in: input %" PRIu32 " is another program's", i);
    return from->phase <= c->node->phase ||
           REFUSE_NODE(c->plan, c->n, "phase: %" PRIu32 ", but input %" PRIu32 " is made in phase %" PRIu32, c->node->phase, i,
                       from->phase);
}

/* A node fires once per micro-batch if an input exists so often; a source and a call may by themselves, and an unbatch does. Its
 * output exists so often, too, but for those that make one value of a step's. */
static bool validate_inputs(const node_call *c)
{
    bool micro = false;
    for (uint32_t i = 0; i < c->node->in.count; i++)
        if (!validate_input(c, i, &micro))
            return false;
    const bool more = is_op(c, "unbatch"), fewer = is_op(c, "accumulate") || is_op(c, "batch");
    const bool free = is_op(c, "source") || is_op(c, "call");
    if (more ? micro || !c->node->micro : free ? micro && !c->node->micro : micro != c->node->micro)
        return REFUSE_NODE(c->plan, c->n, "micro: %" PRIu32 ", unlike its inputs", c->node->micro);
    return c->node->fills == (fewer && c->node->micro) ||
           REFUSE_NODE(c->plan, c->n, "fills: %" PRIu32 " in a node of op %s that fires once per %s", c->node->fills, c->op->name,
                       c->node->micro ? "micro-batch" : "step");
}

static bool validate_outputs(const node_call *c)
{
    for (uint32_t o = 0; o < c->node->out.count; o++)
        if (c->plan->graph_tensors[c->node->out.first + o].node.i != c->n)
            return REFUSE_NODE(c->plan, c->n, "out: graph_tensors[%" PRIu32 "] names another node", c->node->out.first + o);
    return true;
}

static bool validate_forward(const node_call *c)
{
    const uint32_t forward = c->node->forward.i;
    return forward == PLAN_NONE ||
           (forward < c->n && c->plan->graph_nodes[forward].phase == PLAN_FORWARD && c->node->phase == PLAN_BACKWARD) ||
           REFUSE_NODE(c->plan, c->n, "forward: %" PRIu32 " is no node of the forward phase before this one, of the backward phase",
                       forward);
}

/* It is written over a parameter or state of its type, once a step. */
static bool validate_update(const node_call *c)
{
    const uint32_t t = c->node->updates.i;
    if (t == PLAN_NONE)
        return true;
    const plan_graph_tensor *kept = &c->plan->graph_tensors[t];
    if (kept->update.i != c->n)
        return REFUSE_NODE(c->plan, c->n, "updates: graph_tensors[%" PRIu32 "] is changed by another node, or by none", t);
    const weir_type type = type_of(kept);
    return (c->node->phase == PLAN_UPDATE && !c->node->micro && c->node->out.count && type_equal(&type, &c->out[0])) ||
           REFUSE_NODE(c->plan, c->n, "updates: graph_tensors[%" PRIu32 "] is of another type, or this happens in another phase or "
                       "rate", t);
}

/* The name begins with that of its program: "eval/h0/q". */
static bool validate_node_name(const node_call *c)
{
    const char *name = plan_graph_text(c->plan, c->node->name);
    const char *program = plan_text(c->plan, c->plan->programs[c->node->program.i].name);
    const size_t bytes = strlen(program);
    if (!*name)
        return REFUSE_NODE(c->plan, c->n, "name: empty");
    return !c->node->program.i || (!strncmp(name, program, bytes) && name[bytes] == '/') ||
           REFUSE_NODE(c->plan, c->n, "name: does not begin with %.60s/", program);
}

/* The rule for whole tensors gives these outputs, and the rule for shards takes them: what the whole is, a shard may be. */
static bool validate_node_types(const node_call *c)
{
    weir_type inferred[INFERRED_MAX] = {0};
    char error[512] = "", given[160], wanted[160];
    const void *attrs = c->plan->graph_words + c->node->attrs.first;
    const int ins = (int)c->node->in.count, outs = (int)c->node->out.count;
    const weir_op_args whole = {c->op, c->in, ins, (weir_type *)c->out, outs, attrs};
    weir_op_args args = {c->op, c->in, ins, inferred, c->op->out_count, attrs};
    if ((c->op->fits && !c->op->fits(&whole, error, sizeof error)) || !c->op->infer(&args, error, sizeof error))
        return REFUSE_NODE(c->plan, c->n, "%s: %s", c->op->name, error);
    if (args.out_count != outs)
        return REFUSE_NODE(c->plan, c->n, "out: %d, of these inputs there would be %d", outs, args.out_count);
    for (int o = 0; o < outs; o++)
        if (!type_equal(&inferred[o], &c->out[o]))
            return REFUSE_NODE(c->plan, c->n, "%s: output %d is %s %s, of these inputs it would be %s %s", c->op->name, o,
                               weir_dtype_name(c->out[o].dtype), shape_text(&c->out[o].shape, given, sizeof given),
                               weir_dtype_name(inferred[o].dtype), shape_text(&inferred[o].shape, wanted, sizeof wanted));
    return true;
}

static void enter_types(node_call *c)
{
    for (uint32_t i = 0; i < c->node->in.count; i++)
        c->in[i] = type_of(input(c, i));
    for (uint32_t o = 0; o < c->node->out.count; o++)
        c->out[o] = type_of(&c->plan->graph_tensors[c->node->out.first + o]);
}

static bool validate_node(const weir_plan *plan, uint32_t n)
{
    node_call c; /* its types are entered below: there is room for many */
    c.plan = plan;
    c.n = n;
    c.node = &plan->graph_nodes[n];
    const char *op = plan_graph_text(plan, c.node->op);
    c.op = weir_op_find(op);
    if (!c.op)
        return REFUSE_NODE(plan, n, "op: there is no %.60s", op);
    if (!validate_counts(&c) || !validate_outputs(&c))
        return false;
    enter_types(&c);
    return validate_node_host(&c) && validate_inputs(&c) && validate_forward(&c) && validate_node_name(&c) &&
           validate_node_types(&c) && validate_update(&c);
}

/* ---- the whole ---- */

/* Inputs, fetches and what is kept are found by name. */
enum { KEPT_NAME, FETCH_NAME, NODE_NAME };

static uint32_t name_kind(const plan_graph_node *node)
{
    return node->host == 1 + PLAN_SINK || node->host == 1 + PLAN_PULL ? FETCH_NAME : NODE_NAME;
}

static bool validate_graph_names(const weir_plan *plan, validate_name *names)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < plan->graph_tensors_count; t++)
        if (plan->graph_tensors[t].node.i == PLAN_NONE)
            names[count++] = (validate_name){plan_graph_text(plan, plan->graph_tensors[t].name), KEPT_NAME, t, 0};
    if (!validate_names_differ(names, count, "graph_tensors"))
        return false;
    count = 0;
    for (uint32_t n = 0; n < plan->graph_nodes_count; n++)
        names[count++] = (validate_name){plan_graph_text(plan, plan->graph_nodes[n].name), name_kind(&plan->graph_nodes[n]), n, 0};
    return validate_names_differ(names, count, "graph_nodes");
}

static bool validate_loss(const weir_plan *plan)
{
    if (!plan->graph_losses_count)
        return true;
    const uint32_t t = plan->graph_losses[0].tensor.i;
    const plan_graph_tensor *loss = &plan->graph_tensors[t];
    return (loss->node.i != PLAN_NONE && !loss->rank && loss->dtype == WEIR_F32 &&
            plan->graph_nodes[loss->node.i].phase == PLAN_FORWARD) ||
           REFUSE_PLAN("graph_losses[0].tensor: graph_tensors[%" PRIu32 "] is not one f32 that the forward phase makes", t);
}

size_t validate_graph_bytes(const weir_plan *plan)
{
    const size_t most = plan->graph_nodes_count > plan->graph_tensors_count ? plan->graph_nodes_count : plan->graph_tensors_count;
    return most * sizeof(validate_name);
}

bool validate_graph(const weir_plan *plan, void *scratch)
{
    bool ok = validate_tensors(plan);
    for (uint32_t n = 0; ok && n < plan->graph_nodes_count; n++)
        ok = validate_node(plan, n);
    return ok && validate_graph_names(plan, scratch) && validate_loss(plan);
}
