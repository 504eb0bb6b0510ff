/* tests/regst/test_fake_faults.c: the fake accelerator (tests/support/fake.h) sees what a caller may not do, finds
 * races whatever order was drawn, and fails as it is told to. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "kernels/common/ops.h"
#include "tests/support/effort.h"
#include "tests/support/fake_bench.h"

TestSuite(fake_faults, .timeout = 120);

static weir_status refuse(const weir_kernel_args *args)
{
    snprintf(args->error, args->error_bytes, "label %d is out of range", (int)args->key);
    return WEIR_E_KERNEL;
}

static weir_status nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

static void wait_until_ill(struct device_queue *queue, char *error, size_t error_bytes)
{
    while (!queue->device->health(queue, error, error_bytes))
        sched_yield();
}

/* ---- what no caller may do ---- */

static void expect_misuse(const char *part)
{
    fake_seen seen = fake_close();
    cr_expect_geq(seen.misuses, 1);
    cr_expect(strstr(seen.misuse, part), "'%s' is said of: %s", seen.misuse, part);
}

Test(fake_faults, sees_a_mark_without_room)
{
    struct bench b = bench_open(&(fake_options){.marks_max = 2, .held = true}, 1);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(b.device->mark(b.queues[0]), WEIR_OK);
    fake_go();
    bench_wait(b.queues[0], 3);
    bench_free(&b);
    expect_misuse("no room");
}

Test(fake_faults, sees_an_await_of_no_mark)
{
    struct bench b = bench_open(NULL, 2);
    b.device->await(b.queues[0], b.queues[1], 1);
    b.device->abort(b.queues[0]);
    bench_free(&b);
    expect_misuse("awaits mark 1 of queue 1, which has made 0");
}

Test(fake_faults, sees_memory_of_the_hosts)
{
    struct bench b = bench_open(NULL, 1);
    float host[BENCH_ITEMS];
    bench_launch(b.queues[0], bench_fill, 1, NULL, host);
    bench_finish(b.queues[0]);
    bench_free(&b);
    expect_misuse("no device's");
}

Test(fake_faults, sees_a_view_that_leaves_its_space)
{
    struct bench b = bench_open(NULL, 1);
    bench_launch(b.queues[0], nothing, 1, NULL, bench_slot(&b, BENCH_SLOTS) - 1);
    b.device->abort(b.queues[0]);
    bench_free(&b);
    expect_misuse("no device's");
}

Test(fake_faults, sees_copies_beside_a_queue_that_works)
{
    struct bench b = bench_open(&(fake_options){.held = true}, 1);
    float host[BENCH_ITEMS];
    bench_launch(b.queues[0], bench_fill, 1, NULL, bench_slot(&b, 0));
    b.device->copy_out(host, bench_slot(&b, 4), BENCH_BYTES);
    fake_go();
    bench_finish(b.queues[0]);
    bench_free(&b);
    expect_misuse("a copy out while queue 0 of fake:0 is at work");
}

Test(fake_faults, sees_a_queue_freed_that_works)
{
    struct bench b = bench_open(&(fake_options){.held = true}, 1);
    bench_launch(b.queues[0], bench_fill, 1, NULL, bench_slot(&b, 0));
    bench_free(&b);
    expect_misuse("is freed while it is at work");
}

Test(fake_faults, sees_what_is_left_open)
{
    struct bench b = bench_open(NULL, 1);
    cr_expect_eq(fake_look().misuses, 0);
    b.device->health(b.queues[0], NULL, 0);
    expect_misuse("left open");
}

/* Launches until the fake has seen that another thread does so, too. */
static void *launch_on(void *queue)
{
    while (!fake_look().misuses)
        bench_launch(queue, nothing, 0, NULL, NULL);
    return NULL;
}

Test(fake_faults, sees_two_threads_on_one_queue)
{
    struct bench b = bench_open(NULL, 1);
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, launch_on, b.queues[0]), 0);
    launch_on(b.queues[0]);
    pthread_join(other, NULL);
    b.device->abort(b.queues[0]);
    bench_free(&b);
    expect_misuse("two threads use queue 0 at once");
}

/* ---- faults ---- */

static struct bench bench_with(fake_fault_kind kind, uint64_t launch)
{
    return bench_open(&(fake_options){.faults = {{kind, 0, DEVICE_COMPUTE, launch}}}, 2);
}

