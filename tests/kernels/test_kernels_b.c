/* test_kernels_b.c: products, norms, embeddings and losses against plain loops in double. The gradients are held
 * against finite differences in test_gradients_b.c; here they are held against their formulas. */
#include "kernels/common/lanes.h"
#include "kernels/matmul/gemm.h"
#include "kernels/common/ops.h"
#include "tests/kernels/by_name.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 20210 /* of all random inputs here */

static int64_t last(const weir_view *view)
{
    return view->shape.rank ? view->shape.dim[view->shape.rank - 1] : 1;
}

static int64_t rows(const weir_view *view)
{
    return last(view) ? weir_shape_count(&view->shape) / last(view) : 0;
}

/* ---- lanes ---- */

Test(lanes, a_row_is_summed_whole_at_every_length, .timeout = 120)
{
    float x[100], y[100];
    for (int i = 0; i < 100; i++) {
        x[i] = (float)(i * i % 17 - 8);
        y[i] = (float)(i % 5 - 2);
    }
    for (int count = 1; count <= 100; count++) {
        double sum = 0, dot = 0, squares = 0, most = -INFINITY;
        for (int i = 0; i < count; i++) {
            sum += x[i];
            dot += x[i] * y[i];
            squares += x[i] * x[i];
            most = x[i] > most ? x[i] : most;
        }
        cr_assert_eq(row_sum(x, count), sum, "sum of %d", count);
        cr_assert_eq(row_dot(x, y, count), dot, "dot of %d", count);
        cr_assert_eq(row_squares(x, count), squares, "squares of %d", count);
        cr_assert_eq(row_max(x, count), most, "max of %d", count);
    }
}

/* ---- products ---- */

/* Element (row, column) of a matrix stored with or without a transposition. */
static double stored(const float *x, bool trans, int64_t ld, int64_t row, int64_t column)
{
    return trans ? x[column * ld + row] : x[row * ld + column];
}

static void check_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, float beta,
                       uint64_t *random)
{
    const int64_t gap = 3, lda = (trans_a ? m : k) + gap, ldb = (trans_b ? k : n) + gap, ldc = n + gap;
    const int64_t a_count = (trans_a ? k : m) * lda, b_count = (trans_b ? n : k) * ldb, c_count = m * ldc;
    float *a = malloc((size_t)(a_count + 1) * 4), *b = malloc((size_t)(b_count + 1) * 4);
    float *c = malloc((size_t)(c_count + 1) * 4), *old = malloc((size_t)(c_count + 1) * 4);
    for (int64_t i = 0; i < a_count; i++)
        a[i] = (float)(kernel_random(random) - 0.5);
    for (int64_t i = 0; i < b_count; i++)
        b[i] = (float)(kernel_random(random) - 0.5);
    for (int64_t i = 0; i < c_count; i++)
        old[i] = c[i] = beta == 0 ? NAN : (float)(kernel_random(random) - 0.5);
    const size_t bytes = gemm_workspace(trans_a, trans_b, m, n, k);
    unsigned char *workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(workspace + bytes, 0x5A, 64);
    gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, workspace);
    for (size_t i = bytes; i < bytes + 64; i++)
        cr_assert_eq(workspace[i], 0x5A, "%d%d %ldx%ldx%ld wrote beyond its workspace", trans_a, trans_b, (long)m,
                     (long)n, (long)k);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double want = beta == 0 ? 0 : beta * old[i * ldc + j];
            for (int64_t l = 0; l < k; l++)
                want += alpha * stored(a, trans_a, lda, i, l) * stored(b, trans_b, ldb, l, j);
            cr_assert(kernel_near(c[i * ldc + j], want, 1e-5), "%d%d %ldx%ldx%ld: %g at %ld,%ld, not %g", trans_a,
                      trans_b, (long)m, (long)n, (long)k, c[i * ldc + j], (long)i, (long)j, want);
        }
    for (int64_t i = 0; i < c_count; i++)
        if (i % ldc >= n)
            cr_assert_eq(memcmp(&c[i], &old[i], 4), 0, "gemm wrote between the rows of C");
    free(a), free(b), free(c), free(old), free(workspace);
}

