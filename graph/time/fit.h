/* graph/time/fit.h: times of calls that were not measured, from calls of the same op that were.
 *
 * Calls are of one kind if their op, the dtypes of all operands, and whether they add to their output are the same. Their times follow from
 * their sizes in two steps. First, for each kind and place, times are fitted by a sum with coefficients from 0 on:
 *
 *     T = a + flops / F + bytes / B + elements of each operand + rows + elements behind the last whole vector of each row + rows that have some
 *
 * Then the call's own T is corrected by how far the measured calls nearest in size are from theirs: a mean of logarithms, weighted by the
 * inverse square of the distance, which is between the logarithms of operations and of the elements of each operand. A call beyond the
 * smallest or largest measured one by more than a factor of two gets the sum alone. If no call of its kind was measured, all of its op
 * are of one kind. With fewer than three calls there is no fit: guessed rates take its place, and the nearest calls correct them.
 *
 * Times are not made monotone in sizes, as kernels are not: a row of 40 numbers takes longer than one of 48.
 */
#ifndef GRAPH_TIME_FIT_H
#define GRAPH_TIME_FIT_H

#include "graph/time/rates.h"

#define TIME_GUESSED_FLOPS_S 1e11 /* of ops of which nothing was measured */
#define TIME_GUESSED_BYTES_S 1e10

typedef struct fits fits;

/* NULL: no memory. The rates are borrowed. */
fits *fits_new(const weir_rates *rates);
void fits_free(fits *f); /* also NULL */

/* The times of a call of this text; its flops and bytes are given. False: no call of its op was measured, or there is no memory. */
bool fits_time(fits *f, const char *text, time_call *call);

/* Seconds of a call of the op with such a cost, by the call of that op that was measured nearest to it; its operands are where as
 * many bytes have room. 0: none was measured. */
double seconds_of(const weir_rates *rates, const char *op, double flops, double bytes);

#endif
