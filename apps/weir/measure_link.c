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
#define RUN_NS 60000000 /* of two hosts, at least */
enum { RUNS = 5 };
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

/* One end's worker is busy all the time; its values are small, or large; it sends them, or receives. */
static weir_status time_busy(bool large, bool sends, enum bench_way way, double *seconds)
{
    static const weir_op *const busy[2][2] = {{&op_take_small, &op_give_small}, {&op_take_large, &op_give_large}};
    const size_t bytes = large ? LARGE_BYTES : SMALL_BYTES;
    const bench_link_shape shape = {.bytes = bytes, .slots = 4, .first = sends ? busy[large][1] : &op_give, .second = sends ? &op_take : busy[large][0]};
    return time_plan(bench_link_plan(&shape), bytes, way, seconds);
}

/* A step of these, by shared memory: [large][sends]. */
typedef double busy_seconds[2][2];

/* Over the link a step takes a busy worker longer, by what a value costs it. */
static weir_status measure_costs(time_link *link, enum bench_way way, busy_seconds without)
{
    weir_status status = WEIR_OK;
    for (int large = 0; large < 2; large++)
        for (int sends = 0; sends < 2 && !status; sends++) {
            double with = 0;
            status = time_busy(large, sends, way, &with);
            curve_add(sends ? &link->sends : &link->receives, large ? LARGE_BYTES : SMALL_BYTES, ps_of(with - without[large][sends]));
        }
    return status;
}

static weir_status measure_one(weir_rates *rates, time_carrier carrier, busy_seconds without)
{
    static const size_t sizes[] = {64, 64 << 10, 256 << 10, 1 << 20, 16 << 20};
    const bool ucx = carrier == TIME_UCX || carrier == TIME_UCX_KEY;
    const enum bench_way way = carrier == TIME_TCP || carrier == TIME_UCX ? BENCH_TCP : BENCH_TCP_KEY;
    time_link link = {.once.count = 0};
    weir_status status = WEIR_OK;
    setenv("WEIR_CARRIER", ucx ? "ucx" : "tcp", 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = measure_size(&link, sizes[i], way);
    status = status ? status : measure_costs(&link, way, without);
    if (!status)
        rates->links[TIME_LOOPBACK][carrier] = link;
    return status;
}

static weir_status measure_memory(weir_rates *rates, busy_seconds without)
{
    double seconds = 0;
    weir_status status = time_plan(bench_link_idle(SMALL_BYTES, false), SMALL_BYTES, BENCH_SHM, &seconds);
    rates->process = ps_of(seconds / 2);
    for (int i = 0; i < 4 && !status; i++)
        status = time_busy(i / 2, i % 2, BENCH_SHM, &without[i / 2][i % 2]);
    return status;
}

weir_status measure_links(weir_rates *rates)
{
    busy_seconds without = {{0}};
    weir_status status = ops_register();
    status = status ? status : measure_memory(rates, without);
    for (int c = 0; c < TIME_CARRIERS && !status; c++) {
        status = measure_one(rates, (time_carrier)c, without);
        if (status && (c == TIME_UCX || c == TIME_UCX_KEY))
            status = WEIR_OK; /* it is not there */
    }
    return status;
}

/* ---- two hosts ---- */

/* A run of as many steps as fit: rank 0 ends it. */
static weir_status run_between(weir_session *session, double *seconds)
{
    const int64_t first = weir_session_step(session);
    const double start = measure_seconds();
    weir_status status = weir_session_start(session, STEPS_MOST);
    if (!status && weir_rank() == 0) {
        nanosleep(&(struct timespec){.tv_nsec = RUN_NS}, NULL);
        weir_session_stop(session);
    }
    status = status ? status : weir_session_wait(session, -1);
    const int64_t steps = weir_session_step(session) - first;
    *seconds = (measure_seconds() - start) / (double)(steps > 0 ? steps : 1);
    return status;
}

static weir_status time_between(weir_plan *plan, double *seconds)
{
    double each[RUNS];
    weir_session *session = plan ? weir_session_open(plan, .workers = 1) : NULL;
    weir_status status = session ? weir_session_run(session, 1) : WEIR_E_PEER; /* the sentence is there */
    for (int i = 0; i < RUNS && !status; i++)
        status = run_between(session, &each[i]);
    *seconds = status ? 0 : measure_median(each, RUNS);
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
