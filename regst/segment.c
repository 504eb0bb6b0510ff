/* regst/segment.c: see the header. A name in /dev/shm would have to be removed by somebody, and who is killed removes
 * nothing; a descriptor sent over a socket would need a socket of its own kind beside the bus. */
#define _GNU_SOURCE
#include "regst/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/error.h"

#define FALLOCATE_TRIES 100
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Zero, or the number of an error. */
static int segment_place(struct segment *segment, int flags)
{
    void *base = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, segment->fd, 0);
    if (base == MAP_FAILED)
        return errno;
    segment->base = base;
    return 0;
}

static weir_status create_failed(struct segment *segment, weir_status status, const char *what, int error)
{
    uint64_t bytes = segment->bytes;
    segment_close(segment);
    return error_set(status, "no shared memory of %llu bytes: %s: %s", (unsigned long long)bytes, what,
                     strerror(error));
}

/* The bytes that the machine can still give; UINT64_MAX when it does not say. */
static uint64_t memory_left(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    if (file)
        fclose(file);
    return found ? kib * 1024 : UINT64_MAX;
}

weir_status segment_create(struct segment *segment, uint64_t bytes)
{
    *segment = (struct segment){.bytes = bytes, .fd = memfd_create("weir", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (segment->fd < 0)
        return create_failed(segment, WEIR_E_UNSUPPORTED, "memfd_create", errno);
    /* a memfd has no limit: the system would end processes rather than refuse */
    if (bytes > memory_left())
        return create_failed(segment, WEIR_E_MEMORY, "the machine has no more", ENOMEM);
    /* posix_fallocate() rather than ftruncate(): what is not there shows now and not as a signal in a kernel */
    int error = EINTR;
    for (int i = 0; i < FALLOCATE_TRIES && error == EINTR; i++) /* by a signal of the program's, a timer perhaps */
        error = posix_fallocate(segment->fd, 0, (off_t)bytes);
    if (error)
        return create_failed(segment, WEIR_E_MEMORY, "posix_fallocate", error);
    if (fcntl(segment->fd, F_ADD_SEALS, SEALS))
        return create_failed(segment, WEIR_E_UNSUPPORTED, "F_ADD_SEALS", errno);
    error = segment_place(segment, MAP_POPULATE);
    if (error)
        return create_failed(segment, WEIR_E_MEMORY, "mmap", error);
    while (!segment->cookie)
        if (getrandom(&segment->cookie, sizeof(segment->cookie), 0) < 0 && errno != EINTR)
            return create_failed(segment, WEIR_E_UNSUPPORTED, "getrandom", errno);
    memcpy(segment->base, &segment->cookie, sizeof(segment->cookie));
    return WEIR_OK;
}

/* Whether the open descriptor is a sealed segment of this size: then nothing read from it can fault. */
static bool segment_sound(const struct segment *segment)
{
    struct stat stat;
    int seals = fcntl(segment->fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && !fstat(segment->fd, &stat) && S_ISREG(stat.st_mode) &&
           (uint64_t)stat.st_size == segment->bytes && segment->bytes >= SEGMENT_HEAD_BYTES;
}

weir_status segment_map(struct segment *segment, uint32_t pid, int fd, uint64_t bytes, uint64_t cookie)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, fd);
    *segment = (struct segment){.bytes = bytes, .cookie = cookie, .fd = open(path, O_RDWR | O_CLOEXEC)};
    /* not populated: of what another process shares only what is read becomes this one's, too */
    if (segment->fd < 0 || !segment_sound(segment) || segment_place(segment, 0) ||
        memcmp(segment->base, &cookie, sizeof(cookie)) != 0) {
        segment_close(segment);
        return error_set(WEIR_E_UNSUPPORTED, "process %u's memory cannot be shared", pid);
    }
    close(segment->fd);
    segment->fd = -1;
    return WEIR_OK;
}

void segment_close(struct segment *segment)
{
    if (segment->base)
        munmap(segment->base, segment->bytes);
    if (segment->bytes && segment->fd >= 0)
        close(segment->fd);
    *segment = (struct segment){.fd = -1};
}
