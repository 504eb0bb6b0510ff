/* kernels/stored/stored.h: weights that are read as they are stored, in no more memory than they take.
 *
 *     w [out, in]: f32, f16, bf16, or rows of blocks (graph/base/blocks.h); one output is one row, as files have it
 *
 *     x [rows, in] --round--> bytes, a scale for each unit --.
 *                                                             +--> sums, 16 outputs side by side --> y [rows, out]
 *     16 rows of w --unpack--> a panel of bytes, scales -----'
 *
 * Products of blocks go panel by panel (panel.h): 16 rows of w are unpacked to bytes, for some of the columns, and multiplied with all
 * rows of x. Those are rounded to bytes once (rounded.h), unless the call wants f32: then a panel becomes f32, too, and the product is
 * gemm_rows(). A single row of bytes needs no panel (single.h). Products of dense weights are dots along the rows (dense.h).
 *
 * The processor's instructions for products of bytes are found out when the library runs: AMX for 16 rows or more and units of 32, else
 * VPDPBUSD, else those of AVX-512 or AVX2 (sums.c, dots.h). Their sums are integers, and exact, so they change no bit. Dense weights of
 * bf16 use AMX or AVX512_BF16 for any number of rows (dense.c).
 *
 * An output of a weight of blocks is one sum in the order of `in`, unit by unit; one of a dense weight is 16 such sums, added at the
 * end. So its bits depend on its row of x and its row of w alone: not on how many rows there are beside them, nor on how `out` is split.
 *
 * The weight needs no alignment. No byte in front of it or behind it is read, since it may be a mapped file's.
 */
#ifndef KERNELS_STORED_STORED_H
#define KERNELS_STORED_STORED_H

#include "graph/base/blocks.h"
#include "kernels/common/view.h"

struct stored_attrs {
    int64_t format, f32_activations;
};

/* The weight of a call. */
typedef struct stored_weight {
    weir_format format;
    const block_format *is;  /* NULL: it is dense */
    weir_dtype dtype;
    const unsigned char *at; /* NULL for the rules */
    int64_t out, in;
    int64_t row_bytes;
} stored_weight;

static inline stored_weight stored_weight_of(int64_t format, weir_dtype dtype, const weir_shape *shape, const void *at)
{
    stored_weight w = {(weir_format)format, block_format_of(format), dtype, (const unsigned char *)at, 0, 0, 0};
    w.out = shape->dim[0];
    w.in = shape->dim[1] * (w.is ? w.is->elements : 1);
    w.row_bytes = shape->dim[1] * (w.is ? w.is->bytes : dtype == WEIR_F32 ? 4 : 2);
    return w;
}

static inline stored_weight stored_weight_in(const weir_kernel_args *args, int input)
{
    const weir_view *w = &args->in[input];
    return stored_weight_of(((const struct stored_attrs *)args->attrs)->format, w->dtype, &w->shape, w->data);
}

/* One call: y = x times the transpose of w; or back, dx = dy w. */
typedef struct stored_product {
    stored_weight w;
    bool exact;      /* nothing is rounded */
    int64_t rows;
    const float *x;  /* [rows, in]; back: dy [rows, out] */
    float *y;        /* [rows, out]; back: dx [rows, in] */
    void *workspace; /* 64-byte aligned; stored_product_bytes() or stored_back_bytes() */
} stored_product;

#ifndef __cplusplus
void stored_multiply(const stored_product *product);
size_t stored_product_bytes(const stored_weight *w, bool exact, int64_t rows);

void stored_multiply_back(const stored_product *back);
size_t stored_back_bytes(const stored_weight *w, bool exact, int64_t rows);

/* Elements [from, from + count) of row `row` as f32. */
void stored_read(const stored_weight *w, int64_t row, int64_t from, int64_t count, float *to);
#endif

#endif
