/* apps/common/tokens/stages.c: see the header. */
#include "apps/common/tokens/json.h"
#include "apps/common/tokens/stages.h"

#include <ctype.h>
#include <string.h>

/* Calls take() for a stage, or for each of a list of them. */
static bool each_stage(struct tokenizer *t, const json_t *stage, const char *list, bool (*take)(struct tokenizer *t, const json_t *stage))
{
    size_t at;
    json_t *one;
    if (!json_is_object(stage))
        return true;
    if (!json_is_type(stage, "Sequence"))
        return take(t, stage);
    json_array_foreach(json_object_get(stage, list), at, one)
        if (!json_is_object(one) || !take(t, one))
            return json_is_object(one) ? false : tokens_failed("%s has a stage that is no object", list);
    return true;
}

/* ---- normalizer ---- */

/* Only Prepend and Replace as SentencePiece's models have them. */
static bool take_normalizer(struct tokenizer *t, const json_t *stage)
{
    const char *const type = json_text(stage, "type");
    const bool prepends = !strcmp(type, "Prepend"), replaces = !strcmp(type, "Replace");
    const bool marks = !strcmp(json_text(stage, prepends ? "prepend" : "content"), NORMAL_MARK) &&
                       (prepends || !strcmp(json_text(json_object_get(stage, "pattern"), "String"), " "));
    if ((prepends || replaces) && !marks)
        return tokens_failed("normalizer: %s is supported if it %s U+2581 alone", type, prepends ? "prepends" : "replaces \" \" by");
    if ((prepends && t->normal.space) || (replaces && t->normal.unmarks) || (!prepends && !replaces && (t->normal.form || t->normal.unmarks || t->normal.space)))
        return tokens_failed("normalizer: %.40s comes behind another stage that it may not come behind", type);
    t->normal.space |= prepends;
    t->normal.unmarks |= replaces;
    return prepends || replaces || normal_set_form(&t->normal, type) ||
           json_refuse("normalizer", stage, "NFC, NFD, NFKC, NFKD, and Prepend and Replace of U+2581 are");
}

/* ---- pre_tokenizer ---- */

/* A text as the pattern that matches it. */
static bool quote(const char *text, char pattern[SPLIT_PATTERN_MAX])
{
    size_t length = 0;
    for (; *text && length < SPLIT_PATTERN_MAX - 2; text++) {
        if (ispunct((unsigned char)*text))
            pattern[length++] = '\\';
        pattern[length++] = *text;
    }
    pattern[length] = '\0';
    return !*text || tokens_failed("pre_tokenizer: Split has a text of more than %d bytes", SPLIT_PATTERN_MAX / 2);
}

static bool take_split(struct tokenizer *t, const json_t *pre)
{
    char quoted[SPLIT_PATTERN_MAX];
    const json_t *pattern = json_object_get(pre, "pattern");
    const char *regex = json_text(pattern, "Regex"), *text = json_text(pattern, "String"), *behavior = json_text(pre, "behavior");
    const bool invert = json_is_on(pre, "invert"), removed = !strcmp(behavior, "Removed");
    if (t->normal.unmarks && !strcmp(text, " ")) /* no space is left in the text */
        return true;
    if (!*regex && !*text)
        return tokens_failed("pre_tokenizer: Split needs a \"Regex\" or a \"String\" as its pattern");
    if (!removed && strcmp(behavior, "Isolated") != 0)
        return tokens_failed("pre_tokenizer: Split has the behavior \"%.40s\", which is not supported; Isolated and Removed are",
                             behavior);
    return (*regex || quote(text, quoted)) && split_add(&t->split, *regex ? regex : quoted, !removed || invert, !removed || !invert);
}

/* Also the bytes of pieces become characters here, which is done by the vocabulary. */
static bool take_byte_level(struct tokenizer *t, const json_t *pre)
{
    const json_t *regex = json_object_get(pre, "use_regex");
    if (json_is_on(pre, "add_prefix_space") && !split_add_space(&t->split, SPLIT_SPACE, false))
        return false;
    return (regex && !json_is_true(regex)) || split_add(&t->split, SPLIT_GPT2, true, true);
}

