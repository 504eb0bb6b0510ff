/* graph/base/filed.c: see the header. */
#define _GNU_SOURCE /* O_TMPFILE, mkostemp */
#include "graph/base/filed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph/base/error.h"

typedef struct filed {
    struct filed *next;
    char *base;
    uint64_t bytes;
    int fd;
} filed;

/* Few: one for each device that something is moved off. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static filed *all;

const char *filed_place(const char *text)
{
    static const char disk[] = "disk:";
    const size_t length = sizeof disk - 1;
    return !strncmp(text, disk, length) && text[length] ? text + length : NULL;
}

/* ---- make and free ---- */

/* A file without a name. Where the file system has none such, one whose name goes away at once. */
static int file_open(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/weir-XXXXXX", directory) >= sizeof path)
        return errno = ENAMETOOLONG, -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static void enter(filed *f)
{
    pthread_mutex_lock(&lock);
    f->next = all;
    all = f;
    pthread_mutex_unlock(&lock);
}

static bool file_map(filed *f, const char *directory)
{
    if ((f->fd = file_open(directory)) < 0)
        return false;
    if ((errno = posix_fallocate(f->fd, 0, (off_t)f->bytes)) != 0)
        return false;
    void *base = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    f->base = base == MAP_FAILED ? NULL : base;
    return f->base;
}

weir_status filed_new(const char *directory, uint64_t bytes, void **base)
{
    filed *f = malloc(sizeof *f);
    if (!f)
        return error_set(WEIR_E_MEMORY, "no memory for a file in %s", directory);
    *f = (filed){.bytes = bytes, .fd = -1};
    if (file_map(f, directory)) {
        enter(f);
        *base = f->base;
        return WEIR_OK;
    }
    error_set(WEIR_E_IO, "%s: no file of %llu bytes can be made there: %s", directory, (unsigned long long)bytes,
              strerror(errno));
    if (f->fd >= 0)
        close(f->fd);
    free(f);
    return WEIR_E_IO;
}

void filed_free(void *base)
{
    pthread_mutex_lock(&lock);
    filed **at = &all;
    while (*at && (*at)->base != base)
        at = &(*at)->next;
    filed *f = *at;
    if (f)
        *at = f->next;
    pthread_mutex_unlock(&lock);
    if (!f)
        return;
    munmap(f->base, f->bytes);
    close(f->fd);
    free(f);
}

/* ---- copy ---- */

/* The file behind an address, and the place in it; -1: it is plain memory. */
static int place_of(const void *address, uint64_t bytes, off_t *offset)
{
    uintptr_t at = (uintptr_t)address;
    int fd = -1;
    pthread_mutex_lock(&lock);
    for (const filed *f = all; f && fd < 0; f = f->next) {
        uintptr_t base = (uintptr_t)f->base;
        if (at >= base && at - base <= f->bytes && bytes <= f->bytes - (at - base)) {
            fd = f->fd;
            *offset = (off_t)(at - base);
        }
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static bool write_all(int fd, const char *from, uint64_t bytes, off_t offset)
{
    while (bytes) {
        ssize_t done = pwrite(fd, from, bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        from += done;
        offset += done;
        bytes -= (uint64_t)done;
    }
    return true;
}

static bool read_all(int fd, char *to, uint64_t bytes, off_t offset)
{
    while (bytes) {
        ssize_t done = pread(fd, to, bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        to += done;
        offset += done;
        bytes -= (uint64_t)done;
    }
    return true;
}

weir_status filed_copy(void *to, const void *from, uint64_t bytes, char *error, size_t error_bytes)
{
    off_t offset = 0;
    bool ok = true, out = false;
    errno = 0;
    int fd = place_of(to, bytes, &offset);
    if (fd >= 0) {
        out = true;
        ok = write_all(fd, from, bytes, offset);
    } else if ((fd = place_of(from, bytes, &offset)) >= 0) {
        ok = read_all(fd, to, bytes, offset);
    } else if (bytes) {
        memcpy(to, from, bytes);
    }
    if (!ok && error)
        snprintf(error, error_bytes, "what was moved to a file cannot be %s: %s", out ? "written" : "read again",
                 errno ? strerror(errno) : "it is shorter than it was");
    return ok ? WEIR_OK : WEIR_E_IO;
}
