/* apps/weir/launch/self.h: what the launcher changes for itself: it takes signals from a descriptor, may open as many
 * files as there are, and is a subreaper: what a rank leaves behind outside of its process group (a daemon in a session
 * of its own) becomes its child. One thread, the process's only one.
 */
#ifndef APPS_WEIR_LAUNCH_SELF_H
#define APPS_WEIR_LAUNCH_SELF_H

#include "apps/weir/launch/process.h"

/* To be called first: descriptors 0 to 2 are there from now on, so that no pipe gets their numbers. */
void launch_self_fill_files(void);

/* Returns the signalfd (-1: there is none), and what ranks are to have as it was. */
int launch_self_change(launch_origin *origin);

/* Kills all children but the guard and those that keep snapshots, until none is left: theirs come after them. */
void launch_self_kill_strays(pid_t guard, const launch_snapshots *snapshots);

#endif
