/* transport/meet/ops.c: ops are found by name, since names are unique in a graph; a table by hash makes that quick.
 *
 * A graph that was changed in one place has other line numbers in all places behind it, and a program that was built in
 * another folder has other file names everywhere. So places are compared last, when nothing else differs: what is
 * reported is the change. Attributes may depend on micro-batches (the seed of the gradient) or devices (slices), so
 * they count only when these are the same.
 */
#include "transport/meet/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/text.h"

/* ---- the list of a plan ---- */

static void copy_text(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from);
}

/* The end of a path says more than its beginning. */
static void copy_end(char *to, size_t bytes, const char *from)
{
    size_t count = strlen(from);
    copy_text(to, bytes, count < bytes ? from : from + count - (bytes - 1));
}

static void add_type(struct text *text, const plan_tensor *tensor, uint64_t *hash)
{
    *hash = hash_more(*hash, &tensor->dtype, sizeof tensor->dtype);
    *hash = hash_more(*hash, &tensor->rank, sizeof tensor->rank);
    text_add(text, "%s [", weir_dtype_name((weir_dtype)tensor->dtype));
    for (uint32_t d = 0; d < tensor->rank && d < WEIR_DIMS_MAX; d++) {
        *hash = hash_more(*hash, &tensor->global[d], sizeof tensor->global[d]);
        text_add(text, d ? ", %" PRId64 : "%" PRId64, tensor->global[d]);
    }
    text_add(text, "]");
}

static void add_operands(struct text *text, const weir_plan *plan, plan_range operands, uint64_t *hash)
{
    for (uint32_t i = 0; i < operands.count; i++) {
        if (i)
            text_add(text, ", ");
        add_type(text, &plan->tensors[plan->operands[operands.first + i].tensor.i], hash);
    }
    *hash = hash_more(*hash, &operands.count, sizeof operands.count);
}

static void op_of_kernel(const weir_plan *plan, const plan_kernel *kernel, struct meet_op *op)
{
    struct text types = {.bytes = op->types, .room = sizeof op->types};
    *op = (struct meet_op){.line = kernel->line > INT32_MAX ? 0 : kernel->line, .types_hash = HASH_START};
    copy_text(op->name, sizeof op->name, plan_text(plan, kernel->name));
    copy_text(op->op, sizeof op->op, plan_text(plan, kernel->op));
    copy_end(op->file, sizeof op->file, plan_text(plan, kernel->file));
    add_operands(&types, plan, kernel->in, &op->types_hash);
    text_add(&types, " -> ");
    add_operands(&types, plan, kernel->out, &op->types_hash);
    op->attrs_hash = hash_more(HASH_START, plan->words + kernel->attrs.first, kernel->attrs.count * sizeof(plan_word));
}

/* A parameter's or state's start has no place in the source of its own. */
static void op_of_init(const weir_plan *plan, const plan_init *init, struct meet_op *op)
{
    const plan_tensor *tensor = &plan->tensors[init->tensor.i];
    struct text types = {.bytes = op->types, .room = sizeof op->types};
    *op = (struct meet_op){.op = "initial value", .types_hash = HASH_START, .attrs_hash = HASH_START};
    copy_text(op->name, sizeof op->name, plan_text(plan, tensor->name));
    add_type(&types, tensor, &op->types_hash);
    op->attrs_hash = hash_more(op->attrs_hash, &init->kind, sizeof init->kind);
    op->attrs_hash = hash_more(op->attrs_hash, &init->a, sizeof init->a);
    op->attrs_hash = hash_more(op->attrs_hash, &init->b, sizeof init->b);
}

weir_status op_list_add(struct op_list *list, const struct meet_op *ops, uint32_t count)
{
    if (count > MEET_OPS_MAX - list->count)
        count = MEET_OPS_MAX - list->count;
    if (count > list->room - list->count) {
        uint32_t room = 2 * list->room > list->count + count ? 2 * list->room : list->count + count + 64;
        struct meet_op *grown = realloc(list->ops, room * sizeof *grown);
        if (!grown)
            return error_set(WEIR_E_MEMORY, "no memory to compare %u ops", list->count + count);
        list->ops = grown;
        list->room = room;
    }
    if (count)
        memcpy(list->ops + list->count, ops, count * sizeof *ops);
    list->count += count;
    return WEIR_OK;
}

void op_list_free(struct op_list *list)
{
    free(list->ops);
    *list = (struct op_list){.ops = NULL};
}

