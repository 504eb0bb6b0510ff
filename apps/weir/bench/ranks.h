/* apps/weir/bench/ranks.h: times a plan that is spread over the processes of a bench_team: each opens a session as a
 * rank of a cluster on loopback. */
#ifndef APPS_WEIR_BENCH_RANKS_H
#define APPS_WEIR_BENCH_RANKS_H

#include "apps/weir/bench/peers/team.h"

/* How registers go from rank to rank: in shared memory; over TCP without a key, as what it is held against has none,
 * and with one, as a user's sessions have. */
enum bench_way { BENCH_SHM, BENCH_TCP, BENCH_TCP_KEY };

/* Which of these are measured. */
typedef enum bench_over { BENCH_OVER_ALL, BENCH_OVER_SHM, BENCH_OVER_TCP } bench_over;

struct bench_ranks {
    const weir_plan *plan;    /* borrowed; a device a rank */
    struct bench_round round;
    enum bench_way way;
    int rounds;               /* > 0: in the place of `round`, as bench_timed_run() with these three */
    double guess, short_s;
};

/* Seconds per step, from all ranks' being at rest to their being at rest again; with `rounds`, of a step among many. */
weir_status bench_ranks_run(uint32_t count, const struct bench_ranks *ranks, double *seconds);

#endif
