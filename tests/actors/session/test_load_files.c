/* tests/actors/session/test_load_files.c: a session loads what other programs saved: a model in several files, and a GGUF file. */
#include "tests/support/folder.h"
#include "tests/support/gguf_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(load_files, .init = folder_make, .fini = folder_remove, .timeout = 120);

/* A safetensors file of one f32 tensor. */
static void write_tensor(const char *file, const char *name, const char *shape, const float *values, int count)
{
    char bytes[512] = {0};
    int length = snprintf(bytes + 8, sizeof bytes - 8, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,%d]}}",
                          name, shape, 4 * count);
    bytes[0] = (char)length;
    memcpy(bytes + 8 + length, values, 4 * (size_t)count);
    folder_write(folder_path("%s", file), bytes, 8 + (size_t)length + 4 * (size_t)count);
}

Test(load_files, a_session_starts_with_a_model_in_several_files)
{
    static const float weight[6] = {1, 2, 3, 4, 5, 6}, bias[2] = {0.5f, -0.5f};
    static const char map[] = "{\"metadata\":{\"total_size\":32},\"weight_map\":{\"l/weight\":\"a.safetensors\","
                              "\"l/bias\":\"b.safetensors\"}}";
    float got[6];
    write_tensor("a.safetensors", "l/weight", "3,2", weight, 6);
    write_tensor("b.safetensors", "l/bias", "2", bias, 2);
    folder_write(folder_path("model.safetensors.index.json"), map, sizeof map - 1);
    weir_graph *g = weir_graph_new("affine");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 3}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true);
    weir_fetch(weir_linear(x, 2, .name = "l"), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    cr_assert(s, "%s", weir_error());
    cr_assert(!weir_session_load(s, folder_path(".")), "%s", weir_error());
    cr_expect(!weir_session_read(s, "l/weight", &(weir_array){got, WEIR_F32, {2, {3, 2}}}), "%s", weir_error());
    cr_expect(!memcmp(got, weight, sizeof weight));
    cr_expect(!weir_session_read(s, "l/bias", &(weir_array){got, WEIR_F32, {1, {2}}}), "%s", weir_error());
    cr_expect(!memcmp(got, bias, sizeof bias));
    remove(folder_path("b.safetensors"));
    cr_expect_neq(weir_session_load(s, folder_path("model.safetensors.index.json")), WEIR_OK);
    cr_expect(strstr(weir_error(), "b.safetensors: cannot be read: No such file"), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* A weight of 3 rows in two blocks each, whose elements are row + column / 8, and a bias of 64 numbers. */
static void write_gguf(const char *path)
{
    static struct gguf_file file;
    int q[32];
    gguf_file_begin(&file, 2, 0);
    gguf_file_tensor(&file, "l/weight", &(weir_shape){2, {3, 64}}, GGUF_Q8_0, 0);
    gguf_file_tensor(&file, "l/bias", &(weir_shape){1, {64}}, GGUF_F16, 224);
    gguf_file_align(&file, 32);
    for (int block = 0; block < 6; block++) {
        for (int i = 0; i < 32; i++)
            q[i] = block / 2 * 8 + block % 2 * 32 + i;
        gguf_file_q8_0(&file, 0.125f, q);
    }
    gguf_file_align(&file, 32);
    for (int i = 0; i < 64; i++)
        gguf_file_f16(&file, (float)i / 4);
    folder_write(path, file.bytes, file.count);
}

Test(load_files, a_session_starts_with_a_gguf_file)
{
    float weight[3 * 64], bias[64];
    const char *path = folder_path("m.gguf");
    write_gguf(path);
    weir_graph *g = weir_graph_new("affine");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 3}, .name = "x");
    weir_fetch(weir_linear(x, 64, .name = "l", .weight = {WEIR_S(1)}), .name = "y"); /* columns on two devices */
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan) : NULL;
    cr_assert(s, "%s", weir_error());
    cr_assert(!weir_session_load(s, path, .parameters = true), "%s", weir_error());
    cr_assert(!weir_session_read(s, "l/weight", &(weir_array){weight, WEIR_F32, {2, {3, 64}}}), "%s", weir_error());
    cr_assert(!weir_session_read(s, "l/bias", &(weir_array){bias, WEIR_F32, {1, {64}}}), "%s", weir_error());
    for (int i = 0; i < 3 * 64; i++)
        cr_expect_eq(weight[i], (float)(i / 64) + (float)(i % 64) / 8);
    for (int i = 0; i < 64; i++)
        cr_expect_eq(bias[i], (float)i / 4);
    folder_cut(path, folder_size(path) - 1);
    cr_expect_neq(weir_session_load(s, path, .parameters = true), WEIR_OK);
    cr_expect(strstr(weir_error(), "m.gguf: tensor l/bias: its data, bytes 224 to 352, is not in the file"), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}
