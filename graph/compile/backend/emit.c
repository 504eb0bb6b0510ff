/* graph/compile/backend/emit.c: write the plan. Nothing is decided here: groups become actors, what they read ports, and the
 * flat arrays are filled in the order that graph/plan/form/plan.h asks for: what belongs to one owner lies together.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/compile/backend/backend.h"
#include "graph/compile/backend/emit.h"
#include "graph/compile/backend/emit_collective.h"
#include "graph/plan/form/build.h"
#include "graph/plan/form/text.h"
#include "graph/plan/prove/turns.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"
#include "kernels/optim/optim.h"

#include <stdlib.h>
#include <string.h>

enum { STATES_MAX = 4 };           /* of a kernel */

/* Texts that every device writes, once they are in the plan; 0: not yet. */
typedef struct node_texts {
    plan_str name, file, op, state[STATES_MAX];
    plan_str actor;                /* whose first node it is, and whose last is */
    int last;
} node_texts;

typedef struct emission {
    compile *c;
    phys *p;
    plan_builder *b;
    node_texts *of_node;           /* by ir node */
    plan_str *of_tensor;           /* by ir tensor: its name */
    const char *file;              /* of the tensor that was written last; */
    plan_str file_text;            /* as a text of the plan */
    uint32_t *queue[PLAN_QUEUE_KINDS]; /* by device; of io, of which it may have several, by device and which */
    bool *runs[PLAN_QUEUE_KINDS];  /* so too: whether it has groups that run on such a queue */
    uint32_t *first_state;         /* by pop: plan tensor of its first state */
    uint32_t *port;                /* by register: the port through which the actor written now reads it */
    callback_binding *bindings;
    uint32_t bindings_count;
} emission;

static plan_str text_once(emission *e, plan_str *known, const char *text)
{
    if (!known->i)
        *known = plan_add_text(e->b, text);
    return *known;
}

static uint32_t fires(const compile *c, const group *g)
{
    return g->micro ? (uint32_t)c->micro : 1;
}

static const ir_node *first_node(const compile *c, const group *g)
{
    return &c->ir.node[c->phys.op.item[g->pops.item[0]].node];
}

/* Where the queue of a device stands; `io`: which of its io queues. */
static size_t queue_at(const emission *e, plan_queue_kind kind, int d, int io)
{
    return kind == PLAN_IO_QUEUE ? (size_t)d * ((size_t)e->p->io.count + 1) + (size_t)io : (size_t)d;
}

/* The queue on which the device runs groups of that kind, when it has any. */
static void emit_queue(emission *e, int d, plan_queue_kind kind, int io)
{
    const pdevice *from = &e->p->device.item[d];
    size_t at = queue_at(e, kind, d, io);
    if (!e->runs[kind][at])
        return;
    char *name = pool_text(&e->c->pool, "%s %s:%d%s%s", queue_kind_text(kind), device_kind_name(from->kind), from->index,
                           io ? " " : "", io ? e->p->io.item[io - 1] : "");
    if (name)
        e->queue[kind][at] = plan_add_queues(
            e->b, (plan_queue){.space = {(uint32_t)d}, .kind = kind, .name = plan_add_text(e->b, name)});
}

/* A device that computes has a compute queue in any case. */
static bool computes(const emission *e, int d)
{
    weir_device_kind kind = e->p->device.item[d].kind;
    return kind != WEIR_DISK && kind != WEIR_MAPPED && (kind != WEIR_PINNED || e->runs[PLAN_COMPUTE][d]);
}

static void emit_device(emission *e, int d)
{
    const pdevice *from = &e->p->device.item[d];
    bool disk = from->kind == WEIR_DISK;
    char *name = pool_text(&e->c->pool, "%s:%d", device_kind_name(from->kind), from->index);
    plan_space_id space = {plan_add_spaces(e->b, (plan_space){.kind = from->kind,
                                                              .index = (uint32_t)from->index,
                                                              .name = plan_add_text(e->b, name),
                                                              .path = plan_add_text(e->b, disk ? e->c->offload : "")})};
    if (computes(e, d))
        e->queue[PLAN_COMPUTE][d] = plan_add_queues(e->b, (plan_queue){.space = space,
                                                                       .kind = PLAN_COMPUTE,
                                                                       .name = plan_add_text(e->b, name)});
    for (int io = 0; io <= e->p->io.count; io++)
        emit_queue(e, d, PLAN_IO_QUEUE, io);
    emit_queue(e, d, PLAN_OUTSIDE, 0);
    emit_queue(e, d, PLAN_COPY_IN, 0);
    emit_queue(e, d, PLAN_COPY_OUT, 0);
    emit_queue(e, d, PLAN_COLLECTIVE, 0);
}

