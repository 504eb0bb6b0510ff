/* tests/fuzz/fuzz_config.c: bytes that claim to be a config.json, or a GGUF file. Sizes that are read are in bounds, each parameter has a
 * shape, and the graph of a small model has no mistake. */
#define _GNU_SOURCE
#include "apps/common/model/lm_inside.h"
#include "tests/fuzz/file.h"

#include <string.h>
#include <unistd.h>

const char *const fuzz_corpus = "tests/fuzz/corpus/config";

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static void check_shapes(const lm_config *c)
{
    weir_shape shape;
    for (int part = 0; part < LM_PARTS; part++)
        for (int bias = 0; bias < 2; bias++)
            if (lm_shape(c, (lm_part)part, bias, &shape))
                for (int d = 0; d < shape.rank; d++)
                    require(shape.dim[d] >= 1 && shape.dim[d] <= 3 * (int64_t)LM_SIZE_MAX);
}

static void check_graph(lm_config *c)
{
    c->room = c->context;
    c->chunk = c->context > 2 ? 2 : 0;
    weir_graph *g = lm_graph(c);
    require(g && !weir_graph_mistake(g));
    weir_graph_free(g);
}

static void check(lm_config *c)
{
    require(c->layers >= 1 && c->layers <= LM_LAYERS_MAX && c->heads >= 1 && c->kv_heads >= 1 && c->heads % c->kv_heads == 0);
    require(c->ends_count >= 0 && c->ends_count <= LM_ENDS_MAX && c->eps > 0 && c->rope_base > 0);
    check_shapes(c);
    if (c->layers <= 4 && c->dim <= 64 && c->heads * c->head_dim <= 64 && c->ffn <= 64 && c->vocab <= 300 && c->context <= 64)
        check_graph(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lm_config c;
    char path[FUZZ_PATH], text[512] = "";
    const int fd = fuzz_file(data, size, path);
    const struct lm_why why = {path, text, sizeof text};
    if (fd < 0)
        return 0;
    c = (lm_config){.rope_base = 10000, .prefix = ""};
    const bool gguf = size >= 4 && !memcmp(data, "GGUF", 4), read = gguf ? lm_read(path, &c, text, sizeof text) : lm_read_config(&c, &why);
    require(read || *text);
    if (read)
        check(&c);
    close(fd);
    return 0;
}
