/* graph/verify/field.c: see the header.
 *
 * The hash is a chain of 64 x 64 -> 128-bit products with secrets, folded (as wyhash does); nobody chooses values to fool it,
 * for they are drawn from the same seed.
 */
#include "graph/verify/field.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SECRET_ONE UINT64_C(0xa0761d6478bd642f)
#define SECRET_TWO UINT64_C(0xe7037ed1a0b428db)
#define SECRET_THREE UINT64_C(0x8ebc6af09c88c6e3)
#define ULPS 4
#define PRODUCTS 32 /* each below 2^122: so many, and what was folded, are below 2^128 */
#define DENOMINATOR_MAX (UINT64_C(1) << 50)

/* Below 2^62, the same modulo p. */
static unsigned __int128 folded(unsigned __int128 sum)
{
    sum = (sum & FIELD_P) + (sum >> FIELD_BITS);
    return (sum & FIELD_P) + (sum >> FIELD_BITS);
}

field_value field_dot(field_value start, const field_value *a, int64_t a_step, const field_value *b, int64_t b_step,
                      int64_t count)
{
    unsigned __int128 x = start.of[0], y = start.of[1];
    for (int64_t done = 0; done < count;) {
        const int64_t end = count - done < PRODUCTS ? count : done + PRODUCTS;
        for (; done < end; done++, a += a_step, b += b_step) {
            x += (unsigned __int128)a->of[0] * b->of[0];
            y += (unsigned __int128)a->of[1] * b->of[1];
        }
        x = folded(x);
        y = folded(y);
    }
    return (field_value){{(uint64_t)(x % FIELD_P), (uint64_t)(y % FIELD_P)}};
}

bool field_is_int(field_value a, int64_t *number)
{
    const uint64_t limit = FIELD_BITS > 32 ? UINT64_C(1) << 31 : FIELD_P / 2;
    if (a.of[0] != a.of[1])
        return false;
    *number = a.of[0] <= limit ? (int64_t)a.of[0] : -(int64_t)(FIELD_P - a.of[0]);
    return a.of[0] <= limit || FIELD_P - a.of[0] <= limit;
}

/* a^(p - 2). */
static uint64_t inverse_one(uint64_t a)
{
    uint64_t power = 1;
    for (uint64_t left = FIELD_P - 2; left; left >>= 1) {
        if (left & 1)
            power = field_mul_one(power, a);
        a = field_mul_one(a, a);
    }
    return power;
}

/* 1 / a and 1 / b are b / (a b) and a / (a b). */
field_value field_inverse(field_value a)
{
    if (!a.of[0] || !a.of[1])
        return (field_value){{inverse_one(a.of[0]), inverse_one(a.of[1])}};
    const uint64_t both = inverse_one(field_mul_one(a.of[0], a.of[1]));
    return (field_value){{field_mul_one(both, a.of[1]), field_mul_one(both, a.of[0])}};
}

/* 2^e. */
static field_value power_of_two(int e)
{
    uint64_t power = 1;
    for (int i = 0; i < (e < 0 ? -e : e); i++)
        power = field_add_one(power, power);
    field_value value = {{power, power}};
    return e < 0 ? field_inverse(value) : value;
}

/* Convergents of the continued fraction of a positive number. False: none with a small denominator is near enough. */
static bool simplest(double number, uint64_t *above, uint64_t *below)
{
    const double near = ULPS * DBL_EPSILON * number;
    uint64_t p0 = 0, p1 = 1, q0 = 1, q1 = 0;
    double rest = number;
    for (int i = 0; i < 40 && rest < 0x1p50; i++) {
        const uint64_t whole = (uint64_t)rest;
        const double p2 = (double)whole * (double)p1 + (double)p0, q2 = (double)whole * (double)q1 + (double)q0;
        if (p2 >= (double)DENOMINATOR_MAX || q2 >= (double)DENOMINATOR_MAX)
            return false;
        const uint64_t p = whole * p1 + p0, q = whole * q1 + q0;
        p0 = p1, p1 = p, q0 = q1, q1 = q;
        if (fabs((double)p / (double)q - number) <= near) {
            *above = p;
            *below = q;
            return true;
        }
        rest = 1 / (rest - (double)whole);
    }
    return false;
}

