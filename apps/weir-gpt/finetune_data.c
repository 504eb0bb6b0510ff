/* apps/weir-gpt/finetune_data.c: see the header. */
#include "apps/weir-gpt/finetune_data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EVAL_ROWS_MAX = GPT_EVAL_ROWS_MAX };

static int rows_of(const finetune_data *d)
{
    return d->training->batch / layout_full(d->training->layout).micro;
}

/* ---- sources ---- */

static weir_status fill(finetune_data *d, const weir_view *dst, int64_t step, int micro, bool labels)
{
    int64_t first;
    if (__builtin_mul_overflow(step, d->training->batch, &first) || first > INT64_MAX - d->training->batch)
        return WEIR_E_ARGUMENT;
    first += (int64_t)micro * rows_of(d);
    if (d->tokens.tokens)
        return weir_data_read(d->tokens.tokens, first, labels, dst);
    samples_fill(&d->train, first, labels, dst);
    return WEIR_OK;
}

static weir_status give_tokens(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    return fill(ctx, dst, step, micro, false);
}

static weir_status give_labels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    return fill(ctx, dst, step, micro, true);
}

static int eval_steps(const finetune_data *d)
{
    if (d->tokens.tokens_held_out)
        return gpt_eval_steps(&d->sizes);
    const size_t most = EVAL_ROWS_MAX, rows = d->held_out.count < most ? d->held_out.count : most;
    return (int)((rows + (size_t)rows_of(d) - 1) / (size_t)rows_of(d));
}

static weir_status fill_eval(finetune_data *d, const weir_view *dst, int64_t step, bool labels)
{
    const int64_t first = step % eval_steps(d) * rows_of(d);
    if (d->tokens.tokens_held_out)
        return weir_data_read(d->tokens.tokens_held_out, first, labels, dst);
    samples_fill_once(&d->held_out, first, labels, dst);
    return WEIR_OK;
}

static weir_status give_eval_tokens(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)micro;
    return fill_eval(ctx, dst, step, false);
}

static weir_status give_eval_labels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)micro;
    return fill_eval(ctx, dst, step, true);
}

/* ---- what a checkpoint notes ---- */

static const char note_format[] = "seed %" SCNu64 " hash %" SCNx64;

static weir_status save(void *ctx, int64_t step, void *bytes, size_t *count)
{
    const finetune_data *d = ctx;
    (void)step;
    *count = (size_t)snprintf(bytes, WEIR_SOURCE_BYTES_MAX, note_format, d->seed, d->hash);
    return WEIR_OK;
}

/* Other samples may be what is wanted, so it is only a remark. */
static weir_status restore(void *ctx, int64_t step, const void *bytes, size_t count, char *why, size_t why_bytes)
{
    const finetune_data *d = ctx;
    char line[96] = "";
    uint64_t seed, hash;
    (void)step;
    if (count >= sizeof line)
        return WEIR_OK;
    memcpy(line, bytes, count);
    if (sscanf(line, note_format, &seed, &hash) != 2)
        return WEIR_OK;
    if (hash != d->hash)
        snprintf(why, why_bytes, "the samples are not those that it was saved with");
    else if (seed != d->seed)
        snprintf(why, why_bytes, "the order follows from seed %" PRIu64 ", and followed from %" PRIu64, d->seed, seed);
    return WEIR_OK;
}

void finetune_data_sources(finetune_data *d, lm_training *t)
{
    t->tokens = give_tokens;
    t->labels = give_labels;
    t->eval_tokens = finetune_data_judges(d) ? give_eval_tokens : NULL;
    t->eval_labels = finetune_data_judges(d) ? give_eval_labels : NULL;
    t->save = save;
    t->restore = restore;
    t->ctx = d;
}

/* ---- files ---- */

static int add_file(samples *to, const samples_reader *r, const char *path, bool chat, const char *option)
{
    char why[1024];
    if ((chat ? samples_add_chat : samples_add_text)(to, r, path, why, sizeof why))
        return -1;
    return options_wrong("weir-gpt", "%s: %s", option, why);
}

