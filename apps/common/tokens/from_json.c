/* apps/common/tokens/from_json.c: a tokenizer from Hugging Face's tokenizer.json.
 *
 *     "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true, ...}]
 *     "normalizer": null
 *     "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", ...}, {"type": "ByteLevel", ...}]}
 *     "model": {"type": "BPE", "vocab": {"a": 0, ...}, "merges": ["h e", ["l", "l"], ...], "ignore_merges": false}
 *
 * The reader refuses, by its name, each setting that changes ids and is not supported. "post_processor", "truncation" and "padding", which act on the
 * ids of a whole text, are not read.
 *
 * jansson takes up to some hundred bytes for each value, so the file's commas and brackets are counted before it begins.
 */
#define _GNU_SOURCE
#include "apps/common/tokens/inside.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 128 << 20, VALUES_MAX = 4 << 20 };

/* ---- the file ---- */

static char *read_all(FILE *file, size_t *bytes)
{
    size_t room = 1 << 16, got = 0;
    char *text = malloc(room), *grown = text;
    while (grown && (got += fread(text + got, 1, room - got, file)) == room && room < FILE_BYTES_MAX) {
        grown = realloc(text, room *= 2);
        text = grown ? grown : text;
    }
    const bool ok = grown && got < room && !ferror(file);
    if (!ok) {
        tokens_failed(!grown           ? "no memory"
                      : ferror(file)   ? "cannot be read to its end"
                                       : "has more than 128 MiB, which is the most that is read");
        free(text);
    }
    *bytes = got;
    return ok ? text : NULL;
}

static bool has_few_values(const char *text, size_t bytes)
{
    size_t values = 1;
    for (size_t i = 0; i < bytes; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return values <= VALUES_MAX || tokens_failed("has some %zu values; at most %d are read", values, VALUES_MAX);
}

static json_t *parse(FILE *file)
{
    size_t bytes;
    json_error_t error;
    json_t *json = NULL;
    char *text = read_all(file, &bytes);
    if (text && has_few_values(text, bytes)) {
        json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
        if (!json)
            tokens_failed("line %d: is not JSON: %s", error.line, error.text);
    }
    free(text);
    return json;
}

/* ---- members ---- */

/* The text of a member; "": it is not there, or no text. */
static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool is_type(const json_t *object, const char *type)
{
    return !strcmp(text_of(object, "type"), type);
}

static bool is_absent(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value);
}

static bool refuse(const char *what, const json_t *object, const char *instead)
{
    return tokens_failed("%s is of the type \"%.60s\", which is not supported; %s", what, text_of(object, "type"), instead);
}

/* ---- the model ---- */

/* An id, or -1 if the value is none. */
static int64_t id_of(const json_t *value)
{
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < VOCAB_IDS_MAX ? (int64_t)id : -1;
}

/* One more than the greatest id; 0 and a sentence if a value is no id. */
static int64_t count_ids(json_t *vocab, const json_t *added)
{
    const char *text;
    json_t *value;
    size_t at;
    int64_t size = 0;
    json_object_foreach(vocab, text, value) {
        const int64_t id = id_of(value);
        if (id < 0)
            return tokens_failed("the id of the token \"%.60s\" is not a number from 0 to %d", text, VOCAB_IDS_MAX - 1), 0;
        size = id >= size ? id + 1 : size;
    }
    json_array_foreach(added, at, value) {
        const int64_t id = id_of(json_object_get(value, "id"));
        if (id < 0)
            return tokens_failed("added_tokens: the id of number %zu is not a number from 0 to %d", at, VOCAB_IDS_MAX - 1), 0;
        size = id >= size ? id + 1 : size;
    }
    return size ? size : (tokens_failed("has no tokens"), 0);
}

