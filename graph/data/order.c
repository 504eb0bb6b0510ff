/* graph/data/order.c: see the header. Eight rounds: with few bits the halves are short, and fewer rounds would leave some
 * permutations much more frequent than others. */
#include "graph/data/order.h"

#include <weir/base.h>

enum { ROUNDS = 8 };

/* Bits of each half, of which both together hold `last`. */
static int half_bits_of(uint64_t last)
{
    int half = 1;
    while (last >> 2 * half)
        half++;
    return half;
}

static uint64_t permute(uint64_t x, int half, uint64_t seed, uint64_t epoch)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t word[4];
        weir_philox(seed, right << 3 | round, epoch, word); /* `right` has at most 31 bits */
        const uint64_t next = left ^ (word[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t order_at(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t index)
{
    const int half = half_bits_of(count - 1);
    do
        index = permute(index, half, seed, epoch);
    while (index >= count);
    return index;
}
