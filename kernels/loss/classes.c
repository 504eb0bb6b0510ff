/* kernels/loss/classes.c: the cross-entropy where the classes are split over devices, as a tensor-parallel head has
 * them.
 *
 *     logits [..., classes], labels i32 [...] -> class_lse -> lse [..., groups], picked [...]
 *     lse, picked, labels (, count)           -> class_loss -> loss
 *
 * Nobody needs all the logits of a row. The classes are dealt out to `groups` groups of the same size; class_lse makes
 * the log sum exp of each group of a row, and picks the logit of the row's label. Both are split with the logits: a
 * device has the groups of its classes, and for rows whose label is a class of another it picks 0, a term of a sum.
 * One number is gathered for each row and group, and one for each row. class_loss puts the groups of a row together in their
 * order, so how classes are spread over devices changes no bit.
 *
 * The gradient goes the same way back: that of a row's groups is a softmax over them, and class_lse_grad makes of it
 * that of the logits, exp(x - lse of the group) dlse + onehot dpicked, in one pass that may write over them. Nothing
 * overflows: no x is larger than the lse of its group.
 *
 * The number of groups is fixed when the graph is built (devices of the mesh: cross_entropy.c), and must be a multiple
 * of the parts that the classes are split into; groups that a device holds divide what classes it holds.
 */
#include "kernels/loss/loss.h"

#include "graph/base/base.h"
#include "kernels/common/ops.h"
#include "kernels/common/rules.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

static const weir_field class_fields[] = {
    {"ignore", offsetof(class_attrs, label.ignore), 1, false},
    {"ignore_index", offsetof(class_attrs, label.ignore_index), 1, false},
    WEIR_FIELD_INT(class_attrs, groups),
};
#define CLASS_FIELDS .fields = class_fields, .field_count = 3, .attrs_bytes = sizeof(class_attrs)

/* ---- class_lse: rules ---- */

/* Whether `type` is f32 with a value for each row; or, with `groups`, for each of some groups of each row. */
static bool for_rows(const weir_type *type, const weir_shape *rows, bool groups)
{
    weir_shape shape = type->shape;
    if (type->dtype != WEIR_F32 || shape.rank != rows->rank + groups)
        return false;
    shape.rank = rows->rank;
    for (int d = shape.rank; d < WEIR_DIMS_MAX; d++)
        shape.dim[d] = 0;
    return weir_shape_equal(&shape, rows);
}

static bool class_lse_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const class_attrs *attrs = args->attrs;
    if (!logits_and_labels(args, error, error_bytes))
        return false;
    weir_shape lse = args->in[0].shape;
    int64_t *last = &lse.dim[lse.rank - 1];
    if (attrs->groups < 1 || *last % attrs->groups)
        return REFUSE("%lld classes do not divide into %lld groups", (long long)*last, (long long)attrs->groups);
    *last = attrs->groups;
    args->out[0] = (weir_type){WEIR_F32, lse};
    args->out[1] = (weir_type){WEIR_F32, args->in[1].shape};
    return true;
}

/* Groups of a shard may be any number: the kernel deals out the shard's classes to them. */
static bool class_lse_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    const weir_shape *rows = &local->in[1].shape;
    if (!logits_and_labels(local, error, error_bytes))
        return false;
    if (!for_rows(&local->out[0], rows, true) || !for_rows(&local->out[1], rows, false))
        return REFUSE("an output is not f32 with values for each row");
    return true;
}

/* Rows are split as in any op; or classes. Both leave rows and groups whole. */
static weir_signature *class_signature(weir_signature_list *list, const class_attrs *attrs)
{
    weir_signature *s = weir_signature_new(list);
    s->granules = attrs->groups;
    return s;
}

