/* transport/meet/inside.h: what both sides of a meeting have in common: one socket, one deadline, frames in and out.
 * Internal to this folder. Used by the thread that called meet_session() alone.
 */
#ifndef TRANSPORT_MEET_INSIDE_H
#define TRANSPORT_MEET_INSIDE_H

#include <zmq.h>

#include "transport/meet/frames.h"

/* Gives the encoded part of one rank; owned by the giver, valid until the next call. */
typedef weir_status (*meet_part_fn)(void *ctx, uint32_t rank, const void **bytes, size_t *bytes_count);

struct meeting {
    struct meet *meet; /* borrowed */
    enum meet_purpose purpose;
    char name[CLUSTER_NAME_BYTES]; /* what it is for */
    struct meet_plan plan;         /* ours */
    meet_part_fn part;             /* rank 0, MEET_FOR_PART */
    void *part_ctx;
    unsigned char *part_bytes;     /* others, MEET_FOR_PART: what has come; owned */
    size_t part_count, part_total;

    void *socket, *events;         /* owned; `events`: the socket's monitor, of others than rank 0 */
    int64_t deadline_ns;
    bool yields;                   /* rank 0: let another have the port for a moment, then go on */
    struct meet_frame in, out;
    zmq_msg_t payload;             /* the frame behind `in`; always initialised */
    unsigned char id[256];         /* rank 0: whose `in` is */
    size_t id_bytes;
    char from[80];
    unsigned char bytes[MEET_FRAME_MAX];
};

enum meet_got { MEET_NOTHING, MEET_FRAME, MEET_INVALID /* weir_error() says why */ };

/* Receives one message, without waiting. */
enum meet_got meet_receive(struct meeting *meeting);

/* Sends `out`, and `payload_count` bytes behind it if `payload`; to the peer with this id (rank 0) or to rank 0 (NULL).
 * Never waits: what cannot be sent now is lost (false), and asked for again. */
bool meet_send(struct meeting *meeting, const void *id, size_t id_bytes, const void *payload, size_t payload_count);

/* Waits for input until `until_ns`. E_STATE when the ZeroMQ context is being closed. */
weir_status meet_wait(struct meeting *meeting, int64_t until_ns);

int64_t meet_now_ns(void);

/* The two sides: from an open socket to the end. */
weir_status meet_lead(struct meeting *meeting);   /* rank 0 */
weir_status meet_follow(struct meeting *meeting); /* others */

/* meet_session() and meet_part() from after their checks to the end. */
weir_status meet_run(struct meeting *meeting);

/* transport/meet/host.c */
bool meet_home(const struct cluster_env *env, char *endpoint, size_t bytes);

#endif
