/* apps/common/model/lm_graph.c: the model as graphs.
 *
 * All graphs are built by the same functions, so they cannot drift apart: where rows begin, which are kept and what becomes of the
 * logits is all that differs. weight() alone makes parameters, and product() alone multiplies by those of a layer.
 *
 * Over TP the weights of q, k, v, gate, up and the head are split by outputs, those of o and down by inputs (Shoeybi et al. 2019),
 * where the heads allow it. With .stored, weights that are not trained are all split by outputs: rows lie together in the file, and sums
 * are the same however many devices share them. Everything else is deduced. */
#include "apps/common/model/lm_inside.h"

#include "graph/base/blocks.h"

#include <stdio.h>
#include <string.h>

/* One way through the model. */
typedef struct pass {
    weir_graph *graph;
    const lm_config *c;
    layout layout;
    weir_mesh *stage[LAYOUT_STAGES_MAX];
    int rows;              /* of a sequence */
    bool trained;          /* the parameters are */
    bool prompt;           /* keys and values are left for lm_keep() */
    weir_tensor *position; /* of the first row, behind kept ones; NULL: whole sequences */
    weir_tensor *table;    /* of tokens */
} pass;

static pass pass_new(weir_graph *g, const lm_config *c, layout l, const char *device)
{
    pass p = {.graph = g, .c = c, .layout = layout_full(l)};
    layout_meshes(&p.layout, device, g, p.stage);
    return p;
}

/* ---- parameters and products ---- */

/* Whether the weight's outputs, or its inputs, are split over TP. */
static bool splits(const pass *p, lm_part part, bool inputs)
{
    const bool even = p->c->kv_heads % p->layout.tp == 0;
    if (!p->trained && p->c->stored)
        return !inputs && (part == LM_HEAD || part >= LM_Q) && part != LM_Q_NORM && part != LM_K_NORM && part != LM_FFN_NORM;
    switch (part) {
    case LM_Q: case LM_K: case LM_V: return !inputs && even;
    case LM_O: return inputs && even && !p->c->joined;
    case LM_GATE: case LM_UP: return !inputs;
    case LM_DOWN: return inputs;
    case LM_HEAD: return !inputs;
    default: return false;
    }
}

static weir_sbp layout_of(const pass *p, lm_part part, bool bias)
{
    const bool in_first = lm_in_first(p->c, part);
    if (bias)
        return splits(p, part, false) ? WEIR_S(0) : WEIR_B;
    if (splits(p, part, false))
        return in_first ? WEIR_S(1) : WEIR_S(0);
    return splits(p, part, true) ? in_first ? WEIR_S(0) : WEIR_S(1) : WEIR_B;
}

static weir_format format_of(const pass *p, lm_part part, int block)
{
    return (weir_format)p->c->type[part][block < 0 ? 0 : block].format;
}

static bool stays(const pass *p, lm_part part, int block, bool bias)
{
    return !p->trained && lm_stays(p->c, part, block, bias);
}

/* The shape of a matrix in the file: of blocks, if it is quantised. */
static void blocks_of(weir_format format, weir_shape *shape)
{
    const block_format *is = block_format_of(format);
    if (is)
        *shape = (weir_shape){3, {shape->dim[0], shape->dim[1] / is->elements, is->bytes}};
}

/* A parameter of the model; NULL: it has none of this kind. */
static weir_tensor *weight(const pass *p, lm_part part, int block, bool bias)
{
    char name[LM_NAME_BYTES];
    weir_shape shape;
    if (!lm_shape(p->c, part, bias, &shape))
        return NULL;
    weir_param_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .name = lm_name(p->c, part, block, bias, name), .frozen = !p->trained,
                            .init = {0, 0, WEIR_INIT_ZERO}, .sbp = {[DP] = WEIR_B, [TP] = layout_of(p, part, bias)}};
    opts.mapped = stays(p, part, block, bias);
    if (opts.mapped) {
        blocks_of(format_of(p, part, block), &shape);
        opts.init = (weir_init){0};
    }
    memcpy(opts.shape, shape.dim, (size_t)shape.rank * sizeof *shape.dim);
    return weir_param_at(p->graph, opts.mapped ? (weir_dtype)p->c->type[part][block < 0 ? 0 : block].dtype : WEIR_F32, &opts);
}

