/* graph/verify/rules_element.c: functions of elements, reductions, softmax, norms and dropout over the field.
 *
 * Three kinds of functions need care:
 *
 *     exp, gelu, ...     oracles of the input; the gradient's factor is another oracle, of the value that the gradient op reads
 *     floor, sign, ...   oracles of the input without a derivative
 *     relu, max, argmax  the random order of field_larger(); min2, max2, clip, less too, of which each fits the others
 *     where, masked      by the truth of the condition: whether it is 0
 *     the rest           exact
 *
 * A rule divides by the same sizes as the kernel. `mean` divides by the logical count, because its signatures may split a reduced
 * dimension. softmax and the norms divide by the sizes of the shard, because their signatures never split the last dimension: a
 * plan that splits it computes another value here too, and the proof shows it.
 *
 * A plan may come from a file, so each rule compares the sizes of its operands before it reads or writes them.
 */
#include "graph/verify/rule.h"

#include <math.h>

/* ---- operands ---- */

static field_value zero(void)
{
    return field_int(0);
}

/* The first `ins` inputs and the first `outs` outputs are there, and all have one shape. */
static bool all_alike(const rule_call *call, int ins, int outs)
{
    if (!rule_has_operands(call, ins, outs))
        return false;
    for (int i = 1; i < ins; i++)
        if (!rule_same_shape(&call->in[0], &call->in[i]))
            return rule_refuse(call, "the shape of input %d is not that of input 0", i);
    for (int o = 0; o < outs; o++)
        if (!rule_same_shape(&call->in[0], &call->out[o]))
            return rule_refuse(call, "the shape of output %d is not that of input 0", o);
    return true;
}

static bool has_rows(const rule_call *call)
{
    return call->in[0].rank > 0 || rule_refuse(call, "input 0 is a scalar and has no last dimension");
}

static bool has_count(const rule_call *call, const char *what, const rule_array *array, int64_t count)
{
    if (array->count == count)
        return true;
    return rule_refuse(call, "%s has %lld elements; it needs %lld", what, (long long)array->count, (long long)count);
}

/* Writes out[0]'s element `at`, or adds to it. For the ops with .accumulates. */
static void put_term(const rule_call *call, int64_t at, field_value value)
{
    field_value *to = &call->out[0].at[at];
    *to = call->accumulate ? field_add(*to, value) : value;
}

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

/* ---- reductions ---- */

/* The elements of `in` form groups. A group is a *result*; its elements are the *terms*, numbered in memory order. */
typedef struct fold {
    const rule_array *in;
    unsigned reduced; /* bit d: dimension d runs over the terms */
    int64_t terms;    /* of each result */
} fold;

static fold fold_over(const rule_array *in, unsigned reduced)
{
    fold f = {in, reduced, 1};
    for (int d = 0; d < in->rank; d++)
        f.terms *= reduced >> d & 1 ? in->shape[d] : 1;
    return f;
}

/* Where a term of a result is in the input. */
static int64_t fold_at(const fold *f, int64_t result, int64_t term)
{
    int64_t at = 0, stride = 1;
    for (int d = f->in->rank; d-- > 0; stride *= f->in->shape[d]) {
        int64_t *left = f->reduced >> d & 1 ? &term : &result;
        at += *left % f->in->shape[d] * stride;
        *left /= f->in->shape[d];
    }
    return at;
}

static field_value fold_sum(const fold *f, int64_t result)
{
    field_value sum = zero();
    for (int64_t t = 0; t < f->terms; t++)
        sum = field_add(sum, f->in->at[fold_at(f, result, t)]);
    return sum;
}

