/* graph/verify/rules_update.c: the rules of the optimizers and of what scales their gradients.
 *
 * An update is polynomial in the parameter, its gradient and its states, except for square roots, the sign of lion, and divisions.
 * The square root and the sign are oracles. The learning rate is a double that depends on the step alone; graph and plan compute it in the
 * same way.
 *
 * No number of the field is infinite or NaN. The rules therefore never leave out a step: every update happens, and the states
 * that count skipped steps stay as they are.
 *
 * The scale of the loss. With f16 the compiler multiplies the loss by a scale S, which the author's graph does not have, and
 * loss_scale takes the place of clip_scale. The plan then has gradients S g and the sum of squares S^2 s, and its factor for the
 * gradients must be the factor of the graph divided by S. Both rules therefore ask the oracle for the norm as
 * sqrt(squares / terms^2), where `terms` contains S, and not as sqrt(squares) / terms. The two are equal over the reals, but with
 * an oracle only the first has the same value with and without S.
 */
#include "graph/verify/rule.h"

#include <math.h>

/* ---- updates ---- */

/* One update. sgd_moved and so on have `moved` states of the parameter's size: their last inputs are the old values, and
 * the outputs behind the parameter are the new ones. sgd and so on have these as the first states of the call. */
typedef struct update {
    const rule_call *call;
    int moved;
    int64_t count; /* elements of the parameter */
    const field_value *gradient;
    field_value *parameter;
    field_value scale, rate, decay;
} update;

/* The learning rate: it rises to lr during the warm-up, then stays there, or falls along half a cosine to lr_min, which it
 * reaches at step `total`. */
static double rate_of(const rule_call *call)
{
    const double lr = rule_real(call, "lr", 0), least = rule_real(call, "lr_min", 0);
    const int64_t warmup = rule_int(call, "warmup", 0), total = rule_int(call, "total", 0);
    if (call->step < warmup)
        return lr * (double)(call->step + 1) / (double)warmup;
    if (total <= 0)
        return lr;
    if (call->step >= total)
        return least;
    const double done = ((double)call->step - (double)warmup) / ((double)total - (double)warmup);
    return least + (lr - least) * 0.5 * (1 + cos(M_PI * done));
}

/* Reads the factor of the gradient and that of the rate, which are inputs 1 and 2. Either may be missing; the second has one
 * dimension, and the first has none. */
static bool read_factors(const rule_call *call, int given, field_value *scale, field_value *rate)
{
    *scale = *rate = field_int(1);
    for (int i = 1; i < given; i++) {
        const bool is_rate = call->in[i].rank == 1;
        if (call->in[i].count != 1 || call->in[i].rank > 1 || (i == 2 && !is_rate) || (i == 1 && is_rate && given > 2))
            return rule_refuse(call, "input %d is neither the gradient's factor, a scalar, nor the rate's, of one dimension", i);
        *(is_rate ? rate : scale) = call->in[i].at[0];
    }
    return true;
}

static bool update_of(const rule_call *call, int moved, update *u)
{
    const int given = call->in_count - moved;
    field_value scale, rate;
    if (given < 1 || given > 3 || call->out_count < 1 + moved)
        return rule_refuse(call, "%d inputs and %d outputs: an update with %d moved states has more", call->in_count,
                           call->out_count, moved);
    if (call->out[0].count != call->in[0].count)
        return rule_refuse(call, "the parameter does not have the gradient's shape");
    if (!read_factors(call, given, &scale, &rate))
        return false;
    *u = (update){
        .call = call,
        .moved = moved,
        .count = call->out[0].count,
        .gradient = call->in[0].at,
        .parameter = call->out[0].at,
        .scale = scale,
        .rate = field_mul(field_real(rate_of(call)), rate),
        .decay = field_real(rule_real(call, "weight_decay", 0)),
    };
    return true;
}

/* The k-th state of the parameter's size, with its old values. NULL: there is none, and the call is refused. */
static field_value *large_state(const update *u, int k)
{
    const rule_call *call = u->call;
    const rule_array *state = u->moved ? &call->out[1 + k] : k < call->state_count ? &call->state[k] : NULL;
    const rule_array *old = u->moved ? &call->in[call->in_count - u->moved + k] : state;
    if (!state || state->count != u->count || old->count != u->count) {
        rule_say(call, "state %d does not have the shape of the parameter", k);
        return NULL;
    }
    for (int64_t i = 0; i < u->count && u->moved; i++)
        state->at[i] = old->at[i];
    return state->at;
}

