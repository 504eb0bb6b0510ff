/* apps/common/train/workers.c: see the header. Each rank speaks for itself: masks differ between ranks. */
#include "apps/common/train/workers.h"

#include <stdio.h>

void workers_tell(const char *program, const weir_session *session)
{
    weir_session_stats stats;
    int devices = 0;
    weir_session_get_stats(session, &stats);
    for (int q = 0; q < stats.queue_count; q++)
        devices += !stats.queue[q].io;
    if (stats.cores >= stats.cores_online || stats.workers < stats.cores || devices <= stats.workers)
        return;
    fprintf(stderr, "%s: %d worker%s for %d devices: this process may use %d of %d cores\n", program, stats.workers,
            stats.workers == 1 ? "" : "s", devices, stats.cores, stats.cores_online);
}
