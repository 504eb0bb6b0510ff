/* graph/check/split.c: see check.h. Devices are played one after the other. Parts are cut as slice_cut() in
 * graph/compile/ir/ir.c cuts them: the first ones are one longer. Terms of a partial input are random, and their sum is the
 * whole; so an op that is no sum of what it makes of the terms is found out.
 */
#include "graph/check/check.h"

#include "graph/base/base.h"
#include "graph/compile/ir/ir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct split {
    const trial *whole;
    const weir_signature *s;
    int number, devices;
    pool pool;
    trial *part; /* one for each device */
} split;

/* ---- texts ---- */

static void put_sbps(char *text, size_t bytes, const weir_sbp *sbp, int count)
{
    enum { SHOWN = 12 };
    char one[8];
    for (int i = 0; i < count && i < SHOWN; i++)
        snprintf(text + strlen(text), bytes - strlen(text), "%s%s", i ? ", " : "", weir_sbp_text(sbp[i], one));
    if (count > SHOWN)
        snprintf(text + strlen(text), bytes - strlen(text), ", ...");
}

/* "signature 2 (S(1), B -> S(1)) on 3 devices: " */
static void put_where(const split *x, trial *t)
{
    snprintf(t->where, sizeof t->where, "signature %d (", x->number);
    put_sbps(t->where, sizeof t->where, x->s->in, t->in_count);
    snprintf(t->where + strlen(t->where), sizeof t->where - strlen(t->where), " -> ");
    put_sbps(t->where, sizeof t->where, x->s->out, t->out_count);
    snprintf(t->where + strlen(t->where), sizeof t->where - strlen(t->where), ") on %d devices: ", x->devices);
}

/* ---- whether it is one ---- */

static bool sbp_means(const trial *t, const weir_view *view, weir_sbp sbp, const char *what, int index)
{
    char text[8];
    if (sbp == WEIR_B)
        return true;
    if (sbp == WEIR_P)
        return weir_dtype_real(view->dtype) ||
               trial_broken(t, "%s %d is P and %s; integers have no partial sums", what, index,
                            weir_dtype_name(view->dtype));
    if (!WEIR_IS_S(sbp))
        return trial_broken(t, "%s %d has the number %d; allowed: WEIR_S(dimension), WEIR_B and WEIR_P", what, index, sbp);
    return (WEIR_S_DIM(sbp) >= 0 && WEIR_S_DIM(sbp) < view->shape.rank) ||
           trial_broken(t, "%s %d is %s and has %d dimensions; count them from 0", what, index, weir_sbp_text(sbp, text),
                        view->shape.rank);
}

static bool signature_means(const split *x, const trial *t)
{
    for (int i = 0; i < t->in_count; i++)
        if (!sbp_means(t, &t->in[i], x->s->in[i], "input", i))
            return false;
    for (int o = 0; o < t->out_count; o++)
        if (!sbp_means(t, &t->out[o], x->s->out[o], "output", o))
            return false;
    return true;
}

/* ---- cutting ---- */

static weir_view part_of(const weir_view *whole, weir_sbp sbp, int device, int devices)
{
    weir_view part = *whole;
    slice all = {.count = {0}};
    part.data = NULL;
    if (!WEIR_IS_S(sbp))
        return part;
    const int d = WEIR_S_DIM(sbp);
    all.count[d] = whole->shape.dim[d];
    slice_cut(&all, d, device, devices);
    part.shape.dim[d] = all.count[d];
    part.offset[d] = all.start[d];
    return part;
}

static int64_t index_in_whole(const weir_view *part, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = part->shape.rank - 1; d >= 0; d--) {
        at += (i % part->shape.dim[d] + part->offset[d]) * step;
        i /= part->shape.dim[d];
        step *= part->global.dim[d];
    }
    return at;
}

static void copy_part(const weir_view *whole, const weir_view *part)
{
    const size_t width = weir_dtype_bytes(part->dtype);
    for (int64_t i = 0; i < weir_shape_count(&part->shape); i++)
        memcpy((char *)part->data + (size_t)i * width,
               (const char *)whole->data + (size_t)index_in_whole(part, i) * width, width);
}

/* Terms of which the sum is the whole: random ones and the rest of f32; of halves, which would not hold that rest, 2x,
 * -2x, ... and -x or x. */