/* Ops of a list by name: an open table of positions + 1, at most half full. */
struct names {
    uint32_t *slots; /* owned */
    uint32_t mask;
};

static bool names_open(struct names *names, uint32_t most)
{
    uint32_t room = 64;
    while (room < 2 * most)
        room *= 2;
    *names = (struct names){calloc(room, sizeof(uint32_t)), room - 1};
    return names->slots != NULL;
}

/* Where the op stands, or would: an update and a start may have a parameter's name, so the kind of op counts, too. */
static uint32_t *names_find(const struct names *names, const struct op_list *list, const char *name, bool starts)
{
    uint32_t slot = (uint32_t)hash_more(HASH_START + starts, name, strlen(name)) & names->mask;
    for (; names->slots[slot]; slot = (slot + 1) & names->mask) {
        const struct meet_op *op = &list->ops[names->slots[slot] - 1];
        if (!strcmp(op->name, name) && starts == !op->file[0])
            break;
    }
    return &names->slots[slot];
}

/* Adds it unless an op of its name is there. */
static weir_status add_once(struct op_list *list, struct names *names, const struct meet_op *op)
{
    uint32_t *slot = names_find(names, list, op->name, !op->file[0]);
    if (*slot || list->count == MEET_OPS_MAX)
        return WEIR_OK;
    weir_status status = op_list_add(list, op, 1);
    if (status == WEIR_OK)
        *slot = list->count;
    return status;
}

static weir_status add_phase(const weir_plan *plan, uint32_t phase, struct op_list *list, struct names *names)
{
    struct meet_op op;
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < plan->kernels_count && status == WEIR_OK; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        if (plan->actors[kernel->actor.i].phase != phase || !strncmp(plan_text(plan, kernel->op), "box", 3))
            continue;
        op_of_kernel(plan, kernel, &op);
        status = add_once(list, names, &op);
    }
    return status;
}

weir_status op_list_of(const weir_plan *plan, struct op_list *list)
{
    struct names names;
    struct meet_op op;
    weir_status status = WEIR_OK;
    *list = (struct op_list){.ops = NULL};
    if (!names_open(&names, MEET_OPS_MAX))
        return error_set(WEIR_E_MEMORY, "no memory to list the plan's ops");
    for (uint32_t phase = 0; phase < PLAN_PHASES && status == WEIR_OK; phase++)
        status = add_phase(plan, phase, list, &names);
    for (uint32_t i = 0; i < plan->inits_count && status == WEIR_OK; i++) {
        op_of_init(plan, &plan->inits[i], &op);
        status = add_once(list, &names, &op);
    }
    free(names.slots);
    if (status != WEIR_OK)
        op_list_free(list);
    return status;
}

struct meet_plan meet_plan_of(const weir_plan *plan)
{
    struct meet_plan described = {.hash = 0};
    if (!plan)
        return described;
    described = (struct meet_plan){.hash = plan->part ? plan->whole : plan->hash,
                              .seed = plan->seed,
                              .rates = plan->rates,
                              .micro_batches = plan->micro_batches,
                              .devices = plan->spaces_count};
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        described.bytes += plan->spaces[s].bytes;
    return described;
}

/* ---- the difference ---- */

/* "linear at model.c:42" */
static void add_place(struct text *text, const struct meet_op *op, uint32_t rank)
{
    if (!op)
        text_add(text, "no such op on rank %u", rank);
    else if (op->file[0])
        text_add(text, "%s at %s:%u on rank %u", op->op, op->file, op->line, rank);
    else
        text_add(text, "%s on rank %u", op->op, rank);
}

/* Why two ops of one kind are not the same. */
static void add_reason(struct text *text, const struct meet_op *a, const struct meet_op *b, uint32_t rank)
{
    if (strcmp(a->op, b->op) != 0)
        return;
    if (a->types_hash != b->types_hash)
        text_add(text, " (shapes differ: %s on rank 0, %s on rank %u)", a->types, b->types, rank);
    else if (a->attrs_hash != b->attrs_hash)
        text_add(text, a->file[0] ? " (attributes differ)" : " (values differ)");
    else
        text_add(text, " (only the places differ)");
}

static void add_op(struct text *text, const struct meet_op *ours, const struct meet_op *theirs, uint32_t rank)
{
    text_add(text, "rank %u's graph is not rank 0's: the first op that differs is \"%s\": ", rank,
             ours ? ours->name : theirs->name);
    add_place(text, ours, 0);
    text_add(text, ", ");
    add_place(text, theirs, rank);
    if (ours && theirs)
        add_reason(text, ours, theirs, rank);
}

