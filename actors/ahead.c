/* actors/ahead.c: see the header.
 *
 * A completion thread that wakes lanes was left out: the `done` words of a device lie in memory that nothing but a load
 * tells of, so it would poll as a lane does that has nothing to fire, and wake that lane besides.
 *
 * AHEAD_WITHOUT() leaves out one of the rules; the suite that includes this file shows that each is needed.
 */
#include "actors/ahead.h"

#include "actors/events.h"
#include "transport/mail/park.h"

#ifndef AHEAD_WITHOUT
#define AHEAD_WITHOUT(rule) false
#endif

static uint64_t queue_done(const struct ahead_queue *queue)
{
    /* acquire: pairs with the device's store; what came before the mark is visible */
    return atomic_load_explicit(queue->device->done, memory_order_acquire);
}

/* The newest mark that another queue may await. */
static uint64_t queue_put(const struct ahead_queue *queue)
{
    /* acquire: pairs with the device's store; its event is there */
    return queue->device->put ? atomic_load_explicit(queue->device->put, memory_order_acquire) : queue->device->marked;
}

/* ---- before a firing ---- */

static weir_status await_ticket(struct ahead_queue *queue, const struct ahead_edge *edge, struct ahead_queue *other,
                                uint64_t ticket)
{
    uint64_t *known = &queue->known[other->number];
    if (ticket <= *known + (AHEAD_WITHOUT(SKIP) ? 1 : 0))
        return WEIR_OK;
    if (ticket > queue_done(other)) {
        weir_status status = queue->device->device->await(queue->device, other->device, ticket);
        if (status)
            return status;
        queue->awaits[queue->await_count++ % AHEAD_AWAITS] =
            (struct ahead_await){queue->device->marked + 1, edge, other, ticket};
    }
    *known = ticket;
    return WEIR_OK;
}

static weir_status await_all(const struct actor *actor)
{
    const struct actor_ahead *ahead = actor->ahead;
    struct ahead_edge *const *edge = ahead->in;
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < actor->port_count; p++, edge++)
        if (ahead_has_tickets((*edge)->ready) && !AHEAD_WITHOUT(WROTE))
            status = await_ticket(ahead->queue, *edge, (*edge)->producer, (*edge)->wrote[actor->ports[p].reader.slot]);
    edge = ahead->out;
    for (uint32_t o = 0; o < actor->out_count; o++)
        for (uint32_t k = 0; !status && k < actor->outs[o].edge_count; k++, edge++)
            if (ahead_has_tickets((*edge)->free) && !AHEAD_WITHOUT(READ))
                status = await_ticket(ahead->queue, *edge, (*edge)->reader, (*edge)->read[actor->outs[o].regst.slot]);
    return status;
}

/* For another firing. A launch is remembered until it is retired. */
static bool has_room(const struct ahead_queue *queue, const struct actor *actor)
{
    const struct device_queue *device = queue->device;
    bool kernels = !device->kernels_max || !queue->kernels || queue->kernels + actor->kernel_count <= device->kernels_max;
    return (kernels && device->marked - queue->retired < device->marks_max) || AHEAD_WITHOUT(ROOM);
}

/* It goes on when a mark has passed. */
static void crowd(struct actor *actor)
{
    struct ahead_queue *queue = actor->ahead->queue;
    actor->ahead->crowded = true;
    actor->ahead->next = queue->crowded;
    queue->crowded = actor;
    if (actor->unmet++ == 0)
        ready_remove(&actor->lane->ready, actor->rank);
}

bool ahead_crowds(struct actor *actor)
{
    if (!actor->ahead || has_room(actor->ahead->queue, actor))
        return false;
    crowd(actor);
    return true;
}

static void uncrowd(struct ahead_queue *queue)
{
    while (queue->crowded) {
        struct actor *actor = queue->crowded;
        queue->crowded = actor->ahead->next;
        actor->ahead->crowded = false;
        actor_met(actor);
    }
}

/* ---- turns ---- */

static struct actor *head_of(const struct ahead_turns *turns)
{
    return turns->list[turns->at];
}

bool ahead_waits_turn(const struct actor *actor)
{
    const struct ahead_turns *turns = actor->ahead ? actor->ahead->turns : NULL;
    return turns && head_of(turns) != actor && !AHEAD_WITHOUT(TURN);
}

uint32_t ahead_unmet(const struct actor *actor)
{
    return actor->ahead ? (uint32_t)actor->ahead->crowded + ahead_waits_turn(actor) : 0;
}

