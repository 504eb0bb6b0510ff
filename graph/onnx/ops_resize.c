/* graph/onnx/ops_resize.c: Pad, Resize and Upsample. */
#include "graph/onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- pads ---- */

/* The mode, or -1 after a fault. */
static int pad_mode(onnx_importer *im)
{
    const char *mode = onnx_text(im, "mode", "constant");
    if (!strcmp(mode, "constant"))
        return WEIR_PAD_CONSTANT;
    if (!strcmp(mode, "edge"))
        return WEIR_PAD_EDGE;
    if (!strcmp(mode, "reflect"))
        return WEIR_PAD_REFLECT;
    return ONNX_UNSUPPORTED(im, "the mode %s; constant, edge and reflect can be", mode), -1;
}

/* The elements to add before and after each dimension: twice as many numbers as axes. */
static bool take_pads(onnx_importer *im, int rank, weir_pad_opts *opts)
{
    int64_t pads[2 * ONNX_DIMS_MAX];
    int axes[ONNX_DIMS_MAX], count = onnx_has_in(im->node, 3) ? onnx_axes(im, 3, rank, axes) : 0;
    const bool input = onnx_has_in(im->node, 1);
    const int given = input ? onnx_integers_in(im, 1, pads, 2 * ONNX_DIMS_MAX) : onnx_ints(im, "pads", pads, 2 * ONNX_DIMS_MAX);
    if (given < 0 || count < 0)
        return false;
    if (!onnx_has_in(im->node, 3))
        for (count = 0; count < rank; count++)
            axes[count] = count;
    if (given != 2 * count)
        return ONNX_WRONG(im, "it has %d pads for %d dimensions", given, count);
    for (int i = 0; i < given; i++)
        if (pads[i] < -INT32_MAX || pads[i] > INT32_MAX)
            return ONNX_UNSUPPORTED(im, "a pad of %lld", (long long)pads[i]);
    for (int i = 0; i < count; i++) {
        opts->before[axes[i]] = pads[i];
        opts->after[axes[i]] = pads[count + i];
    }
    return true;
}

/* Pads below 0 cut. */
static weir_tensor *cut(onnx_importer *im, weir_tensor *x, weir_pad_opts *opts)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    for (int d = 0; d < shape.rank; d++) {
        const int64_t first = opts->before[d] < 0 ? -opts->before[d] : 0, last = opts->after[d] < 0 ? -opts->after[d] : 0;
        if (first || last)
            x = weir_slice_at(x, d, first, shape.dim[d] - first - last, ONNX_PART(im, weir_slice_opts));
        opts->before[d] += first;
        opts->after[d] += last;
    }
    return x;
}

bool onnx_op_pad(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    weir_pad_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_out_name(im, 0), .value = onnx_real(im, "value", 0)};
    if (!x || (opts.mode = pad_mode(im)) < 0 || !take_pads(im, weir_tensor_type(x).shape.rank, &opts))
        return false;
    if (onnx_has_in(im->node, 2)) {
        const onnx_array *value = onnx_known_in(im, 2);
        if (!value || array_count(value) != 1)
            return value ? ONNX_WRONG(im, "its value is not one number") : false;
        opts.value = array_real(value, 0);
    }
    return onnx_set_alike(im, weir_pad_at(cut(im, x, &opts), &opts));
}

/* ---- other sizes ---- */

static int find(const char *name, const char *const *names)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return names[i] ? i : -1;
}

static bool take_modes(onnx_importer *im, weir_resize_opts *opts)
{
    static const char *const modes[] = {"nearest", "linear", NULL};
    static const char *const coordinates[] = {"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", NULL};
    static const char *const rounds[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};
    const bool old = im->opset < 11 || !strcmp(im->node->op, "Upsample");
    opts->mode = find(onnx_text(im, "mode", "nearest"), modes);
    opts->coordinates = find(onnx_text(im, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"), coordinates);
    opts->round = find(onnx_text(im, "nearest_mode", old ? "floor" : "round_prefer_floor"), rounds);
    if (opts->mode < 0 || opts->coordinates < 0 || opts->round < 0 || onnx_int(im, "antialias", 0) || onnx_int(im, "exclude_outside", 0))
        return ONNX_UNSUPPORTED(im, "its mode %s with %s and %s; nearest and linear can be, without antialias", onnx_text(im, "mode", "nearest"),
                                onnx_text(im, "coordinate_transformation_mode", "half_pixel"), onnx_text(im, "nearest_mode", "-"));
    return true;
}

/* Scales or sizes, of all dimensions or of some axes. */
static bool take_sizes(onnx_importer *im, const weir_shape *shape, weir_resize_opts *opts)
{
    const bool upsample = !strcmp(im->node->op, "Upsample") || im->opset < 11;
    const int at_scales = upsample ? 1 : 2;
    const onnx_value *scales = onnx_has_in(im->node, at_scales) ? onnx_in(im, at_scales) : NULL;
    const bool by_scale = scales && !(scales->known && !array_count(scales->known));
    const onnx_array *list = onnx_known_in(im, by_scale ? at_scales : 3);
    int64_t axes[ONNX_DIMS_MAX];
    int count = onnx_ints(im, "axes", axes, ONNX_DIMS_MAX);
    if (!count)
        for (; count < shape->rank; count++)
            axes[count] = count;
    if (!list || array_count(list) != count)
        return list ? ONNX_WRONG(im, "it has %lld sizes for %d dimensions", (long long)array_count(list), count) : false;
    if (strcmp(onnx_text(im, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0)
        return ONNX_UNSUPPORTED(im, "its keep_aspect_ratio_policy");
    memcpy(opts->dims, shape->dim, sizeof opts->dims);
    for (int d = 0; d < shape->rank; d++)
        opts->scale[d] = by_scale ? 1 : 0;
    for (int i = 0; i < count; i++) {
        const int axis = onnx_axis(im, axes[i], shape->rank);
        if (axis < 0)
            return false;
        opts->scale[axis] = by_scale ? array_real(list, i) : 0;
        opts->dims[axis] = by_scale ? integer_of(floor((double)shape->dim[axis] * opts->scale[axis])) : array_integer(list, i);
        if (opts->dims[axis] < 1 || (by_scale && !(opts->scale[axis] > 0)))
            return ONNX_UNSUPPORTED(im, "the result has no elements; weir has no empty tensors");
        if (by_scale && opts->coordinates == WEIR_COORDINATES_ALIGN_CORNERS &&
            (double)opts->dims[axis] != (double)shape->dim[axis] * opts->scale[axis])
            return ONNX_UNSUPPORTED(im, "align_corners with a scale of %g: %lld elements do not become a whole number", opts->scale[axis],
                                    (long long)shape->dim[axis]);
    }
    return true;
}

bool onnx_op_resize(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    weir_resize_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_out_name(im, 0)};
    if (!x)
        return false;
    const weir_shape shape = weir_tensor_type(x).shape;
    return take_modes(im, &opts) && take_sizes(im, &shape, &opts) && onnx_set_alike(im, weir_resize_at(x, &opts));
}
