/* apps/weir/bench/peers/sgemm.c: how fast this machine's BLAS multiplies the matrices of a GPT.
 *
 * The threads of a round meet at a barrier before each product, so that they compete for caches and clocks as the
 * devices of a step do; a product's time is that of the slower thread. oneDNN runs on OpenMP: each thread tells it to
 * use no other.
 */
#include "apps/weir/bench/peers/sgemm.h"
#include "apps/common/measure.h"
#include "apps/weir/bench/peers/half.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "graph/base/error.h"

/* ---- shapes ---- */

/* The three products of a linear layer in -> out, seen from `rows` rows. */
static bench_shape *add_linear(bench_shape *at, int64_t rows, int64_t in, int64_t out, double count)
{
    *at++ = (bench_shape){false, false, rows, out, in, count};
    *at++ = (bench_shape){false, true, rows, in, out, count};
    *at++ = (bench_shape){true, false, in, out, rows, count};
    return at;
}

static double shape_flops(const bench_shape *s)
{
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

/* OpenMP's setting is one per thread. */
static void one_thread_each(const blas_calls *calls)
{
    if (calls->omp_set_num_threads)
        calls->omp_set_num_threads(1);
    calls->openblas_set_num_threads(1);
}

/* ---- life ---- */

static float *filled(int64_t count, uint64_t key)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; x && i < count; i++)
        x[i] = weir_random_uniform(key, (uint64_t)i) - 0.5f;
    return x;
}

/* The largest operand: the rows, or the weight, of the widest layer. */
static int64_t operand_count(const bench_shape *shape)
{
    int64_t most = 0;
    for (int i = 0; i < BENCH_SGEMM_SHAPES; i++) {
        const bench_shape *s = &shape[i];
        int64_t count[3] = {s->m * s->k, s->k * s->n, s->m * s->n};
        for (int j = 0; j < 3; j++)
            most = count[j] > most ? count[j] : most;
    }
    return most;
}

static bool half_open(bench_sgemm *bench)
{
    half_shape shape[BENCH_SGEMM_SHAPES];
    for (int i = 0; i < BENCH_SGEMM_SHAPES; i++)
        shape[i] = (half_shape){bench->shape[i].trans_a, bench->shape[i].trans_b, bench->shape[i].m, bench->shape[i].n,
                                bench->shape[i].k};
    one_thread_each(bench->calls);
    for (int t = 0; t < bench->threads; t++)
        if (!(bench->half[t] = half_bench_new(bench->calls, shape, BENCH_SGEMM_SHAPES)))
            return false;
    return true;
}

weir_status bench_sgemm_open(bench_sgemm *bench, int threads, int layers, int dim, int vocab, int64_t rows, bool bf16)
{
    *bench = (bench_sgemm){.calls = blas_load()};
    if (!bench->calls)
        return WEIR_E_UNSUPPORTED;
    bench->threads = threads;
    bench_shape *at = bench->shape;
    at = add_linear(at, rows, dim, dim, 4 * layers);
    at = add_linear(at, rows, dim, 4 * dim, layers);
    at = add_linear(at, rows, 4 * dim, dim, layers);
    add_linear(at, rows, dim, vocab, 1);
    bool ok = true;
    for (int t = 0; t < threads; t++)
        for (int j = 0; j < 3; j++)
            ok &= (bench->buffer[t][j] = filled(operand_count(bench->shape), (uint64_t)(3 * t + j))) != NULL;
    if (!ok)
        return error_set(WEIR_E_MEMORY, "no memory for matrices to compare with");
    if (bf16 && !half_open(bench))
        return error_set(WEIR_E_UNSUPPORTED, "oneDNN has no product in bf16 here, or no memory for one");
    return WEIR_OK;
}

void bench_sgemm_close(bench_sgemm *bench)
{
    for (int t = 0; t < bench->threads; t++) {
        half_bench_free(bench->half[t]);
        for (int j = 0; j < 3; j++)
            free(bench->buffer[t][j]);
    }
    *bench = (bench_sgemm){0};
}

/* ---- one product ---- */

typedef struct product {
    const blas_calls *calls;
    bench_blas blas;
    const bench_shape *shape;
    int number;                           /* of the shape */
    float **buffer;
    half_bench *half;
    pthread_barrier_t *barrier;
    double start, end;
} product;

