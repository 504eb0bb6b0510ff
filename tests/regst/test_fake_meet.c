/* tests/regst/test_fake_meet.c: groups of the fake accelerator (tests/support/fake.h): what members give is taken, in one
 * process and in several, in whatever order the device takes things in; members that are not at one meeting do not meet;
 * and what fails, fails as it does in a real communicator. */
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/effort.h"
#include "tests/support/fake_bench.h"
#include "tests/support/ranks.h"

TestSuite(fake_meet, .timeout = 120);

enum { SEEDS = EFFORT(40, 15, 6), HALLS_MAX = 4 };

/* ---- devices ---- */

/* Some devices of this process, each with a space, a queue of kind compute and one of kind collective. */
struct halls {
    const struct device_ops *device;
    uint32_t first, count;
    float *space[HALLS_MAX];
    struct device_queue *compute[HALLS_MAX], *queue[HALLS_MAX];
    struct device_group *groups[32];
    int group_count;
};

static struct halls halls_open(const fake_options *options, uint32_t first, uint32_t count)
{
    struct halls h = {.first = first, .count = count};
    fake_open(options);
    h.device = device_find(WEIR_FAKE);
    for (uint32_t d = 0; d < count; d++) {
        void *space;
        cr_assert_eq(h.device->space_new("", first + d, BENCH_SPACE_BYTES, &space), WEIR_OK);
        h.space[d] = space;
        cr_assert_eq(h.device->queue_new(first + d, DEVICE_COMPUTE, &h.compute[d]), WEIR_OK);
        cr_assert_eq(h.device->queue_new(first + d, DEVICE_COLLECTIVE, &h.queue[d]), WEIR_OK);
    }
    return h;
}

static void halls_free(struct halls *h)
{
    for (int g = 0; g < h->group_count; g++)
        h->device->group_free(h->groups[g]);
    for (uint32_t d = 0; d < h->count; d++) {
        h->device->queue_free(h->compute[d]);
        h->device->queue_free(h->queue[d]);
        h->device->space_free(h->space[d], BENCH_SPACE_BYTES);
    }
}

static void halls_close(struct halls *h)
{
    halls_free(h);
    fake_close_well();
}

static void expect_misuse(struct halls *h, const char *part)
{
    halls_free(h);
    fake_seen seen = fake_close();
    cr_expect_geq(seen.misuses, 1);
    cr_expect(strstr(seen.misuse, part), "'%s' is said of: %s", seen.misuse, part);
}

static float *slot(const struct halls *h, uint32_t device, uint32_t i)
{
    return (float *)((uintptr_t)h->space[device] + (uintptr_t)i * BENCH_BYTES);
}

static struct device_group *join(struct halls *h, uint32_t device, uint32_t number, uint32_t place, uint32_t count)
{
    struct device_group_id id = {.session = 0x5e55, .number = number};
    struct device_group *group = NULL;
    cr_assert_eq(h->device->group_new(h->queue[device], &id, place, count, &group), WEIR_OK, "%s", weir_error());
    cr_assert(group->place == place && group->count == count && group->device == h->device);
    return h->groups[h->group_count++] = group;
}

/* All devices are members, in their order: device d's is the d-th one from there. */
static struct device_group **join_all(struct halls *h, uint32_t number)
{
    struct device_group **groups = &h->groups[h->group_count];
    for (uint32_t d = 0; d < h->count; d++)
        join(h, d, number, d, h->count);
    return groups;
}

static uint64_t sum_of_done(const struct halls *h)
{
    uint64_t done = 0;
    for (uint32_t d = 0; d < h->count; d++)
        done += bench_done(h->queue[d]);
    return done;
}

static void finish_all(struct halls *h)
{
    uint64_t tickets[HALLS_MAX];
    for (uint32_t d = 0; d < h->count; d++)
        tickets[d] = bench_mark(h->queue[d]);
    for (uint32_t d = 0; d < h->count; d++)
        bench_wait(h->queue[d], tickets[d]);
}

static void abort_all(struct halls *h)
{
    for (uint32_t d = 0; d < h->count; d++) {
        h->device->abort(h->compute[d]);
        h->device->abort(h->queue[d]);
    }
}

