/* kernels/loss/cross_entropy.c: the mean of -log softmax(logits)[label] over rows, and its gradient.
 *
 *     logits [..., classes], labels i32 [...] (, count) -> loss, lse [...]        lse = log sum exp of a row
 *
 * The softmax is not kept: a row's lse is enough to make it again, (exp(x - lse) - onehot) * dloss / rows, in one pass
 * of the backward kernel, which may write over the logits.
 *
 * The divisor must be that of the whole batch whatever part of it a device holds. Without .ignore it is the number of
 * logical rows, which the view tells. With it the number of rows that count depends on the labels: label_count makes
 * it (partial sums over devices, like any sum) and the op takes it as a third input. So the loss is a sum of terms
 * over devices in both cases, and exact.
 *
 * Logits and their gradient may be f16 or bf16; what is computed between is f32, as are loss and lse.
 *
 * Here rows are split, never a row. On a mesh the loss is built of the ops of classes.c instead, which split classes,
 * too.
 */
#include "kernels/loss/loss.h"

#include "graph/base/base.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/position.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

static const weir_field label_fields[] = {
    WEIR_FIELD_INT(label_attrs, ignore),
    WEIR_FIELD_INT(label_attrs, ignore_index),
};
#define LABEL_FIELDS .fields = label_fields, .field_count = 2, .attrs_bytes = sizeof(label_attrs)

/* ---- rules ---- */

static weir_shape rows_of(const weir_shape *logits)
{
    weir_shape rows = *logits;
    rows.dim[--rows.rank] = 0;
    return rows;
}

bool logits_and_labels(const weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_type *logits = &args->in[0], *labels = &args->in[1];
    char text[2][128];
    if (!weir_dtype_real(logits->dtype) || labels->dtype != WEIR_I32)
        return REFUSE("logits are %s and labels %s; they need to be f32, f16 or bf16, and i32",
                      weir_dtype_name(logits->dtype), weir_dtype_name(labels->dtype));
    if (logits->shape.rank < 1)
        return REFUSE("logits are a scalar");
    if (shape_last(&logits->shape) < 1)
        return REFUSE("there are no classes");
    weir_shape rows = rows_of(&logits->shape);
    if (!weir_shape_equal(&rows, &labels->shape))
        return REFUSE("labels have shape %s where logits have %s",
                      shape_text(&labels->shape, text[0], sizeof text[0]),
                      shape_text(&logits->shape, text[1], sizeof text[1]));
    return true;
}

bool type_is_scalar_f32(const weir_type *type)
{
    return type->dtype == WEIR_F32 && weir_shape_count(&type->shape) == 1;
}

static bool cross_entropy_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!logits_and_labels(args, error, error_bytes))
        return false;
    if (args->in_count > 2 && !type_is_scalar_f32(&args->in[2]))
        return REFUSE("the count of labels is not an f32 scalar");
    args->out[0] = (weir_type){.dtype = WEIR_F32};
    args->out[1] = (weir_type){WEIR_F32, args->in[1].shape};
    return true;
}

static void cross_entropy_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[1].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->in[1] = s->out[1] = WEIR_S(d);
        s->out[0] = WEIR_P;
    }
}

static void cross_entropy_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = 25.0 * (double)weir_shape_count(&args->in[0].shape); /* an exp is about twenty */
    cost->bytes = (double)(type_bytes(&args->in[0]) + 2 * type_bytes(&args->in[1]));
}

static bool cross_entropy_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!logits_and_labels(args, error, error_bytes))
        return false;
    if (args->in[2].dtype != WEIR_F32 || !weir_shape_equal(&args->in[2].shape, &args->in[1].shape))
        return REFUSE("lse is not f32 with one value per row");
    for (int i = 3; i < args->in_count; i++)
        if (!type_is_scalar_f32(&args->in[i]))
            return REFUSE("input %d is not an f32 scalar", i);
    args->out[0] = args->in[0];
    return true;
}

static void cross_entropy_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[1].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->in[1] = s->in[2] = s->out[0] = WEIR_S(d);
    }
    weir_signature *partial = weir_signature_new(list);
    partial->in[3] = partial->out[0] = WEIR_P;
}

