/* kernels/fused/fused.cu: the chains of program.h on a GPU, one launch each; and a small one for each sum over rows, which
 * adds those of the chunks, as for the single kernels.
 *
 * All threads take the same steps, so no branch on a step diverges; slots are registers, which have no index, so one is
 * chosen by comparing. A step's arithmetic is the function of its op's own kernel (formula.h and the like), sums over a
 * row have that kernel's threads, and sums over rows its chunks: so the bits are those of the single kernels. All of
 * these are built without contraction of products and sums (EXACT_CU in the Makefile), which would follow from the code
 * around.
 *
 * Some programs are *known* when this is compiled: those that each layer of a transformer has. chain_known takes their steps
 * as constants, so nothing is left of the interpreter. It keeps sums over rows in registers, and it loads a block's next
 * row before it computes this one. It needs whole rows in packs; chain_rows takes other calls of such a program.
 *
 * An element is read and written by one thread, which reads first: so an output may lie over an input. Early loads are of
 * another row.
 */
#include "kernels/cuda/near.h"
#include "kernels/elementwise/functions.h"
#include "kernels/norm/row.h"
#include "kernels/random/place.h"
#include "kernels/reduce/softmax_row.h"

extern "C" {
#include "kernels/fused/program.h"
}

/* The operands of a call besides its program. */
struct chain_call {
    const weir_clock *clock;
    int64_t chunk; /* rows of a block */
    drop_place place[PROGRAM_DRAWS];
};

/* ---- values ---- */

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

/* Loads in two steps, of which the first waits for no memory: x has the bits until the second one. */
template <class T, int K, bool WHOLE>
DEVICE void load_as(const program_operand &o, const cells<K, WHOLE> &at, float (&x)[K])
{
    const T *from = (const T *)o.data + at.row * o.row_step;
    near_keep(o.column_step ? near_load(from, at, WHOLE || o.packs) : near_all<T, K>(*from), x);
}

template <int K, bool WHOLE> DEVICE void load_bits(const program_operand &o, const cells<K, WHOLE> &at, float (&x)[K])
{
    if (o.dtype == WEIR_F32)
        load_as<float>(o, at, x);
    else if (o.dtype == WEIR_U8)
        load_as<uint8_t>(o, at, x);
    else
        load_as<uint16_t>(o, at, x); /* a half of either kind */
}

template <int K> DEVICE void widen_bits(int dtype, float (&x)[K])
{
    WITH_VALUE(dtype, T, near_widen(near_kept<T>(x), x));
}

/* As f32, what it is in memory. */
template <int K> DEVICE void round_to(int dtype, float (&x)[K])
{
    if (dtype == WEIR_F16)
        near_widen(near_narrow<__half>(x), x);
    else if (dtype != WEIR_F32)
        near_widen(near_narrow<__nv_bfloat16>(x), x);
}

/* ---- what a thread has ---- */

