/* apps/common/tokens/vocab.c: the tokens and merges of a BPE.
 *
 * Both tables are open hash tables of at least twice as many slots as entries, made once: the counts are known before. A text
 * is looked up by writing its bytes behind those of all tokens, where they also stay if it is added.
 */
#include "apps/common/tokens/vocab.h"
#include "apps/common/tokens/normal.h"
#include "apps/common/tokens/tokenizer.h"

#include "graph/base/foreign.h"

#include <stdlib.h>
#include <string.h>

static uint32_t power_above(uint64_t count)
{
    uint32_t power = 2;
    while (power < 2 * count)
        power *= 2;
    return power;
}

bool vocab_begin(struct vocab *v, enum vocab_form form, uint64_t size)
{
    if (size > VOCAB_IDS_MAX)
        return tokens_failed("has %llu ids; at most %d are read", (unsigned long long)size, VOCAB_IDS_MAX);
    const uint32_t slots = power_above(size);
    *v = (struct vocab){.form = form, .size = (uint32_t)size, .slot_mask = slots - 1};
    v->token = calloc(size + 1, sizeof *v->token);
    v->slot = malloc(slots * sizeof *v->slot);
    if (!v->token || !v->slot)
        return tokens_failed("no memory for %llu tokens", (unsigned long long)size);
    memset(v->slot, 0xff, slots * sizeof *v->slot);
    return true;
}

static bool begin_pairs(struct vocab *v, uint64_t pairs)
{
    if (pairs > VOCAB_IDS_MAX)
        return tokens_failed("has %llu merges; at most %d are read", (unsigned long long)pairs, VOCAB_IDS_MAX);
    const uint32_t slots = power_above(pairs);
    v->pair_mask = slots - 1;
    v->pair = malloc(slots * sizeof *v->pair);
    if (!v->pair)
        return tokens_failed("no memory for %llu merges", (unsigned long long)pairs);
    memset(v->pair, 0xff, slots * sizeof *v->pair);
    return true;
}

bool vocab_begin_merges(struct vocab *v, uint64_t merges)
{
    if (!begin_pairs(v, merges))
        return false;
    v->merged = malloc((merges + 1) * sizeof *v->merged);
    return v->merged || tokens_failed("no memory for %llu merges", (unsigned long long)merges);
}

void vocab_free(struct vocab *v)
{
    free(v->token);
    free(v->bytes);
    free(v->slot);
    free(v->pair);
    free(v->merged);
    *v = (struct vocab){.size = 0};
}

void vocab_only_texts(struct vocab *v)
{
    free(v->slot);
    free(v->pair);
    free(v->merged);
    v->slot = NULL;
    v->pair = NULL;
    v->merged = NULL;
    uint8_t *bytes = v->used ? realloc(v->bytes, v->used) : NULL;
    v->bytes = bytes ? bytes : v->bytes;
    v->room = bytes ? v->used : v->room;
}

/* ---- GPT-2's byte table ---- */

static bool is_printable(uint32_t code)
{
    return (code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255);
}

/* The byte of a character of the table, or -1. The 68 bytes that are not printable are U+0100 to U+0143, in their order. */
static int byte_of(uint32_t code)
{
    if (code < 256)
        return is_printable(code) ? (int)code : -1;
    if (code < 256 + 33)
        return (int)code - 256;
    if (code < 256 + 33 + 34)
        return (int)code - 256 - 33 + 127;
    return code == 256 + 67 ? 173 : -1;
}

/* Room for a token behind all others. */
static bool has_room(struct vocab *v, size_t length)
{
    if (length > VOCAB_TOKEN_BYTES_MAX)
        return tokens_failed("has a token of %zu bytes; at most %d are read", length, VOCAB_TOKEN_BYTES_MAX);
    if (v->room - v->used >= length && v->bytes)
        return true;
    const size_t room = 2 * v->room + length + 4096;
    uint8_t *bytes = room < UINT32_MAX ? realloc(v->bytes, room) : NULL;
    if (!bytes)
        return tokens_failed("no memory for %zu bytes of tokens", room);
    v->bytes = bytes;
    v->room = room;
    return true;
}

