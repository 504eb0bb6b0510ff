/* actors/session/cluster.c: see the header. */
#define _GNU_SOURCE
#include "actors/session/cluster.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/session/session.h"
#include "actors/watch/watch.h"
#include "graph/base/error.h"
#include "graph/plan/spread.h"
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

#define WAITERS_MAX 4 /* that a report names */

/* ---- hooks: by whoever is at the sockets (transport/net/net.h) ---- */

static void hook_news(struct cluster *c)
{
    atomic_fetch_add_explicit(&c->news, 1, memory_order_release); /* pairs with the loads in round_wait() */
    park_wake(&c->news);
}

static void hook_lost(void *ctx, uint32_t rank, const char *how)
{
    struct cluster *c = ctx;
    const weir_plan *plan = c->session->plan;
    struct net_life life = net_life_of(c->net, rank);
    char last[256] = "it had not fired yet";
    if (life.actor < plan->actors_count)
        snprintf(last, sizeof(last), "it last fired %.150s in step %lld",
                 plan_text(plan, plan->actors[life.actor].name), (long long)life.step);
    session_fail_peer(c->session, rank, "rank %u (pid %u on %s) is lost: %s; %s", rank, c->members[rank].pid,
                      c->members[rank].name, how, last);
}

static void hook_failed(void *ctx, uint32_t rank, uint32_t culprit, const char *text)
{
    struct cluster *c = ctx;
    atomic_store(&c->told, true);
    session_fail_peer(c->session, culprit, "rank %u reports: %s", rank, text);
}

static void hook_left(void *ctx, uint32_t rank, int64_t steps)
{
    struct cluster *c = ctx;
    /* seq_cst: pairs with the other order in cluster_start(): one of the two sees the other */
    atomic_store(&c->left[rank], steps);
    int64_t target = atomic_load(&c->target);
    hook_news(c);
    if (steps < target)
        session_fail_peer(c->session, rank,
                          "rank %u (pid %u on %s) closed its session after %lld steps; here a run is under way that "
                          "ends after %lld",
                          rank, c->members[rank].pid, c->members[rank].name, (long long)steps, (long long)target);
}

static void hook_broken(void *ctx, const char *sentence)
{
    struct cluster *c = ctx;
    session_fail_peer(c->session, c->env.rank, "%s", sentence);
}

static void hook_beat(void *ctx, struct wire_frame *frame)
{
    struct cluster *c = ctx;
    session_beat(c->session, frame);
}

static const struct arrival *arrival_find(const struct cluster *c, uint32_t rank, uint32_t shard, uint64_t round)
{
    const struct arrival *arrival = c->arrivals;
    while (arrival && !(arrival->rank == rank && arrival->shard == shard && arrival->round == round))
        arrival = arrival->next;
    return arrival;
}

/* A mark, or a whole shard of the sender's; in this round or the next; once. */
static bool value_fits(const struct cluster *c, uint32_t rank, uint32_t shard, uint64_t round, size_t bytes)
{
    const weir_plan *plan = c->session->plan;
    uint64_t now = atomic_load(&c->round);
    if (round < now || round > now + 1 || arrival_find(c, rank, shard, round))
        return false;
    if (shard == CLUSTER_MARK)
        return bytes == 0;
    if (shard >= plan->shards_count)
        return false;
    const plan_tensor *tensor = &plan->tensors[plan->shards[shard].i];
    return plan->spaces[arena_space(plan, tensor).i].rank == rank && bytes == plan_tensor_bytes(tensor);
}

static bool hook_value(void *ctx, uint32_t rank, uint32_t shard, uint64_t round, const void *data, size_t bytes)
{
    struct cluster *c = ctx;
    struct arrival *arrival = malloc(sizeof(*arrival) + bytes);
    if (!arrival) {
        session_fail_peer(c->session, c->env.rank, "no memory for %zu bytes of rank %u", bytes, rank);
        return true;
    }
    *arrival = (struct arrival){.rank = rank, .shard = shard, .round = round, .bytes = bytes};
    if (bytes)
        memcpy(arrival->data, data, bytes);
    pthread_mutex_lock(&c->lock);
    bool fits = value_fits(c, rank, shard, round, bytes);
    if (fits) {
        arrival->next = c->arrivals;
        c->arrivals = arrival;
    }
    pthread_mutex_unlock(&c->lock);
    if (!fits)
        free(arrival);
    hook_news(c);
    return fits;
}

