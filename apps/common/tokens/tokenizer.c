/* apps/common/tokens/tokenizer.c: texts as ids of tokens, and back.
 *
 * A text is checked for UTF-8 once, as a whole; everything after that relies on it. Then added tokens cut it, and what is between
 * them is split and merged piece by piece, straight into the caller's list.
 */
#include "apps/common/tokens/inside.h"

#include "graph/base/reading.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct encoder {
    const struct tokenizer *tokenizer; /* borrowed */
    struct splitter *splitter;         /* owned */
    struct bpe_scratch *bpe;           /* owned */
};

static _Thread_local char error[1024];

bool tokens_failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error, sizeof error, format, list);
    va_end(list);
    return false;
}

const char *tokens_error(void)
{
    return error;
}

/* ---- reading ---- */

static bool read_file(struct tokenizer *t, FILE *file)
{
    char magic[4] = "";
    const bool gguf = fread(magic, 1, sizeof magic, file) == sizeof magic && !memcmp(magic, "GGUF", sizeof magic);
    rewind(file);
    return (gguf ? tokenizer_from_gguf(t, file) : tokenizer_from_json(t, file)) && added_end(&t->added[0]) && added_end(&t->added[1]);
}

struct tokenizer *tokenizer_read(const char *path)
{
    const char *why;
    struct tokenizer *t = calloc(1, sizeof *t);
    FILE *file = t ? reading_file(path, &why) : NULL;
    bool ok = file && read_file(t, file);
    if (t && !file)
        tokens_failed("%s: cannot be read: %s", path, why);
    else if (!ok) {
        char told[sizeof error];
        strcpy(told, t ? error : "no memory");
        tokens_failed("%s: %.900s", path, told);
    }
    if (file)
        fclose(file);
    if (!ok)
        tokenizer_free(t);
    return ok ? t : NULL;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_free(&t->bpe.vocab);
    split_free(&t->split);
    added_free(&t->added[0]);
    added_free(&t->added[1]);
    free(t);
}

uint32_t tokenizer_size(const struct tokenizer *t)
{
    return t->bpe.vocab.size;
}

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *bytes)
{
    const struct vocab *v = &t->bpe.vocab;
    if (id >= v->size || !v->token[id].present)
        return NULL;
    *bytes = v->token[id].length;
    return (const char *)v->bytes + v->token[id].at;
}

struct encoder *encoder_new(const struct tokenizer *t)
{
    struct encoder *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    *e = (struct encoder){t, splitter_new(), bpe_scratch_new()};
    if (!e->splitter || !e->bpe) {
        encoder_free(e);
        return NULL;
    }
    return e;
}

void encoder_free(struct encoder *e)
{
    if (!e)
        return;
    splitter_free(e->splitter);
    bpe_scratch_free(e->bpe);
    free(e);
}

/* ---- UTF-8 ---- */

/* How many bytes the character takes that the text begins with; 0: it is not UTF-8. */
static size_t char_bytes(const uint8_t *text, size_t bytes)
{
    const uint8_t first = text[0];
    const size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (!length || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if (text[i] >> 6 != 2)
            return 0;
    const bool wrong = (first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] >= 0xa0) || (first == 0xf0 && text[1] < 0x90) ||
                       (first == 0xf4 && text[1] >= 0x90);
    return wrong ? 0 : length;
}

static bool is_utf8(const uint8_t *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint64_t word = 0x80;
        if (bytes - at >= sizeof word)
            memcpy(&word, text + at, sizeof word);
        if (!(word & 0x8080808080808080u)) {
            at += sizeof word;
            continue;
        }
        const size_t length = char_bytes(text + at, bytes - at);
        if (!length)
            return tokens_failed("byte %zu of the text, 0x%02x, is not UTF-8; iconv converts texts", at, text[at]);
        at += length;
    }
    return true;
}

/* ---- encoding ---- */

/* One call of tokenizer_encode(). */
struct job {
    struct encoder *encoder;
    bool plain;
    struct token_ids *to;
};

static bool take_piece(void *ctx, const char *text, size_t bytes)
{
    const struct job *j = ctx;
    return bpe_encode(&j->encoder->tokenizer->bpe, j->encoder->bpe, text, bytes, j->to);
}

static bool encode(struct job *j, int pass, const char *text, size_t bytes);

/* Encodes the text between two added tokens. The next pass looks for the added tokens that are left. */
static bool encode_rest(struct job *j, int pass, const char *text, size_t bytes)
{
    return pass < 1 ? encode(j, pass + 1, text, bytes)
                    : split_text(&j->encoder->tokenizer->split, j->encoder->splitter, text, bytes, take_piece, j);
}

static bool encode(struct job *j, int pass, const char *text, size_t bytes)
{
    const struct added *added = &j->encoder->tokenizer->added[pass];
    const struct added_token *token;
    size_t done = 0, begin;
    bool ok = true;
    for (size_t from = 0; ok && (token = added_find(added, text, bytes, from, &begin));) {
        size_t end = from = begin + token->length;
        if (j->plain && token->special)
            continue;
        if (token->takes_left)
            begin -= added_space_at_end(text, begin);
        if (token->takes_right)
            end += added_space_at_begin(text + end, bytes - end);
        if (begin > done)
            ok = encode_rest(j, pass, text + done, begin - done);
        ok = ok && token_ids_add(j->to, &token->id, 1);
        done = end > done ? end : done;
    }
    return ok && (done >= bytes || encode_rest(j, pass, text + done, bytes - done));
}

bool tokenizer_encode(struct encoder *e, const char *text, size_t bytes, bool plain, struct token_ids *to)
{
    struct job j = {e, plain, to};
    return is_utf8((const uint8_t *)text, bytes) && encode(&j, 0, text, bytes);
}