/* x times a matrix of the model. */
static weir_tensor *multiply(const pass *p, weir_tensor *x, weir_tensor *w, lm_part part, int block)
{
    const lm_config *c = p->c;
    const lm_part of = part == LM_HEAD && c->tied ? LM_TOKENS : part;
    if (stays(p, of, block, false))
        return weir_linear_stored(x, w, .format = format_of(p, of, block), .f32_activations = c->f32_activations);
    return weir_matmul(x, w, .trans_b = !lm_in_first(c, part));
}

/* x times the weight `w` of a layer, and its bias. */
static weir_tensor *product_with(const pass *p, weir_tensor *x, weir_tensor *w, lm_part part, int block)
{
    const lm_config *c = p->c;
    weir_tensor *bias = weight(p, part, block, true);
    weir_tensor *y = multiply(p, x, w, part, block);
    if (bias)
        y = weir_add(y, bias);
    if (!c->adapt)
        return y;
    char name[LM_NAME_BYTES];
    lm_name(c, part, block, false, name);
    *strrchr(name, '.') = '\0';
    const lm_product of = {part, block, name, splits(p, part, false), splits(p, part, true)};
    return c->adapt(c->adapt_ctx, x, y, &of);
}

static weir_tensor *product(const pass *p, weir_tensor *x, lm_part part, int block)
{
    return product_with(p, x, weight(p, part, block, false), part, block);
}

static weir_tensor *norm(const pass *p, weir_tensor *x, lm_part part, int block)
{
    weir_tensor *gain = weight(p, part, block, false);
    if (p->c->centred)
        return weir_layernorm_with(x, gain, weight(p, part, block, true), .eps = p->c->eps);
    return weir_rmsnorm_with(x, gain, .eps = p->c->eps);
}

/* ---- attention ---- */

const char *lm_state_name(int block, bool values, char name[LM_NAME_BYTES])
{
    snprintf(name, LM_NAME_BYTES, "blk.%d.%s", block, values ? "values" : "keys");
    return name;
}

/* The one place that says how keys and values are kept. */
static weir_dtype kept_dtype(const lm_config *c)
{
    return c->kept ? c->kept : WEIR_F32;
}

/* The batch of attention. Columns are cut in equal parts; where the heads of keys are not, each of them is a sequence of its own, and
 * a device may have one more than another. */
static int batch_of_heads(const pass *p)
{
    return p->c->kv_heads % p->layout.tp ? p->c->kv_heads : 1;
}

/* By heads over TP; a single one of keys lies on each device. lm_keep() relies on it that all states of a block are laid out alike. */
static weir_tensor *kept_state(const pass *p, const char *name, int rows)
{
    const lm_config *c = p->c;
    const int batch = batch_of_heads(p);
    const weir_sbp by_head = batch > 1 ? WEIR_S(0) : c->kv_heads % p->layout.tp ? WEIR_B : WEIR_S(2);
    return weir_state(p->graph, kept_dtype(c), {batch, rows, c->head_dim * c->kv_heads / batch}, .name = name,
                      .sbp = {[DP] = WEIR_B, [TP] = by_head});
}

/* [1, rows, columns] -> [heads of keys, rows, columns of each]. */
static weir_tensor *heads_first(const pass *p, weir_tensor *x)
{
    const int64_t heads = p->c->kv_heads, width = weir_tensor_type(x).shape.dim[2] / heads;
    if (p->rows == 1)
        return weir_reshape(x, {heads, 1, width});
    return weir_transpose(weir_reshape(x, {p->rows, heads, width}), {1, 0, 2});
}

/* And back. */
static weir_tensor *rows_first(const pass *p, weir_tensor *x)
{
    const int64_t columns = weir_tensor_type(x).shape.dim[0] * weir_tensor_type(x).shape.dim[2];
    return weir_reshape(p->rows == 1 ? x : weir_transpose(x, {1, 0, 2}), {1, p->rows, columns});
}

/* Keeps the rows for later steps: at their place, or for lm_keep(). */
static void keep(const pass *p, weir_tensor *state, weir_tensor *rows, int block, bool values)
{
    char name[LM_NAME_BYTES], fresh[LM_NAME_BYTES + 4];
    if (!p->prompt) {
        weir_state_append(state, rows, p->position);
        return;
    }
    snprintf(fresh, sizeof fresh, "%s.new", lm_state_name(block, values, name));
    weir_state_set(kept_state(p, fresh, p->rows), rows);
}

