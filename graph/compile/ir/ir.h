/* graph/compile/ir/ir.h: what the compiler's passes hand to each other. Three forms, each made from the one before:
 *
 *     weir_graph --ir_new--> ir (logical.h)                    scale: the scale of the loss becomes a state (f16)
 *                                                              precision: every tensor gets a dtype, every input a wish
 *                                                              rules: signatures and costs asked of the ops
 *                                                              shard: every tensor gets an SBP, every input a wish
 *                                                              casts: what is read in another dtype becomes a node
 *                                                              fold:  casts that change nothing are left out
 *                                                              box:   conversions become nodes
 *                                                              copies: what an accelerator and the host hand to each
 *                                                              other goes through copy nodes; for each choice of limit.c
 *                --lower---> phys (devices.h)                   group: calls (pops) become groups, with registers;
 *                                                              sequence, batch, epilogue, fuse: within groups;
 *                                                              tie, slots, order: between them; then offsets
 *                --emit----> weir_plan                          validate, check
 *
 * One compilation owns one `compile`, with one pool; the graph is only read. Indexes refer to arrays of the same struct. Each
 * room lists its passes in passes.h.
 */
#ifndef GRAPH_COMPILE_IR_IR_H
#define GRAPH_COMPILE_IR_IR_H

#include "graph/compile/ir/devices.h"
#include "graph/compile/ir/logical.h"

typedef struct compile {
    pool pool;
    const weir_graph *graph;
    weir_compile_opts opts;
    int micro;                     /* M, at least 1 */
    uint64_t memory_max;           /* per device; UINT64_MAX: none */
    uint64_t whole;                /* what the largest device needs without a limit, when that is too much; 0 */
    double longer;                 /* then: the share of a step that it takes longer */
    double link;                   /* bytes that are under way between two hosts when their link is full; 0: not asked for */
    const char *offload;           /* the directory on a disk that what there is no room for may go to; NULL: none */
    bool tight;                    /* a limit asks for something: tie.c ties gradients, too */
    const weir_rates *rates;       /* the machine's, by which all is priced; NULL: sbp/machine.c's model */
    uint64_t rates_hash;           /* 0: none */
    ir_graph ir;
    phys phys;
} compile;

/* The nodes and tensors of the graph, and what their ops say of them. False: an error, which is set. */
bool ir_new(compile *c);
bool pass_rules(compile *c);

/* ---- what several passes use ---- */

static inline const weir_op *pop_op(const compile *c, const pop *p)
{
    return p->fused ? p->fused : c->ir.node[p->node].op;
}
/* The types of its operands on its device, inputs first. */
void pop_types(const compile *c, const pop *op, weir_type *types);
/* The dtype in which a node reads its input i. */
static inline weir_dtype node_reads(const ir_graph *ir, const ir_node *node, int i)
{
    return node->reads ? node->reads[i] : ir->tensors.item[node->in[i]].type.dtype;
}
/* The nodes, in the order given: their outputs, and the parameters that they update, know them by it. */
void ir_renumber(compile *c, ir_node *order, int count);
/* Whether the compile's pool is whole; sets the error when it is not. */
bool ir_had_memory(const compile *c);
/* The key of the random numbers that a node draws. */
static inline uint64_t node_key(const compile *c, const ir_node *node)
{
    return name_key(c->opts.seed, node->origin ? graph_short_name(node->origin) : node->name);
}
/* Asks the op's rules about one node that a pass made: signatures and cost. */
bool node_ask(compile *c, ir_node *node);
/* Whether a partial sum that is to lie so on `mesh` is scattered over its own mesh first, and how that lies. */
bool scatter_first(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, weir_sbp *between);
/* The axis that is the `i`-th to cut, where several split one dimension. */
static inline int mesh_cut(const weir_mesh *mesh, int i)
{
    return mesh->home ? mesh->cut[i] : i;
}
/* Whether a sum of this shape is large enough to be scattered first, and over which dimension then: `left` is what other
 * axes leave of each. */
