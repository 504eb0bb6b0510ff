/* apps/weir/bench/time_link.h: predicted beside measured seconds of plans of two processes that pass values. Kernels spin for a known time of
 * their thread's processor.
 *
 * `weir bench time` judges plans whose processes share memory. `weir bench time_link` passes values over TCP without and with a key, and
 * judges nothing: on a machine without idle cores such plans are not steady enough.
 */
#ifndef APPS_WEIR_BENCH_TIME_LINK_H
#define APPS_WEIR_BENCH_TIME_LINK_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

enum { BENCH_SHARED = 4, BENCH_SHARED_ROUNDS = 15 /* mostly three are enough */ };

/* A plan of two processes that share memory. */
typedef struct bench_shared {
    const char *name;
    weir_plan *plan;       /* owned */
    double measured;       /* seconds of a step */
} bench_shared;

/* Measures BENCH_SHARED plans, in at most `rounds` (BENCH_SHARED_ROUNDS) rounds each, and how long a message takes between processes. To be freed also after a failure. Forks: to be called by a
 * process that has no other threads. */
weir_status bench_shared_measure(bench_shared *all, weir_rates *rates, int rounds);
void bench_shared_free(bench_shared *all);

/* Seconds of a step, or of one with a slot more of each register. */
weir_status bench_shared_predict(const bench_shared *one, const weir_rates *rates, bool slot_more, double *seconds);

/* Takes about a minute, half of which measures the links. Forks, as the above. */
weir_status bench_time_link(bool json, bool quick, FILE *to);

#endif
