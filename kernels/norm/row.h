/* kernels/norm/row.h: the sums over a row that norms and their gradients need, of a row that lies with the threads of a block
 * (kernels/cuda/near.h). The kernels of norm.cu and chains call the same functions, so they give the same bits. All threads
 * of a block call one, or none does. Header-only; for nvcc and the emulator.
 */
#ifndef KERNELS_NORM_ROW_H
#define KERNELS_NORM_ROW_H

#include "kernels/cuda/near.h"
#include "kernels/norm/formula.h"

struct norm_values {
    float x[ROW_NEAR];
};

struct norm_grad_values {
    float x[ROW_NEAR], dy[ROW_NEAR], gain[ROW_NEAR];
};

/* The sum of term(x) over the row. */
template <class ROW, class F> DEVICE float norm_sum(const ROW &row, near_parts &parts, F term)
{
    float all[1];
    row.sums(all, [&](const auto &at, const norm_values &v, float(&sum)[1]) {
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            if (at.there(k))
                sum[0] += term(v.x[k]);
    });
    return near_sum(all[0], parts);
}

/* A sum that is beyond f32 is taken once more, of parts of the mean. */
template <class ROW> DEVICE float norm_mean(const ROW &row, near_parts &parts)
{
    const float count = (float)row.at.columns;
    const float sum = norm_sum(row, parts, [](float x) { return x; });
    if (isfinite(sum))
        return sum / count;
    return norm_sum(row, parts, [&](float x) { return x / count; });
}

template <class ROW> DEVICE float norm_squares(const ROW &row, near_parts &parts, float mean, float scale)
{
    return norm_sum(row, parts, [&](float x) {
        const float d = (x - mean) * scale;
        return d * d;
    });
}

/* As norm_rstd(), with a product instead of its division by the count: the reciprocal is the same for all rows. */
DEVICE float norm_row_rstd(float square_sum, float scale, int64_t count, double eps)
{
    const double per = 1 / (double)count;
    const double squares = scale == 1 ? (double)square_sum : (double)square_sum / ((double)scale * (double)scale);
    return (float)(1 / sqrt(squares * per + eps));
}

template <bool CENTRED, class ROW>
DEVICE void norm_of_row(const ROW &row, near_parts &parts, double eps, float &mean, float &rstd)
{
    mean = CENTRED ? norm_mean(row, parts) : 0;
    float squares = norm_squares(row, parts, mean, 1);
    const float scale = norm_scale(squares);
    if (scale != 1)
        squares = norm_squares(row, parts, mean, scale);
    rstd = norm_row_rstd(squares, scale, row.at.columns, eps);
}

/* Shift and tilt as norm_dx() takes them. */
template <bool CENTRED, class ROW>
DEVICE void norm_grad_of_row(const ROW &row, near_parts &parts, float mean, float rstd, float &shift, float &tilt)
{
    const float per = 1 / (float)row.at.columns;
    float all[2]; /* of g, and of g (x - mean), for g = dy gain */
    row.sums(all, [&](const auto &at, const norm_grad_values &v, float(&sum)[2]) {
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            if (at.there(k)) {
                const float g = v.dy[k] * v.gain[k];
                sum[0] += g;
                sum[1] += g * (v.x[k] - mean);
            }
    });
    if (CENTRED) {
        near_sums(all, parts);
    } else {
        all[0] = 0;
        all[1] = near_sum(all[1], parts);
    }
    shift = all[0] * per;
    if (isfinite(all[1])) {
        tilt = all[1] * rstd * per;
        return;
    }
    float xhats[1]; /* beyond f32: of xhat, which is not */
    row.sums(xhats, [&](const auto &at, const norm_grad_values &v, float(&sum)[1]) {
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            if (at.there(k))
                sum[0] += v.dy[k] * v.gain[k] * ((v.x[k] - mean) * rstd);
    });
    tilt = near_sum(xhats[0], parts) * per;
}

/* The thread's part of dx, where it has any. The row's shares of the sums over rows go to gains(k, share) and biases(k, share). */
template <bool CENTRED, class AT, class G, class B>
DEVICE void norm_dx_of(const AT &at, const norm_grad_values &v, float mean, float rstd, float shift, float tilt,
                       float (&dx)[ROW_NEAR], G gains, B biases)
{
    UNROLL
    for (int k = 0; k < ROW_NEAR; k++) {
        dx[k] = 0;
        if (at.there(k)) {
            const float xhat = (v.x[k] - mean) * rstd;
            dx[k] = norm_dx(rstd, v.dy[k], v.gain[k], shift, xhat, tilt);
            gains(k, v.dy[k] * xhat);
            if (CENTRED)
                biases(k, v.dy[k]);
        }
    }
}

#endif
