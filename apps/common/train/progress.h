/* apps/common/train/progress.h: the line that tells how training goes: step, loss, rate, time left. On a terminal it is
 * rewritten in place ten times a second; elsewhere a line is written about once a second, so that logs stay short. One
 * thread. */
#ifndef APPS_COMMON_TRAIN_PROGRESS_H
#define APPS_COMMON_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct progress {
    FILE *to;              /* borrowed; NULL: nothing is written */
    int first;             /* steps that were done before */
    int steps;             /* in all, those before included */
    double items_per_step;
    const char *items;     /* "tokens" */
    double start, shown;   /* times */
    bool tty;
    bool open;             /* the line may be rewritten */
} progress;

void progress_begin(progress *p, FILE *to, int first, int steps, double items_per_step, const char *items);

/* Whether it is time to write, or `done` is all. */
bool progress_is_due(const progress *p, int done);

/* When it is due: `done` > first steps are over, the last had `loss`, and so many updated nothing (<= 0: none did). */
void progress_show(progress *p, int done, double loss, int64_t skipped);

/* Ends a line that is being rewritten, before something else is said. */
void progress_pause(progress *p);

#endif
