/* actors/session/queues.c: the queues of a session that run ahead of their devices (actors/ahead.h): they are opened,
 * their kernels are prepared, they are tied to actors and edges, asked about, closed. Queues for collectives are in groups.c.
 *
 * All of it hangs on session->queues, which is NULL as long as every kind of device here is done when its kernels return.
 *
 * Joined kernels: which kernels of an actor one launch may make (device_ops.launch_many): those that follow each
 * other, are of one op, and of which none touches what another writes. A model's update is hundreds of small kernels of a few
 * ops, one after the other in one actor.
 *
 * Bytes are compared, not tensors: a plan may place a kernel's output over an input that an earlier kernel has used up. Such
 * kernels cannot run at once.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/plan/prove/await.h"

struct session_queues {
    struct ahead_queue *queue; /* owned array */
    uint32_t count;
    uint32_t *of;              /* owned; by plan queue: 1 + its place in `queue`; 0: it does not run ahead here */
    struct ahead_queue **list; /* owned; those of one worker beside each other */
    bool *awaited;             /* owned; by actor: a member of a collective that queues of its device may await */
    struct ahead_edge *edges;  /* owned; by plan port */
    struct ahead_edge **in, **out; /* owned; parallel to the session's ports, its edges */
    struct actor_ahead *actors; /* owned; by actor */
    struct ahead_message *messages; /* owned: the queues' rings */
    struct ahead_launch *launched; /* owned */
    struct ahead_await *awaits; /* owned */
    uint64_t *tickets;         /* owned: known, wrote, read */
};

/* ---- which, and opening them ---- */

static bool runs_ahead(const struct weir_session *s, uint32_t q)
{
    const plan_queue *queue = &s->plan->queues[q];
    return queue->kind != PLAN_OUTSIDE && queue->kind != PLAN_IO_QUEUE && built_owns(&s->built, queue->space.i) &&
           device_runs_ahead(s->built.arenas[queue->space.i].device);
}

static enum device_queue_kind kind_of(uint32_t kind)
{
    switch (kind) {
    case PLAN_COPY_IN:
        return DEVICE_COPY_IN;
    case PLAN_COPY_OUT:
        return DEVICE_COPY_OUT;
    case PLAN_COLLECTIVE:
        return DEVICE_COLLECTIVE;
    default:
        return DEVICE_COMPUTE;
    }
}

static struct ahead_queue *queue_of(const struct session_queues *queues, uint32_t q)
{
    return queues && queues->of[q] ? &queues->queue[queues->of[q] - 1] : NULL;
}

struct ahead_queue *session_queue(const struct weir_session *s, uint32_t q)
{
    return queue_of(s->devices.queues, q);
}

static weir_status open_queue(struct weir_session *s, uint32_t q)
{
    struct session_queues *queues = s->devices.queues;
    const struct arena *arena = &s->built.arenas[s->plan->queues[q].space.i];
    struct ahead_queue *queue = &queues->queue[queues->count];
    weir_status status = arena->device->queue_new(arena->index, kind_of(s->plan->queues[q].kind), &queue->device);
    if (status)
        return status;
    queue->device->timed = s->observed.trace.to != NULL;
    queue->number = queues->count++;
    queues->of[q] = queues->count;
    return WEIR_OK;
}

weir_status session_open_queues(struct weir_session *s)
{
    uint32_t count = 0;
    for (uint32_t q = 0; q < s->plan->queues_count; q++)
        count += runs_ahead(s, q);
    if (!count)
        return WEIR_OK;
    struct session_queues *queues = s->devices.queues = calloc(1, sizeof(*queues));
    if (queues) {
        queues->queue = calloc(count, sizeof(*queues->queue));
        queues->of = calloc(s->plan->queues_count, sizeof(*queues->of));
    }
    if (!queues || !queues->queue || !queues->of)
        return error_set(WEIR_E_MEMORY, "no memory for %u queues", count);
    weir_status status = WEIR_OK;
    for (uint32_t q = 0; !status && q < s->plan->queues_count; q++)
        if (runs_ahead(s, q))
            status = open_queue(s, q);
    return status;
}

void session_close_queues(struct weir_session *s)
{
    struct session_queues *queues = s->devices.queues;
    if (!queues)
        return;
    for (uint32_t i = 0; i < queues->count; i++)
        queues->queue[i].device->device->queue_free(queues->queue[i].device);
    free(queues->queue);
    free(queues->of);
    free(queues->list);
    free(queues->awaited);
    free(queues->edges);
    free(queues->in);
    free(queues->out);
    free(queues->actors);
    free(queues->messages);
    free(queues->launched);
    free(queues->awaits);
    free(queues->tickets);
    free(queues);
    s->devices.queues = NULL;
}

