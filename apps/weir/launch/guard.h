/* apps/weir/launch/guard.h: what ends the ranks when the launcher itself is killed.
 *
 * A process that does nothing but read a pipe from the launcher. It is told what is started and what has ended; when
 * the pipe ends before it was let go, the launcher is gone, and it kills what is left: whole process groups, so that
 * a rank that is a shell leaves nothing behind. (The kernel kills the launcher's own children, but not theirs.) Then it
 * removes the folder of snapshots. One thread.
 */
#ifndef APPS_WEIR_LAUNCH_GUARD_H
#define APPS_WEIR_LAUNCH_GUARD_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct launch_guard {
    pid_t process;
    int pipe;
} launch_guard;

/* To be called before anything is started and before any pipe is opened: the guard keeps what is open. `folder` is
 * removed when the launcher is gone and all that it watched have ended; "": none. */
bool launch_guard_start(launch_guard *guard, const char *folder);

/* `target` is as in kill(): a process, or a process group with a minus. */
void launch_guard_watch(launch_guard *guard, pid_t target);
void launch_guard_forget(launch_guard *guard, pid_t target);

/* Lets the guard go and waits until it has gone. Nothing may be watched. */
void launch_guard_stop(launch_guard *guard);

#endif
