/* graph/plan/prove/validate_kernel.c: are the kernels called with what is theirs?
 *
 * A kernel writes what its actor owns (a register that it produces, a state, a temp) and reads that or a register
 * behind one of the actor's ports. The register protocol then keeps everything else away from those bytes while it
 * runs. Reading from memory of one's own needs someone to have written it in the same firing, or a value from the
 * start; anything else is a mistake in the plan, whatever the bytes are.
 */
#include "graph/base/base.h"
#include "graph/base/dtype.h"
#include "graph/base/names.h"
#include "graph/plan/prove/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME(str) plan_text(plan, plan->str)

typedef struct place {
    const weir_plan *plan;
    uint32_t index; /* of the kernel */
    const plan_kernel *kernel;
    const plan_actor *actor;
    const weir_op *op;
    uint8_t *written; /* per tensor: by a kernel before */
} place;

static const plan_tensor *operand_tensor(const place *at, uint32_t operand)
{
    return &at->plan->tensors[at->plan->operands[operand].tensor.i];
}

/* ---- operands ---- */

static bool own_regst(const place *at, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST && at->plan->regsts[tensor->owner].producer.i == at->kernel->actor.i;
}

static bool own_state_or_temp(const place *at, const plan_tensor *tensor)
{
    return tensor->home != PLAN_IN_REGST && tensor->owner == at->kernel->actor.i;
}

static bool among_outputs(const place *at, uint32_t tensor)
{
    const plan_range *out = &at->kernel->out;
    for (uint32_t o = out->first; o < out->first + out->count; o++)
        if (at->plan->operands[o].tensor.i == tensor)
            return true;
    return false;
}

static bool validate_read_port(const place *at, uint32_t o)
{
    const plan_operand *operand = &at->plan->operands[o];
    const plan_tensor *tensor = operand_tensor(at, o);
    if (!range_has(&at->actor->ports, operand->port.i))
        return REFUSE_KERNEL(at, "operands[%" PRIu32 "].port: %" PRIu32 " is a port of another actor", o,
                             operand->port.i);
    if (tensor->home != PLAN_IN_REGST || tensor->owner != at->plan->ports[operand->port.i].regst.i)
        return REFUSE_KERNEL(at, "operands[%" PRIu32 "].tensor: %" PRIu32 " is not in the register of port %" PRIu32, o,
                             operand->tensor.i, operand->port.i);
    return true;
}

static bool validate_read(const place *at, uint32_t o)
{
    uint32_t t = at->plan->operands[o].tensor.i;
    const plan_tensor *tensor = operand_tensor(at, o);
    if (at->plan->operands[o].port.i != PLAN_NONE)
        return validate_read_port(at, o);
    if (!own_regst(at, tensor) && !own_state_or_temp(at, tensor))
        return REFUSE_KERNEL(at, "operands[%" PRIu32 "].tensor: %" PRIu32 " is another actor's, and no port is named",
                             o, t);
    bool started = tensor->home == PLAN_IN_STATE ||
                   (tensor->home == PLAN_IN_REGST && (at->plan->regsts[tensor->owner].initial || among_outputs(at, t)));
    return started || at->written[t] ||
           REFUSE_KERNEL(at, "operands[%" PRIu32 "].tensor: %" PRIu32 " is read before it is written", o, t);
}

static bool validate_write(const place *at, uint32_t o)
{
    const plan_operand *operand = &at->plan->operands[o];
    const plan_tensor *tensor = operand_tensor(at, o);
    if (operand->port.i != PLAN_NONE)
        return REFUSE_KERNEL(at, "operands[%" PRIu32 "].port: nothing is written through a port", o);
    return own_regst(at, tensor) || own_state_or_temp(at, tensor) ||
           REFUSE_KERNEL(at, "operands[%" PRIu32 "].tensor: %" PRIu32 " is not the actor's to write", o,
                         operand->tensor.i);
}

