/* apps/weir-gpt/corpus.c: see the header. */
#include "apps/weir-gpt/corpus.h"
#include "apps/common/measure.h"
#include "apps/common/options_files.h"
#include "apps/common/paths.h"

#include <inttypes.h>
#include <stdio.h>

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

static int add_sources(text *to, const options_spec *spec)
{
    paths_list sources;
    int status = -1;
    paths_sources(&sources);
    for (int i = 0; i < sources.count && status < 0; i++)
        status = options_check_input(spec, sources.path[i]);
    for (int i = 0; i < sources.count && status < 0; i++)
        status = add_file(to, sources.path[i]);
    if (!sources.count)
        status = options_wrong(program, "no sources of weir were found above the program's folder to train on; give --text FILE");
    paths_free(&sources);
    return status;
}

static int load(text *to, const options_list *files, int seq, const options_spec *spec)
{
    int status = files->count ? -1 : add_sources(to, spec);
    for (int i = 0; i < files->count && status < 0; i++)
        status = add_file(to, files->value[i]);
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
static weir_data *open_held_out(const corpus_opts *o, const gpt_config *c)
{
    const int64_t samples = gpt_eval_rows_max(c);
    if (o->validate)
        return weir_data_tokens(o->validate, .seq = c->seq, .vocab = c->vocab, .sequential = true, .samples = samples);
    return weir_data_tokens(NULL, .files = o->tokens.value, .file_count = o->tokens.count, .seq = c->seq, .vocab = c->vocab,
                            .sequential = true, .from = 0.9, .samples = samples);
}

static int64_t windows(const weir_data *data)
{
    return weir_data_get_info(data)->samples;
}

/* Training uses all windows, or the first nine tenths if the others are held out. */
static weir_data *open_train(const corpus_opts *o, const gpt_config *c, bool all, uint64_t seed)
{
    return weir_data_tokens(NULL, .files = o->tokens.value, .file_count = o->tokens.count, .seq = c->seq, .vocab = c->vocab,
                            .seed = seed, .to = all ? 1 : 0.9);
}

static int tokens_failed(const char *option)
{
    return options_wrong(program, "%s: %s", option, options_error(program));
}

static int open_tokens(corpus *to, const corpus_opts *o, gpt_config *c)
{
    c->vocab = o->vocab ? o->vocab : CORPUS_VOCAB;
    to->tokens = open_train(o, c, true, 0);
    if (!to->tokens)
        return tokens_failed("--tokens");
    const bool holds_out = !o->validate && windows(to->tokens) >= 10;
    if (!o->validate && !holds_out)
        return !o->eval_every ? -1
                              : options_wrong(program, "--tokens: %" PRId64 " windows of %d tokens are too few to hold some of them out for "
                                              "--eval-every; give --validate", windows(to->tokens), c->seq);
    to->tokens_held_out = open_held_out(o, c);
    return to->tokens_held_out ? -1 : tokens_failed(o->validate ? "--validate" : "--tokens");
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
    if (o->vocab && !o->tokens.count)
        return options_wrong(program, "--vocab is for --tokens; a text has 256 bytes");
    const int status = o->tokens.count ? open_tokens(to, o, c) : open_text(to, o, c->seq, spec);
    set_config(to, c);
    return status;
}

int corpus_seed(corpus *to, const corpus_opts *o, gpt_config *c, uint64_t seed)
{
    c->data_seed = seed;
    if (!to->tokens)
        return -1;
    weir_data_close(to->tokens);
    to->tokens = open_train(o, c, o->validate || !to->tokens_held_out, seed);
    set_config(to, c);
    return to->tokens ? -1 : tokens_failed("--tokens");
}

int corpus_open_text(corpus *to, const char *validate, gpt_config *c)
{
    *to = (corpus){.tokens = NULL};
    const int status = load_held_out(&to->held_out, validate, c->seq);
    c->held_out = &to->held_out;
    return status;
}

void corpus_close(corpus *of)
{
    text_free(&of->train);
    text_free(&of->held_out);
    weir_data_close(of->tokens);
    weir_data_close(of->tokens_held_out);
}

bool corpus_judges(const corpus *of)
{
    return of->held_out.count || of->tokens_held_out;
}

static void tell_tokens(const corpus *of)
{
    const weir_data_info *all = weir_data_get_info(of->tokens);
    fprintf(stderr, "%d file%s, %" PRId64 " tokens, ", all->files, all->files == 1 ? "" : "s", all->elements);
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
