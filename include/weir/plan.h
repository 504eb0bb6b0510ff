/* weir/plan.h: compile a graph to a plan; save, load, show and check plans.
 *
 * A plan describes everything that will happen at run time: for each device its actors, the registers between them (number
 * of slots, bytes, offset in the arena), and every kernel call with its operands. weir_compile() returns a plan only
 * after it has proven that the plan cannot deadlock. A saved plan needs neither the graph nor the program that built it;
 * it refers to functions of the program (sources, sinks, calls) by name.
 *
 *     weir_plan *plan = weir_compile(g, .micro_batches = 4, .memory = "512MiB");
 *     if (!plan || weir_plan_save(plan, "model.plan"))
 *         fprintf(stderr, "%s\n", weir_error());
 *     weir_plan_free(plan);
 *
 * A plan is immutable; any number of threads and sessions may read it. The caller owns it; the graph may be freed. A session
 * holds a reference to its plan, so weir_plan_free() may be called before the session is closed.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include <stdio.h>
#include <weir/graph.h>

WEIR_C_BEGIN

typedef struct weir_plan weir_plan;
typedef struct weir_rates weir_rates; /* how long things take on a machine (weir/time.h) */

/* The order in which several accelerators add their terms of a sum. */
typedef enum weir_reduce {
    WEIR_SAME_BITS, /* the order of the devices: a plan has the same bits on any number of processes */
    WEIR_FAST       /* the order of the communication library (NCCL); bits may differ */
} weir_reduce;

typedef struct weir_compile_opts {
    size_t size;
    weir_src src;
    int micro_batches;   /* per step [1] */
    const char *memory;  /* limit per device, such as "512MiB" or "2GB"; with .link it includes the receive slots for other
                            hosts. If the plan exceeds it, the compiler recomputes results of the forward pass in the backward
                            pass and uses fewer slots, which makes a step slower; the results have the same bits. If no plan
                            fits, weir_error() names the smallest limit that works [none] */
    const char *offload; /* "disk:/var/tmp": with a limit, results of the forward pass and states of optimizers may wait in a
                            file in that directory; they are copied there and back while the device computes. Each device
                            has a file, which has no name; a session takes its bytes when it opens (E_IO if the disk is full)
                            [none] */
    uint64_t seed;       /* of parameters and dropout [0] */
    weir_dtype precision; /* WEIR_BF16, WEIR_F16: the dtype of activations, their gradients and the inputs of products.
                            Parameters, optimizer states, gradients of weights, sums, statistics, losses and values that leave
                            the plan stay f32, and weir_cast() gives the dtype that it names. With F16 the loss is
                            scaled (docs/design/numerics.md) [f32] */
    double loss_scale;   /* the first scale with F16, best a power of two [65536] */
    int loss_scale_steps; /* the scale doubles after so many steps without an infinite gradient; a step with one changes
                            nothing and halves the scale [2000] */
    bool no_fusion;      /* each op is a kernel of its own. By default ops over the same rows share one pass over memory if
                            that saves time, with the same bits; and on CUDA devices a product includes a following gelu, its
                            gradient or a bias's, which rounds differently (docs/gpu.md) [false] */
    int per_host;        /* devices of one host (cpu:0 to cpu:N-1 are the first host's): a conversion first goes within each
                            host, then between hosts. This sets the order of sums, and so the bits of the plan, which are the
                            same wherever it runs [0: hosts do not count] */
    weir_reduce reduce;  /* WEIR_FAST: a sum along one axis of a mesh of accelerators is one all_reduce or reduce_scatter
                            if its parts are of equal size. Its bits may then depend on the communication library and the
                            number of processes; weir_plan_show() marks such plans. Nothing changes on CPUs
                            [WEIR_SAME_BITS] */
    bool snapshot;       /* add a slot for a copy of everything that lives from step to step, so that a session can write
                            it to the disk while training continues (weir_session_save(.async)) [false] */
    const char *link;    /* the link between hosts, such as "10Gbit 200us": bandwidth each way (bit, kbit, Mbit, Gbit, Tbit;
                            a second) and round trip (us, ms, s); weir_session_link() measures it. Registers read on another
                            host, and those on parallel paths to the same readers, get enough slots to keep the link busy,
                            within .memory; the reading rank has as many receive slots (weir show --ranks). .per_host says
                            which devices are one host; without it each device is a host. Same bits [two slots, for any
                            link] */
    bool keep_graph;     /* the plan keeps the graph, and weir_plan_save() writes it: weir_plan_graph() gives it back, and
                            `weir check --graph` proves that the plan computes it, without this program. Nothing else changes,
                            the plan's hash included [false] */
    const weir_rates *rates; /* a machine, as weir_measure() found it: layouts that the graph leaves open, what a .memory limit gives
                            up, and the number of slots follow from its times instead of a general model's. Other layouts may sum in
                            another order, and so have other bits; slots and limits change none. All ranks must give the same:
                            the plan's hash includes them, and weir_plan_show() says their hash, which is the last line of their file.
                            Borrowed for the call [those in the file that the environment variable WEIR_RATES names; else none] */
} weir_compile_opts;