/* p -= rate (scale g + decay p); with momentum, v = momentum v + (scale g + decay p) and p -= rate v. */
static bool sgd_with(const rule_call *call, int moved)
{
    update u;
    if (!update_of(call, moved, &u))
        return false;
    const bool has_momentum = rule_real(call, "momentum", 0) != 0;
    const field_value momentum = field_real(rule_real(call, "momentum", 0));
    field_value *v = has_momentum || moved ? large_state(&u, 0) : NULL;
    if (!v && (has_momentum || moved))
        return false;
    for (int64_t i = 0; i < u.count; i++) {
        field_value *p = &u.parameter[i];
        field_value change = field_add(field_mul(u.scale, u.gradient[i]), field_mul(u.decay, *p));
        if (has_momentum)
            change = v[i] = field_add(field_mul(momentum, v[i]), change);
        *p = field_sub(*p, field_mul(u.rate, change));
    }
    return true;
}

/* The gradient of element i with its factor, and with the decay. */
static field_value decayed(const update *u, int64_t i)
{
    return field_add(field_mul(u->scale, u->gradient[i]), field_mul(u->decay, u->parameter[i]));
}

/* v = momentum v + g, p -= rate (g + momentum v), where g contains the decay. */
static bool nesterov_with(const rule_call *call, int moved)
{
    update u;
    if (!update_of(call, moved, &u))
        return false;
    const field_value momentum = field_real(rule_real(call, "momentum", 0));
    field_value *v = large_state(&u, 0);
    for (int64_t i = 0; v && i < u.count; i++) {
        const field_value g = decayed(&u, i);
        v[i] = field_add(field_mul(momentum, v[i]), g);
        u.parameter[i] = field_sub(u.parameter[i], field_mul(u.rate, field_add(g, field_mul(momentum, v[i]))));
    }
    return v;
}

/* s += g^2, p -= rate g / (sqrt(s) + eps), where g contains the decay. */
static bool adagrad_with(const rule_call *call, int moved)
{
    update u;
    if (!update_of(call, moved, &u))
        return false;
    const field_value eps = field_real(rule_real(call, "eps", 0));
    field_value *sum = large_state(&u, 0);
    for (int64_t i = 0; sum && i < u.count; i++) {
        const field_value g = decayed(&u, i);
        sum[i] = field_add(sum[i], field_mul(g, g));
        const field_value root = field_oracle_of(call->seed, "sqrt", sum[i]);
        u.parameter[i] = field_sub(u.parameter[i], field_div(field_mul(u.rate, g), field_add(root, eps)));
    }
    return sum;
}

/* p -= rate (sign(beta1 m + (1 - beta1) g) + decay p), m = beta2 m + (1 - beta2) g. The sign is an oracle. */
static bool lion_with(const rule_call *call, int moved)
{
    update u;
    if (!update_of(call, moved, &u))
        return false;
    const field_value beta1 = field_real(rule_real(call, "beta1", 0)), beta2 = field_real(rule_real(call, "beta2", 0));
    const field_value fresh1 = field_sub(field_int(1), beta1), fresh2 = field_sub(field_int(1), beta2);
    field_value *m = large_state(&u, 0);
    for (int64_t i = 0; m && i < u.count; i++) {
        const field_value g = field_mul(u.scale, u.gradient[i]);
        const field_value mix = field_add(field_mul(beta1, m[i]), field_mul(fresh1, g));
        const field_value change = field_add(field_oracle_of(call->seed, "lion", mix), field_mul(u.decay, u.parameter[i]));
        u.parameter[i] = field_sub(u.parameter[i], field_mul(u.rate, change));
        m[i] = field_add(field_mul(beta2, m[i]), field_mul(fresh2, g));
    }
    return m;
}

/* The rule of an op, and that of the op with moved states. */
#define WITH_MOVED(name, states)                     \
    static bool name(const rule_call *call)          \
    {                                                \
        return name##_with(call, 0);                 \
    }                                                \
    static bool name##_moved(const rule_call *call)  \
    {                                                \
        return name##_with(call, states);            \
    }

WITH_MOVED(sgd, 1)
WITH_MOVED(nesterov, 1)
WITH_MOVED(adagrad, 1)
WITH_MOVED(lion, 1)

static field_value power(field_value base, int64_t exponent)
{
    field_value result = field_int(1);
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result = field_mul(result, base);
        base = field_mul(base, base);
    }
    return result;
}

