/* test_half_products.c: products of f16 and bf16, held against sums in double, and once more with AMX: the processor's, or
 * one that is played (amx_machine.h).
 */
#include "kernels/matmul/amx.h"
#include "kernels/matmul/half.h"
#include "tests/support/amx_machine.h"
#include "tests/support/kernel_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED 20261122

/* ---- products ---- */

typedef struct product_case {
    half_product p;
    weir_view a, b, c, old, bias, workspace;
} product_case;

static weir_view row_of_values(weir_dtype dtype, int64_t count, uint64_t *random)
{
    weir_view view = kernel_view_new((weir_type){dtype, SHAPE(count)}, 0);
    for (int64_t i = 0; i < count; i++)
        kernel_set(&view, i, kernel_random_normal(random));
    return view;
}

/* Sizes, transpositions and dtypes are in p; rows have `gap` elements between them. */
static product_case product_new(half_product p, bool biased, int64_t gap, uint64_t *random)
{
    product_case at = {.p = p};
    at.p.lda = (p.trans_a ? p.m : p.k) + gap;
    at.p.ldb = (p.trans_b ? p.k : p.n) + gap;
    at.p.ldc = p.n + gap;
    const int64_t a = (p.trans_a ? p.k : p.m), b = (p.trans_b ? p.n : p.k);
    at.a = row_of_values(p.dtype, a ? a * at.p.lda - gap : 0, random); /* nothing lies behind the last row */
    at.b = row_of_values(p.dtype, b ? b * at.p.ldb - gap : 0, random);
    at.c = row_of_values(p.c_dtype, p.m ? p.m * at.p.ldc - gap : 0, random);
    at.old = kernel_view_new((weir_type){p.c_dtype, at.c.shape}, 0);
    memcpy(at.old.data, at.c.data, (size_t)weir_shape_count(&at.c.shape) * weir_dtype_bytes(p.c_dtype));
    at.bias = row_of_values(WEIR_F32, p.n, random);
    at.workspace = kernel_view_new((weir_type){WEIR_U8, SHAPE((int64_t)gemm_half_workspace(p.n, p.k))}, KERNEL_GARBAGE);
    at.p.a = at.a.data;
    at.p.b = at.b.data;
    at.p.c = at.c.data;
    at.p.bias = biased ? at.bias.data : NULL;
    at.p.workspace = at.workspace.data;
    return at;
}

static void product_free(product_case *at)
{
    weir_view *all[] = {&at->a, &at->b, &at->c, &at->old, &at->bias, &at->workspace};
    for (int i = 0; i < 6; i++)
        kernel_view_free(all[i]);
}

static double wanted(const product_case *at, int64_t i, int64_t j)
{
    const half_product *p = &at->p;
    double sum = 0, alpha = p->alpha == 0 ? 1 : p->alpha;
    for (int64_t l = 0; l < p->k; l++)
        sum += kernel_at(&at->a, p->trans_a ? l * p->lda + i : i * p->lda + l) *
               kernel_at(&at->b, p->trans_b ? j * p->ldb + l : l * p->ldb + j);
    return alpha * sum + (p->bias ? kernel_at(&at->bias, j) : 0) + (p->add ? kernel_at(&at->old, i * p->ldc + j) : 0);
}

static void product_check(const product_case *at)
{
    const half_product *p = &at->p;
    /* f32 sums of k terms of about 1, and one rounding to C's digits */
    const double tolerance = 1e-6 * (4 + sqrt((double)p->k)) + kernel_digit(p->c_dtype);
    for (int64_t i = 0; i < weir_shape_count(&at->c.shape); i++) {
        const int64_t row = i / p->ldc, column = i % p->ldc;
        const double got = kernel_at(&at->c, i);
        const double want = column < p->n ? wanted(at, row, column) : kernel_at(&at->old, i);
        cr_assert(column < p->n ? kernel_near(got, want, tolerance) : got == want,
                  "%s %d%d %ldx%ldx%ld to %s: %.9g at %ld, %ld, not %.9g", weir_dtype_name(p->dtype), p->trans_a,
                  p->trans_b, (long)p->m, (long)p->n, (long)p->k, weir_dtype_name(p->c_dtype), got, (long)row,
                  (long)column, want);
    }
}

static void check_product(half_product p, bool biased, int64_t gap, uint64_t *random)
{
    product_case at = product_new(p, biased, gap, random);
    gemm_half(&at.p);
    product_check(&at);
    product_free(&at);
}

static void check_sizes(int64_t m, int64_t n, int64_t k, uint64_t *random)
{
    for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++)
        for (int trans = 0; trans < 4; trans++) {
            half_product p = {.trans_a = trans & 1, .trans_b = trans & 2, .m = m, .n = n, .k = k,
                              .dtype = (weir_dtype)dtype, .c_dtype = (weir_dtype)dtype};
            check_product(p, true, 0, random);
            p.c_dtype = WEIR_F32;
            p.alpha = 0.25f;
            check_product(p, false, 3, random);
            p.add = true;
            check_product(p, false, 1, random);
        }
}

