/* kernels/stored/rounded.c: see the header. */
#include "kernels/stored/rounded.h"

#include "graph/base/half.h"

#include <math.h>
#include <stddef.h>

static size_t round_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t rounded_bytes(const block_format *format, int64_t rows, int64_t in)
{
    const size_t count = (size_t)rows * (size_t)in;
    return round_up(count) + round_up(count / (size_t)format->unit * sizeof(rounded_unit));
}

/* The bits of the largest |x|; NaN is larger than infinity, and that than all others. */
static int32_t largest_bits(const float *x)
{
    int32_t most = 0;
    for (int i = 0; i < ROUNDED_ELEMENTS; i++) {
        const int32_t size = (int32_t)(half_bits(x[i]) & 0x7FFFFFFF);
        most = size > most ? size : most;
    }
    return most;
}

/* Rounds 32 elements; returns their scale. */
static float round_elements(const float *x, int8_t *q)
{
    enum { INFINITE = 0x7F800000 };
    const int32_t bits = largest_bits(x);
    const float largest = half_float((uint32_t)bits), by = bits < INFINITE && largest >= 1e-30F ? 127 / largest : 0;
    float whole[ROUNDED_ELEMENTS];
    for (int i = 0; i < ROUNDED_ELEMENTS; i++)
        whole[i] = by > 0 ? __builtin_rintf(x[i] * by) : 0;
    for (int i = 0; i < ROUNDED_ELEMENTS; i++)
        q[i] = (int8_t)(int32_t)whole[i];
    return bits >= INFINITE ? NAN : by > 0 ? largest / 127 : 0;
}

static void sum_units(const block_format *format, float scale, const int8_t *q, rounded_unit *to)
{
    for (int from = 0; from < ROUNDED_ELEMENTS; from += format->unit, to++) {
        int32_t sum = 0;
        for (int i = 0; i < format->unit; i++)
            sum += q[from + i];
        to->scale = scale;
        if (format->minimum)
            to->mass = scale * (float)sum;
        else
            to->start = -format->zero * sum;
    }
}

rounded_rows rounded_make(const block_format *format, int64_t rows, int64_t in, const float *x, void *memory)
{
    const int64_t count = rows * in;
    const rounded_rows to = {format, in, memory, (rounded_unit *)(void *)((char *)memory + round_up((size_t)count))};
    for (int64_t i = 0; i < count; i += ROUNDED_ELEMENTS)
        sum_units(format, round_elements(x + i, to.q + i), to.q + i, to.units + i / format->unit);
    return to;
}
