/* graph/base/text.h: text put together piece by piece in a buffer of the caller's, for reports and errors. Text that no
 * longer fits is left out, and `cut` tells so.
 *
 * A piece may have names in it that somebody else wrote, so it is added as graph/base/foreign.h shows texts. A line
 * ends only where the format itself says so: a piece whose format has a \n must have no such name in it. */
#ifndef GRAPH_BASE_TEXT_H
#define GRAPH_BASE_TEXT_H

#include "graph/base/locale.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "graph/base/foreign.h"

struct text {
    char *bytes; /* borrowed; ends with 0 */
    size_t room; /* at least 1 */
    size_t used;
    bool cut;
};

/* The last `count` bytes as they are printed. */
static inline void text_show(struct text *text, size_t count)
{
    char raw[1024];
    char *piece = text->bytes + text->used - count;
    size_t kept = count < sizeof raw ? count : sizeof raw - 1;
    memcpy(raw, piece, kept);
    raw[kept] = '\0';
    text->cut |= kept < count;
    text->used -= count;
    foreign_text(raw, piece, text->room - text->used);
    text->used += strlen(piece);
}

static inline __attribute__((format(printf, 2, 3))) void text_add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int wanted = text_vprint(text->bytes + text->used, text->room - text->used, format, args);
    va_end(args);
    size_t left = text->room - text->used - 1;
    text->cut |= wanted < 0 || (size_t)wanted > left;
    size_t count = wanted < 0 ? 0 : (size_t)wanted < left ? (size_t)wanted : left;
    text->used += count;
    if (!strchr(format, '\n') && !foreign_shown(text->bytes + text->used - count))
        text_show(text, count);
}

#endif
