/* graph/verify/player.c: see the header. */
#include "graph/verify/player.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"

enum { OPERANDS_MAX = 3 * WEIR_ARGS_MAX };
#define SPOILED 0xff

/* The shadow of an arena. */
struct shadow {
    field_value *at;      /* owned */
    unsigned char *width; /* owned; bytes of the element that begins here, 0: nobody wrote it, SPOILED: inside of another */
    uint64_t cells;
};

struct register_state {
    uint64_t published; /* slots, those of the start among them */
    uint32_t filled;    /* firings into the slot that is filled */
};

struct port_state {
    uint64_t freed; /* slots */
    uint32_t held;  /* firings on the slot that is read */
};

struct player {
    const weir_plan *plan;
    const player_ends *ends;
    uint64_t seed, granule; /* bytes of the smallest element */
    uint64_t garbage;       /* values that nobody wrote are all different */
    struct shadow *shadow;  /* owned; by space */
    struct register_state *regst; /* owned */
    struct port_state *port;      /* owned */
    uint64_t *fired;        /* owned; by actor */
    uint32_t *first, *readers; /* owned; plan_index_readers() */
    uint32_t *collective;   /* owned; by actor: 1 + that it is a member of, or 0 */
    uint32_t *ready;        /* owned; room for all actors */
    rule_array kept;        /* `at` is owned */
    /* of the firing */
    field_value *scratch;   /* owned; the operands' values */
    uint64_t scratch_room, scratch_used;
};

/* ---- memory ---- */

static uint64_t granule_of(const weir_plan *plan)
{
    uint64_t least = 4;
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if (weir_dtype_bytes((weir_dtype)plan->tensors[t].dtype) < least)
            least = weir_dtype_bytes((weir_dtype)plan->tensors[t].dtype);
    return least;
}

static bool shadows_open(player *p)
{
    bool ok = true;
    for (uint32_t s = 0; ok && s < p->plan->spaces_count; s++) {
        struct shadow *shadow = &p->shadow[s];
        shadow->cells = p->plan->spaces[s].bytes / p->granule + 1;
        shadow->at = calloc(shadow->cells, sizeof *shadow->at);
        shadow->width = calloc(shadow->cells, 1);
        ok = shadow->at && shadow->width;
    }
    return ok;
}

/* A value that is equal to no other. */
static field_value nothing(player *p)
{
    const int64_t number = (int64_t)p->garbage++;
    return field_draw(p->seed, "nobody wrote this", &number, 1);
}

/* Where a tensor lies: in which space, from which byte on. `slot`: of its register. */
static uint64_t place_of(const weir_plan *plan, const plan_tensor *tensor, uint32_t slot)
{
    if (tensor->home == PLAN_IN_REGST) {
        const plan_regst *regst = &plan->regsts[tensor->owner];
        return regst->offset + slot * regst->slot_bytes + tensor->offset;
    }
    const plan_queue *queue = &plan->queues[plan->actors[tensor->owner].queue.i];
    return tensor->offset + (tensor->home == PLAN_IN_TEMP ? queue->workspace_offset : 0);
}

static void load(player *p, const plan_tensor *tensor, uint32_t slot, const rule_array *array)
{
    const struct shadow *shadow = &p->shadow[plan_tensor_space(p->plan, tensor).i];
    const uint64_t bytes = weir_dtype_bytes(array->dtype), step = bytes / p->granule;
    uint64_t cell = place_of(p->plan, tensor, slot) / p->granule;
    for (int64_t n = 0; n < array->count; n++, cell += step)
        array->at[n] = shadow->width[cell] == bytes ? shadow->at[cell] : nothing(p);
}

static void store(player *p, const plan_tensor *tensor, uint32_t slot, const rule_array *array)
{
    struct shadow *shadow = &p->shadow[plan_tensor_space(p->plan, tensor).i];
    const uint64_t bytes = weir_dtype_bytes(array->dtype), step = bytes / p->granule;
    uint64_t cell = place_of(p->plan, tensor, slot) / p->granule;
    for (int64_t n = 0; n < array->count; n++, cell += step) {
        shadow->at[cell] = array->at[n];
        memset(shadow->width + cell, SPOILED, step);
        shadow->width[cell] = (unsigned char)bytes;
    }
}

