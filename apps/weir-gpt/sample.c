/* apps/weir-gpt/sample.c: lets a trained GPT write: which byte follows is drawn from what the model says of it. */
#include "apps/weir-gpt/sample.h"

#include <string.h>

static void print_byte(void *ctx, int32_t byte)
{
    struct sample *s = ctx;
    sampler_saw(s->sampler, byte);
    shown_byte(&s->shown, (unsigned char)byte);
}

/* A byte of logits that say nothing is 0. */
static int32_t draw_byte(void *ctx, const float *logits)
{
    const struct sample *s = ctx;
    float own[GPT_VOCAB];
    memcpy(own, logits, sizeof own);
    const int32_t byte = sampler_choose(s->sampler, own);
    return byte < 0 ? 0 : byte;
}

weir_status sample_open(struct sample *s, const gpt_config *config, const sample_opts *opts, FILE *to)
{
    *s = (struct sample){.opts = opts, .to = to, .shown = {.to = to}, .sampler = sampler_new(&opts->sampler, GPT_VOCAB)};
    s->writer = s->sampler ? writer_new(config, draw_byte, print_byte, s) : NULL;
    return s->writer ? WEIR_OK : WEIR_E_MEMORY;
}

weir_status sample_write(struct sample *s)
{
    if (!s->to || !s->opts->bytes)
        return WEIR_OK;
    for (const char *c = s->opts->prompt; *c; c++)
        print_byte(s, (unsigned char)*c);
    weir_status status = writer_write(s->writer, s->opts->prompt, s->opts->bytes);
    shown_end(&s->shown);
    fputc('\n', s->to);
    fflush(s->to);
    return status;
}

void sample_close(struct sample *s)
{
    writer_free(s->writer);
    sampler_free(s->sampler);
}
