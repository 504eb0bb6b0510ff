/* actors/session/groups.c: what devices do together: their queues join groups, and their actors get turns and meetings
 * (actors/ahead.h).
 *
 * All of it is worked out from the plan when the session is opened, and does not change: a firing hands the device a
 * meeting that was made here. It hangs on session->groups, which is NULL as long as the plan has no collectives.
 *
 * A device is a member of a group as one of its queues is, which the group's devices have one of each. So there is a
 * membership for each local queue and each of its groups, however many collectives are of that group. Where members of
 * several processes need a key to find each other, the rank of the first one makes it, and all get all keys by way of
 * rank 0. With them they agree on gathers (gathers.h).
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/cluster/cluster.h"
#include "actors/cluster/gathers.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/base/text.h"
#include "graph/plan/spread/spread.h"
#include "transport/mail/park.h"

enum { JOIN_LOOK_NS = 200000 };

struct membership {
    const struct ahead_queue *queue;
    uint32_t number, here;      /* of the group; members of this process */
    struct device_group *group; /* owned */
    struct device_rehearsal *rehearsals; /* owned: the group's */
};

struct session_groups {
    uint64_t session;                /* in ids */
    struct membership *memberships;  /* owned */
    uint32_t count;
    struct device_meeting *meetings; /* owned; parallel to plan->members */
    struct device_move *moves;       /* owned; each meeting's gives, then its takes */
    struct device_gather *gathers;   /* owned; meeting by meeting */
    struct ahead_turns *turns;       /* owned; by local queue for collectives, and in it by program */
    struct actor **lists;            /* owned; the turns' */
};

/* ---- whose ---- */

/* The queue of the member, when it is this process's; else NULL. */
static struct ahead_queue *queue_of_member(const struct weir_session *s, uint32_t member)
{
    uint32_t actor = s->plan->members[member].i;
    return built_runs(&s->built, actor) ? session_queue(s, s->plan->actors[actor].queue.i) : NULL;
}

static struct actor_ahead *ahead_of_member(const struct weir_session *s, uint32_t member)
{
    return s->built.actors[s->plan->members[member].i].ahead;
}

static bool is_local(const struct weir_session *s, uint32_t queue)
{
    const plan_queue *from = &s->plan->queues[queue];
    return from->kind == PLAN_COLLECTIVE && built_owns(&s->built, from->space.i);
}

static weir_status check_devices(const struct weir_session *s)
{
    const weir_plan *plan = s->plan;
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        const struct device_ops *device = is_local(s, q) ? s->built.arenas[plan->queues[q].space.i].device : NULL;
        if (device && !(session_queue(s, q) && device->group_new && device->group_free && device->meet))
            return error_set(WEIR_E_UNSUPPORTED,
                             "the plan has collectives, and %s cannot take part: devices of its kind do nothing together",
                             plan_text(plan, plan->spaces[plan->queues[q].space.i].name));
    }
    return WEIR_OK;
}

/* A number of this session alone. */
static uint64_t session_number(void)
{
    static _Atomic uint32_t opened;
    /* relaxed: it only has to be another one each time */
    return (uint64_t)getpid() << 32 | atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed);
}

/* Members that find each other by the id have the same one on all ranks. */
static struct device_group_id id_of(const struct weir_session *s, const struct device_ops *device, uint32_t number)
{
    bool shared = s->built.cluster && !device->group_join;
    return (struct device_group_id){shared ? net_session(s->built.cluster->net) : s->devices.groups->session, number};
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
                        uint32_t peer, struct device_group **group)
{
    struct session_groups *groups = s->devices.groups;
    const struct device_ops *device = queue->device->device;
    struct device_group_id id = id_of(s, device, collective->group);
    for (uint32_t i = 0; i < groups->count; i++)
        if (groups->memberships[i].queue == queue && groups->memberships[i].number == collective->group) {
            *group = groups->memberships[i].group;
            return WEIR_OK;
        }
    uint32_t here = members_here(s, collective);
    weir_status status = device->group_new(queue->device, &id, peer, collective->members.count, here, group);
    if (!status)
        groups->memberships[groups->count++] = (struct membership){queue, collective->group, here, *group, NULL};
    return status;
}

