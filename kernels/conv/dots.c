/* dots.c: see the header. A tile is 3 rows of A and up to 4 of B: 12 vectors of sums and the 4 that they are made of fill
 * the registers of AVX2.
 */
#include "kernels/conv/dots.h"

#include "kernels/common/unroll.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed to a function that is not inlined */

#define INLINE static inline __attribute__((always_inline))

enum { WIDE = 8, ROWS = 3, COLUMNS = 4 };

typedef float vector __attribute__((vector_size(WIDE * sizeof(float))));

typedef struct operands {
    int64_t k;
    const float *a, *b, *start; /* start of the tile's first row, or NULL */
    float *c;
    int64_t ldc;
} operands;

INLINE vector load(const float *from)
{
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE float sum_of(vector v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* `rows` and `columns` are constants where this is inlined. */
INLINE void tile(const operands *o, int rows, int columns)
{
    vector sum[ROWS][COLUMNS] = {0};
    int64_t i = 0;
    for (; i + WIDE <= o->k; i += WIDE) {
        vector b[COLUMNS];
        UNROLL for (int j = 0; j < columns; j++)
            b[j] = load(o->b + j * o->k + i);
        UNROLL for (int r = 0; r < rows; r++) {
            const vector a = load(o->a + r * o->k + i);
            UNROLL for (int j = 0; j < columns; j++)
                sum[r][j] += a * b[j];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) {
            float rest = o->start ? o->start[r] : 0;
            for (int64_t l = i; l < o->k; l++)
                rest += o->a[r * o->k + l] * o->b[j * o->k + l];
            o->c[r * o->ldc + j] = rest + sum_of(sum[r][j]);
        }
}

/* All rows, for a few columns. */
INLINE void strip(int64_t m, operands o, int columns)
{
    int64_t i = 0;
    for (; i + ROWS <= m; i += ROWS) {
        tile(&o, ROWS, columns);
        o.a += ROWS * o.k;
        o.c += ROWS * o.ldc;
        o.start += o.start ? ROWS : 0;
    }
    for (; i < m; i++) {
        tile(&o, 1, columns);
        o.a += o.k;
        o.c += o.ldc;
        o.start += o.start ? 1 : 0;
    }
}

void dots(int64_t m, int64_t n, int64_t k, const float *a, const float *b, const float *start, float *c, int64_t ldc)
{
    int64_t j = 0;
    for (; j + COLUMNS <= n; j += COLUMNS)
        strip(m, (operands){k, a, b + j * k, start, c + j, ldc}, COLUMNS);
    for (; j + 2 <= n; j += 2)
        strip(m, (operands){k, a, b + j * k, start, c + j, ldc}, 2);
    if (j < n)
        strip(m, (operands){k, a, b + j * k, start, c + j, ldc}, 1);
}
