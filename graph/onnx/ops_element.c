/* graph/onnx/ops_element.c: operators on elements. Most are one function of the DSL, named in a table; some are put together from a
 * few, as the fused passes of the compiler make one loop of them again. A number (one element that is known) goes into
 * weir_affine(), so it is no parameter.
 */
#include "graph/onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- one input ---- */

typedef weir_tensor *(*unary_fn)(weir_tensor *x, const weir_op_opts *opts);

static const struct unary {
    const char *op;
    unary_fn fn;
} unaries[] = {
    {"Neg", weir_neg_at},   {"Exp", weir_exp_at},         {"Log", weir_log_at},   {"Sqrt", weir_sqrt_at},
    {"Tanh", weir_tanh_at}, {"Sigmoid", weir_sigmoid_at}, {"Relu", weir_relu_at},
    {"Abs", weir_abs_at},   {"Sin", weir_sin_at},         {"Cos", weir_cos_at},
    {"Erf", weir_erf_at},   {"Floor", weir_floor_at},     {"Ceil", weir_ceil_at},
    {"Sign", weir_sign_at}, {"Round", weir_round_at},     {"Reciprocal", weir_reciprocal_at},
    {"Softplus", weir_softplus_at},
};

bool onnx_op_unary(onnx_importer *im)
{
    const struct unary *u = unaries;
    while (u < unaries + sizeof unaries / sizeof *unaries && strcmp(u->op, im->node->op) != 0)
        u++;
    weir_tensor *x = onnx_tensor_in(im, 0);
    if (!x || u == unaries + sizeof unaries / sizeof *unaries)
        return im->status ? false : ONNX_UNSUPPORTED(im, "it is not supported here");
    return onnx_set_alike(im, u->fn(x, OUT(im)));
}

/* scale * x + shift */
static weir_tensor *scaled(onnx_importer *im, weir_tensor *x, double scale, double shift)
{
    return weir_affine_at(x, ONNX_PART(im, weir_affine_opts, .scale = scale, .shift = shift));
}

static weir_tensor *named_scaled(onnx_importer *im, weir_tensor *x, double scale, double shift)
{
    return weir_affine_at(x, ONNX_OPTS(im, weir_affine_opts, onnx_out_name(im, 0), .scale = scale, .shift = shift));
}

/* relu(-x) */
static weir_tensor *below(onnx_importer *im, weir_tensor *x)
{
    return weir_relu_at(weir_neg_at(x, PART(im)), PART(im));
}

/* relu(x) - slope relu(-x) */
bool onnx_op_leaky(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0), *slope = x && !strcmp(im->node->op, "PRelu") ? onnx_tensor_in(im, 1) : NULL;
    if (!x || im->status)
        return false;
    weir_tensor *negative = below(im, x);
    negative = slope ? weir_mul_at(negative, slope, PART(im)) : scaled(im, negative, onnx_real(im, "alpha", 0.01), 0);
    weir_tensor *y = weir_sub_at(weir_relu_at(x, PART(im)), negative, OUT(im));
    return onnx_set_alike(im, y);
}

/* gamma (relu(x) + alpha (exp(min(x, 0) / width) - 1)): Elu, Selu, Celu */
bool onnx_op_exponential(onnx_importer *im)
{
    const bool selu = *im->node->op == 'S', celu = *im->node->op == 'C';
    const double alpha = onnx_real(im, "alpha", selu ? 1.67326319217681884765625 : 1);
    const double gamma = selu ? onnx_real(im, "gamma", 1.05070102214813232421875) : 1;
    weir_tensor *x = onnx_tensor_in(im, 0);
    if (!x)
        return false;
    weir_tensor *fall = scaled(im, weir_exp_at(scaled(im, below(im, x), celu ? -1 / alpha : -1, 0), PART(im)), gamma * alpha,
                               -gamma * alpha);
    weir_tensor *rise = scaled(im, weir_relu_at(x, PART(im)), gamma, 0);
    return onnx_set_alike(im, weir_add_at(rise, fall, OUT(im)));
}

/* ---- two inputs ---- */

/* The number that a value is; false: it is none, or not for this dtype. */
static bool number_of(const onnx_value *value, const onnx_value *other, double *number)
{
    if (!value || !other || !value->known || !onnx_type_real(value->type) || array_count(value->known) != 1)
        return false;
    const int rank = other->known ? other->known->rank : weir_tensor_type(other->tensor).shape.rank;
    if (value->known->rank > rank)
        return false;
    *number = array_real(value->known, 0);
    return isfinite(*number);
}

