/* apps/common/model/lm_folder.c: the config.json of a Hugging Face folder.
 *
 * A family is a row of defaults: they are those of the classes of the package transformers, which does not write a member that its
 * reader would fill in. A member that no class of these families reads changes nothing, and is not looked at. */
#define _GNU_SOURCE
#include "apps/common/model/lm_inside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct family {
    const char *type;
    int kv_heads;        /* 0: as many as heads */
    int head_dim;        /* 0: dim / heads */
    int context;
    double rope_base;
    bool tied;
    bool windowed;       /* "sliding_window" counts in all blocks; or */
    bool may_window;     /* in some, with "use_sliding_window" */
    bool qkv_bias;       /* always; or */
    bool attention_bias; /* "attention_bias" is read */
    bool mlp_bias;       /* "mlp_bias" is read */
    bool qk_norm;
    bool some_turn;      /* "no_rope_layers" is read */
} families[] = {
    {.type = "llama", .context = 2048, .rope_base = 10000, .attention_bias = true, .mlp_bias = true},
    {.type = "mistral", .kv_heads = 8, .context = 131072, .rope_base = 10000, .windowed = true},
    {.type = "qwen2", .kv_heads = 32, .context = 32768, .rope_base = 10000, .may_window = true, .qkv_bias = true},
    {.type = "qwen3", .kv_heads = 32, .head_dim = 128, .context = 32768, .rope_base = 10000, .may_window = true,
     .attention_bias = true, .qk_norm = true},
    {.type = "smollm3", .kv_heads = 4, .context = 32768, .rope_base = 2000000, .tied = true, .may_window = true,
     .attention_bias = true, .mlp_bias = true, .some_turn = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- members that families share ---- */

static void take_activation(struct lm_members *m, lm_config *c, const char *key, const char *otherwise)
{
    static const struct { const char *name; lm_activation is; } known[] = {
        {"silu", LM_SILU}, {"swish", LM_SILU}, {"gelu_new", LM_GELU_TANH}, {"gelu_pytorch_tanh", LM_GELU_TANH},
        {"gelu_fast", LM_GELU_TANH}, {"gelu", LM_GELU_ERF}, {"relu", LM_RELU},
    };
    const char *name = lm_text(m, key, otherwise);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name)) {
            c->activation = known[i].is;
            return;
        }
    lm_refuse(m, key, "silu, gelu_new, gelu_pytorch_tanh, gelu or relu");
}

/* A token, or a list of them. */
static void take_ends(struct lm_members *m, lm_config *c)
{
    const json_t *value = json_object_get(m->json, "eos_token_id");
    const size_t count = json_array_size(value);
    c->ends_count = 0;
    if (!json_is_array(value)) {
        c->ends[0] = lm_int(m, "eos_token_id", 0, -1);
        c->ends_count = c->ends[0] >= 0;
        return;
    }
    for (size_t i = 0; i < count && count <= LM_ENDS_MAX; i++) {
        const json_t *token = json_array_get(value, i);
        if (json_is_integer(token) && json_integer_value(token) >= 0 && json_integer_value(token) <= LM_SIZE_MAX)
            c->ends[c->ends_count++] = (int)json_integer_value(token);
    }
    if ((size_t)c->ends_count != count)
        lm_refuse(m, "eos_token_id", "a token, or a list of at most 16");
}

/* ---- rope ---- */

static void take_scaling(struct lm_members *rope, lm_config *c)
{
    const char *type = lm_text(rope, "rope_type", lm_text(rope, "type", "default"));
    const char *const key = json_object_get(rope->json, "rope_type") ? "rope_type" : "type";
    if (lm_real(rope, "partial_rotary_factor", 1) != 1)
        lm_refuse(rope, "partial_rotary_factor", "1");
    if (!strcmp(type, "default"))
        return;
    if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0) {
        lm_refuse(rope, key, "\"default\", \"linear\" or \"llama3\"");
        return;
    }
    c->rope_scaling.factor = lm_real(rope, "factor", 0);
    if (strcmp(type, "llama3") != 0)
        return;
    c->rope_scaling.low_freq_factor = lm_real(rope, "low_freq_factor", 0);
    c->rope_scaling.high_freq_factor = lm_real(rope, "high_freq_factor", 0);
    c->rope_scaling.original_max_position = lm_int(rope, "original_max_position_embeddings", 1, c->context);
    if (!rope->wrong && c->rope_scaling.low_freq_factor >= c->rope_scaling.high_freq_factor)
        lm_refuse(rope, "high_freq_factor", "a number above low_freq_factor");
}

