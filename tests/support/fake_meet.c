/* tests/support/fake_meet.c: groups of fake devices, and what their members do together. A meeting at the head of its
 * member's queue goes on in steps, each of which the engine takes when it draws that queue:
 *
 *     comes    the board says at which collective the member is
 *     waits    until all members are at it; then it begins for all that are in this process: what they take is poisoned
 *     gives    at a time of its own: its gives are copied to the board
 *     gave     until all gave
 *     takes    at a time of its own: its takes are copied, or summed up, from the board; it is over
 *
 * A step touches its own member's memory alone, so that members are in different processes as in one, and nothing is
 * touched for a queue that was aborted. A member whose queue fails goes no further, and so the others wait.
 *
 * For the detector of races a meeting begins after all that members did before, and gives were read before any is over.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "tests/support/fake_inside.h"

#define LOOK_NS 50000 /* how often the board is looked at that other processes write to */

/* ---- the host's side ---- */

weir_status fake_group_new(struct device_queue *head, const struct device_group_id *id, uint32_t place, uint32_t count,
                           uint32_t here, struct device_group **made)
{
    struct fake_queue *queue = (struct fake_queue *)head;
    (void)here; /* members find each other on the board */
    const char *why = place < count && count <= BOARD_MEMBERS_MAX ? NULL : "there is no such place";
    struct fake_group *group = why ? NULL : calloc(1, sizeof *group);
    if (!why && !group)
        abort();
    pthread_mutex_lock(&fake_the->lock);
    if (head->marked || queue->first)
        fake_misuse(fake_the, "queue %" PRIu32 " joins a group when it has begun", queue->id);
    struct board_group *board = why ? NULL : board_join(fake_the->board, id, place, count, &why);
    if (board) {
        *group = (struct fake_group){.head = {.device = head->device, .self = place, .count = count},
                                     .next = fake_the->groups, .queue = queue, .id = *id, .board = board};
        fake_the->groups = group;
        *made = &group->head;
    } else {
        fake_misuse(fake_the, "member %" PRIu32 " of %" PRIu32 " of group %" PRIu32 ": %s", place, count, id->number, why);
        free(group);
    }
    pthread_mutex_unlock(&fake_the->lock);
    return board ? WEIR_OK : error_set(WEIR_E_STATE, "member %" PRIu32 " of a group: %s", place, why);
}

/* Whether the member has yet to meet, as far as is enqueued. */
static bool has_meetings(const struct fake_group *group)
{
    if (group->queue->aborted || group->queue->stuck)
        return false;
    for (const struct fake_entry *entry = group->queue->first; entry; entry = entry->next)
        if (entry->kind == FAKE_MEET && entry->meeting.group == group)
            return true;
    return false;
}

/* Under the lock. */
static void leave_group(struct fake *fake, struct fake_group *group)
{
    struct fake_group **link = &fake->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    board_leave(fake->board, group->board, group->head.self);
    free(group);
}

void fake_group_free(struct device_group *head)
{
    struct fake_group *group = (struct fake_group *)head;
    pthread_mutex_lock(&fake_the->lock);
    if (has_meetings(group)) {
        fake_misuse(fake_the, "group %" PRIu32 " is freed while queue %" PRIu32 " is to meet", group->id.number,
                    group->queue->id);
        group->queue->stuck = true;
    }
    leave_group(fake_the, group);
    pthread_mutex_unlock(&fake_the->lock);
}

void fake_free_groups(struct fake *fake)
{
    while (fake->groups) {
        fake_misuse(fake, "member %" PRIu32 " of group %" PRIu32 " was left open", fake->groups->head.self,
                    fake->groups->id.number);
        leave_group(fake, fake->groups);
    }
}

static bool moves_fit(const struct device_move *moves, uint32_t count, uint32_t members, int views)
{
    for (uint32_t i = 0; i < count; i++)
        if (moves[i].peer >= members || moves[i].view >= (uint32_t)views)
            return false;
    return true;
}

