/* graph/plan/form/query.c: what a program that never saw the graph may ask a plan. Names and logical types only: how a plan
 * is laid out inside stays its own business. Plans are valid when they get here, so indexes within them are not
 * checked again. */
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/plan/form/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int weir_plan_micro_batches(const weir_plan *plan)
{
    return error_null(plan, "weir_plan_micro_batches", "plan") ? 0 : (int)plan->micro_batches;
}

static weir_type logical_type(const plan_tensor *tensor)
{
    if (!tensor)
        return (weir_type){0};
    weir_type type = {.dtype = (weir_dtype)tensor->dtype, .shape.rank = (int)tensor->rank};
    memcpy(type.shape.dim, tensor->global, sizeof type.shape.dim);
    return type;
}

/* The kernel that calls the host function, or NULL: push and pull ends have none. */
static const plan_kernel *host_kernel(const weir_plan *plan, uint32_t host)
{
    plan_range range = plan->actors[plan->hosts[host].actor.i].kernels;
    for (uint32_t k = range.first; k < range.first + range.count; k++)
        if (plan->kernels[k].host == host)
            return &plan->kernels[k];
    return NULL;
}

/* The register that an end without a kernel fills or empties. */
static const plan_regst *end_regst(const weir_plan *plan, const plan_actor *actor)
{
    return &plan->regsts[actor->regsts.count ? actor->regsts.first : plan->ports[actor->ports.first].regst.i];
}

const plan_tensor *plan_host_tensor(const weir_plan *plan, uint32_t host)
{
    const plan_kernel *kernel = host_kernel(plan, host);
    const plan_actor *actor = &plan->actors[plan->hosts[host].actor.i];
    if (!kernel)
        return &plan->tensors[end_regst(plan, actor)->tensors.first];
    plan_range range = plan->hosts[host].kind == PLAN_SINK ? kernel->in : kernel->out;
    return range.count ? &plan->tensors[plan->operands[range.first].tensor.i] : NULL;
}

int weir_plan_host_count(const weir_plan *plan)
{
    return error_null(plan, "weir_plan_host_count", "plan") ? 0 : (int)plan->hosts_count;
}

weir_status weir_plan_host(const weir_plan *plan, int index, weir_host_info *info)
{
    if (error_null(plan, "weir_plan_host", "plan") || error_null(info, "weir_plan_host", "info"))
        return WEIR_E_ARGUMENT;
    if (index < 0 || index >= weir_plan_host_count(plan))
        return error_set(WEIR_E_ARGUMENT, "weir_plan_host: the plan has %d host functions, none with the index %d",
                         weir_plan_host_count(plan), index);
    const plan_host *host = &plan->hosts[index];
    *info = (weir_host_info){
        .name = plan_text(plan, host->name),
        .kind = (weir_host_kind)host->kind,
        .type = logical_type(plan_host_tensor(plan, (uint32_t)index)),
        .per_step = (int)plan->actors[host->actor.i].fires,
        .program = plan_text(plan, plan->programs[plan->actors[host->actor.i].program.i].name),
    };
    return WEIR_OK;
}

_Static_assert((int)WEIR_HOST_SOURCE == (int)PLAN_SOURCE && (int)WEIR_HOST_SINK == (int)PLAN_SINK &&
                   (int)WEIR_HOST_CALL == (int)PLAN_CALL && (int)WEIR_HOST_PUSH == (int)PLAN_PUSH &&
                   (int)WEIR_HOST_PULL == (int)PLAN_PULL,
               "public and stored kinds are the same numbers");

_Static_assert((int)WEIR_PARAMETER == (int)PLAN_KEEP_PARAMETER && (int)WEIR_OPTIMIZER_STATE == (int)PLAN_KEEP_OPTIMIZER &&
                   (int)WEIR_STATE == (int)PLAN_KEEP_STATE,
               "public and stored kinds are the same numbers");

int weir_plan_param_count(const weir_plan *plan)
{
    return error_null(plan, "weir_plan_param_count", "plan") ? 0 : (int)plan->params_count;
}

weir_status weir_plan_param(const weir_plan *plan, int index, weir_param_info *info)
{
    if (error_null(plan, "weir_plan_param", "plan") || error_null(info, "weir_plan_param", "info"))
        return WEIR_E_ARGUMENT;
    if (index < 0 || index >= weir_plan_param_count(plan))
        return error_set(WEIR_E_ARGUMENT, "weir_plan_param: the plan has %d parameters, none with the index %d",
                         weir_plan_param_count(plan), index);
    const plan_param *param = &plan->params[index];
    *info = (weir_param_info){
        .name = plan_text(plan, param->name),
        .type = logical_type(&plan->tensors[plan->shards[param->shards.first].i]),
        .kind = (weir_param_kind)param->kind,
        .frozen = param->frozen,
    };
    return WEIR_OK;
}

bool weir_plan_limited(const weir_plan *plan, char *text, size_t text_bytes)
{
    char kept[PLAN_TEXT_BYTES], whole[PLAN_TEXT_BYTES], moved[PLAN_TEXT_BYTES], disk[2 * PLAN_TEXT_BYTES] = "";
    if (text && text_bytes)
        *text = '\0';
    if (error_null(plan, "weir_plan_limited", "plan") || error_null(text, "weir_plan_limited", "text") ||
        !plan->limits_count)
        return false;
    const plan_limit *l = plan->limits;
    if (l->moved)
        snprintf(disk, sizeof disk, "%s a step wait on a disk, ", bytes_text(l->moved, moved));
    text_print(text, text_bytes, "kept to %s a device instead of %s: %s%" PRIu32 " kernel%s run%s again, %" PRIu32
             " slot%s fewer, a step about %.1f %% longer", bytes_text(l->bytes, kept), bytes_text(l->whole, whole), disk,
             l->again, l->again == 1 ? "" : "s", l->again == 1 ? "s" : "", l->slots, l->slots == 1 ? "" : "s",
             100 * l->longer);
    return true;
}
