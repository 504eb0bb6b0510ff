/* kernels/conv/plane.h: a window over one plane: each position's elements, folded to a number.
 *
 *     PLANE_PRODUCTS   start + sum of weight[t] * element of tap t        a channel that has a kernel of its own
 *     PLANE_SUM        start + sum of the elements                        average pool
 *     PLANE_MAX        the largest of start and the elements; NaN is larger than everything
 *
 * Elements come from a patch (patch.h). Eight runs of up to eight positions are folded at a time, a vector of sums each: so
 * there are enough of them to hide the latency of an addition, and a weight is loaded once for 64 products. The taps of
 * a position are taken in order, whatever lies beside it. Owns nothing; any thread.
 */
#ifndef KERNELS_CONV_PLANE_H
#define KERNELS_CONV_PLANE_H

#include "kernels/conv/patch.h"
#include "kernels/conv/room.h"

typedef enum plane_fold { PLANE_PRODUCTS, PLANE_SUM, PLANE_MAX } plane_fold;

enum {
    PLANE_RUN = 8,   /* positions of a run, at most */
    PLANE_RUNS = 8,
    PLANE_BLOCK = 2048 /* positions whose patch is made at a time */
};

/* A block of positions, with all that is the same for every plane. */
typedef struct plane_block {
    patch p;
    int64_t first, count;
    patch_run *runs; /* of a multiple of PLANE_RUNS; those behind the last have no positions */
    int64_t run_count;
    int64_t *tap;
    int64_t taps;
    float *patch;
} plane_block;

/* Takes the parts of a block from a workspace. */

void plane_room(room *r, const window *w, plane_block *block);

/* Begins the block at position `first`, for planes that patch_fill() copies one after the other; its parts must have been taken. */
void plane_begin(plane_block *block, const window *w, int64_t first, weir_dtype dtype, float outside);

/* to[i] for the block's positions i; `weight` for PLANE_PRODUCTS. The block's patch has been filled. */
void plane_run(plane_fold fold, const plane_block *block, const float *weight, float start, float *to);

#endif
