/* tests/test_host.c: a library is a guest in a program. This suite is the program: it is linked as a user's is, against
 * the archive that `make all` builds for users, and it uses the public API alone.
 *
 *     names      the program defines a function for every name that weir's files have among themselves (taken.c, made
 *                from the internal archive); none of them may be called, and sums must be right all the same
 *     process    signal handlers, environment, locale, numbers of threads of OpenBLAS and OpenMP, ...: what belongs to
 *                the whole process, or to the calling thread, is the same after a session as before
 *     signals    a fault on a worker reaches the program's handler, a profiler's ticks reach busy workers, and what is
 *                sent to the program does not
 */
#define _GNU_SOURCE
#include <cblas.h>
#include <criterion/criterion.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#include "tests/support/ranks.h"

extern char **environ;
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int count);

TestSuite(host, .timeout = 120);

/* ---- what weir is given to do ---- */

/* y = 3 x, of which the first feature alone counts; noise in the others. */
static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int64_t i = 0; i < weir_shape_count(&x->shape); i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)i);
    return WEIR_OK;
}

/* A line over two devices, as in the README. */
static weir_plan *line_plan(weir_source_fn source, void *ctx)
{
    weir_graph *g = weir_graph_new("guest");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 1}, .name = "x", .sbp = {S(0)}, .source = source, .ctx = ctx);
    weir_tensor *error = weir_sub(weir_linear(x, 1, .name = "line"), weir_affine(x, 3, .shift = 0.5));
    weir_train(weir_mean(weir_mul(error, error)), weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g, .memory = "1MiB");
    weir_graph_free(g);
    return plan;
}

/* Trains for 100 steps; the slope that it found, or 0. */
static float train_line(const weir_plan *plan, weir_cluster_opts cluster)
{
    float slope = 0;
    weir_session *s = plan ? weir_session_open(plan, .workers = 2, .cluster = cluster) : NULL;
    bool failed = !s || weir_session_run(s, 100) ||
                  weir_session_read(s, "line/weight", &(weir_array){&slope, WEIR_F32, {2, {1, 1}}});
    weir_session_close(s);
    return failed ? 0 : slope;
}

static float train(weir_cluster_opts cluster)
{
    weir_plan *plan = line_plan(draw, NULL);
    float slope = train_line(plan, cluster);
    weir_plan_free(plan);
    return slope;
}

enum { A_SIDE = 96 }; /* of the matrices, at most */

/* The largest error of a product of two matrices of this side. They hold small whole numbers: there should be none. */
static float product_error(int side)
{
    static float a[A_SIDE * A_SIDE], b[A_SIDE * A_SIDE], c[A_SIDE * A_SIDE];
    float error = 0;
    weir_graph *g = weir_graph_new("product");
    weir_tensor *x = weir_input(g, WEIR_F32, {side, side}, .name = "a");
    weir_fetch(weir_matmul(x, weir_input(g, WEIR_F32, {side, side}, .name = "b")), .name = "c");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .cluster.alone = true);
    cr_assert_not_null(s, "%s", weir_error());
    const weir_shape shape = {2, {side, side}};
    weir_array at[3] = {{a, WEIR_F32, shape}, {b, WEIR_F32, shape}, {c, WEIR_F32, shape}};
    for (int i = 0; i < side * side; i++) {
        a[i] = (float)(i % 7 - 3);
        b[i] = (float)(i % 5 - 2);
    }
    cr_assert_eq(weir_session_push(s, "a", &at[0], -1), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_push(s, "b", &at[1], -1), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_pull(s, "c", &at[2], -1), WEIR_OK, "%s", weir_error());
    for (int row = 0; row < side; row++)
        for (int column = 0; column < side; column++) {
            float sum = 0;
            for (int k = 0; k < side; k++)
                sum += a[row * side + k] * b[k * side + column];
            error = fmaxf(error, fabsf(sum - c[row * side + column]));
        }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return error;
}

/* ---- names ---- */

extern int taken_count;        /* in taken.c: names that the program has for itself */
extern int taken_calls;        /* how often one of them was called, and which was the last */
extern const char *taken_last;
extern void gemm(void);