static bool validate_state_operand(const place *at, uint32_t o)
{
    const plan_tensor *tensor = operand_tensor(at, o);
    return (tensor->home == PLAN_IN_STATE && tensor->owner == at->kernel->actor.i &&
            at->plan->operands[o].port.i == PLAN_NONE) ||
           REFUSE_KERNEL(at, "operands[%" PRIu32 "].tensor: %" PRIu32 " is not a state of the actor", o,
                         at->plan->operands[o].tensor.i);
}

static bool each_operand(const place *at, const plan_range *range, bool (*rule)(const place *at, uint32_t o))
{
    for (uint32_t o = range->first; o < range->first + range->count; o++)
        if (!rule(at, o))
            return false;
    return true;
}

static bool validate_operands(const place *at)
{
    const plan_range *out = &at->kernel->out;
    bool ok = each_operand(at, &at->kernel->in, validate_read) && each_operand(at, out, validate_write) &&
              each_operand(at, &at->kernel->state, validate_state_operand);
    for (uint32_t o = out->first; ok && o < out->first + out->count; o++)
        at->written[at->plan->operands[o].tensor.i] = 1;
    return ok;
}

/* ---- the op ---- */

static bool validate_counts(const place *at)
{
    const weir_op *op = at->op;
    uint32_t in = at->kernel->in.count, out = at->kernel->out.count, words = at->kernel->attrs.count;
    if (in < (uint32_t)op->in_min || in > (uint32_t)op->in_max)
        return REFUSE_KERNEL(at, "%" PRIu32 " inputs, %s takes %d to %d", in, op->name, op->in_min, op->in_max);
    if (out > (uint32_t)op->out_count || (out < (uint32_t)op->out_count && !op->out_fewer))
        return REFUSE_KERNEL(at, "%" PRIu32 " outputs, %s has %d", out, op->name, op->out_count);
    if (words != op->attrs_bytes / 8)
        return REFUSE_KERNEL(at, "%" PRIu32 " attribute words, %s has %zu", words, op->name, op->attrs_bytes / 8);
    if (at->kernel->accumulate && !op->accumulates)
        return REFUSE_KERNEL(at, "%s cannot accumulate", op->name);
    return true;
}

/* The kind of host function that the op calls; PLAN_HOST_KINDS for ops that call none. */
static uint32_t op_host_kind(const char *op)
{
    return !strcmp(op, "source") ? PLAN_SOURCE : !strcmp(op, "sink") ? PLAN_SINK : !strcmp(op, "call") ? PLAN_CALL
                                                                                                      : PLAN_HOST_KINDS;
}

static bool validate_kernel_host(const place *at)
{
    uint32_t wanted = op_host_kind(at->op->name), h = at->kernel->host;
    if (h == PLAN_NONE)
        return wanted == PLAN_HOST_KINDS || REFUSE_KERNEL(at, "%s without a host function", at->op->name);
    const plan_host *host = &at->plan->hosts[h];
    if (host->kind != wanted)
        return REFUSE_KERNEL(at, "host: %" PRIu32 " is not for %s", h, at->op->name);
    return host->actor.i == at->kernel->actor.i ||
           REFUSE_KERNEL(at, "host: %" PRIu32 " is one of another actor", h);
}

static bool validate_kernel_place(const place *at)
{
    const plan_queue *queue = &at->plan->queues[at->actor->queue.i];
    weir_device_kind device = (weir_device_kind)at->plan->spaces[queue->space.i].kind;
    if (queue->kind == PLAN_OUTSIDE)
        return REFUSE_KERNEL(at, "nothing runs on an outside queue");
    if (!op_runs_on(at->op, device) && queue->kind != PLAN_COLLECTIVE)
        return REFUSE_KERNEL(at, "%s has no kernel for %s", at->op->name, device_kind_name(device));
    if (at->kernel->workspace_offset % PLAN_ALIGN ||
        !fits(at->kernel->workspace_offset, at->kernel->workspace_bytes, queue->workspace_bytes))
        return REFUSE_KERNEL(at, "workspace: %" PRIu64 " bytes at %" PRIu64 ", of %" PRIu64,
                             at->kernel->workspace_bytes, at->kernel->workspace_offset, queue->workspace_bytes);
    return true;
}

