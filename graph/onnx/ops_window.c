/* graph/onnx/ops_window.c: operators with a window over spatial dimensions: convolutions and pools. */
#include "graph/onnx/ops.h"

#include <string.h>

enum { SPACE_MAX = 3, NUMBER_MAX = 1 << 30 }; /* NUMBER_MAX: of sizes and attributes, so that no product overflows */

/* The attributes that they share. */
typedef struct window {
    int dims;                  /* spatial ones */
    int64_t size[SPACE_MAX], kernel[SPACE_MAX], stride[SPACE_MAX], dilation[SPACE_MAX], pad[SPACE_MAX], pad_end[SPACE_MAX];
    bool ceil;
} window;

static bool take_list(onnx_importer *im, const char *name, int dims, int64_t *list)
{
    int64_t given[2 * SPACE_MAX + 1];
    const int count = onnx_ints(im, name, given, 2 * SPACE_MAX + 1);
    if (count && count != dims)
        return ONNX_WRONG(im, "its attribute %s has %d numbers, and not %d", name, count, dims);
    for (int d = 0; d < count; d++) {
        if (given[d] < -NUMBER_MAX || given[d] > NUMBER_MAX)
            return ONNX_UNSUPPORTED(im, "its attribute %s has the number %lld; at most %d can be", name, (long long)given[d], NUMBER_MAX);
        list[d] = given[d];
    }
    return true;
}

/* Positions of the window: as many as strides fit into the input, or one for each element that a stride keeps. */
static void pad_same(window *w, bool upper)
{
    for (int d = 0; d < w->dims; d++) {
        const int64_t out = (w->size[d] + w->stride[d] - 1) / w->stride[d], span = w->dilation[d] * (w->kernel[d] - 1) + 1;
        const int64_t need = (out - 1) * w->stride[d] + span - w->size[d], all = need > 0 ? need : 0;
        w->pad[d] = upper ? all / 2 : all - all / 2;
        w->pad_end[d] = all - w->pad[d];
    }
}

static bool take_pads(onnx_importer *im, window *w)
{
    const char *automatic = onnx_text(im, "auto_pad", "NOTSET");
    int64_t pads[2 * SPACE_MAX] = {0};
    if (!strncmp(automatic, "SAME_", 5)) {
        pad_same(w, !strcmp(automatic, "SAME_UPPER"));
        return true;
    }
    if (!take_list(im, "pads", 2 * w->dims, pads))
        return false;
    for (int d = 0; d < w->dims && strcmp(automatic, "VALID") != 0; d++) {
        w->pad[d] = pads[d];
        w->pad_end[d] = pads[w->dims + d];
    }
    return true;
}

/* `kernel`: the sizes of a weight; NULL: the attribute has them. */
static bool take_window(onnx_importer *im, weir_tensor *x, const int64_t *kernel, window *w)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    *w = (window){.dims = shape.rank - 2, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .ceil = onnx_int(im, "ceil_mode", 0)};
    if (w->dims < 1 || w->dims > SPACE_MAX)
        return ONNX_UNSUPPORTED(im, "its input has %d dimensions; 3 to 5 can be", shape.rank);
    memcpy(w->size, shape.dim + 2, sizeof w->size);
    if (kernel)
        memcpy(w->kernel, kernel, sizeof *kernel * (size_t)w->dims);
    if (!take_list(im, "kernel_shape", w->dims, w->kernel) || !take_list(im, "strides", w->dims, w->stride) ||
        !take_list(im, "dilations", w->dims, w->dilation))
        return false;
    for (int d = 0; d < w->dims; d++)
        if (w->kernel[d] < 1 || w->stride[d] < 1 || w->dilation[d] < 1 || w->kernel[d] > NUMBER_MAX || w->size[d] > NUMBER_MAX)
            return ONNX_WRONG(im, "a size, a stride or a dilation is below 1, or a size is more than %d", NUMBER_MAX);
    return take_pads(im, w);
}

