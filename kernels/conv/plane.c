/* plane.c: see the header. */
#include "kernels/conv/plane.h"

#include "kernels/common/unroll.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed to a function that is not inlined */

#define INLINE static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(PLANE_RUN * sizeof(float))));
typedef int32_t numbers __attribute__((vector_size(PLANE_RUN * sizeof(int32_t))));

void plane_room(room *r, const window *w, plane_block *block)
{
    const int64_t small = window_small(w), most = small < PLANE_BLOCK ? small : PLANE_BLOCK;
    block->taps = window_taps(w);
    block->runs = room_take(r, patch_runs_max(w, most, PLANE_RUN) + PLANE_RUNS, sizeof *block->runs);
    block->tap = room_take(r, block->taps, sizeof *block->tap);
    block->patch = room_take(r, patch_floats(w, most), sizeof *block->patch);
}

void plane_begin(plane_block *block, const window *w, int64_t first, weir_dtype dtype, float outside)
{
    const int64_t left = window_small(w) - first;
    block->first = first;
    block->count = left < PLANE_BLOCK ? left : PLANE_BLOCK;
    block->p = patch_of(w, first, block->count, dtype, outside);
    patch_clear(&block->p, block->patch);
    patch_taps(&block->p, block->tap);
    block->run_count = patch_runs(&block->p, first, block->count, PLANE_RUN, block->runs);
    while (block->run_count % PLANE_RUNS)
        block->runs[block->run_count++] = (patch_run){block->runs[0].at, 0, 0};
}

/* The larger in each lane; a NaN if there is one. */
INLINE vector larger(vector a, vector b)
{
    const numbers first = (a >= b) | (a != a);
    return (vector)((first & (numbers)a) | (~first & (numbers)b));
}

/* `fold` is a constant where this is inlined. */
INLINE void runs_fold(plane_fold fold, const plane_block *block, const patch_run *runs, const float *weight, float start,
                      float *to)
{
    const float *from[PLANE_RUNS];
    vector sum[PLANE_RUNS];
    UNROLL for (int r = 0; r < PLANE_RUNS; r++) {
        from[r] = block->patch + runs[r].at;
        sum[r] = start - (vector){};
    }
    for (int64_t t = 0; t < block->taps; t++) {
        const int64_t at = block->tap[t];
        const vector each = (fold == PLANE_PRODUCTS ? weight[t] : 0) - (vector){};
        UNROLL for (int r = 0; r < PLANE_RUNS; r++) {
            vector x;
            memcpy(&x, from[r] + at, sizeof x);
            if (fold == PLANE_MAX)
                sum[r] = larger(sum[r], x);
            else
                sum[r] += fold == PLANE_PRODUCTS ? each * x : x;
        }
    }
    UNROLL for (int r = 0; r < PLANE_RUNS; r++) {
        if (runs[r].count && runs[r].to + PLANE_RUN <= block->count) /* the next run writes over what is too much */
            memcpy(to + runs[r].to, &sum[r], sizeof sum[r]);
        else
            for (int64_t i = 0; i < runs[r].count; i++)
                to[runs[r].to + i] = sum[r][i];
    }
}

void plane_run(plane_fold fold, const plane_block *block, const float *weight, float start, float *to)
{
    for (int64_t r = 0; r < block->run_count; r += PLANE_RUNS) {
        const patch_run *runs = block->runs + r;
        if (fold == PLANE_PRODUCTS)
            runs_fold(PLANE_PRODUCTS, block, runs, weight, start, to);
        else if (fold == PLANE_SUM)
            runs_fold(PLANE_SUM, block, runs, weight, start, to);
        else
            runs_fold(PLANE_MAX, block, runs, weight, start, to);
    }
}
