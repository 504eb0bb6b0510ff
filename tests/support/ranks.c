/* tests/support/ranks.c: see the header. The ranks' results lie in anonymous shared memory, so that threads and
 * processes differ only in how they are started. */
#define _GNU_SOURCE
#include "tests/support/effort.h"
#include "tests/support/ranks.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_DEFAULT EFFORT(60, 300, 300)
#define LOOK_MS 2
#define PORT_FIRST 12000
#define PORTS 20000
#define RESULT_ALIGN 64

double ranks_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void ranks_pause(int time_ms)
{
    nanosleep(&(struct timespec){time_ms / 1000, time_ms % 1000 * 1000000L}, NULL);
}

static bool port_is_free(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool is_free = fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address);
    if (fd >= 0)
        close(fd);
    return is_free;
}

/* Below those that the system gives to sockets without a wish: between two sessions nobody takes it by accident. */
int ranks_port(void)
{
    static int tries;
    for (int i = 0; i < PORTS; i++) {
        int port = PORT_FIRST + (int)(((unsigned)getpid() * 61u + (unsigned)tries++) % PORTS);
        if (port_is_free(port))
            return port;
    }
    cr_assert_fail("no port is free");
    return 0;
}

static int entries_in(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

/* Whether it can be loaded is asked in a process of its own: where it is not used it is not here. ThreadSanitizer does
 * not see how its locks are made, takes them for misused, and UCX crashes under it. */
void ranks_need_ucx(void)
{
#ifdef __SANITIZE_THREAD__
    cr_skip_test("UCX does not run under ThreadSanitizer");
#endif
    int status = -1;
    pid_t child = fork();
    if (!child)
        _exit(!dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL));
    waitpid(child, &status, 0);
    if (status)
        cr_skip_test("there is no UCX here");
    setenv("UCX_TLS", "tcp,self", 1);
}

int ranks_descriptors(void)
{
    return entries_in("/proc/self/fd");
}

int ranks_threads(void)
{
    return entries_in("/proc/self/task");
}

weir_cluster_opts ranks_cluster(const struct rank *rank)
{
    return (weir_cluster_opts){.world_size = rank->count, .rank = rank->number, .address = rank->address};
}

void rank_failed(struct rank *rank, const char *file, int line, const char *format, ...)
{
    va_list list;
    if (rank->failed)
        return;
    va_start(list, format);
    int used = snprintf(rank->failure, sizeof rank->failure, "%s:%d: ", file, line);
    vsnprintf(rank->failure + used, sizeof rank->failure - (size_t)used, format, list);
    va_end(list);
    rank->failed = true;
    fprintf(stderr, "rank %d of %d: %s\n", rank->number, rank->count, rank->failure);
}

static struct ranks *ranks_new(void *ctx, const struct ranks_opts *opts)
{
    size_t each = (opts->result_bytes + RESULT_ALIGN - 1) / RESULT_ALIGN * RESULT_ALIGN;
    size_t head = (sizeof(struct ranks) + RESULT_ALIGN - 1) / RESULT_ALIGN * RESULT_ALIGN;
    size_t bytes = head + (size_t)opts->count * each;
    int port = ranks_port();
    struct ranks *ranks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(ranks != MAP_FAILED);
    ranks->count = opts->count;
    ranks->bytes = bytes;
    for (int r = 0; r < opts->count; r++) {
        struct rank *rank = &ranks->rank[r];
        *rank = (struct rank){.number = r,
                              .count = opts->count,
                              .result = (char *)ranks + head + (size_t)r * each,
                              .ctx = ctx,
                              .kind = opts->kind};
        snprintf(rank->address, sizeof rank->address, "127.0.0.1:%d", port);
    }
    return ranks;
}

void ranks_free(struct ranks *ranks)
{
    if (ranks)
        munmap(ranks, ranks->bytes);
}

/* ---- threads ---- */

struct thread {
    rank_fn fn;
    struct rank *rank;
    pthread_t thread;
};

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    thread->fn(thread->rank);
    return NULL;
}

