/* tests/support/fake_bench.c: see the header. */
#include "tests/support/fake_bench.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

struct bench bench_open(const fake_options *options, int queue_count)
{
    struct bench b = {.queue_count = queue_count};
    void *space;
    fake_open(options);
    b.device = device_find(WEIR_FAKE);
    cr_assert_not_null(b.device);
    cr_assert(device_runs_ahead(b.device) && !b.device->host);
    cr_assert_eq(b.device->space_new("", 0, BENCH_SPACE_BYTES, &space), WEIR_OK);
    b.space = space;
    for (int q = 0; q < queue_count; q++)
        cr_assert_eq(b.device->queue_new(0, q ? DEVICE_COPY_IN : DEVICE_COMPUTE, &b.queues[q]), WEIR_OK);
    return b;
}

void bench_free(struct bench *b)
{
    for (int q = 0; q < b->queue_count; q++)
        b->device->queue_free(b->queues[q]);
    b->device->space_free(b->space, BENCH_SPACE_BYTES);
}

void bench_close(struct bench *b)
{
    bench_free(b);
    fake_close_well();
}

float *bench_slot(const struct bench *b, int i)
{
    return (float *)((uintptr_t)b->space + (uintptr_t)i * BENCH_BYTES);
}

float bench_first(const float *slot)
{
    float value;
    memcpy(&value, fake_reach(slot), sizeof value);
    return value;
}

weir_view bench_view(float *data)
{
    return (weir_view){.data = data, .dtype = WEIR_F32, .shape = {.rank = 1, .dim = {BENCH_ITEMS}},
                       .global = {.rank = 1, .dim = {BENCH_ITEMS}}};
}

weir_status bench_fill(const weir_kernel_args *args)
{
    float *out = args->out[0].data;
    for (int i = 0; i < BENCH_ITEMS; i++)
        out[i] = (float)args->key;
    return WEIR_OK;
}

weir_status bench_copy(const weir_kernel_args *args)
{
    memmove(args->out[0].data, args->in[0].data, BENCH_BYTES);
    return WEIR_OK;
}

weir_status bench_launch(struct device_queue *queue, weir_kernel_fn call, uint64_t key, float *in, float *out)
{
    weir_view from = bench_view(in), to = bench_view(out);
    weir_kernel_args args = {.in = &from, .in_count = in != NULL, .out = &to, .out_count = out != NULL, .key = key};
    weir_status status = queue->device->launch(queue, call, &args);
    explicit_bzero(&from, sizeof from); /* all that it was given is the caller's again */
    explicit_bzero(&to, sizeof to);
    explicit_bzero(&args, sizeof args);
    return status;
}

uint64_t bench_mark(struct device_queue *queue)
{
    uint64_t before = queue->marked;
    cr_assert_gt(fake_room(queue), 0);
    cr_assert_eq(queue->device->mark(queue), WEIR_OK);
    cr_assert_eq(queue->marked, before + 1);
    return queue->marked;
}

uint64_t bench_done(const struct device_queue *queue)
{
    return atomic_load_explicit(queue->done, memory_order_acquire);
}

void bench_wait(const struct device_queue *queue, uint64_t ticket)
{
    while (bench_done(queue) < ticket)
        sched_yield();
}

void bench_await(struct device_queue *queue, struct device_queue *other, uint64_t ticket)
{
    while (other->put && atomic_load_explicit(other->put, memory_order_acquire) < ticket)
        sched_yield();
    cr_assert_eq(queue->device->await(queue, other, ticket), WEIR_OK, "%s", weir_error());
}

void bench_finish(struct device_queue *queue)
{
    bench_wait(queue, bench_mark(queue));
}