static void cross_entropy_grad_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = 25.0 * (double)weir_shape_count(&args->in[0].shape);
    cost->bytes = 2.0 * (double)type_bytes(&args->in[0]);
}

size_t logits_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? 0 : real_rows_bytes(&args->in[0], 1);
}

/* On a GPU, a term of the loss for each row. */
static size_t cross_entropy_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? (size_t)weir_shape_count(&args->in[1].shape) * sizeof(double)
                             : logits_workspace(args, kind);
}

/* ---- kernels ---- */

weir_status label_refused(const weir_kernel_args *args, int64_t row, int32_t label, int64_t classes)
{
    char text[POSITION_TEXT];
    return KERNEL_FAIL(args, "label %d of row %s is not in 0..%lld", label, position_text(&args->in[1], row, text),
                       (long long)classes - 1);
}

static weir_status cross_entropy_refused(const weir_kernel_args *args, int64_t row, int32_t label)
{
    return label_refused(args, row, label, shape_last(&args->in[0].shape));
}

static weir_status cross_entropy_cpu(const weir_kernel_args *args)
{
    const label_attrs *attrs = args->attrs;
    const weir_view *labels = &args->in[1];
    const int64_t rows = view_count(labels), classes = shape_last(&args->in[0].shape);
    float *lse = view_f32(&args->out[1]);
    double sum = 0;

    for (int64_t row = 0; row < rows; row++) {
        const float *x = real_in(&args->in[0], row * classes, classes, args->workspace);
        const int32_t label = view_i32(labels)[row];
        const bool ignored = label_ignored(attrs, label);
        if (!ignored && (label < 0 || label >= classes))
            return cross_entropy_refused(args, row, label);
        const double total = row_lse(x, classes);
        lse[row] = (float)total;
        if (!ignored)
            sum += total - (double)x[label];
    }
    *view_f32(&args->out[0]) = (float)(sum * row_weight(labels, args->in_count > 2 ? &args->in[2] : NULL));
    return WEIR_OK;
}

/* (exp(x - lse) - onehot) weight of one row; dx may be x. */
static void row_softmax_grad(const float *x, int64_t classes, int32_t label, float lse, float weight, float *dx)
{
    FAST_LOOP
    for (int64_t i = 0; i < classes; i++)
        dx[i] = logit_grad(x[i], lse, weight);
    dx[label] -= weight;
}

static weir_status cross_entropy_grad_cpu(const weir_kernel_args *args)
{
    const label_attrs *attrs = args->attrs;
    const weir_view *labels = &args->in[1];
    const int64_t rows = view_count(labels), classes = shape_last(&args->in[0].shape);
    const float *lse = view_f32(&args->in[2]);
    const double share = row_weight(labels, args->in_count > 4 ? &args->in[4] : NULL);
    const float weight = loss_weight(*view_f32(&args->in[3]), share);

    for (int64_t row = 0; row < rows; row++) {
        const int32_t label = view_i32(labels)[row];
        const float *x = real_in(&args->in[0], row * classes, classes, args->workspace);
        float *dx = real_out(&args->out[0], row * classes, args->workspace);
        if (label_ignored(attrs, label))
            memset(dx, 0, (size_t)classes * sizeof *dx);
        else if (label < 0 || label >= classes)
            return cross_entropy_refused(args, row, label);
        else
            row_softmax_grad(x, classes, label, lse[row], weight, dx);
        real_put(&args->out[0], row * classes, classes, dx);
    }
    return WEIR_OK;
}

static void cross_entropy_backward(weir_grad_args *args)
{
    weir_tensor *in[5] = {args->in[0], args->in[1], args->out[1], args->dout[0], NULL};
    int in_count = 4;
    if (args->in_count > 2)
        in[in_count++] = args->in[2];
    weir_apply grad = {args->src, NULL, &op_cross_entropy_grad, NULL, in, in_count, args->attrs};
    if (args->needed[0])
        args->din[0] = weir_op_apply(&grad, NULL);
}

const weir_op op_cross_entropy = {
    .name = "cross_entropy",
    LABEL_FIELDS,
    .in_min = 2,
    .in_max = 3,
    .out_count = 2,
    .infer = cross_entropy_infer,
    .signatures = cross_entropy_signatures,
    .grad = cross_entropy_backward,
    .cost = cross_entropy_cost,
    .workspace = cross_entropy_workspace,
    .kernel = {[WEIR_CPU] = cross_entropy_cpu},
    .refused = cross_entropy_refused,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 2,
};

