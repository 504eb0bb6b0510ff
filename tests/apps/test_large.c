/* tests/apps/test_large.c: what is read of checkpoints takes time in proportion to how much it is: of many tensors, of
 * tensors of many shards, of a long position. Each of these takes a second or so; in proportion to the square it would
 * take minutes. */
#define _GNU_SOURCE
#include "actors/keep/format/index.h"
#include "tests/apps/shell.h"

#include <inttypes.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(large, .init = folder_make, .fini = folder_remove, .timeout = 120);

enum { TENSORS = 70000 };

/* A safetensors file of TENSORS scalars, called by the format; with a text for each, from the last to the first. */
static void write_many(const char *path, const char *name, bool texts)
{
    char *header = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&header, &length);
    cr_assert(to);
    fputs("{\"__metadata__\":{", to);
    for (int i = TENSORS - 1; texts && i >= 0; i--) {
        fputs(i < TENSORS - 1 ? ",\"weir.kind:" : "\"weir.kind:", to);
        fprintf(to, name, i);
        fputs("\":\"state\"", to);
    }
    fputs("}", to);
    for (int i = 0; i < TENSORS; i++) {
        fputs(",\"", to);
        fprintf(to, name, i);
        fprintf(to, "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}", 4 * i, 4 * i + 4);
    }
    fputs("}", to);
    cr_assert(!fclose(to));
    char *bytes = calloc(1, 8 + length + 4 * TENSORS);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (int i = 0; i < TENSORS; i++) {
        float value = (float)i;
        memcpy(bytes + 8 + length + 4 * (size_t)i, &value, 4);
    }
    folder_write(path, bytes, 8 + length + 4 * TENSORS);
    free(header);
    free(bytes);
}

static void expect_values(const char *path, const char *name)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_assert(c, "%s", weir_error());
    cr_expect_eq(weir_checkpoint_get_info(c)->tensors, TENSORS);
    for (int i = 0; i < TENSORS; i += 9999) {
        char full[64];
        float value = -1;
        snprintf(full, sizeof full, name, i);
        const weir_checkpoint_tensor *t = weir_checkpoint_find(c, full);
        cr_assert(t, "%s", full);
        cr_expect(!weir_checkpoint_read(c, t, 0, NULL, &(weir_array){&value, WEIR_F32, {1, {1}}}), "%s", weir_error());
        cr_expect_eq(value, (float)i);
    }
    weir_checkpoint_close(c);
}

Test(large, seventy_thousand_tensors_are_converted_and_verified)
{
    write_many(folder_path("m.safetensors"), "t%d", false);
    must_run("weir checkpoint convert $T/m.safetensors $T/c");
    must_run("weir checkpoint verify $T/c");
    must_run("weir checkpoint convert $T/c $T/n.safetensors");
    expect_values(folder_path("n.safetensors"), "t%d");
}

Test(large, seventy_thousand_tensors_are_renamed_there_and_back)
{
    write_many(folder_path("m.safetensors"), "h.%d.w", false);
    folder_write(folder_path("map"), "h{i}/w = h.{i}.w\n", 17);
    must_run("weir checkpoint convert $T/m.safetensors $T/a.safetensors --map $T/map");
    expect_values(folder_path("a.safetensors"), "h%d/w");
    must_run("weir checkpoint convert $T/a.safetensors $T/b.safetensors --map $T/map --reverse");
    expect_values(folder_path("b.safetensors"), "h.%d.w");
}

Test(large, texts_about_tensors_may_come_in_any_order)
{
    write_many(folder_path("m.safetensors"), "t%d", true);
    expect_values(folder_path("m.safetensors"), "t%d");
}

Test(large, a_position_of_four_megabytes_is_read)
{
    enum { BYTES = 4 << 20 };
    unsigned char *position = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        position[i] = (unsigned char)(i * 7 + i / 256);
    static const char *const names[] = {"c", "c.safetensors"};
    for (int i = 0; i < 2; i++) {
        weir_checkpoint_writer *w = weir_checkpoint_create(folder_path("%s", names[i]), .step = 1);
        cr_assert(!weir_checkpoint_add_source(w, &(weir_checkpoint_source){"text", 0, position, BYTES}));
        cr_assert(!weir_checkpoint_finish(w), "%s", weir_error());
        weir_checkpoint *c = weir_checkpoint_open(folder_path("%s", names[i]));
        cr_assert(c, "%s", weir_error());
        const weir_checkpoint_source *s = weir_checkpoint_get_source(c, 0);
        cr_expect(s && s->count == BYTES && !memcmp(s->bytes, position, BYTES));
        weir_checkpoint_close(c);
    }
    free(position);
}

