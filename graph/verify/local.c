/* graph/verify/local.c: see the header. */
#include "graph/verify/local.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/verify/author.h"
#include "graph/verify/claim.h"
#include "graph/verify/judge.h"
#include "graph/verify/lookup.h"

enum { OUTS_MAX = 16, HELD_MAX = 2 * WEIR_ARGS_MAX };
#define PROGRESS_NS 1000000000

/* An array of a kernel, or of the ops that it is: told by where its elements would be. */
struct held {
    const field_value *at;
    claim claim;
};

struct local {
    const weir_graph *graph;
    const weir_plan *plan;
    judge *judge;               /* owned */
    uint64_t seed;
    pool pool;                  /* of cells */
    lookup *lookup;             /* owned */
    weir_tensor unit;           /* 1, of which the compiler's scale of the loss is a multiple */
    bool has_scale;
    claim *claims;              /* owned; by tensor of the plan */
    const plan_kernel *suspect; /* the first conversion to a whole value, by its name, that did not make one; or NULL */
    uint32_t suspected;         /* its output */
    weir_tensor **states;       /* owned, but what they point at, which is in the pool; by parameter: a state of an op as a value */
    uint32_t *param;            /* owned; by tensor of the plan: 1 + the parameter that it is a shard of, or 0 */
    bool *updated;              /* owned; by tensor of the plan */
    bool *done;                 /* owned; by kernel */
    int *fetched;               /* owned; by node: complete values that leave the plan */
    uint32_t *collective;       /* owned; by actor: 1 + that it is a member of, or 0 */
    const plan_kernel *kernel;  /* that is judged now */
    struct held held[HELD_MAX];
    int held_count;
    judge_operand in[WEIR_ARGS_MAX]; /* of the op that is judged now, and their claims */
    claim given[WEIR_ARGS_MAX];
    const weir_tensor *tensors[WEIR_ARGS_MAX];
    weir_status status;         /* of an op that a kernel consists of */
};

static bool is_one(field_value a)
{
    return field_equal(a, field_int(1));
}

/* A term that is 0 everywhere. */
static bool is_zero(const claim *c)
{
    return !c->cells && field_equal(c->share, field_int(0));
}

static claim whole_of(const weir_tensor *tensor)
{
    return (claim){tensor, field_int(1), field_int(1), true, NULL, 0};
}

