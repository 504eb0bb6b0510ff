/* tests/actors/keep/test_gguf.c: GGUF files are read as checkpoints, or refused with a sentence that names file and tensor. The
 * blocks of quantised tensors are put together here from integers, and what is read is held against the formula in double. */
#define _GNU_SOURCE
#include "tests/support/folder.h"
#include "tests/support/gguf_file.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/checkpoint.h>

TestSuite(gguf, .init = folder_make, .fini = folder_remove, .timeout = 120);

static struct gguf_file file;

static const char *write_file(void)
{
    const char *path = folder_path("m.gguf");
    folder_write(path, file.bytes, file.count);
    return path;
}

static weir_checkpoint *open_file(void)
{
    weir_checkpoint *c = weir_checkpoint_open(write_file());
    cr_assert(c, "%s", weir_error());
    return c;
}

/* ---- types that are stored as they are ---- */

static void add_numbers(const char *name, uint32_t type, uint64_t offset)
{
    gguf_file_tensor(&file, name, &(weir_shape){2, {2, 3}}, type, offset);
}

/* Tensors of six numbers. */
static void make_plain(void)
{
    static const float f32[] = {0.5f, -1, 3e38f, 1e-45f, -0.0f, 7};
    static const uint16_t f16[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x0400},
                          bf16[] = {0x3F80, 0xC049, 0x7F80, 0x0001, 0x8000, 0x4000};
    static const int64_t i64[] = {INT64_MIN, INT64_MAX, 0, -1, 5, 6};
    static const int32_t i32[] = {INT32_MIN, INT32_MAX, 0, -1, 5, 6};
    static const int8_t i8[] = {-128, 127, 0, -1, 5, 6};
    gguf_file_begin(&file, 6, 3);
    gguf_file_text(&file, "general.architecture"), gguf_file_u32(&file, 8), gguf_file_text(&file, "llama");
    gguf_file_text(&file, "general.alignment"), gguf_file_u32(&file, 4), gguf_file_u32(&file, 64);
    gguf_file_text(&file, "tokens"), gguf_file_u32(&file, 9), gguf_file_u32(&file, 8), gguf_file_u64(&file, 2);
    gguf_file_text(&file, "a"), gguf_file_text(&file, "");
    add_numbers("f32", GGUF_F32, 0);
    add_numbers("f16", GGUF_F16, 64);
    add_numbers("bf16", GGUF_BF16, 128);
    add_numbers("i64", GGUF_I64, 192);
    add_numbers("i32", GGUF_I32, 256);
    add_numbers("i8", GGUF_I8, 320);
    gguf_file_align(&file, 64), gguf_file_bytes(&file, f32, sizeof f32);
    gguf_file_align(&file, 64), gguf_file_bytes(&file, f16, sizeof f16);
    gguf_file_align(&file, 64), gguf_file_bytes(&file, bf16, sizeof bf16);
    gguf_file_align(&file, 64), gguf_file_bytes(&file, i64, sizeof i64);
    gguf_file_align(&file, 64), gguf_file_bytes(&file, i32, sizeof i32);
    gguf_file_align(&file, 64), gguf_file_bytes(&file, i8, sizeof i8);
}

Test(gguf, plain_types_are_read_as_they_are)
{
    static const struct {
        const char *name, *stored;
        weir_dtype dtype;
    } types[] = {{"f32", "F32", WEIR_F32}, {"f16", "F16", WEIR_F16}, {"bf16", "BF16", WEIR_BF16},
                 {"i64", "I64", WEIR_I64}, {"i32", "I32", WEIR_I32}, {"i8", "I8", WEIR_I8}};
    make_plain();
    weir_checkpoint *c = open_file();
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    cr_expect(info->tensors == 6 && info->files == 1 && info->step == -1 && info->bytes == file.count);
    cr_expect_str_eq(info->architecture, "llama");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char got[48];
        const weir_checkpoint_tensor *t = weir_checkpoint_find(c, types[i].name);
        cr_assert(t && t->dtype == types[i].dtype && t->shape.rank == 2 && t->shape.dim[0] == 2 && t->shape.dim[1] == 3);
        cr_expect(!strcmp(t->stored, types[i].stored) && t->kind == WEIR_PARAMETER && !t->unread && t->shard_count == 1);
        cr_expect_eq(weir_checkpoint_read(c, t, 0, NULL, &(weir_array){got, t->dtype, t->shape}), WEIR_OK);
        cr_expect(!memcmp(got, file.bytes + t->shard[0].offset, t->shard[0].bytes), "%s", types[i].name);
    }
    cr_expect_eq(weir_checkpoint_verify(c, NULL, NULL), WEIR_OK, "%s", weir_error());
    weir_checkpoint_close(c);
}

