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

/* A plan has many kernels, and printf() takes longer than all else here. */
static void add_bytes(struct text *text, const char *bytes, size_t count)
{
    text->cut |= count >= text->room - text->used;
    if (text->cut)
        return;
    memcpy(text->bytes + text->used, bytes, count);
    text->used += count;
    text->bytes[text->used] = '\0';
}

static void add_dimension(struct text *text, int64_t dim)
{
    char digits[20];
    size_t at = sizeof digits;
    for (uint64_t left = (uint64_t)dim; at == sizeof digits || left; left /= 10)
        digits[--at] = (char)('0' + left % 10);
    add_bytes(text, digits + at, sizeof digits - at);
}

static void add_types(struct text *text, const weir_plan *plan, const plan_range *operands)
{
    for (uint32_t o = operands->first; o < operands->first + operands->count; o++) {
        const plan_tensor *tensor = operand(plan, o);
        const char *dtype = weir_dtype_name((weir_dtype)tensor->dtype);
        add_bytes(text, ",", o > operands->first);
        add_bytes(text, dtype, strlen(dtype));
        add_bytes(text, ":", 1);
        for (uint32_t d = 0; d < tensor->rank; d++) {
            add_bytes(text, "x", d > 0);
            add_dimension(text, tensor->shape[d]);
        }
    }
}

bool time_call_text(const weir_plan *plan, uint32_t kernel, char *bytes)
{
    const plan_kernel *of = &plan->kernels[kernel];
    const char *name = plan_text(plan, of->op);
    const weir_op *op = weir_op_find(name);
    const weir_device_kind kind = (weir_device_kind)plan->spaces[plan_actor_space(plan, of->actor.i).i].kind;
    struct text text = {bytes, TIME_CALL_BYTES, 0, false};
    if (!op || of->host != PLAN_NONE || op->open)
        return false;
    uint64_t hash = hash_more(HASH_START, plan->words + of->attrs.first, of->attrs.count * sizeof *plan->words);
    if (op->reads) {
        hash = add_places(hash, plan, &of->in);
        hash = add_places(hash, plan, &of->out);
    }
    if (device_is_accelerator(kind))
        text_add(&text, "%s:", device_kind_name(kind));
    text_add(&text, "%s a=%016" PRIx64 " ", name, hash);
    add_types(&text, plan, &of->in);
    add_bytes(&text, ">", 1);
    add_types(&text, plan, &of->out);
    add_bytes(&text, ";", of->state.count > 0);
    add_types(&text, plan, &of->state);
    add_bytes(&text, "+", of->accumulate != 0);
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
