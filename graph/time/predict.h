/* graph/time/predict.h: predictions of one plan, one after the other, with other slots: what weir_predict() and walk.h share.
 *
 *     prediction_open() -> prediction_play(), prediction_play(), ... -> prediction_close()
 */
#ifndef GRAPH_TIME_PREDICT_H
#define GRAPH_TIME_PREDICT_H

#include "graph/time/change.h"
#include "graph/time/clock.h"
#include "graph/time/duration.h"
#include "graph/time/launch.h"
#include "graph/time/line.h"
#include "graph/time/period.h"

typedef struct prediction {
    const weir_plan *plan; /* as it is played: the given one, `spread`, or that with launches */
    const weir_plan *given; /* borrowed, as the next two: by the caller */
    const weir_rates *rates;
    const weir_predict_opts *opts;
    weir_plan *spread;     /* owned: over .ranks; NULL: they are not given */
    launches launches;     /* owned */
    char call[256];        /* begins sentences */
    uint32_t program;
    uint32_t *worker;      /* owned; by queue */
    uint32_t threads;      /* the first workers; the others are queues of accelerators */
    uint32_t workers;
    uint32_t *queue_of;    /* owned; by worker behind the threads */
    uint32_t *rank_of;     /* owned; by worker */
    share_host *host;      /* owned; by number */
    uint32_t hosts;
    uint32_t *host_of;     /* owned; by worker */
    uint32_t *computing;   /* owned; by rank: workers */
    changes changes;       /* owned, as what follows */
    durations durations;
    lines lines;
    period_firing *firings; /* as they were played */
    uint64_t firing_count, firing_room;
    bool failed;           /* no memory */
} prediction;

/* `opts` is complete (opts_read()). E_ARGUMENT, E_MEMORY as weir_predict(). Closed also after a failure. */
weir_status prediction_open(prediction *p, const weir_plan *plan, const weir_rates *rates, const weir_predict_opts *opts);
void prediction_close(prediction *p);

/* Plays steps with so many slots, by register. played->busy and period->cycle are the caller's, who frees them, also after a
 * failure; the cycle is empty if fewer than two repetitions were played. E_MEMORY; E_LIVE. */
weir_status prediction_play(prediction *p, const uint32_t *slots, clock_result *played, period_result *period);

#endif
