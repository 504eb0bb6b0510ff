/* graph/plan/check.c: the token game; check.h says what it proves.
 *
 * Marking. A port has its unread slots and the firings that it has held the current one; a register has its free slots
 * and the firings that it has filled the current one. A slot is free again when the last of its readers has let go of
 * it. Readers free in order, so a register needs no entry per slot: each reader counts what it freed, and a slot comes
 * back when the slowest reader's count rises. `slowest` is how many readers are at that count; when it reaches zero
 * the count rises and they are counted anew, which happens once per slot: O(1) per event and edge.
 *
 * Programs are played side by side: what one reads of another's is there throughout, so no step of one has anything to
 * do with a step of another, and each comes to its end as if it were alone.
 *
 * Each actor counts its unmet conditions, as it does at run time; at zero it goes on a stack. The order does not
 * matter.
 *
 * Finding out how many slots would do is playing again: with as many slots as a step can fill, then by bisection. That
 * is done for stalls alone, for at most CANDIDATES_MAX registers, and not for plans so large that it would be slow.
 */
#include "graph/plan/check.h"

#include "graph/base/error.h"
#include "graph/plan/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 8          /* registers of a circle that are tried with more slots */
#define RETRY_FIRINGS_MAX 1000000 /* per step; above, no tries */
#define CIRCLE_TOLD_MAX 6         /* actors of a circle that the message names */

typedef struct game {
    const weir_plan *plan; /* borrowed */
    uint32_t firings;
    uint32_t *memory;      /* owned: all arrays below */
    /* per actor */
    uint32_t *fired, *unmet, *stack;
    uint32_t stacked;
    /* per port */
    uint32_t *unread, *held, *freed;
    uint32_t *readers;     /* ports, those of one register beside each other */
    /* per register */
    uint32_t *slots, *credit, *filled, *returned, *slowest;
    uint32_t *first;       /* in readers; one more than there are registers */
} game;

static uint32_t readers_count(const game *g, uint32_t regst)
{
    return g->first[regst + 1] - g->first[regst];
}

static bool counts(const game *g, uint32_t port)
{
    return plan_port_counts(g->plan, &g->plan->ports[port]);
}

/* ---- set up ---- */

static void mark_initial(game *g)
{
    const weir_plan *plan = g->plan;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        g->slots[r] = regst->slots;
        g->slowest[r] = readers_count(g, r);
        g->credit[r] = g->slowest[r] ? regst->slots - regst->initial : regst->slots;
        if (regst->producer.i != PLAN_NONE)
            g->unmet[regst->producer.i] += g->credit[r] == 0;
    }
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        g->unread[p] = plan->regsts[plan->ports[p].regst.i].initial;
        g->unmet[plan->ports[p].actor.i] += g->unread[p] == 0;
    }
}

static weir_status game_init(game *g, const weir_plan *plan)
{
    size_t actors = plan->actors_count, ports = plan->ports_count, regsts = plan->regsts_count;
    uint32_t *memory = calloc(3 * actors + 4 * ports + 6 * regsts + 1, sizeof *memory);
    if (!memory)
        return error_set(WEIR_E_MEMORY, "no memory to check the plan");
    *g = (game){.plan = plan, .memory = memory};
    uint32_t **of_actors[] = {&g->fired, &g->unmet, &g->stack};
    uint32_t **of_ports[] = {&g->unread, &g->held, &g->freed, &g->readers};
    uint32_t **of_regsts[] = {&g->slots, &g->credit, &g->filled, &g->returned, &g->slowest};
    for (size_t i = 0; i < sizeof of_actors / sizeof *of_actors; i++, memory += actors)
        *of_actors[i] = memory;
    for (size_t i = 0; i < sizeof of_ports / sizeof *of_ports; i++, memory += ports)
        *of_ports[i] = memory;
    for (size_t i = 0; i < sizeof of_regsts / sizeof *of_regsts; i++, memory += regsts)
        *of_regsts[i] = memory;
    g->first = memory;
    plan_index_readers(plan, g->first, g->readers);
    mark_initial(g);
    return WEIR_OK;
}

/* Gives one register other slots than the plan does: before the first firing. */
static void game_set_slots(game *g, uint32_t regst, uint32_t slots)
{
    const plan_regst *of = &g->plan->regsts[regst];
    bool was_short = g->credit[regst] == 0;
    g->credit[regst] += slots - g->slots[regst];
    g->slots[regst] = slots;
    if (was_short && g->credit[regst] && of->producer.i != PLAN_NONE)
        g->unmet[of->producer.i]--;
}

/* ---- firing ---- */

