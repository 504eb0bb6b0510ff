/* actors/actor.c: the state machine. This is the hot path: with empty kernels everything between two firings is here
 * and in actors/worker.c.
 *
 * A slot that is published or freed on the same lane changes the other end's counters on the spot. That the other
 * actor may thereby become ready while this one is still half-way through its bookkeeping does no harm: nothing fires
 * until the lane chooses again. For the same reason the firings of a row are settled together: counters change once for all of
 * them. Where views follow the slots, or there are few, each firing is settled by itself.
 */
#include "actors/actor.h"

#include "actors/ahead.h"
#include "actors/events.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define ROW_MIN 4 /* firings that are settled together when there is room for so many */

/* All of so many firings but their kernels, and the ready bit. */
static ALWAYS_INLINE void settle_counters(struct lane *lane, struct actor *actor, uint32_t firings)
{
    assert(actor->unmet == 0 && actor->left >= firings);
    struct actor_out *out = actor->outs;
    for (uint32_t i = actor->out_count; i > 0; i--, out++) {
        uint32_t full = out_fired(out, firings);
        if (!full)
            continue;
        struct actor_edge *edge = out->edges;
        for (uint32_t k = out->edge_count; k > 0; k--)
            edge_tell(lane, edge++, full);
    }
    struct actor_port *port = actor->ports;
    for (uint32_t i = actor->port_count; i > 0; i--, port++) {
        uint32_t done = port_fired(port, firings);
        if (done)
            port_tell(lane, port, done);
    }
    actor_counted(actor, firings);
}

void actor_fired(struct actor *actor)
{
    actor_next(actor);
    settle_counters(actor->lane, actor, 1);
    if (actor->unmet)
        ready_remove(&actor->lane->ready, actor->rank);
}

void actor_allow(struct actor *actor, int64_t left)
{
    bool had = actor->left > 0;
    actor->left = left;
    if (!had && left)
        actor_met(actor);
    if (had && !left && actor->unmet++ == 0)
        ready_remove(&actor->lane->ready, actor->rank);
}

static ALWAYS_INLINE weir_status call_kernels(struct actor *actor, struct actor_kernel **failed)
{
    struct actor_kernel *kernel = actor->kernels;
    for (uint32_t i = actor->kernel_count; i > 0; i--, kernel++) {
        kernel_prepare(kernel, actor);
        weir_status status = kernel->call(&kernel->args);
        if (UNLIKELY(status)) {
            *failed = kernel;
            return status;
        }
    }
    return WEIR_OK;
}

/* How often it may fire, up to so often, before a condition fails. */
static ALWAYS_INLINE uint32_t row_length(const struct actor *actor, uint32_t count)
{
    uint64_t most = count;
    for (uint32_t i = 0; i < actor->port_count && most > 1; i++)
        if (reader_room(&actor->ports[i].reader) < most)
            most = reader_room(&actor->ports[i].reader);
    for (uint32_t i = 0; i < actor->out_count && most > 1; i++)
        if (regst_room(&actor->outs[i].regst) < most)
            most = regst_room(&actor->outs[i].regst);
    return most < (uint64_t)actor->left ? (uint32_t)most : (uint32_t)actor->left;
}

static ALWAYS_INLINE weir_status fire_once(struct lane *lane, struct actor *actor, struct actor_kernel **failed)
{
    weir_status status = call_kernels(actor, failed);
    if (UNLIKELY(status))
        return status;
    actor_next(actor);
    settle_counters(lane, actor, 1);
    return WEIR_OK;
}

/* Firings whose conditions are met from the beginning. Returns how many there were. */
static __attribute__((noinline)) uint32_t fire_many(struct actor *actor, uint32_t row, weir_status *status,
                                                    struct actor_kernel **failed)
{
    uint32_t fired = 0;
    while (fired < row && !(*status = call_kernels(actor, failed))) {
        actor_next(actor);
        fired++;
    }
    if (fired)
        settle_counters(actor->lane, actor, fired);
    return fired;
}

uint32_t actor_fire(struct actor *actor, uint32_t count, weir_status *status, struct actor_kernel **failed)
{
    uint32_t done = 0;
    struct lane *lane = actor->lane;
    if (UNLIKELY(actor->ahead))
        return ahead_fire(actor, count, status, failed);
    do {
        const uint32_t row = actor->rows ? row_length(actor, count - done) : 1;
        if (row > 1)
            done += fire_many(actor, row, status, failed);
        else
            done += !(*status = fire_once(lane, actor, failed));
    } while (done < count && !actor->unmet && LIKELY(!*status));
    if (actor->unmet)
        ready_remove(&lane->ready, actor->rank);
    return done;
}

