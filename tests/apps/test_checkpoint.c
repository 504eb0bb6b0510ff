/* tests/apps/test_checkpoint.c: `weir checkpoint`, run as a user runs it, on checkpoints made here and by weir-gpt's
 * shapes. */
#define _GNU_SOURCE
#include "tests/apps/shell.h"
#include "tests/support/gguf_file.h"
#include "tests/support/json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir/weir.h>

TestSuite(checkpoint, .init = folder_make, .fini = folder_remove, .timeout = 120);

static void expect_says(const char *words)
{
    cr_expect(strstr(output, words), "\"%s\" is not in: %s", words, output);
}

/* ---- a small model ---- */

static float value_of(const char *name, int64_t i)
{
    return (float)(strlen(name) * 1000) + (float)name[strlen(name) - 1] + (float)i / 8;
}

static void add(weir_checkpoint_writer *w, const char *name, weir_param_kind kind, weir_shape shape)
{
    static float data[64][512];
    static int turn;
    float *to = data[turn++ % 64];
    for (int64_t i = 0; i < weir_shape_count(&shape); i++)
        to[i] = value_of(name, i);
    weir_checkpoint_value value = {.name = name, .kind = kind, .value = {to, WEIR_F32, shape}};
    cr_assert(weir_checkpoint_add(w, &value) == WEIR_OK, "%s", weir_error());
}

/* A weir-gpt of two blocks of width 8, without most of what is the same in kind. */
static void make_model(const char *path, int64_t step)
{
    static const char *const square[] = {"q", "k", "v", "o"};
    char name[64];
    weir_checkpoint_writer *w = weir_checkpoint_create(path, .step = step, .seed = 11, .graph_hash = 0xABC,
                                                       .program = "test 1");
    cr_assert(w, "%s", weir_error());
    add(w, "wpe", WEIR_PARAMETER, (weir_shape){2, {6, 8}});
    add(w, "wte/weight", WEIR_PARAMETER, (weir_shape){2, {10, 8}});
    add(w, "head/weight", WEIR_PARAMETER, (weir_shape){2, {8, 10}});
    add(w, "ln/gain", WEIR_PARAMETER, (weir_shape){1, {8}});
    add(w, "ln/bias", WEIR_PARAMETER, (weir_shape){1, {8}});
    add(w, "ln/bias:adamw.m", WEIR_OPTIMIZER_STATE, (weir_shape){1, {8}});
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "h%d/%s/weight", layer, square[i]);
            add(w, name, WEIR_PARAMETER, (weir_shape){2, {8, 8}});
            snprintf(name, sizeof name, "h%d/%s/bias", layer, square[i]);
            add(w, name, WEIR_PARAMETER, (weir_shape){1, {8}});
        }
        for (int ln = 1; ln <= 2; ln++)
            for (int bias = 0; bias < 2; bias++) {
                snprintf(name, sizeof name, "h%d/ln%d/%s", layer, ln, bias ? "bias" : "gain");
                add(w, name, WEIR_PARAMETER, (weir_shape){1, {8}});
            }
        for (int down = 0; down < 2; down++) {
            snprintf(name, sizeof name, "h%d/%s/weight", layer, down ? "down" : "up");
            add(w, name, WEIR_PARAMETER, (weir_shape){2, {down ? 32 : 8, down ? 8 : 32}});
            snprintf(name, sizeof name, "h%d/%s/bias", layer, down ? "down" : "up");
            add(w, name, WEIR_PARAMETER, (weir_shape){1, {down ? 8 : 32}});
        }
    }
    cr_assert(weir_checkpoint_finish(w) == WEIR_OK, "%s", weir_error());
}

static weir_checkpoint *must_open(const char *path)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_assert(c, "%s", weir_error());
    return c;
}

