/* graph/verify/local_inside.h: what the files of local.h share: the state of a proof, and what each of them makes of a kernel.
 *
 *     local.c        begins with parameters and inputs, takes kernels as their inputs have claims, and looks at the ends
 *     local_op.c     a kernel that is one or several ops of the graph; the scale of the loss
 *     local_move.c   a kernel that moves: conversions, copies, collectives; tensors that lie within others
 */
#ifndef GRAPH_VERIFY_LOCAL_INSIDE_H
#define GRAPH_VERIFY_LOCAL_INSIDE_H

#include "graph/verify/claim.h"
#include "graph/verify/judge.h"
#include "graph/verify/lookup.h"

enum { LOCAL_HELD_MAX = 2 * WEIR_ARGS_MAX };

/* An array of a kernel, or of the ops that it is: told by where its elements would be. */
struct held {
    const field_value *at;
    claim claim;
};

struct local {
    const weir_graph *graph;
    const weir_plan *plan;
    judge *judge;               /* owned */
    uint64_t seed;
    pool pool;                  /* of cells */
    lookup *lookup;             /* owned */
    weir_tensor unit;           /* 1, of which the compiler's scale of the loss is a multiple */
    bool has_scale;
    claim *claims;              /* owned; by tensor of the plan */
    const plan_kernel *suspect; /* the first conversion to a whole value, by its name, that did not make one; or NULL */
    uint32_t suspected;         /* its output */
    weir_tensor **states;       /* owned, but what they point at, which is in the pool; by parameter: a state of an op as a value */
    uint32_t *param;            /* owned; by tensor of the plan: 1 + the parameter that it is a shard of, or 0 */
    bool *updated;              /* owned; by tensor of the plan */
    bool *done;                 /* owned; by kernel */
    int *seen;                  /* owned; by node: kernels that compute it, or complete values of it that leave the plan */
    uint32_t *collective;       /* owned; by actor: 1 + that it is a member of, or 0 */
    const plan_kernel *kernel;  /* that is judged now */
    struct held held[LOCAL_HELD_MAX];
    int held_count;
    judge_operand in[WEIR_ARGS_MAX]; /* of the op that is judged now, and their claims */
    claim given[WEIR_ARGS_MAX];
    const weir_tensor *tensors[WEIR_ARGS_MAX];
    weir_status status;         /* of an op that a kernel consists of */
};

/* Sets the error of the kernel that is judged, with its name, line and device. Returns `status`. */
weir_status local_error(const struct local *l, weir_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The i-th tensor of a list of operands. */
static inline uint32_t local_operand(const struct local *l, const plan_range *range, uint32_t i)
{
    return l->plan->operands[range->first + i].tensor.i;
}

/* A kernel all of whose inputs have claims: gives its outputs theirs. E_WRONG, E_MEMORY, E_UNSUPPORTED. */
weir_status local_ops(struct local *l, rule_call *call);
weir_status local_scale(struct local *l, const rule_call *call);
weir_status local_convert(struct local *l, rule_call *call);
weir_status local_hand_on(struct local *l, const rule_call *call);
weir_status local_collective(struct local *l, const plan_collective *of);

/* Gives a tensor its claim. E_WRONG: it has another one, as a parameter has, or what two kernels write. */
weir_status local_claim(struct local *l, uint32_t tensor, const claim *made);

/* The kernel of a member. */
const plan_kernel *local_member(const struct local *l, const plan_collective *of, uint32_t m);

/* Where the claim of an array of the kernel is kept while it is judged. NULL: there are too many. */
struct held *local_hold(struct local *l, const field_value *at);

/* Whether there is a claim of the tensor, or can be made from those of what shares memory with it. */
bool local_knows(struct local *l, uint32_t tensor);

#endif
