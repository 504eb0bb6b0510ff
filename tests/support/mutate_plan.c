/* tests/support/mutate_plan.c: see the header. */
#define _GNU_SOURCE /* memmem */
#include "tests/support/mutate_plan.h"

#include "graph/base/error.h"
#include "graph/plan/prove/ends.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/lives/window.h"
#include "kernels/common/ops.h"
#include "tests/support/sample_plan.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 4 };

static const char *const op_names[] = {
#define X(name) #name,
    OPS_LIST(X)
#undef X
};
enum { OP_NAMES = sizeof op_names / sizeof *op_names };

uint64_t mutate_draw(uint64_t *random)
{
    uint64_t z = *random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* In 0 .. limit - 1; 0 for a limit of 0. */
static uint32_t below(uint64_t *random, uint32_t limit)
{
    return limit ? (uint32_t)(mutate_draw(random) % limit) : 0;
}

static bool one_in(uint64_t *random, uint32_t count)
{
    return below(random, count) == 0;
}

/* ---- room ---- */

static bool add_names(weir_plan *plan)
{
    for (int i = 0; i < OP_NAMES; i++) {
        uint32_t bytes = (uint32_t)strlen(op_names[i]) + 1;
        char *strings = realloc(plan->strings, plan->strings_count + bytes);
        if (!strings)
            return false;
        memcpy(strings + plan->strings_count, op_names[i], bytes);
        plan->strings = strings;
        plan->strings_count += bytes;
    }
    return true;
}

static void spread(weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        plan->spaces[i].bytes *= ROOM;
    for (uint32_t i = 0; i < plan->queues_count; i++) {
        plan->queues[i].workspace_offset *= ROOM;
        plan->queues[i].workspace_bytes *= ROOM;
    }
    for (uint32_t i = 0; i < plan->regsts_count; i++) {
        plan->regsts[i].offset *= ROOM;
        plan->regsts[i].slot_bytes *= ROOM;
    }
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        plan->tensors[i].offset *= ROOM;
    for (uint32_t i = 0; i < plan->kernels_count; i++)
        plan->kernels[i].workspace_offset *= ROOM;
}

/* The place of a tensor whose register has one slot. */
static uint64_t place_of(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->offset + (tensor->home == PLAN_IN_TEMP
                                 ? plan->queues[plan->actors[tensor->owner].queue.i].workspace_offset
                                 : plan->regsts[tensor->owner].offset);
}

/* A register that lies within a tensor lies in the same place of it again. */
static void put_back(const weir_plan *plan, weir_plan *copy, uint32_t part, uint32_t whole)
{
    const plan_tensor *tensor = &plan->tensors[plan->operands[whole].tensor.i];
    uint32_t r = plan->tensors[plan->operands[part].tensor.i].owner;
    uint64_t at = plan->regsts[r].offset - place_of(plan, tensor);
    copy->regsts[r].offset = place_of(copy, &copy->tensors[plan->operands[whole].tensor.i]) + at;
    copy->regsts[r].slot_bytes = plan->regsts[r].slot_bytes;
}

static void put_windows_back(const weir_plan *plan, weir_plan *copy)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        for (uint32_t o = kernel->in.first; o < kernel->in.first + kernel->in.count; o++)
            if (window_is(plan, k, o))
                put_back(plan, copy, o, kernel->out.first);
            else if (window_is_onto(plan, k, o))
                put_back(plan, copy, kernel->out.first, o);
    }
}

weir_plan *mutate_room(const weir_plan *plan)
{
    weir_plan *copy = plan_copy(plan);
    if (!copy)
        return NULL;
    if (!add_names(copy)) {
        weir_plan_free(copy);
        return NULL;
    }
    spread(copy);
    put_windows_back(plan, copy);
    return copy;
}

/* ---- what to choose from ---- */

static plan_tensor *any_tensor(weir_plan *plan, uint64_t *random)
{
    return &plan->tensors[below(random, plan->tensors_count)];
}

static plan_kernel *any_kernel(weir_plan *plan, uint64_t *random)
{
    return &plan->kernels[below(random, plan->kernels_count)];
}

