/* tests/graph/compile/test_priced.c: with rates, the compiler chooses by a machine's times. They are made up: no test asks a clock.
 *
 * Where other times must make another plan, both are held against each other, and each against what its times say. Values
 * never depend on slots or limits.
 */
#define _GNU_SOURCE /* memmem() */
#include "graph/compile/actors/passes.h"
#include "graph/compile/budget/offload.h"
#include "graph/plan/form/plan.h"
#include "graph/time/call.h"
#include "graph/time/rates.h"
#include "tests/support/effort.h"
#include "tests/support/folder.h"
#include "tests/support/random_model.h"
#include "tests/support/reference.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, MODELS = EFFORT(20, 5, 3) };

static weir_rates *machine(void)
{
    weir_rates *r = rates_new();
    cr_assert_not_null(r);
    r->same = 1000, r->worker = 200000, r->process = 300000, r->cores = 8, r->l2 = 1 << 20, r->l3 = 1 << 25;
    return r;
}

static void add_call(weir_rates *r, const char *op, uint64_t ps, uint64_t flops, uint64_t bytes)
{
    char call[64];
    snprintf(call, sizeof call, "%s a=0 f32:1>f32:1", op);
    cr_assert(rates_add(r, &(time_call){.text = call, .ps = {ps, ps, ps}, .flops = flops, .bytes = bytes, .samples = 1}));
}

/* All calls of the plan, each `times` as long as the general model says. */
static void add_calls(weir_rates *r, const weir_plan *plan, double times)
{
    char *call = malloc(TIME_CALL_BYTES);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const weir_cost cost = time_call_cost(plan, k);
        const uint64_t ps = (uint64_t)(times * (cost.flops * 10 + cost.bytes * 100)) + 1;
        if (time_call_text(plan, k, call))
            cr_assert(rates_add(r, &(time_call){.text = call, .ps = {ps, ps, ps}, .flops = (uint64_t)cost.flops, .bytes = (uint64_t)cost.bytes}));
    }
    free(call);
}

/* ---- without rates ---- */

static void same_bytes(const weir_plan *a, const weir_plan *b)
{
    void *one, *other;
    size_t one_bytes, other_bytes;
    cr_assert_eq(plan_encode(a, &one, &one_bytes), WEIR_OK);
    cr_assert_eq(plan_encode(b, &other, &other_bytes), WEIR_OK);
    cr_expect(one_bytes == other_bytes && !memcmp(one, other, one_bytes));
    free(one);
    free(other);
}

static bool says_rates(const weir_plan *plan)
{
    void *bytes;
    size_t count;
    cr_assert_eq(plan_encode(plan, &bytes, &count), WEIR_OK);
    const bool says = memmem(bytes, count, "\xa5rates", 6);
    free(bytes);
    return says;
}

Test(priced, a_plan_without_rates_says_nothing_of_them, .timeout = 30)
{
    weir_graph *g = random_model(3, 4);
    weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(3));
    setenv("WEIR_RATES", "", 1);
    weir_plan *again = weir_compile(g, .micro_batches = random_model_micro(3));
    unsetenv("WEIR_RATES");
    cr_assert(plan && again, "%s", weir_error());
    cr_expect(!plan->rates && !says_rates(plan));
    same_bytes(plan, again);
    weir_graph_free(g);
    weir_plan_free(plan);
    weir_plan_free(again);
}

/* ---- layouts ---- */

/* A product of which two devices may each do the half, or both all. */
static weir_graph *product(void)
{
    weir_graph *g = weir_graph_new("product");
    WEIR_ON(weir_mesh_new(g, "cpu:0-1"))
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {64, 64}, .name = "x", .sbp = {WEIR_B});
        weir_fetch(weir_shard(weir_linear(x, 64, .name = "up", .weight = {WEIR_B}), .sbp = {WEIR_B}), .name = "y");
    }
    return g;
}

/* Bytes that a device makes by the first call of the op. */
static uint64_t made_by(const weir_plan *plan, const char *op)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strcmp(plan_text(plan, plan->kernels[k].op), op))
            return plan_tensor_bytes(&plan->tensors[plan->operands[plan->kernels[k].out.first].tensor.i]);
    return 0;
}