Test(host, program_may_use_every_name_that_does_not_begin_with_weir)
{
    cr_assert_gt(taken_count, 100, "taken.c has %d names", taken_count);
    cr_expect_eq(product_error(3), 0, "a small product is wrong");
    cr_expect_eq(product_error(A_SIDE), 0, "a large product is wrong");
    float slope = train((weir_cluster_opts){.alone = true});
    cr_expect_float_eq(slope, 3, 1e-3, "the line's slope is %g: %s", (double)slope, weir_error());
    cr_expect_eq(taken_calls, 0, "weir called %d functions of the program, %s among them", taken_calls, taken_last);
    gemm();
    cr_expect_eq(taken_calls, 1, "the program's own gemm() is not what it calls");
}

/* The symbols of the archive that `nm` lists, one a line. */
static FILE *symbols(const char *options)
{
    char command[512];
    snprintf(command, sizeof command, "nm -P %s " ARCHIVE " 2>/dev/null", options);
    FILE *list = popen(command, "r");
    cr_assert(list, "cannot run %s", command);
    return list;
}

Test(host, archive_shows_no_names_but_weirs)
{
    char line[1024], name[512];
    int count = 0;
    FILE *list = symbols("-g --defined-only");
    while (fgets(line, sizeof line, list))
        if (sscanf(line, "%511s %*c", name) == 1 && line[strlen(name)] == ' ') {
            cr_expect(!strncmp(name, "weir_", 5), "%s is visible", name);
            count++;
        }
    cr_expect_eq(pclose(list), 0);
    cr_expect_gt(count, 80, "%d names, where the API has more", count);
}

/* Functions that change, or end, the whole process. */
static const char *const not_for_guests[] = {
    "abort", "atexit", "chdir", "exit", "_exit", "fork", "feenableexcept", "fesetenv", "fesetround",
    "goto_set_num_threads", "mkl_set_num_threads", "openblas_set_num_threads", "prctl", "putenv", "quick_exit", "raise",
    "setenv", "setitimer", "setlocale", "setrlimit", "sigaction", "signal", "srand", "umask", "unsetenv"};

Test(host, archive_calls_nothing_that_changes_the_process)
{
    char line[1024], name[512];
    FILE *list = symbols("-u");
    while (fgets(line, sizeof line, list))
        for (size_t i = 0; sscanf(line, "%511s", name) == 1 && i < sizeof not_for_guests / sizeof *not_for_guests; i++)
            cr_expect(strcmp(name, not_for_guests[i]) != 0, "the library calls %s()", name);
    cr_expect_eq(pclose(list), 0);
}

/* ---- the process ---- */

static unsigned float_control(void)
{
#ifdef __x86_64__
    return __builtin_ia32_stmxcsr() & ~0x3fu; /* the rest says what has happened */
#else
    return 0;
#endif
}

#define RESTORER 0x04000000 /* libc's own, of all that was ever set */

static void portray_signals(FILE *to)
{
    sigset_t mask;
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action;
        if (!sigaction(signal, NULL, &action))
            fprintf(to, "signal %d: %p, flags %x\n", signal, (void *)action.sa_sigaction, action.sa_flags & ~RESTORER);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int signal = 1; signal < NSIG; signal++)
        fprintf(to, "%s", sigismember(&mask, signal) == 1 ? "b" : "-");
    fprintf(to, ": signals blocked here\n");
}

static void portray_limits(FILE *to)
{
    struct rlimit limit;
    struct itimerval timer;
    for (int i = 0; i < RLIM_NLIMITS; i++)
        if (!getrlimit((__rlimit_resource_t)i, &limit))
            fprintf(to, "limit %d: %ju %ju\n", i, (uintmax_t)limit.rlim_cur, (uintmax_t)limit.rlim_max);
    for (int i = ITIMER_REAL; i <= ITIMER_PROF; i++)
        if (!getitimer((__itimer_which_t)i, &timer))
            fprintf(to, "timer %d: %ld.%06ld\n", i, (long)timer.it_interval.tv_sec, (long)timer.it_interval.tv_usec);
}

static void portray_thread(FILE *to)
{
    char name[16] = "";
    cpu_set_t cores;
    int policy = sched_getscheduler(0);
    pthread_getname_np(pthread_self(), name, sizeof name);
    fprintf(to, "thread %s, policy %d, nice %d\n", name, policy, getpriority(PRIO_PROCESS, 0));
    fprintf(to, "rounding %d, floats %x\ncores", fegetround(), float_control());
    for (int c = 0; !sched_getaffinity(0, sizeof cores, &cores) && c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &cores))
            fprintf(to, " %d", c);
    fprintf(to, "\n");
}

