/* apps/weir/bench/timed.h: the time of a step of a session, as predictions are held against it; and kernels of a known time.
 *
 * At real-time priority Linux gives other threads 50 ms of a processor when they have waited for it for a second. So runs are
 * shorter than a second, and each begins after a pause. A run's beginning and end cost once: a step takes as long as the steps that a
 * longer run has more. A round in which threads that spin waited for a processor, or all had less of
 * the cores than they keep busy, is repeated, a few times at most.
 */
#ifndef APPS_WEIR_BENCH_TIMED_H
#define APPS_WEIR_BENCH_TIMED_H

#include <weir/weir.h>

enum { BENCH_TIMED_ROUNDS = 7 };
#define BENCH_TIMED_AGREE 0.005 /* near enough to stop */

typedef struct bench_timed {
    weir_session *session; /* borrowed */
    double guess;          /* seconds of a step, about: how many steps a run has */
    double short_s;        /* of the shorter run of a round; the longer one takes three times as long [0.1] */
    double cores;          /* that all workers together keep busy; 0: nobody knows */
    int rounds;            /* at most BENCH_TIMED_ROUNDS */
    double agree;          /* no more rounds if the median, the next shorter and the next longer one are as near as that; 0: all rounds, and none again */
    const char *pulled;    /* a fetch without a sink, of one f32, that is pulled `pulls` times a step; NULL: none */
    int pulls;
} bench_timed;

/* Writes the median of the rounds to `seconds`, and how far they are apart to `spread`: the longest round divided by the shortest, but
 * for the most extreme one. */
weir_status bench_timed_run(const bench_timed *timed, double *seconds, double *spread);

/* Whether the median of rounds, the next shorter and the next longer one are as near as `by`: there are at least three, and `by` is not 0. Sorts
 * them. */
bool bench_timed_agree(double *each, int count, double by);

/* Pairs of plans whose measured times are more than 5 % apart, and how many of these are predicted in the right order. */
typedef struct bench_pairs {
    int count, right;
} bench_pairs;

bench_pairs bench_pairs_of(const double *measured, const double *predicted, int count);

/* Spins until the calling thread has had a processor for so long. */
void bench_spin(int64_t us);

/* Seconds for which spinning threads had none, so far, of all threads together: other programs had it. */
double bench_spin_waited(void);

/* Whether they had none for too much of the time since it was `waited`, `seconds` ago. */
bool bench_spin_disturbed(double waited, double seconds);

#endif
