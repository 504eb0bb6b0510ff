/* kernels/conv/weights.c: the gradient of a convolution by its weight, on CPUs.
 *
 *     dw [outs, in taps] = sum over images and blocks of BLOCK positions of dy [outs, BLOCK] columns^T,   columns [in taps, BLOCK]
 *
 * columns are made of patches (patch.h), ROWS at a time, which stay in the caches. With one channel in a group each element of dw
 * is a sum of products of two planes instead, eight taps at a time. Terms are added in the order of images and blocks.
 */
#include "kernels/conv/plane.h"
#include "kernels/conv/sizes.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/large.h"
#include "kernels/common/real.h"
#include "kernels/common/unroll.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed to a function that is not inlined */

enum { BLOCK = GEMM_DEPTH, ROWS = 512, TAPS = 8 };

typedef float vector __attribute__((vector_size(PLANE_RUN * sizeof(float))));
typedef int32_t numbers __attribute__((vector_size(PLANE_RUN * sizeof(int32_t))));

typedef struct weights {
    conv_sizes s;
    int64_t terms;     /* columns of dw, in taps */
    plane_block block; /* one channel in a group */
    int64_t *tap;      /* else */
    patch_run *runs;
    float *patches, *columns;
    void *product;
    float *dy;         /* a group of dy in f32, if it is half */
} weights;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void product_room(weights *g, room *r)
{
    const conv_sizes *s = &g->s;
    const int64_t rows = least(g->terms, ROWS), block = least(s->small, BLOCK);
    const int64_t channels = least(s->large_channels, (ROWS - 1) / s->taps + 2);
    g->tap = room_take(r, s->taps, sizeof *g->tap);
    g->runs = room_take(r, patch_runs_max(&s->w, block, block), sizeof *g->runs);
    g->patches = room_take(r, room_times(channels, patch_floats(&s->w, block)), sizeof *g->patches);
    g->columns = room_take(r, rows * block, sizeof *g->columns);
    g->product = room_take(r, (int64_t)gemm_large_workspace(false, s->small_channels, rows, block), 1);
}

static weights weights_of(const window_attrs *attrs, const weir_type *x, const weir_type *dy, const weir_type *dw, room *r)
{
    weights g = {.s = conv_sizes_of(attrs, &x->shape, &dy->shape, &dw->shape)};
    g.terms = g.s.large_channels * g.s.taps;
    if (dtype_half(dy->dtype))
        g.dy = room_take(r, room_times(g.s.small_channels, g.s.small), sizeof *g.dy);
    if (!g.s.small)
        return g;
    if (g.s.large_channels == 1)
        plane_room(r, &g.s.w, &g.block);
    else
        product_room(&g, r);
    return g;
}

size_t conv_dw_workspace(const weir_op_args *args, weir_device_kind kind)
{
    room r = {0};
    if (kind == WEIR_CUDA || !weir_shape_count(&args->out[0].shape))
        return 0;
    weights_of(args->attrs, &args->in[0], &args->in[1], &args->out[0], &r);
    return r.bytes;
}

/* ---- several channels in a group ---- */

/* Rows [row, row + rows) of columns, for a patch of `count` positions. */
static void columns_fill(const weights *g, const patch *p, const weir_view *x, int64_t at, int64_t row, int64_t rows, int64_t runs)
{
    const conv_sizes *s = &g->s;
    const int64_t first = row / s->taps, size = patch_size(p), block = least(s->small, BLOCK);
    for (int64_t c = first; c <= (row + rows - 1) / s->taps; c++) {
        patch_clear(p, g->patches + (c - first) * size);
        patch_fill(p, x->data, at + c * s->large, g->patches + (c - first) * size);
    }
    for (int64_t i = 0; i < rows; i++) {
        const float *from = g->patches + ((row + i) / s->taps - first) * size + g->tap[(row + i) % s->taps];
        for (int64_t r = 0; r < runs; r++)
            memcpy(g->columns + i * block + g->runs[r].to, from + g->runs[r].at, (size_t)g->runs[r].count * sizeof *from);
    }
}

