/* graph/verify/local_op.c: a kernel that is an op of the graph, or several. See local.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/verify/author.h"
#include "graph/verify/local_inside.h"

enum { OUTS_MAX = 16 };

/* A term that is 0 everywhere. */
static bool is_zero(const claim *c)
{
    return !c->cells && field_equal(c->share, field_int(0));
}

struct held *local_hold(struct local *l, const field_value *at)
{
    for (int h = 0; h < l->held_count; h++)
        if (l->held[h].at == at)
            return &l->held[h];
    if (l->held_count == LOCAL_HELD_MAX)
        return NULL;
    l->held[l->held_count] = (struct held){.at = at};
    return &l->held[l->held_count++];
}

/* ---- an op of the graph ---- */

static bool is_state_of(const graph_node *node, int s, const char *name)
{
    char own[512];
    author_state_name(node, s, own, sizeof own);
    return !strcmp(own, name);
}

/* `moved`: states of the op that come as inputs and go as outputs of the call, before those that stay. */
static weir_status check_states(const struct local *l, const graph_node *node, int moved, const judge_operand *state)
{
    const plan_range *range = &l->kernel->state;
    for (uint32_t s = 0; s < range->count; s++) {
        const char *name = plan_text(l->plan, l->plan->tensors[local_operand(l, range, s)].name);
        if (!is_state_of(node, moved + (int)s, name))
            return local_error(l, WEIR_E_WRONG, "its state \"%s\" is that of another op; the graph says %s", name, node->name);
        if (!claim_is_one(state[s].share) || !claim_is_one(state[s].scale))
            return local_error(l, WEIR_E_WRONG, "its state \"%s\" becomes a term of a sum", name);
    }
    return WEIR_OK;
}

static weir_status check_firings(const struct local *l, const graph_node *node)
{
    const uint32_t fires = l->plan->actors[l->kernel->actor.i].fires;
    const bool adds = l->kernel->accumulate != 0, often = node->micro || node->fills;
    if (fires != (often ? l->plan->micro_batches : 1))
        return local_error(l, WEIR_E_WRONG, "it fires %u times a step, and the graph computes %s %u times", fires, node->name,
                            often ? l->plan->micro_batches : 1);
    if (l->plan->micro_batches > 1 && node->fills && !adds && !strcmp(node->op->name, "accumulate"))
        return local_error(l, WEIR_E_WRONG, "it does not add to what the micro-batches before it made");
    return WEIR_OK;
}

/* An update writes the parameter or state in its place. */
static weir_status take_update(struct local *l, const claim *made)
{
    const uint32_t t = local_operand(l, &l->kernel->out, 0);
    const char *name = plan_text(l->plan, l->plan->tensors[t].name);
    if (!claim_is_whole(made))
        return local_error(l, WEIR_E_WRONG, "it writes a term of a sum, or a scaled value, over \"%s\"", name);
    l->updated[t] = true;
    return WEIR_OK;
}

/* A state that an update makes as a value is that which it was given, and is named so. */
static weir_status take_state(struct local *l, const graph_node *node, const rule_call *call, int s, const claim *made)
{
    const claim *given = &l->given[call->in_count - call->out_count + 1 + s];
    struct held *held = local_hold(l, call->out[1 + s].at);
    if (!held || !given->tensor || !is_state_of(node, s, given->tensor->name) || !claim_is_whole(made))
        return local_error(l, WEIR_E_WRONG, "it reads \"%s\" as a state of %s, or makes a part of it",
                            given->tensor ? given->tensor->name : "0", node->name);
    held->claim = *given;
    return WEIR_OK;
}