template <int K, program_way WAY> struct chain_thread {
    float slot[PROGRAM_SLOTS][K];
    cells<K> at;
    near_parts parts; /* shared: for sums of a block */
    double *sums;     /* shared: over rows, the first of its own */
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

template <int K, program_way WAY> DEVICE void slot_put(chain_thread<K, WAY> &t, int slot, int dtype, const float (&x)[K])
{
    UNROLL
    for (int s = 0; s < PROGRAM_SLOTS; s++)
        if (s == slot) {
            UNROLL
            for (int k = 0; k < K; k++)
                t.slot[s][k] = x[k];
            round_to(dtype, t.slot[s]);
        }
}

/* The thread's own element k of sum `sum` over rows. */
template <int K, program_way WAY> DEVICE double &sum_at(const chain_thread<K, WAY> &t, int sum, int k)
{
    return t.sums[(sum * K + k) * (int)blockDim.x];
}

/* ---- functions of rows ---- */

/* All threads of the block call them, or none. `weight(i, w)` puts the norm's gain (0) or bias (1) into w. */
template <bool CENTRED, bool WHOLE, class W>
DEVICE void norm_step(const cells<ROW_NEAR, WHOLE> &at, near_parts &parts, double eps, float *means, float *rstds,
                      float (&x)[ROW_NEAR], W weight)
{
    float gain[ROW_NEAR], bias[ROW_NEAR] = {}, mean, rstd;
    held_row<norm_values, WHOLE> row = {at, {}};
    memcpy(row.values.x, x, sizeof x);
    norm_of_row<CENTRED>(row, parts, eps, mean, rstd);
    weight(0, gain);
    if (CENTRED)
        weight(1, bias);
    UNROLL
    for (int k = 0; k < ROW_NEAR; k++)
        x[k] = CENTRED ? layernorm_value(x[k], mean, rstd, gain[k], bias[k]) : rmsnorm_value(x[k], rstd, gain[k]);
    if (threadIdx.x)
        return;
    rstds[at.row] = rstd;
    if (CENTRED)
        means[at.row] = mean;
}

/* x becomes dx. `sum(i, k, share)` adds to the sum over rows of the gain's gradient (0) or the bias' (1). */
template <bool CENTRED, bool WHOLE, class W, class S>
DEVICE void norm_grad_step(const cells<ROW_NEAR, WHOLE> &at, near_parts &parts, float mean, float rstd,
                           float (&x)[ROW_NEAR], const float (&dy)[ROW_NEAR], W weight, S sum)
{
    float shift, tilt;
    held_row<norm_grad_values, WHOLE> row = {at, {}};
    weight(0, row.values.gain);
    memcpy(row.values.x, x, sizeof x);
    memcpy(row.values.dy, dy, sizeof dy);
    norm_grad_of_row<CENTRED>(row, parts, mean, rstd, shift, tilt);
    weight(0, row.values.gain); /* again, rather than kept */
    if (at.any())
        norm_dx_of<CENTRED>(
            at, row.values, mean, rstd, shift, tilt, x, [&](int k, float share) { sum(0, k, share); },
            [&](int k, float share) { sum(1, k, share); });
}

/* As steps of a program. */
template <program_way WAY>
DEVICE void weight_at(const fused_program &p, int operand, const chain_thread<ROW_NEAR, WAY> &t, float (&x)[ROW_NEAR])
{
    near_get((const float *)p.operand[operand].data, t.at, p.operand[operand].packs, x);
}

template <bool CENTRED, program_way WAY>
DEVICE void norm_at(const fused_program &p, const program_step &s, chain_thread<ROW_NEAR, WAY> &t, float (&x)[ROW_NEAR])
{
    norm_step<CENTRED>(t.at, t.parts, s.eps, (float *)p.operand[s.operand[2]].data,
                       (float *)p.operand[s.operand[3]].data, x,
                       [&](int i, float(&w)[ROW_NEAR]) { weight_at(p, s.operand[i], t, w); });
}

template <bool CENTRED, program_way WAY>
DEVICE void norm_grad_at(const fused_program &p, const program_step &s, chain_thread<ROW_NEAR, WAY> &t,
                         float (&x)[ROW_NEAR], const float (&dy)[ROW_NEAR])
{
    const float mean = CENTRED ? ((const float *)p.operand[s.operand[2]].data)[t.at.row] : 0;
    const float rstd = ((const float *)p.operand[s.operand[3]].data)[t.at.row];
    norm_grad_step<CENTRED>(
        t.at, t.parts, mean, rstd, x, dy, [&](int i, float(&w)[ROW_NEAR]) { weight_at(p, s.operand[i], t, w); },
        [&](int i, int k, float share) { sum_at(t, i ? s.more : s.sum, k) += share; });
}

template <int K, program_way WAY> DEVICE void softmax_step(chain_thread<K, WAY> &t, float (&x)[K])
{
    float most, share;
    held_row<softmax_values> row = {t.at, {}};
    memcpy(row.values.x, x, sizeof x);
    softmax_of_row(row, t.parts, most, share);
    UNROLL
    for (int k = 0; k < K; k++)
        x[k] = fast_exp(x[k] - most) * share;
}

/* y becomes dx. */
template <int K, program_way WAY> DEVICE void softmax_grad_step(chain_thread<K, WAY> &t, float (&y)[K], const float (&dy)[K])
{
    held_row<softmax_grad_values> row = {t.at, {}};
    memcpy(row.values.y, y, sizeof y);
    memcpy(row.values.dy, dy, sizeof dy);
    const float dot = softmax_dot_of(row, t.parts);
    UNROLL
    for (int k = 0; k < K; k++)
        y[k] = softmax_dx(y[k], dy[k], dot);
}

/* a becomes the result; other ways have none of these. */
template <int K, program_way WAY>
DEVICE void row_step(const fused_program &, const program_step &, chain_thread<K, WAY> &, float (&)[K], const float (&)[K])
{
}

template <program_way WAY>
DEVICE void row_step(const fused_program &p, const program_step &s, chain_thread<ROW_NEAR, WAY> &t, float (&a)[ROW_NEAR],
                     const float (&b)[ROW_NEAR])
{
    if (s.code == STEP_layernorm)
        norm_at<true>(p, s, t, a);
    else if (s.code == STEP_rmsnorm)
        norm_at<false>(p, s, t, a);
    else if (s.code == STEP_layernorm_grad)
        norm_grad_at<true>(p, s, t, a, b);
    else if (s.code == STEP_rmsnorm_grad)
        norm_grad_at<false>(p, s, t, a, b);
    else if (s.code == STEP_softmax)
        softmax_step(t, a);
    else
        softmax_grad_step(t, a, b);
}

/* ---- steps ---- */

template <int K, program_way WAY> DEVICE void sum_step(const program_step &s, chain_thread<K, WAY> &t, const float (&x)[K])
{
    UNROLL
    for (int k = 0; k < K; k++)
        sum_at(t, s.sum, k) += x[k];
}

template <int K, program_way WAY>
DEVICE void draw_step(const fused_program &p, const chain_call &call, const program_step &s, const chain_thread<K, WAY> &t,
                      float (&x)[K])
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
        WITH_VALUE(o.dtype, T, near_put((T *)o.data + t.at.row * o.row_step, t.at, o.packs, a));
        return;
    }
    if (WAY != PROGRAM_EACH && s.code == STEP_linear_db) {
        sum_step(s, t, a);
        return;
    }
    if (s.code == STEP_LOAD) {
        load_bits(o, t.at, a);
        widen_bits(o.dtype, a);
    } else if (s.code == STEP_DRAW)
        draw_step(p, call, s, t, a);
    else if (WAY == PROGRAM_ROW && s.code >= STEP_layernorm)
        row_step(p, s, t, a, b);
    else
        element_step(s, a, b);
    slot_put(t, s.to, s.dtype, a);
}