/* ---- shards ---- */

enum { SIDE = 128, MANY = SIDE * SIDE };

/* Settles a tensor of MANY shards of one element: of a row, a column, or a square; `twice`: one is there twice, with
 * another checksum. */
static weir_status settle(int64_t rows, int64_t columns, bool twice)
{
    struct keep_index index = {.nonce = 1};
    struct keep_tensor *to;
    weir_checkpoint_tensor tensor = {.name = "w", .dtype = WEIR_F32, .shape = {2, {rows, columns}}, .slots = 1};
    cr_assert(!keep_index_add_file(&index, "f", 4 * MANY, 0) && !keep_index_add_tensor(&index, &tensor, &to));
    for (int i = 0; i < MANY; i++) {
        int at = i ^ 0x1555; /* not in their order */
        at = twice && i == 77 ? MANY / 2 : at;
        weir_checkpoint_shard shard = {.key = "k", .bytes = 4, .offset = 4 * (uint64_t)i, .checksum = (uint64_t)i,
                                       .shape = {2, {1, 1}}, .start = {at / columns, at % columns}};
        cr_assert(!keep_index_add_shard(&index, to, &shard));
    }
    weir_status status = keep_index_settle(&index, "here");
    keep_index_free(&index);
    return status;
}

Test(large, sixteen_thousand_shards_are_proved_to_be_whole)
{
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(settle(MANY, 1, false), WEIR_OK, "%s", weir_error());
        cr_expect_eq(settle(1, MANY, false), WEIR_OK, "%s", weir_error());
        cr_expect_eq(settle(SIDE, SIDE, false), WEIR_OK, "%s", weir_error());
    }
    cr_expect_eq(settle(MANY, 1, true), WEIR_E_IO);
    cr_expect_eq(settle(1, MANY, true), WEIR_E_IO);
    cr_expect_eq(settle(SIDE, SIDE, true), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "here: tensor w: its shard k in f overlaps another"), "%s", weir_error());
}

/* Half are rows and half are columns, so in either dimension half of them reach as far as the others. */
Test(large, shards_that_are_hard_to_tell_apart_are_bounded)
{
    struct keep_index index = {.nonce = 1};
    struct keep_tensor *to;
    enum { EACH = MANY / 2 };
    weir_checkpoint_tensor tensor = {.name = "w", .dtype = WEIR_F32, .shape = {2, {2 * EACH, EACH}}, .slots = 1};
    cr_assert(!keep_index_add_file(&index, "f", 8ull * EACH * EACH, 0) && !keep_index_add_tensor(&index, &tensor, &to));
    for (int i = 0; i < EACH; i++) {
        weir_checkpoint_shard row = {.key = "k", .bytes = 4 * EACH, .shape = {2, {1, EACH}}, .start = {i, 0}};
        weir_checkpoint_shard column = {.key = "k", .bytes = 4 * EACH, .shape = {2, {EACH, 1}}, .start = {EACH, i}};
        cr_assert(!keep_index_add_shard(&index, to, &row) && !keep_index_add_shard(&index, to, &column));
    }
    cr_expect_eq(keep_index_settle(&index, "here"), WEIR_OK, "%s", weir_error());
    keep_index_free(&index);
}

Test(large, a_tensor_of_sixteen_thousand_shards_is_listed)
{
    weir_checkpoint_writer *w = weir_checkpoint_create(folder_path("c"), .step = 1);
    static float values[16000];
    cr_assert(!weir_checkpoint_add(w, &(weir_checkpoint_value){
        .name = "s", .kind = WEIR_STATE, .slots = 16000, .value = {values, WEIR_F32, {1, {1}}}}), "%s", weir_error());
    cr_assert(!weir_checkpoint_finish(w), "%s", weir_error());
    must_run("weir checkpoint ls $T/c && weir checkpoint verify $T/c && weir checkpoint convert $T/c $T/b --all");
    cr_expect(strstr(output, "16000 values"), "%s", output);
}
