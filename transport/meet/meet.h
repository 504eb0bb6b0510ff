/* transport/meet/meet.h: how the ranks of a session find each other.
 *
 *     rank 0 listens at the address that all know; every other rank sends it a JOIN with its card;
 *     when all have come, and their versions, plans and devices agree, rank 0 answers each with a WELCOME that
 *     holds all cards and the session's number; otherwise with a REFUSE that says why, in words that name both files
 *     and lines of the first op in which two plans differ.
 *
 *          rank 1 -- JOIN(card) ------> rank 0
 *                 <- OPS? ------------        only when its plan's hash is another one
 *                 -- OPS(list) -------->
 *                 <- WELCOME(cards) --        or REFUSE(why), to all
 *
 * Several sessions of the same ranks may be about to open: each has a name, and rank 0 meets for one at a time, in
 * turn; whoever comes for another is told to wait.
 *
 * After that rank 0 is a rank like all others; the socket is closed. Blocks, at most env->join_ns; then the error names
 * the ranks that did not come (on rank 0) or the address at which nobody answered. A peer that sends what is no JOIN is
 * ignored; a rank number that comes twice, with another card, is refused. Frames: docs/wire.md.
 */
#ifndef TRANSPORT_MEET_MEET_H
#define TRANSPORT_MEET_MEET_H

#include "graph/plan/form/plan.h"
#include "transport/meet/env.h"
#include "transport/meet/keys.h"

/* A rank's own description. Text is what the other side may have chosen: it is not trusted beyond its length. */
struct member {
    char host[64];     /* equal: one host, one network */
    char name[64];     /* the host's name, for people */
    char tcp[128];     /* where its bus listens: "tcp://10.0.0.2:40123" */
    char ipc[128];     /* the same for its own host, "ipc://@..."; "": nowhere */
    char key[48];      /* its own public key (transport/meet/keys.h); "": plain */
    uint32_t pid;
    uint32_t devices;
    uint32_t workers;
    int32_t segment_fd;     /* its shared memory (regst/segment.h); -1: none */
    uint64_t segment_bytes;
    uint64_t segment_cookie;
};

struct meet {
    void *zmq_context;             /* borrowed, as all pointers here */
    const struct cluster_env *env;
    const struct keys *keys;
    struct zap *zap;               /* that the context has already; NULL: none, rank 0 opens one for the meeting */
    const struct report *report;
    const weir_plan *plan;         /* NULL: has none, takes rank 0's part for it (see meet_part()) */
    struct member *members;        /* env->size; the caller fills in its own, at [env->rank] */
    uint64_t session;              /* out: a random number, never 0 */
};

/* Returns when all ranks have met. E_PEER, E_TIMEOUT, E_ARGUMENT. */
weir_status meet_session(struct meet *meet);

/* The address in `member` form at which a socket that is to be reached by all others should be bound:
 * "tcp://127.0.0.1:*" when rank 0 is on loopback, else "tcp://ADDRESS:*" with this host's own address on the way to
 * rank 0 (as a connected datagram socket tells). */
weir_status meet_bind_address(const struct cluster_env *env, char *endpoint, size_t bytes);

/* The text that tells hosts apart: the machine's boot id, its network namespace and its pid namespace. */
void meet_host(char *host, size_t bytes);

/* For `weir run PLAN` under a launcher: rank 0 has the plan; every rank gets its own part (graph/plan/spread/spread.h). On
 * rank 0 `whole` is given and *part is rank 0's part; on others `whole` is NULL. Owned by the caller. A meeting of its
 * own, before the one of the session, at the same address; `plan` and `members` are not used and may be NULL. With a size of
 * 1 the part is the whole, copied. */
weir_status meet_part(struct meet *meet, const weir_plan *whole, weir_plan **part);

#endif
