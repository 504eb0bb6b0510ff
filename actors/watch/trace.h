/* actors/watch/trace.h: a flight recorder: the last firings of one worker, in a ring that is allocated when the session
 * opens.
 *
 * trace_write() makes them a Chrome/Perfetto trace: one process, one track per queue, one slice per firing.
 *
 * Owner: the worker; after its thread has ended, the session.
 */
#ifndef ACTORS_WATCH_TRACE_H
#define ACTORS_WATCH_TRACE_H

#include <stdbool.h>
#include <stdio.h>

#include "graph/plan/form/plan.h"

struct trace_event {
    int64_t start_ns; /* park_now_ns() */
    int64_t ns;
    int64_t step;
    uint32_t actor;
    uint32_t micro;
};

struct trace {
    struct trace_event *events; /* owned; NULL: nothing is recorded */
    uint64_t room;
    uint64_t count; /* ever recorded; the last `room` of them are kept */
};

/* `room` > 0 events. */
weir_status trace_open(struct trace *trace, uint64_t room);
void trace_close(struct trace *trace);

static inline void trace_add(struct trace *trace, struct trace_event event)
{
    trace->events[trace->count++ % trace->room] = event;
}

/* Where the document goes. The old contents of the file stay until trace_begin(), and for good if that is never called. */
struct trace_file {
    FILE *to;   /* owned; NULL: nowhere */
    char *path; /* owned */
    bool made;  /* the file was not there before */
};

weir_status trace_file_open(struct trace_file *file, const char *path);

/* Nothing will be written: a file that was not there before goes. Does nothing to one that is not open. */
void trace_file_drop(struct trace_file *file);

/* The document, of the process `name`, is: trace_begin(), trace_write() of each worker, trace_end(), which closes the
 * file. Times are shown from `origin_ns` on. */
void trace_begin(const struct trace_file *file, const weir_plan *plan, const char *name);
void trace_write(const struct trace *trace, const struct trace_file *file, const weir_plan *plan, int64_t origin_ns);
weir_status trace_end(struct trace_file *file);

#endif