/* ---- kernels, before there are actors ---- */

/* As they are in the first slots; a product's do not depend on which. */
static const weir_view *views_of(const struct weir_session *s, const plan_range *operands, weir_view *views)
{
    for (uint32_t i = 0; i < operands->count; i++)
        views[i] = built_view(&s->built, &s->plan->tensors[s->plan->operands[operands->first + i].tensor.i], 0);
    return views;
}

static weir_status prepare_kernel(const struct weir_session *s, const plan_kernel *kernel, struct device_queue *queue)
{
    const plan_queue *on = &s->plan->queues[s->plan->actors[kernel->actor.i].queue.i];
    weir_view in[WEIR_ARGS_MAX], out[WEIR_ARGS_MAX];
    char error[320] = "";
    char *base = s->built.arenas[on->space.i].base;
    weir_kernel_fn call;
    weir_status status = session_find_kernel(s, kernel, weir_op_find(plan_text(s->plan, kernel->op)), &call);
    if (status)
        return status;
    const weir_kernel_args args = {
        .in = views_of(s, &kernel->in, in),
        .in_count = (int)kernel->in.count,
        .out = views_of(s, &kernel->out, out),
        .out_count = (int)kernel->out.count,
        .attrs = kernel->attrs.count ? s->plan->words + kernel->attrs.first : NULL,
        .workspace = kernel->workspace_bytes ? base + on->workspace_offset + kernel->workspace_offset : NULL,
        .workspace_bytes = kernel->workspace_bytes,
        .error = error,
        .error_bytes = sizeof(error),
    };
    status = queue->device->prepare(queue, call, &args);
    return status ? error_set(status, "%s:%u: %s (%s) on %s: %s", plan_text(s->plan, kernel->file), kernel->line,
                              plan_text(s->plan, kernel->name), plan_text(s->plan, kernel->op),
                              plan_text(s->plan, s->plan->spaces[on->space.i].name), error)
                  : WEIR_OK;
}

weir_status session_prepare_kernels(const struct weir_session *s)
{
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; !status && s->devices.queues && k < s->plan->kernels_count; k++) {
        const plan_kernel *kernel = &s->plan->kernels[k];
        struct ahead_queue *queue = queue_of(s->devices.queues, s->plan->actors[kernel->actor.i].queue.i);
        if (queue && queue->device->kind == DEVICE_COMPUTE && queue->device->device->prepare)
            status = prepare_kernel(s, kernel, queue->device);
    }
    return status;
}

/* ---- edges ---- */

static struct ahead_queue *queue_of_actor(const struct weir_session *s, uint32_t actor)
{
    return built_runs(&s->built, actor) ? queue_of(s->devices.queues, s->plan->actors[actor].queue.i) : NULL;
}

static bool is_collective(const struct ahead_queue *queue)
{
    return queue->device->kind == DEVICE_COLLECTIVE;
}

static bool same_device(const struct ahead_queue *from, const struct ahead_queue *to)
{
    return from->device->device == to->device->device && from->device->index == to->device->index;
}

/* How actor `a` on `from` tells one on `to`. Where queues stand behind collectives, copies from the host do not. */
static enum ahead_delivery delivery_from(const struct session_queues *queues, uint32_t a, const struct ahead_queue *from,
                                 const struct ahead_queue *to)
{
    if (!from || from == to)
        return AHEAD_NOW;
    if (!to || from->device->device != to->device->device || (to->stands && to->device->kind == DEVICE_COPY_IN))
        return AHEAD_LATE;
    if (!is_collective(from))
        return AHEAD_AWAIT;
    return queues->awaited[a] && same_device(from, to) ? AHEAD_PUT : AHEAD_LATE;
}

/* Whether queues of two devices await each other, none of them for collectives. */
static bool devices_await(const struct weir_session *s)
{
    for (uint32_t p = 0; p < s->plan->ports_count; p++) {
        const struct ahead_queue *reader = queue_of_actor(s, s->plan->ports[p].actor.i);
        uint32_t from = s->plan->regsts[s->plan->ports[p].regst.i].producer.i;
        const struct ahead_queue *producer = from == PLAN_NONE ? NULL : queue_of_actor(s, from);
        if (s->built.ends[p].port && reader && producer && !is_collective(reader) && !is_collective(producer) &&
            !same_device(reader, producer))
            return true;
    }
    return false;
}