static weir_status kernel_error(const struct local *l, weir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static weir_status kernel_error(const struct local *l, weir_status status, const char *format, ...)
{
    const weir_plan *plan = l->plan;
    const plan_kernel *kernel = l->kernel;
    const plan_space *space = &plan->spaces[plan_actor_space(plan, kernel->actor.i).i];
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(status, "%s:%u: %s (%s) on %s: %s", plan_text(plan, kernel->file), kernel->line,
                     plan_text(plan, kernel->name), plan_text(plan, kernel->op), plan_text(plan, space->name), text);
}

/* ---- arrays and their claims ---- */

static rule_array array_of(const plan_tensor *tensor)
{
    rule_array array = {.dtype = (weir_dtype)tensor->dtype, .rank = (int)tensor->rank, .count = 1};
    memcpy(array.shape, tensor->shape, sizeof array.shape);
    memcpy(array.start, tensor->start, sizeof array.start);
    memcpy(array.global, tensor->global, sizeof array.global);
    for (int d = 0; d < array.rank; d++)
        array.count *= array.shape[d];
    return array;
}

static uint32_t tensor_at(const struct local *l, const plan_range *range, uint32_t i)
{
    return l->plan->operands[range->first + i].tensor.i;
}

static struct held *hold(struct local *l, const field_value *at)
{
    for (int h = 0; h < l->held_count; h++)
        if (l->held[h].at == at)
            return &l->held[h];
    if (l->held_count == HELD_MAX)
        return NULL;
    l->held[l->held_count] = (struct held){.at = at};
    return &l->held[l->held_count++];
}

static bool is_whole_box(const plan_tensor *tensor)
{
    bool whole = true;
    for (uint32_t d = 0; d < tensor->rank; d++)
        whole = whole && tensor->shape[d] == tensor->global[d];
    return whole;
}

/* ---- an op of the graph ---- */

/* "h0/q/weight:adamw.m", as a plan names it. */
static bool is_state_of(const graph_node *node, int s, const char *name)
{
    const char *of = node->updates ? node->updates->name : node->name;
    char own[512];
    if (node->op->state_names[s])
        snprintf(own, sizeof own, "%s:%s.%s", of, node->op->name, node->op->state_names[s]);
    else
        snprintf(own, sizeof own, "%s:%s.%d", of, node->op->name, s);
    return !strcmp(own, name);
}

/* `moved`: states of the op that come as inputs and go as outputs of the call, before those that stay. */
static weir_status check_states(const struct local *l, const graph_node *node, int moved, const judge_operand *state)
{
    const plan_range *range = &l->kernel->state;
    for (uint32_t s = 0; s < range->count; s++) {
        const char *name = plan_text(l->plan, l->plan->tensors[tensor_at(l, range, s)].name);
        if (!is_state_of(node, moved + (int)s, name))
            return kernel_error(l, WEIR_E_WRONG, "its state \"%s\" is that of another op; the graph says %s", name, node->name);
        if (!is_one(state[s].share) || !is_one(state[s].scale))
            return kernel_error(l, WEIR_E_WRONG, "its state \"%s\" becomes a term of a sum", name);
    }
    return WEIR_OK;
}

static weir_status check_firings(const struct local *l, const graph_node *node)
{
    const uint32_t fires = l->plan->actors[l->kernel->actor.i].fires;
    const bool adds = l->kernel->accumulate != 0, often = node->micro || node->fills;
    if (fires != (often ? l->plan->micro_batches : 1))
        return kernel_error(l, WEIR_E_WRONG, "it fires %u times a step, and the graph computes %s %u times", fires, node->name,
                            often ? l->plan->micro_batches : 1);
    if (l->plan->micro_batches > 1 && node->fills && !adds && !strcmp(node->op->name, "accumulate"))
        return kernel_error(l, WEIR_E_WRONG, "it does not add to what the micro-batches before it made");
    return WEIR_OK;
}

/* An update writes the parameter or state in its place. */
static weir_status take_update(struct local *l, const graph_node *node, const claim *made)
{
    const uint32_t t = tensor_at(l, &l->kernel->out, 0);
    const char *name = plan_text(l->plan, l->plan->tensors[t].name);
    if (!claim_is_whole(made))
        return kernel_error(l, WEIR_E_WRONG, "it writes a term of a sum, or a scaled value, over \"%s\"", name);
    if (l->claims[t].known && l->claims[t].tensor != lookup_same(l->lookup, node->updates))
        return kernel_error(l, WEIR_E_WRONG, "it writes the next \"%s\" over \"%s\"", node->updates->name, name);
    l->updated[t] = true;
    return WEIR_OK;
}

/* A state that an update makes as a value is that which it was given, and is named so. */
static weir_status take_state(struct local *l, const graph_node *node, const rule_call *call, int s, const claim *made)
{
    const claim *given = &l->given[call->in_count - call->out_count + 1 + s];
    struct held *held = hold(l, call->out[1 + s].at);
    if (!held || !given->tensor || !is_state_of(node, s, given->tensor->name) || !claim_is_whole(made))
        return kernel_error(l, WEIR_E_WRONG, "it reads \"%s\" as a state of %s, or makes a part of it",
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
        struct held *held = hold(l, call->out[o].at);
        if (!tensor || !held)
            return kernel_error(l, WEIR_E_WRONG, "it adds over micro-batches, and the graph does not add %s", node->out[o]->name);
        held->claim = made[o];
        held->claim.tensor = is_zero(&made[o]) ? NULL : lookup_same(l->lookup, tensor);
    }
    return node->updates ? take_update(l, node, &made[0]) : WEIR_OK;
}

static weir_status no_node(const struct local *l, const rule_call *call, const claim *claims)
{
    char reads[256] = "nothing";
    size_t used = 0;
    for (int i = 0; i < call->in_count && used < sizeof reads; i++)
        used += (size_t)snprintf(reads + used, sizeof reads - used, "%s%s", i ? ", " : "",
                                 claims[i].tensor ? claims[i].tensor->name : "0");
    return kernel_error(l, WEIR_E_WRONG, "the graph has no %s of these values with these attributes: %s", call->op->name, reads);
}

/* ---- the scale of the loss ----
 *
 * With f16 the compiler multiplies the loss by a scale, of which the graph knows nothing: it is 1 times a scale. Gradients have that
 * scale then, their squares its square, and the factor for the gradients its inverse. */

/* The states that an update is given, and gives back, because they wait on a disk. */
static int moved_by(const weir_op *op)
{
    return !strcmp(op->name, "adamw_moved") ? 2 : !strcmp(op->name, "sgd_moved");
}

/* Without the compiler's factor of 1, and without states that are values. */
static const graph_node *find_node(const struct local *l, const rule_call *given)
{
    rule_call call = *given;
    const int moved = moved_by(call.op);
    if (moved) {
        call.op = weir_op_find(moved == 2 ? "adamw" : "sgd");
        call.in_count -= moved;
        call.out_count -= moved;
    }
    if (call.in_count > 0 && l->tensors[call.in_count - 1] == &l->unit)
        call.in_count--;
    return lookup_node(l->lookup, &call, l->tensors, l->plan->actors[l->kernel->actor.i].program.i,
                       plan_text(l->plan, l->kernel->name));
}

/* Of all gradients, which the compiler adds up to see an infinite one: if the graph has no norm, nothing of it is claimed. */
static bool is_sum_of_squares(const weir_op *op)
{
    return !strcmp(op->name, "square_sum") || !strcmp(op->name, "add_many");
}

static weir_status take_own(struct local *l, const rule_call *call)
{
    struct held *held = hold(l, call->out[0].at);
    if (held)
        held->claim = (claim){&l->unit, field_oracle_of(l->seed, "unknown", field_int(0)), field_int(1), true, NULL, 0};
    return held ? WEIR_OK : kernel_error(l, WEIR_E_UNSUPPORTED, "it has more operands than can be judged");
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

static weir_status scale_make(struct local *l, const rule_call *call)
{
    if (call->in_count < 2 || call->in_count > 3 || call->out_count != 2 || call->state_count < 1)
        return kernel_error(l, WEIR_E_WRONG, "it has other operands than a scale of the loss has");
    const claim *scale = &l->claims[tensor_at(l, &l->kernel->in, 0)], *squares = &l->claims[tensor_at(l, &l->kernel->in, 1)];
    const graph_node *node = clip_of(l, squares);
    const bool whole = !node || (is_one(squares->share) && field_equal(squares->scale, field_mul(scale->scale, scale->scale)));
    if (scale->tensor != &l->unit || !whole || !is_clip(l, call, node, scale->scale))
        return kernel_error(l, WEIR_E_WRONG, "its factor for the gradients is not that of the graph");
    l->claims[tensor_at(l, &l->kernel->out, 0)] = *scale;
    l->claims[tensor_at(l, &l->kernel->out, 1)] =
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
        return kernel_error(l, status, "%s", error);
    l->kernel = l->suspect;
    return kernel_error(l, status, "it makes a part or a multiple of \"%s\", which %s (%s) should find whole",
                        tensor ? tensor->name : "0", plan_text(l->plan, reader->name), plan_text(l->plan, reader->op));
}

/* Judges the call of a node. */
static weir_status op_judge(struct local *l, const graph_node *node, const rule_call *call, claim *made)
{
    judge_operand out[OUTS_MAX];
    char error[256];
    for (int o = 0; o < call->out_count + call->state_count; o++)
        out[o] = (judge_operand){o < call->out_count ? call->out[o] : call->state[o - call->out_count], field_int(1), field_int(1)};
    const judge_call of = {call->op, node->name, call->words, call->key, (uint64_t)node->out[0]->id, (int)l->plan->micro_batches,
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
        return kernel_error(l, WEIR_E_UNSUPPORTED, "it has more operands than can be judged");
    for (int i = 0; i < call->in_count; i++) {
        const struct held *held = hold(l, call->in[i].at);
        if (!held || !held->claim.known)
            return kernel_error(l, WEIR_E_WRONG, "it reads a value that nothing made");
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

/* ---- conversions ---- */

/* All that is not a term of 0 is of one tensor, with one scale. */
static bool one_tensor(const claim *claims, int count, claim *one, char *error, size_t error_bytes)
{
    *one = (claim){NULL, field_int(0), field_int(1), true, NULL, 0};
    for (int i = 0; i < count; i++) {
        const claim *c = &claims[i];
        if (c->tensor && one->tensor && one->tensor != c->tensor) {
            snprintf(error, error_bytes, "it takes parts of both \"%s\" and \"%s\"", one->tensor->name, c->tensor->name);
            return false;
        }
        if (c->tensor && one->tensor && !field_equal(one->scale, c->scale)) {
            snprintf(error, error_bytes, "it takes values of \"%s\" with different scales", one->tensor->name);
            return false;
        }
        if (c->tensor)
            *one = (claim){c->tensor, field_int(0), c->scale, true, NULL, 0};
    }
    return true;
}

static weir_status box_make(struct local *l, rule_call *call)
{
    claim *claims = calloc((size_t)call->in_count + 1, sizeof *claims), one;
    char error[256] = "no memory";
    weir_status status = claims ? WEIR_OK : WEIR_E_MEMORY;
    for (int i = 0; !status && i < call->in_count; i++)
        claims[i] = l->claims[tensor_at(l, &l->kernel->in, (uint32_t)i)];
    if (!status && !one_tensor(claims, call->in_count, &one, error, sizeof error))
        status = WEIR_E_WRONG;
    if (!status)
        status = claim_convert(&one, &l->pool, call, claims, error, sizeof error);
    free(claims);
    if (status)
        return kernel_error(l, status, "%s", error);
    if (one.tensor && one.tensor != &l->unit && !lookup_same_shape(&call->out[0], &one.tensor->type))
        return kernel_error(l, WEIR_E_WRONG, "its output has another shape than \"%s\"", one.tensor->name);
    l->claims[tensor_at(l, &l->kernel->out, 0)] = one;
    const char *layout = strrchr(plan_text(l->plan, l->kernel->name), '>');
    if (!l->suspect && call->out[0].count && !claim_is_whole(&one) && is_one(one.scale) && layout && !strchr(layout, 'P')) {
        l->suspect = l->kernel;
        l->suspected = tensor_at(l, &l->kernel->out, 0);
    }
    return WEIR_OK;
}

/* A copy, or a cast of reals. */
static weir_status hand_on(struct local *l, const rule_call *call)
{
    const claim given = l->claims[tensor_at(l, &l->kernel->in, 0)];
    bool same = rule_same_shape(&call->in[0], &call->out[0]) && rule_same_whole(&call->in[0], &call->out[0]);
    for (int d = 0; same && d < call->in[0].rank; d++)
        same = call->in[0].start[d] == call->out[0].start[d];
    if (!same)
        return kernel_error(l, WEIR_E_WRONG, "its output is another part of \"%s\" than its input",
                            given.tensor ? given.tensor->name : "");
    const uint32_t t = tensor_at(l, &l->kernel->out, 0);
    const weir_tensor *kept = l->param[t] ? lookup_kept(l->lookup, plan_text(l->plan, l->plan->params[l->param[t] - 1].name)) : NULL;
    if (kept && kept->update && given.tensor == lookup_same(l->lookup, kept->update->in[0])) { /* a state is set to it */
        l->updated[t] = claim_is_whole(&given);
        return l->updated[t] ? WEIR_OK : kernel_error(l, WEIR_E_WRONG, "it writes a part of a sum over \"%s\"", kept->name);
    }
    l->claims[t] = given;
    return WEIR_OK;
}

/* ---- collectives ---- */

static const plan_kernel *member_kernel(const struct local *l, const plan_collective *of, uint32_t m)
{
    return &l->plan->kernels[plan_member(l->plan, of, m)->kernels.first];
}

static bool is_within(const plan_tensor *part, const plan_tensor *of)
{
    bool within = part->rank == of->rank;
    for (uint32_t d = 0; within && d < part->rank; d++)
        within = part->global[d] == of->global[d] && part->start[d] >= of->start[d] &&
                 part->start[d] + part->shape[d] <= of->start[d] + of->shape[d];
    return within;
}

/* Output i of a member is the sum of the inputs i of all. */
static weir_status sum_make(struct local *l, const plan_collective *of, uint32_t m)
{
    l->kernel = member_kernel(l, of, m);
    for (uint32_t o = 0; o < l->kernel->out.count; o++) {
        claim sum = {.known = true, .share = field_int(0), .scale = field_int(1)};
        const uint32_t to = tensor_at(l, &l->kernel->out, o);
        for (uint32_t from = 0; from < of->members.count; from++) {
            const uint32_t t = tensor_at(l, &member_kernel(l, of, from)->in, o);
            const claim *given = &l->claims[t];
            if ((sum.tensor && given->tensor && sum.tensor != given->tensor) || !is_within(&l->plan->tensors[to], &l->plan->tensors[t]))
                return kernel_error(l, WEIR_E_WRONG, "it adds values of different tensors or places");
            sum.tensor = given->tensor ? given->tensor : sum.tensor;
            sum.scale = given->tensor ? given->scale : sum.scale;
            sum.share = field_add(sum.share, given->share);
            if (given->cells)
                return kernel_error(l, WEIR_E_WRONG, "it adds terms of which devices have different parts");
        }
        l->claims[to] = sum;
    }
    return WEIR_OK;
}

static weir_status move_make(struct local *l, const plan_collective *of, const plan_move *move)
{
    l->kernel = member_kernel(l, of, move->to);
    const uint32_t from = tensor_at(l, &member_kernel(l, of, move->from)->in, move->give);
    const uint32_t to = tensor_at(l, &l->kernel->out, move->take);
    if (!plan_same_part(&l->plan->tensors[from], &l->plan->tensors[to]))
        return kernel_error(l, WEIR_E_WRONG, "it takes another part of \"%s\" than it is given",
                            plan_text(l->plan, l->plan->tensors[to].name));
    l->claims[to] = l->claims[from];
    return WEIR_OK;
}

static weir_status collective_make(struct local *l, const plan_collective *of)
{
    weir_status status = WEIR_OK;
    for (uint32_t m = 0; !status && plan_adds(of) && m < of->members.count; m++)
        status = sum_make(l, of, m);
    for (uint32_t i = of->moves.first; !status && !plan_adds(of) && i < of->moves.first + of->moves.count; i++)
        status = move_make(l, of, &l->plan->moves[i]);
    for (uint32_t m = 0; m < of->members.count; m++)
        l->done[member_kernel(l, of, m) - l->plan->kernels] = true;
    return status;
}

/* ---- a kernel ---- */

/* ---- tensors within others ----
 *
 * Collectives move slices to where they are read as one, and from where they were made as one: they lie within other tensors. */

/* Whether `part` is a box of `of`, and its elements lie where `of` has them. */
static bool lies_within(const plan_tensor *part, const plan_tensor *of)
{
    const uint64_t bytes = weir_dtype_bytes((weir_dtype)of->dtype);
    uint64_t place = 0;
    bool within = part->dtype == of->dtype && is_within(part, of), rest = false;
    for (uint32_t d = 0; within && d < of->rank; d++) { /* behind the first dimension with several places all are whole */
        within = !rest || part->shape[d] == of->shape[d];
        rest = rest || part->shape[d] > 1;
        place = place * (uint64_t)of->shape[d] + (uint64_t)(part->start[d] - of->start[d]);
    }
    return within && part->offset == of->offset + place * bytes;
}

/* The box that two tensors have in common; false: none, or its elements lie in two places. */
static bool meet(const plan_tensor *u, const plan_tensor *t, plan_tensor *box)
{
    uint64_t place = 0;
    bool meets = u->rank == t->rank;
    *box = *u;
    for (uint32_t d = 0; meets && d < u->rank; d++) {
        const int64_t u_end = u->start[d] + u->shape[d], t_end = t->start[d] + t->shape[d];
        box->start[d] = u->start[d] > t->start[d] ? u->start[d] : t->start[d];
        box->shape[d] = (u_end < t_end ? u_end : t_end) - box->start[d];
        meets = box->shape[d] > 0;
        place = place * (uint64_t)u->shape[d] + (uint64_t)(box->start[d] - u->start[d]);
    }
    box->offset = u->offset + place * weir_dtype_bytes((weir_dtype)u->dtype);
    return meets && lies_within(box, u) && lies_within(box, t);
}

/* Makes a claim of a tensor from those of what shares memory with it, if that is all of it. */
static bool put_together(struct local *l, uint32_t t, const plan_range *slot)
{
    const weir_op *op = weir_op_find("box");
    plan_word *words = calloc(1, op->attrs_bytes + 1);
    rule_array *parts = calloc(slot->count + (size_t)1, sizeof *parts), out = array_of(&l->plan->tensors[t]);
    claim *claims = calloc(slot->count + (size_t)1, sizeof *claims), one;
    char error[256];
    int count = 0;
    bool ok = words && parts && claims;
    for (uint32_t u = slot->first; ok && u < slot->first + slot->count; u++) {
        plan_tensor box;
        if (u == t || !l->claims[u].known || !meet(&l->plan->tensors[u], &l->plan->tensors[t], &box))
            continue;
        parts[count] = array_of(&box);
        claims[count++] = l->claims[u];
    }
    for (int f = 0; ok && f < op->field_count; f++)
        words[op->fields[f].offset / sizeof *words].i = !strcmp(op->fields[f].name, "terms");
    const rule_call call = {.op = op, .words = words, .in = parts, .in_count = count, .out = &out, .out_count = 1, .seed = l->seed};
    ok = ok && count && one_tensor(claims, count, &one, error, sizeof error) &&
         !claim_convert(&one, &l->pool, &call, claims, error, sizeof error) && !one.cells;
    if (ok)
        l->claims[t] = one;
    free(words);
    free(parts);
    free(claims);
    return ok;
}

/* Whether there is a claim of the tensor, or can be made. */
static bool is_known(struct local *l, uint32_t t)
{
    const plan_tensor *tensor = &l->plan->tensors[t];
    if (l->claims[t].known || tensor->home != PLAN_IN_REGST)
        return l->claims[t].known;
    const plan_range *slot = &l->plan->regsts[tensor->owner].tensors;
    return slot->count > 1 && put_together(l, t, slot);
}

static bool knows_inputs(struct local *l, const plan_kernel *kernel)
{
    bool all = true;
    for (uint32_t i = 0; all && i < kernel->in.count; i++)
        all = is_known(l, tensor_at(l, &kernel->in, i));
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
                         host->line, name, node->in[0]->name, is_one(given->share) ? "" : "a part or a multiple of ",
                         l->suspect ? plan_text(l->plan, l->suspect->name) : given->tensor ? given->tensor->name : "0");
    l->fetched[node->id]++;
    return WEIR_OK;
}

static weir_status give(struct local *l, const plan_host *host, uint32_t t)
{
    const char *name = plan_text(l->plan, host->name);
    const graph_node *node = lookup_host(l->lookup, name, (plan_host_kind)host->kind);
    if (!node)
        return error_set(WEIR_E_WRONG, "%s:%u: the plan has an input \"%s\", and the graph has none", plan_text(l->plan, host->file),
                         host->line, name);
    l->claims[t] = whole_of(lookup_same(l->lookup, node->out[0]));
    return is_whole_box(&l->plan->tensors[t]) ? WEIR_OK
                                              : error_set(WEIR_E_WRONG, "the input \"%s\" is not whole where it enters", name);
}

/* A kernel that is an op of the graph, or several. */
static weir_status ops_make(struct local *l, rule_call *call)
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
            status = l->status ? l->status : kernel_error(l, WEIR_E_WRONG, "%s", error);
    } else {
        status = op_make(l, call);
    }
    for (uint32_t o = 0; !status && o < l->kernel->out.count; o++) {
        const struct held *held = hold(l, call->out[o].at);
        if (held && held->claim.known)
            l->claims[tensor_at(l, &l->kernel->out, o)] = held->claim;
    }
    return status;
}

static weir_status kernel_make(struct local *l, uint32_t k)
{
    const weir_plan *plan = l->plan;
    const plan_kernel *kernel = l->kernel = &plan->kernels[k];
    const char *op = plan_text(plan, kernel->op);
    const uint32_t count = kernel->in.count + kernel->out.count + kernel->state.count;
    const plan_range *lists[] = {&kernel->in, &kernel->out, &kernel->state};
    rule_array *arrays = calloc(count + (size_t)1, sizeof *arrays), *next = arrays;
    field_value *places = calloc(count + (size_t)1, sizeof *places); /* nothing is computed there: they tell arrays apart */
    rule_call call = {.op = weir_op_find(op), .name = plan_text(plan, kernel->name), .words = plan->words + kernel->attrs.first,
                      .in = arrays, .in_count = (int)kernel->in.count, .out = arrays + kernel->in.count,
                      .out_count = (int)kernel->out.count, .state = arrays + kernel->in.count + kernel->out.count,
                      .state_count = (int)kernel->state.count, .key = kernel->key, .micros = (int)plan->micro_batches,
                      .seed = l->seed};
    weir_status status = arrays && places ? WEIR_OK : kernel_error(l, WEIR_E_MEMORY, "no memory");
    l->held_count = 0;
    for (int list = 0; !status && list < 3; list++)
        for (uint32_t i = 0; i < lists[list]->count; i++, next++) {
            const uint32_t t = tensor_at(l, lists[list], i);
            *next = array_of(&plan->tensors[t]);
            next->at = places + (next - arrays);
            if (!list && i < WEIR_ARGS_MAX)
                hold(l, next->at)->claim = l->claims[t];
        }
    const bool real = kernel->in.count && weir_dtype_real(arrays[0].dtype) && weir_dtype_real(call.out[0].dtype);
    if (!status && kernel->host != PLAN_NONE && plan->hosts[kernel->host].kind == PLAN_SOURCE)
        status = give(l, &plan->hosts[kernel->host], tensor_at(l, &kernel->out, 0));
    else if (!status && kernel->host != PLAN_NONE && plan->hosts[kernel->host].kind == PLAN_SINK)
        status = fetch(l, &plan->hosts[kernel->host], tensor_at(l, &kernel->in, 0));
    else if (!status && !strcmp(op, "box"))
        status = box_make(l, &call);
    else if (!status && (!strcmp(op, "copy") || (!strcmp(op, "cast") && real)))
        status = hand_on(l, &call);
    else if (!status && !strcmp(op, "loss_scale"))
        status = scale_make(l, &call);
    else if (!status)
        status = ops_make(l, &call);
    for (uint32_t o = 0; !status && o < kernel->out.count; o++) /* nothing is a part of anything */
        if (!call.out[o].count)
            l->claims[tensor_at(l, &kernel->out, o)] = whole_of(NULL);
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
        const weir_tensor *tensor = lookup_kept(l->lookup, name);
        const bool is_scale = !tensor && strstr(name, PLAN_LOSS_SCALE);
        if (!tensor && !is_scale && param->shards.count && (l->states[p] = POOL_NEW(&l->pool, weir_tensor, 1)) != NULL)
            *l->states[p] = (weir_tensor){.id = -2 - (int)p, .name = name, .type = type_of_param(l->plan, param)};
        for (uint32_t s = param->shards.first; s < param->shards.first + param->shards.count; s++) {
            claim *c = &l->claims[l->plan->shards[s].i];
            l->param[l->plan->shards[s].i] = 1 + p;
            *c = whole_of(tensor ? lookup_same(l->lookup, tensor) : is_scale ? &l->unit : l->states[p]);
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
        ready = knows_inputs(l, member_kernel(l, of, m));
    return ready;
}

static weir_status kernels_run(struct local *l, void (*progress)(void *ctx, double part), void *ctx)
{
    int64_t told_ns = graph_now_ns();
    uint32_t left = l->plan->kernels_count, before = 0;
    weir_status status = WEIR_OK;
    while (!status && left && left != before) {
        before = left;
        for (uint32_t k = 0; !status && k < l->plan->kernels_count; k++) {
            const uint32_t c = l->collective[l->plan->kernels[k].actor.i];
            if (l->done[k] || (c ? !collective_ready(l, &l->plan->collectives[c - 1]) : !knows_inputs(l, &l->plan->kernels[k])))
                continue;
            status = c ? collective_make(l, &l->plan->collectives[c - 1]) : kernel_make(l, k);
            left -= c ? l->plan->collectives[c - 1].members.count : 1;
            if (!progress || graph_now_ns() - told_ns < PROGRESS_NS)
                continue;
            told_ns = graph_now_ns();
            progress(ctx, 1 - (double)left / (double)l->plan->kernels_count);
        }
    }
    for (uint32_t k = 0; !status && left && k < l->plan->kernels_count; k++) {
        const plan_kernel *kernel = l->kernel = &l->plan->kernels[k];
        for (uint32_t i = 0; !status && !l->done[k] && i < kernel->in.count; i++) {
            const uint32_t t = tensor_at(l, &kernel->in, i);
            if (!l->claims[t].known)
                status = kernel_error(l, WEIR_E_WRONG, "nothing makes \"%s\", which it reads", plan_text(l->plan, l->plan->tensors[t].name));
        }
    }
    return status;
}

/* Every shard of a value that the graph updates was updated, and every fetch is there. */
static weir_status check_ends(const struct local *l)
{
    for (int n = 0; n < l->graph->nodes.count; n++) {
        const graph_node *node = l->graph->nodes.item[n];
        const bool fetches = node->host == 1 + PLAN_SINK || node->host == 1 + PLAN_PULL;
        if (fetches && !l->fetched[node->id])
            return error_set(WEIR_E_WRONG, "%s:%d: the graph fetches \"%s\", and the plan does not", node->src.file ? node->src.file : "?",
                             node->src.line, node->name);
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
    l->fetched = calloc(nodes + 1, sizeof *l->fetched);
    l->collective = calloc(plan->actors_count + (size_t)1, sizeof *l->collective);
    if (!l->judge || !l->lookup || !l->claims || !l->states || !l->param || !l->updated || !l->done || !l->fetched || !l->collective)
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
    free(l->fetched);
    free(l->collective);
    pool_free(&l->pool);
    free(l);
}

weir_status local_verify(const weir_graph *graph, const weir_plan *plan, uint64_t seed, uint64_t bytes_max,
                         void (*progress)(void *ctx, double part), void *ctx)
{
    struct local *l = calloc(1, sizeof *l);
    if (l)
        *l = (struct local){.graph = graph, .plan = plan, .seed = seed, .unit = {.id = -1, .name = "1"}};
    weir_status status = l && local_open(l, bytes_max)
                             ? WEIR_OK
                             : error_set(WEIR_E_MEMORY, "no memory to verify a plan of %u kernels", plan->kernels_count);
    if (!status) {
        kept_begin(l);
        status = check_inits(l);
    }
    if (!status)
        status = outside_begin(l);
    if (!status)
        status = kernels_run(l, progress, ctx);
    if (!status)
        status = outside_end(l);
    if (!status)
        status = check_ends(l);
    if (l)
        local_close(l);
    return status;
}
