/* test_half.c: ops over f16 and bf16.
 *
 * Every op but a product computes in f32 what its f32 kernel does, which is held against double elsewhere: so it is
 * called twice, with halves and with the same values as f32, and where it says that a result is rounded once it must be that
 * rounding, bit for bit; sums that go another way may differ by what f32 loses. Signatures of ops are played
 * with halves too. Products by themselves are in test_half_products.c.
 *
 * Products of bf16 are tested once more with AMX: the processor's, or one that is played (amx_machine.h).
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/common/ops.h"
#include "kernels/conv/window.h"
#include "kernels/reduce/reduce.h"
#include "tests/support/amx_machine.h"
#include "tests/support/effort.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 20261122

/* ---- ops ---- */

typedef struct half_case {
    const weir_op *op;
    const void *attrs;
    int in_count;
    weir_type in[7];     /* f32 is a half, but where the op wants f32 */
    double f32_tolerance; /* 0: results are the f32 kernel's, rounded once */
} half_case;

/* The same values for both: those that the half can hold. */
static void put_inputs(const half_case *at, weir_dtype half, kernel_check *narrow, kernel_check *wide)
{
    for (int i = 0; i < at->in_count; i++) {
        const bool real = at->in[i].dtype == WEIR_F32, full = at->op->full_in >> i & 1;
        weir_view *n = kernel_check_in(narrow, real && !full ? half : at->in[i].dtype, at->in[i].shape);
        weir_view *w = kernel_check_in(wide, at->in[i].dtype, at->in[i].shape);
        for (int64_t e = 0; e < weir_shape_count(&n->shape); e++)
            kernel_set(w, e, kernel_at(n, e));
    }
}

/* Where a library multiplies, the bias was rounded, too. */
static double product_tolerance(const half_case *at, weir_dtype half)
{
    const bool bias = at->op == &op_linear && at->in_count == 3 && kernel_check_kind() != WEIR_CPU;
    return at->f32_tolerance + kernel_digit(half) * (bias ? 2 : 1);
}

static void expect_rounded(const half_case *at, const kernel_check *narrow, const kernel_check *wide, int out)
{
    const weir_view *n = &narrow->out[out], *w = &wide->out[out];
    cr_assert(weir_shape_equal(&n->shape, &w->shape));
    for (int64_t i = 0; i < weir_shape_count(&n->shape); i++) {
        const double got = kernel_at(n, i), f32 = kernel_at(w, i);
        const double want = weir_dtype_real(n->dtype) ? kernel_round(n->dtype, f32) : f32;
        cr_assert(at->f32_tolerance > 0 ? kernel_near(got, f32, product_tolerance(at, n->dtype))
                                        : got == want || (isnan(got) && isnan(want)),
                  "%s: output %d, %s, is %.9g at %ld, and f32 says %.9g", at->op->name, out, weir_dtype_name(n->dtype),
                  got, (long)i, f32);
    }
}

static void check_half(const half_case *at, weir_dtype half)
{
    kernel_check narrow = kernel_check_new(at->op, at->attrs, SEED), wide = kernel_check_new(at->op, at->attrs, SEED);
    put_inputs(at, half, &narrow, &wide);
    kernel_check_run(&narrow);
    kernel_check_run(&wide);
    for (int out = 0; out < at->op->out_count; out++)
        expect_rounded(at, &narrow, &wide, out);
    bool empty = false;
    for (int i = 0; i < narrow.in_count; i++)
        empty |= weir_shape_count(&narrow.in[i].shape) == 0;
    for (int devices = 2; devices <= 3 && !empty; devices++)
        shard_check(&narrow, devices, 1e-4);
    kernel_check_free(&narrow);
    kernel_check_free(&wide);
}

static void check_halves(const half_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (int half = WEIR_F16; half <= WEIR_BF16; half++)
            if (EFFORT(true, kernel_check_kind() == WEIR_CPU, false) || (half - WEIR_F16) == (int)i % 2) /* both are one template */
                check_half(&cases[i], (weir_dtype)half);
}
#define CHECK_HALVES(...)                                            \
    do {                                                             \
        const half_case cases_[] = {__VA_ARGS__};                    \
        check_halves(cases_, sizeof cases_ / sizeof *cases_);        \
    } while (0)

#define F32(...) {WEIR_F32, SHAPE(__VA_ARGS__)}

Test(half, functions_of_one_element_are_those_of_f32_rounded_once, .timeout = 60)
{
#define OP(name) &op_##name,
    const weir_op *unary[] = {ELEMENT_FUNCTIONS(OP)};
    const weir_op *grad[] = {ELEMENT_GRADIENTS(OP)};
#undef OP
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        CHECK_HALVES({unary[i], NULL, 1, {F32(5, 733)}, 0});
    for (size_t i = 0; i < sizeof grad / sizeof *grad; i++)
        CHECK_HALVES({grad[i], NULL, 2, {F32(3, 700), F32(3, 700)}, 0});
    const affine_attrs affine[] = {{2.5, 0}, {-0.5, 3}};
    CHECK_HALVES({&op_affine, &affine[0], 1, {F32(5, 700)}, 0}, {&op_affine, &affine[1], 1, {F32(1, 2)}, 0});
}

