/* transport/mail/park.c: futexes, the clock, and the price of a wake-up.
 *
 * A futex rather than a condition variable: the word that is waited for is already there, and no lock is needed
 * around it.
 */
#define _GNU_SOURCE
#include "transport/mail/park.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "transport/mail/cores.h"
#include "transport/mail/spin.h"

#define NS_PER_S 1000000000
#define WAKE_ROUNDS 16
#define WAKE_COST_DEFAULT_NS 20000 /* when no thread can be had to measure it */

int64_t park_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec;
}

int64_t park_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? PARK_FOREVER : park_now_ns() + timeout_ms * (int64_t)1000000;
}

static bool futex_wait(_Atomic uint32_t *word, int operation, uint32_t value, int64_t deadline)
{
    struct timespec time, *timeout = NULL;
    if (deadline != PARK_FOREVER) {
        int64_t left = deadline - park_now_ns();
        if (left <= 0)
            return false;
        time = (struct timespec){.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
        timeout = &time;
    }
    long rc = syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
    return rc == 0 || errno != ETIMEDOUT;
}

bool park_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline)
{
    return futex_wait(word, FUTEX_WAIT_PRIVATE, value, deadline);
}

bool park_wait_shared(_Atomic uint32_t *word, uint32_t value, int64_t deadline)
{
    return futex_wait(word, FUTEX_WAIT, value, deadline);
}

void park_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void park_wake_shared(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* With the mask of the process, if it is still to be had: the calling thread may have been bound. */
static bool thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr))
        return false;
    bool started = cores_attr(&attr) && pthread_create(thread, &attr, run, argument) == 0;
    pthread_attr_destroy(&attr);
    return started || pthread_create(thread, NULL, run, argument) == 0;
}

/* Signals that say something of the thread that they come to. A fault that is blocked ends the process at once, past
 * the program's handler and its backtrace; and a profiler must see where the time goes. SIGVTALRM is not among them:
 * programs use it as an alarm. */
static const int thread_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};

static void program_signals(sigset_t *set)
{
    sigfillset(set);
    for (size_t i = 0; i < sizeof(thread_signals) / sizeof(*thread_signals); i++)
        sigdelset(set, thread_signals[i]);
}

bool park_thread(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
    sigset_t program, before;
    char cut[16];
    program_signals(&program);
    pthread_sigmask(SIG_BLOCK, &program, &before);
    bool started = thread_start(thread, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    snprintf(cut, sizeof(cut), "%s", name);
    if (started)
        pthread_setname_np(*thread, cut);
    return started;
}

/* Two threads hand a word to and fro; each sleeps at once when it is not its turn. The partner keeps off the core that
 * the other one started on: two that share a core switch without waking anything, which says nothing of workers, who
 * have a core each. */
struct wake_game {
    _Atomic uint32_t turn;
    int core;                      /* of player 0 */
    int64_t turn_ns[WAKE_ROUNDS];  /* when player 0 had its turns */
};

static void wake_play(struct wake_game *game, uint32_t me)
{
    for (uint32_t round = 0; round < WAKE_ROUNDS; round++) {
        uint32_t mine = 2 * round + me, now;
        while ((now = atomic_load(&game->turn)) != mine)
            park_wait(&game->turn, now, PARK_FOREVER);
        if (me == 0)
            game->turn_ns[round] = park_now_ns();
        atomic_store(&game->turn, mine + 1);
        park_wake(&game->turn);
    }
}

static void *wake_partner(void *argument)
{
    struct wake_game *game = argument;
    cores_use_but(game->core); /* if that fails the figure is lower, no more */
    wake_play(game, 1);
    return NULL;
}

static int compare_ns(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The median of there and back, halved: a few rounds in which another process had the core do not count. From turn to
 * turn, not from when the thread begins to wait: one that is put off its core as it wakes the other would begin to wait
 * when its turn has come already. */
static int64_t wake_game_ns(void)
{
    struct wake_game game = {.core = sched_getcpu()};
    int64_t round_ns[WAKE_ROUNDS - 1];
    pthread_t partner;
    if (!park_thread(&partner, "weir-wake", wake_partner, &game))
        return WAKE_COST_DEFAULT_NS;
    wake_play(&game, 0);
    pthread_join(partner, NULL);
    for (int i = 0; i + 1 < WAKE_ROUNDS; i++)
        round_ns[i] = game.turn_ns[i + 1] - game.turn_ns[i];
    qsort(round_ns, WAKE_ROUNDS - 1, sizeof(*round_ns), compare_ns);
    return round_ns[(WAKE_ROUNDS - 1) / 2] / 2;
}

/* The longer of two games: in one of them this thread may have been moved to the partner's core. */
int64_t park_wake_cost_ns(void)
{
    int64_t cost_ns = wake_game_ns(), again_ns = wake_game_ns();
    cost_ns = cost_ns > again_ns ? cost_ns : again_ns;
    return cost_ns < SPIN_WAKE_MAX_NS ? cost_ns : SPIN_WAKE_MAX_NS;
}
