/* actors/session/groups.c: what devices do together: their queues join groups, and their actors get turns and meetings
 * (actors/ahead.h).
 *
 * All of it is worked out from the plan when the session is opened, and does not change: a firing hands the device a
 * meeting that was made here. It hangs on session->groups, which is NULL as long as the plan has no collectives.
 *
 * A device is a member of a group as one of its queues is, which the group's devices have one of each. So there is a
 * membership for each local queue and each of its groups, however many collectives are of that group.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "actors/session/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/base/text.h"

struct membership {
    const struct ahead_queue *queue;
    uint32_t number;            /* of the group */
    struct device_group *group; /* owned */
};

struct session_groups {
    struct device_group_id id;       /* but for the number */
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

/* Members of kinds that know of no other process are all here, or none. */
static weir_status check_alone(const struct weir_session *s, const plan_collective *collective)
{
    const plan_space *here = NULL, *there = NULL;
    for (uint32_t m = collective->members.first; m < collective->members.first + collective->members.count; m++) {
        const plan_queue *queue = &s->plan->queues[s->plan->actors[s->plan->members[m].i].queue.i];
        *(queue_of_member(s, m) ? &here : &there) = &s->plan->spaces[queue->space.i];
    }
    if (!here || !there || !s->arenas[here - s->plan->spaces].device->alone)
        return WEIR_OK;
    return error_set(WEIR_E_UNSUPPORTED,
                     "the plan has collectives between %s of rank %u and %s of rank %u: those of this kind work together "
                     "within one process only",
                     plan_text(s->plan, here->name), here->rank, plan_text(s->plan, there->name), there->rank);
}

/* The same on all ranks, and on no other session's. */
static uint64_t session_number(const struct weir_session *s)
{
    static _Atomic uint32_t opened;
    if (s->cluster)
        return net_session(s->cluster->net);
    /* relaxed: it only has to be another one each time */
    return (uint64_t)getpid() << 32 | atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed);
}

/* ---- groups ---- */

static weir_status join(struct session_groups *groups, struct ahead_queue *queue, const plan_collective *collective,
                        uint32_t place, struct device_group **group)
{
    struct device_group_id id = {groups->id.session, collective->group};
    for (uint32_t i = 0; i < groups->count; i++)
        if (groups->memberships[i].queue == queue && groups->memberships[i].number == collective->group) {
            *group = groups->memberships[i].group;
            return WEIR_OK;
        }
    weir_status status = queue->device->device->group_new(queue->device, &id, place, collective->members.count, group);
    if (!status)
        groups->memberships[groups->count++] = (struct membership){queue, collective->group, *group};
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
    ahead_of_member(s, member)->meeting = meeting;
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
            status = join(s->groups, queue, collective, place, &group);
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

/* The turns that a collective has are in the list of each local member. Once to count them, then to fill the lists in. */
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
        groups->id.session = session_number(s);
        groups->memberships = calloc(plan->members_count, sizeof(*groups->memberships));
        groups->meetings = calloc(plan->members_count, sizeof(*groups->meetings));
        groups->moves = calloc(2 * (size_t)plan->moves_count + 1, sizeof(*groups->moves));
        groups->turns = calloc(turns, sizeof(*groups->turns));
    }
    if (!groups || !groups->memberships || !groups->meetings || !groups->moves || !groups->turns)
        return error_set(WEIR_E_MEMORY, "no memory for %u collectives", plan->collectives_count);
    for (uint32_t c = 0; !status && c < plan->collectives_count; c++)
        status = check_alone(s, &plan->collectives[c]);
    if (!status)
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
    }
    free(groups->memberships);
    free(groups->meetings);
    free(groups->moves);
    free(groups->turns);
    free(groups->lists);
    free(groups);
    s->groups = NULL;
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
