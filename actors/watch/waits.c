/* actors/watch/waits.c: see the header.
 *
 * Entries go into flags by port and by register, which can be set any number of times: so what other ranks send needs
 * no order and no bound but the plan's. Everything that points somewhere is worked out when the text is made, in a few
 * passes over the plan; each actor is walked over once, however many chains lead through it.
 */
#include "actors/watch/waits.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/text.h"
#include "graph/plan/spread.h"

#define NS_PER_S 1e9
#define LINKS_HEAD 8  /* of a longer chain so many are told from its beginning, */
#define LINKS_TAIL 16 /* and so many from its end */
#define ENDS_MAX 8    /* ends of other chains that are told */
#define ABSENT_MAX 8  /* members of a collective that have not come */

enum link_kind {
    LINK_END,   /* it waits for no actor */
    LINK_INPUT, /* it has nothing to read at `regst`; `next` is the producer */
    LINK_ROOM,  /* `regst` is full; `next` is a reader that has not let go of a slot */
    LINK_TURN,  /* its worker is inside a kernel of `next`, or `next` comes before it on its queue */
    LINK_MEMBER /* it stands in a collective to which `next` has not come */
};

struct waits_actor {
    bool told;   /* somebody said that it waits or fires; then in `step` */
    bool fires;
    bool first;    /* it is the oldest under way on its queue */
    bool turn;     /* it waits for its turn */
    int64_t step;
    int64_t passed; /* firings; of members of collectives */
    /* made for the text */
    enum link_kind kind;
    uint32_t regst, next;
    uint32_t depth;   /* links to its end; while it is being walked over DEPTH_WALKED */
    uint32_t end;     /* PLAN_NONE: not known yet */
    uint32_t ends;    /* chains that end here */
};
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