Test(gemm, is_the_product_for_every_transposition_and_size, .timeout = 60)
{
    const int64_t sizes[][3] = {{1, 1, 1},   {3, 5, 7},    {0, 4, 4},   {4, 0, 4},    {4, 4, 0},  {0, 0, 0},
                                {1, 64, 64}, {64, 1, 64},  {64, 64, 1}, {17, 33, 65}, {64, 64, 64}, {128, 96, 48},
                                {31, 16, 1}, {100, 10, 784}, {2, 200, 130}, {15, 47, 300}};
    const float beta[] = {0, 1, -0.5f};
    uint64_t random = SEED;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int trans = 0; trans < 4; trans++)
            for (int i = 0; i < 3; i++)
                check_gemm(trans & 1, trans & 2, sizes[s][0], sizes[s][1], sizes[s][2], i ? 0.75f : 1, beta[i],
                           &random);
}

Test(gemm, is_the_product_where_blocks_meet, .timeout = 60)
{
    uint64_t random = SEED;
    for (int trans = 0; trans < 4; trans++) {
        check_gemm(trans & 1, trans & 2, 257, 70, 401, 1, 0, &random);
        check_gemm(trans & 1, trans & 2, 40, 530, 390, 1, 1, &random);
        check_gemm(trans & 1, trans & 2, 3, 1030, 5, 1, 1, &random);
        check_gemm(trans & 1, trans & 2, 490, 1560, 20, 1, -1, &random);
        check_gemm(trans & 1, trans & 2, 9, 101, 800, 0.5f, 0.5f, &random);
    }
}

/* How a plan splits the rows or columns of a product changes no bit, but for products so small that they are made in
 * another way. */
Test(gemm, an_element_has_the_same_bits_whatever_lies_beside_it)
{
    enum { M = 200, N = 170, K = 900 };
    float *a = malloc(M * K * 4), *b = malloc(K * N * 4), *whole = malloc(M * N * 4), *part = malloc(M * N * 4);
    void *workspace = aligned_alloc(64, 8 << 20);
    uint64_t random = SEED;
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(kernel_random(&random) - 0.5);
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(kernel_random(&random) - 0.5);
    for (int trans = 0; trans < 4; trans++) {
        const int64_t lda = trans & 1 ? M : K, ldb = trans & 2 ? K : N;
        gemm(trans & 1, trans & 2, M, N, K, 1, a, lda, b, ldb, 0, whole, N, workspace);
        for (int64_t row = 0; row < M; row += 50)
            for (int64_t column = 0; column < N; column += 85)
                gemm(trans & 1, trans & 2, 50, 85, K, 1, a + (trans & 1 ? row : row * K), lda,
                     b + (trans & 2 ? column * K : column), ldb, 0, part + row * N + column, N, workspace);
        cr_assert_eq(memcmp(whole, part, M * N * 4), 0, "transposed %d", trans);
    }
    free(a), free(b), free(whole), free(part), free(workspace);
}

Test(gemm, its_workspace_is_bounded_for_any_size)
{
    for (int trans = 0; trans < 4; trans++) {
        cr_expect_leq(gemm_workspace(trans & 1, trans & 2, INT64_MAX, INT64_MAX, INT64_MAX), 4 << 20);
        cr_expect_eq(gemm_workspace(trans & 1, trans & 2, 0, 5, 5), 0);
        cr_expect_eq(gemm_workspace(trans & 1, trans & 2, INT64_MAX, 0, INT64_MAX), 0);
    }
}

/* The matrix of a factor that meets batch g of the result. */
static int64_t matrix_of(const weir_shape *factor, const weir_shape *out, int64_t g)
{
    int64_t at = 0, step = 1;
    for (int d = out->rank - 3, own = factor->rank - 3; own >= 0; d--, own--) {
        at += factor->dim[own] == 1 ? 0 : g % out->dim[d] * step;
        step *= factor->dim[own];
        g /= out->dim[d];
    }
    return at;
}

static void reference_matmul(const kernel_check *c, int out, double *want)
{
    const weir_view *a = &c->in[0], *b = &c->in[1];
    const bool trans_a = attr_get(c, "trans_a") != 0, trans_b = attr_get(c, "trans_b") != 0;
    const int64_t n = last(&c->out[out]), m = c->out[out].shape.dim[c->out[out].shape.rank - 2];
    const int64_t k = a->shape.dim[a->shape.rank - (trans_a ? 2 : 1)];
    const int64_t batch = m * n > 0 ? weir_shape_count(&c->out[out].shape) / (m * n) : 0;
    for (int64_t g = 0; g < batch; g++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t l = 0; l < k; l++)
                    want[(g * m + i) * n + j] +=
                        stored((float *)a->data + matrix_of(&a->shape, &c->out[out].shape, g) * m * k, trans_a,
                               trans_a ? m : k, i, l) *
                        stored((float *)b->data + matrix_of(&b->shape, &c->out[out].shape, g) * k * n, trans_b,
                               trans_b ? k : n, l, j);
}