/* All steps. The first p.loads are loads of whole packs, all under way before the first one is waited for. */
template <int K, program_way WAY> DEVICE void run_steps(const fused_program &p, const chain_call &call, chain_thread<K, WAY> &t)
{
    const cells<K, true> whole = {t.at.row, t.at.first, t.at.columns};
    UNROLL
    for (int l = 0; l < PROGRAM_SLOTS; l++)
        if (l < p.loads)
            load_bits(p.operand[p.step[l].operand[0]], whole, t.slot[l]);
    UNROLL
    for (int l = 0; l < PROGRAM_SLOTS; l++)
        if (l < p.loads)
            widen_bits(p.operand[p.step[l].operand[0]].dtype, t.slot[l]);
    ROLLED
    for (int s = p.loads; s < p.steps; s++)
        run_step(p, call, p.step[s], t);
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
        run_steps(p, call, t);
    }
}

template <int K, program_way WAY> DEVICE void sums_begin(const fused_program &p, chain_thread<K, WAY> &t)
{
    for (int i = 0; i < p.sums * K; i++)
        sum_at(t, 0, i) = 0;
}

template <int K, program_way WAY> DEVICE void sums_end(const fused_program &p, chain_thread<K, WAY> &t, int64_t chunk)
{
    for (int i = 0; i < p.sums * K; i++)
        if (t.at.there(i % K))
            p.sum[i / K].part[chunk * p.columns + t.at.column(i % K)] = sum_at(t, 0, i);
}

/* Threads of a block, at most. */
constexpr int chain_threads(program_way way)
{
    return way == PROGRAM_TILE ? (int)PROGRAM_THREADS : (int)ROW_THREADS_MAX;
}

template <int K, program_way WAY> KERNEL_OF(chain_rows, chain_threads(WAY), 1)(fused_program p, chain_call call)
{
    SHARED(near_quad, part, NEAR_PARTS);
    SHARED_REST(double, sums);
    const int64_t wide = WAY == PROGRAM_TILE ? (int64_t)blockDim.x * K : p.columns;
    const int64_t tiles = WAY == PROGRAM_TILE ? (p.columns + wide - 1) / wide : 1;
    const int64_t chunk = blockIdx.x / tiles, first = chunk * call.chunk;
    const int64_t end = first + call.chunk < p.rows ? first + call.chunk : p.rows;
    chain_thread<K, WAY> t = {};
    t.at.columns = p.columns;
    t.at.first = WAY == PROGRAM_TILE ? blockIdx.x % tiles * wide + (int64_t)threadIdx.x * K : (int)threadIdx.x * K;
    t.sums = sums + threadIdx.x;
    t.parts = near_shared(part);
    sums_begin(p, t);
    for (t.at.row = first; t.at.row < end; t.at.row++)
        run_steps(p, call, t);
    sums_end(p, t, chunk);
}

