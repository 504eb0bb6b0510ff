/* llama.c: see the header. */
#include "apps/common/model/llama.h"

#include "graph/base/gguf.h"
#include "graph/base/reading.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

enum { SIZE_MAX_IN_FILE = 1 << 24 };

/* A key of the metadata, and the member that it fills. */
typedef struct number {
    const char *key;
    int *to;         /* a whole number, from `least` on; or */
    uint32_t least;
    double *real;
    bool optional;
} number;

static bool wrong(char *why, size_t why_bytes, const char *path, const char *what, const char *key)
{
    snprintf(why, why_bytes, "%s: %s%s", path, what, key);
    return false;
}

static bool take(struct gguf *g, const struct gguf_value *value, const number *n)
{
    uint32_t whole = 0;
    float real = 0;
    if (value->array || !gguf_begin(g, value))
        return false;
    if (n->real)
        return value->type == GGUF_F32 && gguf_next_f32(g, &real) && isfinite(real) && (*n->real = (double)real) > 0;
    if ((value->type != GGUF_U32 && value->type != GGUF_I32) || !gguf_next_u32(g, &whole) || whole < n->least || whole > SIZE_MAX_IN_FILE)
        return false;
    *n->to = (int)whole;
    return true;
}

static bool take_numbers(struct gguf *g, const char *path, llama_config *c, char *why, size_t why_bytes)
{
    const number numbers[] = {
        {"llama.block_count", &c->layers, 1, NULL, false},
        {"llama.embedding_length", &c->dim, 1, NULL, false},
        {"llama.attention.head_count", &c->heads, 1, NULL, false},
        {"llama.attention.head_count_kv", &c->kv_heads, 1, NULL, true},
        {"llama.feed_forward_length", &c->ffn, 1, NULL, false},
        {"llama.context_length", &c->context, 1, NULL, false},
        {"llama.attention.layer_norm_rms_epsilon", NULL, 0, &c->eps, false},
        {"llama.rope.freq_base", NULL, 0, &c->rope_base, true},
        {"tokenizer.ggml.eos_token_id", &c->last, 0, NULL, true},
    };
    enum { COUNT = sizeof numbers / sizeof *numbers };
    struct gguf_value wanted[COUNT + 1] = {{.key = "general.architecture"}};
    for (int i = 0; i < COUNT; i++)
        wanted[i + 1].key = numbers[i].key;
    if (!gguf_find(g, wanted, COUNT + 1))
        return wrong(why, why_bytes, path, g->why, "");
    uint64_t bytes;
    if (!wanted[0].present || wanted[0].type != GGUF_TEXT || wanted[0].array || !gguf_begin(g, &wanted[0]) || !gguf_next_text(g, &bytes) || strcmp(g->text, "llama") != 0)
        return wrong(why, why_bytes, path, "its architecture is not llama", "");
    for (int i = 0; i < COUNT; i++)
        if (wanted[i + 1].present ? !take(g, &wanted[i + 1], &numbers[i]) : !numbers[i].optional)
            return wrong(why, why_bytes, path, "its metadata has no right value of ", numbers[i].key);
    return true;
}

/* The vocabulary is that of the embedding. */
static bool take_vocab(const char *path, llama_config *c, char *why, size_t why_bytes)
{
    weir_checkpoint *file = weir_checkpoint_open(path);
    const weir_checkpoint_tensor *table = file ? weir_checkpoint_find(file, "token_embd.weight") : NULL;
    bool ok = table && table->shape.rank == 2 && table->shape.dim[1] == c->dim && table->shape.dim[0] <= SIZE_MAX_IN_FILE;
    c->vocab = ok ? (int)table->shape.dim[0] : 0;
    c->tied = file && !weir_checkpoint_find(file, "output.weight");
    if (!file)
        wrong(why, why_bytes, weir_error(), "", "");
    else if (!ok)
        wrong(why, why_bytes, path, "it has no token_embd.weight of its embedding_length", "");
    weir_checkpoint_close(file);
    return ok;
}

