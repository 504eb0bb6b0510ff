/* transport/meet/report.h: where reports go: to the function that the program gave, or to stderr. One report is one
 * write, so that those of several threads and processes do not mix. Any thread may say something.
 *
 *     net thread, zap thread, watch --- report_say() ---> queue ---> reporter's thread ---> the function, or stderr
 *
 * A function may be slow, and stderr a pipe that nobody reads: who gives signs of life, or holds a lock, must not wait
 * for either. So a session has a reporter: what is said is put into its queue, and a thread of its own, which is
 * started with the first report, hands it over. A report that comes while the queue is full is dropped, and counted.
 */
#ifndef TRANSPORT_MEET_REPORT_H
#define TRANSPORT_MEET_REPORT_H

#include <weir/cluster.h>

struct reporter;

struct report {
    weir_report_fn fn; /* NULL: stderr */
    void *ctx;
    struct reporter *reporter; /* NULL: who says something hands it over itself */
};

/* Adds "weir: " in front on stderr, and a newline when there is none; the function gets the text as it is. At most
 * REPORT_BYTES are kept, the end counted. errno stays. NULL is stderr, too. */
#define REPORT_BYTES 16384
void report_say(const struct report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Tells the launcher, which looks for its word (cluster_env.launcher) on this process's stderr and takes the line out, that
 * a rank was declared lost. Nothing is written where stderr is no pipe, or is full. */
void report_to_launcher(const char *launcher, uint32_t rank);

/* Waits until all that was said has been handed over. Not from the program's function itself. */
void report_flush(const struct report *report);

/* Gives the report a reporter; without memory it has none. Before anybody says something; the report stays where it is
 * until it is closed, and what is in the queue then is handed over first. */
#define REPORTS_MAX 64 /* in the queue */
void report_open(struct report *report);
void report_close(struct report *report); /* also without */

/* With a reporter: reports begin with "session 'NAME': " from now on, while others of this process have names too, or
 * always. At most REPORT_NAME letters count. */
#define REPORT_NAME 63
void report_name(struct report *report, const char *name, bool always);

/* Whether the calling thread is inside a program's function that gets a report. */
bool report_is_running(void);

#endif
