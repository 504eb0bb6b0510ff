/* apps/weir/launch/watch.h: starts the ranks of a job and stays with them until all have ended; and starts them anew
 * when one was lost, or when another number of ranks is wanted.
 *
 *     running --first failure--> waiting --grace--> asked (SIGTERM) --2 s--> killed (SIGKILL)
 *        |                          |                  ^                        |
 *        '--------- SIGINT, SIGTERM passed on ---------'   with 60 s; a second one kills at once
 *        |                                             |                        v
 *        '- a loss, restarts left: with 0.5 s ---------'   all have ended: the next generation, running
 *        '- another number wanted: SIGTERM, 60 s ------'
 *
 * The others of a rank that failed notice by themselves, and what they have to say about it is worth waiting for: that
 * is the grace. A rank that one of them has declared lost gets none: it is killed as soon as one has failed. launch_ending.h tells what counts as a loss; a lost rank ends all, as none can go on without it, and all
 * are started anew: rank 0's part is taken by a new process like any other's. They are told the generation, and go on
 * from what they saved. A planned change of their number is no loss, and is not
 * counted; who is then asked to stop ends with 143 when it has saved (launch_ending.h), or with 0 when it is done, and
 * then all is.
 *
 * Nothing that the ranks have started outlives its generation. One thread, the process's only one; changes its signal mask
 * and blocks until the end.
 */
#ifndef APPS_WEIR_LAUNCH_WATCH_H
#define APPS_WEIR_LAUNCH_WATCH_H

#include "apps/weir/launch/pool.h"
#include "apps/weir/launch/process.h"

/* Returns the exit status: 0 when all of the last generation ended well, else its first failure's (128 and the signal
 * for one that was ended by a signal), 127 or 126 when the program could not be started, 1 when the launcher could not
 * do its work. All but 0, and what stops for the user's SIGINT or SIGTERM, is reported. `job` brings no slots: they
 * are taken from `pool`, which is open. */
int launch_watch(launch_job *job, launch_pool *pool);

#endif
