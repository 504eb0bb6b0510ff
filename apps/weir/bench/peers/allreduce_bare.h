/* apps/weir/bench/peers/allreduce_bare.h: the sum of `weir bench allreduce` by hand, by processes that do nothing else: what
 * weir's times stand beside.
 *
 *     bench_bare_shm()   inputs and results lie in shared memory: each adds up its part of all inputs; at a barrier;
 *                        each copies the others' parts
 *     bench_bare_tcp()   the same steps over a socket between each two: each sends every other its part of the terms,
 *                        adds up what came for its own, and sends that to all others. Parts are taken where they are
 *                        to lie, and what has come is the barrier
 *
 * That is reduce-scatter and all-gather; of two processes each sends half and takes half, twice. `seconds` is per sum; a
 * sum begins in a process when the one before has ended there. All of the result is checked.
 */
#ifndef APPS_WEIR_BENCH_ALLREDUCE_BARE_H
#define APPS_WEIR_BENCH_ALLREDUCE_BARE_H

#include "apps/weir/bench/peers/team.h"

/* Every process's term of an element: sums of these are exact. */
static inline float bench_term(int64_t element)
{
    return (float)(1 + element % 61);
}

weir_status bench_bare_shm(const struct bench_round *round, double *seconds);
weir_status bench_bare_tcp(const struct bench_round *round, double *seconds);

#endif
