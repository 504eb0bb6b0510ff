/* tests/actors/session/test_updates.c: gradients that updates get from several micro-batches; and the updates that are counted, over
 * loads and steps that are left out: AdamW corrects its bias
 * by the updates that are in its state, and a step whose gradients have no finite norm changes nothing. */
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

enum { WIDTH = 4, LONG = 3000 };

TestSuite(updates, .init = folder_make, .fini = folder_remove, .timeout = 120);

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

static float gradients[WIDTH] = {1, 1, 1, 1}; /* of all parameters, in the next step */

static weir_status draw(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    memcpy(dst->data, gradients, sizeof gradients);
    return WEIR_OK;
}

/* A model of `count` parameters, p0, p1, ... of zeros, whose gradients are drawn. */
static weir_session *opened(int count, weir_optimizer optimizer, int devices, bool zero, weir_report_fn report)
{
    char name[16], device[24];
    weir_graph *g = weir_graph_new("updates");
    snprintf(device, sizeof device, devices > 1 ? "cpu:0-%d" : "cpu:%d", devices - 1);
    weir_mesh_new(g, device);
    weir_tensor *x = weir_input(g, WEIR_F32, {WIDTH}, .name = "x", .source = draw), *loss = NULL;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "p%d", i);
        weir_tensor *p = weir_param(g, WEIR_F32, {WIDTH}, .name = name, .init = WEIR_VALUE(0));
        weir_tensor *sum = weir_sum(weir_mul(x, p));
        loss = loss ? weir_add(loss, sum) : sum;
    }
    weir_train(loss, optimizer, .zero = {zero});
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan, .workers = 1, .cluster = {.alone = true}, .report = report);
    cr_assert(s, "%s", weir_error());
    weir_plan_free(plan);
    return s;
}

static float first_of(weir_session *s, const char *name)
{
    float value[WIDTH];
    assert_ok(weir_session_read(s, name, &(weir_array){value, WEIR_F32, {1, {WIDTH}}}));
    return value[0];
}

static int32_t count_of(weir_session *s, const char *name)
{
    int32_t value = -1;
    assert_ok(weir_session_read(s, name, &(weir_array){&value, WEIR_I32, {0}}));
    return value;
}

static char reports[4096];

static void hear(void *ctx, const char *text)
{
    (void)ctx;
    strncat(reports, text, sizeof reports - strlen(reports) - 1);
}

/* ---- micro-batches ---- */

static weir_status draw_micro(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)step;
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst->data)[i] = (float)(micro + 1);
    return WEIR_OK;
}

static void read_all(weir_session *s, float p[WIDTH], float w[WIDTH])
{
    assert_ok(weir_session_read(s, "p", &(weir_array){p, WEIR_F32, {1, {WIDTH}}}));
    assert_ok(weir_session_read(s, "w/weight", &(weir_array){w, WEIR_F32, {2, {WIDTH, 1}}}));
}

