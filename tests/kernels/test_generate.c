/* test_generate.c: what a model needs that writes a row a step. The kernels against plain loops in double; and that a
 * row's bits are the same however many are computed with it, for every op that lies on the way from a token to its
 * logits. */
#include "kernels/matmul/rows.h"
#include "kernels/common/ops.h"
#include "tests/support/kernel_check.h"
#include "tests/support/op_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 60221 /* of all random inputs here */

typedef struct kept_attrs { /* as kernels/attention/kept.c has them */
    int64_t head_dim;
    double scale;
} kept_attrs;

static float *random_floats(int64_t count, uint64_t *random)
{
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)kernel_random_normal(random);
    return x;
}

/* Runs the op whole, then on 2 and 3 devices in every way that it says it may be split. */
static void run_all_ways(kernel_check *c)
{
    kernel_check_run(c);
    for (int devices = 2; devices <= 3; devices++)
        cr_assert(shard_check(c, devices, 1e-4) > 0, "%s lists no signature", c->op->name);
}

/* ---- products ---- */

static void reference_linear(const kernel_check *c, int out, double *want)
{
    const int64_t k = c->in[1].shape.dim[0], n = c->in[1].shape.dim[1];
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        want[i] = c->in_count > 2 ? kernel_at(&c->in[2], i % n) : 0;
        for (int64_t l = 0; l < k; l++)
            want[i] += kernel_at(&c->in[0], i / n * k + l) * kernel_at(&c->in[1], l * n + i % n);
    }
}

static void check_linear(weir_shape x, int64_t out, bool biased)
{
    kernel_check c = kernel_check_new(&op_linear_by_row, NULL, SEED);
    kernel_check_in(&c, WEIR_F32, x);
    kernel_check_in(&c, WEIR_F32, SHAPE(x.dim[x.rank - 1], out));
    if (biased)
        kernel_check_in(&c, WEIR_F32, SHAPE(out));
    run_all_ways(&c);
    kernel_check_near(&c, 0, reference_linear, 1e-5);
    kernel_check_free(&c);
}

Test(linear_by_row, is_x_w_plus_b, .timeout = 120)
{
    check_linear(SHAPE(5, 7), 9, true);
    check_linear(SHAPE(5, 7), 9, false);
    check_linear(SHAPE(2, 3, 20), 33, true);
    check_linear(SHAPE(23, 300), 65, false);
    check_linear(SHAPE(1, 600), 400, true);
}

/* Rows of A and C lie apart, so that what is written beside them shows. */
static void check_rows(int64_t n, int64_t k, bool add)
{
    enum { ROWS = 37 };
    uint64_t random = SEED + (uint64_t)(n * 1000 + k);
    const int64_t lda = k + 3, ldc = n + 5;
    float *a = random_floats(ROWS * lda, &random), *b = random_floats(k * n, &random);
    float *start = random_floats(ROWS * ldc, &random);
    const size_t bytes = ROWS * (size_t)ldc * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    memcpy(want, start, bytes);
    for (int r = 0; r < ROWS; r++)
        gemm_rows(1, n, k, a + r * lda, lda, b, n, add, want + r * ldc, ldc);
    for (int64_t m = 2; m <= ROWS; m++) {
        memcpy(got, start, bytes);
        for (int64_t r = 0; r < ROWS; r += m)
            gemm_rows(r + m < ROWS ? m : ROWS - r, n, k, a + r * lda, lda, b, n, add, got + r * ldc, ldc);
        cr_assert_eq(memcmp(got, want, bytes), 0, "%d rows at a time, n %d, k %d", (int)m, (int)n, (int)k);
    }
    free(a), free(b), free(start), free(want), free(got);
}

Test(gemm_rows, a_row_does_not_depend_on_the_others, .timeout = 60)
{
    static const int64_t k[] = {0, 1, 2, 15, 64, 255, 256, 257, 384, 600};
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        for (int64_t n = 1; n < 420; n += n < 40 ? 1 : 47)
            check_rows(n, k[i], n % 2);
    check_rows(64, 4096, false);
    check_rows(512, 1024, true);
}

/* ---- every other op on the way ---- */

