/* graph/verify/local.c: see the header. */
#include "graph/verify/local.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/verify/author.h"
#include "graph/verify/local_inside.h"

weir_status local_error(const struct local *l, weir_status status, const char *format, ...)
{
    const weir_plan *plan = l->plan;
    const plan_kernel *kernel = l->kernel;
    const plan_space *space = &plan->spaces[plan_actor_space(plan, kernel->actor.i).i];
    char text[512];
    va_list args;
    va_start(args, format);
    text_vprint(text, sizeof text, format, args);
    va_end(args);
    return error_set(status, "%s:%u: %s (%s) on %s: %s", plan_text(plan, kernel->file), kernel->line,
                     plan_text(plan, kernel->name), plan_text(plan, kernel->op), plan_text(plan, space->name), text);
}

/* ---- a kernel ---- */

static bool is_whole_box(const plan_tensor *tensor)
{
    bool whole = true;
    for (uint32_t d = 0; d < tensor->rank; d++)
        whole = whole && tensor->shape[d] == tensor->global[d];
    return whole;
}

static bool knows_inputs(struct local *l, const plan_kernel *kernel)
{
    bool all = true;
    for (uint32_t i = 0; all && i < kernel->in.count; i++)
        all = local_knows(l, local_operand(l, &kernel->in, i));
    return all;
}

/* A complete value leaves the plan. */
static weir_status fetch(struct local *l, const plan_host *host, uint32_t t)
{
    const char *name = plan_text(l->plan, host->name);
    const graph_node *node = lookup_host(l->lookup, name, (plan_host_kind)host->kind);
    const claim *given = &l->claims[t];
    if (!node)
        return error_set(WEIR_E_WRONG, "%s:%u: the plan fetches \"%s\", and the graph does not", plan_text(l->plan, host->file),
                         host->line, name);
    if (!claim_is_whole(given) || given->tensor != lookup_same(l->lookup, node->in[0]) || !is_whole_box(&l->plan->tensors[t]))
        return error_set(WEIR_E_WRONG, "%s:%u: the fetch \"%s\" is not the whole value of \"%s\" (%s%s)", plan_text(l->plan, host->file),
                         host->line, name, node->in[0]->name, claim_is_one(given->share) ? "" : "a part or a multiple of ",
                         l->suspect ? plan_text(l->plan, l->suspect->name) : given->tensor ? given->tensor->name : "0");
    l->seen[node->id]++;
    return WEIR_OK;
}

/* The value of an input, or the shard of it that the source gives on one device. */
static weir_status give(struct local *l, const plan_host *host, uint32_t t)
{
    const char *name = plan_text(l->plan, host->name);
    const graph_node *node = lookup_host(l->lookup, name, (plan_host_kind)host->kind);
    if (!node)
        return error_set(WEIR_E_WRONG, "%s:%u: the plan has an input \"%s\", and the graph has none", plan_text(l->plan, host->file),
                         host->line, name);
    l->claims[t] = claim_whole(lookup_same(l->lookup, node->out[0]));
    return node->by_hand || is_whole_box(&l->plan->tensors[t]) ? WEIR_OK
                                              : error_set(WEIR_E_WRONG, "the input \"%s\" is not whole where it enters", name);
}

weir_status local_claim(struct local *l, uint32_t t, const claim *made)
{
    const claim *there = &l->claims[t];
    const bool differs = there->known && (there->tensor != made->tensor || !field_equal(there->share, made->share) ||
                                          !field_equal(there->scale, made->scale));
    if (differs)
        return local_error(l, WEIR_E_WRONG, "it writes \"%s\" over \"%s\", which is \"%s\"", made->tensor ? made->tensor->name : "0",
                           plan_text(l->plan, l->plan->tensors[t].name), there->tensor ? there->tensor->name : "0");
    l->claims[t] = *made;
    return WEIR_OK;
}

/* The arrays of a kernel's operands, with the claims of its inputs; arrays[n] is told from others by places[n], where nothing is
 * computed. */