static weir_plan *product_with(uint64_t linear_ps, uint64_t box_ps)
{
    weir_graph *g = product();
    weir_rates *r = machine();
    add_call(r, "linear", linear_ps, 2 * 64 * 64 * 64, 3 * 64 * 64 * 4);
    add_call(r, "box", box_ps, 0, 64 * 64 * 4);
    weir_plan *plan = weir_compile(g, .rates = r, .no_fusion = true);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_rates_free(r);
    weir_graph_free(g);
    return plan;
}

Test(priced, a_product_is_split_where_conversions_are_cheap_and_is_not_where_they_are_dear, .timeout = 30)
{
    weir_plan *cheap = product_with(1000000000, 1000), *dear = product_with(1000000, 1000000000);
    cr_expect_eq(made_by(cheap, "linear"), 64 * 32 * sizeof(float));
    cr_expect_eq(made_by(dear, "linear"), 64 * 64 * sizeof(float));
    cr_expect(cheap->rates && dear->rates && cheap->rates != dear->rates);
    run one = run_plan(cheap, STEPS, 2), other = run_plan(dear, STEPS, 2);
    run_near(&one, &other, 1e-5, "a product");
    run_free(&one);
    run_free(&other);
    weir_plan_free(cheap);
    weir_plan_free(dear);
}

/* ---- a limit ---- */

static weir_plan *limited_gpt(const gpt_config *config, const char *limit, const char *disk, const weir_rates *rates)
{
    weir_graph *g = gpt_train_graph(config);
    weir_plan *plan = weir_compile(g, .seed = REFERENCE_SEED, .memory = limit, .offload = disk, .no_fusion = true, .rates = rates);
    weir_graph_free(g);
    return plan;
}

static int again(const weir_plan *plan)
{
    return plan->limits_count ? (int)plan->limits->again : 0;
}

static uint64_t moved(const weir_plan *plan)
{
    return plan->limits_count ? plan->limits->moved : 0;
}

/* Where arithmetic is slow, values wait on the disk; where it is quick, they are made again. */
Test(priced, a_limit_gives_up_first_what_costs_the_least_on_this_machine, .timeout = 120)
{
    char disk[300], limit[32];
    folder_make();
    group_own_bytes = 4096;
    offload_window = 0.001;
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    text corpus = reference_text();
    gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
    weir_plan *loose = limited_gpt(&config, NULL, NULL, NULL);
    cr_assert_not_null(loose, "%s", weir_error());
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)loose->spaces[0].bytes * 9 / 10);
    weir_rates *slow = machine(), *quick = machine();
    add_calls(slow, loose, 1e5);
    add_calls(quick, loose, 1e-3);
    add_call(slow, "copy", 1000, 0, 1 << 20);
    add_call(quick, "copy", 1000000000000, 0, 1 << 10);
    weir_plan *stored = limited_gpt(&config, limit, disk, slow), *repeated = limited_gpt(&config, limit, disk, quick);
    cr_assert(stored && repeated, "%s", weir_error());
    cr_expect_gt(moved(stored), moved(repeated));
    cr_expect_lt(again(stored), again(repeated));
    cr_expect_eq(moved(repeated), 0);
    run want = run_plan(loose, STEPS, 1), one = run_plan(stored, STEPS, 1), other = run_plan(repeated, STEPS, 1);
    run_near(&one, &want, 0, "moved");
    run_near(&other, &want, 0, "made again");
    run_free(&want), run_free(&one), run_free(&other);
    weir_rates_free(slow), weir_rates_free(quick);
    weir_plan_free(loose), weir_plan_free(stored), weir_plan_free(repeated);
    text_free(&corpus);
    folder_remove();
}

/* ---- slots ---- */

/* Three devices, of which the last does tanh; the ends have slots enough. */
static weir_graph *pipeline(int fixed)
{
    static const char *const devices[] = {"cpu:0", "cpu:1", "cpu:2"};
    weir_graph *g = weir_graph_new("pipeline");
    weir_tensor *x = NULL;
    for (int i = 0; i < 3; i++)
        WEIR_ON(weir_mesh_new(g, devices[i]))
        {
            x = i ? x : weir_input(g, WEIR_F32, {8, 16}, .name = "x", .micro = true);
            if (!i)
                weir_slots(x, 8);
            x = i == 2 ? weir_tanh(x, .name = "last") : weir_relu(x, .name = i ? "second" : "first");
            if (fixed && !i)
                weir_slots(x, fixed);
        }
    weir_fetch(x, .name = "y", .slots = 8);
    return g;
}

