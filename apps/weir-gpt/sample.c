/* apps/weir-gpt/sample.c: lets a trained GPT write: which token follows is drawn from what the model says of it. */
#include "apps/weir-gpt/sample.h"

#include <stdlib.h>
#include <string.h>

/* Returns 0 where the logits say nothing. */
static int32_t draw_token(void *ctx, const float *logits)
{
    const struct sample *s = ctx;
    memcpy(s->logits, logits, (size_t)gpt_vocab(s->writer->config) * sizeof *logits);
    const int32_t token = sampler_choose(s->sampler, s->logits);
    return token < 0 ? 0 : token;
}

static void print_token(void *ctx, int32_t token)
{
    struct sample *s = ctx;
    const char byte = (char)token, *piece = &byte;
    size_t bytes = 1;
    sampler_saw(s->sampler, token);
    if (s->opts->tokenizer)
        piece = decoder_next(&s->decoder, (uint32_t)token, &bytes);
    for (size_t i = 0; piece && i < bytes; i++)
        shown_byte(&s->shown, (unsigned char)piece[i]);
}

/* The prompt as ids. False: it has none. */
static bool take_prompt(struct sample *s)
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

weir_status sample_open(struct sample *s, const gpt_config *config, const sample_opts *opts, FILE *to)
{
    *s = (struct sample){.opts = opts, .to = to, .shown = {.to = to}, .decoder = {.tokenizer = opts->tokenizer}};
    s->sampler = sampler_new(&opts->sampler, gpt_vocab(config));
    s->logits = malloc((size_t)gpt_vocab(config) * sizeof *s->logits);
    s->writer = s->sampler && s->logits ? writer_new(config, draw_token, print_token, s) : NULL;
    return s->writer && take_prompt(s) ? WEIR_OK : WEIR_E_MEMORY;
}

weir_status sample_write(struct sample *s)
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

void sample_close(struct sample *s)
{
    writer_free(s->writer);
    sampler_free(s->sampler);
    free(s->logits);
    free(s->prompt.id);
}
