/* actors/session/ranks.c: the session as the owner of its cluster (struct cluster_owner in cluster.h): what other ranks
 * have to say to it, and learn of it. The cluster knows no sessions.
 *
 * All of it is called by the session's thread, or by whoever is at the network's sockets; nothing waits.
 */
#include <stddef.h>

#include "actors/session/session.h"

static struct weir_session *session_of(struct cluster_owner *owner)
{
    return (struct weir_session *)((char *)owner - offsetof(struct weir_session, ranks));
}

static void ranks_lost(struct cluster_owner *owner, uint32_t culprit, const char *sentence)
{
    session_fail_peer(session_of(owner), culprit, "%s", sentence);
}

static void ranks_told(struct cluster_owner *owner, uint32_t from, uint32_t culprit, bool cancelled, const char *sentence)
{
    session_fail_told(session_of(owner), from, culprit, cancelled, sentence);
}

static void ranks_end(struct cluster_owner *owner, const struct last_step *last)
{
    session_end_before(session_of(owner), last);
}

static void ranks_leave_run(struct cluster_owner *owner)
{
    session_leave_run(session_of(owner));
}

static void ranks_wait(struct cluster_owner *owner, uint32_t rank, const void *entries, uint32_t count)
{
    struct weir_session *s = session_of(owner);
    if (s->observed.watch)
        watch_remote(s->observed.watch, rank, entries, count);
}

static void ranks_beat(struct cluster_owner *owner, struct wire_frame *frame)
{
    session_beat(session_of(owner), frame);
}

static uint32_t ranks_slot(struct cluster_owner *owner, uint32_t regst)
{
    return session_of(owner)->built.outs[regst].regst.slot;
}

static void ranks_hold(struct cluster_owner *owner)
{
    session_hold_begin(session_of(owner));
}

static void ranks_limit(struct cluster_owner *owner, int64_t step)
{
    session_hold_end(session_of(owner), step);
}

static bool ranks_follow(struct cluster_owner *owner, int64_t step)
{
    return session_followed(session_of(owner), step);
}

void session_own_ranks(struct weir_session *s)
{
    s->ranks = (struct cluster_owner){.ending = &s->ending,
                                      .run = &s->run,
                                      .lost = ranks_lost,
                                      .told = ranks_told,
                                      .ends = ranks_end,
                                      .leave_run = ranks_leave_run,
                                      .waits = ranks_wait,
                                      .beat = ranks_beat,
                                      .slot = ranks_slot,
                                      .hold = ranks_hold,
                                      .limit = ranks_limit,
                                      .follow = ranks_follow};
}
