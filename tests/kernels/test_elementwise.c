/* Elementwise ops: values against libm in double precision, broadcasting against an index-by-index walk,
 * every signature on 2 and 3 devices, and the vector functions over all of f32. */
#include "kernels/elementwise/elementwise.h"
#include "kernels/common/ops.h"
#include "graph/base/dtype.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20240611 };

/* ---- functions of one element ---- */

static double ref_neg(double x)
{
    return -x;
}
static double ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double ref_relu(double x)
{
    return x < 0 ? 0 : x;
}
static double ref_gelu(double x)
{
    return isinf(x) ? ref_relu(x) : x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double ref_silu(double x)
{
    return isinf(x) ? ref_relu(x) : x * ref_sigmoid(x);
}

#define REF(name, value)               \
    static double ref_##name(double x) \
    {                                  \
        return value;                  \
    }
REF(reciprocal, 1 / x)
REF(softplus, fmax(x, 0) + log1p(exp(-fabs(x))) + 0 * x)
REF(gelu_erf, isinf(x) ? ref_relu(x) : x / 2 * erfc(-x * M_SQRT1_2))
REF(sign, x > 0 ? 1 : x < 0 ? -1 : x)

typedef struct unary_case {
    const weir_op *op, *grad;
    double (*f)(double);
    bool positive;      /* domain */
    bool saves_output;  /* what the gradient reads */
} unary_case;

static const unary_case unary_cases[] = {
    {&op_neg, NULL, ref_neg, false, false},
    {&op_exp, NULL, exp, false, false},
    {&op_log, NULL, log, true, false},
    {&op_sqrt, &op_sqrt_grad, sqrt, true, true},
    {&op_tanh, &op_tanh_grad, tanh, false, true},
    {&op_sigmoid, &op_sigmoid_grad, ref_sigmoid, false, true},
    {&op_relu, &op_relu_grad, ref_relu, false, true},
    {&op_gelu, &op_gelu_grad, ref_gelu, false, false},
    {&op_silu, &op_silu_grad, ref_silu, false, false},
    {&op_abs, &op_abs_grad, fabs, false, false},
    {&op_sin, &op_sin_grad, sin, false, false},
    {&op_cos, &op_cos_grad, cos, false, false},
    {&op_erf, &op_erf_grad, erf, false, false},
    {&op_gelu_erf, &op_gelu_erf_grad, ref_gelu_erf, false, false},
    {&op_reciprocal, &op_reciprocal_grad, ref_reciprocal, true, true},
    {&op_softplus, &op_softplus_grad, ref_softplus, false, false},
    {&op_floor, NULL, floor, false, false},
    {&op_ceil, NULL, ceil, false, false},
    {&op_round, NULL, rint, false, false},
    {&op_sign, NULL, ref_sign, false, false},
};
enum { UNARY_CASES = sizeof unary_cases / sizeof *unary_cases };

static const unary_case *current; /* of the references below; one test process runs one test */

static void ref_unary(const kernel_check *c, int out, double *want)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = current->f(kernel_at(&c->in[0], i));
}

static void make_positive(weir_view *view)
{
    float *x = view->data;
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++)
        x[i] = fabsf(x[i]) + 0.1f;
}

static void check_unary(const unary_case *u, weir_shape shape)
{
    kernel_check c = kernel_check_new(u->op, NULL, SEED);
    weir_view *x = kernel_check_in(&c, WEIR_F32, shape);
    if (u->positive)
        make_positive(x);
    current = u;
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_unary, 1e-6);
    for (int devices = 2; devices <= 3; devices++)
        cr_assert_geq(shard_check(&c, devices, 1e-6), shape.rank);
    kernel_check_free(&c);
}

Test(elementwise, functions_agree_with_libm_on_every_layout, .timeout = 120)
{
    for (int u = 0; u < UNARY_CASES; u++) {
        check_unary(&unary_cases[u], SHAPE());
        check_unary(&unary_cases[u], SHAPE(1000));
        check_unary(&unary_cases[u], SHAPE(5, 1, 7));
        check_unary(&unary_cases[u], SHAPE(2, 3, 2, 1, 2, 5));
    }
}

