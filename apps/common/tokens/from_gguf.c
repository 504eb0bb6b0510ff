/* apps/common/tokens/from_gguf.c: a tokenizer from the metadata of a GGUF file.
 *
 * The file has the tokens in the order of their ids, and the type of each. Then it has the merges of a byte-level BPE ("gpt2"), or the
 * scores of a SentencePiece model ("llama"). It has only a name for the pattern that splits texts; patterns.c knows the patterns.
 */
#include "apps/common/tokens/inside.h"
#include "apps/common/tokens/scores.h"

#include "graph/base/gguf.h"

#include <stdlib.h>
#include <string.h>

enum { MODEL, PRE, TOKENS, TYPES, MERGES, SCORES, UNKNOWN, BEGIN, END, TURN_END, ADD_BEGIN, ADD_END, SPACE, TRIMS, CHARSMAP, TEMPLATE, WANTED };

static const char *const keys[WANTED] = {
    "tokenizer.ggml.model",          "tokenizer.ggml.pre",           "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",     "tokenizer.ggml.merges",        "tokenizer.ggml.scores",
    "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",   "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.chat_template",
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

/* A truth; `otherwise` if the file does not say. */
static bool take_bool(struct gguf *g, const struct gguf_value *v, bool otherwise, bool *is)
{
    *is = otherwise;
    return !v->present || (is_of(v, false, GGUF_BOOL, GGUF_BOOL) && gguf_begin(g, v) && gguf_next_bool(g, is));
}

/* An id; VOCAB_NONE if the file does not say, or says the greatest number. */
static bool take_id(struct gguf *g, const struct gguf_value *v, uint32_t size, uint32_t *id)
{
    *id = VOCAB_NONE;
    return !v->present || (is_of(v, false, GGUF_U32, GGUF_I32) && gguf_begin(g, v) && gguf_next_u32(g, id) &&
                           (*id < size || *id == VOCAB_NONE || tokens_failed("%s is %u, which is no id", v->key, *id)));
}

/* ---- tokens ---- */

/* The type of each token; 0, which is none, without that array. */
static uint32_t *take_types(struct gguf *g, const struct gguf_value *v, uint64_t count)
{
    uint32_t *type = calloc(count + 1, sizeof *type);
    bool ok = type != NULL;
    if (!ok)
        tokens_failed("no memory");
    else if (v->present)
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
    const bool hidden = type == SCORES_CONTROL || type == SCORES_UNKNOWN;
    if (!(hidden ? vocab_add_hidden : vocab_add)(&t->bpe.vocab, id, text, bytes))
        return false;
    const struct added_token added = {.text = (char *)text, .length = bytes, .id = id, .special = hidden};
    t->bpe.vocab.token[id].begins = hidden;
    return !bytes || !(hidden || type == SCORES_USER) || added_add(&t->added[0], &added);
}

static bool take_tokens(struct tokenizer *t, struct gguf *g, const struct gguf_value *value)
{
    const struct gguf_value *tokens = &value[TOKENS];
    uint64_t bytes;
    if (!is_of(tokens, true, GGUF_TEXT, GGUF_TEXT) || !vocab_begin(&t->bpe.vocab, VOCAB_BYTE_TABLE, tokens->count))
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
    bool ok = is_of(merges, true, GGUF_TEXT, GGUF_TEXT) && vocab_begin_merges(v, merges->count) && gguf_begin(g, merges);
    for (uint64_t i = 0; i < merges->count && ok; i++)
        ok = gguf_next_text(g, &bytes) && take_merge(v, g->text, bytes);
    vocab_end(v);
    return ok;
}

/* ---- scores ---- */

/* The score of each token, of which the array has one. */
static float *take_scores(struct gguf *g, const struct gguf_value *v, uint64_t count)
{
    if (!is_of(v, true, GGUF_F32, GGUF_F32) ||
        (v->count != count && !tokens_failed("its metadata has %llu scores for %llu tokens", (unsigned long long)v->count, (unsigned long long)count)))
        return NULL;
    float *score = malloc((count + 1) * sizeof *score);
    bool ok = (score || tokens_failed("no memory")) && gguf_begin(g, v);
    for (uint64_t i = 0; i < count && ok; i++)
        ok = gguf_next_f32(g, &score[i]);
    if (!ok)
        free(score);
    return ok ? score : NULL;
}

static bool take_pieces(struct tokenizer *t, struct gguf *g, const struct gguf_value *value)
{
    const uint64_t count = value[TOKENS].count;
    uint64_t bytes;
    struct scores s = {.to = NULL};
    if (!is_of(&value[TOKENS], true, GGUF_TEXT, GGUF_TEXT) || count > VOCAB_IDS_MAX)
        return count > VOCAB_IDS_MAX ? tokens_failed("has %llu ids; at most %d are read", (unsigned long long)count, VOCAB_IDS_MAX) : false;
    uint32_t *type = take_types(g, &value[TYPES], count);
    float *score = type ? take_scores(g, &value[SCORES], count) : NULL;
    bool ok = score && scores_begin(&s, t, count) && gguf_begin(g, &value[TOKENS]);
    for (uint64_t i = 0; i < count && ok; i++)
        ok = gguf_next_text(g, &bytes) && scores_add(&s, g->text, bytes, score[i], type[i]);
    ok = ok && scores_end(&s, s.bytes != 0);
    scores_free(&s);
    free(type);
    free(score);
    return ok;
}

static bool take_sentencepiece(struct tokenizer *t, struct gguf *g, const struct gguf_value *value)
{
    bool trims;
    if (!take_bool(g, &value[TRIMS], false, &trims) || !take_bool(g, &value[SPACE], true, &t->normal.space))
        return false;
    if (trims || value[CHARSMAP].present)
        return tokens_failed("it has %s, which is not supported", value[trims ? TRIMS : CHARSMAP].key);
    return take_pieces(t, g, value);
}

/* ---- all of it ---- */

/* Without a key of its own, a SentencePiece model begins a text with the begin token, and of the others those of some names do. */
static bool take_ends(struct tokenizer *t, struct gguf *g, const struct gguf_value *value, bool begins)
{
    const uint32_t size = t->bpe.vocab.size;
    uint32_t turn_end;
    bool add_begin, add_end;
    if (!take_id(g, &value[BEGIN], size, &t->begin) || !take_id(g, &value[END], size, &t->end) || !take_id(g, &value[TURN_END], size, &turn_end) ||
        !take_bool(g, &value[ADD_BEGIN], begins, &add_begin) || !take_bool(g, &value[ADD_END], false, &add_end))
        return false;
    if (add_begin && t->begin != VOCAB_NONE)
        t->before = (struct ends){{t->begin}, 1};
    if (add_end && t->end != VOCAB_NONE)
        t->after = (struct ends){{t->end}, 1};
    return turn_end == VOCAB_NONE || ends_add(&t->stops, turn_end);
}

static bool take_byte_level(struct tokenizer *t, struct gguf *g, const struct gguf_value *value, bool *begins)
{
    struct split_named is;
    if (!take_name(g, &value[PRE]) || !split_add_named(&t->split, g->text, &is))
        return false;
    t->bpe.ignore_merges = is.ignore_merges;
    *begins = is.begins;
    return (!is.composes || normal_set_form(&t->normal, "NFC")) && take_tokens(t, g, value) &&
           take_merges(&t->bpe.vocab, g, &value[MERGES]) && take_id(g, &value[UNKNOWN], t->bpe.vocab.size, &t->bpe.unknown);
}

static bool take(struct tokenizer *t, struct gguf *g, const struct gguf_value *value)
{
    bool begins = true;
    if (!take_name(g, &value[MODEL]))
        return false;
    const bool pieces = !strcmp(g->text, "llama");
    if (!pieces && strcmp(g->text, "gpt2") != 0)
        return tokens_failed("its tokenizer is \"%.40s\"; \"gpt2\", which is byte-level BPE, and \"llama\", which is SentencePiece's BPE, are supported", g->text);
    if (!(pieces ? take_sentencepiece(t, g, value) : take_byte_level(t, g, value, &begins)) || !take_ends(t, g, value, begins))
        return false;
    return !value[TEMPLATE].present || (take_name(g, &value[TEMPLATE]) && chat_set_template(&t->chat, g->text));
}

bool tokenizer_from_gguf(struct tokenizer *t, FILE *file)
{
    struct gguf g;
    struct gguf_value value[WANTED] = {{0}};
    for (int i = 0; i < WANTED; i++)
        value[i].key = keys[i];
    const bool ok = gguf_open(&g, fileno(file)) && gguf_find(&g, value, WANTED) && take(t, &g, value);
    if (g.fault)
        tokens_failed("%s", g.why);
    gguf_close(&g);
    return ok;
}
