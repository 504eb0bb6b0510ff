/* kernels/attention/rope.h: the attributes of rotary positions and their angles, for all kinds of devices. Header-only; any
 * thread.
 */
#ifndef KERNELS_ATTENTION_ROPE_H
#define KERNELS_ATTENTION_ROPE_H

#include "kernels/elementwise/fastmath.h"

#include <stdbool.h>

struct rope_attrs {
    int64_t head_dim;
    int64_t rotary_dim;            /* columns of a head that turn, the first ones; even */
    int64_t interleaved;           /* a pair is (2i, 2i + 1) rather than (i, i + rotary_dim / 2) */
    int64_t inverse;               /* by the negative angle, as a gradient turns */
    int64_t original_max_position; /* 0: each frequency is divided by `factor` */
    double base, factor, low_freq_factor, high_freq_factor;
};

/* Radians from one position to the next of pair i: base^(-2i / rotary_dim). Llama 3 divides the low frequencies, which make less
 * than low_freq_factor turns over the original positions, and leaves the high ones, of more than high_freq_factor turns. */
FORMULA double rope_frequency(const struct rope_attrs *attrs, int64_t pair)
{
    const double own = pow(attrs->base, -2.0 * (double)pair / (double)attrs->rotary_dim), slow = own / attrs->factor;
    if (!attrs->original_max_position)
        return slow;
    const double turns = own * (double)attrs->original_max_position * 0.15915494309189535;
    const double share = (turns - attrs->low_freq_factor) / (attrs->high_freq_factor - attrs->low_freq_factor);
    return share <= 0 ? slow : share >= 1 ? own : (1 - share) * slow + share * own;
}

/* The cosine and the sine of an angle of any size; whole turns are taken off in double. */
FORMULA void rope_turn(double angle, bool inverse, float *cosine, float *sine)
{
    const float near = (float)(angle - fast_nearest(angle * 0.15915494309189535) * 6.283185307179586);
    *cosine = fast_cos(near);
    *sine = fast_sin(inverse ? -near : near);
}

#endif
