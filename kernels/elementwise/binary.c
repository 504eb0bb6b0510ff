/* binary.c: y = f(a, b) with NumPy's broadcasting, and the gradients, from the rows of kernels/common/elements.h. A row of
 * the table says which dtypes the operands may have; a comparison makes u8.
 *
 * The walk over the output is collapsed (nest.h) until the innermost loop is one of three: both operands run, or one of
 * them stands still. So x [rows, n] + bias [n], x * scalar and a column [rows, 1] against a matrix all run at full
 * vector speed, and everything else is a nest of such loops.
 *
 * The gradient with respect to an operand that was repeated is summed over the repetitions by sum_to.
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/formula.h"
#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/reduce/reduce.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include "graph/base/base.h"

#include <weir/ops.h>

/* ---- rules ---- */

bool broadcast_shapes(const weir_shape *a, const weir_shape *b, weir_shape *both)
{
    both->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int d = 0; d < both->rank; d++) {
        int da = d - (both->rank - a->rank), db = d - (both->rank - b->rank);
        int64_t size_a = da < 0 ? 1 : a->dim[da], size_b = db < 0 ? 1 : b->dim[db];
        if (size_a != size_b && size_a != 1 && size_b != 1)
            return false;
        both->dim[d] = size_a == 1 ? size_b : size_a;
    }
    return true;
}

bool infer_broadcast(weir_op_args *args, weir_dtype dtype, char *error, size_t error_bytes)
{
    char a[RULES_SHAPE_TEXT], b[RULES_SHAPE_TEXT];
    args->out[0] = (weir_type){.dtype = dtype, .shape = args->in[0].shape};
    for (int i = 1; i < args->in_count; i++) {
        const weir_shape before = args->out[0].shape;
        if (!broadcast_shapes(&before, &args->in[i].shape, &args->out[0].shape))
            return REFUSE("shapes %s and %s do not broadcast", shape_text(&before, a, sizeof a),
                          shape_text(&args->in[i].shape, b, sizeof b));
    }
    return true;
}

static bool infer_real(weir_op_args *args, char *error, size_t error_bytes)
{
    return rule_all_real(args, error, error_bytes) && infer_broadcast(args, args->in[0].dtype, error, error_bytes);
}

static bool infer_wrapping(weir_op_args *args, char *error, size_t error_bytes)
{
    return rule_all_numbers(args, error, error_bytes) && infer_broadcast(args, args->in[0].dtype, error, error_bytes);
}

static bool infer_ordered(weir_op_args *args, char *error, size_t error_bytes)
{
    return infer_wrapping(args, error, error_bytes);
}

static bool infer_compared(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_dtype a = args->in[0].dtype, b = args->in[1].dtype;
    if (a != b)
        return REFUSE("dtypes %s and %s differ", weir_dtype_name(a), weir_dtype_name(b));
    if (a == WEIR_I8)
        return REFUSE("the inputs are i8, and only f32, f16, bf16, i32, i64 or u8 will do");
    return infer_broadcast(args, WEIR_U8, error, error_bytes);
}

static bool infer_bytes(weir_op_args *args, char *error, size_t error_bytes)
{
    for (int i = 0; i < 2; i++)
        if (args->in[i].dtype != WEIR_U8)
            return REFUSE("input %d is %s, and only u8 will do", i, weir_dtype_name(args->in[i].dtype));
    return infer_broadcast(args, WEIR_U8, error, error_bytes);
}

/* How `in` lies when dimension d of `out` is split. */
static weir_sbp split_of(const weir_shape *in, const weir_shape *out, int d)
{
    int own = d - (out->rank - in->rank);
    return own >= 0 && in->dim[own] != 1 ? WEIR_S(own) : WEIR_B;
}

void sign_broadcast(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *out = &args->out[0].shape;
    for (int d = 0; d < out->rank; d++) {
        if (out->dim[d] == 1)
            continue;
        weir_signature *s = weir_signature_new(list);
        for (int i = 0; i < args->in_count; i++)
            s->in[i] = split_of(&args->in[i].shape, out, d);
        s->out[0] = WEIR_S(d);
    }
}

