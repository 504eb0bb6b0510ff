/* apps/weir/bench/peers/blas.h: OpenBLAS and oneDNN, which `weir bench gpt` compares with. They are loaded by the first who
 * asks for them, so that no other verb needs them, starts their threads or waits for them. They stay for the life of the
 * process. One thread may load; all may call.
 */
#ifndef APPS_WEIR_BENCH_BLAS_H
#define APPS_WEIR_BENCH_BLAS_H

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>

#define BLAS_OPENBLAS(X)  \
    X(cblas_sgemm)        \
    X(openblas_set_num_threads)

#define BLAS_ONEDNN(X)                  \
    X(dnnl_sgemm)                       \
    X(dnnl_engine_create)               \
    X(dnnl_engine_destroy)              \
    X(dnnl_stream_create)               \
    X(dnnl_stream_wait)                 \
    X(dnnl_stream_destroy)              \
    X(dnnl_memory_desc_init_by_strides) \
    X(dnnl_memory_create)               \
    X(dnnl_memory_destroy)              \
    X(dnnl_matmul_desc_init)            \
    X(dnnl_primitive_desc_create)       \
    X(dnnl_primitive_desc_destroy)      \
    X(dnnl_primitive_create)            \
    X(dnnl_primitive_execute)           \
    X(dnnl_primitive_destroy)

typedef struct blas_calls {
#define X(name) __typeof__(&(name)) name;
    BLAS_OPENBLAS(X)
    BLAS_ONEDNN(X)
#undef X
    void (*omp_set_num_threads)(int); /* of oneDNN's OpenMP, for the calling thread; NULL: it has none */
} blas_calls;

/* NULL: weir_error() says which is missing, and which package has it. */
const blas_calls *blas_load(void);

#endif
