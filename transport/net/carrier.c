/* transport/net/carrier.c: see the header. */
#include "transport/net/carrier.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#include "graph/base/error.h"

static weir_status router_bind(const struct carrier_here *here, const char *endpoint, char *bound, size_t bytes)
{
    if (zmq_bind(here->router, endpoint))
        return error_set(WEIR_E_PEER, "rank %u cannot listen at %s: %s", here->env->rank, endpoint,
                         zmq_strerror(zmq_errno()));
    if (zmq_getsockopt(here->router, ZMQ_LAST_ENDPOINT, bound, &bytes))
        return error_set(WEIR_E_PEER, "rank %u listens at %s, but not where: %s", here->env->rank, endpoint,
                         zmq_strerror(zmq_errno()));
    return WEIR_OK;
}

/* ---- shared memory: what the session itself says to the other goes as frames all the same ---- */

static weir_status shm_listen(const struct carrier_here *here, struct member *card)
{
    if (!here->share)
        return WEIR_OK;
    card->segment_fd = here->share->segment.fd;
    card->segment_bytes = here->share->segment.bytes;
    card->segment_cookie = here->share->segment.cookie;
    return WEIR_OK;
}

static bool shm_reaches(const struct member *me, const struct member *other)
{
    return !strcmp(me->host, other->host) && me->segment_fd >= 0 && other->segment_fd >= 0;
}

static weir_status shm_map(struct share *share, const weir_plan *plan, uint32_t rank, const struct member *other)
{
    return share_map(share, plan, rank, other->pid, other->segment_fd, other->segment_bytes, other->segment_cookie);
}

/* ---- a Unix socket. Its name is in the abstract namespace, so that it leaves no file; a process that sees the name is
 * kept out by its key ---- */

static weir_status ipc_listen(const struct carrier_here *here, struct member *card)
{
    char endpoint[64];
    uint64_t name = 0;
    if (!here->router)
        return WEIR_OK;
    card->ipc[0] = 0;
    if (getrandom(&name, sizeof(name), 0) < 0)
        return error_set(WEIR_E_UNSUPPORTED, "no name for a local socket");
    snprintf(endpoint, sizeof(endpoint), "ipc://@weir-%016llx", (unsigned long long)name);
    if (!router_bind(here, endpoint, card->ipc, sizeof(card->ipc)))
        return WEIR_OK;
    card->ipc[0] = 0;
    return WEIR_E_UNSUPPORTED; /* TCP will do */
}

static bool ipc_reaches(const struct member *me, const struct member *other)
{
    return !strcmp(me->host, other->host) && other->ipc[0];
}

static const char *ipc_endpoint(const struct member *other)
{
    return other->ipc;
}

/* ---- TCP, which reaches everybody; so without it there is no session ---- */

static weir_status tcp_listen(const struct carrier_here *here, struct member *card)
{
    char endpoint[320];
    if (!here->router)
        return WEIR_OK;
    weir_status status = meet_bind_address(here->env, endpoint, sizeof(endpoint));
    return status ? status : router_bind(here, endpoint, card->tcp, sizeof(card->tcp));
}

static bool tcp_reaches(const struct member *me, const struct member *other)
{
    return me != other && other->tcp[0];
}

static const char *tcp_endpoint(const struct member *other)
{
    return other->tcp;
}

/* ---- the table ---- */

const struct carrier carrier_shm = {
    .name = "shared memory", .as = CLUSTER_SHM, .listen = shm_listen, .reaches = shm_reaches, .map = shm_map};
const struct carrier carrier_ipc = {.name = "local socket",
                                    .as = CLUSTER_IPC,
                                    .listen = ipc_listen,
                                    .reaches = ipc_reaches,
                                    .endpoint = ipc_endpoint};
const struct carrier carrier_tcp = {
    .name = "TCP", .as = CLUSTER_TCP, .listen = tcp_listen, .reaches = tcp_reaches, .endpoint = tcp_endpoint};

static const struct carrier *const carriers[] = {&carrier_shm, &carrier_ipc, &carrier_tcp};

enum { CARRIERS = sizeof(carriers) / sizeof(carriers[0]) };

/* TCP always is, for frames. */
static bool allowed(const struct cluster_env *env, const struct carrier *carrier)
{
    return (env->carriers | CLUSTER_TCP) & carrier->as;
}

weir_status carriers_listen(const struct carrier_here *here, struct member *card)
{
    for (int i = 0; i < CARRIERS; i++) {
        weir_status status = allowed(here->env, carriers[i]) ? carriers[i]->listen(here, card) : WEIR_OK;
        if (status && status != WEIR_E_UNSUPPORTED)
            return status;
    }
    return WEIR_OK;
}

const struct carrier *carrier_of_frames(const struct cluster_env *env, const struct member *me,
                                        const struct member *other)
{
    for (int i = 0; i < CARRIERS; i++)
        if (carriers[i]->endpoint && allowed(env, carriers[i]) && carriers[i]->reaches(me, other))
            return carriers[i];
    return &carrier_tcp;
}

const struct carrier *carrier_of_registers(const struct cluster_env *env, const struct member *me,
                                           const struct member *other)
{
    for (int i = 0; i < CARRIERS; i++)
        if (carriers[i]->map && allowed(env, carriers[i]) && carriers[i]->reaches(me, other))
            return carriers[i];
    return NULL;
}
