/* actors/keep/convert.c: numbers of other types as f32 and i32.
 *
 * Halves are taken apart by hand: a compiler's _Float16 is not everywhere, and this is done once for a file. Both kinds
 * of halves fit into f32 exactly, NaN's bits included.
 */
#include "actors/keep/convert.h"

#include "actors/keep/safetensors.h"

#include <math.h>
#include <string.h>

static int find(const char *stored)
{
    for (int i = 0; i < SAFETENSORS_DTYPES; i++)
        if (!strcmp(safetensors_dtype_name((enum safetensors_dtype)i), stored))
            return i;
    return SAFETENSORS_F32;
}

size_t keep_stored_bytes(const char *stored)
{
    return safetensors_dtype_bytes((enum safetensors_dtype)find(stored));
}

bool keep_stored_differs(const char *stored)
{
    int dtype = find(stored);
    return dtype == SAFETENSORS_F16 || dtype == SAFETENSORS_BF16 || dtype == SAFETENSORS_F64 ||
           dtype == SAFETENSORS_I64;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction. */
static float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31)
        return from_bits(sign | 0x7F800000u | fraction << 13);
    if (exponent == 0)
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static bool f64_fits(double value)
{
    return !isfinite(value) || isfinite((float)value);
}

static bool convert_f64(const double *from, size_t count, float *to)
{
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        fits &= f64_fits(from[i]);
        to[i] = (float)from[i];
    }
    return fits;
}

static bool convert_i64(const int64_t *from, size_t count, int32_t *to)
{
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        fits &= from[i] >= INT32_MIN && from[i] <= INT32_MAX;
        to[i] = (int32_t)from[i];
    }
    return fits;
}

bool keep_convert(const char *stored, const void *from, size_t count, void *to)
{
    const uint16_t *half = from;
    float *f32 = to;
    switch (find(stored)) {
    case SAFETENSORS_F16:
        for (size_t i = 0; i < count; i++)
            f32[i] = from_f16(half[i]);
        return true;
    case SAFETENSORS_BF16:
        for (size_t i = 0; i < count; i++)
            f32[i] = from_bits((uint32_t)half[i] << 16);
        return true;
    case SAFETENSORS_F64:
        return convert_f64(from, count, to);
    case SAFETENSORS_I64:
        return convert_i64(from, count, to);
    default:
        return false;
    }
}
