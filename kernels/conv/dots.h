/* kernels/conv/dots.h: a product with few columns, as dot products along k.
 *
 *     C [m, n] = start + A [m, k] B^T          B [n, k]; start: start[i] in row i, or 0
 *
 * For convolutions with few positions: tiles of the tree's other products have 16 columns, of which most would be empty. An
 * element is summed in eight lanes along k, then the lanes in pairs: its bits depend on its row of A, its row of B and k alone.
 * Rows lie without gaps; C's rows are `ldc` elements apart. Any thread.
 */
#ifndef KERNELS_CONV_DOTS_H
#define KERNELS_CONV_DOTS_H

#include <stdint.h>

void dots(int64_t m, int64_t n, int64_t k, const float *a, const float *b, const float *start, float *c, int64_t ldc);

#endif
