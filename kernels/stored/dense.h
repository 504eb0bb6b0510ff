/* kernels/stored/dense.h: y = x times the transpose of a weight of f32, f16 or bf16.
 *
 * Element i of a row is in lane i mod 16 of a sum (kernels/common/lanes.h), and the lanes are added at the end. Where x is rounded to
 * a weight of halves, it is rounded to the weight's dtype.
 */
#ifndef KERNELS_STORED_DENSE_H
#define KERNELS_STORED_DENSE_H

#include "kernels/stored/stored.h"

void dense_multiply(const stored_product *product);
size_t dense_product_bytes(const stored_weight *w, bool exact, int64_t rows);

#endif