static void put(struct halls *h, uint32_t device, uint32_t i, float value)
{
    float host[BENCH_ITEMS];
    for (int j = 0; j < BENCH_ITEMS; j++)
        host[j] = value;
    h->device->copy_in(slot(h, device, i), host, BENCH_BYTES);
}

static float get(const struct halls *h, uint32_t device, uint32_t i)
{
    return bench_first(slot(h, device, i));
}

/* ---- calls ---- */

static weir_status meet(struct device_queue *queue, const struct device_meeting *meeting, weir_view *in, int in_count,
                        weir_view *out, int out_count)
{
    struct device_meeting copy = *meeting;
    char error[100] = "";
    weir_kernel_args args = {.in = in, .in_count = in_count, .out = out, .out_count = out_count, .error = error,
                             .error_bytes = sizeof error};
    weir_status status = queue->device->meet(queue, &copy, &args);
    explicit_bzero(&copy, sizeof copy); /* all that it was given is the caller's again */
    explicit_bzero(&args, sizeof args);
    if (in_count)
        explicit_bzero(in, (size_t)in_count * sizeof *in);
    if (out_count)
        explicit_bzero(out, (size_t)out_count * sizeof *out);
    cr_assert(status == WEIR_E_KERNEL || !error[0]);
    return status;
}

/* For each peer, that of the views that it is given or gives: the first. */
static const struct device_move to_peer[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}};

/* Gives one slot to the peer `to`, and takes another from `from`. */
static weir_status pass_on(struct halls *h, uint32_t device, struct device_group *group, uint32_t number, uint32_t to,
                           uint32_t from, float *give, float *take)
{
    weir_view in = bench_view(give), out = bench_view(take);
    struct device_meeting meeting = {.group = group, .number = number, .gives = &to_peer[to], .give_count = 1,
                                     .takes = &to_peer[from], .take_count = 1};
    return meet(h->queue[device], &meeting, &in, 1, &out, 1);
}

/* Each gives slot `give` to the next one, and takes slot `take` from the one before. */
static void ring(struct halls *h, struct device_group **groups, uint32_t number, uint32_t give, uint32_t take)
{
    for (uint32_t d = 0; d < h->count; d++)
        cr_assert_eq(pass_on(h, d, groups[d], number, (d + 1) % h->count, (d + h->count - 1) % h->count,
                             slot(h, d, give), slot(h, d, take)), WEIR_OK, "%s", weir_error());
}

static fake_options drawn(uint64_t seed)
{
    return (fake_options){.seed = seed, .delay_us = seed % 2 ? 20 : 0, .marks_max = 16};
}

/* ---- what is given is taken ---- */

Test(fake_meet, values_go_round_a_ring)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = drawn(seed);
        struct halls h = halls_open(&options, 0, 2 + (uint32_t)(seed % 3));
        struct device_group **groups = join_all(&h, 1);
        for (uint32_t d = 0; d < h.count; d++)
            put(&h, d, 0, (float)(10 + d));
        for (uint32_t i = 0; i < 6; i++)
            ring(&h, groups, i % 4, i, i + 1);
        finish_all(&h);
        for (uint32_t d = 0; d < h.count; d++)
            for (uint32_t i = 0; i < 7; i++)
                cr_expect_eq(get(&h, d, i), (float)(10 + (d + 6 * h.count - i) % h.count), "seed %d", (int)seed);
        cr_expect_eq(fake_look().meetings, 6 * h.count);
        halls_close(&h);
    }
}

/* Each device has another part, and gives it to all: two moves to a peer, which come in the order of the lists. */
static void gather_pairs(struct halls *h, struct device_group **groups)
{
    static const struct device_move gives[] = {{0, 0}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {2, 1}};
    static const struct device_move takes[] = {{2, 4}, {1, 2}, {0, 0}, {0, 1}, {1, 3}, {2, 5}};
    for (uint32_t d = 0; d < h->count; d++) {
        weir_view in[2], out[6];
        for (uint32_t i = 0; i < 2; i++)
            in[i] = bench_view(slot(h, d, i));
        for (uint32_t i = 0; i < 6; i++)
            out[i] = bench_view(slot(h, d, 4 + i));
        struct device_meeting meeting = {.group = groups[d], .number = 9, .gives = gives, .give_count = 6,
                                         .takes = takes, .take_count = 6};
        cr_assert_eq(meet(h->queue[d], &meeting, in, 2, out, 6), WEIR_OK);
    }
}