/* x of the saved value: the reference is the slope of f there, by a central difference in double precision. */
static double saved_to_x(double saved)
{
    if (!current->saves_output)
        return saved;
    if (current->op == &op_sqrt)
        return saved * saved;
    if (current->op == &op_tanh)
        return atanh(saved);
    if (current->op == &op_sigmoid)
        return log(saved / (1 - saved));
    if (current->op == &op_reciprocal)
        return 1 / saved;
    return saved;
}

static void ref_unary_grad(const kernel_check *c, int out, double *want)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        double x = saved_to_x(kernel_at(&c->in[0], i)), h = 1e-5;
        double slope = (current->f(x + h) - current->f(x - h)) / (2 * h);
        if (current->op == &op_relu && x == 0)
            slope = 0;
        want[i] = slope * kernel_at(&c->in[1], i);
    }
}

Test(elementwise, gradients_are_the_slopes_on_every_layout, .timeout = 120)
{
    for (int u = 0; u < UNARY_CASES; u++) {
        current = &unary_cases[u];
        if (!current->grad)
            continue;
        kernel_check c = kernel_check_new(current->grad, NULL, SEED);
        weir_view *saved = kernel_check_in(&c, WEIR_F32, SHAPE(7, 33));
        for (int64_t i = 0; i < 7 * 33; i++) {
            float *x = (float *)saved->data + i;
            if (current->positive)
                *x = fabsf(*x) + 0.1f;
            if (current->saves_output)
                *x = (float)current->f(*x);
        }
        kernel_check_in(&c, WEIR_F32, SHAPE(7, 33));
        kernel_check_run(&c);
        kernel_check_near(&c, 0, ref_unary_grad, 2e-6);
        cr_assert_geq(shard_check(&c, 2, 2e-6), 3, "%s: S, S and P", current->grad->name);
        shard_check(&c, 3, 2e-6);
        kernel_check_free(&c);
    }
}

/* ---- all of f32 ---- */

enum { SWEEP = 1 << 16 };

/* Distance in units of the last place of the float nearest to `want`. */
static double ulps(float got, double want)
{
    double unit = ldexp(1, ilogb(fmax(fabs(want), 0x1p-126)) - 23);
    return fabs(got - want) / unit;
}

/* Compares to the precision of a float. Between the largest float and infinity, either will do. */
static bool agrees(float got, double want, double ulps_max)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(got) || fabs(want) > FLT_MAX)
        return fabs(want) > FLT_MAX * (1 - 1e-6) && fabsf(got) >= FLT_MAX && !signbit(got) == !signbit(want);
    return ulps(got, want) <= ulps_max;
}

static void sweep(const weir_op *op, double (*f)(double), double ulps_max, float from, float to)
{
    float *x = malloc(SWEEP * sizeof *x), *y = malloc(SWEEP * sizeof *y);
    cr_assert(x && y);
    weir_view in = {.data = x, .dtype = WEIR_F32, .shape = SHAPE(SWEEP), .global = SHAPE(SWEEP)}, out = in;
    out.data = y;
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1};
    for (uint64_t first = 0; first < UINT64_C(1) << 32; first += UINT64_C(1031) * SWEEP) {
        for (uint64_t i = 0; i < SWEEP; i++) {
            uint32_t bits = (uint32_t)(first + i * 1031);
            memcpy(&x[i], &bits, sizeof bits);
        }
        cr_assert_eq(op->kernel[WEIR_CPU](&args), WEIR_OK);
        for (int i = 0; i < SWEEP; i++)
            if (!(x[i] < from) && !(x[i] > to))
                cr_assert(agrees(y[i], f(x[i]), ulps_max), "%s(%a) is %a, not %a", op->name, x[i], y[i], f(x[i]));
    }
    free(x);
    free(y);
}

Test(elementwise, vector_functions_are_exact_to_4_ulp_over_all_floats, .timeout = 60)
{
    sweep(&op_exp, exp, 4, -INFINITY, INFINITY);
    sweep(&op_log, log, 4, -INFINITY, INFINITY);
    sweep(&op_sqrt, sqrt, 1, -INFINITY, INFINITY);
    sweep(&op_tanh, tanh, 4, -INFINITY, INFINITY);
    sweep(&op_sigmoid, ref_sigmoid, 4, -88, INFINITY);
    sweep(&op_silu, ref_silu, 4, -88, INFINITY);
    sweep(&op_erf, erf, 4, -INFINITY, INFINITY);
    sweep(&op_softplus, ref_softplus, 4, -88, INFINITY);
    sweep(&op_sin, sin, 2, -0x1p28f, 0x1p28f);
    sweep(&op_cos, cos, 2, -0x1p28f, 0x1p28f);
    sweep(&op_reciprocal, ref_reciprocal, 1, -INFINITY, INFINITY);
}