/* Values of an operand, which last until the firing is over. NULL: no memory. */
static field_value *scratch_new(player *p, int64_t count)
{
    field_value *at = p->scratch_used + (uint64_t)count <= p->scratch_room ? p->scratch + p->scratch_used : NULL;
    p->scratch_used += (uint64_t)count;
    return at;
}

/* ---- slots ---- */

static uint32_t slot_to_read(const player *p, uint32_t port)
{
    const plan_port *of = &p->plan->ports[port];
    const plan_regst *regst = &p->plan->regsts[of->regst.i];
    if (plan_port_counts(p->plan, of))
        return (uint32_t)(p->port[port].freed % regst->slots);
    const uint64_t published = p->regst[of->regst.i].published;
    return published ? (uint32_t)((published - 1) % regst->slots) : 0;
}

static uint32_t slot_of(const player *p, const plan_operand *operand)
{
    const plan_tensor *tensor = &p->plan->tensors[operand->tensor.i];
    if (tensor->home != PLAN_IN_REGST)
        return 0;
    if (operand->port.i != PLAN_NONE)
        return slot_to_read(p, operand->port.i);
    return (uint32_t)(p->regst[tensor->owner].published % p->plan->regsts[tensor->owner].slots);
}

/* The slots of a register that the slowest reader has freed. */
static uint64_t freed_by_all(const player *p, uint32_t regst)
{
    uint64_t least = p->regst[regst].published;
    for (uint32_t r = p->first[regst]; r < p->first[regst + 1]; r++)
        if (p->port[p->readers[r]].freed < least)
            least = p->port[p->readers[r]].freed;
    return least;
}

static bool may_fire_alone(const player *p, uint32_t actor, uint64_t limit)
{
    const plan_actor *of = &p->plan->actors[actor];
    if (p->fired[actor] >= limit)
        return false;
    for (uint32_t i = of->ports.first; i < of->ports.first + of->ports.count; i++)
        if (plan_port_counts(p->plan, &p->plan->ports[i]) &&
            p->port[i].freed == p->regst[p->plan->ports[i].regst.i].published)
            return false;
    for (uint32_t r = of->regsts.first; r < of->regsts.first + of->regsts.count; r++)
        if (p->regst[r].published - freed_by_all(p, r) == p->plan->regsts[r].slots)
            return false;
    return true;
}

/* Members of a collective fire together. */
static bool may_fire(const player *p, uint32_t actor, const uint64_t *limit)
{
    if (!p->collective[actor])
        return may_fire_alone(p, actor, limit[actor]);
    const plan_range *members = &p->plan->collectives[p->collective[actor] - 1].members;
    bool all = true;
    for (uint32_t m = members->first; all && m < members->first + members->count; m++)
        all = may_fire_alone(p, p->plan->members[m].i, limit[p->plan->members[m].i]);
    return all;
}

static void count_firing(player *p, uint32_t actor)
{
    const plan_actor *of = &p->plan->actors[actor];
    p->fired[actor]++;
    for (uint32_t r = of->regsts.first; r < of->regsts.first + of->regsts.count; r++)
        if (++p->regst[r].filled >= p->plan->regsts[r].fill) {
            p->regst[r].filled = 0;
            p->regst[r].published++;
        }
    for (uint32_t i = of->ports.first; i < of->ports.first + of->ports.count; i++)
        if (plan_port_counts(p->plan, &p->plan->ports[i]) && ++p->port[i].held == p->plan->ports[i].hold) {
            p->port[i].held = 0;
            p->port[i].freed++;
        }
}

/* ---- a firing ---- */

