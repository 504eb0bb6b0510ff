/* graph/plan/spread/spread.c: see spread.h.
 *
 * A spread plan is the plan with something appended: outside queues, actors, ports and hosts, for the pulls of other
 * ranks. So every id of the plan means the same in it, and bindings stay where they are. That the copies of a pull
 * come last also makes the first of a name the original one.
 *
 * A rank needs a device to have a queue on. One that owns none has nothing to run, and pulls nothing either.
 */
#include "graph/plan/spread/spread.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/form/build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct spreading {
    plan_builder *b;
    weir_plan *plan;              /* the builder's */
    uint32_t space[PLAN_RANKS_MAX];   /* by rank: its first space that the host reaches, or PLAN_NONE */
    uint32_t outside[PLAN_RANKS_MAX]; /* by rank: its outside queue, or PLAN_NONE until it needs one */
} spreading;

/* ---- ranks ---- */

static uint32_t devices_each(const weir_plan *plan, uint32_t ranks)
{
    uint64_t devices = 1;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].index >= devices)
            devices = (uint64_t)plan->spaces[s].index + 1;
    return (uint32_t)((devices + ranks - 1) / ranks);
}

static weir_status assign_ranks(weir_plan *plan, uint32_t ranks, uint32_t devices)
{
    plan->ranks = ranks;
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        plan->spaces[s].rank = plan->spaces[s].index / devices;
        if (plan->spaces[s].rank >= ranks)
            return error_set(WEIR_E_ARGUMENT,
                             "%s: the plan needs %s, but the last of %" PRIu32 " rank%s with %" PRIu32
                             " device%s each ends with index %" PRIu64,
                             plan_text(plan, plan->name), plan_text(plan, plan->spaces[s].name), ranks,
                             ranks == 1 ? "" : "s", devices, devices == 1 ? "" : "s", (uint64_t)ranks * devices - 1);
    }
    return WEIR_OK;
}

static void find_places(spreading *x)
{
    memset(x->space, 0xff, sizeof x->space);
    memset(x->outside, 0xff, sizeof x->outside);
    for (uint32_t s = x->plan->spaces_count; s-- > 0;)
        if (device_host_reaches((weir_device_kind)x->plan->spaces[s].kind))
            x->space[x->plan->spaces[s].rank] = s;
    for (uint32_t q = x->plan->queues_count; q-- > 0;)
        if (x->plan->queues[q].kind == PLAN_OUTSIDE)
            x->outside[x->plan->spaces[x->plan->queues[q].space.i].rank] = q;
}

/* ---- pulls ---- */

/* The rank's outside queue; made, and called as the compiler calls them, if there is none. */
static uint32_t outside_queue(spreading *x, uint32_t rank)
{
    if (x->outside[rank] != PLAN_NONE)
        return x->outside[rank];
    const char *device = plan_text(x->plan, x->plan->spaces[x->space[rank]].name);
    size_t bytes = strlen(device) + sizeof "outside ";
    char *name = malloc(bytes);
    if (!name) {
        error_set(WEIR_E_MEMORY, "no memory for the plan");
        return PLAN_NONE;
    }
    snprintf(name, bytes, "outside %s", device);
    x->outside[rank] = plan_add_queues(
        x->b, (plan_queue){.space = {x->space[rank]}, .kind = PLAN_OUTSIDE, .name = plan_add_text(x->b, name)});
    free(name);
    return x->outside[rank];
}

static bool taken(const weir_plan *plan, uint32_t queue, uint32_t priority)
{
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan->actors[a].queue.i == queue && plan->actors[a].priority == priority)
            return true;
    return false;
}

/* One more actor like that of host h, which reads the same register, on the queue of another rank. */
static bool repeat_pull(spreading *x, uint32_t h, uint32_t rank)
{
    plan_host host = x->plan->hosts[h];
    plan_actor actor = x->plan->actors[host.actor.i];
    plan_port port = x->plan->ports[actor.ports.first];
    actor.queue.i = outside_queue(x, rank);
    if (actor.queue.i == PLAN_NONE)
        return false;
    while (taken(x->plan, actor.queue.i, actor.priority))
        actor.priority++;
    host.actor.i = port.actor.i = x->plan->actors_count;
    actor.ports.first = plan_add_ports(x->b, port);
    plan_add_actors(x->b, actor);
    plan_add_hosts(x->b, host);
    return !plan_builder_failed(x->b);
}

