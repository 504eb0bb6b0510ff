/* apps/weir/quantize_tokens.c: the tokenizer of a Hugging Face folder as metadata of a GGUF file.
 *
 * tokenizer.json has more settings than the metadata can say. tokenizer_read() has refused what changes ids and is not known; here the
 * rest is refused that a reader of the GGUF file would do otherwise. So the ids stay the same, but for one case: Metaspace puts a space
 * before the first text alone, and GGUF files say so of every text that follows a special token.
 *
 * A byte-level BPE has its merges. A BPE of SentencePiece has a score for each token instead, which is how early its merges come: that is
 * the same, if the merges of a token stand together, and each pair of tokens that makes a token is a merge.
 */
#define _GNU_SOURCE /* memmem */
#include "apps/weir/quantize.h"

#include "apps/common/tokens/json.h"
#include "apps/common/tokens/scores.h"
#include "graph/base/reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tokens {
    struct quantize *q;
    struct tokenizer *t;
    json_t *json;      /* owned: tokenizer.json */
    uint32_t size;     /* rows of the table of tokens */
    const char **text; /* owned, by id; NULL: no token has the id */
    uint32_t *type;    /* owned, by id */
    float *score;      /* owned, by id; NULL: byte-level */
};

static bool cannot(const struct tokens *x, const char *why)
{
    return tensors_failed("%s/tokenizer.json: %s; weir cannot write that in a GGUF file", x->q->from, why);
}

/* ---- tokens and their types ---- */

static bool take_token(struct tokens *x, const char *text, int64_t id, uint32_t type)
{
    if (id < 0 || id >= x->size)
        return tensors_failed("%s/tokenizer.json: the token \"%.60s\" has the id %lld; the model has %u tokens", x->q->from, text, (long long)id, x->size);
    x->text[id] = text;
    x->type[id] = type;
    return true;
}

/* An added token may be in the vocabulary, too; it has the type of an added one then. */
static bool take_added(struct tokens *x)
{
    const json_t *token;
    size_t at;
    json_array_foreach(json_object_get(x->json, "added_tokens"), at, token) {
        if (json_is_on(token, "lstrip") || json_is_on(token, "rstrip"))
            return cannot(x, "an added token takes whitespace beside it");
        if (!take_token(x, json_text(token, "content"), json_id(json_object_get(token, "id")), json_is_on(token, "special") ? SCORES_CONTROL : SCORES_USER))
            return false;
    }
    return true;
}

static bool take_tokens(struct tokens *x)
{
    const struct bpe *b = &x->t->bpe;
    const char *text;
    json_t *id;
    json_object_foreach(json_object_get(json_object_get(x->json, "model"), "vocab"), text, id)
        if (!take_token(x, text, json_id(id), SCORES_NORMAL))
            return false;
    if (!take_added(x))
        return false;
    for (int byte = 0; byte < 256 && b->falls_back; byte++)
        x->type[b->fallback[byte]] = SCORES_BYTE;
    if (b->unknown < x->size)
        x->type[b->unknown] = SCORES_UNKNOWN;
    return true;
}

static void put_tokens(const struct tokens *x)
{
    struct gguf_write *to = &x->q->to;
    char unused[24];
    gguf_write_array(to, "tokenizer.ggml.tokens", GGUF_TEXT, x->size);
    for (uint32_t i = 0; i < x->size; i++) {
        snprintf(unused, sizeof unused, "[PAD%u]", i);
        gguf_write_element_text(to, x->text[i] ? x->text[i] : unused, strlen(x->text[i] ? x->text[i] : unused));
    }
    gguf_write_array(to, "tokenizer.ggml.token_type", GGUF_I32, x->size);
    for (uint32_t i = 0; i < x->size; i++)
        gguf_write_element(to, &(uint32_t){x->text[i] ? x->type[i] : SCORES_UNUSED}, sizeof(uint32_t));
}

/* ---- merges ---- */

/* The two tokens of a merge with a space between them, in room for `bytes`. False: they do not fit. */
static bool merge_text(const json_t *merge, char *to, size_t bytes)
{
    const char *whole = json_string_value(merge);
    const int made = whole ? snprintf(to, bytes, "%s", whole)
                           : snprintf(to, bytes, "%s %s", json_string_value(json_array_get(merge, 0)), json_string_value(json_array_get(merge, 1)));
    return made >= 0 && (size_t)made < bytes;
}

enum { MERGE_BYTES = 2 * VOCAB_TOKEN_BYTES_MAX + 2 };

