/* tests/transport/meet/test_report.c: reports, to a function and to stderr. stderr is a socket here that keeps what
 * each write(2) wrote as a message of its own. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "transport/meet/report.h"

struct seen {
    int reports;
    char text[REPORT_BYTES + 1];
};

static void see(void *ctx, const char *text)
{
    struct seen *seen = ctx;
    seen->reports++;
    snprintf(seen->text, sizeof(seen->text), "%s", text);
}

/* Says `text` with stderr turned to a socket; what the first write wrote goes to `written`, how many bytes is returned,
 * and *more is whether there was a second. */
static ssize_t written_to_stderr(const char *text, char *written, size_t bytes, bool *more)
{
    const struct report report = {NULL, NULL, NULL};
    int ends[2], kept = dup(STDERR_FILENO);
    char byte;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    dup2(ends[1], STDERR_FILENO);
    int lines = strchr(text, '\n') != NULL; /* lines end where a format says so */
    report_say(&report, lines ? "%.*s\n" : "%.*s", (int)strlen(text) - lines, text);
    dup2(kept, STDERR_FILENO);
    ssize_t count = recv(ends[0], written, bytes, MSG_DONTWAIT);
    *more = recv(ends[0], &byte, 1, MSG_DONTWAIT) >= 0;
    close(kept);
    close(ends[0]);
    close(ends[1]);
    return count;
}

static void assert_written(const char *text, const char *expected)
{
    char written[256] = {0};
    bool more;
    cr_assert_eq(written_to_stderr(text, written, sizeof(written) - 1, &more), (ssize_t)strlen(expected));
    cr_assert_str_eq(written, expected);
    cr_assert_not(more);
}

Test(report, is_one_write_with_a_prefix_and_a_newline, .timeout = 120)
{
    assert_written("rank 2 is lost", "weir: rank 2 is lost\n");
    assert_written("stalled:\n  loss waits for h0\n", "weir: stalled:\n  loss waits for h0\n");
    assert_written("", "weir: \n");
}

Test(report, shows_what_a_terminal_would_obey, .timeout = 120)
{
    assert_written("rank \x1b[2J\xff is lost", "weir: rank \\x1b[2J\\xff is lost\n");
}

Test(report, too_long_a_text_is_cut, .timeout = 120)
{
    static char text[2 * REPORT_BYTES], written[2 * REPORT_BYTES];
    bool more;
    memset(text, 'x', sizeof(text) - 1);
    ssize_t count = written_to_stderr(text, written, sizeof(written), &more);
    cr_assert_eq(count, (ssize_t)(strlen("weir: ") + REPORT_BYTES));
    cr_assert_eq(written[count - 2], 'x');
    cr_assert_eq(written[count - 1], '\n');
    cr_assert_not(more);
}

Test(report, goes_to_the_function_that_the_program_gave, .timeout = 120)
{
    static struct seen seen;
    const struct report report = {see, &seen, NULL};
    report_say(&report, "rank %d of %d is lost", 2, 4);
    cr_assert_eq(seen.reports, 1);
    cr_assert_str_eq(seen.text, "rank 2 of 4 is lost");
}

Test(report, leaves_errno_alone, .timeout = 120)
{
    const struct report report = {NULL, NULL, NULL};
    int kept = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = EDOM;
    report_say(&report, "nobody hears this");
    int after = errno;
    dup2(kept, STDERR_FILENO);
    close(kept);
    cr_assert_eq(after, EDOM);
}

/* ---- through a reporter ---- */

struct slow {
    _Atomic int begun, release, reports;
    char last[256];
};

static void see_slowly(void *ctx, const char *text)
{
    struct slow *slow = ctx;
    atomic_store(&slow->begun, 1);
    while (!atomic_load(&slow->release))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    snprintf(slow->last, sizeof slow->last, "%s", text);
    atomic_fetch_add(&slow->reports, 1);
}

/* One is being handed over, so many wait, the rest is dropped; who says something is not held up. */
Test(report, a_slow_function_holds_nobody_up, .timeout = 120)
{
    struct slow slow = {0};
    struct report report = {see_slowly, &slow, NULL};
    report_open(&report);
    report_say(&report, "the first");
    while (!atomic_load(&slow.begun))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (int i = 0; i < REPORTS_MAX + 5; i++)
        report_say(&report, "%d", i);
    cr_assert_eq(atomic_load(&slow.reports), 0);
    atomic_store(&slow.release, 1);
    report_flush(&report);
    cr_assert_eq(atomic_load(&slow.reports), 1 + REPORTS_MAX + 1);
    cr_assert_str_eq(slow.last, "5 more reports were dropped: they came faster than they were taken");
    report_say(&report, "the last");
    report_close(&report);
    cr_assert_str_eq(slow.last, "the last");
    cr_assert_null(report.reporter);
}
