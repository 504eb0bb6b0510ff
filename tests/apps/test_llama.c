/* tests/apps/test_llama.c: a Llama from a GGUF file, beside the same in double; and weir-gpt --model. The file is made here: one block of
 * two heads that share one of keys and values, and a tokenizer of bytes. */
#include "apps/common/model/llama.h"
#include "tests/apps/shell.h"
#include "tests/support/gguf_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(llama, .init = shell_begin, .fini = folder_remove, .timeout = 120);

enum { DIM = 8, HEADS = 2, KV_HEADS = 1, HEAD = DIM / HEADS, FFN = 12, VOCAB = 256, STEPS = 6 };
enum { UINT = 4, FLOAT = 6, TEXT = 8, ARRAY = 9 }; /* types of metadata */

static const double eps = 1e-5, base = 100;

/* ---- the file ---- */

static const struct weight {
    const char *name;
    weir_shape shape;
} weights[] = {
    {"token_embd.weight", {2, {VOCAB, DIM}}},
    {"output_norm.weight", {1, {DIM}}},
    {"blk.0.attn_norm.weight", {1, {DIM}}},
    {"blk.0.attn_q.weight", {2, {DIM, DIM}}},
    {"blk.0.attn_k.weight", {2, {KV_HEADS * HEAD, DIM}}},
    {"blk.0.attn_v.weight", {2, {KV_HEADS * HEAD, DIM}}},
    {"blk.0.attn_output.weight", {2, {DIM, DIM}}},
    {"blk.0.ffn_norm.weight", {1, {DIM}}},
    {"blk.0.ffn_gate.weight", {2, {FFN, DIM}}},
    {"blk.0.ffn_up.weight", {2, {FFN, DIM}}},
    {"blk.0.ffn_down.weight", {2, {DIM, FFN}}},
};
enum { WEIGHTS = sizeof weights / sizeof *weights };

/* Element i of weight w. */
static float element(int w, int64_t i)
{
    const double value = sin(1.7 * (double)i + 3.1 * w);
    return (float)(weights[w].shape.rank == 1 ? 1 + 0.3 * value : 0.8 * value);
}

static void put_u32(struct gguf_file *f, const char *key, uint32_t value)
{
    gguf_file_text(f, key), gguf_file_u32(f, UINT), gguf_file_u32(f, value);
}

static void put_f32(struct gguf_file *f, const char *key, double value)
{
    const float real = (float)value;
    gguf_file_text(f, key), gguf_file_u32(f, FLOAT), gguf_file_bytes(f, &real, sizeof real);
}

static void put_text(struct gguf_file *f, const char *key, const char *value)
{
    gguf_file_text(f, key), gguf_file_u32(f, TEXT), gguf_file_text(f, value);
}

static void put_array(struct gguf_file *f, const char *key, uint32_t type, uint64_t count)
{
    gguf_file_text(f, key), gguf_file_u32(f, ARRAY), gguf_file_u32(f, type), gguf_file_u64(f, count);
}