static bool negative_pads(onnx_importer *im, const window *w)
{
    for (int d = 0; d < w->dims; d++)
        if (w->pad[d] < 0 || w->pad_end[d] < 0)
            return ONNX_UNSUPPORTED(im, "pads of %lld and %lld: weir's are 0 or more", (long long)w->pad[d], (long long)w->pad_end[d]), true;
    return false;
}

/* x, weight, and the bias or NULL. `own_bias`: the node's is not wanted. */
static bool take_operands(onnx_importer *im, bool own_bias, weir_tensor **in)
{
    in[0] = onnx_tensor_in(im, 0);
    in[1] = in[0] ? onnx_tensor_in(im, 1) : NULL;
    in[2] = in[1] && !own_bias && onnx_has_in(im->node, 2) ? onnx_tensor_in(im, 2) : NULL;
    if (in[1] && weir_tensor_type(in[1]).shape.rank != weir_tensor_type(in[0]).shape.rank)
        return ONNX_WRONG(im, "its input has %d dimensions, and its weight %d", weir_tensor_type(in[0]).shape.rank,
                          weir_tensor_type(in[1]).shape.rank);
    return in[1] && !im->status;
}

/* The members behind the window's dimensions stay 0. */
static void copy(const window *w, const int64_t *from, int64_t *to)
{
    memcpy(to, from, sizeof *from * (size_t)w->dims);
}

static void fill_opts(onnx_importer *im, const window *w, weir_conv_with_opts *opts)
{
    *opts = (weir_conv_with_opts){.size = sizeof *opts, .src = im->src, .written = ".pad_end", .name = onnx_out_name(im, 0),
                                  .groups = onnx_int(im, "group", 1)};
    copy(w, w->stride, opts->stride);
    copy(w, w->pad, opts->pad);
    copy(w, w->pad_end, opts->pad_end);
    copy(w, w->dilation, opts->dilation);
}

/* ---- a batch norm behind a convolution ---- */

/* The weight with each output channel scaled. */
static onnx_array *scaled_weight(onnx_importer *im, const onnx_array *weight, const onnx_array *scale)
{
    onnx_array *w = onnx_array_new(im, weight->type, weight->rank, weight->dim);
    const int64_t count = w ? array_count(w) : 0, each = w ? count / weight->dim[0] : 1;
    for (int64_t i = 0; i < count; i++)
        array_set_real(w, i, array_real(weight, i) * array_real(scale, i / each));
    return w;
}

/* If nothing but a batch norm with known statistics reads the result, and the weight is this node's alone: the norm becomes part of
 * weight and bias. The bias is then a new value; NULL in all other cases. */
static onnx_array *take_norm(onnx_importer *im, const onnx_node *node)
{
    const onnx_node *norm = onnx_only_reader(im, 0);
    onnx_value *weight = onnx_in(im, 1), *bias = onnx_in(im, 2);
    onnx_array *scale, *shift;
    if (!norm || strcmp(norm->op, "BatchNormalization") || !norm->out.count || !onnx_has_in(norm, 0) || strcmp(norm->in.item[0], node->out.item[0]) || !weight ||
        !weight->known || weight->tensor || weight->known->rank < 3 || onnx_readers(im, node->in.item[1]) > 1 || (bias && !bias->known))
        return NULL;
    const int64_t channels = weight->known->dim[0];
    if (!channels || (bias && array_count(bias->known) != channels) || !onnx_norm_known(im, norm, channels, &scale, &shift))
        return NULL;
    for (int64_t c = 0; bias && c < channels; c++)
        array_set_real(shift, c, array_real(shift, c) + array_real(bias->known, c) * array_real(scale, c));
    const onnx_array *w = scaled_weight(im, weight->known, scale);
    if (!w)
        return NULL;
    weight->known = w;
    return shift;
}

bool onnx_op_conv(onnx_importer *im)
{
    const onnx_array *bias = take_norm(im, im->node);
    weir_tensor *in[3];
    window w;
    weir_conv_with_opts opts;
    if (im->status || !take_operands(im, bias, in) || !take_window(im, in[0], weir_tensor_type(in[1]).shape.dim + 2, &w) || negative_pads(im, &w))
        return false;
    if (bias && !(in[2] = onnx_constant(im, bias)))
        return false;
    fill_opts(im, &w, &opts);
    if (bias) /* the result is the norm's, so it has the name of that */
        opts.name = onnx_fresh_name(im, onnx_only_reader(im, 0)->out.item[0]);
    if (!onnx_set_alike(im, weir_conv_with_at(in[0], in[1], in[2], &opts)))
        return false;
    onnx_value_find(im, im->node->out.item[0])->normed = bias;
    return true;
}