/* All that belongs to the program, as a text. Owned by the caller. */
static char *portrait(void)
{
    char *text = NULL, folder[4096] = "";
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    cr_assert(to);
    portray_signals(to);
    portray_limits(to);
    portray_thread(to);
    mode_t mask = umask(0);
    umask(mask);
    fprintf(to, "folder %s, umask %o, locale %s\n", getcwd(folder, sizeof folder) ? folder : "?", (unsigned)mask,
            setlocale(LC_ALL, NULL));
    fprintf(to, "OpenBLAS %d threads, OpenMP %d\n", openblas_get_num_threads(), omp_get_max_threads());
    for (char **entry = environ; *entry; entry++)
        fprintf(to, "%s\n", *entry);
    fclose(to);
    return text;
}

/* The lines in which two portraits differ first; both empty when they do not. */
static void first_difference(const char *before, const char *after, char was[256], char is[256])
{
    was[0] = is[0] = '\0';
    while (strcmp(before, after) != 0) {
        size_t before_bytes = strcspn(before, "\n"), after_bytes = strcspn(after, "\n");
        if (before_bytes != after_bytes || memcmp(before, after, before_bytes) != 0 || !before[before_bytes]) {
            snprintf(was, 256, "%.*s", (int)before_bytes, before);
            snprintf(is, 256, "%.*s", (int)after_bytes, after);
            return;
        }
        before += before_bytes + 1;
        after += after_bytes + 1;
    }
}

static void noted(int signal)
{
    (void)signal;
}

/* Nothing is as a program finds it at its start. */
static void unusual(void)
{
    cpu_set_t cores;
    const struct sigaction action = {.sa_handler = noted, .sa_flags = SA_NODEFER};
    const int handled[] = {SIGINT, SIGPIPE, SIGUSR1, SIGSEGV, SIGCHLD, SIGFPE};
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        cr_assert_eq(sigaction(handled[i], &action, NULL), 0);
    cr_assert(!sched_getaffinity(0, sizeof cores, &cores) && !sched_setaffinity(0, sizeof cores, &cores));
    setlocale(LC_ALL, "C.UTF-8");
    umask(0127);
    cr_assert_eq(chdir("/"), 0);
    openblas_set_num_threads(2);
    omp_set_num_threads(3);
#ifdef __x86_64__
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* denormal numbers are zero */
#endif
}

Test(host, process_is_after_a_session_as_it_was_before)
{
    unusual();
    char was[256], is[256], *before = portrait();
    cr_expect_eq(product_error(3), 0);
    cr_expect_eq(product_error(A_SIDE), 0);
    float slope = train((weir_cluster_opts){.alone = true});
    cr_expect_float_eq(slope, 3, 1e-3, "the line's slope is %g: %s", (double)slope, weir_error());
    char *after = portrait();
    first_difference(before, after, was, is);
    cr_expect_str_eq(is, was, "it was \"%s\" and is \"%s\"", was, is);
    free(before);
    free(after);
}

static void train_as_rank(struct rank *rank)
{
    unusual();
    char was[256], is[256], *before = portrait();
    float slope = train(ranks_cluster(rank));
    char *after = portrait();
    first_difference(before, after, was, is);
    free(before);
    free(after);
    RANK_IS(rank, fabsf(slope - 3) < 1e-3f, "the line's slope is %g: %s", (double)slope, weir_error());
    RANK_IS(rank, !strcmp(is, was), "it was \"%s\" and is \"%s\"", was, is);
}

Test(host, process_is_after_a_session_of_several_as_it_was_before)
{
    ranks_free(ranks_run(train_as_rank, NULL, .count = 2, .link = RANKS_TCP));
    ranks_free(ranks_run(train_as_rank, NULL, .count = 2, .link = RANKS_SHM));
}

Test(host, process_is_after_a_session_over_ucx_as_it_was_before)
{
    ranks_free(ranks_run(train_as_rank, NULL, .count = 2, .link = RANKS_UCX));
}

/* ---- signals ---- */

