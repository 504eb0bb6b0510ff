/* tests/regst/test_fake_meet.c: groups of the fake accelerator (tests/support/fake.h): what members give is taken, in one
 * process and in several, in whatever order the device takes things in; and members that are not at one meeting do not meet. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/effort.h"
#include "tests/support/halls.h"
#include "tests/support/ranks.h"

TestSuite(fake_meet, .timeout = 120);

enum { SEEDS = EFFORT(40, 15, 6) };

/* ---- what is given is taken ---- */

Test(fake_meet, values_go_round_a_ring)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = halls_drawn(seed);
        struct halls h = halls_open(&options, 0, 2 + (uint32_t)(seed % 3));
        struct device_group **groups = halls_join_all(&h, 1);
        for (uint32_t d = 0; d < h.count; d++)
            halls_put(&h, d, 0, (float)(10 + d));
        for (uint32_t i = 0; i < 6; i++)
            halls_ring(&h, groups, i % 4, i, i + 1);
        halls_finish(&h);
        for (uint32_t d = 0; d < h.count; d++)
            for (uint32_t i = 0; i < 7; i++)
                cr_expect_eq(halls_get(&h, d, i), (float)(10 + (d + 6 * h.count - i) % h.count), "seed %d", (int)seed);
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
            in[i] = bench_view(halls_slot(h, d, i));
        for (uint32_t i = 0; i < 6; i++)
            out[i] = bench_view(halls_slot(h, d, 4 + i));
        struct device_meeting meeting = {.group = groups[d], .number = 9, .gives = gives, .give_count = 6,
                                         .takes = takes, .take_count = 6};
        cr_assert_eq(halls_meet(h->queue[d], &meeting, in, 2, out, 6), WEIR_OK);
    }
}

Test(fake_meet, several_moves_between_two_members_keep_their_order)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = halls_drawn(seed);
        struct halls h = halls_open(&options, 0, 3);
        struct device_group **groups = halls_join_all(&h, 1);
        for (uint32_t d = 0; d < 3; d++)
            for (uint32_t i = 0; i < 2; i++)
                halls_put(&h, d, i, (float)(10 * d + i));
        gather_pairs(&h, groups);
        halls_finish(&h);
        for (uint32_t d = 0; d < 3; d++)
            for (uint32_t i = 0; i < 6; i++) /* a member 1 is given the second one first */
                cr_expect_eq(halls_get(&h, d, 4 + i), (float)(10 * (i / 2) + (d == 1 ? 1 - i % 2 : i % 2)));
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

static void add_up(struct halls *h, weir_dtype dtype, enum device_collective kind)
{
    struct device_group **groups = halls_join_all(h, 3);
    int64_t part = BENCH_ITEMS / (kind == DEVICE_REDUCE_SCATTER ? (int64_t)h->count : 1);
    for (uint32_t d = 0; d < h->count; d++) {
        float values[BENCH_ITEMS];
        char bytes[BENCH_BYTES] = {0};
        for (int i = 0; i < BENCH_ITEMS; i++)
            values[i] = summand(d, i);
        weir_from_f32(values, BENCH_ITEMS, dtype, bytes);
        h->device->copy_in(halls_slot(h, d, 0), bytes, BENCH_BYTES);
    }
    for (uint32_t d = 0; d < h->count; d++) {
        weir_view in = halls_vector(halls_slot(h, d, 0), dtype, BENCH_ITEMS), out = halls_vector(halls_slot(h, d, 1), dtype, part);
        struct device_meeting meeting = {.group = groups[d], .number = 2, .kind = kind};
        cr_assert_eq(halls_meet(h->queue[d], &meeting, &in, 1, &out, 1), WEIR_OK);
    }
    halls_finish(h);
    for (uint32_t d = 0; d < h->count; d++)
        for (int i = 0; i < part; i++) {
            int64_t at = i + (kind == DEVICE_REDUCE_SCATTER ? (int64_t)d * part : 0);
            float got, want = sum_in_order(h->count, (int)at);
            char rounded[8];
            weir_to_f32(dtype, (char *)fake_reach(halls_slot(h, d, 1)) + (size_t)i * weir_dtype_bytes(dtype), 1, &got);
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
        fake_options options = halls_drawn(seed);
        struct halls h = halls_open(&options, 0, seed % 4 < 2 ? 2 : 4);
        add_up(&h, seed % 3 == 2 ? WEIR_BF16 : WEIR_F32, seed % 2 ? DEVICE_ALL_REDUCE : DEVICE_REDUCE_SCATTER);
        halls_close(&h);
    }
}