static weir_tensor *attend(const pass *p, weir_tensor *q, weir_tensor *k, weir_tensor *v, int block)
{
    const lm_config *c = p->c;
    const int window = c->layer[block].windowed ? c->window : 0;
    if (!p->position)
        return weir_attention(q, k, v, .heads = c->heads, .kv_heads = c->kv_heads, .window = window, .causal = true);
    char name[LM_NAME_BYTES];
    weir_tensor *keys = kept_state(p, lm_state_name(block, false, name), c->room);
    weir_tensor *values = kept_state(p, lm_state_name(block, true, name), c->room);
    if (kept_dtype(c) != WEIR_F32)
        k = weir_cast(k, kept_dtype(c)), v = weir_cast(v, kept_dtype(c));
    const int batch = batch_of_heads(p);
    if (batch > 1)
        q = heads_first(p, q), k = heads_first(p, k), v = heads_first(p, v);
    weir_tensor *a = weir_attention_kept(q, k, v, keys, values, p->position, .heads = c->heads / batch,
                                         .kv_heads = c->kv_heads / batch, .window = window);
    keep(p, keys, k, block, false);
    keep(p, values, v, block, true);
    return batch > 1 ? rows_first(p, a) : a;
}

/* Each head of q or k as attention reads it. */
static weir_tensor *turned(const pass *p, weir_tensor *x, int heads, lm_part normed_by, int block)
{
    const lm_config *c = p->c;
    const int64_t batch = weir_tensor_type(x).shape.dim[0];
    if (c->qk_norm)
        x = weir_reshape(norm(p, weir_reshape(x, {batch, p->rows, heads, c->head_dim}), normed_by, block),
                         {batch, p->rows, (int64_t)heads * c->head_dim});
    if (!c->layer[block].turns)
        return x;
    return weir_rope(x, p->position, .heads = heads, .rotary_dim = c->rotary_dim, .base = c->rope_base, .interleaved = c->interleaved,
                     .scaling = c->rope_scaling);
}

static void products_of_attention(const pass *p, weir_tensor *h, int block, weir_tensor *out[3])
{
    const lm_config *c = p->c;
    const int64_t width[3] = {(int64_t)c->heads * c->head_dim, (int64_t)c->kv_heads * c->head_dim, (int64_t)c->kv_heads * c->head_dim};
    weir_tensor *all = c->joined ? product(p, h, LM_QKV, block) : NULL;
    for (int i = 0, at = 0; i < 3; at += (int)width[i++])
        out[i] = c->joined ? weir_slice(all, 2, at, width[i]) : product(p, h, (lm_part)(LM_Q + i), block);
}

static weir_tensor *attention_half(const pass *p, weir_tensor *x, int block)
{
    const lm_config *c = p->c;
    weir_tensor *of[3];
    products_of_attention(p, norm(p, x, LM_ATTENTION_NORM, block), block, of);
    weir_tensor *q = turned(p, of[0], c->heads, LM_Q_NORM, block), *k = turned(p, of[1], c->kv_heads, LM_K_NORM, block);
    return weir_add(x, product(p, attend(p, q, k, of[2], block), LM_O, block));
}

/* ---- the rest of the model ---- */

static weir_tensor *activate(const lm_config *c, weir_tensor *x)
{
    switch (c->activation) {
    case LM_GELU_TANH: return weir_gelu(x);
    case LM_GELU_ERF: return weir_gelu_erf(x);
    case LM_RELU: return weir_relu(x);
    default: return weir_silu(x);
    }
}

static weir_tensor *feed_forward_half(const pass *p, weir_tensor *x, int block)
{
    weir_tensor *h = norm(p, x, LM_FFN_NORM, block);
    weir_tensor *up = product(p, h, LM_UP, block);
    up = p->c->gated ? weir_mul(activate(p->c, product(p, h, LM_GATE, block)), up) : activate(p->c, up);
    return weir_add(x, product(p, up, LM_DOWN, block));
}

/* Learned positions of the rows: [1, rows, dim], or [rows, dim]. */
static weir_tensor *positions(const pass *p)
{
    weir_tensor *table = weight(p, LM_POSITIONS, -1, false);
    if (!p->position)
        return weir_slice(table, 0, 0, p->rows);
    weir_tensor *rows = weir_add(weir_range(p->graph, WEIR_I32, p->rows), p->position);
    return weir_embedding_with(weir_reshape(rows, {1, p->rows}), table);
}

static weir_tensor *body(pass *p, weir_tensor *tokens)
{
    const lm_config *c = p->c;
    weir_tensor *x = NULL;
    WEIR_ON(p->stage[0]) {
        p->table = weight(p, LM_TOKENS, -1, false);
        x = stays(p, LM_TOKENS, -1, false) ? weir_embedding_stored(tokens, p->table, .format = format_of(p, LM_TOKENS, -1))
                                           : weir_embedding_with(tokens, p->table);
        if (c->learned)
            x = weir_add(x, positions(p));
    }
    for (int block = 0; block < c->layers; block++)
        WEIR_ON(p->stage[layout_stage(&p->layout, block, c->layers)])
            x = feed_forward_half(p, attention_half(p, x, block), block);
    return x;
}

