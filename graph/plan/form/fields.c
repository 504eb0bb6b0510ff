/* graph/plan/form/fields.c: see fields.h. The lists below follow plan.h member by member; a _Static_assert beside each
 * list holds its width against the structure's, so that a member which was added there and forgotten here does not
 * compile.
 */
#include "graph/plan/form/fields.h"

#include <string.h>

#define FIELD(owner, member, ...) {.name = #member, .offset = offsetof(owner, member), .values = 1, __VA_ARGS__}
#define U32(owner, member) FIELD(owner, member, .type = FIELD_U32)
#define ENUM(owner, member, count) FIELD(owner, member, .type = FIELD_U32, .limit = count)
#define U64(owner, member) FIELD(owner, member, .type = FIELD_U64)
#define REAL(owner, member) FIELD(owner, member, .type = FIELD_REAL)
#define TEXT(owner, member) FIELD(owner, member, .type = FIELD_TEXT, .array = PLAN_ARRAY_strings)
#define GRAPH_TEXT(owner, member) FIELD(owner, member, .type = FIELD_TEXT, .array = PLAN_ARRAY_graph_strings)
#define DIMS(owner, member) \
    {.name = #member, .offset = offsetof(owner, member), .type = FIELD_I64, .values = WEIR_DIMS_MAX}
#define ID(owner, member, target) FIELD(owner, member, .type = FIELD_ID, .array = PLAN_ARRAY_##target)
#define ID_OR_NONE(owner, member, target) \
    FIELD(owner, member, .type = FIELD_ID, .array = PLAN_ARRAY_##target, .none = true)
#define RANGE(owner, member, target) \
    {.name = #member, .offset = offsetof(owner, member), .type = FIELD_RANGE, .values = 2, .array = PLAN_ARRAY_##target}

static const plan_field space_fields[] = {
    ENUM(plan_space, kind, WEIR_DEVICE_KINDS),
    U32(plan_space, index),
    U32(plan_space, rank),
    TEXT(plan_space, name),
    TEXT(plan_space, path),
    U64(plan_space, bytes),
    U64(plan_space, snapshot_offset),
    U64(plan_space, snapshot_bytes),
};
_Static_assert(sizeof(plan_space) == 5 * 4 + 4 + 3 * 8, "a member of plan_space is not in space_fields");

static const plan_field queue_fields[] = {
    ID(plan_queue, space, spaces),
    ENUM(plan_queue, kind, PLAN_QUEUE_KINDS),
    TEXT(plan_queue, name),
    U64(plan_queue, workspace_offset),
    U64(plan_queue, workspace_bytes),
};
_Static_assert(sizeof(plan_queue) == 3 * 4 + 4 + 2 * 8, "a member of plan_queue is not in queue_fields");

static const plan_field program_fields[] = {
    TEXT(plan_program, name),
};
_Static_assert(sizeof(plan_program) == 4, "a member of plan_program is not in program_fields");

static const plan_field actor_fields[] = {
    ID(plan_actor, queue, queues),
    TEXT(plan_actor, name),
    ID(plan_actor, program, programs),
    ENUM(plan_actor, phase, PLAN_PHASES),
    U32(plan_actor, fires),
    U32(plan_actor, priority),
    RANGE(plan_actor, ports, ports),
    RANGE(plan_actor, regsts, regsts),
    RANGE(plan_actor, kernels, kernels),
    RANGE(plan_actor, states, tensors),
    RANGE(plan_actor, temps, tensors),
};
_Static_assert(sizeof(plan_actor) == 6 * 4 + 5 * 8, "a member of plan_actor is not in actor_fields");

static const plan_field port_fields[] = {
    ID(plan_port, actor, actors),
    ID(plan_port, regst, regsts),
    U32(plan_port, hold),
};
_Static_assert(sizeof(plan_port) == 3 * 4, "a member of plan_port is not in port_fields");

static const plan_field regst_fields[] = {
    ID_OR_NONE(plan_regst, producer, actors),
    ID(plan_regst, space, spaces),
    ENUM(plan_regst, kind, PLAN_MEMS),
    U32(plan_regst, slots),
    U32(plan_regst, fill),
    U32(plan_regst, initial),
    ENUM(plan_regst, fixed, 2),
    U64(plan_regst, offset),
    U64(plan_regst, slot_bytes),
    RANGE(plan_regst, tensors, tensors),
};
_Static_assert(sizeof(plan_regst) == 7 * 4 + 4 + 2 * 8 + 8, "a member of plan_regst is not in regst_fields");

static const plan_field tensor_fields[] = {
    TEXT(plan_tensor, name),
    ENUM(plan_tensor, home, PLAN_IN_TEMP + 1),
    U32(plan_tensor, owner),
    ENUM(plan_tensor, dtype, WEIR_DTYPES),
    ENUM(plan_tensor, rank, WEIR_DIMS_MAX + 1),
    U64(plan_tensor, offset),
    DIMS(plan_tensor, shape),
    DIMS(plan_tensor, start),
    DIMS(plan_tensor, global),
    TEXT(plan_tensor, file),
    U32(plan_tensor, line),
};
_Static_assert(sizeof(plan_tensor) == 7 * 4 + 4 + 8 + 3 * WEIR_DIMS_MAX * 8,
               "a member of plan_tensor is not in tensor_fields");

static const plan_field kernel_fields[] = {
    ID(plan_kernel, actor, actors),
    TEXT(plan_kernel, op),
    TEXT(plan_kernel, name),
    TEXT(plan_kernel, file),
    U32(plan_kernel, line),
    ID_OR_NONE(plan_kernel, host, hosts),
    ENUM(plan_kernel, accumulate, 2),
    U64(plan_kernel, key),
    RANGE(plan_kernel, in, operands),
    RANGE(plan_kernel, out, operands),
    RANGE(plan_kernel, state, operands),
    RANGE(plan_kernel, attrs, words),
    U64(plan_kernel, workspace_offset),
    U64(plan_kernel, workspace_bytes),
};
_Static_assert(sizeof(plan_kernel) == 7 * 4 + 4 + 8 + 4 * 8 + 2 * 8, "a member of plan_kernel is not in kernel_fields");

static const plan_field operand_fields[] = {
    ID(plan_operand, tensor, tensors),
    ID_OR_NONE(plan_operand, port, ports),
};
_Static_assert(sizeof(plan_operand) == 2 * 4, "a member of plan_operand is not in operand_fields");

static const plan_field word_fields[] = {
    {.name = "bits", .type = FIELD_WORD, .values = 1},
};
_Static_assert(sizeof(plan_word) == 8, "a plan_word is 64 bits");

static const plan_field init_fields[] = {
    ID(plan_init, tensor, tensors),
    ENUM(plan_init, kind, WEIR_INIT_KINDS),
    REAL(plan_init, a),
    REAL(plan_init, b),
    U64(plan_init, key),
};
_Static_assert(sizeof(plan_init) == 2 * 4 + 3 * 8, "a member of plan_init is not in init_fields");

static const plan_field param_fields[] = {
    TEXT(plan_param, name),
    ENUM(plan_param, kind, PLAN_KEEPS),
    ENUM(plan_param, frozen, 2),
    RANGE(plan_param, shards, shards),
};
_Static_assert(sizeof(plan_param) == 3 * 4 + 8, "a member of plan_param is not in param_fields");

static const plan_field shard_fields[] = {
    {.name = "tensor", .type = FIELD_ID, .values = 1, .array = PLAN_ARRAY_tensors},
};
_Static_assert(sizeof(plan_tensor_id) == 4, "an id is 32 bits");

static const plan_field host_fields[] = {
    TEXT(plan_host, name),
    ENUM(plan_host, kind, PLAN_HOST_KINDS),
    ID(plan_host, actor, actors),
    TEXT(plan_host, file),
    U32(plan_host, line),
};
_Static_assert(sizeof(plan_host) == 5 * 4, "a member of plan_host is not in host_fields");

static const plan_field collective_fields[] = {
    ENUM(plan_collective, kind, PLAN_COLLECTIVE_KINDS),
    U32(plan_collective, group),
    RANGE(plan_collective, members, members),
    RANGE(plan_collective, moves, moves),
};
_Static_assert(sizeof(plan_collective) == 2 * 4 + 2 * 8, "a member of plan_collective is not in collective_fields");

static const plan_field member_fields[] = {
    {.name = "actor", .type = FIELD_ID, .values = 1, .array = PLAN_ARRAY_actors},
};

static const plan_field move_fields[] = {
    U32(plan_move, from),
    U32(plan_move, to),
    U32(plan_move, give),
    U32(plan_move, take),
    U64(plan_move, bytes),
};
_Static_assert(sizeof(plan_move) == 4 * 4 + 8, "a member of plan_move is not in move_fields");

static const plan_field turn_fields[] = {
    {.name = "collective", .type = FIELD_ID, .values = 1, .array = PLAN_ARRAY_collectives},
};

static const plan_field limit_fields[] = {
    U64(plan_limit, bytes),
    U64(plan_limit, whole),
    U64(plan_limit, moved),
    U32(plan_limit, again),
    U32(plan_limit, slots),
    REAL(plan_limit, longer),
};
_Static_assert(sizeof(plan_limit) == 3 * 8 + 2 * 4 + 8, "a member of plan_limit is not in limit_fields");

static const plan_field graph_tensor_fields[] = {
    GRAPH_TEXT(plan_graph_tensor, name),
    GRAPH_TEXT(plan_graph_tensor, file),
    U32(plan_graph_tensor, line),
    ID_OR_NONE(plan_graph_tensor, node, graph_nodes),
    ENUM(plan_graph_tensor, micro, 2),
    ENUM(plan_graph_tensor, trains, 2),
    ENUM(plan_graph_tensor, dtype, WEIR_DTYPES),
    ENUM(plan_graph_tensor, rank, WEIR_DIMS_MAX + 1),
    ID_OR_NONE(plan_graph_tensor, update, graph_nodes),
    U32(plan_graph_tensor, asked),
    ENUM(plan_graph_tensor, frozen, 2),
    U32(plan_graph_tensor, delay),
    ENUM(plan_graph_tensor, init, WEIR_INIT_KINDS),
    DIMS(plan_graph_tensor, shape),
    REAL(plan_graph_tensor, a),
    REAL(plan_graph_tensor, b),
};
_Static_assert(sizeof(plan_graph_tensor) == 13 * 4 + 4 + WEIR_DIMS_MAX * 8 + 2 * 8,
               "a member of plan_graph_tensor is not in graph_tensor_fields");

static const plan_field graph_node_fields[] = {
    GRAPH_TEXT(plan_graph_node, op),
    GRAPH_TEXT(plan_graph_node, name),
    GRAPH_TEXT(plan_graph_node, file),
    U32(plan_graph_node, line),
    ID(plan_graph_node, program, programs),
    ENUM(plan_graph_node, phase, PLAN_PHASES),
    ENUM(plan_graph_node, host, PLAN_HOST_KINDS + 1),
    ENUM(plan_graph_node, micro, 2),
    ENUM(plan_graph_node, fills, 2),
    ENUM(plan_graph_node, by_hand, 2),
    ID_OR_NONE(plan_graph_node, forward, graph_nodes),
    ID_OR_NONE(plan_graph_node, updates, graph_tensors),
    RANGE(plan_graph_node, in, graph_refs),
    RANGE(plan_graph_node, out, graph_tensors),
    RANGE(plan_graph_node, attrs, graph_words),
};
_Static_assert(sizeof(plan_graph_node) == 12 * 4 + 3 * 8, "a member of plan_graph_node is not in graph_node_fields");

static const plan_field graph_ref_fields[] = {
    {.name = "tensor", .type = FIELD_ID, .values = 1, .array = PLAN_ARRAY_graph_tensors},
};

static const plan_field graph_loss_fields[] = {
    ID(plan_graph_loss, tensor, graph_tensors),
    GRAPH_TEXT(plan_graph_loss, file),
    U32(plan_graph_loss, line),
};
_Static_assert(sizeof(plan_graph_loss) == 3 * 4, "a member of plan_graph_loss is not in graph_loss_fields");

#define TABLE(member, list)                                          \
    [PLAN_ARRAY_##member] = {.name = #member,                        \
                             .item_bytes = sizeof(*((weir_plan *)0)->member), \
                             .items_offset = offsetof(weir_plan, member), \
                             .count_offset = offsetof(weir_plan, member##_count), \
                             .fields = list,                         \
                             .field_count = sizeof list / sizeof *list}

const plan_table plan_tables[PLAN_ARRAYS] = {
    TABLE(spaces, space_fields),
    TABLE(queues, queue_fields),
    TABLE(programs, program_fields),
    TABLE(actors, actor_fields),
    TABLE(ports, port_fields),
    TABLE(regsts, regst_fields),
    TABLE(tensors, tensor_fields),
    TABLE(kernels, kernel_fields),
    TABLE(operands, operand_fields),
    TABLE(words, word_fields),
    TABLE(inits, init_fields),
    TABLE(params, param_fields),
    TABLE(shards, shard_fields),
    TABLE(hosts, host_fields),
    TABLE(collectives, collective_fields),
    TABLE(members, member_fields),
    TABLE(moves, move_fields),
    TABLE(turns, turn_fields),
    TABLE(limits, limit_fields),
    [PLAN_ARRAY_strings] = {.name = "strings",
                            .item_bytes = 1,
                            .items_offset = offsetof(weir_plan, strings),
                            .count_offset = offsetof(weir_plan, strings_count)},
    TABLE(graph_tensors, graph_tensor_fields),
    TABLE(graph_nodes, graph_node_fields),
    TABLE(graph_refs, graph_ref_fields),
    TABLE(graph_words, word_fields),
    TABLE(graph_losses, graph_loss_fields),
    [PLAN_ARRAY_graph_strings] = {.name = "graph_strings",
                                  .item_bytes = 1,
                                  .items_offset = offsetof(weir_plan, graph_strings),
                                  .count_offset = offsetof(weir_plan, graph_strings_count)},
};

/* memcpy rather than a cast: the pointers have different types. */
void *plan_table_items(const weir_plan *plan, const plan_table *table)
{
    void *items;
    memcpy(&items, (const char *)plan + table->items_offset, sizeof items);
    return items;
}

uint32_t plan_table_count(const weir_plan *plan, const plan_table *table)
{
    return *(const uint32_t *)((const char *)plan + table->count_offset);
}

void plan_table_set(weir_plan *plan, const plan_table *table, void *items, uint32_t count)
{
    memcpy((char *)plan + table->items_offset, &items, sizeof items);
    *(uint32_t *)((char *)plan + table->count_offset) = count;
}

uint32_t plan_table_values(const plan_table *table)
{
    uint32_t values = 0;
    for (uint32_t f = 0; f < table->field_count; f++)
        values += table->fields[f].values;
    return values;
}

void plan_field_set(const plan_field *field, void *item, uint32_t index, uint64_t value)
{
    uint32_t narrow = (uint32_t)value;
    char *at = (char *)item + field->offset;
    if (plan_field_narrow(field))
        memcpy(at + index * sizeof narrow, &narrow, sizeof narrow);
    else
        memcpy(at + index * sizeof value, &value, sizeof value);
}
