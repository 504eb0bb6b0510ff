/* transport/meet/keys.h: who may talk to this session: CURVE (ZeroMQ's own), with one key for all its ranks, and one
 * for each.
 *
 *     the session's    a secret that all ranks have: given, or the user's on this host (transport/meet/local_key.h).
 *                      Opens the meeting: who has it is in
 *     a rank's         a pair that it makes when the session opens; the public one stands in its card. Opens the bus:
 *                      a connection is that of the rank whose key it has
 *
 * A thread answers ZeroMQ's question (ZAP, RFC 27) whether a client's key is one of these, and reports those that are
 * not. ZeroMQ then says with each message which key it came with (keys_sender_is()). Only WEIR_INSECURE makes sockets
 * plain; then nothing here does anything.
 */
#ifndef TRANSPORT_MEET_KEYS_H
#define TRANSPORT_MEET_KEYS_H

#include <zmq.h>

#include "transport/meet/env.h"
#include "transport/meet/report.h"

struct keys {
    bool curve;
    char public_key[WEIR_KEY_BYTES], secret[WEIR_KEY_BYTES];         /* the session's */
    char own_public_key[WEIR_KEY_BYTES], own_secret[WEIR_KEY_BYTES]; /* this rank's */
};

/* Takes the secret of `env`; without one, and on loopback, the user's. E_ARGUMENT: the secret is no key, or there is
 * none and rank 0 is off loopback. E_IO: there is none, and the user's cannot be had. Plain when `env` is insecure and
 * has no secret. */
weir_status keys_open(struct keys *keys, const struct cluster_env *env);

/* Wipes them; also those that keys_open() failed to make. ZeroMQ keeps the 32 bytes that the letters stand for in its
 * sockets, and frees them without wiping them: it has no call for that. */
void keys_close(struct keys *keys);

/* Is rank 0's address one that only this host's processes reach? By its letters alone, so that all ranks agree:
 * 127.x.x.x, ::1, localhost. */
bool address_is_loopback(const char *address);

/* ZeroMQ and the system write an IPv4 address that reached an IPv6 socket as ::ffff:10.0.0.7; people do not. */
const char *address_for_people(const char *address);

/* Options of every socket that others can reach, or that reaches out, before bind or connect, keys apart: IPv6, no waiting on
 * close, room for many that connect at once and little patience with those that then say nothing (two seconds, and what the
 * handshakes of so many ranks take), and no frame of more than `frame_bytes_max` (no limit when < 0), so that nobody makes us
 * allocate. How many frames a message has is not bounded: ZeroMQ knows no limit to that. */
weir_status keys_socket(void *zmq_socket, int64_t frame_bytes_max, uint32_t ranks);

/* The meeting's. Before bind or connect. */
weir_status keys_server(const struct keys *keys, void *zmq_socket);
weir_status keys_client(const struct keys *keys, void *zmq_socket);

/* The bus's. Before bind; before connect to the rank whose card has `peer_key`. */
weir_status keys_bus_server(const struct keys *keys, void *zmq_socket);
weir_status keys_bus_client(const struct keys *keys, void *zmq_socket, const char peer_key[WEIR_KEY_BYTES]);

/* Whether the message (a frame of it that the peer sent, not the ROUTER's) came over a connection with this public key.
 * Always when sockets are plain. */
bool keys_sender_is(const struct keys *keys, zmq_msg_t *message, const char key[WEIR_KEY_BYTES]);

/* The thread that answers for all sockets of a ZeroMQ context. *zap is NULL without curve. `report` is borrowed. A peer
 * that is refused again and again is reported at most once a second. Close before the context is terminated, and after
 * every socket that is watched. */
struct zap;
weir_status zap_open(struct zap **zap, void *zmq_context, const struct keys *keys, const struct report *report);
void zap_close(struct zap *zap); /* also NULL */

/* From now on the bus takes these keys only, `stride` bytes apart; before, all who know this rank's, which stands in
 * its card alone. Copied. Once. */
weir_status zap_members(struct zap *zap, const char *keys, size_t stride, uint32_t count);

/* A peer with another key, or none, fails before ZeroMQ asks anybody. That shows only in the events of the socket that
 * it came to, so these are watched: from before a server socket is bound until before it is closed. Takes the one
 * monitor that a socket can have. Both are called by the socket's thread; both do nothing when `zap` is NULL. */
weir_status zap_watch(struct zap *zap, void *server_socket);
void zap_unwatch(struct zap *zap, void *server_socket);

#endif
