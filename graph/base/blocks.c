/* graph/base/blocks.c: see the header. Where a sum follows a product, the product is exact in f32: f16 has 11 bits, and the integers
 * that it is multiplied by have 10 together. So a compiler that joins the two into one instruction changes no bit. */
#include "graph/base/blocks.h"

#include <string.h>

weir_format block_format_named(const char *name)
{
    for (int i = WEIR_DENSE + 1; block_format_of(i); i++)
        if (!strcmp(block_format_of(i)->name, name))
            return (weir_format)i;
    return WEIR_DENSE;
}

void block_read(weir_format format, const unsigned char *block, float *to)
{
    const block_format *is = block_format_of(format);
    block_unit unit;
    for (int u = 0; u < is->elements / is->unit; u++, to += is->unit) {
        block_unit_read(format, block, u, &unit);
        if (is->minimum)
            for (int i = 0; i < is->unit; i++)
                to[i] = unit.scale * (float)unit.q[i] + unit.minimum;
        else
            for (int i = 0; i < is->unit; i++)
                to[i] = unit.scale * (float)(unit.q[i] - is->zero);
    }
}

void block_read_row(weir_format format, const unsigned char *row, int64_t from, int64_t count, float *to)
{
    const block_format *is = block_format_of(format);
    float part[BLOCK_ELEMENTS_MAX];
    for (int64_t some; count > 0; from += some, to += some, count -= some) {
        const int64_t skip = from % is->elements;
        const unsigned char *block = row + from / is->elements * is->bytes;
        some = is->elements - skip < count ? is->elements - skip : count;
        block_read(format, block, some == is->elements ? to : part);
        if (some < is->elements)
            memcpy(to, part + skip, (size_t)some * sizeof *to);
    }
}