/* Most tensors are of the same file as the one before. */
static plan_str file_text(emission *e, const char *file)
{
    if (file != e->file)
        e->file_text = plan_add_text(e->b, file);
    e->file = file;
    return e->file_text;
}

static plan_tensor tensor_from(emission *e, plan_str name, weir_src src, const weir_type *type, const weir_shape *global,
                               const slice *part)
{
    plan_tensor to = {.name = name, .dtype = type->dtype, .rank = (uint32_t)type->shape.rank,
                      .file = file_text(e, src.file), .line = (uint32_t)src.line};
    for (int d = 0; d < type->shape.rank; d++) {
        to.shape[d] = part->count[d];
        to.start[d] = part->start[d];
        to.global[d] = global->dim[d];
    }
    return to;
}

static uint32_t emit_tensor(emission *e, int id, plan_home home, uint32_t owner)
{
    ptensor *t = &e->p->tensor.item[id];
    const ir_tensor *logical = &e->c->ir.tensors.item[t->tensor];
    plan_str name = text_once(e, &e->of_tensor[t->tensor], logical->name);
    plan_tensor to = tensor_from(e, name, logical->src, &logical->type, &logical->type.shape, &t->part);
    to.home = home;
    to.owner = owner;
    to.offset = t->offset;
    t->plan_id = plan_add_tensors(e->b, to);
    return t->plan_id;
}

static void emit_reg(emission *e, int id)
{
    reg *r = &e->p->reg.item[id];
    uint32_t first = plan_builder_plan(e->b)->tensors_count;
    r->plan_id = plan_builder_plan(e->b)->regsts_count;
    for (int t = 0; t < r->tensors.count; t++)
        emit_tensor(e, r->tensors.item[t], PLAN_IN_REGST, r->plan_id);
    plan_add_regsts(e->b, (plan_regst){.producer = {r->group >= 0 ? (uint32_t)r->group : PLAN_NONE},
                                       .space = {(uint32_t)r->device},
                                       .kind = r->kind,
                                       .fill = (uint32_t)r->fill,
                                       .initial = (uint32_t)r->initial,
                                       .fixed = r->fixed,
                                       .slot_bytes = r->slot_bytes,
                                       .tensors = {first, (uint32_t)r->tensors.count}});
}

static void emit_regs(emission *e)
{
    for (int g = 0; g < e->p->group.count; g++)
        for (int r = 0; r < e->p->group.item[g].regs.count; r++)
            emit_reg(e, e->p->group.item[g].regs.item[r]);
    for (int r = 0; r < e->p->reg.count; r++)
        if (e->p->reg.item[r].group < 0)
            emit_reg(e, r);
}

static plan_range emit_ports(emission *e, int g)
{
    const group *from = &e->p->group.item[g];
    plan_range range = {plan_builder_plan(e->b)->ports_count, (uint32_t)from->reads.count};
    for (int i = 0; i < from->reads.count; i++) {
        const reg *r = &e->p->reg.item[from->reads.item[i]];
        uint32_t published = r->group >= 0 ? fires(e->c, &e->p->group.item[r->group]) / (uint32_t)r->fill : 1;
        e->port[from->reads.item[i]] =
            plan_add_ports(e->b, (plan_port){.actor = {(uint32_t)g}, .regst = {r->plan_id},
                                             .hold = fires(e->c, from) / published});
    }
    return range;
}

/* An update whose states wait on a disk is another op (budget/offload.h); its states are named for the one that it was. */
static const char *name_before(const weir_op *op)
{
    const weir_op *update = optim_unmoved(op);
    return update ? update->name : op->name;
}