/* The m-th micro-batch has gradients of m; those of p are added up by an op, those of w by the product that makes them. */
static void check_mean(int count)
{
    float p[2][WIDTH], w[2][WIDTH], mean = (float)(count + 1) / 2;
    weir_graph *g = weir_graph_new("means");
    weir_mesh_new(g, "cpu:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {1, WIDTH}, .name = "x", .micro = true, .source = draw_micro);
    weir_tensor *sum = weir_sum(weir_mul(x, weir_param(g, WEIR_F32, {WIDTH}, .name = "p", .init = WEIR_VALUE(0))));
    weir_train(weir_add(sum, weir_sum(weir_linear(x, 1, .name = "w", .no_bias = true))), weir_sgd(.lr = 1));
    weir_plan *plan = weir_compile(g, .micro_batches = count);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan, .workers = 1, .cluster = {.alone = true});
    cr_assert(s, "%s", weir_error());
    read_all(s, p[0], w[0]);
    assert_ok(weir_session_run(s, 1));
    read_all(s, p[1], w[1]);
    for (int i = 0; i < WIDTH; i++) {
        cr_expect_eq(p[0][i] - p[1][i], mean, "%d micro-batches: p lost %g", count, p[0][i] - p[1][i]);
        cr_expect_float_eq(w[0][i] - w[1][i], mean, 1e-5, "%d micro-batches: w lost %g", count, w[0][i] - w[1][i]);
    }
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(updates, gradients_are_the_means_over_micro_batches)
{
    check_mean(1);
    check_mean(2);
    check_mean(5);
}

/* ---- counts ---- */

Test(updates, parameter_that_a_loaded_checkpoint_lacks_starts_its_count_at_0)
{
    for (int split = 0; split < 2; split++) {
        weir_session *s = opened(1, weir_adamw(.lr = 0.125), 1, false, NULL);
        assert_ok(weir_session_run(s, LONG));
        assert_ok(weir_session_save(s, folder_path("run")));
        weir_session_close(s);
        s = opened(2, weir_adamw(.lr = 0.125), split ? 2 : 1, split, NULL);
        assert_ok(weir_session_load(s, folder_path("run"), .partial = true));
        cr_expect_eq(count_of(s, "p0:adamw.updates"), LONG);
        cr_expect_eq(count_of(s, "p1:adamw.updates"), 0);
        const float before = first_of(s, "p0");
        for (int n = 1; n <= 10; n++) {
            assert_ok(weir_session_run(s, 1));
            cr_expect_float_eq(first_of(s, "p1"), -0.125f * (float)n, 1e-4f, "%g after %d", (double)first_of(s, "p1"), n);
        }
        cr_expect_float_eq(first_of(s, "p0") - before, -1.25f, 1e-2f);
        cr_expect_eq(count_of(s, "p1:adamw.updates"), 10);
        weir_session_close(s);
    }
}

/* All tensors of a checkpoint but those of which the name ends so. */
static void copy_without(const char *from, const char *end, const char *to)
{
    static float value[64][WIDTH];
    weir_checkpoint *c = weir_checkpoint_open(from);
    cr_assert(c, "%s", weir_error());
    const weir_checkpoint_info *info = weir_checkpoint_get_info(c);
    weir_checkpoint_writer *w = weir_checkpoint_create(to, .step = info->step, .seed = info->seed,
                                                       .graph_hash = info->graph_hash);
    cr_assert(w, "%s", weir_error());
    for (int i = 0; i < info->tensors; i++) {
        const weir_checkpoint_tensor *t = weir_checkpoint_get_tensor(c, i);
        weir_checkpoint_value v = {.name = t->name, .kind = t->kind, .value = {value[i], t->dtype, t->shape}};
        if (strlen(t->name) > strlen(end) && !strcmp(t->name + strlen(t->name) - strlen(end), end))
            continue;
        assert_ok(weir_checkpoint_read(c, t, 0, NULL, &v.value));
        assert_ok(weir_checkpoint_add(w, &v));
    }
    assert_ok(weir_checkpoint_finish(w));
    weir_checkpoint_close(c);
}

Test(updates, checkpoint_of_an_older_build_counts_its_steps_and_a_report_says_so_once)
{
    weir_session *s = opened(2, weir_adamw(.lr = 0.125), 1, false, NULL);
    assert_ok(weir_session_run(s, 7));
    assert_ok(weir_session_save(s, folder_path("run")));
    weir_session_close(s);
    copy_without(folder_path("run/step-00000007"), ":adamw.updates", folder_path("old"));
    s = opened(2, weir_adamw(.lr = 0.125), 2, true, hear);
    assert_ok(weir_session_load(s, folder_path("old")));
    cr_expect_eq(count_of(s, "p0:adamw.updates"), 7);
    cr_expect_eq(count_of(s, "p1:adamw.updates"), 7);
    weir_session_close(s);
    const char *said = strstr(reports, "older builds");
    cr_expect(said && strstr(reports, "; 7 are assumed") && !strstr(said + 1, "older builds"), "reports: %s", reports);
}

Test(updates, step_whose_norm_is_not_finite_changes_and_counts_nothing)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 2; kind++) {
        weir_session *s = opened(2, kind ? weir_adamw(.lr = 1, .clip_norm = 1) : weir_sgd(.lr = 1, .clip_norm = 1), 2, kind,
                                 NULL);
        for (int i = 0; i < 3; i++) {
            float all[WIDTH], zero[WIDTH] = {0};
            memcpy(gradients, (float[WIDTH]){wrong[i], 100, 100, 100}, sizeof gradients);
            assert_ok(weir_session_run(s, 1));
            assert_ok(weir_session_read(s, "p1", &(weir_array){all, WEIR_F32, {1, {WIDTH}}}));
            cr_expect_arr_eq(all, zero, sizeof all, "%g moves %g", (double)wrong[i], (double)all[1]);
        }
        cr_expect_eq(count_of(s, "grad_norm/clip:clip_scale.skipped"), 3);
        weir_session_stats stats;
        weir_session_get_stats(s, &stats);
        cr_expect_eq(stats.skipped, 3);
        if (kind)
            cr_expect_eq(count_of(s, "p1:adamw.updates"), 0);
        memcpy(gradients, (float[WIDTH]){1, 1, 1, 1}, sizeof gradients);
        assert_ok(weir_session_run(s, 1));
        cr_expect(first_of(s, "p1") < -0.3f, "%g", (double)first_of(s, "p1"));
        cr_expect_eq(count_of(s, "grad_norm/clip:clip_scale.skipped"), 3);
        weir_session_close(s);
    }
}

