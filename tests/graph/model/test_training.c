/* test_training.c: what weir_optimizer and weir_train() take, against plain loops in double. The gradient of each parameter is an
 * input, as the loss is the sum of their products, so a reference is a page. Each case is trained on one device, and on several
 * with parameters that are split by hand or by .zero.
 */
#include "graph/compile/actors/passes.h"
#include "graph/plan/form/plan.h"
#include "tests/support/folder.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    double average[PARAMS][ROOM];
} truth;

enum { EMA_PERCENT = 80 };

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

/* The program multiplies the rate of a step by this. */
static double own_rate(int64_t step)
{
    return step % 7 == 3 ? 0 : (double)(float)(0.5 + 0.25 * (double)(step % 5));
}

static double rate_of(const weir_optimizer *o, int64_t step, const weir_optimizer_group *g)
{
    static const double rates[] = {0.01, 0.001, 0.001, 0.01, 0.0001, 0.001};
    const double base = given(o->lr, rates[o->kind]), lr = given(g ? g->lr : 0, base);
    const double least = base > 0 ? o->lr_min * lr / base : o->lr_min, fed = o->rate ? own_rate(step) : 1;
    const double total = (double)o->total, warmup = (double)o->warmup;
    const double decay = o->decay ? (double)o->decay : fmax(1, floor(total / 10));
    if (step < o->warmup)
        return fed * lr * (double)(step + 1) / warmup;
    if (!o->total || step >= o->total)
        return fed * (o->total ? least : lr);
    if (o->schedule == WEIR_SCHEDULE_LINEAR)
        return fed * (lr + (least - lr) * ((double)step - warmup) / (total - warmup));
    if (o->schedule == WEIR_SCHEDULE_STABLE)
        return fed * fmin(lr, lr + (least - lr) * ((double)step - (total - decay)) / decay);
    return fed * (least + (lr - least) * (1 + cos(M_PI * ((double)step - warmup) / (total - warmup))) / 2);
}

/* The change of an element by its mean and its square, which take g first. */
static double adam_change(const weir_optimizer *o, double *m, double *v, double g, int64_t step)
{
    const double beta1 = given(o->beta1, 0.9), beta2 = given(o->beta2, 0.999);
    const double eps = given(o->eps, o->kind == WEIR_LAMB ? 1e-6 : 1e-8);
    *m = beta1 * *m + (1 - beta1) * g;
    *v = beta2 * *v + (1 - beta2) * g * g;
    return *m / (1 - pow(beta1, (double)step + 1)) / (sqrt(*v / (1 - pow(beta2, (double)step + 1))) + eps);
}

static void update_element(const weir_optimizer *o, double *x, double *m, double *v, double g, double rate, double decay, int64_t step)
{
    const double l2 = g + decay * *x;
    if (o->kind == WEIR_SGD) {
        *m = o->momentum * *m + l2;
        *x -= rate * (o->nesterov ? l2 + o->momentum * *m : *m);
    } else if (o->kind == WEIR_ADAGRAD) {
        *v += l2 * l2;
        *x -= rate * l2 / (sqrt(*v) + given(o->eps, 1e-10));
    } else if (o->kind == WEIR_LION) {
        const double beta1 = given(o->beta1, 0.9), beta2 = given(o->beta2, 0.99), mix = beta1 * *m + (1 - beta1) * g;
        *x -= rate * ((mix > 0) - (mix < 0) + decay * *x);
        *m = beta2 * *m + (1 - beta2) * g;
    } else if (o->kind == WEIR_ADAM) {
        *x -= rate * adam_change(o, m, v, l2, step);
    } else {
        const double change = adam_change(o, m, v, g, step);
        *x -= rate * (change + decay * *x);
    }
}

/* The quotient of two norms that LAMB multiplies its rate by; `t` is a copy. */
static double trust_of(const weir_optimizer *o, truth t, int p, double clip, double decay, int64_t step)
{
    double of_p = 0, of_u = 0;
    for (int i = 0; i < count_of(p); i++) {
        const double u = adam_change(o, &t.m[p][i], &t.v[p][i], clip * (double)gradient_of(step, p, i), step) + decay * t.p[p][i];
        of_p += t.p[p][i] * t.p[p][i];
        of_u += u * u;
    }
    return sqrt(of_p) / sqrt(of_u);
}

