/* tests/apps/test_quantize.c: weir checkpoint convert --quantize: GGUF files from GGUF files and from folders, their logits and token ids
 * beside those of the source, adapters that are merged first, and what is refused. */
#include "apps/common/tokens/tokenizer.h"
#include "graph/base/blocks.h"
#include "tests/apps/shell.h"
#include "tests/support/gguf_file.h"
#include "tests/support/lm_case.h"
#include "tests/support/lm_reference.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(quantize, .init = shell_begin, .fini = folder_remove, .timeout = 300);

#define HAS(part) cr_expect(strstr(output, part), "lacks \"%s\":\n%s", part, output)

static void refuses(const char *command, int status, const char *says)
{
    cr_expect_eq(run(command), status, "%s: %s", command, output);
    HAS(says);
}

/* ---- from a GGUF file ---- */

enum { ROWS = 3, COLUMNS = 64 };

static float element(int tensor, int row, int column)
{
    return (float)((row * 131 + column * 37 + tensor * 11) % 255 - 127) / 8;
}

static void put_matrix(struct gguf_file *f, int tensor, bool half)
{
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) {
            const float x = element(tensor, row, column);
            if (half)
                gguf_file_f16(f, x);
            else
                gguf_file_bytes(f, &x, sizeof x);
        }
}

/* A table of tokens in F16, a matrix in F32, one whose rows are no whole blocks, a norm in F16, whole numbers; with an alignment and a
 * file type of its own, and a key that is longer than those that weir knows. */
static void write_gguf(const char *path, const char *split)
{
    static struct gguf_file f;
    gguf_file_begin(&f, 5, split ? 5 : 4);
    gguf_file_text(&f, "general.architecture"), gguf_file_u32(&f, 8), gguf_file_text(&f, "other");
    gguf_file_text(&f, "general.alignment"), gguf_file_u32(&f, 4), gguf_file_u32(&f, 64);
    gguf_file_text(&f, "general.file_type"), gguf_file_u32(&f, 4), gguf_file_u32(&f, 1);
    gguf_file_text(&f, "a.key.that.has.more.bytes.than.all.keys.that.anybody.looks.for.when.a.file.is.read.by.weir.or.by.others");
    gguf_file_u32(&f, 9), gguf_file_u32(&f, 8), gguf_file_u64(&f, 2), gguf_file_text(&f, "one"), gguf_file_text(&f, "two");
    if (split)
        gguf_file_text(&f, split), gguf_file_u32(&f, 2), gguf_file_u16(&f, 3);
    gguf_file_tensor(&f, "token_embd.weight", &(weir_shape){2, {ROWS, COLUMNS}}, GGUF_F16, 0);
    gguf_file_tensor(&f, "blk.0.ffn_up.weight", &(weir_shape){2, {ROWS, COLUMNS}}, GGUF_F32, 384);
    gguf_file_tensor(&f, "blk.0.odd.weight", &(weir_shape){2, {2, 3}}, GGUF_F16, 1152);
    gguf_file_tensor(&f, "blk.0.attn_norm.weight", &(weir_shape){1, {2}}, GGUF_F16, 1216);
    gguf_file_tensor(&f, "ids", &(weir_shape){1, {2}}, GGUF_I32, 1280);
    gguf_file_align(&f, 64);
    put_matrix(&f, 0, true);
    gguf_file_align(&f, 64);
    put_matrix(&f, 1, false);
    gguf_file_align(&f, 64);
    for (int i = 0; i < 6; i++)
        gguf_file_f16(&f, (float)i);
    gguf_file_align(&f, 64);
    gguf_file_f16(&f, 1.5f), gguf_file_f16(&f, -2);
    gguf_file_align(&f, 64);
    gguf_file_u32(&f, 7), gguf_file_u32(&f, 8);
    folder_write(path, f.bytes, f.count);
}

static const weir_checkpoint_tensor *stored_as(weir_checkpoint *c, const char *name, const char *type)
{
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, name);
    cr_assert(t, "%s", name);
    cr_expect_str_eq(t->stored, type, "%s is %s", name, t->stored);
    return t;
}