static void sign_sum(const weir_op_args *args, weir_signature_list *list)
{
    sign_broadcast(args, list);
    if (weir_dtype_real(args->in[0].dtype))
        sign_linear(args, list);
}

static void sign_product(const weir_op_args *args, weir_signature_list *list)
{
    sign_broadcast(args, list);
    if (!weir_dtype_real(args->in[0].dtype))
        return;
    sign_linear_in(args, list, 0);
    sign_linear_in(args, list, 1);
}

static void sign_quotient(const weir_op_args *args, weir_signature_list *list)
{
    sign_broadcast(args, list);
    sign_linear_in(args, list, 0);
}

static void binary_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->out[0].shape));
}

/* ---- kernels ---- */

/* One row of the output; stride_a and stride_b are 0 or 1. */
typedef void (*binary_row)(const void *a, int64_t stride_a, const void *b, int64_t stride_b, void *y, int64_t count);

/* The same of halves; a, b and y are the first elements of the row. A result of u8 is written in its place. */
static void half_row(const weir_kernel_args *args, binary_row row, const nest *n, int64_t a, int64_t b, int64_t y)
{
    const int64_t step_a = n->stride[0][n->rank - 1], step_b = n->stride[1][n->rank - 1], count = nest_inner(n);
    const weir_view *out = &args->out[0];
    float a_block[REAL_BLOCK], b_block[REAL_BLOCK], *const block = step_a ? a_block : b_block;
    for (int64_t at = 0, part; at < count; at += part) {
        part = real_part(args, count - at);
        const float *x0 = real_in(&args->in[0], a + at * step_a, step_a ? part : 1, a_block);
        const float *x1 = real_in(&args->in[1], b + at * step_b, step_b ? part : 1, b_block);
        row(x0, step_a, x1, step_b, out->dtype == WEIR_U8 ? (void *)((uint8_t *)out->data + y + at) : block, part);
        real_put(out, y + at, part, block);
    }
}

/* rows: by the dtype of the operands; f32 for halves. */
static weir_status binary_run(const weir_kernel_args *args, const binary_row *rows)
{
    const weir_dtype dtype = args->in[0].dtype;
    const bool half = dtype_half(dtype);
    const size_t in_bytes = weir_dtype_bytes(dtype), out_bytes = weir_dtype_bytes(args->out[0].dtype);
    const binary_row row = rows[half ? WEIR_F32 : dtype];
    const char *a = args->in[0].data, *b = args->in[1].data;
    char *y = args->out[0].data;
    nest n = nest_over(&args->out[0].shape);
    nest_broadcast(&n, &args->in[0].shape);
    nest_broadcast(&n, &args->in[1].shape);
    nest_collapse(&n);
    const int64_t count = row ? nest_rows(&n) : 0, inner = nest_inner(&n); /* infer takes no dtype without a row */
    nest_pos pos = {0};
    for (int64_t r = 0; r < count && inner; r++, nest_step(&n, &pos))
        if (half)
            half_row(args, row, &n, pos.at[0], pos.at[1], r * inner);
        else
            row(a + (size_t)pos.at[0] * in_bytes, n.stride[0][n.rank - 1], b + (size_t)pos.at[1] * in_bytes,
                n.stride[1][n.rank - 1], y + (size_t)(r * inner) * out_bytes, inner);
    return WEIR_OK;
}

/* An operand that stands still is read before the loop: y may lie in a's memory. */
#define BINARY_ROW(name, f, dtype, in_type, out_type)                                                              \
    static void name##_##dtype##_row(const void *from_a, int64_t stride_a, const void *from_b, int64_t stride_b,   \
                                     void *to, int64_t count)                                                      \
    {                                                                                                              \
        const in_type *a = from_a, *b = from_b;                                                                    \
        const in_type a0 = a[0], b0 = b[0];                                                                        \
        out_type *y = to;                                                                                          \
        if (stride_a && stride_b) {                                                                                \
            FAST_LOOP                                                                                              \
            for (int64_t i = 0; i < count; i++)                                                                    \
                y[i] = f(a[i], b[i]);                                                                              \
        } else if (stride_a) {                                                                                     \
            FAST_LOOP                                                                                              \
            for (int64_t i = 0; i < count; i++)                                                                    \
                y[i] = f(a[i], b0);                                                                                \
        } else {                                                                                                   \
            FAST_LOOP                                                                                              \
            for (int64_t i = 0; i < count; i++)                                                                    \
                y[i] = f(a0, (stride_b ? b[i] : b0));                                                              \
        }                                                                                                          \
    }

