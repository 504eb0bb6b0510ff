/* graph/check/slope.c: see check.h.
 *
 * Values are f32, and the sum over the outputs is taken in double. An element x of the input is moved to x - h and to
 * x + h. Where the function is smooth the two one-sided quotients enclose its derivative; where it has a kink between the
 * two places, as relu has, they enclose the derivatives of both sides. So a gradient has to lie between them, with room
 * for the tolerance and for what rounding of the outputs does to a quotient.
 */
#include "graph/check/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEP 0x1p-7
#define ROUNDING 3e-7 /* of a sum of f32, times the root of the sum of squares */

enum { ELEMENTS = 32 }; /* of an input that are moved */

typedef struct mover {
    trial t;             /* the same trial, with outputs of its own */
    const slope *s;
    weir_view *in, *out; /* its operands; in[s->input] has data of its own */
    double noise;        /* of the sum */
} mover;

/* sum(weights * out[output]) as the inputs are now. */
static bool loss(mover *m, double *sum)
{
    pool local = {0};
    double squares = 0;
    for (int o = 0; o < m->t.out_count; o++)
        m->out[o].data = NULL;
    bool ok = trial_run(&m->t, &local);
    const weir_view *y = &m->t.out[m->s->output];
    *sum = 0;
    for (int64_t i = 0; i < weir_shape_count(&y->shape) && ok; i++) {
        const double term = view_get(y, i) * view_get(m->s->weights, i);
        *sum += term;
        squares += term * term;
        if (!isfinite(term)) {
            char element[200];
            ok = trial_broken(&m->t, "%soutput %d is %g, which has no gradient; give .inputs with values that the function is "
                              "defined for", element_text(y, i, element, sizeof element), m->s->output, view_get(y, i));
        }
    }
    m->noise = ROUNDING * sqrt(squares);
    pool_free(&local);
    return ok;
}

static bool try_element(mover *m, int64_t at, double here)
{
    float *x = (float *)m->in[m->s->input].data + at;
    const float old = *x, step = (float)STEP * (1 + fabsf(old)), up = old + step, down = old - step;
    double above = 0, below = 0;
    *x = up;
    bool ok = loss(m, &above);
    *x = down;
    ok = ok && loss(m, &below);
    *x = old;
    if (!ok)
        return false;
    const double right = (above - here) / ((double)up - (double)old), left = (here - below) / ((double)old - (double)down);
    const double got = m->s->gradient ? view_get(m->s->gradient, at) : 0;
    const double room = m->s->tolerance * (1 + fmax(fabs(left), fabs(right))) + 2 * m->noise / (double)step;
    if (got >= fmin(left, right) - room && got <= fmax(left, right) + room)
        return true;
    char element[200];
    return trial_broken(&m->t, "the gradient by %sinput %d is %.6g; differences of output %d give %.6g; mend grad, or the op "
                        "that it builds", element_text(&m->in[m->s->input], at, element, sizeof element), m->s->input, got,
                        m->s->output, (right + left) / 2);
}

static int64_t element_at(const trial *t, int64_t k, int64_t count)
{
    uint32_t word[4];
    if (count <= ELEMENTS)
        return k;
    weir_philox(t->key, (uint64_t)k, 1, word);
    return (int64_t)(((uint64_t)word[0] << 32 | word[1]) % (uint64_t)count);
}

static bool try_elements(mover *m)
{
    const int64_t count = weir_shape_count(&m->in[m->s->input].shape);
    double here = 0;
    if (!loss(m, &here))
        return false;
    for (int64_t k = 0; k < count && k < ELEMENTS; k++)
        if (!try_element(m, element_at(&m->t, k, count), here))
            return false;
    return true;
}

bool trial_slope(const trial *t, const slope *s)
{
    pool local = {0};
    mover m = {.t = *t, .s = s};
    m.in = m.t.in = pool_copy(&local, t->in, sizeof *t->in * (size_t)t->in_count);
    m.out = m.t.out = pool_copy(&local, t->out, sizeof *t->out * (size_t)t->out_count);
    if (!local.failed)
        m.in[s->input].data = pool_copy(&local, t->in[s->input].data, view_bytes(&t->in[s->input]));
    bool ok = !local.failed ? try_elements(&m) : trial_no_memory(t);
    pool_free(&local);
    return ok;
}
