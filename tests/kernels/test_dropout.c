/* Dropout: which elements go is a function of key, firing and logical index, and nothing else. */
#include "kernels/common/ops.h"
#include "kernels/random/philox.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { SEED = 99 };

typedef struct dropout_attrs {
    double rate;
} dropout_attrs;

/* The draw as dropout.c describes it, one element at a time through the public generator. */
static bool kept(const kernel_check *c, int64_t g)
{
    const dropout_attrs *attrs = c->attrs;
    uint32_t word[4];
    weir_philox(c->key, (uint64_t)(g >> 6) * 16 + (uint64_t)(g & 15), (uint64_t)c->firing, word);
    return word[g >> 4 & 3] >= attrs->rate * 0x1p32;
}

static void ref_dropout(const kernel_check *c, int out, double *want)
{
    const dropout_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = !kept(c, i) ? 0 : out == 1 ? 1 : kernel_at(&c->in[0], i) / (1 - attrs->rate);
}

static void check_dropout(double rate, weir_shape shape)
{
    dropout_attrs attrs = {rate};
    kernel_check c = kernel_check_new(&op_dropout, &attrs, SEED);
    c.key = 0x123456789abcdef0u;
    c.firing = 5;
    kernel_check_in(&c, WEIR_F32, shape);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_dropout, 1e-6);
    kernel_check_near(&c, 1, ref_dropout, 0);
    cr_assert_eq(shard_check(&c, 2, 1e-5), shape.rank + 1);
    cr_assert_eq(shard_check(&c, 3, 1e-5), shape.rank + 1);
    kernel_check_free(&c);
}

Test(dropout, all_layouts_drop_the_same_elements, .timeout = 120)
{
    check_dropout(0.1, SHAPE());
    check_dropout(0.5, SHAPE(1000));
    check_dropout(0.3, SHAPE(7, 33));
    check_dropout(0.9, SHAPE(5, 2));
    check_dropout(0, SHAPE(3, 4, 5));
    check_dropout(0.999999999999, SHAPE(10, 10));
    check_dropout(0.5, SHAPE(2, 3, 2, 3, 2, 3));
}

Test(dropout, drops_the_share_that_was_asked_for_and_draws_anew_each_firing)
{
    dropout_attrs attrs = {0.25};
    enum { COUNT = 100000 };
    kernel_check first = kernel_check_new(&op_dropout, &attrs, SEED), second = first;
    second.firing = 1;
    kernel_check_in(&first, WEIR_F32, SHAPE(COUNT));
    kernel_check_in(&second, WEIR_F32, SHAPE(COUNT));
    kernel_check_run(&first);
    kernel_check_run(&second);
    int dropped = 0, both = 0;
    for (int i = 0; i < COUNT; i++) {
        dropped += !kernel_at(&first.out[1], i);
        both += !kernel_at(&first.out[1], i) && !kernel_at(&second.out[1], i);
    }
    cr_assert_float_eq(dropped, 0.25 * COUNT, 6 * sqrt(COUNT * 0.25 * 0.75));
    cr_assert_float_eq(both, 0.0625 * COUNT, 6 * sqrt(COUNT * 0.0625 * 0.9375));
    kernel_check_free(&first);
    kernel_check_free(&second);
}

static void ref_dropout_grad(const kernel_check *c, int out, double *want)
{
    const dropout_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = kernel_at(&c->in[0], i) * kernel_at(&c->in[1], i) / (1 - attrs->rate);
}

Test(dropout, gradient_reads_the_mask)
{
    dropout_attrs attrs = {0.4};
    kernel_check c = kernel_check_new(&op_dropout_grad, &attrs, SEED);
    kernel_check_in(&c, WEIR_U8, SHAPE(5, 77));
    kernel_check_in(&c, WEIR_F32, SHAPE(5, 77));
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_dropout_grad, 1e-6);
    cr_assert_eq(shard_check(&c, 3, 1e-5), 3);
    kernel_check_free(&c);
}

Test(dropout, rates_outside_0_to_1_are_refused)
{
    const weir_type x = {WEIR_F32, SHAPE(4)};
    const dropout_attrs one = {1}, negative = {-0.1}, nan = {NAN};
    kernel_check_refuses(&op_dropout, &one, &x, 1, "rate 1 is not in [0, 1)");
    kernel_check_refuses(&op_dropout, &negative, &x, 1, "rate -0.1 is not in [0, 1)");
    kernel_check_refuses(&op_dropout, &nan, &x, 1, "is not in [0, 1)");
}

Test(dropout, sixteen_lanes_of_philox_are_philox)
{
    const uint64_t keys[] = {0, 1, UINT64_MAX, 0x243f6a8885a308d3u}, counters[] = {0, 0xfffffff8u, UINT64_MAX - 3};
    for (int k = 0; k < 4; k++)
        for (int n = 0; n < 3; n++) {
            uint32_t lanes[4][PHILOX_LANES], word[4];
            philox_lanes(keys[k], counters[n], keys[3 - k], lanes);
            for (uint64_t l = 0; l < PHILOX_LANES; l++) {
                weir_philox(keys[k], counters[n] + l, keys[3 - k], word);
                for (int w = 0; w < 4; w++)
                    cr_assert_eq(lanes[w][l], word[w]);
            }
        }
}
