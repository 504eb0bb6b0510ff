/* graph/model/call.c: calls, the user's functions in the middle of a graph.
 *
 * A call is an op on one device, however large the mesh is, so it is called once for every value; what it makes is
 * dealt out like an input. With SBPs given by hand it is an op on all devices, with these as its one signature for each
 * axis.
 *
 * A value that varies in size is two tensors: the value, of the largest shape, and its length, an i32 scalar. To the graph,
 * the compiler and the plan they are tensors like any others, made by one kernel and read by another; a call has the lengths
 * as operands behind those that the user knows of, and its kernel (kernels/core) puts them into the views. Rejected: a length
 * in the slot, beside the bytes, which everything that knows slots (regst, transport, poison, reports) would have to carry;
 * and a shape in the message, which would no longer be a word.
 *
 * So rates stay what they are: a filter's firing publishes a value like any other, which is empty, and whoever counts
 * tokens, the token game first, need not know.
 */
#include "graph/model/ends.h"
#include "kernels/common/ops.h"

#include <string.h>

/* The requests of weir_call() and weir_call_many(). */
typedef struct asked {
    weir_kernel_fn fn;
    const weir_call_opts *opts;
    weir_graph *graph;
    weir_mesh *mesh;
    int in_count, out_count;
    weir_out out[WEIR_CALL_OUT_MAX];
    weir_tensor *in[2 * WEIR_CALL_IN_MAX]; /* with the lengths of those that vary */
    int operands, outputs;         /* so too */
    call_attrs attrs;
} asked;

/* The inputs, and the graph that they belong to. */
static asked ask(weir_kernel_fn fn, const weir_call_opts *opts)
{
    asked a = {.fn = fn, .opts = opts};
    while (a.in_count < WEIR_CALL_IN_MAX && opts->in[a.in_count])
        a.in_count++;
    while (a.out_count < WEIR_CALL_OUT_MAX && opts->out[a.out_count].dtype)
        a.out_count++;
    memcpy(a.out, opts->out, sizeof a.out);
    a.graph = a.in_count ? opts->in[0]->graph : opts->graph;
    if (!a.graph)
        graph_mistake(NULL, opts->src, "call: needs at least one input, or a .graph");
    return a;
}

/* Where a call of these inputs would live if it were an op like others. */
static weir_mesh *call_mesh(const asked *a)
{
    weir_tensor *const *in = a->opts->in;
    for (int i = 0; i < a->in_count; i++)
        if (in[i]->node)
            return weir_mesh_for(in[i]);
    return a->in_count ? weir_mesh_for(in[0]) : graph_default_mesh(a->graph);
}

/* The mistake in the options, or NULL. */
static const char *call_wrong(const asked *a)
{
    if (!a->fn)
        return "the function is NULL";
    if (a->opts->micro && a->in_count)
        return ".micro is for calls without inputs: others are called as often as what they read is there";
    if (a->opts->close && !a->opts->open)
        return "a .close without .open";
    for (int o = 0; o < a->out_count; o++) {
        if (a->out[o].varies && (!a->out[o].shape[0] || a->out[o].shape[0] > INT32_MAX))
            return "an output with .varies needs a .shape of 1 to 2^31 - 1 rows";
        if (a->opts->skips && !a->out[o].varies)
            return "with .skips every output must have .varies = true";
    }
    return NULL;
}

/* The first NULL ends the inputs, so nothing may follow it. Reports. */
static bool inputs_end(const asked *a)
{
    for (int i = a->in_count; i < WEIR_CALL_IN_MAX; i++)
        if (a->opts->in[i]) {
            graph_mistake(a->graph, a->opts->src, "call: input %d is NULL, and others follow it", a->in_count);
            return false;
        }
    return true;
}

/* The lengths of inputs that vary come behind all of them. */
static void call_inputs(asked *a)
{
    memcpy(a->in, a->opts->in, sizeof a->opts->in);
    a->operands = a->in_count;
    for (int i = 0; i < a->in_count; i++)
        if (a->in[i]->length) {
            a->attrs.in_varies |= INT64_C(1) << i;
            a->in[a->operands++] = a->in[i]->length;
        }
}

