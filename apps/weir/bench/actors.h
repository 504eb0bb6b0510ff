/* apps/weir/bench/actors.h: `weir bench actors`: what passing a token costs, beside what the machine itself needs
 * for it.
 *
 * Each case NAME of the list gives NAME_ns; those that are also written by hand (apps/weir/bench/peers/hand.h) raw_NAME_ns.
 * A chain's time is per token and actor, but for the ping-pong's, which is from firing to firing of the first; that of
 * columns is per step. raw_handoff_ns is a single word each way between two threads that spin: the floor. A chain of 8
 * on two workers whose kernels take t cannot be faster than t / 2; four columns on two workers take 2 t.
 *
 * Three cases are of a device that is done with everything at once, whose queues run ahead (actors/ahead.h): firing
 * on one queue, handing over between two queues, and from the host to it and back.
 *
 * Each is the median of several rounds; the rounds of a thing and of what it is held against alternate.
 */
#ifndef APPS_WEIR_BENCH_ACTORS_H
#define APPS_WEIR_BENCH_ACTORS_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

enum bench_ahead { BENCH_AHEAD_NONE, BENCH_AHEAD_ONE, BENCH_AHEAD_TWO, BENCH_AHEAD_HOST /* and the host */ };

/* name, text, actors, slots, reach (0: a chain), workers, how long kernels spin in us, which queues
 * that run ahead take turns (BENCH_AHEAD_*) */
#define BENCH_ACTORS_LIST(X)                                             \
    X(chain8_1w, "chain of 8, one worker", 8, 64, 0, 1, 0, 0)               \
    X(chain8_2w, "chain of 8, two workers", 8, 64, 0, 2, 0, 0)              \
    X(pingpong, "there and back, two workers", 2, 1, 0, 2, 0, 0)            \
    X(chain8_1us, "chain of 8, two workers, of 1 us", 8, 2, 0, 2, 1, 0)     \
    X(chain8_10us, "chain of 8, two workers, of 10 us", 8, 2, 0, 2, 10, 0)  \
    X(chain8_50us, "chain of 8, two workers, of 50 us", 8, 2, 0, 2, 50, 0)  \
    X(chain8_200us, "chain of 8, two workers, of 200 us", 8, 2, 0, 2, 200, 0) \
    X(ahead_launch, "chain of 8, one queue that runs ahead", 8, 64, 0, 1, 0, BENCH_AHEAD_ONE) \
    X(ahead_queues, "chain of 8, two such queues in turn", 8, 64, 0, 1, 0, BENCH_AHEAD_TWO) \
    X(ahead_host, "host and such a queue, there and back", 2, 1, 0, 1, 0, BENCH_AHEAD_HOST) \
    X(fan2, "two columns, each reads both", 2, 2, 1, 2, 0, 0)               \
    X(fan2_uneven, "the same, of 44 us, one in five of 69 us", 2, 2, 1, 2, 44, 0) \
    X(stencil, "four columns, each reads its neighbours", 4, 2, 1, 2, 0, 0) \
    X(fan4, "four columns, each reads all", 4, 2, 3, 2, 0, 0)               \
    X(fan4_1us, "the same, of 1 us", 4, 2, 3, 2, 1, 0)                      \
    X(fan4_10us, "the same, of 10 us", 4, 2, 3, 2, 10, 0)                   \
    X(fan4_50us, "the same, of 50 us", 4, 2, 3, 2, 50, 0)

/* Runs for some ten seconds; writes a JSON object or a table to `to`. */
weir_status bench_actors(bool json, bool quick, FILE *to);

/* Those cases alone that are of a device that runs ahead, on device 0 of a kind: what it takes to enqueue a firing (a mark;
 * the kernel enqueues nothing), to hand over between two of its queues, and to and from the host. */
weir_status bench_actors_device(weir_device_kind kind, bool json, bool quick, FILE *to);

#endif
