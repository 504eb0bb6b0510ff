/* tests/graph/verify/test_exact.c: an op of a program's own that has a rule `exact` is proven in each layout that it promises,
 * and one that has none is not. The op is apps/examples/prelu.
 */
#include "apps/examples/prelu/prelu.c"

#include "graph/plan/form/plan.h"
#include "graph/verify/field.h"
#include "tests/support/sample_plan.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

TestSuite(exact, .init = (void (*)(void))weir_register_ops, .timeout = 120);

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

/* ---- numbers ---- */

static const weir_kernel_args args = {.seed = 4711};

static bool same(weir_exact a, weir_exact b)
{
    return !memcmp(&a, &b, sizeof a);
}

/* A number of which nothing is known, and which moves. */
static weir_exact any(uint64_t seed)
{
    const field_value value = field_draw(seed, "value", NULL, 0), slope = field_draw(seed, "slope", NULL, 0);
    return (weir_exact){{value.of[0], value.of[1], slope.of[0], slope.of[1]}};
}

static weir_exact slope_of(weir_exact a)
{
    return (weir_exact){{a.of[2], a.of[3], 0, 0}};
}

static weir_exact value_of(weir_exact a)
{
    return (weir_exact){{a.of[0], a.of[1], 0, 0}};
}

Test(exact, arithmetic_has_no_rounding)
{
    const weir_exact a = any(1), b = any(2), c = any(3);
    cr_expect(same(weir_exact_mul(a, weir_exact_add(b, c)), weir_exact_add(weir_exact_mul(a, b), weir_exact_mul(a, c))));
    cr_expect(same(weir_exact_mul(weir_exact_div(a, b), b), a));
    cr_expect(same(weir_exact_sub(weir_exact_add(a, b), b), a));
    cr_expect(same(weir_exact_mul(weir_exact_real(0.1), weir_exact_int(10)), weir_exact_int(1)));
    cr_expect(same(weir_exact_div(a, weir_exact_int(0)), weir_exact_int(0)));
    int64_t number = 0;
    cr_expect(weir_exact_is_int(weir_exact_int(-5), &number));
    cr_expect_eq(number, -5);
    cr_expect_not(weir_exact_is_int(a, &number));
    cr_expect(weir_exact_larger(&args, a, b) != weir_exact_larger(&args, b, a));
    cr_expect_not(weir_exact_larger(&args, a, a));
}

Test(exact, a_number_carries_its_derivative)
{
    const weir_exact a = any(1), b = any(2), square = weir_exact_mul(a, a), share = weir_exact_div(a, b);
    cr_expect(same(slope_of(square), weir_exact_mul(weir_exact_int(2), weir_exact_mul(value_of(a), slope_of(a)))));
    cr_expect(same(slope_of(weir_exact_mul(share, b)), slope_of(a)));
    cr_expect(same(slope_of(weir_exact_real(0.3)), weir_exact_int(0)));
}

/* Also of those that have a formula, and of functions of several numbers. */
Test(exact, the_derivative_of_an_oracle_is_its_slope)
{
    const char *functions[] = {"exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "gelu", "mine"};
    const weir_exact a = any(1), both[] = {a, any(2)};
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        const weir_exact y = weir_exact_oracle(&args, functions[f], &a, 1);
        const weir_exact slope = weir_exact_slope(&args, functions[f], &a, 1, 0);
        cr_expect(same(slope_of(y), weir_exact_mul(value_of(slope), slope_of(a))), "%s", functions[f]);
        cr_expect_not(weir_exact_equal(y, a));
        cr_expect_not(same(slope_of(slope), weir_exact_int(0)), "the slope of %s does not move", functions[f]);
    }
    const weir_exact exp = weir_exact_oracle(&args, "exp", &a, 1), log = weir_exact_slope(&args, "log", &a, 1, 0);
    cr_expect(same(exp, weir_exact_slope(&args, "exp", &a, 1, 0)));
    cr_expect(same(log, weir_exact_div(weir_exact_int(1), a)));
    weir_exact sum = weir_exact_int(0);
    for (int k = 0; k < 2; k++)
        sum = weir_exact_add(sum, weir_exact_mul(value_of(weir_exact_slope(&args, "both", both, 2, k)), slope_of(both[k])));
    cr_expect(same(slope_of(weir_exact_oracle(&args, "both", both, 2)), sum));
}

