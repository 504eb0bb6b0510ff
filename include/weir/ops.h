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
/* a [..., m, k] x b [..., k, n] -> [..., m, n]. The batch dimensions of the two broadcast as those of the binary ops do:
 * [2, 1, m, k] x [3, k, n] -> [2, 3, m, n]. */
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
    bool frozen;                    /* neither the weight nor the bias is trained */
} weir_linear_opts;
/* x [..., in], of two or more dimensions, -> [..., out] = x W + b with parameters NAME/weight [in, out] and NAME/bias
 * [out] (initially zeros). The parameters are f32; if x is f16 or bf16, the weight is cast to its dtype. */
#define weir_linear(x, out, ...) weir_linear_at(x, out, WEIR_OPTS(weir_linear_opts, __VA_ARGS__))
weir_tensor *weir_linear_at(weir_tensor *x, int64_t out, const weir_linear_opts *opts);
/* The same with a weight [in, out] and a bias [out] (or NULL) that exist already. */
weir_tensor *weir_linear_with_at(weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const weir_op_opts *opts);

typedef struct weir_linear_stored_opts {
    size_t size;
    weir_src src;
    const char *name;
    weir_format format;   /* of the weight [WEIR_DENSE] */
    bool f32_activations; /* x is not rounded; slower */
} weir_linear_stored_opts;
/* x [..., in], f32, times the transpose of a weight that is read as it is stored -> [..., out], f32. The weight is f32, f16 or bf16
 * [out, in], or u8 [out, blocks, bytes of a block] in one of the formats of weir_format, where a row of blocks has `in` elements. It
 * needs no alignment, and is never expanded as a whole.
 *     weir_tensor *y = weir_linear_stored(x, w, .format = WEIR_Q4_1);
 *
 * By default x is rounded as the processor's fast instructions need it: to the dtype of a weight of f16 or bf16; for one of blocks to
 * bytes q with a scale for each 32 elements,
 *
 *     scale = max |x| / 127        q = round(x * (127 / max |x|)), ties to even; 0 where max |x| is below 1e-30
 *
 * If one of the 32 is infinite or NaN, the results of its row are NaN. Products with these bytes are exact, and sums are f32.
 *
 * The bits of a row depend neither on the number of rows nor on how `out` is split over devices. The gradient of x is dy times the
 * weight, for which CPUs round dy and a weight of blocks or bf16 to bf16 by default. A weight of blocks has no gradient. */
#define weir_linear_stored(x, w, ...) weir_linear_stored_at(x, w, WEIR_OPTS(weir_linear_stored_opts, __VA_ARGS__))
weir_tensor *weir_linear_stored_at(weir_tensor *x, weir_tensor *w, const weir_linear_stored_opts *opts);

/* x times the transposed weight of another layer, which both then train (Press and Wolf 2017). `layer` is the tensor that
 * weir_embedding() or weir_linear() returned. For an embedding [vocab, dim]: x [..., dim] -> [..., vocab]; for a linear layer
 * [in, out]: x [..., out] -> [..., in].
 *     weir_tensor *h = weir_embedding(tokens, vocab, dim, .name = "tokens");
 *     weir_tensor *logits = weir_tied(body(h), h); */
#define weir_tied(x, layer, ...) weir_tied_at(x, layer, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_tied_at(weir_tensor *x, weir_tensor *layer, const weir_op_opts *opts);

typedef struct weir_lora_opts {
    size_t size;
    weir_src src;
    const char *name;
    weir_sbp a[WEIR_AXES_MAX]; /* SBP of A: WEIR_S(1) where the weight of the base is split along its inputs */
    weir_sbp b[WEIR_AXES_MAX]; /* of B: WEIR_S(0) where that is split along its outputs */
    double dropout;            /* x is dropped with this probability before A reads it (weir_dropout) [0] */
    weir_init init;            /* of A; default: uniform within 1/sqrt(in) of 0 */
    bool frozen;               /* neither A nor B is trained */
} weir_lora_opts;
/* A trained addend of low rank beside a layer that need not train (Hu et al. 2022). x [..., in] is the input of the layer and
 * `base` [..., out] its result; the sum is
 *     base + (alpha / rank) (x A^T) B^T
 * with the parameters NAME.lora_A.weight [rank, in] and NAME.lora_B.weight [out, rank], both f32. The base may have the name NAME;
 * the result is called NAME.lora. B is 0 at first, so the result begins as the base. Names, shapes and initial values are those of
 * the Python package peft. If x is f16 or bf16, A and B are cast to its dtype. The layer may be any: weir_linear(), or a product with a weight of any form.
 *     weir_tensor *q = weir_matmul(x, wq, .trans_b = true);
 *     q = weir_lora(x, q, 8, 16, .name = "layers.0.q_proj"); */
