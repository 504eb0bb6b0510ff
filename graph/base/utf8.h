/* graph/base/utf8.h: UTF-8, one character at a time, and which characters must not reach a terminal. Pure functions; any
 * thread. Inline, so that programs have them too: they see nothing but weir_* of the library. */
#ifndef GRAPH_BASE_UTF8_H
#define GRAPH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character that `bytes` begin with, of which there are `count` > 0. Returns its length, and the character in *code.
 * 0: the bytes are the beginning of a character, and more have to come. Below 0: so many bytes, negated, are no UTF-8 and
 * begin none. Overlong forms, surrogates and what is beyond U+10FFFF are none (Unicode 16.0, table 3-7). */
static inline int utf8_decode(const char *bytes, size_t count, uint32_t *code)
{
    const unsigned char *byte = (const unsigned char *)bytes, first = byte[0];
    const int length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (!length)
        return -1;
    uint32_t character = length == 1 ? first : first & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i == count)
            return 0;
        const int least = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        const int most = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (byte[i] < least || byte[i] > most)
            return -i;
        character = character << 6 | (byte[i] & 0x3Fu);
    }
    *code = character;
    return length;
}

/* Whether a terminal, or an editor, would do something with the character rather than show it: controls (C0, DEL, C1), the
 * separators of lines and paragraphs, and marks that change the direction of the text around them. */
static inline bool utf8_steers(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x206F);
}

#endif