/* Adds 1 to the count of the updates that m and v contain, and returns it in `updates`. The count stops at the largest i32. */
static bool count_update(const rule_call *call, int state, int64_t *updates)
{
    if (state >= call->state_count || call->state[state].count != 1)
        return rule_refuse(call, "state %d, the count of updates, is missing or no scalar", state);
    field_value *count = call->state[state].at;
    if (!field_is_int(*count, updates) || *updates < 0)
        return rule_refuse(call, "the count of updates: must be an integer of at least 0");
    *updates += *updates < INT32_MAX;
    *count = field_int(*updates);
    return true;
}

/* The means m and v of the gradient and of its square, and the numbers that take gradients into them. */
typedef struct moments {
    field_value *m, *v;
    field_value beta1, beta2, fresh1, fresh2, correct1, correct2, eps;
} moments;

/* For the update after `updates` - 1 others. */
static moments moments_of(const rule_call *call, field_value *m, field_value *v, int64_t updates)
{
    const field_value one = field_int(1);
    moments x = {.m = m, .v = v, .beta1 = field_real(rule_real(call, "beta1", 0)), .beta2 = field_real(rule_real(call, "beta2", 0))};
    x.fresh1 = field_sub(one, x.beta1);
    x.fresh2 = field_sub(one, x.beta2);
    x.correct1 = field_inverse(field_sub(one, power(x.beta1, updates)));
    x.correct2 = field_inverse(field_sub(one, power(x.beta2, updates)));
    x.eps = field_real(rule_real(call, "eps", 0));
    return x;
}

/* The old m and v become the new ones; returns (m / c1) / (sqrt(v / c2) + eps), where c1 and c2 are 1 - beta^updates. */
static field_value moments_take(const rule_call *call, const moments *x, int64_t i, field_value g)
{
    x->m[i] = field_add(field_mul(x->beta1, x->m[i]), field_mul(x->fresh1, g));
    x->v[i] = field_add(field_mul(x->beta2, x->v[i]), field_mul(x->fresh2, field_mul(g, g)));
    const field_value root = field_oracle_of(call->seed, "sqrt", field_mul(x->v[i], x->correct2));
    return field_div(field_mul(x->correct1, x->m[i]), field_add(root, x->eps));
}

/* p = (1 - rate decay) p - rate change; with adam the decay is in the gradient. */
static bool adam_like(const rule_call *call, int moved, bool decoupled)
{
    update u;
    int64_t updates = 0;
    if (!update_of(call, moved, &u) || !count_update(call, 2 - moved, &updates))
        return false;
    field_value *m = large_state(&u, 0), *v = m ? large_state(&u, 1) : NULL;
    if (!v)
        return false;
    const moments x = moments_of(call, m, v, updates);
    const field_value keep = decoupled ? field_sub(field_int(1), field_mul(u.rate, u.decay)) : field_int(1);
    for (int64_t i = 0; i < u.count; i++) {
        const field_value g = decoupled ? field_mul(u.scale, u.gradient[i]) : decayed(&u, i);
        const field_value change = field_mul(u.rate, moments_take(call, &x, i, g));
        u.parameter[i] = field_sub(field_mul(keep, u.parameter[i]), change);
    }
    return true;
}

static bool adamw_with(const rule_call *call, int moved)
{
    return adam_like(call, moved, true);
}

static bool adam_with(const rule_call *call, int moved)
{
    return adam_like(call, moved, false);
}

WITH_MOVED(adamw, 2)
WITH_MOVED(adam, 2)

/* gradient (, factors), p -> the direction */
static bool lamb(const rule_call *call)
{
    field_value scale, rate;
    int64_t updates = 0;
    const rule_array *p = &call->in[call->in_count - 1], *out = call->out;
    if (call->in_count < 2 || call->in_count > 4 || call->out_count != 1 || call->state_count != 3 ||
        p->count != out->count || call->in[0].count != out->count || call->state[0].count != out->count ||
        call->state[1].count != out->count)
        return rule_refuse(call, "the gradient, the parameter, the direction and its states do not have one shape");
    if (!read_factors(call, call->in_count - 1, &scale, &rate) || !count_update(call, 2, &updates))
        return false;
    const moments x = moments_of(call, call->state[0].at, call->state[1].at, updates);
    const field_value decay = field_real(rule_real(call, "weight_decay", 0));
    for (int64_t i = 0; i < out->count; i++) {
        const field_value change = moments_take(call, &x, i, field_mul(scale, call->in[0].at[i]));
        out->at[i] = field_add(change, field_mul(decay, p->at[i]));
    }
    return true;
}

