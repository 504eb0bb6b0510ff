/* tests/transport/mail/test_mailbox.c: the mailbox under one and many senders, at the edge of its capacity, awake and
 * asleep. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "transport/mail/cores.h"
#include "transport/mail/mailbox.h"
#include "transport/mail/park.h"

static struct message ready(uint32_t edge, uint32_t count)
{
    return (struct message){.edge = edge, .count = (uint16_t)count, .kind = MESSAGE_READY};
}

Test(mailbox, gives_back_messages_in_the_order_they_came, .timeout = 120)
{
    struct mailbox box;
    struct message got;
    cr_assert_eq(mailbox_open(&box, 8, spin_measured(0)), WEIR_OK);
    for (uint32_t lap = 0; lap < 100; lap++) {
        for (uint32_t i = 0; i < 5; i++)
            mailbox_post(&box, ready(lap * 5 + i, i + 1));
        for (uint32_t i = 0; i < 5; i++) {
            cr_assert(mailbox_take(&box, &got));
            cr_assert_eq(got.edge, lap * 5 + i);
            cr_assert_eq(got.kind, MESSAGE_READY);
            cr_assert_eq(got.count, i + 1);
        }
        cr_assert_not(mailbox_take(&box, &got));
    }
    mailbox_close(&box);
}

Test(mailbox, holds_as_many_messages_as_it_was_opened_for, .timeout = 120)
{
    for (uint32_t capacity = 0; capacity < 70; capacity++) {
        struct mailbox box;
        struct message got;
        cr_assert_eq(mailbox_open(&box, capacity, spin_measured(0)), WEIR_OK);
        for (uint32_t i = 0; i < capacity; i++)
            mailbox_post(&box, ready(i, 1));
        for (uint32_t i = 0; i < capacity; i++) {
            cr_assert(mailbox_take(&box, &got));
            cr_assert_eq(got.edge, i);
        }
        cr_assert_not(mailbox_pending(&box));
        mailbox_close(&box);
    }
}

Test(mailbox, wait_ends_at_its_deadline, .timeout = 120)
{
    struct mailbox box;
    cr_assert_eq(mailbox_open(&box, 8, spin_measured(1000)), WEIR_OK);
    int64_t start = park_now_ns();
    cr_assert_not(mailbox_wait(&box, park_deadline(20)));
    cr_assert_geq(park_now_ns() - start, 20 * 1000000);
    mailbox_post(&box, ready(1, 1));
    cr_assert(mailbox_wait(&box, park_deadline(0)));
    mailbox_close(&box);
}

Test(mailbox, an_owner_that_never_sleeps_ends_at_its_deadline_too, .timeout = 120)
{
    struct mailbox box;
    cr_assert_eq(mailbox_open(&box, 8, spin_fixed(SPIN_ALWAYS)), WEIR_OK);
    cr_assert_not(mailbox_wait(&box, park_deadline(5)));
    mailbox_close(&box);
}

/* As soon as the owner is asleep. */
static void *wake_owner(void *argument)
{
    struct mailbox *box = argument;
    while (atomic_load(&box->ring->asleep) != MAILBOX_ASLEEP)
        sched_yield();
    mailbox_post(box, ready(1, 1));
    return NULL;
}

static void measure_wake_up(struct mailbox *box)
{
    struct message got;
    pthread_t sender;
    cr_assert_eq(pthread_create(&sender, NULL, wake_owner, box), 0);
    cr_assert(mailbox_wait(box, PARK_FOREVER));
    cr_assert(mailbox_take(box, &got));
    pthread_join(sender, NULL);
    cr_expect_gt(box->spin.wake_ns, 2, "no wake-up takes 2 ns");
}

Test(mailbox, a_thread_that_leaves_a_core_may_run_where_it_might_before, .timeout = 120)
{
    cpu_set_t all, now, one;
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    const int core = sched_getcpu();
    cores_leave(core);
    cr_expect(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&one, &now) && sched_getcpu() == core);
    cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
    cores_leave(core);
    cr_expect(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&all, &now));
}

Test(mailbox, the_wake_up_that_ends_a_sleep_is_measured, .timeout = 120)
{
    static _Alignas(APART_BYTES) char ring[4096];
    struct mailbox box;
    cr_assert_eq(mailbox_open(&box, 8, spin_measured(2)), WEIR_OK);
    measure_wake_up(&box);
    mailbox_close(&box);
    mailbox_share(&box, ring, 16, spin_measured(2));
    measure_wake_up(&box);
    mailbox_close(&box);
}

/* Senders that hold `CREDIT` messages at most: the owner gives each back, as a consumer's FREE would. */
#define SENDERS 3
#define CREDIT 4
#define EACH 20000

struct sender {
    pthread_t thread;
    struct mailbox *to;
    _Atomic uint32_t credit;
    uint32_t number;
};

static void *send_all(void *argument)
{
    struct sender *me = argument;
    struct message messages[CREDIT];
    for (uint32_t i = 0; i < EACH;) {
        uint32_t credit = atomic_exchange_explicit(&me->credit, 0, memory_order_acq_rel), count = 0;
        for (; count < credit && i < EACH; count++)
            messages[count] = ready(i++, me->number + 1);
        if (count > 1)
            mailbox_post_many(me->to, messages, count);
        else if (count)
            mailbox_post(me->to, messages[0]);
        else
            park_pause();
    }
    return NULL;
}

