/* Events of a play against a clock, against a plain list in which the earliest is looked for. */
#include "graph/time/events.h"

#include <criterion/criterion.h>
#include <string.h>
#include <weir/weir.h>

enum { PLAYS = 40, EVENTS = 1000, KINDS = 3 };

typedef struct list {
    heap_event events[EVENTS];
    size_t count;
} list;

static uint64_t drawn(uint64_t key, uint64_t *counter, uint64_t below)
{
    return (uint64_t)(weir_random_uniform(key, (*counter)++) * (float)below);
}

/* Takes the earliest; of several the one that was added first. */
static bool list_take(list *l, uint64_t until, heap_event *event)
{
    size_t first = 0;
    for (size_t i = 1; i < l->count; i++)
        first = l->events[i].time < l->events[first].time ? i : first;
    if (!l->count || l->events[first].time > until)
        return false;
    *event = l->events[first];
    memmove(&l->events[first], &l->events[first + 1], (--l->count - first) * sizeof *l->events);
    return true;
}

/* A message takes one of a few latencies, or any time; then more of them fit behind no run. */
static uint64_t takes(uint64_t key, uint64_t *counter)
{
    const uint64_t latencies = 1 + key % 7;
    return key % 5 ? 10 * drawn(key, counter, latencies) : drawn(key, counter, 50);
}

static void add(events *e, list *l, uint64_t key, uint64_t *counter, uint64_t now)
{
    const bool message = drawn(key, counter, 3) > 0;
    const uint64_t time = now + (message ? takes(key, counter) : drawn(key, counter, 100));
    const uint32_t id = (uint32_t)*counter, kind = id % KINDS;
    cr_assert(message ? events_add_message(e, time, kind, id) : events_add(e, time, kind, id));
    l->events[l->count++] = (heap_event){.time = time, .kind = kind, .id = id};
}

Test(events, come_by_their_time_and_at_one_time_in_the_order_in_which_they_were_added, .timeout = 60)
{
    static list l;
    for (uint64_t key = 1; key <= PLAYS; key++) {
        events e = {.number = 0};
        uint64_t counter = 0, now = 0, added = 0;
        l.count = 0;
        while (added < EVENTS || l.count) {
            for (uint64_t more = drawn(key, &counter, 8); more && added < EVENTS; more--, added++)
                add(&e, &l, key, &counter, now);
            heap_event one = {.time = 0}, other = {.time = 0};
            const uint64_t until = now + drawn(key, &counter, 30);
            const bool any = events_take(&e, until, &one);
            cr_assert_eq(any, list_take(&l, until, &other), "play %d", (int)key);
            cr_assert(!any || (one.time == other.time && one.kind == other.kind && one.id == other.id), "play %d", (int)key);
            cr_assert_eq(events_any(&e), l.count > 0);
            now = any ? one.time : until;
        }
        events_free(&e);
    }
}
