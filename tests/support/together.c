/* tests/support/together.c: see the header. There are no tokens: how often each actor has been launched and has run says
 * what is in every register. Firing f of an actor reads slot f / hold of a register, which its producer has made when it
 * fired often enough; and it may write a slot when all readers have fired often enough to be done with what was there. */
#include "tests/support/together.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fifo {
    uint32_t *actors;
    uint32_t head, count;    /* the first that has not run; those that were launched */
    uint32_t room;           /* that may be launched and not have run */
    uint32_t *turns;         /* members, as they come in a step of the program */
    uint32_t turn_count, turn;
};

struct together {
    const weir_plan *plan;
    struct together_order *orders; /* per queue */
    const bool *awaited;     /* per actor: members whose device's queues are told at launch; or NULL */
    bool *stands;            /* per space: one of them is there */
    uint32_t *collective;    /* per actor, PLAN_NONE: it is no member */
    uint32_t *first_port;    /* ports by register: those of r are from here, */
    uint32_t *ports;         /* in this list */
    /* A play. */
    bool any_order;
    uint32_t program;
    uint64_t random;
    uint32_t *launched, *ran, *goal; /* per actor: firings */
    bool *early;             /* what it does is told when it is launched */
    struct fifo *fifos;      /* per queue */
    plan_collective_id *log; /* of collectives that ran */
    uint32_t logged;
};

static void *zeros(size_t count, size_t bytes)
{
    void *made = calloc(count + 1, bytes);
    if (!made)
        abort();
    return made;
}

static uint32_t draw(struct together *t, uint32_t limit)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((t->random >> 33) % limit);
}

/* ---- set up ---- */

static uint32_t member_on(const weir_plan *plan, uint32_t c, uint32_t queue)
{
    const plan_range *members = &plan->collectives[c].members;
    for (uint32_t m = members->first; m < members->first + members->count; m++)
        if (plan->actors[plan->members[m].i].queue.i == queue)
            return plan->members[m].i;
    return PLAN_NONE;
}

static void index_ports(struct together *t)
{
    const weir_plan *plan = t->plan;
    uint32_t next = 0;
    uint32_t *count = zeros(plan->regsts_count, sizeof *count);
    for (uint32_t p = 0; p < plan->ports_count; p++)
        count[plan->ports[p].regst.i]++;
    for (uint32_t r = 0; r <= plan->regsts_count; r++) {
        t->first_port[r] = next;
        next += r < plan->regsts_count ? count[r] : 0;
    }
    memset(count, 0, plan->regsts_count * sizeof *count);
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        uint32_t r = plan->ports[p].regst.i;
        t->ports[t->first_port[r] + count[r]++] = p;
    }
    free(count);
}

struct together *together_new(const weir_plan *plan)
{
    struct together *t = zeros(1, sizeof *t);
    *t = (struct together){.plan = plan,
                           .orders = zeros(plan->queues_count, sizeof *t->orders),
                           .stands = zeros(plan->spaces_count, sizeof(bool)),
                           .collective = zeros(plan->actors_count, sizeof(uint32_t)),
                           .first_port = zeros(plan->regsts_count, sizeof(uint32_t)),
                           .ports = zeros(plan->ports_count, sizeof(uint32_t)),
                           .launched = zeros(plan->actors_count, sizeof(uint32_t)),
                           .ran = zeros(plan->actors_count, sizeof(uint32_t)),
                           .goal = zeros(plan->actors_count, sizeof(uint32_t)),
                           .early = zeros(plan->actors_count, sizeof(bool)),
                           .fifos = zeros(plan->queues_count, sizeof(struct fifo))};
    memset(t->collective, 0xff, plan->actors_count * sizeof(uint32_t));
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t m = 0; m < plan->collectives[c].members.count; m++)
            t->collective[plan->members[plan->collectives[c].members.first + m].i] = c;
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        struct together_order *order = &t->orders[q];
        order->collectives = zeros(plan->turns_count, sizeof(uint32_t));
        for (uint32_t i = 0; i < plan->turns_count; i++)
            if (member_on(plan, plan->turns[i].i, q) != PLAN_NONE)
                order->collectives[order->count++] = plan->turns[i].i;
    }
    index_ports(t);
    return t;
}

