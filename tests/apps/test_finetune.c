/* tests/apps/test_finetune.c: weir-gpt --model with something to train on: adapters and whole training, on a small model made here; in layouts
 * and processes, from a checkpoint, in bf16; adapter files that are wrong; weights that an adapter was added to. */
#include "apps/common/model/adapter_lm.h"
#include "tests/apps/shell.h"
#include "tests/support/bytes_tokenizer.h"
#include "tests/support/json.h"
#include "tests/support/lm_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TUNE APPS_BIN "/weir-gpt --seq 32 --batch 4 --seed 3 --model $T/llama "
#define CHAT TUNE "--chat $T/talks.jsonl "
#define SAME CHAT "--validate $T/talks.jsonl " /* judged by what is learned */
#define HAS(part) cr_expect(strstr(output, part), "\"%s\" is not in: %s", part, output)
#define LOSSES(log) "grep -o '\"step\": [0-9]*, \"loss\": [-0-9.e]*' $T/" log " | tac | sort -u -n -k2,2 >$T/" log ".losses"

static void write_talks(void)
{
    FILE *file = fopen(folder_path("talks.jsonl"), "w");
    cr_assert(file);
    for (int i = 0; i < 20; i++)
        fprintf(file, "{\"messages\": [{\"role\": \"user\", \"content\": \"%c\"}, {\"role\": \"assistant\", \"content\": \"%c%c\"}]}\n", 'a' + i, 'A' + i, 'a' + i);
    cr_assert(!fclose(file));
}

/* `sizes`: members of config.json; `width`: 8, or that of the model and its ffn. */
static void write_model(const char *sizes, int width)
{
    struct lm_case of = *lm_case_named("llama");
    char json[512];
    snprintf(json, sizeof json, "{\"model_type\": \"llama\", %s, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
             "\"vocab_size\": 258, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"eos_token_id\": 257}", sizes);
    of.json = json;
    of.c.vocab = BYTES_TOKENIZER_SIZE;
    of.c.dim = width;
    of.c.ffn = width > 12 ? width : 12;
    of.c.head_dim = width / 2;
    lm_case_make(&of);
    cr_assert(bytes_tokenizer_write(folder_path("llama")));
}

static void begin(void)
{
    shell_begin();
    write_model("\"hidden_size\": 8, \"intermediate_size\": 12", 8);
    write_talks();
}

TestSuite(finetune, .init = begin, .fini = folder_remove, .timeout = 300);

static double last_loss(void)
{
    const char *loss = strstr(output, "validation loss ");
    cr_assert(loss, "%s", output);
    return atof(loss + strlen("validation loss "));
}

Test(finetune, an_adapter_learns_and_is_written_as_peft_has_it)
{
    must_run(CHAT "--steps 1 --lr 0.000000001 2>&1");
    HAS("20 conversations, 2 held out; 2 layers, dim 8, on 1 device");
    must_run(SAME "--steps 1 --lr 0.000000001 2>&1");
    const double before = last_loss();
    must_run(SAME "--lora 2 --lora-targets q_proj,down_proj --steps 150 --lr 0.05 --save $T/runs 2>&1");
    HAS("20 conversations, 20 held out; 2 layers, dim 8, an adapter of rank 2, on 1 device");
    HAS("the adapter is in ");
    const double after = last_loss();
    cr_expect_lt(after, before - 1, "%g, before %g", after, before);
    char *config = json_read(folder_path("runs/adapter_config.json"));
    cr_expect(json_valid(config) && json_member(config, "r") == 2 && json_member(config, "lora_alpha") == 4, "%s", config);
    cr_expect(strstr(config, "\"q_proj\"") && strstr(config, "\"peft_type\": \"LORA\""), "%s", config);
    free(config);
    weir_checkpoint *file = weir_checkpoint_open(folder_path("runs/adapter_model.safetensors"));
    cr_assert(file, "%s", weir_error());
    cr_expect_eq(weir_checkpoint_get_info(file)->tensors, 2 * 2 * 2);
    const weir_checkpoint_tensor *a = weir_checkpoint_find(file, "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight");
    const weir_checkpoint_tensor *b = weir_checkpoint_find(file, "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight");
    cr_expect(a && b && a->shape.dim[0] == 2 && a->shape.dim[1] == 12 && b->shape.dim[0] == 8 && b->shape.dim[1] == 2);
    weir_checkpoint_close(file);
    must_run(SAME "--adapter $T/runs --steps 1 --lr 0.000000001 2>&1");
    cr_expect_lt(fabs(last_loss() - after), 2e-4);
    must_run(APPS_BIN "/weir-gpt --model $T/llama --adapter $T/runs --prompt ab --sample 3");
}

