/* transport/line/stream_socket.c: a stream over a socket, TCP's or a local one. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/line/stream.h"

static struct msghdr message_of(const struct iovec *parts, int count)
{
    return (struct msghdr){.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
}

static ssize_t socket_write(struct stream *stream, const struct iovec *parts, int count)
{
    const struct msghdr message = message_of(parts, count);
    ssize_t done = TEMP_FAILURE_RETRY(sendmsg(stream->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
    return done < 0 && (errno == EAGAIN || errno == ENOBUFS) ? 0 : done;
}

/* recvmsg() fills parts of several sizes one after the other. */
static ssize_t socket_read(struct stream *stream, const struct iovec *parts, int count)
{
    struct msghdr message = message_of(parts, count);
    ssize_t done = TEMP_FAILURE_RETRY(recvmsg(stream->fd, &message, MSG_DONTWAIT));
    return done > 0 ? done : done < 0 && errno == EAGAIN ? 0 : -1;
}

/* On a local socket: bytes that the peer has not read, and what the system needs to keep them. */
static uint64_t socket_under_way(const struct stream *stream)
{
    int bytes = 0;
    return ioctl(stream->fd, SIOCOUTQ, &bytes) || bytes < 0 ? 0 : (uint64_t)bytes;
}

static void socket_close(struct stream *stream)
{
    close(stream->fd);
    free(stream);
}

static const struct stream_ops socket_ops = {.write = socket_write, .read = socket_read, .under_way = socket_under_way, .close = socket_close};

struct stream *stream_socket(int fd)
{
    int one = 1;
    struct stream *stream = malloc(sizeof(*stream));
    if (!stream) {
        close(fd);
        return NULL;
    }
    *stream = (struct stream){.ops = &socket_ops, .fd = fd};
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* a local socket has no such thing */
    return stream;
}