/* `made`: what was found of each output. */
static weir_status take_outputs(struct local *l, const graph_node *node, const rule_call *call, const claim *made)
{
    for (int o = 0; o < call->out_count; o++) {
        if (o >= node->out_count) {
            const weir_status status = take_state(l, node, call, o - 1, &made[o]);
            if (status)
                return status;
            continue;
        }
        const weir_tensor *tensor = node->out[o];
        if (!o && l->kernel->accumulate && !node->fills)
            tensor = lookup_accumulated(l->lookup, tensor);
        if (!o && node->updates)
            tensor = node->updates;
        struct held *held = local_hold(l, call->out[o].at);
        if (!tensor || !held)
            return local_error(l, WEIR_E_WRONG, "it adds over micro-batches, and the graph does not add output %d of %s", o, node->name);
        held->claim = made[o];
        held->claim.tensor = is_zero(&made[o]) ? NULL : lookup_same(l->lookup, tensor);
    }
    return node->updates ? take_update(l, &made[0]) : WEIR_OK;
}

static weir_status no_node(const struct local *l, const rule_call *call, const claim *claims)
{
    char reads[256] = "nothing";
    size_t used = 0;
    for (int i = 0; i < call->in_count && used < sizeof reads; i++)
        used += (size_t)snprintf(reads + used, sizeof reads - used, "%s%s", i ? ", " : "",
                                 claims[i].tensor ? claims[i].tensor->name : "0");
    return local_error(l, WEIR_E_WRONG, "the graph has no %s of these values with these attributes: %s", call->op->name, reads);
}

/* ---- the scale of the loss ----
 *
 * With f16 the compiler multiplies the loss by a scale, of which the graph knows nothing: it is 1 times a scale. Gradients have that
 * scale then, their squares its square, and the factor for the gradients its inverse. */

static const char *const updates[] = {"sgd", "nesterov", "adagrad", "lion", "adamw", "adam", NULL};

/* The update of which the op is the one with moved states: "adamw" of "adamw_moved". NULL: it is none. */
static const char *unmoved(const weir_op *op)
{
    for (int i = 0; updates[i]; i++) {
        const size_t length = strlen(updates[i]);
        if (!strncmp(op->name, updates[i], length) && !strcmp(op->name + length, "_moved"))
            return updates[i];
    }
    return NULL;
}

/* The states that an update is given, and gives back, because they wait on a disk. */
static int moved_by(const weir_op *op)
{
    return unmoved(op) ? op->out_count - 1 : 0;
}

/* Ops to which the compiler gives a factor as input 1: the scale of the loss, or its inverse. */
static bool takes_factor(const weir_op *op)
{
    bool takes = !strcmp(op->name, "grad_seed") || !strcmp(op->name, "lamb");
    for (int i = 0; updates[i]; i++)
        takes |= !strcmp(op->name, updates[i]);
    return takes;
}

/* Without the compiler's factor of 1, and without states that are values. */
static const graph_node *find_node(const struct local *l, const rule_call *given)
{
    rule_call call = *given;
    rule_array in[WEIR_ARGS_MAX];
    const weir_tensor *tensors[WEIR_ARGS_MAX];
    const int moved = moved_by(call.op);
    if (moved) {
        call.op = weir_op_find(unmoved(call.op));
        call.in_count -= moved;
        call.out_count -= moved;
    }
    const bool factor = takes_factor(call.op) && call.in_count > 1 && l->tensors[1] == &l->unit;
    for (int i = 0, to = 0; i < call.in_count; i++)
        if (i != 1 || !factor) {
            tensors[to] = l->tensors[i];
            in[to++] = call.in[i];
        }
    call.in = in;
    call.in_count -= factor;
    return lookup_node(l->lookup, &call, tensors, l->plan->actors[l->kernel->actor.i].program.i, plan_text(l->plan, l->kernel->name));
}

/* The compiler adds up the squares of all gradients to see an infinite one. If the graph has no norm, nothing is claimed of them. */
static bool is_sum_of_squares(const weir_op *op)
{
    return !strcmp(op->name, "square_sum") || !strcmp(op->name, "add_many");
}

