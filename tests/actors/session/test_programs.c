/* test_programs.c: several programs over the same parameters, in one plan.
 *
 * The results of the program "eval" while "main" trains are held, bit for bit, against a graph of its own with a
 * session of its own, to which the parameters are carried by hand; main's results, against the same graph without the
 * other program. Over layouts, workers and ranks. Then states that one program sets and another reads, step numbers,
 * and refusals.
 */
#include "graph/model/build.h"
#include "graph/plan/prove/check.h"
#include "tests/support/ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(programs, .timeout = 120);

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())
enum { BATCH = 6, DIM = 8, POINTS = 4, STEPS = 3, EVALS = 2, MICRO = 2, WAIT_MS = 20000 };

/* ---- a model ---- */

typedef struct lies {
    const char *devices;
    weir_sbp data, weight;
    bool zero;
} lies;

static const lies table[] = {
    {"cpu:0", WEIR_AUTO, WEIR_AUTO, false},    {"cpu:0-1", WEIR_S(0), WEIR_AUTO, false},
    {"cpu:0-2", WEIR_S(0), WEIR_AUTO, false},  {"cpu:0-1", WEIR_S(0), WEIR_AUTO, true},
    {"cpu:0-3", WEIR_S(0), WEIR_AUTO, true},   {"cpu:0-1", WEIR_AUTO, WEIR_S(1), false},
    {"cpu:0-2", WEIR_B, WEIR_S(0), false},
};
enum { LAYOUTS = sizeof table / sizeof *table };

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    int64_t count = weir_shape_count(&dst->shape);
    for (int64_t i = 0; i < count; i++)
        ((float *)dst->data)[i] = weir_random_normal((uint64_t)(uintptr_t)ctx, (uint64_t)((step * 8 + micro) * count + i));
    return WEIR_OK;
}

/* `own` is for the inputs of main, whose values are others than those of eval. */
static weir_tensor *model(weir_graph *g, const lies *l, uint64_t own)
{
    weir_tensor *x = weir_input(g, WEIR_F32, {BATCH, DIM}, .name = "x", .micro = true, .sbp = {l->data}, .source = give,
                                .ctx = (void *)(uintptr_t)(1 + own));
    weir_tensor *bias = weir_param(g, WEIR_F32, {DIM}, .name = "bias", .frozen = true, .init = WEIR_UNIFORM(-1, 1));
    weir_tensor *h = weir_gelu(weir_linear(weir_add(x, bias), 2 * DIM, .name = "up", .weight = {l->weight}));
    h = weir_dropout(h, 0.5, .name = "dropout");
    weir_tensor *y = weir_sub(weir_linear(h, DIM, .name = "down"), x);
    weir_tensor *loss = weir_mean(weir_mul(y, y), .name = "loss");
    weir_fetch(loss, .name = "loss", .slots = 16);
    return loss;
}

static weir_plan *compiled(weir_graph *g)
{
    weir_plan *plan = weir_compile(g, .micro_batches = MICRO, .seed = 5);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_plan *trained(const lies *l, bool evaluated)
{
    weir_graph *g = weir_graph_new("programs");
    weir_mesh_new(g, l->devices);
    weir_train(model(g, l, 0), weir_adamw(.lr = 0.05, .clip_norm = 1), .zero = {l->zero});
    if (evaluated)
        WEIR_PROGRAM(g, "eval")
            model(g, l, 1);
    return compiled(g);
}

/* Eval's model as a graph of its own, in which nothing drops either. */
static weir_plan *evaluated_alone(const lies *l)
{
    weir_graph *g = weir_graph_new("alone");
    weir_mesh_new(g, l->devices);
    weir_graph_program(g, "eval");
    model(g, l, 1);
    return compiled(g);
}

static weir_session *opened(const weir_plan *plan, int workers)
{
    weir_session *s = weir_session_open(plan, .workers = workers);
    cr_assert_not_null(s, "%s", weir_error());
    return s;
}

/* The losses of a run of so many steps; false: it failed. */
static bool run_losses(weir_session *s, const char *program, const char *fetch, int steps, float *losses)
{
    bool ok = !weir_session_run(s, steps, .program = program);
    for (int i = 0; i < steps * MICRO && ok; i++)
        ok = !weir_session_pull(s, fetch, &(weir_array){&losses[i], WEIR_F32, {0}}, WAIT_MS);
    return ok;
}

static void carry(weir_session *from, const weir_plan *plan, weir_session *to)
{
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        OK(weir_plan_param(plan, i, &info));
        float *value = malloc((size_t)weir_shape_count(&info.type.shape) * sizeof *value);
        weir_array array = {value, info.type.dtype, info.type.shape};
        OK(weir_session_read(from, info.name, &array));
        if (info.kind == WEIR_PARAMETER)
            OK(weir_session_write(to, info.name, &array));
        free(value);
    }
}

