/* graph/base/text.h: text put together piece by piece in a buffer of the caller's, for reports and errors. What no
 * longer fits is left out, and `cut` tells so. */
#ifndef GRAPH_BASE_TEXT_H
#define GRAPH_BASE_TEXT_H

#include "graph/base/locale.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct text {
    char *bytes; /* borrowed; ends with 0 */
    size_t room; /* at least 1 */
    size_t used;
    bool cut;
};

static inline __attribute__((format(printf, 2, 3))) void text_add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int wanted = text_vprint(text->bytes + text->used, text->room - text->used, format, args);
    va_end(args);
    size_t left = text->room - text->used - 1;
    text->cut |= wanted < 0 || (size_t)wanted > left;
    text->used += wanted < 0 ? 0 : (size_t)wanted < left ? (size_t)wanted : left;
}

#endif
