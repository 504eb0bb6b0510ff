/* kernels/optim/formula.h: what the ops of this folder compute, for all kinds of devices.
 *
 * Everything that does not depend on the element is computed once, in double, and rounded (`..._constants`); then each
 * element takes one `..._update`. Where the scale of the gradients or the rate is NaN the call changes nothing: its caller asks
 * first.
 * Pure functions; any thread.
 */
#ifndef KERNELS_OPTIM_FORMULA_H
#define KERNELS_OPTIM_FORMULA_H

#include "graph/base/formula.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The attributes of all updates. Every value is taken as it is: there are no defaults here, and whoever builds the
 * update of a parameter that is not to decay (fewer than two dimensions) passes a weight_decay of 0. */
struct optim_attrs {
    double lr, lr_min;
    double momentum;     /* sgd, nesterov */
    double beta1, beta2; /* adamw, adam, lamb, lion */
    double eps;          /* adamw, adam, lamb, adagrad */
    double weight_decay;
    int64_t warmup, total;
};

struct clip_attrs {
    double max_norm; /* 0: no clipping */
};

/* Of op_loss_scale (scale.c). */
struct scale_attrs {
    double max_norm;    /* 0: no clipping */
    int64_t good_steps; /* after which the scale is doubled */
};
#define SCALE_MIN 0x1p-24f
#define SCALE_MAX 0x1p24f

/* The rate at `step` (from 0): rises as lr (step + 1) / warmup, then stays at lr (total 0) or falls along a half
 * cosine to lr_min, which it has from `total` on. */
FORMULA double optim_rate(const struct optim_attrs *attrs, int64_t step)
{
    if (step < attrs->warmup)
        return attrs->lr * (double)(step + 1) / (double)attrs->warmup;
    if (attrs->total <= 0)
        return attrs->lr;
    if (step >= attrs->total)
        return attrs->lr_min;
    double done = ((double)step - (double)attrs->warmup) / ((double)attrs->total - (double)attrs->warmup);
    return attrs->lr_min + (attrs->lr - attrs->lr_min) * 0.5 * (1 + cos(M_PI * done));
}

/* Of op_schedule. */
struct schedule_attrs {
    double least;                /* from `total` on */
    int64_t warmup, hold, total; /* total 0: it stays 1 */
};

/* The rate is multiplied by this at `step`. It rises as (step + 1) / warmup, is 1 before `hold`, and falls along a line to `least`. */
FORMULA double schedule_factor(const struct schedule_attrs *attrs, int64_t step)
{
    if (step < attrs->warmup)
        return (double)(step + 1) / (double)attrs->warmup;
    if (attrs->total <= 0 || step < attrs->hold)
        return 1;
    if (step >= attrs->total)
        return attrs->least;
    return 1 + (attrs->least - 1) * ((double)step - (double)attrs->hold) / ((double)attrs->total - (double)attrs->hold);
}

/* NaN where the program's rate is not finite: then updates change nothing. */
FORMULA float schedule_rate(const struct schedule_attrs *attrs, int64_t step, const float *given)
{
    const double factor = schedule_factor(attrs, step);
    return !given ? (float)factor : isfinite(*given) ? (float)(factor * (double)*given) : NAN;
}

/* The numbers behind a gradient that an update reads; NULL: there is none. Borrowed. */
struct update_scalars {
    const float *scale; /* the gradient is multiplied by it */
    const float *rate;  /* and the rate by this */
};

FORMULA float scale_of(struct update_scalars from)
{
    return from.scale ? *from.scale : 1.0f;
}

FORMULA double rate_of(const struct optim_attrs *attrs, int64_t step, struct update_scalars from)
{
    return from.rate ? optim_rate(attrs, step) * (double)*from.rate : optim_rate(attrs, step);
}

/* Whether the step changes nothing. */
FORMULA bool leaves_out(struct update_scalars from)
{
    return isnan(scale_of(from)) || (from.rate && isnan(*from.rate));
}

/* ---- sgd, nesterov, adagrad, lion ---- */

typedef struct update_constants {
    float rate, decay, momentum, eps, beta1, fresh1, beta2, fresh2, scale;
} update_constants;