/* The actor has fired. */
static void pass_turn(struct actor *actor)
{
    struct ahead_turns *turns = actor->ahead->turns;
    if (!turns || AHEAD_WITHOUT(TURN))
        return;
    assert(head_of(turns) == actor);
    turns->at = turns->at + 1 < turns->count ? turns->at + 1 : 0;
    if (head_of(turns) == actor)
        return;
    actor->unmet++;
    actor_met(head_of(turns));
}

/* ---- what kernels refuse ---- */

/* As which a kernel of a firing refuses: the place of its ticket in the ring, and which of the actor's it is. */
static uint64_t call_of(const struct device_queue *queue, uint64_t ticket, uint32_t kernel)
{
    return 1 + ticket % queue->marks_max + kernel * queue->marks_max;
}

static uint64_t refused_call(const struct device_queue *queue)
{
    /* relaxed: it was there before the mark that was seen with acquire */
    return queue->refusal ? __atomic_load_n(&queue->refusal->call, __ATOMIC_RELAXED) : 0;
}

static bool any_refused(const struct ahead_lane *ahead)
{
    for (uint32_t i = 0; i < ahead->all_count; i++)
        if (UNLIKELY(refused_call(ahead->all[i]->device)))
            return true;
    return false;
}

const struct ahead_launch *ahead_refused(const struct ahead_lane *ahead, struct actor_kernel **kernel,
                                         weir_refusal *refusal)
{
    for (uint32_t i = 0; i < ahead->count; i++) {
        const struct ahead_queue *queue = ahead->queues[i];
        uint64_t call = refused_call(queue->device), room = queue->device->marks_max, ticket = queue->retired + 1;
        if (!call)
            continue;
        while (ticket % room != (call - 1) % room)
            ticket++;
        if (ticket > queue_done(queue))
            continue;
        const struct ahead_launch *launch = &queue->launched[ticket % room];
        uint64_t which = (call - 1) / room, count = launch->actor->kernel_count;
        *kernel = &launch->actor->kernels[which < count ? which : 0]; /* a program's kernel may say anything */
        *refusal = (weir_refusal){call, __atomic_load_n(&queue->device->refusal->least, __ATOMIC_RELAXED)};
        return launch;
    }
    return NULL;
}

/* ---- a firing ---- */

static weir_status launch(struct device_queue *queue, const struct device_meeting *meeting,
                          const struct actor_kernel *kernel)
{
    if (meeting)
        return queue->device->meet(queue, meeting, &kernel->args);
    return queue->device->launch ? queue->device->launch(queue, kernel->call, &kernel->args) : kernel->call(&kernel->args);
}

static weir_status launch_many(struct device_queue *queue, const struct actor_kernel *first)
{
    const weir_kernel_args *args[DEVICE_JOINED_MAX];
    for (uint32_t i = 0; i < first->joined; i++)
        args[i] = &first[i].args;
    return queue->device->launch_many(queue, first->call, args, first->joined);
}

static weir_status launch_kernels(struct actor *actor, struct actor_kernel **failed)
{
    struct device_queue *queue = actor->ahead->queue->device;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0, next; i < actor->kernel_count && !status; i = next) {
        struct actor_kernel *kernel = &actor->kernels[i];
        next = i + (kernel->joined ? kernel->joined : 1);
        for (uint32_t k = i; k < next; k++) {
            kernel_prepare(&actor->kernels[k], actor);
            actor->kernels[k].args.call = call_of(queue, queue->marked + 1, k);
        }
        status = kernel->joined ? launch_many(queue, kernel) : launch(queue, actor->ahead->meeting, kernel);
        if (status)
            *failed = kernel;
    }
    return status;
}

static void ring_add(struct ahead_ring *ring, struct ahead_message message)
{
    assert(ring->end - ring->first < ring->room);
    ring->of[ring->end++ % ring->room] = message;
}

/* Sends one, or keeps it until its time. `ticket_at`: where the other end finds the ticket. */
static void deliver_or_keep(struct lane *lane, struct ahead_queue *queue, enum ahead_delivery delivery, struct ahead_message message,
                         uint64_t *ticket_at)
{
    assert(ticket_at || !ahead_has_tickets(delivery));
    if (ticket_at)
        *ticket_at = message.ticket;
    if (delivery == AHEAD_LATE && !AHEAD_WITHOUT(LATE))
        ring_add(&queue->late, message);
    else if (delivery == AHEAD_PUT && !AHEAD_WITHOUT(PUT))
        ring_add(&queue->put, message);
    else if (message.edge)
        edge_tell(lane, message.edge, 1);
    else
        port_tell(lane, message.port, 1);
}

