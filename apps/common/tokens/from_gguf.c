/* apps/common/tokens/from_gguf.c: a tokenizer from the metadata of a GGUF file.
 *
 * The file has the tokens in the order of their ids, the type of each, and the merges. It has only a name for the pattern that
 * splits texts; patterns.c knows the patterns.
 */
#include "apps/common/tokens/inside.h"

#include "graph/base/gguf.h"

#include <stdlib.h>
#include <string.h>

enum { MODEL, PRE, TOKENS, TYPES, MERGES, UNKNOWN, WANTED };
enum { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4 };

static const char *const keys[WANTED] = {
    "tokenizer.ggml.model",      "tokenizer.ggml.pre",    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.unknown_token_id",
};

static bool is_of(const struct gguf_value *v, bool array, uint32_t type, uint32_t or_type)
{
    return (v->present && v->array == array && (v->type == type || v->type == or_type)) ||
           tokens_failed("its metadata has no %s of the expected type", v->key);
}

static bool take_name(struct gguf *g, const struct gguf_value *v)
{
    uint64_t bytes;
    return is_of(v, false, GGUF_TEXT, GGUF_TEXT) && gguf_begin(g, v) && gguf_next_text(g, &bytes);
}

static bool take_names(struct tokenizer *t, struct gguf *g, const struct gguf_value *value)
{
    if (!take_name(g, &value[MODEL]))
        return false;
    if (strcmp(g->text, "gpt2") != 0)
        return tokens_failed("its tokenizer is \"%.40s\"; byte-level BPE, which GGUF calls \"gpt2\", is supported", g->text);
    return take_name(g, &value[PRE]) && split_add_named(&t->split, g->text, &t->bpe.ignore_merges);
}

/* The type of each token; 0, which is none, without that array. */
static uint32_t *take_types(struct gguf *g, const struct gguf_value *v, uint64_t count)
{
    uint32_t *type = calloc(count + 1, sizeof *type);
    bool ok = type || tokens_failed("no memory");
    if (ok && v->present)
        ok = is_of(v, true, GGUF_I32, GGUF_U32) && gguf_begin(g, v) &&
             (v->count == count || tokens_failed("its metadata has %llu token types for %llu tokens", (unsigned long long)v->count,
                                                 (unsigned long long)count));
    for (uint64_t i = 0; i < count && ok && v->present; i++)
        ok = gguf_next_u32(g, &type[i]);
    if (!ok)
        free(type);
    return ok ? type : NULL;
}

static bool take_token(struct tokenizer *t, const char *text, uint64_t bytes, uint32_t id, uint32_t type)
{
    const bool hidden = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    if (!(hidden ? vocab_add_hidden : vocab_add)(&t->bpe.vocab, id, text, bytes))
        return false;
    const struct added_token added = {.text = (char *)text, .length = bytes, .id = id, .special = hidden};
    return !bytes || !(hidden || type == TYPE_USER) || added_add(&t->added[0], &added);
}

static bool take_tokens(struct tokenizer *t, struct gguf *g, const struct gguf_value *value)
{
    const struct gguf_value *tokens = &value[TOKENS];
    uint64_t bytes;
    if (!is_of(tokens, true, GGUF_TEXT, GGUF_TEXT) || !is_of(&value[MERGES], true, GGUF_TEXT, GGUF_TEXT) ||
        !vocab_begin(&t->bpe.vocab, tokens->count, value[MERGES].count))
        return false;
    uint32_t *type = take_types(g, &value[TYPES], tokens->count);
    bool ok = type && gguf_begin(g, tokens);
    for (uint32_t i = 0; i < t->bpe.vocab.size && ok; i++)
        ok = gguf_next_text(g, &bytes) && take_token(t, g->text, bytes, i, type[i]);
    free(type);
    return ok;
}

/* The space between the two may not be the first byte: a token may be one. */
static bool take_merge(struct vocab *v, const char *merge, uint64_t bytes)
{
    const char *space = bytes ? memchr(merge + 1, ' ', bytes - 1) : NULL;
    return space ? vocab_add_merge(v, merge, (size_t)(space - merge), space + 1, bytes - (size_t)(space - merge) - 1)
                 : tokens_failed("merge %u is not two tokens", v->merges);
}

static bool take_merges(struct vocab *v, struct gguf *g, const struct gguf_value *merges)
{
    uint64_t bytes;
    bool ok = gguf_begin(g, merges);
    for (uint64_t i = 0; i < merges->count && ok; i++)
        ok = gguf_next_text(g, &bytes) && take_merge(v, g->text, bytes);
    vocab_end(v);
    return ok;
}

static bool take_unknown(struct bpe *b, struct gguf *g, const struct gguf_value *v)
{
    b->unknown = VOCAB_NONE;
    return !v->present || (is_of(v, false, GGUF_U32, GGUF_I32) && gguf_begin(g, v) && gguf_next_u32(g, &b->unknown) &&
                           (b->unknown < b->vocab.size || tokens_failed("%s is %u, which is no id", v->key, b->unknown)));
}

bool tokenizer_from_gguf(struct tokenizer *t, FILE *file)
{
    struct gguf g;
    struct gguf_value value[WANTED] = {{0}};
    for (int i = 0; i < WANTED; i++)
        value[i].key = keys[i];
    const bool ok = gguf_open(&g, fileno(file)) && gguf_find(&g, value, WANTED) && take_names(t, &g, value) && take_tokens(t, &g, value) &&
                    take_merges(&t->bpe.vocab, &g, &value[MERGES]) && take_unknown(&t->bpe, &g, &value[UNKNOWN]);
    if (g.fault)
        tokens_failed("%s", g.why);
    gguf_close(&g);
    return ok;
}
