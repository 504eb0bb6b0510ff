/* tests/fuzz/fuzz_npy.c: bytes that claim to be an .npy file. A value that is read is written, and must be read as the
 * same. */
#define _GNU_SOURCE
#include "apps/common/npy.h"
#include "tests/fuzz/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/npy";

static void write_again(const struct tensors *t)
{
    char folder[] = "/tmp/weir-fuzz-XXXXXX", path[64];
    struct tensors again = {.count = 0};
    if (!mkdtemp(folder))
        return;
    snprintf(path, sizeof path, "%s/w.npy", folder);
    if (!npy_write_folder(t, folder) || !npy_read_folder(&again, folder) || again.count != 1)
        __builtin_trap();
    const weir_array *a = &t->item[0].value, *b = &again.item[0].value;
    if (a->dtype != b->dtype || !weir_shape_equal(&a->shape, &b->shape) ||
        memcmp(a->data, b->data, tensor_bytes(&t->item[0])) != 0)
        __builtin_trap();
    tensors_free(&again);
    unlink(path);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    struct tensors t = {.count = 0};
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    if (npy_read_file(&t, path, "w"))
        write_again(&t);
    tensors_free(&t);
    close(fd);
    return 0;
}
