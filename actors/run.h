/* actors/run.h: the run that is under way in a session, or was the last one: as far as it has to be known where
 * it is ended before its time (stop.c), here and by other ranks (cluster_stop.c).
 *
 * All of it is under the lock of the session's ending, but for what is atomic.
 */
#ifndef ACTORS_RUN_H
#define ACTORS_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum run_phase {
    RUN_OVER,   /* or none has begun */
    RUN_GOES,
    RUN_HELD,   /* nobody begins another step: how many have been begun is being found out */
    RUN_LIMITED /* all know after which step it ends */
};

struct session_run {
    _Atomic uint32_t asked; /* weir_session_stop() was called, and has not made a run shorter yet */
    enum run_phase phase;
    uint64_t number;        /* over or not: 1, 2, ... */
    uint32_t awaited;       /* workers that have not answered HOLD */
    int64_t begun;          /* steps of the run, by any of those that have */
    bool follows;           /* no device is here: the run goes on until another rank tells how it ended */
    int64_t most;           /* and then it has ended before this step at the latest; INT64_MAX: not told */
    int64_t first_step;     /* of main, when the session was opened, or as if it had been */
};

#endif