/* A token for each byte, as GPT-2 writes bytes: those that are printed are themselves, others are counted from U+0100 on. */
static void put_tokens(struct gguf_file *f)
{
    put_array(f, "tokenizer.ggml.tokens", TEXT, VOCAB);
    for (int byte = 0, next = 0x100; byte < 256; byte++) {
        const bool shown = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        const int c = shown ? byte : next++;
        char token[3] = {(char)c, 0, 0};
        if (c >= 0x80)
            token[0] = (char)(0xC0 | c >> 6), token[1] = (char)(0x80 | (c & 63));
        gguf_file_text(f, token);
    }
    put_array(f, "tokenizer.ggml.merges", TEXT, 0);
    put_array(f, "tokenizer.ggml.token_type", 5, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        gguf_file_u32(f, 1);
}

/* With another architecture, or without its number of heads. */
static const char *model(const char *architecture, bool heads)
{
    static struct gguf_file f;
    uint64_t offset = 0;
    gguf_file_begin(&f, WEIGHTS, 13 + heads);
    put_text(&f, "general.architecture", architecture);
    put_u32(&f, "llama.block_count", 1);
    put_u32(&f, "llama.embedding_length", DIM);
    if (heads)
        put_u32(&f, "llama.attention.head_count", HEADS);
    put_u32(&f, "llama.attention.head_count_kv", KV_HEADS);
    put_u32(&f, "llama.feed_forward_length", FFN);
    put_u32(&f, "llama.context_length", 16);
    put_f32(&f, "llama.attention.layer_norm_rms_epsilon", eps);
    put_f32(&f, "llama.rope.freq_base", base);
    put_text(&f, "tokenizer.ggml.model", "gpt2");
    put_text(&f, "tokenizer.ggml.pre", "gpt-2");
    put_tokens(&f); /* three */
    for (int w = 0; w < WEIGHTS; w++) {
        gguf_file_tensor(&f, weights[w].name, &weights[w].shape, GGUF_F32, offset);
        offset += ((uint64_t)weir_shape_count(&weights[w].shape) * 4 + 31) / 32 * 32;
    }
    for (int w = 0; w < WEIGHTS; w++) {
        gguf_file_align(&f, 32);
        for (int64_t i = 0; i < weir_shape_count(&weights[w].shape); i++) {
            const float value = element(w, i);
            gguf_file_bytes(&f, &value, sizeof value);
        }
    }
    gguf_file_align(&f, 32);
    const char *path = folder_path("m.gguf");
    folder_write(path, f.bytes, f.count);
    return path;
}

/* ---- in double ---- */

/* y [rows] = weight w [rows, columns] x. */
static void product(int w, const double *x, double *y)
{
    const int64_t rows = weights[w].shape.dim[0], columns = weights[w].shape.dim[1];
    for (int64_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (int64_t c = 0; c < columns; c++)
            y[r] += (double)element(w, r * columns + c) * x[c];
    }
}

static void norm(int w, const double *x, double *y)
{
    double sum = 0;
    for (int i = 0; i < DIM; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < DIM; i++)
        y[i] = x[i] / sqrt(sum / DIM + eps) * (double)element(w, i);
}

static void turn(double *x, int heads, int position)
{
    for (int h = 0; h < heads; h++)
        for (int p = 0; p < HEAD / 2; p++) {
            const double angle = position * pow(base, -2.0 * p / HEAD), a = x[h * HEAD + 2 * p], b = x[h * HEAD + 2 * p + 1];
            x[h * HEAD + 2 * p] = a * cos(angle) - b * sin(angle);
            x[h * HEAD + 2 * p + 1] = b * cos(angle) + a * sin(angle);
        }
}

static double keys[STEPS][HEAD], values[STEPS][HEAD];

static void attend(const double *q, int position, double *to)
{
    for (int h = 0; h < HEADS; h++) {
        double weight[STEPS], sum = 0;
        for (int t = 0; t <= position; t++) {
            double score = 0;
            for (int i = 0; i < HEAD; i++)
                score += q[h * HEAD + i] * keys[t][i];
            sum += weight[t] = exp(score / sqrt(HEAD));
        }
        for (int i = 0; i < HEAD; i++) {
            to[h * HEAD + i] = 0;
            for (int t = 0; t <= position; t++)
                to[h * HEAD + i] += weight[t] / sum * values[t][i];
        }
    }
}

static void reference(int token, int position, double *logits)
{
    double x[DIM], h[DIM], q[DIM], a[DIM], gate[FFN], up[FFN];
    for (int i = 0; i < DIM; i++)
        x[i] = (double)element(0, token * DIM + i);
    norm(2, x, h);
    product(3, h, q), product(4, h, keys[position]), product(5, h, values[position]);
    turn(q, HEADS, position), turn(keys[position], KV_HEADS, position);
    attend(q, position, a);
    product(6, a, h);
    for (int i = 0; i < DIM; i++)
        x[i] += h[i];
    norm(7, x, h);
    product(8, h, gate), product(9, h, up);
    for (int i = 0; i < FFN; i++)
        up[i] *= gate[i] / (1 + exp(-gate[i]));
    product(10, up, h);
    for (int i = 0; i < DIM; i++)
        x[i] += h[i];
    norm(1, x, h);
    product(0, h, logits);
}

/* ---- tests ---- */

static void read_model(const char *path, llama_config *c)
{
    char why[300] = "";
    cr_assert(llama_read(path, c, why, sizeof why), "%s", why);
}

Test(llama, gives_the_logits_of_the_model_in_double)
{
    const char *path = model("llama", true);
    llama_config c;
    read_model(path, &c);
    cr_expect(c.layers == 1 && c.dim == DIM && c.heads == HEADS && c.kv_heads == KV_HEADS && c.ffn == FFN && c.vocab == VOCAB && c.tied);
    c.logits = true;
    weir_graph *g = llama_graph(&c);
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 1);
    cr_assert_eq(weir_session_load(s, path, .parameters = true), WEIR_OK, "%s", weir_error());
    int32_t token = 'a', next = 0;
    float got[VOCAB];
    double wanted[VOCAB];
    for (int32_t position = 0; position < STEPS; position++, token = next) {
        const weir_array in = {&token, WEIR_I32, {2, {1, 1}}}, place = {&position, WEIR_I32, {.rank = 0}};
        weir_array logits = {got, WEIR_F32, {3, {1, 1, VOCAB}}}, best = {&next, WEIR_I32, {2, {1, 1}}};
        cr_assert_eq(weir_session_start(s, 1), WEIR_OK);
        cr_assert_eq(weir_session_push(s, "token", &in, 5000), WEIR_OK);
        cr_assert_eq(weir_session_push(s, "position", &place, 5000), WEIR_OK);
        cr_assert_eq(weir_session_pull(s, "logits", &logits, 5000), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_session_pull(s, "next", &best, 5000), WEIR_OK);
        cr_assert_eq(weir_session_wait(s, 5000), WEIR_OK);
        reference(token, position, wanted);
        for (int i = 0; i < VOCAB; i++)
            cr_expect_float_eq(got[i], wanted[i], 1e-4, "step %d, token %d", position, i);
    }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

#define HAS(part) cr_expect(strstr(output, part), "lacks \"%s\":\n%s", part, output)

Test(llama, the_program_goes_on_with_a_prompt)
{
    model("llama", true);
    cr_assert_eq(run(APPS_BIN "/weir-gpt --model $T/m.gguf --prompt ab --sample 3"), 0, "%s", output);
    HAS("3 tokens written behind 2 in ");
    cr_assert_eq(run(APPS_BIN "/weir-gpt --model $T/m.gguf --prompt ab --sample 100"), 0, "%s", output);
    HAS("15 tokens written behind 2 in "); /* the last of 16 rows says one more */
}

Test(llama, a_wrong_file_is_one_sentence)
{
    model("mamba", true);
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/m.gguf"), 2);
    HAS("m.gguf: its architecture is not llama");
    model("llama", false);
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/m.gguf"), 2);
    HAS("m.gguf: its metadata has no right value of llama.attention.head_count");
    model("llama", true);
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/m.gguf --prompt 'more than sixteen bytes'"), 2);
    HAS("it has 23 tokens, and the model sees at most 16");
    cr_expect_eq(run("printf GGUF >$T/m.gguf; " APPS_BIN "/weir-gpt --model $T/m.gguf"), 2);
    HAS("m.gguf: ");
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/none.gguf"), 2);
    HAS("none.gguf");
}
