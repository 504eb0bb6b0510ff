/* kernels/shape/border.c: weir_pad(), put together from other ops: one dimension after the other, each with what comes before and behind.
 *
 *     zeros       pad, which copies x once
 *     a constant  concat of constants and x
 *     edge        concat of the element at the end, repeated, and x
 *     reflect     concat of slices that go backwards, and x
 *
 * So each mode has its gradient, and is as exact as these are.
 */
#include "kernels/common/opts.h"
#include "kernels/common/param.h"
#include "kernels/common/ops.h"
#include "kernels/shape/axis.h"
#include "kernels/shape/shape.h"

#include <string.h>
#include <weir/ops.h>

/* The `count` elements in front of dimension `axis` of x, or behind it. */
static weir_tensor *border_of(weir_tensor *x, int axis, int64_t count, bool behind, const weir_pad_opts *opts)
{
    const weir_type type = weir_tensor_type(x);
    const int64_t size = type.shape.dim[axis], end = behind ? size - 1 : 0;
    weir_shape shape = type.shape;
    shape.dim[axis] = count;
    if (opts->mode == WEIR_PAD_REFLECT)
        return weir_slice_at(x, axis, behind ? size - 2 : count, count, WEIR_OPTS_AT(opts->src, weir_slice_opts, .step = -1));
    if (opts->mode == WEIR_PAD_EDGE)
        return shape_broadcast_to(weir_slice_at(x, axis, end, 1, WEIR_OPTS_AT(opts->src, weir_slice_opts)), &shape, opts->src);
    weir_constant_opts constant = {.size = sizeof constant, .src = opts->src, .value = opts->value};
    weir_tensor *filled = NULL;
    memcpy(constant.dims, shape.dim, sizeof *shape.dim * (size_t)shape.rank);
    WEIR_ON(weir_mesh_for(x))
        filled = weir_constant_at(weir_tensor_graph(x), type.dtype, &constant);
    return filled;
}

static weir_tensor *pad_axis(weir_tensor *x, int axis, const weir_pad_opts *opts, const char *name)
{
    weir_concat_opts parts = {.size = sizeof parts, .src = opts->src, .name = name};
    const int64_t before = opts->before[axis], after = opts->after[axis];
    int count = 0;
    if (opts->mode == WEIR_PAD_CONSTANT && opts->value == 0) {
        const range_attrs attrs = {axis, {before, after}};
        return weir_op_apply(&(weir_apply){opts->src, name, &op_pad, NULL, &x, 1, &attrs}, NULL);
    }
    if (before)
        parts.x[count++] = border_of(x, axis, before, false, opts);
    parts.x[count++] = x;
    if (after)
        parts.x[count++] = border_of(x, axis, after, true, opts);
    return weir_concat_at(axis, &parts);
}

/* Returns why a dimension cannot have this border; NULL: it can. */
static const char *border_wrong(int64_t size, int64_t before, int64_t after, int mode)
{
    if (before < 0 || after < 0)
        return "must not be below 0; weir_slice() takes elements away";
    if (mode == WEIR_PAD_REFLECT && (before >= size || after >= size))
        return "must be fewer than the dimension has, to be reflected";
    return NULL;
}

weir_tensor *weir_pad_at(weir_tensor *x, const weir_pad_opts *given)
{
    weir_pad_opts opts;
    x = op_opts(x, "pad", given, &opts, sizeof opts);
    const weir_shape shape = weir_tensor_type(x).shape;
    int last = -1;
    if (weir_tensor_poisoned(x))
        return op_of_none(&op_pad, x, opts.src);
    if (opts.mode < WEIR_PAD_CONSTANT || opts.mode > WEIR_PAD_REFLECT)
        return weir_mistake(x, opts.src, "pad: mode %d: it must be WEIR_PAD_CONSTANT, WEIR_PAD_EDGE or WEIR_PAD_REFLECT", opts.mode);
    for (int d = 0; d < WEIR_DIMS_MAX; d++) {
        const char *wrong = border_wrong(d < shape.rank ? shape.dim[d] : 1, opts.before[d], opts.after[d], opts.mode);
        if (d >= shape.rank && (opts.before[d] || opts.after[d]))
            wrong = "are given, and x has fewer dimensions";
        if (wrong)
            return weir_mistake(x, opts.src, "pad: %lld elements before and %lld behind dimension %d %s", (long long)opts.before[d],
                                (long long)opts.after[d], d, wrong);
        last = opts.before[d] || opts.after[d] ? d : last;
    }
    for (int d = 0; d <= last; d++)
        if (opts.before[d] || opts.after[d])
            x = pad_axis(x, d, &opts, d == last ? opts.name : NULL);
    return last < 0 ? shape_same(x, opts.name, opts.src) : x;
}