static float value_at(const weir_op *op, float x)
{
    float y;
    weir_view in = {.data = &x, .dtype = WEIR_F32}, out = {.data = &y, .dtype = WEIR_F32};
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1};
    cr_assert_eq(op->kernel[WEIR_CPU](&args), WEIR_OK);
    return y;
}

/* The phase of such numbers is lost, but not their size. */
Test(elementwise, sin_and_cos_of_any_number_are_within_one)
{
    const float far[] = {0x1p28f, 0x1.000002p28f, 1e9f, 3e10f, 1e15f, 1e20f, 1e38f, FLT_MAX};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const float x = (float)sign * far[i];
            cr_expect(fabsf(value_at(&op_sin, x)) <= 1 && fabsf(value_at(&op_cos, x)) <= 1, "%g", (double)x);
            if (fabsf(x) < 1e10f) {
                cr_expect_float_eq(value_at(&op_sin, x), sin((double)x), 1e-5);
                cr_expect_float_eq(value_at(&op_cos, x), cos((double)x), 1e-5);
            }
        }
    cr_expect(isnan(value_at(&op_sin, INFINITY)) && isnan(value_at(&op_cos, -INFINITY)));
    cr_expect(signbit(value_at(&op_sin, -0.0f)) && value_at(&op_cos, -0.0f) == 1);
}

Test(elementwise, rounding_is_to_the_even_integer_and_signs_of_zero_stay)
{
    const float x[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0x1p30f, -0.0f, INFINITY};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        cr_expect_eq(value_at(&op_round, x[i]), (float)rint((double)x[i]), "%g", (double)x[i]);
    cr_expect(signbit(value_at(&op_round, -0.25f)) && signbit(value_at(&op_ceil, -0.5f)) && value_at(&op_floor, -0.5f) == -1);
    cr_expect(value_at(&op_sign, -INFINITY) == -1 && value_at(&op_sign, 0x1p-149f) == 1 && value_at(&op_sign, 0) == 0);
    cr_expect(value_at(&op_gelu_erf, INFINITY) == INFINITY && value_at(&op_gelu_erf, -INFINITY) == 0);
    cr_expect(value_at(&op_softplus, INFINITY) == INFINITY && value_at(&op_softplus, -INFINITY) == 0);
    cr_expect(value_at(&op_reciprocal, 0) == INFINITY && value_at(&op_abs, -INFINITY) == INFINITY);
}

Test(elementwise, functions_of_integers_wrap_around)
{
    const int64_t x[] = {5, -7, 0, INT64_MIN, INT64_MAX}, want[][5] = {
        {-5, 7, 0, INT64_MIN, -INT64_MAX}, {5, 7, 0, INT64_MIN, INT64_MAX}, {1, -1, 0, -1, 1}};
    const int32_t want32[][5] = {{-5, 7, 0, INT32_MIN, -INT32_MAX}, {5, 7, 0, INT32_MIN, INT32_MAX}, {1, -1, 0, -1, 1}};
    const weir_op *ops[] = {&op_neg, &op_abs, &op_sign};
    for (int o = 0; o < 6; o++) {
        kernel_check c = kernel_check_new(ops[o / 2], NULL, SEED);
        weir_view *in = kernel_check_in(&c, o % 2 ? WEIR_I64 : WEIR_I32, SHAPE(5));
        for (int i = 0; i < 5; i++)
            if (o % 2)
                ((int64_t *)in->data)[i] = x[i];
            else
                ((int32_t *)in->data)[i] = i < 3 ? (int32_t)x[i] : i == 3 ? INT32_MIN : INT32_MAX;
        kernel_check_run(&c);
        for (int i = 0; i < 5; i++)
            if (o % 2)
                cr_expect_eq(((int64_t *)c.out[0].data)[i], want[o / 2][i], "%s of %lld", c.op->name, (long long)x[i]);
            else
                cr_expect_eq(((int32_t *)c.out[0].data)[i], want32[o / 2][i], "%s, element %d", c.op->name, i);
        kernel_check_free(&c);
    }
}

