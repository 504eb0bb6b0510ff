/* graph/compile/logical/fold.c: casts that change nothing are left out.
 *
 *     bf16 -> f32 -> bf16     readers get what was cast first: widening loses nothing, so this rounds nothing
 *     bf16 -> f32 -> f16      one cast, from bf16
 *     x -> bf16, x -> bf16    the second is the first
 *     f32 -> bf16 -> f32      stays: it rounds
 *
 * Authors write such chains where functions that compute in half are put behind each other, and the compiler's own casts
 * meet theirs: what is half already, and is cast by hand, was cast to f32 for that. So this pass stands behind that of
 * casts, and in front of conversions, which follow what is still read.
 *
 * A tensor that lies in terms of a sum is cast as it is written: sum and rounding do not change places.
 */
#include "graph/base/error.h"
#include "graph/compile/logical/passes.h"
#include "kernels/common/ops.h"

#include <string.h>

typedef struct folding {
    compile *c;
    int *same;                     /* by tensor: what is read instead; itself */
    int *cast;                     /* by tensor: the last cast of it that stays, or -1: node */
    int *before;                   /* by node: the cast of the same tensor before that */
    int *readers;                  /* by tensor */
} folding;

static ir_tensor *tensor_at(const folding *f, int tensor)
{
    return &f->c->ir.tensors.item[tensor];
}

/* The node that casts something to this tensor, or NULL. */
static const ir_node *cast_to(const folding *f, int tensor)
{
    const int n = tensor_at(f, tensor)->node;
    return n >= 0 && f->c->ir.node[n].op == &op_cast ? &f->c->ir.node[n] : NULL;
}

/* Whether every value of `from` is one of `to`. */
static bool holds(weir_dtype to, weir_dtype from)
{
    if (from == WEIR_U8 || from == WEIR_I8)
        return to == WEIR_I32 || to == WEIR_I64 || to == WEIR_F32;
    if (from == WEIR_I32)
        return to == WEIR_I64;
    return to == WEIR_F32 && (from == WEIR_BF16 || from == WEIR_F16);
}

static bool has_terms(const ir_tensor *t)
{
    for (int a = 0; a < t->mesh->axes; a++)
        if (t->sbp[a] == WEIR_P && t->mesh->shape[a] > 1)
            return true;
    return false;
}

/* Whether another may be read instead of what the cast makes, or reads. */
static bool is_free(const folding *f, const ir_node *cast)
{
    const ir_tensor *in = tensor_at(f, cast->in[0]), *out = tensor_at(f, cast->out[0]);
    return !has_terms(in) && !has_terms(out) && !(out->origin && out->origin->slots);
}

/* Lets the cast read what was widened rather than what it was widened to. */
static void read_narrow(folding *f, ir_node *cast)
{
    const ir_node *first = cast_to(f, cast->in[0]);
    if (first && is_free(f, first) && first->program == cast->program &&
        holds(tensor_at(f, first->out[0])->type.dtype, tensor_at(f, first->in[0])->type.dtype))
        cast->in[0] = first->in[0];
}

/* The same cast, made before, or NULL. */
static const ir_node *made_before(const folding *f, const ir_node *cast)
{
    const ir_tensor *out = tensor_at(f, cast->out[0]);
    for (int n = f->cast[cast->in[0]]; n >= 0; n = f->before[n]) {
        const ir_node *other = &f->c->ir.node[n];
        const ir_tensor *made = tensor_at(f, other->out[0]);
        if (other->program == cast->program && other->phase <= cast->phase && made->type.dtype == out->type.dtype &&
            mesh_equal(made->mesh, out->mesh) && sbp_equal(made->mesh, made->sbp, out->sbp))
            return other;
    }
    return NULL;
}

static void fold_cast(folding *f, ir_node *cast, int n)
{
    if (!is_free(f, cast))
        return;
    read_narrow(f, cast);
    const ir_node *other = made_before(f, cast);
    if (tensor_at(f, cast->in[0])->type.dtype == tensor_at(f, cast->out[0])->type.dtype)
        f->same[cast->out[0]] = cast->in[0];
    else if (other)
        f->same[cast->out[0]] = other->out[0];
    else {
        f->before[n] = f->cast[cast->in[0]];
        f->cast[cast->in[0]] = n;
    }
}

/* Takes out the casts that nobody reads any more. Readers stand behind what they read. */
static void drop_unread(folding *f)
{
    ir_graph *ir = &f->c->ir;
    int kept = ir->node_count;
    for (int n = ir->node_count - 1; n >= 0; n--) {
        const ir_node node = ir->node[n];
        if (node.op == &op_cast && !f->readers[node.out[0]]) {
            tensor_at(f, node.out[0])->node = NONE;
            continue;
        }
        for (int i = 0; i < node.in_count; i++)
            f->readers[node.in[i]]++;
        ir->node[--kept] = node;
    }
    ir_renumber(f->c, ir->node + kept, ir->node_count - kept);
}

static bool folding_begin(folding *f, compile *c)
{
    const int tensors = c->ir.tensors.count;
    *f = (folding){.c = c};
    f->same = POOL_NEW(&c->pool, int, tensors + 1);
    f->cast = POOL_NEW(&c->pool, int, tensors + 1);
    f->readers = POOL_NEW(&c->pool, int, tensors + 1);
    f->before = POOL_NEW(&c->pool, int, c->ir.node_count + 1);
    for (int t = 0; t < tensors && !c->pool.failed; t++) {
        f->same[t] = t;
        f->cast[t] = NONE;
    }
    return !c->pool.failed;
}

bool pass_fold(compile *c)
{
    folding f;
    if (!folding_begin(&f, c))
        return ir_had_memory(c);
    for (int n = 0; n < c->ir.node_count; n++) {
        ir_node *node = &c->ir.node[n];
        for (int i = 0; i < node->in_count; i++)
            node->in[i] = f.same[node->in[i]];
        if (node->op == &op_cast)
            fold_cast(&f, node, n);
    }
    drop_unread(&f);
    return ir_had_memory(c);
}
