/* regst/cuda/group.c: collectives. Among the devices of this process they are made of events and copies; a group with
 * members elsewhere meets by NCCL (nccl.c), all members of this process at once.
 *
 * A stream cannot wait for what nobody has enqueued yet. So what comes to a queue for collectives is held back from its
 * first meeting on: it is a list, whose head is a meeting that some member has not come to. The thread that brings the last
 * member enqueues the meeting on the streams of all, and then what was held back behind it, up to the next meeting. No host
 * waits, and the members' streams wait for each other by events, by way of member 0, so that their number does not grow with
 * the square of that of the members:
 *
 *     member 0:  wait came 1, came 2   record all_came    takes its part   wait went 1, went 2   record all_went
 *     member 1:  record came 1         wait all_came      takes its part   record went 1         wait all_went
 *     member 2:  record came 2         wait all_came      takes its part   record went 2         wait all_went
 *
 * Each takes: it copies from where the others gave, or adds what they gave in the order of the members, so that the
 * bits do not depend on who was first. Many parts are copied by one kernel, where the cards reach each other's memory. That
 * what a member gave may be written again when its part is over is what `went` is for.
 *
 * A meeting with members elsewhere may take its time to be launched; till then it stays the head of its members' lists.
 *
 * One lock is for all: halls, the members' lists, and what is enqueued on streams of such queues. A thread that
 * enqueues a meeting holds it for dozens of calls of the driver, which must not hold up the threads of other cards. So no
 * thread waits for the lock to bring something: the thread leaves it with the queue (`brought`), and the holder of the lock
 * takes it, at the latest when it gives the lock back. A mark that is held back
 * has its ticket already; others may await it from when it is put (`put` in regst/device.h).
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "regst/cuda/group.h"

static pthread_mutex_t group_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hall *halls;
static struct queue *_Atomic stirred; /* queues for which something was brought */

static void take_brought(void);

static void enter(void)
{
    pthread_mutex_lock(&group_lock);
    take_brought();
}

/* Does the work that has been brought, unless another thread is in: that one does it when it leaves. */
static void work(void)
{
    while (atomic_load(&stirred) && !pthread_mutex_trylock(&group_lock)) {
        take_brought();
        pthread_mutex_unlock(&group_lock);
        atomic_thread_fence(memory_order_seq_cst); /* pairs with defer()'s: one of both sees the other */
    }
}

static void leave(void)
{
    pthread_mutex_unlock(&group_lock);
    atomic_thread_fence(memory_order_seq_cst);
    work();
}

void group_pause(long ns)
{
    leave();
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    enter();
}

/* ---- groups ---- */

static struct hall *hall_at(const struct device_group_id *id, uint32_t count, uint32_t here)
{
    struct hall *hall = halls;
    while (hall && (hall->id.session != id->session || hall->id.number != id->number))
        hall = hall->next;
    if (hall)
        return hall;
    hall = calloc(1, sizeof *hall + count * sizeof(struct group *));
    if (hall) {
        hall->next = halls;
        hall->id = *id;
        hall->count = count;
        hall->here = here;
        halls = hall;
    }
    return hall;
}

static void hall_leave(struct hall *hall)
{
    if (hall->joined)
        return;
    struct hall **link = &halls;
    while (*link != hall)
        link = &(*link)->next;
    *link = hall->next;
    free(hall);
}

/* Whether kernels of one card may read the other's memory; from now on they do. */
static bool reach(int from, int to)
{
    int can = 0;
    if (from == to)
        return true;
    bool reached = !cudaDeviceCanAccessPeer(&can, from, to) && can && !cudaSetDevice(from);
    cudaError_t error = reached ? cudaDeviceEnablePeerAccess(to, 0) : cudaErrorPeerAccessUnsupported;
    cudaGetLastError();
    return error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
}

