/* tests/actors/session/test_mapped.c: parameters whose values stay in a file: they are planned apart, read where they are, by as many
 * layouts as there are readers, and a rank touches the pages of its part alone. */
#define _GNU_SOURCE
#include "graph/plan/form/plan.h"
#include "graph/plan/prove/validate.h"
#include "tests/support/effort.h"
#include "tests/support/folder.h"
#include "tests/support/gguf_file.h"
#include "tests/support/ranks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

TestSuite(mapped, .init = folder_make, .fini = folder_remove, .timeout = 120);

enum { IN = 24, OUT = 10 };

#define expect_error_has(part) cr_expect(strstr(weir_error(), part), "'%s' lacks '%s'", weir_error(), part)

/* ---- files ---- */

static float weight_at(int64_t i)
{
    return (float)(i * 37 % 101) / 64 - 0.75f;
}

static float *weights(int64_t count)
{
    float *values = malloc(sizeof *values * (size_t)count);
    for (int64_t i = 0; i < count; i++)
        values[i] = weight_at(i);
    return values;
}

/* A safetensors file with "b" in front of "w" [out, in]. */
static const char *write_weights(const char *name, int64_t out, int64_t in)
{
    const char *path = folder_path("%s", name);
    float *w = weights(out * in), b[3] = {7, 8, 9};
    weir_checkpoint_writer *to = weir_checkpoint_create(path);
    cr_assert(to, "%s", weir_error());
    cr_assert(!weir_checkpoint_add(to, &(weir_checkpoint_value){.name = "b", .slots = 1, .value = {b, WEIR_F32, {1, {3}}}}));
    cr_assert(!weir_checkpoint_add(to, &(weir_checkpoint_value){.name = "w", .slots = 1, .value = {w, WEIR_F32, {2, {out, in}}}}));
    cr_assert(!weir_checkpoint_finish(to), "%s", weir_error());
    free(w);
    return path;
}

/* One by hand: this text, and so many bytes 0, 1, 2, ... of data. */
static const char *write_by_hand(const char *name, const char *text, size_t data_bytes)
{
    static unsigned char bytes[1 << 14];
    const char *path = folder_path("%s", name);
    const size_t length = strlen(text);
    memset(bytes, 0, sizeof bytes);
    bytes[0] = (unsigned char)length;
    bytes[1] = (unsigned char)(length >> 8);
    for (size_t i = 0; i < length; i++)
        bytes[8 + i] = text[i] == '\'' ? '"' : (unsigned char)text[i];
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char)i;
    folder_write(path, bytes, 8 + length + data_bytes);
    return path;
}

/* ---- graphs: y = x w^T ---- */

static weir_graph *product(const char *devices, int64_t out, int64_t in, weir_sbp sbp, bool mapped)
{
    weir_graph *g = weir_graph_new("product");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {1, in}, .name = "x");
    weir_tensor *w = weir_param(g, WEIR_F32, {out, in}, .name = "w", .sbp = {sbp}, .frozen = true, .mapped = mapped);
    weir_fetch(weir_matmul(x, w, .trans_b = true, .name = "y"), .name = "y");
    return g;
}

static weir_plan *compiled(weir_graph *g)
{
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    return plan;
}

static weir_session *opened(const weir_plan *plan, const char *path)
{
    weir_session *s = weir_session_open(plan, .weights = path);
    cr_assert(s, "%s", weir_error());
    return s;
}

static weir_status step(weir_session *s, int64_t out, int64_t in, float *y)
{
    float *x = weights(in);
    weir_status status = weir_session_start(s, 1);
    if (!status)
        status = weir_session_push(s, "x", &(weir_array){x, WEIR_F32, {2, {1, in}}}, -1);
    if (!status)
        status = weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {2, {1, out}}}, -1);
    free(x);
    return status ? status : weir_session_wait(s, -1);
}

static void expect_product(const float *y, int64_t out, int64_t in)
{
    for (int64_t o = 0; o < out; o++) {
        double sum = 0;
        for (int64_t i = 0; i < in; i++)
            sum += (double)weight_at(i) * (double)weight_at(o * in + i);
        cr_expect_float_eq(y[o], sum, 1e-4, "y[%lld] is %g, not %g", (long long)o, (double)y[o], sum);
    }
}

