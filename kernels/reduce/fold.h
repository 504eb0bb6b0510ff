/* kernels/reduce/fold.h: sums, maxima and products over any set of dimensions.
 *
 * A sum is made in double, in memory order of its terms, and rounded once: its error does not grow with the number of terms.
 * Which elements of the input lie together depends on the innermost dimension (after nest_collapse):
 *
 *     reduced:  each row is folded to one number     [rows, n] -> [rows]      (also the fold of everything)
 *     kept:     rows are folded into one row         [rows, n] -> [n]         (a bias gradient)
 *
 * The order is fixed: same bits always.
 */
#ifndef KERNELS_REDUCE_FOLD_H
#define KERNELS_REDUCE_FOLD_H

#include <weir/op.h>

/* out = the sum of `in` over the dimensions in which `kept`, of in's rank, is 1 where in's shape is not. `out` has the
 * elements of `kept`. With `accumulate` what `out` holds is a term, too. `in` is f32, f16 or bf16. */
void fold_sum(const weir_view *in, const weir_shape *kept, float *out, bool accumulate);

/* So the maxima; -infinity of none. */
void fold_max(const weir_view *in, const weir_shape *kept, float *out);

/* So the products, each made in double in memory order of its terms; 1 of none. */
void fold_prod(const weir_view *in, const weir_shape *kept, float *out);

/* The largest element, -infinity of none. NaN is larger than everything. */
float fold_max_row(const float *x, int64_t count);

#endif