Test(fake_meet, several_moves_between_two_members_keep_their_order)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = drawn(seed);
        struct halls h = halls_open(&options, 0, 3);
        struct device_group **groups = join_all(&h, 1);
        for (uint32_t d = 0; d < 3; d++)
            for (uint32_t i = 0; i < 2; i++)
                put(&h, d, i, (float)(10 * d + i));
        gather_pairs(&h, groups);
        finish_all(&h);
        for (uint32_t d = 0; d < 3; d++)
            for (uint32_t i = 0; i < 6; i++) /* a member 1 is given the second one first */
                cr_expect_eq(get(&h, d, 4 + i), (float)(10 * (i / 2) + (d == 1 ? 1 - i % 2 : i % 2)));
        halls_close(&h);
    }
}

/* ---- sums ---- */

/* Large and small values, so that the order of adding is seen. */
static float summand(uint32_t device, int i)
{
    static const float values[] = {1e8f, 1.25f, -1e8f, 3.5f};
    return values[(device + (uint32_t)i) % 4] * (float)(1 + i % 3);
}

static float sum_in_order(uint32_t count, int i)
{
    float sum = summand(0, i);
    for (uint32_t d = 1; d < count; d++)
        sum += summand(d, i);
    return sum;
}

static weir_view vector(float *data, weir_dtype dtype, int64_t items)
{
    return (weir_view){.data = data, .dtype = dtype, .shape = {.rank = 1, .dim = {items}},
                       .global = {.rank = 1, .dim = {items}}};
}

static void add_up(struct halls *h, weir_dtype dtype, enum device_collective kind)
{
    struct device_group **groups = join_all(h, 3);
    int64_t part = BENCH_ITEMS / (kind == DEVICE_REDUCE_SCATTER ? (int64_t)h->count : 1);
    for (uint32_t d = 0; d < h->count; d++) {
        float values[BENCH_ITEMS];
        char bytes[BENCH_BYTES] = {0};
        for (int i = 0; i < BENCH_ITEMS; i++)
            values[i] = summand(d, i);
        weir_from_f32(values, BENCH_ITEMS, dtype, bytes);
        h->device->copy_in(slot(h, d, 0), bytes, BENCH_BYTES);
    }
    for (uint32_t d = 0; d < h->count; d++) {
        weir_view in = vector(slot(h, d, 0), dtype, BENCH_ITEMS), out = vector(slot(h, d, 1), dtype, part);
        struct device_meeting meeting = {.group = groups[d], .number = 2, .kind = kind};
        cr_assert_eq(meet(h->queue[d], &meeting, &in, 1, &out, 1), WEIR_OK);
    }
    finish_all(h);
    for (uint32_t d = 0; d < h->count; d++)
        for (int i = 0; i < part; i++) {
            int64_t at = i + (kind == DEVICE_REDUCE_SCATTER ? (int64_t)d * part : 0);
            float got, want = sum_in_order(h->count, (int)at);
            char rounded[8];
            weir_to_f32(dtype, (char *)fake_reach(slot(h, d, 1)) + (size_t)i * weir_dtype_bytes(dtype), 1, &got);
            if (dtype == WEIR_F32)
                cr_expect_eq(got, want, "member %u, %d: %g and not %g", d, i, got, want);
            weir_from_f32(&want, 1, dtype, rounded);
            weir_to_f32(dtype, rounded, 1, &want);
            cr_expect(fabsf(got - want) <= 4e6f, "member %u, %d: %g and not %g", d, i, got, want);
        }
}

Test(fake_meet, sums_are_in_the_order_of_the_members)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = drawn(seed);
        struct halls h = halls_open(&options, 0, seed % 4 < 2 ? 2 : 4);
        add_up(&h, seed % 3 == 2 ? WEIR_BF16 : WEIR_F32, seed % 2 ? DEVICE_ALL_REDUCE : DEVICE_REDUCE_SCATTER);
        halls_close(&h);
    }
}

/* ---- who does not meet ---- */

