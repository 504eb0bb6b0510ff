/* direct.c: see the header. Sums of ROWS outputs and two runs stay in registers, as in kernels/matmul/large.c. */
#include "kernels/conv/direct.h"

#include "kernels/common/unroll.h"

#include <assert.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed to a function that is not inlined */

#ifdef __AVX512F__
#define VECTOR 16 /* floats */
#define ROWS 8
#else
#define VECTOR 8
#define ROWS 6
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(VECTOR * sizeof(float))));

int64_t direct_run(const window *w)
{
    return w->stride[2] == 1 && w->small[2] % VECTOR == 0 ? VECTOR : 0;
}

/* Run r of all sums. */
INLINE void store(const direct_call *c, vector (*sum)[2], int rows, int r, float *y)
{
    UNROLL for (int i = 0; i < rows; i++, y += c->y_step) {
        vector v = {};
        if (c->add)
            memcpy(&v, y, sizeof v);
        v += sum[i][r];
        memcpy(y, &v, sizeof v);
    }
}

/* `rows` and `runs` are constants where this is inlined. */
INLINE void tile(const direct_call *c, int64_t out, const patch_run *run, int rows, int runs)
{
    vector sum[ROWS][2];
    const float *weight = c->weight + out * c->weight_step, *from[2] = {c->patches + run[0].at, c->patches + run[runs - 1].at};
    UNROLL for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = (vector){};
        __builtin_prefetch(c->y + (out + i) * c->y_step + run[0].to);
        __builtin_prefetch(c->y + (out + i) * c->y_step + run[runs - 1].to);
    }
    for (int64_t p = 0; p < c->depth; p++, weight++) {
        vector x[2];
        for (int r = 0; r < runs; r++)
            memcpy(&x[r], from[r] + c->at[p], sizeof x[r]);
        UNROLL for (int i = 0; i < rows; i++) {
            const vector each = weight[i * c->weight_step] - (vector){};
            for (int r = 0; r < runs; r++)
                sum[i][r] += each * x[r];
        }
    }
    for (int r = 0; r < runs; r++)
        store(c, sum, rows, r, c->y + out * c->y_step + run[r].to);
}

#define TILE(rows)                                                                                             \
    static void tile_##rows(const direct_call *c, int64_t out, const patch_run *run, int runs)                 \
    {                                                                                                          \
        if (runs == 2)                                                                                         \
            tile(c, out, run, rows, 2);                                                                        \
        else                                                                                                   \
            tile(c, out, run, rows, 1);                                                                        \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if ROWS == 8
TILE(7) TILE(8)
#endif

static void (*const tiles[ROWS])(const direct_call *c, int64_t out, const patch_run *run, int runs) = {
    tile_1, tile_2, tile_3, tile_4, tile_5, tile_6,
#if ROWS == 8
    tile_7, tile_8,
#endif
};

/* Outputs in parts as equal as can be: a part of one output would not hide the latency of an addition. */
void direct(const direct_call *c)
{
    const int64_t parts = (c->outs + ROWS - 1) / ROWS, height = parts ? (c->outs + parts - 1) / parts : 0;
    for (int64_t r = 0; r < c->run_count; r += 2)
        for (int64_t o = 0; o < c->outs; o += height) {
            const int64_t left = c->outs - o, count = left < height ? left : height;
            assert(count > 0 && count <= ROWS);
            tiles[count - 1](c, o, c->runs + r, r + 1 < c->run_count ? 2 : 1);
        }
}
