/* tests/support/sdf.c: see the header. Things are kept as they came, in three lists; the plan is made in one pass
 * over the actors, since a plan keeps what belongs to an actor together. */
#include "tests/support/sdf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/plan/form/build.h"
#include "graph/plan/form/text.h"
#include "graph/plan/prove/turns.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#define NAME_BYTES 48
#define KEY 7919 /* of random initial values: register i has the stream KEY + i */

struct actor_item {
    char name[NAME_BYTES];
    uint32_t queue;
    sdf_actor_opts opts;
};
struct regst_item {
    uint32_t producer, id;
    uint32_t tensor; /* plan id, or PLAN_NONE */
    sdf_regst_opts opts;
};
struct port_item {
    uint32_t reader, regst, id;
    sdf_port_opts opts;
};

#define LIST(type)   \
    struct {         \
        type *item;  \
        uint32_t count; \
    }
#define ADD(list, value)                                                                              \
    ((list)->count & ((list)->count - 1)                                                              \
         ? 0 /* room is a power of two */                                                             \
         : ((list)->item = realloc((list)->item, (2 * (size_t)(list)->count + 1) * sizeof(*(list)->item)), 0), \
     (list)->item ? (void)((list)->item[(list)->count++] = (value)) : abort())

struct sdf {
    plan_builder *builder;
    LIST(struct actor_item) actors;
    LIST(struct regst_item) regsts;
    LIST(struct port_item) ports;
};

sdf *sdf_new(const char *name, uint32_t micro_batches)
{
    sdf *s = calloc(1, sizeof(*s));
    s->builder = plan_builder_new();
    plan_builder_plan(s->builder)->name = plan_add_text(s->builder, name);
    plan_builder_plan(s->builder)->micro_batches = micro_batches;
    plan_add_programs(s->builder, (plan_program){plan_add_text(s->builder, "main")});
    return s;
}

void sdf_free(sdf *s)
{
    plan_builder_free(s->builder);
    free(s->actors.item);
    free(s->regsts.item);
    free(s->ports.item);
    free(s);
}

static weir_plan *plan_of(sdf *s)
{
    return plan_builder_plan(s->builder);
}

uint32_t sdf_device_of(sdf *s, weir_device_kind kind, uint32_t index, plan_queue_kind queue)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "%s:%u", device_kind_name(kind), index);
    plan_str text = plan_add_text(s->builder, name);
    uint32_t space = plan_add_spaces(s->builder, (plan_space){.kind = kind, .index = index, .name = text});
    return plan_add_queues(s->builder, (plan_queue){.space = {space}, .kind = queue, .name = text});
}

uint32_t sdf_device(sdf *s)
{
    return sdf_device_of(s, WEIR_CPU, plan_of(s)->spaces_count, PLAN_COMPUTE);
}

uint32_t sdf_queue(sdf *s, uint32_t queue, plan_queue_kind kind)
{
    char name[NAME_BYTES];
    plan_space_id space = plan_of(s)->queues[queue].space;
    const char *device = plan_text(plan_of(s), plan_of(s)->spaces[space.i].name);
    snprintf(name, sizeof(name), "%s %s", queue_kind_text(kind), device);
    plan_str text = plan_add_text(s->builder, name);
    return plan_add_queues(s->builder, (plan_queue){.space = space, .kind = kind, .name = text});
}

uint32_t sdf_outside(sdf *s, uint32_t queue)
{
    plan_str text = plan_add_text(s->builder, "outside");
    return plan_add_queues(s->builder,
                           (plan_queue){.space = plan_of(s)->queues[queue].space, .kind = PLAN_OUTSIDE, .name = text});
}

uint32_t sdf_program(sdf *s, const char *name)
{
    return plan_add_programs(s->builder, (plan_program){plan_add_text(s->builder, name)});
}

uint32_t sdf_actor_at(sdf *s, uint32_t queue, const char *name, sdf_actor_opts opts)
{
    struct actor_item item = {.queue = queue, .opts = opts};
    snprintf(item.name, sizeof(item.name), "%s", name);
    item.opts.fires += !item.opts.fires;
    if (!item.opts.priority)
        item.opts.priority = s->actors.count;
    ADD(&s->actors, item);
    return s->actors.count - 1;
}