static bool validate_kernel(const weir_plan *plan, uint32_t k, uint8_t *written)
{
    const plan_kernel *kernel = &plan->kernels[k];
    place at = {plan, k, kernel, &plan->actors[kernel->actor.i], weir_op_find(NAME(kernels[k].op)), written};
    char text[NAMES_TEXT_BYTES];
    if (!at.op)
        return REFUSE_KERNEL(&at, "there is no op %.60s%s", NAME(kernels[k].op),
                             op_near(NAME(kernels[k].op), text, sizeof text));
    return validate_kernel_place(&at) && validate_counts(&at) && validate_kernel_host(&at) && validate_operands(&at) &&
           validate_call(plan, k, at.op);
}

bool validate_kernels(const weir_plan *plan, void *scratch)
{
    memset(scratch, 0, plan->tensors_count);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!validate_kernel(plan, k, scratch))
            return false;
    return true;
}

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
    const validate_name *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

bool validate_names_differ(validate_name *names, uint32_t count, const char *array)
{
    qsort(names, count, sizeof *names, compare_names);
    for (uint32_t i = 1; i < count; i++)
        if (compare_names(&names[i - 1], &names[i]) == 0)
            return REFUSE_PLAN("%s[%" PRIu32 "].name: %.60s is also that of %s[%" PRIu32 "]", array, names[i].index,
                               names[i].name, array, names[i - 1].index);
    return true;
}

/* ---- push and pull ---- */

static bool whole(const plan_tensor *tensor)
{
    for (uint32_t d = 0; d < tensor->rank; d++)
        if (tensor->start[d] || tensor->shape[d] != tensor->global[d])
            return false;
    return true;
}

static bool outside(const plan_host *host)
{
    return host->kind == PLAN_PUSH || host->kind == PLAN_PULL;
}

/* The register that a push fills or a pull empties; PLAN_NONE if the actor is not made for it. */
static uint32_t end_regst(const weir_plan *plan, const plan_host *host)
{
    const plan_actor *actor = &plan->actors[host->actor.i];
    if (host->kind == PLAN_PUSH && !actor->ports.count && actor->regsts.count == 1 &&
        plan->regsts[actor->regsts.first].fill == 1)
        return actor->regsts.first;
    if (host->kind == PLAN_PULL && !actor->regsts.count && actor->ports.count == 1 &&
        plan->ports[actor->ports.first].hold == 1)
        return plan->ports[actor->ports.first].regst.i;
    return PLAN_NONE;
}

static bool validate_end(const weir_plan *plan, uint32_t h)
{
    uint32_t regst = end_regst(plan, &plan->hosts[h]);
    if (regst == PLAN_NONE)
        return REFUSE_PLAN("hosts[%" PRIu32 "] (%.60s): its actor is not one register's, at a rate of one", h,
                           NAME(hosts[h].name));
    uint32_t queue = plan->actors[plan->hosts[h].actor.i].queue.i;
    if (!plan_queue_reaches(plan, queue, plan->regsts[regst].space))
        return REFUSE_PLAN("hosts[%" PRIu32 "] (%.60s): regsts[%" PRIu32
                           "] lies in %.60s, which the host does not reach",
                           h, NAME(hosts[h].name), regst, NAME(spaces[plan->regsts[regst].space.i].name));
    const plan_range *tensors = &plan->regsts[regst].tensors;
    return (tensors->count == 1 && whole(&plan->tensors[tensors->first])) ||
           REFUSE_PLAN("hosts[%" PRIu32 "] (%.60s): regsts[%" PRIu32 "] does not hold one whole tensor", h,
                       NAME(hosts[h].name), regst);
}

static bool validate_host(const weir_plan *plan, uint32_t h)
{
    const plan_host *host = &plan->hosts[h];
    uint32_t queue = plan->queues[plan->actors[host->actor.i].queue.i].kind;
    if (outside(host) != (queue == PLAN_OUTSIDE))
        return REFUSE_PLAN("hosts[%" PRIu32 "].actor: %" PRIu32 " is on the wrong kind of queue", h, host->actor.i);
    return !outside(host) || validate_end(plan, h);
}

static bool runs_here(const weir_plan *plan, uint32_t actor)
{
    return !plan->part || plan_rank_of(plan, actor) == plan->part - 1;
}

