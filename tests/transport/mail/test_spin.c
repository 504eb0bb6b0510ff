/* tests/transport/mail/test_spin.c: how long a waiter spins, on a clock of the test's own. */
#include <criterion/criterion.h>
#include <weir/weir.h>

#include "transport/mail/spin.h"

enum { US = 1000, MS = 1000000, STEPS = 1000 };

/* ---- two threads, each of which waits for the other in each step ---- */

struct player {
    struct spin spin;
    int64_t now;  /* when its step begins */
    int64_t done; /* when its step is done */
};

struct game {
    int64_t work, more, wake, slow_wake; /* one step in five takes `more`, and one wake-up in twenty `slow_wake` */
    uint64_t draws;
    struct player player[2];
    int sleeps;
};

static bool one_in(struct game *g, uint32_t count)
{
    uint32_t word[4];
    weir_philox(33, ++g->draws, 0, word);
    return word[0] % count == 0;
}

/* `me` is done and waits until the other is. */
static void await(struct game *g, struct player *me, const struct player *other)
{
    if (other->done <= spin_until(&me->spin, me->done)) {
        spin_met(&me->spin);
        me->now = other->done;
        return;
    }
    me->now = other->done + (one_in(g, 20) ? g->slow_wake : g->wake);
    spin_slept(&me->spin, me->done, other->done, me->now);
    g->sleeps++;
}

static void step(struct game *g)
{
    struct player *a = &g->player[0], *b = &g->player[1];
    a->done = a->now + (one_in(g, 5) ? g->more : g->work);
    b->done = b->now + (one_in(g, 5) ? g->more : g->work);
    struct player *first = a->done < b->done ? a : b, *last = first == a ? b : a;
    last->now = last->done;
    if (first->done < last->done)
        await(g, first, last);
    else
        first->now = first->done;
}

/* Sleeps in STEPS steps, after a hundred others. */
static int sleeps(struct game g, struct spin spin)
{
    g.player[0].spin = g.player[1].spin = spin;
    for (int i = 0; i < 100; i++)
        step(&g);
    g.sleeps = 0;
    for (int i = 0; i < STEPS; i++)
        step(&g);
    return g.sleeps;
}

Test(spin, two_threads_do_not_put_each_other_to_sleep_in_turn)
{
    static const int64_t wake[] = {5 * US, 25 * US, 100 * US}, work[] = {1 * US, 10 * US, 44 * US, 200 * US};
    for (size_t i = 0; i < sizeof wake / sizeof *wake; i++)
        for (size_t k = 0; k < sizeof work / sizeof *work; k++) {
            const struct game g = {.work = work[k], .more = work[k] + 25 * US, .wake = wake[i], .slow_wake = MS};
            const int count = sleeps(g, spin_measured(20 * US));
            cr_expect_leq(count, STEPS / 50, "steps of %lld us, wake-ups of %lld us: %d sleeps",
                          (long long)work[k] / US, (long long)wake[i] / US, count);
        }
}

/* So the game shows what it is for. */
Test(spin, threads_that_spin_for_a_fixed_time_put_each_other_to_sleep)
{
    const struct game g = {.work = 44 * US, .more = 69 * US, .wake = 200 * US, .slow_wake = MS};
    cr_expect_gt(sleeps(g, spin_fixed(20 * US)), STEPS / 4);
    cr_expect_eq(sleeps(g, spin_fixed(SPIN_ALWAYS)), 0);
}

/* ---- the budget ---- */

/* One wait that ends with a sleep of `wait`, and a wake-up. */
static void sleep_once(struct spin *spin, int64_t wait, int64_t wake)
{
    spin_slept(spin, MS, MS + wait, MS + wait + wake);
}

static int64_t budget(const struct spin *spin)
{
    return spin_until(spin, 0);
}

Test(spin, budget_follows_what_nine_of_ten_wake_ups_stay_below)
{
    struct spin spin = spin_measured(20 * US);
    cr_expect_eq(budget(&spin), 20 * US);
    for (int i = 0; i < 20; i++)
        sleep_once(&spin, 30 * US, 90 * US);
    cr_expect_gt(spin.wake_ns, 80 * US);
    cr_expect_eq(budget(&spin), SPIN_LONG * spin.wake_ns, "it was called soon");
    sleep_once(&spin, 30 * US, 20 * US);
    cr_expect_gt(spin.wake_ns, 75 * US, "one short wake-up says little");
    for (int i = 0; i < 300; i++)
        sleep_once(&spin, 30 * US, i % 20 ? 40 * US : 3 * MS);
    cr_expect_lt(spin.wake_ns, 80 * US, "nor do those that are seldom: %lld", (long long)spin.wake_ns);
    cr_expect_gt(spin.wake_ns, 30 * US);
}

Test(spin, a_wake_up_counts_no_more_than_its_limit_and_never_less_than_nothing)
{
    struct spin spin = spin_measured(20 * US);
    for (int i = 0; i < 50; i++)
        sleep_once(&spin, 30 * US, 1000 * MS);
    cr_expect_leq(spin.wake_ns, SPIN_WAKE_MAX_NS);
    spin = spin_measured(20 * US);
    spin_slept(&spin, MS, INT64_MAX, 2 * MS); /* another process says so */
    spin_slept(&spin, MS, 0, 2 * MS);
    spin_slept(&spin, MS, INT64_MIN, 2 * MS);
    cr_expect_eq(spin.wake_ns, 20 * US);
}

Test(spin, a_thread_for_which_nothing_comes_spins_less_and_less)
{
    struct spin spin = spin_measured(20 * US);
    int64_t spun = 0;
    for (int i = 0; i < 100; i++) { /* a request each 50 ms, and a wake-up of a millisecond */
        spun += budget(&spin);
        sleep_once(&spin, 50 * MS, MS);
    }
    cr_expect_lt(spun, 5 * MS, "%lld us of 5 s", (long long)spun / US);
    cr_expect_eq(budget(&spin), 20 * US);
    sleep_once(&spin, 100 * US, MS);
    cr_expect_eq(budget(&spin), SPIN_LONG * spin.wake_ns, "one that comes soon changes that");
    spin_met(&spin);
    cr_expect_eq(budget(&spin), SPIN_LONG * spin.wake_ns);
}

Test(spin, a_budget_that_the_user_sets_stays)
{
    struct spin spin = spin_fixed(0);
    sleep_once(&spin, 30 * US, MS);
    cr_expect_eq(spin_until(&spin, MS), MS);
    spin = spin_fixed(50 * US);
    sleep_once(&spin, 30 * US, MS);
    cr_expect_eq(spin_until(&spin, MS), MS + 50 * US);
    spin = spin_fixed(SPIN_ALWAYS);
    sleep_once(&spin, 30 * US, MS);
    cr_expect_eq(spin_until(&spin, MS), SPIN_ALWAYS);
}
