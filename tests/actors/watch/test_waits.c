/* tests/actors/watch/test_waits.c: who waits for whom, over ranks: entries in, text out. No session runs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/watch/waits.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"

#define SECOND INT64_C(1000000000)

#define SAYS(text, part) cr_assert(strstr(text, part), "'%s' does not say '%s'", text, part)
#define SAYS_NOT(text, part) cr_assert(!strstr(text, part), "'%s' says '%s'", text, part)

/* tokens -> s0 -> s1 -> ... -> loss, the stages in turn on so many devices, of which each is a rank. */
struct line {
    weir_plan *plan;
    struct waits waits;
    uint32_t worker_of[16];
    char text[8192];
};

static struct line *line_new(uint32_t stages, uint32_t ranks)
{
    struct line *line = calloc(1, sizeof(*line));
    cr_assert_not_null(line);
    test_ops();
    sdf *s = sdf_new("line", 1);
    uint32_t queue[4], outside;
    for (uint32_t r = 0; r < ranks; r++)
        queue[r] = sdf_device(s);
    outside = sdf_outside(s, queue[0]);
    uint32_t last = sdf_actor(s, outside, "tokens", .host_kind = 1 + PLAN_PUSH);
    for (uint32_t i = 0; i < stages; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%u", i);
        uint32_t stage = sdf_actor(s, queue[i % ranks], name, .kernel = "test_sum");
        sdf_port(s, stage, sdf_regst(s, last, .items = 1));
        last = stage;
    }
    sdf_port(s, sdf_actor(s, outside, "loss", .host_kind = 1 + PLAN_PULL), sdf_regst(s, last, .items = 1));
    weir_plan *whole = sdf_plan(s);
    line->plan = plan_spread(whole, ranks, 1);
    cr_assert_not_null(line->plan, "%s", weir_error());
    weir_plan_free(whole);
    cr_assert_eq(waits_open(&line->waits, line->plan, line->worker_of, 0), WEIR_OK, "%s", weir_error());
    return line;
}

static void line_free(struct line *line)
{
    waits_close(&line->waits);
    weir_plan_free(line->plan);
    free(line);
}

/* The register that stage i produces; of tokens for i = -1. tokens is actor 0, stage i actor 1 + i. */
static uint32_t made_by(const struct line *line, int i)
{
    return line->plan->actors[1 + i].regsts.first;
}

static const char *say(struct line *line)
{
    struct waits_facts facts = {.stalled_ns = 2 * SECOND, .steps_end = 100, .silent_rank = 1,
                                .silent_ns = 31 * SECOND / 10};
    size_t used = waits_text(&line->waits, &facts, line->text, sizeof(line->text));
    cr_assert_eq(used, strlen(line->text));
    return line->text;
}

Test(waits, a_chain_is_followed_over_ranks, .timeout = 120)
{
    struct line *line = line_new(4, 2);
    struct wait_entry of_0[] = {{1, made_by(line, -1), 7}, {3, made_by(line, 1), 7}};
    struct wait_entry of_1[] = {{2, made_by(line, 0), 7}, {4, made_by(line, 2), 6}};
    waits_put(&line->waits, 0, of_0, 2);
    cr_assert_not(waits_complete(&line->waits));
    waits_put(&line->waits, 1, of_1, 2);
    cr_assert(waits_complete(&line->waits));
    cr_assert_str_eq(say(line),
                     "nothing has fired for 2.0 s in step 6 of a run that ends after step 99:\n"
                     "  s3 (cpu:1, rank 1) waits for s2 (cpu:0, rank 0), which has not written its input for step 6\n"
                     "  s2 (cpu:0, rank 0) waits for s1 (cpu:1, rank 1), which has not written its input for step 7\n"
                     "  s1 (cpu:1, rank 1) waits for s0 (cpu:0, rank 0), which has not written its input for step 7\n"
                     "  s0 (cpu:0, rank 0) waits for tokens (cpu:0, rank 0), which has not written its input for step "
                     "7\n"
                     "  input \"tokens\" (model.c:100) of rank 0 is empty: nothing has been pushed for step 7\n");
    line_free(line);
}