static void reach_all(struct hall *hall, int card)
{
    for (uint32_t m = 0; m < hall->count; m++)
        if (hall->member[m])
            hall->apart |= !reach(card, hall->member[m]->queue->card) || !reach(hall->member[m]->queue->card, card);
}

static weir_status join(struct group *group, const struct device_group_id *id, uint32_t here)
{
    uint32_t index = group->queue->head.index, self = group->head.self;
    struct hall *hall = hall_at(id, group->head.count, here);
    if (!hall)
        return the.host->error_set(WEIR_E_MEMORY, "cuda:%u: no memory for a group", index);
    if (hall->count != group->head.count || self >= hall->count || hall->member[self])
        return the.host->error_set(WEIR_E_STATE, "cuda:%u: member %u of group %u: there is no such place", index, self,
                                   id->number);
    if (!hall_spreads(hall))
        reach_all(hall, group->queue->card);
    hall->member[self] = group;
    hall->joined++;
    group->hall = hall;
    return card_set(index);
}

/* The work under way ends first: events wait for their streams. */
static void destroy(struct group *group)
{
    struct hall *hall = group->hall;
    if (hall && hall_spreads(hall))
        nccl_leave(hall);
    bool hung = cards_hang();
    cudaEvent_t *const events[] = {&group->came, &group->went, &group->all_came, &group->all_went};
    for (size_t i = 0; i < sizeof events / sizeof *events && !hung; i++)
        if (*events[i])
            cudaEventDestroy(*events[i]);
    if (hall) {
        hall->member[group->head.self] = NULL;
        hall->joined--;
        hall_leave(hall);
    }
    free(group);
}

weir_status group_new(struct device_queue *head, const struct device_group_id *id, uint32_t self, uint32_t count,
                      uint32_t here, struct device_group **made)
{
    struct group *group = calloc(1, sizeof *group + count * sizeof *group->next);
    if (!group)
        return the.host->error_set(WEIR_E_MEMORY, "cuda:%u: no memory for a group", head->index);
    group->head = (struct device_group){.device = head->device, .self = self, .count = count};
    group->queue = queue_of(head);
    weir_status status = card_set(head->index);
    enter();
    cudaEvent_t *const events[] = {&group->came, &group->went, &group->all_came, &group->all_went};
    for (size_t i = 0; !status && i < (self ? 2 : sizeof events / sizeof *events); i++)
        status = CALL(head->index, cudaEventCreateWithFlags, events[i], cudaEventDisableTiming);
    if (!status)
        status = join(group, id, here);
    if (status)
        destroy(group);
    else
        *made = &group->head;
    leave();
    return status;
}

void group_free(struct device_group *head)
{
    card_set_own();
    enter();
    destroy((struct group *)head);
    leave();
}

weir_status group_key(struct device_group *head, unsigned char key[DEVICE_KEY_BYTES])
{
    return nccl_key(((struct group *)head)->queue->head.index, key);
}

weir_status group_join(struct device_group *head, const unsigned char key[DEVICE_KEY_BYTES], bool *whole)
{
    struct hall *hall = ((struct group *)head)->hall;
    weir_status status = WEIR_OK;
    *whole = true;
    card_set_own();
    enter();
    if (hall_spreads(hall))
        status = nccl_join(hall, key, whole);
    leave();
    return status;
}

/* ---- what a member takes; under the lock ---- */

static struct deferred *part_of(const struct hall *hall, uint32_t member)
{
    return hall->member[member]->queue->first;
}

static weir_status differ(const struct deferred *at, uint32_t other)
{
    const struct group *group = (const struct group *)at->meeting.group;
    return the.host->error_set(WEIR_E_KERNEL,
                               "cuda:%u: members differ: in collective %u member %u does not give what member %u takes",
                               group->queue->head.index, at->meeting.number, other, group->head.self);
}

