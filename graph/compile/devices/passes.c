/* graph/compile/devices/passes.c: see the header. */
#include "graph/compile/devices/passes.h"

/* To a disk or from it, or between an accelerator and the host. */
static bool moves_away(const compile *c, const pop *op, const ptensor *t)
{
    return op->queue == PLAN_COPY_IN || op->queue == PLAN_COPY_OUT || c->ir.node[op->node].moves ||
           c->phys.device.item[t->device].kind == WEIR_DISK;
}

const char *verify_calls(const compile *c, int *at)
{
    const phys *p = &c->phys;
    for (*at = 0; *at < p->op.count; ++*at) {
        const pop *op = &p->op.item[*at];
        for (int i = 0; i < op->in_count && !op->dead; i++) {
            const ptensor *t = &p->tensor.item[ptensor_whole(p, ptensor_real(p, op->in[i]))];
            if (!list_has(t->readers.item, t->readers.count, *at))
                return "a shard doesn't know a call that reads it";
        }
        for (int o = 0; o < op->out_count && !op->dead; o++) {
            const ptensor *t = &p->tensor.item[op->out[o]];
            if (t->producer != *at)
                return "a shard doesn't know the call that makes it";
            if (t->device != op->device && !moves_away(c, op, t))
                return "a shard is on another device than the call that makes it";
        }
    }
    return NULL;
}

const compile_pass device_passes[] = {PASS(copies, verify_nodes), PASS(lower, verify_calls), {NULL}};