#define weir_lora(x, base, rank, alpha, ...) weir_lora_at(x, base, rank, alpha, WEIR_OPTS(weir_lora_opts, __VA_ARGS__))
weir_tensor *weir_lora_at(weir_tensor *x, weir_tensor *base, int64_t rank, double alpha, const weir_lora_opts *opts);

/* ---- convolutions and pools: x [batch, channels, d...] with 1 to 3 spatial dimensions d ---- */

/* All lists have a number for each spatial dimension. The window is at the positions 0, stride, 2 stride, ... of the padded
 * tensor where it fits:
 *     size = (d + pad + pad_end - dilation (kernel - 1) - 1) / stride + 1, rounded down */
typedef struct weir_conv_opts {
    size_t size;
    weir_src src;
    const char *written;            /* the text of the options, filled in by the macros, to tell .pad_end = {0} from no option */
    int64_t kernel[3];
    const char *name;
    int64_t stride[3];              /* default 1 */
    int64_t pad[3];                 /* zeros in front */
    int64_t pad_end[3];             /* zeros behind; default: as .pad */
    int64_t dilation[3];            /* distance of the window's elements; default 1 */
    int64_t groups;                 /* input and output channels in so many groups, each for itself; default 1 */
    weir_sbp weight[WEIR_AXES_MAX]; /* SBP of the weight; the bias follows it */
    bool no_bias;
    weir_init init;                 /* of the weight; default: normal with standard deviation 1/sqrt(in / groups * window) */
    bool frozen;                    /* the parameters are not trained */
} weir_conv_opts;
/* x -> [batch, out, d'...] with parameters NAME/weight [out, in / groups, kernel...] and NAME/bias [out] (initially zeros):
 *     y[b, o, p] = bias[o] + sum over channels c of o's group and elements t of the window of
 *                  weight[o, c, t] x[b, c, p stride - pad + t dilation]
 * weir_conv(x, 64, {3, 3}, .pad = {1, 1}). With as many groups as channels it is a depthwise convolution. The parameters are
 * f32; if x is f16 or bf16, the weight is cast to its dtype. */
