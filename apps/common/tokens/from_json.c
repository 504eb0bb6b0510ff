/* apps/common/tokens/from_json.c: a tokenizer from Hugging Face's tokenizer.json.
 *
 *     "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true, ...}]
 *     "normalizer": null
 *     "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", ...}, {"type": "ByteLevel", ...}]}
 *     "model": {"type": "BPE", "vocab": {"a": 0, ...}, "merges": ["h e", ["l", "l"], ...], "ignore_merges": false}
 *
 * stages.c reads what is around the model. The reader refuses, by its name, each setting that changes ids and is not supported.
 * "truncation" and "padding", which act on the ids of a whole text, are not read.
 */
#include "apps/common/tokens/json.h"
#include "apps/common/tokens/stages.h"

#include <string.h>

/* ---- the model ---- */

/* One more than the greatest id; 0 and a sentence if a value is no id. */
static int64_t count_ids(json_t *vocab, const json_t *added)
{
    const char *text;
    json_t *value;
    size_t at;
    int64_t size = 0;
    json_object_foreach(vocab, text, value) {
        const int64_t id = json_id(value);
        if (id < 0)
            return tokens_failed("the id of the token \"%.60s\" is not a number from 0 to %d", text, VOCAB_IDS_MAX - 1), 0;
        size = id >= size ? id + 1 : size;
    }
    json_array_foreach(added, at, value) {
        const int64_t id = json_id(json_object_get(value, "id"));
        if (id < 0)
            return tokens_failed("added_tokens: the id of number %zu is not a number from 0 to %d", at, VOCAB_IDS_MAX - 1), 0;
        size = id >= size ? id + 1 : size;
    }
    return size ? size : (tokens_failed("has no tokens"), 0);
}

/* "h e", or ["h", "e"]. */
static bool take_merge(struct vocab *v, const json_t *merge)
{
    const char *left = json_string_value(merge), *right = left ? strchr(left, ' ') : NULL;
    if (right && !strchr(right + 1, ' '))
        return vocab_add_merge(v, left, (size_t)(right - left), right + 1, strlen(right + 1));
    left = json_string_value(json_array_get(merge, 0));
    right = json_string_value(json_array_get(merge, 1));
    if (left && right && json_array_size(merge) == 2)
        return vocab_add_merge(v, left, strlen(left), right, strlen(right));
    return tokens_failed("merge %u is not two tokens", v->merges);
}