/* The error in the member's part by itself; NULL: none. */
static const char *wrong(const struct fake_queue *queue, const struct device_meeting *is, const weir_kernel_args *args)
{
    const struct fake_group *group = (const struct fake_group *)is->group;
    if (!group || group->queue != queue)
        return "the group is another queue's";
    if (is->kind == DEVICE_MOVES) {
        bool fit = moves_fit(is->gives, is->give_count, group->head.count, args->in_count) &&
                   moves_fit(is->takes, is->take_count, group->head.count, args->out_count);
        return fit ? NULL : "it moves what there is not";
    }
    uint64_t parts = is->kind == DEVICE_REDUCE_SCATTER ? group->head.count : 1;
    if (!args->in_count || args->in_count != args->out_count)
        return "it adds what has not an output for each input";
    for (int i = 0; i < args->in_count; i++) {
        if (args->in[i].dtype != args->out[i].dtype || !weir_dtype_real(args->in[i].dtype))
            return "it adds what are not a real input and such an output";
        if (fake_view_bytes(&args->in[i]) != parts * fake_view_bytes(&args->out[i]))
            return "it adds into another number of bytes";
    }
    return NULL;
}

weir_status fake_meet(struct device_queue *head, const struct device_meeting *meeting, const weir_kernel_args *args)
{
    struct fake_queue *queue = (struct fake_queue *)head;
    weir_status status = fake_enter(queue);
    if (status)
        return status;
    fake_the->seen.meetings++;
    const char *what = wrong(queue, meeting, args);
    if (what) {
        fake_misuse(fake_the, "collective %" PRIu32 " on queue %" PRIu32 ": %s", meeting->number, queue->id, what);
        fake_leave(queue, NULL);
        return error_set(WEIR_E_STATE, "collective %" PRIu32 ": %s", meeting->number, what);
    }
    struct fake_group *group = (struct fake_group *)meeting->group;
    struct fake_entry *entry = fake_copy_call(queue, NULL, args);
    group->meetings += entry->fault != FAKE_LAUNCH_FAILS;
    entry->meeting = (struct fake_meeting){.is = *meeting, .group = group, .count = group->meetings};
    return fake_leave_with_call(queue, entry, args);
}

/* ---- what all members did ---- */

static struct board_place *place_of(const struct fake_meeting *meeting)
{
    return &meeting->group->board->place[meeting->group->head.self];
}

static uint64_t what_it_is(const struct fake_meeting *meeting)
{
    return (uint64_t)meeting->is.kind << 32 | meeting->is.number;
}

static bool has_come(const struct board_place *place, uint64_t count)
{
    return atomic_load_explicit(&place->arrived, memory_order_acquire) >= count;
}

static bool has_given(const struct board_place *place, uint64_t count)
{
    return atomic_load_explicit(&place->posted, memory_order_acquire) >= count;
}

/* The first member that has come elsewhere; `head.count` when there is none. */
static uint32_t who_differs(const struct fake_meeting *meeting)
{
    const struct board_group *board = meeting->group->board;
    uint32_t m = 0;
    for (; m < board->count; m++)
        if (has_come(&board->place[m], meeting->count) &&
            atomic_load_explicit(&board->place[m].what, memory_order_relaxed) != what_it_is(meeting))
            break;
    return m;
}

/* The first member that the meeting waits for; `head.count` when there is none. */
static uint32_t who_is_late(const struct fake_meeting *meeting)
{
    const struct board_group *board = meeting->group->board;
    bool (*done)(const struct board_place *place, uint64_t count) = meeting->phase == FAKE_WAITS ? has_come : has_given;
    uint32_t m = 0;
    while (m < board->count && done(&board->place[m], meeting->count))
        m++;
    return m;
}

static void look_again(int64_t at_ns, int64_t *wake_ns)
{
    if (at_ns < *wake_ns)
        *wake_ns = at_ns;
}

bool fake_meeting_ready(const struct fake *fake, const struct fake_entry *entry, int64_t now_ns, int64_t *wake_ns)
{
    const struct fake_meeting *meeting = &entry->meeting;
    uint32_t count = meeting->group->head.count;
    int64_t until_ns = entry->due_ns;
    if (meeting->phase == FAKE_COMES)
        return true;
    if (meeting->phase == FAKE_WAITS || meeting->phase == FAKE_GAVE) {
        if (who_is_late(meeting) == count || (meeting->phase == FAKE_WAITS && who_differs(meeting) < count))
            return true;
        until_ns = meeting->give_up_ns;
        if (fake->options.board)
            look_again(now_ns + LOOK_NS, wake_ns);
    }
    look_again(until_ns, wake_ns);
    return until_ns <= now_ns;
}

