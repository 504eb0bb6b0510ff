/* graph/data/paths.c: see the header. */
#include "graph/data/paths.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/base/locale.h"

static weir_status add(struct data_paths *paths, const char *path)
{
    if (paths->count == DATA_FILES_MAX)
        return error_set(WEIR_E_ARGUMENT, "more than %d files", DATA_FILES_MAX);
    if (paths->count == paths->room) {
        const int room = paths->room ? 2 * paths->room : 16;
        char **grown = realloc(paths->item, (size_t)room * sizeof *grown);
        if (!grown)
            return error_set(WEIR_E_MEMORY, "no memory for the names of files");
        paths->item = grown;
        paths->room = room;
    }
    paths->item[paths->count] = strdup(path);
    if (!paths->item[paths->count])
        return error_set(WEIR_E_MEMORY, "no memory for the names of files");
    paths->count++;
    return WEIR_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

weir_status data_paths_add(struct data_paths *paths, const char *pattern)
{
    glob_t found = {0};
    if (!strpbrk(pattern, "*?[") || !access(pattern, F_OK))
        return add(paths, pattern);
    const int failed = glob_paths(pattern, &found);
    weir_status status = failed == GLOB_NOSPACE ? error_set(WEIR_E_MEMORY, "no memory for the names of files")
                         : failed               ? error_set(WEIR_E_IO, "%s: no file has such a name", pattern)
                                                : WEIR_OK;
    if (!failed)
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    for (size_t i = 0; !status && i < found.gl_pathc; i++)
        status = add(paths, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

void data_paths_free(struct data_paths *paths)
{
    for (int i = 0; i < paths->count; i++)
        free(paths->item[i]);
    free(paths->item);
    *paths = (struct data_paths){0};
}
