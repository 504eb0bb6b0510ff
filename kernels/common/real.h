/* kernels/common/real.h: operands of f32, f16 or bf16, read and written as f32.
 *
 * A kernel's formula is written once, over f32. Elements that lie there as f32 are used in their place; halves pass through a
 * block on the stack, REAL_BLOCK elements at a time, which stays in the nearest cache:
 *
 *     float x_block[REAL_BLOCK], y_block[REAL_BLOCK];
 *     for (int64_t at = 0, part; at < count; at += part) {
 *         part = real_part(args, count - at);                       // all of it, when every operand is f32
 *         const float *x = real_in(&args->in[0], at, part, x_block);
 *         float *y = real_out(&args->out[0], at, y_block);
 *         ...                                                       // y[i] = f(x[i]) for i < part
 *         real_put(&args->out[0], at, part, y);
 *     }
 *
 * So each element is rounded once, when it is stored. Header-only; owns nothing; any thread.
 *
 * A block is long enough that a call for it costs little, and short enough that the processor is at the next one's
 * loads while it still computes: with 1024 elements in place of 256, three element-wise ops over 33 MB of bf16 took 9.0
 * rather than 7.6 ms together on an EPYC (Zen 5), and 0.40 rather than 0.45 ms over 2 MB.
 */
#ifndef KERNELS_COMMON_REAL_H
#define KERNELS_COMMON_REAL_H

#include "kernels/common/view.h"

enum { REAL_BLOCK = 256 };

static inline bool dtype_half(weir_dtype dtype)
{
    return dtype == WEIR_F16 || dtype == WEIR_BF16;
}

/* Whether some operand is of halves. */
static inline bool real_halves(const weir_kernel_args *args)
{
    bool half = false;
    for (int i = 0; i < args->in_count; i++)
        half |= dtype_half(args->in[i].dtype);
    for (int i = 0; i < args->out_count; i++)
        half |= dtype_half(args->out[i].dtype);
    return half;
}

/* workspace: bytes of `rows` rows of x as f32; none for an x that is f32. */
static inline size_t real_rows_bytes(const weir_type *x, int rows)
{
    return dtype_half(x->dtype) ? (size_t)rows * (size_t)shape_last(&x->shape) * sizeof(float) : 0;
}

/* How many of the `left` elements to do at once. */
static inline int64_t real_part(const weir_kernel_args *args, int64_t left)
{
    return left > REAL_BLOCK && real_halves(args) ? REAL_BLOCK : left;
}

/* Elements [at, at + count) to be read; `block` has room for them. */
static inline const float *real_in(const weir_view *view, int64_t at, int64_t count, float *block)
{
    if (!dtype_half(view->dtype))
        return view_f32(view) + at;
    weir_to_f32(view->dtype, view_half(view) + at, count, block);
    return block;
}

/* Where elements from `at` on are to be written, before real_put() stores them. */
static inline float *real_out(const weir_view *view, int64_t at, float *block)
{
    return dtype_half(view->dtype) ? block : view_f32(view) + at;
}

static inline void real_put(const weir_view *view, int64_t at, int64_t count, const float *written)
{
    if (dtype_half(view->dtype))
        weir_from_f32(written, count, view->dtype, view_half(view) + at);
}

#endif
