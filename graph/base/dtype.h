/* graph/base/dtype.h: single elements of any dtype as doubles, and the integers that a dtype holds.
 *
 * For code that meets every dtype and is not on the hot path: checks, starts of parameters, printed means. A double holds
 * every value of all dtypes but i64, of which it holds those up to 2^53 and rounds the others.
 *
 * Inline, so that programs and plugins have it too. Pure functions; any thread.
 */
#ifndef GRAPH_BASE_DTYPE_H
#define GRAPH_BASE_DTYPE_H

#include <weir/base.h>

/* weir_dtype_bytes(), for plugins, which see nothing of the library. */
static inline size_t dtype_bytes(weir_dtype dtype)
{
    switch (dtype) {
#define X(name, type, bytes) \
    case WEIR_##name:        \
        return bytes;
        WEIR_DTYPE_LIST(X)
#undef X
    default:
        return 0;
    }
}

/* Integers of a dtype lie in [least, end). Both are doubles without an error. Reals: 0 and 0. */
static inline double dtype_least(weir_dtype dtype)
{
    return dtype == WEIR_I64 ? -0x1p63 : dtype == WEIR_I32 ? -0x1p31 : dtype == WEIR_I8 ? -0x1p7 : 0;
}

static inline double dtype_end(weir_dtype dtype)
{
    return dtype == WEIR_I64 ? 0x1p63 : dtype == WEIR_I32 ? 0x1p31 : dtype == WEIR_I8 ? 0x1p7 : dtype == WEIR_U8 ? 0x1p8 : 0;
}

/* Element i of those at `data`. */
static inline double dtype_get(weir_dtype dtype, const void *data, int64_t i)
{
    float real;
    switch (dtype) {
    case WEIR_I64:
        return (double)((const int64_t *)data)[i];
    case WEIR_I32:
        return ((const int32_t *)data)[i];
    case WEIR_I8:
        return ((const int8_t *)data)[i];
    case WEIR_U8:
        return ((const uint8_t *)data)[i];
    default:
        weir_to_f32(dtype, (const char *)data + (size_t)i * dtype_bytes(dtype), 1, &real);
        return (double)real;
    }
}

/* `value` is one of the dtype's integers, or is rounded to one of its reals. */
static inline void dtype_set(weir_dtype dtype, void *data, int64_t i, double value)
{
    const float real = (float)value;
    switch (dtype) {
    case WEIR_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        return;
    case WEIR_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        return;
    case WEIR_I8:
        ((int8_t *)data)[i] = (int8_t)value;
        return;
    case WEIR_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        return;
    default:
        weir_from_f32(&real, 1, dtype, (char *)data + (size_t)i * dtype_bytes(dtype));
    }
}

#endif
