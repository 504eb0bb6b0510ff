/* kernels/optim/moved.c: updates whose state comes from somewhere else and goes back there.
 *
 *     gradient [, scale [, steps left out]], state... -> the parameter, state...
 *
 * sgd and adamw change their state where it lies. Where it waits on a disk from step to step, it comes as a value and
 * goes as another: these two copy it and call the others with the copy, so the bits are the same.
 */
#include "kernels/optim/optim.h"

#include "kernels/rules.h"
#include "kernels/view.h"
#include <string.h>

static int states_of(const weir_op *op)
{
    return op->out_count - 1;
}

static bool moved_infer(const weir_op *update, weir_op_args *args, char *error, size_t error_bytes)
{
    int states = states_of(args->op);
    weir_op_args inner = *args;
    inner.in_count -= states;
    if (!update->infer(&inner, error, error_bytes))
        return false;
    for (int s = 0; s < states; s++) {
        const weir_type *state = &args->in[inner.in_count + s];
        if (state->dtype != WEIR_F32 || !weir_shape_equal(&state->shape, &args->out[0].shape))
            return REFUSE("its state is not f32 of the gradient's shape");
        args->out[1 + s] = args->out[0];
    }
    return true;
}

static weir_status moved_kernel(const weir_op *update, const weir_kernel_args *args)
{
    weir_kernel_args inner = *args;
    inner.state_count = args->out_count - 1;
    inner.in_count -= inner.state_count;
    inner.out_count = 1;
    inner.state = args->out + 1;
    for (int s = 0; s < inner.state_count; s++)
        memcpy(inner.state[s].data, args->in[inner.in_count + s].data,
               (size_t)view_count(&inner.state[s]) * sizeof(float));
    return update->kernel[WEIR_CPU](&inner);
}

#define MOVED(update, inputs, states)                                                                           \
    static bool update##_moved_infer(weir_op_args *args, char *error, size_t error_bytes)                       \
    {                                                                                                           \
        return moved_infer(&op_##update, args, error, error_bytes);                                             \
    }                                                                                                           \
    static weir_status update##_moved_cpu(const weir_kernel_args *args)                                         \
    {                                                                                                           \
        return moved_kernel(&op_##update, args);                                                                \
    }                                                                                                           \
    const weir_op op_##update##_moved = {                                                                       \
        .name = #update "_moved",                                                                               \
        OPTIM_FIELDS,                                                                                           \
        .in_min = 1 + (states),                                                                                 \
        .in_max = (inputs) + (states),                                                                          \
        .out_count = 1 + (states),                                                                              \
        .infer = update##_moved_infer,                                                                          \
        .kernel = {[WEIR_CPU] = update##_moved_cpu},                                                            \
    };

MOVED(sgd, 2, 1)
MOVED(adamw, 3, 2)