static uint64_t bytes_of_kind(const weir_plan *plan, weir_device_kind kind)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].kind == (uint32_t)kind ? plan->spaces[s].bytes : 0;
    return bytes;
}

/* ---- values ---- */

Test(mapped, a_parameter_has_the_values_of_a_safetensors_file)
{
    float y[OUT], w[OUT * IN], *want = weights(OUT * IN);
    weir_graph *g = product("cpu:0", OUT, IN, WEIR_AUTO, true);
    weir_plan *plan = compiled(g);
    weir_session *s = opened(plan, write_weights("m.safetensors", OUT, IN));
    cr_assert(!step(s, OUT, IN, y), "%s", weir_error());
    expect_product(y, OUT, IN);
    cr_expect(!weir_session_read(s, "w", &(weir_array){w, WEIR_F32, {2, {OUT, IN}}}), "%s", weir_error());
    cr_expect(!memcmp(w, want, sizeof w));
    cr_expect_eq(weir_session_write(s, "w", &(weir_array){w, WEIR_F32, {2, {OUT, IN}}}), WEIR_E_ARGUMENT);
    expect_error_has("'w' is mapped from a file, which is only read");
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    free(want);
}

Test(mapped, debug_runs_leave_the_file_alone)
{
    float y[OUT];
    weir_graph *g = product("cpu:0-1", OUT, IN, WEIR_S(0), true);
    weir_plan *plan = compiled(g);
    weir_session *s = weir_session_open(plan, .weights = write_weights("m.safetensors", OUT, IN), .poison = true, .check_finite = true);
    cr_assert(s, "%s", weir_error());
    for (int i = 0; i < 3; i++)
        cr_assert(!step(s, OUT, IN, y), "%s", weir_error());
    expect_product(y, OUT, IN);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

static weir_status count_rows(void *ctx, const weir_shard *shard)
{
    int64_t *rows = ctx;
    *rows += shard->view.shape.dim[0];
    cr_expect(!strncmp(shard->device, "mapped:", 7));
    cr_expect_eq(((const float *)shard->view.data)[0], weight_at(shard->view.offset[0] * IN));
    return WEIR_OK;
}

Test(mapped, a_visit_sees_the_shards_in_the_file)
{
    int64_t rows = 0;
    weir_graph *g = product("cpu:0-2", OUT, IN, WEIR_S(0), true);
    weir_plan *plan = compiled(g);
    weir_session *s = opened(plan, write_weights("m.safetensors", OUT, IN));
    cr_assert(!weir_session_visit(s, "w", count_rows, &rows), "%s", weir_error());
    cr_expect_eq(rows, OUT);
    weir_session_param info;
    cr_assert_eq(weir_session_params(s, &info, 1), 1);
    cr_expect(info.frozen && info.shards == 3 && !info.torn);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(mapped, its_bytes_are_planned_apart_and_no_memory_is_taken_for_them)
{
    weir_graph *g = product("cpu:0", 512, 512, WEIR_AUTO, true), *copied = product("cpu:0", 512, 512, WEIR_AUTO, false);
    weir_plan *plan = weir_compile(g, .memory = "768KiB");
    cr_assert(plan, "%s", weir_error());
    cr_expect_null(weir_compile(copied, .memory = "768KiB"));
    cr_expect_eq(bytes_of_kind(plan, WEIR_MAPPED), 1 << 20);
    cr_expect_eq(weir_plan_bytes(plan, -1), bytes_of_kind(plan, WEIR_CPU));
    cr_expect_leq(weir_plan_bytes(plan, -1), 768 << 10);
    weir_session *s = opened(plan, write_weights("m.safetensors", 512, 512));
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.planned_bytes, weir_plan_bytes(plan, -1));
    cr_expect_eq(stats.arena_bytes, stats.planned_bytes);
    char text[16384] = "";
    FILE *to = fmemopen(text, sizeof text, "w");
    cr_assert(!weir_plan_show(plan, to));
    fclose(to);
    cr_expect(strstr(text, " and 1.0 MiB of files that are mapped"), "%s", text);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    weir_graph_free(copied);
}

/* Two programs' worth of readers: on two devices by rows, and on one of them whole. */
static weir_graph *many_readers(bool mapped)
{
    weir_graph *g = weir_graph_new("readers");
    weir_mesh *two = weir_mesh_new(g, "cpu:0-1"), *second = weir_mesh_new(g, "cpu:1");
    weir_tensor *x = weir_input(g, WEIR_F32, {1, IN}, .name = "x"), *w = NULL, *rows = NULL, *whole = NULL;
    WEIR_ON(two)
    {
        w = weir_param(g, WEIR_F32, {OUT, IN}, .name = "w", .sbp = {WEIR_S(0)}, .frozen = true, .mapped = mapped);
        rows = weir_matmul(x, w, .trans_b = true, .name = "rows");
    }
    WEIR_ON(second)
    {
        whole = weir_matmul(weir_shard(x, .mesh = second), w, .trans_b = true, .name = "whole");
    }
    weir_fetch(weir_add(weir_shard(rows, .mesh = second), whole), .name = "y");
    return g;
}

static void run_readers(weir_session *s, float y[OUT])
{
    cr_assert(!step(s, OUT, IN, y), "%s", weir_error());
}

Test(mapped, readers_have_it_in_their_layouts_without_a_conversion_and_with_the_bits_of_a_copy)
{
    float y[OUT], want[OUT];
    const char *path = write_weights("m.safetensors", OUT, IN);
    weir_graph *g = many_readers(true), *copied = many_readers(false);
    weir_plan *plan = compiled(g), *other = compiled(copied);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        for (uint32_t o = plan->kernels[k].in.first; o < plan->kernels[k].in.first + plan->kernels[k].in.count; o++) {
            const plan_tensor *in = &plan->tensors[plan->operands[o].tensor.i];
            if (plan->spaces[plan_tensor_space(plan, in).i].kind == WEIR_MAPPED)
                cr_expect_str_eq(plan_text(plan, plan->kernels[k].op), "matmul");
        }
    cr_expect_eq(bytes_of_kind(plan, WEIR_MAPPED), 512 + 512 + 960); /* five rows each, padded, and ten on the second */
    weir_session *s = opened(plan, path), *loaded = weir_session_open(other);
    cr_assert(loaded && !weir_session_load(loaded, path, .partial = true), "%s", weir_error());
    run_readers(s, y);
    run_readers(loaded, want);
    cr_expect(!memcmp(y, want, sizeof y));
    cr_expect(!weir_plan_verify(g, plan), "%s", weir_error());
    weir_session_close(s);
    weir_session_close(loaded);
    weir_plan_free(plan);
    weir_plan_free(other);
    weir_graph_free(g);
    weir_graph_free(copied);
}

Test(mapped, a_plan_that_was_saved_runs_with_the_file)
{
    float y[OUT];
    weir_graph *g = product("cpu:0-1", OUT, IN, WEIR_S(0), true);
    weir_plan *plan = compiled(g);
    cr_assert(!weir_plan_save(plan, folder_path("m.plan")), "%s", weir_error());
    weir_plan *loaded = weir_plan_load(folder_path("m.plan"));
    cr_assert(loaded && loaded->hash == plan->hash, "%s", weir_error());
    weir_session *s = opened(loaded, write_weights("m.safetensors", OUT, IN));
    cr_assert(!step(s, OUT, IN, y), "%s", weir_error());
    expect_product(y, OUT, IN);
    weir_session_close(s);
    weir_plan_free(loaded);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(mapped, two_programs_read_one_parameter)
{
    float y[OUT];
    weir_graph *g = product("cpu:0-1", OUT, IN, WEIR_AUTO, true);
    WEIR_PROGRAM(g, "second")
    {
        weir_tensor *x = weir_input(g, WEIR_F32, {2, IN}, .name = "x2");
        weir_tensor *w = weir_param(g, WEIR_F32, {OUT, IN}, .name = "w", .frozen = true, .mapped = true);
        weir_fetch(weir_matmul(x, w, .trans_b = true, .name = "y2"), .name = "y2");
    }
    weir_plan *plan = compiled(g);
    weir_session *s = opened(plan, write_weights("m.safetensors", OUT, IN));
    cr_assert(!step(s, OUT, IN, y), "%s", weir_error());
    expect_product(y, OUT, IN);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* The smallest multiple of the elements' size that is no multiple of more. */
Test(mapped, kernels_read_it_where_it_is_not_aligned)
{
    enum { ROWS = 48, COLUMNS = 80 };
    static const char text[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[48,80],\"data_offsets\":[0,15360]}}                ";
    static char bytes[8 + sizeof text + 4 * ROWS * COLUMNS];
    float y[ROWS], *w = weights(ROWS * COLUMNS);
    const size_t header = 8 + strlen(text), data_at = header - header % 8 - 4;
    bytes[0] = (char)(data_at - 8);
    memcpy(bytes + 8, text, data_at - 8);
    memcpy(bytes + data_at, w, 4 * ROWS * COLUMNS);
    folder_write(folder_path("m.safetensors"), bytes, data_at + 4 * ROWS * COLUMNS);
    weir_graph *g = product("cpu:0-1", ROWS, COLUMNS, WEIR_S(0), true);
    weir_plan *plan = compiled(g);
    weir_session *s = opened(plan, folder_path("m.safetensors"));
    cr_assert(!step(s, ROWS, COLUMNS, y), "%s", weir_error());
    expect_product(y, ROWS, COLUMNS);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    free(w);
}

/* ---- other files ---- */

/* y = x + the u8 blocks of "w" as numbers, and the mapped f32 "b". */
static weir_graph *blocks_graph(bool mapped)
{
    weir_graph *g = weir_graph_new("blocks");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *w = weir_param(g, WEIR_U8, {4, 2, 34}, .name = "w", .sbp = {WEIR_S(0)}, .frozen = true, .mapped = mapped);
    weir_tensor *b = weir_param(g, WEIR_F32, {34}, .name = "b", .frozen = true, .mapped = mapped);
    weir_fetch(weir_add(weir_cast(w, WEIR_F32), b), .name = "y");
    return g;
}

/* A Q8_0 tensor [4, 64] and an f32 bias; *blocks is where the blocks lie in `file`. */
static const char *write_gguf(struct gguf_file *file, const unsigned char **blocks)
{
    const char *path = folder_path("m.gguf");
    int q[32];
    gguf_file_begin(file, 2, 0);
    gguf_file_tensor(file, "w", &(weir_shape){2, {4, 64}}, GGUF_Q8_0, 0);
    gguf_file_tensor(file, "b", &(weir_shape){1, {34}}, GGUF_F32, 288);
    gguf_file_align(file, 32);
    *blocks = file->bytes + file->count;
    for (int block = 0; block < 8; block++) {
        for (int i = 0; i < 32; i++)
            q[i] = block * 7 + i - 40;
        gguf_file_q8_0(file, 0.125f * (float)(block + 1), q);
    }
    gguf_file_align(file, 32);
    for (int i = 0; i < 34; i++)
        gguf_file_bytes(file, &(float){(float)i / 4}, sizeof(float));
    folder_write(path, file->bytes, file->count);
    return path;
}

static void expect_blocks(weir_session *s, const unsigned char *blocks)
{
    float y[4][2][34];
    unsigned char read[4 * 2 * 34];
    cr_assert(!weir_session_start(s, 1) && !weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {3, {4, 2, 34}}}, -1), "%s",
              weir_error());
    cr_assert(!weir_session_wait(s, -1));
    for (int i = 0; i < 4 * 2 * 34; i++)
        cr_expect_eq((&y[0][0][0])[i], (float)blocks[i] + (float)(i % 34) / 4);
    cr_expect(!weir_session_read(s, "w", &(weir_array){read, WEIR_U8, {3, {4, 2, 34}}}), "%s", weir_error());
    cr_expect(!memcmp(read, blocks, sizeof read));
}

Test(mapped, blocks_of_a_gguf_file_are_bytes_mapped_or_loaded)
{
    static struct gguf_file file;
    const unsigned char *blocks;
    const char *path = write_gguf(&file, &blocks);
    weir_graph *g = blocks_graph(true), *copied = blocks_graph(false);
    weir_plan *plan = compiled(g), *other = compiled(copied);
    weir_session *s = opened(plan, path), *loaded = weir_session_open(other);
    expect_blocks(s, blocks);
    cr_assert(loaded && !weir_session_load(loaded, path, .parameters = true), "%s", weir_error());
    expect_blocks(loaded, blocks);
    weir_session_close(s);
    weir_session_close(loaded);
    weir_plan_free(plan);
    weir_plan_free(other);
    weir_graph_free(g);
    weir_graph_free(copied);
}

Test(mapped, a_box_of_blocks_is_read_as_bytes)
{
    static struct gguf_file file;
    const unsigned char *blocks;
    weir_checkpoint *c = weir_checkpoint_open(write_gguf(&file, &blocks));
    cr_assert(c, "%s", weir_error());
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "w");
    unsigned char bytes[2][1][5];
    cr_assert(!weir_checkpoint_read(c, t, 0, (const int64_t[]){1, 1, 3}, &(weir_array){bytes, WEIR_U8, {3, {2, 1, 5}}}), "%s",
              weir_error());
    for (int row = 0; row < 2; row++)
        cr_expect(!memcmp(bytes[row], blocks + ((row + 1) * 2 + 1) * 34 + 3, 5));
    cr_expect_eq(weir_checkpoint_read(c, t, 0, (const int64_t[]){1, 1, 30}, &(weir_array){bytes, WEIR_U8, {3, {2, 1, 5}}}),
                 WEIR_E_ARGUMENT);
    expect_error_has("m.gguf: tensor w: the bytes to be read are not all in its blocks");
    weir_checkpoint_close(c);
}

Test(mapped, a_model_in_several_files_is_mapped_by_its_index)
{
    static const char map[] = "{\"metadata\":{},\"weight_map\":{\"w\":\"a.safetensors\",\"b\":\"b.safetensors\"}}";
    float y[34];
    unsigned char bytes[34];
    write_by_hand("a.safetensors", "{'w':{'dtype':'U8','shape':[1,1,34],'data_offsets':[0,34]}}", 34);
    write_by_hand("b.safetensors", "{'b':{'dtype':'F32','shape':[34],'data_offsets':[0,136]}}   ", 136);
    folder_write(folder_path("model.safetensors.index.json"), map, sizeof map - 1);
    weir_graph *g = weir_graph_new("sharded");
    weir_tensor *w = weir_param(g, WEIR_U8, {1, 1, 34}, .name = "w", .frozen = true, .mapped = true);
    weir_tensor *b = weir_param(g, WEIR_F32, {34}, .name = "b", .frozen = true, .mapped = true);
    weir_fetch(weir_mul(b, weir_param(g, WEIR_F32, {34}, .name = "one", .frozen = true, .init = WEIR_VALUE(1))), .name = "y");
    weir_fetch(w, .name = "w");
    weir_plan *plan = compiled(g);
    weir_session *s = opened(plan, folder_path("."));
    cr_assert(!weir_session_start(s, 1) && !weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {1, {34}}}, -1) &&
              !weir_session_pull(s, "w", &(weir_array){bytes, WEIR_U8, {3, {1, 1, 34}}}, -1), "%s", weir_error());
    cr_assert(!weir_session_wait(s, -1));
    for (int i = 0; i < 34; i++) {
        const unsigned char four[4] = {(unsigned char)(4 * i), (unsigned char)(4 * i + 1), (unsigned char)(4 * i + 2),
                                       (unsigned char)(4 * i + 3)};
        cr_expect(!memcmp(&y[i], four, 4));
        cr_expect_eq(bytes[i], i);
    }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- what a checkpoint has ---- */