static void check_matmul(weir_shape a, weir_shape b, bool trans_a, bool trans_b)
{
    word attrs[2] = {{0}};
    attr_set(&op_matmul, attrs, "trans_a", trans_a);
    attr_set(&op_matmul, attrs, "trans_b", trans_b);
    kernel_check c = kernel_check_new(&op_matmul, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, a);
    kernel_check_in(&c, WEIR_F32, b);
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_matmul, 1e-5);
    kernel_check_free(&c);
}

Test(matmul, multiplies_matrices_stored_either_way, .timeout = 120)
{
    check_matmul(SHAPE(5, 7), SHAPE(7, 9), false, false);
    check_matmul(SHAPE(7, 5), SHAPE(7, 9), true, false);
    check_matmul(SHAPE(5, 7), SHAPE(9, 7), false, true);
    check_matmul(SHAPE(7, 5), SHAPE(9, 7), true, true);
    check_matmul(SHAPE(0, 7), SHAPE(7, 9), false, false);
    check_matmul(SHAPE(5, 0), SHAPE(0, 9), false, false);
}

Test(matmul, takes_one_b_for_all_batches_or_one_for_each, .timeout = 120)
{
    for (int trans = 0; trans < 4; trans++) {
        weir_shape a = trans & 1 ? SHAPE(2, 3, 7, 5) : SHAPE(2, 3, 5, 7);
        check_matmul(a, trans & 2 ? SHAPE(9, 7) : SHAPE(7, 9), trans & 1, trans & 2);
        check_matmul(a, trans & 2 ? SHAPE(2, 3, 9, 7) : SHAPE(2, 3, 7, 9), trans & 1, trans & 2);
    }
}

/* The shape with its last two dimensions in the other order. */
static weir_shape stored_so(weir_shape shape, bool trans)
{
    const int64_t last_size = shape.dim[shape.rank - 1];
    if (trans) {
        shape.dim[shape.rank - 1] = shape.dim[shape.rank - 2];
        shape.dim[shape.rank - 2] = last_size;
    }
    return shape;
}

Test(matmul, batches_broadcast, .timeout = 120)
{
    const weir_shape pairs[][2] = {
        {SHAPE(2, 1, 5, 7), SHAPE(3, 7, 4)}, {SHAPE(5, 7), SHAPE(3, 7, 4)}, {SHAPE(3, 5, 7), SHAPE(1, 7, 4)},
        {SHAPE(1, 5, 7), SHAPE(2, 3, 7, 4)}, {SHAPE(2, 1, 3, 5, 7), SHAPE(2, 1, 7, 4)}, {SHAPE(3, 5, 7), SHAPE(0, 1, 7, 4)},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int trans = 0; trans < 4; trans++)
            check_matmul(stored_so(pairs[i][0], trans & 1), stored_so(pairs[i][1], trans & 2), trans & 1, trans & 2);
}

Test(matmul, batches_of_halves_broadcast, .timeout = 120)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16};
    word attrs[2] = {{0}};
    kernel_check c[3];
    for (int t = 0; t < 3; t++) {
        c[t] = kernel_check_new(&op_matmul, attrs, SEED);
        kernel_check_in(&c[t], dtypes[t], SHAPE(2, 1, 5, 7));
        kernel_check_in(&c[t], dtypes[t], SHAPE(3, 7, 4));
        run_all_ways(&c[t], 1e-4);
        for (int64_t i = 0; i < 2 * 3 * 5 * 4; i++)
            cr_expect(kernel_near(kernel_at(&c[t].out[0], i), kernel_at(&c[0].out[0], i), 10 * kernel_digit(dtypes[t])), "%ld", (long)i);
    }
    for (int t = 0; t < 3; t++)
        kernel_check_free(&c[t]);
}

