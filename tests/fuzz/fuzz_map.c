/* tests/fuzz/fuzz_map.c: a text that claims to be a map of names, applied to a few tensors in both directions. */
#define _GNU_SOURCE
#include "apps/common/name_map.h"
#include "tests/fuzz/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/map";

static void fill(struct tensors *t)
{
    static const struct {
        const char *name;
        weir_dtype dtype;
        weir_shape shape;
    } made[] = {{"a", WEIR_F32, {2, {2, 6}}},    {"b", WEIR_F32, {1, {6}}}, {"c", WEIR_U8, {0, {0}}},
                {"h0/a", WEIR_F32, {2, {2, 2}}}, {"h1/a", WEIR_F32, {2, {2, 2}}}, {"e", WEIR_I32, {3, {2, 0, 3}}}};
    for (int i = 0; i < (int)(sizeof made / sizeof *made); i++) {
        struct tensor *to = tensors_add(t, made[i].name, made[i].dtype, &made[i].shape, 1);
        if (to)
            memset(to->value.data, i, tensor_bytes(to));
    }
}

static void apply(const struct name_map *map, const struct tensors *from, bool backwards)
{
    struct tensors to = {.count = 0};
    name_map_apply(map, from, &to, backwards);
    tensors_free(&to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    struct name_map *map = NULL;
    struct tensors t = {.count = 0};
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    fill(&t);
    if (name_map_read(&map, path)) {
        apply(map, &t, false);
        apply(map, &t, true);
    }
    name_map_free(map);
    tensors_free(&t);
    close(fd);
    return 0;
}
