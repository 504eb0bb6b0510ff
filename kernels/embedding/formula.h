/* kernels/embedding/formula.h: where a shard of a table has an id's row, for all kinds of devices. Any thread. */
#ifndef KERNELS_EMBEDDING_FORMULA_H
#define KERNELS_EMBEDDING_FORMULA_H

#include "graph/base/formula.h"

#include <stdbool.h>
#include <stdint.h>

struct embedding_attrs {
    int64_t vocab; /* rows of the whole table */
};

FORMULA bool id_known(int32_t id, int64_t vocab)
{
    return id >= 0 && id < vocab;
}

/* Among `rows` rows from `first` on; -1: elsewhere. */
FORMULA int64_t row_at(int32_t id, int64_t first, int64_t rows)
{
    const int64_t row = id - first;
    return row >= 0 && row < rows ? row : -1;
}

#endif
