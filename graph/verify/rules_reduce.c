/* graph/verify/rules_reduce.c: reductions, softmax, norms and dropout over the field.
 *
 * max and argmax go by the random order of field_larger(); the rest is exact, but for the oracles exp and rsqrt.
 *
 * A rule divides by the same sizes as the kernel. `mean` divides by the logical count, because its signatures may split a reduced
 * dimension. softmax and the norms divide by the sizes of the shard, because their signatures never split the last dimension: a
 * plan that splits it computes another value here too, and the proof shows it.
 *
 * A plan may come from a file, so each rule compares the sizes of its operands before it reads or writes them.
 */
#include "graph/verify/rules_element.h"

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
const rule_entry rules_reduce[] = {
    ENTRY(sum), ENTRY(mean), ENTRY(max), ENTRY(max_grad), ENTRY(sum_to), ENTRY(argmax), ENTRY(softmax), ENTRY(softmax_grad),
    ENTRY(layernorm), ENTRY(layernorm_grad), ENTRY(rmsnorm), ENTRY(rmsnorm_grad), ENTRY(dropout), ENTRY(dropout_grad),
    {NULL, NULL},
};