/* The tensor's blocks are those of the elements. */
static void expect_blocks(weir_checkpoint *c, const char *name, int tensor, weir_format format)
{
    const block_format *is = block_format_of(format);
    const int blocks = COLUMNS / 32;
    unsigned char got[ROWS * COLUMNS * 2], want[COLUMNS * 2];
    weir_array to = {got, WEIR_U8, {3, {ROWS, blocks, is->bytes}}};
    cr_assert(!weir_checkpoint_read(c, stored_as(c, name, is->name), 0, NULL, &to), "%s", weir_error());
    for (int row = 0; row < ROWS; row++) {
        float x[COLUMNS];
        for (int column = 0; column < COLUMNS; column++)
            x[column] = element(tensor, row, column);
        cr_assert(block_write_row(format, x, COLUMNS, want));
        cr_expect_arr_eq(got + row * blocks * is->bytes, want, (size_t)(blocks * is->bytes), "%s, row %d", name, row);
    }
}

static void expect_file(const char *name, weir_format format)
{
    float norm[2];
    int32_t ids[2];
    weir_checkpoint *c = weir_checkpoint_open(folder_path("%s", name));
    cr_assert(c, "%s", weir_error());
    cr_expect_eq(weir_checkpoint_get_info(c)->tensors, 5);
    cr_expect_str_eq(weir_checkpoint_get_info(c)->architecture, "other");
    expect_blocks(c, "token_embd.weight", 0, WEIR_Q8_0);
    expect_blocks(c, "blk.0.ffn_up.weight", 1, format);
    stored_as(c, "blk.0.odd.weight", "F16");
    const weir_checkpoint_tensor *of_norm = stored_as(c, "blk.0.attn_norm.weight", "F32"), *of_ids = stored_as(c, "ids", "I32");
    cr_assert(!weir_checkpoint_read(c, of_norm, 0, NULL, &(weir_array){norm, WEIR_F32, {1, {2}}}), "%s", weir_error());
    cr_assert(!weir_checkpoint_read(c, of_ids, 0, NULL, &(weir_array){ids, WEIR_I32, {1, {2}}}), "%s", weir_error());
    cr_expect(norm[0] == 1.5f && norm[1] == -2 && ids[0] == 7 && ids[1] == 8);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(weir_checkpoint_get_tensor(c, i)->shard->offset % 32, 0);
    weir_checkpoint_close(c);
}

Test(quantize, a_gguf_file_becomes_another_one)
{
    write_gguf(folder_path("m.gguf"), NULL);
    must_run("weir checkpoint convert $T/m.gguf $T/q4.gguf --quantize q4_0");
    HAS("q4.gguf: 5 tensors, 2 of them quantised, ");
    expect_file("q4.gguf", WEIR_Q4_0);
    must_run("weir checkpoint convert $T/m.gguf $T/q8.gguf --quantize q8_0");
    expect_file("q8.gguf", WEIR_Q8_0);
    must_run("weir checkpoint verify $T/q8.gguf");
    must_run("strings -n 3 $T/q4.gguf");
    HAS("read.by.weir.or.by.others");
    HAS("two");
    HAS("general.file_type");
    cr_expect(!strstr(output, "general.alignment"));
}

Test(quantize, blocks_of_the_same_format_are_copied)
{
    write_gguf(folder_path("m.gguf"), NULL);
    must_run("weir checkpoint convert $T/m.gguf $T/a.gguf --quantize q4_0; weir checkpoint convert $T/a.gguf $T/b.gguf --quantize q4_0; "
             "weir checkpoint convert $T/b.gguf $T/c.gguf --quantize q4_0; cmp $T/b.gguf $T/c.gguf");
    expect_file("c.gguf", WEIR_Q4_0);
}

/* ---- from a folder ---- */

/* Makes the case, without the tokenizer, which has more tokens than these models. */
static void make_case(const struct lm_case *of)
{
    char command[256];
    lm_case_make(of);
    snprintf(command, sizeof command, "rm $T/%s/tokenizer.json", of->name);
    must_run(command);
}

static void same_logits(const char *name, float difference)
{
    enum { VOCAB = 32, TOKENS = 9 };
    struct lm_run a, b;
    char command[256];
    float of_a[VOCAB], of_b[VOCAB];
    make_case(lm_case_named(name));
    snprintf(command, sizeof command, "weir checkpoint convert $T/%s $T/of-%s.gguf --quantize q8_0", name, name);
    must_run(command);
    HAS("has no tokenizer.json, so the file has no tokenizer");
    lm_run_open(&a, folder_path("%s", name), 0);
    lm_run_open(&b, folder_path("of-%s.gguf", name), 0);
    cr_assert_eq(b.c.vocab, VOCAB);
    for (int i = 0; i < TOKENS; i++) {
        lm_run_token(&a, i * 7 % VOCAB, i, of_a);
        lm_run_token(&b, i * 7 % VOCAB, i, of_b);
        for (int v = 0; v < VOCAB; v++)
            cr_expect_lt(fabsf(of_a[v] - of_b[v]), difference, "%s, token %d: %g, %g", name, i, (double)of_a[v], (double)of_b[v]);
    }
    lm_run_close(&a);
    lm_run_close(&b);
}

