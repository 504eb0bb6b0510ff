/* actors/session/groups.c: what devices do together: their queues join groups, and their actors get turns and meetings
 * (actors/ahead.h).
 *
 * All of it is worked out from the plan when the session is opened, and does not change: a firing hands the device a
 * meeting that was made here. It hangs on session->groups, which is NULL as long as the plan has no collectives.
 *
 * A device is a member of a group as one of its queues is, which the group's devices have one of each. So there is a
 * membership for each local queue and each of its groups, however many collectives are of that group. Where members of
 * several processes need a key to find each other, the rank of the first one makes it, and all get all keys by way of
 * rank 0.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/session/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/base/text.h"
#include "graph/plan/spread.h"
#include "transport/mail/park.h"

enum { JOIN_LOOK_NS = 200000 };

struct membership {
    const struct ahead_queue *queue;
    uint32_t number, here;      /* of the group; members of this process */
    struct device_group *group; /* owned */
    bool *peers;                /* owned: the group's */
};

struct session_groups {
    uint64_t session;                /* in ids */
    struct membership *memberships;  /* owned */
    uint32_t count;
    struct device_meeting *meetings; /* owned; parallel to plan->members */
    struct device_move *moves;       /* owned; each meeting's gives, then its takes */
    struct ahead_turns *turns;       /* owned; by local queue for collectives, and in it by program */
    struct actor **lists;            /* owned; the turns' */
};

/* ---- whose ---- */

static uint32_t program_of(const weir_plan *plan, const plan_collective *collective)
{
    return plan->actors[plan->members[collective->members.first].i].program.i;
}

/* The queue of the member, when it is this process's; else NULL. */
static struct ahead_queue *queue_of_member(const struct weir_session *s, uint32_t member)
{
    uint32_t actor = s->plan->members[member].i;
    return session_runs(s, actor) ? session_queue(s, s->plan->actors[actor].queue.i) : NULL;
}

static struct actor_ahead *ahead_of_member(const struct weir_session *s, uint32_t member)
{
    return s->actors[s->plan->members[member].i].ahead;
}

static bool is_local(const struct weir_session *s, uint32_t queue)
{
    const plan_queue *from = &s->plan->queues[queue];
    return from->kind == PLAN_COLLECTIVE && session_owns(s, from->space.i);
}

static weir_status check_devices(const struct weir_session *s)
{
    const weir_plan *plan = s->plan;
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        const struct device_ops *device = is_local(s, q) ? s->arenas[plan->queues[q].space.i].device : NULL;
        if (device && !(session_queue(s, q) && device->group_new && device->group_free && device->meet))
            return error_set(WEIR_E_UNSUPPORTED,
                             "the plan has collectives, and %s cannot take part: devices of its kind do nothing together",
                             plan_text(plan, plan->spaces[plan->queues[q].space.i].name));
    }
    return WEIR_OK;
}

/* Of this session alone. */
static uint64_t session_number(void)
{
    static _Atomic uint32_t opened;
    /* relaxed: it only has to be another one each time */
    return (uint64_t)getpid() << 32 | atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed);
}

/* Members that find each other by the id have the same one on all ranks. */
static struct device_group_id id_of(const struct weir_session *s, const struct device_ops *device, uint32_t number)
{
    bool shared = s->cluster && !device->group_join;
    return (struct device_group_id){shared ? net_session(s->cluster->net) : s->groups->session, number};
}

static uint32_t members_here(const struct weir_session *s, const plan_collective *collective)
{
    uint32_t here = 0;
    for (uint32_t m = 0; m < collective->members.count; m++)
        here += queue_of_member(s, collective->members.first + m) != NULL;
    return here;
}

/* ---- groups ---- */

static weir_status join(const struct weir_session *s, struct ahead_queue *queue, const plan_collective *collective,
                        uint32_t place, struct device_group **group)
{
    struct session_groups *groups = s->groups;
    const struct device_ops *device = queue->device->device;
    struct device_group_id id = id_of(s, device, collective->group);
    for (uint32_t i = 0; i < groups->count; i++)
        if (groups->memberships[i].queue == queue && groups->memberships[i].number == collective->group) {
            *group = groups->memberships[i].group;
            return WEIR_OK;
        }
    bool *peers = calloc(collective->members.count, sizeof(*peers));
    uint32_t here = members_here(s, collective);
    weir_status status = peers ? device->group_new(queue->device, &id, place, collective->members.count, here, group)
                               : error_set(WEIR_E_MEMORY, "no memory for a group of %u devices", collective->members.count);
    if (!status) {
        (*group)->peers = peers;
        groups->memberships[groups->count++] = (struct membership){queue, collective->group, here, *group, peers};
    } else
        free(peers);
    return status;
}

