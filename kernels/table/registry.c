/* kernels/table/registry.c: ops by name. Built-in ops are a constant table; ops that a program registers are kept in a list
 * that only grows, so that lookups need no lock: a node is published with release and found with acquire. The list is
 * process-wide because plans refer to ops by name alone, as a file must.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "kernels/cuda/list.h"
#include "kernels/common/ops.h"

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
    size_t bytes;      /* that the program knows of it */
    struct registered *next;
} registered;

static _Atomic(registered *) registered_head;
static _Atomic uint64_t accepted;

static const weir_op *registered_find(registered *from, const char *name)
{
    for (; from; from = from->next)
        if (!strcmp(from->op->name, name))
            return from->op;
    return NULL;
}

static const weir_op *find(const char *name)
{
    if (!name)
        return NULL;
    for (int i = 0; i < OPS_COUNT; i++)
        if (!strcmp(level_ops[i]->name, name))
            return level_ops[i];
    return registered_find(atomic_load_explicit(&registered_head, memory_order_acquire), name);
}

const weir_op *weir_op_find(const char *name)
{
    const weir_op *op = find(name);
    char text[NAMES_TEXT_BYTES];
    if (!op)
        error_set(WEIR_E_ARGUMENT, "there is no op '%s'%s", name ? name : "", op_near(name, text, sizeof text));
    return op;
}

const char *op_near(const char *name, char *text, size_t bytes)
{
    struct names names = {.wanted = name};
    for (const registered *r = atomic_load_explicit(&registered_head, memory_order_acquire); r; r = r->next)
        names_add(&names, r->op->name);
    for (int i = 0; i < OPS_COUNT; i++)
        names_add(&names, level_ops[i]->name);
    return names_text(&names, text, bytes);
}

const char *op_fault(const weir_op *op)
{
    if (!op->infer)
        return "has no rule infer";
    if (op->in_min < 0 || op->in_max < op->in_min || op->in_max > WEIR_ARGS_MAX)
        return "has .in_min and .in_max that do not fit each other, or the most inputs that can be";
    if (op->out_count < 0 || op->out_count > 8)
        return "has an .out_count that is not 0 to 8";
    if (op->attrs_bytes % 8 || op->field_count < 0 || (op->field_count && !op->fields))
        return "has attributes that are not in words of 8 bytes, or .fields that are not there";
    return op->inplace < 0 || op->inplace > op->in_max ? "has an .inplace beyond its inputs" : NULL;
}

uint64_t registry_accepted(void)
{
    return atomic_load_explicit(&accepted, memory_order_relaxed); /* what the caller's own thread did is there */
}

weir_kernel_fn op_exact(const char *name)
{
    for (const registered *r = atomic_load_explicit(&registered_head, memory_order_acquire); r; r = r->next)
        if (!strcmp(r->op->name, name))
            return r->bytes >= offsetof(weir_op, exact) + sizeof r->op->exact ? r->op->exact : NULL;
    return NULL;
}

weir_status weir_op_register_of(const weir_op *op, size_t op_bytes)
{
    if (!op || !op->name || !*op->name)
        return error_set(WEIR_E_ARGUMENT, "op_register: the op is NULL or has no name");
    if (op_fault(op))
        return error_set(WEIR_E_ARGUMENT, "op_register: the op %s %s", op->name, op_fault(op));
    registered *node = malloc(sizeof *node);
    if (!node)
        return error_set(WEIR_E_MEMORY, "no memory to register op %s", op->name);
    node->op = op;
    node->bytes = op_bytes;
    node->next = atomic_load_explicit(&registered_head, memory_order_acquire);
    do {
        const weir_op *known = find(op->name);
        if (known) {
            free(node);
            if (known != op)
                return error_set(WEIR_E_ARGUMENT, "op_register: there is another op with the name %s", op->name);
            break;
        }
    } while (!atomic_compare_exchange_weak_explicit(&registered_head, &node->next, node, memory_order_release,
                                                    memory_order_acquire));
    atomic_fetch_add_explicit(&accepted, 1, memory_order_relaxed);
    return WEIR_OK;
}

/* Programs whose headers have no `exact` call this one. */
weir_status(weir_op_register)(const weir_op *op)
{
    return weir_op_register_of(op, offsetof(weir_op, exact));
}

bool op_runs_on(const weir_op *op, weir_device_kind kind)
{
    if (kind == WEIR_MAPPED)
        return false;
    if (op->kernel[device_kernels(kind)])
        return true;
    for (size_t i = 0; kind == WEIR_CUDA && i < sizeof on_cuda / sizeof *on_cuda; i++)
        if (on_cuda[i] == op)
            return true;
    return false;
}