/* The view's rows [first, first + count); `width` elements each. */
static weir_view rows_of(const weir_view *view, int64_t first, int64_t count, int64_t width)
{
    weir_view part = {.data = (char *)view->data + (size_t)(first * width) * weir_dtype_bytes(view->dtype),
                      .dtype = view->dtype, .shape = SHAPE(1, count, width)};
    part.global = part.shape;
    return part;
}

/* Holds output 0 of a run over all rows against each row by itself: inputs in `rowwise` (bits) go by rows. */
static void check_row_alone(kernel_check *c, unsigned rowwise)
{
    kernel_check_run(c);
    const weir_shape *y = &c->out[0].shape;
    const int64_t rows = c->in[0].shape.dim[1], width = weir_shape_count(y) / rows;
    for (int64_t row = 0; row < rows; row++) {
        kernel_check one = kernel_check_new(c->op, c->attrs, SEED);
        for (int i = 0; i < c->in_count; i++) {
            const int64_t columns = weir_shape_count(&c->in[i].shape) / rows;
            weir_view from = rowwise >> i & 1 ? rows_of(&c->in[i], row, 1, columns) : c->in[i];
            if (rowwise >> i & 1 && c->in[i].shape.rank == 2)
                from.shape = SHAPE(1, 1);
            weir_view *to = kernel_check_in(&one, from.dtype, from.shape);
            memcpy(to->data, from.data, (size_t)weir_shape_count(&from.shape) * weir_dtype_bytes(from.dtype));
        }
        kernel_check_run(&one);
        cr_assert_eq(memcmp(one.out[0].data, (float *)c->out[0].data + row * width, (size_t)width * sizeof(float)), 0,
                     "%s: row %d of %d, of %d elements", c->op->name, (int)row, (int)rows, (int)width);
        kernel_check_free(&one);
    }
    kernel_check_free(c);
}

static void check_op_rows(const weir_op *op, const void *attrs, int64_t width, int weights)
{
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, SHAPE(1, 19, width));
    for (int i = 0; i < weights; i++)
        kernel_check_in(&c, WEIR_F32, SHAPE(width));
    check_row_alone(&c, 1);
}

Test(rows, are_alone_in_norms_and_functions_too, .timeout = 60)
{
    const double eps = 1e-5;
    for (int64_t width = 1; width < 90; width += width < 35 ? 1 : 9) {
        check_op_rows(&op_layernorm, &eps, width, 2);
        check_op_rows(&op_gelu, NULL, width, 0);
        kernel_check sum = kernel_check_new(&op_add, NULL, SEED);
        kernel_check_in(&sum, WEIR_F32, SHAPE(1, 19, width));
        kernel_check_in(&sum, WEIR_F32, SHAPE(1, 19, width));
        check_row_alone(&sum, 3);
        kernel_check embedding = kernel_check_new(&op_embedding, NULL, SEED);
        kernel_check_in(&embedding, WEIR_I32, SHAPE(1, 19));
        kernel_check_in(&embedding, WEIR_F32, SHAPE(10, width));
        check_row_alone(&embedding, 1);
    }
}

/* ---- attention with kept rows ---- */

typedef struct kept_case {
    int64_t batch, rows, room, position, heads, head_dim;
    double sharpness; /* of the scores */
    weir_dtype kept;  /* of k, v and the kept rows */
} kept_case;

static kernel_check kept_new(const kept_case *at, const kept_attrs *attrs)
{
    const int64_t dim = at->heads * at->head_dim;
    kernel_check c = kernel_check_new(&op_attention_kept, attrs, SEED);
    for (int i = 0; i < 5; i++)
        kernel_check_in(&c, i ? at->kept : WEIR_F32, SHAPE(at->batch, i < 3 ? at->rows : at->room, dim));
    *(int32_t *)kernel_check_in(&c, WEIR_I32, SHAPE(1, 1))->data = (int32_t)at->position;
    return c;
}

