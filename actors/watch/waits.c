/* actors/watch/waits.c: see the header.
 *
 * Entries go into flags by port and by register, which can be set any number of times: so what other ranks send needs
 * no order and no bound but the plan's. Everything that points somewhere is worked out when the text is made, in a few
 * passes over the plan; each actor is walked over once, however many chains lead through it.
 */
#include "actors/watch/waits_inside.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"

#define DEPTH_WALKED UINT32_MAX

/* ---- what is known ---- */

static void find_members(struct waits *waits)
{
    const weir_plan *plan = waits->plan;
    memset(waits->meets, 0xff, plan->actors_count * sizeof(*waits->meets));
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        plan_range members = plan->collectives[c].members;
        for (uint32_t m = members.first; m < members.first + members.count; m++)
            waits->meets[plan->members[m].i] = c;
    }
}

weir_status waits_open(struct waits *waits, const weir_plan *plan, const uint32_t *worker_of, uint32_t rank)
{
    *waits = (struct waits){
        .plan = plan,
        .worker_of = worker_of,
        .rank = rank,
        .empty = calloc(plan->ports_count + 1, sizeof(*waits->empty)),
        .full = calloc(plan->regsts_count + 1, sizeof(*waits->full)),
        .answered = calloc(plan->ranks + 1, sizeof(*waits->answered)),
        .actors = calloc(plan->actors_count + 1, sizeof(*waits->actors)),
        .meets = malloc((plan->actors_count + (size_t)1) * sizeof(*waits->meets)),
        .head = malloc((plan->queues_count + (size_t)1) * sizeof(*waits->head)),
        .blocker = calloc(plan->regsts_count + 1, sizeof(*waits->blocker)),
        .busy = calloc(plan->queues_count + 1, sizeof(*waits->busy)),
        .path = calloc(plan->actors_count + 1, sizeof(*waits->path)),
    };
    if (!waits->empty || !waits->full || !waits->answered || !waits->actors || !waits->meets || !waits->head ||
        !waits->blocker || !waits->busy || !waits->path) {
        waits_close(waits);
        return error_set(WEIR_E_MEMORY, "no memory to watch %u actors", plan->actors_count);
    }
    find_members(waits);
    waits_clear(waits);
    return WEIR_OK;
}

void waits_close(struct waits *waits)
{
    free(waits->empty);
    free(waits->full);
    free(waits->answered);
    free(waits->actors);
    free(waits->meets);
    free(waits->head);
    free(waits->blocker);
    free(waits->busy);
    free(waits->path);
    *waits = (struct waits){0};
}

void waits_clear(struct waits *waits)
{
    memset(waits->empty, 0, waits->plan->ports_count * sizeof(*waits->empty));
    memset(waits->full, 0, waits->plan->regsts_count * sizeof(*waits->full));
    memset(waits->answered, 0, waits->plan->ranks * sizeof(*waits->answered));
    memset(waits->actors, 0, waits->plan->actors_count * sizeof(*waits->actors));
    memset(waits->head, 0xff, waits->plan->queues_count * sizeof(*waits->head));
}

static void forget(struct waits *waits, uint32_t rank)
{
    const weir_plan *plan = waits->plan;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan_rank_of(plan, plan->ports[p].actor.i) == rank)
            waits->empty[p] = false;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].producer.i != PLAN_NONE && plan_rank_of(plan, plan->regsts[r].producer.i) == rank)
            waits->full[r] = false;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan_rank_of(plan, a) == rank)
            waits->actors[a] = (struct waits_actor){0};
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (waits_queue_rank(plan, q) == rank)
            waits->head[q] = PLAN_NONE;
}

/* Marks every port of the actor that reads the register; false: it has none. */
static bool put_empty(struct waits *waits, uint32_t actor, uint32_t regst)
{
    plan_range ports = waits->plan->actors[actor].ports;
    bool found = false;
    for (uint32_t p = ports.first; p < ports.first + ports.count; p++)
        if (waits->plan->ports[p].regst.i == regst)
            waits->empty[p] = found = true;
    return found;
}

/* Enters a wait that names no register; of some of it members of collectives alone are believed. True: the actor waits. */
static bool put_state(struct waits *waits, struct wait_entry entry)
{
    struct waits_actor *actor = &waits->actors[entry.actor];
    bool member = waits->meets[entry.actor] != PLAN_NONE;
    switch (entry.regst) {
    case WAITS_FIRES:
        return actor->fires = true;
    case WAITS_FIRST:
        return actor->first = true;
    case WAITS_TURN:
        return actor->turn = member;
    case WAITS_HEAD:
        if (member)
            waits->head[waits->plan->actors[entry.actor].queue.i] = entry.actor;
        return false;
    default:
        if (member)
            actor->passed = entry.step;
        return false;
    }
}

