/* graph/compile/ir/devices.h: the devices' form: what each of them holds (ptensors: a shard, or a chunk of one) and calls (pops), and
 * what these become: groups, which are actors, registers, and blocks that have their place. Made by lower from the logical form, used
 * up by emit. Indexes refer to arrays of phys; one that is not there is NONE.
 */
#ifndef GRAPH_COMPILE_IR_DEVICES_H
#define GRAPH_COMPILE_IR_DEVICES_H

#include "graph/compile/ir/logical.h"

typedef struct slice {
    int64_t start[WEIR_DIMS_MAX], count[WEIR_DIMS_MAX];
} slice;

typedef struct ptensor {           /* the shard of a tensor on one device, or a chunk of it */
    int tensor;                    /* ir tensor */
    int device;                    /* index in phys->device */
    slice part;
    uint64_t bytes;                /* padded to PLAN_ALIGN */
    int producer;                  /* pop, or NONE (parameter or state that nothing updates) */
    int alias;                     /* the ptensor that it really is, or NONE */
    int within;                    /* the ptensor of its device that it is a part of, in place, or NONE */
    uint64_t distance;             /* from that one's first byte */
    bool moved;                    /* between devices; see exchange.h */
    bool parameter;                /* or state: what a step begins with */
    int initial;                   /* values that are there before the first step */
    bool chunk;                    /* one of several of a shard */
    bool fills;                    /* M firings of its producer go into one slot */
    int slots;                     /* as the user fixed it; 0 */
    int family, family_at;         /* the family that it is in, or NONE; and its place there */
    POOL_LIST(int) readers;        /* pops, each once */
    /* group.c and offsets.c */
    int reg;                       /* register; NONE: a temp */
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
    int depth, group;
    POOL_LIST(int) waits;          /* pops of other queues that it waits for, and reads nothing of */
    bool awaited;                  /* by such a one */
    int exchange;                  /* the one that it takes part in, or NONE */
    int collective;                /* and the collective that it became a member of */
    uint64_t bytes_in, bytes_out;  /* of its operands then */
    uint64_t scratch, scratch_offset;
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
    int sum;                       /* the plan_collective_kind of those; input i of each becomes output i. NONE: moves */
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
} family;

typedef struct pbatch {            /* calls that may become one; see batch.c */
    int kind;
    int count, pop[BATCH_MAX];     /* by rising outputs */
} pbatch;

typedef struct reg {               /* a register */
    int group;                     /* producer; NONE: a constant */
    int device;
    plan_mem kind;
    int fill, slots, initial;
    int wanted;                    /* slots, before any was taken away */
    int ahead;                     /* of them, those that are there for a link between hosts (hosts.h) */
    bool fixed;                    /* by the user */
    bool alone;                    /* its one tensor is large: no other joins */
    int family;                    /* the one that its tensors are of, and no other joins; or NONE */
    bool needed;                   /* fewer slots would stall */
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
    bool tiers;                   /* of conversions that others go on with */
    int depth;
    int priority;
    POOL_LIST(int) pops;
    POOL_LIST(int) reads;          /* registers, each once */
    POOL_LIST(int) regs;           /* produced */
    POOL_LIST(int) sources;        /* groups on other queues that it reads from, each once */
} group;

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
    int *device_of[WEIR_DEVICE_KINDS]; /* by index: the device, or NONE */
    POOL_LIST(const char *) io;    /* names of io queues that the program gave; 0 of a pop is the one without, k the k-th */
} phys;

#endif