/* Compiles a graph. NULL and weir_error(): a mistake in the graph, a limit that cannot be met, or no memory. Does not change
 * the graph, which may be compiled again with other options. */
#define weir_compile(graph, ...) weir_compile_at(graph, WEIR_OPTS(weir_compile_opts, __VA_ARGS__))
weir_plan *weir_compile_at(const weir_graph *graph, const weir_compile_opts *opts);
void weir_plan_free(weir_plan *plan);

/* Save and load a plan; docs/plan.md describes the file. Loading checks everything: a file that loads is a valid plan that
 * cannot deadlock.
 *
 * Saving replaces the file atomically, when the new one is on the disk: at any time the path has the old plan or the new
 * one. If `path` is a symbolic link, the file that it leads to is replaced. A FIFO or a device is written to. */
weir_status weir_plan_save(const weir_plan *plan, const char *path);
weir_plan *weir_plan_load(const char *path);

/* Loads a plan on several ranks (weir/cluster.h): rank 0 reads the file, and each rank receives the part that it runs and
 * the skeleton of the rest. All ranks call it before they open a session of the plan. In a process alone it is
 * weir_plan_load(). */
weir_plan *weir_plan_load_part(const char *path);

/* Simulates the messages of one step. WEIR_OK: the step completes and leaves every register in its first state, so no
 * step can deadlock. WEIR_E_LIVE: weir_error() names the actors that wait for each other, and the register with too few
 * slots. */
weir_status weir_plan_check(const weir_plan *plan);

typedef struct weir_verify_opts {
    size_t size;
    weir_src src;
    uint64_t seed; /* of all values, and of the orders in which actors fire [0] */
    int rounds;    /* each with other values and another order [2] */
    bool local;    /* judges each kernel alone, as part of an op of the graph, and each conversion by what it covers: for plans
                      of a thousand devices. Does not see the order in which values are read and overwritten
                      (docs/design/proof.md) [false] */
    const char *memory; /* the most that the proof may take, such as "8GiB" [half of this machine's] */
    void (*progress)(void *ctx, double part); /* told about once a second how much is done, from 0 to 1, by the thread that
                                                 verifies [nobody] */
    void *ctx;          /* of progress */
    const char *program; /* run this program of the plan alone, as "main" [all, one after the other] */
} weir_verify_opts;

/* Proves that a plan computes what its graph says: for all values of inputs, parameters and states, over the real numbers,
 * whatever order its actors fire in, the parameters, states and fetches after some steps are the graph's. Both are computed over
 * a finite field with random values, the plan on a shadow of its arenas; equal ones always agree, unequal ones agree with a
 * probability below 1e-20 (docs/design/proof.md). Rounding is no part of it, nor is whether kernels compute their ops.
 *
 * WEIR_OK: they agree. E_WRONG: they do not; weir_error() names a value, an element of it, and the kernel that makes it wrong,
 * with both lines of the program. E_UNSUPPORTED: a call is split by hand, which cannot be verified. E_MEMORY: a field value for
 * each element of the plan's arenas and of the graph's tensors is more than .memory; nothing has been computed then, and .local
 * takes less.
 * `graph` is the one that was compiled; nothing is changed. Takes a thousand times as long as the steps that it computes: some
 * seconds for a small model. Any thread. */
