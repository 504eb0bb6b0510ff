/* kernels/loss/classes.cu: the cross-entropy by groups of classes on a GPU; classes.c has the rules and says what they
 * compute. A block of threads does a group of a row; what is one number for each row is done by a thread for each.
 */
#include "kernels/loss/gradient.h"
#include "kernels/loss/lse.h"

enum { ROW_THREADS = 128 };

static int64_t row_blocks(int64_t rows)
{
    return (rows + ROW_THREADS - 1) / ROW_THREADS;
}

template <class T, bool FIT>
KERNEL_OF(group_lse, LOSS_THREADS, LOSS_BLOCKS)(const T *x, int64_t classes, int64_t groups, float *lse)
{
    SHARED(float, part, WARP);
    const int64_t row = blockIdx.x / groups, g = blockIdx.x % groups;
    const int64_t first = group_first(classes, groups, g), end = group_first(classes, groups, g + 1);
    const double total = block_lse<FIT>(x + row * classes + first, end - first, part);
    if (threadIdx.x == 0)
        lse[blockIdx.x] = (float)total;
}

/* The shard has `classes` classes of `all`, from `from` on. */
template <class T>
KERNEL_OF(pick, ROW_THREADS)(refusals say, label_attrs attrs, const T *x, const int32_t *labels, int64_t rows,
                             int64_t from, int64_t classes, int64_t all, float *picked)
{
    const int64_t row = THREAD;
    if (row >= rows)
        return;
    const int32_t label = labels[row];
    const bool ignored = label_ignored(&attrs, label);
    if (!ignored && (label < 0 || label >= all)) {
        refuse(say, row, label);
        picked[row] = NAN;
        return;
    }
    const int64_t at = ignored ? -1 : class_at(from, classes, label);
    picked[row] = at < 0 ? 0 : real_load(x + row * classes + at);
}

static int64_t first_class(const weir_view *logits)
{
    return logits->offset[logits->shape.rank - 1];
}

/* Groups have the same number of classes, on all devices. */
template <class T, bool FIT> static void groups_launch(const weir_kernel_args *args, int64_t rows, int64_t groups)
{
    const weir_view *x = &args->in[0];
    const int64_t classes = shape_last(&x->shape);
    LAUNCH((group_lse<T, FIT>), rows * groups, stream_threads(groups ? classes / groups : 0), args->queue,
           data_of<T>(x), classes, groups, view_f32(&args->out[0]));
}

extern "C" weir_status op_class_lse_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *labels = &args->in[1];
    const int64_t rows = count_of(&labels->shape), classes = shape_last(&x->shape);
    const int64_t groups = shape_last(&args->out[0].shape);
    WITH_REAL(x->dtype, T,
              groups && stream_fits(x->data, classes / groups) ? groups_launch<T, true>(args, rows, groups)
                                                                     : groups_launch<T, false>(args, rows, groups);
              LAUNCH((pick<T>), row_blocks(rows), ROW_THREADS, args->queue, refusing(args),
                     ((const class_attrs *)args->attrs)->label, data_of<T>(x), view_i32(labels), rows, first_class(x),
                     classes, shape_last(&x->global), view_f32(&args->out[1])));
    return launched(args);
}

/* Operands of class_lse_grad; x and dx may be the same. */
struct class_grads {
    const void *x;
    void *dx;
    const int32_t *labels;
    const float *lse, *dlse, *dpicked;
    int64_t from, classes, groups;
};

/* A block has a group of a row; where there are no groups, a row. */
template <class T> KERNEL_OF(group_grad, LOSS_THREADS, LOSS_BLOCKS)(label_attrs attrs, class_grads g)
{
    const int64_t groups = g.groups ? g.groups : 1, row = blockIdx.x / groups, group = blockIdx.x % groups;
    const int64_t first = group_first(g.classes, groups, group), end = group_first(g.classes, groups, group + 1);
    const T *x = (const T *)g.x + row * g.classes + first;
    T *dx = (T *)g.dx + row * g.classes + first;
    if (label_ignored(&attrs, g.labels[row]) || !g.groups)
        return block_zero(dx, end - first);
    const int64_t at = class_at(g.from + first, end - first, g.labels[row]);
    block_grad(x, dx, end - first, {g.lse[blockIdx.x], g.dlse[blockIdx.x], at < 0 ? 0 : -g.dpicked[row], at});
}

