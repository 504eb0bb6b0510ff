/* apps/common/ranks.c: what a program does once, although every rank of a cluster runs it. */
#include "apps/common/ranks.h"

#include <stdio.h>
#include <string.h>

bool ranks_first(void)
{
    return weir_rank() == 0;
}

bool ranks_has_device(const weir_session *session)
{
    weir_session_stats stats;
    weir_session_get_stats(session, &stats);
    return stats.queue_count > 0;
}

const char *ranks_path(const char *path, char own[PATHS_BYTES])
{
    return path ? ranks_path_of(path, weir_rank(), own) : NULL;
}

const char *ranks_path_of(const char *path, int rank, char own[PATHS_BYTES])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    size_t stem = dot && dot > name ? (size_t)(dot - path) : strlen(path);
    if (weir_world_size() == 1)
        snprintf(own, PATHS_BYTES, "%s", path);
    else
        snprintf(own, PATHS_BYTES, "%.*s.rank%d%s", (int)stem, path, rank, path + stem);
    return own;
}