/* ---- known programs ---- */

enum { KNOWN_STEPS = 16 };

struct known_step {
    int code, to, a, b, sum, more;
    bool narrow; /* rounded to the tensors' dtype; else f32 */
};

/* The steps that program.c makes, whose tensors are all of one dtype. */
struct known_program {
    int loads, sums, steps, norm; /* which step is the norm, or its gradient */
    known_step step[KNOWN_STEPS];
    constexpr void add(int code, int to, int a, int b, bool narrow, int sum = 0, int more = 0)
    {
        step[steps++] = {code, to, a, b, sum, more, narrow};
    }
    constexpr void load(int count)
    {
        loads = count;
        for (int l = 0; l < count; l++)
            add(STEP_LOAD, l, 0, 0, false);
    }
};

/* add, norm: both results are stored. */
template <bool CENTRED> struct known_norm {
    static constexpr bool GRAD = false;
    static constexpr known_program make()
    {
        known_program p = {};
        p.load(2);
        p.add(STEP_add, 0, 0, 1, true);
        p.add(STEP_STORE, 0, 0, 0, false);
        p.norm = p.steps;
        p.add(CENTRED ? STEP_layernorm : STEP_rmsnorm, 0, 0, 0, true);
        p.add(STEP_STORE, 0, 0, 0, false);
        return p;
    }
};

/* The sum of TERMS gradients, the norm's gradient of it, the sum of that and a residual's, which is stored and, with DB, summed
 * over rows. */
template <bool CENTRED, int TERMS, bool DB> struct known_norm_grad {
    static constexpr bool GRAD = true;
    static constexpr known_program make()
    {
        known_program p = {};
        const int many = TERMS > 1, x = many ? TERMS : 0, rest = many ? TERMS + 1 : 2, dy = many ? TERMS + 2 : 1;
        p.load(rest + 1);
        for (int t = 0; many && t < TERMS; t++)
            p.add(t ? STEP_add : STEP_cast, dy, t ? dy : 0, t, t == TERMS - 1);
        p.norm = p.steps;
        p.add(CENTRED ? STEP_layernorm_grad : STEP_rmsnorm_grad, 0, x, dy, true, 0, CENTRED);
        p.add(STEP_cast, 1, 0, 0, false);
        p.add(STEP_add, 1, 1, rest, true);
        p.add(STEP_STORE, 0, 1, 0, false);
        p.sums = CENTRED ? 2 : 1;
        if (DB)
            p.add(STEP_linear_db, 0, 1, 0, false, p.sums++);
        return p;
    }
};

template <class P> struct known {
    static constexpr known_program program = P::make();
    /* Threads of a block, at most: so many that all sums find registers. */
    static constexpr int threads = program.sums > 1 ? ROW_THREADS_MAX / 2 : ROW_THREADS_MAX;
};

template <class T>
constexpr int dtype_named = std::is_same_v<T, float> ? WEIR_F32 : std::is_same_v<T, __half> ? WEIR_F16 : WEIR_BF16;

struct known_call {
    int64_t rows, columns, chunk;
    void *memory[KNOWN_STEPS]; /* of each load and store */
    const float *gain, *bias;
    float *means, *rstds;
    double *part[PROGRAM_SUMS];
    double eps;
};

/* The part of a row that a thread has. */
template <class P> struct known_thread {
    float slot[PROGRAM_SLOTS][ROW_NEAR];
    cells<ROW_NEAR, true> at;
    near_parts parts;
    double sum[PROGRAM_SUMS][ROW_NEAR]; /* over rows */
    float gain[ROW_NEAR], bias[ROW_NEAR], mean, rstd;
};

