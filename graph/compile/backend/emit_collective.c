/* graph/compile/backend/emit_collective.c: the plan's collectives, from those that the lower pass has found; their members' actors
 * are written already. Groups are numbered by where they first come. */
#include "graph/compile/backend/emit_collective.h"
#include "graph/compile/devices/exchange.h"

#include "graph/plan/prove/turns.h"

#include <stdlib.h>

typedef struct by_devices {        /* a collective, to be sorted by the devices of its members */
    const phys *p;
    int collective;
} by_devices;

static int compare_devices(const void *a, const void *b)
{
    const by_devices *x = a, *y = b;
    const phys *p = x->p;
    const pcollective *one = &p->collective.item[x->collective], *other = &p->collective.item[y->collective];
    if (one->members.count != other->members.count)
        return one->members.count - other->members.count;
    for (int m = 0; m < one->members.count; m++) {
        int difference = p->op.item[one->members.item[m]].device - p->op.item[other->members.item[m]].device;
        if (difference)
            return difference;
    }
    return 0;
}

static int compare_all(const void *a, const void *b)
{
    int order = compare_devices(a, b);
    return order ? order : ((const by_devices *)a)->collective - ((const by_devices *)b)->collective;
}

/* The first collective of the same devices, for each. */
static int *firsts_find(compile *c)
{
    int count = c->phys.collective.count, *first = POOL_NEW(&c->pool, int, count + 1);
    by_devices *sorted = POOL_NEW(&c->pool, by_devices, count + 1);
    for (int i = 0; first && sorted && i < count; i++)
        sorted[i] = (by_devices){&c->phys, i};
    if (first && sorted)
        qsort(sorted, (size_t)count, sizeof *sorted, compare_all);
    for (int i = 0; first && sorted && i < count; i++)
        first[sorted[i].collective] = i && !compare_devices(&sorted[i - 1], &sorted[i]) ? first[sorted[i - 1].collective]
                                                                                        : sorted[i].collective;
    return sorted ? first : NULL;
}

/* Notes where each operand that is moved is listed: an accelerator's tensor is one member's, and given or taken. */
static void places_note(const phys *p, const pcollective *of, int *place)
{
    for (int m = 0; m < of->members.count; m++) {
        const pop *op = &p->op.item[of->members.item[m]];
        for (int i = 0; i < op->in_count; i++)
            place[op->in[i]] = i;
        for (int o = 0; o < op->out_count; o++)
            place[op->out[o]] = o;
    }
}

static int compare_moves(const void *a, const void *b)
{
    const plan_move *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return (x->give > y->give) - (x->give < y->give);
}

/* By giver, taker and give. `place`: by tensor. */
static void emit_moves(compile *c, plan_builder *b, const pcollective *of, int *place)
{
    const phys *p = &c->phys;
    plan_move *moves = POOL_NEW(&c->pool, plan_move, of->moves.count + 1);
    if (of->moves.count)
        places_note(p, of, place);
    for (int i = 0; moves && i < of->moves.count; i++) {
        const pmove *move = &p->move.item[of->moves.item[i]];
        moves[i] = (plan_move){.from = (uint32_t)collective_member(of, move->from),
                               .to = (uint32_t)collective_member(of, move->to),
                               .give = (uint32_t)place[move->give],
                               .take = (uint32_t)place[move->take]};
        if (!plan_builder_failed(b))
            moves[i].bytes = plan_tensor_bytes(&plan_builder_plan(b)->tensors[p->tensor.item[move->take].plan_id]);
    }
    if (moves)
        qsort(moves, (size_t)of->moves.count, sizeof *moves, compare_moves);
    for (int i = 0; moves && i < of->moves.count; i++)
        plan_add_moves(b, moves[i]);
}

bool emit_collectives(compile *c, plan_builder *b)
{
    const phys *p = &c->phys;
    int count = p->collective.count, *first = firsts_find(c), *number = POOL_NEW(&c->pool, int, count + 1), groups = 0;
    int *place = POOL_NEW(&c->pool, int, p->tensor.count + 1);
    const weir_plan *plan = plan_builder_plan(b);
    for (int i = 0; first && number && place && i < count; i++) {
        const pcollective *of = &p->collective.item[i];
        if (!of->members.count)
            continue; /* it is a part of another */
        if (first[i] == i)
            number[i] = groups++;
        plan_collective to = {.group = (uint32_t)number[first[i]],
                              .members = {plan->members_count, (uint32_t)of->members.count},
                              .moves = {plan->moves_count, (uint32_t)of->moves.count}};
        for (int m = 0; m < of->members.count; m++)
            plan_add_members(b, (plan_actor_id){(uint32_t)p->op.item[of->members.item[m]].group});
        emit_moves(c, b, of, place);
        uint32_t id = plan_add_collectives(b, to);
        if (id != PLAN_NONE)
            plan_builder_plan(b)->collectives[id].kind = of->sum != NONE ? (uint32_t)of->sum : plan_collective_looks(plan, id);
    }
    plan_add_all_turns(b);
    return first && number && place;
}