/* ---- plans ---- */

enum { ROWS = 4, COLUMNS = 6 };

/* prelu behind a product, split over dimension `dim`, which alone has a size that 2 divides. */
static weir_graph *graph_split(int dim)
{
    weir_graph *g = weir_graph_new("prelu");
    weir_mesh_new(g, "cpu:0-1");
    const int64_t columns = dim == 2 ? 4 : 3;
    weir_tensor *x = weir_input(g, WEIR_F32, {dim == 0 ? 4 : 3, dim == 1 ? 4 : 3, columns}, .name = "x", .micro = true,
                                .sbp = {dim < 2 ? WEIR_S(dim) : WEIR_B});
    weir_tensor *h = prelu(weir_shard(weir_linear(x, columns, .name = "up"), .sbp = {WEIR_S(dim)}), .name = "act");
    weir_train(weir_mean(weir_gelu(h)), weir_sgd(.lr = 0.1));
    weir_fetch(h, .name = "h");
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    return g;
}

/* Whether a call of the op sees a part of its first input alone. */
static bool is_split(const weir_plan *plan, const char *op, int dim)
{
    bool split = false;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_tensor *x = &plan->tensors[plan->operands[plan->kernels[k].in.first].tensor.i];
        split |= !strcmp(plan_text(plan, plan->kernels[k].op), op) && x->shape[dim] < x->global[dim];
    }
    return split;
}