static bool take_metaspace(struct tokenizer *t, const json_t *pre)
{
    const char *scheme = json_text(pre, "prepend_scheme");
    const json_t *split = json_object_get(pre, "split");
    enum split_space space = SPLIT_SPACE;
    if (strcmp(json_text(pre, "replacement"), NORMAL_MARK) != 0)
        return tokens_failed("pre_tokenizer: Metaspace has the replacement \"%.20s\", which is not supported; U+2581 is", json_text(pre, "replacement"));
    if (!strcmp(scheme, "never") || (!*scheme && json_is_false(json_object_get(pre, "add_prefix_space"))))
        space = SPLIT_NO_SPACE;
    else if (!strcmp(scheme, "first"))
        space = SPLIT_FIRST_SPACE;
    else if (*scheme && strcmp(scheme, "always") != 0)
        return tokens_failed("pre_tokenizer: Metaspace has the prepend_scheme \"%.20s\"; always, first and never are allowed", scheme);
    t->strips |= space != SPLIT_NO_SPACE;
    return split_add_space(&t->split, space, true) && ((split && !json_is_true(split)) || split_add(&t->split, " [^ ]*|[^ ]+", true, false));
}

static bool take_pre_tokenizer(struct tokenizer *t, const json_t *pre)
{
    if (json_is_type(pre, "ByteLevel"))
        return take_byte_level(t, pre);
    if (json_is_type(pre, "Metaspace"))
        return take_metaspace(t, pre);
    if (json_is_type(pre, "Split"))
        return take_split(t, pre);
    if (json_is_type(pre, "Digits"))
        return split_add(&t->split, json_is_on(pre, "individual_digits") ? "\\p{N}" : "\\p{N}+", true, true);
    return json_refuse("pre_tokenizer", pre, "Sequence, Split, Digits, ByteLevel and Metaspace are");
}

/* How many stages of the type there are; *last: of those, the last one is the last of all. */
static int count_stages(const json_t *pre, const char *type, bool *last)
{
    size_t at;
    json_t *one;
    int count = json_is_type(pre, type);
    *last = count;
    json_array_foreach(json_object_get(pre, "pretokenizers"), at, one) {
        *last = json_is_type(one, type);
        count += *last;
    }
    return count;
}

/* Whether the chain is one of the two. */
static bool find_form(struct tokenizer *t, const json_t *pre, enum vocab_form *form)
{
    bool last_bytes, last_marks;
    const int bytes = count_stages(pre, "ByteLevel", &last_bytes), marks = count_stages(pre, "Metaspace", &last_marks);
    *form = marks || t->normal.unmarks ? VOCAB_MARKS : VOCAB_BYTE_TABLE;
    if (*form == VOCAB_BYTE_TABLE && bytes != 1)
        return tokens_failed(bytes ? "pre_tokenizer has two stages of ByteLevel, which is not supported"
                                   : "is neither byte-level nor of SentencePiece's kind: pre_tokenizer has no ByteLevel and no Metaspace");
    if (*form == VOCAB_BYTE_TABLE)
        return !t->normal.space || tokens_failed("normalizer: Prepend is supported where spaces become U+2581");
    t->strips |= t->normal.space;
    return (!bytes && (!t->split.count || (marks == 1 && !t->normal.unmarks && !t->normal.space && t->split.count <= 2 && !t->split.stage[0].code))) ||
           tokens_failed("pre_tokenizer splits texts in which spaces are U+2581, which is not supported but by one Metaspace alone");
}

/* ---- decoder ---- */

