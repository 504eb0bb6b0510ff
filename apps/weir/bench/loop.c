/* apps/weir/bench/loop.c: `weir bench loop`. The ways take turns, value by value, so that a busy spell of the machine harms
 * all alike. */
#include "apps/weir/bench/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "apps/common/measure.h"

#define VALUES 2000
#define VALUES_QUICK 50
#define VALUES_WARM 20
#define PAUSE_US 500 /* in which workers fall asleep */
#define US 1e6

enum way { WAY_PULL, WAY_FD, WAY_SINK, WAY_ECHO, WAYS };
static const char *const way_names[WAYS] = {"pull", "fd", "sink", "echo"};
static const char *const way_texts[WAYS] = {"waits in weir_session_pull()", "waits at weir_session_fd()",
                                            "waits at an eventfd of a sink", "an eventfd there and back, by hand"};

typedef struct bench {
    weir_plan *plan, *sink_plan;       /* owned */
    weir_session *session, *with_sink; /* owned */
    int epoll[WAYS];                   /* owned; -1: none */
    int sink_fd, ask_fd, answer_fd;    /* owned */
    _Atomic bool over;
    pthread_t echo;
    bool echoes;                       /* `echo` is to be joined */
    double *seconds[WAYS];             /* owned */
} bench;

/* ---- what is measured ---- */

static weir_status wake(void *ctx, const weir_view *value, int64_t step, int micro)
{
    uint64_t one = 1;
    (void)value, (void)step, (void)micro;
    return write(*(int *)ctx, &one, sizeof one) == sizeof one ? WEIR_OK : WEIR_E_IO;
}

/* Doubles x; y is fetched, or goes to a sink. */
static weir_plan *doubling(int *sink_fd)
{
    weir_graph *g = weir_graph_new("doubling");
    weir_tensor *y = weir_affine(weir_input(g, WEIR_F32, {0}, .name = "x"), 2);
    weir_fetch(y, .name = "y", .sink = sink_fd ? wake : NULL, .ctx = sink_fd);
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

static void drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) > 0)
        continue;
}

static void await(const bench *b, enum way way)
{
    struct epoll_event event;
    while (epoll_wait(b->epoll[way], &event, 1, -1) < 1)
        continue;
}

static void *echo_main(void *ctx)
{
    bench *b = ctx;
    uint64_t one = 1;
    int own = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(own, EPOLL_CTL_ADD, b->ask_fd, &event);
    while (!b->over) {
        if (epoll_wait(own, &event, 1, -1) < 1)
            continue;
        drain(b->ask_fd);
        if (write(b->answer_fd, &one, sizeof one) < 0)
            break;
    }
    close(own);
    return NULL;
}

/* ---- a value ---- */

static bool has_value(weir_session *session)
{
    weir_ready ready[4];
    int count = weir_session_ready(session, ready, 4);
    for (int i = 0; i < count && i < 4; i++)
        if (ready[i].kind == WEIR_READY_PULL)
            return true;
    return false;
}

static weir_status once(bench *b, enum way way)
{
    float x = 21, y = 0;
    uint64_t one = 1;
    weir_array from = {&x, WEIR_F32, {0}}, to = {&y, WEIR_F32, {0}};
    weir_status status = WEIR_OK;
    if (way == WAY_ECHO)
        status = write(b->ask_fd, &one, sizeof one) == sizeof one ? WEIR_OK : WEIR_E_IO;
    else
        status = weir_session_push(way == WAY_SINK ? b->with_sink : b->session, "x", &from, -1);
    if (status)
        return status;
    if (way == WAY_PULL)
        return weir_session_pull(b->session, "y", &to, -1);
    if (way == WAY_FD) {
        while (!has_value(b->session))
            await(b, way);
        return weir_session_pull(b->session, "y", &to, 0);
    }
    await(b, way);
    drain(way == WAY_SINK ? b->sink_fd : b->answer_fd);
    return WEIR_OK;
}

static weir_status measure(bench *b, int values)
{
    weir_status status = WEIR_OK;
    for (int i = -VALUES_WARM; i < values && !status; i++)
        for (int w = 0; w < WAYS && !status; w++) {
            usleep(PAUSE_US);
            double start = measure_seconds();
            status = once(b, (enum way)w);
            if (i >= 0)
                b->seconds[w][i] = measure_seconds() - start;
        }
    return status;
}

/* ---- life ---- */

static bool watch_fd(bench *b, enum way way, int fd)
{
    b->epoll[way] = epoll_create1(EPOLL_CLOEXEC);
    return !epoll_ctl(b->epoll[way], EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN});
}

static weir_status bench_open(bench *b, int values)
{
    int64_t steps = 2 * (values + VALUES_WARM);
    bool room = true;
    for (int w = 0; w < WAYS; w++) {
        b->epoll[w] = -1;
        b->seconds[w] = calloc((size_t)values, sizeof *b->seconds[w]);
        room &= b->seconds[w] != NULL;
    }
    b->sink_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    b->ask_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    b->answer_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    b->plan = doubling(NULL);
    b->sink_plan = doubling(&b->sink_fd);
    b->session = b->plan ? weir_session_open(b->plan) : NULL;
    b->with_sink = b->sink_plan ? weir_session_open(b->sink_plan) : NULL;
    if (!room || !b->session || !b->with_sink)
        return WEIR_E_MEMORY;
    weir_status status = weir_session_start(b->session, steps);
    if (!status)
        status = weir_session_start(b->with_sink, steps / 2);
    int fd = weir_session_fd(b->session);
    if (!status && (fd < 0 || !watch_fd(b, WAY_FD, fd) || !watch_fd(b, WAY_SINK, b->sink_fd) ||
                    !watch_fd(b, WAY_ECHO, b->answer_fd)))
        status = WEIR_E_IO;
    b->echoes = !status && !pthread_create(&b->echo, NULL, echo_main, b);
    return status ? status : b->echoes ? WEIR_OK : WEIR_E_MEMORY;
}

static void bench_close(bench *b)
{
    b->over = true;
    wake(&b->ask_fd, NULL, 0, 0);
    if (b->echoes)
        pthread_join(b->echo, NULL);
    weir_session_close(b->session);
    weir_session_close(b->with_sink);
    weir_plan_free(b->plan);
    weir_plan_free(b->sink_plan);
    for (int w = 0; w < WAYS; w++) {
        if (b->epoll[w] >= 0)
            close(b->epoll[w]);
        free(b->seconds[w]);
    }
    close(b->sink_fd);
    close(b->ask_fd);
    close(b->answer_fd);
}

static void report(bench *b, int values, bool json, FILE *to)
{
    for (int w = 0; w < WAYS; w++) {
        double median = US * measure_median(b->seconds[w], values), most = US * measure_quantile(b->seconds[w], values, 0.99);
        if (json)
            fprintf(to, "%s\"%s_us\": %.1f, \"%s_p99_us\": %.1f", w ? ", " : "{", way_names[w], median, way_names[w],
                    most);
        else
            fprintf(to, "%-36s %8.1f us   one in a hundred over %8.1f us\n", way_texts[w], median, most);
    }
    if (json)
        fputs("}\n", to);
}

weir_status bench_loop(bool json, bool quick, FILE *to)
{
    bench b = {.over = false};
    int values = quick ? VALUES_QUICK : VALUES;
    weir_status status = bench_open(&b, values);
    if (!status)
        status = measure(&b, values);
    if (!status)
        report(&b, values, json, to);
    bench_close(&b);
    return status;
}
