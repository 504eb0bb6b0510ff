/* graph/base/replaced.h: a file that takes the place of another one when it is whole.
 *
 *     struct replaced r;
 *     bool ok = replaced_open(&r, path);               // false: errno says why
 *     ok = ok && replaced_write(&r, bytes, count);
 *     ok = replaced_close(&r, ok) && ok;
 *
 * It is written beside the old file and renamed: whoever opens the path sees the old file or the new one, whole. A
 * symbolic link stays: the file that it leads to is replaced, or made where there is none. The permissions of the old
 * file stay.
 *
 * A FIFO, a device or a socket is never replaced but written, and so is the file of the process's standard output or
 * error (/dev/stdout), at its place: a new file would not be the one that is open there. One thread.
 */
#ifndef GRAPH_BASE_REPLACED_H
#define GRAPH_BASE_REPLACED_H

#include <stdbool.h>
#include <stddef.h>

struct replaced {
    int fd;
    char *path;      /* owned: of the file itself, behind all links */
    char *temporary; /* owned; NULL: `path` is written in its place */
};

/* False with errno set, EISDIR for a folder; there is nothing to close then. */
bool replaced_open(struct replaced *r, const char *path);
bool replaced_write(struct replaced *r, const void *bytes, size_t count);

/* Puts the file in its place when `whole`, else removes it. False with errno set when it is not whole on the disk; errno
 * stays as it is when not `whole`. Closes one that was not opened, too, which `path` NULL says. */
bool replaced_close(struct replaced *r, bool whole);

/* The path of the regular file that `path` names or would make, behind all links; to be freed. NULL: errno says why;
 * EINVAL: it is no regular file. */
char *replaced_target(const char *path);

#endif