/* The dimensions that the attributes name; without any, all of them. */
static bool reduced_of(const rule_call *call, unsigned *reduced)
{
    const int rank = call->in[0].rank;
    const int64_t axes = rule_int(call, "axis_count", 0);
    if (axes < 0 || axes > WEIR_DIMS_MAX)
        return rule_refuse(call, ".axis_count is %lld; it is 0 to %d", (long long)axes, WEIR_DIMS_MAX);
    *reduced = axes ? 0 : (1u << rank) - 1;
    for (int i = 0; i < axes; i++) {
        const int64_t axis = rule_int(call, "axes", i);
        if (axis < -rank || axis >= rank)
            return rule_refuse(call, "axis %lld is not one of the %d dimensions", (long long)axis, rank);
        *reduced |= 1u << (axis < 0 ? axis + rank : axis);
    }
    return true;
}

/* Whether `array` has one element for each result: reduced dimensions are dropped, or 1 where the op keeps them. */
static bool holds_results(const rule_call *call, const char *what, unsigned reduced, const rule_array *array)
{
    const rule_array *in = &call->in[0];
    const bool keep = rule_int(call, "keep", 0) != 0;
    int own = 0;
    bool fits = true;
    for (int d = 0; d < in->rank; d++) {
        const bool gone = reduced >> d & 1;
        if (gone && !keep)
            continue;
        fits = fits && own < array->rank && array->shape[own] == (gone ? 1 : in->shape[d]);
        own++;
    }
    return (fits && own == array->rank) || rule_refuse(call, "the shape of %s is not that of the reduction of input 0", what);
}

/* The reduction of in[0] into out[0]. */
static bool reduction_of(const rule_call *call, fold *f)
{
    unsigned reduced;
    if (!rule_has_operands(call, 1, 1) || !reduced_of(call, &reduced) || !holds_results(call, "output 0", reduced, &call->out[0]))
        return false;
    *f = fold_over(&call->in[0], reduced);
    return true;
}

static bool sum_rule(const rule_call *call)
{
    fold f;
    if (!reduction_of(call, &f))
        return false;
    for (int64_t r = 0; r < call->out[0].count; r++)
        put_term(call, r, fold_sum(&f, r));
    return true;
}

/* Elements of the logical tensor. */
static field_value logical_count(const rule_array *array)
{
    field_value count = field_int(1);
    for (int d = 0; d < array->rank; d++)
        count = field_mul(count, field_int(array->global[d]));
    return count;
}

/* A shard of a reduced dimension gives a term of the mean, so the divisor is the number of logical terms. */
static bool mean_rule(const rule_call *call)
{
    fold f;
    if (!reduction_of(call, &f))
        return false;
    const field_value share = field_div(logical_count(&call->out[0]), logical_count(&call->in[0]));
    for (int64_t r = 0; r < call->out[0].count; r++)
        call->out[0].at[r] = field_mul(fold_sum(&f, r), share);
    return true;
}

static bool max_rule(const rule_call *call)
{
    fold f;
    if (!reduction_of(call, &f))
        return false;
    if (!f.terms && call->out[0].count)
        return rule_refuse(call, "a reduced dimension is 0; no element is the largest of none");
    for (int64_t r = 0; r < call->out[0].count; r++) {
        field_value most = call->in[0].at[fold_at(&f, r, 0)];
        for (int64_t t = 1; t < f.terms; t++) {
            const field_value x = call->in[0].at[fold_at(&f, r, t)];
            most = field_larger(call->seed, x, most) ? x : most;
        }
        call->out[0].at[r] = most;
    }
    return true;
}

/* x, y, dy -> dx: the elements of x that equal the maximum y share dy evenly. */
static void share_gradient(const rule_call *call, const fold *f, int64_t result)
{
    const field_value y = call->in[1].at[result];
    int64_t equals = 0;
    for (int64_t t = 0; t < f->terms; t++)
        equals += field_equal(call->in[0].at[fold_at(f, result, t)], y);
    const field_value share = equals > 1 ? field_div(call->in[2].at[result], field_int(equals)) : call->in[2].at[result];
    for (int64_t t = 0; t < f->terms; t++) {
        const int64_t at = fold_at(f, result, t);
        call->out[0].at[at] = field_equal(call->in[0].at[at], y) ? share : zero();
    }
}