bool scatter_pays(const weir_shape *shape);
int scatter_dimension(const weir_shape *left, int parts);
/* The coordinate on `axis` of the `at`-th device of the mesh. */
static inline int mesh_coordinate(const weir_mesh *mesh, int at, int axis)
{
    for (int a = mesh->axes - 1; a > axis; a--)
        at = mesh->shape[a] > 1 ? at / mesh->shape[a] : at;
    return axis ? at % mesh->shape[axis] : at; /* on the first there is nothing above */
}
/* The part of a tensor of `shape` that the device `at` of `mesh` holds: split dimensions are cut as evenly as can be,
 * the first parts one longer; several axes split one dimension one after the other. */
slice slice_of(const weir_shape *shape, const weir_mesh *mesh, const weir_sbp *sbp, int at);
/* Leaves of the slice the `k`-th of `parts` along dimension `d`, cut so. */
void slice_cut(slice *part, int d, int k, int parts);
bool slices_meet(const slice *a, const slice *b, int rank);
/* The bytes of that part, padded to PLAN_ALIGN; those of the first device are the most. */
uint64_t shard_bytes(const ir_tensor *t, int at);
/* Whether a limit counts for the device: what is on a disk is what the limit left no room for, beside an accelerator lies
 * what passes by, and what is mapped is in files. */
static inline bool device_is_limited(const pdevice *d)
{
    return d->kind != WEIR_DISK && d->kind != WEIR_PINNED && d->kind != WEIR_MAPPED;
}
/* Whether it is the compiler that says how many slots it has. */
static inline bool slots_are_free(const reg *r)
{
    return !r->fixed && r->group >= 0 && !r->initial;
}
/* How often a step writes a register that has a producer. */
static inline int reg_writes(const compile *c, const reg *r)
{
    return c->phys.group.item[r->group].micro ? c->micro / r->fill : 1;
}
/* Fills behind[node] with the pipeline stages behind each forward node (slots.c). */
void stages_behind(const compile *c, int *behind);
/* The SBP that input i, output o of a node must have on `axis` by its choice. */
static inline weir_sbp node_in_sbp(const ir_node *node, int i, int axis)
{
    return node->choice[axis] < 0 ? WEIR_AUTO : node->signature[node->choice[axis]].in[i];
}
static inline weir_sbp node_out_sbp(const ir_node *node, int o, int axis)
{
    return node->choice[axis] < 0 ? WEIR_AUTO : node->signature[node->choice[axis]].out[o];
}
/* Whether the two are the same layout: on an axis of one device everything is. */
static inline bool sbp_equal(const weir_mesh *mesh, const weir_sbp *a, const weir_sbp *b)
{
    for (int axis = 0; axis < mesh->axes; axis++)
        if (mesh->shape[axis] > 1 && a[axis] != b[axis])
            return false;
    return true;
}
static inline uint64_t round_up(uint64_t bytes)
{
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}
/* The ptensor of a chunk of the shard on the device `at` of the tensor's mesh; chunk 0 is all of one that is not cut. */
static inline int ptensor_at(const phys *p, int tensor, int at, int chunk)
{
    return p->first[tensor] + at * p->chunks[tensor] + chunk;
}
/* The ptensor behind its aliases. */
static inline int ptensor_real(const phys *p, int tensor)
{
    while (p->tensor.item[tensor].alias >= 0)
        tensor = p->tensor.item[tensor].alias;
    return tensor;
}
/* And what it is a part of, or itself: that is made, read and placed. */
static inline int ptensor_whole(const phys *p, int tensor)
{
    return p->tensor.item[tensor].within != NONE ? ptensor_real(p, p->tensor.item[tensor].within) : tensor;
}
/* Appends `value` to a list of ints that is kept without repeats. */
#define LIST_ONCE(p, list, value)                                         \
    do {                                                                  \
        int once_ = 0, value_ = (value);                                  \
        while (once_ < (list)->count && (list)->item[once_] != value_)    \
            once_++;                                                      \
        if (once_ == (list)->count) {                                     \
            int *at_ = POOL_PUSH((p), (list));                            \
            if (at_)                                                      \
                *at_ = value_;                                            \
        }                                                                 \
    } while (0)

#endif
