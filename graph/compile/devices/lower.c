/* graph/compile/devices/lower.c: from the logical graph to kernel calls per device.
 *
 * Every node becomes one pop (physical op) per device of its mesh, every tensor one ptensor per device of its. A node that
 * needs no work disappears: explicit layouts, conversions whose one source is the same slice on the same device, accumulation
 * over one micro-batch, and pops of which nobody reads an output. An accumulation behind a kernel that can add is merged into
 * it.
 *
 * A tensor that one conversion makes for others alone, the scattered sum on its way to everybody, is cut into chunks where
 * its shards are large: each is a ptensor that a pop of its own makes, so that one is on its way while the next is summed.
 * Pops of all devices come chunk by chunk. A chunk is a run of rows, contiguous in its shard. Which elements are added in
 * which order does not change, so the bits do not.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/compile/devices/exchange.h"
#include "graph/compile/devices/passes.h"
#include "graph/compile/devices/sources.h"
#include "graph/compile/devices/sums.h"
#include "graph/compile/sbp/teams.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#include <string.h>

enum { CHUNKS_MAX = 16 };          /* of a shard */
uint64_t lower_chunk_bytes = 1 << 20;

typedef struct lowering {
    compile *c;
    phys *p;
    sources sources;               /* of the conversion that is being lowered, */
    exchanging exchange;           /* which may be one between accelerators */
    bool *called;                  /* by ir tensor: functions of the program's alone read it */
    weir_type *types;              /* of the operands of a pop */
    int types_room;
} lowering;

static int device_id(const compile *c, weir_device_kind kind, int index)
{
    return c->phys.device_of[kind][index];
}

static int device_last(const compile *c)
{
    int last = 0;
    for (int n = 0; n < c->ir.node_count; n++)
        for (int i = 0; i < c->ir.node[n].mesh->count; i++)
            if (c->ir.node[n].mesh->device[i] > last)
                last = c->ir.node[n].mesh->device[i];
    for (int t = 0; t < c->ir.tensors.count; t++)
        for (int i = 0; i < c->ir.tensors.item[t].mesh->count; i++)
            if (c->ir.tensors.item[t].mesh->device[i] > last)
                last = c->ir.tensors.item[t].mesh->device[i];
    return last;
}

/* An accelerator has the host's memory beside it, whether anything goes there or not. */
static void mesh_mark(compile *c, const weir_mesh *mesh)
{
    for (int i = 0; i < mesh->count; i++) {
        c->phys.device_of[mesh->kind][mesh->device[i]] = 1;
        if (device_is_accelerator(mesh->kind))
            c->phys.device_of[WEIR_PINNED][mesh->device[i]] = 1;
    }
}

/* The file is beside the devices that read it. */
static void mapped_mark(compile *c, const ir_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (c->ir.tensors.item[node->in[i]].mapped)
            for (int k = 0; k < node->mesh->count; k++)
                c->phys.device_of[WEIR_MAPPED][node->mesh->device[k]] = 1;
}

/* Devices get their ids in ascending order, so that plans read well. */
static bool devices_number(compile *c)
{
    int count = device_last(c) + 1;
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        if (!(c->phys.device_of[k] = POOL_NEW(&c->pool, int, count)))
            return false;
    for (int n = 0; n < c->ir.node_count; n++) {
        mesh_mark(c, c->ir.node[n].mesh);
        mapped_mark(c, &c->ir.node[n]);
    }
    for (int t = 0; t < c->ir.tensors.count; t++)
        mesh_mark(c, c->ir.tensors.item[t].mesh);
    for (int k = 0; k < WEIR_DEVICE_KINDS; k++)
        for (int i = 0; i < count; i++) {
            pdevice *d = c->phys.device_of[k][i] ? POOL_PUSH(&c->pool, &c->phys.device) : NULL;
            c->phys.device_of[k][i] = d ? c->phys.device.count - 1 : NONE;
            if (d)
                *d = (pdevice){.kind = (weir_device_kind)k, .index = i};
        }
    return true;
}

