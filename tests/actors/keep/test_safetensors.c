/* tests/actors/keep/test_safetensors.c: files in the safetensors format: what is written is what other programs read,
 * and whatever others write is read, or refused with a sentence that names file and tensor.
 *
 * Where the public Python package is installed for `python3` it reads what is written here, and writes what is read
 * here. Elsewhere these tests are skipped.
 */
#define _GNU_SOURCE
#include "actors/keep/format/safetensors.h"
#include "actors/keep/save.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/checkpoint.h>

TestSuite(safetensors, .init = folder_make, .fini = folder_remove, .timeout = 120);

/* ---- files by hand ---- */

/* Length, text, and so many bytes of data: 0, 1, 2, ... */
static const char *write_file(const char *text, size_t data_bytes)
{
    size_t length = strlen(text);
    unsigned char *bytes = malloc(8 + length + data_bytes);
    const char *path = folder_path("x.safetensors");
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, text, length);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char)i;
    folder_write(path, bytes, 8 + length + data_bytes);
    free(bytes);
    return path;
}

/* ' instead of " in the text. */
static const char *write_quoted(const char *text, size_t data_bytes)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return write_file(copy, data_bytes);
}

static void expect_refused(const char *text, size_t data_bytes, const char *words)
{
    const char *path = write_quoted(text, data_bytes);
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_expect_null(c, "%s is accepted", text);
    cr_expect(strstr(weir_error(), path) && strstr(weir_error(), words), "%s: \"%s\", not \"%s\"", text, weir_error(),
              words);
    weir_checkpoint_close(c);
}

/* ---- what is refused ---- */

#define A "'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]}"

Test(safetensors, faults_of_tensors_are_named)
{
    expect_refused("{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,16]}}", 8, "tensor a: its data, bytes 0 to 16");
    expect_refused("{'a':{'dtype':'F32','shape':[2],'data_offsets':[8,0]}}", 8, "tensor a: its data, bytes 8 to 0");
    expect_refused("{'a':{'dtype':'F32','shape':[3],'data_offsets':[0,8]}}", 8, "tensor a: has 8 bytes of data");
    expect_refused("{'a':{'dtype':'F32','shape':[-2],'data_offsets':[0,8]}}", 8, "tensor a: \"shape\" is not a whole");
    expect_refused("{'a':{'dtype':'F32','shape':[2.0],'data_offsets':[0,8]}}", 8, "tensor a: \"shape\" is not a whole");
    expect_refused("{'a':{'dtype':'F32','shape':2,'data_offsets':[0,8]}}", 8, "tensor a: \"shape\" is not an array");
    expect_refused("{'a':{'dtype':'F32','shape':[2],'data_offsets':[0]}}", 8, "tensor a: \"data_offsets\"");
    expect_refused("{'a':{'dtype':'F32','shape':[2]}}", 8, "tensor a: \"data_offsets\" is missing");
    expect_refused("{'a':{'shape':[2],'data_offsets':[0,8]}}", 8, "tensor a: \"dtype\" is missing");
    expect_refused("{'a':{'dtype':'F32','shape':[1,1,1,1,1,1,3],'data_offsets':[0,8]}}", 8, "tensor a: has 8 bytes");
    expect_refused("{'a':{'dtype':'','shape':[2],'data_offsets':[0,8]}}", 8, "tensor a: \"dtype\" is empty");
    expect_refused("{'a':{'dtype':'Q9','shape':[4294967296,4294967296],'data_offsets':[0,8]}}", 8,
                   "tensor a: has more elements than can be counted");
    expect_refused("{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8],'more':1}}", 8, "tensor a: \"more\" is not");
    expect_refused("{'a':5}", 8, "tensor a: is not described");
}

