/* apps/common/tokens/vocab.h: the tokens and merges of a byte-level BPE.
 *
 * Files write the bytes of a token as printable characters: GPT-2's byte table maps each of the 256 bytes to one character
 * (the space to U+0120). A *byte token* consists of such characters alone, and is kept as the bytes. Any other text, such as
 * a special token with a space in it, is a *text token*, and is kept as it is. Two tokens are the same if bytes and kind are.
 *
 *     id      -> bytes          decoding
 *     bytes   -> id             ignore_merges, and reading merges
 *     pair of ids -> rank       encoding; the merge of rank r makes the token merged[r]
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
enum { VOCAB_IDS_MAX = 1 << 22, VOCAB_TOKEN_BYTES_MAX = 1 << 16 };

struct vocab_token {
    uint32_t at, length; /* in vocab.bytes */
    bool present, text;
};

struct vocab_pair {
    uint64_t key; /* the left id in the upper half */
    uint32_t rank;
};

struct vocab {
    struct vocab_token *token; /* owned, by id */
    uint32_t size;             /* ids are 0 .. size - 1 */
    uint8_t *bytes;            /* owned */
    size_t used, room;
    uint32_t *slot;            /* owned: a hash table of ids */
    uint32_t slot_mask;
    struct vocab_pair *pair;   /* owned: a hash table */
    uint32_t pair_mask;
    uint32_t *merged;          /* owned, by rank: the id that the merge makes */
    uint32_t merges;
    uint32_t byte_id[256];     /* the token of each single byte; VOCAB_NONE: there is none */
};

/* Each function returns false with tokens_error(), whose sentence does not name the file. */

/* Room for ids 0 .. size - 1 and so many merges. */
bool vocab_begin(struct vocab *v, uint64_t size, uint64_t merges);

/* Texts are UTF-8 as the file has them, `length` bytes and a zero byte. */
bool vocab_add(struct vocab *v, uint64_t id, const char *text, size_t length);
uint32_t vocab_find(struct vocab *v, const char *text, size_t length);

/* The same for a token that pieces of a text never become, as a special one: it has an id and its text, and is not found. */
bool vocab_add_hidden(struct vocab *v, uint64_t id, const char *text, size_t length);

/* Adds the merge of the next rank. If two merges have the same pair, the later one counts. */
bool vocab_add_merge(struct vocab *v, const char *left, size_t left_length, const char *right, size_t right_length);

/* Call it after the last token: finds the tokens of single bytes. */
void vocab_end(struct vocab *v);
void vocab_free(struct vocab *v);

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

/* The rank of the merge of two tokens; VOCAB_NONE: they do not merge. */
static inline uint32_t vocab_rank(const struct vocab *v, uint32_t left, uint32_t right)
{
    const uint64_t key = (uint64_t)left << 32 | right;
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    for (uint32_t at = (uint32_t)(hash >> 32) & v->pair_mask;; at = (at + 1) & v->pair_mask) {
        const struct vocab_pair *pair = &v->pair[at];
        if (pair->rank == VOCAB_NONE || pair->key == key)
            return pair->rank;
    }
}

#endif
