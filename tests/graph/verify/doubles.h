/* tests/graph/verify/doubles.h: doubles in the place of the field, so that rules compute what kernels compute.
 *
 * It defines the include guard of graph/verify/field.h, so it comes before any header of that room. A rule file that is included
 * behind it is compiled once more, with real numbers: an oracle is the function that it stands for, and the order is that of
 * numbers. The names that such a file gives to others get a prefix, because the library has them as well.
 */
#ifndef GRAPH_VERIFY_FIELD_H
#define GRAPH_VERIFY_FIELD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <weir/exact.h>

#include "graph/base/blocks.h"

typedef struct field_value {
    double of[2]; /* both the same */
} field_value;

static inline field_value field_real(double number)
{
    return (field_value){{number, number}};
}

static inline field_value field_int(int64_t number)
{
    return field_real((double)number);
}

static inline field_value field_add(field_value a, field_value b)
{
    return field_real(a.of[0] + b.of[0]);
}

static inline field_value field_sub(field_value a, field_value b)
{
    return field_real(a.of[0] - b.of[0]);
}

static inline field_value field_mul(field_value a, field_value b)
{
    return field_real(a.of[0] * b.of[0]);
}

static inline field_value field_dot(field_value start, const field_value *a, int64_t a_step, const field_value *b, int64_t b_step,
                                    int64_t count)
{
    double sum = start.of[0];
    for (int64_t i = 0; i < count; i++)
        sum += a[i * a_step].of[0] * b[i * b_step].of[0];
    return field_real(sum);
}

static inline field_value field_div(field_value a, field_value b)
{
    return field_real(a.of[0] / b.of[0]);
}

static inline field_value field_still(field_value a)
{
    return a;
}

static inline field_value field_inverse(field_value a)
{
    return field_real(1 / a.of[0]);
}

static inline field_value field_neg(field_value a)
{
    return field_real(-a.of[0]);
}

static inline bool field_equal(field_value a, field_value b)
{
    return a.of[0] == b.of[0];
}

static inline bool field_larger(uint64_t seed, field_value a, field_value b)
{
    (void)seed;
    return a.of[0] > b.of[0];
}

static inline bool field_is_int(field_value a, int64_t *number)
{
    *number = fabs(a.of[0]) <= 0x1p31 ? (int64_t)a.of[0] : 0;
    return fabs(a.of[0]) <= 0x1p31 && (double)*number == a.of[0];
}

static inline double double_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* gelu(x) is x sigmoid(u) with u = 2 sqrt(2 / pi) (x + 0.044715 x^3). */
static inline double double_gelu_inner(double x)
{
    return 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}

static inline double double_gelu(double x)
{
    return x * double_sigmoid(double_gelu_inner(x));
}

