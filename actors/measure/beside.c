/* actors/measure/beside.c: threads that keep the other cores busy while something is measured on this one.
 *
 * They sleep but for an order, which says how many of them work, and at what. Each has a part of the sampler's stream for itself, so
 * that together they go through more memory than all caches hold.
 */
#include "actors/measure/measure.h"

#include "graph/base/error.h"
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

#include <sched.h>
#include <stdlib.h>

enum { ORDER_END = 3, ORDER_KINDS = 4, BIT_BYTES = 1 << 16, BIT_LOOPS = 400, BITS = 16, LANES = 64, LINE_BYTES = 64, RATE_ROUNDS = 7 };
#define RATE_NS 4000000
#define NS_S UINT64_C(1000000000)

typedef struct neighbour {
    struct beside *of;     /* borrowed */
    uint32_t number;       /* from 1 on: the measuring thread is 0 */
    pthread_t thread;
} neighbour;

struct beside {
    _Atomic uint32_t order; /* how many work, times ORDER_KINDS, and the kind */
    _Atomic uint32_t working;
    const sampler *sampler; /* borrowed */
    uint32_t count;
    neighbour neighbours[];
};

/* ---- work ---- */

/* Goes on through the part of one of the threads; bytes that it moved. With fewer threads parts are larger, so that caches do not hold
 * them. */
static uint64_t stream_on(const sampler *s, uint32_t number, uint32_t threads, uint64_t *cursor)
{
    const uint64_t part = s->part_bytes * s->parts / threads / BIT_BYTES * BIT_BYTES;
    volatile char *from = s->stream + part * number + *cursor;
    for (uint64_t i = 0; i < BIT_BYTES; i += LINE_BYTES)
        from[i]++;
    *cursor = *cursor + BIT_BYTES < part ? *cursor + BIT_BYTES : 0;
    return BIT_BYTES;
}

/* Products and sums, as many at once as the core can; how many they are. */
static uint64_t compute_on(void)
{
    float x[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = (float)i;
    for (int n = 0; n < BIT_LOOPS; n++)
        for (int i = 0; i < LANES; i++)
            x[i] = x[i] * 0.999F + 0.5F;
    volatile float kept = 0;
    for (int i = 0; i < LANES; i++)
        kept += x[i];
    return UINT64_C(2) * LANES * BIT_LOOPS;
}

static uint64_t work_on(const sampler *s, beside_kind kind, uint32_t number, uint32_t threads, uint64_t *cursor)
{
    return kind == BESIDE_STREAM ? stream_on(s, number, threads, cursor) : compute_on();
}

/* ---- threads ---- */

/* It gives way between its bits: at real-time priority a thread behind it on its core would else never run. */
static void obey(neighbour *n, uint32_t order)
{
    uint64_t cursor = 0;
    atomic_fetch_add(&n->of->working, 1);
    while (atomic_load(&n->of->order) == order) {
        for (int i = 0; i < BITS; i++)
            work_on(n->of->sampler, (beside_kind)(order % ORDER_KINDS), n->number, order / ORDER_KINDS + 1, &cursor);
        sched_yield();
    }
    atomic_fetch_sub(&n->of->working, 1);
}

static void *thread_main(void *argument)
{
    neighbour *n = argument;
    for (;;) {
        const uint32_t order = atomic_load(&n->of->order);
        if (order % ORDER_KINDS == ORDER_END)
            return NULL;
        if (n->number <= order / ORDER_KINDS)
            obey(n, order);
        else
            park_wait(&n->of->order, order, PARK_FOREVER);
    }
}

static void give_order(beside *b, uint32_t order)
{
    atomic_store(&b->order, order);
    park_wake(&b->order);
}

void beside_set(beside *b, beside_kind kind, uint32_t threads)
{
    if (!b || !b->count)
        return;
    const uint32_t count = kind == BESIDE_NOBODY ? 0 : threads < b->count ? threads : b->count;
    give_order(b, 0);
    while (atomic_load(&b->working))
        sched_yield();
    give_order(b, count * ORDER_KINDS + (uint32_t)kind);
    while (atomic_load(&b->working) < count)
        sched_yield();
}

void beside_free(beside *b)
{
    if (!b)
        return;
    give_order(b, ORDER_END);
    for (uint32_t i = 0; i < b->count; i++)
        pthread_join(b->neighbours[i].thread, NULL);
    free(b);
}

beside *beside_new(const sampler *s)
{
    const uint32_t wanted = (uint32_t)cores_count() - 1;
    beside *b = calloc(1, sizeof *b + wanted * sizeof *b->neighbours);
    if (!b)
        return NULL;
    b->sampler = s;
    for (; b->count < wanted; b->count++) {
        neighbour *n = &b->neighbours[b->count];
        *n = (neighbour){.of = b, .number = b->count + 1};
        if (!park_thread(&n->thread, "weir-beside", thread_main, n))
            break;
    }
    return b;
}

/* ---- rates ---- */

/* This thread's part; 0: it had to wait for a core. */
static uint64_t own_rate(const sampler *s, beside_kind kind, uint32_t threads, uint64_t *cursor)
{
    uint64_t done = 0;
    const uint64_t waited = sampler_waited(s);
    const int64_t start = park_now_ns();
    int64_t ns = 0;
    for (; ns < RATE_NS; ns = park_now_ns() - start)
        for (int i = 0; i < BITS; i++)
            done += work_on(s, kind, 0, threads, cursor);
    return sampler_waited(s) - waited < (uint64_t)ns / 500 ? done * NS_S / (uint64_t)ns : 0;
}

uint64_t beside_rate(beside *b, const sampler *s, beside_kind kind, uint32_t threads)
{
    uint64_t good[RATE_ROUNDS], cursor = 0;
    int count = 0;
    beside_set(b, kind, threads - 1);
    for (int tries = 0; count < RATE_ROUNDS && tries < 4 * RATE_ROUNDS; tries++) {
        good[count] = own_rate(s, kind, threads, &cursor);
        count += good[count] > 0;
    }
    beside_set(b, BESIDE_NOBODY, 0);
    return threads * sampler_median(good, count);
}
