/* actors/session/build.c: from the plan's arrays to the runtime's. One pass over the plan per kind of thing, each into
 * one array of the right size; what belongs to one actor stays together, as in the plan, so that a firing walks forward
 * through memory.
 *
 * Ports that read constants are left out: their registers are never published nor freed again, so there is nothing to
 * count. Ports that read another program are left out, too: it is at rest meanwhile.
 *
 * Where several actors or rings share an array, their parts are counted first, then laid one behind the other, then
 * filled; struct building has how far each is filled.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/spread/branch.h"

#define PENDING_ALIGN (APART_BYTES / sizeof(uint32_t)) /* those of registers of different workers are apart */

/* Facts that are only known while a session is built. */
struct building {
    struct weir_session *s;
    uint32_t *first;       /* by port: of its branch (graph/plan/spread/branch.h) */
    uint32_t *readers;     /* by port, of the first of a branch: how many it has */
    uint32_t *edges;       /* by register: of its edges, those that are made */
    uint32_t *pending;     /* behind what registers and relays have of it */
    struct actor_out *relay;        /* the next one, */
    struct actor_edge *relay_edge;  /* and its first edge */
    uint32_t *patches;     /* by ring: of its patches, those that are made */
    struct actor **caller; /* by operand: the actor of the kernel that this process calls with it; NULL: none */
};

/* A register's ring is followed by views of its producer, and by those of each of its readers: rings are counted by
 * port, then by register. */
#define RING_NONE UINT32_MAX

/* Zeroed, and apart from other arrays; NULL when there is no memory. */
static void *array_new(size_t count, size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, item_bytes, &bytes) || bytes > SIZE_MAX - 2 * APART_BYTES)
        return NULL;
    bytes = (bytes + 2 * APART_BYTES - 1) / APART_BYTES * APART_BYTES;
    void *array = aligned_alloc(APART_BYTES, bytes);
    if (array)
        memset(array, 0, bytes);
    return array;
}

static size_t pending_room(const plan_regst *regst)
{
    return (regst->slots + PENDING_ALIGN - 1) / PENDING_ALIGN * PENDING_ALIGN;
}

/* Whether the branch that begins at the port has a relay here: it has several readers, and this process runs them. */
static bool has_relay(const struct building *b, uint32_t p)
{
    return b->readers[p] > 1 && b->s->built.lane_of[b->s->plan->ports[p].actor.i];
}

static bool build_arrays(const struct building *building)
{
    struct weir_session *s = building->s;
    const weir_plan *plan = s->plan;
    struct built *b = &s->built;
    size_t pending = 0, relays = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        pending += pending_room(&plan->regsts[r]);
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        if (!has_relay(building, p))
            continue;
        pending += pending_room(&plan->regsts[plan->ports[p].regst.i]);
        relays++;
    }
    b->actors = array_new(plan->actors_count, sizeof(*b->actors));
    b->ports = array_new(plan->ports_count, sizeof(*b->ports));
    b->ends = array_new(plan->ports_count, sizeof(*b->ends));
    b->outs = array_new(plan->regsts_count, sizeof(*b->outs));
    b->edges = array_new(plan->ports_count + relays, sizeof(*b->edges)); /* a relay's ports but one have no other edge */
    b->relays = array_new(relays, sizeof(*b->relays));
    b->kernels = array_new(plan->kernels_count, sizeof(*b->kernels));
    b->pending = array_new(pending, sizeof(*b->pending));
    b->views = array_new(plan->operands_count, sizeof(*b->views));
    b->patches = array_new(plan->operands_count, sizeof(*b->patches));
    return b->actors && b->ports && b->ends && b->outs && b->edges && b->relays && b->kernels && b->pending && b->views &&
           b->patches;
}

void session_unbuild(struct weir_session *s)
{
    free(s->built.actors);
    free(s->built.ports);
    free(s->built.ends);
    free(s->built.outs);
    free(s->built.edges);
    free(s->built.relays);
    free(s->built.kernels);
    debug_close(&s->debug);
    free(s->built.pending);
    free(s->built.views);
    free(s->built.patches);
}

