/* actors/measure/card.c: the cost of an accelerator: launches, copies, and calls of its kernels, by its table alone (regst/device.h).
 *
 * Calls are enqueued as a session enqueues them, with a mark behind them, and nothing else is on the card. Where the device says when marks
 * passed by its own clock, a call takes what that says; else what the host's clock says, without the launch and the way back. A call is
 * warm after others like it, and cold after a copy to the card that is larger than its cache.
 */
#include "actors/measure/measure.h"

#include "graph/base/base.h"
#include "regst/plugin.h"
#include "transport/mail/park.h"

#include <stdlib.h>
#include <string.h>

enum { TIMES = 16, NS_PS = 1000, COPIES = 8, KIB = 1 << 10, MIB = 1 << 20 };
#define WARM_NS 200000 /* a sample of a warm call takes about so long */
#define WAIT_NS INT64_C(10000000000) /* a card that needs longer is given up */
#define HEALTH_NS 1000000

static const uint64_t copy_bytes[] = {64, 16 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB};
enum { COPY_SIZES = sizeof copy_bytes / sizeof *copy_bytes };

struct card {
    const struct device_ops *device, *host; /* the memory beside it */
    weir_device_kind kind;
    struct device_queue *queue[DEVICE_COPY_OUT + 1]; /* owned: compute, copies in, copies out */
    uint64_t l2;
    char *flush;           /* owned: on the card; twice its cache */
    char *flushed;         /* owned: so many bytes of the host's */
    uint64_t launch_ns, mark_ns, done_ns;
};

/* ---- life ---- */

static bool open_queues(card *c)
{
    bool ok = true;
    for (int q = DEVICE_COMPUTE; ok && q <= DEVICE_COPY_OUT; q++)
        ok = !c->device->queue_new(0, (enum device_queue_kind)q, &c->queue[q]);
    if (ok)
        c->queue[DEVICE_COMPUTE]->timed = true;
    return ok;
}

static bool open_flush(card *c)
{
    struct device_facts facts = {.bytes = 0};
    void *space = NULL;
    if (!c->device->describe || c->device->describe(0, &facts) || !facts.cache_bytes)
        return true;
    c->l2 = facts.cache_bytes;
    c->flushed = calloc(2, c->l2);
    const bool ok = c->flushed && !c->device->space_new(NULL, 0, 2 * c->l2, &space);
    c->flush = space;
    return ok;
}

card *card_new(weir_device_kind kind)
{
    uint32_t count = 0;
    if (plugin_need((uint32_t)kind) || plugin_need(WEIR_PINNED))
        return NULL;
    const struct device_ops *device = device_find((uint32_t)kind), *host = device_find(WEIR_PINNED);
    if (!device || !host || !device_runs_ahead(device) || (device->count && (device->count(&count) || !count)))
        return NULL;
    card *c = calloc(1, sizeof *c);
    if (c)
        *c = (card){.device = device, .host = host, .kind = kind};
    if (c && (device->queue_open(0) || !open_queues(c) || !open_flush(c))) {
        card_free(c);
        return NULL;
    }
    return c;
}

void card_free(card *c)
{
    for (int q = DEVICE_COMPUTE; c && q <= DEVICE_COPY_OUT; q++)
        if (c->queue[q])
            c->device->queue_free(c->queue[q]);
    if (c && c->flush)
        c->device->space_free(c->flush, 2 * c->l2);
    if (c)
        free(c->flushed);
    free(c);
}

/* ---- launches ---- */

static bool launch(const card *c, struct device_queue *queue, measured_call *m, int times)
{
    m->args.queue = queue->native;
    for (int i = 0; i < times; i++)
        if (c->device->launch ? c->device->launch(queue, m->call, &m->args) : m->call(&m->args))
            return false;
    return true;
}

/* Looks for the queue's newest mark. */
static bool wait_mark(const card *c, struct device_queue *queue)
{
    char error[256];
    const int64_t begin = park_now_ns();
    int64_t asked = begin;
    /* acquire: pairs with the device's order of writes */
    while (atomic_load_explicit(queue->done, memory_order_acquire) < queue->marked) {
        const int64_t now = park_now_ns();
        if (now - begin > WAIT_NS || (now - asked > HEALTH_NS && c->device->health(queue, error, sizeof error)))
            return false;
        asked = now - asked > HEALTH_NS ? now : asked;
    }
    return true;
}

