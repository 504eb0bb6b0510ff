/* Casts between all dtypes, and halves: every half exactly, rounding to the nearest even one, and integers that saturate. */
#include "graph/base/dtype.h"
#include "graph/base/half.h"
#include "kernels/common/ops.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { SEED = 20240611 };

typedef struct cast_attrs {
    int64_t dtype;
} cast_attrs;

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static void ref_cast(const kernel_check *c, int out, double *want)
{
    weir_dtype to = c->out[out].dtype;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        double x = kernel_at(&c->in[0], i);
        if (weir_dtype_real(to)) /* from an integer by way of f32 */
            want[i] = kernel_round(to, (float)x);
        else if (isnan(x))
            want[i] = 0;
        else
            want[i] = trunc(clamp(x, dtype_least(to), to == WEIR_I64 ? 0x1p63 : dtype_end(to) - 1));
    }
}

static void put_edges(const weir_view *view)
{
    const float reals[] = {0, -0.0f, 0.9f, -0.9f, 254.9f, 255, 256, 2147483520.0f, 2147483648.0f, -2147483648.0f,
                           -2147483904.0f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 16777216, 127.9f, 128, -128.9f, -129,
                           0x1p63f, -0x1p63f, 0x1.fffffep62f};
    const int64_t integers[] = {0, -1, 127, 128, -128, -129, 255, 256, INT32_MAX, INT32_MIN, 16777217,
                                INT64_C(1) << 31, -(INT64_C(1) << 31) - 1, INT64_C(1) << 53, INT64_MIN, INT64_MAX};
    const int all = sizeof integers / sizeof *integers;
    if (weir_dtype_real(view->dtype))
        weir_from_f32(reals, sizeof reals / sizeof *reals, view->dtype, view->data);
    for (int i = 0; i < all && !weir_dtype_real(view->dtype); i++)
        if (view->dtype == WEIR_I64)
            ((int64_t *)view->data)[i] = integers[i];
        else
            kernel_set(view, i, clamp((double)integers[i], dtype_least(view->dtype), dtype_end(view->dtype) - 1));
}

/* Bits are compared, NaN but for its payload. */
static void expect_half(weir_dtype dtype, uint16_t got, double want)
{
    float value, rounded = (float)want;
    weir_to_f32(dtype, &got, 1, &value);
    cr_assert(isnan(want) ? isnan(value) : !memcmp(&value, &rounded, sizeof value),
              "%s: %04x is %.9g, not %.9g", weir_dtype_name(dtype), got, (double)value, want);
}

/* The value of each of the 65,536 halves by the format: sign, exponent, fraction. */
static double half_value(weir_dtype dtype, uint16_t half)
{
    const int fraction_bits = dtype == WEIR_F16 ? 10 : 7, bias = dtype == WEIR_F16 ? 15 : 127;
    const int exponent = (half & 0x7FFF) >> fraction_bits, fraction = half & ((1 << fraction_bits) - 1);
    const double sign = half & 0x8000 ? -1 : 1;
    if (exponent == 2 * bias + 1)
        return fraction ? NAN : sign * INFINITY;
    return sign * ldexp(fraction + (exponent ? 1 << fraction_bits : 0),
                        (exponent ? exponent : 1) - bias - fraction_bits);
}

Test(cast, every_half_is_widened_exactly_and_comes_back)
{
    static uint16_t half[65536], again[65536];
    static float wide[65536];
    for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++) {
        for (int i = 0; i < 65536; i++)
            half[i] = (uint16_t)i;
        weir_to_f32((weir_dtype)dtype, half, 65536, wide);
        weir_from_f32(wide, 65536, (weir_dtype)dtype, again);
        for (int i = 0; i < 65536; i++) {
            double want = half_value((weir_dtype)dtype, half[i]);
            cr_assert(isnan(want) ? isnan(wide[i]) && isnan(half_value((weir_dtype)dtype, again[i]))
                                  : (double)wide[i] == want && again[i] == half[i],
                      "%s %04x is %.9g, not %.9g, and comes back as %04x", weir_dtype_name((weir_dtype)dtype), i,
                      (double)wide[i], want, again[i]);
        }
    }
}

