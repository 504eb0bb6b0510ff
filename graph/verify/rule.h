/* graph/verify/rule.h: each op over the field: from the values of its inputs, its rule makes those of its outputs.
 *
 *     in[0] (a shard: shape, where it starts in the logical tensor, the logical shape) --.
 *     in[1] ----------------------------------------------------------------------------+--> rule --> out[0], ...
 *     attributes, by name; states, which it reads and changes -------------------------'
 *
 * The author's graph is computed with whole tensors, the plan with shards, both with the same rules. A rule says in the plainest
 * way that there is what the op is over the reals: it is no kernel, and shares no code with those. Rounding does not exist: a
 * cast is the identity. So a rule may use what holds for real numbers: the maximum that softmax subtracts is left out.
 *
 * A rule for the terms of a sum (P) is the rule of the op: what is linear in its inputs carries terms through, what is not does
 * not, and then the sums differ, as they should.
 *
 * All arrays are row-major and dense, whatever they are a part of. Nothing is kept between calls.
 */
#ifndef GRAPH_VERIFY_RULE_H
#define GRAPH_VERIFY_RULE_H

#include "graph/plan/form/plan.h"
#include "graph/verify/field.h"

#include <stdlib.h>
#include <string.h>
#include <weir/op.h>

typedef struct rule_array {
    weir_dtype dtype;              /* reals: any value; integers: field_int() */
    int rank;
    int64_t shape[WEIR_DIMS_MAX];  /* of the shard */
    int64_t start[WEIR_DIMS_MAX];  /* index of its first element in the logical tensor */
    int64_t global[WEIR_DIMS_MAX]; /* logical shape */
    int64_t count;                 /* elements of the shard */
    field_value *at;               /* borrowed */
} rule_array;

typedef struct rule_call {
    const weir_op *op;             /* for the names of its attributes; borrowed */
    const char *name;              /* of the application: "h0/q" */
    const plan_word *words;        /* the op's attribute structure, word by word; borrowed */
    const rule_array *in;          /* not to be changed */
    const rule_array *out, *state; /* hold what was there before the call */
    int in_count, out_count, state_count;
    uint64_t key;                  /* of the op's random stream (weir_kernel_args.key) */
    int64_t step;
    int micro, micros;             /* the firing in this step, and how many there are: of an actor that fires once 0 and 1 */
    bool accumulate;               /* adds to out[0] */
    uint64_t seed;                 /* of oracles and of the order */
    char *error;                   /* where a sentence goes when the rule returns false */
    size_t error_bytes;
    bool (*part)(void *ctx, const struct rule_call *part); /* of an op that is several ops: each goes here, and nothing is
                                                              computed; NULL: it is computed */
    void *ctx;                     /* of part */
} rule_call;

/* False: the values cannot be what the op takes (an id that is no integer, sizes that do not fit); then call->error says why. */
typedef bool (*rule_fn)(const rule_call *call);

/* An op of the program's own has the rule that it brings (.exact, <weir/exact.h>). One without is a random function of all that it
 * reads; of each row, if it promises to be one of rows (.rows_in). So a plan that splits it otherwise is found wrong. */
rule_fn rule_find(const char *op);

/* Whether the op has a rule: is no such random function. */
bool rule_exists(const char *op);

/* Whether the op may use its random stream (rule_call.key): dropout, and an op without a rule. */
bool rule_draws(const char *op);

/* Whether the op is several ops, whose calls .part takes. */
bool rule_has_parts(const char *op);

/* One of the ops that a call is: computes it, or gives it to .part. */
bool rule_part(const rule_call *part);