/* ---- actors, ports, registers ---- */

static void build_actor(struct weir_session *s, uint32_t a)
{
    const plan_actor *plan = &s->plan->actors[a];
    const plan_queue *queue = &s->plan->queues[plan->queue.i];
    bool outside = queue->kind == PLAN_OUTSIDE;
    struct actor *actor = &s->built.actors[a];
    *actor = (struct actor){
        .rank = actor->rank,
        .lane = s->built.lane_of[a],
        .outs = &s->built.outs[plan->regsts.first],
        .out_count = plan->regsts.count,
        .kernels = &s->built.kernels[plan->kernels.first],
        .kernel_count = plan->kernels.count,
        .left = outside ? INT64_MAX : 0,
        .firing = s->run.first_step * plan->fires,
        .step = s->run.first_step,
        .fires = plan->fires,
        .cost_ns = UINT32_MAX, /* not known yet: as long as can be */
        .row = 1,
        .run_start = s->run.first_step * plan->fires,
        .id = a,
        .program = plan->program.i,
    };
}

static void build_ports(struct weir_session *s)
{
    const weir_plan *plan = s->plan;
    struct actor_port *next = s->built.ports;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        struct actor *actor = &s->built.actors[a];
        actor->ports = next;
        for (uint32_t p = plan->actors[a].ports.first; p < plan->actors[a].ports.first + plan->actors[a].ports.count;
             p++) {
            const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
            if (!plan_port_counts(plan, &plan->ports[p]))
                continue;
            reader_init(&next->reader, regst->slots, plan->ports[p].hold, regst->initial);
            next->actor = actor;
            s->built.ends[p].port = next++;
        }
        actor->port_count = (uint32_t)(next - actor->ports);
    }
}

/* Edges lie in the order of registers: a counting sort of the branches. */
static void count_edges(struct building *b)
{
    struct weir_session *s = b->s;
    const weir_plan *plan = s->plan;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (b->first[p] == p)
            s->built.outs[plan->ports[p].regst.i].edge_count++;
    struct actor_edge *next = s->built.edges;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        s->built.outs[r].edges = next;
        next += s->built.outs[r].edge_count;
    }
    b->relay_edge = next;
}

static void build_outs(struct building *b)
{
    struct weir_session *s = b->s;
    const weir_plan *plan = s->plan;
    b->pending = s->built.pending;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        struct actor_out *out = &s->built.outs[r];
        regst_init(&out->regst, regst->slots, regst->fill ? regst->fill : 1, regst->initial, out->edge_count, b->pending);
        b->pending += pending_room(regst);
        if (regst->producer.i != PLAN_NONE)
            out->actor = &s->built.actors[regst->producer.i];
    }
}

/* The relay of the branch that begins at port p. */
static void build_relay(struct building *b, uint32_t p)
{
    struct weir_session *s = b->s;
    const plan_regst *regst = &s->plan->regsts[s->plan->ports[p].regst.i];
    struct actor_out *relay = s->built.ends[p].relay = b->relay++;
    relay->edges = b->relay_edge;
    b->relay_edge += b->readers[p];
    regst_init(&relay->regst, regst->slots, 1, regst->initial, b->readers[p], b->pending);
    b->pending += pending_room(regst);
}

/* Port p is one of several in its branch, and behind their relay. */
static void join_relay(struct building *b, uint32_t p)
{
    struct edge_ends *ends = b->s->built.ends;
    struct actor_out *relay = ends[b->first[p]].relay;
    if (!relay)
        return;
    struct actor_edge *edge = &relay->edges[relay->edge_count++];
    *edge = (struct actor_edge){.out = relay, .port = ends[p].port};
    ends[p].port->edge = edge;
}

/* Ties the two ends of the edge of the branch that begins at port p together: by pointers on one lane, by messages between
 * two. */
