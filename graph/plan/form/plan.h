/* graph/plan/form/plan.h: the plan, the only thing that compiler and runtime share.
 *
 * Flat arrays that refer to each other by index; ids of different kinds are different types. Items of one owner lie together:
 * an actor's ports, registers and kernels are ranges [first, first + count).
 *
 *        space (bytes) <-- regst (offset, slots x slot_bytes) --> tensor, tensor, ...      one arena per space
 *                            ^ out               | read by
 *     queue <-- actor -------+                   v
 *                 |  ports: one per register read (hold) <------ another actor
 *                 |  kernels, in call order: op, attributes, operands -> tensors
 *                 '  states: tensors at fixed offsets
 *
 * The numbers mean this at run time:
 *   - An actor fires `fires` times per step. It may fire when every port has an unread slot and every register has a
 *     free one (credit). A queue runs one actor at a time; a firing calls the actor's kernels in order.
 *   - A port reads the same slot for `hold` firings, then frees it.
 *   - A register's producer fires `fill` times into the same slot, then publishes it to all readers.
 *   - A register starts with `initial` published slots (parameters). `constant`: its readers never free it, and its
 *     producer (none) never writes it.
 *   - Slot k of a register lies at offset + k * slot_bytes; slots are used cyclically.
 *   - For every edge, per step: producer.fires / fill == consumer.fires / hold. So one step returns to the start.
 *
 * Queues of kind OUTSIDE belong to the program around weir: their actors have no kernels and are fired by
 * weir_session_push() and weir_session_pull() in the caller's thread. A queue of kind IO runs kernels like a compute
 * queue, but ones that wait for something other than the device (a file, the user's function): it has a thread of its
 * own, so that what it waits for holds up no other queue.
 *
 * A queue of kind COLLECTIVE runs an accelerator's part of collectives. All devices must start collectives in the same order;
 * otherwise they wait for each other for ever. So the plan has one list for all devices, `turns`: the collectives of a step,
 * program after program (M times if it fires M times a step). Such a queue fires its actors only in the order of this list.
 *
 * Invariants are those that plan_validate() checks; nothing else reads a plan before it has passed. A plan is owned by
 * whoever made it and is immutable after plan_validate(); any thread may read it.
 */
#ifndef GRAPH_PLAN_FORM_PLAN_H
#define GRAPH_PLAN_FORM_PLAN_H

#include <weir/plan.h>

#include "graph/base/binding.h"

#define PLAN_VERSION 8
#define PLAN_TABLE_VERSION 1 /* of the table of the graph */
#define PLAN_ALIGN 64 /* of every offset: a cache line, and enough for AVX-512 */
#define PLAN_NONE UINT32_MAX
#define PLAN_BYTES_MAX (UINT64_C(1) << 47) /* of a space: no process can map more */
#define PLAN_RANKS_MAX 4096

#define PLAN_ID(name)        \
    typedef struct name {    \
        uint32_t i;          \
    } name
PLAN_ID(plan_str);      /* offset in plan->strings */
PLAN_ID(plan_space_id);
PLAN_ID(plan_queue_id);
PLAN_ID(plan_program_id);
PLAN_ID(plan_actor_id);
PLAN_ID(plan_port_id);
PLAN_ID(plan_regst_id);
PLAN_ID(plan_tensor_id);
PLAN_ID(plan_kernel_id);
PLAN_ID(plan_collective_id);
PLAN_ID(plan_graph_tensor_id);
PLAN_ID(plan_graph_node_id);

typedef struct plan_range {
    uint32_t first, count;
} plan_range;

/* A device, and with it its memory space and arena. Device ids are space ids. A disk's arena is a file. Beside a CPU that reads
 * mapped parameters is a space of kind MAPPED: parts of files that a session maps. Its registers are parameters of one tensor
 * each; offsets in it only count bytes, as each tensor lies where its file has it. */
typedef struct plan_space {
    uint32_t kind;     /* weir_device_kind */
    uint32_t index;    /* the 2 of cpu:2 */
    uint32_t rank;     /* process that owns it, less than plan->ranks */
    plan_str name;     /* "cpu:2" */
    plan_str path;     /* of a disk: the directory that its file is made in; else "" */
    uint64_t bytes;    /* of the arena */
    uint64_t snapshot_offset; /* in the arena: where a copy of what is kept goes */
    uint64_t snapshot_bytes;  /* 0: there is no such place */
} plan_space;