FORMULA update_constants update_of(const struct optim_attrs *attrs, int64_t step, struct update_scalars from)
{
    update_constants c;
    c.rate = (float)rate_of(attrs, step, from);
    c.decay = (float)attrs->weight_decay;
    c.momentum = (float)attrs->momentum;
    c.eps = (float)attrs->eps;
    c.beta1 = (float)attrs->beta1;
    c.fresh1 = (float)(1 - attrs->beta1);
    c.beta2 = (float)attrs->beta2;
    c.fresh2 = (float)(1 - attrs->beta2);
    c.scale = scale_of(from);
    return c;
}

FORMULA void sgd_update(const update_constants *c, float g, float *p)
{
    *p -= c->rate * (c->scale * g + c->decay * *p);
}

/* With momentum: v is its state. */
FORMULA void sgd_momentum_update(const update_constants *c, float g, float *p, float *v)
{
    *v = c->momentum * *v + (c->scale * g + c->decay * *p);
    *p -= c->rate * *v;
}

FORMULA void nesterov_update(const update_constants *c, float g, float *p, float *v)
{
    const float grad = c->scale * g + c->decay * *p;
    *v = c->momentum * *v + grad;
    *p -= c->rate * (grad + c->momentum * *v);
}

FORMULA void adagrad_update(const update_constants *c, float g, float *p, float *s)
{
    const float grad = c->scale * g + c->decay * *p;
    *s += grad * grad;
    *p -= c->rate * grad / (sqrtf(*s) + c->eps);
}

FORMULA void lion_update(const update_constants *c, float g, float *p, float *m)
{
    const float grad = c->scale * g, mix = c->beta1 * *m + c->fresh1 * grad;
    const float sign = (float)(mix > 0) - (float)(mix < 0);
    *p -= c->rate * (sign + c->decay * *p);
    *m = c->beta2 * *m + c->fresh2 * grad;
}

/* ---- adamw, adam, lamb ---- */

typedef struct adamw_constants {
    float keep, eps, beta1, beta2, fresh1, fresh2, step, root, scale, decay;
} adamw_constants;

FORMULA int32_t adamw_count(int32_t updates)
{
    return updates < INT32_MAX ? updates + 1 : updates;
}

/* m and v started as 0 and are means of `updates` gradients, this step's included: the correction of their bias goes by
 * that number. The rate goes by the run's step. */
FORMULA adamw_constants adamw_of(const struct optim_attrs *attrs, double rate, int32_t updates, float scale)
{
    const double t = (double)updates;
    const double correct1 = 1 - pow(attrs->beta1, t), correct2 = 1 - pow(attrs->beta2, t);
    adamw_constants c;
    c.keep = (float)(1 - rate * attrs->weight_decay);
    c.eps = (float)attrs->eps;
    c.beta1 = (float)attrs->beta1;
    c.beta2 = (float)attrs->beta2;
    c.fresh1 = (float)(1 - attrs->beta1);
    c.fresh2 = (float)(1 - attrs->beta2);
    c.step = (float)(rate / correct1);
    c.root = (float)(1 / sqrt(correct2));
    c.scale = scale;
    c.decay = (float)attrs->weight_decay;
    return c;
}

/* Takes a gradient into the means; returns what p changes by. */
FORMULA float adam_change(const adamw_constants *c, float grad, float *m, float *v)
{
    const float mean = c->beta1 * *m + c->fresh1 * grad;
    const float square = c->beta2 * *v + c->fresh2 * grad * grad;
    *m = mean;
    *v = square;
    return c->step * mean / (sqrtf(square) * c->root + c->eps);
}

FORMULA void adamw_update(const adamw_constants *c, float g, float *p, float *m, float *v)
{
    *p = c->keep * *p - adam_change(c, c->scale * g, m, v);
}

FORMULA void adam_update(const adamw_constants *c, float g, float *p, float *m, float *v)
{
    *p -= adam_change(c, c->scale * g + c->decay * *p, m, v);
}

/* The direction of lamb, with constants of a rate of 1. */
FORMULA float lamb_direction(const adamw_constants *c, float g, float p, float *m, float *v)
{
    return adam_change(c, c->scale * g, m, v) + c->decay * p;
}

/* ---- averages of parameters ---- */

/* Of op_ema. */
struct ema_attrs {
    double decay;
};

/* The weight of the new value, which is the first after `values` others. */
FORMULA float ema_fresh(const struct ema_attrs *attrs, int32_t values)
{
    const double mean = 1 / ((double)values + 1), fresh = 1 - attrs->decay;
    return (float)(fresh > mean ? fresh : mean);
}

