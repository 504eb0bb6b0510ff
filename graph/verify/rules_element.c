/* graph/verify/rules_element.c: functions of elements, of pairs, and choices over the field.
 *
 * Four kinds of functions need care:
 *
 *     exp, gelu, ...     oracles of the input; the gradient's factor is another oracle, of the value that the gradient op reads
 *     floor, sign, ...   oracles of the input without a derivative
 *     relu, min2, less   the random order of field_larger(); clip too, and each fits the others
 *     where, masked      by the truth of the condition: whether it is 0
 *
 * A plan may come from a file, so each rule compares the sizes of its operands before it reads or writes them.
 */
#include "graph/verify/rules_element.h"

#include <math.h>

/* ---- functions of one element ---- */

/* y = the oracle of x. */
static bool oracle_rule(const rule_call *call, const char *function)
{
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_oracle_of(call->seed, function, call->in[0].at[i]);
    return true;
}

/* dx = the oracle of the saved value, times dy. */
static bool slope_rule(const rule_call *call, const char *slope)
{
    if (!all_alike(call, 2, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_mul(call->in[1].at[i], field_oracle_of(call->seed, slope, call->in[0].at[i]));
    return true;
}

#define ORACLE(name)                                    \
    static bool name##_rule(const rule_call *call)      \
    {                                                   \
        return oracle_rule(call, #name);                \
    }
/* A function that is constant almost everywhere. */
#define FLAT(name)                                                      \
    static bool name##_rule(const rule_call *call)                      \
    {                                                                   \
        if (!oracle_rule(call, #name))                                  \
            return false;                                               \
        for (int64_t i = 0; i < call->out[0].count; i++)                \
            call->out[0].at[i] = field_still(call->out[0].at[i]);       \
        return true;                                                    \
    }
#define SLOPE(name)                                     \
    static bool name##_grad_rule(const rule_call *call) \
    {                                                   \
        return slope_rule(call, #name "'");             \
    }
ORACLE(exp)
ORACLE(log)
ORACLE(sqrt)
ORACLE(tanh)
ORACLE(sigmoid)
ORACLE(gelu)
ORACLE(silu)
ORACLE(abs)
ORACLE(sin)
ORACLE(cos)
ORACLE(erf)
ORACLE(gelu_erf)
ORACLE(softplus)
FLAT(floor)
FLAT(ceil)
FLAT(round)
FLAT(sign)
SLOPE(abs)
SLOPE(sin)
SLOPE(cos)
SLOPE(erf)
SLOPE(gelu_erf)
SLOPE(softplus)
SLOPE(sqrt)
SLOPE(tanh)
SLOPE(sigmoid)
SLOPE(gelu)
SLOPE(silu)

static bool neg_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_neg(call->in[0].at[i]);
    return true;
}

static bool reciprocal_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_inverse(call->in[0].at[i]);
    return true;
}

/* The saved value is y = 1 / x: dx = -y y dy. */
static bool reciprocal_grad_rule(const rule_call *call)
{
    if (!all_alike(call, 2, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const field_value y = call->in[0].at[i];
        call->out[0].at[i] = field_neg(field_mul(field_mul(y, y), call->in[1].at[i]));
    }
    return true;
}

static bool relu_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const field_value x = call->in[0].at[i];
        call->out[0].at[i] = field_larger(call->seed, x, zero()) ? x : zero();
    }
    return true;
}

/* The saved value is relu's output: it is 0, or larger than 0 in the order. */
static bool relu_grad_rule(const rule_call *call)
{
    if (!all_alike(call, 2, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_larger(call->seed, call->in[0].at[i], zero()) ? call->in[1].at[i] : zero();
    return true;
}

static bool affine_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1))
        return false;
    const field_value scale = field_real(rule_real(call, "scale", 0)), shift = field_real(rule_real(call, "shift", 0));
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_add(field_mul(scale, call->in[0].at[i]), shift);
    return true;
}

static bool cast_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = call->in[0].at[i];
    return true;
}

/* ---- functions of several elements at one index ---- */

static bool add_many_rule(const rule_call *call)
{
    if (!rule_has_operands(call, 1, 1) || !all_alike(call, call->in_count, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        field_value sum = zero();
        for (int k = 0; k < call->in_count; k++)
            sum = field_add(sum, call->in[k].at[i]);
        call->out[0].at[i] = sum;
    }
    return true;
}

/* Size of the dimension of `array` that lies over dimension d of an array of `rank` dimensions. */
static int64_t size_under(const rule_array *array, int rank, int d)
{
    const int own = d - (rank - array->rank);
    return own < 0 ? 1 : array->shape[own];
}

/* Whether out[0] has the shape to which all inputs broadcast (NumPy's rules). */
static bool broadcast_fits(const rule_call *call)
{
    const rule_array *out = &call->out[0];
    int rank = 0;
    for (int i = 0; i < call->in_count; i++)
        rank = call->in[i].rank > rank ? call->in[i].rank : rank;
    if (out->rank != rank)
        return rule_refuse(call, "output 0 has %d dimensions; the inputs have up to %d", out->rank, rank);
    for (int d = 0; d < rank; d++) {
        int64_t all = 1;
        for (int i = 0; i < call->in_count; i++) {
            const int64_t size = size_under(&call->in[i], rank, d);
            if (size != all && size != 1 && all != 1)
                return rule_refuse(call, "sizes %lld and %lld do not broadcast", (long long)all, (long long)size);
            all = all == 1 ? size : all;
        }
        if (out->shape[d] != all)
            return rule_refuse(call, "dimension %d of output 0 is %lld; the inputs have %lld", d, (long long)out->shape[d],
                               (long long)all);
    }
    return true;
}

/* The element of `in` that meets the element of `out` at `index`. */
static field_value broadcast_at(const rule_array *in, const rule_array *out, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < in->rank; d++)
        at = at * in->shape[d] + (in->shape[d] == 1 ? 0 : index[d + out->rank - in->rank]);
    return in->at[at];
}

static bool pair_rule(const rule_call *call, field_value (*of)(field_value a, field_value b))
{
    if (!rule_has_operands(call, 2, 1) || !broadcast_fits(call))
        return false;
    const rule_array *out = &call->out[0];
    for (int64_t i = 0; i < out->count; i++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(out, i, index);
        out->at[i] = of(broadcast_at(&call->in[0], out, index), broadcast_at(&call->in[1], out, index));
    }
    return true;
}

#define PAIR(name)                                 \
    static bool name##_rule(const rule_call *call) \
    {                                              \
        return pair_rule(call, field_##name);      \
    }
PAIR(add)
PAIR(sub)
PAIR(mul)
PAIR(div)

static field_value field_min2(const rule_call *call, field_value a, field_value b)
{
    return field_larger(call->seed, a, b) ? b : a;
}

static field_value field_max2(const rule_call *call, field_value a, field_value b)
{
    return field_larger(call->seed, b, a) ? b : a;
}

static field_value truth(bool is)
{
    return field_int(is);
}

static bool is_true(field_value a)
{
    return !field_equal(a, zero());
}

static field_value test_equal(const rule_call *call, field_value a, field_value b)
{
    (void)call;
    return truth(field_equal(a, b));
}

static field_value test_less(const rule_call *call, field_value a, field_value b)
{
    return truth(field_larger(call->seed, b, a));
}

static field_value test_less_equal(const rule_call *call, field_value a, field_value b)
{
    return truth(!field_larger(call->seed, a, b));
}

static field_value test_logical_and(const rule_call *call, field_value a, field_value b)
{
    (void)call;
    return truth(is_true(a) && is_true(b));
}

static field_value test_logical_or(const rule_call *call, field_value a, field_value b)
{
    (void)call;
    return truth(is_true(a) || is_true(b));
}

static field_value test_logical_xor(const rule_call *call, field_value a, field_value b)
{
    (void)call;
    return truth(is_true(a) != is_true(b));
}

static field_value oracle_pow(const rule_call *call, field_value a, field_value b)
{
    return field_oracle(call->seed, "pow", (const field_value[]){a, b}, 2);
}

static field_value oracle_pow_da(const rule_call *call, field_value a, field_value b)
{
    return field_oracle(call->seed, "pow_da", (const field_value[]){a, b}, 2);
}

static field_value oracle_pow_db(const rule_call *call, field_value a, field_value b)
{
    return field_oracle(call->seed, "pow_db", (const field_value[]){a, b}, 2);
}

/* As pair_rule(), of a function that looks at the call. */
static bool pair_rule_of(const rule_call *call, field_value (*of)(const rule_call *call, field_value a, field_value b))
{
    if (!rule_has_operands(call, 2, 1) || !broadcast_fits(call))
        return false;
    const rule_array *out = &call->out[0];
    for (int64_t i = 0; i < out->count; i++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(out, i, index);
        out->at[i] = of(call, broadcast_at(&call->in[0], out, index), broadcast_at(&call->in[1], out, index));
    }
    return true;
}

#define PAIR_OF(name, of)                          \
    static bool name##_rule(const rule_call *call) \
    {                                              \
        return pair_rule_of(call, of);             \
    }
PAIR_OF(min2, field_min2)
PAIR_OF(max2, field_max2)
PAIR_OF(pow, oracle_pow)
PAIR_OF(pow_da, oracle_pow_da)
PAIR_OF(pow_db, oracle_pow_db)
PAIR_OF(equal, test_equal)
PAIR_OF(less, test_less)
PAIR_OF(less_equal, test_less_equal)
PAIR_OF(logical_and, test_logical_and)
PAIR_OF(logical_or, test_logical_or)
PAIR_OF(logical_xor, test_logical_xor)

/* ---- choices ---- */

static bool where_rule(const rule_call *call)
{
    if (!rule_has_operands(call, 3, 1) || !broadcast_fits(call))
        return false;
    const rule_array *out = &call->out[0];
    for (int64_t i = 0; i < out->count; i++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(out, i, index);
        out->at[i] = broadcast_at(&call->in[is_true(broadcast_at(&call->in[0], out, index)) ? 1 : 2], out, index);
    }
    return true;
}

static bool masked_rule(const rule_call *call)
{
    if (!rule_has_operands(call, 2, 1) || !broadcast_fits(call))
        return false;
    const rule_array *out = &call->out[0];
    const bool inverted = rule_int(call, "inverted", 0) != 0;
    for (int64_t i = 0; i < out->count; i++) {
        int64_t index[WEIR_DIMS_MAX] = {0};
        rule_index(out, i, index);
        const bool kept = is_true(broadcast_at(&call->in[0], out, index)) != inverted;
        out->at[i] = kept ? broadcast_at(&call->in[1], out, index) : zero();
    }
    return true;
}

/* x within the bounds; *inside: it was there. A bound that is infinite is none. */
static field_value clipped(const rule_call *call, field_value x, bool *inside)
{
    const double lo = rule_real(call, "lo", 0), hi = rule_real(call, "hi", 0);
    const bool below = lo > -HUGE_VAL && field_larger(call->seed, field_real(lo), x);
    x = below ? field_real(lo) : x;
    const bool above = hi < HUGE_VAL && field_larger(call->seed, x, field_real(hi));
    *inside = !below && !above;
    return above ? field_real(hi) : x;
}

static bool clip_rule(const rule_call *call)
{
    bool inside;
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = clipped(call, call->in[0].at[i], &inside);
    return true;
}

static bool clip_grad_rule(const rule_call *call)
{
    if (!all_alike(call, 2, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        bool inside;
        clipped(call, call->in[0].at[i], &inside);
        call->out[0].at[i] = inside ? call->in[1].at[i] : zero();
    }
    return true;
}

static bool logical_not_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = truth(!is_true(call->in[0].at[i]));
    return true;
}

/* No value of the field is NaN. So that it matters which one is asked, some are said to be. */
static bool is_nan_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1))
        return false;
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = truth(field_larger(call->seed, field_oracle_of(call->seed, "is_nan", call->in[0].at[i]), zero()));
    return true;
}
/* ---- the table ---- */