/* Whether two checkpoints have the same tensors with the same values. `all`: all of a are in b. */
static void expect_same(const char *path_a, const char *path_b, int count)
{
    weir_checkpoint *a = must_open(path_a), *b = must_open(path_b);
    cr_expect_eq(weir_checkpoint_get_info(b)->tensors, count, "%s has %d tensors", path_b,
                 weir_checkpoint_get_info(b)->tensors);
    for (int i = 0; i < count; i++) {
        static float x[4096], y[4096];
        const weir_checkpoint_tensor *to = weir_checkpoint_get_tensor(b, i);
        const weir_checkpoint_tensor *from = weir_checkpoint_find(a, to->name);
        cr_assert(from && weir_shape_equal(&from->shape, &to->shape), "%s differs", to->name);
        cr_expect_eq(from->kind, to->kind, "%s is of another kind", to->name);
        cr_expect(!weir_checkpoint_read(a, from, 0, NULL, &(weir_array){x, from->dtype, from->shape}));
        cr_expect(!weir_checkpoint_read(b, to, 0, NULL, &(weir_array){y, to->dtype, to->shape}));
        cr_expect(!memcmp(x, y, (size_t)weir_shape_count(&to->shape) * 4), "%s has other values", to->name);
    }
    weir_checkpoint_close(a);
    weir_checkpoint_close(b);
}

enum { PARAMETERS = 5 + 2 * 16, TENSORS = PARAMETERS + 1 };

/* ---- ls and verify ---- */

Test(checkpoint, ls_lists_the_checkpoints_of_a_folder_in_their_order)
{
    make_model(folder_path("a/step-99999999"), 99999999);
    make_model(folder_path("a/step-100000000"), 100000000);
    make_model(folder_path("a/best"), 7);
    must_run("weir checkpoint ls $T/a");
    const char *best = strstr(output, "  best"), *early = strstr(output, "  step-99999999"),
               *late = strstr(output, "  step-100000000");
    cr_expect(best && early && late && early < late, "%s", output);
    must_run("weir checkpoint ls $T/a --json");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_count(output, "\"step\""), 3);
}

Test(checkpoint, ls_shows_what_is_in_one)
{
    make_model(folder_path("a/step-00000007"), 7);
    must_run("weir checkpoint ls $T/a/step-00000007");
    expect_says("step 7, saved");
    expect_says("by test 1, seed 11");
    expect_says("graph 0000000000000abc");
    expect_says("h1/q/weight");
    expect_says("[8, 8]");
    must_run("weir checkpoint ls --json $T/a/step-00000007");
    cr_expect(json_valid(output), "%s", output);
    cr_expect_eq(json_count(output, "\"shards\""), TENSORS);
    cr_expect_eq(json_count(output, "\"optimizer\""), 1);
}

Test(checkpoint, verify_says_that_all_is_whole_or_names_file_and_tensor)
{
    make_model(folder_path("a/step-00000007"), 7);
    make_model(folder_path("a/step-00000008"), 8);
    must_run("weir checkpoint verify $T/a");
    expect_says("step-00000007: whole; 38 tensors in 1 files");
    const char *path = folder_path("a/step-00000007/rank-0000.safetensors");
    folder_flip(path, folder_size(path) - 1);
    cr_expect_eq(run("weir checkpoint verify $T/a"), 1);
    expect_says("step-00000007/rank-0000.safetensors: tensor h1/down/bias: the bytes of");
    expect_says("step-00000008: whole");
    folder_cut(path, 5000);
    cr_expect_eq(run("weir checkpoint verify $T/a/step-00000007"), 1);
    expect_says("rank-0000.safetensors: tensor wpe: the file has 5000 bytes");
}

Test(checkpoint, mistakes_on_the_command_line_are_one_sentence)
{
    static const char *const wrong[][2] = {
        {"weir checkpoint", "needs ls, verify or convert"},
        {"weir checkpoint show x", "there is no verb \"show\""},
        {"weir checkpoint ls $T/none", "cannot read"},
        {"weir checkpoint ls $T", "is no checkpoint, and has none in it"},
        {"weir checkpoint verify $T/none", "No such file"},
        {"weir checkpoint convert $T/none $T/b", "there is no"},
        {"weir checkpoint convert $T $T/b --reverse", "--reverse needs --map"},
    };
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        cr_expect_eq(run(wrong[i][0]), 2, "%s", wrong[i][0]);
        expect_says(wrong[i][1]);
    }
    must_run("weir checkpoint --help");
    must_run("weir checkpoint convert --help");
}