static void update(const weir_optimizer *o, truth *t, int p, int64_t step)
{
    const weir_optimizer_group *own = group_of(o, p);
    const double clip = clip_of(o, step, p), decay = given(own ? own->weight_decay : 0, shapes[p].rank >= 2 ? o->weight_decay : 0);
    const double trust = o->kind == WEIR_LAMB ? trust_of(o, *t, p, clip, decay, step) : 1;
    const double rate = trust * rate_of(o, step, own);
    for (int i = 0; i < count_of(p) && !(own && own->frozen); i++)
        update_element(o, &t->p[p][i], &t->m[p][i], &t->v[p][i], clip * (double)gradient_of(step, p, i), rate, decay, step);
}

/* The average of what was there at the beginning of each step. */
static void average(truth *t, double ema, int64_t step)
{
    const double weight = fmax(1 - ema, 1 / ((double)step + 1));
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < count_of(p); i++)
            t->average[p][i] += weight * (t->p[p][i] - t->average[p][i]);
}

static void truth_run(const weir_optimizer *o, truth *t)
{
    memset(t, 0, sizeof *t);
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < ROOM; i++)
            t->p[p][i] = 0.5;
    for (int64_t step = 0; step < STEPS; step++) {
        average(t, EMA_PERCENT / 100.0, step);
        for (int p = 0; p < PARAMS; p++)
            update(o, t, p, step);
    }
}

/* ---- weir ---- */

typedef struct place {
    const char *devices;
    weir_sbp weight; /* of parameters with two dimensions */
    bool zero;
} place;
static const place places[PLACES] = {{"cpu:0", WEIR_AUTO, false}, {"cpu:0-1", WEIR_S(0), false},
                                     {"cpu:0-2", WEIR_S(1), false}, {"cpu:0-2", WEIR_AUTO, true}};

static weir_status draw_rate(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    *(float *)to->data = (float)own_rate(step);
    return WEIR_OK;
}

/* A test adds these. */
typedef struct extra {
    bool rate;        /* the program feeds it */
    double ema;
    const char *norm;
} extra;

static weir_tensor *loss_of(weir_graph *g, const place *at)
{
    weir_tensor *loss = NULL;
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
    return loss;
}

static weir_graph *sums(const weir_optimizer *o, const place *at, extra more)
{
    weir_optimizer by = *o;
    weir_graph *g = weir_graph_new("sums");
    weir_mesh_new(g, at->devices);
    weir_tensor *loss = loss_of(g, at);
    if (more.rate)
        by.rate = weir_input(g, WEIR_F32, {0}, .name = "rate", .source = draw_rate);
    weir_train(loss, by, .zero = {at->zero}, .ema = more.ema, .norm = more.norm);
    return g;
}

static weir_plan *plan_of(const weir_optimizer *o, const place *at, weir_dtype precision, extra more)
{
    weir_graph *g = sums(o, at, more);
    weir_plan *plan = weir_compile(g, .precision = precision);
    cr_assert(plan, "%s: %s", at->devices, weir_error());
    weir_graph_free(g);
    return plan;
}

static run trained(const weir_optimizer *o, const place *at, weir_dtype precision, extra more)
{
    weir_plan *plan = plan_of(o, at, precision, more);
    run r = run_plan(plan, STEPS, 2);
    weir_plan_free(plan);
    return r;
}

static void expect_values(const run *r, const char *name, const double *want, int count, const char *where)
{
    const run_entry *e = run_find(r, name);
    cr_assert(e && e->count == count, "%s: %s", where, name);
    for (int i = 0; i < count; i++)
        cr_assert_lt(fabs(e->value[i] - want[i]), 2e-5 * (1 + fabs(want[i])), "%s: %s[%d] is %g, not %g", where, name, i,
                     e->value[i], want[i]);
}

static void expect_truth(const run *r, const truth *t, const char *devices)
{
    for (int p = 0; p < PARAMS; p++)
        expect_values(r, names[p], t->p[p], count_of(p), devices);
}

static void follows_with(weir_optimizer o, bool same_bits, extra more)
{
    truth t;
    run one;
    weir_optimizer with = o;
    with.rate = more.rate ? (weir_tensor *)&with : NULL; /* for truth_run() alone */
    truth_run(&with, &t);
    for (int at = 0; at < PLACES; at++) {
        run r = trained(&o, &places[at], WEIR_F32, more);
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

/* The formulas hold in every place; if nothing sums over shards, with the same bits. */
static void follows(weir_optimizer o, bool same_bits)
{
    follows_with(o, same_bits, (extra){false, 0, NULL});
}

static const extra none = {.ema = 0};

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
        run r = trained(&o, &places[at], WEIR_F16, none); /* nothing here has half precision, but the loss has a scale */
        expect_truth(&r, &t, places[at].devices);
        run_free(&r);
    }
}