Test(updates, norm_whose_square_is_beyond_f32_clips)
{
    weir_session *s = opened(1, weir_sgd(.lr = 1, .clip_norm = 1), 1, false, NULL);
    memcpy(gradients, (float[WIDTH]){2e19f, 2e19f, -2e19f, 2e19f}, sizeof gradients);
    assert_ok(weir_session_run(s, 1));
    cr_expect_float_eq(first_of(s, "p0"), -0.5f, 1e-6f, "%g", (double)first_of(s, "p0"));
    weir_session_close(s);
}

/* A run that does not clip, and an older one that did, have no count of skipped steps. */
Test(updates, checkpoint_loads_with_and_without_clipping)
{
    weir_session *s = opened(1, weir_sgd(.lr = 1, .clip_norm = 1), 1, false, NULL);
    assert_ok(weir_session_run(s, 1));
    assert_ok(weir_session_save(s, folder_path("clips")));
    weir_session *other = opened(1, weir_sgd(.lr = 1), 1, false, NULL);
    assert_ok(weir_session_load(other, folder_path("clips")));
    weir_session_stats stats;
    weir_session_get_stats(other, &stats);
    cr_expect_eq(stats.skipped, -1);
    assert_ok(weir_session_save(other, folder_path("plain")));
    assert_ok(weir_session_load(s, folder_path("plain")));
    weir_session_close(s);
    weir_session_close(other);
}

/* ---- while a run is under way ---- */

enum { HELD_AT = 6 };
static _Atomic bool held;

static weir_status draw_wrong_and_hold(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    while (step == HELD_AT && atomic_load(&held))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst->data)[i] = step < HELD_AT ? NAN : 1;
    return WEIR_OK;
}

Test(updates, skipped_steps_are_told_while_a_run_is_under_way)
{
    weir_graph *g = weir_graph_new("held");
    weir_mesh_new(g, "cpu:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {WIDTH}, .name = "x", .source = draw_wrong_and_hold);
    weir_tensor *p = weir_param(g, WEIR_F32, {WIDTH}, .name = "p", .init = WEIR_VALUE(0));
    weir_train(weir_sum(weir_mul(x, p)), weir_sgd(.lr = 1, .clip_norm = 1));
    weir_plan *plan = weir_compile(g);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan, .cluster = {.alone = true});
    weir_session_stats stats = {.skipped = -1};
    atomic_store(&held, true);
    assert_ok(weir_session_start(s, 2 * HELD_AT));
    for (int i = 0; stats.skipped < HELD_AT - 1 && i < 20000; i++) {
        weir_session_get_stats(s, &stats);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_expect_geq(stats.skipped, HELD_AT - 1);
    cr_expect_eq(weir_session_wait(s, 0), WEIR_E_TIMEOUT, "the run is under way");
    atomic_store(&held, false);
    assert_ok(weir_session_wait(s, -1));
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.skipped, HELD_AT);
    weir_session_close(s);
    weir_plan_free(plan);
}