static int open_samples(finetune_data *d, const finetune_opts *o, const corpus_opts *files, const samples_reader *r)
{
    const bool chat = o->chat.count;
    const options_list *list = chat ? &o->chat : &files->files;
    int status = -1;
    for (int i = 0; i < list->count && status < 0; i++)
        status = add_file(&d->all, r, list->value[i], chat, chat ? "--chat" : "--text");
    if (status < 0 && files->validate)
        status = add_file(&d->validate, r, files->validate, chat, "--validate");
    if (status >= 0)
        return status;
    if (!d->all.count || (files->validate && !d->validate.count))
        return options_wrong("weir-gpt", "%s: there is no sample in it: %s", d->all.count ? "--validate" : chat ? "--chat" : "--text",
                             chat ? "no reply begins within --seq" : "it has fewer tokens than --seq and one");
    const size_t held = files->validate || d->all.count < 10 ? 0 : d->all.count / 10;
    d->train = (samples_range){.of = &d->all, .count = d->all.count - held};
    d->held_out = files->validate ? (samples_range){.of = &d->validate, .count = d->validate.count}
                                  : (samples_range){.of = &d->all, .first = d->all.count - held, .count = held};
    d->hash = samples_hash(&d->all);
    if (files->eval_every && !finetune_data_judges(d))
        return options_wrong("weir-gpt", "%zu samples are too few to hold some of them out for --eval-every; give --validate", d->all.count);
    return -1;
}

int finetune_data_open(finetune_data *d, const finetune_opts *o, const corpus_opts *files, const samples_reader *r, const lm_config *model,
                       const lm_training *training, const options_spec *spec)
{
    *d = (finetune_data){.training = training};
    if ((o->chat.count > 0) + (files->files.count > 0) + (files->tokens.count > 0) > 1)
        return options_wrong("weir-gpt", "--chat, --text and --tokens: give one of them");
    if (!files->tokens.count)
        return open_samples(d, o, files, r);
    corpus_opts own = *files;
    own.vocab = model->vocab;
    d->sizes = (gpt_config){.seq = training->seq, .batch = training->batch, .layout = training->layout};
    const int status = corpus_open(&d->tokens, &own, &d->sizes, spec);
    d->hash = d->tokens.tokens ? weir_data_get_info(d->tokens.tokens)->hash : 0;
    return status;
}

int finetune_data_seed(finetune_data *d, const corpus_opts *files, uint64_t seed)
{
    corpus_opts own = *files;
    own.vocab = d->sizes.vocab;
    d->seed = d->train.seed = seed;
    return d->tokens.tokens ? corpus_seed(&d->tokens, &own, &d->sizes, seed) : -1;
}

void finetune_data_close(finetune_data *d)
{
    samples_free(&d->all);
    samples_free(&d->validate);
    corpus_close(&d->tokens);
}

bool finetune_data_judges(const finetune_data *d)
{
    return d->held_out.count || d->tokens.tokens_held_out;
}

weir_status finetune_data_judge(void *ctx, weir_session *session, double *loss)
{
    float sum[2] = {0};
    weir_array value = {sum, WEIR_F32, {1, {2}}};
    weir_status status = weir_session_write(session, LM_EVAL_LOSS, &value);
    status = status ? status : weir_session_run(session, eval_steps(ctx), .program = LM_EVAL);
    status = status ? status : weir_session_read(session, LM_EVAL_LOSS, &value);
    *loss = sum[1] > 0 ? (double)sum[0] / (double)sum[1] : NAN;
    return status;
}

void finetune_data_tell(const finetune_data *d, bool chat)
{
    if (d->tokens.tokens) {
        corpus_tell(&d->tokens);
        return;
    }
    const size_t held = d->held_out.count, all = d->all.count;
    fprintf(stderr, "%zu %s%s, %zu held out", all, chat ? "conversation" : "window", all == 1 ? "" : "s", held);
    if (d->all.cut)
        fprintf(stderr, ", %zu cut to --seq", d->all.cut);
    if (d->all.left_out)
        fprintf(stderr, ", %zu left out, as no reply begins within --seq", d->all.left_out);
}
