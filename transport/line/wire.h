/* transport/line/wire.h: the header frames of the bus between processes, to bytes and back. docs/wire.md describes them
 * for people.
 *
 * A message on a socket is a header frame (a MessagePack array) and, for some kinds, payload frames (raw bytes).
 *
 *     header = [version, kind, session, rank, number, ...]       rank: the sender's; number: 0, 1, 2, ... per sender,
 *                                                                receiver and channel, so that a lost frame shows
 *     kind    more in the header            payload
 *     HELLO   shm, port, name, secret       none               the first: this is rank's connection; whether it could
 *                                                              map the receiver's memory; where its door is (door.h)
 *     BEAT    state, fired, step, actor     none               sign of life, and what it last did
 *     FAIL    culprit, from, text           none               the session failed; whose sentence the text is
 *     BYE     steps, answer                 none               it closes, having done so many steps; or it has read the
 *                                                              receiver's BYE, and goes on
 *     VALUE   shard, round                  1 frame            a shard, for weir_session_read(); what a round needs
 *     HOLD    what, run, step               none               where a run is to end before its time (session/cluster_stop.c)
 *     END     culprit, from, what, step,    none               the session ends before this step, or was cancelled
 *             text
 *     WAITS   count, rank                   count x 16 bytes   who of that rank waits for whom (actors/watch/waits.h),
 *                                                              for a stall report
 *
 * Decoding checks form alone: types, counts, ranges of what stands by itself (kind, text length). The user of a number checks
 * what it means to the session (is there such a port). Nothing here allocates.
 */
#ifndef TRANSPORT_LINE_WIRE_H
#define TRANSPORT_LINE_WIRE_H

#include <stdbool.h>
#include <weir/base.h>

#include "transport/mail/version.h"

#define WIRE_TEXT_MAX 1023
#define WIRE_HEADER_MAX 1152 /* bytes of a header frame at most */

#define WIRE_MARK UINT32_MAX           /* in the place of a shard: the end of a round */
#define WIRE_STATEMENT (UINT32_MAX - 1) /* what a rank says of itself, or rank 0 of all */
#define WIRE_QUESTION (UINT32_MAX - 2)  /* whether the receiver does something else, as it has not come to the round */

enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_BEAT = 4, /* 2 and 3 were messages and register contents, which have frames of their own (bulk_frame.h) */
    WIRE_FAIL,
    WIRE_BYE,
    WIRE_VALUE,
    WIRE_WAITS,
    WIRE_HOLD,
    WIRE_END,
    WIRE_KIND_END
};

enum wire_hold { WIRE_HOLD_ASK, WIRE_HOLD_BEGUN, WIRE_HOLD_LIMIT, WIRE_HOLD_WHATS };
#define WIRE_WHOLE_RUN INT64_MAX /* in the place of a step of HOLD: all steps of the run */

enum wire_end { WIRE_SOURCE_ENDED, WIRE_SOURCE_FAILED, WIRE_CANCELLED, WIRE_END_WHATS };

struct wire_frame {
    uint32_t version, kind, rank;
    uint64_t session, number;
    union {
        struct {
            bool shm;
            uint32_t port;      /* of its door; 0: none */
            uint64_t name;      /* of its door for the same host; 0: none */
            uint64_t secret[4]; /* for the connection between the two; see seal.h */
        } hello;
        struct {
            uint32_t count;
            uint32_t rank; /* whose; rank 0 passes on what others said */
        } waits;
        struct {
            uint32_t state; /* enum session_state */
            uint64_t fired; /* firings since the session opened, and beats in which register contents were coming in */
            int64_t step;   /* of the actor that fired last */
            uint32_t actor; /* it; UINT32_MAX: none yet */
        } beat;
        struct {
            uint32_t culprit; /* rank that failed */
            uint32_t from;    /* whose sentence it is */
            char text[WIRE_TEXT_MAX + 1];
        } fail;
        struct {
            int64_t steps; /* of an answer 0 */
            bool answer;
        } bye;
        struct {
            uint32_t what; /* enum wire_hold */
            uint64_t run;  /* 1, 2, ... */
            int64_t step;
        } hold;
        struct {
            uint32_t culprit, from; /* as of FAIL */
            uint32_t what;          /* enum wire_end */
            int64_t step;           /* 0 when it was cancelled */
            char text[WIRE_TEXT_MAX + 1];
        } end;
        struct {
            uint32_t shard; /* its place in plan->shards; behind all these, of copies that somebody keeps; WIRE_MARK,
                               WIRE_STATEMENT, WIRE_QUESTION */
            uint64_t round;
        } value;
    };
};

/* Writes the header, with WIRE_VERSION whatever frame->version is; returns its bytes, at most WIRE_HEADER_MAX.
 * frame->kind must be one. */
size_t wire_encode(const struct wire_frame *frame, unsigned char bytes[WIRE_HEADER_MAX]);

/* E_PEER and weir_error() saying what is wrong ("BEAT: 3 fields of 9"). A frame of another version is refused before
 * anything else in it is looked at. Text is cut at the first 0; controls in it become spaces, and bytes that are no
 * UTF-8 question marks. After an error *frame means nothing. */
weir_status wire_decode(const void *bytes, size_t bytes_count, struct wire_frame *frame);

/* "BEAT"; "?" for what is no kind. */
const char *wire_kind_name(uint32_t kind);

#endif
