/* test_long_sums.c: every kernel that adds up many terms keeps its digits, from one term to millions, in any layout: each
 * is held against the sum in double precision of the same numbers. The numbers are random, and of several kinds: equal
 * ones, whose roundings all go one way, are the hardest.
 *
 * An error is measured against the sum of the terms' sizes, which is the sum itself where they have one sign.
 */
#include "kernels/embedding/formula.h"
#include "kernels/loss/formula.h"
#include "kernels/norm/formula.h"
#include "kernels/common/ops.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/shape.h"
#include "tests/support/effort.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 9203, CASES = EFFORT(FULL(40, 20), 12, 6), EMULATED_CASES = EFFORT(FULL(16, 8), 4, 2), VOCAB = 12 };
static const double bound = 3e-7; /* at any number of terms */

/* ---- random cases ---- */

typedef enum numbers { EQUAL, POSITIVE, NORMAL, WIDE, NUMBERS } numbers;

static double number(numbers kind, uint64_t *random)
{
    switch (kind) {
    case EQUAL:
        return 0.1;
    case POSITIVE:
        return kernel_random(random);
    case NORMAL:
        return kernel_random_normal(random);
    default:
        return kernel_random_normal(random) * exp2(40 * kernel_random(random) - 20);
    }
}

static void fill(const weir_view *view, numbers kind, uint64_t *random)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++)
        kernel_set(view, i, number(kind, random));
}

static int64_t below(int64_t end, uint64_t *random)
{
    return (int64_t)(kernel_random(random) * (double)end);
}

/* From 1 to 2^most, each power of two as likely as another. The first case has as many as there are. */
static int64_t terms_of(int i, int most, uint64_t *random)
{
    return i ? (int64_t)exp2((double)most * kernel_random(random)) : INT64_C(1) << most;
}

/* A case of some terms to each of some results: 2^22 numbers at most; on emulated devices 2^16. Without FULL=1 one case, of equal
 * numbers, has so many, and the others have a quarter of that. */
typedef struct sum_case {
    int64_t terms, width;
    numbers kind;
    weir_dtype dtype;
} sum_case;

static sum_case case_of(int i, uint64_t *random)
{
    const int most = kernel_check_kind() == WEIR_CPU ? EFFORT(FULL(22, i ? 20 : 22), 18, 16) : EFFORT(FULL(16, i ? 14 : 16), 14, 12);
    sum_case c = {.kind = (numbers)(i % NUMBERS), .dtype = i % 5 == 3 ? WEIR_BF16 : WEIR_F32};
    c.terms = terms_of(i / NUMBERS, most, random);
    c.width = 1 + below((INT64_C(1) << most) / c.terms < 300 ? (INT64_C(1) << most) / c.terms : 300, random);
    return c;
}

typedef struct exact {
    double sum, sizes;
} exact;

static void expect_sum(double got, exact want, const sum_case *c, const char *what, int64_t at)
{
    cr_assert(fabs(got - want.sum) <= bound * want.sizes,
              "%s: result %ld of %ld terms each, numbers %d, seed %d, is %.9g, not %.9g: an error of %.2g of their sizes",
              what, (long)at, (long)c->terms, (int)c->kind, SEED, got, want.sum, fabs(got - want.sum) / want.sizes);
}

static exact *exact_new(int64_t count)
{
    exact *e = calloc((size_t)count + 1, sizeof *e);
    cr_assert_not_null(e);
    return e;
}

static void add(exact *to, double term)
{
    to->sum += term;
    to->sizes += fabs(term);
}

static int cases(void)
{
    return kernel_check_kind() == WEIR_CPU ? CASES : EMULATED_CASES;
}

/* ---- reductions ---- */

/* Terms at dimension 0; at 1; at 0 and 2; at 0 and 2, before a last dimension that stays. */
typedef struct layout {
    int dims;
    unsigned reduced;
} layout;
static const layout layouts[] = {{1, 1}, {2, 1}, {2, 2}, {3, 5}, {4, 5}, {4, 10}};

