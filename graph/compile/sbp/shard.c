/* graph/compile/sbp/shard.c: choose how everything lies.
 *
 * Each node picks, for each axis of its mesh, one of the signatures that its op lists. A choice is rated in seconds:
 * compute, shared among the devices when the signature splits it, plus the conversions that it causes on its inputs
 * and on its outputs' other readers. The user's wishes (weir_shard, .sbp, .weight) and the needs of ZeRO restrict the
 * choices.
 *
 * The search goes axis by axis: first greedily, in graph order, which is right for chains; then nodes are
 * reconsidered one at a time, with what their neighbours have chosen, until none changes. It does not find every
 * optimum (two nodes that would have to change together), but it is linear in the graph and the same on every
 * machine. A tensor that several readers want in the same layout is converted once, and is rated so.
 *
 * Programs are laid out one after the other, main first, each as if it were alone but for the parameters, which lie as
 * the first has settled: so another program changes nothing of how main runs.
 *
 * Seconds are those of a model (machine.h).
 */
#include "graph/compile/sbp/passes.h"
#include "graph/compile/sbp/machine.h"
#include "graph/base/error.h"
#include "kernels/common/ops.h"

#define AGAINST_WISH 16     /* times worse: to read a parameter in another layout than the user gave it */
#define EAGER 2             /* times worse: to convert a gradient before it is accumulated, also when M is 1 */

enum { SWEEPS_MAX = 10 };

typedef struct layout_wish {       /* a layout that a tensor is read in, on the axis that is being chosen */
    weir_sbp sbp;
    const weir_mesh *mesh;
    int readers, fills;            /* how many ask for it; of those, how many fill */
} layout_wish;

typedef POOL_LIST(layout_wish) wish_list;

typedef struct sharding {
    compile *c;
    wish_list *wishes;             /* by tensor */
} sharding;

static weir_sbp tensor_sbp(const ir_graph *ir, const ir_tensor *t, int axis)
{
    if (t->node < 0)
        return t->sbp[axis];
    const ir_node *node = &ir->node[t->node];
    for (int o = 0; o < node->out_count; o++)
        if (&ir->tensors.item[node->out[o]] == t)
            return node_out_sbp(node, o, axis);
    return WEIR_AUTO;
}

static double tensor_bytes(const ir_tensor *t)
{
    return (double)weir_shape_count(&t->type.shape) * (double)weir_dtype_bytes(t->type.dtype);
}

/* ---- wishes: in which layouts a tensor is read, and by how many ---- */

static void wish_count(sharding *x, int tensor, weir_sbp sbp, const ir_node *reader, int change)
{
    wish_list *of = &x->wishes[tensor];
    int w = 0;
    while (w < of->count && (of->item[w].sbp != sbp || !mesh_equal(of->item[w].mesh, reader->mesh)))
        w++;
    if (w == of->count) {
        layout_wish *made = POOL_PUSH(&x->c->pool, of);
        if (!made)
            return;
        *made = (layout_wish){.sbp = sbp, .mesh = reader->mesh};
    }
    of->item[w].readers += change;
    of->item[w].fills += reader->origin->fills ? change : 0;
}

/* Enters (1) or takes back (-1) what the node wishes of its inputs by its choice. */
static void node_wishes(sharding *x, const ir_node *node, int axis, int change)
{
    bool chosen = axis >= node->mesh->axes || node->choice[axis] >= 0;
    for (int i = 0; i < node->in_count && chosen; i++)
        wish_count(x, node->in[i], axis < node->mesh->axes ? node_in_sbp(node, i, axis) : WEIR_B, node, change);
}

/* A parameter that the user split: that says how its readers should work, too. (ZeRO's split does not: it is there to
 * be gathered.) */
static bool is_placed_by_hand(const ir_tensor *t, int axis)
{
    return t->node < 0 && t->origin && WEIR_IS_S(t->origin->sbp[axis]) && !t->origin->zero[axis];
}

/* Seconds to give readers the tensor, which is `from` on this axis, as they wish it. */
static double wish_s(const compile *c, const ir_tensor *t, weir_sbp from, const layout_wish *wish, int axis)
{
    weir_sbp before[WEIR_AXES_MAX];
    bool there = axis < wish->mesh->axes;
    int parts = there ? wish->mesh->shape[axis] : 1;
    weir_sbp split = WEIR_IS_S(wish->sbp) ? wish->sbp : from;
    for (int a = 0; a < axis; a++)
        before[a] = tensor_sbp(&c->ir, t, a);
    double longest = there && WEIR_IS_S(split) ? longest_share(t, wish->mesh, before, WEIR_S_DIM(split), axis) : 1.0 / parts;
    return convert_seconds(c->rates, from, wish->sbp, parts, longest, tensor_bytes(t), mesh_equal(t->mesh, wish->mesh));
}

