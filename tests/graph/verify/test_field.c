/* test_field.c: the field that proofs compute with, its oracles and its order; and what rules owe to them. */
#include "graph/verify/rule.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

TestSuite(field, .timeout = 60);

enum { SEED = 42, SAMPLES = 400 };

/* Random values; the first ones are 0, 1 and other numbers at the ends of ranges. */
static field_value sample(int64_t number)
{
    const int64_t ends[] = {0, 1, -1, 2, -2, INT32_MAX, INT32_MIN, (int64_t)(FIELD_P / 2), (int64_t)FIELD_P - 5};
    const int64_t end_count = sizeof ends / sizeof *ends;
    return number < end_count ? field_int(ends[number]) : field_draw(SEED, "sample", &number, 1);
}

static bool is_number(field_value a, int64_t number)
{
    return field_equal(a, field_int(number));
}

static void expect_below_p(field_value a)
{
    cr_expect(a.of[0] < FIELD_P && a.of[1] < FIELD_P);
}

/* ---- laws ---- */

/* More than are added before they are reduced, from values that are as large as can be. */
Test(field, a_sum_of_products_is_that_of_single_ones)
{
    enum { COUNT = 1000 };
    field_value a[COUNT], b[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        a[i] = i % 3 ? field_draw(7, "a", &i, 1) : field_int(-1);
        b[i] = i % 2 ? field_draw(7, "b", &i, 1) : field_int(-1);
    }
    for (int64_t step = 1; step <= 3; step += 2)
        for (int64_t count = 0; count <= COUNT / step; count += 13) {
            field_value sum = field_int(-1);
            for (int64_t i = 0; i < count; i++)
                sum = field_add(sum, field_mul(a[i * step], b[i]));
            cr_assert(field_equal(sum, field_dot(field_int(-1), a, step, b, 1, count)), "%lld products", (long long)count);
        }
}

Test(field, sums_and_differences_undo_each_other)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value a = sample(i), b = sample(SAMPLES - i);
        cr_expect(field_equal(field_sub(field_add(a, b), b), a));
        cr_expect(field_equal(field_add(a, b), field_add(b, a)));
        cr_expect(is_number(field_add(a, field_neg(a)), 0));
        cr_expect(is_number(field_sub(a, a), 0));
        cr_expect(field_equal(field_sub(a, b), field_neg(field_sub(b, a))));
        cr_expect(field_equal(field_add(a, field_int(0)), a));
        expect_below_p(field_add(a, b));
        expect_below_p(field_sub(a, b));
        expect_below_p(field_neg(a));
    }
}

Test(field, products_and_quotients_undo_each_other)
{
    for (int64_t i = 1; i < SAMPLES; i++) {
        const field_value a = sample(i), b = sample(1 + SAMPLES - i);
        cr_expect(is_number(field_mul(a, field_inverse(a)), 1), "sample %lld", (long long)i);
        cr_expect(field_equal(field_mul(field_div(b, a), a), b));
        cr_expect(field_equal(field_inverse(field_inverse(a)), a));
        cr_expect(field_equal(field_mul(a, b), field_mul(b, a)));
        cr_expect(is_number(field_mul(a, field_int(0)), 0));
        cr_expect(field_equal(field_mul(a, field_int(1)), a));
        cr_expect(field_equal(field_mul(a, field_int(-1)), field_neg(a)));
        expect_below_p(field_mul(a, b));
        expect_below_p(field_inverse(a));
    }
    cr_expect(is_number(field_inverse(field_int(0)), 0));
}

Test(field, sums_and_products_may_be_grouped_in_any_way)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value a = sample(i), b = sample(i + 1), c = sample(2 * i + 2);
        cr_expect(field_equal(field_add(field_add(a, b), c), field_add(a, field_add(b, c))));
        cr_expect(field_equal(field_mul(field_mul(a, b), c), field_mul(a, field_mul(b, c))));
        cr_expect(field_equal(field_mul(a, field_add(b, c)), field_add(field_mul(a, b), field_mul(a, c))));
    }
}

/* ---- real numbers ---- */

