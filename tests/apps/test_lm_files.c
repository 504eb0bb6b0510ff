/* tests/apps/test_lm_files.c: files of language models that are refused, weir-gpt --model, and folders that the package transformers
 * made, where WEIR_LM_FOLDERS names them (tests/models/folders.py). */
#include "apps/common/model/lm.h"
#include "tests/apps/shell.h"
#include "tests/support/gguf_file.h"
#include "tests/support/lm_case.h"
#include "tests/support/lm_reference.h"

#include <dirent.h>
#include <math.h>
#include <string.h>

TestSuite(lm_files, .init = shell_begin, .fini = folder_remove, .timeout = 300);

#define HAS(part) cr_expect(strstr(output, part), "lacks \"%s\":\n%s", part, output)

/* ---- what is refused ---- */

/* The sentence about the case's folder with another config.json. */
static const char *refused(const char *name, const char *json)
{
    static char why[1024];
    lm_config c;
    *why = '\0';
    folder_write(folder_path("%s/config.json", name), json, strlen(json));
    cr_expect(!lm_read(folder_path("%s", name), &c, why, sizeof why), "%s", json);
    return why;
}

static void refuses(const char *name, const char *json, const char *part)
{
    const char *why = refused(name, json);
    cr_expect(strstr(why, part), "%s: lacks \"%s\": %s", json, part, why);
}

struct refusal {
    const char *name, *json, *part;
};
#define REFUSE_ALL(list)                                                     \
    for (size_t i = 0; i < sizeof(list) / sizeof *(list); i++)               \
        refuses((list)[i].name, (list)[i].json, (list)[i].part)
#define SIZES "\"hidden_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 12, \"vocab_size\": 32"
#define LLAMA(more) "{\"model_type\": \"llama\", " SIZES more "}"
#define GPT2(more) "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2, \"n_positions\": 16, \"vocab_size\": 32" more "}"

Test(lm_files, a_setting_that_is_not_supported_is_refused_with_its_value)
{
    static const struct refusal all[] = {
        {"llama", "{\"model_type\": \"mamba\", \"hidden_size\": 8}",
         "/llama/config.json: \"model_type\" is \"mamba\"; supported is gpt2, llama, mistral, qwen2, qwen3 or smollm3"},
        {"llama", LLAMA(", \"hidden_act\": \"relu2\""), "\"hidden_act\" is \"relu2\"; supported is silu, gelu_new"},
        {"llama", LLAMA(", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}"), "\"rope_type\" is \"yarn\"; supported is"},
        {"llama", LLAMA(", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}"), "\"type\" is \"dynamic\"; supported is"},
        {"llama", LLAMA(", \"rope_scaling\": {\"type\": \"linear\"}"), "has no \"factor\""},
        {"llama", LLAMA(", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}"), "one set of values for all blocks"},
        {"llama", LLAMA(", \"partial_rotary_factor\": 0.5"), "\"partial_rotary_factor\" is 0.5; supported is 1"},
        {"llama", LLAMA(", \"quantization_config\": {\"quant_method\": \"gptq\"}"), "\"quantization_config\" is {\"quant_method\":\"gptq\"}"},
        {"gpt2", GPT2(", \"scale_attn_by_inverse_layer_idx\": true"), "\"scale_attn_by_inverse_layer_idx\" is true; supported is false"},
        {"gpt2", GPT2(", \"scale_attn_weights\": false"), "\"scale_attn_weights\" is false; supported is true"},
        {"gpt2", GPT2(", \"add_cross_attention\": true"), "\"add_cross_attention\" is true"},
    };
    lm_case_make(lm_case_named("llama"));
    lm_case_make(lm_case_named("gpt2"));
    REFUSE_ALL(all);
}

Test(lm_files, a_config_that_is_damaged_is_one_sentence)
{
    static const struct refusal all[] = {
        {"llama", "", "config.json: line 1: is not JSON"},
        {"llama", "[1]", "config.json: is not a JSON object"},
        {"llama", "{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}", "is not JSON: duplicate object key"},
        {"llama", "{}", "has no \"model_type\""},
        {"llama", "{\"model_type\": \"llama\"}", "has no \"num_hidden_layers\""},
        {"llama", LLAMA(", \"max_position_embeddings\": 1e3"), "\"max_position_embeddings\" is 1000.0; supported is a whole number from 1"},
        {"llama", LLAMA(", \"max_position_embeddings\": -4"), "\"max_position_embeddings\" is -4; supported is a whole number from 1"},
        {"llama", LLAMA(", \"rms_norm_eps\": 0"), "\"rms_norm_eps\" is 0; supported is a number above 0"},
        {"llama", LLAMA(", \"attention_bias\": 1"), "\"attention_bias\" is 1; supported is true or false"},
        {"llama", LLAMA(", \"eos_token_id\": [2, \"end\"]"), "\"eos_token_id\" is [2,\"end\"]; supported is a token, or a list"},
        {"llama", LLAMA(", \"head_dim\": 3"), "3 of a head's 3 columns cannot turn in pairs"},
        {"llama", "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 9999}", "\"num_hidden_layers\" is 9999; supported is at most 512"},
    };
    lm_case_make(lm_case_named("llama"));
    REFUSE_ALL(all);
    static char long_one[(256 << 10) + 8];
    memset(long_one, ' ', sizeof long_one - 1);
    refuses("llama", long_one, "config.json: has more than 256 KiB, which is the most that is read");
}