static void build_edge(struct building *b, uint32_t p)
{
    struct weir_session *s = b->s;
    uint32_t regst = s->plan->ports[p].regst.i;
    struct actor_port *port = s->built.ends[p].port;
    struct actor_out *out = &s->built.outs[regst];
    struct actor_edge *edge = &out->edges[b->edges[regst]++];
    struct actor *reader = port->actor, *producer = out->actor;
    edge->out = out;
    s->built.ends[p].edge = edge;
    if (!reader->lane && !producer->lane)
        return; /* between two other ranks */
    if (bus_same(&s->bus, reader->id, producer->id)) {
        edge->port = port;
        port->edge = edge;
        return;
    }
    edge->ready.end = bus_find(&s->bus, reader->id);
    edge->ready.message = (struct message){.edge = p, .kind = MESSAGE_READY};
    port->free.end = bus_find(&s->bus, producer->id);
    port->free.message = (struct message){.edge = p, .kind = MESSAGE_FREE};
    if (has_relay(b, p))
        build_relay(b, p);
}

static void build_edges(struct building *b)
{
    struct edge_ends *ends = b->s->built.ends;
    b->relay = b->s->built.relays;
    for (uint32_t p = 0; p < b->s->plan->ports_count; p++) {
        if (!ends[p].port)
            continue;
        if (b->first[p] == p)
            build_edge(b, p);
        else
            ends[p].edge = ends[b->first[p]].edge;
        if (b->readers[b->first[p]] > 1)
            join_relay(b, p);
    }
}

/* ---- what kernels are called with ---- */

/* The operand is what came over the wire: a slice, which says itself where in the tensor it lies. False: nothing of it
 * is read. */
static bool wired_view(struct weir_session *s, uint32_t o, const struct transfer *transfer)
{
    const struct links *links = &s->built.cluster->links;
    uint32_t number = links->piece_of[o];
    weir_view *view = &s->built.views[o];
    if (number == LINKS_NONE) {
        memset(view->shape.dim, 0, sizeof(view->shape.dim));
        view->data = s->built.views;
        return false;
    }
    const struct piece *piece = &links->pieces[number];
    memcpy(view->shape.dim, piece->count, sizeof(piece->count));
    memcpy(view->offset, piece->start, sizeof(piece->start));
    view->data = links_receive(transfer, &links->spans[transfer->spans.first + piece->span], 0) + piece->span_offset;
    return true;
}

/* The ring that an operand's pointer follows; RING_NONE when it stays where it is. */
static uint32_t ring_of(const struct weir_session *s, const plan_operand *operand)
{
    const plan_tensor *tensor = &s->plan->tensors[operand->tensor.i];
    if (tensor->home != PLAN_IN_REGST || s->plan->regsts[tensor->owner].slots == 1 ||
        (!s->built.arenas[plan_tensor_space(s->plan, tensor).i].base && !built_transfer(&s->built, operand->port.i)))
        return RING_NONE;
    if (operand->port.i == PLAN_NONE)
        return s->plan->ports_count + tensor->owner;
    return s->built.ends[operand->port.i].port ? operand->port.i : RING_NONE;
}

/* NULL: of a port that reads a constant. */
static struct slot_patches *ring_patches(const struct weir_session *s, uint32_t ring)
{
    if (ring >= s->plan->ports_count)
        return &s->built.outs[ring - s->plan->ports_count].patches;
    return s->built.ends[ring].port ? &s->built.ends[ring].port->patches : NULL;
}

static uint32_t ring_count(const weir_plan *plan)
{
    return plan->ports_count + plan->regsts_count;
}

static uint32_t first_slot(const struct weir_session *s, const plan_operand *operand)
{
    const plan_tensor *tensor = &s->plan->tensors[operand->tensor.i];
    bool writes = tensor->home == PLAN_IN_REGST && operand->port.i == PLAN_NONE;
    assert(s->built.outs || !writes);
    return writes ? s->built.outs[tensor->owner].regst.slot : 0;
}

