/* apps/weir/bench/allreduce.h: `weir bench allreduce`: a partial sum on one CPU device per process becomes the whole
 * sum on each (P -> B), f32, beside bare loops over shared memory and over sockets (allreduce_bare.h).
 *
 *     bare_us          processes that spin at barriers: each adds up its part of all inputs; each copies the others'
 *     bare_tcp_us      the same by processes with a socket between each two: each sends the others their parts, adds up
 *                      its own and sends that to all
 *     shm_us, tcp_us   weir: a step begins on a device when the one before has ended there, as calls of MPI do
 *     tcp_key_us       the same over TCP with a key, as a user's sessions have one; tcp_us is without
 *     ..._steady_us    weir: per step of many that may overlap as far as the slots let them
 *     shm_of_bare      shm_us / bare_us
 *     tcp_of_bare      tcp_us / bare_tcp_us
 *     tcp_key_of_bare  tcp_key_us / bare_tcp_us
 *
 * The terms are constant: each process wrote its own once, before what is timed. The first steps check the sums. Each figure
 * is the median of several rounds, and those of different things alternate; a ratio is the median of the rounds' ratios.
 */
#ifndef APPS_WEIR_BENCH_ALLREDUCE_H
#define APPS_WEIR_BENCH_ALLREDUCE_H

#include <stdio.h>

#include "apps/weir/bench/ranks.h"

/* Bytes of a sum. */
enum { BENCH_ALLREDUCE_SIZES = 5, BENCH_ALLREDUCE_QUICK_SIZES = 3 };
extern const size_t bench_allreduce_sizes[BENCH_ALLREDUCE_SIZES];

typedef struct bench_allreduce_opts {
    int ranks, bytes;              /* so many alone; 0: several of each */
    bench_over over;
} bench_allreduce_opts;

/* Runs for some minutes, or some seconds when `quick`; writes a JSON object or a table to `to`. Forks: to be called
 * by a process that has not opened a session. */
weir_status bench_allreduce_with(const bench_allreduce_opts *opts, bool json, bool quick, FILE *to);
weir_status bench_allreduce(bool json, bool quick, FILE *to);

#endif
