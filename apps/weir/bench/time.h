/* apps/weir/bench/time.h: `weir bench time`: predicted beside measured seconds of plans whose kernels spin for a known time of
 * their thread's processor, so that nothing but the plan decides how long a step takes. Each plan is also predicted with something
 * wrong; at least one plan must then be off by more than the bound, or the comparison would show nothing. */
#ifndef APPS_WEIR_BENCH_TIME_H
#define APPS_WEIR_BENCH_TIME_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* E_KERNEL: a prediction is off by more than 3 %, or a wrong one by less. */
weir_status bench_time(bool json, bool quick, FILE *to);

#endif
