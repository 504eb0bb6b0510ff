/* transport/net/carrier.c: the table of carriers; see the header. */
#include "transport/net/carrier.h"

#include <zmq.h>

#include "graph/base/error.h"

static const struct carrier *const carriers[] = {&carrier_shm, &carrier_ipc, &carrier_tcp};

enum { CARRIERS = sizeof(carriers) / sizeof(carriers[0]) };

weir_status carriers_listen(const struct carrier_here *here, struct member *card)
{
    for (int i = 0; i < CARRIERS; i++) {
        weir_status status = carriers[i]->allowed(here->env) ? carriers[i]->listen(here, card) : WEIR_OK;
        if (status && status != WEIR_E_UNSUPPORTED)
            return status;
    }
    return WEIR_OK;
}

const struct carrier *carrier_of_frames(const struct cluster_env *env, const struct member *me,
                                        const struct member *other)
{
    for (int i = 0; i < CARRIERS; i++)
        if (carriers[i]->endpoint && carriers[i]->allowed(env) && carriers[i]->reaches(me, other))
            return carriers[i];
    return &carrier_tcp;
}

const struct carrier *carrier_of_registers(const struct cluster_env *env, const struct member *me,
                                           const struct member *other)
{
    for (int i = 0; i < CARRIERS; i++)
        if (carriers[i]->map && carriers[i]->allowed(env) && carriers[i]->reaches(me, other))
            return carriers[i];
    return NULL;
}

weir_status carrier_bind(const struct carrier_here *here, const char *endpoint, char *bound, size_t bytes)
{
    if (zmq_bind(here->router, endpoint))
        return error_set(WEIR_E_PEER, "rank %u cannot listen at %s: %s", here->env->rank, endpoint,
                         zmq_strerror(zmq_errno()));
    if (zmq_getsockopt(here->router, ZMQ_LAST_ENDPOINT, bound, &bytes))
        return error_set(WEIR_E_PEER, "rank %u listens at %s, but not where: %s", here->env->rank, endpoint,
                         zmq_strerror(zmq_errno()));
    return WEIR_OK;
}
