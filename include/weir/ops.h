/* weir/ops.h: the built-in ops. Values are f32 unless a comment says otherwise; shapes are logical. Each op is a weir_op
 * (<weir/op.h>), whose rules check the arguments. Every function takes .name and returns a tensor owned by the graph,
 * poisoned after a mistake.
 *
 *     weir_tensor *h = weir_gelu(weir_linear(weir_layernorm(x), 256, .name = "up"));
 *     weir_tensor *y = weir_add(x, weir_linear(h, 64, .name = "down"));
 *
 * Binary ops broadcast as NumPy does: shapes are aligned at the last dimension, and a dimension of 1 or a missing one
 * is repeated.
 */
#ifndef WEIR_OPS_H
#define WEIR_OPS_H

#include <weir/graph.h>

WEIR_C_BEGIN

typedef struct weir_op_opts {
    size_t size;
    weir_src src;
    const char *name;
} weir_op_opts;

/* ---- elementwise: f(x) ---- */
#define WEIR_UNARY_LIST(X) \
    X(neg) X(exp) X(log) X(sqrt) X(tanh) X(sigmoid) X(relu) X(gelu) X(silu) X(abs) X(sin) X(cos) X(erf) X(gelu_erf) \
    X(reciprocal) X(softplus) X(floor) X(ceil) X(round) X(sign)
#define X(name) weir_tensor *weir_##name##_at(weir_tensor *x, const weir_op_opts *opts);
WEIR_UNARY_LIST(X)
#undef X
#define weir_neg(x, ...) weir_neg_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_exp(x, ...) weir_exp_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_log(x, ...) weir_log_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_sqrt(x, ...) weir_sqrt_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_tanh(x, ...) weir_tanh_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_sigmoid(x, ...) weir_sigmoid_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_relu(x, ...) weir_relu_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016) */
#define weir_gelu(x, ...) weir_gelu_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_silu(x, ...) weir_silu_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* x is f32, f16 or bf16. neg, abs and sign take i32 and i64 as well, which wrap around: -INT32_MIN is INT32_MIN. NaN stays NaN
 * in all of these. The derivative of abs is sign(x), so 0 at 0. */
#define weir_abs(x, ...) weir_abs_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* Radians; within 2 ulp up to 2^28. Beyond, results are still from -1 to 1, but the phase loses its digits. Infinity: NaN. */
#define weir_sin(x, ...) weir_sin_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_cos(x, ...) weir_cos_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x */
#define weir_erf(x, ...) weir_erf_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* exact form: x/2 (1 + erf(x / sqrt(2))) (Hendrycks and Gimpel 2016) */
#define weir_gelu_erf(x, ...) weir_gelu_erf_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* 1 / x */
#define weir_reciprocal(x, ...) weir_reciprocal_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* log(1 + exp(x)), which does not overflow */
#define weir_softplus(x, ...) weir_softplus_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* round: to the nearest integer, halves to the even one. sign: 1, 0 or -1. The derivative of these four is 0. */
#define weir_floor(x, ...) weir_floor_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_ceil(x, ...) weir_ceil_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_round(x, ...) weir_round_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_sign(x, ...) weir_sign_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))

/* ---- elementwise: f(a, b), broadcasting ---- */
#define WEIR_BINARY_LIST(X)                                                                          \
    X(add) X(sub) X(mul) X(div) X(min2) X(max2) X(pow) X(equal) X(less) X(less_equal) X(greater)     \
    X(greater_equal) X(and) X(or) X(xor)
#define X(name) weir_tensor *weir_##name##_at(weir_tensor *a, weir_tensor *b, const weir_op_opts *opts);
WEIR_BINARY_LIST(X)
#undef X
#define weir_add(a, b, ...) weir_add_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_sub(a, b, ...) weir_sub_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_mul(a, b, ...) weir_mul_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_div(a, b, ...) weir_div_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* All of these take two of one dtype: f32, f16 or bf16. add, sub, mul, min2 and max2 take i32 and i64 as well, which wrap around.
 * min2 is the smaller, max2 the larger of two; NaN if one is NaN. The gradient goes to the one taken, the first of equals. */
