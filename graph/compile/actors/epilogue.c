/* graph/compile/actors/epilogue.c: a product and what comes right behind it become one call, where the device's library makes
 * both at once (kernels/matmul/epilogue.c).
 *
 *     linear, gelu         z = x W + b, y = gelu(z)           z is kept if it is read: by gelu's gradient, for one
 *     matmul, gelu_grad    dy = a b, dz = gelu'(z) dy         if nobody else reads dy
 *     linear_dw, linear_db dW = x^T dy, db = 1^T dy           unless they add to what earlier micro-batches made, or
 *                                                             what makes dy can be one chain with the sum
 *
 * It works on pops, behind the grouping, as fuse.c does: both belong to one group, and the later one moves up to the
 * earlier, so all that it reads must be there by then. Layouts were chosen for each by itself. The two differ in rounding:
 * gelu sees its input before that is rounded to a half.
 */
#include "graph/compile/actors/passes.h"
#include "graph/base/error.h"
#include "graph/compile/actors/unite.h"
#include "kernels/common/ops.h"

#include <string.h>

bool epilogue_joins = true;

static bool try_join(compile *c, union_call *u, const int *position)
{
    const ir_node *first = &c->ir.node[pop_of(c, u->pop[0])->node], *second = &c->ir.node[pop_of(c, u->pop[1])->node];
    u->says = pool_text(&c->pool, "fused(%s, %s)", first->op->name, second->op->name);
    u->last = second->name;
    return u->says && unite(c, u, position);
}

/* ---- the three kinds ---- */

/* A reader of the tensor in the group that calls the op; or -1. */
static int reader_calling(const compile *c, int tensor, const weir_op *op, int where)
{
    const ptensor *t = tensor_of(c, tensor);
    for (int r = 0; r < t->readers.count; r++)
        if (unite_calls(c, t->readers.item[r], op, where))
            return t->readers.item[r];
    return NONE;
}

static bool is_inner(const compile *c, int tensor)
{
    const ptensor *t = tensor_of(c, tensor);
    return t->readers.count == 1 && t->reg < 0 && t->within == NONE && !t->parameter;
}

static void take_inputs(union_call *u, const pop *from)
{
    memcpy(u->in, from->in, sizeof *u->in * (size_t)from->in_count);
    u->in_count = from->in_count;
}

static bool with_gelu(compile *c, int where, int id, const int *position)
{
    const pop *linear = pop_of(c, id);
    const int z = linear->out[0], gelu = reader_calling(c, z, &op_gelu, where);
    union_call u = {.op = &op_linear_gelu, .pop = {id, gelu}, .count = 2, .product = linear, .inner = NONE};
    if (gelu < 0)
        return false;
    take_inputs(&u, linear);
    u.out[u.out_count++] = pop_of(c, gelu)->out[0];
    if (is_inner(c, z))
        u.inner = z;
    else
        u.out[u.out_count++] = z;
    return try_join(c, &u, position);
}

static bool with_gelu_grad(compile *c, int where, int id, const int *position)
{
    const pop *matmul = pop_of(c, id);
    const int dy = matmul->out[0], grad = reader_calling(c, dy, &op_gelu_grad, where);
    union_call u = {.op = &op_matmul_gelu_grad, .pop = {id, grad}, .count = 2, .product = matmul, .inner = dy};
    if (grad < 0 || !is_inner(c, dy) || pop_of(c, grad)->in[1] != dy || pop_of(c, grad)->in[0] == dy)
        return false;
    take_inputs(&u, matmul);
    u.in[u.in_count++] = pop_of(c, grad)->in[0];
    u.out[u.out_count++] = pop_of(c, grad)->out[0];
    return try_join(c, &u, position);
}

/* Whether the tensor is made row by row in the group: then a chain (fuse.c) sums it up on its way. */
static bool made_by_rows(const compile *c, int tensor, int where)
{
    const int maker = tensor_of(c, tensor)->producer;
    return maker >= 0 && pop_of(c, maker)->group == where && pop_op(c, pop_of(c, maker))->rows_in;
}

static bool with_db(compile *c, int where, int id, const int *position)
{
    const pop *dw = pop_of(c, id);
    const int db = reader_calling(c, dw->in[1], &op_linear_db, where);
    if (db < 0 || made_by_rows(c, dw->in[1], where))
        return false;
    const bool first = position[id] < position[db];
    union_call u = {.op = &op_linear_dw_db, .pop = {first ? id : db, first ? db : id}, .count = 2, .product = dw, .inner = NONE};
    take_inputs(&u, dw);
    u.out[u.out_count++] = dw->out[0];
    u.out[u.out_count++] = pop_of(c, db)->out[0];
    return try_join(c, &u, position);
}

static const struct {
    const weir_op *product, *both;
    bool (*join)(compile *c, int where, int id, const int *position);
} kinds[] = {{&op_linear, &op_linear_gelu, with_gelu},
             {&op_matmul, &op_matmul_gelu_grad, with_gelu_grad},
             {&op_linear_dw, &op_linear_dw_db, with_db}};

static void join_in_group(compile *c, int where, const int *position)
{
    const weir_device_kind device = c->phys.device.item[c->phys.group.item[where].device].kind;
    for (int i = 0; i < c->phys.group.item[where].pops.count; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const int id = c->phys.group.item[where].pops.item[i];
            if (op_runs_on(kinds[k].both, device) && unite_calls(c, id, kinds[k].product, where))
                kinds[k].join(c, where, id, position);
        }
}

/* Pops that go stay in their groups; fuse.c leaves them out. */
bool pass_epilogue(compile *c)
{
    int *position = POOL_NEW(&c->pool, int, c->phys.op.count + 1);
    for (int g = 0; g < c->phys.group.count && position && epilogue_joins && !c->opts.no_fusion; g++) {
        for (int i = 0; i < c->phys.group.item[g].pops.count; i++)
            position[c->phys.group.item[g].pops.item[i]] = i;
        join_in_group(c, g, position);
    }
    return ir_had_memory(c);
}
