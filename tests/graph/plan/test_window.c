/* tests/graph/plan/test_window.c: registers that lie within what they are made of, or what is made of them.
 *
 * Plans in which sums are written over their terms and gathers leave them there compute the bits of a plan in which
 * everything has bytes of its own, poisoned and spread over processes, too; every order of kernels that credits allow is
 * tried on a map of the bytes. Then such plans are changed, a rule at a time, and none is let through.
 */
#include "graph/base/error.h"
#include "graph/compile/actors/passes.h"
#include "graph/compile/ir/ir.h"
#include "graph/compile/memory/offsets.h"
#include "graph/plan/show/moved.h"
#include "graph/plan/lives/window.h"
#include "kernels/core/core.h"
#include "tests/support/byte_game.h"
#include "tests/support/effort.h"
#include "tests/support/ranks.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(window, .timeout = 120);

enum { GAMES = EFFORT(60, 20, 5), STEPS = 4, LARGE = 256, ROWS = 384 };

/* A sum for all, step by step. Each device's part of it goes into a state that the next terms read, so none of these is
 * made before the sum was read. */
static weir_plan *looped(int devices, bool shares)
{
    char names[24];
    snprintf(names, sizeof names, "cpu:0-%d", devices - 1);
    weir_graph *g = weir_graph_new("window");
    weir_mesh_new(g, names);
    weir_tensor *x = weir_input(g, WEIR_F32, {devices, ROWS, LARGE}, .name = "x", .sbp = {WEIR_S(0)});
    weir_tensor *last = weir_state(g, WEIR_F32, {0}, .name = "last", .sbp = {WEIR_B});
    weir_tensor *terms = weir_sum(weir_add(x, last), .axes = {0}, .axis_count = 1);
    weir_tensor *sum = weir_shard(weir_shard(terms, .sbp = {WEIR_P}), .sbp = {WEIR_B});
    weir_tensor *own = weir_shard(sum, .sbp = {WEIR_S(0)});
    weir_tensor *mean = weir_shard(weir_mean(weir_mul(own, own)), .sbp = {WEIR_B});
    weir_state_set(last, mean);
    weir_fetch(mean, .name = "mean");
    offsets_share = shares;
    group_own_bytes = 64;
    weir_plan *plan = weir_compile(g);
    offsets_share = true;
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* A sum for all, step by step, whose terms wait for nothing that comes of it. */
static weir_plan *summed(void)
{
    weir_graph *g = weir_graph_new("sum");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, LARGE, LARGE}, .name = "x", .sbp = {WEIR_S(0)});
    weir_tensor *terms = weir_shard(weir_sum(x, .axes = {0}, .axis_count = 1), .sbp = {WEIR_P});
    weir_tensor *sum = weir_shard(terms, .sbp = {WEIR_B});
    weir_fetch(weir_mean(weir_mul(sum, sum)), .name = "mean");
    group_own_bytes = 64;
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* ---- what there is ---- */

typedef struct found {
    uint32_t kernel, operand;
} found;

/* The first kernel that gathers in place (or, with `onto`, writes its sum over a term); kernel PLAN_NONE: none does. */
static found first_window(const weir_plan *plan, bool onto)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t o = plan->kernels[k].in.first; o < plan->kernels[k].in.first + plan->kernels[k].in.count; o++)
            if (onto ? window_is_onto(plan, k, o) : window_is(plan, k, o))
                return (found){k, o};
    return (found){PLAN_NONE, PLAN_NONE};
}

static found must_have(const weir_plan *plan, bool onto)
{
    found f = first_window(plan, onto);
    cr_assert_neq(f.kernel, PLAN_NONE, "the plan has none");
    return f;
}

Test(window, sums_lie_over_their_terms_and_are_gathered_there)
{
    for (int devices = 2; devices <= 4; devices++) {
        weir_plan *plan = looped(devices, true);
        must_have(plan, true);
        must_have(plan, false);
        weir_plan_free(plan);
    }
}

