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
    keys_close(&keys);
    return status;
}

/* Rank 0 takes it from the file, where others have what it then sends them. */
static weir_plan *load_part(const struct cluster_env *env, const char *path)
{
    weir_plan *part = NULL, *whole = env->rank ? NULL : weir_plan_load(path);
    if (whole || env->rank)
        take_part(env, whole, &part); /* without, the others learn of it from the launcher, or when they have waited */
    weir_plan_free(whole);
    return part;
}

weir_plan *weir_plan_load_part(const char *path)
{
    struct cluster_env env;
    weir_plan *plan = NULL;
    if (error_null(path, "weir_plan_load_part", "path"))
        return NULL;
    if (!cluster_env_read(NULL, &env))
        plan = env.size <= 1 ? weir_plan_load(path) : load_part(&env, path);
    cluster_env_wipe(&env);
    return plan;
}
