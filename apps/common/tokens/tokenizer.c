/* apps/common/tokens/tokenizer.c: texts as ids of tokens, and back.
 *
 * A text is checked for UTF-8 once, as a whole; everything after that relies on it. Then added tokens cut it, and what is between
 * them is split and merged piece by piece, straight into the caller's list.
 */
#include "apps/common/tokens/inside.h"

#include "graph/base/reading.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct encoder {
    const struct tokenizer *tokenizer; /* borrowed */
    struct normalizer *normalizer;     /* owned, as the next two */
    struct splitter *splitter;
    struct bpe_scratch *bpe;
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

/* The forms are told by their first bytes: JSON begins with a brace. */
static bool read_file(struct tokenizer *t, FILE *file)
{
    char first[64] = "";
    const size_t got = fread(first, 1, sizeof first - 1, file);
    const bool gguf = got >= 4 && !memcmp(first, "GGUF", 4), json = strchr("{[", first[strspn(first, " \t\r\n")]);
    rewind(file);
    t->begin = t->end = VOCAB_NONE;
    if (!(gguf ? tokenizer_from_gguf : json ? tokenizer_from_json : tokenizer_from_sentencepiece)(t, file))
        return false;
    bpe_end(&t->bpe);
    return added_end(&t->added[0]) && added_end(&t->added[1]);
}

static bool read_path(struct tokenizer *t, const char *path)
{
    const char *why;
    FILE *file = reading_file(path, &why);
    if (!file)
        return tokens_failed("%s: cannot be read: %s", path, why);
    const bool ok = read_file(t, file);
    fclose(file);
    if (ok)
        return true;
    char told[sizeof error];
    strcpy(told, error);
    return tokens_failed("%s: %.900s", path, told);
}

/* The names of files that lie in the folder of a model. */
static const char *const names[] = {"tokenizer.json", "tekken.json", "tokenizer.model"};
enum { NAMES = sizeof names / sizeof *names };

/* A folder's file. False with tokens_error(): there is none, or the name is too long. */
static bool find_file(const char *folder, char path[PATH_MAX])
{
    for (int i = 0; i < NAMES; i++)
        if (snprintf(path, PATH_MAX, "%s/%s", folder, names[i]) < PATH_MAX && !access(path, F_OK))
            return true;
    return tokens_failed("%s: has no tokenizer.json, tekken.json or tokenizer.model", folder);
}

/* The folder of a file that has one of the names. False: it has another. */
static bool find_folder(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool known = false;
    for (int i = 0; i < NAMES; i++)
        known |= !strcmp(name, names[i]);
    return known && snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".") < PATH_MAX;
}

struct tokenizer *tokenizer_read(const char *path)
{
    char file[PATH_MAX], folder[PATH_MAX];
    struct stat is;
    const bool in_folder = !stat(path, &is) && S_ISDIR(is.st_mode);
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        tokens_failed("no memory for a tokenizer");
        return NULL;
    }
    if (in_folder)
        snprintf(folder, sizeof folder, "%s", path);
    if ((!in_folder || find_file(path, file)) && read_path(t, in_folder ? file : path) &&
        (!(in_folder || find_folder(path, folder)) || tokenizer_configure(t, folder)) && chat_add_stops(t))
        return t;
    tokenizer_free(t);
    return NULL;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_free(&t->bpe.vocab);
    split_free(&t->split);
    added_free(&t->added[0]);
    added_free(&t->added[1]);
    chat_free(&t->chat);
    free(t);
}

void tokenizer_only_decodes(struct tokenizer *t)
{
    vocab_only_texts(&t->bpe.vocab);
}

uint32_t tokenizer_size(const struct tokenizer *t)
{
    return t->bpe.vocab.size;
}

bool tokenizer_end(const struct tokenizer *t, uint32_t *id)
{
    *id = t->end;
    return t->end != VOCAB_NONE;
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
    if (e)
        *e = (struct encoder){t, normalizer_new(), splitter_new(), bpe_scratch_new()};
    if (e && e->normalizer && e->splitter && e->bpe)
        return e;
    encoder_free(e);
    tokens_failed("no memory");
    return NULL;
}

void encoder_free(struct encoder *e)
{
    if (!e)
        return;
    normalizer_free(e->normalizer);
    splitter_free(e->splitter);
    bpe_scratch_free(e->bpe);
    free(e);
}

