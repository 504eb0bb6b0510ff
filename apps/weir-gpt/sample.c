/* apps/weir-gpt/sample.c: lets a trained GPT write: which token follows is drawn from what the model says of it. */
#include "apps/weir-gpt/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int vocab_of(const sampler *s)
{
    const int vocab = s->writer->config->vocab;
    return vocab ? vocab : GPT_VOCAB;
}

static int32_t likeliest(const float *logit, int vocab)
{
    int best = 0;
    for (int i = 1; i < vocab; i++)
        if (logit[i] > logit[best])
            best = i;
    return best;
}

/* A token with probability softmax(logit / temperature), chosen by `uniform` in [0, 1). */
static int32_t choose(const float *logit, int vocab, double *weight, double temperature, double uniform)
{
    const int32_t best = likeliest(logit, vocab);
    double sum = 0, top = logit[best];
    if (temperature <= 0)
        return best;
    for (int i = 0; i < vocab; i++)
        sum += weight[i] = exp((logit[i] - top) / temperature);
    for (int i = 0; i < vocab; i++)
        if ((uniform -= weight[i] / sum) < 0)
            return i;
    return best;
}

static int32_t draw_token(void *ctx, const float *logits)
{
    sampler *s = ctx;
    return choose(logits, vocab_of(s), s->weight, s->opts->temperature, weir_random_uniform(s->opts->seed, s->drawn++));
}

static void print_token(void *ctx, int32_t token)
{
    sampler *s = ctx;
    const char byte = (char)token, *piece = &byte;
    size_t bytes = 1;
    if (s->opts->tokenizer)
        piece = decoder_next(&s->decoder, (uint32_t)token, &bytes);
    for (size_t i = 0; piece && i < bytes; i++)
        shown_byte(&s->shown, (unsigned char)piece[i]);
}

/* The prompt as ids. False: it has none. */
static bool take_prompt(sampler *s)
{
    const char *prompt = s->opts->prompt;
    if (s->opts->tokenizer) {
        struct encoder *e = encoder_new(s->opts->tokenizer);
        const bool ok = e && tokenizer_encode(e, prompt, strlen(prompt), false, &s->prompt);
        encoder_free(e);
        return ok && s->prompt.count;
    }
    bool ok = true;
    for (; *prompt && ok; prompt++)
        ok = token_ids_add(&s->prompt, &(uint32_t){(unsigned char)*prompt}, 1);
    return ok;
}

weir_status sample_open(sampler *s, const gpt_config *config, const sample_opts *opts, FILE *to)
{
    *s = (sampler){.opts = opts, .to = to, .shown = {.to = to}, .decoder = {.tokenizer = opts->tokenizer}};
    s->writer = writer_new(config, draw_token, print_token, s);
    s->weight = s->writer ? malloc((size_t)vocab_of(s) * sizeof *s->weight) : NULL;
    return s->weight && take_prompt(s) ? WEIR_OK : WEIR_E_MEMORY;
}

weir_status sample_write(sampler *s)
{
    if (!s->to || !s->opts->bytes)
        return WEIR_OK;
    for (size_t i = 0; i < s->prompt.count; i++)
        print_token(s, (int32_t)s->prompt.id[i]);
    weir_status status = writer_write_tokens(s->writer, s->prompt.id, s->prompt.count, s->opts->bytes);
    shown_end(&s->shown);
    fputc('\n', s->to);
    fflush(s->to);
    return status;
}

void sample_close(sampler *s)
{
    writer_free(s->writer);
    free(s->prompt.id);
    free(s->weight);
}
