/* apps/weir/launch_snapshots.c: see the header. */
#define _GNU_SOURCE
#include "apps/weir/launch_snapshots.h"

#include <ftw.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define MEMORY "/dev/shm"
#define OPEN_MAX_FOLDERS 8

const char *launch_snapshots_make(char path[LAUNCH_SNAPSHOTS_BYTES])
{
    struct statfs system;
    snprintf(path, LAUNCH_SNAPSHOTS_BYTES, "%s/weir-snapshots-XXXXXX", MEMORY);
    if (statfs(MEMORY, &system) || system.f_type != TMPFS_MAGIC || !mkdtemp(path))
        path[0] = '\0';
    return path;
}

static int remove_entry(const char *path, const struct stat *entry, int type, struct FTW *place)
{
    (void)entry, (void)type, (void)place;
    remove(path);
    return 0;
}

void launch_snapshots_remove(const char *path)
{
    if (*path)
        nftw(path, remove_entry, OPEN_MAX_FOLDERS, FTW_DEPTH | FTW_PHYS);
}