/* Seconds per step for the conversions of one tensor that its readers (those that have chosen) ask for. */
static double tensor_s(const sharding *x, int tensor, int axis)
{
    const ir_tensor *t = &x->c->ir.tensors.item[tensor];
    double seconds = 0;
    if (t->mapped && !is_placed_by_hand(&x->c->ir.tensors.item[t->mapped - 1], axis))
        return 0; /* each reader has it as it wants it (box.c) */
    weir_sbp from = tensor_sbp(&x->c->ir, t, axis);
    if (from == WEIR_AUTO)
        from = WEIR_B;
    for (int w = 0; w < x->wishes[tensor].count; w++) {
        const layout_wish *wish = &x->wishes[tensor].item[w];
        if (!wish->readers)
            continue;
        double once = wish_s(x->c, t, from, wish, axis);
        seconds += wish->fills ? EAGER * once : once;
    }
    if (is_placed_by_hand(t, axis))
        seconds *= AGAINST_WISH;
    return seconds * (t->micro ? x->c->micro : 1);
}

/* Seconds that depend on this node's choice. */
static double node_s(const sharding *x, const ir_node *node, int axis)
{
    const weir_signature *chosen = &node->signature[node->choice[axis]];
    double seconds = compute_seconds(x->c->rates, &x->c->ir, node, chosen, axis) * (node->micro ? x->c->micro : 1);
    for (int i = 0; i < node->in_count; i++)
        if (i == 0 || node->in[i] != node->in[i - 1])
            seconds += tensor_s(x, node->in[i], axis);
    for (int o = 0; o < node->out_count; o++)
        seconds += tensor_s(x, node->out[o], axis);
    return seconds;
}

/* Whether a mapped parameter can be read so: what a device reads of a file is in one piece. */
static bool mapped_reads(const ir_tensor *t, const weir_mesh *mesh, weir_sbp sbp, int axis)
{
    return !t->mapped || mesh->shape[axis] == 1 || sbp == WEIR_B || sbp == WEIR_S(0);
}

/* Whether units that must stay whole can be dealt out to the devices of this axis and those split before. */
static bool granules_fit(const ir_node *node, const weir_signature *s, int axis)
{
    int64_t parts = node->mesh->shape[axis];
    if (!s->granules)
        return true;
    for (int a = 0; a < node->mesh->axes; a++)
        if (a != axis && node->choice[a] >= 0 && node->signature[node->choice[a]].granules)
            parts *= node->mesh->shape[a];
    return s->granules % parts == 0;
}

static bool is_narrow(weir_dtype dtype)
{
    return weir_dtype_bytes(dtype) < weir_dtype_bytes(WEIR_F32);
}

/* Terms of a sum are f32. A node that would have others must be one that can have them f32 (pass_casts() sees to it):
 * one that follows what it reads, or can make them f32 of what is half. */
static bool terms_full(const compile *c, const ir_node *node, const weir_signature *s)
{
    if (node->op->half == WEIR_HALF_FOLLOW || node->op->half == WEIR_HALF_BETWEEN)
        return true;
    for (int i = 0; i < node->in_count; i++)
        if (s->in[i] == WEIR_P && is_narrow(node_reads(&c->ir, node, i)))
            return false;
    for (int o = 0; o < node->out_count; o++)
        if (s->out[o] == WEIR_P && is_narrow(c->ir.tensors.item[node->out[o]].type.dtype) &&
            !(o == 0 && node->op->either_out))
            return false;
    return true;
}

static bool allowed(const compile *c, const ir_node *node, const weir_signature *s, int axis)
{
    bool by_hand = node->origin && node->origin->by_hand;
    if (!granules_fit(node, s, axis) || !terms_full(c, node, s) || (by_hand && s != &node->signature[1 + axis]))
        return false;
    for (int o = 0; o < node->out_count; o++) {
        const ir_tensor *t = &c->ir.tensors.item[node->out[o]];
        if (t->fixed && t->fixed[axis] != WEIR_AUTO && t->fixed[axis] != s->out[o])
            return false;
    }
    for (int i = 0; i < node->in_count; i++) {
        const ir_tensor *t = &c->ir.tensors.item[node->in[i]];
        const bool late = node->phase == PLAN_UPDATE;
        if (!mapped_reads(t, node->mesh, s->in[i], axis))
            return false;
        if (t->origin && t->origin->zero[axis] && s->in[i] != WEIR_B && !late)
            return false;
        if (late && t->node < 0 && t->sbp[axis] != WEIR_AUTO && t->sbp[axis] != s->in[i])
            return false; /* a conversion could come after the update, and find the next step's value */
    }
    if (node->updates < 0)
        return true;
    weir_sbp parameter = c->ir.tensors.item[node->updates].sbp[axis];
    return s->out[0] == (parameter == WEIR_AUTO ? WEIR_B : parameter);
}

/* Takes the best of the node's signatures; returns whether that is another one than before. */
static bool choose(sharding *x, ir_node *node, int axis)
{
    int before = node->choice[axis], best = NONE;
    double best_s = 0;
    node_wishes(x, node, axis, -1);
    for (int s = 0; s < node->signature_count; s++) {
        node->choice[axis] = s;
        if (!allowed(x->c, node, &node->signature[s], axis))
            continue;
        node_wishes(x, node, axis, 1);
        double seconds = node_s(x, node, axis);
        node_wishes(x, node, axis, -1);
        if (best < 0 || seconds < best_s * (1 - 1e-9) || (s == before && seconds <= best_s * (1 + 1e-9))) {
            best = s;
            best_s = seconds;
        }
    }
    node->choice[axis] = best;
    node_wishes(x, node, axis, 1);
    return best != before;
}

