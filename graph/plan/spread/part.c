/* graph/plan/spread/part.c: what one rank needs of a spread plan; spread.h says what that is.
 *
 * First elements are marked, then the marks become new indexes (how many marked ones lie before), then every array is
 * copied: the tables of fields.h say which members are indexes and ranges, so no array needs code of its own. An
 * order is kept, so what lay together still does, and a range keeps those of its elements that are kept.
 *
 *     marked        1  0  0  1  1  0
 *     new index     0  1  1  1  2  3  3        range [2, 2 + 3) -> [1, 1 + 2)
 *
 * Arrays that are the same on all ranks have no marks. Strings are made anew from the texts that are still named.
 */
#include "graph/base/error.h"
#include "graph/plan/form/build.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/spread/spread.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct parting {
    const weir_plan *from;      /* borrowed */
    uint32_t rank;
    plan_builder *b;            /* owned */
    uint32_t *to[PLAN_ARRAYS];  /* owned: marks, then new indexes, one more than elements; NULL: all are kept */
    bool *actors;               /* owned: those with a body */
    bool *read;                 /* owned: registers that an actor of this rank reads */
    callback_binding *bindings;     /* owned, or NULL */
} parting;

static const plan_array filtered[] = {PLAN_ARRAY_tensors, PLAN_ARRAY_kernels, PLAN_ARRAY_operands,
                                      PLAN_ARRAY_words,   PLAN_ARRAY_inits,   PLAN_ARRAY_hosts};
enum { FILTERED = sizeof filtered / sizeof *filtered };

static bool parting_begin(parting *x)
{
    x->b = plan_builder_new();
    x->actors = calloc(x->from->actors_count + (size_t)1, sizeof *x->actors);
    x->read = calloc(x->from->regsts_count + (size_t)1, sizeof *x->read);
    bool ok = x->b && x->actors && x->read;
    for (int i = 0; ok && i < FILTERED; i++) {
        size_t count = plan_table_count(x->from, &plan_tables[filtered[i]]) + (size_t)1;
        x->to[filtered[i]] = calloc(count, sizeof *x->to[filtered[i]]);
        ok = x->to[filtered[i]] != NULL;
    }
    if (ok && x->from->bindings)
        ok = (x->bindings = calloc(x->from->hosts_count + (size_t)1, sizeof *x->bindings)) != NULL;
    return ok || (error_set(WEIR_E_MEMORY, "no memory for the part of rank %" PRIu32, x->rank), false);
}

static void parting_end(parting *x)
{
    plan_builder_free(x->b);
    for (int i = 0; i < FILTERED; i++)
        free(x->to[filtered[i]]);
    free(x->actors);
    free(x->read);
    free(x->bindings);
}

/* ---- marks ---- */

static void mark_range(parting *x, plan_array array, plan_range range)
{
    for (uint32_t i = range.first; i < range.first + range.count; i++)
        x->to[array][i] = 1;
}

static bool own_space(const parting *x, plan_space_id space)
{
    return x->from->spaces[space.i].rank == x->rank;
}

static bool own_tensor(const parting *x, const plan_tensor *tensor)
{
    if (tensor->home == PLAN_IN_REGST)
        return own_space(x, x->from->regsts[tensor->owner].space);
    return plan_rank_of(x->from, tensor->owner) == x->rank;
}

/* The actors of this rank, and those that read from it: what they read is what is sent. */
static void choose_actors(parting *x)
{
    const weir_plan *plan = x->from;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        x->actors[a] = plan_rank_of(plan, a) == x->rank;
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        const plan_port *port = &plan->ports[p];
        x->read[port->regst.i] |= plan_rank_of(plan, port->actor.i) == x->rank;
        x->actors[port->actor.i] |= own_space(x, plan->regsts[port->regst.i].space);
    }
}

static void mark_operands(parting *x, plan_range range)
{
    mark_range(x, PLAN_ARRAY_operands, range);
    for (uint32_t o = range.first; o < range.first + range.count; o++)
        x->to[PLAN_ARRAY_tensors][x->from->operands[o].tensor.i] = 1;
}

static void mark_kernels(parting *x, plan_range range)
{
    mark_range(x, PLAN_ARRAY_kernels, range);
    for (uint32_t k = range.first; k < range.first + range.count; k++) {
        const plan_kernel *kernel = &x->from->kernels[k];
        mark_operands(x, kernel->in);
        mark_operands(x, kernel->out);
        mark_operands(x, kernel->state);
        mark_range(x, PLAN_ARRAY_words, kernel->attrs);
    }
}

/* The body of an actor. Outside there are no kernels: a pull reads its whole register. */
static void mark_actor(parting *x, const plan_actor *actor)
{
    const weir_plan *plan = x->from;
    mark_kernels(x, actor->kernels);
    if (plan->queues[actor->queue.i].kind != PLAN_OUTSIDE)
        return;
    for (uint32_t p = actor->ports.first; p < actor->ports.first + actor->ports.count; p++)
        mark_range(x, PLAN_ARRAY_tensors, plan->regsts[plan->ports[p].regst.i].tensors);
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        mark_range(x, PLAN_ARRAY_tensors, plan->regsts[r].tensors);
}