static weir_shape shape_of(const layout *l, const sum_case *c, uint64_t *random)
{
    weir_shape shape = {.rank = l->dims};
    int64_t terms = c->terms, width = c->width;
    for (int d = 0; d < l->dims; d++) {
        const bool reduced = l->reduced >> d & 1, last = !((reduced ? l->reduced : ~l->reduced & ((1u << l->dims) - 1)) >> (d + 1));
        int64_t *left = reduced ? &terms : &width;
        shape.dim[d] = last ? *left : 1 + below(*left, random);
        *left /= shape.dim[d];
    }
    return shape;
}

/* The result to which element i belongs, where reduced dimensions stay as 1. */
static int64_t home_of(const weir_shape *shape, unsigned reduced, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        if (!(reduced >> d & 1)) {
            at += i % shape->dim[d] * step;
            step *= shape->dim[d];
        }
        i /= shape->dim[d];
    }
    return at;
}

static void check_reduction(const weir_op *op, const layout *l, sum_case s, uint64_t *random)
{
    const weir_shape shape = shape_of(l, &s, random);
    reduce_attrs axes = {.keep = 1};
    for (int d = 0; d < l->dims; d++)
        if (l->reduced >> d & 1)
            axes.axes[axes.axis_count++] = d;
    const weir_shape kept = kept_shape(&shape, l->reduced);
    const shape_attrs to = shape_attrs_of(&kept);
    kernel_check c = kernel_check_new(op, op == &op_sum_to ? (const void *)&to : &axes, SEED);
    fill(kernel_check_in(&c, s.dtype, shape), s.kind, random);
    kernel_check_run(&c);
    const int64_t all = weir_shape_count(&shape), count = weir_shape_count(&kept);
    exact *want = exact_new(count);
    for (int64_t i = 0; i < all; i++)
        add(&want[home_of(&shape, l->reduced, i)], kernel_at(&c.in[0], i));
    const double share = op == &op_mean ? (double)count / (double)all : 1;
    s.terms = count ? all / count : 0;
    for (int64_t i = 0; i < count; i++)
        expect_sum(kernel_at(&c.out[0], i), (exact){want[i].sum * share, want[i].sizes * share}, &s, op->name, i);
    if (s.kind <= POSITIVE && all <= 1 << 14)
        shard_check(&c, 3, 2e-6);
    free(want);
    kernel_check_free(&c);
}

Test(long_sums, of_reductions, .timeout = 120)
{
    static const weir_op *const ops[] = {&op_sum, &op_mean, &op_sum_to};
    uint64_t random = SEED;
    const int all = sizeof layouts / sizeof *layouts; /* each layout has each op, where there are enough cases */
    for (int i = 0; i < cases(); i++)
        check_reduction(ops[(i + i / all) % 3], &layouts[i % all], case_of(i, &random), &random);
}

/* ---- sums over rows ---- */

Test(long_sums, of_a_bias_gradient, .timeout = 120)
{
    uint64_t random = SEED + 1;
    for (int i = 0; i < cases(); i++) {
        const sum_case s = case_of(i, &random);
        kernel_check c = kernel_check_new(&op_linear_db, NULL, SEED);
        fill(kernel_check_in(&c, s.dtype, SHAPE(s.terms, s.width)), s.kind, &random);
        kernel_check_run(&c);
        for (int64_t column = 0; column < s.width; column++) {
            exact want = {0};
            for (int64_t row = 0; row < s.terms; row++)
                add(&want, kernel_at(&c.in[0], row * s.width + column));
            expect_sum(kernel_at(&c.out[0], column), want, &s, "linear_db", column);
        }
        kernel_check_free(&c);
    }
}

/* x, gain, mean (layernorm alone), rstd, dy. A gain's terms are products that are rounded, each by itself. */
static kernel_check norm_grads(bool centred, const sum_case *s, uint64_t *random)
{
    kernel_check c = kernel_check_new(centred ? &op_layernorm_grad : &op_rmsnorm_grad, NULL, SEED);
    const weir_shape x = SHAPE(s->terms, s->width), row = SHAPE(s->terms);
    fill(kernel_check_in(&c, s->dtype, x), NORMAL, random);
    kernel_check_in(&c, WEIR_F32, SHAPE(s->width));
    if (centred)
        fill(kernel_check_in(&c, WEIR_F32, row), EQUAL, random);
    fill(kernel_check_in(&c, WEIR_F32, row), POSITIVE, random);
    fill(kernel_check_in(&c, s->dtype, x), s->kind, random);
    return c;
}

