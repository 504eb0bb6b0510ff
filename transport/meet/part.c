/* transport/meet/part.c: the ranks meet as they do for a session (transport/meet/meet.c), and each asks for its
 * part piece by piece until it has all of it. A part is made when it is asked for the first time, and checked by who
 * gets it like a file from anywhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/plan/form/file.h"
#include "graph/plan/spread/spread.h"
#include "transport/meet/inside.h"

struct encoded {
    void *bytes; /* owned */
    size_t count;
};

struct parts {
    const weir_plan *spread;  /* borrowed */
    struct encoded *encoded;  /* owned, one a rank */
};

static weir_status part_encode(const struct parts *parts, uint32_t rank, struct encoded *encoded)
{
    weir_plan *part = plan_part(parts->spread, rank);
    if (!part)
        return WEIR_E_MEMORY;
    weir_status status = plan_encode(part, &encoded->bytes, &encoded->count);
    weir_plan_free(part);
    if (status == WEIR_OK && encoded->count > PLAN_FILE_BYTES_MAX)
        status = error_set(WEIR_E_PLAN, "rank %u's part of the plan has %zu bytes, more than the %u that can be sent", rank,
                           encoded->count, PLAN_FILE_BYTES_MAX);
    return status;
}

static weir_status part_give(void *ctx, uint32_t rank, const void **bytes, size_t *bytes_count)
{
    struct parts *parts = ctx;
    struct encoded *encoded = &parts->encoded[rank];
    weir_status status = encoded->bytes ? WEIR_OK : part_encode(parts, rank, encoded);
    *bytes = encoded->bytes;
    *bytes_count = encoded->count;
    return status;
}

static weir_status give_all(struct meeting *meeting, const weir_plan *whole, weir_plan **part)
{
    const struct cluster_env *env = meeting->meet->env;
    weir_plan *spread = plan_spread(whole, env->size, env->devices);
    if (!spread)
        return WEIR_E_ARGUMENT;
    struct parts parts = {.spread = spread, .encoded = calloc(env->size, sizeof *parts.encoded)};
    meeting->part = part_give;
    meeting->part_ctx = &parts;
    weir_status status = parts.encoded ? meet_run(meeting) : error_set(WEIR_E_MEMORY, "no memory for the plan's parts");
    if (status == WEIR_OK) {
        *part = plan_part(spread, 0);
        status = *part ? WEIR_OK : WEIR_E_MEMORY;
    }
    for (uint32_t r = 0; parts.encoded && r < env->size; r++)
        free(parts.encoded[r].bytes);
    free(parts.encoded);
    weir_plan_free(spread);
    return status;
}

static weir_status take_mine(struct meeting *meeting, weir_plan **part)
{
    const struct cluster_env *env = meeting->meet->env;
    weir_status status = meet_run(meeting);
    if (status == WEIR_OK) {
        *part = plan_decode(meeting->part_bytes, meeting->part_count);
        if (!*part)
            status = error_set(WEIR_E_PEER, "rank 0 sent rank %u an invalid plan: %s", env->rank, weir_error());
    }
    if (*part && ((*part)->ranks != env->size || (*part)->part != 1 + env->rank)) {
        status = error_set(WEIR_E_PEER, "rank 0 sent rank %u of %u the part %u of %u", env->rank, env->size,
                           (*part)->part - 1, (*part)->ranks);
        weir_plan_free(*part);
        *part = NULL;
    }
    free(meeting->part_bytes);
    return status;
}

weir_status meet_part(struct meet *meet, const weir_plan *whole, weir_plan **part)
{
    const struct cluster_env *env = meet->env;
    struct meet here = *meet;
    weir_status status;
    *part = NULL;
    if (env->size <= 1) {
        *part = plan_spread(whole, 1, env->devices);
        return *part ? WEIR_OK : WEIR_E_ARGUMENT;
    }
    here.plan = NULL;
    here.members = calloc(env->size, sizeof *here.members);
    struct meeting *meeting = calloc(1, sizeof *meeting);
    if (here.members && meeting) {
        struct member *mine = &here.members[env->rank];
        mine->pid = (uint32_t)getpid();
        meet_host(mine->host, sizeof mine->host);
        gethostname(mine->name, sizeof mine->name - 1);
        meeting->meet = &here;
        meeting->purpose = MEET_FOR_PART;
        meet_name(meeting->name, "part of a plan");
        status = env->rank == 0 ? give_all(meeting, whole, part) : take_mine(meeting, part);
    } else {
        status = error_set(WEIR_E_MEMORY, "no memory to meet %u ranks", env->size);
    }
    free(meeting);
    free(here.members);
    return status;
}
