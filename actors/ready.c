/* actors/ready.c: the life of a ready set; the rest is inline in the header.
 *
 * A heap would do O(log n) comparisons per message; an array of queues per priority would have to say what a priority is.
 * Ranks are unique, so a set of bits is all there is to know.
 */
#include "actors/ready.h"

#include <stdlib.h>

bool ready_open(struct ready *ready, uint32_t size)
{
    uint64_t words[READY_LEVELS_MAX], total = 0;
    uint32_t levels = 0;
    uint64_t bits = size ? size : 1;
    do {
        bits = (bits + 63) / 64;
        words[levels++] = bits;
        total += bits;
    } while (bits > 1);

    *ready = (struct ready){.levels = levels};
    uint64_t *place = calloc(total, sizeof(*place));
    for (uint32_t l = 0; place && l < levels; l++) {
        ready->level[l] = place;
        place += words[levels - 1 - l];
    }
    return ready->level[0] != NULL;
}

void ready_close(struct ready *ready)
{
    free(ready->level[0]);
    *ready = (struct ready){0};
}
