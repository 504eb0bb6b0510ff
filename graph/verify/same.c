/* graph/verify/same.c: a plan against another plan of the same model. See docs/design/proof.md.
 *
 *     first    n steps of main, then some of each other program, then main again; all that it fetches and keeps goes to a ledger
 *     second   the same, in another order, with the same values; the ledger holds them against the first's
 *
 * The plans are played one after the other, so a proof takes the memory of the larger one. If they differ, both are played again
 * step by step: then the parameter that differs first is known.
 *
 * A step may be cut into other numbers of micro-batches on the two sides. An input or fetch of [rows, ...] that exists once
 * for each micro-batch is then taken for the rows of a step, in order. A fetch that has the same shape in each micro-batch,
 * as a loss, is compared only if both plans have as many micro-batches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/verify/bound.h"
#include "graph/verify/draw.h"
#include "graph/verify/ledger.h"
#include "graph/verify/player.h"
#include "graph/verify/proof.h"
#include "graph/verify/verify.h"

enum { SIDES = 2, TEXT_BYTES = 1024 };

struct comparing {
    const weir_plan *plan[SIDES];
    bound *bounds[SIDES]; /* owned; by tensor */
    proof proof;
    int64_t steps;          /* of main */
    ledger *ledger;         /* owned */
    player *player;         /* owned; of the side that plays */
    int side;
    uint64_t seed;
    bool no_memory;
    char text[TEXT_BYTES];
};

/* ---- inputs and fetches of the two plans ---- */

static bool gives(uint32_t kind)
{
    return kind == PLAN_SOURCE || kind == PLAN_PUSH;
}

static bool takes(uint32_t kind)
{
    return kind == PLAN_SINK || kind == PLAN_PULL;
}

/* The end of this name, of a kind; NULL: the plan has none. */
static const plan_host *end_named(const weir_plan *plan, const char *name, bool (*is)(uint32_t kind), weir_host_info *info)
{
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (is(plan->hosts[h].kind) && !strcmp(plan_text(plan, plan->hosts[h].name), name))
            return weir_plan_host(plan, (int)h, info) ? NULL : &plan->hosts[h];
    return NULL;
}

/* How the values of two ends are those of one step. */
typedef enum joint {
    BY_MICRO, /* each micro-batch by itself */
    BY_ROW,   /* rows of all micro-batches together */
    APART,    /* the plans have other numbers of micro-batches, and these are values of each */
    UNLIKE    /* they cannot be values of one step */
} joint;

/* Values that it gives or takes in a step; -1: more than there can be. */
static int64_t values_in_step(const weir_host_info *end)
{
    int64_t values;
    return __builtin_mul_overflow(weir_shape_count(&end->type.shape), (int64_t)end->per_step, &values) ? -1 : values;
}

static joint joint_of(const weir_host_info *a, const weir_host_info *b)
{
    const weir_shape *x = &a->type.shape, *y = &b->type.shape;
    bool inner = x->rank == y->rank;
    for (int d = 1; inner && d < x->rank; d++)
        inner = x->dim[d] == y->dim[d];
    if (a->per_step == b->per_step)
        return weir_shape_equal(x, y) ? BY_MICRO : UNLIKE;
    const bool whole = inner && x->rank && values_in_step(a) > 0 && values_in_step(a) == values_in_step(b);
    return whole ? BY_ROW : APART;
}

static weir_status input_is_unlike(const struct comparing *c, const weir_host_info *a, const weir_host_info *b)
{
    const long long in_a = values_in_step(a), in_b = values_in_step(b);
    char how[128] = "has rows of two sizes in the plans";
    if (in_a != in_b)
        snprintf(how, sizeof how, "has %lld values in a step of the first plan, and %lld in a step of the second", in_a, in_b);
    return proof_refuse(&c->proof, WEIR_E_ARGUMENT, "the input \"%s\" %s; compile both for the same rows in a step, or compare one "
                        "program alone with .program", a->name, how);
}

static bool is_run(const struct comparing *c, const weir_plan *plan, const plan_host *host)
{
    return proof_runs(&c->proof, plan, plan->actors[host->actor.i].program.i);
}

