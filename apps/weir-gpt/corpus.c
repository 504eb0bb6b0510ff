/* apps/weir-gpt/corpus.c: see the header. */
#define _GNU_SOURCE
#include "apps/weir-gpt/corpus.h"
#include "apps/common/measure.h"
#include "apps/common/options_files.h"
#include "apps/common/paths.h"
#include "apps/common/tokens/ids_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char program[] = "weir-gpt";

/* ---- text ---- */

static int add_file(text *to, const char *path)
{
    char meant[PATHS_BYTES];
    const char *why;
    if (text_add_file(to, path, &why))
        return -1;
    return options_wrong(program, "cannot read %s: %s%s", path, why, paths_meant(path, meant));
}

/* The texts that are trained on: those of --text, or the project's sources, which `sources` then owns. */
struct texts {
    const char *const *path;
    int count;
    paths_list sources;
};

static int find_texts(struct texts *t, const options_list *files, const options_spec *spec)
{
    int status = -1;
    *t = (struct texts){files->value, files->count, {.count = 0}};
    if (files->count)
        return -1;
    paths_sources(&t->sources);
    t->path = (const char *const *)t->sources.path;
    t->count = t->sources.count;
    for (int i = 0; i < t->count && status < 0; i++)
        status = options_check_input(spec, t->path[i]);
    return t->count ? status : options_wrong(program, "no sources of weir were found above the program's folder to train on; give --text FILE");
}

static int load(text *to, const options_list *files, int seq, const options_spec *spec)
{
    struct texts t;
    int status = find_texts(&t, files, spec);
    for (int i = 0; i < t.count && status < 0; i++)
        status = add_file(to, t.path[i]);
    paths_free(&t.sources);
    if (status < 0 && to->count <= (size_t)seq)
        return options_wrong(program, "the text has %zu bytes, too few for --seq %d", to->count, seq);
    return status;
}

static int load_held_out(text *held_out, const char *path, int seq)
{
    int status = add_file(held_out, path);
    if (status < 0 && held_out->count <= (size_t)seq)
        return options_wrong(program, "--validate: %s has %zu bytes, too few for --seq %d", path, held_out->count, seq);
    return status;
}

static int open_text(corpus *to, const corpus_opts *o, int seq, const options_spec *spec)
{
    int status = load(&to->train, &o->files, seq, spec);
    if (status < 0 && o->validate)
        return load_held_out(&to->held_out, o->validate, seq);
    if (status < 0 && !text_hold_out(&to->train, (size_t)seq + 1, &to->held_out) && o->eval_every)
        return options_wrong(program, "the text is too short to hold some of it out for --eval-every; give --validate");
    return status;
}

/* ---- tokens ---- */

/* Evaluation reads the same windows each time, as many as of text. */
static weir_data *open_held_out(const corpus *to, const corpus_opts *o, const gpt_config *c)
{
    const int64_t samples = gpt_eval_rows_max(c);
    if (o->validate)
        return weir_data_tokens(*to->encoded_held_out.path ? to->encoded_held_out.path : o->validate, .seq = c->seq, .vocab = c->vocab, .sequential = true, .samples = samples);
    const char *encoded = to->encoded.path, *const *files = *encoded ? &encoded : o->tokens.value;
    return weir_data_tokens(NULL, .files = files, .file_count = *encoded ? 1 : o->tokens.count, .seq = c->seq, .vocab = c->vocab,
                            .sequential = true, .from = 0.9, .samples = samples);
}

static int64_t windows(const weir_data *data)
{
    return weir_data_get_info(data)->samples;
}

/* Training uses all windows, or the first nine tenths if the others are held out. */
static weir_data *open_train(const corpus *to, const corpus_opts *o, const gpt_config *c, bool all, uint64_t seed)
{
    const char *encoded = to->encoded.path, *const *files = *encoded ? &encoded : o->tokens.value;
    return weir_data_tokens(NULL, .files = files, .file_count = *encoded ? 1 : o->tokens.count, .seq = c->seq, .vocab = c->vocab,
                            .seed = seed, .to = all ? 1 : 0.9);
}

