/* transport/line/stream.h: an ordered stream of bytes to one other rank, as its carrier makes it. Nothing here blocks.
 *
 * A carrier of register contents is a table of these functions and whoever makes a stream that has it: sockets
 * (stream_socket.c), or UCX (transport/ucx, a plugin), where WEIR_CARRIER lists ucx. Those above (bulk.h, seal.h) know the meaning of
 * the bytes, and keep others from reading or making them.
 *
 *     a connection that has greeted (door.h) ---> stream_socket(): its bytes are the stream's
 *                                            '--> streams->ops->make(): over it the two tell each other where their
 *                                                 UCX is; then its end tells that of the peer, and no more
 *
 * Streams of sockets need nothing in common. Streams of another carrier have one `struct streams` for each network, in which
 * all of them move. It moves when it is told to (turn), so whoever does that has to read from all streams before the next
 * sleep; and before anybody sleeps on the epoll set it is asked whether that may be (rest).
 *
 * Owner: who holds the network's sockets.
 */
#ifndef TRANSPORT_LINE_STREAM_H
#define TRANSPORT_LINE_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <weir/base.h>

#include "transport/line/seal.h"

struct stream;

struct stream_ops {
    /* How many of the bytes were taken; 0: none can be now. Parts that were not taken come again, as they are and where they
     * are, in later calls, in which there may be more of them, or not as many: a carrier may have begun to send them, and may
     * so take more than a call gives. -1: the stream has ended. */
    ssize_t (*write)(struct stream *stream, const struct iovec *parts, int count);

    /* How many bytes were put into the parts; 0: none are there now. -1: the stream has ended. */
    ssize_t (*read)(struct stream *stream, const struct iovec *parts, int count);

    /* Bytes that were taken, and that the peer's system has not acknowledged. NULL: the carrier finds out by itself. */
    uint64_t (*under_way)(const struct stream *stream);

    void (*close)(struct stream *stream);
};

/* The carrier's own structure begins with this. */
struct stream {
    const struct stream_ops *ops;
    int fd; /* to sleep on; owned */
};

struct streams;

struct streams_ops {
    /* Makes a stream of a connected socket that does not block, which it takes over; NULL: no memory, and the socket is
     * closed. */
    struct stream *(*make)(struct streams *streams, int fd);

    /* While the session opens, again and again until *stands: then bytes have come from the peer by this carrier. The two
     * tell each other a record of the boxes over the connection; NULL: nothing is encrypted. An error says what is wrong, as
     * the rest of a sentence. */
    weir_status (*meet)(struct stream *stream, struct seal_box *out, struct seal_box *in, bool *stands);

    /* Takes in and sends on what can be now; whether there was anything. */
    bool (*turn)(struct streams *streams);

    /* Whether there is nothing to be done now, and the epoll set will be readable when there is again. */
    bool (*rest)(struct streams *streams);

    /* Bytes that streams had taken before they were closed go out, for at most so long. All of them have been closed. */
    void (*close)(struct streams *streams, int64_t most_ns);
};

/* A carrier's own structure begins with this. */
struct streams {
    const struct streams_ops *ops;
};

/* Over UCX; what there is to be slept on goes into the epoll set, with data.ptr NULL. E_UNSUPPORTED: it is not there. */
weir_status streams_ucx(struct streams **streams, int epoll_fd);

/* Makes a stream of a connected socket that does not block, which it takes over; NULL: no memory, and the socket is
 * closed. */
struct stream *stream_socket(int fd);

#endif