bool llama_read(const char *path, llama_config *c, char *why, size_t why_bytes)
{
    struct gguf g;
    const char *fault;
    const int fd = reading_open(path, &fault);
    *c = (llama_config){.rope_base = 10000, .last = -1};
    if (fd < 0)
        return wrong(why, why_bytes, path, "cannot be read: ", fault);
    bool ok = gguf_open(&g, fd) ? take_numbers(&g, path, c, why, why_bytes) : wrong(why, why_bytes, path, g.why, "");
    gguf_close(&g);
    close(fd);
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    c->room = c->context;
    if (ok && (c->dim % c->heads || c->heads % c->kv_heads || c->dim / c->heads % 2))
        return wrong(why, why_bytes, path, "its heads do not divide its embedding_length, or its key/value heads its heads", "");
    return ok && take_vocab(path, c, why, why_bytes);
}

/* ---- the graph ---- */

/* Parameters of a block are called blk.N.NAME.weight. */
static weir_tensor *parameter(weir_graph *g, int block, const char *name, int64_t rows, int64_t columns)
{
    char full[64];
    if (block < 0)
        snprintf(full, sizeof full, "%s.weight", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s.weight", block, name);
    weir_param_opts opts = {.size = sizeof opts, .src = WEIR_HERE, .shape = {rows, columns}, .name = full, .frozen = true, .init = {0, 0, WEIR_INIT_ZERO}};
    return weir_param_at(g, WEIR_F32, &opts);
}

/* x times the weight [out, in]. */
static weir_tensor *product(weir_graph *g, weir_tensor *x, int block, const char *name, int64_t out, int64_t in)
{
    return weir_matmul(x, parameter(g, block, name, out, in), .trans_b = true);
}

static weir_tensor *norm(weir_graph *g, weir_tensor *x, int block, const char *name, const llama_config *c)
{
    return weir_rmsnorm_with(x, parameter(g, block, name, c->dim, 0), .eps = c->eps);
}

static weir_tensor *kept(weir_graph *g, const llama_config *c, int block, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", block, what);
    return weir_state(g, WEIR_F32, {1, c->room, c->dim / c->heads * c->kv_heads}, .name = name);
}

static weir_tensor *attention(weir_graph *g, weir_tensor *x, weir_tensor *position, int block, const llama_config *c)
{
    const int64_t width = (int64_t)(c->dim / c->heads) * c->kv_heads;
    weir_tensor *h = norm(g, x, block, "attn_norm", c), *keys = kept(g, c, block, "keys"), *values = kept(g, c, block, "values");
    weir_tensor *q = weir_rope(product(g, h, block, "attn_q", c->dim, c->dim), position, .heads = c->heads, .base = c->rope_base, .interleaved = true);
    weir_tensor *k = weir_rope(product(g, h, block, "attn_k", width, c->dim), position, .heads = c->kv_heads, .base = c->rope_base, .interleaved = true);
    weir_tensor *v = product(g, h, block, "attn_v", width, c->dim);
    weir_tensor *a = weir_attention_kept(q, k, v, keys, values, position, .heads = c->heads, .kv_heads = c->kv_heads);
    weir_state_append(keys, k, position);
    weir_state_append(values, v, position);
    return weir_add(x, product(g, a, block, "attn_output", c->dim, c->dim));
}

static weir_tensor *feed_forward(weir_graph *g, weir_tensor *x, int block, const llama_config *c)
{
    weir_tensor *h = norm(g, x, block, "ffn_norm", c);
    weir_tensor *gate = weir_silu(product(g, h, block, "ffn_gate", c->ffn, c->dim)), *up = product(g, h, block, "ffn_up", c->ffn, c->dim);
    return weir_add(x, product(g, weir_mul(gate, up), block, "ffn_down", c->dim, c->ffn));
}

weir_graph *llama_graph(const llama_config *c)
{
    weir_graph *g = weir_graph_new("llama");
    weir_tensor *token = weir_input(g, WEIR_I32, {1, 1}, .name = "token"), *position = weir_input(g, WEIR_I32, {0}, .name = "position");
    weir_tensor *table = parameter(g, -1, "token_embd", c->vocab, c->dim), *x = weir_embedding_with(token, table);
    for (int block = 0; block < c->layers; block++)
        x = feed_forward(g, attention(g, x, position, block, c), block, c);
    x = norm(g, x, -1, "output_norm", c);
    weir_tensor *logits = c->tied ? weir_matmul(x, table, .trans_b = true) : product(g, x, -1, "output", c->vocab, c->dim);
    if (c->logits)
        weir_fetch(logits, .name = "logits");
    weir_fetch(weir_argmax(logits), .name = "next");
    return g;
}
