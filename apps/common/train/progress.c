/* apps/common/train/progress.c: the line that tells how training goes. */
#include "apps/common/train/progress.h"
#include "apps/common/measure.h"

#include <unistd.h>

void progress_begin(progress *p, FILE *to, int first, int steps, double items_per_step, const char *items)
{
    *p = (progress){.to = to, .first = first, .steps = steps, .items_per_step = items_per_step, .items = items};
    p->start = p->shown = measure_seconds();
    p->tty = to && isatty(fileno(to));
}

/* "987", "12.3k", "1.20M" */
static void rate_text(double rate, char text[32])
{
    if (rate < 1000)
        snprintf(text, 32, "%.0f", rate);
    else if (rate < 1e6)
        snprintf(text, 32, "%.1fk", rate / 1e3);
    else
        snprintf(text, 32, "%.2fM", rate / 1e6);
}

bool progress_is_due(const progress *p, int done)
{
    return p->to && (done == p->steps || measure_seconds() - p->shown >= (p->tty ? 0.1 : 1.0));
}

void progress_show(progress *p, int done, double loss, int64_t skipped)
{
    double now = measure_seconds(), seconds = now - p->start;
    bool last = done == p->steps;
    char rate[32], time[32], without[40] = "";
    if (skipped > 0)
        snprintf(without, sizeof without, "  %lld skipped", (long long)skipped);
    p->shown = now;
    rate_text(seconds > 0 ? (done - p->first) * p->items_per_step / seconds : 0, rate);
    measure_time_text(last ? seconds : seconds / (done - p->first) * (p->steps - done), time);
    fprintf(p->to, "%sstep %d/%d  loss %.4f%s  %s %s/s  %s%s%s%s", p->tty ? "\r\033[K" : "", done, p->steps, loss, without, rate,
            p->items, last ? "in " : "", time, last ? "" : " left", p->tty && !last ? "" : "\n");
    fflush(p->to);
    p->open = p->tty && !last;
}

void progress_pause(progress *p)
{
    if (p->open)
        fputc('\n', p->to);
    p->open = false;
}
