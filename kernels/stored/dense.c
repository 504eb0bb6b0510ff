/* kernels/stored/dense.c: see the header. A tile is some rows of x and some of w: each vector that is loaded serves several sums. Halves
 * are widened, OUTPUTS rows of w at a time. */
#include "kernels/stored/dense.h"

#include "kernels/common/lanes.h"
#include "kernels/common/real.h"
#include "kernels/common/unroll.h"

/* Of a tile. */
#ifdef __AVX512F__
enum { ROWS = 4, OUTPUTS = 4 };
#else
enum { ROWS = 2, OUTPUTS = 2 };
#endif
enum { OUTPUTS_MAX = 4 }; /* so that the workspace is the same everywhere */

/* rows x outputs sums of `count` products; rows of a and of b lie `step` apart. */
static inline __attribute__((always_inline)) void tile(int rows, int outputs, const float *a, const float *b, int64_t step, int64_t count,
                                                       float *y, int64_t y_row)
{
    lanes sum[ROWS * OUTPUTS];
    UNROLL
    for (int s = 0; s < rows * outputs; s++)
        sum[s] = (lanes){};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes of_b[OUTPUTS];
        UNROLL
        for (int o = 0; o < outputs; o++)
            of_b[o] = lanes_load(b + o * step + i);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const lanes of_a = lanes_load(a + r * step + i);
            UNROLL
            for (int o = 0; o < outputs; o++)
                sum[r * outputs + o] += of_a * of_b[o];
        }
    }
    for (int s = 0; s < rows * outputs; s++) {
        const int r = s / outputs, o = s % outputs;
        if (i < count)
            sum[s] += lanes_load_part(a + r * step + i, count - i, 0) * lanes_load_part(b + o * step + i, count - i, 0);
        y[r * y_row + o] = lanes_sum(&sum[s]);
    }
}

/* All rows of x times `outputs` rows of w, from output `first` on. */
static inline __attribute__((always_inline)) void strip(const stored_product *p, const float *x, const float *w, int outputs, int64_t first)
{
    const int64_t in = p->w.in, out = p->w.out;
    int64_t r = 0;
    for (; r + ROWS <= p->rows; r += ROWS)
        tile(ROWS, outputs, x + r * in, w, in, in, p->y + r * out + first, out);
    for (; r < p->rows; r++)
        tile(1, outputs, x + r * in, w, in, in, p->y + r * out + first, out);
}

/* x, rounded to the weight's dtype where that is wanted. */
static const float *rounded_x(const stored_product *p)
{
    uint16_t half[REAL_BLOCK];
    const int64_t count = p->rows * p->w.in;
    float *to = p->workspace;
    if (p->exact || p->w.dtype == WEIR_F32)
        return p->x;
    for (int64_t i = 0, part; i < count; i += part) {
        part = count - i < REAL_BLOCK ? count - i : REAL_BLOCK;
        weir_from_f32(p->x + i, part, p->w.dtype, half);
        weir_to_f32(p->w.dtype, half, part, to + i);
    }
    return to;
}

static bool is_in_place(const stored_weight *w)
{
    return w->dtype == WEIR_F32 && (uintptr_t)w->at % _Alignof(float) == 0;
}

/* Rows [first, first + count) of w as f32. */
static const float *rows_of_w(const stored_weight *w, int64_t first, int64_t count, float *memory)
{
    if (is_in_place(w))
        return (const float *)(const void *)w->at + first * w->in;
    for (int64_t r = 0; r < count; r++)
        stored_read(w, first + r, 0, w->in, memory + r * w->in);
    return memory;
}

static size_t x_bytes(const stored_weight *w, bool exact, int64_t rows)
{
    return exact || w->dtype == WEIR_F32 ? 0 : ((size_t)rows * (size_t)w->in * sizeof(float) + 63) / 64 * 64;
}

size_t dense_product_bytes(const stored_weight *w, bool exact, int64_t rows)
{
    return x_bytes(w, exact, rows) + (size_t)OUTPUTS_MAX * (size_t)w->in * sizeof(float);
}

void dense_multiply(const stored_product *p)
{
    const float *x = rounded_x(p);
    float *memory = (float *)(void *)((char *)p->workspace + x_bytes(&p->w, p->exact, p->rows));
    int64_t o = 0;
    for (; o + OUTPUTS <= p->w.out; o += OUTPUTS)
        strip(p, x, rows_of_w(&p->w, o, OUTPUTS, memory), OUTPUTS, o);
    for (; o < p->w.out; o++)
        strip(p, x, rows_of_w(&p->w, o, 1, memory), 1, o);
}