extern "C" weir_status op_class_lse_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0];
    const int64_t rows = count_of(&args->in[1].shape), classes = shape_last(&x->shape);
    const int64_t groups = shape_last(&args->in[2].shape), each = groups ? groups : 1;
    const class_grads g = {x->data, args->out[0].data, view_i32(&args->in[1]), view_f32(&args->in[2]),
                           view_f32(&args->in[3]), view_f32(&args->in[4]), first_class(x), classes, groups};
    WITH_REAL(x->dtype, T,
              LAUNCH((group_grad<T>), rows * each, stream_threads(classes / each), args->queue,
                     ((const class_attrs *)args->attrs)->label, g));
    return launched(args);
}

/* The log sum exp of a few numbers, by one thread. */
DEVICE double groups_lse(const float *x, int64_t count)
{
    if (!count)
        return -INFINITY;
    float most = x[0], sum = 0;
    for (int64_t i = 1; i < count; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < count; i++)
        sum += fast_exp(x[i] - most);
    return log((double)sum) + (double)most;
}

KERNEL_OF(class_terms, ROW_THREADS)(label_attrs attrs, const float *lse, const float *picked, const int32_t *labels,
                                    int64_t rows, int64_t groups, double *terms)
{
    const int64_t row = THREAD;
    if (row >= rows)
        return;
    const bool ignored = label_ignored(&attrs, labels[row]);
    terms[row] = ignored ? 0 : groups_lse(lse + row * groups, groups) - (double)picked[row];
}

extern "C" weir_status op_class_loss_cuda(const weir_kernel_args *args)
{
    const weir_view *labels = &args->in[2];
    const int64_t rows = count_of(&labels->shape), groups = shape_last(&args->in[0].shape);
    double *terms = (double *)args->workspace;
    LAUNCH(class_terms, row_blocks(rows), ROW_THREADS, args->queue, ((const class_attrs *)args->attrs)->label,
           view_f32(&args->in[0]), view_f32(&args->in[1]), view_i32(labels), rows, groups, terms);
    const float *count = args->in_count > 3 ? view_f32(&args->in[3]) : nullptr;
    LAUNCH(loss_fold, 1, FOLD_THREADS, args->queue, terms, rows, count, (double)count_of(&labels->global),
           view_f32(&args->out[0]));
    return launched(args);
}

KERNEL_OF(class_loss_grad, ROW_THREADS)(label_attrs attrs, const float *lse, const int32_t *labels, const float *dloss,
                                        const float *count, double all, int64_t rows, int64_t groups, float *dlse,
                                        float *dpicked)
{
    const int64_t row = THREAD;
    if (row >= rows)
        return;
    const float weight = loss_weight(*dloss, rows_share(count, all));
    const bool ignored = label_ignored(&attrs, labels[row]);
    const float total = (float)groups_lse(lse + row * groups, groups);
    for (int64_t g = row * groups; g < (row + 1) * groups; g++)
        dlse[g] = ignored ? 0 : logit_grad(lse[g], total, weight);
    dpicked[row] = ignored ? 0 : -weight;
}

extern "C" weir_status op_class_loss_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *labels = &args->in[1];
    const int64_t rows = count_of(&labels->shape), groups = shape_last(&args->in[0].shape);
    const float *count = args->in_count > 3 ? view_f32(&args->in[3]) : nullptr;
    LAUNCH(class_loss_grad, row_blocks(rows), ROW_THREADS, args->queue, ((const class_attrs *)args->attrs)->label,
           view_f32(&args->in[0]), view_i32(labels), view_f32(&args->in[2]), count, (double)count_of(&labels->global),
           rows, groups, view_f32(&args->out[0]), view_f32(&args->out[1]));
    return launched(args);
}
