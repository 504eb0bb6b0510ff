/* apps/common/measure.h: time, memory and medians. Any thread; keeps no state. */
#ifndef APPS_COMMON_MEASURE_H
#define APPS_COMMON_MEASURE_H

#include <stdint.h>

/* Seconds of a clock that only goes forward. */
double measure_seconds(void);

/* The most memory that this process has ever had resident, and what it has now, in bytes; 0 when the system does not
 * say. */
uint64_t measure_peak_rss(void);
uint64_t measure_rss(void);

/* Writes "12.3 MiB" to `text` and returns it. */
const char *measure_bytes_text(uint64_t bytes, char text[32]);

/* Writes "950 ms", "12 s", "3 min 20 s" to `text` and returns it. */
const char *measure_time_text(double seconds, char text[32]);

/* The median; sorts `value` in place. 0 when there is none. */
double measure_median(double *value, int count);
/* The value that `share` (0 to 1) of them do not exceed, likewise. */
double measure_quantile(double *value, int count, double share);

#endif
