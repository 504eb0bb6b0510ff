/* graph/plan/prove/validate.h: the seven parts of plan_validate():
 *
 *     validate.c          is it a plan?      indexes, owners, rates, sizes, ends
 *     validate_kernel.c   who calls what?    kernels, host functions, parameters, and what is theirs
 *     validate_op.c       can it be called?  each op's own rule for its shards, states, scratch, overlaps
 *     validate_space.c    who reaches what?  queues and the spaces of what their kernels are called with
 *     validate_collective.c  who meets whom? collectives, their members, moves and turns
 *     validate_map.c      whose bytes?       the arenas' map, and proofs for what shares bytes
 *     validate_graph.c    which graph?       the table of the graph, which nothing that runs reads
 *
 * A rule returns true, or refuses: sets the error, which names the place ("actors[3].queue: 7 of 2"), and returns
 * false. The first fault ends the check.
 *
 * Together they promise: whoever made the plan, running it reads and writes nothing but its arenas, its own
 * attributes and strings, of the arenas each kernel only what the map gives it; and two threads never touch the same
 * bytes at once. They do not promise that it computes anything sensible, or ends soon. The promise is as good as the
 * ops' rules: that is why tests/graph/plan/test_plan_run.c, test_op_calls.c and tests/fuzz/fuzz_run.c run whatever
 * passes.
 */
#ifndef GRAPH_PLAN_PROVE_VALIDATE_H
#define GRAPH_PLAN_PROVE_VALIDATE_H

#include "graph/base/error.h"
#include "graph/plan/form/plan.h"

#include <inttypes.h>
#include <weir/op.h>

#define REFUSE_PLAN(...) (error_set(WEIR_E_PLAN, __VA_ARGS__), false)

/* "kernels[3] (h0/q): ..."; `at` has the members plan, index and kernel. */
#define REFUSE_KERNEL(at, format, ...)                                                                       \
    REFUSE_PLAN("kernels[%" PRIu32 "] (%.60s): " format, (at)->index, plan_text((at)->plan, (at)->kernel->name) \
                __VA_OPT__(, ) __VA_ARGS__)

static inline bool range_has(const plan_range *range, uint32_t index)
{
    return index >= range->first && index - range->first < range->count;
}

/* first + bytes <= limit, without overflow */
static inline bool fits(uint64_t first, uint64_t bytes, uint64_t limit)
{
    return first <= limit && bytes <= limit - first;
}

/* For finding equal names: sorted by kind, name and rank. */
typedef struct validate_name {
    const char *name;
    uint32_t kind, index;
    uint32_t rank; /* of a pull, which every rank may have; 0 of all else */
} validate_name;

/* Whether no two of these are alike in all but their index; sorts them. `array` is where they are. */
bool validate_names_differ(validate_name *names, uint32_t count, const char *array);

/* All rely on the structure having been checked. `scratch` is memory for one rule at a time: for the map, or a
 * validate_name per parameter or host, whichever is more. */
bool validate_kernels(const weir_plan *plan, void *scratch);
bool validate_hosts(const weir_plan *plan, void *scratch);
bool validate_starts(const weir_plan *plan, void *scratch); /* params and inits */
bool validate_programs(const weir_plan *plan, void *scratch); /* their names */

/* Whether the operands of kernels lie where their queues reach. Relies on operands having been checked. */
bool validate_spaces(const weir_plan *plan, void *scratch);

/* Whether collectives have members and an order that can be kept. Relies on kernels having been checked. */
bool validate_collectives(const weir_plan *plan, void *scratch);
size_t validate_collectives_bytes(const weir_plan *plan); /* of its scratch, besides a byte per element of any array */

/* The table of the graph: whether there may be one, and of which version; and, when its members and ranges have been checked,
 * whether it is a graph. */
bool validate_graph_head(const weir_plan *plan);
bool validate_graph(const weir_plan *plan, void *scratch);
size_t validate_graph_bytes(const weir_plan *plan); /* of its scratch */

/* Whether the value that an integer tensor starts with, or may start with, is one that it can hold. */
bool validate_start_value(uint32_t kind, double value, uint32_t dtype);

/* plan_validate() for who has asked already what may share bytes: of this plan, or of one that differs in offsets. If
 * it differs in anything that the proof rests on, `known` is of no use and left alone, as is NULL. */
struct lives;
weir_status plan_validate_knowing(const weir_plan *plan, struct lives *known);

/* No part of an arena has bytes of another, unless the two are never needed at the same time. */
bool validate_map(const weir_plan *plan, struct lives *known, void *scratch);
size_t validate_map_bytes(const weir_plan *plan); /* of its scratch */

/* Whether the op's rule takes operands of these types: op->fits, or what infer gives of the inputs. Refuses as infer does. */
bool op_fits(const weir_op_args *local, char *error, size_t error_bytes);

/* Whether the kernel's op can be called so. Relies on its place, counts and operands having been checked. */
bool validate_call(const weir_plan *plan, uint32_t kernel, const weir_op *op);

#endif