static weir_status take_own(struct local *l, const rule_call *call)
{
    struct held *held = local_hold(l, call->out[0].at);
    if (held)
        held->claim = (claim){&l->unit, field_oracle_of(l->seed, "unknown", field_int(0)), field_int(1), true, NULL, 0};
    return held ? WEIR_OK : local_error(l, WEIR_E_UNSUPPORTED, "it has more operands than can be judged");
}

static const graph_node *clip_of(const struct local *l, const claim *squares)
{
    for (int n = 0; n < l->graph->nodes.count; n++) {
        const graph_node *node = l->graph->nodes.item[n];
        if (!strcmp(node->op->name, "clip_scale") && lookup_same(l->lookup, node->in[0]) == squares->tensor)
            return node;
    }
    return NULL;
}

/* The factor that the kernel makes of scaled squares, times the scale, is the factor of the graph's clip_scale. */
static bool is_clip(const struct local *l, const rule_call *call, const graph_node *node, field_value scale)
{
    field_value value[] = {scale, field_int(0), field_int(0), field_int(3), field_int(1)}, made[2], right;
    field_value plain[2], *const squares = value + 1;
    rule_array in[3], out[2], state[1];
    char error[256];
    for (int i = 0; i < 2; i++) {
        const int64_t number = i;
        plain[i] = field_draw(l->seed, "squares", &number, 1);
        squares[i] = field_mul(field_mul(scale, scale), plain[i]);
    }
    for (int i = 0; i < call->in_count; i++)
        in[i] = call->in[i];
    in[0].at = value, in[1].at = squares, in[2].at = value + 3;
    out[0] = call->out[0], out[1] = call->out[1], state[0] = call->state[0];
    out[0].at = &made[0], out[1].at = &made[1], state[0].at = value + 4;
    rule_call own = *call, of = *call;
    own.in = in, own.out = out, own.state = state, own.error = of.error = error, own.error_bytes = of.error_bytes = sizeof error;
    if (!rule_find("loss_scale")(&own))
        return false;
    right = field_int(1);
    if (node) {
        of.op = node->op, of.words = node->attrs, of.in = in + 1, of.in_count--, of.out = out + 1, of.state = state;
        squares[0] = plain[0], squares[1] = plain[1];
        out[1].at = &right;
        if (!rule_find("clip_scale")(&of))
            return false;
    } else if (call->in_count > 2) {
        right = field_inverse(value[3]);
    }
    return field_equal(field_mul(made[1], scale), right);
}

weir_status local_scale(struct local *l, const rule_call *call)
{
    if (call->in_count < 2 || call->in_count > 3 || call->out_count != 2 || call->state_count < 1)
        return local_error(l, WEIR_E_WRONG, "it has other operands than a scale of the loss has");
    const claim *scale = &l->claims[local_operand(l, &l->kernel->in, 0)], *squares = &l->claims[local_operand(l, &l->kernel->in, 1)];
    const graph_node *node = clip_of(l, squares);
    const bool whole = !node || (claim_is_one(squares->share) && field_equal(squares->scale, field_mul(scale->scale, scale->scale)));
    if (scale->tensor != &l->unit || !whole || !is_clip(l, call, node, scale->scale))
        return local_error(l, WEIR_E_WRONG, "its factor for the gradients is not that of the graph");
    l->claims[local_operand(l, &l->kernel->out, 0)] = *scale;
    l->claims[local_operand(l, &l->kernel->out, 1)] =
        (claim){node ? lookup_same(l->lookup, node->out[0]) : &l->unit, field_int(1), field_inverse(scale->scale), true, NULL, 0};
    return WEIR_OK;
}

/* ---- an op of the graph is made ---- */

