/* gather.c: slices of a tensor, picked by ids. See index.h.
 *
 * gather and gather_nd differ in what an id is made of. Ids become numbers of rows first, in the workspace; the rest is one code. The
 * gradient has a block of columns of all rows as double in its workspace, adds the slices of dy to it in the order of the ids, and
 * rounds once.
 */
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/index/ids.h"
#include "kernels/shape/axis.h"

#include "graph/base/base.h"

#include <string.h>
#include <weir/ops.h>

enum { BLOCK = 64 }; /* columns whose sums are in the workspace together */

static const weir_field axis_fields[] = {WEIR_FIELD_INT(index_attrs, axis)};
static const weir_field batch_fields[] = {{"batch_dims", offsetof(index_attrs, axis), 1, false}};
static const weir_field axis_grad_fields[] = {
    WEIR_FIELD_INT(index_grad_attrs, axis),
    WEIR_FIELD_INT(index_grad_attrs, dim),
    WEIR_FIELD_INT(index_grad_attrs, rank),
};
static const weir_field batch_grad_fields[] = {
    {"batch_dims", offsetof(index_grad_attrs, axis), 1, false},
    WEIR_FIELD_INT(index_grad_attrs, dim),
    WEIR_FIELD_INT(index_grad_attrs, rank),
};

/* ---- shapes ---- */

/* The shape of x in the attributes of a gradient. */
static bool shape_of_x(const index_grad_attrs *attrs, weir_shape *x, char *error, size_t error_bytes)
{
    *x = (weir_shape){0};
    if (attrs->rank < 1 || attrs->rank > WEIR_DIMS_MAX)
        return REFUSE("a tensor of %lld dimensions: it must have 1 to %d", (long long)attrs->rank, WEIR_DIMS_MAX);
    x->rank = (int)attrs->rank;
    for (int d = 0; d < x->rank; d++) {
        if (attrs->dim[d] < 1)
            return REFUSE("dimension %d is %lld", d, (long long)attrs->dim[d]);
        x->dim[d] = attrs->dim[d];
    }
    return true;
}

/* Puts dimensions [first, end) of `from` behind those of `to`. */
static bool dims_add(weir_shape *to, const weir_shape *from, int first, int end, char *error, size_t error_bytes)
{
    if (to->rank + end - first > WEIR_DIMS_MAX)
        return REFUSE("the result would have more than %d dimensions", WEIR_DIMS_MAX);
    for (int d = first; d < end; d++)
        to->dim[to->rank++] = from->dim[d];
    return true;
}

/* The shape of what is picked from x. */
static bool gathered(const weir_shape *x, const weir_type *ids, int64_t axis, weir_shape *out, char *error, size_t error_bytes)
{
    *out = (weir_shape){0};
    if (!ids_are_right(ids, error, error_bytes) || !axis_is_right(axis, x->rank, error, error_bytes))
        return false;
    const int at = axis_of(axis, x->rank);
    return dims_add(out, x, 0, at, error, error_bytes) && dims_add(out, &ids->shape, 0, ids->shape.rank, error, error_bytes) &&
           dims_add(out, x, at + 1, x->rank, error, error_bytes);
}

static bool gathered_nd(const weir_shape *x, const weir_type *ids, int64_t batch, weir_shape *out, char *error, size_t error_bytes)
{
    char text[RULES_SHAPE_TEXT], other[RULES_SHAPE_TEXT];
    const weir_shape *id = &ids->shape;
    *out = (weir_shape){0};
    if (!ids_are_right(ids, error, error_bytes))
        return false;
    if (batch < 0 || batch >= id->rank || batch >= x->rank)
        return REFUSE("%lld batch dimensions: x has %d dimensions and the ids have %d, of which the last is no batch",
                      (long long)batch, x->rank, id->rank);
    const int64_t parts = id->dim[id->rank - 1];
    if (parts < 1 || parts > x->rank - batch)
        return REFUSE("the last dimension of the ids is %lld: it must be 1 to %lld, the dimensions of x behind the batch",
                      (long long)parts, (long long)x->rank - batch);
    for (int d = 0; d < batch; d++)
        if (x->dim[d] != id->dim[d])
            return REFUSE("shapes %s and %s differ in batch dimension %d", shape_text(x, text, sizeof text),
                          shape_text(id, other, sizeof other), d);
    return dims_add(out, id, 0, id->rank - 1, error, error_bytes) &&
           dims_add(out, x, (int)(batch + parts), x->rank, error, error_bytes);
}

