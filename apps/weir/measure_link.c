/* apps/weir/measure_link.c: see the header. */
#include "apps/weir/measure_link.h"

#include "apps/common/measure.h"
#include "apps/weir/bench/link.h"
#include "apps/weir/bench/link_plan.h"
#include "graph/base/error.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUND_SECONDS 0.1
#define BETWEEN_NS 300000000 /* each measure of two hosts, at least */
#define STEPS_MOST (INT64_C(1) << 40)

static uint64_t ps_of(double seconds)
{
    return seconds > 0 ? (uint64_t)(seconds * TIME_PS_S + 0.5) : 0;
}

/* ---- ops whose kernels keep a worker busy ---- */

enum { SMALL_US = 20, LARGE_US = 2000, SMALL_BYTES = 64, LARGE_BYTES = 1 << 20 }; /* longer than a value of that size occupies a line */

static weir_status kernel_none(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

static weir_status kernel_small(const weir_kernel_args *args)
{
    (void)args;
    bench_link_spin(SMALL_US);
    return WEIR_OK;
}

static weir_status kernel_large(const weir_kernel_args *args)
{
    (void)args;
    bench_link_spin(LARGE_US);
    return WEIR_OK;
}

/* name, inputs, outputs, kernel */
#define OP_LIST(X)                     \
    X(give, 0, 1, kernel_none)         \
    X(give_small, 0, 1, kernel_small)  \
    X(give_large, 0, 1, kernel_large)  \
    X(take, 1, 0, kernel_none)         \
    X(take_small, 1, 0, kernel_small)  \
    X(take_large, 1, 0, kernel_large)

#define X(op, ins, outs, function)                                \
    static const weir_op op_##op = {.name = "measure_link_" #op,  \
                                    .in_min = ins,                \
                                    .in_max = ins,                \
                                    .out_count = outs,            \
                                    .infer = bench_link_infer,    \
                                    .fits = bench_link_fits,      \
                                    .kernel = {[WEIR_CPU] = function}};
OP_LIST(X)
#undef X

static weir_status ops_register(void)
{
    weir_status status = WEIR_OK;
    if (weir_op_find(op_give.name))
        return WEIR_OK;
#define X(op, ins, outs, function) status = status ? status : weir_op_register(&op_##op);
    OP_LIST(X)
#undef X
    return status;
}

/* ---- processes of this machine ---- */

static weir_status time_plan(weir_plan *plan, size_t bytes, enum bench_way way, double *seconds)
{
    const struct bench_ranks ranks = {.plan = plan, .round = {.bytes = bytes, .round_seconds = ROUND_SECONDS}, .way = way};
    weir_status status = plan ? bench_ranks_run(2, &ranks, seconds) : WEIR_E_MEMORY; /* the sentence is there */
    weir_plan_free(plan);
    return status;
}

static weir_status measure_size(time_link *link, size_t bytes, enum bench_way way)
{
    double once = 0, stream = 0;
    weir_status status = time_plan(bench_link_idle(bytes, false), bytes, way, &once);
    status = status ? status : time_plan(bench_link_idle(bytes, true), bytes, way, &stream);
    if (status)
        return status;
    curve_add(&link->once, bytes, ps_of(once / 2));
    curve_add(&link->stream, bytes, ps_of(stream));
    return WEIR_OK;
}

/* One end's worker is busy all the time: a step over the link takes it longer than one in shared memory by what a value costs it. */
static weir_status measure_cost(time_curve *cost, bool large, bool sends, enum bench_way way)
{
    static const weir_op *const busy[2][2] = {{&op_take_small, &op_give_small}, {&op_take_large, &op_give_large}};
    const size_t bytes = large ? LARGE_BYTES : SMALL_BYTES;
    const bench_link_shape shape = {.bytes = bytes, .slots = 4, .first = sends ? busy[large][1] : &op_give, .second = sends ? &op_take : busy[large][0]};
    double without = 0, with = 0;
    weir_status status = time_plan(bench_link_plan(&shape), bytes, BENCH_SHM, &without);
    status = status ? status : time_plan(bench_link_plan(&shape), bytes, way, &with);
    if (!status)
        curve_add(cost, bytes, ps_of(with - without));
    return status;
}

