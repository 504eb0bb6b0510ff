/* actors/measure/measure.h: the parts of weir_measure(): calls of kernels, messages, and whether the machine is quiet enough.
 *
 * All of it runs on the calling thread, but for messages, which a session with two workers passes. Times are of the monotonic
 * clock; a sample in which the system let the thread wait for its core does not count (/proc/thread-self/schedstat).
 */
#ifndef ACTORS_MEASURE_MEASURE_H
#define ACTORS_MEASURE_MEASURE_H

#include "graph/time/rates.h"

struct weir_plan;

/* ---- samples (sample.c) ---- */

enum { SAMPLES = 9 };

typedef struct sampler {
    char *stream;          /* owned: memory that is larger than all caches */
    uint64_t l2, l3;       /* bytes of the caches: of a core, of all of them */
    int schedstat;         /* a file, or -1: nobody knows how long the thread waited */
} sampler;

/* E_MEMORY. */
weir_status sampler_open(sampler *s);
void sampler_close(sampler *s);

/* Pushes what the caches hold out of them: nothing, out of the core's own, out of all. */
void sampler_push_out(const sampler *s, time_place place);

/* Nanoseconds that this thread waited for a core so far; 0 where nobody knows. */
uint64_t sampler_waited(const sampler *s);

/* The median; sorts. */
uint64_t sampler_median(uint64_t *values, int count);

/* How much a fixed piece of work is disturbed: thousandths of its 10th percentile. */
void sampler_noise(uint64_t *p50, uint64_t *p90);

/* ---- calls (call.c) ---- */

/* Measures a kernel's call, whose text is given. False: it cannot be called with made-up values, or there is no memory; it is left
 * out then. */
bool measure_call(const sampler *s, const weir_plan *plan, uint32_t kernel, time_call *to);

/* ---- messages (hand.c) ---- */

/* The cost of a firing without kernels, and of a message to another worker. */
weir_status measure_hand(weir_rates *rates);

#endif
