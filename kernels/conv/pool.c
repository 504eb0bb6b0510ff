/* kernels/conv/pool.c: the largest element of each window, and the average; their gradients; local response normalisation.
 *
 *     max_pool            y = the largest; NaN is larger than everything. A window of pads alone gives -infinity
 *     max_pool_grad       x, dy -> dx: dy goes to the first of the largest elements, in row-major order, which is found again
 *     average_pool        y = sum / number of elements in the window; with .count_pad pads are elements of 0
 *     average_pool_grad   dy -> dx
 *
 * An element of dx in several windows is a sum in a fixed order. Every plane is on its own, so a batch and its channels can be
 * split. x and y are f32, f16 or bf16; sums are f32, and each element is rounded once.
 */
#include "kernels/conv/plane.h"
#include "kernels/conv/scatter.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/shape/shape.h"

#include "graph/base/base.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

/* ---- rules ---- */

static bool pool_right(const weir_op_args *args, char *error, size_t error_bytes)
{
    const pool_attrs *attrs = args->attrs;
    const window_attrs *w = &attrs->window;
    const int rank = args->in[0].shape.rank;
    if (!rule_all_real(args, error, error_bytes) || !window_right(w, rank, error, error_bytes))
        return false;
    for (int d = 0; d < rank - 2; d++) {
        const int64_t span = w->dilation[d] * (w->kernel[d] - 1) + 1, most = w->pad[d] > w->pad_end[d] ? w->pad[d] : w->pad_end[d];
        if (most >= span)
            return REFUSE("a pad of %lld in dimension %d; it must be less than what the window spans, %lld", (long long)most, d + 2,
                          (long long)span);
    }
    return true;
}

static bool pool_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const pool_attrs *attrs = args->attrs;
    if (!pool_right(args, error, error_bytes))
        return false;
    args->out[0] = args->in[0];
    return window_shrinks(&attrs->window, attrs->ceil, &args->in[0].shape, &args->out[0].shape, error, error_bytes);
}

/* dy is of the shape of a pool of x. */
static bool dy_right(const weir_op_args *args, const weir_shape *x, const weir_shape *dy, char *error, size_t error_bytes)
{
    const pool_attrs *attrs = args->attrs;
    weir_shape y = *x;
    char want[RULES_SHAPE_TEXT], got[RULES_SHAPE_TEXT];
    if (!window_shrinks(&attrs->window, attrs->ceil, x, &y, error, error_bytes))
        return false;
    return weir_shape_equal(dy, &y) || REFUSE("dy has the shape %s; the pool's is %s", shape_text(dy, got, sizeof got),
                                              shape_text(&y, want, sizeof want));
}

static bool max_pool_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    args->out[0] = args->in[0];
    return pool_right(args, error, error_bytes) &&
           dy_right(args, &args->in[0].shape, &args->in[1].shape, error, error_bytes);
}

static bool average_pool_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const pool_attrs *attrs = args->attrs;
    if (!pool_right(args, error, error_bytes))
        return false;
    args->out[0] = args->in[0];
    for (int d = 2; d < args->in[0].shape.rank; d++) {
        if (attrs->size[d - 2] < 0 || attrs->size[d - 2] > INT32_MAX)
            return REFUSE(".size[%d] is %lld; it must be 0 to %d", d - 2, (long long)attrs->size[d - 2], INT32_MAX);
        args->out[0].shape.dim[d] = attrs->size[d - 2];
    }
    return dy_right(args, &args->out[0].shape, &args->in[0].shape, error, error_bytes);
}

static void max_pool_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_split_alike(args, list, 2);
}

static void max_pool_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_split_alike(args, list, 2);
    sign_linear_in(args, list, 1);
}

static void average_pool_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_split_alike(args, list, 2);
    sign_linear(args, list);
}

/* Counts the side that has a position for each window. */
static void pool_cost(const weir_op_args *args, weir_cost *cost)
{
    const pool_attrs *attrs = args->attrs;
    const int64_t a = weir_shape_count(&args->in[args->in_count - 1].shape), b = weir_shape_count(&args->out[0].shape);
    double taps = 1;
    for (int d = 0; d < args->in[0].shape.rank - 2 && d < WINDOW_DIMS; d++)
        taps *= (double)attrs->window.kernel[d];
    cost_moved(args, cost, taps * (double)(a < b ? a : b));
}

/* ---- forward ---- */

typedef struct pooling {
    window w;
    plane_block block;
    float *terms, *y; /* of a block: divisors of an average; results that are stored as halves */
} pooling;