#define weir_min2(a, b, ...) weir_min2_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_max2(a, b, ...) weir_max2_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* a to the power of b, as C's pow(): 0^0 is 1. A negative a has integer powers alone; others are NaN. The C library's powf()
 * computes it, so the last bit may differ between processors.
 * The gradients are b a^(b-1), which is 0 at b = 0, and log(a) a^b, which is 0 at a = 0 with b >= 0, and NaN for a negative
 * a. */
#define weir_pow(a, b, ...) weir_pow_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* Comparisons: u8, 1 where it is true and else 0. Operands are of one dtype: f32, f16, bf16, i64, i32 or u8. A comparison with
 * NaN is false. No gradient flows through one. */
#define weir_equal(a, b, ...) weir_equal_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_less(a, b, ...) weir_less_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_less_equal(a, b, ...) weir_less_equal_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_greater(a, b, ...) weir_greater_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_greater_equal(a, b, ...) weir_greater_equal_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
/* These take two u8, each of which is true unless it is 0, and make u8, 1 or 0. */
#define weir_and(a, b, ...) weir_and_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_or(a, b, ...) weir_or_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
#define weir_xor(a, b, ...) weir_xor_at(a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))

/* ---- elementwise: choices ---- */

/* u8 -> u8: 1 where x is 0, else 0. */
#define weir_not(x, ...) weir_not_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_not_at(weir_tensor *x, const weir_op_opts *opts);
/* f32, f16 or bf16 -> u8: 1 where x is NaN, else 0. */
#define weir_is_nan(x, ...) weir_is_nan_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_is_nan_at(weir_tensor *x, const weir_op_opts *opts);
/* a where the condition (u8) is not 0, b where it is; all three broadcast. a and b are of one dtype, any. The gradient of an
 * element that was not taken is 0. */
#define weir_where(condition, a, b, ...) weir_where_at(condition, a, b, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_where_at(weir_tensor *condition, weir_tensor *a, weir_tensor *b, const weir_op_opts *opts);

typedef struct weir_clip_opts {
    size_t size;
    weir_src src;
    double lo, hi; /* default: no bound; WEIR_ZERO: 0 */
    const char *name;
} weir_clip_opts;
/* x, but .lo where it is smaller and .hi where it is larger; NaN stays NaN. f32, f16 or bf16. The gradient is 0 outside of the
 * bounds, which belong to the inside. weir_clip(x, .lo = WEIR_ZERO, .hi = 6) */
#define weir_clip(x, ...) weir_clip_at(x, WEIR_OPTS(weir_clip_opts, __VA_ARGS__))
weir_tensor *weir_clip_at(weir_tensor *x, const weir_clip_opts *opts);

/* The sum of 1 to WEIR_ARGS_MAX tensors of one shape. */
weir_tensor *weir_add_many_at(weir_tensor *const *x, int x_count, const weir_op_opts *opts);

/* scale * x + shift, with constants */
typedef struct weir_affine_opts {
    size_t size;
    weir_src src;
    double scale;
    double shift;
    const char *name;
} weir_affine_opts;
#define weir_affine(x, ...) weir_affine_at(x, WEIR_OPTS(weir_affine_opts, .scale = __VA_ARGS__))
weir_tensor *weir_affine_at(weir_tensor *x, const weir_affine_opts *opts);

/* ---- products ---- */
typedef struct weir_matmul_opts {
    size_t size;
    weir_src src;
    const char *name;
    bool trans_a, trans_b; /* the last two dimensions are swapped first */
} weir_matmul_opts;
/* a [..., m, k] x b [..., k, n] -> [..., m, n]. The batch dimensions of the two are equal, or b has none. */
#define weir_matmul(a, b, ...) weir_matmul_at(a, b, WEIR_OPTS(weir_matmul_opts, __VA_ARGS__))
weir_tensor *weir_matmul_at(weir_tensor *a, weir_tensor *b, const weir_matmul_opts *opts);

