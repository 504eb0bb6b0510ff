/* sum_to.c: the sum that undoes a broadcast. Logically the target shape is an attribute; the kernel looks at its
 * output's view, because a shard of the target is what it has to fill.
 */
#include "kernels/reduce/reduce.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/cuda/chunks.h"
#include "kernels/common/ops.h"
#include "kernels/reduce/fold.h"
#include "kernels/common/rules.h"
#include "kernels/shape/shape.h"
#include "kernels/common/view.h"

#include "graph/base/base.h"

#include <weir/graph.h>

static bool sum_to_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    char from[RULES_SHAPE_TEXT], to[RULES_SHAPE_TEXT];
    weir_shape target, both;
    if (!rule_all_real(args, error, error_bytes) || !shape_of_attrs(args->attrs, &target, error, error_bytes))
        return false;
    if (!broadcast_shapes(&args->in[0].shape, &target, &both) || !weir_shape_equal(&both, &args->in[0].shape))
        return REFUSE("shape %s is no sum of %s", shape_text(&target, to, sizeof to),
                      shape_text(&args->in[0].shape, from, sizeof from));
    args->out[0] = (weir_type){WEIR_F32, target};
    return true;
}

/* The target is the output's shard. */
static bool sum_to_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    if (!rule_all_real(local, error, error_bytes) || local->out[0].dtype != WEIR_F32)
        return REFUSE("it sums real numbers as f32");
    return shape_repeats(&local->out[0], &local->in[0], error, error_bytes);
}

static void sum_to_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *in = &args->in[0].shape, *out = &args->out[0].shape;
    sign_linear(args, list);
    for (int d = 0; d < in->rank; d++) {
        int own = d - (in->rank - out->rank);
        if (in->dim[d] == 1)
            continue;
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        s->out[0] = own >= 0 && out->dim[own] != 1 ? WEIR_S(own) : WEIR_P;
    }
}

static void sum_to_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->in[0].shape));
}

/* On a GPU, sums of chunks. */
static size_t sum_to_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? fold_bytes(weir_shape_count(&args->out[0].shape), weir_shape_count(&args->in[0].shape)) : 0;
}

static weir_status sum_to_kernel(const weir_kernel_args *args)
{
    const weir_shape *in = &args->in[0].shape, *out = &args->out[0].shape;
    weir_shape kept = {.rank = in->rank};
    int missing = in->rank - out->rank;
    for (int d = 0; d < in->rank; d++)
        kept.dim[d] = d < missing ? 1 : out->dim[d - missing];
    fold_sum(&args->in[0], &kept, view_f32(&args->out[0]), args->accumulate);
    return WEIR_OK;
}

static void sum_to_backward(weir_grad_args *args)
{
    weir_type type = weir_tensor_type(args->in[0]);
    args->din[0] = shape_broadcast_to(args->dout[0], &type.shape, args->src);
}

const weir_op op_sum_to = {
    .name = "sum_to",
    .fields = shape_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(shape_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = sum_to_infer,
    .fits = sum_to_fits,
    .signatures = sum_to_signatures,
    .grad = sum_to_backward,
    .cost = sum_to_cost,
    .workspace = sum_to_workspace,
    .kernel = {[WEIR_CPU] = sum_to_kernel},
    .accumulates = true,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *reduce_sum_to(weir_tensor *x, const weir_shape *shape, weir_src src)
{
    weir_type type = weir_tensor_type(x);
    if (weir_tensor_poisoned(x) || weir_shape_equal(&type.shape, shape))
        return x;
    shape_attrs attrs = shape_attrs_of(shape);
    return weir_op_apply(&(weir_apply){src, NULL, &op_sum_to, NULL, &x, 1, &attrs}, NULL);
}