/* "h0/q/weight:adamw.m", after the parameter that the op updates or else after its application. */
static const char *state_name(emission *e, const ir_node *node, int s)
{
    const char *of = node->updates >= 0 ? e->c->ir.tensors.item[node->updates].name : node->name;
    const char *op = name_before(node->op);
    if (node->op->state_names[s])
        return pool_text(&e->c->pool, "%s:%s.%s", of, op, node->op->state_names[s]);
    return pool_text(&e->c->pool, "%s:%s.%d", of, op, s);
}

/* An update's state is where the parameter is. */
static weir_src state_src(const emission *e, const ir_node *node)
{
    return node->updates >= 0 ? e->c->ir.tensors.item[node->updates].src : node->src;
}

static plan_str state_text(emission *e, const pop *op, int s)
{
    plan_str *known = &e->of_node[op->node].state[s];
    return known->i ? *known : text_once(e, known, state_name(e, &e->c->ir.node[op->node], s));
}

static plan_range emit_states(emission *e, int g)
{
    const group *from = &e->p->group.item[g];
    plan_range range = {plan_builder_plan(e->b)->tensors_count, 0};
    for (int i = 0; i < from->pops.count; i++) {
        const pop *op = &e->p->op.item[from->pops.item[i]];
        for (int s = 0; s < op->states.count; s++, range.count++) {
            const pstate *state = &e->p->state.item[op->states.item[s]];
            plan_tensor to = tensor_from(e, state_text(e, op, s), state_src(e, &e->c->ir.node[op->node]), &state->type,
                                         &state->global, &state->part);
            to.home = PLAN_IN_STATE;
            to.owner = (uint32_t)g;
            plan_tensor_id id = {plan_add_tensors(e->b, to)};
            if (!s)
                e->first_state[from->pops.item[i]] = id.i;
            plan_add_inits(e->b, (plan_init){.tensor = id, .kind = WEIR_INIT_ZERO});
        }
    }
    return range;
}

static plan_range emit_temps(emission *e, int g)
{
    const group *from = &e->p->group.item[g];
    plan_range range = {plan_builder_plan(e->b)->tensors_count, 0};
    for (int i = 0; i < from->pops.count; i++) {
        const pop *op = &e->p->op.item[from->pops.item[i]];
        for (int o = 0; o < op->out_count; o++) {
            if (e->p->tensor.item[op->out[o]].reg >= 0)
                continue;
            emit_tensor(e, op->out[o], PLAN_IN_TEMP, (uint32_t)g);
            range.count++;
        }
    }
    return range;
}

/* The port of actor g, whose ports have been written last, that reads the tensor's register; PLAN_NONE when it is its
 * own. */
static uint32_t port_of(const emission *e, int g, const ptensor *t)
{
    return t->reg < 0 || e->p->reg.item[t->reg].group == g ? PLAN_NONE : e->port[t->reg];
}

static plan_range emit_words(emission *e, const weir_op *op, const void *attrs)
{
    plan_range range = {plan_builder_plan(e->b)->words_count, (uint32_t)(op->attrs_bytes / 8)};
    const plan_word *word = attrs;
    for (uint32_t i = 0; i < range.count; i++)
        plan_add_words(e->b, word[i]);
    return range;
}

static uint32_t emit_host(emission *e, int g, const ir_node *node)
{
    if (!node->origin || !node->origin->host)
        return PLAN_NONE;
    e->bindings[e->bindings_count++] = node->origin->binding;
    return plan_add_hosts(e->b, (plan_host){.name = plan_add_text(e->b, node->name),
                                            .kind = (uint32_t)node->origin->host - 1,
                                            .actor = {(uint32_t)g},
                                            .file = plan_add_text(e->b, node->src.file),
                                            .line = (uint32_t)node->src.line});
}