static void hold_operands(struct local *l, rule_array *arrays, field_value *places)
{
    const plan_range *lists[] = {&l->kernel->in, &l->kernel->out, &l->kernel->state};
    uint32_t n = 0;
    l->held_count = 0;
    for (int list = 0; list < 3; list++)
        for (uint32_t i = 0; i < lists[list]->count; i++, n++) {
            const uint32_t t = local_operand(l, lists[list], i);
            arrays[n] = rule_array_of(&l->plan->tensors[t]);
            arrays[n].at = &places[n];
            struct held *held = list ? NULL : local_hold(l, arrays[n].at);
            if (held)
                held->claim = l->claims[t];
        }
}

static weir_status call_make(struct local *l, rule_call *call)
{
    const plan_kernel *kernel = l->kernel;
    const plan_host *host = kernel->host == PLAN_NONE ? NULL : &l->plan->hosts[kernel->host];
    const char *op = call->op->name;
    const bool real = call->in_count && call->out_count && weir_dtype_real(call->in[0].dtype) && weir_dtype_real(call->out[0].dtype);
    if (host && host->kind == PLAN_SOURCE)
        return give(l, host, local_operand(l, &kernel->out, 0));
    if (host && host->kind == PLAN_SINK)
        return fetch(l, host, local_operand(l, &kernel->in, 0));
    if (!strcmp(op, "box"))
        return local_convert(l, call);
    if (!strcmp(op, "copy") || (!strcmp(op, "cast") && real))
        return local_hand_on(l, call);
    return !strcmp(op, "loss_scale") ? local_scale(l, call) : local_ops(l, call);
}

static weir_status kernel_make(struct local *l, uint32_t k)
{
    const plan_kernel *kernel = l->kernel = &l->plan->kernels[k];
    const uint32_t count = kernel->in.count + kernel->out.count + kernel->state.count;
    rule_array *arrays = calloc(count + (size_t)1, sizeof *arrays);
    field_value *places = calloc(count + (size_t)1, sizeof *places);
    weir_status status = WEIR_E_MEMORY;
    if (arrays && places) {
        hold_operands(l, arrays, places);
        rule_call call = {.op = weir_op_find(plan_text(l->plan, kernel->op)), .name = plan_text(l->plan, kernel->name),
                          .words = l->plan->words + kernel->attrs.first, .in = arrays, .in_count = (int)kernel->in.count,
                          .out = arrays + kernel->in.count, .out_count = (int)kernel->out.count,
                          .state = arrays + kernel->in.count + kernel->out.count, .state_count = (int)kernel->state.count,
                          .key = kernel->key, .micros = (int)l->plan->micro_batches, .seed = l->seed};
        status = call.op ? call_make(l, &call) : local_error(l, WEIR_E_UNSUPPORTED, "this program has no such op");
        for (uint32_t o = 0; !status && o < kernel->out.count; o++) /* nothing is a part of anything */
            if (!call.out[o].count)
                l->claims[local_operand(l, &kernel->out, o)] = claim_whole(NULL);
    } else {
        local_error(l, status, "no memory");
    }
    free(arrays);
    free(places);
    l->done[k] = true;
    return status;
}

/* ---- the plan ---- */

static weir_status outside_begin(struct local *l)
{
    weir_status status = WEIR_OK;
    for (uint32_t h = 0; !status && h < l->plan->hosts_count; h++) {
        const plan_host *host = &l->plan->hosts[h];
        const plan_actor *actor = &l->plan->actors[host->actor.i];
        if (host->kind == PLAN_PUSH && l->plan->regsts[actor->regsts.first].tensors.count)
            status = give(l, host, l->plan->regsts[actor->regsts.first].tensors.first);
    }
    return status;
}

static weir_status outside_end(struct local *l)
{
    weir_status status = WEIR_OK;
    for (uint32_t h = 0; !status && h < l->plan->hosts_count; h++) {
        const plan_host *host = &l->plan->hosts[h];
        const plan_actor *actor = &l->plan->actors[host->actor.i];
        const plan_regst *regst = host->kind == PLAN_PULL ? &l->plan->regsts[l->plan->ports[actor->ports.first].regst.i] : NULL;
        if (regst && regst->tensors.count)
            status = fetch(l, host, regst->tensors.first);
    }
    return status;
}

