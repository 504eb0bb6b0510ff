/* weir: looks at plans, checks them, runs them, and measures. */
#include "apps/common/options.h"
#include "apps/common/paths.h"
#include "apps/common/streams.h"
#include "apps/weir/command.h"
#include "graph/base/names.h"
#include "graph/base/reading.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int command_check_readable(const char *program, const char *path)
{
    char meant[PATHS_BYTES], first;
    const char *why;
    int fd = reading_open(path, &why);
    if (fd < 0)
        return options_wrong(program, "cannot read %s: %s%s", path, why, paths_meant(path, meant));
    ssize_t got = read(fd, &first, 1);
    int status = got == 1 ? -1 : options_wrong(program, "cannot read %s: %s", path, got ? strerror(errno) : "it is empty");
    close(fd);
    return status;
}

int command_load_ops(const char *program, const options_list *objects)
{
    int status = -1;
    for (int i = 0; i < objects->count && status < 0; i++) {
        status = command_check_readable(program, objects->value[i]);
        if (status < 0 && weir_op_load(objects->value[i]))
            status = options_failed(program);
    }
    return status;
}

weir_plan *command_load(const char *program, const char *path, int *status)
{
    if ((*status = command_check_readable(program, path)) >= 0)
        return NULL;
    weir_plan *plan = weir_plan_load(path);
    if (!plan)
        *status = options_failed(program);
    return plan;
}

static int help(FILE *to)
{
    fprintf(to, "usage: weir VERB ...\nLook at plans, check and run them, start ranks, and look after checkpoints.\n\n");
#define X(verb, arguments, text) fprintf(to, "  %-46s %s\n", #verb " " arguments, text);
    COMMAND_LIST(X)
#undef X
    fprintf(to, "\n`weir VERB --help` lists a verb's options, `weir --version` prints the version. weir-gpt --plan FILE writes a plan.\n");
    return 0;
}

static int wrong_verb(const char *verb)
{
    struct names names = {.wanted = verb};
    char text[NAMES_TEXT_BYTES];
#define X(name, arguments, what) names_add(&names, #name);
    COMMAND_LIST(X)
#undef X
    return options_wrong("weir", "there is no verb \"%s\"%s; weir --help tells more", verb,
                         names_text(&names, text, sizeof text));
}

/* A command line without a verb. */
static int no_verb(int argc, char **argv)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")))
        return help(stdout);
    if (argc > 1 && !strcmp(argv[1], "--version"))
        return printf("weir %s\n", weir_version()), 0;
    if (argc > 1)
        return wrong_verb(argv[1]);
    return options_wrong("weir", "needs a verb; weir --help lists them");
}

int main(int argc, char **argv)
{
    streams_begin();
#define X(verb, arguments, text)           \
    if (argc > 1 && !strcmp(argv[1], #verb)) \
        return streams_end("weir " #verb, command_##verb(argc - 1, argv + 1));
    COMMAND_LIST(X)
#undef X
    return streams_end("weir", no_verb(argc, argv));
}
