/* transport/keys.h: who may talk to this session: CURVE (ZeroMQ's own), with one key for all its ranks.
 *
 * The secret is the session's; whoever has it is in. Each socket is a CURVE server or client with the pair made from
 * it; a thread answers ZeroMQ's question (ZAP, RFC 27) whether a client's key is the session's, and reports those that
 * are not. Without a secret sockets are plain, and nothing here does anything.
 */
#ifndef TRANSPORT_KEYS_H
#define TRANSPORT_KEYS_H

#include "transport/env.h"
#include "transport/report.h"

struct keys {
    bool curve;
    char public_key[WEIR_KEY_BYTES], secret[WEIR_KEY_BYTES];
};

/* E_ARGUMENT: the secret is no key, or there is none and `env` allows no plain connection (address off loopback and
 * not insecure). */
weir_status keys_open(struct keys *keys, const struct cluster_env *env);

/* Before bind or connect. */
weir_status keys_server(const struct keys *keys, void *zmq_socket);
weir_status keys_client(const struct keys *keys, void *zmq_socket);

/* The thread that answers for all sockets of a ZeroMQ context. *zap is NULL without curve. `report` is borrowed. A peer
 * that is refused again and again is reported at most once a second. Close before the context is terminated. */
struct zap;
weir_status zap_open(struct zap **zap, void *zmq_context, const struct keys *keys, const struct report *report);
void zap_close(struct zap *zap); /* also NULL */

#endif
