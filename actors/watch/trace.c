/* actors/watch/trace.c: the Chrome trace format (JSON object form, "Trace Event Format", 2016): "X" events with
 * microseconds. */
#include "actors/watch/trace.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
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

/* A JSON string. Bytes above 127 are passed on: names are UTF-8. */
static void write_text(FILE *to, const char *text)
{
    putc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if (*c < ' ' || *c == 127)
            fprintf(to, "\\u%04x", *c);
        else
            putc(*c, to);
    }
    putc('"', to);
}

void trace_begin(FILE *to, const weir_plan *plan, const char *name)
{
    fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", to);
    fputs("{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": ", to);
    write_text(to, name);
    fputs("}}", to);
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        fprintf(to, ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %u, \"args\": {\"name\": ", q);
        write_text(to, plan_text(plan, plan->queues[q].name));
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
    write_text(to, plan_text(plan, actor->name));
    fprintf(to, ", \"ph\": \"X\", \"pid\": 0, \"tid\": %u, %s, ", actor->queue.i, times);
    fprintf(to, "\"args\": {\"step\": %lld, \"micro\": %u}}", (long long)event->step, event->micro);
}

void trace_write(const struct trace *trace, FILE *to, const weir_plan *plan, int64_t origin_ns)
{
    uint64_t kept = trace->count < trace->room ? trace->count : trace->room;
    for (uint64_t i = trace->count - kept; i < trace->count; i++)
        write_event(to, plan, &trace->events[i % trace->room], origin_ns);
}

weir_status trace_end(FILE *to)
{
    fputs("\n]}\n", to);
    bool failed = ferror(to);
    failed |= fclose(to) != 0;
    return failed ? error_set(WEIR_E_IO, "the trace could not be written") : WEIR_OK;
}
