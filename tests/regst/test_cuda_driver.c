/* tests/regst/test_cuda_driver.c: the driver of CUDA devices (regst/cuda) keeps what regst/device.h says of a kind
 * that runs ahead, on the stand-in for CUDA's runtime, which runs streams in any order that is allowed. */
#include "regst/plugin.h"
#include "tests/support/card.h"
#include "tests/support/effort.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(cuda_driver, .timeout = 120);

enum { ITEMS = 64, BYTES = ITEMS * sizeof(float), SLOTS = 16, SEEDS = EFFORT(12, 4, 4), DEVICES = 8 };

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

/* Devices, each with a space of SLOTS vectors and queues of some kinds. */
struct rig {
    const struct device_ops *device;
    uint32_t devices, queues;
    void *space[DEVICES];
    struct device_queue *queue[DEVICES][2];
    struct device_group *group[DEVICES];
};

static struct rig rig_open(const standin_options *options, uint32_t devices, enum device_queue_kind first,
                           enum device_queue_kind second)
{
    struct rig r = {.devices = devices, .queues = 2};
    const enum device_queue_kind kinds[] = {first, second};
    card_open(options);
    assert_ok(plugin_need(WEIR_CUDA));
    r.device = device_find(WEIR_CUDA);
    cr_assert(r.device && device_runs_ahead(r.device));
    for (uint32_t d = 0; d < devices; d++) {
        assert_ok(r.device->queue_open(d));
        assert_ok(r.device->space_new("", d, SLOTS * BYTES, &r.space[d]));
        for (uint32_t q = 0; q < r.queues; q++)
            assert_ok(r.device->queue_new(d, kinds[q], &r.queue[d][q]));
    }
    return r;
}

static void rig_close(struct rig *r)
{
    for (uint32_t d = 0; d < r->devices; d++) {
        if (r->group[d])
            r->device->group_free(r->group[d]);
        for (uint32_t q = 0; q < r->queues; q++)
            r->device->queue_free(r->queue[d][q]);
        r->device->space_free(r->space[d], SLOTS * BYTES);
    }
    card_close();
}

static float *slot(const struct rig *r, uint32_t device, uint32_t i)
{
    return (float *)r->space[device] + i * ITEMS;
}

static void put(const struct rig *r, uint32_t device, uint32_t i, float value)
{
    float host[ITEMS];
    for (int k = 0; k < ITEMS; k++)
        host[k] = value + (float)k;
    assert_ok(r->device->copy_in(slot(r, device, i), host, BYTES));
}

static float get(const struct rig *r, uint32_t device, uint32_t i)
{
    float host[ITEMS];
    assert_ok(r->device->copy_out(host, slot(r, device, i), BYTES));
    for (int k = 1; k < ITEMS; k++)
        cr_assert_eq(host[k], host[0] + (float)k);
    return host[0];
}

static weir_view view_of(void *data)
{
    return (weir_view){.data = data, .dtype = WEIR_F32, .shape = {.rank = 1, .dim = {ITEMS}}};
}

static uint64_t marked(struct device_queue *queue)
{
    while (queue->marked - atomic_load_explicit(queue->done, memory_order_acquire) >= queue->marks_max)
        sched_yield();
    assert_ok(queue->device->mark(queue));
    return queue->marked;
}

static void finish(struct device_queue *queue)
{
    uint64_t ticket = marked(queue);
    while (atomic_load_explicit(queue->done, memory_order_acquire) < ticket)
        sched_yield();
}

/* ---- kernels of the suite's ---- */

struct add {
    const float *from;
    float *to;
    float by;
    const weir_clock *clock;
    weir_clock *seen;
};

static void run_add(void *data)
{
    struct add *add = data;
    for (int i = 0; i < ITEMS; i++)
        add->to[i] = add->from[i] + add->by;
    if (add->seen)
        *add->seen = *add->clock;
    free(add);
}

/* out = in + key */
static weir_status add_kernel(const weir_kernel_args *args)
{
    struct add *add = malloc(sizeof *add);
    *add = (struct add){args->in[0].data, args->out[0].data, (float)args->key, args->clock, args->host};
    card_launch(args->queue, run_add, add);
    return WEIR_OK;
}

