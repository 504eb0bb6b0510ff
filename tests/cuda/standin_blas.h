/* tests/cuda/standin_blas.h: a stand-in for the calls of cuBLASLt that kernels/cuda/library.h lists, for the emulator.
 *
 * Its epilogues are those that products use (kernels/matmul/product.h), with what the documentation of cuBLAS wants of each.
 * It takes nothing for granted: types that the library has no product of, leading dimensions that do not fit, strides and
 * addresses that are not aligned as was promised when the algorithm was asked for, a workspace that is smaller than said then, and
 * descriptors that were destroyed are refused with CUBLAS_STATUS_INVALID_VALUE. A product is enqueued (standin_launch) and
 * made of plain loops, with sums in double. The library may be missing, or one of its calls (tests/cuda/standin.h). Any thread.
 */
#ifndef TESTS_CUDA_STANDIN_BLAS_H
#define TESTS_CUDA_STANDIN_BLAS_H

#include "kernels/cuda/library.h"

#endif