static void expect_norm_sums(const kernel_check *c, const sum_case *s)
{
    const bool centred = c->op == &op_layernorm_grad;
    const weir_view *x = &c->in[0], *rstd = &c->in[centred ? 3 : 2], *dy = &c->in[c->in_count - 1];
    for (int64_t column = 0; column < s->width; column++) {
        exact gain = {0}, bias = {0};
        for (int64_t row = 0; row < s->terms; row++) {
            const double d = kernel_at(dy, row * s->width + column), mean = centred ? kernel_at(&c->in[2], row) : 0;
            const double from = kernel_at(x, row * s->width + column) - mean;
            add(&gain, d * from * kernel_at(rstd, row));
            add(&bias, d);
        }
        expect_sum(kernel_at(&c->out[1], column), gain, s, "a gain", column);
        if (centred)
            expect_sum(kernel_at(&c->out[2], column), bias, s, "a bias", column);
    }
}

Test(long_sums, of_a_norm_s_gradient, .timeout = 120)
{
    uint64_t random = SEED + 2;
    for (int i = 0; i < cases(); i++) {
        const sum_case s = case_of(i, &random);
        kernel_check c = norm_grads(i % 3, &s, &random);
        kernel_check_run(&c);
        expect_norm_sums(&c, &s);
        kernel_check_free(&c);
    }
}

Test(long_sums, of_an_embedding_s_gradient, .timeout = 120)
{
    const struct embedding_attrs vocab = {VOCAB};
    uint64_t random = SEED + 3;
    for (int i = 0; i < cases(); i++) {
        const sum_case s = case_of(i, &random);
        kernel_check c = kernel_check_new(&op_embedding_grad, &vocab, SEED);
        weir_view *ids = kernel_check_in(&c, WEIR_I32, SHAPE(s.terms)); /* 0 to 9 */
        for (int64_t row = 0; row < s.terms && i % 2; row++)
            kernel_set(ids, row, 7);
        fill(kernel_check_in(&c, s.dtype, SHAPE(s.terms, s.width)), s.kind, &random);
        kernel_check_run(&c);
        exact *want = exact_new(VOCAB * s.width);
        for (int64_t at = 0; at < s.terms * s.width; at++)
            add(&want[(int64_t)kernel_at(&c.in[0], at / s.width) * s.width + at % s.width], kernel_at(&c.in[1], at));
        for (int64_t at = 0; at < VOCAB * s.width; at++)
            expect_sum(kernel_at(&c.out[0], at), want[at], &s, "embedding_grad", at);
        free(want);
        kernel_check_free(&c);
    }
}

/* ---- sums along a row ---- */

static double term_of_row(const kernel_check *c, int64_t row, int64_t i)
{
    return kernel_at(&c->in[0], row * c->in[0].shape.dim[1] + i);
}

/* The mean and 1 / the deviation of rows of `terms` elements. */
static void check_norm(bool centred, const sum_case *s, uint64_t *random)
{
    const struct norm_attrs attrs = {1e-5};
    kernel_check c = kernel_check_new(centred ? &op_layernorm : &op_rmsnorm, &attrs, SEED);
    fill(kernel_check_in(&c, s->dtype, SHAPE(2, s->terms)), s->kind, random);
    for (int i = 0; i < 1 + centred; i++)
        kernel_check_in(&c, WEIR_F32, SHAPE(s->terms));
    kernel_check_run(&c);
    for (int64_t row = 0; row < 2; row++) {
        exact mean = {0};
        double squares = 0;
        for (int64_t i = 0; i < s->terms; i++)
            add(&mean, term_of_row(&c, row, i));
        mean = (exact){mean.sum / (double)s->terms, mean.sizes / (double)s->terms};
        const double from = centred ? kernel_at(&c.out[1], row) : 0; /* as rounded */
        for (int64_t i = 0; i < s->terms; i++)
            squares += (term_of_row(&c, row, i) - from) * (term_of_row(&c, row, i) - from);
        const double rstd = 1 / sqrt(squares / (double)s->terms + attrs.eps);
        if (centred)
            expect_sum(from, mean, s, "a row's mean", row);
        expect_sum(kernel_at(&c.out[centred ? 2 : 1], row), (exact){rstd, rstd}, s, "a row's deviation", row);
    }
    kernel_check_free(&c);
}

