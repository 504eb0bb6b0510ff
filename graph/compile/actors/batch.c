/* graph/compile/actors/batch.c: products of one tensor become one call, where the device's library makes a batch of products as one
 * (kernels/matmul/many.c).
 *
 *     linear       y0 = x W0 + b0, y1 = x W1 + b1, ...     queries, keys and values, for one
 *     linear_dw    dW0 = x^T dy0, dW1 = x^T dy1, ...       where one is too small for a card
 *
 * The library wants the matrices of a batch at equal distances. So there are two passes. Before the grouping, tensors that are
 * to lie so become a family: they get one register (group.c), or one block of temporaries (offsets.c). Behind the
 * grouping, calls become one if their operands lie so: not where readers differ, so that registers do. Parameters
 * stay what they are: they lie one behind the other in the order in which they were made.
 */
#include "graph/compile/actors/passes.h"
#include "graph/compile/actors/unite.h"
#include "kernels/matmul/sizes.h"
#include "kernels/common/ops.h"
#include "kernels/common/view.h"

static const struct {
    const weir_op *one, *many;
    const char *says;
} kinds[] = {{&op_linear, &op_linear_many, "batch(linear)"}, {&op_linear_dw, &op_linear_dw_many, "batch(linear_dw)"}};
enum { KINDS = sizeof kinds / sizeof *kinds };
_Static_assert((int)BATCH_MAX == (int)PRODUCTS_MAX, "an op takes a whole batch");

/* ---- families ---- */

static bool feeds_gelu(const compile *c, const pop *p)
{
    const ptensor *y = tensor_of(c, p->out[0]);
    for (int r = 0; r < y->readers.count; r++)
        if (pop_op(c, pop_of(c, y->readers.item[r])) == &op_gelu)
            return true;
    return false;
}

/* A linear's gelu joins its product (epilogue.c), and so does the sum for its bias unless its terms are split. */
static bool is_wanted(const compile *c, const pop *p)
{
    weir_type types[UNITED_OPERANDS];
    if (pop_op(c, p) == &op_linear)
        return !feeds_gelu(c, p);
    pop_types(c, p, types);
    return product_wants_split(shape_last(&types[0].shape), shape_last(&types[1].shape), shape_rows(&types[0].shape));
}

/* The kind of batch that the reader of the tensor may be in, or -1. */
static int kind_of(const compile *c, int id, int x)
{
    const pop *p = pop_of(c, id);
    for (int k = 0; k < KINDS; k++)
        if (pop_op(c, p) == kinds[k].one && op_runs_on(kinds[k].many, c->phys.device.item[p->device].kind) && !p->dead &&
            !p->accumulate && p->in[0] == x && is_wanted(c, p))
            return k;
    return NONE;
}

static bool are_alike(const compile *c, const pop *a, const pop *b)
{
    weir_type x[UNITED_OPERANDS], y[UNITED_OPERANDS];
    if (a->in_count != b->in_count || a->phase != b->phase || a->micro != b->micro)
        return false;
    pop_types(c, a, x);
    pop_types(c, b, y);
    for (int i = 0; i < a->in_count + a->out_count; i++)
        if (!type_equal(&x[i], &y[i]))
            return false;
    return true;
}

/* Whether the tensor may lie where others want it: it is made on its device, and read there alone. */
static bool is_free(const compile *c, const ptensor *t)
{
    for (int r = 0; r < t->readers.count; r++)
        if (pop_of(c, t->readers.item[r])->device != t->device)
            return false;
    return !t->parameter && t->within == NONE && t->alias == NONE && t->family == NONE;
}

static void family_new(compile *c, const pbatch *b, int (*operand)(const pop *p))
{
    for (int i = 0; i < b->count; i++)
        if (!is_free(c, tensor_of(c, operand(pop_of(c, b->pop[i])))))
            return;
    family *f = POOL_PUSH(&c->pool, &c->phys.family);
    if (!f)
        return;
    *f = (family){.count = b->count};
    for (int i = 0; i < b->count; i++) {
        f->tensor[i] = operand(pop_of(c, b->pop[i]));
        tensor_of(c, f->tensor[i])->family = c->phys.family.count - 1;
        tensor_of(c, f->tensor[i])->family_at = i;
    }
}

static int second_input(const pop *p)
{
    return p->in[1];
}

static int output(const pop *p)
{
    return p->out[0];
}