static void free_fifos(struct together *t)
{
    for (uint32_t q = 0; q < t->plan->queues_count; q++) {
        free(t->fifos[q].actors);
        free(t->fifos[q].turns);
    }
    memset(t->fifos, 0, t->plan->queues_count * sizeof *t->fifos);
}

void together_free(struct together *t)
{
    for (uint32_t q = 0; q < t->plan->queues_count; q++)
        free(t->orders[q].collectives);
    free_fifos(t);
    void *all[] = {t->orders, t->stands, t->collective, t->first_port, t->ports, t->launched, t->ran, t->goal, t->early, t->fifos, t};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

struct together_order *together_order(struct together *t, uint32_t queue)
{
    return &t->orders[queue];
}

void together_await(struct together *t, const bool *members)
{
    t->awaited = members;
}

/* ---- what an actor may do ---- */

static bool on_accelerator(const struct together *t, uint32_t actor)
{
    const plan_queue *queue = &t->plan->queues[t->plan->actors[actor].queue.i];
    uint32_t kind = t->plan->spaces[queue->space.i].kind;
    return kind == WEIR_FAKE || kind == WEIR_CUDA;
}

static uint32_t space_of(const struct together *t, uint32_t actor)
{
    return t->plan->queues[t->plan->actors[actor].queue.i].space.i;
}

/* Whether an actor on this queue may stand behind an await. */
static bool may_stand(const struct together *t, uint32_t actor)
{
    uint32_t queue = t->plan->actors[actor].queue.i;
    return t->plan->queues[queue].kind != PLAN_COPY_IN || !t->stands[t->plan->queues[queue].space.i];
}

/* Firings of an actor, as far as they are known to one who asks before he runs, or (`launches`) before he is launched. */
static uint32_t known(const struct together *t, uint32_t actor, uint32_t asks, bool launches)
{
    bool early = t->early[actor] && may_stand(t, asks) &&
                 (t->collective[actor] == PLAN_NONE || space_of(t, actor) == space_of(t, asks));
    return launches && early ? t->launched[actor] : t->ran[actor];
}

static bool readers_are_done(const struct together *t, uint32_t regst, uint32_t slot, uint32_t asks, bool launches)
{
    const weir_plan *plan = t->plan;
    for (uint32_t i = t->first_port[regst]; i < t->first_port[regst + 1]; i++) {
        const plan_port *port = &plan->ports[t->ports[i]];
        if (plan_port_counts(plan, port) &&
            known(t, port->actor.i, asks, launches) / port->hold + plan->regsts[regst].slots <= slot)
            return false;
    }
    return true;
}

/* Whether firing f of the actor has what it reads, and room for what it writes. */
static bool may_fire(const struct together *t, uint32_t actor, uint32_t f, bool launches)
{
    const weir_plan *plan = t->plan;
    const plan_actor *of = &plan->actors[actor];
    for (uint32_t p = of->ports.first; p < of->ports.first + of->ports.count; p++) {
        const plan_port *port = &plan->ports[p];
        const plan_regst *regst = &plan->regsts[port->regst.i];
        if (plan_port_counts(plan, port) &&
            regst->initial + known(t, regst->producer.i, actor, launches) / regst->fill <= f / port->hold)
            return false;
    }
    for (uint32_t r = of->regsts.first; r < of->regsts.first + of->regsts.count; r++)
        if (!readers_are_done(t, r, plan->regsts[r].initial + f / plan->regsts[r].fill, actor, launches))
            return false;
    return true;
}

static bool is_its_turn(const struct together *t, uint32_t actor)
{
    const struct fifo *fifo = &t->fifos[t->plan->actors[actor].queue.i];
    return t->any_order || (fifo->turn_count && fifo->turns[fifo->turn] == actor);
}

/* ---- what happens ---- */

static bool launch(struct together *t, uint32_t actor)
{
    struct fifo *fifo = &t->fifos[t->plan->actors[actor].queue.i];
    bool member = t->collective[actor] != PLAN_NONE;
    if (t->launched[actor] == t->goal[actor] || (member && !is_its_turn(t, actor)) ||
        fifo->count - fifo->head >= fifo->room || !may_fire(t, actor, t->launched[actor], on_accelerator(t, actor)))
        return false;
    t->launched[actor]++;
    fifo->actors[fifo->count++] = actor;
    if (member && !t->any_order)
        fifo->turn = (fifo->turn + 1) % fifo->turn_count;
    return true;
}

static uint32_t head(const struct together *t, uint32_t queue)
{
    const struct fifo *fifo = &t->fifos[queue];
    return fifo->head < fifo->count ? fifo->actors[fifo->head] : PLAN_NONE;
}

static bool at_head(const struct together *t, uint32_t actor)
{
    return head(t, t->plan->actors[actor].queue.i) == actor && may_fire(t, actor, t->ran[actor], false);
}

static void over(struct together *t, uint32_t actor)
{
    t->fifos[t->plan->actors[actor].queue.i].head++;
    t->ran[actor]++;
}

static bool run_collective(struct together *t, uint32_t c)
{
    const plan_range *members = &t->plan->collectives[c].members;
    for (uint32_t m = members->first; m < members->first + members->count; m++)
        if (!at_head(t, t->plan->members[m].i))
            return false;
    for (uint32_t m = members->first; m < members->first + members->count; m++)
        over(t, t->plan->members[m].i);
    if (t->log)
        t->log[t->logged++] = (plan_collective_id){c};
    return true;
}

/* Where any order may be launched, it is also run: who is ready meets, whatever lies before it. */
static bool meet_in_any_order(struct together *t, uint32_t c)
{
    const plan_range *members = &t->plan->collectives[c].members;
    for (uint32_t m = members->first; m < members->first + members->count; m++) {
        uint32_t actor = t->plan->members[m].i;
        if (t->ran[actor] == t->goal[actor] || !may_fire(t, actor, t->ran[actor], false))
            return false;
    }
    for (uint32_t m = members->first; m < members->first + members->count; m++) {
        t->launched[t->plan->members[m].i]++;
        t->ran[t->plan->members[m].i]++;
    }
    t->log[t->logged++] = (plan_collective_id){c};
    return true;
}

static bool run_head(struct together *t, uint32_t queue)
{
    uint32_t actor = head(t, queue);
    if (actor == PLAN_NONE || !at_head(t, actor))
        return false;
    if (t->collective[actor] != PLAN_NONE)
        return run_collective(t, t->collective[actor]);
    over(t, actor);
    return true;
}

/* The thing `i` of all that may happen: a launch of an actor, or the run of a queue's head. */
static bool happen(struct together *t, uint32_t i)
{
    uint32_t actors = t->plan->actors_count;
    if (i >= actors)
        return run_head(t, i - actors);
    if (t->any_order && t->collective[i] != PLAN_NONE)
        return meet_in_any_order(t, t->collective[i]);
    return launch(t, i);
}

/* Does one thing that can be done, if there is one. */
static bool happen_any(struct together *t)
{
    uint32_t count = t->plan->actors_count + t->plan->queues_count, first = draw(t, count);
    for (int tries = 0; tries < 8; tries++)
        if (happen(t, draw(t, count)))
            return true;
    for (uint32_t i = 0; i < count; i++)
        if (happen(t, (first + i) % count))
            return true;
    return false;
}

/* ---- plays ---- */

static void begin_queue(struct together *t, uint32_t queue)
{
    const struct together_order *order = &t->orders[queue];
    struct fifo fifo = {.actors = zeros(t->fifos[queue].count, sizeof(uint32_t)),
                        .turns = zeros(order->count, sizeof(uint32_t)),
                        .room = draw(t, 2) ? UINT32_MAX : 2 + draw(t, 6)};
    for (uint32_t i = 0; i < order->count; i++) {
        uint32_t actor = member_on(t->plan, order->collectives[i], queue);
        if (t->plan->actors[actor].program.i == t->program)
            fifo.turns[fifo.turn_count++] = actor;
    }
    t->fifos[queue] = fifo;
}

static void begin(struct together *t, uint32_t program, uint32_t steps)
{
    const weir_plan *plan = t->plan;
    free_fifos(t);
    memset(t->stands, 0, plan->spaces_count * sizeof *t->stands);
    t->program = program;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        bool plays = plan->actors[a].program.i == program;
        t->goal[a] = plays ? steps * plan->actors[a].fires : 0;
        t->launched[a] = t->ran[a] = 0;
        bool awaited = t->collective[a] == PLAN_NONE || (t->awaited && t->awaited[a]);
        t->stands[space_of(t, a)] |= awaited && t->collective[a] != PLAN_NONE;
        t->early[a] = on_accelerator(t, a) && awaited && draw(t, 4);
        t->fifos[plan->actors[a].queue.i].count += t->goal[a];
    }
    for (uint32_t q = 0; q < plan->queues_count; q++)
        begin_queue(t, q);
}