Test(fake_meet, several_sums_are_one_meeting)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = halls_drawn(seed);
        struct halls h = halls_open(&options, 0, 3);
        struct device_group **groups = halls_join_all(&h, 3);
        for (uint32_t d = 0; d < 3; d++) {
            struct device_meeting meeting = {.group = groups[d], .number = 2, .kind = DEVICE_ALL_REDUCE};
            weir_view in[2], out[2];
            for (uint32_t i = 0; i < 2; i++) {
                halls_put(&h, d, i, (float)(10 * i + d));
                in[i] = bench_view(halls_slot(&h, d, i));
                out[i] = bench_view(halls_slot(&h, d, 2 + i));
            }
            cr_assert_eq(halls_meet(h.queue[d], &meeting, in, 2, out, 2), WEIR_OK);
        }
        halls_finish(&h);
        for (uint32_t d = 0; d < 3; d++) {
            cr_expect_eq(halls_get(&h, d, 2), 3);
            cr_expect_eq(halls_get(&h, d, 3), 33);
        }
        halls_close(&h);
    }
}

Test(fake_meet, members_that_add_other_numbers_of_things_are_told_of)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = halls_join_all(&h, 3);
    for (uint32_t d = 0; d < 2; d++) {
        struct device_meeting meeting = {.group = groups[d], .number = 2, .kind = DEVICE_ALL_REDUCE};
        weir_view in[] = {bench_view(halls_slot(&h, d, 0)), bench_view(halls_slot(&h, d, 1))};
        weir_view out[] = {bench_view(halls_slot(&h, d, 2)), bench_view(halls_slot(&h, d, 3))};
        cr_assert_eq(halls_meet(h.queue[d], &meeting, in, 1 + (int)d, out, 1 + (int)d), WEIR_OK);
        bench_mark(h.queue[d]);
    }
    halls_expect_ill(h.queue[0], "does not give what member 0 takes");
    halls_abort(&h);
    halls_expect_misuse(&h, "members differ");
}

/* ---- who does not meet ---- */

Test(fake_meet, a_member_waits_for_the_others)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = halls_join_all(&h, 1);
    halls_put(&h, 0, 0, 5);
    halls_put(&h, 1, 0, 6);
    halls_pass_on(&h, 0, groups[0], 1, 1, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1));
    uint64_t mine = bench_mark(h.queue[0]);
    for (int i = 0; i < 20; i++) {
        ranks_pause(1);
        cr_assert_eq(bench_done(h.queue[0]), 0);
    }
    halls_pass_on(&h, 1, groups[1], 1, 0, 0, halls_slot(&h, 1, 0), halls_slot(&h, 1, 1));
    bench_wait(h.queue[0], mine);
    bench_finish(h.queue[1]);
    cr_expect_eq(halls_get(&h, 0, 1), 6);
    cr_expect_eq(halls_get(&h, 1, 1), 5);
    halls_close(&h);
}

Test(fake_meet, members_at_different_collectives_are_told_of)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = halls_drawn(seed);
        struct halls h = halls_open(&options, 0, 2);
        struct device_group **groups = halls_join_all(&h, 7);
        halls_ring(&h, groups, 4, 0, 1);
        for (uint32_t d = 0; d < 2; d++) {
            halls_pass_on(&h, d, groups[d], 5 + d, 1 - d, 1 - d, halls_slot(&h, d, 0), halls_slot(&h, d, 1));
            bench_mark(h.queue[d]);
        }
        halls_expect_ill(h.queue[0], "in group 7 member 0 is at collective 5 and member 1 at 6");
        halls_expect_ill(h.queue[1], "in group 7 member 1 is at collective 6 and member 0 at 5");
        cr_expect_eq(halls_done(&h), 0);
        halls_abort(&h);
        halls_expect_misuse(&h, "members differ");
    }
}

Test(fake_meet, members_that_do_different_things_are_told_of)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = halls_join_all(&h, 7);
    weir_view in = bench_view(halls_slot(&h, 0, 0)), out = bench_view(halls_slot(&h, 0, 1));
    halls_meet(h.queue[0], &(struct device_meeting){.group = groups[0], .number = 4, .kind = DEVICE_ALL_REDUCE}, &in, 1, &out, 1);
    halls_pass_on(&h, 1, groups[1], 4, 0, 0, halls_slot(&h, 1, 0), halls_slot(&h, 1, 1));
    halls_expect_ill(h.queue[0], "another kind");
    halls_expect_ill(h.queue[1], "another kind");
    halls_expect_misuse(&h, "another kind");
}

