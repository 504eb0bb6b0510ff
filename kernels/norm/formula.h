/* kernels/norm/formula.h: what layernorm, rmsnorm and their gradients compute for an element, given the sums of its row; for
 * all kinds of devices. See norm.c for the derivation. Pure functions; any thread.
 */
#ifndef KERNELS_NORM_FORMULA_H
#define KERNELS_NORM_FORMULA_H

#include "graph/base/formula.h"

#include <math.h>
#include <stdint.h>

struct norm_attrs {
    double eps;
};

/* A row's sum of squares of x - mean is taken first as it is. Where it is beyond f32, or so small that squares were lost,
 * it is taken once more, of (x - mean) scale; 1: it is good. A power of two, so scaling rounds nothing. */
FORMULA float norm_scale(float square_sum)
{
    return square_sum > 0x1p100f ? 0x1p-80f : square_sum < 0x1p-100f ? 0x1p80f : 1.0f;
}

FORMULA float norm_rstd(float square_sum, float scale, int64_t count, double eps)
{
    const double squares = (double)square_sum / ((double)scale * (double)scale);
    return (float)(1 / sqrt(squares / (double)count + eps));
}

FORMULA float layernorm_value(float x, float mean, float rstd, float gain, float bias)
{
    return (x - mean) * rstd * gain + bias;
}

FORMULA float rmsnorm_value(float x, float rstd, float gain)
{
    return x * rstd * gain;
}

/* dx, for shift = sum(g) / C (0 for rmsnorm) and tilt = sum(g xhat) / C with g = dy gain. */
FORMULA float norm_dx(float rstd, float dy, float gain, float shift, float xhat, float tilt)
{
    return rstd * (dy * gain - shift - xhat * tilt);
}

#endif