static bool hook_sharing(void *ctx)
{
    const struct cluster *c = ctx;
    return atomic_load(&c->sharing);
}

static void hook_waits(void *ctx, uint32_t rank, const void *entries, uint32_t count)
{
    struct cluster *c = ctx;
    if (c->session->watch)
        watch_remote(c->session->watch, rank, entries, count);
}

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
    pthread_mutex_init(&c->lock, NULL);
    c->own.segment.fd = -1;
    c->members = calloc(size, sizeof(*c->members));
    c->peers = calloc(size, sizeof(*c->peers));
    c->mapped = calloc(size, sizeof(*c->mapped));
    c->wired = calloc(size, sizeof(*c->wired));
    c->left = calloc(size, sizeof(*c->left));
    c->here = calloc((size_t)s->plan->spaces_count + 1, sizeof(*c->here));
    if (!c->members || !c->peers || !c->mapped || !c->wired || !c->left || !c->here)
        return error_set(WEIR_E_MEMORY, "no memory for a session of %u ranks", size);
    for (uint32_t r = 0; r < size; r++)
        atomic_init(&c->left[r], -1);
    for (uint32_t i = 0; i < s->plan->spaces_count; i++)
        c->here[i] = s->plan->spaces[i].rank == c->env.rank;
    return WEIR_OK;
}

static weir_status check_part(const weir_plan *plan, const struct cluster_env *env)
{
    if (!plan->part || (plan->part == env->rank + 1 && plan->ranks == env->size))
        return WEIR_OK;
    return error_set(WEIR_E_ARGUMENT, "the plan is the part of rank %u of %u; this is rank %u of %u", plan->part - 1,
                     plan->ranks, env->rank, env->size);
}

weir_status cluster_open(struct weir_session *s, const weir_session_opts *opts)
{
    struct cluster_env env;
    weir_status status = cluster_env_read(&opts->cluster, &env);
    s->stall_ns = env.stall_ns;
    s->pin = env.pin;
    if (!status)
        status = check_part(s->plan, &env);
    if (status || env.size <= 1)
        return status;
    if (!s->plan->part) {
        s->plan = s->spread = plan_spread(s->plan, env.size, env.devices);
        status = s->plan ? WEIR_OK : WEIR_E_ARGUMENT;
    }
    if (status)
        return status;
    struct cluster *c = s->cluster = calloc(1, sizeof(*c));
    if (!c)
        return error_set(WEIR_E_MEMORY, "no memory for a session of %u ranks", env.size);
    c->env = env;
    status = cluster_alloc(s, c);
    if (status)
        return status;
    const struct net_hooks hooks = {.ctx = c,
                                    .lost = hook_lost,
                                    .failed = hook_failed,
                                    .left = hook_left,
                                    .broken = hook_broken,
                                    .beat = hook_beat,
                                    .value = hook_value,
                                    .sharing = hook_sharing,
                                    .waits = hook_waits};
    card_fill(c, &c->members[env.rank]);
    return net_open(&c->net, s->plan, &c->env, &s->report, &hooks, &c->members[env.rank]);
}

/* Where no segment can be had the ranks of this host are reached like those of others. */
weir_status cluster_share(struct weir_session *s, const struct lane_size *sizes)
{
    struct cluster *c = s->cluster;
    if (!c || !c->env.shm)
        return WEIR_OK;
    uint32_t lanes = s->worker_count + s->outside_count;
    uint64_t *capacities = calloc(lanes + (size_t)1, sizeof(*capacities));
    uint32_t *ring_of = calloc(s->plan->actors_count + (size_t)1, sizeof(*ring_of));
    weir_status status = capacities && ring_of ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for %u lanes", lanes);
    for (uint32_t i = 0; !status && i < lanes; i++)
        capacities[i] = sizes[i].messages;
    for (uint32_t a = 0; !status && a < s->plan->actors_count; a++)
        ring_of[a] = session_lane_number(s, a);
    if (!status && share_create(&c->own, s->plan, c->here, capacities, lanes, ring_of) == WEIR_OK) {
        struct member *card = &c->members[c->env.rank];
        card->segment_fd = c->own.segment.fd;
        card->segment_bytes = c->own.segment.bytes;
        card->segment_cookie = c->own.segment.cookie;
    }
    free(capacities);
    free(ring_of);
    return status;
}

