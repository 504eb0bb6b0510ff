/* shape.c: reshape and broadcast_to, and shapes as attributes.
 *
 * A reshape keeps the order of the elements, so a split dimension of the input can only become a split dimension of the
 * output when as many elements lie outside of it in both (the products of the dimensions before them agree). When the
 * two also have the same size, any split of one is the same split of the other. Otherwise ([6, 4] to [2, 3, 4]) both
 * must come apart evenly: the number of devices has to divide the greatest common divisor of the two, which is the
 * signature's `granules`.
 */
#include "kernels/shape/shape.h"

#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/reduce/reduce.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include "graph/base/base.h"
#include "kernels/common/opts.h"

#include <string.h>
#include <weir/ops.h>

/* ---- shapes as attributes ---- */

const weir_field shape_fields[2] = {
    WEIR_FIELD_INT(shape_attrs, dim),
    WEIR_FIELD_INT(shape_attrs, rank),
};

shape_attrs shape_attrs_of(const weir_shape *shape)
{
    shape_attrs attrs = {.rank = shape->rank};
    for (int d = 0; d < shape->rank; d++)
        attrs.dim[d] = shape->dim[d];
    return attrs;
}

bool shape_of_attrs(const shape_attrs *attrs, weir_shape *shape, char *error, size_t error_bytes)
{
    *shape = (weir_shape){0};
    if (attrs->rank < 0 || attrs->rank > WEIR_DIMS_MAX)
        return REFUSE("a shape has 0 to %d dimensions, not %lld", WEIR_DIMS_MAX, (long long)attrs->rank);
    shape->rank = (int)attrs->rank;
    for (int d = 0; d < shape->rank; d++) {
        if (attrs->dim[d] < 1)
            return REFUSE("dimension %d is %lld", d, (long long)attrs->dim[d]);
        shape->dim[d] = attrs->dim[d];
    }
    return true;
}

/* ---- reshape ---- */

/* Replaces the one -1 of `attrs` by what is left of `count` elements. */
static bool fill_in(const shape_attrs *attrs, int64_t count, shape_attrs *filled, char *error, size_t error_bytes)
{
    int64_t rest = count;
    int unknown = -1;
    *filled = *attrs;
    for (int d = 0; d < attrs->rank && d < WEIR_DIMS_MAX; d++) {
        if (attrs->dim[d] == -1 && unknown >= 0)
            return REFUSE("dimensions %d and %d are both -1", unknown, d);
        if (attrs->dim[d] == -1)
            unknown = d;
        else
            rest = attrs->dim[d] > 0 && rest % attrs->dim[d] == 0 ? rest / attrs->dim[d] : 0;
    }
    if (unknown >= 0 && !rest)
        return REFUSE("%lld elements leave no whole number for the -1", (long long)count);
    if (unknown >= 0)
        filled->dim[unknown] = rest;
    return true;
}

/* Whether the shape holds exactly `count` elements; no product overflows on the way. */
static bool holds(const weir_shape *shape, int64_t count)
{
    for (int d = 0; d < shape->rank; d++) {
        if (count % shape->dim[d])
            return false;
        count /= shape->dim[d];
    }
    return count == 1;
}

static bool reshape_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    char from[RULES_SHAPE_TEXT], to[RULES_SHAPE_TEXT];
    int64_t count = weir_shape_count(&args->in[0].shape);
    shape_attrs filled;
    weir_shape target;
    if (!fill_in(args->attrs, count, &filled, error, error_bytes) ||
        !shape_of_attrs(&filled, &target, error, error_bytes))
        return false;
    if (!holds(&target, count))
        return REFUSE("shapes %s and %s have different numbers of elements",
                      shape_text(&args->in[0].shape, from, sizeof from), shape_text(&target, to, sizeof to));
    args->out[0] = (weir_type){args->in[0].dtype, target};
    return true;
}

