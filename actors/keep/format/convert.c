/* actors/keep/format/convert.c: numbers of other types as f32 and i32.
 */
#include "actors/keep/format/convert.h"

#include "actors/keep/format/safetensors.h"

#include <weir/base.h>

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

bool keep_stored_may_not_fit(const char *stored, weir_dtype dtype)
{
    const int from = find(stored);
    return from == SAFETENSORS_F64 || (from == SAFETENSORS_I64 && dtype == WEIR_I32);
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
    switch (find(stored)) {
    case SAFETENSORS_F16:
    case SAFETENSORS_BF16:
        weir_to_f32(safetensors_dtype_read_as((enum safetensors_dtype)find(stored)), from, (int64_t)count, to);
        return true;
    case SAFETENSORS_F64:
        return convert_f64(from, count, to);
    case SAFETENSORS_I64:
        return convert_i64(from, count, to);
    default:
        return false;
    }
}
