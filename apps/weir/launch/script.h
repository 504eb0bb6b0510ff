/* apps/weir/launch/script.h: what the shell on another host is told to do.
 *
 * The script goes to the standard input of `sh`, so the session's secret is in no list of processes; it writes the secret
 * into a file that only the user can read, and the launcher's rates into another; sets the environment, goes to the same
 * directory if there is one, and runs the program with its standard input at /dev/null; then it removes the files. The
 * shell's own standard input carries what the launcher has to say:
 *
 *     "TERM\n"     send this signal to the program and all that it started
 *     the end      the launcher or the connection is gone: remove the files, and kill them all
 *
 * and its standard error two lines for the launcher, each behind the job's token: "pid 4711" when the program is about
 * to begin, and "status 0" when it has ended.
 */
#ifndef APPS_WEIR_LAUNCH_SCRIPT_H
#define APPS_WEIR_LAUNCH_SCRIPT_H

#include "apps/weir/launch/process.h"

/* The script of one rank, owned by the caller. NULL: no memory. */
char *launch_script_write(const launch_job *job, int rank, size_t *bytes);

#endif