Test(fake_meet, a_member_waits_for_the_others)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = join_all(&h, 1);
    put(&h, 0, 0, 5);
    put(&h, 1, 0, 6);
    pass_on(&h, 0, groups[0], 1, 1, 1, slot(&h, 0, 0), slot(&h, 0, 1));
    uint64_t mine = bench_mark(h.queue[0]);
    for (int i = 0; i < 20; i++) {
        ranks_pause(1);
        cr_assert_eq(bench_done(h.queue[0]), 0);
    }
    pass_on(&h, 1, groups[1], 1, 0, 0, slot(&h, 1, 0), slot(&h, 1, 1));
    bench_wait(h.queue[0], mine);
    bench_finish(h.queue[1]);
    cr_expect_eq(get(&h, 0, 1), 6);
    cr_expect_eq(get(&h, 1, 1), 5);
    halls_close(&h);
}

static void expect_ill(struct device_queue *queue, const char *part)
{
    char error[200] = "";
    while (!queue->device->health(queue, error, sizeof error))
        sched_yield();
    cr_expect(strstr(error, part), "'%s' is said of: %s", error, part);
}

Test(fake_meet, members_at_different_collectives_are_told_of)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = drawn(seed);
        struct halls h = halls_open(&options, 0, 2);
        struct device_group **groups = join_all(&h, 7);
        ring(&h, groups, 4, 0, 1);
        for (uint32_t d = 0; d < 2; d++) {
            pass_on(&h, d, groups[d], 5 + d, 1 - d, 1 - d, slot(&h, d, 0), slot(&h, d, 1));
            bench_mark(h.queue[d]);
        }
        expect_ill(h.queue[0], "in group 7 member 0 is at collective 5 and member 1 at 6");
        expect_ill(h.queue[1], "in group 7 member 1 is at collective 6 and member 0 at 5");
        cr_expect_eq(sum_of_done(&h), 0);
        abort_all(&h);
        expect_misuse(&h, "members differ");
    }
}

Test(fake_meet, members_that_do_different_things_are_told_of)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = join_all(&h, 7);
    weir_view in = bench_view(slot(&h, 0, 0)), out = bench_view(slot(&h, 0, 1));
    meet(h.queue[0], &(struct device_meeting){.group = groups[0], .number = 4, .kind = DEVICE_ALL_REDUCE}, &in, 1, &out, 1);
    pass_on(&h, 1, groups[1], 4, 0, 0, slot(&h, 1, 0), slot(&h, 1, 1));
    expect_ill(h.queue[0], "another kind");
    expect_ill(h.queue[1], "another kind");
    expect_misuse(&h, "another kind");
}

Test(fake_meet, members_that_do_not_agree_on_bytes_are_told_of)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = join_all(&h, 7);
    weir_view in = vector(slot(&h, 0, 0), WEIR_F32, BENCH_ITEMS - 1), out = bench_view(slot(&h, 0, 1));
    struct device_meeting meeting = {.group = groups[0], .number = 4, .gives = &to_peer[1], .give_count = 1,
                                     .takes = &to_peer[1], .take_count = 1};
    meet(h.queue[0], &meeting, &in, 1, &out, 1);
    pass_on(&h, 1, groups[1], 4, 0, 0, slot(&h, 1, 0), slot(&h, 1, 1));
    bench_finish(h.queue[0]);
    expect_ill(h.queue[1], "member 0 does not give what member 1 takes");
    expect_misuse(&h, "members differ");
}

Test(fake_meet, what_nobody_takes_is_told_of)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = join_all(&h, 7);
    weir_view in = bench_view(slot(&h, 1, 0));
    pass_on(&h, 0, groups[0], 4, 1, 1, slot(&h, 0, 0), slot(&h, 0, 1));
    meet(h.queue[1], &(struct device_meeting){.group = groups[1], .number = 4, .gives = &to_peer[0], .give_count = 1}, &in, 1,
         NULL, 0);
    bench_finish(h.queue[0]);
    expect_ill(h.queue[1], "member 0 does not give what member 1 takes");
    expect_misuse(&h, "members differ");
}

/* Two groups of the same devices, which one device's queue meets in another order. */
static void cross(struct halls *h, bool crossed)
{
    struct device_group **one = join_all(h, 1), **two = join_all(h, 2);
    for (uint32_t d = 0; d < 2; d++)
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t which = crossed && d ? 1 - i : i;
            pass_on(h, d, (which ? two : one)[d], which, 1 - d, 1 - d, slot(h, d, which), slot(h, d, 2 + which));
        }
    for (uint32_t d = 0; d < 2; d++)
        bench_mark(h->queue[d]);
}

