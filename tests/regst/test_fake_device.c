/* tests/regst/test_fake_device.c: the fake accelerator (tests/support/fake.h) keeps what regst/device.h says of a kind
 * that runs ahead, and no more than that. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/common/ops.h"
#include "tests/support/effort.h"
#include "tests/support/fake_bench.h"
#include "tests/support/sdf.h"

TestSuite(fake_device, .timeout = 120);

enum { ROUNDS = EFFORT(2000, 500, 300) };

/* ---- kernels ---- */

/* The state's value tells in which order these were called. */
static weir_status follow(const weir_kernel_args *args)
{
    float *state = args->state[0].data;
    state[0] = fmodf(state[0] * 7 + (float)args->key, 8191);
    return WEIR_OK;
}

/* Host memory, since only one thread calls kernels; read when nothing runs. */
static int called[1024];
static int called_count;

static weir_status note(const weir_kernel_args *args)
{
    called[called_count++] = (int)args->key;
    return WEIR_OK;
}

/* ---- order ---- */

Test(fake_device, runs_a_queue_in_order)
{
    struct bench b = bench_open(&(fake_options){.seed = 1, .delay_us = 20}, 1);
    float expected = 0;
    for (int i = 0; i < 100; i++) {
        weir_view state = bench_view(bench_slot(&b, 0));
        weir_kernel_args args = {.state = &state, .state_count = 1, .key = (uint64_t)i};
        cr_assert_eq(b.device->launch(b.queues[0], follow, &args), WEIR_OK);
        expected = fmodf(expected * 7 + (float)i, 8191);
        if (fake_room(b.queues[0]))
            bench_mark(b.queues[0]);
    }
    while (!fake_room(b.queues[0]))
        sched_yield();
    bench_finish(b.queues[0]);
    cr_expect_eq(bench_first(bench_slot(&b, 0)), expected);
    bench_close(&b);
}

Test(fake_device, what_follows_an_await_sees_what_was_before_the_mark)
{
    struct bench b = bench_open(&(fake_options){.seed = 2, .delay_us = 50, .marks_max = 64}, 2);
    struct device_queue *from = b.queues[0], *to = b.queues[1];
    for (int i = 1; i <= BENCH_SLOTS / 2; i++) {
        cr_assert_eq(bench_launch(from, bench_fill, (uint64_t)i, NULL, bench_slot(&b, i - 1)), WEIR_OK);
        uint64_t ticket = bench_mark(from);
        cr_assert_eq(b.device->await(to, from, ticket), WEIR_OK);
        bench_launch(to, bench_copy, 0, bench_slot(&b, i - 1), bench_slot(&b, BENCH_SLOTS / 2 + i - 1));
    }
    bench_finish(to);
    cr_expect_geq(bench_done(from), BENCH_SLOTS / 2);
    for (int i = 1; i <= BENCH_SLOTS / 2; i++)
        cr_expect_eq(bench_first(bench_slot(&b, BENCH_SLOTS / 2 + i - 1)), (float)i);
    bench_close(&b);
}

/* The order in which two queues' launches were called, as bits. */
static uint64_t interleaving(uint64_t seed)
{
    struct bench b = bench_open(&(fake_options){.seed = seed, .held = true}, 2);
    uint64_t order = 0;
    called_count = 0;
    for (int i = 0; i < 16; i++)
        for (int q = 0; q < 2; q++)
            cr_assert_eq(bench_launch(b.queues[q], note, (uint64_t)(q * 100 + i), NULL, NULL), WEIR_OK);
    cr_assert_eq(called_count, 0, "nothing runs while it is held");
    fake_go();
    bench_finish(b.queues[0]);
    bench_finish(b.queues[1]);
    cr_assert_eq(called_count, 32);
    int next[2] = {0};
    for (int i = 0; i < called_count; i++) {
        int q = called[i] / 100;
        cr_expect_eq(called[i] % 100, next[q]++, "queue %d is out of order", q);
        order = order << 1 | (uint64_t)q;
    }
    bench_close(&b);
    return order;
}

Test(fake_device, queues_run_in_any_order_drawn_from_the_seed)
{
    uint64_t first = interleaving(1);
    int differ = 0;
    cr_expect_eq(interleaving(1), first);
    for (uint64_t seed = 2; seed < 12; seed++)
        differ += interleaving(seed) != first;
    cr_expect_geq(differ, 9);
}

/* ---- what a call is ---- */

