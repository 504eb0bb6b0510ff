/* test_training.c: what weir_optimizer and weir_train() take, against plain loops in double. The gradient of each parameter is an
 * input, as the loss is the sum of their products, so a reference is a page. Each case is trained on one device, and on several
 * with parameters that are split by hand or by .zero.
 */
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

enum { PARAMS = 4, ROOM = 35, STEPS = 20, PLACES = 4 };

TestSuite(training, .timeout = 60);

static const char *const names[PARAMS] = {"enc/weight", "enc/bias", "dec/weight", "dec/bias"};
static const weir_shape shapes[PARAMS] = {{2, {4, 6}}, {1, {6}}, {2, {5, 7}}, {1, {7}}};

static float gradient_of(int64_t step, int p, int64_t i)
{
    return (float)(4 * weir_random_uniform(100 + (uint64_t)p, (uint64_t)(step * ROOM + i)) - 2);
}

static weir_status draw(void *ctx, const weir_view *to, int64_t step, int micro)
{
    const int p = (int)((const char *const *)ctx - names);
    (void)micro;
    for (int64_t i = 0; i < weir_shape_count(&to->shape); i++)
        ((float *)to->data)[i] = gradient_of(step, p, i);
    return WEIR_OK;
}

/* ---- the plain formulas ---- */

typedef struct truth {
    double p[PARAMS][ROOM], m[PARAMS][ROOM], v[PARAMS][ROOM];
} truth;

static int count_of(int p)
{
    return (int)weir_shape_count(&shapes[p]);
}

static double given(double option, double fallback)
{
    return option ? option : signbit(option) ? 0 : fallback;
}

/* Which group a parameter is in: of these tests every pattern is "*", a suffix behind a '*', or a prefix before one. */
static const weir_optimizer_group *group_of(const weir_optimizer *o, int p)
{
    for (const weir_optimizer_group *g = o->groups; g->match; g++) {
        const size_t length = strlen(g->match) - 1, all = strlen(names[p]);
        const bool behind = g->match[0] == '*' && all >= length && !strcmp(names[p] + all - length, g->match + 1);
        if (behind || (g->match[length] == '*' && !strncmp(names[p], g->match, length)))
            return g;
    }
    return NULL;
}

static bool clips_alone(const weir_optimizer_group *g)
{
    return g && (g->clip_norm != 0 || signbit(g->clip_norm));
}

/* The norm of the gradients that are clipped with those of p, and what they are multiplied by. */
static double norm_of(const weir_optimizer *o, int64_t step, const weir_optimizer_group *part)
{
    double squares = 0;
    for (int p = 0; p < PARAMS; p++) {
        const weir_optimizer_group *g = group_of(o, p);
        if (g && g->frozen)
            continue;
        for (int i = 0; i < count_of(p) && (clips_alone(g) ? g : NULL) == part; i++)
            squares += pow((double)gradient_of(step, p, i), 2);
    }
    return sqrt(squares);
}

static double clip_of(const weir_optimizer *o, int64_t step, int p)
{
    const weir_optimizer_group *part = clips_alone(group_of(o, p)) ? group_of(o, p) : NULL;
    const double most = part ? part->clip_norm : o->clip_norm, norm = norm_of(o, step, part);
    return most > 0 && norm > most ? most / norm : 1;
}

static double rate_of(const weir_optimizer *o, int64_t step, const weir_optimizer_group *g)
{
    const double base = given(o->lr, o->kind == WEIR_SGD ? 0.01 : 0.001), lr = given(g ? g->lr : 0, base);
    const double least = base > 0 ? o->lr_min * lr / base : o->lr_min;
    if (step < o->warmup)
        return lr * (double)(step + 1) / (double)o->warmup;
    if (!o->total || step >= o->total)
        return o->total ? least : lr;
    return least + (lr - least) * (1 + cos(M_PI * (double)(step - o->warmup) / (double)(o->total - o->warmup))) / 2;
}

