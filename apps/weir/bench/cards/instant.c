/* apps/weir/bench/cards/instant.c: a mark is one store. See the header. */
#include "apps/weir/bench/cards/instant.h"

#include <stdlib.h>

#include "graph/base/error.h"
#include "regst/device.h"

#define MARKS_MAX 256

struct instant {
    struct device_queue queue;
    _Atomic uint64_t done;
};

static weir_status instant_new(uint32_t index, enum device_queue_kind kind, struct device_queue **queue)
{
    struct instant *instant = calloc(1, sizeof(*instant));
    if (!instant)
        return error_set(WEIR_E_MEMORY, "no memory for a queue");
    instant->queue = (struct device_queue){.device = device_find(WEIR_FAKE),
                                           .index = index,
                                           .kind = kind,
                                           .done = &instant->done,
                                           .marks_max = MARKS_MAX};
    *queue = &instant->queue;
    return WEIR_OK;
}

static void instant_free(struct device_queue *queue)
{
    free(queue);
}

static weir_kernel_fn instant_kernel(const weir_op *op)
{
    return op->kernel[WEIR_CPU];
}

static weir_status instant_mark(struct device_queue *queue)
{
    struct instant *instant = (struct instant *)queue;
    /* release: as a device's writes are ordered */
    atomic_store_explicit(&instant->done, ++queue->marked, memory_order_release);
    return WEIR_OK;
}

static weir_status instant_await(struct device_queue *queue, struct device_queue *other, uint64_t ticket)
{
    (void)queue, (void)other, (void)ticket;
    return WEIR_OK;
}

static void instant_abort(struct device_queue *queue)
{
    (void)queue;
}

void bench_instant(void)
{
    static struct device_ops instant;
    instant = device_cpu;
    instant.name = "instant";
    instant.queue_new = instant_new;
    instant.queue_free = instant_free;
    instant.kernel = instant_kernel;
    instant.mark = instant_mark;
    instant.await = instant_await;
    instant.abort = instant_abort;
    device_register(WEIR_FAKE, &instant);
}
