/* transport/net/stream.h: an ordered stream of bytes to one other rank, as its carrier makes it. Nothing here blocks.
 *
 * A carrier of register contents is a table of these functions and whoever makes a stream that has it; sockets
 * (stream_socket.c) are the only one. What the bytes mean, and that nobody else can read or make them, is the business
 * of those above (bulk.h, seal.h).
 *
 * Owner: who holds the network's sockets.
 */
#ifndef TRANSPORT_NET_STREAM_H
#define TRANSPORT_NET_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

struct stream;

struct stream_ops {
    /* How many of the bytes were taken; 0: none can be now. Those that were not taken come again, as they are and where
     * they are, in the next call: a carrier may have begun to send them. -1: the stream has ended. */
    ssize_t (*write)(struct stream *stream, const struct iovec *parts, int count);

    /* How many bytes were put into the parts; 0: none are there now. -1: the stream has ended. */
    ssize_t (*read)(struct stream *stream, const struct iovec *parts, int count);

    void (*close)(struct stream *stream);
};

/* The carrier's own structure begins with this. */
struct stream {
    const struct stream_ops *ops;
    int fd; /* to sleep on; owned */
};

/* Of a connected socket that does not block, which it takes over; NULL: no memory, and the socket is closed. */
struct stream *stream_socket(int fd);

#endif
