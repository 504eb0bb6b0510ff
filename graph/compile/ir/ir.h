/* graph/compile/ir/ir.h: what the compiler's passes hand to each other. Three forms, each made from the one before:
 *
 *     weir_graph --ir_new--> ir (logical: nodes, tensors)      scale: the scale of the loss becomes a state (f16)
 *                                                              precision: every tensor gets a dtype, every input a wish
 *                                                              rules: signatures and costs asked of the ops
 *                                                              shard: every tensor gets an SBP, every input a wish
 *                                                              casts: what is read in another dtype becomes a node
 *                                                              fold:  casts that change nothing are left out
 *                                                              box:   conversions become nodes
 *                                                              copies: what an accelerator and the host hand to each
 *                                                              other goes through copy nodes; for each choice of limit.c
 *                --lower---> phys (per device: pops, ptensors)  group: pops -> groups; regs; slots; order; layout
 *                --emit----> weir_plan                          check
 *
 * One compilation owns one `compile`, with one pool; the graph is only read. Indexes refer to arrays of the same
 * struct. A pass returns false after setting the error.
 */
#ifndef GRAPH_COMPILE_IR_IR_H
#define GRAPH_COMPILE_IR_IR_H

#include "graph/base/base.h"
#include "graph/model/build.h"

typedef struct ir_wish {           /* a layout that a tensor is read in, on the axis that is being chosen */
    weir_sbp sbp;
    const weir_mesh *mesh;
    int readers, fills;            /* how many ask for it; of those, how many fill */
} ir_wish;

