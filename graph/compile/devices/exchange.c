/* graph/compile/devices/exchange.c: see the header. */
#include "graph/compile/devices/exchange.h"

#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

static slice slices_common(const slice *a, const slice *b, int rank)
{
    slice common = {.start = {0}};
    for (int d = 0; d < rank; d++) {
        int64_t a_end = a->start[d] + a->count[d], b_end = b->start[d] + b->count[d];
        common.start[d] = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        common.count[d] = (a_end < b_end ? a_end : b_end) - common.start[d];
    }
    return common;
}

/* A part of a shard, made by a pop that is yet to come or by `producer`. */
static int part_make(exchanging *x, int tensor, int device, const slice *part, int producer)
{
    compile *c = x->c;
    const weir_type *type = &c->ir.tensors.item[tensor].type;
    uint64_t bytes = weir_dtype_bytes(type->dtype);
    ptensor *to = POOL_PUSH(&c->pool, &c->phys.tensor);
    for (int d = 0; d < type->shape.rank; d++)
        bytes *= (uint64_t)part->count[d];
    if (to)
        *to = (ptensor){.tensor = tensor, .device = device, .part = *part, .bytes = round_up(bytes), .producer = producer,
                        .alias = NONE, .within = NONE, .family = NONE, .reg = NONE};
    return c->phys.tensor.count - 1;
}

static bool part_is(const compile *c, int tensor, const slice *part)
{
    return !memcmp(&c->phys.tensor.item[tensor].part, part, sizeof *part);
}

/* Whether a part lies in one piece in a shard, at a place where a tensor may begin; then how many bytes from its start. */
static bool part_in_place(const compile *c, int shard, const slice *part, uint64_t *distance)
{
    const ptensor *of = &c->phys.tensor.item[shard];
    const weir_type *type = &c->ir.tensors.item[of->tensor].type;
    int last = NONE;
    int64_t elements = 0;
    for (int d = 0; d < type->shape.rank; d++) {
        elements = elements * of->part.count[d] + part->start[d] - of->part.start[d];
        last = part->count[d] != of->part.count[d] ? d : last;
    }
    for (int d = 0; d < last; d++)
        if (part->count[d] != 1)
            return false;
    *distance = (uint64_t)elements * weir_dtype_bytes(type->dtype);
    return *distance % PLAN_ALIGN == 0;
}

static int part_within(exchanging *x, int tensor, int shard, const slice *part, uint64_t distance)
{
    int made = part_make(x, tensor, x->c->phys.tensor.item[shard].device, part, -1);
    if (!x->c->pool.failed) {
        x->c->phys.tensor.item[made].within = shard;
        x->c->phys.tensor.item[made].distance = distance;
    }
    return made;
}

/* A pop that copies a part out of a shard. */
static int part_cut(exchanging *x, int shard, const slice *part)
{
    compile *c = x->c;
    const ir_node *node = &c->ir.node[x->node];
    box_attrs *attrs = POOL_NEW(&c->pool, box_attrs, 1);
    int *ends = POOL_NEW(&c->pool, int, 2);
    pop *op = POOL_PUSH(&c->pool, &c->phys.op);
    if (!attrs || !ends || !op)
        return shard;
    attrs->terms = 1;
    ends[0] = shard;
    ends[1] = part_make(x, x->gives, c->phys.tensor.item[shard].device, part, c->phys.op.count - 1);
    *op = (pop){.node = x->node, .device = c->phys.tensor.item[shard].device, .in_count = 1, .out_count = 1, .in = ends,
                .out = ends + 1, .attrs = attrs, .phase = node->phase, .micro = node->micro,
                .exchange = NONE, .collective = NONE};
    return ends[1];
}