Test(elementwise, infinities_and_nan_go_where_the_limit_goes)
{
    const float far[] = {100, 1e4f, 1e20f, FLT_MAX, INFINITY};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        cr_assert_eq(value_at(&op_gelu, far[i]), far[i]);
        cr_assert_eq(value_at(&op_gelu, -far[i]), 0);
        cr_assert_eq(value_at(&op_silu, far[i]), far[i]);
        cr_assert_lt(fabsf(value_at(&op_silu, -far[i])), 1e-40f);
        cr_assert_eq(value_at(&op_sigmoid, far[i]), 1);
        cr_assert_lt(value_at(&op_sigmoid, -far[i]), 1e-40f);
    }
    for (int u = 0; u < UNARY_CASES; u++)
        cr_assert(isnan(value_at(unary_cases[u].op, NAN)), "%s(NaN)", unary_cases[u].op->name);
    cr_assert(signbit(value_at(&op_tanh, -0.0f)));
}

/* The references are slopes of double functions, which have no trouble far out; the kernels must not have any either.
 * */
Test(elementwise, gradients_stay_finite_far_out)
{
    const weir_op *ops[] = {&op_gelu_grad, &op_silu_grad};
    const float far[] = {50, 1e10f, 3e38f, INFINITY};
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < 4; i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float x = (float)sign * far[i], dy = 3, dx;
                weir_view in[2] = {{.data = &x, .dtype = WEIR_F32}, {.data = &dy, .dtype = WEIR_F32}};
                weir_view out = {.data = &dx, .dtype = WEIR_F32};
                weir_kernel_args args = {.in = in, .in_count = 2, .out = &out, .out_count = 1};
                cr_assert_eq(ops[o]->kernel[WEIR_CPU](&args), WEIR_OK);
                cr_assert_float_eq(dx, sign > 0 ? 3 : 0, 1e-6, "%s(%g) is %g", ops[o]->name, x, dx);
            }
}

/* ---- two operands ---- */

/* Where the element at output index `index` lies in an operand that broadcasts to `out`. */
static int64_t operand_at(const weir_shape *operand, const weir_shape *out, int64_t index)
{
    int64_t at = 0, step = 1;
    for (int d = out->rank - 1; d >= 0; d--) {
        int own = d - (out->rank - operand->rank);
        if (own >= 0) {
            at += (operand->dim[own] == 1 ? 0 : index % out->dim[d]) * step;
            step *= operand->dim[own];
        }
        index /= out->dim[d];
    }
    return at;
}

static double apply(const weir_op *op, double a, double b)
{
    if (op == &op_add)
        return a + b;
    if (op == &op_sub)
        return a - b;
    if (op == &op_min2)
        return isnan(a) || isnan(b) ? NAN : fmin(a, b);
    if (op == &op_max2)
        return isnan(a) || isnan(b) ? NAN : fmax(a, b);
    if (op == &op_pow)
        return pow(a, b);
    if (op == &op_equal)
        return a == b;
    if (op == &op_less)
        return a < b;
    if (op == &op_less_equal)
        return a <= b;
    if (op == &op_logical_and)
        return a != 0 && b != 0;
    if (op == &op_logical_or)
        return a != 0 || b != 0;
    if (op == &op_logical_xor)
        return (a != 0) != (b != 0);
    return op == &op_mul ? a * b : a / b;
}

static void ref_binary(const kernel_check *c, int out, double *want)
{
    const weir_shape *shape = &c->out[out].shape;
    for (int64_t i = 0; i < weir_shape_count(shape); i++)
        want[i] = apply(c->op, kernel_at(&c->in[0], operand_at(&c->in[0].shape, shape, i)),
                        kernel_at(&c->in[1], operand_at(&c->in[1].shape, shape, i)));
}

static void check_binary(const weir_op *op, weir_shape a, weir_shape b)
{
    kernel_check c = kernel_check_new(op, NULL, SEED);
    weir_view *base = kernel_check_in(&c, WEIR_F32, a);
    weir_view *divisor = kernel_check_in(&c, WEIR_F32, b);
    if (op == &op_div)
        make_positive(divisor);
    if (op == &op_pow)
        make_positive(base);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_binary, 1e-6);
    shard_check(&c, 2, 3e-5);
    shard_check(&c, 3, 3e-5);
    kernel_check_free(&c);
}

