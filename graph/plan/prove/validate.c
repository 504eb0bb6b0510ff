/* graph/plan/prove/validate.c: is this a plan? A plan may come from a file that somebody made up, so nothing is believed.
 *
 * The order is what makes it safe: first every member by the tables of fields.c (an index is below its array's
 * count, a range inside of its array, an enum one of its values, a text inside of the strings); then who owns what;
 * only then is an index followed. Ranges that refer to one array are disjoint, which also bounds every later loop:
 * going through the ranges of all owners touches no element twice.
 *
 * Time is O(n log n) in the size of the plan, memory O(n); what shares bytes takes more (validate_map.c).
 */
#include "graph/plan/prove/validate.h"

#include "graph/plan/prove/ends.h"

#include "graph/plan/form/fields.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MICRO_BATCHES_MAX (1u << 20)
#define FIRINGS_MAX (1u << 26) /* per step, of all actors: bounds the token game */
#define SLOTS_MAX (1u << 24)   /* of all registers: each costs the session a counter, even when it has no bytes */
#define BYTES_MAX PLAN_BYTES_MAX /* sums over all operands of a kernel do not overflow */
#define TEXT_BYTES_MAX 4096 /* of one text: names are compared */

/* ---- every member by itself ---- */

static bool validate_strings(const weir_plan *plan)
{
    if (!plan->strings_count || plan->strings[0] != '\0')
        return REFUSE_PLAN("strings: do not start with the empty text");
    if (plan->strings[plan->strings_count - 1] != '\0')
        return REFUSE_PLAN("strings: do not end with a zero byte");
    return plan->name.i < plan->strings_count || REFUSE_PLAN("name: %" PRIu32 " of %" PRIu32, plan->name.i, plan->strings_count);
}

static bool validate_graph_strings(const weir_plan *plan)
{
    if (!plan->graph_strings_count)
        return true; /* then no text can be named, so there are no elements that name one */
    return (!plan->graph_strings[0] && !plan->graph_strings[plan->graph_strings_count - 1]) ||
           REFUSE_PLAN("graph_strings: do not start and end with a zero byte");
}

/* How many elements the field's index may choose from; UINT64_MAX: any number will do. */
static uint64_t field_limit(const weir_plan *plan, const plan_field *field)
{
    switch (field->type) {
    case FIELD_U32:
        return field->limit ? field->limit : UINT64_MAX;
    case FIELD_TEXT:
    case FIELD_ID:
        return plan_table_count(plan, &plan_tables[field->array]);
    default:
        return UINT64_MAX;
    }
}

static bool validate_range(const weir_plan *plan, const plan_field *field, const void *item, const char *table,
                           uint32_t index)
{
    uint64_t first = plan_field_get(field, item, 0);
    uint64_t count = plan_field_get(field, item, 1);
    uint64_t limit = plan_table_count(plan, &plan_tables[field->array]);
    if (fits(first, count, limit))
        return true;
    return REFUSE_PLAN("%s[%" PRIu32 "].%s: %" PRIu64 " and %" PRIu64 " from there, of %" PRIu64 " %s", table, index,
                       field->name, first, count, limit, plan_tables[field->array].name);
}

static bool is_too_long(const weir_plan *plan, const plan_field *field, uint64_t place)
{
    const char *texts = plan_table_items(plan, &plan_tables[field->array]);
    return strnlen(texts + place, TEXT_BYTES_MAX) == TEXT_BYTES_MAX;
}

static bool validate_field(const weir_plan *plan, const plan_field *field, const void *item, const char *table,
                           uint32_t index)
{
    if (field->type == FIELD_RANGE)
        return validate_range(plan, field, item, table, index);
    uint64_t limit = field_limit(plan, field);
    uint64_t value = plan_field_get(field, item, 0);
    if (field->type == FIELD_TEXT && value < limit && is_too_long(plan, field, value))
        return REFUSE_PLAN("%s[%" PRIu32 "].%s: longer than %d bytes", table, index, field->name, TEXT_BYTES_MAX);
    if (value < limit || limit == UINT64_MAX || (field->none && value == PLAN_NONE))
        return true;
    return REFUSE_PLAN("%s[%" PRIu32 "].%s: %" PRIu64 " of %" PRIu64, table, index, field->name, value, limit);
}