/* "rope_parameters", or "rope_theta" and "rope_scaling" of older files. */
static void take_rope(struct lm_members *m, lm_config *c, double base)
{
    const json_t *newer = lm_object(m, "rope_parameters"), *older = lm_object(m, "rope_scaling");
    const char *key;
    json_t *value;
    struct lm_members rope = {newer ? newer : older, m->why, m->wrong};
    c->rope_base = lm_real(m, "rope_theta", base);
    if (lm_real(m, "partial_rotary_factor", 1) != 1)
        lm_refuse(m, "partial_rotary_factor", "1");
    if (!rope.json)
        return;
    json_object_foreach((json_t *)rope.json, key, value)
        if (json_is_object(value))
            lm_refuse(&rope, key, "one set of values for all blocks");
    if (newer)
        c->rope_base = lm_real(&rope, "rope_theta", c->rope_base);
    take_scaling(&rope, c);
    m->wrong |= rope.wrong;
}

/* ---- blocks ---- */

static const char *text_at(const json_t *list, int i)
{
    const char *text = json_string_value(json_array_get(list, (size_t)i));
    return text ? text : "";
}

/* "layer_types" says it for each block; without it the blocks from "max_window_layers" on have the window. */
static void take_windowed_blocks(struct lm_members *m, lm_config *c)
{
    const json_t *types = lm_list(m, "layer_types");
    const int first = lm_int(m, "max_window_layers", 0, 28);
    bool right = !types || json_array_size(types) == (size_t)c->layers;
    for (int i = 0; i < c->layers && right; i++) {
        c->layer[i].windowed = types ? !strcmp(text_at(types, i), "sliding_attention") : c->window && i >= first;
        right = !types || (c->layer[i].windowed && c->window) || !strcmp(text_at(types, i), "full_attention");
    }
    if (!right)
        lm_refuse(m, "layer_types", "\"full_attention\" or, with a window, \"sliding_attention\" for each block");
}

static void take_windows(struct lm_members *m, lm_config *c, const struct family *f)
{
    const bool null = json_is_null(json_object_get(m->json, "sliding_window"));
    if (f->windowed || (f->may_window && lm_flag(m, "use_sliding_window", false)))
        c->window = null ? 0 : lm_int(m, "sliding_window", 1, 4096);
    if (f->may_window)
        take_windowed_blocks(m, c);
    for (int i = 0; i < c->layers && f->windowed; i++)
        c->layer[i].windowed = c->window;
}

/* Of SmolLM3: a 0 for each block that does not turn; else each "no_rope_layer_interval"th. */
static void take_turns(struct lm_members *m, lm_config *c, const struct family *f)
{
    const json_t *list = f->some_turn ? lm_list(m, "no_rope_layers") : NULL;
    const int interval = f->some_turn ? lm_int(m, "no_rope_layer_interval", 1, 4) : 0;
    for (int i = 0; i < c->layers; i++)
        c->layer[i].turns = list ? json_integer_value(json_array_get(list, (size_t)i)) != 0 : !interval || (i + 1) % interval;
    if (list && json_array_size(list) != (size_t)c->layers)
        lm_refuse(m, "no_rope_layers", "a number for each block");
}

/* ---- families ---- */

static int take_layers(struct lm_members *m, const char *key)
{
    const int layers = lm_int(m, key, 1, LM_NEEDED);
    if (layers > LM_LAYERS_MAX)
        lm_refuse(m, key, "at most 512");
    return layers > LM_LAYERS_MAX ? 1 : layers;
}

static void take_llama(struct lm_members *m, lm_config *c, const struct family *f)
{
    c->layers = take_layers(m, "num_hidden_layers");
    c->dim = lm_int(m, "hidden_size", 1, LM_NEEDED);
    c->heads = lm_int(m, "num_attention_heads", 1, LM_NEEDED);
    const bool null = json_is_null(json_object_get(m->json, "num_key_value_heads"));
    c->kv_heads = lm_int(m, "num_key_value_heads", 1, f->kv_heads && !null ? f->kv_heads : c->heads);
    c->head_dim = lm_int(m, "head_dim", 1, f->head_dim ? f->head_dim : c->heads > 0 ? c->dim / c->heads : 0);
    c->rotary_dim = c->head_dim;
    c->ffn = lm_int(m, "intermediate_size", 1, LM_NEEDED);
    c->vocab = lm_int(m, "vocab_size", 1, LM_NEEDED);
    c->context = lm_int(m, "max_position_embeddings", 1, f->context);
    c->eps = lm_real(m, "rms_norm_eps", 1e-6);
    c->tied = lm_flag(m, "tie_word_embeddings", f->tied);
    c->o_bias = f->attention_bias && lm_flag(m, "attention_bias", false);
    c->qkv_bias = f->qkv_bias || c->o_bias;
    c->ffn_bias = f->mlp_bias && lm_flag(m, "mlp_bias", false);
    c->qk_norm = f->qk_norm;
    c->gated = true;
    c->names = LM_NAMES_LLAMA;
    take_activation(m, c, "hidden_act", "silu");
    take_rope(m, c, f->rope_base);
    take_windows(m, c, f);
    take_turns(m, c, f);
}

