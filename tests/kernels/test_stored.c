/* test_stored.c: products and embeddings of weights that are read as they are stored, against plain sums in double, with the same
 * rounding of x and without; whether a row's bits depend on anything but the row; and where the kernels read.
 *
 * A portable build runs it on the kernels of the level that WEIR_CPU_LEVEL names. */
#define _GNU_SOURCE
#include "kernels/common/ops.h"
#include "kernels/matmul/amx.h"
#include "kernels/stored/stored.h"
#include "tests/support/amx_machine.h"
#include "tests/support/blocks.h"
#include "tests/support/gradient_check.h"
#include "tests/support/op_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/weir.h>

TestSuite(stored, .timeout = 300);

enum { SEED = 4711 };

/* All formats: of blocks, and dense ones by their dtype. */
static const struct stored {
    weir_format format;
    weir_dtype dtype;
    const char *name;
} all[] = {
    {WEIR_Q4_0, 0, "Q4_0"}, {WEIR_Q4_1, 0, "Q4_1"}, {WEIR_Q5_0, 0, "Q5_0"}, {WEIR_Q5_1, 0, "Q5_1"},
    {WEIR_Q8_0, 0, "Q8_0"}, {WEIR_Q4_K, 0, "Q4_K"}, {WEIR_Q6_K, 0, "Q6_K"},
    {WEIR_DENSE, WEIR_F32, "f32"}, {WEIR_DENSE, WEIR_F16, "f16"}, {WEIR_DENSE, WEIR_BF16, "bf16"},
};
enum { ALL = sizeof all / sizeof *all, BLOCKED = 7 };

static int64_t unit_of(const struct stored *s)
{
    const block_format *is = block_format_of(s->format);
    return is ? is->elements : 1;
}

static kernel_check product_check(const weir_op *op, const struct stored_attrs *attrs, const struct stored *s, weir_shape x, int64_t out,
                                  int64_t in)
{
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, op == &op_embedding_stored ? WEIR_I32 : WEIR_F32, x);
    const weir_type w = blocks_type(s->format, s->dtype, out, in);
    const weir_view *view = kernel_check_in(&c, w.dtype, w.shape);
    if (s->format)
        blocks_fill(s->format, w.shape.dim[0] * w.shape.dim[1], view->data, &c.random);
    return c;
}

/* ---- x as the op rounds it ---- */

static void round_to_bytes(const float *x, int64_t in, double *to)
{
    for (int64_t b = 0; b < in; b += 32) {
        float most = 0;
        for (int i = 0; i < 32; i++)
            most = fabsf(x[b + i]) > most ? fabsf(x[b + i]) : most;
        const float by = most >= 1e-30f ? 127 / most : 0, scale = most >= 1e-30f ? most / 127 : 0;
        for (int i = 0; i < 32; i++) {
            const float scaled = x[b + i] * by;
            to[b + i] = (double)scale * nearbyint((double)scaled);
        }
    }
}

static void round_row(const struct stored *s, bool exact, const float *x, int64_t in, double *to)
{
    if (s->format && !exact)
        round_to_bytes(x, in, to);
    else
        for (int64_t i = 0; i < in; i++)
            to[i] = exact ? (double)x[i] : kernel_round(s->dtype, (double)x[i]);
}

/* ---- against double ---- */

/* Sums of f32 are as exact as the sum of the sizes of their terms allows. */
static void expect_near(const kernel_check *c, const struct stored *s, int64_t at, double want, double size)
{
    const double got = kernel_at(&c->out[0], at);
    cr_assert(fabs(got - want) <= 2e-6 * size + 1e-30, "%s of %s, element %d: %.9g and not %.9g, of terms of %.3g", c->op->name, s->name,
              (int)at, got, want, size);
}

static void check_product(const struct stored *s, bool exact, int64_t rows, int64_t out, int64_t in)
{
    const struct stored_attrs attrs = {s->format, exact};
    kernel_check c = product_check(&op_linear_stored, &attrs, s, SHAPE(rows, in), out, in);
    double *x = malloc((size_t)(in + 1) * sizeof *x);
    float *w = malloc((size_t)(in + 1) * sizeof *w);
    kernel_check_run(&c);
    for (int64_t r = 0; r < rows; r++) {
        round_row(s, exact, (float *)c.in[0].data + r * in, in, x);
        for (int64_t o = 0; o < out; o++) {
            double sum = 0, size = 0;
            blocks_row(s->format, &c.in[1], o, in, w);
            for (int64_t i = 0; i < in; i++) {
                sum += x[i] * (double)w[i];
                size += fabs(x[i] * (double)w[i]);
            }
            expect_near(&c, s, r * out + o, sum, size);
        }
    }
    free(x);
    free(w);
    kernel_check_free(&c);
}

