/* apps/common/tokens/from_sentencepiece.c: a tokenizer from SentencePiece's tokenizer.model, a message of protobuf
 * (https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto).
 *
 *     1 pieces            1 text   2 score, f32   3 type
 *     2 trainer_spec      3 model_type   24 treat_whitespace_as_suffix   35 byte_fallback   41, 42 bos_id, eos_id
 *     3 normalizer_spec   1 name   2 precompiled_charsmap   3 add_dummy_prefix   4 remove_extra_whitespaces   5 escape_whitespaces
 *
 * The two of the highest score merge first. User-defined pieces are found in the text before it is merged. Control pieces are found,
 * too, unless special tokens are plain text, which is what SentencePiece's own encoder does.
 */
#include "apps/common/tokens/inside.h"
#include "apps/common/tokens/json.h"
#include "apps/common/tokens/scores.h"

#include "graph/base/proto.h"

#include <stdlib.h>
#include <string.h>

struct model {
    struct proto all;
    uint64_t type, begin, end;              /* trainer_spec */
    bool suffix, falls_back;
    bool charsmap, prefix, trims, escapes;  /* normalizer_spec */
    char name[64];
};

static void copy(char *to, size_t room, struct proto from)
{
    const size_t count = from.left < room - 1 ? from.left : room - 1;
    if (count)
        memcpy(to, from.at, count);
    to[count] = '\0';
}

static bool take_trainer(struct model *m, struct proto spec)
{
    for (struct proto_field f; proto_next(&spec, &f);)
        switch (f.number) {
        case 3: m->type = f.integer; break;
        case 24: m->suffix = f.integer; break;
        case 35: m->falls_back = f.integer; break;
        case 41: m->begin = f.integer; break;
        case 42: m->end = f.integer; break;
        default: break;
        }
    return !spec.bad;
}

static bool take_normalizer(struct model *m, struct proto spec)
{
    for (struct proto_field f; proto_next(&spec, &f);)
        switch (f.number) {
        case 1: copy(m->name, sizeof m->name, f.bytes); break;
        case 2: m->charsmap = f.bytes.left; break;
        case 3: m->prefix = f.integer; break;
        case 4: m->trims = f.integer; break;
        case 5: m->escapes = f.integer; break;
        default: break;
        }
    return !spec.bad;
}

/* How many pieces there are; -1: it is no such message. */
static int64_t take_specs(struct model *m)
{
    int64_t pieces = 0;
    struct proto all = m->all;
    bool ok = true;
    for (struct proto_field f; ok && proto_next(&all, &f);) {
        pieces += f.number == 1;
        if (f.number == 2)
            ok = take_trainer(m, f.bytes);
        if (f.number == 3)
            ok = take_normalizer(m, f.bytes);
    }
    return ok && !all.bad ? pieces : -1;
}

static bool is_supported(const struct model *m)
{
    static const char *const types[] = {"none", "unigram", "bpe", "word", "char"};
    if (m->type != 2)
        return tokens_failed("its model is of the type \"%s\", which is not supported; bpe is", m->type < 5 ? types[m->type] : "unknown");
    if (m->charsmap)
        return tokens_failed("its normalizer is \"%s\", which is not supported; identity is", m->name);
    if (m->trims)
        return tokens_failed("its normalizer has remove_extra_whitespaces, which is not supported");
    if (!m->escapes || m->suffix)
        return tokens_failed(m->suffix ? "it has treat_whitespace_as_suffix, which is not supported" : "its normalizer has no escape_whitespaces, which is not supported");
    return true;
}

/* One piece. `text` has room for the longest, and a zero byte. */
static bool take_piece(struct scores *s, struct proto piece, char *text)
{
    struct proto bytes = {.left = 0};
    float score = 0;
    uint64_t type = SCORES_NORMAL;
    for (struct proto_field f; proto_next(&piece, &f);) {
        bytes = f.number == 1 ? f.bytes : bytes;
        score = f.number == 2 ? proto_float(f.integer) : score;
        type = f.number == 3 ? f.integer : type;
    }
    if (piece.bad || bytes.left > VOCAB_RANKED_BYTES_MAX)
        return tokens_failed("piece %u is damaged, or has more than %d bytes", s->count, VOCAB_RANKED_BYTES_MAX);
    copy(text, VOCAB_RANKED_BYTES_MAX + 1, bytes);
    return scores_add(s, text, bytes.left, score, (uint32_t)type);
}

static bool take_pieces(struct tokenizer *t, const struct model *m, int64_t pieces)
{
    char text[VOCAB_RANKED_BYTES_MAX + 1];
    struct scores s;
    bool ok = scores_begin(&s, t, (uint64_t)pieces);
    struct proto all = m->all;
    for (struct proto_field f; ok && proto_next(&all, &f);)
        ok = f.number != 1 || take_piece(&s, f.bytes, text);
    ok = ok && scores_end(&s, m->falls_back);
    scores_free(&s);
    return ok;
}

static void take_ends(struct tokenizer *t, const struct model *m)
{
    const uint32_t size = t->bpe.vocab.size;
    t->begin = m->begin < size ? (uint32_t)m->begin : VOCAB_NONE;
    t->end = m->end < size ? (uint32_t)m->end : VOCAB_NONE;
    if (t->begin != VOCAB_NONE)
        t->before = (struct ends){{t->begin}, 1};
    t->ends_by_config = true;
}

bool tokenizer_from_sentencepiece(struct tokenizer *t, FILE *file)
{
    size_t bytes;
    char *text = tokens_read_all(file, &bytes);
    if (!text)
        return false;
    struct model m = {.all = {(const unsigned char *)text, bytes, false}, .type = 1, .begin = 1, .end = 2,
                      .prefix = true, .trims = true, .escapes = true};
    const int64_t pieces = take_specs(&m);
    bool ok = pieces > 0 || tokens_failed("is no tokenizer: it is neither JSON, nor GGUF, nor a model of SentencePiece");
    t->normal.space = m.prefix;
    ok = ok && is_supported(&m) && take_pieces(t, &m, pieces);
    if (ok)
        take_ends(t, &m);
    free(text);
    return ok;
}