Test(half, products_are_sums_in_f32_for_every_transposition_and_size, .timeout = 120)
{
    const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {0, 4, 4}, {4, 0, 4}, {4, 4, 0}, {0, 0, 0}, {1, 64, 64},
                                {64, 1, 64}, {64, 64, 1}, {17, 33, 65}, {64, 64, 64}, {7, 96, 48}, {31, 16, 1},
                                {5, 47, 301}, {13, 65, 32}};
    uint64_t random = SEED;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        check_sizes(sizes[s][0], sizes[s][1], sizes[s][2], &random);
}

Test(half, products_are_whole_where_blocks_meet, .timeout = 120)
{
    uint64_t random = SEED;
    check_sizes(197, 70, 66, &random);
    check_sizes(9, 780, 35, &random);
    check_sizes(100, 400, 17, &random);
}

/* Infinities, NaN and what is below the smallest normal number too: bits, not values, are compared. */
Test(half, a_result_is_the_sum_in_f32_rounded_once)
{
    uint64_t random = SEED;
    const float alphas[] = {1, 1e-38f, 3e-39f, 1e-41f, 3e38f};
    for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++)
        for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
            half_product p = {.m = 9, .n = 70, .k = 12, .alpha = alphas[i], .dtype = (weir_dtype)dtype,
                              .c_dtype = (weir_dtype)dtype};
            product_case at = product_new(p, false, 0, &random);
            weir_view sums = kernel_view_new((weir_type){WEIR_F32, at.c.shape}, KERNEL_GARBAGE);
            kernel_set(&at.a, 3, NAN);
            gemm_half(&at.p);
            p = at.p;
            p.c = sums.data;
            p.c_dtype = WEIR_F32;
            gemm_half(&p);
            for (int64_t e = 0; e < 9 * 70; e++) {
                uint16_t want;
                weir_from_f32((const float *)sums.data + e, 1, (weir_dtype)dtype, &want);
                cr_assert_eq(((const uint16_t *)at.c.data)[e], want, "%.9g", kernel_at(&sums, e));
            }
            kernel_view_free(&sums);
            product_free(&at);
        }
}

/* Rows [from, from + count) of A alone. */
static void expect_same_rows(const product_case *whole, int64_t from, int64_t count)
{
    half_product p = whole->p;
    weir_view c = kernel_view_new((weir_type){p.c_dtype, SHAPE(count * p.ldc)}, 0);
    p.a += p.trans_a ? from : from * p.lda;
    p.m = count;
    p.c = c.data;
    gemm_half(&p);
    for (int64_t i = 0; i < count; i++)
        cr_assert_eq(memcmp((char *)c.data + (size_t)(i * p.ldc) * weir_dtype_bytes(p.c_dtype),
                            (char *)whole->c.data + (size_t)((from + i) * p.ldc) * weir_dtype_bytes(p.c_dtype),
                            (size_t)p.n * weir_dtype_bytes(p.c_dtype)),
                     0, "row %ld of %ld differs", (long)(from + i), (long)whole->p.m);
    kernel_view_free(&c);
}

static void check_rows_apart(void)
{
    uint64_t random = SEED;
    for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++)
        for (int trans = 0; trans < 4; trans++) {
            half_product p = {.trans_a = trans & 1, .trans_b = trans & 2, .m = 130, .n = 100, .k = 77,
                              .dtype = (weir_dtype)dtype, .c_dtype = trans & 1 ? WEIR_F32 : (weir_dtype)dtype};
            product_case at = product_new(p, true, 0, &random);
            gemm_half(&at.p);
            expect_same_rows(&at, 0, 1);
            expect_same_rows(&at, 129, 1);
            expect_same_rows(&at, 5, 64);
            expect_same_rows(&at, 64, 66);
            product_free(&at);
        }
}

Test(half, a_row_has_the_same_bits_however_rows_are_split, .timeout = 60)
{
    check_rows_apart();
}

/* Elements of a factor that are none of the product's become NaN: `lines` lines of `terms` terms are. */
static void spoil(const weir_view *view, int64_t row, bool across, int64_t lines, int64_t terms)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++)
        if ((across ? i % row : i / row) >= lines || (across ? i / row : i % row) >= terms)
            kernel_set(view, i, NAN);
}

/* The first k of k + 1 terms, with more rows and columns beside them. */
static void check_beside(weir_dtype dtype, int trans, int64_t k, uint64_t *random)
{
    const half_product p = {.trans_a = trans & 1, .trans_b = trans & 2, .m = 37, .n = 37, .k = k + 1, .dtype = dtype,
                            .c_dtype = WEIR_F32};
    product_case at = product_new(p, false, 5, random);
    spoil(&at.a, at.p.lda, p.trans_a, p.m, k);
    spoil(&at.b, at.p.ldb, !p.trans_b, p.n, k);
    at.p.k = k;
    gemm_half(&at.p);
    product_check(&at);
    product_free(&at);
}

static void check_beside_all(void)
{
    uint64_t random = SEED;
    for (int dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++)
        for (int trans = 0; trans < 4; trans++)
            for (int64_t k = 30; k <= 34; k++)
                check_beside((weir_dtype)dtype, trans, k, &random);
}

