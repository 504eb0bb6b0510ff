/* graph/plan/prove/validate_collective.c: the members of collectives, their moves and their turns. Members are actors of different accelerators, each on its queue for
 * collectives and with one kernel; every such actor is a member of one collective. Each move is from an input of one member's
 * kernel to an output of another's, each output once; its kind is what its moves look like. Two
 * collectives are of one group exactly if they are of the same devices. And every collective has as many turns as its members
 * fire.
 *
 * In a part of a plan the kernels of other ranks are not there: what they read and write is asked on their own.
 */
#include "graph/plan/prove/validate.h"

#include "graph/base/base.h"

#include <stdlib.h>
#include <string.h>

#define REFUSE_COLLECTIVE(c, format, ...) \
    REFUSE_PLAN("collectives[%" PRIu32 "]" format, (c) __VA_OPT__(, ) __VA_ARGS__)

typedef struct meeting {
    const weir_plan *plan;
    uint32_t index;
    const plan_collective *of;
} meeting;

static uint32_t count_of(const meeting *at)
{
    return at->of->members.count;
}

static uint32_t member(const meeting *at, uint32_t m)
{
    return at->plan->members[at->of->members.first + m].i;
}

/* The kernel of a member; NULL: it is another rank's. */
static const plan_kernel *kernel_of(const meeting *at, uint32_t m)
{
    const plan_range *kernels = &at->plan->actors[member(at, m)].kernels;
    return kernels->count ? &at->plan->kernels[kernels->first] : NULL;
}

/* ---- members ---- */

static bool validate_member(const meeting *at, uint32_t m)
{
    const weir_plan *plan = at->plan;
    const plan_actor *actor = &plan->actors[member(at, m)], *first = &plan->actors[member(at, 0)];
    if (plan->queues[actor->queue.i].kind != PLAN_COLLECTIVE)
        return REFUSE_COLLECTIVE(at->index, ".members: actors[%" PRIu32 "] is on no queue for collectives", member(at, m));
    bool elsewhere = plan->part && plan_rank_of(plan, member(at, m)) != plan->part - 1;
    if (actor->kernels.count != 1 && (!elsewhere || actor->kernels.count))
        return REFUSE_COLLECTIVE(at->index, ".members: actors[%" PRIu32 "] has %" PRIu32 " kernels, and not one",
                                 member(at, m), actor->kernels.count);
    if (actor->fires != first->fires || actor->program.i != first->program.i)
        return REFUSE_COLLECTIVE(at->index, ".members: actors[%" PRIu32 "] fires in another program, or at another rate",
                                 member(at, m));
    uint32_t device = plan_actor_space(plan, member(at, m)).i;
    if (plan->spaces[device].kind != plan->spaces[plan_actor_space(plan, member(at, 0)).i].kind)
        return REFUSE_COLLECTIVE(at->index, ".members: %.60s is of another kind", plan_text(plan, plan->spaces[device].name));
    return !m || device > plan_actor_space(plan, member(at, m - 1)).i ||
           REFUSE_COLLECTIVE(at->index, ".members: are not in the order of their devices");
}

/* Each actor on a queue for collectives is a member once, and each device has one such queue. */
static bool validate_membership(const weir_plan *plan, uint8_t *seen)
{
    memset(seen, 0, plan->actors_count);
    for (uint32_t m = 0; m < plan->members_count; m++)
        if (seen[plan->members[m].i]++)
            return REFUSE_PLAN("members[%" PRIu32 "]: actors[%" PRIu32 "] is one already", m, plan->members[m].i);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan->queues[plan->actors[a].queue.i].kind == PLAN_COLLECTIVE && !seen[a])
            return REFUSE_PLAN("actors[%" PRIu32 "]: on a queue for collectives, but a member of none", a);
    memset(seen, 0, plan->spaces_count);
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan->queues[q].kind == PLAN_COLLECTIVE && seen[plan->queues[q].space.i]++)
            return REFUSE_PLAN("queues[%" PRIu32 "].kind: %.60s has a queue for collectives already", q,
                               plan_text(plan, plan->spaces[plan->queues[q].space.i].name));
    return true;
}

