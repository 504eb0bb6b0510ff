/* actors/cluster/open.c: what a session of several ranks has beside the single one: it is made first, and is
 * the last to go. See cluster.h. */
#define _GNU_SOURCE
#include "actors/cluster/cluster.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"

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

static weir_status cluster_alloc(struct cluster *c)
{
    const weir_plan *plan = c->plan;
    uint32_t size = c->env.size;
    c->own.segment.fd = -1;
    c->members = calloc(size, sizeof(*c->members));
    c->peers = calloc(size, sizeof(*c->peers));
    c->mapped = calloc(size, sizeof(*c->mapped));
    c->wired = calloc(size, sizeof(*c->wired));
    c->left = calloc(size, sizeof(*c->left));
    c->begun = calloc(size, sizeof(*c->begun));
    c->here = calloc((size_t)plan->spaces_count + 1, sizeof(*c->here));
    c->idle = calloc(size, sizeof(*c->idle));
    if (!c->members || !c->peers || !c->mapped || !c->wired || !c->left || !c->begun || !c->here || !c->idle)
        return error_set(WEIR_E_MEMORY, "no memory for a session of %u ranks", size);
    for (uint32_t r = 0; r < size; r++)
        atomic_init(&c->left[r], -1);
    for (uint32_t i = 0; i < plan->spaces_count; i++)
        c->here[i] = plan->spaces[i].rank == c->env.rank && device_host(plan->spaces[i].kind);
    memset(c->idle, true, size * sizeof(*c->idle));
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan->queues[q].kind != PLAN_OUTSIDE)
            c->idle[plan->spaces[plan->queues[q].space.i].rank] = false;
    return WEIR_OK;
}

weir_status cluster_open(struct cluster **to, struct cluster_owner *owner, const weir_plan *plan,
                         struct cluster_env *env, const struct report *report)
{
    struct cluster *c = *to = calloc(1, sizeof(*c));
    if (!c)
        return error_set(WEIR_E_MEMORY, "no memory for a session of %u ranks", env->size);
    c->owner = owner;
    c->plan = plan;
    cluster_env_copy(&c->env, env);
    cluster_env_wipe(env);
    c->env.levels = op_levels();
    weir_status status = op_level(&c->env.level);
    if (!status)
        status = cluster_alloc(c);
    if (!status)
        status = rounds_open(&c->rounds, c->env.size);
    struct net_hooks hooks = cluster_hooks;
    hooks.ctx = c;
    if (!status) {
        card_fill(c, &c->members[c->env.rank]);
        status = net_open(&c->net, plan, &c->env, report, &hooks, &c->members[c->env.rank]);
    }
    cluster_env_wipe(&c->env); /* the network has it */
    return status;
}

/* ---- runs ---- */

/* Sends the values that the program reads of others to those who run it and cannot see them. */
static weir_status send_crossing(struct cluster *c, uint32_t program)
{
    const struct links *links = &c->links;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < links->transfers_count; i++) {
        const struct transfer *transfer = &links->transfers[i];
        const plan_port *port = &c->plan->ports[transfer->leader];
        if (transfer->from == c->env.rank && plan_port_crosses(c->plan, port) &&
            c->plan->actors[port->actor.i].program.i == program)
            status = net_share(c->net, transfer, 0);
    }
    if (status)
        cluster_lost(c, c->env.rank, "%s", weir_error()); /* others would wait for this rank's mark */
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
static weir_status change_program(struct cluster *c, uint32_t program)
{
    cluster_sharing(c, true);
    weir_status status = all_at_rest(c, program);
    if (!status)
        status = send_crossing(c, program);
    if (!status)
        status = all_at_rest(c, program);
    cluster_sharing(c, false);
    return status;
}

weir_status cluster_start(struct cluster *c, uint32_t program, bool another, const struct cluster_steps *steps)
{
    if (!c)
        return WEIR_OK;
    weir_status status = another ? change_program(c, program) : WEIR_OK;
    if (status)
        return status;
    /* seq_cst: pairs with the other order in hook_left() */
    atomic_store(&c->others, steps->others + (program ? steps->more : 0));
    atomic_store(&c->target, steps->before + steps->more);
    for (uint32_t r = 0; r < c->env.size && atomic_load(&c->left_count); r++) {
        int64_t done = atomic_load(&c->left[r]);
        if (done >= 0 && done < cluster_due(c))
            cluster_lost(c, r, "rank %u (pid %u on %s) has closed its session after %lld steps", r, c->members[r].pid,
                         c->members[r].name, (long long)done);
    }
    return ending_failure(c->owner->ending);
}

/* ---- close ---- */

void cluster_leave(struct cluster *c, int64_t steps)
{
    if (c && c->net)
        net_stop(c->net, steps);
}

void cluster_close(struct cluster *c)
{
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
}
