/* apps/common/train/interrupt.c: SIGINT and SIGTERM ask a program to end.
 *
 * A handler, not a thread that waits for signals: weir_session_stop() may be called in one, and what a second signal
 * needs is a system call. The handler may run in any thread that does not block the signals while another one closes
 * the session. So it counts itself in before it looks at the session, and who takes the session away waits until none
 * is in. The handler never waits; on the closing thread itself it has come out again before that thread goes on.
 *
 *     handler                         interrupt_stops()
 *     inside++                        session = next
 *     look at session, stop it        while (inside) ;
 *     inside--
 *
 * Either the handler sees what is next, or the closer sees the handler (both sequentially consistent).
 */
#include "apps/common/train/interrupt.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define TWICE_NS 200000000 /* within which two signals are one */

static atomic_int caught;              /* the first signal */
static _Atomic int64_t caught_ns;      /* when it came */
static atomic_bool gentle;             /* it does not end the program at once */
static atomic_int inside;              /* handlers that may be looking at the session */
static weir_session *_Atomic stopping; /* borrowed */
static char answer[128];               /* does not change any more once signals come */
static size_t answer_bytes;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A handler may call this, and no more. The answer is read by people: that it is not written is no harm. */
static void take_first(int sig)
{
    weir_session *session = atomic_load(&stopping);
    if (!atomic_load(&gentle))
        _exit(interrupt_status(sig));
    if (session)
        weir_session_stop(session);
    if (answer_bytes && write(STDERR_FILENO, answer, answer_bytes) < 0)
        return;
}

static void take(int sig)
{
    int none = 0, saved = errno;
    int64_t now = now_ns(), unset = 0;
    atomic_fetch_add(&inside, 1);
    atomic_compare_exchange_strong(&caught_ns, &unset, now);
    if (atomic_compare_exchange_strong(&caught, &none, sig))
        take_first(sig);
    else if (now - atomic_load(&caught_ns) > TWICE_NS)
        _exit(interrupt_status(sig));
    atomic_fetch_sub(&inside, 1);
    errno = saved;
}

static void catch_one(int sig)
{
    struct sigaction action;
    if (sigaction(sig, NULL, &action) || action.sa_handler == SIG_IGN)
        return;
    action = (struct sigaction){.sa_handler = take, .sa_flags = SA_RESTART};
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(sig, &action, NULL);
}

void interrupt_catch(const char *program)
{
    if (program)
        answer_bytes = (size_t)snprintf(answer, sizeof answer, "%s%s: ends after this step; another signal: at once\n",
                                        isatty(STDERR_FILENO) ? "\n" : "", program);
    catch_one(SIGINT);
    catch_one(SIGTERM);
}

void interrupt_stops(weir_session *session)
{
    atomic_store(&stopping, session);
    atomic_store(&gentle, true);
    while (atomic_load(&inside))
        sched_yield();
}

/* First the next signal ends the program at once, so that none is lost between. */
int interrupt_forget(void)
{
    atomic_store(&gentle, false);
    while (atomic_load(&inside))
        sched_yield();
    atomic_store(&caught_ns, 0);
    return atomic_exchange(&caught, 0);
}

int interrupt_caught(void)
{
    return atomic_load(&caught);
}

int interrupt_status(int signal)
{
    return 128 + signal;
}
