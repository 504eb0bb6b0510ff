/* apps/weir/launch_watch.h: starts the ranks of a job and stays with them until all have ended.
 *
 *     running --first failure--> waiting --grace--> asked (SIGTERM) --2 s--> killed (SIGKILL)
 *        |                          |                  ^
 *        '--------- SIGINT, SIGTERM passed on ---------'   with 10 s; a second one kills at once
 *
 * The others of a rank that failed notice by themselves, and what they have to say about it is worth waiting for: that
 * is the grace. Whatever happens, nothing that the ranks have started outlives this call. One thread, the process's
 * only one; changes its signal mask and blocks until the end.
 */
#ifndef APPS_WEIR_LAUNCH_WATCH_H
#define APPS_WEIR_LAUNCH_WATCH_H

#include "apps/weir/launch_process.h"

/* Returns the exit status: 0 when all ended well, else the first failure's (128 and the signal for one that was ended
 * by a signal), 127 or 126 when the program could not be started, 1 when the launcher could not do its work. All but 0
 * is reported. */
int launch_watch(const launch_job *job);

#endif
