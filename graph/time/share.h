/* graph/time/share.h: how fast firings go on that are under way on one host: they share its cores and its memory.
 *
 *     cores 2        [ a ][ a'                ]      a' and b: a core each
 *                    [ b                 ]
 *                        [ c             ]           three on two cores: each gets two thirds of one
 *
 * A firing takes `ps` if it is alone. With more firings than cores each gets an equal part of the cores. Beside others it may take
 * longer even on a core of its own: up to `stream_ps` more, by the share of the memory's bandwidth that the others take; and up to
 * `busy_ps` more, by the share of other cores that are busy.
 *
 * Whenever a firing begins or ends, those beside it go on at another speed from then on, which costs a few operations for each.
 * Speeds are whole numbers, and work that is left is in whole picoseconds, rounded up at each change.
 */
#ifndef GRAPH_TIME_SHARE_H
#define GRAPH_TIME_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct share_work {
    uint64_t ps;        /* alone on its host */
    uint64_t stream_ps; /* how much longer beside others that take all the bandwidth, */
    uint64_t busy_ps;   /* and beside arithmetic on all other cores */
    uint64_t bytes;     /* that it moves to and from memory */
} share_work;

typedef struct share_host {
    uint32_t cores;
    uint64_t bytes_s;   /* of the memory, by all cores but one; 0: nobody knows */
} share_host;

/* A firing under way. */
typedef struct shared {
    uint32_t actor;
    share_work work;
    uint64_t left;      /* ps, alone */
    uint64_t pace;      /* so many SHARE_ONEths of a picosecond pass for one of `left` */
} shared;

#define SHARE_ONE (UINT64_C(1) << 40)
#define SHARE_MAX (UINT64_C(1) << 60) /* ps: no firing takes longer */

/* Firings that are under way on one host, in the order in which they began. */
typedef struct share {
    share_host host;
    shared *firings;    /* borrowed: room for all that may be under way at once */
    uint32_t count;
    uint64_t since;     /* when `left` was right */
} share;

/* Brings what is left up to `now`. */
void share_settle(share *s, uint64_t now);

/* A firing begins, now; the share is settled. */
void share_begin(share *s, uint32_t actor, share_work work);

/* Takes out the first firing with nothing left. False: there is none. */
bool share_end(share *s, uint32_t *actor);

/* Chooses speeds for those under way, and returns when the first of them ends at these; UINT64_MAX: there are none. */
uint64_t share_pace(share *s);

#endif
