/* kernels/conv/forward.c: the convolution on CPUs, in several ways.
 *
 *     few positions (less than FEW)     dot products along the window and the channels (dots.h)
 *     one channel in a group            a window over its plane (plane.h): depthwise
 *     else                              a product, weight [out, in taps] x [in taps, positions]
 *
 * The second factor of the product never exists as a whole. Block by block, the channels' patches are made (patch.h), and of these a
 * row for each tap, in the packed form that the product wants (kernels/matmul/large.h). With a stride of 1, rows that are whole
 * vectors, and not too few terms, these rows are not made: the product reads the patches (direct.h). A window of one element with a stride of 1 needs none
 * of that: the image is the second factor as it lies.
 *
 * The way is chosen by the window, the spatial sizes and the channels in a group, and each way adds in an order that depends on
 * these alone: so an element's bits do not depend on how the batch, the output channels or the groups are split.
 *
 * Halves are converted: the weight once for a call, x where patches are made, y when a group of an image is done.
 */
#include "kernels/conv/direct.h"
#include "kernels/conv/dots.h"
#include "kernels/conv/plane.h"
#include "kernels/conv/sizes.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/large.h"
#include "kernels/common/real.h"

#include <string.h>

enum { FEW = 8, PANEL_MAX = 32 /* columns of a panel */, TERMS_DIRECT = 64 /* fewer are over before the results are stored */ };

typedef enum way { WAY_DOTS, WAY_PLANE, WAY_IN_PLACE, WAY_PRODUCT } way;

/* A call and its workspace. */
typedef struct forward {
    conv_sizes s;
    way way;
    weir_dtype x_dtype, y_dtype;
    int64_t terms;      /* of an element of y */
    float *weight, *y;  /* copies in f32, of a weight and of a group of y that are halves; else NULL */
    plane_block block;  /* all positions, or some for WAY_PLANE */
    float *columns;     /* WAY_DOTS: [positions, terms] */
    bool direct;        /* WAY_PRODUCT: without rows for taps */
    int64_t *tap;
    int64_t *at;        /* then: of each term of a block, in the patches */
    patch_run *runs;
    float *patches;
    void *product;      /* the product's own */
    const void *x;      /* the call's */
    int64_t x_at;       /* element of x at which the group begins */
} forward;

static bool in_place(const conv_sizes *s, weir_dtype dtype)
{
    bool plain = dtype == WEIR_F32;
    for (int d = 0; d < WINDOW_DIMS; d++)
        plain = plain && s->w.kernel[d] == 1 && s->w.stride[d] == 1 && s->w.small[d] == s->w.large[d] && !s->w.pad[d];
    return plain;
}