Test(safetensors, sizes_that_overflow_are_refused)
{
    expect_refused("{'a':{'dtype':'F32','shape':[4294967296,4294967296],'data_offsets':[0,8]}}", 8,
                   "tensor a: has more elements than can be counted");
    expect_refused("{'a':{'dtype':'F32','shape':[4611686018427387904,2],'data_offsets':[0,8]}}", 8,
                   "tensor a: has more elements than can be counted");
    expect_refused("{'a':{'dtype':'F32','shape':[4611686018427387905],'data_offsets':[0,4]}}", 4,
                   "tensor a: has more elements than can be counted");
    expect_refused("{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,9223372036854775807]}}", 8, "tensor a: its data");
    expect_refused("{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,99999999999999999999]}}", 8, "is not JSON");
}

Test(safetensors, data_that_overlaps_or_has_holes_is_refused)
{
    expect_refused("{" A ",'b':{'dtype':'U8','shape':[4],'data_offsets':[4,8]}}", 8,
                   "tensor b: its data overlaps that of a");
    expect_refused("{" A ",'b':{'dtype':'U8','shape':[2],'data_offsets':[9,11]}}", 11,
                   "tensor b: there is a hole of 1 bytes before its data");
    expect_refused("{" A "}", 9, "has 1 bytes behind its last tensor");
    expect_refused("{}", 1, "has 1 bytes behind its last tensor");
}

Test(safetensors, headers_that_are_none_are_refused)
{
    expect_refused("{" A "," A "}", 8, "is not JSON: duplicate object key");
    expect_refused("[1]", 0, "does not begin with {");
    expect_refused(" {" A "}", 8, "does not begin with {");
    expect_refused("", 8, "does not begin with {");
    expect_refused("{" A, 8, "is not JSON");
    expect_refused("{'__metadata__':{'a':1}," A "}", 8, "__metadata__: \"a\" is not a text");
    expect_refused("{'__metadata__':[]," A "}", 8, "__metadata__ is not");
}

Test(safetensors, lengths_that_lie_are_refused)
{
    const char *path = folder_path("x.safetensors");
    folder_write(path, "\1\2\3", 3);
    cr_expect_null(weir_checkpoint_open(path));
    cr_expect(strstr(weir_error(), "is shorter than a header's length"), "%s", weir_error());
    folder_write(path, "\377\377\377\377\377\377\377\377{}", 10);
    cr_expect_null(weir_checkpoint_open(path));
    cr_expect(strstr(weir_error(), "at most 100000000 are allowed"), "%s", weir_error());
    folder_write(path, "\100\0\0\0\0\0\0\0{}", 10);
    cr_expect_null(weir_checkpoint_open(path));
    cr_expect(strstr(weir_error(), "is cut short: its header has 64 bytes"), "%s", weir_error());
}

/* ---- what is read ---- */

Test(safetensors, empty_file_tensors_without_elements_and_scalars_are_read)
{
    float value = 0;
    weir_checkpoint *c = weir_checkpoint_open(write_quoted("{}", 0));
    cr_assert(c, "%s", weir_error());
    cr_expect_eq(weir_checkpoint_get_info(c)->tensors, 0);
    weir_checkpoint_close(c);
    c = weir_checkpoint_open(write_quoted("{'n':{'dtype':'F32','shape':[0,3],'data_offsets':[4,4]},"
                                          "'s':{'dtype':'F32','shape':[],'data_offsets':[0,4]}}   ", 4));
    cr_assert(c, "%s", weir_error());
    const weir_checkpoint_tensor *s = weir_checkpoint_find(c, "s"), *n = weir_checkpoint_find(c, "n");
    cr_expect(weir_checkpoint_read(c, n, 0, NULL, &(weir_array){NULL, WEIR_F32, n->shape}) == WEIR_OK);
    cr_expect(weir_checkpoint_read(c, s, 0, NULL, &(weir_array){&value, WEIR_F32, s->shape}) == WEIR_OK);
    cr_expect(!memcmp(&value, "\0\1\2\3", 4));
    weir_checkpoint_close(c);
}

