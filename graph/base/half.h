/* graph/base/half.h: one f16 or bf16 as f32, and back. Many at once: weir_to_f32(), weir_from_f32() of <weir/base.h>.
 *
 * Values are their 16 bits, so that no type of a compiler's is needed. How they are rounded is told in half.c. No
 * branch that a vectoriser could not turn into a choice. Header-only; any thread.
 */
#ifndef GRAPH_BASE_HALF_H
#define GRAPH_BASE_HALF_H

#include "graph/base/formula.h"

#include <stdint.h>
#include <string.h>
#include <weir/base.h>

FORMULA uint32_t half_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FORMULA float half_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FORMULA float half_from_bf16(uint16_t half)
{
    return half_float((uint32_t)half << 16);
}

/* Half of the last digit is added, less one where the digit is even; a carry goes into the exponent as it should. */
FORMULA uint16_t half_to_bf16(float x)
{
    uint32_t bits = half_bits(x), rounded = bits + 0x7FFFu + (bits >> 16 & 1);
    uint32_t nan = bits | 0x00400000u; /* quiet */
    return (uint16_t)(((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded) >> 16);
}

/* Subnormals are fraction * 2^-24, which f32 has exactly; a NaN becomes quiet. */
FORMULA float half_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31)
        return half_float(sign | 0x7F800000u | fraction << 13 | (fraction ? 0x00400000u : 0));
    if (exponent == 0)
        return half_float(sign | half_bits((float)fraction * 0x1p-24f));
    return half_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Below 2^-14 the addition of 0.5, whose last digit is 2^-24, rounds and leaves the fraction in the low bits. */
FORMULA uint16_t half_to_f16(float x)
{
    uint32_t bits = half_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (size >> 13 & 0x3FF));
    if (size < 0x38800000u)
        return (uint16_t)(sign | (half_bits(half_float(size) + 0.5f) - half_bits(0.5f)));
    uint32_t rounded = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1)) >> 13;
    return (uint16_t)(sign | (rounded < 0x7C00u ? rounded : 0x7C00u));
}

#endif