Test(training, a_frozen_group_stays_as_it_is_and_has_no_gradient)
{
    follows(weir_adamw(.lr = 0.05, .clip_norm = 1, .groups = {{.match = "enc*", .frozen = true}}), false);
    weir_optimizer o = weir_adamw(.groups = {{.match = "enc*", .frozen = true}});
    weir_plan *plan = plan_of(&o, &places[0], WEIR_F32, none);
    int frozen = 0;
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        weir_plan_param(plan, i, &info);
        frozen += info.frozen;
        cr_expect(strncmp(info.name, "enc", 3) || (info.frozen && !strchr(info.name, ':')), "%s", info.name);
    }
    cr_expect_eq(frozen, 2);
    weir_plan_free(plan);
}

/* ---- the rate ---- */

Test(training, the_rate_falls_as_the_schedule_says)
{
    follows(weir_sgd(.lr = 0.1, .lr_min = 0.02, .warmup = 4, .total = 15, .schedule = WEIR_SCHEDULE_LINEAR), true);
    follows(weir_adamw(.lr = 0.1, .lr_min = 0.02, .warmup = 3, .total = 18, .schedule = WEIR_SCHEDULE_STABLE, .decay = 6), true);
    follows(weir_sgd(.lr = 0.1, .total = 20, .schedule = WEIR_SCHEDULE_STABLE), true);
    follows(weir_sgd(.lr = 0.1, .total = 12, .schedule = WEIR_SCHEDULE_COSINE), true);
    follows(weir_sgd(.lr = 0.1, .warmup = 5, .schedule = WEIR_SCHEDULE_CONSTANT), true);
    follows(weir_adamw(.lr = 0.1, .lr_min = 0.01, .total = 12, .schedule = WEIR_SCHEDULE_LINEAR, .clip_norm = 2,
                       .groups = {{.match = "dec*", .lr = 0.5}}), false);
}

Test(training, the_program_feeds_a_rate)
{
    const extra fed = {.rate = true};
    follows_with(weir_sgd(.lr = 0.1, .momentum = 0.5), true, fed);
    follows_with(weir_adamw(.lr = 0.1, .warmup = 4, .total = 15, .weight_decay = 0.1), true, fed);
    follows_with(weir_adamw(.lr = 0.1, .clip_norm = 1, .total = 15, .schedule = WEIR_SCHEDULE_LINEAR), false, fed);
    follows_with(weir_adagrad(.lr = 0.1), true, fed);
    follows_with(weir_lamb(.lr = 0.1, .weight_decay = 0.1), false, fed);
}

static weir_status draw_nan(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    *(float *)to->data = step == 1 ? NAN : step == 2 ? -INFINITY : 1;
    return WEIR_OK;
}

Test(training, a_rate_that_is_not_finite_leaves_the_step_out)
{
    const weir_optimizer all[] = {weir_sgd(.momentum = 0.5), weir_sgd(.momentum = 0.5, .nesterov = true), weir_adamw(), weir_adam(),
                                  weir_adagrad(), weir_lion(), weir_lamb()};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        weir_graph *g = weir_graph_new("skips");
        weir_optimizer o = all[i];
        weir_tensor *loss = loss_of(g, &places[0]);
        o.rate = weir_input(g, WEIR_F32, {0}, .name = "rate", .source = draw_nan);
        weir_train(loss, o);
        weir_plan *plan = weir_compile(g);
        cr_assert(plan, "%s", weir_error());
        run one = run_plan(plan, 1, 1), three = run_plan(plan, 3, 1);
        run_near(&three, &one, 0, "two steps left out");
        run_free(&one);
        run_free(&three);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}

Test(training, a_plan_without_a_rate_of_its_own_has_no_node_for_it)
{
    const weir_optimizer plain = weir_adamw(.warmup = 3, .total = 9, .schedule = WEIR_SCHEDULE_COSINE), old = weir_adamw(.warmup = 3, .total = 9);
    weir_plan *a = plan_of(&plain, &places[1], WEIR_F32, none), *b = plan_of(&old, &places[1], WEIR_F32, none);
    cr_expect_eq(a->hash, b->hash);
    for (uint32_t k = 0; k < a->kernels_count; k++)
        cr_expect(strcmp(plan_text(a, a->kernels[k].op), "schedule"));
    weir_plan_free(a);
    weir_plan_free(b);
}

/* ---- norms ---- */

