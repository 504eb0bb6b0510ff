/* apps/weir/bench/timed.c: see the header. */
#include "apps/weir/bench/timed.h"

#include "apps/common/measure.h"

#include <math.h>
#include <stdatomic.h>
#include <threads.h>
#include <time.h>

#define NS_S 1000000000LL
#define SHORT_S 0.1
#define PAUSE 0.5 /* of the shorter run */
#define APART 1.05
#define WAITED 0.005 /* of the time, at most */
#define HAD 0.97     /* of the cores' time, at least */
#define TRIES 3      /* for each round */

static _Atomic int64_t waited_ns; /* of all threads that spin; relaxed: nothing hangs on it but a sum */

static double short_of(const bench_timed *t)
{
    return t->short_s > 0 ? t->short_s : SHORT_S;
}

static weir_status run(const bench_timed *t, int steps, double *seconds)
{
    float value;
    thrd_sleep(&(struct timespec){.tv_nsec = (long)(PAUSE * NS_S * short_of(t))}, NULL);
    const double start = measure_seconds();
    weir_status status = weir_session_start(t->session, steps);
    for (int i = 0; t->pulled && i < steps * t->pulls && !status; i++)
        status = weir_session_pull(t->session, t->pulled, WEIR_ARRAY(&value, WEIR_F32), -1);
    status = status ? status : weir_session_wait(t->session, -1);
    *seconds = measure_seconds() - start;
    return status;
}

bool bench_timed_agree(double *each, int count, double by)
{
    const double median = measure_median(each, count);
    return count >= 3 && by > 0 && each[count / 2 + 1] - each[count / 2 - 1] <= by * median;
}

static double process_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / NS_S;
}

/* Runs a round; whether other programs had processors that it needed. */
static weir_status run_round(const bench_timed *t, int steps, double *each, bool *disturbed)
{
    double few = 0, many = 0;
    const double waited = bench_spin_waited(), start = process_seconds();
    weir_status status = run(t, steps, &few);
    status = status ? status : run(t, 3 * steps, &many);
    *each = (many - few) / (2 * steps);
    *disturbed = bench_spin_disturbed(waited, few + many) || process_seconds() - start < HAD * t->cores * (few + many);
    return status;
}

weir_status bench_timed_run(const bench_timed *t, double *seconds, double *spread)
{
    double each[BENCH_TIMED_ROUNDS], first = 0;
    const int steps = (int)(short_of(t) / t->guess) + 1;
    int rounds = 0, tries = TRIES * t->rounds;
    weir_status status = run(t, 2, &first);
    while (rounds < t->rounds && !status && !bench_timed_agree(each, rounds, t->agree)) {
        bool disturbed;
        status = run_round(t, steps, &each[rounds], &disturbed);
        rounds += t->agree <= 0 || --tries <= 0 || !disturbed;
    }
    *seconds = status ? 0 : measure_median(each, rounds); /* which sorts */
    *spread = status ? 0 : rounds < 3 ? each[rounds - 1] / each[0] : fmin(each[rounds - 2] / each[0], each[rounds - 1] / each[1]);
    return status;
}

static bool are_apart(double a, double b)
{
    return fmax(a, b) > APART * fmin(a, b);
}

bench_pairs bench_pairs_of(const double *measured, const double *predicted, int count)
{
    bench_pairs pairs = {0};
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (are_apart(measured[i], measured[k])) {
                pairs.count++;
                pairs.right += (measured[i] < measured[k]) == (predicted[i] < predicted[k]) && predicted[i] != predicted[k];
            }
    return pairs;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * NS_S + now.tv_nsec;
}

void bench_spin(int64_t us)
{
    const int64_t start = clock_ns(CLOCK_MONOTONIC), until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + us * 1000;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
        continue;
    const int64_t waited = clock_ns(CLOCK_MONOTONIC) - start - us * 1000;
    atomic_fetch_add_explicit(&waited_ns, waited > 0 ? waited : 0, memory_order_relaxed);
}

double bench_spin_waited(void)
{
    return (double)atomic_load_explicit(&waited_ns, memory_order_relaxed) / NS_S;
}

bool bench_spin_disturbed(double waited, double seconds)
{
    return bench_spin_waited() - waited > WAITED * seconds;
}
