/* kernels/cast/formula.h: numbers to integers: what does not fit saturates, fractions are truncated towards zero, and NaN
 * becomes 0; for all kinds of devices. Any thread. */
#ifndef KERNELS_CAST_FORMULA_H
#define KERNELS_CAST_FORMULA_H

#include "graph/base/formula.h"

#include <stdint.h>

typedef struct cast_attrs {
    int64_t dtype;
} cast_attrs;

FORMULA int64_t f32_to_i64(float x)
{
    float in_range = x >= -0x1p63f && x < 0x1p63f ? x : 0;
    int64_t y = (int64_t)in_range;
    y = x >= 0x1p63f ? INT64_MAX : y;
    return x < -0x1p63f ? INT64_MIN : y;
}

FORMULA int32_t f32_to_i32(float x)
{
    float in_range = x >= -0x1p31f && x < 0x1p31f ? x : 0;
    int32_t y = (int32_t)in_range;
    y = x >= 0x1p31f ? INT32_MAX : y;
    return x < -0x1p31f ? INT32_MIN : y;
}

FORMULA int8_t f32_to_i8(float x)
{
    x = x == x ? x : 0;
    x = x > -128 ? x : -128;
    x = x < 127 ? x : 127;
    return (int8_t)(int32_t)x;
}

FORMULA uint8_t f32_to_u8(float x)
{
    x = x > 0 ? x : 0;
    x = x < 255 ? x : 255;
    return (uint8_t)(int32_t)x;
}

FORMULA int32_t i64_to_i32(int64_t x)
{
    x = x > INT32_MIN ? x : INT32_MIN;
    return (int32_t)(x < INT32_MAX ? x : INT32_MAX);
}

FORMULA uint8_t i32_to_u8(int32_t x)
{
    x = x > 0 ? x : 0;
    return (uint8_t)(x < 255 ? x : 255);
}

FORMULA int8_t i32_to_i8(int32_t x)
{
    x = x > INT8_MIN ? x : INT8_MIN;
    return (int8_t)(x < INT8_MAX ? x : INT8_MAX);
}

#endif