Test(gguf, halves_are_also_read_as_f32_and_a_box_of_them)
{
    float got[2];
    make_plain();
    weir_checkpoint *c = open_file();
    const int64_t start[] = {0, 1};
    weir_array value = {got, WEIR_F32, {2, {2, 1}}};
    cr_assert_eq(weir_checkpoint_read(c, weir_checkpoint_find(c, "f16"), 0, start, &value), WEIR_OK);
    cr_expect(got[0] == -2 && got[1] == 0 && signbit(got[1]));
    cr_assert_eq(weir_checkpoint_read(c, weir_checkpoint_find(c, "bf16"), 0, start, &value), WEIR_OK);
    cr_expect(got[0] == -3.140625f && got[1] == 0 && signbit(got[1]));
    weir_checkpoint_close(c);
}

Test(gguf, scalars_empty_tensors_and_files_without_tensors_are_read)
{
    float got = 0;
    gguf_file_begin(&file, 2, 0);
    gguf_file_tensor(&file, "s", &(weir_shape){0}, GGUF_F32, 0);
    gguf_file_tensor(&file, "n", &(weir_shape){2, {0, 64}}, GGUF_Q4_0, 32);
    gguf_file_align(&file, 32), gguf_file_bytes(&file, &(float){2.5f}, 4);
    gguf_file_align(&file, 32);
    weir_checkpoint *c = open_file();
    const weir_checkpoint_tensor *s = weir_checkpoint_find(c, "s"), *n = weir_checkpoint_find(c, "n");
    cr_expect(!weir_checkpoint_read(c, s, 0, NULL, &(weir_array){&got, WEIR_F32, s->shape}) && got == 2.5f);
    cr_expect_eq(weir_checkpoint_read(c, n, 0, NULL, &(weir_array){NULL, WEIR_F32, n->shape}), WEIR_OK, "%s", weir_error());
    cr_expect_null(weir_checkpoint_get_info(c)->architecture);
    weir_checkpoint_close(c);
    gguf_file_begin(&file, 0, 0);
    c = open_file();
    cr_expect_eq(weir_checkpoint_get_info(c)->tensors, 0);
    weir_checkpoint_close(c);
}

/* ---- quantised types ---- */

enum { ROWS = 3, WIDTH = 512, COUNT = ROWS * WIDTH };

static int number(int least, int most)
{
    return least + (int)(random() % (most - least + 1));
}

static void numbers(int count, int least, int most, int to[])
{
    for (int i = 0; i < count; i++)
        to[i] = number(least, most);
}

/* A scale that f16 has exactly. */
static float scale_of(void)
{
    return (float)number(-2047, 2047) * ldexpf(1, number(-20, 0));
}

static void make_32(uint32_t type, float *want)
{
    const bool minimum = type == GGUF_Q4_1 || type == GGUF_Q5_1, four = type == GGUF_Q4_0 || type == GGUF_Q4_1;
    const float d = scale_of(), m = minimum ? scale_of() : 0;
    const int levels = type == GGUF_Q8_0 ? 256 : four ? 16 : 32, least = minimum ? 0 : -levels / 2;
    int q[32];
    numbers(32, least, least + levels - 1, q);
    if (type == GGUF_Q8_0)
        gguf_file_q8_0(&file, d, q);
    else
        (four ? gguf_file_q4 : gguf_file_q5)(&file, minimum, d, m, q);
    for (int i = 0; i < 32; i++)
        want[i] = (float)((double)d * q[i] + (double)m);
}