/* The node as scale * x + shift; NULL: it is none. */
static weir_tensor *as_affine(onnx_importer *im, const char *op, onnx_value *a, onnx_value *b)
{
    double number;
    if (number_of(b, a, &number)) {
        weir_tensor *x = onnx_tensor(im, a);
        switch (*op) {
        case 'A': return x ? named_scaled(im, x, 1, number) : NULL;
        case 'S': return x ? named_scaled(im, x, 1, -number) : NULL;
        case 'M': return x ? named_scaled(im, x, number, 0) : NULL;
        default: return x && number != 0 ? named_scaled(im, x, 1 / number, 0) : NULL;
        }
    }
    if (*op == 'D' || !number_of(a, b, &number))
        return NULL;
    weir_tensor *x = onnx_tensor(im, b);
    return !x ? NULL : *op == 'A' ? named_scaled(im, x, 1, number) : *op == 'S' ? named_scaled(im, x, -1, number) : named_scaled(im, x, number, 0);
}

typedef weir_tensor *(*binary_fn)(weir_tensor *a, weir_tensor *b, const weir_op_opts *opts);

static binary_fn arithmetic(const char *op)
{
    return *op == 'A' ? weir_add_at : *op == 'S' ? weir_sub_at : *op == 'M' ? weir_mul_at : weir_div_at;
}

bool onnx_op_arithmetic(onnx_importer *im)
{
    onnx_value *a = onnx_in(im, 0), *b = onnx_in(im, 1);
    if (!a || !b)
        return ONNX_WRONG(im, "it takes two inputs");
    const int type = a->type;
    weir_tensor *y = as_affine(im, im->node->op, a, b);
    if (y || im->status)
        return onnx_set_tensor(im, 0, y, type);
    weir_tensor *x = onnx_tensor(im, a), *z = x ? onnx_tensor(im, b) : NULL;
    return z && onnx_set_tensor(im, 0, arithmetic(im->node->op)(x, z, OUT(im)), type);
}

/* Sum and Mean of any number of inputs. */
bool onnx_op_sum(onnx_importer *im)
{
    weir_tensor *sum = onnx_tensor_in(im, 0);
    for (int i = 1; sum && i < im->node->in.count; i++) {
        weir_tensor *x = onnx_tensor_in(im, i);
        sum = x ? weir_add_at(sum, x, PART(im)) : NULL;
    }
    if (!sum)
        return false;
    if (*im->node->op == 'M')
        sum = scaled(im, sum, 1.0 / im->node->in.count, 0);
    return onnx_set_alike(im, sum);
}

/* x / (1 + |x|) */
bool onnx_op_softsign(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    if (!x)
        return false;
    weir_tensor *size = weir_abs_at(x, PART(im));
    return onnx_set_alike(im, weir_div_at(x, scaled(im, size, 1, 1), OUT(im)));
}

/* tan = sin / cos; sinh and cosh = (exp(x) -+ exp(-x)) / 2 */
bool onnx_op_ratio(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0), *y;
    if (!x)
        return false;
    if (!strcmp(im->node->op, "Tan")) {
        y = weir_div_at(weir_sin_at(x, PART(im)), weir_cos_at(x, PART(im)), PART(im));
    } else {
        weir_tensor *up = weir_exp_at(x, PART(im));
        weir_tensor *down = weir_exp_at(weir_neg_at(x, PART(im)), PART(im));
        y = scaled(im, *im->node->op == 'S' ? weir_sub_at(up, down, PART(im)) : weir_add_at(up, down, PART(im)), 0.5, 0);
    }
    return onnx_set_alike(im, y);
}

/* To bool: whether it is not 0. */
bool onnx_op_cast(onnx_importer *im)
{
    const onnx_value *like = strcmp(im->node->op, "CastLike") ? NULL : onnx_in(im, 1);
    const int to = like ? like->type : (int)onnx_int(im, "to", ONNX_FLOAT);
    weir_tensor *x = onnx_tensor_in(im, 0);
    if (!x)
        return false;
    if (!onnx_dtype(to))
        return ONNX_UNSUPPORTED(im, "it casts to %s, which no tensor of weir has", onnx_type_name(to));
    if (weir_tensor_type(x).dtype == onnx_dtype(to) && (to != ONNX_BOOL || onnx_in(im, 0)->type == ONNX_BOOL))
        return onnx_set_tensor(im, 0, x, to);
    if (to == ONNX_BOOL) {
        weir_tensor *zero = onnx_constant(im, onnx_scalar(im, onnx_in(im, 0)->type, 0));
        weir_tensor *same = zero ? weir_equal_at(x, zero, PART(im)) : NULL;
        return same && onnx_set_tensor(im, 0, weir_not_at(same, OUT(im)), to);
    }
    return onnx_set_tensor(im, 0, weir_cast_at(x, onnx_dtype(to), OUT(im)), to);
}
