/* transport/mail/spin.h: how long a thread that waits spins before it sleeps.
 *
 * A sleep costs a wake-up, so a thread spins about as long as a wake-up takes: then it never waits more than twice as long
 * as the better of the two choices would have (the ski-rental bound). How long a wake-up takes depends on the moment: 5 us
 * between two cores that are awake, a millisecond where a hypervisor has to start a processor first. So each is measured,
 * from the waker's call to the sleeper's first instruction, and the budget is about what nine of ten of them stay below. (The
 * longest ones are those of a thread that was put behind another one on a core; nobody should spin as long as that, least
 * of all beside another program: with a limit of a millisecond two workers beside a program that never rests took 120 to
 * 140 us a step, with SPIN_WAKE_MAX_NS 106 to 112.)
 *
 * Two threads that wait for each other in turn, and each spin for just one wake-up, can keep putting each other to
 * sleep: the one that was woken comes a wake-up late, so the other waits for as long, gives up, and is woken late
 * itself. (Two columns of 44 us of which one firing in five takes 25 us longer: 58 us a step with 0.3 sleeps, where 53
 * are needed.) So a thread that was called within the time of SPIN_LONG wake-ups spins that long from then on, until a
 * spin was in vain and the sleep behind it a long one.
 *
 * A thread for which nothing comes halves its budget with each spin in vain, down to what a wake-up took when the session
 * opened. So a server that waits for requests sleeps; a request that comes soon gives it back its budget.
 *
 * With more threads than cores spinning only keeps the awaited thread from running; then the budget is 0.
 *
 * A user may set the budget: 0, a time, or SPIN_ALWAYS, for who owns the cores. A thread that spins gives its core to
 * others of its priority each SPIN_YIELD_NS, so under SCHED_FIFO nothing starves behind it.
 *
 * Everything here is arithmetic: the caller has the clock (tests have their own). Owner: the thread that waits.
 */
#ifndef TRANSPORT_MAIL_SPIN_H
#define TRANSPORT_MAIL_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_ALWAYS INT64_MAX
#define SPIN_LONG 4               /* wake-ups that a thread spins for that was woken soon */
#define SPIN_WAKE_MAX_NS 100000  /* longer: others were using the core */
#define SPIN_YIELD_NS 2000000

struct spin {
    int64_t least_ns; /* what a wake-up took when the session opened; or the user's budget */
    int64_t wake_ns;  /* what nine of ten take no longer than now; 0: the budget is fixed */
    uint32_t vain;    /* spins in vain, in a row */
    bool soon;        /* called within SPIN_LONG wake-ups, the last time */
};

/* For a thread for which a wake-up takes `wake_ns`; 0: it never spins. */
static inline struct spin spin_measured(int64_t wake_ns)
{
    return (struct spin){.least_ns = wake_ns, .wake_ns = wake_ns};
}

/* Always the same budget. */
static inline struct spin spin_fixed(int64_t budget_ns)
{
    return (struct spin){.least_ns = budget_ns};
}

/* The moment up to which a thread spins that began to wait at `start`. */
int64_t spin_until(const struct spin *spin, int64_t start);

/* It has slept after a spin in vain: it began to wait at `start`, was called at `called` (0: by nobody, or that is unknown)
 * and runs at `now`. */
void spin_slept(struct spin *spin, int64_t start, int64_t called, int64_t now);

/* Something came while it spun. */
static inline void spin_met(struct spin *spin)
{
    spin->vain = 0;
}

#endif
