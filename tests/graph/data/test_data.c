/* tests/graph/data/test_data.c: samples of files: forms of files, orders, types, and what is refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

#include "tests/graph/data/files.h"
#include "tests/support/ranks.h"

enum { MANY = 100 };

#define DATA(name) Test(data, name, .init = folder_make, .fini = folder_remove, .timeout = 60)

/* The first token of each of so many windows. */
static void starts(const weir_data *data, int64_t first, int count, int32_t *start)
{
    int32_t window[MANY][SEQ];
    weir_view to = whole(window, WEIR_I32, (weir_shape){2, {count, SEQ}});
    cr_assert_eq(weir_data_read(data, first, false, &to), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < count; i++) {
        start[i] = window[i][0];
        for (int k = 1; k < SEQ; k++)
            cr_expect_eq(window[i][k], start[i] + k);
    }
}

/* ---- tokens ---- */

DATA(windows_of_tokens_in_the_order_of_files)
{
    int32_t start[10], labels[2][SEQ];
    write_raw("a-2.bin", 100, 9);                                                  /* 2 windows */
    write_raw("a-10.bin", 200, 16);                                                /* 3, and 3 tokens that fill none */
    write_llmc("a-3.bin", 20240520, 1, 5, u16_from(300, 5), 10);                   /* 1 */
    write_raw("a-4.bin", 400, 4);                                                  /* none: its labels would be beyond */
    write_llmc("a-5.bin", 20240801, 7, 5, (uint32_t[]){70000, 70001, 70002, 70003, 70004}, 20);
    weir_data *data = opened(TOKENS("a-*.bin", .sequential = true));
    const weir_data_info *info = weir_data_get_info(data);
    cr_expect(info->samples == 7 && info->elements == 39 && info->files == 5, "%d samples", (int)info->samples);
    cr_expect(info->type.dtype == WEIR_I32 && info->type.shape.rank == 1 && info->type.shape.dim[0] == SEQ);
    starts(data, 0, 10, start);
    const int32_t wanted[10] = {200, 204, 208, 100, 104, 300, 70000, 200, 204, 208};
    cr_expect_arr_eq(start, wanted, sizeof wanted);
    weir_view to = whole(labels, WEIR_I32, (weir_shape){2, {2, SEQ}});
    cr_assert_eq(weir_data_read(data, 4, true, &to), WEIR_OK, "%s", weir_error());
    cr_expect(labels[0][0] == 105 && labels[0][3] == 108 && labels[1][3] == 304);
    weir_data_close(data);
}

DATA(a_list_of_paths_and_patterns)
{
    int32_t start[3];
    write_raw("b[1].bin", 100, 5);
    write_raw("b1.bin", 200, 5);
    char odd[256], pattern[256];
    snprintf(odd, sizeof odd, "%s", folder_path("b[1].bin"));
    snprintf(pattern, sizeof pattern, "%s", folder_path("b[0-9].bin"));
    const char *const files[] = {odd, pattern};
    weir_data *data = opened(weir_data_tokens(folder_path("b1.bin"), .files = files, .file_count = 2, .seq = SEQ, .sequential = true));
    starts(data, 0, 3, start);
    cr_expect(start[0] == 200 && start[1] == 100 && start[2] == 200);
    weir_data_close(data);
}

DATA(arrays_of_tokens_of_any_whole_type)
{
    write_npy("u1.npy", "|u1", "5,", (uint8_t[]){251, 252, 253, 254, 255}, 5);
    write_npy("u2.npy", "<u2", "5,", u16_from(60000, 5), 10);
    write_npy("i4.npy", "<i4", "5,", (int32_t[]){1 << 20, (1 << 20) + 1, (1 << 20) + 2, (1 << 20) + 3, 0}, 20);
    write_npy("i8.npy", "<i8", "5,", (int64_t[]){2147483644, 2147483645, 2147483646, 2147483647, 0}, 40);
    write_npy("u8.npy", "<u8", "5,", (uint64_t[]){7, 8, 9, 10, UINT64_MAX}, 40);
    weir_data *data = opened(TOKENS("*.npy", .sequential = true));
    int32_t start[5];
    starts(data, 0, 5, start);
    const int32_t wanted[5] = {1 << 20, 2147483644, 251, 60000, 7};
    cr_expect_arr_eq(start, wanted, sizeof wanted);
    weir_data_close(data);
}

