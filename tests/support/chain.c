/* tests/support/chain.c: see the header. */
#include "tests/support/chain.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <unistd.h>

#include "graph/plan/prove/check.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"

static void no_report(void *ctx, const char *said)
{
    (void)ctx;
    (void)said;
}

weir_plan *chain_plan(const char *middle, bool hosts, int stages)
{
    return chain_plan_beside(middle, hosts, stages, 0);
}

weir_plan *chain_plan_beside(const char *middle, bool hosts, int stages, int beside)
{
    uint32_t queue[DEVICES], last, regst;
    test_ops();
    sdf *s = sdf_new("chain", 1);
    for (int i = 0; i < DEVICES; i++)
        queue[i] = sdf_device(s);
    last = hosts ? sdf_actor(s, queue[0], "x", SOURCE) : sdf_actor(s, sdf_outside(s, queue[0]), "x", PUSH);
    regst = sdf_regst(s, last, .slots = 2, .items = ITEMS);
    for (int i = 0; i < stages; i++) {
        last = sdf_actor(s, queue[i % DEVICES], "stage", .kernel = i == 1 ? middle : "test_sum");
        sdf_port(s, last, regst);
        for (int k = 0; k < beside; k++) {
            uint32_t other = sdf_actor(s, queue[i % DEVICES], "beside", .kernel = "test_sum");
            sdf_port(s, other, regst);
            sdf_regst(s, other, .items = ITEMS);
        }
        regst = sdf_regst(s, last, .slots = 2, .items = ITEMS);
    }
    last = hosts ? sdf_actor(s, queue[DEVICES - 1], "y", SINK)
                 : sdf_actor(s, sdf_outside(s, queue[DEVICES - 1]), "y", PULL);
    sdf_port(s, last, regst);
    weir_plan *plan = sdf_plan(s);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    struct seen *seen = ctx;
    (void)micro;
    seen->gives++;
    for (int64_t i = 0; i < dst->shape.dim[0]; i++)
        ((float *)dst->data)[i] = (float)(10 * step + i);
    return WEIR_OK;
}

static weir_status see(void *ctx, const weir_view *value, int64_t step, int micro)
{
    struct seen *seen = ctx;
    (void)micro;
    for (int64_t i = 0; i < value->shape.dim[0]; i++)
        seen->wrong += ((const float *)value->data)[i] != (float)(10 * step + i + STAGES);
    seen->values++;
    double limit_s = seen->kill_s > 0 ? seen->kill_s : seen->stop_s;
    if (limit_s > 0 && ranks_seconds() - seen->start > limit_s) {
        *seen->gone = ranks_seconds();
        raise(seen->kill_s > 0 ? SIGKILL : SIGSTOP);
    }
    if (seen->stop_at && step == seen->stop_at)
        raise(SIGSTOP); /* to this thread: another one would stop the process only when it gets a core */
    if (seen->pause_from && step >= seen->pause_from)
        ranks_pause(1);
    return WEIR_OK;
}

#define CHAIN_BINDINGS(seen) \
    (weir_binding[]){{.name = "x", .source = give, .ctx = (seen)}, {.name = "y", .sink = see, .ctx = (seen)}, {0}}

weir_session *chain_open(struct rank *rank, const weir_plan *plan, struct seen *seen)
{
    return weir_session_open(plan, .cluster = ranks_cluster(rank), .bindings = CHAIN_BINDINGS(seen),
                             .report = no_report);
}
