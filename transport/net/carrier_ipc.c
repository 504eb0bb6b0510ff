/* transport/net/carrier_ipc.c: frames over a Unix socket between processes of one host. Its name is in the abstract
 * namespace, so that it leaves no file; whoever sees the name is kept out by his key. */
#include "transport/net/carrier.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "graph/base/error.h"

static bool allowed(const struct cluster_env *env)
{
    return env->ipc;
}

static weir_status listen_ipc(const struct carrier_here *here, struct member *card)
{
    char endpoint[64];
    uint64_t name = 0;
    if (!here->router)
        return WEIR_OK;
    card->ipc[0] = 0;
    if (getrandom(&name, sizeof(name), 0) < 0)
        return error_set(WEIR_E_UNSUPPORTED, "no name for a local socket");
    snprintf(endpoint, sizeof(endpoint), "ipc://@weir-%016llx", (unsigned long long)name);
    if (!carrier_bind(here, endpoint, card->ipc, sizeof(card->ipc)))
        return WEIR_OK;
    card->ipc[0] = 0;
    return WEIR_E_UNSUPPORTED; /* TCP will do */
}

static bool reaches(const struct member *me, const struct member *other)
{
    return !strcmp(me->host, other->host) && other->ipc[0];
}

static const char *endpoint_of(const struct member *other)
{
    return other->ipc;
}

const struct carrier carrier_ipc = {
    .name = "local socket", .allowed = allowed, .listen = listen_ipc, .reaches = reaches, .endpoint = endpoint_of};