/* Beside each value of the format: the middle to the next, and the f32 below and above of both. */
Test(cast, halves_round_to_the_nearest_even_everywhere)
{
    static float x[65536 * 6];
    static uint16_t y[65536 * 6];
    for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++) {
        int count = 0;
        for (int i = 0; i < 65536; i++) {
            float at = (float)half_value((weir_dtype)dtype, (uint16_t)i);
            float middle = (float)((half_value((weir_dtype)dtype, (uint16_t)i) +
                                    half_value((weir_dtype)dtype, (uint16_t)(i + 1))) / 2);
            const float beside[] = {at, nextafterf(at, INFINITY), nextafterf(at, -INFINITY),
                                    middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY)};
            memcpy(x + count, beside, sizeof beside);
            count += 6;
        }
        weir_from_f32(x, count, (weir_dtype)dtype, y);
        for (int i = 0; i < count; i++)
            expect_half((weir_dtype)dtype, y[i], kernel_round((weir_dtype)dtype, (double)x[i]));
    }
}

/* Functions of many halves give the bits of the functions of one, with any instructions. */
Test(cast, halves_alone_have_the_bits_that_they_have_among_others)
{
    uint64_t random = SEED;
    float x[64], one;
    uint16_t y[64], single;
    for (int round = 0; round < 20000; round++)
        for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++) {
            for (int i = 0; i < 64; i++) {
                uint32_t bits = (uint32_t)(kernel_random(&random) * 0x1p32);
                memcpy(&x[i], &bits, sizeof bits);
            }
            weir_from_f32(x, 64, (weir_dtype)dtype, y);
            int i = round % 64;
            single = dtype == WEIR_F16 ? half_to_f16(x[i]) : half_to_bf16(x[i]);
            cr_assert_eq(single, y[i], "%s of %a: %04x and %04x", weir_dtype_name((weir_dtype)dtype), (double)x[i],
                         single, y[i]);
            weir_to_f32((weir_dtype)dtype, y, 64, x);
            one = dtype == WEIR_F16 ? half_from_f16(y[i]) : half_from_bf16(y[i]);
            cr_assert(!memcmp(&one, &x[i], sizeof one));
        }
}

/* A double does not tell such integers apart. */
Test(cast, casts_between_integers_lose_nothing_that_fits)
{
    int64_t wide[] = {INT64_MAX, INT64_MIN, INT32_MAX, (int64_t)INT32_MAX + 1, INT32_MIN, (int64_t)INT32_MIN - 1, 16777217};
    const int32_t want[] = {INT32_MAX, INT32_MIN, INT32_MAX, INT32_MAX, INT32_MIN, INT32_MIN, 16777217};
    int32_t narrow[7];
    const weir_view in = {.data = wide, .dtype = WEIR_I64, .shape = SHAPE(7), .global = SHAPE(7)};
    const weir_view out = {.data = narrow, .dtype = WEIR_I32, .shape = SHAPE(7), .global = SHAPE(7)};
    cr_assert_eq(op_cast.kernel[WEIR_CPU](&(weir_kernel_args){.in = (weir_view *)&in, .in_count = 1, .out = (weir_view *)&out, .out_count = 1}), WEIR_OK);
    cr_assert(!memcmp(narrow, want, sizeof want));
    cr_assert_eq(op_cast.kernel[WEIR_CPU](&(weir_kernel_args){.in = (weir_view *)&out, .in_count = 1, .out = (weir_view *)&in, .out_count = 1}), WEIR_OK);
    for (int i = 0; i < 7; i++)
        cr_assert_eq(wide[i], want[i]);
}

Test(cast, casts_truncate_and_saturate_between_all_dtypes)
{
    for (int from = WEIR_F32; from < WEIR_DTYPES; from++)
        for (int to = WEIR_F32; to < WEIR_DTYPES; to++) {
            cast_attrs attrs = {to};
            kernel_check c = kernel_check_new(&op_cast, &attrs, SEED);
            put_edges(kernel_check_in(&c, (weir_dtype)from, SHAPE(3, 47)));
            kernel_check_run(&c);
            cr_assert_eq(c.out[0].dtype, (weir_dtype)to);
            kernel_check_near(&c, 0, ref_cast, 0);
            kernel_check_free(&c);
            c = kernel_check_new(&op_cast, &attrs, SEED);
            kernel_check_in(&c, (weir_dtype)from, SHAPE(3, 47));
            kernel_check_run(&c);
            const double tolerance = 1e-6 + 4 * kernel_digit((weir_dtype)from); /* of random terms */
            cr_assert_eq(shard_check(&c, 2, tolerance), 2 + (to == WEIR_F32 && weir_dtype_real((weir_dtype)from)));
            kernel_check_free(&c);
        }
    cast_attrs none = {WEIR_DTYPES};
    kernel_check_refuses(&op_cast, &none, &(weir_type){WEIR_F32, SHAPE(1)}, 1, "there is no dtype");
}