/* COPY_IN, COPY_OUT and COLLECTIVE are queues of accelerators: copies from the host's memory beside it and to that, and
 * what several devices do together. What they reach: graph/plan/prove/validate_space.c. */
typedef enum plan_queue_kind {
    PLAN_COMPUTE,
    PLAN_OUTSIDE,
    PLAN_IO_QUEUE,
    PLAN_COPY_IN,
    PLAN_COPY_OUT,
    PLAN_COLLECTIVE,
    PLAN_QUEUE_KINDS
} plan_queue_kind;
typedef struct plan_queue {
    plan_space_id space;
    uint32_t kind;             /* plan_queue_kind */
    plan_str name;             /* "cpu:2" */
    uint64_t workspace_offset; /* in the arena of `space`: where temporaries and scratch lie, */
    uint64_t workspace_bytes;  /* between, before and behind registers, and over those that are dead then */
} plan_queue;

/* The purpose of a tensor's bytes. name, text. Copies are parameters in another dtype. */
#define PLAN_MEM_LIST(X)                   \
    X(PARAMETER, "parameters")             \
    X(STATE, "optimizer state")            \
    X(KEPT, "kept state")                  \
    X(ACTIVATION, "activations")           \
    X(GRADIENT, "gradients")               \
    X(TRANSFER, "transfer")                \
    X(IO, "inputs and fetches")            \
    X(WORKSPACE, "workspace")              \
    X(SNAPSHOT, "snapshot")                \
    X(COPY, "parameter copies")
typedef enum plan_mem {
#define X(name, text) PLAN_##name,
    PLAN_MEM_LIST(X)
#undef X
        PLAN_MEMS
} plan_mem;

typedef enum plan_phase { PLAN_FORWARD, PLAN_BACKWARD, PLAN_UPDATE, PLAN_PHASES } plan_phase;

/* A run names one of these: a set of actors that make a step together. Actors of different programs never run at the same
 * time. */
typedef struct plan_program {
    plan_str name;       /* "main" */
} plan_program;

typedef struct plan_actor {
    plan_queue_id queue;
    plan_str name;
    plan_program_id program;
    uint32_t phase;      /* plan_phase */
    uint32_t fires;      /* per step: 1 or M */
    uint32_t priority;   /* lower fires first; unique within a queue */
    plan_range ports;    /* in plan->ports */
    plan_range regsts;   /* in plan->regsts: those that it produces */
    plan_range kernels;  /* in plan->kernels, in call order */
    plan_range states;   /* in plan->tensors */
    plan_range temps;    /* in plan->tensors: offsets within the queue's workspace */
} plan_actor;

typedef struct plan_port {
    plan_actor_id actor; /* the reader */
    plan_regst_id regst;
    uint32_t hold;
} plan_port;

typedef struct plan_regst {
    plan_actor_id producer;  /* PLAN_NONE for a constant */
    plan_space_id space;
    uint32_t kind;           /* plan_mem */
    uint32_t slots;
    uint32_t fill;
    uint32_t initial;        /* published slots at the start: 0 .. slots */
    uint32_t fixed;          /* slots were set by the user */
    uint64_t offset;         /* in the arena */
    uint64_t slot_bytes;     /* a multiple of PLAN_ALIGN, or 0 */
    plan_range tensors;      /* in plan->tensors, offsets within the slot */
} plan_regst;

typedef enum plan_home { PLAN_IN_REGST, PLAN_IN_STATE, PLAN_IN_TEMP } plan_home;
typedef struct plan_tensor {
    plan_str name;
    uint32_t home;           /* plan_home */
    uint32_t owner;          /* register id, or actor id */
    uint32_t dtype;
    uint32_t rank;
    plan_str file;           /* the user's, and the line there that made it; "" and 0: not known */
    uint32_t line;
    uint64_t offset;         /* in the slot, the arena (state) or the workspace (temp) */
    int64_t shape[WEIR_DIMS_MAX];  /* of the shard */
    int64_t start[WEIR_DIMS_MAX];  /* index of its first element in the logical tensor */
    int64_t global[WEIR_DIMS_MAX]; /* logical shape */
} plan_tensor;

