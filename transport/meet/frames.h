/* transport/meet/frames.h: the frames of the meeting, to bytes and back. docs/wire.md describes them for people.
 *
 *     frame = ["weir", version, kind, ...]          one ZeroMQ message each; PART has a second frame with raw bytes
 *
 *     JOIN     peer -> rank 0   plan version, purpose, name, rank, size, generation, level, carriers, plan, card: I am here.
 *                               Repeated until answered
 *     WAIT             <-       text: heard; who has not come yet
 *     ASK              <-       first: send your list of ops from there on
 *     OPS              ->       first, total, ops
 *     WELCOME          <-       session, first, total, cards: in as many frames as it takes
 *     THANKS           ->       all cards are here
 *     REFUSE           <-       status, text: the end
 *     WANT             ->       offset: send my part of the plan from there on
 *     PART             <-       offset, total; the bytes
 *
 * "weir", version, kind, and all of REFUSE stay as they are in every version, so that two versions can tell each other.
 * Decoding checks form alone: types, counts, lengths, ranges of what stands by itself. Nothing here allocates. Texts
 * are cut at the first 0 and hold no control characters afterwards.
 */
#ifndef TRANSPORT_MEET_FRAMES_H
#define TRANSPORT_MEET_FRAMES_H

#include "transport/meet/meet.h"

#define MEET_FRAME_MAX 32768 /* bytes of a frame at most, but for those of a part */
#define MEET_ITEMS_MAX 56    /* ops or cards in one frame */
#define MEET_OPS_MAX 65536   /* of a list; more are not compared */
#define MEET_TEXT_MAX 1000
#define MEET_PART_BYTES (1 << 15) /* of a PART's second frame at most */

enum meet_kind {
    MEET_JOIN = 1,
    MEET_WAIT,
    MEET_ASK,
    MEET_OPS,
    MEET_WELCOME,
    MEET_THANKS,
    MEET_REFUSE,
    MEET_WANT,
    MEET_PART,
    MEET_KIND_END
};

enum meet_purpose { MEET_FOR_SESSION, MEET_FOR_PART, MEET_PURPOSES };

/* The ways in which two plans of one graph can differ. */
struct meet_plan {
    uint64_t hash; /* 0: has none */
    uint64_t seed, bytes, rates;
    uint32_t micro_batches, devices;
};

/* One logical op. The numbers are hashes of what the texts may be too short for. */
struct meet_op {
    char name[96], op[32], file[128];
    char types[160]; /* "f32 [8, 4] -> f32 [8, 2]" */
    uint32_t line;
    uint64_t types_hash, attrs_hash;
};

struct meet_frame {
    uint32_t version, kind;
    union {
        struct {
            uint32_t plan_version, purpose, rank, size, generation;
            char name[CLUSTER_NAME_BYTES];   /* of the session */
            char level[CLUSTER_LEVEL_BYTES]; /* of the kernels; "": not said */
            char carriers[CLUSTER_CARRIERS_BYTES]; /* cluster_carriers_text() */
            struct meet_plan plan;
            struct member card;
        } join;
        struct {
            char text[MEET_TEXT_MAX + 1];
        } wait;
        struct {
            uint32_t first;
        } ask;
        struct {
            uint32_t first, total, count;
            struct meet_op op[MEET_ITEMS_MAX];
        } ops;
        struct {
            uint64_t session;
            uint32_t first, total, count;
            struct member card[MEET_ITEMS_MAX];
        } welcome;
        struct {
            uint32_t status; /* weir_status, not OK */
            char text[MEET_TEXT_MAX + 1];
        } refuse;
        struct {
            uint64_t offset;
        } want;
        struct {
            uint64_t offset, total;
        } part;
    };
};

/* A session's name as it is on the other side: cut, and without control characters. */
void meet_name(char name[CLUSTER_NAME_BYTES], const char *text);

/* Writes the frame; returns its bytes. The frame is as decoding would leave it: texts end, counts are in range. */
size_t meet_encode(const struct meet_frame *frame, unsigned char bytes[MEET_FRAME_MAX]);

/* E_PEER and weir_error() saying what is wrong. If the frame is of another version, only version and kind are read, unless it
 * is a REFUSE; that is no error. */
weir_status meet_decode(const void *bytes, size_t bytes_count, struct meet_frame *frame);

#endif
