/* kernels/fused/fused.cu: the chains of program.h on a GPU, one launch each; and a small one for each sum over rows, which
 * adds those of the chunks, as for the single kernels.
 *
 * All threads take the same steps, so no branch on a step diverges; slots are registers, which have no index, so one is
 * chosen by comparing. A step's arithmetic is the function of its op's own kernel (formula.h and the like), sums over a
 * row have that kernel's threads, and sums over rows its chunks: so the bits are those of the single kernels. All of
 * these are built without contraction of products and sums (EXACT_CU in the Makefile), which would follow from the code
 * around.
 *
 * An element is read and written by one thread, which reads first: so an output may lie over an input.
 */
#include "kernels/cuda/packs.h"
#include "kernels/elementwise/functions.h"
#include "kernels/norm/formula.h"
#include "kernels/random/place.h"
#include "kernels/reduce/softmax.h"

extern "C" {
#include "kernels/fused/program.h"
}

/* What a call has besides its program. */
struct chain_call {
    const weir_clock *clock;
    int64_t chunk; /* rows of a block */
    drop_place place[PROGRAM_DRAWS];
};

/* ---- values ---- */

/* The K elements of a row that a thread has: neighbours, or as far apart as there are threads. */
template <int K, bool NEAR> struct cells {
    int64_t row, first, columns;
    METHOD int64_t column(int k) const { return NEAR ? first + k : first + (int64_t)k * blockDim.x; }
    METHOD bool there(int k) const { return column(k) < columns; }
    METHOD bool pack_there() const { return NEAR && K > 1 && first + K <= columns; }
};

DEVICE float element_load(const uint8_t *x) { return *x; }
template <class T> DEVICE float element_load(const T *x) { return real_load(x); }
DEVICE void element_store(uint8_t *to, float x) { *to = (uint8_t)x; }
template <class T> DEVICE void element_store(T *to, float x) { real_store(to, x); }

template <class T, int K, bool NEAR>
DEVICE void load_as(const program_operand &o, const cells<K, NEAR> &at, float (&x)[K])
{
    const T *from = (const T *)o.data + at.row * o.row_step;
    if (o.packs && at.pack_there()) {
        const pack<T, K> all = pack_load<K>(from + at.first);
        UNROLL
        for (int k = 0; k < K; k++)
            x[k] = element_load(&all.at[k]);
        return;
    }
    UNROLL
    for (int k = 0; k < K; k++)
        x[k] = at.there(k) ? element_load(from + (o.column_step ? at.column(k) : 0)) : 0.0f;
}

template <class T, int K, bool NEAR>
DEVICE void store_as(const program_operand &o, const cells<K, NEAR> &at, const float (&x)[K])
{
    T *to = (T *)o.data + at.row * o.row_step;
    if (o.packs && at.pack_there()) {
        pack<T, K> all;
        UNROLL
        for (int k = 0; k < K; k++)
            element_store(&all.at[k], x[k]);
        pack_store<K>(to + at.first, all);
        return;
    }
    UNROLL
    for (int k = 0; k < K; k++)
        if (at.there(k))
            element_store(to + at.column(k), x[k]);
}

/* Does `...` with T as the type of elements of a value's dtype. */
#define WITH_VALUE(dtype, T, ...)             \
    do {                                      \
        if ((dtype) == WEIR_U8) {             \
            using T = uint8_t;                \
            __VA_ARGS__;                      \
        } else {                              \
            WITH_REAL(dtype, T, __VA_ARGS__); \
        }                                     \
    } while (0)

