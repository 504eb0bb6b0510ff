/* apps/weir/bench/time.h: `weir bench time`: predicted beside measured seconds of plans whose kernels spin for a known time of
 * their thread's processor, so that nothing but the plan decides how long a step takes.
 *
 *     plans      a step takes as long as predicted, within 3 %; also of two processes that share memory
 *     changes    one op becomes slower: a step takes longer by as much as predicted with "speed(OP)=", within 3 % of the step
 *     traces     firings take as long as predicted: the weighted mean error is at most 6 %
 *     pairs      plans that are more than 5 % apart are predicted in the right order, 97 of 100 pairs
 *
 * Each plan is also predicted with something wrong, each change told for another op; at least one must then be off by more than the
 * bound, or the comparison would show nothing. */
#ifndef APPS_WEIR_BENCH_TIME_H
#define APPS_WEIR_BENCH_TIME_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* Takes one to two minutes, at real-time priority (chrt -f 50). Forks: to be called
 * by a process that has not opened a session. E_KERNEL: a prediction is off by more than its bound, or all wrong ones by
 * less. */
weir_status bench_time(bool json, bool quick, FILE *to);

#endif
