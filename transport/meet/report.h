/* transport/meet/report.h: where reports go: to the function that the program gave, or to stderr. One report is one write,
 * so that those of several threads and processes do not mix. Any thread may say something. */
#ifndef TRANSPORT_MEET_REPORT_H
#define TRANSPORT_MEET_REPORT_H

#include <weir/cluster.h>

struct report {
    weir_report_fn fn; /* NULL: stderr */
    void *ctx;
};

/* Adds "weir: " in front on stderr, and a newline when there is none; the function gets the text as it is. At most
 * REPORT_BYTES are kept, the end counted. errno stays. NULL is stderr, too. */
#define REPORT_BYTES 16384
void report_say(const struct report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether the calling thread is inside a program's function that gets a report. */
bool report_is_running(void);

#endif
