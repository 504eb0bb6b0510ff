/* apps/weir/checkpoint_quantize.c: see the header. */
#include "apps/weir/checkpoint_quantize.h"

#include "apps/common/measure.h"
#include "apps/weir/checkpoint_merge.h"
#include "apps/weir/quantize.h"
#include "graph/base/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static weir_format format_of(const char *name)
{
    return !strcmp(name, "q8_0") ? WEIR_Q8_0 : !strcmp(name, "q4_0") ? WEIR_Q4_0 : WEIR_DENSE;
}

bool checkpoint_quantize_may(const checkpoint_quantize_opts *c)
{
    const char *end = strrchr(c->to, '.');
    bool folder;
    if (!format_of(c->format))
        return tensors_failed("--quantize %.40s: q8_0 and q4_0 are allowed", c->format);
    if (!end || strcmp(end, ".gguf") != 0)
        return tensors_failed("%s: --quantize writes a GGUF file, whose name ends with .gguf", c->to);
    return quantize_may_open(c->from, &folder);
}

/* The weights of the base and of the adapter, in memory at once. */
static bool merge(const checkpoint_quantize_opts *c, struct quantize *q, struct tensors *merged)
{
    const char *weights = *q->config.weights ? q->config.weights : c->from;
    if (!tensors_read(merged, weights, false) || !checkpoint_merge(merged, c->from, c->adapter, false))
        return false;
    q->held = merged;
    return true;
}

static void report(const checkpoint_quantize_opts *c, const struct quantize *q)
{
    char text[32];
    struct stat made;
    foreign_put(stdout, c->to);
    printf(": %d tensors, %d of them quantised, %s\n", q->tensors.count, q->quantized,
           measure_bytes_text(stat(c->to, &made) ? 0 : (uint64_t)made.st_size, text));
    if (q->no_tokens)
        fprintf(stderr, "weir checkpoint convert: the folder has no tokenizer.json, so the file has no tokenizer\n");
}

bool checkpoint_quantize(const checkpoint_quantize_opts *c, bool (*way)(void *ctx), void *ctx)
{
    struct tensors merged = {.count = 0};
    struct quantize *q = calloc(1, sizeof *q);
    if (!q)
        return tensors_failed("no memory");
    const bool ok = quantize_open(q, c->from, format_of(c->format)) && (!c->adapter || merge(c, q, &merged)) && way(ctx) && quantize_write(q, c->to);
    if (ok)
        report(c, q);
    tensors_free(&merged);
    quantize_close(q);
    free(q);
    return ok;
}
