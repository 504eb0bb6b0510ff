/* apps/weir/traces.c: see the header. */
#include "apps/weir/traces.h"

#include "actors/watch/trace.h"
#include "graph/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- predicted ---- */

enum { EVENTS = 1 << 20 }; /* the last ones are kept */

static void record(void *ctx, const weir_predicted_firing *f)
{
    const int64_t begin = (int64_t)(1e9 * f->begin_s);
    trace_add(ctx, (struct trace_event){.start_ns = begin, .ns = (int64_t)(1e9 * f->end_s) - begin, .step = f->step, .actor = (uint32_t)f->number,
                                        .micro = (uint32_t)f->micro});
}

static weir_status write_trace(const struct trace *trace, struct trace_file *file, const weir_plan *plan)
{
    trace_begin(file, plan, "predicted");
    trace_write(trace, file, plan, 0);
    return trace_end(file);
}

weir_status traces_predict(const weir_plan *plan, const weir_rates *rates, const weir_predict_opts *given, const char *path, weir_prediction *p)
{
    struct trace trace = {.events = NULL};
    struct trace_file file = {.to = NULL};
    weir_predict_opts opts = *given;
    opts.fired = record;
    opts.ctx = &trace;
    weir_status status = trace_file_open(&file, path);
    status = status ? status : trace_open(&trace, EVENTS);
    status = status ? status : weir_predict_at(plan, rates, p, &opts);
    status = status ? status : write_trace(&trace, &file, plan);
    trace_file_drop(&file);
    trace_close(&trace);
    return status;
}

/* ---- read ---- */

static traced_actor *find(traces *t, const char *name)
{
    json_t *number = json_object_get(t->index, name);
    if (number)
        return &t->actors[json_integer_value(number)];
    if (t->count == t->room) {
        const size_t room = t->room ? 2 * t->room : 256;
        traced_actor *actors = realloc(t->actors, room * sizeof *actors);
        if (!actors)
            return NULL;
        t->actors = actors;
        t->room = room;
    }
    if (json_object_set_new(t->index, name, json_integer((json_int_t)t->count)))
        return NULL;
    t->actors[t->count] = (traced_actor){.name = name};
    return &t->actors[t->count++];
}

/* Counts an event; those that are no firings count nothing. False: no memory. */
static bool take_event(traces *t, const json_t *event, int side)
{
    const char *phase = json_string_value(json_object_get(event, "ph")), *name = json_string_value(json_object_get(event, "name"));
    const json_t *length = json_object_get(event, "dur"), *step = json_object_get(json_object_get(event, "args"), "step");
    if (!phase || strcmp(phase, "X") != 0 || !name || !json_is_number(length) || !json_is_integer(step))
        return true;
    traced_actor *actor = find(t, name);
    if (!actor)
        return false;
    actor->us[side] += json_number_value(length);
    actor->firings[side]++;
    return true;
}

static weir_status take(traces *t, const char *path, int side)
{
    json_error_t error;
    int64_t firings = 0;
    t->document[side] = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *events = json_object_get(t->document[side], "traceEvents");
    if (!json_is_array(events))
        return error_set(WEIR_E_ARGUMENT, "%s is no trace: %s", path, t->document[side] ? "it has no list traceEvents" : error.text);
    for (size_t i = 0; i < json_array_size(events); i++)
        if (!take_event(t, json_array_get(events, i), side))
            return error_set(WEIR_E_MEMORY, "no memory for the actors of a trace");
    for (size_t i = 0; i < t->count; i++)
        firings += t->actors[i].firings[side];
    return firings ? WEIR_OK : error_set(WEIR_E_ARGUMENT, "%s has no firing", path);
}

/* ---- compared ---- */

static int compare(const void *a, const void *b)
{
    const double x = fabs(((const traced_actor *)a)->share), y = fabs(((const traced_actor *)b)->share);
    return x > y ? -1 : x < y;
}

/* Only actors that both have are compared: a run may have had other programs too. */
static void weigh(traces *t)
{
    double all = 0;
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->actors[i].firings[0] && t->actors[i].firings[1])
            t->actors[kept++] = t->actors[i];
    t->alone = t->count - kept;
    t->count = kept;
    for (size_t i = 0; i < kept; i++)
        all += t->actors[i].us[1];
    for (size_t i = 0; i < kept; i++) {
        traced_actor *a = &t->actors[i];
        a->share = all > 0 ? (a->us[0] / (double)a->firings[0] * (double)a->firings[1] - a->us[1]) / all : 0;
        t->error += fabs(a->share);
    }
    if (kept)
        qsort(t->actors, kept, sizeof *t->actors, compare);
}

weir_status traces_read(traces *t, const char *first, const char *second)
{
    *t = (traces){.index = json_object()};
    weir_status status = t->index ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the actors of a trace");
    status = status ? status : take(t, first, 0);
    status = status ? status : take(t, second, 1);
    if (!status)
        weigh(t);
    return status;
}

void traces_free(traces *t)
{
    for (int side = 0; side < TRACES; side++)
        json_decref(t->document[side]);
    json_decref(t->index);
    free(t->actors);
    *t = (traces){.index = NULL};
}