static bool validate_table(const weir_plan *plan, const plan_table *table)
{
    const char *item = plan_table_items(plan, table);
    uint32_t count = plan_table_count(plan, table);
    for (uint32_t i = 0; i < count; i++, item += table->item_bytes)
        for (uint32_t f = 0; f < table->field_count; f++)
            if (!validate_field(plan, &table->fields[f], item, table->name, i))
                return false;
    return true;
}

static bool validate_scalars(const weir_plan *plan)
{
    if (plan->version != PLAN_VERSION)
        return REFUSE_PLAN("version %" PRIu32 " of plans: this weir reads version %d; compile the graph again", plan->version,
                           PLAN_VERSION);
    if (plan->micro_batches < 1 || plan->micro_batches > MICRO_BATCHES_MAX)
        return REFUSE_PLAN("micro_batches: %" PRIu32 ", must be 1 to %u", plan->micro_batches, MICRO_BATCHES_MAX);
    if (plan->ranks < 1 || plan->ranks > PLAN_RANKS_MAX)
        return REFUSE_PLAN("ranks: %" PRIu32 ", must be 1 to %d", plan->ranks, PLAN_RANKS_MAX);
    if (plan->limits_count > 1)
        return REFUSE_PLAN("limits: %" PRIu32 ", can be one", plan->limits_count);
    if (plan->part > plan->ranks)
        return REFUSE_PLAN("part: %" PRIu32 " of %" PRIu32, plan->part, plan->ranks);
    return plan->part || !plan->whole || REFUSE_PLAN("whole: %016" PRIx64 ", but this is no part", plan->whole);
}

static bool validate_tables(const weir_plan *plan, int first, int end)
{
    bool ok = true;
    for (int t = first; ok && t < end; t++)
        ok = validate_table(plan, &plan_tables[t]);
    return ok;
}

static bool validate_members(const weir_plan *plan)
{
    return validate_scalars(plan) && validate_strings(plan) && validate_tables(plan, 0, PLAN_RUN_ARRAYS);
}

/* ---- who owns what ---- */

/* Marks the elements that the ranges of this field choose from its array; each may be chosen once. */
static bool claim_ranges(const weir_plan *plan, const plan_table *table, const plan_field *field, uint8_t *claimed)
{
    const char *item = plan_table_items(plan, table);
    uint32_t count = plan_table_count(plan, table);
    for (uint32_t i = 0; i < count; i++, item += table->item_bytes) {
        uint32_t first = (uint32_t)plan_field_get(field, item, 0);
        uint32_t chosen = (uint32_t)plan_field_get(field, item, 1);
        for (uint32_t e = first; e < first + chosen; e++) {
            if (claimed[e])
                return REFUSE_PLAN("%s[%" PRIu32 "].%s: %s[%" PRIu32 "] belongs to another", table->name, i,
                                   field->name, plan_tables[field->array].name, e);
            claimed[e] = 1;
        }
    }
    return true;
}

/* All ranges into one array are disjoint. */
static bool claim_array(const weir_plan *plan, plan_array array, uint8_t *claimed)
{
    memset(claimed, 0, plan_table_count(plan, &plan_tables[array]));
    bool ok = true;
    for (int t = 0; t < PLAN_ARRAYS; t++) {
        const plan_table *table = &plan_tables[t];
        for (uint32_t f = 0; ok && f < table->field_count; f++)
            if (table->fields[f].type == FIELD_RANGE && table->fields[f].array == array)
                ok = claim_ranges(plan, table, &table->fields[f], claimed);
    }
    return ok;
}

static bool validate_ranges(const weir_plan *plan, int first, int end, void *scratch)
{
    bool ok = true;
    for (int array = first; ok && array < end; array++)
        ok = claim_array(plan, (plan_array)array, scratch);
    return ok;
}