Test(half, operands_broadcast_as_in_f32, .timeout = 60)
{
    const weir_op *binary[] = {&op_add, &op_sub, &op_mul, &op_div, &op_min2, &op_max2}; /* alike but for what is computed */
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i += EFFORT(1, 3, 3))
        CHECK_HALVES({binary[i], NULL, 2, {F32(3, 5, 700), F32(3, 5, 700)}, 0},
                     {binary[i], NULL, 2, {F32(3, 5, 700), F32(5, 700)}, 0},
                     {binary[i], NULL, 2, {F32(3, 5, 1100), F32(3, 5, 1)}, 0},
                     {binary[i], NULL, 2, {F32(1, 5, 1), F32(3, 1, 1100)}, 0},
                     {binary[i], NULL, 2, {F32(), F32(4, 3)}, 0}, {binary[i], NULL, 2, {F32(0, 3), F32(3)}, 0});
}

Test(half, dropout_drops_the_same_elements, .timeout = 60)
{
    const double rate = 0.3;
    CHECK_HALVES({&op_dropout, &rate, 1, {F32(7, 333)}, 0},
                 {&op_dropout_grad, &rate, 2, {{WEIR_U8, SHAPE(7, 333)}, F32(7, 333)}, 0});
}

Test(half, sums_are_f32, .timeout = 60)
{
    const reduce_attrs all = {.axis_count = 0}, last = {{-1}, 1, 0}, first = {{0, 1}, 2, 1};
    CHECK_HALVES({&op_sum, &all, 1, {F32(7, 3, 333)}, 0}, {&op_sum, &last, 1, {F32(7, 3, 333)}, 0},
                 {&op_sum, &first, 1, {F32(40, 3, 333)}, 0}, {&op_mean, &last, 1, {F32(7, 3, 700)}, 0},
                 {&op_mean, &first, 1, {F32(7, 3, 1)}, 0}, {&op_linear_db, NULL, 1, {F32(9, 1100)}, 0},
                 {&op_linear_db, NULL, 1, {F32(2, 6, 5)}, 0});
    const struct {
        int64_t dim[WEIR_DIMS_MAX], rank;
    } to = {{3, 1}, 2};
    CHECK_HALVES({&op_sum_to, &to, 1, {F32(5, 3, 60)}, 0});
}

Test(half, maxima_are_f32, .timeout = 60)
{
    const reduce_attrs all = {.axis_count = 0}, last = {{-1}, 1, 0}, first = {{0, 1}, 2, 1};
    CHECK_HALVES({&op_max, &all, 1, {F32(7, 3, 333)}, 0}, {&op_max, &last, 1, {F32(7, 1300)}, 0},
                 {&op_max, &first, 1, {F32(40, 3, 333)}, 0}, {&op_argmax, NULL, 1, {F32(7, 3, 1300)}, 0},
                 {&op_argmax, NULL, 1, {F32(9, 1)}, 0});
}

/* x of halves, and the same values; the maxima and their gradient are those of both. */
static void check_max_grad(const reduce_attrs *attrs, weir_shape shape, weir_dtype half)
{
    const half_case at = {&op_max_grad, attrs, 3, {{0}}, 0};
    kernel_check most = kernel_check_new(&op_max, attrs, SEED), narrow = kernel_check_new(&op_max_grad, attrs, SEED);
    kernel_check wide = kernel_check_new(&op_max_grad, attrs, SEED);
    weir_view *x = kernel_check_in(&most, half, shape), *same[2] = {kernel_check_in(&narrow, half, shape),
                                                                    kernel_check_in(&wide, WEIR_F32, shape)};
    for (int64_t e = 0; e < weir_shape_count(&shape); e++)
        for (int i = 0; i < 3; i++)
            kernel_set(i < 2 ? same[i] : x, e, round(kernel_at(x, e) * 4) / 4); /* so that some are equal */
    kernel_check_run(&most);
    for (int i = 0; i < 2; i++) {
        weir_view *n = kernel_check_in(&narrow, WEIR_F32, most.out[0].shape);
        weir_view *w = kernel_check_in(&wide, WEIR_F32, most.out[0].shape);
        for (int64_t e = 0; e < weir_shape_count(&n->shape); e++) {
            kernel_set(n, e, i ? kernel_at(n, e) : kernel_at(&most.out[0], e));
            kernel_set(w, e, kernel_at(n, e));
        }
    }
    kernel_check_run(&narrow);
    kernel_check_run(&wide);
    expect_rounded(&at, &narrow, &wide, 0);
    double sum = 0, flows = 0;
    for (int64_t e = 0; e < weir_shape_count(&wide.out[0].shape); e++)
        sum += kernel_at(&wide.out[0], e);
    for (int64_t e = 0; e < weir_shape_count(&wide.in[2].shape); e++)
        flows += kernel_at(&wide.in[2], e);
    cr_expect(kernel_near(sum, flows, 1e-5), "%g, not %g", sum, flows);
    kernel_check_free(&most);
    kernel_check_free(&narrow);
    kernel_check_free(&wide);
}

