/* tests/actors/session/test_state.c: what lives from step to step, as the program sees it: names, kinds, steps, visits;
 * also of a session that has failed. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "tests/support/learner.h"
#include "tests/support/ranks.h"
#include "tests/support/sdf.h"

TestSuite(state, .timeout = 60);

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s: %s", #call, weir_error())

static void no_report(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

#define QUIET .report = no_report, .cluster.alone = true

static const weir_session_param *find(const weir_session_param *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name))
            return &list[i];
    cr_assert_fail("there is no %s", name);
    return NULL;
}

/* ---- at rest ---- */

Test(state, everything_that_lives_on_is_listed_with_kind_type_and_step)
{
    weir_plan *plan = learner_plan(.dp = 2, .tp = 2);
    weir_session *s = weir_session_open(plan, QUIET, .first_step = 5);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_step(s), 5);
    OK(weir_session_run(s, 3));
    OK(weir_session_run(s, 1));
    cr_assert_eq(weir_session_step(s), 9);
    weir_session_param list[LEARNED_MAX];
    int count = weir_session_params(s, list, LEARNED_MAX);
    cr_assert_eq(count, weir_plan_param_count(plan));
    cr_assert_eq(weir_session_params(s, NULL, 0), count, "without room it counts");
    for (int i = 0; i < count; i++) {
        cr_assert_eq(list[i].step, 9, "%s", list[i].name);
        cr_assert_eq(list[i].step_most, 9);
        cr_assert_eq(list[i].slots, 1);
        cr_assert_not(list[i].torn);
        cr_assert_geq(list[i].shards, 4, "of each of the four devices one");
    }
    const weir_session_param *m = find(list, count, "h0/up/weight:adamw.m");
    cr_assert_eq(m->kind, WEIR_OPTIMIZER_STATE);
    cr_assert_eq(m->type.dtype, WEIR_F32);
    cr_assert(m->type.shape.rank == 2 && m->type.shape.dim[0] == 8 && m->type.shape.dim[1] == 16);
    cr_assert_eq(find(list, count, "h0/up/weight")->kind, WEIR_PARAMETER);
    cr_assert(find(list, count, "h0/frozen")->frozen && !m->frozen);
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

struct visited {
    struct learned whole; /* as read gives it */
    int64_t elements;     /* seen in shards that are not `again` */
    int shards, wrong;
    int stop_after;
};

/* Element `at` of the view within the logical tensor. */
static int64_t logical(const weir_view *view, int64_t at)
{
    int64_t index[WEIR_DIMS_MAX], flat = 0;
    for (int d = view->shape.rank - 1; d >= 0; d--) {
        index[d] = view->offset[d] + at % view->shape.dim[d];
        at /= view->shape.dim[d];
    }
    for (int d = 0; d < view->shape.rank; d++)
        flat = flat * view->global.dim[d] + index[d];
    return flat;
}

static weir_status look(void *ctx, const weir_shard *shard)
{
    struct visited *v = ctx;
    const struct learned_value *whole = learned_find(&v->whole, shard->name);
    int64_t count = weir_shape_count(&shard->view.shape);
    v->elements += shard->again ? 0 : count;
    v->wrong += !whole || shard->slot || shard->torn || strncmp(shard->device, "cpu:", 4);
    for (int64_t i = 0; whole && i < count; i++)
        v->wrong += ((const float *)shard->view.data)[i] != whole->value[logical(&shard->view, i)];
    return ++v->shards == v->stop_after ? WEIR_E_IO : WEIR_OK;
}