/* Every member and every move is some collective's. */
static bool validate_collected(const weir_plan *plan)
{
    uint64_t members = 0, moves = 0;
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        members += plan->collectives[c].members.count;
        moves += plan->collectives[c].moves.count;
    }
    return (members == plan->members_count && moves == plan->moves_count) ||
           REFUSE_PLAN("members, moves: %" PRIu64 " and %" PRIu64 " are a collective's, of %" PRIu32 " and %" PRIu32,
                       members, moves, plan->members_count, plan->moves_count);
}

#define REFUSE_STRAY(array, index) REFUSE_PLAN(#array "[%" PRIu32 "]: not in the range of its owner", index)

static bool validate_tensor_owner(const weir_plan *plan, uint32_t t)
{
    const plan_tensor *tensor = &plan->tensors[t];
    bool in_regst = tensor->home == PLAN_IN_REGST;
    uint32_t owners = in_regst ? plan->regsts_count : plan->actors_count;
    if (tensor->owner >= owners)
        return REFUSE_PLAN("tensors[%" PRIu32 "].owner: %" PRIu32 " of %" PRIu32, t, tensor->owner, owners);
    const plan_range *range = in_regst                         ? &plan->regsts[tensor->owner].tensors
                              : tensor->home == PLAN_IN_STATE ? &plan->actors[tensor->owner].states
                                                              : &plan->actors[tensor->owner].temps;
    return range_has(range, t) || REFUSE_STRAY(tensors, t);
}

/* A constant names nobody, so it lies in nobody's range. For all others: ranges are disjoint, and everything lies in
 * the range of the one that it names, so a range has nothing that names another. */
static bool validate_constants(const weir_plan *plan)
{
    for (uint32_t a = 0; a < plan->actors_count; a++)
        for (uint32_t i = 0; i < plan->actors[a].regsts.count; i++)
            if (plan->regsts[plan->actors[a].regsts.first + i].producer.i == PLAN_NONE)
                return REFUSE_PLAN("regsts[%" PRIu32 "].producer: none, but actors[%" PRIu32 "] has it",
                                   plan->actors[a].regsts.first + i, a);
    return true;
}

static bool validate_owners(const weir_plan *plan)
{
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (!range_has(&plan->actors[plan->ports[p].actor.i].ports, p))
            return REFUSE_STRAY(ports, p);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!range_has(&plan->actors[plan->kernels[k].actor.i].kernels, k))
            return REFUSE_STRAY(kernels, k);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].producer.i != PLAN_NONE && !range_has(&plan->actors[plan->regsts[r].producer.i].regsts, r))
            return REFUSE_STRAY(regsts, r);
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if (!validate_tensor_owner(plan, t))
            return false;
    return validate_constants(plan) && validate_collected(plan);
}

/* One port per register and reader. */
static bool validate_ports(const weir_plan *plan, void *scratch)
{
    uint32_t *reader = scratch; /* of each register, the last one seen */
    memset(reader, 0xff, plan->regsts_count * sizeof *reader);
    bool ok = true;
    for (uint32_t p = 0; ok && p < plan->ports_count; p++) {
        uint32_t regst = plan->ports[p].regst.i, actor = plan->ports[p].actor.i;
        if (reader[regst] == actor)
            ok = REFUSE_PLAN("ports[%" PRIu32 "].regst: %" PRIu32 " is read through another port of the actor", p,
                             regst);
        reader[regst] = actor;
    }
    return ok;
}

/* ---- ranks ---- */

/* Nobody writes into another process's memory: what an actor produces lies with its own rank. */
static bool validate_ranks(const weir_plan *plan)
{
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].rank >= plan->ranks)
            return REFUSE_PLAN("spaces[%" PRIu32 "].rank: %" PRIu32 " of %" PRIu32, s, plan->spaces[s].rank,
                               plan->ranks);
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        if (regst->producer.i != PLAN_NONE && plan->spaces[regst->space.i].rank != plan_rank_of(plan, regst->producer.i))
            return REFUSE_PLAN("regsts[%" PRIu32 "].space: %" PRIu32 " is another rank's than its producer", r,
                               regst->space.i);
    }
    return true;
}