static void peer_map(struct weir_session *s, uint32_t rank)
{
    struct cluster *c = s->cluster;
    const struct member *me = &c->members[c->env.rank], *other = &c->members[rank];
    if (rank == c->env.rank || strcmp(me->host, other->host) || !c->own.segment.base || other->segment_fd < 0)
        return;
    c->mapped[rank] = share_map(&c->peers[rank], s->plan, rank, other->pid, other->segment_fd, other->segment_bytes,
                                other->segment_cookie) == WEIR_OK;
}

/* With more threads on this host than cores, a worker that spins keeps another from running; or the network, which is
 * two threads of each rank (its own, and ZeroMQ's) when something goes over the wire. A rank that may not use all cores
 * has been given its own: then only its own threads count. */
static void spin_less(struct weir_session *s)
{
    const struct cluster *c = s->cluster;
    uint32_t ranks_here = 0, threads = s->worker_count;
    for (uint32_t r = 0; r < c->env.size; r++) {
        ranks_here += !strcmp(c->members[r].host, c->members[c->env.rank].host);
        if (c->wired[r] && threads == s->worker_count)
            threads += 2;
    }
    bool bound = cores_count() < cores_online();
    if ((bound ? threads : ranks_here * threads) <= (uint32_t)cores_count())
        return;
    for (uint32_t w = 0; w < s->worker_count; w++)
        s->workers[w].lane.mailbox.spin_ns = 0;
    for (uint32_t i = 0; i < s->outside_count; i++)
        s->outside[i].mailbox.spin_ns = 0;
}

weir_status cluster_meet(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    weir_status status = net_meet(c->net, c->members);
    for (uint32_t r = 0; !status && r < c->env.size; r++)
        peer_map(s, r);
    if (!status)
        status = net_greet(c->net, c->mapped, c->wired);
    if (status && session_failure(s))
        return WEIR_E_PEER; /* it says more than that nobody was heard */
    if (status)
        return status;
    spin_less(s);
    for (uint32_t i = 0; i < s->plan->spaces_count; i++) {
        uint32_t rank = s->plan->spaces[i].rank;
        if (rank != c->env.rank && !c->wired[rank])
            s->arenas[i].base = share_arena(&c->peers[rank], i);
    }
    return links_open(&c->links, s->plan, c->env.rank, c->wired);
}

/* Nobody posts to this rank's lanes from another process. */
static bool all_wired(const struct cluster *c)
{
    for (uint32_t r = 0; r < c->env.size; r++)
        if (r != c->env.rank && !c->wired[r])
            return false;
    return true;
}

weir_status cluster_route(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    for (uint32_t a = 0; a < s->plan->actors_count; a++) {
        uint32_t rank = plan_rank_of(s->plan, a);
        struct share *share = &c->peers[rank];
        if (rank != c->env.rank && !c->wired[rank])
            bus_attach(&s->bus, a, &share->senders[share->ring_of[a]].end);
    }
    weir_status status = net_route(c->net, &c->links, s->arenas, &s->bus);
    struct lane *lane = &s->workers[0].lane;
    return !status && s->worker_count == 1 && all_wired(c) ? net_watch(c->net, &lane->mailbox, &lane->waiter) : status;
}

/* The first slot that is published and not read: at rest, `initial` of them follow. */
static uint32_t oldest_slot(const struct weir_session *s, uint32_t r)
{
    const plan_regst *regst = &s->plan->regsts[r];
    uint32_t next = s->outs[r].regst.slot;
    return (next + regst->slots - regst->initial % regst->slots) % regst->slots;
}

weir_status cluster_share_regst(struct weir_session *s, uint32_t r)
{
    struct cluster *c = s->cluster;
    const plan_regst *regst = &s->plan->regsts[r];
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; regst->initial && i < c->links.transfers_count; i++) {
        const struct transfer *transfer = &c->links.transfers[i];
        if (transfer->regst != r || transfer->from != c->env.rank)
            continue;
        for (uint32_t k = 0; !status && k < regst->initial; k++)
            status = net_share(c->net, transfer, (oldest_slot(s, r) + k) % regst->slots);
    }
    return status;
}