/* ---- meetings ---- */

static enum device_collective kind_of(uint32_t kind)
{
    return kind == PLAN_REDUCE_SCATTER ? DEVICE_REDUCE_SCATTER : kind == PLAN_ALL_REDUCE ? DEVICE_ALL_REDUCE : DEVICE_MOVES;
}

/* Its moves in one direction, in the plan's order, behind those that are in the list. Returns how many there are. */
static uint32_t list_moves(const weir_plan *plan, const plan_collective *collective, uint32_t place, bool gives,
                           struct device_move *list)
{
    uint32_t count = 0;
    for (uint32_t i = collective->moves.first; i < collective->moves.first + collective->moves.count; i++) {
        const plan_move *move = &plan->moves[i];
        if (gives && move->from == place)
            list[count++] = (struct device_move){move->to, move->give};
        if (!gives && move->to == place)
            list[count++] = (struct device_move){move->from, move->take};
    }
    return count;
}

/* `moves`: the first one that is free; returns the next. */
static struct device_move *make_meeting(const struct weir_session *s, uint32_t c, uint32_t place,
                                        struct device_group *group, struct device_move *moves)
{
    const plan_collective *collective = &s->plan->collectives[c];
    uint32_t member = collective->members.first + place;
    struct device_meeting *meeting = &s->groups->meetings[member];
    *meeting = (struct device_meeting){.group = group, .number = c, .kind = kind_of(collective->kind), .gives = moves};
    meeting->give_count = list_moves(s->plan, collective, place, true, moves);
    meeting->takes = moves += meeting->give_count;
    meeting->take_count = list_moves(s->plan, collective, place, false, moves);
    for (uint32_t i = 0; i < meeting->give_count; i++)
        group->peers[meeting->gives[i].peer] = true;
    for (uint32_t i = 0; i < meeting->take_count; i++)
        group->peers[meeting->takes[i].peer] = true;
    ahead_of_member(s, member)->meeting = meeting;
    group->kinds |= 1u << meeting->kind;
    return moves + meeting->take_count;
}

static weir_status make_meetings(struct weir_session *s)
{
    struct device_move *moves = s->groups->moves;
    weir_status status = WEIR_OK;
    for (uint32_t c = 0; !status && c < s->plan->collectives_count; c++) {
        const plan_collective *collective = &s->plan->collectives[c];
        for (uint32_t place = 0; !status && place < collective->members.count; place++) {
            struct ahead_queue *queue = queue_of_member(s, collective->members.first + place);
            struct device_group *group = NULL;
            if (!queue)
                continue;
            status = join(s, queue, collective, place, &group);
            if (!status)
                moves = make_meeting(s, c, place, group, moves);
        }
    }
    return status;
}

/* ---- turns ---- */

static struct ahead_turns *turns_of_member(const struct weir_session *s, const plan_collective *collective,
                                           uint32_t place)
{
    struct ahead_queue *queue = queue_of_member(s, collective->members.first + place);
    return queue ? &queue->turns[program_of(s->plan, collective)] : NULL;
}

static void give_turns(struct weir_session *s)
{
    struct ahead_turns *turns = s->groups->turns;
    for (uint32_t q = 0; q < s->plan->queues_count; q++)
        if (is_local(s, q)) {
            session_queue(s, q)->turns = turns;
            turns += s->plan->programs_count;
        }
    for (uint32_t c = 0; c < s->plan->collectives_count; c++)
        for (uint32_t place = 0; place < s->plan->collectives[c].members.count; place++) {
            turns = turns_of_member(s, &s->plan->collectives[c], place);
            if (turns)
                ahead_of_member(s, s->plan->collectives[c].members.first + place)->turns = turns;
        }
}

/* The turns that a collective has are in the list of each local member. Once to count them, then to fill the lists
 * in. */