Test(field, a_real_number_is_the_fraction_that_its_author_meant)
{
    cr_expect(is_number(field_mul(field_real(0.1), field_int(10)), 1));
    cr_expect(is_number(field_mul(field_real(1.0 / 3), field_int(3)), 1));
    cr_expect(is_number(field_mul(field_real(-0.7), field_int(10)), -7));
    cr_expect(is_number(field_mul(field_real(1e-8), field_int(100000000)), 1));
    cr_expect(is_number(field_div(field_real(0.3), field_real(0.1)), 3));
    cr_expect(is_number(field_add(field_real(0.9), field_real(1 - 0.9)), 1));
    cr_expect(is_number(field_real(12345), 12345));
    cr_expect(is_number(field_real(-3), -3));
    cr_expect(is_number(field_real(0), 0));
    cr_expect(is_number(field_real(-0.0), 0));
    for (int64_t i = 0; i < SAMPLES; i++) {
        const int64_t above = (int64_t)(field_bits(SEED, "above", &i, 1) % 2001) - 1000;
        const int64_t below = (int64_t)(field_bits(SEED, "below", &i, 1) % 1000) + 1;
        cr_expect(is_number(field_mul(field_real((double)above / (double)below), field_int(below)), above), "%lld / %lld",
                  (long long)above, (long long)below);
    }
}

static field_value power(field_value base, int exponent)
{
    field_value result = field_int(1);
    for (int i = 0; i < exponent; i++)
        result = field_mul(result, base);
    return result;
}

Test(field, large_and_tiny_numbers_are_exact)
{
    for (int exponent = 1; exponent < 1000; exponent++) {
        cr_expect(field_equal(field_real(ldexp(1, exponent)), power(field_int(2), exponent)), "2^%d", exponent);
        cr_expect(field_equal(field_real(ldexp(1, -exponent)), field_inverse(power(field_int(2), exponent))), "2^-%d", exponent);
        cr_expect(field_equal(field_real(ldexp(-3, exponent)), field_mul(field_int(-3), field_real(ldexp(1, exponent)))));
    }
    cr_expect(field_equal(field_real(0x1p-1074), field_inverse(power(field_int(2), 1074))));
}

Test(field, infinities_and_nan_are_values_of_their_own)
{
    const double numbers[] = {INFINITY, -INFINITY, NAN, DBL_MAX, 0};
    for (int i = 0; i < 3; i++) {
        const field_value value = field_real(numbers[i]);
        cr_expect(field_equal(value, field_real(numbers[i])));
        cr_expect_not(field_equal(field_add(value, field_int(1)), value));
        for (int j = i + 1; j < 5; j++)
            cr_expect_not(field_equal(value, field_real(numbers[j])), "%g, %g", numbers[i], numbers[j]);
    }
}

Test(field, numbers_that_differ_have_other_values)
{
    const double numbers[] = {0.1, 0.1f, 0.10000001, 1.0 / 3, 1.0f / 3, M_PI, M_E, 1e-5, 1e-6, 0.9, 0.99, 0.999, 1e30, -0.1};
    const size_t count = sizeof numbers / sizeof *numbers;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            cr_expect_not(field_equal(field_real(numbers[i]), field_real(numbers[j])), "%.17g, %.17g", numbers[i], numbers[j]);
}

/* ---- integers ---- */

Test(field, integers_of_32_bits_survive)
{
    const int64_t ends[] = {0, 1, -1, 7, -100, INT32_MAX, INT32_MIN};
    int64_t number;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        cr_expect(field_is_int(field_int(ends[i]), &number) && number == ends[i], "%lld", (long long)ends[i]);
    for (int64_t i = 0; i < SAMPLES; i++) {
        const int64_t a = (int64_t)(field_bits(SEED, "a", &i, 1) % 60001) - 30000;
        const int64_t b = (int64_t)(field_bits(SEED, "b", &i, 1) % 60001) - 30000;
        cr_expect(field_is_int(field_add(field_int(a), field_int(b)), &number) && number == a + b);
        cr_expect(field_is_int(field_sub(field_int(a), field_int(b)), &number) && number == a - b);
        cr_expect(field_is_int(field_mul(field_int(a), field_int(b)), &number) && number == a * b);
    }
}

Test(field, other_values_are_no_integers)
{
    int64_t number;
    cr_expect_not(field_is_int(field_int(INT64_C(1) << 32), &number));
    cr_expect_not(field_is_int(field_int(-(INT64_C(1) << 32)), &number));
    cr_expect_not(field_is_int(field_real(0.5), &number));
    cr_expect_not(field_is_int((field_value){{3, 4}}, &number));
    for (int64_t i = 0; i < SAMPLES; i++)
        cr_expect_not(field_is_int(field_draw(SEED, "sample", &i, 1), &number));
}

