/* actors/watch/waits_text.c: the report that waits.h promises, from the links that waits.c has found. */
#include "actors/watch/waits_inside.h"

#include "graph/base/text.h"
#include "graph/plan/spread/spread.h"

#define NS_PER_S 1e9
#define LINKS_HEAD 8  /* of a longer chain so many are told from its beginning, */
#define LINKS_TAIL 16 /* and so many from its end */
#define ENDS_MAX 8    /* ends of other chains that are told */
#define ABSENT_MAX 8  /* members of a collective that have not come */

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
    for (uint32_t m = 0; (absent = waits_absent(waits, a, &m)) != PLAN_NONE; m++, told++) {
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

static void add_firing(struct text *to, const struct waits *waits, const struct waits_facts *facts, uint32_t a)
{
    const weir_plan *plan = waits->plan;
    uint32_t queue = plan->actors[a].queue.i;
    bool own = waits_queue_rank(plan, queue) == waits->rank;
    int64_t ns = own && facts->running_ns ? facts->running_ns[waits->worker_of[queue]] : facts->stalled_ns;
    add_kernels(to, plan, a);
    text_add(to, " on %s", plan_text(plan, plan->spaces[plan->queues[queue].space.i].name));
    if (plan->ranks > 1)
        text_add(to, " of rank %u", waits_queue_rank(plan, queue));
    text_add(to, " has been running for %.1f s, %s step %lld", (double)ns / NS_PER_S,
             row_max(plan, a) > 1 ? "in or soon after" : "in", (long long)waits->actors[a].step);
    if (waits->meets[a] != PLAN_NONE)
        text_add(to, "; all that take part have come");
}

static void add_silent(struct text *to, const struct waits_facts *facts, uint32_t rank)
{
    if (rank == facts->silent_rank)
        text_add(to, "rank %u has been silent for %.1f s", rank, (double)facts->silent_ns / NS_PER_S);
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

/* Waits that are not for an actor. */
static void add_end(struct text *to, const struct waits *waits, const struct waits_facts *facts, uint32_t a,
                    uint32_t from)
{
    uint32_t rank = plan_rank_of(waits->plan, a);
    if (!waits->answered[rank])
        add_silent(to, facts, rank);
    else if (waits->actors[a].fires)
        add_firing(to, waits, facts, a);
    else if (waits_outside(waits, a))
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

static void add_chain(struct text *to, const struct waits *waits, const struct waits_facts *facts, uint32_t start)
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
    add_end(to, waits, facts, end, from);
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
static void add_other_ends(struct text *to, const struct waits *waits, const struct waits_facts *facts, uint32_t told)
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < waits->plan->actors_count && count < ENDS_MAX; a++) {
        if (!waits->actors[a].ends || a == told || waits->actors[a].kind != LINK_END)
            continue;
        text_add(to, "\n  and ");
        add_end(to, waits, facts, a, find_from(waits, a));
        count++;
    }
}

static void add_nobody(struct text *to, const struct waits *waits, const struct waits_facts *facts)
{
    text_add(to, "  no actor lacks anything");
    for (uint32_t r = 0; r < waits->plan->ranks; r++) {
        if (waits->answered[r])
            continue;
        text_add(to, "; ");
        add_silent(to, facts, r);
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

size_t waits_text(struct waits *waits, const struct waits_facts *facts, char *bytes, size_t room)
{
    struct text text = {bytes, room, 0, false};
    uint32_t start = waits_chain(waits);
    text_add(&text, "nothing has fired for %.1f s in step %lld of a run that ends after step %lld:\n",
             (double)facts->stalled_ns / NS_PER_S, (long long)first_step(waits, facts->steps_end - 1),
             (long long)facts->steps_end - 1);
    if (start == PLAN_NONE) {
        add_nobody(&text, waits, facts);
    } else {
        add_chain(&text, waits, facts, start);
        add_other_ends(&text, waits, facts, waits->actors[start].end);
    }
    text_add(&text, "\n");
    return text.used;
}