/* One tensor of a type, its bytes given, read as to->dtype, or as what it is read as when that is none. */
static weir_status read_as(const char *dtype, const void *bytes, size_t count, int elements, weir_array *to)
{
    char text[256];
    snprintf(text, sizeof text, "{'a':{'dtype':'%s','shape':[%d],'data_offsets':[0,%zu]}}", dtype, elements, count);
    const char *path = write_quoted(text, 0);
    FILE *file = fopen(path, "ab");
    cr_assert(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_assert(c, "%s", weir_error());
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "a");
    to->dtype = to->dtype ? to->dtype : t->dtype;
    to->shape = t->shape;
    weir_status status = weir_checkpoint_read(c, t, 0, NULL, to);
    weir_checkpoint_close(c);
    return status;
}

Test(safetensors, halves_are_read_as_they_are)
{
    const uint16_t half[] = {0x3C00, 0x0001, 0x7E01}, brain[] = {0x3F80, 0xC049, 0x7F81};
    uint16_t got[3];
    weir_array to = {.data = got};
    cr_assert(read_as("F16", half, sizeof half, 3, &to) == WEIR_OK, "%s", weir_error());
    cr_expect(to.dtype == WEIR_F16 && !memcmp(got, half, sizeof got));
    to.dtype = WEIR_DTYPE_NONE;
    cr_assert(read_as("BF16", brain, sizeof brain, 3, &to) == WEIR_OK, "%s", weir_error());
    cr_expect(to.dtype == WEIR_BF16 && !memcmp(got, brain, sizeof got));
    to.dtype = WEIR_F16;
    cr_expect_eq(read_as("BF16", brain, sizeof brain, 3, &to), WEIR_E_ARGUMENT);
}

Test(safetensors, halves_are_read_as_f32_exactly)
{
    const uint16_t half[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x0400, 0x7C00, 0x7E00, 0x03FF};
    const float want[] = {1, -2, 65504, 0x1p-24f, -0.0f, 0x1p-14f, INFINITY, NAN, 1023 * 0x1p-24f};
    const uint16_t brain[] = {0x3F80, 0xC049, 0x7F80, 0x0001};
    const float want_brain[] = {1, -3.140625f, INFINITY, 0x1p-133f};
    float got[9];
    weir_array to = {.data = got, .dtype = WEIR_F32};
    cr_assert(read_as("F16", half, sizeof half, 9, &to) == WEIR_OK, "%s", weir_error());
    for (int i = 0; i < 9; i++)
        cr_expect(isnan(want[i]) ? isnan(got[i]) : !memcmp(&got[i], &want[i], 4), "F16 %04x: %g", half[i],
                  (double)got[i]);
    cr_assert(read_as("BF16", brain, sizeof brain, 4, &to) == WEIR_OK, "%s", weir_error());
    cr_expect(!memcmp(got, want_brain, sizeof want_brain));
}

Test(safetensors, wide_numbers_are_read_when_they_fit)
{
    const double f64[] = {0.1, -1e30, INFINITY, 1e-60}, large = 1e39;
    const int64_t i64[] = {-2147483648LL, 2147483647, 7}, huge = 2147483648LL;
    float got[4];
    int32_t whole[3];
    weir_array to = {.data = got};
    cr_assert(read_as("F64", f64, sizeof f64, 4, &to) == WEIR_OK, "%s", weir_error());
    for (int i = 0; i < 4; i++)
        cr_expect_eq(got[i], (float)f64[i]);
    cr_expect_eq(read_as("F64", &large, 8, 1, &to), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "tensor a: has a value of F64 that f32 cannot hold"), "%s", weir_error());
    to = (weir_array){.data = whole, .dtype = WEIR_I32};
    cr_assert(read_as("I64", i64, sizeof i64, 3, &to) == WEIR_OK, "%s", weir_error());
    cr_expect(whole[0] == INT32_MIN && whole[1] == INT32_MAX && whole[2] == 7);
    cr_expect_eq(read_as("I64", &huge, 8, 1, &to), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "tensor a: has a value of I64 that i32 cannot hold"), "%s", weir_error());
}