/* As f32, what it is in memory. */
DEVICE float rounded(int dtype, float x)
{
    if (dtype == WEIR_F32)
        return x;
    if (dtype == WEIR_F16)
        return __half2float(__float2half_rn(x));
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* ---- what a thread has ---- */

template <int K, program_way WAY> struct chain_thread {
    float slot[PROGRAM_SLOTS][K];
    cells<K, WAY != PROGRAM_ROW> at;
    float *part;  /* shared: for sums of a block */
    double *sums; /* shared: over rows, sum by sum */
};

template <int K, program_way WAY> DEVICE void slot_get(const chain_thread<K, WAY> &t, int slot, float (&x)[K])
{
    UNROLL
    for (int s = 0; s < PROGRAM_SLOTS; s++)
        if (s == slot) {
            UNROLL
            for (int k = 0; k < K; k++)
                x[k] = t.slot[s][k];
        }
}

template <int K, program_way WAY>
DEVICE void slot_put(chain_thread<K, WAY> &t, int slot, int dtype, const float (&x)[K])
{
    UNROLL
    for (int s = 0; s < PROGRAM_SLOTS; s++)
        if (s == slot) {
            UNROLL
            for (int k = 0; k < K; k++)
                t.slot[s][k] = rounded(dtype, x[k]);
        }
}

/* The thread's own element k of sum `sum` over rows. */
template <int K, program_way WAY> DEVICE double *sum_at(const chain_thread<K, WAY> &t, int sum, int k)
{
    return t.sums + (sum * K + k) * (int)blockDim.x + (int)threadIdx.x;
}

/* ---- functions of rows ---- */

/* As in norm.cu. All threads of the block call them, or none. */
template <int K, program_way WAY> DEVICE float mean_of_parts(const chain_thread<K, WAY> &t, const float (&x)[K])
{
    float mean = 0;
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k))
            mean += x[k] / (float)t.at.columns;
    return block_sum<float>(mean, t.part);
}

template <int K, program_way WAY>
DEVICE float scaled_squares(const chain_thread<K, WAY> &t, const float (&x)[K], float mean, float scale)
{
    float squares = 0;
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k)) {
            const float d = (x[k] - mean) * scale;
            squares += d * d;
        }
    return block_sum<float>(squares, t.part);
}

template <bool CENTRED, int K, program_way WAY>
DEVICE void norm_step(const fused_program &p, const program_step &s, const chain_thread<K, WAY> &t, float (&x)[K])
{
    const float *gain = (const float *)p.operand[s.operand[0]].data;
    const float *bias = (const float *)p.operand[s.operand[1]].data;
    float mean = 0;
    if (CENTRED) {
        UNROLL
        for (int k = 0; k < K; k++)
            if (t.at.there(k))
                mean += x[k];
        mean = block_sum<float>(mean, t.part);
        mean = isfinite(mean) ? mean / (float)t.at.columns : mean_of_parts(t, x);
    }
    float squares = scaled_squares(t, x, mean, 1);
    const float scale = norm_scale(squares);
    if (scale != 1)
        squares = scaled_squares(t, x, mean, scale);
    const float rstd = norm_rstd(squares, scale, t.at.columns, s.eps);
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k))
            x[k] = CENTRED ? layernorm_value(x[k], mean, rstd, gain[t.at.column(k)], bias[t.at.column(k)])
                           : rmsnorm_value(x[k], rstd, gain[t.at.column(k)]);
    if (threadIdx.x)
        return;
    ((float *)p.operand[s.operand[3]].data)[t.at.row] = rstd;
    if (CENTRED)
        ((float *)p.operand[s.operand[2]].data)[t.at.row] = mean;
}

/* x becomes dx. */
template <bool CENTRED, int K, program_way WAY>
DEVICE void norm_grad_step(const fused_program &p, const program_step &s, const chain_thread<K, WAY> &t, float (&x)[K],
                           const float (&dy)[K])
{
    const float *gain = (const float *)p.operand[s.operand[0]].data;
    const float mean = CENTRED ? ((const float *)p.operand[s.operand[2]].data)[t.at.row] : 0;
    const float rstd = ((const float *)p.operand[s.operand[3]].data)[t.at.row], per = 1 / (float)t.at.columns;
    float g_sum = 0, gx_sum = 0;
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k)) {
            const float d = dy[k] * gain[t.at.column(k)];
            g_sum += d;
            gx_sum += d * (x[k] - mean);
        }
    const float shift = CENTRED ? block_sum<float>(g_sum, t.part) * per : 0;
    gx_sum = block_sum<float>(gx_sum, t.part);
    if (isfinite(gx_sum)) {
        gx_sum *= rstd;
    } else {
        gx_sum = 0;
        UNROLL
        for (int k = 0; k < K; k++)
            if (t.at.there(k))
                gx_sum += dy[k] * gain[t.at.column(k)] * ((x[k] - mean) * rstd);
        gx_sum = block_sum<float>(gx_sum, t.part);
    }
    const float tilt = gx_sum * per;
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k)) {
            const float xhat = (x[k] - mean) * rstd;
            x[k] = norm_dx(rstd, dy[k], gain[t.at.column(k)], shift, xhat, tilt);
            *sum_at(t, s.sum, k) += dy[k] * xhat;
            if (CENTRED)
                *sum_at(t, s.more, k) += dy[k];
        }
}