static bool max_grad_rule(const rule_call *call)
{
    unsigned reduced;
    if (!rule_has_operands(call, 3, 1) || !all_alike(call, 1, 1) || !reduced_of(call, &reduced))
        return false;
    if (!holds_results(call, "input 1", reduced, &call->in[1]) || !holds_results(call, "input 2", reduced, &call->in[2]))
        return false;
    const fold f = fold_over(&call->in[0], reduced);
    for (int64_t r = 0; f.terms && r < call->in[1].count; r++)
        share_gradient(call, &f, r);
    return true;
}

/* The shard of the output says which dimensions are summed: those that it lacks, and those in which it is 1 and the input is not.
 * The attributes have the logical shape alone. */
static bool sum_to_rule(const rule_call *call)
{
    if (!rule_has_operands(call, 1, 1))
        return false;
    const rule_array *in = &call->in[0], *out = &call->out[0];
    unsigned reduced = 0;
    if (out->rank > in->rank)
        return rule_refuse(call, "output 0 has %d dimensions; input 0 has only %d", out->rank, in->rank);
    for (int d = 0; d < in->rank; d++) {
        const int own = d - (in->rank - out->rank);
        if (own >= 0 && out->shape[own] != 1 && out->shape[own] != in->shape[d])
            return rule_refuse(call, "dimension %d of output 0 is %lld; the input has %lld there", own, (long long)out->shape[own],
                               (long long)in->shape[d]);
        reduced |= (unsigned)(own < 0 || out->shape[own] == 1) << d;
    }
    const fold f = fold_over(in, reduced);
    for (int64_t r = 0; r < out->count; r++)
        put_term(call, r, fold_sum(&f, r));
    return true;
}

/* ---- rows ---- */

/* The index within the shard, as the kernel counts; signatures never split the last dimension. */
static int64_t largest_of(uint64_t seed, const field_value *x, int64_t count)
{
    int64_t largest = 0;
    for (int64_t i = 1; i < count; i++)
        if (field_larger(seed, x[i], x[largest]))
            largest = i;
    return largest;
}

static bool argmax_rule(const rule_call *call)
{
    if (!rule_has_operands(call, 1, 1) || !has_rows(call) || !has_count(call, "output 0", &call->out[0], rule_rows(&call->in[0])))
        return false;
    const int64_t rows = call->out[0].count, columns = rule_columns(&call->in[0]);
    if (rows && !columns)
        return rule_refuse(call, "the last dimension of input 0 is 0; no element is the largest of none");
    for (int64_t r = 0; r < rows; r++)
        call->out[0].at[r] = field_int(largest_of(call->seed, call->in[0].at + r * columns, columns));
    return true;
}

/* The maximum that the kernel subtracts cancels. */
static void softmax_row(uint64_t seed, const field_value *x, int64_t count, field_value *y)
{
    field_value sum = zero();
    for (int64_t i = 0; i < count; i++) {
        y[i] = field_oracle_of(seed, "exp", x[i]);
        sum = field_add(sum, y[i]);
    }
    const field_value share = field_inverse(sum);
    for (int64_t i = 0; i < count; i++)
        y[i] = field_mul(y[i], share);
}

static bool softmax_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 1) || !has_rows(call))
        return false;
    const int64_t rows = rule_rows(&call->in[0]), columns = rule_columns(&call->in[0]);
    for (int64_t r = 0; r < rows && columns; r++)
        softmax_row(call->seed, call->in[0].at + r * columns, columns, call->out[0].at + r * columns);
    return true;
}

/* y, dy -> dx = y (dy - the row's sum of y dy). */
static bool softmax_grad_rule(const rule_call *call)
{
    if (!all_alike(call, 2, 1) || !has_rows(call))
        return false;
    const int64_t rows = rule_rows(&call->in[0]), columns = rule_columns(&call->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        const field_value *y = call->in[0].at + r * columns, *dy = call->in[1].at + r * columns;
        field_value dot = zero();
        for (int64_t i = 0; i < columns; i++)
            dot = field_add(dot, field_mul(y[i], dy[i]));
        for (int64_t i = 0; i < columns; i++)
            call->out[0].at[r * columns + i] = field_mul(y[i], field_sub(dy[i], dot));
    }
    return true;
}