typedef struct plan_kernel {
    plan_actor_id actor;
    plan_str op;             /* weir_op name */
    plan_str name;           /* of the application: "h0/q" */
    plan_str file;           /* the user's, for errors */
    uint32_t line;
    uint32_t host;           /* index in plan->hosts, or PLAN_NONE */
    uint32_t accumulate;     /* 1: from the second firing of a fill on, adds to its first output */
    uint64_t key;            /* of the random streams */
    plan_range in, out, state; /* in plan->operands */
    plan_range attrs;        /* in plan->words; as many as the op's attribute structure has */
    uint64_t workspace_offset; /* scratch, within the queue's workspace */
    uint64_t workspace_bytes;
} plan_kernel;

/* An operand is a tensor: of a register that the actor reads through one of its ports or produces, a state of the
 * actor or a temp of it. `port` is the port (id) that it is read through, PLAN_NONE for all others. */
typedef struct plan_operand {
    plan_tensor_id tensor;
    plan_port_id port;
} plan_operand;

/* How a parameter or state starts. */
typedef struct plan_init {
    plan_tensor_id tensor;
    uint32_t kind; /* weir_init_kind */
    double a, b;
    uint64_t key;
} plan_init;

/* A value that lives from step to step, by name: for read and write, and to be kept. name, text */
#define PLAN_KEEP_LIST(X)                  \
    X(PARAMETER, "parameter")              \
    X(OPTIMIZER, "optimizer state")        \
    X(STATE, "state")
typedef enum plan_keep {
#define X(name, text) PLAN_KEEP_##name,
    PLAN_KEEP_LIST(X)
#undef X
        PLAN_KEEPS
} plan_keep;

/* The state that holds the scale of an f16 loss; what its op keeps beside it is called so, and more. A checkpoint of
 * another precision is without both: they then start anew, or are passed over. */
#define PLAN_LOSS_SCALE "grad_seed:loss_scale"

/* Names of states that count: updates that are in AdamW's states of a parameter, and steps whose gradients had no finite
 * norm. Checkpoints of older builds have neither. */
#define PLAN_ADAMW_UPDATES ":adamw.updates"
#define PLAN_SKIPPED "_scale.skipped"

/* The shards that it is made of. Several may hold the same elements (B). */
typedef struct plan_param {
    plan_str name;           /* "h0/q/weight", "h0/q/weight:adamw.m" */
    uint32_t kind;           /* plan_keep */
    uint32_t frozen;         /* 1: nothing in the plan changes it */
    plan_range shards;       /* in plan->shards */
} plan_param;

/* A host function, or a push or pull end: what the program around weir gives or takes. */
typedef enum plan_host_kind { PLAN_SOURCE, PLAN_SINK, PLAN_CALL, PLAN_PUSH, PLAN_PULL, PLAN_HOST_KINDS } plan_host_kind;
typedef struct plan_host {
    plan_str name;
    uint32_t kind;           /* plan_host_kind */
    plan_actor_id actor;
    plan_str file;
    uint32_t line;
} plan_host;

/* The kind of a collective: what its moves look like, or that it adds. name, text */
#define PLAN_COLLECTIVE_LIST(X)            \
    X(SEND_RECV, "send_recv")              \
    X(BROADCAST, "broadcast")              \
    X(ALL_GATHER, "all_gather")            \
    X(ALL_TO_ALL, "all_to_all")            \
    X(REDUCE_SCATTER, "reduce_scatter")    \
    X(ALL_REDUCE, "all_reduce")
typedef enum plan_collective_kind {
#define X(name, text) PLAN_##name,
    PLAN_COLLECTIVE_LIST(X)
#undef X
        PLAN_COLLECTIVE_KINDS
} plan_collective_kind;

/* A collective of several accelerators: one actor of each, its *members*, which meet. None of them is done before all have
 * begun. A member gives its kernel's inputs, and takes the outputs, by number. */
typedef struct plan_collective {
    uint32_t kind;           /* plan_collective_kind */
    uint32_t group;          /* collectives of the same devices, and no others, have the same number */
    plan_range members;      /* in plan->members, by rising device */
    plan_range moves;        /* in plan->moves; none where it adds: there the inputs i of all become the output i of each */
} plan_collective;

/* The member `from` (its place among the members) gives its input `give` to the member `to`, whose output `take` it
 * becomes. */