/* And so do those of outputs. */
static bool call_types(asked *a)
{
    const weir_shape scalar = {0};
    int lengths = 0;
    for (int o = 0; o < a->out_count; o++) {
        weir_shape shape = ends_shape(a->out[o].shape);
        if (!ends_shape_ok(a->graph, a->opts->src, "call", a->out[o].dtype, a->out[o].shape))
            return false;
        a->attrs.out[o] = ends_typed(a->out[o].dtype, &shape);
        a->attrs.out_varies |= (int64_t)a->out[o].varies << o;
        lengths += a->out[o].varies;
    }
    a->outputs = a->out_count + lengths;
    if (a->outputs > CALL_OUTS_MAX) {
        graph_mistake(a->graph, a->opts->src, "call: %d outputs, counting those that vary twice; there can be %d",
                      a->outputs, CALL_OUTS_MAX);
        return false;
    }
    for (int o = a->out_count; o < a->outputs; o++)
        a->attrs.out[o] = ends_typed(WEIR_I32, &scalar);
    a->attrs.skips = a->opts->skips;
    return true;
}

static bool any_sbp(const weir_sbp *sbp)
{
    for (int axis = 0; axis < WEIR_AXES_MAX; axis++)
        if (sbp[axis] != WEIR_AUTO)
            return true;
    return false;
}

static bool call_is_split(const asked *a)
{
    bool split = false;
    for (int i = 0; i < WEIR_CALL_IN_MAX; i++)
        split |= any_sbp(a->opts->in_sbp[i]);
    for (int o = 0; o < a->out_count; o++)
        split |= any_sbp(a->out[o].sbp);
    return split;
}

/* One operand's SBP, an axis at a time; B where nothing is said. */
static bool sbp_by_hand(const asked *a, const weir_sbp *given, const weir_type *type, bool varies, weir_sbp *to)
{
    if (!ends_by_hand(a->graph, a->opts->src, "call", type, a->mesh, given, to))
        return false;
    for (int axis = 0; axis < a->mesh->axes; axis++)
        if (varies && to[axis] != WEIR_B) {
            graph_mistake(a->graph, a->opts->src, "call: an input or output that varies in size must be WEIR_B on every mesh axis");
            return false;
        }
    return true;
}

/* Enters operand `i` of the node, inputs before outputs, in the signatures of a call that is split. */
static bool sign_operand(const asked *a, const graph_node *node, int i, weir_signature *all)
{
    static const weir_sbp open[WEIR_AXES_MAX];
    weir_sbp sbp[WEIR_AXES_MAX] = {WEIR_AUTO};
    int o = i - node->in_count;
    bool in = o < 0;
    const weir_tensor *t = in ? node->in[i] : node->out[o];
    bool varies = in ? t->length != NULL : o < a->out_count && a->out[o].varies;
    const weir_sbp *given = in && i < a->in_count ? a->opts->in_sbp[i] : !in && o < a->out_count ? a->out[o].sbp : open;
    if (!sbp_by_hand(a, given, &t->type, varies, sbp))
        return false;
    for (int axis = 0; axis < a->mesh->axes; axis++)
        *(in ? &all[axis].in[i] : &all[axis].out[o]) = sbp[axis];
    return true;
}

/* One for each axis; NULL after a mistake. */
static const weir_signature *call_signatures(const asked *a, const graph_node *node)
{
    weir_signature *all = POOL_NEW(&a->graph->pool, weir_signature, a->mesh->axes);
    for (int i = 0; all && i < node->in_count + node->out_count; i++)
        if (!sign_operand(a, node, i, all))
            return NULL;
    return all;
}