/* Whether settings that change ids, and that these models do not use, are off. */
static bool has_plain_options(const json_t *model, enum vocab_form form)
{
    static const char *const names[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (*json_text(model, names[i]))
            return tokens_failed("model: %s is \"%.20s\", which is not supported; byte-level BPE has none", names[i],
                                 json_text(model, names[i]));
    if (form == VOCAB_BYTE_TABLE && json_is_on(model, "byte_fallback"))
        return tokens_failed("model: byte_fallback is true, as in SentencePiece's models, but the pre_tokenizer is byte-level");
    if (json_number_value(json_object_get(model, "dropout")) != 0)
        return tokens_failed("model: dropout is not 0, so that ids are random; set it to null");
    return true;
}

/* The tokens of bytes are called <0x00> to <0xFF>. */
static bool take_fallback(struct bpe *b, json_t *vocab)
{
    char name[8];
    b->falls_back = true;
    for (int byte = 0; byte < 256; byte++) {
        snprintf(name, sizeof name, "<0x%02X>", byte);
        const int64_t id = json_id(json_object_get(vocab, name));
        if (id < 0)
            return tokens_failed("model: byte_fallback is true, but there is no token %s", name);
        b->fallback[byte] = (uint32_t)id;
    }
    return true;
}

/* The byte that a token stands for; -1: for none. */
static int byte_of(const struct bpe *b, int64_t id)
{
    for (int byte = 0; byte < 256 && b->falls_back; byte++)
        if (b->fallback[byte] == id)
            return byte;
    return -1;
}

static bool take_vocab(struct bpe *b, json_t *vocab)
{
    const char *text;
    json_t *value;
    json_object_foreach(vocab, text, value) {
        const int64_t id = json_id(value);
        const int byte = !strncmp(text, "<0x", 3) ? byte_of(b, id) : -1;
        if (!(byte < 0 ? vocab_add(&b->vocab, (uint64_t)id, text, strlen(text)) : vocab_add_byte(&b->vocab, (uint64_t)id, (uint8_t)byte)))
            return false;
    }
    return true;
}

static bool take_merges(struct vocab *v, const json_t *merges)
{
    size_t at;
    json_t *merge;
    if (!vocab_begin_merges(v, json_array_size(merges)))
        return false;
    json_array_foreach(merges, at, merge)
        if (!take_merge(v, merge))
            return false;
    vocab_end(v);
    return true;
}

static bool take_model(struct bpe *b, enum vocab_form form, const json_t *model, const json_t *added)
{
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    const char *unknown = json_text(model, "unk_token");
    if (!json_is_absent(model, "type") && !json_is_type(model, "BPE"))
        return json_refuse("model", model, "BPE is");
    if (!json_is_object(vocab) || !json_is_array(merges))
        return tokens_failed("is not a tokenizer.json of a BPE: model needs \"vocab\" and \"merges\"");
    const int64_t size = has_plain_options(model, form) ? count_ids(vocab, added) : 0;
    if (!size || !vocab_begin(&b->vocab, form, (uint64_t)size) || (json_is_on(model, "byte_fallback") && !take_fallback(b, vocab)) ||
        !take_vocab(b, vocab) || !take_merges(&b->vocab, merges))
        return false;
    b->ignore_merges = json_is_on(model, "ignore_merges");
    b->fuse_unknown = json_is_on(model, "fuse_unk");
    b->unknown = *unknown ? vocab_find(&b->vocab, unknown, strlen(unknown)) : VOCAB_NONE;
    return true;
}

/* ---- added tokens ---- */

/* A token that is looked for in the normal form of a text is normalized, too. */
static bool take_added(struct tokenizer *t, struct normalizer *w, const json_t *token)
{
    const char *text = json_text(token, "content");
    const bool normalized = json_is_on(token, "normalized");
    const uint32_t id = (uint32_t)json_id(json_object_get(token, "id")), known = vocab_find(&t->bpe.vocab, text, strlen(text));
    struct added_token added = {.id = id, .special = json_is_on(token, "special"), .takes_left = json_is_on(token, "lstrip"),
                                .takes_right = json_is_on(token, "rstrip")};
    if (!*text)
        return true;
    if (json_is_on(token, "single_word"))
        return tokens_failed("the added token \"%.60s\" has single_word, which is not supported", text);
    if (known != VOCAB_NONE && known != id)
        return tokens_failed("the added token \"%.60s\" has the id %u, but %u in the model's vocab", text, id, known);
    if (known == VOCAB_NONE && !vocab_add_hidden(&t->bpe.vocab, id, text, strlen(text)))
        return false;
    t->bpe.vocab.token[id].begins |= !normalized && (!t->split.count || t->split.stage[0].space != SPLIT_FIRST_SPACE);
    added.text = (char *)(normalized ? normal_text(&t->normal, w, text, strlen(text), &added.length) : text);
    added.length = normalized ? added.length : strlen(text);
    return added.text && added_add(&t->added[normalized], &added);
}

/* ---- all of it ---- */

static bool take(struct tokenizer *t, const json_t *json)
{
    const json_t *added = json_object_get(json, "added_tokens");
    enum vocab_form form;
    size_t at;
    json_t *token;
    if (!stages_read(t, json, &form) || !take_model(&t->bpe, form, json_object_get(json, "model"), added))
        return false;
    struct normalizer *w = normalizer_new();
    bool ok = w || tokens_failed("no memory");
    json_array_foreach(added, at, token)
        ok = ok && take_added(t, w, token);
    normalizer_free(w);
    return ok && stages_read_ends(t, json);
}

bool tokenizer_from_json(struct tokenizer *t, FILE *file)
{
    json_t *json = tokens_read_json(file, false);
    const bool tekken = json_is_array(json_object_get(json, "vocab")) && json_is_object(json_object_get(json, "config"));
    const bool ok = json && (tekken ? tokenizer_from_tekken(t, json) : take(t, json));
    json_decref(json);
    return ok;
}
