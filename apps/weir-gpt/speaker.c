/* apps/weir-gpt/speaker.c: see the header. */
#include "apps/weir-gpt/speaker.h"

#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/common/ranks.h"
#include "apps/common/tokens/chat.h"
#include "apps/common/train/interrupt.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A chunk has a multiple of ROWS rows, at most CHUNK. It takes no longer than a WORTHth as many single rows. */
enum { CHUNK = 128, ROWS = 16, WORTH = 8 };

/* ---- opening ---- */

static int take_stops(struct speaker *s, const options_list *texts)
{
    if (texts->count > STOPS_MAX)
        return options_wrong(s->program, "--stop: %d texts; at most %d are allowed", texts->count, STOPS_MAX);
    for (int i = 0; i < texts->count; i++) {
        const size_t bytes = strlen(texts->value[i]);
        if (bytes < 1 || bytes > STOPS_BYTES)
            return options_wrong(s->program, "--stop: a text of %zu bytes; 1 to %d are allowed", bytes, STOPS_BYTES);
        s->stops.text[s->stops.count++] = texts->value[i];
    }
    return -1;
}

int speaker_begin(struct speaker *s, const char *program, const char *path, const sample_opts *opts)
{
    char why[1024];
    *s = (struct speaker){.program = program};
    const int status = take_stops(s, &opts->stop);
    if (status >= 0)
        return status;
    if (!lm_read(path, &s->config, why, sizeof why))
        return options_wrong(program, "--model: %s", why);
    s->tokenizer = tokenizer_read(path);
    s->encoder = s->tokenizer ? encoder_new(s->tokenizer) : NULL;
    if (!s->encoder)
        return options_wrong(program, "--model: %s", tokens_error());
    if (tokenizer_size(s->tokenizer) > (uint32_t)s->config.vocab)
        return options_wrong(program, "--model: %s: its tokenizer has more tokens than the model", path);
    return -1;
}

void speaker_encodes_no_more(struct speaker *s)
{
    encoder_free(s->encoder);
    s->encoder = NULL;
    tokenizer_only_decodes(s->tokenizer);
}

static int open_adapter(struct speaker *s, const char *folder)
{
    char why[1024];
    if (!folder)
        return -1;
    if (!adapter_read(folder, &s->adapter, why, sizeof why))
        return options_wrong(s->program, "--adapter: %s", why);
    s->beside = (lm_adapter){.adapter = &s->adapter, .config = &s->config, .frozen = true};
    s->config.adapt = lm_adapter_adapt;
    s->config.adapt_ctx = &s->beside;
    return -1;
}

static int load_adapter(struct speaker *s, const char *folder)
{
    char why[1024];
    const adapter_files from = {folder, lm_adapter_order, &s->config};
    if (!folder)
        return -1;
    if (!lm_adapter_used(&s->beside, why, sizeof why) || !adapter_load(&from, s->session, s->plan, why, sizeof why))
        return options_wrong(s->program, "--adapter: %s", why);
    return -1;
}

/* The room that is asked for, and so much more that its last tokens can be a chunk. */
static void set_room(struct speaker *s, int64_t room, int64_t read)
{
    lm_config *c = &s->config;
    s->room = room < c->context ? (size_t)room : (size_t)c->context;
    c->chunk = read < CHUNK ? (int)((read + ROWS - 1) / ROWS * ROWS) : (int)CHUNK;
    if (read * WORTH <= c->chunk || c->context < c->chunk)
        c->chunk = 0;
    const size_t whole = c->chunk ? (s->room + (size_t)c->chunk - 1) / (size_t)c->chunk * (size_t)c->chunk : s->room;
    c->room = whole < (size_t)c->context ? (int)whole : c->context;
}

int speaker_open(struct speaker *s, const sample_opts *opts, int64_t room, int64_t read)
{
    char trace[PATHS_BYTES];
    lm_config *c = &s->config;
    set_room(s, room, read);
    c->kept = opts->f32_activations ? WEIR_F32 : WEIR_BF16;
    c->stored = true;
    c->f32_activations = opts->f32_activations;
    c->tp = opts->tp;
    const int status = open_adapter(s, opts->adapter);
    if (status >= 0)
        return status;
    s->sampler = sampler_new(&opts->sampler, c->vocab);
    s->logits = malloc((size_t)c->vocab * sizeof *s->logits);
    if (!s->sampler || !s->logits)
        return options_wrong(s->program, "no memory for the logits of %d tokens", c->vocab);
    weir_graph *graph = lm_graph(c);
    s->plan = weir_compile(graph);
    weir_graph_free(graph);
    s->session = s->plan ? weir_session_open(s->plan, .cluster = {.alone = opts->chat}, .weights = lm_mapped(c), .workers = opts->workers,
                                             .pin = opts->pin, .trace = ranks_path(opts->trace, trace)) : NULL;
    if (!s->session || lm_load(s->session, c))
        return options_failed(s->program);
    if (!ranks_has_device(s->session))
        return options_wrong(s->program, "--tp %d: so many devices share the model, and each process needs one of them", c->tp);
    malloc_trim(0); /* compiling and reading the tokenizer took more than writing needs */
    return load_adapter(s, opts->adapter);
}

void speaker_close(struct speaker *s)
{
    weir_session_close(s->session);
    weir_plan_free(s->plan);
    encoder_free(s->encoder);
    tokenizer_free(s->tokenizer);
    sampler_free(s->sampler);
    free(s->logits);
    free(s->ids.id);
}

/* ---- reading ---- */