static void set_standing(struct weir_session *s, const struct ahead_queue *collective)
{
    struct session_queues *queues = s->devices.queues;
    bool stands = false;
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        stands |= queues->awaited[a] && queue_of_actor(s, a) == collective;
    for (uint32_t i = 0; i < queues->count; i++)
        if (same_device(&queues->queue[i], collective))
            queues->queue[i].stands = stands;
}

/* Which collectives other queues of their device await: graph/plan/prove/await.h, which looks at one device at a time. */
static weir_status find_awaited(struct weir_session *s)
{
    struct session_queues *queues = s->devices.queues;
    weir_status status = WEIR_OK;
    bool across = s->plan->collectives_count && devices_await(s);
    queues->awaited = calloc(s->plan->actors_count + (size_t)1, sizeof(*queues->awaited));
    if (!queues->awaited)
        return error_set(WEIR_E_MEMORY, "no memory for the queues of %u actors", s->plan->actors_count);
    for (uint32_t q = 0; !status && !across && q < s->plan->queues_count; q++) {
        const struct ahead_queue *queue = queue_of(queues, q);
        if (!queue || !is_collective(queue))
            continue;
        status = plan_may_await(s->plan, s->plan->queues[q].space, queues->awaited);
        set_standing(s, queue);
    }
    return status;
}

static void make_room(struct ahead_queue *queue, enum ahead_delivery delivery, uint32_t slots)
{
    if (delivery == AHEAD_PUT)
        queue->put.room += slots;
    else if (delivery == AHEAD_LATE)
        queue->late.room += slots;
}

/* Port p's edge; and how much room its messages take. Returns the tickets that it needs. */
static uint64_t wire_edge(struct weir_session *s, uint32_t p)
{
    const plan_regst *regst = &s->plan->regsts[s->plan->ports[p].regst.i];
    struct ahead_edge *edge = &s->devices.queues->edges[p];
    edge->producer = queue_of_actor(s, regst->producer.i);
    edge->reader = queue_of_actor(s, s->plan->ports[p].actor.i);
    edge->ready = delivery_from(s->devices.queues, regst->producer.i, edge->producer, edge->reader);
    edge->free = delivery_from(s->devices.queues, s->plan->ports[p].actor.i, edge->reader, edge->producer);
    make_room(edge->producer, edge->ready, regst->slots);
    make_room(edge->reader, edge->free, regst->slots);
    s->devices.queues->in[s->built.ends[p].port - s->built.ports] = edge;
    s->devices.queues->out[s->built.ends[p].edge - s->built.edges] = edge;
    return (ahead_has_tickets(edge->ready) ? regst->slots : 0) + (ahead_has_tickets(edge->free) ? regst->slots : 0);
}

/* ---- room for what is under way ---- */

static bool alloc_edges(struct weir_session *s)
{
    struct session_queues *queues = s->devices.queues;
    size_t ports = s->plan->ports_count + (size_t)1;
    queues->edges = calloc(ports, sizeof(*queues->edges));
    queues->in = calloc(ports, sizeof(struct ahead_edge *));
    queues->out = calloc(ports, sizeof(struct ahead_edge *));
    queues->actors = calloc(s->plan->actors_count + (size_t)1, sizeof(*queues->actors));
    queues->list = calloc(queues->count, sizeof(struct ahead_queue *));
    return queues->edges && queues->in && queues->out && queues->actors && queues->list;
}

static bool alloc_rings(struct session_queues *queues, uint64_t tickets)
{
    uint64_t messages = 0, launched = 0;
    for (uint32_t i = 0; i < queues->count; i++) {
        messages += queues->queue[i].put.room + queues->queue[i].late.room;
        launched += queues->queue[i].device->marks_max;
    }
    queues->messages = calloc(messages + 1, sizeof(*queues->messages));
    queues->launched = calloc(launched + 1, sizeof(*queues->launched));
    queues->awaits = calloc((size_t)queues->count * AHEAD_AWAITS, sizeof(*queues->awaits));
    queues->tickets = calloc(tickets + (uint64_t)queues->count * queues->count, sizeof(*queues->tickets));
    return queues->messages && queues->launched && queues->awaits && queues->tickets;
}