Test(state, a_visit_sees_every_element_once_in_place)
{
    weir_plan *plan = learner_plan(.dp = 2, .tp = 2, .pp = 2, .zero = true, .micro = 2);
    weir_session *s = weir_session_open(plan, QUIET);
    OK(weir_session_run(s, 2));
    struct visited v = {.whole = learned_read(s)};
    int64_t elements = 0;
    for (int i = 0; i < v.whole.count; i++)
        elements += v.whole.of[i].count;
    OK(weir_session_visit(s, NULL, look, &v));
    cr_assert_eq(v.wrong, 0);
    cr_assert_eq(v.elements, elements);
    struct visited one = {.whole = v.whole};
    OK(weir_session_visit(s, "h0/down/weight:adamw.v", look, &one));
    cr_assert_eq(one.elements, 16 * 8);
    struct visited two = {.whole = v.whole, .stop_after = 2};
    cr_assert_eq(weir_session_visit(s, NULL, look, &two), WEIR_E_IO, "what the function returns ends the visit");
    cr_assert_eq(two.shards, 2);
    cr_assert_eq(weir_session_visit(s, "h0/up", look, &v), WEIR_E_ARGUMENT);
    cr_assert(strstr(weir_error(), "'h0/up'"), "%s", weir_error());
    learned_free(&v.whole);
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

static weir_status copy_values(weir_session *from, weir_session *to)
{
    struct learned all = learned_read(from);
    weir_status status = all.count > 0 ? WEIR_OK : WEIR_E_STATE;
    weir_session_param list[LEARNED_MAX];
    int count = weir_session_params(to, list, LEARNED_MAX);
    for (int i = 0; i < count && !status; i++) {
        const struct learned_value *value = learned_find(&all, list[i].name);
        status = weir_session_write(to, list[i].name, &(weir_array){value->value, list[i].type.dtype, list[i].type.shape});
    }
    learned_free(&all);
    return status;
}

/* Optimizer state by read and write; schedules, bias corrections, inputs and dropout by first_step. */
Test(state, what_is_read_and_written_and_the_first_step_go_on_as_if_nothing_had_been)
{
    weir_plan *plan = learner_plan(.dp = 2, .micro = 2);
    weir_session *all = weir_session_open(plan, QUIET), *half = weir_session_open(plan, QUIET);
    OK(weir_session_run(all, 6));
    OK(weir_session_run(half, 3));
    weir_session *rest = weir_session_open(plan, QUIET, .first_step = 3);
    OK(copy_values(half, rest));
    OK(weir_session_run(rest, 3));
    struct learned want = learned_read(all), got = learned_read(rest);
    const char *differs = learned_differs(&got, &want, 0);
    cr_assert_null(differs, "%s", differs);
    learned_free(&want), learned_free(&got);
    weir_session_close(all), weir_session_close(half), weir_session_close(rest);
    weir_plan_free(plan);
}

Test(state, a_first_step_that_there_cannot_be_is_refused)
{
    weir_plan *plan = learner_plan(.micro = 2);
    cr_assert_null(weir_session_open(plan, QUIET, .first_step = -1));
    cr_assert(strstr(weir_error(), "first_step"), "%s", weir_error());
    cr_assert_null(weir_session_open(plan, QUIET, .first_step = INT64_MAX / 2 + 1));
    weir_plan_free(plan);
}

/* ---- while it runs ---- */

static weir_status wait_for_word(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)value, (void)step, (void)micro;
    while (!atomic_load((_Atomic int *)ctx))
        ranks_pause(1);
    return WEIR_OK;
}