static void check_products(bool exact)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 19, 131, 0}, out[] = {1, 16, 7, 33, 48, 70, 32, 17, 5}, in[] = {1, 2, 3, 5, 18, 7, 1, 2, 4};
    for (int i = 0; i < ALL; i++)
        for (size_t k = 0; k < sizeof in / sizeof *in; k++)
            check_product(&all[i], exact, rows[k], out[k], unit_of(&all[i]) == 1 ? 13 * in[k] + 3 : unit_of(&all[i]) * in[k]);
}

Test(stored, a_product_is_that_of_x_rounded_as_the_header_says)
{
    check_products(false);
}

Test(stored, a_product_with_f32_activations_rounds_nothing)
{
    check_products(true);
}

/* Longer than what is unpacked at once. */
Test(stored, a_product_may_have_long_rows)
{
    for (int i = 0; i < ALL; i++)
        for (int exact = 0; exact < 2; exact++)
            check_product(&all[i], exact, 3, 19, 4608);
    check_product(&all[0], false, 3, 0, 64);
    check_product(&all[0], true, 3, 5, 0);
    check_product(&all[7], true, 3, 5, 0);
}

/* By default dy and weights of blocks and bf16 are rounded to bf16; on other devices than CPUs nothing is. */
static double back_factor(const struct stored *s, bool exact, float x)
{
    const bool rounds = !exact && (s->format || s->dtype == WEIR_BF16) && kernel_check_kind() == WEIR_CPU;
    return rounds ? kernel_round(WEIR_BF16, (double)x) : (double)x;
}

static void check_back(const struct stored *s, bool exact, int64_t rows, int64_t out, int64_t in)
{
    const struct stored_attrs attrs = {s->format, exact};
    kernel_check c = product_check(&op_linear_stored_dx, &attrs, s, SHAPE(rows, out), out, in);
    float *w = malloc((size_t)(in * out + 1) * sizeof *w);
    const float *dy = c.in[0].data;
    kernel_check_run(&c);
    for (int64_t o = 0; o < out; o++)
        blocks_row(s->format, &c.in[1], o, in, w + o * in);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0, size = 0;
            for (int64_t o = 0; o < out; o++) {
                const double term = back_factor(s, exact, dy[r * out + o]) * back_factor(s, exact, w[o * in + i]);
                sum += term;
                size += fabs(term);
            }
            expect_near(&c, s, r * in + i, sum, size);
        }
    free(w);
    kernel_check_free(&c);
}

Test(stored, the_gradient_of_x_is_dy_times_the_weight)
{
    for (int i = 0; i < ALL; i++)
        for (int exact = 0; exact < 2; exact++) {
            check_back(&all[i], exact, 1, 1, unit_of(&all[i]));
            check_back(&all[i], exact, 5, 70, 3 * unit_of(&all[i]));
            check_back(&all[i], exact, 9, 530, 2 * unit_of(&all[i]));
            check_back(&all[i], exact, 3, 0, unit_of(&all[i]));
        }
}

Test(stored, an_embedding_has_the_elements_of_its_rows)
{
    enum { VOCAB = 11 };
    for (int k = 0; k < ALL; k++) {
        const int64_t in = 3 * unit_of(&all[k]);
        const struct stored_attrs attrs = {all[k].format, false};
        kernel_check c = product_check(&op_embedding_stored, &attrs, &all[k], SHAPE(2, 7), VOCAB, in);
        float *w = malloc((size_t)in * sizeof *w);
        kernel_check_run(&c);
        for (int n = 0; n < 14; n++) {
            blocks_row(all[k].format, &c.in[1], ((int32_t *)c.in[0].data)[n], in, w);
            cr_expect_arr_eq((float *)c.out[0].data + n * in, w, (size_t)in * sizeof *w, "%s", all[k].name);
        }
        free(w);
        kernel_check_free(&c);
    }
}

/* ---- bits ---- */