static void check_binary_both_ways(weir_shape a, weir_shape b)
{
    const weir_op *ops[] = {&op_add, &op_sub, &op_mul, &op_div, &op_min2, &op_max2, &op_pow};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        check_binary(ops[o], a, b);
        check_binary(ops[o], b, a);
    }
}

/* ---- integers, comparisons, truth ---- */

/* Small numbers, so that many are equal; reals with some NaN. */
static void put_few(weir_view *view, uint64_t *random)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++) {
        const double value = floor(kernel_random(random) * 4) - (view->dtype == WEIR_U8 ? 0 : 1);
        kernel_set(view, i, weir_dtype_real(view->dtype) && kernel_random(random) < 0.2 ? NAN : value);
    }
}

static void check_few(const weir_op *op, weir_dtype dtype, weir_shape a, weir_shape b)
{
    uint64_t random = SEED;
    kernel_check c = kernel_check_new(op, NULL, SEED);
    weir_view *first = kernel_check_in(&c, dtype, a), *second = kernel_check_in(&c, dtype, b);
    put_few(first, &random);
    put_few(second, &random);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_binary, 0);
    if (!weir_dtype_real(dtype))
        shard_check(&c, 3, 0);
    kernel_check_free(&c);
}

Test(elementwise, pairs_of_integers_and_comparisons_of_all_dtypes_broadcast)
{
    const weir_op *numbers[] = {&op_add, &op_sub, &op_mul, &op_min2, &op_max2};
    const weir_op *tests[] = {&op_equal, &op_less, &op_less_equal}, *bytes[] = {&op_logical_and, &op_logical_or, &op_logical_xor};
    const weir_dtype whole[] = {WEIR_I32, WEIR_I64};
    const weir_dtype compared[] = {WEIR_F32, WEIR_F16, WEIR_BF16, WEIR_I32, WEIR_I64, WEIR_U8};
    const weir_shape a[] = {SHAPE(3, 70), SHAPE(3, 70), SHAPE(5, 1, 7), SHAPE(1, 300), SHAPE()};
    const weir_shape b[] = {SHAPE(3, 70), SHAPE(3, 1), SHAPE(2, 7), SHAPE(1), SHAPE(4)};
    for (int s = 0; s < 5; s++) {
        for (int d = 0; d < 2; d++)
            for (int o = 0; o < 5; o++)
                check_few(numbers[o], whole[d], a[s], b[s]);
        for (int d = 0; d < 6; d++)
            for (int o = 0; o < 3; o++)
                check_few(tests[o], compared[d], a[s], b[s]);
        for (int o = 0; o < 3; o++)
            check_few(bytes[o], WEIR_U8, a[s], b[s]);
    }
    check_few(&op_min2, WEIR_F32, SHAPE(3, 70), SHAPE(70));
    check_few(&op_max2, WEIR_BF16, SHAPE(3, 70), SHAPE(3, 1));
}

Test(elementwise, integers_wrap_around)
{
    int64_t wide[2] = {INT64_MAX, INT64_MIN}, got[2];
    weir_view out = {.data = got, .dtype = WEIR_I64, .shape = SHAPE(1)}, in[2] = {out, out};
    in[0].data = wide;
    in[1].data = wide + 1;
    weir_kernel_args args = {.in = in, .in_count = 2, .out = &out, .out_count = 1};
    cr_assert(!op_sub.kernel[WEIR_CPU](&args) && got[0] == -1);
    in[1] = in[0];
    cr_assert(!op_add.kernel[WEIR_CPU](&args) && got[0] == -2);
    cr_assert(!op_mul.kernel[WEIR_CPU](&args) && got[0] == 1);
    in[1].data = wide + 1;
    cr_assert(!op_min2.kernel[WEIR_CPU](&args) && got[0] == INT64_MIN);
    cr_assert(!op_max2.kernel[WEIR_CPU](&args) && got[0] == INT64_MAX);
}