static field_value root_of_squares(const rule_call *call, const field_value *squares);

/* direction u, its squares, those of p (, factor of the rate): p -= rate |p| / |u| u */
static bool lamb_apply(const rule_call *call)
{
    if (call->in_count < 3 || call->in_count > 4 || call->out_count != 1 || call->in[0].count != call->out[0].count ||
        call->in[1].count != 2 || call->in[2].count != 2 || (call->in_count > 3 && call->in[3].count != 1))
        return rule_refuse(call, "its inputs are not a direction, two sums of squares, and a factor of the rate");
    const field_value factor = call->in_count > 3 ? call->in[3].at[0] : field_int(1);
    const field_value trust = field_div(root_of_squares(call, call->in[2].at), root_of_squares(call, call->in[1].at));
    const field_value rate = field_mul(field_mul(field_real(rate_of(call)), factor), trust);
    for (int64_t i = 0; i < call->out[0].count; i++)
        call->out[0].at[i] = field_sub(call->out[0].at[i], field_mul(rate, call->in[0].at[i]));
    return true;
}

/* ---- the factor of the rate ---- */

static double factor_of_step(const rule_call *call)
{
    const int64_t warmup = rule_int(call, "warmup", 0), hold = rule_int(call, "hold", 0), total = rule_int(call, "total", 0);
    const double least = rule_real(call, "least", 0);
    if (call->step < warmup)
        return (double)(call->step + 1) / (double)warmup;
    if (total <= 0 || call->step < hold)
        return 1;
    return call->step >= total ? least : 1 + (least - 1) * (double)(call->step - hold) / (double)(total - hold);
}

/* (the program's rate) -> its value times the factor of the step */
static bool schedule(const rule_call *call)
{
    if (call->in_count > 1 || call->out_count != 1 || call->out[0].count != 1 || (call->in_count && call->in[0].count != 1))
        return rule_refuse(call, "the rate is no scalar");
    const field_value given = call->in_count ? call->in[0].at[0] : field_int(1);
    call->out[0].at[0] = field_mul(field_real(factor_of_step(call)), given);
    return true;
}

/* ---- averages ---- */

/* p -> average += max(1 - decay, 1 / (values + 1)) (p - average). State 0 counts the values. */
static bool ema(const rule_call *call)
{
    int64_t values = 0;
    if (call->in_count != 1 || call->out_count != 1 || call->in[0].count != call->out[0].count)
        return rule_refuse(call, "the average does not have the parameter's shape");
    if (!count_update(call, 0, &values))
        return false;
    const double fresh = 1 - rule_real(call, "decay", 0);
    const field_value mean = field_inverse(field_int(values));
    const field_value weight = 1 > fresh * (double)values ? mean : field_sub(field_int(1), field_real(rule_real(call, "decay", 0)));
    for (int64_t i = 0; i < call->out[0].count; i++) {
        field_value *average = &call->out[0].at[i];
        *average = field_add(*average, field_mul(weight, field_sub(call->in[0].at[i], *average)));
    }
    return true;
}

/* ---- the factor of the gradients ---- */

/* A sum of squares has two parts, and is squares[0] + SQUARES_UNIT squares[1]. */
enum { SQUARES = 2 };
#define SQUARES_UNIT 0x1p160

static field_value sum_of_squares(const field_value *squares)
{
    return field_add(squares[0], field_mul(squares[1], field_real(SQUARES_UNIT)));
}

static field_value root_of_squares(const rule_call *call, const field_value *squares)
{
    return field_oracle_of(call->seed, "sqrt", sum_of_squares(squares));
}

/* x -> the sum of its squares, in two parts. The kernel chooses one part by the size of the sum; the rule takes the first. */
static bool square_sum(const rule_call *call)
{
    if (call->in_count < 1 || call->out_count < 1 || call->out[0].count != SQUARES)
        return rule_refuse(call, "a sum of squares has %d parts", SQUARES);
    field_value sum = field_int(0);
    for (int64_t i = 0; i < call->in[0].count; i++)
        sum = field_add(sum, field_mul(call->in[0].at[i], call->in[0].at[i]));
    call->out[0].at[0] = sum;
    call->out[0].at[1] = field_int(0);
    return true;
}

/* min(1, max_norm / norm) / terms, where norm = sqrt(squares / terms^2). A max_norm of 0: 1 / terms. The minimum is an oracle,
 * so a wrong norm always changes the factor. */
