/* apps/common/ranks.h: what a program does once, although every rank of a cluster runs it (<weir/cluster.h>).
 *
 * All ranks compute and pull the same values, so the first one speaks for all: banners, progress, results, logs, plans.
 * A trace, which differs between ranks, goes to a file of each. Alone a process is the first of one. Keeps no state.
 */
#ifndef APPS_COMMON_RANKS_H
#define APPS_COMMON_RANKS_H

#include "apps/common/paths.h"

#include <weir/weir.h>

bool ranks_first(void);

/* Whether this rank has a device of the session's plan. One that has none, as there are more ranks than devices, takes
 * part in runs and reads, but pulls nothing. The session is at rest. */
bool ranks_has_device(const weir_session *session);

/* The file that this rank writes for `path`: alone just that; else "run.rank2.json" for "run.json". Returns `own`, or
 * NULL when `path` is NULL. */
const char *ranks_path(const char *path, char own[PATHS_BYTES]);

/* The same of another rank; `path` is not NULL. */
const char *ranks_path_of(const char *path, int rank, char own[PATHS_BYTES]);

#endif
