/* kernels/fused/fused.h: several kernels in one pass over memory.
 *
 *     in[0] ---> add ---> layernorm ---> out[1], out[2], out[3]          16 rows, then the next 16, ...
 *     in[1] --'   '-----> out[0]
 *
 * The op `fused` calls its *members*, which are ordinary ops, one after the other for a block of rows that stays in the
 * cache, then for the next block. So a tensor that several members use is read once, and one that only members use needs room
 * for one block (*scratch*) and never reaches the memory. There is no other arithmetic: members say by rows_in, per_row_in,
 * rows_out and per_row_out (weir/op.h) that they give the same bits block by block. A member that makes sums over rows has a
 * workspace of its own, which stays as it is from block to block; the others share one.
 *
 * All of it is in the attributes, so a plan with fused kernels needs nothing but this op. An operand of a member is a
 * *code*: FUSED_IN + i, an input of the whole; FUSED_OUT + o, an output; FUSED_SCRATCH + s. Each output and scratch is
 * made by one member, and read by later ones at most. `like` names the input whose rows are cut into blocks.
 *
 * `fused_over` is the same where out[0] may lie over in[0]: nobody reads a block of in[0] after out[0]'s is made.
 *
 * `fused_launch` and `fused_launch_over` are chains that a GPU does in one kernel, with what lies between members in
 * registers (program.h). Attributes and rules are the same, with one more: the members are such a program.
 *
 * Words of a member: FUSED_NAME with its op's name, its key, the number of inputs and outputs, their codes, the number
 * of attribute words, these.
 */
#ifndef KERNELS_FUSED_FUSED_H
#define KERNELS_FUSED_FUSED_H

#include <weir/op.h>

enum {
    FUSED_MEMBERS_MAX = 8,
    FUSED_INS_MAX = 12,
    FUSED_OUTS_MAX = 8,
    FUSED_SCRATCH_MAX = 8,
    FUSED_NAME = 3,        /* words of a name */
    FUSED_WORDS = 96,
    FUSED_ROWS_MAX = 4096, /* of a block */
    FUSED_IN = 0,
    FUSED_OUT = 32,
    FUSED_SCRATCH = 64
};

typedef struct fused_attrs {
    int64_t members;
    int64_t rows;    /* of a block, about */
    int64_t like;    /* input */
    int64_t scratch; /* how many */
    /* Of each: dtype; columns, or -1 for one value per row; first column, and columns of the whole tensor. */
    int64_t type[FUSED_SCRATCH_MAX][4];
    int64_t word[FUSED_WORDS];
} fused_attrs;

typedef struct fused_member {
    const weir_op *op;
    const void *attrs;
    uint64_t key;
    int in_count, out_count;
    int in[FUSED_INS_MAX], out[FUSED_OUTS_MAX]; /* codes */
} fused_member;

/* Writes a member's words behind the `at` words that there are; returns how many there are then, 0: no room. */
int fused_put(fused_attrs *attrs, int at, const fused_member *member);

/* How an operand of an op meets blocks of the rows of `like`. */
typedef enum fused_kind { FUSED_WHOLE, FUSED_ROWS, FUSED_PER_ROW, FUSED_SUM, FUSED_NEVER } fused_kind;
fused_kind fused_kind_of(const weir_op *op, bool input, int i, const weir_shape *shape, const weir_shape *like);

#endif
