/* apps/weir/quantize_folder.c: a Hugging Face folder as the source: the keys that lm_gguf.c and llama.cpp read, and names and orders of
 * rows as llama.cpp's converter makes them.
 *
 *     llama, mistral    architecture "llama", whose rope turns columns 2i and 2i + 1: the rows of q and k change places
 *     qwen2, qwen3      as they are
 *     gpt2              weights of blocks are turned, from [in, out] to [out, in]
 *
 * A GGUF file says less than a config.json. A setting that it cannot say is refused.
 */
#include "apps/weir/quantize.h"

#include "apps/common/model/lm_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a GGUF file can say ---- */

/* NULL and a sentence: none is. */
static const char *architecture_of(const struct quantize *q)
{
    const lm_config *c = &q->config;
    bool turns = true, windowed = true;
    for (int i = 0; i < c->layers && !c->learned; i++) {
        turns &= c->layer[i].turns;
        windowed &= c->layer[i].windowed || !c->window;
    }
    const char *cannot = NULL;
    if (!turns)
        cannot = "blocks without rope";
    else if (!windowed)
        cannot = "a window in some blocks alone";
    else if (c->activation != (c->learned ? LM_GELU_TANH : LM_SILU))
        cannot = c->learned ? "another activation than GELU" : "another activation than SiLU";
    else if (c->rope_scaling.low_freq_factor > 0 && (c->rope_scaling.low_freq_factor != 1 || c->rope_scaling.high_freq_factor != 4 ||
                                                     c->rope_scaling.original_max_position != 8192))
        cannot = "rope scaling of llama3 with other numbers than 1, 4 and 8192";
    if (cannot)
        tensors_failed("%s: its config.json has %s, which weir cannot write in a GGUF file", q->from, cannot);
    return cannot ? NULL : c->learned ? "gpt2" : c->qk_norm ? "qwen3" : c->qkv_bias && !c->o_bias ? "qwen2" : "llama";
}

/* ---- keys ---- */

static void put_u32(struct quantize *q, const char *architecture, const char *key, int value)
{
    char full[80];
    snprintf(full, sizeof full, "%s.%s", architecture, key);
    gguf_write_u32(&q->to, full, (uint32_t)value);
}

static void put_f32(struct quantize *q, const char *architecture, const char *key, double value)
{
    char full[80];
    snprintf(full, sizeof full, "%s.%s", architecture, key);
    gguf_write_f32(&q->to, full, (float)value);
}

static void put_rope(struct quantize *q, const char *architecture)
{
    const lm_config *c = &q->config;
    char full[80];
    put_f32(q, architecture, "rope.freq_base", c->rope_base);
    put_u32(q, architecture, "rope.dimension_count", c->rotary_dim);
    if (c->rope_scaling.factor == 0 || c->rope_scaling.low_freq_factor > 0)
        return;
    snprintf(full, sizeof full, "%s.rope.scaling.type", architecture);
    gguf_write_text(&q->to, full, "linear");
    put_f32(q, architecture, "rope.scaling.factor", c->rope_scaling.factor);
}

/* The folder's own name. */
static void put_name(struct quantize *q)
{
    char *path = realpath(q->from, NULL);
    if (path)
        gguf_write_text(&q->to, "general.name", strrchr(path, '/') + 1);
    free(path);
}

static void put_sizes(struct quantize *q, const char *architecture)
{
    const lm_config *c = &q->config;
    gguf_write_text(&q->to, "general.architecture", architecture);
    gguf_write_text(&q->to, "general.type", "model");
    put_name(q);
    quantize_put_version(q);
    put_u32(q, architecture, "vocab_size", c->vocab);
    put_u32(q, architecture, "context_length", c->context);
    put_u32(q, architecture, "embedding_length", c->dim);
    put_u32(q, architecture, "block_count", c->layers);
    put_u32(q, architecture, "feed_forward_length", c->ffn);
    put_u32(q, architecture, "attention.head_count", c->heads);
    put_u32(q, architecture, "attention.head_count_kv", c->kv_heads);
    put_u32(q, architecture, "attention.key_length", c->head_dim);
    put_u32(q, architecture, "attention.value_length", c->head_dim);
    put_f32(q, architecture, c->centred ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c->eps);
    if (c->window)
        put_u32(q, architecture, "attention.sliding_window", c->window);
    if (!c->learned)
        put_rope(q, architecture);
}

/* ---- tensors ---- */

static bool add(struct quantize *q, const lm_config *to, lm_part part, int block, bool bias)
{
    char name[LM_NAME_BYTES], theirs[LM_NAME_BYTES];
    weir_shape shape;
    if (!lm_shape(to, part, bias, &shape))
        return true;
    const char *kept = pool_text(&q->pool, "%s", lm_name(to, part, block, bias, name));
    struct quantize_tensor *t = kept ? quantize_add(q, kept, &shape, weir_checkpoint_find(q->file, lm_name(&q->config, part, block, bias, theirs)))
                                     : NULL;
    if (!t)
        return kept ? false : tensors_failed("no memory for tensor %s", name);
    t->turned = shape.rank == 2 && lm_in_first(&q->config, part);
    t->head = to->interleaved && (part == LM_Q || part == LM_K) ? to->head_dim : 0;
    return true;
}

static bool add_parts(struct quantize *q, const lm_config *to, int first, int end, int block)
{
    bool ok = true;
    for (int part = first; part < end; part++)
        for (int bias = 0; bias < 2 && ok; bias++)
            ok = add(q, to, (lm_part)part, block, bias);
    return ok;
}

/* Each frequency is divided by one of these. */
static bool add_frequencies(struct quantize *q)
{
    const lm_config *c = &q->config;
    const weir_shape shape = {1, {c->rotary_dim / 2}};
    if (c->rope_scaling.low_freq_factor == 0)
        return true;
    float *value = POOL_NEW(&q->pool, float, shape.dim[0]);
    struct quantize_tensor *t = value ? quantize_add(q, "rope_freqs.weight", &shape, NULL) : NULL;
    for (int i = 0; i < shape.dim[0] && t; i++)
        value[i] = (float)lm_rope_divisor(c, &c->rope_scaling, i);
    if (t)
        t->value = value;
    return t || tensors_failed("no memory for rope_freqs.weight");
}

static bool add_tensors(struct quantize *q, const char *architecture)
{
    lm_config *to = pool_copy(&q->pool, &q->config, sizeof *to);
    if (!to)
        return tensors_failed("no memory");
    to->names = LM_NAMES_GGUF;
    to->prefix = "";
    to->in_first = false;
    to->interleaved = !strcmp(architecture, "llama");
    bool ok = add_parts(q, to, 0, LM_BLOCK_PARTS, -1) && add_frequencies(q);
    for (int block = 0; block < to->layers && ok; block++)
        ok = add_parts(q, to, LM_BLOCK_PARTS, LM_PARTS, block);
    return ok;
}

bool quantize_from_folder(struct quantize *q)
{
    char why[1024];
    if (!lm_read(q->from, &q->config, why, sizeof why))
        return tensors_failed("%s", why);
    const char *architecture = architecture_of(q);
    if (!architecture)
        return false;
    if (!(q->file = weir_checkpoint_open(q->config.weights)))
        return tensors_failed("%s", weir_error());
    put_sizes(q, architecture);
    return add_tensors(q, architecture) && quantize_tokens(q);
}
