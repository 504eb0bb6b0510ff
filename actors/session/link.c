/* actors/session/link.c: what lies between this rank and another, as its line has measured it. Numbers of the text are
 * whole, so that they are the same in every locale. */
#include <stdio.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"

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