/* Each queue and each edge gets its part. */
static void place_rings(struct weir_session *s)
{
    struct session_queues *queues = s->devices.queues;
    struct ahead_message *messages = queues->messages;
    struct ahead_launch *launched = queues->launched;
    uint64_t *tickets = queues->tickets;
    for (uint32_t i = 0; i < queues->count; i++) {
        struct ahead_queue *queue = &queues->queue[i];
        queue->put.of = messages;
        queue->late.of = messages + queue->put.room;
        queue->launched = launched;
        queue->awaits = queues->awaits + (size_t)i * AHEAD_AWAITS;
        queue->known = tickets;
        messages += queue->put.room + queue->late.room;
        launched += queue->device->marks_max;
        tickets += queues->count;
    }
    for (uint32_t p = 0; p < s->plan->ports_count; p++) {
        struct ahead_edge *edge = &queues->edges[p];
        uint32_t slots = s->plan->regsts[s->plan->ports[p].regst.i].slots;
        if (ahead_has_tickets(edge->ready)) {
            edge->wrote = tickets;
            tickets += slots;
        }
        if (ahead_has_tickets(edge->free)) {
            edge->read = tickets;
            tickets += slots;
        }
    }
}

/* ---- actors and workers ---- */

static void tie_actor(struct weir_session *s, uint32_t a)
{
    struct session_queues *queues = s->devices.queues;
    struct actor *actor = &s->built.actors[a];
    struct ahead_queue *queue = queue_of_actor(s, a);
    if (!queue)
        return;
    actor->ahead = &queues->actors[a];
    *actor->ahead = (struct actor_ahead){.queue = queue,
                                         .in = queues->in + (actor->ports - s->built.ports),
                                         .out = queues->out + (actor->out_count ? actor->outs->edges - s->built.edges : 0)};
}

static void tie_workers(struct weir_session *s)
{
    struct ahead_queue **next = s->devices.queues->list;
    for (uint32_t w = 0; w < s->workers.count; w++) {
        struct ahead_lane *ahead = &s->workers.list[w].ahead;
        ahead->queues = next;
        ahead->all = s->devices.queues->list;
        ahead->all_count = s->devices.queues->count;
        for (uint32_t q = 0; q < s->plan->queues_count; q++)
            if (queue_of(s->devices.queues, q) && s->workers.of_queue[q] == w)
                *next++ = queue_of(s->devices.queues, q);
        ahead->count = (uint32_t)(next - ahead->queues);
    }
}

weir_status session_tie_queues(struct weir_session *s)
{
    uint64_t tickets = 0;
    if (!s->devices.queues)
        return WEIR_OK;
    weir_status status = find_awaited(s);
    if (status)
        return status;
    bool room = alloc_edges(s);
    for (uint32_t p = 0; room && p < s->plan->ports_count; p++)
        if (s->built.ends[p].port)
            tickets += wire_edge(s, p);
    if (!room || !alloc_rings(s->devices.queues, tickets))
        return error_set(WEIR_E_MEMORY, "no memory for what is under way on %u queues", s->devices.queues->count);
    place_rings(s);
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        tie_actor(s, a);
    tie_workers(s);
    return WEIR_OK;
}

/* ---- messages of queues that run ahead ---- */

void session_look_at_queues(const struct weir_session *s, struct worker *worker)
{
    for (uint32_t i = 0; i < worker->ahead.count; i++) {
        const struct ahead_launch *launch = ahead_under_way(worker->ahead.queues[i], 0);
        const struct ahead_await *await;
        bool known = ahead_awaits(worker->ahead.queues[i], &await);
        uint32_t regst = await ? s->plan->ports[await->edge - s->devices.queues->edges].regst.i : PLAN_NONE;
        int64_t step = launch ? flight_step(s->plan, launch->actor->id, launch->firing) : 0;
        if (launch && known) {
            look_add(&worker->look, (struct wait_entry){launch->actor->id, regst, step});
            look_add(&worker->look, (struct wait_entry){launch->actor->id, WAITS_FIRST, step});
        }
    }
}

void session_under_way(const struct weir_session *s, const struct ahead_queue *queue, char *text, size_t bytes)
{
    const struct ahead_launch *launch;
    size_t used = 0;
    text[0] = 0;
    for (uint64_t n = 0; (launch = ahead_under_way(queue, n)) && used < bytes; n++) {
        uint32_t a = launch->actor->id;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s in step %lld", n ? ", " : "",
                                 plan_text(s->plan, s->plan->actors[a].name),
                                 (long long)flight_step(s->plan, a, launch->firing));
    }
}