Test(lm_files, tensors_that_do_not_fit_are_named)
{
    struct lm_case other = *lm_case_named("llama");
    lm_case_make(&other);
    refuses("llama", LLAMA(", \"attention_bias\": true"), "/llama/model.safetensors: has no tensor model.layers.0.self_attn.q_proj.bias [8]");
    refuses("llama", LLAMA(", \"head_dim\": 8"), "tensor model.layers.0.self_attn.q_proj.weight has the shape [8, 8]; [16, 8] follows");
    other.c.qkv_bias = true;
    lm_case_make(&other);
    refuses("llama", other.json, "tensor model.layers.0.self_attn.q_proj.bias is not a part of this model");
    must_run("mv $T/llama/model.safetensors $T/llama/pytorch_model.bin");
    refuses("llama", other.json, "/llama: its weights are pytorch_model.bin, which only Python can read");
    must_run("rm $T/llama/pytorch_model.bin");
    refuses("llama", other.json, "/llama: has neither model.safetensors nor model.safetensors.index.json");
    must_run("printf '{}' >$T/llama/model.safetensors.index.json");
    refuses("llama", other.json, "model.safetensors.index.json");
}

/* Their product does not fit an int. */
Test(lm_files, heads_that_are_too_large_are_refused)
{
    static const char *const key[] = {"gpt2.block_count", "gpt2.embedding_length", "gpt2.feed_forward_length", "gpt2.context_length",
                                      "gpt2.attention.head_count", "gpt2.attention.key_length"};
    enum { KEYS = sizeof key / sizeof *key, UINT = 4, FLOAT = 6, TEXT = 8 };
    static struct gguf_file f;
    const float eps = 1e-5f;
    char why[1024] = "";
    lm_config c;
    gguf_file_begin(&f, 0, KEYS + 2);
    gguf_file_text(&f, "general.architecture"), gguf_file_u32(&f, TEXT), gguf_file_text(&f, "gpt2");
    for (int i = 0; i < KEYS; i++)
        gguf_file_text(&f, key[i]), gguf_file_u32(&f, UINT), gguf_file_u32(&f, i < 4 ? 8 : 1 << 24);
    gguf_file_text(&f, "gpt2.attention.layer_norm_epsilon"), gguf_file_u32(&f, FLOAT), gguf_file_bytes(&f, &eps, sizeof eps);
    folder_write(folder_path("large.gguf"), f.bytes, f.count);
    cr_expect(!lm_read(folder_path("large.gguf"), &c, why, sizeof why));
    cr_expect(strstr(why, "16777216 heads of 16777216 columns are more than is supported"), "%s", why);
}

Test(lm_files, a_config_that_is_a_fifo_is_refused_at_once)
{
    lm_config c;
    char why[1024] = "";
    lm_case_make(lm_case_named("llama"));
    must_run("rm $T/llama/config.json && mkfifo $T/llama/config.json");
    cr_expect(!lm_read(folder_path("llama"), &c, why, sizeof why));
    cr_expect(strstr(why, "llama/config.json: cannot be read: it is a FIFO, not a regular file"), "%s", why);
}

Test(lm_files, tokens_that_end_a_text_come_from_the_generation_config)
{
    lm_config c;
    char why[1024] = "";
    const char *path = lm_case_make(lm_case_named("llama")), tokens[] = "{\"eos_token_id\": [4, 5], \"bos_token_id\": 6}";
    folder_write(folder_path("llama/generation_config.json"), tokens, strlen(tokens));
    cr_assert(lm_read(path, &c, why, sizeof why), "%s", why);
    cr_expect(lm_is_end(&c, 4) && lm_is_end(&c, 5) && !lm_is_end(&c, 2) && c.begin == 6);
    folder_write(folder_path("llama/generation_config.json"), "{", 1);
    cr_expect(!lm_read(path, &c, why, sizeof why));
    cr_expect(strstr(why, "generation_config.json: line 1: is not JSON"), "%s", why);
}