/* The rows of an op, by the dtypes that it takes: the loops, and the table of them. */
#define ROWS_real(name, f)                       \
    BINARY_ROW(name, f, f32, float, float)       \
    static const binary_row name##_rows[WEIR_DTYPES] = {[WEIR_F32] = name##_f32_row};
#define ROWS_wrapping(name, f)                   \
    BINARY_ROW(name, f, f32, float, float)       \
    BINARY_ROW(name, f, i32, uint32_t, uint32_t) \
    BINARY_ROW(name, f, i64, uint64_t, uint64_t) \
    static const binary_row name##_rows[WEIR_DTYPES] = {                                                        \
        [WEIR_F32] = name##_f32_row, [WEIR_I32] = name##_i32_row, [WEIR_I64] = name##_i64_row};
#define ROWS_ordered(name, f)                    \
    BINARY_ROW(name, f, f32, float, float)       \
    BINARY_ROW(name, f, i32, int32_t, int32_t)   \
    BINARY_ROW(name, f, i64, int64_t, int64_t)   \
    static const binary_row name##_rows[WEIR_DTYPES] = {                                                        \
        [WEIR_F32] = name##_f32_row, [WEIR_I32] = name##_i32_row, [WEIR_I64] = name##_i64_row};
#define ROWS_compared(name, f)                   \
    BINARY_ROW(name, f, f32, float, uint8_t)     \
    BINARY_ROW(name, f, i32, int32_t, uint8_t)   \
    BINARY_ROW(name, f, i64, int64_t, uint8_t)   \
    BINARY_ROW(name, f, u8, uint8_t, uint8_t)    \
    static const binary_row name##_rows[WEIR_DTYPES] = {[WEIR_F32] = name##_f32_row, [WEIR_I32] = name##_i32_row, \
                                                        [WEIR_I64] = name##_i64_row, [WEIR_U8] = name##_u8_row};
#define ROWS_bytes(name, f)                      \
    BINARY_ROW(name, f, u8, uint8_t, uint8_t)    \
    static const binary_row name##_rows[WEIR_DTYPES] = {[WEIR_U8] = name##_u8_row};

#define BINARY(opname, f, signs, policy, dtypes, backward, over)                                                \
    ROWS_##dtypes(opname, f)                                                                                    \
    static weir_status opname##_kernel(const weir_kernel_args *args)                                            \
    {                                                                                                           \
        return binary_run(args, opname##_rows);                                                                 \
    }                                                                                                           \
    const weir_op op_##opname = {                                                                               \
        .name = #opname,                                                                                        \
        .in_min = 2,                                                                                            \
        .in_max = 2,                                                                                            \
        .out_count = 1,                                                                                         \
        .infer = infer_##dtypes,                                                                                \
        .signatures = signs,                                                                                    \
        .grad = backward,                                                                                       \
        .cost = binary_cost,                                                                                    \
        .kernel = {[WEIR_CPU] = opname##_kernel},                                                               \
        .inplace = over,                                                                                        \
        .rows_in = 1 << 0 | 1 << 1,                                                                             \
        .rows_out = 1,                                                                                          \
        .half = policy,                                                                                         \
    };

/* ---- the DSL ---- */

static weir_tensor *apply_pair(const weir_op *op, const char *function, weir_tensor *a, weir_tensor *b,
                               const weir_op_opts *given)
{
    weir_op_opts opts;
    a = op_opts(a, function, given, &opts, sizeof opts);
    weir_tensor *in[2] = {a, b};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, op, NULL, in, 2, NULL}, NULL);
}