/* Rows [row, row + rows) of x times rows [first, first + count) of w: the bits that the whole product has. */
static void expect_part(const kernel_check *whole, const struct stored *s, int64_t row, int64_t rows, int64_t first, int64_t count)
{
    const int64_t in = whole->in[0].shape.dim[1], out = whole->in[1].shape.dim[0];
    kernel_check part = kernel_check_new(whole->op, whole->attrs, SEED);
    weir_shape shape = whole->in[1].shape;
    const int64_t row_bytes = weir_shape_count(&shape) / out * (int64_t)weir_dtype_bytes(whole->in[1].dtype);
    shape.dim[0] = count;
    memcpy(kernel_check_in(&part, WEIR_F32, SHAPE(rows, in))->data, (float *)whole->in[0].data + row * in,
           (size_t)(rows * in) * sizeof(float));
    memcpy(kernel_check_in(&part, whole->in[1].dtype, shape)->data, (char *)whole->in[1].data + first * row_bytes,
           (size_t)(count * row_bytes));
    kernel_check_run(&part);
    for (int64_t r = 0; r < rows; r++)
        cr_assert_arr_eq((float *)part.out[0].data + r * count, (float *)whole->out[0].data + (row + r) * out + first,
                         (size_t)count * sizeof(float), "%s: row %d of %d, outputs %d to %d of %d elements", s->name, (int)r, (int)rows,
                         (int)first, (int)(first + count - 1), (int)in);
    kernel_check_free(&part);
}

static void check_bits(const struct stored *s, bool exact, int64_t in)
{
    enum { ROWS = 21, OUT = 75 };
    const struct stored_attrs attrs = {s->format, exact};
    kernel_check whole = product_check(&op_linear_stored, &attrs, s, SHAPE(ROWS, in), OUT, in);
    kernel_check_run(&whole);
    for (int64_t row = 0; row < ROWS; row += 4) {
        expect_part(&whole, s, row, 1, 0, OUT);
        expect_part(&whole, s, row, 1, 38, OUT - 38);
        expect_part(&whole, s, row, 1, row, 1 + row);
        expect_part(&whole, s, 0, 1 + row, row, OUT - row);
    }
    kernel_check_free(&whole);
}

Test(stored, the_bits_of_a_row_depend_on_the_row_alone)
{
    for (int i = 0; i < ALL; i++)
        for (int exact = 0; exact < 2; exact++)
            check_bits(&all[i], exact, unit_of(&all[i]) == 1 ? 611 : unit_of(&all[i]) == 32 ? 2272 : 2304);
}

/* AMX's own tiles, or those of tests/support/amx_machine.h. */
Test(stored, a_product_of_bf16_by_amx_is_the_same_but_for_rounding)
{
    const struct stored bf16 = all[ALL - 1];
    if (kernel_check_kind() != WEIR_CPU)
        cr_skip_test("another kind of device");
    amx_machine_enter();
    check_product(&bf16, false, 1, 70, 37);
    check_product(&bf16, false, 40, 131, 96);
    for (int64_t in = 606; in < 612; in++)
        check_bits(&bf16, false, in);
    amx_machine_leave();
}

static void check_layouts(const weir_op *op, const struct stored *s, bool exact, weir_shape x, int64_t out, int64_t in, double tolerance)
{
    const struct stored_attrs attrs = {s->format, exact};
    kernel_check c = product_check(op, &attrs, s, x, out, in);
    kernel_check_run(&c);
    cr_expect_geq(shard_check(&c, 2, tolerance), 2);
    shard_check(&c, 3, tolerance);
    kernel_check_free(&c);
}

/* Of blocks; a weight of `out` outputs and `in` elements. */
static void expect_same_by_amx(const struct stored *s, int64_t rows, int64_t out, int64_t in)
{
    const struct stored_attrs attrs = {s->format, false};
    kernel_check without = product_check(&op_linear_stored, &attrs, s, SHAPE(rows, in), out, in);
    kernel_check with = product_check(&op_linear_stored, &attrs, s, SHAPE(rows, in), out, in);
    amx_pretend(false);
    kernel_check_run(&without);
    amx_pretend(true);
    kernel_check_run(&with);
    cr_assert_arr_eq(with.out[0].data, without.out[0].data, (size_t)(rows * out) * sizeof(float), "%s: %d rows, %d outputs, %d elements",
                     s->name, (int)rows, (int)out, (int)in);
    kernel_check_free(&without);
    kernel_check_free(&with);
}