Test(fake_meet, orders_that_cross_never_end)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = drawn(seed);
        struct halls h = halls_open(&options, 0, 2);
        cross(&h, false);
        for (uint32_t d = 0; d < 2; d++)
            bench_wait(h.queue[d], 1);
        halls_close(&h);
        options.meet_ms = 20;
        h = halls_open(&options, 0, 2);
        cross(&h, true);
        expect_ill(h.queue[0], "member 1 of group 1 does not come to collective 0");
        expect_ill(h.queue[1], "member 0 of group 2 does not come to collective 1");
        cr_expect_eq(sum_of_done(&h), 0);
        abort_all(&h);
        halls_close(&h);
    }
}

/* ---- faults ---- */

static bool all_nan(const struct halls *h, uint32_t device, uint32_t i)
{
    const float *at = fake_reach(slot(h, device, i));
    bool all = true;
    for (int j = 0; j < BENCH_ITEMS; j++)
        all = all && isnan(at[j]);
    return all;
}

/* Device 1's second meeting goes wrong. What the others take is `begun`: NaNs; they wait, and are well, until they are
 * aborted. */
static void goes_wrong(fake_fault_kind kind, const char *error, bool begun, uint64_t seed)
{
    fake_options options = drawn(seed);
    options.faults[0] = (fake_fault){kind, 1, DEVICE_COLLECTIVE, 2};
    struct halls h = halls_open(&options, 0, 3);
    struct device_group **groups = join_all(&h, 1);
    for (uint32_t d = 0; d < 3; d++) {
        put(&h, d, 0, (float)d);
        put(&h, d, 2, 77);
    }
    ring(&h, groups, 1, 0, 1);
    finish_all(&h);
    ring(&h, groups, 2, 1, 2);
    for (uint32_t d = 0; d < 3; d++)
        bench_mark(h.queue[d]);
    if (error)
        expect_ill(h.queue[1], error);
    while (fake_look().begun < (begun ? 6 : 3))
        sched_yield();
    ranks_pause(2);
    cr_expect_eq(sum_of_done(&h), 3, "a member is done with what another one did not do");
    for (uint32_t d = 0; d < 3; d++)
        cr_expect(d == 1 || !h.device->health(h.queue[d], NULL, 0));
    abort_all(&h);
    for (uint32_t d = 0; d < 3; d++)
        cr_expect(begun ? all_nan(&h, d, 2) : get(&h, d, 2) == 77, "seed %d, member %u: %g", (int)seed, d, get(&h, d, 2));
    put(&h, 0, 2, 5);
    ranks_pause(2);
    cr_expect_eq(get(&h, 0, 2), 5, "something of an aborted queue touches memory");
    halls_close(&h);
}

Test(fake_meet, others_wait_for_a_member_that_fails_until_they_are_aborted)
{
    for (uint64_t seed = 0; seed < SEEDS / 3; seed++)
        goes_wrong(FAKE_FAILS, "collective failed on fake:1: it was told to", true, seed);
}

Test(fake_meet, others_wait_for_a_member_that_died_until_they_are_aborted)
{
    for (uint64_t seed = 0; seed < SEEDS / 3; seed++)
        goes_wrong(FAKE_DIES, "a queue of fake:1 is lost", false, seed);
}

Test(fake_meet, others_wait_for_a_member_that_hangs_until_they_are_aborted)
{
    for (uint64_t seed = 0; seed < SEEDS / 3; seed++)
        goes_wrong(FAKE_HANGS, NULL, true, seed);
}

Test(fake_meet, a_meeting_that_is_not_launched_is_not_counted)
{
    struct halls h = halls_open(&(fake_options){.faults = {{FAKE_LAUNCH_FAILS, 1, DEVICE_COLLECTIVE, 1}}}, 0, 2);
    struct device_group **groups = join_all(&h, 1);
    put(&h, 0, 0, 3);
    pass_on(&h, 0, groups[0], 1, 1, 1, slot(&h, 0, 0), slot(&h, 0, 1));
    cr_expect_eq(pass_on(&h, 1, groups[1], 1, 0, 0, slot(&h, 1, 0), slot(&h, 1, 1)), WEIR_E_KERNEL);
    cr_expect(strstr(weir_error(), "does not take collective"), "%s", weir_error());
    cr_expect_eq(pass_on(&h, 1, groups[1], 1, 0, 0, slot(&h, 1, 0), slot(&h, 1, 1)), WEIR_OK);
    finish_all(&h);
    cr_expect_eq(get(&h, 1, 1), 3);
    halls_close(&h);
}

