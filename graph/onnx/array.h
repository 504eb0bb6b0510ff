/* graph/onnx/array.h: elements of constants, read and written as numbers of C. Header-only; any thread.
 *
 *     array_real(a, i)          element i as a double; exact, but for 64-bit integers beyond 2^53
 *     array_integer(a, i)       as an int64_t; a real is cut towards zero, and saturates
 *     array_set_real(a, i, x)   rounded to the array's type as ONNX's Cast does it
 */
#ifndef GRAPH_ONNX_ARRAY_H
#define GRAPH_ONNX_ARRAY_H

#include "graph/onnx/model.h"

static inline int64_t array_count(const onnx_array *a)
{
    int64_t count = 1;
    for (int d = 0; d < a->rank; d++)
        count *= a->dim[d];
    return count;
}

static inline double array_real(const onnx_array *a, int64_t i)
{
    float value;
    switch (a->type) {
    case ONNX_FLOAT: return (double)((const float *)a->data)[i];
    case ONNX_DOUBLE: return ((const double *)a->data)[i];
    case ONNX_FLOAT16: weir_to_f32(WEIR_F16, (const uint16_t *)a->data + i, 1, &value); return (double)value;
    case ONNX_BFLOAT16: weir_to_f32(WEIR_BF16, (const uint16_t *)a->data + i, 1, &value); return (double)value;
    case ONNX_UINT8:
    case ONNX_BOOL: return ((const uint8_t *)a->data)[i];
    case ONNX_INT8: return ((const int8_t *)a->data)[i];
    case ONNX_UINT16: return ((const uint16_t *)a->data)[i];
    case ONNX_INT16: return ((const int16_t *)a->data)[i];
    case ONNX_INT32: return ((const int32_t *)a->data)[i];
    case ONNX_UINT32: return ((const uint32_t *)a->data)[i];
    case ONNX_INT64: return (double)((const int64_t *)a->data)[i];
    case ONNX_UINT64: return (double)((const uint64_t *)a->data)[i];
    default: return 0;
    }
}

static inline int64_t integer_of(double x)
{
    return x != x ? 0 : x >= 9223372036854775807.0 ? INT64_MAX : x <= -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

static inline int64_t array_integer(const onnx_array *a, int64_t i)
{
    switch (a->type) {
    case ONNX_INT64:
    case ONNX_UINT64: return ((const int64_t *)a->data)[i];
    default: return integer_of(array_real(a, i));
    }
}

static inline void array_set_integer(const onnx_array *a, int64_t i, int64_t x)
{
    void *data = (void *)(uintptr_t)a->data; /* the array is being made */
    switch (a->type) {
    case ONNX_BOOL: ((uint8_t *)data)[i] = x != 0; break;
    case ONNX_UINT8:
    case ONNX_INT8: ((uint8_t *)data)[i] = (uint8_t)x; break;
    case ONNX_UINT16:
    case ONNX_INT16: ((uint16_t *)data)[i] = (uint16_t)x; break;
    case ONNX_UINT32:
    case ONNX_INT32: ((uint32_t *)data)[i] = (uint32_t)x; break;
    default: ((int64_t *)data)[i] = x; break;
    }
}

static inline void array_set_real(const onnx_array *a, int64_t i, double x)
{
    void *data = (void *)(uintptr_t)a->data;
    const float value = (float)x;
    switch (a->type) {
    case ONNX_FLOAT: ((float *)data)[i] = value; break;
    case ONNX_DOUBLE: ((double *)data)[i] = x; break;
    case ONNX_FLOAT16: weir_from_f32(&value, 1, WEIR_F16, (uint16_t *)data + i); break;
    case ONNX_BFLOAT16: weir_from_f32(&value, 1, WEIR_BF16, (uint16_t *)data + i); break;
    case ONNX_BOOL: ((uint8_t *)data)[i] = x != 0; break;
    default: array_set_integer(a, i, integer_of(x)); break;
    }
}

/* Writes the elements of `from` to `to`, which has as many, as ONNX's Cast does. */
static inline void array_convert(const onnx_array *from, const onnx_array *to)
{
    const bool real = onnx_type_real(from->type) || onnx_type_real(to->type);
    const int64_t count = array_count(to);
    for (int64_t i = 0; i < count; i++)
        real ? array_set_real(to, i, array_real(from, i)) : array_set_integer(to, i, array_integer(from, i));
}

#endif