/* ---- meetings ---- */

static enum device_collective kind_of(uint32_t kind)
{
    return kind == PLAN_REDUCE_SCATTER ? DEVICE_REDUCE_SCATTER : kind == PLAN_ALL_REDUCE ? DEVICE_ALL_REDUCE : DEVICE_MOVES;
}

static void make_meeting(const struct weir_session *s, uint32_t c, uint32_t peer, struct device_group *group)
{
    const plan_collective *collective = &s->plan->collectives[c];
    uint32_t member = collective->members.first + peer;
    s->devices.groups->meetings[member] =
        (struct device_meeting){.group = group, .number = c, .kind = kind_of(collective->kind)};
    ahead_of_member(s, member)->meeting = &s->devices.groups->meetings[member];
}

static weir_status make_meetings(struct weir_session *s)
{
    weir_status status = WEIR_OK;
    for (uint32_t c = 0; !status && c < s->plan->collectives_count; c++) {
        const plan_collective *collective = &s->plan->collectives[c];
        for (uint32_t peer = 0; !status && peer < collective->members.count; peer++) {
            struct ahead_queue *queue = queue_of_member(s, collective->members.first + peer);
            struct device_group *group = NULL;
            if (!queue)
                continue;
            status = join(s, queue, collective, peer, &group);
            if (!status)
                make_meeting(s, c, peer, group);
        }
    }
    return status;
}

/* ---- turns ---- */

static struct ahead_turns *turns_of_member(const struct weir_session *s, const plan_collective *collective,
                                           uint32_t peer)
{
    struct ahead_queue *queue = queue_of_member(s, collective->members.first + peer);
    return queue ? &queue->turns[plan_program_of(s->plan, collective)] : NULL;
}

static void give_turns(struct weir_session *s)
{
    struct ahead_turns *turns = s->devices.groups->turns;
    for (uint32_t q = 0; q < s->plan->queues_count; q++)
        if (is_local(s, q)) {
            session_queue(s, q)->turns = turns;
            turns += s->plan->programs_count;
        }
    for (uint32_t c = 0; c < s->plan->collectives_count; c++)
        for (uint32_t peer = 0; peer < s->plan->collectives[c].members.count; peer++) {
            turns = turns_of_member(s, &s->plan->collectives[c], peer);
            if (turns)
                ahead_of_member(s, s->plan->collectives[c].members.first + peer)->turns = turns;
        }
}

/* The turns that a collective has are in the list of each local member. Once to count them, then to fill the lists
 * in. */
static void list_turns(struct weir_session *s, bool fill)
{
    const weir_plan *plan = s->plan;
    for (uint32_t t = 0; t < plan->turns_count; t++) {
        const plan_collective *collective = &plan->collectives[plan->turns[t].i];
        for (uint32_t peer = 0; peer < collective->members.count; peer++) {
            struct ahead_turns *turns = turns_of_member(s, collective, peer);
            if (turns && fill)
                turns->list[turns->at] = &s->built.actors[plan->members[collective->members.first + peer].i];
            if (turns)
                turns->at++;
        }
    }
}

static weir_status make_turns(struct weir_session *s, uint32_t turns_count)
{
    struct ahead_turns *turns = s->devices.groups->turns;
    size_t total = 0;
    give_turns(s);
    list_turns(s, false);
    for (uint32_t i = 0; i < turns_count; i++)
        total += turns[i].at;
    struct actor **list = s->devices.groups->lists = calloc(total + 1, sizeof(struct actor *));
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
    struct session_groups *groups = s->devices.groups = calloc(1, sizeof(*groups));
    if (groups) {
        groups->session = session_number();
        groups->memberships = calloc(plan->members_count, sizeof(*groups->memberships));
        groups->meetings = calloc(plan->members_count, sizeof(*groups->meetings));
        groups->moves = calloc(2 * (size_t)plan->moves_count + 1, sizeof(*groups->moves));
        groups->gathers = calloc((size_t)plan->moves_count + 1, sizeof(*groups->gathers));
        groups->turns = calloc(turns, sizeof(*groups->turns));
    }
    if (!groups || !groups->memberships || !groups->meetings || !groups->moves || !groups->gathers || !groups->turns)
        return error_set(WEIR_E_MEMORY, "no memory for %u collectives", plan->collectives_count);
    status = make_turns(s, turns);
    return status ? status : make_meetings(s);
}

