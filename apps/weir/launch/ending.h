/* apps/weir/launch/ending.h: how a rank ended, and what follows from it.
 *
 *     status 0                                   it is done
 *     130, 143; SIGINT, SIGTERM, SIGHUP,         it was asked to stop, and did: what there was to save is saved, and
 *     SIGQUIT, SIGPIPE                           nobody meant "again"
 *     2, 126, 127                                its command line makes no sense, or it cannot be started: it would
 *                                                end like that for ever
 *     any other status or signal                 it was lost: killed, crashed, out of memory, or without its peers.
 *                                                Starting it anew may help
 *
 * One thread; keeps no state.
 */
#ifndef APPS_WEIR_LAUNCH_ENDING_H
#define APPS_WEIR_LAUNCH_ENDING_H

#include <stdbool.h>

typedef struct launch_ending {
    bool known;
    bool by_signal;
    int number; /* exit status or signal */
} launch_ending;

/* The ending that waitpid() tells. */
launch_ending launch_ending_of(int status);

/* The ending that a shell tells, which tells of a signal in the only way it has. */
launch_ending launch_ending_of_shell(int status);

/* As a shell has it: 128 and the signal. */
int launch_ending_status(const launch_ending *ending);

bool launch_ending_is_stop(const launch_ending *ending); /* it was asked to */
bool launch_ending_is_loss(const launch_ending *ending); /* starting it anew may help */

#endif