/* ---- rates ---- */

static bool validate_fires(const weir_plan *plan)
{
    uint64_t firings = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        uint32_t fires = plan->actors[a].fires;
        if (fires != 1 && fires != plan->micro_batches)
            return REFUSE_PLAN("actors[%" PRIu32 "].fires: %" PRIu32 ", must be 1 or %" PRIu32, a, fires,
                               plan->micro_batches);
        firings += fires;
    }
    return firings <= FIRINGS_MAX ||
           REFUSE_PLAN("actors: fire %" PRIu64 " times a step, of %u at most", firings, FIRINGS_MAX);
}

static bool validate_regst_rate(const weir_plan *plan, uint32_t r)
{
    const plan_regst *regst = &plan->regsts[r];
    if (regst->slots < 1)
        return REFUSE_PLAN("regsts[%" PRIu32 "].slots: 0", r);
    if (regst->initial > regst->slots)
        return REFUSE_PLAN("regsts[%" PRIu32 "].initial: %" PRIu32 " of %" PRIu32 " slots", r, regst->initial,
                           regst->slots);
    if (regst->producer.i == PLAN_NONE)
        return regst->initial || REFUSE_PLAN("regsts[%" PRIu32 "].initial: 0 in a constant", r);
    uint32_t fires = plan->actors[regst->producer.i].fires;
    return (regst->fill && fires % regst->fill == 0) ||
           REFUSE_PLAN("regsts[%" PRIu32 "].fill: %" PRIu32 " does not divide the %" PRIu32 " firings of its producer",
                       r, regst->fill, fires);
}

static bool is_outside(const weir_plan *plan, uint32_t actor)
{
    return plan->queues[plan->actors[actor].queue.i].kind == PLAN_OUTSIDE;
}

/* A register of another program may be read when it is at rest between any two steps of that: it has one slot, which is full
 * then. Actors outside fire whenever the program around likes, so they take no part in it. */
static bool validate_crossing(const weir_plan *plan, uint32_t p)
{
    const plan_port *port = &plan->ports[p];
    const plan_regst *regst = &plan->regsts[port->regst.i];
    if (regst->slots != 1 || regst->initial != 1)
        return REFUSE_PLAN("ports[%" PRIu32 "].regst: %" PRIu32
                           " is another program's, and not one slot that starts full",
                           p, port->regst.i);
    return !(is_outside(plan, port->actor.i) || is_outside(plan, regst->producer.i)) ||
           REFUSE_PLAN("ports[%" PRIu32 "].regst: %" PRIu32 " is another program's, on an outside queue here or there",
                       p, port->regst.i);
}

static bool validate_port_rate(const weir_plan *plan, uint32_t p)
{
    const plan_port *port = &plan->ports[p];
    const plan_regst *regst = &plan->regsts[port->regst.i];
    uint32_t reads = plan->actors[port->actor.i].fires;
    if (!port->hold || reads % port->hold)
        return REFUSE_PLAN("ports[%" PRIu32 "].hold: %" PRIu32 " does not divide the %" PRIu32 " firings of its reader",
                           p, port->hold, reads);
    if (plan_port_crosses(plan, port))
        return validate_crossing(plan, p);
    if (regst->producer.i == PLAN_NONE)
        return true;
    uint32_t published = plan->actors[regst->producer.i].fires / regst->fill;
    return published == reads / port->hold ||
           REFUSE_PLAN("ports[%" PRIu32 "].hold: frees %" PRIu32 " slots a step of register %" PRIu32
                       ", into which %" PRIu32 " are published",
                       p, reads / port->hold, port->regst.i, published);
}

static bool validate_rates(const weir_plan *plan)
{
    bool ok = validate_fires(plan);
    for (uint32_t r = 0; ok && r < plan->regsts_count; r++)
        ok = validate_regst_rate(plan, r);
    for (uint32_t p = 0; ok && p < plan->ports_count; p++)
        ok = validate_port_rate(plan, p);
    return ok;
}