void session_close_groups(struct weir_session *s)
{
    struct session_groups *groups = s->devices.groups;
    if (!groups)
        return;
    while (groups->memberships && groups->count) {
        struct membership *last = &groups->memberships[--groups->count];
        last->queue->device->device->group_free(last->group);
        free(last->rehearsals);
    }
    free(groups->memberships);
    free(groups->meetings);
    free(groups->moves);
    free(groups->gathers);
    free(groups->turns);
    free(groups->lists);
    free(groups);
    s->devices.groups = NULL;
}

/* ---- what a meeting does ---- */

/* Whether no member here takes otherwise. */
static bool gathers_here(const struct weir_session *s, const struct gather *gather)
{
    plan_range members = s->plan->collectives[gather->collective].members;
    uint32_t take;
    for (uint32_t peer = 0; peer < members.count; peer++)
        if (queue_of_member(s, members.first + peer) && !gather_in_one_piece(s->plan, gather, peer, &take))
            return false;
    return true;
}

/* Of one collective: all gathers that it has. */
struct meeting_lists {
    const struct weir_session *s;
    const struct gather *gather; /* borrowed */
    uint32_t count;
    struct device_move *moves;   /* the first ones that are free */
    struct device_gather *gathers;
};

static bool is_gathered(const struct meeting_lists *lists, uint32_t give)
{
    for (uint32_t i = 0; i < lists->count; i++)
        if (lists->gather[i].give == give)
            return true;
    return false;
}

/* Its moves in one direction, in the plan's order. Returns how many there are. */
static uint32_t list_moves(struct meeting_lists *lists, const plan_collective *collective, uint32_t peer, bool gives)
{
    const struct device_move *first = lists->moves;
    for (uint32_t i = collective->moves.first; i < collective->moves.first + collective->moves.count; i++) {
        const plan_move *move = &lists->s->plan->moves[i];
        if ((gives ? move->from : move->to) == peer && !is_gathered(lists, move->give))
            *lists->moves++ = gives ? (struct device_move){move->to, move->give}
                                    : (struct device_move){move->from, move->take};
    }
    return (uint32_t)(lists->moves - first);
}

static void list_meeting(struct meeting_lists *lists, struct device_meeting *meeting)
{
    const plan_collective *collective = &lists->s->plan->collectives[meeting->number];
    uint32_t peer = meeting->group->self;
    meeting->gives = lists->moves;
    meeting->give_count = list_moves(lists, collective, peer, true);
    meeting->takes = lists->moves;
    meeting->take_count = list_moves(lists, collective, peer, false);
    meeting->gathers = lists->gathers;
    meeting->gather_count = lists->count;
    for (uint32_t i = 0; i < lists->count; i++, lists->gathers++) {
        lists->gathers->give = lists->gather[i].give;
        gather_in_one_piece(lists->s->plan, &lists->gather[i], peer, &lists->gathers->take);
    }
}

/* In groups of this process, or of devices that need no key, all are moves. */
static void list_meetings(const struct weir_session *s, const struct gathers *gathers)
{
    struct meeting_lists lists = {.s = s, .moves = s->devices.groups->moves, .gathers = s->devices.groups->gathers};
    const struct gather *next = gathers->of, *end = next + gathers->count;
    for (uint32_t c = 0; c < s->plan->collectives_count; c++) {
        const plan_collective *collective = &s->plan->collectives[c];
        const struct gather *first = next;
        while (next < end && next->collective == c)
            next++;
        for (uint32_t m = collective->members.first; m < collective->members.first + collective->members.count; m++) {
            struct device_meeting *meeting = &s->devices.groups->meetings[m];
            if (!meeting->group)
                continue;
            bool joined = meeting->group->device->group_join && members_here(s, collective) < collective->members.count;
            lists.gather = first;
            lists.count = joined ? (uint32_t)(next - first) : 0;
            list_meeting(&lists, meeting);
        }
    }
}

