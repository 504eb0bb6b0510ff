/* graph/plan/form/fields.h: the plan's structures described as data: which members each array's elements have, and what a
 * member refers to. Hashing, the file format and the first half of validation are loops over these tables, so a new
 * member of a structure is one line in fields.c and none elsewhere.
 *
 * Every member is one or more *values* of at most 64 bits: a range has two (first, count), a shape WEIR_DIMS_MAX.
 * Strings, of what runs and of the graph, are the arrays without a table: they are bytes.
 */
#ifndef GRAPH_PLAN_FORM_FIELDS_H
#define GRAPH_PLAN_FORM_FIELDS_H

#include "graph/plan/form/plan.h"

#include <string.h>

typedef enum plan_array {
#define X(type, member) PLAN_ARRAY_##member,
    PLAN_ARRAY_LIST(X)
#undef X
        PLAN_ARRAYS,
    PLAN_RUN_ARRAYS = PLAN_ARRAY_graph_tensors /* those before it run; it and those behind it are the table of the graph */
} plan_array;

typedef enum plan_field_type {
    FIELD_U32,   /* less than `limit`, when that is not 0 */
    FIELD_U64,
    FIELD_I64,
    FIELD_REAL,  /* a double */
    FIELD_TEXT,  /* plan_str: a place in `array` */
    FIELD_ID,    /* an index in `array`, or PLAN_NONE if `none` */
    FIELD_RANGE, /* first, count in `array` */
    FIELD_WORD   /* plan_word: 64 bits; which type, only the op knows */
} plan_field_type;

typedef struct plan_field {
    const char *name;
    size_t offset;
    plan_field_type type;
    uint32_t values;
    uint32_t limit;
    plan_array array;
    bool none;
} plan_field;

typedef struct plan_table {
    const char *name;    /* of the member of weir_plan: "actors" */
    size_t item_bytes;
    size_t items_offset; /* in weir_plan: of the pointer, and of the count */
    size_t count_offset;
    const plan_field *fields; /* NULL for strings */
    uint32_t field_count;
} plan_table;

extern const plan_table plan_tables[PLAN_ARRAYS];

/* The array of a plan; its elements have table->item_bytes. NULL when it is empty. */
void *plan_table_items(const weir_plan *plan, const plan_table *table);
uint32_t plan_table_count(const weir_plan *plan, const plan_table *table);
/* Gives the plan `items` (malloc'ed) as this array. */
void plan_table_set(weir_plan *plan, const plan_table *table, void *items, uint32_t count);

/* Values of one element in this table: the sum over its fields. */
uint32_t plan_table_values(const plan_table *table);

/* Is the field 32 bits wide? */
static inline bool plan_field_narrow(const plan_field *field)
{
    return field->type == FIELD_U32 || field->type == FIELD_TEXT || field->type == FIELD_ID ||
           field->type == FIELD_RANGE;
}

/* Value `index` of a field as 64 bits: integers extended by their sign, doubles as they lie in memory. */
static inline uint64_t plan_field_get(const plan_field *field, const void *item, uint32_t index)
{
    uint32_t narrow;
    uint64_t wide;
    const char *at = (const char *)item + field->offset;
    if (plan_field_narrow(field)) {
        memcpy(&narrow, at + index * sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at + index * sizeof wide, sizeof wide);
    return wide;
}
void plan_field_set(const plan_field *field, void *item, uint32_t index, uint64_t value);

#endif