#define SIZES "\"hidden_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 12, " \
              "\"vocab_size\": 32, \"max_position_embeddings\": 16"
#define LLAMA3(original) "{\"model_type\": \"llama\", " SIZES ", \"tie_word_embeddings\": true, \"rope_theta\": 100, \"rope_scaling\": {" \
              "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": " original "}}"

Test(quantize, a_folder_becomes_a_file_with_the_same_logits)
{
    same_logits("llama", 1e-5f); /* rows of these three are no whole blocks, so no weight is rounded */
    same_logits("mistral", 1e-5f);
    same_logits("qwen3", 1e-5f);
    same_logits("gpt2", 0.05f);
}

/* The rows of q and k by hand: row 2i + h of a head is row h * half + i of the folder's. */
Test(quantize, rows_of_q_and_k_change_places_where_rope_is_interleaved)
{
    make_case(lm_case_named("llama"));
    must_run("weir checkpoint convert $T/llama $T/m.gguf --quantize q8_0");
    weir_checkpoint *a = weir_checkpoint_open(folder_path("llama/model.safetensors")), *b = weir_checkpoint_open(folder_path("m.gguf"));
    cr_assert(a && b, "%s", weir_error());
    static const int rows[] = {0, 2, 1, 3, 4, 6, 5, 7};
    float theirs[64], ours[64];
    const weir_checkpoint_tensor *q = weir_checkpoint_find(a, "model.layers.1.self_attn.q_proj.weight"), *made = weir_checkpoint_find(b, "blk.1.attn_q.weight");
    cr_assert(q && made);
    cr_assert(!weir_checkpoint_read(a, q, 0, NULL, &(weir_array){theirs, WEIR_F32, {2, {8, 8}}}));
    cr_assert(!weir_checkpoint_read(b, made, 0, NULL, &(weir_array){ours, WEIR_F32, {2, {8, 8}}}));
    for (int row = 0; row < 8; row++)
        cr_expect_arr_eq(ours + row * 8, theirs + rows[row] * 8, 8 * sizeof(float), "row %d", row);
    weir_checkpoint_close(a);
    weir_checkpoint_close(b);
}

Test(quantize, a_setting_that_a_gguf_file_cannot_say_is_refused)
{
    struct lm_case of = *lm_case_named("llama3");
    make_case(lm_case_named("qwen2"));
    make_case(lm_case_named("smollm3"));
    make_case(lm_case_named("linear"));
    of.json = LLAMA3("16");
    make_case(&of);
    refuses("weir checkpoint convert $T/qwen2 $T/x.gguf --quantize q8_0", 1, "its config.json has a window in some blocks alone");
    refuses("weir checkpoint convert $T/smollm3 $T/x.gguf --quantize q8_0", 1, "its config.json has blocks without rope");
    refuses("weir checkpoint convert $T/linear $T/x.gguf --quantize q8_0", 1, "its config.json has another activation than SiLU");
    refuses("weir checkpoint convert $T/llama3 $T/x.gguf --quantize q8_0", 1, "has rope scaling of llama3 with other numbers than 1, 4 and 8192");
    cr_expect(!folder_has(folder_path("x.gguf")));
}

/* ---- tokenizers ---- */

/* A model of one block with as many tokens as the tokenizer, which `change`, a script of sed, makes acceptable. */
static void make_with_tokens(const char *tokenizer, const char *change)
{
    char command[512], json[512];
    struct lm_case of = *lm_case_named("llama");
    of.name = "tokens";
    snprintf(command, sizeof command, "mkdir -p $T/tokens && sed '%s' tests/apps/tokens/%s.json >$T/tokens/tokenizer.json", change, tokenizer);
    must_run(command);
    struct tokenizer *t = tokenizer_read(folder_path("tokens/tokenizer.json"));
    cr_assert(t, "%s", tokens_error());
    of.c.vocab = (int)tokenizer_size(t);
    tokenizer_free(t);
    snprintf(json, sizeof json, "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
             "\"num_key_value_heads\": 1, \"intermediate_size\": 12, \"vocab_size\": %d, \"max_position_embeddings\": 16}", of.c.vocab);
    of.json = json;
    lm_case_make(&of);
    must_run(command); /* again, as the case has a tokenizer of its own */
}

