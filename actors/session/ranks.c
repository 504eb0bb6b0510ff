/* actors/session/ranks.c: the session as the owner of its cluster (struct cluster_owner in cluster.h): what other ranks
 * have to say to it, and learn of it. The cluster knows no sessions.
 *
 * All of it is called by the session's thread, or by whoever is at the network's sockets; nothing waits.
 *
 * weir_session_link() tells what lies between this rank and another, as its line has measured it. Numbers of the text are
 * whole, so that they are the same in every locale.
 */
#include <stddef.h>
#include <stdio.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"

static struct weir_session *session_of(struct cluster_owner *owner)
{
    return (struct weir_session *)((char *)owner - offsetof(struct weir_session, ranks));
}

static void ranks_lost(struct cluster_owner *owner, uint32_t culprit, const char *sentence)
{
    session_fail_peer(session_of(owner), culprit, "%s", sentence);
}

static void ranks_failed(struct cluster_owner *owner, uint32_t from, uint32_t culprit, bool cancelled, const char *sentence)
{
    session_fail_remote(session_of(owner), from, culprit, cancelled, sentence);
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
                                      .told = ranks_failed,
                                      .ends = ranks_end,
                                      .leave_run = ranks_leave_run,
                                      .waits = ranks_wait,
                                      .beat = ranks_beat,
                                      .slot = ranks_slot,
                                      .hold = ranks_hold,
                                      .limit = ranks_limit,
                                      .follow = ranks_follow};
}

/* Three digits at least, where there are so many. */
static void text_write(const struct measure *measure, char text[WEIR_LINK_BYTES])
{
    static const char *const units[] = {"bit", "kbit", "Mbit"};
    uint64_t rate = measure_rate(measure) * 8;
    int unit = 0;
    for (; unit < 2 && rate >= 100000; unit++)
        rate /= 1000;
    snprintf(text, WEIR_LINK_BYTES, "%llu%s %uus", (unsigned long long)rate, units[unit],
             (unsigned)measure->round_trip_us);
}

static weir_status link_refuse(weir_status status, int rank, const char *why)
{
    return error_set(status, "weir_session_link: rank %d %s", rank, why);
}

static weir_status link_find(const struct weir_session *s, int rank, struct measure *measure)
{
    if (rank < 0 || rank >= (s->built.cluster ? (int)s->built.cluster->env.size : 1))
        return link_refuse(WEIR_E_ARGUMENT, rank, "is none of the session's");
    if (!s->built.cluster || !s->built.cluster->wired[rank])
        return link_refuse(WEIR_E_ARGUMENT, rank, "is sent no registers over a network");
    if (!net_measure(s->built.cluster->net, (uint32_t)rank, measure))
        return link_refuse(WEIR_E_UNSUPPORTED, rank, "has a connection that measures nothing");
    if (!measure_rate(measure))
        return link_refuse(WEIR_E_STATE, rank, "has been sent nothing yet");
    return WEIR_OK;
}

weir_status weir_session_link(weir_session *s, int rank, weir_link *link)
{
    struct measure measure;
    if (error_null(link, "weir_session_link", "link"))
        return WEIR_E_ARGUMENT;
    *link = (weir_link){.bytes_per_s = 0};
    weir_status status = session_enter(s, "link");
    if (status)
        return status;
    status = link_find(s, rank, &measure);
    session_exit(s);
    if (status)
        return status;
    *link = (weir_link){.bytes_per_s = (double)measure_rate(&measure), .round_trip_s = measure.round_trip_us * 1e-6,
                        .full = measure_full(&measure)};
    text_write(&measure, link->text);
    return WEIR_OK;
}
