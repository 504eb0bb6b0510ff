/* tests/support/secret.c: see the header. */
#include "tests/support/secret.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MASK = 0xa5, CHUNK = 1 << 20 };

struct secret secret_read(const char *path)
{
    struct secret secret;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < SECRET_LETTERS; i++) {
        unsigned char letter;
        cr_assert(fd >= 0 && read(fd, &letter, 1) == 1, "%s", path);
        secret.masked[i] = letter ^ MASK;
    }
    close(fd);
    return secret;
}

static int count_in(const unsigned char *bytes, size_t count, const struct secret *secret)
{
    int found = 0;
    for (size_t i = 0; i + SECRET_LETTERS <= count; i++) {
        size_t same = 0;
        while (same < SECRET_LETTERS && bytes[i + same] == (secret->masked[same] ^ MASK))
            same++;
        found += same == SECRET_LETTERS;
    }
    return found;
}

/* Pieces overlap, as it may lie where two meet. */
static int count_between(int memory, uintptr_t begin, uintptr_t end, const struct secret *secret, unsigned char *chunk)
{
    int found = 0;
    while (end - begin >= SECRET_LETTERS) {
        ssize_t got = pread(memory, chunk, end - begin < CHUNK ? end - begin : CHUNK, (off_t)begin);
        if (got < SECRET_LETTERS)
            break;
        found += count_in(chunk, (size_t)got, secret);
        begin += (size_t)got - SECRET_LETTERS + 1;
    }
    return found;
}

int secret_count(const struct secret *secret, pid_t process)
{
    unsigned char *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t own = process == getpid() ? (uintptr_t)chunk : UINTPTR_MAX; /* where copies pass through */
    char line[512], mode[8];
    snprintf(line, sizeof line, "/proc/%d/mem", (int)process);
    int memory = open(line, O_RDONLY | O_CLOEXEC), found = 0;
    snprintf(line, sizeof line, "/proc/%d/maps", (int)process);
    FILE *maps = fopen(line, "re");
    uintptr_t begin, end;
    cr_assert(chunk != MAP_FAILED && memory >= 0 && maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &begin, &end, mode) != 3 || mode[1] != 'w' ||
            end - begin > UINT64_C(1) << 28) /* shadows of sanitizers */
            continue;
        bool inside = own >= begin && own < end;
        found += count_between(memory, begin, inside ? own : end, secret, chunk);
        if (inside)
            found += count_between(memory, own + CHUNK, end, secret, chunk);
    }
    fclose(maps);
    close(memory);
    munmap(chunk, CHUNK);
    return found;
}
