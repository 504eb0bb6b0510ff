/* tests/graph/plan/test_lives.c: what lives.h proves is held against games that know nothing of it.
 *
 * Random plans, with rates, cycles and any number of slots, are played with a marker on every stretch of bytes
 * (tests/support/byte_game.h), in many orders, several steps without a pause. Parts that lives.h calls apart are laid over
 * each other, as many as will go: no game may find two of them needed at once. And the other way round: a pair that it
 * does not call apart is refused by plan_validate(), and most of them are found by a game.
 */
#include "graph/base/error.h"
#include "graph/plan/prove/check.h"
#include "graph/plan/prove/ends.h"
#include "graph/plan/lives/lives.h"
#include "tests/support/byte_game.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/sdf.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20261122, ACTORS_MAX = 7, REGSTS_MAX = 12, GAMES = 12 };

static uint32_t below(uint64_t *random, uint32_t limit)
{
    return (uint32_t)(mutate_draw(random) % limit);
}

/* Either all firings of a step fill one slot, or each fills one. */
static void add_edge(sdf *s, const uint32_t *fires, const uint32_t *actor, uint32_t from, uint32_t to, uint64_t *random)
{
    bool once = fires[from] == 1 || fires[to] == 1 || !below(random, 4);
    uint32_t slots = below(random, 4) ? 1 : 2 + below(random, 2);
    uint32_t initial = from >= to ? 1 + below(random, slots) : below(random, 6) ? 0 : below(random, slots + 1);
    uint32_t regst = sdf_regst(s, actor[from], .slots = slots, .initial = initial, .fill = once ? fires[from] : 1,
                               .items = 16 * (1 + below(random, 4)));
    sdf_port(s, actor[to], regst, .hold = once ? fires[to] : 1);
    uint32_t more = below(random, fires[from] > 1 ? 1 : 2) ? below(random, 2) + to : to;
    if (more != to && more < ACTORS_MAX && more > from && actor[more] != SDF_NOBODY && (fires[more] == fires[to]))
        sdf_port(s, actor[more], regst, .hold = once ? fires[more] : 1);
}

/* Edges go forward, but for a few that start with something in them. Most plans are one chain that is closed to a circle,
 * as training steps are, and more. */
static void add_random(sdf *s, uint32_t program, uint32_t micro, const uint32_t *queue, uint32_t queues, uint64_t *random)
{
    uint32_t actors = 2 + below(random, ACTORS_MAX - 1), actor[ACTORS_MAX + 1], fires[ACTORS_MAX + 1];
    memset(actor, 0xff, sizeof actor);
    for (uint32_t a = 0; a < actors; a++) {
        char name[16];
        snprintf(name, sizeof name, "a%" PRIu32, a);
        fires[a] = below(random, 3) ? micro : 1;
        actor[a] = sdf_actor(s, queue[below(random, queues)], name, .fires = fires[a], .program = program);
    }
    bool chain = below(random, 3);
    for (uint32_t a = 0; a + 1 < actors && chain; a++)
        add_edge(s, fires, actor, a, a + 1, random);
    if (chain)
        add_edge(s, fires, actor, actors - 1, 0, random);
    for (uint32_t e = 0, edges = below(random, REGSTS_MAX - actors); e < edges; e++) {
        uint32_t a = below(random, actors), b = below(random, actors);
        bool back = !below(random, 4);
        add_edge(s, fires, actor, (a < b) != back ? a : b, (a < b) != back ? b : a, random);
    }
}

static weir_plan *random_programs(uint64_t *random, int programs)
{
    uint32_t micro = 1 + below(random, 3), queues = 1 + below(random, 3), queue[3];
    sdf *s = sdf_new("random", micro);
    for (uint32_t q = 0; q < queues; q++)
        queue[q] = sdf_device(s);
    for (int p = 0; p < programs; p++)
        add_random(s, p ? sdf_program(s, "other") : 0, micro, queue, queues, random);
    return sdf_plan(s);
}

static weir_plan *random_plan(uint64_t *random)
{
    return random_programs(random, 1);
}

static bool is_live(const weir_plan *plan)
{
    check_result result;
    return plan_validate(plan) == WEIR_OK && check_play(plan, &result) == WEIR_OK && result.live;
}

static lives *lives_of(const weir_plan *plan, plan_space_id space)
{
    lives *known = lives_new(plan);
    cr_assert(known && lives_enter(known, space), "%s", weir_error());
    return known;
}

static uint64_t bytes_of(const weir_plan *plan, uint32_t r)
{
    return plan->regsts[r].slots * plan->regsts[r].slot_bytes;
}

