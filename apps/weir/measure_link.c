/* apps/weir/measure_link.c: see the header. */
#include "apps/weir/measure_link.h"

#include "apps/common/measure.h"
#include "apps/weir/bench/link.h"
#include "apps/weir/bench/link_plan.h"
#include "graph/base/error.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUND_SECONDS 0.1
#define BUSY_SECONDS 0.02 /* of a short run, of steps of a busy worker */
/* Of two hosts: each run. TCP begins slowly, and a queue on the way that overflows makes it stop and go for a while. */
#define RALLY_SECONDS 1.5
#define STREAM_SECONDS 4
#define MOST_SECONDS 10
#define LOOK_NS 1000000
enum { FIRINGS = 9, MANY = 256, MANY_SLOTS = 16, STAMPS = 1 << 14, LONG_BYTES = 1 << 20, LONG_SLOTS = 1024 };
#define STEPS_MOST (INT64_C(1) << 40)

static uint64_t ps_of(double seconds)
{
    return seconds > 0 ? (uint64_t)(seconds * TIME_PS_S + 0.5) : 0;
}

/* Values whose costs are measured, and for how long a kernel spins to keep a worker busy: longer than the value occupies a line. A byte of
 * 4 MiB costs up to half more than one of 1 MiB. */
static const struct busy {
    size_t bytes;
    int64_t us;
} busy[] = {{64, 20}, {1 << 20, 2000}, {4 << 20, 5000}};
enum { BUSY = sizeof busy / sizeof *busy, BUSY_ROUNDS = 5, SMALL_BYTES = 64 };

/* ---- processes of this machine ---- */

static weir_status time_plan(weir_plan *plan, struct bench_ranks ranks, double *seconds)
{
    ranks.plan = plan;
    weir_status status = plan ? bench_ranks_run(2, &ranks, seconds) : WEIR_E_MEMORY; /* the sentence is there */
    weir_plan_free(plan);
    return status;
}

static weir_status time_idle(size_t bytes, bool stream, enum bench_way way, double *seconds)
{
    const struct bench_ranks ranks = {.round = {.bytes = bytes, .round_seconds = ROUND_SECONDS}, .way = way};
    return time_plan(bench_link_idle(bytes, stream), ranks, seconds);
}

static weir_status measure_size(time_link *link, size_t bytes, enum bench_way way)
{
    double once = 0, stream = 0;
    weir_status status = time_idle(bytes, false, way, &once);
    status = status ? status : time_idle(bytes, true, way, &stream);
    if (status)
        return status;
    curve_add(&link->once, bytes, ps_of(once / 2));
    curve_add(&link->stream, bytes, ps_of(stream));
    return WEIR_OK;
}

/* One end's worker is busy all the time; it sends values, or receives them. */
static weir_status time_busy(const struct busy *b, bool sends, enum bench_way way, double *seconds)
{
    const bench_link_shape shape = {.bytes = b->bytes, .slots = 4, .first = &bench_link_give, .second = &bench_link_take,
                                    .first_us = sends ? b->us : 0, .second_us = sends ? 0 : b->us};
    const struct bench_ranks ranks = {.way = way, .rounds = BUSY_ROUNDS, .guess = 1e-6 * (double)b->us, .short_s = BUSY_SECONDS};
    return time_plan(bench_link_plan(&shape), ranks, seconds);
}

/* A step of these, by shared memory: [busy][sends]. */
typedef double busy_seconds[BUSY][2];

/* Over the link a step takes a busy worker longer, by what a value costs it. */
static weir_status measure_costs(time_link *link, enum bench_way way, busy_seconds without)
{
    weir_status status = WEIR_OK;
    for (int b = 0; b < BUSY; b++)
        for (int sends = 0; sends < 2 && !status; sends++) {
            double with = 0;
            status = time_busy(&busy[b], sends, way, &with);
            curve_add(sends ? &link->sends : &link->receives, busy[b].bytes, ps_of(with - without[b][sends]));
        }
    return status;
}

