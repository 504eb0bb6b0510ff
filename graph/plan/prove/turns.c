/* graph/plan/prove/turns.c: see the header.
 *
 * A firing that has begun ends at its tick; then its queue takes the next of those that wait for it, which are kept by
 * priority. Actors outside and collectives wait for no queue: the former are fired by the program, and the latter are over as
 * soon as they are ready, since what they would wait for there is what is being found out.
 */
#include "graph/plan/prove/turns.h"

#include "graph/base/error.h"
#include "graph/plan/prove/game.h"
#include "graph/plan/prove/heap.h"

#include <stdlib.h>

typedef struct clocked {
    game game;             /* first: what the game hands out is this */
    heap heap;             /* owned, all below too: firings under way */
    bool failed;           /* no memory */
    uint64_t now;
    uint32_t *waiting;     /* per queue: the first actor that waits for it, or PLAN_NONE */
    uint32_t *after;       /* per actor: the next one there */
    bool *busy;            /* per queue */
    uint32_t *stirred;     /* queues with something new: it has become idle, or somebody waits */
    uint32_t stirred_count;
    bool *is_stirred;      /* per queue */
    uint32_t *turns;       /* collectives, as they fired */
    uint32_t turn_count;
} clocked;

/* ---- queues ---- */

/* Whether the actor needs its queue for a while. */
static bool takes_time(const game *g, uint32_t actor)
{
    return g->actors[actor].member_of == PLAN_NONE && g->plan->queues[g->plan->actors[actor].queue.i].kind != PLAN_OUTSIDE;
}

static void begin(clocked *x, uint32_t actor)
{
    const plan_actor *of = &x->game.plan->actors[actor];
    bool long_one = takes_time(&x->game, actor);
    if (long_one)
        x->busy[of->queue.i] = true;
    const uint64_t tick = x->now + (long_one ? 1 + (uint64_t)of->kernels.count : 0);
    x->failed |= !heap_push(&x->heap, (heap_event){.time = tick, .tie = (uint64_t)of->priority << 32 | actor, .id = actor});
}

static void stir(clocked *x, uint32_t queue)
{
    if (!x->is_stirred[queue])
        x->stirred[x->stirred_count++] = queue;
    x->is_stirred[queue] = true;
}

/* Among those that wait for its queue, by priority. */
static void wait_for_queue(clocked *x, uint32_t actor)
{
    const plan_actor *actors = x->game.plan->actors;
    uint32_t *at = &x->waiting[actors[actor].queue.i];
    while (*at != PLAN_NONE && actors[*at].priority < actors[actor].priority)
        at = &x->after[*at];
    x->after[actor] = *at;
    *at = actor;
    stir(x, actors[actor].queue.i);
}

static void ready(game *g, uint32_t actor)
{
    clocked *x = (clocked *)g;
    if (takes_time(g, actor))
        wait_for_queue(x, actor);
    else
        begin(x, actor);
}

static void queue_go_on(clocked *x, uint32_t queue)
{
    uint32_t actor = x->waiting[queue];
    x->is_stirred[queue] = false;
    if (x->busy[queue] || actor == PLAN_NONE)
        return;
    x->waiting[queue] = x->after[actor];
    begin(x, actor);
}

/* ---- a step ---- */

static void end(clocked *x, uint32_t actor)
{
    uint32_t c = x->game.actors[actor].member_of, queue = x->game.plan->actors[actor].queue.i;
    if (c != PLAN_NONE)
        x->turns[x->turn_count++] = c;
    if (!takes_time(&x->game, actor))
        return;
    x->busy[queue] = false;
    stir(x, queue);
}

/* All that ends at one tick is over before the next thing begins. */
static void play(clocked *x)
{
    game_begin(&x->game);
    for (;;) {
        while (x->stirred_count)
            queue_go_on(x, x->stirred[--x->stirred_count]);
        if (!x->heap.count || x->failed)
            return;
        x->now = x->heap.events[0].time;
        while (x->heap.count && x->heap.events[0].time == x->now) {
            const uint32_t actor = heap_pop(&x->heap).id;
            end(x, actor);
            game_fire(&x->game, actor);
        }
    }
}

/* Collectives that stalled come last. */
static void add_missing(clocked *x)
{
    const weir_plan *plan = x->game.plan;
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        uint32_t actor = plan->members[plan->collectives[c].members.first].i;
        for (uint32_t n = x->game.actors[actor].fired; n < plan->actors[actor].fires; n++)
            x->turns[x->turn_count++] = c;
    }
}

static void enter_turns(const clocked *x, weir_plan *plan)
{
    uint32_t at = 0;
    for (uint32_t p = 0; p < plan->programs_count; p++)
        for (uint32_t t = 0; t < x->turn_count; t++)
            if (plan_program_of(plan, &plan->collectives[x->turns[t]]) == p)
                plan->turns[at++] = (plan_collective_id){x->turns[t]};
}

static bool clocked_new(clocked *x, const weir_plan *plan)
{
    x->waiting = malloc((plan->queues_count + (size_t)1) * sizeof *x->waiting);
    x->after = calloc(plan->actors_count + (size_t)1, sizeof *x->after);
    x->busy = calloc(plan->queues_count + (size_t)1, sizeof *x->busy);
    x->stirred = calloc(plan->queues_count + (size_t)1, sizeof *x->stirred);
    x->is_stirred = calloc(plan->queues_count + (size_t)1, sizeof *x->is_stirred);
    x->turns = calloc(plan->turns_count + (size_t)1, sizeof *x->turns);
    for (uint32_t q = 0; x->waiting && q < plan->queues_count; q++)
        x->waiting[q] = PLAN_NONE;
    return x->waiting && x->after && x->busy && x->stirred && x->is_stirred && x->turns &&
           !game_init(&x->game, plan, false);
}

static void clocked_free(clocked *x)
{
    game_free(&x->game);
    free(x->heap.events);
    free(x->waiting);
    free(x->after);
    free(x->busy);
    free(x->stirred);
    free(x->is_stirred);
    free(x->turns);
}

void plan_add_all_turns(plan_builder *builder)
{
    const weir_plan *plan = plan_builder_plan(builder);
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t n = 0; n < plan_member(plan, &plan->collectives[c], 0)->fires && !plan_builder_failed(builder); n++)
            plan_add_turns(builder, (plan_collective_id){c});
}

bool plan_order_turns(weir_plan *plan)
{
    clocked x = {.now = 0};
    if (!plan->collectives_count)
        return true;
    bool ok = clocked_new(&x, plan);
    if (ok) {
        x.game.ready = ready;
        play(&x);
        ok = !x.failed;
    }
    if (ok) {
        add_missing(&x);
        enter_turns(&x, plan);
    }
    clocked_free(&x);
    return ok;
}
