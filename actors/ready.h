/* actors/ready.h: the set of actors of one lane that may fire, kept by rank (0 fires first).
 *
 * A bitmap of ranks, and above it one of its words that are not zero:
 *
 *     top    [ 1 0 1 ... ]                bit w: word w is not zero
 *     words  [ 64 ranks ][ 64 ranks ]...
 *
 * Adding and removing are a few instructions without a loop; the first member is two count-trailing-zeros away for up
 * to 4096 actors, and one more look at `top` for every 4096 beyond.
 *
 * Inline because every change of state comes through here. One owner thread: the lane's.
 */
#ifndef ACTORS_READY_H
#define ACTORS_READY_H

#include <stdbool.h>
#include <stdint.h>

#define READY_NONE UINT32_MAX

struct ready {
    uint64_t *words; /* owned */
    uint64_t *top;   /* in the same allocation */
    uint32_t top_count;
};

/* For ranks 0 .. size - 1, none of them in it; false when there is no memory. */
bool ready_open(struct ready *ready, uint32_t size);
void ready_close(struct ready *ready);

static inline uint32_t ready_first(const struct ready *ready)
{
    uint32_t t = 0;
    while (!ready->top[t])
        if (++t == ready->top_count)
            return READY_NONE;
    uint32_t word = t * 64 + (uint32_t)__builtin_ctzll(ready->top[t]);
    return word * 64 + (uint32_t)__builtin_ctzll(ready->words[word]);
}

static inline void ready_add(struct ready *ready, uint32_t rank)
{
    uint32_t word = rank / 64;
    ready->words[word] |= UINT64_C(1) << rank % 64;
    ready->top[word / 64] |= UINT64_C(1) << word % 64;
}

static inline void ready_remove(struct ready *ready, uint32_t rank)
{
    uint32_t word = rank / 64;
    ready->words[word] &= ~(UINT64_C(1) << rank % 64);
    if (!ready->words[word])
        ready->top[word / 64] &= ~(UINT64_C(1) << word % 64);
}

#endif
