/* apps/common/paths.h: where the project's own files are, from wherever a program was started: in its tree, or installed.
 * Keeps no state. */
#ifndef APPS_COMMON_PATHS_H
#define APPS_COMMON_PATHS_H

#include <stdbool.h>
#include <stddef.h>

#define PATHS_BYTES 4096

/* Writes the path of a file that programs need to `path`; `file` is where it is in the tree ("apps/data/digits.csv"). In
 * this order:
 *
 *     in the tree     below a folder above the program's own, as of build/bin/weir-digits
 *     installed       ../share/weir/digits.csv, from the program's folder
 *     in the tree     below a folder above the working directory
 *
 * False when it is nowhere. */
bool paths_of_data(const char *file, char path[PATHS_BYTES]);

/* Where paths_of_data() has found none: "neither /opt/share/weir/digits.csv, nor apps/data/digits.csv in /opt/bin, ...". */
const char *paths_looked(const char *file, char *text, size_t bytes);

/* Puts the path that the symbolic link `path` leads to in its place. False: it is no link. */
bool paths_follow(char path[PATHS_BYTES]);

/* " (did you mean runs/plan?)": a file beside `path`, which is not there, whose name is near; "" when there is none, or
 * errno is not ENOENT. */
const char *paths_meant(const char *path, char text[PATHS_BYTES]);

/* Makes the folders above the file `path`, which is the same again then. False with errno set. */
bool paths_make_above(char *path);

typedef struct paths_list {
    char **path; /* owned */
    int count;
} paths_list;

/* The project's own text: every .c, .h and .md file under its folders, in alphabetical order (so that every run on the
 * same tree reads the same bytes). Empty when the tree is not where it was built. */
void paths_sources(paths_list *list);
void paths_free(paths_list *list);

#endif
