/* apps/common/model/gpt.c: the model, its data and its arithmetic.
 *
 * All graphs are built by the same functions: what differs is where the tokens come from, what is fetched, and whether
 * a row is one of a whole window or comes behind rows that were kept. So they cannot drift apart, and parameters are
 * carried over by name.
 */
#include "apps/common/model/gpt.h"
#include "graph/base/base.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- data ---- */

static int micro_rows(const gpt_config *c)
{
    return c->batch / layout_full(c->layout).micro;
}

/* Rows of token files; those of a step follow those of the step before. */
static weir_status read_rows(const gpt_config *c, const weir_view *dst, int64_t step, int micro, int shift)
{
    int64_t first;
    if (__builtin_mul_overflow(step, c->batch, &first) || first > INT64_MAX - c->batch)
        return WEIR_E_ARGUMENT;
    return weir_data_read(c->tokens, first + (int64_t)micro * micro_rows(c), shift, dst);
}

/* Fills rows of tokens, `shift` bytes into their windows: 0 for what the model sees, 1 for what it must say next. */
static weir_status fill_rows(const gpt_config *c, const weir_view *dst, int64_t step, int micro, int shift)
{
    int32_t *to = dst->data;
    int64_t rows = dst->shape.dim[0], seq = dst->shape.dim[1];
    if (c->tokens)
        return read_rows(c, dst, step, micro, shift);
    for (int64_t r = 0; r < rows; r++) {
        size_t at = text_window(c->corpus, (size_t)seq + 1, c->data_seed, step, micro * rows + r) + (size_t)shift;
        for (int64_t i = 0; i < seq; i++)
            *to++ = c->corpus->bytes[at + (size_t)i];
    }
    return WEIR_OK;
}

/* The same of held-out text: rows that begin evenly spread over it, the same ones in every evaluation. */
static weir_status fill_eval_rows(const gpt_config *c, const weir_view *dst, int64_t step, int shift)
{
    int32_t *to = dst->data;
    int64_t rows = dst->shape.dim[0], seq = dst->shape.dim[1], steps = gpt_eval_steps(c);
    if (c->tokens_held_out)
        return weir_data_read(c->tokens_held_out, step % steps * micro_rows(c), shift, dst);
    for (int64_t r = 0; r < rows; r++) {
        size_t at = text_spread(c->held_out, (size_t)seq + 1, step % steps * rows + r, steps * rows) + (size_t)shift;
        for (int64_t i = 0; i < seq; i++)
            *to++ = c->held_out->bytes[at + (size_t)i];
    }
    return WEIR_OK;
}

static weir_status fill_eval_tokens(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)micro;
    return fill_eval_rows(ctx, dst, step, 0);
}

static weir_status fill_eval_labels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)micro;
    return fill_eval_rows(ctx, dst, step, 1);
}

int64_t gpt_eval_rows_max(const gpt_config *c)
{
    const int rows = micro_rows(c);
    return (int64_t)(GPT_EVAL_ROWS_MAX + rows - 1) / rows * rows;
}

int gpt_vocab(const gpt_config *c)
{
    return c->vocab ? c->vocab : GPT_VOCAB;
}

int gpt_eval_steps(const gpt_config *c)
{
    const int64_t windows = c->tokens_held_out ? weir_data_get_info(c->tokens_held_out)->samples
                                               : (int64_t)(c->held_out->count / (size_t)c->seq);
    const int64_t steps = windows / micro_rows(c), most = gpt_eval_rows_max(c) / micro_rows(c);
    return steps < 1 ? 1 : steps < most ? (int)steps : (int)most;
}

static weir_status fill_tokens(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    return fill_rows(ctx, dst, step, micro, 0);
}

static weir_status fill_labels(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    return fill_rows(ctx, dst, step, micro, 1);
}

/* ---- what a checkpoint notes ---- */

/* FNV-1a, 64 bits, of some of the bytes: enough to tell texts apart, however large they are. */
static uint64_t text_hash(const text *of)
{
    enum { LOOKED_AT = 1 << 16 };
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < of->count; i += 1 + of->count / LOOKED_AT)
        hash = hash_more(hash, of->bytes + i, 1);
    return hash;
}

static uint64_t data_size(const gpt_config *c)
{
    return c->tokens ? (uint64_t)weir_data_get_info(c->tokens)->elements : c->corpus->count;
}

static uint64_t data_hash(const gpt_config *c)
{
    return c->tokens ? weir_data_get_info(c->tokens)->hash : text_hash(c->corpus);
}

static const char note_format[] = "heads %d data_seed %" SCNu64 " bytes %" SCNu64 " hash %" SCNx64;

int gpt_note_write(const gpt_config *c, char line[GPT_NOTE_BYTES])
{
    return snprintf(line, GPT_NOTE_BYTES, note_format, c->heads, c->data_seed, data_size(c), data_hash(c));
}

bool gpt_note_read(gpt_note *note, const void *bytes, size_t count)
{
    char line[GPT_NOTE_BYTES] = "";
    if (count >= sizeof line)
        return false;
    memcpy(line, bytes, count);
    return sscanf(line, note_format, &note->heads, &note->data_seed, &note->bytes, &note->hash) == 4 &&
           note->heads >= 1;
}

