/* graph/compile/logical/passes.c: see the header. */
#include "graph/compile/logical/passes.h"

const char *verify_dtypes(const compile *c, int *at)
{
    for (*at = 0; *at < c->ir.node_count; ++*at) {
        const ir_node *node = &c->ir.node[*at];
        for (int i = 0; i < node->in_count; i++)
            if (weir_dtype_real(node_reads(&c->ir, node, i)) != weir_dtype_real(c->ir.tensors.item[node->in[i]].type.dtype))
                return "a node reads real numbers as integers, or the other way round";
    }
    return verify_nodes(c, at);
}

const char *verify_rules(const compile *c, int *at)
{
    for (*at = 0; *at < c->ir.node_count; ++*at) {
        const ir_node *node = &c->ir.node[*at];
        if (node->signature_count < 1)
            return "a node has no signature";
        for (int i = 0; i < node->in_count; i++)
            if (node->signature[0].in[i] != WEIR_B)
                return "the first signature of a node splits an input";
    }
    return NULL;
}

const compile_pass logical_passes[] = {{"new", ir_new, verify_nodes}, PASS(scale, verify_nodes), PASS(precision, verify_dtypes),
                               PASS(rules, verify_rules), {NULL}};
const compile_pass cast_passes[] = {PASS(casts, verify_dtypes), PASS(fold, verify_dtypes), {NULL}};