static void update(const weir_optimizer *o, truth *t, int p, int64_t step)
{
    const weir_optimizer_group *group = group_of(o, p);
    const double rate = rate_of(o, step, group), clip = clip_of(o, step, p);
    const double decay = given(group ? group->weight_decay : 0, shapes[p].rank >= 2 ? o->weight_decay : 0);
    const double beta1 = given(o->beta1, 0.9), beta2 = given(o->beta2, 0.999), eps = given(o->eps, 1e-8);
    for (int i = 0; i < count_of(p) && !(group && group->frozen); i++) {
        double *x = &t->p[p][i], *m = &t->m[p][i], *v = &t->v[p][i], g = clip * (double)gradient_of(step, p, i);
        if (o->kind == WEIR_SGD) {
            *m = o->momentum * *m + g + decay * *x;
            *x -= rate * *m;
        } else {
            *m = beta1 * *m + (1 - beta1) * g;
            *v = beta2 * *v + (1 - beta2) * g * g;
            *x -= rate * decay * *x;
            *x -= rate * *m / (1 - pow(beta1, (double)step + 1)) / (sqrt(*v / (1 - pow(beta2, (double)step + 1))) + eps);
        }
    }
}

static void truth_run(const weir_optimizer *o, truth *t)
{
    memset(t, 0, sizeof *t);
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < ROOM; i++)
            t->p[p][i] = 0.5;
    for (int64_t step = 0; step < STEPS; step++)
        for (int p = 0; p < PARAMS; p++)
            update(o, t, p, step);
}

/* ---- weir ---- */

typedef struct place {
    const char *devices;
    weir_sbp weight; /* of parameters with two dimensions */
    bool zero;
} place;
static const place places[PLACES] = {{"cpu:0", WEIR_AUTO, false}, {"cpu:0-1", WEIR_S(0), false},
                                     {"cpu:0-2", WEIR_S(1), false}, {"cpu:0-2", WEIR_AUTO, true}};

static weir_graph *sums(const weir_optimizer *o, const place *at)
{
    weir_graph *g = weir_graph_new("sums");
    weir_tensor *loss = NULL;
    weir_mesh_new(g, at->devices);
    for (int p = 0; p < PARAMS; p++) {
        char name[16];
        const weir_shape *s = &shapes[p];
        snprintf(name, sizeof name, "x%d", p);
        weir_tensor *x = weir_input(g, WEIR_F32, {s->dim[0], s->dim[1]}, .name = name, .source = draw, .ctx = (void *)&names[p]);
        weir_tensor *w = weir_param(g, WEIR_F32, {s->dim[0], s->dim[1]}, .name = names[p], .init = WEIR_VALUE(0.5),
                                    .sbp = {s->rank == 2 ? at->weight : WEIR_AUTO});
        weir_tensor *sum = weir_sum(weir_mul(x, w));
        loss = loss ? weir_add(loss, sum) : sum;
    }
    weir_train(loss, *o, .zero = {at->zero});
    return g;
}

static run trained(const weir_optimizer *o, const place *at, weir_dtype precision)
{
    weir_graph *g = sums(o, at);
    weir_plan *plan = weir_compile(g, .precision = precision);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    run r = run_plan(plan, STEPS, 2);
    weir_plan_free(plan);
    return r;
}

static void expect_truth(const run *r, const truth *t, const char *devices)
{
    for (int p = 0; p < PARAMS; p++) {
        const run_entry *e = run_find(r, names[p]);
        cr_assert(e && e->count == count_of(p), "%s", names[p]);
        for (int i = 0; i < count_of(p); i++)
            cr_assert_lt(fabs(e->value[i] - t->p[p][i]), 2e-5 * (1 + fabs(t->p[p][i])), "%s: %s[%d] is %g, not %g", devices,
                         names[p], i, e->value[i], t->p[p][i]);
    }
}

/* The formulas hold in every place; if nothing sums over shards, with the same bits. */
static void follows(weir_optimizer o, bool same_bits)
{
    truth t;
    run one;
    truth_run(&o, &t);
    for (int at = 0; at < PLACES; at++) {
        run r = trained(&o, &places[at], WEIR_F32);
        expect_truth(&r, &t, places[at].devices);
        if (at && same_bits)
            run_near(&r, &one, 0, places[at].devices);
        if (at)
            run_free(&r);
        else
            one = r;
    }
    run_free(&one);
}