typedef struct plan_move {
    uint32_t from, to;
    uint32_t give, take;
    uint64_t bytes;
} plan_move;

/* A record of what was given up to keep within a limit: told, and of no meaning to who runs the plan. At most one; none:
 * nothing was. */
typedef struct plan_limit {
    uint64_t bytes;          /* the limit, per device */
    uint64_t whole;          /* what the largest device would take without one */
    uint64_t moved;          /* bytes that a step copies to disks, and back */
    uint32_t again;          /* kernels of the backward phase that repeat one of forward */
    uint32_t slots;          /* fewer than without it, over all registers */
    double longer;           /* than without it a step takes, by the compiler's model of a machine: 0.1 is a tenth */
} plan_limit;

/* An attribute word. The op's field table says which member is meant. */
typedef union plan_word {
    int64_t i;
    double r;
} plan_word;

/* ---- the table of the graph ----
 *
 * A plan may keep the graph that it was compiled from (weir_compile(.keep_graph)): the author's, before any pass, as far as a
 * proof and a check of gradients read it (graph/verify/table.h). Nothing that runs a plan looks at it. So it has arrays, texts and
 * words of its own, counts in no hash but table_hash, and is in no part and no spread plan: a plan with it and the same one
 * without it are the same plan to ranks and checkpoints. Texts of these structures are places in graph_strings. */

typedef struct plan_graph_tensor {
    plan_str name;
    plan_str file;           /* the user's, and the line there; "" and 0: not known */
    uint32_t line;
    plan_graph_node_id node; /* that makes it; PLAN_NONE: a parameter or state */
    uint32_t micro;          /* 1: exists once per micro-batch */
    uint32_t trains;         /* 1: a parameter that trains, or depends on one */
    uint32_t dtype;
    uint32_t rank;
    /* parameters and states; 0 and PLAN_NONE in all others */
    plan_graph_node_id update; /* that changes it, once a step */
    uint32_t asked;          /* bit p: program p has it */
    uint32_t frozen;
    uint32_t delay;          /* of a state: steps after which what it is set to is read; 0: a parameter */
    uint32_t init;           /* weir_init_kind */
    int64_t shape[WEIR_DIMS_MAX];
    double a, b;             /* of init */
} plan_graph_tensor;

/* In the order in which they were made: a node reads what nodes before it make. */
typedef struct plan_graph_node {
    plan_str op;
    plan_str name;
    plan_str file;
    uint32_t line;
    plan_program_id program; /* in plan->programs, which are the graph's */
    uint32_t phase;          /* plan_phase */
    uint32_t host;           /* plan_host_kind + 1; 0: none */
    uint32_t micro;          /* 1: fires once per micro-batch */
    uint32_t fills;          /* 1: its output is published once a step all the same */
    uint32_t by_hand;        /* 1: its signatures were given by the program */
    plan_graph_node_id forward;    /* of what a gradient builder made: the node whose gradient it is part of */
    plan_graph_tensor_id updates;  /* the parameter or state that its first output is written over, or PLAN_NONE */
    plan_range in;           /* in plan->graph_refs */
    plan_range out;          /* in plan->graph_tensors */
    plan_range attrs;        /* in plan->graph_words */
} plan_graph_node;

/* The loss that is trained, and the line that says so; at most one. */
typedef struct plan_graph_loss {
    plan_graph_tensor_id tensor;
    plan_str file;
    uint32_t line;
} plan_graph_loss;

/* array, element type, member: of what runs, and of the table of the graph */
#define PLAN_RUN_LIST(X)            \
    X(plan_space, spaces)           \
    X(plan_queue, queues)           \
    X(plan_program, programs)       \
    X(plan_actor, actors)           \
    X(plan_port, ports)             \
    X(plan_regst, regsts)           \
    X(plan_tensor, tensors)         \
    X(plan_kernel, kernels)         \
    X(plan_operand, operands)       \
    X(plan_word, words)             \
    X(plan_init, inits)             \
    X(plan_param, params)           \
    X(plan_tensor_id, shards)       \
    X(plan_host, hosts)             \
    X(plan_collective, collectives) \
    X(plan_actor_id, members)       \
    X(plan_move, moves)             \
    X(plan_collective_id, turns)    \
    X(plan_limit, limits)           \
    X(char, strings)
