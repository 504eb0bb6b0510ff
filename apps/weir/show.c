/* weir show: a plan, for people, for programs, or for graphviz. */
#include "apps/common/options.h"
#include "apps/weir/command.h"
#include "apps/weir/show_ranks.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char program[] = "weir show";

typedef struct drawing {
    const char *dot, *svg; /* files; NULL: none */
    bool every;            /* each actor */
} drawing;

static weir_status draw(const weir_plan *plan, const drawing *d, FILE *to)
{
    return (d->every ? weir_plan_dot : weir_plan_picture)(plan, to);
}

static int write_dot(const weir_plan *plan, const drawing *d)
{
    FILE *file = fopen(d->dot, "w");
    if (!file)
        return options_wrong(program, "--dot: cannot write %s: %s", d->dot, strerror(errno));
    weir_status status = draw(plan, d, file);
    bool lost = ferror(file);
    lost = fclose(file) || lost;
    if (lost)
        return options_wrong(program, "--dot: cannot write %s: %s", d->dot, strerror(errno));
    return status ? options_failed(program) : 0;
}

/* Runs graphviz's dot on what `from` holds. What it says itself goes to stderr. */
static int run_dot(FILE *from, const char *path)
{
    extern char **environ;
    char output[4096];
    char *argv[] = {"dot", "-Tsvg", output, NULL};
    posix_spawn_file_actions_t actions;
    pid_t id = 0;
    int status = 0;
    snprintf(output, sizeof output, "-o%s", path);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(from), STDIN_FILENO);
    int failed = posix_spawnp(&id, "dot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return options_wrong(program, "--svg: cannot run dot, which is of the Debian package graphviz: %s",
                             strerror(failed)), 1;
    while (waitpid(id, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        return options_wrong(program, "--svg: dot could not draw %s", path), 1;
    return 0;
}

static int write_svg(const weir_plan *plan, const drawing *d)
{
    FILE *own = tmpfile(), *file = fopen(d->svg, "w");
    int status = 0;
    if (!own || !file)
        status = options_wrong(program, "--svg: cannot write %s: %s", own ? d->svg : "a temporary file", strerror(errno));
    else if (draw(plan, d, own) || fflush(own) || fseek(own, 0, SEEK_SET))
        status = options_failed(program);
    else
        status = run_dot(own, d->svg);
    if (own)
        fclose(own);
    if (file)
        fclose(file);
    return status;
}

/* A failure of standard output is reported at the program's end. */
static int printed(weir_status status)
{
    return !status ? 0 : ferror(stdout) ? 1 : options_failed(program);
}

/* A name that nothing has is the command line's. */
static int list_plan(const weir_plan *plan, weir_list_opts *opts, bool json)
{
    opts->json = json;
    weir_status status = weir_plan_list_at(plan, stdout, opts);
    return status == WEIR_E_ARGUMENT ? options_wrong(program, "%s", weir_error()) : printed(status);
}

int command_show(int argc, char **argv)
{
    const char *path = NULL;
    drawing picture = {.dot = NULL};
    bool json = false;
    int ranks = 0, devices = 0;
    weir_list_opts list = {.size = sizeof list};
    options_list objects = {0};
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--json", OPTIONS_FLAG, &json, .help = "one JSON object"},
        {"--svg", OPTIONS_TEXT, &picture.svg, .value = "FILE", .file = OPTIONS_WRITES,
         .help = "draw what stages do in each phase (with dot)"},
        {"--dot", OPTIONS_TEXT, &picture.dot, .value = "FILE", .file = OPTIONS_WRITES,
         .help = "write that for graphviz"},
        {"--every", OPTIONS_FLAG, &picture.every, .help = "draw each actor"},
        {"--tensors", OPTIONS_FLAG, &list.tensors, .help = "list logical tensors: type, devices, layout, line"},
        {"--filter", OPTIONS_TEXT, &list.filter, .value = "GLOB", .help = "list those of this name: actors, or tensors"},
        {"--device", OPTIONS_TEXT, &list.device, .value = "GLOB", .help = "list what is on these: \"cpu:[0-3]\""},
        {"--stage", OPTIONS_INT, &list.stage, .min = 1, .max = 65536, .help = "list what is of this stage of a pipeline"},
        {"--ranks", OPTIONS_INT, &ranks, .min = 1, .max = 4096,
         .help = "what N ranks, each on a host, exchange, and in what memory"},
        {"--devices", OPTIONS_INT, &devices, .min = 1, .max = 4096,
         .help = "of each of those ranks [shared out evenly]"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Prints a plan.", table}, argc, argv);
    if (status < 0)
        status = command_load_ops(program, &objects);
    if (status >= 0)
        return status;
    weir_plan *plan = command_load(program, path, &status);
    if (!plan)
        return status;
    if (picture.svg)
        status = write_svg(plan, &picture);
    else if (picture.dot)
        status = write_dot(plan, &picture);
    else if (ranks)
        status = printed(show_ranks(plan, ranks, devices, json, stdout));
    else if (list.tensors || list.filter || list.device || list.stage)
        status = list_plan(plan, &list, json);
    else
        status = printed((json ? weir_plan_json : weir_plan_show)(plan, stdout));
    weir_plan_free(plan);
    return status;
}