static weir_status measure_one(weir_rates *rates, time_carrier carrier, busy_seconds without)
{
    static const size_t sizes[] = {64, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
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

weir_status measure_process(weir_rates *rates)
{
    double seconds = 0;
    weir_status status = time_idle(SMALL_BYTES, false, BENCH_SHM, &seconds);
    rates->process = ps_of(seconds / 2);
    return status;
}

weir_status measure_links(weir_rates *rates)
{
    busy_seconds without = {{0}};
    weir_status status = measure_process(rates);
    for (int i = 0; i < 2 * BUSY && !status; i++)
        status = time_busy(&busy[i / 2], i % 2, BENCH_SHM, &without[i / 2][i % 2]);
    for (int c = 0; c < TIME_CARRIERS && !status; c++) {
        status = measure_one(rates, (time_carrier)c, without);
        if (status && (c == TIME_UCX || c == TIME_UCX_KEY))
            status = WEIR_OK; /* it is not there */
    }
    return status;
}

/* ---- two hosts ---- */

/* When rank 0's actor fires: a value has come. */
static struct stamps {
    _Atomic uint32_t count; /* so many are written */
    double seconds[STAMPS];
} stamps;

static weir_status kernel_stamp(const weir_kernel_args *args)
{
    const uint32_t count = atomic_load_explicit(&stamps.count, memory_order_relaxed); /* this thread's own */
    (void)args;
    stamps.seconds[count % STAMPS] = measure_seconds();
    /* release: pairs with the load in stamps_taken() */
    atomic_store_explicit(&stamps.count, count + 1, memory_order_release);
    return WEIR_OK;
}

static uint32_t stamps_taken(void)
{
    /* acquire: pairs with the store in kernel_stamp() */
    return atomic_load_explicit(&stamps.count, memory_order_acquire);
}

static const weir_op op_pass_stamp = BENCH_LINK_OP("measure_link_pass_stamp", 1, 1, kernel_stamp),
                     op_take_stamp = BENCH_LINK_OP("measure_link_take_stamp", 1, 0, kernel_stamp);

/* Whether rank 0 has fired often enough after its first `slots` firings, in so many seconds. */
static bool is_enough(uint32_t fired, uint32_t slots, double seconds)
{
    const double least = slots > 1 ? STREAM_SECONDS : RALLY_SECONDS;
    return seconds > MOST_SECONDS || fired > MANY_SLOTS * slots + MANY || (fired > slots + FIRINGS && seconds > least);
}

/* Rank 0 ends the run. */
static weir_status run_between(weir_session *session, uint32_t slots)
{
    const double start = measure_seconds();
    weir_status status = weir_session_start(session, STEPS_MOST);
    if (!status && weir_rank() == 0) {
        while (!is_enough(stamps_taken(), slots, measure_seconds() - start))
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        weir_session_stop(session);
    }
    return status ? status : weir_session_wait(session, -1);
}

/* Seconds between two firings: the mean of those that are remembered, without the first `slots` and a quarter of the others. On rank 0. */
static double between_firings(uint32_t slots)
{
    const uint32_t end = stamps_taken(), kept = end > STAMPS ? end - STAMPS : 0, begun = slots + (end > slots ? end - slots : 0) / 4, from = begun > kept ? begun : kept;
    return from + 1 < end ? (stamps.seconds[(end - 1) % STAMPS] - stamps.seconds[from % STAMPS]) / (end - 1 - from) : 0;
}

/* The same, of values that go there and back one by one: the median, as pauses of a process do not make others shorter. */
static double median_between(void)
{
    double each[MANY];
    const uint32_t end = stamps_taken(), count = end < 2 ? 0 : end - 1 < MANY ? end - 1 : MANY;
    for (uint32_t i = 0; i < count; i++)
        each[i] = stamps.seconds[(end - 1 - i) % STAMPS] - stamps.seconds[(end - 2 - i) % STAMPS];
    return measure_median(each, (int)count);
}

static weir_status time_between(const bench_link_shape *shape, double *seconds)
{
    weir_plan *plan = bench_link_plan(shape);
    weir_session *session = plan ? weir_session_open(plan, .workers = 1) : NULL;
    atomic_store_explicit(&stamps.count, 0, memory_order_relaxed); /* no worker runs yet */
    weir_status status = session ? run_between(session, shape->slots) : WEIR_E_PEER; /* the sentence is there */
    *seconds = status ? 0 : shape->slots > 1 ? between_firings(shape->slots) : median_between();
    weir_session_close(session);
    weir_plan_free(plan);
    return status;
}

static weir_status measure_once_between(time_link *link, size_t bytes)
{
    double seconds;
    const bench_link_shape rally = {.bytes = bytes, .slots = 1, .first = &op_pass_stamp, .second = &bench_link_pass, .back = true};
    weir_status status = time_between(&rally, &seconds);
    if (!status)
        curve_add(&link->once, bytes, ps_of(seconds / 2));
    return status;
}

static weir_status measure_stream_between(time_link *link, size_t bytes)
{
    double seconds;
    const uint64_t fit = LONG_BYTES / bytes < LONG_SLOTS ? LONG_BYTES / bytes : LONG_SLOTS;
    const bench_link_shape stream = {.bytes = bytes, .slots = fit < 2 ? 2 : (uint32_t)fit, .first = &bench_link_give, .second = &op_take_stamp, .reversed = true};
    weir_status status = time_between(&stream, &seconds);
    if (!status)
        curve_add(&link->stream, bytes, ps_of(seconds));
    return status;
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
    static const size_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20}, streams[] = {64, 4 << 10, 1 << 20};
    const char *carriers = getenv("WEIR_CARRIER"), *insecure = getenv("WEIR_INSECURE");
    const bool ucx = carriers && strstr(carriers, "ucx"), plain = insecure && !strcmp(insecure, "1") && !getenv("WEIR_KEY_FILE");
    if (weir_world_size() != 2)
        return error_set(WEIR_E_ARGUMENT, "--between needs two ranks, not %d: weir launch --hosts A,B -- weir measure --between -o RATES",
                         weir_world_size());
    setenv("WEIR_CARRIER", ucx ? "ucx" : "tcp", 1);
    time_link link = {.once.count = 0};
    weir_status status = weir_op_register(&op_pass_stamp);
    status = status ? status : weir_op_register(&op_take_stamp);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = measure_once_between(&link, sizes[i]);
    for (size_t i = 0; i < sizeof streams / sizeof *streams && !status; i++)
        status = measure_stream_between(&link, streams[i]);
    const time_carrier carrier = plain ? (ucx ? TIME_UCX : TIME_TCP) : ucx ? TIME_UCX_KEY : TIME_TCP_KEY;
    if (!status) {
        take_costs(rates, carrier, &link);
        rates->links[TIME_HOSTS][carrier] = link;
    }
    return status;
}