/* If a conversion should have made a value whole and did not, it is to blame. */
static weir_status judge_failed(struct local *l, weir_status status, const char *error)
{
    const plan_kernel *reader = l->kernel;
    const weir_tensor *tensor = l->suspect ? l->claims[l->suspected].tensor : NULL;
    if (!l->suspect || status != WEIR_E_WRONG)
        return local_error(l, status, "%s", error);
    l->kernel = l->suspect;
    return local_error(l, status, "it makes a part or a multiple of \"%s\", which %s (%s) should find whole",
                        tensor ? tensor->name : "0", plan_text(l->plan, reader->name), plan_text(l->plan, reader->op));
}

/* Judges the call of a node. */
static weir_status op_judge(struct local *l, const graph_node *node, const rule_call *call, claim *made)
{
    judge_operand out[OUTS_MAX];
    char error[256];
    for (int o = 0; o < call->out_count + call->state_count; o++)
        out[o] = (judge_operand){o < call->out_count ? call->out[o] : call->state[o - call->out_count], field_int(1), field_int(1)};
    const judge_call of = {call->op, node->name, call->words, call->key, (uint64_t)node->id, (int)l->plan->micro_batches,
                           l->in, out, out + call->out_count, call->in_count, call->out_count, call->state_count};
    const weir_status status = judge_make(l->judge, &of, error, sizeof error);
    for (int o = 0; o < call->out_count; o++)
        made[o] = (claim){.share = out[o].share, .scale = out[o].scale, .known = true};
    return status ? judge_failed(l, status, error) : check_states(l, node, moved_by(call->op), out + call->out_count);
}

static weir_status op_make(struct local *l, const rule_call *call)
{
    claim made[OUTS_MAX] = {{.known = false}};
    const struct held *scaled = NULL;
    if (call->in_count > WEIR_ARGS_MAX || call->out_count + call->state_count > OUTS_MAX)
        return local_error(l, WEIR_E_UNSUPPORTED, "it has more operands than can be judged");
    for (int i = 0; i < call->in_count; i++) {
        const struct held *held = local_hold(l, call->in[i].at);
        if (!held || !held->claim.known)
            return local_error(l, WEIR_E_WRONG, "it reads a value that nothing made");
        l->given[i] = held->claim;
        l->tensors[i] = held->claim.tensor;
        l->in[i] = (judge_operand){call->in[i], claim_mean_share(&held->claim, &call->in[i], l->seed), held->claim.scale};
        scaled = !scaled && held->claim.tensor ? held : scaled;
    }
    for (int i = 0; scaled && i < call->in_count; i++) /* a term of 0 has any scale */
        if (!l->given[i].tensor)
            l->in[i].scale = scaled->claim.scale;
    const graph_node *node = find_node(l, call);
    if (!node && l->has_scale && is_sum_of_squares(call->op))
        return take_own(l, call);
    if (!node)
        return no_node(l, call, l->given);
    weir_status status = op_judge(l, node, call, made);
    l->seen[node->id]++;
    if (!status)
        status = check_firings(l, node);
    return status ? status : take_outputs(l, node, call, made);
}

static bool part_make(void *ctx, const rule_call *part)
{
    struct local *l = ctx;
    l->status = op_make(l, part);
    return !l->status;
}

/* A kernel that is an op of the graph, or several. */
weir_status local_ops(struct local *l, rule_call *call)
{
    weir_status status = WEIR_OK;
    char error[256] = "its members cannot be read";
    call->error = error;
    call->error_bytes = sizeof error;
    if (rule_has_parts(call->op->name)) {
        call->part = part_make;
        call->ctx = l;
        l->status = WEIR_OK;
        if (!rule_find(call->op->name)(call))
            status = l->status ? l->status : local_error(l, WEIR_E_WRONG, "%s", error);
    } else {
        status = op_make(l, call);
    }
    for (uint32_t o = 0; !status && o < l->kernel->out.count; o++) {
        const struct held *held = local_hold(l, call->out[o].at);
        if (held && held->claim.known)
            status = local_claim(l, local_operand(l, &l->kernel->out, o), &held->claim);
    }
    return status;
}