#define ENTRY(name) {#name, name##_rule}
const rule_entry rules_element[] = {
    ENTRY(neg), ENTRY(exp), ENTRY(log), ENTRY(sqrt), ENTRY(tanh), ENTRY(sigmoid), ENTRY(relu), ENTRY(gelu), ENTRY(silu),
    ENTRY(sqrt_grad), ENTRY(tanh_grad), ENTRY(sigmoid_grad), ENTRY(relu_grad), ENTRY(gelu_grad), ENTRY(silu_grad), ENTRY(abs),
    ENTRY(sin), ENTRY(cos), ENTRY(erf), ENTRY(gelu_erf), ENTRY(softplus), ENTRY(reciprocal), ENTRY(floor), ENTRY(ceil),
    ENTRY(round), ENTRY(sign), ENTRY(abs_grad), ENTRY(sin_grad), ENTRY(cos_grad), ENTRY(erf_grad), ENTRY(gelu_erf_grad),
    ENTRY(softplus_grad), ENTRY(reciprocal_grad), ENTRY(add), ENTRY(sub), ENTRY(mul), ENTRY(div), ENTRY(min2), ENTRY(max2),
    ENTRY(pow), ENTRY(pow_da), ENTRY(pow_db), ENTRY(equal), ENTRY(less), ENTRY(less_equal), ENTRY(logical_and), ENTRY(logical_or),
    ENTRY(logical_xor), ENTRY(logical_not), ENTRY(is_nan), ENTRY(where), ENTRY(masked), ENTRY(clip), ENTRY(clip_grad),
    ENTRY(add_many), ENTRY(affine), ENTRY(cast),
    {NULL, NULL},
};
