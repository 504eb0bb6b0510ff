/* actors/events.h: what happens to an actor's counters, each in O(1): slots have come, or become free, or firings are
 * counted. For those who fire actors (actors/actor.c, actors/ahead.c) alone. By the thread of the actor's lane.
 */
#ifndef ACTORS_EVENTS_H
#define ACTORS_EVENTS_H

#include "actors/actor.h"

/* Its views follow the ring to this slot. */
static inline void slot_follow(const struct slot_patches *patches, uint32_t slot)
{
    for (uint32_t i = 0; i < patches->count; i++)
        *patches->patch[i].data = patches->patch[i].base + slot * patches->stride;
}

/* The reader may read so many more slots. */
static inline void port_ready(struct actor_port *port, uint32_t count)
{
    bool had_none = port->reader.arrived == 0;
    reader_arrive(&port->reader, count);
    if (had_none)
        actor_met(port->actor);
}

/* All readers of a branch may read so many more slots. */
static inline void relay_ready(struct actor_out *relay, uint32_t count)
{
    regst_fire(&relay->regst, count);
    for (uint32_t k = 0; k < relay->edge_count; k++)
        port_ready(relay->edges[k].port, count);
}

/* One reader, or branch, has let go of so many more slots. */
static inline void edge_free(struct lane *lane, struct actor_edge *edge, uint32_t count)
{
    struct actor_out *out = edge->out;
    bool had_none = out->regst.credits == 0;
    count = regst_freed(&out->regst, &edge->cursor, count);
    if (!count)
        return;
    if (UNLIKELY(!out->actor))
        lane_send(lane, &out->edges->port->free, count);
    else if (had_none)
        actor_met(out->actor);
}

/* So many more slots are full: the edge's reader is told. */
static inline void edge_tell(struct lane *lane, struct actor_edge *edge, uint32_t count)
{
    if (edge->port)
        port_ready(edge->port, count);
    else
        lane_send(lane, &edge->ready, count);
}

/* So many more slots are free: the port's producer is told. */
static inline void port_tell(struct lane *lane, struct actor_port *port, uint32_t count)
{
    if (port->edge)
        edge_free(lane, port->edge, count);
    else if (port->free.end)
        lane_send(lane, &port->free, count);
}

/* The actor has fired so often on its port. Returns how many slots it is done with. */
static inline uint32_t port_fired(struct actor_port *port, uint32_t firings)
{
    uint32_t done = reader_fire(&port->reader, firings);
    if (!done)
        return 0;
    port->actor->unmet += port->reader.arrived == 0;
    if (UNLIKELY(port->patches.count))
        slot_follow(&port->patches, port->reader.slot);
    return done;
}

/* The actor has fired so often into its register. Returns how many slots are full. */
static inline uint32_t out_fired(struct actor_out *out, uint32_t firings)
{
    uint32_t full = regst_fire(&out->regst, firings);
    if (!full)
        return 0;
    out->actor->unmet += out->regst.credits == 0;
    if (UNLIKELY(out->patches.count))
        slot_follow(&out->patches, out->regst.slot);
    return full;
}

/* The kernels of a firing have been called: the next one is its. */
static inline void actor_next(struct actor *actor)
{
    actor->firing++;
    if (++actor->micro == actor->fires) {
        actor->micro = 0;
        actor->step++;
    }
}

/* So many firings less to do in this run. */
static inline void actor_counted(struct actor *actor, uint32_t firings)
{
    actor->left -= firings;
    actor->unmet += actor->left == 0;
}

/* Sets the clock of the firing that comes in the kernel's arguments. */
static inline void kernel_prepare(struct actor_kernel *kernel, const struct actor *actor)
{
    kernel->args.firing = actor->firing;
    kernel->args.micro = (int)actor->micro;
    kernel->args.step = actor->step;
    if (kernel->accumulate)
        kernel->args.accumulate = kernel->accumulate->regst.filled != 0;
}

#endif