static void tell_reader(struct lane *lane, struct ahead_queue *queue, const struct ahead_edge *ahead,
                        struct actor_edge *edge, uint32_t slot, uint64_t ticket)
{
    deliver_or_keep(lane, queue, ahead->ready, (struct ahead_message){.ticket = ticket, .edge = edge},
                 ahead->wrote ? &ahead->wrote[slot] : NULL);
}

static void tell_producer(struct lane *lane, struct ahead_queue *queue, const struct ahead_edge *ahead,
                          struct actor_port *port, uint32_t slot, uint64_t ticket)
{
    enum ahead_delivery delivery = ahead->free == AHEAD_LATE && AHEAD_WITHOUT(FREE) ? AHEAD_NOW : ahead->free;
    deliver_or_keep(lane, queue, delivery, (struct ahead_message){.ticket = ticket, .port = port},
                 ahead->read ? &ahead->read[slot] : NULL);
}

/* All of a firing but its kernels, and the ready bit. */
static void tell_all(struct actor *actor, uint64_t ticket)
{
    struct ahead_queue *queue = actor->ahead->queue;
    struct ahead_edge *const *edge = actor->ahead->out;
    for (uint32_t o = 0; o < actor->out_count; edge += actor->outs[o++].edge_count) {
        struct actor_out *out = &actor->outs[o];
        uint32_t slot = out->regst.slot;
        if (out_fired(out, 1))
            for (uint32_t k = 0; k < out->edge_count; k++)
                tell_reader(actor->lane, queue, edge[k], &out->edges[k], slot, ticket);
    }
    for (uint32_t p = 0; p < actor->port_count; p++) {
        struct actor_port *port = &actor->ports[p];
        uint32_t slot = port->reader.slot;
        if (port_fired(port, 1))
            tell_producer(actor->lane, queue, actor->ahead->in[p], port, slot, ticket);
    }
    actor_next(actor);
    actor_counted(actor, 1);
    pass_turn(actor);
}

static weir_status fire_once(struct actor *actor, struct actor_kernel **failed)
{
    struct ahead_queue *queue = actor->ahead->queue;
    assert(actor->unmet == 0 && actor->left > 0);
    *failed = NULL;
    weir_status status = await_all(actor);
    if (!status)
        status = launch_kernels(actor, failed);
    if (!status)
        status = queue->device->device->mark(queue->device);
    if (status)
        return status;
    uint64_t ticket = queue->device->marked;
    queue->kernels += actor->kernel_count;
    queue->launched[ticket % queue->device->marks_max] = (struct ahead_launch){actor, actor->firing, park_now_ns()};
    tell_all(actor, ticket);
    return WEIR_OK;
}

uint32_t ahead_fire(struct actor *actor, uint32_t count, weir_status *status, struct actor_kernel **failed)
{
    const struct ahead_queue *queue = actor->ahead->queue;
    uint32_t done = 0;
    *status = WEIR_OK;
    while (done < count && !actor->unmet) {
        if (!has_room(queue, actor)) {
            crowd(actor);
            return done;
        }
        *status = fire_once(actor, failed);
        if (*status)
            return done;
        done++;
    }
    if (actor->unmet)
        ready_remove(&actor->lane->ready, actor->rank);
    return done;
}

/* ---- what has passed ---- */

/* Those whose mark is no newer. Returns whether there was one. */
static bool ring_tell(struct ahead_ring *ring, uint64_t newest)
{
    uint64_t first = ring->first;
    while (ring->first < ring->end) {
        const struct ahead_message *message = &ring->of[ring->first % ring->room];
        if (message->ticket > newest)
            break;
        ring->first++;
        if (message->edge)
            edge_tell(message->edge->out->actor->lane, message->edge, 1);
        else
            port_tell(message->port->actor->lane, message->port, 1);
    }
    return ring->first != first;
}

static bool ring_waits(const struct ahead_ring *ring, uint64_t newest)
{
    return ring->first < ring->end && ring->of[ring->first % ring->room].ticket <= newest;
}