/* A thread cannot be killed: the process ends, which fails the test. */
static void threads_run(struct ranks *ranks, rank_fn fn, double seconds)
{
    struct thread threads[RANKS_MAX];
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)seconds;
    for (int r = 0; r < ranks->count; r++) {
        threads[r] = (struct thread){.fn = fn, .rank = &ranks->rank[r]};
        cr_assert(!pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]));
    }
    for (int r = 0; r < ranks->count; r++) {
        if (pthread_timedjoin_np(threads[r].thread, NULL, &end)) {
            fprintf(stderr, "rank %d of %d did not end\n", r, ranks->count);
            _exit(1);
        }
        ranks->rank[r].ended = true;
    }
}

/* ---- processes ---- */

static void process_start(struct rank *rank, rank_fn fn)
{
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid) {
        rank->pid = pid;
        return;
    }
    fn(rank);
    fflush(NULL);
    _exit(rank->failed ? 1 : 0);
}

static void process_ended(struct rank *rank, int status, bool may_die)
{
    rank->ended = true;
    rank->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (rank->failed || (rank->signal == SIGKILL && may_die) || (!rank->signal && !WEXITSTATUS(status)))
        return;
    rank->failed = true;
    snprintf(rank->failure, sizeof rank->failure, "ended by %s %d", rank->signal ? "signal" : "exit status",
             rank->signal ? rank->signal : WEXITSTATUS(status));
}

/* How many have neither ended nor been stopped for good. */
static int processes_look(struct ranks *ranks, const struct ranks_opts *opts, bool *stopped)
{
    int running = 0;
    for (int r = 0; r < ranks->count; r++) {
        struct rank *rank = &ranks->rank[r];
        int status;
        if (!rank->ended && waitpid(rank->pid, &status, WNOHANG | WUNTRACED) == rank->pid) {
            if (!WIFSTOPPED(status)) {
                process_ended(rank, status, opts->may_die >> r & 1);
            } else if (opts->wake_ms) {
                ranks_pause(opts->wake_ms);
                kill(rank->pid, SIGCONT);
            } else {
                stopped[r] = true;
            }
        }
        running += !rank->ended && !stopped[r];
    }
    return running;
}

static void processes_run(struct ranks *ranks, rank_fn fn, const struct ranks_opts *opts, double seconds)
{
    double end = ranks_seconds() + seconds;
    bool stopped[RANKS_MAX] = {false};
    fflush(NULL);
    for (int r = 0; r < ranks->count; r++)
        process_start(&ranks->rank[r], fn);
    while (processes_look(ranks, opts, stopped) && ranks_seconds() < end)
        ranks_pause(LOOK_MS);
    for (int r = 0; r < ranks->count; r++) {
        int status;
        if (ranks->rank[r].ended)
            continue;
        if (!stopped[r])
            rank_failed(&ranks->rank[r], __FILE__, __LINE__, "killed: it did not end within %.0f s", seconds);
        kill(ranks->rank[r].pid, SIGKILL);
        waitpid(ranks->rank[r].pid, &status, 0);
        process_ended(&ranks->rank[r], status, true);
    }
}

/* Registers of ranks that share no memory go over it. */
static void use_carrier(enum ranks_link link)
{
    static const char *const lists[] = {[RANKS_SHM] = "", [RANKS_WIRE] = "ipc", [RANKS_TCP] = "tcp", [RANKS_UCX] = "ipc,ucx"};
    setenv("WEIR_CARRIER", lists[link], 1);
    if (link == RANKS_UCX)
        ranks_need_ucx();
}

struct ranks *ranks_run_at(rank_fn fn, void *ctx, struct ranks_opts opts)
{
    cr_assert(opts.count > 0 && opts.count <= RANKS_MAX);
    struct ranks *ranks = ranks_new(ctx, &opts);
    double seconds = opts.seconds > 0 ? opts.seconds : SECONDS_DEFAULT;
    use_carrier(opts.link);
    if (opts.kind == RANKS_THREADS)
        threads_run(ranks, fn, seconds);
    else
        processes_run(ranks, fn, &opts, seconds);
    for (int r = 0; r < ranks->count; r++)
        cr_assert_not(ranks->rank[r].failed, "rank %d of %d: %s", r, ranks->count, ranks->rank[r].failure);
    return ranks;
}
