/* graph/verify/bound.c: see the header. In a plan, bounds go from readers back to writers until none becomes less: each pass goes
 * over all kernels, and there are as many passes as there are copies in a row at most. */
#include "graph/verify/bound.h"

#include <stdlib.h>
#include <string.h>

/* The bound is the size of dimension `dim` of input `of`, from the end if negative; less that of input `less`, and one more: so
 * many places there are for that. */
enum { NOTHING = -1 };
static const struct bounding {
    const char *op;
    int input, of, dim, less;
} table[] = {
    {"embedding", 0, 1, 0, NOTHING},
    {"cross_entropy", 1, 0, -1, NOTHING},
    {"cross_entropy_grad", 1, 0, -1, NOTHING},
    {"class_lse", 1, 0, -1, NOTHING},
    {"class_lse_grad", 1, 0, -1, NOTHING},
    {"append", 2, 0, -2, 1},
    {"attention_kept", 5, 3, -2, 0},
};

static int64_t size_of(const weir_type *type, int dim)
{
    const int at = dim < 0 ? dim + type->shape.rank : dim;
    return at >= 0 && at < type->shape.rank ? type->shape.dim[at] : 1;
}

int64_t bound_of_input(const char *op, const weir_type *in, int in_count, int input)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct bounding *row = &table[i];
        if (row->input != input || strcmp(row->op, op) || row->of >= in_count || row->less >= in_count)
            continue;
        return size_of(&in[row->of], row->dim) - (row->less == NOTHING ? 0 : size_of(&in[row->less], row->dim) - 1);
    }
    return BOUND_NONE;
}

/* ---- plans ---- */

static weir_type logical_type(const plan_tensor *tensor)
{
    weir_type type = {.dtype = (weir_dtype)tensor->dtype, .shape = {.rank = (int)tensor->rank}};
    memcpy(type.shape.dim, tensor->global, sizeof type.shape.dim);
    return type;
}

static uint32_t tensor_of(const weir_plan *plan, const plan_range *operands, uint32_t i)
{
    return plan->operands[operands->first + i].tensor.i;
}

static bool is_integer(const weir_plan *plan, uint32_t tensor)
{
    return !weir_dtype_real((weir_dtype)plan->tensors[tensor].dtype);
}

/* The least bound of a kernel's integer outputs. */
static int64_t least_of_outputs(const weir_plan *plan, const plan_kernel *kernel, const int64_t *bounds)
{
    int64_t least = BOUND_NONE;
    for (uint32_t o = 0; o < kernel->out.count; o++) {
        const uint32_t tensor = tensor_of(plan, &kernel->out, o);
        least = is_integer(plan, tensor) && bounds[tensor] < least ? bounds[tensor] : least;
    }
    return least;
}

/* Gives the kernel's inputs their bounds, or that of what it makes of them. False: none has become less. */
static bool lower_inputs(const weir_plan *plan, const plan_kernel *kernel, int64_t passed, int64_t *bounds)
{
    weir_type in[WEIR_ARGS_MAX];
    int in_count = 0;
    bool lower = false;
    for (; in_count < WEIR_ARGS_MAX && (uint32_t)in_count < kernel->in.count; in_count++)
        in[in_count] = logical_type(&plan->tensors[tensor_of(plan, &kernel->in, (uint32_t)in_count)]);
    for (uint32_t i = 0; i < kernel->in.count; i++) {
        const uint32_t tensor = tensor_of(plan, &kernel->in, i);
        const int64_t own = bound_of_input(plan_text(plan, kernel->op), in, in_count, (int)i);
        const int64_t bound = own == BOUND_NONE ? passed : own;
        if (!is_integer(plan, tensor) || bound >= bounds[tensor])
            continue;
        bounds[tensor] = bound;
        lower = true;
    }
    return lower;
}

/* Any input of a member may become any output of another. */
static bool lower_collective(const weir_plan *plan, const plan_collective *of, int64_t *bounds)
{
    int64_t least = BOUND_NONE;
    bool lower = false;
    for (uint32_t m = 0; m < of->members.count; m++) {
        const int64_t own = least_of_outputs(plan, &plan->kernels[plan_member(plan, of, m)->kernels.first], bounds);
        least = own < least ? own : least;
    }
    for (uint32_t m = 0; m < of->members.count; m++)
        lower |= lower_inputs(plan, &plan->kernels[plan_member(plan, of, m)->kernels.first], least, bounds);
    return lower;
}

int64_t *bound_of_tensors(const weir_plan *plan)
{
    int64_t *bounds = malloc((plan->tensors_count + (size_t)1) * sizeof *bounds);
    for (uint32_t t = 0; bounds && t < plan->tensors_count; t++)
        bounds[t] = BOUND_NONE;
    for (bool lower = bounds != NULL; lower;) {
        lower = false;
        for (uint32_t k = plan->kernels_count; k-- > 0;)
            lower |= lower_inputs(plan, &plan->kernels[k], least_of_outputs(plan, &plan->kernels[k], bounds), bounds);
        for (uint32_t c = plan->collectives_count; c-- > 0;)
            lower |= lower_collective(plan, &plan->collectives[c], bounds);
    }
    return bounds;
}
