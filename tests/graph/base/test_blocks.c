/* tests/graph/base/test_blocks.c: rows are written as blocks with the bits of ggml's reference. The expected blocks are those of the
 * Python package gguf 0.19 (gguf.quants.quantize) for the same elements; tests/models/gguf_files.py compares whole models. */
#include "graph/base/blocks.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(blocks, .timeout = 60);

/* Two blocks: whole numbers that mix signs and sizes, over 64; then small ones, whose scale is a subnormal f16. */
static void fill(float x[64])
{
    for (int i = 0; i < 32; i++) {
        x[i] = (float)((i * 37 + 11) % 64 - 29) / 64;
        x[32 + i] = (float)((i * 23 + 5) % 32 - 16) * 0x1p-20f;
    }
}

Test(blocks, rows_have_the_bits_of_the_reference)
{
    static const unsigned char q8_0[68] = {
        0x08, 0x1c, 0xb9, 0x4b, 0xe0, 0x73, 0x08, 0x9d, 0x30, 0xc4, 0x57, 0xec, 0x7f, 0x14, 0xa9, 0x3c, 0xd0, 0x63,
        0xf8, 0x8d, 0x20, 0xb5, 0x47, 0xdc, 0x6f, 0x04, 0x99, 0x2c, 0xc0, 0x53, 0xe8, 0x7b, 0x10, 0xa5, 0x02, 0x00,
        0xa9, 0x5f, 0x18, 0xd0, 0x89, 0x40, 0xf8, 0xb1, 0x67, 0x20, 0xd8, 0x91, 0x47, 0x00, 0xb9, 0x6f, 0x28, 0xe0,
        0x99, 0x4f, 0x08, 0xc0, 0x77, 0x30, 0xe8, 0xa1, 0x57, 0x10, 0xc8, 0x81, 0x38, 0xf0,
    };
    static const unsigned char q4_0[36] = {
        0x00, 0xac, 0x9d, 0xf3, 0x6a, 0xd1, 0x48, 0xae, 0x15, 0x8c, 0xf3, 0x59, 0xc0, 0x37, 0xae, 0x04, 0x7b, 0xe2,
        0x20, 0x00, 0xb3, 0x6e, 0x2a, 0xd5, 0x91, 0x4c, 0xf8, 0xb3, 0x7f, 0x2a, 0xe6, 0x91, 0x5d, 0x08, 0xc4, 0x7f,
    };
    float x[64];
    unsigned char got[68];
    fill(x);
    cr_assert(block_write_row(WEIR_Q8_0, x, 64, got));
    cr_expect_arr_eq(got, q8_0, sizeof q8_0);
    cr_assert(block_write_row(WEIR_Q4_0, x, 64, got));
    cr_expect_arr_eq(got, q4_0, sizeof q4_0);
}

/* 0.78125 / 0.1 + 8.5 and the like: whether a product is rounded before the sum decides in such cases. */
Test(blocks, a_product_is_rounded_before_a_sum)
{
    enum { ROWS = 4096 };
    uint32_t random = 1;
    float x[32];
    unsigned char got[18];
    for (int row = 0; row < ROWS; row++) {
        float most = 0;
        for (int i = 0; i < 32; i++) {
            random = random * 1664525 + 1013904223;
            x[i] = (float)(random >> 8) * 0x1p-24f - 0.5f;
            most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
        }
        cr_assert(block_write_row(WEIR_Q4_0, x, 32, got));
        const float by = 1 / (most / -8);
        for (int i = 0; i < 32; i++) {
            const volatile float product = x[i] * by;
            const volatile float sum = product + 8.5f;
            const int q = (int)sum < 15 ? (int)sum : 15;
            cr_assert_eq(got[2 + i % 16] >> i / 16 * 4 & 15, q, "row %d, element %d", row, i);
        }
    }
}

Test(blocks, what_was_read_from_blocks_becomes_the_same_blocks)
{
    float x[64], again[64];
    unsigned char first[68], second[68];
    static const weir_format formats[] = {WEIR_Q8_0, WEIR_Q4_0};
    fill(x);
    for (int f = 0; f < 2; f++) {
        cr_assert(block_write_row(formats[f], x, 64, first));
        block_read_row(formats[f], first, 0, 64, again);
        cr_assert(block_write_row(formats[f], again, 64, second));
        cr_expect_arr_eq(first, second, (size_t)(2 * block_format_of(formats[f])->bytes));
    }
}

Test(blocks, zeros_and_the_smallest_numbers_become_zeros)
{
    float x[32] = {0}, read[32];
    unsigned char to[34];
    static const float least[] = {0, -0.0f, 0x1p-149f, 0x1p-130f, -0x1p-40f};
    static const weir_format formats[] = {WEIR_Q8_0, WEIR_Q4_0};
    for (int i = 0; i < 5; i++)
        for (int f = 0; f < 2; f++) {
            x[7] = least[i];
            cr_assert(block_write_row(formats[f], x, 32, to));
            block_read_row(formats[f], to, 0, 32, read);
            for (int j = 0; j < 32; j++)
                cr_expect_eq(read[j], 0);
        }
}

Test(blocks, numbers_without_a_scale_are_refused)
{
    float x[32] = {0};
    unsigned char to[34];
    static const weir_format formats[] = {WEIR_Q8_0, WEIR_Q4_0};
    const float wrong[] = {NAN, INFINITY, -INFINITY, 1e9f};
    for (int i = 0; i < 4; i++)
        for (int f = 0; f < 2; f++) {
            x[31] = wrong[i];
            cr_expect(!block_write_row(formats[f], x, 32, to));
        }
}