/* Element `column` of key (which = 1) or value (2) j of a batch: kept, or new from the position on. */
static double seen_at(const kernel_check *c, int which, int64_t batch, int64_t j, int64_t column)
{
    const int64_t dim = c->in[0].shape.dim[2], position = (int64_t)kernel_at(&c->in[5], 0);
    const weir_view *kept = &c->in[2 + which], *new = &c->in[which];
    if (j < position)
        return kernel_at(kept, (batch * kept->shape.dim[1] + j) * dim + column);
    return kernel_at(new, (batch * new->shape.dim[1] + j - position) * dim + column);
}

static void reference_row(const kernel_check *c, int64_t batch, int64_t row, int64_t first, double *want)
{
    const kept_attrs *attrs = c->attrs;
    const int64_t dim = c->in[0].shape.dim[2], rows = c->in[0].shape.dim[1];
    const int64_t seen = (int64_t)kernel_at(&c->in[5], 0) + row + 1;
    double *p = calloc((size_t)seen, sizeof *p), total = 0, most = -INFINITY;
    for (int64_t j = 0; j < seen; j++) {
        for (int64_t l = first; l < first + attrs->head_dim; l++)
            p[j] += attrs->scale * kernel_at(&c->in[0], (batch * rows + row) * dim + l) * seen_at(c, 1, batch, j, l);
        most = p[j] > most ? p[j] : most;
    }
    for (int64_t j = 0; j < seen; j++)
        total += p[j] = exp(p[j] - most);
    for (int64_t l = first; l < first + attrs->head_dim; l++)
        for (int64_t j = 0; j < seen; j++)
            want[(batch * rows + row) * dim + l] += p[j] / total * seen_at(c, 2, batch, j, l);
    free(p);
}

static void reference_kept(const kernel_check *c, int out, double *want)
{
    const kept_attrs *attrs = c->attrs;
    (void)out;
    for (int64_t batch = 0; batch < c->in[0].shape.dim[0]; batch++)
        for (int64_t row = 0; row < c->in[0].shape.dim[1]; row++)
            for (int64_t first = 0; first < c->in[0].shape.dim[2]; first += attrs->head_dim)
                reference_row(c, batch, row, first, want);
}

static void check_kept(kept_case at)
{
    const kept_attrs attrs = {at.head_dim, at.sharpness / sqrt((double)at.head_dim)};
    kernel_check c = kept_new(&at, &attrs);
    run_all_ways(&c);
    kernel_check_near(&c, 0, reference_kept, 2e-5);
    kernel_check_free(&c);
}

Test(attention_kept, is_causal_attention_over_kept_and_new_rows, .timeout = 60)
{
    check_kept((kept_case){1, 1, 1, 0, 1, 1, 1, WEIR_F32});
    check_kept((kept_case){2, 3, 9, 0, 3, 4, 1, WEIR_F32});
    check_kept((kept_case){2, 3, 9, 6, 3, 4, 1, WEIR_F32});
    check_kept((kept_case){3, 1, 70, 40, 2, 16, 1, WEIR_F32});
    check_kept((kept_case){1, 20, 300, 277, 2, 33, 8, WEIR_F32});
    check_kept((kept_case){2, 3, 9, 6, 3, 4, 1, WEIR_BF16});
    check_kept((kept_case){1, 20, 300, 277, 2, 72, 8, WEIR_F16});
    check_kept((kept_case){1, 70, 300, 200, 2, 64, 8, WEIR_BF16});
}

