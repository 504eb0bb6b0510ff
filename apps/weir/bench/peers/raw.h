/* apps/weir/bench/peers/raw.h: what handing bytes from one process to another costs without weir: the floor that
 * `weir bench link` stands on. Each function forks two processes, lets them play for about `round_seconds`, and gives
 * seconds per hand-off.
 *
 *     ring           two words in shared memory on which both spin, one way
 *     copy           memcpy() out of memory that the other process wrote
 *     socket, zmq    a message of that size there and back over TCP on loopback, halved
 *     spin           the same over a socket by processes that ask it again and again rather than sleep
 *     ..._stream     messages one behind the other, one way
 *
 * All is sent from one buffer of that size whose pages are real, as those of a session's arena are, and sockets take into
 * such a one. ZeroMQ is used alone (a PAIR over TCP, messages that refer to the sender's memory): raw_zmq.c.
 */
#ifndef APPS_WEIR_BENCH_RAW_H
#define APPS_WEIR_BENCH_RAW_H

#include "apps/weir/bench/peers/team.h"

weir_status bench_raw_ring(const struct bench_round *round, double *seconds);
weir_status bench_raw_copy(const struct bench_round *round, double *seconds);
weir_status bench_raw_socket(const struct bench_round *round, double *seconds);
weir_status bench_raw_socket_stream(const struct bench_round *round, double *seconds);
weir_status bench_raw_spin(const struct bench_round *round, double *seconds);
weir_status bench_raw_spin_stream(const struct bench_round *round, double *seconds);
weir_status bench_raw_zmq(const struct bench_round *round, double *seconds);
weir_status bench_raw_zmq_stream(const struct bench_round *round, double *seconds);

#endif
