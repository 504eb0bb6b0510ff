/* tests/support/races.c: see the header. Memory is cut into stretches where accesses begin and end, kept sorted: a
 * plan's operands have few different ends, so after the first step none is cut any more. */
#include "tests/support/races.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t moment[RACES_QUEUES_MAX];

struct access {
    uint32_t time; /* of the queue's own clock; 0: there was none */
    const char *what;
};

struct stretch {
    uintptr_t start, end;
    uint32_t writer;
    struct access write;
    struct access read[RACES_QUEUES_MAX]; /* since the write */
};

struct queue {
    moment now;
    uint64_t marked;
    moment *marks; /* mark t is at t % RACES_MARKS; owned */
};

struct races {
    struct queue queues[RACES_QUEUES_MAX];
    struct stretch **stretches; /* sorted, none overlaps another */
    size_t count, room;
    char found[320];
};

struct races *races_new(void)
{
    struct races *races = calloc(1, sizeof *races);
    if (!races)
        abort();
    for (uint32_t q = 0; q < RACES_QUEUES_MAX; q++)
        races->queues[q].now[q] = 1;
    return races;
}

void races_free(struct races *races)
{
    if (!races)
        return;
    for (uint32_t q = 0; q < RACES_QUEUES_MAX; q++)
        free(races->queues[q].marks);
    for (size_t i = 0; i < races->count; i++)
        free(races->stretches[i]);
    free(races->stretches);
    free(races);
}

const char *races_found(const struct races *races)
{
    return races->found;
}

/* ---- order ---- */

void races_step(struct races *races, uint32_t queue)
{
    races->queues[queue].now[queue]++;
}

void races_mark(struct races *races, uint32_t queue, uint64_t ticket)
{
    struct queue *q = &races->queues[queue];
    if (!q->marks)
        q->marks = calloc(RACES_MARKS, sizeof *q->marks);
    if (!q->marks)
        abort();
    memcpy(q->marks[ticket % RACES_MARKS], q->now, sizeof q->now);
    q->marked = ticket;
}

void races_await(struct races *races, uint32_t queue, uint32_t other, uint64_t ticket)
{
    const struct queue *from = &races->queues[other];
    uint32_t *now = races->queues[queue].now;
    if (!ticket || other == queue || !from->marks)
        return;
    if (from->marked - ticket >= RACES_MARKS)
        ticket = from->marked - (RACES_MARKS - 1);
    const uint32_t *then = from->marks[ticket % RACES_MARKS];
    for (uint32_t q = 0; q < RACES_QUEUES_MAX; q++)
        now[q] = now[q] < then[q] ? then[q] : now[q];
}

void races_meet(struct races *races, const uint32_t *queues, uint32_t count)
{
    moment all = {0};
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t q = 0; q < RACES_QUEUES_MAX; q++)
            all[q] = all[q] < races->queues[queues[i]].now[q] ? races->queues[queues[i]].now[q] : all[q];
    for (uint32_t i = 0; i < count; i++) {
        memcpy(races->queues[queues[i]].now, all, sizeof all);
        races_step(races, queues[i]);
    }
}

/* ---- memory ---- */

/* The first stretch that ends behind `at`. */
static size_t find(const struct races *races, uintptr_t at)
{
    size_t low = 0, high = races->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (races->stretches[middle]->end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct stretch *insert(struct races *races, size_t at, uintptr_t start, uintptr_t end)
{
    if (races->count == races->room) {
        races->room = 2 * races->room + 64;
        races->stretches = realloc(races->stretches, races->room * sizeof(struct stretch *));
    }
    struct stretch *stretch = calloc(1, sizeof *stretch);
    if (!races->stretches || !stretch)
        abort();
    memmove(races->stretches + at + 1, races->stretches + at, (races->count - at) * sizeof(struct stretch *));
    races->count++;
    races->stretches[at] = stretch;
    stretch->start = start;
    stretch->end = end;
    return stretch;
}

/* After it a stretch begins at `at`, or none covers it. */
static void cut(struct races *races, uintptr_t at)
{
    size_t i = find(races, at);
    if (i == races->count || races->stretches[i]->start >= at)
        return;
    struct stretch *left = races->stretches[i], *right = insert(races, i + 1, 0, 0);
    *right = *left;
    left->end = right->start = at;
}

void races_forget(struct races *races, const void *memory, uint64_t bytes)
{
    uintptr_t start = (uintptr_t)memory, end = start + bytes;
    cut(races, start);
    cut(races, end);
    size_t from = find(races, start), to = from;
    for (; to < races->count && races->stretches[to]->start < end; to++)
        free(races->stretches[to]);
    if (to > from)
        memmove(races->stretches + from, races->stretches + to, (races->count - to) * sizeof(struct stretch *));
    races->count -= to - from;
}

static void tell(struct races *races, const struct stretch *at, const struct access *was, uint32_t other, bool wrote,
                 uint32_t queue, bool writes, const char *what)
{
    if (!races->found[0])
        snprintf(races->found, sizeof races->found,
                 "%s on queue %" PRIu32 " %s %#" PRIxPTR " to %#" PRIxPTR ", which %s on queue %" PRIu32
                 " %s: nothing orders the two",
                 what, queue, writes ? "writes" : "reads", at->start, at->end, was->what, other,
                 wrote ? "wrote" : "has read");
}

static void visit(struct races *races, struct stretch *at, uint32_t queue, bool writes, const char *what)
{
    const uint32_t *now = races->queues[queue].now;
    if (at->write.time > now[at->writer])
        tell(races, at, &at->write, at->writer, true, queue, writes, what);
    if (!writes) {
        at->read[queue] = (struct access){now[queue], what};
        return;
    }
    for (uint32_t q = 0; q < RACES_QUEUES_MAX; q++)
        if (at->read[q].time > now[q])
            tell(races, at, &at->read[q], q, false, queue, true, what);
    memset(at->read, 0, sizeof at->read);
    at->writer = queue;
    at->write = (struct access){now[queue], what};
}

void races_access(struct races *races, uint32_t queue, const void *memory, uint64_t bytes, bool writes,
                  const char *what)
{
    uintptr_t at = (uintptr_t)memory, end = at + bytes;
    if (!bytes)
        return;
    cut(races, at);
    cut(races, end);
    for (size_t i = find(races, at); at < end; i++) {
        bool known = i < races->count && races->stretches[i]->start < end;
        if (!known || races->stretches[i]->start > at)
            insert(races, i, at, known ? races->stretches[i]->start : end);
        visit(races, races->stretches[i], queue, writes, what);
        at = races->stretches[i]->end;
    }
}
