/* tests/fuzz/fuzz_safetensors.c: bytes that claim to be a safetensors file. A decoded header must be consistent, with
 * tensors that meet end to end and fill the file, and come back from its own encoding with the same names, types and
 * shapes. As a file it is opened as a checkpoint, with what its texts say of kinds and slots, and every tensor is read.
 */
#define _GNU_SOURCE
#include "actors/keep/format/safetensors.h"
#include "tests/fuzz/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/checkpoint.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/safetensors";

static void check(const struct safetensors_header *header, size_t size)
{
    uint64_t at = 0;
    for (int i = 0; i < header->tensors.count; i++) {
        const struct safetensors_tensor *t = &header->tensors.item[i];
        bool known = t->dtype != SAFETENSORS_DTYPES;
        uint64_t each = known ? safetensors_dtype_bytes(t->dtype) : 0;
        if (t->begin != at || (known && t->end - at != (uint64_t)weir_shape_count(&t->shape) * each))
            __builtin_trap();
        at = t->end;
    }
    if (header->data_at + at != size)
        __builtin_trap();
}

static void encode_again(struct pool *p, struct safetensors_header *header, size_t data_bytes)
{
    struct safetensors_header again;
    for (int i = 0; i < header->tensors.count; i++)
        if (header->tensors.item[i].dtype == SAFETENSORS_DTYPES)
            return; /* nothing is written of such a type */
    const void *bytes = safetensors_encode(p, header);
    if (!bytes || safetensors_decode(p, "again", bytes, header->data_at, header->data_at + data_bytes, &again) ||
        again.tensors.count != header->tensors.count)
        __builtin_trap();
    for (int i = 0; i < again.tensors.count; i++)
        if (again.tensors.item[i].begin != header->tensors.item[i].begin)
            __builtin_trap();
}

static void read_all(weir_checkpoint *c)
{
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    for (int i = 0; i < info->tensors; i++) {
        const weir_checkpoint_tensor *t = weir_checkpoint_get_tensor(c, i);
        weir_array value = {.dtype = t->dtype, .shape = t->shape};
        value.data = malloc((size_t)weir_shape_count(&t->shape) * weir_dtype_bytes(t->dtype) + 1);
        for (int slot = 0; slot < t->slots && slot < 4 && value.data; slot++)
            weir_checkpoint_read(c, t, slot, NULL, &value);
        free(value.data);
    }
    if (weir_checkpoint_verify(c, NULL, NULL) != WEIR_OK)
        __builtin_trap();
}

static void open_file(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return;
    weir_checkpoint *c = weir_checkpoint_open(path);
    if (c)
        read_all(c);
    weir_checkpoint_close(c);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pool p = {0};
    struct safetensors_header header;
    if (safetensors_decode(&p, "fuzz", data, size, size, &header) == WEIR_OK) {
        size_t data_bytes = size - header.data_at;
        check(&header, size);
        encode_again(&p, &header, data_bytes);
        open_file(data, size);
    }
    pool_free(&p);
    return 0;
}
