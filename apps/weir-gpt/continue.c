/* continue.c: see the header. */
#include "apps/weir-gpt/continue.h"

#include "apps/common/measure.h"
#include "apps/common/model/adapter_lm.h"
#include "apps/common/options.h"
#include "apps/common/tokens/tokenizer.h"
#include "apps/common/train/interrupt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct continuation {
    const char *program;
    lm_config config;
    adapter adapter;             /* rank 0: there is none */
    lm_adapter beside;
    struct tokenizer *tokenizer; /* owned, as what follows */
    weir_plan *plan;
    weir_session *session;
    struct token_ids ids;        /* the prompt, then what is written */
    struct shown shown;
    struct decoder decoder;
} continuation;

static bool encode(continuation *c, const char *prompt)
{
    struct encoder *encoder = encoder_new(c->tokenizer);
    const bool ok = encoder && tokenizer_encode(encoder, prompt, strlen(prompt), false, &c->ids);
    encoder_free(encoder);
    return ok;
}

static int open_adapter(continuation *c, const char *folder)
{
    char why[1024];
    if (!folder)
        return -1;
    if (!adapter_read(folder, &c->adapter, why, sizeof why))
        return options_wrong(c->program, "--adapter: %s", why);
    c->beside = (lm_adapter){.adapter = &c->adapter, .config = &c->config, .frozen = true};
    c->config.adapt = lm_adapter_adapt;
    c->config.adapt_ctx = &c->beside;
    return -1;
}

static int load_adapter(continuation *c, const char *folder)
{
    char why[1024];
    const adapter_files from = {folder, lm_adapter_order, &c->config};
    if (!folder)
        return -1;
    if (!lm_adapter_used(&c->beside, why, sizeof why) || !adapter_load(&from, c->session, c->plan, why, sizeof why))
        return options_wrong(c->program, "--adapter: %s", why);
    return -1;
}

static bool open_session(continuation *c)
{
    weir_graph *graph = lm_graph(&c->config);
    c->plan = weir_compile(graph);
    weir_graph_free(graph);
    c->session = c->plan ? weir_session_open(c->plan, .cluster = {.alone = true}) : NULL;
    return c->session && !lm_load(c->session, &c->config);
}

/* Reads the tokenizer of a GGUF file, or of a folder. */
static struct tokenizer *read_tokenizer(const char *path)
{
    char inside[LM_PATH_BYTES];
    snprintf(inside, sizeof inside, "%s/tokenizer.json", path);
    return tokenizer_read(access(inside, F_OK) ? path : inside);
}

static int open_model(continuation *c, const char *path, const char *folder, const sample_opts *opts)
{
    char why[1024];
    if (!lm_read(path, &c->config, why, sizeof why))
        return options_wrong(c->program, "--model: %s", why);
    const int status = open_adapter(c, folder);
    if (status >= 0)
        return status;
    c->tokenizer = read_tokenizer(path);
    if (!c->tokenizer || !encode(c, opts->prompt))
        return options_wrong(c->program, "--model: %s", tokens_error());
    if (tokenizer_size(c->tokenizer) > (uint32_t)c->config.vocab)
        return options_wrong(c->program, "--model: %s: its tokenizer has more tokens than the model", path);
    if (c->ids.count > (size_t)c->config.context)
        return options_wrong(c->program, "--prompt: it has %zu tokens, and the model sees at most %d", c->ids.count, c->config.context);
    const size_t wanted = c->ids.count + (size_t)opts->bytes;
    c->config.room = wanted < (size_t)c->config.context ? (int)wanted : c->config.context;
    return open_session(c) ? load_adapter(c, folder) : options_failed(c->program);
}

/* Runs the token at `at`, and returns the next one. */
static weir_status step(continuation *c, size_t at, uint32_t *next)
{
    int32_t token = (int32_t)c->ids.id[at], position = (int32_t)at, chosen = 0;
    const weir_array given = {&token, WEIR_I32, {2, {1, 1}}}, place = {&position, WEIR_I32, {.rank = 0}};
    weir_array got = {&chosen, WEIR_I32, {1, {1}}};
    weir_status status = weir_session_start(c->session, 1);
    status = status ? status : weir_session_push(c->session, "token", &given, -1);
    status = status ? status : weir_session_push(c->session, "position", &place, -1);
    status = status ? status : weir_session_pull(c->session, "next", &got, -1);
    status = status ? status : weir_session_wait(c->session, -1);
    *next = (uint32_t)chosen;
    return status;
}

static void show(continuation *c, uint32_t id)
{
    size_t bytes = 0;
    const char *token = decoder_next(&c->decoder, id, &bytes);
    for (size_t i = 0; token && i < bytes; i++)
        shown_byte(&c->shown, (unsigned char)token[i]);
}

static weir_status write_tokens(continuation *c, const sample_opts *opts)
{
    const size_t prompt = c->ids.count;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < prompt; i++)
        show(c, c->ids.id[i]);
    for (size_t at = 0; !status && at < (size_t)c->config.room && !interrupt_caught(); at++) {
        uint32_t next;
        status = step(c, at, &next);
        if (status || at + 1 < prompt)
            continue;
        if (lm_is_end(&c->config, next) || c->ids.count - prompt == (size_t)opts->bytes)
            break;
        if (!token_ids_add(&c->ids, &next, 1))
            return WEIR_E_MEMORY;
        show(c, next);
    }
    return status;
}

static int write_and_tell(continuation *c, const sample_opts *opts)
{
    char time[32];
    const size_t prompt = c->ids.count;
    const double start = measure_seconds();
    c->shown.to = stdout;
    c->decoder = (struct decoder){.tokenizer = c->tokenizer};
    const weir_status status = write_tokens(c, opts);
    const double seconds = measure_seconds() - start;
    shown_end(&c->shown);
    putchar('\n');
    if (status)
        return options_failed(c->program);
    fprintf(stderr, "%zu tokens written behind %zu in %s\n", c->ids.count - prompt, prompt, measure_time_text(seconds, time));
    return interrupt_caught() ? interrupt_status(interrupt_caught()) : 0;
}

int continue_text(const char *program, const char *path, const char *folder, const sample_opts *opts)
{
    continuation c = {.program = program};
    interrupt_catch(NULL);
    int status = open_model(&c, path, folder, opts);
    if (status < 0)
        status = write_and_tell(&c, opts);
    weir_session_close(c.session);
    weir_plan_free(c.plan);
    tokenizer_free(c.tokenizer);
    free(c.ids.id);
    return status;
}
