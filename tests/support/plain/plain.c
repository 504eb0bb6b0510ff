/* tests/support/plain/plain.c: runs tests, each in a process, as many at a time as there are processors.
 *
 * A process that ends in any way but with status 0 failed, so what a sanitizer reports at the end (a leak, a race
 * that it only printed) counts. Its output is kept in a file and shown when it has ended, if it failed or printed
 * something. Sanitizers are slow, so tests are given ten times the time they ask for.
 *
 *     test_session            all tests
 *     test_session pull       those with `pull` in suite::name
 *
 * A test that took processors for LONG seconds or more is named with them: it is what to look at when suites take long.
 *
 * The closing line is Criterion's, for those who read that.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNNING_MAX 16
#define SLOWER 10
#define LONG 5 /* s */
#define TIMEOUT_DEFAULT 60 /* s */
#define STATUS_SKIPPED 77

typedef struct running {
    const plain_test *test; /* NULL: free */
    pid_t process;
    FILE *output; /* owned */
} running;

typedef struct tally {
    int passing, failing, crashing, skipped;
} tally;

static plain_test *tests, **tests_end = &tests;
static plain_suite *suites;
static bool test_failed; /* in a test's process; set by its first thread or any other: only ever to true */

/* glibc keeps the paths of a LOCPATH that setlocale() has looked at. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:__argz_add_sep\n";
}

/* libzmq, and libsodium and libpgm below it, are not instrumented, so ThreadSanitizer does not see how their threads
 * order what they do: neither what they read and write nor the bytes that they hand over are held against anybody. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libzmq.so\ncalled_from_lib:libsodium.so\ncalled_from_lib:libpgm\n";
}

void plain_add_test(plain_test *test)
{
    *tests_end = test;
    tests_end = &test->next;
}

void plain_add_suite(plain_suite *suite)
{
    suite->next = suites;
    suites = suite;
}

/* ---- in a test's process ---- */

static void not_so(bool fatal, const char *file, int line, const char *what, const char *is, const char *format, va_list list)
{
    fprintf(stderr, "%s:%d: not so: %s.", file, line, what);
    vfprintf(stderr, format, list);
    if (is)
        fprintf(stderr, " It is \"%s\"", is);
    fputc('\n', stderr);
    fflush(NULL);
    if (fatal)
        _exit(1); /* what leaks because of this is of no interest */
    __atomic_store_n(&test_failed, true, __ATOMIC_RELAXED);
}

void plain_check(bool holds, bool fatal, const char *file, int line, const char *what, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (!holds)
        not_so(fatal, file, line, what, NULL, format, list);
    va_end(list);
}

void plain_check_text(const char *is, const char *wanted, bool fatal, const char *file, int line, const char *what,
                      const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (strcmp(is, wanted))
        not_so(fatal, file, line, what, is, format, list);
    va_end(list);
}

_Noreturn void plain_skip(const char *format, ...)
{
    va_list list;
    fputs("skipped:", stderr);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    fflush(NULL);
    _exit(STATUS_SKIPPED);
}

static plain_options options_of(const plain_test *test)
{
    plain_options options = test->options;
    for (const plain_suite *suite = suites; suite; suite = suite->next) {
        if (strcmp(suite->name, test->suite))
            continue;
        options.init = options.init ? options.init : suite->options.init;
        options.fini = options.fini ? options.fini : suite->options.fini;
        options.timeout = options.timeout > 0 ? options.timeout : suite->options.timeout;
    }
    options.timeout = options.timeout > 0 ? options.timeout : TIMEOUT_DEFAULT;
    return options;
}

_Noreturn static void run_test(const plain_test *test)
{
    plain_options options = options_of(test);
    alarm((unsigned)(options.timeout * SLOWER) + 1);
    if (options.init)
        options.init();
    test->run();
    if (options.fini)
        options.fini();
    exit(test_failed); /* looks for leaks */
}

/* ---- in the runner ---- */

static bool start(running *slot, const plain_test *test)
{
    fflush(NULL);
    FILE *output = tmpfile();
    pid_t process = output ? fork() : -1;
    if (process == 0) {
        dup2(fileno(output), STDOUT_FILENO);
        dup2(fileno(output), STDERR_FILENO);
        run_test(test);
    }
    if (process < 0 && output)
        fclose(output);
    if (process > 0)
        *slot = (running){test, process, output};
    return process > 0;
}

static void show(const running *ended, const char *how)
{
    char line[4096];
    rewind(ended->output);
    bool said = fgets(line, sizeof line, ended->output) != NULL;
    if (!said && !how)
        return;
    printf("[%s] %s::%s\n", how ? how : "----", ended->test->suite, ended->test->name);
    while (said) {
        fputs(line, stdout);
        said = fgets(line, sizeof line, ended->output) != NULL;
    }
}

static void count(tally *t, const running *ended, int status)
{
    const char *how = NULL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        t->passing++;
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_SKIPPED) {
        t->skipped++;
        how = "SKIP";
    } else if (WIFEXITED(status)) {
        t->failing++;
        how = "FAIL";
    } else {
        t->crashing++;
        how = WTERMSIG(status) == SIGALRM ? "TIMEOUT" : "CRASH";
    }
    show(ended, how);
}

static void show_long(const plain_test *test, const struct rusage *used)
{
    long seconds = (long)(used->ru_utime.tv_sec + used->ru_stime.tv_sec);
    if (seconds >= LONG)
        printf("[LONG] %s::%s: %ld s of processors\n", test->suite, test->name, seconds);
}

/* Waits for one of the processes; false when there is none. */
static bool reap(running slots[RUNNING_MAX], tally *t)
{
    int status;
    struct rusage used;
    pid_t process = wait4(-1, &status, 0, &used);
    for (int i = 0; process > 0 && i < RUNNING_MAX; i++) {
        if (slots[i].test && slots[i].process == process) {
            count(t, &slots[i], status);
            show_long(slots[i].test, &used);
            fclose(slots[i].output);
            slots[i].test = NULL;
        }
    }
    return process > 0 || errno == EINTR;
}

static running *free_slot(running slots[RUNNING_MAX], long limit)
{
    for (long i = 0; i < limit && i < RUNNING_MAX; i++)
        if (!slots[i].test)
            return &slots[i];
    return NULL;
}

static bool named(const plain_test *test, const char *part)
{
    char name[512];
    snprintf(name, sizeof name, "%s::%s", test->suite, test->name);
    return strstr(name, part) != NULL;
}

int main(int argc, char **argv)
{
    running slots[RUNNING_MAX] = {{0}}, *slot;
    tally t = {0};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    for (const plain_test *test = tests; test; test = test->next) {
        if (argc > 1 && !named(test, argv[1]))
            continue;
        while (!(slot = free_slot(slots, processors > 1 ? processors : 1)))
            reap(slots, &t);
        if (!start(slot, test)) {
            perror("a test cannot be started");
            t.crashing++;
        }
    }
    while (reap(slots, &t))
        ;
    printf("[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Crashing: %d | Skipped: %d\n",
           t.passing + t.failing + t.crashing, t.passing, t.failing, t.crashing, t.skipped);
    return t.failing + t.crashing > 0;
}