/* ---- moves ---- */

static const plan_tensor *operand(const weir_plan *plan, const plan_range *range, uint32_t i)
{
    return &plan->tensors[plan->operands[range->first + i].tensor.i];
}

/* One end of a move, as far as it is known; NULL in *tensor: it is not. */
static bool validate_end(const meeting *at, uint32_t move, bool gives, const plan_tensor **tensor)
{
    const plan_move *of = &at->plan->moves[move];
    uint32_t m = gives ? of->from : of->to, number = gives ? of->give : of->take;
    const char *name = gives ? "give" : "take";
    *tensor = NULL;
    if (m >= count_of(at))
        return REFUSE_PLAN("moves[%" PRIu32 "].%s: %" PRIu32 " of %" PRIu32 " members", move, gives ? "from" : "to", m,
                           count_of(at));
    const plan_kernel *kernel = kernel_of(at, m);
    if (!kernel)
        return true;
    const plan_range *range = gives ? &kernel->in : &kernel->out;
    if (number >= range->count)
        return REFUSE_PLAN("moves[%" PRIu32 "].%s: %" PRIu32 " of %" PRIu32, move, name, number, range->count);
    *tensor = operand(at->plan, range, number);
    return of->bytes == plan_tensor_bytes(*tensor) ||
           REFUSE_PLAN("moves[%" PRIu32 "].bytes: %" PRIu64 ", and not the %" PRIu64 " of its %s", move, of->bytes,
                       plan_tensor_bytes(*tensor), name);
}

/* `marks`: per operand. */
static bool validate_move(const meeting *at, uint32_t move, uint8_t *marks)
{
    const plan_move *of = &at->plan->moves[move];
    const plan_tensor *given, *taken;
    if (!validate_end(at, move, true, &given) || !validate_end(at, move, false, &taken))
        return false;
    if (given && taken && (given->dtype != taken->dtype || !plan_same_part(given, taken)))
        return REFUSE_PLAN("moves[%" PRIu32 "]: what is taken is not what is given", move);
    if (given)
        marks[kernel_of(at, of->from)->in.first + of->give] = 1;
    return !taken || !marks[kernel_of(at, of->to)->out.first + of->take]++ ||
           REFUSE_PLAN("moves[%" PRIu32 "].take: %" PRIu32 " is taken by another move", move, of->take);
}

static bool validate_moved(const meeting *at, const uint8_t *marks)
{
    for (uint32_t m = 0; m < count_of(at); m++) {
        const plan_kernel *kernel = kernel_of(at, m);
        if (!kernel)
            continue;
        const plan_range *ranges[] = {&kernel->in, &kernel->out};
        for (int r = 0; r < 2; r++)
            for (uint32_t o = ranges[r]->first; o < ranges[r]->first + ranges[r]->count; o++)
                if (!marks[o])
                    return REFUSE_COLLECTIVE(at->index, ": operands[%" PRIu32 "] is moved nowhere", o);
    }
    return true;
}

/* Whether the part is the k-th of n of the whole, as that lies in memory. */
static bool is_kth(const plan_tensor *part, const plan_tensor *whole, uint32_t k, uint32_t n)
{
    int64_t items = 1, first = 0;
    uint32_t last = 0;
    bool within = part->rank == whole->rank;
    for (uint32_t d = 0; within && d < part->rank; d++) {
        int64_t from = part->start[d] - whole->start[d];
        within = part->global[d] == whole->global[d] && from >= 0 && part->shape[d] <= whole->shape[d] - from;
        first = first * whole->shape[d] + from; /* less than the items of the whole */
        items *= part->shape[d];
        last = part->shape[d] != whole->shape[d] ? d : last;
    }
    for (uint32_t d = 0; within && d < last; d++)
        within = part->shape[d] == 1;
    uint64_t bytes = plan_tensor_bytes(part), all = plan_tensor_bytes(whole);
    return within && all % n == 0 && all / n == bytes && first == items * (int64_t)k;
}