uint32_t sdf_regst_at(sdf *s, uint32_t producer, sdf_regst_opts opts)
{
    opts.slots += !opts.slots;
    opts.fill += !opts.fill;
    opts.global += !opts.global * opts.items;
    ADD(&s->regsts, ((struct regst_item){.producer = producer, .tensor = PLAN_NONE, .opts = opts}));
    return s->regsts.count - 1;
}

void sdf_port_at(sdf *s, uint32_t reader, uint32_t regst, sdf_port_opts opts)
{
    opts.hold += !opts.hold;
    ADD(&s->ports, ((struct port_item){.reader = reader, .regst = regst, .opts = opts}));
}

uint32_t *sdf_slots(sdf *s, uint32_t regst)
{
    return &s->regsts.item[regst].opts.slots;
}

/* ---- collectives ---- */

static bool same_devices(const sdf *s, const plan_range *a, const plan_range *b)
{
    const weir_plan *plan = plan_builder_plan(s->builder);
    bool same = a->count == b->count;
    for (uint32_t m = 0; same && m < a->count; m++) {
        uint32_t one = s->actors.item[plan->members[a->first + m].i].queue;
        uint32_t other = s->actors.item[plan->members[b->first + m].i].queue;
        same = plan->queues[one].space.i == plan->queues[other].space.i;
    }
    return same;
}

/* The bytes of moves are known when the plan is made. */
uint32_t sdf_collective(sdf *s, plan_collective_kind kind, const uint32_t *members, uint32_t members_count,
                        const sdf_move *moves, uint32_t moves_count)
{
    const weir_plan *plan = plan_of(s);
    plan_collective made = {.kind = kind, .group = plan->collectives_count, .members = {plan->members_count, members_count},
                            .moves = {plan->moves_count, moves_count}};
    for (uint32_t m = 0; m < members_count; m++)
        plan_add_members(s->builder, (plan_actor_id){members[m]});
    for (uint32_t i = 0; i < moves_count; i++)
        plan_add_moves(s->builder, (plan_move){moves[i].from, moves[i].to, moves[i].give, moves[i].take, 0});
    for (uint32_t c = plan->collectives_count; c-- > 0;)
        if (same_devices(s, &plan->collectives[c].members, &made.members))
            made.group = c;
    return plan_add_collectives(s->builder, made);
}

void sdf_turn(sdf *s, uint32_t collective)
{
    plan_add_turns(s->builder, (plan_collective_id){collective});
}

static void weigh_moves(sdf *s)
{
    weir_plan *plan = plan_of(s);
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        plan_range moves = plan->collectives[c].moves;
        for (plan_move *move = plan->moves + moves.first; move < plan->moves + moves.first + moves.count; move++) {
            uint32_t giver = plan->members[plan->collectives[c].members.first + move->from].i;
            const plan_kernel *kernel = &plan->kernels[plan->actors[giver].kernels.first];
            if (move->give < kernel->in.count)
                move->bytes = plan_tensor_bytes(&plan->tensors[plan->operands[kernel->in.first + move->give].tensor.i]);
        }
    }
}

/* ---- the plan ---- */