static bool gather_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    args->out[0].dtype = args->in[0].dtype;
    return gathered(&args->in[0].shape, &args->in[1], ((const index_attrs *)args->attrs)->axis, &args->out[0].shape, error,
                    error_bytes);
}

static bool gather_nd_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    args->out[0].dtype = args->in[0].dtype;
    return gathered_nd(&args->in[0].shape, &args->in[1], ((const index_attrs *)args->attrs)->axis, &args->out[0].shape, error,
                       error_bytes);
}

/* Whether dy has what is picked from an x of this shape. */
static bool dy_fits(const weir_op_args *args, bool nd, const weir_shape *x, char *error, size_t error_bytes)
{
    char text[RULES_SHAPE_TEXT], other[RULES_SHAPE_TEXT];
    const weir_type *dy = &args->in[1];
    const int64_t axis = ((const index_grad_attrs *)args->attrs)->axis;
    weir_shape want;
    if (!(nd ? gathered_nd : gathered)(x, &args->in[0], axis, &want, error, error_bytes))
        return false;
    return (weir_dtype_real(dy->dtype) && weir_shape_equal(&dy->shape, &want)) ||
           REFUSE("dy is %s %s, not real numbers of shape %s", weir_dtype_name(dy->dtype),
                  shape_text(&dy->shape, text, sizeof text), shape_text(&want, other, sizeof other));
}

static bool grad_infer(weir_op_args *args, bool nd, char *error, size_t error_bytes)
{
    args->out[0].dtype = WEIR_F32;
    return shape_of_x(args->attrs, &args->out[0].shape, error, error_bytes) &&
           dy_fits(args, nd, &args->out[0].shape, error, error_bytes);
}

static bool gather_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return grad_infer(args, false, error, error_bytes);
}

static bool gather_nd_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return grad_infer(args, true, error, error_bytes);
}

/* The output is a shard: along the axis of gather it may be some of the rows. */
static bool grad_fits(const weir_op_args *local, bool nd, char *error, size_t error_bytes)
{
    const index_grad_attrs *attrs = local->attrs;
    const weir_type *dx = &local->out[0];
    weir_shape whole;
    if (!shape_of_x(attrs, &whole, error, error_bytes))
        return false;
    if (dx->dtype != WEIR_F32 || dx->shape.rank != whole.rank)
        return REFUSE("the output is not f32 of %d dimensions", whole.rank);
    return dy_fits(local, nd, &dx->shape, error, error_bytes);
}

static bool gather_grad_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return grad_fits(local, false, error, error_bytes);
}

static bool gather_nd_grad_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return grad_fits(local, true, error, error_bytes);
}

/* ---- signatures ----
 *
 * The same of an op and of its gradient: x and ids give y, or ids and dy give dx. */

typedef struct sbp_list {
    weir_signature_list *list;
    bool grad, real;
} sbp_list;

static void signature(const sbp_list *to, weir_sbp x, weir_sbp ids, weir_sbp y)
{
    weir_signature *s = weir_signature_new(to->list);
    s->in[to->grad ? 1 : 0] = to->grad ? y : x;
    s->in[to->grad ? 0 : 1] = ids;
    s->out[0] = to->grad ? x : y;
}

static void sign_gather(const sbp_list *to, const weir_shape *x, const weir_shape *ids, int axis)
{
    for (int d = 0; d < x->rank; d++)
        if (d != axis)
            signature(to, WEIR_S(d), WEIR_B, WEIR_S(d < axis ? d : d - 1 + ids->rank));
    for (int d = 0; d < ids->rank; d++)
        signature(to, to->grad ? WEIR_P : WEIR_B, WEIR_S(d), WEIR_S(axis + d));
    if (to->real) {
        signature(to, WEIR_S(axis), WEIR_B, to->grad ? WEIR_B : WEIR_P);
        signature(to, WEIR_P, WEIR_B, WEIR_P);
    }
}