static pooling pooling_of(const window_attrs *attrs, const weir_shape *x, const weir_type *y, room *r)
{
    pooling p = {.w = window_of(attrs, x, &y->shape)};
    const int64_t small = window_small(&p.w), count = small < PLANE_BLOCK ? small : PLANE_BLOCK;
    plane_room(r, &p.w, &p.block);
    p.terms = room_take(r, count, sizeof *p.terms);
    p.y = room_take(r, count, sizeof *p.y);
    return p;
}

static size_t pool_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const pool_attrs *attrs = args->attrs;
    room r = {0};
    if (kind == WEIR_CUDA || !weir_shape_count(&args->out[0].shape))
        return 0;
    pooling_of(&attrs->window, &args->in[0].shape, &args->out[0], &r);
    return r.bytes;
}

/* The divisors of the positions [first, first + count). */
static void terms_fill(const window *w, const pool_attrs *attrs, int rank, int64_t first, int64_t count, float *terms)
{
    int64_t position[WINDOW_DIMS];
    for (int64_t i = 0; terms && i < count; i++) { /* an analyser does not see that a call has room for them */
        window_index(w->small, first + i, position);
        terms[i] = (float)pool_terms(attrs, w, rank, position);
    }
}

/* The block's positions of one plane. */
static void plane_pool(const pooling *p, plane_fold fold, const weir_kernel_args *args, int64_t plane)
{
    const plane_block *block = &p->block;
    const weir_view *y = &args->out[0];
    const int64_t at = plane * window_small(&p->w) + block->first;
    float *to = real_out(y, at, p->y);
    patch_fill(&block->p, args->in[0].data, plane * window_large(&p->w), block->patch);
    plane_run(fold, block, NULL, fold == PLANE_MAX ? -INFINITY : 0, to);
    for (int64_t i = 0; i < block->count && fold == PLANE_SUM; i++)
        to[i] /= p->terms[i];
    real_put(y, at, block->count, to);
}

static weir_status pool_run(const weir_kernel_args *args, plane_fold fold)
{
    const pool_attrs *attrs = args->attrs;
    const weir_view *x = &args->in[0], *y = &args->out[0];
    room r = {args->workspace, 0};
    if (!view_count(y))
        return WEIR_OK;
    pooling p = pooling_of(&attrs->window, &x->shape, &(weir_type){y->dtype, y->shape}, &r);
    for (int64_t first = 0; first < window_small(&p.w); first += p.block.count) {
        plane_begin(&p.block, &p.w, first, x->dtype, fold == PLANE_MAX ? -INFINITY : 0);
        if (fold == PLANE_SUM)
            terms_fill(&p.w, attrs, x->shape.rank, first, p.block.count, p.terms);
        for (int64_t plane = 0; plane < y->shape.dim[0] * y->shape.dim[1]; plane++)
            plane_pool(&p, fold, args, plane);
    }
    return WEIR_OK;
}

static weir_status max_pool_cpu(const weir_kernel_args *args)
{
    return pool_run(args, PLANE_MAX);
}

static weir_status average_pool_cpu(const weir_kernel_args *args)
{
    return pool_run(args, PLANE_SUM);
}

/* ---- backward ---- */

/* A plane of dx, of x and of dy in f32: in the workspace where they are halves; an average's dy always. And its divisors. */
typedef struct unpooling {
    window w;
    float *dx, *x, *dy, *terms;
} unpooling;

static unpooling unpooling_of(const window_attrs *attrs, const weir_type *dx, const weir_shape *dy, room *r)
{
    unpooling u = {.w = window_of(attrs, &dx->shape, dy)};
    const int64_t large = dtype_half(dx->dtype) ? window_large(&u.w) : 0;
    u.dx = room_take(r, large, sizeof *u.dx);
    u.x = room_take(r, large, sizeof *u.x);
    u.dy = room_take(r, window_small(&u.w), sizeof *u.dy);
    u.terms = room_take(r, window_small(&u.w), sizeof *u.terms);
    return u;
}

static size_t unpool_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const pool_attrs *attrs = args->attrs;
    room r = {0};
    if (kind == WEIR_CUDA || !weir_shape_count(&args->out[0].shape))
        return 0;
    unpooling_of(&attrs->window, &args->out[0], &args->in[args->in_count - 1].shape, &r);
    return r.bytes;
}

