/* graph/compile/layout.c: where everything lies.
 *
 * Inside a group temporaries live from the pop that makes them to the last that reads them; those that never live at
 * the same time may share memory, and place() finds where. A kernel that may work in place takes over the memory of an
 * input that dies with it. A queue runs one actor at a time, so all groups of a queue share one workspace.
 *
 * Arena of a device: registers by kind, states, then the workspace. Every part is padded to PLAN_ALIGN, so the sum is
 * exact.
 */
#include "graph/base/error.h"
#include "graph/compile/ir.h"
#include "graph/compile/place.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct block {             /* memory of one or, in place, several temporaries */
    uint64_t bytes, offset;
    int from, to;                  /* first and last pop, as positions in the group */
} block;

typedef struct colouring {
    compile *c;
    const group *g;
    POOL_LIST(block) blocks;
    int *block_of;                 /* by ptensor */
    int *position;                 /* by pop */
} colouring;

static bool is_temp(const phys *p, int tensor, int group_id)
{
    const ptensor *t = &p->tensor.item[tensor];
    return t->reg < 0 && !t->parameter && t->producer >= 0 && p->op.item[t->producer].group == group_id;
}

static int last_use(const colouring *x, const ptensor *t)
{
    int last = x->position[t->producer];
    for (int r = 0; r < t->readers.count; r++)
        if (x->position[t->readers.item[r]] > last)
            last = x->position[t->readers.item[r]];
    return last;
}

/* Whether element i of both lies at the same bytes: a repeated operand, or one of narrower elements, would be
 * overwritten before it is read. */
static bool same_elements(const compile *c, const ptensor *a, const ptensor *b)
{
    const weir_type *x = &c->ir.tensors.item[a->tensor].type, *y = &c->ir.tensors.item[b->tensor].type;
    int64_t count_a = 1, count_b = 1;
    for (int d = 0; d < WEIR_DIMS_MAX; d++) {
        count_a *= d < x->shape.rank ? a->part.count[d] : 1;
        count_b *= d < y->shape.rank ? b->part.count[d] : 1;
    }
    return count_a == count_b && weir_dtype_bytes(x->dtype) == weir_dtype_bytes(y->dtype);
}

/* The block of the input that the pop may overwrite with its first output, or -1. */
static int block_in_place(const colouring *x, const pop *op, int at, int out)
{
    const phys *p = &x->c->phys;
    int k = x->c->ir.node[op->node].op->inplace - 1;
    if (out != 0 || k < 0 || k >= op->in_count || op->accumulate)
        return -1;
    int in = op->in[k];
    const ptensor *from = &p->tensor.item[in], *to = &p->tensor.item[op->out[0]];
    if (!is_temp(p, in, op->group) || x->block_of[in] < 0 || !same_elements(x->c, from, to))
        return -1;
    return x->blocks.item[x->block_of[in]].to == at && last_use(x, from) == at ? x->block_of[in] : -1;
}

static void block_new(colouring *x, uint64_t bytes, int from, int to)
{
    block *b = POOL_PUSH(&x->c->pool, &x->blocks);
    if (b)
        *b = (block){.bytes = bytes, .from = from, .to = to};
}

static void blocks_of_pop(colouring *x, int id, int at)
{
    phys *p = &x->c->phys;
    const pop *op = &p->op.item[id];
    for (int o = 0; o < op->out_count; o++) {
        if (!is_temp(p, op->out[o], op->group))
            continue;
        const ptensor *t = &p->tensor.item[op->out[o]];
        int shared = block_in_place(x, op, at, o), last = last_use(x, t);
        assert(shared < x->blocks.count);
        if (shared < 0) {
            block_new(x, t->bytes, at, last);
            shared = x->blocks.count - 1;
        } else if (last > x->blocks.item[shared].to) {
            x->blocks.item[shared].to = last;
        }
        x->block_of[op->out[o]] = shared;
    }
    if (op->scratch) {
        block_new(x, op->scratch, at, at);
        p->op.item[id].scratch_block = x->blocks.count - 1;
    }
}