/* The function is called once, on the first device of the mesh, unless it is split: then on all. */
static graph_node *call_node(const asked *a, bool split)
{
    const weir_call_opts *opts = a->opts;
    weir_mesh *on = split ? a->mesh : mesh_first(a->mesh);
    if (!on)
        return NULL;
    weir_scope scope = graph_scope_on(on);
    graph_node *node = graph_apply(&(weir_apply){.src = opts->src, .name = opts->name, .op = &op_call, .in = a->in,
                                                 .in_count = a->operands, .graph = a->graph, .attrs = &a->attrs});
    weir_scope_leave(&scope);
    if (!node || (split && !(node->by_hand = call_signatures(a, node))))
        return NULL;
    node->host = 1 + PLAN_CALL;
    node->binding = (callback_binding){.fn.call = a->fn, .ctx = opts->ctx, .open = opts->open, .close = opts->close};
    node->micro |= opts->micro;
    ends_queue(node, opts->queue);
    return node;
}

/* The outputs of a call on one device are dealt out to the others of the mesh. */
static void call_outputs(const asked *a, graph_node *node, weir_tensor **outs)
{
    int length = a->out_count;
    for (int o = 0; o < a->outputs; o++) {
        node->out[o]->trains = false;
        node->out[o]->micro = node->micro;
    }
    for (int o = 0; o < a->out_count; o++) {
        if (a->out[o].varies)
            node->out[o]->length = node->out[length++];
        outs[o] = node->mesh == a->mesh
                      ? node->out[o]
                      : ends_spread(node->out[o], a->mesh, a->opts->src, (weir_sbp[WEIR_AXES_MAX]){WEIR_AUTO});
    }
}

static void call_make(asked *a, weir_tensor **outs)
{
    const char *wrong = call_wrong(a);
    for (int o = 0; o < a->out_count; o++)
        outs[o] = &a->graph->poison;
    if (wrong)
        graph_mistake(a->graph, a->opts->src, "call: %s", wrong);
    if (wrong || !inputs_end(a) || !call_types(a) || (a->in_count && a->opts->in[0]->poisoned) ||
        !graph_scope_ok(a->graph, a->opts->src, "call"))
        return;
    call_inputs(a);
    a->mesh = call_mesh(a);
    graph_node *node = a->mesh ? call_node(a, call_is_split(a)) : NULL;
    if (node)
        call_outputs(a, node, outs);
}

/* A copy of the options. False after a mistake. */
static bool call_opts(const weir_call_opts *given, weir_call_opts *opts)
{
    weir_graph *g = given && given->in[0] ? given->in[0]->graph : NULL;
    return graph_opts(g, "call", given, opts, sizeof *opts);
}

static weir_tensor *poison_of(const weir_call_opts *given)
{
    return given && given->in[0] ? &given->in[0]->graph->poison : NULL;
}

weir_tensor *weir_call_at(weir_kernel_fn fn, const weir_call_opts *given)
{
    weir_call_opts opts;
    if (!call_opts(given, &opts))
        return poison_of(given);
    asked a = ask(fn, &opts);
    weir_tensor *made = NULL;
    if (!a.graph)
        return NULL;
    if (a.out_count)
        graph_mistake(a.graph, opts.src, "call: .out is for weir_call_many(); this one has a .dtype and a .shape");
    a.out[0] = (weir_out){.dtype = opts.dtype, .varies = opts.varies};
    memcpy(a.out[0].shape, opts.shape, sizeof opts.shape);
    memcpy(a.out[0].sbp, opts.sbp, sizeof opts.sbp);
    a.out_count = 1;
    call_make(&a, &made);
    return made;
}

void weir_call_many_at(weir_tensor **outs, weir_kernel_fn fn, const weir_call_opts *given)
{
    weir_call_opts opts;
    for (int o = 0; given && outs && o < WEIR_CALL_OUT_MAX && given->out[o].dtype; o++)
        outs[o] = poison_of(given);
    if (!call_opts(given, &opts))
        return;
    asked a = ask(fn, &opts);
    if (a.graph && (opts.dtype || opts.shape[0] || opts.varies || any_sbp(opts.sbp)))
        graph_mistake(a.graph, opts.src, "call: .dtype, .shape and the like are for weir_call(); here .out has them");
    if (a.graph && a.out_count && !outs)
        graph_mistake(a.graph, opts.src, "call: the argument `outs` of weir_call_many() is NULL; it must be an array with a place for each .out");
    else if (a.graph)
        call_make(&a, outs);
}
