/* apps/common/model/stops.h: texts at which writing ends.
 *
 *     struct stops s = {.text = {"\n\n", "User:"}, .count = 2};
 *     for (each byte)
 *         if (stops_byte(&s, byte, put, ctx))      // calls put() with each byte that is part of no stop text
 *             break;                               // a stop text is whole; it was not put
 *     stops_end(&s, put, ctx);                     // puts bytes that began a stop text and did not end it
 *
 * A stop text may span any number of tokens: bytes that may be the beginning of one are held back. One thread at a time. */
#ifndef APPS_COMMON_MODEL_STOPS_H
#define APPS_COMMON_MODEL_STOPS_H

#include <stdbool.h>
#include <stddef.h>

enum { STOPS_MAX = 16, STOPS_BYTES = 256 };

struct stops {
    const char *text[STOPS_MAX]; /* borrowed; each has 1 to STOPS_BYTES bytes */
    int count;
    char held[STOPS_BYTES];      /* the last bytes, which begin a stop text */
    size_t bytes;                /* of them */
};

typedef void (*stops_put_fn)(void *ctx, unsigned char byte);

bool stops_byte(struct stops *s, unsigned char byte, stops_put_fn put, void *ctx);
void stops_end(struct stops *s, stops_put_fn put, void *ctx);

#endif