/* Its marks stay away, and another queue's do not. */
static void expect_only_the_other_works(struct bench *b, uint64_t done_before)
{
    cr_expect_eq(bench_done(b->queues[0]), done_before);
    bench_launch(b->queues[1], bench_fill, 7, NULL, bench_slot(b, 8));
    bench_finish(b->queues[1]);
    cr_expect_eq(bench_done(b->queues[0]), done_before);
    cr_expect_eq(b->device->health(b->queues[1], NULL, 0), WEIR_OK);
    b->device->abort(b->queues[0]);
    bench_close(b);
}

static void two_launches(struct bench *b)
{
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(bench_launch(b->queues[0], bench_fill, 1, NULL, bench_slot(b, i)), WEIR_OK);
        bench_mark(b->queues[0]);
    }
}

Test(fake_faults, a_kernel_that_fails_is_told_by_health_alone)
{
    struct bench b = bench_with(FAKE_FAILS, 2);
    char error[200] = "";
    two_launches(&b);
    wait_until_ill(b.queues[0], error, sizeof error);
    cr_expect(strstr(error, "failed on fake:0"), "%s", error);
    expect_only_the_other_works(&b, 1);
}

Test(fake_faults, a_kernels_own_sentence_is_told)
{
    struct bench b = bench_with(FAKE_NO_FAULT, 0);
    char error[200] = "";
    cr_assert_eq(bench_launch(b.queues[0], refuse, 17, NULL, bench_slot(&b, 0)), WEIR_OK);
    bench_mark(b.queues[0]);
    wait_until_ill(b.queues[0], error, sizeof error);
    cr_expect(strstr(error, "label 17 is out of range"), "%s", error);
    expect_only_the_other_works(&b, 0);
}

Test(fake_faults, a_queue_that_dies_says_so)
{
    struct bench b = bench_with(FAKE_DIES, 2);
    char error[200] = "";
    two_launches(&b);
    wait_until_ill(b.queues[0], error, sizeof error);
    cr_expect(strstr(error, "is lost"), "%s", error);
    expect_only_the_other_works(&b, 1);
}

Test(fake_faults, a_kernel_that_hangs_is_well_until_it_is_aborted)
{
    struct bench b = bench_with(FAKE_HANGS, 2);
    two_launches(&b);
    bench_wait(b.queues[0], 1);
    cr_expect_eq(b.device->health(b.queues[0], NULL, 0), WEIR_OK);
    expect_only_the_other_works(&b, 1);
}

Test(fake_faults, a_launch_that_fails_enqueues_nothing)
{
    struct bench b = bench_with(FAKE_LAUNCH_FAILS, 2);
    cr_assert_eq(bench_launch(b.queues[0], bench_fill, 1, NULL, bench_slot(&b, 0)), WEIR_OK);
    cr_expect_eq(bench_launch(b.queues[0], bench_fill, 2, NULL, bench_slot(&b, 0)), WEIR_E_KERNEL);
    cr_expect(strstr(weir_error(), "does not take"), "%s", weir_error());
    cr_assert_eq(bench_launch(b.queues[0], bench_fill, 3, NULL, bench_slot(&b, 1)), WEIR_OK);
    bench_finish(b.queues[0]);
    cr_expect_eq(bench_first(bench_slot(&b, 0)), 1);
    cr_expect_eq(bench_first(bench_slot(&b, 1)), 3);
    bench_close(&b);
}

Test(fake_faults, who_awaits_a_queue_that_was_aborted_waits_until_it_is_aborted_too)
{
    struct bench b = bench_with(FAKE_HANGS, 1);
    bench_launch(b.queues[0], bench_fill, 1, NULL, bench_slot(&b, 0));
    b.device->await(b.queues[1], b.queues[0], bench_mark(b.queues[0]));
    bench_launch(b.queues[1], bench_copy, 1, bench_slot(&b, 0), bench_slot(&b, 1));
    bench_mark(b.queues[1]);
    b.device->abort(b.queues[0]);
    b.device->abort(b.queues[1]);
    cr_expect_eq(bench_done(b.queues[1]), 0);
    cr_expect_neq(bench_launch(b.queues[1], bench_fill, 1, NULL, bench_slot(&b, 1)), WEIR_OK, "nothing more is taken");
    bench_close(&b);
}

