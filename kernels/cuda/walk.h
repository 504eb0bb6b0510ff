/* kernels/cuda/walk.h: where the elements of strided operands are, for one thread at a time.
 *
 * A walk is a nest (kernels/common/nest.h) as a kernel gets it: `rank` dimensions, the last the innermost, and for each operand a
 * stride per dimension, in elements. walk_to() says where the operands' element `index` of the walk lies. I is uint32_t
 * where all that is counted fits in 31 bits, which divides faster. Header-only; for nvcc and the emulator.
 */
#ifndef KERNELS_CUDA_WALK_H
#define KERNELS_CUDA_WALK_H

#include "kernels/cuda/packs.h"

extern "C" {
#include "kernels/common/nest.h"
}

template <class I, int OPERANDS> struct walk {
    int rank;
    I dim[WEIR_DIMS_MAX];
    int64_t stride[OPERANDS][WEIR_DIMS_MAX];
    METHOD void to(I index, int64_t (&at)[OPERANDS]) const
    {
        for (int k = 0; k < OPERANDS; k++)
            at[k] = 0;
        UNROLL
        for (int d = WEIR_DIMS_MAX - 1; d > 0; d--) {
            if (d >= rank)
                continue;
            const I outside = index / dim[d], here = index - outside * dim[d];
            for (int k = 0; k < OPERANDS; k++)
                at[k] += (int64_t)here * stride[k][d];
            index = outside;
        }
        for (int k = 0; k < OPERANDS; k++)
            at[k] += (int64_t)index * stride[k][0];
    }
};

template <class I, int OPERANDS> static inline walk<I, OPERANDS> walk_of(const nest &n)
{
    walk<I, OPERANDS> w = {n.rank, {}, {}};
    for (int d = 0; d < n.rank; d++) {
        w.dim[d] = (I)n.dim[d];
        for (int k = 0; k < OPERANDS; k++)
            w.stride[k][d] = n.stride[k][d];
    }
    return w;
}

/* Does `...` with I as the type that counts to `count`. */
#define WITH_INDEX(count, I, ...)           \
    do {                                    \
        if ((count) <= INT32_MAX) {         \
            using I = uint32_t;             \
            __VA_ARGS__;                    \
        } else {                            \
            using I = int64_t;              \
            __VA_ARGS__;                    \
        }                                   \
    } while (0)

#endif
