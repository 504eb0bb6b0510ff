/* tests/fuzz/fuzz_gguf.c: bytes that claim to be a GGUF file. The tensors of a header that is read lie in the file, at multiples of
 * the alignment, and do not overlap. As a checkpoint the file opens when its names differ; every tensor is read whole and by its last
 * row, with equal bits, and the file is verified.
 */
#define _GNU_SOURCE
#include "actors/keep/format/gguf.h"
#include "tests/fuzz/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/gguf";

static void check(const struct gguf_header *header, size_t size)
{
    uint64_t at = 0;
    if (!header->alignment || header->data_at % header->alignment || header->file_bytes != size)
        __builtin_trap();
    for (int i = 0; i < header->tensors.count; i++) {
        const struct gguf_tensor *t = &header->tensors.item[i];
        const uint64_t count = (uint64_t)weir_shape_count(&t->shape), elements = t->type ? (uint64_t)t->type->elements : 1;
        if (t->begin < at || t->begin % header->alignment || t->end < t->begin || t->shape.rank > GGUF_DIMS_MAX)
            __builtin_trap();
        if (t->type && (count % elements || t->end - t->begin != count / elements * (uint64_t)t->type->bytes))
            __builtin_trap();
        if (t->end > t->begin && (header->data_at > size || t->end > size - header->data_at))
            __builtin_trap();
        at = t->end;
    }
}

/* The last row alone is what it is in the whole. */
static void read_row(weir_checkpoint *c, const weir_checkpoint_tensor *t, const char *whole)
{
    int64_t start[WEIR_DIMS_MAX] = {0};
    weir_array value = {.dtype = t->dtype, .shape = t->shape};
    const size_t bytes = weir_dtype_bytes(t->dtype), all = (size_t)weir_shape_count(&t->shape) * bytes;
    if (!t->shape.rank || !all)
        return;
    start[0] = t->shape.dim[0] - 1;
    value.shape.dim[0] = 1;
    const size_t row = (size_t)weir_shape_count(&value.shape) * bytes;
    value.data = malloc(row);
    if (value.data && !weir_checkpoint_read(c, t, 0, start, &value) && memcmp(value.data, whole + (all - row), row) != 0)
        __builtin_trap();
    free(value.data);
}

static void read_all(weir_checkpoint *c)
{
    for (int i = 0; i < weir_checkpoint_get_info(c)->tensors; i++) {
        const weir_checkpoint_tensor *t = weir_checkpoint_get_tensor(c, i);
        weir_array value = {.dtype = t->dtype, .shape = t->shape};
        if (!t->dtype)
            continue;
        value.data = malloc((size_t)weir_shape_count(&t->shape) * weir_dtype_bytes(t->dtype) + 1);
        if (value.data && !weir_checkpoint_read(c, t, 0, NULL, &value))
            read_row(c, t, value.data);
        free(value.data);
    }
    if (weir_checkpoint_verify(c, NULL, NULL) != WEIR_OK)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pool p = {0};
    struct gguf_header header;
    char path[FUZZ_PATH];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    if (gguf_read(&p, "fuzz", fd, &header) == WEIR_OK) {
        check(&header, size);
        weir_checkpoint *c = weir_checkpoint_open(path);
        if (c)
            read_all(c);
        weir_checkpoint_close(c);
    }
    pool_free(&p);
    close(fd);
    return 0;
}