static void make_q4_k(float *want)
{
    const float d = scale_of(), least = scale_of();
    int scale[8], minimum[8], q[256];
    numbers(8, 0, 63, scale), numbers(8, 0, 63, minimum), numbers(256, 0, 15, q);
    gguf_file_q4_k(&file, d, least, scale, minimum, q);
    for (int i = 0; i < 256; i++)
        want[i] = (float)((double)d * scale[i / 32] * q[i] - (double)least * minimum[i / 32]);
}

static void make_q6_k(float *want)
{
    const float d = scale_of();
    int scale[16], q[256];
    numbers(16, -128, 127, scale), numbers(256, -32, 31, q);
    gguf_file_q6_k(&file, d, scale, q);
    for (int i = 0; i < 256; i++)
        want[i] = (float)((double)d * scale[i / 16] * q[i]);
}

/* A tensor "w" of [ROWS, WIDTH] behind another one, of random blocks; `want` gets its elements. */
static void make_quantised(uint32_t type, const weir_shape *shape, float *want)
{
    const int elements = type == GGUF_Q4_K || type == GGUF_Q6_K ? 256 : 32;
    gguf_file_begin(&file, 2, 0);
    gguf_file_tensor(&file, "before", &(weir_shape){1, {3}}, GGUF_F32, 0);
    gguf_file_tensor(&file, "w", shape, type, 32);
    gguf_file_align(&file, 32);
    gguf_file_bytes(&file, (float[]){1, 2, 3}, 12);
    gguf_file_align(&file, 32);
    for (int i = 0; i < COUNT; i += elements)
        type == GGUF_Q4_K ? make_q4_k(want + i) : type == GGUF_Q6_K ? make_q6_k(want + i) : make_32(type, want + i);
}

static const struct {
    uint32_t number;
    const char *name;
} quantised[] = {{GGUF_Q4_0, "Q4_0"}, {GGUF_Q4_1, "Q4_1"}, {GGUF_Q5_0, "Q5_0"}, {GGUF_Q5_1, "Q5_1"},
                 {GGUF_Q8_0, "Q8_0"}, {GGUF_Q4_K, "Q4_K"}, {GGUF_Q6_K, "Q6_K"}};
enum { QUANTISED = sizeof quantised / sizeof *quantised };

static bool same(float a, float b)
{
    return a == b; /* of 0 times a scale the sign may be that of either */
}

Test(gguf, quantised_types_are_read_as_f32)
{
    float want[COUNT], got[COUNT];
    for (int k = 0; k < QUANTISED; k++) {
        make_quantised(quantised[k].number, &(weir_shape){2, {ROWS, WIDTH}}, want);
        weir_checkpoint *c = open_file();
        const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "w");
        cr_assert(t && t->dtype == WEIR_F32 && !t->unread && t->shape.dim[1] == WIDTH);
        cr_expect_str_eq(t->stored, quantised[k].name);
        cr_expect(weir_checkpoint_reads_as(t, WEIR_F32) && !weir_checkpoint_reads_as(t, WEIR_BF16));
        cr_assert_eq(weir_checkpoint_read(c, t, 0, NULL, &(weir_array){got, WEIR_F32, t->shape}), WEIR_OK);
        for (int i = 0; i < COUNT; i++)
            cr_assert(same(got[i], want[i]), "%s: element %d is %a, not %a", t->stored, i, (double)got[i], (double)want[i]);
        weir_checkpoint_close(c);
    }
}

