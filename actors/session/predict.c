/* actors/session/predict.c: weir_session_predict(): the plan as it is spread over this session's ranks goes to weir_predict(), with
 * what the meeting has told of them. The cards of all ranks name their hosts; carriers, and whether there is a key, are the same on all.
 */
#include <weir/time.h>

#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"

#define CALL ": weir_predict: " /* behind the line of this file, which a user has no use for */

static bool on_one_host(const struct cluster *c, uint32_t a, uint32_t b)
{
    return !strcmp(c->members[a].host, c->members[b].host);
}

/* Ranks of each host, in rank order; 0: some host has more than another, or its ranks do not follow each other. */
static uint32_t ranks_of_host(const struct cluster *c)
{
    const uint32_t size = c->env.size;
    uint32_t count = 1;
    while (count < size && on_one_host(c, 0, count))
        count++;
    for (uint32_t r = count; r < size; r++) {
        const uint32_t first = r - r % count;
        if (!on_one_host(c, first, r))
            return 0;
        for (uint32_t before = 0; before < first; before += count)
            if (on_one_host(c, before, r))
                return 0;
    }
    return size % count ? 0 : count;
}

/* The carriers that are allowed, without shared memory where this rank has found that it shares none with a rank of its host. */
static unsigned carriers_of(const struct cluster *c)
{
    unsigned carriers = c->env.carriers;
    for (uint32_t r = 0; r < c->env.size; r++)
        if (c->wired[r] && on_one_host(c, c->env.rank, r))
            carriers &= ~(unsigned)CLUSTER_SHM;
    return carriers;
}

static weir_status predict(const struct weir_session *s, const weir_rates *rates, weir_prediction *prediction)
{
    const struct cluster *c = s->built.cluster;
    char carriers[CLUSTER_CARRIERS_BYTES];
    const uint32_t per_host = c ? ranks_of_host(c) : 1;
    if (s->plan->part)
        return error_set(WEIR_E_UNSUPPORTED, "weir_session_predict: this rank has only its part of the plan; weir predict predicts the whole");
    if (!per_host)
        return error_set(WEIR_E_UNSUPPORTED, "weir_session_predict: each host must have as many ranks as the others, one behind the other");
    weir_status status = weir_predict(s->plan, rates, prediction, .workers = (int)crew_places(s->workers.crew), .per_host = (int)per_host,
                                      .carrier = c ? cluster_carriers_text(carriers_of(c), carriers) : NULL, .no_key = c && !*c->members[0].key);
    const char *why = status ? strstr(weir_error(), CALL) : NULL;
    return why ? error_set(status, "weir_session_predict: %s", why + strlen(CALL)) : status;
}

weir_status weir_session_predict(weir_session *s, const weir_rates *rates, weir_prediction *prediction)
{
    if (error_null(rates, "weir_session_predict", "rates") || error_null(prediction, "weir_session_predict", "prediction"))
        return WEIR_E_ARGUMENT;
    weir_status status = session_enter(s, "predict");
    if (status)
        return status;
    status = predict(s, rates, prediction);
    session_exit(s);
    return status;
}
