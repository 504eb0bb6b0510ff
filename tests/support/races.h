/* tests/support/races.h: which accesses of queues are in no order: a detector of races by vector clocks, for
 * memory that queues share and the order that marks and awaits make.
 *
 *     queue 0:  write A  mark(1)                   races_access(0, A), races_mark(0, 1)
 *     queue 1:           await(0, 1)  read A       races_await(1, 0, 1), races_access(1, A)    in order
 *     queue 2:                        read A       races_access(2, A)                          a race
 *
 * It is told of accesses as they happen, and finds a pair that nothing orders in whichever order it happened. Each
 * queue has a clock of all queues: what of theirs comes before all that it does from now on. A stretch of memory knows
 * who wrote it last, and who has read it since. It remembers the last RACES_MARKS marks of a queue; an older one is
 * taken for the oldest of these, so that a race behind it may be missed, and none is made up.
 *
 * One thread at a time.
 */
#ifndef TESTS_SUPPORT_RACES_H
#define TESTS_SUPPORT_RACES_H

#include <stdbool.h>
#include <stdint.h>

enum { RACES_QUEUES_MAX = 64, RACES_MARKS = 1024 };

struct races;

struct races *races_new(void);
void races_free(struct races *races);

/* The queue does something new: its accesses from here on come after all that it did, and knew of, before. */
void races_step(struct races *races, uint32_t queue);
/* The queue passes its mark `ticket`: 1, 2, ... */
void races_mark(struct races *races, uint32_t queue, uint64_t ticket);
/* The work of `queue` from now on comes after that mark of `other`, which has been passed. 0: no order. */
void races_await(struct races *races, uint32_t queue, uint32_t other, uint64_t ticket);
/* The work of any of these queues from now on comes after all past work of any of them. */
void races_meet(struct races *races, const uint32_t *queues, uint32_t count);
/* `what` is kept, and must live as long as the detector. */
void races_access(struct races *races, uint32_t queue, const void *at, uint64_t bytes, bool writes, const char *what);
/* Forgets accesses to these bytes: they were given back, or everybody waits for their writer. */
void races_forget(struct races *races, const void *at, uint64_t bytes);

/* The first race, as a sentence; "" when none was seen. */
const char *races_found(const struct races *races);

#endif