static weir_status save_tokens(void *ctx, int64_t step, void *bytes, size_t *count)
{
    char line[GPT_NOTE_BYTES];
    (void)step;
    *count = (size_t)gpt_note_write(ctx, line);
    memcpy(bytes, line, *count);
    return WEIR_OK;
}

/* Another text, or other windows of it, may be what is wanted, which is told; another number of heads is none of what
 * was trained. */
static weir_status restore_tokens(void *ctx, int64_t step, const void *bytes, size_t count, char *why, size_t why_bytes)
{
    const gpt_config *c = ctx;
    gpt_note note;
    (void)step;
    if (!gpt_note_read(&note, bytes, count))
        return WEIR_OK;
    if (note.heads != c->heads) {
        snprintf(why, why_bytes, "the model that was saved has %d heads, not %d", note.heads, c->heads);
        return WEIR_E_ARGUMENT;
    }
    if (note.bytes != data_size(c) || note.hash != data_hash(c))
        snprintf(why, why_bytes, c->tokens ? "the token files are not those that it was saved with"
                                           : "the text is not the one that it was saved with");
    else if (note.data_seed != c->data_seed)
        snprintf(why, why_bytes, "the %s windows are drawn with seed %" PRIu64 ", and were with %" PRIu64,
                 c->tokens ? "token files'" : "text's", c->data_seed, note.data_seed);
    return WEIR_OK;
}

/* ---- the model ---- */

/* One way through the model: to train, to evaluate, or to generate. */
typedef struct pass {
    weir_graph *graph;
    const gpt_config *config;
    layout layout;
    weir_mesh *stage[LAYOUT_STAGES_MAX];
    weir_tensor *positions; /* NULL: whole windows. Else [1, rows]: rows behind kept ones, each as if it were alone */
} pass;

static pass pass_new(weir_graph *g, const gpt_config *c, layout l, const char *device)
{
    pass p = {.graph = g, .config = c, .layout = layout_full(l)};
    layout_meshes(&p.layout, device, g, p.stage);
    return p;
}

/* A linear layer whose weight is split over TP as `split` says. */
static weir_tensor *project(const pass *p, weir_tensor *x, int64_t out, const char *name, weir_sbp split, double std)
{
    return weir_linear(x, out, .name = name, .weight = {[TP] = split}, .init = WEIR_NORMAL(std),
                       .by_row = p->positions != NULL);
}

/* Attention behind the rows that were kept, which the new ones join. */
static weir_tensor *attend_kept(const pass *p, weir_tensor *q, weir_tensor *k, weir_tensor *v)
{
    const gpt_config *c = p->config;
    weir_tensor *position = weir_slice(p->positions, 1, 0, 1);
    weir_tensor *keys = weir_state(p->graph, WEIR_F32, {1, c->seq, c->dim}, .name = "keys");
    weir_tensor *values = weir_state(p->graph, WEIR_F32, {1, c->seq, c->dim}, .name = "values");
    weir_tensor *a = weir_attention_kept(q, k, v, keys, values, position, .name = "attention", .heads = c->heads);
    weir_state_append(keys, k, position);
    weir_state_append(values, v, position);
    return a;
}

static weir_tensor *attend(const pass *p, weir_tensor *q, weir_tensor *k, weir_tensor *v)
{
    if (p->positions)
        return attend_kept(p, q, k, v);
    return weir_attention(q, k, v, .name = "attention", .heads = p->config->heads, .causal = true);
}

static weir_tensor *attention_half(const pass *p, weir_tensor *x, double residual_std)
{
    int dim = p->config->dim;
    weir_tensor *h = weir_layernorm(x, .name = "ln1");
    weir_tensor *q = project(p, h, dim, "q", S(1), 0.02);
    weir_tensor *k = project(p, h, dim, "k", S(1), 0.02);
    weir_tensor *v = project(p, h, dim, "v", S(1), 0.02);
    return weir_add(x, project(p, attend(p, q, k, v), dim, "o", S(0), residual_std), .name = "add1");
}

static weir_tensor *mlp_half(const pass *p, weir_tensor *x, double residual_std)
{
    int dim = p->config->dim;
    weir_tensor *h = weir_layernorm(x, .name = "ln2");
    h = weir_gelu(project(p, h, 4 * dim, "up", S(1), 0.02), .name = "gelu");
    return weir_add(x, project(p, h, dim, "down", S(0), residual_std), .name = "add2");
}

static weir_tensor *embed(const pass *p, weir_tensor *tokens)
{
    const gpt_config *c = p->config;
    weir_tensor *wpe = weir_param(p->graph, WEIR_F32, {c->seq, c->dim}, .name = "wpe", .init = WEIR_NORMAL(0.02));
    weir_tensor *x = weir_embedding(tokens, gpt_vocab(c), c->dim, .name = "wte", .init = WEIR_NORMAL(0.02));
    return weir_add(x, p->positions ? weir_embedding_with(p->positions, wpe) : wpe, .name = "embed");
}

