/* graph/compile/devices/passes.c: see the header. */
#include "graph/compile/devices/passes.h"
#include "graph/compile/sbp/passes.h"

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
            if (t->device != op->device || t->producer != *at)
                return "a shard is on another device than the call that makes it, or doesn't know it";
        }
    }
    return NULL;
}

const compile_pass device_passes[] = {PASS(copies, verify_conversions), PASS(lower, verify_calls), {NULL}};