const weir_op op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    LABEL_FIELDS,
    .in_min = 4,
    .in_max = 5,
    .out_count = 1,
    .infer = cross_entropy_grad_infer,
    .signatures = cross_entropy_grad_signatures,
    .cost = cross_entropy_grad_cost,
    .workspace = logits_workspace,
    .kernel = {[WEIR_CPU] = cross_entropy_grad_cpu},
    .refused = cross_entropy_refused,
    .inplace = 1,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 2 | 1 << 3 | 1 << 4,
};

/* ---- label_count ---- */

static bool label_count_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in[0].dtype != WEIR_I32)
        return REFUSE("labels are %s, not i32", weir_dtype_name(args->in[0].dtype));
    args->out[0] = (weir_type){.dtype = WEIR_F32};
    return true;
}

static void label_count_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        s->out[0] = WEIR_P;
    }
}

static weir_status label_count_cpu(const weir_kernel_args *args)
{
    const label_attrs *attrs = args->attrs;
    const int32_t *labels = view_i32(&args->in[0]);
    const int64_t rows = view_count(&args->in[0]);
    int64_t counted = 0;
    for (int64_t row = 0; row < rows; row++)
        counted += !label_ignored(attrs, labels[row]);
    *view_f32(&args->out[0]) = (float)counted;
    return WEIR_OK;
}

const weir_op op_label_count = {
    .name = "label_count",
    LABEL_FIELDS,
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = label_count_infer,
    .signatures = label_count_signatures,
    .kernel = {[WEIR_CPU] = label_count_cpu},
};

/* ---- the DSL ---- */

/* Into how many groups classes go, so that the devices of the mesh may share them: 1 where they cannot, or a group
 * would be too small to be worth a log. */
static int64_t groups_for(weir_tensor *logits)
{
    enum { CLASSES_MIN = 16 }; /* of a group */
    weir_type type = weir_tensor_type(logits);
    weir_mesh *mesh = weir_mesh_for(logits);
    int64_t groups = mesh ? weir_mesh_size(mesh) : 1, classes = shape_last(&type.shape);
    while (groups > 1 && (weir_mesh_size(mesh) % groups || classes % groups || classes / groups < CLASSES_MIN))
        groups--;
    return groups;
}

/* A sum is the mean times what that was divided by: the weight of a row's gradient comes out as 1 exactly. */
weir_tensor *weir_cross_entropy_at(weir_tensor *logits, weir_tensor *labels, const weir_cross_entropy_opts *given)
{
    weir_cross_entropy_opts opts;
    logits = op_opts(logits, "cross_entropy", given, &opts, sizeof opts);
    label_attrs attrs = {opts.ignore, opts.ignore ? opts.ignore_index : 0};
    weir_tensor *count = NULL, *mean;
    const char *name = opts.sum ? NULL : opts.name;
    int64_t groups = groups_for(logits);
    if ((opts.ignore || opts.sum) && labels)
        count = weir_op_apply(&(weir_apply){opts.src, NULL, &op_label_count, NULL, &labels, 1, &attrs}, NULL);
    weir_tensor *in[3] = {logits, labels, opts.ignore ? count : NULL};
    if (groups > 1 && labels)
        mean = class_loss(opts.src, name, logits, labels, in[2], &attrs, groups);
    else
        mean = weir_op_apply(&(weir_apply){opts.src, name, &op_cross_entropy, NULL, in, in[2] ? 3 : 2, &attrs}, NULL);
    return opts.sum && labels ? weir_mul_at(mean, count, &(weir_op_opts){sizeof(weir_op_opts), opts.src, opts.name}) : mean;
}

weir_tensor *weir_label_count_at(weir_tensor *labels, const weir_label_count_opts *given)
{
    weir_label_count_opts opts;
    labels = op_opts(labels, "label_count", given, &opts, sizeof opts);
    label_attrs attrs = {opts.ignore, opts.ignore ? opts.ignore_index : 0};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_label_count, NULL, &labels, 1, &attrs}, NULL);
}