static weir_tensor *head(const pass *p, weir_tensor *x)
{
    x = weir_layernorm(x, .name = "ln");
    return weir_linear(x, gpt_vocab(p->config), .name = "head", .no_bias = true, .weight = {[TP] = S(1)},
                       .init = WEIR_NORMAL(0.02), .by_row = p->positions != NULL);
}

/* tokens -> logits, over the stages. */
static weir_tensor *model(const pass *p, weir_tensor *tokens)
{
    int layers = p->config->layers;
    double residual_std = 0.02 / sqrt(2.0 * layers);
    weir_tensor *x = NULL;
    WEIR_ON(p->stage[0])
        x = embed(p, tokens);
    for (int i = 0; i < layers; i++)
        WEIR_ON(p->stage[layout_stage(&p->layout, i, layers)], .name = "h%d", i)
            x = mlp_half(p, attention_half(p, x, residual_std), residual_std);
    WEIR_ON(p->stage[p->layout.pp - 1])
        x = head(p, x);
    return x;
}

/* The mean loss of a micro-batch, or of a step, whose rows come from two sources. */
static weir_tensor *loss_of(const pass *p, weir_source_fn tokens_from, weir_source_fn labels_from, bool micro)
{
    const gpt_config *c = p->config;
    int rows = micro_rows(c);
    weir_tensor *tokens = NULL, *loss = NULL;
    WEIR_ON(p->stage[0])
        tokens = weir_input(p->graph, WEIR_I32, {rows, c->seq}, .name = "tokens", .sbp = {[DP] = S(0)}, .micro = micro,
                            .source = tokens_from, .ctx = (void *)c, .save = micro ? save_tokens : NULL,
                            .restore = micro ? restore_tokens : NULL, .split = c->tokens);
    weir_tensor *logits = model(p, tokens);
    WEIR_ON(p->stage[p->layout.pp - 1]) {
        weir_tensor *labels = weir_input(p->graph, WEIR_I32, {rows, c->seq}, .name = "labels", .sbp = {[DP] = S(0)},
                                         .micro = micro, .source = labels_from, .ctx = (void *)c, .split = c->tokens);
        loss = weir_cross_entropy(logits, labels, .name = "loss");
    }
    return loss;
}

/* Each step adds its loss, and 1, to a state: that is what all ranks can read, whether they own a device or not. */
static void add_evaluation(pass p)
{
    p.positions = NULL;
    if (!p.config->held_out)
        return;
    WEIR_PROGRAM(p.graph, GPT_EVAL) {
        weir_tensor *loss = loss_of(&p, fill_eval_tokens, fill_eval_labels, false), *sum = NULL;
        WEIR_ON(p.stage[p.layout.pp - 1]) {
            sum = weir_state(p.graph, WEIR_F32, {2}, .name = GPT_EVAL_LOSS);
            loss = weir_reshape(loss, {1});
            weir_state_set(sum, weir_add(sum, weir_concat(0, {loss, weir_affine(loss, 0, .shift = 1)})));
        }
    }
}

weir_graph *gpt_train_graph(const gpt_config *c)
{
    weir_graph *g = weir_graph_new("gpt");
    if (!g)
        return NULL;
    pass p = pass_new(g, c, c->layout, c->device);
    weir_tensor *loss = loss_of(&p, fill_tokens, fill_labels, true);
    weir_train(loss, c->optimizer, .zero = {[DP] = p.layout.zero}, .recompute = c->recompute, .norm = c->norm);
    weir_fetch(loss, .name = "loss", .slots = 2 * p.layout.micro);
    add_evaluation(p);
    return g;
}

/* The one slot of the feed is free again when `take` has read it, too: so a step's bytes are given once those before it
 * have been taken, and may follow from them. */
weir_graph *gpt_generate_graph(const gpt_config *c, int rows, const gpt_feed *feed)
{
    weir_graph *g = weir_graph_new("gpt-generate");
    if (!g)
        return NULL;
    pass p = pass_new(g, c, (layout){0}, NULL);
    weir_tensor *given = weir_input(g, WEIR_I32, {2, rows}, .name = "feed", .source = feed->give, .ctx = feed->ctx);
    weir_slots(given, 1);
    p.positions = weir_slice(given, 0, 1, 1);
    weir_tensor *logits = model(&p, weir_slice(given, 0, 0, 1));
    weir_fetch(weir_call(feed->take, {logits, given}, .name = "take", .dtype = WEIR_I32, .shape = {1},
                         .ctx = feed->ctx), .name = "taken", .sink = feed->put, .ctx = feed->ctx);
    add_evaluation(p);
    return g;
}

double gpt_step_flops(const gpt_config *c)
{
    double dim = c->dim, layers = c->layers, seq = c->seq, tokens = (double)c->batch * seq;
    double elements = layers * 12 * dim * dim + dim * gpt_vocab(c);
    double attention = 12 * layers * seq * dim / 2;
    return (6 * elements + attention) * tokens;
}