/* Sums of integers are exact, and the steps after them are the same. Every number of rows that tiles of 16 and the rest can have. */
Test(stored, a_product_of_blocks_by_amx_has_the_same_bits)
{
    amx_machine_enter();
    for (int i = 0; i < BLOCKED; i++) {
        const int64_t block = unit_of(&all[i]);
        for (int64_t rows = 1; rows <= 40; rows++)
            expect_same_by_amx(&all[i], rows, 1 + rows * 13 % 70, block == 32 ? 288 : 512);
        expect_same_by_amx(&all[i], 150, 33, block);
        expect_same_by_amx(&all[i], 19, 75, block == 32 ? 2272 : 2304);
    }
    amx_machine_leave();
}

/* The test above sees one row that is wrong. */
Test(stored, a_broken_tile_shows_in_a_product_of_blocks)
{
    enum { ROWS = 16, OUT = 5 };
    const struct stored_attrs attrs = {all[0].format, false};
    if (kernel_check_kind() != WEIR_CPU || amx_usable())
        cr_skip_test("not a CPU without AMX");
    kernel_check right = product_check(&op_linear_stored, &attrs, &all[0], SHAPE(ROWS, 64), OUT, 64);
    kernel_check wrong = product_check(&op_linear_stored, &attrs, &all[0], SHAPE(ROWS, 64), OUT, 64);
    kernel_check_run(&right);
    amx_machine_start(AMX_MACHINE_BROKEN_BYTES);
    amx_pretend(true);
    kernel_check_run(&wrong);
    amx_pretend(false);
    cr_assert_gt(amx_machine_stop(), 0);
    for (int n = 0; n < ROWS * OUT; n++)
        cr_expect_eq(kernel_at(&right.out[0], n) == kernel_at(&wrong.out[0], n), n / OUT < ROWS - 1, "row %d", n / OUT);
    kernel_check_free(&right);
    kernel_check_free(&wrong);
}

/* Rows of a shard are those of the whole, and the number of rows decides which of them AMX multiplies. */
Test(stored, shards_together_are_the_whole_with_amx, .timeout = 120)
{
    amx_machine_enter();
    for (int i = 0; i < BLOCKED; i++)
        check_layouts(&op_linear_stored, &all[i], false, SHAPE(2, 11, unit_of(&all[i])), 19, unit_of(&all[i]), 0);
    amx_machine_leave();
}

static size_t weight_bytes(const kernel_check *c)
{
    return (size_t)weir_shape_count(&c->in[1].shape) * weir_dtype_bytes(c->in[1].dtype);
}

/* The call once more, with the weight's bytes at `weight`. */
static void run_with_weight(const kernel_check *c, void *weight)
{
    weir_view in[2] = {c->in[0], c->in[1]};
    in[1].data = weight;
    const weir_type in_type[2] = {{in[0].dtype, in[0].shape}, {in[1].dtype, in[1].shape}};
    weir_type out_type = {c->out[0].dtype, c->out[0].shape};
    const weir_op_args rule = {c->op, in_type, 2, &out_type, 1, c->attrs};
    const size_t room = c->op->workspace(&rule, kernel_check_kind());
    void *workspace = aligned_alloc(64, (room + 63) / 64 * 64 + 64);
    const weir_kernel_args args = {.in = in, .in_count = 2, .out = c->out, .out_count = 1, .attrs = c->attrs, .workspace = workspace,
                                   .workspace_bytes = room};
    cr_assert_eq(kernel_check_kernel(c->op)(&args), WEIR_OK);
    free(workspace);
}

/* The dtype of a weight may be wider than its place is aligned. */
Test(stored, a_weight_may_lie_at_any_address)
{
    const int any = kernel_check_kind() == WEIR_CPU ? ALL : BLOCKED; /* dense weights are aligned on other devices */
    for (int i = 0; i < any; i++)
        for (int exact = 0; exact < 2; exact++) {
            const struct stored_attrs attrs = {all[i].format, exact};
            const int64_t in = 3 * (unit_of(&all[i]) == 1 ? 25 : unit_of(&all[i]));
            kernel_check c = product_check(&op_linear_stored, &attrs, &all[i], SHAPE(5, in), 35, in);
            kernel_check_run(&c);
            const size_t bytes = weight_bytes(&c);
            float *wanted = malloc(5 * 35 * sizeof *wanted);
            memcpy(wanted, c.out[0].data, 5 * 35 * sizeof *wanted);
            char *memory = malloc(bytes + 8);
            for (int shift = 1; shift < 4; shift++) {
                memset(c.out[0].data, 0xFF, 5 * 35 * sizeof *wanted);
                run_with_weight(&c, memcpy(memory + shift, c.in[1].data, bytes));
                cr_expect_arr_eq(c.out[0].data, wanted, 5 * 35 * sizeof *wanted, "%s", all[i].name);
            }
            free(memory);
            free(wanted);
            kernel_check_free(&c);
        }
}

