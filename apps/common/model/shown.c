/* apps/common/model/shown.c: see the header. Bytes are held until they are as many as the first one asks for, or one of them goes
 * on with no character; then foreign.h says what they are. Each byte that is no UTF-8 becomes one U+FFFD. */
#include "apps/common/model/shown.h"

#include "graph/base/foreign.h"

#include <string.h>

/* Bytes of the character that this one begins; 1: it is one, or begins none. */
static int length_of(unsigned char first)
{
    return first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
}

/* Whether more bytes may make a character of those that are held. */
static bool is_begun(const struct shown *s)
{
    for (int i = 1; i < s->count; i++)
        if (((unsigned char)s->held[i] & 0xC0) != 0x80)
            return false;
    return s->count < length_of((unsigned char)s->held[0]);
}

/* Writes the first character of those that are held, and takes it off. */
static void write_first(struct shown *s)
{
    uint32_t code;
    const int length = foreign_next(s->held, &code);
    if (code == '\n' || code == '\t' || !foreign_acts(code))
        fwrite(s->held, 1, (size_t)length, s->to);
    else
        fputs("\xEF\xBF\xBD", s->to);
    s->count -= length;
    memmove(s->held, s->held + length, (size_t)s->count);
    s->held[s->count] = '\0';
}

void shown_byte(struct shown *s, unsigned char byte)
{
    s->held[s->count++] = (char)byte;
    s->held[s->count] = '\0';
    bool writes = !is_begun(s);
    while (s->count && !is_begun(s))
        write_first(s);
    if (writes)
        fflush(s->to);
}

void shown_end(struct shown *s)
{
    while (s->count)
        write_first(s);
    fflush(s->to);
}
