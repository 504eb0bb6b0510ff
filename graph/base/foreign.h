/* graph/base/foreign.h: texts that somebody else wrote: names in files, paths, what another program says.
 *
 * A terminal obeys control characters, and shows what stands behind an override of direction in another order, so a
 * name may erase a line or read as another. Everything that prints such a text for people does it through here: control
 * characters (C0, DEL, C1), marks, overrides and isolates of direction, separators of lines and paragraphs, and bytes
 * that are not UTF-8 are shown as escapes: \x1b, \u202e, \xff. All else stays as it is, so a text that went through
 * once stays the same. error_set() does it to every sentence.
 *
 * For JSON the same characters become \u escapes, and bytes that are not UTF-8 become U+FFFD, so it is always valid.
 *
 * Header-only, because programs use it too, and see nothing of the library but weir_*. Any thread.
 */
#ifndef GRAPH_BASE_FOREIGN_H
#define GRAPH_BASE_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FOREIGN_NOT_UTF8 UINT32_MAX
#define FOREIGN_BYTES 1024    /* of a buffer for a name of any usual length; longer ones are cut */
#define FOREIGN_CHAR_BYTES 8  /* that one character may need, with the zero byte */

/* The character that `text` begins with, and of how many bytes it is; a byte that begins none is FOREIGN_NOT_UTF8. */
static inline int foreign_next(const char *text, uint32_t *code)
{
    const unsigned char *byte = (const unsigned char *)text;
    int more = byte[0] < 0x80 ? 0 : byte[0] >> 5 == 6 ? 1 : byte[0] >> 4 == 14 ? 2 : byte[0] >> 3 == 30 ? 3 : -1;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    *code = more > 0 ? byte[0] & (0x3fu >> more) : byte[0];
    for (int i = 1; i <= more; i++) {
        if (byte[i] >> 6 != 2) /* the zero byte, too */
            more = -1;
        else
            *code = *code << 6 | (byte[i] & 0x3f);
    }
    if (more < 0 || *code < least[more] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff)) {
        *code = FOREIGN_NOT_UTF8;
        return 1;
    }
    return more + 1;
}

/* How many of the first `most` bytes are whole characters. */
static inline int foreign_fit(const char *text, int most)
{
    int bytes = 0;
    uint32_t code;
    while (text[bytes]) {
        int next = foreign_next(text + bytes, &code);
        if (bytes + next > most)
            break;
        bytes += next;
    }
    return bytes;
}

/* Whether a terminal would do something with the character rather than show it. */
static inline bool foreign_acts(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == FOREIGN_NOT_UTF8;
}

/* Whether the text is printed as it is. */
static inline bool foreign_shown(const char *text)
{
    uint32_t code = ' ';
    while (*text && !foreign_acts(code))
        text += foreign_next(text, &code);
    return !foreign_acts(code);
}

/* One character as it is printed; returns how many bytes of `text` it was. */
static inline int foreign_char(const char *text, char to[FOREIGN_CHAR_BYTES])
{
    uint32_t code;
    int bytes = foreign_next(text, &code);
    if (!foreign_acts(code))
        snprintf(to, FOREIGN_CHAR_BYTES, "%.*s", bytes, text);
    else if (bytes == 1)
        snprintf(to, FOREIGN_CHAR_BYTES, "\\x%02x", (unsigned char)*text);
    else
        snprintf(to, FOREIGN_CHAR_BYTES, "\\u%04x", code & 0xffff);
    return bytes;
}

/* The text as it is printed, in a buffer of `room` > 0 bytes, which is returned; cut at a whole character. */
static inline const char *foreign_text(const char *text, char *to, size_t room)
{
    char shown[FOREIGN_CHAR_BYTES];
    size_t used = 0;
    while (*text) {
        text += foreign_char(text, shown);
        size_t length = strlen(shown);
        if (used + length >= room)
            break;
        memcpy(to + used, shown, length);
        used += length;
    }
    to[used] = '\0';
    return to;
}

static inline void foreign_put(FILE *to, const char *text)
{
    char shown[FOREIGN_CHAR_BYTES];
    while (*text) {
        text += foreign_char(text, shown);
        fputs(shown, to);
    }
}

/* The same as a cell of a table: then spaces, up to `width` characters. */
static inline void foreign_put_cell(FILE *to, const char *text, int width)
{
    char shown[FOREIGN_CHAR_BYTES];
    while (*text) {
        text += foreign_char(text, shown);
        fputs(shown, to);
        for (const char *at = shown; *at; at++)
            width -= (*at & 0xc0) != 0x80;
    }
    fprintf(to, "%*s", width > 0 ? width : 0, "");
}

/* Within the quotes of a label that graphviz draws, at most `most` characters of the text. Graphviz takes "&name;" for a
 * character, as HTML does. */
static inline void foreign_put_dot(FILE *to, const char *text, int most)
{
    char shown[FOREIGN_CHAR_BYTES];
    for (int i = 0; *text && i < most; i++) {
        text += foreign_char(text, shown);
        if (*shown == '&')
            fputs("&amp;", to);
        else
            fprintf(to, *shown == '"' || *shown == '\\' ? "\\%s" : "%s", shown);
    }
    if (*text)
        fputs("...", to);
}

/* A JSON string, with its quotes. */
static inline void foreign_put_json(FILE *to, const char *text)
{
    fputc('"', to);
    while (*text) {
        uint32_t code;
        int bytes = foreign_next(text, &code);
        if (code == '"' || code == '\\')
            fprintf(to, "\\%c", (int)code);
        else if (code == FOREIGN_NOT_UTF8)
            fputs("\\ufffd", to);
        else if (foreign_acts(code))
            fprintf(to, "\\u%04x", code);
        else
            fwrite(text, 1, (size_t)bytes, to);
        text += bytes;
    }
    fputc('"', to);
}

#endif
