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
 *     spin_ns              a plain socket that both sides ask again and again, rather than sleep: what there is to be had
 *                          where a core has nothing else to do
 *     tcp_key_ns           weir with a key, as a user's sessions have one
 *     ..._stream_ns        one way after another over the same
 *     shm_of_ring          shm_ns / ring_ns
 *     tcp_of_socket,       the socket's or ZeroMQ's time over weir's: 0.9 is 90 % of the rate of a plain socket, or of
 *     tcp_key_of_zmq, ...  ZeroMQ alone. tcp, tcp_key, tcp_stream, tcp_key_stream, each of both
 *
 * Each is the median of several rounds; the rounds of all that is held against each other alternate, and a ratio is the
 * median of the rounds' ratios.
 */
#ifndef APPS_WEIR_BENCH_LINK_H
#define APPS_WEIR_BENCH_LINK_H

#include <stdio.h>

#include "apps/weir/bench/ranks.h"

typedef struct bench_link_opts {
    int bytes;       /* so many alone, rounded up as slots are; 0: several sizes */
    bench_over over;
} bench_link_opts;

/* A plan of two devices: values of `bytes` go there and back, one slot each way, or with `stream` one way, several slots. A step is one
 * of each. The readers do not touch the bytes. NULL and weir_error(). */
weir_plan *bench_link_idle(size_t bytes, bool stream);

/* Runs for about half a minute, or a few seconds when `quick`; writes a JSON object or a table to `to`. Forks: to be
 * called by a process that has not opened a session. */
weir_status bench_link_with(const bench_link_opts *opts, bool json, bool quick, FILE *to);
weir_status bench_link(bool json, bool quick, FILE *to);

#endif