static weir_plan *pipeline_with(const weir_rates *rates, int fixed, const char *limit)
{
    weir_graph *g = pipeline(fixed);
    weir_plan *plan = weir_compile(g, .micro_batches = 4, .rates = rates, .memory = limit);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static uint32_t slots_of(const weir_plan *plan, const char *tensor)
{
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if (plan->tensors[t].home == PLAN_IN_REGST && !strcmp(plan_text(plan, plan->tensors[t].name), tensor))
            return plan->regsts[plan->tensors[t].owner].slots;
    return 0;
}

static double step_of(const weir_plan *plan, const weir_rates *rates)
{
    weir_prediction p;
    cr_assert_eq(weir_predict(plan, rates, &p), WEIR_OK, "%s", weir_error());
    return p.step_s;
}

static weir_rates *times(uint64_t relu_ps, uint64_t tanh_ps, uint64_t message_ps)
{
    weir_rates *rates = machine();
    rates->worker = message_ps;
    add_call(rates, "relu", relu_ps, 0, 1024);
    add_call(rates, "tanh", tanh_ps, 0, 1024);
    return rates;
}

static void same_bits(const weir_plan *one, const weir_plan *other, const char *what)
{
    run want = run_plan(one, STEPS, 1), got = run_plan(other, STEPS, 3);
    run_near(&got, &want, 0, what);
    run_free(&want);
    run_free(&got);
}

/* Only the slow stage needs its next value beside the one that it reads. */
Test(priced, slots_before_a_slow_stage_are_those_that_it_needs, .timeout = 30)
{
    weir_rates *rates = times(1000, 100000000, 200000);
    weir_plan *rule = pipeline_with(NULL, 0, NULL), *found = pipeline_with(rates, 0, NULL);
    cr_expect(slots_of(rule, "first") == 2 && slots_of(rule, "second") == 2);
    cr_expect(slots_of(found, "first") == 1 && slots_of(found, "second") == 2, "%u %u", slots_of(found, "first"), slots_of(found, "second"));
    cr_expect_leq(step_of(found, rates), 1.001 * step_of(rule, rates));
    cr_expect_lt(weir_plan_bytes(found, -1), weir_plan_bytes(rule, -1));
    same_bits(rule, found, "fewer slots");
    weir_plan_free(rule), weir_plan_free(found);
    weir_rates_free(rates);
}

Test(priced, slots_are_more_than_the_rule_gives_where_messages_take_long, .timeout = 30)
{
    weir_rates *rates = times(1000000, 1000000, 20000000);
    weir_plan *rule = pipeline_with(NULL, 0, NULL), *found = pipeline_with(rates, 0, NULL);
    cr_expect_gt(slots_of(found, "first"), slots_of(rule, "first"));
    cr_expect_lt(step_of(found, rates), 0.5 * step_of(rule, rates));
    same_bits(rule, found, "more slots");
    weir_plan_free(rule), weir_plan_free(found);
    weir_rates_free(rates);
}

/* Each smaller limit takes the slots whose loss makes steps the least longer. */
Test(priced, a_limit_leaves_the_slots_that_make_steps_the_shortest, .timeout = 60)
{
    weir_rates *rates = times(1000000, 1000000, 20000000);
    weir_plan *whole = pipeline_with(rates, 0, NULL);
    uint64_t most = 0;
    double before = 0;
    for (uint32_t s = 0; s < whole->spaces_count; s++)
        most = whole->spaces[s].bytes > most ? whole->spaces[s].bytes : most;
    for (uint64_t bytes = most; bytes + 3 * 512 >= most; bytes -= 512) {
        char limit[32];
        snprintf(limit, sizeof limit, "%llu", (unsigned long long)bytes);
        weir_plan *plan = pipeline_with(rates, 0, limit);
        for (uint32_t s = 0; s < plan->spaces_count; s++)
            cr_expect_leq(plan->spaces[s].bytes, bytes);
        const double step = step_of(plan, rates);
        cr_expect_geq(step, 0.999 * before, "%g s with less memory than %g s", step, before);
        cr_expect_lt(step, 0.7 * step_of(whole, rates) * (double)slots_of(whole, "first"), "one slot would be as fast");
        before = step;
        weir_plan_free(plan);
    }
    weir_plan_free(whole);
    weir_rates_free(rates);
}

Test(priced, slots_that_the_user_set_stay, .timeout = 30)
{
    weir_rates *rates = machine();
    for (int fixed = 1; fixed <= 5; fixed += 2) {
        weir_plan *plan = pipeline_with(rates, fixed, NULL);
        cr_expect_eq(slots_of(plan, "first"), (uint32_t)fixed);
        weir_plan_free(plan);
    }
    weir_rates_free(rates);
}

/* Messages take as long as in the general model, and no call is measured, so layouts are the same. */
Test(priced, no_plan_is_slower_than_by_the_rule_and_all_have_its_bits, .timeout = 300)
{
    int fewer = 0, faster = 0;
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        weir_graph *g = random_model(seed, seed + 1);
        const int micro = random_model_micro(seed);
        weir_rates *rates = machine();
        rates->worker = 1000000;
        weir_plan *rule = weir_compile(g, .micro_batches = micro, .seed = 5);
        weir_plan *found = weir_compile(g, .micro_batches = micro, .seed = 5, .rates = rates);
        weir_graph_free(g);
        cr_assert(rule && found, "%s", weir_error());
        cr_expect_eq(weir_plan_check(found), WEIR_OK, "model %d: %s", (int)seed, weir_error());
        const double by_rule = step_of(rule, rates), by_walk = step_of(found, rates);
        cr_expect_leq(by_walk, by_rule * 1.001, "model %d: %g s, by the rule %g s", (int)seed, by_walk, by_rule);
        faster += by_walk < 0.99 * by_rule;
        fewer += weir_plan_bytes(found, -1) < weir_plan_bytes(rule, -1);
        same_bits(rule, found, "with rates");
        weir_plan_free(rule), weir_plan_free(found);
        weir_rates_free(rates);
    }
    cr_expect(fewer + faster > 0);
}