/* ---- convert ---- */

Test(checkpoint, file_and_folder_of_npy_and_back_are_the_same_parameters)
{
    make_model(folder_path("a/step-00000007"), 7);
    must_run("weir checkpoint convert $T/a $T/m.safetensors");
    expect_says("m.safetensors: 37 tensors");
    must_run("weir checkpoint convert $T/m.safetensors $T/n --npy");
    cr_expect(folder_has(folder_path("n/h0/q/weight.npy")));
    must_run("weir checkpoint convert $T/n $T/b");
    expect_same(folder_path("a"), folder_path("m.safetensors"), PARAMETERS);
    expect_same(folder_path("a"), folder_path("b"), PARAMETERS);
    must_run("weir checkpoint verify $T/b");
}

Test(checkpoint, all_that_a_checkpoint_has_goes_through_one_file)
{
    make_model(folder_path("a/step-00000007"), 7);
    must_run("weir checkpoint convert $T/a $T/m.safetensors --all && "
             "weir checkpoint convert $T/m.safetensors $T/b/step-00000007 --all");
    expect_same(folder_path("a"), folder_path("b"), TENSORS);
    weir_checkpoint *c = must_open(folder_path("b"));
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    cr_expect(info->step == 7 && info->seed == 11 && info->graph_hash == 0xABC && !strcmp(info->program, "test 1"));
    weir_checkpoint_close(c);
}

#define MAP "apps/weir-gpt/gpt2.map"

Test(checkpoint, names_of_gpt2_there_and_back_are_the_same_parameters)
{
    make_model(folder_path("a"), 7);
    must_run("weir checkpoint convert $T/a $T/hf.safetensors --map " MAP " --reverse");
    weir_checkpoint *c = must_open(folder_path("hf.safetensors"));
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "h.1.attn.c_attn.weight");
    cr_assert(t && t->shape.rank == 2 && t->shape.dim[0] == 8 && t->shape.dim[1] == 24);
    float row[24];
    cr_expect(!weir_checkpoint_read(c, t, 0, (int64_t[]){3, 0}, &(weir_array){row, WEIR_F32, {2, {1, 24}}}));
    for (int i = 0; i < 24; i++)
        cr_expect_eq(row[i], value_of(i < 8 ? "h1/q/weight" : i < 16 ? "h1/k/weight" : "h1/v/weight", 24 + i % 8));
    t = weir_checkpoint_find(c, "lm_head.weight");
    cr_expect(t && t->shape.dim[0] == 10 && t->shape.dim[1] == 8);
    weir_checkpoint_close(c);
    must_run("weir checkpoint convert $T/hf.safetensors $T/b --map " MAP);
    expect_same(folder_path("a"), folder_path("b"), PARAMETERS);
}

/* As openai-community/gpt2 has them: no head of its own, masks that are no parameters, and a prefix in some. */
Test(checkpoint, tied_head_is_the_embedding_and_what_the_map_does_not_name_is_left)
{
    make_model(folder_path("a"), 7);
    must_run("weir checkpoint convert $T/a $T/n --npy --map " MAP " --reverse && rm $T/n/lm_head.weight.npy && "
             "cp $T/n/h.0.attn.c_attn.bias.npy $T/n/h.0.attn.bias.npy && "
             "mv $T/n/wte.weight.npy $T/n/transformer.wte.weight.npy && "
             "weir checkpoint convert $T/n $T/b --map " MAP);
    weir_checkpoint *c = must_open(folder_path("b"));
    float column[10];
    const weir_checkpoint_tensor *head = weir_checkpoint_find(c, "head/weight");
    cr_assert(head && head->shape.dim[0] == 8 && head->shape.dim[1] == 10);
    cr_expect(!weir_checkpoint_read(c, head, 0, (int64_t[]){5, 0}, &(weir_array){column, WEIR_F32, {2, {1, 10}}}));
    for (int i = 0; i < 10; i++)
        cr_expect_eq(column[i], value_of("wte/weight", 8 * i + 5));
    cr_expect_eq(weir_checkpoint_get_info(c)->tensors, PARAMETERS);
    weir_checkpoint_close(c);
}