/* Whether this rank gives the tensor its first value. A constant is never sent, so who reads it makes it too. */
static bool starts_here(const parting *x, const plan_tensor *tensor)
{
    bool constant = tensor->home == PLAN_IN_REGST && x->from->regsts[tensor->owner].producer.i == PLAN_NONE;
    return own_tensor(x, tensor) || (constant && x->read[tensor->owner]);
}

static void mark_all(parting *x)
{
    const weir_plan *plan = x->from;
    choose_actors(x);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (x->actors[a])
            mark_actor(x, &plan->actors[a]);
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        x->to[PLAN_ARRAY_tensors][t] |= own_tensor(x, &plan->tensors[t]);
    for (uint32_t i = 0; i < plan->shards_count; i++)
        x->to[PLAN_ARRAY_tensors][plan->shards[i].i] = 1;
    for (uint32_t i = 0; i < plan->inits_count; i++) {
        uint32_t t = plan->inits[i].tensor.i;
        x->to[PLAN_ARRAY_inits][i] = x->to[PLAN_ARRAY_tensors][t] && starts_here(x, &plan->tensors[t]);
    }
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        x->to[PLAN_ARRAY_hosts][h] = x->actors[plan->hosts[h].actor.i];
}

/* Marks become new indexes. */
static void number_kept(parting *x)
{
    for (int i = 0; i < FILTERED; i++) {
        uint32_t *to = x->to[filtered[i]], next = 0;
        for (uint32_t e = 0; e <= plan_table_count(x->from, &plan_tables[filtered[i]]); e++) {
            uint32_t marked = to[e];
            to[e] = next;
            next += marked;
        }
    }
}

/* ---- the copy ---- */

static bool kept(const parting *x, plan_array array, uint32_t index)
{
    return !x->to[array] || x->to[array][index + 1] > x->to[array][index];
}

static void translate_range(const uint32_t *to, const plan_field *field, void *item)
{
    uint64_t first = plan_field_get(field, item, 0), count = plan_field_get(field, item, 1);
    plan_field_set(field, item, 0, to[first]);
    plan_field_set(field, item, 1, to[first + count] - to[first]);
}

/* Gives the members of an element that name others the new names. */
static void translate(parting *x, plan_array array, void *item)
{
    for (uint32_t f = 0; f < plan_tables[array].field_count; f++) {
        const plan_field *field = &plan_tables[array].fields[f];
        uint64_t value = plan_field_get(field, item, 0);
        const uint32_t *to = field->type == FIELD_ID || field->type == FIELD_RANGE ? x->to[field->array] : NULL;
        if (field->type == FIELD_TEXT)
            plan_field_set(field, item, 0, plan_add_text(x->b, x->from->strings + value).i);
        else if (to && field->type == FIELD_RANGE)
            translate_range(to, field, item);
        else if (to && value != PLAN_NONE)
            plan_field_set(field, item, 0, to[value]);
    }
}

static void copy_kept(parting *x)
{
#define X(type, member)                                                            \
    for (uint32_t i = 0; PLAN_ARRAY_##member != PLAN_ARRAY_strings && i < x->from->member##_count; i++) \
        if (kept(x, PLAN_ARRAY_##member, i)) {                                     \
            type item = x->from->member[i];                                        \
            translate(x, PLAN_ARRAY_##member, &item);                              \
            plan_add_##member(x->b, item);                                         \
        }
    PLAN_RUN_LIST(X)
#undef X
    for (uint32_t h = 0; x->bindings && h < x->from->hosts_count; h++)
        if (kept(x, PLAN_ARRAY_hosts, h))
            x->bindings[x->to[PLAN_ARRAY_hosts][h]] = x->from->bindings[h];
}

static weir_plan *finish(parting *x)
{
    weir_plan *plan = plan_builder_plan(x->b);
    plan->micro_batches = x->from->micro_batches;
    plan->seed = x->from->seed;
    plan->graph = x->from->graph;
    plan->rates = x->from->rates;
    plan->ranks = x->from->ranks;
    plan->part = x->rank + 1;
    plan->whole = x->from->hash;
    plan->name = plan_add_text(x->b, plan_text(x->from, x->from->name));
    plan = plan_builder_finish(x->b, x->bindings);
    x->b = NULL;
    x->bindings = NULL;
    if (plan && plan_validate(plan) == WEIR_OK)
        return plan;
    weir_plan_free(plan);
    return NULL;
}

weir_plan *plan_part(const weir_plan *spread, uint32_t rank)
{
    parting x = {.from = spread, .rank = rank};
    weir_plan *part = NULL;
    if (rank >= spread->ranks || spread->part) {
        error_set(WEIR_E_ARGUMENT, "%s: rank %" PRIu32 " has no part of %s of %" PRIu32 " ranks",
                  plan_text(spread, spread->name), rank, spread->part ? "a part of a plan" : "a plan", spread->ranks);
        return NULL;
    }
    if (parting_begin(&x)) {
        mark_all(&x);
        number_kept(&x);
        copy_kept(&x);
        part = finish(&x);
    }
    parting_end(&x);
    return part;
}