/* ---- groups of several processes: what ranks tell each other, then all join ---- */

struct group_key {
    uint32_t number;
    unsigned char bytes[DEVICE_KEY_BYTES];
};

/* The lists of a rank, then of all: which gathers are none for some member, and keys behind. */
struct offer {
    uint8_t *bytes;           /* owned */
    size_t refusals;          /* one for each gather, as bytes; rounded up, so that keys are aligned */
    struct group_key *key;    /* in `bytes` */
    size_t count;
    bool full;                /* there was no memory for all */
};

static size_t offer_bytes(const struct offer *offer)
{
    return offer->refusals + offer->count * sizeof(struct group_key);
}

static void add_key(struct offer *offer, const struct group_key *key)
{
    uint8_t *grown = offer->full ? NULL : realloc(offer->bytes, offer_bytes(offer) + sizeof(*key));
    offer->full = !grown;
    if (!grown)
        return;
    offer->bytes = grown;
    offer->key = (struct group_key *)(grown + offer->refusals);
    offer->key[offer->count++] = *key;
}

static void add_offer(void *ctx, uint32_t rank, const void *data, size_t bytes)
{
    struct offer *offer = ctx;
    const uint8_t *from = data;
    struct group_key key;
    (void)rank;
    for (size_t i = 0; !offer->full && i < offer->refusals && i < bytes; i++)
        offer->bytes[i] |= from[i];
    for (size_t at = offer->refusals; at + sizeof(key) <= bytes; at += sizeof(key)) {
        memcpy(&key, from + at, sizeof(key));
        add_key(offer, &key);
    }
}

/* Adds this rank's groups in which the first member is here, and others are not. */
static weir_status make_keys(const struct weir_session *s, struct offer *offer)
{
    const struct session_groups *groups = s->devices.groups;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && groups && i < groups->count; i++) {
        const struct membership *member = &groups->memberships[i];
        const struct device_ops *device = member->queue->device->device;
        struct group_key key = {.number = member->number};
        if (!device->group_join || member->group->self || member->here == member->group->count)
            continue;
        status = device->group_key(member->group, key.bytes);
        if (!status)
            add_key(offer, &key);
    }
    return status;
}

/* A statement is never empty. */
static weir_status say(const struct weir_session *s, const struct gathers *gathers, struct offer *offer)
{
    offer->refusals = (size_t)gathers->count / 8 * 8 + 8;
    offer->bytes = calloc(1, offer->refusals);
    offer->full = !offer->bytes;
    for (uint32_t i = 0; !offer->full && i < gathers->count; i++)
        offer->bytes[i] = !gathers_here(s, &gathers->of[i]);
    weir_status status = make_keys(s, offer);
    return status || !offer->full ? status : error_set(WEIR_E_MEMORY, "no memory for the keys of collectives");
}

/* A rank that has left will never come. */
static weir_status others_are_there(const struct weir_session *s, int64_t deadline_ns, uint32_t number)
{
    weir_status status = ending_failure(&s->ending);
    if (!status && atomic_load(&s->built.cluster->left_count))
        return error_set(WEIR_E_PEER, "another rank closed its session while collectives of group %u were being joined",
                         number);
    if (!status && park_now_ns() > deadline_ns)
        return error_set(WEIR_E_TIMEOUT, "the devices of group %u have not all come", number);
    return status;
}

/* Whether it writes nothing that a run begins with. So says the plan to all ranks. */
static bool can_rehearse(const weir_plan *plan, const plan_collective *collective)
{
    for (uint32_t m = collective->members.first; m < collective->members.first + collective->members.count; m++) {
        plan_range regsts = plan->actors[plan->members[m].i].regsts;
        for (uint32_t r = regsts.first; r < regsts.first + regsts.count; r++)
            if (plan->regsts[r].initial)
                return false;
    }
    return true;
}

