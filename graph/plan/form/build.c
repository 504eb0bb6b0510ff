/* graph/plan/form/build.c: see build.h.
 *
 * Arrays double when they are full. Names repeat a lot (an op, a file, a prefix), so texts are interned: an
 * open-addressed table of places in plan->strings, kept at most half full. The table compares the texts themselves, so
 * that a collision of the hash costs time, never correctness.
 */
#include "graph/plan/form/build.h"

#include "graph/base/error.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 16u
#define CAPACITY_MAX (1u << 30) /* elements; doubling stays below PLAN_NONE */

struct plan_builder {
    weir_plan *plan; /* owned */
    bool failed;
    struct {
#define X(type, member) uint32_t member;
        PLAN_ARRAY_LIST(X)
#undef X
    } capacity;
    uint32_t *texts; /* owned: place in strings + 1, or 0 where empty */
    uint32_t texts_count;
    uint32_t texts_capacity; /* a power of two, or 0 */
};

static void *fail(plan_builder *builder)
{
    builder->failed = true;
    error_set(WEIR_E_MEMORY, "no memory for the plan");
    return NULL;
}

/* `array` with room for one more element, perhaps moved; NULL (and the builder failed) when there is none. */
static void *room(plan_builder *builder, void *array, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    if (builder->failed)
        return NULL;
    if (count < *capacity)
        return array;
    if (*capacity >= CAPACITY_MAX)
        return fail(builder);
    uint32_t wanted = *capacity ? *capacity * 2 : CAPACITY_MIN;
    void *moved = realloc(array, wanted * item_bytes);
    if (!moved)
        return fail(builder);
    *capacity = wanted;
    return moved;
}

#define X(type, member)                                                                                             \
    uint32_t plan_add_##member(plan_builder *builder, type value)                                                   \
    {                                                                                                               \
        weir_plan *plan = builder->plan;                                                                            \
        type *array = room(builder, plan->member, plan->member##_count, &builder->capacity.member, sizeof(type));   \
        if (!array)                                                                                                 \
            return PLAN_NONE;                                                                                       \
        plan->member = array;                                                                                       \
        array[plan->member##_count] = value;                                                                        \
        return plan->member##_count++;                                                                              \
    }
PLAN_ARRAY_LIST(X)
#undef X

static uint32_t text_hash(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* The entry of the table that holds `text`, or the empty one where it belongs. */
static uint32_t *text_entry(const plan_builder *builder, const char *text)
{
    uint32_t mask = builder->texts_capacity - 1;
    for (uint32_t i = text_hash(text) & mask;; i = (i + 1) & mask) {
        uint32_t *entry = &builder->texts[i];
        if (!*entry || strcmp(builder->plan->strings + *entry - 1, text) == 0)
            return entry;
    }
}

static bool texts_grow(plan_builder *builder)
{
    if (builder->texts_count * 2 < builder->texts_capacity)
        return true;
    uint32_t *old = builder->texts;
    uint32_t old_capacity = builder->texts_capacity;
    uint32_t wanted = old_capacity ? old_capacity * 2 : 64;
    uint32_t *texts = calloc(wanted, sizeof *texts);
    if (!texts)
        return fail(builder);
    builder->texts = texts;
    builder->texts_capacity = wanted;
    for (uint32_t i = 0; i < old_capacity; i++)
        if (old[i])
            *text_entry(builder, builder->plan->strings + old[i] - 1) = old[i];
    free(old);
    return true;
}

plan_str plan_add_text(plan_builder *builder, const char *text)
{
    if (!text)
        text = "";
    if (builder->failed || !texts_grow(builder))
        return (plan_str){0};
    uint32_t *entry = text_entry(builder, text);
    if (*entry)
        return (plan_str){*entry - 1};
    uint32_t first = builder->plan->strings_count;
    size_t bytes = strlen(text) + 1;
    for (size_t i = 0; i < bytes; i++)
        if (plan_add_strings(builder, text[i]) == PLAN_NONE)
            return (plan_str){0};
    *entry = first + 1;
    builder->texts_count++;
    return (plan_str){first};
}

plan_builder *plan_builder_new(void)
{
    plan_builder *builder = calloc(1, sizeof *builder);
    weir_plan *plan = calloc(1, sizeof *plan);
    if (!builder || !plan) {
        free(builder);
        free(plan);
        error_set(WEIR_E_MEMORY, "no memory for the plan");
        return NULL;
    }
    plan->version = PLAN_VERSION;
    plan->micro_batches = 1;
    plan->ranks = 1;
    builder->plan = plan;
    plan_add_text(builder, ""); /* at 0, so that a zeroed plan_str is an empty text */
    if (!builder->failed)
        return builder;
    plan_builder_free(builder);
    return NULL;
}

void plan_builder_free(plan_builder *builder)
{
    if (!builder)
        return;
    weir_plan_free(builder->plan);
    free(builder->texts);
    free(builder);
}

weir_plan *plan_builder_plan(plan_builder *builder)
{
    return builder->plan;
}

bool plan_builder_failed(const plan_builder *builder)
{
    return builder->failed;
}

/* `array` without the room behind its elements. */
static void *without_room(void *array, size_t bytes)
{
    void *moved = bytes ? realloc(array, bytes) : NULL;
    return moved ? moved : array;
}

/* A plan lives long. */
static void arrays_fit(weir_plan *plan)
{
#define X(type, member) plan->member = without_room(plan->member, plan->member##_count * sizeof(type));
    PLAN_ARRAY_LIST(X)
#undef X
}

weir_plan *plan_builder_take(plan_builder *builder, callback_binding *bindings)
{
    weir_plan *plan = builder->plan;
    plan->bindings = bindings;
    if (builder->failed) {
        plan_builder_free(builder);
        error_set(WEIR_E_MEMORY, "no memory for the plan");
        return NULL;
    }
    builder->plan = NULL;
    plan_builder_free(builder);
    arrays_fit(plan);
    return plan;
}

weir_plan *plan_builder_finish(plan_builder *builder, callback_binding *bindings)
{
    weir_plan *plan = plan_builder_take(builder, bindings);
    if (plan)
        plan->hash = plan_hash(plan);
    return plan;
}
