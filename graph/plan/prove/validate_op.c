/* graph/plan/prove/validate_op.c: can the op be called with what the plan gives it?
 *
 * Only the op knows. Its `fits` rule says whether the kernel is safe with the shards' types and the attributes; where
 * it has none, its `infer` rule, asked about the shards, must give exactly the outputs. `states` and `workspace` say
 * what else the kernel touches. All of them see types alone, never memory, so they are safe to ask about anything
 * that has come this far: ranks, dtypes and sizes are in their bounds; attributes are any bits at all.
 *
 * Overlap remains to be proven. Kernels may read and write in any order, so what one writes must not lie over anything else
 * that it is given. Parts of the arena that one kernel has to do with are disjoint (validate_map.c), a slot that is read
 * through a port is another one than that being written, and a queue runs one actor at a time: so two operands can meet only
 * in a register of the actor's own, in the same state, or in the workspace.
 */
#include "graph/plan/prove/validate.h"

#include "graph/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATES_MAX = 4, WRITES_MAX = WEIR_ARGS_MAX + STATES_MAX + 1, SHAPE_TEXT = 160 };
enum { FEW = 16 }; /* writes that are held against each other one by one */
enum { INFERRED_MAX = 8 };         /* outputs of an op without a rule for shards */

typedef struct call {
    const weir_plan *plan;
    uint32_t index; /* of the kernel */
    const plan_kernel *kernel;
    weir_op_args local;
} call;

/* ---- types ---- */

static const plan_tensor *operand_tensor(const weir_plan *plan, uint32_t operand)
{
    return &plan->tensors[plan->operands[operand].tensor.i];
}

static void operand_types(const weir_plan *plan, const plan_range *range, weir_type *types)
{
    for (uint32_t i = 0; i < range->count; i++) {
        const plan_tensor *tensor = operand_tensor(plan, range->first + i);
        types[i] = (weir_type){.dtype = (weir_dtype)tensor->dtype, .shape.rank = (int)tensor->rank};
        memcpy(types[i].shape.dim, tensor->shape, tensor->rank * sizeof *tensor->shape);
    }
}

/* For ops without a rule for shards: the one for whole tensors. */
static bool fits_as_inferred(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type inferred[INFERRED_MAX] = {0};
    weir_op_args args = *local;
    char given[SHAPE_TEXT], wanted[SHAPE_TEXT];
    args.out = inferred;
    if (local->out_count > INFERRED_MAX) {
        snprintf(error, error_bytes, "%d outputs are more than can be inferred", local->out_count);
        return false;
    }
    if (!local->op->infer(&args, error, error_bytes))
        return false;
    for (int o = 0; o < local->out_count; o++)
        if (!type_equal(&inferred[o], &local->out[o])) {
            snprintf(error, error_bytes, "output %d is %s %s, of these inputs it would be %s %s", o,
                     weir_dtype_name(local->out[o].dtype), shape_text(&local->out[o].shape, given, sizeof given),
                     weir_dtype_name(inferred[o].dtype), shape_text(&inferred[o].shape, wanted, sizeof wanted));
            return false;
        }
    return true;
}

bool op_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    return (local->op->fits ? local->op->fits : fits_as_inferred)(local, error, error_bytes);
}

static bool validate_types(const call *at)
{
    const weir_op *op = at->local.op;
    char error[512] = "";
    return op_fits(&at->local, error, sizeof error) || REFUSE_KERNEL(at, "%s: %s", op->name, error);
}

static bool validate_state_types(const call *at)
{
    const weir_op *op = at->local.op;
    const plan_range *state = &at->kernel->state;
    weir_type wanted[STATES_MAX] = {0}, have[STATES_MAX];
    uint32_t count = op->states ? (uint32_t)op->states(&at->local, wanted) : 0;
    if (state->count != count || count > STATES_MAX)
        return REFUSE_KERNEL(at, "%" PRIu32 " states, %s has %" PRIu32, state->count, op->name, count);
    operand_types(at->plan, state, have);
    for (uint32_t i = 0; i < count; i++)
        if (!type_equal(&have[i], &wanted[i]))
            return REFUSE_KERNEL(at, "operands[%" PRIu32 "].tensor: not of the type that %s keeps there",
                                 state->first + i, op->name);
    return true;
}

static bool validate_scratch(const call *at)
{
    const weir_op *op = at->local.op;
    const plan_actor *actor = &at->plan->actors[at->kernel->actor.i];
    const plan_space *space = &at->plan->spaces[at->plan->queues[actor->queue.i].space.i];
    size_t bytes = op->workspace ? op->workspace(&at->local, device_kernels((weir_device_kind)space->kind)) : 0;
    return at->kernel->workspace_bytes >= bytes ||
           REFUSE_KERNEL(at, "workspace: %" PRIu64 " bytes, %s needs %zu", at->kernel->workspace_bytes, op->name,
                         bytes);
}

/* ---- overlaps ---- */

typedef enum part { PART_READ, PART_SLOT, PART_STATE, PART_WORKSPACE } part;