/* The bytes of printable characters, up to the first that is none of them. */
static void spell_bytes(const char *text, size_t length, uint8_t *to, struct vocab_token *token)
{
    for (size_t at = 0; at < length && !token->text;) {
        uint32_t code;
        at += (size_t)foreign_next(text + at, &code);
        const int byte = byte_of(code);
        token->text = byte < 0;
        to[token->length++] = (uint8_t)byte;
    }
}

/* Writes the bytes of a token behind all others, without taking them. `token` says where they are. */
static bool spell(struct vocab *v, const char *text, size_t length, struct vocab_token *token)
{
    if (!has_room(v, length))
        return false;
    uint8_t *to = v->bytes + v->used;
    *token = (struct vocab_token){.at = (uint32_t)v->used, .length = 0, .present = true, .found = true};
    if (v->form == VOCAB_BYTE_TABLE)
        spell_bytes(text, length, to, token);
    if (token->text || v->form == VOCAB_AS_IS)
        memcpy(to, text, token->length = (uint32_t)length);
    if (v->form == VOCAB_MARKS)
        token->length = (uint32_t)normal_unmark(text, length, (char *)to);
    return true;
}

/* ---- tokens ---- */

/* The slot of the token, or the empty one where it belongs. */
static uint32_t *slot_of(const struct vocab *v, const void *bytes, uint32_t length, bool text)
{
    uint32_t at = (uint32_t)vocab_hash(bytes, length) & v->slot_mask;
    for (;; at = (at + 1) & v->slot_mask) {
        const struct vocab_token *t = v->slot[at] == VOCAB_NONE ? NULL : &v->token[v->slot[at]];
        if (!t || (t->length == length && t->text == text && !memcmp(v->bytes + t->at, bytes, length)))
            return &v->slot[at];
    }
}

static bool is_free(const struct vocab *v, uint64_t id, const char *text)
{
    if (id >= v->size)
        return tokens_failed("token \"%.*s\" has the id %llu; ids are 0 to %u", foreign_fit(text, 64), text,
                             (unsigned long long)id, v->size - 1);
    if (v->token[id].present)
        return tokens_failed("two tokens have the id %llu; the second is \"%.*s\"", (unsigned long long)id,
                             foreign_fit(text, 64), text);
    return true;
}

bool vocab_add(struct vocab *v, uint64_t id, const char *text, size_t length)
{
    struct vocab_token token;
    if (!is_free(v, id, text) || !spell(v, text, length, &token))
        return false;
    uint32_t *slot = slot_of(v, v->bytes + token.at, token.length, token.text);
    if (*slot != VOCAB_NONE)
        return tokens_failed("token \"%.*s\" has two ids, %u and %llu", foreign_fit(text, 64), text, *slot,
                             (unsigned long long)id);
    v->token[id] = token;
    v->used += token.length;
    *slot = (uint32_t)id;
    return true;
}

bool vocab_add_hidden(struct vocab *v, uint64_t id, const char *text, size_t length)
{
    if (!is_free(v, id, text) || !has_room(v, length))
        return false;
    char *to = (char *)v->bytes + v->used;
    memcpy(to, text, length);
    length = v->form == VOCAB_MARKS ? normal_unmark(to, length, to) : length;
    v->token[id] = (struct vocab_token){(uint32_t)v->used, (uint32_t)length, .present = true, .text = true};
    v->used += length;
    return true;
}

bool vocab_add_byte(struct vocab *v, uint64_t id, uint8_t byte)
{
    return vocab_add_hidden(v, id, (const char *)&byte, 1);
}

uint32_t vocab_find(struct vocab *v, const char *text, size_t length)
{
    struct vocab_token token;
    return spell(v, text, length, &token) ? *slot_of(v, v->bytes + token.at, token.length, token.text) : VOCAB_NONE;
}

