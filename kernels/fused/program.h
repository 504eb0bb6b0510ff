/* kernels/fused/program.h: a chain of ops as one kernel of a GPU does it.
 *
 *     add      h = x + r                  load  x -> 0      load r -> 1     add 0, 1 -> 1     store 1 -> h
 *     layernorm  y, mean, rstd of h       layernorm 1 -> 1      (mean and rstd of the row go to memory)
 *                                         store 1 -> y
 *
 * A *value* is what one thread has of a tensor: a few neighbours of a row, as f32, in a *slot* of its registers. Each step
 * takes values, computes what the member's own kernel computes of an element, by the same function, and rounds it to
 * the dtype of the member's output; so what later members read has the bits that would have been in memory. A slot is
 * free for another value when the last member that reads it has done so.
 *
 * Inputs are loaded by the first steps, all of them before the first is used, where there are slots for that; else each
 * just before its first use.
 *
 * A program has one of three *ways* to go over the rows:
 *
 *     EACH   elements one by one, or in packs: nothing but functions of elements
 *     TILE   sums over rows besides: a block of threads goes down the rows of a chunk (kernels/cuda/chunks.h)
 *     ROW    functions of rows (a norm): a block has a row, and with sums the rows of a chunk, one after the other
 *
 * fused_program() makes it, or says that the members cannot be one: then the chain is not made on a GPU. It is asked by
 * the rules of `fused_launch` and by its kernel, so the plugin is linked with it. Pure functions; any thread.
 */
#ifndef KERNELS_FUSED_PROGRAM_H
#define KERNELS_FUSED_PROGRAM_H

#include "kernels/common/elements.h"
#include "kernels/fused/fused.h"

/* Members that are one step each: of one value, of a saved one and a gradient, of two values. */
#define STEP_FUNCTIONS(X) ELEMENT_PLAIN_FUNCTIONS(X)
#define STEP_GRADIENTS(X) ELEMENT_PLAIN_GRADIENTS(X)
#define STEP_PAIRS(X) ELEMENT_PLAIN_PAIRS(X)
/* And those that take an attribute, or more than a value. */
#define STEP_OTHERS(X)                                                                                         \
    X(affine) X(cast) X(add_many) X(dropout) X(dropout_grad) X(layernorm) X(rmsnorm) X(layernorm_grad)         \
    X(rmsnorm_grad) X(softmax) X(softmax_grad) X(linear_db)

typedef enum step_code {
    STEP_LOAD,  /* operand[0] -> to */
    STEP_STORE, /* a -> operand[0] */
    STEP_DRAW,  /* which elements a dropout keeps -> to */
#define X(name) STEP_##name,
    STEP_FUNCTIONS(X) STEP_GRADIENTS(X) STEP_PAIRS(X) STEP_OTHERS(X)
#undef X
    STEP_CODES,
#define X(name) +1
    STEP_FUNCTIONS_END = STEP_DRAW + 1 STEP_FUNCTIONS(X), /* behind the last function */
    STEP_PAIRS_FIRST = STEP_FUNCTIONS_END STEP_GRADIENTS(X),
    STEP_PAIRS_END = STEP_PAIRS_FIRST STEP_PAIRS(X)
#undef X
} step_code;

enum {
    PROGRAM_SLOTS = 6,
    PROGRAM_STEPS = 40,
    PROGRAM_OPERANDS = FUSED_INS_MAX + FUSED_OUTS_MAX,
    PROGRAM_DRAWS = 2,
    PROGRAM_SUMS = 4,
    PROGRAM_THREADS = 256,          /* of a block, at most, of EACH and TILE; of ROW see chunks.h */
    PROGRAM_NEAR = 4,               /* neighbours that a thread has, of EACH and TILE; of ROW see chunks.h */
    PROGRAM_SHARED_BYTES = 96 << 10 /* for sums */
};

typedef enum program_way { PROGRAM_EACH, PROGRAM_TILE, PROGRAM_ROW } program_way;

/* Where element (row, column) lies: at row * row_step + column * column_step. */
typedef struct program_operand {
    void *data;         /* set by the kernel */
    int64_t row_step;
    uint8_t dtype, column_step;
    bool packs;         /* set by the kernel: neighbours may be read as one */
} program_operand;

typedef struct program_step {
    uint8_t code, dtype; /* to which the result is rounded */
    uint8_t to, a, b;    /* slots */
    uint8_t operand[4];  /* of norms: gain; bias, or nothing; means and rstds */
    uint8_t sum, more;   /* sums over rows: linear_db's, a gain's; a bias's */
    uint8_t draw;
    float scale, shift;
    double eps;
} program_step;

/* Sums over rows. */
typedef struct program_sum {
    uint8_t out;  /* output */
    double *part; /* set by the kernel: of the chunks */
} program_sum;

/* A dropout's random numbers. */
typedef struct program_draw {
    uint8_t code;             /* of its result, whose elements are numbered in the logical tensor */
    uint32_t threshold;
    uint64_t key;
} program_draw;

typedef struct fused_program {
    int64_t rows, columns;
    program_way way;
    int loads; /* the first steps: input l goes to slot l */
    int steps, operands, sums, draws;
    program_step step[PROGRAM_STEPS];
    program_operand operand[PROGRAM_OPERANDS];
    uint8_t code[PROGRAM_OPERANDS]; /* which of the chain's inputs and outputs an operand is */
    program_sum sum[PROGRAM_SUMS];
    program_draw draw[PROGRAM_DRAWS];
} fused_program;

/* The types that a chain is called with; borrowed. */
typedef struct fused_types {
    const fused_attrs *attrs;
    const weir_type *in, *out;
    int in_count, out_count;
} fused_types;

/* Whether the members can be one program. A program of members that fused_fits() has accepted touches nothing outside of its
 * operands. */
bool fused_program_make(const fused_types *types, fused_program *program);

/* Threads of a block, and neighbours of a row that each of them has. */
int fused_program_threads(const fused_program *program);
int fused_program_each(const fused_program *program);

/* Bytes for the sums of chunks. */
size_t fused_program_bytes(const fused_program *program);

/* A member as it is written: its op's name, and how many words of attributes it has. */
typedef struct fused_words {
    const char *name;
    int64_t words;
} fused_words;

/* The member whose words begin at *at, which moves on; all but `op`. False: there is none. */
bool fused_take(const fused_attrs *attrs, int *at, fused_member *member, fused_words *found);

#endif