const struct tokenizer *encoder_tokenizer(const struct encoder *e)
{
    return e->tokenizer;
}

struct normalizer *encoder_normalizer(struct encoder *e)
{
    return e->normalizer;
}

bool ends_add(struct ends *e, uint32_t id)
{
    for (int i = 0; i < e->count; i++)
        if (e->id[i] == id)
            return true;
    if (e->count == ENDS_MAX)
        return tokens_failed("has more than %d tokens that end a text or a reply", ENDS_MAX);
    e->id[e->count++] = id;
    return true;
}

uint32_t tokenizer_added(const struct tokenizer *t, const char *text, size_t length)
{
    size_t begin;
    for (int pass = 0; pass < 2; pass++) {
        const struct added_token *token = added_find(&t->added[pass], text, length, 0, &begin);
        if (token && token->length == length)
            return token->id;
    }
    return VOCAB_NONE;
}

/* ---- decoding ---- */

const char *decoder_next(struct decoder *d, uint32_t id, size_t *bytes)
{
    const struct tokenizer *t = d->tokenizer;
    const char *text = tokenizer_bytes(t, id, bytes);
    if (!text)
        return NULL;
    const bool strips = t->strips && !d->inside && *bytes && *text == ' ' && t->bpe.vocab.token[id].found;
    d->inside = !t->bpe.vocab.token[id].begins;
    *bytes -= strips;
    return text + strips;
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

size_t tokens_utf8(const char *text, size_t bytes)
{
    size_t at = 0, length;
    while (at < bytes) {
        uint64_t word = 0x80;
        if (bytes - at >= sizeof word)
            memcpy(&word, text + at, sizeof word);
        length = word & 0x8080808080808080u ? char_bytes((const uint8_t *)text + at, bytes - at) : sizeof word;
        if (!length)
            break;
        at += length;
    }
    return at;
}

static bool is_utf8(const char *text, size_t bytes)
{
    const size_t at = tokens_utf8(text, bytes);
    return at == bytes || tokens_failed("byte %zu of the text, 0x%02x, is not UTF-8; iconv converts texts", at, (uint8_t)text[at]);
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

static bool encode(struct job *j, int pass, const char *text, size_t bytes, bool first);

/* Encodes the text between two added tokens. The next pass looks in its normal form for the added tokens that are left. */
static bool encode_rest(struct job *j, int pass, const char *text, size_t bytes, bool first)
{
    const struct encoder *e = j->encoder;
    size_t made;
    if (pass == 1)
        return split_text(&e->tokenizer->split, e->splitter, text, bytes, first, take_piece, j);
    const char *normal = normal_text(&e->tokenizer->normal, e->normalizer, text, bytes, &made);
    return normal && encode(j, pass + 1, normal, made, first);
}

static bool encode(struct job *j, int pass, const char *text, size_t bytes, bool first)
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
            ok = encode_rest(j, pass, text + done, begin - done, first && !done);
        ok = ok && token_ids_add(j->to, &token->id, 1);
        done = end > done ? end : done;
    }
    return ok && (done >= bytes || encode_rest(j, pass, text + done, bytes - done, first && !done));
}

bool tokenizer_encode(struct encoder *e, const char *text, size_t bytes, bool plain, struct token_ids *to)
{
    struct job j = {e, plain, to};
    return is_utf8(text, bytes) && encode(&j, 0, text, bytes, true);
}

bool tokenizer_begin(const struct tokenizer *t, struct token_ids *to)
{
    return token_ids_add(to, t->before.id, (size_t)t->before.count);
}

bool tokenizer_encode_with_ends(struct encoder *e, const char *text, size_t bytes, bool plain, struct token_ids *to)
{
    const struct tokenizer *t = e->tokenizer;
    return tokenizer_begin(t, to) && tokenizer_encode(e, text, bytes, plain, to) &&
           token_ids_add(to, t->after.id, (size_t)t->after.count);
}

bool tokenizer_encode_plain(struct encoder *e, const char *text, size_t bytes, bool first, struct token_ids *to)
{
    struct job j = {e, true, to};
    return is_utf8(text, bytes) && encode(&j, 0, text, bytes, first);
}