/* A plan that has been changed before may have wrong indices, so those that are followed here wrap around. */

static uint32_t dims_of(const plan_tensor *tensor)
{
    return tensor->rank < WEIR_DIMS_MAX ? tensor->rank : WEIR_DIMS_MAX;
}

static plan_tensor *operand_tensor(weir_plan *plan, uint32_t operand)
{
    return &plan->tensors[plan->operands[operand % plan->operands_count].tensor.i % plan->tensors_count];
}

/* Operands of a kernel lie together: inputs, outputs, states. */
static plan_range operands_of(const plan_kernel *kernel)
{
    plan_range range = {kernel->in.first, kernel->in.count + kernel->out.count + kernel->state.count};
    range.count = range.count < WEIR_ARGS_MAX ? range.count : WEIR_ARGS_MAX;
    return range;
}

static uint32_t any_operand(const plan_kernel *kernel, uint64_t *random)
{
    plan_range range = operands_of(kernel);
    return range.first + below(random, range.count);
}

static plan_range *any_range(plan_kernel *kernel, uint64_t *random)
{
    plan_range *ranges[] = {&kernel->in, &kernel->out, &kernel->state, &kernel->attrs};
    return ranges[below(random, 4)];
}

static int64_t any_size(int64_t was, uint64_t *random)
{
    switch (below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return (int64_t)((uint64_t)was + 1);
    case 3:
        return (int64_t)((uint64_t)was - 1);
    case 4:
        return (int64_t)((uint64_t)was * 2);
    case 5:
        return was / 2;
    case 6:
        return (int64_t)below(random, 2 * 16);
    default:
        return (int64_t)(mutate_draw(random) >> below(random, 64));
    }
}

static uint64_t any_value(uint64_t was, uint64_t *random)
{
    switch (below(random, 8)) {
    case 0:
        return was + 1;
    case 1:
        return was - 1;
    case 2:
        return below(random, 10);
    case 3:
        return UINT64_C(1) << below(random, 64);
    case 4:
        return UINT64_MAX - below(random, 3);
    case 5:
        return was ^ UINT64_C(1) << below(random, 64);
    case 6:
        return (uint64_t)INT64_MAX + below(random, 2);
    default:
        return 0;
    }
}

/* ---- changes ---- */

static void change_value_of(weir_plan *plan, const plan_table *table, uint64_t *random)
{
    uint32_t count = plan_table_count(plan, table);
    if (!table->fields || !count)
        return;
    const plan_field *field = &table->fields[below(random, table->field_count)];
    void *item = (char *)plan_table_items(plan, table) + below(random, count) * table->item_bytes;
    uint32_t v = below(random, field->values);
    plan_field_set(field, item, v, any_value(plan_field_get(field, item, v), random));
}

static void change_value(weir_plan *plan, uint64_t *random)
{
    change_value_of(plan, &plan_tables[below(random, PLAN_RUN_ARRAYS)], random);
}

/* The whole stays at least as large as the shard. */
static void set_size(plan_tensor *tensor, uint32_t d, int64_t size)
{
    int64_t end;
    tensor->shape[d] = size;
    if (__builtin_add_overflow(tensor->start[d], size, &end))
        end = INT64_MAX;
    if (end > tensor->global[d])
        tensor->global[d] = end;
}

static void change_size(weir_plan *plan, uint64_t *random)
{
    plan_tensor *tensor = any_tensor(plan, random);
    uint32_t d = below(random, dims_of(tensor));
    set_size(tensor, d, any_size(tensor->shape[d], random));
}

static void set_sizes(plan_tensor *tensor, int64_t was, int64_t size)
{
    for (uint32_t d = 0; d < dims_of(tensor); d++)
        if (tensor->shape[d] == was)
            set_size(tensor, d, size);
}