static void emit_kernel(emission *e, int g, int id)
{
    const pop *op = &e->p->op.item[id];
    const ir_node *node = &e->c->ir.node[op->node];
    node_texts *texts = &e->of_node[op->node];
    plan_kernel k = {.actor = {(uint32_t)g},
                     .op = op->fused ? plan_add_text(e->b, op->fused->name) : text_once(e, &texts->op, node->op->name),
                     .name = op->fused ? plan_add_text(e->b, op->fused_name) : text_once(e, &texts->name, node->name),
                     .file = text_once(e, &texts->file, node->src.file),
                     .line = (uint32_t)node->src.line,
                     .host = emit_host(e, g, node),
                     .accumulate = op->accumulate,
                     .key = node_key(e->c, node),
                     .attrs = emit_words(e, pop_op(e->c, op), op->attrs),
                     .workspace_bytes = op->scratch};
    const weir_plan *plan = plan_builder_plan(e->b);
    k.in = (plan_range){plan->operands_count, (uint32_t)op->in_count};
    for (int i = 0; i < op->in_count; i++) {
        const ptensor *t = &e->p->tensor.item[op->in[i]];
        plan_add_operands(e->b, (plan_operand){{t->plan_id}, {port_of(e, g, t)}});
    }
    k.out = (plan_range){plan->operands_count, (uint32_t)op->out_count};
    for (int o = 0; o < op->out_count; o++)
        plan_add_operands(e->b, (plan_operand){{e->p->tensor.item[op->out[o]].plan_id}, {PLAN_NONE}});
    k.state = (plan_range){plan->operands_count, (uint32_t)op->states.count};
    for (int s = 0; s < op->states.count; s++)
        plan_add_operands(e->b, (plan_operand){{e->first_state[id] + (uint32_t)s}, {PLAN_NONE}});
    plan_add_kernels(e->b, k);
}

/* "h0/ln1" or "h0/ln1..h0/down" */
static plan_str actor_text(emission *e, const group *g)
{
    int last = e->p->op.item[g->pops.item[g->pops.count - 1]].node;
    const ir_node *node = e->c->ir.node, *first = first_node(e->c, g);
    node_texts *texts = &e->of_node[first - node];
    if (first == &node[last])
        return text_once(e, &texts->name, first->name);
    if (texts->last != last)
        texts->actor = (plan_str){0};
    texts->last = last;
    return texts->actor.i ? texts->actor
                          : text_once(e, &texts->actor, pool_text(&e->c->pool, "%s..%s", first->name, node[last].name));
}

static void emit_actor(emission *e, int g)
{
    const group *from = &e->p->group.item[g];
    plan_actor a = {.queue = {e->queue[from->queue][queue_at(e, from->queue, from->device, from->io)]},
                    .name = actor_text(e, from),
                    .program = {(uint32_t)from->program},
                    .phase = from->phase,
                    .fires = fires(e->c, from),
                    .priority = (uint32_t)from->priority,
                    .ports = emit_ports(e, g),
                    .regsts = {from->regs.count ? e->p->reg.item[from->regs.item[0]].plan_id : 0,
                               (uint32_t)from->regs.count}};
    a.states = emit_states(e, g);
    a.temps = emit_temps(e, g);
    a.kernels.first = plan_builder_plan(e->b)->kernels_count;
    if (from->queue == PLAN_OUTSIDE)
        emit_host(e, g, first_node(e->c, from));
    for (int i = 0; i < from->pops.count && from->queue != PLAN_OUTSIDE; i++, a.kernels.count++)
        emit_kernel(e, g, from->pops.item[i]);
    plan_add_actors(e->b, a);
}

/* Adds the shards of tensor `t`, a layout of the parameter `from`, and how they start. Returns how many. */
static uint32_t emit_shards(emission *e, int t, const weir_tensor *from)
{
    uint32_t count = 0;
    for (int i = 0; i < e->c->ir.tensors.item[t].mesh->count; i++) {
        const ptensor *shard = &e->p->tensor.item[ptensor_at(e->p, t, i, 0)];
        if (shard->reg < 0)
            continue;
        plan_add_shards(e->b, (plan_tensor_id){shard->plan_id});
        plan_add_inits(e->b, (plan_init){.tensor = {shard->plan_id},
                                         .kind = from->init.kind,
                                         .a = from->init.a,
                                         .b = from->init.b,
                                         .key = name_key(e->c->opts.seed, from->name)});
        count++;
    }
    return count;
}

/* Parameters: how they start, and which shards make them up. Other layouts of one that is mapped stand behind all of the
 * graph's tensors. */