/* ---- norms ---- */

/* Sizes, and whether rows have a mean (layernorm) or not (rmsnorm). */
typedef struct norm {
    bool centred;
    int64_t rows, columns;
    field_value per; /* 1 / columns */
} norm;

static norm norm_over(const rule_array *x, bool centred)
{
    const int64_t columns = rule_columns(x);
    return (norm){centred, rule_rows(x), columns, field_inverse(field_int(columns))};
}

static field_value row_mean(const norm *n, const field_value *x)
{
    field_value sum = zero();
    for (int64_t i = 0; n->centred && i < n->columns; i++)
        sum = field_add(sum, x[i]);
    return field_mul(sum, n->per);
}

/* 1 / sqrt(variance + eps). */
static field_value row_rstd(const rule_call *call, const norm *n, const field_value *x, field_value mean, field_value eps)
{
    field_value squares = zero();
    for (int64_t i = 0; i < n->columns; i++) {
        const field_value off = field_sub(x[i], mean);
        squares = field_add(squares, field_mul(off, off));
    }
    return field_oracle_of(call->seed, "rsqrt", field_add(field_mul(squares, n->per), eps));
}

/* x, gain, and of layernorm bias. Outputs: y, of layernorm the mean of each row, and rstd. */
static bool norm_fits(const rule_call *call, const norm *n)
{
    if (!all_alike(call, 1, 1) || !has_rows(call) || !has_count(call, "gain", &call->in[1], n->columns))
        return false;
    if (n->centred && !has_count(call, "bias", &call->in[2], n->columns))
        return false;
    for (int o = 1; o < call->out_count; o++)
        if (!has_count(call, "an output with one value per row", &call->out[o], n->rows))
            return false;
    return true;
}

static bool norm_rule(const rule_call *call, bool centred)
{
    if (!rule_has_operands(call, centred ? 3 : 2, centred ? 3 : 2))
        return false;
    const norm n = norm_over(&call->in[0], centred);
    const field_value eps = field_real(rule_real(call, "eps", 0));
    if (!norm_fits(call, &n))
        return false;
    for (int64_t r = 0; r < n.rows; r++) {
        const field_value *x = call->in[0].at + r * n.columns, mean = row_mean(&n, x), rstd = row_rstd(call, &n, x, mean, eps);
        field_value *y = call->out[0].at + r * n.columns;
        for (int64_t i = 0; i < n.columns; i++) {
            y[i] = field_mul(field_mul(field_sub(x[i], mean), rstd), call->in[1].at[i]);
            y[i] = centred ? field_add(y[i], call->in[2].at[i]) : y[i];
        }
        if (centred)
            call->out[1].at[r] = mean;
        call->out[centred ? 2 : 1].at[r] = rstd;
    }
    return true;
}

static bool layernorm_rule(const rule_call *call)
{
    return norm_rule(call, true);
}

static bool rmsnorm_rule(const rule_call *call)
{
    return norm_rule(call, false);
}

/* x, gain, mean (layernorm alone), rstd, dy -> dx, dgain, dbias (layernorm alone). */
static bool norm_grad_fits(const rule_call *call, const norm *n)
{
    const int ins = n->centred ? 5 : 4, outs = n->centred ? 3 : 2;
    if (!all_alike(call, 1, 1) || !has_rows(call) || !has_count(call, "gain", &call->in[1], n->columns))
        return false;
    for (int i = 2; i + 1 < ins; i++)
        if (!has_count(call, "an input with one value per row", &call->in[i], n->rows))
            return false;
    if (!rule_same_shape(&call->in[0], &call->in[ins - 1]))
        return rule_refuse(call, "the shape of dy is not that of x");
    for (int o = 1; o < outs; o++)
        if (!has_count(call, "the gradient of a gain or a bias", &call->out[o], n->columns))
            return false;
    return true;
}

