/* verbs.c: see the header. */
#include "apps/weir/verbs.h"

#include "apps/common/options.h"
#include "graph/base/names.h"

#include <stdio.h>
#include <string.h>

const struct verb *verbs_find(const struct verbs *v, int argc, char **argv)
{
    for (const struct verb *verb = v->list; argc > 1 && verb->name; verb++)
        if (!strcmp(argv[1], verb->name))
            return verb;
    return NULL;
}

static int help(const struct verbs *v)
{
    printf("%s\n\n", v->usage);
    for (const struct verb *verb = v->list; verb->name; verb++) {
        const int used = printf("  %s %s", verb->name, verb->arguments) - 2;
        printf("%*s %s\n", used < v->width ? v->width - used : 0, "", verb->text);
    }
    printf("\n%s\n", v->end);
    return 0;
}

int verbs_none(const struct verbs *v, int argc, char **argv)
{
    struct names names = {.wanted = argc > 1 ? argv[1] : NULL};
    char text[NAMES_TEXT_BYTES];
    if (argc < 2)
        return options_wrong(v->program, "%s", v->needs);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return help(v);
    for (const struct verb *verb = v->list; verb->name; verb++)
        names_add(&names, verb->name);
    return options_wrong(v->program, "there is no verb \"%s\"%s; %s --help tells more", argv[1], names_text(&names, text, sizeof text), v->program);
}

int verbs_run(const struct verbs *v, int argc, char **argv)
{
    const struct verb *verb = verbs_find(v, argc, argv);
    return verb ? verb->run(argc - 1, argv + 1) : verbs_none(v, argc, argv);
}