/* ---- errors ---- */

static void fail_with(struct fake_queue *queue, struct fake_entry *entry, const char *error)
{
    snprintf(entry->error, sizeof entry->error, "%s", error);
    fake_fail(queue, entry, WEIR_E_KERNEL);
}

static void fail_for_misuse(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry, const char *error)
{
    fake_misuse(fake, "queue %" PRIu32 " of fake:%" PRIu32 ": %s", queue->id, queue->head.index, error);
    fail_with(queue, entry, error);
}

static void tell_difference(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry, uint32_t other)
{
    char error[FAKE_TEXT_BYTES];
    const struct fake_group *group = entry->meeting.group;
    uint64_t theirs = atomic_load_explicit(&group->board->place[other].what, memory_order_relaxed);
    snprintf(error, sizeof error,
             "members differ: in group %" PRIu32 " member %" PRIu32 " is at collective %" PRIu32 " and member %" PRIu32
             " at %" PRIu32 "%s",
             group->id.number, group->head.self, entry->meeting.is.number, other, (uint32_t)theirs,
             (uint32_t)theirs == entry->meeting.is.number ? ", another kind" : "");
    fail_for_misuse(fake, queue, entry, error);
}

static void give_up(struct fake_queue *queue, struct fake_entry *entry, uint32_t late)
{
    char error[FAKE_TEXT_BYTES];
    snprintf(error, sizeof error, "member %" PRIu32 " of group %" PRIu32 " does not %s collective %" PRIu32, late,
             entry->meeting.group->id.number, entry->meeting.phase == FAKE_WAITS ? "come to" : "give its part in",
             entry->meeting.is.number);
    fail_with(queue, entry, error);
}

/* ---- steps ---- */

static int64_t patience_ns(const struct fake *fake)
{
    uint32_t told = fake->options.meet_ms;
    return fake_now_ns() + (int64_t)(told ? told : FAKE_MEET_MS) * 1000000;
}

static void come(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry)
{
    struct fake_meeting *meeting = &entry->meeting;
    struct board_place *place = place_of(meeting);
    if (entry->fault == FAKE_DIES) {
        fake_die(queue);
        return;
    }
    atomic_store_explicit(&place->what, what_it_is(meeting), memory_order_relaxed);
    atomic_store_explicit(&place->arrived, meeting->count, memory_order_release); /* pairs with has_come() */
    meeting->phase = FAKE_WAITS;
    meeting->give_up_ns = patience_ns(fake);
}

/* Queues of this process whose heads are at the same step of the same meeting. */
static uint32_t find_here(const struct fake *fake, const struct fake_meeting *meeting, uint32_t ids[FAKE_QUEUES_MAX])
{
    uint32_t count = 0;
    for (const struct fake_group *group = fake->groups; group; group = group->next) {
        const struct fake_entry *entry = group->queue->first;
        bool works = !group->queue->aborted && !group->queue->stuck && !group->queue->freed;
        if (group->board == meeting->group->board && works && entry && entry->kind == FAKE_MEET &&
            entry->meeting.group == group && entry->meeting.count == meeting->count &&
            entry->meeting.phase == meeting->phase)
            ids[count++] = group->queue->id;
    }
    return count;
}

static void begin_one(struct fake *fake, struct fake_queue *queue)
{
    struct fake_entry *entry = queue->first;
    if (fake->races) {
        fake_access_all(fake, queue, entry, false);
        fake_access_all(fake, queue, entry, true);
    }
    fake_poison(entry);
    entry->begun = true;
    fake->seen.begun++;
    if (!queue->start_ns)
        queue->start_ns = fake_now_ns();
    entry->due_ns = fake_due_ns(fake);
    entry->meeting.phase = FAKE_GIVES;
    queue->stuck = entry->fault == FAKE_HANGS;
}