template <class P, class T, int S> DEVICE void known_do(const known_call &c, known_thread<P> &t)
{
    constexpr known_step s = known<P>::program.step[S];
    float x[ROW_NEAR];
    memcpy(x, t.slot[s.a], sizeof x);
    if constexpr (s.code == STEP_STORE) {
        near_put((T *)c.memory[S] + t.at.row * c.columns, t.at, true, x);
    } else if constexpr (s.code == STEP_linear_db) {
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            t.sum[s.sum][k] += x[k];
    } else {
        if constexpr (s.code == STEP_add) {
            UNROLL
            for (int k = 0; k < ROW_NEAR; k++)
                x[k] = add_function::of(x[k], t.slot[s.b][k]);
        } else if constexpr (s.code == STEP_layernorm || s.code == STEP_rmsnorm) {
            norm_step<s.code == STEP_layernorm>(
                t.at, t.parts, c.eps, c.means, c.rstds, x,
                [&](int i, float(&w)[ROW_NEAR]) { memcpy(w, i ? t.bias : t.gain, sizeof w); });
        } else if constexpr (s.code == STEP_layernorm_grad || s.code == STEP_rmsnorm_grad) {
            norm_grad_step<s.code == STEP_layernorm_grad>(
                t.at, t.parts, t.mean, t.rstd, x, t.slot[s.b],
                [&](int, float(&w)[ROW_NEAR]) { memcpy(w, t.gain, sizeof w); },
                [&](int i, int k, float share) { t.sum[i ? s.more : s.sum][k] += share; });
        }
        round_to(s.narrow ? dtype_named<T> : WEIR_F32, x);
        memcpy(t.slot[s.to], x, sizeof x);
    }
}

template <class P, class T, int S> DEVICE void known_steps(const known_call &c, known_thread<P> &t)
{
    if constexpr (S < known<P>::program.steps) {
        known_do<P, T, S>(c, t);
        known_steps<P, T, S + 1>(c, t);
    }
}