field_value field_real(double number)
{
    uint64_t above, below;
    int exponent;
    if (number == 0)
        return field_int(0);
    if (!isfinite(number)) { /* none that a sum or product of others is */
        const int64_t kind = isnan(number) ? 0 : number > 0 ? 1 : -1;
        return field_draw(SECRET_ONE, "not finite", &kind, 1);
    }
    if (number < 0)
        return field_neg(field_real(-number));
    if (simplest(number, &above, &below))
        return field_div(field_int((int64_t)above), field_int((int64_t)below));
    const int64_t mantissa = (int64_t)ldexp(frexp(number, &exponent), DBL_MANT_DIG);
    return field_mul(field_int(mantissa), power_of_two(exponent - DBL_MANT_DIG));
}

/* ---- hashes ---- */

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t stir(uint64_t state, uint64_t word)
{
    return fold(state ^ SECRET_ONE, fold(word ^ SECRET_TWO, state + SECRET_THREE) ^ word);
}

static uint64_t stir_text(uint64_t state, const char *text)
{
    for (; *text; text++)
        state = stir(state, (unsigned char)*text);
    return state;
}

/* Uniform below p but for 2^-58. */
static uint64_t reduced(uint64_t state, uint64_t which)
{
    return fold(stir(state, which) ^ SECRET_TWO, SECRET_THREE + which) % FIELD_P;
}

static field_value answer(uint64_t state, uint64_t other)
{
    const uint64_t first = reduced(state, other);
    return (field_value){{first, FIELD_ELEMENTS > 1 ? reduced(other ^ SECRET_ONE, state) : first}};
}

field_value field_oracle_primed(uint64_t seed, const char *function, int primes, const field_value *arguments, int step,
                                int count)
{
    uint64_t state = stir_text(seed, function);
    for (; primes > 0; primes--)
        state = stir(state, '\'');
    uint64_t other = stir(state, SECRET_THREE);
    for (int i = 0; i < count * step; i += step) {
        state = stir(stir(state, arguments[i].of[0]), arguments[i].of[1]);
        other = stir(stir(other, arguments[i].of[1]), arguments[i].of[0]);
    }
    return answer(state, other);
}

/* A Feistel network over the two elements of a value: no way is known to tell one of six rounds from a random permutation by
 * fewer than about p pairs (Patarin 2004). */
enum { LOG_ROUNDS = 6 };

static uint64_t log_round(uint64_t seed, int round, uint64_t half)
{
    return field_oracle_of(seed, "log", (field_value){{half, (uint64_t)round}}).of[0];
}

field_value field_log(uint64_t seed, field_value a)
{
    for (int round = 0; round < LOG_ROUNDS; round++)
        a = (field_value){{a.of[1], field_add_one(a.of[0], log_round(seed, round, a.of[1]))}};
    return a;
}

field_value field_unlog(uint64_t seed, field_value log)
{
    for (int round = LOG_ROUNDS; round-- > 0;)
        log = (field_value){{field_sub_one(log.of[1], log_round(seed, round, log.of[0])), log.of[0]}};
    return log;
}

uint64_t field_bits(uint64_t seed, const char *name, const int64_t *numbers, int count)
{
    uint64_t state = stir_text(seed ^ SECRET_TWO, name);
    for (int i = 0; i < count; i++)
        state = stir(state, (uint64_t)numbers[i]);
    return fold(state ^ SECRET_ONE, state + SECRET_THREE);
}

field_value field_draw(uint64_t seed, const char *name, const int64_t *numbers, int count)
{
    const uint64_t state = field_bits(seed, name, numbers, count);
    return answer(state, field_bits(seed ^ SECRET_THREE, name, numbers, count));
}

bool field_larger(uint64_t seed, field_value a, field_value b)
{
    const field_value x = field_oracle_of(seed, "order", a), y = field_oracle_of(seed, "order", b);
    return x.of[0] != y.of[0] ? x.of[0] > y.of[0] : x.of[1] > y.of[1];
}
