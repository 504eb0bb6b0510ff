/* graph/onnx/ops_choice.c: comparisons, choices, bounds, and elements by index. */
#include "graph/onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- pairs ---- */

typedef weir_tensor *(*binary_fn)(weir_tensor *a, weir_tensor *b, const weir_op_opts *opts);

static const struct pair {
    const char *op;
    binary_fn fn;
    bool truth; /* the result is a bool */
} pairs[] = {
    {"And", weir_and_at, true},         {"Equal", weir_equal_at, true},
    {"Greater", weir_greater_at, true}, {"GreaterOrEqual", weir_greater_equal_at, true},
    {"Less", weir_less_at, true},       {"LessOrEqual", weir_less_equal_at, true},
    {"Or", weir_or_at, true},           {"Xor", weir_xor_at, true},
    {"Max", weir_max2_at, false},       {"Min", weir_min2_at, false},
};

/* Takes two inputs, or any number from the left. */
bool onnx_op_pair(onnx_importer *im)
{
    const struct pair *p = pairs;
    while (p < pairs + sizeof pairs / sizeof *pairs && strcmp(p->op, im->node->op) != 0)
        p++;
    weir_tensor *y = onnx_tensor_in(im, 0);
    const int type = y ? onnx_in(im, 0)->type : 0;
    for (int i = 1; y && i < im->node->in.count; i++) {
        weir_tensor *b = onnx_tensor_in(im, i);
        y = b ? p->fn(y, b, PART(im)) : NULL;
    }
    return y && onnx_set_tensor(im, 0, y, p->truth ? ONNX_BOOL : type);
}

/* A known exponent of 2, 1 or 1/2 is a product or a root. */
bool onnx_op_pow(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const onnx_value *by = onnx_in(im, 1);
    const int type = x ? onnx_in(im, 0)->type : 0;
    if (!x || !by)
        return im->status ? false : ONNX_WRONG(im, "it takes two inputs");
    const double number = by->known && array_count(by->known) == 1 ? array_real(by->known, 0) : NAN;
    const bool spreads = by->known && by->known->rank > weir_tensor_type(x).shape.rank;
    if (number == 2 && !spreads)
        return onnx_set_tensor(im, 0, weir_mul_at(x, x, OUT(im)), type);
    if (number == 1 && !spreads)
        return onnx_set_tensor(im, 0, x, type);
    if (number == 0.5 && !spreads)
        return onnx_set_tensor(im, 0, weir_sqrt_at(x, OUT(im)), type);
    weir_tensor *b = onnx_tensor_in(im, 1);
    const weir_dtype dtype = weir_tensor_type(x).dtype;
    const bool real = weir_dtype_real(dtype);
    if (b && !real) /* of integers, in f32 */
        x = weir_cast_at(x, WEIR_F32, PART(im));
    if (b && weir_tensor_type(b).dtype != weir_tensor_type(x).dtype)
        b = weir_cast_at(b, weir_tensor_type(x).dtype, PART(im));
    weir_tensor *y = b ? weir_pow_at(x, b, PART(im)) : NULL;
    return y && onnx_set_tensor(im, 0, real ? y : weir_cast_at(y, dtype, PART(im)), type);
}

/* ---- choices ---- */

bool onnx_op_where(onnx_importer *im)
{
    weir_tensor *in[3] = {NULL};
    for (int i = 0; i < 3; i++)
        if (!(in[i] = onnx_tensor_in(im, i)))
            return false;
    return onnx_set_tensor(im, 0, weir_where_at(in[0], in[1], in[2], OUT(im)), onnx_in(im, 1)->type);
}

bool onnx_op_truth(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    if (!x)
        return false;
    const weir_op_opts *opts = OUT(im);
    return onnx_set_tensor(im, 0, *im->node->op == 'N' ? weir_not_at(x, opts) : weir_is_nan_at(x, opts), ONNX_BOOL);
}

/* Whether x equals infinity; if the node asks for neither sign: NaN, which nothing equals. */
bool onnx_op_is_inf(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const bool up = onnx_int(im, "detect_positive", 1), down = onnx_int(im, "detect_negative", 1);
    weir_tensor *limit = x ? onnx_constant(im, onnx_scalar(im, onnx_in(im, 0)->type, up || down ? INFINITY : NAN)) : NULL;
    if (!limit)
        return false;
    x = up && down ? weir_abs_at(x, PART(im)) : up ? x : weir_neg_at(x, PART(im));
    return onnx_set_tensor(im, 0, weir_equal_at(x, limit, OUT(im)), ONNX_BOOL);
}