/* Input i of the member m, and its output i: the sum, or the part of it by its place. */
static bool adds_up(const meeting *at, uint32_t m, const plan_tensor *in, const plan_tensor *out, const plan_tensor *first)
{
    bool alike = in->dtype == first->dtype && plan_same_part(in, first) && out->dtype == in->dtype &&
                 weir_dtype_real((weir_dtype)in->dtype);
    return alike && (at->of->kind == PLAN_ALL_REDUCE ? plan_same_part(in, out) : is_kth(out, in, m, count_of(at)));
}

/* What is added: input i of each, of one type. */
static bool validate_sum(const meeting *at)
{
    const plan_kernel *first = NULL;
    if (at->of->moves.count)
        return REFUSE_COLLECTIVE(at->index, ".moves: nothing is moved where it is added");
    for (uint32_t m = 0; m < count_of(at); m++) {
        const plan_kernel *kernel = kernel_of(at, m);
        if (!kernel)
            continue;
        first = first ? first : kernel;
        if (!kernel->in.count || kernel->in.count != kernel->out.count || kernel->in.count != first->in.count)
            return REFUSE_COLLECTIVE(at->index, ": actors[%" PRIu32 "] has not an output for each input, as many as others",
                                     member(at, m));
        for (uint32_t i = 0; i < kernel->in.count; i++)
            if (!adds_up(at, m, operand(at->plan, &kernel->in, i), operand(at->plan, &kernel->out, i),
                         operand(at->plan, &first->in, i)))
                return REFUSE_COLLECTIVE(at->index, ": what actors[%" PRIu32 "] gives or takes cannot be added",
                                         member(at, m));
    }
    return true;
}

/* Whether all that a member gives goes to all others, and what moves to each is listed in the order of gives. `moves` are
 * its own, by taker; what it keeps for itself is one of them, or not. */
static bool gives_to_all(const plan_move *moves, uint32_t count, uint64_t others)
{
    uint32_t each = 0, next = 0;
    uint64_t takers = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool begins = !i || moves[i].to != moves[i - 1].to;
        bool ends = i + 1 == count || moves[i + 1].to != moves[i].to, own = moves[i].to == moves[i].from;
        if (begins && i && moves[i].to < moves[i - 1].to)
            return false;
        next = begins ? 0 : next;
        if (own)
            continue;
        if (moves[i].give != next++)
            return false;
        takers += ends;
        each = takers == 1 && ends ? next : each;
        if (ends && next != each)
            return false;
    }
    return takers == others;
}

/* In what is called so, moves come by giver, taker and give. An operand that a member keeps for itself does not count. */
plan_collective_kind plan_collective_looks(const weir_plan *plan, uint32_t c)
{
    const plan_range *range = &plan->collectives[c].moves;
    const plan_move *moves = plan->moves + range->first;
    uint64_t others = plan->collectives[c].members.count - 1, givers = 0;
    bool to_all = true;
    for (uint32_t i = 0, end; i < range->count; i = end) {
        bool gives = false;
        for (end = i; end < range->count && moves[end].from == moves[i].from; end++)
            gives |= moves[end].to != moves[end].from;
        to_all &= !gives || (gives_to_all(moves + i, end - i, others) && (!i || moves[i].from > moves[i - 1].from));
        givers += gives;
    }
    if (others == 1 && givers == 1)
        return PLAN_SEND_RECV;
    if (givers == 1 && to_all)
        return PLAN_BROADCAST;
    return to_all && givers == others + 1 ? PLAN_ALL_GATHER : PLAN_ALL_TO_ALL;
}

