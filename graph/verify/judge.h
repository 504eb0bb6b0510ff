/* graph/verify/judge.h: one call of a kernel, judged alone: does it compute the part of its op's outputs that its place says?
 *
 *     operands: each a box of a logical tensor          in[0] rows 4..8 of 12   in[1] whole
 *     the whole op over random logical values                  '-------. .-------'
 *     the call over the boxes' values                             out[0] rows 4..8 of 12
 *
 * A dimension that a box cuts belongs to a *group*: the dimensions of the operands that are cut together, as the rows of x and of
 * y in y = x W. A group is merged in one step: the call is computed for the box, for what is outside of it, and for both as one.
 * An output with a dimension in the group must consist of the two results; one without must be their sum (then each is a
 * *term*), or equal each of them. When all groups have been merged, the call is the op. Groups are found by trying: dimensions
 * that are cut at the same fractions as one group, then as several.
 *
 * A term has a *share*: a field element, random for a part of a sum, so that shares of terms add up to 1 exactly when the terms are
 * the whole sum. An op that reads terms must be linear in them, and its output is a term again. A value may also be the logical one
 * times a *scale* (the loss with f16); the scale of each output is found by computing the call with scaled values.
 *
 * Sizes shrink: outside of the box one unit is left of each cut dimension, so that the cost does not depend on how many devices
 * there are. Calls that look alike after that are one *class*, which is judged once.
 *
 * One thread.
 */
#ifndef GRAPH_VERIFY_JUDGE_H
#define GRAPH_VERIFY_JUDGE_H

#include "graph/verify/rule.h"

typedef struct judge judge;

typedef struct judge_operand {
    rule_array array;  /* dtype and box; no elements */
    field_value share; /* 1: the whole value; else it is a term of a sum */
    field_value scale;
} judge_operand;

typedef struct judge_call {
    const weir_op *op;
    const char *name;              /* of the application, for its random functions; borrowed, as all of these */
    const plan_word *words;        /* attributes */
    uint64_t key;
    uint64_t origin;               /* of the application: the shares of others differ */
    int micros;
    const judge_operand *in;
    judge_operand *out, *state;    /* share and scale are set */
    int in_count, out_count, state_count;
} judge_call;

/* `elements_max`: the most that one call may have, of all its operands. NULL: no memory. */
judge *judge_new(uint64_t seed, uint64_t elements_max);
void judge_free(judge *j);

/* E_WRONG: the call computes neither a part nor a term; E_MEMORY. Then `error` has a sentence without names. */
weir_status judge_make(judge *j, const judge_call *call, char *error, size_t error_bytes);

#endif
