/* apps/common/writable.c: whether a file could be written. */
#define _GNU_SOURCE
#include "apps/common/writable.h"
#include "apps/common/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* one behind the other, as in Linux: stat() has found no more */

static bool folder_takes(char path[PATHS_BYTES])
{
    struct stat info;
    const char *folder = dirname(path);
    if (stat(folder, &info))
        return false;
    if (!S_ISDIR(info.st_mode))
        return errno = ENOTDIR, false;
    return !faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS);
}

bool writable(const char *path, bool replaced)
{
    char file[PATHS_BYTES];
    struct stat info;
    if (snprintf(file, sizeof file, "%s", path) >= (int)sizeof file)
        return errno = ENAMETOOLONG, false;
    bool there = stat(path, &info) == 0;
    if (!there && errno != ENOENT)
        return false;
    if (there && S_ISDIR(info.st_mode))
        return errno = EISDIR, false;
    if (there && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS))
        return false;
    if (there && (!replaced || !S_ISREG(info.st_mode)))
        return true;
    for (int i = 0; i < LINKS_MAX && paths_follow(file); i++)
        continue;
    return folder_takes(file);
}
