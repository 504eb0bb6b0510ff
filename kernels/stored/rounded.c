/* kernels/stored/rounded.c: see the header. */
#include "kernels/stored/rounded.h"

size_t rounded_bytes(const block_format *format, int64_t rows, int64_t in)
{
    const size_t count = (size_t)rows * (size_t)in;
    return rounded_units_at(count) + rounded_units_at(count / (size_t)format->unit * sizeof(rounded_unit));
}

rounded_rows rounded_make(const block_format *format, int64_t rows, int64_t in, const float *x, void *memory)
{
    const int64_t count = rows * in;
    const rounded_rows to = {format, in, memory, (rounded_unit *)(void *)((char *)memory + rounded_units_at((size_t)count))};
    for (int64_t i = 0; i < count; i += ROUNDED_ELEMENTS)
        rounded_sums(format, rounded_elements(x + i, to.q + i), to.q + i, to.units + i / format->unit);
    return to;
}
