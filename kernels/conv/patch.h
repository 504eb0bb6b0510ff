/* kernels/conv/patch.h: a part of a plane with its pads, laid out so that each tap of a window reads contiguous memory.
 *
 *     a plane of the large side:  one channel of one image, [large[0], large[1], large[2]]
 *     a block of small positions: [first, first + count) in row-major order
 *     its patch:                  all that the windows at these positions read, pads included
 *
 * The last dimension of a patch is sorted by phase: the elements 0, stride, 2 stride, ... lie together, then 1, stride + 1, ...
 * So neighbours on the small side read neighbours in the patch, whatever the stride is:
 *
 *     stride 2    row of the plane  0 a b c d e 0        row of the patch  [ 0 b d 0 ][ a c e . ]
 *
 *     element that tap t of position q reads = patch[patch_position(q) + tap[t]]
 *
 * A copy of a patch costs a load and a store for each element, where the product then reads it once for each tap. It has no
 * edges to look after, and where the values are halves it is f32.
 *
 * A *run* is a few small positions in one row: contiguous in the patch, and on the small side. Reads of whole vectors may go
 * PATCH_SLACK floats beyond the patch, whose memory has room for that. Owns nothing; any thread.
 */
#ifndef KERNELS_CONV_PATCH_H
#define KERNELS_CONV_PATCH_H

#include "kernels/conv/window.h"

enum { PATCH_SLACK = 32 /* floats */ };

typedef struct patch {
    window w;
    weir_dtype dtype;            /* of planes */
    float outside;               /* the value of pads */
    int64_t from[WINDOW_DIMS];   /* first index, counted from the beginning of the pad */
    int64_t size[WINDOW_DIMS];
    int64_t pitch, row, plane;   /* floats between phases, between rows, between planes of a 3-D tensor */
} patch;

typedef struct patch_run {
    int64_t at; /* in the patch, for tap 0 */
    int64_t to; /* position on the small side, from the block's first */
    int64_t count;
} patch_run;

/* An upper bound of the floats of a patch of `count` positions, with slack. */
int64_t patch_floats(const window *w, int64_t count);

/* The patch of positions [first, first + count), of planes of a dtype. */
patch patch_of(const window *w, int64_t first, int64_t count, weir_dtype dtype, float outside);

/* Floats of this one, without slack. */
int64_t patch_size(const patch *p);

/* Copies the part of a plane, element `at` of `data` on, that is in the patch. The pads were written by patch_clear(), and stay
 * for the next plane that is copied there. */
void patch_fill(const patch *p, const void *data, int64_t at, float *to);
void patch_clear(const patch *p, float *to);

/* tap[t]: where tap t lies from tap 0; for each tap, in row-major order. */
void patch_taps(const patch *p, int64_t *tap);

/* Cuts the block's positions into runs of at most `most`; returns how many. `runs` has room for patch_runs_max(). */
int64_t patch_runs(const patch *p, int64_t first, int64_t count, int64_t most, patch_run *runs);
int64_t patch_runs_max(const window *w, int64_t count, int64_t most);

#endif
