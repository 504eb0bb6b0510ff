/* graph/model/build.h: the logical graph, as the DSL builds it and the compiler reads it.
 *
 *     weir_graph: meshes, tensors, nodes (op applications) in the order in which they were made, which is a topological
 *     order, since an op can only use what exists
 *
 *        node --out--> tensor --in--> node        a parameter is a tensor without a node; `update` is the node that
 *                                                  changes it in place, once a step; so it is for
 *                                                  a state
 *
 * Special ops (kernels/core): `source` and `sink` are the ends of inputs and fetches and live on one device; `shard` is
 * explicit boxing, has no kernel and disappears in the box pass; weir_input() is a source followed by a shard, and so
 * is weir_call() a `call` on one device and a shard, when its mesh has several.
 *
 * Everything lives in the graph's pool. One thread at a time. Compiling only reads.
 */
#ifndef GRAPH_MODEL_BUILD_H
#define GRAPH_MODEL_BUILD_H

#include "graph/plan/form/plan.h"
#include "graph/base/pool.h"

#include <weir/weir.h>

typedef struct graph_node graph_node;

/* Axes of a mesh of the compiler's own: a user's axis may have become several. */
enum { MESH_AXES_MAX = 20 };

struct weir_mesh {
    weir_graph *graph;
    const weir_mesh *home;     /* of a mesh in tiers (graph/compile/sbp/teams.h): the user's mesh, which has the same devices
                                  in the same places; else NULL */
    unsigned char home_axis[MESH_AXES_MAX]; /* then: the axis of it that each is a tier of, */
    unsigned char cut[MESH_AXES_MAX];       /* and in which order axes cut a dimension that several split */
    const weir_mesh *whole;    /* of a core (graph/compile/sbp/teams.h): the mesh that lacks nothing; else NULL */
    int core_axis, run, kept;  /* then: of each so many coordinates of that axis, it has the first so many */
    int axes;
    int shape[MESH_AXES_MAX];  /* a user's mesh has at most WEIR_AXES_MAX */
    int count;                 /* devices */
    int *device;               /* indexes, row-major over shape; in the pool */
    weir_device_kind kind;
};

struct weir_tensor {
    weir_graph *graph;
    int id;                    /* in graph->tensors */
    weir_type type;
    weir_mesh *mesh;
    const char *name;
    graph_node *node;          /* producer; NULL: a parameter or state */
    weir_sbp sbp[WEIR_AXES_MAX]; /* as the user fixed it; AUTO elsewhere */
    int slots;                 /* as the user fixed it; 0 */
    bool micro;                /* exists once per micro-batch */
    bool poisoned;
    uint32_t asked;            /* of a parameter or state: by which programs (a bit each) */
    uint32_t used;             /* and by which it is read or changed */
    bool trains;               /* a parameter that trains, or depends on one */
    /* parameters and states */
    weir_init init;
    bool frozen;
    bool mapped;               /* its values stay in a file; so are those of a layout of it by weir_shard() */
    int delay;                 /* of a state: steps after which what it is set to is read; 0: it is none */
    weir_src src;
    graph_node *update;        /* by the optimizer, or by who set the state */
    weir_tensor *average;      /* of a parameter: the state that weir_train(.ema) keeps its average in; NULL: none */
    weir_tensor *gradient;     /* that of the loss by it, when the gradients of its readers are added; NULL: none was made */
    weir_tensor *again;        /* the same, computed once more in the backward pass */
    weir_tensor *length;       /* how many of its rows are there; NULL: all, it does not vary */
    bool zero[WEIR_AXES_MAX];  /* its master copy is split over this axis, and gathered for its readers */
};