static void class_lse_signatures(const weir_op_args *args, weir_signature_list *list)
{
    int rows = args->in[1].shape.rank;
    sign_split_alike(args, list, rows);
    weir_signature *s = class_signature(list, args->attrs);
    s->in[0] = s->out[0] = WEIR_S(rows);
    s->out[1] = WEIR_P;
}

static void class_lse_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 25.0 * (double)weir_shape_count(&args->in[0].shape)); /* an exp is about twenty */
}

/* ---- class_lse: kernels ---- */

/* Where in the shard the row's class lies; -1: in another shard. */
static int64_t class_here(const weir_view *logits, int32_t label)
{
    int last = logits->shape.rank - 1;
    return class_at(logits->offset[last], logits->shape.dim[last], label);
}

static int64_t all_classes(const weir_view *logits)
{
    return shape_last(&logits->global);
}

static weir_status class_lse_refused(const weir_kernel_args *args, int64_t row, int32_t label)
{
    return label_refused(args, row, label, all_classes(&args->in[0]));
}

static weir_status class_lse_cpu(const weir_kernel_args *args)
{
    const class_attrs *attrs = args->attrs;
    const weir_view *logits = &args->in[0];
    const int64_t rows = view_count(&args->in[1]), classes = shape_last(&logits->shape);
    const int64_t groups = shape_last(&args->out[0].shape);
    for (int64_t row = 0; row < rows; row++) {
        const float *x = real_in(logits, row * classes, classes, args->workspace);
        const int32_t label = view_i32(&args->in[1])[row];
        const bool ignored = label_ignored(&attrs->label, label);
        if (!ignored && (label < 0 || label >= all_classes(logits)))
            return class_lse_refused(args, row, label);
        for (int64_t g = 0; g < groups; g++) {
            int64_t first = group_first(classes, groups, g), end = group_first(classes, groups, g + 1);
            view_f32(&args->out[0])[row * groups + g] = (float)row_lse(x + first, end - first);
        }
        int64_t at = ignored ? -1 : class_here(logits, label);
        view_f32(&args->out[1])[row] = at < 0 ? 0 : x[at];
    }
    return WEIR_OK;
}

static void class_lse_backward(weir_grad_args *args)
{
    weir_tensor *in[5] = {args->in[0], args->in[1], args->out[0], args->dout[0], args->dout[1]};
    weir_apply grad = {args->src, NULL, &op_class_lse_grad, NULL, in, 5, args->attrs};
    if (args->needed[0] && args->dout[0] && args->dout[1])
        args->din[0] = weir_op_apply(&grad, NULL);
}

const weir_op op_class_lse = {
    .name = "class_lse",
    CLASS_FIELDS,
    .in_min = 2,
    .in_max = 2,
    .out_count = 2,
    .infer = class_lse_infer,
    .fits = class_lse_fits,
    .signatures = class_lse_signatures,
    .grad = class_lse_backward,
    .cost = class_lse_cost,
    .workspace = logits_workspace,
    .kernel = {[WEIR_CPU] = class_lse_cpu},
    .refused = class_lse_refused,
    .half = WEIR_HALF_FOLLOW,
};

/* ---- class_lse_grad: logits, labels, lse, dlse, dpicked -> dlogits ---- */

static bool class_lse_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *rows = &args->in[1].shape;
    if (!logits_and_labels(args, error, error_bytes))
        return false;
    if (!for_rows(&args->in[2], rows, true) || !for_rows(&args->in[3], rows, true) ||
        !weir_shape_equal(&args->in[2].shape, &args->in[3].shape))
        return REFUSE("lse and its gradient are not f32 with values for the same groups of each row");
    if (!for_rows(&args->in[4], rows, false))
        return REFUSE("the gradient of what was picked is not f32 with one value per row");
    args->out[0] = args->in[0];
    return true;
}

static void class_lse_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    int rows = args->in[1].shape.rank;
    sign_split_alike(args, list, rows);
    weir_signature *s = class_signature(list, args->attrs);
    s->in[0] = s->in[2] = s->in[3] = s->out[0] = WEIR_S(rows);
    s = weir_signature_new(list);
    s->in[3] = s->in[4] = s->out[0] = WEIR_P;
}

