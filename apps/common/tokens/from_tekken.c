/* apps/common/tokens/from_tekken.c: a tokenizer from Mistral's tekken.json.
 *
 *     "config": {"pattern": "...", "default_vocab_size": 131072, "default_num_special_tokens": 1000, "version": "v3"}
 *     "vocab": [{"rank": 0, "token_bytes": "AA=="}, ...]
 *     "special_tokens": [{"rank": 0, "token_str": "<unk>"}, ...]     absent in the first files, whose special tokens are listed below
 *
 * Special tokens have the first ids; the token of rank r has the id r more than there are of them. The merge whose token
 * has the lowest rank comes first, and a piece that is a token is not merged, as in tiktoken. Special tokens without a name are
 * called <SPECIAL_n>.
 */
#include "apps/common/tokens/inside.h"
#include "apps/common/tokens/json.h"

#include <stdlib.h>
#include <string.h>

enum { SPECIAL_MAX = 1 << 16, BEGIN = 1, END = 2 };

static const char *const special_names[] = {
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
};
enum { SPECIAL_NAMES = sizeof special_names / sizeof *special_names };

/* ---- base64 ---- */

static int value_of(int character)
{
    return character >= 'A' && character <= 'Z'   ? character - 'A'
           : character >= 'a' && character <= 'z' ? character - 'a' + 26
           : character >= '0' && character <= '9' ? character - '0' + 52
           : character == '+'                     ? 62
           : character == '/'                     ? 63
                                                  : -1;
}

/* How many bytes the text stands for; -1: it is no base64. `to` has room for three bytes for each four characters. */
static int64_t take_base64(const char *text, uint8_t *to)
{
    int64_t bytes = 0;
    size_t count = strcspn(text, "=");
    uint32_t bits = 0;
    for (size_t i = 0; i < count; i++) {
        const int value = value_of(text[i]);
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 0)
            to[bytes++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    const size_t padding = strlen(text + count);
    return (count + padding) % 4 == 0 && padding < 3 && count % 4 != 1 ? bytes : -1;
}

/* ---- tokens ---- */

static int64_t number_of(const json_t *config, const char *key, int64_t least, int64_t most)
{
    const json_t *value = json_object_get(config, key);
    const json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number >= least && number <= most)
        return number;
    tokens_failed("config: %s is not a number from %lld to %lld", key, (long long)least, (long long)most);
    return -1;
}

static bool add_special(struct tokenizer *t, uint32_t id, const char *text)
{
    const struct added_token added = {.text = (char *)text, .length = strlen(text), .id = id, .special = true};
    return vocab_add_hidden(&t->bpe.vocab, id, text, strlen(text)) && added_add(&t->added[0], &added);
}

static bool take_special(struct tokenizer *t, const json_t *list, uint32_t count)
{
    char name[32];
    size_t at;
    json_t *token;
    json_array_foreach(list, at, token) {
        const int64_t id = json_id(json_object_get(token, "rank"));
        const char *text = json_text(token, "token_str");
        if (id < 0 || id >= count || !*text)
            return tokens_failed("special_tokens: number %zu has no \"token_str\", or no \"rank\" below %u", at, count);
        if (!add_special(t, (uint32_t)id, text))
            return false;
    }
    for (uint32_t id = 0; id < count; id++) {
        snprintf(name, sizeof name, "<SPECIAL_%u>", id);
        const char *known = !json_is_array(list) && id < SPECIAL_NAMES ? special_names[id] : name;
        if (!t->bpe.vocab.token[id].present && !add_special(t, id, known))
            return false;
    }
    return true;
}

static bool take_token(struct vocab *v, const json_t *token, uint32_t special, uint32_t *ranks)
{
    uint8_t bytes[3 * VOCAB_RANKED_BYTES_MAX / 2];
    const int64_t rank = json_id(json_object_get(token, "rank"));
    const char *text = json_text(token, "token_bytes");
    if (rank < 0)
        return tokens_failed("vocab has a token without a \"rank\" from 0 to %d", VOCAB_IDS_MAX - 1);
    if (rank >= v->size - special) /* more are in the file than are used */
        return true;
    const int64_t length = strlen(text) / 4 * 3 < sizeof bytes ? take_base64(text, bytes) : -1;
    if (length < 1 || length > VOCAB_RANKED_BYTES_MAX)
        return tokens_failed("vocab: the token of rank %lld has no \"token_bytes\" in base64 of 1 to %d bytes", (long long)rank, VOCAB_RANKED_BYTES_MAX);
    ranks[special + rank] = (uint32_t)rank;
    return vocab_add(v, special + (uint64_t)rank, (const char *)bytes, (size_t)length);
}

static bool take_vocab(struct tokenizer *t, const json_t *list, uint32_t special)
{
    struct vocab *v = &t->bpe.vocab;
    size_t at;
    json_t *token;
    uint32_t *ranks = malloc(v->size * sizeof *ranks);
    bool ok = true;
    if (!ranks)
        return tokens_failed("no memory for %u tokens", v->size);
    memset(ranks, 0xff, v->size * sizeof *ranks);
    json_array_foreach(list, at, token)
        ok = ok && take_token(v, token, special, ranks);
    vocab_end(v);
    for (int byte = 0; byte < 256 && ok; byte++)
        ok = v->byte_id[byte] != VOCAB_NONE || tokens_failed("vocab has no token of the byte 0x%02x", byte);
    ok = ok && vocab_rank_tokens(v, ranks);
    free(ranks);
    return ok;
}

bool tokenizer_from_tekken(struct tokenizer *t, json_t *json)
{
    const json_t *config = json_object_get(json, "config"), *special = json_object_get(json, "special_tokens");
    const int64_t count = number_of(config, "default_num_special_tokens", END + 1, SPECIAL_MAX);
    const int64_t size = count < 0 ? -1 : number_of(config, "default_vocab_size", count + 256, VOCAB_IDS_MAX);
    if (size < 0 || !*json_text(config, "pattern"))
        return size < 0 ? false : tokens_failed("config has no \"pattern\"");
    t->bpe.ignore_merges = true;
    t->bpe.unknown = VOCAB_NONE;
    if (!vocab_begin(&t->bpe.vocab, VOCAB_AS_IS, (uint64_t)size) || !take_special(t, special, (uint32_t)count) ||
        !take_vocab(t, json_object_get(json, "vocab"), (uint32_t)count) || !split_add(&t->split, json_text(config, "pattern"), true, true))
        return false;
    t->begin = BEGIN;
    t->end = END;
    t->before = (struct ends){{BEGIN}, 1};
    chat_set_tekken(&t->chat, json_text(config, "version"));
    return true;
}