/* Each window of an epoch comes once, in another order in each. */
DATA(an_epoch_has_each_window_once)
{
    write_raw("a.bin", 0, 4 * 37 + 1);
    write_raw("b.bin", 400, 4 * 20 + 1);
    weir_data *data = opened(TOKENS("?.bin", .seed = 5)), *same = opened(TOKENS("?.bin", .seed = 5)), *other = opened(TOKENS("?.bin"));
    int32_t epoch[2][57], again[57], unlike[57];
    int moved = 0, sorted = 0, as_other = 0;
    starts(data, 0, 57, epoch[0]);
    starts(data, 57, 57, epoch[1]);
    starts(same, 57, 57, again);
    starts(other, 0, 57, unlike);
    cr_expect_arr_eq(epoch[1], again, sizeof again);
    for (int e = 0; e < 2; e++) {
        bool seen[1000] = {false};
        for (int i = 0; i < 57; i++) {
            cr_expect(!seen[epoch[e][i]]);
            seen[epoch[e][i]] = true;
        }
    }
    for (int i = 0; i < 57; i++) {
        moved += epoch[0][i] != epoch[1][i];
        sorted += i && epoch[0][i] > epoch[0][i - 1];
        as_other += epoch[0][i] == unlike[i];
    }
    cr_expect(moved > 45 && sorted > 15 && sorted < 41 && as_other < 10, "%d moved, %d in order, %d as with seed 0", moved, sorted, as_other);
    weir_data_close(data);
    weir_data_close(same);
    weir_data_close(other);
}

DATA(ranges_do_not_meet)
{
    write_raw("a.bin", 0, 4 * 50 + 1);
    weir_data *train = opened(TOKENS("a.bin", .to = 0.9)), *rest = opened(TOKENS("a.bin", .from = 0.9, .sequential = true));
    weir_data *some = opened(TOKENS("a.bin", .from = 0.5, .sequential = true, .samples = 5));
    int32_t start[45];
    cr_expect(weir_data_get_info(train)->samples == 45 && weir_data_get_info(rest)->samples == 5);
    starts(train, 0, 45, start);
    for (int i = 0; i < 45; i++)
        cr_expect(start[i] < 180);
    starts(rest, 0, 6, start);
    cr_expect(start[0] == 180 && start[4] == 196 && start[5] == 180);
    starts(some, 0, 6, start);
    cr_expect(start[0] == 100 && start[1] == 120 && start[4] == 180 && start[5] == 100, "%d %d", start[0], start[1]);
    weir_data_close(train);
    weir_data_close(rest);
    weir_data_close(some);
}

/* More tokens than 2^31: a file with holes takes no room. */
DATA(a_file_of_more_than_2_31_tokens)
{
    const int64_t tokens = (INT64_C(1) << 31) + 1000;
    write_file("large.bin", "", 0, "", 0);
    cr_assert_eq(truncate(folder_path("large.bin"), tokens * 2), 0);
    FILE *file = fopen(folder_path("large.bin"), "r+b");
    cr_assert(file && !fseeko(file, (off_t)(tokens - 8) * 2, SEEK_SET) && fwrite(u16_from(50, 8), 2, 8, file) == 8 && !fclose(file));
    weir_data *data = opened(TOKENS("large.bin", .sequential = true));
    const int64_t samples = weir_data_get_info(data)->samples;
    int32_t start;
    cr_expect_eq(samples, (tokens - 1) / SEQ);
    starts(data, 3 * samples - 1, 1, &start);
    cr_expect_eq(start, 50);
    weir_data_close(data);
}

DATA(more_files_than_stay_open)
{
    enum { FILES = 700 };
    char name[32];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f-%03d.bin", i);
        write_raw(name, i, 5);
    }
    const int before = ranks_descriptors();
    weir_data *data = opened(TOKENS("f-*.bin"));
    cr_expect(ranks_descriptors() - before < FILES);
    bool seen[FILES] = {false};
    for (int i = 0; i < FILES; i += MANY) {
        int32_t start[MANY];
        starts(data, i, MANY, start);
        for (int k = 0; k < MANY; k++) {
            cr_expect(!seen[start[k]]);
            seen[start[k]] = true;
        }
    }
    weir_data_close(data);
    cr_expect_eq(ranks_descriptors(), before);
}

