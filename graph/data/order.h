/* graph/data/order.h: the order of the samples of an epoch.
 *
 * A random permutation of 0 .. count - 1 for each seed and epoch, as a function of one index: it needs no memory and no earlier
 * index, so each process finds the samples of a step by itself.
 *
 * It is a Feistel network (Luby and Rackoff 1988) over the smallest even number of bits that holds all indexes, whose rounds
 * draw from Philox. A network permutes all numbers of so many bits; an index whose image is `count` or more goes through the
 * network again, until it is less (Black and Rogaway 2002, "cycle walking"). There are fewer than 4 count numbers, so this takes
 * fewer than 4 walks on average. Eight rounds: with few bits the halves are short, and fewer rounds would leave some permutations much
 * more frequent than others.
 *
 * Header-only, because programs use it too. Pure; any thread.
 */
#ifndef GRAPH_DATA_ORDER_H
#define GRAPH_DATA_ORDER_H

#include <stdint.h>
#include <weir/base.h>

enum { ORDER_ROUNDS = 8 };

/* Bits of each half, of which both together hold `last`. */
static inline int order_half_bits(uint64_t last)
{
    int half = 1;
    while (last >> 2 * half)
        half++;
    return half;
}

static inline uint64_t order_permute(uint64_t x, int half, uint64_t seed, uint64_t epoch)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < ORDER_ROUNDS; round++) {
        uint32_t word[4];
        weir_philox(seed, right << 3 | round, epoch, word); /* `right` has at most 31 bits */
        const uint64_t next = left ^ (word[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

/* The sample at place `index` < count of this epoch; count is at most 2^62. */
static inline uint64_t order_at(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t index)
{
    const int half = order_half_bits(count - 1);
    do
        index = order_permute(index, half, seed, epoch);
    while (index >= count);
    return index;
}

#endif
