/* graph/data/paths.h: the files that paths and patterns of the shell name, in an order that is the same in every process: as
 * they were given, and those of one pattern in the order of their names' bytes, whatever the locale. One thread. */
#ifndef GRAPH_DATA_PATHS_H
#define GRAPH_DATA_PATHS_H

#include <weir/base.h>

enum { DATA_FILES_MAX = 1 << 20 };

struct data_paths {
    char **item;  /* owned, as what they point to */
    int count, room;
};

/* Adds the files of one path or pattern. A file of exactly that name is the file. E_IO: there is none. */
weir_status data_paths_add(struct data_paths *paths, const char *pattern);
void data_paths_free(struct data_paths *paths);

#endif