Test(half, the_gradient_of_a_maximum_is_rounded_once, .timeout = 60)
{
    const reduce_attrs all = {.axis_count = 0}, last = {{-1}, 1, 0}, first = {{0, 1}, 2, 1};
    for (int half = WEIR_F16; half <= WEIR_BF16; half++) {
        check_max_grad(&all, SHAPE(7, 3, 33), (weir_dtype)half);
        check_max_grad(&last, SHAPE(7, 1300), (weir_dtype)half);
        check_max_grad(&first, SHAPE(20, 3, 1100), (weir_dtype)half);
    }
}

Test(half, a_softmax_is_that_of_f32_rounded_once, .timeout = 60)
{
    CHECK_HALVES({&op_softmax, NULL, 1, {F32(2, 9, 131)}, 0}, {&op_softmax, NULL, 1, {F32(5, 1300)}, 0},
                 {&op_softmax, NULL, 1, {F32(0, 8)}, 0}, {&op_softmax, NULL, 1, {F32(8, 0)}, 0},
                 {&op_softmax_grad, NULL, 2, {F32(9, 131), F32(9, 131)}, 0},
                 {&op_softmax_grad, NULL, 2, {F32(3, 1, 1100), F32(3, 1, 1100)}, 0},
                 {&op_softmax, NULL, 1, {F32(3, 768)}, 0}, {&op_softmax, NULL, 1, {F32(2, 4104)}, 0},
                 {&op_softmax_grad, NULL, 2, {F32(3, 264), F32(3, 264)}, 0},
                 {&op_softmax_grad, NULL, 2, {F32(2, 4104), F32(2, 4104)}, 0});
}

/* Sizes beyond blocks of rows, of columns and of terms. */
Test(half, rows_by_themselves_are_those_of_f32_rounded_once, .timeout = 60)
{
    CHECK_HALVES({&op_linear_by_row, NULL, 3, {F32(1, 70), F32(70, 300), F32(300)}, 0},
                 {&op_linear_by_row, NULL, 2, {F32(2, 37, 65), F32(65, 17)}, 0},
                 {&op_linear_by_row, NULL, 3, {F32(3, 0), F32(0, 17), F32(17)}, 0},
                 {&op_linear_by_row, NULL, 2, {F32(0, 7), F32(7, 9)}, 0});
}

/* The weight is f32, as the result may be. */
Test(half, rows_by_themselves_take_a_weight_as_it_is)
{
    const weir_dtype results[2] = {WEIR_F32, WEIR_BF16};
    for (int r = 0; r < 2; r++) {
        char error[256];
        kernel_check narrow = kernel_check_new(&op_linear_by_row, NULL, SEED);
        kernel_check wide = kernel_check_new(&op_linear_by_row, NULL, SEED);
        const weir_shape shapes[3] = {SHAPE(5, 70), SHAPE(70, 300), SHAPE(300)};
        weir_type in[3], made = {results[r], SHAPE(5, 300)};
        for (int i = 0; i < 3; i++) {
            const weir_view *n = kernel_check_in(&narrow, i ? WEIR_F32 : WEIR_BF16, shapes[i]);
            weir_view *w = kernel_check_in(&wide, WEIR_F32, shapes[i]);
            in[i] = (weir_type){n->dtype, shapes[i]};
            for (int64_t e = 0; e < weir_shape_count(&shapes[i]); e++)
                kernel_set(w, e, kernel_at(n, e));
        }
        cr_assert(op_linear_by_row.fits(&(weir_op_args){&op_linear_by_row, in, 3, &made, 1, NULL}, error, sizeof error),
                  "%s", error);
        kernel_check_run(&wide);
        weir_view out = kernel_view_new(made, KERNEL_GARBAGE);
        narrow.out_count = 1;
        kernel_check_call(&narrow, narrow.in, &out, NULL, false);
        for (int64_t i = 0; i < 5 * 300; i++)
            cr_assert_eq(kernel_at(&out, i), kernel_round(made.dtype, kernel_at(&wide.out[0], i)));
        kernel_view_free(&out);
        narrow.out_count = 0;
        kernel_check_free(&narrow);
        kernel_check_free(&wide);
    }
}