static void only(struct lm_members *m, const char *key, bool value)
{
    if (lm_flag(m, key, value) != value)
        lm_refuse(m, key, value ? "true" : "false");
}

static void take_gpt2(struct lm_members *m, lm_config *c)
{
    c->layers = take_layers(m, "n_layer");
    c->dim = lm_int(m, "n_embd", 1, LM_NEEDED);
    c->heads = lm_int(m, "n_head", 1, LM_NEEDED);
    c->kv_heads = c->heads;
    c->head_dim = c->heads > 0 ? c->dim / c->heads : 0;
    c->ffn = lm_int(m, "n_inner", 1, c->dim > 0 && c->dim <= LM_SIZE_MAX / 4 ? 4 * c->dim : c->dim);
    c->vocab = lm_int(m, "vocab_size", 1, LM_NEEDED);
    c->context = lm_int(m, "n_positions", 1, 1024);
    c->eps = lm_real(m, "layer_norm_epsilon", 1e-5);
    c->tied = lm_flag(m, "tie_word_embeddings", true);
    c->learned = c->centred = c->joined = c->in_first = c->qkv_bias = c->o_bias = c->ffn_bias = true;
    c->names = LM_NAMES_GPT2;
    take_activation(m, c, "activation_function", "gelu_new");
    only(m, "scale_attn_weights", true);
    only(m, "scale_attn_by_inverse_layer_idx", false);
    only(m, "add_cross_attention", false);
}

static const char known_types[] = "gpt2, llama, mistral, qwen2, qwen3 or smollm3";

static void take_model(struct lm_members *m, lm_config *c)
{
    const char *type = lm_text(m, "model_type", NULL);
    if (json_object_get(m->json, "quantization_config") && !json_is_null(json_object_get(m->json, "quantization_config")))
        lm_refuse(m, "quantization_config", "none: weights of f32, f16 or bf16");
    c->begin = lm_int(m, "bos_token_id", 0, -1);
    take_ends(m, c);
    if (!strcmp(type, "gpt2")) {
        take_gpt2(m, c);
        return;
    }
    for (int i = 0; i < FAMILIES; i++)
        if (!strcmp(type, families[i].type)) {
            take_llama(m, c, &families[i]);
            return;
        }
    lm_refuse(m, "model_type", known_types);
}

/* ---- the folder ---- */

static bool there(const char *folder, const char *name, char path[LM_PATH_BYTES])
{
    return snprintf(path, LM_PATH_BYTES, "%s/%s", folder, name) < LM_PATH_BYTES && !access(path, F_OK);
}

static bool find_weights(const char *folder, lm_config *c, const struct lm_why *why)
{
    char path[LM_PATH_BYTES];
    if (there(folder, "model.safetensors", c->weights) || there(folder, "model.safetensors.index.json", c->weights))
        return true;
    if (there(folder, "pytorch_model.bin", path) || there(folder, "pytorch_model.bin.index.json", path))
        return lm_wrong(why, "its weights are pytorch_model.bin, which only Python can read; save it as safetensors (save_pretrained() of "
                             "transformers does)");
    return lm_wrong(why, "has neither model.safetensors nor model.safetensors.index.json");
}

/* Tokens of generation_config.json come before those of config.json. */
static bool take_generation(const char *folder, lm_config *c, const struct lm_why *outer)
{
    char path[LM_PATH_BYTES];
    const struct lm_why why = {path, outer->text, outer->bytes};
    if (!there(folder, "generation_config.json", path))
        return true;
    json_t *json = lm_json_read(&why);
    struct lm_members m = {.json = json, .why = &why, .wrong = !json};
    const json_t *ends = json_object_get(json, "eos_token_id");
    if (ends && !json_is_null(ends))
        take_ends(&m, c);
    c->begin = lm_int(&m, "bos_token_id", 0, c->begin);
    json_decref(json);
    return !m.wrong;
}

bool lm_read_config(lm_config *c, const struct lm_why *why)
{
    json_t *json = lm_json_read(why);
    struct lm_members m = {.json = json, .why = why, .wrong = !json};
    if (json)
        take_model(&m, c);
    json_decref(json);
    return !m.wrong && lm_sizes_fit(c, why);
}

bool lm_read_folder(const char *folder, lm_config *c, struct lm_why *why)
{
    char path[LM_PATH_BYTES];
    const struct lm_why of_config = {path, why->text, why->bytes};
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
        return lm_wrong(why, "is too long a path");
    return lm_read_config(c, &of_config) && take_generation(folder, c, why) && find_weights(folder, c, why);
}