Test(matmul, says_which_sizes_differ, .timeout = 120)
{
    word attrs[2] = {{0}};
    weir_type in[2] = {{WEIR_F32, SHAPE(64, 784)}, {WEIR_F32, SHAPE(512, 10)}};
    kernel_check_refuses(&op_matmul, attrs, in, 2, "inner sizes 784 and 512 differ");
    kernel_check_refuses(&op_linear, NULL, in, 2, "inner sizes 784 and 512 differ");
    in[0].shape = SHAPE(3, 64, 784);
    in[1].shape = SHAPE(4, 784, 10);
    kernel_check_refuses(&op_matmul, attrs, in, 2, "batch dimensions of [3, 64, 784] and [4, 784, 10] do not broadcast");
    in[1].dtype = WEIR_I32;
    kernel_check_refuses(&op_matmul, attrs, in, 2, "input 1 is i32, not f32");
}

static void reference_linear(const kernel_check *c, int out, double *want)
{
    const int64_t n = last(&c->out[out]), k = last(&c->in[0]);
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        want[i] = c->in_count > 2 ? kernel_at(&c->in[2], i % n) : 0;
        for (int64_t l = 0; l < k; l++)
            want[i] += kernel_at(&c->in[0], i / n * k + l) * kernel_at(&c->in[1], l * n + i % n);
    }
}

static void check_linear(weir_shape x, int64_t out, bool biased)
{
    kernel_check c = kernel_check_new(&op_linear, NULL, SEED);
    kernel_check_in(&c, WEIR_F32, x);
    kernel_check_in(&c, WEIR_F32, SHAPE(x.dim[x.rank - 1], out));
    if (biased)
        kernel_check_in(&c, WEIR_F32, SHAPE(out));
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_linear, 1e-5);
    kernel_check_free(&c);
}

Test(linear, is_x_w_plus_b, .timeout = 120)
{
    check_linear(SHAPE(5, 7), 9, true);
    check_linear(SHAPE(5, 7), 9, false);
    check_linear(SHAPE(2, 3, 20), 33, true);
    check_linear(SHAPE(0, 7), 9, true);
}

static void reference_linear_dw(const kernel_check *c, int out, double *want)
{
    const int64_t n = last(&c->in[1]), m = last(&c->in[0]);
    (void)out;
    for (int64_t row = 0; row < rows(&c->in[0]); row++)
        for (int64_t i = 0; i < m * n; i++)
            want[i] += kernel_at(&c->in[0], row * m + i / n) * kernel_at(&c->in[1], row * n + i % n);
}

static void reference_columns(const kernel_check *c, int out, double *want)
{
    (void)out;
    for (int64_t i = 0; i < weir_shape_count(&c->in[0].shape); i++)
        want[i % last(&c->in[0])] += kernel_at(&c->in[0], i);
}

Test(linear, its_gradients_sum_over_all_rows, .timeout = 120)
{
    kernel_check c = kernel_check_new(&op_linear_dw, NULL, SEED);
    kernel_check_in(&c, WEIR_F32, SHAPE(3, 5, 7));
    kernel_check_in(&c, WEIR_F32, SHAPE(3, 5, 9));
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_linear_dw, 1e-5);
    kernel_check_free(&c);
    for (int64_t count = 0; count < 10; count++) {
        c = kernel_check_new(&op_linear_db, NULL, SEED);
        kernel_check_in(&c, WEIR_F32, SHAPE(count, 21));
        run_all_ways(&c, 1e-4);
        kernel_check_near(&c, 0, reference_columns, 1e-5);
        kernel_check_free(&c);
    }
}

/* ---- norms ---- */

typedef struct row_stats {
    double mean, rstd;
} row_stats;

static row_stats stats_of(const weir_view *x, int64_t row, bool centred, double eps)
{
    const int64_t count = last(x);
    row_stats stats = {0, 0};
    double square = 0;
    for (int64_t i = 0; i < count && centred; i++)
        stats.mean += kernel_at(x, row * count + i) / (double)count;
    for (int64_t i = 0; i < count; i++)
        square += pow(kernel_at(x, row * count + i) - stats.mean, 2) / (double)count;
    stats.rstd = 1 / sqrt(square + eps);
    return stats;
}

static void reference_norm(const kernel_check *c, int out, double *want)
{
    const bool centred = c->in_count == 3;
    const int64_t count = last(&c->in[0]);
    for (int64_t row = 0; row < rows(&c->in[0]); row++) {
        row_stats stats = stats_of(&c->in[0], row, centred, attr_get(c, "eps"));
        if (out > 0)
            want[row] = out == 1 && centred ? stats.mean : stats.rstd;
        for (int64_t i = 0; i < count && out == 0; i++)
            want[row * count + i] = (kernel_at(&c->in[0], row * count + i) - stats.mean) * stats.rstd *
                                        kernel_at(&c->in[1], i) +
                                    (centred ? kernel_at(&c->in[2], i) : 0);
    }
}