static bool repeat_pulls(spreading *x)
{
    uint32_t hosts = x->plan->hosts_count;
    for (uint32_t h = 0; h < hosts; h++) {
        if (x->plan->hosts[h].kind != PLAN_PULL)
            continue;
        uint32_t owner = plan_rank_of(x->plan, x->plan->hosts[h].actor.i);
        for (uint32_t rank = 0; rank < x->plan->ranks; rank++)
            if (rank != owner && x->space[rank] != PLAN_NONE && !repeat_pull(x, h, rank))
                return false;
    }
    return true;
}

/* ---- the copy ---- */

/* Every array from where the builder's ends: a new one has the empty text already. The table of the graph stays behind. */
static void copy_arrays(plan_builder *b, const weir_plan *from)
{
#define X(type, member)                                                                             \
    for (uint32_t i = plan_builder_plan(b)->member##_count; i < from->member##_count; i++) \
        plan_add_##member(b, from->member[i]);
    PLAN_RUN_LIST(X)
#undef X
}

static plan_builder *copy_plan(const weir_plan *from)
{
    plan_builder *b = plan_builder_new();
    if (!b)
        return NULL;
    weir_plan *plan = plan_builder_plan(b);
    plan->micro_batches = from->micro_batches;
    plan->seed = from->seed;
    plan->graph = from->graph;
    plan->rates = from->rates;
    plan->ranks = from->ranks;
    plan->name = from->name;
    copy_arrays(b, from);
    if (!plan_builder_failed(b))
        return b;
    plan_builder_free(b);
    return NULL;
}

/* Ends the builder. The bindings of the plan, and none for the hosts that came in addition. */
static weir_plan *finish(plan_builder *b, const weir_plan *from)
{
    callback_binding *bindings = NULL;
    if (from->bindings) {
        bindings = calloc(plan_builder_plan(b)->hosts_count + (size_t)1, sizeof *bindings);
        if (!bindings) {
            plan_builder_free(b);
            error_set(WEIR_E_MEMORY, "no memory for the plan");
            return NULL;
        }
        memcpy(bindings, from->bindings, from->hosts_count * sizeof *bindings);
    }
    return plan_builder_finish(b, bindings);
}

static bool may_spread(const weir_plan *plan, uint32_t ranks)
{
    if (ranks < 1 || ranks > PLAN_RANKS_MAX)
        error_set(WEIR_E_ARGUMENT, "a plan can be spread over 1 to %d ranks, not over %" PRIu32, PLAN_RANKS_MAX, ranks);
    else if (plan->part)
        error_set(WEIR_E_ARGUMENT, "%s: only the part of rank %" PRIu32 " is here, which cannot be spread",
                  plan_text(plan, plan->name), plan->part - 1);
    else if (plan->ranks > 1 && plan->ranks != ranks)
        error_set(WEIR_E_ARGUMENT, "%s: the plan is spread over %" PRIu32 " ranks already, not over %" PRIu32,
                  plan_text(plan, plan->name), plan->ranks, ranks);
    else
        return true;
    return false;
}

weir_plan *plan_spread(const weir_plan *plan, uint32_t ranks, uint32_t devices)
{
    if (!may_spread(plan, ranks))
        return NULL;
    plan_builder *b = copy_plan(plan);
    if (!b || plan->ranks > 1)
        return b ? finish(b, plan) : NULL;
    spreading x = {.b = b, .plan = plan_builder_plan(b)};
    bool ok = assign_ranks(x.plan, ranks, devices ? devices : devices_each(plan, ranks)) == WEIR_OK;
    if (ok) {
        find_places(&x);
        ok = repeat_pulls(&x);
    }
    if (!ok) {
        plan_builder_free(b);
        return NULL;
    }
    weir_plan *spread = finish(b, plan);
    if (spread && plan_validate(spread) == WEIR_OK)
        return spread;
    weir_plan_free(spread);
    return NULL;
}
