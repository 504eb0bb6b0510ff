/* apps/common/tokens/normal.h: the form in which a tokenizer wants a text, before the text is split.
 *
 *     1. a Unicode form: NFC, NFD, NFKC or NFKD (libutf8proc)
 *     2. a space is put before the text
 *     3. each U+2581 becomes a space
 *
 * SentencePiece writes spaces as U+2581, in texts and in tokens. Here it is the other way round: tokens have spaces (vocab.h), and a
 * text that has U+2581 of its own gets spaces for it. That gives the same ids, and texts do not grow.
 */
#ifndef APPS_COMMON_TOKENS_NORMAL_H
#define APPS_COMMON_TOKENS_NORMAL_H

#include <stdbool.h>
#include <stddef.h>

#define NORMAL_MARK "\xe2\x96\x81" /* U+2581 */

struct normal {
    int form;     /* options of utf8proc; 0: the text stays */
    bool space;   /* one comes before each text that is not empty */
    bool unmarks; /* U+2581 becomes a space */
};

/* Sets the form by its name, "NFC". False: there is no such form. */
bool normal_set_form(struct normal *n, const char *name);

/* The scratch memory of one thread. NULL: no memory. */
struct normalizer;
struct normalizer *normalizer_new(void);
void normalizer_free(struct normalizer *w);

/* The text in this form: the same text, or in memory of `w`, which the next call uses again. The text is valid UTF-8. NULL:
 * tokens_error(). */
const char *normal_text(const struct normal *n, struct normalizer *w, const char *text, size_t bytes, size_t *made);

/* Copies a text, with a space for each U+2581; returns how many bytes that makes, at most `bytes`. `to` may be `text`. */
size_t normal_unmark(const char *text, size_t bytes, char *to);

#endif
