/* tests/actors/session/test_delay.c: how long what an actor publishes waits before its reader hears of it, when kernels
 * are short at first and then become long. The cost of a firing is learned while it is short; that must not hold back
 * later values.
 *
 * A kernel that has become long sleeps for a millisecond, and on for some if its side has published values that the
 * other has not seen. The other side has nothing else to do, so it sees a published value within that time. It never
 * sees a value that it is not told of: then the firing counts as late. The bounds leave room for a busy machine.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <time.h>

#include <weir/session.h>

#include "tests/support/ops.h"
#include "tests/support/sdf.h"

#define SLOTS 64
#define SHORT 20000 /* steps while kernels are short */
#define LONG 300    /* and then long */
#define LONG_MS 20
#define BEHIND 6    /* values: more is late */

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

struct delay {
    _Atomic int64_t published, seen;
    int64_t late; /* firings of the long kernel that found the reader behind */
};

static void grow(struct delay *d, int64_t step)
{
    if (step < SHORT)
        return;
    bool behind = true;
    for (int i = 0; behind && i < LONG_MS; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        behind = atomic_load(&d->published) - atomic_load(&d->seen) > BEHIND;
    }
    d->late += behind;
}

static weir_status give(void *ctx, const weir_view *value, int64_t step, int micro)
{
    struct delay *d = ctx;
    (void)value, (void)micro;
    atomic_store(&d->published, step);
    return WEIR_OK;
}

static weir_status give_and_grow(void *ctx, const weir_view *value, int64_t step, int micro)
{
    grow(ctx, step);
    return give(ctx, value, step, micro);
}

static weir_status nothing(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_status grow_alone(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)value, (void)micro;
    grow(ctx, step);
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_status see(void *ctx, const weir_view *value, int64_t step, int micro)
{
    struct delay *d = ctx;
    (void)value, (void)micro;
    atomic_store(&d->seen, step);
    return WEIR_OK;
}

#define SOURCE .kernel = "source", .host_kind = 1 + PLAN_SOURCE
#define SINK .kernel = "sink", .host_kind = 1 + PLAN_SINK

/* On one device a source "x" and a source "other", whose value a sink "late" of the same device takes; on another one
 * the reader "y" of x. */
static weir_plan *delay_plan(void)
{
    test_ops();
    sdf *s = sdf_new("delay", 1);
    uint32_t first = sdf_device(s), second = sdf_device(s);
    uint32_t x = sdf_regst(s, sdf_actor(s, first, "x", SOURCE), .slots = SLOTS, .items = 1);
    uint32_t other = sdf_regst(s, sdf_actor(s, first, "other", SOURCE), .slots = SLOTS, .items = 1);
    sdf_port(s, sdf_actor(s, first, "late", SINK), other);
    sdf_port(s, sdf_actor(s, second, "y", SINK), x);
    weir_plan *plan = sdf_plan(s);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

/* How many of the long firings found the reader behind, when x's or the other's kernel grows. */
static int64_t late_firings(weir_source_fn x, weir_source_fn other)
{
    struct delay delay = {0};
    weir_plan *plan = delay_plan();
    weir_binding bindings[] = {{.name = "x", .source = x, .ctx = &delay},
                               {.name = "other", .source = other, .ctx = &delay},
                               {.name = "late", .sink = take},
                               {.name = "y", .sink = see, .ctx = &delay},
                               {0}};
    weir_session *session = weir_session_open(plan, .workers = 2, .bindings = bindings);
    cr_assert_not_null(session, "%s", weir_error());
    OK(weir_session_run(session, SHORT + LONG));
    OK(weir_session_close(session));
    weir_plan_free(plan);
    cr_log_info("%lld late", (long long)delay.late);
    return delay.late;
}

/* A published value may wait for the rest of a row of firings that were short until then: once, for at most 64. */
Test(delay, of_a_kernel_that_grows_is_that_of_one_row_of_firings, .timeout = 60)
{
    cr_expect_leq(late_firings(give_and_grow, nothing), LONG / 3);
}

Test(delay, of_others_is_that_of_one_row_of_a_kernel_that_grows, .timeout = 60)
{
    cr_expect_leq(late_firings(give, grow_alone), LONG / 3);
}
