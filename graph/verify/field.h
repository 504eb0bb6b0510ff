/* graph/verify/field.h: the numbers that a proof computes with, in the place of floating-point ones.
 *
 * A *value* is a pair of elements of the field of the integers modulo p = 2^61 - 1. Sums, products and quotients are exact, so
 * two ways to compute the same rational function of random values agree, and two functions that differ agree with a probability
 * of their degree / p, in both elements of the pair with that squared (Schwartz 1980, Zippel 1979).
 *
 * A function that is not rational (exp, sqrt) is an *oracle*: a random function, which is a keyed hash of its argument. It answers
 * both elements together, from both of the argument, so two arguments that differ have answers that have nothing to do with each
 * other. Integers (ids, counts) are themselves, modulo p, in both elements.
 *
 * The logarithm is a random permutation of all values, and so has an inverse: exp(log y) = y. A sum of exponentials whose
 * logarithm is kept can therefore be put together from parts, however it was divided.
 *
 * Order. The values have none, so `larger` is that of another hash: a random order of all values. With it the largest of some is
 * the same however they are grouped.
 *
 * Pure functions; any thread.
 */
#ifndef GRAPH_VERIFY_FIELD_H
#define GRAPH_VERIFY_FIELD_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/exact.h>

/* A test takes a field so small that values that differ are sometimes equal, and pairs of equal elements. */
#ifndef FIELD_BITS
#define FIELD_BITS 61
#define FIELD_ELEMENTS 2
#endif
#define FIELD_P ((UINT64_C(1) << FIELD_BITS) - 1)

typedef struct field_value {
    uint64_t of[2]; /* each less than FIELD_P */
} field_value;

static inline uint64_t field_add_one(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum >= FIELD_P ? sum - FIELD_P : sum;
}

static inline uint64_t field_sub_one(uint64_t a, uint64_t b)
{
    return a >= b ? a - b : a + FIELD_P - b;
}

static inline uint64_t field_mul_one(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t folded = (uint64_t)(product & FIELD_P) + (uint64_t)(product >> FIELD_BITS);
    return folded >= FIELD_P ? folded - FIELD_P : folded;
}

static inline field_value field_add(field_value a, field_value b)
{
    return (field_value){{field_add_one(a.of[0], b.of[0]), field_add_one(a.of[1], b.of[1])}};
}

static inline field_value field_sub(field_value a, field_value b)
{
    return (field_value){{field_sub_one(a.of[0], b.of[0]), field_sub_one(a.of[1], b.of[1])}};
}

static inline field_value field_mul(field_value a, field_value b)
{
    return (field_value){{field_mul_one(a.of[0], b.of[0]), field_mul_one(a.of[1], b.of[1])}};
}

static inline bool field_equal(field_value a, field_value b)
{
    return a.of[0] == b.of[0] && a.of[1] == b.of[1];
}

static inline field_value field_int(int64_t number)
{
    uint64_t one = number < 0 ? FIELD_P - (uint64_t)-number % FIELD_P : (uint64_t)number % FIELD_P;
    return (field_value){{one % FIELD_P, one % FIELD_P}};
}

static inline field_value field_neg(field_value a)
{
    return field_sub(field_int(0), a);
}

/* start + a[0] b[0] + a[a_step] b[b_step] + ..., of `count` products, which are reduced some at a time. */
field_value field_dot(field_value start, const field_value *a, int64_t a_step, const field_value *b, int64_t b_step,
                      int64_t count);

/* False: it is no integer of 32 bits. */
bool field_is_int(field_value a, int64_t *number);

/* The number that a rule of a program's own op computes with. */
static inline weir_exact field_to_exact(field_value a)
{
    return (weir_exact){{a.of[0], a.of[1], 0, 0}};
}
static inline field_value field_from_exact(weir_exact a)
{
    return (field_value){{a.of[0] % FIELD_P, a.of[1] % FIELD_P}};
}

/* The same value, with no derivative where numbers carry one (dual.h). */
static inline field_value field_still(field_value a)
{
    return a;
}

/* 1 / a; of 0 it is 0. */
field_value field_inverse(field_value a);

static inline field_value field_div(field_value a, field_value b)
{
    return field_mul(a, field_inverse(b));
}

/* The simplest rational number within 4 units in the last place of a double: 0.1 is 1 / 10, so 1 / 10 and 0.1 agree. Infinity
 * and NaN are values of their own. */
field_value field_real(double number);

/* A random function, told from others by `function` with so many primes behind it, of every step-th of `arguments`. */
field_value field_oracle_primed(uint64_t seed, const char *function, int primes, const field_value *arguments, int step,
                                int count);

static inline field_value field_oracle(uint64_t seed, const char *function, const field_value *arguments, int count)
{
    return field_oracle_primed(seed, function, 0, arguments, 1, count);
}

static inline field_value field_oracle_of(uint64_t seed, const char *function, field_value argument)
{
    return field_oracle(seed, function, &argument, 1);
}

/* A random permutation of all values, and its inverse. */
field_value field_log(uint64_t seed, field_value a);
field_value field_unlog(uint64_t seed, field_value log);

/* A random number of a name and some integers: values of inputs, of parameters. */
field_value field_draw(uint64_t seed, const char *name, const int64_t *numbers, int count);
uint64_t field_bits(uint64_t seed, const char *name, const int64_t *numbers, int count);

/* Whether a comes behind b in the random order. */
bool field_larger(uint64_t seed, field_value a, field_value b);

#endif
