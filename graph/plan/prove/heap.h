/* graph/plan/prove/heap.h: events of a play against a clock, the earliest first. Header-only; one thread. */
#ifndef GRAPH_PLAN_PROVE_HEAP_H
#define GRAPH_PLAN_PROVE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct heap_event {
    uint64_t time, tie; /* at one time the one of the lower `tie` comes first */
    uint32_t kind, id;  /* the player's own */
} heap_event;

typedef struct heap {
    heap_event *events; /* owned: free(); the first is the earliest */
    size_t count, room;
} heap;

static inline bool heap_earlier(const heap_event *a, const heap_event *b)
{
    return a->time != b->time ? a->time < b->time : a->tie < b->tie;
}

/* False: no memory. */
static inline bool heap_push(heap *h, heap_event e)
{
    if (h->count == h->room) {
        const size_t room = h->room ? 2 * h->room : 256;
        heap_event *events = (heap_event *)realloc(h->events, room * sizeof *events);
        if (!events)
            return false;
        h->events = events;
        h->room = room;
    }
    size_t i = h->count++;
    for (; i && heap_earlier(&e, &h->events[(i - 1) / 2]); i = (i - 1) / 2)
        h->events[i] = h->events[(i - 1) / 2];
    h->events[i] = e;
    return true;
}

/* There is one. */
static inline heap_event heap_pop(heap *h)
{
    const heap_event first = h->events[0], last = h->events[--h->count];
    size_t i = 0;
    for (size_t child = 1; child < h->count; i = child, child = 2 * i + 1) {
        child += child + 1 < h->count && heap_earlier(&h->events[child + 1], &h->events[child]);
        if (!heap_earlier(&h->events[child], &last))
            break;
        h->events[i] = h->events[child];
    }
    h->events[i] = last;
    return first;
}

#endif
