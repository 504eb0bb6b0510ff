/* kernels/cuda/library.h: the calls of cuBLASLt that products use, found when the first product is made.
 *
 * Nothing is linked with the library: who has no products needs none, and what is missing is told as one sentence. Under the
 * emulator the calls are those of a stand-in (tests/cuda/standin_blas.h). The table is filled once and stays; any thread.
 */
#ifndef KERNELS_CUDA_LIBRARY_H
#define KERNELS_CUDA_LIBRARY_H

#include <cublasLt.h>

#include <weir/op.h>

#define BLAS_CALLS(X)                                                                                          \
    X(Create) X(MatmulDescCreate) X(MatmulDescDestroy) X(MatmulDescSetAttribute) X(MatrixLayoutCreate)         \
    X(MatrixLayoutDestroy) X(MatrixLayoutSetAttribute) X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy)    \
    X(MatmulPreferenceSetAttribute) X(MatmulAlgoGetHeuristic) X(Matmul)

struct blas_calls {
#define X(name) decltype(&cublasLt##name) name;
    BLAS_CALLS(X)
#undef X
};

/* Filling the table: the library, or NULL and why not; and one of its calls. */
extern "C" void *blas_open(char *why, size_t bytes);
extern "C" void *blas_call(void *library, const char *name);

/* NULL, with a sentence in args->error, where the library is not there or lacks a call. Borrowed, for good. */
const blas_calls *blas_library(const weir_kernel_args *args);

#endif
