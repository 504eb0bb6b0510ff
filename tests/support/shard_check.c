/* shard_check.c: see the header. The signatures come from the compiler's own collector (ir_new), which is asked about a
 * graph of this one op. weir_op_check()'s own parts play them.
 */
#include "tests/support/shard_check.h"

#include "graph/check/check.h"
#include "graph/compile/ir/ir.h"
#include "tests/support/effort.h"

#include <criterion/criterion.h>

static weir_graph *graph_of(const kernel_check *c)
{
    weir_graph *graph = weir_graph_new("shard_check");
    weir_tensor *in[KERNEL_CHECK_MAX];
    cr_assert_not_null(graph);
    for (int i = 0; i < c->in_count; i++) {
        weir_input_opts opts = {.size = sizeof opts, .src = WEIR_HERE};
        for (int d = 0; d < c->in[i].shape.rank; d++)
            opts.shape[d] = c->in[i].shape.dim[d];
        in[i] = weir_input_at(graph, c->in[i].dtype, &opts);
    }
    weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = c->op, .graph = graph, .in = in, .in_count = c->in_count,
                                .attrs = c->attrs}, NULL);
    cr_assert_null(weir_graph_mistake(graph), "%s", weir_graph_mistake(graph));
    return graph;
}

static trial trial_of(const kernel_check *c, double tolerance, weir_status *status)
{
    trial t = {.op = c->op, .attrs = c->attrs, .src = WEIR_HERE, .status = status, .asked = c->op->name,
               .tolerance = tolerance, .kernel = kernel_check_kernel(c->op), .kind = kernel_check_kind(), .key = c->key,
               .firing = c->firing, .step = c->step, .in_count = c->in_count, .out_count = c->out_count,
               .in = (weir_view *)c->in, .out = (weir_view *)c->out};
    t.margin = trial_margin(&t);
    return t;
}

int shard_check(const kernel_check *c, int devices, double tolerance)
{
    weir_status status = WEIR_OK;
    const trial whole = trial_of(c, tolerance, &status);
    weir_graph *graph = graph_of(c);
    compile ir = {.graph = graph, .micro = 1};
    cr_assert(ir_new(&ir) && pass_rules(&ir), "%s", weir_error());
    const ir_node *node = &ir.ir.node[ir.ir.node_count - 1];
    cr_assert_eq(node->op, c->op);
    int played = 0;
    for (int n = 1; n < node->signature_count; n++) {
        const weir_signature *s = &node->signature[n];
        if (s->granules && s->granules % devices)
            continue;
        if (EFFORT(true, true, false)) /* shards are smaller wholes: no thread of a kernel does anything else there */
            cr_assert(trial_split(&whole, s, n, devices), "%s", weir_error());
        played++;
    }
    pool_free(&ir.pool);
    weir_graph_free(graph);
    return played;
}