/* Takes in a READY or FREE from another lane. */
static inline void receive(struct lane *lane, const struct edge_ends *ends, struct message message)
{
    const struct edge_ends *end = &ends[message.edge];
    assert(message.count > 0);
    assert(message.kind == MESSAGE_READY || message.kind == MESSAGE_FREE);
    if (message.kind == MESSAGE_FREE)
        edge_free(lane, end->edge, message.count);
    else if (end->relay)
        relay_ready(end->relay, message.count);
    else
        port_ready(end->port, message.count);
}

/* Whether each of the slots that the message frees had been published to all: then nothing is counted below zero. */
static bool free_fits(const struct actor_edge *edge, uint32_t count)
{
    const struct regst *regst = &edge->out->regst;
    if (regst->readers <= 1)
        return count <= regst->slots - regst->credits;
    uint32_t cursor = edge->cursor;
    for (uint32_t i = 0; i < count; i++, cursor = slot_after(cursor, 1, regst->slots))
        if (i >= regst->slots || !regst->pending[cursor])
            return false;
    return true;
}

/* Whether the branch, or the reader, at this edge has room for so many more slots. */
static bool ready_fits(const struct edge_ends *end, uint32_t count)
{
    if (end->relay)
        return count <= end->relay->regst.credits;
    return !end->port->edge && count <= end->port->reader.slots - end->port->reader.arrived;
}

/* Whether another process may have posted this: the lane owns that end of the edge, messages name it, and there is room for
 * the count. */
static bool message_fits(const struct lane *lane, const struct edge_ends *ends, struct message message)
{
    if (!message.count || message.unused || message.edge >= lane->guard->edge_count || !ends[message.edge].port)
        return false;
    const struct edge_ends *end = &ends[message.edge];
    if (message.kind == MESSAGE_READY)
        return end->port->actor->lane == lane && ready_fits(end, message.count);
    return message.kind == MESSAGE_FREE && end->edge->out->actor->lane == lane && end->edge->ready.end &&
           end->edge->ready.message.edge == message.edge && free_fits(end->edge, message.count);
}

/* After a refusal the session has failed. The rest of the ring can wait: whoever posts nonsense may never stop. */
void lane_drain(struct lane *lane, const struct edge_ends *ends)
{
    struct message message;
    while (mailbox_take(&lane->mailbox, &message)) {
        if (UNLIKELY(lane->guard) && UNLIKELY(!message_fits(lane, ends, message))) {
            lane->guard->refuse(lane->guard, message);
            return;
        }
        receive(lane, ends, message);
    }
}

static uint32_t unmet_now(const struct actor *actor)
{
    uint32_t unmet = (actor->left == 0) + ahead_unmet(actor);
    for (uint32_t i = 0; i < actor->port_count; i++)
        unmet += actor->ports[i].reader.arrived == 0;
    for (uint32_t i = 0; i < actor->out_count; i++)
        unmet += actor->outs[i].regst.credits == 0;
    return unmet;
}

/* Whether its slots hold the tokens of a row that is worth its while, and nothing follows them from firing to firing. */
static bool fires_in_rows(const struct actor *actor)
{
    bool rows = true;
    for (uint32_t i = 0; i < actor->port_count; i++) {
        const struct actor_port *port = &actor->ports[i];
        rows &= !port->patches.count && (uint64_t)port->reader.slots * port->reader.hold >= ROW_MIN;
    }
    for (uint32_t i = 0; i < actor->out_count; i++) {
        const struct actor_out *out = &actor->outs[i];
        rows &= !out->patches.count && (uint64_t)out->regst.slots * out->regst.fill >= ROW_MIN;
    }
    for (uint32_t i = 0; i < actor->kernel_count; i++)
        rows &= !actor->kernels[i].accumulate;
    return rows;
}

void actor_settle(struct actor *actor)
{
    actor->rows = fires_in_rows(actor);
    actor->unmet = unmet_now(actor);
    if (actor->unmet)
        ready_remove(&actor->lane->ready, actor->rank);
    else
        ready_add(&actor->lane->ready, actor->rank);
}

void actor_check(const struct actor *actor)
{
    assert(actor->unmet == unmet_now(actor));
    assert(actor->micro < actor->fires);
    assert(actor->left >= 0);
    for (uint32_t i = 0; i < actor->port_count; i++)
        reader_check(&actor->ports[i].reader);
    for (uint32_t i = 0; i < actor->out_count; i++)
        regst_check(&actor->outs[i].regst);
    (void)actor;
}
