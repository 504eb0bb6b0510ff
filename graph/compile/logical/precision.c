/* graph/compile/logical/precision.c: what is computed in half precision (bf16 or f16) where that is asked for, and the casts
 * that follow (Micikevicius et al. 2018, "Mixed precision training").
 *
 * The graph says f32, and its author changes nothing. The first pass goes along the graph and decides for each node
 * whether it computes in half, by the policy in its op's definition (`half` in weir/op.h); what it makes is then of the
 * dtypes that the op's own rule infers from inputs in half. So activations and their gradients are half, and gradients
 * of weights, statistics and losses are f32. Casts by the user stay: a product of what he cast to f32 is computed in f32, and
 * so is its gradient; and nodes that read or make what is half by his hand are left alone.
 *
 * The pass stands before shard, so that layouts are rated with the bytes that will move. The casts are put in by a
 * second pass behind it. Were they nodes before, they would stand between a parameter and its readers and choose
 * layouts for it; so everything lies as it does in f32. A cast to half is made where the tensor lies, so that half the
 * bytes move: a parameter is cast once a step, and under ZeRO its shard is cast, then gathered. A cast to f32 is made
 * where it is read.
 *
 * A partial sum is always f32: what a node with terms (P) makes is f32 there, the sum is scattered, cast and then
 * gathered. An op whose output cannot be f32 does not get such a layout (graph/compile/sbp/shard.c).
 */
#include "graph/base/error.h"
#include "graph/compile/logical/passes.h"
#include "kernels/common/ops.h"

#include <string.h>

typedef struct deciding {
    compile *c;
    ir_graph *ir;
    weir_dtype half;
    bool *pinned;                  /* by tensor: the user cast it to f32 */
    bool *wanted;                  /* by tensor: read in half by some node */
    bool *serves;                  /* by tensor: such a node reads it, or what follows it */
    bool *full;                    /* by tensor: only what stays f32 reads it, in the end */
    bool *halved;                  /* by node: computes in half */
    weir_type *types;              /* room for those of one node */
} deciding;

static bool masked(uint32_t mask, int i)
{
    return i < 32 && mask >> i & 1;
}

/* f32 as the graph has it: what may become half. A mapped parameter stays what it is, as a cast would copy it. */
static bool is_full(const ir_tensor *t)
{
    return t->origin->type.dtype == WEIR_F32 && !t->mapped;
}

static bool is_half(weir_dtype dtype)
{
    return dtype == WEIR_BF16 || dtype == WEIR_F16;
}

/* Whether the node reads or makes what is half by the user's hand. */
static bool is_by_hand(const deciding *d, const ir_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (is_half(d->ir->tensors.item[node->in[i]].origin->type.dtype))
            return true;
    for (int o = 0; o < node->out_count; o++)
        if (is_half(d->ir->tensors.item[node->out[o]].origin->type.dtype))
            return true;
    return false;
}

/* Sums of gradients: they are of the precision that their sum is needed in. */
static bool adds_up(const ir_node *node)
{
    return node->phase != PLAN_FORWARD && (node->op == &op_add_many || node->op == &op_shard);
}

/* Whether the node wants an input of its own in half. One that does not, a look-up in a table, is half for the sake of
 * others or not at all. */
static bool reads_wanted(const deciding *d, const ir_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (is_full(&d->ir->tensors.item[node->in[i]]) && !masked(node->op->full_in | node->op->either_in, i))
            return true;
    return false;
}

static bool wants_half(const deciding *d, const ir_node *node)
{
    bool follows = false;
    if (node->op->half == WEIR_HALF_NEVER || is_by_hand(d, node) || (adds_up(node) && d->full[node->out[0]]))
        return false;
    for (int i = 0; i < node->in_count; i++) {
        if (d->pinned[node->in[i]])
            return false;
        follows |= !masked(node->op->full_in, i) && d->ir->tensors.item[node->in[i]].type.dtype == d->half;
    }
    const graph_node *forward = node->origin->forward;
    if (node->op->half == WEIR_HALF_WANT)
        return forward ? d->halved[forward->id] : reads_wanted(d, node) || d->serves[node->out[0]];
    if (node->op->half == WEIR_HALF_BETWEEN)
        return follows && (forward ? d->halved[forward->id] : d->serves[node->out[0]]);
    return follows;
}