/* A bound of a Clip: an input, in older files an attribute. False: there is none. */
static bool bound_of(onnx_importer *im, int input, const char *attribute, double *bound)
{
    if (onnx_has_in(im->node, input)) {
        const onnx_array *a = onnx_known_in(im, input);
        if (a && array_count(a) != 1)
            return ONNX_WRONG(im, "input %d, a bound, is not one number", input);
        *bound = a ? array_real(a, 0) : 0;
        return a;
    }
    const onnx_attribute *a = onnx_attribute_find(im->node, attribute);
    *bound = a ? a->f : 0;
    return a;
}

/* Bounds that the program computes, or of integers, are a minimum and a maximum. */
static weir_tensor *clip_by_tensors(onnx_importer *im, weir_tensor *x)
{
    for (int i = 1; i < 3; i++) {
        weir_tensor *bound = onnx_has_in(im->node, i) ? onnx_tensor_in(im, i) : NULL;
        if (im->status)
            return NULL;
        x = !bound ? x : i == 1 ? weir_max2_at(x, bound, PART(im)) : weir_min2_at(x, bound, PART(im));
    }
    return x;
}

bool onnx_op_clip(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    double lo = 0, hi = 0;
    bool numbers = x && weir_dtype_real(weir_tensor_type(x).dtype);
    for (int i = 1; i < 3; i++)
        numbers = numbers && (!onnx_has_in(im->node, i) || (onnx_in(im, i) && onnx_in(im, i)->known));
    if (!x)
        return false;
    if (!numbers)
        return onnx_set_alike(im, clip_by_tensors(im, x));
    const bool below = bound_of(im, 1, "min", &lo), above = bound_of(im, 2, "max", &hi);
    if (im->status)
        return false;
    if ((!below || lo < -3e38) && (!above || hi > 3e38))
        return onnx_set_same(im, 0, 0);
    if (below && above && lo > hi) /* ONNX gives the upper one */
        lo = hi;
    weir_clip_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_out_name(im, 0)};
    opts.lo = !below || lo < -3e38 ? 0 : lo != 0 ? lo : WEIR_ZERO;
    opts.hi = !above || hi > 3e38 ? 0 : hi != 0 ? hi : WEIR_ZERO;
    return onnx_set_alike(im, weir_clip_at(x, &opts));
}

/* clip(slope x + shift, 0, 1), and x times that for HardSwish. */
bool onnx_op_hard(onnx_importer *im)
{
    const bool swish = !strcmp(im->node->op, "HardSwish");
    weir_tensor *x = onnx_tensor_in(im, 0);
    if (!x)
        return false;
    weir_tensor *line = weir_affine_at(x, ONNX_PART(im, weir_affine_opts, .scale = swish ? 1.0 / 6 : onnx_real(im, "alpha", 0.2),
                                                    .shift = swish ? 0.5 : onnx_real(im, "beta", 0.5)));
    weir_tensor *y = weir_clip_at(line, ONNX_PART(im, weir_clip_opts, .lo = WEIR_ZERO, .hi = 1));
    return onnx_set_alike(im, swish ? weir_mul_at(x, y, PART(im)) : y);
}

/* ThresholdedRelu: x where x > alpha, else 0. Shrink: x - bias above lambd, x + bias below -lambd, else 0. */
bool onnx_op_threshold(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const bool shrink = *im->node->op == 'S';
    const double limit = shrink ? onnx_real(im, "lambd", 0.5) : onnx_real(im, "alpha", 1), bias = shrink ? onnx_real(im, "bias", 0) : 0;
    const int type = x ? onnx_in(im, 0)->type : 0;
    weir_tensor *zero = x ? onnx_constant(im, onnx_scalar(im, type, 0)) : NULL, *above = zero ? onnx_constant(im, onnx_scalar(im, type, limit)) : NULL;
    if (!above)
        return false;
    weir_tensor *up = weir_affine_at(x, ONNX_PART(im, weir_affine_opts, .scale = 1, .shift = -bias));
    weir_tensor *y = weir_where_at(weir_greater_at(x, above, PART(im)), up, zero, PART(im));
    if (shrink) {
        weir_tensor *below = onnx_constant(im, onnx_scalar(im, type, -limit));
        if (!below)
            return false;
        weir_tensor *down = weir_affine_at(x, ONNX_PART(im, weir_affine_opts, .scale = 1, .shift = bias));
        y = weir_where_at(weir_less_at(x, below, PART(im)), down, y, PART(im));
    }
    return onnx_set_tensor(im, 0, y, type);
}