static field_value gradient_factor(const rule_call *call, const field_value *squares, field_value terms)
{
    const field_value one = field_int(1), share = field_inverse(terms);
    const field_value norm = field_oracle_of(call->seed, "sqrt", field_mul(sum_of_squares(squares), field_mul(share, share)));
    const double most = rule_real(call, "max_norm", 0);
    const field_value quotient = field_div(field_real(most), norm);
    return field_mul(most > 0 ? field_oracle_of(call->seed, "clip", quotient) : one, share);
}

/* Whether input `squares` is a sum of squares, and all other inputs and `outs` outputs are scalars. */
static bool are_scale_operands(const rule_call *call, int squares, int outs)
{
    bool fit = call->in_count > squares && call->out_count >= outs;
    for (int i = 0; fit && i < call->in_count; i++)
        fit = call->in[i].count == (i == squares ? SQUARES : 1);
    for (int o = 0; fit && o < outs; o++)
        fit = call->out[o].count == 1;
    return fit || rule_refuse(call, "input %d must be a sum of squares, in %d parts; all other operands must be scalars", squares,
                              SQUARES);
}

/* squares (, count of the terms that each gradient is a sum of) -> factor */
static bool clip_scale(const rule_call *call)
{
    if (!are_scale_operands(call, 0, 1))
        return false;
    const field_value terms = call->in_count > 1 ? call->in[1].at[0] : field_int(1);
    call->out[0].at[0] = gradient_factor(call, call->in[0].at, terms);
    return true;
}

/* squares of some gradients, factor of all -> factor of these, their norm. The norm is the oracle's of squares factor^2, as that of
 * clip_scale with terms = 1 / factor. */
static bool clip_norm(const rule_call *call)
{
    if (!are_scale_operands(call, 0, 2) || call->in_count != 2)
        return false;
    const field_value *squares = call->in[0].at, base = call->in[1].at[0];
    const field_value norm = field_oracle_of(call->seed, "sqrt", field_mul(sum_of_squares(squares), field_mul(base, base)));
    const double most = rule_real(call, "max_norm", 0);
    const field_value clip = field_oracle_of(call->seed, "clip", field_div(field_real(most), norm));
    call->out[0].at[0] = most > 0 ? field_mul(clip, base) : base;
    call->out[1].at[0] = norm;
    return true;
}

/* Whether the scale is at least 2^24; then it doubles no more. The function knows integers of 32 bits and multiples of 2^24. Any
 * other value counts as smaller, and the powers of two below 1 are. */
static bool scale_is_full(field_value scale)
{
    const int64_t most = INT64_C(1) << 24;
    int64_t number;
    if (field_is_int(scale, &number))
        return number >= most;
    return field_is_int(field_div(scale, field_int(most)), &number) && number > 0;
}

/* scale, squares (, count) -> the next step's scale, factor. State 0 counts the finite steps since the scale was doubled. */
static bool loss_scale(const rule_call *call)
{
    if (!are_scale_operands(call, 1, 2))
        return false;
    if (call->state_count < 1 || call->state[0].count != 1)
        return rule_refuse(call, "the count of finite steps is missing or no scalar");
    field_value scale = call->in[0].at[0], *good = call->state[0].at;
    const field_value terms = call->in_count > 2 ? field_mul(scale, call->in[2].at[0]) : scale;
    call->out[1].at[0] = gradient_factor(call, call->in[1].at, terms);
    int64_t steps;
    *good = field_add(*good, field_int(1));
    if (field_is_int(*good, &steps) && steps >= rule_int(call, "good_steps", 0)) {
        *good = field_int(0);
        if (!scale_is_full(scale))
            scale = field_add(scale, scale);
    }
    call->out[0].at[0] = scale;
    return true;
}

const rule_entry rules_update[] = {
    {"sgd", sgd},
    {"nesterov", nesterov},
    {"adagrad", adagrad},
    {"lion", lion},
    {"adamw", adamw},
    {"adam", adam},
    {"sgd_moved", sgd_moved},
    {"nesterov_moved", nesterov_moved},
    {"adagrad_moved", adagrad_moved},
    {"lion_moved", lion_moved},
    {"adamw_moved", adamw_moved},
    {"adam_moved", adam_moved},
    {"lamb", lamb},
    {"lamb_apply", lamb_apply},
    {"schedule", schedule},
    {"ema", ema},
    {"square_sum", square_sum},
    {"clip_scale", clip_scale},
    {"clip_norm", clip_norm},
    {"loss_scale", loss_scale},
    {NULL, NULL},
};