/* The next part that `from` gives to `to`, from its move *next on, which moves on; NULL: there is no more. */
static const struct part *given(const struct deferred *from, uint32_t to, uint32_t *next)
{
    while (*next < from->meeting.give_count) {
        const struct device_move *give = &from->meeting.gives[(*next)++];
        if (give->peer == to)
            return &from->parts[give->view];
    }
    return NULL;
}

static weir_status copy_one(const struct queue *queue, const struct move_part *part, const struct queue *giver)
{
    if (queue->card != giver->card)
        return CALL(queue->head.index, cudaMemcpyPeerAsync, part->to, queue->card, part->from, giver->card, part->bytes,
                    queue->stream);
    return CALL(queue->head.index, cudaMemcpyAsync, part->to, part->from, part->bytes, cudaMemcpyDeviceToDevice,
                queue->stream);
}

static weir_status move_many(const struct queue *queue, struct move_parts *parts)
{
    char error[TEXT_BYTES] = "";
    const weir_kernel_args args = {.queue = queue->stream, .error = error, .error_bytes = sizeof error};
    weir_status status = kernels_move(&args, parts);
    parts->count = 0;
    parts->chunks = 0;
    return status ? the.host->error_set(status, "cuda:%u: %s", queue->head.index, error) : WEIR_OK;
}

/* Few parts are copied one by one, without a kernel. */
enum { MOVES_FEW = 2 };

static weir_status take_moves(const struct hall *hall, const struct deferred *at)
{
    struct group *group = (struct group *)at->meeting.group;
    bool few = hall->apart || at->meeting.take_count <= MOVES_FEW;
    struct move_parts parts = {.count = 0};
    weir_status status = WEIR_OK;
    memset(group->next, 0, hall->count * sizeof *group->next);
    for (uint32_t i = 0; !status && i < at->meeting.take_count; i++) {
        const struct device_move *take = &at->meeting.takes[i];
        const struct part *to = &at->parts[at->in_count + (int)take->view];
        const struct part *from = given(part_of(hall, take->peer), group->head.self, &group->next[take->peer]);
        if (!from || from->bytes != to->bytes)
            return differ(at, take->peer);
        if (!to->bytes)
            continue;
        move_parts_add(&parts, to->at, from->at, to->bytes);
        if (few)
            status = copy_one(group->queue, &parts.of[--parts.count], hall->member[take->peer]->queue);
        else if (parts.count == MOVES_MAX)
            status = move_many(group->queue, &parts);
    }
    return status || !parts.count ? status : move_many(group->queue, &parts);
}

/* Output `i` from the inputs i of all. */
static weir_status take_sum(const struct hall *hall, const struct deferred *at, int i)
{
    const struct group *group = (const struct group *)at->meeting.group;
    const struct part *to = &at->parts[at->in_count + i];
    bool scatter = at->meeting.kind == DEVICE_REDUCE_SCATTER;
    uint64_t item = at->dtype == WEIR_F32 ? 4 : 2;
    struct sum_terms terms = {.count = (int)hall->count};
    char error[TEXT_BYTES] = "";
    const weir_kernel_args args = {.queue = group->queue->stream, .error = error, .error_bytes = sizeof error};
    for (uint32_t m = 0; m < hall->count; m++) {
        const struct deferred *theirs = part_of(hall, m);
        const struct part *from = &theirs->parts[i];
        if (theirs->in_count != at->in_count || from->bytes != at->parts[i].bytes || theirs->dtype != at->dtype)
            return differ(at, m);
        terms.of[m] = (const char *)from->at + (scatter ? group->head.self * to->bytes : 0);
    }
    weir_status status = kernels_sum(&args, &terms, at->dtype, to->at, (int64_t)(to->bytes / item));
    return status ? the.host->error_set(status, "cuda:%u: %s", group->queue->head.index, error) : WEIR_OK;
}

static weir_status take_sums(const struct hall *hall, const struct deferred *at)
{
    weir_status status = WEIR_OK;
    for (int i = 0; !status && i < at->in_count; i++)
        status = take_sum(hall, at, i);
    return status;
}