Test(half, rows_are_normalised_as_in_f32, .timeout = 60)
{
    const double eps = 1e-5;
    CHECK_HALVES({&op_layernorm, &eps, 3, {F32(2, 9, 131), F32(131), F32(131)}, 0},
                 {&op_layernorm, &eps, 3, {F32(0, 8), F32(8), F32(8)}, 0},
                 {&op_rmsnorm, &eps, 2, {F32(2, 9, 384), F32(384)}, 0},
                 {&op_layernorm_grad, NULL, 5, {F32(9, 131), F32(131), F32(9), F32(9), F32(9, 131)}, 0},
                 {&op_rmsnorm_grad, NULL, 4, {F32(2, 9, 64), F32(64), F32(2, 9), F32(2, 9, 64)}, 0});
}

#if EFFORT(1, 1, 0) /* emulated, these are thousands of threads that take turns at barriers */
Test(half, long_rows_and_many_are_normalised_as_in_f32, .timeout = 300)
{
    const double eps = 1e-5;
    CHECK_HALVES({&op_layernorm, &eps, 3, {F32(2, 4104), F32(4104), F32(4104)}, 0},
                 {&op_layernorm_grad, NULL, 5, {F32(35, 264), F32(264), F32(35), F32(35), F32(35, 264)}, 0},
                 {&op_layernorm_grad, NULL, 5, {F32(3, 4104), F32(4104), F32(3), F32(3), F32(3, 4104)}, 0},
                 {&op_rmsnorm_grad, NULL, 4, {F32(3, 4099), F32(4099), F32(3), F32(3, 4099)}, 0});
}
#endif

static void check_products_of_tensors(void)
{
    const int64_t no[2] = {0, 0}, both[2] = {1, 1}, second[2] = {0, 1};
    CHECK_HALVES({&op_linear, NULL, 3, {F32(3, 5, 70), F32(70, 90), F32(90)}, 1e-5},
                 {&op_linear, NULL, 2, {F32(5, 7), F32(7, 9)}, 1e-5},
                 {&op_linear, NULL, 3, {F32(0, 7), F32(7, 9), F32(9)}, 1e-5},
                 {&op_linear_dw, NULL, 2, {F32(3, 5, 33), F32(3, 5, 20)}, 1e-5},
                 {&op_matmul, no, 2, {F32(2, 3, 5, 7), F32(7, 9)}, 1e-5},
                 {&op_matmul, no, 2, {F32(2, 3, 5, 7), F32(2, 3, 7, 9)}, 1e-5},
                 {&op_matmul, second, 2, {F32(4, 33), F32(21, 33)}, 1e-5},
                 {&op_matmul, both, 2, {F32(2, 33, 5), F32(2, 21, 33)}, 1e-5});
}

Test(half, products_of_tensors_are_near_those_of_f32, .timeout = 60)
{
    check_products_of_tensors();
}

Test(half, convolutions_are_near_those_of_f32, .timeout = 60)
{
    const conv_attrs two = {.window = {{3, 2}, {2, 1}, {1, 0}, {1, 1}, {1, 2}}, .groups = 1};
    const conv_attrs line = {.window = {{4}, {3}, {1}, {0}, {1}}, .output_pad = {2}, .groups = 2};
    const conv_attrs few = {.window = {{1, 1}, {1, 1}, {0}, {0}, {1, 1}}, .groups = 1};
    CHECK_HALVES({&op_conv, &two, 3, {F32(3, 3, 8, 9), F32(5, 3, 3, 2), F32(5)}, 1e-5},
                 {&op_conv, &two, 2, {F32(3, 6, 8, 9), F32(6, 1, 3, 2)}, 1e-5},
                 {&op_conv, &two, 3, {F32(1, 2, 52, 50), F32(2, 1, 3, 2), F32(2)}, 1e-5},
                 {&op_conv, &few, 3, {F32(2, 5, 2, 3), F32(4, 5, 1, 1), F32(4)}, 1e-5},
                 {&op_conv, &few, 3, {F32(2, 5, 4, 3), F32(4, 5, 1, 1), F32(4)}, 1e-5},
                 {&op_conv_transpose, &line, 3, {F32(3, 4, 5), F32(4, 3, 4), F32(6)}, 1e-5},
                 {&op_conv_dw, &line, 2, {F32(3, 4, 11), F32(3, 6, 3)}, 1e-5},
                 {&op_conv_dw, &two, 2, {F32(3, 1, 8, 9), F32(3, 5, 4, 8)}, 1e-5});
}

