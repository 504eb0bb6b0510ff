/* kernels/index/elements.c: elements at the places of ids along an axis, and the gradient. See index.h.
 *
 *     y[i, j, k] = x[i, ids[i, j, k], k]          for axis 1
 *
 * The walk goes over the ids. x has a stride of 0 along the axis, so that its place there is the id's alone. The gradient adds in
 * double, in the workspace, and rounds once.
 */
#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/index/ids.h"
#include "kernels/shape/axis.h"
#include "kernels/shape/shape.h"

#include "graph/base/base.h"

#include <string.h>
#include <weir/ops.h>

static const weir_field fields[] = {WEIR_FIELD_INT(index_attrs, axis)};
static const weir_field grad_fields[] = {
    WEIR_FIELD_INT(index_grad_attrs, axis),
    WEIR_FIELD_INT(index_grad_attrs, dim),
    WEIR_FIELD_INT(index_grad_attrs, rank),
};

/* ---- rules ---- */

/* Whether the ids tell places of an x of this shape. */
static bool places_fit(const weir_shape *x, const weir_type *ids, int64_t axis, char *error, size_t error_bytes)
{
    char text[RULES_SHAPE_TEXT], other[RULES_SHAPE_TEXT];
    bool within = ids->shape.rank == x->rank;
    if (!ids_are_right(ids, error, error_bytes) || !axis_is_right(axis, x->rank, error, error_bytes))
        return false;
    for (int d = 0; d < x->rank && within; d++)
        within = d == axis_of(axis, x->rank) || ids->shape.dim[d] <= x->dim[d];
    return within || REFUSE("ids %s are not within x %s beside the axis", shape_text(&ids->shape, text, sizeof text),
                            shape_text(x, other, sizeof other));
}

static bool gather_elements_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    args->out[0] = (weir_type){args->in[0].dtype, args->in[1].shape};
    return places_fit(&args->in[0].shape, &args->in[1], ((const index_attrs *)args->attrs)->axis, error, error_bytes);
}

static bool dy_fits(const weir_op_args *args, const weir_shape *x, char *error, size_t error_bytes)
{
    if (!weir_dtype_real(args->in[1].dtype) || !weir_shape_equal(&args->in[0].shape, &args->in[1].shape))
        return REFUSE("dy does not have a real number for each id");
    return places_fit(x, &args->in[0], ((const index_grad_attrs *)args->attrs)->axis, error, error_bytes);
}

static bool gather_elements_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const index_grad_attrs *attrs = args->attrs;
    shape_attrs shape = {.rank = attrs->rank};
    memcpy(shape.dim, attrs->dim, sizeof shape.dim);
    args->out[0].dtype = WEIR_F32;
    return shape_of_attrs(&shape, &args->out[0].shape, error, error_bytes) &&
           dy_fits(args, &args->out[0].shape, error, error_bytes);
}

/* Along the axis the output may be some of the places. */
static bool gather_elements_grad_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    const index_grad_attrs *attrs = local->attrs;
    const weir_type *dx = &local->out[0];
    if (dx->dtype != WEIR_F32 || dx->shape.rank != attrs->rank)
        return REFUSE("the output is not f32 of %lld dimensions", (long long)attrs->rank);
    return dy_fits(local, &dx->shape, error, error_bytes);
}

/* A dimension in which x has more than the ids is not split: the ids would have other parts of it. */
static void sign(weir_signature_list *list, bool grad, bool real, const weir_shape *x, const weir_shape *ids, int axis)
{
    const int from = grad ? 1 : 0, by = grad ? 0 : 1; /* y takes the place of x in a gradient */
    for (int d = 0; d < x->rank; d++) {
        if (d != axis && x->dim[d] != ids->dim[d])
            continue;
        weir_signature *s = weir_signature_new(list);
        s->in[by] = WEIR_S(d);
        s->in[from] = d == axis && !grad ? WEIR_B : WEIR_S(d);
        s->out[0] = d == axis && grad ? WEIR_P : WEIR_S(d);
    }
    if (!real)
        return;
    weir_signature *s = weir_signature_new(list);
    s->in[from] = grad ? WEIR_B : WEIR_S(axis);
    s->out[0] = grad ? WEIR_S(axis) : WEIR_P;
    sign_linear_in(&(weir_op_args){.in_count = 2}, list, from);
}

static void gather_elements_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *x = &args->in[0].shape;
    sign(list, false, weir_dtype_real(args->in[0].dtype), x, &args->in[1].shape,
         axis_of(((const index_attrs *)args->attrs)->axis, x->rank));
}

static void gather_elements_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *x = &args->out[0].shape;
    sign(list, true, true, x, &args->in[0].shape, axis_of(((const index_grad_attrs *)args->attrs)->axis, x->rank));
}

static void gather_elements_cost(const weir_op_args *args, weir_cost *cost)
{
    *cost = (weir_cost){.bytes = 2.0 * (double)type_bytes(&args->out[0]) + (double)type_bytes(&args->in[1])};
}

static void gather_elements_grad_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->in[1].shape));
}

/* A sum for each element. For shapes that no memory can hold it is more than any memory, too. */
static size_t gather_elements_grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t most = INT64_C(1) << 48, count = weir_shape_count(&args->out[0].shape);
    (void)kind;
    return (size_t)(count < most ? count : most) * sizeof(double);
}

/* ---- kernels ---- */

/* Along the axis: where x begins here, how much is here and in all, and the elements from one place to the next. */
typedef struct along {
    int64_t first, here, all, step;
} along;

