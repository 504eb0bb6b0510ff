/* kernels/conv/direct.h: the product of a convolution, with its second factor read where the patches lie.
 *
 *     y[o, run] = or += sum over terms p of weight[o, p] * patches[at[p] + run.at ...]
 *
 * A term is a channel and a tap: its row of the second factor is a shifted view of the channel's patch (patch.h), in which a run of
 * positions is contiguous. So no row is copied. Terms are added in parts of gemm_large_depth() (kernels/matmul/large.h), each in the
 * order of the terms. Owns nothing; any thread.
 */
#ifndef KERNELS_CONV_DIRECT_H
#define KERNELS_CONV_DIRECT_H

#include "kernels/conv/patch.h"

typedef struct direct_call {
    int64_t outs, depth;
    const float *weight; /* [outs, weight_step], from the first of the terms on */
    int64_t weight_step;
    const float *patches;
    const int64_t *at;   /* of each term */
    const patch_run *runs; /* of direct_run() positions each */
    int64_t run_count;
    float *y;            /* of the runs' first position */
    int64_t y_step;      /* between outputs */
    bool add;
} direct_call;

/* Positions that are computed at once; 0: the window is not for this. It has to have a stride of 1, and rows that are whole runs. */
int64_t direct_run(const window *w);

void direct(const direct_call *call);

#endif