static bool validate_moves(const meeting *at, uint8_t *marks)
{
    if (plan_adds(at->of))
        return validate_sum(at);
    for (uint32_t i = at->of->moves.first; i < at->of->moves.first + at->of->moves.count; i++)
        if (!validate_move(at, i, marks))
            return false;
    return (at->of->moves.count && at->of->kind == plan_collective_looks(at->plan, at->index)) ||
           REFUSE_COLLECTIVE(at->index, ".kind: its moves are not of that kind");
}

/* ---- groups and turns ---- */

typedef struct place {
    const weir_plan *plan;
    uint32_t collective;
} place;

/* By the devices of their members. */
static int compare_devices(const place *x, const place *y)
{
    const weir_plan *plan = x->plan;
    const plan_range *a = &plan->collectives[x->collective].members, *b = &plan->collectives[y->collective].members;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (uint32_t m = 0; m < a->count; m++) {
        uint32_t one = plan_actor_space(plan, plan->members[a->first + m].i).i;
        uint32_t other = plan_actor_space(plan, plan->members[b->first + m].i).i;
        if (one != other)
            return one < other ? -1 : 1;
    }
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    return compare_devices(a, b);
}

static bool validate_groups(const weir_plan *plan, place *sorted, uint8_t *seen)
{
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        sorted[c] = (place){plan, c};
        seen[c] = 0;
        if (plan->collectives[c].group >= plan->collectives_count)
            return REFUSE_COLLECTIVE(c, ".group: %" PRIu32 " of %" PRIu32, plan->collectives[c].group,
                                     plan->collectives_count);
    }
    qsort(sorted, plan->collectives_count, sizeof *sorted, compare_places);
    for (uint32_t i = 0; i < plan->collectives_count; i++) {
        uint32_t c = sorted[i].collective, group = plan->collectives[c].group;
        bool same = i && !compare_devices(&sorted[i - 1], &sorted[i]);
        if (same ? group != plan->collectives[sorted[i - 1].collective].group : seen[group])
            return REFUSE_COLLECTIVE(c, ".group: %" PRIu32 " is not the number of these devices alone", group);
        seen[group] = 1;
    }
    return true;
}

static bool validate_turns(const weir_plan *plan, uint32_t *left)
{
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        left[c] = plan_member(plan, &plan->collectives[c], 0)->fires;
    for (uint32_t t = 0; t < plan->turns_count; t++) {
        uint32_t c = plan->turns[t].i;
        if (!left[c]--)
            return REFUSE_PLAN("turns[%" PRIu32 "]: collectives[%" PRIu32 "] has more of them than it fires", t, c);
        if (t && plan_program_of(plan, &plan->collectives[c]) <
                     plan_program_of(plan, &plan->collectives[plan->turns[t - 1].i]))
            return REFUSE_PLAN("turns[%" PRIu32 "]: of a program before that of the last one", t);
    }
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        if (left[c])
            return REFUSE_COLLECTIVE(c, ": has %" PRIu32 " turns less than it fires", left[c]);
    return true;
}

size_t validate_collectives_bytes(const weir_plan *plan)
{
    return plan->collectives_count * (sizeof(place) + 1);
}

bool validate_collectives(const weir_plan *plan, void *scratch)
{
    if (!validate_membership(plan, scratch))
        return false;
    memset(scratch, 0, plan->operands_count);
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        const meeting at = {plan, c, &plan->collectives[c]};
        if (count_of(&at) < 2)
            return REFUSE_COLLECTIVE(c, ".members: %" PRIu32 ", and not two or more", count_of(&at));
        for (uint32_t m = 0; m < count_of(&at); m++)
            if (!validate_member(&at, m))
                return false;
        if (!validate_moves(&at, scratch) || (!plan_adds(at.of) && !validate_moved(&at, scratch)))
            return false;
    }
    place *sorted = scratch;
    return validate_groups(plan, sorted, (uint8_t *)(sorted + plan->collectives_count)) && validate_turns(plan, scratch);
}
