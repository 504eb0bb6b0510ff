/* apps/common/model/stops.c: see the header. Held bytes begin a stop text at each time, and are fewer than it has; so after a byte more
 * they are at most STOPS_BYTES. */
#include "apps/common/model/stops.h"

#include <string.h>

/* Puts the first held bytes, and takes them off. */
static void put_first(struct stops *s, size_t bytes, stops_put_fn put, void *ctx)
{
    for (size_t i = 0; i < bytes; i++)
        put(ctx, (unsigned char)s->held[i]);
    s->bytes -= bytes;
    memmove(s->held, s->held + bytes, s->bytes);
}

/* Whether the held bytes from `from` on are the beginning of a stop text, or (`whole`) all of it. */
static bool is_stop(const struct stops *s, size_t from, bool whole)
{
    const size_t bytes = s->bytes - from;
    for (int i = 0; i < s->count; i++) {
        const size_t length = strlen(s->text[i]);
        if ((whole ? length == bytes : length > bytes) && memcmp(s->text[i], s->held + from, bytes) == 0)
            return true;
    }
    return false;
}

bool stops_byte(struct stops *s, unsigned char byte, stops_put_fn put, void *ctx)
{
    s->held[s->bytes++] = (char)byte;
    for (size_t from = 0; from < s->bytes; from++)
        if (is_stop(s, from, true)) {
            put_first(s, from, put, ctx);
            s->bytes = 0;
            return true;
        }
    size_t from = 0;
    while (from < s->bytes && !is_stop(s, from, false))
        from++;
    put_first(s, from, put, ctx);
    return false;
}

void stops_end(struct stops *s, stops_put_fn put, void *ctx)
{
    put_first(s, s->bytes, put, ctx);
}