FORMULA float ema_next(float fresh, float average, float p)
{
    return average + fresh * (p - average);
}

/* ---- clipping and the scale of the loss ---- */

/* A sum of squares is two floats, as one has not the range: sum[0] + sum[1] 2^160. Both add up over shards and
 * parameters. */
enum { SQUARES = 2 };
#define SQUARES_UNIT 0x1p160

FORMULA void squares_put(double squares, float *sum)
{
    const bool large = squares > 0x1p100;
    sum[0] = large ? 0 : (float)squares; /* NaN stays here */
    sum[1] = large ? (float)(squares / SQUARES_UNIT) : 0;
}

FORMULA double squares_of(const float *sum)
{
    return (double)sum[0] + (double)sum[1] * SQUARES_UNIT;
}

/* The rate times |p| / |u|, of the sums of their squares; times 1 if one of them is 0. NaN: the step is left out. */
FORMULA float lamb_rate(const struct optim_attrs *attrs, int64_t step, struct update_scalars from, const float *u, const float *p)
{
    const double of_u = squares_of(u), of_p = squares_of(p), rate = rate_of(attrs, step, from);
    return isnan(of_u) ? NAN : of_p > 0 && of_u > 0 ? (float)(rate * sqrt(of_p) / sqrt(of_u)) : (float)rate;
}

/* Whether a step counts: gradients that are sums over `count` terms (NULL: they are means). */
FORMULA bool step_counts(const float *count)
{
    return !count || (*count > 0 && isfinite(*count));
}

/* A thread that shows how a run gets on reads it meanwhile. */
FORMULA void count_skipped(int32_t *skipped)
{
    const int32_t now = *skipped < INT32_MAX ? *skipped + 1 : *skipped;
#ifdef __CUDACC__
    *skipped = now;
#else
    __atomic_store_n(skipped, now, __ATOMIC_RELAXED);
#endif
}

/* The factor for this step's gradients. NaN: the norm is not finite, or nothing counts; the step is left out, and counted
 * in `skipped`. */
FORMULA float clip_step(const struct clip_attrs *attrs, const float *sum, const float *count, int32_t *skipped)
{
    const double terms = count ? (double)*count : 1, norm = sqrt(squares_of(sum)) / terms;
    if (!isfinite(norm) || !step_counts(count)) {
        count_skipped(skipped);
        return NAN;
    }
    const bool clips = attrs->max_norm > 0 && norm > attrs->max_norm;
    return (float)((clips ? attrs->max_norm / norm : 1) / terms);
}

/* The factor for some of the gradients, whose own norm is cut to max_norm. `base` is the factor that they would have without
 * that, NaN if the step is left out. *norm: theirs, of what the base makes of them. */
FORMULA float clip_part(const struct clip_attrs *attrs, const float *sum, float base, float *norm)
{
    const double length = sqrt(squares_of(sum)) * (double)base;
    const bool clips = attrs->max_norm > 0 && length > attrs->max_norm;
    *norm = (float)length;
    return clips ? (float)((double)base * (attrs->max_norm / length)) : base;
}

/* The factor of the scaled gradients. */
FORMULA float scale_factor(double squares, double scale, double max_norm)
{
    double norm = sqrt(squares) / scale;
    double clip = max_norm > 0 && norm > max_norm ? max_norm / norm : 1;
    return (float)(clip / scale);
}

/* One step of loss_scale: the factor for this step's gradients. The scale becomes that of the next one; `good` and
 * `skipped` are its states. */
FORMULA float scale_step(const struct scale_attrs *attrs, const float *sum, const float *count, float *scale, float *good,
                         int32_t *skipped)
{
    const double squares = squares_of(sum);
    const bool fits = isfinite(squares), counts = step_counts(count);
    const double terms = (double)*scale * (count ? (double)*count : 1);
    const float factor = fits && counts ? scale_factor(squares, terms, attrs->max_norm) : NAN;
    if (!fits || !counts)
        count_skipped(skipped);
    if (fits && !counts) /* it says nothing of the scale */
        return factor;
    *good = fits ? *good + 1 : 0;
    if (!fits && *scale > SCALE_MIN)
        *scale /= 2;
    if (*good >= (float)attrs->good_steps) {
        *scale = *scale < SCALE_MAX ? *scale * 2 : *scale;
        *good = 0;
    }
    return factor;
}

#endif