static void count_view(struct building *b, uint32_t o)
{
    const plan_operand *operand = &b->s->plan->operands[o];
    uint32_t ring = ring_of(b->s, operand);
    bool nothing = built_transfer(&b->s->built, operand->port.i) && b->s->built.cluster->links.piece_of[o] == LINKS_NONE;
    if (ring != RING_NONE && !nothing)
        ring_patches(b->s, ring)->count++;
}

/* Each ring's patches, and each actor's wire patches, get their part of the array. */
static void place_patches(struct weir_session *s)
{
    struct slot_patch *patch = s->built.patches;
    for (uint32_t ring = 0; ring < ring_count(s->plan); ring++) {
        struct slot_patches *patches = ring_patches(s, ring);
        if (!patches)
            continue;
        patches->patch = patch;
        patch += patches->count;
    }
}

/* `stride`: from slot to slot; `base`: where the operand lies in slot 0. */
static void build_patch(struct building *b, uint32_t ring, uint64_t stride, char *base, weir_view *view)
{
    struct weir_session *s = b->s;
    struct slot_patches *patches = ring_patches(s, ring);
    patches->stride = stride;
    s->built.patches[patches->patch - s->built.patches + b->patches[ring]++] = (struct slot_patch){&view->data, base};
}

static void build_view(struct building *b, uint32_t o)
{
    struct weir_session *s = b->s;
    const plan_operand *operand = &s->plan->operands[o];
    const plan_tensor *tensor = &s->plan->tensors[operand->tensor.i];
    const struct transfer *transfer = built_transfer(&s->built, operand->port.i);
    uint32_t ring = ring_of(s, operand);
    s->built.views[o] = built_view(&s->built, tensor, first_slot(s, operand));
    if (transfer && !wired_view(s, o, transfer))
        return;
    if (ring != RING_NONE && transfer)
        build_patch(b, ring, transfer->receive_bytes, s->built.views[o].data, &s->built.views[o]);
    else if (ring != RING_NONE)
        build_patch(b, ring, s->plan->regsts[tensor->owner].slot_bytes, arena_tensor(s->built.arenas, s->plan, tensor, 0),
                    &s->built.views[o]);
}

static void find_callers(struct building *b)
{
    const weir_plan *plan = b->s->plan;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        const plan_range *const lists[] = {&kernel->in, &kernel->out, &kernel->state};
        for (int l = 0; l < 3 && built_runs(&b->s->built, kernel->actor.i); l++)
            for (uint32_t o = lists[l]->first; o < lists[l]->first + lists[l]->count; o++)
                b->caller[o] = &b->s->built.actors[kernel->actor.i];
    }
}

static void build_views(struct building *b)
{
    const weir_plan *plan = b->s->plan;
    find_callers(b);
    for (uint32_t o = 0; o < plan->operands_count; o++)
        if (b->caller[o])
            count_view(b, o);
    place_patches(b->s);
    for (uint32_t o = 0; o < plan->operands_count; o++)
        if (b->caller[o])
            build_view(b, o);
}

/* A meeting of devices has no kernel (groups.c). */
weir_status session_find_kernel(const struct weir_session *s, const plan_kernel *kernel, const weir_op *op,
                                weir_kernel_fn *call)
{
    const weir_plan *plan = s->plan;
    const plan_queue *queue = &plan->queues[plan->actors[kernel->actor.i].queue.i];
    const plan_space *space = &plan->spaces[queue->space.i];
    const struct device_ops *device = s->built.arenas[queue->space.i].device;
    *call = !op              ? NULL
            : device->kernel ? device->kernel(op)
                             : op_kernel(op, (weir_device_kind)space->kind);
    if (*call)
        return WEIR_OK;
    return error_set(WEIR_E_UNSUPPORTED, "%s:%u: %s: %s %s%s", plan_text(plan, kernel->file), kernel->line,
                     plan_text(plan, kernel->name), op ? "there is no kernel for" : "there is no op",
                     plan_text(plan, op ? space->name : kernel->op), op ? "" : " in this program");
}

