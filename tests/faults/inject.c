/* tests/faults/inject.c: makes the n-th call of a file function fail. An object for LD_PRELOAD; test_faults.c runs
 * programs with it.
 *
 *     FAULTS_BELOW=/tmp/x/work FAULTS_AT=7 FAULTS_ERRNO=28 FAULTS_MET=/tmp/x/met LD_PRELOAD=.../libinject.so weir-gpt ...
 *
 * Calls are counted that name, or have open, a file below FAULTS_BELOW, in the order in which they come, over all
 * threads of a process. The call number FAULTS_AT does not happen: it returns its error, with FAULTS_ERRNO, and its
 * name and file go to the file FAULTS_MET. There is no such file when the program makes fewer calls. close() alone
 * happens: a descriptor is free even after an error. With FAULTS_SHORT=1 only reads and writes of more than one byte
 * count, and the one that is met moves half of its bytes.
 *
 * The C library does not call itself through this table, so what a stream writes is not seen. A stream that is open for
 * writing counts twice when it is opened: once as the opening, once as the disk, which is full for this stream from
 * then on (ENOSPC, whatever FAULTS_ERRNO is). fflush() and fclose() of such a stream count as well, and lose what the
 * stream holds.
 *
 * Any thread may call anything here. Nothing here calls a function that is counted.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_BYTES = PATH_MAX + 256 };

static atomic_long calls;

/* The next function of this name, with the type of ours. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* ---- which calls count ---- */

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static bool is_below(const char *path)
{
    const char *below = getenv("FAULTS_BELOW");
    size_t length = below ? strlen(below) : 0;
    return length && !strncmp(path, below, length) && (path[length] == '/' || !path[length]);
}

static void write_text(int fd, const char *text)
{
    if (syscall(SYS_write, fd, text, strlen(text)) < 0)
        abort();
}

static void record(const char *call, const char *path)
{
    const char *met = getenv("FAULTS_MET");
    long fd = met ? syscall(SYS_openat, AT_FDCWD, met, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0)
        return;
    write_text((int)fd, call);
    write_text((int)fd, " ");
    write_text((int)fd, path);
    write_text((int)fd, "\n");
    syscall(SYS_close, (int)fd);
}

/* Whether this call is the one; then errno is set. */
static bool is_met(const char *call, const char *path)
{
    if (!is_below(path) || atomic_fetch_add(&calls, 1) + 1 != number("FAULTS_AT"))
        return false;
    record(call, path);
    errno = (int)number("FAULTS_ERRNO");
    return true;
}

static bool meets_path(const char *call, int folder, const char *path)
{
    char whole[PATH_BYTES], link[64];
    int saved = errno;
    if (number("FAULTS_SHORT") || !path)
        return false;
    long length = 0;
    if (path[0] != '/') {
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        length = syscall(SYS_readlinkat, AT_FDCWD, link, whole, PATH_MAX - 1);
    }
    length = length < 0 ? 0 : length;
    snprintf(whole + length, sizeof whole - (size_t)length, "%s%s", path[0] == '/' ? "" : "/", path);
    errno = saved;
    return is_met(call, whole);
}

static bool meets_open(const char *call, int fd, bool is_short)
{
    char whole[PATH_BYTES], link[64];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, whole, PATH_MAX - 1);
    errno = saved;
    if (length <= 0 || is_short != !!number("FAULTS_SHORT"))
        return false;
    whole[length] = '\0';
    return is_met(call, whole);
}

/* ---- by name ---- */