static bool mark_and_wait(const card *c, struct device_queue *queue)
{
    return !c->device->mark(queue) && wait_mark(c, queue);
}

static uint64_t less(uint64_t from, uint64_t by)
{
    return from > by ? from - by : 0;
}

/* One sample of a call's nanoseconds: of so many in a row. */
static bool sample(const card *c, struct device_queue *queue, measured_call *m, int times, uint64_t *ns)
{
    int64_t start, end;
    const int64_t begin = park_now_ns();
    if (!launch(c, queue, m, times) || !mark_and_wait(c, queue))
        return false;
    const uint64_t all = (uint64_t)(park_now_ns() - begin);
    const bool timed = queue->timed && c->device->times && c->device->times(queue, queue->marked, &start, &end) && end >= start;
    *ns = (timed ? (uint64_t)(end - start) : less(all, c->launch_ns + c->mark_ns + c->done_ns)) / (uint64_t)times;
    return true;
}

/* The median of some samples. `cold`: something else is in the cache before each. */
static bool median(const card *c, struct device_queue *queue, measured_call *m, int times, bool cold, uint64_t *ns)
{
    uint64_t values[SAMPLES];
    bool ok = true;
    for (int i = 0; ok && i < SAMPLES; i++) {
        ok = !cold || !c->flush || !c->device->copy_in(c->flush, c->flushed, 2 * c->l2);
        ok = ok && sample(c, queue, m, times, &values[i]);
    }
    *ns = ok ? sampler_median(values, SAMPLES) : 0;
    return ok;
}

/* ---- calls ---- */

static weir_kernel_fn kernel_of(const card *c, const weir_plan *plan, uint32_t kernel)
{
    const weir_op *op = weir_op_find(plan_text(plan, plan->kernels[kernel].op));
    return !op ? NULL : c->device->kernel ? c->device->kernel(op) : op_kernel(op, c->kind);
}

static void close_call(const card *c, measured_call *m)
{
    if (m->block)
        c->device->space_free(m->block, m->bytes);
    measured_call_close(m);
}

static bool open_call(const card *c, const weir_plan *plan, uint32_t kernel, measured_call *m)
{
    void *space = NULL;
    if (!measured_call_open(m, plan, kernel))
        return false;
    m->call = kernel_of(c, plan, kernel);
    m->bytes += !m->bytes;
    if (!m->call || c->device->space_new(NULL, 0, m->bytes, &space))
        return false;
    measured_call_set(m, space);
    if (c->device->prepare && c->device->prepare(c->queue[DEVICE_COMPUTE], m->call, &m->args))
        return false;
    const uint64_t bytes = m->bytes - m->kernel->workspace_bytes;
    return !bytes || !c->device->copy_in(space, m->image, bytes);
}

static bool measure_places(const card *c, measured_call *m, time_call *to)
{
    struct device_queue *queue = c->queue[DEVICE_COMPUTE];
    uint64_t one, warm, cold;
    const bool ran = sample(c, queue, m, 1, &one); /* the first one may take longer */
    if (!ran || !sample(c, queue, m, 1, &one))
        return false;
    const int times = one * TIMES > WARM_NS ? 1 + (int)(WARM_NS / (one + 1)) : TIMES;
    if (!median(c, queue, m, times, false, &warm) || !median(c, queue, m, 1, true, &cold))
        return false;
    cold = cold > warm ? cold : warm;
    to->ps[TIME_WARM] = to->ps[TIME_NEAR] = to->core = warm * NS_PS;
    to->ps[TIME_FAR] = to->band = cold * NS_PS;
    to->samples = (uint64_t)2 * SAMPLES;
    return true;
}

bool card_measure_call(card *c, const weir_plan *plan, uint32_t kernel, time_call *to)
{
    measured_call *m = calloc(1, sizeof *m);
    const bool ok = m && open_call(c, plan, kernel, m) && measure_places(c, m, to);
    if (m)
        close_call(c, m);
    free(m);
    return ok;
}