/* ---- rows of arrays ---- */

DATA(rows_of_arrays_keep_their_bits)
{
    float f4[3][2][3];
    for (int i = 0; i < 18; i++)
        (&f4[0][0][0])[i] = (float)i / 3;
    write_npy("f4.npy", "<f4", "3, 2, 3", f4, sizeof f4);
    weir_data *data = opened(weir_data_npy(folder_path("f4.npy"), .sequential = true));
    const weir_data_info *info = weir_data_get_info(data);
    cr_expect(info->samples == 3 && info->elements == 18 && info->type.dtype == WEIR_F32 && info->type.shape.rank == 2);
    float got[4][2][3], part[2][1][2];
    weir_view to = whole(got, WEIR_F32, (weir_shape){3, {4, 2, 3}});
    cr_assert_eq(weir_data_read(data, 1, false, &to), WEIR_OK, "%s", weir_error());
    cr_expect(!memcmp(got, f4[1], sizeof f4[1]) && !memcmp(got[2], f4[0], sizeof f4[0]) && !memcmp(got[3], f4[1], sizeof f4[1]));
    weir_view box = {.data = part, .dtype = WEIR_F32, .shape = {3, {2, 1, 2}}, .offset = {1, 1, 1}, .global = {3, {3, 2, 3}}};
    cr_assert_eq(weir_data_read(data, 0, false, &box), WEIR_OK, "%s", weir_error());
    cr_expect(part[0][0][0] == f4[1][1][1] && part[0][0][1] == f4[1][1][2] && part[1][0][0] == f4[2][1][1]);
    weir_data_close(data);
}

/* The dtype that each type of NumPy is read as, and the value 7 in both. */
#define TYPE_LIST(X)                                                                                                          \
    X("<f4", float, F32, float) X("<i4", int32_t, I32, int32_t) X("<i8", int64_t, I64, int64_t) X("|i1", int8_t, I8, int8_t)    \
    X("|u1", uint8_t, U8, uint8_t) X("|b1", uint8_t, U8, uint8_t) X("<f8", double, F32, float) X("<u2", uint16_t, I32, int32_t) \
    X("<i2", int16_t, I32, int32_t) X("<u4", uint32_t, I64, int64_t) X("<u8", uint64_t, I64, int64_t)

