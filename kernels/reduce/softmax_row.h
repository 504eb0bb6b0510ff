/* kernels/reduce/softmax_row.h: softmax of a row of which a block of threads has the values (kernels/cuda/near.h), for the
 * kernels of softmax.cu and for chains. All threads of a block call these, or none. Header-only; for nvcc and the emulator.
 */
#ifndef KERNELS_REDUCE_SOFTMAX_ROW_H
#define KERNELS_REDUCE_SOFTMAX_ROW_H

#include "kernels/cuda/near.h"
#include "kernels/reduce/softmax.h"

struct softmax_values {
    float x[ROW_NEAR];
};

struct softmax_grad_values {
    float y[ROW_NEAR], dy[ROW_NEAR];
};

/* An element's share is fast_exp(x - most) * share. A NaN anywhere makes `share` one. */
template <class ROW> DEVICE void softmax_of_row(const ROW &row, near_parts &parts, float &most, float &share)
{
    float own = -INFINITY, all[1];
    row.each([&](const auto &at, const softmax_values &v) {
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            if (at.there(k))
                own = v.x[k] > own ? v.x[k] : own;
    });
    most = near_max(own, parts);
    row.sums(all, [&](const auto &at, const softmax_values &v, float(&sum)[1]) {
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            if (at.there(k))
                sum[0] += fast_exp(v.x[k] - most);
    });
    share = 1.0f / near_sum(all[0], parts);
}

/* The sum of y dy. */
template <class ROW> DEVICE float softmax_dot_of(const ROW &row, near_parts &parts)
{
    float all[1];
    row.sums(all, [&](const auto &at, const softmax_grad_values &v, float(&sum)[1]) {
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            if (at.there(k))
                sum[0] += v.y[k] * v.dy[k];
    });
    return near_sum(all[0], parts);
}

#endif
