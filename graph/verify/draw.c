/* graph/verify/draw.c: see the header. */
#include "graph/verify/draw.h"

enum { INT_BOUND = 8 }; /* of integers whose readers take any */
enum { OTHERS = 3 };    /* of so many labels in a row one does not count, so that some of every shard do not */

field_value draw_int(uint64_t bits, bound of)
{
    const int64_t below = of.below < 1 || of.below == BOUND_NONE ? INT_BOUND : of.below;
    switch (bits % 8) {
    case 0:
        return field_int(0);
    case 1:
        return field_int(below - 1);
    case 2:
        return field_int(of.has_other ? of.other : below / 2);
    default:
        return field_int((int64_t)((bits >> 8) % (uint64_t)below));
    }
}

void draw_input(uint64_t seed, const char *name, int64_t step, int micro, bound of, const rule_array *array)
{
    uint64_t before = (uint64_t)micro; /* elements of the step's micro-batches before this one */
    for (int d = 0; d < array->rank; d++)
        before *= (uint64_t)array->global[d];
    const uint64_t which = of.has_other ? field_bits(seed, name, &step, 1) % OTHERS : OTHERS;
    for (int64_t n = 0; n < array->count; n++) {
        const int64_t numbers[] = {step, (int64_t)(before + (uint64_t)rule_logical(array, n))};
        if (weir_dtype_real(array->dtype))
            array->at[n] = field_draw(seed, name, numbers, 2);
        else if ((uint64_t)numbers[1] % OTHERS == which)
            array->at[n] = field_int(of.other);
        else
            array->at[n] = draw_int(field_bits(seed, name, numbers, 2), of);
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
