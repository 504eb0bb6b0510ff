/* apps/common/tokens/scores.h: the pieces of a SentencePiece model, with their scores and types, as a vocabulary: for tokenizer.model
 * and for GGUF files, which have the same three things.
 */
#ifndef APPS_COMMON_TOKENS_SCORES_H
#define APPS_COMMON_TOKENS_SCORES_H

#include "apps/common/tokens/inside.h"

enum { SCORES_NORMAL = 1, SCORES_UNKNOWN, SCORES_CONTROL, SCORES_USER, SCORES_UNUSED, SCORES_BYTE };

struct scores {
    struct tokenizer *to;                     /* borrowed */
    struct scored { float score; uint32_t id; } *piece; /* owned: those that merges make */
    uint32_t pieces, count, bytes;            /* of those, of all, and of the tokens of bytes */
};

/* Begins the vocabulary of an empty tokenizer. After a failure of any of them, scores_free() is called, too. */
bool scores_begin(struct scores *s, struct tokenizer *to, uint64_t pieces);

/* Adds the next piece: `bytes` of text, and a zero byte. */
bool scores_add(struct scores *s, const char *text, size_t bytes, float score, uint32_t type);

/* Call it after the last. `falls_back`: the bytes of characters that are no piece have tokens. */
bool scores_end(struct scores *s, bool falls_back);
void scores_free(struct scores *s);

#endif