struct graph_node {
    int id;                    /* in graph->nodes */
    const weir_op *op;
    const char *name;
    weir_src src;
    weir_mesh *mesh;
    weir_tensor **in, **out;
    int in_count, out_count;
    void *attrs;
    plan_phase phase;
    weir_tensor **gradients;   /* that its gradient builder made of its inputs, or NULL; NULL: it was not called */
    const graph_node *forward; /* of what a gradient builder made: the node whose gradient it is part of; else NULL */
    weir_graph *in_graph;
    int program;               /* in graph->programs */
    bool micro;
    int micros;                /* micro-batches that a step must have; 0: any number */
    int host;                  /* plan_host_kind + 1; 0: none */
    callback_binding binding;
    const char *queue;         /* of those on its device; NULL: the first */
    const weir_signature *by_hand; /* one for each axis of its mesh, as the user gave them; NULL: the op's own */
    int fetch_slots;
    weir_tensor *updates;      /* the parameter or state that out[0] is written over */
    bool fills;                /* its output is published once a step although it fires once per micro-batch */
};

typedef struct graph_scope {
    weir_mesh *mesh;
    const char *prefix;        /* "a/b/" */
} graph_scope;

typedef struct graph_name {
    const char *name;          /* NULL: an empty place */
    weir_src src;              /* where it was first used */
    weir_tensor *shared;       /* the parameter or state of this name; NULL: it is another thing's */
    int next;                  /* NAME_<next> is the next to try for another that wants to be called so */
} graph_name;

/* A parameter's value in the file that the graph was read from (include/weir/onnx.h). */
typedef struct graph_value {
    weir_tensor *tensor;
    void *data;                /* in the pool */
} graph_value;

/* A second name of a tensor. */
typedef struct graph_alias {
    const char *name;
    weir_tensor *tensor;
} graph_alias;

typedef struct graph_program {
    const char *name;
    const char *prefix;        /* of the names of what it builds: "", "eval/" */
    bool trains;
    bool averages;             /* reads the averages of parameters */
} graph_program;

struct weir_graph {
    pool pool;
    int64_t made_ns;           /* when, by a clock that never goes back */
    const char *name;
    POOL_LIST(graph_program) programs; /* the first is main */
    int program;               /* that of the nodes built now */
    POOL_LIST(weir_mesh *) meshes;
    POOL_LIST(weir_tensor *) tensors;
    POOL_LIST(graph_node *) nodes;
    POOL_LIST(graph_scope) scopes;
    POOL_LIST(graph_value) values;
    POOL_LIST(graph_alias) aliases;
    graph_name *names;         /* hash set of the names in use */
    int names_count, names_room;
    const char *mistake;
    weir_tensor poison;        /* handed out when there is no memory for another */
    plan_phase phase;          /* of the nodes built now */
    const graph_node *forward; /* whose gradient is built now; or NULL */
    weir_tensor *loss;         /* set by weir_train, */
    weir_src loss_src;         /* which was called here */
    bool recompute;            /* as weir_train was asked */
    bool of_plan;              /* it comes from a plan (graph/verify/table.h): its tensors have no mesh, its nodes no functions */
};

/* Whether "fake:0-3" names devices. Tests set it; nothing else does. */
extern bool mesh_takes_fakes;
/* Meshes with the same devices in the same arrangement are the same place. */
bool mesh_equal(const weir_mesh *a, const weir_mesh *b);
/* The mesh that `mesh` is, or is tiers of: the user's, or a core. */
static inline const weir_mesh *mesh_home(const weir_mesh *mesh)
{
    return mesh->home ? mesh->home : mesh;
}
/* The mesh that all of these come from. */
static inline const weir_mesh *mesh_user(const weir_mesh *mesh)
{
    for (mesh = mesh_home(mesh); mesh->whole; mesh = mesh->whole)
        ;
    return mesh;
}
/* Writes "cpu:0-3", with the quotes, to `text` (16 bytes or more), cut off where it is too long, and returns it. */
const char *mesh_text(const weir_mesh *mesh, char *text, size_t bytes);
/* The mesh of the first device of `mesh` alone. */
weir_mesh *mesh_first(weir_mesh *mesh);

/* The innermost scope: its mesh, or NULL, and what names begin with. */
weir_mesh *graph_scope_mesh(const weir_graph *graph);
const char *graph_scope_prefix(const weir_graph *graph);

