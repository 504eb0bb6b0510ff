/* graph/plan/prove/check.c: the token game is played, and a stall explained; check.h says what it proves, game.h how it is
 * played. An actor that may fire goes on a stack, as the order does not matter.
 *
 * Finding out how many slots would do is playing again: with as many slots as a step can fill, then by bisection. That
 * is done for stalls alone, for at most CANDIDATES_MAX registers, and not for plans so large that it would be slow.
 */
#include "graph/plan/prove/check.h"

#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/plan/prove/game.h"
#include "graph/plan/form/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 8          /* registers of a circle that are tried with more slots */
#define RETRY_FIRINGS_MAX 1000000 /* per step; above, no tries */
#define CIRCLE_TOLD_MAX 6         /* actors of a circle that the message names */

static void push(game *g, uint32_t actor)
{
    g->stack[g->stacked++] = actor;
}

/* Plays until nobody can fire; true when the step is complete. */
static bool play(game *g)
{
    g->ready = push;
    game_begin(g);
    while (g->stacked)
        game_fire(g, g->stack[--g->stacked]);
    return game_finished(g);
}

/* ---- who waits for whom ---- */

typedef enum wait_for { WAIT_SLOT, WAIT_DATA, WAIT_TURN, WAIT_MEMBER } wait_for;

typedef struct wait {
    uint32_t actor; /* who waits */
    uint32_t on;    /* for whom; PLAN_NONE: nobody will ever come */
    wait_for what;
    uint32_t regst; /* a free slot of it, or something to read in it */
} wait;

/* A reader that has not freed the oldest slot of the register, and will fire again. */
static uint32_t slowest_reader(const game *g, uint32_t regst)
{
    for (uint32_t i = g->regsts[regst].first; i < g->regsts[regst + 1].first; i++) {
        const game_port *reader = &g->ports[g->readers[i]];
        if (reader->freed == g->regsts[regst].returned && game_has_firings(g, reader->actor))
            return reader->actor;
    }
    return PLAN_NONE;
}

/* For each member, whose turn it is on its queue and in its program: itself, or another; PLAN_NONE: no turn is left there.
 * Turns come program after program. `head`: per queue, the member whose turn it is. NULL: no memory; else the caller's. */
static uint32_t *turns_now(const game *g)
{
    const weir_plan *plan = g->plan;
    uint32_t *now = malloc((plan->actors_count + (size_t)1) * sizeof *now);
    uint32_t *head = malloc((plan->queues_count + (size_t)1) * sizeof *head);
    for (uint32_t a = 0; now && a < plan->actors_count; a++)
        now[a] = PLAN_NONE;
    for (uint32_t q = 0; head && q < plan->queues_count; q++)
        head[q] = PLAN_NONE;
    for (uint32_t t = 0; now && head && t < plan->turns_count; t++) {
        const plan_range *members = &plan->collectives[plan->turns[t].i].members;
        for (uint32_t m = members->first; m < members->first + members->count && g->behind[t] != PLAN_NONE; m++) {
            uint32_t actor = plan->members[m].i, *first = &head[plan->actors[actor].queue.i];
            if (*first == PLAN_NONE || plan->actors[*first].program.i != plan->actors[actor].program.i)
                *first = actor;
            now[actor] = *first;
        }
    }
    free(head);
    if (!head) {
        free(now);
        return NULL;
    }
    return now;
}

/* The wait of a member that could fire if it were alone. */
static wait wait_of_member(const game *g, const uint32_t *now, uint32_t actor)
{
    const plan_range *members = &g->plan->collectives[g->actors[actor].member_of].members;
    if (now[actor] != actor)
        return (wait){actor, now[actor], WAIT_TURN, PLAN_NONE};
    for (uint32_t m = members->first; m < members->first + members->count; m++) {
        uint32_t other = g->plan->members[m].i;
        if (g->actors[other].unmet || now[other] != other)
            return (wait){actor, other, WAIT_MEMBER, PLAN_NONE};
    }
    return (wait){actor, PLAN_NONE, WAIT_MEMBER, PLAN_NONE};
}