/* With xhat = (x - mean) rstd and g = dy gain: dx = rstd (g - the mean of g - xhat times the mean of g xhat), without the mean of g
 * for rmsnorm. dgain gets dy xhat of this row, dbias dy. */
static void norm_grad_row(const rule_call *call, const norm *n, int64_t row)
{
    const rule_array *in = call->in, *out = call->out;
    const field_value *x = in[0].at + row * n->columns, *dy = in[n->centred ? 4 : 3].at + row * n->columns;
    const field_value mean = n->centred ? in[2].at[row] : zero(), rstd = in[n->centred ? 3 : 2].at[row];
    field_value shift = zero(), tilt = zero();
    for (int64_t i = 0; i < n->columns; i++) {
        const field_value g = field_mul(dy[i], in[1].at[i]), xhat = field_mul(field_sub(x[i], mean), rstd);
        shift = n->centred ? field_add(shift, g) : shift;
        tilt = field_add(tilt, field_mul(g, xhat));
        out[1].at[i] = field_add(out[1].at[i], field_mul(dy[i], xhat));
        if (n->centred)
            out[2].at[i] = field_add(out[2].at[i], dy[i]);
    }
    shift = field_mul(shift, n->per);
    tilt = field_mul(tilt, n->per);
    for (int64_t i = 0; i < n->columns; i++) {
        const field_value g = field_mul(dy[i], in[1].at[i]), xhat = field_mul(field_sub(x[i], mean), rstd);
        const field_value rest = field_sub(field_sub(g, shift), field_mul(xhat, tilt));
        out[0].at[row * n->columns + i] = field_mul(rstd, rest);
    }
}

static bool norm_grad_rule(const rule_call *call, bool centred)
{
    if (!rule_has_operands(call, centred ? 5 : 4, centred ? 3 : 2))
        return false;
    const norm n = norm_over(&call->in[0], centred);
    if (!norm_grad_fits(call, &n))
        return false;
    for (int o = 1; o < (centred ? 3 : 2); o++)
        for (int64_t i = 0; i < n.columns; i++)
            call->out[o].at[i] = zero();
    for (int64_t r = 0; r < n.rows; r++)
        norm_grad_row(call, &n, r);
    return true;
}

static bool layernorm_grad_rule(const rule_call *call)
{
    return norm_grad_rule(call, true);
}

static bool rmsnorm_grad_rule(const rule_call *call)
{
    return norm_grad_rule(call, false);
}

/* ---- dropout ---- */

static bool rate_fits(const rule_call *call)
{
    const double rate = rule_real(call, "rate", 0);
    return (rate >= 0 && rate < 1) || rule_refuse(call, "rate %g is not in [0, 1)", rate);
}

/* The factor of the elements that dropout keeps. */
static field_value dropout_scale(const rule_call *call)
{
    return field_inverse(field_sub(field_int(1), field_real(rule_real(call, "rate", 0))));
}

/* Where element n of a shard is in its logical tensor, in memory order. */
static uint64_t logical_at(const rule_array *array, int64_t n)
{
    int64_t index[WEIR_DIMS_MAX] = {0};
    uint64_t at = 0;
    rule_index(array, n, index);
    for (int d = 0; d < array->rank; d++)
        at = at * (uint64_t)array->global[d] + (uint64_t)(array->start[d] + index[d]);
    return at;
}

/* The kernel keeps an element whose word is not below. */
static uint32_t dropout_threshold(const rule_call *call)
{
    const double words = rule_real(call, "rate", 0) * 0x1p32;
    return words < UINT32_MAX ? (uint32_t)words : UINT32_MAX;
}

