/* tests/support/meetings.h: plans by hand in which accelerators do things together, and whose values are known by heart.
 *
 * A *lane* is a collective with all that belongs to it, on some of the devices fake:0, fake:1, ...:
 *
 *     source -> copy in -> work 0, 1, ... -> member -> use -> copy out -> sink        on each of its devices
 *
 * There is a work for each input of the member, and work k makes 1 + x + what work k - 1 made, of what the source gave;
 * x is 100 lane + 10 device + the firing, modulo 8. The use makes 1 + the sum of what the member took, and of x if that gave
 * nothing or took nothing. Sinks compare.
 */
#ifndef TESTS_SUPPORT_MEETINGS_H
#define TESTS_SUPPORT_MEETINGS_H

#include <stdatomic.h>

#include "graph/plan/form/plan.h"
#include "tests/support/sdf.h"

enum { MEETINGS_DEVICES = 4, MEETINGS_LANES = 6, MEETINGS_ITEMS = 5, MEETINGS_MOVES = 24 };

typedef struct meetings_lane {
    plan_collective_kind kind;
    uint32_t devices;              /* fake:0 to fake:devices - 1, */
    uint32_t from;                 /* or as many from this one on */
    sdf_move moves[MEETINGS_MOVES];
    uint32_t move_count;
    uint32_t program;              /* 0: main; 1: "other" */
    uint32_t slots;                /* of each register; 0: 1 */
    bool once;                     /* fires once a step, whatever the micro-batches */
} meetings_lane;

/* One of `devices` members with the moves that its kind says: ALL_TO_ALL with an input for each of the others. */
meetings_lane meetings_of(plan_collective_kind kind, uint32_t devices);

/* The orders and the counts of sources and sinks. */
typedef struct meetings {
    const meetings_lane *lane;
    uint32_t lane_count, micro;
    /* In source and sink of a lane and device, before they do what they are for; NULL: nothing. */
    void (*gives)(struct meetings *m, uint32_t lane, uint32_t device, int64_t step, int micro);
    void (*takes)(struct meetings *m, uint32_t lane, uint32_t device, int64_t step, int micro);
    _Atomic int taken[MEETINGS_LANES], wrong;
    /* owned */
    struct meetings_end {
        struct meetings *of;
        uint32_t lane, device;
    } end[MEETINGS_LANES * MEETINGS_DEVICES];
} meetings;

/* The plan, validated and live. m->lane, lane_count and micro are set. `turns`: lanes; none: as sdf_plan() has them. */
weir_plan *meetings_plan(meetings *m, const uint32_t *turns, uint32_t turn_count);

#endif