/* How values begin is written in the plan as in the graph. */
static weir_status check_inits(const struct local *l)
{
    for (uint32_t i = 0; i < l->plan->inits_count; i++) {
        const plan_init *init = &l->plan->inits[i];
        const uint32_t p = l->param[init->tensor.i];
        const plan_str name = p ? l->plan->params[p - 1].name : l->plan->tensors[init->tensor.i].name;
        if (!author_begins_so(l->graph, l->plan->seed, plan_text(l->plan, name), init))
            return error_set(WEIR_E_WRONG, "\"%s\" does not begin as the graph says", plan_text(l->plan, name));
    }
    return WEIR_OK;
}

static weir_type type_of_param(const weir_plan *plan, const plan_param *param)
{
    const plan_tensor *tensor = &plan->tensors[plan->shards[param->shards.first].i];
    weir_type type = {.dtype = (weir_dtype)tensor->dtype, .shape = {.rank = (int)tensor->rank}};
    memcpy(type.shape.dim, tensor->global, sizeof type.shape.dim);
    return type;
}

/* Parameters and states are there before the first step, by their names; and the scale of the loss. */
static void kept_begin(struct local *l)
{
    for (uint32_t p = 0; p < l->plan->params_count; p++) {
        const plan_param *param = &l->plan->params[p];
        const char *name = plan_text(l->plan, param->name);
        const weir_tensor *tensor = author_kept_named(l->graph, name);
        const bool is_scale = !tensor && strstr(name, PLAN_LOSS_SCALE);
        if (!tensor && !is_scale && param->shards.count && (l->states[p] = POOL_NEW(&l->pool, weir_tensor, 1)) != NULL)
            *l->states[p] = (weir_tensor){.id = -2 - (int)p, .name = name, .type = type_of_param(l->plan, param)};
        for (uint32_t s = param->shards.first; s < param->shards.first + param->shards.count; s++) {
            claim *c = &l->claims[l->plan->shards[s].i];
            l->param[l->plan->shards[s].i] = 1 + p;
            *c = claim_whole(tensor ? lookup_same(l->lookup, tensor) : is_scale ? &l->unit : l->states[p]);
            if (is_scale)
                c->scale = field_oracle_of(l->seed, "scale of the loss", field_int(0));
        }
        l->has_scale |= is_scale;
    }
}

static bool collective_ready(struct local *l, const plan_collective *of)
{
    bool ready = true;
    for (uint32_t m = 0; ready && m < of->members.count; m++)
        ready = knows_inputs(l, local_member(l, of, m));
    return ready;
}

static weir_status kernels_run(struct local *l, proof *p)
{
    uint32_t left = l->plan->kernels_count, before = 0;
    weir_status status = WEIR_OK;
    while (!status && left && left != before) {
        before = left;
        for (uint32_t k = 0; !status && k < l->plan->kernels_count; k++) {
            const uint32_t c = l->collective[l->plan->kernels[k].actor.i];
            if (l->done[k] || (c ? !collective_ready(l, &l->plan->collectives[c - 1]) : !knows_inputs(l, &l->plan->kernels[k])))
                continue;
            status = c ? local_collective(l, &l->plan->collectives[c - 1]) : kernel_make(l, k);
            left -= c ? l->plan->collectives[c - 1].members.count : 1;
            proof_fired(p);
        }
    }
    for (uint32_t k = 0; !status && left && k < l->plan->kernels_count; k++) {
        const plan_kernel *kernel = l->kernel = &l->plan->kernels[k];
        for (uint32_t i = 0; !status && !l->done[k] && i < kernel->in.count; i++) {
            const uint32_t t = local_operand(l, &kernel->in, i);
            if (!l->claims[t].known)
                status = local_error(l, WEIR_E_WRONG, "nothing makes \"%s\", which it reads", plan_text(l->plan, l->plan->tensors[t].name));
        }
    }
    return status;
}