/* The random word of logical element `at`. Elements draw in groups of 64: 16 counters of Philox, each of which gives 4 words.
 * Elements 0 to 15 of a group draw word 0 of the counters, the next 16 draw word 1, and so on. The upper half of the counter is the
 * number of the firing, counted from step 0. */
static uint32_t dropout_word(const rule_call *call, uint64_t at)
{
    const uint64_t firing = (uint64_t)call->step * (uint64_t)call->micros + (uint64_t)call->micro;
    uint32_t word[4];
    weir_philox(call->key, at / 64 * 16 + at % 16, firing, word);
    return word[at / 16 % 4];
}

/* x -> y, mask. */
static bool dropout_rule(const rule_call *call)
{
    if (!all_alike(call, 1, 2) || !rate_fits(call))
        return false;
    const rule_array *y = &call->out[0];
    const field_value scale = dropout_scale(call);
    const uint32_t threshold = dropout_threshold(call);
    for (int64_t i = 0; i < y->count; i++) {
        const bool kept = dropout_word(call, logical_at(y, i)) >= threshold;
        y->at[i] = kept ? field_mul(call->in[0].at[i], scale) : zero();
        call->out[1].at[i] = field_int(kept);
    }
    return true;
}

/* mask, dy -> dx. The kernel takes any byte but 0 for a kept element. */
static bool dropout_grad_rule(const rule_call *call)
{
    if (!all_alike(call, 2, 1) || !rate_fits(call))
        return false;
    const field_value scale = dropout_scale(call);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        int64_t kept;
        if (!field_is_int(call->in[0].at[i], &kept) || kept < 0 || kept > UINT8_MAX)
            return rule_refuse(call, "element %lld of the mask is not a number from 0 to 255", (long long)i);
        call->out[0].at[i] = kept ? field_mul(call->in[1].at[i], scale) : zero();
    }
    return true;
}

/* ---- the table ---- */

#define ENTRY(name) {#name, name##_rule}
const rule_entry rules_element[] = {
    ENTRY(neg), ENTRY(exp), ENTRY(log), ENTRY(sqrt), ENTRY(tanh), ENTRY(sigmoid), ENTRY(relu), ENTRY(gelu), ENTRY(silu),
    ENTRY(sqrt_grad), ENTRY(tanh_grad), ENTRY(sigmoid_grad), ENTRY(relu_grad), ENTRY(gelu_grad), ENTRY(silu_grad),
    ENTRY(abs), ENTRY(sin), ENTRY(cos), ENTRY(erf), ENTRY(gelu_erf), ENTRY(softplus), ENTRY(reciprocal),
    ENTRY(floor), ENTRY(ceil), ENTRY(round), ENTRY(sign),
    ENTRY(abs_grad), ENTRY(sin_grad), ENTRY(cos_grad), ENTRY(erf_grad), ENTRY(gelu_erf_grad), ENTRY(softplus_grad),
    ENTRY(reciprocal_grad),
    ENTRY(add), ENTRY(sub), ENTRY(mul), ENTRY(div), ENTRY(min2), ENTRY(max2), ENTRY(pow),
    ENTRY(pow_da), ENTRY(pow_db), ENTRY(equal), ENTRY(less), ENTRY(less_equal), ENTRY(logical_and), ENTRY(logical_or),
    ENTRY(logical_xor), ENTRY(logical_not), ENTRY(is_nan), ENTRY(where), ENTRY(masked), ENTRY(clip), ENTRY(clip_grad),
    ENTRY(add_many), ENTRY(affine), ENTRY(cast),
    ENTRY(sum), ENTRY(mean), ENTRY(max), ENTRY(max_grad), ENTRY(sum_to), ENTRY(argmax),
    ENTRY(softmax), ENTRY(softmax_grad),
    ENTRY(layernorm), ENTRY(layernorm_grad), ENTRY(rmsnorm), ENTRY(rmsnorm_grad),
    ENTRY(dropout), ENTRY(dropout_grad),
    {NULL, NULL},
};