Test(half, pools_are_those_of_f32_rounded_once, .timeout = 60)
{
    const pool_attrs attrs = {.window = {{3, 2}, {2, 1}, {1, 0}, {1, 1}, {1, 2}}, .size = {8, 9}};
    CHECK_HALVES({&op_max_pool, &attrs, 1, {F32(3, 3, 8, 9)}, 0}, {&op_average_pool, &attrs, 1, {F32(3, 3, 8, 9)}, 0},
                 {&op_max_pool_grad, &attrs, 2, {F32(3, 3, 8, 9), F32(3, 3, 4, 8)}, 0},
                 {&op_average_pool_grad, &attrs, 1, {F32(3, 3, 4, 8)}, 0});
}

/* ---- attention ---- */

/* As attention_kept's attributes are; the window is that of attention_kept_masked. */
typedef struct kept_words {
    int64_t head_dim;
    double scale;
    int64_t window;
} kept_words;

/* group: heads that share one of keys. masked: a mask for each row of keys, of u8 (1) or f32 (2). */
typedef struct attention_case {
    int64_t batch, seq, keys, heads, head_dim, causal, group, window, masked;
} attention_case;

/* As attention's attributes are: head_dim, causal, scale; the window is that of attention_masked. */
typedef struct attention_words {
    int64_t head_dim, causal;
    double scale;
    int64_t window;
} attention_words;

static attention_words attention_words_of(const attention_case *at)
{
    return (attention_words){at->head_dim, at->causal, 1 / sqrt((double)at->head_dim), at->window};
}

static const weir_op *attention_of(const attention_case *at, bool gradient)
{
    if (at->window || at->masked)
        return gradient ? &op_attention_masked_grad : &op_attention_masked;
    return gradient ? &op_attention_grad : &op_attention;
}

static int64_t keys_dim(const attention_case *at)
{
    return at->heads / (at->group ? at->group : 1) * at->head_dim;
}

static weir_type mask_of(const attention_case *at)
{
    return (weir_type){at->masked == 1 ? WEIR_U8 : WEIR_F32, SHAPE(at->batch, at->keys)};
}

/* Runs attention in halves and in f32 on the same values, and its gradient on what each made, and compares: P and dS
 * are rounded to halves, so an element is a sum of rounded terms. */
static void check_attention(attention_case at, weir_dtype half)
{
    const attention_words words = attention_words_of(&at);
    const weir_type q = {WEIR_F32, SHAPE(at.batch, at.seq, at.heads * at.head_dim)};
    const weir_type k = {WEIR_F32, SHAPE(at.batch, at.keys, keys_dim(&at))};
    const double loose = 4 * kernel_digit(half) + 1e-5;
    const half_case forward = {attention_of(&at, false), &words, at.masked ? 4 : 3, {q, k, k, mask_of(&at)}, loose};
    check_half(&forward, half);
}

/* The gradient needs the output and lse of these very inputs: those of the f32 kernel, of values that halves hold. */
static void check_attention_grad(attention_case at, weir_dtype half)
{
    const attention_words words = attention_words_of(&at);
    const weir_type mask = mask_of(&at);
    kernel_check forward = kernel_check_new(attention_of(&at, false), &words, SEED);
    kernel_check narrow = kernel_check_new(attention_of(&at, true), &words, SEED), wide = narrow;
    for (int i = 0; i < 3; i++) {
        weir_view *from = kernel_check_in(&narrow, half, SHAPE(at.batch, i ? at.keys : at.seq, i ? keys_dim(&at) : at.heads * at.head_dim));
        for (int c = 0; c < 2; c++) {
            weir_view *to = kernel_check_in(c ? &wide : &forward, WEIR_F32, from->shape);
            for (int64_t e = 0; e < weir_shape_count(&from->shape); e++)
                kernel_set(to, e, kernel_at(from, e));
        }
    }
    if (at.masked)
        kernel_check_in(&forward, mask.dtype, mask.shape);
    kernel_check_run(&forward);
    for (int i = 3; i < 6; i++) {
        const weir_view *like = &forward.out[i == 4];
        weir_view *n = kernel_check_in(&narrow, i == 4 ? WEIR_F32 : half, like->shape);
        weir_view *w = kernel_check_in(&wide, WEIR_F32, like->shape);
        for (int64_t e = 0; e < weir_shape_count(&like->shape); e++) {
            if (i < 5)
                kernel_set(n, e, kernel_at(like, e));
            kernel_set(w, e, kernel_at(n, e));
        }
    }
    for (int w = 0; at.masked && w < 2; w++) {
        weir_view *to = kernel_check_in(w ? &wide : &narrow, mask.dtype, mask.shape);
        for (int64_t e = 0; e < weir_shape_count(&mask.shape); e++)
            kernel_set(to, e, kernel_at(&forward.in[3], e));
    }
    kernel_check_run(&narrow);
    kernel_check_run(&wide);
    const half_case loose = {narrow.op, &words, 6, {{0}}, 8 * kernel_digit(half) + 1e-5};
    for (int out = 0; out < 3; out++)
        expect_rounded(&loose, &narrow, &wide, out);
    for (int devices = 2; devices <= 3 && at.batch * at.seq > 0; devices++)
        shard_check(&narrow, devices, 1e-3);
    kernel_check_free(&forward);
    kernel_check_free(&narrow);
    kernel_check_free(&wide);
}