static bool take_vocab(struct vocab *v, json_t *vocab)
{
    const char *text;
    json_t *value;
    json_object_foreach(vocab, text, value)
        if (!vocab_add(v, (uint64_t)id_of(value), text, strlen(text)))
            return false;
    return true;
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

/* Whether settings that change ids, and that byte-level BPE does not use, are off. */
static bool has_plain_options(const json_t *model)
{
    static const char *const names[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (*text_of(model, names[i]))
            return tokens_failed("model: %s is \"%.20s\", which is not supported; byte-level BPE has none", names[i],
                                 text_of(model, names[i]));
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return tokens_failed("model: byte_fallback is true, as in SentencePiece's models, which are not supported; use the "
                             "tokenizer.json of a byte-level BPE");
    if (json_number_value(json_object_get(model, "dropout")) != 0)
        return tokens_failed("model: dropout is not 0, so that ids are random; set it to null");
    return true;
}

static bool take_model(struct bpe *b, const json_t *model, const json_t *added)
{
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges"), *merge;
    const char *unknown = text_of(model, "unk_token");
    size_t at;
    if (!is_absent(model, "type") && !is_type(model, "BPE"))
        return refuse("model", model, "BPE is");
    if (!json_is_object(vocab) || !json_is_array(merges))
        return tokens_failed("is not a tokenizer.json of a BPE: model needs \"vocab\" and \"merges\"");
    const int64_t size = has_plain_options(model) ? count_ids(vocab, added) : 0;
    if (!size || !vocab_begin(&b->vocab, (uint64_t)size, json_array_size(merges)) || !take_vocab(&b->vocab, vocab))
        return false;
    json_array_foreach(merges, at, merge)
        if (!take_merge(&b->vocab, merge))
            return false;
    vocab_end(&b->vocab);
    b->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    b->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    b->unknown = *unknown ? vocab_find(&b->vocab, unknown, strlen(unknown)) : VOCAB_NONE;
    return true;
}

/* ---- added tokens ---- */

static bool take_added(struct tokenizer *t, const json_t *token)
{
    const char *text = text_of(token, "content");
    const size_t length = strlen(text);
    const uint32_t id = (uint32_t)id_of(json_object_get(token, "id")), known = vocab_find(&t->bpe.vocab, text, length);
    if (!length)
        return true;
    if (json_is_true(json_object_get(token, "single_word")))
        return tokens_failed("the added token \"%.60s\" has single_word, which is not supported", text);
    if (known != VOCAB_NONE && known != id)
        return tokens_failed("the added token \"%.60s\" has the id %u, but %u in the model's vocab", text, id, known);
    if (known == VOCAB_NONE && !vocab_add_hidden(&t->bpe.vocab, id, text, length))
        return false;
    const struct added_token added = {.text = (char *)text, .length = length, .id = id,
                                      .special = json_is_true(json_object_get(token, "special")),
                                      .takes_left = json_is_true(json_object_get(token, "lstrip")),
                                      .takes_right = json_is_true(json_object_get(token, "rstrip"))};
    return added_add(&t->added[json_is_true(json_object_get(token, "normalized"))], &added);
}

/* ---- how texts are split ---- */

static bool take_split(struct split *s, const json_t *pre)
{
    const json_t *pattern = json_object_get(pre, "pattern");
    const char *regex = text_of(pattern, "Regex"), *behavior = text_of(pre, "behavior");
    const bool invert = json_is_true(json_object_get(pre, "invert")), removed = !strcmp(behavior, "Removed");
    if (!*regex)
        return tokens_failed("pre_tokenizer: Split needs a \"Regex\" as its pattern");
    if (!removed && strcmp(behavior, "Isolated") != 0)
        return tokens_failed("pre_tokenizer: Split has the behavior \"%.40s\", which is not supported; Isolated and Removed are",
                             behavior);
    return split_add(s, regex, !removed || invert, !removed || !invert);
}

/* Also the bytes of pieces become characters here, which is done by the vocabulary. */
static bool take_byte_level(struct split *s, const json_t *pre)
{
    const json_t *regex = json_object_get(pre, "use_regex");
    if (json_is_true(json_object_get(pre, "add_prefix_space")) && !split_add_space(s))
        return false;
    return (regex && !json_is_true(regex)) || split_add(s, SPLIT_GPT2, true, true);
}

static bool take_stage(struct split *s, const json_t *pre, bool *bytes)
{
    if (*bytes)
        return refuse("pre_tokenizer: a stage after ByteLevel", pre, "ByteLevel has to be the last");
    *bytes = is_type(pre, "ByteLevel");
    if (*bytes)
        return take_byte_level(s, pre);
    if (is_type(pre, "Split"))
        return take_split(s, pre);
    if (is_type(pre, "Digits"))
        return split_add(s, json_is_true(json_object_get(pre, "individual_digits")) ? "\\p{N}" : "\\p{N}+", true, true);
    return refuse("pre_tokenizer", pre, "Sequence, Split, Digits and ByteLevel are");
}

static bool take_stages(struct split *s, const json_t *pre)
{
    bool bytes = false, ok = true;
    size_t at;
    json_t *stage;
    if (pre && !json_is_null(pre) && !is_type(pre, "Sequence"))
        ok = take_stage(s, pre, &bytes);
    json_array_foreach(json_object_get(pre, "pretokenizers"), at, stage)
        ok = ok && take_stage(s, stage, &bytes);
    return ok && (bytes || tokens_failed("is not byte-level: pre_tokenizer has no ByteLevel"));
}

/* ---- all of it ---- */

/* Whether texts stay as they are: no normalizer, or a list of none. */
static bool keeps_texts(const json_t *json)
{
    const json_t *normalizer = json_object_get(json, "normalizer");
    const bool none = is_type(normalizer, "Sequence") && !json_array_size(json_object_get(normalizer, "normalizers"));
    return none || is_absent(json, "normalizer") || refuse("normalizer", normalizer, "only null is");
}

static bool take(struct tokenizer *t, const json_t *json)
{
    const json_t *added = json_object_get(json, "added_tokens");
    size_t at;
    json_t *token;
    if (!keeps_texts(json))
        return false;
    if (!is_absent(json, "decoder") && !is_type(json_object_get(json, "decoder"), "ByteLevel"))
        return refuse("decoder", json_object_get(json, "decoder"), "ByteLevel is");
    if (!take_model(&t->bpe, json_object_get(json, "model"), added) ||
        !take_stages(&t->split, json_object_get(json, "pre_tokenizer")))
        return false;
    json_array_foreach(added, at, token)
        if (!take_added(t, token))
            return false;
    return true;
}

bool tokenizer_from_json(struct tokenizer *t, FILE *file)
{
    json_t *json = parse(file);
    const bool ok = json && take(t, json);
    json_decref(json);
    return ok;
}