/* One size of one kernel's tensors, or of all tensors; with it, perhaps, words of that value. */
static void change_sizes(weir_plan *plan, uint64_t *random)
{
    const plan_kernel *kernel = any_kernel(plan, random);
    plan_range range = operands_of(kernel);
    const plan_tensor *tensor = operand_tensor(plan, any_operand(kernel, random));
    int64_t was = tensor->shape[below(random, dims_of(tensor))], size = any_size(was, random);
    if (one_in(random, 2))
        for (uint32_t t = 0; t < plan->tensors_count; t++)
            set_sizes(&plan->tensors[t], was, size);
    else
        for (uint32_t i = 0; i < range.count; i++)
            set_sizes(operand_tensor(plan, range.first + i), was, size);
    if (one_in(random, 2))
        for (uint32_t w = 0; w < plan->words_count; w++)
            plan->words[w].i = plan->words[w].i == was ? size : plan->words[w].i;
}

static void change_dtype(weir_plan *plan, uint64_t *random)
{
    plan_range range = operands_of(any_kernel(plan, random));
    uint32_t dtype = 1 + below(random, WEIR_DTYPES - 1);
    if (one_in(random, 2))
        any_tensor(plan, random)->dtype = dtype;
    else
        for (uint32_t i = 0; i < range.count; i++)
            operand_tensor(plan, range.first + i)->dtype = dtype;
}

static void change_rank(weir_plan *plan, uint64_t *random)
{
    plan_tensor *tensor = any_tensor(plan, random);
    if (one_in(random, 2) && tensor->rank < WEIR_DIMS_MAX) {
        tensor->shape[tensor->rank] = tensor->global[tensor->rank] = 1;
        tensor->start[tensor->rank++] = 0;
    } else {
        tensor->rank -= tensor->rank > 0;
    }
}

/* Where the shard lies in the whole. */
static void change_start(weir_plan *plan, uint64_t *random)
{
    plan_tensor *tensor = any_tensor(plan, random);
    uint32_t d = below(random, dims_of(tensor));
    tensor->start[d] = (int64_t)(mutate_draw(random) >> (20 + below(random, 44)));
    tensor->global[d] = 0;
    set_size(tensor, d, tensor->shape[d]);
}

static void change_place(weir_plan *plan, uint64_t *random)
{
    plan_tensor *tensor = any_tensor(plan, random);
    if (one_in(random, 2))
        tensor->offset = any_tensor(plan, random)->offset;
    else
        tensor->offset += PLAN_ALIGN * ((uint64_t)below(random, 9) - 4);
}

/* An operand becomes another one, of the same kernel or of one near by. */
static void change_operand(weir_plan *plan, uint64_t *random)
{
    uint32_t k = below(random, plan->kernels_count);
    uint32_t other = (k + below(random, 5) + plan->kernels_count - 2) % plan->kernels_count;
    uint32_t to = any_operand(&plan->kernels[k], random) % plan->operands_count;
    uint32_t from = any_operand(&plan->kernels[one_in(random, 2) ? k : other], random) % plan->operands_count;
    plan->operands[to].tensor = plan->operands[from].tensor;
    if (!one_in(random, 4))
        plan->operands[to].port = plan->operands[from].port;
}

static void change_word(weir_plan *plan, uint64_t *random)
{
    plan_word *word = &plan->words[below(random, plan->words_count)];
    if (one_in(random, 2))
        word->i = any_size(word->i, random);
    else if (one_in(random, 2))
        word->i = (int64_t)any_value((uint64_t)word->i, random);
    else
        *word = plan->words[below(random, plan->words_count)];
}

static void change_op(weir_plan *plan, uint64_t *random)
{
    char wanted[64];
    const char *name = op_names[below(random, OP_NAMES)];
    size_t bytes = strlen(name) + 2; /* with a zero at both ends */
    wanted[0] = '\0';
    memcpy(wanted + 1, name, bytes - 1);
    const char *found = memmem(plan->strings, plan->strings_count, wanted, bytes);
    if (found)
        any_kernel(plan, random)->op.i = (uint32_t)(found + 1 - plan->strings);
}

/* A range of a kernel without its first or last element. */
static void change_range(weir_plan *plan, uint64_t *random)
{
    plan_range *range = any_range(any_kernel(plan, random), random);
    if (!range->count)
        return;
    range->first += below(random, 2);
    range->count--;
}

