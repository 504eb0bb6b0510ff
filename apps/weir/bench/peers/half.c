/* apps/weir/bench/peers/half.c: see the header. */
#include "apps/weir/bench/peers/half.h"
#include "apps/weir/bench/peers/blas.h"

#include <stdlib.h>
#include <weir/weir.h>

enum { SHAPES_MAX = 16 };

typedef struct product {
    half_shape shape;
    dnnl_primitive_t primitive;    /* owned */
    dnnl_memory_t a, b, c;         /* owned */
    const weir_op *op;
    weir_view in[2], out;
    int64_t attrs[2];
    size_t workspace_bytes;
} product;

struct half_bench {
    const blas_calls *dnnl;        /* borrowed */
    product product[SHAPES_MAX];
    int count;
    dnnl_engine_t engine;          /* owned */
    dnnl_stream_t stream;          /* owned */
    void *a, *b, *c, *workspace;   /* owned; large enough for every shape */
};

/* ---- memory ---- */

static int64_t largest(const half_shape *shape, int count)
{
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        int64_t of[3] = {shape[i].m * shape[i].k, shape[i].k * shape[i].n, shape[i].m * shape[i].n};
        for (int j = 0; j < 3; j++)
            most = of[j] > most ? of[j] : most;
    }
    return most;
}

static void *filled(int64_t count, uint64_t key)
{
    uint16_t *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
    for (int64_t i = 0; x && i < count; i++) {
        float value = weir_random_uniform(key, (uint64_t)i) - 0.5f;
        weir_from_f32(&value, 1, WEIR_BF16, &x[i]);
    }
    return x;
}

/* ---- oneDNN ---- */

static bool matrix(const blas_calls *dnnl, dnnl_memory_desc_t *to, int64_t rows, int64_t columns, bool transposed, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
    return dnnl->dnnl_memory_desc_init_by_strides(to, 2, dims, type, strides) == dnnl_success;
}

static bool onednn_product(half_bench *bench, product *p)
{
    const half_shape *s = &p->shape;
    const blas_calls *dnnl = bench->dnnl;
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t made = NULL;
    bool ok = matrix(dnnl, &a, s->m, s->k, s->trans_a, dnnl_bf16) && matrix(dnnl, &b, s->k, s->n, s->trans_b, dnnl_bf16) &&
              matrix(dnnl, &c, s->m, s->n, false, s->trans_a ? dnnl_f32 : dnnl_bf16) &&
              dnnl->dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c) == dnnl_success &&
              dnnl->dnnl_primitive_desc_create(&made, &desc, NULL, bench->engine, NULL) == dnnl_success &&
              dnnl->dnnl_primitive_create(&p->primitive, made) == dnnl_success &&
              dnnl->dnnl_memory_create(&p->a, &a, bench->engine, bench->a) == dnnl_success &&
              dnnl->dnnl_memory_create(&p->b, &b, bench->engine, bench->b) == dnnl_success &&
              dnnl->dnnl_memory_create(&p->c, &c, bench->engine, bench->c) == dnnl_success;
    if (made)
        dnnl->dnnl_primitive_desc_destroy(made);
    return ok;
}

void half_bench_onednn(half_bench *bench, int i)
{
    const product *p = &bench->product[i];
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    bench->dnnl->dnnl_primitive_execute(p->primitive, bench->stream, 3, args);
    bench->dnnl->dnnl_stream_wait(bench->stream);
}

/* ---- weir ---- */

static weir_view view_of(void *data, weir_dtype dtype, int64_t rows, int64_t columns)
{
    const weir_shape shape = {2, {rows, columns}};
    return (weir_view){.data = data, .dtype = dtype, .shape = shape, .global = shape};
}

static weir_type type_of(const weir_view *view)
{
    return (weir_type){view->dtype, view->shape};
}

/* The op that a training step does this product with. */
static void weir_product(half_bench *bench, product *p)
{
    const half_shape *s = &p->shape;
    p->op = weir_op_find(s->trans_a ? "linear_dw" : s->trans_b ? "matmul" : "linear");
    p->attrs[1] = s->trans_b;
    p->in[0] = view_of(bench->a, WEIR_BF16, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k);
    p->in[1] = view_of(bench->b, WEIR_BF16, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n);
    p->out = view_of(bench->c, s->trans_a ? WEIR_F32 : WEIR_BF16, s->m, s->n);
    weir_type in[2] = {type_of(&p->in[0]), type_of(&p->in[1])}, out = type_of(&p->out);
    const weir_op_args args = {p->op, in, 2, &out, 1, p->attrs};
    p->workspace_bytes = p->op->workspace ? p->op->workspace(&args, WEIR_CPU) : 0;
}

void half_bench_weir(half_bench *bench, int i)
{
    const product *p = &bench->product[i];
    char error[128];
    const weir_kernel_args args = {.in = p->in, .in_count = 2, .out = &p->out, .out_count = 1, .attrs = p->attrs,
                                   .workspace = bench->workspace, .workspace_bytes = p->workspace_bytes,
                                   .error = error, .error_bytes = sizeof error};
    p->op->kernel[WEIR_CPU](&args);
}

/* ---- life ---- */

static bool products_make(half_bench *bench, const half_shape *shape)
{
    size_t workspace = 64;
    for (int i = 0; i < bench->count; i++) {
        product *p = &bench->product[i];
        p->shape = shape[i];
        weir_product(bench, p);
        workspace = p->workspace_bytes > workspace ? p->workspace_bytes : workspace;
        if (!onednn_product(bench, p))
            return false;
    }
    return (bench->workspace = aligned_alloc(64, (workspace + 63) / 64 * 64)) != NULL;
}

half_bench *half_bench_new(const blas_calls *dnnl, const half_shape *shape, int count)
{
    half_bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return NULL;
    int64_t most = largest(shape, count);
    bench->dnnl = dnnl;
    bench->count = count < SHAPES_MAX ? count : SHAPES_MAX;
    bench->a = filled(most, 1);
    bench->b = filled(most, 2);
    bench->c = aligned_alloc(64, ((size_t)most * sizeof(float) + 63) / 64 * 64);
    if (bench->a && bench->b && bench->c && dnnl->dnnl_engine_create(&bench->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl->dnnl_stream_create(&bench->stream, bench->engine, dnnl_stream_default_flags) == dnnl_success &&
        products_make(bench, shape))
        return bench;
    half_bench_free(bench);
    return NULL;
}

void half_bench_free(half_bench *bench)
{
    const blas_calls *dnnl = bench ? bench->dnnl : NULL;
    for (int i = 0; bench && i < bench->count; i++) {
        product *p = &bench->product[i];
        dnnl->dnnl_primitive_destroy(p->primitive);
        dnnl->dnnl_memory_destroy(p->a);
        dnnl->dnnl_memory_destroy(p->b);
        dnnl->dnnl_memory_destroy(p->c);
    }
    if (bench) {
        dnnl->dnnl_stream_destroy(bench->stream);
        dnnl->dnnl_engine_destroy(bench->engine);
        free(bench->a);
        free(bench->b);
        free(bench->c);
        free(bench->workspace);
    }
    free(bench);
}
