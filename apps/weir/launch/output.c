/* apps/weir/launch/output.c: what ranks print, line by line.
 *
 * A sink's descriptor is shared with whoever started the launcher, so it is not set to non-blocking: poll() is asked
 * before each piece of PIPE_BUF bytes, which a pipe that is writable takes whole.
 */
#define _GNU_SOURCE
#include "apps/weir/launch/output.h"

#include "graph/base/foreign.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One read may be all line ends, each with a prefix. */
_Static_assert(LAUNCH_SINK_HIGH + LAUNCH_LINE_BYTES * (LAUNCH_PREFIX_BYTES + 1) + LAUNCH_LINE_BYTES < LAUNCH_SINK_BYTES,
               "a sink that has room takes what one read may bring");

/* ---- sinks ---- */

bool launch_sink_open(launch_sink *sink, int fd)
{
    *sink = (launch_sink){.fd = fd, .data = malloc(LAUNCH_SINK_BYTES)};
    return sink->data;
}

void launch_sink_close(launch_sink *sink)
{
    free(sink->data);
    *sink = (launch_sink){.fd = -1};
}

bool launch_sink_empty(const launch_sink *sink)
{
    return sink->from == sink->to;
}

bool launch_sink_has_room(const launch_sink *sink)
{
    return sink->to - sink->from <= LAUNCH_SINK_HIGH;
}

static void add(launch_sink *sink, const char *bytes, size_t count)
{
    if (sink->to + count > LAUNCH_SINK_BYTES) {
        memmove(sink->data, sink->data + sink->from, sink->to - sink->from);
        sink->to -= sink->from;
        sink->from = 0;
    }
    if (sink->broken || sink->to + count > LAUNCH_SINK_BYTES)
        return;
    memcpy(sink->data + sink->to, bytes, count);
    sink->to += count;
}

void launch_sink_say(launch_sink *sink, const char *format, ...)
{
    char raw[2048], text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(raw, sizeof raw, format, list);
    va_end(list);
    foreign_text(raw, text, sizeof text - 1);
    strcat(text, "\n");
    add(sink, text, strlen(text));
}

static bool is_writable(const launch_sink *sink)
{
    struct pollfd p = {.fd = sink->fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0;
}

void launch_sink_write(launch_sink *sink)
{
    while (!launch_sink_empty(sink) && is_writable(sink)) {
        size_t count = sink->to - sink->from;
        ssize_t written = write(sink->fd, sink->data + sink->from, count < PIPE_BUF ? count : PIPE_BUF);
        if (written < 0 && (errno == EINTR || errno == EAGAIN))
            return;
        sink->broken = written < 0 ? errno : 0;
        sink->from = written < 0 ? sink->to : sink->from + (size_t)written;
    }
    if (launch_sink_empty(sink))
        sink->from = sink->to = 0;
}

/* ---- streams ---- */

bool launch_stream_open(launch_stream *stream, int fd, launch_sink *sink, const char *prefix)
{
    *stream = (launch_stream){.fd = fd, .sink = sink, .line = malloc(LAUNCH_LINE_BYTES)};
    if (prefix)
        foreign_text(prefix, stream->prefix, sizeof stream->prefix);
    if (!stream->line)
        launch_stream_close(stream);
    return stream->line;
}

void launch_stream_close(launch_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream->line);
    *stream = (launch_stream){.fd = -1};
}

/* Shows `count` bytes that end in a line end, or not, when the line was too long or the last one. */
static void show(launch_stream *stream, const char *bytes, size_t count)
{
    add(stream->sink, stream->prefix, strlen(stream->prefix));
    add(stream->sink, bytes, count);
    if (stream->prefix[0] && bytes[count - 1] != '\n')
        add(stream->sink, "\n", 1);
}

/* The marker stands behind whatever the rank left of an unfinished line. */
static void take_line(launch_stream *stream, const char *bytes, size_t count)
{
    size_t length = stream->marker ? strlen(stream->marker) : 0;
    const char *marker = length ? memmem(bytes, count, stream->marker, length) : NULL;
    if (!marker) {
        show(stream, bytes, count);
        return;
    }
    char words[64];
    size_t rest = count - (size_t)(marker - bytes) - length;
    snprintf(words, sizeof words, "%.*s", (int)rest, marker + length);
    if (marker > bytes)
        show(stream, bytes, (size_t)(marker - bytes));
    stream->control(stream->ctx, words);
}

static void take_lines(launch_stream *stream, bool at_end)
{
    size_t from = 0;
    const char *end;
    while ((end = memchr(stream->line + from, '\n', stream->used - from))) {
        size_t next = (size_t)(end + 1 - stream->line);
        take_line(stream, stream->line + from, next - from);
        from = next;
    }
    size_t rest = stream->used - from;
    if (rest && (at_end || rest == LAUNCH_LINE_BYTES)) {
        take_line(stream, stream->line + from, rest);
        rest = 0;
    }
    memmove(stream->line, stream->line + from, rest);
    stream->used = rest;
}

bool launch_stream_read(launch_stream *stream)
{
    if (stream->fd < 0)
        return false;
    ssize_t count = 0;
    if (!stream->sink->broken)
        count = read(stream->fd, stream->line + stream->used, LAUNCH_LINE_BYTES - stream->used);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    stream->used += count > 0 ? (size_t)count : 0;
    take_lines(stream, count <= 0);
    if (count <= 0) {
        close(stream->fd);
        stream->fd = -1;
    }
    return true;
}