/* By their outputs, which is the order of those in a register. */
static void insert(const compile *c, pbatch *b, int id)
{
    int at = b->count++;
    for (; at > 0 && pop_of(c, b->pop[at - 1])->out[0] > pop_of(c, id)->out[0]; at--)
        b->pop[at] = b->pop[at - 1];
    b->pop[at] = id;
}

/* The reader `first` of the tensor, and those behind it that are like it. */
static void find_batch(compile *c, int x, int first, bool *taken)
{
    const ptensor *t = tensor_of(c, x);
    const int like = t->readers.item[first], kind = taken[like] ? -1 : kind_of(c, like, x);
    pbatch b = {.kind = kind};
    for (int r = first; kind >= 0 && r < t->readers.count && b.count < BATCH_MAX; r++) {
        const int id = t->readers.item[r];
        if (!taken[id] && kind_of(c, id, x) == kind && are_alike(c, pop_of(c, like), pop_of(c, id)))
            insert(c, &b, id);
    }
    for (int i = 0; i < b.count; i++)
        taken[b.pop[i]] = true;
    if (b.count < 2)
        return;
    family_new(c, &b, second_input);
    family_new(c, &b, output);
    pbatch *made = POOL_PUSH(&c->pool, &c->phys.batch);
    if (made)
        *made = b;
}

bool pass_families(compile *c)
{
    bool *taken = POOL_NEW(&c->pool, bool, c->phys.op.count + 1);
    for (int x = 0; x < c->phys.tensor.count && taken && !c->opts.no_fusion; x++)
        for (int r = 0; r < tensor_of(c, x)->readers.count; r++)
            find_batch(c, x, r, taken);
    return ir_had_memory(c);
}

/* ---- one call ---- */

/* Whether the operands lie at equal distances, in their order. Where temporaries lie is not known yet, but a family has one block. */
static bool are_even(const compile *c, const pbatch *b, int (*operand)(const pop *p))
{
    const ptensor *first = tensor_of(c, operand(pop_of(c, b->pop[0])));
    const ptensor *second = tensor_of(c, operand(pop_of(c, b->pop[1])));
    for (int i = 0; i < b->count; i++) {
        const ptensor *t = tensor_of(c, operand(pop_of(c, b->pop[i])));
        const bool temp = t->reg < 0 && t->family != NONE && t->family == first->family && t->family_at == i;
        if (t->reg != first->reg || (t->reg < 0 ? !temp : second->offset <= first->offset ||
                                     t->offset - first->offset != (uint64_t)i * (second->offset - first->offset)))
            return false;
    }
    return true;
}

static int bias(const pop *p)
{
    return p->in[2];
}

static void append(const compile *c, union_call *u, const pbatch *b, int (*operand)(const pop *p))
{
    for (int i = 0; i < b->count; i++)
        u->in[u->in_count++] = operand(pop_of(c, b->pop[i]));
}

static void make_one(compile *c, const pbatch *b, const int *position)
{
    const pop *first = pop_of(c, b->pop[0]);
    union_call u = {.op = kinds[b->kind].many, .count = b->count, .product = first, .says = kinds[b->kind].says, .inner = NONE,
                    .in = {first->in[0]}, .in_count = 1};
    const bool biased = first->in_count > 2;
    int late = b->pop[0];
    for (int i = 0; i < b->count; i++) {
        const int id = b->pop[i];
        u.pop[i] = id;
        u.out[u.out_count++] = pop_of(c, id)->out[0];
        if (!unite_calls(c, id, kinds[b->kind].one, first->group))
            return;
        if (position[id] < position[u.pop[0]]) {
            u.pop[i] = u.pop[0];
            u.pop[0] = id;
        }
        late = position[id] > position[late] ? id : late;
    }
    if (!are_even(c, b, second_input) || !are_even(c, b, output) || (biased && !are_even(c, b, bias)))
        return;
    append(c, &u, b, second_input);
    if (biased)
        append(c, &u, b, bias);
    u.last = c->ir.node[pop_of(c, late)->node].name;
    unite(c, &u, position);
}

bool pass_batch(compile *c)
{
    int *position = c->phys.batch.count ? POOL_NEW(&c->pool, int, c->phys.op.count + 1) : NULL;
    for (int g = 0; g < c->phys.group.count && position; g++)
        for (int i = 0; i < c->phys.group.item[g].pops.count; i++)
            position[c->phys.group.item[g].pops.item[i]] = i;
    for (int b = 0; b < c->phys.batch.count && position; b++)
        make_one(c, &c->phys.batch.item[b], position);
    return ir_had_memory(c);
}
