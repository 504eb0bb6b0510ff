/* graph/compile/memory/place.h: where blocks lie in one space, so that it is as small as can be found.
 *
 *     offset                                 blocks with lives that meet may not share a byte; the others may.
 *       ^   +-------+                        Temporaries of a group, registers of a device and the lines of
 *       |   |   c   |  +-------+             `weir bench place` are all placed by this one function: it knows
 *       |   +---+---+  |       |             bytes and conflicts, and nothing of what they stand for.
 *       |   | a |      |   d   |
 *       |   |   +------+       |             Which blocks are in conflict is given as lives on a line, [from, until),
 *       |   |   |  b   |       |             or, where lives are no intervals (those of registers are decided pair
 *       +---+---+------+-------+--> time     by pair), as a matrix of bits.
 *
 * To place with least height is NP-hard (dynamic storage allocation). So: a lower bound; greedy orders; then a search
 * that ends when the height is the bound, or has been proven least, or the budget is spent. The budget is counted in
 * steps of work and never a time, because ranks compile for themselves and compare what they got: the same problem
 * gives the same offsets on every machine.
 *
 * place() keeps nothing between calls and may be called by any thread.
 */
#ifndef GRAPH_COMPILE_MEMORY_PLACE_H
#define GRAPH_COMPILE_MEMORY_PLACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct place_block {
    uint64_t bytes;          /* 0 takes no place, is in conflict with nothing and comes to lie at 0 */
    uint64_t align;          /* its offset is a multiple of this; 0 is 1 */
    int64_t from, until;     /* alive on [from, until); read where the problem has no matrix */
    bool fixed;              /* `offset` is given and stays; two fixed blocks are not held against each other */
    uint64_t offset;         /* set by place() unless fixed */
} place_block;

typedef struct place_problem {
    place_block *block;      /* borrowed */
    int count;
    const uint64_t *conflict; /* borrowed; place_matrix_words(count) words, symmetric; NULL: made from the lives */
    uint64_t bound;          /* a height that is known to be needed, or 0 */
    uint64_t budget;         /* steps of work after the greedy orders; see below */
    uint64_t height;         /* set: the least offset that is above all blocks, fixed ones too */
    uint64_t lower_bound;    /* set: no placement is lower than this; `height` where that has been proven least */
} place_problem;

/* A step is about a nanosecond or two. Of a compilation all spaces together; of the benchmark, some seconds. */
#define PLACE_BUDGET_COMPILE UINT64_C(40000000)
#define PLACE_BUDGET_BENCH UINT64_C(2500000000)

/* Sets every offset that is not fixed, `height` and `lower_bound`. False where memory is short; then nothing is set. */
bool place(place_problem *problem);

/* The matrix of conflicts: a row of bits per block. It is the caller's, and zero before the first conflict is set. */
static inline uint64_t place_matrix_words(int count)
{
    return (uint64_t)count * (((uint64_t)count + 63) / 64);
}

static inline void place_matrix_set(uint64_t *conflict, int count, int a, int b)
{
    uint64_t words = ((uint64_t)count + 63) / 64;
    conflict[(uint64_t)a * words + (uint64_t)b / 64] |= UINT64_C(1) << (b % 64);
    conflict[(uint64_t)b * words + (uint64_t)a / 64] |= UINT64_C(1) << (a % 64);
}

#endif