static weir_status try_add(struct device_queue *queue, float *from, float *to, uint64_t key)
{
    weir_view in = view_of(from), out = view_of(to);
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1, .key = key};
    return queue->device->launch(queue, add_kernel, &args);
}

static void launch_add(struct device_queue *queue, float *from, float *to, uint64_t key)
{
    assert_ok(try_add(queue, from, to, key));
}

/* ---- memory ---- */

Test(cuda_driver, memory_is_zeroed_and_copied)
{
    struct rig r = rig_open(NULL, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    char bytes[SLOTS * BYTES];
    memset(bytes, 1, sizeof bytes);
    assert_ok(r.device->copy_out(bytes, r.space[0], sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        cr_assert_eq(bytes[i], 0);
    put(&r, 0, 3, 7);
    cr_expect_eq(get(&r, 0, 3), 7);
    rig_close(&r);
}

Test(cuda_driver, pinned_memory_is_the_driver_s_and_what_is_shared_is_made_known_to_it)
{
    struct rig r = rig_open(NULL, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    const struct device_ops *pinned = device_find(WEIR_PINNED);
    uint64_t before = card_look().pinned;
    char shared[512];
    void *space;
    cr_assert(pinned->host && pinned->space_adopt);
    assert_ok(pinned->space_new("", 0, 100, &space));
    cr_expect_eq(card_look().pinned, before + 1);
    for (int i = 0; i < 100; i++)
        cr_expect_eq(((char *)space)[i], 0);
    assert_ok(pinned->space_adopt(shared, sizeof shared));
    cr_expect_eq(card_look().registered, 1);
    pinned->space_leave(shared, sizeof shared);
    pinned->space_free(space, 100);
    rig_close(&r);
}

Test(cuda_driver, too_little_memory_is_told_in_figures)
{
    card_open(&(standin_options){.bytes = 3000000000});
    assert_ok(plugin_need(WEIR_CUDA));
    const struct device_ops *device = device_find(WEIR_CUDA);
    void *space = NULL;
    cr_assert_eq(device->space_new("", 0, 3200000000, &space), WEIR_E_MEMORY);
    cr_expect_str_eq(weir_error(), "cuda:0: cudaMalloc of 3.2 GB: out of memory (3.0 GB free of 3.0 GB)");
    card_close();
}

/* ---- queues ---- */

static void goes_there_and_back(standin_options options)
{
    struct rig r = rig_open(&options, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    struct device_queue *a = r.queue[0][0], *b = r.queue[0][1];
    put(&r, 0, 0, 5);
    float *one = slot(&r, 0, 0), *two = slot(&r, 0, 1);
    int rounds = 3 * (int)a->marks_max; /* the rings go round */
    for (int i = 0; i < rounds; i++) {
        launch_add(a, one, two, 1);
        assert_ok(b->device->await(b, a, marked(a)));
        launch_add(b, two, one, 2);
        assert_ok(a->device->await(a, b, marked(b)));
    }
    finish(a);
    cr_expect_eq(get(&r, 0, 0), 5 + 3.0f * (float)rounds);
    rig_close(&r);
}

Test(cuda_driver, what_follows_an_await_sees_what_was_before_the_mark)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        goes_there_and_back((standin_options){.seed = seed});
}

Test(cuda_driver, marks_are_copied_where_streams_cannot_write)
{
    goes_there_and_back((standin_options){.seed = 5, .no_write_value = true});
}

/* `other` is at work in another thread meanwhile, and its ring goes round: an await of an old mark awaits nothing
 * newer. */
struct worker {
    struct device_queue *queue;
    float *at;
    _Atomic uint64_t *newest;
    _Atomic bool *end;
};

static void *work(void *data)
{
    const struct worker *w = data;
    while (!atomic_load_explicit(w->end, memory_order_relaxed)) {
        launch_add(w->queue, w->at, w->at, 1);
        /* release: pairs with the other thread's load */
        atomic_store_explicit(w->newest, marked(w->queue), memory_order_release);
    }
    return NULL;
}

Test(cuda_driver, another_thread_s_queue_is_awaited_while_it_goes_on)
{
    struct rig r = rig_open(&(standin_options){.seed = 2}, 1, DEVICE_COMPUTE, DEVICE_COPY_OUT);
    _Atomic uint64_t newest = 0;
    _Atomic bool end = false;
    struct worker w = {r.queue[0][1], slot(&r, 0, 4), &newest, &end};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, work, &w), 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t ticket = atomic_load_explicit(&newest, memory_order_acquire);
        if (ticket)
            assert_ok(r.device->await(r.queue[0][0], r.queue[0][1], 1 + ticket * (uint64_t)(i % 4) / 4));
        launch_add(r.queue[0][0], slot(&r, 0, 0), slot(&r, 0, 0), 1);
        marked(r.queue[0][0]);
    }
    atomic_store_explicit(&end, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    finish(r.queue[0][0]);
    finish(r.queue[0][1]);
    cr_expect_eq(((float *)slot(&r, 0, 0))[0], 1000);
    rig_close(&r);
}

Test(cuda_driver, kernels_read_the_clock_of_their_call)
{
    struct rig r = rig_open(&(standin_options){.seed = 4}, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    weir_clock seen[60];
    for (int i = 0; i < 60; i++) {
        weir_view view = view_of(slot(&r, 0, (uint32_t)i % SLOTS));
        weir_kernel_args args = {.in = &view, .in_count = 1, .out = &view, .out_count = 1, .host = &seen[i],
                                 .firing = i / 3, .step = i / 6, .micro = i / 3 % 2};
        assert_ok(r.device->launch(r.queue[0][0], add_kernel, &args));
    }
    finish(r.queue[0][0]);
    for (int i = 0; i < 60; i++)
        cr_expect(seen[i].firing == i / 3 && seen[i].step == i / 6 && seen[i].micro == i / 3 % 2, "%d", i);
    cr_expect_eq(card_look().kernels, 60 + 20, "the clock is set when it changes");
    rig_close(&r);
}

Test(cuda_driver, times_are_known_where_they_are_asked_for)
{
    struct rig r = rig_open(NULL, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    int64_t start = 0, end = 0, last = 0;
    struct device_queue *queue = r.queue[0][0];
    launch_add(queue, slot(&r, 0, 0), slot(&r, 0, 1), 1);
    finish(queue);
    cr_expect(!r.device->times(queue, 1, &start, &end));
    queue->timed = true;
    for (int i = 0; i < 4; i++) {
        launch_add(queue, slot(&r, 0, 0), slot(&r, 0, 1), 1);
        finish(queue);
        cr_assert(r.device->times(queue, queue->marked, &start, &end));
        cr_expect(start >= last - 1000 && end >= start, "they come one behind the other");
        last = end;
    }
    rig_close(&r);
}

/* 1,000 seconds, in which each launch has two events. */
Test(cuda_driver, times_are_exact_long_after_the_start)
{
    enum { LAUNCHES = 36000, RECORD_NS = 14000000 };
    struct rig r = rig_open(&(standin_options){.record_ns = RECORD_NS}, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    struct device_queue *queue = r.queue[0][0];
    int64_t start = 0, end = 0, again = 0, first = 0, clock = 0;
    queue->timed = true;
    for (int i = 0; i < LAUNCHES; i++) {
        launch_add(queue, slot(&r, 0, 0), slot(&r, 0, 1), 1);
        finish(queue);
        cr_assert(r.device->times(queue, queue->marked, &start, &end));
        cr_assert(r.device->times(queue, queue->marked, &again, &end) && again == start, "asked once more");
        clock = card_look().clock_ns;
        first = i ? first : end - clock;
    }
    cr_expect_gt(clock, INT64_C(1000000000000));
    cr_expect(llabs(end - clock - first) < 2000, "off by %ld ns", (long)(end - clock - first));
    rig_close(&r);
}

/* ---- kernels are loaded ---- */

Test(cuda_driver, all_kernels_are_loaded_with_the_first_queue_of_a_card)
{
    struct device_queue *queue[3];
    card_open(&(standin_options){.cards = 2});
    assert_ok(plugin_need(WEIR_CUDA));
    const struct device_ops *device = device_find(WEIR_CUDA);
    cr_expect_eq(card_look().loaded, 0);
    card_set(&(standin_options){.cards = 2, .fail_call = 100});
    cr_expect_eq(device->queue_new(0, DEVICE_COMPUTE, &queue[0]), WEIR_E_KERNEL);
    cr_expect_str_eq(weir_error(), "cuda:0: cudaFuncGetAttributes: unknown error");
    cr_expect_null(card_left());
    assert_ok(device->queue_new(0, DEVICE_COMPUTE, &queue[0]));
    uint64_t all = card_look().loaded;
    cr_expect_gt(all, 300, "%d kernels", (int)all);
    assert_ok(device->queue_new(0, DEVICE_COPY_IN, &queue[1]));
    cr_expect_eq(card_look().loaded, all, "once");
    assert_ok(device->queue_new(1, DEVICE_COMPUTE, &queue[2]));
    cr_expect_eq(card_look().loaded, 2 * all, "and on each card");
    for (int q = 0; q < 3; q++)
        device->queue_free(queue[q]);
    card_close();
}

/* ---- health ---- */

Test(cuda_driver, a_fault_of_the_device_is_told_and_nothing_passes)
{
    struct rig r = rig_open(NULL, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    struct device_queue *queue = r.queue[0][0];
    char error[200] = "";
    cr_expect_eq(r.device->health(queue, error, sizeof error), WEIR_OK);
    card_set(&(standin_options){.fail_run = 2});
    /* what is called behind the fault may tell of it, too */
    if (!try_add(queue, slot(&r, 0, 0), slot(&r, 0, 1), 1) && !r.device->mark(queue))
        while (!r.device->health(queue, error, sizeof error))
            sched_yield();
    cr_expect_eq(r.device->health(queue, error, sizeof error), WEIR_E_KERNEL);
    cr_expect_str_eq(error, "cuda:0: an illegal memory access was encountered (cudaErrorIllegalAddress)");
    cr_expect_eq(r.device->mark(queue), WEIR_E_KERNEL);
    cr_expect(strstr(weir_error(), "an illegal memory access"), "%s", weir_error());
    r.device->abort(queue);
    rig_close(&r);
}

Test(cuda_driver, an_aborted_queue_takes_nothing_more)
{
    struct rig r = rig_open(NULL, 1, DEVICE_COMPUTE, DEVICE_COPY_IN);
    launch_add(r.queue[0][0], slot(&r, 0, 0), slot(&r, 0, 1), 1);
    r.device->abort(r.queue[0][0]);
    cr_expect_eq(r.device->mark(r.queue[0][0]), WEIR_E_STATE);
    rig_close(&r);
}

/* ---- together ---- */

static void join_all(struct rig *r)
{
    const struct device_group_id id = {.session = 3, .number = 1};
    for (uint32_t d = 0; d < r->devices; d++)
        assert_ok(r->device->group_new(r->queue[d][0], &id, d, r->devices, r->devices, &r->group[d]));
}

/* Each gives slot `give` to the next, and takes slot `take` from the one before. */
static void pass_on(struct rig *r, uint32_t d, uint32_t number, uint32_t give, uint32_t take)
{
    static const struct device_move peers[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
    weir_view in = view_of(slot(r, d, give)), out = view_of(slot(r, d, take));
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1};
    struct device_meeting meeting = {.group = r->group[d], .number = number, .gives = &peers[(d + 1) % r->devices],
                                     .give_count = 1, .takes = &peers[(d + r->devices - 1) % r->devices], .take_count = 1};
    assert_ok(r->device->meet(r->queue[d][0], &meeting, &args));
}

static void goes_round(const standin_options *options)
{
    struct rig r = rig_open(options, 3, DEVICE_COLLECTIVE, DEVICE_COMPUTE);
    join_all(&r);
    for (uint32_t d = 0; d < 3; d++)
        put(&r, d, 0, (float)(100 * d));
    for (uint32_t d = 0; d < 3; d++) { /* a host may enqueue all of one member's before another's first */
        uint32_t member = (d + (uint32_t)options->seed) % 3;
        for (uint32_t i = 0; i < 6; i++) {
            launch_add(r.queue[member][1], slot(&r, member, 0), slot(&r, member, 8 + i), i);
            assert_ok(r.device->await(r.queue[member][0], r.queue[member][1], marked(r.queue[member][1])));
            pass_on(&r, member, i, 8 + i, i + 1);
            uint64_t ticket = marked(r.queue[member][0]);
            if (d == 2)
                while (atomic_load_explicit(r.queue[member][0]->done, memory_order_acquire) < ticket)
                    sched_yield();
        }
    }
    for (uint32_t d = 0; d < 3; d++)
        finish(r.queue[d][0]);
    for (uint32_t d = 0; d < 3; d++)
        finish(r.queue[d][1]);
    for (uint32_t d = 0; d < 3; d++)
        for (uint32_t i = 0; i < 6; i++)
            cr_expect_eq(get(&r, d, i + 1), (float)(100 * ((d + 2) % 3) + i), "%u of member %u", i, d);
    rig_close(&r);
}

Test(cuda_driver, values_go_round_a_ring)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        goes_round(&(standin_options){.seed = seed, .cards = 3});
}

Test(cuda_driver, values_go_round_on_one_card)
{
    setenv("WEIR_CUDA_LOGICAL", "4", 1);
    goes_round(&(standin_options){.seed = 3});
}

enum { SUMS = 2 };

/* Item i of what member d gives to sum `k`. */
static float term(int k, uint32_t d, int i)
{
    static const float values[] = {1e8f, 1.25f, -1e8f, 3.5f};
    return values[(d + (uint32_t)i) % 4] * (float)(1 + (i + k) % 3);
}

static void give_terms(struct rig *r)
{
    float host[ITEMS];
    for (uint32_t d = 0; d < 4; d++)
        for (int k = 0; k < SUMS; k++) {
            for (int i = 0; i < ITEMS; i++)
                host[i] = term(k, d, i);
            assert_ok(r->device->copy_in(slot(r, d, 2 * k), host, BYTES));
        }
}

static void add_at(struct rig *r, uint32_t d, enum device_collective kind, int items)
{
    weir_view in[SUMS], out[SUMS];
    for (int k = 0; k < SUMS; k++) {
        in[k] = view_of(slot(r, d, 2 * k));
        out[k] = view_of(slot(r, d, 2 * k + 1));
        out[k].shape.dim[0] = items;
    }
    weir_kernel_args args = {.in = in, .in_count = SUMS, .out = out, .out_count = SUMS};
    struct device_meeting meeting = {.group = r->group[d], .number = 5, .kind = kind};
    assert_ok(r->device->meet(r->queue[d][0], &meeting, &args));
    assert_ok(r->device->mark(r->queue[d][0]));
}

static void adds(uint64_t seed, enum device_collective kind)
{
    struct rig r = rig_open(&(standin_options){.seed = seed, .cards = 4}, 4, DEVICE_COLLECTIVE, DEVICE_COMPUTE);
    int items = kind == DEVICE_REDUCE_SCATTER ? ITEMS / 4 : ITEMS;
    join_all(&r);
    give_terms(&r);
    for (uint32_t k = 0; k < 4; k++)
        add_at(&r, (k + (uint32_t)seed) % 4, kind, items);
    for (uint32_t d = 0; d < 4; d++)
        while (!atomic_load_explicit(r.queue[d][0]->done, memory_order_acquire))
            sched_yield();
    for (uint32_t d = 0; d < 4; d++)
        for (int k = 0; k < SUMS; k++) {
            float host[ITEMS];
            assert_ok(r.device->copy_out(host, slot(&r, d, 2 * k + 1), (uint64_t)items * sizeof *host));
            for (int i = 0; i < items; i++) {
                int at = i + (kind == DEVICE_REDUCE_SCATTER ? (int)d * items : 0);
                cr_expect_eq(host[i], term(k, 0, at) + term(k, 1, at) + term(k, 2, at) + term(k, 3, at),
                             "in the order of the members");
            }
        }
    rig_close(&r);
}

Test(cuda_driver, sums_are_in_the_order_of_the_members)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        adds(seed, seed % 2 ? DEVICE_ALL_REDUCE : DEVICE_REDUCE_SCATTER);
}

Test(cuda_driver, members_at_different_collectives_are_told)
{
    struct rig r = rig_open(&(standin_options){.cards = 2}, 2, DEVICE_COLLECTIVE, DEVICE_COMPUTE);
    char error[200] = "";
    join_all(&r);
    pass_on(&r, 0, 7, 0, 1);
    cr_expect_eq(r.device->health(r.queue[0][0], error, sizeof error), WEIR_OK, "it waits for the other");
    pass_on(&r, 1, 8, 0, 1);
    cr_expect_eq(r.device->health(r.queue[1][0], error, sizeof error), WEIR_E_KERNEL);
    cr_expect_str_eq(error, "cuda:1: members differ: in group 1 member 1 is at collective 8 and member 0 at 7");
    r.device->abort(r.queue[0][0]);
    r.device->abort(r.queue[1][0]);
    rig_close(&r);
}

Test(cuda_driver, a_member_whose_peers_never_come_is_aborted)
{
    struct rig r = rig_open(&(standin_options){.cards = 2}, 2, DEVICE_COLLECTIVE, DEVICE_COMPUTE);
    join_all(&r);
    pass_on(&r, 0, 7, 0, 1);
    assert_ok(r.device->mark(r.queue[0][0]));
    r.device->abort(r.queue[0][0]);
    r.device->abort(r.queue[1][0]);
    cr_expect_eq(atomic_load_explicit(r.queue[0][0]->done, memory_order_acquire), 0);
    rig_close(&r);
}

Test(cuda_driver, cards_that_do_not_reach_each_other_do_not_add)
{
    struct rig r = rig_open(&(standin_options){.cards = 2, .no_peers = true}, 2, DEVICE_COLLECTIVE, DEVICE_COMPUTE);
    char error[200] = "";
    join_all(&r);
    weir_view in = view_of(slot(&r, 0, 0)), out = view_of(slot(&r, 0, 1));
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1, .error = error, .error_bytes = sizeof error};
    struct device_meeting meeting = {.group = r.group[0], .kind = DEVICE_ALL_REDUCE};
    cr_expect_eq(r.device->meet(r.queue[0][0], &meeting, &args), WEIR_E_UNSUPPORTED);
    cr_expect_str_eq(error, "two of the devices do not reach each other's memory");
    rig_close(&r);
}

/* ---- many parts ---- */

enum { EACH = 10, MANY = 8 * EACH, AREA = 400000 };

/* Bytes of part k from `from` to `to`; some are empty, and some are longer than what a block copies at once. */
static uint32_t part_bytes(uint32_t from, uint32_t to, uint32_t k)
{
    return k == 3 ? 70001 + from : k == 4 ? 65536 : k == 5 ? 0 : 1 + 37 * (from + 3 * to + k) % 250;
}

static uint8_t part_value(uint32_t from, uint32_t to, uint32_t i)
{
    return (uint8_t)(17 * from + 5 * to + i * 3 + 1);
}

/* Each member gives parts to all, itself too, and takes parts from all, in an area of its own; all at any address. */
struct many {
    uint8_t *area[8];
    weir_view in[8][MANY], out[8][MANY];
    struct device_move gives[8][MANY], takes[8][MANY];
};

static weir_view bytes_view(uint8_t **at, uint32_t bytes, uint32_t apart)
{
    weir_view view = {.data = *at, .dtype = WEIR_U8, .shape = {.rank = 1, .dim = {bytes}}};
    *at += bytes + apart;
    return view;
}

static uint32_t place_parts(struct many *x, uint32_t members)
{
    uint32_t all = 0;
    for (uint32_t d = 0; d < members; d++) {
        uint8_t *in = x->area[d], *out = in + AREA * (members - 1);
        uint32_t count = 0;
        for (uint32_t k = 0; k < EACH; k++)
            for (uint32_t p = 0; p < members; p++, count++) {
                x->in[d][count] = bytes_view(&in, part_bytes(d, p, k), k % 2 ? 0 : 4 * k);
                x->out[d][count] = bytes_view(&out, part_bytes(p, d, k), k % 3);
                x->gives[d][count] = x->takes[d][count] = (struct device_move){.peer = p, .view = count};
            }
        all = count;
    }
    return all;
}

static void fill_parts(const struct rig *r, const struct many *x, uint32_t d, uint32_t count)
{
    static uint8_t host[1 << 17];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = (uint64_t)x->in[d][i].shape.dim[0];
        for (uint32_t k = 0; k < bytes; k++)
            host[k] = part_value(d, x->gives[d][i].peer, k);
        if (bytes)
            assert_ok(r->device->copy_in(x->in[d][i].data, host, bytes));
    }
}

static void expect_parts(const struct rig *r, const struct many *x, uint32_t d, uint32_t count)
{
    static uint8_t host[1 << 17];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = (uint64_t)x->out[d][i].shape.dim[0], wrong = 0;
        if (bytes)
            assert_ok(r->device->copy_out(host, x->out[d][i].data, bytes));
        for (uint32_t k = 0; k < bytes; k++)
            wrong += host[k] != part_value(x->takes[d][i].peer, d, k);
        cr_expect_eq(wrong, 0, "part %u of member %u: %lu of %lu bytes", i, d, (unsigned long)wrong, (unsigned long)bytes);
    }
}

/* Calls of the runtime that a meeting of so many members makes, with its marks. */
static uint64_t calls_of_a_meeting(uint32_t members, bool no_peers)
{
    static struct many x;
    struct rig r = rig_open(&(standin_options){.seed = members, .cards = 8, .no_peers = no_peers}, members, DEVICE_COLLECTIVE,
                            DEVICE_COMPUTE);
    join_all(&r);
    for (uint32_t d = 0; d < members; d++)
        assert_ok(r.device->space_new("", d, 2 * members * AREA, (void **)&x.area[d]));
    uint32_t count = place_parts(&x, members);
    for (uint32_t d = 0; d < members; d++)
        fill_parts(&r, &x, d, count);
    uint64_t before = card_look().calls;
    for (uint32_t d = 0; d < members; d++) {
        weir_kernel_args args = {.in = x.in[d], .in_count = (int)count, .out = x.out[d], .out_count = (int)count};
        struct device_meeting meeting = {.group = r.group[d], .gives = x.gives[d], .give_count = count,
                                         .takes = x.takes[d], .take_count = count};
        assert_ok(r.device->meet(r.queue[d][0], &meeting, &args));
        marked(r.queue[d][0]);
    }
    uint64_t calls = card_look().calls - before;
    for (uint32_t d = 0; d < members; d++)
        finish(r.queue[d][0]);
    for (uint32_t d = 0; d < members; d++)
        expect_parts(&r, &x, d, count);
    for (uint32_t d = 0; d < members; d++)
        r.device->space_free(x.area[d], 2 * members * AREA);
    rig_close(&r);
    return calls;
}

/* By events, 2 (3 n - 2) + the marks' 3 n and what sets cards; copies of n members' parts by themselves would be n n EACH. */
Test(cuda_driver, a_meeting_with_many_parts_makes_few_calls)
{
    for (uint32_t members = 2; members <= 8; members *= 2) {
        uint64_t calls = calls_of_a_meeting(members, false);
        printf("%u members: %lu calls\n", members, (unsigned long)calls);
        cr_expect_leq(calls, 20 * members, "%u members: %lu calls", members, (unsigned long)calls);
    }
    calls_of_a_meeting(4, true);
}
