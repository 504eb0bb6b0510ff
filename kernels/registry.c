/* kernels/registry.c: ops by name. Built-in ops are a constant table; ops that a program registers are kept in a list
 * that only grows, so that lookups need no lock: a node is published with release and found with acquire. The list is
 * process-wide because plans refer to ops by name alone, as a file must.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "kernels/cuda/list.h"
#include "kernels/ops.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Their kernels are a plugin's (regst/plugin.h). */
static const weir_op *const on_cuda[] = {
#define X(name) &op_##name,
    CUDA_OPS(X)
#undef X
};

typedef struct registered {
    const weir_op *op; /* borrowed */
    struct registered *next;
} registered;

static _Atomic(registered *) registered_head;

static const weir_op *registered_find(registered *from, const char *name)
{
    for (; from; from = from->next)
        if (!strcmp(from->op->name, name))
            return from->op;
    return NULL;
}

const weir_op *weir_op_find(const char *name)
{
    for (int i = 0; i < OPS_COUNT; i++)
        if (!strcmp(level_ops[i]->name, name))
            return level_ops[i];
    return registered_find(atomic_load_explicit(&registered_head, memory_order_acquire), name);
}

static bool op_well_formed(const weir_op *op)
{
    return op && op->name && *op->name && op->infer && op->in_min >= 0 && op->in_max >= op->in_min &&
           op->in_max <= WEIR_ARGS_MAX && op->out_count >= 0 && op->out_count <= 8 && op->attrs_bytes % 8 == 0 &&
           op->inplace <= op->in_max;
}

weir_status weir_op_register(const weir_op *op)
{
    if (!op_well_formed(op))
        return error_set(WEIR_E_ARGUMENT, "op %s: a rule that every op needs is missing",
                         op && op->name ? op->name : "?");
    registered *node = malloc(sizeof *node);
    if (!node)
        return error_set(WEIR_E_MEMORY, "no memory to register op %s", op->name);
    node->op = op;
    node->next = atomic_load_explicit(&registered_head, memory_order_acquire);
    do {
        const weir_op *known = weir_op_find(op->name);
        if (known) {
            free(node);
            return known == op ? WEIR_OK
                               : error_set(WEIR_E_ARGUMENT, "there is another op with the name %s", op->name);
        }
    } while (!atomic_compare_exchange_weak_explicit(&registered_head, &node->next, node, memory_order_release,
                                                    memory_order_acquire));
    return WEIR_OK;
}

bool op_runs_on(const weir_op *op, weir_device_kind kind)
{
    if (op->kernel[device_kernels(kind)])
        return true;
    for (size_t i = 0; kind == WEIR_CUDA && i < sizeof on_cuda / sizeof *on_cuda; i++)
        if (on_cuda[i] == op)
            return true;
    return false;
}