/* Loads the operands of one list. False: no memory. */
static bool operands_load(player *p, const plan_range *range, rule_array *arrays)
{
    for (uint32_t i = 0; i < range->count; i++) {
        const plan_operand *operand = &p->plan->operands[range->first + i];
        const plan_tensor *tensor = &p->plan->tensors[operand->tensor.i];
        arrays[i] = rule_array_of(tensor);
        arrays[i].at = scratch_new(p, arrays[i].count);
        if (!arrays[i].at)
            return false;
        load(p, tensor, slot_of(p, operand), &arrays[i]);
    }
    return true;
}

static void operands_store(player *p, const plan_range *range, const rule_array *arrays)
{
    for (uint32_t i = 0; i < range->count; i++) {
        const plan_operand *operand = &p->plan->operands[range->first + i];
        store(p, &p->plan->tensors[operand->tensor.i], slot_of(p, operand), &arrays[i]);
    }
}

static weir_status kernel_wrong(const player *p, const plan_kernel *kernel, const char *why)
{
    const plan_space *space = &p->plan->spaces[plan_actor_space(p->plan, kernel->actor.i).i];
    return error_set(WEIR_E_WRONG, "%s:%u: %s (%s) on %s: %s", plan_text(p->plan, kernel->file), kernel->line,
                     plan_text(p->plan, kernel->name), plan_text(p->plan, kernel->op), plan_text(p->plan, space->name), why);
}

/* Whether the kernel's first output adds to what is there. */
static bool accumulates(const player *p, const plan_kernel *kernel)
{
    if (!kernel->accumulate || !kernel->out.count)
        return false;
    const plan_tensor *out = &p->plan->tensors[p->plan->operands[kernel->out.first].tensor.i];
    return out->home == PLAN_IN_REGST && p->regst[out->owner].filled > 0;
}

/* The step and the micro-batch of the actor's firing that comes. */
static int64_t step_of(const player *p, uint32_t actor)
{
    return (int64_t)(p->fired[actor] / p->plan->actors[actor].fires);
}
static int micro_of(const player *p, uint32_t actor)
{
    return (int)(p->fired[actor] % p->plan->actors[actor].fires);
}

static void tell_made(const player *p, const plan_kernel *kernel, const rule_array *outs)
{
    for (uint32_t o = 0; p->ends->made && o < kernel->out.count; o++)
        p->ends->made(p->ends->ctx, (uint32_t)(kernel - p->plan->kernels),
                      &p->plan->tensors[p->plan->operands[kernel->out.first + o].tensor.i], step_of(p, kernel->actor.i),
                      micro_of(p, kernel->actor.i), &outs[o]);
}

/* A source or a sink: the program's own. */
static weir_status host_call(player *p, const plan_kernel *kernel, const rule_call *call)
{
    const plan_host *host = &p->plan->hosts[kernel->host];
    const char *name = plan_text(p->plan, host->name);
    if (host->kind == PLAN_SOURCE && !p->ends->give(p->ends->ctx, name, call->step, call->micro, &call->out[0]))
        return kernel_wrong(p, kernel, "the graph has no such input");
    if (host->kind == PLAN_SINK && p->ends->see)
        p->ends->see(p->ends->ctx, name, call->step, call->micro, &call->in[0]);
    return WEIR_OK;
}