/* After this every rank can fire: whatever its actors may read at first is there. */
weir_status cluster_begin(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    cluster_sharing(c, true);
    weir_status status = net_start(c->net);
    cluster_round_begin(c);
    for (uint32_t i = 0; !status && i < c->links.transfers_count; i++) {
        const struct transfer *transfer = &c->links.transfers[i];
        bool first = !i || c->links.transfers[i - 1].regst != transfer->regst;
        if (transfer->from == c->env.rank && first)
            status = cluster_share_regst(s, transfer->regst);
    }
    if (!status)
        status = cluster_round_end(c);
    cluster_round_close(c);
    cluster_sharing(c, false);
    return status;
}

void cluster_sharing(struct cluster *c, bool on)
{
    atomic_store(&c->sharing, on);
}

/* ---- rounds ---- */

/* With c->lock held. */
static bool mark_came(const struct cluster *c, uint32_t rank)
{
    return arrival_find(c, rank, CLUSTER_MARK, atomic_load(&c->round)) != NULL;
}

/* The first rank whose mark of this round has not come; the number of ranks when all have. */
static uint32_t mark_missing(struct cluster *c)
{
    uint32_t rank = 0;
    pthread_mutex_lock(&c->lock);
    while (rank < c->env.size && (rank == c->env.rank || mark_came(c, rank)))
        rank++;
    pthread_mutex_unlock(&c->lock);
    return rank;
}

/* A rank's BYE comes behind its marks. */
static weir_status round_wait(struct cluster *c)
{
    for (;;) {
        uint32_t news = atomic_load_explicit(&c->news, memory_order_acquire); /* pairs with hook_news() */
        uint32_t rank = mark_missing(c);
        if (rank == c->env.size)
            return WEIR_OK;
        weir_status status = session_failure(c->session);
        if (status)
            return status;
        if (atomic_load(&c->left[rank]) >= 0 && mark_missing(c) == rank)
            return error_set(WEIR_E_PEER, "rank %u (pid %u on %s) has closed its session", rank, c->members[rank].pid,
                             c->members[rank].name);
        park_wait(&c->news, news, PARK_FOREVER);
    }
}

void cluster_round_begin(struct cluster *c)
{
    atomic_fetch_add(&c->round, 1);
}

weir_status cluster_round_send(struct cluster *c, uint32_t shard, const void *data, size_t bytes)
{
    struct wire_frame frame = {.kind = WIRE_VALUE, .value = {.shard = shard, .round = atomic_load(&c->round)}};
    return net_request(c->net, NET_ALL, &frame, data, bytes);
}

weir_status cluster_round_end(struct cluster *c)
{
    weir_status status = cluster_round_send(c, CLUSTER_MARK, NULL, 0);
    return status ? status : round_wait(c);
}

/* What was found stays until the round is closed; what comes early for the next one is put in front of it meanwhile. */
const struct arrival *cluster_round_find(struct cluster *c, uint32_t rank, uint32_t shard)
{
    pthread_mutex_lock(&c->lock);
    const struct arrival *arrival = arrival_find(c, rank, shard, atomic_load(&c->round));
    pthread_mutex_unlock(&c->lock);
    return arrival;
}