/* Emulated, this case is thousands of threads that take turns for seconds. */
static bool too_long(const attention_case *at)
{
    return FULL(false, true) && kernel_check_kind() != WEIR_CPU && at->seq * at->keys > 100000;
}

static void check_attentions(const attention_case *cases, size_t all)
{
    const size_t count = kernel_check_kind() == WEIR_CPU ? all : EFFORT(all, 3, 2);
    for (size_t i = 0; i < count; i++)
        for (int half = WEIR_F16; half <= WEIR_BF16; half++) {
            if (EFFORT(FULL(0, i > 2 && half % 2 != (int)i % 2), half % 2 != (int)i % 2, half % 2 != (int)i % 2) &&
                kernel_check_kind() != WEIR_CPU)
                continue; /* emulated, each of these takes long, and is done in one kind of half */
            if (too_long(&cases[i]))
                continue;
            check_attention(cases[i], (weir_dtype)half);
            check_attention_grad(cases[i], (weir_dtype)half);
        }
}

#define CHECK_ATTENTIONS(...)                                             \
    do {                                                                  \
        static const attention_case cases_[] = {__VA_ARGS__};             \
        check_attentions(cases_, sizeof cases_ / sizeof *cases_);         \
    } while (0)
#define SIZES(b, s, k, h, w, ...) {.batch = b, .seq = s, .keys = k, .heads = h, .head_dim = w, .causal = __VA_ARGS__}

Test(half, attention_is_near_that_of_f32_and_so_is_its_gradient, .timeout = 120)
{
    CHECK_ATTENTIONS(SIZES(2, 5, 7, 3, 4, 0), SIZES(1, 70, 70, 2, 64, 1), SIZES(1, 70, 90, 1, 128, 0), SIZES(2, 0, 4, 1, 4, 0),
                     SIZES(1, 130, 601, 2, 8, 0), SIZES(1, 331, 331, 1, 7, 1), SIZES(1, 300, 20, 1, 8, 1),
                     SIZES(1, 21, 300, 1, 8, 1), SIZES(1, 1, 1, 1, 1, 0), SIZES(1, 64, 64, 2, 16, 1), SIZES(1, 90, 270, 1, 33, 0),
                     SIZES(1, 100, 100, 2, 40, 1));
}

/* Heads of 8 and 16 go by tensor cores, where they are. */
Test(half, groups_windows_and_masks_of_attention_are_near_those_of_f32, .timeout = 120)
{
    CHECK_ATTENTIONS(SIZES(2, 37, 37, 4, 16, 1, .group = 2, .window = 9, .masked = 2), SIZES(3, 21, 70, 4, 8, 0, .group = 2, .masked = 1),
                     SIZES(1, 90, 90, 2, 16, 1, .window = 20), SIZES(2, 9, 9, 6, 5, 1, .group = 3, .window = 3, .masked = 1),
                     SIZES(1, 100, 20, 1, 8, 1, .window = 11), SIZES(1, 300, 600, 2, 24, 0, .group = 2),
                     SIZES(2, 70, 300, 1, 8, 0, .masked = 2), SIZES(1, 600, 600, 1, 8, 1, .window = 100));
}

/* Behind rows that were kept in f32: the position, i32, is one of 0 .. 9. */
Test(half, attention_behind_kept_rows_is_that_of_f32_rounded_once, .timeout = 60)
{
    const kept_words one = {16, 0.25, 0}, odd = {7, 1, 0}, near = {7, 1, 4};
    const weir_type position = {WEIR_I32, SHAPE(1, 1)};
    CHECK_HALVES({&op_attention_kept, &one, 6,
                  {F32(1, 1, 32), F32(1, 1, 32), F32(1, 1, 32), F32(1, 40, 32), F32(1, 40, 32), position}, 0},
                 {&op_attention_kept, &odd, 6,
                  {F32(2, 5, 21), F32(2, 5, 21), F32(2, 5, 21), F32(2, 14, 21), F32(2, 14, 21), position}, 0},
                 {&op_attention_kept_masked, &near, 7,
                  {F32(2, 5, 42), F32(2, 5, 14), F32(2, 5, 14), F32(2, 14, 14), F32(2, 14, 14), position, F32(2, 1, 5, 14)}, 0});
}

