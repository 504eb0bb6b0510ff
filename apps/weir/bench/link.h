/* apps/weir/bench/link.h: `weir bench link`: what handing a register to an actor of another process costs, beside what
 * the machine itself needs for it.
 *
 *     ring_ns              two processes that spin on a word each in shared memory: one way. The floor
 *     shm_ns               a register with one slot, to a reader that does not touch the bytes, over shared memory: one
 *                          way, half of there and back. The same at every size, as nothing is copied
 *     shm_read_ns          one way after another, two slots; the reader reads each byte where it lies
 *     copy_ns              memcpy() out of the other process's memory
 *     socket_ns, zmq_ns,   there and back, halved, over TCP on loopback: a plain socket; ZeroMQ alone; weir without
 *     tcp_ns               shared memory and without a key, as the other two are
 *     tcp_key_ns           the same with a key, as a user's sessions have one
 *     ..._stream_ns        one way after another over the same
 *     shm_of_ring,         shm_ns / ring_ns; ZeroMQ's time over weir's: 0.9 is 90 % of ZeroMQ alone
 *     tcp_of_zmq, ...
 *
 * Each is the median of several rounds; the rounds of all that is held against each other alternate, and a ratio is the
 * median of the rounds' ratios.
 */
#ifndef APPS_WEIR_BENCH_LINK_H
#define APPS_WEIR_BENCH_LINK_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/weir.h>

/* Runs for about a minute, or a few seconds when `quick`; writes a JSON object or a table to `to`. Forks: to be
 * called by a process that has not opened a session. */
weir_status bench_link(bool json, bool quick, FILE *to);

#endif