typedef struct story {
    float train[POINTS][STEPS * MICRO], eval[POINTS][EVALS * MICRO];
} story;

/* Training, with an evaluation after every few steps. */
static bool tell(weir_session *s, bool evaluates, story *to)
{
    bool ok = true;
    for (int p = 0; p < POINTS && ok; p++) {
        ok = !evaluates || run_losses(s, "eval", "eval/loss", EVALS, to->eval[p]);
        ok = ok && run_losses(s, NULL, "loss", STEPS, to->train[p]);
    }
    return ok;
}

static bool same(const float *a, const float *b, size_t bytes)
{
    return !memcmp(a, b, bytes);
}

Test(programs, an_evaluation_is_that_of_a_graph_of_its_own)
{
    for (int l = 0; l < LAYOUTS; l++) {
        weir_plan *both = trained(&table[l], true), *alone = evaluated_alone(&table[l]);
        weir_session *s = opened(both, 1 + l % 3), *by_hand = opened(alone, 1);
        for (int p = 0; p < POINTS; p++) {
            float have[EVALS * MICRO], want[EVALS * MICRO], train[STEPS * MICRO];
            carry(s, both, by_hand);
            cr_assert(run_losses(by_hand, "eval", "eval/loss", EVALS, want), "%s", weir_error());
            cr_assert(run_losses(s, "eval", "eval/loss", EVALS, have), "%s", weir_error());
            cr_expect(same(have, want, sizeof have), "layout %d, point %d: %.9g, alone %.9g", l, p, (double)have[0],
                      (double)want[0]);
            cr_assert(run_losses(s, "main", "loss", STEPS, train), "%s", weir_error());
        }
        cr_expect_eq(weir_session_step(s), POINTS * STEPS);
        OK(weir_session_close(s));
        OK(weir_session_close(by_hand));
        weir_plan_free(both), weir_plan_free(alone);
    }
}

Test(programs, evaluations_between_change_no_bit_of_training)
{
    for (int l = 0; l < LAYOUTS; l++) {
        story with = {0}, without = {0}, idle = {0};
        weir_plan *both = trained(&table[l], true), *one = trained(&table[l], false);
        weir_session *a = opened(both, 2), *b = opened(one, 1), *c = opened(both, 3);
        cr_assert(tell(a, true, &with) && tell(b, false, &without) && tell(c, false, &idle), "%s", weir_error());
        cr_expect(same(with.train[0], without.train[0], sizeof with.train), "layout %d", l);
        cr_expect(same(idle.train[0], without.train[0], sizeof with.train), "layout %d", l);
        cr_expect_neq(with.eval[0][0], with.eval[1][0]);
        OK(weir_session_close(a));
        OK(weir_session_close(b));
        OK(weir_session_close(c));
        weir_plan_free(both), weir_plan_free(one);
    }
}

Test(programs, a_plan_of_two_is_saved_and_loaded)
{
    weir_plan *both = trained(&table[1], true);
    void *bytes;
    size_t count;
    OK(plan_encode(both, &bytes, &count));
    weir_plan *again = plan_decode(bytes, count);
    cr_assert_not_null(again, "%s", weir_error());
    cr_expect_eq(again->hash, both->hash);
    cr_expect_eq(again->programs_count, 2);
    OK(weir_plan_check(again));
    int eval = 0, params = weir_plan_param_count(again);
    for (int h = 0; h < weir_plan_host_count(again); h++) {
        weir_host_info info;
        OK(weir_plan_host(again, h, &info));
        cr_expect_eq(!strcmp(info.program, "eval"), !strncmp(info.name, "eval/", 5), "%s", info.name);
        eval += !strcmp(info.program, "eval");
    }
    cr_expect_eq(eval, 2);
    cr_expect_eq(params, 5 + 1 + 3 * 4 + 1 - 1, "each parameter is there once: %d", params);
    free(bytes);
    weir_plan_free(both), weir_plan_free(again);
}