#define FUNCTION(function, opname, first, second)                                                  \
    weir_tensor *weir_##function##_at(weir_tensor *a, weir_tensor *b, const weir_op_opts *given)   \
    {                                                                                              \
        return apply_pair(&op_##opname, #function, first, second, given);                          \
    }
#define PAIR_FUNCTION(X, name, ...) FUNCTION(name, name, a, b)
PAIR_ROWS(PAIR_FUNCTION, )
FUNCTION(equal, equal, a, b)
FUNCTION(less, less, a, b)
FUNCTION(less_equal, less_equal, a, b)
FUNCTION(greater, less, b, a)
FUNCTION(greater_equal, less_equal, b, a)
FUNCTION(and, logical_and, a, b)
FUNCTION(or, logical_or, a, b)
FUNCTION(xor, logical_xor, a, b)

/* ---- gradients ---- */

/* din[i] = dy, summed to the shape of in[i] */
static void flows_back(weir_grad_args *args, int i, weir_tensor *dy)
{
    weir_type type = weir_tensor_type(args->in[i]);
    args->din[i] = reduce_sum_to(dy, &type.shape, args->src);
}

static void add_backward(weir_grad_args *args)
{
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            flows_back(args, i, args->dout[0]);
}

static void sub_backward(weir_grad_args *args)
{
    if (args->needed[0])
        flows_back(args, 0, args->dout[0]);
    if (!args->needed[1])
        return;
    flows_back(args, 1, args->dout[0]);
    args->din[1] = weir_neg_at(args->din[1], WEIR_OPTS_AT(args->src, weir_op_opts));
}

static void mul_backward(weir_grad_args *args)
{
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            flows_back(args, i, weir_mul_at(args->dout[0], args->in[1 - i], WEIR_OPTS_AT(args->src, weir_op_opts)));
}

/* d(a/b) = da / b - y db / b */
static void div_backward(weir_grad_args *args)
{
    weir_op_opts opts = {.size = sizeof opts, .src = args->src};
    weir_tensor *da = weir_div_at(args->dout[0], args->in[1], &opts);
    if (args->needed[0])
        flows_back(args, 0, da);
    if (!args->needed[1])
        return;
    flows_back(args, 1, weir_mul_at(da, args->out[0], &opts));
    args->din[1] = weir_neg_at(args->din[1], &opts);
}

/* The operand that is the result gets dy: the first one, if both are. With a NaN, it is the second. */
static void chosen_backward(weir_grad_args *args, weir_tensor *small, weir_tensor *large)
{
    weir_tensor *first = weir_less_equal_at(small, large, WEIR_OPTS_AT(args->src, weir_op_opts));
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            flows_back(args, i, choice_masked(first, args->dout[0], i == 1, args->src));
}

static void min2_backward(weir_grad_args *args)
{
    chosen_backward(args, args->in[0], args->in[1]);
}

static void max2_backward(weir_grad_args *args)
{
    chosen_backward(args, args->in[1], args->in[0]);
}

static void pow_backward(weir_grad_args *args)
{
    weir_op_opts opts = {.size = sizeof opts, .src = args->src};
    const weir_op *const slope[2] = {&op_pow_da, &op_pow_db};
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            flows_back(args, i, weir_mul_at(args->dout[0], apply_pair(slope[i], "pow", args->in[0], args->in[1], &opts), &opts));
}

#define PAIR(X, name, f, signs, policy, dtypes) BINARY(name, f, signs, policy, dtypes, name##_backward, 1)
PAIR_ROWS(PAIR, )
#define SLOPE_PAIR(X, name, f, dtypes) BINARY(name, f, sign_broadcast, WEIR_HALF_NEVER, dtypes, NULL, 1)
SLOPE_PAIR_ROWS(SLOPE_PAIR, )
#define TEST(X, name, f, dtypes) BINARY(name, f, sign_broadcast, WEIR_HALF_FOLLOW, dtypes, NULL, 0)
TEST_ROWS(TEST, )