/* A shard is reshaped into a shard, whatever the whole is. */
static bool reshape_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    int64_t in = weir_shape_count(&local->in[0].shape), out = weir_shape_count(&local->out[0].shape);
    if (local->in[0].dtype != local->out[0].dtype || in != out)
        return REFUSE("%lld elements of %s become %lld of %s", (long long)in, weir_dtype_name(local->in[0].dtype),
                      (long long)out, weir_dtype_name(local->out[0].dtype));
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The dimension of `out`, larger than 1, outside of which `outside` elements lie; -1 when there is none. */
static int dim_after(const weir_shape *out, int64_t outside)
{
    int64_t product = 1;
    for (int d = 0; d < out->rank; d++) {
        if (product == outside && out->dim[d] > 1)
            return d;
        product *= out->dim[d];
    }
    return -1;
}

static void reshape_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *in = &args->in[0].shape, *out = &args->out[0].shape;
    int64_t outside = 1;
    for (int d = 0; d < in->rank; outside *= in->dim[d++]) {
        int to = dim_after(out, outside);
        if (in->dim[d] == 1 || to < 0)
            continue;
        int64_t units = common_divisor(in->dim[d], out->dim[to]);
        if (units == 1)
            continue;
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        s->out[0] = WEIR_S(to);
        s->granules = in->dim[d] == out->dim[to] ? 0 : units;
    }
    if (weir_dtype_real(args->in[0].dtype))
        sign_linear(args, list);
}

static weir_status reshape_kernel(const weir_kernel_args *args)
{
    const weir_view *in = &args->in[0], *out = &args->out[0];
    if (in->data != out->data)
        memcpy(out->data, in->data, (size_t)view_count(out) * weir_dtype_bytes(out->dtype));
    return WEIR_OK;
}

static void reshape_backward(weir_grad_args *args)
{
    weir_type type = weir_tensor_type(args->in[0]);
    args->din[0] = shape_reshape(args->dout[0], &type.shape, args->src);
}

const weir_op op_reshape = {
    .name = "reshape",
    .fields = shape_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(shape_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = reshape_infer,
    .fits = reshape_fits,
    .signatures = reshape_signatures,
    .grad = reshape_backward,
    .kernel = {[WEIR_CPU] = reshape_kernel},
    .inplace = 1,
    .half = WEIR_HALF_FOLLOW,
};

/* An op whose attributes are the dimensions that the options have. */
static weir_tensor *to_dims(const weir_op *op, const char *name, weir_tensor *x, const weir_dims_opts *given)
{
    weir_dims_opts opts;
    x = op_opts(x, name, given, &opts, sizeof opts);
    shape_attrs attrs = {0};
    while (attrs.rank < WEIR_DIMS_MAX && opts.dims[attrs.rank]) {
        attrs.dim[attrs.rank] = opts.dims[attrs.rank];
        attrs.rank++;
    }
    for (int d = (int)attrs.rank; x && d < WEIR_DIMS_MAX; d++)
        if (opts.dims[d])
            return weir_mistake(x, opts.src,
                                "%s: dimension %d is 0, and %lld follows it; a dimension is at least 1", name,
                                (int)attrs.rank, (long long)opts.dims[d]);
    return weir_op_apply(&(weir_apply){opts.src, opts.name, op, NULL, &x, 1, &attrs}, NULL);
}

weir_tensor *weir_reshape_at(weir_tensor *x, const weir_dims_opts *given)
{
    return to_dims(&op_reshape, "reshape", x, given);
}

/* Applies an op whose attributes are the shape of its output. */
static weir_tensor *to_shape(const weir_op *op, weir_tensor *x, const weir_shape *shape, weir_src src)
{
    weir_type type = weir_tensor_type(x);
    if (!x || weir_tensor_poisoned(x) || weir_shape_equal(&type.shape, shape))
        return x;
    shape_attrs attrs = shape_attrs_of(shape);
    return weir_op_apply(&(weir_apply){src, NULL, op, NULL, &x, 1, &attrs}, NULL);
}

weir_tensor *shape_same(weir_tensor *x, const char *name, weir_src src)
{
    const weir_type type = weir_tensor_type(x);
    const shape_attrs attrs = shape_attrs_of(&type.shape);
    return weir_op_apply(&(weir_apply){src, name, &op_reshape, NULL, &x, 1, &attrs}, NULL);
}

weir_tensor *shape_reshape(weir_tensor *x, const weir_shape *shape, weir_src src)
{
    return to_shape(&op_reshape, x, shape, src);
}

/* ---- broadcast_to ---- */

bool shape_repeats(const weir_type *small, const weir_type *large, char *error, size_t error_bytes)
{
    char from[RULES_SHAPE_TEXT], to[RULES_SHAPE_TEXT];
    weir_shape both;
    if (!broadcast_shapes(&small->shape, &large->shape, &both) || !weir_shape_equal(&both, &large->shape))
        return REFUSE("shape %s does not broadcast to %s", shape_text(&small->shape, from, sizeof from),
                      shape_text(&large->shape, to, sizeof to));
    return true;
}

static bool broadcast_to_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    args->out[0].dtype = args->in[0].dtype;
    return shape_of_attrs(args->attrs, &args->out[0].shape, error, error_bytes) &&
           shape_repeats(&args->in[0], &args->out[0], error, error_bytes);
}