static void sign_gather_nd(const sbp_list *to, const weir_shape *x, const weir_shape *ids, int batch)
{
    const int parts = (int)ids->dim[ids->rank - 1];
    for (int d = 0; d < batch; d++)
        signature(to, WEIR_S(d), WEIR_S(d), WEIR_S(d));
    for (int d = batch; d + 1 < ids->rank; d++)
        signature(to, to->grad ? WEIR_P : WEIR_B, WEIR_S(d), WEIR_S(d));
    for (int d = batch + parts; d < x->rank; d++)
        signature(to, WEIR_S(d), WEIR_B, WEIR_S(d - batch - parts + ids->rank - 1));
    if (to->real)
        signature(to, WEIR_P, WEIR_B, WEIR_P);
}

static void gather_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *x = &args->in[0].shape;
    const sbp_list to = {list, false, weir_dtype_real(args->in[0].dtype)};
    sign_gather(&to, x, &args->in[1].shape, axis_of(((const index_attrs *)args->attrs)->axis, x->rank));
}

static void gather_nd_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const sbp_list to = {list, false, weir_dtype_real(args->in[0].dtype)};
    sign_gather_nd(&to, &args->in[0].shape, &args->in[1].shape, (int)((const index_attrs *)args->attrs)->axis);
}

static void gather_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *dx = &args->out[0].shape;
    sign_gather(&(sbp_list){list, true, true}, dx, &args->in[0].shape,
                axis_of(((const index_grad_attrs *)args->attrs)->axis, dx->rank));
}

static void gather_nd_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_gather_nd(&(sbp_list){list, true, true}, &args->out[0].shape, &args->in[0].shape,
                   (int)((const index_grad_attrs *)args->attrs)->axis);
}

/* ---- cost and workspace ---- */

static void gather_cost(const weir_op_args *args, weir_cost *cost)
{
    *cost = (weir_cost){.bytes = 2.0 * (double)type_bytes(&args->out[0]) + (double)type_bytes(&args->in[1])};
}

static void grad_cost(const weir_op_args *args, weir_cost *cost)
{
    *cost = (weir_cost){.flops = (double)weir_shape_count(&args->in[1].shape),
                        .bytes = 3.0 * (double)type_bytes(&args->in[1]) + (double)type_bytes(&args->out[0])};
}

/* A row for each id. For shapes that no memory can hold it is more than any memory, too. */
static size_t rows_bytes(const weir_shape *ids)
{
    const int64_t most = INT64_C(1) << 48, count = weir_shape_count(ids);
    return (size_t)(count < most ? count : most) * sizeof(int64_t);
}

static size_t gather_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? 0 : rows_bytes(&args->in[1].shape);
}

/* The rows of dx that ids tell apart, and what is inside them. */
static void rows_of(const weir_op_args *args, int64_t *rows, int64_t *inner)
{
    const weir_shape *dx = &args->out[0].shape, *ids = &args->in[0].shape;
    const bool nd = args->op == &op_gather_nd_grad;
    const int64_t given = ((const index_grad_attrs *)args->attrs)->axis;
    const int axis = nd ? (int)given : axis_of(given, dx->rank), end = axis + (nd ? (int)ids->dim[ids->rank - 1] : 1);
    *rows = shape_size(dx, axis, end);
    *inner = shape_size(dx, end, dx->rank);
}

/* And behind them the sums of a block of columns. On a GPU sums are in shared memory. */
static size_t grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t most = INT64_C(1) << 40;
    int64_t rows, inner;
    rows_of(args, &rows, &inner);
    const size_t sums = (size_t)(rows < most ? rows : most) * (size_t)(inner < BLOCK ? inner : BLOCK) * sizeof(double);
    return rows_bytes(&args->in[0].shape) + (kind == WEIR_CUDA ? 0 : sums);
}

/* ---- kernels ---- */

