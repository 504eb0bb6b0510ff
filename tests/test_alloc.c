/* tests/test_alloc.c: a run that is under way allocates nothing. malloc and its kin are interposed and counted. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <weir/session.h>

#include "tests/support/ops.h"
#include "tests/support/sdf.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

static atomic_long allocations;

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(align, bytes);
}

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

Test(alloc, a_run_allocates_nothing, .timeout = 30)
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
#else
Test(alloc, a_run_allocates_nothing)
{
    cr_skip_test("a sanitizer owns malloc");
}
#endif
