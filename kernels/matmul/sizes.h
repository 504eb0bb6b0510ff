/* kernels/matmul/sizes.h: where matmul finds its sizes, of which products a call consists, and what they need on a GPU; for all
 * kinds of devices. Pure functions; any thread.
 */
#ifndef KERNELS_MATMUL_SIZES_H
#define KERNELS_MATMUL_SIZES_H

#include <weir/op.h>

struct matmul_attrs {
    int64_t trans_a, trans_b;
};

enum { MATMUL_FIELDS = 2 };
#ifndef __cplusplus
extern const weir_field matmul_fields[MATMUL_FIELDS];
#endif

typedef struct product {
    int a_m, a_k; /* dimensions of a */
    int b_k, b_n; /* of b */
    int rank;     /* of a and of the result */
    bool batched; /* b has batch dimensions */
} product;

static inline product product_of(const weir_shape *a, const weir_shape *b, const struct matmul_attrs *attrs)
{
    product at;
    at.a_m = a->rank - (attrs->trans_a ? 1 : 2);
    at.a_k = a->rank - (attrs->trans_a ? 2 : 1);
    at.b_k = b->rank - (attrs->trans_b ? 1 : 2);
    at.b_n = b->rank - (attrs->trans_b ? 2 : 1);
    at.rank = a->rank;
    at.batched = b->rank > 2;
    return at;
}

/* The gemms that a call consists of. */
typedef struct gemms {
    int64_t count, m, n, k;
} gemms;

static inline gemms gemms_of(const weir_shape *a, const weir_shape *b, const struct matmul_attrs *attrs)
{
    const product at = product_of(a, b, attrs);
    gemms g = {1, a->dim[at.a_m], b->dim[at.b_n], a->dim[at.a_k]};
    for (int d = 0; d + 2 < at.rank; d++)
        g.count *= a->dim[d];
    if (!at.batched && !attrs->trans_a) {
        g.m *= g.count;
        g.count = 1;
    }
    return g;
}

enum { PRODUCT_ALIGNMENT = 256, PRODUCT_WORKSPACE = 32 << 20, PRODUCTS_MAX = 4 /* of a batch that is one call */ };

static inline size_t product_bias_bytes(int64_t n)
{
    return ((size_t)n * sizeof(float) + PRODUCT_ALIGNMENT - 1) & -(size_t)PRODUCT_ALIGNMENT;
}

/* workspace, on a GPU: none for a tiny product; there is room for so many biases in the dtype of the result. */
static inline size_t product_bytes(double m, int64_t n, int64_t k, int biases)
{
    const bool tiny = m * (double)n * (double)k < 0x1p24;
    return PRODUCT_ALIGNMENT + (size_t)biases * product_bias_bytes(n) + (tiny ? 0 : PRODUCT_WORKSPACE);
}

/* Whether a product has few tiles and many terms: it leaves most of a card idle, unless the terms are split among its
 * processors. The library does that, but not where it makes sums besides. */
static inline bool product_wants_split(int64_t m, int64_t n, int64_t k)
{
    enum { TILE_SIDE = 128, TILES_FEW = 132 /* processors of an H100 */, TERMS_MANY = 4096 };
    return (m + TILE_SIDE - 1) / TILE_SIDE * ((n + TILE_SIDE - 1) / TILE_SIDE) < TILES_FEW && k >= TERMS_MANY;
}

#endif