typedef struct ir_tensor {
    const char *name;
    weir_src src;                  /* where the user made it, or the one that it is a copy of */
    weir_type type;
    const weir_mesh *mesh;
    weir_sbp sbp[MESH_AXES_MAX];   /* AUTO until the shard pass has chosen */
    const weir_sbp *fixed;         /* the user's wish: AUTO or what must be */
    const weir_tensor *origin;     /* NULL: made by a pass */
    int node;                      /* producer, -1 for a parameter */
    int update;                    /* the node that updates it, or -1 */
    bool micro;
    POOL_LIST(ir_wish) wishes;     /* the shard pass's own */
    const struct ir_node *state_of;      /* a state of that update's, which waits on a disk between steps; NULL */
    int state;                     /* then: which */
    bool parts;                    /* of another tensor's shards, on their way to other devices: see exchange.h */
    int conversion, boxed;         /* the box pass's own: 1 + the first conversion of it, 1 + the one that made it */
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
    int sum;                       /* of the last: 1 + the plan_collective_kind of what the devices add, see sums.h; 0 */
    int after;                     /* of a repetition: a tensor that it is not computed before, or -1 */
    int in_count, out_count;
    int *in, *out;                 /* ir tensors */
    weir_dtype *reads;             /* by input: the dtype in which it is read; NULL: in the tensor's own */
    int updates;                   /* ir tensor of the parameter that out[0] is, or -1 */
    const weir_signature *signature; /* candidates; the first is all B */
    int signature_count;
    int choice[WEIR_AXES_MAX];     /* one for each mesh axis; -1 until chosen */
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

/* ---- per device ---- */

typedef struct slice {
    int64_t start[WEIR_DIMS_MAX], count[WEIR_DIMS_MAX];
} slice;

typedef struct ptensor {           /* the shard of a tensor on one device, or a chunk of it */
    int tensor;                    /* ir tensor */
    int device;                    /* index in phys->device */
    slice part;
    uint64_t bytes;                /* padded to PLAN_ALIGN */
    int producer;                  /* pop, or -1 (parameter or state that nothing updates) */
    int alias;                     /* the ptensor that it really is, or -1 */
    int within;                    /* 1 + the ptensor of its device that it is a part of, in place; 0 */
    uint64_t distance;             /* from that one's first byte */
    bool moved;                    /* between devices; see exchange.h */
    int listed;                    /* exchange.c's own: 1 + the last pop that has it among its operands */
    bool parameter;                /* or state: what a step begins with */
    int initial;                   /* values that are there before the first step */
    bool chunk;                    /* one of several of a shard */
    bool fills;                    /* M firings of its producer go into one slot */
    int slots;                     /* as the user fixed it; 0 */
    int family, family_at;         /* 1 + the family that it is in, 0; and its place there */
    POOL_LIST(int) readers;        /* pops, each once */
    /* group and layout */
    int reg;                       /* register, or -1: a temp */
    int block;                     /* of a temp; layout's own */
    uint64_t offset;               /* in the slot or the workspace */
    uint32_t plan_id;
} ptensor;

typedef struct pop {               /* one kernel call on one device */
    int node;                      /* ir node */
    int device;
    int in_count, out_count;
    int *in, *out;                 /* ptensors */
    const void *attrs;
    const weir_op *fused;          /* the op that several have become; NULL: the node's */
    const char *fused_name;
    plan_phase phase;
    bool micro;
    bool accumulate;               /* its kernel adds from the second firing on */
    plan_queue_kind queue;         /* of its device; on an io or outside queue it is a group of its own */
    int io;                        /* then, of io: which of them, see phys.io */
    bool dead;                     /* merged into another, or of no use */
    int level, group;
    POOL_LIST(int) waits;          /* pops of other queues that it waits for, and reads nothing of */
    bool awaited;                  /* by such a one */
    bool kept;                     /* on its way between accelerators is what a step begins with; the group pass's own */
    int exchange;                  /* 1 + the one that it takes part in; 0 */
    int collective;                /* and 1 + the collective that it became a member of */
    uint64_t bytes_in, bytes_out;  /* of its operands then */
    uint64_t scratch, scratch_offset;
    int scratch_block;             /* layout's own; -1: none */
    POOL_LIST(int) states;         /* indexes in phys->state */
} pop;

typedef struct pmove {             /* between two pops of an exchange */
    int give, take;                /* ptensors */
    int from, to;                  /* pops */
    bool used;
} pmove;

typedef struct exchange {          /* all that a conversion moves between accelerators; see exchange.h */
    int first, count;              /* pops, */
    int first_move, moves;         /* and moves */
} exchange;

typedef struct pcollective {       /* a part of one whose members wait for each other, or devices that add (sums.h) */
    int sum;                       /* 1 + the plan_collective_kind of those; input i of each becomes output i. 0: moves */
    POOL_LIST(int) members;        /* pops, by rising device */
    POOL_LIST(int) moves;
} pcollective;

typedef struct pstate {            /* private memory of a kernel */
    int pop;
    int index;
    weir_type type;
    slice part;
    weir_shape global;
    uint64_t bytes, offset;
} pstate;

enum { BATCH_MAX = 4 /* PRODUCTS_MAX of kernels/matmul/sizes.h */ };

typedef struct family {            /* tensors of one size that are to lie at equal distances, in this order; see batch.c */
    int count, tensor[BATCH_MAX];  /* ptensors */
    int block;                     /* layout's own: of those that are temporaries of one group; -1 */
} family;

typedef struct pbatch {            /* calls that may become one; see batch.c */
    int kind;
    int count, pop[BATCH_MAX];     /* by rising outputs */
} pbatch;

typedef struct reg {               /* a register */
    int group;                     /* producer, or -1: a constant */
    int device;
    plan_mem kind;
    int fill, slots, initial;
    int wanted;                    /* slots, before any was taken away */
    int ahead;                     /* of them, those that are there for a link between hosts (hosts.h) */
    bool fixed;                    /* by the user */
    bool alone;                    /* its one tensor is large: no other joins */
    int family;                    /* 1 + the one that its tensors are of: no other joins; 0 */
    bool needed;                   /* fewer slots would stall */
    bool shares;                   /* layout's own: place() has put it */
    struct block *placed;          /* layout's own: then, as what; else NULL */
    int wish;                      /* layout's own: 1 + the first of those in windows.h for it; 0 */
    uint64_t slot_bytes, offset;
    POOL_LIST(int) tensors;        /* ptensors */
    POOL_LIST(int) readers;        /* groups, each once */
    uint32_t plan_id;
} reg;

typedef struct group {             /* an actor */
    int device;
    int program;
    plan_phase phase;
    bool micro;
    plan_queue_kind queue;         /* only a compute queue has a workspace */
    int io;                        /* which of its device's, as of a pop */
    bool levels;                   /* of conversions that others go on with */
    int level;
    int priority;
    POOL_LIST(int) pops;
    POOL_LIST(int) reads;          /* registers, each once */
    POOL_LIST(int) regs;           /* produced */
    POOL_LIST(int) sources;        /* groups on other queues that it reads from, each once */
    uint64_t published;            /* bytes that leave the queue, so far */
} group;

typedef struct block {             /* what is placed as one: a register, or temporaries of a group */
    int reg;                       /* or -1: temporaries, which work in place of each other, or scratch */
    int group, from, to;           /* then: whose, and the first and last pop, as positions in the group */
    uint64_t bytes, offset;        /* in the arena */
    bool shares;                   /* of temporaries: place() has put them */
    int tensors;                   /* of temporaries: how many there are in it */
    struct block *guest, *next;    /* what lies within it (windows.h): the first, and the next beside this one */
    struct block *host;            /* what it lies within itself, which lies within nothing, */
    uint64_t at;                   /* and where there */
} block;

typedef struct pdevice {
    weir_device_kind kind;
    int index;
    uint64_t arriving;             /* from other hosts, beside its arena: see hosts.h */
    uint64_t bytes, workspace, workspace_offset, snapshot, snapshot_offset;
} pdevice;

typedef struct phys {
    POOL_LIST(pdevice) device;
    POOL_LIST(ptensor) tensor;
    POOL_LIST(pop) op;
    POOL_LIST(pstate) state;
    POOL_LIST(pmove) move;
    POOL_LIST(exchange) exchange;
    POOL_LIST(pcollective) collective;
    POOL_LIST(family) family;
    POOL_LIST(pbatch) batch;
    POOL_LIST(reg) reg;
    POOL_LIST(group) group;
    int *first;                    /* by ir tensor: its first ptensor, see ptensor_at() */
    int *chunks;                   /* by ir tensor: how many each of its shards is cut into; 1: they are whole */
    int *device_of[WEIR_DEVICE_KINDS]; /* by index: the device, or -1 */
    POOL_LIST(const char *) io;    /* names of io queues that the program gave; 0 of a pop is the one without, k the k-th */
    POOL_LIST(block) temp;         /* layout's own: those of each group beside each other */
    bool temps_found;
} phys;

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
    bool hasty;                    /* the layout is to be found quickly, rather than as low as can be */
    bool over;                     /* the plan was given up as too large, rather than for an error */
    struct lives *known;           /* owned: lives of the plan that the last layout was made for, */
    weir_plan *known_of;           /* owned, until it is written: that plan, which lacks its offsets; or both NULL */
    ir_graph ir;
    phys phys;
} compile;