static void begin_all(struct fake *fake, const struct fake_meeting *meeting)
{
    uint32_t ids[FAKE_QUEUES_MAX], count = find_here(fake, meeting, ids);
    for (uint32_t i = 0; i < count && fake->races; i++)
        for (uint32_t q = 0; q < fake->queue_count; q++)
            races_await(fake->races, ids[i], q, fake->queues[ids[i]]->first->passed[q]);
    if (fake->races)
        races_meet(fake->races, ids, count);
    for (uint32_t i = 0; i < count; i++)
        begin_one(fake, fake->queues[ids[i]]);
}

/* The number of things that the member gives, and the give `i`. Where members add, each input is one for all. */
static uint32_t give_count(const struct fake_entry *entry)
{
    return entry->meeting.is.kind == DEVICE_MOVES ? entry->meeting.is.give_count : (uint32_t)entry->args.in_count;
}

static const weir_view *give_of(const struct fake_entry *entry, uint32_t i)
{
    return &entry->args.in[entry->meeting.is.kind == DEVICE_MOVES ? entry->meeting.is.gives[i].view : i];
}

/* False: there is no room on the board. */
static bool post(struct fake *fake, const struct fake_entry *entry)
{
    const struct fake_meeting *meeting = &entry->meeting;
    struct board_place *place = place_of(meeting);
    uint32_t count = give_count(entry);
    uint64_t bytes = count * sizeof(struct board_give);
    for (uint32_t i = 0; i < count; i++)
        bytes += fake_view_bytes(give_of(entry, i));
    struct board_give *list = board_region(fake->board, place, bytes);
    if (!list)
        return false;
    char *at = (char *)(list + count);
    for (uint32_t i = 0; i < count; i++) {
        const weir_view *view = give_of(entry, i);
        list[i].peer = meeting->is.kind == DEVICE_MOVES ? meeting->is.gives[i].peer : 0;
        list[i].bytes = fake_view_bytes(view);
        if (list[i].bytes)
            memcpy(at, view->data, list[i].bytes);
        at += list[i].bytes;
    }
    place->give_count = count;
    atomic_store_explicit(&place->posted, meeting->count, memory_order_release); /* pairs with has_given() */
    return true;
}

static void give(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry)
{
    if (entry->fault)
        fake_fail(queue, entry, WEIR_E_KERNEL);
    else if (!post(fake, entry))
        fail_with(queue, entry, "the board has no room");
    else
        entry->meeting.phase = FAKE_GAVE;
    entry->meeting.give_up_ns = patience_ns(fake);
}

static void end_all(struct fake *fake, const struct fake_meeting *meeting)
{
    uint32_t ids[FAKE_QUEUES_MAX], count = find_here(fake, meeting, ids);
    if (fake->races)
        races_meet(fake->races, ids, count);
    for (uint32_t i = 0; i < count; i++) {
        struct fake_entry *entry = fake->queues[ids[i]]->first;
        entry->due_ns = fake_due_ns(fake);
        entry->meeting.phase = FAKE_TAKES;
    }
}

/* ---- what is taken ---- */

/* Copies what the n-th of the moves from `from` gives to this member. False: there is none of so many bytes. */
static bool take_move(const struct fake *fake, const struct fake_entry *entry, uint32_t from, uint32_t n,
                      const weir_view *to)
{
    const struct fake_group *group = entry->meeting.group;
    const struct board_place *place = &group->board->place[from];
    for (uint32_t i = 0; i < place->give_count; i++) {
        struct board_give given;
        const void *bytes = board_given(fake->board, place, i, &given);
        if (given.peer != group->head.self || n--)
            continue;
        if (given.bytes == fake_view_bytes(to) && given.bytes)
            memcpy(to->data, bytes, given.bytes);
        return given.bytes == fake_view_bytes(to);
    }
    return false;
}

static uint32_t given_to(const struct fake *fake, const struct board_place *place, uint32_t member)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < place->give_count; i++) {
        struct board_give given;
        board_given(fake->board, place, i, &given);
        count += given.peer == member;
    }
    return count;
}