/* ---- a meeting; under the lock ---- */

static weir_status wait_for(const struct group *group, cudaEvent_t event)
{
    return CALL(group->queue->head.index, cudaStreamWaitEvent, group->queue->stream, event, 0);
}

static weir_status record(const struct group *group, cudaEvent_t event)
{
    return CALL(group->queue->head.index, cudaEventRecord, event, group->queue->stream);
}

/* Work that is enqueued for a member from now on begins when all streams have come here: to what follows a meeting (`went`),
 * or to the meeting. */
static weir_status meet_all(const struct hall *hall, bool went)
{
    const struct group *first = hall->member[0];
    weir_status status = WEIR_OK;
    for (uint32_t m = 1; !status && m < hall->count; m++) {
        const struct group *group = hall->member[m];
        status = card_set(group->queue->head.index);
        if (!status)
            status = record(group, went ? group->went : group->came);
    }
    if (!status)
        status = card_set(first->queue->head.index);
    for (uint32_t m = 1; !status && m < hall->count; m++)
        status = wait_for(first, went ? hall->member[m]->went : hall->member[m]->came);
    if (!status && hall->count > 1)
        status = record(first, went ? first->all_went : first->all_came);
    for (uint32_t m = 1; !status && m < hall->count; m++) {
        status = card_set(hall->member[m]->queue->head.index);
        if (!status)
            status = wait_for(hall->member[m], went ? first->all_went : first->all_came);
    }
    return status;
}

static weir_status come(const struct group *group)
{
    weir_status status = card_set(group->queue->head.index);
    return status ? status : queue_put_start(group->queue, group->queue->first->ticket);
}

static weir_status take(const struct hall *hall, const struct group *group)
{
    const struct deferred *at = group->queue->first;
    weir_status status = card_set(group->queue->head.index);
    if (status)
        return status;
    return at->meeting.kind == DEVICE_MOVES ? take_moves(hall, at) : take_sums(hall, at);
}

static weir_status enqueue_spread(struct hall *hall, bool *over)
{
    weir_status status = hall->launching ? WEIR_OK : nccl_meet(hall);
    if (!status)
        status = nccl_launched(hall, over);
    hall->launching = !status && !*over;
    return status;
}

/* Once, or for members elsewhere again and again until it is over. */
static weir_status enqueue_meeting(struct hall *hall, bool *over)
{
    weir_status status = WEIR_OK;
    if (hall_spreads(hall))
        return enqueue_spread(hall, over);
    *over = true;
    for (uint32_t m = 0; !status && m < hall->count; m++)
        status = come(hall->member[m]);
    if (!status)
        status = meet_all(hall, false);
    for (uint32_t m = 0; !status && m < hall->count; m++)
        status = take(hall, hall->member[m]);
    return status ? status : meet_all(hall, true);
}

/* The queue goes no further; health() says why. */
static void stop(struct queue *queue, weir_status status)
{
    if (queue->status)
        return;
    queue->status = status;
    snprintf(queue->error, sizeof queue->error, "%s", the.host->error());
}

static void pop(struct queue *queue)
{
    struct deferred *first = queue->first;
    queue->first = first->next;
    if (!queue->first)
        queue->last = &queue->first;
    free(first);
}

/* Whether all who are here are at the same one as `at`. A member at another one is told. */
static bool all_came(struct hall *hall, const struct deferred *at)
{
    if (hall->joined < hall->here)
        return false;
    for (uint32_t m = 0; m < hall->count; m++) {
        struct group *group = hall->member[m];
        const struct deferred *theirs = group ? group->queue->first : NULL;
        if (!group)
            continue;
        if (!theirs || group->queue->status || theirs->kind != DEFERRED_MEETING || theirs->meeting.group != &group->head)
            return false;
        if (theirs->meeting.number != at->meeting.number || theirs->meeting.kind != at->meeting.kind) {
            struct queue *queue = ((struct group *)at->meeting.group)->queue;
            stop(queue, the.host->error_set(WEIR_E_KERNEL,
                                            "cuda:%u: members differ: in group %u member %u is at collective %u and member "
                                            "%u at %u",
                                            queue->head.index, hall->id.number, at->meeting.group->self,
                                            at->meeting.number, m, theirs->meeting.number));
            return false;
        }
    }
    return true;
}

