/* graph/base/replaced.c: a file that takes the place of another one when it is whole. */
#define _GNU_SOURCE
#include "graph/base/replaced.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_TRIES 100 /* names of temporary files */
#define LINKS_MAX 40   /* one behind the other, as in Linux */

/* ---- which file it is ---- */

/* The target of the link `path`, from where `path` starts; to be freed. NULL with errno set, EINVAL: it is no link. */
static char *follow(const char *path)
{
    char target[PATH_MAX], *joined = NULL;
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    if (bytes < 0)
        return NULL;
    target[bytes] = '\0';
    const char *slash = strrchr(path, '/');
    int folder = *target == '/' || !slash ? 0 : (int)(slash + 1 - path);
    if (asprintf(&joined, "%.*s%s", folder, path, target) < 0)
        return errno = ENOMEM, NULL;
    return joined;
}

/* The name behind the links that `path` begins with; `path` itself where it is none. */
static char *behind_links(const char *path)
{
    char *name = strdup(path);
    for (int i = 0; name && i < LINKS_MAX; i++) {
        char *next = follow(name);
        if (!next && (errno == EINVAL || errno == ENOENT))
            return name;
        free(name);
        name = next;
    }
    if (name)
        errno = ELOOP;
    free(name);
    return NULL;
}

/* Whether the name is that file's: a link of /proc may lead to a file that has none any more. */
static bool is_name_of(const char *name, const struct stat *info)
{
    struct stat own;
    return !stat(name, &own) && own.st_dev == info->st_dev && own.st_ino == info->st_ino;
}

char *replaced_target(const char *path)
{
    struct stat info;
    bool is_new = stat(path, &info) != 0;
    if (is_new && errno != ENOENT)
        return NULL;
    if (!is_new && !S_ISREG(info.st_mode))
        return errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL, NULL;
    char *name = behind_links(path);
    if (!name || is_new || is_name_of(name, &info))
        return name;
    free(name);
    return errno = EINVAL, NULL;
}

/* ---- written in its place ---- */

/* A descriptor of the stream whose file this is; -1: of neither. */
static int open_stream(const struct stat *info)
{
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat other;
        int flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && !fstat(fd, &other) && other.st_dev == info->st_dev &&
            other.st_ino == info->st_ino)
            return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    return -1;
}

/* -1: `path` is to be replaced, or is a folder. */
static int open_in_place(const char *path)
{
    struct stat info;
    if (stat(path, &info) || S_ISDIR(info.st_mode))
        return -1;
    int fd = open_stream(&info);
    if (fd >= 0 || S_ISREG(info.st_mode))
        return fd;
    return open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
}

/* ---- written beside it ---- */

/* The new file may be read and written by whom the old one could. */
static bool keep_mode(int fd, const char *path)
{
    struct stat info;
    return stat(path, &info) || !fchmod(fd, info.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO));
}

/* A new file beside r->path. -1: errno says why. */
static int open_beside(struct replaced *r)
{
    size_t bytes = strlen(r->path) + 64;
    r->temporary = malloc(bytes);
    int fd = -1;
    for (int i = 0; r->temporary && fd < 0 && i < NAME_TRIES; i++) {
        snprintf(r->temporary, bytes, "%s.%ld-%d.tmp", r->path, (long)getpid(), i);
        fd = open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

static void forget(struct replaced *r)
{
    int why = errno;
    free(r->path);
    free(r->temporary);
    *r = (struct replaced){.fd = -1};
    errno = why;
}

bool replaced_open(struct replaced *r, const char *path)
{
    *r = (struct replaced){.fd = open_in_place(path)};
    r->path = r->fd >= 0 ? strdup(path) : replaced_target(path);
    if (r->fd < 0 && r->path)
        r->fd = open_beside(r);
    if (r->fd < 0)
        return forget(r), false;
    return (r->path && (!r->temporary || keep_mode(r->fd, r->path))) || (replaced_close(r, false), false);
}

bool replaced_write(struct replaced *r, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count) {
        ssize_t written = write(r->fd, at, count);
        if (written < 0 && errno != EINTR)
            return false;
        at += written > 0 ? written : 0;
        count -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* The new name is on the disk. A folder that may be written but not read cannot be told to. */
static bool sync_folder(const struct replaced *r)
{
    char *path = strdup(r->path);
    int fd = path ? open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 ? !fsync(fd) || errno == EINVAL || errno == EROFS : path && errno == EACCES;
    int why = errno;
    if (fd >= 0)
        close(fd);
    free(path);
    errno = why;
    return ok;
}

/* `ok`: so far. errno is of what failed first. */
static bool close_file(struct replaced *r, bool ok)
{
    int why = errno;
    bool closed = close(r->fd) == 0;
    errno = ok ? errno : why;
    return ok && closed;
}

static bool put_in_place(struct replaced *r, bool whole)
{
    bool ok = whole && fsync(r->fd) == 0;
    ok = close_file(r, ok) && rename(r->temporary, r->path) == 0;
    if (ok)
        return sync_folder(r);
    int why = errno;
    unlink(r->temporary);
    errno = why;
    return false;
}

bool replaced_close(struct replaced *r, bool whole)
{
    if (!r->path && r->fd < 0)
        return false;
    bool ok = r->temporary ? put_in_place(r, whole) : close_file(r, whole);
    forget(r);
    return ok;
}
