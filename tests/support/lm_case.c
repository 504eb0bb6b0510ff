/* tests/support/lm_case.c: see the header. */
#include "tests/support/lm_case.h"

#include "tests/support/folder.h"
#include "tests/support/gguf_file.h"
#include "tests/support/lm_reference.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- models ---- */

#define SIZES_OF(heads, kept) "\"hidden_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kept ", " \
                              "\"intermediate_size\": 12, \"vocab_size\": 32, \"max_position_embeddings\": 16"
#define SIZES SIZES_OF(2, 1)
#define SMALL_OF(heads_of_q) .layers = 2, .dim = 8, .heads = heads_of_q, .context = 16
#define SMALL SMALL_OF(2)
#define LLAMA_OF(heads_of_q, kept_heads) SMALL_OF(heads_of_q), .prefix = "model.", .vocab = 32, .kv_heads = kept_heads, .ffn = 12, .gated = true
#define LLAMA LLAMA_OF(2, 1)
#define GGUF SMALL, .names = 2, .prefix = "", .vocab = 256, .ffn = 12, .head_dim = 4, .rotary_dim = 4, .rope_base = 100, .eps = 1e-5
#define GPT2 .kv_heads = 2, .learned = true, .centred = true, .joined = true, .qkv_bias = true, .o_bias = true, .ffn_bias = true, \
             .activation = LM_GELU_TANH
#define GPT2_FOLDER SMALL, GPT2, .names = 1, .prefix = "transformer.", .vocab = 32, .head_dim = 4, .ffn = 32, .eps = 1e-5, .in_first = true
#define GPT2_SIZES "\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2, \"n_positions\": 16, \"vocab_size\": 32"
#define HEADS(columns) .head_dim = columns, .rotary_dim = columns
#define TURN .layer = {{true, false}, {true, false}}

const struct lm_case lm_cases[] = {
    {"llama", "{\"model_type\": \"llama\", " SIZES ", \"rms_norm_eps\": 1e-5, \"eos_token_id\": 2, \"bos_token_id\": 1}", NULL,
     {LLAMA, HEADS(4), TURN, .eps = 1e-5, .rope_base = 10000}},
    {"llama3", "{\"model_type\": \"llama\", " SIZES ", \"tie_word_embeddings\": true, \"rope_theta\": 100, \"rope_scaling\": {\"rope_type\": "
     "\"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}", NULL,
     {LLAMA, HEADS(4), TURN, .eps = 1e-6, .tied = true, .rope_base = 100, .rope_scaling = {8, 1, 4, 64}}},
    {"linear", "{\"model_type\": \"llama\", " SIZES ", \"head_dim\": 6, \"attention_bias\": true, \"mlp_bias\": true, \"hidden_act\": \"gelu\", "
     "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 50}}", NULL,
     {LLAMA, HEADS(6), TURN, .eps = 1e-6, .qkv_bias = true, .o_bias = true, .ffn_bias = true, .activation = LM_GELU_ERF,
      .rope_base = 50, .rope_scaling = {.factor = 2}}},
    {"mistral", "{\"model_type\": \"mistral\", " SIZES ", \"sliding_window\": 5}", NULL,
     {LLAMA, HEADS(4), .eps = 1e-6, .rope_base = 10000, .window = 5, .layer = {{true, true}, {true, true}}}},
    {"qwen2", "{\"model_type\": \"qwen2\", " SIZES ", \"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 1}", NULL,
     {LLAMA, HEADS(4), .eps = 1e-6, .rope_base = 10000, .window = 4, .qkv_bias = true, .layer = {{true, false}, {true, true}}}},
    {"qwen3", "{\"model_type\": \"qwen3\", " SIZES ", \"head_dim\": 6, \"sliding_window\": 4, \"eos_token_id\": [2, 7]}", NULL,
     {LLAMA, HEADS(6), TURN, .eps = 1e-6, .rope_base = 10000, .qk_norm = true}},
    {"smollm3", "{\"model_type\": \"smollm3\", " SIZES_OF(6, 3) ", \"head_dim\": 4, \"no_rope_layers\": [0, 1]}", NULL,
     {LLAMA_OF(6, 3), HEADS(4), .eps = 1e-6, .tied = true, .rope_base = 2000000, .layer = {{false, false}, {true, false}}}},
    {"gpt2", "{" GPT2_SIZES "}", NULL, {GPT2_FOLDER, .tied = true}},
    {"gpt2-untied", "{" GPT2_SIZES ", \"tie_word_embeddings\": false}", NULL, {GPT2_FOLDER}},
    {"llama.gguf", NULL, "llama", {GGUF, TURN, .kv_heads = 1, .gated = true, .interleaved = true, .tied = true}},
    {"qwen2.gguf", NULL, "qwen2", {GGUF, TURN, .kv_heads = 1, .gated = true, .qkv_bias = true}},
    {"qwen3.gguf", NULL, "qwen3", {GGUF, TURN, .kv_heads = 1, .gated = true, .qk_norm = true}},
    {"gpt2.gguf", NULL, "gpt2", {GGUF, GPT2, .tied = true}},
};
const int lm_case_count = sizeof lm_cases / sizeof *lm_cases;