static void change_scratch(weir_plan *plan, uint64_t *random)
{
    plan_kernel *kernel = any_kernel(plan, random);
    if (one_in(random, 2))
        kernel->workspace_bytes = (uint64_t)any_size((int64_t)kernel->workspace_bytes, random);
    else
        kernel->workspace_offset += PLAN_ALIGN * ((uint64_t)below(random, 9) - 4);
}

static void change_accumulate(weir_plan *plan, uint64_t *random)
{
    plan_kernel *kernel = any_kernel(plan, random);
    kernel->accumulate = !kernel->accumulate;
}

static void change_slots(weir_plan *plan, uint64_t *random)
{
    plan_regst *regst = &plan->regsts[below(random, plan->regsts_count)];
    uint32_t *value[] = {&regst->slots, &regst->initial, &regst->fill};
    uint32_t *changed = value[below(random, 3)];
    *changed = (uint32_t)any_size(*changed, random);
}

/* A plan that is spread keeps no graph. */
static void drop_table(weir_plan *plan)
{
    for (int t = PLAN_RUN_ARRAYS; t < PLAN_ARRAYS; t++) {
        free(plan_table_items(plan, &plan_tables[t]));
        plan_table_set(plan, &plan_tables[t], NULL, 0);
    }
    plan->table_version = 0;
    plan->table_hash = 0;
}

/* How many ranks there are, whose part it is, or who owns a device. */
static void change_ranks(weir_plan *plan, uint64_t *random)
{
    switch (below(random, 3)) {
    case 0:
        plan->ranks = (uint32_t)any_value(plan->ranks, random);
        break;
    case 1:
        plan->part = below(random, 4);
        plan->whole = plan->part ? mutate_draw(random) : 0;
        break;
    default:
        plan->spaces[below(random, plan->spaces_count)].rank = below(random, plan->ranks);
        break;
    }
    if (plan->ranks > 1 || plan->part)
        drop_table(plan);
}

typedef void (*change)(weir_plan *plan, uint64_t *random);

void mutate_plan(weir_plan *plan, uint64_t *random)
{
    static const change changes[] = {
        change_value, change_size,    change_sizes,   change_sizes, change_dtype,   change_rank,
        change_start, change_place,   change_word,    change_word,  change_op,      change_op,
        change_slots, change_operand, change_operand, change_range, change_scratch, change_accumulate,
        change_ranks};
    if (plan->tensors_count && plan->kernels_count && plan->operands_count && plan->words_count && plan->regsts_count &&
        plan->spaces_count)
        changes[below(random, sizeof changes / sizeof *changes)](plan, random);
}

void mutate_word(weir_plan *plan, uint64_t *random)
{
    change_value(plan, random);
}

/* ---- the table of the graph ---- */

static void change_graph_value(weir_plan *plan, uint64_t *random)
{
    change_value_of(plan, &plan_tables[PLAN_RUN_ARRAYS + below(random, PLAN_ARRAYS - PLAN_RUN_ARRAYS)], random);
}

/* A size of one tensor, or wherever it occurs, in attributes too. */
static void change_graph_sizes(weir_plan *plan, uint64_t *random)
{
    plan_graph_tensor *tensor = &plan->graph_tensors[below(random, plan->graph_tensors_count)];
    const uint32_t d = below(random, tensor->rank < WEIR_DIMS_MAX ? tensor->rank : WEIR_DIMS_MAX);
    const int64_t was = tensor->shape[d], size = any_size(was, random);
    tensor->shape[d] = size;
    for (uint32_t t = one_in(random, 3) ? plan->graph_tensors_count : 0; t < plan->graph_tensors_count; t++)
        for (uint32_t k = 0; k < plan->graph_tensors[t].rank && k < WEIR_DIMS_MAX; k++)
            if (plan->graph_tensors[t].shape[k] == was)
                plan->graph_tensors[t].shape[k] = size;
    for (uint32_t w = one_in(random, 2) ? plan->graph_words_count : 0; w < plan->graph_words_count; w++)
        if (plan->graph_words[w].i == was)
            plan->graph_words[w].i = size;
}