static void expect_map_fails(const char *line, const char *words)
{
    char text[512];
    snprintf(text, sizeof text, "# a comment\n%s\n", line);
    folder_write(folder_path("map"), text, strlen(text));
    cr_expect_eq(run("weir checkpoint convert $T/a $T/b --map $T/map"), 1, "%s", line);
    expect_says("/map:2: ");
    expect_says(words);
    cr_expect(!folder_has(folder_path("b")));
}

Test(checkpoint, mistakes_in_a_map_are_named_with_their_line)
{
    make_model(folder_path("a"), 7);
    expect_map_fails("x", "is not NAME = NAME");
    expect_map_fails("x = wpe[0", "is not NAME = NAME");
    expect_map_fails("x{i} = wpe", "is not NAME = NAME");
    expect_map_fails("x{i} = h{i}/q/weight | wpe", "is not NAME = NAME");
    expect_map_fails("x = wpe[0:a]", "is not NAME = NAME");
    expect_map_fails("x = wpe[0:2]", "tensor wpe has no such slice");
    expect_map_fails("x = wpe[:, 0:9]", "tensor wpe has no such slice");
    expect_map_fails("x = wpe[:, 0:1/3]", "tensor wpe has no such slice");
    expect_map_fails("x = ln/bias.T", "cannot be transposed");
    expect_map_fails("x = nothing", "there is no tensor nothing");
    expect_map_fails("x{i} = nothing{i} | neither{i}", "there is no tensor nothing{i}");
}

/* ---- .npy of others ---- */

static void write_npy(const char *name, const char *dictionary, size_t data_bytes)
{
    char bytes[512];
    size_t length = strlen(dictionary);
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    bytes[8] = (char)length;
    bytes[9] = 0;
    memcpy(bytes + 10, dictionary, length);
    memset(bytes + 10 + length, 7, data_bytes);
    mkdir(folder_path("n"), 0777);
    folder_write(folder_path("n/%s.npy", name), bytes, 10 + length + data_bytes);
}

Test(checkpoint, npy_files_that_are_not_understood_are_named)
{
    static const struct {
        const char *dictionary, *words;
        size_t bytes;
    } wrong[] = {
        {"{'descr': '>f8', 'fortran_order': False, 'shape': (2,), }",
         "is of type >f8, which is not read; in Python, numpy.save(\"", 16},
        {"{'descr': '>f8', 'fortran_order': False, 'shape': (2,), }", ".astype(\"<f8\")) converts it", 16},
        {"{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }", ".astype(\"<i8\")) converts it", 8},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", "is of type <c8; <f4, ", 16},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", "not as long as its header says", 8},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", "numpy.ascontiguousarray(numpy.load(", 16},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "not as long as its header says", 9},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999, 9999999), }", "not as long", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "is not an .npy file", 8},
        {"{'descr': '<f4', 'fortran_order': False, }", "is not an .npy file", 8},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "is not an .npy file", 8},
        {"{'descr': '<f4'", "is not an .npy file", 8},
    };
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        write_npy("w", wrong[i].dictionary, wrong[i].bytes);
        cr_expect_eq(run("weir checkpoint convert $T/n $T/m.safetensors"), 1, "%s", wrong[i].dictionary);
        expect_says("n/w.npy: ");
        expect_says(wrong[i].words);
    }
    write_npy("w", "{'shape': (2, 1), 'fortran_order': False, 'descr': '<i4'}  \n", 8);
    must_run("weir checkpoint convert $T/n $T/m.safetensors");
}

