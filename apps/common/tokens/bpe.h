/* apps/common/tokens/bpe.h: merges the symbols of a piece to tokens.
 *
 * A piece begins as the tokens of its bytes, or of its characters (VOCAB_MARKS). Then two neighbours merge again and again: those
 * whose merge has the lowest rank, and the first two with that rank. A heap holds the pairs, so a piece of n bytes takes O(n log n).
 * Short pieces repeat in texts: the last results are kept in a table of a fixed size.
 *
 * A piece of characters may be a whole text. It is cut first, between two characters that are neighbours in no token: no merge
 * reaches over such a place.
 */
#ifndef APPS_COMMON_TOKENS_BPE_H
#define APPS_COMMON_TOKENS_BPE_H

#include "apps/common/tokens/tokenizer.h"
#include "apps/common/tokens/vocab.h"

struct bpe {
    struct vocab vocab;    /* owned */
    bool ignore_merges;    /* a piece that is a token as a whole is this token */
    uint32_t unknown;      /* of bytes or characters that have no token; VOCAB_NONE: they are left out */
    bool fuse_unknown;     /* several in a row are one */
    bool falls_back;       /* a character that has no token becomes those of its bytes */
    uint32_t fallback[256];
    uint8_t joins[256][32]; /* bit: a token has a character that ends with the one byte before one that begins with the other */
};

/* Call it when the vocabulary is there, and `fallback` if `falls_back`. */
void bpe_end(struct bpe *b);

/* The scratch memory of one thread. NULL: no memory. */
struct bpe_scratch;
struct bpe_scratch *bpe_scratch_new(void);
void bpe_scratch_free(struct bpe_scratch *w);

/* Adds the ids of a piece. False with tokens_error(): no memory. */
bool bpe_encode(const struct bpe *b, struct bpe_scratch *w, const char *piece, size_t bytes, struct token_ids *to);

#endif
