/* apps/common/tokens/added.c: special and added tokens.
 *
 * Few bytes of a text begin a token, as "<" does, so most of the time goes into looking for these. From there on the sorted list
 * is narrowed byte by byte to the tokens that begin as the text does.
 */
#include "apps/common/tokens/inside.h"

#include "graph/base/foreign.h"

#include <stdlib.h>
#include <string.h>

bool added_add(struct added *a, const struct added_token *token)
{
    if (tokens_utf8(token->text, token->length) != token->length)
        return tokens_failed("the added token with the id %u is not UTF-8", token->id);
    if (a->count == a->room) {
        const size_t room = 2 * a->room + 16;
        struct added_token *grown = realloc(a->token, room * sizeof *grown);
        if (!grown)
            return tokens_failed("no memory for %zu added tokens", room);
        a->token = grown;
        a->room = room;
    }
    struct added_token *to = &a->token[a->count];
    *to = *token;
    to->text = malloc(token->length);
    if (!to->text)
        return tokens_failed("no memory for an added token");
    memcpy(to->text, token->text, token->length);
    a->count++;
    a->begins[(uint8_t)*to->text] = true;
    return true;
}

static int by_text(const void *x, const void *y)
{
    const struct added_token *a = x, *b = y;
    const int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

bool added_end(struct added *a)
{
    if (a->count)
        qsort(a->token, a->count, sizeof *a->token, by_text);
    for (size_t i = 1; i < a->count; i++)
        if (!by_text(&a->token[i - 1], &a->token[i]))
            return tokens_failed("the added token \"%.*s\" is there twice", (int)(a->token[i].length < 64 ? a->token[i].length : 64),
                                 a->token[i].text);
    return true;
}

void added_free(struct added *a)
{
    for (size_t i = 0; i < a->count; i++)
        free(a->token[i].text);
    free(a->token);
    *a = (struct added){.count = 0};
}

/* The first of the tokens from `low` to `high` whose byte `at` is `byte` or more, where all have the same bytes before it and are
 * longer. */
static size_t first_with(const struct added *a, size_t low, size_t high, size_t at, int byte)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uint8_t)a->token[middle].text[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that the text begins with. */
static const struct added_token *longest(const struct added *a, const char *text, size_t bytes)
{
    const struct added_token *found = NULL;
    size_t low = 0, high = a->count;
    for (size_t at = 0; at < bytes && low < high; at++) {
        const int byte = (uint8_t)text[at];
        low = first_with(a, low, high, at, byte);
        high = first_with(a, low, high, at, byte + 1);
        if (low < high && a->token[low].length == at + 1)
            found = &a->token[low++];
    }
    return found;
}

const struct added_token *added_find(const struct added *a, const char *text, size_t bytes, size_t from, size_t *begin)
{
    const struct added_token *found = NULL;
    for (; from < bytes && !found; from++)
        if (a->begins[(uint8_t)text[from]] && (found = longest(a, text + from, bytes - from)))
            *begin = from;
    return found;
}

static bool is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
           code == 0x3000;
}

size_t added_space_at_end(const char *text, size_t bytes)
{
    size_t end = bytes;
    uint32_t code = ' ';
    while (end) {
        size_t begin = end - 1;
        while (begin && ((uint8_t)text[begin] & 0xc0) == 0x80)
            begin--;
        foreign_next(text + begin, &code);
        if (!is_space(code))
            break;
        end = begin;
    }
    return bytes - end;
}

size_t added_space_at_begin(const char *text, size_t bytes)
{
    size_t at = 0;
    uint32_t code;
    while (at < bytes) {
        const size_t next = (size_t)foreign_next(text + at, &code);
        if (!is_space(code))
            break;
        at += next;
    }
    return at;
}