/* Every shard of a value that the graph updates was updated, and every fetch and effect is there. */
static weir_status check_ends(const struct local *l)
{
    for (int n = 0; n < l->graph->nodes.count; n++) {
        const graph_node *node = l->graph->nodes.item[n];
        const bool fetches = node->host == 1 + PLAN_SINK || node->host == 1 + PLAN_PULL;
        if ((fetches || node->op->effect) && !l->seen[node->id])
            return error_set(WEIR_E_WRONG, "%s:%d: the graph %s \"%s\", and the plan does not", node->src.file ? node->src.file : "?",
                             node->src.line, fetches ? "fetches" : "calls", node->name);
        bool kept = !node->updates;
        for (uint32_t p = 0; node->updates && p < l->plan->params_count; p++) {
            const plan_param *param = &l->plan->params[p];
            if (strcmp(plan_text(l->plan, param->name), node->updates->name))
                continue;
            kept = param->shards.count > 0;
            for (uint32_t s = param->shards.first; kept && s < param->shards.first + param->shards.count; s++)
                kept = l->updated[l->plan->shards[s].i];
        }
        if (!kept)
            return error_set(WEIR_E_WRONG, "%s:%d: the graph updates \"%s\", and the plan does not, or not all of it",
                             node->updates->src.file ? node->updates->src.file : "?", node->updates->src.line, node->updates->name);
    }
    return WEIR_OK;
}

static bool local_open(struct local *l, uint64_t bytes_max)
{
    const weir_plan *plan = l->plan;
    const size_t nodes = (size_t)l->graph->nodes.count;
    l->judge = judge_new(l->seed, bytes_max / (6 * sizeof(field_value)));
    l->lookup = lookup_new(l->graph, (int)plan->micro_batches, plan->seed);
    l->claims = calloc(plan->tensors_count + (size_t)1, sizeof *l->claims);
    l->states = calloc(plan->params_count + (size_t)1, sizeof *l->states);
    l->param = calloc(plan->tensors_count + (size_t)1, sizeof *l->param);
    l->updated = calloc(plan->tensors_count + (size_t)1, sizeof *l->updated);
    l->done = calloc(plan->kernels_count + (size_t)1, sizeof *l->done);
    l->seen = calloc(nodes + 1, sizeof *l->seen);
    l->collective = calloc(plan->actors_count + (size_t)1, sizeof *l->collective);
    if (!l->judge || !l->lookup || !l->claims || !l->states || !l->param || !l->updated || !l->done || !l->seen || !l->collective)
        return false;
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t m = 0; m < plan->collectives[c].members.count; m++)
            l->collective[plan->members[plan->collectives[c].members.first + m].i] = c + 1;
    return true;
}

static void local_close(struct local *l)
{
    judge_free(l->judge);
    lookup_free(l->lookup);
    free(l->claims);
    free(l->states);
    free(l->param);
    free(l->updated);
    free(l->done);
    free(l->seen);
    free(l->collective);
    pool_free(&l->pool);
    free(l);
}

weir_status local_verify(const weir_graph *graph, const weir_plan *plan, proof *p, uint64_t bytes_max)
{
    struct local *l = calloc(1, sizeof *l);
    if (l)
        *l = (struct local){.graph = graph, .plan = plan, .seed = p->opts.seed, .unit = {.id = -1, .name = "1"}};
    weir_status status = l && local_open(l, bytes_max)
                             ? WEIR_OK
                             : error_set(WEIR_E_MEMORY, "no memory to verify a plan of %u kernels", plan->kernels_count);
    p->firings = plan->kernels_count;
    if (!status) {
        kept_begin(l);
        status = check_inits(l);
    }
    if (!status)
        status = outside_begin(l);
    if (!status)
        status = kernels_run(l, p);
    if (!status)
        status = outside_end(l);
    if (!status)
        status = check_ends(l);
    if (l)
        local_close(l);
    return status;
}