static weir_status kernel_fire(player *p, uint32_t k)
{
    const weir_plan *plan = p->plan;
    const plan_kernel *kernel = &plan->kernels[k];
    rule_array arrays[OPERANDS_MAX], *in = arrays, *out = in + kernel->in.count, *state = out + kernel->out.count;
    char error[256] = "the values do not fit";
    p->scratch_used = 0;
    if (kernel->in.count + kernel->out.count + kernel->state.count > OPERANDS_MAX || !operands_load(p, &kernel->in, in) ||
        !operands_load(p, &kernel->out, out) || !operands_load(p, &kernel->state, state))
        return error_set(WEIR_E_MEMORY, "no room for the operands of %s", plan_text(plan, kernel->name));
    const rule_call call = {.op = weir_op_find(plan_text(plan, kernel->op)), .name = plan_text(plan, kernel->name),
                            .words = plan->words + kernel->attrs.first, .in = in, .in_count = (int)kernel->in.count, .out = out,
                            .out_count = (int)kernel->out.count, .state = state, .state_count = (int)kernel->state.count,
                            .key = kernel->key, .step = step_of(p, kernel->actor.i), .micro = micro_of(p, kernel->actor.i),
                            .micros = (int)plan->actors[kernel->actor.i].fires,
                            .accumulate = accumulates(p, kernel), .seed = p->seed, .error = error, .error_bytes = sizeof error};
    weir_status status = WEIR_OK;
    if (kernel->host != PLAN_NONE && p->plan->hosts[kernel->host].kind != PLAN_CALL)
        status = host_call(p, kernel, &call);
    else if (!rule_find(plan_text(plan, kernel->op))(&call))
        status = kernel_wrong(p, kernel, error);
    if (status)
        return status;
    operands_store(p, &kernel->out, out);
    operands_store(p, &kernel->state, state);
    tell_made(p, kernel, out);
    return WEIR_OK;
}

/* ---- the program around the plan ---- */

/* A push gives, and a pull takes, the tensor of its register. */
static weir_status outside_fire(player *p, uint32_t a, const plan_host *host)
{
    const plan_actor *actor = &p->plan->actors[a];
    const bool gives = host->kind == PLAN_PUSH;
    const uint32_t r = gives ? actor->regsts.first : p->plan->ports[actor->ports.first].regst.i;
    const plan_regst *regst = &p->plan->regsts[r];
    const plan_operand operand = {{regst->tensors.first}, {gives ? PLAN_NONE : actor->ports.first}};
    const int64_t step = step_of(p, a);
    const int micro = micro_of(p, a);
    if (!regst->tensors.count)
        return WEIR_OK;
    const plan_tensor *tensor = &p->plan->tensors[operand.tensor.i];
    rule_array array = rule_array_of(tensor);
    p->scratch_used = 0;
    array.at = scratch_new(p, array.count);
    if (!array.at)
        return error_set(WEIR_E_MEMORY, "no room for the value of \"%s\"", plan_text(p->plan, host->name));
    if (gives) {
        if (!p->ends->give(p->ends->ctx, plan_text(p->plan, host->name), step, micro, &array))
            return error_set(WEIR_E_WRONG, "%s:%u: the plan has an input \"%s\", and the graph has none",
                             plan_text(p->plan, host->file), host->line, plan_text(p->plan, host->name));
        store(p, tensor, slot_of(p, &operand), &array);
        return WEIR_OK;
    }
    load(p, tensor, slot_of(p, &operand), &array);
    if (p->ends->see)
        p->ends->see(p->ends->ctx, plan_text(p->plan, host->name), step, micro, &array);
    return WEIR_OK;
}

/* ---- collectives ---- */

static const plan_kernel *member_kernel(const player *p, const plan_collective *of, uint32_t m)
{
    return &p->plan->kernels[plan_member(p->plan, of, m)->kernels.first];
}

/* Loads the inputs of all members, one behind the other; first[m] is where those of member m begin. NULL: no memory. */
static rule_array *given_load(player *p, const plan_collective *of, uint32_t *first)
{
    uint32_t count = 0;
    for (uint32_t m = 0; m < of->members.count; m++) {
        first[m] = count;
        count += member_kernel(p, of, m)->in.count;
    }
    rule_array *given = calloc(count + (size_t)1, sizeof *given);
    bool ok = given != NULL;
    for (uint32_t m = 0; ok && m < of->members.count; m++)
        ok = operands_load(p, &member_kernel(p, of, m)->in, given + first[m]);
    if (ok)
        return given;
    free(given);
    return NULL;
}