static uint64_t slice_bytes(const weir_type *type, const slice *part)
{
    uint64_t count = 1;
    for (int d = 0; d < type->shape.rank; d++)
        count *= (uint64_t)part->count[d];
    return round_up(count * weir_dtype_bytes(type->dtype));
}

/* ---- chunks ---- */

/* The dimension whose rows chunks are made of: the first of which the shard has more than one. */
static int chunk_dimension(const slice *part, int rank)
{
    int d = 0;
    while (d < rank - 1 && part->count[d] <= 1)
        d++;
    return d;
}

/* Chunk `chunk` of `chunks` of the shard; the first are one row longer where rows do not divide. */
static slice chunk_of(slice part, int rank, int chunk, int chunks)
{
    if (chunks == 1)
        return part;
    int d = chunk_dimension(&part, rank);
    int64_t each = part.count[d] / chunks, longer = part.count[d] % chunks;
    part.start[d] += chunk * each + (chunk < longer ? chunk : longer);
    part.count[d] = each + (chunk < longer);
    return part;
}

/* Into how many chunks the shards of a tensor of this layout are cut: no more than each has rows, and than one
 * conversion can gather. */
static int chunks_for(const ir_tensor *t)
{
    int64_t chunks = CHUNKS_MAX, most = 1;
    for (int at = 0; at < t->mesh->count; at++) {
        slice part = slice_of(&t->type.shape, t->mesh, t->sbp, at);
        int64_t wanted = (int64_t)((slice_bytes(&t->type, &part) + lower_chunk_bytes - 1) / lower_chunk_bytes);
        int64_t rows = part.count[chunk_dimension(&part, t->type.shape.rank)];
        most = wanted > most ? wanted : most;
        chunks = rows < chunks ? rows : chunks;
    }
    chunks = most < chunks ? most : chunks;
    int shards = t->mesh->home ? teams_largest(t->mesh) : t->mesh->count; /* that one conversion reads */
    chunks = WEIR_ARGS_MAX / shards < chunks ? WEIR_ARGS_MAX / shards : chunks;
    return chunks > 1 ? (int)chunks : 1;
}

/* Decides for all tensors: those that a conversion makes for conversions alone may be cut. */
static bool chunks_choose(lowering *l)
{
    compile *c = l->c;
    int count = c->ir.tensors.count;
    bool *kept = POOL_NEW(&c->pool, bool, count + 1), *converted = POOL_NEW(&c->pool, bool, count + 1);
    if (!kept || !converted)
        return false;
    for (int n = 0; n < c->ir.node_count; n++)
        for (int i = 0; i < c->ir.node[n].in_count; i++)
            *(c->ir.node[n].op == &op_box ? &converted[c->ir.node[n].in[i]] : &kept[c->ir.node[n].in[i]]) = true;
    for (int t = 0; t < count; t++) {
        const ir_tensor *tensor = &c->ir.tensors.item[t];
        bool boxed = tensor->node >= 0 && c->ir.node[tensor->node].op == &op_box;
        bool whole = tensor->mesh->whole; /* on a core most shards are what they were on the mesh */
        bool passes = boxed && tensor->type.shape.rank && converted[t] && !kept[t] && !whole;
        passes &= !device_is_accelerator(tensor->mesh->kind); /* what passes between those is taken as one */
        l->p->chunks[t] = passes ? chunks_for(tensor) : 1;
    }
    return true;
}

/* Values that are there before the first step: one of a parameter, as many as its delay of a state that is set. */
static int initial_of(const weir_tensor *origin)
{
    if (!origin || origin->node)
        return 0;
    return origin->update && origin->delay ? origin->delay : 1;
}

/* Where the `at`-th part of the tensor lies. A mapped one that nobody reads has no place in a file. */
static int place_of(const compile *c, const ir_tensor *t, int at)
{
    const int beside = t->mapped ? device_id(c, WEIR_MAPPED, t->mesh->device[at]) : NONE;
    return beside != NONE ? beside : device_id(c, t->mesh->kind, t->mesh->device[at]);
}

