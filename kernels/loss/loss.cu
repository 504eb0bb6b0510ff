/* kernels/loss/loss.cu: the cross-entropy and its gradient on a GPU; cross_entropy.c has the rules and says what they
 * compute.
 *
 * A block of threads does a row and reads it once (lse.h, gradient.h). The rows' terms of the loss lie in the
 * workspace, as double, and are added by one block. A label that is no class is refused: its row's term and gradient
 * are NaN.
 */
#include "kernels/loss/gradient.h"
#include "kernels/loss/lse.h"

template <class T, bool FIT>
KERNEL_OF(cross_entropy_row, LOSS_THREADS, LOSS_BLOCKS)(refusals say, label_attrs attrs, const T *x,
                                                        const int32_t *labels, int64_t classes, float *lse,
                                                        double *terms)
{
    SHARED(float, part, WARP);
    const int64_t row = blockIdx.x;
    const int32_t label = labels[row];
    const bool ignored = label_ignored(&attrs, label), known = label >= 0 && label < classes;
    x += row * classes;
    const float picked = known ? real_load(x + label) : 0;
    const double total = block_lse<FIT>(x, classes, part);
    if (threadIdx.x)
        return;
    lse[row] = (float)total;
    if (!ignored && !known) {
        refuse(say, row, label);
        terms[row] = NAN;
        return;
    }
    terms[row] = ignored ? 0 : total - (double)picked;
}

template <class T, bool FIT> static void rows_launch(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *labels = &args->in[1];
    const int64_t classes = shape_last(&x->shape);
    LAUNCH((cross_entropy_row<T, FIT>), count_of(&labels->shape), stream_threads(classes), args->queue, refusing(args),
           *(const label_attrs *)args->attrs, data_of<T>(x), view_i32(labels), classes, view_f32(&args->out[1]),
           (double *)args->workspace);
}

extern "C" weir_status op_cross_entropy_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *labels = &args->in[1];
    const int64_t rows = count_of(&labels->shape);
    const double *terms = (const double *)args->workspace;
    WITH_REAL(x->dtype, T,
              stream_fits(x->data, shape_last(&x->shape)) ? rows_launch<T, true>(args)
                                                                : rows_launch<T, false>(args));
    const float *count = args->in_count > 2 ? view_f32(&args->in[2]) : nullptr;
    LAUNCH(loss_fold, 1, FOLD_THREADS, args->queue, terms, rows, count, (double)count_of(&labels->global),
           view_f32(&args->out[0]));
    return launched(args);
}

template <class T>
KERNEL_OF(cross_entropy_grad_row, LOSS_THREADS, LOSS_BLOCKS)(refusals say, label_attrs attrs, const T *x,
                                                             const int32_t *labels, const float *lse,
                                                             const float *dloss, const float *count, double all,
                                                             int64_t classes, T *dx)
{
    const int64_t row = blockIdx.x;
    const int32_t label = labels[row];
    const bool ignored = label_ignored(&attrs, label);
    const bool known = ignored || (label >= 0 && label < classes);
    const float weight = known ? loss_weight(*dloss, rows_share(count, all)) : NAN, shift = lse[row];
    if (!known && threadIdx.x == 0)
        refuse(say, row, label);
    if (ignored)
        block_zero(dx + row * classes, classes);
    else
        block_grad(x + row * classes, dx + row * classes, classes, {shift, weight, weight, known ? label : -1});
}

extern "C" weir_status op_cross_entropy_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *labels = &args->in[1];
    const int64_t rows = count_of(&labels->shape), classes = shape_last(&x->shape);
    const float *count = args->in_count > 4 ? view_f32(&args->in[4]) : nullptr;
    WITH_REAL(x->dtype, T,
              LAUNCH((cross_entropy_grad_row<T>), rows, stream_threads(classes), args->queue, refusing(args),
                     *(const label_attrs *)args->attrs, data_of<T>(x), view_i32(labels), view_f32(&args->in[2]),
                     view_f32(&args->in[3]), count, (double)count_of(&labels->global), classes,
                     data_of<T>(&args->out[0])));
    return launched(args);
}

KERNEL_OF(label_count, FOLD_THREADS)(label_attrs attrs, const int32_t *labels, int64_t rows, float *out)
{
    SHARED(int, part, WARP);
    int counted = 0;
    for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
        counted += !label_ignored(&attrs, labels[row]);
    counted = block_sum<int>(counted, part);
    if (threadIdx.x == 0)
        *out = (float)counted;
}

extern "C" weir_status op_label_count_cuda(const weir_kernel_args *args)
{
    LAUNCH(label_count, 1, FOLD_THREADS, args->queue, *(const label_attrs *)args->attrs, view_i32(&args->in[0]),
           count_of(&args->in[0].shape), view_f32(&args->out[0]));
    return launched(args);
}