/* The first of the largest elements of a window; -1: the window has none. */
static int64_t largest_at(const window *w, const float *x, int64_t position)
{
    int64_t index[WINDOW_DIMS], tap[WINDOW_DIMS], largest = -1;
    window_index(w->small, position, index);
    for (tap[0] = 0; tap[0] < w->kernel[0]; tap[0]++)
        for (tap[1] = 0; tap[1] < w->kernel[1]; tap[1]++)
            for (tap[2] = 0; tap[2] < w->kernel[2]; tap[2]++) {
                const int64_t at = window_at(w, index, tap);
                if (at >= 0 && (largest < 0 || pool_larger(x[at], x[largest])))
                    largest = at;
            }
    return largest;
}

static void plane_max_grad(const weir_kernel_args *args, const unpooling *u, int64_t plane, float *dx)
{
    const int64_t large = window_large(&u->w), small = window_small(&u->w);
    const float *x = real_in(&args->in[0], plane * large, large, u->x), *dy = real_in(&args->in[1], plane * small, small, u->dy);
    for (int64_t i = 0; i < small; i++) {
        const int64_t at = largest_at(&u->w, x, i);
        if (at >= 0)
            dx[at] += dy[i];
    }
}

static void plane_average_grad(const weir_kernel_args *args, const unpooling *u, int64_t plane, float *dx)
{
    const window *w = &u->w;
    const int64_t small = window_small(w);
    const float *dy = real_in(&args->in[0], plane * small, small, u->dy);
    int64_t index[WINDOW_DIMS];
    for (int64_t i = 0; u->terms && i < small; i++) /* as in terms_fill() */
        u->dy[i] = dy[i] / u->terms[i];
    for (int64_t t = 0; t < window_taps(w); t++) {
        window_index(w->kernel, t, index);
        scatter_tap(w, index, 0, small, u->dy, 1, dx);
    }
}

typedef void (*plane_grad_fn)(const weir_kernel_args *args, const unpooling *u, int64_t plane, float *dx);

static weir_status unpool_run(const weir_kernel_args *args, plane_grad_fn plane_grad)
{
    const pool_attrs *attrs = args->attrs;
    const weir_view *dx = &args->out[0];
    room r = {args->workspace, 0};
    if (!view_count(dx))
        return WEIR_OK;
    const unpooling u = unpooling_of(&attrs->window, &(weir_type){dx->dtype, dx->shape}, &args->in[args->in_count - 1].shape, &r);
    const int64_t large = window_large(&u.w);
    terms_fill(&u.w, attrs, dx->shape.rank, 0, window_small(&u.w), u.terms);
    for (int64_t plane = 0; plane < dx->shape.dim[0] * dx->shape.dim[1]; plane++) {
        float *to = real_out(dx, plane * large, u.dx);
        memset(to, 0, (size_t)large * sizeof *to);
        plane_grad(args, &u, plane, to);
        real_put(dx, plane * large, large, to);
    }
    return WEIR_OK;
}

static weir_status max_pool_grad_cpu(const weir_kernel_args *args)
{
    return unpool_run(args, plane_max_grad);
}

static weir_status average_pool_grad_cpu(const weir_kernel_args *args)
{
    return unpool_run(args, plane_average_grad);
}

static void max_pool_backward(weir_grad_args *args)
{
    weir_tensor *in[2] = {args->in[0], args->dout[0]};
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_max_pool_grad, NULL, in, 2, args->attrs}, NULL);
}

static void average_pool_backward(weir_grad_args *args)
{
    pool_attrs attrs = *(const pool_attrs *)args->attrs;
    const weir_shape x = weir_tensor_type(args->in[0]).shape;
    memcpy(attrs.size, x.dim + 2, (size_t)(x.rank - 2) * sizeof *attrs.size);
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_average_pool_grad, NULL, args->dout, 1, &attrs}, NULL);
}

/* ---- definitions ---- */

#define POOL_OP(opname, ins, infers, signs, bytes, ...)                \
    const weir_op op_##opname = {                                      \
        .name = #opname,                                               \
        .fields = pool_fields,                                         \
        .field_count = POOL_FIELDS,                                    \
        .attrs_bytes = sizeof(pool_attrs),                             \
        .in_min = ins,                                                 \
        .in_max = ins,                                                 \
        .out_count = 1,                                                \
        .infer = infers,                                               \
        .signatures = signs,                                           \
        .cost = pool_cost,                                             \
        .workspace = bytes,                                            \
        .kernel = {[WEIR_CPU] = opname##_cpu},                         \
        .half = WEIR_HALF_FOLLOW,                                      \
        __VA_ARGS__                                                    \
    };