/* The weight ends where a page does, and the next page cannot be read, as at the end of a mapped file; or begins behind such a page. */
static void check_edge(const struct stored *s, bool exact, int64_t rows, bool at_end)
{
    const struct stored_attrs attrs = {s->format, exact};
    const int64_t in = unit_of(s) == 1 ? 37 : unit_of(s), page = sysconf(_SC_PAGESIZE);
    kernel_check c = product_check(&op_linear_stored, &attrs, s, SHAPE(rows, in), 19, in);
    const size_t bytes = weight_bytes(&c);
    const size_t room = (bytes + (size_t)page - 1) / (size_t)page * (size_t)page;
    char *memory = mmap(NULL, room + 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)memory, MAP_FAILED);
    cr_assert_eq(mprotect(memory, (size_t)page, PROT_NONE), 0);
    cr_assert_eq(mprotect(memory + page + room, (size_t)page, PROT_NONE), 0);
    kernel_check_run(&c);
    run_with_weight(&c, memcpy(memory + page + (at_end ? room - bytes : 0), c.in[1].data, bytes));
    munmap(memory, room + 2 * (size_t)page);
    kernel_check_free(&c);
}

Test(stored, nothing_beside_the_weight_is_read)
{
    for (int i = 0; i < ALL; i++)
        for (int way = 0; way < 8; way++)
            check_edge(&all[i], way & 1, way & 2 ? 9 : 1, way & 4);
}

/* ---- values that are not finite, or tiny ---- */

Test(stored, what_is_not_finite_makes_its_row_nan_and_no_other)
{
    for (int i = 0; i < BLOCKED; i++) {
        const struct stored_attrs attrs = {all[i].format, false};
        const int64_t in = 2 * unit_of(&all[i]);
        kernel_check c = product_check(&op_linear_stored, &attrs, &all[i], SHAPE(5, in), 18, in);
        float *x = c.in[0].data;
        x[7] = NAN;
        x[2 * in + in - 1] = -INFINITY;
        x[3 * in] = 1e37f;
        for (int64_t k = 0; k < in; k++)
            x[4 * in + k] = k % 2 ? 1e-31f : -0.0f;
        kernel_check_run(&c);
        for (int row = 0; row < 5; row++)
            for (int o = 0; o < 18; o++) {
                const double y = kernel_at(&c.out[0], row * 18 + o);
                cr_expect(row == 0 || row == 2 ? isnan(y) : row == 4 ? y == 0 : isfinite(y), "%s: row %d: %g", all[i].name, row, y);
            }
        kernel_check_free(&c);
    }
}

/* ---- rules ---- */

static weir_type u8(int64_t out, int64_t blocks, int64_t bytes)
{
    return (weir_type){WEIR_U8, {3, {out, blocks, bytes}}};
}

Test(stored, wrong_weights_are_refused)
{
    const struct stored_attrs q4 = {WEIR_Q4_1, 0}, dense = {WEIR_DENSE, 0}, none = {99, 0};
    const weir_type x = {WEIR_F32, {2, {3, 64}}}, ids = {WEIR_I32, {1, {3}}};
    weir_type out;
    kernel_check_infers(&op_linear_stored, &q4, (weir_type[]){x, u8(5, 2, 20)}, 2, &out);
    cr_expect(out.dtype == WEIR_F32 && out.shape.rank == 2 && out.shape.dim[0] == 3 && out.shape.dim[1] == 5);
    kernel_check_refuses(&op_linear_stored, &q4, (weir_type[]){x, u8(5, 2, 18)}, 2, "the weight is not u8 [out, blocks, 20], which Q4_1 needs");
    kernel_check_refuses(&op_linear_stored, &q4, (weir_type[]){x, u8(5, 3, 20)}, 2, "inner sizes 64 and 96 differ");
    kernel_check_refuses(&op_linear_stored, &q4, (weir_type[]){x, {WEIR_F32, {2, {5, 64}}}}, 2, "the weight is not u8");
    kernel_check_refuses(&op_linear_stored, &dense, (weir_type[]){x, u8(5, 2, 20)}, 2,
                         "the weight is u8 with 3 dimensions; without a .format it needs to be f32, f16 or bf16 with two");
    kernel_check_refuses(&op_linear_stored, &none, (weir_type[]){x, u8(5, 2, 20)}, 2, "format 99: is none of weir_format");
    kernel_check_refuses(&op_linear_stored, &q4, (weir_type[]){{WEIR_BF16, x.shape}, u8(5, 2, 20)}, 2, "x is bf16 with 2 dimensions");
    kernel_check_refuses(&op_linear_stored_dx, &q4, (weir_type[]){x, u8(5, 2, 20)}, 2, "dy does not consist of rows of 5 f32");
    kernel_check_refuses(&op_embedding_stored, &q4, (weir_type[]){x, u8(5, 2, 20)}, 2, "ids are f32, not i32");
    kernel_check_refuses(&op_embedding_stored, &q4, (weir_type[]){ids, u8(5, 2, 24)}, 2, "which Q4_1 needs");
    kernel_check_refuses(&op_linear_stored_dx, &(struct stored_attrs){WEIR_Q6_K, 0},
                         (weir_type[]){{WEIR_F32, {2, {3, 0}}}, u8(0, INT64_MAX / 16, 210)}, 2, "the weight is too large");
}

