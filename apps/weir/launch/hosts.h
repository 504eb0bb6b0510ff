/* apps/weir/launch/hosts.h: which rank goes where.
 *
 *     a:2,b:2     ranks 0 and 1 on a, 2 and 3 on b
 *     a,b,a       one on each: 0 and 2 on a, 1 on b
 *
 * A host named localhost, 127.0.0.1, ::1 or as this one is this one: what goes there is started without a remote shell.
 * One thread; keeps no state.
 */
#ifndef APPS_WEIR_LAUNCH_HOSTS_H
#define APPS_WEIR_LAUNCH_HOSTS_H

#include <stdbool.h>

#define LAUNCH_RANKS_MAX 1024
#define LAUNCH_HOST_BYTES 256

/* Where one rank goes. */
typedef struct launch_slot {
    char host[LAUNCH_HOST_BYTES]; /* as the user wrote it, "user@b"; an address without its brackets */
    bool remote;
    int number;                   /* of the host: of the first of all slots that is on it */
    int local_rank, local_size;   /* among the ranks of its host */
} launch_slot;

/* Makes a slot for each rank: of `hosts`, or of `count` ranks on this host when `hosts` is NULL. A `count` of 0 means
 * as many as the hosts say. When the number of ranks `varies`, there may be more slots than `count`, and without hosts
 * there are LAUNCH_RANKS_MAX. Returns -1 with *slots (owned by the caller) and *room, how many they are, or an exit
 * status after reporting a mistake for `program`. */
int launch_hosts_slots(const char *program, const char *hosts, int count, bool varies, launch_slot **slots,
                       int *room);

/* Counts, for each of so many ranks, those of its host. */
void launch_hosts_count(launch_slot *slots, int ranks);

/* The host's name alone: "b" of "user@b". */
const char *launch_hosts_name(const launch_slot *slot);

#endif