static void write_wide(const char *descr, const void *values)
{
    char dictionary[128], bytes[512];
    int length = snprintf(dictionary, sizeof dictionary,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (3,), }\n", descr);
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    bytes[8] = (char)length;
    bytes[9] = 0;
    memcpy(bytes + 10, dictionary, (size_t)length);
    memcpy(bytes + 10 + length, values, 24);
    mkdir(folder_path("n"), 0777);
    folder_write(folder_path("n/w.npy"), bytes, 10 + (size_t)length + 24);
}

Test(checkpoint, npy_files_of_eight_bytes_are_read_as_f64_and_i64_are)
{
    const double real[3] = {0.1, -1e-300, INFINITY}, large[3] = {1, 1e300, 2};
    const int64_t whole[3] = {INT32_MIN, 7, INT32_MAX};
    float f32[3];
    int32_t i32[3];
    int64_t i64[3];
    write_wide("<f8", real);
    must_run("weir checkpoint convert $T/n $T/f.safetensors");
    weir_checkpoint *c = must_open(folder_path("f.safetensors"));
    cr_expect(!weir_checkpoint_read(c, weir_checkpoint_find(c, "w"), 0, NULL, &(weir_array){f32, WEIR_F32, {1, {3}}}));
    cr_expect(f32[0] == 0.1f && f32[1] == 0 && f32[2] == INFINITY);
    weir_checkpoint_close(c);
    write_wide("<i8", whole);
    must_run("weir checkpoint convert $T/n $T/i.safetensors");
    c = must_open(folder_path("i.safetensors"));
    cr_expect(!weir_checkpoint_read(c, weir_checkpoint_find(c, "w"), 0, NULL, &(weir_array){i32, WEIR_I32, {1, {3}}}));
    cr_expect(i32[0] == INT32_MIN && i32[1] == 7 && i32[2] == INT32_MAX);
    cr_expect(!weir_checkpoint_read(c, weir_checkpoint_find(c, "w"), 0, NULL, &(weir_array){i64, WEIR_I64, {1, {3}}}));
    cr_expect(!memcmp(i64, whole, sizeof i64));
    weir_checkpoint_close(c);
    write_wide("<f8", large);
    cr_expect_eq(run("weir checkpoint convert $T/n $T/l.safetensors"), 1);
    expect_says("n/w.npy: tensor w: has a value of <f8 that f32 cannot hold");
    must_run("weir checkpoint convert $T/i.safetensors $T/again --npy && od -c $T/again/w.npy");
    expect_says("<   i   8");
}

Test(checkpoint, a_tensor_that_is_not_read_fails_a_conversion_or_is_left_out_by_a_word)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                 "\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[4,8]},"
                                 "\"z\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[8,12]}}";
    char bytes[512] = {(char)(sizeof header - 1)};
    memcpy(bytes + 8, header, sizeof header - 1);
    bytes[1] = (char)((sizeof header - 1) >> 8);
    folder_write(folder_path("m.safetensors"), bytes, 8 + sizeof header - 1 + 12);
    must_run("weir checkpoint ls $T/m.safetensors");
    expect_says("F8_E4M3  [4]                 whole  not read");
    expect_says("F32   [1, 1, 1, 1, 1, 1, 1]  whole  not read");
    must_run("weir checkpoint ls --json $T/m.safetensors");
    cr_expect(json_valid(output) && json_count(output, "\"read\": false") == 2, "%s", output);
    must_run("weir checkpoint verify $T/m.safetensors");
    cr_expect_eq(run("weir checkpoint convert $T/m.safetensors $T/b"), 1);
    expect_says("m.safetensors: tensor q: its type, F8_E4M3, is not read; --skip-unread leaves out such tensors");
    cr_expect(!folder_has(folder_path("b")));
    must_run("weir checkpoint convert $T/m.safetensors $T/b --skip-unread");
    expect_says("2 tensors are left out; the first is q: its type, F8_E4M3, is not read");
    expect_says("b: 1 tensors");
}