/* ---- how rates are given ---- */

Test(priced, WEIR_RATES_names_a_file_and_the_plan_says_its_hash, .timeout = 30)
{
    folder_make();
    weir_graph *g = product();
    weir_rates *r = machine();
    const char *path = folder_path("rates");
    char shown[4096] = "", last[64] = "", line[256];
    cr_assert_eq(weir_rates_save(r, path), WEIR_OK, "%s", weir_error());
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        snprintf(last, sizeof last, "with rates %.16s", line + 5);
    fclose(file);
    setenv("WEIR_RATES", path, 1);
    weir_plan *named = weir_compile(g), *given = weir_compile(g, .rates = r);
    unsetenv("WEIR_RATES");
    cr_assert(named && given, "%s", weir_error());
    same_bytes(named, given);
    cr_expect(says_rates(named));
    FILE *to = fmemopen(shown, sizeof shown, "w");
    cr_assert_eq(weir_plan_show(named, to), WEIR_OK);
    fclose(to);
    cr_expect(strstr(shown, last), "%s: %s", last, shown);
    cr_assert_eq(weir_plan_save(named, folder_path("plan")), WEIR_OK, "%s", weir_error());
    weir_plan *loaded = weir_plan_load(folder_path("plan"));
    cr_assert_not_null(loaded, "%s", weir_error());
    cr_expect_eq(loaded->rates, named->rates);
    cr_expect_eq(loaded->hash, plan_hash(loaded));
    weir_plan_free(named), weir_plan_free(given), weir_plan_free(loaded);
    weir_rates_free(r);
    weir_graph_free(g);
    folder_remove();
}

Test(priced, a_file_that_WEIR_RATES_names_and_that_is_broken_is_one_error, .timeout = 30)
{
    folder_make();
    weir_graph *g = product();
    folder_write(folder_path("rates"), "weir rates 1\nnothing of what weir measure writes\n", 50);
    const char *const paths[] = {folder_path("rates"), "/no/such/rates"}, *const says[] = {"it was changed or cut", "cannot be read"};
    for (int i = 0; i < 2; i++) {
        setenv("WEIR_RATES", paths[i], 1);
        cr_expect_null(weir_compile(g));
        cr_expect(strstr(weir_error(), "compile: WEIR_RATES: ") && strstr(weir_error(), paths[i]) && strstr(weir_error(), says[i]) &&
                  strstr(weir_error(), "test_priced.c:"), "%s", weir_error());
    }
    unsetenv("WEIR_RATES");
    weir_graph_free(g);
    folder_remove();
}
