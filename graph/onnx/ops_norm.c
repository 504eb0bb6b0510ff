/* graph/onnx/ops_norm.c: norms. A layer norm over the last dimension is weir's own op; the others are put together from sums. */
#include "graph/onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- batch norm ---- */

bool onnx_norm_known(onnx_importer *im, const onnx_node *node, int64_t channels, onnx_array **scale, onnx_array **shift)
{
    const onnx_attribute *eps = onnx_attribute_find(node, "epsilon"), *training = onnx_attribute_find(node, "training_mode");
    const onnx_array *in[5] = {NULL};
    for (int i = 1; i < 5; i++) {
        const onnx_value *value = onnx_has_in(node, i) ? onnx_value_find(im, node->in.item[i]) : NULL;
        in[i] = value ? value->known : NULL;
        if (!in[i] || array_count(in[i]) != channels)
            return false;
    }
    *scale = onnx_array_new(im, in[1]->type, 1, &channels);
    *shift = *scale ? onnx_array_new(im, in[1]->type, 1, &channels) : NULL;
    for (int64_t c = 0; *shift && c < channels; c++) {
        const double by = array_real(in[1], c) / sqrt(array_real(in[4], c) + (eps ? eps->f : 1e-5));
        array_set_real(*scale, c, by);
        array_set_real(*shift, c, array_real(in[2], c) - array_real(in[3], c) * by);
    }
    return *shift && !(training && training->i);
}

/* x * scale + shift, for each channel. */
bool onnx_op_batch_norm(onnx_importer *im)
{
    onnx_array *scale, *shift;
    onnx_value *value = onnx_in(im, 0);
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int rank = x ? weir_tensor_type(x).shape.rank : 0;
    if (rank < 2)
        return x ? ONNX_WRONG(im, "its input has %d dimensions", rank) : false;
    if (value->normed)
        return onnx_set_same(im, 0, 0);
    const int64_t channels = weir_tensor_type(x).shape.dim[1];
    if (!onnx_norm_known(im, im->node, channels, &scale, &shift)) {
        for (int i = 1; i < 5; i++)
            if (!onnx_known_in(im, i))
                return false;
        return ONNX_UNSUPPORTED(im, "it trains, or its statistics are not one for each of %lld channels", (long long)channels);
    }
    scale->rank = shift->rank = rank - 1;
    for (int d = 1; d < rank - 1; d++)
        scale->dim[d] = shift->dim[d] = 1;
    weir_tensor *by = onnx_constant(im, scale), *to = by ? onnx_constant(im, shift) : NULL;
    if (!to)
        return false;
    weir_tensor *y = weir_add_at(weir_mul_at(x, by, PART(im)), to, OUT(im));
    return onnx_set_tensor(im, 0, y, value->type);
}

/* ---- norms over axes ---- */

typedef struct moments {
    weir_tensor *mean, *from_mean, *variance; /* with the axes kept, as sizes of 1 */
} moments;

static moments moments_of(onnx_importer *im, weir_tensor *x, const int *axes, int count)
{
    weir_tensor *mean = onnx_reduced(im, x, "Mean", axes, count, true, onnx_name(im)), *from = weir_sub_at(x, mean, PART(im));
    return (moments){mean, from, onnx_reduced(im, weir_mul_at(from, from, PART(im)), "Mean", axes, count, true, onnx_name(im))};
}

/* sqrt(variance + eps) */
static weir_tensor *deviation(onnx_importer *im, weir_tensor *variance, double eps)
{
    return weir_sqrt_at(weir_affine_at(variance, ONNX_PART(im, weir_affine_opts, .scale = 1, .shift = eps)), PART(im));
}

static int axes_from(int first, int rank, int *axes)
{
    for (int d = first; d < rank; d++)
        axes[d - first] = d;
    return rank - first;
}

/* The mean and 1 / deviation that a LayerNormalization gives as well. */
static bool set_statistics(onnx_importer *im, const moments *m, weir_tensor *deviation_of, int type)
{
    const onnx_node *node = im->node;
    if (node->out.count > 1 && *node->out.item[1] && !onnx_set_tensor(im, 1, m->mean, type))
        return false;
    if (node->out.count < 3 || !*node->out.item[2])
        return true;
    weir_tensor *one = weir_affine_at(deviation_of, ONNX_PART(im, weir_affine_opts, .scale = 0, .shift = 1));
    return onnx_set_tensor(im, 2, weir_div_at(one, deviation_of, PART(im)), type);
}