/* Decoders make the text of tokens as this reader does; others are refused, as a Strip of something else. */
static bool take_decoder(struct tokenizer *t, const json_t *decoder)
{
    static const char *const known[] = {"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"};
    bool is_known = false;
    (void)t;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is_known |= json_is_type(decoder, known[i]);
    if (json_is_type(decoder, "Replace"))
        is_known = !strcmp(json_text(json_object_get(decoder, "pattern"), "String"), NORMAL_MARK) && !strcmp(json_text(decoder, "content"), " ");
    if (json_is_type(decoder, "Strip"))
        is_known = !strcmp(json_text(decoder, "content"), " ") && json_integer_value(json_object_get(decoder, "start")) == 1 &&
                   json_integer_value(json_object_get(decoder, "stop")) == 0;
    return is_known || json_refuse("decoder", decoder, "ByteLevel, Metaspace, ByteFallback, Fuse, Replace of U+2581 and Strip of one space are");
}

bool stages_read(struct tokenizer *t, const json_t *json, enum vocab_form *form)
{
    const json_t *pre = json_object_get(json, "pre_tokenizer");
    bool last_bytes;
    if (!each_stage(t, json_object_get(json, "normalizer"), "normalizers", take_normalizer) ||
        !each_stage(t, pre, "pretokenizers", take_pre_tokenizer) || !find_form(t, pre, form))
        return false;
    if (count_stages(pre, "ByteLevel", &last_bytes) && !last_bytes)
        return tokens_failed("pre_tokenizer: a stage comes after ByteLevel, which has to be the last");
    return each_stage(t, json_object_get(json, "decoder"), "decoders", take_decoder);
}

/* ---- post_processor ---- */

static bool take_end(const struct tokenizer *t, struct ends *to, const json_t *ids)
{
    size_t at;
    json_t *value;
    json_array_foreach(ids, at, value) {
        const int64_t id = json_id(value);
        if (id < 0 || id >= t->bpe.vocab.size)
            return tokens_failed("post_processor has an id that is no token's");
        if (to->count == ENDS_MAX)
            return tokens_failed("post_processor adds more than %d tokens at an end of a text", ENDS_MAX);
        to->id[to->count++] = (uint32_t)id;
    }
    return true;
}

/* "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], and the ids under "special_tokens". */
static bool take_template(struct tokenizer *t, const json_t *post)
{
    size_t at;
    json_t *part;
    bool behind = false;
    json_array_foreach(json_object_get(post, "single"), at, part) {
        const json_t *special = json_object_get(part, "SpecialToken");
        const json_t *named = json_object_get(json_object_get(post, "special_tokens"), json_text(special, "id"));
        behind |= json_is_object(json_object_get(part, "Sequence"));
        if (special && !take_end(t, behind ? &t->after : &t->before, json_object_get(named, "ids")))
            return false;
    }
    return true;
}

/* "cls": ["<s>", 0], "sep": ["</s>", 2] */
static bool take_pair(struct tokenizer *t, const json_t *post)
{
    const int64_t cls = json_id(json_array_get(json_object_get(post, "cls"), 1)), sep = json_id(json_array_get(json_object_get(post, "sep"), 1));
    if (cls < 0 || sep < 0 || cls >= t->bpe.vocab.size || sep >= t->bpe.vocab.size)
        return tokens_failed("post_processor has an id that is no token's");
    t->before = (struct ends){{(uint32_t)cls}, 1};
    t->after = (struct ends){{(uint32_t)sep}, 1};
    return true;
}

static bool take_post_processor(struct tokenizer *t, const json_t *post)
{
    if (json_is_type(post, "TemplateProcessing"))
        return take_template(t, post);
    if (json_is_type(post, "RobertaProcessing") || json_is_type(post, "BertProcessing"))
        return take_pair(t, post);
    return json_is_type(post, "ByteLevel") || json_refuse("post_processor", post, "TemplateProcessing, RobertaProcessing, BertProcessing and ByteLevel are");
}

bool stages_read_ends(struct tokenizer *t, const json_t *json)
{
    const bool ok = each_stage(t, json_object_get(json, "post_processor"), "processors", take_post_processor);
    t->begin = t->before.count ? t->before.id[0] : VOCAB_NONE;
    return ok;
}