static const struct actor_out *accumulates_into(const struct weir_session *s, const plan_kernel *kernel)
{
    if (!kernel->accumulate || !kernel->out.count)
        return NULL;
    const plan_tensor *out = &s->plan->tensors[s->plan->operands[kernel->out.first].tensor.i];
    return out->home == PLAN_IN_REGST ? &s->built.outs[out->owner] : NULL;
}

static weir_status build_kernel(struct weir_session *s, uint32_t k)
{
    const weir_plan *plan = s->plan;
    const plan_kernel *from = &plan->kernels[k];
    const plan_queue *queue = &plan->queues[plan->actors[from->actor.i].queue.i];
    char *error = s->workers.list[s->workers.of_queue[plan->actors[from->actor.i].queue.i]].error;
    char *base = s->built.arenas[queue->space.i].base;
    const struct ahead_queue *ahead = session_queue(s, plan->actors[from->actor.i].queue.i);
    bool meets = queue->kind == PLAN_COLLECTIVE;
    const weir_op *op = weir_op_find(plan_text(plan, from->op));
    struct actor_kernel *kernel = &s->built.kernels[k];
    s->built.actors[from->actor.i].foreign |= from->host != PLAN_NONE;
    s->callbacks.keeps |= from->host != PLAN_NONE ? s->callbacks.bindings[from->host].open != NULL : op && op->open;
    kernel->id = k;
    kernel->accumulate = accumulates_into(s, from);
    kernel->args = (weir_kernel_args){
        .in = s->built.views + from->in.first,
        .in_count = (int)from->in.count,
        .out = s->built.views + from->out.first,
        .out_count = (int)from->out.count,
        .state = s->built.views + from->state.first,
        .state_count = (int)from->state.count,
        .attrs = from->attrs.count ? plan->words + from->attrs.first : NULL,
        .workspace = from->workspace_bytes ? base + queue->workspace_offset + from->workspace_offset : NULL,
        .workspace_bytes = from->workspace_bytes,
        .key = from->key,
        .queue = ahead ? ahead->device->native : NULL,
        .host = from->host != PLAN_NONE ? &s->callbacks.bindings[from->host] : op ? op->ctx : NULL,
        .error = error,
        .error_bytes = sizeof(s->workers.list->error),
    };
    return meets ? WEIR_OK : session_find_kernel(s, from, op, &kernel->call);
}

/* ---- ranks ---- */

struct rank_key {
    uint32_t lane, priority, actor;
};

static int compare_keys(const void *a, const void *b)
{
    const struct rank_key *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->priority != y->priority)
        return x->priority < y->priority ? -1 : 1;
    return x->actor < y->actor ? -1 : x->actor > y->actor;
}

/* Priorities are unique within a queue; a worker with several queues breaks ties by the actor's number. */
static weir_status build_ranks(struct weir_session *s)
{
    uint32_t count = s->plan->actors_count;
    struct rank_key *keys = calloc(count + 1, sizeof(*keys));
    if (!keys)
        return error_set(WEIR_E_MEMORY, "no memory to order %u actors", count);
    for (uint32_t a = 0; a < count; a++)
        keys[a] = (struct rank_key){session_lane_number(s, a), s->plan->actors[a].priority, a};
    qsort(keys, count, sizeof(*keys), compare_keys);
    for (uint32_t i = 0; i < count && keys[i].lane < s->workers.count; i++) {
        struct worker *worker = &s->workers.list[keys[i].lane];
        s->built.actors[keys[i].actor].rank = worker->actor_count;
        worker->by_rank[worker->actor_count++] = &s->built.actors[keys[i].actor];
    }
    free(keys);
    return WEIR_OK;
}

/* ---- all of it ---- */