void cluster_round_close(struct cluster *c)
{
    pthread_mutex_lock(&c->lock);
    for (struct arrival **at = &c->arrivals; *at;) {
        struct arrival *arrival = *at;
        assert(arrival);
        if (arrival->round > atomic_load(&c->round)) {
            at = &arrival->next;
            continue;
        }
        *at = arrival->next;
        free(arrival);
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- runs ---- */

weir_status cluster_start(struct weir_session *s, int64_t target)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    /* seq_cst: pairs with the other order in hook_left() */
    int64_t before = atomic_exchange(&c->target, target);
    for (uint32_t r = 0; r < c->env.size; r++) {
        int64_t steps = atomic_load(&c->left[r]);
        if (steps < 0 || steps >= target)
            continue;
        atomic_store(&c->target, before); /* no run is under way that the next to leave would break off */
        return error_set(WEIR_E_PEER, "rank %u (pid %u on %s) has closed its session after %lld steps", r,
                         c->members[r].pid, c->members[r].name, (long long)steps);
    }
    return WEIR_OK;
}

void cluster_fail(struct weir_session *s, uint32_t culprit, const char *text)
{
    struct cluster *c = s->cluster;
    if (!c)
        return;
    struct wire_frame frame = {.kind = WIRE_FAIL, .fail.culprit = culprit};
    snprintf(frame.fail.text, sizeof(frame.fail.text), "%s", text);
    if (c->net && !atomic_load(&c->told))
        net_request(c->net, NET_ALL, &frame, NULL, 0);
    hook_news(c);
}

/* ---- for the watch ---- */

uint64_t session_remote_fired(const struct weir_session *s, uint32_t *silent_rank, int64_t *silent_ns)
{
    uint64_t fired = 0;
    int64_t now = park_now_ns();
    *silent_rank = UINT32_MAX;
    *silent_ns = 0;
    for (uint32_t r = 0; s->cluster && r < s->cluster->env.size; r++) {
        struct net_life life = net_life_of(s->cluster->net, r);
        int64_t limit_ns = s->cluster->env.liveness_ns / 2;
        fired += life.fired;
        if (net_here(s->cluster->net, r) && life.heard_ns && now - life.heard_ns > limit_ns &&
            now - life.heard_ns > *silent_ns) {
            *silent_rank = r;
            *silent_ns = now - life.heard_ns;
        }
    }
    return fired;
}

void session_send_waits(struct weir_session *s, const struct wait_entry *entries, uint32_t count)
{
    struct wire_frame frame = {.kind = WIRE_WAITS, .waits.count = count};
    if (s->cluster)
        net_request(s->cluster->net, NET_ALL, &frame, entries, count * sizeof(*entries));
}

struct waiters {
    char *text;
    size_t bytes, used;
    uint32_t count;
};

static void waiter_add(struct waiters *to, const struct weir_session *s, uint32_t actor, const char *verb,
                       uint32_t other)
{
    const weir_plan *plan = s->plan;
    if (to->count++ >= WAITERS_MAX || to->used >= to->bytes)
        return;
    to->used += (size_t)snprintf(to->text + to->used, to->bytes - to->used, "%s%.100s (%s, step %lld) for %.100s to %s",
                                 to->used ? "; " : "  for it waited here: ", plan_text(plan, plan->actors[actor].name),
                                 plan_text(plan, plan->queues[plan->actors[actor].queue.i].name),
                                 (long long)s->actors[actor].step, plan_text(plan, plan->actors[other].name), verb);
}

/* What the actor lacks, that an actor of the rank was to do. */
static void waiter_look(struct waiters *to, const struct weir_session *s, uint32_t a, uint32_t rank)
{
    const weir_plan *plan = s->plan;
    for (uint32_t p = plan->actors[a].ports.first; p < plan->actors[a].ports.first + plan->actors[a].ports.count; p++) {
        uint32_t producer = plan->regsts[plan->ports[p].regst.i].producer.i;
        if (s->ends[p].port && !s->ends[p].port->reader.arrived && plan_rank_of(plan, producer) == rank)
            waiter_add(to, s, a, "publish", producer);
    }
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        if (regst->producer.i == a && !s->outs[plan->ports[p].regst.i].regst.credits &&
            plan_rank_of(plan, plan->ports[p].actor.i) == rank)
            waiter_add(to, s, a, "free", plan->ports[p].actor.i);
    }
}

void cluster_waiters(const struct weir_session *s, uint32_t rank, char *text, size_t bytes)
{
    struct waiters to = {.text = text, .bytes = bytes - 1};
    text[0] = 0;
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        if (session_runs(s, a) && s->actors[a].kernel_count && s->actors[a].left > 0)
            waiter_look(&to, s, a, rank);
    if (to.used >= to.bytes)
        to.used = to.bytes - 1;
    if (to.used)
        snprintf(text + to.used, bytes - to.used, "\n");
}

/* ---- close ---- */

/* A session that is closed in the middle of a run has not done its steps. */
void cluster_leave(struct weir_session *s)
{
    if (!s->cluster || !s->cluster->net)
        return;
    if (s->steps_done + s->steps && atomic_load_explicit(&s->state, memory_order_acquire) == SESSION_REST)
        session_drop_pulls(s);
    uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
    int64_t steps = state == SESSION_REST ? s->steps_done + s->steps : s->steps_done;
    net_stop(s->cluster->net, state == SESSION_FAILED ? -1 : steps);
}

static void arrivals_free(struct cluster *c)
{
    for (struct arrival *next, *arrival = c->arrivals; arrival; arrival = next) {
        next = arrival->next;
        free(arrival);
    }
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
    arrivals_free(c);
    pthread_mutex_destroy(&c->lock);
    free(c->members);
    free(c->peers);
    free(c->mapped);
    free(c->wired);
    free((void *)c->left);
    free(c->here);
    free(c);
    s->cluster = NULL;
}
