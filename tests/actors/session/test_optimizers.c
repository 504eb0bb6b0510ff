/* tests/actors/session/test_optimizers.c: optimizers against the plain formulas in double, over random lives of a model: runs,
 * steps that are left out, checkpoints that are loaded whole or in part, parameters that are new, frozen or free again,
 * one device or two, with and without ZeRO.
 */
#include "tests/support/effort.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { PARAMS = 4, ROWS = 4, COLUMNS = 6, COUNT = ROWS * COLUMNS, CHAPTERS = 4, LIVES = EFFORT(40, 160, 160) };

TestSuite(optimizers, .init = folder_make, .fini = folder_remove, .timeout = 300);

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

/* ---- what is drawn ---- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double between(uint64_t *seed, double least, double most)
{
    *seed = mixed(*seed + UINT64_C(0x9e3779b97f4a7c15));
    return least + (most - least) * (double)(*seed >> 11) * 0x1p-53;
}

static bool happens(uint64_t *seed, double chance)
{
    return between(seed, 0, 1) < chance;
}

struct life {
    uint64_t seed;
    weir_optimizer by;
};

/* Whether the step has a gradient that is no number; then clipping leaves it out. */
static bool spoilt(const struct life *l, int64_t step)
{
    return l->by.clip_norm > 0 && mixed(l->seed + 77 * (uint64_t)step) % 5 == 0;
}

static float gradient_of(const struct life *l, int64_t step, int p, int64_t i)
{
    if (spoilt(l, step) && p == 0 && i == 0)
        return NAN;
    return (float)((double)(mixed(l->seed + (uint64_t)step * 1000003 + (uint64_t)p * 1009 + (uint64_t)i) >> 11) * 0x1p-53 * 4 - 2);
}

struct drawer {
    const struct life *life;
    int p;
};

static weir_status draw(void *ctx, const weir_view *to, int64_t step, int micro)
{
    const struct drawer *d = ctx;
    (void)micro;
    for (int64_t r = 0; r < to->shape.dim[0]; r++)
        for (int64_t k = 0; k < COLUMNS; k++)
            ((float *)to->data)[r * COLUMNS + k] = gradient_of(d->life, step, d->p, (to->offset[0] + r) * COLUMNS + k);
    return WEIR_OK;
}

/* ---- the plain formulas ---- */

struct parameter {
    double p[COUNT], m[COUNT], v[COUNT];
    int64_t updates;
    bool there, frozen;
};

struct truth {
    struct parameter of[PARAMS];
    int64_t step;
};

static double rate_at(const weir_optimizer *o, int64_t step)
{
    if (step < o->warmup)
        return o->lr * (double)(step + 1) / (double)o->warmup;
    if (!o->total || step >= o->total)
        return o->total ? o->lr_min : o->lr;
    double done = (double)(step - o->warmup) / (double)(o->total - o->warmup);
    return o->lr_min + (o->lr - o->lr_min) * 0.5 * (1 + cos(M_PI * done));
}

static void update_one(const weir_optimizer *o, struct parameter *a, double rate, int i, double g)
{
    if (o->kind == WEIR_SGD) {
        double change = g + o->weight_decay * a->p[i];
        a->v[i] = o->momentum * a->v[i] + change;
        a->p[i] -= rate * (o->momentum > 0 ? a->v[i] : change);
        return;
    }
    a->m[i] = o->beta1 * a->m[i] + (1 - o->beta1) * g;
    a->v[i] = o->beta2 * a->v[i] + (1 - o->beta2) * g * g;
    double mean = a->m[i] / (1 - pow(o->beta1, (double)a->updates));
    double square = a->v[i] / (1 - pow(o->beta2, (double)a->updates));
    a->p[i] = (1 - rate * o->weight_decay) * a->p[i] - rate * mean / (sqrt(square) + o->eps);
}

static void truth_step(struct truth *t, const struct life *l)
{
    const weir_optimizer *o = &l->by;
    double squares = 0;
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; t->of[p].there && !t->of[p].frozen && i < COUNT; i++)
            squares += (double)gradient_of(l, t->step, p, i) * (double)gradient_of(l, t->step, p, i);
    double factor = o->clip_norm > 0 && sqrt(squares) > o->clip_norm ? o->clip_norm / sqrt(squares) : 1;
    for (int p = 0; p < PARAMS && (o->clip_norm <= 0 || isfinite(squares)); p++) {
        struct parameter *a = &t->of[p];
        if (!a->there || a->frozen)
            continue;
        a->updates++;
        for (int i = 0; i < COUNT; i++)
            update_one(o, a, rate_at(o, t->step), i, factor * (double)gradient_of(l, t->step, p, i));
    }
    t->step++;
}

/* ---- the model ---- */

