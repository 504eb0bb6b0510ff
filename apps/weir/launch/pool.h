/* apps/weir/launch/pool.h: the slots that ranks can have, and how many of them the next generation takes.
 *
 *     --hosts a:2,b:2 -n 4                     four slots; all are taken
 *     --hosts a:2,b:2,c:2 -n 4                 six, of which the first four that are there are taken: c is a spare
 *     ... --min-ranks 2                        when hosts are gone it goes on with what is left, if these are so many
 *     ... --ranks-file FILE                    FILE says how many are wanted, now and whenever it changes
 *
 * A host is gone when a rank on it could not be started or was lost with the connection. It is then asked every
 * few seconds, through the remote shell, whether it is back (`true`), and has its slots again in the next generation
 * after that. This host is never gone. Without --min-ranks none is: there all ranks are needed.
 *
 * One thread: the launcher's only one.
 */
#ifndef APPS_WEIR_LAUNCH_POOL_H
#define APPS_WEIR_LAUNCH_POOL_H

#include "apps/weir/launch/hosts.h"

#include <sys/types.h>

/* One that is reached through a remote shell. */
typedef struct launch_host {
    int slot;         /* the first that is there */
    bool gone;
    pid_t probe;       /* that asks it; 0: none */
    double probe_at;   /* when the next is to */
} launch_host;

typedef struct launch_pool {
    const char *program;  /* borrowed, as all texts here; for messages */
    const char *shell;    /* the remote one */
    const char *file;     /* that says how many ranks are wanted; NULL: none */
    launch_slot *slots; /* owned: all */
    int room;             /* of them */
    int wanted;           /* ranks */
    int least;            /* with so many it goes on; 0: all that are wanted */
    launch_host *hosts;   /* owned: the remote ones among slots */
    int hosts_count;
    char last[32];        /* by the file, when it was last looked at */
    double look_at;       /* when to do so again */
} launch_pool;

/* Makes what can be gone, and looks at the file. The pool has its other members already. Returns -1, or an exit status
 * after reporting. */
int launch_pool_open(launch_pool *pool);
void launch_pool_close(launch_pool *pool);

/* Ranks that could be started now, and whether these are enough. */
int launch_pool_count(const launch_pool *pool);
bool launch_pool_is_enough(const launch_pool *pool);

/* Writes the slots of the next generation; returns how many. `slots` has room for pool->room. */
int launch_pool_take(const launch_pool *pool, launch_slot *slots);

/* A rank could not be started there, or the connection was lost. */
void launch_pool_lose(launch_pool *pool, const launch_slot *slot);

/* To be called now and then: looks at the file, asks hosts. True: another number of ranks is wanted than before. */
bool launch_pool_look(launch_pool *pool);

/* Seconds until there is something to look at; INFINITY: never. */
double launch_pool_pause(const launch_pool *pool);

/* A child ended that is no rank. */
void launch_pool_probed(launch_pool *pool, pid_t id, int status);

/* The names of hosts that are gone, "b, c". */
const char *launch_pool_gone(const launch_pool *pool, char *text, size_t bytes);

#endif