/* The passes, in order; each in the file of its name. */
bool ir_new(compile *c);
bool pass_scale(compile *c);
bool pass_precision(compile *c);
bool pass_rules(compile *c);
bool pass_shard(compile *c);
bool pass_casts(compile *c);
bool pass_fold(compile *c);
bool pass_box(compile *c);
bool pass_copies(compile *c);
bool pass_lower(compile *c);
/* Shards that conversions hand to conversions are cut into chunks of at most so many bytes, as far as there may be that
 * many chunks. Tests shrink it; nothing else changes it. */
extern uint64_t lower_chunk_bytes;
bool pass_families(compile *c);
bool pass_group(compile *c);
/* From how many bytes on a tensor gets a register of its own, and is worth an ordering edge (tie.c). Tests shrink it;
 * nothing else changes it. */
extern uint64_t group_own_bytes;
bool pass_sequence(compile *c);
bool pass_tie(compile *c);
bool pass_batch(compile *c);
bool pass_epilogue(compile *c);
/* Whether products take in what comes behind them, where a device can. Tests turn it off; nothing else does. */
extern bool epilogue_joins;
bool pass_fuse(compile *c);
/* From how many bytes on a tensor that kernels share makes them one, and how many bytes a block of rows touches, about.
 * Tests shrink them; nothing else changes them. */
extern uint64_t fuse_bytes_min, fuse_block_bytes;
bool pass_slots(compile *c);
bool pass_order(compile *c);
/* Places everything, which tells the bytes of each device: phys.device.item[d].bytes. May be called again when slots
 * have changed; that is how to ask what a choice would need. */
bool pass_offsets(compile *c);
/* Gives back what pass_offsets() leaves behind in c->known. */
void offsets_forget(compile *c);
/* Whether parts of an arena share bytes where that is proven safe. Tests turn it off; nothing else does. */
extern bool offsets_share;
/* Without a hash: offsets are still to come. */
weir_plan *pass_emit(compile *c);
/* The plan that the last layout was made for, with the offsets that it found. It is the caller's; c->known, which
 * borrows it, must be given back before it is. */
weir_plan *emit_laid_out(compile *c);

/* ---- what several passes use ---- */

/* The op that a pop calls. */
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
/* Of the random numbers that a node draws. */
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
/* Seconds that one firing of a node, one transfer of so many bytes, keeps a device busy, by the machine model of
 * shard.c. Layouts are chosen. */
double node_seconds(const ir_graph *ir, const ir_node *node);
double transfer_seconds(uint64_t bytes);
/* And a disk, with one way of so many bytes. */
double disk_seconds(uint64_t bytes);
/* Whether a limit counts for the device: what is on a disk is what the limit left no room for, and beside an
 * accelerator lies what passes by. */
static inline bool device_is_limited(const pdevice *d)
{
    return d->kind != WEIR_DISK && d->kind != WEIR_PINNED;
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
/* What input i, output o of a node must be on `axis` by its choice. */
weir_sbp node_in_sbp(const ir_node *node, int i, int axis);
weir_sbp node_out_sbp(const ir_node *node, int o, int axis);
/* Whether the two are the same layout: on an axis of one device everything is. */
bool sbp_equal(const weir_mesh *mesh, const weir_sbp *a, const weir_sbp *b);
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
int ptensor_real(const phys *p, int tensor);
/* And what it is a part of, or itself: that is made, read and placed. */
static inline int ptensor_whole(const phys *p, int tensor)
{
    return p->tensor.item[tensor].within ? ptensor_real(p, p->tensor.item[tensor].within - 1) : tensor;
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
