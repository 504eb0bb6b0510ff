/* test_compile.c: what weir_compile() promises about its plans: they are valid and live, the same every time, within the
 * limit or refused with a reason; and what they compute does not depend on how the model is laid out.
 */
#include "graph/plan.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static weir_plan *compile_and_free(weir_graph *g, weir_compile_opts opts)
{
    opts.src = WEIR_HERE;
    weir_plan *plan = weir_compile_at(g, opts);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* Compiles with the options in `...`, frees the graph, runs `steps` steps and frees the plan. */
#define run_graph(g, steps, ...) run_graph_at(g, steps, (weir_compile_opts){__VA_ARGS__})
static run run_graph_at(weir_graph *g, int64_t steps, weir_compile_opts opts)
{
    weir_plan *plan = compile_and_free(g, opts);
    run r = run_plan(plan, steps, 2);
    weir_plan_free(plan);
    return r;
}

static double value_of(const run *r, const char *name, int64_t i)
{
    const run_entry *e = run_find(r, name);
    cr_assert_not_null(e, "nothing is called %s", name);
    cr_assert_lt(i, e->count);
    return e->value[i];
}

/* ---- memory that kernels share ---- */

/* Both operands take 64 bytes in the arena; one is repeated, so the result may not lie in its place. */
Test(compile, a_repeated_operand_is_not_overwritten, .timeout = 10)
{
    weir_graph *g = weir_graph_new("inplace");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 1}, .name = "x"), *y = weir_input(g, WEIR_F32, {4, 4}, .name = "y");
    weir_fetch(weir_neg(weir_add(weir_affine(x, 2), weir_affine(y, 3))), .name = "columns");
    weir_fetch(weir_neg(weir_sub(weir_reshape(weir_affine(x, 2), {4}), weir_affine(y, 3))), .name = "rows");
    run r = run_graph(g, 1);
    for (int i = 0; i < 16; i++) {
        double y3 = 3 * run_input("y", WEIR_F32, 0, 0, i);
        cr_assert_float_eq(value_of(&r, "columns", i), -2 * run_input("x", WEIR_F32, 0, 0, i / 4) - y3, 1e-5);
        cr_assert_float_eq(value_of(&r, "rows", i), -2 * run_input("x", WEIR_F32, 0, 0, i % 4) + y3, 1e-5);
    }
    run_free(&r);
}

Test(compile, a_narrower_operand_is_not_overwritten, .timeout = 10)
{
    weir_graph *g = weir_graph_new("inplace");
    weir_tensor *x = weir_input(g, WEIR_I32, {16}, .name = "x");
    weir_fetch(weir_neg(weir_cast(weir_cast(x, WEIR_U8), WEIR_F32)), .name = "y");
    run r = run_graph(g, 1);
    for (int i = 0; i < 16; i++)
        cr_expect_eq(value_of(&r, "y", i), -run_input("x", WEIR_I32, 0, 0, i));
    run_free(&r);
}

/* ---- random models in random layouts ---- */

enum { MODELS = 24, STEPS = 2 };

static weir_plan *plan_of(uint64_t model, uint64_t layout)
{
    weir_graph *g = random_model(model, layout);
    weir_compile_opts opts = {.micro_batches = random_model_micro(model), .seed = model};
    weir_plan *plan = weir_compile_at(g, opts), *again = weir_compile_at(g, opts);
    cr_assert(plan && again, "model %lu, layout %lu: %s", (long)model, (long)layout, weir_error());
    cr_assert_eq(plan->hash, again->hash, "model %lu, layout %lu: another plan", (long)model, (long)layout);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    weir_plan_free(again);
    weir_graph_free(g);
    return plan;
}

static run run_of(uint64_t model, uint64_t layout, int workers)
{
    weir_plan *plan = plan_of(model, layout);
    run r = run_plan(plan, STEPS, workers);
    weir_plan_free(plan);
    return r;
}

/* All fetches and parameters, but not guesses: two logits that are almost equal may change places. */
static void expect_same_model(run *got, run *want, const char *what)
{
    for (int e = 0; e < got->count; e++)
        if (!strcmp(got->entry[e].name, "guess"))
            got->entry[e].count = want->entry[e].count = 0;
    run_near(got, want, 2e-4, what);
}

Test(compile, random_models_compute_the_same_in_random_layouts, .timeout = 120)
{
    for (uint64_t model = 1; model <= MODELS; model++) {
        run one = run_of(model, 0, 1);
        for (uint64_t layout = 2 * model; layout < 2 * model + 2; layout++) {
            char what[64];
            snprintf(what, sizeof what, "model %lu, layout %lu", (long)model, (long)layout);
            run many = run_of(model, layout, 2);
            expect_same_model(&many, &one, what);
            run_free(&many);
        }
        run_free(&one);
    }
}
