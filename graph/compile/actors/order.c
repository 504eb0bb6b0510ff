/* graph/compile/actors/order.c: which of several ready actors of a queue fires first.
 *
 * Updates before backward before forward: what comes later in a step gives memory back, and in a pipeline this is what
 * makes one-forward-one-backward. Within a phase, conversions first, because another device waits for most of them;
 * then graph order. Sources come last: they run ahead, and what else is on their queue is waited for. Priorities decide speed alone: every order completes, as the check proves.
 */
#include "graph/base/error.h"
#include "graph/compile/actors/passes.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#include <stdlib.h>

typedef struct order_key {
    int group, source, phase, moves, first;
} order_key;

static int key_compare(const void *a, const void *b)
{
    const order_key *x = a, *y = b;
    if (x->source != y->source)
        return x->source - y->source;
    if (x->phase != y->phase)
        return y->phase - x->phase;
    if (x->moves != y->moves)
        return y->moves - x->moves;
    return x->first - y->first;
}

/* Whether the group does nothing but convert. */
static bool moves_only(const compile *c, const group *g)
{
    for (int i = 0; i < g->pops.count; i++)
        if (c->ir.node[c->phys.op.item[g->pops.item[i]].node].op != &op_box)
            return g->queue == PLAN_COLLECTIVE;
    return true;
}

static bool is_source(const compile *c, const group *g)
{
    return g->queue == PLAN_IO_QUEUE && c->ir.node[c->phys.op.item[g->pops.item[0]].node].op == &op_source;
}

bool pass_order(compile *c)
{
    phys *p = &c->phys;
    order_key *key = POOL_NEW(&c->pool, order_key, p->group.count + 1);
    if (!key)
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
    for (int g = 0; g < p->group.count; g++)
        key[g] = (order_key){.group = g,
                             .source = is_source(c, &p->group.item[g]),
                             .phase = (int)p->group.item[g].phase,
                             .moves = moves_only(c, &p->group.item[g]),
                             .first = p->group.item[g].pops.item[0]};
    qsort(key, (size_t)p->group.count, sizeof *key, key_compare);
    for (int k = 0; k < p->group.count; k++)
        p->group.item[key[k].group].priority = k;
    return true;
}