typedef struct weir_linear_opts {
    size_t size;
    weir_src src;
    const char *name;
    weir_sbp weight[WEIR_AXES_MAX]; /* SBP of the weight; the bias follows it */
    bool no_bias;
    weir_init init;                 /* of the weight; default: normal with standard deviation 1/sqrt(in) */
    bool by_row;                    /* the bits of a row do not depend on the number of rows; slower if there are many */
} weir_linear_opts;
/* x [..., in], of two or more dimensions, -> [..., out] = x W + b with parameters NAME/weight [in, out] and NAME/bias
 * [out] (initially zeros). The parameters are f32; if x is f16 or bf16, the weight is cast to its dtype. */
#define weir_linear(x, out, ...) weir_linear_at(x, out, WEIR_OPTS(weir_linear_opts, __VA_ARGS__))
weir_tensor *weir_linear_at(weir_tensor *x, int64_t out, const weir_linear_opts *opts);
/* The same with a weight [in, out] and a bias [out] (or NULL) that exist already. */
weir_tensor *weir_linear_with_at(weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const weir_op_opts *opts);

/* ---- over the last dimension ---- */
#define weir_softmax(x, ...) weir_softmax_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_softmax_at(weir_tensor *x, const weir_op_opts *opts);

typedef struct weir_norm_opts {
    size_t size;
    weir_src src;
    const char *name;
    double eps; /* default 1e-5; WEIR_ZERO: none */
} weir_norm_opts;
/* (x - mean) / sqrt(var + eps) * gain + bias, with parameters NAME/gain (ones) and NAME/bias (zeros), each [last]
 * (Ba et al. 2016) */
#define weir_layernorm(x, ...) weir_layernorm_at(x, WEIR_OPTS(weir_norm_opts, __VA_ARGS__))
weir_tensor *weir_layernorm_at(weir_tensor *x, const weir_norm_opts *opts);
/* x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019) */
#define weir_rmsnorm(x, ...) weir_rmsnorm_at(x, WEIR_OPTS(weir_norm_opts, __VA_ARGS__))
weir_tensor *weir_rmsnorm_at(weir_tensor *x, const weir_norm_opts *opts);

/* Index (i32) of the largest element of the last dimension, which is dropped; the first one of equals. */
#define weir_argmax(x, ...) weir_argmax_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_argmax_at(weir_tensor *x, const weir_op_opts *opts);

/* ---- language models ---- */
typedef struct weir_embedding_opts {
    size_t size;
    weir_src src;
    const char *name;
    weir_sbp weight[WEIR_AXES_MAX];
    weir_init init; /* default: normal with standard deviation 0.02 */
} weir_embedding_opts;
/* ids i32 [...] in [0, vocab) -> [..., dim], rows of the parameter NAME/weight [vocab, dim]. */
#define weir_embedding(ids, vocab, dim, ...) \
    weir_embedding_at(ids, vocab, dim, WEIR_OPTS(weir_embedding_opts, __VA_ARGS__))