template <int K, program_way WAY> DEVICE void softmax_step(const chain_thread<K, WAY> &t, float (&x)[K])
{
    if (threadIdx.x == 0)
        *t.part = x[0];
    BARRIER();
    float most = *t.part, sum = 0;
    BARRIER();
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k))
            most = x[k] > most ? x[k] : most;
    most = block_max(most, t.part);
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k))
            sum += fast_exp(x[k] - most);
    const float share = 1.0f / block_sum<float>(sum, t.part);
    UNROLL
    for (int k = 0; k < K; k++)
        x[k] = fast_exp(x[k] - most) * share;
}

/* y becomes dx. */
template <int K, program_way WAY>
DEVICE void softmax_grad_step(const chain_thread<K, WAY> &t, float (&y)[K], const float (&dy)[K])
{
    float dot = 0;
    UNROLL
    for (int k = 0; k < K; k++)
        if (t.at.there(k))
            dot += y[k] * dy[k];
    dot = block_sum<float>(dot, t.part);
    UNROLL
    for (int k = 0; k < K; k++)
        y[k] = softmax_dx(y[k], dy[k], dot);
}

/* a becomes the result. */
template <int K, program_way WAY>
DEVICE void row_step(const fused_program &p, const program_step &s, const chain_thread<K, WAY> &t, float (&a)[K],
                     const float (&b)[K])
{
    if (s.code == STEP_layernorm)
        norm_step<true>(p, s, t, a);
    else if (s.code == STEP_rmsnorm)
        norm_step<false>(p, s, t, a);
    else if (s.code == STEP_layernorm_grad)
        norm_grad_step<true>(p, s, t, a, b);
    else if (s.code == STEP_rmsnorm_grad)
        norm_grad_step<false>(p, s, t, a, b);
    else if (s.code == STEP_softmax)
        softmax_step(t, a);
    else
        softmax_grad_step(t, a, b);
}

/* ---- steps ---- */

template <int K, program_way WAY>
DEVICE void sum_step(const program_step &s, const chain_thread<K, WAY> &t, const float (&x)[K])
{
    UNROLL
    for (int k = 0; k < K; k++)
        *sum_at(t, s.sum, k) += x[k];
}

template <int K, program_way WAY>
DEVICE void draw_step(const fused_program &p, const chain_call &call, const program_step &s,
                      const chain_thread<K, WAY> &t, float (&x)[K])
{
    const program_draw &draw = p.draw[s.draw];
    UNROLL
    for (int k = 0; k < K; k++)
        x[k] = t.at.there(k) && drop_keeps(call.place[s.draw], draw.key, (uint64_t)call.clock->firing, draw.threshold,
                                           t.at.row * t.at.columns + t.at.column(k));
}

/* A function of elements: a becomes the result. */
template <int K> DEVICE void element_step(const program_step &s, float (&a)[K], const float (&b)[K])
{
#define STEP(name, expression)      \
    case STEP_##name:               \
        UNROLL                      \
        for (int k = 0; k < K; k++) \
            a[k] = expression;      \
        return;
#define FUNCTION(name) STEP(name, name##_function::of(a[k]))
#define GRADIENT(name) STEP(name, name##_function::of(a[k]) * b[k])
#define PAIR(name) STEP(name, name##_function::of(a[k], b[k]))
    switch (s.code) {
        STEP_FUNCTIONS(FUNCTION)
        STEP_GRADIENTS(GRADIENT)
        STEP_PAIRS(PAIR)
        STEP(affine, s.scale * a[k] + s.shift)
        STEP(dropout, dropout_value(a[k], s.scale, b[k] != 0))
    default: /* a cast: it is rounded, and no more */
        return;
    }
#undef STEP
#undef FUNCTION
#undef GRADIENT
#undef PAIR
}

