/* apps/weir/shapes.c: see the header. */
#include "apps/weir/shapes.h"

static weir_tensor *attention_half(weir_tensor *x, const shapes *s)
{
    weir_tensor *h = weir_layernorm(x);
    weir_tensor *q = weir_linear(h, s->dim), *k = weir_linear(h, s->dim), *v = weir_linear(h, s->dim);
    return weir_add(x, weir_linear(weir_attention(q, k, v, .heads = (int)s->heads, .causal = true), s->dim));
}

static weir_tensor *hidden_half(weir_tensor *x, const shapes *s)
{
    return weir_add(x, weir_linear(weir_gelu(weir_linear(weir_layernorm(x), s->hidden)), s->dim));
}

weir_plan *shapes_plan(const shapes *s)
{
    weir_graph *g = weir_graph_new("shapes");
    weir_tensor *tokens = weir_input(g, WEIR_I32, {s->batch, s->seq}, .name = "tokens");
    weir_tensor *labels = weir_input(g, WEIR_I32, {s->batch, s->seq}, .name = "labels");
    weir_tensor *x = weir_add(weir_embedding(tokens, s->classes, s->dim), weir_param(g, WEIR_F32, {s->seq, s->dim}, .name = "positions"));
    x = hidden_half(attention_half(x, s), s);
    weir_tensor *logits = weir_linear(weir_relu(weir_layernorm(x)), s->classes, .no_bias = true);
    weir_tensor *loss = weir_cross_entropy(logits, labels);
    weir_train(loss, weir_adamw(.lr = 1e-3));
    weir_fetch(loss, .name = "loss");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

bool shapes_grid(int number, shapes *s)
{
    static const int64_t rows[][2] = {{1, 13}, {2, 32}, {4, 60}, {4, 200}}, dims[][2] = {{32, 1}, {40, 5}, {96, 6}, {152, 2}, {256, 4}, {520, 13}},
                         classes[] = {17, 256, 1000};
    enum { ROWS = sizeof rows / sizeof *rows, DIMS = sizeof dims / sizeof *dims, CLASSES = sizeof classes / sizeof *classes };
    if (number >= ROWS * DIMS)
        return false;
    const int64_t *of = rows[number / DIMS], *dim = dims[number % DIMS];
    *s = (shapes){of[0], of[1], dim[0], dim[1], (number % 2 ? 4 : 3) * dim[0], classes[(number + number / DIMS) % CLASSES]};
    return true;
}