/* A weight of 2 rows of 32 in Q4_1, whose elements are 0.5 * column / 2 - row; a half; a tensor that is not read. */
static void write_gguf(const char *path)
{
    static struct gguf_file file;
    int q[32];
    for (int i = 0; i < 32; i++)
        q[i] = i / 2;
    gguf_file_begin(&file, 3, 1);
    gguf_file_text(&file, "general.architecture"), gguf_file_u32(&file, 8), gguf_file_text(&file, "ll\033[2Jama");
    gguf_file_tensor(&file, "blk.0.w", &(weir_shape){2, {2, 32}}, GGUF_Q4_1, 0);
    gguf_file_tensor(&file, "h", &(weir_shape){1, {2}}, GGUF_F16, 64);
    gguf_file_tensor(&file, "z", &(weir_shape){1, {256}}, GGUF_Q2_K, 96);
    gguf_file_align(&file, 32);
    gguf_file_q4(&file, true, 0.5f, 0, q);
    gguf_file_q4(&file, true, 0.5f, -1, q);
    gguf_file_align(&file, 32);
    gguf_file_f16(&file, 1.5f), gguf_file_f16(&file, -2);
    gguf_file_align(&file, 32);
    for (int i = 0; i < 84 / 4; i++)
        gguf_file_u32(&file, 0);
    folder_write(path, file.bytes, file.count);
}

Test(checkpoint, a_gguf_file_is_listed_verified_and_converted)
{
    float w[64];
    uint16_t half[2];
    write_gguf(folder_path("m.gguf"));
    must_run("weir checkpoint ls $T/m.gguf");
    expect_says("Q4_1  [2, 32]             whole\n");
    expect_says("Q2_K  [256]               whole  not read");
    expect_says("architecture ll\\x1b[2Jama");
    must_run("weir checkpoint ls --json $T/m.gguf");
    cr_expect(json_valid(output) && json_count(output, "\"type\": \"Q4_1\"") == 1, "%s", output);
    must_run("weir checkpoint verify $T/m.gguf");
    expect_says("m.gguf: whole; 3 tensors");
    cr_expect_eq(run("weir checkpoint convert $T/m.gguf $T/m.safetensors"), 1);
    expect_says("m.gguf: tensor z: its type, Q2_K, is not read; --skip-unread leaves out such tensors");
    must_run("echo 'h0/weight = blk.0.w.T' >$T/map; echo 'h = h' >>$T/map");
    must_run("weir checkpoint convert $T/m.gguf $T/m.safetensors --map $T/map --skip-unread");
    weir_checkpoint *c = must_open(folder_path("m.safetensors"));
    const weir_checkpoint_tensor *weight = weir_checkpoint_find(c, "h0/weight"), *h = weir_checkpoint_find(c, "h");
    cr_assert(weight && h && h->dtype == WEIR_F16 && weight->dtype == WEIR_F32);
    cr_assert(!weir_checkpoint_read(c, weight, 0, NULL, &(weir_array){w, WEIR_F32, {2, {32, 2}}}), "%s", weir_error());
    for (int i = 0; i < 64; i++)
        cr_expect_eq(w[i], 0.5f * (float)(i / 2 / 2) - (float)(i % 2));
    cr_assert(!weir_checkpoint_read(c, h, 0, NULL, &(weir_array){half, WEIR_F16, {1, {2}}}), "%s", weir_error());
    cr_expect(half[0] == 0x3E00 && half[1] == 0xC000);
    weir_checkpoint_close(c);
    cr_expect_eq(run("weir checkpoint convert $T/m.safetensors $T/out.gguf"), 1);
    expect_says("out.gguf: a checkpoint cannot be a GGUF file; name a folder, or a file that ends with .safetensors");
    cr_expect_eq(run("weir checkpoint ls $T/n.gguf"), 2);
    expect_says("m.gguf");
}