static bool tensor_make(lowering *l, int tensor, int at, int chunk)
{
    const ir_tensor *from = &l->c->ir.tensors.item[tensor];
    int chunks = l->p->chunks[tensor];
    slice shard = slice_of(&from->type.shape, from->mesh, from->sbp, at);
    slice part = chunk_of(shard, from->type.shape.rank, chunk, chunks);
    ptensor *to = POOL_PUSH(&l->c->pool, &l->p->tensor);
    if (to)
        *to = (ptensor){.tensor = tensor,
                        .device = place_of(l->c, from, at),
                        .part = part,
                        .bytes = slice_bytes(&from->type, &part),
                        .producer = NONE,
                        .alias = NONE,
                        .within = NONE,
                        .family = NONE,
                        .reg = NONE,
                        .slots = from->origin ? from->origin->slots : 0,
                        .parameter = from->state_of || (from->origin && !from->origin->node),
                        .initial = from->state_of ? 1 : initial_of(from->origin),
                        .chunk = chunks > 1};
    return to;
}

static bool tensors_make(lowering *l)
{
    int64_t count = 0;
    for (int t = 0; t < l->c->ir.tensors.count; t++)
        count += (int64_t)l->c->ir.tensors.item[t].mesh->count * l->p->chunks[t];
    if (!POOL_ROOM(&l->c->pool, &l->p->tensor, count))
        return false;
    for (int t = 0; t < l->c->ir.tensors.count; t++) {
        l->p->first[t] = l->p->tensor.count;
        if (l->c->ir.tensors.item[t].parts)
            continue;
        for (int at = 0; at < l->c->ir.tensors.item[t].mesh->count; at++)
            for (int chunk = 0; chunk < l->p->chunks[t]; chunk++)
                if (!tensor_make(l, t, at, chunk))
                    return false;
    }
    return true;
}

/* ---- conversions ---- */

static bool same_part(const ptensor *a, const ptensor *b)
{
    return !memcmp(&a->part, &b->part, sizeof a->part);
}

/* Whether what lies on one device is what a conversion would make on the other: there already, or read where it is by
 * functions of the program's on another CPU. Kernels get a copy, which is made beside what is computed, and gives the
 * slot back as soon as it is there, and so does who reads what an update waits for; but such a function is a stage of a
 * pipeline, with slots of its own. */
static bool same_place(const lowering *l, const ptensor *a, const ptensor *b)
{
    const pdevice *device = l->p->device.item;
    bool reached = device[a->device].kind == WEIR_CPU && device[b->device].kind == WEIR_CPU && l->called[b->tensor];
    return (a->device == b->device || (reached && !a->parameter)) && same_part(a, b);
}

/* The inputs of the box of device `at`: shards wherever they lie, or between accelerators what has been taken of them. */
static int *box_sources(lowering *l, const ir_node *node, int at, int out, int *count, box_attrs *attrs)
{
    compile *c = l->c;
    const exchanging *x = &l->exchange;
    if (c->ir.tensors.item[node->in[0]].parts) {
        *attrs = (box_attrs){.terms = x->terms[at], .zero = x->zero[at]};
        *count = x->first[at + 1] - x->first[at];
        return pool_copy(&c->pool, x->in.item + x->first[at], sizeof *x->in.item * (size_t)*count);
    }
    sources_find(&l->sources, c, node->in[0], node->out[0], at, &l->p->tensor.item[out].part);
    *attrs = (box_attrs){.terms = l->sources.terms, .zero = l->sources.zero};
    *count = l->sources.count;
    return pool_copy(&c->pool, l->sources.item, sizeof *l->sources.item * (size_t)(*count + 1));
}

