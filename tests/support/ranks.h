/* tests/support/ranks.h: runs a function as the ranks of one session, on this machine.
 *
 *     static void train(struct rank *rank)
 *     {
 *         weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
 *         RANK_IS(rank, s, "%s", weir_error());
 *         ...
 *         ((float *)rank->result)[0] = loss;          // what the test is to see
 *     }
 *
 *     struct ranks *ranks = ranks_run(train, NULL, .count = 4, .link = RANKS_SHM, .result_bytes = 64);
 *     ... ranks->rank[2].result ...
 *     ranks_free(ranks);
 *
 * The ranks are processes, forked here, or threads of this one, in which sanitizers see both ends. A rank that fails
 * says so and ends; one that takes too long is killed, if it is a process. Both fail the test that called ranks_run(),
 * as does a process that ends otherwise than it was expected to.
 *
 * How ranks are linked is said in the environment, so threads all have the same link.
 */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <weir/weir.h>

enum { RANKS_MAX = 16 };

enum ranks_link {
    RANKS_SHM, /* shared memory */
    RANKS_WIRE, /* Unix sockets */
    RANKS_TCP,
    RANKS_UCX   /* UCX over its own TCP; where there is no UCX the test is skipped */
};

enum ranks_kind { RANKS_PROCESSES, RANKS_THREADS };

struct rank {
    int number, count;
    char address[32];    /* rank 0's */
    void *result;        /* zeroed; the test finds it here */
    void *ctx;
    enum ranks_kind kind;
    pid_t pid;           /* of a process */
    bool ended, failed;
    int signal;          /* that it was ended by; 0: none */
    char failure[2048];
};

struct ranks {
    struct rank rank[RANKS_MAX];
    int count;
    size_t bytes; /* of all of it */
};

typedef void (*rank_fn)(struct rank *rank);

struct ranks_opts {
    int count;
    enum ranks_link link;
    enum ranks_kind kind;
    size_t result_bytes;   /* of each rank */
    double seconds;        /* to take at most [60] */
    int wake_ms;           /* a process that stops itself goes on after so long; 0: it is killed when the others ended */
    uint32_t may_die;      /* bit r: rank r is to be ended by SIGKILL */
};

/* Runs the function as all ranks and waits for them. Owned by the caller. */
#define ranks_run(fn, ctx, ...) ranks_run_at(fn, ctx, (struct ranks_opts){__VA_ARGS__})
struct ranks *ranks_run_at(rank_fn fn, void *ctx, struct ranks_opts opts);
void ranks_free(struct ranks *ranks);

/* The options with which a rank opens its session. */
weir_cluster_opts ranks_cluster(const struct rank *rank);

/* The number of a port of 127.0.0.1 that nobody had a moment ago. */
int ranks_port(void);

/* Skips the test where there is no UCX, and has it use its own TCP. */
void ranks_need_ucx(void);

/* Of this process: open descriptors, threads. */
int ranks_descriptors(void);
int ranks_threads(void);

/* On the monotonic clock. */
double ranks_seconds(void);
void ranks_pause(int time_ms);

/* The first failure counts; the rank is to return. */
void rank_failed(struct rank *rank, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define RANK_IS(rank, x, ...)                                     \
    do {                                                          \
        if (!(x)) {                                               \
            rank_failed(rank, __FILE__, __LINE__, "" __VA_ARGS__); \
            return;                                               \
        }                                                         \
    } while (0)
#define RANK_OK(rank, call) RANK_IS(rank, (call) == WEIR_OK, "%s: %s", #call, weir_error())

#endif
