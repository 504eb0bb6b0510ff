/* tests/fuzz/fuzz_data.c: bytes that claim to be a file of training data. The data that they open as is read: each sample of a
 * small epoch once, and parts of samples give what whole ones give. */
#define _GNU_SOURCE
#include <weir/weir.h>
#include "tests/fuzz/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/data";

enum { ELEMENTS_MAX = 1 << 16, WIDEST = 8 };

/* Reads two samples whole, and the second half of the last dimension of both. Values that do not fit may be errors. */
static void read_some(const weir_data *data, int64_t first)
{
    const weir_type *type = &weir_data_get_info(data)->type;
    const size_t bytes = weir_dtype_bytes(type->dtype);
    static char whole[2 * ELEMENTS_MAX * WIDEST], part[sizeof whole];
    weir_view all = {.data = whole, .dtype = type->dtype, .shape = {type->shape.rank + 1, {2}}};
    if (weir_shape_count(&type->shape) > ELEMENTS_MAX)
        return;
    memcpy(all.shape.dim + 1, type->shape.dim, sizeof *all.shape.dim * (size_t)type->shape.rank);
    all.global = all.shape;
    weir_view half = all;
    const int last = type->shape.rank;
    half.data = part;
    half.offset[last] = all.shape.dim[last] / 2;
    half.shape.dim[last] -= half.offset[last];
    if (weir_data_read(data, first, false, &all))
        return;
    if (weir_data_read(data, first, false, &half))
        __builtin_trap();
    const size_t run = (size_t)half.shape.dim[last] * bytes, row = (size_t)all.shape.dim[last] * bytes;
    for (size_t r = 0; r < (size_t)(weir_shape_count(&half.shape) / half.shape.dim[last]); r++)
        if (memcmp(part + r * run, whole + r * row + (row - run), run) != 0)
            __builtin_trap();
}

static void look(weir_data *data)
{
    const int64_t samples = weir_data_get_info(data)->samples;
    for (int64_t i = 0; data && i < samples && i < 64; i++)
        read_some(data, i);
    if (data && samples < 1)
        __builtin_trap();
    weir_data_close(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[FUZZ_PATH];
    int fd = fuzz_file(bytes, size, path);
    if (fd < 0)
        return 0;
    look(weir_data_tokens(path, .seq = 3, .vocab = 1 << 20));
    look(weir_data_npy(path, .sequential = true, .to = 0.5));
    close(fd);
    return 0;
}
