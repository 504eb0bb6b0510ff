/* actors/ready.c: the life of a ready set; the rest is inline in the header.
 *
 * A heap would do O(log n) comparisons per message; an array of queues per priority would have to say what a priority
 * is. Ranks are unique, so a set of bits is all there is to know.
 */
#include "actors/ready.h"

#include <stdlib.h>

bool ready_open(struct ready *ready, uint32_t size)
{
    uint32_t words = size / 64 + 1, tops = words / 64 + 1;
    *ready = (struct ready){.top_count = tops};
    ready->words = calloc((size_t)words + tops, sizeof(*ready->words));
    ready->top = ready->words ? ready->words + words : NULL;
    return ready->words != NULL;
}

void ready_close(struct ready *ready)
{
    free(ready->words);
    *ready = (struct ready){0};
}