Test(fake_device, attributes_are_copied_at_launch)
{
    struct bench b = bench_open(&(fake_options){.held = true}, 1);
    affine_attrs attrs = {.scale = 3, .shift = 1};
    weir_kernel_fn call = b.device->kernel(&op_affine);
    cr_assert_eq(call, op_affine.kernel[WEIR_CPU]);
    float host[BENCH_ITEMS];
    for (int i = 0; i < BENCH_ITEMS; i++)
        host[i] = 2;
    b.device->copy_in(bench_slot(&b, 0), host, BENCH_BYTES);
    weir_view in = bench_view(bench_slot(&b, 0)), out = bench_view(bench_slot(&b, 1));
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1, .attrs = &attrs};
    cr_assert_eq(b.device->launch(b.queues[0], call, &args), WEIR_OK);
    explicit_bzero(&attrs, sizeof attrs);
    fake_go();
    bench_finish(b.queues[0]);
    cr_expect_eq(bench_first(bench_slot(&b, 1)), 7);
    bench_close(&b);
}

Test(fake_device, has_no_kernel_for_host_functions_and_what_the_cpu_has_none_for)
{
    const weir_op none = {.name = "none"};
    fake_open(NULL);
    const struct device_ops *device = device_find(WEIR_FAKE);
    cr_expect_null(device->kernel(&op_source));
    cr_expect_null(device->kernel(&op_sink));
    cr_expect_null(device->kernel(&op_call));
    cr_expect_null(device->kernel(&none));
    cr_expect_eq(device->kernel(&op_copy), op_copy.kernel[WEIR_CPU]);
    cr_expect_eq(device_find(WEIR_PINNED)->kernel(&op_source), op_source.kernel[WEIR_CPU]);
    fake_close_well();
}

/* ---- poison ---- */

static float seen_out, seen_workspace;

static weir_status look(const weir_kernel_args *args)
{
    seen_out = ((float *)args->out[0].data)[BENCH_ITEMS - 1];
    seen_workspace = args->workspace ? ((float *)args->workspace)[0] : 0;
    ((float *)args->out[0].data)[BENCH_ITEMS - 1] = 1;
    return WEIR_OK;
}

Test(fake_device, what_a_kernel_writes_is_poisoned_before)
{
    struct bench b = bench_open(NULL, 1);
    weir_view out = bench_view(bench_slot(&b, 0));
    weir_kernel_args args = {.out = &out, .out_count = 1};
    args.workspace = bench_slot(&b, 1);
    args.workspace_bytes = BENCH_BYTES;
    cr_assert_eq(b.device->launch(b.queues[0], look, &args), WEIR_OK);
    bench_finish(b.queues[0]);
    cr_expect(isnan(seen_out) && isnan(seen_workspace));
    cr_expect(isnan(bench_first(bench_slot(&b, 0))), "what the kernel left out is seen later");
    bench_close(&b);
}

Test(fake_device, what_it_adds_to_or_works_on_in_place_is_not)
{
    struct bench b = bench_open(NULL, 1);
    weir_view view = bench_view(bench_slot(&b, 0));
    const weir_kernel_args adds = {.out = &view, .out_count = 1, .accumulate = true};
    const weir_kernel_args continues = {.out = &view, .out_count = 1, .continues = true};
    const weir_kernel_args in_place = {.in = &view, .in_count = 1, .out = &view, .out_count = 1};
    const weir_kernel_args *const calls[] = {&adds, &continues, &in_place};
    float expected = 0;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(b.device->launch(b.queues[0], look, calls[i]), WEIR_OK);
        bench_finish(b.queues[0]);
        cr_expect_eq(seen_out, expected, "call %d", i);
        expected = 1;
    }
    bench_close(&b);
}

Test(fake_device, a_call_that_continues_another_finds_its_workspace_as_that_left_it)
{
    struct bench b = bench_open(NULL, 1);
    weir_view out = bench_view(bench_slot(&b, 0));
    const weir_kernel_args args = {.out = &out, .out_count = 1, .workspace = bench_slot(&b, 1),
                                   .workspace_bytes = BENCH_BYTES, .continues = true};
    cr_assert_eq(b.device->launch(b.queues[0], look, &args), WEIR_OK);
    bench_finish(b.queues[0]);
    cr_expect_eq(seen_workspace, 0);
    bench_close(&b);
}

/* ---- memory ---- */

