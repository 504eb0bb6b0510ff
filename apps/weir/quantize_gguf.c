/* apps/weir/quantize_gguf.c: a GGUF file as the source: its metadata, pair by pair, and its tensors in the order of their data. */
#include "apps/weir/quantize.h"

#include "graph/base/reading.h"

#include <stdlib.h>
#include <string.h>

/* ---- metadata ---- */

/* Pairs that the new file has anew. The alignment of data is 32 where the file says nothing. */
static bool is_replaced(const char *key)
{
    return !strcmp(key, QUANTIZE_FILE_TYPE) || !strcmp(key, QUANTIZE_VERSION) || !strcmp(key, "general.alignment");
}

/* Copies the bytes from `begin` to where `g` is. */
static void copy_pair(struct quantize *q, struct gguf *g, uint64_t begin)
{
    const size_t bytes = (size_t)(g->at - begin);
    void *pair = malloc(bytes + 1);
    g->at = begin;
    if (!pair)
        gguf_failed(g, GGUF_NO_MEMORY, "no memory for its metadata");
    else if (gguf_take(g, pair, bytes))
        gguf_write_pair(&q->to, pair, bytes);
    free(pair);
}

static bool copy_pairs(struct quantize *q, struct gguf *g)
{
    uint64_t tensors, pairs;
    char key[GGUF_KEY_BYTES];
    g->at = 0;
    gguf_take_counts(g, &tensors, &pairs);
    for (uint64_t i = 0; i < pairs && !g->fault; i++) {
        struct gguf_value v = {.key = NULL};
        const uint64_t begin = g->at;
        if (gguf_next_pair(g, i, pairs, key, &v) && gguf_skip_value(g, &v) && !is_replaced(key))
            copy_pair(q, g, begin);
    }
    return !g->fault;
}

/* A part of a model in several files would be a model that lacks tensors. */
static bool is_whole(const struct quantize *q, struct gguf *g)
{
    struct gguf_value split = {.key = "split.count"};
    uint16_t count = 1;
    if (gguf_find(g, &split, 1) && split.present && split.type == GGUF_U16 && !split.array && gguf_begin(g, &split))
        gguf_take(g, &count, sizeof count);
    return count < 2 || tensors_failed("%s: is one of %d files of a model; merge them first, as gguf-split of llama.cpp does", q->from, count);
}

static bool take_metadata(struct quantize *q)
{
    struct gguf g;
    const char *why;
    const int fd = reading_open(q->from, &why);
    if (fd < 0)
        return tensors_failed("%s: cannot be read: %s", q->from, why);
    bool ok = gguf_open(&g, fd) && is_whole(q, &g) && copy_pairs(q, &g);
    if (g.fault)
        ok = tensors_failed("%s: %s", q->from, g.why);
    gguf_close(&g);
    close(fd);
    return ok;
}

/* ---- tensors ---- */

static int by_data(const void *a, const void *b)
{
    const weir_checkpoint_tensor *x = *(weir_checkpoint_tensor *const *)a, *y = *(weir_checkpoint_tensor *const *)b;
    const uint64_t at = x->shard->offset, other = y->shard->offset;
    return at != other ? (at < other ? -1 : 1) : strcmp(x->name, y->name);
}

bool quantize_from_gguf(struct quantize *q)
{
    if (!(q->file = weir_checkpoint_open(q->from)))
        return tensors_failed("%s", weir_error());
    const int count = weir_checkpoint_get_info(q->file)->tensors;
    const weir_checkpoint_tensor **sorted = POOL_NEW(&q->pool, const weir_checkpoint_tensor *, count + 1);
    if (!sorted)
        return tensors_failed("no memory");
    for (int i = 0; i < count; i++)
        sorted[i] = weir_checkpoint_get_tensor(q->file, i);
    qsort(sorted, (size_t)count, sizeof *sorted, by_data);
    for (int i = 0; i < count; i++)
        if (!quantize_add(q, sorted[i]->name, &sorted[i]->shape, sorted[i]))
            return false;
    quantize_put_version(q);
    return take_metadata(q);
}