/* dx may be x. */
static void group_grad(const float *x, int64_t count, float lse, float dlse, float *dx)
{
    FAST_LOOP
    for (int64_t i = 0; i < count; i++)
        dx[i] = logit_grad(x[i], lse, dlse);
}

static weir_status class_lse_grad_cpu(const weir_kernel_args *args)
{
    const class_attrs *attrs = args->attrs;
    const weir_view *logits = &args->in[0];
    const int64_t rows = view_count(&args->in[1]), classes = shape_last(&logits->shape);
    const int64_t groups = shape_last(&args->in[2].shape);
    for (int64_t row = 0; row < rows; row++) {
        const float *x = real_in(logits, row * classes, classes, args->workspace);
        const float *lse = view_f32(&args->in[2]) + row * groups, *dlse = view_f32(&args->in[3]) + row * groups;
        float *dx = real_out(&args->out[0], row * classes, args->workspace);
        const int32_t label = view_i32(&args->in[1])[row];
        if (label_ignored(&attrs->label, label) || !groups) {
            memset(dx, 0, (size_t)classes * sizeof *dx);
            real_put(&args->out[0], row * classes, classes, dx);
            continue;
        }
        for (int64_t g = 0; g < groups; g++) {
            int64_t first = group_first(classes, groups, g), end = group_first(classes, groups, g + 1);
            group_grad(x + first, end - first, lse[g], dlse[g], dx + first);
        }
        int64_t at = class_here(logits, label);
        if (at >= 0)
            dx[at] += view_f32(&args->in[4])[row];
        real_put(&args->out[0], row * classes, classes, dx);
    }
    return WEIR_OK;
}

const weir_op op_class_lse_grad = {
    .name = "class_lse_grad",
    CLASS_FIELDS,
    .in_min = 5,
    .in_max = 5,
    .out_count = 1,
    .infer = class_lse_grad_infer,
    .signatures = class_lse_grad_signatures,
    .cost = class_lse_cost,
    .workspace = logits_workspace,
    .kernel = {[WEIR_CPU] = class_lse_grad_cpu},
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 2 | 1 << 3 | 1 << 4,
    .inplace = 1,
};

/* ---- class_loss: lse, picked, labels (, count) -> loss; and its gradient ---- */

static bool groups_and_labels(const weir_op_args *args, int labels, char *error, size_t error_bytes)
{
    const weir_shape *rows = &args->in[labels].shape;
    if (args->in[labels].dtype != WEIR_I32)
        return REFUSE("labels are %s, not i32", weir_dtype_name(args->in[labels].dtype));
    if (!for_rows(&args->in[0], rows, true))
        return REFUSE("lse is not f32 with one value for each row and group");
    for (int i = labels + 1; i < args->in_count; i++)
        if (!type_is_scalar_f32(&args->in[i]))
            return REFUSE("input %d is not an f32 scalar", i);
    return true;
}

static bool class_loss_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!groups_and_labels(args, 2, error, error_bytes))
        return false;
    if (!for_rows(&args->in[1], &args->in[2].shape, false))
        return REFUSE("what was picked is not f32 with one value per row");
    args->out[0] = (weir_type){.dtype = WEIR_F32};
    return true;
}

static void class_loss_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[2].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->in[1] = s->in[2] = WEIR_S(d);
        s->out[0] = WEIR_P;
    }
}

/* On a GPU, a term of the loss for each row. */
static size_t class_loss_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? (size_t)weir_shape_count(&args->in[2].shape) * sizeof(double) : 0;
}