/* The first thing that keeps the actor from firing. Slots before data: the circle then leads past the registers that
 * more slots may help. */
static wait first_wait(const game *g, const uint32_t *now, uint32_t actor)
{
    const plan_actor *of = &g->plan->actors[actor];
    for (uint32_t r = of->regsts.first; r < of->regsts.first + of->regsts.count; r++)
        if (g->regsts[r].credit == 0 && g->regsts[r].filled == 0)
            return (wait){actor, slowest_reader(g, r), WAIT_SLOT, r};
    for (uint32_t p = of->ports.first; p < of->ports.first + of->ports.count; p++)
        if (g->ports[p].unread == 0) {
            uint32_t regst = g->plan->ports[p].regst.i;
            return (wait){actor, g->plan->regsts[regst].producer.i, WAIT_DATA, regst};
        }
    if (g->actors[actor].member_of != PLAN_NONE)
        return wait_of_member(g, now, actor);
    return (wait){actor, PLAN_NONE, WAIT_DATA, PLAN_NONE};
}

/* Follows who waits for whom from a stalled actor until one comes a second time; fills `circle` (as long as there are
 * actors) and returns its length. `seen` is zeroed, one per actor. 0: the chain ends, which consistent rates
 * exclude. */
static uint32_t find_circle(const game *g, const uint32_t *now, wait *circle, uint32_t *seen)
{
    uint32_t actor = 0, length = 0;
    while (!game_has_firings(g, actor))
        actor++;
    while (actor != PLAN_NONE && !seen[actor]) {
        seen[actor] = ++length;
        circle[length - 1] = first_wait(g, now, actor);
        actor = circle[length - 1].on;
    }
    if (actor == PLAN_NONE)
        return 0;
    uint32_t first = seen[actor] - 1;
    memmove(circle, circle + first, (length - first) * sizeof *circle);
    return length - first;
}

/* ---- how many slots would do ---- */

/* -1: no memory */
static int live_with(const weir_plan *plan, uint32_t regst, uint32_t slots)
{
    game g;
    if (game_init(&g, plan, true) != WEIR_OK)
        return -1;
    game_set_slots(&g, regst, slots);
    bool live = play(&g);
    game_free(&g);
    return live;
}

/* The smallest number of slots of this register that makes the plan live by itself; 0: none does. More slots never
 * hurt, and more than are published in a step and at its start are of no use. */
static uint32_t slots_that_do(const weir_plan *plan, uint32_t regst)
{
    const plan_regst *of = &plan->regsts[regst];
    uint32_t low = of->slots; /* does not do */
    uint32_t publications = plan->actors[of->producer.i].fires / of->fill;
    uint32_t high = of->slots + publications;
    if (high < low || live_with(plan, regst, high) <= 0)
        return 0;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (live_with(plan, regst, middle) > 0)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Chooses result->short_of among the registers of the circle; see check_result. */
static void choose_short(const game *g, const wait *circle, uint32_t length, check_result *result)
{
    const weir_plan *plan = g->plan;
    uint64_t least = UINT64_MAX, total = 0;
    uint32_t tried = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        total += plan->actors[a].fires;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t regst = circle[i].regst;
        if (circle[i].what != WAIT_SLOT)
            continue;
        if (result->short_of.i == PLAN_NONE || (plan->regsts[result->short_of.i].fixed && !result->slots_needed))
            result->short_of.i = regst;
        if (total > RETRY_FIRINGS_MAX || ++tried > CANDIDATES_MAX)
            continue;
        uint32_t needed = slots_that_do(plan, regst);
        uint64_t cost = (needed - plan->regsts[regst].slots) * plan->regsts[regst].slot_bytes;
        if (plan->regsts[regst].fixed)
            cost |= UINT64_C(1) << 63; /* only if no other will do */
        if (needed && cost < least) {
            least = cost;
            result->short_of.i = regst;
            result->slots_needed = needed;
        }
    }
}

/* ---- the message ---- */