static void add_name(char *text, size_t bytes, const weir_checkpoint *c)
{
    for (int t = 0; t < weir_checkpoint_get_info(c)->tensors; t++)
        snprintf(text + strlen(text), bytes - strlen(text), "%s ", weir_checkpoint_get_tensor(c, t)->name);
}

Test(mapped, a_checkpoint_has_the_other_values_alone)
{
    const char *path = write_weights("m.safetensors", OUT, IN);
    char names[256] = "";
    weir_graph *g = weir_graph_new("tuned");
    weir_mesh_new(g, "cpu:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {1, IN}, .name = "x");
    weir_tensor *w = weir_param(g, WEIR_F32, {OUT, IN}, .name = "w", .frozen = true, .mapped = true);
    weir_tensor *delta = weir_param(g, WEIR_F32, {1, OUT}, .name = "delta");
    weir_tensor *y = weir_add(weir_matmul(x, w, .trans_b = true), delta);
    weir_fetch(y, .name = "y");
    weir_train(weir_mean(weir_mul(y, y)), weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g, .snapshot = true);
    cr_assert(plan, "%s", weir_error());
    weir_session *s = opened(plan, path);
    float out[OUT], read[OUT];
    cr_assert(!step(s, OUT, IN, out), "%s", weir_error());
    cr_assert(!weir_session_save(s, folder_path("runs"), .async = true) && !weir_session_save_wait(s, -1), "%s", weir_error());
    weir_session_close(s);
    weir_checkpoint *c = weir_checkpoint_open(folder_path("runs"));
    cr_assert(c, "%s", weir_error());
    add_name(names, sizeof names, c);
    cr_expect_str_eq(names, "delta ");
    weir_checkpoint_close(c);
    s = opened(plan, path);
    cr_assert(!weir_session_load(s, folder_path("runs")), "%s", weir_error());
    cr_expect_eq(weir_session_step(s), 1);
    cr_assert(!weir_session_read(s, "delta", &(weir_array){read, WEIR_F32, {2, {1, OUT}}}), "%s", weir_error());
    for (int i = 0; i < OUT; i++)
        cr_expect_neq(read[i], 0);
    cr_expect(!weir_plan_verify(g, plan) && !weir_gradients_verify(g), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(mapped, half_precision_makes_no_copy_of_it)
{
    float y[OUT];
    weir_graph *g = product("cpu:0-1", OUT, IN, WEIR_S(0), true);
    weir_plan *plan = weir_compile(g, .precision = WEIR_BF16);
    cr_assert(plan, "%s", weir_error());
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        cr_expect_neq(plan->regsts[r].kind, PLAN_COPY);
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        cr_expect(strcmp(plan_text(plan, plan->kernels[k].op), "cast"));
    weir_session *s = opened(plan, write_weights("m.safetensors", OUT, IN));
    cr_assert(!step(s, OUT, IN, y), "%s", weir_error());
    expect_product(y, OUT, IN);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- what is refused ---- */

static void expect_open_fails(const weir_plan *plan, const char *path, const char *words)
{
    weir_session *s = weir_session_open(plan, .weights = path);
    cr_expect_null(s, "%s is mapped", path ? path : "nothing");
    expect_error_has(words);
    weir_session_close(s);
}

Test(mapped, a_file_that_does_not_fit_is_refused_in_one_sentence)
{
    weir_graph *g = product("cpu:0", 3, 8, WEIR_AUTO, true), *plain = product("cpu:0", 3, 8, WEIR_AUTO, false);
    weir_plan *plan = compiled(g), *other = compiled(plain);
    char shape[] = "{'w':{'dtype':'F32','shape':[8,3],'data_offsets':[0,96]}} ";
    expect_open_fails(plan, write_by_hand("shape.safetensors", shape, 96),
                      "shape.safetensors: tensor w is F32 [8, 3], and f32 [3, 8] in the plan");
    expect_open_fails(plan, write_by_hand("dtype.safetensors", "{'w':{'dtype':'BF16','shape':[3,8],'data_offsets':[0,48]}}", 48),
                      "dtype.safetensors: tensor w is BF16 [3, 8], and f32 [3, 8] in the plan");
    expect_open_fails(plan, write_by_hand("name.safetensors", "{'w1':{'dtype':'F32','shape':[3,8],'data_offsets':[0,96]}}", 96),
                      "name.safetensors: has no tensor 'w', which is f32 [3, 8] in the plan; there is 'w1'");
    expect_open_fails(plan, write_by_hand("odd.safetensors", "{'w':{'dtype':'F32','shape':[3,8],'data_offsets':[0,96]}}", 96),
                      "odd.safetensors: tensor w begins at byte 65, which is no multiple of f32's 4 bytes, so it cannot be mapped");
    expect_open_fails(plan, NULL, "'w' is mapped, so .weights must be the file that has it");
    expect_open_fails(other, folder_path("odd.safetensors"), "but no parameter of the plan is .mapped");
    expect_open_fails(plan, folder_path("none.safetensors"), "none.safetensors: cannot be opened: No such file");
    const char *cut = write_weights("cut.safetensors", 3, 8);
    folder_cut(cut, folder_size(cut) - 1);
    expect_open_fails(plan, cut, "cut.safetensors");
    weir_plan_free(plan);
    weir_plan_free(other);
    weir_graph_free(g);
    weir_graph_free(plain);
}

Test(mapped, quantised_blocks_are_no_numbers)
{
    static struct gguf_file file;
    const unsigned char *blocks;
    weir_graph *g = product("cpu:0", 4, 64, WEIR_AUTO, true);
    weir_plan *plan = compiled(g);
    expect_open_fails(plan, write_gguf(&file, &blocks), "m.gguf: tensor w is Q8_0 [4, 64], and f32 [4, 64] in the plan");
    weir_plan_free(plan);
    weir_graph_free(g);
}

static void expect_mistake(weir_graph *g, const char *words)
{
    cr_expect(weir_graph_mistake(g) && strstr(weir_graph_mistake(g), words), "'%s' lacks '%s'", weir_graph_mistake(g), words);
    weir_graph_free(g);
}

Test(mapped, mistakes_name_the_parameter)
{
    weir_graph *g = weir_graph_new("trained");
    weir_param(g, WEIR_F32, {2, 2}, .name = "w", .mapped = true);
    expect_mistake(g, "w: a parameter that is .mapped cannot be trained; add .frozen = true");
    g = weir_graph_new("started");
    weir_param(g, WEIR_F32, {2, 2}, .name = "w", .frozen = true, .mapped = true, .init = WEIR_VALUE(1));
    expect_mistake(g, "w: a parameter that is .mapped has the values of a file, and no .init");
    g = weir_graph_new("columns");
    weir_mesh_new(g, "cpu:0-1");
    weir_param(g, WEIR_F32, {2, 2}, .name = "w", .frozen = true, .mapped = true, .sbp = {WEIR_S(1)});
    expect_mistake(g, "w: a parameter that is .mapped is B or S(0), not S(1)");
    g = weir_graph_new("card");
    weir_mesh_new(g, "cuda:0");
    weir_param(g, WEIR_F32, {2, 2}, .name = "w", .frozen = true, .mapped = true);
    expect_mistake(g, "w: a parameter that is .mapped is on CPUs, not on \"cuda:0\"");
    g = weir_graph_new("laid out");
    weir_mesh_new(g, "cpu:0-1");
    weir_shard(weir_param(g, WEIR_F32, {2, 2}, .name = "w", .frozen = true, .mapped = true), .sbp = {WEIR_S(1)});
    expect_mistake(g, "w: a parameter that is .mapped is B or S(0), not S(1)");
}

/* ---- plans that nobody compiled ---- */

static void expect_refused(weir_plan *plan, uint32_t *member, uint32_t value, const char *words)
{
    const uint32_t was = *member;
    *member = value;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN, "%s", words);
    expect_error_has(words);
    *member = was;
}

Test(mapped, plans_with_other_things_in_files_are_refused)
{
    weir_graph *g = product("cpu:0-1", OUT, IN, WEIR_S(0), true);
    weir_plan *plan = compiled(g);
    uint32_t space = 0, regst = 0;
    while (plan->spaces[space].kind != WEIR_MAPPED)
        space++;
    while (plan->regsts[regst].space.i != space)
        regst++;
    plan_tensor *tensor = &plan->tensors[plan->regsts[regst].tensors.first];
    expect_refused(plan, &plan->spaces[space].index, 7, "lies in mapped:0, which a queue of cpu:0 does not reach");
    expect_refused(plan, &plan->spaces[0].kind, WEIR_MAPPED, "has no kernel for mapped");
    expect_refused(plan, &plan->regsts[regst].kind, PLAN_KEPT, "mapped:0 has constants of one tensor, which are parameters");
    expect_refused(plan, &plan->params[0].frozen, 0, "a frozen parameter has all or none");
    expect_refused(plan, &plan->params[0].shards.count, 1, "regsts: 2 are mapped, and 1 of these are parameters");
    tensor->global[1]++;
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN);
    tensor->global[1]--;
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- pages ---- */

enum { BIG_OUT = 16384, BIG_IN = 256, KIB = 16384 }; /* 16 MiB */
enum { AROUND = 2048 + 256 };                        /* KiB that the system may map at an end beside those that are touched: a huge page */

/* A line of the mapping of the file in /proc/self/smaps, in KiB. */
static long smaps_kib(const char *file, const char *line)
{
    char text[512];
    long sum = 0, number;
    bool here = false;
    FILE *from = fopen("/proc/self/smaps", "r");
    while (from && fgets(text, sizeof text, from)) {
        if (strchr(text, '-') && strchr(text, ' ') && strchr(text, '-') < strchr(text, ' '))
            here = strstr(text, file);
        else if (here && !strncmp(text, line, strlen(line)) && sscanf(text + strlen(line), ": %ld kB", &number) == 1)
            sum += number;
    }
    if (from)
        fclose(from);
    return sum;
}

struct pages {
    const weir_plan *plan;
    const char *path;
};

/* The result: the rank's pages of the file, and its share of them. Both ranks are in the middle of their steps then. */
static void touch(struct rank *rank)
{
    const struct pages *job = rank->ctx;
    float *y = malloc(sizeof *y * BIG_OUT), *x = weights(BIG_IN);
    weir_session *s = weir_session_open(job->plan, .weights = job->path, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    for (int i = 0; i < 3; i++) {
        RANK_OK(rank, weir_session_start(s, 1));
        if (!rank->number)
            RANK_OK(rank, weir_session_push(s, "x", &(weir_array){x, WEIR_F32, {2, {1, BIG_IN}}}, -1));
        RANK_OK(rank, weir_session_pull(s, "y", &(weir_array){y, WEIR_F32, {2, {1, BIG_OUT}}}, -1));
        RANK_OK(rank, weir_session_wait(s, -1));
        if (i == 1) {
            ((long *)rank->result)[0] = smaps_kib("big.safetensors", "Rss");
            ((long *)rank->result)[1] = smaps_kib("big.safetensors", "Pss");
        }
    }
    for (int o = 0; o < BIG_OUT; o += 97) {
        double sum = 0;
        for (int i = 0; i < BIG_IN; i++)
            sum += (double)x[i] * (double)weight_at((int64_t)o * BIG_IN + i);
        RANK_IS(rank, fabs(y[o] - sum) < 1e-3, "y[%d] is %g, not %g", o, (double)y[o], sum);
    }
    RANK_OK(rank, weir_session_close(s));
    free(x);
    free(y);
}

Test(mapped, a_rank_touches_the_pages_of_its_part)
{
    weir_graph *g = product("cpu:0-1", BIG_OUT, BIG_IN, WEIR_S(0), true);
    weir_plan *plan = compiled(g);
    struct pages job = {plan, write_weights("big.safetensors", BIG_OUT, BIG_IN)};
    struct ranks *ranks = ranks_run(touch, &job, .count = 2, .result_bytes = 64);
    for (int r = 0; r < 2; r++) {
        const long *kib = ranks->rank[r].result;
        cr_expect(kib[0] >= KIB / 2 && kib[0] <= KIB / 2 + AROUND, "rank %d has %ld KiB of the file", r, kib[0]);
    }
    ranks_free(ranks);
    weir_plan_free(plan);
    weir_graph_free(g);
}

#if EFFORT(1, 1, 0) /* a process with threads starts another, which ThreadSanitizer forbids */
/* This process has the pages already, and so has the one that it starts then. */
Test(mapped, processes_share_the_pages)
{
    float *y = malloc(sizeof *y * BIG_OUT);
    weir_graph *g = product("cpu:0", BIG_OUT, BIG_IN, WEIR_AUTO, true);
    weir_plan *plan = compiled(g);
    struct pages job = {plan, write_weights("big.safetensors", BIG_OUT, BIG_IN)};
    weir_session *s = opened(plan, job.path);
    cr_assert(!step(s, BIG_OUT, BIG_IN, y), "%s", weir_error());
    struct ranks *ranks = ranks_run(touch, &job, .count = 1, .result_bytes = 64);
    const long *kib = ranks->rank[0].result;
    cr_expect(kib[0] >= KIB, "the process has %ld KiB of the file", kib[0]);
    cr_expect(kib[1] >= KIB / 2 - 256 && kib[1] <= KIB / 2 + 256, "its share is %ld KiB", kib[1]);
    ranks_free(ranks);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    free(y);
}
#endif