/* The ptensor on the shard's device that has just this part of it: several devices may want the same. */
static int part_given(exchanging *x, int shard, const slice *part)
{
    int base = x->c->phys.first[x->c->ir.node[x->node].in[0]];
    if (part_is(x->c, shard, part))
        return shard;
    int *last = &x->part_of[shard - base];
    for (int i = *last; i; i = x->next.item[i - 1])
        if (part_is(x->c, x->part.item[i - 1], part))
            return x->part.item[i - 1];
    uint64_t distance;
    int made = part_in_place(x->c, shard, part, &distance) ? part_within(x, x->gives, shard, part, distance)
                                                           : part_cut(x, shard, part);
    int *to = POOL_PUSH(&x->c->pool, &x->part), *next = POOL_PUSH(&x->c->pool, &x->next);
    if (to && next) {
        *to = made;
        *next = *last;
        *last = x->part.count;
    }
    return made;
}

/* ---- moves ---- */

static void move_add(exchanging *x, int give, int take)
{
    pmove *move = POOL_PUSH(&x->c->pool, &x->c->phys.move);
    if (move)
        *move = (pmove){.give = give, .take = take};
}

static slice part_of_both(const exchanging *x, int source, int out)
{
    const phys *p = &x->c->phys;
    return slices_common(&p->tensor.item[source].part, &p->tensor.item[out].part,
                         x->c->ir.tensors.item[x->takes].type.shape.rank);
}

/* The tensor that a destination's box reads of one source: it, if it is there, or what is taken of it. */
static int source_here(exchanging *x, int source, int out)
{
    int device = x->c->phys.tensor.item[out].device;
    if (x->c->phys.tensor.item[source].device == device)
        return source;
    slice part = part_of_both(x, source, out);
    int take = part_make(x, x->takes, device, &part, -1);
    move_add(x, part_given(x, source, &part), take);
    return take;
}

/* Whether a destination is no more than what its sources have, each in one piece, and one of them is elsewhere: then all
 * is taken to where it belongs, and nothing is left to be done. */
static bool gathers(const exchanging *x, int out)
{
    const sources *s = x->sources;
    bool elsewhere = false;
    uint64_t distance;
    if (s->terms > 1 || s->zero || x->c->phys.tensor.item[out].fills)
        return false;
    for (int i = 0; i < s->count; i++) {
        slice part = part_of_both(x, s->item[i], out);
        elsewhere |= x->c->phys.tensor.item[s->item[i]].device != x->c->phys.tensor.item[out].device;
        if (!part_in_place(x->c, out, &part, &distance))
            return false;
    }
    return elsewhere;
}

static void gather(exchanging *x, int out)
{
    for (int i = 0; i < x->sources->count; i++) {
        int source = x->sources->item[i];
        slice part = part_of_both(x, source, out);
        uint64_t distance = 0;
        part_in_place(x->c, out, &part, &distance);
        move_add(x, part_given(x, source, &part), part_within(x, x->takes, out, &part, distance));
    }
}

static void sources_bring(exchanging *x, int out)
{
    for (int i = 0; i < x->sources->count; i++) {
        int in = source_here(x, x->sources->item[i], out), *place = POOL_PUSH(&x->c->pool, &x->in);
        if (place)
            *place = in;
    }
}

static void moves_find(exchanging *x, int from, int to)
{
    compile *c = x->c;
    int count = c->ir.tensors.item[to].mesh->count;
    for (int at = 0; at < count && !c->pool.failed; at++) {
        int out = ptensor_at(&c->phys, to, at, 0);
        slice part = c->phys.tensor.item[out].part;
        sources_find(x->sources, c, from, to, at, &part);
        x->first[at] = x->in.count;
        x->terms[at] = x->sources->terms;
        x->zero[at] = x->sources->zero;
        x->gathered[at] = gathers(x, out);
        if (x->gathered[at])
            gather(x, out);
        else
            sources_bring(x, out);
    }
    x->first[count] = x->in.count;
}