static along along_x(const weir_kernel_args *args, bool grad)
{
    const weir_view *x = grad ? &args->out[0] : &args->in[0];
    const int axis = axis_of(*(const int64_t *)args->attrs, x->shape.rank); /* both structures begin with the axis */
    const int64_t all = grad ? ((const index_grad_attrs *)args->attrs)->dim[axis] : x->global.dim[axis];
    return (along){x->offset[axis], x->shape.dim[axis], all, inside(&x->shape, axis)};
}

/* The walk over the ids; operand 0 is x. */
static nest walk_over(const weir_view *x, const weir_view *ids, int64_t given)
{
    int64_t stride[WEIR_DIMS_MAX] = {0};
    nest n = nest_over(&ids->shape);
    nest_strides(&x->shape, stride);
    stride[axis_of(given, x->shape.rank)] = 0;
    nest_operand(&n, stride);
    nest_collapse(&n);
    return n;
}

static weir_status gather_elements_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    return id_refused(args, &args->in[1], at, id, along_x(args, false).all);
}

static weir_status gather_elements_grad_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    return id_refused(args, &args->in[0], at, id, along_x(args, true).all);
}

/* Where x has the element of id number `at`; -1: another device has it, and below: there is no such place. */
static int64_t place_in(const along *a, const weir_view *ids, int64_t at, int64_t from)
{
    int64_t id = id_at(ids, at);
    if (!place_of(&id, a->all))
        return -2;
    id -= a->first;
    return id >= 0 && id < a->here ? from + id * a->step : -1;
}

static weir_status gather_elements_cpu(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *ids = &args->in[1], *y = &args->out[0];
    const along a = along_x(args, false);
    const nest n = walk_over(x, ids, ((const index_attrs *)args->attrs)->axis);
    const size_t bytes = weir_dtype_bytes(x->dtype);
    nest_pos pos = {0};
    for (int64_t i = 0; i < view_count(ids); i++, nest_step_outside(&n, &pos, 0)) {
        const int64_t from = place_in(&a, ids, i, pos.at[0]);
        if (from < -1)
            return gather_elements_refused(args, i, id_said(id_at(ids, i)));
        if (from >= 0)
            memcpy((char *)y->data + (size_t)i * bytes, (const char *)x->data + (size_t)from * bytes, bytes);
        else
            memset((char *)y->data + (size_t)i * bytes, 0, bytes);
    }
    return WEIR_OK;
}

static weir_status gather_elements_grad_cpu(const weir_kernel_args *args)
{
    const weir_view *ids = &args->in[0], *dy = &args->in[1], *dx = &args->out[0];
    const along a = along_x(args, true);
    const nest n = walk_over(dx, ids, ((const index_grad_attrs *)args->attrs)->axis);
    double *sums = args->workspace;
    float block[1];
    nest_pos pos = {0};
    for (int64_t i = 0; i < view_count(dx); i++)
        sums[i] = args->accumulate ? (double)view_f32(dx)[i] : 0;
    for (int64_t i = 0; i < view_count(ids); i++, nest_step_outside(&n, &pos, 0)) {
        const int64_t to = place_in(&a, ids, i, pos.at[0]);
        if (to < -1)
            return gather_elements_grad_refused(args, i, id_said(id_at(ids, i)));
        if (to >= 0)
            sums[to] += (double)*real_in(dy, i, 1, block);
    }
    for (int64_t i = 0; i < view_count(dx); i++)
        view_f32(dx)[i] = (float)sums[i];
    return WEIR_OK;
}

/* ---- definitions ---- */

static void gather_elements_backward(weir_grad_args *args)
{
    const weir_shape x = weir_tensor_type(args->in[0]).shape;
    index_grad_attrs attrs = {.axis = ((const index_attrs *)args->attrs)->axis, .rank = x.rank};
    weir_tensor *in[2] = {args->in[1], args->dout[0]};
    memcpy(attrs.dim, x.dim, sizeof *attrs.dim * (size_t)x.rank);
    if (args->needed[0])
        args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_gather_elements_grad, NULL, in, 2, &attrs}, NULL);
}

const weir_op op_gather_elements = {
    .name = "gather_elements",
    .fields = fields,
    .field_count = 1,
    .attrs_bytes = sizeof(index_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = gather_elements_infer,
    .signatures = gather_elements_signatures,
    .grad = gather_elements_backward,
    .cost = gather_elements_cost,
    .kernel = {[WEIR_CPU] = gather_elements_cpu},
    .refused = gather_elements_refused,
    .half = WEIR_HALF_FOLLOW,
};

const weir_op op_gather_elements_grad = {
    .name = "gather_elements_grad",
    .fields = grad_fields,
    .field_count = 3,
    .attrs_bytes = sizeof(index_grad_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = gather_elements_grad_infer,
    .fits = gather_elements_grad_fits,
    .signatures = gather_elements_grad_signatures,
    .cost = gather_elements_grad_cost,
    .workspace = gather_elements_grad_workspace,
    .kernel = {[WEIR_CPU] = gather_elements_grad_cpu},
    .refused = gather_elements_grad_refused,
    .accumulates = true,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_gather_elements_at(weir_tensor *x, weir_tensor *ids, int axis, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "gather_elements", given, &opts, sizeof opts);
    weir_tensor *in[2] = {x, ids};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_gather_elements, NULL, in, 2, &(index_attrs){axis}}, NULL);
}