#define weir_plan_verify(graph, plan, ...) weir_plan_verify_at(graph, plan, WEIR_OPTS(weir_verify_opts, __VA_ARGS__))
weir_status weir_plan_verify_at(const weir_graph *graph, const weir_plan *plan, const weir_verify_opts *opts);

/* Gives the graph that a plan keeps (weir_compile(.keep_graph)) to weir_plan_verify(), in a program that did not build it:
 *
 *     weir_graph *graph;
 *     weir_status status = weir_plan_graph(plan, &graph);
 *     if (!status)
 *         status = weir_plan_verify(graph, plan);
 *     weir_graph_free(graph);
 *
 * The graph is new and the caller's, who frees it with weir_graph_free(); the plan may be freed before. It has no devices and no
 * functions, so weir_compile() refuses it. E_ARGUMENT: the plan keeps none, as every part of a plan that is spread over ranks.
 * E_PLAN: it keeps the graph of another model. E_MEMORY. On failure *graph is NULL. Any thread. */
weir_status weir_plan_graph(const weir_plan *plan, weir_graph **graph);

typedef struct weir_gradients_verify_opts {
    size_t size;
    weir_src src;
    uint64_t seed;      /* of all values and directions [0] */
    int rounds;         /* each with other values [2] */
    int micro_batches;  /* of a step [2] */
    const char *memory; /* the most that the proof may take, such as "8GiB" [half of this machine's] */
    /* Told once of each application of an op whose gradient is not covered: `name` ("h0/act"), the op's name, and the line of the
     * program; in the order of the graph, before anything is computed. The texts are the graph's [nobody] */
    void (*not_covered)(void *ctx, const char *name, const char *op, weir_src src);
    void *ctx;          /* of not_covered */
} weir_gradients_verify_opts;

/* Proves that the gradients that a graph's updates read are those of its loss: for all values of inputs, parameters and states,
 * over the real numbers, summed over the micro-batches of a step (as weir/train.h says), before they are clipped. The forward
 * graph is computed over a finite field with dual numbers, in which each parameter moves along a random direction. The derivative
 * of the loss must be the sum of the products of directions and gradients. Right gradients always pass, wrong ones with a
 * probability below 1e-20 (docs/design/proof.md). Frozen parameters, inputs, states, and results of calls, weir_batch() and
 * weir_unbatch() are constants, as they are for weir_train().
 *
 * The gradient of an op of your own is covered if the op and all ops of your own that its `grad` applies are registered, have a
 * rule `exact` (weir/exact.h) and have no states. The call tells `not_covered` of the others. WEIR_OK then says that all gradients
 * are right if those of these ops are.
 *
 * E_WRONG: a gradient is wrong; weir_error() names a parameter, with the line of the program, and the op that makes a wrong
 * gradient of one of its inputs. E_ARGUMENT: nothing trains (weir_train()). E_MEMORY: two field values for each element of the
 * graph's tensors are more than .memory. The graph need not be compiled; nothing is changed. Any thread, while no other one
 * changes the graph. */
#define weir_gradients_verify(graph, ...) weir_gradients_verify_at(graph, WEIR_OPTS(weir_gradients_verify_opts, __VA_ARGS__))
weir_status weir_gradients_verify_at(const weir_graph *graph, const weir_gradients_verify_opts *opts);

/* Proves that two plans of one model compute the same, without its graph and without the program: in two layouts, with other
 * memory limits, precisions or numbers of micro-batches, fused or not. Both are played over a finite field with the same random
 * values, as weir_plan_verify() plays one; all parameters and states, by their names, and all fetches are the same after some
 * steps. Compile both with the same .seed, and for the same rows in a step.
 *
 * With other numbers of micro-batches, inputs and fetches [rows, ...] are those of a step cut otherwise, and other fetches
 * of each micro-batch are not compared. Plans differ then if the model draws dropout, or has a loss that is no mean over rows.
 *
 * WEIR_OK: they compute the same. E_WRONG: they do not; weir_error() names the first parameter, state or fetch that differs, an
 * element of it, and the line of the program that made it. E_ARGUMENT: they are plans of two models, or for other numbers of rows, or
 * one is a rank's part. E_UNSUPPORTED: a call is split by hand, or nothing can be compared. E_MEMORY: as weir_plan_verify(); it
 * takes a field value for each element of the larger plan's arenas, and of some copies of all that the plans keep. Any thread. */