/* Every actor outside is the end of exactly one push or pull, or nobody would fire it. Actors of other ranks are fired there:
 * their ends are not in this one's part. */
static bool validate_ends(const weir_plan *plan, uint8_t *has_end)
{
    memset(has_end, 0, plan->actors_count);
    for (uint32_t h = 0; h < plan->hosts_count; h++) {
        uint32_t actor = plan->hosts[h].actor.i;
        if (outside(&plan->hosts[h]) && has_end[actor]++)
            return REFUSE_PLAN("hosts[%" PRIu32 "].actor: %" PRIu32 " is already that of another", h, actor);
    }
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan->queues[plan->actors[a].queue.i].kind == PLAN_OUTSIDE && !has_end[a] && runs_here(plan, a))
            return REFUSE_PLAN("actors[%" PRIu32 "]: on an outside queue, but neither push nor pull", a);
    return true;
}

/* A function is called from one place: the plan's types of what it gives or takes are those of that kernel. */
static bool validate_called(const weir_plan *plan, uint8_t *called)
{
    memset(called, 0, plan->hosts_count);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        uint32_t h = plan->kernels[k].host;
        if (h != PLAN_NONE && called[h]++)
            return REFUSE_PLAN("kernels[%" PRIu32 "].host: %" PRIu32 " is already that of another", k, h);
    }
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (!outside(&plan->hosts[h]) && !called[h])
            return REFUSE_PLAN("hosts[%" PRIu32 "] (%.60s): no kernel calls it", h, NAME(hosts[h].name));
    return true;
}

/* Every rank may have a pull of the same name ... */
static uint32_t pull_rank(const weir_plan *plan, uint32_t h)
{
    return plan->hosts[h].kind == PLAN_PULL ? plan_rank_of(plan, plan->hosts[h].actor.i) : 0;
}

/* ... of the same value. `names` are sorted. */
static bool pulls_agree(const weir_plan *plan, const validate_name *names, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t a = names[i - 1].index, b = names[i].index;
        if (names[i].kind == PLAN_PULL && names[i - 1].kind == PLAN_PULL && !strcmp(names[i - 1].name, names[i].name) &&
            end_regst(plan, &plan->hosts[a]) != end_regst(plan, &plan->hosts[b]))
            return REFUSE_PLAN("hosts[%" PRIu32 "].name: %.60s is also that of hosts[%" PRIu32
                               "], which pulls another value",
                               b, names[i].name, a);
    }
    return true;
}

bool validate_hosts(const weir_plan *plan, void *scratch)
{
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (!validate_host(plan, h))
            return false;
    if (!validate_ends(plan, scratch) || !validate_called(plan, scratch))
        return false;
    validate_name *names = scratch;
    uint32_t count = 0;
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (outside(&plan->hosts[h]))
            names[count++] = (validate_name){NAME(hosts[h].name), plan->hosts[h].kind, h, pull_rank(plan, h)};
    return validate_names_differ(names, count, "hosts") && pulls_agree(plan, names, count);
}

/* ---- parameters and starts ---- */

/* Does the tensor hold a value before anybody has fired? */
static bool has_start(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_STATE ||
           (tensor->home == PLAN_IN_REGST && plan->regsts[tensor->owner].initial > 0);
}

static bool same_global(const plan_tensor *a, const plan_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->global, b->global, a->rank * sizeof *a->global) == 0;
}

/* Nobody writes it. */
static bool is_constant(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST && plan->regsts[tensor->owner].producer.i == PLAN_NONE;
}