static void many_senders(int64_t spin_ns)
{
    struct mailbox box;
    struct sender senders[SENDERS] = {0};
    uint32_t expected[SENDERS] = {0};
    struct message got;
    cr_assert_eq(mailbox_open(&box, SENDERS * CREDIT, spin_measured(spin_ns)), WEIR_OK);
    for (uint32_t i = 0; i < SENDERS; i++) {
        senders[i].to = &box;
        senders[i].number = i;
        atomic_init(&senders[i].credit, CREDIT);
        cr_assert_eq(pthread_create(&senders[i].thread, NULL, send_all, &senders[i]), 0);
    }
    for (uint32_t total = 0; total < SENDERS * EACH; total++) {
        while (!mailbox_take(&box, &got))
            cr_assert(mailbox_wait(&box, park_deadline(10000)), "a message was slept through");
        uint32_t sender = got.count - 1u;
        cr_assert_lt(sender, SENDERS);
        cr_assert_eq(got.edge, expected[sender]++, "messages of sender %u are out of order", sender);
        atomic_fetch_add_explicit(&senders[sender].credit, 1, memory_order_acq_rel);
    }
    for (uint32_t i = 0; i < SENDERS; i++)
        pthread_join(senders[i].thread, NULL);
    mailbox_close(&box);
}

Test(mailbox, loses_nothing_of_many_senders_while_its_owner_spins, .timeout = 120)
{
    many_senders(50000);
}

Test(mailbox, loses_nothing_of_many_senders_while_its_owner_sleeps, .timeout = 120)
{
    many_senders(0);
}

/* A process that was killed had taken its ticket, and its message never comes. */
Test(mailbox, an_order_is_heard_behind_a_message_that_never_comes, .timeout = 120)
{
    static _Alignas(APART_BYTES) unsigned char ring[4096];
    struct mailbox box;
    struct message got;
    cr_assert(mailbox_ring_bytes(16) <= sizeof(ring));
    mailbox_share(&box, ring, 16, spin_fixed(0));
    atomic_fetch_add(&box.ring->tail, 1);
    cr_assert_not(mailbox_wait(&box, park_deadline(10)));
    mailbox_order(&box, 4);
    cr_assert(mailbox_wait(&box, PARK_FOREVER));
    cr_assert_not(mailbox_take(&box, &got));
    cr_assert_eq(mailbox_orders(&box), 4);
    cr_assert_eq(mailbox_orders(&box), 0);
    mailbox_close(&box);
}

static void *order_later(void *argument)
{
    struct mailbox *box = argument;
    struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
    atomic_store(&box->ring->asleep, 0); /* as far as a process that was killed came with waking the owner */
    mailbox_order(box, 2);
    return NULL;
}

Test(mailbox, an_order_wakes_an_owner_whom_another_process_was_about_to_wake, .timeout = 120)
{
    static _Alignas(APART_BYTES) unsigned char ring[4096];
    struct mailbox box;
    struct message got;
    pthread_t thread;
    mailbox_share(&box, ring, 16, spin_fixed(0));
    cr_assert_eq(pthread_create(&thread, NULL, order_later, &box), 0);
    cr_assert(mailbox_wait(&box, PARK_FOREVER));
    pthread_join(thread, NULL);
    cr_assert_eq(mailbox_orders(&box), 2);
    cr_assert_not(mailbox_take(&box, &got), "an order went through the ring");
    mailbox_close(&box);
}

/* One bit after the other; each is to be heard before the next is given. */
struct orders {
    struct mailbox box;
    _Atomic uint32_t heard;
};

static void *give_orders(void *argument)
{
    struct orders *orders = argument;
    for (uint32_t i = 0; i < EACH; i++) {
        while (atomic_load_explicit(&orders->heard, memory_order_acquire) != i)
            park_pause();
        mailbox_order(&orders->box, 1u << i % 32);
    }
    return NULL;
}

static void hear_orders(bool shared, int64_t spin_ns)
{
    static _Alignas(APART_BYTES) unsigned char ring[4096];
    struct orders orders = {.heard = 0};
    struct message got;
    pthread_t thread;
    if (shared)
        mailbox_share(&orders.box, ring, 16, spin_measured(spin_ns));
    else
        cr_assert_eq(mailbox_open(&orders.box, 16, spin_measured(spin_ns)), WEIR_OK);
    cr_assert_eq(pthread_create(&thread, NULL, give_orders, &orders), 0);
    for (uint32_t i = 0; i < EACH; i++) {
        cr_assert(mailbox_wait(&orders.box, park_deadline(10000)), "an order was slept through");
        cr_assert_eq(mailbox_orders(&orders.box), 1u << i % 32);
        atomic_store_explicit(&orders.heard, i + 1, memory_order_release);
    }
    pthread_join(thread, NULL);
    cr_assert_not(mailbox_take(&orders.box, &got));
    mailbox_close(&orders.box);
}

Test(mailbox, sleeps_through_no_order, .timeout = 60)
{
    hear_orders(false, 0);
    hear_orders(true, 0);
    hear_orders(false, 50000);
}

Test(mailbox, orders_that_were_not_taken_add_up, .timeout = 120)
{
    struct mailbox box;
    cr_assert_eq(mailbox_open(&box, 8, spin_measured(0)), WEIR_OK);
    cr_assert_not(mailbox_pending(&box));
    mailbox_order(&box, 1);
    mailbox_order(&box, 4);
    mailbox_order(&box, 4);
    cr_assert(mailbox_pending(&box));
    cr_assert_not(mailbox_asleep(&box));
    cr_assert_eq(mailbox_orders(&box), 5);
    cr_assert_not(mailbox_pending(&box));
    mailbox_close(&box);
}
