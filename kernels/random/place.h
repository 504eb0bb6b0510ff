/* kernels/random/place.h: where the elements of a shard lie in the logical tensor, for kernels on a GPU that draw for
 * each of them. Header-only; for nvcc and the emulator. */
#ifndef KERNELS_RANDOM_PLACE_H
#define KERNELS_RANDOM_PLACE_H

#include "kernels/cuda/rows.h"
#include "kernels/random/dropout.h"

struct drop_place {
    int rank;
    int64_t dim[WEIR_DIMS_MAX], stride[WEIR_DIMS_MAX], first;
};

static inline drop_place place_of(const weir_view *view)
{
    drop_place place = {};
    place.rank = view->shape.rank;
    int64_t stride = 1;
    for (int d = place.rank - 1; d >= 0; d--) {
        place.dim[d] = view->shape.dim[d];
        place.stride[d] = stride;
        place.first += view->offset[d] * stride;
        stride *= view->global.dim[d];
    }
    return place;
}

/* The place of the shard's element `at`. */
DEVICE uint64_t logical_index(const drop_place &place, int64_t at)
{
    int64_t index = place.first;
    UNROLL
    for (int d = WEIR_DIMS_MAX - 1; d >= 0; d--)
        if (d < place.rank) {
            index += at % place.dim[d] * place.stride[d];
            at /= place.dim[d];
        }
    return (uint64_t)index;
}

/* Whether a dropout keeps it. */
DEVICE bool drop_keeps(const drop_place &place, uint64_t key, uint64_t firing, uint32_t threshold, int64_t at)
{
    const uint64_t g = logical_index(place, at);
    return philox_word(key, dropout_counter(g), firing, dropout_word(g)) >= threshold;
}

#endif