Test(finetune, whole_training_changes_the_model)
{
    must_run(SAME "--steps 60 --lr 0.02 --save $T/whole 2>&1");
    const double after = last_loss();
    must_run(SAME "--steps 1 --lr 0.000000001 2>&1");
    cr_expect_lt(after, last_loss() - 1, "%g, before %s", after, output);
    cr_expect(!folder_has(folder_path("whole/adapter_config.json")));
    must_run("weir checkpoint convert $T/whole $T/whole.safetensors");
    HAS("21 tensors");
}

Test(finetune, texts_and_token_ids_train_as_well)
{
    must_run(TUNE "--lora 2 --text README.md --steps 2 2>&1");
    HAS("windows, ");
    must_run("weir tokens encode --tokenizer $T/llama/tokenizer.json --as u16 $T/ids.bin README.md 2>&1 || "
             "weir tokens encode --tokenizer $T/llama/tokenizer.json --as u16 README.md >$T/ids.bin");
    must_run(TUNE "--lora 2 --tokens $T/ids.bin --steps 2 2>&1");
    HAS("1 file, ");
}

Test(finetune, layouts_and_processes_train_alike)
{
    must_run(CHAT "--lora 2 --steps 8 --lr 0.02 --log $T/one 2>&1");
    must_run(CHAT "--lora 2 --steps 8 --lr 0.02 --dp 2 --micro 2 --log $T/two --save $T/two-runs 2>&1");
    must_run(APPS_BIN "/weir launch -n 2 -- " CHAT "--lora 2 --steps 8 --lr 0.02 --dp 2 --micro 2 --log $T/ranks --save $T/ranks-runs 2>&1");
    must_run(LOSSES("two") "; " LOSSES("ranks") "; test -s $T/two.losses && cmp $T/two.losses $T/ranks.losses && "
             "cmp $T/two-runs/adapter_model.safetensors $T/ranks-runs/adapter_model.safetensors");
    must_run(CHAT "--lora 2 --steps 8 --lr 0.02 --tp 2 --pp 2 --log $T/four 2>&1");
    must_run(CHAT "--lora 2 --steps 8 --lr 0.02 --bf16 --log $T/half 2>&1");
    static const char *const logs[] = {"two", "four", "half"};
    char *want = json_read(folder_path("one"));
    for (int i = 0; i < 3; i++) {
        char *got = json_read(folder_path("%s", logs[i]));
        const char *a = strstr(want, "\"step\": 7"), *b = strstr(got, "\"step\": 7");
        cr_assert(a && b);
        cr_expect_lt(fabs(json_member(a, "loss") - json_member(b, "loss")), i < 2 ? 1e-4 : 0.05, "%s", logs[i]);
        free(got);
    }
    free(want);
}

Test(finetune, a_run_goes_on_from_its_checkpoint)
{
    must_run(CHAT "--lora 2 --steps 20 --log $T/whole --save $T/straight 2>&1");
    must_run(CHAT "--lora 2 --steps 20 --save $T/runs --save-every 10 --log $T/log 2>&1");
    must_run("rm -r $T/runs/step-00000020; " CHAT "--lora 2 --steps 20 --save $T/runs --resume $T/runs --log $T/log 2>&1");
    cr_expect(strstr(output, "goes on at step 10 of ") && !strstr(output, "are not those"), "%s", output);
    must_run(LOSSES("whole") "; " LOSSES("log") "; cmp $T/whole.losses $T/log.losses && "
             "cmp $T/straight/adapter_model.safetensors $T/runs/adapter_model.safetensors");
    must_run("head -n 15 $T/talks.jsonl >$T/other.jsonl; " TUNE "--chat $T/other.jsonl --lora 2 --steps 21 --resume $T/runs 2>&1");
    HAS("the samples are not those that it was saved with");
}

Test(finetune, a_card_gets_copies_of_the_weights)
{
    run(CHAT "--lora 2 --steps 1 --device cuda 2>&1");
    cr_expect(!strstr(output, ".mapped"), "%s", output);
}

/* Matrices of blocks, of a model as wide as a block. */
Test(finetune, activations_are_rounded_unless_f32_is_asked_for)
{
    static const char *const runs[] = {"exact --lora 2 --f32-activations", "rounded --lora 2", "loaded --f32-activations"};
    double loss[3];
    write_model("\"hidden_size\": 32, \"intermediate_size\": 32", 32);
    must_run("weir checkpoint convert --quantize q4_0 $T/llama $T/llama.gguf 2>&1");
    for (int i = 0; i < 3; i++) {
        char command[512];
        snprintf(command, sizeof command, APPS_BIN "/weir-gpt --seq 32 --batch 4 --seed 3 --model $T/llama.gguf --chat $T/talks.jsonl --steps 1 "
                 "--log $T/%s 2>&1", runs[i]);
        must_run(command);
        char *log = json_read(folder_path("%.*s", (int)strcspn(runs[i], " "), runs[i]));
        loss[i] = json_member(strstr(log, "\"step\": 0"), "loss");
        free(log);
    }
    cr_expect_lt(fabs(loss[0] - loss[2]), 1e-5, "%.9g, loaded as f32 %.9g", loss[0], loss[2]);
    cr_expect_gt(fabs(loss[1] - loss[2]), 1e-5, "%.9g, rounded %.9g", loss[0], loss[1]);
}

