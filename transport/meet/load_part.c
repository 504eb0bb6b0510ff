/* transport/meet/load_part.c: weir_plan_load_part(): a plan file on one rank becomes a plan on each. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>
#include <weir/plan.h>
#include <zmq.h>

#include "graph/base/error.h"
#include "transport/meet/meet.h"

/* The connections of this one meeting. */
static weir_status take_part(const struct cluster_env *env, const weir_plan *whole, weir_plan **part)
{
    const struct report report = {0};
    struct keys keys;
    void *context = zmq_ctx_new();
    if (!context)
        return error_set(WEIR_E_MEMORY, "no memory to meet %u ranks", env->size);
    weir_status status = keys_open(&keys, env);
    struct meet meet = {.zmq_context = context, .env = env, .keys = &keys, .report = &report};
    if (!status)
        status = meet_part(&meet, whole, part);
    TEMP_FAILURE_RETRY(zmq_ctx_term(context)); /* a signal of the program's may interrupt it */
    return status;
}

weir_plan *weir_plan_load_part(const char *path)
{
    struct cluster_env env;
    weir_plan *whole = NULL, *part = NULL;
    if (error_null(path, "weir_plan_load_part", "path"))
        return NULL;
    if (cluster_env_read(NULL, &env))
        return NULL;
    if (env.size <= 1)
        return weir_plan_load(path);
    if (env.rank == 0) {
        whole = weir_plan_load(path);
        if (!whole)
            return NULL; /* the others learn of it from the launcher, or when they have waited for long enough */
    }
    take_part(&env, whole, &part);
    weir_plan_free(whole);
    return part;
}