/* One pop for each device that gives or takes, by rising device. */
static void pops_make(exchanging *x, exchange *e, int n)
{
    compile *c = x->c;
    phys *p = &c->phys;
    const ir_node *node = &c->ir.node[n];
    for (int m = e->first_move; m < e->first_move + e->moves; m++)
        x->pop_of[p->tensor.item[p->move.item[m].give].device] = x->pop_of[p->tensor.item[p->move.item[m].take].device] = 0;
    e->first = p->op.count;
    for (int d = 0; d < p->device.count; d++) {
        pop *op = x->pop_of[d] < 0 ? NULL : POOL_PUSH(&c->pool, &p->op);
        if (!op)
            continue;
        x->pop_of[d] = p->op.count - 1;
        *op = (pop){.node = n, .device = d, .phase = node->phase, .micro = node->micro, .queue = PLAN_COLLECTIVE,
                    .exchange = p->exchange.count - 1, .collective = NONE};
    }
    e->count = p->op.count - e->first;
    for (int m = e->first_move; m < e->first_move + e->moves; m++) {
        pmove *move = &p->move.item[m];
        move->from = x->pop_of[p->tensor.item[move->give].device];
        move->to = x->pop_of[p->tensor.item[move->take].device];
        p->tensor.item[move->take].producer = p->tensor.item[ptensor_whole(p, move->take)].producer = move->to;
    }
    for (int i = e->first; p->op.item && i < p->op.count; i++)
        x->pop_of[p->op.item[i].device] = NONE;
}

static bool exchanging_begin(exchanging *x, int n)
{
    compile *c = x->c;
    const ir_tensor *from = &c->ir.tensors.item[c->ir.node[n].in[0]], *to = &c->ir.tensors.item[c->ir.node[n + 2].out[0]];
    x->node = n;
    x->gives = c->ir.node[n].out[0];
    x->takes = c->ir.node[n + 1].out[0];
    x->in.count = x->part.count = x->next.count = 0;
    x->first = POOL_NEW(&c->pool, int, to->mesh->count + 1);
    x->terms = POOL_NEW(&c->pool, int, to->mesh->count + 1);
    x->zero = POOL_NEW(&c->pool, bool, to->mesh->count + 1);
    x->gathered = POOL_NEW(&c->pool, bool, to->mesh->count + 1);
    x->part_of = POOL_NEW(&c->pool, int, from->mesh->count + 1);
    if (!x->pop_of) {
        x->pop_of = POOL_NEW(&c->pool, int, c->phys.device.count + 1);
        for (int d = 0; x->pop_of && d < c->phys.device.count; d++)
            x->pop_of[d] = NONE;
    }
    return !c->pool.failed;
}

bool exchange_lower(exchanging *x, int n)
{
    compile *c = x->c;
    if (!exchanging_begin(x, n))
        return false;
    exchange e = {.first_move = c->phys.move.count};
    moves_find(x, c->ir.node[n].in[0], c->ir.node[n + 2].out[0]);
    e.moves = c->phys.move.count - e.first_move;
    exchange *to = POOL_PUSH(&c->pool, &c->phys.exchange);
    if (to && !c->pool.failed)
        pops_make(x, &e, n + 1);
    if (to)
        *to = e;
    return !c->pool.failed;
}

/* ---- what is left ---- */

void exchange_sweep(compile *c, int id, bool *used)
{
    const exchange *e = &c->phys.exchange.item[id];
    for (int i = e->first; i < e->first + e->count; i++)
        c->phys.op.item[i].dead = true;
    for (int m = e->first_move; m < e->first_move + e->moves; m++) {
        pmove *move = &c->phys.move.item[m];
        move->used = used[ptensor_whole(&c->phys, move->take)];
        if (!move->used)
            continue;
        used[move->give] = used[ptensor_whole(&c->phys, move->give)] = true;
        c->phys.op.item[move->from].dead = c->phys.op.item[move->to].dead = false;
    }
}

typedef struct move_key {
    int from, to, move;
} move_key;

/* By giver, then by taker. Two moves between the same two come in the order in which they were found. */
static int compare_keys(const void *a, const void *b)
{
    const move_key *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return (x->move > y->move) - (x->move < y->move);
}

static void moves_sort(compile *c, pcollective *of)
{
    move_key *key = POOL_NEW(&c->pool, move_key, of->moves.count + 1);
    for (int i = 0; key && i < of->moves.count; i++) {
        const pmove *move = &c->phys.move.item[of->moves.item[i]];
        key[i] = (move_key){move->from, move->to, of->moves.item[i]};
    }
    if (key)
        qsort(key, (size_t)of->moves.count, sizeof *key, compare_keys);
    for (int i = 0; key && i < of->moves.count; i++)
        of->moves.item[i] = key[i].move;
}

