/* kernels/common/lanes.h: sixteen floats at a time, for the kernels whose inner loop is a reduction.
 *
 * The compiler vectorises elementwise loops by itself, but it may not reorder a sum of floats. Here the order is
 * written down: element i goes to lane i mod 16, and the lanes are added in pairs at the end. So the result is the
 * same on every machine, whatever its vectors are. GCC turns a vector of 64 bytes into one AVX-512, two AVX or four SSE operations.
 *
 * Header-only; owns nothing; any thread. Pointers need no alignment beyond a float's.
 */
#ifndef KERNELS_COMMON_LANES_H
#define KERNELS_COMMON_LANES_H

#include <stdint.h>
#include <string.h>

/* The vectors never cross a call that is not inlined, so how they would be passed is of no interest. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define LANES 16
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Lane l of the result is lane from[l] of a, or lane from[l] - LANES of b. */
typedef int32_t lane_numbers __attribute__((vector_size(LANES * sizeof(int32_t))));
#ifdef __clang__
static inline __attribute__((always_inline)) lanes lanes_pick(lanes a, lanes b, lane_numbers from)
{
    lanes v;
    for (int l = 0; l < LANES; l++)
        v[l] = from[l] < LANES ? a[from[l]] : b[from[l] - LANES];
    return v;
}
#else
#define lanes_pick(a, b, from) __builtin_shuffle(a, b, from)
#endif

static inline __attribute__((always_inline)) lanes lanes_load(const float *from)
{
    lanes v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) void lanes_store(float *to, const lanes *v)
{
    memcpy(to, v, sizeof *v);
}

/* The first `count` < LANES elements; `rest` in the other lanes. */
static inline __attribute__((always_inline)) lanes lanes_load_part(const float *from, int64_t count, float rest)
{
    lanes v = (lanes){} + rest;
    for (int64_t i = 0; i < count; i++)
        v[i] = from[i];
    return v;
}

/* Lane l is lane l + width of v, for l < width. Uses processor registers: through memory each step would wait for the store
 * before it. */
static inline __attribute__((always_inline)) lanes lanes_upper(lanes v, int width)
{
    lane_numbers from;
    for (int l = 0; l < LANES; l++)
        from[l] = (l + width) % LANES;
    return lanes_pick(v, v, from);
}

static inline __attribute__((always_inline)) float lanes_sum(const lanes *v)
{
    lanes sum = *v;
    sum += lanes_upper(sum, 8);
    sum += lanes_upper(sum, 4);
    sum += lanes_upper(sum, 2);
    sum += lanes_upper(sum, 1);
    return sum[0];
}

/* The larger in each lane; b's where a is NaN. */
static inline __attribute__((always_inline)) lanes lanes_larger(lanes a, lanes b)
{
    const lane_numbers larger = a > b;
    return (lanes)((larger & (lane_numbers)a) | (~larger & (lane_numbers)b));
}

static inline __attribute__((always_inline)) float lanes_max(const lanes *v)
{
    lanes most = *v;
    most = lanes_larger(most, lanes_upper(most, 8));
    most = lanes_larger(most, lanes_upper(most, 4));
    most = lanes_larger(most, lanes_upper(most, 2));
    most = lanes_larger(most, lanes_upper(most, 1));
    return most[0];
}

/* A long row is summed in runs of so many elements, which are added in double: so its error does not grow with its
 * length. */
enum { ROW_RUN = 512 };

static inline int64_t row_run(int64_t left)
{
    return left < ROW_RUN ? left : ROW_RUN;
}

static inline float run_sum(const float *x, int64_t count)
{
    lanes sum[2] = {};
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        sum[0] += lanes_load(x + i);
        sum[1] += lanes_load(x + i + LANES);
    }
    for (; i + LANES <= count; i += LANES)
        sum[0] += lanes_load(x + i);
    sum[0] += sum[1] + lanes_load_part(x + i, count - i, 0);
    return lanes_sum(&sum[0]);
}

static inline float row_sum(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i += ROW_RUN)
        sum += (double)run_sum(x + i, row_run(count - i));
    return (float)sum;
}

static inline float run_dot(const float *x, const float *y, int64_t count)
{
    lanes sum[2] = {};
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        sum[0] += lanes_load(x + i) * lanes_load(y + i);
        sum[1] += lanes_load(x + i + LANES) * lanes_load(y + i + LANES);
    }
    for (; i + LANES <= count; i += LANES)
        sum[0] += lanes_load(x + i) * lanes_load(y + i);
    sum[1] += lanes_load_part(x + i, count - i, 0) * lanes_load_part(y + i, count - i, 0);
    sum[0] += sum[1];
    return lanes_sum(&sum[0]);
}

static inline float row_dot(const float *x, const float *y, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i += ROW_RUN)
        sum += (double)run_dot(x + i, y + i, row_run(count - i));
    return (float)sum;
}

/* The largest of count > 0 elements. Four vectors' worth at a time: a maximum waits for the one before it. */
static inline float row_max(const float *x, int64_t count)
{
    enum { WIDE = 4 * LANES };
    float most[WIDE];
    for (int l = 0; l < WIDE; l++)
        most[l] = x[0];
    int64_t i = 0;
    for (; i + WIDE <= count; i += WIDE)
        for (int l = 0; l < WIDE; l++)
            most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
    for (; i < count; i++)
        most[i % LANES] = x[i] > most[i % LANES] ? x[i] : most[i % LANES];
    for (int width = WIDE / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            most[l] = most[l] > most[l + width] ? most[l] : most[l + width];
    return most[0];
}

/* ---- in double ---- */

/* The sum of 16 numbers, in pairs. */
static inline double doubles_sum(double *sum)
{
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            sum[l] += sum[l + width];
    return sum[0];
}

/* sum over i of x[i], with all its digits for any count. */
static inline double row_total(const float *x, int64_t count)
{
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (double)x[i + l];
    for (; i < count; i++)
        sum[i % LANES] += (double)x[i];
    return doubles_sum(sum);
}

/* sum over i of x[i]^2: exact products, so that a norm over millions of elements keeps its digits. */
static inline double row_squares(const float *x, int64_t count)
{
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (double)x[i + l] * x[i + l];
    for (; i < count; i++)
        sum[i % LANES] += (double)x[i] * x[i];
    return doubles_sum(sum);
}

/* ---- rows to a row, in double ---- */

/* Sums over rows take one row after the other, so that they may stop at any row and go on from there with the same bits. */

/* sum[i] += row[i] */
static inline void row_add(const float *restrict row, int64_t count, double *restrict sum)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += (double)row[i];
}

enum { LANES_ROWS = 4 };

/* The same bits as row_add() for each of the rows, with a quarter of the traffic to `sum`. */
static inline void rows_add(const float *const row[LANES_ROWS], int64_t count, double *restrict sum)
{
    const float *restrict a = row[0], *restrict b = row[1], *restrict c = row[2], *restrict d = row[3];
    for (int64_t i = 0; i < count; i++)
        sum[i] = (((sum[i] + (double)a[i]) + (double)b[i]) + (double)c[i]) + (double)d[i];
}

#endif