/* The first member that does not agree; `head.count` when all do. */
static uint32_t take_moves(const struct fake *fake, const struct fake_entry *entry)
{
    const struct device_meeting *is = &entry->meeting.is;
    const struct fake_group *group = entry->meeting.group;
    uint32_t taken[BOARD_MEMBERS_MAX] = {0};
    for (uint32_t i = 0; i < is->take_count; i++)
        if (!take_move(fake, entry, is->takes[i].peer, taken[is->takes[i].peer]++, &entry->args.out[is->takes[i].view]))
            return is->takes[i].peer;
    uint32_t m = 0;
    while (m < group->head.count && given_to(fake, &group->board->place[m], group->head.self) == taken[m])
        m++;
    return m;
}

/* Adds the inputs `which`, in the order of the members, from element `first` of what each gives; f32 whatever the
 * dtype. */
static uint32_t take_sum(const struct fake *fake, const struct fake_entry *entry, uint32_t which)
{
    const struct fake_group *group = entry->meeting.group;
    const weir_view *to = &entry->args.out[which];
    int64_t items = weir_shape_count(&to->shape);
    uint64_t to_bytes = fake_view_bytes(to), whole = fake_view_bytes(&entry->args.in[which]);
    uint64_t first = entry->meeting.is.kind == DEVICE_REDUCE_SCATTER ? group->head.self * to_bytes : 0;
    float *sum = calloc((size_t)items + 1, sizeof *sum), *next = calloc((size_t)items + 1, sizeof *next);
    if (!sum || !next)
        abort();
    uint32_t m = 0;
    for (; m < group->head.count; m++) {
        struct board_give given;
        const struct board_place *place = &group->board->place[m];
        if (place->give_count != (uint32_t)entry->args.in_count)
            break;
        const char *bytes = board_given(fake->board, place, which, &given);
        if (given.bytes != whole)
            break;
        weir_to_f32(to->dtype, bytes + first, items, next);
        for (int64_t i = 0; i < items; i++)
            sum[i] = m ? sum[i] + next[i] : next[i];
    }
    if (m == group->head.count)
        weir_from_f32(sum, items, to->dtype, to->data);
    free(sum);
    free(next);
    return m;
}

static uint32_t take_sums(const struct fake *fake, const struct fake_entry *entry)
{
    uint32_t m = entry->meeting.group->head.count;
    for (int i = 0; i < entry->args.in_count && m == entry->meeting.group->head.count; i++)
        m = take_sum(fake, entry, (uint32_t)i);
    return m;
}

static void take(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry)
{
    const struct fake_group *group = entry->meeting.group;
    if (fake->races)
        fake_access_all(fake, queue, entry, true);
    uint32_t m = entry->meeting.is.kind == DEVICE_MOVES ? take_moves(fake, entry) : take_sums(fake, entry);
    if (m < group->head.count) {
        char error[FAKE_TEXT_BYTES];
        snprintf(error, sizeof error, "members differ: in collective %" PRIu32 " of group %" PRIu32 " member %" PRIu32
                 " does not give what member %" PRIu32 " takes", entry->meeting.is.number, group->id.number, m,
                 group->head.self);
        fail_for_misuse(fake, queue, entry, error);
        return;
    }
    queue->end_ns = fake_now_ns();
    fake_finish(queue);
    pthread_cond_broadcast(&fake->rest);
}

void fake_meeting_advance(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry)
{
    struct fake_meeting *meeting = &entry->meeting;
    uint32_t count = meeting->group->head.count, late = count, other = count;
    if (meeting->phase == FAKE_WAITS || meeting->phase == FAKE_GAVE)
        late = who_is_late(meeting);
    if (meeting->phase == FAKE_WAITS)
        other = who_differs(meeting);
    if (other < count)
        tell_difference(fake, queue, entry, other);
    else if (late < count)
        give_up(queue, entry, late);
    else if (meeting->phase == FAKE_COMES)
        come(fake, queue, entry);
    else if (meeting->phase == FAKE_WAITS)
        begin_all(fake, meeting);
    else if (meeting->phase == FAKE_GIVES)
        give(fake, queue, entry);
    else if (meeting->phase == FAKE_GAVE)
        end_all(fake, meeting);
    else
        take(fake, queue, entry);
}