/* A window of rows in one go gives each row the bits that it gets when those before it are kept, however it is cut. */
static void check_cuts(const kept_case *whole)
{
    const int64_t all_rows = whole->rows, dim = whole->heads * whole->head_dim, bytes = (int64_t)weir_dtype_bytes(whole->kept);
    const kept_attrs attrs = {whole->head_dim, 2 / sqrt((double)whole->head_dim)};
    kernel_check all = kept_new(whole, &attrs);
    kernel_check_run(&all);
    for (int64_t rows = 1; rows < all_rows; rows += 1 + rows / 3)
        for (int64_t position = 0; position + rows <= all_rows; position += 1 + position / 5) {
            kept_case at = *whole;
            at.rows = rows, at.position = position;
            kernel_check c = kept_new(&at, &attrs);
            for (int i = 0; i < 5; i++) {
                const weir_view part = i < 3 ? rows_of(&all.in[i], position, rows, dim) : all.in[i - 2];
                memcpy(c.in[i].data, part.data, (size_t)weir_shape_count(&part.shape) * weir_dtype_bytes(part.dtype));
            }
            for (int i = 3; i < 5; i++) /* what lies behind the kept rows is not looked at */
                memset((char *)c.in[i].data + position * dim * bytes, KERNEL_GARBAGE, (size_t)((all_rows - position) * dim * bytes));
            kernel_check_run(&c);
            cr_assert_eq(memcmp(c.out[0].data, (float *)all.out[0].data + position * dim, (size_t)(rows * dim) * 4), 0,
                         "%d rows from %d on", (int)rows, (int)position);
            kernel_check_free(&c);
        }
    kernel_check_free(&all);
}

Test(attention_kept, gives_a_row_the_same_bits_whatever_is_kept, .timeout = 120)
{
    check_cuts(&(kept_case){1, 61, 61, 0, 3, 20, 2, WEIR_F32});
    check_cuts(&(kept_case){1, 61, 61, 0, 1, 40, 2, WEIR_BF16});
    check_cuts(&(kept_case){1, 130, 130, 0, 1, 16, 2, WEIR_F16});
    check_cuts(&(kept_case){1, 80, 80, 0, 2, 64, 2, WEIR_BF16}); /* few rows, and many: kernels/attention/few.h */
}

Test(attention_kept, runs_in_every_layout, .timeout = 60)
{
    const kept_case at = {3, 2, 7, 4, 3, 4, 1, WEIR_BF16};
    const kept_attrs attrs = {4, 0.5};
    kernel_check c = kept_new(&at, &attrs);
    cr_assert_geq(op_check(&c, 3, 1e-5), 2);
    kernel_check_free(&c);
}

/* ---- append ---- */

static void reference_append(const kernel_check *c, int out, double *want)
{
    const weir_shape *x = &c->out[out].shape;
    const int64_t room = x->dim[x->rank - 2], dim = x->dim[x->rank - 1], rows = c->in[1].shape.dim[x->rank - 2];
    const int64_t position = (int64_t)kernel_at(&c->in[2], 0);
    for (int64_t i = 0; i < weir_shape_count(x); i++) {
        const int64_t row = i / dim % room - position, outside = i / dim / room;
        want[i] = row >= 0 && row < rows ? kernel_at(&c->in[1], (outside * rows + row) * dim + i % dim)
                                         : kernel_at(&c->in[0], i);
    }
}

static void check_append(weir_shape x, int64_t rows, int32_t position)
{
    kernel_check c = kernel_check_new(&op_append, NULL, SEED);
    weir_shape new = x;
    new.dim[x.rank - 2] = rows;
    kernel_check_in(&c, WEIR_F32, x);
    kernel_check_in(&c, WEIR_F32, new);
    *(int32_t *)kernel_check_in(&c, WEIR_I32, SHAPE())->data = position;
    run_all_ways(&c);
    kernel_check_near(&c, 0, reference_append, 0);
    cr_assert_geq(op_check(&c, 2, 0), 1);
    kernel_check_free(&c);
}

Test(append, replaces_rows_from_a_position_on, .timeout = 120)
{
    check_append(SHAPE(5, 3), 1, 0);
    check_append(SHAPE(5, 3), 2, 3);
    check_append(SHAPE(2, 9, 4), 9, 0);
    check_append(SHAPE(2, 3, 9, 4), 2, 7);
}

/* ---- what does not fit ---- */