/* Added tokens take no whitespace, and none is a part of another one. */
#define PLAIN "s/\"lstrip\":true/\"lstrip\":false/g; s/\"rstrip\":true/\"rstrip\":false/g; s/<|im_start|>x/<|im_Start|>x/g"

Test(quantize, a_tokenizer_in_the_file_gives_the_same_ids)
{
    static const char *const names[] = {"gpt2", "smollm", "llama3", "qwen2", "nfc"};
    for (int i = 0; i < 5; i++) {
        make_with_tokens(names[i], PLAIN);
        must_run("rm -f $T/m.gguf; weir checkpoint convert $T/tokens $T/m.gguf --quantize q8_0");
        must_run("weir tokens encode --tokenizer $T/tokens tests/apps/tokens/text >$T/a; "
                 "weir tokens encode --tokenizer $T/m.gguf tests/apps/tokens/text >$T/b; test -s $T/a && cmp $T/a $T/b");
    }
}

Test(quantize, a_tokenizer_that_a_gguf_file_cannot_say_is_refused)
{
    static const char convert[] = "weir checkpoint convert $T/tokens $T/m.gguf --quantize q8_0";
    make_with_tokens("gpt2", "s/x/x/");
    refuses(convert, 1, "tokens/tokenizer.json: an added token takes whitespace beside it; weir cannot write that in a GGUF file");
    make_with_tokens("gpt2", "s/\"lstrip\":true/\"lstrip\":false/g; s/\"rstrip\":true/\"rstrip\":false/g");
    refuses(convert, 1, "an added token is a part of another one, and is found before that");
    make_with_tokens("deepseek", PLAIN);
    refuses(convert, 1, "in a way that has no name in tokenizer.ggml.pre");
    make_with_tokens("metaspace", PLAIN);
    refuses(convert, 1, "two tokens that make a third one are no merge");
    must_run("mv $T/tokens/tokenizer.json $T/tokens/tokenizer.model");
    refuses(convert, 1, "tokens/tokenizer.model: weir writes the tokenizer of a tokenizer.json");
    lm_case_make(lm_case_named("llama"));
    refuses("weir checkpoint convert $T/llama $T/m.gguf --quantize q8_0", 1, "has the id 32; the model has 32 tokens");
}

/* ---- adapters ---- */

/* An adapter that weir-gpt has trained for a moment, and a model whose rows are whole blocks. */
static void make_adapter(void)
{
    struct lm_case of = *lm_case_named("llama");
    of.json = "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
              "\"intermediate_size\": 64, \"vocab_size\": 256, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5}";
    of.c.dim = 32, of.c.head_dim = of.c.rotary_dim = 16, of.c.ffn = 64, of.c.vocab = 256;
    lm_case_make(&of);
    must_run(APPS_BIN "/weir-gpt --model $T/llama --lora 2 --seq 16 --batch 2 --steps 3 --lr 0.1 --text README.md --save $T/runs");
}

Test(quantize, an_adapter_is_merged_before_weights_are_quantised)
{
    make_adapter();
    must_run("weir checkpoint convert $T/llama $T/runs-base --merge $T/runs; weir checkpoint convert $T/llama $T/base.gguf --quantize q4_0; "
             "weir checkpoint convert $T/llama $T/merged.gguf --merge $T/runs --quantize q4_0");
    HAS("merged.gguf: 21 tensors, 16 of them quantised");
    must_run("mv $T/llama $T/before; mv $T/runs-base $T/llama; weir checkpoint convert $T/llama $T/of-merged.gguf --quantize q4_0; "
             "cmp $T/merged.gguf $T/of-merged.gguf && ! cmp -s $T/merged.gguf $T/base.gguf");
}

static void read_q(const char *name, float *to)
{
    weir_checkpoint *c = weir_checkpoint_open(folder_path("%s.gguf", name));
    cr_assert(c, "%s", weir_error());
    weir_array value = {to, WEIR_F32, {2, {32, 32}}};
    cr_assert(!weir_checkpoint_read(c, stored_as(c, "blk.1.attn_q.weight", "Q8_0"), 0, NULL, &value), "%s", weir_error());
    weir_checkpoint_close(c);
}