/* In which dtype a node that computes in half reads its input i. A table of rows is read as it is, unless it is half
 * for others anyway, or is gathered, when half the bytes do. */
static weir_dtype reads_as(const deciding *d, const ir_node *node, int i)
{
    const ir_tensor *t = &d->ir->tensors.item[node->in[i]];
    if (!is_full(t) || masked(node->op->full_in, i))
        return t->origin->type.dtype;
    if (!masked(node->op->either_in, i))
        return d->half;
    bool gathered = t->origin->zero[0] || t->origin->zero[1] || t->origin->zero[2];
    return gathered || d->wanted[node->in[i]] ? d->half : t->type.dtype;
}

/* Whether the op's kernels take these. */
static bool types_fit(const weir_op_args *args)
{
    char error[256];
    weir_type out[8] = {0};
    if (args->op->fits)
        return args->op->fits(args, error, sizeof error);
    weir_op_args asked = *args;
    asked.out = out;
    if (!args->op->infer(&asked, error, sizeof error))
        return false;
    for (int o = 0; o < args->out_count; o++)
        if (out[o].dtype != args->out[o].dtype || !weir_shape_equal(&out[o].shape, &args->out[o].shape))
            return false;
    return true;
}

/* Whether the op infers with inputs in half: nothing but dtypes may differ from what it made of f32. */
static bool infers_half(const deciding *d, const ir_node *node, weir_op_args *args)
{
    char error[256];
    if (!node->op->infer(args, error, sizeof error))
        return false;
    for (int o = 0; o < node->out_count; o++) {
        const weir_type *was = &d->ir->tensors.item[node->out[o]].origin->type, *is = &args->out[o];
        if (!weir_shape_equal(&was->shape, &is->shape) ||
            (was->dtype != is->dtype && (was->dtype != WEIR_F32 || is->dtype != d->half)))
            return false;
    }
    return true;
}

static weir_op_args args_of(const deciding *d, const ir_node *node)
{
    return (weir_op_args){node->op, d->types, node->in_count, d->types + node->in_count, node->out_count, node->attrs};
}

/* Lets the node compute in half, if its op can. */
static void halve(deciding *d, ir_node *node, int n)
{
    weir_op_args args = args_of(d, node);
    for (int i = 0; i < node->in_count; i++)
        d->types[i] = (weir_type){reads_as(d, node, i), d->ir->tensors.item[node->in[i]].type.shape};
    if (!infers_half(d, node, &args))
        return;
    weir_dtype inferred = node->out_count ? args.out[0].dtype : WEIR_DTYPE_NONE;
    if (node->op->either_out) {
        args.out[0].dtype = d->full[node->out[0]] ? WEIR_F32 : d->half;
        if (!types_fit(&args))
            args.out[0].dtype = inferred;
    }
    if (!types_fit(&args))
        return;
    d->halved[n] = true;
    for (int i = 0; i < node->in_count; i++)
        node->reads[i] = args.in[i].dtype;
    for (int o = 0; o < node->out_count; o++)
        d->ir->tensors.item[node->out[o]].type.dtype = args.out[o].dtype;
}

static void decide(deciding *d, ir_node *node, int n)
{
    node->reads = POOL_NEW(&d->c->pool, weir_dtype, node->in_count + 1);
    if (!node->reads)
        return;
    for (int i = 0; i < node->in_count; i++)
        node->reads[i] = d->ir->tensors.item[node->in[i]].origin->type.dtype;
    if (wants_half(d, node))
        halve(d, node, n);
    if (node->op == &op_shard)
        d->pinned[node->out[0]] = d->pinned[node->in[0]];
    if (node->op == &op_cast && node->phase == PLAN_FORWARD && weir_dtype_real(node->origin->in[0]->type.dtype))
        d->pinned[node->out[0]] = is_full(&d->ir->tensors.item[node->out[0]]);
}