#define BY_NAME(type, name, failure, parameters, folder, path, arguments) \
    type name parameters                                                  \
    {                                                                     \
        if (meets_path(#name, folder, path))                              \
            return failure;                                               \
        return NEXT(name) arguments;                                      \
    }

#define NAMED(type, name, failure, parameters, path, arguments) \
    BY_NAME(type, name, failure, parameters, AT_FDCWD, path, arguments)

NAMED(int, creat, -1, (const char *path, mode_t mode), path, (path, mode))
NAMED(int, mkdir, -1, (const char *path, mode_t mode), path, (path, mode))
NAMED(int, rmdir, -1, (const char *path), path, (path))
NAMED(int, unlink, -1, (const char *path), path, (path))
NAMED(int, remove, -1, (const char *path), path, (path))
NAMED(int, rename, -1, (const char *from, const char *to), to, (from, to))
NAMED(int, link, -1, (const char *from, const char *to), to, (from, to))
NAMED(int, symlink, -1, (const char *target, const char *path), path, (target, path))
NAMED(int, access, -1, (const char *path, int mode), path, (path, mode))
NAMED(int, stat, -1, (const char *path, struct stat *info), path, (path, info))
NAMED(int, lstat, -1, (const char *path, struct stat *info), path, (path, info))
NAMED(int, chmod, -1, (const char *path, mode_t mode), path, (path, mode))
NAMED(int, truncate, -1, (const char *path, off_t bytes), path, (path, bytes))
NAMED(int, mkstemp, -1, (char *path), path, (path))
NAMED(char *, mkdtemp, NULL, (char *path), path, (path))
NAMED(DIR *, opendir, NULL, (const char *path), path, (path))
NAMED(ssize_t, readlink, -1, (const char *path, char *to, size_t bytes), path, (path, to, bytes))
BY_NAME(int, mkdirat, -1, (int at, const char *path, mode_t mode), at, path, (at, path, mode))
BY_NAME(int, unlinkat, -1, (int at, const char *path, int flags), at, path, (at, path, flags))
BY_NAME(int, fstatat, -1, (int at, const char *path, struct stat *info, int flags), at, path, (at, path, info, flags))
BY_NAME(int, faccessat, -1, (int at, const char *path, int mode, int flags), at, path, (at, path, mode, flags))
BY_NAME(int, linkat, -1, (int from_at, const char *from, int at, const char *to, int flags), at, to,
        (from_at, from, at, to, flags))
BY_NAME(int, symlinkat, -1, (const char *target, int at, const char *path), at, path, (target, at, path))
BY_NAME(ssize_t, readlinkat, -1, (int at, const char *path, char *to, size_t bytes), at, path, (at, path, to, bytes))
BY_NAME(int, renameat, -1, (int from_at, const char *from, int at, const char *to), at, to, (from_at, from, at, to))
BY_NAME(int, renameat2, -1, (int from_at, const char *from, int at, const char *to, unsigned flags), at, to,
        (from_at, from, at, to, flags))

/* The mode is only there with flags that make a file. */
static mode_t mode_of(int flags, va_list list)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_of(flags, list);
    va_end(list);
    return meets_path("open", AT_FDCWD, path) ? -1 : NEXT(open)(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_of(flags, list);
    va_end(list);
    return meets_path("openat", at, path) ? -1 : NEXT(openat)(at, path, flags, mode);
}

/* ---- by descriptor ---- */

#define BY_DESCRIPTOR(type, name, failure, parameters, arguments) \
    type name parameters                                          \
    {                                                             \
        if (meets_open(#name, fd, false))                         \
            return failure;                                       \
        return NEXT(name) arguments;                              \
    }

BY_DESCRIPTOR(int, fsync, -1, (int fd), (fd))
BY_DESCRIPTOR(int, fdatasync, -1, (int fd), (fd))
BY_DESCRIPTOR(int, fstat, -1, (int fd, struct stat *info), (fd, info))
BY_DESCRIPTOR(int, fchmod, -1, (int fd, mode_t mode), (fd, mode))
BY_DESCRIPTOR(int, flock, -1, (int fd, int how), (fd, how))
BY_DESCRIPTOR(int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
BY_DESCRIPTOR(int, fallocate, -1, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
BY_DESCRIPTOR(int, posix_fallocate, errno, (int fd, off_t at, off_t bytes), (fd, at, bytes))
BY_DESCRIPTOR(int, sync_file_range, -1, (int fd, off_t at, off_t bytes, unsigned flags), (fd, at, bytes, flags))
BY_DESCRIPTOR(off_t, lseek, -1, (int fd, off_t at, int from), (fd, at, from))
BY_DESCRIPTOR(DIR *, fdopendir, NULL, (int fd), (fd))

int close(int fd)
{
    bool met = meets_open("close", fd, false);
    int result = NEXT(close)(fd);
    if (!met)
        return result;
    errno = (int)number("FAULTS_ERRNO");
    return -1;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && meets_open("mmap", fd, false))
        return MAP_FAILED;
    return NEXT(mmap)(at, bytes, protection, flags, fd, offset);
}

/* A lock is a file function; what else fcntl() does is none. */
int fcntl(int fd, int what, ...)
{
    va_list list;
    va_start(list, what);
    void *argument = va_arg(list, void *);
    va_end(list);
    bool locks = what == F_SETLK || what == F_SETLKW || what == F_OFD_SETLK || what == F_OFD_SETLKW;
    return locks && meets_open("fcntl", fd, false) ? -1 : NEXT(fcntl)(fd, what, argument);
}

/* ---- bytes: they fail, or half of them are moved ---- */

#define MOVES(type, name, parameters, arguments)                      \
    type name parameters                                              \
    {                                                                 \
        if (count > 1 && meets_open("half a " #name, fd, true))       \
            count /= 2;                                               \
        else if (meets_open(#name, fd, false))                        \
            return -1;                                                \
        return NEXT(name) arguments;                                  \
    }

MOVES(ssize_t, read, (int fd, void *to, size_t count), (fd, to, count))
MOVES(ssize_t, pread, (int fd, void *to, size_t count, off_t at), (fd, to, count, at))
MOVES(ssize_t, write, (int fd, const void *from, size_t count), (fd, from, count))
MOVES(ssize_t, pwrite, (int fd, const void *from, size_t count, off_t at), (fd, from, count, at))

/* ---- streams ---- */

static bool is_written(FILE *stream)
{
    int fd = stream ? fileno(stream) : -1;
    long flags = fd < 0 ? -1 : syscall(SYS_fcntl, fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* From now on no byte of the stream reaches its file. */
static void fill_disk(FILE *stream)
{
    long full = syscall(SYS_openat, AT_FDCWD, "/dev/full", O_WRONLY | O_CLOEXEC);
    syscall(SYS_dup3, (int)full, fileno(stream), O_CLOEXEC);
    syscall(SYS_close, (int)full);
}

static FILE *opened(FILE *stream)
{
    if (is_written(stream) && meets_open("the disk of", fileno(stream), false))
        fill_disk(stream);
    return stream;
}

FILE *fopen(const char *path, const char *mode)
{
    return meets_path("fopen", AT_FDCWD, path) ? NULL : opened(NEXT(fopen)(path, mode));
}

FILE *fdopen(int fd, const char *mode)
{
    return meets_open("fdopen", fd, false) ? NULL : opened(NEXT(fdopen)(fd, mode));
}

int fflush(FILE *stream)
{
    bool met = is_written(stream) && meets_open("fflush", fileno(stream), false);
    if (met)
        fill_disk(stream);
    int result = NEXT(fflush)(stream);
    if (met)
        errno = (int)number("FAULTS_ERRNO");
    return met ? EOF : result;
}

int fclose(FILE *stream)
{
    bool met = is_written(stream) && meets_open("fclose", fileno(stream), false);
    if (met)
        fill_disk(stream);
    int result = NEXT(fclose)(stream);
    if (met)
        errno = (int)number("FAULTS_ERRNO");
    return met ? EOF : result;
}