/* The target is the output's shard. */
static bool broadcast_to_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    if (local->in[0].dtype != local->out[0].dtype)
        return REFUSE("%s becomes %s", weir_dtype_name(local->in[0].dtype), weir_dtype_name(local->out[0].dtype));
    return shape_repeats(&local->in[0], &local->out[0], error, error_bytes);
}

static void broadcast_to_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *in = &args->in[0].shape, *out = &args->out[0].shape;
    for (int d = 0; d < out->rank; d++) {
        int own = d - (out->rank - in->rank);
        if (out->dim[d] == 1)
            continue;
        weir_signature *s = weir_signature_new(list);
        s->in[0] = own >= 0 && in->dim[own] != 1 ? WEIR_S(own) : WEIR_B;
        s->out[0] = WEIR_S(d);
    }
    if (weir_dtype_real(args->in[0].dtype))
        sign_linear(args, list);
}

#define REPEAT(bits)                                                                   \
    static void repeat_##bits(uint##bits##_t *y, const uint##bits##_t *x, int64_t count) \
    {                                                                                  \
        for (int64_t i = 0; i < count; i++)                                            \
            y[i] = *x;                                                                 \
    }
REPEAT(8)
REPEAT(16)
REPEAT(32)
REPEAT(64)

/* The element at `from` again and again. */
static void repeat(void *to, const void *from, size_t bytes, int64_t count)
{
    if (bytes == 1)
        repeat_8(to, from, count);
    else if (bytes == 2)
        repeat_16(to, from, count);
    else if (bytes == 4)
        repeat_32(to, from, count);
    else
        repeat_64(to, from, count);
}

static weir_status broadcast_to_kernel(const weir_kernel_args *args)
{
    const size_t bytes = weir_dtype_bytes(args->out[0].dtype);
    const char *x = args->in[0].data;
    char *y = args->out[0].data;
    nest n = nest_over(&args->out[0].shape);
    nest_broadcast(&n, &args->in[0].shape);
    nest_collapse(&n);
    int64_t rows = nest_rows(&n), inner = nest_inner(&n);
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows && inner; r++, nest_step(&n, &pos)) {
        const char *from = x + (size_t)pos.at[0] * bytes;
        char *to = y + (size_t)(r * inner) * bytes;
        if (n.stride[0][n.rank - 1])
            memcpy(to, from, (size_t)inner * bytes);
        else
            repeat(to, from, bytes, inner);
    }
    return WEIR_OK;
}

static void broadcast_to_backward(weir_grad_args *args)
{
    weir_type type = weir_tensor_type(args->in[0]);
    args->din[0] = reduce_sum_to(args->dout[0], &type.shape, args->src);
}

const weir_op op_broadcast_to = {
    .name = "broadcast_to",
    .fields = shape_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(shape_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = broadcast_to_infer,
    .fits = broadcast_to_fits,
    .signatures = broadcast_to_signatures,
    .grad = broadcast_to_backward,
    .kernel = {[WEIR_CPU] = broadcast_to_kernel},
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_expand_at(weir_tensor *x, const weir_dims_opts *given)
{
    return to_dims(&op_broadcast_to, "expand", x, given);
}

weir_tensor *shape_broadcast_to(weir_tensor *x, const weir_shape *shape, weir_src src)
{
    return to_shape(&op_broadcast_to, x, shape, src);
}