/* Whether each input of a side is one of the other's. */
static weir_status check_inputs(struct comparing *c, int side)
{
    const weir_plan *plan = c->plan[side], *other = c->plan[!side];
    for (uint32_t h = 0; h < plan->hosts_count; h++) {
        weir_host_info a, b;
        if (!gives(plan->hosts[h].kind) || !is_run(c, plan, &plan->hosts[h]) || weir_plan_host(plan, (int)h, &a))
            continue;
        if (!end_named(other, a.name, gives, &b))
            return error_set(WEIR_E_WRONG, "%s:%u: the %s plan has the input \"%s\", and the other does not",
                             plan_text(plan, plan->hosts[h].file), plan->hosts[h].line, side ? "second" : "first", a.name);
        if (joint_of(&a, &b) != BY_MICRO && joint_of(&a, &b) != BY_ROW)
            return side ? input_is_unlike(c, &b, &a) : input_is_unlike(c, &a, &b);
    }
    return WEIR_OK;
}

static weir_status check_programs(const struct comparing *c, int side)
{
    const weir_plan *plan = c->plan[side], *other = c->plan[!side];
    for (uint32_t p = 0; p < plan->programs_count; p++) {
        const char *name = plan_text(plan, plan->programs[p].name);
        bool found = !proof_runs(&c->proof, plan, p);
        for (uint32_t o = 0; !found && o < other->programs_count; o++)
            found = !strcmp(plan_text(other, other->programs[o].name), name);
        if (!found)
            return error_set(WEIR_E_WRONG, "the %s plan has the program \"%s\", and the other does not", side ? "second" : "first",
                             name);
    }
    return WEIR_OK;
}

/* Whether one of the operands is no whole tensor. */
static bool has_shards(const weir_plan *plan, const plan_range *operands)
{
    bool has = false;
    for (uint32_t o = operands->first; o < operands->first + operands->count; o++) {
        const plan_tensor *tensor = &plan->tensors[plan->operands[o].tensor.i];
        for (uint32_t d = 0; d < tensor->rank; d++)
            has |= tensor->shape[d] != tensor->global[d];
    }
    return has;
}

/* A function of the program's is a random one of all that it reads; of one that is split by hand only its author knows of what. */
static weir_status check_calls(const weir_plan *plan)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        if (!strcmp(plan_text(plan, kernel->op), "call") && (has_shards(plan, &kernel->in) || has_shards(plan, &kernel->out)))
            return error_set(WEIR_E_UNSUPPORTED, "%s:%u: %s: a call that is split by hand cannot be verified",
                             plan_text(plan, kernel->file), kernel->line, plan_text(plan, kernel->name));
    }
    return WEIR_OK;
}

static const plan_param *param_named(const weir_plan *plan, const char *name)
{
    for (uint32_t p = 0; p < plan->params_count; p++)
        if (!strcmp(plan_text(plan, plan->params[p].name), name))
            return &plan->params[p];
    return NULL;
}

/* A plan in f16 has the scale of the loss, and counts skipped steps there and not at the norm of the gradients. */
static bool is_of_precision(const struct comparing *c, int side, const char *name)
{
    return (proof_is_compilers_own(name) || strstr(name, PLAN_SKIPPED)) && !param_named(c->plan[!side], name);
}

/* The actor that writes a tensor; PLAN_NONE for a constant's. */
static uint32_t writer_of(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST ? plan->regsts[tensor->owner].producer.i : tensor->owner;
}

/* Whether a program that is run changes the value. */
static bool is_changed(const struct comparing *c, const weir_plan *plan, const plan_param *param)
{
    bool changed = false;
    for (uint32_t s = param->shards.first; !changed && s < param->shards.first + param->shards.count; s++) {
        const uint32_t writer = writer_of(plan, &plan->tensors[plan->shards[s].i]);
        changed = writer != PLAN_NONE && proof_runs(&c->proof, plan, plan->actors[writer].program.i);
    }
    return changed;
}

/* Whether a proof of the two says anything: something that changes, or that is fetched, is compared. */
static bool is_compared(const struct comparing *c)
{
    const weir_plan *plan = c->plan[0];
    weir_host_info a, b;
    bool any = false;
    for (uint32_t p = 0; !any && p < plan->params_count; p++)
        any = is_changed(c, plan, &plan->params[p]) && !is_of_precision(c, 0, plan_text(plan, plan->params[p].name));
    for (uint32_t h = 0; !any && h < plan->hosts_count; h++)
        any = takes(plan->hosts[h].kind) && is_run(c, plan, &plan->hosts[h]) && !weir_plan_host(plan, (int)h, &a) &&
              end_named(c->plan[1], a.name, takes, &b) && joint_of(&a, &b) != APART;
    return any;
}