Test(quantize, an_adapter_is_merged_into_a_gguf_file)
{
    make_adapter();
    must_run("weir checkpoint convert $T/llama $T/base.gguf --quantize q8_0 && weir checkpoint convert $T/base.gguf $T/merged.gguf --merge $T/runs "
             "--quantize q8_0 && weir checkpoint convert $T/llama $T/want.gguf --merge $T/runs --quantize q8_0");
    cr_expect_neq(run("cmp -s $T/base.gguf $T/merged.gguf"), 0);
    static float got[32 * 32], want[32 * 32], before[32 * 32];
    read_q("merged", got), read_q("want", want), read_q("base", before);
    double change = 0, fault = 0;
    for (int i = 0; i < 32 * 32; i++) {
        change += fabs((double)want[i] - (double)before[i]);
        fault += fabs((double)want[i] - (double)got[i]);
    }
    cr_expect_lt(fault, 0.2 * change, "%g of %g", fault, change);
    must_run(APPS_BIN "/weir-gpt --model $T/merged.gguf --prompt ab --sample 3");
}

/* ---- mistakes ---- */

Test(quantize, a_file_that_is_in_the_way_stays)
{
    write_gguf(folder_path("m.gguf"), NULL);
    must_run("echo mine >$T/x.gguf");
    refuses("weir checkpoint convert $T/m.gguf $T/x.gguf --quantize q8_0", 1, "x.gguf: is in the way; or --force moves it to ");
    must_run("grep -q mine $T/x.gguf && weir checkpoint convert $T/m.gguf $T/x.gguf --quantize q8_0 --force");
    HAS("x.gguf.before-1 now");
    must_run("grep -q mine $T/x.gguf.before-1");
    expect_file("x.gguf", WEIR_Q8_0);
}

Test(quantize, what_cannot_be_quantised_is_one_sentence)
{
    write_gguf(folder_path("m.gguf"), NULL);
    refuses("weir checkpoint convert $T/m.gguf $T/x.gguf --quantize q5_1", 2, "--quantize q5_1: q8_0 and q4_0 are allowed");
    refuses("weir checkpoint convert $T/m.gguf $T/x.safetensors --quantize q8_0", 2, "x.safetensors: --quantize writes a GGUF file, whose name ends with .gguf");
    refuses("weir checkpoint convert $T/m.gguf $T/x.gguf --quantize q8_0 --all", 2, "it cannot be used with --all");
    must_run("weir checkpoint convert $T/m.gguf $T/m.safetensors");
    refuses("weir checkpoint convert $T/m.safetensors $T/x.gguf --quantize q8_0", 2, "m.safetensors: --quantize needs a GGUF file, or a Hugging Face folder");
    refuses("head -c 200 $T/m.gguf >$T/cut.gguf; weir checkpoint convert $T/cut.gguf $T/x.gguf --quantize q8_0", 1, "cut.gguf: is cut short, or damaged");
    write_gguf(folder_path("split.gguf"), "split.count");
    refuses("weir checkpoint convert $T/split.gguf $T/x.gguf --quantize q8_0", 1, "split.gguf: is one of 3 files of a model");
    refuses("weir checkpoint convert $T/m.gguf $T/no/x.gguf --quantize q8_0", 1, "no/x.gguf: cannot be written: No such file or directory");
    cr_expect(!folder_has(folder_path("x.gguf")));
}

Test(quantize, numbers_that_are_not_finite_are_refused_and_leave_no_file)
{
    static struct gguf_file f;
    gguf_file_begin(&f, 1, 0);
    gguf_file_tensor(&f, "a.weight", &(weir_shape){2, {1, 32}}, GGUF_F32, 0);
    gguf_file_align(&f, 32);
    for (int i = 0; i < 32; i++)
        gguf_file_u32(&f, i == 31 ? 0x7FC00000 : 0);
    folder_write(folder_path("nan.gguf"), f.bytes, f.count);
    refuses("weir checkpoint convert $T/nan.gguf $T/x.gguf --quantize q4_0", 1, "nan.gguf: tensor a.weight: has values that are not finite, or too large for Q4_0");
    must_run("ls $T");
    cr_expect(!strstr(output, "x.gguf"), "%s", output);
}