static void list_turns(struct weir_session *s, bool fill)
{
    const weir_plan *plan = s->plan;
    for (uint32_t t = 0; t < plan->turns_count; t++) {
        const plan_collective *collective = &plan->collectives[plan->turns[t].i];
        for (uint32_t place = 0; place < collective->members.count; place++) {
            struct ahead_turns *turns = turns_of_member(s, collective, place);
            if (turns && fill)
                turns->list[turns->at] = &s->actors[plan->members[collective->members.first + place].i];
            if (turns)
                turns->at++;
        }
    }
}

static weir_status make_turns(struct weir_session *s, uint32_t turns_count)
{
    struct ahead_turns *turns = s->groups->turns;
    size_t total = 0;
    give_turns(s);
    list_turns(s, false);
    for (uint32_t i = 0; i < turns_count; i++)
        total += turns[i].at;
    struct actor **list = s->groups->lists = calloc(total + 1, sizeof(struct actor *));
    if (!list)
        return error_set(WEIR_E_MEMORY, "no memory for the turns of collectives");
    for (uint32_t i = 0; i < turns_count; list += turns[i++].count)
        turns[i] = (struct ahead_turns){.list = list, .count = turns[i].at};
    list_turns(s, true);
    for (uint32_t i = 0; i < turns_count; i++) {
        assert(turns[i].at == turns[i].count);
        turns[i].at = 0;
    }
    return WEIR_OK;
}

/* ---- all of it ---- */

static uint32_t count_turns(const struct weir_session *s)
{
    uint32_t count = 0;
    for (uint32_t q = 0; q < s->plan->queues_count; q++)
        count += is_local(s, q) ? s->plan->programs_count : 0;
    return count;
}

weir_status session_open_groups(struct weir_session *s)
{
    const weir_plan *plan = s->plan;
    uint32_t turns = count_turns(s);
    weir_status status = plan->collectives_count ? check_devices(s) : WEIR_OK;
    if (status || !plan->collectives_count || !turns)
        return status;
    struct session_groups *groups = s->groups = calloc(1, sizeof(*groups));
    if (groups) {
        groups->session = session_number();
        groups->memberships = calloc(plan->members_count, sizeof(*groups->memberships));
        groups->meetings = calloc(plan->members_count, sizeof(*groups->meetings));
        groups->moves = calloc(2 * (size_t)plan->moves_count + 1, sizeof(*groups->moves));
        groups->turns = calloc(turns, sizeof(*groups->turns));
    }
    if (!groups || !groups->memberships || !groups->meetings || !groups->moves || !groups->turns)
        return error_set(WEIR_E_MEMORY, "no memory for %u collectives", plan->collectives_count);
    status = make_turns(s, turns);
    return status ? status : make_meetings(s);
}

void session_close_groups(struct weir_session *s)
{
    struct session_groups *groups = s->groups;
    if (!groups)
        return;
    while (groups->memberships && groups->count) {
        struct membership *last = &groups->memberships[--groups->count];
        last->queue->device->device->group_free(last->group);
        free(last->peers);
    }
    free(groups->memberships);
    free(groups->meetings);
    free(groups->moves);
    free(groups->turns);
    free(groups->lists);
    free(groups);
    s->groups = NULL;
}

/* ---- groups of several processes: keys, then all join ---- */

struct group_key {
    uint32_t number;
    unsigned char bytes[DEVICE_KEY_BYTES];
};

struct group_keys {
    struct group_key *key;            /* owned */
    size_t count;
    bool full;                  /* there was no memory for all */
};

static void add_keys(void *ctx, uint32_t rank, const void *data, size_t bytes)
{
    struct group_keys *keys = ctx;
    size_t count = bytes / sizeof(struct group_key);
    struct group_key *grown = realloc(keys->key, (keys->count + count + 1) * sizeof(*grown));
    (void)rank;
    if (grown && count)
        memcpy(grown + keys->count, data, count * sizeof(*grown));
    keys->full |= !grown;
    keys->count += grown ? count : 0;
    keys->key = grown ? grown : keys->key;
}

/* Of this rank's groups in which the first member is here, and others are not. */
static weir_status make_keys(const struct weir_session *s, struct group_keys *keys)
{
    const struct session_groups *groups = s->groups;
    const struct group_key none = {.number = UINT32_MAX}; /* a statement is never empty */
    weir_status status = WEIR_OK;
    add_keys(keys, 0, &none, sizeof(none));
    for (uint32_t i = 0; !status && groups && i < groups->count; i++) {
        const struct membership *member = &groups->memberships[i];
        const struct device_ops *device = member->queue->device->device;
        struct group_key key = {.number = member->number};
        if (!device->group_join || member->group->place || member->here == member->group->count)
            continue;
        status = device->group_key(member->group, key.bytes);
        if (!status)
            add_keys(keys, 0, &key, sizeof(key));
    }
    return status || !keys->full ? status : error_set(WEIR_E_MEMORY, "no memory for the keys of collectives");
}