typedef struct turn {
    uint32_t queue, priority, actor;
} turn;

static int compare_turns(const void *a, const void *b)
{
    const turn *x = a, *y = b;
    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    return (x->priority > y->priority) - (x->priority < y->priority);
}

static bool validate_priorities(const weir_plan *plan, void *scratch)
{
    turn *turns = scratch;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        turns[a] = (turn){plan->actors[a].queue.i, plan->actors[a].priority, a};
    qsort(turns, plan->actors_count, sizeof *turns, compare_turns);
    bool ok = true;
    for (uint32_t i = 1; ok && i < plan->actors_count; i++)
        if (compare_turns(&turns[i - 1], &turns[i]) == 0)
            ok = REFUSE_PLAN("actors[%" PRIu32 "].priority: the same as that of actors[%" PRIu32 "] on its queue",
                             turns[i].actor, turns[i - 1].actor);
    return ok;
}

/* ---- memory ---- */

#define ALIGNED(bytes) ((bytes) % PLAN_ALIGN == 0)

static bool validate_dims(const plan_tensor *tensor, uint32_t t)
{
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (tensor->shape[d] < 0 || tensor->start[d] < 0 || tensor->global[d] < 0)
            return REFUSE_PLAN("tensors[%" PRIu32 "]: a negative size in dimension %" PRIu32, t, d);
        if (!fits((uint64_t)tensor->start[d], (uint64_t)tensor->shape[d], (uint64_t)tensor->global[d]))
            return REFUSE_PLAN("tensors[%" PRIu32 "].shape: %" PRId64 " from %" PRId64 " on, of %" PRId64
                               " in dimension %" PRIu32,
                               t, tensor->shape[d], tensor->start[d], tensor->global[d], d);
    }
    return true;
}

/* The product over `dim`, zeros left out so that an empty tensor cannot hide an overflow of a part of it. */
static bool bytes_fit(const plan_tensor *tensor, const int64_t *dim)
{
    uint64_t bytes = weir_dtype_bytes((weir_dtype)tensor->dtype);
    for (uint32_t d = 0; d < tensor->rank; d++)
        if (dim[d] > 0 && (__builtin_mul_overflow(bytes, (uint64_t)dim[d], &bytes) || bytes > BYTES_MAX))
            return false;
    return true;
}

/* The bytes that the tensor's offset counts in. */
static uint64_t home_bytes(const weir_plan *plan, const plan_tensor *tensor)
{
    if (tensor->home == PLAN_IN_REGST)
        return plan->regsts[tensor->owner].slot_bytes;
    const plan_queue *queue = &plan->queues[plan->actors[tensor->owner].queue.i];
    return tensor->home == PLAN_IN_TEMP ? queue->workspace_bytes : plan->spaces[queue->space.i].bytes;
}

static bool validate_tensor(const weir_plan *plan, uint32_t t)
{
    const plan_tensor *tensor = &plan->tensors[t];
    if (tensor->dtype == WEIR_DTYPE_NONE)
        return REFUSE_PLAN("tensors[%" PRIu32 "].dtype: none", t);
    if (!validate_dims(tensor, t))
        return false;
    if (!bytes_fit(tensor, tensor->global) || !bytes_fit(tensor, tensor->shape))
        return REFUSE_PLAN("tensors[%" PRIu32 "].shape: more bytes than there can be", t);
    if (!ALIGNED(tensor->offset))
        return REFUSE_PLAN("tensors[%" PRIu32 "].offset: %" PRIu64 " is not a multiple of %d", t, tensor->offset,
                           PLAN_ALIGN);
    uint64_t bytes = plan_tensor_bytes(tensor), limit = home_bytes(plan, tensor);
    return fits(tensor->offset, bytes, limit) ||
           REFUSE_PLAN("tensors[%" PRIu32 "].offset: %" PRIu64 " bytes at %" PRIu64 ", of %" PRIu64, t, bytes,
                       tensor->offset, limit);
}