static bool put_merges(const struct tokens *x, char *text)
{
    const json_t *merges = json_object_get(json_object_get(x->json, "model"), "merges"), *merge;
    size_t at;
    gguf_write_array(&x->q->to, "tokenizer.ggml.merges", GGUF_TEXT, json_array_size(merges));
    json_array_foreach(merges, at, merge) {
        if (!merge_text(merge, text, MERGE_BYTES))
            return cannot(x, "a merge is too long");
        gguf_write_element_text(&x->q->to, text, strlen(text));
    }
    return true;
}

/* A GGUF file has one list of added tokens, of which the longest counts. Here some are looked for first. */
static bool has_one_list(const struct tokens *x)
{
    const struct added *first = &x->t->added[0], *second = &x->t->added[1];
    for (size_t i = 0; i < second->count; i++)
        for (size_t j = 0; j < first->count; j++)
            if (memmem(second->token[i].text, second->token[i].length, first->token[j].text, first->token[j].length))
                return cannot(x, "an added token is a part of another one, and is found before that");
    return true;
}

static bool put_byte_level(struct tokens *x)
{
    const struct tokenizer *t = x->t;
    const struct split_named is = {.ignore_merges = t->bpe.ignore_merges, .composes = t->normal.form != 0};
    struct normal composed = {.form = 0};
    const char *name = split_name(&t->split, &is);
    normal_set_form(&composed, "NFC");
    if (!name || (t->normal.form && t->normal.form != composed.form))
        return cannot(x, "it splits texts, or brings them into a normal form, in a way that has no name in tokenizer.ggml.pre");
    gguf_write_text(&x->q->to, "tokenizer.ggml.model", "gpt2");
    gguf_write_text(&x->q->to, "tokenizer.ggml.pre", name);
    put_tokens(x);
    char *text = malloc(MERGE_BYTES);
    const bool ok = text ? put_merges(x, text) : tensors_failed("no memory");
    free(text);
    return ok;
}

/* ---- scores ---- */

static bool score_merge(struct tokens *x, const json_t *merge, size_t rank, char *text, json_int_t *last)
{
    char *space = merge_text(merge, text, MERGE_BYTES) ? strchr(text, ' ') : NULL;
    if (!space)
        return cannot(x, "a merge is too long");
    memmove(space, space + 1, strlen(space));
    const json_int_t id = json_id(json_object_get(json_object_get(json_object_get(x->json, "model"), "vocab"), text));
    if (id < 0 || id >= x->size || (x->score[id] < 0 && id != *last))
        return cannot(x, "the merges of a token do not stand together, as those of a SentencePiece model");
    if (x->score[id] >= 0)
        x->score[id] = -(float)(rank + 1);
    *last = id;
    return true;
}

/* Whether each pair of tokens that makes a token is a merge. */
static bool has_all_merges(const struct tokens *x)
{
    const struct vocab *v = &x->t->bpe.vocab;
    for (uint32_t id = 0; id < v->size; id++) {
        const struct vocab_token *t = &v->token[id];
        for (uint32_t cut = 1; t->present && t->found && x->type[id] == SCORES_NORMAL && cut < t->length; cut++) {
            const uint32_t left = vocab_of_bytes(v, v->bytes + t->at, cut), right = vocab_of_bytes(v, v->bytes + t->at + cut, t->length - cut);
            if (left != VOCAB_NONE && right != VOCAB_NONE && x->type[left] == SCORES_NORMAL && x->type[right] == SCORES_NORMAL &&
                vocab_merge(v, left, right)->rank == VOCAB_NONE)
                return cannot(x, "two tokens that make a third one are no merge, as they are in a SentencePiece model");
        }
    }
    return true;
}

static bool take_scores(struct tokens *x)
{
    const json_t *merge;
    size_t rank;
    json_int_t last = -1;
    bool ok = true;
    char *text = malloc(MERGE_BYTES);
    if (!text)
        return tensors_failed("no memory");
    json_array_foreach(json_object_get(json_object_get(x->json, "model"), "merges"), rank, merge)
        ok = ok && score_merge(x, merge, rank, text, &last);
    free(text);
    for (uint32_t i = 0; i < x->size && ok; i++)
        x->score[i] = x->type[i] == SCORES_NORMAL && x->score[i] >= 0 ? -(float)(rank + 1) : x->score[i];
    return ok && has_all_merges(x);
}

