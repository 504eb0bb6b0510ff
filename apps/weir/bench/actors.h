/* apps/weir/bench/actors.h: `weir bench actors`: what passing a token costs, beside what the machine itself needs
 * for it.
 *
 *     chain8_1w_ns      a chain of 8 actors with empty kernels on one worker: time per token and actor
 *     raw_ring_ns       the same work by hand: rings of the same size and one indirect call per stage, one thread
 *     chain8_2w_ns      the chain on two workers, neighbours on different ones, so that every edge crosses
 *     pingpong_ns       two actors on two workers, one slot between them: from firing to firing of the first
 *     raw_pingpong_ns   two threads that spin on two rings, each with one producer and one consumer
 *     raw_handoff_ns    the same with a single word each way instead of a ring: the floor
 *
 * Each is the median of several rounds; the rounds of a thing and of what it is held against alternate.
 */
#ifndef APPS_WEIR_BENCH_ACTORS_H
#define APPS_WEIR_BENCH_ACTORS_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* Runs for a few seconds; writes a JSON object or a table to `to`. */
weir_status bench_actors(bool json, bool quick, FILE *to);

#endif