static bool validate_regst_bytes(const weir_plan *plan, uint32_t r)
{
    const plan_regst *regst = &plan->regsts[r];
    if (!ALIGNED(regst->offset) || !ALIGNED(regst->slot_bytes))
        return REFUSE_PLAN("regsts[%" PRIu32 "]: offset or slot_bytes is not a multiple of %d", r, PLAN_ALIGN);
    uint64_t bytes, limit = plan->spaces[regst->space.i].bytes;
    if (__builtin_mul_overflow(regst->slots, regst->slot_bytes, &bytes) || !fits(regst->offset, bytes, limit))
        return REFUSE_PLAN("regsts[%" PRIu32 "].offset: %" PRIu32 " slots of %" PRIu64 " bytes at %" PRIu64
                           ", of %" PRIu64,
                           r, regst->slots, regst->slot_bytes, regst->offset, limit);
    return true;
}

static bool validate_queue_bytes(const weir_plan *plan, uint32_t q)
{
    const plan_queue *queue = &plan->queues[q];
    uint64_t limit = plan->spaces[queue->space.i].bytes;
    if (queue->kind == PLAN_OUTSIDE && queue->workspace_bytes)
        return REFUSE_PLAN("queues[%" PRIu32 "].workspace_bytes: nothing runs on an outside queue", q);
    if (!ALIGNED(queue->workspace_offset))
        return REFUSE_PLAN("queues[%" PRIu32 "].workspace_offset: %" PRIu64 " is not a multiple of %d", q,
                           queue->workspace_offset, PLAN_ALIGN);
    return fits(queue->workspace_offset, queue->workspace_bytes, limit) ||
           REFUSE_PLAN("queues[%" PRIu32 "].workspace_offset: %" PRIu64 " bytes at %" PRIu64 ", of %" PRIu64, q,
                       queue->workspace_bytes, queue->workspace_offset, limit);
}

static bool validate_slots(const weir_plan *plan)
{
    uint64_t slots = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        slots += plan->regsts[r].slots;
    return slots <= SLOTS_MAX || REFUSE_PLAN("regsts: have %" PRIu64 " slots, of %u at most", slots, SLOTS_MAX);
}

static bool validate_space_bytes(const weir_plan *plan, uint32_t s)
{
    const plan_space *space = &plan->spaces[s];
    if (space->bytes > BYTES_MAX)
        return REFUSE_PLAN("spaces[%" PRIu32 "].bytes: %" PRIu64 ", more than there can be", s, space->bytes);
    if (!ALIGNED(space->snapshot_offset) || !ALIGNED(space->snapshot_bytes))
        return REFUSE_PLAN("spaces[%" PRIu32 "]: snapshot_offset or snapshot_bytes is not a multiple of %d", s,
                           PLAN_ALIGN);
    return fits(space->snapshot_offset, space->snapshot_bytes, space->bytes) ||
           REFUSE_PLAN("spaces[%" PRIu32 "].snapshot_offset: %" PRIu64 " bytes at %" PRIu64 ", of %" PRIu64, s,
                       space->snapshot_bytes, space->snapshot_offset, space->bytes);
}

static bool validate_sizes(const weir_plan *plan)
{
    bool ok = true;
    for (uint32_t s = 0; ok && s < plan->spaces_count; s++)
        ok = validate_space_bytes(plan, s);
    for (uint32_t q = 0; ok && q < plan->queues_count; q++)
        ok = validate_queue_bytes(plan, q);
    for (uint32_t r = 0; ok && r < plan->regsts_count; r++)
        ok = validate_regst_bytes(plan, r);
    for (uint32_t t = 0; ok && t < plan->tensors_count; t++)
        ok = validate_tensor(plan, t);
    return ok && validate_slots(plan);
}

/* ---- no more memory than there are contents ---- */

static bool validate_slot_ends(const weir_plan *plan)
{
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].slot_bytes != plan_slot_end(plan, r) && plan_knows_space(plan, plan->regsts[r].space))
            return REFUSE_PLAN("regsts[%" PRIu32 "].slot_bytes: %" PRIu64 ", but its contents end at %" PRIu64, r,
                               plan->regsts[r].slot_bytes, plan_slot_end(plan, r));
    return true;
}

