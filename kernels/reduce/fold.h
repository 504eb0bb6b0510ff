/* kernels/reduce/fold.h: sums and maxima over any set of dimensions.
 *
 * A fold walks its input once, in memory order. What the walk is depends on the innermost dimension (after
 * nest_collapse):
 *
 *     reduced:  each row is folded to one number     [rows, n] -> [rows]      (also the fold of everything)
 *     kept:     rows are folded into one row         [rows, n] -> [n]         (a bias gradient)
 *
 * Sums are of floats, but in two levels (a block of a row, or of rows, is summed by itself first), so that the error
 * grows with the block and with the number of blocks and not with their product. The order is fixed: same bits always.
 */
#ifndef KERNELS_REDUCE_FOLD_H
#define KERNELS_REDUCE_FOLD_H

#include <weir/op.h>

typedef enum fold_kind { FOLD_SUM, FOLD_MAX } fold_kind;

/* out = the fold of `in` over the dimensions in which `kept`, of in's rank, is 1 where in's shape is not. `out` has the
 * elements of `kept`. With `accumulate` what `out` holds is folded in too; else an empty fold is 0 or -infinity. `in`
 * is f32, f16 or bf16. */
void fold(fold_kind kind, const weir_view *in, const weir_shape *kept, float *out, bool accumulate);

/* The largest element, -infinity of none. NaN is larger than everything. */
float fold_max_row(const float *x, int64_t count);

#endif
