/* tests/graph/verify/test_bound.c: how often a proof is wrong is what the theorem says.
 *
 * The field of this suite is small (small_field.h). So a plan that differs from its graph by one operand passes now and then, and
 * over many seeds it can be counted how often. docs/design/proof.md has the bound: (N^2 / 2) (d / p)^r, for N distinct arguments and
 * results of oracles on both sides, polynomials of degree d between two oracles, and r elements of a value. N is counted here, in
 * the large field; d is known from the model.
 *
 *     pair   gelu(a b)                 against gelu(a a)                   d = 2
 *     chain  gelu(gelu(gelu(a b) c) c) against the same with gelu(a a)     d = 2
 *     power  gelu(a a a a a a)         against gelu(b b b b b b)           d = 6, and p - 1 is a multiple of 6
 *     sum    gelu(a b + ...) of 2 devices, without the terms of one        d = 2
 */
#include "tests/graph/verify/small_field.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "graph/plan/form/plan.h"
#include "graph/verify/field.h"
#include "tests/support/effort.h"
#include "tests/support/sample_plan.h"

TestSuite(bound, .timeout = FULL(3000, 600));

int small_field_bits = 61, small_field_elements = 2;

enum { PLAYS = EFFORT(FULL(1000000, 20000), 2000, 2000), ARGUMENTS_MAX = 1000 };

/* ---- N ---- */

static uint64_t asked[ARGUMENTS_MAX];
static int asked_count;
static bool counts;

field_value __real_field_oracle_primed(uint64_t seed, const char *function, int primes, const field_value *arguments, int step,
                                       int count);
field_value __wrap_field_oracle_primed(uint64_t seed, const char *function, int primes, const field_value *arguments, int step,
                                       int count);

static void count_distinct(uint64_t bits)
{
    for (int i = 0; i < asked_count; i++)
        if (asked[i] == bits)
            return;
    cr_assert_lt(asked_count, ARGUMENTS_MAX);
    asked[asked_count++] = bits;
}

/* The linker leads all calls of field_oracle_primed() here, and field_oracle() is one. An answer in the large field stands for the
 * arguments. */
field_value __wrap_field_oracle_primed(uint64_t seed, const char *function, int primes, const field_value *arguments, int step,
                                       int count)
{
    const field_value answer = __real_field_oracle_primed(seed, function, primes, arguments, step, count);
    if (counts)
        count_distinct(answer.of[0]);
    return answer;
}

/* ---- pairs of a graph and a plan that differ ---- */

typedef struct model {
    const char *name;
    int degree;
    weir_graph *(*graph)(void);
    const char *op;        /* of the kernel that is changed: its last input becomes its first, */
    bool drops;            /* or is dropped */
    const char *instead;   /* or all inputs become this tensor */
} model;

static weir_tensor *number(weir_graph *g, const char *name)
{
    return weir_param(g, WEIR_F32, {1}, .name = name, .frozen = true, .init = WEIR_NORMAL(1));
}

static weir_graph *fetched(weir_graph *g, weir_tensor *y)
{
    weir_fetch(y, .name = "y");
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    return g;
}

static weir_graph *pair(void)
{
    weir_graph *g = weir_graph_new("pair");
    weir_mesh_new(g, "cpu:0");
    return fetched(g, weir_gelu(weir_mul(number(g, "a"), number(g, "b"))));
}

static weir_graph *chain(void)
{
    weir_graph *g = weir_graph_new("chain");
    weir_mesh_new(g, "cpu:0");
    weir_tensor *c = number(g, "c"), *y = weir_gelu(weir_mul(number(g, "a"), number(g, "b")));
    for (int i = 0; i < 2; i++)
        y = weir_gelu(weir_mul(y, c));
    return fetched(g, y);
}

static weir_graph *power(void)
{
    weir_graph *g = weir_graph_new("power");
    weir_mesh_new(g, "cpu:0");
    weir_tensor *a = number(g, "a"), *square = weir_mul(a, a), *b = number(g, "b");
    weir_fetch(b, .name = "b");
    return fetched(g, weir_gelu(weir_mul(weir_mul(square, square), square)));
}

static weir_graph *sum(void)
{
    weir_graph *g = weir_graph_new("sum");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *a = weir_param(g, WEIR_F32, {1, 2}, .name = "a", .frozen = true, .init = WEIR_NORMAL(1), .sbp = {WEIR_S(1)});
    weir_tensor *b = weir_param(g, WEIR_F32, {2, 1}, .name = "b", .frozen = true, .init = WEIR_NORMAL(1), .sbp = {WEIR_S(0)});
    return fetched(g, weir_gelu(weir_shard(weir_matmul(a, b), .sbp = {WEIR_B})));
}