/* ---- joined kernels ---- */

/* Where an operand, or a kernel's scratch, lies; all slots of a register count. */
struct extent {
    uint32_t space;
    uint64_t first, end;
};

static uint32_t actor_queue(const weir_plan *plan, uint32_t actor)
{
    return plan->actors[actor].queue.i;
}

static struct extent extent_of_tensor(const weir_plan *plan, const plan_tensor *tensor)
{
    uint64_t bytes = plan_tensor_bytes(tensor);
    if (tensor->home == PLAN_IN_REGST) {
        const plan_regst *regst = &plan->regsts[tensor->owner];
        uint64_t first = regst->offset + tensor->offset;
        return (struct extent){regst->space.i, first, first + (regst->slots - 1) * regst->slot_bytes + bytes};
    }
    const plan_queue *queue = &plan->queues[actor_queue(plan, tensor->owner)];
    uint64_t first = tensor->offset + (tensor->home == PLAN_IN_TEMP ? queue->workspace_offset : 0);
    return (struct extent){queue->space.i, first, first + bytes};
}

static struct extent extent_of_scratch(const weir_plan *plan, const plan_kernel *kernel)
{
    const plan_queue *queue = &plan->queues[actor_queue(plan, kernel->actor.i)];
    uint64_t first = queue->workspace_offset + kernel->workspace_offset;
    return (struct extent){queue->space.i, first, first + kernel->workspace_bytes};
}

/* The i-th thing that the kernel touches; what it writes comes first. False: there are not so many. */
static bool touched(const weir_plan *plan, const plan_kernel *kernel, uint32_t i, struct extent *extent)
{
    const plan_range *ranges[] = {&kernel->out, &kernel->state, &kernel->in};
    if (i == 0) {
        *extent = extent_of_scratch(plan, kernel);
        return true;
    }
    i--;
    for (int r = 0; r < 3; r++) {
        if (i < ranges[r]->count) {
            *extent = extent_of_tensor(plan, &plan->tensors[plan->operands[ranges[r]->first + i].tensor.i]);
            return true;
        }
        i -= ranges[r]->count;
    }
    return false;
}

static uint32_t written_count(const plan_kernel *kernel)
{
    return 1 + kernel->out.count + kernel->state.count;
}

static bool overlap(const struct extent *a, const struct extent *b)
{
    return a->space == b->space && a->first < b->end && b->first < a->end;
}

/* Whether `b` touches what `a` writes. */
static bool disturbs(const weir_plan *plan, const plan_kernel *a, const plan_kernel *b)
{
    struct extent x, y;
    for (uint32_t i = 0; i < written_count(a); i++)
        for (uint32_t k = 0; touched(plan, a, i, &x) && touched(plan, b, k, &y); k++)
            if (overlap(&x, &y))
                return true;
    return false;
}

/* Whether the kernel may be one of those from `first` on. */
static bool may_join(const struct weir_session *s, uint32_t first, uint32_t k)
{
    const weir_plan *plan = s->plan;
    const struct actor_kernel *kernels = s->built.kernels;
    if (kernels[k].call != kernels[first].call || kernels[k].accumulate || k - first == DEVICE_JOINED_MAX)
        return false;
    for (uint32_t j = first; j < k; j++)
        if (disturbs(plan, &plan->kernels[j], &plan->kernels[k]) || disturbs(plan, &plan->kernels[k], &plan->kernels[j]))
            return false;
    return true;
}

static void join_kernels(struct weir_session *s, const struct device_ops *device, const plan_range *kernels)
{
    for (uint32_t k = kernels->first, next; k < kernels->first + kernels->count; k = next) {
        bool joins = s->built.kernels[k].call && device->joins(s->built.kernels[k].call);
        for (next = k + 1; joins && next < kernels->first + kernels->count && may_join(s, k, next); next++)
            continue;
        s->built.kernels[k].joined = next - k > 1 ? next - k : 0;
    }
}

void session_join_kernels(struct weir_session *s)
{
    for (uint32_t a = 0; a < s->plan->actors_count; a++) {
        uint32_t queue = actor_queue(s->plan, a);
        const struct device_ops *device = s->built.arenas[s->plan->queues[queue].space.i].device;
        if (built_runs(&s->built, a) && session_queue(s, queue) && device->joins)
            join_kernels(s, device, &s->plan->actors[a].kernels);
    }
}