/* A rank that has left will never come. */
static weir_status others_are_there(const struct weir_session *s, int64_t deadline_ns, uint32_t number)
{
    weir_status status = session_failure(s);
    if (!status && atomic_load(&s->cluster->left_count))
        return error_set(WEIR_E_PEER, "another rank closed its session while collectives of group %u were being joined",
                         number);
    if (!status && park_now_ns() > deadline_ns)
        return error_set(WEIR_E_TIMEOUT, "the devices of group %u have not all come", number);
    return status;
}

static weir_status join_one(const struct weir_session *s, const struct membership *member,
                            const struct group_keys *keys, int64_t deadline_ns)
{
    const struct device_ops *device = member->queue->device->device;
    const struct group_key *key = keys->key;
    bool whole = false;
    weir_status status = WEIR_OK;
    if (!device->group_join || member->here == member->group->count)
        return WEIR_OK;
    while (key && key < keys->key + keys->count && key->number != member->number)
        key++;
    if (!key || key == keys->key + keys->count)
        return error_set(WEIR_E_PEER, "no rank has made a key for collectives of group %u", member->number);
    while (!status && !whole) {
        status = device->group_join(member->group, key->bytes, &whole);
        if (!status && !whole)
            status = others_are_there(s, deadline_ns, member->number);
        if (!status && !whole)
            nanosleep(&(struct timespec){.tv_nsec = JOIN_LOOK_NS}, NULL);
    }
    return status;
}

/* Whether a collective has members of several ranks: so says the plan to all. */
static bool spreads(const weir_plan *plan)
{
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        plan_range members = plan->collectives[c].members;
        for (uint32_t m = members.first + 1; m < members.first + members.count; m++)
            if (plan_rank_of(plan, plan->members[m].i) != plan_rank_of(plan, plan->members[members.first].i))
                return true;
    }
    return false;
}

/* Rank 0's are all, then. */
static weir_status exchange_keys(const struct weir_session *s, struct group_keys *keys)
{
    struct cluster *c = s->cluster;
    weir_status status = cluster_agree(c, ROUND_OPEN, 0, make_keys(s, keys), NULL);
    if (!status)
        status = cluster_collect(c, ROUND_OPEN, keys->key, keys->count * sizeof(*keys->key), add_keys, keys);
    if (!status && c->env.rank)
        keys->count = 0;
    if (!status)
        status = cluster_spread(c, ROUND_OPEN, keys->key, keys->count * sizeof(*keys->key), add_keys, keys);
    return status || !keys->full ? status : error_set(WEIR_E_MEMORY, "no memory for the keys of collectives");
}

weir_status session_join_groups(struct weir_session *s)
{
    struct group_keys keys = {.key = NULL};
    if (!s->cluster || !spreads(s->plan))
        return WEIR_OK;
    weir_status status = exchange_keys(s, &keys);
    int64_t deadline_ns = park_now_ns() + s->cluster->env.join_ns;
    for (uint32_t i = 0; !status && s->groups && i < s->groups->count; i++)
        status = join_one(s, &s->groups->memberships[i], &keys, deadline_ns);
    if (status && !session_failure(s)) /* the others wait for this one */
        cluster_fail(s, s->cluster->env.rank, s->cluster->env.rank, false, weir_error());
    free(keys.key);
    return status;
}

/* ---- what is told of them ---- */

void session_companions(const struct weir_session *s, uint32_t actor, char *bytes, size_t room)
{
    const weir_plan *plan = s->plan;
    const struct device_meeting *meeting = s->actors[actor].ahead ? s->actors[actor].ahead->meeting : NULL;
    struct text text = {bytes, room, 0, false};
    bytes[0] = 0;
    if (!meeting)
        return;
    plan_range members = plan->collectives[meeting->number].members;
    for (uint32_t m = members.first; m < members.first + members.count; m++)
        if (plan->members[m].i != actor)
            text_add(&text, "%s%s", text.used ? ", " : "",
                     plan_text(plan, plan->spaces[plan->queues[plan->actors[plan->members[m].i].queue.i].space.i].name));
}