static weir_status fault(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)x, (void)step, (void)micro;
    *(volatile char *)ctx = 1;
    return WEIR_OK;
}

static int crash_pipe;

static void crashed(int signal)
{
    char what = (char)signal;
    ssize_t sent = write(crash_pipe, &what, 1);
    _exit(sent == 1 ? 0 : 2);
}

/* A process with a crash handler, in which a source writes where it must not. */
static void crash(void)
{
    void *guarded = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct sigaction action = {.sa_handler = crashed};
    sigaction(SIGSEGV, &action, NULL);
    train_line(line_plan(fault, guarded), (weir_cluster_opts){.alone = true});
    _exit(3);
}

Test(host, crash_handler_of_the_program_sees_a_fault_on_a_worker)
{
    int ends[2], status = 0;
    char what = 0;
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        crash_pipe = ends[1];
        crash();
    }
    close(ends[1]);
    ssize_t got = read(ends[0], &what, 1);
    waitpid(child, &status, 0);
    cr_expect(got == 1 && what == SIGSEGV, "the handler was not called; the process ended with status %x",
              (unsigned)status);
    cr_expect_eq(status, 0);
    close(ends[0]);
}

static _Atomic int ticks_on_workers;
static _Thread_local volatile bool on_worker;

static void tick(int signal)
{
    (void)signal;
    if (on_worker)
        atomic_fetch_add(&ticks_on_workers, 1);
}

/* Busy until the profiler has seen it, for ten seconds at most. */
static weir_status busy(void *ctx, const weir_view *x, int64_t step, int micro)
{
    struct timespec from, now;
    on_worker = true;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (step == 0 && atomic_load(&ticks_on_workers) < 3 && now.tv_sec - from.tv_sec < 10);
    on_worker = false;
    return draw(ctx, x, step, micro);
}

static void profile(bool begin)
{
    const struct sigaction action = {.sa_handler = tick};
    const struct itimerval timer = {{0, begin ? 2000 : 0}, {0, begin ? 2000 : 0}};
    if (begin)
        cr_assert_eq(sigaction(SIGPROF, &action, NULL), 0);
    cr_assert_eq(setitimer(ITIMER_PROF, &timer, NULL), 0);
}

Test(host, profiler_of_the_program_sees_busy_workers)
{
    weir_plan *plan = line_plan(busy, NULL);
    profile(true);
    float slope = train_line(plan, (weir_cluster_opts){.alone = true});
    profile(false);
    cr_expect_float_eq(slope, 3, 1e-3, "the line's slope is %g: %s", (double)slope, weir_error());
    cr_expect_geq(atomic_load(&ticks_on_workers), 3);
    weir_plan_free(plan);
}

/* System calls and ZeroMQ's end early all the time. */
static void train_profiled(struct rank *rank)
{
    weir_plan *plan = line_plan(draw, NULL);
    profile(true);
    float slope = train_line(plan, ranks_cluster(rank));
    profile(false);
    weir_plan_free(plan);
    RANK_IS(rank, fabsf(slope - 3) < 1e-3f, "the line's slope is %g: %s", (double)slope, weir_error());
}

Test(host, profiler_does_not_disturb_a_session_of_several)
{
    ranks_free(ranks_run(train_profiled, NULL, .count = 2, .link = RANKS_TCP));
    ranks_free(ranks_run(train_profiled, NULL, .count = 2, .link = RANKS_SHM));
}

static weir_status note_mask(void *ctx, const weir_view *x, int64_t step, int micro)
{
    pthread_sigmask(SIG_BLOCK, NULL, ctx);
    return draw(NULL, x, step, micro);
}

Test(host, signals_to_the_program_do_not_come_to_workers)
{
    const int programs[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGVTALRM, SIGCHLD, SIGUSR1, SIGPIPE, SIGWINCH};
    const int threads[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigset_t mask;
    weir_plan *plan = line_plan(note_mask, &mask);
    cr_expect_float_eq(train_line(plan, (weir_cluster_opts){.alone = true}), 3, 1e-3);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        cr_expect_eq(sigismember(&mask, programs[i]), 1, "%s comes to workers", strsignal(programs[i]));
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        cr_expect_eq(sigismember(&mask, threads[i]), 0, "%s is blocked", strsignal(threads[i]));
    weir_plan_free(plan);
}