static weir_status check_plans(struct comparing *c)
{
    const weir_plan *a = c->plan[0], *b = c->plan[1];
    weir_status status = WEIR_OK;
    if (a->part || b->part)
        return proof_refuse(&c->proof, WEIR_E_ARGUMENT, "the %s plan is the part of one rank; give the whole plan",
                            a->part ? "first" : "second");
    if (a->graph != b->graph)
        return proof_refuse(&c->proof, WEIR_E_ARGUMENT, "\"%s\" and \"%s\" are plans of two models: their parameters, or the ops "
                            "of their forward passes, have other names or shapes",
                            plan_text(a, a->name), plan_text(b, b->name));
    for (int side = 0; !status && side < SIDES; side++) {
        status = proof_check_program(&c->proof, c->plan[side]);
        status = status ? status : check_programs(c, side);
        status = status ? status : check_inputs(c, side);
        status = status ? status : check_calls(c->plan[side]);
    }
    if (!status && !is_compared(c))
        status = proof_refuse(&c->proof, WEIR_E_UNSUPPORTED, "nothing of the two plans can be compared: they change no parameter "
                              "or state, and fetch values of each micro-batch; compile both with as many micro-batches");
    return status;
}

/* ---- the values that a player is given ---- */

/* The integers that the readers of both plans take from an input. */
static bound bound_of(const struct comparing *c, const char *input)
{
    bound all = bound_none();
    for (int side = 0; side < SIDES; side++)
        for (uint32_t h = 0; h < c->plan[side]->hosts_count; h++) {
            const plan_host *host = &c->plan[side]->hosts[h];
            if (!gives(host->kind) || strcmp(plan_text(c->plan[side], host->name), input))
                continue;
            all = bound_of_both(all, c->bounds[side][plan_host_tensor(c->plan[side], h) - c->plan[side]->tensors]);
        }
    return all;
}

static bool give(void *ctx, const char *input, int64_t step, int micro, const rule_array *array)
{
    const struct comparing *c = ctx;
    draw_input(c->seed, input, step, micro, bound_of(c, input), array);
    return true;
}

static const plan_init *init_named(const weir_plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->inits_count; i++)
        if (!strcmp(player_kept_name(plan, plan->inits[i].tensor.i), name))
            return &plan->inits[i];
    return NULL;
}

/* Integers begin as the first plan says, but for those of optimizers, which count updates. */
static void begin(void *ctx, const char *kept, const rule_array *array)
{
    const struct comparing *c = ctx;
    const plan_param *param = weir_dtype_real(array->dtype) ? NULL : param_named(c->plan[0], kept);
    const bool counts = !param || param->kind == PLAN_KEEP_OPTIMIZER;
    const plan_init *init = counts ? NULL : init_named(c->plan[0], kept);
    const int64_t value = init && init->kind == WEIR_INIT_VALUE ? (int64_t)init->a : 0;
    draw_kept(c->seed, kept, counts ? NULL : &value, array);
}

static void fired(void *ctx)
{
    struct comparing *c = ctx;
    proof_fired(&c->proof);
}

/* ---- the values that are compared ---- */

static void see(void *ctx, const char *name, int64_t step, int micro, const rule_array *array)
{
    struct comparing *c = ctx;
    const weir_plan *plan = c->plan[c->side];
    weir_host_info a, b;
    const plan_host *end = end_named(plan, name, takes, &a);
    if (!end || !end_named(c->plan[!c->side], name, takes, &b))
        return;
    rule_array shard = *array;
    const joint as = joint_of(&a, &b);
    if (as == BY_ROW) {
        shard.start[0] += micro * shard.global[0];
        shard.global[0] *= a.per_step;
    }
    const ledger_value value = {.name = name, .fetch = true, .when = step, .micro = as == BY_ROW ? -1 : micro,
                                .file = plan_text(plan, end->file), .line = end->line};
    if (as != APART && !ledger_put(c->ledger, c->side, &value, &shard))
        c->no_memory = true;
}

