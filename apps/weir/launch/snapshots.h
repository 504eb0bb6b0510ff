/* apps/weir/launch/snapshots.h: folders in memory that outlive the ranks, for what they want to find when they are
 * started again (WEIR_SNAPSHOTS, which --snapshot-every of the training programs uses).
 *
 * The memory of a rank is gone with it. So snapshots are files of a tmpfs, which belongs to the host: after a kill all that
 * the host had is there, also the killed rank's, and writing one costs a copy and no disk. Every host has a folder of its
 * own, for what is elsewhere is another memory; the ranks put together what lies in them.
 *
 *     here       /dev/shm/weir-snapshots-aBcDeF, made and removed by the launcher; when that is killed, by its guard
 *     elsewhere  /dev/shm/weir-snapshots-TOKEN-2 of the host of slot 2, made and removed by a *keeper*: a shell behind a
 *                remote shell, which waits for the end of its standard input: the launcher's, or the connection's
 *
 * The folder here is made for every launch: it also has the session's key (key.h), and is in /tmp where /dev/shm is no
 * memory. Ranks are told only of folders in memory, and only when they may be started again.
 *
 * A launcher, its guard and a keeper hold a lock on their folder (flock), shared, as long as they live. So one that can be
 * locked alone was left behind by processes that were killed. This user's next launch on the host removes it, whatever its
 * options; on another host the next keeper does. Links stay, and folders with another
 * name, mode or owner.
 *
 * One thread: the launcher's only one.
 */
#ifndef APPS_WEIR_LAUNCH_SNAPSHOTS_H
#define APPS_WEIR_LAUNCH_SNAPSHOTS_H

#include "apps/weir/launch/hosts.h"

#include <sys/types.h>

enum { LAUNCH_SNAPSHOTS_BYTES = 96, LAUNCH_SNAPSHOTS_TOKEN = 16 /* digits */ };

typedef struct launch_keeper {
    int slot;    /* that its host is known by (launch_slot.number) */
    pid_t id;     /* 0: it has ended */
    int fd;       /* its standard input */
} launch_keeper;

typedef struct launch_snapshots {
    char here[LAUNCH_SNAPSHOTS_BYTES];      /* this host's folder; "": there is none */
    int lock;                               /* on it; -1: none */
    bool told;                              /* to ranks, which keep snapshots in it */
    char elsewhere[LAUNCH_SNAPSHOTS_BYTES]; /* without the number at its end; "": none is wanted */
    launch_keeper *keepers;                 /* owned */
    int keepers_count, keepers_room;
} launch_snapshots;

/* Removes what launches of this user left on this host. */
void launch_snapshots_remove_stale(void);

/* Makes this host's folder, which only this user can look into. `token` is what folders elsewhere are named after; NULL:
 * ranks keep no snapshots. */
void launch_snapshots_open(launch_snapshots *snapshots, const char *token);

/* Sees to it that there is a folder where each of these ranks will be. `shell`: the remote one. */
void launch_snapshots_keep(launch_snapshots *snapshots, const launch_slot *slots, int ranks, const char *shell);

/* A child that is a keeper; one of them has ended. */
bool launch_snapshots_is_keeper(const launch_snapshots *snapshots, pid_t id);
void launch_snapshots_ended(launch_snapshots *snapshots, pid_t id);

/* The folder of the slot's host; "": none. Returns `path`. */
const char *launch_snapshots_path(const launch_snapshots *snapshots, const launch_slot *slot,
                                  char path[LAUNCH_SNAPSHOTS_BYTES]);

/* Removes all of them, with what is in them; waits for keepers a few seconds. Also a zeroed one. */
void launch_snapshots_close(launch_snapshots *snapshots);

/* With all that is in it, no link followed; nothing when it is "". */
void launch_snapshots_remove(const char *path);

#endif