static const model models[] = {
    {"pair", 2, pair, "mul", false, NULL},
    {"chain", 2, chain, "mul", false, NULL},
    {"power", 6, power, "mul", false, "b"},
    {"sum", 2, sum, "box", true, NULL},
};
enum { MODELS = sizeof models / sizeof *models };

static bool is_of(const weir_plan *plan, uint32_t k, const model *m)
{
    return !strcmp(plan_text(plan, plan->kernels[k].op), m->op) && plan->kernels[k].in.count > 1;
}

/* Every kernel of the op reads `b` where it would read `a`. */
static void read_instead(weir_plan *plan, const plan_kernel *kernel, const char *name)
{
    for (uint32_t i = kernel->in.first; i < kernel->in.first + kernel->in.count; i++)
        for (uint32_t t = 0; t < plan->tensors_count; t++)
            if (!strcmp(plan_text(plan, plan->tensors[plan->operands[i].tensor.i].name), "a") &&
                !strcmp(plan_text(plan, plan->tensors[t].name), name) && plan->tensors[t].owner == plan->tensors[plan->operands[i].tensor.i].owner)
                plan->operands[i].tensor.i = t;
}

static weir_plan *changed(const weir_plan *right, const model *m)
{
    weir_plan *plan = plan_copy(right);
    cr_assert_not_null(plan);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        plan_kernel *kernel = &plan->kernels[k];
        if (!is_of(plan, k, m))
            continue;
        if (m->instead) {
            read_instead(plan, kernel, m->instead);
            continue;
        }
        if (m->drops)
            kernel->in.count--;
        else
            plan->operands[kernel->in.first + 1] = plan->operands[kernel->in.first];
        break;
    }
    return plan;
}

/* ---- rates ---- */

static double rate_of_passes(const weir_graph *g, const weir_plan *wrong, int bits, int elements)
{
    int passes = 0;
    small_field_bits = bits;
    small_field_elements = elements;
    for (uint64_t seed = 0; seed < PLAYS; seed++) {
        const weir_status status = weir_plan_verify(g, wrong, .seed = seed, .rounds = 1);
        cr_assert(status == WEIR_OK || status == WEIR_E_WRONG, "%s", weir_error());
        passes += status == WEIR_OK;
    }
    return (double)passes / PLAYS;
}

/* Arguments and answers of oracles, on both sides. */
static int distinct_values(const weir_graph *g, const weir_plan *wrong)
{
    small_field_bits = 61;
    small_field_elements = 2;
    asked_count = 0;
    counts = true;
    cr_assert_eq(weir_plan_verify(g, wrong, .seed = 1, .rounds = 1), WEIR_E_WRONG);
    counts = false;
    return 2 * asked_count;
}

static double bound_of(int values, int degree, int bits, int elements)
{
    return (double)values * values / 2 * pow(degree / (ldexp(1, bits) - 1), elements);
}

/* By chance a rate of few passes is above what is expected; this much is six standard deviations. */
static double chance(double rate)
{
    return 6 * sqrt(rate / PLAYS) + 1.0 / PLAYS;
}

Test(bound, false_passes_are_as_rare_as_the_theorem_says)
{
    fprintf(stderr, "model   N  d  p      r  passes    bound\n");
    for (int i = 0; i < MODELS; i++) {
        const model *m = &models[i];
        weir_graph *g = m->graph();
        weir_plan *plan = weir_compile(g), *wrong;
        cr_assert(plan, "%s", weir_error());
        cr_assert_eq(weir_plan_verify(g, plan), WEIR_OK, "%s: %s", m->name, weir_error());
        wrong = changed(plan, m);
        const int values = distinct_values(g, wrong);
        const struct { int bits, elements; } fields[] = {{13, 1}, {7, 1}, {7, 2}};
        double rate[3];
        for (int f = 0; f < 3; f++) {
            const double most = bound_of(values, m->degree, fields[f].bits, fields[f].elements);
            rate[f] = rate_of_passes(g, wrong, fields[f].bits, fields[f].elements);
            fprintf(stderr, "%-6s %2d  %d  2^%-2d-1  %d  %.2e  %.2e\n", m->name, values, m->degree, fields[f].bits, fields[f].elements,
                    rate[f], most);
            cr_expect_leq(rate[f], most, "%s, %d bits, %d elements", m->name, fields[f].bits, fields[f].elements);
        }
        cr_expect(EFFORT(rate[1] > 0, true, true), "%s: no proof over the smallest field was wrong", m->name);
        cr_expect_leq(rate[2], rate[1] * rate[1] + chance(rate[1] * rate[1]), "%s: two elements", m->name);
        cr_expect_geq(rate[2], rate[1] * rate[1] / 4 - chance(rate[1] * rate[1]), "%s: two elements", m->name);
        weir_plan_free(wrong);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}