#define PLAN_GRAPH_LIST(X)                  \
    X(plan_graph_tensor, graph_tensors)     \
    X(plan_graph_node, graph_nodes)         \
    X(plan_graph_tensor_id, graph_refs)     \
    X(plan_word, graph_words)               \
    X(plan_graph_loss, graph_losses)        \
    X(char, graph_strings)
#define PLAN_ARRAY_LIST(X) PLAN_RUN_LIST(X) PLAN_GRAPH_LIST(X)

struct weir_plan {
    uint32_t version;
    uint32_t micro_batches;
    uint64_t seed;
    uint32_t ranks;          /* processes that it is spread over (graph/plan/spread/spread.h); 1: says nothing of them */
    uint32_t part;           /* 1 + the rank whose part it is; 0: it is the whole */
    uint64_t whole;          /* of a part: the hash of the plan that it is a part of */
    uint64_t graph;          /* hash of the logical graph: which model it is, not where or how it runs */
    uint64_t rates;          /* hash of the rates that it was compiled with (graph/time/rates.h); 0: none */
    uint64_t hash;           /* of everything in the file but itself, `ops` and the table of the graph */
    uint32_t table_version;  /* PLAN_TABLE_VERSION: the plan keeps its graph; 0: it does not */
    uint64_t table_hash;     /* of the table of the graph; 0 without one */
    plan_str name;
#define X(type, member) \
    type *member;       \
    uint32_t member##_count;
    PLAN_ARRAY_LIST(X)
#undef X
    callback_binding *bindings;  /* hosts_count of them, or NULL; not in the file */
    _Atomic uint32_t held;   /* how many sessions keep it, whether its owner frees it or not */
};

/* The plan stays until weir_plan_free() is called once more. Any thread. */
void plan_hold(const weir_plan *plan);

static inline const char *plan_text(const weir_plan *plan, plan_str str)
{
    return plan->strings + str.i;
}

/* A text of the table of the graph. */
static inline const char *plan_graph_text(const weir_plan *plan, plan_str str)
{
    return plan->graph_strings + str.i;
}

/* The space of an actor: its queue's; the one that a tensor lies in; and the rank that runs an actor. */
static inline plan_space_id plan_actor_space(const weir_plan *plan, uint32_t actor)
{
    return plan->queues[plan->actors[actor].queue.i].space;
}
static inline plan_space_id plan_tensor_space(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST ? plan->regsts[tensor->owner].space : plan_actor_space(plan, tensor->owner);
}
static inline uint32_t plan_rank_of(const weir_plan *plan, uint32_t actor)
{
    return plan->spaces[plan_actor_space(plan, actor).i].rank;
}

/* Whether the port counts slots. One that does not reads what is there throughout a run: a constant, or what another
 * program's actor makes, which is at rest meanwhile. */
static inline bool plan_port_counts(const weir_plan *plan, const plan_port *port)
{
    uint32_t producer = plan->regsts[port->regst.i].producer.i;
    return producer != PLAN_NONE && plan->actors[producer].program.i == plan->actors[port->actor.i].program.i;
}

/* Whether it reads what another program makes. */
static inline bool plan_port_crosses(const weir_plan *plan, const plan_port *port)
{
    return plan->regsts[port->regst.i].producer.i != PLAN_NONE && !plan_port_counts(plan, port);
}

/* The actor of a collective's member m; and the program of a collective, which all of them are of. */
static inline const plan_actor *plan_member(const weir_plan *plan, const plan_collective *of, uint32_t m)
{
    return &plan->actors[plan->members[of->members.first + m].i];
}
static inline uint32_t plan_program_of(const weir_plan *plan, const plan_collective *of)
{
    return plan_member(plan, of, 0)->program.i;
}

/* Whether a collective adds, which its devices do in an order of their own; and how many a step has, each as often as it
 * fires. If there are any, bits may differ with the devices' communicator, and so with the spread. */
static inline bool plan_adds(const plan_collective *of)
{
    return of->kind == PLAN_REDUCE_SCATTER || of->kind == PLAN_ALL_REDUCE;
}
uint32_t plan_fast_sums(const weir_plan *plan);

/* The value that a host function gives or takes; of a call its first output. NULL: it has none. */
const plan_tensor *plan_host_tensor(const weir_plan *plan, uint32_t host);