static int data_failed(const char *option)
{
    return options_wrong(program, "%s: %s", option, options_error(program));
}

/* The size of the vocabulary. A model may have room for more tokens than the tokenizer has. */
static int set_vocab(const corpus_opts *o, gpt_config *c)
{
    const uint32_t least = o->tokenizer ? tokenizer_size(o->tokenizer) : 0;
    c->vocab = o->vocab ? o->vocab : least ? (int)least : CORPUS_VOCAB;
    return (uint32_t)c->vocab >= least ? -1 : options_wrong(program, "--vocab %d is less than the %u tokens of --tokenizer", o->vocab, least);
}

static int open_tokens(corpus *to, const corpus_opts *o, gpt_config *c)
{
    const char *option = *to->encoded.path ? "--text" : "--tokens";
    to->tokens = open_train(to, o, c, true, 0);
    if (!to->tokens)
        return data_failed(option);
    const bool holds_out = !o->validate && windows(to->tokens) >= 10;
    if (!o->validate && !holds_out)
        return !o->eval_every ? -1
                              : options_wrong(program, "%s: %" PRId64 " windows of %d tokens are too few to hold some of them out for "
                                              "--eval-every; give --validate", option, windows(to->tokens), c->seq);
    to->tokens_held_out = open_held_out(to, o, c);
    return to->tokens_held_out ? -1 : data_failed(o->validate ? "--validate" : option);
}

/* ---- text as tokens ---- */

/* Adds a text's tokens, and the end token, if the tokenizer has one. */
static int encode_text(const corpus_opts *o, const text *from, const char *path, struct token_ids *to)
{
    uint32_t end;
    struct encoder *e = encoder_new(o->tokenizer);
    const bool ok = e && tokenizer_encode(e, (const char *)from->bytes, from->count, true, to) &&
                    (!tokenizer_end(o->tokenizer, &end) || token_ids_add(to, &end, 1));
    encoder_free(e);
    if (to->count > INT32_MAX)
        return options_wrong(program, "%s: has too many tokens; at most 2147483647 are trained on", path);
    return ok ? -1 : options_wrong(program, "%s: %s", path, tokens_error());
}

static int encode_file(struct encoded *to, const corpus_opts *o, const char *path, struct token_ids *ids)
{
    text one = {0};
    int status = add_file(&one, path);
    if (status < 0)
        status = encode_text(o, &one, path, ids);
    to->bytes += one.count;
    to->files++;
    text_free(&one);
    return status;
}

/* Puts the ids into a file that is in memory alone. */
static int keep_encoded(struct encoded *to, const struct token_ids *ids)
{
    to->fd = memfd_create("weir-gpt", MFD_CLOEXEC);
    FILE *file = to->fd < 0 ? NULL : fdopen(dup(to->fd), "wb");
    bool ok = file && ids_write_u32(ids, file);
    ok = file && !fclose(file) && ok;
    snprintf(to->path, sizeof to->path, "/proc/self/fd/%d", to->fd);
    return ok ? -1 : options_wrong(program, "no memory for %zu tokens: %s", ids->count, strerror(errno));
}

/* The files' tokens, one after the other. */
static int encode(struct encoded *to, const corpus_opts *o, const char *option, const char *const *files, int count, int seq)
{
    struct token_ids ids = {.id = NULL};
    int status = -1;
    for (int i = 0; i < count && status < 0; i++)
        status = encode_file(to, o, files[i], &ids);
    if (status < 0 && ids.count <= (size_t)seq)
        status = options_wrong(program, "%s: the text has %zu tokens, too few for --seq %d", option, ids.count, seq);
    if (status < 0)
        status = keep_encoded(to, &ids);
    free(ids.id);
    return status;
}

