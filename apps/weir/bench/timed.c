/* apps/weir/bench/timed.c: see the header. */
#include "apps/weir/bench/timed.h"

#include "apps/common/measure.h"

#include <math.h>
#include <threads.h>
#include <time.h>

enum { PAUSE_NS = 100000000 };
#define NS_S 1000000000LL
#define SHORT_S 0.15 /* of the shorter run; the longer one takes three times as long */

static weir_status run(const bench_timed *t, int steps, double *seconds)
{
    float value;
    thrd_sleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    const double start = measure_seconds();
    weir_status status = weir_session_start(t->session, steps);
    for (int i = 0; t->pulled && i < steps * t->pulls && !status; i++)
        status = weir_session_pull(t->session, t->pulled, WEIR_ARRAY(&value, WEIR_F32), -1);
    status = status ? status : weir_session_wait(t->session, -1);
    *seconds = measure_seconds() - start;
    return status;
}

weir_status bench_timed_run(const bench_timed *t, double *seconds, double *spread)
{
    double each[BENCH_TIMED_ROUNDS], few = 0, many = 0;
    const int steps = (int)(SHORT_S / t->guess) + 1;
    weir_status status = run(t, 2, &few);
    for (int i = 0; i < t->rounds && !status; i++) {
        status = run(t, steps, &few);
        status = status ? status : run(t, 3 * steps, &many);
        each[i] = (many - few) / (2 * steps);
    }
    *seconds = status ? 0 : measure_median(each, t->rounds); /* which sorts */
    *spread = status ? 0 : t->rounds < 3 ? each[t->rounds - 1] / each[0]
                                         : fmin(each[t->rounds - 2] / each[0], each[t->rounds - 1] / each[1]);
    return status;
}

static int64_t thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * NS_S + now.tv_nsec;
}

void bench_spin(int64_t us)
{
    const int64_t until = thread_ns() + us * 1000;
    while (thread_ns() < until)
        continue;
}
