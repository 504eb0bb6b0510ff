/* kernels/conv/transposed.c: the transposed convolution on CPUs, which is also the gradient of a convolution by its input.
 *
 *     for each BLOCK positions of the small side, and some channels of the large one
 *         columns [channels taps, BLOCK] = weight^T small         a product
 *         large position of (position, tap) += columns            row by row
 *
 * With one small channel in a group a row of columns is the small row times a weight, and is not made. An element of the large
 * side gets its terms in the order of the blocks, and in a block in that of the taps: an order that follows from the window and
 * the spatial sizes alone.
 */
#include "kernels/conv/scatter.h"
#include "kernels/conv/sizes.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/large.h"
#include "kernels/common/real.h"

enum { BLOCK = 512, ROWS = 512 };

typedef struct transposed {
    conv_sizes s;
    int64_t block, channels;           /* positions and large channels that are done at once */
    float *weight, *small, *large;     /* copies in f32, of the weight and of a group on either side, of what is half */
    float *columns;
    void *product;
} transposed;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static transposed transposed_of(const window_attrs *attrs, const weir_type *x, const weir_type *weight, const weir_type *y,
                                room *r)
{
    transposed t = {.s = conv_sizes_of(attrs, &y->shape, &x->shape, &weight->shape)};
    const conv_sizes *s = &t.s;
    t.block = least(s->small, BLOCK);
    t.channels = least(s->large_channels, ROWS / s->taps + 1);
    if (dtype_half(weight->dtype))
        t.weight = room_take(r, weir_shape_count(&weight->shape), sizeof *t.weight);
    if (dtype_half(x->dtype))
        t.small = room_take(r, room_times(s->small_channels, s->small), sizeof *t.small);
    if (dtype_half(y->dtype))
        t.large = room_take(r, room_times(s->large_channels, s->large), sizeof *t.large);
    if (s->small_channels > 1) {
        const int64_t rows = room_times(t.channels, s->taps);
        t.columns = room_take(r, room_times(rows, t.block), sizeof *t.columns);
        t.product = room_take(r, (int64_t)gemm_large_workspace(true, rows, t.block, s->small_channels), 1);
    }
    return t;
}

size_t conv_dx_workspace(const weir_op_args *args, weir_device_kind kind)
{
    room r = {0};
    if (kind == WEIR_CUDA || !weir_shape_count(&args->out[0].shape))
        return 0;
    transposed_of(args->attrs, &args->in[0], &args->in[1], &args->out[0], &r);
    return r.bytes;
}

/* Some channels of a group of the large side, for some positions. */
static void block_add(const transposed *t, const float *weight, const float *small, int64_t first, int64_t count, int64_t channel,
                      int64_t channels, float *large)
{
    const conv_sizes *s = &t->s;
    const int64_t terms = s->large_channels * s->taps, rows = channels * s->taps;
    if (t->columns)
        gemm_large(&(gemm_large_call){.trans_a = true, .m = rows, .n = count, .k = s->small_channels, .alpha = 1,
                                      .a = weight + channel * s->taps, .lda = terms, .b = small + first, .ldb = s->small,
                                      .c = t->columns, .ldc = t->block, .workspace = t->product});
    for (int64_t row = 0; row < rows; row++) {
        int64_t tap[WINDOW_DIMS];
        window_index(s->w.kernel, row % s->taps, tap);
        scatter_tap(&s->w, tap, first, count, t->columns ? t->columns + row * t->block : small + first,
                t->columns ? 1 : weight[channel * s->taps + row], large + (channel + row / s->taps) * s->large);
    }
}

static void group_add(const transposed *t, const float *weight, const float *small, const float *bias, float *large)
{
    const conv_sizes *s = &t->s;
    for (int64_t c = 0; c < s->large_channels; c++)
        for (int64_t i = 0; i < s->large; i++)
            large[c * s->large + i] = bias ? bias[c] : 0;
    for (int64_t first = 0; first < s->small && s->small_channels; first += t->block)
        for (int64_t c = 0; c < s->large_channels; c += t->channels)
            block_add(t, weight, small, first, least(t->block, s->small - first), c, least(t->channels, s->large_channels - c),
                      large);
}


static void group_run(const transposed *t, const weir_kernel_args *args, int64_t image, int64_t group)
{
    const conv_sizes *s = &t->s;
    const weir_view *y = &args->out[0];
    const int64_t number = image * s->groups + group, smalls = s->small_channels * s->small, larges = s->large_channels * s->large;
    const int64_t weights = s->small_channels * s->large_channels * s->taps;
    const float *weight = (t->weight ? t->weight : view_f32(&args->in[1])) + group * weights;
    const float *small = real_in(&args->in[0], number * smalls, smalls, t->small);
    float *large = real_out(y, number * larges, t->large);
    group_add(t, weight, small, args->in_count > 2 ? view_f32(&args->in[2]) + group * s->large_channels : NULL, large);
    real_put(y, number * larges, larges, large);
}

weir_status conv_dx_cpu(const weir_kernel_args *args)
{
    room r = {args->workspace, 0};
    const weir_view *x = &args->in[0], *weight = &args->in[1], *y = &args->out[0];
    if (!view_count(y))
        return WEIR_OK;
    const transposed t = transposed_of(args->attrs, &(weir_type){x->dtype, x->shape}, &(weir_type){weight->dtype, weight->shape},
                                       &(weir_type){y->dtype, y->shape}, &r);
    if (t.weight)
        weir_to_f32(weight->dtype, weight->data, view_count(weight), t.weight);
    for (int64_t image = 0; image < t.s.batch; image++)
        for (int64_t group = 0; group < t.s.groups; group++)
            group_run(&t, args, image, group);
    return WEIR_OK;
}