/* To which what is built now belongs. */
static inline const graph_program *graph_program_now(const weir_graph *graph)
{
    return &graph->programs.item[graph->program];
}

/* For weir_graph.made_ns. */
int64_t graph_now_ns(void);

/* Opens a scope on `mesh`, which adds nothing to names. */
weir_scope graph_scope_on(weir_mesh *mesh);

/* Opens a scope of which the prefix is exactly `prefix` (in the pool), for names that do not follow the user's
 * scopes. */
weir_scope graph_scope_absolute(weir_graph *graph, weir_mesh *mesh, const char *prefix);

/* The mesh for what has no inputs: the innermost scope's, else the graph's first, else a new one of "cpu:0". */
weir_mesh *graph_default_mesh(weir_graph *graph);

/* `name` behind the program's and the scope's prefix, entered as in use; a mistake when it was. */
/* Whether something of the graph has this name, as it is known outside. */
bool graph_name_used(weir_graph *g, const char *full);
const char *graph_full_name(weir_graph *graph, weir_src src, const char *name);

/* The same for a parameter or state, which all programs know by the same name; `shared` is the one of it, entered by
 * the caller when NULL. */
graph_name *graph_shared_name(weir_graph *graph, weir_src src, const char *name);

/* Reports that the name, which is in use, cannot be given again. */
void graph_name_taken(weir_graph *graph, weir_src src, const char *full);

/* Whether something is fetched under this name already, in the program that is built; reports. */
bool graph_fetch_taken(weir_graph *graph, weir_src src, const char *called);

/* The name without that of its program. */
const char *graph_short_name(const graph_node *node);
const char *graph_tensor_short_name(const weir_tensor *x);

/* A parameter or state is read or changed by what is built now. False when that cannot be, after a mistake. */
bool graph_use(weir_tensor *x, weir_src src);

/* A new tensor without anything in it; NULL when there is no memory. */
weir_tensor *graph_tensor_new(weir_graph *graph);

/* weir_op_apply() for the graph's own use: the node, or NULL after a mistake. The graph must be known. */
graph_node *graph_apply(const weir_apply *apply);

/* Whether it is there for what it does, although nobody may read what it makes. */
static inline bool graph_acts(const graph_node *node)
{
    return node->updates || node->op->effect;
}

/* Which model it is: the parameters and states of its main program, and what is done in that one's forward pass. Where
 * it runs, in what layout and with how large batches, changes nothing. */
uint64_t graph_hash(const weir_graph *graph);

/* `x`; where it is what a step begins with (a parameter, a state, however laid out), a copy, for who must not hold up
 * whoever changes that. Poisoned after a mistake. */
weir_tensor *graph_copied(weir_tensor *x, weir_src src);

/* The sum over the micro-batches of a step: published once a step, with this name as it is. NULL: no memory, or a mistake. */
weir_tensor *graph_step_sum(weir_tensor *each, const char *name);

/* Whether the scope around it, if there is one, may be meant for this graph; reports. `what` is what is built. */
bool graph_scope_ok(weir_graph *graph, weir_src src, const char *what);

/* Makes the first mistake that had no graph, if there is one, the thread's error, and forgets it. */
bool graph_stray_report(void);

/* A mistake on the graph itself. NULL: the thread's next weir_compile() reports it. */
void graph_mistake(weir_graph *graph, weir_src src, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Copies a call's options to `own` (graph/base/opts.h); what is wrong with them is a mistake. `what` is the word for it. */
bool graph_opts(weir_graph *graph, const char *what, const void *given, void *own, size_t own_bytes);

/* Builds the backward graph of `loss` from its gradient `seed` on. For every parameter that trains and that the loss
 * depends on, `done` is called once, as soon as its gradient is complete (gradients of unused parameters are not
 * made). False after a mistake (sticky). */
typedef void (*autograd_done)(void *ctx, weir_tensor *parameter, weir_tensor *gradient);
bool autograd(weir_tensor *loss, weir_tensor *seed, autograd_done done, void *ctx);

#endif