static bool apart(const lives *known, uint32_t a, uint32_t b)
{
    const life one = {.regst = {a}, .actor = {PLAN_NONE}}, other = {.regst = {b}, .actor = {PLAN_NONE}};
    bool result = lives_apart(known, &one, &other);
    cr_assert_eq(result, lives_apart(known, &other, &one), "of two registers each is apart from the other");
    return result;
}

/* The lowest place for register r over those below it that it is apart from; `done` have a place. */
static void drop_register(weir_plan *plan, const lives *known, uint32_t r, const uint32_t *done, uint32_t count)
{
    bool moved = true;
    plan->regsts[r].offset = 0;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < count; i++) {
            plan_regst *x = &plan->regsts[r];
            const plan_regst *y = &plan->regsts[done[i]];
            bool meet = x->offset < y->offset + bytes_of(plan, done[i]) && y->offset < x->offset + bytes_of(plan, r);
            if (!meet || apart(known, r, done[i]))
                continue;
            x->offset = y->offset + bytes_of(plan, done[i]);
            moved = true;
        }
    }
}

/* Lays the registers of a space over each other, in random order; returns how many bytes are shared. */
static uint64_t overlay_space(weir_plan *plan, uint32_t space, uint64_t *random)
{
    uint32_t done[2 * REGSTS_MAX], count = 0;
    uint64_t sum = 0, top = 0;
    lives *known = lives_of(plan, (plan_space_id){space});
    uint32_t first = plan->regsts_count ? below(random, plan->regsts_count) : 0;
    for (uint32_t i = 0; i < plan->regsts_count; i++) {
        uint32_t r = (i + first) % plan->regsts_count;
        if (plan->regsts[r].space.i != space)
            continue;
        drop_register(plan, known, r, done, count);
        done[count++] = r;
        sum += bytes_of(plan, r);
        uint64_t end = plan->regsts[r].offset + bytes_of(plan, r);
        top = end > top ? end : top;
    }
    plan->spaces[space].bytes = top;
    for (uint32_t q = 0; q < plan->queues_count; q++)
        plan->queues[q].workspace_offset = plan->queues[q].space.i == space ? 0 : plan->queues[q].workspace_offset;
    lives_free(known);
    return sum - top;
}

static void expect_games(const weir_plan *plan, uint64_t seed, int round)
{
    char why[256];
    cr_assert(byte_game_all(plan, seed, GAMES, why), "seed %d, round %d: %s", SEED, round, why);
}

Test(lives, what_is_proven_apart_is_never_needed_at_once_in_random_plans, .timeout = 120)
{
    enum { ROUNDS = 6000 };
    uint64_t random = SEED, shared = 0;
    int live = 0, sharing = 0;
    for (int round = 0; round < ROUNDS; round++) {
        weir_plan *plan = random_plan(&random);
        if (is_live(plan)) {
            uint64_t before = shared;
            expect_games(plan, random, round);
            for (uint32_t s = 0; s < plan->spaces_count; s++)
                shared += overlay_space(plan, s, &random);
            cr_assert_eq(plan_validate(plan), WEIR_OK, "seed %d, round %d: %s", SEED, round, weir_error());
            expect_games(plan, random, round);
            live++;
            sharing += shared > before;
        }
        weir_plan_free(plan);
    }
    cr_assert_gt(live, ROUNDS / 4, "%d of %d plans are live", live, ROUNDS);
    cr_assert_gt(sharing, live / 8, "%d of %d plans share bytes", sharing, live);
}

/* Puts b over a, at the end of the arena, where nothing else is. */
static void lay_over(weir_plan *plan, uint32_t a, uint32_t b)
{
    plan_space *space = &plan->spaces[plan->regsts[a].space.i];
    uint64_t more = bytes_of(plan, a) > bytes_of(plan, b) ? bytes_of(plan, a) : bytes_of(plan, b);
    plan->regsts[a].offset = plan->regsts[b].offset = space->bytes;
    space->bytes += more;
}

Test(lives, two_registers_that_are_not_apart_are_refused_by_name_and_most_are_found_by_a_game, .timeout = 120)
{
    enum { ROUNDS = 3000 };
    uint64_t random = SEED + 1;
    int refused = 0, found = 0;
    for (int round = 0; round < ROUNDS; round++) {
        weir_plan *plan = random_plan(&random);
        uint32_t a = plan->regsts_count ? below(&random, plan->regsts_count) : 0;
        uint32_t b = plan->regsts_count ? below(&random, plan->regsts_count) : 0;
        lives *known = a != b && is_live(plan) && plan->regsts[a].space.i == plan->regsts[b].space.i
                           ? lives_of(plan, plan->regsts[a].space) : NULL;
        if (known && !apart(known, a, b)) {
            char why[256], one[32], other[32];
            snprintf(one, sizeof one, "regsts[%" PRIu32 "]", a);
            snprintf(other, sizeof other, "regsts[%" PRIu32 "]", b);
            lay_over(plan, a, b);
            cr_assert_eq(plan_validate(plan), WEIR_E_PLAN, "round %d", round);
            cr_expect(strstr(weir_error(), one) && strstr(weir_error(), other), "%s", weir_error());
            refused++;
            found += !byte_game_all(plan, random, 4 * GAMES, why);
        }
        lives_free(known);
        weir_plan_free(plan);
    }
    cr_assert_gt(refused, 50);
    cr_assert_gt(10 * found, 9 * refused, "%d of %d pairs were found by a game", found, refused);
}