/* ---- oracles ---- */

Test(field, an_oracle_answers_alike_for_equal_arguments)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value a = sample(i), again = field_sub(field_add(a, sample(i + 7)), sample(i + 7));
        const field_value answer = field_oracle_of(SEED, "exp", a);
        cr_expect(field_equal(answer, field_oracle_of(SEED, "exp", again)));
        cr_expect(field_equal(answer, field_oracle(SEED, "exp", &a, 1)));
        expect_below_p(answer);
    }
}

Test(field, an_oracle_answers_differently_for_all_else)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value a = sample(i), b = sample(i + 1), answer = field_oracle_of(SEED, "exp", a);
        cr_expect_not(field_equal(answer, field_oracle_of(SEED + 1, "exp", a)));
        cr_expect_not(field_equal(answer, field_oracle_of(SEED, "log", a)));
        cr_expect_not(field_equal(answer, field_oracle_of(SEED, "exp'", a)));
        cr_expect_not(field_equal(answer, field_oracle(SEED, "exp", (field_value[]){a, b}, 2)));
        cr_expect_not(field_equal(answer, a));
        cr_expect_neq(answer.of[0], answer.of[1]);
        for (int64_t j = 0; j < i; j++)
            cr_expect_not(field_equal(answer, field_oracle_of(SEED, "exp", sample(j))), "samples %lld, %lld", (long long)i,
                          (long long)j);
    }
}

Test(field, a_logarithm_can_be_undone)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value a = sample(i), log = field_log(SEED, a);
        expect_below_p(log);
        cr_expect(field_equal(field_unlog(SEED, log), a));
        cr_expect(field_equal(field_log(SEED, field_unlog(SEED, a)), a));
        cr_expect_not(field_equal(field_log(SEED + 1, a), log));
        cr_expect_not(field_equal(log, a));
        for (int64_t j = 0; j < i; j++)
            cr_expect_not(field_equal(log, field_log(SEED, sample(j))));
    }
}

/* The sum of two logarithms is the logarithm of nothing that was computed. */
Test(field, sums_and_multiples_of_logarithms_are_no_logarithms_of_sums_and_products)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value a = sample(i), b = sample(i + 1), sum = field_add(field_log(SEED, a), field_log(SEED, b));
        const field_value undone = field_unlog(SEED, sum);
        cr_expect_not(field_equal(undone, field_add(a, b)));
        cr_expect_not(field_equal(undone, field_mul(a, b)));
        cr_expect_not(field_equal(field_unlog(SEED, field_mul(field_int(2), field_log(SEED, a))), field_mul(field_int(2), a)));
    }
}

/* Both elements of a logarithm depend on both elements of the argument. */
Test(field, a_logarithm_reads_both_elements)
{
    for (int64_t i = 9; i < SAMPLES; i++) {
        const field_value a = sample(i), first = {{a.of[0] ^ 1, a.of[1]}}, second = {{a.of[0], a.of[1] ^ 1}};
        const field_value log = field_log(SEED, a), of_first = field_log(SEED, first), of_second = field_log(SEED, second);
        for (int element = 0; element < 2; element++) {
            cr_expect_neq(log.of[element], of_first.of[element]);
            cr_expect_neq(log.of[element], of_second.of[element]);
        }
    }
}

Test(field, the_order_of_arguments_matters)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value a = sample(i), b = sample(i + 1), turned = {{b.of[1], b.of[0]}};
        cr_expect_not(field_equal(field_oracle(SEED, "f", (field_value[]){a, b}, 2),
                                  field_oracle(SEED, "f", (field_value[]){b, a}, 2)));
        if (b.of[0] != b.of[1])
            cr_expect_not(field_equal(field_oracle_of(SEED, "f", b), field_oracle_of(SEED, "f", turned)));
    }
}

