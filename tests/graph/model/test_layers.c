/* test_layers.c: what layers of <weir/ops.h> make besides their op: frozen parameters, one weight for two layers; and losses that
 * are built of other ops, against plain loops in double.
 */
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(layers, .timeout = 60);

static void expect_values(const run *r, const char *name, const double *want, int count)
{
    const run_entry *e = run_find(r, name);
    cr_assert(e && e->count == count, "%s", name);
    for (int i = 0; i < count; i++)
        cr_assert_lt(fabs(e->value[i] - want[i]), 2e-5 * (1 + fabs(want[i])), "%s[%d] is %g, not %g", name, i, e->value[i], want[i]);
}

Test(layers, frozen_layers_are_not_trained)
{
    weir_graph *g = weir_graph_new("frozen");
    weir_tensor *ids = weir_input(g, WEIR_I32, {4, 3}, .name = "ids");
    weir_tensor *h = weir_embedding(ids, 10, 6, .name = "table", .frozen = true);
    h = weir_rmsnorm(weir_layernorm(h, .name = "ln", .frozen = true), .name = "rms", .frozen = true);
    h = weir_linear(weir_linear(h, 5, .name = "up", .frozen = true), 2, .name = "down");
    weir_train(weir_mean(h), weir_sgd(.momentum = 0.5));
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        weir_plan_param(plan, i, &info);
        cr_expect_eq(info.frozen, strncmp(info.name, "down", 4) != 0, "%s", info.name);
    }
    cr_expect_eq(weir_plan_param_count(plan), 1 + 2 + 1 + 2 + 4);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* The value of a fetch of a plan's only step. */
static run fetched(weir_graph *g)
{
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    run r = run_plan(plan, 1, 1);
    weir_plan_free(plan);
    return r;
}

enum { IDS = 4, VOCAB = 10, DIM = 6 };

Test(layers, a_tied_layer_multiplies_with_the_transposed_weight)
{
    weir_graph *g = weir_graph_new("tied");
    weir_tensor *ids = weir_input(g, WEIR_I32, {2, IDS / 2}, .name = "ids");
    weir_tensor *h = weir_embedding(ids, VOCAB, DIM, .name = "table", .init = WEIR_NORMAL(1));
    weir_fetch(weir_tied(h, h), .name = "logits");
    weir_fetch(weir_tied(weir_linear(h, VOCAB, .name = "up"), weir_linear(h, VOCAB, .name = "tied")), .name = "back");
    weir_fetch(h, .name = "h");
    run r = fetched(g);
    const double *table = run_find(&r, "table/weight")->value, *rows = run_find(&r, "h")->value;
    double want[IDS * VOCAB] = {0};
    for (int i = 0; i < IDS; i++)
        for (int k = 0; k < VOCAB; k++)
            for (int d = 0; d < DIM; d++)
                want[i * VOCAB + k] += rows[i * DIM + d] * table[k * DIM + d];
    expect_values(&r, "logits", want, IDS * VOCAB);
    cr_expect_eq(run_find(&r, "back")->count, IDS * DIM);
    run_free(&r);
}

Test(layers, losses_of_elements_are_means_or_sums)
{
    enum { COUNT = 21 };
    weir_graph *g = weir_graph_new("losses");
    weir_tensor *x = weir_param(g, WEIR_F32, {3, 7}, .name = "x", .init = WEIR_UNIFORM(-200, 200));
    weir_tensor *t = weir_param(g, WEIR_F32, {3, 7}, .name = "t", .init = WEIR_UNIFORM(0, 1));
    weir_fetch(weir_mse(x, t), .name = "mse");
    weir_fetch(weir_mse(x, t, .sum = true), .name = "squares");
    weir_fetch(weir_binary_cross_entropy(x, t), .name = "bce");
    weir_fetch(weir_binary_cross_entropy(weir_affine(x, 0), t, .sum = true), .name = "unsure");
    run r = fetched(g);
    const double *of_x = run_find(&r, "x")->value, *of_t = run_find(&r, "t")->value;
    double squares = 0, entropy = 0, unsure = COUNT * log(2);
    for (int i = 0; i < COUNT; i++) {
        squares += pow(of_x[i] - of_t[i], 2);
        entropy += fmax(of_x[i], 0) + log1p(exp(-fabs(of_x[i]))) - of_t[i] * of_x[i];
    }
    expect_values(&r, "mse", &(double){squares / COUNT}, 1);
    expect_values(&r, "squares", &squares, 1);
    expect_values(&r, "bce", &(double){entropy / COUNT}, 1);
    expect_values(&r, "unsure", &unsure, 1);
    run_free(&r);
}