/* ---- groups ---- */

Test(training, the_first_group_that_fits_a_name_has_the_parameter)
{
    follows(weir_sgd(.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1,
                     .groups = {{.match = "*bias", .lr = 0.02}, {.match = "dec*", .lr = WEIR_ZERO}}), true);
    follows(weir_adamw(.weight_decay = 0.1, .total = 15, .lr = 0.01, .lr_min = 0.002,
                       .groups = {{.match = "dec*", .lr = 0.05}, {.match = "*", .weight_decay = WEIR_ZERO}}), true);
}

Test(training, a_group_may_let_its_biases_decay)
{
    follows(weir_adamw(.lr = 0.05, .weight_decay = 0.1, .groups = {{.match = "*dec/bias", .weight_decay = 0.5}}), true);
    follows(weir_sgd(.lr = 0.05, .groups = {{.match = "enc*", .weight_decay = 0.25}}), true);
}

Test(training, a_group_is_clipped_by_its_own_norm)
{
    follows(weir_sgd(.lr = 0.1, .clip_norm = 3, .groups = {{.match = "dec*", .clip_norm = 1}}), false);
    follows(weir_sgd(.lr = 0.1, .groups = {{.match = "*bias", .clip_norm = 0.5}, {.match = "dec*", .clip_norm = 2}}), false);
    follows(weir_adamw(.lr = 0.1, .clip_norm = 1, .groups = {{.match = "enc*", .clip_norm = WEIR_ZERO}}), false);
    follows(weir_sgd(.lr = 0.1, .clip_norm = 2, .groups = {{.match = "*", .clip_norm = 1}}), false);
}

Test(training, groups_are_clipped_in_half_precision_too)
{
    weir_optimizer o = weir_sgd(.lr = 0.1, .clip_norm = 3, .groups = {{.match = "dec*", .clip_norm = 1}});
    truth t;
    truth_run(&o, &t);
    for (int at = 0; at < PLACES; at++) {
        run r = trained(&o, &places[at], WEIR_F16); /* nothing here has half precision, but the loss has a scale */
        expect_truth(&r, &t, places[at].devices);
        run_free(&r);
    }
}

Test(training, a_frozen_group_stays_as_it_is_and_has_no_gradient)
{
    follows(weir_adamw(.lr = 0.05, .clip_norm = 1, .groups = {{.match = "enc*", .frozen = true}}), false);
    weir_optimizer o = weir_adamw(.groups = {{.match = "enc*", .frozen = true}});
    weir_graph *g = sums(&o, &places[0]);
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    int frozen = 0;
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        weir_plan_param(plan, i, &info);
        frozen += info.frozen;
        cr_expect(strncmp(info.name, "enc", 3) || (info.frozen && !strchr(info.name, ':')), "%s", info.name);
    }
    cr_expect_eq(frozen, 2);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- proofs ---- */

static void proven(weir_optimizer o)
{
    for (int at = 0; at < PLACES; at++)
        for (int half = 0; half < 2; half++) {
            weir_graph *g = sums(&o, &places[at]);
            weir_plan *plan = weir_compile(g, .precision = half ? WEIR_F16 : WEIR_F32);
            cr_assert(plan, "%s", weir_error());
            cr_expect_eq(weir_gradients_verify(g), WEIR_OK, "%s", weir_error());
            cr_expect_eq(weir_plan_verify(g, plan), WEIR_OK, "%s: %s", places[at].devices, weir_error());
            cr_expect_eq(weir_plan_verify(g, plan, .local = true), WEIR_OK, "%s: %s", places[at].devices, weir_error());
            weir_plan_free(plan);
            weir_graph_free(g);
        }
}

Test(training, plans_with_groups_are_proven)
{
    proven(weir_adamw(.clip_norm = 3, .weight_decay = 0.1,
                      .groups = {{.match = "dec*", .clip_norm = 1, .lr = 0.5}, {.match = "*bias", .frozen = true}}));
    proven(weir_sgd(.momentum = 0.5, .groups = {{.match = "dec*", .clip_norm = 1, .weight_decay = 1}}));
}