static void expect_norms(const weir_optimizer *o, weir_dtype precision, const char *part, const char *match)
{
    double all[STEPS], own[STEPS];
    const weir_optimizer whole = weir_sgd(), apart = weir_sgd(.groups = {{.match = match, .clip_norm = 1}});
    for (int step = 0; step < STEPS; step++) {
        all[step] = norm_of(&whole, step, NULL);
        own[step] = norm_of(&apart, step, &apart.groups[0]);
    }
    for (int at = 0; at < PLACES; at++) {
        run r = trained(o, &places[at], precision, (extra){.norm = "grad_norm"});
        expect_values(&r, "grad_norm", all, STEPS, places[at].devices);
        if (part)
            expect_values(&r, part, own, STEPS, places[at].devices);
        run_free(&r);
    }
}

Test(training, norms_of_gradients_are_fetched)
{
    for (int half = 0; half < 2; half++) {
        const weir_dtype precision = half ? WEIR_F16 : WEIR_F32;
        expect_norms(&weir_sgd(.lr = 0.1), precision, NULL, "*");
        expect_norms(&weir_adamw(.clip_norm = 1), precision, NULL, "*");
        expect_norms(&weir_adamw(.clip_norm = 1, .groups = {{.match = "dec*", .norm = "of dec"}}), precision, "of dec", "dec*");
        expect_norms(&weir_adamw(.groups = {{.match = "*bias", .norm = "biases", .clip_norm = 2}}), precision, "biases", "*bias");
    }
}

Test(training, a_norm_that_is_fetched_changes_no_bit_of_the_training)
{
    const weir_optimizer o = weir_adamw(.clip_norm = 1);
    run plain = trained(&o, &places[0], WEIR_F32, none), with = trained(&o, &places[0], WEIR_F32, (extra){.norm = "n"});
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < count_of(p); i++)
            cr_expect_eq(run_find(&plain, names[p])->value[i], run_find(&with, names[p])->value[i]);
    run_free(&plain);
    run_free(&with);
}

Test(training, a_group_whose_norm_is_fetched_is_clipped_with_the_others)
{
    weir_optimizer o = weir_sgd(.lr = 0.1, .clip_norm = 2);
    truth t;
    truth_run(&o, &t);
    o.groups[0] = (weir_optimizer_group){.match = "dec*", .norm = "dec"};
    run r = trained(&o, &places[1], WEIR_F32, none);
    expect_truth(&r, &t, "cpu:0-1");
    run_free(&r);
}

/* ---- kinds of optimizers ---- */

Test(training, nesterov_follows_its_formula)
{
    follows(weir_sgd(.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1), true);
}

Test(training, adam_follows_its_formula)
{
    follows(weir_adam(.lr = 0.05), true);
    follows(weir_adam(.lr = 0.05, .beta1 = 0.5, .eps = 0.1, .weight_decay = 0.1, .total = 15), true);
}

Test(training, adagrad_follows_its_formula)
{
    follows(weir_adagrad(), true);
    follows(weir_adagrad(.lr = 0.2, .eps = 0.1, .weight_decay = 0.1), true);
}

Test(training, lion_follows_its_formula)
{
    follows(weir_lion(), true);
    follows(weir_lion(.lr = 0.05, .beta2 = 0.9, .weight_decay = 0.5, .groups = {{.match = "*bias", .lr = 0.01}}), true);
}

Test(training, lamb_follows_its_formula)
{
    follows(weir_lamb(), false);
    follows(weir_lamb(.lr = 0.05, .weight_decay = 0.1, .clip_norm = 1, .eps = 0.01), false);
}

/* ---- averages ---- */

static void expect_averages(const run *r, const truth *t, const char *where)
{
    for (int p = 0; p < PARAMS; p++) {
        char name[32];
        snprintf(name, sizeof name, "%s.ema", names[p]);
        expect_values(r, name, t->average[p], count_of(p), where);
    }
}

Test(training, averages_follow_their_parameters)
{
    const weir_optimizer o = weir_adamw(.lr = 0.1, .weight_decay = 0.1);
    truth t;
    truth_run(&o, &t);
    for (int at = 0; at < PLACES; at++) {
        run r = trained(&o, &places[at], WEIR_F32, (extra){.ema = EMA_PERCENT / 100.0});
        expect_truth(&r, &t, places[at].devices);
        expect_averages(&r, &t, places[at].devices);
        run_free(&r);
    }
}

/* In its sum an evaluation has the averages, or the parameters. */
static double evaluated(bool averages, const place *at)
{
    const weir_optimizer o = weir_sgd(.lr = 0.1);
    weir_graph *g = sums(&o, at, (extra){.ema = EMA_PERCENT / 100.0});
    WEIR_PROGRAM(g, "eval", .averages = averages)
        weir_fetch(loss_of(g, at), .name = "loss");
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan, .workers = 1);
    float loss = 0;
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, 1, .program = "eval"), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_pull(s, "eval/loss", &(weir_array){&loss, WEIR_F32, {0}}, 20000), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_wait(s, 20000), WEIR_OK);
    weir_session_close(s);
    weir_plan_free(plan);
    return (double)loss;
}