static uint32_t queue_rank(const weir_plan *plan, uint32_t queue)
{
    return plan->spaces[plan->queues[queue].space.i].rank;
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
        if (queue_rank(plan, q) == rank)
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

/* What is told of members of collectives alone. True: the actor waits. */
static bool put_member(struct waits *waits, struct wait_entry entry)
{
    struct waits_actor *actor = &waits->actors[entry.actor];
    if (waits->meets[entry.actor] == PLAN_NONE)
        return false;
    if (entry.regst == WAITS_TURN)
        return actor->turn = true;
    if (entry.regst == WAITS_HEAD)
        waits->head[waits->plan->actors[entry.actor].queue.i] = entry.actor;
    else
        actor->passed = entry.step;
    return false;
}

static void put_one(struct waits *waits, uint32_t rank, struct wait_entry entry)
{
    const weir_plan *plan = waits->plan;
    if (entry.actor >= plan->actors_count || plan_rank_of(plan, entry.actor) != rank)
        return;
    struct waits_actor *actor = &waits->actors[entry.actor];
    if (entry.regst == WAITS_FIRES)
        actor->fires = true;
    else if (entry.regst == WAITS_FIRST)
        actor->first = true;
    else if (entry.regst >= WAITS_PASSED && !put_member(waits, entry))
        return;
    else if (entry.regst >= WAITS_PASSED)
        ;
    else if (entry.regst >= plan->regsts_count || plan->regsts[entry.regst].producer.i == PLAN_NONE)
        return;
    else if (plan->regsts[entry.regst].producer.i == entry.actor)
        waits->full[entry.regst] = true;
    else if (!put_empty(waits, entry.actor, entry.regst))
        return;
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

static bool is_outside(const struct waits *waits, uint32_t actor)
{
    return waits->plan->queues[waits->plan->actors[actor].queue.i].kind == PLAN_OUTSIDE;
}

/* An accelerator's kernels keep no worker busy. */
static bool runs_by_itself(const weir_plan *plan, uint32_t queue)
{
    return device_is_accelerator((weir_device_kind)plan->spaces[plan->queues[queue].space.i].kind);
}

/* Whether one worker runs both queues. Of another rank that is not known; then it may be so when they are of a kind. */
static bool queues_share(const struct waits *waits, uint32_t a, uint32_t b)
{
    const plan_queue *queues = waits->plan->queues;
    if (queues[a].kind != queues[b].kind || queues[a].kind == PLAN_OUTSIDE || runs_by_itself(waits->plan, a) ||
        runs_by_itself(waits->plan, b))
        return false;
    uint32_t rank = queue_rank(waits->plan, a);
    if (rank != queue_rank(waits->plan, b))
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
    if (is_outside(waits, actor))
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

/* The first member of a collective, from the m-th on, that has not come to the meeting in which `a` stands; PLAN_NONE:
 * all have. *m is its place. */
static uint32_t find_absent(const struct waits *waits, uint32_t a, uint32_t *m)
{
    const plan_range *members = &waits->plan->collectives[waits->meets[a]].members;
    for (; *m < members->count; ++*m)
        if (!has_come(waits, waits->plan->members[members->first + *m].i, a))
            return waits->plan->members[members->first + *m].i;
    return PLAN_NONE;
}

static void link_member(const struct waits *waits, uint32_t a, struct waits_actor *actor)
{
    uint32_t first = 0, absent = find_absent(waits, a, &first);
    if (absent == PLAN_NONE)
        return;
    actor->kind = LINK_MEMBER;
    actor->next = absent;
}

/* Who comes before it on its queue: whose turn it is, or what was launched there and stands. */
static uint32_t find_before(const struct waits *waits, uint32_t a)
{
    const struct waits_actor *actor = &waits->actors[a];
    uint32_t queue = waits->plan->actors[a].queue.i;
    if (actor->turn && waits->head[queue] != PLAN_NONE && waits->head[queue] != a)
        return waits->head[queue];
    bool behind = waits->busy[queue] != a && (!actor->told || waits->meets[a] != PLAN_NONE);
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

/* The actor whose chain is longest; PLAN_NONE when nobody waits. */
static uint32_t find_chain(struct waits *waits)
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

/* ---- as text ---- */

static void add_actor(struct text *to, const weir_plan *plan, uint32_t a)
{
    const plan_actor *actor = &plan->actors[a];
    const plan_space *space = &plan->spaces[plan->queues[actor->queue.i].space.i];
    text_add(to, "%s (%s", plan_text(plan, actor->name), plan_text(plan, space->name));
    if (plan->ranks > 1)
        text_add(to, ", rank %u", space->rank);
    text_add(to, ")");
}

/* All that have not come, as far as is known here. */
static void add_meeting(struct text *to, const struct waits *waits, uint32_t a)
{
    uint32_t absent, told = 0;
    text_add(to, " has come to its collective, and waits for ");
    for (uint32_t m = 0; (absent = find_absent(waits, a, &m)) != PLAN_NONE; m++, told++) {
        if (told < ABSENT_MAX) {
            text_add(to, "%s", told ? ", " : "");
            add_actor(to, waits->plan, absent);
        }
    }
    if (told > ABSENT_MAX)
        text_add(to, " and %u more", told - ABSENT_MAX);
    text_add(to, ", which %s not come\n", told > 1 ? "have" : "has");
}

static void add_link(struct text *to, const struct waits *waits, uint32_t a)
{
    const struct waits_actor *actor = &waits->actors[a];
    text_add(to, "  ");
    add_actor(to, waits->plan, a);
    if (actor->kind == LINK_MEMBER) {
        add_meeting(to, waits, a);
        return;
    }
    text_add(to, "%s", actor->kind == LINK_TURN ? " waits for its turn, behind " : " waits for ");
    add_actor(to, waits->plan, actor->next);
    if (actor->kind == LINK_INPUT)
        text_add(to, ", which has not written its input for step %lld", (long long)actor->step);
    if (actor->kind == LINK_ROOM)
        text_add(to, ", which has not read what it wrote before");
    text_add(to, "\n");
}

/* The push or pull that the actor is; NULL when its host is not in this part of the plan. */
static const plan_host *find_host(const weir_plan *plan, uint32_t actor)
{
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (plan->hosts[h].actor.i == actor)
            return &plan->hosts[h];
    return NULL;
}

/* `from` is the actor that waits for it, for PLAN_NONE nobody. */
static void add_outside(struct text *to, const struct waits *waits, uint32_t a, uint32_t from)
{
    const weir_plan *plan = waits->plan;
    const plan_host *host = find_host(plan, a);
    bool pushes = plan->actors[a].ports.count == 0;
    text_add(to, "%s \"%s\"", pushes ? "input" : "fetch", plan_text(plan, plan->actors[a].name));
    if (host)
        text_add(to, " (%s:%u)", plan_text(plan, host->file), host->line);
    if (plan->ranks > 1)
        text_add(to, " of rank %u", plan_rank_of(plan, a));
    if (!pushes) {
        uint32_t slots = plan->regsts[plan->ports[plan->actors[a].ports.first].regst.i].slots;
        text_add(to, " is full: nobody has pulled its %u value%s", slots, slots == 1 ? "" : "s");
        return;
    }
    text_add(to, " is empty: nothing has been pushed");
    if (from != PLAN_NONE)
        text_add(to, " for step %lld", (long long)waits->actors[from].step);
}

/* Firings in a row that an actor's slots allow when nobody else fires. */
static uint64_t row_max(const weir_plan *plan, uint32_t a)
{
    const plan_actor *actor = &plan->actors[a];
    uint64_t most = UINT64_MAX;
    for (uint32_t p = actor->ports.first; p < actor->ports.first + actor->ports.count; p++) {
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        uint64_t firings = (uint64_t)regst->slots * plan->ports[p].hold;
        if (regst->producer.i != PLAN_NONE && firings < most)
            most = firings;
    }
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++) {
        uint64_t firings = (uint64_t)plan->regsts[r].slots * plan->regsts[r].fill;
        most = firings < most ? firings : most;
    }
    return most;
}

static void add_kernels(struct text *to, const weir_plan *plan, uint32_t a)
{
    const plan_actor *actor = &plan->actors[a];
    if (!actor->kernels.count) { /* not in this part of the plan */
        text_add(to, "a kernel of %s", plan_text(plan, actor->name));
        return;
    }
    const plan_kernel *first = &plan->kernels[actor->kernels.first], *last = first + actor->kernels.count - 1;
    text_add(to, "%s %s (%s, %s:%u", first == last ? "kernel of" : "one of the kernels from",
             plan_text(plan, first->name), plan_text(plan, first->op), plan_text(plan, first->file), first->line);
    if (first != last)
        text_add(to, ") to %s (%s, %s:%u", plan_text(plan, last->name), plan_text(plan, last->op),
                 plan_text(plan, last->file), last->line);
    text_add(to, ")");
}

static void add_firing(struct text *to, const struct waits *waits, const struct waits_about *about, uint32_t a)
{
    const weir_plan *plan = waits->plan;
    uint32_t queue = plan->actors[a].queue.i;
    bool own = queue_rank(plan, queue) == waits->rank;
    int64_t ns = own && about->running_ns ? about->running_ns[waits->worker_of[queue]] : about->stalled_ns;
    add_kernels(to, plan, a);
    text_add(to, " on %s", plan_text(plan, plan->spaces[plan->queues[queue].space.i].name));
    if (plan->ranks > 1)
        text_add(to, " of rank %u", queue_rank(plan, queue));
    text_add(to, " has been running for %.1f s, %s step %lld", (double)ns / NS_PER_S,
             row_max(plan, a) > 1 ? "in or soon after" : "in", (long long)waits->actors[a].step);
    if (waits->meets[a] != PLAN_NONE)
        text_add(to, "; all that take part have come");
}

static void add_silent(struct text *to, const struct waits_about *about, uint32_t rank)
{
    if (rank == about->silent_rank)
        text_add(to, "rank %u has been silent for %.1f s", rank, (double)about->silent_ns / NS_PER_S);
    else
        text_add(to, "rank %u did not answer", rank);
}

/* It has been asked and lacks nothing, so it has no firings left. */
static void add_idle(struct text *to, const weir_plan *plan, uint32_t a, bool elsewhere)
{
    add_actor(to, plan, a);
    text_add(to, " has no firings left");
    if (elsewhere)
        text_add(to, ": rank %u has not started a run that goes so far", plan_rank_of(plan, a));
}

/* What does not wait for an actor. */
static void add_end(struct text *to, const struct waits *waits, const struct waits_about *about, uint32_t a,
                    uint32_t from)
{
    uint32_t rank = plan_rank_of(waits->plan, a);
    if (!waits->answered[rank])
        add_silent(to, about, rank);
    else if (waits->actors[a].fires)
        add_firing(to, waits, about, a);
    else if (is_outside(waits, a))
        add_outside(to, waits, a, from);
    else
        add_idle(to, waits->plan, a, rank != waits->rank);
}

static void add_circle(struct text *to, const struct waits *waits, uint32_t a)
{
    uint32_t at = a;
    do {
        add_link(to, waits, at);
        at = waits->actors[at].next;
    } while (at != a);
    text_add(to, "  which is a circle: none of them can go on");
}

static void add_chain(struct text *to, const struct waits *waits, const struct waits_about *about, uint32_t start)
{
    const struct waits_actor *actors = waits->actors;
    uint32_t end = actors[start].end, from = PLAN_NONE, links = actors[start].depth;
    for (uint32_t at = start, i = 0; at != end; from = at, at = actors[at].next, i++) {
        if (links <= LINKS_HEAD + LINKS_TAIL || i < LINKS_HEAD || i + LINKS_TAIL >= links)
            add_link(to, waits, at);
        else if (i == LINKS_HEAD)
            text_add(to, "  ... and so on for %u more ...\n", links - LINKS_HEAD - LINKS_TAIL);
    }
    if (actors[end].kind != LINK_END) {
        add_circle(to, waits, end);
        return;
    }
    text_add(to, "  ");
    add_end(to, waits, about, end, from);
}

/* An actor that waits for it; PLAN_NONE: none does. */
static uint32_t find_from(const struct waits *waits, uint32_t end)
{
    for (uint32_t a = 0; a < waits->plan->actors_count; a++)
        if (waits->actors[a].told && waits->actors[a].kind != LINK_END && waits->actors[a].next == end)
            return a;
    return PLAN_NONE;
}

/* Where chains end that do not end where the one that was told does. */
static void add_other_ends(struct text *to, const struct waits *waits, const struct waits_about *about, uint32_t told)
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < waits->plan->actors_count && count < ENDS_MAX; a++) {
        if (!waits->actors[a].ends || a == told || waits->actors[a].kind != LINK_END)
            continue;
        text_add(to, "\n  and ");
        add_end(to, waits, about, a, find_from(waits, a));
        count++;
    }
}

/* Nobody told that it waits. */
static void add_nobody(struct text *to, const struct waits *waits, const struct waits_about *about)
{
    text_add(to, "  no actor lacks anything");
    for (uint32_t r = 0; r < waits->plan->ranks; r++) {
        if (waits->answered[r])
            continue;
        text_add(to, "; ");
        add_silent(to, about, r);
    }
}

static int64_t first_step(const struct waits *waits, int64_t otherwise)
{
    int64_t step = INT64_MAX;
    for (uint32_t a = 0; a < waits->plan->actors_count; a++)
        if (waits->actors[a].told && waits->actors[a].step < step)
            step = waits->actors[a].step;
    return step == INT64_MAX ? otherwise : step;
}

size_t waits_text(struct waits *waits, const struct waits_about *about, char *bytes, size_t room)
{
    struct text text = {bytes, room, 0, false};
    uint32_t start = find_chain(waits);
    text_add(&text, "nothing has fired for %.1f s in step %lld of a run that ends after step %lld:\n",
             (double)about->stalled_ns / NS_PER_S, (long long)first_step(waits, about->steps_end - 1),
             (long long)about->steps_end - 1);
    if (start == PLAN_NONE) {
        add_nobody(&text, waits, about);
    } else {
        add_chain(&text, waits, about, start);
        add_other_ends(&text, waits, about, waits->actors[start].end);
    }
    text_add(&text, "\n");
    return text.used;
}
