/* transport/net/carrier_tcp.c: frames over TCP, which reaches everybody; so without it there is no session. */
#include "transport/net/carrier.h"

static bool allowed(const struct cluster_env *env)
{
    return env->size > 1;
}

static weir_status listen_tcp(const struct carrier_here *here, struct member *card)
{
    char endpoint[320];
    if (!here->router)
        return WEIR_OK;
    weir_status status = meet_bind_address(here->env, endpoint, sizeof(endpoint));
    return status ? status : carrier_bind(here, endpoint, card->tcp, sizeof(card->tcp));
}

static bool reaches(const struct member *me, const struct member *other)
{
    return me != other && other->tcp[0];
}

static const char *endpoint_of(const struct member *other)
{
    return other->tcp;
}

const struct carrier carrier_tcp = {
    .name = "TCP", .allowed = allowed, .listen = listen_tcp, .reaches = reaches, .endpoint = endpoint_of};