static bool validate_workspace_ends(const weir_plan *plan, uint64_t *end)
{
    plan_workspace_ends(plan, end);
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan->queues[q].workspace_bytes != end[q] && plan_knows_space(plan, plan->queues[q].space))
            return REFUSE_PLAN("queues[%" PRIu32 "].workspace_bytes: %" PRIu64 ", but its contents end at %" PRIu64, q,
                               plan->queues[q].workspace_bytes, end[q]);
    return true;
}

static bool validate_space_ends(const weir_plan *plan, uint64_t *end)
{
    plan_space_ends(plan, end);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].bytes != end[s] && plan_knows_space(plan, (plan_space_id){s}))
            return REFUSE_PLAN("spaces[%" PRIu32 "].bytes: %" PRIu64 ", but its contents end at %" PRIu64, s,
                               plan->spaces[s].bytes, end[s]);
    return true;
}

static bool validate_ends(const weir_plan *plan, uint64_t *scratch)
{
    return validate_slot_ends(plan) && validate_workspace_ends(plan, scratch) && validate_space_ends(plan, scratch);
}

/* The most that any one rule needs: they run one after the other. A named place is the largest thing that is sorted by
 * name, a part of an arena the largest by place; marks are a byte or an index each. */
static size_t scratch_bytes(const weir_plan *plan)
{
    size_t most = validate_map_bytes(plan);
    size_t needs[] = {sizeof(turn) * plan->actors_count, sizeof(validate_name) * plan->params_count,
                      sizeof(validate_name) * plan->programs_count, sizeof(uint64_t) * plan->spaces_count, sizeof(uint64_t) * plan->queues_count,
                      sizeof(validate_name) * plan->hosts_count, validate_collectives_bytes(plan),
                      validate_graph_bytes(plan)};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        most = needs[i] > most ? needs[i] : most;
    for (int t = 0; t < PLAN_ARRAYS; t++)
        most = plan_table_count(plan, &plan_tables[t]) > most ? plan_table_count(plan, &plan_tables[t]) : most;
    return most + 1;
}

/* The same steps as for what runs: members, ranges, then what only the whole can say. */
static bool validate_graph_table(const weir_plan *plan, void *scratch)
{
    return validate_graph_head(plan) && validate_graph_strings(plan) && validate_tables(plan, PLAN_RUN_ARRAYS, PLAN_ARRAYS) &&
           validate_ranges(plan, PLAN_RUN_ARRAYS, PLAN_ARRAYS, scratch) && validate_graph(plan, scratch);
}

weir_status plan_validate_table(const weir_plan *plan)
{
    void *scratch = malloc(scratch_bytes(plan));
    if (!scratch)
        return error_set(WEIR_E_MEMORY, "no memory to check the plan");
    const bool ok = validate_graph_table(plan, scratch);
    free(scratch);
    return ok ? WEIR_OK : WEIR_E_PLAN;
}

weir_status plan_validate(const weir_plan *plan)
{
    return plan_validate_knowing(plan, NULL);
}

weir_status plan_validate_knowing(const weir_plan *plan, struct lives *known)
{
    void *scratch = malloc(scratch_bytes(plan));
    if (!scratch)
        return error_set(WEIR_E_MEMORY, "no memory to check the plan");
    bool ok = validate_members(plan) && validate_ranges(plan, 0, PLAN_RUN_ARRAYS, scratch) && validate_owners(plan) &&
              validate_ranks(plan) && validate_ports(plan, scratch) && validate_rates(plan) &&
              validate_priorities(plan, scratch) && validate_sizes(plan) && validate_kernels(plan, scratch) &&
              validate_spaces(plan, scratch) && validate_collectives(plan, scratch) && validate_map(plan, known, scratch) && validate_hosts(plan, scratch) &&
              validate_starts(plan, scratch) && validate_programs(plan, scratch) && validate_graph_table(plan, scratch) &&
              validate_ends(plan, scratch);
    free(scratch);
    return ok ? WEIR_OK : WEIR_E_PLAN;
}