static bool validate_param(const weir_plan *plan, uint32_t p)
{
    const plan_range *shards = &plan->params[p].shards;
    const char *name = NAME(params[p].name);
    if (!shards->count)
        return REFUSE_PLAN("params[%" PRIu32 "] (%.60s): has no shards", p, name);
    for (uint32_t s = shards->first; s < shards->first + shards->count; s++) {
        const plan_tensor *tensor = &plan->tensors[plan->shards[s].i];
        if (!has_start(plan, tensor))
            return REFUSE_PLAN("params[%" PRIu32 "] (%.60s): shards[%" PRIu32 "] is neither a state nor starts full", p,
                               name, s);
        if (!same_global(tensor, &plan->tensors[plan->shards[shards->first].i]))
            return REFUSE_PLAN("params[%" PRIu32 "] (%.60s): shards[%" PRIu32 "] is of another tensor", p, name, s);
        if (plan->params[p].frozen && !is_constant(plan, tensor))
            return REFUSE_PLAN("params[%" PRIu32 "] (%.60s): frozen, but shards[%" PRIu32 "] is changed", p, name, s);
    }
    return true;
}

bool validate_start_value(uint32_t kind, double value, uint32_t dtype)
{
    if (kind != WEIR_INIT_VALUE || weir_dtype_real((weir_dtype)dtype))
        return true;
    return value >= dtype_least((weir_dtype)dtype) && value < dtype_end((weir_dtype)dtype);
}

static bool validate_init(const weir_plan *plan, uint32_t i)
{
    const plan_init *init = &plan->inits[i];
    const plan_tensor *tensor = &plan->tensors[init->tensor.i];
    bool random = init->kind == WEIR_INIT_NORMAL || init->kind == WEIR_INIT_UNIFORM;
    if (init->kind == WEIR_INIT_DEFAULT)
        return REFUSE_PLAN("inits[%" PRIu32 "].kind: none", i);
    if (!has_start(plan, tensor))
        return REFUSE_PLAN("inits[%" PRIu32 "].tensor: %" PRIu32 " is neither a state nor starts full", i,
                           init->tensor.i);
    if (random && !weir_dtype_real((weir_dtype)tensor->dtype))
        return REFUSE_PLAN("inits[%" PRIu32 "].kind: random numbers are f32, f16 or bf16, tensors[%" PRIu32 "] is not",
                           i, init->tensor.i);
    if (!validate_start_value(init->kind, init->a, tensor->dtype))
        return REFUSE_PLAN("inits[%" PRIu32 "].a: %g is no %s", i, init->a,
                           weir_dtype_name((weir_dtype)tensor->dtype));
    return (isfinite(init->a) && isfinite(init->b)) || REFUSE_PLAN("inits[%" PRIu32 "]: not a finite number", i);
}

static bool snapshots_are(const weir_plan *plan, const uint64_t *bytes)
{
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].snapshot_bytes && plan->spaces[s].snapshot_bytes != bytes[s])
            return REFUSE_PLAN("spaces[%" PRIu32 "].snapshot_bytes: %" PRIu64 ", but a copy of what is kept takes %" PRIu64,
                               s, plan->spaces[s].snapshot_bytes, bytes[s]);
    return true;
}

static bool validate_snapshots(const weir_plan *plan)
{
    uint32_t s = 0;
    while (s < plan->spaces_count && !plan->spaces[s].snapshot_bytes)
        s++;
    if (s == plan->spaces_count)
        return true;
    uint64_t *bytes = malloc(plan->spaces_count * sizeof *bytes);
    bool ok = bytes ? plan_snapshot_bytes(plan, bytes) == WEIR_OK && snapshots_are(plan, bytes)
                    : error_set(WEIR_E_MEMORY, "no memory to check the plan") == WEIR_OK;
    free(bytes);
    return ok;
}

bool validate_starts(const weir_plan *plan, void *scratch)
{
    validate_name *names = scratch;
    for (uint32_t p = 0; p < plan->params_count; p++) {
        if (!validate_param(plan, p))
            return false;
        names[p] = (validate_name){NAME(params[p].name), 0, p, 0};
    }
    for (uint32_t i = 0; i < plan->inits_count; i++)
        if (!validate_init(plan, i))
            return false;
    return validate_snapshots(plan) && validate_names_differ(names, plan->params_count, "params");
}

bool validate_programs(const weir_plan *plan, void *scratch)
{
    validate_name *names = scratch;
    for (uint32_t p = 0; p < plan->programs_count; p++)
        names[p] = (validate_name){NAME(programs[p].name), 0, p, 0};
    return validate_names_differ(names, plan->programs_count, "programs");
}
