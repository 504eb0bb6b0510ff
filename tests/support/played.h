/* tests/support/played.h: a rank of a session that a test plays itself, towards rank 0, which is a real one: it meets the
 * others, hears rank 0's HELLO, and says what the test wants, over ZeroMQ's connections and over the one for register
 * contents (transport/line/bulk.h), encrypted when the session has a key. Rank 0 is to share no memory (WEIR_CARRIER=ipc,tcp).
 *
 *     struct played p = {.rank = 1, .count = 2, .address = address, .name = "protocol"};
 *     played_meet(&p);                          any thread; p.error tells
 *     void *life = played_connect(&p, CHANNEL_LIFE, &p.keys, 1);
 *     played_say_on(&p, life, CHANNEL_LIFE, played_hello(&p), NULL, 0);
 *     played_hear(&p);
 *     played_bring(&p);
 *     played_say(&p, frame, NULL, 0);           over the connection for register contents
 *     played_close(&p);                         sockets that the test made are closed before
 */
#ifndef TESTS_SUPPORT_PLAYED_H
#define TESTS_SUPPORT_PLAYED_H

#include <stdbool.h>

#include "transport/meet/meet.h"
#include "transport/line/bulk_frame.h"
#include "transport/net/channel.h"
#include "transport/line/door.h"
#include "transport/line/seal.h"
#include "transport/line/wire.h"

enum { PLAYED_RANKS_MAX = 4, PLAYED_WAIT_MS = 20000 };

struct played {
    uint32_t rank, count; /* given by the test, as the two below */
    const char *address, *name;
    char error[1024];     /* of the meeting; "": there was none */
    void *context;
    void *router;         /* where others reach it */
    struct keys keys;
    struct member members[PLAYED_RANKS_MAX];
    uint64_t session, sent[CHANNELS];
    uint64_t secret[4];           /* its own */
    struct wire_frame hello;      /* rank 0's */
    struct sealing *sealing;
    struct seal_box *box;         /* NULL: plain */
    int line;                     /* the connection for register contents; -1: none */
};

void played_meet(struct played *p);

/* A connection of ZeroMQ's to rank 0's bus, in the name of a rank. */
void *played_connect(struct played *p, enum channel_number number, const struct keys *keys, uint32_t rank);
struct wire_frame played_hello(const struct played *p);
void played_say_on(struct played *p, void *socket, enum channel_number number, struct wire_frame frame,
                   const void *payload, size_t bytes); /* NULL: no payload */

/* Waits for rank 0's HELLO. */
void played_hear(struct played *p);

/* A connection to rank 0's door, at which nothing has been said; what the rank is to say there; both, as they should be. */
int played_knock(const struct played *p);
struct door_greeting played_greeting(const struct played *p);
void played_greet(int fd, const struct door_greeting *greeting);
void played_bring(struct played *p);

/* Over that connection: bytes as they are; in records when there is a key; a frame. */
void played_raw(struct played *p, const void *bytes, size_t count);
void played_bytes(struct played *p, const void *bytes, size_t count);
void played_head(struct played *p, struct bulk_head head);
void played_say(struct played *p, struct wire_frame frame, const void *payload, size_t bytes);

/* Whether the other end closes the connection, in time; what else comes is thrown away. */
bool played_ends(int fd);

void played_close(struct played *p);

#endif