/* A device on which a -(one)-> b --> c -(other)-> d --> a: what a makes and what c makes are apart. */
static void add_round(sdf *s, uint32_t registers[2])
{
    uint32_t queue = sdf_device(s), actor[4];
    for (int a = 0; a < 4; a++)
        actor[a] = sdf_actor(s, queue, "round");
    for (int a = 0; a < 4; a++) {
        uint32_t regst = sdf_regst(s, actor[a], .initial = a == 3, .items = a % 2 ? 0 : 16);
        sdf_port(s, actor[(a + 1) % 4], regst);
        if (a % 2 == 0)
            registers[a / 2] = regst;
    }
}

static weir_plan *rounds(uint32_t count)
{
    sdf *s = sdf_new("rounds", 1);
    uint32_t registers[2];
    for (uint32_t i = 0; i < count; i++)
        add_round(s, registers);
    return sdf_plan(s);
}

/* Lays what each space has at its bottom. */
static void lay_together(weir_plan *plan)
{
    uint64_t *end = calloc(plan->spaces_count + (size_t)1, sizeof *end);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        plan->regsts[r].offset = 0;
    for (uint32_t q = 0; q < plan->queues_count; q++)
        plan->queues[q].workspace_offset = 0; /* they are empty */
    plan_space_ends(plan, end);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        plan->spaces[s].bytes = end[s];
    free(end);
}

/* Each space costs a walk through all of the plan. A plan of thousands would keep a reader busy for minutes, so after
 * some the others are not proven. */
Test(lives, what_may_be_proven_is_bounded_by_the_size_of_the_plan, .timeout = 60)
{
    enum { FEW = 20, MANY = 3000 };
    weir_plan *few = rounds(FEW), *many = rounds(MANY);
    lay_together(few);
    cr_expect_eq(plan_validate(few), WEIR_OK, "%s", weir_error());
    lay_together(many);
    cr_expect_eq(plan_validate(many), WEIR_E_PLAN);
    cr_expect_not_null(strstr(weir_error(), "may be needed at the same time"), "%s", weir_error());
    weir_plan_free(few);
    weir_plan_free(many);
}

/* One number after the other is changed and put back. */
Test(lives, are_of_a_plan_that_differs_in_offsets_alone, .timeout = 60)
{
    uint64_t random = SEED + 2;
    weir_plan *plan = rounds(3), *other = rounds(3);
    lives *known = lives_of(plan, (plan_space_id){1});
    cr_expect(lives_are_of(known, plan) && lives_are_of(known, other));
    for (uint32_t r = 0; r < other->regsts_count; r++)
        other->regsts[r].offset = 64 * below(&random, 100);
    other->spaces[1].bytes *= 2;
    cr_expect(lives_are_of(known, other));
    uint32_t *const read_off[] = {&other->regsts[1].slots,    &other->regsts[2].initial, &other->regsts[0].fill,
                                  &other->regsts[0].space.i,  &other->ports[1].hold,     &other->ports[2].regst.i,
                                  &other->actors[0].fires,    &other->actors[1].queue.i, &other->queues[2].kind,
                                  &other->regsts[3].producer.i, &other->queues[0].space.i, &other->spaces[1].rank,
                                  &other->micro_batches,      &other->part};
    for (size_t i = 0; i < sizeof read_off / sizeof *read_off; i++) {
        *read_off[i] ^= 1;
        cr_expect_not(lives_are_of(known, other), "change %zu", i);
        *read_off[i] ^= 1;
        cr_expect(lives_are_of(known, other), "change %zu", i);
    }
    lives_free(known);
    weir_plan_free(plan);
    weir_plan_free(other);
}

