/* graph/base/formula.h: FORMULA, before a function that computes what one element, one row or one call of an op is made of.
 *
 * Such functions are compiled three times: as C for the CPU's kernels, as C++ by nvcc for those on a GPU, and as C++ for
 * the host by which the latter are tried without a GPU. So they are plain arithmetic in what C17 and C++17 share, with no
 * call but of libm. Where the two processors may fuse other products and sums, the last bit may differ. Header-only; owns
 * nothing; any thread.
 */
#ifndef GRAPH_BASE_FORMULA_H
#define GRAPH_BASE_FORMULA_H

#ifdef __CUDACC__
#define FORMULA static __host__ __device__ inline
#else
#define FORMULA static inline
#endif

#endif
