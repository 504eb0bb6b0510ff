/* tests/actors/session/test_finite.c: .check_finite (actors/debug/finite.c): which op is named when a NaN or an infinity
 * appears, and where in which of its outputs; that all dtypes of floats are looked at, and integers are not; and that nothing
 * is said of runs in which all is well, poisoned ones and those with a loss scale too.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "graph/model/build.h"
#include "tests/support/fake.h"
#include "tests/support/learner.h"

enum { STEPS = 4, BAD_STEP = 2, BAD_MICRO = 1 };

TestSuite(finite, .timeout = 120);

/* A square root of less than nothing, in one element of one micro-batch. */
static weir_status give(void *ctx, const weir_view *x, int64_t step, int micro)
{
    const float *bad = ctx;
    for (int64_t i = 0; i < weir_shape_count(&x->shape); i++)
        ((float *)x->data)[i] = 1;
    if (step == BAD_STEP && micro == BAD_MICRO)
        ((float *)x->data)[5] = *bad;
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static int root_line;
static float bad_value = -1;

/* The mean of the root of x [4, 2], over so many devices of the kind. */
static weir_plan *roots(const char *devices, bool no_fusion)
{
    weir_graph *g = weir_graph_new("roots");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 2}, .name = "x", .micro = true, .source = give, .ctx = &bad_value,
                                .sbp = {WEIR_S(0)});
    weir_tensor *root = weir_sqrt(x, .name = "root"); root_line = __LINE__;
    weir_fetch(weir_mean(root), .name = "mean", .sink = take);
    weir_plan *plan = weir_compile(g, .micro_batches = 2, .no_fusion = no_fusion);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static void quiet(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

/* Runs the plan, and returns the error that it ended with; freed. */
static const char *run_of(weir_plan *plan, bool check)
{
    static char said[1024];
    weir_session *s = weir_session_open(plan, .check_finite = check, .report = quiet);
    cr_assert_not_null(s, "%s", weir_error());
    weir_status status = weir_session_run(s, STEPS);
    cr_expect_eq(status, check ? WEIR_E_KERNEL : WEIR_OK, "%s", weir_status_name(status));
    snprintf(said, sizeof said, "%s", status ? weir_error() : "");
    weir_session_close(s);
    weir_plan_free(plan);
    return said;
}

static void expect_said(const char *said, int line, const char *rest)
{
    char wanted[512];
    snprintf(wanted, sizeof wanted, "tests/actors/session/test_finite.c:%d: %s", line, rest);
    cr_expect_str_eq(said, wanted, "%s", said);
}

Test(finite, the_op_that_makes_the_first_nan_is_named_with_its_step_and_micro_batch)
{
    const char *said = run_of(roots("cpu:0", true), true);
    expect_said(said, root_line,
                "root (sqrt) failed on cpu:0 in step 2: in micro-batch 1 output 0 is NaN at [2, 1] of f32 [4, 2]; its "
                "inputs are finite");
}

Test(finite, a_place_is_that_in_the_logical_tensor)
{
    const char *said = run_of(roots("cpu:0-1", true), true);
    expect_said(said, root_line,
                "root (sqrt) failed on cpu:1 in step 2: in micro-batch 1 output 0 is NaN at [2, 1] of f32 [4, 2]; its "
                "inputs are finite");
}

Test(finite, a_source_that_gives_one_is_named)
{
    bad_value = -INFINITY;
    const char *said = run_of(roots("cpu:0", true), true);
    cr_expect_not_null(strstr(said, "x (source) failed on cpu:0 in step 2: in micro-batch 1 output 0 is -inf at [2, 1] of "
                                    "f32 [4, 2]"), "%s", said);
}

Test(finite, without_the_option_a_run_goes_on)
{
    cr_expect_str_eq(run_of(roots("cpu:0", false), false), "");
}

Test(finite, an_accelerators_values_are_looked_at_where_they_reach_the_host)
{
    fake_options options = {.seed = 1};
    mesh_takes_fakes = true;
    weir_plan *plan = roots("fake:0", false);
    fake_open(&options);
    const char *said = run_of(plan, true);
    fake_close_well();
    cr_expect_not_null(strstr(said, "mean (sink) failed on "), "%s", said);
    cr_expect_not_null(strstr(said, " in step 2: in micro-batch 1 input 0 is NaN at [] of f32 []; it comes from a device "
                                    "whose ops are not looked at"), "%s", said);
}

Test(finite, a_pull_from_an_accelerator_is_refused_with_its_step)
{
    fake_options options = {.seed = 2};
    float of[2] = {4, 9};
    weir_array array = {of, WEIR_F32, {1, {2}}};
    mesh_takes_fakes = true;
    weir_graph *g = weir_graph_new("pulled");
    weir_mesh_new(g, "fake:0");
    weir_fetch(weir_log(weir_input(g, WEIR_F32, {2}, .name = "x")), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    fake_open(&options);
    weir_session *s = weir_session_open(plan, .check_finite = true, .report = quiet);
    cr_assert_not_null(s, "%s", weir_error());
    for (int step = 0; step < 2; step++) {
        cr_expect_eq(weir_session_push(s, "x", &array, -1), WEIR_OK, "%s", weir_error());
        cr_expect_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
        weir_status status = weir_session_pull(s, "y", &(weir_array){(float[2]){0}, WEIR_F32, {1, {2}}}, -1);
        cr_expect_eq(status, step ? WEIR_E_KERNEL : WEIR_OK, "%s", weir_error());
        of[1] = 0; /* whose logarithm is infinite */
    }
    cr_expect_str_eq(weir_error(), "weir_session_pull: 'y' of step 1 is -inf at [1] of f32 [2]; it comes from a device whose "
                                   "ops are not looked at");
    weir_session_close(s);
    weir_plan_free(plan);
    fake_close_well();
}

/* ---- dtypes ---- */

/* A pushed value is made half, or an integer. */
static weir_plan *cast_to(weir_dtype dtype, int *line)
{
    weir_graph *g = weir_graph_new("cast");
    weir_tensor *x = weir_input(g, WEIR_F32, {3}, .name = "x");
    weir_tensor *y = weir_cast(x, dtype, .name = "small"); *line = __LINE__;
    weir_fetch(y, .name = "y");
    weir_plan *plan = weir_compile(g, .no_fusion = true);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static void expect_cast(weir_dtype dtype, float value, const char *rest)
{
    int line;
    float of[3] = {1, value, 2};
    weir_array array = {of, WEIR_F32, {1, {3}}};
    weir_plan *plan = cast_to(dtype, &line);
    weir_session *s = weir_session_open(plan, .check_finite = true, .report = quiet);
    cr_assert_eq(weir_session_push(s, "x", &array, 0), WEIR_OK, "%s", weir_error());
    weir_status status = weir_session_run(s, 1);
    cr_expect_eq(status, rest ? WEIR_E_KERNEL : WEIR_OK);
    if (rest)
        expect_said(weir_error(), line, rest);
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(finite, halves_are_looked_at_and_integers_are_not)
{
    expect_cast(WEIR_F16, 70000, "small (cast) failed on cpu:0 in step 0: output 0 is inf at [1] of f16 [3]; its inputs are "
                "finite");
    expect_cast(WEIR_BF16, -0x1.ffffp127f, "small (cast) failed on cpu:0 in step 0: output 0 is -inf at [1] of bf16 [3]; its "
                "inputs are finite");
    expect_cast(WEIR_F16, 60000, NULL);
    expect_cast(WEIR_BF16, 0x1.fp127f, NULL);
    expect_cast(WEIR_I32, 2139095040.0f, NULL); /* which has the bits of an infinity */
}

/* ---- what comes unseen ---- */

static weir_plan *layer(int *line)
{
    weir_graph *g = weir_graph_new("layer");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, 2}, .name = "x");
    weir_tensor *y = weir_linear(x, 2, .name = "up"); *line = __LINE__;
    weir_fetch(y, .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

Test(finite, a_parameter_that_was_written_is_blamed_rather_than_the_op)
{
    int line;
    float of[4] = {1, 2, NAN, 4};
    weir_array array = {of, WEIR_F32, {2, {2, 2}}};
    weir_plan *plan = layer(&line);
    weir_session *s = weir_session_open(plan, .check_finite = true, .report = quiet);
    cr_expect_eq(weir_session_push(s, "x", &array, 0), WEIR_E_ARGUMENT);
    cr_expect_str_eq(weir_error(), "weir_session_push: 'x' is NaN at [1, 0] of f32 [2, 2]");
    cr_expect_eq(weir_session_write(s, "up/weight", &array), WEIR_OK, "%s", weir_error());
    of[2] = 3;
    cr_expect_eq(weir_session_push(s, "x", &array, 0), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, 1), WEIR_E_KERNEL);
    expect_said(weir_error(), line, "up (linear) failed on cpu:0 in step 0: output 0 is NaN at [0, 0] of f32 [2, 2]; input 1 "
                "is not finite either: NaN at [1, 0] of f32 [2, 2]");
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- when all is well ---- */

static void expect_same(struct learner_opts opts, bool poison, const char *what)
{
    weir_plan *plan = learner_plan_at(opts);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *plain = weir_session_open(plan), *checked = weir_session_open(plan, .check_finite = true, .poison = poison);
    cr_assert(plain && checked, "%s", weir_error());
    cr_expect_eq(weir_session_run(plain, 3), WEIR_OK, "%s: %s", what, weir_error());
    cr_expect_eq(weir_session_run(checked, 3), WEIR_OK, "%s: %s", what, weir_error());
    struct learned want = learned_read(plain), got = learned_read(checked);
    const char *differs = learned_differs(&got, &want, 0);
    cr_expect_null(differs, "%s: %s", what, differs);
    learned_free(&want);
    learned_free(&got);
    weir_session_close(plain);
    weir_session_close(checked);
    weir_plan_free(plan);
}

Test(finite, nothing_is_said_where_all_is_finite_and_the_bits_are_the_same)
{
    for (int l = 0; l < LEARNER_LAYOUTS; l++)
        expect_same(learner_layouts[l], l % 2, "a layout");
    expect_same((struct learner_opts){.compile = {.precision = WEIR_BF16}}, true, "bf16");
}

Test(finite, a_gradient_that_overflows_is_left_to_the_loss_scale)
{
    expect_same((struct learner_opts){.compile = {.precision = WEIR_F16, .loss_scale = 0x1p100}}, false, "f16");
}
