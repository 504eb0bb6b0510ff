/* apps/common/tokens/bpe.c: merges the bytes of a piece to tokens.
 *
 * The symbols of a piece are a list within an array. A merge keeps the left symbol and drops the right one, so an entry of the
 * heap may be out of date when it comes out. It counts if its symbol still makes, with the next one, the token that the entry's
 * rank makes. That is the rule of `tokenizers`, which differs from "is still the same pair" where two pairs make one token.
 */
#include "apps/common/tokens/bpe.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_BITS = 14, KEPT_TEXT = 26, KEPT_IDS = 9, DROPPED = -2, END = -1 };

struct symbol {
    uint32_t id;
    uint32_t makes;          /* the token of this one with the next; VOCAB_NONE: they do not merge */
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

/* The symbols of a piece's bytes; returns how many there are. */
static int32_t spell(const struct bpe *b, struct symbol *symbol, const uint8_t *piece, size_t bytes)
{
    int32_t count = 0;
    bool was_unknown = false;
    for (size_t i = 0; i < bytes; i++) {
        const uint32_t known = b->vocab.byte_id[piece[i]], id = known == VOCAB_NONE ? b->unknown : known;
        const bool fused = known == VOCAB_NONE && was_unknown && b->fuse_unknown;
        was_unknown = known == VOCAB_NONE;
        if (id == VOCAB_NONE || fused)
            continue;
        symbol[count] = (struct symbol){.id = id, .previous = count - 1, .next = count + 1};
        count++;
    }
    if (count)
        symbol[count - 1].next = END;
    return count;
}

/* Looks up whether the symbol merges with the next, and puts the pair into the heap. */
static void meet(const struct bpe *b, struct bpe_scratch *w, int32_t at)
{
    struct symbol *left = &w->symbol[at];
    const uint32_t rank = left->next == END ? VOCAB_NONE : vocab_rank(&b->vocab, left->id, w->symbol[left->next].id);
    left->makes = rank == VOCAB_NONE ? VOCAB_NONE : b->vocab.merged[rank];
    if (rank != VOCAB_NONE)
        push(w, (uint64_t)rank << 32 | (uint32_t)at);
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
        if (w->symbol[at].next >= 0 && w->symbol[at].makes == b->vocab.merged[entry >> 32])
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

bool bpe_encode(const struct bpe *b, struct bpe_scratch *w, const char *piece, size_t bytes, struct token_ids *to)
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