static bool does_the_same(const struct meet_op *a, const struct meet_op *b, bool attrs_count)
{
    return !strcmp(a->op, b->op) && a->types_hash == b->types_hash && (!attrs_count || a->attrs_hash == b->attrs_hash);
}

static bool same_place(const struct meet_op *a, const struct meet_op *b)
{
    return a->line == b->line && !strcmp(a->file, b->file);
}

/* One list, and the names of the other. */
struct other {
    const struct op_list *list;
    struct names names;
};

static const struct meet_op *other_find(const struct other *other, const struct meet_op *op)
{
    uint32_t at = *names_find(&other->names, other->list, op->name, !op->file[0]);
    return at ? &other->list->ops[at - 1] : NULL;
}

static bool other_open(struct other *other, const struct op_list *list)
{
    other->list = list;
    if (!names_open(&other->names, list->count))
        return false;
    for (uint32_t i = 0; i < list->count; i++)
        *names_find(&other->names, list, list->ops[i].name, !list->ops[i].file[0]) = i + 1;
    return true;
}

/* The three looks over the lists; false: they are the same. */
static bool add_first_op(struct text *text, const struct other *ours, const struct other *theirs, uint32_t rank,
                         bool attrs_count)
{
    const struct op_list *list = ours->list;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct meet_op *op = other_find(theirs, &list->ops[i]);
        if (!op || !does_the_same(&list->ops[i], op, attrs_count)) {
            add_op(text, &list->ops[i], op, rank);
            return true;
        }
    }
    for (uint32_t i = 0; i < theirs->list->count; i++)
        if (!other_find(ours, &theirs->list->ops[i])) {
            add_op(text, NULL, &theirs->list->ops[i], rank);
            return true;
        }
    for (uint32_t i = 0; i < list->count; i++) {
        const struct meet_op *op = other_find(theirs, &list->ops[i]);
        if (op && !same_place(&list->ops[i], op)) {
            add_op(text, &list->ops[i], op, rank);
            return true;
        }
    }
    return false;
}

static void add_number(struct text *text, const char *name, uint64_t ours, uint64_t theirs, uint32_t rank)
{
    if (ours != theirs)
        text_add(text, ", %s: %" PRIu64 " on rank 0 and %" PRIu64 " on rank %u", name, ours, theirs, rank);
}

/* Each rank compiles with the rates that it is given; 0: none. */
static void add_rates(struct text *text, uint64_t ours, uint64_t theirs, uint32_t rank)
{
    char one[20] = "none", other[20] = "none";
    if (ours == theirs)
        return;
    if (ours)
        text_print(one, sizeof one, "%016" PRIx64, ours);
    if (theirs)
        text_print(other, sizeof other, "%016" PRIx64, theirs);
    text_add(text, ", rates: %s on rank 0 and %s on rank %" PRIu32 "; give all ranks the same, as weir launch --rates RATES does", one, other, rank);
}

static void add_numbers(struct text *text, const struct meet_plan *a, const struct meet_plan *b, uint32_t rank)
{
    size_t before;
    text_add(text, "rank %u has rank 0's graph, but compiled it with other options", rank);
    before = text->used;
    add_number(text, "micro-batches", a->micro_batches, b->micro_batches, rank);
    add_number(text, "seed", a->seed, b->seed, rank);
    add_number(text, "devices", a->devices, b->devices, rank);
    add_rates(text, a->rates, b->rates, rank);
    if (text->used == before)
        add_number(text, "planned bytes (a memory limit?)", a->bytes, b->bytes, rank);
    if (text->used == before)
        text_add(text, " (layouts or names differ)");
}

void difference_text(const struct op_list *ours, const struct meet_plan *our_plan, const struct op_list *theirs,
                     const struct meet_plan *their_plan, uint32_t rank, char bytes[MEET_TEXT_MAX + 1])
{
    struct other us = {.list = NULL}, them = {.list = NULL};
    struct text text = {.bytes = bytes, .room = MEET_TEXT_MAX + 1};
    bool attrs_count = our_plan->micro_batches == their_plan->micro_batches && our_plan->devices == their_plan->devices &&
                       our_plan->rates == their_plan->rates;
    if (!other_open(&us, ours) || !other_open(&them, theirs))
        text_add(&text, "rank %u's graph is not rank 0's (no memory to say in what)", rank);
    else if (!add_first_op(&text, &us, &them, rank, attrs_count))
        add_numbers(&text, our_plan, their_plan, rank);
    free(us.names.slots);
    free(them.names.slots);
}