Test(window, what_stays_is_not_counted_as_moved)
{
    weir_plan *with = looped(2, true), *without = looped(2, false);
    found f = must_have(with, false);
    cr_assert_eq(first_window(without, false).kernel, PLAN_NONE);
    plan_moved one = plan_kernel_moved(with, f.kernel), other = plan_kernel_moved(without, f.kernel);
    uint64_t own = plan_tensor_bytes(&with->tensors[with->operands[f.operand].tensor.i]);
    cr_expect_eq(one.read + own, other.read);
    cr_expect_eq(one.written + own, other.written);
    cr_expect_eq(one.transferred, other.transferred);
    cr_expect_eq(window_bytes(with), 2 * own);
    cr_expect_eq(window_bytes(without), 0);
    weir_plan_free(with);
    weir_plan_free(without);
}

/* ---- what it computes ---- */

Test(window, the_bits_are_those_of_a_plan_without, .timeout = 200)
{
    for (int devices = 2; devices <= 4; devices++) {
        weir_plan *with = looped(devices, true), *without = looped(devices, false);
        run a = run_plan(without, STEPS, 1), b = run_plan(with, STEPS, 2);
        setenv("WEIR_POISON", "1", 1);
        run c = run_plan(with, STEPS, 2);
        unsetenv("WEIR_POISON");
        run_near(&b, &a, 0, "windows");
        run_near(&c, &a, 0, "windows, poisoned");
        run_free(&a);
        run_free(&b);
        run_free(&c);
        weir_plan_free(with);
        weir_plan_free(without);
    }
}

Test(window, every_order_that_credits_allow_keeps_what_is_needed, .timeout = 200)
{
    char why[256];
    for (int devices = 2; devices <= 3; devices++) {
        weir_plan *plan = looped(devices, true);
        cr_expect(byte_game_all(plan, (uint64_t)devices, GAMES, why), "%s", why);
        weir_plan_free(plan);
    }
}

enum { SPREAD = 4 };

static void push_and_pull(struct rank *rank)
{
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank), .workers = 2, .poison = true);
    RANK_IS(rank, s, "%s", weir_error());
    int64_t count = (int64_t)SPREAD * ROWS * LARGE;
    float *x = calloc((size_t)count, sizeof *x);
    RANK_OK(rank, weir_session_start(s, STEPS));
    for (int64_t step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < count && rank->number == 0; i++)
            x[i] = (float)run_input("x", WEIR_F32, step, 0, i);
        if (rank->number == 0)
            RANK_OK(rank, weir_session_push(s, "x", &(weir_array){x, WEIR_F32, {3, {SPREAD, ROWS, LARGE}}}, 20000));
        RANK_OK(rank, weir_session_pull(s, "mean", &(weir_array){(float *)rank->result + step, WEIR_F32, {0}}, 20000));
    }
    RANK_OK(rank, weir_session_wait(s, 20000));
    free(x);
    RANK_OK(rank, weir_session_close(s));
}

Test(window, processes_get_the_same_bits, .timeout = 200)
{
    static const enum ranks_link links[] = {RANKS_SHM, RANKS_TCP};
    weir_plan *with = looped(SPREAD, true), *without = looped(SPREAD, false);
    run one = run_plan(without, STEPS, 1);
    const run_entry *want = run_find(&one, "mean");
    must_have(with, true);
    cr_assert_not_null(want);
    for (int count = 2; count <= SPREAD; count += 2)
        for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
            struct ranks *ranks = ranks_run(push_and_pull, with, .count = count, .link = links[l],
                                            .kind = EFFORT(RANKS_PROCESSES, RANKS_PROCESSES, RANKS_THREADS),
                                            .result_bytes = STEPS * sizeof(float));
            for (int i = 0; i < count * STEPS; i++)
                cr_assert_eq(((float *)ranks->rank[i / STEPS].result)[i % STEPS], (float)want->value[i % STEPS],
                             "rank %d of %d, step %d", i / STEPS, count, i % STEPS);
            ranks_free(ranks);
        }
    run_free(&one);
    weir_plan_free(with);
    weir_plan_free(without);
}