static inline double double_gelu_slope(double x)
{
    const double s = double_sigmoid(double_gelu_inner(x));
    return s + x * s * (1 - s) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static inline double double_silu(double x)
{
    return x * double_sigmoid(x);
}

static inline double double_silu_slope(double x)
{
    const double s = double_sigmoid(x);
    return s + x * s * (1 - s);
}

static inline double double_sign(double x)
{
    return (x > 0) - (x < 0);
}

static inline double double_is_nan(double x)
{
    return isnan(x);
}

static inline double double_cos_slope(double x)
{
    return -sin(x);
}

static inline double double_erf_slope(double x)
{
    return 2 / sqrt(M_PI) * exp(-x * x);
}

static inline double double_normal(double x)
{
    return erfc(-x * M_SQRT1_2) / 2;
}

static inline double double_gelu_erf(double x)
{
    return x * double_normal(x);
}

static inline double double_gelu_erf_slope(double x)
{
    return double_normal(x) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}

static inline double double_softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static inline double double_rsqrt(double x)
{
    return 1 / sqrt(x);
}

static inline double double_clip(double x)
{
    return fmin(1, x);
}

static inline double double_lion(double x)
{
    return (double)((x > 0) - (x < 0));
}

/* The slopes of sqrt, tanh and sigmoid are functions of the result. */
static inline double double_sqrt_slope(double y)
{
    return 0.5 / y;
}

static inline double double_tanh_slope(double y)
{
    return 1 - y * y;
}

static inline double double_sigmoid_slope(double y)
{
    return y * (1 - y);
}

/* NaN if the oracle stands for no function here; then no kernel agrees with the rule. */
static inline field_value field_oracle_of(uint64_t seed, const char *function, field_value argument)
{
    static const struct {
        const char *name;
        double (*of)(double);
    } functions[] = {
        {"exp", exp}, {"log", log}, {"sqrt", sqrt}, {"rsqrt", double_rsqrt}, {"clip", double_clip}, {"lion", double_lion},
        {"tanh", tanh}, {"sigmoid", double_sigmoid}, {"gelu", double_gelu}, {"silu", double_silu}, {"sqrt'", double_sqrt_slope},
        {"tanh'", double_tanh_slope}, {"sigmoid'", double_sigmoid_slope}, {"gelu'", double_gelu_slope},
        {"silu'", double_silu_slope}, {"abs", fabs}, {"abs'", double_sign}, {"sin", sin}, {"sin'", cos}, {"cos", cos},
        {"cos'", double_cos_slope}, {"erf", erf}, {"erf'", double_erf_slope}, {"gelu_erf", double_gelu_erf},
        {"gelu_erf'", double_gelu_erf_slope}, {"softplus", double_softplus}, {"softplus'", double_sigmoid},
        {"is_nan", double_is_nan}, {"floor", floor}, {"ceil", ceil}, {"round", rint}, {"sign", double_sign},
    };
    (void)seed;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        if (!strcmp(functions[f].name, function))
            return field_real(functions[f].of(argument.of[0]));
    return field_real(NAN);
}

static inline field_value field_log(uint64_t seed, field_value a)
{
    (void)seed;
    return field_real(log(a.of[0]));
}

static inline field_value field_unlog(uint64_t seed, field_value log)
{
    (void)seed;
    return field_real(exp(log.of[0]));
}

static inline double double_pow_da(double a, double b)
{
    return b == 0 ? 0 : b * pow(a, b - 1);
}

static inline double double_pow_db(double a, double b)
{
    return a == 0 && b >= 0 ? 0 : pow(a, b) * log(a);
}

/* An element of a block of a quantised weight: a function of the block's bytes and of the element's number. */
static inline field_value double_block(const char *name, const field_value *arguments, int count)
{
    const weir_format format = block_format_named(name);
    const block_format *is = block_format_of(format);
    unsigned char bytes[BLOCK_BYTES_MAX];
    float element;
    if (!is || count != is->bytes + 1)
        return field_real(NAN);
    for (int i = 0; i < is->bytes; i++)
        bytes[i] = (unsigned char)arguments[i].of[0];
    block_read_row(format, bytes, (int64_t)arguments[is->bytes].of[0], 1, &element);
    return field_real((double)element);
}

/* Other functions of several arguments do not exist here: only the oracle of an op without a rule has several. */
static inline field_value field_oracle(uint64_t seed, const char *function, const field_value *arguments, int count)
{
    static const struct {
        const char *name;
        double (*of)(double, double);
    } functions[] = {{"pow", pow}, {"pow_da", double_pow_da}, {"pow_db", double_pow_db}};
    for (size_t f = 0; count == 2 && f < sizeof functions / sizeof *functions; f++)
        if (!strcmp(functions[f].name, function))
            return field_real(functions[f].of(arguments[0].of[0], arguments[1].of[0]));
    return count == 1 ? field_oracle_of(seed, function, *arguments) : double_block(function, arguments, count);
}

/* splitmix64 of the text and the numbers */
static inline uint64_t field_bits(uint64_t seed, const char *name, const int64_t *numbers, int count)
{
    uint64_t state = seed;
    for (int i = 0; i < count || *name; i++) {
        state += 0x9e3779b97f4a7c15u + (*name ? (uint64_t)(unsigned char)*name++ << 8 : 0) + (i < count ? (uint64_t)numbers[i] : 0);
        state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
        state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
        state ^= state >> 31;
    }
    return state;
}

static inline field_value field_draw(uint64_t seed, const char *name, const int64_t *numbers, int count)
{
    return field_real((double)(field_bits(seed, name, numbers, count) >> 11) * 0x1p-53);
}

/* Rules of a program's own ops compute over the field alone. */
static inline weir_exact field_to_exact(field_value a)
{
    return weir_exact_real(a.of[0]);
}

static inline field_value field_from_exact(weir_exact a)
{
    (void)a;
    return field_real(NAN);
}

#define rule_find double_rule_find
#define rule_exists double_rule_exists
#define rule_draws double_rule_draws
#define rule_has_parts double_rule_has_parts
#define rule_part double_rule_part
#define rule_say double_rule_say
#define rule_int double_rule_int
#define rule_real double_rule_real
#define rules_core double_rules_core
#define rules_product double_rules_product
#define rules_conv double_rules_conv
#define rules_element double_rules_element
#define rules_reduce double_rules_reduce
#define rules_attention double_rules_attention
#define rules_model double_rules_model
#define rules_loss double_rules_loss
#define rules_update double_rules_update
#define rules_index double_rules_index

#endif