/* Gives every block its offset; returns the bytes in all. */
static uint64_t blocks_place(colouring *x)
{
    int count = x->blocks.count, groups = x->c->phys.group.count;
    place_block *list = POOL_NEW(&x->c->pool, place_block, count + 1);
    place_problem problem = {.block = list, .count = count, .budget = PLACE_BUDGET_COMPILE / (uint64_t)groups};
    for (int i = 0; i < count && list; i++) {
        const block *b = &x->blocks.item[i];
        list[i] = (place_block){.bytes = b->bytes, .align = PLAN_ALIGN, .from = b->from, .until = b->to + 1};
    }
    if (!list || !place(&problem)) {
        x->c->pool.failed = true;
        return 0;
    }
    for (int i = 0; i < count; i++)
        x->blocks.item[i].offset = list[i].offset;
    return problem.height;
}

static void group_colour(compile *c, group *g, int *block_of, int *position)
{
    colouring x = {.c = c, .g = g, .block_of = block_of, .position = position};
    for (int i = 0; i < g->pops.count; i++)
        position[g->pops.item[i]] = i;
    for (int i = 0; i < g->pops.count; i++)
        blocks_of_pop(&x, g->pops.item[i], i);
    g->workspace = blocks_place(&x);
    for (int i = 0; i < g->pops.count && !c->pool.failed; i++) {
        pop *op = &c->phys.op.item[g->pops.item[i]];
        for (int o = 0; o < op->out_count; o++)
            if (is_temp(&c->phys, op->out[o], op->group))
                c->phys.tensor.item[op->out[o]].offset = x.blocks.item[block_of[op->out[o]]].offset;
        if (op->scratch) {
            assert(op->scratch_block >= 0 && op->scratch_block < x.blocks.count);
            op->scratch_offset = x.blocks.item[op->scratch_block].offset;
        }
    }
}

static bool workspaces(compile *c)
{
    phys *p = &c->phys;
    int *block_of = POOL_NEW(&c->pool, int, p->tensor.count + 1), *position = POOL_NEW(&c->pool, int, p->op.count + 1);
    if (!block_of || !position)
        return false;
    memset(block_of, -1, sizeof *block_of * (size_t)(p->tensor.count + 1));
    for (int g = 0; g < p->group.count; g++) {
        group_colour(c, &p->group.item[g], block_of, position);
        pdevice *d = &p->device.item[p->group.item[g].device];
        d->workspace = p->group.item[g].workspace > d->workspace ? p->group.item[g].workspace : d->workspace;
    }
    p->coloured = true;
    return !c->pool.failed;
}

static void arena(compile *c, int device)
{
    phys *p = &c->phys;
    pdevice *d = &p->device.item[device];
    d->bytes = 0;
    for (int kind = 0; kind < PLAN_MEMS; kind++) {
        for (int r = 0; r < p->reg.count; r++) {
            reg *reg_ = &p->reg.item[r];
            if (reg_->device != device || (int)reg_->kind != kind)
                continue;
            reg_->offset = d->bytes;
            d->bytes += reg_->slot_bytes * (uint64_t)reg_->slots;
        }
        for (int s = 0; s < p->state.count && kind == PLAN_STATE; s++) {
            const pop *op = &p->op.item[p->state.item[s].pop];
            if (op->dead || op->device != device)
                continue;
            p->state.item[s].offset = d->bytes;
            d->bytes += p->state.item[s].bytes;
        }
    }
    d->workspace_offset = d->bytes;
    d->bytes += d->workspace;
    d->snapshot_offset = d->snapshot ? d->bytes : 0;
    d->bytes += d->snapshot;
}

bool pass_layout(compile *c)
{
    if (!c->phys.coloured && !workspaces(c)) {
        error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name);
        return false;
    }
    for (int d = 0; d < c->phys.device.count; d++)
        arena(c, d);
    return true;
}