Test(waits, a_rank_that_does_not_answer_ends_the_chain, .timeout = 120)
{
    struct line *line = line_new(3, 3);
    waits_put(&line->waits, 0, &(struct wait_entry){1, made_by(line, 0), 5}, 1);
    SAYS(say(line), "s0 (cpu:0, rank 0) waits for s1 (cpu:1, rank 1), which has not read what it wrote before\n"
                    "  rank 1 has been silent for 3.1 s\n");
    waits_put(&line->waits, 1, &(struct wait_entry){2, made_by(line, 1), 5}, 1);
    SAYS(say(line), "s1 (cpu:1, rank 1) waits for s2 (cpu:2, rank 2), which has not read what it wrote before\n"
                    "  rank 2 did not answer\n");
    waits_clear(&line->waits);
    SAYS(say(line), "no actor lacks anything; rank 0 did not answer; rank 1 has been silent for 3.1 s; rank 2");
    line_free(line);
}

Test(waits, a_rank_that_has_not_started_is_named, .timeout = 120)
{
    struct line *line = line_new(2, 2);
    waits_put(&line->waits, 0, &(struct wait_entry){1, made_by(line, 0), 5}, 1);
    waits_put(&line->waits, 1, NULL, 0);
    SAYS(say(line), "s0 (cpu:0, rank 0) waits for s1 (cpu:1, rank 1), which has not read what it wrote before\n"
                    "  s1 (cpu:1, rank 1) has no firings left: rank 1 has not started a run that goes so far\n");
    line_free(line);
}

Test(waits, a_kernel_of_another_rank_is_named, .timeout = 120)
{
    struct line *line = line_new(3, 3);
    waits_put(&line->waits, 0, &(struct wait_entry){1, made_by(line, 0), 5}, 1);
    waits_put(&line->waits, 1, &(struct wait_entry){2, PLAN_NONE, 4}, 1);
    waits_put(&line->waits, 2, &(struct wait_entry){3, made_by(line, 1), 4}, 1);
    SAYS(say(line), "\n  kernel of s1 (test_sum, model.c:102) on cpu:1 of rank 1 has been running for 2.0 s, "
                    "in step 4\n");
    line_free(line);
}

Test(waits, what_a_rank_says_again_takes_the_place_of_what_it_said, .timeout = 120)
{
    struct line *line = line_new(2, 2);
    waits_put(&line->waits, 1, &(struct wait_entry){2, PLAN_NONE, 4}, 1);
    waits_put(&line->waits, 0, &(struct wait_entry){1, made_by(line, -1), 5}, 1);
    waits_put(&line->waits, 1, &(struct wait_entry){2, made_by(line, 0), 5}, 1);
    SAYS_NOT(say(line), "kernel");
    SAYS(line->text, "\n  s1 (cpu:1, rank 1) waits for s0 (cpu:0, rank 0), ");
    line_free(line);
}

Test(waits, a_long_chain_is_told_from_both_ends, .timeout = 120)
{
    enum { STAGES = 200 };
    struct line *line = line_new(STAGES, 1);
    struct wait_entry entries[STAGES];
    for (int i = 0; i < STAGES; i++)
        entries[i] = (struct wait_entry){(uint32_t)i + 1, made_by(line, i - 1), 0};
    waits_put(&line->waits, 0, entries, STAGES);
    SAYS(say(line), "\n  s199 (cpu:0) waits for s198 (cpu:0), which");
    SAYS(line->text, "\n  s192 (cpu:0) waits for s191 (cpu:0), which has not written its input for step 0\n"
                     "  ... and so on for 176 more ...\n"
                     "  s15 (cpu:0) waits for s14 (cpu:0), which");
    SAYS(line->text, "\n  input \"tokens\" (model.c:100) is empty: nothing has been pushed for step 0\n");
    line_free(line);
}

