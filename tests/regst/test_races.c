/* tests/regst/test_races.c: the detector of races (tests/support/races.h) alone, and below the fake accelerator: on
 * random programs it tells of a race exactly when some two calls are in no order, and what has none computes what it
 * would in the order in which it was enqueued. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/support/effort.h"
#include "tests/support/fake_bench.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/races.h"

TestSuite(races, .timeout = 120);

/* ---- alone ---- */

static char memory[256];

static void step(struct races *races, uint32_t queue, int from, int bytes, bool writes)
{
    races_step(races, queue);
    races_access(races, queue, memory + from, (uint64_t)bytes, writes, writes ? "writer" : "reader");
}

static void expect_race(struct races *races, bool is)
{
    cr_expect_eq(races_found(races)[0] != 0, is, "'%s'", races_found(races));
    races_free(races);
}

Test(races, are_between_a_write_and_what_nothing_orders)
{
    for (int writes = 0; writes < 4; writes++) {
        struct races *races = races_new();
        step(races, 0, 0, 64, writes & 1);
        step(races, 1, 0, 64, writes & 2);
        expect_race(races, writes != 0);
    }
}

Test(races, are_none_behind_an_await_of_a_later_mark)
{
    struct races *races = races_new();
    step(races, 0, 0, 64, true);
    races_mark(races, 0, 1);
    races_mark(races, 0, 2);
    races_await(races, 1, 0, 2);
    step(races, 1, 0, 64, true);
    expect_race(races, false);
}

Test(races, are_seen_behind_an_await_of_an_earlier_mark)
{
    struct races *races = races_new();
    races_mark(races, 0, 1);
    step(races, 0, 0, 64, true);
    races_mark(races, 0, 2);
    races_await(races, 1, 0, 1);
    step(races, 1, 0, 64, false);
    expect_race(races, true);
}

/* One of two readers is awaited. */
Test(races, are_looked_for_among_all_who_read)
{
    struct races *races = races_new();
    step(races, 0, 0, 64, false);
    step(races, 1, 0, 64, false);
    races_mark(races, 0, 1);
    races_await(races, 2, 0, 1);
    step(races, 2, 0, 64, true);
    expect_race(races, true);
}

Test(races, need_a_byte_in_common)
{
    struct races *races = races_new();
    step(races, 0, 0, 64, true);
    step(races, 1, 64, 64, true);
    step(races, 2, 128, 100, true);
    step(races, 0, 10, 20, false);
    cr_expect_eq(races_found(races)[0], 0, "%s", races_found(races));
    step(races, 2, 127, 1, false);
    expect_race(races, true);
}

Test(races, end_with_the_memory)
{
    struct races *races = races_new();
    step(races, 0, 0, 128, true);
    races_forget(races, memory + 32, 64);
    step(races, 1, 32, 64, true);
    cr_expect_eq(races_found(races)[0], 0, "%s", races_found(races));
    step(races, 1, 31, 1, false);
    expect_race(races, true);
}

/* The mark is older than those that are remembered. */
Test(races, are_not_made_up_when_a_mark_is_long_ago)
{
    struct races *races = races_new();
    step(races, 0, 0, 64, true);
    for (uint64_t i = 1; i <= 3 * RACES_MARKS; i++)
        races_mark(races, 0, i);
    races_await(races, 1, 0, 1);
    step(races, 1, 0, 64, true);
    cr_expect_eq(races_found(races)[0], 0, "%s", races_found(races));
    step(races, 0, 0, 64, false);
    expect_race(races, true);
}

/* ---- random programs ---- */

enum { PROGRAMS = EFFORT(600, 150, 40), SEED = 9007, CALLS = 24, USED_QUEUES = 3, USED_SLOTS = 6 };

struct call {
    int queue, in, out;
    uint64_t ticket;           /* of the mark behind it */
    uint64_t awaits[CALLS];    /* tickets by queue, in the order they are awaited; 0: none */
    uint64_t before;           /* the calls that come before it, a bit each */
};

struct program {
    struct call calls[CALLS];
    bool races;
};

static bool conflict(const struct call *a, const struct call *b)
{
    return a->out == b->out || a->out == b->in || a->in == b->out;
}

