/* weir: looks at plans, checks them, runs them, and measures. */
#include "apps/common/options.h"
#include "apps/common/paths.h"
#include "apps/common/streams.h"
#include "apps/weir/command.h"
#include "apps/weir/verbs.h"
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

int main(int argc, char **argv)
{
#define X(verb, arguments, text) VERB(verb, arguments, text, command_)
    static const struct verb list[] = {COMMAND_LIST(X) {.name = NULL}};
#undef X
    static const struct verbs verbs = {"weir", "usage: weir VERB ...\nLook at plans, check and run them, start ranks, and look after checkpoints.", 46,
                                       "`weir VERB --help` lists a verb's options, `weir --version` prints the version. weir-gpt --plan FILE writes a plan.",
                                       "needs a verb; weir --help lists them", list};
    char program[64];
    streams_begin();
    const struct verb *verb = verbs_find(&verbs, argc, argv);
    if (!verb && argc > 1 && !strcmp(argv[1], "--version"))
        return streams_end("weir", (printf("weir %s\n", weir_version()), 0));
    if (!verb)
        return streams_end("weir", verbs_none(&verbs, argc, argv));
    snprintf(program, sizeof program, "weir %s", verb->name);
    return streams_end(program, verb->run(argc - 1, argv + 1));
}
