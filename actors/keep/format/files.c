/* actors/keep/format/files.c: what this room does to the disk.
 *
 * A name in a folder is on the disk when the folder has been synced, not when the file has; so every function here that
 * makes a name says who syncs its folder. A folder that is created is synced into the one above at once, because
 * nothing would find what is in it otherwise.
 */
#define _GNU_SOURCE
#include "actors/keep/format/files.h"

#include "graph/base/reading.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_BYTES_MAX ((size_t)1 << 30) /* of one call; the system takes no more than 2 GiB */

static int open_file(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static int exchange_names(const char *a, const char *b)
{
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

const struct keep_files keep_files_system = {
    .open = open_file,
    .write = write,
    .fsync = fsync,
    .close = close,
    .mkdir = mkdir,
    .rename = rename,
    .exchange = exchange_names,
    .link = link,
    .unlinkat = unlinkat,
};

bool keep_write_all(const struct keep_files *files, int fd, const void *bytes, size_t count)
{
    const char *from = bytes;
    while (count) {
        ssize_t written = files->write(fd, from, count < WRITE_BYTES_MAX ? count : WRITE_BYTES_MAX);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        from += written;
        count -= (size_t)written;
    }
    return true;
}

bool keep_read_all(int fd, uint64_t offset, void *bytes, size_t count)
{
    char *to = bytes;
    while (count) {
        ssize_t got = pread(fd, to, count < WRITE_BYTES_MAX ? count : WRITE_BYTES_MAX, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got ? errno : 0;
            return false;
        }
        to += got;
        offset += (uint64_t)got;
        count -= (size_t)got;
    }
    return true;
}

/* Closes, whatever went wrong before, and keeps the errno of what did. */
static bool close_after(const struct keep_files *files, int fd, bool ok)
{
    int why = errno;
    bool closed = files->close(fd) == 0;
    if (!ok)
        errno = why;
    return ok && closed;
}

bool keep_sync(const struct keep_files *files, int fd)
{
    int status;
    do
        status = files->fsync(fd);
    while (status && errno == EINTR);
    return status == 0;
}

bool keep_write_file(const struct keep_files *files, const char *path, const void *bytes, size_t count)
{
    int fd = files->open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    return close_after(files, fd, keep_write_all(files, fd, bytes, count) && keep_sync(files, fd));
}

static const char *read_rest(int fd, size_t limit, char **bytes, size_t *count)
{
    struct stat stat_of;
    if (fstat(fd, &stat_of))
        return strerror(errno);
    if ((uint64_t)stat_of.st_size > limit)
        return strerror(EFBIG);
    *count = (size_t)stat_of.st_size;
    *bytes = malloc(*count + 1);
    if (!*bytes)
        return strerror(ENOMEM);
    (*bytes)[*count] = '\0';
    return keep_read_all(fd, 0, *bytes, *count) ? NULL : keep_read_fault();
}

const char *keep_read_fault(void)
{
    return errno ? strerror(errno) : "it is cut short";
}

char *keep_read_file(const char *path, size_t limit, size_t *count, const char **why)
{
    char *bytes = NULL;
    int fd = reading_open(path, why);
    if (fd < 0)
        return NULL;
    *why = read_rest(fd, limit, &bytes, count);
    close(fd);
    if (!*why)
        return bytes;
    free(bytes);
    return NULL;
}

bool keep_sync_folder(const struct keep_files *files, const char *path)
{
    int fd = files->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    return close_after(files, fd, keep_sync(files, fd));
}

/* Makes the folder, whose parent is there. */
static bool make_folder(const struct keep_files *files, char *path)
{
    if (files->mkdir(path, 0777))
        return errno == EEXIST;
    char *slash = strrchr(path, '/');
    if (!slash)
        return keep_sync_folder(files, ".");
    *slash = '\0';
    bool ok = keep_sync_folder(files, *path ? path : "/");
    *slash = '/';
    return ok;
}

bool keep_make_folders(const struct keep_files *files, const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i])
            continue;
        char was = part[i];
        part[i] = '\0';
        if (part[i - 1] != '/' && access(part, F_OK) && !make_folder(files, part))
            return false;
        part[i] = was;
    }
    struct stat stat_of;
    if (stat(path, &stat_of))
        return false;
    errno = ENOTDIR;
    return S_ISDIR(stat_of.st_mode);
}

bool keep_identify(const char *path, struct keep_identity *id)
{
    struct stat stat_of;
    if (stat(path, &stat_of))
        return false;
    *id = (struct keep_identity){stat_of.st_dev, stat_of.st_ino};
    return true;
}