static bool put_scores(struct tokens *x)
{
    const struct tokenizer *t = x->t;
    const bool spaced = t->normal.space || (t->split.count && t->split.stage[0].space != SPLIT_NO_SPACE);
    x->score = calloc((size_t)x->size + 1, sizeof *x->score);
    if (!x->score)
        return tensors_failed("no memory");
    if (t->normal.form || t->split.count > 1 || !t->bpe.falls_back || t->bpe.vocab.size < x->size)
        return cannot(x, t->bpe.vocab.size < x->size ? "the model has more tokens" : "it is not as the BPE models of SentencePiece");
    for (uint32_t i = 0; i < x->size; i++)
        if (!x->text[i])
            return cannot(x, "an id has no token");
    if (!take_scores(x))
        return false;
    gguf_write_text(&x->q->to, "tokenizer.ggml.model", "llama");
    gguf_write_text(&x->q->to, "tokenizer.ggml.pre", "default");
    put_tokens(x);
    gguf_write_array(&x->q->to, "tokenizer.ggml.scores", GGUF_F32, x->size);
    for (uint32_t i = 0; i < x->size; i++)
        gguf_write_element(&x->q->to, &x->score[i], sizeof x->score[i]);
    gguf_write_bool(&x->q->to, "tokenizer.ggml.add_space_prefix", spaced);
    return true;
}

/* ---- ends ---- */

static void put_id(const struct tokens *x, const char *key, int64_t id)
{
    if (id >= 0 && id < x->size)
        gguf_write_u32(&x->q->to, key, (uint32_t)id);
}

/* The file names two tokens that end a reply: the end token, and another one. */
static bool put_ends(const struct tokens *x)
{
    const struct tokenizer *t = x->t;
    const lm_config *c = &x->q->config;
    const int64_t begin = t->begin != VOCAB_NONE ? (int64_t)t->begin : c->begin;
    const int64_t end = t->end != VOCAB_NONE ? (int64_t)t->end : c->ends_count ? c->ends[0] : -1;
    int64_t turn_end = -1;
    for (int i = t->stops.count - 1; i >= 0; i--)
        turn_end = t->stops.id[i] != end ? t->stops.id[i] : turn_end;
    for (int i = c->ends_count - 1; i >= 0 && turn_end < 0; i--)
        turn_end = c->ends[i] != end ? c->ends[i] : turn_end;
    if (t->before.count > 1 || t->after.count > 1 || (t->before.count && t->before.id[0] != begin) || (t->after.count && t->after.id[0] != end))
        return cannot(x, "it puts tokens around a text that are not the begin and the end token");
    put_id(x, "tokenizer.ggml.bos_token_id", begin);
    put_id(x, "tokenizer.ggml.eos_token_id", end);
    put_id(x, "tokenizer.ggml.eot_token_id", turn_end);
    put_id(x, "tokenizer.ggml.unknown_token_id", t->bpe.unknown);
    gguf_write_bool(&x->q->to, "tokenizer.ggml.add_bos_token", t->before.count != 0);
    gguf_write_bool(&x->q->to, "tokenizer.ggml.add_eos_token", t->after.count != 0);
    if (t->chat.text)
        gguf_write_text(&x->q->to, "tokenizer.chat_template", t->chat.text);
    return true;
}

/* ---- all of it ---- */

static bool put(struct tokens *x)
{
    x->size = (uint32_t)x->q->config.vocab;
    x->text = calloc((size_t)x->size + 1, sizeof *x->text);
    x->type = calloc((size_t)x->size + 1, sizeof *x->type);
    if (!x->text || !x->type)
        return tensors_failed("no memory");
    return take_tokens(x) && has_one_list(x) && (x->t->bpe.vocab.form == VOCAB_MARKS ? put_scores : put_byte_level)(x) && put_ends(x);
}

static bool read_json(struct tokens *x, const char *path)
{
    const char *why;
    FILE *file = reading_file(path, &why);
    if (!file)
        return tensors_failed("%s: cannot be read: %s", path, why);
    x->json = tokens_read_json(file, false);
    fclose(file);
    return x->json || tensors_failed("%s: %s", path, tokens_error());
}

static bool there(const struct quantize *q, const char *name, char path[LM_PATH_BYTES])
{
    return snprintf(path, LM_PATH_BYTES, "%s/%s", q->from, name) < LM_PATH_BYTES && !access(path, F_OK);
}

static bool other_tokenizer(const char *path)
{
    return tensors_failed("%s: weir writes the tokenizer of a tokenizer.json in a GGUF file, and no other; transformers can save one", path);
}

bool quantize_tokens(struct quantize *q)
{
    char path[LM_PATH_BYTES];
    struct tokens x = {.q = q};
    if (!there(q, "tokenizer.json", path)) {
        if (there(q, "tokenizer.model", path) || there(q, "tekken.json", path))
            return other_tokenizer(path);
        q->no_tokens = true;
        return true;
    }
    bool ok = read_json(&x, path);
    if (ok && json_is_array(json_object_get(x.json, "vocab")))
        ok = other_tokenizer(path);
    x.t = ok ? tokenizer_read(q->from) : NULL;
    ok = ok && (x.t ? put(&x) : tensors_failed("%s", tokens_error()));
    tokenizer_free(x.t);
    json_decref(x.json);
    free(x.text);
    free(x.type);
    free(x.score);
    return ok;
}