static void put_one(struct waits *waits, uint32_t rank, struct wait_entry entry)
{
    const weir_plan *plan = waits->plan;
    if (entry.actor >= plan->actors_count || plan_rank_of(plan, entry.actor) != rank)
        return;
    struct waits_actor *actor = &waits->actors[entry.actor];
    if (entry.regst >= WAITS_FIRST) {
        if (!put_state(waits, entry))
            return;
    } else if (entry.regst >= plan->regsts_count || plan->regsts[entry.regst].producer.i == PLAN_NONE) {
        return;
    } else if (plan->regsts[entry.regst].producer.i == entry.actor) {
        waits->full[entry.regst] = true;
    } else if (!put_empty(waits, entry.actor, entry.regst)) {
        return;
    }
    actor->told = true;
    actor->step = entry.step;
}

void waits_put(struct waits *waits, uint32_t rank, const void *entries, uint32_t count)
{
    const char *at = entries;
    struct wait_entry entry;
    if (rank >= waits->plan->ranks)
        return;
    forget(waits, rank);
    for (uint32_t i = 0; i < count; i++, at += sizeof(entry)) {
        memcpy(&entry, at, sizeof(entry)); /* it may come from a frame, and lie anywhere */
        put_one(waits, rank, entry);
    }
    waits->answered[rank] = true;
}

bool waits_complete(const struct waits *waits)
{
    for (uint32_t r = 0; r < waits->plan->ranks; r++)
        if (!waits->answered[r])
            return false;
    return true;
}

/* ---- who waits for whom ---- */

/* An accelerator's kernels keep no worker busy. */
static bool runs_by_itself(const weir_plan *plan, uint32_t queue)
{
    return device_is_accelerator((weir_device_kind)plan->spaces[plan->queues[queue].space.i].kind);
}

/* Whether one worker runs both queues. For another rank that is not known; then it may be so when they are of a kind. */
static bool queues_share(const struct waits *waits, uint32_t a, uint32_t b)
{
    const plan_queue *queues = waits->plan->queues;
    if (queues[a].kind != queues[b].kind || queues[a].kind == PLAN_OUTSIDE || runs_by_itself(waits->plan, a) ||
        runs_by_itself(waits->plan, b))
        return false;
    uint32_t rank = waits_queue_rank(waits->plan, a);
    if (rank != waits_queue_rank(waits->plan, b))
        return false;
    return rank != waits->rank || waits->worker_of[a] == waits->worker_of[b];
}

static void find_busy(struct waits *waits)
{
    const weir_plan *plan = waits->plan;
    memset(waits->busy, 0xff, plan->queues_count * sizeof(*waits->busy));
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        uint32_t queue = plan->actors[a].queue.i;
        bool busy = waits->actors[a].fires || waits->actors[a].first;
        for (uint32_t q = 0; busy && q < plan->queues_count; q++)
            if (q == queue || (waits->busy[q] == PLAN_NONE && queues_share(waits, q, queue)))
                waits->busy[q] = a;
    }
}

/* How sure it is that the reader at this port keeps a slot, when somebody does. 0: it does not. */
static int port_blocks(const struct waits *waits, uint32_t port)
{
    uint32_t actor = waits->plan->ports[port].actor.i, rank = plan_rank_of(waits->plan, actor);
    if (waits->empty[port])
        return 0;
    if (waits->actors[actor].told)
        return 4; /* and not that it lacks something here */
    if (waits_outside(waits, actor))
        return 2; /* it is not asked */
    if (!waits->answered[rank] || waits->busy[waits->plan->actors[actor].queue.i] != PLAN_NONE)
        return 3;
    return rank != waits->rank ? 1 : 0; /* its rank may not have started; here, it has done all that the run asks */
}

static void find_blockers(struct waits *waits)
{
    const weir_plan *plan = waits->plan;
    memset(waits->blocker, 0xff, plan->regsts_count * sizeof(*waits->blocker));
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        uint32_t *best = &waits->blocker[plan->ports[p].regst.i];
        if (port_blocks(waits, p) > (*best == PLAN_NONE ? 0 : port_blocks(waits, *best)))
            *best = p;
    }
}

