/* weir/plan.h: compile a graph to a plan; keep it, look at it, prove it.
 *
 * A plan says everything that will happen at run time: per device the actors, the registers between them (how many
 * slots, how many bytes, where in the arena), every kernel call with its operands. It is proven free of deadlock before
 * weir_compile() returns it. A saved plan needs neither the graph nor the program that built it; host functions
 * (sources, sinks, calls) are known in it by name.
 *
 *     weir_plan *plan = weir_compile(g, .micro_batches = 4, .memory = "512MiB");
 *     if (!plan || weir_plan_save(plan, "model.plan"))
 *         fprintf(stderr, "%s\n", weir_error());
 *     weir_plan_free(plan);
 *
 * A plan is immutable; any number of threads and sessions may read it. Owned by the caller; the graph may be freed. A
 * session keeps the plan that it was opened with: weir_plan_free() may come first, and memory goes when the last is closed.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include <stdio.h>
#include <weir/graph.h>

WEIR_C_BEGIN

typedef struct weir_plan weir_plan;

/* How accelerators add up terms that lie on several of them. */
typedef enum weir_reduce {
    WEIR_SAME_BITS, /* in the order of the devices, so that a plan has the same bits however it is run */
    WEIR_FAST       /* as their communicator does it */
} weir_reduce;

typedef struct weir_compile_opts {
    size_t size;
    weir_src src;
    int micro_batches;   /* per step [1] */
    const char *memory;  /* limit per device, as "512MiB" or "2GB" [none]; with .link what arrives at it from other hosts
                            counts, too. Time is traded for what is over the limit: results of forward are computed again in
                            the backward pass, registers get fewer slots. No bit of what is computed changes. Where nothing
                            fits, weir_error() names the smallest limit that would do */
    const char *offload; /* where what a limit leaves no room for may wait, as "disk:/var/tmp": results of forward, and
                            the states of optimizers, are copied to a file in that directory and back while the device
                            computes. The file has no name, its bytes are taken when a session is opened (E_IO when there
                            is no room), and each device has one of its own. Without a limit nothing is moved [none] */
    uint64_t seed;       /* of parameters and dropout [0] */
    weir_dtype precision; /* WEIR_BF16, WEIR_F16: activations and their gradients are of this dtype, and products are
                            computed in it; parameters, what an optimizer keeps, gradients of weights, sums, statistics
                            and losses stay f32, and so does what goes outside and what weir_cast() says. With F16 the
                            loss is scaled (docs/design/numerics.md) [f32] */
    double loss_scale;   /* the first scale, of F16; best a power of two [65536] */
    int loss_scale_steps; /* it is doubled after so many steps without an infinite gradient; a step with one changes
                            nothing and halves it [2000] */
    bool no_fusion;      /* each op a kernel of its own: by default those that go over the same rows are put into one pass
                            over memory where that saves some, with the same bits; and on CUDA devices products take in
                            a gelu, its gradient or a bias's, which rounds otherwise (docs/gpu.md) [false] */
    int per_host;        /* devices of one host, if it is to count: a conversion among devices goes within each host first
                            (cpu:0 up to cpu:N-1 are the first), then between hosts. That is an order of sums, and so
                            the plan's: its bits are the same wherever it runs [0: hosts do not count] */
    weir_reduce reduce;  /* WEIR_FAST: a sum along one axis of a mesh of accelerators is one all_reduce or reduce_scatter
                            of theirs, where its parts are of equal size. Its bits may differ from one communicator, and
                            one spread over processes, to another, which weir_plan_show() says. On CPUs it changes
                            nothing [WEIR_SAME_BITS] */
    bool snapshot;       /* room for a copy of what lives from step to step, so that it can be written to the disk while
                            training goes on (weir_session_save(.async)) [false] */
    const char *link;    /* between hosts, as "10Gbit 200us": the bandwidth each way (bit, kbit, Mbit, Gbit, Tbit; a second)
                            and the round trip (us, ms, s). Registers that are read on another host get as many slots as it
                            takes to fill that link, within .memory, and so does what lies beside that way; their
                            contents wait in as many slots at the reader's (weir show --ranks). Which devices are one
                            host's .per_host says; without it each is a host of its own. weir_session_link()
                            tells what it was measured to be. No bit of what is computed changes [two slots, whatever
                            the link] */
} weir_compile_opts;

/* Compiles; NULL and weir_error() on a mistake in the graph, a limit that cannot be met, or no memory. Leaves the
 * graph as it is: it may be compiled again with other options. */
#define weir_compile(graph, ...) weir_compile_at(graph, WEIR_OPTS(weir_compile_opts, __VA_ARGS__))
weir_plan *weir_compile_at(const weir_graph *graph, const weir_compile_opts *opts);
void weir_plan_free(weir_plan *plan);