static void say(check_result *result, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(check_result *result, const char *format, ...)
{
    size_t length = strlen(result->text);
    va_list args;
    va_start(args, format);
    text_vprint(result->text + length, sizeof result->text - length, format, args);
    va_end(args);
}

static void say_wait(const game *g, const wait *one, check_result *result)
{
    const weir_plan *plan = g->plan;
    char name[PLAN_TEXT_BYTES];
    const char *actor = plan_text(plan, plan->actors[one->actor].name);
    const char *on = plan_text(plan, plan->actors[one->on].name);
    if (one->what != WAIT_SLOT) {
        const char *what = one->what == WAIT_TURN ? " its turn behind" : one->what == WAIT_MEMBER ? " its fellow" : "";
        say(result, "%.60s waits for%s %.60s", actor, what, on);
        return;
    }
    uint32_t slots = plan->regsts[one->regst].slots;
    say(result, "%.60s waits for a free slot of %.60s (%" PRIu32 " slot%s; read by %.60s)", actor,
        regst_text(plan, (plan_regst_id){one->regst}, name), slots, slots == 1 ? "" : "s", on);
}

static void say_remedy(const game *g, bool turns, check_result *result)
{
    char name[PLAN_TEXT_BYTES];
    if (result->short_of.i == PLAN_NONE) {
        say(result, turns ? ": the plan has these collectives in an order that can not be kept"
                          : ": none of them can be the first, because no register between them starts full");
        return;
    }
    const plan_regst *regst = &g->plan->regsts[result->short_of.i];
    say(result, ": register %.60s needs ", regst_text(g->plan, result->short_of, name));
    if (result->slots_needed)
        say(result, "at least %" PRIu32 " slots", result->slots_needed);
    else
        say(result, "more than %" PRIu32 " slot%s", regst->slots, regst->slots == 1 ? "" : "s");
    if (regst->fixed)
        say(result, " (the program fixed it at %" PRIu32 ")", regst->slots);
}

static void say_circle(const game *g, const wait *circle, uint32_t length, check_result *result)
{
    bool turns = false;
    say(result, "not live: ");
    for (uint32_t i = 0; i < length; i++)
        turns |= circle[i].what == WAIT_TURN;
    for (uint32_t i = 0; i < length && i < CIRCLE_TOLD_MAX; i++) {
        if (i)
            say(result, ", ");
        say_wait(g, &circle[i], result);
    }
    if (length > CIRCLE_TOLD_MAX)
        say(result, ", and %" PRIu32 " more wait in this circle", length - CIRCLE_TOLD_MAX);
    say_remedy(g, turns, result);
}

static weir_status explain(const game *g, check_result *result)
{
    wait *circle = calloc(g->plan->actors_count, sizeof *circle);
    uint32_t *seen = calloc(g->plan->actors_count, sizeof *seen), *now = turns_now(g);
    weir_status status = WEIR_OK;
    if (!circle || !seen || !now) {
        status = error_set(WEIR_E_MEMORY, "no memory to explain why the plan is not live");
    } else {
        uint32_t length = find_circle(g, now, circle, seen);
        choose_short(g, circle, length, result);
        say_circle(g, circle, length, result);
    }
    free(circle);
    free(seen);
    free(now);
    return status;
}

weir_status check_play(const weir_plan *plan, check_result *result)
{
    game g;
    *result = (check_result){.short_of = {PLAN_NONE}};
    weir_status status = game_init(&g, plan, true);
    if (status)
        return status;
    bool complete = play(&g);
    result->firings = g.firings;
    result->live = complete && game_is_initial(&g);
    if (!complete)
        status = explain(&g, result);
    else if (!result->live)
        say(result, "not live: the step does not return to its start");
    game_free(&g);
    return status;
}

weir_status weir_plan_check(const weir_plan *plan)
{
    check_result result;
    if (error_null(plan, "weir_plan_check", "plan"))
        return WEIR_E_ARGUMENT;
    weir_status status = check_play(plan, &result);
    if (status || result.live)
        return status;
    return error_set(WEIR_E_LIVE, "%s", result.text);
}
