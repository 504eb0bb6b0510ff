/* apps/weir/bench/time_link.h: `weir bench time_link`: predicted beside measured seconds of plans of two processes that pass values, in shared
 * memory and over TCP without and with a key. Kernels spin for a known time of their thread's processor. Nothing is judged: on a
 * machine without idle cores such plans are not steady enough. */
#ifndef APPS_WEIR_BENCH_TIME_LINK_H
#define APPS_WEIR_BENCH_TIME_LINK_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* Takes about half a minute, most of which measures the links. Forks: to be called by a process that has not opened a session. */
weir_status bench_time_link(bool json, bool quick, FILE *to);

#endif
