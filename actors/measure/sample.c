/* actors/measure/sample.c: see the header. */
#include "actors/measure/measure.h"

#include "graph/base/error.h"
#include "transport/mail/park.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define L2_DEFAULT (UINT64_C(1) << 20)
#define L3_DEFAULT (UINT64_C(32) << 20)
#define LINE_BYTES 64

/* A line of a cache's description; sysconf() is wrong on some virtual machines. False: there is none. */
static bool cache_says(int index, const char *what, char *text, size_t room)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    FILE *file = fopen(path, "re");
    const bool ok = file && fgets(text, (int)room, file);
    if (file)
        fclose(file);
    return ok;
}

/* The size of the cache of a level ('2'), which Linux gives in KiB: "1024K". */
static uint64_t cache_bytes(char level, uint64_t otherwise)
{
    enum { CACHES_MAX = 8 };
    char text[32];
    for (int i = 0; i < CACHES_MAX; i++)
        if (cache_says(i, "level", text, sizeof text) && *text == level && cache_says(i, "size", text, sizeof text))
            return strtoull(text, NULL, 10) << 10;
    return otherwise;
}

weir_status sampler_open(sampler *s)
{
    *s = (sampler){.l2 = cache_bytes('2', L2_DEFAULT), .l3 = cache_bytes('3', L3_DEFAULT)};
    s->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    s->stream = malloc(2 * s->l3);
    if (!s->stream) {
        sampler_close(s);
        return error_set(WEIR_E_MEMORY, "no memory for twice the caches' size");
    }
    memset(s->stream, 1, 2 * s->l3);
    return WEIR_OK;
}

void sampler_close(sampler *s)
{
    if (s->schedstat >= 0)
        close(s->schedstat);
    free(s->stream);
    *s = (sampler){.schedstat = -1};
}

void sampler_push_out(const sampler *s, time_place place)
{
    const uint64_t bytes = place == TIME_WARM ? 0 : place == TIME_NEAR ? 2 * s->l2 : 2 * s->l3;
    for (uint64_t i = 0; i < bytes; i += LINE_BYTES)
        ((volatile char *)s->stream)[i]++;
}

uint64_t sampler_waited(const sampler *s)
{
    char text[96];
    const ssize_t got = s->schedstat < 0 ? -1 : pread(s->schedstat, text, sizeof text - 1, 0);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoull(second, NULL, 10) : 0;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t sampler_median(uint64_t *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count ? values[count / 2] : 0;
}

/* Some 0.3 ms of products that wait for each other. */
static uint64_t fixed_work_ns(void)
{
    enum { PRODUCTS = 200000 };
    const int64_t start = park_now_ns();
    volatile double x = 1;
    for (int i = 0; i < PRODUCTS; i++)
        x = x * 1.0000001;
    return (uint64_t)(park_now_ns() - start);
}

void sampler_noise(uint64_t *p50, uint64_t *p90)
{
    enum { TURNS = 101, THOUSAND = 1000 };
    uint64_t ns[TURNS];
    for (int i = 0; i < TURNS; i++)
        ns[i] = fixed_work_ns();
    const uint64_t middle = sampler_median(ns, TURNS), low = ns[TURNS / 10] ? ns[TURNS / 10] : 1;
    *p50 = THOUSAND * middle / low;
    *p90 = THOUSAND * ns[TURNS * 9 / 10] / low;
}