const struct lm_case *lm_case_named(const char *name)
{
    for (int i = 0; i < lm_case_count; i++)
        if (!strcmp(lm_cases[i].name, name))
            return &lm_cases[i];
    cr_assert_fail("no case %s", name);
    return NULL;
}

/* ---- GGUF ---- */

enum { UINT = 4, FLOAT = 6, TEXT = 8, ARRAY = 9 }; /* types of metadata */

struct keys {
    struct gguf_file *file;
    const char *prefix, *without;
};

static void begin_key(const struct keys *k, const char *key)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", *key == '.' ? k->prefix : "", key);
    if (k->without && !strcmp(full, k->without))
        snprintf(full, sizeof full, "not.%s", key);
    gguf_file_text(k->file, full);
}

static void put_u32(const struct keys *k, const char *key, int value)
{
    begin_key(k, key), gguf_file_u32(k->file, UINT), gguf_file_u32(k->file, (uint32_t)value);
}

static void put_f32(const struct keys *k, const char *key, double value)
{
    const float real = (float)value;
    begin_key(k, key), gguf_file_u32(k->file, FLOAT), gguf_file_bytes(k->file, &real, sizeof real);
}

static void put_text(const struct keys *k, const char *key, const char *value)
{
    begin_key(k, key), gguf_file_u32(k->file, TEXT), gguf_file_text(k->file, value);
}

static void put_array(const struct keys *k, const char *key, uint32_t type, uint64_t count)
{
    begin_key(k, key), gguf_file_u32(k->file, ARRAY), gguf_file_u32(k->file, type), gguf_file_u64(k->file, count);
}

/* The token of a byte, as GPT-2 writes bytes: those that are printed are themselves, others are counted from U+0100 on. */
static const char *byte_token(int byte, char token[3])
{
    int c = byte, next = 0x100;
    for (int b = 0; b <= byte; b++) {
        const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        c = shown ? b : next++;
    }
    memcpy(token, (char[3]){c < 0x80 ? (char)c : (char)(0xC0 | c >> 6), c < 0x80 ? 0 : (char)(0x80 | (c & 63)), 0}, 3);
    return token;
}

/* Two bytes that are no UTF-8 are the tokens of chats. */
static void put_tokens(const struct keys *k)
{
    enum { BYTES = 254, ALL = 256, NORMAL = 1, CONTROL = 3 };
    char token[3];
    put_text(k, "tokenizer.ggml.model", "gpt2");
    put_text(k, "tokenizer.ggml.pre", "gpt-2");
    put_array(k, "tokenizer.ggml.tokens", TEXT, ALL);
    for (int byte = 0; byte < BYTES; byte++)
        gguf_file_text(k->file, byte_token(byte, token));
    gguf_file_text(k->file, "<|im_start|>"), gguf_file_text(k->file, "<|im_end|>");
    put_array(k, "tokenizer.ggml.merges", TEXT, 0);
    put_array(k, "tokenizer.ggml.token_type", 5, ALL);
    for (int i = 0; i < ALL; i++)
        gguf_file_u32(k->file, i < BYTES ? NORMAL : CONTROL);
}

