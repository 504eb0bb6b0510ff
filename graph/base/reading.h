/* graph/base/reading.h: opens a file to read it.
 *
 * A name that somebody gave may be that of a FIFO or a device: an open() would wait for a writer that never comes, a
 * read() never end. So a file is opened without waiting, and is refused when it is not a regular one. Programs that read
 * a text from its beginning to its end may take a pipe too (`--text <(zcat log.gz)`); nobody waits longer than
 * READING_WAIT_MS for the first byte of it.
 *
 * Header-only, because programs use it too, and see nothing of the library but weir_*. Any thread.
 */
#ifndef GRAPH_BASE_READING_H
#define GRAPH_BASE_READING_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READING_WAIT_MS 5000

/* Says what a file is that is not regular: "it is a FIFO, not a regular file". */
static inline const char *reading_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "it is a folder, not a regular file"
           : S_ISFIFO(mode) ? "it is a FIFO, not a regular file"
           : S_ISSOCK(mode) ? "it is a socket, not a regular file"
                            : "it is a device, not a regular file";
}

/* Waits for the first byte of a pipe, or its end; then reads wait as usual. */
static inline const char *reading_await(int fd)
{
    struct pollfd pipe = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&pipe, 1, READING_WAIT_MS);
    while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return ready ? strerror(errno) : "it is a FIFO that nobody writes to";
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) ? strerror(errno) : NULL;
}

/* Says why the open file cannot be read; NULL: it can be. */
static inline const char *reading_fault(int fd, bool pipes)
{
    struct stat stat_of;
    if (fstat(fd, &stat_of))
        return strerror(errno);
    if (S_ISREG(stat_of.st_mode))
        return NULL;
    return pipes && S_ISFIFO(stat_of.st_mode) ? reading_await(fd) : reading_kind(stat_of.st_mode);
}

static inline int reading_open_any(const char *path, bool pipes, const char **why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *why = fd < 0 ? strerror(errno) : reading_fault(fd, pipes);
    if (fd >= 0 && *why)
        close(fd);
    return *why ? -1 : fd;
}

/* A regular file, to be read. -1, and *why is what a sentence "PATH: cannot be read: ..." ends with. */
static inline int reading_open(const char *path, const char **why)
{
    return reading_open_any(path, false, why);
}

static inline FILE *reading_file_of(int fd, const char **why)
{
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (fd >= 0 && !file) {
        *why = strerror(errno);
        close(fd);
    }
    return file;
}

/* The same as a stream. NULL, and *why. */
static inline FILE *reading_file(const char *path, const char **why)
{
    return reading_file_of(reading_open(path, why), why);
}

/* A regular file or a pipe, to be read from its beginning to its end. NULL, and *why. */
static inline FILE *reading_stream(const char *path, const char **why)
{
    return reading_file_of(reading_open_any(path, true, why), why);
}

#endif