/* The upper or lower triangle of the last two dimensions. */
bool onnx_op_trilu(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    int64_t k = 0;
    if (!x || (onnx_has_in(im->node, 1) && onnx_integers_in(im, 1, &k, 1) != 1))
        return false;
    const weir_shape shape = weir_tensor_type(x).shape;
    if (shape.rank < 2)
        return ONNX_WRONG(im, "its input has %d dimensions", shape.rank);
    const bool upper = onnx_int(im, "upper", 1);
    const int64_t *dim = shape.dim + shape.rank - 2;
    onnx_array *kept = onnx_array_new(im, ONNX_BOOL, 2, dim);
    for (int64_t i = 0; kept && i < dim[0] * dim[1]; i++)
        array_set_integer(kept, i, upper ? i % dim[1] - i / dim[1] >= k : i % dim[1] - i / dim[1] <= k);
    weir_tensor *mask = kept ? onnx_constant(im, kept) : NULL, *zero = mask ? onnx_constant(im, onnx_scalar(im, onnx_in(im, 0)->type, 0)) : NULL;
    return zero && onnx_set_alike(im, weir_where_at(mask, x, zero, OUT(im)));
}

/* ---- by index ---- */

/* Ids as i32 or i64, which the ops by index take. */
static weir_tensor *ids_in(onnx_importer *im, int input)
{
    weir_tensor *ids = onnx_tensor_in(im, input);
    const weir_dtype dtype = ids ? weir_tensor_type(ids).dtype : WEIR_I64;
    return dtype == WEIR_I32 || dtype == WEIR_I64 ? ids : weir_cast_at(ids, WEIR_I64, PART(im));
}

weir_tensor *onnx_gather(onnx_importer *im, int axis)
{
    weir_tensor *x = onnx_tensor_in(im, 0), *ids = x ? ids_in(im, 1) : NULL;
    return ids ? weir_gather_at(x, ids, axis, OUT(im)) : NULL;
}

bool onnx_op_gather_at(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0), *ids = x ? ids_in(im, 1) : NULL;
    const bool nd = !strcmp(im->node->op, "GatherND");
    const int axis = !ids || nd ? 0 : onnx_axis(im, onnx_int(im, "axis", 0), weir_tensor_type(x).shape.rank);
    if (!ids || axis < 0)
        return false;
    const weir_op_opts *opts = OUT(im);
    weir_tensor *y = nd ? weir_gather_nd_at(x, ids, (int)onnx_int(im, "batch_dims", 0), opts) : weir_gather_elements_at(x, ids, axis, opts);
    return onnx_set_alike(im, y);
}

/* ids, a number for the depth, [off, on] -> on where the place along the new axis is the id. */
bool onnx_op_one_hot(onnx_importer *im)
{
    int64_t depth;
    weir_tensor *ids = ids_in(im, 0);
    const onnx_array *values = ids && onnx_integers_in(im, 1, &depth, 1) == 1 ? onnx_known_in(im, 2) : NULL;
    if (!values || array_count(values) != 2)
        return values ? ONNX_WRONG(im, "its values are not two") : false;
    const int axis = onnx_axis(im, onnx_int(im, "axis", -1), weir_tensor_type(ids).shape.rank + 1);
    weir_tensor *off = axis < 0 ? NULL : onnx_constant(im, onnx_scalar(im, values->type, array_real(values, 0)));
    weir_tensor *on = off ? onnx_constant(im, onnx_scalar(im, values->type, array_real(values, 1))) : NULL;
    if (!on)
        return false;
    weir_tensor *hot = weir_cast_at(weir_one_hot_at(ids, depth, axis, PART(im)), WEIR_U8, PART(im));
    return onnx_set_tensor(im, 0, weir_where_at(hot, on, off, OUT(im)), values->type);
}

/* 1 at the largest element along the axis, the first of equals. */
bool onnx_op_hardmax(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int axis = x ? onnx_axis(im, onnx_int(im, "axis", im->opset < 13 ? 1 : -1), weir_tensor_type(x).shape.rank) : -1;
    if (axis < 0)
        return false;
    if (im->opset < 13 && axis != weir_tensor_type(x).shape.rank - 1)
        return ONNX_UNSUPPORTED(im, "an axis that is not the last, in version %lld", (long long)im->opset);
    weir_tensor *at = weir_argmax_along_at(x, ONNX_PART(im, weir_arg_opts, .written = ".axis", .axis = axis));
    weir_tensor *hot = weir_one_hot_at(at, weir_tensor_type(x).shape.dim[axis], axis, PART(im));
    return onnx_set_alike(im, weir_cast_at(hot, weir_tensor_type(x).dtype, PART(im)));
}

bool onnx_op_cumsum(onnx_importer *im)
{
    int64_t given;
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int axis = x && onnx_integers_in(im, 1, &given, 1) == 1 ? onnx_axis(im, given, weir_tensor_type(x).shape.rank) : -1;
    if (axis < 0)
        return im->status ? false : ONNX_WRONG(im, "its axis is not one number");
    return onnx_set_alike(im, weir_cumsum_at(x, axis, ONNX_OPTS(im, weir_cumsum_opts, onnx_out_name(im, 0), .exclusive = onnx_int(im, "exclusive", 0),
                                                                    .reverse = onnx_int(im, "reverse", 0))));
}

