/* transport/meet/report.c: a report is put together on the caller's stack, then handed over in one piece. */
#include "transport/meet/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "weir: ";

enum { PREFIX_BYTES = sizeof(prefix) - 1 };

/* All at once; only a full pipe or a signal can split it. Where stderr is closed nobody wants to know. */
static void write_stderr(const char *bytes, size_t left)
{
    while (left) {
        ssize_t written = write(STDERR_FILENO, bytes, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        bytes += written;
        left -= (size_t)written;
    }
}

static _Thread_local bool running;

bool report_is_running(void)
{
    return running;
}

void report_say(const struct report *report, const char *format, ...)
{
    char text[PREFIX_BYTES + REPORT_BYTES + 1]; /* the newline takes the place of the 0 */
    char *body = text + PREFIX_BYTES;
    int before = errno;
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(body, REPORT_BYTES, format, args);
    va_end(args);
    size_t count = wanted < 0 ? 0 : strnlen(body, REPORT_BYTES - 1);
    if (report && report->fn) {
        body[count] = 0;
        running = true;
        report->fn(report->ctx, body);
        running = false;
    } else {
        memcpy(text, prefix, PREFIX_BYTES);
        if (!count || body[count - 1] != '\n')
            body[count++] = '\n';
        write_stderr(text, PREFIX_BYTES + count);
    }
    errno = before;
}