/* Output i of a member is the sum of the inputs i of all. */
static void add_given(const plan_collective *of, const rule_array *given, const uint32_t *first, uint32_t i,
                      const rule_array *out)
{
    for (int64_t n = 0; n < out->count; n++) {
        field_value sum = field_int(0);
        for (uint32_t m = 0; m < of->members.count; m++) {
            const rule_array *from = &given[first[m] + i];
            const int64_t place = rule_place(from, out, n);
            sum = place < 0 ? sum : field_add(sum, from->at[place]);
        }
        out->at[n] = sum;
    }
}

static void take_moved(const player *p, const plan_collective *of, const rule_array *given, const uint32_t *first, uint32_t member,
                       const rule_array *outs, uint32_t count)
{
    for (uint32_t i = of->moves.first; i < of->moves.first + of->moves.count; i++) {
        const plan_move *move = &p->plan->moves[i];
        if (move->to != member || move->take >= count)
            continue;
        const rule_array *from = &given[first[move->from] + move->give], *to = &outs[move->take];
        memcpy(to->at, from->at, (size_t)(from->count < to->count ? from->count : to->count) * sizeof *to->at);
    }
}

static weir_status collective_fire(player *p, uint32_t c)
{
    const plan_collective *of = &p->plan->collectives[c];
    uint32_t *first = calloc(of->members.count + (size_t)1, sizeof *first);
    p->scratch_used = 0;
    rule_array *given = first ? given_load(p, of, first) : NULL, outs[WEIR_ARGS_MAX];
    bool ok = given != NULL;
    for (uint32_t m = 0; ok && m < of->members.count; m++) {
        const plan_kernel *kernel = member_kernel(p, of, m);
        const uint64_t used = p->scratch_used;
        ok = operands_load(p, &kernel->out, outs);
        for (uint32_t o = 0; ok && plan_adds(of) && o < kernel->out.count; o++)
            add_given(of, given, first, o, &outs[o]);
        if (ok && !plan_adds(of))
            take_moved(p, of, given, first, m, outs, kernel->out.count);
        if (ok)
            operands_store(p, &kernel->out, outs);
        if (ok)
            tell_made(p, kernel, outs);
        p->scratch_used = used;
    }
    for (uint32_t m = 0; m < of->members.count; m++)
        count_firing(p, p->plan->members[of->members.first + m].i);
    free(given);
    free(first);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no room for what a collective moves");
}

static const plan_host *host_of(const weir_plan *plan, uint32_t actor)
{
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (plan->hosts[h].actor.i == actor)
            return &plan->hosts[h];
    return NULL;
}

static weir_status actor_fire(player *p, uint32_t a)
{
    const plan_actor *actor = &p->plan->actors[a];
    weir_status status = WEIR_OK;
    if (p->collective[a])
        return collective_fire(p, p->collective[a] - 1);
    if (p->plan->queues[actor->queue.i].kind == PLAN_OUTSIDE) {
        const plan_host *host = host_of(p->plan, a);
        status = host ? outside_fire(p, a, host) : WEIR_OK;
    }
    for (uint32_t k = actor->kernels.first; !status && k < actor->kernels.first + actor->kernels.count; k++)
        status = kernel_fire(p, k);
    count_firing(p, a);
    return status;
}

/* ---- an order ---- */

static uint64_t draw(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint32_t find_ready(player *p, uint32_t program, const uint64_t *limit)
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < p->plan->actors_count; a++)
        if (p->plan->actors[a].program.i == program && may_fire(p, a, limit))
            p->ready[count++] = a;
    return count;
}

/* Draws one of the ready. Half of the time it is one of the queue that this order prefers, if there is one: so that runs ahead. */
static uint32_t choose(const player *p, uint32_t count, uint64_t order, uint64_t *random)
{
    const uint32_t favourite = (uint32_t)(order % (p->plan->queues_count ? p->plan->queues_count : 1));
    const uint32_t from = (uint32_t)(draw(random) % count);
    const bool prefers = draw(random) % 2;
    for (uint32_t i = 0; prefers && i < count; i++)
        if (p->plan->actors[p->ready[(from + i) % count]].queue.i == favourite)
            return p->ready[(from + i) % count];
    return p->ready[from];
}

