/* graph/verify/draw.c: see the header. */
#include "graph/verify/draw.h"

#include "graph/verify/bound.h"

enum { INT_BOUND = 8 }; /* of integers whose readers take any */

/* The first, the last, or any: with so few values some are equal. */
static field_value int_drawn(uint64_t bits, int64_t bound)
{
    bound = bound < 1 || bound == BOUND_NONE ? INT_BOUND : bound;
    switch (bits % 8) {
    case 0:
        return field_int(0);
    case 1:
        return field_int(bound - 1);
    default:
        return field_int((int64_t)((bits >> 8) % (uint64_t)bound));
    }
}

void draw_input(uint64_t seed, const char *name, int64_t step, int micro, int64_t bound, const rule_array *array)
{
    uint64_t before = (uint64_t)micro; /* elements of the step's micro-batches before this one */
    for (int d = 0; d < array->rank; d++)
        before *= (uint64_t)array->global[d];
    for (int64_t n = 0; n < array->count; n++) {
        const int64_t numbers[] = {step, (int64_t)(before + (uint64_t)rule_logical(array, n))};
        array->at[n] = weir_dtype_real(array->dtype) ? field_draw(seed, name, numbers, 2)
                                                     : int_drawn(field_bits(seed, name, numbers, 2), bound);
    }
}

void draw_kept(uint64_t seed, const char *name, const int64_t *begin, const rule_array *array)
{
    for (int64_t n = 0; n < array->count; n++) {
        const int64_t place = rule_logical(array, n);
        if (weir_dtype_real(array->dtype))
            array->at[n] = field_draw(seed, name, &place, 1);
        else
            array->at[n] = field_int(begin ? *begin : 1 + (int64_t)(field_bits(seed, name, &place, 0) % 3));
    }
}