bool onnx_op_top_k(onnx_importer *im)
{
    int64_t count = onnx_int(im, "k", 0);
    weir_tensor *x = onnx_tensor_in(im, 0), *at = NULL;
    const int axis = x ? onnx_axis(im, onnx_int(im, "axis", -1), weir_tensor_type(x).shape.rank) : -1;
    if (axis < 0 || (onnx_has_in(im->node, 1) && onnx_integers_in(im, 1, &count, 1) != 1))
        return im->status ? false : ONNX_WRONG(im, "its k is not one number");
    weir_tensor *y = weir_top_k_at(x, count, axis, &at, ONNX_OPTS(im, weir_top_k_opts, onnx_out_name(im, 0), .smallest = !onnx_int(im, "largest", 1)));
    return onnx_set_alike(im, y) &&
           onnx_set_tensor(im, 1, weir_cast_at(at, WEIR_I64, PART(im)), ONNX_INT64);
}

/* ---- losses ---- */

/* Whether each label counts, 1 or 0 as f32, and labels in whose place 0 stands if they do not. */
static weir_tensor *counted(onnx_importer *im, weir_tensor **labels)
{
    const onnx_attribute *ignore = onnx_attribute_find(im->node, "ignore_index");
    const int type = weir_tensor_type(*labels).dtype == WEIR_I32 ? ONNX_INT32 : ONNX_INT64;
    weir_tensor *other = ignore ? onnx_constant(im, onnx_scalar(im, type, (double)ignore->i)) : NULL;
    weir_tensor *zero = other ? onnx_constant(im, onnx_scalar(im, type, 0)) : NULL;
    if (!zero)
        return NULL;
    weir_tensor *counts = weir_not_at(weir_equal_at(*labels, other, PART(im)), PART(im));
    *labels = weir_where_at(counts, *labels, zero, PART(im));
    return weir_cast_at(counts, WEIR_F32, PART(im));
}

/* -weight[label] logarithm[label] of each label; the sum over all, or divided by the sum of the weights, or as they are. */
static bool set_loss(onnx_importer *im, weir_tensor *logarithms)
{
    weir_tensor *labels = ids_in(im, 1), *weights = NULL;
    const char *reduction = onnx_text(im, "reduction", "mean");
    if (!labels)
        return false;
    weir_tensor *counts = counted(im, &labels);
    if (onnx_has_in(im->node, 2)) {
        weir_tensor *weight = onnx_tensor_in(im, 2);
        weights = weight ? weir_gather_at(weight, labels, 0, PART(im)) : NULL;
    }
    if (im->status)
        return false;
    weights = !weights ? counts : counts ? weir_mul_at(weights, counts, PART(im)) : weights;
    const weir_shape shape = weir_tensor_type(logarithms).shape;
    weir_tensor *hot = weir_cast_at(weir_one_hot_at(labels, shape.rank > 1 ? shape.dim[1] : 1, 1, PART(im)), WEIR_U8, PART(im));
    weir_tensor *zero = onnx_constant(im, onnx_scalar(im, ONNX_FLOAT, 0)), *loss;
    if (!zero)
        return false;
    loss = weir_neg_at(onnx_reduced(im, weir_where_at(hot, logarithms, zero, PART(im)), "Sum", (int[]){1}, 1, false, onnx_name(im)), PART(im));
    loss = weights ? weir_mul_at(loss, weights, PART(im)) : loss;
    if (!strcmp(reduction, "mean") && !weights)
        loss = onnx_reduced(im, loss, "Mean", NULL, 0, false, onnx_name(im));
    else if (strcmp(reduction, "none") != 0)
        loss = onnx_reduced(im, loss, "Sum", NULL, 0, false, onnx_name(im));
    if (!strcmp(reduction, "mean") && weights)
        loss = weir_div_at(loss, onnx_reduced(im, weights, "Sum", NULL, 0, false, onnx_name(im)), PART(im));
    return onnx_set_tensor(im, 0, loss, ONNX_FLOAT);
}

bool onnx_op_loss(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const bool logits = *im->node->op == 'S';
    int perm[WEIR_DIMS_MAX];
    if (!x)
        return false;
    const int rank = weir_tensor_type(x).shape.rank;
    if (rank < 2)
        return ONNX_WRONG(im, "its input has %d dimensions", rank);
    for (int d = 0; d < rank; d++)
        perm[d] = d == 1 ? rank - 1 : d == rank - 1 ? 1 : d;
    if (logits) {
        x = onnx_log_softmax(im, onnx_transpose(im, x, perm, onnx_name(im)));
        x = weir_tensor_poisoned(x) ? x : onnx_transpose(im, x, perm, onnx_name(im));
    }
    if (logits && im->node->out.count > 1 && *im->node->out.item[1] && !onnx_set_tensor(im, 1, x, ONNX_FLOAT))
        return false;
    return set_loss(im, x);
}