Test(training, an_evaluation_reads_the_averages)
{
    const weir_optimizer o = weir_sgd(.lr = 0.1);
    truth t;
    truth_run(&o, &t);
    double of[2] = {0, 0};
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < count_of(p); i++) {
            of[0] += t.p[p][i] * (double)gradient_of(0, p, i);
            of[1] += t.average[p][i] * (double)gradient_of(0, p, i);
        }
    cr_expect_gt(fabs(of[0] - of[1]), 0.1, "%g and %g", of[0], of[1]);
    for (int at = 0; at < PLACES; at++)
        for (int averages = 0; averages < 2; averages++)
            cr_expect_float_eq(evaluated(averages, &places[at]), of[averages], 1e-3, "%s", places[at].devices);
}

/* ---- states on a disk ---- */

/* The plan with the smallest limit that there can be, whose states wait on a disk. */
static weir_plan *tight(const weir_optimizer *o, const place *at, extra more)
{
    static const char words[] = "The smallest limit that would do is ";
    char disk[300], limit[32];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    weir_graph *g = sums(o, at, more);
    cr_assert_null(weir_compile(g, .memory = "1", .offload = disk));
    const char *said = strstr(weir_error(), words);
    cr_assert(said, "%s", weir_error());
    snprintf(limit, sizeof limit, "%lu", strtoul(said + strlen(words), NULL, 10));
    weir_plan *plan = weir_compile(g, .memory = limit, .offload = disk);
    cr_assert(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(g, plan), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_verify(g, plan, .local = true), WEIR_OK, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static int kernels_named(const weir_plan *plan, const char *end)
{
    int count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const char *op = plan_text(plan, plan->kernels[k].op);
        count += strlen(op) > strlen(end) && !strcmp(op + strlen(op) - strlen(end), end);
    }
    return count;
}

Test(training, states_that_wait_on_a_disk_come_back_with_every_bit, .init = folder_make, .fini = folder_remove)
{
    const weir_optimizer all[] = {weir_sgd(.lr = 0.1, .momentum = 0.9, .nesterov = true), weir_adam(.weight_decay = 0.1),
                                  weir_adagrad(), weir_lion()};
    group_own_bytes = 16;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int fed = 0; fed < 2; fed++) {
            const extra more = {.rate = fed};
            const place *at = &places[PLACES - 1];
            weir_plan *filed = tight(&all[i], at, more);
            cr_expect_gt(kernels_named(filed, "_moved"), 0, "optimizer %zu, %s: no state is on the disk", i, at->devices);
            run want = trained(&all[i], at, WEIR_F32, more), got = run_plan(filed, STEPS, 2);
            run_near(&got, &want, 0, at->devices);
            run_free(&want);
            run_free(&got);
            weir_plan_free(filed);
        }
}

/* ---- proofs ---- */

static void proven(weir_optimizer o, extra more)
{
    for (int at = 0; at < PLACES; at++)
        for (int half = 0; half < 2; half++) {
            weir_graph *g = sums(&o, &places[at], more);
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
                      .groups = {{.match = "dec*", .clip_norm = 1, .lr = 0.5}, {.match = "*bias", .frozen = true}}), none);
    proven(weir_sgd(.momentum = 0.5, .groups = {{.match = "dec*", .clip_norm = 1, .weight_decay = 1}}), none);
}

Test(training, plans_with_a_rate_and_a_norm_are_proven)
{
    proven(weir_adamw(.total = 9, .schedule = WEIR_SCHEDULE_LINEAR), none);
    proven(weir_sgd(.lr = 0.1), (extra){.rate = true});
    proven(weir_adamw(.clip_norm = 1, .groups = {{.match = "dec*", .norm = "dec"}}), (extra){.rate = true, .norm = "all"});
}

Test(training, plans_of_all_optimizers_are_proven)
{
    proven(weir_sgd(.momentum = 0.9, .nesterov = true), none);
    proven(weir_adam(.weight_decay = 0.1), none);
    proven(weir_adagrad(.clip_norm = 1), none);
    proven(weir_lion(.weight_decay = 0.1), (extra){.rate = true});
    proven(weir_lamb(.weight_decay = 0.1, .clip_norm = 1), none);
    proven(weir_lamb(), (extra){.rate = true});
}

Test(training, plans_with_averages_are_proven)
{
    proven(weir_adamw(.weight_decay = 0.1), (extra){.ema = 0.5});
}