static void split_terms(const split *x, int input)
{
    const weir_view *whole = &x->whole->in[input];
    const int64_t count = weir_shape_count(&whole->shape);
    for (int64_t i = 0; i < count; i++) {
        double rest = view_get(whole, i);
        const double value = rest;
        for (int k = 1; k < x->devices; k++) {
            const weir_view *term = &x->part[k].in[input];
            double random = (double)weir_random_normal(x->whole->key + (uint64_t)k, (uint64_t)i);
            view_set(term, i, whole->dtype == WEIR_F32 ? random : k % 2 ? 2 * value : -2 * value);
            rest -= view_get(term, i);
        }
        view_set(&x->part[0].in[input], i, rest);
    }
}

static bool deal_inputs(split *x)
{
    for (int i = 0; i < x->whole->in_count; i++) {
        for (int k = 0; k < x->devices; k++) {
            weir_view *part = &x->part[k].in[i];
            *part = part_of(&x->whole->in[i], x->s->in[i], k, x->devices);
            part->data = pool_alloc(&x->pool, view_bytes(part) + 1);
            if (!part->data)
                return trial_no_memory(x->whole);
            if (x->s->in[i] != WEIR_P)
                copy_part(&x->whole->in[i], part);
        }
        if (x->s->in[i] == WEIR_P)
            split_terms(x, i);
    }
    return true;
}

/* ---- one device ---- */

static bool part_make(split *x, int device)
{
    trial *t = &x->part[device];
    for (int o = 0; o < t->out_count; o++)
        t->out[o] = part_of(&x->whole->out[o], x->s->out[o], device, x->devices);
    return trial_hold(t, &x->pool);
}

static bool parts_new(split *x)
{
    x->part = POOL_NEW(&x->pool, trial, x->devices);
    for (int k = 0; k < x->devices && x->part; k++) {
        x->part[k] = *x->whole;
        x->part[k].in = POOL_NEW(&x->pool, weir_view, x->whole->in_count + 1);
        x->part[k].out = POOL_NEW(&x->pool, weir_view, x->whole->out_count + 1);
        put_where(x, &x->part[k]);
    }
    return !x->pool.failed || trial_no_memory(x->whole);
}

/* ---- putting together ---- */

/* Half of the last digit of a half, which rounding may add. */
static double half_digit(weir_dtype dtype)
{
    return dtype == WEIR_F16 ? 0x1p-11 : dtype == WEIR_BF16 ? 0x1p-8 : 0;
}

static bool compare(const split *x, int out, int64_t at, double got, double terms)
{
    const weir_view *whole = &x->whole->out[out];
    const double want = view_get(whole, at);
    double tolerance = weir_dtype_real(whole->dtype) ? x->whole->tolerance : 0;
    if (tolerance > 0) /* the whole and each term may be rounded to another side */
        tolerance += 4 * x->devices * x->whole->in_count * half_digit(whole->dtype);
    char element[200];
    return values_near(got, want, tolerance, 1 + fabs(want) + terms) ||
           trial_broken(&x->part[0], "%soutput %d is %.9g split and %.9g whole; give the signature that the kernel keeps, or "
                        "none", element_text(whole, at, element, sizeof element), out, got, want);
}

static bool terms_are_whole(const split *x, int out)
{
    for (int64_t i = 0; i < weir_shape_count(&x->whole->out[out].shape); i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < x->devices; k++) {
            const double term = view_get(&x->part[k].out[out], i);
            sum += term;
            size += isfinite(term) ? fabs(term) : 0;
        }
        if (!compare(x, out, i, sum, size))
            return false;
    }
    return true;
}

static bool parts_are_whole(const split *x, int out)
{
    for (int k = 0; k < x->devices; k++) {
        const weir_view *part = &x->part[k].out[out];
        for (int64_t i = 0; i < weir_shape_count(&part->shape); i++)
            if (!compare(x, out, index_in_whole(part, i), view_get(part, i), 0))
                return false;
    }
    return true;
}

static bool split_try(split *x)
{
    trial named = *x->whole;
    put_where(x, &named);
    if (!signature_means(x, &named) || !parts_new(x) || !deal_inputs(x))
        return false;
    for (int k = 0; k < x->devices; k++)
        if (!part_make(x, k))
            return false;
    for (int o = 0; o < x->whole->out_count; o++)
        if (!(x->s->out[o] == WEIR_P ? terms_are_whole(x, o) : parts_are_whole(x, o)))
            return false;
    return true;
}

bool trial_split(const trial *whole, const weir_signature *s, int number, int devices)
{
    split x = {.whole = whole, .s = s, .number = number, .devices = devices};
    bool ok = split_try(&x);
    pool_free(&x.pool);
    return ok;
}