template <class P, class T> KERNEL_OF(chain_known, known<P>::threads)(known_call c)
{
    constexpr known_program program = known<P>::program;
    constexpr bool centred = P::GRAD ? program.sums > 1 : program.step[program.norm].code == STEP_layernorm;
    SHARED(near_quad, part, NEAR_PARTS);
    const int64_t first = blockIdx.x * c.chunk, end = first + c.chunk < c.rows ? first + c.chunk : c.rows;
    const float *means = near_apart(c.means), *rstds = near_apart(c.rstds);
    known_thread<P> t = {};
    t.at = {first, (int64_t)threadIdx.x * ROW_NEAR, c.columns};
    t.parts = near_shared(part);
    near_bits<T, ROW_NEAR> next[program.loads];
    float next_mean = 0, next_rstd = 0;
    const auto load = [&](int64_t row) {
        UNROLL
        for (int l = 0; l < program.loads; l++)
            next[l] = near_load((const T *)c.memory[l] + row * c.columns, t.at, true);
        if (P::GRAD) {
            next_mean = centred ? means[row] : 0;
            next_rstd = rstds[row];
        }
    };
    load(first);
    near_get(c.gain, t.at, true, t.gain);
    if (centred && !P::GRAD)
        near_get(c.bias, t.at, true, t.bias);
    for (; t.at.row < end; t.at.row++) {
        UNROLL
        for (int l = 0; l < program.loads; l++)
            near_widen(next[l], t.slot[l]);
        t.mean = next_mean;
        t.rstd = next_rstd;
        if (t.at.row + 1 < end)
            load(t.at.row + 1);
        known_steps<P, T, program.loads>(c, t);
    }
    UNROLL
    for (int s = 0; s < program.sums; s++)
        if (t.at.any()) {
            UNROLL
            for (int k = 0; k < ROW_NEAR; k++)
                c.part[s][blockIdx.x * c.columns + t.at.column(k)] = t.sum[s][k];
        }
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

/* Loads that are no whole packs are steps like others. */
static void set_operands(const weir_kernel_args *args, fused_program *p)
{
    double *part = (double *)args->workspace;
    const int near = fused_program_each(p);
    for (int o = 0; o < p->operands; o++) {
        program_operand *x = &p->operand[o];
        x->data = view_of(args, p->code[o])->data;
        x->packs = x->column_step && x->row_step % near == 0 && packs_fit(x->data, (size_t)(near * bytes_each(x->dtype)));
    }
    bool whole = p->columns % near == 0;
    for (int l = 0; l < p->loads; l++) {
        const program_operand *x = &p->operand[p->step[l].operand[0]];
        whole &= x->packs || !x->column_step;
    }
    if (!whole)
        p->loads = 0;
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

static void fold_sums(const weir_kernel_args *args, const fused_program &p)
{
    for (int s = 0; s < p.sums; s++)
        fold_columns(args, p.sum[s].part, chunks_of(p.rows), p.columns, view_f32(&args->out[p.sum[s].out]), false);
}

template <int K, program_way WAY>
static void launch_rows(const weir_kernel_args *args, const fused_program &p, const chain_call &call)
{
    const int threads = fused_program_threads(&p);
    const int64_t wide = threads * K, tiles = WAY == PROGRAM_TILE ? (p.columns + wide - 1) / wide : 1;
    const int64_t chunks = p.sums ? chunks_of(p.rows) : p.rows;
    const size_t bytes = (size_t)(p.sums * wide) * sizeof(double);
    LAUNCH_SHARED((chain_rows<K, WAY>), chunks * tiles, threads, bytes, args->queue, p, call);
    fold_sums(args, p);
}

/* Whether the program is that one, of tensors of T. */
template <class P, class T> static bool known_is(const fused_program &p)
{
    const known_program &is = known<P>::program;
    bool same = p.way == PROGRAM_ROW && p.steps == is.steps && p.loads == is.loads && p.sums == is.sums;
    for (int i = 0; i < is.steps && same; i++) {
        const program_step &s = p.step[i];
        const known_step &k = is.step[i];
        const program_operand &o = p.operand[s.operand[0]];
        const bool memory = k.code == STEP_LOAD || k.code == STEP_STORE;
        same = s.code == k.code && s.to == k.to && s.a == k.a && s.b == k.b && s.sum == k.sum && s.more == k.more &&
               s.dtype == (k.narrow ? dtype_named<T> : WEIR_F32);
        same = same && (!memory || (o.dtype == dtype_named<T> && o.column_step && o.row_step == p.columns && o.packs));
    }
    const program_step &norm = p.step[is.norm];
    const bool bias = is.step[is.norm].code == STEP_layernorm;
    return same && p.operand[norm.operand[0]].packs && (!bias || p.operand[norm.operand[1]].packs);
}

static known_call known_call_of(const fused_program &p, const known_program &is)
{
    const program_step &norm = p.step[is.norm];
    known_call c = {};
    c.rows = p.rows;
    c.columns = p.columns;
    c.chunk = p.sums ? chunk_rows(p.rows) : rows_of_block(p.rows);
    for (int i = 0; i < p.steps; i++)
        c.memory[i] = p.operand[p.step[i].operand[0]].data;
    c.gain = (const float *)p.operand[norm.operand[0]].data;
    c.bias = (const float *)p.operand[norm.operand[1]].data;
    c.means = (float *)p.operand[norm.operand[2]].data;
    c.rstds = (float *)p.operand[norm.operand[3]].data;
    for (int i = 0; i < p.sums; i++)
        c.part[i] = p.sum[i].part;
    c.eps = norm.eps;
    return c;
}

template <class P> static bool launch_known(const weir_kernel_args *args, const fused_program &p)
{
    const int threads = fused_program_threads(&p);
    bool is = false;
    WITH_REAL(p.operand[p.step[0].operand[0]].dtype, T, {
        is = known_is<P, T>(p) && threads <= known<P>::threads;
        if (is) {
            const known_call c = known_call_of(p, known<P>::program);
            LAUNCH((chain_known<P, T>), (p.rows + c.chunk - 1) / c.chunk, threads, args->queue, c);
        }
    });
    if (is)
        fold_sums(args, p);
    return is;
}

static void launch_row_way(const weir_kernel_args *args, const fused_program &p, const chain_call &call)
{
    const bool done = launch_known<known_norm<true>>(args, p) || launch_known<known_norm<false>>(args, p) ||
                      launch_known<known_norm_grad<true, 1, false>>(args, p) ||
                      launch_known<known_norm_grad<true, 3, false>>(args, p) ||
                      launch_known<known_norm_grad<true, 1, true>>(args, p) ||
                      launch_known<known_norm_grad<true, 3, true>>(args, p) ||
                      launch_known<known_norm_grad<false, 2, false>>(args, p) ||
                      launch_known<known_norm_grad<false, 3, false>>(args, p);
    if (!done)
        launch_rows<ROW_NEAR, PROGRAM_ROW>(args, p, call);
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
    else
        launch_row_way(args, p, call);
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
