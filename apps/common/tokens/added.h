/* apps/common/tokens/added.h: special and added tokens, which are found in a text before it is split.
 *
 * The leftmost one counts, and the longest of those that begin at one place. A token may take the whitespace before or after
 * it as well.
 */
#ifndef APPS_COMMON_TOKENS_ADDED_H
#define APPS_COMMON_TOKENS_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token {
    char *text;   /* owned */
    size_t length; /* at least 1 */
    uint32_t id;
    bool special, takes_left, takes_right;
};

struct added {
    struct added_token *token; /* owned; sorted by text after added_end() */
    size_t count, room;
    bool begins[256];          /* whether a token begins with this byte */
};

/* Adds a token, whose text is copied. False with tokens_error(): no memory, or the text is not UTF-8. So the text between two tokens
 * has whole characters. */
bool added_add(struct added *a, const struct added_token *token);

/* Call it after the last. False with tokens_error(): two tokens have the same text. */
bool added_end(struct added *a);
void added_free(struct added *a);

/* The first token at or after `from`, and where it begins. NULL: there is none. */
const struct added_token *added_find(const struct added *a, const char *text, size_t bytes, size_t from, size_t *begin);

/* How many bytes of whitespace the text ends with, or begins with. It is valid UTF-8. */
size_t added_space_at_end(const char *text, size_t bytes);
size_t added_space_at_begin(const char *text, size_t bytes);

#endif