/* Spaces are entered in any order, and again: what is known of one does not depend on it. */
Test(lives, are_the_same_whichever_space_is_entered_first, .timeout = 60)
{
    uint64_t random = SEED + 3;
    int pairs = 0;
    for (int round = 0; round < 300; round++) {
        weir_plan *plan = random_plan(&random);
        lives *all = is_live(plan) ? lives_new(plan) : NULL;
        for (uint32_t s = plan->spaces_count; all && s-- > 0;) {
            lives *one = lives_of(plan, (plan_space_id){s});
            cr_assert(lives_enter(all, (plan_space_id){below(&random, plan->spaces_count)}));
            cr_assert(lives_enter(all, (plan_space_id){s}));
            for (uint32_t a = 0; a < plan->regsts_count; a++)
                for (uint32_t b = 0; b < a; b++)
                    if (plan->regsts[a].space.i == s && plan->regsts[b].space.i == s) {
                        cr_assert_eq(apart(all, a, b), apart(one, a, b), "round %d", round);
                        pairs += apart(one, a, b);
                    }
            lives_free(one);
        }
        lives_free(all);
        weir_plan_free(plan);
    }
    cr_expect_gt(pairs, 50);
}

/* Parts of a space, drawn: registers and workspaces. More than 64 of them, so that there are several squares. */
static int draw_parts(const weir_plan *plan, const lives *known, uint32_t space, uint64_t *random, life_known *part, int most)
{
    int count = 0;
    for (int draw = 0; draw < 8 * most && count < most; draw++) {
        uint32_t r = below(random, plan->regsts_count + plan->actors_count), a = r - plan->regsts_count;
        life of = r < plan->regsts_count ? (life){.regst = {r}, .actor = {PLAN_NONE}} : (life){.regst = {PLAN_NONE}, .actor = {a}};
        if ((r < plan->regsts_count ? plan->regsts[r].space.i : plan_actor_space(plan, a).i) == space)
            part[count++] = lives_look(known, of);
    }
    return count;
}

static int expect_pairs(const weir_plan *plan, uint32_t space, uint64_t *random, int round)
{
    enum { PARTS = 150 };
    life_known part[PARTS];
    uint64_t meet[PARTS * (PARTS / 64 + 1)];
    lives *known = lives_of(plan, (plan_space_id){space});
    int apart_count = 0, count = draw_parts(plan, known, space, random, part, PARTS - (int)below(random, 40));
    memset(meet, 0xff, sizeof meet);
    lives_pairs(known, part, count, meet);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            bool both_work = part[i].life.regst.i == PLAN_NONE && part[k].life.regst.i == PLAN_NONE;
            bool is_apart = i == k || lives_apart_known(known, &part[i], &part[k]);
            bool found = !(meet[i * ((count + 63) / 64) + k / 64] >> k % 64 & 1);
            cr_assert(both_work || found == is_apart, "seed %d, round %d: parts %d and %d of %d", SEED, round, i, k, count);
            apart_count += i != k && is_apart;
        }
    lives_free(known);
    return apart_count;
}

Test(lives, all_pairs_at_once_are_as_each_pair_alone, .timeout = 120)
{
    uint64_t random = SEED + 4, pairs = 0;
    for (int round = 0; round < 300; round++) {
        weir_plan *plan = random_programs(&random, 1 + round % 2);
        for (uint32_t s = 0; is_live(plan) && s < plan->spaces_count; s++)
            pairs += (uint64_t)expect_pairs(plan, s, &random, round);
        weir_plan_free(plan);
    }
    cr_expect_gt(pairs, 100000);
}

/* c begins with the slot that is full at the start, whatever a has done; so p, which waits for c's reader of the firing
 * before, may fill what a reads while q reads what c makes. */
Test(lives, a_slot_that_starts_full_is_not_waited_for, .timeout = 120)
{
    enum { MICRO = 2 };
    sdf *s = sdf_new("full", MICRO);
    uint32_t queue[4], actor[4]; /* p, a, c, q */
    for (int i = 0; i < 4; i++) {
        queue[i] = sdf_device(s);
        actor[i] = sdf_actor(s, queue[0], "actor", .fires = MICRO);
    }
    uint32_t filled = sdf_regst(s, actor[0], .items = 16);
    sdf_port(s, actor[1], filled);
    sdf_port(s, actor[2], sdf_regst(s, actor[1], .initial = 1, .slots = 2, .fill = MICRO), .hold = MICRO);
    sdf_port(s, actor[3], sdf_regst(s, actor[2], .items = 16));
    sdf_port(s, actor[0], sdf_regst(s, actor[3], .initial = 1));
    weir_plan *plan = sdf_plan(s);
    uint32_t large[2], found = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].slot_bytes)
            large[found++] = r;
    cr_assert_eq(found, 2);
    lives *known = lives_of(plan, (plan_space_id){0});
    cr_expect_not(apart(known, large[0], large[1]));
    lives_free(known);
    weir_plan_free(plan);
}