Test(finetune, merged_weights_are_the_base_and_the_adapter)
{
    must_run(CHAT "--lora 2 --steps 30 --lr 0.05 --save $T/runs 2>&1");
    const double with = last_loss();
    must_run("weir checkpoint convert --merge $T/runs $T/llama $T/merged 2>&1");
    HAS("21 tensors");
    must_run(APPS_BIN "/weir-gpt --seq 32 --batch 4 --seed 3 --model $T/merged --chat $T/talks.jsonl --steps 1 --lr 0.000000001 2>&1");
    cr_expect_lt(fabs(last_loss() - with), 2e-4, "%s", output);
    cr_expect_eq(run("weir checkpoint convert --merge $T/runs $T/llama $T/merged/config.json 2>&1"), 1);
    cr_expect_eq(run("weir checkpoint convert --merge $T/runs --npy $T/llama $T/x 2>&1"), 2);
    HAS("--merge writes a model's weights; it cannot be used with --npy");
}

Test(finetune, a_merge_keeps_the_files_that_are_there)
{
    must_run(CHAT "--lora 2 --steps 1 --save $T/runs 2>&1");
    must_run("mkdir $T/parts $T/taken; cp $T/llama/* $T/parts; mv $T/parts/model.safetensors $T/parts/a.safetensors; "
             "echo '{\"weight_map\": {\"model.norm.weight\": \"a.safetensors\"}}' >$T/parts/model.safetensors.index.json");
    must_run("weir checkpoint convert --merge $T/runs $T/parts $T/parts 2>&1 && cmp $T/llama/config.json $T/parts/config.json && "
             "cmp $T/llama/tokenizer.json $T/parts/tokenizer.json");
    must_run("echo mine >$T/taken/config.json");
    cr_expect_eq(run("weir checkpoint convert --merge $T/runs $T/llama $T/taken 2>&1"), 1);
    HAS("taken/config.json: is in the way, and is not a copy of ");
    must_run("grep -q mine $T/taken/config.json && test ! -e $T/taken/model.safetensors");
}

Test(finetune, an_adapter_beside_a_gguf_file_has_the_rows_of_transformers)
{
    weir_shape shape = {2, {8, 2}};
    float rows[16];
    lm_config c = {.head_dim = 4, .interleaved = true};
    for (int i = 0; i < 16; i++)
        rows[i] = (float)i;
    weir_array value = {rows, WEIR_F32, shape};
    cr_assert(lm_adapter_order(&c, "model.layers.0.self_attn.q_proj", &value, true));
    static const float in_file[] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    cr_expect_arr_eq(rows, in_file, sizeof in_file);
    cr_assert(lm_adapter_order(&c, "model.layers.0.self_attn.q_proj", &value, false));
    cr_assert(lm_adapter_order(&c, "model.layers.0.self_attn.v_proj", &value, false));
    for (int i = 0; i < 16; i++)
        cr_expect_eq(rows[i], (float)i);
}

/* ---- mistakes ---- */

static void refuses(const char *command, const char *says)
{
    cr_expect_eq(run(command), 2, "%s: %s", command, output);
    HAS(says);
}

Test(finetune, what_makes_no_sense_gets_a_sentence)
{
    refuses(APPS_BIN "/weir-gpt --lora 8 2>&1", "--lora needs --model");
    refuses(APPS_BIN "/weir-gpt --chat $T/talks.jsonl 2>&1", "--chat needs --model");
    refuses(TUNE "--lora 8 2>&1", "--lora needs something to train on: --chat, --text or --tokens");
    refuses(CHAT "--text README.md 2>&1", "--chat, --text and --tokens: give one of them");
    refuses(CHAT "--lora-alpha 3 2>&1", "need --lora RANK");
    refuses(CHAT "--lora 2 --adapter $T 2>&1", "--adapter goes on with an adapter as it is");
    refuses(CHAT "--lora 2 --lora-targets q_proj,,v 2>&1", "\"q_proj,,v\" is no list of at most 32 names of layers");
    refuses(CHAT "--lora 2 --lora-targets c_attn 2>&1", "no layer of the model is called c_attn; it has q_proj,k_proj,v_proj,o_proj,gate_proj");
    refuses(CHAT "--seq 65 2>&1", "--seq 65 is more than the 64 tokens that the model sees");
    refuses(CHAT "--vocab 9 2>&1", "--vocab is not for --model");
    refuses(CHAT "--dp 8 2>&1", "a micro-batch of 4 rows is too small for --dp 8");
    must_run("head -n 5 $T/talks.jsonl >$T/few.jsonl; echo '{\"prompt\": 1}' >$T/bad.jsonl");
    refuses(TUNE "--chat $T/few.jsonl --eval-every 1 2>&1", "5 samples are too few to hold some of them out");
    refuses(TUNE "--chat $T/bad.jsonl 2>&1", "/bad.jsonl:1: \"prompt\" and \"completion\" must both be texts");
    refuses(TUNE "--seq 1 --chat $T/few.jsonl 2>&1", "no reply begins within --seq");
}