Test(fake_device, spaces_are_zeroed_aligned_and_reached_by_copies)
{
    struct bench b = bench_open(NULL, 0);
    char host[BENCH_SPACE_BYTES], back[BENCH_SPACE_BYTES];
    cr_expect_eq((uintptr_t)b.space % 64, 0);
    b.device->copy_out(back, b.space, sizeof back);
    for (size_t i = 0; i < sizeof back; i++)
        cr_assert_eq(back[i], 0);
    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (char)i;
    b.device->copy_in(b.space, host, sizeof host);
    b.device->copy_out(back, bench_slot(&b, 1), sizeof back - BENCH_BYTES);
    cr_expect_eq(memcmp(back, host + BENCH_BYTES, sizeof back - BENCH_BYTES), 0);
    bench_close(&b);
}

/* True if following the address ends the process. */
static bool faults(const volatile float *at, bool writes)
{
    int status;
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (writes)
            *(volatile float *)at = 1;
        _exit(*at == 1234567.0f);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status);
}

Test(fake_device, a_host_that_follows_its_addresses_faults)
{
    struct bench b = bench_open(NULL, 0);
    void *pinned;
    cr_expect(faults(bench_slot(&b, 3), false));
    cr_expect(faults(bench_slot(&b, 3), true));
    cr_expect_not(faults(fake_reach(bench_slot(&b, 3)), true));
    cr_assert_eq(device_find(WEIR_PINNED)->space_new("", 0, BENCH_BYTES, &pinned), WEIR_OK);
    cr_expect_not(faults(pinned, true));
    device_find(WEIR_PINNED)->space_free(pinned, BENCH_BYTES);
    bench_close(&b);
}

Test(fake_device, pinned_memory_is_the_hosts_and_the_devices)
{
    struct bench b = bench_open(&(fake_options){.delay_us = 100}, 1);
    const struct device_ops *pinned = device_find(WEIR_PINNED);
    void *at;
    cr_assert(pinned->host && !device_runs_ahead(pinned));
    cr_assert_eq(pinned->space_new("", 0, 2 * BENCH_BYTES, &at), WEIR_OK);
    float *host = at;
    host[0] = 42;
    bench_launch(b.queues[0], bench_copy, 0, host, bench_slot(&b, 0));
    bench_launch(b.queues[0], bench_copy, 0, bench_slot(&b, 0), host + BENCH_ITEMS);
    bench_finish(b.queues[0]);
    cr_expect_eq(host[BENCH_ITEMS], 42);
    pinned->space_free(at, 2 * BENCH_BYTES);
    bench_close(&b);
    cr_expect_null(device_find(WEIR_FAKE));
}

/* ---- marks ---- */

Test(fake_device, tells_when_it_ran)
{
    struct bench b = bench_open(&(fake_options){.seed = 5, .marks_max = 2}, 1);
    int64_t start, end, start_next, end_next;
    for (uint64_t i = 1; i <= 3; i++) {
        bench_launch(b.queues[0], bench_fill, i, NULL, bench_slot(&b, 0));
        bench_finish(b.queues[0]);
    }
    cr_assert(b.device->times(b.queues[0], 2, &start, &end));
    cr_assert(b.device->times(b.queues[0], 3, &start_next, &end_next));
    cr_expect(0 < start && start <= end && end <= start_next && start_next <= end_next);
    cr_expect_not(b.device->times(b.queues[0], 1, &start, &end), "it is too long ago");
    cr_expect_not(b.device->times(b.queues[0], 4, &start, &end), "it has not passed");
    bench_close(&b);
}

Test(fake_device, has_room_for_few_marks)
{
    struct bench b = bench_open(&(fake_options){.seed = 3, .held = true}, BENCH_QUEUES);
    for (int q = 0; q < BENCH_QUEUES; q++) {
        cr_expect(b.queues[q]->marks_max >= 2 && b.queues[q]->marks_max <= 16);
        cr_expect_eq(fake_room(b.queues[q]), b.queues[q]->marks_max);
        for (uint64_t i = b.queues[q]->marks_max; i > 0; i--)
            bench_mark(b.queues[q]);
        cr_expect_eq(fake_room(b.queues[q]), 0);
    }
    fake_go();
    for (int q = 0; q < BENCH_QUEUES; q++) {
        bench_wait(b.queues[q], b.queues[q]->marked);
        cr_expect_eq(fake_room(b.queues[q]), b.queues[q]->marks_max);
    }
    bench_close(&b);
}

/* ---- threads ---- */

/* One thread's queue writes a slot, another's copies it to pinned memory, where that one's host looks. They tell each
 * other of launches alone. */