/* All meetings of the group, in the plan's order. */
static weir_status list_rehearsals(const struct weir_session *s, struct membership *member)
{
    const weir_plan *plan = s->plan;
    struct device_group *group = member->group;
    member->rehearsals = calloc(plan->collectives_count, sizeof(*member->rehearsals));
    if (!member->rehearsals)
        return error_set(WEIR_E_MEMORY, "no memory for %u collectives", plan->collectives_count);
    group->rehearsals = member->rehearsals;
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        uint32_t m = plan->collectives[c].members.first + group->self;
        if (plan->collectives[c].group == member->number && can_rehearse(plan, &plan->collectives[c]))
            member->rehearsals[group->rehearsal_count++] =
                (struct device_rehearsal){&s->devices.groups->meetings[m], &s->built.actors[plan->members[m].i].kernels->args};
    }
    return WEIR_OK;
}

static weir_status join_one(const struct weir_session *s, const struct membership *member,
                            const struct offer *offer, int64_t deadline_ns)
{
    const struct device_ops *device = member->queue->device->device;
    const struct group_key *key = offer->key;
    bool whole = false;
    weir_status status = WEIR_OK;
    if (!device->group_join || member->here == member->group->count)
        return WEIR_OK;
    while (key && key < offer->key + offer->count && key->number != member->number)
        key++;
    if (!key || key == offer->key + offer->count)
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

/* Rank 0's list is then that of all; gathers that a rank has refused are none. */
static weir_status agree(const struct weir_session *s, struct gathers *gathers, struct offer *offer)
{
    struct cluster *c = s->built.cluster;
    uint32_t kept = 0;
    weir_status status = gathers_find(gathers, s->plan);
    if (!status)
        status = say(s, gathers, offer);
    if (!status) /* else this rank fails the session, and who waits in the round hears of that */
        status = cluster_collect(c, ROUND_OPEN, offer->bytes, offer_bytes(offer), add_offer, offer);
    if (!status && c->env.rank)
        offer->count = 0;
    if (!status)
        status = cluster_spread(c, ROUND_OPEN, offer->bytes, offer_bytes(offer), add_offer, offer);
    for (uint32_t i = 0; !status && i < gathers->count; i++)
        if (!offer->bytes[i])
            gathers->of[kept++] = gathers->of[i];
    gathers->count = kept;
    return status || !offer->full ? status : error_set(WEIR_E_MEMORY, "no memory for the keys of collectives");
}

static weir_status join_all(const struct weir_session *s, const struct offer *offer)
{
    int64_t deadline_ns = park_now_ns() + s->built.cluster->env.join_ns;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && s->devices.groups && i < s->devices.groups->count; i++)
        status = list_rehearsals(s, &s->devices.groups->memberships[i]);
    for (uint32_t i = 0; !status && s->devices.groups && i < s->devices.groups->count; i++)
        status = join_one(s, &s->devices.groups->memberships[i], offer, deadline_ns);
    return status;
}

weir_status session_join_groups(struct weir_session *s)
{
    struct gathers gathers = {.of = NULL};
    struct offer offer = {.bytes = NULL};
    bool spread = s->built.cluster && spreads(s->plan);
    weir_status status = spread ? agree(s, &gathers, &offer) : WEIR_OK;
    if (!status && s->devices.groups)
        list_meetings(s, &gathers);
    if (!status && spread)
        status = join_all(s, &offer);
    if (status)
        session_fail_open(s, status, weir_error()); /* the others wait for this one */
    free(gathers.of);
    free(offer.bytes);
    return status;
}

/* ---- what is told of them ---- */

void session_companions(const struct weir_session *s, uint32_t actor, char *bytes, size_t room)
{
    const weir_plan *plan = s->plan;
    const struct device_meeting *meeting = s->built.actors[actor].ahead ? s->built.actors[actor].ahead->meeting : NULL;
    struct text text = {bytes, room, 0, false};
    bytes[0] = 0;
    if (!meeting)
        return;
    plan_range members = plan->collectives[meeting->number].members;
    for (uint32_t m = members.first; m < members.first + members.count; m++)
        if (plan->members[m].i != actor)
            text_add(&text, "%s%s", text.used ? ", " : "",
                     plan_text(plan, plan->spaces[plan_actor_space(plan, plan->members[m].i).i].name));
}
