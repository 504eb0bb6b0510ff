/* kernels/attention/cores.h: attention of halves by tensor cores (kernels/cuda/tensor.h), where heads and addresses allow it.
 *
 * A block has four warps; a warp has 16 rows of a tile of 64: of queries, or of keys where their gradients are made. The
 * other side goes by in tiles through shared memory. Scores and results stay in registers, as sums in f32; P and dS are
 * rounded to halves before they are multiplied on, as the library's kernels do. D is the next size of heads for which there
 * is a kernel; what is beyond the head's columns, or its rows, is 0.
 */
#ifndef KERNELS_ATTENTION_CORES_H
#define KERNELS_ATTENTION_CORES_H

#include "kernels/attention/tiles.h"
#include "kernels/cuda/tensor.h"

enum { CORES_ROWS = 64, CORES_THREADS = CORES_ROWS / 16 * WARP, CORES_HEAD_MOST = 128 };

/* Elements from one row of a tile in shared memory to the next. */
template <int D> FORMULA int cores_step()
{
    return D + 8;
}

/* Does `...` with D for heads of this size. */
#define WITH_CORES(head_dim, D, ...)    \
    do {                                \
        if ((head_dim) <= 32) {         \
            enum { D = 32 };            \
            __VA_ARGS__;                \
        } else if ((head_dim) <= 64) {  \
            enum { D = 64 };            \
            __VA_ARGS__;                \
        } else {                        \
            enum { D = 128 };           \
            __VA_ARGS__;                \
        }                               \
    } while (0)

#define WITH_HALF(dtype, T, ...)          \
    do {                                  \
        if ((dtype) == WEIR_F16) {        \
            using T = __half;             \
            __VA_ARGS__;                  \
        } else {                          \
            using T = __nv_bfloat16;      \
            __VA_ARGS__;                  \
        }                                 \
    } while (0)

/* Rows of halves, of heads of whole 16 bytes, that begin at such. */
static inline bool cores_fit(const weir_kernel_args *args, const attention_sizes &z)
{
    bool fit = args->in[0].dtype != WEIR_F32 && z.head_dim % 8 == 0 && z.head_dim <= CORES_HEAD_MOST && z.keys > 0;
    for (int i = 0; i < args->in_count; i++)
        fit &= (uintptr_t)args->in[i].data % 16 == 0;
    for (int i = 0; i < args->out_count; i++)
        fit &= (uintptr_t)args->out[i].data % 16 == 0;
    return fit;
}

/* The gradient by tensor cores; `delta` is made. */
weir_status cores_gradient(const weir_kernel_args *args, attention_sizes z, const float *delta);
weir_status cores_attention(const weir_kernel_args *args, attention_sizes z);

template <int D, class T> DEVICE void cores_load(const head_rows<const T> &from, int first, int count, T *to)
{
    UNROLL
    for (int i = (int)threadIdx.x; i < count * D / 8; i += CORES_THREADS) {
        const int row = i / (D / 8), column = i % (D / 8) * 8;
        uint4 eight = {0, 0, 0, 0};
        if (first + row < from.rows && column < from.head_dim)
            eight = *(const uint4 *)(from.at + (int64_t)(first + row) * from.dim + column);
        *(uint4 *)(to + row * cores_step<D>() + column) = eight;
    }
}

/* The warp's 16 rows of a tile in shared memory. */
template <int D, class T> DEVICE const T *cores_own(const T *tile)
{
    return tile + threadIdx.x / WARP * 16 * cores_step<D>();
}

template <int N> DEVICE void cores_clear(tile_c (&x)[N])
{
    UNROLL
    for (int n = 0; n < N; n++)
        x[n] = {{0, 0, 0, 0}};
}

template <int D, class T> DEVICE void cores_rows(const T *own, tile_a (&rows)[D / 16])
{
    UNROLL
    for (int j = 0; j < D / 16; j++)
        rows[j] = tile_a_load(own + 16 * j, cores_step<D>());
}

/* s = the warp's rows times the transposed tile of 8 N rows. */
template <class T, int D, int N> DEVICE void cores_scores(const tile_a (&rows)[D / 16], const T *tile, tile_c (&s)[N])
{
    cores_clear(s);
    UNROLL
    for (int j = 0; j < D / 16; j++) {
        UNROLL
        for (int n = 0; n < N; n += 2) {
            tile_b b[2];
            tile_b_load_rows(tile + 8 * n * cores_step<D>() + 16 * j, cores_step<D>(), b);
            tensor_add<T>(s[n], rows[j], b[0]);
            tensor_add<T>(s[n + 1], rows[j], b[1]);
        }
    }
}

/* sum += p times the tile of 8 N rows. */
template <class T, int D, int N> DEVICE void cores_add(const tile_c (&p)[N], const T *tile, tile_c (&sum)[D / 8])
{
    UNROLL
    for (int j = 0; j < N; j += 2) {
        const tile_a a = tile_of_sums<T>(p[j], p[j + 1]);
        UNROLL
        for (int n = 0; n < D / 8; n += 2) {
            tile_b b[2];
            tile_b_load(tile + 8 * j * cores_step<D>() + 8 * n, cores_step<D>(), b);
            tensor_add<T>(sum[n], a, b[0]);
            tensor_add<T>(sum[n + 1], a, b[1]);
        }
    }
}

/* The warp's rows of a result, whose tile begins at row `first`. */
template <int D, class T> DEVICE void cores_store(const head_rows<T> &to, int first, const tile_c (&x)[D / 8])
{
    const int row = first + (int)threadIdx.x / WARP * 16 + lane_here() / 4, column = 2 * (lane_here() % 4);
    UNROLL
    for (int n = 0; n < D / 8; n++) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const uint32_t two = half_pair(T(), x[n].r[2 * i], x[n].r[2 * i + 1]);
            if (row + 8 * i < to.rows && 8 * n < to.head_dim)
                *(uint32_t *)(to.at + (int64_t)(row + 8 * i) * to.dim + 8 * n + column) = two;
        }
    }
}

#endif