/* All that lives from step to step, as it is now. */
static void put_kept(struct comparing *c, int64_t when)
{
    const weir_plan *plan = c->plan[c->side];
    for (uint32_t p = 0; p < plan->params_count && !c->no_memory; p++) {
        const plan_param *param = &plan->params[p];
        const char *name = plan_text(plan, param->name);
        const bool skipped = is_of_precision(c, c->side, name);
        for (uint32_t s = param->shards.first; s < param->shards.first + param->shards.count && !skipped; s++) {
            const plan_tensor *tensor = &plan->tensors[plan->shards[s].i];
            const ledger_value value = {.name = name, .when = when, .lesser = param->kind != PLAN_KEEP_PARAMETER,
                                        .file = plan_text(plan, tensor->file), .line = tensor->line};
            c->no_memory |= !ledger_put(c->ledger, c->side, &value, player_kept(c->player, plan->shards[s].i));
        }
    }
}

/* Whether each shard of plan a begins as the first one of that name in plan b. */
static weir_status compare_inits_with(const weir_plan *a, const weir_plan *b)
{
    for (uint32_t i = 0; i < a->inits_count; i++) {
        const plan_init *x = &a->inits[i];
        const char *name = player_kept_name(a, x->tensor.i);
        const plan_init *y = proof_is_compilers_own(name) ? NULL : init_named(b, name);
        if (!y || (x->kind == y->kind && x->a == y->a && x->b == y->b && x->key == y->key))
            continue;
        const plan_tensor *tensor = &a->tensors[x->tensor.i];
        return error_set(WEIR_E_WRONG, "%s:%u: \"%s\" does not begin alike in both plans%s", plan_text(a, tensor->file), tensor->line,
                         name, a->seed != b->seed ? ", which were compiled with two values of .seed" : "");
    }
    return WEIR_OK;
}

/* How values begin is no matter of values: it is written in the plans. Each may have several shards of a name. */
static weir_status compare_inits(const struct comparing *c)
{
    const weir_status status = compare_inits_with(c->plan[0], c->plan[1]);
    return status ? status : compare_inits_with(c->plan[1], c->plan[0]);
}

/* ---- a round ---- */

static const char *program_name(const weir_plan *plan, uint32_t program)
{
    return plan_text(plan, plan->programs[program].name);
}

static uint32_t program_named(const weir_plan *plan, const char *name)
{
    uint32_t p = 0;
    while (strcmp(program_name(plan, p), name))
        p++;
    return p;
}

/* Runs a program, and puts what it has kept. `when`: steps of all programs that are over then. */
static weir_status run(struct comparing *c, uint32_t program, int64_t steps, int64_t *when, uint64_t order)
{
    const weir_status status = player_run(c->player, program, steps, order + (uint64_t)*when);
    *when += steps;
    if (!status)
        put_kept(c, *when);
    return !status && c->no_memory ? error_set(WEIR_E_MEMORY, "no memory for the values that two plans keep") : status;
}

/* All programs come in the order of the first plan's. */
static weir_status run_all(struct comparing *c, uint64_t order)
{
    const weir_plan *first = c->plan[0], *plan = c->plan[c->side];
    int64_t when = 0;
    weir_status status = WEIR_OK;
    for (uint32_t p = 0; !status && p < first->programs_count; p++)
        if (proof_runs(&c->proof, first, p))
            status = run(c, program_named(plan, program_name(first, p)), p ? PROOF_STEPS : c->steps, &when, order);
    if (!status && plan->programs_count > 1 && !c->proof.opts.program)
        status = run(c, 0, 1, &when, order);
    return status;
}

/* The first program that is run. */
static weir_status run_by_step(struct comparing *c, uint64_t order)
{
    const weir_plan *first = c->plan[0], *plan = c->plan[c->side];
    weir_status status = WEIR_OK;
    uint32_t p = 0;
    while (!proof_runs(&c->proof, first, p))
        p++;
    p = program_named(plan, program_name(first, p));
    for (int64_t when = 0; !status && when < c->steps;)
        status = run(c, p, 1, &when, order);
    return status;
}

/* Plays both plans, and leaves a ledger of what they had. */
static weir_status play(struct comparing *c, const player_ends *ends, weir_status (*runs)(struct comparing *c, uint64_t order))
{
    weir_status status = WEIR_OK;
    ledger_free(c->ledger);
    c->ledger = ledger_new();
    if (!c->ledger)
        return error_set(WEIR_E_MEMORY, "no memory to compare two plans");
    for (c->side = 0; !status && c->side < SIDES; c->side++) {
        const int64_t side = c->side;
        status = player_open(&c->player, c->plan[c->side], c->seed, ends);
        if (!status)
            status = runs(c, field_bits(c->seed, "order of firings", &side, 1));
        player_close(c->player);
        c->player = NULL;
    }
    return status;
}