static weir_tensor *head(const pass *p, weir_tensor *x)
{
    x = norm(p, x, LM_OUT_NORM, -1);
    return p->c->tied ? product_with(p, x, p->table, LM_HEAD, -1) : product(p, x, LM_HEAD, -1);
}

/* ---- graphs that write ---- */

static void add_writer(pass p, int rows, bool prompt)
{
    const lm_config *c = p.c;
    p.rows = rows;
    p.prompt = prompt;
    weir_tensor *token = weir_input(p.graph, WEIR_I32, {1, rows}, .name = "token");
    p.position = weir_input(p.graph, WEIR_I32, {0}, .name = "position");
    weir_tensor *last = prompt ? weir_input(p.graph, WEIR_I32, {0}, .name = "last") : NULL, *x = body(&p, token);
    weir_tensor *logits = head(&p, last ? weir_gather(x, last, 1) : weir_reshape(x, {1, c->dim}));
    weir_fetch(logits, .name = "logits");
}

weir_graph *lm_graph(const lm_config *c)
{
    weir_graph *g = weir_graph_new("lm");
    if (!g)
        return NULL;
    const pass p = pass_new(g, c, (layout){.tp = c->tp}, NULL);
    add_writer(p, 1, false);
    if (c->chunk)
        WEIR_PROGRAM(g, "prompt")
            add_writer(p, c->chunk, true);
    return g;
}

/* ---- graphs that train ---- */

/* The sum over the labels that count, and their number. */
static weir_tensor *loss_of(pass *p, const lm_training *t, weir_tensor **count, weir_source_fn tokens_from, weir_source_fn labels_from,
                            bool micro)
{
    const int rows = t->batch / p->layout.micro;
    weir_tensor *tokens = NULL, *loss = NULL;
    WEIR_ON(p->stage[0])
        tokens = weir_input(p->graph, WEIR_I32, {rows, t->seq}, .name = "tokens", .sbp = {[DP] = WEIR_S(0)}, .micro = micro,
                            .source = tokens_from, .ctx = t->ctx, .save = micro && tokens_from ? t->save : NULL,
                            .restore = micro && tokens_from ? t->restore : NULL);
    weir_tensor *x = body(p, tokens);
    WEIR_ON(p->stage[p->layout.pp - 1]) {
        weir_tensor *labels = weir_input(p->graph, WEIR_I32, {rows, t->seq}, .name = "labels", .sbp = {[DP] = WEIR_S(0)}, .micro = micro,
                                         .source = labels_from, .ctx = t->ctx);
        loss = weir_cross_entropy(head(p, x), labels, .ignore = true, .ignore_index = LM_IGNORED, .sum = true);
        *count = weir_label_count(labels, .ignore = true, .ignore_index = LM_IGNORED);
    }
    return loss;
}

static void add_evaluation(pass p, const lm_training *t)
{
    WEIR_PROGRAM(p.graph, LM_EVAL) {
        weir_tensor *count = NULL, *loss = loss_of(&p, t, &count, t->eval_tokens, t->eval_labels, false);
        WEIR_ON(p.stage[p.layout.pp - 1]) {
            weir_tensor *sum = weir_state(p.graph, WEIR_F32, {2}, .name = LM_EVAL_LOSS);
            weir_state_set(sum, weir_add(sum, weir_concat(0, {weir_reshape(loss, {1}), weir_reshape(count, {1})})));
        }
    }
}

weir_graph *lm_train_graph(const lm_config *c, const lm_training *t)
{
    weir_graph *g = weir_graph_new("lm-train");
    if (!g)
        return NULL;
    pass p = pass_new(g, c, t->layout, t->device);
    p.rows = t->seq;
    p.trained = !t->frozen;
    weir_tensor *count = NULL, *loss = loss_of(&p, t, &count, t->tokens, t->labels, true);
    weir_train(loss, t->optimizer, .count = count, .zero = {[DP] = p.layout.zero}, .recompute = t->recompute, .norm = t->norm);
    weir_fetch(loss, .name = "loss", .slots = 2 * p.layout.micro);
    weir_fetch(count, .name = "count", .slots = 2 * p.layout.micro);
    if (t->eval_tokens)
        add_evaluation(p, t);
    return g;
}