Test(checkpoint, a_model_in_several_files_is_listed_verified_and_converted)
{
    make_model(folder_path("a"), 7);
    must_run("weir checkpoint convert $T/a $T/hf/m-1.safetensors");
    static const char map[] = "{\"metadata\":{},\"weight_map\":{\"wpe\":\"m-1.safetensors\"}}";
    folder_write(folder_path("hf/model.safetensors.index.json"), map, sizeof map - 1);
    must_run("weir checkpoint ls $T/hf && weir checkpoint ls $T/hf/model.safetensors.index.json");
    expect_says("37 tensors: ");
    must_run("weir checkpoint ls $T | grep -F ' hf'");
    must_run("weir checkpoint verify $T/hf");
    expect_says("hf: whole; 37 tensors in 1 files");
    must_run("weir checkpoint convert $T/hf $T/b");
    expect_same(folder_path("a"), folder_path("b"), PARAMETERS);
    must_run("mv $T/hf/m-1.safetensors $T/hf/m-2.safetensors");
    cr_expect_eq(run("weir checkpoint convert $T/hf $T/d"), 1);
    expect_says("hf/m-1.safetensors: cannot be read: No such file or directory");
}

Test(checkpoint, name_that_leads_out_of_a_folder_is_refused)
{
    float value = 1;
    weir_checkpoint_writer *w = weir_checkpoint_create(folder_path("evil.safetensors"), .step = 0);
    weir_checkpoint_add(w, &(weir_checkpoint_value){.name = "../../escaped", .value = {&value, WEIR_F32, {0, {0}}}});
    cr_assert(weir_checkpoint_finish(w) == WEIR_OK);
    cr_expect_eq(run("weir checkpoint convert $T/evil.safetensors $T/n/n --npy"), 1);
    expect_says("tensor ../../escaped: its name cannot be that of a file");
    cr_expect(!folder_has(folder_path("escaped.npy")));
}

Test(checkpoint, numpy_reads_the_files_and_its_own_are_read)
{
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0)
        cr_skip_test("python3 has no numpy here");
    make_model(folder_path("a"), 7);
    must_run("weir checkpoint convert $T/a $T/n --npy");
    must_run("cd $T && python3 -c \"import numpy as np; w = np.load('n/wpe.npy'); "
             "assert w.dtype == np.float32 and w.shape == (6, 8) and w[0, 1] - w[0, 0] == 0.125; "
             "np.save('n/wpe.npy', w + 1); np.save('n/u.npy', np.arange(5, dtype=np.uint8)); "
             "np.save('n/i.npy', np.array(-3, dtype=np.int32))\"");
    must_run("weir checkpoint convert $T/n $T/b");
    weir_checkpoint *c = must_open(folder_path("b"));
    float w[48];
    int32_t i;
    unsigned char u[5];
    const weir_shape scalar = {0, {0}};
    const weir_shape matrix = {2, {6, 8}};
    cr_expect(!weir_checkpoint_read(c, weir_checkpoint_find(c, "wpe"), 0, NULL, &(weir_array){w, WEIR_F32, matrix}));
    cr_expect(!weir_checkpoint_read(c, weir_checkpoint_find(c, "i"), 0, NULL, &(weir_array){&i, WEIR_I32, scalar}));
    cr_expect(!weir_checkpoint_read(c, weir_checkpoint_find(c, "u"), 0, NULL, &(weir_array){u, WEIR_U8, {1, {5}}}));
    cr_expect(w[1] == value_of("wpe", 1) + 1 && i == -3 && u[4] == 4);
    weir_checkpoint_close(c);
}

/* ---- what is in the way ---- */