static float pair_at(const weir_op *op, float a, float b)
{
    float y;
    weir_view in[2] = {{.data = &a, .dtype = WEIR_F32}, {.data = &b, .dtype = WEIR_F32}}, out = {.data = &y, .dtype = WEIR_F32};
    weir_kernel_args args = {.in = in, .in_count = 2, .out = &out, .out_count = 1};
    cr_assert_eq(op->kernel[WEIR_CPU](&args), WEIR_OK);
    return y;
}

Test(elementwise, powers_and_their_slopes_at_the_edges)
{
    cr_expect(pair_at(&op_pow, 0, 0) == 1 && pair_at(&op_pow, -2, 3) == -8 && isnan(pair_at(&op_pow, -2, 0.5f)));
    cr_expect(pair_at(&op_pow, 0, -1) == INFINITY && pair_at(&op_pow, NAN, 0) == 1);
    cr_expect(pair_at(&op_pow_da, 0, 0) == 0 && pair_at(&op_pow_da, 0, 2) == 0 && pair_at(&op_pow_da, -2, 3) == 12);
    cr_expect(pair_at(&op_pow_db, 0, 0) == 0 && pair_at(&op_pow_db, 0, 2) == 0 && isnan(pair_at(&op_pow_db, -2, 3)));
    cr_expect_float_eq(pair_at(&op_pow_db, 2, 3), (float)(8 * log(2)), 1e-5);
}

Test(elementwise, binary_ops_broadcast_as_numpy_does_on_every_layout, .timeout = 120)
{
    check_binary_both_ways(SHAPE(), SHAPE());
    check_binary_both_ways(SHAPE(100), SHAPE(100));
    check_binary_both_ways(SHAPE(33, 65), SHAPE(33, 65));
    check_binary_both_ways(SHAPE(33, 65), SHAPE(65));
    check_binary_both_ways(SHAPE(33, 65), SHAPE(33, 1));
    check_binary_both_ways(SHAPE(33, 65), SHAPE());
    check_binary_both_ways(SHAPE(1, 65), SHAPE(33, 1));
    check_binary_both_ways(SHAPE(4, 1, 6, 1), SHAPE(5, 1, 7));
    check_binary_both_ways(SHAPE(2, 3, 1, 2, 1, 3), SHAPE(2, 1, 2, 2, 2, 1));
    check_binary_both_ways(SHAPE(2, 3, 4), SHAPE(3, 4));
}

/* Shapes with random ranks, sizes 1..4, and random dimensions of either operand set to 1 or left out. */
Test(elementwise, binary_ops_broadcast_random_shapes, .timeout = 120)
{
    uint64_t random = SEED;
    for (int round = 0; round < 200; round++) {
        weir_shape whole = {.rank = (int)(kernel_random(&random) * 7)}, in[2];
        for (int d = 0; d < whole.rank; d++)
            whole.dim[d] = 1 + (int64_t)(kernel_random(&random) * 4);
        for (int k = 0; k < 2; k++) {
            int missing = kernel_random(&random) < 0.5 ? 0 : (int)(kernel_random(&random) * whole.rank);
            in[k] = (weir_shape){.rank = whole.rank - missing};
            for (int d = 0; d < in[k].rank; d++)
                in[k].dim[d] = kernel_random(&random) < 0.4 ? 1 : whole.dim[d + missing];
        }
        check_binary(&op_sub, in[0], in[1]);
    }
}

Test(elementwise, a_sum_takes_two_partial_operands_and_a_product_one)
{
    const weir_op *ops[] = {&op_add, &op_mul, &op_div};
    const int signatures[] = {1 + 2, 2 + 2, 1 + 2}; /* those of P, and two splits */
    for (int o = 0; o < 3; o++) {
        kernel_check c = kernel_check_new(ops[o], NULL, SEED);
        kernel_check_in(&c, WEIR_F32, SHAPE(4, 6));
        kernel_check_in(&c, WEIR_F32, SHAPE(6));
        kernel_check_run(&c);
        cr_assert_eq(shard_check(&c, 2, 1e-3), signatures[o], "%s", ops[o]->name);
        kernel_check_free(&c);
    }
}

