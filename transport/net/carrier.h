/* transport/net/carrier.h: what takes frames, or registers themselves, from one rank to another.
 *
 *     shared memory    registers and messages lie in memory that both see      same host, one user
 *     local socket     frames over a Unix socket                               same host
 *     TCP              frames                                                  everywhere
 *
 * One table has them all, in the order of preference. Each carrier writes
 * into this rank's card how it can be reached, and tells from two cards whether it reaches the other. A rank uses only
 * carriers that WEIR_CARRIER lists, and TCP, which is always there for frames. Registers take the first carrier that maps
 * memory, if there is one; all frames, also those of neighbours that share memory, the first with an endpoint. The
 * connection of a line for registers (bulk.h) goes the way of frames.
 *
 * Constant; any thread.
 */
#ifndef TRANSPORT_NET_CARRIER_H
#define TRANSPORT_NET_CARRIER_H

#include "transport/meet/meet.h"
#include "transport/net/share.h"

/* The ways in which a rank can be reached; each carrier takes what it needs, and does nothing where that is NULL. */
struct carrier_here {
    const struct cluster_env *env;
    void *router;              /* a socket to be bound */
    const struct share *share; /* memory that others may map */
};

struct carrier {
    const char *name;
    enum cluster_carrier as; /* TCP is allowed for frames when no list has it */

    /* Writes into the card where this rank can be reached. E_UNSUPPORTED: it cannot be had here, and others must do. */
    weir_status (*listen)(const struct carrier_here *here, struct member *card);

    /* By the cards of both. */
    bool (*reaches)(const struct member *me, const struct member *other);

    /* Where ZeroMQ connects to; NULL: it carries no frames. */
    const char *(*endpoint)(const struct member *other);

    /* Maps the memory of another rank. E_UNSUPPORTED: that cannot be after all. NULL: registers go as frames. */
    weir_status (*map)(struct share *share, const weir_plan *plan, uint32_t rank, const struct member *other);
};

extern const struct carrier carrier_shm, carrier_ipc, carrier_tcp;

/* All that are allowed. The first error but E_UNSUPPORTED. */
weir_status carriers_listen(const struct carrier_here *here, struct member *card);

/* That for frames to the other rank: there is always one. That for registers; NULL: they go as frames. */
const struct carrier *carrier_of_frames(const struct cluster_env *env, const struct member *me,
                                        const struct member *other);
const struct carrier *carrier_of_registers(const struct cluster_env *env, const struct member *me,
                                           const struct member *other);

#endif