static weir_session *opened(const struct life *l, const struct truth *t, struct drawer *drawers, int devices, bool zero)
{
    char name[16];
    weir_tensor *loss = NULL;
    weir_graph *g = weir_graph_new("life");
    weir_mesh_new(g, devices == 1 ? "cpu:0" : "cpu:0-1");
    for (int p = 0; p < PARAMS; p++) {
        if (!t->of[p].there)
            continue;
        drawers[p] = (struct drawer){l, p};
        snprintf(name, sizeof name, "x%d", p);
        weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = name, .source = draw, .ctx = &drawers[p]);
        snprintf(name, sizeof name, "p%d", p);
        weir_tensor *w = weir_param(g, WEIR_F32, {ROWS, COLUMNS}, .name = name, .init = WEIR_VALUE(0.5),
                                    .frozen = t->of[p].frozen);
        weir_tensor *sum = weir_sum(weir_mul(x, w));
        loss = loss ? weir_add(loss, sum) : sum;
    }
    weir_train(loss, l->by, .zero = {zero});
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan, .cluster = {.alone = true}, .first_step = t->step);
    cr_assert(s, "%s", weir_error());
    weir_plan_free(plan);
    return s;
}

static void expect_near(weir_session *s, const struct truth *t, int number, int chapter)
{
    float value[COUNT];
    char name[16];
    for (int p = 0; p < PARAMS; p++) {
        if (!t->of[p].there)
            continue;
        snprintf(name, sizeof name, "p%d", p);
        assert_ok(weir_session_read(s, name, &(weir_array){value, WEIR_F32, {2, {ROWS, COLUMNS}}}));
        for (int i = 0; i < COUNT; i++)
            cr_assert_lt(fabs((double)value[i] - t->of[p].p[i]), 2e-5 * (1 + fabs(t->of[p].p[i])),
                         "life %d, chapter %d, step %d, p%d[%d]: %g, not %g", number, chapter, (int)t->step, p, i,
                         (double)value[i], t->of[p].p[i]);
    }
}

static weir_optimizer optimizer_of(uint64_t *seed)
{
    weir_optimizer o = happens(seed, 0.6) ? weir_adamw() : weir_sgd();
    o.lr = between(seed, 0.001, 0.05);
    o.weight_decay = happens(seed, 0.5) ? between(seed, 0, 0.1) : 0;
    o.clip_norm = happens(seed, 0.6) ? between(seed, 0.5, 20) : 0;
    o.warmup = happens(seed, 0.5) ? (int64_t)between(seed, 1, 9) : 0;
    o.total = happens(seed, 0.5) ? o.warmup + (int64_t)between(seed, 2, 30) : 0;
    o.lr_min = happens(seed, 0.5) ? o.lr / 10 : 0;
    if (o.kind == WEIR_SGD)
        o.momentum = happens(seed, 0.5) ? between(seed, 0.1, 0.95) : 0;
    else
        o.beta1 = between(seed, 0.5, 0.95), o.beta2 = between(seed, 0.9, 0.999), o.eps = 1e-8;
    return o;
}

/* Another model of the same life: parameters come, freeze and are free again; whose state was not kept starts anew. */
static void turn_page(struct truth *t, uint64_t *seed)
{
    for (int p = 1; p < PARAMS; p++) {
        struct parameter *a = &t->of[p];
        bool was = a->there && !a->frozen;
        if (!a->there && happens(seed, 0.5)) {
            *a = (struct parameter){.there = true};
            for (int i = 0; i < COUNT; i++)
                a->p[i] = 0.5;
        } else if (a->there && happens(seed, 0.3)) {
            a->frozen = !a->frozen;
        }
        if (!was || a->frozen) {
            memset(a->m, 0, sizeof a->m);
            memset(a->v, 0, sizeof a->v);
            a->updates = 0;
        }
    }
}

static void live(int number)
{
    uint64_t seed = mixed((uint64_t)number + 1);
    struct truth t = {.step = happens(&seed, 0.3) ? (int64_t)between(&seed, 1, 50) : 0};
    struct life l = {.by = optimizer_of(&seed)};
    struct drawer drawers[PARAMS];
    char folder[32];
    l.seed = seed;
    for (int p = 0; p < PARAMS; p++) {
        t.of[p].there = !p || happens(&seed, 0.6);
        for (int i = 0; i < COUNT; i++)
            t.of[p].p[i] = 0.5;
    }
    for (int chapter = 0; chapter < CHAPTERS; chapter++) {
        int devices = happens(&seed, 0.5) ? 2 : 1, steps = (int)between(&seed, 1, 12);
        weir_session *s = opened(&l, &t, drawers, devices, devices == 2 && happens(&seed, 0.5));
        if (chapter)
            assert_ok(weir_session_load(s, folder_path(folder), .partial = true));
        cr_assert_eq(weir_session_step(s), t.step);
        assert_ok(weir_session_run(s, steps));
        for (int i = 0; i < steps; i++)
            truth_step(&t, &l);
        expect_near(s, &t, number, chapter);
        snprintf(folder, sizeof folder, "life-%d-%d", number, chapter);
        assert_ok(weir_session_save(s, folder_path(folder)));
        weir_session_close(s);
        turn_page(&t, &seed);
    }
}

Test(optimizers, do_as_the_formulas_say_through_random_lives)
{
    for (int number = 0; number < LIVES; number++)
        live(number);
}