static bool link_input(const struct waits *waits, uint32_t a, struct waits_actor *actor)
{
    plan_range ports = waits->plan->actors[a].ports;
    for (uint32_t p = ports.first; p < ports.first + ports.count; p++) {
        if (!waits->empty[p])
            continue;
        actor->kind = LINK_INPUT;
        actor->regst = waits->plan->ports[p].regst.i;
        actor->next = waits->plan->regsts[actor->regst].producer.i;
        return true;
    }
    return false;
}

static bool link_room(const struct waits *waits, uint32_t a, struct waits_actor *actor)
{
    plan_range regsts = waits->plan->actors[a].regsts;
    for (uint32_t r = regsts.first; r < regsts.first + regsts.count; r++) {
        if (!waits->full[r] || waits->blocker[r] == PLAN_NONE)
            continue;
        actor->kind = LINK_ROOM;
        actor->regst = r;
        actor->next = waits->plan->ports[waits->blocker[r]].actor.i;
        return true;
    }
    return false;
}

/* Whether the member has come to the meeting in which `other` stands. */
static bool has_come(const struct waits *waits, uint32_t member, uint32_t other)
{
    return member == other || waits->actors[member].fires || waits->actors[member].passed > waits->actors[other].passed;
}

uint32_t waits_absent(const struct waits *waits, uint32_t a, uint32_t *m)
{
    const plan_range *members = &waits->plan->collectives[waits->meets[a]].members;
    for (; *m < members->count; ++*m)
        if (!has_come(waits, waits->plan->members[members->first + *m].i, a))
            return waits->plan->members[members->first + *m].i;
    return PLAN_NONE;
}

static void link_member(const struct waits *waits, uint32_t a, struct waits_actor *actor)
{
    uint32_t first = 0, absent = waits_absent(waits, a, &first);
    if (absent == PLAN_NONE)
        return;
    actor->kind = LINK_MEMBER;
    actor->next = absent;
}

/* The actor before it on its queue: the one whose turn it is, or one that was launched there and stands. An actor of an
 * accelerator may lack something for its next firing, while its last one stands there, too. */
static uint32_t find_before(const struct waits *waits, uint32_t a)
{
    const struct waits_actor *actor = &waits->actors[a];
    uint32_t queue = waits->plan->actors[a].queue.i;
    if (actor->turn && waits->head[queue] != PLAN_NONE && waits->head[queue] != a)
        return waits->head[queue];
    bool behind = waits->busy[queue] != a && (!actor->told || runs_by_itself(waits->plan, queue));
    return behind ? waits->busy[queue] : PLAN_NONE;
}

static void link_actor(struct waits *waits, uint32_t a)
{
    struct waits_actor *actor = &waits->actors[a];
    actor->kind = LINK_END;
    actor->end = PLAN_NONE;
    actor->depth = actor->ends = 0;
    if (actor->fires && waits->meets[a] != PLAN_NONE)
        link_member(waits, a, actor);
    if (actor->fires || link_input(waits, a, actor) || link_room(waits, a, actor))
        return;
    uint32_t before = find_before(waits, a);
    if (before != PLAN_NONE) {
        actor->kind = LINK_TURN;
        actor->next = before;
    }
}

/* From `start` to the end of its chain; what lies between gets its end and its distance from it. */
static void walk(struct waits *waits, uint32_t start)
{
    struct waits_actor *actors = waits->actors;
    uint32_t count = 0, at = start;
    while (actors[at].end == PLAN_NONE && actors[at].depth != DEPTH_WALKED) {
        waits->path[count++] = at;
        actors[at].depth = DEPTH_WALKED;
        if (actors[at].kind == LINK_END)
            break;
        at = actors[at].next;
    }
    bool known = actors[at].end != PLAN_NONE; /* else `at` is an end, or where a circle closes */
    uint32_t end = known ? actors[at].end : at, depth = known ? actors[at].depth + 1 : 0;
    while (count--) {
        actors[waits->path[count]].depth = depth++;
        actors[waits->path[count]].end = end;
    }
    actors[end].ends++;
}

uint32_t waits_chain(struct waits *waits)
{
    uint32_t best = PLAN_NONE, count = waits->plan->actors_count;
    find_busy(waits);
    find_blockers(waits);
    for (uint32_t a = 0; a < count; a++)
        link_actor(waits, a);
    for (uint32_t a = 0; a < count; a++)
        if (waits->actors[a].told)
            walk(waits, a);
    for (uint32_t a = 0; a < count; a++)
        if (waits->actors[a].told && (best == PLAN_NONE || waits->actors[a].depth > waits->actors[best].depth))
            best = a;
    return best;
}