weir_tensor *weir_embedding_at(weir_tensor *ids, int64_t vocab, int64_t dim, const weir_embedding_opts *opts);
/* The same with a weight [vocab, dim] that exists already. */
#define weir_embedding_with(ids, weight, ...) \
    weir_embedding_with_at(ids, weight, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_embedding_with_at(weir_tensor *ids, weir_tensor *weight, const weir_op_opts *opts);

typedef struct weir_attention_opts {
    size_t size;
    weir_src src;
    const char *name;
    int heads;     /* default 1; divides the last dimension */
    bool causal;   /* position i sees positions 0..i */
    double scale;  /* default 1/sqrt(dim/heads) */
} weir_attention_opts;
/* q [batch, seq, dim], k and v [batch, keys, dim] -> [batch, seq, dim]: softmax(scale q k^T) v per head, in blocks
 * (Dao et al. 2022): the matrix seq x keys never exists as a whole. */
#define weir_attention(q, k, v, ...) weir_attention_at(q, k, v, WEIR_OPTS(weir_attention_opts, __VA_ARGS__))
weir_tensor *weir_attention_at(weir_tensor *q, weir_tensor *k, weir_tensor *v, const weir_attention_opts *opts);

typedef struct weir_attention_kept_opts {
    size_t size;
    weir_src src;
    const char *name;
    int heads;     /* default 1; divides the last dimension */
    double scale;  /* default 1/sqrt(dim/heads) */
} weir_attention_kept_opts;
/* Causal attention with a cache: n new rows after the cached ones. q, k, v [batch, n, dim], keys and values (the cache)
 * [batch, room, dim], position i32 with one element -> [batch, n, dim]. New row i is at position + i; it sees the cached
 * rows 0 .. position - 1 and the new rows 0 .. i. The bits of a row do not depend on which of the rows before it are cached
 * and which are new. The kernel fails unless 0 <= position <= room - n. No gradient flows through it. */
#define weir_attention_kept(q, k, v, keys, values, position, ...) \
    weir_attention_kept_at(q, k, v, keys, values, position,       \
                           WEIR_OPTS(weir_attention_kept_opts, __VA_ARGS__))
weir_tensor *weir_attention_kept_at(weir_tensor *q, weir_tensor *k, weir_tensor *v, weir_tensor *keys,
                                    weir_tensor *values, weir_tensor *position, const weir_attention_kept_opts *opts);

/* `x` [..., room, dim] with its rows position .. position + n - 1 replaced by `rows` [..., n, dim]; position is i32
 * with one element. It works in place if nothing else uses x. The kernel fails unless 0 <= position <= room - n. No
 * gradient flows through it. */
#define weir_append(x, rows, position, ...) \
    weir_append_at(x, rows, position, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_append_at(weir_tensor *x, weir_tensor *rows, weir_tensor *position, const weir_op_opts *opts);

typedef struct weir_cross_entropy_opts {
    size_t size;
    weir_src src;
    const char *name;
    bool ignore;          /* leave out rows whose label is ignore_index */
    int32_t ignore_index;
    bool sum;             /* the sum over rows rather than the mean */
} weir_cross_entropy_opts;
/* logits [..., classes], labels i32 [...] -> the mean, a scalar, of -log softmax(logits)[label] over all rows that are not
 * ignored; 0 if all are ignored.
 *
 * The mean is the default because it does not depend on the size of a batch. But with .ignore and several micro-batches a
 * step trains on the mean of their means, in which a label counts more if its micro-batch has few. To give each label the
 * same weight, train on the sum, and divide by the number of labels of the whole step:
 *     weir_tensor *loss = weir_cross_entropy(logits, labels, .ignore = true, .ignore_index = -1, .sum = true);
 *     weir_train(loss, weir_adamw(), .count = weir_label_count(labels, .ignore = true, .ignore_index = -1)); */
#define weir_cross_entropy(logits, labels, ...) \
    weir_cross_entropy_at(logits, labels, WEIR_OPTS(weir_cross_entropy_opts, __VA_ARGS__))
weir_tensor *weir_cross_entropy_at(weir_tensor *logits, weir_tensor *labels, const weir_cross_entropy_opts *opts);

typedef struct weir_label_count_opts {
    size_t size;
    weir_src src;
    const char *name;
    bool ignore;          /* do not count labels that are ignore_index */
    int32_t ignore_index;
} weir_label_count_opts;
/* labels i32 [...] -> the number of labels, an f32 scalar (exact up to 2^24). No gradient flows through it. */
#define weir_label_count(labels, ...) \
    weir_label_count_at(labels, WEIR_OPTS(weir_label_count_opts, __VA_ARGS__))
weir_tensor *weir_label_count_at(weir_tensor *labels, const weir_label_count_opts *opts);

/* ---- reductions ---- */
typedef struct weir_reduce_opts {
    size_t size;
    weir_src src;
    const char *written;     /* the text of the options, filled in by the macros, to tell .axes = {0} from no option */
    int axes[WEIR_DIMS_MAX]; /* may be negative */
    const char *name;
    int axis_count;          /* number of `axes`; 0: over all dimensions */
    bool keep;               /* reduced dimensions stay, with size 1 */
} weir_reduce_opts;
/* weir_sum(x) over all; weir_sum(x, .axes = {-1}, .axis_count = 1); .axes without .axis_count is a mistake */
#define weir_sum(x, ...) weir_sum_at(x, WEIR_OPTS(weir_reduce_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
#define weir_mean(x, ...) weir_mean_at(x, WEIR_OPTS(weir_reduce_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
#define weir_max(x, ...) weir_max_at(x, WEIR_OPTS(weir_reduce_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
weir_tensor *weir_sum_at(weir_tensor *x, const weir_reduce_opts *opts);
weir_tensor *weir_mean_at(weir_tensor *x, const weir_reduce_opts *opts);
weir_tensor *weir_max_at(weir_tensor *x, const weir_reduce_opts *opts);

/* ---- shape ---- */
typedef struct weir_dims_opts {
    size_t size;
    weir_src src;
    int64_t dims[WEIR_DIMS_MAX]; /* ends at the first 0 for reshape */
    const char *name;
} weir_dims_opts;
/* The same elements in the same order; one dimension may be -1, which means the rest. weir_reshape(x, {8, -1}) */
#define weir_reshape(x, ...) weir_reshape_at(x, WEIR_OPTS(weir_dims_opts, .dims = __VA_ARGS__))
weir_tensor *weir_reshape_at(weir_tensor *x, const weir_dims_opts *opts);
/* Dimension i of the result is dimension dims[i] of x. weir_transpose(x, {0, 2, 1}) */
#define weir_transpose(x, ...) weir_transpose_at(x, WEIR_OPTS(weir_dims_opts, .dims = __VA_ARGS__))
weir_tensor *weir_transpose_at(weir_tensor *x, const weir_dims_opts *opts);
/* Elements first .. first+count-1 of dimension `axis` (may be negative). */
#define weir_slice(x, axis, first, count, ...) \
    weir_slice_at(x, axis, first, count, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_slice_at(weir_tensor *x, int axis, int64_t first, int64_t count, const weir_op_opts *opts);
typedef struct weir_concat_opts {
    size_t size;
    weir_src src;
    weir_tensor *x[16]; /* ends at the first NULL */
    const char *name;
} weir_concat_opts;
/* weir_concat(axis, {a, b, c}): one after the other along `axis`; other dimensions are equal. */
#define weir_concat(axis, ...) weir_concat_at(axis, WEIR_OPTS(weir_concat_opts, .x = __VA_ARGS__))
weir_tensor *weir_concat_at(int axis, const weir_concat_opts *opts);

/* ---- others ---- */
/* Each element is 0 with probability `rate`, else x / (1 - rate) (Srivastava et al. 2014). Every firing draws new random
 * numbers, from the element's index in the logical tensor, so every layout drops the same elements. In a program that does
 * not train (weir_graph_program) the result is x. */
#define weir_dropout(x, rate, ...) weir_dropout_at(x, rate, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_dropout_at(weir_tensor *x, double rate, const weir_op_opts *opts);
/* Converts to another dtype. A value that an integer dtype does not hold becomes the nearest that it holds, a fraction is cut
 * off (towards zero), and NaN becomes 0. Between integers and f16 or bf16, values are rounded to f32 on the way. */
#define weir_cast(x, dtype, ...) weir_cast_at(x, dtype, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_cast_at(weir_tensor *x, weir_dtype dtype, const weir_op_opts *opts);

WEIR_C_END
#endif