static int root_of(int *parent, int i)
{
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

void collective_operand(compile *c, int id, bool input, int tensor, bool once)
{
    pop *op = &c->phys.op.item[id];
    ptensor *t = &c->phys.tensor.item[tensor];
    int *list = input ? op->in : op->out, *count = input ? &op->in_count : &op->out_count;
    for (int i = *count - 1; once && i >= 0; i--)
        if (list[i] == tensor)
            return;
    t->moved = true;
    *(input ? &op->bytes_in : &op->bytes_out) += t->bytes;
    list[(*count)++] = tensor;
}

/* The collective that a pop belongs to, made when its first one comes. */
static pcollective *collective_of(compile *c, const exchange *e, int *parent, int *made, int pop_id)
{
    int root = root_of(parent, pop_id - e->first);
    if (made[root])
        return &c->phys.collective.item[made[root] - 1];
    pcollective *to = POOL_PUSH(&c->pool, &c->phys.collective);
    if (to)
        *to = (pcollective){.sum = NONE};
    made[root] = c->phys.collective.count;
    return to;
}

static void exchange_settle(compile *c, const exchange *e)
{
    phys *p = &c->phys;
    int *parent = POOL_NEW(&c->pool, int, e->count + 1), *made = POOL_NEW(&c->pool, int, e->count + 1);
    for (int i = 0; parent && i < e->count; i++)
        parent[i] = i;
    for (int m = e->first_move; parent && m < e->first_move + e->moves; m++)
        if (p->move.item[m].used)
            parent[root_of(parent, p->move.item[m].to - e->first)] = root_of(parent, p->move.item[m].from - e->first);
    for (int i = e->first; made && i < e->first + e->count; i++) {
        pcollective *of = p->op.item[i].dead ? NULL : collective_of(c, e, parent, made, i);
        int *at = of ? POOL_PUSH(&c->pool, &of->members) : NULL;
        if (at)
            *at = i;
        p->op.item[i].collective = of ? (int)(of - p->collective.item) : NONE;
    }
    for (int m = e->first_move; !c->pool.failed && m < e->first_move + e->moves; m++) {
        const pmove *move = &p->move.item[m];
        int *at = move->used ? POOL_PUSH(&c->pool, &p->collective.item[p->op.item[move->from].collective].moves) : NULL;
        if (at)
            *at = m;
    }
}

bool collective_room(compile *c, pop *op, int gives, int takes)
{
    op->in = POOL_NEW(&c->pool, int, gives + 1);
    op->out = POOL_NEW(&c->pool, int, takes + 1);
    return op->in && op->out;
}

/* Lists the operands that each member gives, once, and takes. */
static void operands_list(compile *c, pcollective *of)
{
    phys *p = &c->phys;
    moves_sort(c, of);
    for (int i = 0; i < of->moves.count; i++) { /* counted first: they are at most so many */
        p->op.item[p->move.item[of->moves.item[i]].from].in_count++;
        p->op.item[p->move.item[of->moves.item[i]].to].out_count++;
    }
    for (int m = 0; m < of->members.count; m++) {
        pop *op = &p->op.item[of->members.item[m]];
        if (!collective_room(c, op, op->in_count, op->out_count))
            return;
        op->in_count = op->out_count = 0;
    }
    for (int i = 0; i < of->moves.count; i++) {
        const pmove *move = &p->move.item[of->moves.item[i]];
        collective_operand(c, move->from, true, move->give, true);
        collective_operand(c, move->to, false, move->take, true);
    }
}

bool exchanges_settle(compile *c)
{
    for (int e = 0; e < c->phys.exchange.count && !c->pool.failed; e++)
        exchange_settle(c, &c->phys.exchange.item[e]);
    for (int k = 0; k < c->phys.collective.count && !c->pool.failed; k++)
        if (c->phys.collective.item[k].sum == NONE)
            operands_list(c, &c->phys.collective.item[k]);
    return !c->pool.failed;
}
