/* kernels/loss/lse.h: the log sum exp of a row by a block of threads, and the sum of the rows' terms. Header-only; for
 * nvcc and the emulator.
 *
 * Thread t of a block takes runs t, t + threads, t + 2 threads ... of the row, counted from the row's first element.
 * The row's address decides only how a thread reads a run: with loads of 16 bytes, out of such loads that overlap it, or
 * element by element. A row therefore has the same log sum exp, to the last bit, at every address. If FIT is true, all
 * rows of the call begin at multiples of 16 bytes and are whole runs; other calls have kernels of their own.
 */
#ifndef KERNELS_LOSS_LSE_H
#define KERNELS_LOSS_LSE_H

#include "kernels/loss/formula.h"
#include "kernels/loss/stream.h"

#include <float.h>

enum { FOLD_THREADS = 256 };

/* A thread's largest element so far, and its sum of exp(x - most). Batches are added in double, so that a row of
 * millions loses no digits. fma() leaves nvcc no choice, in each copy of this code, whether to contract. */
struct lse_sum {
    float most = -FLT_MAX;
    double sum = 0;
    template <class T> METHOD void add(const pack<T, RUN> (&x)[IN_FLIGHT])
    {
        const float now = fmaxf(most, runs_max(x));
        float part[2] = {};
        UNROLL for (int k = 0; k < IN_FLIGHT; k++)
            UNROLL for (int j = 0; j < RUN; j += 2) {
                const float2 two = two_load(x[k].at + j);
                part[k % 2] += near_exp(two.x - now);
                part[k % 2] += near_exp(two.y - now);
            }
        sum = fma(sum, (double)near_exp(most - now), (double)(part[0] + part[1]));
        most = now;
    }
};

template <class T, bool FIT> struct logits_row {
    const T *x;
    int whole, rest; /* runs, and elements behind them */
    METHOD logits_row(const T *x, int64_t count) : x(x), whole((int)(count / RUN)), rest((int)(count % RUN)) {}
    METHOD int runs() const { return whole + (rest > 0); }
    /* Whether load() of runs `first` to `last` stays within the row. */
    METHOD bool inside(int first, int last) const { return FIT ? last < whole : first > 0 && last + 1 < whole; }
    METHOD pack<T, RUN> load(int r) const
    {
        const T *at = x + (int64_t)r * RUN;
        return FIT ? run_load(at) : run_shifted(at, (unsigned)((uintptr_t)x % 16));
    }
    /* Any run; it has -infinity, which adds nothing, in the place of elements behind the row. */
    METHOD pack<T, RUN> any(int r) const
    {
        if (inside(r, r))
            return load(r);
        if (FIT || r >= runs())
            return pack_all<T, RUN>(-INFINITY);
        return run_of(x + (int64_t)r * RUN, r < whole ? (int)RUN : rest, -INFINITY);
    }
};

/* For every thread of the block; -infinity for a row without elements. */
template <bool FIT, class T> DEVICE double block_lse(const T *x, int64_t count, float *shared)
{
    const logits_row<T, FIT> row(x, count);
    const int step = (int)blockDim.x;
    lse_sum sum;
    pack<T, RUN> some[IN_FLIGHT];
    for (int r = (int)threadIdx.x; r < row.runs(); r += IN_FLIGHT * step) {
        for (; row.inside(r, r + (IN_FLIGHT - 1) * step); r += IN_FLIGHT * step) {
            UNROLL for (int k = 0; k < IN_FLIGHT; k++)
                some[k] = row.load(r + k * step);
            sum.add(some);
        }
        if (r >= row.runs())
            break;
        UNROLL for (int k = 0; k < IN_FLIGHT; k++)
            some[k] = row.any(r + k * step);
        sum.add(some);
    }
    const float most = block_max(sum.most, shared);
    return log((double)block_sum<float>((float)sum.sum * near_exp(sum.most - most), shared)) + (double)most;
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