#define weir_plan_same(a, b, ...) weir_plan_same_at(a, b, WEIR_OPTS(weir_verify_opts, __VA_ARGS__))
weir_status weir_plan_same_at(const weir_plan *a, const weir_plan *b, const weir_verify_opts *opts);

/* Returns the planned bytes of one device, or (device < 0) of all devices but disks and files that are mapped. */
uint64_t weir_plan_bytes(const weir_plan *plan, int device);

/* ---- for a program that did not build the graph ---- */

/* Micro-batches per step. */
int weir_plan_micro_batches(const weir_plan *plan);

typedef enum weir_host_kind {
    WEIR_HOST_SOURCE, /* a source callback, to be bound when the session is opened */
    WEIR_HOST_SINK,   /* a sink callback, likewise */
    WEIR_HOST_CALL,   /* a weir_call() function, likewise */
    WEIR_HOST_PUSH,   /* an input that is fed by weir_session_push() */
    WEIR_HOST_PULL    /* a fetch that is taken by weir_session_pull() */
} weir_host_kind;

/* An end of the plan at which the program gives or takes values. */
typedef struct weir_host_info {
    const char *name;    /* owned by the plan */
    weir_host_kind kind;
    weir_type type;      /* logical, of the value given or taken; for a call, of its first output, if it has any. A call
                            or source that is split over a mesh appears once for each device */
    int per_step;        /* values per step: 1, or the number of micro-batches */
    const char *program; /* that it belongs to: "main"; owned by the plan */
} weir_host_info;
int weir_plan_host_count(const weir_plan *plan);
weir_status weir_plan_host(const weir_plan *plan, int index, weir_host_info *info);

typedef enum weir_param_kind {
    WEIR_PARAMETER,       /* "h0/q/weight" */
    WEIR_OPTIMIZER_STATE, /* of a parameter: "h0/q/weight:adamw.m" */
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

/* Writes to `text` (160 bytes are enough) how the plan keeps its limit, without a full stop: "kept to 800 MiB instead of
 * 1.1 GiB: 96 kernels run again, ...". Returns false and writes "" if the limit changed nothing. */
bool weir_plan_limited(const weir_plan *plan, char *text, size_t text_bytes);

weir_status weir_plan_show(const weir_plan *plan, FILE *to);  /* text: memory by kind and device, actors, and
                                                                what each reads and writes in a step */
weir_status weir_plan_json(const weir_plan *plan, FILE *to);  /* the same and more, one JSON object */

typedef struct weir_list_opts {
    size_t size;
    weir_src src;
    bool tensors;       /* list logical tensors, with devices, layout and the line of the program that made each;
                           else actors [false] */
    bool json;          /* an array of objects */
    const char *filter; /* a glob (fnmatch) for names of tensors, or of actors, their kernels and ops [all] */
    const char *device; /* a glob for names of devices, "cpu:[0-3]" [all] */
    int stage;          /* number of a pipeline stage, from 1 on: devices with shards of the same parameter are one stage
                           [0: all] */
} weir_list_opts;
/* Writes one line for each that matches. S(0)/2 in a layout: dimension 0 is cut in two; P/2: two shards have terms of the
 * same elements; B/2: two shards have equal elements. E_ARGUMENT: nothing matches. */
#define weir_plan_list(plan, to, ...) weir_plan_list_at(plan, to, WEIR_OPTS(weir_list_opts, __VA_ARGS__))
weir_status weir_plan_list_at(const weir_plan *plan, FILE *to, const weir_list_opts *opts);

/* Write a graph for graphviz. picture: the stages in each phase, with equal layers as one, and the values that they pass on;
 * dot: each actor and register. */
weir_status weir_plan_picture(const weir_plan *plan, FILE *to);
weir_status weir_plan_dot(const weir_plan *plan, FILE *to);

WEIR_C_END
#endif
