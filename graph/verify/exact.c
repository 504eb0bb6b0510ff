/* graph/verify/exact.c: see <weir/exact.h>. A weir_exact is a dual number: value and derivative, a pair each. */
#define DUAL_NUMBERS_ONLY
#include "graph/verify/dual.h"

#include <weir/exact.h>

weir_exact weir_exact_int(int64_t number)
{
    return dual_to_exact(dual_int(number));
}

weir_exact weir_exact_real(double number)
{
    return dual_to_exact(dual_real(number));
}

weir_exact weir_exact_add(weir_exact a, weir_exact b)
{
    return dual_to_exact(dual_add(dual_from_exact(a), dual_from_exact(b)));
}

weir_exact weir_exact_sub(weir_exact a, weir_exact b)
{
    return dual_to_exact(dual_sub(dual_from_exact(a), dual_from_exact(b)));
}

weir_exact weir_exact_mul(weir_exact a, weir_exact b)
{
    return dual_to_exact(dual_mul(dual_from_exact(a), dual_from_exact(b)));
}

weir_exact weir_exact_div(weir_exact a, weir_exact b)
{
    return dual_to_exact(dual_div(dual_from_exact(a), dual_from_exact(b)));
}

/* The numbers have one layout, so arguments need no copy. */
_Static_assert(sizeof(weir_exact) == sizeof(dual_value) && offsetof(dual_value, slope) == 2 * sizeof(uint64_t), "a dual number");

weir_exact weir_exact_oracle(const weir_kernel_args *args, const char *function, const weir_exact *at, int count)
{
    return dual_to_exact(dual_oracle(args->seed, function, (const dual_value *)(const void *)at, count));
}

weir_exact weir_exact_slope(const weir_kernel_args *args, const char *function, const weir_exact *at, int count, int by)
{
    return dual_to_exact(dual_slope(args->seed, function, (const dual_value *)(const void *)at, count, by));
}

bool weir_exact_larger(const weir_kernel_args *args, weir_exact a, weir_exact b)
{
    return dual_larger(args->seed, dual_from_exact(a), dual_from_exact(b));
}

bool weir_exact_equal(weir_exact a, weir_exact b)
{
    return dual_equal(dual_from_exact(a), dual_from_exact(b));
}

bool weir_exact_is_int(weir_exact a, int64_t *number)
{
    return dual_is_int(dual_from_exact(a), number);
}
