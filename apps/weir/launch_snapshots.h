/* apps/weir/launch_snapshots.h: a folder in memory that outlives the ranks, for what they want to find when they are
 * started again (WEIR_SNAPSHOTS, which --snapshot-every of the training programs uses).
 *
 * What a rank has in its own memory is gone with it. So snapshots are files of a tmpfs, which belongs to the host:
 * after a kill every shard is there, also those of the rank that was killed, and writing one costs a copy and no disk.
 * It is made where all ranks are on this host, for elsewhere it would be another folder; and removed when the launcher
 * ends (but not when that is killed by SIGKILL).
 */
#ifndef APPS_WEIR_LAUNCH_SNAPSHOTS_H
#define APPS_WEIR_LAUNCH_SNAPSHOTS_H

enum { LAUNCH_SNAPSHOTS_BYTES = 64 };

/* Makes one that only this user can look into; "" when the host has no /dev/shm that is memory. Returns `path`. */
const char *launch_snapshots_make(char path[LAUNCH_SNAPSHOTS_BYTES]);

/* With all that is in it; nothing when it is "". */
void launch_snapshots_remove(const char *path);

#endif