static void check_norm(const weir_op *op, weir_shape x, double shift)
{
    double eps = 1e-5;
    kernel_check c = kernel_check_new(op, &eps, SEED);
    weir_view *view = kernel_check_in(&c, WEIR_F32, x);
    for (int64_t i = 0; i < weir_shape_count(&x); i++)
        ((float *)view->data)[i] += (float)shift;
    for (int i = 1; i < op->in_max; i++)
        kernel_check_in(&c, WEIR_F32, SHAPE(x.dim[x.rank - 1]));
    run_all_ways(&c, 1e-4);
    for (int out = 0; out < op->out_count; out++)
        kernel_check_near(&c, out, reference_norm, 1e-5 * (1 + shift));
    kernel_check_free(&c);
}

Test(layernorm, centres_and_scales_each_row, .timeout = 120)
{
    for (int64_t count = 1; count < 40; count += 3)
        check_norm(&op_layernorm, SHAPE(3, count), 0);
    check_norm(&op_layernorm, SHAPE(2, 3, 384), 0);
    check_norm(&op_layernorm, SHAPE(4101, 8), 0); /* on a GPU a block has two rows */
    check_norm(&op_layernorm, SHAPE(5), 0);
    check_norm(&op_layernorm, SHAPE(0, 8), 0);
}

Test(layernorm, keeps_its_digits_far_from_zero, .timeout = 120)
{
    check_norm(&op_layernorm, SHAPE(4, 100), 100);
}

/* Rows of `factor` times a sample. */
static void check_norm_range(const weir_op *op, int64_t count, double factor, double eps)
{
    kernel_check c = kernel_check_new(op, &eps, SEED);
    weir_view *view = kernel_check_in(&c, WEIR_F32, SHAPE(3, count));
    for (int64_t i = 0; i < 3 * count; i++)
        ((float *)view->data)[i] = (float)(factor * ((float *)view->data)[i]);
    for (int i = 1; i < op->in_max; i++)
        kernel_check_in(&c, WEIR_F32, SHAPE(count));
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_norm, 1e-5);
    kernel_check_free(&c);
}

Test(norm, rows_whose_squares_are_beyond_f32_or_lost_below_it_have_their_norm, .timeout = 120)
{
    static const double factors[] = {1e17, 2e19, 1e30, 3e37};
    for (int64_t count = 4; count < 100; count = 3 * count + 1)
        for (int i = 0; i < 4; i++) {
            check_norm_range(&op_layernorm, count, factors[i], 1e-5);
            check_norm_range(&op_rmsnorm, count, factors[i], 1e-5);
            check_norm_range(&op_layernorm, count, 1 / factors[i], 0);
            check_norm_range(&op_rmsnorm, count, 1 / factors[i], 0);
        }
    kernel_check c = kernel_check_new(&op_layernorm, &(double){1e-5}, SEED);
    memcpy(kernel_check_in(&c, WEIR_F32, SHAPE(1, 4))->data, (float[]){2e19f, 4e19f, 6e19f, -2e19f}, 16);
    for (int i = 0; i < 2; i++)
        memcpy(kernel_check_in(&c, WEIR_F32, SHAPE(4))->data, (float[4]){!i, !i, !i, !i}, 16);
    kernel_check_run(&c);
    cr_expect(fabs(kernel_at(&c.out[0], 3) + 1.5212777) < 1e-5, "%g", kernel_at(&c.out[0], 3));
    kernel_check_free(&c);
}

Test(rmsnorm, scales_each_row, .timeout = 120)
{
    for (int64_t count = 1; count < 40; count += 3)
        check_norm(&op_rmsnorm, SHAPE(3, count), 0);
    check_norm(&op_rmsnorm, SHAPE(2, 3, 384), 0);
}