#define CONFIG(members) "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\"]" members "}"

Test(finetune, settings_of_an_adapter_that_are_not_supported_are_refused_by_their_names)
{
    static const char *const configs[][2] = {
        {CONFIG(", \"use_rslora\": true"), "\"use_rslora\" is true, which is not supported"},
        {CONFIG(", \"use_dora\": true"), "\"use_dora\" is true, which is not supported"},
        {CONFIG(", \"modules_to_save\": [\"lm_head\"]"), "\"modules_to_save\" is [\"lm_head\"], which is not supported"},
        {CONFIG(", \"rank_pattern\": {\"q_proj\": 8}"), "\"rank_pattern\" is {\"q_proj\":8}, which is not supported"},
        {CONFIG(", \"bias\": \"all\""), "\"bias\" is \"all\"; only \"none\" is supported"},
        {CONFIG(", \"init_lora_weights\": \"pissa\""), "\"init_lora_weights\" is \"pissa\", which changes the weights of the base"},
        {CONFIG(", \"new \\u001b thing\": 1"), "\"new \\u001B thing\" is 1, which is not supported"},
        {CONFIG(", \"lora_dropout\": 1"), "\"lora_dropout\" is 1; it must be at least 0 and less than 1"},
        {"{\"peft_type\": \"IA3\"}", "\"peft_type\" is \"IA3\"; only LORA is supported"},
        {"{\"peft_type\": \"LORA\", \"r\": 0}", "\"r\" is 0; it must be a whole number from 1 to 4096"},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": \"x\"}", "\"lora_alpha\" is \"x\"; it must be a number"},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1, \"target_modules\": \"all-linear\"}", "\"target_modules\" is \"all-linear\"; it must be a list"},
        {"[]", "adapter_config.json: is not a JSON object"},
        {"{\n,", "adapter_config.json: line 2: is not JSON: "},
    };
    adapter a;
    char why[1024];
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        folder_write(folder_path("adapter_config.json"), configs[i][0], strlen(configs[i][0]));
        cr_expect(!adapter_read(folder_path("."), &a, why, sizeof why), "%s", configs[i][0]);
        cr_expect(strstr(why, configs[i][1]), "\"%s\" is not in: %s", configs[i][1], why);
    }
    static const char fine[] = CONFIG(", \"use_dora\": false, \"modules_to_save\": null, \"bias\": \"none\", \"lora_dropout\": 0.25, \"peft_version\": \"9\"");
    folder_write(folder_path("adapter_config.json"), fine, strlen(fine));
    cr_assert(adapter_read(folder_path("."), &a, why, sizeof why), "%s", why);
    cr_expect(a.rank == 2 && a.alpha == 4 && a.dropout == 0.25 && a.targets == 1);
    cr_expect(adapter_matches(&a, "model.layers.0.self_attn.q_proj") && adapter_matches(&a, "q_proj") && !adapter_matches(&a, "model.xq_proj"));
}

Test(finetune, an_adapter_of_another_model_names_a_tensor)
{
    must_run(CHAT "--lora 2 --steps 1 --save $T/runs 2>&1");
    must_run("sed 's/\"r\": 2/\"r\": 3/' $T/runs/adapter_config.json >$T/x && mv $T/x $T/runs/adapter_config.json");
    refuses(CHAT "--adapter $T/runs --steps 1 2>&1; exit 2", "it has another shape or type of base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    must_run("sed -e 's/\"r\": 3/\"r\": 2/' -e '/\"v_proj\"/d' $T/runs/adapter_config.json >$T/x && mv $T/x $T/runs/adapter_config.json");
    refuses(CHAT "--adapter $T/runs --steps 1 2>&1; exit 2", "the model has no layer for its tensor base_model.model.model.layers.0.self_attn.v_proj.lora_");
    cr_expect_eq(run("weir checkpoint convert --merge $T/llama $T/llama $T/y 2>&1"), 1);
    HAS("adapter_config.json: cannot be read: No such file or directory");
}
