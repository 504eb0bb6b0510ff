/* apps/weir/bench/stored.c: `weir bench stored`.
 *
 * The kernel of weir_linear_stored() by itself, on this thread: weights of 1,536 rows of 768 elements in each format, with 1, 8 and 128
 * rows of x. There are so many weights, taken in turns, that no cache has them all: so one row is bound by reading them, and many rows by
 * arithmetic. Beside it, how fast this thread reads as many bytes and does nothing else with them.
 */
#include "apps/weir/bench/stored.h"

#include "apps/common/measure.h"
#include "graph/base/base.h"
#include "graph/base/blocks.h"
#include "graph/base/error.h"
#include "kernels/common/ops.h"
#include "kernels/stored/stored.h"

#include <stdlib.h>
#include <string.h>

enum { OUT = 1536, IN = 768, WEIGHT_BYTES = 192 << 20, ROUNDS = 5, ROWS_MAX = 128 };

static const struct kind {
    weir_format format;
    weir_dtype dtype;
    const char *name;
} kinds[] = {{WEIR_Q4_0, WEIR_U8, "q4_0"}, {WEIR_Q4_1, WEIR_U8, "q4_1"}, {WEIR_Q5_0, WEIR_U8, "q5_0"}, {WEIR_Q5_1, WEIR_U8, "q5_1"},
             {WEIR_Q8_0, WEIR_U8, "q8_0"}, {WEIR_Q4_K, WEIR_U8, "q4_k"}, {WEIR_Q6_K, WEIR_U8, "q6_k"},
             {WEIR_DENSE, WEIR_BF16, "bf16"}, {WEIR_DENSE, WEIR_F32, "f32"}};
static const int row_counts[] = {1, 8, ROWS_MAX};
enum { KINDS = sizeof kinds / sizeof *kinds, COUNTS = sizeof row_counts / sizeof *row_counts };

/* Owned. */
typedef struct memory {
    unsigned char *weights;
    float *x, *y;
    void *workspace;
} memory;

static weir_shape shape_of(const struct kind *k)
{
    const block_format *is = block_format_of(k->format);
    return is ? (weir_shape){3, {OUT, IN / is->elements, is->bytes}} : (weir_shape){2, {OUT, IN}};
}

/* Seconds of a call, the best of some rounds. A round takes each weight once, or with ROWS_MAX rows an eighth of them. 0: no memory */
static double seconds_of(const struct kind *k, int rows, int rounds, memory *m)
{
    const struct stored_attrs attrs = {k->format, false};
    const weir_shape shape = shape_of(k), x = {2, {rows, IN}}, y = {2, {rows, OUT}};
    const weir_type in[] = {{WEIR_F32, x}, {k->dtype, shape}};
    weir_type out = {WEIR_F32, y};
    const int64_t bytes = weir_shape_count(&shape) * (int64_t)weir_dtype_bytes(k->dtype), weights = WEIGHT_BYTES / bytes;
    const int64_t calls = rows == ROWS_MAX ? weights / 8 + 1 : weights;
    const size_t room = op_linear_stored.workspace(&(weir_op_args){&op_linear_stored, in, 2, &out, 1, &attrs}, WEIR_CPU);
    double best = 0;
    free(m->workspace);
    m->workspace = aligned_alloc(64, (room + 63) / 64 * 64);
    for (int round = 0; m->workspace && round < rounds; round++) {
        const double start = measure_seconds();
        for (int64_t i = 0; i < calls; i++) {
            const weir_view views[] = {{.data = m->x, .dtype = WEIR_F32, .shape = x, .global = x},
                                       {.data = m->weights + i * bytes, .dtype = k->dtype, .shape = shape, .global = shape}};
            const weir_view result = {.data = m->y, .dtype = WEIR_F32, .shape = y, .global = y};
            op_kernel(&op_linear_stored, WEIR_CPU)(&(weir_kernel_args){.in = views, .in_count = 2, .out = &result, .out_count = 1,
                                                                      .attrs = &attrs, .workspace = m->workspace, .workspace_bytes = room});
        }
        const double seconds = (measure_seconds() - start) / (double)calls;
        best = !round || seconds < best ? seconds : best;
    }
    return best;
}

/* Bytes a second. */
static double reading_rate(const memory *m, int rounds)
{
    double best = 0;
    uint64_t sum[8] = {0}, word[8];
    for (int round = 0; round < rounds; round++) {
        const double start = measure_seconds();
        for (size_t i = 0; i < WEIGHT_BYTES; i += sizeof word) {
            memcpy(word, m->weights + i, sizeof word);
            for (int k = 0; k < 8; k++)
                sum[k] += word[k];
        }
        const double rate = WEIGHT_BYTES / (measure_seconds() - start);
        best = rate > best ? rate : best;
    }
    for (int k = 1; k < 8; k++)
        sum[0] += sum[k];
    m->y[0] = (float)sum[0]; /* so that it is read */
    return best;
}

static void write_one(bool json, const struct kind *k, int rows, double seconds, FILE *to)
{
    const weir_shape shape = shape_of(k);
    const double bytes = (double)weir_shape_count(&shape) * (double)weir_dtype_bytes(k->dtype), terms = (double)rows * OUT * IN;
    if (json)
        fprintf(to, ", \"%s_%d_gmacs\": %.2f, \"%s_%d_gb_s\": %.3f", k->name, rows, terms / seconds / 1e9, k->name, rows, bytes / seconds / 1e9);
    else
        fprintf(to, "%-5s %4d row%s %9.1f us, %7.1f G multiply-adds/s, %6.2f GB/s of the weight\n", k->name, rows, rows == 1 ? ": " : "s:",
                1e6 * seconds, terms / seconds / 1e9, bytes / seconds / 1e9);
}

/* Bytes of which no f16 is infinite or NaN, and no f32 subnormal: a step with one of these takes a hundred times as long. */
static bool fill(memory *m)
{
    m->weights = malloc(WEIGHT_BYTES);
    m->x = malloc(ROWS_MAX * IN * sizeof *m->x);
    m->y = malloc(ROWS_MAX * OUT * sizeof *m->y);
    if (!m->weights || !m->x || !m->y)
        return false;
    for (size_t i = 0; i < WEIGHT_BYTES; i++)
        m->weights[i] = (unsigned char)(8 + i * 37 % 53);
    for (int i = 0; i < ROWS_MAX * IN; i++)
        m->x[i] = weir_random_normal(1, (uint64_t)i);
    return true;
}

static void free_all(memory *m)
{
    free(m->weights);
    free(m->x);
    free(m->y);
    free(m->workspace);
}

weir_status bench_stored(bool json, bool quick, FILE *to)
{
    memory m = {0};
    const int rounds = quick ? 1 : ROUNDS;
    const char *level;
    if (op_level(&level))
        return WEIR_E_ARGUMENT;
    bool ok = fill(&m);
    if (ok)
        fprintf(to, json ? "{\"reads_gb_s\": %.2f" : "reads alone: %.2f GB/s\n", reading_rate(&m, rounds) / 1e9);
    for (int i = 0; ok && i < KINDS * COUNTS; i++) {
        const double seconds = seconds_of(&kinds[i / COUNTS], row_counts[i % COUNTS], rounds, &m);
        ok = seconds > 0;
        if (ok)
            write_one(json, &kinds[i / COUNTS], row_counts[i % COUNTS], seconds, to);
    }
    if (ok && json)
        fprintf(to, "}\n");
    free_all(&m);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "stored: no memory for %d MiB of weights and a workspace", WEIGHT_BYTES >> 20);
}