static index_sizes sizes_of(const weir_kernel_args *args, bool grad, bool nd)
{
    const weir_view *x = grad ? &args->out[0] : &args->in[0], *ids = &args->in[grad ? 0 : 1];
    const int64_t given = *(const int64_t *)args->attrs; /* both structures begin with the axis */
    const int axis = nd ? (int)given : axis_of(given, x->shape.rank);
    if (nd)
        return gather_nd_sizes(x, ids, axis);
    return gather_sizes(x, ids, axis, grad ? ((const index_grad_attrs *)args->attrs)->dim[axis] : x->global.dim[axis]);
}

static weir_status refused_at(const weir_kernel_args *args, const index_sizes *z, const weir_view *ids, int64_t at, int32_t id)
{
    return id_refused(args, ids, at, id, z->size[at % z->parts]);
}

static weir_status gather_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    const index_sizes z = sizes_of(args, false, false);
    return refused_at(args, &z, &args->in[1], at, id);
}

static weir_status gather_nd_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    const index_sizes z = sizes_of(args, false, true);
    return refused_at(args, &z, &args->in[1], at, id);
}

static weir_status gather_grad_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    const index_sizes z = sizes_of(args, true, false);
    return refused_at(args, &z, &args->in[0], at, id);
}

static weir_status gather_nd_grad_refused(const weir_kernel_args *args, int64_t at, int32_t id)
{
    const index_sizes z = sizes_of(args, true, true);
    return refused_at(args, &z, &args->in[0], at, id);
}

/* The row here of each slice that is picked; -1: another device has it. */
static weir_status rows_find(const weir_kernel_args *args, const index_sizes *z, const weir_view *ids, int64_t *rows)
{
    const int64_t count = z->parts ? view_count(ids) / z->parts : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = 0;
        for (int p = 0; p < z->parts; p++) {
            int64_t id = id_at(ids, i * z->parts + p);
            if (!place_of(&id, z->size[p]))
                return refused_at(args, z, ids, i * z->parts + p, id_said(id));
            row = row * z->size[p] + id;
        }
        row -= z->first;
        rows[i] = row >= 0 && row < z->rows ? row : -1;
    }
    return WEIR_OK;
}

static weir_status gather_run(const weir_kernel_args *args, bool nd)
{
    const index_sizes z = sizes_of(args, false, nd);
    const weir_view *x = &args->in[0], *y = &args->out[0];
    const size_t bytes = (size_t)z.inside * weir_dtype_bytes(x->dtype);
    int64_t *rows = args->workspace;
    const weir_status status = rows_find(args, &z, &args->in[1], rows);
    char *to = y->data;
    for (int64_t o = 0; o < z.outside && !status; o++)
        for (int64_t i = 0; i < z.count; i++, to += bytes) {
            const int64_t row = rows[o * z.id_step + i];
            if (row >= 0)
                memcpy(to, (const char *)x->data + (size_t)(o * z.rows + row) * bytes, bytes);
            else
                memset(to, 0, bytes);
        }
    return status;
}

static weir_status gather_cpu(const weir_kernel_args *args)
{
    return gather_run(args, false);
}

static weir_status gather_nd_cpu(const weir_kernel_args *args)
{
    return gather_run(args, true);
}

/* Columns [column, column + width) of all rows of one outside. */
static void grad_block(const weir_kernel_args *args, const index_sizes *z, int64_t o, int64_t column, int64_t width)
{
    const int64_t *rows = (const int64_t *)args->workspace + o * z->id_step;
    double *sums = (double *)((int64_t *)args->workspace + view_count(&args->in[0]));
    float *dx = view_f32(&args->out[0]) + o * z->rows * z->inside + column, block[BLOCK];
    for (int64_t r = 0; r < z->rows; r++)
        for (int64_t c = 0; c < width; c++)
            sums[r * width + c] = args->accumulate ? (double)dx[r * z->inside + c] : 0;
    for (int64_t i = 0; i < z->count; i++) {
        if (rows[i] < 0)
            continue;
        const float *dy = real_in(&args->in[1], (o * z->count + i) * z->inside + column, width, block);
        for (int64_t c = 0; c < width; c++)
            sums[rows[i] * width + c] += (double)dy[c];
    }
    for (int64_t r = 0; r < z->rows; r++)
        for (int64_t c = 0; c < width; c++)
            dx[r * z->inside + c] = (float)sums[r * width + c];
}

