/* graph/time/call.c: see the header. */
#include "graph/time/call.h"

#include "graph/base/base.h"
#include "graph/base/text.h"
#include "graph/plan/form/view.h"
#include "graph/plan/show/moved.h"

#include <inttypes.h>

static const plan_tensor *operand(const weir_plan *plan, uint32_t o)
{
    return &plan->tensors[plan->operands[o].tensor.i];
}

static uint64_t add_places(uint64_t hash, const weir_plan *plan, const plan_range *operands)
{
    for (uint32_t o = operands->first; o < operands->first + operands->count; o++) {
        const plan_tensor *tensor = operand(plan, o);
        hash = hash_more(hash, tensor->start, tensor->rank * sizeof *tensor->start);
        hash = hash_more(hash, tensor->global, tensor->rank * sizeof *tensor->global);
    }
    return hash;
}

static void add_types(struct text *text, const weir_plan *plan, const plan_range *operands)
{
    for (uint32_t o = operands->first; o < operands->first + operands->count; o++) {
        const plan_tensor *tensor = operand(plan, o);
        text_add(text, "%s%s:", o == operands->first ? "" : ",", weir_dtype_name((weir_dtype)tensor->dtype));
        for (uint32_t d = 0; d < tensor->rank; d++)
            text_add(text, "%s%" PRId64, d ? "x" : "", tensor->shape[d]);
    }
}

bool time_call_text(const weir_plan *plan, uint32_t kernel, char *bytes)
{
    const plan_kernel *of = &plan->kernels[kernel];
    const char *name = plan_text(plan, of->op);
    const weir_op *op = weir_op_find(name);
    struct text text = {bytes, TIME_CALL_BYTES, 0, false};
    if (!op || of->host != PLAN_NONE || op->open)
        return false;
    uint64_t hash = hash_more(HASH_START, plan->words + of->attrs.first, of->attrs.count * sizeof *plan->words);
    if (op->reads) {
        hash = add_places(hash, plan, &of->in);
        hash = add_places(hash, plan, &of->out);
    }
    text_add(&text, "%s a=%016" PRIx64 " ", name, hash);
    add_types(&text, plan, &of->in);
    text_add(&text, ">");
    add_types(&text, plan, &of->out);
    text_add(&text, of->state.count ? ";" : "");
    add_types(&text, plan, &of->state);
    text_add(&text, of->accumulate ? "+" : "");
    return !text.cut;
}

weir_cost time_call_cost(const weir_plan *plan, uint32_t kernel)
{
    const plan_kernel *of = &plan->kernels[kernel];
    const weir_op *op = weir_op_find(plan_text(plan, of->op));
    const plan_moved moved = plan_kernel_moved(plan, kernel);
    weir_type in[WEIR_ARGS_MAX], out[WEIR_ARGS_MAX];
    plan_call c;
    plan_call_begin(&c, plan, of);
    for (uint32_t i = 0; i < of->in.count; i++)
        in[i] = (weir_type){c.in[i].dtype, c.in[i].shape};
    for (uint32_t i = 0; i < of->out.count; i++)
        out[i] = (weir_type){c.out[i].dtype, c.out[i].shape};
    const weir_op_args args = {.op = op, .in = in, .in_count = (int)of->in.count, .out = out, .out_count = (int)of->out.count,
                               .attrs = c.args.attrs};
    weir_cost cost = {0};
    if (op && op->cost)
        op->cost(&args, &cost);
    cost.bytes = (double)(moved.read + moved.written);
    return cost;
}
