/* apps/common/shown.c: see the header. As many bytes as begin a character but do not end it become one U+FFFD, as Unicode
 * advises and browsers do. */
#include "apps/common/shown.h"

#include "graph/base/utf8.h"

#include <string.h>

static void write_replacement(FILE *to)
{
    fputs("\xEF\xBF\xBD", to);
}

/* Takes `count` bytes off the front of those that are held. */
static void drop(shown *s, int count)
{
    s->count -= count;
    memmove(s->held, s->held + count, (size_t)s->count);
}

void shown_byte(shown *s, unsigned char byte)
{
    s->held[s->count++] = (char)byte;
    while (s->count) {
        uint32_t code;
        const int length = utf8_decode(s->held, (size_t)s->count, &code);
        if (!length)
            return;
        if (length > 0 && (code == '\n' || code == '\t' || !utf8_steers(code)))
            fwrite(s->held, 1, (size_t)length, s->to);
        else
            write_replacement(s->to);
        drop(s, length > 0 ? length : -length);
        fflush(s->to);
    }
}

void shown_end(shown *s)
{
    if (s->count)
        write_replacement(s->to);
    s->count = 0;
    fflush(s->to);
}
