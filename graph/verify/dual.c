/* graph/verify/dual.c: see the header. */
#define DUAL_NUMBERS_ONLY
#include "graph/verify/dual.h"

#include <string.h>

dual_value dual_inverse(dual_value a)
{
    const field_value inverse = field_inverse(a.value);
    if (dual_is_const(a))
        return dual_const(inverse);
    return (dual_value){inverse, field_neg(field_mul(a.slope, field_mul(inverse, inverse)))};
}

/* Members of the pairs are steps of 2 apart. */
dual_value dual_dot(dual_value start, const dual_value *a, int64_t a_step, const dual_value *b, int64_t b_step, int64_t count)
{
    const field_value left = field_dot(start.slope, &a->slope, 2 * a_step, &b->value, 2 * b_step, count);
    return (dual_value){field_dot(start.value, &a->value, 2 * a_step, &b->value, 2 * b_step, count),
                        field_dot(left, &a->value, 2 * a_step, &b->slope, 2 * b_step, count)};
}

/* ---- oracles ---- */

/* `moves`: with its derivative; without, arguments count as constants. A derivative is a value of an oracle without one of its own,
 * which ends the recursion. */
static dual_value slope_of(uint64_t seed, const char *function, int primes, const dual_value *at, int count, int by, bool moves);

static dual_value oracle(uint64_t seed, const char *function, int primes, const dual_value *at, int count, bool moves)
{
    dual_value answer = dual_const(field_oracle_primed(seed, function, primes, count ? &at->value : NULL, 2, count));
    for (int i = 0; moves && i < count; i++) {
        if (dual_is_const(at[i]))
            continue;
        const dual_value slope = slope_of(seed, function, primes, at, count, i, false);
        answer.slope = field_add(answer.slope, field_mul(at[i].slope, slope.value));
    }
    return answer;
}

/* Whether the gradient of a built-in function reads its result. */
static bool is_of_result(const char *function)
{
    return !strcmp(function, "sqrt") || !strcmp(function, "tanh") || !strcmp(function, "sigmoid");
}

/* The derivative of the oracle of `function` with so many primes behind it. */
static dual_value slope_of(uint64_t seed, const char *function, int primes, const dual_value *at, int count, int by, bool moves)
{
    const bool plain = !primes && count == 1;
    if (plain && !strcmp(function, "exp"))
        return oracle(seed, function, 0, at, 1, moves);
    if (plain && !strcmp(function, "log"))
        return dual_inverse(*at);
    if (plain && !strcmp(function, "rsqrt")) {
        const dual_value y = oracle(seed, function, 0, at, 1, moves);
        return dual_mul(dual_real(-0.5), dual_mul(y, dual_mul(y, y)));
    }
    if (plain && is_of_result(function)) {
        const dual_value y = oracle(seed, function, 0, at, 1, moves);
        return oracle(seed, function, 1, &y, 1, moves);
    }
    if (!primes && count == 2 && !strcmp(function, "pow"))
        return oracle(seed, by ? "pow_db" : "pow_da", 0, at, 2, moves);
    const dual_value all = oracle(seed, function, primes + 1, at, count, moves);
    return count == 1 ? all : oracle(seed, "by", 0, (const dual_value[]){all, dual_int(by)}, 2, moves);
}

dual_value dual_oracle(uint64_t seed, const char *function, const dual_value *arguments, int count)
{
    return oracle(seed, function, 0, arguments, count, true);
}

dual_value dual_slope(uint64_t seed, const char *function, const dual_value *arguments, int count, int by)
{
    return slope_of(seed, function, 0, arguments, count, by, true);
}
