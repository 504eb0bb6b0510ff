/* apps/common/model/text.c: text as bytes. A corpus is read whole: what fits a language model that trains on a few cores
 * fits in memory many times over. */
#include "apps/common/model/text.h"

#include "graph/base/reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

bool text_add_file(text *corpus, const char *path, const char **why)
{
    FILE *file = reading_stream(path, why);
    if (!file)
        return false;
    char part[1 << 16];
    bool ok = true;
    for (size_t got; ok && (got = fread(part, 1, sizeof part, file)) > 0;) {
        uint8_t *grown = realloc(corpus->bytes, corpus->count + got);
        ok = grown != NULL;
        if (ok) {
            corpus->bytes = grown;
            memcpy(grown + corpus->count, part, got);
            corpus->count += got;
        }
    }
    if (!ok || ferror(file))
        *why = strerror(errno);
    ok = ok && !ferror(file);
    fclose(file);
    corpus->files += ok;
    return ok;
}

void text_free(text *corpus)
{
    free(corpus->bytes);
    *corpus = (text){0};
}

size_t text_window(const text *corpus, size_t length, uint64_t seed, int64_t step, int64_t row)
{
    uint32_t word[4];
    weir_philox(seed, (uint64_t)step, (uint64_t)row, word);
    uint64_t draw = (uint64_t)word[1] << 32 | word[0];
    return (size_t)(draw % (corpus->count - length + 1));
}

bool text_hold_out(text *corpus, size_t least, text *held_out)
{
    size_t count = corpus->count / 10 > least ? corpus->count / 10 : least;
    if (corpus->count < count || corpus->count - count < least)
        return false;
    held_out->bytes = malloc(count);
    if (!held_out->bytes)
        return false;
    corpus->count -= count;
    memcpy(held_out->bytes, corpus->bytes + corpus->count, count);
    held_out->count = count;
    held_out->files = 1;
    return true;
}

size_t text_spread(const text *corpus, size_t length, int64_t row, int64_t rows)
{
    size_t last = corpus->count - length;
    return rows < 2 ? 0 : last * (size_t)row / (size_t)(rows - 1);
}