POOL_OP(max_pool, 1, pool_infer, max_pool_signatures, pool_workspace, .grad = max_pool_backward)
POOL_OP(average_pool, 1, pool_infer, average_pool_signatures, pool_workspace, .grad = average_pool_backward)
POOL_OP(max_pool_grad, 2, max_pool_grad_infer, max_pool_grad_signatures, unpool_workspace, )
POOL_OP(average_pool_grad, 1, average_pool_grad_infer, average_pool_signatures, unpool_workspace, )

/* ---- the DSL ---- */

static weir_tensor *pool_apply(const weir_op *op, weir_tensor *x, const weir_pool_opts *opts)
{
    const bool any = x && !weir_tensor_poisoned(x), stride = opts->stride[0] || opts->stride[1] || opts->stride[2];
    const int64_t *pad_end = window_pads_end(opts->written, opts->pad, opts->pad_end);
    const pool_attrs attrs = {.window = window_options(any ? weir_tensor_type(x).shape.rank : 0, opts->kernel,
                                                       stride ? opts->stride : opts->kernel, opts->pad, pad_end, opts->dilation),
                              .ceil = opts->ceil, .count_pad = opts->count_pad};
    return weir_op_apply(&(weir_apply){opts->src, opts->name, op, NULL, &x, 1, &attrs}, NULL);
}

weir_tensor *weir_max_pool_at(weir_tensor *x, const weir_pool_opts *given)
{
    weir_pool_opts opts;
    x = op_opts(x, "max_pool", given, &opts, sizeof opts);
    if (opts.count_pad && x)
        x = weir_mistake(x, opts.src, "max_pool: .count_pad is for an average; the pads of a maximum never count");
    return pool_apply(&op_max_pool, x, &opts);
}

weir_tensor *weir_average_pool_at(weir_tensor *x, const weir_pool_opts *given)
{
    weir_pool_opts opts;
    x = op_opts(x, "average_pool", given, &opts, sizeof opts);
    return pool_apply(&op_average_pool, x, &opts);
}

/* The mean of x^2 over `size` neighbouring channels: channels are rows of a plane of their own for a pool. */
static weir_tensor *channel_mean(weir_tensor *x, int64_t size, weir_src src)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    weir_shape planes = {4, {shape.dim[0], 1, shape.dim[1], 1}};
    for (int d = 2; d < shape.rank; d++)
        planes.dim[3] *= shape.dim[d];
    weir_tensor *squares = shape_reshape(weir_mul_at(x, x, WEIR_OPTS_AT(src, weir_op_opts)), &planes, src);
    weir_tensor *mean = weir_average_pool_at(squares, WEIR_OPTS_AT(src, weir_pool_opts, .kernel = {size, 1}, .stride = {1, 1},
                                                                   .pad = {(size - 1) / 2}, .pad_end = {size / 2},
                                                                   .count_pad = true));
    return shape_reshape(mean, &shape, src);
}

static double option_or(double option, double fallback)
{
    return option || signbit(option) ? option : fallback;
}

weir_tensor *weir_lrn_at(weir_tensor *x, int64_t size, const weir_lrn_opts *given)
{
    weir_lrn_opts opts;
    x = op_opts(x, "lrn", given, &opts, sizeof opts);
    if (!x)
        return weir_mistake(NULL, opts.src, "lrn: input 0 is NULL");
    if (weir_tensor_poisoned(x))
        return x;
    if (weir_tensor_type(x).shape.rank < 2)
        return weir_mistake(x, opts.src, "lrn: x has %d dimensions; it needs a batch and channels", weir_tensor_type(x).shape.rank);
    if (size < 1 || size > INT32_MAX)
        return weir_mistake(x, opts.src, "lrn: the size is %lld; it must be at least 1", (long long)size);
    const double alpha = option_or(opts.alpha, 1e-4), beta = option_or(opts.beta, 0.75), bias = option_or(opts.bias, 1);
    weir_tensor *sum = weir_affine_at(channel_mean(x, size, opts.src), WEIR_OPTS_AT(opts.src, weir_affine_opts, alpha, bias));
    weir_tensor *power = weir_affine_at(weir_log_at(sum, WEIR_OPTS_AT(opts.src, weir_op_opts)),
                                        WEIR_OPTS_AT(opts.src, weir_affine_opts, -beta));
    return weir_mul_at(x, weir_exp_at(power, WEIR_OPTS_AT(opts.src, weir_op_opts)),
                       WEIR_OPTS_AT(opts.src, weir_op_opts, .name = opts.name));
}