/* From now on other queues may await the mark: its event is recorded. */
static weir_status put_mark(struct queue *queue, uint64_t ticket)
{
    weir_status status = queue_put_mark(queue, ticket);
    if (!status)
        atomic_store_explicit(&queue->put, ticket, memory_order_release); /* pairs with the host's loads of head.put */
    return status;
}

/* Whether the queue's first is over, so that what is behind it comes; of a meeting all members' are. */
static bool put_first(struct queue *queue, struct queue **going)
{
    struct deferred *first = queue->first;
    weir_status status = card_set(queue->head.index);
    if (first->kind != DEFERRED_MEETING) {
        if (!status)
            status = first->kind == DEFERRED_MARK ? put_mark(queue, first->ticket)
                                                  : queue_put_await(queue, first->other, first->ticket);
        if (status)
            stop(queue, status);
        else
            pop(queue);
        return !status;
    }
    struct hall *hall = ((struct group *)first->meeting.group)->hall;
    bool over = false;
    if (!hall->launching && !all_came(hall, first))
        return false;
    status = enqueue_meeting(hall, &over);
    if (!status && !over)
        return false;
    for (uint32_t m = 0; m < hall->count; m++) {
        struct queue *other = hall->member[m] ? hall->member[m]->queue : NULL;
        if (!other)
            continue;
        if (status) {
            stop(other, status);
            continue;
        }
        pop(other);
        if (!other->waits && other != queue) {
            other->waits = true;
            other->next = *going;
            *going = other;
        }
    }
    return !status;
}

/* Whether the queue's first is a meeting that is to be looked at again. */
static bool launches(const struct queue *queue)
{
    const struct deferred *first = queue->first;
    return first && first->kind == DEFERRED_MEETING && ((struct group *)first->meeting.group)->hall->launching;
}

static void go_on(struct queue *queue)
{
    struct queue *going = queue;
    queue->waits = true;
    queue->next = NULL;
    while (going) {
        struct queue *now = going;
        going = now->next;
        now->waits = false;
        while (now->first && !now->status && put_first(now, &going))
            ;
    }
}

/* ---- enqueueing ---- */

/* Behind what is in the queue's list, in the order in which it was brought. */
static void take_from(struct queue *queue)
{
    struct deferred *entry = atomic_exchange(&queue->brought, NULL), *oldest = NULL;
    bool goes_on = !queue->first || launches(queue);
    while (entry) {
        struct deferred *next = entry->next;
        entry->next = oldest;
        oldest = entry;
        entry = next;
    }
    *queue->last = oldest;
    while (*queue->last)
        queue->last = &(*queue->last)->next;
    if (goes_on && queue->first)
        go_on(queue);
}

/* A queue may be brought something again as soon as it says that it is not stirred. */
static void take_brought(void)
{
    struct queue *queue = atomic_exchange(&stirred, NULL);
    while (queue) {
        struct queue *next = queue->next_stirred;
        atomic_store(&queue->stirred, false);
        take_from(queue);
        queue = next;
    }
}