template <int K, program_way WAY>
DEVICE void run_step(const fused_program &p, const chain_call &call, const program_step &s, chain_thread<K, WAY> &t)
{
    const program_operand &o = p.operand[s.operand[0]];
    float a[K] = {}, b[K] = {};
    slot_get(t, s.a, a);
    slot_get(t, s.b, b);
    if (s.code == STEP_STORE) {
        WITH_VALUE(o.dtype, T, store_as<T>(o, t.at, a));
        return;
    }
    if (WAY != PROGRAM_EACH && s.code == STEP_linear_db) {
        sum_step(s, t, a);
        return;
    }
    if (s.code == STEP_LOAD)
        WITH_VALUE(o.dtype, T, load_as<T>(o, t.at, a));
    else if (s.code == STEP_DRAW)
        draw_step(p, call, s, t, a);
    else if (WAY == PROGRAM_ROW && s.code >= STEP_layernorm)
        row_step(p, s, t, a, b);
    else
        element_step(s, a, b);
    slot_put(t, s.to, s.dtype, a);
}

/* ---- kernels ---- */

template <int K> KERNEL_OF(chain_each, PROGRAM_THREADS)(fused_program p, chain_call call)
{
    const int64_t count = p.rows * p.columns;
    const bool narrow = count <= INT32_MAX;
    chain_thread<K, PROGRAM_EACH> t = {};
    t.at.columns = p.columns;
    for (int64_t i = THREAD * K; i < count; i += THREADS * K) {
        t.at.row = p.rows == 1 ? 0 : narrow ? (uint32_t)i / (uint32_t)p.columns : i / p.columns;
        t.at.first = i - t.at.row * p.columns;
        for (int s = 0; s < p.steps; s++)
            run_step(p, call, p.step[s], t);
    }
}

template <int K, program_way WAY> DEVICE void sums_begin(const fused_program &p, const chain_thread<K, WAY> &t)
{
    for (int i = 0; i < p.sums * K; i++)
        *sum_at(t, 0, i) = 0;
}

template <int K, program_way WAY>
DEVICE void sums_end(const fused_program &p, const chain_thread<K, WAY> &t, int64_t chunk)
{
    for (int i = 0; i < p.sums * K; i++)
        if (t.at.there(i % K))
            p.sum[i / K].part[chunk * p.columns + t.at.column(i % K)] = *sum_at(t, 0, i);
}

/* Threads of a block, at most. */
constexpr int chain_threads(program_way way)
{
    return way == PROGRAM_TILE ? (int)PROGRAM_THREADS : (int)ROW_THREADS_MAX;
}

template <int K, program_way WAY> KERNEL_OF(chain_rows, chain_threads(WAY))(fused_program p, chain_call call)
{
    SHARED(float, part, WARP);
    SHARED_REST(double, sums);
    const int64_t wide = WAY == PROGRAM_TILE ? (int64_t)blockDim.x * K : p.columns;
    const int64_t tiles = WAY == PROGRAM_TILE ? (p.columns + wide - 1) / wide : 1;
    const int64_t chunk = blockIdx.x / tiles, first = chunk * call.chunk;
    const int64_t end = first + call.chunk < p.rows ? first + call.chunk : p.rows;
    chain_thread<K, WAY> t = {};
    t.at.columns = p.columns;
    t.at.first = WAY == PROGRAM_TILE ? blockIdx.x % tiles * wide + (int64_t)threadIdx.x * K : threadIdx.x;
    t.part = part;
    t.sums = sums;
    sums_begin(p, t);
    for (t.at.row = first; t.at.row < end; t.at.row++)
        for (int s = 0; s < p.steps; s++)
            run_step(p, call, p.step[s], t);
    sums_end(p, t, chunk);
}

/* ---- the launch ---- */

static int64_t bytes_each(int dtype)
{
    return dtype == WEIR_U8 ? 1 : dtype == WEIR_F32 ? 4 : 2;
}

static const weir_view *view_of(const weir_kernel_args *args, int code)
{
    return code < FUSED_OUT ? &args->in[code] : &args->out[code - FUSED_OUT];
}