/* Bytes of a tensor's elements (unpadded). */
uint64_t plan_tensor_bytes(const plan_tensor *tensor);

/* Whether the two hold the same elements of a logical tensor. */
bool plan_same_part(const plan_tensor *a, const plan_tensor *b);

/* Whether shard i of a parameter is the one that is saved of those that hold the same elements. Their holders take
 * turns from parameter to parameter, so that each writes about as much as the others. */
bool plan_saves(const weir_plan *plan, const plan_param *param, uint32_t i);

/* Whether the values stay in a file: all shards lie in MAPPED spaces. */
bool plan_is_mapped(const weir_plan *plan, const plan_param *param);

/* Bytes of all MAPPED spaces; and how many others there are. */
uint64_t plan_bytes_mapped(const weir_plan *plan);
uint32_t plan_devices(const weir_plan *plan);

/* How many values of a shard are kept from step to step. */
uint32_t plan_kept_slots(const weir_plan *plan, const plan_tensor *tensor);

/* The host's memory beside an accelerator's space: the PINNED one of its index and rank. PLAN_NONE: there is none, or
 * the space is no accelerator's. */
plan_space_id plan_pinned_beside(const weir_plan *plan, plan_space_id space);

/* The kind that the moves of a collective look like: SEND_RECV, BROADCAST, ALL_GATHER, or else ALL_TO_ALL. */
plan_collective_kind plan_collective_looks(const weir_plan *plan, uint32_t collective);

/* Whether kernels on the queue may be called with what lies in the space. */
bool plan_queue_reaches(const weir_plan *plan, uint32_t queue, plan_space_id space);

/* Where the snapshot of what a space keeps lies: in it; an accelerator's in the host's memory beside it. PLAN_NONE when
 * there is none beside it. */
plan_space_id plan_snapshot_space(const weir_plan *plan, plan_space_id space);

/* Bytes that a copy of shard i takes in that snapshot: nothing when another one is saved, or it is frozen.
 * They lie there in the order of the parameters and their shards, each value padded to PLAN_ALIGN. */
uint64_t plan_snapshot_of(const weir_plan *plan, const plan_param *param, uint32_t i);

/* And all of them whose snapshot lies in each of the spaces (bytes[spaces_count]): what its snapshot_bytes are when it
 * has one. E_MEMORY. */
weir_status plan_snapshot_bytes(const weir_plan *plan, uint64_t *bytes);

/* Checks the whole plan: every index, range, size, rate, offset and overlap, operands against the op's rules, attribute
 * counts. E_PLAN and weir_error() naming the first fault. Bounded in time and memory by the size of the plan. Does
 * not play the token game; weir_plan_check() does. */
weir_status plan_validate(const weir_plan *plan);

/* Checks the table of the graph alone, as plan_validate() does, of a plan that is valid without it. */
weir_status plan_validate_table(const weir_plan *plan);

/* FNV-1a of every scalar and array of what runs, but `hash`; and of the table of the graph: its version and its arrays. */
uint64_t plan_hash(const weir_plan *plan);
uint64_t plan_table_hash(const weir_plan *plan);

/* The parts of weir_plan_save and weir_plan_load without the file. Encoded bytes are owned by the caller (free()). */
weir_status plan_encode(const weir_plan *plan, void **bytes, size_t *bytes_count);
weir_plan *plan_decode(const void *bytes, size_t bytes_count);

/* The ports that count slots, those of one register beside each other: register r's are readers[first[r]] up to
 * readers[first[r + 1]]. `first` has one more place than there are registers and is zeroed, `readers` one per port. */
void plan_index_readers(const weir_plan *plan, uint32_t *first, uint32_t *readers);

/* Bytes of one space by kind (plan_mem), every part padded to PLAN_ALIGN. Workspace is what only temporaries use. Parts
 * that are never needed at the same time share bytes, so the sum is spaces[space].bytes plus plan_bytes_shared(). */
void plan_bytes_by_kind(const weir_plan *plan, plan_space_id space, uint64_t bytes[PLAN_MEMS]);
uint64_t plan_bytes_shared(const weir_plan *plan, plan_space_id space);

/* Registers without tensors: their readers wait for the producer, and are given nothing. */
uint32_t plan_ordering_edges(const weir_plan *plan);

#endif
