/* apps/common/paths.h: where the project's own files are, from wherever a program was started. Keeps no state. */
#ifndef APPS_COMMON_PATHS_H
#define APPS_COMMON_PATHS_H

#include <stdbool.h>
#include <stddef.h>

#define PATHS_BYTES 4096

/* Writes the path of `file` within the project ("apps/data/digits.csv") to `path`: the first folder that has it, going
 * up from the one that the program itself lies in, then from the working directory. False when none has. */
bool paths_in_project(const char *file, char path[PATHS_BYTES]);

/* Puts the path that the symbolic link `path` leads to in its place. False: it is no link. */
bool paths_follow(char path[PATHS_BYTES]);

/* A list of paths, sorted. */
typedef struct paths_list {
    char **path; /* owned */
    int count;
} paths_list;

/* The project's own text: every .c, .h and .md file under its folders, in alphabetical order (so that every run on the
 * same tree reads the same bytes). Empty when the tree is not where it was built. */
void paths_sources(paths_list *list);
void paths_free(paths_list *list);

#endif
