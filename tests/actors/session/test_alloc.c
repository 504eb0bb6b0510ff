/* tests/actors/session/test_alloc.c: a run that is under way allocates nothing. malloc and its kin are interposed and
 * counted.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <weir/session.h>

#include "tests/support/amx_machine.h"
#include "tests/support/count_alloc.h"
#include "tests/support/ops.h"
#include "tests/support/reference.h"
#include "tests/support/sdf.h"

#ifdef COUNTS_ALLOCATIONS
/* Two devices, M micro-batches, a parameter, a push and a pull. */
static weir_plan *busy_plan(void)
{
    enum { M = 3 };
    test_ops();
    sdf *s = sdf_new("busy", M);
    uint32_t q0 = sdf_device(s), q1 = sdf_device(s), outside = sdf_outside(s, q0);
    uint32_t x = sdf_actor(s, outside, "x", .fires = M, .host_kind = 1 + PLAN_PUSH);
    uint32_t update = sdf_actor(s, q1, "update", .kernel = "test_sum");
    uint32_t use = sdf_actor(s, q0, "use", .kernel = "test_sum", .fires = M);
    uint32_t sum = sdf_actor(s, q1, "sum", .kernel = "test_sum", .fires = M, .accumulate = true);
    uint32_t y = sdf_actor(s, outside, "y", .host_kind = 1 + PLAN_PULL);
    uint32_t w = sdf_regst(s, update, .initial = 1, .items = 4);
    sdf_port(s, use, sdf_regst(s, x, .slots = 2, .items = 4));
    sdf_port(s, use, w, .hold = M);
    sdf_port(s, sum, sdf_regst(s, use, .slots = 2, .items = 4));
    uint32_t total = sdf_regst(s, sum, .fill = M, .slots = 2, .items = 4);
    sdf_port(s, update, total);
    sdf_port(s, y, total);
    return sdf_plan(s);
}

static void run_steps(weir_session *session, int steps)
{
    float value[4] = {1, 2, 3, 4}, result[4];
    weir_array from = {value, WEIR_F32, {1, {4}}}, to = {result, WEIR_F32, {1, {4}}};
    weir_status status = weir_session_start(session, steps);
    for (int i = 0; i < steps && !status; i++) {
        for (int m = 0; m < 3 && !status; m++)
            status = weir_session_push(session, "x", &from, 5000);
        if (!status)
            status = weir_session_pull(session, "y", &to, 5000);
    }
    cr_assert_eq(status, WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_wait(session, 5000), WEIR_OK, "%s", weir_error());
}

Test(alloc, a_run_allocates_nothing, .timeout = 120)
{
    weir_plan *plan = busy_plan();
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    weir_session *session = weir_session_open(plan, .workers = 2, .trace = "/dev/null", .trace_events = 100);
    cr_assert_not_null(session, "%s", weir_error());
    run_steps(session, 3);
    long before = atomic_load(&allocations);
    cr_assert_gt(before, 0, "the counting works");
    run_steps(session, 500);
    long after = atomic_load(&allocations);
    cr_assert_eq(after, before, "%ld allocations in 500 steps", after - before);
    weir_session_close(session);
    weir_plan_free(plan);
}

/* Everything that a training step does, on two devices with micro-batches, clipping and split optimizer state. */
static float train_a_gpt(weir_dtype precision, int layers, int batch)
{
    enum { MICRO = 2, STEPS = 5 };
    text corpus = reference_text();
    gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
    config.layout = (layout){.dp = 2, .micro = MICRO, .zero = true};
    config.layers = layers;
    config.batch = batch;
    weir_graph *g = gpt_train_graph(&config);
    weir_plan *plan = weir_compile(g, .micro_batches = MICRO, .seed = REFERENCE_SEED, .precision = precision);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 2);
    cr_assert_not_null(s, "%s", weir_error());
    long before = 0;
    float loss = 0;
    for (int step = 0; step < 2 + STEPS; step++) {
        if (step == 2)
            before = atomic_load(&allocations);
        weir_status status = weir_session_start(s, 1);
        for (int m = 0; m < MICRO && !status; m++)
            status = weir_session_pull(s, "loss", &(weir_array){.data = &loss, .dtype = WEIR_F32}, 20000);
        status = status ? status : weir_session_wait(s, 20000);
        if (status) /* no text is made while all is well */
            cr_assert_fail("%s", weir_error());
    }
    cr_assert_eq(atomic_load(&allocations) - before, 0, "%ld allocations in %d steps",
                 atomic_load(&allocations) - before, STEPS);
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    text_free(&corpus);
    return loss;
}

Test(alloc, training_a_gpt_allocates_nothing, .timeout = 60)
{
    train_a_gpt(WEIR_F32, 4, 16);
}

Test(alloc, training_a_gpt_in_half_allocates_nothing, .timeout = 60)
{
    train_a_gpt(WEIR_BF16, 4, 16);
    train_a_gpt(WEIR_F16, 4, 16);
}

/* And learns the same. Small, for each instruction of it may be played. */
Test(alloc, training_a_gpt_with_amx_allocates_nothing, .timeout = 60)
{
    const float without = train_a_gpt(WEIR_BF16, 1, 4);
    amx_machine_enter();
    const float with = train_a_gpt(WEIR_BF16, 1, 4);
    amx_machine_leave();
    cr_assert_float_eq(with, without, 1e-2 * without, "loss %.6f, without AMX %.6f", with, without);
}
#else
Test(alloc, a_run_allocates_nothing)
{
    cr_skip_test("a sanitizer owns malloc");
}
#endif
