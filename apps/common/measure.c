/* apps/common/measure.c: time, memory and medians. Peak memory is VmHWM rather than getrusage()'s ru_maxrss: the
 * latter is inherited from the process that started this one. */
#include "apps/common/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double measure_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t status_bytes(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    for (char line[256]; file && fgets(line, sizeof line, file);)
        if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':') {
            kib = strtoull(line + strlen(key) + 1, NULL, 10);
            break;
        }
    if (file)
        fclose(file);
    return kib * 1024;
}

uint64_t measure_peak_rss(void)
{
    return status_bytes("VmHWM");
}

uint64_t measure_rss(void)
{
    return status_bytes("VmRSS");
}

const char *measure_bytes_text(uint64_t bytes, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int u = 0;
    for (; value >= 1024 && u < 4; u++)
        value /= 1024;
    snprintf(text, 32, u ? "%.1f %s" : "%.0f %s", value, unit[u]);
    return text;
}

const char *measure_time_text(double seconds, char text[32])
{
    if (seconds < 1)
        snprintf(text, 32, "%.0f ms", 1e3 * seconds);
    else if (seconds < 60)
        snprintf(text, 32, "%.0f s", seconds);
    else if (seconds < 3600)
        snprintf(text, 32, "%d min %d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, 32, "%d h %d min", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return text;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_median(double *value, int count)
{
    if (count < 1)
        return 0;
    qsort(value, (size_t)count, sizeof *value, by_value);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

double measure_quantile(double *value, int count, double share)
{
    if (count < 1)
        return 0;
    qsort(value, (size_t)count, sizeof *value, by_value);
    return value[(int)(share * (count - 1) + 0.5)];
}