Test(fake_meet, members_that_do_not_agree_on_bytes_are_told_of)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = halls_join_all(&h, 7);
    weir_view in = halls_vector(halls_slot(&h, 0, 0), WEIR_F32, BENCH_ITEMS - 1), out = bench_view(halls_slot(&h, 0, 1));
    struct device_meeting meeting = {.group = groups[0], .number = 4, .gives = &halls_to_peer[1], .give_count = 1,
                                     .takes = &halls_to_peer[1], .take_count = 1};
    halls_meet(h.queue[0], &meeting, &in, 1, &out, 1);
    halls_pass_on(&h, 1, groups[1], 4, 0, 0, halls_slot(&h, 1, 0), halls_slot(&h, 1, 1));
    bench_finish(h.queue[0]);
    halls_expect_ill(h.queue[1], "member 0 does not give what member 1 takes");
    halls_expect_misuse(&h, "members differ");
}

Test(fake_meet, what_nobody_takes_is_told_of)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = halls_join_all(&h, 7);
    weir_view in = bench_view(halls_slot(&h, 1, 0));
    halls_pass_on(&h, 0, groups[0], 4, 1, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1));
    halls_meet(h.queue[1], &(struct device_meeting){.group = groups[1], .number = 4, .gives = &halls_to_peer[0], .give_count = 1}, &in, 1,
         NULL, 0);
    bench_finish(h.queue[0]);
    halls_expect_ill(h.queue[1], "member 0 does not give what member 1 takes");
    halls_expect_misuse(&h, "members differ");
}

/* Two groups of the same devices, which one device's queue meets in another order. */
static void cross(struct halls *h, bool crossed)
{
    struct device_group **one = halls_join_all(h, 1), **two = halls_join_all(h, 2);
    for (uint32_t d = 0; d < 2; d++)
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t which = crossed && d ? 1 - i : i;
            halls_pass_on(h, d, (which ? two : one)[d], which, 1 - d, 1 - d, halls_slot(h, d, which), halls_slot(h, d, 2 + which));
        }
    for (uint32_t d = 0; d < 2; d++)
        bench_mark(h->queue[d]);
}

Test(fake_meet, orders_that_cross_never_end)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_options options = halls_drawn(seed);
        struct halls h = halls_open(&options, 0, 2);
        cross(&h, false);
        for (uint32_t d = 0; d < 2; d++)
            bench_wait(h.queue[d], 1);
        halls_close(&h);
        options.meet_ms = 20;
        h = halls_open(&options, 0, 2);
        cross(&h, true);
        halls_expect_ill(h.queue[0], "member 1 of group 1 does not come to collective 0");
        halls_expect_ill(h.queue[1], "member 0 of group 2 does not come to collective 1");
        cr_expect_eq(halls_done(&h), 0);
        halls_abort(&h);
        halls_close(&h);
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
    fake_options options = halls_drawn(shared->seed + (uint64_t)rank->number);
    uint32_t members = (uint32_t)rank->count * PER_RANK, base = (uint32_t)rank->number * PER_RANK;
    struct device_group *all[PER_RANK], *own[PER_RANK];
    char error[200] = "";
    options.board = shared->board;
    options.meet_ms = shared->lost ? 200 : 0;
    struct halls h = halls_open(&options, base, PER_RANK);
    for (uint32_t d = 0; d < PER_RANK; d++) {
        all[d] = halls_join(&h, d, 1, base + d, members);
        own[d] = halls_join(&h, d, 2 + (uint32_t)rank->number, d, PER_RANK);
        halls_put(&h, d, 0, (float)(base + d));
    }
    for (uint32_t i = 0; i < MEETINGS; i++) {
        for (uint32_t d = 0; d < PER_RANK && (rank->number != 1 || shared->lost != i + 1); d++) {
            uint32_t m = base + d;
            halls_pass_on(&h, d, all[d], i, (m + 1) % members, (m + members - 1) % members, halls_slot(&h, d, i), halls_slot(&h, d, i + 1));
            halls_pass_on(&h, d, own[d], i, 1 - d, 1 - d, halls_slot(&h, d, 0), halls_slot(&h, d, 15));
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
        ((float *)rank->result)[d] = halls_get(&h, d, MEETINGS);
        RANK_IS(rank, waits || halls_get(&h, d, 15) == (float)(base + 1 - d), "another value came");
    }
    if (waits)
        halls_abort(&h);
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
    struct device_group *group = halls_join(&h, 0, 1, me, 2);
    halls_pass_on(&h, 0, group, 3 + me, 1 - me, 1 - me, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1));
    while (!h.device->health(h.queue[0], error, sizeof error))
        ranks_pause(1);
    RANK_IS(rank, strstr(error, me ? "member 1 is at collective 4 and member 0 at 3" : "member 0 is at collective 3 and"), "%s",
            error);
    halls_abort(&h);
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
