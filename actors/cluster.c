/* actors/cluster.c: what a session knows of other ranks. It is alone. */
#include "actors/session.h"

uint64_t session_remote_fired(const struct weir_session *session, uint32_t *silent_rank, int64_t *silent_ns)
{
    (void)session;
    *silent_rank = UINT32_MAX;
    *silent_ns = 0;
    return 0;
}

void session_send_waits(struct weir_session *session, const struct wait_entry *entries, uint32_t count)
{
    (void)session, (void)entries, (void)count;
}
