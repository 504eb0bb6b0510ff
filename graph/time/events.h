/* graph/time/events.h: what is still to happen in a play against a clock, the earliest first; at one time in the order in which it was
 * added. Header-only; one thread.
 *
 * Messages that take equally long arrive in the order in which they were sent. So messages wait in *runs*: rings in which each event
 * is no earlier than the one before it. An event that fits behind no run's last one goes to a heap, as all do that are not messages.
 *
 *     heap     ends of firings, as many as there are workers
 *     run 0    [ 200 | 200 | 210 | 230 ]      messages between workers
 *     run 1    [ 410 | 460 ]                  messages between processes
 */
#ifndef GRAPH_TIME_EVENTS_H
#define GRAPH_TIME_EVENTS_H

#include "graph/plan/prove/heap.h"

enum { EVENTS_RUNS = 4 };

typedef struct events_run {
    heap_event *ring;      /* owned */
    size_t first, count, room; /* room: 0 or a power of two */
} events_run;

typedef struct events {
    heap heap;             /* owned, as all runs */
    events_run run[EVENTS_RUNS];
    uint32_t runs;         /* that have been used */
    uint64_t number;       /* of the next event: what comes first at one time */
} events;

static inline heap_event *events_at(const events_run *r, size_t i)
{
    return &r->ring[(r->first + i) & (r->room - 1)];
}

static inline bool events_grow(events_run *r)
{
    const size_t room = r->room ? 2 * r->room : 256;
    heap_event *ring = (heap_event *)malloc(room * sizeof *ring);
    if (!ring)
        return false;
    for (size_t i = 0; i < r->count; i++)
        ring[i] = *events_at(r, i);
    free(r->ring);
    *r = (events_run){ring, 0, r->count, room};
    return true;
}

/* False: no memory. */
static inline bool events_add(events *e, uint64_t time, uint32_t kind, uint32_t id)
{
    return heap_push(&e->heap, (heap_event){time, e->number++, kind, id});
}

/* The same, of a message. False: no memory. */
static inline bool events_add_message(events *e, uint64_t time, uint32_t kind, uint32_t id)
{
    for (uint32_t i = 0; i < EVENTS_RUNS; i++) {
        events_run *r = &e->run[i];
        if (r->count && events_at(r, r->count - 1)->time > time)
            continue;
        if (r->count == r->room && !events_grow(r))
            return false;
        e->runs = i < e->runs ? e->runs : i + 1;
        *events_at(r, r->count++) = (heap_event){time, e->number++, kind, id};
        return true;
    }
    return events_add(e, time, kind, id);
}

/* Takes the first event, unless it is later than `until`. False: there is none. */
static inline bool events_take(events *e, uint64_t until, heap_event *event)
{
    const heap_event *first = e->heap.count ? e->heap.events : NULL;
    events_run *from = NULL;
    for (events_run *r = e->run; r < e->run + e->runs; r++)
        if (r->count && (!first || heap_earlier(events_at(r, 0), first))) {
            first = events_at(r, 0);
            from = r;
        }
    if (!first || first->time > until)
        return false;
    if (!from) {
        *event = heap_pop(&e->heap);
        return true;
    }
    *event = *first;
    from->first++;
    from->count--;
    return true;
}

static inline bool events_any(const events *e)
{
    bool any = e->heap.count > 0;
    for (uint32_t i = 0; i < e->runs; i++)
        any |= e->run[i].count > 0;
    return any;
}

static inline void events_free(events *e)
{
    free(e->heap.events);
    for (uint32_t i = 0; i < e->runs; i++)
        free(e->run[i].ring);
    *e = (events){.number = 0};
}

#endif