/* One box of a tensor of three dimensions. */
static void check_box(weir_checkpoint *c, const weir_checkpoint_tensor *t, const float *whole)
{
    float got[COUNT];
    int64_t start[3], at = 0;
    weir_array value = {got, WEIR_F32, {3, {0}}};
    for (int d = 0; d < 3; d++) {
        start[d] = number(0, (int)t->shape.dim[d] - 1);
        value.shape.dim[d] = number(0, (int)(t->shape.dim[d] - start[d]));
    }
    cr_assert_eq(weir_checkpoint_read(c, t, 0, start, &value), WEIR_OK, "%s", weir_error());
    for (int64_t i = start[0]; i < start[0] + value.shape.dim[0]; i++)
        for (int64_t j = start[1]; j < start[1] + value.shape.dim[1]; j++)
            for (int64_t k = start[2]; k < start[2] + value.shape.dim[2]; k++, at++)
                cr_assert(same(got[at], whole[(i * t->shape.dim[1] + j) * t->shape.dim[2] + k]), "%s: %d %d %d", t->stored,
                          (int)i, (int)j, (int)k);
}

Test(gguf, any_box_of_a_quantised_tensor_is_read)
{
    float want[COUNT];
    for (int k = 0; k < QUANTISED; k++) {
        make_quantised(quantised[k].number, &(weir_shape){3, {ROWS, 2, WIDTH / 2}}, want);
        weir_checkpoint *c = open_file();
        for (int i = 0; i < 300; i++)
            check_box(c, weir_checkpoint_find(c, "w"), want);
        weir_checkpoint_close(c);
    }
}

Test(gguf, types_that_are_not_read_are_listed)
{
    float got[3];
    gguf_file_begin(&file, 3, 0);
    gguf_file_tensor(&file, "k", &(weir_shape){1, {256}}, GGUF_Q2_K, 0);
    gguf_file_tensor(&file, "new", &(weir_shape){2, {2, 5}}, 12345, 96);
    gguf_file_tensor(&file, "f", &(weir_shape){1, {3}}, GGUF_F32, 128);
    gguf_file_align(&file, 32);
    for (int i = 0; i < 140 / 4; i++)
        gguf_file_u32(&file, 0);
    weir_checkpoint *c = open_file();
    const weir_checkpoint_tensor *k = weir_checkpoint_find(c, "k"), *new = weir_checkpoint_find(c, "new");
    cr_expect(!k->dtype && !new->dtype && k->shard[0].bytes == 84 && new->shard[0].bytes == 32);
    cr_expect_str_eq(k->unread, "its type, Q2_K, is not read");
    cr_expect_str_eq(new->unread, "its type, type 12345, is not read");
    cr_expect_eq(weir_checkpoint_read(c, new, 0, NULL, &(weir_array){got, WEIR_F32, new->shape}), WEIR_E_UNSUPPORTED);
    cr_expect_eq(weir_checkpoint_read(c, weir_checkpoint_find(c, "f"), 0, NULL, &(weir_array){got, WEIR_F32, {1, {3}}}), WEIR_OK);
    weir_checkpoint_close(c);
}

/* ---- faults ---- */

static void expect_refused(const char *words)
{
    const char *path = write_file();
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_expect_null(c, "\"%s\" is accepted", words);
    cr_expect(strstr(weir_error(), path) && strstr(weir_error(), words), "\"%s\", not \"%s\"", weir_error(), words);
    weir_checkpoint_close(c);
}

static void expect_one_refused(const weir_shape *shape, uint32_t type, uint64_t offset, const char *words)
{
    gguf_file_begin(&file, 1, 0);
    gguf_file_tensor(&file, "a", shape, type, offset);
    gguf_file_align(&file, 32);
    for (int i = 0; i < 16; i++)
        gguf_file_u32(&file, 0);
    expect_refused(words);
}

