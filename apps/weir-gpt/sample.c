/* apps/weir-gpt/sample.c: lets a trained GPT write: which byte follows is drawn from what the model says of it. */
#include "apps/weir-gpt/sample.h"

#include <math.h>

static int32_t likeliest(const float *logit)
{
    int best = 0;
    for (int i = 1; i < GPT_VOCAB; i++)
        if (logit[i] > logit[best])
            best = i;
    return best;
}

/* A byte with probability softmax(logit / temperature), chosen by `uniform` in [0, 1). */
static int32_t choose(const float *logit, double temperature, double uniform)
{
    double weight[GPT_VOCAB], sum = 0, top = logit[likeliest(logit)];
    if (temperature <= 0)
        return likeliest(logit);
    for (int i = 0; i < GPT_VOCAB; i++)
        sum += weight[i] = exp((logit[i] - top) / temperature);
    for (int i = 0; i < GPT_VOCAB; i++)
        if ((uniform -= weight[i] / sum) < 0)
            return i;
    return likeliest(logit);
}

static int32_t draw_byte(void *ctx, const float *logits)
{
    sampler *s = ctx;
    return choose(logits, s->opts->temperature, weir_random_uniform(s->opts->seed, s->drawn++));
}

static void print_byte(void *ctx, int32_t byte)
{
    sampler *s = ctx;
    shown_byte(&s->shown, (unsigned char)byte);
}

weir_status sample_open(sampler *s, const gpt_config *config, const sample_opts *opts, FILE *to)
{
    *s = (sampler){.opts = opts, .to = to, .shown = {.to = to}};
    s->writer = writer_new(config, draw_byte, print_byte, s);
    return s->writer ? WEIR_OK : WEIR_E_MEMORY;
}

weir_status sample_write(sampler *s)
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

void sample_close(sampler *s)
{
    writer_free(s->writer);
}