DATA(each_type_of_numpy_is_read)
{
#define X(descr, from, dtype_, to_)                                                                        \
    {                                                                                                      \
        const from in[3] = {5, 6, 7};                                                                      \
        to_ out[2] = {0};                                                                                  \
        write_npy("t.npy", descr, "3,", in, sizeof in);                                                    \
        weir_data *data = opened(weir_data_npy(folder_path("t.npy"), .sequential = true));                 \
        weir_view to = whole(out, WEIR_##dtype_, (weir_shape){1, {2}});                                    \
        cr_expect(weir_data_get_info(data)->type.dtype == WEIR_##dtype_, descr);                           \
        cr_expect(!weir_data_read(data, 1, false, &to) && out[0] == (to_)6 && out[1] == (to_)7, descr);    \
        weir_data_close(data);                                                                             \
    }
    TYPE_LIST(X)
#undef X
    uint16_t half[2] = {0x3c00, 0x4000}, out[2];
    write_npy("t.npy", "<f2", "2,", half, sizeof half);
    weir_data *data = opened(weir_data_npy(folder_path("t.npy"), .sequential = true));
    weir_view to = whole(out, WEIR_F16, (weir_shape){1, {2}});
    cr_expect(!weir_data_read(data, 0, false, &to) && !memcmp(half, out, sizeof out), "%s", weir_error());
    weir_data_close(data);
}

DATA(values_that_do_not_fit_are_errors)
{
    float f;
    int64_t i;
    write_npy("d.npy", "<f8", "2,", (double[]){1, 1e300}, 16);
    write_npy("u.npy", "<u8", "1,", (uint64_t[]){UINT64_MAX}, 8);
    weir_data *reals = opened(weir_data_npy(folder_path("d.npy"), .sequential = true)), *wide = opened(weir_data_npy(folder_path("u.npy")));
    weir_view real = whole(&f, WEIR_F32, (weir_shape){1, {1}}), integer = whole(&i, WEIR_I64, (weir_shape){1, {1}});
    cr_expect(!weir_data_read(reals, 0, false, &real) && f == 1);
    cr_expect_eq(weir_data_read(reals, 1, false, &real), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "d.npy: element 1, of type <f8, does not fit f32"), "%s", weir_error());
    cr_expect_eq(weir_data_read(wide, 0, false, &integer), WEIR_E_IO);
    weir_data_close(reals);
    weir_data_close(wide);
}

/* Pictures and their labels are two files, which have the same order. */
DATA(two_files_of_as_many_rows_have_one_order)
{
    float x[30][2];
    int64_t y[30];
    for (int i = 0; i < 30; i++)
        x[i][0] = x[i][1] = (float)(y[i] = i);
    write_npy("x.npy", "<f4", "30, 2", x, sizeof x);
    write_npy("y.npy", "<i8", "30,", y, sizeof y);
    weir_data *xs = opened(weir_data_npy(folder_path("x.npy"), .seed = 3)), *ys = opened(weir_data_npy(folder_path("y.npy"), .seed = 3));
    float gotx[50][2];
    int64_t goty[50];
    weir_view tox = whole(gotx, WEIR_F32, (weir_shape){2, {50, 2}}), toy = whole(goty, WEIR_I64, (weir_shape){1, {50}});
    cr_expect(!weir_data_read(xs, 20, false, &tox) && !weir_data_read(ys, 20, false, &toy));
    for (int i = 0; i < 50; i++)
        cr_expect_eq(gotx[i][1], (float)goty[i]);
    weir_data_close(xs);
    weir_data_close(ys);
}

/* ---- what is refused ---- */

DATA(files_that_are_refused)
{
    write_raw("odd.bin", 0, 10);
    cr_assert_eq(truncate(folder_path("odd.bin"), 19), 0);
    write_raw("short.bin", 0, 4);
    write_llmc("cut.bin", 20240520, 1, 100, u16_from(0, 50), 100);
    write_llmc("less.bin", 20240520, 1, -5, u16_from(0, 50), 100);
    write_llmc("version.bin", 20240520, 2, 50, u16_from(0, 50), 100);
    write_file("head.bin", (int32_t[]){20240520, 1, 0}, 12, "", 0);
    write_npy("real.npy", "<f4", "8,", u16_from(0, 16), 32);
    write_npy("square.npy", "<u2", "4, 4", u16_from(0, 16), 32);
    write_npy("big.npy", ">u2", "16,", u16_from(0, 16), 32);
    write_npy("long.npy", "<u2", "17,", u16_from(0, 16), 32);
    write_npy("huge.npy", "<u2", "4611686018427387904, 4", u16_from(0, 16), 32);
    write_npy("none.npy", "<f4", "4, 0", "", 0);
    write_npy("scalar.npy", "<f4", "", "abcd", 4);
    write_npy("deep.npy", "<f4", "1, 1, 1, 1, 1, 1, 1", "abcd", 4);
    write_npy("empty.npy", "<f4", "0, 3", "", 0);
    write_npy("other.npy", "<f4", "2, 4", u16_from(0, 16), 32);
    write_file("damaged.npy", "\x93NUMPY\1\0\xff\xff{", 11, "", 0);
    REFUSES(TOKENS("odd.bin"), "odd.bin: has 19 bytes, an odd number");
    REFUSES(TOKENS("short.bin"), "short.bin: 4 tokens are too few for .seq = 4: a window and its labels take 5 of one file");
    REFUSES(TOKENS("cut.bin"), "cut.bin: has 100 bytes after its header, which says 100 elements of 2 bytes");
    REFUSES(TOKENS("less.bin"), "less.bin: has 100 bytes after its header, which says -5 elements");
    REFUSES(TOKENS("version.bin"), "version.bin: a token file of llm.c of version 2; with the number 20240520 it must have version 1");
    REFUSES(TOKENS("head.bin"), "head.bin: begins as a token file of llm.c, but has 12 bytes");
    REFUSES(TOKENS("real.npy"), "real.npy: is of type <f4; tokens are whole numbers");
    REFUSES(TOKENS("square.npy"), "square.npy: has 2 dimensions; a list of tokens has 1");
    REFUSES(TOKENS("big.npy"), "big.npy: is of type >u2, which is not read; in Python, numpy.save(");
    REFUSES(TOKENS("long.npy"), "long.npy: has 32 bytes after its header, which says 17 elements of 2 bytes");
    REFUSES(TOKENS("huge.npy"), "huge.npy: its header says more elements than there can be");
    REFUSES(TOKENS("damaged.npy"), "damaged.npy: the header of the .npy file is damaged");
    REFUSES(TOKENS("no-*.bin"), "no-*.bin: no file has such a name");
    REFUSES(TOKENS("no.bin"), "no.bin: cannot be read: No such file or directory");
    REFUSES(weir_data_tokens("/tmp", .seq = SEQ), "/tmp: cannot be read: it is a folder");
    REFUSES(weir_data_npy(folder_path("odd.bin")), "odd.bin: is not an .npy file");
    REFUSES(weir_data_npy(folder_path("none.npy")), "none.npy: its samples are [0] and have no elements");
    REFUSES(weir_data_npy(folder_path("scalar.npy")), "scalar.npy: has 0 dimensions; 1 to 6 can be");
    REFUSES(weir_data_npy(folder_path("deep.npy")), "deep.npy: has 7 dimensions; 1 to 6 can be");
    REFUSES(weir_data_npy(folder_path("empty.npy")), "empty.npy: there are no samples");
    REFUSES(weir_data_npy(folder_path("[or]*er.npy"), .from = 0.2, .to = 0.3), "the range from 0.2 to 0.3 of 2 samples is empty");
    REFUSES(weir_data_npy(folder_path("[orl]*[er]*.npy")), "all files must have the same");
}

DATA(options_that_are_refused)
{
    write_raw("a.bin", 0, 100);
    REFUSES(weir_data_tokens(folder_path("a.bin")), "test_data.c:%d: weir_data_tokens: .seq = 0: a window has at least 1 token", __LINE__);
    REFUSES(TOKENS("a.bin", .vocab = -1), ".vocab = -1: it must be 1 to 2^31");
    REFUSES(TOKENS("a.bin", .from = 0.5, .to = 0.5), ".from = 0.5 and .to = 0.5; 0 <= .from < .to <= 1 must hold");
    REFUSES(TOKENS("a.bin", .to = NAN), "0 <= .from < .to <= 1 must hold");
    REFUSES(TOKENS("a.bin", .samples = -1), ".samples = -1: it must be 1 or more");
    REFUSES(TOKENS("a.bin", .file_count = 1), ".file_count = 1: it is the number of paths in .files");
    REFUSES(weir_data_tokens(NULL, .seq = SEQ), "weir_data_tokens: no file is given");
    REFUSES(weir_data_npy(folder_path("a.bin"), .seq = SEQ), ".seq and .vocab are for weir_data_tokens()");
    weir_data_close(NULL);
    cr_expect_eq(weir_data_get_info(NULL)->samples, 0);
}

DATA(reads_that_are_refused)
{
    int32_t to[2][SEQ];
    write_raw("a.bin", 0, 100);
    weir_data *data = opened(TOKENS("a.bin", .vocab = 60, .sequential = true));
    const weir_view fits = whole(to, WEIR_I32, (weir_shape){2, {2, SEQ}});
    weir_view view = fits;
    cr_expect_eq(weir_data_read(data, 14, false, &view), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "a.bin: token 60 is 60; with a vocabulary of 60 ids are 0 to 59"), "%s", weir_error());
    cr_expect_eq(weir_data_read(data, -1, false, &view), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_data_read(data, INT64_MAX, false, &view), WEIR_E_ARGUMENT);
    view.dtype = WEIR_F32;
    cr_expect_eq(weir_data_read(data, 0, false, &view), WEIR_E_ARGUMENT);
    view = fits;
    view.offset[1] = 1;
    cr_expect_eq(weir_data_read(data, 0, false, &view), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "the view is not of samples of"), "%s", weir_error());
    cr_expect_eq(weir_data_read(NULL, 0, false, &view), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_data_read(data, 0, false, NULL), WEIR_E_ARGUMENT);
    cr_assert_eq(truncate(folder_path("a.bin"), 20), 0);
    view = fits;
    cr_expect_eq(weir_data_read(data, 4, false, &view), WEIR_E_IO);
    cr_expect(strstr(weir_error(), "the file ends there, and was longer when it was opened"), "%s", weir_error());
    weir_data_close(data);
}