/* Pads of a transposed convolution whose size is given, or is stride times the input's. A larger size than all elements reach is
 * filled up at the end. */
static bool take_output_shape(onnx_importer *im, window *w, int64_t *more)
{
    int64_t wanted[2 * SPACE_MAX + 1];
    const int count = onnx_ints(im, "output_shape", wanted, 2 * SPACE_MAX + 1);
    const char *automatic = onnx_text(im, "auto_pad", "NOTSET");
    const bool same = !strncmp(automatic, "SAME_", 5);
    if (!count && !same)
        return true;
    if (count && count != w->dims)
        return ONNX_WRONG(im, "its output_shape has %d numbers, and not %d", count, w->dims);
    for (int d = 0; d < count; d++)
        if (wanted[d] < 1)
            return ONNX_WRONG(im, "its output_shape has the number %lld", (long long)wanted[d]);
    for (int d = 0; d < w->dims; d++) {
        const int64_t size = count ? wanted[d] : w->size[d] * w->stride[d];
        const int64_t full = w->stride[d] * (w->size[d] - 1) + more[d] + w->dilation[d] * (w->kernel[d] - 1) + 1;
        const int64_t all = full > size ? full - size : 0;
        more[d] += size > full ? size - full : 0;
        w->pad[d] = strcmp(automatic, "SAME_UPPER") ? all - all / 2 : all / 2;
        w->pad_end[d] = all - w->pad[d];
    }
    return true;
}

bool onnx_op_conv_transpose(onnx_importer *im)
{
    weir_tensor *in[3];
    window w;
    weir_conv_with_opts opts;
    int64_t more[SPACE_MAX] = {0};
    if (!take_operands(im, false, in) || !take_window(im, in[0], weir_tensor_type(in[1]).shape.dim + 2, &w) ||
        !take_list(im, "output_padding", w.dims, more) || !take_output_shape(im, &w, more) || negative_pads(im, &w))
        return false;
    fill_opts(im, &w, &opts);
    copy(&w, more, opts.output_pad);
    return onnx_set_alike(im, weir_conv_transpose_with_at(in[0], in[1], in[2], &opts));
}

bool onnx_op_pool(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const bool max = *im->node->op == 'M';
    window w;
    if (!x || !take_window(im, x, NULL, &w) || negative_pads(im, &w))
        return false;
    if (max && (onnx_int(im, "storage_order", 0) || (im->node->out.count > 1 && *im->node->out.item[1])))
        return ONNX_UNSUPPORTED(im, "its second output, the indices");
    weir_pool_opts opts = {.size = sizeof opts, .src = im->src, .written = ".pad_end", .name = onnx_out_name(im, 0), .ceil = w.ceil,
                           .count_pad = onnx_int(im, "count_include_pad", 0)};
    copy(&w, w.kernel, opts.kernel);
    copy(&w, w.stride, opts.stride);
    copy(&w, w.pad, opts.pad);
    copy(&w, w.pad_end, opts.pad_end);
    copy(&w, w.dilation, opts.dilation);
    return onnx_set_alike(im, max ? weir_max_pool_at(x, &opts) : weir_average_pool_at(x, &opts));
}

bool onnx_op_lrn(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const double alpha = onnx_real(im, "alpha", 1e-4), beta = onnx_real(im, "beta", 0.75), bias = onnx_real(im, "bias", 1);
    return x && onnx_set_alike(im, weir_lrn_at(x, onnx_int(im, "size", 1), ONNX_OPTS(im, weir_lrn_opts, onnx_out_name(im, 0),
                                .alpha = alpha != 0 ? alpha : WEIR_ZERO, .beta = beta != 0 ? beta : WEIR_ZERO, .bias = bias != 0 ? bias : WEIR_ZERO)));
}
