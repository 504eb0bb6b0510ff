/* actors/keep/stored.c: see the header. */
#include "actors/keep/stored.h"

#include "actors/keep/format/convert.h"
#include "graph/base/base.h"

#include <stdio.h>

bool keep_stored_is_bytes(const weir_checkpoint_tensor *t, const struct gguf_type *blocks, weir_dtype dtype,
                          const weir_shape *shape)
{
    const int last = t->shape.rank - 1;
    if (!blocks || dtype != WEIR_U8 || last < 0 || shape->rank != t->shape.rank + 1)
        return false;
    for (int d = 0; d < last; d++)
        if (shape->dim[d] != t->shape.dim[d])
            return false;
    return shape->dim[last] == t->shape.dim[last] / blocks->elements && shape->dim[last + 1] == blocks->bytes;
}

bool keep_stored_reads_as(const weir_checkpoint *c, const weir_checkpoint_tensor *t, weir_dtype dtype, const weir_shape *shape)
{
    return keep_stored_is_bytes(t, keep_stored_blocks(c, t), dtype, shape) ||
           (weir_checkpoint_reads_as(t, dtype) && weir_shape_equal(&t->shape, shape));
}

bool keep_stored_is(const weir_checkpoint *c, const weir_checkpoint_tensor *t, weir_dtype dtype, const weir_shape *shape)
{
    const struct gguf_type *blocks = keep_stored_blocks(c, t);
    if (blocks)
        return keep_stored_is_bytes(t, blocks, dtype, shape);
    return dtype == t->dtype && !keep_stored_may_not_fit(t->stored, dtype) && weir_shape_equal(&t->shape, shape);
}

const char *keep_stored_text(const weir_checkpoint_tensor *t, char *text, size_t bytes)
{
    char shape[128];
    snprintf(text, bytes, "%s %s", t->stored, shape_text(&t->shape, shape, sizeof shape));
    return text;
}
