/* graph/compile/memory/place.h: finds offsets for blocks in one space, so that the space is small.
 *
 *     offset                                 Two blocks in conflict may not share a byte; any others may. Temporaries of
 *       ^   +-------+                        a group, registers of a device and the lines of `weir bench place` are all
 *       |   |   c   |  +-------+             placed by this one function. It knows bytes and conflicts, and nothing of
 *       |   +---+---+  |       |             what the blocks stand for.
 *       |   | a |      |   d   |
 *       |   |   +------+       |             Conflicts are a matrix of bits, because the lives of registers are no
 *       |   |   |  b   |       |             intervals: the compiler decides each pair.
 *       +---+---+------+-------+--> time
 *
 * The least height is NP-hard to find (dynamic storage allocation). place() takes the lowest of a few placements. It
 * counts in whole numbers and looks at no clock, because ranks compile for themselves and compare their plans: the same
 * problem gives the same offsets on every machine.
 *
 * place() keeps nothing between calls, and any thread may call it.
 */
#ifndef GRAPH_COMPILE_MEMORY_PLACE_H
#define GRAPH_COMPILE_MEMORY_PLACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct place_block {
    uint64_t bytes;          /* a block of 0 bytes takes no space and gets offset 0 */
    uint64_t align;          /* its offset is a multiple of this; 0 is 1 */
    uint64_t offset;         /* set by place() */
} place_block;

typedef struct place_problem {
    place_block *block;       /* borrowed */
    int count;
    const uint64_t *conflict; /* borrowed; place_matrix_words(count) words, symmetric */
    uint64_t height;          /* set: the least offset that is above all blocks */
} place_problem;

/* Sets every offset and `height`. Returns false where memory is short; then it sets nothing. */
bool place(place_problem *problem);

/* The matrix of conflicts has a row of bits for each block. The caller owns it and zeroes it first. */
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