/* The file format is described in docs/plan.md. Loading checks everything: a file that loads is a valid plan, and is
 * live.
 *
 * Saving replaces the file at once, when the new one is on the disk: at any time the old plan or the new one is there. A
 * symbolic link stays, and the file that it leads to is replaced. A FIFO or a device is written. */
weir_status weir_plan_save(const weir_plan *plan, const char *path);
weir_plan *weir_plan_load(const char *path);

/* With several ranks (weir/cluster.h): rank 0 reads the file, and each rank gets what it runs of the plan and the
 * skeleton of the rest; all ranks call it, before they open a session of it. Alone it is weir_plan_load(). */
weir_plan *weir_plan_load_part(const char *path);

/* Plays the token game: WEIR_OK when one step completes and returns to the start; else WEIR_E_LIVE, and weir_error()
 * tells which actors wait for each other and which register has too few slots. */
weir_status weir_plan_check(const weir_plan *plan);

/* Planned bytes: of one device, or (device < 0) of all but disks, whose bytes are no memory. */
uint64_t weir_plan_bytes(const weir_plan *plan, int device);

/* ---- what a program that never saw the graph has to know ---- */

/* Micro-batches per step. */
int weir_plan_micro_batches(const weir_plan *plan);

typedef enum weir_host_kind {
    WEIR_HOST_SOURCE, /* a source callback, to be bound when the session is opened */
    WEIR_HOST_SINK,   /* a sink callback, likewise */
    WEIR_HOST_CALL,   /* a weir_call() function, likewise */
    WEIR_HOST_PUSH,   /* an input that is fed by weir_session_push() */
    WEIR_HOST_PULL    /* a fetch that is taken by weir_session_pull() */
} weir_host_kind;

/* Where the program around a plan gives or takes values. */
typedef struct weir_host_info {
    const char *name;    /* owned by the plan */
    weir_host_kind kind;
    weir_type type;      /* logical, of the value given or taken; of a call: of its first output, if it has any. A call that
                            is split over a mesh is there once for each device */
    int per_step;        /* values per step: 1, or the number of micro-batches */
    const char *program; /* that it belongs to: "main"; owned by the plan */
} weir_host_info;
int weir_plan_host_count(const weir_plan *plan);
weir_status weir_plan_host(const weir_plan *plan, int index, weir_host_info *info);

typedef enum weir_param_kind {
    WEIR_PARAMETER,       /* "h0/q/weight" */
    WEIR_OPTIMIZER_STATE, /* of one: "h0/q/weight:adamw.m" */
    WEIR_STATE            /* any other value that a later step reads */
} weir_param_kind;

/* A value that lives from step to step, as weir_session_read() and weir_session_write() know it. */
typedef struct weir_param_info {
    const char *name; /* owned by the plan */
    weir_type type;   /* logical */
    weir_param_kind kind;
    bool frozen;      /* nothing in the plan changes it */
} weir_param_info;
int weir_plan_param_count(const weir_plan *plan);
weir_status weir_plan_param(const weir_plan *plan, int index, weir_param_info *info);

/* ---- to look at ---- */

/* One sentence without an end about what was given up to keep within the limit, into `text` (160 bytes are enough): "kept to 800 MiB instead of 1.1 GiB: 96 kernels run again, ...". False, and "", when there was nothing to give
 * up. */
bool weir_plan_limited(const weir_plan *plan, char *text, size_t text_bytes);

weir_status weir_plan_show(const weir_plan *plan, FILE *to);  /* for people: memory by kind and device, actors, and
                                                                what each reads and writes in a step */
weir_status weir_plan_json(const weir_plan *plan, FILE *to);  /* the same and more, one JSON object */

typedef struct weir_list_opts {
    size_t size;
    weir_src src;
    bool tensors;       /* logical tensors, each with its devices, its layout and the place in the user's program that
                           makes it; else actors [false] */
    bool json;          /* an array of objects */
    const char *filter; /* a glob, as of fnmatch(): names of tensors; of actors, of their kernels and of these' ops [all] */
    const char *device; /* a glob of devices' names, "cpu:[0-3]" [all] */
    int stage;          /* of a pipeline, from 1 on: what shares parameters is one [0: all] */
} weir_list_opts;
/* Lists what is asked for, one a line. A layout says how often dimensions are cut, S(0)/2, and how many shards have the
 * same elements, as terms that are added, P/2, or alike, B/2. E_ARGUMENT: nothing is so. */
#define weir_plan_list(plan, to, ...) weir_plan_list_at(plan, to, WEIR_OPTS(weir_list_opts, __VA_ARGS__))
weir_status weir_plan_list_at(const weir_plan *plan, FILE *to, const weir_list_opts *opts);

/* For graphviz: what stages do in each phase, layers that do the same as one, and what they read of each other. */
weir_status weir_plan_picture(const weir_plan *plan, FILE *to);
weir_status weir_plan_dot(const weir_plan *plan, FILE *to);   /* for graphviz, too: each actor and register */

WEIR_C_END
#endif
