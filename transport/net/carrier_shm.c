/* transport/net/carrier_shm.c: registers and messages in memory that both ranks see (transport/net/share.h). What the
 * session itself says to the other goes as frames all the same. */
#include "transport/net/carrier.h"

#include <string.h>

static bool allowed(const struct cluster_env *env)
{
    return env->shm;
}

static weir_status listen_shm(const struct carrier_here *here, struct member *card)
{
    if (!here->share)
        return WEIR_OK;
    card->segment_fd = here->share->segment.fd;
    card->segment_bytes = here->share->segment.bytes;
    card->segment_cookie = here->share->segment.cookie;
    return WEIR_OK;
}

static bool reaches(const struct member *me, const struct member *other)
{
    return !strcmp(me->host, other->host) && me->segment_fd >= 0 && other->segment_fd >= 0;
}

static weir_status map(struct share *share, const weir_plan *plan, uint32_t rank, const struct member *other)
{
    return share_map(share, plan, rank, other->pid, other->segment_fd, other->segment_bytes, other->segment_cookie);
}

const struct carrier carrier_shm = {
    .name = "shared memory", .allowed = allowed, .listen = listen_shm, .reaches = reaches, .map = map};
