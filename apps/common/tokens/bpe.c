/* apps/common/tokens/bpe.c: merges the symbols of a piece to tokens.
 *
 * The symbols of a piece are a list within an array. A merge keeps the left symbol and drops the right one, so an entry of the
 * heap may be out of date when it comes out. It counts if its symbol still makes, with the next one, the token that the entry's
 * rank makes. That is the rule of `tokenizers`, which differs from "is still the same pair" where two pairs make one token. Where
 * ranks are those of tokens, it counts if the rank is still the same, which is the rule of SentencePiece and tiktoken.
 */
#include "apps/common/tokens/bpe.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_BITS = 14, KEPT_TEXT = 26, KEPT_IDS = 9, DROPPED = -2, END = -1 };

struct symbol {
    uint32_t id;
    uint32_t makes, rank;    /* the token of this one with the next; VOCAB_NONE: they do not merge */
    int32_t previous, next;  /* END, or DROPPED as `next` */
};

/* The ids of a short piece. */
struct kept {
    uint8_t bytes, ids; /* 0 bytes: nothing is kept here */
    char text[KEPT_TEXT];
    uint32_t id[KEPT_IDS];
};

struct bpe_scratch {
    struct kept kept[1 << KEPT_BITS];
    struct symbol *symbol; /* owned, as the heap */
    uint64_t *heap;        /* a rank in the upper half, a symbol in the lower; the least comes first */
    size_t heap_count, room;
};

struct bpe_scratch *bpe_scratch_new(void)
{
    return calloc(1, sizeof(struct bpe_scratch));
}

void bpe_scratch_free(struct bpe_scratch *w)
{
    if (!w)
        return;
    free(w->symbol);
    free(w->heap);
    free(w);
}

bool token_ids_add(struct token_ids *to, const uint32_t *id, size_t count)
{
    if (to->room - to->count < count) {
        const size_t room = 2 * to->room + count + 64;
        uint32_t *grown = realloc(to->id, room * sizeof *grown);
        if (!grown)
            return tokens_failed("no memory for %zu ids", room);
        to->id = grown;
        to->room = room;
    }
    for (size_t i = 0; i < count; i++)
        to->id[to->count + i] = id[i];
    to->count += count;
    return true;
}

/* ---- the heap ---- */

