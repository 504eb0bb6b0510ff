/* apps/weir/verbs.h: the verbs of a command (`weir run`), or of a verb (`weir tokens encode`).
 *
 *     static const struct verb list[] = {{"encode", "FILE", "write ids", tokens_encode}, {.name = NULL}};
 *     static const struct verbs verbs = {"weir tokens", "usage: ...", 20, "`weir tokens encode --help` ...", "needs encode", list};
 *     return verbs_run(&verbs, argc, argv);
 */
#ifndef APPS_WEIR_VERBS_H
#define APPS_WEIR_VERBS_H

struct verb {
    const char *name, *arguments, *text; /* what it does */
    int (*run)(int argc, char **argv);   /* argv[0] is the verb; an exit status */
};
#define VERB(name, arguments, text, run) {#name, arguments, text, run##name},

struct verbs {
    const char *program;
    const char *usage;      /* the first lines of --help */
    int width;              /* of a verb and its arguments there */
    const char *end;        /* its last line */
    const char *needs;      /* the sentence if no verb is given */
    const struct verb *list; /* ends at the first without a name */
};

/* The verb that argv[1] is; NULL: none is. */
const struct verb *verbs_find(const struct verbs *v, int argc, char **argv);
/* Prints --help, or says what is wrong. An exit status. */
int verbs_none(const struct verbs *v, int argc, char **argv);
/* Runs argv[1], or verbs_none(). An exit status. */
int verbs_run(const struct verbs *v, int argc, char **argv);

#endif
