/* apps/weir/bench/loop.h: `weir bench loop`: from a push to its value in the program's hands.
 *
 * The plan doubles a number on one device. The workers have slept when a value comes, as in a program that serves
 * requests; from push to pull the value wakes a worker, is computed, and wakes the program:
 *
 *     pull_us      which waits in weir_session_pull()
 *     fd_us        which waits in epoll_wait() for weir_session_fd(), asks weir_session_ready() and pulls
 *     sink_us      which waits in epoll_wait() for an eventfd of its own, that a sink writes to
 *     echo_us      the floor: a thread that waits in epoll_wait() is asked by an eventfd and answers by another
 *
 * Each is the median of single ways in turns; NAME_p99_us is what one in a hundred exceeds.
 */
#ifndef APPS_WEIR_BENCH_LOOP_H
#define APPS_WEIR_BENCH_LOOP_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* Runs for a few seconds; writes a JSON object or a table to `to`. */
weir_status bench_loop(bool json, bool quick, FILE *to);

#endif
