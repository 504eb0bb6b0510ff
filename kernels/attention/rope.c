/* kernels/attention/rope.c: rotary positions (Su et al. 2021, arXiv:2104.09864).
 *
 *     x [batch, seq, heads * head_dim], position (none, one, or [batch, seq]) -> y, like x
 *
 *     y[a] = x[a] cos - x[b] sin     y[b] = x[b] cos + x[a] sin     for each pair of columns (a, b) of each head
 *
 * The angle of a pair is its row's position times the pair's frequency (rope.h), in double. It is the same for all heads, so
 * the kernel makes a table of cosines and sines for a row, and turns all heads by it; rows of several sequences that have one
 * position share the table. The gradient is the same op with the negative angle: the attribute `inverse`.
 *
 * A position that is one number is that of the tensor's first row. A shard knows by its view's offset where its rows are, so rows
 * may be split as well as sequences and heads. A half is widened, turned in f32 and rounded once.
 */
#include "kernels/attention/rope.h"

#include "graph/base/base.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"

#include <string.h>
#include <weir/ops.h>

static const weir_field rope_fields[] = {
    WEIR_FIELD_INT(struct rope_attrs, head_dim),
    WEIR_FIELD_INT(struct rope_attrs, rotary_dim),
    WEIR_FIELD_INT(struct rope_attrs, interleaved),
    WEIR_FIELD_INT(struct rope_attrs, inverse),
    WEIR_FIELD_INT(struct rope_attrs, original_max_position),
    WEIR_FIELD_REAL(struct rope_attrs, base),
    WEIR_FIELD_REAL(struct rope_attrs, factor),
    WEIR_FIELD_REAL(struct rope_attrs, low_freq_factor),
    WEIR_FIELD_REAL(struct rope_attrs, high_freq_factor),
};

/* ---- rules ---- */

static bool position_fits(const weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *x = &args->in[0].shape, *position = &args->in[1].shape;
    char text[RULES_SHAPE_TEXT];
    if (args->in[1].dtype != WEIR_I32)
        return REFUSE("the position is %s; it needs to be i32", weir_dtype_name(args->in[1].dtype));
    if (position->rank == 2 ? position->dim[0] == x->dim[0] && position->dim[1] == x->dim[1]
                            : position->rank < 2 && weir_shape_count(position) == 1)
        return true;
    return REFUSE("the position has shape %s; it needs one element, or the batch and seq of x, [%lld, %lld]",
                  shape_text(position, text, sizeof text), (long long)x->dim[0], (long long)x->dim[1]);
}

static bool rope_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct rope_attrs *attrs = args->attrs;
    const weir_type *x = &args->in[0];
    if (!weir_dtype_real(x->dtype) || x->shape.rank != 3)
        return REFUSE("x is %s with %d dimensions; it needs to be f32, f16 or bf16 with three", weir_dtype_name(x->dtype),
                      x->shape.rank);
    if (attrs->head_dim < 1 || x->shape.dim[2] % attrs->head_dim)
        return REFUSE("dim %lld does not consist of heads of %lld", (long long)x->shape.dim[2], (long long)attrs->head_dim);
    if (attrs->rotary_dim < 2 || attrs->rotary_dim > attrs->head_dim || attrs->rotary_dim % 2)
        return REFUSE("%lld columns of heads of %lld turn; it needs to be an even number from 2 to that",
                      (long long)attrs->rotary_dim, (long long)attrs->head_dim);
    args->out[0] = *x;
    return args->in_count == 1 || position_fits(args, error, error_bytes);
}

/* Split over the batch, rows or heads; and terms of a sum, in which it is linear. */
static void rope_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const struct rope_attrs *attrs = args->attrs;
    const bool each = args->in_count == 2 && args->in[1].shape.rank == 2;
    for (int d = 0; d < 3; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->out[0] = WEIR_S(d);
        if (d < 2 && each)
            s->in[1] = WEIR_S(d);
        if (d == 2)
            s->granules = args->in[0].shape.dim[2] / attrs->head_dim;
    }
    sign_linear_in(args, list, 0);
}

static void rope_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 3.0 * (double)weir_shape_count(&args->in[0].shape));
}

/* A shard without heads says nothing of their size. */
static int64_t pairs_of(const weir_shape *x, const struct rope_attrs *attrs)
{
    return x->dim[2] ? attrs->rotary_dim / 2 : 0;
}

/* Frequencies, cosines and sines of the pairs; and a row of f32, if x is half. */
static size_t rope_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const size_t pairs = (size_t)pairs_of(&args->in[0].shape, args->attrs);
    return kind == WEIR_CUDA ? 0 : pairs * (sizeof(double) + 2 * sizeof(float)) + real_rows_bytes(&args->in[0], 1);
}

/* ---- the kernel ---- */

/* Sizes that do not change within a call, and the table of a row. */
typedef struct rope_call {
    const struct rope_attrs *attrs;
    int64_t batch, seq, dim, pairs, first; /* first: the position of row 0, where it is one for all sequences */
    const int32_t *each;                   /* the position of each row; NULL: they count from `first` */
    double *frequency;
    float *cosine, *sine, *row;
} rope_call;

static rope_call rope_call_of(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *position = args->in_count == 2 ? &args->in[1] : NULL;
    rope_call call = {.attrs = args->attrs, .batch = x->shape.dim[0], .seq = x->shape.dim[1], .dim = x->shape.dim[2]};
    call.pairs = pairs_of(&x->shape, call.attrs);
    call.frequency = args->workspace;
    call.cosine = (float *)(call.frequency + call.pairs);
    call.sine = call.cosine + call.pairs;
    call.row = call.sine + call.pairs;
    if (position && position->shape.rank == 2)
        call.each = view_i32(position);
    else
        call.first = x->offset[1] + (position ? *view_i32(position) : 0);
    for (int64_t i = 0; i < call.pairs; i++)
        call.frequency[i] = rope_frequency(call.attrs, i);
    return call;
}