Test(half, what_lies_beside_the_factors_is_in_no_sum)
{
    check_beside_all();
}
/* ---- AMX ---- */

Test(half_amx, is_used_where_the_processor_has_it_and_what_it_computes_is_right)
{
    static char text[1 << 16];
    FILE *file = fopen("/proc/cpuinfo", "r");
    cr_assert(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cr_assert(!amx_usable() || strstr(text, " amx_bf16"));
    amx_machine_enter();
    cr_assert(amx_is_right());
    amx_machine_leave();
}

Test(half_amx, is_not_trusted_where_it_computes_something_else)
{
    if (amx_usable())
        cr_skip_test("this processor has AMX");
    for (amx_machine kind = AMX_MACHINE_BROKEN_PAIRS; kind <= AMX_MACHINE_BROKEN_BYTES; kind++) {
        amx_machine_start(kind);
        const bool right = amx_is_right();
        cr_expect_gt(amx_machine_stop(), 0);
        cr_expect(!right);
    }
}

/* Rows and columns around 16 and 32, pairs around 16: every shape of tile there is. */
Test(half_amx, products_are_sums_in_f32_for_every_transposition_and_size, .timeout = 120)
{
    const int64_t sizes[][3] = {{1, 1, 1}, {0, 4, 4}, {4, 0, 4}, {4, 4, 0}, {3, 5, 7}, {16, 16, 32}, {15, 17, 31},
                                {17, 15, 33}, {32, 32, 64}, {31, 33, 63}, {33, 31, 65}, {32, 48, 30}, {48, 64, 96},
                                {64, 64, 1}, {97, 65, 34}, {130, 130, 50}};
    uint64_t random = SEED;
    amx_machine_enter();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        check_sizes(sizes[s][0], sizes[s][1], sizes[s][2], &random);
    check_sizes(9, 400, 35, &random);
    amx_machine_leave();
}

Test(half_amx, what_lies_beside_the_factors_is_in_no_sum)
{
    amx_machine_enter();
    check_beside_all();
    amx_machine_leave();
}

Test(half_amx, a_row_has_the_same_bits_however_rows_are_split, .timeout = 60)
{
    amx_machine_enter();
    check_rows_apart();
    amx_machine_leave();
}

/* NaN and infinity reach the sums of their own row and column, and no other; tails of zeros hide none. */
Test(half_amx, infinities_stay_in_their_row_and_column)
{
    uint64_t random = SEED;
    const half_product p = {.m = 33, .n = 33, .k = 37, .dtype = WEIR_BF16, .c_dtype = WEIR_F32};
    product_case at = product_new(p, false, 0, &random);
    amx_machine_enter();
    kernel_set(&at.a, 32 * at.p.lda + 36, INFINITY);
    kernel_set(&at.b, 36 * at.p.ldb + 32, NAN);
    gemm_half(&at.p);
    for (int64_t i = 0; i < 33 * 33; i++) {
        const double got = kernel_at(&at.c, i);
        cr_assert(i % 33 == 32 ? isnan(got) : i / 33 == 32 ? isinf(got) : isfinite(got));
    }
    amx_machine_leave();
    product_free(&at);
}

static void *multiply_often(void *arg)
{
    product_case *at = arg;
    for (int i = 0; i < 20; i++)
        gemm_half(&at->p);
    return NULL;
}

Test(half_amx, threads_have_tiles_of_their_own, .timeout = 60)
{
    uint64_t random = SEED;
    const half_product p[2] = {{.m = 33, .n = 40, .k = 50, .dtype = WEIR_BF16, .c_dtype = WEIR_F32},
                               {.m = 20, .n = 64, .k = 90, .dtype = WEIR_BF16, .c_dtype = WEIR_BF16, .trans_a = true}};
    product_case at[2] = {product_new(p[0], true, 0, &random), product_new(p[1], false, 1, &random)};
    pthread_t thread[2];
    amx_machine_enter();
    for (int t = 0; t < 2; t++)
        cr_assert(!pthread_create(&thread[t], NULL, multiply_often, &at[t]));
    for (int t = 0; t < 2; t++)
        pthread_join(thread[t], NULL);
    amx_machine_leave();
    for (int t = 0; t < 2; t++) {
        product_check(&at[t]);
        product_free(&at[t]);
    }
}

/* Multiplies with registers that are not set up. */
static void multiply_unprepared(void)
{
    amx_tiles set_up_before = {.rows = 16, .words = 16};
    const uint32_t pairs[16 * 16] = {0};
    float sums[16 * 16];
    amx_machine_start(AMX_MACHINE_RIGHT);
    amx_sums(&set_up_before, &(amx_factors){(const char *)pairs, 64, pairs, 16, 16}, 16, 1, sums, 16);
    _exit(0);
}

Test(half_amx, the_played_machine_refuses_what_a_processor_refuses)
{
    int status = 0;
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        multiply_unprepared();
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status));
    cr_assert_eq(WTERMSIG(status), SIGILL);
}