Test(fake_meet, an_aborted_member_takes_nothing_more)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = join_all(&h, 1);
    put(&h, 0, 1, 8);
    pass_on(&h, 0, groups[0], 1, 1, 1, slot(&h, 0, 0), slot(&h, 0, 1));
    h.device->abort(h.queue[0]);
    cr_expect_neq(pass_on(&h, 0, groups[0], 2, 1, 1, slot(&h, 0, 0), slot(&h, 0, 1)), WEIR_OK);
    pass_on(&h, 1, groups[1], 1, 0, 0, slot(&h, 1, 0), slot(&h, 1, 1));
    ranks_pause(5);
    cr_expect_eq(get(&h, 0, 1), 8);
    abort_all(&h);
    halls_close(&h);
}

/* ---- what no caller may do ---- */

Test(fake_meet, sees_what_is_no_member_or_no_move)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group_id id = {.session = 0x5e55, .number = 1};
    struct device_group **groups = join_all(&h, 1), *other;
    cr_expect_eq(h.device->group_new(h.queue[0], &id, 2, 2, &other), WEIR_E_STATE);
    cr_expect_eq(h.device->group_new(h.queue[0], &id, 1, 2, &other), WEIR_E_STATE);
    cr_expect_eq(h.device->group_new(h.queue[0], &id, 2, 3, &other), WEIR_E_STATE);
    cr_expect_eq(fake_look().misuses, 3);
    cr_expect_eq(pass_on(&h, 0, groups[1], 1, 1, 1, slot(&h, 0, 0), slot(&h, 0, 1)), WEIR_E_STATE, "another queue's group");
    cr_expect_eq(pass_on(&h, 0, groups[0], 1, 3, 1, slot(&h, 0, 0), slot(&h, 0, 1)), WEIR_E_STATE, "a peer");
    weir_view in = bench_view(slot(&h, 0, 0)), out = vector(slot(&h, 0, 1), WEIR_F32, 5);
    struct device_meeting adds = {.group = groups[0], .number = 4, .kind = DEVICE_REDUCE_SCATTER};
    cr_expect_eq(meet(h.queue[0], &adds, &in, 1, &out, 1), WEIR_E_STATE, "bytes");
    cr_expect_eq(fake_look().misuses, 6);
    finish_all(&h);
    expect_misuse(&h, "there is no such place");
}

Test(fake_meet, sees_memory_of_the_hosts)
{
    struct halls h = halls_open(NULL, 0, 1);
    struct device_group **groups = join_all(&h, 1);
    float host[BENCH_ITEMS];
    pass_on(&h, 0, groups[0], 1, 0, 0, slot(&h, 0, 0), host);
    finish_all(&h);
    expect_misuse(&h, "collective is given 128 bytes");
}

Test(fake_meet, sees_a_group_freed_that_is_to_meet)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = join_all(&h, 1);
    pass_on(&h, 0, groups[0], 1, 1, 1, slot(&h, 0, 0), slot(&h, 0, 1));
    expect_misuse(&h, "group 1 is freed while queue 1 is to meet");
}

Test(fake_meet, sees_a_group_left_open)
{
    struct halls h = halls_open(NULL, 0, 1);
    join_all(&h, 6);
    h.group_count = 0;
    expect_misuse(&h, "member 0 of group 6 was left open");
}

/* ---- races ---- */

/* Both devices fill slot 0, meet, and add up what they took, on the compute queue; with or without each of the awaits:
 * of what is given, of what was taken, of what was given when it is filled again. */
