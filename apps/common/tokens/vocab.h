/* apps/common/tokens/vocab.h: the tokens and merges of a BPE.
 *
 * Files write tokens in one of three forms.
 *
 *     VOCAB_BYTE_TABLE   GPT-2's byte table maps each of the 256 bytes to one printable character (the space to U+0120). A *byte
 *                        token* consists of such characters alone, and is kept as the bytes. Any other text, such as a special
 *                        token with a space in it, is a *text token*, and is kept as it is.
 *     VOCAB_MARKS        SentencePiece writes a space as U+2581, which becomes a space here.
 *     VOCAB_AS_IS        The bytes of a token are the file's.
 *
 * Two tokens are the same if bytes and kind are.
 *
 *     id      -> bytes          decoding
 *     bytes   -> id             ignore_merges, characters, and reading merges
 *     pair of ids -> rank       encoding; the merge of the lowest rank comes first
 *
 * Merges come from a list, whose order is their ranks, or follow from a rank of each token: then each two tokens merge whose
 * bytes are together a token, and the rank of that is the merge's.
 *
 * Ids need not be dense: an id without a token is absent. All memory is bounded by the counts that vocab_begin() gets. A
 * vocabulary does not change after it is read; then any thread may use it.
 */
#ifndef APPS_COMMON_TOKENS_VOCAB_H
#define APPS_COMMON_TOKENS_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_NONE UINT32_MAX
enum { VOCAB_IDS_MAX = 1 << 22, VOCAB_TOKEN_BYTES_MAX = 1 << 16, VOCAB_RANKED_BYTES_MAX = 512 /* where merges follow from ranks */ };

enum vocab_form { VOCAB_BYTE_TABLE, VOCAB_MARKS, VOCAB_AS_IS };

struct vocab_token {
    uint32_t at, length; /* in vocab.bytes */
    bool present, text;
    bool found;          /* it may be found by its bytes; false: it is hidden */
    bool begins;         /* a text that follows the token begins anew, perhaps with a space that is added */
};

struct vocab_pair {
    uint64_t key; /* the left id in the upper half */
    uint32_t rank, makes;
};

struct vocab {
    enum vocab_form form;
    struct vocab_token *token; /* owned, by id */
    uint32_t size;             /* ids are 0 .. size - 1 */
    uint8_t *bytes;            /* owned */
    size_t used, room;
    uint32_t *slot;            /* owned: a hash table of ids */
    uint32_t slot_mask;
    struct vocab_pair *pair;   /* owned: a hash table */
    uint32_t pair_mask;
    uint32_t *merged;          /* owned, by rank: the id that the merge makes. NULL: ranks are those of tokens */
    uint32_t merges;
    uint32_t byte_id[256];     /* the token of each single byte; VOCAB_NONE: there is none */
};

/* Each function returns false with tokens_error(), whose sentence does not name the file. */

/* Room for ids 0 .. size - 1. */
bool vocab_begin(struct vocab *v, enum vocab_form form, uint64_t size);

/* Texts are UTF-8 as the file has them, `length` bytes and a zero byte. */
bool vocab_add(struct vocab *v, uint64_t id, const char *text, size_t length);
uint32_t vocab_find(struct vocab *v, const char *text, size_t length);

/* The same for a token that pieces of a text never become, as a special one: it has an id and its text, in which marks are spaces, and is
 * not found. */
bool vocab_add_hidden(struct vocab *v, uint64_t id, const char *text, size_t length);

/* The token of one byte, as "<0x0A>" of SentencePiece: it has an id, and is not found. */
bool vocab_add_byte(struct vocab *v, uint64_t id, uint8_t byte);

/* Room for so many merges, after the tokens. */
bool vocab_begin_merges(struct vocab *v, uint64_t merges);

/* Adds the merge of the next rank. If two merges have the same pair, the later one counts. */
bool vocab_add_merge(struct vocab *v, const char *left, size_t left_length, const char *right, size_t right_length);

/* Or all merges, from the rank of each token, by id; VOCAB_NONE: none makes this one. In a form of characters, the parts of a
 * token are whole characters. */
bool vocab_rank_tokens(struct vocab *v, const uint32_t *rank);

/* Call it after the last token: finds the tokens of single bytes. */
void vocab_end(struct vocab *v);
void vocab_free(struct vocab *v);

/* Frees what finds tokens and merges, and the room behind their texts; these stay. */
void vocab_only_texts(struct vocab *v);

/* The id of the byte token with these bytes; VOCAB_NONE: there is none. */
uint32_t vocab_of_bytes(const struct vocab *v, const void *bytes, size_t length);

/* A hash of bytes: 8 at a time. */
static inline uint64_t vocab_hash(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint64_t hash = length * 0x9e3779b97f4a7c15u, word;
    for (; length > 8; at += 8, length -= 8) {
        __builtin_memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    word = 0;
    for (size_t i = 0; i < length; i++)
        word |= (uint64_t)at[i] << 8 * i;
    hash = (hash ^ word) * 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 29;
}

/* The merge of two tokens; its rank is VOCAB_NONE if they do not merge. */
static inline const struct vocab_pair *vocab_merge(const struct vocab *v, uint32_t left, uint32_t right)
{
    const uint64_t key = (uint64_t)left << 32 | right;
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    for (uint32_t at = (uint32_t)(hash >> 32) & v->pair_mask;; at = (at + 1) & v->pair_mask) {
        const struct vocab_pair *pair = &v->pair[at];
        if (pair->rank == VOCAB_NONE || pair->key == key)
            return pair;
    }
}

#endif