/* ---- weir-gpt --model ---- */

Test(lm_files, the_program_goes_on_with_a_prompt)
{
    const struct lm_case *of = lm_case_named("llama.gguf");
    lm_case_make(of);
    must_run(APPS_BIN "/weir-gpt --model $T/llama.gguf --prompt ab --sample 3");
    HAS("3 tokens written behind 2 in ");
    must_run(APPS_BIN "/weir-gpt --model $T/llama.gguf --prompt ab --sample 100");
    HAS("15 tokens written behind 2 in "); /* the last of 16 rows says one more */
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/llama.gguf --prompt 'more than sixteen bytes'"), 2);
    HAS("it has 23 tokens, and the model sees at most 16");
}

Test(lm_files, options_that_only_train_are_refused_for_writing)
{
    static const char *const options[] = {"--dp 2", "--pp 2", "--micro 2", "--zero", "--device cuda", "--memory 1MiB", "--bf16", "--save $T/runs",
                                          "--resume $T/runs", "--plan $T/p.plan"};
    char command[256];
    lm_case_make(lm_case_named("llama.gguf"));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        snprintf(command, sizeof command, APPS_BIN "/weir-gpt --model $T/llama.gguf --prompt ab --sample 1 %s", options[i]);
        cr_expect_eq(run(command), 2, "%s", options[i]);
        HAS(" is for training a --model: ");
    }
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/llama.gguf --load $T/llama.gguf --prompt ab"), 2);
    HAS("--load and --model each name a model");
    must_run(APPS_BIN "/weir-gpt --model $T/llama.gguf --prompt ab --sample 1 --trace $T/t.json --workers 1 --tp 2 --device cpu");
    cr_expect(folder_has(folder_path("t.json")));
}

Test(lm_files, the_program_reads_a_folder)
{
    struct lm_case wide = *lm_case_named("qwen3");
    const char json[] = "{\"model_type\": \"qwen3\", \"hidden_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                        "\"num_key_value_heads\": 1, \"intermediate_size\": 12, \"vocab_size\": 256, \"max_position_embeddings\": 16, \"head_dim\": 6}";
    wide.c.vocab = 256;
    wide.json = json;
    lm_case_make(&wide);
    must_run(APPS_BIN "/weir-gpt --model $T/qwen3 --prompt ab --sample 3");
    HAS("3 tokens written behind 2 in ");
    lm_case_make(lm_case_named("llama"));
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/llama"), 2);
    HAS("its tokenizer has more tokens than the model");
}

Test(lm_files, a_wrong_gguf_file_is_one_sentence)
{
    struct lm_case of = *lm_case_named("llama.gguf");
    of.architecture = "mamba";
    lm_case_gguf(&of, NULL);
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/llama.gguf"), 2);
    HAS("llama.gguf: its architecture is \"mamba\"; supported are llama, qwen2, qwen3 and gpt2");
    of.architecture = "llama";
    lm_case_gguf(&of, "llama.attention.head_count");
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/llama.gguf"), 2);
    HAS("llama.gguf: its metadata has no right value of llama.attention.head_count");
    of.c.qk_norm = true;
    lm_case_gguf(&of, NULL);
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/llama.gguf"), 2);
    HAS("tensor blk.0.attn_q_norm.weight is not a part of this model");
    cr_expect_eq(run("printf GGUF >$T/llama.gguf; " APPS_BIN "/weir-gpt --model $T/llama.gguf"), 2);
    HAS("llama.gguf: ");
    cr_expect_eq(run(APPS_BIN "/weir-gpt --model $T/none.gguf"), 2);
    HAS("none.gguf");
}

/* ---- beside transformers ---- */

enum { VALUES_MAX = 40 * 96, CHUNK = 6 };

/* A tensor of expected.safetensors; fails the test when it is not there. Returns how many elements it has. */
static int take(weir_checkpoint *from, const char *name, weir_dtype dtype, void *to, weir_shape *shape)
{
    const weir_checkpoint_tensor *t = weir_checkpoint_find(from, name);
    cr_assert(t && weir_shape_count(&t->shape) <= VALUES_MAX, "%s", name);
    weir_array value = {to, dtype, t->shape};
    cr_assert_eq(weir_checkpoint_read(from, t, 0, NULL, &value), WEIR_OK, "%s", weir_error());
    *shape = t->shape;
    return (int)weir_shape_count(shape);
}