static fake_seen fill_and_meet(uint64_t seed, bool awaits_fill, bool awaits_meeting, bool awaits_given)
{
    fake_options options = drawn(seed);
    options.held = true; /* so that the host sees nothing done which it could order by */
    struct halls h = halls_open(&options, 0, 2);
    struct device_group **groups = join_all(&h, 1);
    for (uint64_t i = 1; i <= 3; i++) {
        for (uint32_t d = 0; d < 2; d++) {
            if (awaits_given && i > 1)
                h.device->await(h.compute[d], h.queue[d], i - 1);
            bench_launch(h.compute[d], bench_fill, 10 * i + d, NULL, slot(&h, d, 0));
            bench_mark(h.compute[d]);
            if (awaits_fill)
                h.device->await(h.queue[d], h.compute[d], 2 * i - 1);
            pass_on(&h, d, groups[d], 1, 1 - d, 1 - d, slot(&h, d, 0), slot(&h, d, (uint32_t)i));
            bench_mark(h.queue[d]);
            if (awaits_meeting)
                h.device->await(h.compute[d], h.queue[d], i);
            bench_launch(h.compute[d], bench_copy, 0, slot(&h, d, (uint32_t)i), slot(&h, d, (uint32_t)i + 8));
            bench_mark(h.compute[d]);
        }
    }
    fake_go();
    for (uint32_t d = 0; d < 2; d++) {
        bench_wait(h.compute[d], 6);
        bench_wait(h.queue[d], 3);
        for (uint32_t i = 1; i <= 3 && awaits_fill && awaits_meeting; i++)
            cr_expect_eq(get(&h, d, i + 8), (float)(10 * i + 1 - d));
    }
    halls_free(&h);
    return fake_close();
}

Test(fake_meet, an_await_that_is_left_out_is_seen_in_every_order)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_seen well = fill_and_meet(seed, true, true, true);
        cr_assert(!well.misuses && !well.race[0], "%s%s", well.misuse, well.race);
        fake_seen no_fill = fill_and_meet(seed, false, true, true), no_meeting = fill_and_meet(seed, true, false, true);
        cr_assert(strstr(no_fill.race, "nothing orders") && strstr(no_fill.race, "collective"), "seed %d", (int)seed);
        cr_assert(strstr(no_meeting.race, "nothing orders") && strstr(no_meeting.race, "collective"), "seed %d",
                  (int)seed);
    }
}

/* What was given has been read when a meeting is over, and what was taken is awaited in any case. */
Test(fake_meet, awaiting_a_meeting_is_enough_to_give_again)
{
    fake_seen seen = fill_and_meet(1, true, true, false);
    cr_expect(!seen.misuses && !seen.race[0], "%s%s", seen.misuse, seen.race);
}

/* What one member did before a meeting comes before what another one does after it: order goes through a meeting, though not
 * to what is taken at its end. */
Test(fake_meet, order_goes_through_a_meeting)
{
    for (int late = 0; late < 2; late++) {
        struct halls h = halls_open(&(fake_options){.marks_max = 8}, 0, 2);
        struct device_group **groups = join_all(&h, 1);
        bench_launch(h.compute[0], bench_fill, 3, NULL, slot(&h, 0, 5));
        h.device->await(h.queue[0], h.compute[0], bench_mark(h.compute[0]));
        ring(&h, groups, 1, 0, 1);
        h.device->await(h.compute[1], h.queue[1], bench_mark(h.queue[1]));
        bench_launch(h.compute[1], bench_fill, 4, NULL, late ? slot(&h, 0, 1) : slot(&h, 0, 5));
        bench_finish(h.compute[1]);
        bench_finish(h.queue[0]);
        halls_free(&h);
        fake_seen seen = fake_close();
        cr_expect_eq(seen.misuses, 0, "%s", seen.misuse);
        cr_expect_eq(!*seen.race, !late, "%s", seen.race);
    }
}

/* ---- members in several processes ---- */

struct shared_hall {
    struct fake_board *board;
    uint64_t seed;
    uint32_t lost; /* the meeting that rank 1 does not come to, from 1; 0: it comes to all */
};

enum { PER_RANK = 2, MEETINGS = 8 };