/* By the queue's thread alone. It may enqueue for others, too, whose cards are not its own. */
static weir_status defer(struct queue *queue, struct deferred *entry)
{
    if (!entry)
        return the.host->error_set(WEIR_E_MEMORY, "cuda:%u: no memory for a collective", queue->head.index);
    entry->next = atomic_load(&queue->brought);
    while (!atomic_compare_exchange_weak(&queue->brought, &entry->next, entry))
        continue;
    if (!atomic_exchange(&queue->stirred, true)) {
        queue->next_stirred = atomic_load(&stirred);
        while (!atomic_compare_exchange_weak(&stirred, &queue->next_stirred, queue))
            continue;
    }
    atomic_thread_fence(memory_order_seq_cst);
    work();
    return WEIR_OK;
}

weir_status group_mark(struct queue *queue, uint64_t ticket)
{
    struct deferred *entry = calloc(1, sizeof *entry);
    if (entry)
        *entry = (struct deferred){.kind = DEFERRED_MARK, .ticket = ticket};
    return defer(queue, entry);
}

weir_status group_await(struct queue *queue, struct queue *other, uint64_t ticket)
{
    struct deferred *entry = calloc(1, sizeof *entry);
    if (entry)
        *entry = (struct deferred){.kind = DEFERRED_AWAIT, .ticket = ticket, .other = other};
    return defer(queue, entry);
}

static void list_parts(struct part *parts, const weir_view *views, int count)
{
    for (int i = 0; i < count; i++) {
        parts[i] = (struct part){views[i].data, view_bytes(&views[i])};
    }
}

struct deferred *group_part(const struct device_meeting *meeting, const weir_kernel_args *args)
{
    size_t parts = (size_t)args->in_count + (size_t)args->out_count;
    struct deferred *entry = calloc(1, sizeof *entry + parts * sizeof(struct part));
    if (!entry)
        return NULL;
    *entry = (struct deferred){.kind = DEFERRED_MEETING, .meeting = *meeting, .in_count = args->in_count,
                               .out_count = args->out_count, .dtype = args->in_count ? args->in[0].dtype : WEIR_F32};
    list_parts(entry->parts, args->in, args->in_count);
    list_parts(entry->parts + args->in_count, args->out, args->out_count);
    return entry;
}

/* NULL: they can. */
static const char *why_not(const struct device_meeting *meeting)
{
    const struct hall *hall = ((struct group *)meeting->group)->hall;
    if (meeting->kind == DEVICE_MOVES || hall_spreads(hall))
        return NULL;
    if (hall->count > SUM_MAX)
        return "more devices than can add";
    return hall->apart ? "two of the devices do not reach each other's memory" : NULL;
}

weir_status group_meet(struct device_queue *head, const struct device_meeting *meeting, const weir_kernel_args *args)
{
    struct queue *queue = queue_of(head);
    const char *why = why_not(meeting);
    if (why) {
        if (args->error_bytes)
            snprintf(args->error, args->error_bytes, "%s", why);
        return the.host->error_set(WEIR_E_UNSUPPORTED, "cuda:%u: %s", head->index, why);
    }
    struct deferred *entry = group_part(meeting, args);
    if (entry)
        entry->ticket = head->marked + 1;
    return defer(queue, entry);
}

struct group *group_next(const struct queue *queue, const struct group *at)
{
    const struct hall *hall = at ? at->hall->next : halls;
    for (; hall; hall = hall->next)
        for (uint32_t m = 0; m < hall->count; m++)
            if (hall->member[m] && hall->member[m]->queue == queue)
                return hall->member[m];
    return NULL;
}

weir_status group_health(struct queue *queue, char *error, size_t error_bytes)
{
    enter();
    if (launches(queue))
        go_on(queue);
    weir_status status = queue->status;
    if (status && error_bytes)
        snprintf(error, error_bytes, "%s", queue->error);
    for (struct group *group = NULL; !status && (group = group_next(queue, group)) != NULL;)
        status = nccl_health(group, error, error_bytes);
    leave();
    return status;
}

void group_abort(struct queue *queue)
{
    enter();
    if (queue->first)
        queue->status = WEIR_E_STATE;
    while (queue->first)
        pop(queue);
    nccl_abort(queue);
    leave();
}