/* A group of an image. */
static void product_add(const weights *g, const weir_view *x, int64_t at, const float *dy, float *dw)
{
    const conv_sizes *s = &g->s;
    const int64_t block = least(s->small, BLOCK);
    for (int64_t first = 0; first < s->small; first += block) {
        const int64_t count = least(block, s->small - first);
        const patch p = patch_of(&s->w, first, count, x->dtype, 0);
        const int64_t runs = patch_runs(&p, first, count, block, g->runs);
        patch_taps(&p, g->tap);
        for (int64_t row = 0; row < g->terms; row += ROWS) {
            const int64_t rows = least(ROWS, g->terms - row);
            columns_fill(g, &p, x, at, row, rows, runs);
            gemm_large(&(gemm_large_call){.trans_b = true, .m = s->small_channels, .n = rows, .k = count, .alpha = 1,
                                          .a = dy + first, .lda = s->small, .b = g->columns, .ldb = block, .beta = 1,
                                          .c = dw + row, .ldc = g->terms, .workspace = g->product});
        }
    }
}

/* ---- one channel ---- */

/* The first `count` of a vector's elements; 0 in the others. */
static inline __attribute__((always_inline)) vector load_part(const float *from, int64_t count)
{
    const numbers place = {0, 1, 2, 3, 4, 5, 6, 7};
    numbers x;
    memcpy(&x, from, sizeof x);
    return (vector)(x & (place < (int32_t)count));
}

static float sum_of(vector v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* dw[t] += sum over the block's positions of dy times what tap t reads, for up to TAPS taps. dy is of the block's positions. */
static void taps_add(const plane_block *block, const int64_t *tap, int64_t taps, const float *dy, float *dw)
{
    vector sum[TAPS] = {0};
    int64_t at[TAPS] = {0};
    for (int t = 0; tap && t < TAPS; t++) /* an analyser does not see that a call has room for them */
        at[t] = tap[t < taps ? t : 0];
    for (int64_t r = 0; r < block->run_count && block->runs[r].count; r++) {
        const patch_run *run = &block->runs[r];
        vector each = {0};
        memcpy(&each, dy + run->to, (size_t)run->count * sizeof *dy);
        UNROLL for (int t = 0; t < TAPS; t++)
            sum[t] += each * load_part(block->patch + run->at + at[t], run->count);
    }
    for (int64_t t = 0; t < taps; t++)
        dw[t] += sum_of(sum[t]);
}

static void plane_add(weights *g, const weir_view *x, int64_t at, const float *dy, float *dw)
{
    const conv_sizes *s = &g->s;
    for (int64_t first = 0; first < s->small; first += g->block.count) {
        plane_begin(&g->block, &s->w, first, x->dtype, 0);
        patch_fill(&g->block.p, x->data, at, g->block.patch);
        for (int64_t o = 0; o < s->small_channels; o++)
            for (int64_t t = 0; t < s->taps; t += TAPS)
                taps_add(&g->block, g->block.tap + t, least(TAPS, s->taps - t), dy + o * s->small + first, dw + o * s->taps + t);
    }
}

/* ---- a call ---- */

weir_status conv_dw_cpu(const weir_kernel_args *args)
{
    room r = {args->workspace, 0};
    const weir_view *x = &args->in[0], *dy = &args->in[1], *dw = &args->out[0];
    if (!view_count(dw))
        return WEIR_OK;
    weights g = weights_of(args->attrs, &(weir_type){x->dtype, x->shape}, &(weir_type){dy->dtype, dy->shape},
                           &(weir_type){dw->dtype, dw->shape}, &r);
    const conv_sizes *s = &g.s;
    if (!args->accumulate)
        memset(dw->data, 0, (size_t)view_count(dw) * sizeof(float));
    for (int64_t i = 0; i < s->batch * s->groups && s->small; i++) {
        const int64_t outs = s->small_channels * s->small;
        const float *dy_group = real_in(dy, i * outs, outs, g.dy);
        float *dw_group = view_f32(dw) + i % s->groups * s->small_channels * g.terms;
        if (s->large_channels == 1)
            plane_add(&g, x, i * s->large, dy_group, dw_group);
        else
            product_add(&g, x, i * s->large_channels * s->large, dy_group, dw_group);
    }
    return WEIR_OK;
}