static void push(struct bpe_scratch *w, uint64_t entry)
{
    size_t at = w->heap_count++;
    for (; at && w->heap[(at - 1) / 2] > entry; at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = entry;
}

static uint64_t pop(struct bpe_scratch *w)
{
    const uint64_t least = w->heap[0], moved = w->heap[--w->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->heap_count; at = child) {
        child += child + 1 < w->heap_count && w->heap[child + 1] < w->heap[child];
        if (w->heap[child] >= moved)
            break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = moved;
    return least;
}

/* ---- merging ---- */

/* A piece of n symbols has at most n - 1 pairs at first, and each of its at most n - 1 merges makes two. */
static bool has_room(struct bpe_scratch *w, size_t bytes)
{
    if (w->room >= bytes)
        return true;
    if (bytes > INT32_MAX)
        return tokens_failed("a piece of the text has %zu bytes; at most %d are read", bytes, INT32_MAX);
    const size_t room = bytes + 64;
    free(w->symbol);
    free(w->heap);
    w->symbol = malloc(room * sizeof *w->symbol);
    w->heap = malloc(3 * room * sizeof *w->heap);
    w->room = w->symbol && w->heap ? room : 0;
    return w->room || tokens_failed("no memory for a piece of %zu bytes", bytes);
}

/* Symbols are added; bytes or characters that have none are left out, or become the unknown token. */
struct spelling {
    const struct bpe *bpe;
    struct symbol *symbol;
    int32_t count;
    bool unknown; /* one is due before the next symbol that is known */
};

static void add_symbol(struct spelling *s, uint32_t id)
{
    s->symbol[s->count] = (struct symbol){.id = id, .previous = s->count - 1, .next = s->count + 1};
    s->count++;
}

/* Unknown tokens come before the next known one, and before the next unknown one if they are not fused. */
static void add_due(struct spelling *s)
{
    if (s->unknown && s->bpe->unknown != VOCAB_NONE)
        add_symbol(s, s->bpe->unknown);
    s->unknown = false;
}

static void add_unknown(struct spelling *s)
{
    if (!s->bpe->fuse_unknown)
        add_due(s);
    s->unknown = true;
}

static void spell_bytes(struct spelling *s, const uint8_t *piece, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const uint32_t id = s->bpe->vocab.byte_id[piece[i]];
        if (id == VOCAB_NONE) {
            add_unknown(s);
            continue;
        }
        add_due(s);
        add_symbol(s, id);
    }
}

static size_t char_length(uint8_t first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

static void spell_chars(struct spelling *s, const uint8_t *piece, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        length = char_length(piece[at]);
        const uint32_t id = length == 1 ? s->bpe->vocab.byte_id[piece[at]] : vocab_of_bytes(&s->bpe->vocab, piece + at, length);
        if (id != VOCAB_NONE) {
            add_due(s);
            add_symbol(s, id);
        } else if (!s->bpe->falls_back) {
            add_unknown(s);
        } else {
            for (size_t i = 0; i < length; i++)
                add_symbol(s, s->bpe->fallback[piece[at + i]]);
        }
    }
}

/* The symbols of a piece; returns how many there are. */
static int32_t spell(const struct bpe *b, struct symbol *symbol, const uint8_t *piece, size_t bytes)
{
    struct spelling s = {b, symbol, 0, false};
    (b->vocab.form == VOCAB_MARKS ? spell_chars : spell_bytes)(&s, piece, bytes);
    add_due(&s);
    if (s.count)
        symbol[s.count - 1].next = END;
    return s.count;
}

/* Looks up whether the symbol merges with the next, and puts the pair into the heap. */
static void meet(const struct bpe *b, struct bpe_scratch *w, int32_t at)
{
    struct symbol *left = &w->symbol[at];
    left->makes = left->rank = VOCAB_NONE;
    if (left->next == END)
        return;
    const struct vocab_pair *pair = vocab_merge(&b->vocab, left->id, w->symbol[left->next].id);
    if (pair->rank == VOCAB_NONE)
        return;
    left->makes = pair->makes;
    left->rank = pair->rank;
    push(w, (uint64_t)pair->rank << 32 | (uint32_t)at);
}

static bool is_due(const struct bpe *b, const struct symbol *s, uint32_t rank)
{
    return s->next >= 0 && (b->vocab.merged ? s->makes == b->vocab.merged[rank] : s->rank == rank);
}

static void merge(const struct bpe *b, struct bpe_scratch *w, int32_t at)
{
    struct symbol *left = &w->symbol[at], *right = &w->symbol[left->next];
    left->id = left->makes;
    left->next = right->next;
    right->next = DROPPED;
    if (left->next != END)
        w->symbol[left->next].previous = at;
    if (left->previous != END)
        meet(b, w, left->previous);
    meet(b, w, at);
}

static bool merge_all(const struct bpe *b, struct bpe_scratch *w, const char *piece, size_t bytes, struct token_ids *to)
{
    if (!has_room(w, bytes))
        return false;
    const int32_t count = spell(b, w->symbol, (const uint8_t *)piece, bytes);
    w->heap_count = 0;
    for (int32_t i = 0; i < count; i++)
        meet(b, w, i);
    while (w->heap_count) {
        const uint64_t entry = pop(w);
        const int32_t at = (int32_t)(uint32_t)entry;
        if (is_due(b, &w->symbol[at], (uint32_t)(entry >> 32)))
            merge(b, w, at);
    }
    bool ok = true;
    for (int32_t i = 0; i < count && i != END && ok; i = w->symbol[i].next)
        ok = token_ids_add(to, &w->symbol[i].id, 1);
    return ok;
}

/* ---- pieces ---- */

/* Keeps the ids from number `from` on. */
static void keep(struct kept *k, const char *piece, size_t bytes, const struct token_ids *made, size_t from)
{
    const size_t ids = made->count - from;
    if (ids > KEPT_IDS)
        return;
    *k = (struct kept){.bytes = (uint8_t)bytes, .ids = (uint8_t)ids};
    memcpy(k->text, piece, bytes);
    for (size_t i = 0; i < ids; i++)
        k->id[i] = made->id[from + i];
}

static bool encode(const struct bpe *b, struct bpe_scratch *w, const char *piece, size_t bytes, struct token_ids *to)
{
    const uint32_t whole = b->ignore_merges ? vocab_of_bytes(&b->vocab, piece, bytes) : VOCAB_NONE;
    return whole != VOCAB_NONE ? token_ids_add(to, &whole, 1) : merge_all(b, w, piece, bytes, to);
}

static bool encode_piece(const struct bpe *b, struct bpe_scratch *w, const char *piece, size_t bytes, struct token_ids *to)
{
    if (bytes > KEPT_TEXT)
        return encode(b, w, piece, bytes, to);
    struct kept *const k = &w->kept[vocab_hash(piece, bytes) >> (64 - KEPT_BITS)];
    if (k->bytes == bytes && !memcmp(k->text, piece, bytes))
        return token_ids_add(to, k->id, k->ids);
    const size_t before = to->count;
    if (!encode(b, w, piece, bytes, to))
        return false;
    keep(k, piece, bytes, to, before);
    return true;
}

/* ---- cuts ---- */

void bpe_end(struct bpe *b)
{
    const struct vocab *v = &b->vocab;
    for (uint32_t id = 0; id < v->size && v->form == VOCAB_MARKS; id++) {
        const uint8_t *bytes = v->bytes + v->token[id].at;
        for (uint32_t i = 1; v->token[id].found && i < v->token[id].length; i++)
            if ((bytes[i] & 0xc0) != 0x80)
                b->joins[bytes[i - 1]][bytes[i] / 8] |= (uint8_t)(1 << bytes[i] % 8);
    }
}

/* Whether what is before byte `at` and what is from there on stay apart: also as unknown tokens, of which several may be one. */
static bool is_cut(const struct bpe *b, const uint8_t *piece, size_t at)
{
    const uint8_t next = piece[at];
    return (next & 0xc0) != 0x80 && !(b->joins[piece[at - 1]][next / 8] >> next % 8 & 1) &&
           (b->falls_back || (next < 0x80 && b->vocab.byte_id[next] != VOCAB_NONE));
}

bool bpe_encode(const struct bpe *b, struct bpe_scratch *w, const char *piece, size_t bytes, struct token_ids *to)
{
    if (b->vocab.form != VOCAB_MARKS || b->ignore_merges)
        return encode_piece(b, w, piece, bytes, to);
    bool ok = true;
    for (size_t from = 0, end; from < bytes && ok; from = end) {
        for (end = from + 1; end < bytes && !is_cut(b, (const uint8_t *)piece, end);)
            end++;
        ok = encode_piece(b, w, piece + from, end - from, to);
    }
    return ok;
}