/* Writes a sentence to call->error; and is false. */
void rule_say(const rule_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define rule_refuse(call, ...) (rule_say(call, __VA_ARGS__), false)

/* The k-th word of the attribute of that name, as an integer or a real; 0 when the op has no such attribute. */
int64_t rule_int(const rule_call *call, const char *name, int k);
double rule_real(const rule_call *call, const char *name, int k);

/* Elements of the dimensions [first, end) of an array. */
static inline int64_t rule_size(const rule_array *array, int first, int end)
{
    int64_t size = 1;
    for (int d = first; d < end; d++)
        size *= array->shape[d];
    return size;
}

/* Rows are all dimensions but the last; a scalar is one row of one column. */
static inline int64_t rule_columns(const rule_array *array)
{
    return array->rank ? array->shape[array->rank - 1] : 1;
}
static inline int64_t rule_rows(const rule_array *array)
{
    return rule_size(array, 0, array->rank - 1);
}

/* The index of the n-th element, of the shard. */
static inline void rule_index(const rule_array *array, int64_t n, int64_t index[WEIR_DIMS_MAX])
{
    for (int d = array->rank; d-- > 0; n /= array->shape[d])
        index[d] = n % array->shape[d];
}

/* The n-th element of a shard: its number in the logical tensor, row-major. */
static inline int64_t rule_logical(const rule_array *array, int64_t n)
{
    int64_t index[WEIR_DIMS_MAX] = {0}, place = 0;
    rule_index(array, n, index);
    for (int d = 0; d < array->rank; d++)
        place = place * array->global[d] + array->start[d] + index[d];
    return place;
}

/* Where `array` has the n-th element of `like`, another shard of the same logical tensor; -1: it does not have it. */
static inline int64_t rule_place(const rule_array *array, const rule_array *like, int64_t n)
{
    int64_t index[WEIR_DIMS_MAX] = {0}, place = 0;
    rule_index(like, n, index);
    for (int d = 0; d < like->rank; d++) {
        const int64_t own = like->start[d] + index[d] - array->start[d];
        if (array->rank != like->rank || own < 0 || own >= array->shape[d])
            return -1;
        place = place * array->shape[d] + own;
    }
    return place;
}

/* Whether the two are shards of one logical shape. */
static inline bool rule_same_whole(const rule_array *a, const rule_array *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->global[d] == b->global[d];
    return same;
}

/* Gives the array elements of its own, which are the caller's to free. False: no memory; then it has none. */
static inline bool rule_copy(rule_array *array)
{
    const field_value *from = array->at;
    const size_t bytes = (size_t)array->count * sizeof *from;
    array->at = malloc(bytes + 1);
    if (array->at)
        memcpy(array->at, from, bytes);
    return array->at != NULL;
}

/* The type and the box of a plan's tensor, without elements. */
static inline rule_array rule_array_of(const plan_tensor *tensor)
{
    rule_array array = {.dtype = (weir_dtype)tensor->dtype, .rank = (int)tensor->rank, .count = 1};
    memcpy(array.shape, tensor->shape, sizeof array.shape);
    memcpy(array.start, tensor->start, sizeof array.start);
    memcpy(array.global, tensor->global, sizeof array.global);
    for (int d = 0; d < array.rank; d++)
        array.count *= array.shape[d];
    return array;
}

/* Refuses a call that has fewer inputs or outputs. */
static inline bool rule_has_operands(const rule_call *call, int ins, int outs)
{
    return (call->in_count >= ins && call->out_count >= outs) ||
           rule_refuse(call, "the call has %d inputs and %d outputs; it needs %d and %d", call->in_count, call->out_count, ins,
                       outs);
}

/* Whether the first `dims` dimensions of the two have the same sizes. */
static inline bool rule_same_leading(const rule_array *a, const rule_array *b, int dims)
{
    for (int d = 0; d < dims; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

static inline bool rule_same_shape(const rule_array *a, const rule_array *b)
{
    return a->rank == b->rank && rule_same_leading(a, b, a->rank);
}

/* The rules, a table for each file: ends with a NULL name. */
typedef struct rule_entry {
    const char *op;
    rule_fn rule;
} rule_entry;
extern const rule_entry rules_core[];    /* what the compiler and the builder insert; shapes */
extern const rule_entry rules_product[]; /* products of matrices */
extern const rule_entry rules_conv[];    /* convolutions and pools */
extern const rule_entry rules_element[]; /* functions of elements, of pairs, choices */
extern const rule_entry rules_reduce[];  /* sums, norms, softmax, random masks */
extern const rule_entry rules_attention[]; /* attention, rotary positions */
extern const rule_entry rules_model[];   /* embedding */
extern const rule_entry rules_loss[];    /* losses */
extern const rule_entry rules_update[];  /* optimizers */
extern const rule_entry rules_index[];   /* constants, ranges, elements by index */

#endif