Test(elementwise, shapes_that_do_not_broadcast_are_named)
{
    const weir_type wrong[2] = {{WEIR_F32, SHAPE(8, 16)}, {WEIR_F32, SHAPE(8, 15)}};
    kernel_check_refuses(&op_add, NULL, wrong, 2, "shapes [8, 16] and [8, 15] do not broadcast");
    const weir_type integer[2] = {{WEIR_F32, SHAPE(8)}, {WEIR_I32, SHAPE(8)}};
    kernel_check_refuses(&op_mul, NULL, integer, 2, "dtypes f32 and i32 differ");
    kernel_check_refuses(&op_div, NULL, integer, 2, "input 1 is i32");
    kernel_check_refuses(&op_exp, NULL, &integer[1], 1, "input 0 is i32");
    const weir_type slope[2] = {{WEIR_F32, SHAPE(8)}, {WEIR_F32, SHAPE(9)}};
    kernel_check_refuses(&op_tanh_grad, NULL, slope, 2, "shapes [8] and [9] differ");
}

/* ---- choices ---- */

static void ref_where(const kernel_check *c, int out, double *want)
{
    const weir_shape *shape = &c->out[out].shape;
    for (int64_t i = 0; i < weir_shape_count(shape); i++) {
        const weir_view *from = &c->in[kernel_at(&c->in[0], operand_at(&c->in[0].shape, shape, i)) != 0 ? 1 : 2];
        want[i] = kernel_at(from, operand_at(&from->shape, shape, i));
    }
}

static void ref_masked(const kernel_check *c, int out, double *want)
{
    const masked_attrs *attrs = c->attrs;
    const weir_shape *shape = &c->out[out].shape;
    for (int64_t i = 0; i < weir_shape_count(shape); i++) {
        const bool kept = (kernel_at(&c->in[0], operand_at(&c->in[0].shape, shape, i)) != 0) != (attrs->inverted != 0);
        want[i] = kept ? kernel_at(&c->in[1], operand_at(&c->in[1].shape, shape, i)) : 0;
    }
}

Test(elementwise, where_takes_elements_of_any_dtype_on_every_layout, .timeout = 60)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        const weir_shape c_shape[] = {SHAPE(3, 40), SHAPE(40), SHAPE(5, 1, 7), SHAPE()};
        const weir_shape a_shape[] = {SHAPE(3, 40), SHAPE(3, 1), SHAPE(7), SHAPE(2, 3)};
        const weir_shape b_shape[] = {SHAPE(3, 40), SHAPE(), SHAPE(2, 7), SHAPE(3)};
        for (int s = 0; s < 4; s++) {
            kernel_check c = kernel_check_new(&op_where, NULL, SEED);
            kernel_check_in(&c, WEIR_U8, c_shape[s]);
            kernel_check_in(&c, (weir_dtype)dtype, a_shape[s]);
            kernel_check_in(&c, (weir_dtype)dtype, b_shape[s]);
            kernel_check_run(&c);
            kernel_check_near(&c, 0, ref_where, 0);
            shard_check(&c, 3, 1e-6 + 4 * kernel_digit((weir_dtype)dtype));
            kernel_check_free(&c);
        }
    }
}

Test(elementwise, masked_keeps_or_drops_on_every_layout)
{
    for (int inverted = 0; inverted < 2; inverted++)
        for (int s = 0; s < 3; s++) {
            const masked_attrs attrs = {inverted};
            kernel_check c = kernel_check_new(&op_masked, &attrs, SEED);
            kernel_check_in(&c, WEIR_U8, (const weir_shape[]){SHAPE(3, 40), SHAPE(3, 1), SHAPE(2, 1, 5)}[s]);
            kernel_check_in(&c, s ? WEIR_F32 : WEIR_BF16, (const weir_shape[]){SHAPE(3, 40), SHAPE(40), SHAPE(4, 1)}[s]);
            kernel_check_run(&c);
            kernel_check_near(&c, 0, ref_masked, 0);
            shard_check(&c, 2, s ? 1e-6 : 2e-2);
            kernel_check_free(&c);
        }
}

static void ref_clip(const kernel_check *c, int out, double *want)
{
    const clip_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        const double x = kernel_at(&c->in[0], i);
        if (c->in_count > 1)
            want[i] = x >= attrs->lo && x <= attrs->hi ? kernel_at(&c->in[1], i) : 0;
        else
            want[i] = x < attrs->lo ? attrs->lo : x > attrs->hi ? attrs->hi : x;
    }
}