static void make_table(const rope_call *call, int64_t position)
{
    const bool inverse = call->attrs->inverse != 0;
    for (int64_t i = 0; i < call->pairs; i++)
        rope_turn((double)position * call->frequency[i], inverse, &call->cosine[i], &call->sine[i]);
}

/* y may be x. */
static void turn_halves(const float *x, float *y, const float *cosine, const float *sine, int64_t pairs)
{
    const float *x_end = x + pairs;
    float *y_end = y + pairs;
#pragma GCC ivdep
    for (int64_t i = 0; i < pairs; i++) {
        const float a = x[i], b = x_end[i];
        y[i] = a * cosine[i] - b * sine[i];
        y_end[i] = b * cosine[i] + a * sine[i];
    }
}

static void turn_interleaved(const float *x, float *y, const float *cosine, const float *sine, int64_t pairs)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < pairs; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * cosine[i] - b * sine[i];
        y[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
}

static void turn_row(const rope_call *call, const weir_kernel_args *args, int64_t at)
{
    const struct rope_attrs *attrs = call->attrs;
    const int64_t turned = 2 * call->pairs, others = attrs->head_dim - turned;
    const float *x = real_in(&args->in[0], at, call->dim, call->row);
    float *y = real_out(&args->out[0], at, call->row);
    for (int64_t head = 0; head < call->dim; head += attrs->head_dim) {
        (attrs->interleaved ? turn_interleaved : turn_halves)(x + head, y + head, call->cosine, call->sine, call->pairs);
        if (x != y)
            memcpy(y + head + turned, x + head + turned, (size_t)others * sizeof *y);
    }
    real_put(&args->out[0], at, call->dim, y);
}

static weir_status rope_cpu(const weir_kernel_args *args)
{
    const rope_call call = rope_call_of(args);
    for (int64_t row = 0; row < call.seq; row++)
        for (int64_t batch = 0; batch < call.batch; batch++) {
            const int64_t at = batch * call.seq + row;
            if (call.each || batch == 0)
                make_table(&call, call.each ? call.each[at] : call.first + row);
            turn_row(&call, args, at * call.dim);
        }
    return WEIR_OK;
}

static void rope_backward(weir_grad_args *args)
{
    struct rope_attrs attrs = *(const struct rope_attrs *)args->attrs;
    weir_tensor *in[2] = {args->dout[0], args->in_count == 2 ? args->in[1] : NULL};
    attrs.inverse = !attrs.inverse;
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_rope, NULL, in, args->in_count, &attrs}, NULL);
}

const weir_op op_rope = {
    .name = "rope",
    .fields = rope_fields,
    .field_count = 9,
    .attrs_bytes = sizeof(struct rope_attrs),
    .in_min = 1,
    .in_max = 2,
    .out_count = 1,
    .infer = rope_infer,
    .signatures = rope_signatures,
    .grad = rope_backward,
    .cost = rope_cost,
    .workspace = rope_workspace,
    .kernel = {[WEIR_CPU] = rope_cpu},
    .inplace = 1,
    .half = WEIR_HALF_FOLLOW,
};

/* ---- the DSL ---- */

/* NULL: the options are right; else the sentence. */
static const char *scaling_wrong(const weir_rope_scaling *s)
{
    const bool bands = s->low_freq_factor != 0 || s->high_freq_factor != 0 || s->original_max_position != 0;
    if (!(s->factor >= 0) || s->factor > 1e300 || (bands && s->factor == 0))
        return ".scaling needs a .factor above 0";
    if (bands && !(s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor && s->original_max_position > 0))
        return ".scaling by frequencies needs a .low_freq_factor above 0, a .high_freq_factor above that and an "
               ".original_max_position above 0; without all three it divides every frequency";
    return NULL;
}

weir_tensor *weir_rope_at(weir_tensor *x, weir_tensor *position, const weir_rope_opts *given)
{
    weir_rope_opts opts;
    x = op_opts(x, "rope", given, &opts, sizeof opts);
    const weir_type type = weir_tensor_type(x);
    const int64_t heads = opts.heads ? opts.heads : 1, dim = shape_last(&type.shape);
    const char *wrong = scaling_wrong(&opts.scaling);
    if (!weir_tensor_poisoned(x)) {
        if (heads < 1 || dim % heads || dim < heads)
            return weir_mistake(x, opts.src, "rope: %lld heads do not divide dim %lld", (long long)heads, (long long)dim);
        if (wrong)
            return weir_mistake(x, opts.src, "rope: %s", wrong);
        if (opts.base != 0 && !(opts.base > 0 && opts.base <= 1e300))
            return weir_mistake(x, opts.src, "rope: .base is %g; it needs to be above 0", opts.base);
    }
    const struct rope_attrs attrs = {
        .head_dim = dim / heads,
        .rotary_dim = opts.rotary_dim ? opts.rotary_dim : dim / heads,
        .interleaved = opts.interleaved,
        .original_max_position = opts.scaling.original_max_position,
        .base = opts.base != 0 ? opts.base : 10000,
        .factor = opts.scaling.factor != 0 ? opts.scaling.factor : 1,
        .low_freq_factor = opts.scaling.low_freq_factor,
        .high_freq_factor = opts.scaling.high_freq_factor,
    };
    weir_tensor *in[2] = {x, position};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_rope, NULL, in, position ? 2 : 1, &attrs}, NULL);
}
