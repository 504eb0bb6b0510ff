/* tests/support/fake_board.h: where the members of the fake accelerator's groups leave word for each other, and what they
 * give: memory that the processes of a test share, or one process's own.
 *
 *     group:   member 0   arrived 7, at collective 3   posted 6   region: to 1, 64 bytes; to 2, 64 bytes; the bytes
 *              member 1   arrived 6                    posted 6   region: ...
 *
 * Of each member: its newest meeting that has come to the head of its queue, which collective that is, and the newest one
 * whose gives lie in its region. A member posts meeting k when all have arrived at it, and they arrive at k + 1 when they
 * have taken what was posted for k; so a region is written when nobody reads it. Words are atomic, and what a word tells of
 * is written before it: no lock is held, and a process that is killed holds up nobody.
 */
#ifndef TESTS_SUPPORT_FAKE_BOARD_H
#define TESTS_SUPPORT_FAKE_BOARD_H

#include <pthread.h>

#include "tests/support/fake.h"

enum { BOARD_GROUPS_MAX = 128, BOARD_MEMBERS_MAX = 64 };

/* A member's gift to another one; its bytes lie behind the list, in its order. */
struct board_give {
    uint32_t peer;
    uint64_t bytes;
};

struct board_place {
    _Atomic uint64_t arrived; /* at so many meetings; stored with release, read with acquire, as is `posted` */
    _Atomic uint64_t what;    /* the collective that it arrived at: number, kind */
    _Atomic uint64_t posted;
    uint64_t at, room;        /* its region: an offset in the board, and bytes there */
    uint32_t give_count;      /* in the region */
    bool taken;               /* there is such a member; under the board's lock */
};

struct board_group {
    struct device_group_id id;
    uint32_t count, taken;    /* members, and those that there are; 0 of these: the place on the board is free */
    struct board_place place[BOARD_MEMBERS_MAX];
};

struct fake_board {
    pthread_mutex_t lock;     /* of what is of no meeting; robust */
    uint64_t bytes;
    _Atomic uint64_t top;     /* where regions are made */
    struct board_group groups[BOARD_GROUPS_MAX];
};

/* Makes the caller the member `place`. NULL, and why: there is one, or no room. */
struct board_group *board_join(struct fake_board *board, const struct device_group_id *id, uint32_t place, uint32_t count,
                               const char **why);
void board_leave(struct fake_board *board, struct board_group *group, uint32_t place);

/* A region of at least so many bytes, for what the member gives next; NULL: the board is full. */
void *board_region(struct fake_board *board, struct board_place *place, uint64_t bytes);

/* Where give `i` of a member lies, once it is posted. */
const void *board_given(const struct fake_board *board, const struct board_place *place, uint32_t i,
                        struct board_give *give);

#endif