/* Both elements of an answer depend on both elements of the argument. */
Test(field, an_oracle_reads_both_elements)
{
    for (int64_t i = 9; i < SAMPLES; i++) {
        const field_value a = sample(i), first = {{a.of[0] ^ 1, a.of[1]}}, second = {{a.of[0], a.of[1] ^ 1}};
        const field_value answer = field_oracle_of(SEED, "exp", a), of_first = field_oracle_of(SEED, "exp", first);
        const field_value of_second = field_oracle_of(SEED, "exp", second);
        for (int element = 0; element < 2; element++) {
            cr_expect_neq(answer.of[element], of_first.of[element]);
            cr_expect_neq(answer.of[element], of_second.of[element]);
        }
    }
}

Test(field, draws_differ_in_seed_name_and_numbers)
{
    const int64_t numbers[] = {3, 4}, turned[] = {4, 3};
    const field_value drawn = field_draw(SEED, "w", numbers, 2);
    cr_expect(field_equal(drawn, field_draw(SEED, "w", numbers, 2)));
    cr_expect_not(field_equal(drawn, field_draw(SEED + 1, "w", numbers, 2)));
    cr_expect_not(field_equal(drawn, field_draw(SEED, "v", numbers, 2)));
    cr_expect_not(field_equal(drawn, field_draw(SEED, "w", turned, 2)));
    cr_expect_not(field_equal(drawn, field_draw(SEED, "w", numbers, 1)));
    cr_expect_neq(field_bits(SEED, "w", numbers, 2), field_bits(SEED, "w", turned, 2));
    for (int64_t i = 0; i < SAMPLES; i++)
        for (int64_t j = 0; j < i; j++)
            cr_expect_not(field_equal(field_draw(SEED, "w", &i, 1), field_draw(SEED, "w", &j, 1)));
}

/* ---- the order ---- */

Test(field, the_order_is_total)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        cr_expect_not(field_larger(SEED, sample(i), sample(i)));
        for (int64_t j = 0; j < i; j++)
            cr_expect_neq(field_larger(SEED, sample(i), sample(j)), field_larger(SEED, sample(j), sample(i)));
    }
}

Test(field, the_order_is_transitive)
{
    enum { FEW = 60 };
    for (int64_t i = 0; i < FEW; i++)
        for (int64_t j = 0; j < FEW; j++)
            for (int64_t k = 0; k < FEW && field_larger(SEED, sample(i), sample(j)); k++)
                cr_expect(!field_larger(SEED, sample(j), sample(k)) || field_larger(SEED, sample(i), sample(k)));
}

Test(field, each_seed_has_an_order_of_its_own)
{
    int alike = 0;
    for (int64_t i = 0; i < SAMPLES; i++)
        alike += field_larger(SEED, sample(i), sample(i + 1)) == field_larger(SEED + 1, sample(i), sample(i + 1));
    cr_expect(alike > SAMPLES / 4 && alike < SAMPLES * 3 / 4, "%d of %d pairs have the same order", alike, SAMPLES);
}

/* ---- rules over the field ---- */

static rule_array array_of(field_value *at, int rank, const int64_t *shape)
{
    rule_array array = {.dtype = WEIR_F32, .rank = rank, .at = at, .count = 1};
    for (int d = 0; d < rank; d++) {
        array.shape[d] = array.global[d] = shape[d];
        array.count *= shape[d];
    }
    return array;
}

static void run(const char *op, const plan_word *words, const rule_array *in, int in_count, const rule_array *out, int out_count,
                const rule_array *state, int state_count)
{
    char error[256] = "";
    const rule_call call = {.op = weir_op_find(op), .name = op, .words = words, .in = in, .in_count = in_count, .out = out,
                            .out_count = out_count, .state = state, .state_count = state_count, .micros = 1, .seed = SEED,
                            .error = error, .error_bytes = sizeof error};
    cr_assert_not_null(call.op);
    cr_assert(rule_find(op)(&call), "%s: %s", op, error);
}

/* The factor by which clip_scale multiplies gradients whose squares add up to `squares`. */
static field_value clip_factor(double most, field_value squares)
{
    const plan_word words[] = {{.r = most}};
    field_value sum[] = {squares, field_int(0)}, factor, skipped = field_int(0);
    const rule_array in = array_of(sum, 1, (int64_t[]){2}), out = array_of(&factor, 0, NULL), state = array_of(&skipped, 0, NULL);
    run("clip_scale", words, &in, 1, &out, 1, &state, 1);
    return factor;
}