static weir_status measure_one(weir_rates *rates, time_carrier carrier)
{
    static const size_t sizes[] = {64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
    const bool ucx = carrier == TIME_UCX || carrier == TIME_UCX_KEY;
    const enum bench_way way = carrier == TIME_TCP || carrier == TIME_UCX ? BENCH_TCP : BENCH_TCP_KEY;
    time_link link = {.once.count = 0};
    setenv("WEIR_CARRIER", ucx ? "ucx" : "tcp", 1);
    weir_status status = ops_register();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = measure_size(&link, sizes[i], way);
    for (int large = 0; large < 2 && !status; large++) {
        status = measure_cost(&link.sends, large, true, way);
        status = status ? status : measure_cost(&link.receives, large, false, way);
    }
    if (!status)
        rates->links[TIME_LOOPBACK][carrier] = link;
    return status;
}

weir_status measure_links(weir_rates *rates)
{
    double seconds = 0;
    weir_status status = time_plan(bench_link_idle(SMALL_BYTES, false), SMALL_BYTES, BENCH_SHM, &seconds);
    rates->process = ps_of(seconds / 2);
    for (int c = 0; c < TIME_CARRIERS && !status; c++) {
        status = measure_one(rates, (time_carrier)c);
        if (status && (c == TIME_UCX || c == TIME_UCX_KEY))
            return WEIR_OK; /* it is not there */
    }
    return status;
}

/* ---- two hosts ---- */

/* Seconds of a step: rank 0 ends the run. */
static weir_status time_between(weir_plan *plan, double *seconds)
{
    weir_session *session = plan ? weir_session_open(plan, .workers = 1) : NULL;
    weir_status status = session ? weir_session_run(session, 1) : WEIR_E_PEER; /* the sentence is there */
    const int64_t first = session ? weir_session_step(session) : 0;
    const double start = measure_seconds();
    status = status ? status : weir_session_start(session, STEPS_MOST);
    if (!status && weir_rank() == 0) {
        nanosleep(&(struct timespec){.tv_nsec = BETWEEN_NS}, NULL);
        weir_session_stop(session);
    }
    status = status ? status : weir_session_wait(session, -1);
    const int64_t steps = session ? weir_session_step(session) - first : 0;
    *seconds = steps > 0 ? (measure_seconds() - start) / (double)steps : 0;
    weir_session_close(session);
    weir_plan_free(plan);
    return status;
}

static weir_status measure_between(time_link *link, size_t bytes)
{
    double once, stream;
    weir_status status = time_between(bench_link_idle(bytes, false), &once);
    status = status ? status : time_between(bench_link_idle(bytes, true), &stream);
    if (status)
        return status;
    curve_add(&link->once, bytes, ps_of(once / 2));
    curve_add(&link->stream, bytes, ps_of(stream));
    return WEIR_OK;
}

/* A value costs a processor as much time on any link: this machine's rates know it, or nobody does. */
static void take_costs(const weir_rates *rates, time_carrier carrier, time_link *link)
{
    const time_link *known = &rates->links[TIME_LOOPBACK][carrier];
    link->sends = known->sends;
    link->receives = known->receives;
    if (!known->once.count) {
        curve_add(&link->sends, SMALL_BYTES, 0);
        curve_add(&link->receives, SMALL_BYTES, 0);
    }
}

weir_status measure_link_between(weir_rates *rates)
{
    static const size_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20};
    const char *carriers = getenv("WEIR_CARRIER"), *insecure = getenv("WEIR_INSECURE");
    const bool ucx = carriers && strstr(carriers, "ucx"), plain = insecure && !strcmp(insecure, "1") && !getenv("WEIR_KEY_FILE");
    if (weir_world_size() != 2)
        return error_set(WEIR_E_ARGUMENT, "--between needs two ranks, not %d: weir launch --hosts A,B -- weir measure --between -o RATES",
                         weir_world_size());
    setenv("WEIR_CARRIER", ucx ? "ucx" : "tcp", 1);
    time_link link = {.once.count = 0};
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = measure_between(&link, sizes[i]);
    const time_carrier carrier = plain ? (ucx ? TIME_UCX : TIME_TCP) : ucx ? TIME_UCX_KEY : TIME_TCP_KEY;
    if (!status) {
        take_costs(rates, carrier, &link);
        rates->links[TIME_HOSTS][carrier] = link;
    }
    return status;
}
