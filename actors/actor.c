/* actors/actor.c: the state machine. This is the hot path: with empty kernels everything between two firings is here
 * and in actors/worker.c.
 *
 * A slot that is published or freed on the same lane changes the other end's counters on the spot. That the other
 * actor may thereby become ready while this one is still half-way through its bookkeeping does no harm: nothing fires
 * until the lane chooses again.
 */
#include "actors/actor.h"

#include "actors/ahead.h"
#include "actors/events.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* All of a firing but its kernels, and the ready bit. */
static ALWAYS_INLINE void settle_counters(struct lane *lane, struct actor *actor)
{
    assert(actor->unmet == 0 && actor->left > 0);
    struct actor_out *out = actor->outs;
    for (uint32_t i = actor->out_count; i > 0; i--, out++) {
        if (!out_fired(out))
            continue;
        struct actor_edge *edge = out->edges;
        for (uint32_t k = out->edge_count; k > 0; k--)
            edge_tell(lane, edge++);
    }
    struct actor_port *port = actor->ports;
    for (uint32_t i = actor->port_count; i > 0; i--, port++)
        if (port_fired(port))
            port_tell(lane, port);
    actor_counted(actor);
}

void actor_fired(struct actor *actor)
{
    settle_counters(actor->lane, actor);
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

uint32_t actor_fire(struct actor *actor, uint32_t count, weir_status *status, struct actor_kernel **failed)
{
    uint32_t done = 0;
    struct lane *lane = actor->lane;
    if (UNLIKELY(actor->ahead))
        return ahead_fire(actor, count, status, failed);
    do {
        *status = call_kernels(actor, failed);
        if (UNLIKELY(*status))
            return done;
        settle_counters(lane, actor);
    } while (++done < count && !actor->unmet);
    if (actor->unmet)
        ready_remove(&lane->ready, actor->rank);
    return done;
}

/* Takes in a READY or FREE from another lane. */
static inline void receive(const struct edge_ends *ends, struct message message)
{
    assert(message.count > 0);
    assert(message.kind == MESSAGE_READY || message.kind == MESSAGE_FREE);
    if (message.kind == MESSAGE_READY)
        port_ready(ends[message.edge].port, message.count);
    else
        edge_free(ends[message.edge].edge, message.count);
}

/* Whether each of the slots that the message frees had been published to all: then nothing is counted below zero. */
static bool free_fits(const struct actor_edge *edge, uint32_t count)
{
    const struct regst *regst = &edge->out->regst;
    if (regst->readers <= 1)
        return count <= regst->slots - regst->credits;
    uint32_t cursor = edge->cursor;
    for (uint32_t i = 0; i < count; i++, cursor = slot_next(cursor, regst->slots))
        if (i >= regst->slots || !regst->pending[cursor])
            return false;
    return true;
}

/* Whether another process may have posted this: the lane owns that end of the edge, and has room for the count. */
static bool message_fits(const struct lane *lane, const struct edge_ends *ends, struct message message)
{
    if (!message.count || message.unused || message.edge >= lane->guard->edge_count || !ends[message.edge].port)
        return false;
    const struct edge_ends *end = &ends[message.edge];
    const struct regst_reader *reader = &end->port->reader;
    if (message.kind == MESSAGE_READY)
        return end->port->actor->lane == lane && message.count <= reader->slots - reader->arrived;
    return message.kind == MESSAGE_FREE && end->edge->out->actor->lane == lane &&
           free_fits(end->edge, message.count);
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
        receive(ends, message);
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

void actor_settle(struct actor *actor)
{
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