Test(long_sums, of_a_row_s_mean_and_deviation, .timeout = 120)
{
    uint64_t random = SEED + 4;
    for (int i = 0; i < cases(); i++) {
        sum_case s = case_of(i, &random);
        s.terms = s.terms > 1 ? s.terms / 2 : 1;
        check_norm(i % 3, &s, &random);
    }
}

/* Elements of a row whose exponentials are all 1: so that of all roundings there are those of the sums alone. */
Test(long_sums, of_softmax_and_its_gradient, .timeout = 120)
{
    uint64_t random = SEED + 5;
    for (int i = 0; i < cases(); i++) {
        sum_case s = case_of(i, &random);
        s.dtype = WEIR_F32;
        kernel_check c = kernel_check_new(&op_softmax, NULL, SEED), d = kernel_check_new(&op_softmax_grad, NULL, SEED);
        fill(kernel_check_in(&c, WEIR_F32, SHAPE(1, s.terms)), EQUAL, &random);
        kernel_check_run(&c);
        for (int64_t at = 0; at < s.terms; at++)
            expect_sum(kernel_at(&c.out[0], at), (exact){1 / (double)s.terms, 1 / (double)s.terms}, &s, "softmax", at);
        weir_view *y = kernel_check_in(&d, WEIR_F32, SHAPE(1, s.terms));
        memcpy(y->data, c.out[0].data, (size_t)s.terms * sizeof(float));
        fill(kernel_check_in(&d, WEIR_F32, SHAPE(1, s.terms)), s.kind, &random);
        kernel_check_run(&d);
        exact dot = {0};
        for (int64_t at = 0; at < s.terms; at++)
            add(&dot, kernel_at(&d.in[0], at) * kernel_at(&d.in[1], at));
        for (int64_t at = 0; at < s.terms; at++) {
            const double share = kernel_at(&d.in[0], at), dy = kernel_at(&d.in[1], at);
            expect_sum(kernel_at(&d.out[0], at), (exact){share * (dy - dot.sum), share * (fabs(dy) + dot.sizes)}, &s,
                       "softmax_grad", at);
        }
        kernel_check_free(&c);
        kernel_check_free(&d);
    }
}

/* Many rows of few classes, or a row of many: the loss and each row's log sum exp. */
Test(long_sums, of_a_loss, .timeout = 120)
{
    const label_attrs none = {0};
    uint64_t random = SEED + 6;
    for (int i = 0; i < cases(); i++) {
        sum_case s = case_of(i, &random);
        const int64_t rows = i % 2 ? (s.terms + 2) / 3 : 1, classes = i % 2 ? 3 : s.terms;
        kernel_check c = kernel_check_new(&op_cross_entropy, &none, SEED);
        fill(kernel_check_in(&c, WEIR_F32, SHAPE(rows, classes)), i % 4 < 2 ? EQUAL : POSITIVE, &random);
        weir_view *labels = kernel_check_in(&c, WEIR_I32, SHAPE(rows));
        for (int64_t row = 0; row < rows; row++)
            kernel_set(labels, row, (double)below(classes, &random));
        kernel_check_run(&c);
        double loss = 0;
        for (int64_t row = 0; row < rows; row++) {
            double sum = 0;
            for (int64_t k = 0; k < classes; k++)
                sum += exp(term_of_row(&c, row, k));
            expect_sum(kernel_at(&c.out[1], row), (exact){log(sum), 1 + log(sum)}, &s, "log sum exp", row);
            loss += (log(sum) - term_of_row(&c, row, (int64_t)kernel_at(&c.in[1], row))) / (double)rows;
        }
        expect_sum(kernel_at(&c.out[0], 0), (exact){loss, 1 + loss}, &s, "a loss", 0);
        kernel_check_free(&c);
    }
}

