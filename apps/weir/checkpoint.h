/* apps/weir/checkpoint.h: what `weir checkpoint` can do, one function each; argv[0] is its name. Exit statuses are
 * those of the verbs of `weir`: 0; 1 when a checkpoint is not what it should be; 2 for a wrong command line. */
#ifndef APPS_WEIR_CHECKPOINT_H
#define APPS_WEIR_CHECKPOINT_H

#include <stdbool.h>

/* name, arguments, what it does */
#define CHECKPOINT_LIST(X)                                                            \
    X(ls, "DIR [--json]", "list the checkpoints of a folder, or the contents of one") \
    X(verify, "DIR", "read every byte and compare checksums")                         \
    X(convert, "FROM TO [--map FILE] [--all]", "convert to and from .safetensors and .npy, from .gguf, and models to quantised .gguf")

#define X(name, arguments, text) int checkpoint_##name(int argc, char **argv);
CHECKPOINT_LIST(X)
#undef X

/* The checkpoints in a folder, by name (steps in their order); or the folder itself when it is one, or a file. */
struct checkpoint_paths {
    char **path; /* owned */
    int count;
    int room;
};
bool checkpoint_look(const char *path, struct checkpoint_paths *found); /* false: errno; there may be none */
/* The folders in it that interrupted saves have left, and those that older builds moved out of their way. */
bool checkpoint_left(const char *path, struct checkpoint_paths *found);
/* -1 when there is one; else the exit status, after reporting. */
int checkpoint_find(const char *program, const char *path, struct checkpoint_paths *found);
void checkpoint_paths_free(struct checkpoint_paths *found);

#endif
