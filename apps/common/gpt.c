/* apps/common/gpt.c: the model, its data and its arithmetic.
 *
 * The forward-only graph is built by the same functions as the training graph, on a layout of one device: what differs
 * is where the tokens come from and what is fetched. So the two cannot drift apart, and parameters are carried over by
 * name.
 */
#include "apps/common/gpt.h"

#include <math.h>

/* ---- data ---- */

/* Fills rows of tokens, `shift` bytes into their windows: 0 for what the model sees, 1 for what it must say next. */
static weir_status fill_rows(const gpt_config *c, const weir_view *dst, int64_t step, int micro, int shift)
{
    int32_t *to = dst->data;
    int64_t rows = dst->shape.dim[0], seq = dst->shape.dim[1];
    for (int64_t r = 0; r < rows; r++) {
        size_t at = text_window(c->corpus, (size_t)seq + 1, c->data_seed, step, micro * rows + r) + (size_t)shift;
        for (int64_t i = 0; i < seq; i++)
            *to++ = c->corpus->bytes[at + (size_t)i];
    }
    return WEIR_OK;
}

static weir_status fill_tokens(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    return fill_rows(ctx, dst, step, micro, 0);
}

static weir_status fill_labels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    return fill_rows(ctx, dst, step, micro, 1);
}

/* ---- the model ---- */

static weir_tensor *attention_half(weir_tensor *x, const gpt_config *c, double residual_std)
{
    weir_tensor *h = weir_layernorm(x, .name = "ln1");
    weir_tensor *q = weir_linear(h, c->dim, .name = "q", .weight = {[TP] = S(1)}, .init = WEIR_NORMAL(0.02));
    weir_tensor *k = weir_linear(h, c->dim, .name = "k", .weight = {[TP] = S(1)}, .init = WEIR_NORMAL(0.02));
    weir_tensor *v = weir_linear(h, c->dim, .name = "v", .weight = {[TP] = S(1)}, .init = WEIR_NORMAL(0.02));
    weir_tensor *a = weir_attention(q, k, v, .name = "attention", .heads = c->heads, .causal = true);
    a = weir_linear(a, c->dim, .name = "o", .weight = {[TP] = S(0)}, .init = WEIR_NORMAL(residual_std));
    return weir_add(x, a, .name = "add1");
}

static weir_tensor *mlp_half(weir_tensor *x, const gpt_config *c, double residual_std)
{
    weir_tensor *h = weir_layernorm(x, .name = "ln2");
    h = weir_linear(h, 4 * c->dim, .name = "up", .weight = {[TP] = S(1)}, .init = WEIR_NORMAL(0.02));
    h = weir_gelu(h, .name = "gelu");
    h = weir_linear(h, c->dim, .name = "down", .weight = {[TP] = S(0)}, .init = WEIR_NORMAL(residual_std));
    return weir_add(x, h, .name = "add2");
}

static weir_tensor *embed(weir_graph *g, weir_tensor *tokens, const gpt_config *c)
{
    weir_tensor *wpe = weir_param(g, WEIR_F32, {c->seq, c->dim}, .name = "wpe", .init = WEIR_NORMAL(0.02));
    weir_tensor *x = weir_embedding(tokens, GPT_VOCAB, c->dim, .name = "wte", .init = WEIR_NORMAL(0.02));
    return weir_add(x, wpe, .name = "embed");
}

static weir_tensor *head(weir_tensor *x)
{
    x = weir_layernorm(x, .name = "ln");
    return weir_linear(x, GPT_VOCAB, .name = "head", .no_bias = true, .init = WEIR_NORMAL(0.02));
}

/* tokens -> logits, over the stages. */
static weir_tensor *model(weir_graph *g, weir_tensor *tokens, weir_mesh **stage, const gpt_config *c, const layout *l)
{
    double residual_std = 0.02 / sqrt(2.0 * c->layers);
    weir_tensor *x = NULL;
    WEIR_ON(stage[0])
        x = embed(g, tokens, c);
    for (int i = 0; i < c->layers; i++)
        WEIR_ON(stage[layout_stage(l, i, c->layers)], .name = "h%d", i)
            x = mlp_half(attention_half(x, c, residual_std), c, residual_std);
    WEIR_ON(stage[l->pp - 1])
        x = head(x);
    return x;
}

weir_graph *gpt_train_graph(const gpt_config *c)
{
    weir_graph *g = weir_graph_new("gpt");
    if (!g)
        return NULL;
    layout l = layout_full(c->layout);
    weir_mesh *stage[LAYOUT_STAGES_MAX];
    layout_meshes(&l, g, stage);
    weir_tensor *tokens = NULL, *loss = NULL;
    WEIR_ON(stage[0])
        tokens = weir_input(g, WEIR_I32, {c->batch / l.micro, c->seq}, .name = "tokens", .sbp = {[DP] = S(0)},
                            .micro = true, .source = fill_tokens, .ctx = (void *)c);
    weir_tensor *logits = model(g, tokens, stage, c, &l);
    WEIR_ON(stage[l.pp - 1]) {
        weir_tensor *labels = weir_input(g, WEIR_I32, {c->batch / l.micro, c->seq}, .name = "labels",
                                         .sbp = {[DP] = S(0)}, .micro = true, .source = fill_labels, .ctx = (void *)c);
        loss = weir_cross_entropy(logits, labels, .name = "loss");
    }
    weir_train(loss, c->optimizer, .zero = {[DP] = l.zero}, .recompute = c->recompute);
    weir_fetch(loss, .name = "loss", .slots = 2 * l.micro);
    return g;
}

weir_graph *gpt_forward_graph(const gpt_config *c)
{
    weir_graph *g = weir_graph_new("gpt-forward");
    if (!g)
        return NULL;
    layout l = layout_full((layout){0});
    weir_mesh *stage[LAYOUT_STAGES_MAX];
    layout_meshes(&l, g, stage);
    weir_tensor *tokens = weir_input(g, WEIR_I32, {1, c->seq}, .name = "tokens");
    weir_fetch(model(g, tokens, stage, c, &l), .name = "logits");
    return g;
}

double gpt_step_flops(const gpt_config *c)
{
    double dim = c->dim, layers = c->layers, seq = c->seq, tokens = (double)c->batch * seq;
    double elements = layers * 12 * dim * dim + dim * GPT_VOCAB;
    double attention = 12 * layers * seq * dim / 2;
    return (6 * elements + attention) * tokens;
}