Test(safetensors, integers_are_read_as_they_are)
{
    const int64_t i64[] = {INT64_MIN, INT64_MAX, -7};
    const int8_t i8[] = {-128, 127, -1};
    char got[sizeof i64];
    weir_array to = {.data = got};
    cr_assert(read_as("I64", i64, sizeof i64, 3, &to) == WEIR_OK, "%s", weir_error());
    cr_expect(to.dtype == WEIR_I64 && !memcmp(got, i64, sizeof i64));
    to = (weir_array){.data = got};
    cr_assert(read_as("I8", i8, sizeof i8, 3, &to) == WEIR_OK, "%s", weir_error());
    cr_expect(to.dtype == WEIR_I8 && !memcmp(got, i8, sizeof i8));
}

Test(safetensors, types_that_are_not_read_are_listed)
{
    weir_array to = {.data = NULL};
    cr_expect_eq(read_as("F8_E4M3", "abc", 3, 3, &to), WEIR_E_UNSUPPORTED);
    cr_expect(strstr(weir_error(), "tensor a: its type, F8_E4M3, is not read"), "%s", weir_error());
}

Test(safetensors, tensors_of_types_that_nobody_knows_are_listed_beside_others)
{
    const char *path = write_quoted("{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]},"
                                    "'q':{'dtype':'I4x2','shape':[3,5],'data_offsets':[8,16]},"
                                    "'z':{'dtype':'F32','shape':[1,2,1,1,1,1,1],'data_offsets':[16,24]}}", 24);
    weir_checkpoint *c = weir_checkpoint_open(path);
    float got[2];
    cr_assert(c, "%s", weir_error());
    const weir_checkpoint_tensor *a = weir_checkpoint_find(c, "a"), *q = weir_checkpoint_find(c, "q"),
                                 *z = weir_checkpoint_find(c, "z");
    cr_assert(a && q && z);
    cr_expect(!a->unread && a->dtype == WEIR_F32 && !a->stored_dim);
    cr_expect(!q->dtype && !strcmp(q->stored, "I4x2") && q->shape.rank == 2 && q->shape.dim[1] == 5 &&
              q->shard[0].bytes == 8);
    cr_expect_str_eq(q->unread, "its type, I4x2, is not read");
    cr_expect(!z->dtype && z->stored_dims == 7 && z->stored_dim[1] == 2 && z->shape.rank == 1 && z->shape.dim[0] == 2);
    cr_expect_str_eq(z->unread, "it has 7 dimensions; weir reads at most 6");
    cr_expect_eq(weir_checkpoint_read(c, a, 0, NULL, &(weir_array){got, WEIR_F32, {1, {2}}}), WEIR_OK);
    cr_expect_eq(weir_checkpoint_read(c, z, 0, NULL, &(weir_array){got, WEIR_F32, {1, {2}}}), WEIR_E_UNSUPPORTED);
    cr_expect(strstr(weir_error(), "tensor z: it has 7 dimensions; weir reads at most 6"), "%s", weir_error());
    cr_expect_eq(weir_checkpoint_verify(c, NULL, NULL), WEIR_OK, "%s", weir_error());
    weir_checkpoint_close(c);
}

/* ---- several files ---- */

static void write_map(const char *text)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    folder_write(folder_path("model.safetensors.index.json"), copy, strlen(copy));
}

/* A file of two tensors of two numbers. */
static void write_part(const char *name, const char *tensor)
{
    char text[256];
    snprintf(text, sizeof text, "{'%s':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},"
             "'common':{'dtype':'U8','shape':[2],'data_offsets':[2,4]}}", tensor);
    write_quoted(text, 4);
    cr_assert(!rename(folder_path("x.safetensors"), folder_path("%s", name)));
}