Test(attention_kept, refuses_shapes_that_do_not_fit, .timeout = 120)
{
    const kept_attrs attrs = {4, 1};
    weir_type in[6] = {{WEIR_F32, SHAPE(1, 2, 8)}, {WEIR_F32, SHAPE(1, 2, 8)}, {WEIR_F32, SHAPE(1, 2, 8)},
                       {WEIR_F32, SHAPE(1, 5, 8)}, {WEIR_F32, SHAPE(1, 5, 8)}, {WEIR_I32, SHAPE(2)}};
    kernel_check_refuses(&op_attention_kept, &attrs, in, 6, "the position is not one i32");
    in[5].shape = SHAPE();
    in[4].shape = SHAPE(1, 6, 8);
    kernel_check_refuses(&op_attention_kept, &attrs, in, 6, "the shapes of the kept keys and values differ");
    in[3].shape = in[4].shape = SHAPE(1, 1, 8);
    kernel_check_refuses(&op_attention_kept, &attrs, in, 6, "2 new rows are more than there is room for, 1");
    in[3].shape = in[4].shape = SHAPE(1, 5, 12);
    kernel_check_refuses(&op_attention_kept, &attrs, in, 6,
                         "batch and dim of k, 1 and 8, and of the kept keys, 1 and 12, differ");
    in[2].dtype = WEIR_I32;
    kernel_check_refuses(&op_attention_kept, &attrs, in, 6, "v: i32 with 3 dimensions; needs to be f32, f16 or bf16 with three");
    in[2].dtype = WEIR_F32;
    in[3].dtype = in[4].dtype = WEIR_BF16;
    kernel_check_refuses(&op_attention_kept, &attrs, in, 6, "k and v are f32 and the kept rows bf16: convert k and v by weir_cast(), or keep f32");
    in[1].dtype = in[2].dtype = in[3].dtype = in[4].dtype = WEIR_F16;
    in[0].dtype = WEIR_BF16;
    in[3].dtype = in[4].dtype = WEIR_F32;
    kernel_check_refuses(&op_attention_kept, &attrs, in, 6, "k and v are f16; they need to be as q, bf16, or as the kept rows, f32");
}

Test(append, refuses_shapes_that_do_not_fit, .timeout = 120)
{
    weir_type in[3] = {{WEIR_F32, SHAPE(5, 8)}, {WEIR_F32, SHAPE(6, 8)}, {WEIR_I32, SHAPE()}};
    kernel_check_refuses(&op_append, NULL, in, 3, "6 rows are more than x has, 5");
    in[1].shape = SHAPE(1, 7);
    kernel_check_refuses(&op_append, NULL, in, 3, "the rows are not of x's dtype and dimensions");
    in[1].shape = SHAPE(1, 8);
    in[2].dtype = WEIR_F32;
    kernel_check_refuses(&op_append, NULL, in, 3, "the position is not one i32");
    in[0].shape = SHAPE(8);
    kernel_check_refuses(&op_append, NULL, in, 3, "x has 1 dimensions; it needs two or more");
}

/* Checks the kernel's error for a position at which the rows do not fit. */
static void expect_failure(kernel_check *c, int position_at, int32_t position, const char *sentence)
{
    static float scratch[64];
    char error[256] = "";
    kernel_check_run(c);
    *(int32_t *)c->in[position_at].data = position;
    weir_kernel_args args = {.in = c->in, .in_count = c->in_count, .out = c->out, .out_count = c->out_count,
                             .attrs = c->attrs, .workspace = scratch, .workspace_bytes = sizeof scratch,
                             .error = error, .error_bytes = sizeof error};
    cr_expect_eq(kernel_check_kernel(c->op)(&args), WEIR_E_KERNEL);
    cr_expect_str_eq(error, sentence);
    kernel_check_free(c);
}

Test(position, is_refused_where_the_rows_do_not_fit, .timeout = 120)
{
    const kept_case at = {1, 2, 5, 0, 1, 4, 1, WEIR_F32};
    const kept_attrs attrs = {4, 1};
    static const int32_t wrong[] = {-1, 4, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "2 rows from position %d on do not fit into 5", wrong[i]);
        kernel_check c = kept_new(&at, &attrs);
        expect_failure(&c, 5, wrong[i], sentence);
        c = kernel_check_new(&op_append, NULL, SEED);
        kernel_check_in(&c, WEIR_F32, SHAPE(5, 3));
        kernel_check_in(&c, WEIR_F32, SHAPE(2, 3));
        *(int32_t *)kernel_check_in(&c, WEIR_I32, SHAPE())->data = 0;
        expect_failure(&c, 2, wrong[i], sentence);
    }
}