/* Which readers are told together. Over a line those that share a transfer are. */
static weir_status find_branches(struct building *b)
{
    const struct weir_session *s = b->s;
    const weir_plan *plan = s->plan;
    weir_status status = plan_branches(plan, built_rank(&s->built), s->workers.of_queue,
                                       s->built.cluster ? s->built.cluster->links.transfer_of : NULL, b->first);
    for (uint32_t p = 0; !status && p < plan->ports_count; p++)
        if (b->first[p] != PLAN_NONE)
            b->readers[b->first[p]]++;
    return status;
}

static bool building_open(struct building *b, struct weir_session *s)
{
    const weir_plan *plan = s->plan;
    *b = (struct building){.s = s};
    b->first = calloc(plan->ports_count + (size_t)1, sizeof(*b->first));
    b->readers = calloc(plan->ports_count + (size_t)1, sizeof(*b->readers));
    b->edges = calloc(plan->regsts_count + (size_t)1, sizeof(*b->edges));
    b->patches = calloc(ring_count(plan) + (size_t)1, sizeof(*b->patches));
    b->caller = calloc(plan->operands_count + (size_t)1, sizeof(*b->caller));
    return b->first && b->readers && b->edges && b->patches && b->caller && !find_branches(b);
}

static void building_close(struct building *b)
{
    free(b->first);
    free(b->readers);
    free(b->edges);
    free(b->patches);
    free(b->caller);
}

static weir_status build_kernels(struct weir_session *s)
{
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; !status && k < s->plan->kernels_count; k++)
        if (built_runs(&s->built, s->plan->kernels[k].actor.i))
            status = build_kernel(s, k);
    return status;
}

static weir_status build_all(struct building *b)
{
    struct weir_session *s = b->s;
    const weir_plan *plan = s->plan;
    weir_status status = build_ranks(s);
    if (status)
        return status;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        build_actor(s, a);
    build_ports(s);
    count_edges(b);
    build_outs(b);
    build_edges(b);
    build_views(b);
    status = build_kernels(s);
    if (!status)
        status = session_tie_queues(s);
    if (!status)
        session_join_kernels(s);
    if (!status)
        status = session_open_groups(s);
    if (!status && s->debug.checks_finite)
        status = debug_check_finite(&s->debug, &s->built);
    s->workers.owner.finite = s->debug.finite;
    if (!status && s->debug.poisons)
        status = debug_poison(&s->debug, &s->built);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (s->built.lane_of[a])
            actor_settle(&s->built.actors[a]);
    return status;
}

weir_status session_build(struct weir_session *s)
{
    struct building b;
    weir_status status = building_open(&b, s) && build_arrays(&b)
                             ? build_all(&b)
                             : error_set(WEIR_E_MEMORY, "no memory for %u actors", s->plan->actors_count);
    building_close(&b);
    return status;
}

/* ---- lanes ---- */

uint32_t session_lane_number(const struct weir_session *s, uint32_t a)
{
    uint32_t queue = s->plan->actors[a].queue.i;
    if (!s->built.lane_of[a])
        return UINT32_MAX;
    if (s->plan->queues[queue].kind != PLAN_OUTSIDE)
        return s->workers.of_queue[queue];
    return s->workers.count + (uint32_t)(s->built.lane_of[a] - s->outside.lanes);
}

/* One end of an edge between two lanes; UINT32_MAX: it is on another rank. */
static void size_end(struct lane_size *sizes, uint32_t lane, uint32_t slots)
{
    if (lane == UINT32_MAX)
        return;
    sizes[lane].lines++;
    sizes[lane].messages += slots;
}

void session_size_lanes(const struct weir_session *s, struct lane_size *sizes)
{
    const weir_plan *plan = s->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (s->built.lane_of[a])
            sizes[session_lane_number(s, a)].actors++;
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        if (!plan_port_counts(plan, &plan->ports[p]))
            continue;
        uint32_t reader = session_lane_number(s, plan->ports[p].actor.i);
        uint32_t producer = session_lane_number(s, regst->producer.i);
        if (reader == producer)
            continue;
        size_end(sizes, reader, regst->slots); /* frees out, readies in */
        size_end(sizes, producer, regst->slots);
    }
}