Test(safetensors, a_model_in_several_files_is_one_checkpoint)
{
    unsigned char got[2];
    write_part("m-1.safetensors", "a");
    write_part("m-2.safetensors", "b");
    write_map("{'metadata':{'total_size':6},'weight_map':{'b':'m-2.safetensors','a':'m-1.safetensors',"
              "'common':'m-2.safetensors'}}");
    const char *paths[] = {folder_path("model.safetensors.index.json"), folder_path(".")};
    for (int i = 0; i < 2; i++) {
        weir_checkpoint *c = weir_checkpoint_open(paths[i]);
        cr_assert(c, "%s", weir_error());
        cr_expect(weir_checkpoint_get_info(c)->tensors == 3 && weir_checkpoint_get_info(c)->files == 2);
        cr_expect_str_eq(weir_checkpoint_get_file(c, 1)->name, "m-2.safetensors");
        const weir_checkpoint_tensor *b = weir_checkpoint_find(c, "b"), *common = weir_checkpoint_find(c, "common");
        cr_assert(b && common && b->shard[0].file == 1 && common->shard[0].file == 1);
        cr_expect_eq(weir_checkpoint_read(c, common, 0, NULL, &(weir_array){got, WEIR_U8, {1, {2}}}), WEIR_OK);
        cr_expect(got[0] == 2 && got[1] == 3);
        cr_expect_eq(weir_checkpoint_verify(c, NULL, NULL), WEIR_OK, "%s", weir_error());
        weir_checkpoint_close(c);
    }
}

static void expect_map_refused(const char *map, const char *words)
{
    write_map(map);
    weir_checkpoint *c = weir_checkpoint_open(folder_path("."));
    cr_expect_null(c, "%s", map);
    cr_expect(strstr(weir_error(), words), "%s: \"%s\" lacks \"%s\"", map, weir_error(), words);
    weir_checkpoint_close(c);
}

Test(safetensors, a_map_of_files_that_makes_no_sense_is_refused)
{
    write_part("m-1.safetensors", "a");
    write_part("m-2.safetensors", "b");
    expect_map_refused("{'weight_map':{'a':'m-3.safetensors'}}", "m-3.safetensors: cannot be read: No such file");
    expect_map_refused("{'weight_map':{'c':'m-1.safetensors'}}", "tensor c: is not in m-1.safetensors");
    expect_map_refused("{'weight_map':{'a':'../m-1.safetensors'}}", "tensor a: \"../m-1.safetensors\" is not the name");
    expect_map_refused("{'weight_map':{'a':'/etc/passwd'}}", "is not the name of a file in the folder");
    expect_map_refused("{'weight_map':{'a':5}}", "is not the name of a file in the folder");
    expect_map_refused("{'weight_map':[]}", "has no \"weight_map\"");
    expect_map_refused("{}", "has no \"weight_map\"");
    expect_map_refused("[", "is not JSON");
    expect_map_refused("{'weight_map':{'a':'m-1.safetensors','a':'m-2.safetensors'}}", "is not JSON");
    expect_map_refused("{'weight_map':{'a':'m-1.safetensors','b':'m-2.safetensors'}}", "tensor common: is there twice");
}

Test(safetensors, header_comes_back_from_its_own_encoding)
{
    struct pool p = {0};
    struct safetensors_header header = {.data_at = 0}, again;
    *POOL_PUSH(&p, &header.tensors) = (struct safetensors_tensor){.name = "weight \"q\"\n", .shape = {2, {3, 4}}};
    *POOL_PUSH(&p, &header.tensors) = (struct safetensors_tensor){.name = "b", .dtype = SAFETENSORS_U8,
                                                                  .shape = {1, {5}}};
    *POOL_PUSH(&p, &header.metadata) = (struct safetensors_text){"made", "here"};
    const void *bytes = safetensors_encode(&p, &header);
    cr_assert(bytes);
    cr_expect_eq(header.data_at % SAFETENSORS_ALIGN, 0);
    cr_assert(safetensors_decode(&p, "x", bytes, header.data_at, header.data_at + 53, &again) == WEIR_OK, "%s",
              weir_error());
    cr_expect(again.tensors.count == 2 && again.data_at == header.data_at && again.metadata.count == 1);
    cr_expect_str_eq(again.tensors.item[0].name, "weight \"q\"\n");
    cr_expect(again.tensors.item[1].begin == 48 && again.tensors.item[1].dtype == SAFETENSORS_U8);
    pool_free(&p);
}

