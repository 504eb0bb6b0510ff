/* kernels/loss/loss.h: what the two ways to a cross-entropy share: rows that are left out, and how rows are weighed.
 * Header-only; owns nothing; any thread.
 */
#ifndef KERNELS_LOSS_LOSS_H
#define KERNELS_LOSS_LOSS_H

#include "kernels/common/lanes.h"
#include "kernels/loss/formula.h"
#include "kernels/common/real.h"

/* 1 / number of rows that count, of the whole batch. */
static inline double row_weight(const weir_view *labels, const weir_view *count)
{
    double rows = count ? (double)*view_f32(count) : (double)weir_shape_count(&labels->global);
    return weight_of(rows);
}

/* sum of exp(x - most), in two vectors: one would wait for its last addition. */
static inline float run_exp_sum(const float *x, int64_t count, float most)
{
    float sum[2 * LANES] = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        for (int l = 0; l < 2 * LANES; l++)
            sum[l] += fast_exp(x[i + l] - most);
    for (; i < count; i++)
        sum[i % LANES] += fast_exp(x[i] - most);
    return run_sum(sum, 2 * LANES);
}

/* log sum exp of a row, in double; -infinity for one without elements. */
static inline double row_lse(const float *x, int64_t count)
{
    if (!count)
        return -INFINITY;
    const float most = row_max(x, count);
    double sum = 0;
    for (int64_t i = 0; i < count; i += ROW_RUN)
        sum += (double)run_exp_sum(x + i, row_run(count - i), most);
    return log(sum) + (double)most;
}

/* infer: logits f32, f16 or bf16 [..., classes] and labels i32 [...]. */
bool logits_and_labels(const weir_op_args *args, char *error, size_t error_bytes);
bool type_is_scalar_f32(const weir_type *type);

/* workspace: a row of logits as f32, where they are halves; on a GPU none. */
size_t logits_workspace(const weir_op_args *args, weir_device_kind kind);

/* kernels: E_KERNEL, with a sentence about the label of that row; in[1] are the labels. */
weir_status label_refused(const weir_kernel_args *args, int64_t row, int32_t label, int64_t classes);

/* The loss by groups of classes, which its head may be split over; see classes.c. */
weir_tensor *class_loss(weir_src src, const char *name, weir_tensor *logits, weir_tensor *labels, weir_tensor *count,
                        const label_attrs *attrs, int64_t groups);

#endif