/* The formulas at the head of norm.c, with mean and rstd of the reference. */
static void reference_norm_grad(const kernel_check *c, int out, double *want)
{
    const bool centred = c->in_count == 5;
    const weir_view *x = &c->in[0], *dy = &c->in[c->in_count - 1];
    const int64_t count = last(x);
    for (int64_t row = 0; row < rows(x); row++) {
        const double mean = centred ? kernel_at(&c->in[2], row) : 0, rstd = kernel_at(&c->in[c->in_count - 2], row);
        double g_sum = 0, gx_sum = 0;
        for (int64_t i = 0; i < count; i++) {
            const double g = kernel_at(dy, row * count + i) * kernel_at(&c->in[1], i);
            g_sum += g;
            gx_sum += g * (kernel_at(x, row * count + i) - mean) * rstd;
        }
        for (int64_t i = 0; i < count; i++) {
            const double d = kernel_at(dy, row * count + i), xhat = (kernel_at(x, row * count + i) - mean) * rstd;
            if (out == 0)
                want[row * count + i] = rstd * (d * kernel_at(&c->in[1], i) - (centred ? g_sum / (double)count : 0) -
                                                xhat * gx_sum / (double)count);
            else
                want[i] += out == 1 ? d * xhat : d;
        }
    }
}

/* x is `factor` times a sample; mean and rstd are of as large a row. */
static void check_norm_grad_of(const weir_op *op, weir_shape x, double factor)
{
    kernel_check c = kernel_check_new(op, NULL, SEED);
    weir_shape row = x;
    row.rank--;
    kernel_check_in(&c, WEIR_F32, x);
    kernel_check_in(&c, WEIR_F32, SHAPE(x.dim[x.rank - 1]));
    for (int i = 2; i + 1 < op->in_max; i++)
        kernel_check_in(&c, WEIR_F32, row);
    for (int i = 0; factor != 1 && i + 1 < op->in_max; i = i ? i + 1 : 2)
        for (int64_t k = 0; k < weir_shape_count(&c.in[i].shape); k++) {
            float *value = (float *)c.in[i].data + k;
            *value = (float)(i == op->in_max - 2 ? 1 / factor : factor * *value);
        }
    kernel_check_in(&c, WEIR_F32, x);
    run_all_ways(&c, 1e-4);
    for (int out = 0; out < op->out_count; out++)
        kernel_check_near(&c, out, reference_norm_grad, 2e-5);
    kernel_check_free(&c);
}

static void check_norm_grad(const weir_op *op, weir_shape x)
{
    check_norm_grad_of(op, x, 1);
}

Test(norm, gradient_of_a_row_whose_products_are_beyond_f32_follows_its_formula, .timeout = 120)
{
    check_norm_grad_of(&op_layernorm_grad, SHAPE(3, 64), 2e37);
    check_norm_grad_of(&op_rmsnorm_grad, SHAPE(3, 64), 2e37);
}

Test(layernorm, gradient_follows_its_formula, .timeout = 120)
{
    check_norm_grad(&op_layernorm_grad, SHAPE(3, 4, 37));
    check_norm_grad(&op_layernorm_grad, SHAPE(9, 64));
    check_norm_grad(&op_layernorm_grad, SHAPE(0, 8));
    check_norm_grad(&op_layernorm_grad, SHAPE(7));
}

Test(rmsnorm, gradient_follows_its_formula, .timeout = 120)
{
    check_norm_grad(&op_rmsnorm_grad, SHAPE(3, 4, 37));
    check_norm_grad(&op_rmsnorm_grad, SHAPE(9, 64));
}

Test(norm, refuses_weights_of_another_size, .timeout = 120)
{
    double eps = 1e-5;
    weir_type in[3] = {{WEIR_F32, SHAPE(4, 8)}, {WEIR_F32, SHAPE(8)}, {WEIR_F32, SHAPE(9)}};
    kernel_check_refuses(&op_layernorm, &eps, in, 3, "bias is not f32 of the size of x's last dimension, 8");
    in[1].shape = SHAPE(7);
    kernel_check_refuses(&op_rmsnorm, &eps, in, 2, "gain is not f32 of the size of x's last dimension, 8");
}

/* ---- embedding ---- */

static void reference_embedding(const kernel_check *c, int out, double *want)
{
    const int64_t dim = last(&c->in[1]);
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = kernel_at(&c->in[1], (int64_t)kernel_at(&c->in[0], i / dim) * dim + i % dim);
}

Test(embedding, picks_rows, .timeout = 120)
{
    kernel_check c = kernel_check_new(&op_embedding, NULL, SEED);
    kernel_check_in(&c, WEIR_I32, SHAPE(3, 5));
    kernel_check_in(&c, WEIR_F32, SHAPE(10, 7));
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_embedding, 0);
    kernel_check_free(&c);
}

