/* kernels/common/view.h: small helpers that kernels and op rules share. Header-only; owns nothing; any thread. */
#ifndef KERNELS_COMMON_VIEW_H
#define KERNELS_COMMON_VIEW_H

#include <stdio.h>
#include <weir/op.h>

#include "graph/base/locale.h"

static inline float *view_f32(const weir_view *view)
{
    return (float *)view->data;
}

static inline int32_t *view_i32(const weir_view *view)
{
    return (int32_t *)view->data;
}

/* f16 or bf16, as bits */
static inline uint16_t *view_half(const weir_view *view)
{
    return (uint16_t *)view->data;
}

static inline int64_t view_count(const weir_view *view)
{
    return weir_shape_count(&view->shape);
}

/* Size of the last dimension; 1 for a scalar. */
static inline int64_t shape_last(const weir_shape *shape)
{
    return shape->rank ? shape->dim[shape->rank - 1] : 1;
}

/* Elements before the last dimension. */
static inline int64_t shape_rows(const weir_shape *shape)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < shape->rank; d++)
        rows *= shape->dim[d];
    return rows;
}

/* Elements of the dimensions [first, end). */
static inline int64_t shape_size(const weir_shape *shape, int first, int end)
{
    int64_t count = 1;
    for (int d = first; d < end; d++)
        if (__builtin_mul_overflow(count, shape->dim[d], &count))
            count = INT64_MAX;
    return count;
}

static inline size_t type_bytes(const weir_type *type)
{
    return (size_t)weir_shape_count(&type->shape) * weir_dtype_bytes(type->dtype);
}

/* For infer rules: writes the sentence and returns false. */
#define REFUSE(...) (text_print(error, error_bytes, __VA_ARGS__), false)
/* For kernels: writes the sentence and returns E_KERNEL. */
#define KERNEL_FAIL(args, ...) (text_print((args)->error, (args)->error_bytes, __VA_ARGS__), WEIR_E_KERNEL)

#endif
