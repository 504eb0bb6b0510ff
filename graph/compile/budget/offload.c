/* graph/compile/budget/offload.c: see the header. */
#include "graph/compile/budget/offload.h"
#include "graph/compile/sbp/machine.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"
#include "kernels/optim/optim.h"

#include <string.h>

double offload_window = 2;

/* ---- where ---- */

bool offload_anchor(const ir_node *node, const weir_mesh *mesh, bool micro)
{
    bool vanishes = node->op == &op_box || node->op == &op_shard || node->op == &op_accumulate || !node->out_count;
    bool end = node->op == &op_source || node->op->effect;
    return !vanishes && !end && node->updates < 0 && node->micro == micro && !node->program &&
           !(node->origin && node->origin->host) && mesh_equal(node->mesh, mesh_home(mesh));
}

static double busy(const weir_rates *rates, const ir_graph *ir, int n, const weir_mesh *mesh)
{
    const ir_node *node = &ir->node[n];
    bool counts = node->op != &op_box && node->op != &op_shard && mesh_equal(node->mesh, mesh_home(mesh));
    return counts ? node_seconds(rates, ir, node) : 0;
}

/* From `at` on in steps of `by` as far as `end`, the first anchor that is `wanted` seconds away; -1: there is none. */
static int anchor_from(const weir_rates *rates, const ir_graph *ir, const ir_tensor *t, int at, int end, int by, double wanted)
{
    for (; at != end; at += by) {
        if (wanted <= 0 && offload_anchor(&ir->node[at], t->mesh, t->micro))
            return at;
        wanted -= busy(rates, ir, at, t->mesh);
    }
    return NONE;
}

offload_way offload_find(const weir_rates *rates, const ir_graph *ir, int t, int last, int reader)
{
    const ir_tensor *tensor = &ir->tensors.item[t];
    double between = 0, wanted = offload_window * disk_seconds(shard_bytes(tensor, 0));
    int first = reader;
    for (int n = last + 1; n < reader; n++) {
        between += busy(rates, ir, n, tensor->mesh);
        if (first == reader && ir->node[n].phase == PLAN_BACKWARD)
            first = n;
    }
    wanted = wanted < between / 4 ? wanted : between / 4;
    offload_way way = {-1, anchor_from(rates, ir, tensor, reader - 1, first - 1, -1, wanted)};
    if (way.ahead >= 0)
        way.hold = anchor_from(rates, ir, tensor, last + 1, way.ahead, 1, wanted);
    return way.hold < 0 ? (offload_way){-1, -1} : way;
}

double offload_seconds(const weir_rates *rates, double step, double before, double bytes)
{
    double had = 2 * disk_seconds((uint64_t)before), has = 2 * disk_seconds((uint64_t)(before + bytes));
    return copy_seconds(rates, 2 * bytes) + (has > step ? has - (had > step ? had : step) : 0);
}

/* ---- the nodes ---- */

const weir_mesh *offload_mesh(compile *c, const weir_mesh *mesh)
{
    weir_mesh *disk = POOL_NEW(&c->pool, weir_mesh, 1);
    if (!disk)
        return NULL;
    *disk = *mesh;
    disk->kind = WEIR_DISK;
    return disk;
}

bool offload_copy(compile *c, const ir_graph *ir, int t, const ir_node *of, int from, int to, plan_phase phase,
                  ir_node *node)
{
    const ir_tensor *tensor = &ir->tensors.item[t];
    bool back = ir->tensors.item[to].mesh->kind != WEIR_DISK;
    *node = (ir_node){.name = pool_text(&c->pool, "%s.%s", of->name, back ? "fetch" : "store"),
                      .src = tensor->src,
                      .op = &op_copy,
                      .mesh = tensor->mesh->kind == WEIR_DISK ? tensor->mesh : offload_mesh(c, tensor->mesh),
                      .phase = phase,
                      .program = of->program,
                      .micro = tensor->micro,
                      .moves = true,
                      .sum = NONE,
                      .after = NONE,
                      .in_count = 1,
                      .out_count = 1,
                      .in = POOL_NEW(&c->pool, int, 1),
                      .out = POOL_NEW(&c->pool, int, 1),
                      .updates = NONE,
                      .signature = of->signature};
    if (c->pool.failed)
        return false;
    node->in[0] = from;
    node->out[0] = to;
    return true;
}

int offload_states(const ir_node *node)
{
    const weir_op *moved = offload_update(node->op);
    const bool plain = node->op == &op_sgd && ((const struct optim_attrs *)node->attrs)->momentum == 0;
    return moved && !plain ? moved->out_count - 1 : 0;
}

const weir_op *offload_update(const weir_op *op)
{
    return optim_moved(op);
}
