/* weir trace diff: where two traces of one plan differ: one that was predicted, and one of a run. */
#include "apps/weir/command.h"
#include "apps/weir/verbs.h"
#include "graph/base/foreign.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char program[] = "weir trace diff";

enum { SIDES = 2, SHOWN = 20 };

/* All firings of an actor. */
typedef struct actor_times {
    const char *name;      /* borrowed from the document */
    double us[SIDES];      /* of all its firings */
    int64_t firings[SIDES];
    double share;          /* of a step's time by which the two differ */
} actor_times;

typedef struct traces {
    json_t *document[SIDES]; /* owned */
    json_t *index;         /* owned: from a name to its number */
    actor_times *actors;   /* owned */
    size_t count, room;
    size_t alone;          /* actors that one trace alone has */
    int64_t steps[SIDES];  /* that the trace has of all actors, at most */
} traces;

/* ---- read ---- */

static actor_times *find(traces *t, const char *name)
{
    json_t *number = json_object_get(t->index, name);
    if (number)
        return &t->actors[json_integer_value(number)];
    if (t->count == t->room) {
        const size_t room = t->room ? 2 * t->room : 256;
        actor_times *actors = realloc(t->actors, room * sizeof *actors);
        if (!actors)
            return NULL;
        t->actors = actors;
        t->room = room;
    }
    if (json_object_set_new(t->index, name, json_integer((json_int_t)t->count)))
        return NULL;
    t->actors[t->count] = (actor_times){.name = name};
    return &t->actors[t->count++];
}

/* Counts an event; those that are no firings count nothing. */
static bool take_event(traces *t, const json_t *event, int side, int64_t *first, int64_t *last)
{
    const char *phase = json_string_value(json_object_get(event, "ph")), *name = json_string_value(json_object_get(event, "name"));
    const json_t *length = json_object_get(event, "dur"), *step = json_object_get(json_object_get(event, "args"), "step");
    if (!phase || strcmp(phase, "X") != 0 || !name || !json_is_number(length) || !json_is_integer(step))
        return true;
    actor_times *actor = find(t, name);
    if (!actor)
        return false;
    actor->us[side] += json_number_value(length);
    actor->firings[side]++;
    const int64_t at = json_integer_value(step);
    *first = at < *first ? at : *first;
    *last = at > *last ? at : *last;
    return true;
}

static int take(traces *t, const char *path, int side)
{
    json_error_t error;
    int64_t first = INT64_MAX, last = INT64_MIN;
    t->document[side] = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *events = json_object_get(t->document[side], "traceEvents");
    if (!json_is_array(events))
        return options_wrong(program, "%s is no trace: %s", path, t->document[side] ? "it has no list traceEvents" : error.text);
    for (size_t i = 0; i < json_array_size(events); i++)
        if (!take_event(t, json_array_get(events, i), side, &first, &last))
            return options_wrong(program, "out of memory"), 1;
    if (first > last)
        return options_wrong(program, "%s has no firing", path);
    t->steps[side] = last - first + 1;
    return -1;
}

/* ---- compared ---- */

static double mean(const actor_times *a, int side)
{
    return a->firings[side] ? a->us[side] / (double)a->firings[side] : 0;
}

static int compare(const void *a, const void *b)
{
    const double x = fabs(((const actor_times *)a)->share), y = fabs(((const actor_times *)b)->share);
    return x > y ? -1 : x < y;
}

/* Only actors that both have are compared: a run may have had other programs too. */
static void weigh(traces *t)
{
    double all = 0;
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (t->actors[i].firings[0] && t->actors[i].firings[1])
            t->actors[kept++] = t->actors[i];
    }
    t->alone = t->count - kept;
    t->count = kept;
    for (size_t i = 0; i < t->count; i++)
        all += t->actors[i].us[1] / (double)t->steps[1];
    for (size_t i = 0; i < t->count; i++) {
        actor_times *a = &t->actors[i];
        a->share = all > 0 ? (a->us[0] / (double)t->steps[0] - a->us[1] / (double)t->steps[1]) / all : 0;
    }
    if (t->count)
        qsort(t->actors, t->count, sizeof *t->actors, compare);
}

static void print(const traces *t)
{
    double error = 0;
    printf("%12s %12s %8s  actor\n", "first, us", "second, us", "of all");
    for (size_t i = 0; i < t->count; i++) {
        const actor_times *a = &t->actors[i];
        error += fabs(a->share);
        if (i >= SHOWN)
            continue;
        printf("%12.2f %12.2f %+7.2f%%  ", mean(a, 0), mean(a, 1), 100 * a->share);
        foreign_put(stdout, a->name);
        puts("");
    }
    if (t->count > SHOWN)
        printf("and %zu more actors\n", t->count - SHOWN);
    if (t->alone)
        printf("%zu actors are in one trace alone\n", t->alone);
    printf("together the times of actors differ by %.1f %% of the second's\n", 100 * error);
}

static int trace_diff(int argc, char **argv)
{
    const char *path[SIDES] = {NULL};
    const options_entry table[] = {
        {"PREDICTED", OPTIONS_TEXT, &path[0], .file = OPTIONS_READS, .help = "a trace, as weir predict --trace writes it"},
        {"REAL", OPTIONS_TEXT, &path[1], .file = OPTIONS_READS, .help = "another of the same plan, as --trace of a program writes it"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "List the actors whose firings differ most between two traces, by their share of a step.", table}, argc, argv);
    traces t = {.index = json_object()};
    for (int side = 0; side < SIDES && status < 0; side++)
        status = take(&t, path[side], side);
    if (status < 0) {
        weigh(&t);
        print(&t);
        status = 0;
    }
    for (int side = 0; side < SIDES; side++)
        json_decref(t.document[side]);
    json_decref(t.index);
    free(t.actors);
    return status;
}

int command_trace(int argc, char **argv)
{
    static const struct verb list[] = {{"diff", "PREDICTED REAL", "list where two traces of a plan differ", trace_diff}, {.name = NULL}};
    static const struct verbs verbs = {"weir trace", "usage: weir trace diff PREDICTED REAL\nCompare traces.", 30, "`weir trace diff --help` tells more.",
                                       "needs diff", list};
    return verbs_run(&verbs, argc, argv);
}