/* ---- races ---- */

/* Two queues: one fills a slot, which the other reads, `rounds` times, with or without each of the awaits. */
static fake_seen ping_pong(uint64_t seed, bool awaits_write, bool awaits_read)
{
    struct bench b = bench_open(&(fake_options){.seed = seed, .marks_max = 16, .held = true}, 2);
    struct device_queue *from = b.queues[0], *to = b.queues[1];
    for (uint64_t i = 1; i <= 8; i++) {
        if (awaits_read && i > 1)
            b.device->await(from, to, i - 1);
        bench_launch(from, bench_fill, i, NULL, bench_slot(&b, 0));
        bench_mark(from);
        if (awaits_write)
            b.device->await(to, from, i);
        bench_launch(to, bench_copy, 0, bench_slot(&b, 0), bench_slot(&b, (int)i));
        bench_mark(to);
    }
    fake_go();
    bench_wait(from, 8);
    bench_wait(to, 8);
    if (awaits_write && awaits_read)
        for (int i = 1; i <= 8; i++)
            cr_expect_eq(bench_first(bench_slot(&b, i)), (float)i);
    bench_free(&b);
    return fake_close();
}

Test(fake_faults, an_await_that_is_left_out_is_seen_in_every_order)
{
    enum { SEEDS = EFFORT(50, 20, 10) };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_seen well = ping_pong(seed, true, true);
        cr_assert(!well.misuses && !well.race[0], "%s%s", well.misuse, well.race);
        fake_seen no_write = ping_pong(seed, false, true), no_read = ping_pong(seed, true, false);
        cr_assert(strstr(no_write.race, "nothing orders"), "seed %d", (int)seed);
        cr_assert(strstr(no_read.race, "nothing orders"), "seed %d", (int)seed);
    }
}

Test(fake_faults, what_the_host_saw_done_before_it_launched_is_in_order)
{
    struct bench b = bench_open(NULL, 2);
    for (uint64_t i = 1; i <= 8; i++) {
        bench_launch(b.queues[i % 2], bench_fill, i, NULL, bench_slot(&b, 0));
        bench_finish(b.queues[i % 2]);
    }
    cr_expect_eq(bench_first(bench_slot(&b, 0)), 8);
    bench_close(&b);
}

Test(fake_faults, a_race_is_told_with_both_ops)
{
    struct bench b = bench_open(&(fake_options){.held = true}, 2);
    b.device->kernel(&op_copy);
    b.device->kernel(&op_accumulate);
    bench_launch(b.queues[0], op_copy.kernel[WEIR_CPU], 0, bench_slot(&b, 0), bench_slot(&b, 1));
    bench_launch(b.queues[1], op_accumulate.kernel[WEIR_CPU], 0, bench_slot(&b, 2), bench_slot(&b, 1));
    fake_go();
    bench_finish(b.queues[0]);
    bench_finish(b.queues[1]);
    bench_free(&b);
    fake_seen seen = fake_close();
    cr_expect(strstr(seen.race, "copy") && strstr(seen.race, "accumulate"), "%s", seen.race);
}

/* Order goes through a third queue, and reads do not race with reads. */
Test(fake_faults, order_is_handed_on)
{
    struct bench b = bench_open(&(fake_options){.held = true}, 3);
    bench_launch(b.queues[0], bench_fill, 1, NULL, bench_slot(&b, 0));
    b.device->await(b.queues[1], b.queues[0], bench_mark(b.queues[0]));
    bench_launch(b.queues[1], bench_copy, 1, bench_slot(&b, 0), bench_slot(&b, 1));
    b.device->await(b.queues[2], b.queues[1], bench_mark(b.queues[1]));
    bench_launch(b.queues[2], bench_copy, 1, bench_slot(&b, 0), bench_slot(&b, 2));
    bench_launch(b.queues[2], bench_copy, 1, bench_slot(&b, 1), bench_slot(&b, 3));
    bench_launch(b.queues[2], bench_fill, 5, NULL, bench_slot(&b, 0));
    fake_go();
    bench_finish(b.queues[2]);
    cr_expect_eq(bench_first(bench_slot(&b, 3)), 1);
    bench_close(&b);
}