static way way_of(const conv_sizes *s, weir_dtype dtype)
{
    if (s->small < FEW)
        return WAY_DOTS;
    if (s->large_channels == 1)
        return WAY_PLANE;
    return in_place(s, dtype) ? WAY_IN_PLACE : WAY_PRODUCT;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The patches of the channels that a block of the second factor is made of. Room for both forms of the product: which one is used
 * depends on the processor, and a plan may run on another one than it was made on. */
static void product_room(forward *f, room *r)
{
    const conv_sizes *s = &f->s;
    const int64_t width = least(s->small, GEMM_WIDTH);
    f->product = room_take(r, (int64_t)gemm_large_workspace(false, s->small_channels, s->small, f->terms), 1);
    if (f->way == WAY_IN_PLACE)
        return;
    const int64_t channels = least(s->large_channels, (GEMM_DEPTH - 1) / s->taps + 2);
    f->tap = room_take(r, s->taps, sizeof *f->tap);
    f->at = room_take(r, GEMM_DEPTH, sizeof *f->at);
    f->runs = room_take(r, PANEL_MAX > width ? PANEL_MAX : width, sizeof *f->runs);
    f->patches = room_take(r, room_times(channels, patch_floats(&s->w, width)), sizeof *f->patches);
}

static forward forward_of(const window_attrs *attrs, const weir_type *x, const weir_type *weight, const weir_type *y, room *r)
{
    forward f = {.s = conv_sizes_of(attrs, &x->shape, &y->shape, &weight->shape), .x_dtype = x->dtype, .y_dtype = y->dtype};
    const conv_sizes *s = &f.s;
    f.way = way_of(s, x->dtype);
    f.block.count = s->small;
    f.terms = s->large_channels * s->taps;
    f.direct = f.way == WAY_PRODUCT && f.terms >= TERMS_DIRECT && direct_run(&s->w);
    if (dtype_half(weight->dtype))
        f.weight = room_take(r, weir_shape_count(&weight->shape), sizeof *f.weight);
    if (dtype_half(y->dtype))
        f.y = room_take(r, room_times(s->small_channels, s->small), sizeof *f.y);
    if (f.way == WAY_DOTS)
        f.columns = room_take(r, room_times(s->small, f.terms), sizeof *f.columns);
    if (f.way == WAY_DOTS || f.way == WAY_PLANE)
        plane_room(r, &s->w, &f.block);
    else
        product_room(&f, r);
    return f;
}

size_t conv_workspace(const weir_op_args *args, weir_device_kind kind)
{
    room r = {0};
    if (kind == WEIR_CUDA || !weir_shape_count(&args->out[0].shape))
        return 0;
    forward_of(args->attrs, &args->in[0], &args->in[1], &args->out[0], &r);
    return r.bytes;
}

/* ---- a product ---- */

enum { VECTOR = 8 };

/* The vectors that make a row of a panel. They are copied in order, and the next one writes over what the last one has too much. */
typedef struct panel_copies {
    int64_t count, at[PANEL_MAX], to[PANEL_MAX]; /* at: in a patch, for tap 0 */
} panel_copies;

static panel_copies copies_of(const patch_run *runs, int64_t count)
{
    panel_copies c = {0};
    for (int64_t r = 0; r < count; r++)
        for (int64_t i = 0; i < runs[r].count; i += VECTOR) {
            c.at[c.count] = runs[r].at + i;
            c.to[c.count++] = runs[r].to + i;
        }
    return c;
}

/* Rows [p, p + depth) of a panel. `count` is a constant in the usual cases. */
static inline __attribute__((always_inline)) void rows_fill(const forward *f, const gemm_block *b, int64_t size,
                                                            const panel_copies *c, int64_t count, float *to)
{
    const float *channel = f->patches;
    const int64_t taps = f->s.taps;
    for (int64_t row = 0, t = b->p % taps; row < b->depth; t = 0, channel += size)
        for (; t < taps && row < b->depth; t++, row++, to += b->columns) {
            const float *from = channel + f->tap[t];
            for (int64_t i = 0; i < count; i++)
                memcpy(to + c->to[i], from + c->at[i], VECTOR * sizeof *to);
        }
}

static void panel_fill(const forward *f, const gemm_block *b, const patch *p, int64_t runs, float *to)
{
    const panel_copies c = copies_of(f->runs, runs);
    const int64_t size = patch_size(p);
    if (c.count == 2)
        rows_fill(f, b, size, &c, 2, to);
    else if (c.count == 3)
        rows_fill(f, b, size, &c, 3, to);
    else if (c.count == 4)
        rows_fill(f, b, size, &c, 4, to);
    else
        rows_fill(f, b, size, &c, c.count, to);
}

/* The patches of the channels that the block's rows are of. Both forms of the product read them. */
static void patches_make(const forward *f, const gemm_block *b, const patch *p)
{
    const int64_t taps = f->s.taps, first = b->p / taps, last = (b->p + b->depth - 1) / taps;
    patch_taps(p, f->tap);
    for (int64_t c = first; c <= last; c++) {
        float *to = f->patches + (c - first) * patch_size(p);
        patch_clear(p, to);
        patch_fill(p, f->x, f->x_at + c * f->s.large, to);
    }
}

static void block_make(void *ctx, const gemm_block *b)
{
    const forward *f = ctx;
    const patch p = patch_of(&f->s.w, b->j, b->width, f->x_dtype, 0);
    float *to = b->to;
    patches_make(f, b, &p);
    for (int64_t j = 0; j < b->width; j += b->columns, to += b->step)
        panel_fill(f, b, &p, patch_runs(&p, b->j + j, least(b->columns, b->width - j), b->columns, f->runs), to);
}

/* A block of positions and terms, added to y. */
static void direct_block(const forward *f, const float *weight, float *y, gemm_block b, bool add)
{
    const conv_sizes *s = &f->s;
    const patch p = patch_of(&s->w, b.j, b.width, f->x_dtype, 0);
    patches_make(f, &b, &p);
    for (int64_t i = 0, t = b.p % s->taps, channel = 0; i < b.depth; i++) {
        f->at[i] = channel + f->tap[t++];
        channel += t == s->taps ? patch_size(&p) : 0;
        t = t == s->taps ? 0 : t;
    }
    direct(&(direct_call){.outs = s->small_channels, .depth = b.depth, .weight = weight + b.p, .weight_step = f->terms, .patches = f->patches,
                          .at = f->at, .runs = f->runs, .run_count = patch_runs(&p, b.j, b.width, direct_run(&s->w), f->runs), .y = y + b.j,
                          .y_step = s->small, .add = add});
}

static void direct_group(const forward *f, const float *weight, const float *bias, float *y)
{
    const int64_t depth = gemm_large_depth(f->terms);
    for (int64_t j = 0; j < f->s.small; j += GEMM_WIDTH)
        for (int64_t p = 0; p < f->terms; p += depth)
            direct_block(f, weight, y, (gemm_block){.p = p, .depth = least(depth, f->terms - p), .j = j, .width = least(GEMM_WIDTH, f->s.small - j)},
                         p || bias);
}

static void product_group(forward *f, const float *weight, const float *bias, float *y)
{
    const conv_sizes *s = &f->s;
    for (int64_t o = 0; o < s->small_channels && (bias || !f->terms); o++)
        for (int64_t i = 0; i < s->small; i++)
            y[o * s->small + i] = bias ? bias[o] : 0;
    if (f->direct)
        direct_group(f, weight, bias, y);
    else if (f->terms)
        gemm_large(&(gemm_large_call){
            .m = s->small_channels, .n = s->small, .k = f->terms, .alpha = 1, .a = weight, .lda = f->terms,
            .b = f->way == WAY_IN_PLACE ? (const float *)f->x + f->x_at : NULL, .ldb = s->small, .beta = bias ? 1 : 0, .c = y,
            .ldc = s->small, .workspace = f->product, .make = f->way == WAY_IN_PLACE ? NULL : block_make, .ctx = f});
}

/* ---- a window over a plane ---- */

static void plane_group(forward *f, const float *weight, const float *bias, float *y)
{
    const conv_sizes *s = &f->s;
    const plane_block *block = &f->block;
    patch_fill(&block->p, f->x, f->x_at, block->patch);
    for (int64_t o = 0; o < s->small_channels; o++)
        plane_run(PLANE_PRODUCTS, block, weight + o * s->taps, bias ? bias[o] : 0, y + o * s->small + block->first);
}

/* ---- dot products ---- */

static void columns_fill(forward *f)
{
    const conv_sizes *s = &f->s;
    const plane_block *block = &f->block;
    for (int64_t c = 0; c < s->large_channels; c++) {
        patch_fill(&block->p, f->x, f->x_at + c * s->large, block->patch);
        for (int64_t r = 0; r < block->run_count; r++)
            for (int64_t i = 0; i < block->runs[r].count; i++) {
                const float *from = block->patch + block->runs[r].at + i;
                float *to = f->columns + (block->runs[r].to + i) * f->terms + c * s->taps;
                for (int64_t t = 0; t < s->taps; t++)
                    to[t] = from[block->tap[t]];
            }
    }
}

static void dots_group(forward *f, const float *weight, const float *bias, float *y)
{
    columns_fill(f);
    dots(f->s.small_channels, f->s.small, f->terms, weight, f->columns, bias, y, f->s.small);
}

/* ---- a call ---- */

typedef void (*group_fn)(forward *f, const float *weight, const float *bias, float *y);

/* One group of one image; `y` is its first element. */
static void group_run(forward *f, group_fn run, const weir_kernel_args *args, int64_t image, int64_t group)
{
    const conv_sizes *s = &f->s;
    const plane_block *block = &f->block;
    const int64_t outs = s->small_channels, at = (image * s->groups + group) * outs * s->small;
    const float *bias = args->in_count > 2 ? view_f32(&args->in[2]) + group * outs : NULL;
    const float *weight = (f->weight ? f->weight : view_f32(&args->in[1])) + group * outs * f->terms;
    f->x_at = (image * s->groups + group) * s->large_channels * s->large;
    run(f, weight, bias, f->y ? f->y : view_f32(&args->out[0]) + at);
    for (int64_t o = 0, first = block->first; f->y && o < outs; o++, first += s->small)
        weir_from_f32(f->y + first, block->count, f->y_dtype, view_half(&args->out[0]) + at + first);
}

static void groups_run(forward *f, group_fn run, const weir_kernel_args *args)
{
    for (int64_t image = 0; image < f->s.batch; image++)
        for (int64_t group = 0; group < f->s.groups; group++)
            group_run(f, run, args, image, group);
}

static weir_type type_of(const weir_view *view)
{
    return (weir_type){view->dtype, view->shape};
}

weir_status conv_cpu(const weir_kernel_args *args)
{
    room r = {args->workspace, 0};
    const weir_type x = type_of(&args->in[0]), weight = type_of(&args->in[1]), y = type_of(&args->out[0]);
    if (!weir_shape_count(&y.shape))
        return WEIR_OK;
    forward f = forward_of(args->attrs, &x, &weight, &y, &r);
    f.x = args->in[0].data;
    if (f.weight)
        weir_to_f32(weight.dtype, args->in[1].data, weir_shape_count(&weight.shape), f.weight);
    if (f.way == WAY_DOTS || f.way == WAY_PLANE)
        for (int64_t first = 0; first < f.s.small; first += f.block.count) {
            plane_begin(&f.block, &f.s.w, first, f.x_dtype, 0);
            groups_run(&f, f.way == WAY_DOTS ? dots_group : plane_group, args);
        }
    else
        groups_run(&f, product_group, args);
    return WEIR_OK;
}