bool speaker_become(struct speaker *s, const struct token_ids *ids)
{
    size_t same = 0;
    while (same < s->run && same < ids->count && s->ids.id[same] == ids->id[same])
        same++;
    s->run = same < ids->count ? same : ids->count - 1; /* the last one's logits are wanted */
    s->ids.count = 0;
    sampler_begin(s->sampler);
    for (size_t i = 0; i < ids->count; i++)
        sampler_saw(s->sampler, (int32_t)ids->id[i]);
    return token_ids_add(&s->ids, ids->id, ids->count);
}

/* Runs the next `count` tokens: one, or up to a chunk. */
static weir_status run_rows(struct speaker *s, int count, bool chunk)
{
    int32_t token[CHUNK] = {0}, position = (int32_t)s->run, last = count - 1;
    for (int i = 0; i < count; i++)
        token[i] = (int32_t)s->ids.id[s->run + (size_t)i];
    const weir_array tokens = {token, WEIR_I32, {2, {1, chunk ? s->config.chunk : 1}}}, place = {&position, WEIR_I32, {.rank = 0}};
    const weir_array row = {&last, WEIR_I32, {.rank = 0}};
    weir_array logits = {s->logits, WEIR_F32, {2, {1, s->config.vocab}}};
    weir_session *session = s->session;
    weir_status status = weir_session_start(session, 1, .program = chunk ? "prompt" : NULL);
    status = status ? status : weir_session_push(session, chunk ? "prompt/token" : "token", &tokens, -1);
    status = status ? status : weir_session_push(session, chunk ? "prompt/position" : "position", &place, -1);
    if (chunk)
        status = status ? status : weir_session_push(session, "prompt/last", &row, -1);
    status = status ? status : weir_session_pull(session, chunk ? "prompt/logits" : "logits", &logits, -1);
    status = status ? status : weir_session_wait(session, -1);
    if (chunk)
        status = status ? status : lm_keep(session, &s->config, position, count);
    s->run += (size_t)count;
    return status;
}

/* Runs the tokens that have not been run. */
static weir_status read_tokens(struct speaker *s)
{
    weir_status status = WEIR_OK;
    while (!status && s->run < s->ids.count && !interrupt_caught()) {
        const size_t left = s->ids.count - s->run, rows = (size_t)s->config.chunk;
        const bool chunk = left * WORTH > rows && rows && s->run + rows <= (size_t)s->config.room;
        status = run_rows(s, !chunk ? 1 : left < rows ? (int)left : (int)rows, chunk);
    }
    return status;
}

/* ---- writing ---- */

/* Puts the token's bytes; whether a stop text is whole. */
static bool put_token(struct speaker *s, uint32_t id, stops_put_fn put, void *ctx)
{
    size_t bytes = 0;
    const char *token = decoder_next(&s->decoder, id, &bytes);
    for (size_t i = 0; token && i < bytes; i++)
        if (stops_byte(&s->stops, (unsigned char)token[i], put, ctx))
            return true;
    return false;
}

/* One token; SPEAKER_MOST: there may be another. */
static speaker_ending write_token(struct speaker *s, stops_put_fn put, void *ctx)
{
    const size_t before = s->ids.count - s->run;
    if (s->ids.count > s->room)
        return SPEAKER_FULL;
    const double start = measure_seconds();
    if (read_tokens(s)) /* after ^C another rank may have left already */
        return interrupt_caught() ? SPEAKER_INTERRUPTED : (options_failed(s->program), SPEAKER_FAILED);
    if (s->run < s->ids.count)
        return SPEAKER_INTERRUPTED;
    const int32_t next = sampler_choose(s->sampler, s->logits);
    *(before > 1 ? &s->read_seconds : &s->write_seconds) += measure_seconds() - start;
    s->steps += before == 1;
    if (next < 0)
        return options_wrong(s->program, "the model gives no probabilities behind %zu tokens: a logit is NaN", s->ids.count), SPEAKER_FAILED;
    if (lm_is_end(&s->config, next) || tokenizer_stops(s->tokenizer, (uint32_t)next))
        return SPEAKER_ENDED;
    const uint32_t id = (uint32_t)next;
    if (!token_ids_add(&s->ids, &id, 1))
        return options_wrong(s->program, "%s", tokens_error()), SPEAKER_FAILED;
    sampler_saw(s->sampler, next);
    s->written++;
    return put_token(s, id, put, ctx) ? SPEAKER_ENDED : SPEAKER_MOST;
}

speaker_ending speaker_write(struct speaker *s, int64_t most, bool opens, stops_put_fn put, void *ctx)
{
    speaker_ending how = SPEAKER_MOST;
    s->read += s->ids.count - s->run;
    s->stops.bytes = 0;
    s->decoder = (struct decoder){.tokenizer = s->tokenizer, .inside = !opens};
    for (int64_t i = 0; i < most && how == SPEAKER_MOST; i++)
        how = interrupt_caught() ? SPEAKER_INTERRUPTED : write_token(s, put, ctx);
    stops_end(&s->stops, put, ctx);
    return how;
}

void speaker_tell(const struct speaker *s)
{
    char time[32];
    fprintf(stderr, "%zu tokens written behind %zu in %s", s->written, s->read, measure_time_text(s->read_seconds + s->write_seconds, time));
    if (s->read_seconds > 0)
        fprintf(stderr, "; read at %.0f tokens/s", (double)s->read / s->read_seconds);
    if (s->steps)
        fprintf(stderr, "; written at %.1f tokens/s", (double)s->steps / s->write_seconds);
    fputc('\n', stderr);
}
