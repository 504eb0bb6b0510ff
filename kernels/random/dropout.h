/* kernels/random/dropout.h: which elements dropout keeps, and what it makes of them; for all kinds of devices. dropout.c says
 * which word an element draws. Pure functions; any thread.
 */
#ifndef KERNELS_RANDOM_DROPOUT_H
#define KERNELS_RANDOM_DROPOUT_H

#include "kernels/random/philox.h"

enum { GROUP = 4 * PHILOX_LANES };

typedef struct dropout_attrs {
    double rate;
} dropout_attrs;

FORMULA float dropout_scale(const dropout_attrs *attrs)
{
    return (float)(1 / (1 - attrs->rate));
}

/* An element is kept when its word is not below. */
FORMULA uint32_t dropout_threshold(const dropout_attrs *attrs)
{
    double words = attrs->rate * 0x1p32;
    return words < UINT32_MAX ? (uint32_t)words : UINT32_MAX;
}

/* The counter and the word of Philox that logical element g draws. */
FORMULA uint64_t dropout_counter(uint64_t g)
{
    return g / GROUP * PHILOX_LANES + g % PHILOX_LANES;
}

FORMULA int dropout_word(uint64_t g)
{
    return (int)(g / PHILOX_LANES % 4);
}

FORMULA float dropout_value(float x, float scale, bool kept)
{
    return kept ? x * scale : 0;
}

#endif