/* Parameters that the user left open lie as their first reader wants them. */
static void settle_parameters(compile *c, const ir_node *node, int axis)
{
    for (int i = 0; i < node->in_count; i++) {
        ir_tensor *t = &c->ir.tensors.item[node->in[i]];
        if (t->node >= 0 || t->sbp[axis] != WEIR_AUTO || axis >= t->mesh->axes)
            continue;
        weir_sbp wish = mesh_equal(t->mesh, node->mesh) ? node_in_sbp(node, i, axis) : WEIR_B;
        t->sbp[axis] = wish == WEIR_P ? WEIR_B : wish;
    }
}

/* An average that the user left open lies as its parameter does. */
static void settle_average(compile *c, const ir_node *node, int axis)
{
    if (node->op == &op_ema && c->ir.tensors.item[node->updates].sbp[axis] == WEIR_AUTO)
        c->ir.tensors.item[node->updates].sbp[axis] = c->ir.tensors.item[node->in[0]].sbp[axis];
}

static bool refuse(const ir_node *node, int axis)
{
    error_set(WEIR_E_GRAPH, "%s:%d: %s: no layout that the op supports on mesh axis %d agrees with what is fixed for \"%s\" (.sbp of its "
              "inputs and outputs, .zero, the .sbp of a parameter that it updates, and B or S(0) of what is .mapped); change one of these", node->src.file, node->src.line, node->op->name, axis, node->name);
    return false;
}

static bool concerns(const ir_node *node, int program, int axis)
{
    return node->program == program && axis < node->mesh->axes;
}

/* Meshes without this axis read everything whole. */
static void axis_begin(sharding *x, int program, int axis)
{
    for (int t = 0; t < x->c->ir.tensors.count; t++)
        x->wishes[t].count = 0;
    for (int n = 0; n < x->c->ir.node_count; n++)
        if (x->c->ir.node[n].program == program && axis >= x->c->ir.node[n].mesh->axes)
            node_wishes(x, &x->c->ir.node[n], axis, 1);
}

static bool axis_greedy(sharding *x, int program, int axis)
{
    for (int n = 0; n < x->c->ir.node_count; n++) {
        ir_node *node = &x->c->ir.node[n];
        if (!concerns(node, program, axis))
            continue;
        settle_average(x->c, node, axis);
        choose(x, node, axis);
        if (node->choice[axis] < 0)
            return refuse(node, axis);
        settle_parameters(x->c, node, axis);
    }
    return true;
}

static void axis_sweep(sharding *x, int program, int axis)
{
    bool changed = true;
    for (int sweep = 0; sweep < SWEEPS_MAX && changed; sweep++) {
        changed = false;
        for (int k = 0; k < x->c->ir.node_count; k++) {
            int n = sweep % 2 ? k : x->c->ir.node_count - 1 - k; /* first against the flow: what readers want */
            if (concerns(&x->c->ir.node[n], program, axis))
                changed |= choose(x, &x->c->ir.node[n], axis);
        }
    }
}

static bool axis_choose(sharding *x, int program, int axis)
{
    axis_begin(x, program, axis);
    if (!axis_greedy(x, program, axis))
        return false;
    axis_sweep(x, program, axis);
    for (int n = 0; n < x->c->ir.node_count; n++)
        if (concerns(&x->c->ir.node[n], program, axis) && x->c->ir.node[n].choice[axis] < 0)
            return refuse(&x->c->ir.node[n], axis);
    return true;
}

/* Writes the choices into the tensors. */
static void settle_tensors(compile *c)
{
    for (int n = 0; n < c->ir.node_count; n++)
        for (int o = 0; o < c->ir.node[n].out_count; o++)
            for (int a = 0; a < c->ir.node[n].mesh->axes; a++)
                c->ir.tensors.item[c->ir.node[n].out[o]].sbp[a] = node_out_sbp(&c->ir.node[n], o, a);
    for (int t = 0; t < c->ir.tensors.count; t++)
        for (int a = 0; a < c->ir.tensors.item[t].mesh->axes; a++)
            if (c->ir.tensors.item[t].sbp[a] == WEIR_AUTO)
                c->ir.tensors.item[t].sbp[a] = WEIR_B;
}

bool pass_shard(compile *c)
{
    for (int t = 0; t < c->ir.tensors.count; t++)
        if (c->ir.tensors.item[t].node < 0)
            for (int a = 0; a < WEIR_AXES_MAX; a++)
                c->ir.tensors.item[t].sbp[a] = c->ir.tensors.item[t].fixed[a];
    sharding x = {c, POOL_NEW(&c->pool, wish_list, c->ir.tensors.count + 1)};
    for (int p = 0; x.wishes && p < c->graph->programs.count; p++)
        for (int a = 0; a < WEIR_AXES_MAX; a++)
            if (!axis_choose(&x, p, a))
                return false;
    settle_tensors(c);
    return ir_had_memory(c);
}