static bool lower_box(lowering *l, const ir_node *node, int n, int at, int chunk)
{
    compile *c = l->c;
    if (c->ir.tensors.item[node->in[0]].parts && l->exchange.gathered[at])
        return true;
    int out = ptensor_at(l->p, node->out[0], at, chunk);
    box_attrs *attrs = POOL_NEW(&c->pool, box_attrs, 1);
    pop *op = POOL_PUSH(&c->pool, &l->p->op);
    int count = 0, *list = attrs && op ? box_sources(l, node, at, out, &count, attrs) : NULL;
    if (!list)
        return false;
    *op = (pop){.node = n, .device = l->p->tensor.item[out].device, .in_count = count, .out_count = 1, .in = list,
                .attrs = attrs, .phase = node->phase, .micro = node->micro, .exchange = NONE, .collective = NONE};
    op->out = POOL_NEW(&c->pool, int, 1);
    if (!op->out)
        return false;
    op->out[0] = out;
    l->p->tensor.item[out].producer = l->p->op.count - 1;
    if (count > WEIR_ARGS_MAX)
        return error_set(WEIR_E_UNSUPPORTED, "%s:%d: the conversion \"%s\" reads %d shards, but may read at most %d; use a mesh with fewer devices",
                         node->src.file, node->src.line, node->name, count, WEIR_ARGS_MAX),
               false;
    if (count == 1 && !attrs->zero && same_place(l, &l->p->tensor.item[list[0]], &l->p->tensor.item[out])) {
        l->p->tensor.item[out].alias = list[0];
        op->dead = true;
    }
    return true;
}

/* ---- ops ---- */

void pop_types(const compile *c, const pop *op, weir_type *types)
{
    for (int i = 0; i < op->in_count + op->out_count; i++) {
        const ptensor *t = &c->phys.tensor.item[i < op->in_count ? op->in[i] : op->out[i - op->in_count]];
        types[i] = c->ir.tensors.item[t->tensor].type;
        for (int d = 0; d < types[i].shape.rank; d++)
            types[i].shape.dim[d] = t->part.count[d];
    }
}

/* For one pop's operands, until the next asks. */
static weir_type *types_room(lowering *l, int count)
{
    if (count > l->types_room) {
        l->types = POOL_NEW(&l->c->pool, weir_type, 2 * count);
        l->types_room = l->types ? 2 * count : 0;
    }
    return l->types;
}

/* Scratch and states, which depend on local shapes. */
static bool pop_memory(lowering *l, const ir_node *node, int id)
{
    compile *c = l->c;
    pop *op = &l->p->op.item[id];
    weir_type *types = types_room(l, op->in_count + op->out_count), state[4] = {0};
    if (!types)
        return false;
    pop_types(l->c, op, types);
    weir_op_args args = {node->op, types, op->in_count, types + op->in_count, op->out_count, op->attrs};
    weir_device_kind kind = device_kernels(l->p->device.item[op->device].kind);
    op->scratch = node->op->workspace ? round_up(node->op->workspace(&args, kind)) : 0;
    const slice none = {.start = {0}};
    int count = node->op->states ? node->op->states(&args, state) : 0;
    for (int s = 0; s < count; s++) {
        const ptensor *out = &l->p->tensor.item[op->out[0]];
        pstate *to = POOL_PUSH(&c->pool, &l->p->state);
        int *at = POOL_PUSH(&c->pool, &op->states);
        if (!to || !at)
            return false;
        *at = l->p->state.count - 1;
        *to = (pstate){.pop = id, .index = s, .type = state[s], .part = state[s].shape.rank ? out->part : none};
        to->global = state[s].shape.rank ? c->ir.tensors.item[out->tensor].type.shape : state[s].shape;
        to->bytes = round_up((uint64_t)weir_shape_count(&state[s].shape) * weir_dtype_bytes(state[s].dtype));
    }
    return true;
}

static const void *node_attrs(compile *c, const ir_node *node)
{
    if (node->op != &op_grad_seed)
        return node->attrs;
    seed_attrs *attrs = POOL_NEW(&c->pool, seed_attrs, 1);
    if (attrs)
        attrs->value = c->ir.tensors.item[node->in[0]].micro && !((const seed_attrs *)node->attrs)->whole ? 1.0 / c->micro : 1.0;
    return attrs;
}

/* The queue of its device: what calls a function of the program's may wait for whatever that likes, and push and pull
 * are the program's own. */
