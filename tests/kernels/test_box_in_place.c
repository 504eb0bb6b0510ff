/* tests/kernels/test_box_in_place.c: sums over one of their own terms, and gathers that leave a shard where it is. */
#include "kernels/core/core.h"
#include "kernels/common/ops.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- in place ---- */

enum { TERMS = 5, ROWS = 9, WIDTH = 1031 }; /* more than a block of a sum, and no multiple of anything */

static void fill_terms(weir_dtype dtype, char *to, int64_t count, int term)
{
    for (int64_t i = 0; i < count; i++) {
        float value = (float)run_input("terms", WEIR_F32, term, 0, i);
        if (dtype == WEIR_F32)
            ((float *)(void *)to)[i] = value;
        else
            weir_from_f32(&value, 1, dtype, (uint16_t *)(void *)to + i);
    }
}

static weir_view rows_of(void *data, weir_dtype dtype, int64_t first, int64_t rows)
{
    return (weir_view){.data = data, .dtype = dtype, .shape = {2, {rows, WIDTH}}, .global = {2, {ROWS, WIDTH}}, .offset = {first, 0}};
}

/* The sum of rows [first, first + rows) of all terms, over those of `own`, or beside them where that is -1. Returns where
 * it is; the terms are the caller's. */
static char *add_up(weir_dtype dtype, int terms, int64_t first, int64_t rows, int own, bool parts, char **term,
                    char *beside)
{
    size_t row = WIDTH * weir_dtype_bytes(dtype);
    weir_view in[TERMS], out;
    for (int t = 0; t < terms; t++) {
        fill_terms(dtype, term[t], ROWS * WIDTH, t);
        in[t] = parts && t != own ? rows_of(term[t] + (size_t)first * row, dtype, first, rows)
                                  : rows_of(term[t], dtype, 0, ROWS);
    }
    out = rows_of(own < 0 ? beside : term[own] + (size_t)first * row, dtype, first, rows);
    box_attrs attrs = {.terms = terms};
    weir_kernel_args args = {.in = in, .in_count = terms, .out = &out, .out_count = 1, .attrs = &attrs};
    if (own >= 0 && !parts)
        cr_assert_eq(op_box.onto(&args, own), first * WIDTH);
    cr_assert_eq(op_box.kernel[WEIR_CPU](&args), WEIR_OK);
    return out.data;
}

Test(box_in_place, a_sum_over_any_of_its_terms_has_the_same_bits)
{
    static const weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    char *term[TERMS], *beside = malloc(ROWS * WIDTH * 4), *kept = malloc(ROWS * WIDTH * 4);
    for (int t = 0; t < TERMS; t++)
        term[t] = malloc(ROWS * WIDTH * 4);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int terms = 2; terms <= TERMS; terms++)
            for (int own = 0; own < terms; own++) {
                size_t row = WIDTH * weir_dtype_bytes(dtypes[d]), rows = 6, first = 2;
                bool parts = (terms + own) % 2; /* of the others there is what is read alone, as from another host */
                add_up(dtypes[d], terms, (int64_t)first, (int64_t)rows, -1, false, term, beside);
                memcpy(kept, term[own], ROWS * row);
                char *sum = add_up(dtypes[d], terms, (int64_t)first, (int64_t)rows, own, parts, term, beside);
                cr_assert_arr_eq(sum, beside, rows * row, "%s, %d terms, over %d", weir_dtype_name(dtypes[d]), terms, own);
                cr_assert_arr_eq(term[own], kept, first * row, "the rows before are left alone");
                cr_assert_arr_eq(term[own] + (first + rows) * row, kept + (first + rows) * row, row, "and the one behind");
            }
    for (int t = 0; t < TERMS; t++)
        free(term[t]);
    free(beside);
    free(kept);
}

static int64_t stays_in(int64_t first, int64_t rows, int64_t other_first, box_attrs attrs)
{
    static float whole[ROWS * WIDTH], other[ROWS * WIDTH];
    weir_view in[] = {rows_of(other, WEIR_F32, other_first, 2), rows_of(whole + first * WIDTH, WEIR_F32, first, rows)};
    weir_view out = rows_of(whole, WEIR_F32, 0, ROWS);
    weir_kernel_args args = {.in = in, .in_count = 2, .out = &out, .out_count = 1, .attrs = &attrs};
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        whole[i] = (float)i, other[i] = -1;
    int64_t at = op_box.stays(&args, 1);
    if (at < 0)
        return at;
    cr_assert_eq(op_box.kernel[WEIR_CPU](&args), WEIR_OK);
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        bool theirs = i >= other_first * WIDTH && i < (other_first + 2) * WIDTH;
        cr_assert_eq(whole[i], theirs ? -1 : (float)i, "element %ld", (long)i);
    }
    return at;
}

Test(box_in_place, what_is_gathered_stays_where_it_is_unless_something_else_is_written_there)
{
    cr_expect_eq(stays_in(3, 4, 0, (box_attrs){.terms = 1}), 3 * WIDTH);
    cr_expect_eq(stays_in(3, 4, 7, (box_attrs){.terms = 1}), 3 * WIDTH);
    cr_expect_eq(stays_in(3, 4, 2, (box_attrs){.terms = 1}), -1, "its first row is also another's");
    cr_expect_eq(stays_in(3, 4, 0, (box_attrs){.terms = 2}), -1);
    cr_expect_eq(stays_in(3, 4, 0, (box_attrs){.terms = 1, .zero = 1}), -1);
}