Test(gguf, faults_of_tensors_are_named)
{
    expect_one_refused(&(weir_shape){1, {17}}, GGUF_F32, 0, "tensor a: its data, bytes 0 to 68, is not in the file");
    expect_one_refused(&(weir_shape){1, {4}}, GGUF_F32, 64, "tensor a: its data, bytes 64 to 80, is not in the file");
    expect_one_refused(&(weir_shape){1, {4}}, GGUF_F32, 8, "tensor a: its data begins at byte 8, which is no multiple");
    expect_one_refused(&(weir_shape){1, {4}}, GGUF_F32, UINT64_MAX - 31, "tensor a: its data");
    expect_one_refused(&(weir_shape){1, {4}}, 12345, 1 << 20, "tensor a: its data");
    expect_one_refused(&(weir_shape){2, {32, 33}}, GGUF_Q4_0, 0, "has rows of 33 elements; those of Q4_0 are multiples of 32");
    expect_one_refused(&(weir_shape){0}, GGUF_Q4_0, 0, "tensor a: has rows of 1 elements");
    expect_one_refused(&(weir_shape){1, {32}}, GGUF_Q4_K, 0, "those of Q4_K are multiples of 256");
    expect_one_refused(&(weir_shape){5, {1, 1, 1, 1, 1}}, GGUF_F32, 0, "tensor a: has 5 dimensions, at most 4 are allowed");
    expect_one_refused(&(weir_shape){2, {1LL << 32, 1LL << 32}}, GGUF_F32, 0, "tensor a: has more elements than can be");
    expect_one_refused(&(weir_shape){1, {-1}}, GGUF_F32, 0, "tensor a: has more elements than can be counted");
}

Test(gguf, data_that_overlaps_and_names_that_are_there_twice_are_refused)
{
    gguf_file_begin(&file, 2, 0);
    gguf_file_tensor(&file, "a", &(weir_shape){1, {9}}, GGUF_F32, 0);
    gguf_file_tensor(&file, "b", &(weir_shape){1, {4}}, GGUF_F32, 32);
    gguf_file_align(&file, 32), gguf_file_align(&file, 256);
    expect_refused("tensor b: its data overlaps that of a");
    gguf_file_begin(&file, 2, 0);
    gguf_file_tensor(&file, "a", &(weir_shape){1, {1}}, GGUF_F32, 0);
    gguf_file_tensor(&file, "a", &(weir_shape){1, {1}}, GGUF_F32, 32);
    gguf_file_align(&file, 256);
    expect_refused("tensor a: is there twice");
}

Test(gguf, other_versions_and_byte_orders_are_refused_by_name)
{
    gguf_file_begin(&file, 0, 0);
    file.bytes[4] = 2;
    expect_refused("is a GGUF file of version 2; weir reads version 3");
    memcpy(file.bytes + 4, "\0\0\0\3", 4);
    expect_refused("is a big-endian GGUF file");
    file.bytes[0] = 'g';
    expect_refused("is not a GGUF file: it does not begin with GGUF");
    file.count = 0;
    expect_refused("is not a GGUF file: it does not begin with GGUF");
}

/* A header that says one key/value, which is a key, a type, and bytes. */
static void expect_value_refused(const char *key, uint32_t type, const void *bytes, size_t count, const char *words)
{
    gguf_file_begin(&file, 0, 1);
    gguf_file_text(&file, key), gguf_file_u32(&file, type), gguf_file_bytes(&file, bytes, count);
    expect_refused(words);
}

Test(gguf, key_values_that_make_no_sense_are_refused)
{
    static const char big[] = "\377\377\377\377\377\377\377\177", many[] = "\10\0\0\0\377\377\377\377\377\377\377\177";
    expect_value_refused("x", 13, "\0\0\0\0\0\0\0", 8, "x: its value has type 13, which is not allowed there");
    expect_value_refused("x", 8, big, 8, "is cut short, or damaged: x would end behind the file's");
    expect_value_refused("x", 9, many, 12, "is cut short, or damaged: x would end behind");
    expect_value_refused("x", 9, "\12\0\0\0\377\377\377\377\377\377\377\177", 12, "is cut short, or damaged: x");
    expect_value_refused("x", 9, "\11\0\0\0\1\0\0\0\0\0\0\0", 12, "x: its value has type 9");
    expect_value_refused("x", 10, "\1\0\0\0", 4, "is cut short, or damaged: x");
    expect_value_refused("general.alignment", 4, "\60\0\0\0", 4, "general.alignment is 48; only powers of two are allowed");
    expect_value_refused("general.alignment", 4, "\0\0\0\0", 4, "general.alignment is 0; only powers");
    expect_value_refused("general.alignment", 10, "\40\0\0\0\0\0\0\0", 8, "general.alignment: its value has type 10");
    expect_value_refused("general.architecture", 4, "\40\0\0\0", 4, "general.architecture: its value has type 4");
    expect_value_refused("general.architecture", 8, "\2\0\0\0\0\0\0\0\303\50", 10, "it is not a text in UTF-8");
    gguf_file_begin(&file, 0, 2);
    for (int i = 0; i < 2; i++)
        gguf_file_text(&file, "general.alignment"), gguf_file_u32(&file, 4), gguf_file_u32(&file, 32);
    expect_refused("general.alignment: is there twice");
}