static int open_encoded(corpus *to, const corpus_opts *o, gpt_config *c, const options_spec *spec)
{
    struct texts t;
    int status = find_texts(&t, &o->files, spec);
    if (status < 0)
        status = encode(&to->encoded, o, "--text", t.path, t.count, c->seq);
    paths_free(&t.sources);
    if (status < 0 && o->validate)
        status = encode(&to->encoded_held_out, o, "--validate", &o->validate, 1, c->seq);
    return status < 0 ? open_tokens(to, o, c) : status;
}

/* ---- both ---- */

static void set_config(const corpus *from, gpt_config *c)
{
    c->corpus = &from->train;
    c->held_out = &from->held_out;
    c->tokens = from->tokens;
    c->tokens_held_out = from->tokens_held_out;
}

int corpus_open(corpus *to, const corpus_opts *o, gpt_config *c, const options_spec *spec)
{
    *to = (corpus){.tokens = NULL};
    if (o->tokens.count && o->files.count)
        return options_wrong(program, "--text and --tokens: give one of them");
    if (o->vocab && !o->tokens.count && !o->tokenizer)
        return options_wrong(program, "--vocab is for --tokens and --tokenizer; a text has 256 bytes");
    int status = o->tokens.count || o->tokenizer ? set_vocab(o, c) : -1;
    if (status < 0)
        status = o->tokens.count ? open_tokens(to, o, c) : o->tokenizer ? open_encoded(to, o, c, spec) : open_text(to, o, c->seq, spec);
    set_config(to, c);
    return status;
}

int corpus_seed(corpus *to, const corpus_opts *o, gpt_config *c, uint64_t seed)
{
    c->data_seed = seed;
    if (!to->tokens)
        return -1;
    weir_data_close(to->tokens);
    to->tokens = open_train(to, o, c, o->validate || !to->tokens_held_out, seed);
    set_config(to, c);
    return to->tokens ? -1 : data_failed(*to->encoded.path ? "--text" : "--tokens");
}

int corpus_open_text(corpus *to, const corpus_opts *o, gpt_config *c)
{
    *to = (corpus){.tokens = NULL};
    int status = o->tokenizer ? encode(&to->encoded_held_out, o, "--validate", &o->validate, 1, c->seq) : load_held_out(&to->held_out, o->validate, c->seq);
    if (status < 0 && o->tokenizer && !(to->tokens_held_out = open_held_out(to, o, c)))
        status = data_failed("--validate");
    c->held_out = &to->held_out;
    c->tokens_held_out = to->tokens_held_out;
    return status;
}

void corpus_close(corpus *of)
{
    text_free(&of->train);
    text_free(&of->held_out);
    weir_data_close(of->tokens);
    weir_data_close(of->tokens_held_out);
    if (*of->encoded.path)
        close(of->encoded.fd);
    if (*of->encoded_held_out.path)
        close(of->encoded_held_out.fd);
}

bool corpus_judges(const corpus *of)
{
    return of->held_out.count || of->tokens_held_out;
}

static void tell_tokens(const corpus *of)
{
    const weir_data_info *all = weir_data_get_info(of->tokens);
    const struct encoded *e = &of->encoded;
    char bytes[32];
    const int files = *e->path ? e->files : all->files;
    fprintf(stderr, "%d file%s, ", files, files == 1 ? "" : "s");
    if (*e->path)
        fprintf(stderr, "%s of text, ", measure_bytes_text(e->bytes, bytes));
    fprintf(stderr, "%" PRId64 " tokens, ", all->elements);
    fprintf(stderr, "%" PRId64 " windows to train on, %" PRId64 " to evaluate on", all->samples, windows(of->tokens_held_out));
}

void corpus_tell(const corpus *of)
{
    char bytes[32];
    const int files = of->train.files;
    if (of->tokens) {
        tell_tokens(of);
        return;
    }
    fprintf(stderr, "%d file%s, %s of text, ", files, files == 1 ? "" : "s", measure_bytes_text(of->train.count, bytes));
    fprintf(stderr, "%s held out", measure_bytes_text(of->held_out.count, bytes));
}
