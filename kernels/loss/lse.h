/* kernels/loss/lse.h: the log sum exp of a row by a block of threads, and the sum of the rows' terms. Header-only; for nvcc
 * and the emulator.
 */
#ifndef KERNELS_LOSS_LSE_H
#define KERNELS_LOSS_LSE_H

#include "kernels/cuda/rows.h"
#include "kernels/loss/formula.h"

#include <float.h>

enum { LOSS_THREADS = 512, FOLD_THREADS = 256 };

/* For every thread of the block; -infinity for a row without elements. */
template <class T> DEVICE double block_lse(const T *x, int64_t count, float *part)
{
    float most = -FLT_MAX;
    thread_sum sum;
    if (!count)
        return -INFINITY;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        const float value = real_load(x + i);
        if (value > most) {
            sum.shrink(fast_exp(most - value));
            most = value;
        }
        sum.add(fast_exp(value - most));
    }
    const float all = block_max(most, part);
    return log((double)block_sum<float>(sum.all() * fast_exp(most - all), part)) + (double)all;
}

DEVICE double rows_share(const float *count, double all)
{
    return weight_of(count ? (double)*count : all);
}

/* loss = the mean of the terms over the rows that count: `count` of them, or `all` where that is NULL. */
KERNEL_OF(loss_fold, FOLD_THREADS)(const double *terms, int64_t rows, const float *count, double all, float *loss)
{
    SHARED(double, part, WARP);
    double sum = 0;
    for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
        sum += terms[row];
    sum = block_sum<double>(sum, part);
    if (threadIdx.x == 0)
        *loss = (float)(sum * rows_share(count, all));
}

#endif