Test(checkpoint, convert_refuses_a_folder_of_the_user_and_moves_it_aside_when_told_to)
{
    make_model(folder_path("a"), 7);
    must_run("weir checkpoint convert $T/a $T/m.safetensors; mkdir -p $T/home/photos; echo mine >$T/home/notes.txt");
    cr_expect_eq(run("weir checkpoint convert $T/m.safetensors $T/home"), 1);
    expect_says("home: is in the way, and is no checkpoint: it has ");
    expect_says("--force moves it to ");
    must_run("test -d $T/home/photos && grep -q mine $T/home/notes.txt && test $(ls -A $T | wc -l) = 3");
    must_run("weir checkpoint convert $T/m.safetensors $T/home/ --force");
    expect_says("home.before-1 now");
    must_run("test -d $T/home.before-1/photos && grep -q mine $T/home.before-1/notes.txt; "
             "weir checkpoint verify $T/home");
    must_run("weir checkpoint convert $T/m.safetensors $T/home --force; test ! -e $T/home.before-2");
}

Test(checkpoint, convert_refuses_a_root_and_its_checkpoints_stay)
{
    must_run("mkdir $T/runs");
    make_model(folder_path("runs/step-00000001"), 1);
    make_model(folder_path("runs/step-00000002"), 2);
    must_run("weir checkpoint convert $T/runs $T/m.safetensors");
    cr_expect_eq(run("weir checkpoint convert $T/m.safetensors $T/runs"), 1);
    expect_says("runs: is in the way");
    must_run("weir checkpoint verify $T/runs; weir checkpoint convert $T/m.safetensors $T/runs/new");
    must_run("weir checkpoint convert $T/runs/step-00000001 $T/runs/new"); /* a checkpoint may be replaced */
}

Test(checkpoint, convert_refuses_files_and_npy_folders_that_are_there)
{
    make_model(folder_path("a"), 7);
    must_run("echo mine >$T/u.safetensors; mkdir $T/n; echo mine >$T/n/wpe.npy; ln -s n $T/l");
    cr_expect_eq(run("weir checkpoint convert $T/a $T/u.safetensors"), 1);
    expect_says("u.safetensors: is in the way, and is no file that weir has written");
    cr_expect_eq(run("weir checkpoint convert $T/a $T/n --npy"), 1);
    expect_says("n: is in the way, and has wpe.npy in it");
    cr_expect_eq(run("weir checkpoint convert $T/a $T/l --npy"), 1);
    cr_expect_eq(run("weir checkpoint convert $T/a $T/u.safetensors --npy"), 1);
    cr_expect_eq(run("weir checkpoint convert $T/a $T/l"), 1);
    must_run("grep -q mine $T/u.safetensors && grep -q mine $T/n/wpe.npy && test -L $T/l");
    must_run("weir checkpoint convert $T/a $T/u.safetensors --force; grep -q mine $T/u.safetensors.before-1");
    must_run("weir checkpoint convert $T/a $T/n --npy --force; grep -q mine $T/n.before-1/wpe.npy");
}

Test(checkpoint, conversion_that_fails_with_force_puts_back_what_was_moved)
{
    make_model(folder_path("a"), 7);
    must_run("mkdir $T/home; echo mine >$T/home/notes.txt; echo 'x = wpe[0:a]' >$T/map");
    cr_expect_eq(run("weir checkpoint convert $T/a $T/home --force --map $T/map"), 1);
    cr_expect_eq(run("ulimit -f 1; trap '' XFSZ; weir checkpoint convert $T/a $T/home --force"), 1, "%s", output);
    must_run("grep -q mine $T/home/notes.txt && test ! -e $T/home.before-1");
}

Test(checkpoint, ls_lists_what_interrupted_saves_and_older_builds_have_left)
{
    make_model(folder_path("runs/step-00000001"), 1);
    make_model(folder_path("runs/best"), 1);
    must_run("mkdir -p $T/runs/.home.0123456789abcdef/photos $T/runs/.hidden; "
             "cp -r $T/runs/best $T/runs/best.old-0123456789abcdef; weir checkpoint ls $T/runs");
    expect_says(".home.0123456789abcdef: not a whole checkpoint");
    expect_says("best.old-0123456789abcdef: a checkpoint that a save is replacing");
    cr_expect(!strstr(output, ".hidden"), "%s", output);
    must_run("weir checkpoint ls --json $T/runs 2>/dev/null");
    cr_expect(json_valid(output), "%s", output);
}