/* ---- the public package ---- */

static void need_python(void)
{
    if (system("python3 -c 'import numpy, safetensors.numpy' 2>/dev/null") != 0)
        cr_skip_test("python3 has no safetensors and numpy here");
}

static void must_python(const char *program)
{
    char command[4096];
    snprintf(command, sizeof command, "cd %s && python3 -c '%s'", folder_path("."), program);
    cr_expect(system(command) == 0, "%s", program);
}

/* Two shards of w and a frozen one, in one folder. */
static void save_for_python(void)
{
    float w[12];
    int32_t n[] = {-1, 7, 2147483647};
    unsigned char flags[] = {1, 2, 255, 4, 5};
    for (int i = 0; i < 12; i++)
        w[i] = (float)i + 0.5f;
    struct keep_save *save = keep_save_begin(&(struct keep_save_opts){.root = folder_path("a"), .name = "best"});
    cr_assert(save, "%s", weir_error());
    struct keep_piece piece = {.tensor = {.name = "w", .dtype = WEIR_F32, .shape = {2, {4, 3}}}, .shape = {2, {1, 3}}};
    piece.data = w;
    keep_save_add(save, &piece);
    piece.start[0] = 1;
    piece.shape.dim[0] = 3;
    piece.data = w + 3;
    keep_save_add(save, &piece);
    piece = (struct keep_piece){.tensor = {.name = "flags", .dtype = WEIR_U8, .shape = {1, {5}}}, .shape = {1, {5}}};
    piece.data = flags;
    keep_save_add(save, &piece);
    piece = (struct keep_piece){.tensor = {.name = "n", .dtype = WEIR_I32, .shape = {1, {3}}, .frozen = true},
                                .shape = {1, {3}}, .data = n};
    keep_save_add(save, &piece);
    cr_assert(keep_save_run(save) == WEIR_OK, "%s", weir_error());
    keep_save_free(save);
}

Test(safetensors, python_reads_the_shards_that_are_written)
{
    need_python();
    save_for_python();
    must_python("from safetensors.numpy import load_file\n"
                "import numpy as np\n"
                "a = load_file(\"a/best/rank-0000.safetensors\")\n"
                "assert sorted(a) == [\"flags\", \"w[0:1,0:3]\", \"w[1:4,0:3]\"], a\n"
                "w = np.concatenate([a[\"w[0:1,0:3]\"], a[\"w[1:4,0:3]\"]])\n"
                "assert w.dtype == np.float32 and (w == (np.arange(12) + 0.5).reshape(4, 3)).all(), w\n"
                "assert a[\"flags\"].dtype == np.uint8 and a[\"flags\"].tolist() == [1, 2, 255, 4, 5]\n"
                "n = load_file(\"a/best/frozen-0000.safetensors\")[\"n\"]\n"
                "assert n.dtype == np.int32 and n.tolist() == [-1, 7, 2147483647]\n");
}

Test(safetensors, what_python_writes_is_read)
{
    float w[6];
    need_python();
    must_python("from safetensors.numpy import save_file\n"
                "import numpy as np\n"
                "save_file({\"w\": np.arange(6, dtype=np.float16).reshape(2, 3), \"i\": np.array([5, -6])},\n"
                "          \"p.safetensors\", {\"format\": \"np\"})\n");
    weir_checkpoint *c = weir_checkpoint_open(folder_path("p.safetensors"));
    cr_assert(c, "%s", weir_error());
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "w");
    cr_assert(t && t->dtype == WEIR_F32 && !strcmp(t->stored, "F16"));
    cr_expect(weir_checkpoint_read(c, t, 0, NULL, &(weir_array){w, WEIR_F32, {2, {2, 3}}}) == WEIR_OK);
    for (int i = 0; i < 6; i++)
        cr_expect_eq(w[i], (float)i);
    cr_expect(weir_checkpoint_verify(c, NULL, NULL) == WEIR_OK, "%s", weir_error());
    weir_checkpoint_close(c);
}
