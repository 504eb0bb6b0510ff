/* tests/support/fake_space.c: the fake device's memory: the CPU's, under addresses that only the device can follow, and
 * pinned memory, under the host's own. */
#include "tests/support/fake_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"

static void *with_bit(const void *at)
{
    return (void *)((uintptr_t)at | FAKE_BIT);
}

void *fake_reach(const void *address)
{
    return (void *)((uintptr_t)address & ~FAKE_BIT);
}

static bool has_bit(const void *at)
{
    return ((uintptr_t)at & FAKE_BIT) != 0;
}

static bool at_work(const struct fake_queue *queue)
{
    return !queue->freed && !queue->aborted && !queue->stuck && (queue->first || queue->running || queue->unmarked);
}

/* No queue of the device may have anything to do. */
static void expect_rest(uint32_t index, const char *what)
{
    for (uint32_t q = 0; q < fake_the->queue_count; q++)
        if (fake_the->queues[q]->head.index == index && at_work(fake_the->queues[q]))
            fake_misuse(fake_the, "%s while queue %" PRIu32 " of fake:%" PRIu32 " is at work", what, q, index);
}

struct fake_space *fake_space_at(const void *address, uint64_t bytes)
{
    const char *at = fake_reach(address);
    for (struct fake_space *space = fake_the->spaces; space; space = space->next)
        if (at >= space->at && bytes <= space->bytes && at <= space->at + (space->bytes - bytes) &&
            has_bit(address) == !space->pinned)
            return space;
    return NULL;
}

static weir_status space_new(uint32_t index, uint64_t bytes, bool pinned, void **made)
{
    struct fake_space *space = calloc(1, sizeof *space);
    void *at = NULL;
    if (!space)
        return error_set(WEIR_E_MEMORY, "no memory for a space of the fake device");
    weir_status status = device_cpu.space_new(NULL, 0, bytes, &at);
    if (status) {
        free(space);
        return status;
    }
    pthread_mutex_lock(&fake_the->lock);
    *space = (struct fake_space){.next = fake_the->spaces, .at = at, .bytes = bytes, .index = index, .pinned = pinned};
    fake_the->spaces = space;
    pthread_mutex_unlock(&fake_the->lock);
    *made = pinned ? at : with_bit(at);
    return WEIR_OK;
}

weir_status fake_space_new(const char *path, uint32_t index, uint64_t bytes, void **space)
{
    (void)path;
    if (index >= FAKE_DEVICES)
        return error_set(WEIR_E_UNSUPPORTED, "there is no fake:%" PRIu32, index);
    return space_new(index, bytes, false, space);
}

weir_status fake_pinned_new(const char *path, uint32_t index, uint64_t bytes, void **space)
{
    (void)path;
    return space_new(index, bytes, true, space);
}

void fake_space_free(void *address, uint64_t bytes)
{
    pthread_mutex_lock(&fake_the->lock);
    struct fake_space **link = &fake_the->spaces, *space = fake_space_at(address, bytes);
    while (*link != space)
        link = &(*link)->next;
    if (!space || space->at != fake_reach(address) || space->bytes != bytes) {
        fake_misuse(fake_the, "a space of %" PRIu64 " bytes at %p is freed that there is not", bytes, address);
        pthread_mutex_unlock(&fake_the->lock);
        return;
    }
    if (!space->pinned)
        expect_rest(space->index, "a space is freed");
    *link = space->next;
    if (fake_the->races)
        races_forget(fake_the->races, space->at, bytes);
    pthread_mutex_unlock(&fake_the->lock);
    device_cpu.space_free(space->at, bytes);
    free(space);
}

/* Where the host copies from or to: `bytes` of the device's at `address`. */
static void *copied(const void *address, uint64_t bytes, const char *what)
{
    pthread_mutex_lock(&fake_the->lock);
    const struct fake_space *space = bytes ? fake_space_at(address, bytes) : NULL;
    if (bytes && !space)
        fake_misuse(fake_the, "%s: no space has %" PRIu64 " bytes at %p", what, bytes, address);
    if (space && !space->pinned)
        expect_rest(space->index, what);
    pthread_mutex_unlock(&fake_the->lock);
    return fake_reach(address);
}

weir_status fake_copy_in(void *to, const void *host, uint64_t bytes)
{
    memcpy(copied(to, bytes, "a copy in"), host, bytes);
    return WEIR_OK;
}

weir_status fake_copy_out(void *host, const void *from, uint64_t bytes)
{
    memcpy(host, copied(from, bytes, "a copy out"), bytes);
    return WEIR_OK;
}