static void emit_parameters(emission *e)
{
    const ir_graph *ir = &e->c->ir;
    for (int t = 0; t < ir->tensors.count; t++) {
        const weir_tensor *from = ir->tensors.item[t].origin;
        const int mapped = ir->tensors.item[t].mapped;
        if (!from || from->node || (mapped && mapped != t + 1))
            continue;
        plan_range shards = {plan_builder_plan(e->b)->shards_count, emit_shards(e, t, from)};
        for (int view = mapped ? e->c->graph->tensors.count : ir->tensors.count; view < ir->tensors.count; view++)
            if (ir->tensors.item[view].mapped == mapped && ir->tensors.item[view].node < 0)
                shards.count += emit_shards(e, view, from);
        if (shards.count)
            plan_add_params(e->b, (plan_param){.name = plan_add_text(e->b, from->name),
                                               .kind = from->delay ? PLAN_KEEP_STATE : PLAN_KEEP_PARAMETER,
                                               .frozen = !from->update,
                                               .shards = shards});
    }
}

/* State s of what pop `first` is on the first device of: its shards on all of them. The pops of a node lie together. */
static void emit_kept_state(emission *e, int first, int s)
{
    const pop *op = &e->p->op.item[first];
    plan_range shards = {plan_builder_plan(e->b)->shards_count, 0};
    for (int i = first; i < e->p->op.count && e->p->op.item[i].node == op->node; i++) {
        if (e->p->op.item[i].dead)
            continue;
        plan_add_shards(e->b, (plan_tensor_id){e->first_state[i] + (uint32_t)s});
        shards.count++;
    }
    const ir_node *node = &e->c->ir.node[op->node];
    bool optimizer = node->updates >= 0;
    plan_add_params(e->b, (plan_param){.name = plan_add_text(e->b, state_name(e, node, s)),
                                       .kind = optimizer ? PLAN_KEEP_OPTIMIZER : PLAN_KEEP_STATE,
                                       .shards = shards});
}

/* A state that waits on a disk. */
static void emit_filed_state(emission *e, int t)
{
    const ir_tensor *from = &e->c->ir.tensors.item[t];
    plan_range shards = {plan_builder_plan(e->b)->shards_count, 0};
    for (int at = 0; at < from->mesh->count; at++) {
        plan_tensor_id id = {e->p->tensor.item[ptensor_at(e->p, t, at, 0)].plan_id};
        plan_add_shards(e->b, id);
        plan_add_inits(e->b, (plan_init){.tensor = id, .kind = WEIR_INIT_ZERO});
        shards.count++;
    }
    plan_add_params(e->b, (plan_param){.name = plan_add_text(e->b, state_name(e, from->state_of, from->state)),
                                       .kind = PLAN_KEEP_OPTIMIZER,
                                       .shards = shards});
}

static void emit_kept_states(emission *e)
{
    for (int t = 0; t < e->c->ir.tensors.count; t++)
        if (e->c->ir.tensors.item[t].state_of)
            emit_filed_state(e, t);
    for (int i = 0; i < e->p->op.count; i++) {
        const pop *op = &e->p->op.item[i];
        bool first = !i || e->p->op.item[i - 1].node != op->node;
        for (int s = 0; s < op->states.count && first && !op->dead; s++)
            emit_kept_state(e, i, s);
    }
}

static void emit_limit(emission *e)
{
    plan_limit to = {.bytes = e->c->memory_max, .whole = e->c->whole, .longer = e->c->longer};
    for (int i = 0; i < e->p->op.count; i++) {
        const pop *op = &e->p->op.item[i];
        const ptensor *out = op->dead || !op->out_count ? NULL : &e->p->tensor.item[op->out[0]];
        to.again += !op->dead && e->c->ir.node[op->node].again;
        if (out && e->p->device.item[out->device].kind == WEIR_DISK)
            to.moved += out->bytes * (op->micro ? (uint64_t)e->c->micro : 1);
    }
    plan_add_limits(e->b, to);
}

static bool emission_begin(emission *e)
{
    int devices = e->p->device.count;
    e->b = plan_builder_new();
    for (int kind = 0; kind < PLAN_QUEUE_KINDS; kind++) {
        int64_t count = (int64_t)devices * (kind == PLAN_IO_QUEUE ? e->p->io.count + 1 : 1);
        e->queue[kind] = POOL_NEW(&e->c->pool, uint32_t, count);
        e->runs[kind] = POOL_NEW(&e->c->pool, bool, count);
    }
    for (int g = 0; g < e->p->group.count && !e->c->pool.failed; g++) {
        const group *from = &e->p->group.item[g];
        e->runs[from->queue][queue_at(e, from->queue, from->device, from->io)] = true;
    }
    e->of_node = POOL_NEW(&e->c->pool, node_texts, e->c->ir.node_count + 1);
    e->of_tensor = POOL_NEW(&e->c->pool, plan_str, e->c->ir.tensors.count + 1);
    e->first_state = POOL_NEW(&e->c->pool, uint32_t, e->p->op.count + 1);
    e->port = POOL_NEW(&e->c->pool, uint32_t, e->p->reg.count + 1);
    e->bindings = calloc((size_t)e->p->op.count + 1, sizeof *e->bindings);
    return e->b && e->bindings && !e->c->pool.failed;
}