/* ---- launches and marks ---- */

/* The host's time for a launch, a mark, and to hear of it. */
static bool measure_launch(card *c, measured_call *m)
{
    struct device_queue *queue = c->queue[DEVICE_COMPUTE];
    uint64_t launches[SAMPLES], marks[SAMPLES], dones[SAMPLES];
    bool ok = mark_and_wait(c, queue);
    for (int i = 0; ok && i < SAMPLES; i++) {
        const int64_t begin = park_now_ns();
        ok = launch(c, queue, m, TIMES);
        launches[i] = (uint64_t)(park_now_ns() - begin) / TIMES;
        ok = ok && mark_and_wait(c, queue);
        const int64_t marked = park_now_ns();
        ok = ok && !c->device->mark(queue);
        const int64_t waits = park_now_ns();
        ok = ok && wait_mark(c, queue);
        marks[i] = (uint64_t)(waits - marked);
        dones[i] = (uint64_t)(park_now_ns() - waits);
    }
    if (!ok)
        return false;
    c->launch_ns = sampler_median(launches, SAMPLES);
    c->mark_ns = sampler_median(marks, SAMPLES);
    c->done_ns = sampler_median(dones, SAMPLES);
    return true;
}

/* ---- copies ---- */

/* A copy of so many bytes, between memory of the card and of the host. */
static void set_copy(measured_call *m, weir_view *in, weir_view *out, uint64_t bytes)
{
    in->dtype = out->dtype = WEIR_F32;
    in->shape = out->shape = (weir_shape){.rank = 1, .dim = {(int64_t)(bytes / sizeof(float))}};
    m->args = (weir_kernel_args){.in = in, .in_count = 1, .out = out, .out_count = 1, .error = m->error, .error_bytes = sizeof m->error};
}

static bool measure_way(const card *c, time_way way, void *here, void *there, time_copy *to)
{
    struct device_queue *queue = c->queue[way == TIME_IN ? DEVICE_COPY_IN : DEVICE_COPY_OUT];
    const weir_op *op = weir_op_find("copy");
    measured_call m = {.call = !op ? NULL : c->device->kernel ? c->device->kernel(op) : op_kernel(op, c->kind)};
    bool ok = m.call;
    *to = (time_copy){.once.count = 0};
    for (int i = 0; ok && i < COPY_SIZES; i++) {
        uint64_t once = 0, stream = 0;
        weir_view in = {.data = way == TIME_IN ? here : there}, out = {.data = way == TIME_IN ? there : here};
        set_copy(&m, &in, &out, copy_bytes[i]);
        ok = median(c, queue, &m, 1, false, &once) && median(c, queue, &m, COPIES, false, &stream);
        stream = stream < once ? stream : once;
        ok = ok && curve_add(&to->once, copy_bytes[i], once * NS_PS) && curve_add(&to->stream, copy_bytes[i], stream * NS_PS);
    }
    return ok;
}

static bool measure_copies(const card *c, time_card *to)
{
    const uint64_t bytes = copy_bytes[COPY_SIZES - 1];
    void *here = NULL, *there = NULL;
    bool ok = !c->host->space_new(NULL, 0, bytes, &here) && !c->device->space_new(NULL, 0, bytes, &there);
    for (int way = 0; ok && way < TIME_WAYS; way++)
        ok = measure_way(c, (time_way)way, here, there, &to->copy[way]);
    if (there)
        c->device->space_free(there, bytes);
    if (here)
        c->host->space_free(here, bytes);
    return ok;
}

bool card_measure(card *c, const weir_plan *plan, uint32_t kernel, time_card *to)
{
    measured_call *m = calloc(1, sizeof *m);
    const bool ok = m && open_call(c, plan, kernel, m) && measure_launch(c, m) && measure_copies(c, to);
    if (ok) {
        to->launch = c->launch_ns * NS_PS;
        to->mark = (c->mark_ns + !c->mark_ns) * NS_PS;
        to->done = c->done_ns * NS_PS;
        to->l2 = c->l2;
    }
    if (m)
        close_call(c, m);
    free(m);
    return ok;
}