/* ---- over ranks ---- */

typedef struct ranks_case {
    const weir_plan *plan;
    story alone;
} ranks_case;

static void rank_tells(struct rank *rank)
{
    ranks_case *c = rank->ctx;
    story *own = rank->result;
    weir_session *s = weir_session_open(c->plan, .workers = 1, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_IS(rank, tell(s, true, own), "%s", weir_error());
    RANK_OK(rank, weir_session_close(s));
}

static void ranks_agree(enum ranks_link link, enum ranks_kind kind)
{
    for (int l = 1; l < LAYOUTS; l++) {
        weir_plan *both = trained(&table[l], true);
        ranks_case c = {.plan = both};
        weir_session *s = opened(both, 1);
        cr_assert(tell(s, true, &c.alone));
        OK(weir_session_close(s));
        for (int count = 2; count <= (both->spaces_count == 3 ? 3 : 2); count++) {
            struct ranks *ranks = ranks_run(rank_tells, &c, .count = count, .link = link, .kind = kind,
                                            .result_bytes = sizeof(story));
            for (int r = 0; r < count; r++)
                cr_expect(!memcmp(ranks->rank[r].result, &c.alone, sizeof c.alone), "layout %d: rank %d of %d", l, r, count);
            ranks_free(ranks);
        }
        weir_plan_free(both);
    }
}

Test(programs, ranks_in_shared_memory_say_the_same)
{
    ranks_agree(RANKS_SHM, RANKS_PROCESSES);
}

Test(programs, ranks_on_the_wire_say_the_same)
{
    ranks_agree(RANKS_WIRE, RANKS_PROCESSES);
}

Test(programs, ranks_that_are_threads_say_the_same)
{
    ranks_agree(RANKS_WIRE, RANKS_THREADS);
}

static void say_nothing(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static void rank_differs(struct rank *rank)
{
    ranks_case *c = rank->ctx;
    weir_session *s = weir_session_open(c->plan, .workers = 1, .cluster = ranks_cluster(rank), .report = say_nothing);
    RANK_IS(rank, s, "%s", weir_error());
    weir_status status = weir_session_run(s, 1, .program = rank->number ? "eval" : "more");
    RANK_IS(rank, status == WEIR_E_PEER, "%d: %s", (int)status, weir_error());
    RANK_IS(rank, strstr(weir_error(), "runs the program"), "%s", weir_error());
    weir_session_close(s);
}

Test(programs, ranks_that_run_different_programs_are_told)
{
    weir_graph *g = weir_graph_new("programs");
    weir_mesh_new(g, "cpu:0-1");
    WEIR_PROGRAM(g, "eval")
        model(g, &table[1], 0);
    WEIR_PROGRAM(g, "more")
        model(g, &table[1], 0);
    ranks_case c = {.plan = compiled(g)};
    ranks_free(ranks_run(rank_differs, &c, .count = 2, .link = RANKS_WIRE));
    weir_plan_free((weir_plan *)c.plan);
}

/* ---- steps and states ---- */

typedef struct seen {
    int64_t step[64];
    int count;
} seen;

static weir_status see(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    seen *s = ctx;
    s->step[s->count++] = step;
    *(float *)dst->data = (float)(step + micro);
    return WEIR_OK;
}

static weir_tensor *counter(weir_graph *g, seen *s)
{
    return weir_input(g, WEIR_F32, {0}, .name = "count", .source = see, .ctx = s);
}

Test(programs, each_counts_its_own_steps)
{
    seen mine = {.count = 0}, other = {.count = 0};
    weir_graph *g = weir_graph_new("steps");
    weir_fetch(counter(g, &mine), .name = "n", .slots = 16);
    weir_graph_program(g, "other");
    weir_fetch(counter(g, &other), .name = "n", .slots = 16);
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan, .first_step = 7);
    OK(weir_session_run(s, 2));
    OK(weir_session_run(s, 2, .program = "other"));
    OK(weir_session_run(s, 1, .program = "other", .first_step = 40));
    OK(weir_session_run(s, 1, .program = "main"));
    cr_expect_eq(weir_session_step(s), 10);
    OK(weir_session_run(s, 2, .program = "other"));
    cr_expect_arr_eq(mine.step, ((int64_t[]){7, 8, 9}), 3 * sizeof(int64_t));
    cr_expect_arr_eq(other.step, ((int64_t[]){0, 1, 40, 0, 1}), 5 * sizeof(int64_t));
    cr_expect_eq(mine.count, 3);
    cr_expect_eq(other.count, 5);
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.steps, 3);
    const float want[] = {0, 1, 40, 0, 1};
    for (int i = 0; i < 5; i++) {
        float n;
        OK(weir_session_pull(s, "other/n", &(weir_array){&n, WEIR_F32, {0}}, WAIT_MS));
        cr_expect_eq(n, want[i]);
    }
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

Test(programs, what_cannot_be_run_is_told)
{
    weir_plan *plan = evaluated_alone(&table[0]);
    weir_session *s = opened(plan, 1);
    cr_expect_eq(weir_session_run(s, 1), WEIR_E_ARGUMENT);
    cr_expect_not_null(strstr(weir_error(), "there is nothing to do in the program 'main'"), "%s", weir_error());
    cr_expect_eq(weir_session_run(s, 1, .program = "walk"), WEIR_E_ARGUMENT);
    cr_expect_not_null(strstr(weir_error(), "no program 'walk'"), "%s", weir_error());
    cr_expect_eq(weir_session_run(s, 0, .program = "eval"), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_session_run(s, 1, .program = "eval", .first_step = -1), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_session_run(s, 1, .program = "eval", .first_step = INT64_MAX), WEIR_E_ARGUMENT);
    OK(weir_session_run(s, 1, .program = "eval"));
    OK(weir_session_close(s));
    weir_plan_free(plan);
    plan = trained(&table[0], false);
    s = opened(plan, 1);
    cr_expect_eq(weir_session_run(s, 1, .first_step = 3), WEIR_E_ARGUMENT);
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

/* One writes, the other looks, through one device or two. */
Test(programs, a_state_of_one_is_read_by_another)
{
    for (int devices = 1; devices <= 2; devices++) {
        seen count = {.count = 0};
        weir_graph *g = weir_graph_new("states");
        weir_mesh_new(g, devices == 1 ? "cpu:0" : "cpu:0-1");
        weir_tensor *sum = weir_state(g, WEIR_F32, {0}, .name = "sum");
        weir_state_set(sum, weir_add(sum, counter(g, &count)));
        WEIR_PROGRAM(g, "look") {
            weir_tensor *there = weir_state(g, WEIR_F32, {0}, .name = "sum");
            cr_assert_eq(there, sum);
            weir_fetch(weir_neg(there), .name = "negative", .slots = 8);
            weir_fetch(there, .slots = 8);
        }
        weir_plan *plan = compiled(g);
        weir_session *s = opened(plan, devices);
        for (int i = 0, total = 0; i < 4; i++) {
            float n, same_n;
            OK(weir_session_run(s, 1));
            OK(weir_session_run(s, 1, .program = "look"));
            OK(weir_session_pull(s, "look/negative", &(weir_array){&n, WEIR_F32, {0}}, WAIT_MS));
            OK(weir_session_pull(s, "look/sum", &(weir_array){&same_n, WEIR_F32, {0}}, WAIT_MS));
            cr_expect(n == (float)-(total += i) && same_n == -n, "%d: %g, %g", i, (double)n, (double)same_n);
        }
        OK(weir_session_close(s));
        weir_plan_free(plan);
    }
}

/* ---- what is refused ---- */

static void expect_mistake(weir_graph *g, const char *text)
{
    const char *mistake = weir_graph_mistake(g);
    cr_assert_not_null(mistake, "no mistake: %s", text);
    cr_expect(!strncmp(mistake, __FILE__, strlen(__FILE__)), "%s", mistake);
    cr_expect_not_null(strstr(mistake, text), "\"%s\" does not say \"%s\"", mistake, text);
    weir_graph_free(g);
}

static weir_graph *fresh(weir_tensor **x)
{
    weir_graph *g = weir_graph_new("mistakes");
    *x = weir_input(g, WEIR_F32, {4}, .name = "x");
    return g;
}

Test(programs, mistakes_are_told_with_both_places)
{
    weir_tensor *x, *y;
    weir_graph *g = fresh(&x);
    weir_graph_program(g, "eval");
    weir_neg(x);
    expect_mistake(g, "\"x.shard\" is computed in the program main; eval can read only parameters and states of it");
    g = fresh(&x);
    weir_param(g, WEIR_F32, {4}, .name = "w");
    weir_graph_program(g, "eval");
    weir_param(g, WEIR_F32, {5}, .name = "w");
    expect_mistake(g, "w: a parameter of f32 [5], but the one of this name, made at tests/");
    g = fresh(&x);
    weir_param(g, WEIR_F32, {4}, .name = "w");
    weir_graph_program(g, "eval");
    weir_state(g, WEIR_F32, {4}, .name = "w");
    expect_mistake(g, "w: a state of f32 [4], but the one of this name");
    g = fresh(&x);
    weir_graph_program(g, "eval");
    weir_param(g, WEIR_F32, {4}, .name = "w");
    weir_param(g, WEIR_F32, {4}, .name = "w");
    expect_mistake(g, "\"w\" is already in use");
    g = fresh(&x);
    weir_graph_program(g, "a/b");
    expect_mistake(g, "program: a name must have 1 to 63 bytes, without '/' and ':'");
    g = fresh(&x);
    weir_graph_program(g, "eval");
    y = weir_param(g, WEIR_F32, {4}, .name = "w");
    weir_train(weir_sum(y), weir_sgd());
    expect_mistake(g, "the program eval was made without .train = true, so it cannot train");
    g = fresh(&x);
    y = weir_state(g, WEIR_F32, {4}, .name = "h");
    weir_state_set(y, x);
    weir_graph_program(g, "eval");
    weir_state_set(y, weir_input(g, WEIR_F32, {4}, .name = "x"));
    expect_mistake(g, "\"h\" is set already, at tests/");
    g = fresh(&x);
    y = weir_state(g, WEIR_F32, {4}, .name = "h", .delay = 2);
    weir_state_set(y, x);
    weir_graph_program(g, "eval");
    weir_neg(y);
    expect_mistake(g, "\"h\" has a delay of 2 steps: only one program can use it");
}

Test(programs, one_that_does_nothing_is_not_compiled)
{
    weir_tensor *x;
    weir_graph *g = fresh(&x);
    weir_fetch(x, .name = "x");
    weir_graph_program(g, "idle");
    cr_expect_null(weir_compile(g));
    cr_expect_not_null(strstr(weir_error(), "the program idle fetches nothing"), "%s", weir_error());
    weir_graph_free(g);
}

Test(programs, dropout_is_on_where_it_trains)
{
    weir_tensor *x;
    weir_graph *g = fresh(&x);
    cr_expect_neq(weir_dropout(x, 0.5), x);
    WEIR_PROGRAM(g, "eval") {
        x = weir_input(g, WEIR_F32, {4}, .name = "x");
        cr_expect_eq(weir_dropout(x, 0.5), x);
    }
    cr_expect(weir_graph_trains(g), "main again");
    WEIR_PROGRAM(g, "tune", .train = true) {
        x = weir_input(g, WEIR_F32, {4}, .name = "x");
        cr_expect_neq(weir_dropout(x, 0.5), x);
    }
    weir_graph_free(g);
}

/* A crossing port of the plan, and its register. */
static uint32_t crossing(const weir_plan *plan)
{
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan_port_crosses(plan, &plan->ports[p]))
            return p;
    cr_assert_fail("nothing crosses");
    return 0;
}

static void expect_refused(weir_plan *plan, const char *text)
{
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN, "%s", text);
    cr_expect_not_null(strstr(weir_error(), text), "%s", weir_error());
    weir_plan_free(plan);
}

Test(programs, what_no_plan_may_say_of_them)
{
    weir_plan *plan = trained(&table[1], true);
    uint32_t port = crossing(plan);
    plan->regsts[plan->ports[port].regst.i].initial = 0;
    expect_refused(plan, "another program's, and not one slot that starts full");
    plan = trained(&table[1], true);
    plan->programs[1].name = plan->programs[0].name;
    expect_refused(plan, "programs[1].name: main is also that of programs[0]");
    plan = trained(&table[1], true);
    plan->actors[0].program.i = 2;
    expect_refused(plan, "actors[0].program: 2 of 2");
    plan = trained(&table[1], true);
    uint32_t x = 0; /* an activation that another program would read */
    while (plan->regsts[plan->ports[x].regst.i].initial)
        x++;
    plan->actors[plan->ports[x].actor.i].program.i ^= 1;
    expect_refused(plan, "is another program's");
}
