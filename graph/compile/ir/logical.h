/* graph/compile/ir/logical.h: the logical form: nodes and tensors of the whole graph, whatever devices share them. Passes from
 * scale to box work on it, and budget/ changes it for each of its tries. An index that is not there is NONE.
 */
#ifndef GRAPH_COMPILE_IR_LOGICAL_H
#define GRAPH_COMPILE_IR_LOGICAL_H

#include "graph/base/base.h"
#include "graph/model/build.h"

enum { NONE = -1 };               /* an index, or the number of a kind, that there is none of */

typedef struct ir_tensor {
    const char *name;
    weir_src src;                  /* where the user made it, or the one that it is a copy of */
    weir_type type;
    const weir_mesh *mesh;
    weir_sbp sbp[MESH_AXES_MAX];   /* AUTO until the shard pass has chosen */
    const weir_sbp *fixed;         /* the user's wish: AUTO or what must be */
    const weir_tensor *origin;     /* NULL: made by a pass */
    int node;                      /* producer; NONE: a parameter */
    int update;                    /* the node that updates it, or NONE */
    bool micro;
    const struct ir_node *state_of;      /* a state of that update's, which waits on a disk between steps; NULL */
    int state;                     /* then: which */
    int mapped;                    /* 1 + the parameter in a file that it is, in some layout; 0: none */
    bool parts;                    /* of another tensor's shards, on their way to other devices: see exchange.h */
} ir_tensor;

typedef struct ir_node {
    const char *name;
    weir_src src;
    const weir_op *op;
    const graph_node *origin;      /* NULL: a conversion or a cast */
    const weir_mesh *mesh;
    const void *attrs;
    plan_phase phase;
    int program;
    bool micro;
    bool again;                    /* a repetition of a forward node, see recompute.h */
    bool moves;                    /* to a disk, or back: see offload.h */
    plan_queue_kind copies;        /* COPY_IN, COPY_OUT: to an accelerator or from it, see copies.h; COLLECTIVE: between
                                      them, see exchange.h; else COMPUTE */
    int sum;                       /* of the last: the plan_collective_kind of what the devices add (sums.h), or NONE */
    int after;                     /* of a repetition: a tensor that it is not computed before, or NONE */
    int in_count, out_count;
    int *in, *out;                 /* ir tensors */
    weir_dtype *reads;             /* by input: the dtype in which it is read; NULL: in the tensor's own */
    int updates;                   /* ir tensor of the parameter that out[0] is, or NONE */
    const weir_signature *signature; /* candidates; the first is all B */
    int signature_count;
    int choice[WEIR_AXES_MAX];     /* one for each mesh axis; NONE until chosen */
    weir_cost cost;                /* of the whole, on one device */
} ir_node;

typedef struct ir_wait {           /* an order that no tensor makes, on each device by itself: see offload.h */
    int node, on;                  /* the node waits, on the other */
} ir_wait;

typedef struct ir_rules {          /* signatures that nodes share */
    const weir_op *op;
    int in_count, count;
    weir_signature *item;
} ir_rules;

typedef struct ir_graph {
    ir_node *node;
    int node_count;
    POOL_LIST(ir_tensor) tensors;
    POOL_LIST(ir_rules) rules;
    POOL_LIST(ir_wait) waits;
} ir_graph;

#endif