Test(elementwise, clip_keeps_nan_and_its_bounds_count_as_inside)
{
    const clip_attrs cases[] = {{-0.5, 0.75}, {-INFINITY, 0}, {0, INFINITY}, {-INFINITY, INFINITY}};
    for (int i = 0; i < 4; i++)
        for (int grad = 0; grad < 2; grad++) {
            kernel_check c = kernel_check_new(grad ? &op_clip_grad : &op_clip, &cases[i], SEED);
            weir_view *x = kernel_check_in(&c, WEIR_F32, SHAPE(5, 67));
            const float edges[] = {-0.5f, 0.75f, 0, -0.0f, NAN, INFINITY, -INFINITY};
            memcpy(x->data, edges, sizeof edges);
            if (grad)
                kernel_check_in(&c, WEIR_F32, SHAPE(5, 67));
            kernel_check_run(&c);
            kernel_check_near(&c, 0, ref_clip, 0);
            kernel_check_free(&c);
        }
}

static void ref_truth(const kernel_check *c, int out, double *want)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        const double x = kernel_at(&c->in[0], i);
        want[i] = c->op == &op_is_nan ? isnan(x) : x == 0;
    }
}

Test(elementwise, not_and_is_nan_on_every_layout)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16, WEIR_U8};
    for (int d = 0; d < 4; d++) {
        uint64_t random = SEED;
        kernel_check c = kernel_check_new(dtypes[d] == WEIR_U8 ? &op_logical_not : &op_is_nan, NULL, SEED);
        put_few(kernel_check_in(&c, dtypes[d], SHAPE(5, 133)), &random);
        kernel_check_run(&c);
        kernel_check_near(&c, 0, ref_truth, 0);
        shard_check(&c, 3, 0);
        kernel_check_free(&c);
    }
}

/* ---- many, and scale and shift ---- */

static void ref_add_many(const kernel_check *c, int out, double *want)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        for (int k = 0; k < c->in_count; k++)
            want[i] += kernel_at(&c->in[k], i);
}

Test(elementwise, many_tensors_are_added_whatever_their_dtype, .timeout = 120)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++)
        for (int count = 1; count <= 9; count += 4) {
            kernel_check c = kernel_check_new(&op_add_many, NULL, SEED);
            for (int k = 0; k < count; k++)
                kernel_check_in(&c, (weir_dtype)dtype, SHAPE(5, 733));
            kernel_check_run(&c);
            kernel_check_near(&c, 0, ref_add_many, 1e-6);
            cr_assert_eq(shard_check(&c, 3, 3e-6), weir_dtype_real((weir_dtype)dtype) ? 3 : 2);
            kernel_check_free(&c);
        }
    const weir_type wrong[2] = {{WEIR_I32, SHAPE(8)}, {WEIR_U8, SHAPE(8)}};
    kernel_check_refuses(&op_add_many, NULL, wrong, 2, "dtypes i32 and u8 differ");
}

Test(elementwise, a_tensor_can_be_added_to_itself_in_place)
{
    float x[3] = {1, 2, 3};
    weir_view view = {.data = x, .dtype = WEIR_F32, .shape = SHAPE(3), .global = SHAPE(3)};
    weir_view in[3] = {view, view, view};
    weir_kernel_args args = {.in = in, .in_count = 3, .out = &view, .out_count = 1};
    cr_assert_eq(op_add_many.kernel[WEIR_CPU](&args), WEIR_OK);
    cr_assert(x[0] == 3 && x[1] == 6 && x[2] == 9);
}

static void ref_affine(const kernel_check *c, int out, double *want)
{
    const affine_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = attrs->scale * kernel_at(&c->in[0], i) + attrs->shift;
}

Test(elementwise, affine_is_linear_only_without_a_shift)
{
    const affine_attrs cases[] = {{2.5, 0}, {-0.5, 3}};
    for (int i = 0; i < 2; i++) {
        kernel_check c = kernel_check_new(&op_affine, &cases[i], SEED);
        kernel_check_in(&c, WEIR_F32, SHAPE(37));
        kernel_check_run(&c);
        kernel_check_near(&c, 0, ref_affine, 1e-6);
        cr_assert_eq(shard_check(&c, 2, 1e-5), cases[i].shift == 0 ? 2 : 1);
        kernel_check_free(&c);
    }
}
