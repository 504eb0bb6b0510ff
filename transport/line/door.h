/* transport/line/door.h: where other ranks bring their connections for register contents while a session opens, and how
 * this rank brings its own to theirs.
 *
 *     rank 3 (the higher one)                       rank 1
 *     door_connect()  ------- connection ------>    door: accepted, may say who it is
 *     door_say()      ------- greeting -------->    door_take(): the greeting, and the socket
 *
 * Where a rank's door is stands in its HELLO, which comes over an encrypted connection, as does a secret of each end; a
 * greeting's ticket is made of both (seal_derive()), so only who has heard both HELLOs can bring it. The door of a pair of
 * ranks is used once. A door is shut when all have come; before that what does not greet in time is dropped, and no more than
 * DOOR_WAITING connections wait for it, of which the oldest goes.
 *
 * Owner: who holds the network's sockets. Nothing blocks; `epoll_fd` is readable when there may be something to do.
 */
#ifndef TRANSPORT_LINE_DOOR_H
#define TRANSPORT_LINE_DOOR_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/base.h>

#include "transport/line/seal.h"

#define DOOR_GREETING_BYTES 56
#define DOOR_WAITING 64
#define DOOR_NS INT64_C(5000000000) /* a connection has so long to say its greeting */

struct door_greeting {
    uint32_t version, rank;
    uint64_t session;
    unsigned char ticket[SEAL_SECRET_BYTES];
};

/* A connection that has not said all of its greeting. */
struct door_guest {
    int fd;
    uint32_t bytes; /* that have come */
    int64_t since_ns;
    unsigned char greeting_bytes[DOOR_GREETING_BYTES];
};

struct door {
    int epoll_fd;       /* borrowed */
    int tcp_fd, local_fd; /* owned; -1: none */
    uint32_t port;      /* 0: none */
    uint64_t name;      /* of the local one, in the abstract namespace; 0: none */
    struct door_guest guests[DOOR_WAITING];
    uint32_t guests_count;
};

/* Listens at the address of the "tcp://host:port" that the rank's card has, at a port of its own; and, when `local`, at
 * a name of this host's. E_PEER. */
weir_status door_open(struct door *door, int epoll_fd, const char *endpoint, bool local);
void door_close(struct door *door); /* also one that was shut; not a zeroed one */

/* The next connection that has greeted, which the caller owns then; -1: there is none now. *refused: what was dropped, to be
 * reported; NULL: nothing. */
int door_take(struct door *door, struct door_greeting *greeting, const char **refused);

/* Begins a connection to another's door. *fd, in the epoll set for writing, is the caller's. */
weir_status door_connect_tcp(int epoll_fd, const char *endpoint, uint32_t port, int *fd);
weir_status door_connect_local(int epoll_fd, uint64_t name, int *fd);

/* Says the greeting when the connection stands: 1: said; 0: not yet; -1 and errno: it cannot be made. */
int door_say(int fd, const struct door_greeting *greeting);

void door_greeting_encode(const struct door_greeting *greeting, unsigned char bytes[DOOR_GREETING_BYTES]);
/* False: it is none. */
bool door_greeting_decode(const unsigned char bytes[DOOR_GREETING_BYTES], struct door_greeting *greeting);

#endif
