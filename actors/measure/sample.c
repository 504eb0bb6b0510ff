/* actors/measure/sample.c: see the header. */
#include "actors/measure/measure.h"

#include "graph/base/error.h"
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define L2_DEFAULT (UINT64_C(1) << 20)
#define L3_DEFAULT (UINT64_C(32) << 20)
#define LINE_BYTES 64
#define PART_BYTES (UINT64_C(1) << 16)
#define PAGES UINT64_C(8192)       /* more than a core keeps translations of, */
#define PAGE_STRIDE UINT64_C(4160) /* each one line further in its page: they are not all in one set of a cache */

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
    s->parts = (uint64_t)cores_count();
    const uint64_t part = 2 * s->l3 / s->parts, least = 4 * s->l2;
    s->part_bytes = ((part > least ? part : least) + PART_BYTES - 1) / PART_BYTES * PART_BYTES;
    s->stream = malloc(s->part_bytes * s->parts);
    if (!s->stream) {
        sampler_close(s);
        return error_set(WEIR_E_MEMORY, "no memory for twice the caches' size");
    }
    memset(s->stream, 1, s->part_bytes * s->parts);
    return WEIR_OK;
}

void sampler_close(sampler *s)
{
    if (s->schedstat >= 0)
        close(s->schedstat);
    free(s->stream);
    *s = (sampler){.schedstat = -1};
}

static void stream_through(const sampler *s, uint64_t bytes, uint64_t stride)
{
    for (uint64_t i = 0; i < bytes && i < s->part_bytes; i += stride)
        ((volatile char *)s->stream)[i]++;
}

/* Bytes a second of reading so many again and again: the best of some passes. */
static double rate_of_reading(const sampler *s, uint64_t bytes)
{
    enum { PASSES = 5 };
    const uint64_t least = UINT64_C(16) << 20, times = bytes < least ? least / bytes : 1;
    uint64_t best = UINT64_MAX, sum = 0;
    for (int p = 0; p <= PASSES; p++) {
        const int64_t start = park_now_ns();
        for (uint64_t t = 0; t < times; t++)
            for (uint64_t i = 0; i < bytes; i += LINE_BYTES)
                sum += (unsigned char)s->stream[i];
        const uint64_t ns = (uint64_t)(park_now_ns() - start);
        best = p && ns < best ? ns : best;
    }
    volatile uint64_t kept = sum;
    (void)kept;
    return (double)(bytes * times) / (double)(best ? best : 1);
}

uint64_t sampler_shared_cache(const sampler *s)
{
    const uint64_t least = 2 * s->l2, all = s->part_bytes * s->parts;
    const double near = rate_of_reading(s, least), far = rate_of_reading(s, all);
    uint64_t found = least;
    for (uint64_t bytes = 2 * least; bytes <= s->l3; bytes *= 2) {
        const double rate = rate_of_reading(s, bytes);
        if (rate * rate < near * far)
            break;
        found = bytes;
    }
    return found < s->l3 && near > far ? found : s->l3;
}

static void flush_line(const char *line)
{
#if defined(__x86_64__)
    __builtin_ia32_clflush(line);
#elif defined(__aarch64__)
    __asm__ volatile("dc civac, %0" ::"r"(line) : "memory");
#endif
    (void)line;
}

/* Bytes that are far are also on pages that the core keeps no translation of. */
void sampler_push_out(const sampler *s, time_place place, const void *bytes, uint64_t count)
{
    if (place == TIME_WARM)
        return;
    for (uint64_t i = 0; place == TIME_FAR && i < count; i += LINE_BYTES)
        flush_line((const char *)bytes + i);
    atomic_thread_fence(memory_order_seq_cst);
    stream_through(s, place == TIME_FAR ? PAGES * PAGE_STRIDE : 0, PAGE_STRIDE);
    stream_through(s, 2 * s->l2, LINE_BYTES);
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
