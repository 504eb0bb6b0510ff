/* kernels/cuda/tensor.h: products of small matrices of halves by the tensor cores: what the lanes of a warp do together.
 *
 *     tile_a   16 x 16 halves            tile_b   16 x 8 halves            tile_c   16 x 8 sums, f32
 *     tensor_add(c, a, b):   c += a b
 *
 * A lane has parts of each (mma.m16n8k16 in NVIDIA's PTX ISA). With g = lane / 4 and t = 2 * (lane % 4):
 *
 *     a   rows g, g + 8; columns t, t + 1, and 8 further     r[0]: (g, t)  r[1]: (g + 8, t)  r[2]: (g, t + 8)  r[3]: (g + 8, t + 8)
 *     b   rows t, t + 1, and 8 further; column g             r[0]: (t, g)  r[1]: (t + 8, g)
 *     c   rows g, g + 8; columns t, t + 1                    r[0], r[1]: (g, t), (g, t + 1)  r[2], r[3]: of row g + 8
 *
 * So two tiles of sums that lie beside each other, rounded to halves, are one tile_a: tile_of_sums(). Tiles come from shared
 * memory, whose rows begin at multiples of 16 bytes; `step` is how many elements they lie apart. Eight rows whose step is 8 more than a
 * multiple of 64 elements meet different banks. T is __half or __nv_bfloat16. All lanes of the warp call. Header-only; for nvcc
 * and the emulator.
 */
#ifndef KERNELS_CUDA_TENSOR_H
#define KERNELS_CUDA_TENSOR_H

#include "kernels/cuda/rows.h"

struct tile_a {
    uint32_t r[4];
};

struct tile_b {
    uint32_t r[2];
};

struct tile_c {
    float r[4];
};

DEVICE int lane_here()
{
    return (int)threadIdx.x % WARP;
}

DEVICE uint32_t half_pair(__half, float first, float second)
{
    const __half2 pair = __floats2half2_rn(first, second);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

DEVICE uint32_t half_pair(__nv_bfloat16, float first, float second)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

#ifdef WEIR_EMULATED

template <class T> static inline float half_of(uint32_t pair, int i)
{
    const uint16_t bits = (uint16_t)(pair >> i * 16);
    return std::is_same_v<T, __half> ? __half2float(__ushort_as_half(bits)) : __bfloat162float(__ushort_as_bfloat16(bits));
}

struct tensor_factors {
    tile_a a;
    tile_b b;
};

/* All of the warp calls these, from tensor_factors to tile_c. */
template <class T> static void tensor_products(const unsigned char *const *given, unsigned char *const *taken)
{
    float a[16][16], b[8][16]; /* b by columns */
    for (int lane = 0; lane < WARP; lane++) {
        const tensor_factors &have = *(const tensor_factors *)given[lane];
        const int g = lane / 4, t = 2 * (lane % 4);
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 2; i++)
                a[g + 8 * (r % 2)][t + 8 * (r / 2) + i] = half_of<T>(have.a.r[r], i);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                b[g][t + 8 * r + i] = half_of<T>(have.b.r[r], i);
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const float *row = a[lane / 4 + i / 2 * 8], *column = b[2 * (lane % 4) + i % 2];
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += row[k] * column[k];
            ((tile_c *)taken[lane])->r[i] = sum;
        }
}

template <class T> static inline void tensor_add(tile_c &c, const tile_a &a, const tile_b &b)
{
    const tensor_factors given = {a, b};
    tile_c sums;
    emulate_together(&given, sizeof given, &sums, sizeof sums, tensor_products<T>, EMULATE_HERE);
    for (int i = 0; i < 4; i++)
        c.r[i] += sums.r[i];
}

/* r[j]: of the 8 x 8 matrix whose rows are where lanes 8 j ... 8 j + 7 say. */
static inline void matrices_load(uint32_t (&r)[4], const void *row, bool across)
{
    const unsigned char *rows[WARP];
    emulate_gather(&row, sizeof row, rows, EMULATE_HERE);
    const int g = lane_here() / 4, t = 2 * (lane_here() % 4);
    for (int j = 0; j < 4; j++) {
        uint16_t x[2];
        for (int i = 0; i < 2; i++)
            memcpy(x + i, across ? rows[8 * j + t + i] + 2 * g : rows[8 * j + g] + 2 * (t + i), sizeof *x);
        memcpy(&r[j], x, sizeof x);
    }
}

#else

template <class T> DEVICE void tensor_add(tile_c &c, const tile_a &a, const tile_b &b);

template <> __device__ __forceinline__ void tensor_add<__half>(tile_c &c, const tile_a &a, const tile_b &b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}

template <> __device__ __forceinline__ void tensor_add<__nv_bfloat16>(tile_c &c, const tile_a &a, const tile_b &b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}

DEVICE void matrices_load(uint32_t (&r)[4], const void *row, bool across)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (across)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
}

#endif

/* 16 rows from `from` on, 16 columns. */
template <class T> DEVICE tile_a tile_a_load(const T *from, int step)
{
    tile_a a;
    matrices_load(a.r, from + lane_here() % 16 * step + lane_here() / 16 * 8, false);
    return a;
}

/* Two tiles of 16 x 8 beside each other, whose 16 columns are the 16 rows from `from` on. */
template <class T> DEVICE void tile_b_load_rows(const T *from, int step, tile_b (&b)[2])
{
    uint32_t r[4];
    matrices_load(r, from + (lane_here() % 8 + lane_here() / 16 * 8) * step + lane_here() / 8 % 2 * 8, false);
    b[0] = {{r[0], r[1]}};
    b[1] = {{r[2], r[3]}};
}

/* The same of the 16 rows from `from` on as they are. */
template <class T> DEVICE void tile_b_load(const T *from, int step, tile_b (&b)[2])
{
    uint32_t r[4];
    matrices_load(r, from + lane_here() % 16 * step + lane_here() / 16 * 8, true);
    b[0] = {{r[0], r[1]}};
    b[1] = {{r[2], r[3]}};
}

template <class T> DEVICE tile_a tile_of_sums(const tile_c &left, const tile_c &right)
{
    return {{half_pair(T(), left.r[0], left.r[1]), half_pair(T(), left.r[2], left.r[3]),
             half_pair(T(), right.r[0], right.r[1]), half_pair(T(), right.r[2], right.r[3])}};
}

#endif