static plan_queue_kind queue_of(const ir_node *node)
{
    if (node->origin && node->origin->host)
        return node->origin->host - 1 <= PLAN_CALL ? PLAN_IO_QUEUE : PLAN_OUTSIDE;
    return node->moves ? PLAN_IO_QUEUE : node->copies;
}

/* Which of its device's io queues. */
static int io_of(lowering *l, const ir_node *node)
{
    const char *name = node->origin ? node->origin->queue : NULL;
    for (int i = 0; name && i < l->p->io.count; i++)
        if (!strcmp(l->p->io.item[i], name))
            return i + 1;
    const char **made = name ? POOL_PUSH(&l->c->pool, &l->p->io) : NULL;
    if (made)
        *made = name;
    return made ? l->p->io.count : 0;
}

static bool lower_op(lowering *l, const ir_node *node, int n, int at)
{
    compile *c = l->c;
    pop *op = POOL_PUSH(&c->pool, &l->p->op);
    if (!op)
        return false;
    int id = l->p->op.count - 1;
    *op = (pop){.node = n,
                .device = device_id(c, node->mesh->kind, node->mesh->device[at]),
                .in_count = node->in_count,
                .out_count = node->out_count,
                .exchange = NONE,
                .collective = NONE,
                .attrs = node_attrs(c, node),
                .phase = node->phase,
                .micro = node->micro,
                .accumulate = node->op == &op_accumulate,
                .queue = queue_of(node),
                .io = io_of(l, node)};
    op->in = POOL_NEW(&c->pool, int, op->in_count + 1);
    op->out = POOL_NEW(&c->pool, int, op->out_count + 1);
    if (!op->in || !op->out)
        return false;
    for (int i = 0; i < op->in_count; i++)
        op->in[i] = ptensor_at(l->p, node->in[i], at, 0);
    for (int o = 0; o < op->out_count; o++) {
        op->out[o] = ptensor_at(l->p, o == 0 && node->updates >= 0 ? node->updates : node->out[o], at, 0);
        l->p->tensor.item[op->out[o]].producer = id;
    }
    bool fills = node->origin && node->origin->fills;
    if (node->op == &op_shard || (fills && c->micro == 1 && node->op == &op_accumulate)) {
        l->p->tensor.item[op->out[0]].alias = op->in[0];
        op->dead = true;
        return true;
    }
    if (fills)
        l->p->tensor.item[op->out[0]].fills = true; /* an accumulation or a batch, which have one output */
    return pop_memory(l, node, id);
}

static bool kernel_there(const ir_node *node)
{
    weir_device_kind kind = node->mesh->kind;
    if (op_runs_on(node->op, kind) || node->op == &op_collective)
        return true;
    error_set(WEIR_E_UNSUPPORTED, "%s:%d: %s: \"%s\" has no kernel for %s devices", node->src.file, node->src.line,
              node->op->name, node->name, device_kind_name(kind));
    return false;
}

/* Whether a batch, or what is taken apart, has a row for each micro-batch, and an input counts as many as there are. */
static bool rows_there(const compile *c, const ir_node *node)
{
    const int micros = node->origin ? node->origin->micros : 0;
    if (micros && micros != c->micro) {
        error_set(WEIR_E_GRAPH, "%s:%d: %s: \"%s\" has .micro_batches = %d, but a step has %d micro-batch%s; both numbers must be equal "
                  "(.micro_batches of weir_compile())", node->src.file, node->src.line, node->op->name, node->name, micros, c->micro,
                  c->micro == 1 ? "" : "es");
        return false;
    }
    int rows = node->op == &op_batch ? node->out[0] : node->op == &op_unbatch ? node->in[0] : NONE;
    if (rows < 0 || c->ir.tensors.item[rows].type.shape.dim[0] == c->micro)
        return true;
    error_set(WEIR_E_GRAPH, "%s:%d: %s: the tensor has %lld rows, but a step has %d micro-batch%s; both numbers must be equal "
              "(.micro_batches of weir_compile())", node->src.file, node->src.line,
              node->op->name, (long long)c->ir.tensors.item[rows].type.shape.dim[0], c->micro, c->micro == 1 ? "" : "es");
    return false;
}

/* ---- after all are there ---- */

