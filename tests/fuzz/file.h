/* tests/fuzz/file.h: a fuzz target's bytes as a file, for what reads files. _GNU_SOURCE has to be defined. */
#ifndef TESTS_FUZZ_FILE_H
#define TESTS_FUZZ_FILE_H

#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { FUZZ_PATH = 64 };

/* Writes the file's path to `path`. Returns its descriptor, which the caller closes; -1: there is no such file. */
static inline int fuzz_file(const uint8_t *data, size_t size, char path[FUZZ_PATH])
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, FUZZ_PATH, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, data, size) == (ssize_t)size)
        return fd;
    close(fd);
    return -1;
}

#endif
