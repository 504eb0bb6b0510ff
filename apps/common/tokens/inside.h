/* apps/common/tokens/inside.h: what a tokenizer consists of, for the readers of the two forms of file. */
#ifndef APPS_COMMON_TOKENS_INSIDE_H
#define APPS_COMMON_TOKENS_INSIDE_H

#include "apps/common/tokens/added.h"
#include "apps/common/tokens/bpe.h"
#include "apps/common/tokens/split.h"

#include <stdio.h>

struct tokenizer {
    struct bpe bpe;
    struct split split;
    struct added added[2]; /* the second is looked for in what the first leaves */
};

/* Fill an empty tokenizer from an open file, which stays the caller's. False with tokens_error(), which does not name the file;
 * tokenizer_free() frees what there is. */
bool tokenizer_from_json(struct tokenizer *t, FILE *file);
bool tokenizer_from_gguf(struct tokenizer *t, FILE *file);

#endif