static weir_status nobody_fires(const player *p, uint32_t program, const uint64_t *limit)
{
    for (uint32_t a = 0; a < p->plan->actors_count; a++)
        if (p->plan->actors[a].program.i == program && p->fired[a] < limit[a])
            return error_set(WEIR_E_LIVE, "%s cannot fire, and nobody else can", plan_text(p->plan, p->plan->actors[a].name));
    return WEIR_OK;
}

weir_status player_run(player *p, uint32_t program, int64_t steps, uint64_t order)
{
    uint64_t *limit = calloc(p->plan->actors_count + (size_t)1, sizeof *limit), random = order;
    weir_status status = limit ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory to play %u actors", p->plan->actors_count);
    p->garbage = p->garbage ? p->garbage : order; /* two players have nothing in common that nobody wrote */
    for (uint32_t a = 0; limit && a < p->plan->actors_count; a++)
        limit[a] = p->fired[a] + (uint64_t)steps * p->plan->actors[a].fires;
    for (uint32_t count; !status && (count = find_ready(p, program, limit));) {
        status = actor_fire(p, choose(p, count, order, &random));
        if (p->ends->fired)
            p->ends->fired(p->ends->ctx);
    }
    if (!status)
        status = nobody_fires(p, program, limit);
    free(limit);
    return status;
}

/* ---- open ---- */

static weir_status check_ops(const weir_plan *plan)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!weir_op_find(plan_text(plan, plan->kernels[k].op)))
            return error_set(WEIR_E_UNSUPPORTED, "%s:%u: %s: this program has no op %s", plan_text(plan, plan->kernels[k].file),
                             plan->kernels[k].line, plan_text(plan, plan->kernels[k].name), plan_text(plan, plan->kernels[k].op));
    return WEIR_OK;
}

static uint64_t kernel_room(const weir_plan *plan, uint32_t k)
{
    const plan_range *lists[] = {&plan->kernels[k].in, &plan->kernels[k].out, &plan->kernels[k].state};
    uint64_t room = 0;
    for (int l = 0; l < 3; l++)
        for (uint32_t o = lists[l]->first; o < lists[l]->first + lists[l]->count; o++)
            room += (uint64_t)rule_array_of(&plan->tensors[plan->operands[o].tensor.i]).count;
    return room;
}

/* Elements of all operands of the largest kernel, or collective, or of the largest value that is given or taken. */
static uint64_t scratch_room(const weir_plan *plan)
{
    uint64_t most = 1;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        most = kernel_room(plan, k) > most ? kernel_room(plan, k) : most;
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        uint64_t room = 0;
        for (uint32_t m = 0; m < plan->collectives[c].members.count; m++)
            room += kernel_room(plan, plan_member(plan, &plan->collectives[c], m)->kernels.first);
        most = room > most ? room : most;
    }
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if ((uint64_t)rule_array_of(&plan->tensors[t]).count > most)
            most = (uint64_t)rule_array_of(&plan->tensors[t]).count;
    return most;
}

const char *player_kept_name(const weir_plan *plan, uint32_t tensor)
{
    for (uint32_t i = 0; i < plan->params_count; i++)
        for (uint32_t s = plan->params[i].shards.first; s < plan->params[i].shards.first + plan->params[i].shards.count; s++)
            if (plan->shards[s].i == tensor)
                return plan_text(plan, plan->params[i].name);
    return plan_text(plan, plan->tensors[tensor].name);
}

uint64_t player_bytes(const weir_plan *plan)
{
    uint64_t bytes = 2 * scratch_room(plan) * sizeof(field_value), granule = granule_of(plan);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].bytes / granule * (sizeof(field_value) + 1);
    return bytes;
}