/* Two readers of one register: the one that lacks it does not keep it full. */
Test(waits, the_reader_that_keeps_a_register_full_is_found, .timeout = 120)
{
    test_ops();
    sdf *s = sdf_new("fan", 1);
    uint32_t q = sdf_device(s), outside = sdf_outside(s, q), worker_of[4] = {0};
    uint32_t a = sdf_actor(s, q, "a", .kernel = "test_sum");
    uint32_t regst = sdf_regst(s, a, .items = 1);
    uint32_t b = sdf_actor(s, q, "b", .kernel = "test_sum"), c = sdf_actor(s, q, "c", .kernel = "test_sum");
    uint32_t x = sdf_actor(s, outside, "x", .host_kind = 1 + PLAN_PUSH);
    sdf_port(s, b, regst);
    sdf_port(s, c, regst);
    sdf_port(s, c, sdf_regst(s, x, .items = 1));
    weir_plan *plan = sdf_plan(s);
    struct waits waits;
    char text[2048];
    cr_assert_eq(waits_open(&waits, plan, worker_of, 0), WEIR_OK);
    uint32_t of_a = plan->actors[a].regsts.first, of_x = plan->actors[x].regsts.first;
    struct wait_entry entries[] = {{a, of_a, 3}, {b, of_a, 3}, {c, of_x, 2}};
    waits_put(&waits, 0, entries, 3);
    waits_text(&waits, &(struct waits_facts){.steps_end = 9, .silent_rank = UINT32_MAX}, text, sizeof(text));
    SAYS(text, "\n  b (cpu:0) waits for a (cpu:0), which has not written its input for step 3"
               "\n  a (cpu:0) waits for c (cpu:0), which has not read what it wrote before"
               "\n  c (cpu:0) waits for x (cpu:0), which has not written its input for step 2"
               "\n  input \"x\" (model.c:103) is empty: nothing has been pushed for step 2\n");
    waits_close(&waits);
    weir_plan_free(plan);
}