/* Step by step it shows which parameter differs first. A difference that is there only when steps overlap is not seen so. */
static void find_first(struct comparing *c)
{
    const player_ends ends = {.ctx = c, .give = give, .begin = begin};
    char found[TEXT_BYTES];
    if (!play(c, &ends, run_by_step) && ledger_differs(c->ledger, found, sizeof found))
        memcpy(c->text, found, sizeof found);
}

static weir_status same_round(struct comparing *c, uint64_t seed)
{
    const player_ends ends = {.ctx = c, .give = give, .begin = begin, .see = see, .fired = fired};
    c->seed = seed;
    const weir_status status = play(c, &ends, run_all);
    if (status || !ledger_differs(c->ledger, c->text, sizeof c->text))
        return status;
    find_first(c);
    return error_set(WEIR_E_WRONG, "%s", c->text);
}

/* ---- the call ---- */

static int64_t longest_delay(const weir_plan *plan)
{
    int64_t delay = 0;
    for (uint32_t p = 0; p < plan->params_count; p++) {
        const plan_param *param = &plan->params[p];
        if (param->kind == PLAN_KEEP_STATE && param->shards.count) {
            const int64_t slots = plan_kept_slots(plan, &plan->tensors[plan->shards[param->shards.first].i]);
            delay = slots > delay ? slots : delay;
        }
    }
    return delay;
}

static uint64_t elements_of(const plan_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        count *= (uint64_t)tensor->global[d];
    return count;
}

/* Elements of the values of a plan that are in the ledger at once. */
static uint64_t elements_compared(const weir_plan *plan, int64_t steps)
{
    uint64_t kept = 0, fetched = 0;
    for (uint32_t p = 0; p < plan->params_count; p++)
        if (plan->params[p].shards.count)
            kept += elements_of(&plan->tensors[plan->shards[plan->params[p].shards.first].i]);
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (takes(plan->hosts[h].kind))
            fetched += elements_of(plan_host_tensor(plan, h)) * plan->actors[plan->hosts[h].actor.i].fires;
    return kept * ((uint64_t)steps + plan->programs_count) + fetched * ((uint64_t)steps + 1);
}

static uint64_t bytes_of(const struct comparing *c)
{
    uint64_t most = 0, values = 0, bounds = 0;
    for (int side = 0; side < SIDES; side++) {
        const uint64_t bytes = player_bytes(c->plan[side]), own = ledger_bytes(elements_compared(c->plan[side], c->steps));
        most = bytes > most ? bytes : most;
        values = own > values ? own : values;
        bounds += c->plan[side]->tensors_count * sizeof(bound);
    }
    return most + values + bounds;
}

static weir_status same(struct comparing *c)
{
    weir_status status = compare_inits(c);
    for (int side = 0; side < SIDES; side++) {
        c->bounds[side] = bound_of_tensors(c->plan[side]);
        if (!c->bounds[side] && !status)
            status = error_set(WEIR_E_MEMORY, "no memory to compare two plans");
    }
    for (int round = 0; !status && round < c->proof.opts.rounds; round++)
        status = same_round(c, proof_seed(&c->proof, round));
    ledger_free(c->ledger);
    for (int side = 0; side < SIDES; side++)
        free(c->bounds[side]);
    return status;
}

weir_status weir_plan_same_at(const weir_plan *a, const weir_plan *b, const weir_verify_opts *given)
{
    struct comparing c = {.plan = {a, b}};
    weir_status status = proof_open(&c.proof, given, "weir_plan_same");
    if (status)
        return status;
    if (error_null(a, "weir_plan_same", "first plan") || error_null(b, "weir_plan_same", "second plan"))
        return WEIR_E_ARGUMENT;
    for (int side = 0; side < SIDES; side++)
        c.steps = longest_delay(c.plan[side]) > c.steps ? longest_delay(c.plan[side]) : c.steps;
    c.steps += PROOF_STEPS;
    for (int side = 0; side < SIDES; side++)
        proof_expect(&c.proof, c.plan[side], c.steps);
    status = check_plans(&c);
    if (!status)
        status = proof_may_take(&c.proof, plan_text(a, a->name), bytes_of(&c));
    return status ? status : same(&c);
}
