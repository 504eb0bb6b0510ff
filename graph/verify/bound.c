/* graph/verify/bound.c: see the header. In a plan, bounds go from readers back to writers until none becomes less: each pass goes
 * over all kernels, and there are as many passes as there are copies in a row at most. */
#include "graph/verify/bound.h"
#include "graph/verify/rule.h"

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
    {"embedding_stored", 0, 1, 0, NOTHING},
    {"cross_entropy", 1, 0, -1, NOTHING},
    {"cross_entropy_grad", 1, 0, -1, NOTHING},
    {"class_lse", 1, 0, -1, NOTHING},
    {"class_lse_grad", 1, 0, -1, NOTHING},
    {"append", 2, 0, -2, 1},
    {"attention_kept", 5, 3, -2, 0},
    {"attention_kept_masked", 5, 3, -2, 0},
};

static int64_t size_of(const weir_type *type, int dim)
{
    const int at = dim < 0 ? dim + type->shape.rank : dim;
    return at >= 0 && at < type->shape.rank ? type->shape.dim[at] : 1;
}

bound bound_of_both(bound a, bound b)
{
    if (a.below == BOUND_NONE)
        return b;
    if (b.below == BOUND_NONE)
        return a;
    const bool both = a.has_other && b.has_other && a.other == b.other;
    return (bound){a.below < b.below ? a.below : b.below, both, both ? a.other : 0};
}

/* The least size of the dimensions [first, end) that ids tell places in. */
static bound bound_of_sizes(const int64_t *sizes, int rank, int64_t first, int64_t end)
{
    bound least = bound_none();
    for (int64_t d = first; d >= 0 && d < end && d < rank; d++)
        least.below = sizes[d] < least.below ? sizes[d] : least.below;
    return least;
}

/* The ids of gather, gather_nd, gather_elements and their gradients, which have the sizes of x among their attributes. */
static bound bound_of_ids(const rule_call *call, const weir_type *in, int in_count, int input)
{
    const char *op = call->op->name;
    const bool grad = strstr(op, "_grad") != NULL, nd = !strncmp(op, "gather_nd", 9);
    if (strncmp(op, "gather", 6) || in_count < 2 || input != (grad ? 0 : 1))
        return bound_none();
    int64_t sizes[WEIR_DIMS_MAX] = {0};
    const int64_t rank = grad ? rule_int(call, "rank", 0) : in[0].shape.rank;
    for (int d = 0; d < WEIR_DIMS_MAX; d++)
        sizes[d] = grad ? rule_int(call, "dim", d) : in[0].shape.dim[d];
    const int64_t given = rule_int(call, nd ? "batch_dims" : "axis", 0), first = given < 0 ? given + rank : given;
    return bound_of_sizes(sizes, (int)(rank < WEIR_DIMS_MAX ? rank : WEIR_DIMS_MAX), first,
                          first + (nd ? size_of(&in[input], -1) : 1));
}

bound bound_of_input(const weir_op *op, const plan_word *words, const weir_type *in, int in_count, int input)
{
    const rule_call call = {.op = op, .words = words};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct bounding *row = &table[i];
        if (row->input != input || strcmp(row->op, op->name) || row->of >= in_count || row->less >= in_count)
            continue;
        const int64_t less = row->less == NOTHING ? 0 : size_of(&in[row->less], row->dim) - 1;
        return (bound){size_of(&in[row->of], row->dim) - less, rule_int(&call, "ignore", 0) != 0, rule_int(&call, "ignore_index", 0)};
    }
    return bound_of_ids(&call, in, in_count, input);
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

/* The integers that the readers of a kernel's integer outputs take. */
static bound bound_of_outputs(const weir_plan *plan, const plan_kernel *kernel, const bound *bounds)
{
    bound all = bound_none();
    for (uint32_t o = 0; o < kernel->out.count; o++) {
        const uint32_t tensor = tensor_of(plan, &kernel->out, o);
        all = is_integer(plan, tensor) ? bound_of_both(all, bounds[tensor]) : all;
    }
    return all;
}

/* Gives the kernel's inputs their bounds, or that of what it makes of them. False: none has changed. */
static bool lower_inputs(const weir_plan *plan, const plan_kernel *kernel, bound passed, bound *bounds)
{
    const weir_op *op = weir_op_find(plan_text(plan, kernel->op));
    weir_type in[WEIR_ARGS_MAX];
    int in_count = 0;
    bool lower = false;
    for (; in_count < WEIR_ARGS_MAX && (uint32_t)in_count < kernel->in.count; in_count++)
        in[in_count] = logical_type(&plan->tensors[tensor_of(plan, &kernel->in, (uint32_t)in_count)]);
    for (uint32_t i = 0; i < kernel->in.count; i++) {
        const uint32_t tensor = tensor_of(plan, &kernel->in, i);
        const bound own = op ? bound_of_input(op, plan->words + kernel->attrs.first, in, in_count, (int)i) : bound_none();
        const bound all = bound_of_both(own.below == BOUND_NONE ? passed : own, bounds[tensor]);
        if (!is_integer(plan, tensor) || (all.below == bounds[tensor].below && all.has_other == bounds[tensor].has_other))
            continue;
        bounds[tensor] = all;
        lower = true;
    }
    return lower;
}

/* Any input of a member may become any output of another. */
static bool lower_collective(const weir_plan *plan, const plan_collective *of, bound *bounds)
{
    bound all = bound_none();
    bool lower = false;
    for (uint32_t m = 0; m < of->members.count; m++)
        all = bound_of_both(all, bound_of_outputs(plan, &plan->kernels[plan_member(plan, of, m)->kernels.first], bounds));
    for (uint32_t m = 0; m < of->members.count; m++)
        lower |= lower_inputs(plan, &plan->kernels[plan_member(plan, of, m)->kernels.first], all, bounds);
    return lower;
}

bound *bound_of_tensors(const weir_plan *plan)
{
    bound *bounds = calloc(plan->tensors_count + (size_t)1, sizeof *bounds);
    for (uint32_t t = 0; bounds && t < plan->tensors_count; t++)
        bounds[t] = bound_none();
    for (bool lower = bounds != NULL; lower;) {
        lower = false;
        for (uint32_t k = plan->kernels_count; k-- > 0;)
            lower |= lower_inputs(plan, &plan->kernels[k], bound_of_outputs(plan, &plan->kernels[k], bounds), bounds);
        for (uint32_t c = plan->collectives_count; c-- > 0;)
            lower |= lower_collective(plan, &plan->collectives[c], bounds);
    }
    return bounds;
}
