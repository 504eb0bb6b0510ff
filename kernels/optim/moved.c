/* kernels/optim/moved.c: updates whose state comes from somewhere else and goes back there.
 *
 *     gradient [, scale] [, rate], state... -> the parameter, state...
 *
 * An update changes its state where it lies. Where it waits on a disk from step to step, it comes as a value and
 * goes as another: these ops copy it and call the others with the copy, so the bits are the same. The number of adamw's
 * and adam's updates stays a state.
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
        .in_max = 3 + (moved),                                                                                  \
        .out_count = 1 + (moved),                                                                               \
        .infer = update##_moved_infer,                                                                          \
        .kernel = {[WEIR_CPU] = update##_moved_cpu},                                                            \
        __VA_ARGS__                                                                                             \
    };

MOVED(sgd, 1)
MOVED(nesterov, 1)
MOVED(adagrad, 1)
MOVED(lion, 1)
MOVED(adamw, 2, .states = adamw_moved_states, .state_names = {"updates"})
MOVED(adam, 2, .states = adamw_moved_states, .state_names = {"updates"})

static const struct {
    const weir_op *op, *moved;
} updates[] = {{&op_sgd, &op_sgd_moved},     {&op_nesterov, &op_nesterov_moved}, {&op_adagrad, &op_adagrad_moved},
               {&op_lion, &op_lion_moved}, {&op_adamw, &op_adamw_moved},       {&op_adam, &op_adam_moved}};
enum { UPDATES = sizeof updates / sizeof *updates };

const weir_op *optim_moved(const weir_op *update)
{
    for (int i = 0; i < UPDATES; i++)
        if (updates[i].op == update)
            return updates[i].moved;
    return NULL;
}

const weir_op *optim_unmoved(const weir_op *moved)
{
    for (int i = 0; i < UPDATES; i++)
        if (updates[i].moved == moved)
            return updates[i].op;
    return NULL;
}