Test(state, of_a_session_that_runs_nothing_can_be_seen_but_the_step)
{
    _Atomic int word = 0;
    weir_plan *plan = learner_plan(.micro = 1);
    weir_session *s = weir_session_open(
        plan, QUIET, .bindings = (weir_binding[]){{.name = "loss", .sink = wait_for_word, .ctx = &word}, {0}});
    struct visited v = {.stop_after = 0};
    weir_session_param param;
    OK(weir_session_start(s, 2));
    cr_assert_eq(weir_session_step(s), 0);
    cr_assert_eq(weir_session_params(s, &param, 1), -1);
    cr_assert(strstr(weir_error(), "weir_session_params: a run is under way"), "%s", weir_error());
    cr_assert_eq(weir_session_visit(s, NULL, look, &v), WEIR_E_STATE);
    atomic_store(&word, 1);
    OK(weir_session_wait(s, 10000));
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

/* ---- after a failure ---- */

/* Each value is that of an undisturbed run after as many steps as it says. */
static void expect_as_undisturbed(weir_session *failed, const weir_plan *plan, int64_t first, int64_t last)
{
    struct learned got = learned_read(failed);
    cr_assert_gt(got.count, 0, "%s", weir_error());
    weir_session *s = weir_session_open(plan, QUIET);
    int seen = 0;
    for (int64_t step = 0; step <= last; step++) {
        struct learned want = learned_read(s);
        for (int i = 0; i < got.count; i++) {
            if (got.of[i].step != step)
                continue;
            seen++;
            cr_assert_geq(step, first);
            cr_assert_arr_eq(got.of[i].value, want.of[i].value, (size_t)want.of[i].count * sizeof(float), "%s of step %d",
                             got.of[i].name, (int)step);
        }
        learned_free(&want);
        OK(weir_session_run(s, 1));
    }
    cr_assert_eq(seen, got.count, "every value is of one of the steps");
    weir_session_close(s);
    learned_free(&got);
}

Test(state, after_a_failure_everything_can_be_read_with_the_step_that_it_belongs_to)
{
    for (int workers = 1; workers <= 2; workers++) {
        weir_plan *failing = learner_plan(.dp = 2, .fail_at = 4), *plan = learner_plan(.dp = 2);
        weir_session *s = weir_session_open(failing, QUIET, .workers = workers);
        cr_assert_eq(weir_session_run(s, 10), WEIR_E_IO);
        cr_assert_leq(weir_session_step(s), 4, "step 4 failed");
        expect_as_undisturbed(s, plan, weir_session_step(s), 4);
        struct visited v = {.whole = learned_read(s)};
        OK(weir_session_visit(s, NULL, look, &v));
        cr_assert_eq(v.wrong, 0);
        learned_free(&v.whole);
        float some[8];
        weir_array array = {some, WEIR_F32, {1, {8}}};
        cr_assert_eq(weir_session_write(s, "h0/frozen", &array), WEIR_E_IO, "there is nothing to write for");
        weir_session_close(s);
        weir_plan_free(plan), weir_plan_free(failing);
    }
}

/* A parameter whose update fails in step 3, after it has changed it. */
static weir_status spoil(const weir_kernel_args *args)
{
    ((float *)args->out[0].data)[0] = (float)args->step;
    return args->step == 3 ? WEIR_E_IO : WEIR_OK;
}

static weir_status see_torn(void *ctx, const weir_shard *shard)
{
    *(int *)ctx += shard->torn && shard->step == 3;
    return WEIR_OK;
}

Test(state, what_its_own_update_left_half_way_is_torn)
{
    sdf *d = sdf_new("torn", 1);
    uint32_t a = sdf_actor(d, sdf_device(d), "spoil", .kernel = "call", .host_kind = 1 + PLAN_CALL);
    sdf_regst(d, a, .items = 2, .initial = 1, .param = "w");
    weir_plan *plan = sdf_plan(d);
    weir_session *s = weir_session_open(plan, QUIET, .bindings = (weir_binding[]){{.name = "spoil", .call = spoil}, {0}});
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, 5), WEIR_E_IO);
    weir_session_param w;
    float value[2];
    int torn = 0;
    cr_assert_eq(weir_session_params(s, &w, 1), 1);
    cr_assert(w.torn && w.step == 3);
    OK(weir_session_visit(s, "w", see_torn, &torn));
    cr_assert_eq(torn, 1);
    cr_assert_eq(weir_session_read(s, "w", &(weir_array){value, WEIR_F32, {1, {2}}}), WEIR_E_KERNEL);
    cr_assert(strstr(weir_error(), "the update of 'w' on cpu:0 failed half-way"), "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- several ranks ---- */

static void learn_and_fail(struct rank *rank)
{
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank), .report = no_report);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_IS(rank, weir_session_run(s, 10) != WEIR_OK, "it did not fail");
    weir_session_param list[LEARNED_MAX];
    int count = weir_session_params(s, list, LEARNED_MAX), here = 0;
    RANK_IS(rank, count > 0, "%s", weir_error());
    struct visited v = {.whole = {.count = 0}};
    for (int i = 0; i < count; i++) {
        struct learned_value *value = &v.whole.of[v.whole.count];
        value->count = weir_shape_count(&list[i].type.shape);
        value->value = calloc((size_t)value->count, sizeof(float));
        snprintf(value->name, sizeof value->name, "%s", list[i].name);
        weir_status status =
            weir_session_read(s, list[i].name, &(weir_array){value->value, list[i].type.dtype, list[i].type.shape});
        const int owner = list[i].name[0] == 'h' ? list[i].name[1] - '0' : 1; /* h0 is rank 0's, the norm the loss's */
        bool mine = owner == rank->number;
        RANK_IS(rank, status == (mine ? WEIR_OK : WEIR_E_PEER), "%s: %s", list[i].name, weir_error());
        RANK_IS(rank, mine || strstr(weir_error(), rank->number ? "of rank 0" : "of rank 1"), "%s", weir_error());
        RANK_IS(rank, (list[i].shards > 0) == mine, "%s: %d shards", list[i].name, list[i].shards);
        here += mine;
        v.whole.count += mine;
        if (!mine)
            free(value->value);
    }
    RANK_OK(rank, weir_session_visit(s, NULL, look, &v));
    RANK_IS(rank, v.shards == here && !v.wrong && here > 0, "%d shards of %d, %d wrong", v.shards, here, v.wrong);
    learned_free(&v.whole);
    weir_session_close(s);
}

Test(state, after_a_failure_each_rank_reads_what_it_has)
{
    weir_plan *plan = learner_plan(.pp = 2, .fail_at = 4);
    for (enum ranks_link link = RANKS_SHM; link <= RANKS_WIRE; link++)
        ranks_free(ranks_run(learn_and_fail, plan, .count = 2, .link = link));
    weir_plan_free(plan);
}
