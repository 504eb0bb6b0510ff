/* actors/events.h: what happens to an actor's counters, each in O(1): a slot has come, or become free, or a firing is
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

/* One reader has let go of so many more slots. */
static inline void edge_free(struct actor_edge *edge, uint32_t count)
{
    struct actor_out *out = edge->out;
    bool had_none = out->regst.credits == 0;
    if (regst_freed(&out->regst, &edge->cursor, count) && had_none)
        actor_met(out->actor);
}

/* The edge's newest slot is full: its reader is told. */
static inline void edge_tell(struct lane *lane, struct actor_edge *edge)
{
    if (edge->port)
        port_ready(edge->port, 1);
    else
        lane_send(lane, &edge->ready);
}

/* The port's oldest slot is free: its producer is told. */
static inline void port_tell(struct lane *lane, struct actor_port *port)
{
    if (port->edge)
        edge_free(port->edge, 1);
    else if (port->free.end)
        lane_send(lane, &port->free);
}

/* The actor has fired on its port. True: it is done with the slot. */
static inline bool port_fired(struct actor_port *port)
{
    if (!reader_fire(&port->reader))
        return false;
    port->actor->unmet += port->reader.arrived == 0;
    if (UNLIKELY(port->patches.count))
        slot_follow(&port->patches, port->reader.slot);
    return true;
}

/* The actor has fired into its register. True: the slot is full. */
static inline bool out_fired(struct actor_out *out)
{
    if (!regst_fire(&out->regst))
        return false;
    out->actor->unmet += out->regst.credits == 0;
    if (UNLIKELY(out->patches.count))
        slot_follow(&out->patches, out->regst.slot);
    return true;
}

/* One firing less to do in this run. */
static inline void actor_counted(struct actor *actor)
{
    actor->firing++;
    if (++actor->micro == actor->fires) {
        actor->micro = 0;
        actor->step++;
    }
    actor->unmet += --actor->left == 0;
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
