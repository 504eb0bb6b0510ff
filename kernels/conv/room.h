/* kernels/conv/room.h: a kernel's workspace, part by part. The same function asks for the parts where the bytes are counted
 * and where the kernel runs, so the two agree.
 *
 *     room r = {args->workspace, 0};                  // counting: {NULL, 0}; then parts are NULL
 *     float *patch = room_take(&r, floats, sizeof *patch);
 *     return r.bytes;
 *
 * Sizes may come from a plan that nobody has checked: counts that no memory can hold become counts that no memory holds.
 * Header-only; any thread.
 */
#ifndef KERNELS_CONV_ROOM_H
#define KERNELS_CONV_ROOM_H

#include <stddef.h>
#include <stdint.h>

static const int64_t ROOM_COUNT_MAX = INT64_C(1) << 46;

typedef struct room {
    char *at; /* aligned to 64; NULL: counts only */
    size_t bytes;
} room;

/* a b, of numbers that are not negative. */
static inline int64_t room_times(int64_t a, int64_t b)
{
    return b && a > ROOM_COUNT_MAX / b ? ROOM_COUNT_MAX : a * b;
}

static inline void *room_take(room *r, int64_t count, size_t each)
{
    const int64_t most = count < ROOM_COUNT_MAX ? count : ROOM_COUNT_MAX;
    char *part = r->at ? r->at + r->bytes : NULL;
    r->bytes += ((size_t)most * each + 63) / 64 * 64;
    return part;
}

#endif