/* Marks what products and the like want in half, before anything is decided. */
static void mark_wanted(deciding *d)
{
    for (int n = 0; n < d->ir->node_count; n++) {
        const weir_op *op = d->ir->node[n].op;
        for (int i = 0; i < d->ir->node[n].in_count && op->half == WEIR_HALF_WANT; i++)
            d->wanted[d->ir->node[n].in[i]] |= !masked(op->full_in | op->either_in, i);
    }
}

/* Marks what serves a node that wants half. Readers come behind what they read. */
static void mark_serving(deciding *d)
{
    memcpy(d->serves, d->wanted, sizeof *d->serves * (size_t)d->ir->tensors.count);
    for (int n = d->ir->node_count - 1; n >= 0; n--) {
        const ir_node *node = &d->ir->node[n];
        bool serves = false;
        for (int o = 0; o < node->out_count && node->phase == PLAN_FORWARD; o++)
            serves |= d->serves[node->out[o]];
        for (int i = 0; i < node->in_count && serves; i++)
            d->serves[node->in[i]] |= node->op->half != WEIR_HALF_NEVER && !masked(node->op->full_in, i);
    }
}

/* Whether the node reads f32 alone: what it reads need not be half. A cast to half by hand does not mind. */
static bool reads_full(const deciding *d, const ir_node *node)
{
    const bool casts = node->op == &op_cast && d->ir->tensors.item[node->out[0]].origin->type.dtype == d->half;
    return (node->op->half == WEIR_HALF_NEVER && !casts) || (adds_up(node) && d->full[node->out[0]]);
}

/* Marks gradients of parameters, and whatever else nothing reads in half. Readers come behind what they read. */
static void mark_full(deciding *d)
{
    memset(d->full, true, sizeof *d->full * (size_t)d->ir->tensors.count);
    for (int n = d->ir->node_count - 1; n >= 0; n--) {
        const ir_node *node = &d->ir->node[n];
        bool full = reads_full(d, node);
        for (int i = 0; i < node->in_count; i++)
            d->full[node->in[i]] &= full;
    }
}

/* Makes the node's first output f32 although it computes in half; false when its op cannot. */
static bool widen_output(deciding *d, const ir_node *node)
{
    ir_tensor *t = &d->ir->tensors.item[node->out[0]];
    if (!node->op->either_out || !is_full(t) || !is_half(t->type.dtype))
        return false;
    weir_op_args args = args_of(d, node);
    for (int i = 0; i < node->in_count; i++)
        d->types[i] = (weir_type){node_reads(d->ir, node, i), d->ir->tensors.item[node->in[i]].type.shape};
    for (int o = 0; o < node->out_count; o++)
        args.out[o] = d->ir->tensors.item[node->out[o]].type;
    args.out[0].dtype = WEIR_F32;
    if (!types_fit(&args))
        return false;
    t->type.dtype = WEIR_F32;
    return true;
}

static bool deciding_begin(deciding *d, compile *c)
{
    int most = 0;
    for (int n = 0; n < c->ir.node_count; n++)
        most = c->ir.node[n].in_count > most ? c->ir.node[n].in_count : most;
    *d = (deciding){.c = c, .ir = &c->ir, .half = c->opts.precision};
    d->pinned = POOL_NEW(&c->pool, bool, c->ir.tensors.count + 1);
    d->wanted = POOL_NEW(&c->pool, bool, c->ir.tensors.count + 1);
    d->serves = POOL_NEW(&c->pool, bool, c->ir.tensors.count + 1);
    d->full = POOL_NEW(&c->pool, bool, c->ir.tensors.count + 1);
    d->halved = POOL_NEW(&c->pool, bool, c->ir.node_count + 1);
    d->types = POOL_NEW(&c->pool, weir_type, most + 8);
    return !c->pool.failed;
}

bool pass_precision(compile *c)
{
    deciding d;
    if (!is_half(c->opts.precision))
        return true;
    if (!deciding_begin(&d, c))
        return ir_had_memory(c);
    mark_wanted(&d);
    mark_serving(&d);
    mark_full(&d);
    for (int n = 0; n < c->ir.node_count && !c->pool.failed; n++)
        decide(&d, &c->ir.node[n], n);
    return ir_had_memory(c);
}

/* ---- casts ---- */

typedef struct made_cast {
    int to;                        /* tensor */
    int program;
    ir_node *node;
    struct made_cast *next;        /* of the same tensor */
} made_cast;