static void met(game *g, uint32_t actor)
{
    if (--g->unmet[actor] == 0 && g->fired[actor] < g->plan->actors[actor].fires)
        g->stack[g->stacked++] = actor;
}

static void slot_returned(game *g, uint32_t regst)
{
    if (g->credit[regst]++ == 0 && g->filled[regst] == 0)
        met(g, g->plan->regsts[regst].producer.i);
}

static void count_slowest(game *g, uint32_t regst)
{
    for (uint32_t i = g->first[regst]; i < g->first[regst + 1]; i++)
        g->slowest[regst] += g->freed[g->readers[i]] == g->returned[regst];
}

/* The port lets go of its oldest slot. */
static void slot_free(game *g, uint32_t port)
{
    uint32_t regst = g->plan->ports[port].regst.i;
    g->held[port] = 0;
    if (--g->unread[port] == 0)
        g->unmet[g->plan->ports[port].actor.i]++;
    if (g->freed[port]++ != g->returned[regst] || --g->slowest[regst])
        return;
    g->returned[regst]++;
    count_slowest(g, regst);
    slot_returned(g, regst);
}

static void publish(game *g, uint32_t regst)
{
    g->filled[regst] = 0;
    if (g->credit[regst] == 0)
        g->unmet[g->plan->regsts[regst].producer.i]++;
    for (uint32_t i = g->first[regst]; i < g->first[regst + 1]; i++)
        if (g->unread[g->readers[i]]++ == 0)
            met(g, g->plan->ports[g->readers[i]].actor.i);
    if (!readers_count(g, regst))
        slot_returned(g, regst);
}

/* Credit is taken when a slot is begun; while it is being filled the register asks for no more. */
static void write_slot(game *g, uint32_t regst)
{
    if (g->filled[regst]++ == 0)
        g->credit[regst]--;
    if (g->filled[regst] == g->plan->regsts[regst].fill)
        publish(g, regst);
}

static void read_slot(game *g, uint32_t port)
{
    const plan_port *of = &g->plan->ports[port];
    if (counts(g, port) && ++g->held[port] == of->hold)
        slot_free(g, port);
}

/* The actor counts as blocked while it fires, so that what it does to itself puts it on the stack no sooner than at the
 * end, and once. */
static void fire(game *g, uint32_t actor)
{
    const plan_actor *of = &g->plan->actors[actor];
    g->fired[actor]++;
    g->firings++;
    g->unmet[actor]++;
    for (uint32_t i = 0; i < of->ports.count; i++)
        read_slot(g, of->ports.first + i);
    for (uint32_t i = 0; i < of->regsts.count; i++)
        write_slot(g, of->regsts.first + i);
    met(g, actor);
}

static bool finished(const game *g)
{
    for (uint32_t a = 0; a < g->plan->actors_count; a++)
        if (g->fired[a] < g->plan->actors[a].fires)
            return false;
    return true;
}

/* Plays until nobody can fire; true when the step is complete. */
static bool game_play(game *g)
{
    for (uint32_t a = 0; a < g->plan->actors_count; a++)
        if (g->unmet[a] == 0 && g->plan->actors[a].fires)
            g->stack[g->stacked++] = a;
    while (g->stacked)
        fire(g, g->stack[--g->stacked]);
    return finished(g);
}

static bool port_is_initial(const game *g, uint32_t port)
{
    const plan_regst *regst = &g->plan->regsts[g->plan->ports[port].regst.i];
    return g->unread[port] == regst->initial && g->held[port] == 0;
}

static bool regst_is_initial(const game *g, uint32_t r)
{
    const plan_regst *regst = &g->plan->regsts[r];
    uint32_t credit = readers_count(g, r) ? g->slots[r] - regst->initial : g->slots[r];
    return g->credit[r] == credit && g->filled[r] == 0;
}

static bool marking_is_initial(const game *g)
{
    for (uint32_t p = 0; p < g->plan->ports_count; p++)
        if (!port_is_initial(g, p))
            return false;
    for (uint32_t r = 0; r < g->plan->regsts_count; r++)
        if (!regst_is_initial(g, r))
            return false;
    return true;
}

/* ---- who waits for whom ---- */

typedef struct wait {
    uint32_t actor; /* who waits */
    uint32_t on;    /* for whom; PLAN_NONE: nobody will ever come */
    uint32_t regst; /* for something to read in it, or for a free slot of it */
    bool slot;      /* the latter */
} wait;

/* A reader that has not freed the oldest slot of the register, and will fire again. */
static uint32_t slowest_reader(const game *g, uint32_t regst)
{
    for (uint32_t i = g->first[regst]; i < g->first[regst + 1]; i++) {
        uint32_t actor = g->plan->ports[g->readers[i]].actor.i;
        if (g->freed[g->readers[i]] == g->returned[regst] && g->fired[actor] < g->plan->actors[actor].fires)
            return actor;
    }
    return PLAN_NONE;
}

