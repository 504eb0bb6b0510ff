/* apps/common/model/lm_gguf.c: the metadata of a GGUF file.
 *
 *     general.architecture = "qwen2"     then keys that begin with it: qwen2.block_count, ...
 *
 * Whether layers have biases is not in the metadata but follows from the tensors. Llama 3's frequencies are a tensor,
 * rope_freqs.weight: what each is divided by. weir_rope() computes them from two factors, so those that give the tensor's values are
 * looked for. */
#include "apps/common/model/lm_inside.h"

#include "graph/base/gguf.h"
#include "graph/base/reading.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct architecture {
    const char *name;
    bool interleaved, gpt2, qk_norm;
} architectures[] = {{"llama", true, false, false}, {"qwen2", false, false, false}, {"qwen3", false, false, true}, {"gpt2", false, true, false}};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures, KEY_BYTES = 80, NUMBERS_MAX = 24 };

/* A key of the metadata, and what it fills. A key that begins with a dot follows the name of the architecture. */
struct number {
    const char *key;
    int *to;       /* a whole number, from `least` on; or */
    int least;
    double *real;  /* a number above 0 */
    bool optional;
};

static bool take_number(struct gguf *g, const struct gguf_value *value, const struct number *n)
{
    uint32_t whole = 0;
    float real = 0;
    if (value->array || !gguf_begin(g, value))
        return false;
    if (n->real)
        return value->type == GGUF_F32 && gguf_next_f32(g, &real) && isfinite(real) && (*n->real = (double)real) > 0;
    if ((value->type != GGUF_U32 && value->type != GGUF_I32) || !gguf_next_u32(g, &whole) || whole > LM_SIZE_MAX || (int)whole < n->least)
        return false;
    *n->to = (int)whole;
    return true;
}

static bool take_numbers(struct gguf *g, const char *architecture, const struct number *numbers, int count, const struct lm_why *why)
{
    char key[NUMBERS_MAX][KEY_BYTES];
    struct gguf_value wanted[NUMBERS_MAX] = {{0}};
    for (int i = 0; i < count; i++) {
        snprintf(key[i], KEY_BYTES, "%s%s", *numbers[i].key == '.' ? architecture : "", numbers[i].key);
        wanted[i].key = key[i];
    }
    if (!gguf_find(g, wanted, count))
        return lm_wrong(why, "%s", g->why);
    for (int i = 0; i < count; i++)
        if (wanted[i].present ? !take_number(g, &wanted[i], &numbers[i]) : !numbers[i].optional)
            return lm_wrong(why, "its metadata has no right value of %s", key[i]);
    return true;
}

/* Values of the metadata that are not members of lm_config. */
struct said {
    int experts, key_length, value_length, end, turn_end;
    double scaling_factor, scale, logit_scale;
    char scaling[16];
};

