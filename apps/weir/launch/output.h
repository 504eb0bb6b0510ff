/* apps/weir/launch/output.h: what ranks print, line by line.
 *
 *     rank 0 stdout --> stream --.
 *     rank 1 stdout --> stream --+--> sink --> the launcher's stdout
 *     rank 0 stderr --> stream --.
 *     rank 1 stderr --> stream --+--> sink --> the launcher's stderr
 *
 * A stream keeps what is not yet a line; a sink gets whole lines, each behind its rank's prefix, so lines of several
 * ranks never mix. Both are bounded: a longer line than LAUNCH_LINE_BYTES is cut into several, and no stream is read
 * while its sink holds LAUNCH_SINK_HIGH bytes, so that a slow reader of the launcher slows the ranks down and fills no
 * memory. Nothing here waits: the launcher stays able to pass signals on while its own reader stands still. One thread.
 */
#ifndef APPS_WEIR_LAUNCH_OUTPUT_H
#define APPS_WEIR_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#define LAUNCH_LINE_BYTES 65536
#define LAUNCH_PREFIX_BYTES 8   /* "[1023] " */
#define LAUNCH_SINK_HIGH 262144 /* beyond this no stream of it is read */
#define LAUNCH_SINK_BYTES 1048576

typedef struct launch_sink {
    int fd;             /* borrowed */
    char *data;         /* owned: LAUNCH_SINK_BYTES */
    size_t from, to;    /* what of it is to be written */
    int broken;         /* errno: nobody reads it any more, or it cannot be written; 0: it can */
} launch_sink;

/* Gets what follows the marker in a line that has it. */
typedef void (*launch_control_fn)(void *ctx, const char *words);

typedef struct launch_stream {
    int fd;                    /* owned, does not block; -1: at its end */
    launch_sink *sink;         /* borrowed */
    char prefix[LAUNCH_PREFIX_BYTES + 1]; /* "": bytes go through as they are, still by whole lines */
    char *line;                /* owned: LAUNCH_LINE_BYTES */
    size_t used;
    const char *marker;        /* borrowed; NULL: none. A line that has it is not shown */
    launch_control_fn control;
    void *ctx;
} launch_stream;

bool launch_sink_open(launch_sink *sink, int fd); /* false: no memory */
void launch_sink_close(launch_sink *sink);
bool launch_sink_empty(const launch_sink *sink);
bool launch_sink_has_room(const launch_sink *sink); /* for what one read may bring */

/* Adds a line of the launcher's own. */
void launch_sink_say(launch_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes what can be written without waiting. */
void launch_sink_write(launch_sink *sink);

/* Takes `fd`. `prefix` may be NULL. False: no memory (the stream is empty, and `fd` closed). */
bool launch_stream_open(launch_stream *stream, int fd, launch_sink *sink, const char *prefix);
void launch_stream_close(launch_stream *stream);

/* Reads what is there, once, and moves whole lines to the sink, which must have room. False: there was nothing. At the
 * end of the file, or when the sink is broken, closes the descriptor (a rank that goes on writing then gets SIGPIPE, as
 * it would without a launcher). */
bool launch_stream_read(launch_stream *stream);

#endif