static uint64_t take_bytes(sdf *s, uint32_t space, uint64_t bytes)
{
    uint64_t offset = plan_of(s)->spaces[space].bytes;
    plan_of(s)->spaces[space].bytes += (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return offset;
}

static plan_tensor vector(plan_str name, plan_home home, uint32_t owner, uint32_t items)
{
    return (plan_tensor){.name = name, .home = home, .owner = owner, .dtype = WEIR_F32, .rank = 1, .shape = {items},
                         .global = {items}};
}

static void add_param(sdf *s, const struct regst_item *regst)
{
    plan_str name = plan_add_text(s->builder, regst->opts.param);
    uint32_t shard = plan_add_shards(s->builder, (plan_tensor_id){regst->tensor});
    for (uint32_t i = 0; i < plan_of(s)->params_count; i++)
        if (plan_of(s)->params[i].name.i == name.i) {
            plan_of(s)->params[i].shards.count++; /* shards of a parameter are added one after the other */
            return;
        }
    plan_add_params(s->builder, (plan_param){.name = name, .shards = {shard, 1}});
}

static void add_tensor(sdf *s, struct regst_item *regst)
{
    plan_tensor tensor = vector(plan_add_text(s->builder, "t"), PLAN_IN_REGST, regst->id, regst->opts.items);
    tensor.start[0] = regst->opts.start;
    tensor.global[0] = regst->opts.global;
    regst->tensor = plan_add_tensors(s->builder, tensor);
    if (regst->opts.init != WEIR_INIT_DEFAULT)
        plan_add_inits(s->builder, (plan_init){.tensor = {regst->tensor}, .kind = regst->opts.init, .a = regst->opts.a,
                                               .b = regst->opts.b, .key = KEY + regst->id});
    if (regst->opts.param)
        add_param(s, regst);
}

static void add_regst(sdf *s, struct regst_item *regst)
{
    bool constant = regst->producer == SDF_NOBODY;
    uint32_t queue = constant ? regst->opts.queue : s->actors.item[regst->producer].queue;
    if (regst->opts.lies)
        queue = regst->opts.lies - 1;
    plan_space_id space = plan_of(s)->queues[queue].space;
    uint64_t bytes = (regst->opts.items * sizeof(float) + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    regst->id = plan_of(s)->regsts_count;
    plan_regst to = {.producer = {constant ? PLAN_NONE : regst->producer}, .space = space, .kind = PLAN_ACTIVATION,
                     .slots = regst->opts.slots, .fill = regst->opts.fill, .initial = regst->opts.initial,
                     .offset = take_bytes(s, space.i, bytes * regst->opts.slots), .slot_bytes = bytes,
                     .tensors = {plan_of(s)->tensors_count, regst->opts.items ? 1 : 0}};
    if (regst->opts.items)
        add_tensor(s, regst);
    plan_add_regsts(s->builder, to);
}

static uint32_t add_host(sdf *s, uint32_t a)
{
    const struct actor_item *actor = &s->actors.item[a];
    if (!actor->opts.host_kind)
        return PLAN_NONE;
    return plan_add_hosts(s->builder, (plan_host){.name = plan_add_text(s->builder, actor->name),
                                                  .kind = actor->opts.host_kind - 1,
                                                  .actor = {a},
                                                  .file = plan_add_text(s->builder, "model.c"),
                                                  .line = 100 + a});
}

static void add_states(sdf *s, uint32_t a, plan_actor *to)
{
    to->states = (plan_range){plan_of(s)->tensors_count, s->actors.item[a].opts.states};
    for (uint32_t i = 0; i < to->states.count; i++) {
        plan_tensor tensor = vector(plan_add_text(s->builder, "state"), PLAN_IN_STATE, a, 1);
        tensor.rank = 0;
        tensor.offset = take_bytes(s, plan_of(s)->queues[to->queue.i].space.i, sizeof(float));
        plan_add_tensors(s->builder, tensor);
    }
}

static void add_operands(sdf *s, uint32_t a, plan_kernel *kernel, const plan_range *states)
{
    kernel->in.first = plan_of(s)->operands_count;
    for (uint32_t p = 0; p < s->ports.count; p++) {
        const struct port_item *port = &s->ports.item[p];
        uint32_t tensor = s->regsts.item[port->regst].tensor;
        if (port->reader == a && tensor != PLAN_NONE)
            plan_add_operands(s->builder, (plan_operand){{tensor}, {port->id}});
    }
    kernel->in.count = plan_of(s)->operands_count - kernel->in.first;
    kernel->out.first = plan_of(s)->operands_count;
    for (uint32_t r = 0; r < s->regsts.count; r++)
        if (s->regsts.item[r].producer == a && s->regsts.item[r].tensor != PLAN_NONE)
            plan_add_operands(s->builder, (plan_operand){{s->regsts.item[r].tensor}, {PLAN_NONE}});
    kernel->out.count = plan_of(s)->operands_count - kernel->out.first;
    kernel->state = (plan_range){plan_of(s)->operands_count, states->count};
    for (uint32_t i = 0; i < states->count; i++)
        plan_add_operands(s->builder, (plan_operand){{states->first + i}, {PLAN_NONE}});
}

/* Zeros, but for source and call, whose attributes are the type that they make. */
static plan_range add_words(sdf *s, const weir_op *op, const plan_range *out)
{
    plan_range range = {plan_of(s)->words_count, op ? (uint32_t)(op->attrs_bytes / 8) : 0};
    typed_attrs typed = {.dtype = WEIR_F32, .rank = 1};
    bool makes = (op == &op_source || op == &op_call) && out->count;
    if (makes)
        typed.dim[0] = plan_of(s)->tensors[plan_of(s)->operands[out->first].tensor.i].global[0];
    for (uint32_t i = 0; i < range.count; i++)
        plan_add_words(s->builder, makes && i < sizeof typed / 8 ? ((const plan_word *)&typed)[i] : (plan_word){.i = 0});
    return range;
}

static void add_kernel(sdf *s, uint32_t a, plan_actor *to)
{
    const struct actor_item *actor = &s->actors.item[a];
    uint32_t host = add_host(s, a);
    to->kernels = (plan_range){plan_of(s)->kernels_count, actor->opts.kernel ? 1 : 0};
    if (!actor->opts.kernel)
        return;
    plan_kernel kernel = {.actor = {a}, .op = plan_add_text(s->builder, actor->opts.kernel),
                          .name = plan_add_text(s->builder, actor->name), .file = plan_add_text(s->builder, "model.c"),
                          .line = 100 + a, .host = host, .accumulate = actor->opts.accumulate, .key = KEY + a,
                          .workspace_bytes = actor->opts.workspace};
    add_operands(s, a, &kernel, &to->states);
    kernel.attrs = add_words(s, weir_op_find(actor->opts.kernel), &kernel.out);
    plan_queue *queue = &plan_of(s)->queues[to->queue.i];
    if (actor->opts.workspace > queue->workspace_bytes)
        queue->workspace_bytes = actor->opts.workspace;
    plan_add_kernels(s->builder, kernel);
}

static void add_ports(sdf *s, uint32_t a, plan_actor *to)
{
    to->ports.first = plan_of(s)->ports_count;
    for (uint32_t p = 0; p < s->ports.count; p++) {
        struct port_item *port = &s->ports.item[p];
        if (port->reader == a)
            port->id = plan_add_ports(s->builder,
                                      (plan_port){{a}, {s->regsts.item[port->regst].id}, port->opts.hold});
    }
    to->ports.count = plan_of(s)->ports_count - to->ports.first;
}

static void add_regsts(sdf *s, uint32_t producer)
{
    for (uint32_t r = 0; r < s->regsts.count; r++)
        if (s->regsts.item[r].producer == producer)
            add_regst(s, &s->regsts.item[r]);
}

static void add_actors(sdf *s)
{
    for (uint32_t a = 0; a < s->actors.count; a++) {
        const struct actor_item *item = &s->actors.item[a];
        plan_actor actor = {.queue = {item->queue}, .name = plan_add_text(s->builder, item->name),
                            .program = {item->opts.program}, .fires = item->opts.fires, .priority = item->opts.priority};
        actor.regsts.first = plan_of(s)->regsts_count;
        add_regsts(s, a);
        actor.regsts.count = plan_of(s)->regsts_count - actor.regsts.first;
        add_states(s, a, &actor);
        plan_add_actors(s->builder, actor);
    }
    add_regsts(s, SDF_NOBODY);
    for (uint32_t a = 0; a < s->actors.count; a++) {
        plan_actor *actor = &plan_of(s)->actors[a];
        add_ports(s, a, actor);
        add_kernel(s, a, actor);
    }
}

static void place_workspaces(sdf *s)
{
    for (uint32_t q = 0; q < plan_of(s)->queues_count; q++) {
        plan_queue *queue = &plan_of(s)->queues[q];
        queue->workspace_offset = take_bytes(s, queue->space.i, queue->workspace_bytes);
    }
}

weir_plan *sdf_plan_bound(sdf *s, callback_binding *bindings)
{
    add_actors(s);
    place_workspaces(s);
    weigh_moves(s);
    if (!plan_of(s)->turns_count) {
        plan_add_all_turns(s->builder);
        if (!plan_order_turns(plan_of(s)))
            abort();
    }
    weir_plan *plan = plan_builder_finish(s->builder, bindings);
    s->builder = NULL;
    sdf_free(s);
    if (!plan)
        abort();
    return plan;
}

weir_plan *sdf_plan(sdf *s)
{
    return sdf_plan_bound(s, NULL);
}
