/* apps/weir-gpt/sample.c: lets a trained GPT write, a byte at a time.
 *
 * The model sees the last `seq` bytes. While there are fewer, zeros follow them: causal attention never looks there.
 * Every byte is a whole forward pass: keys and values are not kept, since a sample is a few hundred bytes of a small
 * model.
 */
#include "apps/weir-gpt/sample.h"
#include "apps/common/params.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    const gpt_config *config;
    const sample_opts *opts;
    weir_session *session;
    int32_t *tokens;       /* owned: [seq], of which `seen` count */
    float *logits;         /* owned: [seq, GPT_VOCAB] */
    int seen;
} writer;

static void remember(writer *w, int32_t byte)
{
    int seq = w->config->seq;
    if (w->seen == seq)
        memmove(w->tokens, w->tokens + 1, (size_t)(seq - 1) * sizeof *w->tokens);
    else
        w->seen++;
    w->tokens[w->seen - 1] = byte;
}

static void print_byte(int32_t byte, FILE *to)
{
    fputc(isprint(byte) || byte == '\n' || byte == '\t' ? byte : '?', to);
}

/* Runs the model over what it has seen; the logits of the next byte. NULL on failure. */
static const float *look_ahead(writer *w)
{
    int seq = w->config->seq;
    weir_array in = {w->tokens, WEIR_I32, {2, {1, seq}}}, out = {w->logits, WEIR_F32, {3, {1, seq, GPT_VOCAB}}};
    weir_status status = weir_session_push(w->session, "tokens", &in, -1);
    status = status ? status : weir_session_start(w->session, 1);
    status = status ? status : weir_session_pull(w->session, "logits", &out, -1);
    status = status ? status : weir_session_wait(w->session, -1);
    return status ? NULL : w->logits + (size_t)(w->seen - 1) * GPT_VOCAB;
}

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

static weir_status write_bytes(writer *w, FILE *to)
{
    for (const char *c = w->opts->prompt; *c; c++) {
        remember(w, (unsigned char)*c);
        print_byte((unsigned char)*c, to);
    }
    for (int i = 0; i < w->opts->bytes; i++) {
        const float *logit = look_ahead(w);
        if (!logit)
            return WEIR_E_STATE;
        int32_t byte = choose(logit, w->opts->temperature, weir_random_uniform(w->opts->seed, (uint64_t)i));
        remember(w, byte);
        print_byte(byte, to);
        fflush(to);
    }
    fputc('\n', to);
    return WEIR_OK;
}

weir_status sample_write(const gpt_config *config, weir_session *trained, const sample_opts *opts, FILE *to)
{
    writer w = {.config = config, .opts = opts};
    weir_status status = WEIR_E_MEMORY;
    weir_graph *graph = gpt_forward_graph(config);
    weir_plan *plan = graph ? weir_compile(graph) : NULL;
    weir_graph_free(graph);
    w.tokens = calloc((size_t)config->seq, sizeof *w.tokens);
    w.logits = calloc((size_t)config->seq * GPT_VOCAB, sizeof *w.logits);
    w.session = plan && w.tokens && w.logits ? weir_session_open(plan, .cluster = {.alone = true}) : NULL;
    if (w.session && !(status = params_copy(trained, w.session, plan)) && to)
        status = write_bytes(&w, to);
    weir_session_close(w.session);
    weir_plan_free(plan);
    free(w.logits);
    free(w.tokens);
    return status;
}