/* The greatest difference of two rows of logits. */
static double differ(const float *a, const float *b, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static double compare_logits(const char *path, weir_checkpoint *expected)
{
    int32_t tokens[VALUES_MAX] = {0};
    static float logits[VALUES_MAX], got[96];
    weir_shape shape;
    struct lm_run r = {0};
    double most = 0;
    const int count = take(expected, "tokens", WEIR_I32, tokens, &shape);
    take(expected, "logits", WEIR_F32, logits, &shape);
    lm_run_open(&r, path, CHUNK);
    for (int at = 0; at < count; at++) {
        lm_run_token(&r, tokens[at], at, got);
        most = fmax(most, differ(got, logits + at * 96, 96));
    }
    for (int at = 0; at < count; at += CHUNK) {
        const int rows = at + CHUNK <= count ? CHUNK : count - at;
        for (int last = 0; last < rows; last++) {
            lm_run_prompt(&r, tokens + at, at, last, got);
            most = fmax(most, differ(got, logits + (at + last) * 96, 96));
        }
        cr_assert_eq(lm_keep(r.session, &r.c, at, rows), WEIR_OK);
    }
    lm_run_close(&r);
    return most;
}

static double compare_after(weir_session *s, weir_checkpoint *expected)
{
    static float wanted[VALUES_MAX], has[VALUES_MAX];
    double most = 0;
    int compared = 0;
    for (int i = 0; i < weir_checkpoint_get_info(expected)->tensors; i++) {
        const char *name = weir_checkpoint_get_tensor(expected, i)->name;
        weir_shape shape;
        if (strncmp(name, "after:", 6) != 0)
            continue;
        const int count = take(expected, name, WEIR_F32, wanted, &shape);
        weir_array value = {has, WEIR_F32, shape};
        cr_assert_eq(weir_session_read(s, name + 6, &value), WEIR_OK, "%s", weir_error());
        most = fmax(most, differ(has, wanted, count));
        compared++;
    }
    cr_assert_eq(compared, 2);
    return most;
}

/* The mean loss of a step, and the parameters behind it. */
static double compare_training(const char *path, weir_checkpoint *expected)
{
    static int32_t batch[VALUES_MAX], labels[VALUES_MAX];
    float loss, rate, sum, count;
    char why[1024] = "";
    weir_shape shape, one;
    lm_config c;
    take(expected, "batch", WEIR_I32, batch, &shape);
    take(expected, "labels", WEIR_I32, labels, &shape);
    take(expected, "loss", WEIR_F32, &loss, &one);
    take(expected, "rate", WEIR_F32, &rate, &one);
    cr_assert(lm_read(path, &c, why, sizeof why), "%s", why);
    const lm_training t = {.batch = (int)shape.dim[0], .seq = (int)shape.dim[1], .optimizer = weir_sgd(.lr = (double)rate)};
    weir_graph *g = lm_train_graph(&c, &t);
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 1, .cluster = {.alone = true});
    cr_assert(s && !lm_load(s, &c), "%s", weir_error());
    cr_assert(!weir_session_start(s, 1) && !weir_session_push(s, "tokens", &(weir_array){batch, WEIR_I32, shape}, 60000) &&
              !weir_session_push(s, "labels", &(weir_array){labels, WEIR_I32, shape}, 60000) &&
              !weir_session_pull(s, "loss", &(weir_array){&sum, WEIR_F32, {.rank = 0}}, 60000) &&
              !weir_session_pull(s, "count", &(weir_array){&count, WEIR_F32, {.rank = 0}}, 60000) && !weir_session_wait(s, 60000), "%s",
              weir_error());
    const double most = fmax(fabs((double)sum / (double)count - (double)loss), compare_after(s, expected));
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return most;
}

Test(lm_files, folders_of_transformers_have_its_logits_and_its_training)
{
    const char *root = getenv("WEIR_LM_FOLDERS");
    DIR *dir = root ? opendir(root) : NULL;
    if (!root)
        cr_skip_test("WEIR_LM_FOLDERS is not set");
    cr_assert(dir, "%s", root);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[LM_PATH_BYTES], file[LM_PATH_BYTES];
        if (*entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/model.gguf", root, entry->d_name);
        if (!folder_has(path))
            snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        snprintf(file, sizeof file, "%s/%s/expected.safetensors", root, entry->d_name);
        weir_checkpoint *expected = weir_checkpoint_open(file);
        cr_assert(expected, "%s", weir_error());
        const double logits = compare_logits(path, expected), training = compare_training(path, expected);
        fprintf(stderr, "%-20s logits %.1e, training %.1e\n", entry->d_name, logits, training);
        cr_expect_lt(logits, 1e-4, "%s: logits differ by %g", entry->d_name, logits);
        cr_expect_lt(training, 1e-4, "%s: training differs by %g", entry->d_name, training);
        weir_checkpoint_close(expected);
    }
    closedir(dir);
}
