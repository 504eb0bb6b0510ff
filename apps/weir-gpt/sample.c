/* apps/weir-gpt/sample.c: lets a trained GPT write: which byte follows is drawn from what the model says of it. */
#include "apps/weir-gpt/sample.h"
#include "apps/common/params.h"
#include "apps/common/writer.h"

#include <ctype.h>
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

typedef struct sampling {
    const sample_opts *opts;
    FILE *to;
    uint64_t drawn; /* bytes so far */
} sampling;

static int32_t draw_byte(void *ctx, const float *logits)
{
    sampling *s = ctx;
    return choose(logits, s->opts->temperature, weir_random_uniform(s->opts->seed, s->drawn++));
}

static void print_byte(void *ctx, int32_t byte)
{
    const sampling *s = ctx;
    fputc(isprint(byte) || byte == '\n' || byte == '\t' ? byte : '?', s->to);
    fflush(s->to);
}

static weir_status write_text(writer *w, sampling *s)
{
    for (const char *c = s->opts->prompt; *c; c++)
        print_byte(s, (unsigned char)*c);
    weir_status status = writer_write(w, s->opts->prompt, s->opts->bytes);
    fputc('\n', s->to);
    return status;
}

weir_status sample_write(const gpt_config *config, weir_session *trained, const sample_opts *opts, FILE *to)
{
    sampling s = {opts, to, 0};
    writer *w = writer_new(config, draw_byte, print_byte, &s);
    weir_status status = w ? params_copy(trained, w->session, w->plan) : WEIR_E_MEMORY;
    if (!status && to)
        status = write_text(w, &s);
    writer_free(w);
    return status;
}