static void change_graph_dtype(weir_plan *plan, uint64_t *random)
{
    const uint32_t dtype = 1 + below(random, WEIR_DTYPES - 1), was = plan->graph_tensors[0].dtype;
    if (one_in(random, 2))
        plan->graph_tensors[below(random, plan->graph_tensors_count)].dtype = dtype;
    else
        for (uint32_t t = 0; t < plan->graph_tensors_count; t++)
            if (plan->graph_tensors[t].dtype == was)
                plan->graph_tensors[t].dtype = dtype;
}

static void change_graph_ref(weir_plan *plan, uint64_t *random)
{
    plan_graph_tensor_id *ref = &plan->graph_refs[below(random, plan->graph_refs_count)];
    ref->i = one_in(random, 2) ? below(random, plan->graph_tensors_count) : plan->graph_refs[below(random, plan->graph_refs_count)].i;
}

static void change_graph_word(weir_plan *plan, uint64_t *random)
{
    plan_word *word = &plan->graph_words[below(random, plan->graph_words_count)];
    if (one_in(random, 2))
        word->i = any_size(word->i, random);
    else
        *word = plan->graph_words[below(random, plan->graph_words_count)];
}

/* A node does as another: its op, its attributes, or its flags. */
static void change_graph_node(weir_plan *plan, uint64_t *random)
{
    plan_graph_node *node = &plan->graph_nodes[below(random, plan->graph_nodes_count)];
    const plan_graph_node *other = &plan->graph_nodes[below(random, plan->graph_nodes_count)];
    switch (below(random, 6)) {
    case 0:
        node->op = other->op;
        break;
    case 1:
        node->op = other->op;
        node->attrs = other->attrs;
        break;
    case 2:
        node->in = other->in;
        break;
    case 3:
        node->micro = !node->micro;
        break;
    case 4:
        node->in.count -= node->in.count > 0;
        break;
    default:
        node->phase = below(random, PLAN_PHASES);
    }
}

void mutate_table(weir_plan *plan, uint64_t *random)
{
    static const change changes[] = {change_graph_value, change_graph_value, change_graph_sizes, change_graph_sizes,
                                     change_graph_dtype, change_graph_ref,   change_graph_ref,   change_graph_word,
                                     change_graph_word,  change_graph_node};
    if (plan->graph_tensors_count && plan->graph_nodes_count && plan->graph_refs_count && plan->graph_words_count)
        changes[below(random, sizeof changes / sizeof *changes)](plan, random);
}

/* ---- without room ---- */

/* The rules about ends come last, so all else is valid when they refuse. */
bool mutate_tighten(weir_plan *plan)
{
    if (plan_validate(plan) == WEIR_OK)
        return true;
    size_t most = plan->queues_count > plan->spaces_count ? plan->queues_count : plan->spaces_count;
    uint64_t *end = strstr(weir_error(), ", but its contents end at ") ? calloc(most + 1, sizeof *end) : NULL;
    if (!end)
        return false;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan_knows_space(plan, plan->regsts[r].space))
            plan->regsts[r].slot_bytes = plan_slot_end(plan, r);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        plan->regsts[r].offset *= plan->regsts[r].slot_bytes > 0; /* one that only says when is nowhere */
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        plan->kernels[k].workspace_offset *= plan->kernels[k].workspace_bytes > 0; /* nothing lies anywhere */
    plan_workspace_ends(plan, end);
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan_knows_space(plan, plan->queues[q].space))
            plan->queues[q].workspace_bytes = end[q];
    for (uint32_t q = 0; q < plan->queues_count; q++)
        plan->queues[q].workspace_offset *= plan->queues[q].workspace_bytes > 0;
    plan_space_ends(plan, end);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan_knows_space(plan, (plan_space_id){s}))
            plan->spaces[s].bytes = end[s];
    free(end);
    plan->hash = plan_hash(plan);
    return plan_validate(plan) == WEIR_OK;
}
