/* actors/session/cluster_open.c: what a session of several ranks has beside the single one: it is made first, and is
 * the last to go. See cluster.h. */
#define _GNU_SOURCE
#include "actors/session/cluster.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/session/session.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/spread.h"

/* ---- open ---- */

static void card_fill(struct cluster *c, struct member *card)
{
    meet_host(card->host, sizeof(card->host));
    if (gethostname(card->name, sizeof(card->name) - 1))
        card->name[0] = '?';
    card->pid = (uint32_t)getpid();
    card->devices = c->env.devices;
    card->segment_fd = -1;
}

static weir_status cluster_alloc(struct weir_session *s, struct cluster *c)
{
    uint32_t size = c->env.size;
    c->session = s;
    c->own.segment.fd = -1;
    c->members = calloc(size, sizeof(*c->members));
    c->peers = calloc(size, sizeof(*c->peers));
    c->mapped = calloc(size, sizeof(*c->mapped));
    c->wired = calloc(size, sizeof(*c->wired));
    c->left = calloc(size, sizeof(*c->left));
    c->begun = calloc(size, sizeof(*c->begun));
    c->here = calloc((size_t)s->plan->spaces_count + 1, sizeof(*c->here));
    c->idle = calloc(size, sizeof(*c->idle));
    if (!c->members || !c->peers || !c->mapped || !c->wired || !c->left || !c->begun || !c->here || !c->idle)
        return error_set(WEIR_E_MEMORY, "no memory for a session of %u ranks", size);
    for (uint32_t r = 0; r < size; r++)
        atomic_init(&c->left[r], -1);
    for (uint32_t i = 0; i < s->plan->spaces_count; i++)
        c->here[i] = s->plan->spaces[i].rank == c->env.rank && device_host(s->plan->spaces[i].kind);
    memset(c->idle, true, size * sizeof(*c->idle));
    for (uint32_t q = 0; q < s->plan->queues_count; q++)
        if (s->plan->queues[q].kind != PLAN_OUTSIDE)
            c->idle[s->plan->spaces[s->plan->queues[q].space.i].rank] = false;
    return WEIR_OK;
}

static weir_status check_part(const weir_plan *plan, const struct cluster_env *env)
{
    if (!plan->part || (plan->part == env->rank + 1 && plan->ranks == env->size))
        return WEIR_OK;
    return error_set(WEIR_E_ARGUMENT, "the plan is the part of rank %u of %u; this is rank %u of %u", plan->part - 1,
                     plan->ranks, env->rank, env->size);
}

static weir_status open_ranks(struct weir_session *s, const struct cluster_env *env)
{
    weir_status status = WEIR_OK;
    if (!s->plan->part) {
        s->plan = s->spread = plan_spread(s->plan, env->size, env->devices);
        status = s->plan ? WEIR_OK : WEIR_E_ARGUMENT;
    }
    if (status)
        return status;
    struct cluster *c = s->cluster = calloc(1, sizeof(*c));
    if (!c)
        return error_set(WEIR_E_MEMORY, "no memory for a session of %u ranks", env->size);
    c->env = *env;
    c->env.levels = op_levels();
    status = op_level(&c->env.level);
    if (!status)
        status = cluster_alloc(s, c);
    if (!status)
        status = rounds_open(&c->rounds, env->size);
    struct net_hooks hooks = cluster_hooks;
    hooks.ctx = c;
    if (!status) {
        card_fill(c, &c->members[env->rank]);
        status = net_open(&c->net, s->plan, &c->env, &s->report, &hooks, &c->members[env->rank]);
    }
    cluster_env_wipe(&c->env); /* the network has it */
    return status;
}

weir_status cluster_open(struct weir_session *s, const weir_session_opts *opts)
{
    struct cluster_env env;
    weir_status status = cluster_env_read(&opts->cluster, &env);
    s->stall_ns = env.stall_ns;
    s->pin = env.pin;
    s->poisons = env.poison;
    s->directory = env.offload;
    if (!status)
        status = check_part(s->plan, &env);
    if (!status && env.size > 1)
        status = open_ranks(s, &env);
    cluster_env_wipe(&env);
    return status;
}

/* ---- runs ---- */

/* What the program reads of others, to those who run it and cannot see it. */
static weir_status send_crossing(struct weir_session *s, uint32_t program)
{
    const struct links *links = &s->cluster->links;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < links->transfers_count; i++) {
        const struct transfer *transfer = &links->transfers[i];
        const plan_port *port = &s->plan->ports[transfer->leader];
        if (transfer->from == s->cluster->env.rank && plan_port_crosses(s->plan, port) &&
            s->plan->actors[port->actor.i].program.i == program)
            status = net_share(s->cluster->net, transfer, 0);
    }
    if (status)
        session_fail_peer(s, s->cluster->env.rank, "%s", weir_error()); /* others would wait for this rank's mark */
    return status;
}

static weir_status all_at_rest(struct cluster *c, uint32_t program)
{
    cluster_round_begin(c, ROUND_RUN, program);
    weir_status status = cluster_round_end(c, 0);
    cluster_round_close(c);
    return status;
}

/* Another program than before: what it reads of others must be whole, and nobody may read any more what it changes. So
 * all have to be at rest; then values go where they are not seen, as when a parameter is written. */
static weir_status change_program(struct weir_session *s, uint32_t program)
{
    struct cluster *c = s->cluster;
    cluster_sharing(c, true);
    weir_status status = all_at_rest(c, program);
    if (!status)
        status = send_crossing(s, program);
    if (!status)
        status = all_at_rest(c, program);
    cluster_sharing(c, false);
    return status;
}

weir_status cluster_start(struct weir_session *s, uint32_t program, int64_t more)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    weir_status status = program != s->program ? change_program(s, program) : WEIR_OK;
    if (status)
        return status;
    int64_t before = session_steps_all(s), others = before - session_steps_of(s, 0), target = before + more;
    /* seq_cst: pairs with the other order in hook_left() */
    atomic_store(&c->others, program ? others + more : others);
    atomic_store(&c->target, target);
    for (uint32_t r = 0; r < c->env.size && atomic_load(&c->left_count); r++) {
        int64_t steps = atomic_load(&c->left[r]);
        if (steps >= 0 && steps < cluster_due(c))
            session_fail_peer(s, r, "rank %u (pid %u on %s) has closed its session after %lld steps", r,
                              c->members[r].pid, c->members[r].name, (long long)steps);
    }
    return ending_failure(&s->ending);
}

/* ---- close ---- */

/* A session that is closed in the middle of a run has not done its steps. */
void cluster_leave(struct weir_session *s)
{
    if (!s->cluster || !s->cluster->net)
        return;
    bool failed = ending_failure_for_pull(&s->ending) != WEIR_OK;
    if (!failed && session_at_rest(s) && session_steps_all(s))
        session_drop_pulls(s);
    failed = ending_failure_for_pull(&s->ending) != WEIR_OK;
    net_stop(s->cluster->net, failed ? -1 : session_steps_all(s));
}

void cluster_close(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    if (!c)
        return;
    net_close(c->net);
    links_close(&c->links);
    for (uint32_t r = 0; c->peers && r < c->env.size; r++)
        share_close(&c->peers[r]);
    share_close(&c->own);
    rounds_close(&c->rounds);
    free(c->members);
    free(c->peers);
    free(c->mapped);
    free(c->wired);
    free((void *)c->left);
    free(c->begun);
    free(c->here);
    free(c->idle);
    free(c->over);
    free(c);
    s->cluster = NULL;
}