struct pair {
    struct bench b;
    float *pinned;
    _Atomic uint64_t written, read; /* rounds that were launched */
};

static void *write_rounds(void *opaque)
{
    struct pair *p = opaque;
    struct device_queue *queue = p->b.queues[0], *other = p->b.queues[1];
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        while (atomic_load_explicit(&p->read, memory_order_acquire) < i - 1 || !fake_room(queue))
            sched_yield();
        if (i > 1)
            p->b.device->await(queue, other, i - 1);
        bench_launch(queue, bench_fill, i, NULL, bench_slot(&p->b, 0));
        p->b.device->mark(queue);
        atomic_store_explicit(&p->written, i, memory_order_release);
    }
    return NULL;
}

/* Returns the number of rounds in which it saw something else. */
static int read_rounds(struct pair *p)
{
    struct device_queue *other = p->b.queues[0], *queue = p->b.queues[1];
    int wrong = 0;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        while (atomic_load_explicit(&p->written, memory_order_acquire) < i || !fake_room(queue))
            sched_yield();
        p->b.device->await(queue, other, i);
        bench_launch(queue, bench_copy, 0, bench_slot(&p->b, 0), p->pinned);
        p->b.device->mark(queue);
        atomic_store_explicit(&p->read, i, memory_order_release);
        bench_wait(queue, i);
        wrong += p->pinned[0] != (float)i || p->pinned[BENCH_ITEMS - 1] != (float)i;
    }
    return wrong;
}

Test(fake_device, threads_have_queues_of_their_own)
{
    struct pair p = {.b = bench_open(&(fake_options){.seed = 8, .delay_us = 5}, 2)};
    pthread_t writer;
    void *pinned;
    cr_assert_eq(device_find(WEIR_PINNED)->space_new("", 0, BENCH_BYTES, &pinned), WEIR_OK);
    p.pinned = pinned;
    cr_assert_eq(pthread_create(&writer, NULL, write_rounds, &p), 0);
    cr_expect_eq(read_rounds(&p), 0);
    pthread_join(writer, NULL);
    device_find(WEIR_PINNED)->space_free(pinned, BENCH_BYTES);
    bench_close(&p.b);
}

/* ---- in plans ---- */

/* A value of the host's goes in, and the result comes out. */
Test(fake_device, has_a_place_in_plans_made_by_hand)
{
    sdf *s = sdf_new("ahead", 2);
    uint32_t host = sdf_device_of(s, WEIR_PINNED, 3, PLAN_COMPUTE), outside = sdf_queue(s, host, PLAN_OUTSIDE);
    uint32_t compute = sdf_device_of(s, WEIR_FAKE, 3, PLAN_COMPUTE);
    uint32_t in = sdf_queue(s, compute, PLAN_COPY_IN), out = sdf_queue(s, compute, PLAN_COPY_OUT);
    uint32_t give = sdf_actor(s, outside, "give", .fires = 2, .host_kind = 1 + PLAN_PUSH);
    uint32_t load = sdf_actor(s, in, "load", .fires = 2), work = sdf_actor(s, compute, "work", .fires = 2);
    uint32_t save = sdf_actor(s, out, "save", .fires = 2), take = sdf_actor(s, outside, "take", .fires = 2,
                                                                            .host_kind = 1 + PLAN_PULL);
    sdf_port(s, load, sdf_regst(s, give, .items = 4));
    sdf_port(s, work, sdf_regst(s, load, .items = 4, .slots = 2));
    sdf_port(s, save, sdf_regst(s, work, .items = 4));
    sdf_port(s, take, sdf_regst(s, save, .items = 4, .lies = 1 + host));
    weir_plan *plan = sdf_plan(s);
    const plan_space *pinned = &plan->spaces[0], *fake = &plan->spaces[1];
    cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    cr_expect(pinned->kind == WEIR_PINNED && !strcmp(plan_text(plan, pinned->name), "pinned:3"));
    cr_expect(fake->kind == WEIR_FAKE && fake->index == 3 && !strcmp(plan_text(plan, fake->name), "fake:3"));
    cr_expect(pinned->bytes == 2 * PLAN_ALIGN && fake->bytes == 3 * PLAN_ALIGN);
    cr_expect_str_eq(plan_text(plan, plan->queues[in].name), "copy in fake:3");
    cr_expect(plan->queues[out].kind == PLAN_COPY_OUT && plan->queues[out].space.i == 1);
    cr_expect_eq(plan->regsts[plan->actors[save].regsts.first].space.i, 0);
    weir_plan_free(plan);
}