Test(field, a_wrong_norm_always_changes_the_factor_of_gradients)
{
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value factor = clip_factor(1.5, sample(i));
        cr_expect_not(is_number(factor, 1));
        cr_expect_not(field_equal(factor, clip_factor(1.5, sample(i + 1))));
        cr_expect_not(field_equal(factor, clip_factor(2.5, sample(i))));
    }
}

/* The gradients of the scaled loss are larger by the scale, and their squares by its square. */
Test(field, loss_scale_gives_the_factor_of_clip_scale_divided_by_the_scale)
{
    const int64_t scale_of = INT64_C(1) << 15;
    for (int64_t i = 0; i < SAMPLES; i++) {
        const field_value scale = field_int(scale_of), factor = clip_factor(1.5, sample(i));
        const plan_word words[] = {{.r = 1.5}, {.i = 1000}};
        field_value sum[] = {field_mul(field_mul(scale, scale), sample(i)), field_int(0)}, of_scaled[2], states[2] = {field_int(0)};
        field_value scales = scale;
        const rule_array in[] = {array_of(&scales, 0, NULL), array_of(sum, 1, (int64_t[]){2})};
        const rule_array out[] = {array_of(&of_scaled[0], 0, NULL), array_of(&of_scaled[1], 0, NULL)};
        const rule_array state[] = {array_of(&states[0], 0, NULL), array_of(&states[1], 0, NULL)};
        run("loss_scale", words, in, 2, out, 2, state, 2);
        cr_expect(field_equal(field_mul(of_scaled[1], scale), factor));
        cr_expect(is_number(of_scaled[0], scale_of));
    }
}

/* max over rows, in halves and whole. */
Test(field, the_largest_of_shards_is_the_largest_of_the_whole)
{
    enum { COUNT = 24 };
    plan_word words[64] = {{.i = 0}};
    field_value x[COUNT], half[2], of_halves, of_all;
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = sample(i);
    const rule_array all = array_of(x, 1, (int64_t[]){COUNT}), left = array_of(x, 1, (int64_t[]){10});
    const rule_array right = array_of(x + 10, 1, (int64_t[]){COUNT - 10}), halves = array_of(half, 1, (int64_t[]){2});
    const rule_array out[] = {array_of(&of_all, 0, NULL), array_of(&half[0], 0, NULL), array_of(&half[1], 0, NULL),
                              array_of(&of_halves, 0, NULL)};
    run("max", words, &all, 1, &out[0], 1, NULL, 0);
    run("max", words, &left, 1, &out[1], 1, NULL, 0);
    run("max", words, &right, 1, &out[2], 1, NULL, 0);
    run("max", words, &halves, 1, &out[3], 1, NULL, 0);
    cr_expect(field_equal(of_all, of_halves));
    for (int64_t i = 0; i < COUNT; i++)
        cr_expect_not(field_larger(SEED, x[i], of_all));
}

/* A wrong log-sum-exp must not pass, although no rule can compute exp(x - lse). */
Test(field, a_wrong_kept_sum_changes_the_gradient_of_the_loss)
{
    const plan_word words[] = {{.i = 0}, {.i = 0}};
    field_value x[] = {sample(20), sample(21), sample(22)}, label = field_int(1), dloss = field_int(1), loss, lse;
    field_value right[3], wrong[3];
    const rule_array logits = array_of(x, 2, (int64_t[]){1, 3}), labels = array_of(&label, 1, (int64_t[]){1});
    const rule_array kept = array_of(&lse, 1, (int64_t[]){1}), seed = array_of(&dloss, 0, NULL), sum = array_of(&loss, 0, NULL);
    const rule_array in[] = {logits, labels, kept, seed};
    rule_array dx = array_of(right, 2, (int64_t[]){1, 3});
    run("cross_entropy", words, in, 2, (const rule_array[]){sum, kept}, 2, NULL, 0);
    run("cross_entropy_grad", words, in, 4, &dx, 1, NULL, 0);
    cr_expect(is_number(field_add(field_add(right[0], right[1]), right[2]), 0), "a gradient of softmax adds up to 0");
    lse = field_add(lse, field_int(1));
    dx.at = wrong;
    run("cross_entropy_grad", words, in, 4, &dx, 1, NULL, 0);
    for (int i = 0; i < 3; i++)
        cr_expect_not(field_equal(right[i], wrong[i]));
}