typedef struct casting {
    compile *c;
    made_cast **of;                /* by tensor */
    POOL_LIST(ir_node *) order;
} casting;

static bool has_terms(const weir_mesh *mesh, const weir_sbp *sbp)
{
    for (int a = 0; a < mesh->axes; a++)
        if (sbp[a] == WEIR_P && mesh->shape[a] > 1)
            return true;
    return false;
}

/* Whether the node reads or makes terms in half. */
static bool has_half_terms(const compile *c, const ir_node *node)
{
    for (int a = 0; a < node->mesh->axes; a++) {
        for (int i = 0; i < node->in_count && node->mesh->shape[a] > 1; i++)
            if (node_in_sbp(node, i, a) == WEIR_P && is_half(node_reads(&c->ir, node, i)))
                return true;
        for (int o = 0; o < node->out_count && node->mesh->shape[a] > 1; o++)
            if (node_out_sbp(node, o, a) == WEIR_P && is_half(c->ir.tensors.item[node->out[o]].type.dtype))
                return true;
    }
    return false;
}

/* Lets the node compute in f32 after all. */
static void compute_full(compile *c, ir_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        node->reads[i] = node->origin->in[i]->type.dtype;
    for (int o = 0; o < node->out_count; o++)
        c->ir.tensors.item[node->out[o]].type.dtype = node->origin->out[o]->type.dtype;
}

/* Partial sums are f32. */
static bool widen_terms(compile *c)
{
    deciding d;
    if (!deciding_begin(&d, c))
        return false;
    for (int n = 0; n < c->ir.node_count; n++) {
        ir_node *node = &c->ir.node[n];
        if (!has_half_terms(c, node))
            continue;
        if (node->op->half == WEIR_HALF_FOLLOW || node->op->half == WEIR_HALF_BETWEEN)
            compute_full(c, node);
        else
            widen_output(&d, node);
    }
    return true;
}

/* Where the cast for the reader is made, and how what it makes lies there. */
static const weir_mesh *cast_layout(const ir_tensor *t, const ir_node *reader, int i, weir_sbp *sbp)
{
    const weir_mesh *mesh = reader->mesh;
    weir_sbp wish[WEIR_AXES_MAX] = {0};
    for (int a = 0; a < mesh->axes; a++)
        wish[a] = node_in_sbp(reader, i, a);
    bool narrows = t->type.dtype == WEIR_F32, open = has_terms(t->mesh, t->sbp);
    memcpy(sbp, wish, sizeof wish);
    if (narrows && open) {
        weir_sbp between[WEIR_AXES_MAX];
        if (scatter_first(t, mesh, wish, between)) {
            memcpy(sbp, between, sizeof between);
            mesh = t->mesh;
        }
    } else if (narrows || has_terms(mesh, wish)) {
        memcpy(sbp, t->sbp, sizeof wish);
        mesh = t->mesh;
    }
    for (int a = 0; a < WEIR_AXES_MAX; a++)
        sbp[a] = sbp[a] == WEIR_P || a >= mesh->axes ? WEIR_B : sbp[a];
    return mesh;
}

static int cast_tensor(compile *c, int from, weir_dtype dtype, const weir_mesh *mesh, const weir_sbp *sbp)
{
    const ir_tensor copy = c->ir.tensors.item[from];
    ir_tensor *t = POOL_PUSH(&c->pool, &c->ir.tensors);
    if (!t)
        return from;
    *t = (ir_tensor){.src = copy.src, .type = {dtype, copy.type.shape}, .mesh = mesh, .micro = copy.micro, .node = NONE,
                     .update = NONE};
    memcpy(t->sbp, sbp, sizeof *t->sbp * WEIR_AXES_MAX);
    t->name = pool_text(&c->pool, "%s>%s", copy.name, weir_dtype_name(dtype));
    return c->ir.tensors.count - 1;
}

/* Which of the node's signatures lies so on each axis of its mesh. */
static void signatures_choose(ir_node *node, const weir_sbp *sbp)
{
    for (int a = 0; a < node->mesh->axes; a++)
        for (int s = 0; s < node->signature_count; s++)
            if (node->signature[s].in[0] == sbp[a] && node->signature[s].out[0] == sbp[a])
                node->choice[a] = s;
}