static void say(char why[TOGETHER_TEXT_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(char why[TOGETHER_TEXT_BYTES], const char *format, ...)
{
    va_list args;
    size_t used = strlen(why);
    va_start(args, format);
    vsnprintf(why + used, TOGETHER_TEXT_BYTES - used, format, args);
    va_end(args);
}

/* Whether all actors have ended; else `why` names the heads of queues for collectives, and the first actor that has
 * not. */
static bool all_ended(const struct together *t, char why[TOGETHER_TEXT_BYTES])
{
    const weir_plan *plan = t->plan;
    uint32_t left = PLAN_NONE;
    why[0] = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (left == PLAN_NONE && t->ran[a] < t->goal[a])
            left = a;
    if (left == PLAN_NONE)
        return true;
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan->queues[q].kind == PLAN_COLLECTIVE && head(t, q) != PLAN_NONE)
            say(why, "%s is at collectives[%" PRIu32 "]; ", plan_text(plan, plan->queues[q].name),
                t->collective[head(t, q)]);
    say(why, "actors[%" PRIu32 "] (%s) has run %" PRIu32 " times of %" PRIu32, left,
        plan_text(plan, plan->actors[left].name), t->ran[left], t->goal[left]);
    return false;
}

bool together_play(struct together *t, uint32_t steps, uint64_t seed, char why[TOGETHER_TEXT_BYTES])
{
    t->random = seed;
    for (uint32_t program = 0; program < t->plan->programs_count; program++) {
        begin(t, program, steps);
        while (happen_any(t))
            ;
        if (!all_ended(t, why))
            return false;
    }
    return true;
}

void together_draw_turns(const weir_plan *plan, uint64_t seed, plan_collective_id *turns)
{
    struct together *t = together_new(plan);
    t->any_order = true;
    t->random = seed;
    t->log = turns;
    for (uint32_t program = 0; program < plan->programs_count; program++) {
        begin(t, program, 1);
        while (happen_any(t))
            ;
        for (uint32_t c = 0; c < plan->collectives_count; c++) {
            uint32_t member = plan->members[plan->collectives[c].members.first].i;
            for (uint32_t f = t->ran[member]; f < t->goal[member]; f++)
                turns[t->logged++] = (plan_collective_id){c};
        }
    }
    together_free(t);
}