/* Inputs become what they really are, and slots fixed for a layout are fixed for what lies so. */
static void aliases_resolve(phys *p)
{
    for (int t = 0; t < p->tensor.count; t++) {
        ptensor *real = &p->tensor.item[ptensor_real(p, t)];
        if (!real->slots && !real->parameter)
            real->slots = p->tensor.item[t].slots;
    }
    for (int i = 0; i < p->op.count; i++)
        for (int k = 0; k < p->op.item[i].in_count; k++)
            p->op.item[i].in[k] = ptensor_real(p, p->op.item[i].in[k]);
    for (int m = 0; m < p->move.count; m++)
        p->move.item[m].give = ptensor_real(p, p->move.item[m].give);
}

/* Pops come in order, so one that is there already is the last. */
static void reader_add(lowering *l, ptensor *t, int op)
{
    if (t->readers.count && t->readers.item[t->readers.count - 1] == op)
        return;
    int *at = POOL_PUSH(&l->c->pool, &t->readers);
    if (at)
        *at = op;
}

static void readers_list(lowering *l)
{
    for (int i = 0; i < l->p->op.count; i++)
        for (int k = 0; k < l->p->op.item[i].in_count && !l->p->op.item[i].dead; k++)
            reader_add(l, &l->p->tensor.item[ptensor_whole(l->p, l->p->op.item[i].in[k])], i);
}

/* Whether the pop must run although nobody may read what it makes. */
static bool has_effect(const lowering *l, const pop *op)
{
    const ir_node *node = &l->c->ir.node[op->node];
    return node->op->effect || node->updates >= 0;
}

/* Marks pops of no use. Readers come behind what they read, so one walk backwards is enough. */
static void sweep_dead(lowering *l)
{
    bool *used = POOL_NEW(&l->c->pool, bool, l->p->tensor.count + 1);
    if (!used)
        return;
    for (int i = l->p->op.count - 1; i >= 0; i--) {
        pop *op = &l->p->op.item[i];
        if (op->exchange != NONE) {
            i = l->p->exchange.item[op->exchange].first; /* all of its pops at once */
            exchange_sweep(l->c, op->exchange, used);
            continue;
        }
        if (op->collective != NONE) {
            i = sum_sweep(l->c, i, used); /* so far others have none */
            continue;
        }
        bool live = has_effect(l, op);
        for (int o = 0; o < op->out_count; o++)
            live |= used[op->out[o]];
        op->dead |= !live;
        for (int k = 0; k < op->in_count && !op->dead; k++)
            used[op->in[k]] = true;
    }
}

/* Lets the kernel that makes a gradient add it up itself, where it can and nobody else reads it. */
static void merge_accumulations(lowering *l)
{
    for (int i = 0; i < l->p->op.count; i++) {
        pop *acc = &l->p->op.item[i];
        if (acc->dead || l->c->ir.node[acc->node].op != &op_accumulate)
            continue;
        ptensor *from = &l->p->tensor.item[acc->in[0]];
        pop *maker = from->producer >= 0 && !from->parameter ? &l->p->op.item[from->producer] : NULL;
        if (!maker || from->readers.count != 1 || maker->device != acc->device || maker->phase != acc->phase ||
            maker->micro != acc->micro || !l->c->ir.node[maker->node].op->accumulates || maker->out[0] != acc->in[0])
            continue;
        maker->out[0] = acc->out[0];
        maker->accumulate = true;
        l->p->tensor.item[acc->out[0]].producer = from->producer;
        from->readers.count = 0;
        from->producer = NONE;
        acc->dead = true;
    }
}

/* The k-th of a node's pops is the one of the k-th device of its mesh. */
static void wait_enter(lowering *l, const int *first, const ir_wait *w, int k)
{
    int id = first[w->node] + k, on = first[w->on] + k;
    pop *op = &l->p->op.item[id], *from = &l->p->op.item[on];
    int *at = op->dead || from->dead ? NULL : POOL_PUSH(&l->c->pool, &op->waits);
    if (!at)
        return;
    *at = on;
    from->awaited = true;
}

