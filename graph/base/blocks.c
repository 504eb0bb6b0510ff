/* graph/base/blocks.c: see the header. In reading, where a sum follows a product, the product is exact in f32: f16 has 11 bits, and the
 * integers that it is multiplied by have 10 together. So a compiler that joins the two into one instruction changes no bit. */
#include "graph/base/blocks.h"

#include <math.h>
#include <string.h>

weir_format block_format_named(const char *name)
{
    for (int i = WEIR_DENSE + 1; block_format_of(i); i++)
        if (!strcmp(block_format_of(i)->name, name))
            return (weir_format)i;
    return WEIR_DENSE;
}

void block_read(weir_format format, const unsigned char *block, float *to)
{
    const block_format *is = block_format_of(format);
    block_unit unit;
    for (int u = 0; u < is->elements / is->unit; u++, to += is->unit) {
        block_unit_read(format, block, u, &unit);
        if (is->minimum)
            for (int i = 0; i < is->unit; i++)
                to[i] = unit.scale * (float)unit.q[i] + unit.minimum;
        else
            for (int i = 0; i < is->unit; i++)
                to[i] = unit.scale * (float)(unit.q[i] - is->zero);
    }
}

void block_read_row(weir_format format, const unsigned char *row, int64_t from, int64_t count, float *to)
{
    const block_format *is = block_format_of(format);
    float part[BLOCK_ELEMENTS_MAX];
    for (int64_t some; count > 0; from += some, to += some, count -= some) {
        const int64_t skip = from % is->elements;
        const unsigned char *block = row + from / is->elements * is->bytes;
        some = is->elements - skip < count ? is->elements - skip : count;
        block_read(format, block, some == is->elements ? to : part);
        if (some < is->elements)
            memcpy(to, part + skip, (size_t)some * sizeof *to);
    }
}

/* ---- writing ---- */

/* The first element of the greatest size. NaN: an element is not finite. */
static float greatest(const float *from)
{
    float most = 0;
    for (int i = 0; i < 32; i++) {
        if (!isfinite(from[i]))
            return NAN;
        most = fabsf(from[i]) > fabsf(most) ? from[i] : most;
    }
    return most;
}

/* Writes the scale; false: f16 does not hold it. *by is what elements are multiplied with. */
static bool put_scale(float scale, unsigned char *to, float *by)
{
    const uint16_t half = half_to_f16(scale);
    memcpy(to, &half, sizeof half);
    *by = scale != 0 && isfinite(1 / scale) ? 1 / scale : 0;
    return isfinite(half_from_f16(half));
}

/* The product is rounded before 8.5 is added. It is volatile, as a compiler would join the two into one instruction otherwise. */
static unsigned char four_bits(float x, float by)
{
    const volatile float product = x * by;
    const int q = (int)(product + 8.5f);
    return (unsigned char)(q < 15 ? q : 15);
}

static bool write_q4_0(const float *from, unsigned char *to)
{
    float by;
    if (!put_scale(greatest(from) / -8, to, &by))
        return false;
    for (int i = 0; i < 16; i++)
        to[2 + i] = (unsigned char)(four_bits(from[i], by) | four_bits(from[i + 16], by) << 4);
    return true;
}

static bool write_q8_0(const float *from, unsigned char *to)
{
    float by;
    if (!put_scale(fabsf(greatest(from)) / 127, to, &by))
        return false;
    for (int i = 0; i < 32; i++)
        to[2 + i] = (unsigned char)(signed char)roundf(from[i] * by);
    return true;
}

bool block_write_row(weir_format format, const float *from, int64_t count, unsigned char *to)
{
    const block_format *is = block_format_of(format);
    bool ok = true;
    for (int64_t i = 0; i < count / is->elements && ok; i++)
        ok = (format == WEIR_Q4_0 ? write_q4_0 : write_q8_0)(from + i * is->elements, to + i * is->bytes);
    return ok;
}