/* And in halves. */
Test(half, rows_are_kept_in_halves_too, .timeout = 60)
{
    const kept_words words = {16, 0.25, 0};
    for (int half = WEIR_F16; half <= WEIR_BF16; half++) {
        const half_case at = {&op_attention_kept, &words, 6, {{0}}, 0};
        kernel_check narrow = kernel_check_new(at.op, at.attrs, SEED), wide = kernel_check_new(at.op, at.attrs, SEED);
        for (int i = 0; i < 6; i++) {
            const weir_shape shape = i < 3 ? SHAPE(2, 4, 32) : i < 5 ? SHAPE(2, 30, 32) : SHAPE(1, 1);
            weir_view *n = kernel_check_in(&narrow, i < 5 ? (weir_dtype)half : WEIR_I32, shape);
            weir_view *w = kernel_check_in(&wide, i < 5 ? WEIR_F32 : WEIR_I32, shape);
            for (int64_t e = 0; e < weir_shape_count(&shape); e++)
                kernel_set(w, e, kernel_at(n, e));
        }
        kernel_check_run(&narrow);
        kernel_check_run(&wide);
        expect_rounded(&at, &narrow, &wide, 0);
        kernel_check_free(&narrow);
        kernel_check_free(&wide);
    }
    const weir_type q = {WEIR_BF16, SHAPE(1, 1, 32)}, f16 = {WEIR_F16, SHAPE(1, 9, 32)};
    kernel_check_refuses(&op_attention_kept, &words, (weir_type[]){q, q, q, f16, f16, {WEIR_I32, SHAPE(1)}}, 6,
                         "convert k and v by weir_cast(), or keep f32");
}

/* `rows` rows of `group` heads each behind 100 rows of bf16, and behind the same numbers as f32. */
static void check_few(int64_t rows, int64_t group, int64_t near)
{
    const kept_words words = {64, 0.125, near};
    kernel_check check[2];
    for (int wide = 0; wide < 2; wide++) {
        kernel_check *c = &check[wide];
        *c = kernel_check_new(near ? &op_attention_kept_masked : &op_attention_kept, &words, SEED);
        for (int i = 0; i < 6; i++) {
            const int64_t dim = (i ? 1 : group) * 128;
            const weir_shape shape = i < 3 ? SHAPE(1, rows, dim) : i < 5 ? SHAPE(1, 130, dim) : SHAPE(1, 1);
            weir_view *to = kernel_check_in(c, i == 5 ? WEIR_I32 : i && !wide ? WEIR_BF16 : WEIR_F32, shape);
            for (int64_t e = 0; wide && e < weir_shape_count(&shape); e++)
                kernel_set(to, e, kernel_at(&check[0].in[i], e));
        }
        kernel_set(&c->in[5], 0, 101);
        kernel_check_run(c);
    }
    for (int64_t e = 0; e < rows * group * 128; e++)
        cr_assert_eq(kernel_at(&check[0].out[0], e), kernel_at(&check[1].out[0], e), "rows %d, group %d, window %d: element %d", (int)rows, (int)group,
                     (int)near, (int)e);
    for (int wide = 0; wide < 2; wide++)
        kernel_check_free(&check[wide]);
}

Test(half, few_queries_behind_kept_rows_have_the_bits_of_f32, .timeout = 60)
{
    for (int64_t group = 1; group <= 5; group++)
        check_few(1, group, 0);
    check_few(2, 2, 0);
    check_few(1, 3, 40);
    check_few(3, 1, 17);
    check_few(20, 3, 0);
}

/* Labels and ids, i32, are made of 0 .. 9. */
Test(half, losses_are_f32_and_gradients_of_logits_are_rounded_once, .timeout = 60)
{
    const int64_t all[2] = {0}, some[2] = {1, 3}, groups[3] = {0, 0, 4}, some_groups[3] = {1, 3, 4};
    CHECK_HALVES({&op_cross_entropy, all, 2, {F32(3, 7, 131), {WEIR_I32, SHAPE(3, 7)}}, 0},
                 {&op_cross_entropy, some, 3, {F32(21, 1100), {WEIR_I32, SHAPE(21)}, F32()}, 0},
                 {&op_cross_entropy_grad, all, 4, {F32(9, 131), {WEIR_I32, SHAPE(9)}, F32(9), F32()}, 0},
                 {&op_cross_entropy_grad, some, 5, {F32(21, 12), {WEIR_I32, SHAPE(21)}, F32(21), F32(), F32()}, 0},
                 {&op_class_lse, groups, 2, {F32(9, 64), {WEIR_I32, SHAPE(9)}}, 0},
                 {&op_class_lse_grad, some_groups, 5,
                  {F32(9, 64), {WEIR_I32, SHAPE(9)}, F32(9, 4), F32(9, 4), F32(9)}, 0});
}

Test(half, rows_of_a_table_are_those_of_f32_rounded_once, .timeout = 60)
{
    const int64_t vocab = 10;
    CHECK_HALVES({&op_embedding, NULL, 2, {{WEIR_I32, SHAPE(3, 7)}, F32(10, 1300)}, 0},
                 {&op_embedding_grad, &vocab, 2, {{WEIR_I32, SHAPE(3, 7)}, F32(3, 7, 1300)}, 0});
}