/* The call awaits each of the calls that it conflicts with, with a chance of `care` in 8. */
static void draw_call(struct program *p, int i, int care, uint64_t *random)
{
    struct call *call = &p->calls[i];
    uint64_t last[USED_QUEUES] = {0};
    *call = (struct call){.queue = (int)(mutate_draw(random) % USED_QUEUES),
                          .in = (int)(mutate_draw(random) % USED_SLOTS),
                          .out = (int)(mutate_draw(random) % USED_SLOTS)};
    for (int j = 0; j < i; j++)
        last[p->calls[j].queue] = p->calls[j].ticket;
    call->ticket = last[call->queue] + 1;
    for (int j = 0; j < i; j++) {
        const struct call *other = &p->calls[j];
        bool same = other->queue == call->queue;
        if (!same && conflict(call, other) && (int)(mutate_draw(random) % 8) < care)
            call->awaits[j] = other->ticket;
        if (same || call->awaits[j])
            call->before |= other->before | UINT64_C(1) << j;
    }
    for (int j = 0; j < i; j++)
        p->races |= conflict(call, &p->calls[j]) && !(call->before >> j & 1);
}

static struct program draw_program(int care, uint64_t *random)
{
    struct program p = {0};
    for (int i = 0; i < CALLS; i++)
        draw_call(&p, i, care, random);
    return p;
}

static weir_status mix(const weir_kernel_args *args)
{
    const float *in = args->in[0].data;
    float *out = args->out[0].data;
    for (int i = 0; i < BENCH_ITEMS; i++)
        out[i] = fmodf(in[i] * 5 + (float)args->key + (float)i, 8191);
    return WEIR_OK;
}

/* All at once, so that nothing is known to be done when a call is enqueued. */
static void enqueue(struct bench *b, const struct program *p)
{
    for (int i = 0; i < CALLS; i++) {
        const struct call *call = &p->calls[i];
        for (int j = 0; j < i; j++)
            if (call->awaits[j])
                b->device->await(b->queues[call->queue], b->queues[p->calls[j].queue], call->awaits[j]);
        bench_launch(b->queues[call->queue], mix, (uint64_t)i, bench_slot(b, call->in), bench_slot(b, call->out));
        cr_assert_eq(bench_mark(b->queues[call->queue]), call->ticket);
    }
}

/* The results of the program in the order in which it was enqueued. */
static void compute(const struct program *p, float slots[USED_SLOTS][BENCH_ITEMS])
{
    memset(slots, 0, sizeof(float[USED_SLOTS][BENCH_ITEMS]));
    for (int i = 0; i < CALLS; i++) {
        weir_view in = bench_view(slots[p->calls[i].in]), out = bench_view(slots[p->calls[i].out]);
        const weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1, .key = (uint64_t)i};
        mix(&args);
    }
}

static void check_program(const struct program *p, uint64_t seed)
{
    struct bench b = bench_open(&(fake_options){.seed = seed, .held = true, .marks_max = 64}, USED_QUEUES);
    float slots[USED_SLOTS][BENCH_ITEMS];
    enqueue(&b, p);
    fake_go();
    for (int q = 0; q < USED_QUEUES; q++)
        bench_wait(b.queues[q], b.queues[q]->marked);
    compute(p, slots);
    bool differs = memcmp(fake_reach(b.space), slots, sizeof slots) != 0;
    bench_free(&b);
    fake_seen seen = fake_close();
    cr_assert_eq(seen.misuses, 0, "%s", seen.misuse);
    cr_assert_eq(seen.race[0] != 0, p->races, "seed %llu: '%s'", (unsigned long long)seed, seen.race);
    cr_assert(p->races || !differs, "seed %llu: without a race it computes something else", (unsigned long long)seed);
}

Test(races, are_told_exactly_when_two_calls_are_in_no_order)
{
    uint64_t random = SEED;
    int racing = 0;
    cr_log_info("seed %d", SEED);
    for (int i = 0; i < PROGRAMS; i++) {
        const struct program p = draw_program(i % 2 ? 8 : 7, &random);
        racing += p.races;
        check_program(&p, SEED + (uint64_t)i);
    }
    cr_expect(racing > PROGRAMS / 6 && racing < PROGRAMS * 5 / 6, "%d of %d have races", racing, PROGRAMS);
}
