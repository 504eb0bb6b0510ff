/* kernels/matmul/sizes.h: where matmul finds its sizes, of which products a call consists, and what they need on a GPU; for all
 * kinds of devices. Pure functions; any thread.
 */
#ifndef KERNELS_MATMUL_SIZES_H
#define KERNELS_MATMUL_SIZES_H

#include <weir/op.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/common/nest.h"
#ifdef __cplusplus
}
#endif

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
    int rank;     /* of the result */
    bool batched; /* b has batch dimensions */
} product;

static inline product product_of(const weir_shape *a, const weir_shape *b, const struct matmul_attrs *attrs)
{
    product at;
    at.a_m = a->rank - (attrs->trans_a ? 1 : 2);
    at.a_k = a->rank - (attrs->trans_a ? 2 : 1);
    at.b_k = b->rank - (attrs->trans_b ? 1 : 2);
    at.b_n = b->rank - (attrs->trans_b ? 2 : 1);
    at.rank = a->rank > b->rank ? a->rank : b->rank;
    at.batched = b->rank > 2;
    return at;
}

/* The size of batch dimension d of a result of `rank` dimensions in one of the factors: 1 if that does not have it. */
static inline int64_t batch_size(const weir_shape *factor, int rank, int d)
{
    const int own = d - (rank - factor->rank);
    return own < 0 ? 1 : factor->dim[own];
}

/* Whether one b without batch dimensions meets all rows of a, so that a's batches are rows of one product. */
static inline bool batches_are_rows(const weir_shape *b, const struct matmul_attrs *attrs)
{
    return b->rank == 2 && !attrs->trans_a;
}

/* The batches of a call, as a walk over matrices: operand 0 is a, 1 is b, 2 the result. */
static inline nest batches_of(const weir_shape *a, const weir_shape *b, const struct matmul_attrs *attrs)
{
    const product at = product_of(a, b, attrs);
    const weir_shape *factors[2] = {a, b};
    weir_shape shape[3], *both = &shape[2];
    both->rank = at.rank - 2;
    for (int d = 0; d < both->rank; d++) {
        const int64_t size_a = batch_size(a, at.rank, d), size_b = batch_size(b, at.rank, d);
        both->dim[d] = batches_are_rows(b, attrs) ? 1 : size_a == 1 ? size_b : size_a;
    }
    nest n = nest_over(both);
    for (int i = 0; i < 2; i++) {
        shape[i].rank = batches_are_rows(b, attrs) ? 0 : factors[i]->rank - 2;
        for (int d = 0; d < shape[i].rank; d++)
            shape[i].dim[d] = factors[i]->dim[d];
        nest_broadcast(&n, &shape[i]);
    }
    nest_broadcast(&n, both);
    nest_collapse(&n);
    return n;
}

/* The gemms that a call consists of. */
typedef struct gemms {
    int64_t count, m, n, k;
} gemms;

static inline gemms gemms_of(const weir_shape *a, const weir_shape *b, const struct matmul_attrs *attrs)
{
    const product at = product_of(a, b, attrs);
    gemms g = {1, a->dim[at.a_m], b->dim[at.b_n], a->dim[at.a_k]};
    for (int d = 0; d + 2 < at.rank; d++) {
        const int64_t size_a = batch_size(a, at.rank, d);
        g.count *= size_a == 1 ? batch_size(b, at.rank, d) : size_a;
    }
    if (batches_are_rows(b, attrs)) {
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