/* A table of f32 gives rows of halves, and one of halves rows of f32. */
Test(half, rows_of_a_table_are_converted_as_they_are_copied)
{
    const weir_dtype pairs[][2] = {{WEIR_F32, WEIR_BF16}, {WEIR_BF16, WEIR_F32}, {WEIR_F16, WEIR_BF16}};
    for (int p = 0; p < 3; p++) {
        char error[256];
        kernel_check c = kernel_check_new(&op_embedding, NULL, SEED);
        const weir_view *ids = kernel_check_in(&c, WEIR_I32, SHAPE(5));
        const weir_view *table = kernel_check_in(&c, pairs[p][0], SHAPE(10, 1300));
        weir_view out = kernel_view_new((weir_type){pairs[p][1], SHAPE(5, 1300)}, KERNEL_GARBAGE);
        weir_type in[2] = {{WEIR_I32, ids->shape}, {table->dtype, table->shape}}, made = {out.dtype, out.shape};
        cr_assert(op_embedding.fits(&(weir_op_args){&op_embedding, in, 2, &made, 1, NULL}, error, sizeof error));
        c.out_count = 1;
        kernel_check_call(&c, c.in, &out, NULL, false);
        for (int64_t i = 0; i < 5 * 1300; i++) {
            const int64_t row = (int64_t)kernel_at(ids, i / 1300);
            cr_assert_eq(kernel_at(&out, i), kernel_round(out.dtype, kernel_at(table, row * 1300 + i % 1300)));
        }
        kernel_view_free(&out);
        c.out_count = 0;
        kernel_check_free(&c);
    }
}

/* ---- what they refuse ---- */

Test(half, factors_are_of_one_dtype_and_a_bias_is_f32)
{
    weir_type in[3] = {{WEIR_BF16, SHAPE(4, 8)}, {WEIR_F16, SHAPE(8, 8)}, {WEIR_BF16, SHAPE(8)}};
    kernel_check_refuses(&op_linear, NULL, in, 2, "dtypes bf16 and f16 differ");
    in[1].dtype = WEIR_BF16;
    kernel_check_refuses(&op_linear, NULL, in, 3, "the bias is bf16, not f32");
    kernel_check_refuses(&op_linear_by_row, NULL, (weir_type[]){in[0], {WEIR_F16, SHAPE(8, 8)}}, 2,
                         "dtypes bf16 and f16 differ");
    kernel_check_refuses(&op_linear_by_row, NULL, (weir_type[]){{WEIR_F32, SHAPE(4, 8)}, in[1]}, 2,
                         "dtypes f32 and bf16 differ");
    kernel_check_refuses(&op_add, NULL, (weir_type[]){{WEIR_BF16, SHAPE(8)}, {WEIR_F32, SHAPE(8)}}, 2,
                         "dtypes bf16 and f32 differ");
}

/* Terms of a sum over devices, and weights' gradients, are wanted as f32. */
Test(half, a_product_may_be_kept_as_f32)
{
    char error[256];
    weir_type in[2] = {{WEIR_BF16, SHAPE(4, 8)}, {WEIR_BF16, SHAPE(8, 6)}}, out = {WEIR_F32, SHAPE(4, 6)};
    const int64_t attrs[2] = {0};
    const weir_op *ops[] = {&op_linear, &op_matmul};
    for (int i = 0; i < 2; i++) {
        weir_op_args local = {ops[i], in, 2, &out, 1, attrs};
        out.dtype = WEIR_F32;
        cr_expect(ops[i]->fits(&local, error, sizeof error), "%s", error);
        out.dtype = WEIR_BF16;
        cr_expect(ops[i]->fits(&local, error, sizeof error), "%s", error);
        out.dtype = WEIR_F16;
        cr_expect(!ops[i]->fits(&local, error, sizeof error));
    }
}
/* ---- AMX ---- */

Test(half_amx, products_of_tensors_are_near_those_of_f32, .timeout = 60)
{
    amx_machine_enter();
    check_products_of_tensors();
    amx_machine_leave();
}

Test(half_amx, attention_is_near_that_of_f32_and_so_is_its_gradient, .timeout = 120)
{
    const attention_case cases[] = {SIZES(2, 5, 7, 3, 4, 0), SIZES(1, 130, 201, 2, 8, 0), SIZES(1, 131, 131, 1, 7, 1),
                                    SIZES(1, 70, 70, 2, 64, 1)};
    amx_machine_enter();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_attention(cases[i], WEIR_BF16);
        check_attention_grad(cases[i], WEIR_BF16);
    }
    amx_machine_leave();
}
