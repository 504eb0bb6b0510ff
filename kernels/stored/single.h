/* kernels/stored/single.h: blocks of a weight times a single row of bytes.
 *
 * The outputs have the bits of panels (sums.h), and take half of the time: 16 rows of the weight are taken apart and multiplied block by
 * block, in registers, and so the product is as fast as the weight is read.
 */
#ifndef KERNELS_STORED_SINGLE_H
#define KERNELS_STORED_SINGLE_H

#include "kernels/stored/rounded.h"
#include "kernels/stored/stored.h"

/* The first outputs of x's only row, in whole groups of 16. Returns their number: 0 where there are no vectors (vectors.h). */
int64_t single_multiply(const stored_weight *w, const rounded_rows *x, float *y);

#endif