static void reference_embedding_grad(const kernel_check *c, int out, double *want)
{
    const int64_t dim = last(&c->in[1]);
    (void)out;
    for (int64_t i = 0; i < weir_shape_count(&c->in[1].shape); i++)
        want[(int64_t)kernel_at(&c->in[0], i / dim) * dim + i % dim] += kernel_at(&c->in[1], i);
}

Test(embedding, gradient_adds_rows, .timeout = 120)
{
    word vocab = {.i = 12};
    kernel_check c = kernel_check_new(&op_embedding_grad, &vocab, SEED);
    kernel_check_in(&c, WEIR_I32, SHAPE(3, 5));
    kernel_check_in(&c, WEIR_F32, SHAPE(3, 5, 7));
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_embedding_grad, 1e-6);
    kernel_check_free(&c);
}

/* Calls a kernel that is expected to fail, and returns what it wrote. */
static const char *failure(const weir_op *op, const void *attrs, const weir_view *in, int in_count,
                           const weir_view *out)
{
    static char error[256];
    static _Alignas(64) double scratch[64];
    error[0] = 0;
    weir_kernel_args args = {.in = in, .in_count = in_count, .out = out, .out_count = op->out_count, .attrs = attrs};
    args.error = error;
    args.error_bytes = sizeof error;
    args.workspace = scratch;
    args.workspace_bytes = sizeof scratch;
    cr_assert_eq(kernel_check_kernel(op)(&args), WEIR_E_KERNEL);
    return error;
}

Test(embedding, names_the_id_that_is_not_in_the_table, .timeout = 120)
{
    int32_t ids[] = {0, 1, 2, 3, 50257, 5};
    float table[32] = {0}, y[24];
    weir_view in[2] = {{ids, WEIR_I32, SHAPE(2, 3), {4, 0}, SHAPE(8, 3), NULL},
                       {table, WEIR_F32, SHAPE(8, 4), {8, 0}, SHAPE(16, 4), NULL}};
    weir_view out = {y, WEIR_F32, SHAPE(2, 3, 4), {4, 0, 0}, SHAPE(8, 3, 4), NULL};
    cr_assert_str_eq(failure(&op_embedding, NULL, in, 2, &out), "id 50257 at [5, 1] is not in 0..15");
    ids[4] = -1;
    cr_assert_str_eq(failure(&op_embedding, NULL, in, 2, &out), "id -1 at [5, 1] is not in 0..15");
}

/* ---- losses ---- */

static bool row_counts(const kernel_check *c, int64_t row)
{
    return attr_get(c, "ignore") == 0 || kernel_at(&c->in[1], row) != attr_get(c, "ignore_index");
}

static double row_lse(const weir_view *x, int64_t row)
{
    double most = -INFINITY, total = 0;
    for (int64_t i = 0; i < last(x); i++)
        most = fmax(most, kernel_at(x, row * last(x) + i));
    for (int64_t i = 0; i < last(x); i++)
        total += exp(kernel_at(x, row * last(x) + i) - most);
    return most + log(total);
}

static double rows_counted(const kernel_check *c)
{
    double counted = 0;
    for (int64_t row = 0; row < rows(&c->in[0]); row++)
        counted += row_counts(c, row);
    return counted > 1 ? counted : 1;
}

static void reference_cross_entropy(const kernel_check *c, int out, double *want)
{
    const int64_t classes = last(&c->in[0]);
    for (int64_t row = 0; row < rows(&c->in[0]); row++) {
        double lse = row_lse(&c->in[0], row);
        if (out == 1)
            want[row] = lse;
        else if (row_counts(c, row))
            want[0] += (lse - kernel_at(&c->in[0], row * classes + (int64_t)kernel_at(&c->in[1], row))) /
                       rows_counted(c);
    }
}

static void reference_cross_entropy_grad(const kernel_check *c, int out, double *want)
{
    const int64_t classes = last(&c->in[0]);
    (void)out;
    for (int64_t i = 0; i < weir_shape_count(&c->in[0].shape); i++) {
        double p = exp(kernel_at(&c->in[0], i) - row_lse(&c->in[0], i / classes));
        if (row_counts(c, i / classes))
            want[i] = (p - (kernel_at(&c->in[1], i / classes) == (double)(i % classes))) * kernel_at(&c->in[3], 0) /
                      rows_counted(c);
    }
}