/* The first thing that keeps the actor from firing. Slots before data: the circle then leads past the registers that
 * more slots may help. */
static wait first_wait(const game *g, uint32_t actor)
{
    const plan_actor *of = &g->plan->actors[actor];
    for (uint32_t r = of->regsts.first; r < of->regsts.first + of->regsts.count; r++)
        if (g->credit[r] == 0 && g->filled[r] == 0)
            return (wait){actor, slowest_reader(g, r), r, true};
    for (uint32_t p = of->ports.first; p < of->ports.first + of->ports.count; p++)
        if (g->unread[p] == 0) {
            uint32_t regst = g->plan->ports[p].regst.i;
            return (wait){actor, g->plan->regsts[regst].producer.i, regst, false};
        }
    return (wait){actor, PLAN_NONE, PLAN_NONE, false};
}

/* Follows who waits for whom from a stalled actor until one comes a second time; fills `circle` (as long as there are
 * actors) and returns its length. `seen` is zeroed, one per actor. 0: the chain ends, which consistent rates
 * exclude. */
static uint32_t find_circle(const game *g, wait *circle, uint32_t *seen)
{
    uint32_t actor = 0, length = 0;
    while (g->fired[actor] >= g->plan->actors[actor].fires)
        actor++;
    while (actor != PLAN_NONE && !seen[actor]) {
        seen[actor] = ++length;
        circle[length - 1] = first_wait(g, actor);
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
    if (game_init(&g, plan) != WEIR_OK)
        return -1;
    game_set_slots(&g, regst, slots);
    bool live = game_play(&g);
    free(g.memory);
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
        if (!circle[i].slot)
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
    vsnprintf(result->text + length, sizeof result->text - length, format, args);
    va_end(args);
}

static void say_wait(const game *g, const wait *one, check_result *result)
{
    const weir_plan *plan = g->plan;
    char name[PLAN_TEXT_BYTES];
    const char *actor = plan_text(plan, plan->actors[one->actor].name);
    const char *on = plan_text(plan, plan->actors[one->on].name);
    if (!one->slot) {
        say(result, "%.60s waits for %.60s", actor, on);
        return;
    }
    uint32_t slots = plan->regsts[one->regst].slots;
    say(result, "%.60s waits for a free slot of %.60s (%" PRIu32 " slot%s; read by %.60s)", actor,
        regst_text(plan, (plan_regst_id){one->regst}, name), slots, slots == 1 ? "" : "s", on);
}

static void say_remedy(const game *g, check_result *result)
{
    char name[PLAN_TEXT_BYTES];
    if (result->short_of.i == PLAN_NONE) {
        say(result, ": none of them can be the first, because no register between them starts full");
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
    say(result, "not live: ");
    for (uint32_t i = 0; i < length && i < CIRCLE_TOLD_MAX; i++) {
        if (i)
            say(result, ", ");
        say_wait(g, &circle[i], result);
    }
    if (length > CIRCLE_TOLD_MAX)
        say(result, ", and %" PRIu32 " more wait in this circle", length - CIRCLE_TOLD_MAX);
    say_remedy(g, result);
}

static weir_status explain(const game *g, check_result *result)
{
    wait *circle = calloc(g->plan->actors_count, sizeof *circle);
    uint32_t *seen = calloc(g->plan->actors_count, sizeof *seen);
    weir_status status = WEIR_OK;
    if (!circle || !seen) {
        status = error_set(WEIR_E_MEMORY, "no memory to explain why the plan is not live");
    } else {
        uint32_t length = find_circle(g, circle, seen);
        choose_short(g, circle, length, result);
        say_circle(g, circle, length, result);
    }
    free(circle);
    free(seen);
    return status;
}

weir_status check_play(const weir_plan *plan, check_result *result)
{
    game g;
    *result = (check_result){.short_of = {PLAN_NONE}};
    weir_status status = game_init(&g, plan);
    if (status)
        return status;
    bool complete = game_play(&g);
    result->firings = g.firings;
    result->live = complete && marking_is_initial(&g);
    if (!complete)
        status = explain(&g, result);
    else if (!result->live)
        say(result, "not live: the step does not return to its start");
    free(g.memory);
    return status;
}

weir_status weir_plan_check(const weir_plan *plan)
{
    check_result result;
    weir_status status = check_play(plan, &result);
    if (status || result.live)
        return status;
    return error_set(WEIR_E_LIVE, "%s", result.text);
}