Test(stored, an_id_that_no_row_has_is_named)
{
    const struct stored_attrs attrs = {WEIR_Q4_0, false};
    kernel_check c = product_check(&op_embedding_stored, &attrs, &all[0], SHAPE(3, 2), 4, 32);
    char error[128] = "";
    float out[6 * 32];
    for (int i = 0; i < 6; i++)
        ((int32_t *)c.in[0].data)[i] = i == 3 ? 4 : i % 4;
    const weir_view y = {.data = out, .dtype = WEIR_F32, .shape = SHAPE(3, 2, 32), .global = SHAPE(3, 2, 32)};
    const weir_kernel_args args = {.in = c.in, .in_count = 2, .out = &y, .out_count = 1, .attrs = &attrs, .error = error,
                                   .error_bytes = sizeof error};
    cr_expect_eq(kernel_check_kernel(&op_embedding_stored)(&args), WEIR_E_KERNEL);
    cr_expect_str_eq(error, "id 4 at [1, 1] is not in 0..3");
    kernel_check_free(&c);
}

Test(stored, shards_together_are_the_whole)
{
    for (int i = 0; i < ALL; i++) {
        const int64_t in = 2 * unit_of(&all[i]);
        for (int exact = 0; exact < 2; exact++)
            check_layouts(&op_linear_stored, &all[i], exact, SHAPE(2, 5, in), 7, in, exact ? 1e-5 : 0);
        check_layouts(&op_linear_stored_dx, &all[i], true, SHAPE(2, 5, 7), 7, in, 1e-5);
        check_layouts(&op_embedding_stored, &all[i], false, SHAPE(5), 7 + 4, in, 1e-6);
    }
}

/* Through the compiler and sessions. */
Test(stored, layouts_run_as_one_device_does)
{
    for (int i = 0; i < ALL; i += 3) {
        const struct stored_attrs attrs = {all[i].format, false};
        const int64_t in = 2 * unit_of(&all[i]);
        kernel_check c = product_check(&op_linear_stored, &attrs, &all[i], SHAPE(5, in), 7, in);
        cr_expect_geq(op_check(&c, 3, 0), 2, "%s", all[i].name);
        kernel_check_free(&c);
        c = product_check(&op_embedding_stored, &attrs, &all[i], SHAPE(5), 11, in);
        cr_expect_geq(op_check(&c, 2, 1e-6), 2, "%s", all[i].name);
        kernel_check_free(&c);
    }
}

static weir_tensor *dense_layer(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {3, 5}, .name = "x"), *w = weir_param(g, WEIR_F32, {7, 5}, .name = "w");
    weir_tensor *v = weir_param(g, WEIR_F32, {10, 7}, .name = "v"), *ids = weir_input(g, WEIR_I32, {3}, .name = "ids");
    return weir_mul(weir_linear_stored(x, w), weir_embedding_stored(ids, v));
}

static weir_tensor *dense_vector(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {5}, .name = "x"), *w = weir_param(g, WEIR_F32, {7, 5}, .name = "w");
    return weir_linear_stored(x, w);
}

Test(stored, dense_weights_and_x_have_gradients)
{
    gradient_check(dense_layer, SEED, 2e-3);
    gradient_check(dense_vector, SEED, 2e-3);
}