Test(exact, an_op_with_a_rule_is_right_in_each_layout)
{
    for (int dim = 0; dim < 3; dim++) {
        weir_graph *g = graph_split(dim);
        weir_plan *plan = weir_compile(g, .micro_batches = 2, .no_fusion = true), *fused = weir_compile(g, .micro_batches = 2);
        cr_assert(plan && fused, "%s", weir_error());
        cr_expect(is_split(plan, "prelu", dim), "dimension %d is not split", dim);
        cr_expect(is_split(plan, "prelu_grad", dim), "dimension %d of the gradient is not split", dim);
        OK(weir_plan_verify(g, plan));
        OK(weir_plan_verify(g, fused));
        weir_plan_free(fused);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}

static void told(void *ctx, const char *name, const char *op, weir_src src)
{
    (void)src;
    snprintf(ctx, 100, "%s (%s)", name, op);
}

Test(exact, the_gradient_of_an_op_with_a_rule_is_proven)
{
    weir_graph *g = graph_split(1);
    char open[100] = "";
    OK(weir_gradients_verify(g, .not_covered = told, .ctx = open));
    cr_expect_str_eq(open, "");
    weir_graph_free(g);
}

/* A copy of the plan in which a call of the op has the slopes of the other columns. */
static weir_plan *with_other_slopes(const weir_plan *plan, uint32_t k)
{
    weir_plan *wrong = plan_copy(plan);
    plan_tensor *slopes = &wrong->tensors[wrong->operands[wrong->kernels[k].in.first + 1].tensor.i];
    slopes->start[0] = slopes->start[0] ? 0 : slopes->shape[0];
    return wrong;
}

/* One in which its first input is another, of the same shape. */
static weir_plan *with_other_input(const weir_plan *plan, uint32_t k)
{
    weir_plan *wrong = plan_copy(plan);
    const plan_range *in = &wrong->kernels[k].in, *out = &wrong->kernels[k].out;
    wrong->operands[in->first] = wrong->operands[in->count > 2 ? in->first + 2 : out->first];
    return wrong;
}

Test(exact, a_call_of_an_op_with_a_rule_that_reads_another_value_is_caught)
{
    weir_plan *(*const mutants[])(const weir_plan *plan, uint32_t k) = {with_other_slopes, with_other_input};
    weir_graph *g = graph_split(2);
    weir_plan *plan = weir_compile(g, .no_fusion = true);
    int made = 0;
    cr_assert(plan, "%s", weir_error());
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const char *name = plan_text(plan, plan->kernels[k].name);
        for (int m = 0; m < 2 && !strncmp(plan_text(plan, plan->kernels[k].op), "prelu", 5); m++, made++) {
            weir_plan *wrong = mutants[m](plan, k);
            cr_expect_eq(weir_plan_verify(g, wrong, .rounds = 1), WEIR_E_WRONG, "mutant %d of %s goes by unseen", m, name);
            cr_expect(!m || strstr(weir_error(), name), "\"%s\" should name %s", weir_error(), name);
            weir_plan_free(wrong);
        }
    }
    cr_expect_geq(made, 8);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* Without a rule a proof can know no more than that the op is one of rows. */
Test(exact, an_op_without_a_rule_is_called_wrong_where_its_rows_are_split)
{
    static weir_op blind;
    blind = op_prelu;
    blind.name = "blind_prelu";
    blind.exact = NULL;
    OK(weir_op_register(&blind));
    for (int dim = 0; dim < 2; dim++) {
        weir_graph *g = weir_graph_new("blind");
        weir_mesh_new(g, "cpu:0-1");
        weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x", .sbp = {WEIR_S(dim)});
        weir_tensor *in[2] = {x, weir_param(g, WEIR_F32, {COLUMNS}, .name = "slope")};
        weir_tensor *y = weir_op_apply(&(weir_apply){WEIR_HERE, NULL, &blind, g, in, 2, NULL}, NULL);
        weir_fetch(weir_shard(y, .sbp = {WEIR_S(dim)}), .name = "y");
        weir_plan *plan = weir_compile(g);
        cr_assert(plan && is_split(plan, "blind_prelu", dim), "%s", weir_error());
        cr_expect_eq(weir_plan_verify(g, plan), dim ? WEIR_E_WRONG : WEIR_OK, "%s", weir_error());
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}

/* ---- a program that was built with older headers ---- */

/* As prelu, by a program that does not know of the member. */
Test(exact, a_member_that_the_program_does_not_know_is_not_read)
{
    static weir_op old;
    old = op_prelu;
    old.name = "old_prelu";
    memset((char *)&old + offsetof(weir_op, exact), 0x5a, sizeof old.exact); /* what lies behind its structure */
    OK((weir_op_register)(&old));
    weir_graph *g = weir_graph_new("old");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x");
    weir_tensor *in[2] = {x, weir_param(g, WEIR_F32, {COLUMNS}, .name = "slope")};
    weir_fetch(weir_op_apply(&(weir_apply){WEIR_HERE, NULL, &old, g, in, 2, NULL}, NULL), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    OK(weir_plan_verify(g, plan));
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- a rule that refuses ---- */

static weir_status refuse(const weir_kernel_args *call)
{
    snprintf(call->error, call->error_bytes, "it takes no more than %g", 1.5);
    return WEIR_E_KERNEL;
}

Test(exact, a_rule_that_refuses_its_values_says_why)
{
    static weir_op strict;
    strict = op_prelu;
    strict.name = "strict_prelu";
    strict.exact = refuse;
    OK(weir_op_register(&strict));
    weir_graph *g = weir_graph_new("strict");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x");
    weir_tensor *in[2] = {x, weir_param(g, WEIR_F32, {COLUMNS}, .name = "slope")};
    weir_fetch(weir_op_apply(&(weir_apply){WEIR_HERE, NULL, &strict, g, in, 2, NULL}, NULL), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(g, plan), WEIR_E_WRONG);
    cr_expect(strstr(weir_error(), "it takes no more than 1.5"), "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}