static weir_plan *emission_failed(emission *e)
{
    plan_builder_free(e->b);
    free(e->bindings);
    error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", e->c->graph->name);
    return NULL;
}

weir_plan *emit_plan(compile *c)
{
    emission e = {.c = c, .p = &c->phys};
    if (!emission_begin(&e))
        return emission_failed(&e);
    weir_plan *plan = plan_builder_plan(e.b);
    plan->micro_batches = (uint32_t)c->micro;
    plan->seed = c->opts.seed;
    plan->graph = graph_hash(c->graph);
    plan->rates = c->rates_hash;
    plan->name = plan_add_text(e.b, c->graph->name);
    for (int p = 0; p < c->graph->programs.count; p++)
        plan_add_programs(e.b, (plan_program){plan_add_text(e.b, c->graph->programs.item[p].name)});
    for (int d = 0; d < c->phys.device.count; d++)
        emit_device(&e, d);
    emit_regs(&e);
    for (int g = 0; g < c->phys.group.count; g++)
        emit_actor(&e, g);
    emit_parameters(&e);
    emit_kept_states(&e);
    if (c->whole)
        emit_limit(&e);
    return c->pool.failed || !emit_collectives(c, e.b) ? emission_failed(&e) : plan_builder_take(e.b, e.bindings);
}

/* ---- what changes while offsets are looked for ---- */

bool emit_slots(const compile *c, weir_plan *plan)
{
    for (int r = 0; r < c->phys.reg.count; r++)
        plan->regsts[c->phys.reg.item[r].plan_id].slots = (uint32_t)c->phys.reg.item[r].slots;
    return plan_order_turns(plan);
}

static void enter_device_offsets(const compile *c, weir_plan *plan)
{
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        const pdevice *from = &c->phys.device.item[s];
        plan->spaces[s].bytes = from->bytes;
        plan->spaces[s].snapshot_offset = from->snapshot_offset;
    }
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan->queues[q].kind == PLAN_COMPUTE) {
            const pdevice *from = &c->phys.device.item[plan->queues[q].space.i];
            plan->queues[q].workspace_offset = from->workspace_offset;
            plan->queues[q].workspace_bytes = from->workspace;
        }
}

static void enter_actor_offsets(const compile *c, weir_plan *plan, int g)
{
    const phys *p = &c->phys;
    const group *from = &p->group.item[g];
    uint32_t state = plan->actors[g].states.first;
    for (int i = 0; i < from->pops.count; i++) {
        const pop *op = &p->op.item[from->pops.item[i]];
        for (int s = 0; s < op->states.count; s++)
            plan->tensors[state++].offset = p->state.item[op->states.item[s]].offset;
        for (int o = 0; o < op->out_count; o++)
            if (p->tensor.item[op->out[o]].reg < 0)
                plan->tensors[p->tensor.item[op->out[o]].plan_id].offset = p->tensor.item[op->out[o]].offset;
        if (from->queue != PLAN_OUTSIDE)
            plan->kernels[plan->actors[g].kernels.first + (uint32_t)i].workspace_offset = op->scratch_offset;
    }
}

void emit_offsets(const compile *c, weir_plan *plan)
{
    enter_device_offsets(c, plan);
    for (int r = 0; r < c->phys.reg.count; r++)
        plan->regsts[c->phys.reg.item[r].plan_id].offset = c->phys.reg.item[r].offset;
    for (int g = 0; g < c->phys.group.count; g++)
        enter_actor_offsets(c, plan, g);
    for (uint32_t l = 0; l < plan->limits_count; l++)
        plan->limits[l].slots = (uint32_t)backend_slots_taken(c);
    plan->hash = plan_hash(plan);
}