bool onnx_op_layer_norm(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0), *gain = x ? onnx_tensor_in(im, 1) : NULL;
    weir_tensor *bias = gain && onnx_has_in(im->node, 2) ? onnx_tensor_in(im, 2) : NULL;
    const double eps = onnx_real(im, "epsilon", 1e-5);
    const int rank = x ? weir_tensor_type(x).shape.rank : 0, axis = x ? onnx_axis(im, onnx_int(im, "axis", -1), rank) : -1;
    int axes[WEIR_DIMS_MAX];
    if (!gain || axis < 0 || im->status)
        return false;
    const int count = axes_from(axis, rank, axes), type = onnx_in(im, 0)->type;
    if (count == 1 && bias && im->node->out.count == 1 && weir_tensor_type(gain).shape.rank == 1)
        return onnx_set_tensor(im, 0, weir_layernorm_with_at(x, gain, bias, ONNX_OPTS(im, weir_norm_opts, onnx_out_name(im, 0),
                                                                                      .eps = eps != 0 ? eps : WEIR_ZERO)), type);
    const moments m = moments_of(im, x, axes, count);
    weir_tensor *by = deviation(im, m.variance, eps), *y = weir_mul_at(weir_div_at(m.from_mean, by, PART(im)), gain, PART(im));
    return onnx_set_tensor(im, 0, bias ? weir_add_at(y, bias, PART(im)) : y, type) && set_statistics(im, &m, by, type);
}

/* [channels] as [channels, 1, 1 ...], to broadcast over x. */
static weir_tensor *by_channel(onnx_importer *im, int input, int rank)
{
    weir_tensor *x = onnx_tensor_in(im, input);
    int64_t dim[WEIR_DIMS_MAX] = {0, 1, 1, 1, 1, 1};
    if (!x)
        return NULL;
    const weir_shape shape = weir_tensor_type(x).shape;
    dim[0] = weir_shape_count(&shape);
    return onnx_reshape(im, x, rank - 1, dim, onnx_name(im));
}

bool onnx_op_instance_norm(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int rank = x ? weir_tensor_type(x).shape.rank : 0;
    int axes[WEIR_DIMS_MAX];
    if (rank < 3)
        return x ? ONNX_WRONG(im, "its input has %d dimensions", rank) : false;
    weir_tensor *scale = by_channel(im, 1, rank), *shift = scale ? by_channel(im, 2, rank) : NULL;
    if (!shift)
        return false;
    const moments m = moments_of(im, x, axes, axes_from(2, rank, axes));
    weir_tensor *y = weir_div_at(m.from_mean, deviation(im, m.variance, onnx_real(im, "epsilon", 1e-5)), PART(im));
    return onnx_set_alike(im, weir_add_at(weir_mul_at(y, scale, PART(im)), shift, PART(im)));
}

bool onnx_op_mean_variance(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    int64_t list[WEIR_DIMS_MAX] = {0, 2, 3};
    int axes[WEIR_DIMS_MAX], count = onnx_ints(im, "axes", list, WEIR_DIMS_MAX);
    if (!x)
        return false;
    count = count ? count : 3;
    for (int i = 0; i < count; i++)
        if ((axes[i] = onnx_axis(im, list[i], weir_tensor_type(x).shape.rank)) < 0)
            return false;
    const moments m = moments_of(im, x, axes, count);
    return onnx_set_alike(im, weir_div_at(m.from_mean, deviation(im, m.variance, 1e-9), PART(im)));
}

/* x / |x| along an axis, for p = 2. */
bool onnx_op_lp_norm(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int axis = x ? onnx_axis(im, onnx_int(im, "axis", -1), weir_tensor_type(x).shape.rank) : -1;
    if (axis < 0)
        return false;
    if (onnx_int(im, "p", 2) != 2)
        return ONNX_UNSUPPORTED(im, "p is %lld; 2 can be", (long long)onnx_int(im, "p", 2));
    weir_tensor *square = onnx_reduced(im, weir_mul_at(x, x, PART(im)), "Sum", &axis, 1, true, onnx_name(im));
    return onnx_set_alike(im, weir_div_at(x, weir_sqrt_at(square, PART(im)), PART(im)));
}
