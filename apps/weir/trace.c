/* weir trace diff: where two traces of one plan differ: one that was predicted, and one of a run. */
#include "apps/weir/command.h"
#include "apps/weir/traces.h"
#include "apps/weir/verbs.h"
#include "graph/base/foreign.h"

static const char program[] = "weir trace diff";

enum { SHOWN = 20 };

static double mean(const traced_actor *a, int side)
{
    return a->us[side] / (double)a->firings[side];
}

static void print(const traces *t)
{
    printf("%12s %12s %8s  actor\n", "first, us", "second, us", "of all");
    for (size_t i = 0; i < t->count && i < SHOWN; i++) {
        const traced_actor *a = &t->actors[i];
        printf("%12.2f %12.2f %+7.2f%%  ", mean(a, 0), mean(a, 1), 100 * a->share);
        foreign_put(stdout, a->name);
        puts("");
    }
    if (t->count > SHOWN)
        printf("and %zu more actors\n", t->count - SHOWN);
    if (t->alone)
        printf("%zu actors are in one trace alone\n", t->alone);
    printf("together the times of actors differ by %.1f %% of the second's\n", 100 * t->error);
}

static int trace_diff(int argc, char **argv)
{
    const char *path[TRACES] = {NULL};
    const options_entry table[] = {
        {"PREDICTED", OPTIONS_TEXT, &path[0], .file = OPTIONS_READS, .help = "a trace, as weir predict --trace writes it"},
        {"REAL", OPTIONS_TEXT, &path[1], .file = OPTIONS_READS, .help = "another of the same plan, as --trace of a program writes it"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "List the actors whose firings differ most between two traces, by their share of all time.", table}, argc, argv);
    if (status >= 0)
        return status;
    traces t;
    status = traces_read(&t, path[0], path[1]) ? options_failed(program) : 0;
    if (!status)
        print(&t);
    traces_free(&t);
    return status;
}

int command_trace(int argc, char **argv)
{
    static const struct verb list[] = {{"diff", "PREDICTED REAL", "list where two traces of a plan differ", trace_diff}, {.name = NULL}};
    static const struct verbs verbs = {"weir trace", "usage: weir trace diff PREDICTED REAL\nCompare traces.", 30, "`weir trace diff --help` tells more.",
                                       "needs diff", list};
    return verbs_run(&verbs, argc, argv);
}
