/* graph/verify/dual.h: numbers that carry a derivative, a + b e with e^2 = 0, over the field of field.h.
 *
 * A number is a value, and its derivative along one direction: each parameter moves along a random vector, and what is computed
 * from parameters moves with them. Sums and products keep derivatives exactly right, by the rules of e:
 *
 *     (a + a' e) + (b + b' e) = (a + b) + (a' + b') e          (a + a' e)(b + b' e) = a b + (a' b + a b') e
 *
 * The derivative of an oracle is what the rules of gradient ops use: of exp it is exp, of log 1 / x, and of rsqrt -rsqrt^3 / 2.
 * sqrt, tanh and sigmoid have an oracle of the result (their gradients read that), pow has "pow_da" and "pow_db" of both
 * arguments, and all others one of the argument. The order
 * and the test for integers look at values alone.
 *
 * A file that includes this before any other header of the room is compiled over dual numbers: field_value is dual_value there,
 * and functions and tables have other names. dual_rules.c makes the rules once more in this way, and dual_author.c the author.
 *
 * Pure functions; any thread.
 */
#ifndef GRAPH_VERIFY_DUAL_H
#define GRAPH_VERIFY_DUAL_H

#ifdef GRAPH_VERIFY_RULE_H
#error "graph/verify/dual.h comes before the headers that it renames"
#endif

#include "graph/verify/field.h"

typedef struct dual_value {
    field_value value, slope;
} dual_value;

static inline dual_value dual_const(field_value value)
{
    return (dual_value){value, {{0, 0}}};
}

static inline dual_value dual_still(dual_value a)
{
    return dual_const(a.value);
}

static inline bool dual_is_const(dual_value a)
{
    return !(a.slope.of[0] | a.slope.of[1]);
}

static inline dual_value dual_add(dual_value a, dual_value b)
{
    return (dual_value){field_add(a.value, b.value), field_add(a.slope, b.slope)};
}

static inline dual_value dual_sub(dual_value a, dual_value b)
{
    return (dual_value){field_sub(a.value, b.value), field_sub(a.slope, b.slope)};
}

static inline dual_value dual_mul(dual_value a, dual_value b)
{
    return (dual_value){field_mul(a.value, b.value), field_add(field_mul(a.slope, b.value), field_mul(a.value, b.slope))};
}

static inline dual_value dual_int(int64_t number)
{
    return dual_const(field_int(number));
}

static inline dual_value dual_real(double number)
{
    return dual_const(field_real(number));
}

static inline dual_value dual_neg(dual_value a)
{
    return dual_sub(dual_int(0), a);
}

static inline bool dual_equal(dual_value a, dual_value b)
{
    return field_equal(a.value, b.value);
}

static inline bool dual_is_int(dual_value a, int64_t *number)
{
    return field_is_int(a.value, number);
}

static inline bool dual_larger(uint64_t seed, dual_value a, dual_value b)
{
    return field_larger(seed, a.value, b.value);
}

static inline dual_value dual_draw(uint64_t seed, const char *name, const int64_t *numbers, int count)
{
    return dual_const(field_draw(seed, name, numbers, count));
}

static inline weir_exact dual_to_exact(dual_value a)
{
    return (weir_exact){{a.value.of[0], a.value.of[1], a.slope.of[0], a.slope.of[1]}};
}

static inline dual_value dual_from_exact(weir_exact a)
{
    return (dual_value){field_from_exact(a), {{a.of[2] % FIELD_P, a.of[3] % FIELD_P}}};
}

/* 1 / a, with the derivative -a' / a^2; of 0 both are 0. */
dual_value dual_inverse(dual_value a);

static inline dual_value dual_div(dual_value a, dual_value b)
{
    return dual_mul(a, dual_inverse(b));
}

dual_value dual_dot(dual_value start, const dual_value *a, int64_t a_step, const dual_value *b, int64_t b_step, int64_t count);

dual_value dual_oracle(uint64_t seed, const char *function, const dual_value *arguments, int count);

static inline dual_value dual_oracle_of(uint64_t seed, const char *function, dual_value argument)
{
    return dual_oracle(seed, function, &argument, 1);
}

/* log' = 1 / x, and its inverse is exp, whose derivative is its value. */
static inline dual_value dual_log(uint64_t seed, dual_value a)
{
    return (dual_value){field_log(seed, a.value), field_div(a.slope, a.value)};
}

static inline dual_value dual_unlog(uint64_t seed, dual_value log)
{
    const field_value sum = field_unlog(seed, log.value);
    return (dual_value){sum, field_mul(log.slope, sum)};
}

/* The derivative of the oracle by argument `by`. */
dual_value dual_slope(uint64_t seed, const char *function, const dual_value *arguments, int count, int by);

/* ---- the names of a file that is compiled over dual numbers ---- */

#ifndef DUAL_NUMBERS_ONLY

#define field_value dual_value
#define field_add dual_add
#define field_sub dual_sub
#define field_mul dual_mul
#define field_div dual_div
#define field_neg dual_neg
#define field_inverse dual_inverse
#define field_still dual_still
#define field_dot dual_dot
#define field_int dual_int
#define field_real dual_real
#define field_is_int dual_is_int
#define field_equal dual_equal
#define field_larger dual_larger
#define field_draw dual_draw
#define field_log dual_log
#define field_unlog dual_unlog
#define field_oracle dual_oracle
#define field_oracle_of dual_oracle_of
#define field_to_exact dual_to_exact
#define field_from_exact dual_from_exact

#define rule_find dual_rule_find
#define rule_say dual_rule_say
#define rule_int dual_rule_int
#define rule_real dual_rule_real
#define rule_exists dual_rule_exists
#define rule_draws dual_rule_draws
#define rule_has_parts dual_rule_has_parts
#define rule_part dual_rule_part
#define rules_core dual_rules_core
#define rules_product dual_rules_product
#define rules_conv dual_rules_conv
#define rules_element dual_rules_element
#define rules_reduce dual_rules_reduce
#define rules_attention dual_rules_attention
#define rules_model dual_rules_model
#define rules_loss dual_rules_loss
#define rules_update dual_rules_update
#define rules_index dual_rules_index

#define draw_input dual_draw_input
#define draw_int dual_draw_int
#define draw_kept dual_draw_kept

#define author_open dual_author_open
#define author_close dual_author_close
#define author_bytes dual_author_bytes
#define author_can dual_author_can
#define author_step dual_author_step
#define author_node dual_author_node
#define author_kept dual_author_kept
#define author_tensor dual_author_tensor
#define author_input dual_author_input
#define author_begin dual_author_begin
#define author_begins_so dual_author_begins_so
#define author_kept_named dual_author_kept_named
#define author_state_name dual_author_state_name

#endif
#endif