static bool waits_enter(lowering *l)
{
    const ir_graph *ir = &l->c->ir;
    int *first = POOL_NEW(&l->c->pool, int, ir->node_count + 1);
    if (!first)
        return false;
    for (int i = l->p->op.count - 1; i >= 0; i--)
        first[l->p->op.item[i].node] = i;
    for (int w = 0; w < ir->waits.count; w++)
        for (int k = 0; k < ir->node[ir->waits.item[w].node].mesh->count; k++)
            wait_enter(l, first, &ir->waits.item[w], k);
    return true;
}

static int chunks_of(const lowering *l, const ir_node *node)
{
    return node->op == &op_box ? l->p->chunks[node->out[0]] : 1;
}

/* One pop per device, or, where what it makes is cut, per chunk and device. */
static bool lower_node(lowering *l, const ir_node *node, int n)
{
    if (node->op == &op_box && l->c->ir.tensors.item[node->out[0]].parts)
        return exchange_lower(&l->exchange, n);
    if (node->sum != NONE)
        return sum_lower(l->c, n);
    if (node->op == &op_collective)
        return true; /* that did both */
    for (int chunk = 0; chunk < chunks_of(l, node); chunk++)
        for (int at = 0; at < node->mesh->count; at++)
            if (!(node->op == &op_box ? lower_box(l, node, n, at, chunk) : lower_op(l, node, n, at)))
                return false;
    return true;
}

static bool lower_all(lowering *l)
{
    int64_t count = 0;
    for (int n = 0; n < l->c->ir.node_count; n++)
        count += (int64_t)l->c->ir.node[n].mesh->count * chunks_of(l, &l->c->ir.node[n]);
    if (!POOL_ROOM(&l->c->pool, &l->p->op, count))
        return false;
    for (int n = 0; n < l->c->ir.node_count; n++)
        if (!kernel_there(&l->c->ir.node[n]) || !rows_there(l->c, &l->c->ir.node[n]) ||
            !lower_node(l, &l->c->ir.node[n], n))
            return false;
    return true;
}

/* Finds those tensors that nothing reads but calls and sinks, be it through layouts. Readers come behind what they read. */
static bool called_find(lowering *l)
{
    const ir_graph *ir = &l->c->ir;
    bool *computed = POOL_NEW(&l->c->pool, bool, ir->tensors.count + 1);
    l->called = POOL_NEW(&l->c->pool, bool, ir->tensors.count + 1);
    for (int n = ir->node_count - 1; n >= 0 && computed && l->called; n--) {
        const ir_node *node = &ir->node[n];
        bool passes = node->op == &op_box || node->op == &op_shard;
        bool called = passes ? l->called[node->out[0]] : node->op == &op_call || node->op == &op_sink;
        bool computes = passes ? computed[node->out[0]] : queue_of(node) != PLAN_IO_QUEUE;
        for (int i = 0; i < node->in_count; i++) {
            l->called[node->in[i]] |= called;
            computed[node->in[i]] |= computes;
        }
    }
    for (int t = 0; t < ir->tensors.count && computed && l->called; t++)
        l->called[t] &= !computed[t];
    return computed && l->called;
}

bool pass_lower(compile *c)
{
    lowering l = {.c = c, .p = &c->phys};
    l.exchange = (exchanging){.c = c, .sources = &l.sources};
    l.p->first = POOL_NEW(&c->pool, int, c->ir.tensors.count + 1);
    l.p->chunks = POOL_NEW(&c->pool, int, c->ir.tensors.count + 1);
    bool ready = l.p->first && l.p->chunks && devices_number(c) && called_find(&l) && chunks_choose(&l) &&
                 tensors_make(&l) && sources_new(&l.sources, c);
    if (c->pool.failed || !ready || !lower_all(&l))
        return c->pool.failed ? error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK
                              : false;
    aliases_resolve(l.p);
    sweep_dead(&l);
    if (!exchanges_settle(c))
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
    readers_list(&l);
    merge_accumulations(&l);
    waits_enter(&l);
    return !c->pool.failed || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
}
