/* apps/common/tokens/scores.c: see the header. A merge makes a piece that is normal, and its parts are such pieces: a user-defined one
 * stays whole. */
#include "apps/common/tokens/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool scores_begin(struct scores *s, struct tokenizer *to, uint64_t pieces)
{
    *s = (struct scores){.to = to};
    to->normal.unmarks = true;
    to->strips = to->normal.space;
    to->bpe.unknown = VOCAB_NONE;
    to->bpe.fuse_unknown = true;
    if (!vocab_begin(&to->bpe.vocab, VOCAB_MARKS, pieces))
        return false;
    s->piece = malloc((pieces + 1) * sizeof *s->piece);
    memset(to->bpe.fallback, 0xff, sizeof to->bpe.fallback);
    return s->piece || tokens_failed("no memory for %llu pieces", (unsigned long long)pieces);
}

/* The byte of a piece that is called "<0x0A>"; -1: it is called otherwise. */
static int byte_of(const char *text)
{
    unsigned byte;
    char end;
    return strlen(text) == 6 && sscanf(text, "<0x%2X%c", &byte, &end) == 2 && end == '>' ? (int)byte : -1;
}

static bool add_byte(struct scores *s, const char *text)
{
    struct bpe *b = &s->to->bpe;
    const int byte = byte_of(text);
    if (byte < 0 || b->fallback[byte] != VOCAB_NONE)
        return tokens_failed("piece %u, \"%.20s\", is of the type of bytes, but is called for none, or there are two", s->count, text);
    b->fallback[byte] = s->count;
    s->bytes++;
    return vocab_add_byte(&b->vocab, s->count, (uint8_t)byte);
}

/* A special piece is found in the text as it is, a user-defined one in its normal form. */
static bool add_found(struct scores *s, const char *text, size_t bytes, bool special)
{
    char normal[VOCAB_TOKEN_BYTES_MAX];
    struct tokenizer *t = s->to;
    if (bytes > sizeof normal)
        return tokens_failed("piece %u has %zu bytes; at most %zu are read", s->count, bytes, sizeof normal);
    const struct added_token added = {.text = special ? (char *)text : normal, .id = s->count, .special = special,
                                      .length = special ? bytes : normal_unmark(text, bytes, normal)};
    if (!vocab_add_hidden(&t->bpe.vocab, s->count, added.text, added.length))
        return false;
    t->bpe.vocab.token[s->count].begins = special;
    return !bytes || added_add(&t->added[!special], &added);
}

static bool add_piece(struct scores *s, const char *text, size_t bytes, float score)
{
    if (bytes > VOCAB_RANKED_BYTES_MAX || !bytes || !isfinite(score))
        return tokens_failed("piece %u has %zu bytes, or a score that is no number; 1 to %d bytes are read", s->count, bytes, VOCAB_RANKED_BYTES_MAX);
    s->piece[s->pieces++] = (struct scored){score, s->count};
    return vocab_add(&s->to->bpe.vocab, s->count, text, bytes);
}

bool scores_add(struct scores *s, const char *text, size_t bytes, float score, uint32_t type)
{
    bool ok;
    if (type == SCORES_UNUSED)
        return tokens_failed("piece %u, \"%.40s\", is unused, which is not supported", s->count, text);
    if (type == SCORES_UNKNOWN)
        s->to->bpe.unknown = s->count;
    if (type == SCORES_BYTE)
        ok = add_byte(s, text);
    else if (type == SCORES_NORMAL)
        ok = add_piece(s, text, bytes, score);
    else
        ok = add_found(s, text, bytes, type != SCORES_USER);
    s->count++;
    return ok;
}

static int by_score(const void *x, const void *y)
{
    const struct scored *a = x, *b = y;
    return (a->score < b->score) - (a->score > b->score);
}

/* Merges find their parts by ids, so each character of a piece has to be a piece. */
static bool has_characters(const struct scores *s, uint32_t id)
{
    const struct vocab *v = &s->to->bpe.vocab;
    const uint8_t *bytes = v->bytes + v->token[id].at;
    for (uint32_t at = 0, end; at < v->token[id].length; at = end) {
        for (end = at + 1; end < v->token[id].length && (bytes[end] & 0xc0) == 0x80;)
            end++;
        if (vocab_of_bytes(v, bytes + at, end - at) == VOCAB_NONE)
            return tokens_failed("piece %u, \"%.*s\", has a character that is no piece, which is not supported", id,
                                 (int)v->token[id].length, (const char *)bytes);
    }
    return true;
}

static bool rank(struct scores *s)
{
    struct vocab *v = &s->to->bpe.vocab;
    uint32_t *ranks = malloc((v->size + 1) * sizeof *ranks), last = 0;
    bool ok = true;
    if (!ranks)
        return tokens_failed("no memory for %u pieces", v->size);
    memset(ranks, 0xff, (v->size + 1) * sizeof *ranks);
    if (s->pieces)
        qsort(s->piece, s->pieces, sizeof *s->piece, by_score);
    for (uint32_t i = 0; i < s->pieces && ok; i++) {
        last = i && s->piece[i].score < s->piece[i - 1].score ? i : last;
        ranks[s->piece[i].id] = last;
        ok = has_characters(s, s->piece[i].id);
    }
    ok = ok && vocab_rank_tokens(v, ranks);
    free(ranks);
    return ok;
}

bool scores_end(struct scores *s, bool falls_back)
{
    struct bpe *b = &s->to->bpe;
    vocab_end(&b->vocab);
    if (falls_back && s->bytes != 256)
        return tokens_failed("has tokens for %u of the 256 bytes, and byte_fallback, which needs all", s->bytes);
    b->falls_back = falls_back;
    return rank(s);
}

void scores_free(struct scores *s)
{
    free(s->piece);
    s->piece = NULL;
}
