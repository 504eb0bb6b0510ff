/* actors/ready.h: the set of actors of one lane that may fire, kept by rank (0 fires first).
 *
 * A bitmap of ranks with summaries: a bit of level l says that the word of that number on level l + 1 is not zero. The first
 * member is found with one count-trailing-zeros per level; up to 64 actors need one level, 4096 two.
 *
 *     level 0   [ 1 0 1 ... ]             one word, the root
 *     level 1   [ word 0 ][ word 1 ]...   64 ranks each
 *
 * Inline because every firing comes through here. One owner thread: the lane's.
 */
#ifndef ACTORS_READY_H
#define ACTORS_READY_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define READY_NONE UINT32_MAX
#define READY_LEVELS_MAX 6 /* 64^6 is more than there are ids */

struct ready {
    uint64_t *level[READY_LEVELS_MAX]; /* level[0] is owned and holds all levels */
    uint32_t levels;
};

/* For ranks 0 .. size - 1, none of them in it; false when there is no memory. */
bool ready_open(struct ready *ready, uint32_t size);
void ready_close(struct ready *ready);

static inline uint32_t ready_first(const struct ready *ready)
{
    uint64_t word = ready->level[0][0];
    if (!word)
        return READY_NONE;
    uint32_t first = (uint32_t)__builtin_ctzll(word);
    for (uint32_t l = 1; l < ready->levels; l++)
        first = first * 64 + (uint32_t)__builtin_ctzll(ready->level[l][first]);
    return first;
}

static inline void ready_add(struct ready *ready, uint32_t rank)
{
    for (uint32_t l = ready->levels; l-- > 0; rank /= 64) {
        uint64_t *word = &ready->level[l][rank / 64];
        bool known = *word != 0;
        *word |= UINT64_C(1) << rank % 64;
        if (known)
            return;
    }
}

static inline void ready_remove(struct ready *ready, uint32_t rank)
{
    for (uint32_t l = ready->levels; l-- > 0; rank /= 64) {
        uint64_t *word = &ready->level[l][rank / 64];
        *word &= ~(UINT64_C(1) << rank % 64);
        if (*word)
            return;
    }
}

#endif