/* The count is what label_count would have said. */
static void add_count(kernel_check *c)
{
    weir_view *count = kernel_check_in(c, WEIR_F32, SHAPE());
    *(float *)count->data = 0;
    for (int64_t row = 0; row < rows(&c->in[0]); row++)
        *(float *)count->data += row_counts(c, row);
}

static void check_cross_entropy(weir_shape labels, int64_t classes, double ignore_index)
{
    word attrs[2] = {{ignore_index >= 0}, {(int64_t)ignore_index}};
    weir_shape logits = labels;
    logits.dim[logits.rank++] = classes;
    kernel_check c = kernel_check_new(&op_cross_entropy, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, logits);
    kernel_check_in(&c, WEIR_I32, labels);
    if (attrs[0].i)
        add_count(&c);
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_cross_entropy, 1e-5);
    kernel_check_near(&c, 1, reference_cross_entropy, 1e-5);
    kernel_check_free(&c);

    c = kernel_check_new(&op_cross_entropy_grad, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, logits);
    kernel_check_in(&c, WEIR_I32, labels);
    weir_view *lse = kernel_check_in(&c, WEIR_F32, labels);
    for (int64_t row = 0; row < rows(&c.in[0]); row++)
        ((float *)lse->data)[row] = (float)row_lse(&c.in[0], row);
    kernel_check_in(&c, WEIR_F32, SHAPE());
    if (attrs[0].i)
        add_count(&c);
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_cross_entropy_grad, 1e-5);
    kernel_check_free(&c);
}

Test(cross_entropy, is_the_mean_over_rows_with_its_gradient, .timeout = 120)
{
    check_cross_entropy(SHAPE(6), 10, -1);
    check_cross_entropy(SHAPE(3, 4), 37, -1);
    check_cross_entropy(SHAPE(), 16, -1);
}

Test(cross_entropy, leaves_out_ignored_rows, .timeout = 120)
{
    check_cross_entropy(SHAPE(30), 10, 3);
    check_cross_entropy(SHAPE(4, 9), 50, 0);
}

Test(cross_entropy, is_zero_when_all_rows_are_ignored, .timeout = 120)
{
    word attrs[2] = {{1}, {-100}};
    int32_t labels[] = {-100, -100};
    float logits[] = {1, 2, 3, 4, 5, 6}, count = 7, loss = 7, lse[2];
    weir_view in[3] = {{.data = logits, .dtype = WEIR_F32, .shape = SHAPE(2, 3), .global = SHAPE(2, 3)},
                       {.data = labels, .dtype = WEIR_I32, .shape = SHAPE(2), .global = SHAPE(2)},
                       {.data = &count, .dtype = WEIR_F32}};
    weir_view out[2] = {{.data = &loss, .dtype = WEIR_F32}, {.data = lse, .dtype = WEIR_F32, .shape = SHAPE(2)}};
    weir_kernel_args args = {.in = &in[1], .in_count = 1, .out = &in[2], .out_count = 1, .attrs = attrs};
    cr_assert_eq(op_label_count.kernel[WEIR_CPU](&args), WEIR_OK);
    cr_assert_eq(count, 0);
    args = (weir_kernel_args){.in = in, .in_count = 3, .out = out, .out_count = 2, .attrs = attrs};
    cr_assert_eq(op_cross_entropy.kernel[WEIR_CPU](&args), WEIR_OK);
    cr_assert_eq(loss, 0);
}

Test(cross_entropy, names_the_label_that_is_no_class, .timeout = 120)
{
    word attrs[2] = {{0}};
    int32_t labels[] = {2, 3};
    float logits[6] = {0}, loss, lse[2];
    weir_view in[2] = {{logits, WEIR_F32, SHAPE(2, 3), {2, 0}, SHAPE(4, 3), NULL},
                       {labels, WEIR_I32, SHAPE(2), {2}, SHAPE(4), NULL}};
    weir_view out[2] = {{.data = &loss, .dtype = WEIR_F32},
                        {.data = lse, .dtype = WEIR_F32, .shape = SHAPE(2), .global = SHAPE(4)}};
    cr_assert_str_eq(failure(&op_cross_entropy, attrs, in, 2, out), "label 3 of row [3] is not in 0..2");
}
