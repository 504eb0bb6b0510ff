/* transport/meet/keys.h: who may talk to this session: CURVE (ZeroMQ's own), with one key for all its ranks.
 *
 * The secret is the session's; whoever has it is in. Each socket is a CURVE server or client with the pair made from
 * it; a thread answers ZeroMQ's question (ZAP, RFC 27) whether a client's key is the session's, and reports those that
 * are not. Without a secret sockets are plain, and nothing here does anything.
 */
#ifndef TRANSPORT_MEET_KEYS_H
#define TRANSPORT_MEET_KEYS_H

#include "transport/meet/env.h"
#include "transport/meet/report.h"

struct keys {
    bool curve;
    char public_key[WEIR_KEY_BYTES], secret[WEIR_KEY_BYTES];
};

/* E_ARGUMENT: the secret is no key, or there is none and `env` allows no plain connection (address off loopback and
 * not insecure). */
weir_status keys_open(struct keys *keys, const struct cluster_env *env);

/* Is rank 0's address one that only this host's processes reach? By its letters alone, so that all ranks agree:
 * 127.x.x.x, ::1, localhost. */
bool address_is_loopback(const char *address);

/* ZeroMQ and the system write an IPv4 address that reached an IPv6 socket as ::ffff:10.0.0.7; people do not. */
const char *address_for_people(const char *address);

/* What every socket that others can reach, or that reaches out, gets before bind or connect, keys apart: IPv6, no
 * waiting on close, room for many that connect at once and little patience with those that then say nothing, and no
 * message of more than `message_bytes_max` (no limit when < 0), so that nobody makes us allocate. */
weir_status keys_socket(void *zmq_socket, int64_t message_bytes_max);

/* Before bind or connect. */
weir_status keys_server(const struct keys *keys, void *zmq_socket);
weir_status keys_client(const struct keys *keys, void *zmq_socket);

/* The thread that answers for all sockets of a ZeroMQ context. *zap is NULL without curve. `report` is borrowed. A peer
 * that is refused again and again is reported at most once a second. Close before the context is terminated, and after
 * every socket that is watched. */
struct zap;
weir_status zap_open(struct zap **zap, void *zmq_context, const struct keys *keys, const struct report *report);
void zap_close(struct zap *zap); /* also NULL */

/* A peer with another key, or none, fails before ZeroMQ asks anybody. That shows only in the events of the socket that
 * it came to, so these are watched: from before a server socket is bound until before it is closed. Takes the one
 * monitor that a socket can have. Both are called by the socket's thread; both do nothing when `zap` is NULL. */
weir_status zap_watch(struct zap *zap, void *server_socket);
void zap_unwatch(struct zap *zap, void *server_socket);

#endif