static weir_status grad_run(const weir_kernel_args *args, bool nd)
{
    const index_sizes z = sizes_of(args, true, nd);
    const weir_status status = rows_find(args, &z, &args->in[0], args->workspace);
    for (int64_t o = 0; o < z.outside && !status; o++)
        for (int64_t column = 0; column < z.inside; column += BLOCK)
            grad_block(args, &z, o, column, z.inside - column < BLOCK ? z.inside - column : BLOCK);
    return status;
}

static weir_status gather_grad_cpu(const weir_kernel_args *args)
{
    return grad_run(args, false);
}

static weir_status gather_nd_grad_cpu(const weir_kernel_args *args)
{
    return grad_run(args, true);
}

/* ---- definitions ---- */

static void backward(weir_grad_args *args, const weir_op *op)
{
    const weir_shape x = weir_tensor_type(args->in[0]).shape;
    index_grad_attrs attrs = {.axis = ((const index_attrs *)args->attrs)->axis, .rank = x.rank};
    weir_tensor *in[2] = {args->in[1], args->dout[0]};
    memcpy(attrs.dim, x.dim, sizeof *attrs.dim * (size_t)x.rank);
    if (args->needed[0])
        args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, op, NULL, in, 2, &attrs}, NULL);
}

static void gather_backward(weir_grad_args *args)
{
    backward(args, &op_gather_grad);
}

static void gather_nd_backward(weir_grad_args *args)
{
    backward(args, &op_gather_nd_grad);
}

#define GATHER(opname, named)                           \
    const weir_op op_##opname = {                       \
        .name = #opname,                                \
        .fields = named,                                \
        .field_count = 1,                               \
        .attrs_bytes = sizeof(index_attrs),             \
        .in_min = 2,                                    \
        .in_max = 2,                                    \
        .out_count = 1,                                 \
        .infer = opname##_infer,                        \
        .signatures = opname##_signatures,              \
        .grad = opname##_backward,                      \
        .cost = gather_cost,                            \
        .workspace = gather_workspace,                  \
        .kernel = {[WEIR_CPU] = opname##_cpu},          \
        .refused = opname##_refused,                    \
        .half = WEIR_HALF_FOLLOW,                       \
    };
GATHER(gather, axis_fields)
GATHER(gather_nd, batch_fields)

#define GATHER_GRAD(opname, named)                      \
    const weir_op op_##opname = {                       \
        .name = #opname,                                \
        .fields = named,                                \
        .field_count = 3,                               \
        .attrs_bytes = sizeof(index_grad_attrs),        \
        .in_min = 2,                                    \
        .in_max = 2,                                    \
        .out_count = 1,                                 \
        .infer = opname##_infer,                        \
        .fits = opname##_fits,                          \
        .signatures = opname##_signatures,              \
        .cost = grad_cost,                              \
        .workspace = grad_workspace,                    \
        .kernel = {[WEIR_CPU] = opname##_cpu},          \
        .refused = opname##_refused,                    \
        .accumulates = true,                            \
        .half = WEIR_HALF_FOLLOW,                       \
    };
GATHER_GRAD(gather_grad, axis_grad_fields)
GATHER_GRAD(gather_nd_grad, batch_grad_fields)

/* ---- the DSL ---- */

weir_tensor *weir_gather_at(weir_tensor *x, weir_tensor *ids, int axis, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "gather", given, &opts, sizeof opts);
    weir_tensor *in[2] = {x, ids};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_gather, NULL, in, 2, &(index_attrs){axis}}, NULL);
}

weir_tensor *weir_gather_nd_at(weir_tensor *x, weir_tensor *ids, int batch_dims, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "gather_nd", given, &opts, sizeof opts);
    weir_tensor *in[2] = {x, ids};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_gather_nd, NULL, in, 2, &(index_attrs){batch_dims}}, NULL);
}