static weir_status class_loss_cpu(const weir_kernel_args *args)
{
    const class_attrs *attrs = args->attrs;
    const weir_view *labels = &args->in[2];
    const int64_t rows = view_count(labels), groups = shape_last(&args->in[0].shape);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++)
        if (!label_ignored(&attrs->label, view_i32(labels)[row]))
            sum += row_lse(view_f32(&args->in[0]) + row * groups, groups) - (double)view_f32(&args->in[1])[row];
    *view_f32(&args->out[0]) = (float)(sum * row_weight(labels, args->in_count > 3 ? &args->in[3] : NULL));
    return WEIR_OK;
}

static void class_loss_backward(weir_grad_args *args)
{
    weir_tensor *in[4] = {args->in[0], args->in[2], args->dout[0], args->in_count > 3 ? args->in[3] : NULL}, *out[2];
    weir_op_apply(&(weir_apply){args->src, NULL, &op_class_loss_grad, NULL, in, args->in_count, args->attrs}, out);
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            args->din[i] = out[i];
}

const weir_op op_class_loss = {
    .name = "class_loss",
    CLASS_FIELDS,
    .in_min = 3,
    .in_max = 4,
    .out_count = 1,
    .infer = class_loss_infer,
    .signatures = class_loss_signatures,
    .grad = class_loss_backward,
    .workspace = class_loss_workspace,
    .kernel = {[WEIR_CPU] = class_loss_cpu},
};

/* lse, labels, dloss (, count) -> dlse, dpicked */
static bool class_loss_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!groups_and_labels(args, 1, error, error_bytes))
        return false;
    args->out[0] = args->in[0];
    args->out[1] = (weir_type){WEIR_F32, args->in[1].shape};
    return true;
}

static void class_loss_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[1].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->in[1] = s->out[0] = s->out[1] = WEIR_S(d);
    }
    weir_signature *partial = weir_signature_new(list);
    partial->in[2] = partial->out[0] = partial->out[1] = WEIR_P;
}

static weir_status class_loss_grad_cpu(const weir_kernel_args *args)
{
    const class_attrs *attrs = args->attrs;
    const weir_view *labels = &args->in[1];
    const int64_t rows = view_count(labels), groups = shape_last(&args->in[0].shape);
    const double share = row_weight(labels, args->in_count > 3 ? &args->in[3] : NULL);
    const float weight = loss_weight(*view_f32(&args->in[2]), share);
    for (int64_t row = 0; row < rows; row++) {
        const float *lse = view_f32(&args->in[0]) + row * groups;
        float *dlse = view_f32(&args->out[0]) + row * groups;
        const bool ignored = label_ignored(&attrs->label, view_i32(labels)[row]);
        const float all = (float)row_lse(lse, groups);
        for (int64_t g = 0; g < groups; g++)
            dlse[g] = ignored ? 0 : logit_grad(lse[g], all, weight);
        view_f32(&args->out[1])[row] = ignored ? 0 : -weight;
    }
    return WEIR_OK;
}

const weir_op op_class_loss_grad = {
    .name = "class_loss_grad",
    CLASS_FIELDS,
    .in_min = 3,
    .in_max = 4,
    .out_count = 2,
    .infer = class_loss_grad_infer,
    .signatures = class_loss_grad_signatures,
    .kernel = {[WEIR_CPU] = class_loss_grad_cpu},
};

/* ---- the DSL ---- */

weir_tensor *class_loss(weir_src src, const char *name, weir_tensor *logits, weir_tensor *labels, weir_tensor *count,
                        const label_attrs *label, int64_t groups)
{
    class_attrs attrs = {*label, groups};
    weir_tensor *whole[2] = {logits, labels}, *by_group[2];
    weir_op_apply(&(weir_apply){src, NULL, &op_class_lse, NULL, whole, 2, &attrs}, by_group);
    weir_tensor *in[4] = {by_group[0], by_group[1], labels, count};
    return weir_op_apply(&(weir_apply){src, name, &op_class_loss, NULL, in, count ? 4 : 3, &attrs}, NULL);
}