uint32_t vocab_of_bytes(const struct vocab *v, const void *bytes, size_t length)
{
    return length > VOCAB_TOKEN_BYTES_MAX ? VOCAB_NONE : *slot_of(v, bytes, (uint32_t)length, false);
}

void vocab_end(struct vocab *v)
{
    for (int byte = 0; byte < 256; byte++)
        v->byte_id[byte] = vocab_of_bytes(v, &(uint8_t){(uint8_t)byte}, 1);
}

/* ---- merges ---- */

static void put_pair(struct vocab *v, uint32_t left, uint32_t right, uint32_t rank, uint32_t makes)
{
    const uint64_t key = (uint64_t)left << 32 | right, hash = key * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & v->pair_mask;
    while (v->pair[at].rank != VOCAB_NONE && v->pair[at].key != key)
        at = (at + 1) & v->pair_mask;
    v->pair[at] = (struct vocab_pair){key, rank, makes};
}

static bool no_token(const struct vocab *v, const char *what, const char *left, int left_length, const char *right,
                     int right_length)
{
    return tokens_failed("merge %u, \"%.*s %.*s\": %s is not a token", v->merges, left_length < 64 ? left_length : 64, left,
                         right_length < 64 ? right_length : 64, right, what);
}

/* The token whose text is both texts, one behind the other. */
static uint32_t join(struct vocab *v, const char *left, size_t left_length, const char *right, size_t right_length)
{
    char both[2 * VOCAB_TOKEN_BYTES_MAX + 1];
    memcpy(both, left, left_length);
    memcpy(both + left_length, right, right_length);
    both[left_length + right_length] = '\0';
    return vocab_find(v, both, left_length + right_length);
}

bool vocab_add_merge(struct vocab *v, const char *left, size_t left_length, const char *right, size_t right_length)
{
    const uint32_t a = vocab_find(v, left, left_length), b = vocab_find(v, right, right_length);
    if (a == VOCAB_NONE || b == VOCAB_NONE)
        return no_token(v, a == VOCAB_NONE ? "the first" : "the second", left, (int)left_length, right, (int)right_length);
    const uint32_t made = join(v, left, left_length, right, right_length);
    if (made == VOCAB_NONE)
        return no_token(v, "the pair", left, (int)left_length, right, (int)right_length);
    put_pair(v, a, b, v->merges, made);
    v->merged[v->merges++] = made;
    return true;
}

/* Counts the pairs that make the token, or puts them into the table. */
static uint64_t pairs_of(struct vocab *v, uint32_t id, uint32_t rank, bool put)
{
    const struct vocab_token *token = &v->token[id];
    const uint8_t *bytes = v->bytes + token->at;
    uint64_t pairs = 0;
    if (!token->found)
        return 0;
    for (uint32_t cut = 1; cut < token->length; cut++) {
        if (v->form == VOCAB_MARKS && (bytes[cut] & 0xc0) == 0x80)
            continue;
        const uint32_t left = vocab_of_bytes(v, bytes, cut);
        const uint32_t right = left == VOCAB_NONE ? VOCAB_NONE : vocab_of_bytes(v, bytes + cut, token->length - cut);
        if (right == VOCAB_NONE)
            continue;
        pairs++;
        if (put)
            put_pair(v, left, right, rank, id);
    }
    return pairs;
}

bool vocab_rank_tokens(struct vocab *v, const uint32_t *rank)
{
    uint64_t pairs = 0;
    for (uint32_t id = 0; id < v->size; id++)
        pairs += rank[id] == VOCAB_NONE ? 0 : pairs_of(v, id, rank[id], false);
    if (!begin_pairs(v, pairs))
        return false;
    for (uint32_t id = 0; id < v->size; id++)
        if (rank[id] != VOCAB_NONE)
            pairs_of(v, id, rank[id], true);
    return true;
}
