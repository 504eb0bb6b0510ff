/* kernels/optim/moved.c: updates whose state comes from somewhere else and goes back there.
 *
 *     gradient [, scale], state... -> the parameter, state...
 *
 * sgd and adamw change their state where it lies. Where it waits on a disk from step to step, it comes as a value and
 * goes as another: these two copy it and call the others with the copy, so the bits are the same. The number of adamw's
 * updates stays a state.
 */
#include "kernels/optim/optim.h"

#include "kernels/common/rules.h"
#include "kernels/common/view.h"
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
    weir_view state[4] = {{.data = NULL}};
    const int moved = args->out_count - 1;
    inner.in_count -= moved;
    inner.out_count = 1;
    inner.state = state;
    inner.state_count = moved + args->state_count;
    for (int s = 0; s < moved; s++) {
        state[s] = args->out[1 + s];
        memcpy(state[s].data, args->in[inner.in_count + s].data, (size_t)view_count(&state[s]) * sizeof(float));
    }
    for (int s = 0; s < args->state_count; s++)
        state[moved + s] = args->state[s];
    return update->kernel[WEIR_CPU](&inner);
}

static int adamw_moved_states(const weir_op_args *args, weir_type *states)
{
    (void)args;
    states[0] = (weir_type){.dtype = WEIR_I32};
    return 1;
}

#define MOVED(update, moved, ...)                                                                               \
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
        .in_min = 1 + (moved),                                                                                  \
        .in_max = 2 + (moved),                                                                                  \
        .out_count = 1 + (moved),                                                                               \
        .infer = update##_moved_infer,                                                                          \
        .kernel = {[WEIR_CPU] = update##_moved_cpu},                                                            \
        __VA_ARGS__                                                                                             \
    };

MOVED(sgd, 1)
MOVED(adamw, 2, .states = adamw_moved_states, .state_names = {"updates"})