/* Bytes within a part of the arena. */
typedef struct span {
    part part;
    uint32_t owner; /* of the part: a register, a state */
    uint64_t first, bytes;
    uint32_t operand; /* PLAN_NONE: the scratch memory */
} span;

static span span_of(const weir_plan *plan, uint32_t operand)
{
    const plan_tensor *tensor = operand_tensor(plan, operand);
    span s = {.part = PART_WORKSPACE, .first = tensor->offset, .bytes = plan_tensor_bytes(tensor), .operand = operand};
    if (tensor->home == PLAN_IN_REGST) {
        s.part = plan->operands[operand].port.i == PLAN_NONE ? PART_SLOT : PART_READ;
        s.owner = tensor->owner;
    } else if (tensor->home == PLAN_IN_STATE) {
        s.part = PART_STATE;
        s.owner = plan->operands[operand].tensor.i;
    }
    return s;
}

static bool spans_meet(const span *a, const span *b)
{
    return a->part == b->part && a->owner == b->owner && a->bytes && b->bytes && a->first < b->first + b->bytes &&
           b->first < a->first + a->bytes;
}

static int list_writes(const call *at, span *list)
{
    const plan_kernel *kernel = at->kernel;
    int count = 0;
    for (uint32_t i = 0; i < kernel->out.count; i++)
        list[count++] = span_of(at->plan, kernel->out.first + i);
    for (uint32_t i = 0; i < kernel->state.count; i++)
        list[count++] = span_of(at->plan, kernel->state.first + i);
    list[count++] = (span){.part = PART_WORKSPACE, .first = kernel->workspace_offset,
                           .bytes = kernel->workspace_bytes, .operand = PLAN_NONE};
    return count;
}

static bool refuse_overlap(const call *at, const span *a, const span *b)
{
    if (b->operand == PLAN_NONE)
        return REFUSE_KERNEL(at, "workspace: lies over operands[%" PRIu32 "]", a->operand);
    if (a->operand == PLAN_NONE)
        return refuse_overlap(at, b, a);
    return REFUSE_KERNEL(at, "operands[%" PRIu32 "] lies over operands[%" PRIu32 "]", a->operand, b->operand);
}

/* Whether out[0] (`write`) may lie where the input does: it is the one that the op allows, or that one once more. */
static bool in_place(const call *at, const span *write, const span *input)
{
    const plan_kernel *kernel = at->kernel;
    const plan_operand *operands = at->plan->operands;
    uint32_t allowed = kernel->in.first + (uint32_t)at->local.op->inplace - 1;
    if (!at->local.op->inplace || !range_has(&kernel->in, allowed) || write->operand != kernel->out.first ||
        kernel->accumulate || operands[input->operand].tensor.i != operands[allowed].tensor.i)
        return false;
    return write->first == input->first && write->bytes == input->bytes &&
           weir_dtype_bytes(at->local.out[0].dtype) == weir_dtype_bytes(at->local.in[allowed - kernel->in.first].dtype);
}

static int compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Whether none of many meets another: of those that are not empty each then ends before the next one begins. */
static bool spans_apart(const span *list, int count)
{
    span sorted[WRITES_MAX];
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (list[i].bytes)
            sorted[kept++] = list[i];
    qsort(sorted, (size_t)kept, sizeof *sorted, compare_spans);
    for (int i = 1; i < kept; i++)
        if (spans_meet(&sorted[i - 1], &sorted[i]))
            return false;
    return true;
}

static bool validate_writes(const call *at, const span *write, int count)
{
    if (count > FEW && spans_apart(write, count))
        return true;
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++)
            if (spans_meet(&write[a], &write[b]))
                return refuse_overlap(at, &write[a], &write[b]);
    return true;
}

static bool validate_overlaps(const call *at)
{
    const plan_range *in = &at->kernel->in;
    span write[WRITES_MAX];
    int count = list_writes(at, write);
    unsigned parts = 0;
    if (!validate_writes(at, write, count))
        return false;
    for (int a = 0; a < count; a++)
        parts |= 1u << write[a].part;
    for (uint32_t i = in->first; i < in->first + in->count; i++) {
        span read = span_of(at->plan, i);
        for (int a = 0; a < count && parts >> read.part & 1; a++)
            if (spans_meet(&write[a], &read) && !in_place(at, &write[a], &read))
                return refuse_overlap(at, &write[a], &read);
    }
    return true;
}

bool validate_call(const weir_plan *plan, uint32_t kernel, const weir_op *op)
{
    const plan_kernel *k = &plan->kernels[kernel];
    weir_type in[WEIR_ARGS_MAX], out[WEIR_ARGS_MAX];
    operand_types(plan, &k->in, in);
    operand_types(plan, &k->out, out);
    const call at = {plan, kernel, k,
                     {op, in, (int)k->in.count, out, (int)k->out.count, plan->words + k->attrs.first}};
    return validate_types(&at) && validate_state_types(&at) && validate_scratch(&at) && validate_overlaps(&at);
}