static void multiply(const product *p)
{
    const bench_shape *s = p->shape;
    int64_t lda = s->trans_a ? s->m : s->k, ldb = s->trans_b ? s->k : s->n;
    float **x = p->buffer;
    if (p->blas == BENCH_OPENBLAS)
        p->calls->cblas_sgemm(CblasRowMajor, s->trans_a ? CblasTrans : CblasNoTrans, s->trans_b ? CblasTrans : CblasNoTrans,
                    (blasint)s->m, (blasint)s->n, (blasint)s->k, 1, x[0], (blasint)lda, x[1], (blasint)ldb, 0, x[2],
                    (blasint)s->n);
    else if (p->blas == BENCH_ONEDNN_BF16)
        half_bench_onednn(p->half, p->number);
    else if (p->blas == BENCH_WEIR_BF16)
        half_bench_weir(p->half, p->number);
    else
        p->calls->dnnl_sgemm(s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N', s->m, s->n, s->k, 1, x[0], lda, x[1], ldb, 0, x[2],
                   s->n);
}

static void *timed_product(void *arg)
{
    product *p = arg;
    one_thread_each(p->calls);
    pthread_barrier_wait(p->barrier);
    p->start = measure_seconds();
    multiply(p);
    p->end = measure_seconds();
    return NULL;
}

/* Seconds from the first start to the last end; a negative number when there is no second thread to be had. */
static double time_product(bench_sgemm *bench, bench_blas blas, int shape)
{
    pthread_barrier_t barrier;
    pthread_t helper;
    product p[2];
    assert(bench->threads >= 1 && bench->threads <= 2);
    for (int t = 0; t < bench->threads; t++)
        p[t] = (product){.calls = bench->calls, .blas = blas, .shape = &bench->shape[shape], .number = shape, .buffer = bench->buffer[t],
                         .half = bench->half[t], .barrier = &barrier};
    pthread_barrier_init(&barrier, NULL, (unsigned)bench->threads);
    bool helped = bench->threads > 1;
    if (helped && pthread_create(&helper, NULL, timed_product, &p[1])) {
        pthread_barrier_destroy(&barrier);
        return -1;
    }
    timed_product(&p[0]);
    double start = p[0].start, end = p[0].end;
    if (helped) {
        pthread_join(helper, NULL);
        start = p[1].start < start ? p[1].start : start;
        end = p[1].end > end ? p[1].end : end;
    }
    pthread_barrier_destroy(&barrier);
    return end - start;
}

/* ---- all products ---- */

void bench_sgemm_round(bench_sgemm *bench)
{
    if (bench->rounds == BENCH_SGEMM_ROUNDS)
        return;
    for (int blas = 0; blas < (bench->half[0] ? BENCH_BLASES : BENCH_ONEDNN_BF16); blas++)
        for (int i = 0; i < BENCH_SGEMM_SHAPES; i++)
            bench->seconds[blas][i][bench->rounds] = time_product(bench, (bench_blas)blas, i);
    bench->rounds++;
}

static double median_seconds(const bench_sgemm *bench, int blas, int shape)
{
    double sorted[BENCH_SGEMM_ROUNDS];
    for (int i = 0; i < bench->rounds; i++)
        sorted[i] = bench->seconds[blas][shape][i];
    return measure_median(sorted, bench->rounds);
}

/* With the faster of two, shape by shape. */
static double rate_of(const bench_sgemm *bench, bench_blas one, bench_blas other)
{
    double flops = 0, seconds = 0;
    for (int i = 0; i < BENCH_SGEMM_SHAPES; i++) {
        double a = median_seconds(bench, one, i), b = median_seconds(bench, other, i);
        flops += bench->shape[i].count * shape_flops(&bench->shape[i]) * bench->threads;
        seconds += bench->shape[i].count * (a < b ? a : b);
    }
    return seconds > 0 ? flops / seconds : 0;
}

double bench_sgemm_rate(const bench_sgemm *bench)
{
    return rate_of(bench, BENCH_OPENBLAS, BENCH_ONEDNN);
}

double bench_sgemm_rate_bf16(const bench_sgemm *bench)
{
    return bench->half[0] ? rate_of(bench, BENCH_ONEDNN_BF16, BENCH_WEIR_BF16) : 0;
}
