/* actors/watch/trace.c: the Chrome trace format (JSON object form, "Trace Event Format", 2016): "X" events with
 * microseconds. Names are made valid UTF-8, as in all JSON. */
#include "actors/watch/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/base/foreign.h"
#include "graph/base/locale.h"

#define NS_PER_US 1000

weir_status trace_open(struct trace *trace, uint64_t room)
{
    *trace = (struct trace){.room = room};
    trace->events = calloc(room, sizeof(*trace->events));
    if (!trace->events)
        return error_set(WEIR_E_MEMORY, "no memory to trace %llu events", (unsigned long long)room);
    memset(trace->events, 0, room * sizeof(*trace->events)); /* no page faults while it records */
    return WEIR_OK;
}

void trace_close(struct trace *trace)
{
    free(trace->events);
    trace->events = NULL;
}

/* ---- the file ---- */

static weir_status file_error(const char *path, int error)
{
    return error_set(WEIR_E_IO, "%s: the trace cannot be written: %s", path, strerror(error ? error : EIO));
}

/* Open for writing, with what is in it; -1 with errno set. */
static int open_file(struct trace_file *file, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    file->made = fd >= 0;
    return fd < 0 && errno == EEXIST ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : fd;
}

weir_status trace_file_open(struct trace_file *file, const char *path)
{
    *file = (struct trace_file){.path = strdup(path)};
    int fd = file->path ? open_file(file, path) : -1;
    file->to = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file->to)
        return WEIR_OK;
    weir_status status = file_error(path, errno);
    if (fd >= 0)
        close(fd);
    trace_file_drop(file);
    return status;
}

static void close_file(struct trace_file *file)
{
    free(file->path);
    *file = (struct trace_file){.to = NULL};
}

void trace_file_drop(struct trace_file *file)
{
    if (file->made && file->path)
        unlink(file->path);
    if (file->to)
        fclose(file->to);
    close_file(file);
}

/* Cuts off what the file held behind what was written. A FIFO or a device holds nothing. */
static bool cut_file(FILE *to)
{
    struct stat info;
    return !fflush(to) && (fstat(fileno(to), &info) || !S_ISREG(info.st_mode) || !ftruncate(fileno(to), ftello(to)));
}

/* ---- the document ---- */

void trace_begin(const struct trace_file *file, const weir_plan *plan, const char *name)
{
    FILE *to = file->to;
    errno = 0; /* trace_end() asks why a write failed */
    fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", to);
    fputs("{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": ", to);
    foreign_put_json(to, name);
    fputs("}}", to);
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        fprintf(to, ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %u, \"args\": {\"name\": ", q);
        foreign_put_json(to, plan_text(plan, plan->queues[q].name));
        fputs("}}", to);
    }
}

static void write_event(FILE *to, const weir_plan *plan, const struct trace_event *event, int64_t origin_ns)
{
    const plan_actor *actor = &plan->actors[event->actor];
    char times[96];
    text_print(times, sizeof times, "\"ts\": %.3f, \"dur\": %.3f", (double)(event->start_ns - origin_ns) / NS_PER_US,
               (double)event->ns / NS_PER_US);
    fputs(",\n{\"name\": ", to);
    foreign_put_json(to, plan_text(plan, actor->name));
    fprintf(to, ", \"ph\": \"X\", \"pid\": 0, \"tid\": %u, %s, ", actor->queue.i, times);
    fprintf(to, "\"args\": {\"step\": %lld, \"micro\": %u}}", (long long)event->step, event->micro);
}

void trace_write(const struct trace *trace, const struct trace_file *file, const weir_plan *plan, int64_t origin_ns)
{
    uint64_t kept = trace->count < trace->room ? trace->count : trace->room;
    for (uint64_t i = trace->count - kept; i < trace->count; i++)
        write_event(file->to, plan, &trace->events[i % trace->room], origin_ns);
}

weir_status trace_end(struct trace_file *file)
{
    fputs("\n]}\n", file->to);
    bool failed = ferror(file->to) || !cut_file(file->to);
    int why = errno;
    if (fclose(file->to) && !failed) {
        failed = true;
        why = errno;
    }
    weir_status status = failed ? file_error(file->path, why) : WEIR_OK;
    close_file(file);
    return status;
}
