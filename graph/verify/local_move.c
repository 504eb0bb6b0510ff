/* graph/verify/local_move.c: a kernel that computes nothing and moves shards. See local.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/verify/author.h"
#include "graph/verify/local_inside.h"

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

weir_status local_convert(struct local *l, rule_call *call)
{
    claim *claims = calloc((size_t)call->in_count + 1, sizeof *claims), one;
    char error[256] = "no memory";
    weir_status status = claims ? WEIR_OK : WEIR_E_MEMORY;
    for (int i = 0; !status && i < call->in_count; i++)
        claims[i] = l->claims[local_operand(l, &l->kernel->in, (uint32_t)i)];
    if (!status && !one_tensor(claims, call->in_count, &one, error, sizeof error))
        status = WEIR_E_WRONG;
    if (!status)
        status = claim_convert(&one, &l->pool, call, claims, error, sizeof error);
    free(claims);
    if (status)
        return local_error(l, status, "%s", error);
    if (one.tensor && one.tensor != &l->unit && !lookup_same_shape(&call->out[0], &one.tensor->type))
        return local_error(l, WEIR_E_WRONG, "its output has another shape than \"%s\"", one.tensor->name);
    const char *layout = strrchr(plan_text(l->plan, l->kernel->name), '>');
    if (!l->suspect && call->out[0].count && !claim_is_whole(&one) && claim_is_one(one.scale) && layout && !strchr(layout, 'P')) {
        l->suspect = l->kernel;
        l->suspected = local_operand(l, &l->kernel->out, 0);
    }
    return local_claim(l, local_operand(l, &l->kernel->out, 0), &one);
}

/* A copy, or a cast of reals. */
weir_status local_hand_on(struct local *l, const rule_call *call)
{
    const claim given = l->claims[local_operand(l, &l->kernel->in, 0)];
    bool same = rule_same_shape(&call->in[0], &call->out[0]) && rule_same_whole(&call->in[0], &call->out[0]);
    for (int d = 0; same && d < call->in[0].rank; d++)
        same = call->in[0].start[d] == call->out[0].start[d];
    if (!same)
        return local_error(l, WEIR_E_WRONG, "its output is another part of \"%s\" than its input",
                            given.tensor ? given.tensor->name : "");
    const uint32_t t = local_operand(l, &l->kernel->out, 0);
    const weir_tensor *kept = l->param[t] ? author_kept_named(l->graph, plan_text(l->plan, l->plan->params[l->param[t] - 1].name)) : NULL;
    if (kept && kept->update && given.tensor == lookup_same(l->lookup, kept->update->in[0])) { /* a state is set to it */
        l->updated[t] = claim_is_whole(&given);
        return l->updated[t] ? WEIR_OK : local_error(l, WEIR_E_WRONG, "it writes a part of a sum over \"%s\"", kept->name);
    }
    return local_claim(l, t, &given);
}

/* ---- collectives ---- */

const plan_kernel *local_member(const struct local *l, const plan_collective *of, uint32_t m)
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
    l->kernel = local_member(l, of, m);
    for (uint32_t o = 0; o < l->kernel->out.count; o++) {
        claim sum = {.known = true, .share = field_int(0), .scale = field_int(1)};
        const uint32_t to = local_operand(l, &l->kernel->out, o);
        for (uint32_t from = 0; from < of->members.count; from++) {
            const uint32_t t = local_operand(l, &local_member(l, of, from)->in, o);
            const claim *given = &l->claims[t];
            if ((sum.tensor && given->tensor && sum.tensor != given->tensor) || !is_within(&l->plan->tensors[to], &l->plan->tensors[t]))
                return local_error(l, WEIR_E_WRONG, "it adds values of different tensors or places");
            sum.tensor = given->tensor ? given->tensor : sum.tensor;
            sum.scale = given->tensor ? given->scale : sum.scale;
            sum.share = field_add(sum.share, given->share);
            if (given->cells)
                return local_error(l, WEIR_E_WRONG, "it adds terms of which devices have different parts");
        }
        const weir_status status = local_claim(l, to, &sum);
        if (status)
            return status;
    }
    return WEIR_OK;
}

static weir_status move_make(struct local *l, const plan_collective *of, const plan_move *move)
{
    l->kernel = local_member(l, of, move->to);
    const uint32_t from = local_operand(l, &local_member(l, of, move->from)->in, move->give);
    const uint32_t to = local_operand(l, &l->kernel->out, move->take);
    if (!plan_same_part(&l->plan->tensors[from], &l->plan->tensors[to]))
        return local_error(l, WEIR_E_WRONG, "it takes another part of \"%s\" than it is given",
                            plan_text(l->plan, l->plan->tensors[to].name));
    return local_claim(l, to, &l->claims[from]);
}

weir_status local_collective(struct local *l, const plan_collective *of)
{
    weir_status status = WEIR_OK;
    for (uint32_t m = 0; !status && plan_adds(of) && m < of->members.count; m++)
        status = sum_make(l, of, m);
    for (uint32_t i = of->moves.first; !status && !plan_adds(of) && i < of->moves.first + of->moves.count; i++)
        status = move_make(l, of, &l->plan->moves[i]);
    for (uint32_t m = 0; m < of->members.count; m++)
        l->done[local_member(l, of, m) - l->plan->kernels] = true;
    return status;
}

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
    rule_array *parts = calloc(slot->count + (size_t)1, sizeof *parts), out = rule_array_of(&l->plan->tensors[t]);
    claim *claims = calloc(slot->count + (size_t)1, sizeof *claims), one;
    char error[256];
    int count = 0;
    bool ok = words && parts && claims;
    for (uint32_t u = slot->first; ok && u < slot->first + slot->count; u++) {
        plan_tensor box;
        if (u == t || !l->claims[u].known || !meet(&l->plan->tensors[u], &l->plan->tensors[t], &box))
            continue;
        parts[count] = rule_array_of(&box);
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

bool local_knows(struct local *l, uint32_t t)
{
    const plan_tensor *tensor = &l->plan->tensors[t];
    if (l->claims[t].known || tensor->home != PLAN_IN_REGST)
        return l->claims[t].known;
    const plan_range *slot = &l->plan->regsts[tensor->owner].tensors;
    return slot->count > 1 && put_together(l, t, slot);
}
