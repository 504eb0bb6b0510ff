/* kernels/random/philox.h: weir_philox() for 16 counters at once, in a form that the compiler vectorises; and for one, where
 * each thread of a GPU computes its own. The bits are the same. */
#ifndef KERNELS_RANDOM_PHILOX_H
#define KERNELS_RANDOM_PHILOX_H

#include "graph/base/formula.h"

#include <stdbool.h>
#include <stdint.h>

enum { PHILOX_LANES = 16 };

/* word[w][l] is word w of weir_philox(key, counter + l, counter_hi). */
static inline void philox_lanes(uint64_t key, uint64_t counter, uint64_t counter_hi, uint32_t word[4][PHILOX_LANES])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t *c0 = word[0], *c1 = word[1], *c2 = word[2], *c3 = word[3];
    for (int l = 0; l < PHILOX_LANES; l++) {
        c0[l] = (uint32_t)(counter + (uint64_t)l);
        c1[l] = (uint32_t)((counter + (uint64_t)l) >> 32);
        c2[l] = (uint32_t)counter_hi;
        c3[l] = (uint32_t)(counter_hi >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int l = 0; l < PHILOX_LANES; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[l], p1 = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(p1 >> 32) ^ c1[l] ^ k0;
            c2[l] = (uint32_t)(p0 >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)p1;
            c3[l] = (uint32_t)p0;
        }
}

FORMULA uint32_t philox_word(uint64_t key, uint64_t counter, uint64_t counter_hi, int which)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
    }
    return which < 2 ? (which ? c1 : c0) : (which == 2 ? c2 : c3);
}

#endif
