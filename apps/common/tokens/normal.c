/* apps/common/tokens/normal.c: the form in which a tokenizer wants a text.
 *
 * Most of a text is in its Unicode form already: ASCII always is, and below U+0300 all characters are in NFC. So only runs of other
 * characters go through utf8proc. A run begins one character before the first of them, which a mark may join, and ends before an
 * ASCII character, which joins nothing before it.
 *
 * The reference, PyPI's `tokenizers`, has the forms of Unicode 9. Characters whose part in a form is newer stay as they are there, and
 * nothing moves over them; so they do here.
 */
#include "apps/common/tokens/normal.h"
#include "apps/common/tokens/tokenizer.h"

#include "graph/base/foreign.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct normalizer {
    char *text; /* owned, as the codes */
    size_t used, room;
    int32_t *code;
    size_t codes;
};

struct normalizer *normalizer_new(void)
{
    return calloc(1, sizeof(struct normalizer));
}

void normalizer_free(struct normalizer *w)
{
    if (!w)
        return;
    free(w->text);
    free(w->code);
    free(w);
}

bool normal_set_form(struct normal *n, const char *name)
{
    static const struct {
        const char *name;
        int options;
    } forms[] = {
        {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
        {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
        {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
        {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(forms[i].name, name)) {
            n->form = forms[i].options;
            return true;
        }
    return false;
}

size_t normal_unmark(const char *text, size_t bytes, char *to)
{
    size_t made = 0;
    for (size_t at = 0; at < bytes;) {
        const bool mark = bytes - at >= 3 && !memcmp(text + at, NORMAL_MARK, 3);
        to[made++] = mark ? ' ' : text[at];
        at += mark ? 3 : 1;
    }
    return made;
}

static bool has_room(struct normalizer *w, size_t bytes)
{
    if (w->text && w->room - w->used >= bytes)
        return true;
    const size_t room = 2 * w->room + bytes + 256;
    char *text = realloc(w->text, room);
    if (!text)
        return tokens_failed("no memory for a text of %zu bytes", bytes);
    w->text = text;
    w->room = room;
    return true;
}

static bool put(struct normalizer *w, const char *text, size_t bytes)
{
    if (!has_room(w, bytes))
        return false;
    memcpy(w->text + w->used, text, bytes);
    w->used += bytes;
    return true;
}

/* ---- Unicode forms ---- */

/* The first byte of characters that may not be in the form. */
static uint8_t first_byte(const struct normal *n)
{
    return n->form == (UTF8PROC_STABLE | UTF8PROC_COMPOSE) ? 0xcc : 0x80;
}

/* Characters that have a form, or a place among the marks behind a letter, since a version of Unicode between 10 and 14. */
static const uint32_t later[][2] = {
    {0x7fd, 0x7fd},     {0x898, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},
    {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},
    {0xab69, 0xab69},   {0x10781, 0x107ba}, {0x10d24, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x11a99}, {0x11d42, 0x11d97}, {0x16ff0, 0x16ff1}, {0x1e130, 0x1e2ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};
enum { LATER = sizeof later / sizeof *later };

static bool is_later(uint32_t code)
{
    bool is = false;
    for (int i = 0; i < LATER && later[i][0] <= code; i++)
        is |= code <= later[i][1];
    return is;
}

/* The length of the text before the first of them; *length is that of this one, or 0. */
static size_t before_later(const char *text, size_t bytes, size_t *length)
{
    uint32_t code;
    *length = 0;
    for (size_t at = 0, next; at < bytes; at += next) {
        next = (size_t)foreign_next(text + at, &code);
        if (is_later(code)) {
            *length = next;
            return at;
        }
    }
    return bytes;
}

/* Text without any of them. */
static bool put_known(const struct normal *n, struct normalizer *w, const char *run, size_t bytes)
{
    utf8proc_ssize_t count = utf8proc_decompose((const uint8_t *)run, (utf8proc_ssize_t)bytes, w->code, (utf8proc_ssize_t)w->codes, n->form);
    if (count >= (utf8proc_ssize_t)w->codes) {
        free(w->code);
        w->codes = 2 * (size_t)count + 256;
        w->code = malloc(w->codes * sizeof *w->code);
        w->codes = w->code ? w->codes : 0;
        if (!w->code)
            return tokens_failed("no memory for a text of %zu bytes", bytes);
        count = utf8proc_decompose((const uint8_t *)run, (utf8proc_ssize_t)bytes, w->code, (utf8proc_ssize_t)w->codes, n->form);
    }
    count = count < 0 ? count : utf8proc_reencode(w->code, count, n->form);
    return count < 0 ? tokens_failed("a text has no Unicode form: %s", utf8proc_errmsg(count)) : put(w, (const char *)w->code, (size_t)count);
}

static bool put_run(const struct normal *n, struct normalizer *w, const char *run, size_t bytes)
{
    bool ok = true;
    for (size_t at = 0, length; at < bytes && ok; at += length) {
        const size_t known = before_later(run + at, bytes - at, &length);
        ok = (!known || put_known(n, w, run + at, known)) && put(w, run + at + known, length);
        at += known;
    }
    return ok;
}

/* The next run: where it begins and ends. Both are `bytes` if there is none. */
static void find_run(const struct normal *n, const char *text, size_t bytes, size_t from, size_t *begin, size_t *end)
{
    const uint8_t first = first_byte(n);
    size_t at = from;
    while (at < bytes && (uint8_t)text[at] < first)
        at++;
    *begin = *end = at;
    if (at == bytes)
        return;
    while (*begin > from) { /* one character back */
        --*begin;
        if (((uint8_t)text[*begin] & 0xc0) != 0x80)
            break;
    }
    while (*end < bytes && (uint8_t)text[*end] >= 0x80)
        ++*end;
}

static bool put_form(const struct normal *n, struct normalizer *w, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t begin, end;
        find_run(n, text, bytes, at, &begin, &end);
        if (!put(w, text + at, begin - at) || (end > begin && !put_run(n, w, text + begin, end - begin)))
            return false;
        at = end;
    }
    return true;
}

static bool is_in_form(const struct normal *n, const char *text, size_t bytes)
{
    const uint8_t first = first_byte(n);
    size_t at = n->form ? 0 : bytes;
    while (at < bytes && (uint8_t)text[at] < first)
        at++;
    return at == bytes;
}

/* ---- all of it ---- */

static bool has_mark(const char *text, size_t bytes)
{
    for (const char *at = text, *end = text + bytes; (at = memchr(at, NORMAL_MARK[0], (size_t)(end - at))); at++)
        if (end - at >= 3 && !memcmp(at, NORMAL_MARK, 3))
            return true;
    return false;
}

const char *normal_text(const struct normal *n, struct normalizer *w, const char *text, size_t bytes, size_t *made)
{
    *made = bytes;
    if (!bytes || (!n->space && is_in_form(n, text, bytes) && !(n->unmarks && has_mark(text, bytes))))
        return text;
    w->used = 0;
    if ((n->space && !put(w, " ", 1)) || !(n->form ? put_form(n, w, text, bytes) : put(w, text, bytes)))
        return NULL;
    *made = n->unmarks ? normal_unmark(w->text, w->used, w->text) : w->used;
    return w->text;
}