const char *lm_case_gguf(const struct lm_case *of, const char *without)
{
    static struct gguf_file f;
    const lm_config *c = &of->c;
    const struct keys k = {&f, of->architecture, without};
    gguf_file_begin(&f, (uint64_t)lm_count_weights(c), 15);
    put_text(&k, "general.architecture", of->architecture);
    put_u32(&k, ".block_count", c->layers);
    put_u32(&k, ".embedding_length", c->dim);
    put_u32(&k, ".attention.head_count", c->heads);
    put_u32(&k, ".attention.head_count_kv", c->kv_heads);
    put_u32(&k, ".feed_forward_length", c->ffn);
    put_u32(&k, ".context_length", c->context);
    put_f32(&k, c->centred ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon", c->eps);
    put_f32(&k, ".rope.freq_base", c->rope_base);
    put_tokens(&k); /* five */
    put_text(&k, "tokenizer.chat_template", "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}");
    lm_put_weights(c, &f);
    const char *path = folder_path("%s", of->name);
    folder_write(path, f.bytes, f.count);
    return path;
}

/* ---- folders ---- */

/* A tokenizer of bytes. */
static void write_tokenizer(const char *path)
{
    FILE *file = fopen(path, "w");
    char token[3];
    cr_assert(file);
    fputs("{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, \"model\": {\"type\": \"BPE\", "
          "\"merges\": [], \"vocab\": {", file);
    for (int byte = 0; byte < 256; byte++) {
        byte_token(byte, token);
        fprintf(file, "%s\"%s%s\": %d", byte ? ", " : "", *token == '"' || *token == '\\' ? "\\" : "", token, byte);
    }
    fputs("}}}", file);
    cr_assert_eq(fclose(file), 0);
}

const char *lm_case_make(const struct lm_case *of)
{
    const char *path = folder_path("%s", of->name);
    char weights[LM_PATH_BYTES];
    if (!of->json)
        return lm_case_gguf(of, NULL);
    mkdir(path, 0777);
    folder_write(folder_path("%s/config.json", of->name), of->json, strlen(of->json));
    write_tokenizer(folder_path("%s/tokenizer.json", of->name));
    snprintf(weights, sizeof weights, "%s/model.safetensors", path);
    lm_write_weights(&of->c, weights);
    return path;
}

/* ---- sessions ---- */

void lm_run_open(struct lm_run *r, const char *path, int chunk)
{
    char why[1024] = "";
    cr_assert(lm_read(path, &r->c, why, sizeof why), "%s", why);
    r->c.chunk = chunk;
    r->c.stored = r->c.f32_activations = !r->loaded;
    r->c.tp = r->tp;
    weir_graph *g = lm_graph(&r->c);
    r->plan = weir_compile(g);
    cr_assert(r->plan, "%s: %s", path, weir_error());
    weir_graph_free(g);
    r->session = weir_session_open(r->plan, .workers = 1, .cluster = {.alone = true}, .weights = lm_mapped(&r->c));
    cr_assert(r->session, "%s", weir_error());
    cr_assert_eq(lm_load(r->session, &r->c), WEIR_OK, "%s", weir_error());
}

void lm_run_close(struct lm_run *r)
{
    weir_session_close(r->session);
    weir_plan_free(r->plan);
}

static void push(struct lm_run *r, const char *program, const char *name, const int32_t *value, int rows)
{
    char full[40];
    const weir_array in = {(void *)value, WEIR_I32, rows ? (weir_shape){2, {1, rows}} : (weir_shape){0}};
    snprintf(full, sizeof full, "%s%s", program, name);
    cr_assert_eq(weir_session_push(r->session, full, &in, 60000), WEIR_OK, "%s", weir_error());
}

static void pull(struct lm_run *r, const char *program, float *logits)
{
    char full[40];
    weir_array all = {logits, WEIR_F32, {2, {1, r->c.vocab}}};
    snprintf(full, sizeof full, "%slogits", program);
    cr_assert_eq(weir_session_pull(r->session, full, &all, 60000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_wait(r->session, 60000), WEIR_OK, "%s", weir_error());
}

void lm_run_token(struct lm_run *r, int32_t token, int32_t position, float *logits)
{
    cr_assert_eq(weir_session_start(r->session, 1), WEIR_OK, "%s", weir_error());
    push(r, "", "token", &token, 1);
    push(r, "", "position", &position, 0);
    pull(r, "", logits);
}

void lm_run_prompt(struct lm_run *r, const int32_t *tokens, int32_t position, int32_t last, float *logits)
{
    cr_assert_eq(weir_session_start(r->session, 1, .program = "prompt"), WEIR_OK, "%s", weir_error());
    push(r, "prompt/", "token", tokens, r->c.chunk);
    push(r, "prompt/", "position", &position, 0);
    push(r, "prompt/", "last", &last, 0);
    pull(r, "prompt/", logits);
}