/* One after the other, devices of rank 0 and then of rank 1 are members of one group; each rank has one of its own, too. */
static void meet_as_rank(struct rank *rank)
{
    const struct shared_hall *shared = rank->ctx;
    fake_options options = drawn(shared->seed + (uint64_t)rank->number);
    uint32_t members = (uint32_t)rank->count * PER_RANK, base = (uint32_t)rank->number * PER_RANK;
    struct device_group *all[PER_RANK], *own[PER_RANK];
    char error[200] = "";
    options.board = shared->board;
    options.meet_ms = shared->lost ? 200 : 0;
    struct halls h = halls_open(&options, base, PER_RANK);
    for (uint32_t d = 0; d < PER_RANK; d++) {
        all[d] = join(&h, d, 1, base + d, members);
        own[d] = join(&h, d, 2 + (uint32_t)rank->number, d, PER_RANK);
        put(&h, d, 0, (float)(base + d));
    }
    for (uint32_t i = 0; i < MEETINGS; i++) {
        for (uint32_t d = 0; d < PER_RANK && (rank->number != 1 || shared->lost != i + 1); d++) {
            uint32_t m = base + d;
            pass_on(&h, d, all[d], i, (m + 1) % members, (m + members - 1) % members, slot(&h, d, i), slot(&h, d, i + 1));
            pass_on(&h, d, own[d], i, 1 - d, 1 - d, slot(&h, d, 0), slot(&h, d, 15));
        }
        if (rank->number == 1 && shared->lost == i + 1)
            break;
    }
    bool waits = shared->lost && rank->number != 1;
    for (uint32_t d = 0; d < PER_RANK; d++)
        bench_mark(h.queue[d]);
    for (uint32_t d = 0; d < PER_RANK; d++)
        while (waits ? !h.device->health(h.queue[d], error, sizeof error) : !bench_done(h.queue[d]))
            ranks_pause(1);
    if (waits)
        RANK_IS(rank, strstr(error, "does not come to collective"), "%s", error);
    for (uint32_t d = 0; d < PER_RANK; d++) {
        ((float *)rank->result)[d] = get(&h, d, MEETINGS);
        RANK_IS(rank, waits || get(&h, d, 15) == (float)(base + 1 - d), "another value came");
    }
    if (waits)
        abort_all(&h);
    halls_free(&h);
    fake_seen seen = fake_close();
    RANK_IS(rank, !seen.misuses && !*seen.race, "%s%s", seen.misuse, seen.race);
}

static void run_ranks(int count, uint64_t seed, uint32_t lost)
{
    struct shared_hall shared = {.board = fake_board_new(), .seed = seed, .lost = lost};
    uint32_t members = (uint32_t)count * PER_RANK;
    struct ranks *ranks = ranks_run(meet_as_rank, &shared, .count = count, .result_bytes = PER_RANK * sizeof(float));
    for (uint32_t m = 0; m < members && !lost; m++)
        cr_expect_eq(((float *)ranks->rank[m / PER_RANK].result)[m % PER_RANK],
                     (float)((m + MEETINGS * members - MEETINGS) % members), "seed %d, member %u", (int)seed, m);
    ranks_free(ranks);
    fake_board_free(shared.board);
}

Test(fake_meet, members_of_several_processes_meet)
{
    for (uint64_t seed = 0; seed < SEEDS / 3; seed++)
        run_ranks(2 + (int)(seed % 2), seed, 0);
}

Test(fake_meet, who_waits_for_a_lost_process_fails)
{
    run_ranks(2, 1, 4);
    run_ranks(3, 2, 2);
}

static void differ_as_rank(struct rank *rank)
{
    fake_options options = {.board = rank->ctx};
    uint32_t me = (uint32_t)rank->number;
    char error[200] = "";
    struct halls h = halls_open(&options, 0, 1);
    struct device_group *group = join(&h, 0, 1, me, 2);
    pass_on(&h, 0, group, 3 + me, 1 - me, 1 - me, slot(&h, 0, 0), slot(&h, 0, 1));
    while (!h.device->health(h.queue[0], error, sizeof error))
        ranks_pause(1);
    RANK_IS(rank, strstr(error, me ? "member 1 is at collective 4 and member 0 at 3" : "member 0 is at collective 3 and"), "%s",
            error);
    abort_all(&h);
    halls_free(&h);
    fake_seen seen = fake_close();
    RANK_IS(rank, seen.misuses == 1, "%s", seen.misuse);
}

Test(fake_meet, processes_at_different_collectives_are_told_of)
{
    struct fake_board *board = fake_board_new();
    ranks_free(ranks_run(differ_as_rank, board, .count = 2));
    fake_board_free(board);
}