static void set_operands(const weir_kernel_args *args, fused_program *p)
{
    double *part = (double *)args->workspace;
    for (int o = 0; o < p->operands; o++) {
        program_operand *x = &p->operand[o];
        x->data = view_of(args, p->code[o])->data;
        x->packs = x->column_step && x->row_step % PROGRAM_NEAR == 0 &&
                   packs_fit(x->data, PROGRAM_NEAR * bytes_each(x->dtype));
    }
    for (int s = 0; s < p->sums; s++, part += chunks_of(p->rows) * p->columns)
        p->sum[s].part = part;
}

/* Where the elements of a value lie that never is in memory: as the rows that it belongs to do. */
static drop_place place_of_scratch(const weir_kernel_args *args, int s)
{
    const fused_attrs *attrs = (const fused_attrs *)args->attrs;
    weir_view view = args->in[attrs->like];
    const int last = view.shape.rank - 1;
    view.shape.dim[last] = attrs->type[s][1];
    view.offset[last] = attrs->type[s][2];
    view.global.dim[last] = attrs->type[s][3];
    return place_of(&view);
}

static chain_call call_of(const weir_kernel_args *args, const fused_program &p)
{
    chain_call call = {args->clock, 0, {}};
    call.chunk = p.sums ? chunk_rows(p.rows) : 1;
    for (int d = 0; d < p.draws; d++)
        call.place[d] = p.draw[d].code < FUSED_SCRATCH ? place_of(view_of(args, p.draw[d].code))
                                                       : place_of_scratch(args, p.draw[d].code - FUSED_SCRATCH);
    return call;
}

static void launch_each(const weir_kernel_args *args, const fused_program &p, const chain_call &call)
{
    const int64_t count = p.rows * p.columns;
    if (p.rows == 1 || p.columns % PROGRAM_NEAR == 0)
        LAUNCH((chain_each<PROGRAM_NEAR>), each_blocks((count + PROGRAM_NEAR - 1) / PROGRAM_NEAR), PROGRAM_THREADS,
               args->queue, p, call);
    else
        LAUNCH((chain_each<1>), each_blocks(count), PROGRAM_THREADS, args->queue, p, call);
}

template <int K, program_way WAY>
static void launch_rows(const weir_kernel_args *args, const fused_program &p, const chain_call &call)
{
    const int threads = fused_program_threads(&p);
    const int64_t wide = threads * K, tiles = WAY == PROGRAM_TILE ? (p.columns + wide - 1) / wide : 1;
    const int64_t chunks = p.sums ? chunks_of(p.rows) : p.rows;
    const size_t bytes = (size_t)(p.sums * wide) * sizeof(double);
    LAUNCH_SHARED((chain_rows<K, WAY>), chunks * tiles, threads, bytes, args->queue, p, call);
    for (int s = 0; s < p.sums; s++)
        fold_columns(args, p.sum[s].part, chunks, p.columns, view_f32(&args->out[p.sum[s].out]), false);
}

static weir_status launch_chain(const weir_kernel_args *args)
{
    weir_type in[FUSED_INS_MAX], out[FUSED_OUTS_MAX];
    for (int i = 0; i < args->in_count; i++)
        in[i] = {args->in[i].dtype, args->in[i].shape};
    for (int o = 0; o < args->out_count; o++)
        out[o] = {args->out[o].dtype, args->out[o].shape};
    const fused_types types = {(const fused_attrs *)args->attrs, in, out, args->in_count, args->out_count};
    fused_program p;
    if (!fused_program_make(&types, &p))
        return KERNEL_FAIL(args, "the members cannot be one kernel of a GPU");
    set_operands(args, &p);
    const chain_call call = call_of(args, p);
    if (p.way == PROGRAM_EACH)
        launch_each(args, p, call);
    else if (p.way == PROGRAM_TILE)
        launch_rows<PROGRAM_NEAR, PROGRAM_TILE>(args, p, call);
    else if (fused_program_each(&p) == PROGRAM_NEAR)
        launch_rows<PROGRAM_NEAR, PROGRAM_ROW>(args, p, call);
    else
        launch_rows<PROGRAM_ROW_EACH, PROGRAM_ROW>(args, p, call);
    return launched(args);
}

extern "C" weir_status op_fused_launch_cuda(const weir_kernel_args *args)
{
    return launch_chain(args);
}

extern "C" weir_status op_fused_launch_over_cuda(const weir_kernel_args *args)
{
    return launch_chain(args);
}