/* Everything that there is before the first step: shards by their names, in all slots that are full. */
static bool fill_kept(player *p)
{
    const weir_plan *plan = p->plan;
    for (uint32_t i = 0; i < plan->inits_count; i++) {
        const plan_tensor *tensor = &plan->tensors[plan->inits[i].tensor.i];
        const uint32_t slots = plan_kept_slots(plan, tensor);
        rule_array array = rule_array_of(tensor);
        p->scratch_used = 0;
        array.at = scratch_new(p, array.count);
        if (!array.at || !p->shadow[plan_tensor_space(plan, tensor).i].at)
            return false;
        p->ends->begin(p->ends->ctx, player_kept_name(plan, plan->inits[i].tensor.i), &array);
        for (uint32_t slot = 0; slot < (slots ? slots : 1); slot++)
            store(p, tensor, slot, &array);
    }
    return true;
}

static bool alloc(player *p)
{
    const weir_plan *plan = p->plan;
    p->granule = granule_of(plan);
    p->shadow = calloc(plan->spaces_count + (size_t)1, sizeof *p->shadow);
    p->regst = calloc(plan->regsts_count + (size_t)1, sizeof *p->regst);
    p->port = calloc(plan->ports_count + (size_t)1, sizeof *p->port);
    p->fired = calloc(plan->actors_count + (size_t)1, sizeof *p->fired);
    p->first = calloc(plan->regsts_count + (size_t)1, sizeof *p->first);
    p->readers = calloc(plan->ports_count + (size_t)1, sizeof *p->readers);
    p->collective = calloc(plan->actors_count + (size_t)1, sizeof *p->collective);
    p->ready = calloc(plan->actors_count + (size_t)1, sizeof *p->ready);
    p->scratch_room = scratch_room(plan);
    p->scratch = calloc(p->scratch_room, sizeof *p->scratch);
    p->kept.at = calloc(p->scratch_room, sizeof *p->kept.at);
    return p->shadow && p->regst && p->port && p->fired && p->first && p->readers && p->collective && p->ready && p->scratch &&
           p->kept.at && shadows_open(p);
}

weir_status player_open(player **to, const weir_plan *plan, uint64_t seed, const player_ends *ends)
{
    weir_status status = check_ops(plan);
    player *p = *to = status ? NULL : calloc(1, sizeof *p);
    if (status)
        return status;
    if (p)
        *p = (player){.plan = plan, .ends = ends, .seed = seed};
    if (!p || !alloc(p)) {
        player_close(p);
        *to = NULL;
        return error_set(WEIR_E_MEMORY, "no memory for the shadow of a plan, %.1f MiB", (double)player_bytes(plan) / 0x1p20);
    }
    plan_index_readers(plan, p->first, p->readers);
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t m = 0; m < plan->collectives[c].members.count; m++)
            p->collective[plan->members[plan->collectives[c].members.first + m].i] = c + 1;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        p->regst[r].published = plan->regsts[r].initial;
    if (fill_kept(p))
        return WEIR_OK;
    player_close(p);
    *to = NULL;
    return error_set(WEIR_E_MEMORY, "no room for what is kept from step to step");
}

void player_close(player *p)
{
    if (!p)
        return;
    for (uint32_t s = 0; p->shadow && s < p->plan->spaces_count; s++) {
        free(p->shadow[s].at);
        free(p->shadow[s].width);
    }
    free(p->shadow);
    free(p->regst);
    free(p->port);
    free(p->fired);
    free(p->first);
    free(p->readers);
    free(p->collective);
    free(p->ready);
    free(p->scratch);
    free(p->kept.at);
    free(p);
}

const rule_array *player_kept(player *p, uint32_t t)
{
    const plan_tensor *tensor = &p->plan->tensors[t];
    field_value *at = p->kept.at;
    uint32_t slot = 0;
    if (tensor->home == PLAN_IN_REGST) {
        const uint64_t published = p->regst[tensor->owner].published;
        slot = published ? (uint32_t)((published - 1) % p->plan->regsts[tensor->owner].slots) : 0;
    }
    p->kept = rule_array_of(tensor);
    p->kept.at = at;
    load(p, tensor, slot, &p->kept);
    return &p->kept;
}
