/* apps/common/workers.c: see the header. Each rank speaks for itself: masks differ between ranks. */
#include "apps/common/workers.h"

#include <stdio.h>

void workers_tell(const char *program, const weir_session *session)
{
    weir_session_stats stats;
    weir_session_get_stats(session, &stats);
    if (stats.cores >= stats.cores_online || stats.workers < stats.cores || stats.queue_count <= stats.workers)
        return;
    fprintf(stderr, "%s: %d worker%s for %d devices: this process may use %d of %d cores\n", program, stats.workers,
            stats.workers == 1 ? "" : "s", stats.queue_count, stats.cores, stats.cores_online);
}
