/* graph/verify/sample.h: a call with small random values, which is computed in parts and as a whole (judge.h).
 *
 * Boxes are counted in *units*: a dimension of 4,096 that is cut at 8 and 12 has units of 4. One of them is left before the box, or,
 * where the box is the first, behind it. Dimensions with equal fractions have equal cuts in units, whatever their sizes, so a
 * reshape from [32, 128] to [4096] keeps its meaning.
 *
 * One thread.
 */
#ifndef GRAPH_VERIFY_SAMPLE_H
#define GRAPH_VERIFY_SAMPLE_H

#include "graph/verify/draw.h"
#include "graph/verify/judge.h"

enum {
    INS_MAX = WEIR_ARGS_MAX,
    OUTS_MAX = 16, /* outputs and states */
    OPERANDS_MAX = INS_MAX + OUTS_MAX,
    ATOMS_MAX = OPERANDS_MAX * WEIR_DIMS_MAX, /* cut dimensions of all operands */
    GROUPS_MAX = 16,
    PARTS = 3 /* before the box, the box, behind it */
};

/* A cut dimension of an operand. */
struct atom {
    int operand, dim; /* inputs first, then outputs, then states */
    int key;          /* of its fractions */
    int64_t unit;     /* elements */
};

/* Fractions: the box is [first, end) of `all` units. */
struct fractions {
    int64_t first, end, all;
    int64_t cut[PARTS + 1]; /* in units, after shrinking */
};

/* How an output of a class becomes a term. */
struct outcome {
    int contracted[GROUPS_MAX]; /* atoms, one for each group whose parts are terms */
    int count;
    bool terms;                 /* inputs are terms (verdict.term), and so the output is one, */
    bool joint;                 /* together with the parts of contracted[0] */
    field_value scale;
};

typedef struct sample {
    uint64_t seed, elements_max;
    const judge_call *call;
    int operands, ins;
    rule_array whole[OPERANDS_MAX]; /* reduced logical values; elements are owned */
    bound bounds[INS_MAX];          /* of inputs that are integers */
    struct atom atoms[ATOMS_MAX];
    int atom_at[OPERANDS_MAX][WEIR_DIMS_MAX]; /* 1 + the atom; 0: the dimension is not cut */
    struct fractions keys[GROUPS_MAX];
    int atom_count, key_count;
    int group[ATOMS_MAX]; /* by atom */
    int group_count;
    int key_of_group[GROUPS_MAX];
    bool term[INS_MAX];   /* inputs that are terms now */
    bool has_terms;
    int joint;            /* their parts go with those of this group; -1: they are a group of their own, without atoms */
    char *error;
    size_t error_bytes;
} sample;

/* The greatest. */
static inline int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

const judge_operand *sample_operand(const judge_call *call, int o);
const struct atom *sample_atom(const sample *s, int operand, int dim);

/* Sets the sample for a call: its cut dimensions and terms. False: the call has more than can be judged. Call, error and seed are
 * borrowed. */
bool sample_open(sample *s, const judge_call *call, char *error, size_t error_bytes);

/* Draws values, and finds groups and terms for which the call is a part of its op; `outs`, of each output and state, tells how.
 * `right`: whether there are such. E_MEMORY. */
weir_status sample_judge(sample *s, bool scaled, struct outcome *outs, bool *right);

#endif