static ir_node *cast_node(casting *x, int from, int to, const ir_node *reader)
{
    compile *c = x->c;
    const ir_tensor *t = &c->ir.tensors.item[from], *made = &c->ir.tensors.item[to];
    ir_node *node = POOL_NEW(&c->pool, ir_node, 1);
    int64_t *attrs = POOL_NEW(&c->pool, int64_t, op_cast.attrs_bytes / sizeof(int64_t));
    int *ends = POOL_NEW(&c->pool, int, 2);
    if (!node || !attrs || !ends)
        return NULL;
    attrs[0] = made->type.dtype;
    ends[0] = from;
    ends[1] = to;
    *node = (ir_node){.name = made->name, .src = t->src, .op = &op_cast, .mesh = made->mesh, .attrs = attrs,
                      .phase = reader->phase, .program = reader->program, .micro = t->micro, .in_count = 1,
                      .out_count = 1, .in = ends, .out = ends + 1, .sum = NONE, .after = NONE, .updates = NONE,
                      .choice = {NONE, NONE, NONE}};
    return node_ask(c, node) ? node : NULL;
}

/* The cast of `from` that the reader's program has already, or NULL. */
static made_cast *cast_find(const casting *x, int from, const ir_node *reader, weir_dtype dtype,
                            const weir_mesh *mesh, const weir_sbp *sbp)
{
    for (made_cast *m = x->of[from]; m; m = m->next) {
        const ir_tensor *t = &x->c->ir.tensors.item[m->to];
        if (m->program == reader->program && t->type.dtype == dtype && mesh_equal(t->mesh, mesh) &&
            sbp_equal(mesh, t->sbp, sbp))
            return m;
    }
    return NULL;
}

/* Input i of the reader, in the dtype that it reads: made right in front of its first reader, in that one's phase. */
static int cast_for(casting *x, const ir_node *reader, int i)
{
    compile *c = x->c;
    int from = reader->in[i];
    weir_sbp sbp[WEIR_AXES_MAX];
    weir_dtype dtype = node_reads(&c->ir, reader, i);
    if (c->ir.tensors.item[from].type.dtype == dtype)
        return from;
    const weir_mesh *mesh = cast_layout(&c->ir.tensors.item[from], reader, i, sbp);
    made_cast *there = cast_find(x, from, reader, dtype, mesh, sbp);
    if (there) {
        there->node->phase = reader->phase < there->node->phase ? reader->phase : there->node->phase;
        return there->to;
    }
    int to = cast_tensor(c, from, dtype, mesh, sbp);
    ir_node *node = cast_node(x, from, to, reader), **at = POOL_PUSH(&c->pool, &x->order);
    made_cast *made = POOL_NEW(&c->pool, made_cast, 1);
    if (!node || !at || !made)
        return from;
    signatures_choose(node, sbp);
    *at = node;
    *made = (made_cast){to, reader->program, node, x->of[from]};
    x->of[from] = made;
    return to;
}

static void cast_inputs(casting *x, ir_node *node)
{
    for (int i = 0; i < node->in_count && !x->c->pool.failed; i++)
        node->in[i] = cast_for(x, node, i);
    node->reads = NULL;
    ir_node **at = POOL_PUSH(&x->c->pool, &x->order);
    if (at)
        *at = node;
}

static void reorder(casting *x)
{
    ir_node *order = POOL_NEW(&x->c->pool, ir_node, x->order.count + 1);
    for (int n = 0; order && n < x->order.count; n++)
        order[n] = *x->order.item[n];
    if (order)
        ir_renumber(x->c, order, x->order.count);
}

bool pass_casts(compile *c)
{
    casting x = {.c = c};
    if (!is_half(c->opts.precision))
        return true;
    if (!widen_terms(c) || !(x.of = POOL_NEW(&c->pool, made_cast *, c->ir.tensors.count + 1)))
        return ir_had_memory(c);
    for (int n = 0; n < c->ir.node_count && !c->pool.failed; n++)
        cast_inputs(&x, &c->ir.node[n]);
    if (!c->pool.failed)
        reorder(&x);
    return ir_had_memory(c);
}
