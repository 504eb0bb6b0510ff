/* transport/meet/report.c: a report is put together on the caller's stack, then handed over in one piece, by the
 * caller or by the reporter. */
#include "transport/meet/report.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/foreign.h"
#include "graph/base/locale.h"
#include "transport/mail/park.h"

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

/* A pipe that is writable takes so few bytes whole. */
void report_to_launcher(const char *launcher, uint32_t rank)
{
    char line[128];
    struct stat is;
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    int count = snprintf(line, sizeof(line), "%s lost %u\n", launcher, rank);
    bool piped = !fstat(STDERR_FILENO, &is) && (S_ISFIFO(is.st_mode) || S_ISSOCK(is.st_mode));
    if (*launcher && piped && poll(&room, 1, 0) > 0 && room.revents == POLLOUT)
        write_stderr(line, (size_t)count);
}

static _Thread_local bool running;

bool report_is_running(void)
{
    return running;
}

/* `body` has room for one more letter, and PREFIX_BYTES in front of it. */
static void hand_over(const struct report *report, char *body, size_t count)
{
    if (report && report->fn) {
        body[count] = 0;
        running = true;
        report->fn(report->ctx, body);
        running = false;
        return;
    }
    memcpy(body - PREFIX_BYTES, prefix, PREFIX_BYTES);
    if (!count || body[count - 1] != '\n')
        body[count++] = '\n';
    write_stderr(body - PREFIX_BYTES, PREFIX_BYTES + count);
}

/* ---- the reporter ---- */

struct entry {
    size_t count;
    char text[]; /* PREFIX_BYTES, the report, room for one more letter */
};

struct reporter {
    const struct report *report; /* borrowed */
    pthread_mutex_t lock;        /* of all of this */
    pthread_cond_t changed;
    struct entry *queue[REPORTS_MAX]; /* owned; a ring */
    uint32_t first, waiting;
    uint64_t dropped;            /* since one was last handed over */
    bool started, busy, closing;
    pthread_t thread;
    char name[REPORT_NAME + 1];  /* "": none */
    bool always;                 /* it is said */
};

static _Atomic uint32_t names; /* of reporters that there are */

void report_open(struct report *report)
{
    struct reporter *reporter = report->reporter = calloc(1, sizeof(*reporter));
    if (!reporter)
        return;
    reporter->report = report;
    pthread_mutex_init(&reporter->lock, NULL);
    pthread_cond_init(&reporter->changed, NULL);
}

/* The next, when there is one; NULL: the end. With the lock held. */
static struct entry *entry_wait(struct reporter *reporter)
{
    while (!reporter->waiting && !reporter->closing)
        pthread_cond_wait(&reporter->changed, &reporter->lock);
    if (!reporter->waiting)
        return NULL;
    struct entry *entry = reporter->queue[reporter->first];
    reporter->first = (reporter->first + 1) % REPORTS_MAX;
    reporter->waiting--;
    reporter->busy = true;
    return entry;
}

static void say_dropped(const struct reporter *reporter, uint64_t dropped)
{
    char text[PREFIX_BYTES + 128];
    int count = snprintf(text + PREFIX_BYTES, sizeof(text) - PREFIX_BYTES - 1,
                         "%llu more reports were dropped: they came faster than they were taken",
                         (unsigned long long)dropped);
    hand_over(reporter->report, text + PREFIX_BYTES, (size_t)count);
}

static void *reporter_run(void *argument)
{
    struct reporter *reporter = argument;
    struct entry *entry;
    pthread_mutex_lock(&reporter->lock);
    while ((entry = entry_wait(reporter))) {
        uint64_t dropped = reporter->waiting ? 0 : reporter->dropped;
        reporter->dropped -= dropped;
        pthread_mutex_unlock(&reporter->lock);
        hand_over(reporter->report, entry->text + PREFIX_BYTES, entry->count);
        free(entry);
        if (dropped)
            say_dropped(reporter, dropped);
        pthread_mutex_lock(&reporter->lock);
        reporter->busy = false;
        pthread_cond_broadcast(&reporter->changed);
    }
    pthread_mutex_unlock(&reporter->lock);
    return NULL;
}

/* False: there is no thread, or no memory. A report that finds the queue full is dropped. */
static bool reporter_put(struct reporter *reporter, const char *body, size_t count)
{
    struct entry *entry = malloc(sizeof(*entry) + PREFIX_BYTES + count + 1);
    if (!entry)
        return false;
    entry->count = count;
    memcpy(entry->text + PREFIX_BYTES, body, count);
    pthread_mutex_lock(&reporter->lock);
    if (!reporter->started)
        reporter->started = park_thread(&reporter->thread, "weir-report", reporter_run, reporter);
    bool started = reporter->started, room = started && reporter->waiting < REPORTS_MAX;
    if (room)
        reporter->queue[(reporter->first + reporter->waiting++) % REPORTS_MAX] = entry;
    reporter->dropped += started && !room;
    pthread_cond_broadcast(&reporter->changed);
    pthread_mutex_unlock(&reporter->lock);
    if (!room)
        free(entry);
    return started;
}

void report_flush(const struct report *report)
{
    struct reporter *reporter = report->reporter;
    if (!reporter || running)
        return;
    pthread_mutex_lock(&reporter->lock);
    while (reporter->waiting || reporter->busy)
        pthread_cond_wait(&reporter->changed, &reporter->lock);
    pthread_mutex_unlock(&reporter->lock);
}

void report_close(struct report *report)
{
    struct reporter *reporter = report->reporter;
    if (!reporter)
        return;
    pthread_mutex_lock(&reporter->lock);
    reporter->closing = true;
    names -= *reporter->name != 0;
    pthread_cond_broadcast(&reporter->changed);
    pthread_mutex_unlock(&reporter->lock);
    if (reporter->started)
        pthread_join(reporter->thread, NULL);
    pthread_cond_destroy(&reporter->changed);
    pthread_mutex_destroy(&reporter->lock);
    free(reporter);
    report->reporter = NULL;
}

/* ---- saying something ---- */

void report_name(struct report *report, const char *name, bool always)
{
    struct reporter *reporter = report->reporter;
    if (!reporter || !*name || *reporter->name)
        return;
    snprintf(reporter->name, sizeof(reporter->name), "%s", name);
    reporter->always = always;
    names++;
}

/* Which session it is. Returns the letters. */
static int say_name(const struct reporter *reporter, char *text, size_t bytes)
{
    bool named = reporter && *reporter->name && (reporter->always || names > 1);
    return named ? snprintf(text, bytes, "session '%s': ", reporter->name) : 0;
}

/* The report as it is printed. */
static void show_foreign(char *body)
{
    char raw[REPORT_BYTES];
    memcpy(raw, body, sizeof(raw));
    foreign_text(raw, body, REPORT_BYTES);
}

void report_say(const struct report *report, const char *format, ...)
{
    char text[PREFIX_BYTES + REPORT_BYTES + 1]; /* the newline takes the place of the 0 */
    char *body = text + PREFIX_BYTES;
    int before = errno;
    va_list args;
    int named = say_name(report ? report->reporter : NULL, body, REPORT_BYTES);
    va_start(args, format);
    int wanted = text_vprint(body + named, (size_t)(REPORT_BYTES - named), format, args);
    va_end(args);
    if (!strchr(format, '\n') && !foreign_shown(body))
        show_foreign(body);
    size_t count = wanted < 0 ? 0 : strnlen(body, REPORT_BYTES - 1);
    if (!report || !report->reporter || !reporter_put(report->reporter, body, count))
        hand_over(report, body, count);
    errno = before;
}