/* No compiler makes such a plan, and no check lets it pass. */
Test(waits, a_circle_is_told_whole_and_other_ends_are_told, .timeout = 120)
{
    test_ops();
    sdf *s = sdf_new("circle", 1);
    uint32_t q = sdf_device(s), outside = sdf_outside(s, q), worker_of[4] = {0}, actor[3];
    const char *const name[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        actor[i] = sdf_actor(s, q, name[i], .kernel = "test_sum");
    for (int i = 0; i < 3; i++)
        sdf_port(s, actor[(i + 1) % 3], sdf_regst(s, actor[i], .items = 1));
    uint32_t d = sdf_actor(s, q, "d", .kernel = "test_sum"), e = sdf_actor(s, q, "e", .kernel = "test_sum");
    uint32_t x = sdf_actor(s, outside, "x", .host_kind = 1 + PLAN_PUSH);
    sdf_port(s, d, sdf_regst(s, x, .items = 1));
    sdf_port(s, e, sdf_regst(s, actor[2], .items = 1));
    weir_plan *plan = sdf_plan(s);
    uint32_t made[3];
    for (int i = 0; i < 3; i++)
        made[i] = plan->actors[actor[i]].regsts.first;
    struct wait_entry entries[] = {{actor[0], made[2], 1}, {actor[1], made[0], 1}, {actor[2], made[1], 1},
                                   {d, plan->actors[x].regsts.first, 1}, {e, made[2], 1}};
    struct waits waits;
    char text[2048];
    cr_assert_eq(waits_open(&waits, plan, worker_of, 0), WEIR_OK);
    waits_put(&waits, 0, entries, 5);
    waits_text(&waits, &(struct waits_facts){.steps_end = 9, .silent_rank = UINT32_MAX}, text, sizeof(text));
    SAYS(text, "a (cpu:0) waits for c (cpu:0), ");
    SAYS(text, "b (cpu:0) waits for a (cpu:0), ");
    SAYS(text, "c (cpu:0) waits for b (cpu:0), ");
    SAYS(text, "\n  which is a circle: none of them can go on\n");
    SAYS(text, "\n  and input \"x\" (model.c:105) is empty: nothing has been pushed for step 1\n");
    waits_close(&waits);
    weir_plan_free(plan);
}

/* Entries come from other processes. Any entries give a text that ends within its room. */
Test(waits, nonsense_from_other_ranks_harms_nothing, .timeout = 120)
{
    uint64_t seed = 20261121, state = seed;
    struct line *line = line_new(9, 3);
    struct waits_facts facts = {.stalled_ns = SECOND, .steps_end = 10, .silent_rank = UINT32_MAX};
    for (int round = 0; round < 3000; round++) {
        struct wait_entry entries[24];
        for (int i = 0; i < 24; i++) {
            uint32_t random[3];
            for (int k = 0; k < 3; k++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                random[k] = (uint32_t)(state >> 33);
            }
            entries[i] = (struct wait_entry){random[0] % 8 ? random[0] % 14 : random[0],
                                             random[1] % 8 ? random[1] % 12 : PLAN_NONE - random[1] % 2, random[2]};
        }
        uint32_t rank = (uint32_t)(state >> 40) % 4;
        waits_put(&line->waits, rank, entries, 24);
        size_t room = 1 + (size_t)(state >> 20) % sizeof(line->text);
        size_t used = waits_text(&line->waits, &facts, line->text, room);
        cr_assert_lt(used, room, "seed %llu, round %d", (unsigned long long)seed, round);
        cr_assert_eq(used, strlen(line->text), "seed %llu, round %d", (unsigned long long)seed, round);
    }
    line_free(line);
}

/* ---- collectives ---- */

/* Two collectives of three accelerators, each a rank: "c0 of 0" to "c1 of 2", in this order; and what the members of
 * the first read: "x of 0" to "x of 2". */
static struct line *members_new(void)
{
    struct line *line = calloc(1, sizeof(*line));
    cr_assert_not_null(line);
    test_ops();
    sdf *s = sdf_new("members", 1);
    uint32_t member[2][3], compute[3], queue[3];
    char name[16];
    for (uint32_t d = 0; d < 3; d++) {
        compute[d] = sdf_device_of(s, WEIR_FAKE, d, PLAN_COMPUTE);
        queue[d] = sdf_queue(s, compute[d], PLAN_COLLECTIVE);
    }
    for (uint32_t c = 0; c < 2; c++)
        for (uint32_t d = 0; d < 3; d++) {
            snprintf(name, sizeof(name), "c%u of %u", c, d);
            member[c][d] = sdf_actor(s, queue[d], name, .kernel = "collective");
            sdf_regst(s, member[c][d], .items = 1, .start = (d + 1) % 3, .global = 3);
        }
    for (uint32_t d = 0; d < 3; d++) {
        snprintf(name, sizeof(name), "x of %u", d);
        uint32_t x = sdf_actor(s, compute[d], name, .kernel = "test_sum");
        uint32_t made = sdf_regst(s, x, .items = 1, .start = d, .global = 3);
        for (uint32_t c = 0; c < 2; c++)
            sdf_port(s, member[c][d], made);
    }
    for (uint32_t c = 0; c < 2; c++)
        sdf_collective(s, PLAN_ALL_TO_ALL, member[c], 3, (sdf_move[]){{0, 2, 0, 0}, {1, 0, 0, 0}, {2, 1, 0, 0}}, 3);
    weir_plan *whole = sdf_plan(s);
    line->plan = plan_spread(whole, 3, 0);
    cr_assert_not_null(line->plan, "%s", weir_error());
    weir_plan_free(whole);
    cr_assert_eq(waits_open(&line->waits, line->plan, line->worker_of, 0), WEIR_OK, "%s", weir_error());
    return line;
}

enum { C0, C1 = 3, X = 6 }; /* of device 0 */

Test(waits, a_collective_that_stands_does_so_for_who_has_not_come)
{
    struct line *line = members_new();
    uint32_t x = line->plan->actors[X + 1].regsts.first;
    struct wait_entry of_0[] = {{C0, WAITS_FIRES, 7}, {C0, WAITS_PASSED, 7}, {C1, WAITS_HEAD, 7}, {C1, WAITS_PASSED, 7}};
    struct wait_entry of_1[] = {{C0 + 1, x, 7}, {C1 + 1, WAITS_TURN, 7}, {C0 + 1, WAITS_HEAD, 7}, {C0 + 1, WAITS_PASSED, 7},
                                {X + 1, WAITS_FIRES, 7}};
    waits_put(&line->waits, 0, of_0, 4);
    waits_put(&line->waits, 1, of_1, 5);
    const char *text = say(line);
    SAYS(text, "c0 of 0 (fake:0, rank 0) has come to its collective, and waits for c0 of 1 (fake:1, rank 1), "
               "c0 of 2 (fake:2, rank 2), which have not come\n"
               "  c0 of 1 (fake:1, rank 1) waits for x of 1 (fake:1, rank 1), which has not written its input for step 7\n");
    SAYS(text, "kernel of x of 1 (test_sum");
    struct wait_entry of_2[] = {{C0 + 2, WAITS_FIRES, 7}, {C0 + 2, WAITS_PASSED, 7}};
    waits_put(&line->waits, 2, of_2, 2);
    text = say(line);
    SAYS(text, "waits for c0 of 1 (fake:1, rank 1), which has not come\n");
    struct wait_entry beyond[] = {{C0 + 1, x, 8}, {C0 + 1, WAITS_PASSED, 8}};
    waits_put(&line->waits, 1, beyond, 2);
    text = say(line);
    SAYS(text, "kernel of c0 of 0 (collective");
    SAYS(text, "in step 7; all that take part have come");
    SAYS_NOT(text, "has come to its");
    line_free(line);
}

Test(waits, who_waits_for_its_turn_waits_for_the_head_of_its_queue)
{
    struct line *line = members_new();
    uint32_t x = line->plan->actors[X].regsts.first;
    struct wait_entry of_0[] = {{C0, x, 7}, {C1, WAITS_TURN, 7}, {C0, WAITS_HEAD, 7}, {X, WAITS_FIRES, 7}};
    waits_put(&line->waits, 0, of_0, 4);
    waits_put(&line->waits, 1, NULL, 0);
    waits_put(&line->waits, 2, NULL, 0);
    SAYS(say(line), "  c1 of 0 (fake:0, rank 0) waits for its turn, behind c0 of 0 (fake:0, rank 0)\n"
                    "  c0 of 0 (fake:0, rank 0) waits for x of 0 (fake:0, rank 0), which has not written");
    waits_put(&line->waits, 0, of_0, 0);
    SAYS(say(line), "no actor lacks anything");
    line_free(line);
}

Test(waits, turns_that_contradict_each_other_are_a_circle)
{
    struct line *line = members_new();
    struct wait_entry of_0[] = {{C0, WAITS_FIRES, 7}, {C1, WAITS_TURN, 7}, {C0, WAITS_HEAD, 8}};
    struct wait_entry of_1[] = {{C1 + 1, WAITS_FIRES, 7}, {C0 + 1, WAITS_TURN, 7}, {C1 + 1, WAITS_HEAD, 7}};
    waits_put(&line->waits, 0, of_0, 3);
    waits_put(&line->waits, 1, of_1, 3);
    const char *text = say(line);
    SAYS(text, "which is a circle: none of them can go on");
    SAYS(text, "c0 of 1 (fake:1, rank 1) waits for its turn, behind c1 of 1 (fake:1, rank 1)");
    line_free(line);
}

Test(waits, what_is_said_of_collectives_by_who_is_in_none_is_passed_over)
{
    struct line *line = members_new();
    struct wait_entry of_0[] = {{X, WAITS_TURN, 7}, {X, WAITS_HEAD, 7}, {X, WAITS_PASSED, 7}, {C0, WAITS_FIRST - 1, 7}};
    waits_put(&line->waits, 0, of_0, 4);
    SAYS(say(line), "no actor lacks anything");
    line_free(line);
}