#define weir_conv(x, out, ...) \
    weir_conv_at(x, out, WEIR_OPTS(weir_conv_opts, .written = "" #__VA_ARGS__, .kernel = __VA_ARGS__))
weir_tensor *weir_conv_at(weir_tensor *x, int64_t out, const weir_conv_opts *opts);

typedef struct weir_conv_with_opts {
    size_t size;
    weir_src src;
    const char *written;            /* as above */
    int64_t stride[3];
    const char *name;
    int64_t pad[3];
    int64_t pad_end[3];
    int64_t output_pad[3];          /* transposed: positions more at the end; less than the stride */
    int64_t dilation[3];
    int64_t groups;                 /* transposed: default 1. Else the shapes say how many there are, and .groups is checked */
} weir_conv_with_opts;
/* The same with a weight [out, in / groups, kernel...] and a bias [out] (or NULL) that exist already. */
#define weir_conv_with(x, weight, bias, ...) \
    weir_conv_with_at(x, weight, bias, WEIR_OPTS(weir_conv_with_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
weir_tensor *weir_conv_with_at(weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const weir_conv_with_opts *opts);
/* The transposed convolution (Zeiler et al. 2010): each element of x adds a window's worth of elements to the result. x
 * [batch, in, d...], weight [in, out / groups, kernel...], bias [out] or NULL -> [batch, out, d'...] with
 *     size = (d - 1) stride - pad - pad_end + dilation (kernel - 1) + 1 + output_pad */
#define weir_conv_transpose_with(x, weight, bias, ...) \
    weir_conv_transpose_with_at(x, weight, bias, WEIR_OPTS(weir_conv_with_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
weir_tensor *weir_conv_transpose_with_at(weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const weir_conv_with_opts *opts);

typedef struct weir_pool_opts {
    size_t size;
    weir_src src;
    const char *written; /* as above */
    int64_t kernel[3];
    const char *name;
    int64_t stride[3];   /* default: as the kernel, so windows do not overlap */
    int64_t pad[3];      /* less than the window spans; never the largest */
    int64_t pad_end[3];  /* default: as .pad */
    int64_t dilation[3]; /* default 1 */
    bool ceil;           /* the size is rounded up, if the last window begins within the tensor or the pad in front of it */
    bool count_pad;      /* average: pads count as elements of 0 */
} weir_pool_opts;
/* The largest element of each window, per channel: weir_max_pool(x, {2, 2}). NaN is larger than everything. The gradient goes
 * to the first of equals. */
#define weir_max_pool(x, ...) \
    weir_max_pool_at(x, WEIR_OPTS(weir_pool_opts, .written = "" #__VA_ARGS__, .kernel = __VA_ARGS__))
weir_tensor *weir_max_pool_at(weir_tensor *x, const weir_pool_opts *opts);
/* The average of each window. For a pool over everything, weir_mean(x, .axes = {2, 3}, .axis_count = 2, .keep = true). */
#define weir_average_pool(x, ...) \
    weir_average_pool_at(x, WEIR_OPTS(weir_pool_opts, .written = "" #__VA_ARGS__, .kernel = __VA_ARGS__))
weir_tensor *weir_average_pool_at(weir_tensor *x, const weir_pool_opts *opts);

typedef struct weir_lrn_opts {
    size_t size;
    weir_src src;
    double alpha; /* default 1e-4; WEIR_ZERO: 0, as for the others */
    double beta;  /* default 0.75 */
    double bias;  /* default 1 */
    const char *name;
} weir_lrn_opts;
/* x [batch, channels, ...] / (bias + alpha / count * sum of x^2 over `count` neighbouring channels)^beta (Krizhevsky et al. 2012):
 * of channel c, the channels c - (count - 1) / 2 to c + count / 2, both rounded down. Computed by other ops of this file. */
#define weir_lrn(x, count, ...) weir_lrn_at(x, count, WEIR_OPTS(weir_lrn_opts, __VA_ARGS__))
weir_tensor *weir_lrn_at(weir_tensor *x, int64_t count, const weir_lrn_opts *opts);

/* ---- over the last dimension ---- */
#define weir_softmax(x, ...) weir_softmax_at(x, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_softmax_at(weir_tensor *x, const weir_op_opts *opts);

typedef struct weir_norm_opts {
    size_t size;
    weir_src src;
    const char *name;
    double eps; /* default 1e-5; WEIR_ZERO: none */
    bool frozen; /* gain and bias are not trained */
} weir_norm_opts;
/* (x - mean) / sqrt(var + eps) * gain + bias, with parameters NAME/gain (ones) and NAME/bias (zeros), each [last]
 * (Ba et al. 2016) */
#define weir_layernorm(x, ...) weir_layernorm_at(x, WEIR_OPTS(weir_norm_opts, __VA_ARGS__))
weir_tensor *weir_layernorm_at(weir_tensor *x, const weir_norm_opts *opts);
/* x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019) */
#define weir_rmsnorm(x, ...) weir_rmsnorm_at(x, WEIR_OPTS(weir_norm_opts, __VA_ARGS__))
weir_tensor *weir_rmsnorm_at(weir_tensor *x, const weir_norm_opts *opts);
/* The same with a gain [last] and a bias [last] that exist already, both f32. NULL: a parameter as above. */
#define weir_layernorm_with(x, gain, bias, ...) \
    weir_layernorm_with_at(x, gain, bias, WEIR_OPTS(weir_norm_opts, __VA_ARGS__))
weir_tensor *weir_layernorm_with_at(weir_tensor *x, weir_tensor *gain, weir_tensor *bias, const weir_norm_opts *opts);
#define weir_rmsnorm_with(x, gain, ...) weir_rmsnorm_with_at(x, gain, WEIR_OPTS(weir_norm_opts, __VA_ARGS__))
weir_tensor *weir_rmsnorm_with_at(weir_tensor *x, weir_tensor *gain, const weir_norm_opts *opts);

/* ---- over the batch ---- */
typedef struct weir_batchnorm_opts {
    size_t size;
    weir_src src;
    const char *name;
    double eps;      /* default 1e-5; WEIR_ZERO: none */
    double momentum; /* how much of the running statistics a step replaces; more than 0, at most 1 [0.1] */
    bool frozen;     /* gain and bias are not trained */
} weir_batchnorm_opts;
/* x [batch, channels, ...], f32, f16 or bf16 -> (x - mean) / sqrt(var + eps) * gain + bias per channel, with parameters NAME/gain
 * (ones) and NAME/bias (zeros), each [channels] (Ioffe and Szegedy 2015). Computed by other ops of this file, in f32.
 *
 * In a program that trains (weir_graph_program), mean and var are those of the channel's elements in the whole batch, on all devices
 * that it is split over. Each step moves the states NAME/running_mean (zeros) and NAME/running_var (ones), each [channels]:
 *
 *     running = (1 - momentum) running + momentum * statistic of the step
 *
 * where the variance is the unbiased one, divided by one less than the number of elements, of which there must be two or more.
 * A program that does not train uses the running statistics, so give the layer the same .name in both.
 *
 * Each micro-batch is normalised by its own statistics, and counts as a batch. The statistic of the step is then the mean over its
 * micro-batches. A step that .clip_norm skips moves them, too. */
#define weir_batchnorm(x, ...) weir_batchnorm_at(x, WEIR_OPTS(weir_batchnorm_opts, __VA_ARGS__))
weir_tensor *weir_batchnorm_at(weir_tensor *x, const weir_batchnorm_opts *opts);

typedef struct weir_arg_opts {
    size_t size;
    weir_src src;
    const char *written; /* the text of the options, filled in by the macros, to tell .axis = 0 from no option */
    const char *name;
    int axis;            /* may be negative [the last dimension] */
    bool keep;           /* the dimension stays, with size 1; else it is dropped */
} weir_arg_opts;
/* Index (i32) of the largest, or smallest, element along a dimension; the first one of equals. NaN counts as larger than
 * everything for argmax, and as smaller for argmin. weir_argmax(x); weir_argmax(x, .axis = 1, .keep = true) */
#define weir_argmax(x, ...) \
    weir_argmax_along_at(x, WEIR_OPTS(weir_arg_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
#define weir_argmin(x, ...) \
    weir_argmin_along_at(x, WEIR_OPTS(weir_arg_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
weir_tensor *weir_argmax_along_at(weir_tensor *x, const weir_arg_opts *opts);
weir_tensor *weir_argmin_along_at(weir_tensor *x, const weir_arg_opts *opts);
/* argmax of the last dimension, as weir_argmax() calls it in older programs */
weir_tensor *weir_argmax_at(weir_tensor *x, const weir_op_opts *opts);

/* ---- language models ---- */
typedef struct weir_embedding_opts {
    size_t size;
    weir_src src;
    const char *name;
    weir_sbp weight[WEIR_AXES_MAX];
    weir_init init; /* default: normal with standard deviation 0.02 */
    bool frozen;    /* the weight is not trained */
} weir_embedding_opts;
/* ids i32 [...] in [0, vocab) -> [..., dim], rows of the parameter NAME/weight [vocab, dim]. */
#define weir_embedding(ids, vocab, dim, ...) \
    weir_embedding_at(ids, vocab, dim, WEIR_OPTS(weir_embedding_opts, __VA_ARGS__))
weir_tensor *weir_embedding_at(weir_tensor *ids, int64_t vocab, int64_t dim, const weir_embedding_opts *opts);
/* The same with a weight [vocab, dim] that exists already. */
#define weir_embedding_with(ids, weight, ...) \
    weir_embedding_with_at(ids, weight, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_embedding_with_at(weir_tensor *ids, weir_tensor *weight, const weir_op_opts *opts);

typedef struct weir_embedding_stored_opts {
    size_t size;
    weir_src src;
    const char *name;
    weir_format format; /* of the weight [WEIR_DENSE] */
} weir_embedding_stored_opts;
/* ids i32 [...] in [0, vocab) -> [..., dim], f32: rows of a weight that is read as it is stored, as by weir_linear_stored(): [vocab,
 * dim], or u8 [vocab, blocks, bytes of a block]. */
#define weir_embedding_stored(ids, w, ...) weir_embedding_stored_at(ids, w, WEIR_OPTS(weir_embedding_stored_opts, __VA_ARGS__))
weir_tensor *weir_embedding_stored_at(weir_tensor *ids, weir_tensor *w, const weir_embedding_stored_opts *opts);

typedef struct weir_rope_scaling { /* of positions beyond those of a model's training */
    double factor;                 /* each frequency is divided by it [1] */
    double low_freq_factor;        /* Llama 3: only frequencies of fewer turns over the original positions are divided by it, */
    double high_freq_factor;       /* those of more turns than this one stay, and those between lie between [0: all are divided] */
    int64_t original_max_position; /* positions of the training; needed with the two factors */
} weir_rope_scaling;
typedef struct weir_rope_opts {
    size_t size;
    weir_src src;
    const char *name;
    int heads;                 /* default 1; divides the last dimension */
    int rotary_dim;            /* columns of each head that turn, the first ones; even [all] */
    bool interleaved;          /* a pair is columns 2i and 2i + 1, rather than i and i + rotary_dim / 2 (Llama as Hugging Face has it) */
    double base;               /* default 10000 */
    weir_rope_scaling scaling; /* [none] */
} weir_rope_opts;
/* Rotary positions (Su et al. 2021): x [batch, seq, dim] -> the same shape. Each pair i of columns of each head turns by the angle
 * position * base^(-2i / rotary_dim). `position` is i32: one element, the position of the first row of each sequence (as
 * weir_attention_kept() takes it), or [batch, seq], the position of each row. NULL: rows count from 0. Any number is a position.
 * The kernel computes angles in double.
 *     q = weir_rope(q, NULL, .heads = 32, .base = 500000, .scaling = {.factor = 8, .low_freq_factor = 1,
 *                   .high_freq_factor = 4, .original_max_position = 8192}); */
#define weir_rope(x, position, ...) weir_rope_at(x, position, WEIR_OPTS(weir_rope_opts, __VA_ARGS__))
weir_tensor *weir_rope_at(weir_tensor *x, weir_tensor *position, const weir_rope_opts *opts);

typedef struct weir_attention_opts {
    size_t size;
    weir_src src;
    const char *name;
    int heads;         /* default 1; divides the last dimension */
    bool causal;       /* position i sees positions 0..i */
    double scale;      /* default 1/sqrt(dim/heads) */
    int kv_heads;      /* heads of k and v; divides .heads [.heads] */
    int window;        /* position i sees positions i - window + 1..i; needs .causal [0: all of 0..i] */
    weir_tensor *mask; /* u8 or f32, see below [NULL: none] */
} weir_attention_opts;
/* q [batch, seq, dim], k and v [batch, keys, dim] -> [batch, seq, dim]: softmax(scale q k^T) v per head, in blocks
 * (Dao et al. 2022): the matrix seq x keys never exists as a whole.
 *
 * With fewer .kv_heads, k and v are [batch, keys, kv_heads * dim / heads], and heads / kv_heads neighbouring heads of q share a head
 * of k and v (Ainslie et al. 2023): weir_attention(q, k, v, .heads = 9, .kv_heads = 3).
 *
 * A mask is [batch, keys], such as one that hides the padding of each sequence, or [batch, heads, seq, keys]; every dimension but
 * keys may be 1. A key is hidden where a u8 mask is 0; an f32 mask is added to scale q k^T. A row that sees no key is 0. .causal and
 * .window hold as well. No gradient flows through a mask. */
#define weir_attention(q, k, v, ...) weir_attention_at(q, k, v, WEIR_OPTS(weir_attention_opts, __VA_ARGS__))
weir_tensor *weir_attention_at(weir_tensor *q, weir_tensor *k, weir_tensor *v, const weir_attention_opts *opts);

typedef struct weir_attention_kept_opts {
    size_t size;
    weir_src src;
    const char *name;
    int heads;         /* default 1; divides the last dimension */
    double scale;      /* default 1/sqrt(dim/heads) */
    int kv_heads;      /* heads of k, v, keys and values, as for weir_attention() [.heads] */
    int window;        /* a row at position i sees positions i - window + 1..i [0: all of 0..i] */
    weir_tensor *mask; /* [batch, room] or [batch, heads, n, room], as for weir_attention(); key j is at position j [NULL: none] */
} weir_attention_kept_opts;
/* Causal attention with a cache: n new rows after the cached ones. q, k, v [batch, n, dim], keys and values (the cache)
 * [batch, room, dim], position i32 with one element -> [batch, n, dim]. New row i is at position + i; it sees the cached
 * rows 0 .. position - 1 and the new rows 0 .. i. The bits of a row do not depend on which of the rows before it are cached
 * and which are new, nor on how many come at once. The kernel fails unless 0 <= position <= room - n. No gradient flows through it.
 *
 * A cache of bf16 or f16 takes half the memory of one of f32. Its new rows have its dtype, and q may stay f32:
 *     k = weir_cast(k, WEIR_BF16), v = weir_cast(v, WEIR_BF16);
 *     a = weir_attention_kept(q, k, v, keys, values, position, .heads = 9, .kv_heads = 3);
 *     weir_state_append(keys, k, position), weir_state_append(values, v, position);
 * The kernel computes in f32, and the result has q's dtype. A cache of f32 takes k and v of f32, or of q's dtype. */
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

typedef struct weir_loss_opts {
    size_t size;
    weir_src src;
    const char *name;
    bool sum; /* the sum over all elements rather than the mean */
} weir_loss_opts;
/* The mean of (x - y)^2 over all elements, a scalar. x and y broadcast. */
#define weir_mse(x, y, ...) weir_mse_at(x, y, WEIR_OPTS(weir_loss_opts, __VA_ARGS__))
weir_tensor *weir_mse_at(weir_tensor *x, weir_tensor *y, const weir_loss_opts *opts);
/* The mean of -t log s(x) - (1 - t) log(1 - s(x)) over all elements, a scalar, where s(x) = 1 / (1 + exp(-x)) is the probability
 * that the logit x stands for and t from 0 to 1 is the wanted one. Computed as log(1 + exp(x)) - t x, without overflow. logits and
 * targets broadcast. */
#define weir_binary_cross_entropy(logits, targets, ...) \
    weir_binary_cross_entropy_at(logits, targets, WEIR_OPTS(weir_loss_opts, __VA_ARGS__))
weir_tensor *weir_binary_cross_entropy_at(weir_tensor *logits, weir_tensor *targets, const weir_loss_opts *opts);

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
#define weir_min(x, ...) weir_min_at(x, WEIR_OPTS(weir_reduce_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
#define weir_prod(x, ...) weir_prod_at(x, WEIR_OPTS(weir_reduce_opts, .written = "" #__VA_ARGS__, __VA_ARGS__))
weir_tensor *weir_sum_at(weir_tensor *x, const weir_reduce_opts *opts);
weir_tensor *weir_mean_at(weir_tensor *x, const weir_reduce_opts *opts);
weir_tensor *weir_max_at(weir_tensor *x, const weir_reduce_opts *opts);
weir_tensor *weir_min_at(weir_tensor *x, const weir_reduce_opts *opts);
weir_tensor *weir_prod_at(weir_tensor *x, const weir_reduce_opts *opts);

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
/* x repeated to a shape, as NumPy broadcasts it: dimensions are aligned at the last one, and those of x are equal to the new
 * ones, or 1, or missing. Any dtype. weir_expand(x, {3, 4}) */
#define weir_expand(x, ...) weir_expand_at(x, WEIR_OPTS(weir_dims_opts, .dims = __VA_ARGS__))
weir_tensor *weir_expand_at(weir_tensor *x, const weir_dims_opts *opts);
/* Dimension i of the result is dimension dims[i] of x. weir_transpose(x, {0, 2, 1}) */
#define weir_transpose(x, ...) weir_transpose_at(x, WEIR_OPTS(weir_dims_opts, .dims = __VA_ARGS__))
weir_tensor *weir_transpose_at(weir_tensor *x, const weir_dims_opts *opts);
typedef struct weir_slice_opts { /* begins as weir_op_opts does: older programs pass that */
    size_t size;
    weir_src src;
    const char *name;
    int64_t step; /* from one element to the next; below 0: backwards [1] */
} weir_slice_opts;
/* Elements first, first + step, ..., `count` in all, of dimension `axis` (may be negative): x[1:9:2] is
 * weir_slice(x, 0, 1, 4, .step = 2), and x[::-1] of 9 elements weir_slice(x, 0, 8, 9, .step = -1). Any dtype. */
#define weir_slice(x, axis, first, count, ...) \
    weir_slice_at(x, axis, first, count, WEIR_OPTS(weir_slice_opts, __VA_ARGS__))
weir_tensor *weir_slice_at(weir_tensor *x, int axis, int64_t first, int64_t count, const weir_slice_opts *opts);
typedef struct weir_concat_opts {
    size_t size;
    weir_src src;
    weir_tensor *x[16]; /* ends at the first NULL */
    const char *name;
} weir_concat_opts;
/* weir_concat(axis, {a, b, c}): one after the other along `axis`; other dimensions are equal. */
#define weir_concat(axis, ...) weir_concat_at(axis, WEIR_OPTS(weir_concat_opts, .x = __VA_ARGS__))
weir_tensor *weir_concat_at(int axis, const weir_concat_opts *opts);

/* ---- by index ----
 *
 * Ids are i32 or i64. An id below 0 counts from the end: -1 is the last. The kernel fails if an id is not in -size .. size - 1 of the
 * dimension that it indexes. Values may be of any dtype; gradients are sums in the order of the ids. */

/* Slices of x along `axis` (may be negative), one for each id: x [a, n, b], ids [i, j], axis 1 -> [a, i, j, b]. */
#define weir_gather(x, ids, axis, ...) weir_gather_at(x, ids, axis, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_gather_at(weir_tensor *x, weir_tensor *ids, int axis, const weir_op_opts *opts);
/* ids [batch..., i, k] -> [batch..., i, rest...]: the last dimension of ids has the index of an element, or of a slice, of x
 * [batch..., k dimensions, rest...]. The first `batch_dims` dimensions of both are the same. */
#define weir_gather_nd(x, ids, batch_dims, ...) weir_gather_nd_at(x, ids, batch_dims, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_gather_nd_at(weir_tensor *x, weir_tensor *ids, int batch_dims, const weir_op_opts *opts);
/* The shape of ids: each is the place along `axis` (may be negative) from which the element at the id's other indices comes:
 * y[i][j] = x[ids[i][j]][j] for axis 0. x has as many dimensions as ids, and none but that of the axis is smaller. */
#define weir_gather_elements(x, ids, axis, ...) \
    weir_gather_elements_at(x, ids, axis, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_gather_elements_at(weir_tensor *x, weir_tensor *ids, int axis, const weir_op_opts *opts);

/* ids [...], i32 or i64 -> f32 with one dimension more, `axis` (may be negative: -1 is the last one of the result), of `depth` elements:
 * 1 at the id, 0 elsewhere. An id below 0 counts from the end; one out of range has no 1. */
#define weir_one_hot(ids, depth, axis, ...) weir_one_hot_at(ids, depth, axis, WEIR_OPTS(weir_op_opts, __VA_ARGS__))
weir_tensor *weir_one_hot_at(weir_tensor *ids, int64_t depth, int axis, const weir_op_opts *opts);

typedef struct weir_cumsum_opts {
    size_t size;
    weir_src src;
    const char *name;
    bool exclusive; /* without the element itself */
    bool reverse;   /* from the end */
} weir_cumsum_opts;
/* Sums of the elements up to each one along `axis` (may be negative): f32, f16, bf16, i32 or i64. Reals are added in double. */
#define weir_cumsum(x, axis, ...) weir_cumsum_at(x, axis, WEIR_OPTS(weir_cumsum_opts, __VA_ARGS__))
weir_tensor *weir_cumsum_at(weir_tensor *x, int axis, const weir_cumsum_opts *opts);

typedef struct weir_top_k_opts {
    size_t size;
    weir_src src;
    const char *name;
    bool smallest; /* rather than the largest */
} weir_top_k_opts;
/* The `count` largest elements along `axis` (may be negative), the largest first; of equals the one in front comes first, and NaN is
 * larger than everything. Their indices (i32) go to *indices, unless that is NULL. */
#define weir_top_k(x, count, axis, indices, ...) \
    weir_top_k_at(x, count, axis, indices, WEIR_OPTS(weir_top_k_opts, __VA_ARGS__))
weir_tensor *weir_top_k_at(weir_tensor *x, int64_t count, int axis, weir_tensor **indices, const weir_top_k_opts *opts);

/* ---- borders and sizes ---- */
enum { WEIR_PAD_CONSTANT, WEIR_PAD_EDGE, WEIR_PAD_REFLECT };
typedef struct weir_pad_opts {
    size_t size;
    weir_src src;
    int64_t before[WEIR_DIMS_MAX], after[WEIR_DIMS_MAX]; /* elements that are added to each dimension [0] */
    const char *name;
    int mode;     /* CONSTANT: `value`; EDGE: the element at the end; REFLECT: mirrored at that element [CONSTANT] */
    double value; /* of CONSTANT [0] */
} weir_pad_opts;
/* x with more elements at the ends of its dimensions. Any dtype. REFLECT adds fewer than the dimension has.
 * weir_pad(x, .before = {0, 1}, .after = {0, 2}) */
#define weir_pad(x, ...) weir_pad_at(x, WEIR_OPTS(weir_pad_opts, __VA_ARGS__))
weir_tensor *weir_pad_at(weir_tensor *x, const weir_pad_opts *opts);

enum { WEIR_RESIZE_NEAREST, WEIR_RESIZE_LINEAR };
enum {
    WEIR_COORDINATES_HALF_PIXEL,         /* (j + 1/2) / scale - 1/2 */
    WEIR_COORDINATES_ASYMMETRIC,         /* j / scale */
    WEIR_COORDINATES_ALIGN_CORNERS,      /* j (size - 1) / (count - 1) */
    WEIR_COORDINATES_PYTORCH_HALF_PIXEL, /* as HALF_PIXEL; 0 for a dimension that becomes 1 */
};
enum { WEIR_ROUND_PREFER_FLOOR, WEIR_ROUND_PREFER_CEIL, WEIR_ROUND_FLOOR, WEIR_ROUND_CEIL };
typedef struct weir_resize_opts {
    size_t size;
    weir_src src;
    int64_t dims[WEIR_DIMS_MAX]; /* of the result, as many as x has */
    const char *name;
    int mode;                    /* [WEIR_RESIZE_NEAREST] */
    int coordinates;             /* place j of `count` comes from this coordinate of `size` places [HALF_PIXEL] */
    int round;                   /* of NEAREST: halves down, halves up, down, up [PREFER_FLOOR] */
    double scale[WEIR_DIMS_MAX]; /* of the coordinates [count / size of each dimension] */
} weir_resize_opts;
/* x with other sizes, as ONNX's Resize: each element is the nearest one, or interpolated between neighbours; beyond the ends it is the
 * element at the end. NEAREST takes any dtype. weir_resize(x, {1, 3, 64, 64}, .mode = WEIR_RESIZE_LINEAR) */
#define weir_resize(x, ...) weir_resize_at(x, WEIR_OPTS(weir_resize_opts, .dims = __VA_ARGS__))
weir_tensor *weir_resize_at(weir_tensor *x, const weir_resize_opts *opts);

/* ---- without inputs ----
 *
 * These are filled by a kernel once a step, on the mesh of the innermost WEIR_ON or else the graph's first mesh. A checkpoint
 * does not contain them. No gradient flows into them. */
typedef struct weir_constant_opts {
    size_t size;
    weir_src src;
    int64_t dims[WEIR_DIMS_MAX]; /* ends at the first 0; all 0: a scalar */
    const char *name;
    double value;                /* of each element; of integers a whole number that the dtype has [0] */
} weir_constant_opts;
/* weir_constant(g, WEIR_F32, {3, 4}, .value = 0.5) */
#define weir_constant(graph, dtype, ...) \
    weir_constant_at(graph, dtype, WEIR_OPTS(weir_constant_opts, .dims = __VA_ARGS__))
weir_tensor *weir_constant_at(weir_graph *graph, weir_dtype dtype, const weir_constant_opts *opts);

typedef struct weir_range_opts {
    size_t size;
    weir_src src;
    const char *name;
    double start; /* [0] */
    double step;  /* [1]; WEIR_ZERO: all numbers are `start` */
} weir_range_opts;
/* [count]: start, start + step, start + 2 step, ... Each number is computed as a double and rounded once. An integer dtype
 * needs whole numbers that it has. weir_range(g, WEIR_I32, 16, .start = 1) */
#define weir_range(graph, dtype, count, ...) \
    weir_range_at(graph, dtype, count, WEIR_OPTS(weir_range_opts, __VA_ARGS__))
weir_tensor *weir_range_at(weir_graph *graph, weir_dtype dtype, int64_t count, const weir_range_opts *opts);

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