Test(gguf, key_that_continues_behind_a_zero_is_another_key)
{
    static const char key[] = "general.alignment\0?", long_key[] = "general.architecture, and so much more that nobody who looks for it "
                                                           "would ever take one for the other";
    gguf_file_begin(&file, 0, 2);
    gguf_file_u64(&file, sizeof key - 1), gguf_file_bytes(&file, key, sizeof key - 1);
    gguf_file_u32(&file, 4), gguf_file_u32(&file, 33);
    gguf_file_text(&file, long_key), gguf_file_u32(&file, 0), gguf_file_bytes(&file, "", 1);
    weir_checkpoint_close(open_file());
}

Test(gguf, counts_and_names_that_lie_are_refused_before_memory_is_taken)
{
    gguf_file_begin(&file, UINT64_MAX, 0);
    expect_refused("a list of 18446744073709551615 tensors would end behind the file's 24 bytes");
    gguf_file_begin(&file, 0, 1ULL << 40);
    expect_refused("a list of 1099511627776 key/values would end behind");
    gguf_file_begin(&file, 1, 0);
    gguf_file_u64(&file, 2000);
    while (file.count < 3000)
        gguf_file_u32(&file, 0);
    expect_refused("tensor 0 of 1: its name has 2000 bytes, at most 1024 are allowed");
    gguf_file_begin(&file, 1, 0);
    gguf_file_u64(&file, 4), gguf_file_u32(&file, 'a');
    while (file.count < 300)
        gguf_file_u32(&file, 0);
    expect_refused("tensor 0 of 1: its name is not a text in UTF-8");
}

Test(gguf, header_that_goes_on_for_ever_is_refused)
{
    gguf_file_begin(&file, 0, 1);
    gguf_file_text(&file, "x"), gguf_file_u32(&file, 8), gguf_file_u64(&file, 1ULL << 32);
    const char *path = write_file();
    cr_assert_eq(truncate(path, 1LL << 33), 0); /* a hole: no bytes on the disk */
    cr_expect_null(weir_checkpoint_open(path));
    cr_expect(strstr(weir_error(), "x: its header would have more than 100000000 bytes"), "%s", weir_error());
}

/* ---- damage ---- */

/* Opens it, and reads all that can be read. An error must name the file. False: it does not open. */
static bool read_all(const char *path)
{
    weir_checkpoint *c = weir_checkpoint_open(path);
    cr_assert(c || strstr(weir_error(), path), "%s", weir_error());
    for (int i = 0; c && i < weir_checkpoint_get_info(c)->tensors; i++) {
        const weir_checkpoint_tensor *t = weir_checkpoint_get_tensor(c, i);
        weir_array value = {.dtype = t->dtype, .shape = t->shape};
        cr_assert(weir_shape_count(&t->shape) <= 1 << 20);
        value.data = malloc((size_t)weir_shape_count(&t->shape) * 8 + 1);
        weir_status status = weir_checkpoint_read(c, t, 0, NULL, &value);
        cr_assert(!status || (!t->dtype && status == WEIR_E_UNSUPPORTED) || strstr(weir_error(), "cannot hold"), "%s", weir_error());
        free(value.data);
    }
    weir_checkpoint_close(c);
    return c;
}