static bool take_sizes(struct gguf *g, const struct architecture *a, lm_config *c, struct said *s, const struct lm_why *why)
{
    const struct number numbers[] = {
        {".block_count", &c->layers, 1, NULL, false},
        {".embedding_length", &c->dim, 1, NULL, false},
        {".attention.head_count", &c->heads, 1, NULL, false},
        {".attention.head_count_kv", &c->kv_heads, 1, NULL, true},
        {".attention.key_length", &s->key_length, 1, NULL, true},
        {".attention.value_length", &s->value_length, 1, NULL, true},
        {".attention.sliding_window", &c->window, 0, NULL, true},
        {".attention.scale", NULL, 0, &s->scale, true},
        {".logit_scale", NULL, 0, &s->logit_scale, true},
        {".feed_forward_length", &c->ffn, 1, NULL, false},
        {".context_length", &c->context, 1, NULL, false},
        {a->gpt2 ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon", NULL, 0, &c->eps, false},
        {".rope.freq_base", NULL, 0, &c->rope_base, true},
        {".rope.dimension_count", &c->rotary_dim, 2, NULL, true},
        {".rope.scaling.factor", NULL, 0, &s->scaling_factor, true},
        {".expert_count", &s->experts, 0, NULL, true},
        {"tokenizer.ggml.bos_token_id", &c->begin, 0, NULL, true},
        {"tokenizer.ggml.eos_token_id", &s->end, 0, NULL, true},
        {"tokenizer.ggml.eot_token_id", &s->turn_end, 0, NULL, true},
    };
    return take_numbers(g, a->name, numbers, sizeof numbers / sizeof *numbers, why);
}

/* Reads a text of the metadata to `text`; "" if it is not there. */
static bool take_text(struct gguf *g, const char *architecture, const char *key, char *text, size_t bytes, const struct lm_why *why)
{
    char full[KEY_BYTES];
    uint64_t length;
    snprintf(full, sizeof full, "%s%s", architecture, key);
    struct gguf_value value = {.key = full};
    if (!gguf_find(g, &value, 1))
        return lm_wrong(why, "%s", g->why);
    *text = '\0';
    if (!value.present)
        return true;
    if (value.type != GGUF_TEXT || value.array || !gguf_begin(g, &value) || !gguf_next_text(g, &length))
        return lm_wrong(why, "its metadata has no right value of %s", full);
    snprintf(text, bytes, "%s", g->text);
    return true;
}

static void add_end(lm_config *c, int token)
{
    if (token >= 0 && !lm_is_end(c, token))
        c->ends[c->ends_count++] = token;
}

static bool settle(lm_config *c, const struct said *s, const struct lm_why *why)
{
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    c->head_dim = s->key_length ? s->key_length : c->dim / c->heads;
    c->rotary_dim = c->rotary_dim ? c->rotary_dim : c->head_dim;
    for (int i = 0; i < c->layers && i < LM_LAYERS_MAX; i++)
        c->layer[i].turns = !c->learned, c->layer[i].windowed = c->window;
    add_end(c, s->end);
    add_end(c, s->turn_end);
    if (c->layers > LM_LAYERS_MAX)
        return lm_wrong(why, "it has %d blocks; at most %d are supported", c->layers, LM_LAYERS_MAX);
    if (s->experts)
        return lm_wrong(why, "it has %d experts; models with experts are not supported", s->experts);
    if (s->value_length && s->value_length != c->head_dim)
        return lm_wrong(why, "its keys have %d columns and its values %d; supported are as many", c->head_dim, s->value_length);
    if (s->scale != 0 || s->logit_scale != 0)
        return lm_wrong(why, "its metadata has a scale of %s, which is not supported", s->scale != 0 ? "attention" : "logits");
    if (!*s->scaling || !strcmp(s->scaling, "none"))
        return lm_sizes_fit(c, why);
    if (strcmp(s->scaling, "linear") != 0 || s->scaling_factor == 0)
        return lm_wrong(why, "its rope.scaling.type is %s; linear with a factor is supported", s->scaling);
    c->rope_scaling.factor = s->scaling_factor;
    return lm_sizes_fit(c, why);
}

static bool take_architecture(struct gguf *g, lm_config *c, const struct architecture **found, const struct lm_why *why)
{
    char name[32];
    if (!take_text(g, "general", ".architecture", name, sizeof name, why))
        return false;
    for (int i = 0; i < ARCHITECTURES; i++)
        if (!strcmp(name, architectures[i].name)) {
            const struct architecture *a = *found = &architectures[i];
            c->interleaved = a->interleaved;
            c->learned = c->centred = c->joined = a->gpt2;
            c->gated = !a->gpt2;
            c->activation = a->gpt2 ? LM_GELU_TANH : LM_SILU;
            c->qk_norm = a->qk_norm;
            return true;
        }
    return lm_wrong(why, "its architecture is \"%.30s\"; supported are llama, qwen2, qwen3 and gpt2", name);
}

/* ---- what the tensors say ---- */

static bool has(weir_checkpoint *file, const char *name)
{
    return weir_checkpoint_find(file, name) != NULL;
}

static void take_tensors(lm_config *c, weir_checkpoint *file)
{
    const weir_checkpoint_tensor *tokens = weir_checkpoint_find(file, "token_embd.weight");
    const int64_t rows = tokens && tokens->shape.rank == 2 ? tokens->shape.dim[0] : 0;
    c->vocab = rows <= LM_SIZE_MAX ? (int)rows : 0;
    c->tied = !has(file, "output.weight");
    c->qkv_bias = has(file, c->joined ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias");
    c->o_bias = has(file, "blk.0.attn_output.bias");
    c->ffn_bias = has(file, "blk.0.ffn_up.bias");
}

double lm_rope_divisor(const lm_config *c, const weir_rope_scaling *s, int i)
{
    const double pi = 3.14159265358979323846, wave = 2 * pi * pow(c->rope_base, 2.0 * i / c->rotary_dim);
    const double turns = (double)s->original_max_position / wave;
    const double smooth = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return smooth <= 0 ? s->factor : smooth >= 1 ? 1 : 1 / ((1 - smooth) / s->factor + smooth);
}

static bool gives(const lm_config *c, const weir_rope_scaling *s, const float *factor)
{
    for (int i = 0; i < c->rotary_dim / 2; i++)
        if (fabs(lm_rope_divisor(c, s, i) / (double)factor[i] - 1) > 1e-4)
            return false;
    return true;
}

static bool take_frequencies(lm_config *c, weir_checkpoint *file, const struct lm_why *why)
{
    const weir_checkpoint_tensor *t = weir_checkpoint_find(file, "rope_freqs.weight");
    const int count = c->rotary_dim / 2;
    if (!t || c->learned)
        return true;
    float *factor = t->shape.rank == 1 && t->shape.dim[0] == count ? calloc((size_t)count, sizeof *factor) : NULL;
    weir_array value = {factor, WEIR_F32, {1, {count}}};
    const bool read = factor && !weir_checkpoint_read(file, t, 0, NULL, &value);
    const weir_rope_scaling llama3 = {read ? (double)factor[count - 1] : 1, 1, 4, 8192};
    const bool same = read && gives(c, &llama3, factor);
    free(factor);
    if (!same)
        return lm_wrong(why, "tensor rope_freqs.weight: it is not the [%d] of Llama 3, with the factors 1 and 4 and 8192 positions", count);
    c->rope_scaling = llama3;
    return true;
}

bool lm_read_gguf(const char *path, lm_config *c, struct lm_why *why)
{
    struct gguf g;
    const char *fault;
    const int fd = reading_open(path, &fault);
    struct said s = {.end = -1, .turn_end = -1};
    const struct architecture *a = NULL;
    if (fd < 0)
        return lm_wrong(why, "cannot be read: %s", fault);
    snprintf(c->weights, sizeof c->weights, "%s", path);
    c->names = LM_NAMES_GGUF;
    bool ok = (gguf_open(&g, fd) || lm_wrong(why, "%s", g.why)) && take_architecture(&g, c, &a, why) && take_sizes(&g, a, c, &s, why) &&
              take_text(&g, a->name, ".rope.scaling.type", s.scaling, sizeof s.scaling, why);
    gguf_close(&g);
    close(fd);
    weir_checkpoint *file = ok ? weir_checkpoint_open(path) : NULL;
    if (ok && !file)
        snprintf(why->text, why->bytes, "%s", weir_error());
    ok = file && (take_tensors(c, file), settle(c, &s, why)) && take_frequencies(c, file, why);
    weir_checkpoint_close(file);
    return ok;
}