/* ---- what is refused ---- */

static weir_plan *changed_of(const weir_plan *plan)
{
    weir_plan *copy = plan_copy(plan);
    cr_assert_not_null(copy);
    return copy;
}

static void refused(weir_plan *plan, const char *what)
{
    plan->hash = plan_hash(plan);
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN, "%s: let through", what);
    cr_expect(strstr(weir_error(), "may be needed at the same time"), "%s: %s", what, weir_error());
    weir_plan_free(plan);
}

static plan_regst *regst_of(weir_plan *plan, uint32_t operand)
{
    return &plan->regsts[plan->tensors[plan->operands[operand].tensor.i].owner];
}

static box_attrs *attrs_of(weir_plan *plan, uint32_t kernel)
{
    return (box_attrs *)(void *)&plan->words[plan->kernels[kernel].attrs.first];
}

/* Another input than this one. */
static plan_tensor *other_input(weir_plan *plan, found f)
{
    uint32_t first = plan->kernels[f.kernel].in.first;
    return &plan->tensors[plan->operands[first == f.operand ? first + 1 : first].tensor.i];
}

Test(window, a_gather_in_place_is_refused_where_it_would_write_what_others_read)
{
    weir_plan *plan = looped(2, true), *bad = changed_of(plan);
    found f = must_have(plan, false);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    regst_of(bad, f.operand)->offset += PLAN_ALIGN;
    refused(bad, "not in its place");
    bad = changed_of(plan);
    attrs_of(bad, f.kernel)->zero = 1;
    refused(bad, "filled with zeros first");
    bad = changed_of(plan);
    attrs_of(bad, f.kernel)->terms = 2;
    refused(bad, "added to");
    bad = changed_of(plan);
    *other_input(bad, f)->start = *bad->tensors[bad->operands[f.operand].tensor.i].start;
    refused(bad, "written by another input");
    weir_plan_free(plan);
}

Test(window, a_sum_over_a_term_is_refused_where_others_read_it)
{
    weir_plan *plan = looped(2, true), *bad = changed_of(plan);
    found f = must_have(plan, true);
    uint32_t sum = plan->kernels[f.kernel].out.first;
    regst_of(bad, sum)->offset += PLAN_ALIGN;
    refused(bad, "not over the elements that it is of");
    bad = changed_of(plan);
    plan_tensor *to = &bad->tensors[bad->operands[sum].tensor.i]; /* the other half, which the other device reads */
    for (uint32_t d = 0; d < to->rank; d++)
        to->start[d] = to->start[d] ? 0 : to->global[d] - to->shape[d];
    int64_t each = (int64_t)(plan_tensor_bytes(to) / 64 * 64);
    regst_of(bad, sum)->offset += (uint64_t)(*to->start || to->start[1] ? each : -each);
    refused(bad, "over what another device reads");
    weir_plan_free(plan);
}

/* Another device may still read the sum of one step when the terms of the next are made. */
Test(window, a_sum_over_a_term_is_refused_where_the_next_term_does_not_wait_for_its_readers)
{
    weir_plan *plan = summed();
    lives *l = lives_new(plan);
    int tried = 0;
    cr_assert_not_null(l);
    cr_expect_eq(first_window(plan, true).kernel, PLAN_NONE);
    for (uint32_t sum = 0; sum < plan->regsts_count; sum++)
        for (uint32_t term = 0; term < plan->regsts_count; term++) {
            window w;
            if (plan->regsts[sum].producer.i == PLAN_NONE ||
                !window_onto(plan, l, (plan_regst_id){sum}, (plan_regst_id){term}, &w))
                continue;
            weir_plan *bad = changed_of(plan);
            bad->regsts[sum].offset = bad->regsts[term].offset + bad->tensors[w.tensor.i].offset + w.at;
            refused(bad, "not in turn");
            tried++;
        }
    cr_expect_eq(tried, 2);
    lives_free(l);
    weir_plan_free(plan);
}
