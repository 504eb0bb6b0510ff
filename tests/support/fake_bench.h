/* tests/support/fake_bench.h: for suites that drive the fake accelerator's queues by hand: a device with a space
 * of BENCH_SLOTS vectors and some queues, kernels, and calls of them.
 *
 *     struct bench b = bench_open(&(fake_options){.seed = 1}, 2);
 *     bench_launch(b.queues[0], bench_fill, 7, NULL, bench_slot(&b, 0));      slot 0 is all 7
 *     b.device->await(b.queues[1], b.queues[0], bench_mark(b.queues[0]));
 *     bench_launch(b.queues[1], bench_copy, 0, bench_slot(&b, 0), bench_slot(&b, 1));
 *     bench_finish(b.queues[1]);
 *     bench_close(&b);
 *
 * Queue 0 is of kind compute, the others copy in; all are of fake:0.
 */
#ifndef TESTS_SUPPORT_FAKE_BENCH_H
#define TESTS_SUPPORT_FAKE_BENCH_H

#include "tests/support/fake.h"

enum {
    BENCH_ITEMS = 32,
    BENCH_BYTES = BENCH_ITEMS * sizeof(float),
    BENCH_SLOTS = 16,
    BENCH_SPACE_BYTES = BENCH_SLOTS * BENCH_BYTES,
    BENCH_QUEUES = 4
};

struct bench {
    const struct device_ops *device;
    float *space; /* not for the host */
    struct device_queue *queues[BENCH_QUEUES];
    int queue_count;
};

/* Also opens and closes the fake; bench_close() fails the test on misuse and races, bench_free() leaves it open. */
struct bench bench_open(const fake_options *options, int queue_count);
void bench_free(struct bench *b);
void bench_close(struct bench *b);

float *bench_slot(const struct bench *b, int i);
weir_view bench_view(float *data);
/* The first value of a slot, read by the host; when nothing runs. */
float bench_first(const float *slot);

/* out[0] is all `key`; out[0] is in[0]. */
weir_status bench_fill(const weir_kernel_args *args);
weir_status bench_copy(const weir_kernel_args *args);

/* Calls a kernel with one input and one output, or none of them (NULL); all that the call was given is overwritten
 * when it returns. */
weir_status bench_launch(struct device_queue *queue, weir_kernel_fn call, uint64_t key, float *in, float *out);

/* Enqueues a mark, for which there is room, and returns its ticket. */
uint64_t bench_mark(struct device_queue *queue);
uint64_t bench_done(const struct device_queue *queue);
/* When the mark of `other` is put, which it will be. */
void bench_await(struct device_queue *queue, struct device_queue *other, uint64_t ticket);
void bench_wait(const struct device_queue *queue, uint64_t ticket);
/* Both. */
void bench_finish(struct device_queue *queue);

#endif