/* By the device's own clock, or by when the host saw it. */
static void retire(struct ahead_queue *queue, uint64_t ticket, int64_t now, struct trace *trace)
{
    const struct device_ops *device = queue->device->device;
    const struct ahead_launch *launch = &queue->launched[ticket % queue->device->marks_max];
    struct actor *actor = launch->actor;
    queue->kernels -= actor->kernel_count;
    int64_t start = launch->ns > queue->retired_ns ? launch->ns : queue->retired_ns, end = now;
    if (!device->times || !device->times(queue->device, ticket, &start, &end))
        queue->retired_ns = now;
    end = end > start ? end : start;
    actor->busy_ns += end - start;
    if (trace)
        trace_add(trace, (struct trace_event){.start_ns = start,
                                              .ns = end - start,
                                              .step = launch->firing / actor->fires,
                                              .micro = (uint32_t)(launch->firing % actor->fires),
                                              .actor = actor->id});
}

bool ahead_poll(const struct ahead_lane *ahead, struct trace *trace)
{
    bool any = false;
    for (uint32_t i = 0; i < ahead->count; i++) {
        struct ahead_queue *queue = ahead->queues[i];
        uint64_t done = queue_done(queue);
        any |= ring_tell(&queue->put, queue_put(queue));
        if (done == queue->retired)
            continue;
        if (any_refused(ahead))
            return true;
        int64_t now = park_now_ns();
        any = true;
        while (queue->retired < done)
            retire(queue, ++queue->retired, now, trace);
        ring_tell(&queue->late, done);
        uncrowd(queue);
    }
    return any;
}

bool ahead_passed(const struct ahead_lane *ahead)
{
    for (uint32_t i = 0; i < ahead->count; i++) {
        const struct ahead_queue *queue = ahead->queues[i];
        /* relaxed: ahead_poll() looks again */
        if (atomic_load_explicit(queue->device->done, memory_order_relaxed) != queue->retired ||
            ring_waits(&queue->put, queue_put(queue)))
            return true;
    }
    return false;
}

uint32_t ahead_launched(const struct actor *actor)
{
    const struct ahead_launch *launch = NULL;
    uint32_t count = 0;
    for (uint64_t n = 0; actor->ahead && (launch = ahead_under_way(actor->ahead->queue, n)); n++)
        count += launch->actor == actor;
    return count;
}

bool ahead_awaits(const struct ahead_queue *queue, const struct ahead_await **found)
{
    uint64_t first = queue->await_count > AHEAD_AWAITS ? queue->await_count - AHEAD_AWAITS : 0;
    *found = NULL;
    if (first && queue->awaits[first % AHEAD_AWAITS].mark > queue->retired + 1)
        return false;
    for (uint64_t i = first; i < queue->await_count; i++) {
        const struct ahead_await *await = &queue->awaits[i % AHEAD_AWAITS];
        if (await->mark == queue->retired + 1 && await->ticket > queue_done(await->other))
            *found = await;
    }
    return true;
}

bool ahead_rests(const struct ahead_lane *ahead)
{
    for (uint32_t i = 0; i < ahead->count; i++)
        if (ahead->queues[i]->retired != ahead->queues[i]->device->marked)
            return false;
    return true;
}

static bool waits_for_other(const struct ahead_queue *queue)
{
    const struct ahead_await *await;
    return ahead_awaits(queue, &await) && await;
}

struct ahead_queue *ahead_unwell(const struct ahead_lane *ahead, weir_status *status, char *error, size_t error_bytes)
{
    struct ahead_queue *found = NULL;
    for (uint32_t i = 0; i < ahead->count; i++) {
        struct ahead_queue *queue = ahead->queues[i];
        bool waits = waits_for_other(queue);
        if (queue->retired == queue->device->marked || !queue->device->device->health || (found && waits))
            continue;
        weir_status is = queue->device->device->health(queue->device, error, error_bytes);
        if (!is)
            continue;
        found = queue;
        *status = is;
        if (!waits)
            break;
    }
    return found;
}

static void abort_queues(const struct ahead_lane *ahead, bool collective)
{
    for (uint32_t i = 0; i < ahead->count; i++) {
        struct device_queue *queue = ahead->queues[i]->device;
        if ((queue->kind == DEVICE_COLLECTIVE) == collective)
            queue->device->abort(queue);
    }
}

/* Collectives first, as others await them. */
void ahead_abort(const struct ahead_lane *ahead)
{
    abort_queues(ahead, true);
    abort_queues(ahead, false);
}