/* The same of the bytes as they are now, which need no disk. */
static bool read_in_memory(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    cr_assert(!ftruncate(fd, 0) && pwrite(fd, file.bytes, file.count, 0) == (ssize_t)file.count);
    return read_all(path);
}

/* A file with plain and quantised tensors and key/values of every kind. */
static void make_small(void)
{
    float want[32];
    gguf_file_begin(&file, 3, 4);
    gguf_file_text(&file, "general.architecture"), gguf_file_u32(&file, 8), gguf_file_text(&file, "bert");
    gguf_file_text(&file, "general.alignment"), gguf_file_u32(&file, 4), gguf_file_u32(&file, 16);
    gguf_file_text(&file, "t"), gguf_file_u32(&file, 9), gguf_file_u32(&file, 8), gguf_file_u64(&file, 2);
    gguf_file_text(&file, "one"), gguf_file_text(&file, "two");
    gguf_file_text(&file, "n"), gguf_file_u32(&file, 9), gguf_file_u32(&file, 10), gguf_file_u64(&file, 1);
    gguf_file_u64(&file, 7);
    gguf_file_tensor(&file, "w", &(weir_shape){2, {1, 32}}, GGUF_Q4_1, 0);
    gguf_file_tensor(&file, "b", &(weir_shape){1, {3}}, GGUF_F64, 32);
    gguf_file_tensor(&file, "h", &(weir_shape){1, {8}}, GGUF_F16, 64);
    gguf_file_align(&file, 16), make_32(GGUF_Q4_1, want);
    gguf_file_align(&file, 16), gguf_file_bytes(&file, (double[]){1, 2, 3}, 24);
    gguf_file_align(&file, 16), gguf_file_bytes(&file, want, 16);
}

Test(gguf, every_file_that_is_cut_is_refused)
{
    const int fd = memfd_create("gguf", MFD_CLOEXEC);
    make_small();
    cr_assert(read_in_memory(fd), "%s", weir_error());
    while (file.count) {
        file.count--;
        cr_expect(!read_in_memory(fd), "%zu bytes are accepted", file.count);
    }
    close(fd);
}

Test(gguf, every_byte_that_is_changed_is_an_error_or_another_value)
{
    const int fd = memfd_create("gguf", MFD_CLOEXEC);
    int opened = 0;
    make_small();
    for (size_t i = 0; i < file.count; i++)
        for (int bit = 0; bit < 9; bit++) {
            const unsigned char was = file.bytes[i];
            file.bytes[i] = bit < 8 ? (unsigned char)(was ^ 1 << bit) : (unsigned char)~was;
            opened += read_in_memory(fd);
            file.bytes[i] = was;
        }
    cr_expect_gt(opened, 60 * 9, "fewer than those of the data");
    close(fd);
}

Test(gguf, file_that_shrinks_after_it_was_opened_is_an_error)
{
    float want[COUNT], got[COUNT];
    make_quantised(GGUF_Q6_K, &(weir_shape){2, {ROWS, WIDTH}}, want);
    weir_checkpoint *c = open_file();
    const weir_checkpoint_tensor *t = weir_checkpoint_find(c, "w");
    weir_array value = {got, WEIR_F32, t->shape};
    folder_cut(folder_path("m.gguf"), (long)file.count - 1);
    cr_expect_eq(weir_checkpoint_read(c, t, 0, NULL, &value), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "m.gguf: tensor w: the file has"), "%s", weir_error());
    weir_checkpoint_close(c);
    c = open_file();
    t = weir_checkpoint_find(c, "w");
    cr_assert_eq(weir_checkpoint_read(c, weir_checkpoint_find(c, "before"), 0, NULL, &(weir_array){got, WEIR_F32, {1, {3}}}), WEIR_OK);
    folder_cut(folder_path("m.gguf"), (long)file.count - 1);
    cr_expect_eq(weir_checkpoint_read(c, t, 0, NULL, &value), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "m.gguf: tensor w: cannot be read"), "%s", weir_error());
    weir_checkpoint_close(c);
}