/* ---- some rows after the others ---- */

/* Elements of a view that belong to `rows` of its rows from `row` on. */
static weir_view rows_of(const weir_view *view, int64_t row, int64_t rows)
{
    weir_view part = *view;
    const int64_t all = view->shape.dim[0], each = all ? weir_shape_count(&view->shape) / all : 0;
    part.data = (char *)view->data + (size_t)(row * each) * weir_dtype_bytes(view->dtype);
    part.shape.dim[0] = rows;
    part.offset[0] += row;
    return part;
}

/* Calls the kernel for runs of rows of random lengths, and expects the bits of one call. */
static void check_cuts(const kernel_check *c, int64_t rows, uint64_t *random)
{
    weir_type in[KERNEL_CHECK_MAX], out[KERNEL_CHECK_MAX];
    weir_view joined[KERNEL_CHECK_MAX], in_part[KERNEL_CHECK_MAX], out_part[KERNEL_CHECK_MAX];
    for (int i = 0; i < c->in_count; i++)
        in[i] = (weir_type){c->in[i].dtype, c->in[i].shape};
    for (int o = 0; o < c->out_count; o++) {
        out[o] = (weir_type){c->out[o].dtype, c->out[o].shape};
        joined[o] = kernel_view_new(out[o], KERNEL_GARBAGE);
    }
    const weir_op_args rule = {c->op, in, c->in_count, out, c->out_count, c->attrs};
    const size_t bytes = c->op->workspace(&rule, WEIR_CPU);
    void *workspace = aligned_alloc(64, (bytes / 64 + 1) * 64);
    cr_assert_not_null(workspace);
    for (int64_t row = 0, count; row < rows; row += count) {
        count = 1 + below(rows - row < 40 ? rows - row : 40, random);
        const uint32_t per_row_in = c->op->rows_in | c->op->per_row_in, per_row_out = c->op->rows_out | c->op->per_row_out;
        for (int i = 0; i < c->in_count; i++)
            in_part[i] = per_row_in >> i & 1 ? rows_of(&c->in[i], row, count) : c->in[i];
        for (int o = 0; o < c->out_count; o++)
            out_part[o] = per_row_out >> o & 1 ? rows_of(&joined[o], row, count) : joined[o];
        const weir_kernel_args args = {.in = in_part, .in_count = c->in_count, .out = out_part, .out_count = c->out_count,
                                       .attrs = c->attrs, .workspace = workspace, .workspace_bytes = bytes,
                                       .continues = row > 0};
        cr_assert_eq(c->op->kernel[WEIR_CPU](&args), WEIR_OK);
    }
    for (int o = 0; o < c->out_count; o++) {
        const size_t size = (size_t)weir_shape_count(&out[o].shape) * weir_dtype_bytes(out[o].dtype);
        cr_assert_eq(memcmp(joined[o].data, c->out[o].data, size), 0, "output %d of %s depends on where rows are cut, seed %d",
                     o, c->op->name, SEED);
        kernel_view_free(&joined[o]);
    }
    free(workspace);
}

Test(long_sums, have_the_same_bits_wherever_rows_are_cut, .timeout = 120)
{
    uint64_t random = SEED + 7;
    for (int i = 0; i < cases() && kernel_check_kind() == WEIR_CPU; i++) {
        sum_case s = {1 + below(500, &random), 1 + below(300, &random), (numbers)(i % NUMBERS),
                      i % 5 == 3 ? WEIR_BF16 : WEIR_F32};
        kernel_check c = norm_grads(i % 2, &s, &random), d = kernel_check_new(&op_linear_db, NULL, SEED);
        fill(kernel_check_in(&d, s.dtype, SHAPE(s.terms, s.width)), s.kind, &random);
        kernel_check_run(&c);
        kernel_check_run(&d);
        check_cuts(&c, s.terms, &random);
        check_cuts(&d, s.terms, &random);
        kernel_check_free(&c);
        kernel_check_free(&d);
    }
}
