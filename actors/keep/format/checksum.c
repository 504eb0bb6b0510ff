/* actors/keep/format/checksum.c: XXH3. It is compiled into this file: with the processor's own instructions it is faster than
 * what the system's library has, and a program that uses another version of xxhash meets no names of ours. */
#define XXH_INLINE_ALL
#include "actors/keep/format/checksum.h"

#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct keep_sum), "the state has room");

static XXH3_state_t *state_of(struct keep_sum *sum)
{
    return (XXH3_state_t *)(void *)sum->state;
}

void keep_sum_begin(struct keep_sum *sum)
{
    XXH3_INITSTATE(state_of(sum));
    XXH3_64bits_reset(state_of(sum));
}

void keep_sum_add(struct keep_sum *sum, const void *bytes, size_t count)
{
    if (count)
        XXH3_64bits_update(state_of(sum), bytes, count);
}

uint64_t keep_sum_end(const struct keep_sum *sum)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)sum->state);
}

uint64_t keep_sum_of(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}
