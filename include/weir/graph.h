/* weir/graph.h: the DSL. A model is written as C functions of tensors. These build a logical graph: it describes the
 * computation and its placement on devices, not how data moves.
 *
 *     weir_graph *g = weir_graph_new("tiny");
 *     weir_mesh *m = weir_mesh_new(g, "cpu:0-1", .shape = {2});
 *     weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true);
 *     WEIR_ON(m, .name = "layer%d", .index = 0)
 *         x = weir_relu(weir_linear(x, 16, .name = "up"));
 *     weir_fetch(x, .name = "y");
 *
 * Options are designated initialisers after the positional arguments. An option that is left out is zero, which means its
 * default. Write WEIR_ZERO for the number 0 if the default is another number.
 *
 * Mistakes stick. A wrong call returns a poisoned tensor, and the graph keeps the first mistake with the user's file and
 * line. Calls on a poisoned tensor return poisoned tensors and report nothing more. weir_compile() reports the mistake, so
 * a program checks once. If all graph and tensor arguments of a call are NULL, it returns NULL and sets weir_error(), and
 * the next weir_compile() of this thread fails with that mistake, also for another graph.
 *
 * Placement. An op runs on the mesh of the innermost WEIR_ON around it. Outside WEIR_ON it runs on the mesh of its first
 * input that is not a parameter. Inputs and parameters go to the graph's first mesh, or to "cpu:0". If a tensor is used on
 * another mesh or in another SBP than it has, the compiler inserts a conversion.
 *
 * Rates. One step runs M micro-batches (.micro_batches of weir_compile). A tensor that depends on an input with .micro =
 * true exists once per micro-batch, all others once per step. The shape of a .micro input is that of one micro-batch.
 *
 * A graph and its tensors belong to one thread at a time; weir_graph_free() frees them all at once.
 */
#ifndef WEIR_GRAPH_H
#define WEIR_GRAPH_H

#include <weir/op.h>

WEIR_C_BEGIN

/* Returns a new, empty graph, or NULL if there is no memory. `name` is copied. Owned by the caller. */
weir_graph *weir_graph_new(const char *name);
void weir_graph_free(weir_graph *graph);

/* Returns the first mistake of the graph ("model.c:42: matmul: ..."), or NULL. Owned by the graph. For a NULL graph it returns
 * a sentence that says so. */
const char *weir_graph_mistake(const weir_graph *graph);

/* ---- meshes ---- */

typedef struct weir_mesh_opts {
    size_t size;
    weir_src src;
    int shape[WEIR_AXES_MAX]; /* devices per axis; {0}: one axis with all of them */
} weir_mesh_opts;

/* A mesh of the devices listed: "cpu:0", "cpu:0-3", "cpu:0,2,4-5", in row-major order over `.shape`. Owned by the
 * graph. */
#define weir_mesh_new(graph, devices, ...) \
    weir_mesh_new_at(graph, devices, WEIR_OPTS(weir_mesh_opts, __VA_ARGS__))
weir_mesh *weir_mesh_new_at(weir_graph *graph, const char *devices, const weir_mesh_opts *opts);
int weir_mesh_size(const weir_mesh *mesh); /* devices */

/* Places tensors that the next statement or block builds on `mesh` (NULL: as outside), and puts `.name` and a '/' before their
 * names. .index replaces "%d" in the name: WEIR_ON(m, .name = "h%d", .index = i); in C, `.index =` may be left out. Tensors
 * built there belong to the mesh's graph, or to a graph that is made there. `break`, `continue` and `return` leave the
 * scope correctly. */
typedef struct weir_scope_opts {
    size_t size;
    weir_src src;
    weir_graph *graph; /* only needed when the mesh is NULL */
    weir_mesh *mesh;
    const char *name;
    int64_t index;
} weir_scope_opts;
typedef struct weir_scope {
    weir_graph *graph;
    int depth;   /* scopes that were open before */
    int program; /* that was being built before */
    bool done;
    const weir_graph *outer; /* of the scope around it in this thread, */
    int64_t outer_since_ns;  /* and since when it is open */
} weir_scope;
weir_scope weir_scope_enter(const weir_scope_opts *opts);
void weir_scope_leave(weir_scope *scope);
#ifdef __GNUC__
#define WEIR_IN_(var, entered)                                                                         \
    for (weir_scope var __attribute__((cleanup(weir_scope_leave))) = entered; !var.done; var.done = true)
#else
#define WEIR_IN_(var, entered) \
    for (weir_scope var = entered; !var.done; var.done = true, weir_scope_leave(&var))
#endif
#define WEIR_ON_(var, ...) WEIR_IN_(var, weir_scope_enter(WEIR_OPTS(weir_scope_opts, __VA_ARGS__)))
#define WEIR_CAT_(a, b) a##b
#define WEIR_CAT(a, b) WEIR_CAT_(a, b)
#define WEIR_ON(m, ...) WEIR_ON_(WEIR_CAT(weir_scope_, __LINE__), .mesh = m, __VA_ARGS__)
/* Adds a name and no placement. */
#define WEIR_NAMED(g, ...) WEIR_ON_(WEIR_CAT(weir_scope_, __LINE__), .graph = g, .name = __VA_ARGS__)

/* ---- programs ---- */

typedef struct weir_program_opts {
    size_t size;
    weir_src src;
    bool train; /* trains, as "main" does: weir_dropout() drops, and weir_train() may be called [false] */
    bool averages; /* weir_param() gives the average of a parameter that has one (.ema of weir_train(), called before) [false] */
} weir_program_opts;

/* A graph may have several programs, such as "main" and "eval". They share the graph's parameters and states, and nothing
 * else. A run runs one program (.program of weir_session_run). Tensors built after this call belong to the program `name`,
 * until another such call or the end of the enclosing scope; tensors built before the first call belong to "main".
 *
 *     weir_tensor *loss = model(g);                 // weir_input(.name = "tokens"), weir_param(.name = "w"), ...
 *     weir_train(loss, weir_adamw());
 *     WEIR_PROGRAM(g, "eval")
 *         weir_fetch(model(g), .name = "loss");     // the same parameters; other tokens
 *
 * weir_param() or weir_state() with the full name of one that another program made returns that one. Its shape and dtype must
 * be the same, else it is a mistake; mesh, layout and initial values are those of the first call. Two programs may use one
 * name for other things, such as a fetch. To push, pull or bind, put the program before the name: "eval/loss"; names of
 * main have no prefix.
 *
 * A program reads the value of another program as the other's last step left it. Only one program may train a given
 * parameter, or set a given state. */
#define weir_graph_program(graph, name, ...) \
    weir_graph_program_at(graph, name, WEIR_OPTS(weir_program_opts, __VA_ARGS__))
void weir_graph_program_at(weir_graph *graph, const char *name, const weir_program_opts *opts);

/* The same for the next statement or block. */
#define WEIR_PROGRAM(graph, name, ...)              \
    WEIR_IN_(WEIR_CAT(weir_scope_, __LINE__),       \
             weir_program_enter(graph, name, WEIR_OPTS(weir_program_opts, __VA_ARGS__)))
weir_scope weir_program_enter(weir_graph *graph, const char *name, const weir_program_opts *opts);

/* Returns whether the program that is being built trains. */
bool weir_graph_trains(const weir_graph *graph);

/* ---- inputs ---- */

/* Fills `dst` (the whole logical tensor; with .split the shard that begins at dst->offset) for one micro-batch (without .micro:
 * for one step). It runs on a thread that only calls the sources, sinks and calls of one device, so it may wait for a disk while
 * the device computes on earlier values.
 * It is called in order, ahead by a value or two (or by more for a link between hosts, weir_compile(.link)), but not beyond
 * the run.
 * WEIR_END: there is no value for this step and later ones; the session ends before this step. Any other status but
 * WEIR_OK fails the session, after the earlier steps have been finished. The session's error then contains the sentence of the
 * last weir function that failed in this call, if any did. */
typedef weir_status (*weir_source_fn)(void *ctx, const weir_view *dst, int64_t step, int micro);
/* Save and restore the position of a source in a checkpoint, if its next values depend on more than the step. A source that
 * is a function of the step alone needs neither; it may still save the name of its file, and compare in restore. The thread
 * that calls weir_session_save() or weir_session_load() calls them while nothing runs; `step` is that of the next value.
 *
 * save writes at most WEIR_SOURCE_BYTES_MAX bytes to `bytes` and their number to *count. restore gets the bytes that save
 * wrote. Any status but WEIR_OK fails the call, and restore may write the reason to `why`. A sentence in `why` with WEIR_OK is
 * reported as a remark. */
#define WEIR_SOURCE_BYTES_MAX 65536
typedef weir_status (*weir_source_save_fn)(void *ctx, int64_t step, void *bytes, size_t *count);
typedef weir_status (*weir_source_restore_fn)(void *ctx, int64_t step, const void *bytes, size_t count, char *why,
                                              size_t why_bytes);
/* Receives the whole value of a fetched tensor. It runs on the same thread as the sources of that device, in order. */
typedef weir_status (*weir_sink_fn)(void *ctx, const weir_view *value, int64_t step, int micro);

typedef struct weir_input_opts {
    size_t size;
    weir_src src;
    int64_t shape[WEIR_DIMS_MAX]; /* ends at the first 0; {0}: a scalar */
    const char *name;
    weir_sbp sbp[WEIR_AXES_MAX]; /* layout over its mesh; AUTO: deduced */
    bool micro;                  /* a new value for every micro-batch; else for every step */
    weir_source_fn source;       /* NULL: values come from weir_session_push() */
    void *ctx;
    weir_source_save_fn save;    /* of the source's position [none] */
    weir_source_restore_fn restore;
    const char *queue;           /* of a source: see weir_call_opts */
    bool split;                  /* each device of the mesh calls the source for its own shard of the value, as .sbp says
                                    [the first device calls it for all of it, and sends the others their shards] */
} weir_input_opts;

/* weir_input(g, WEIR_I32, {8, 128}, .name = "tokens", .micro = true)
 *
 * With .split = true, .sbp must split a dimension (WEIR_S) over at least one axis of the mesh, and be WEIR_S or WEIR_B on the
 * others; an axis without an SBP is WEIR_B. The function then gets a view of one shard: dst->shape is its shape, dst->offset
 * its place in the value, dst->global the shape of the value. So each process reads only its own rows, and none are sent. The
 * devices call the function from different threads at the same time, those along an axis with WEIR_B for the same shard. It
 * is not called for an empty shard, or for one that no kernel reads. If it gives the same elements for a shard as for the whole
 * value, a run has the same bits as without .split. Its `save` and `restore` are called once in each process; restore may get
 * the bytes that another process saved. */
#define weir_input(graph, dtype, ...) \
    weir_input_at(graph, dtype, WEIR_OPTS(weir_input_opts, .shape = __VA_ARGS__))
weir_tensor *weir_input_at(weir_graph *graph, weir_dtype dtype, const weir_input_opts *opts);

/* Initial values of a parameter: a function of the seed given to weir_compile(), the parameter's name and the element's
 * index. Without .init, the function that takes the option has a default (see there). A number without a kind,
 * .init = {0.1}, is a mistake. */
typedef enum weir_init_kind {
    WEIR_INIT_DEFAULT,
    WEIR_INIT_ZERO,
    WEIR_INIT_VALUE,
    WEIR_INIT_NORMAL,
    WEIR_INIT_UNIFORM,
    WEIR_INIT_KINDS
} weir_init_kind;
typedef struct weir_init {
    double a; /* VALUE: the value; NORMAL: the standard deviation; UNIFORM: the lower bound */
    double b; /* UNIFORM: the upper bound */
    weir_init_kind kind;
} weir_init;
#define WEIR_VALUE(x) {(x), 0, WEIR_INIT_VALUE}
#define WEIR_NORMAL(std) {(std), 0, WEIR_INIT_NORMAL}
#define WEIR_UNIFORM(lo, hi) {(lo), (hi), WEIR_INIT_UNIFORM}

typedef struct weir_param_opts {
    size_t size;
    weir_src src;
    int64_t shape[WEIR_DIMS_MAX]; /* ends at the first 0; all 0: a scalar */
    const char *name;
    weir_mesh *mesh;             /* NULL: as by WEIR_ON, else the graph's first */
    weir_sbp sbp[WEIR_AXES_MAX]; /* AUTO: B, or what its first reader prefers */
    weir_init init;              /* default: zeros */
    bool frozen;                 /* not trained */
    bool mapped;                 /* its values are read where they are in a file, see below; needs .frozen */
} weir_param_opts;

/* Makes a parameter, which only the optimizer changes. weir_param(g, WEIR_F32, {8, 16}, .name = "w")
 *
 * A parameter with .mapped is never copied: weir_session_open(plan, .weights = "model.gguf") maps the file that has the
 * tensor of its name, read-only, and kernels read it there. Its bytes are planned in a space of their own ("mapped:0") and do
 * not count for .memory of weir_compile(). Processes and sessions of a host share the pages, and a device touches only the
 * pages that hold its part. So the parameter lies whole (B) or split along dimension 0 (S(0)), on a mesh of CPUs; each
 * reader has it in the layout that it wants, without a conversion. In half precision (.precision) it stays what it is. */
#define weir_param(graph, dtype, ...) \
    weir_param_at(graph, dtype, WEIR_OPTS(weir_param_opts, .shape = __VA_ARGS__))
weir_tensor *weir_param_at(weir_graph *graph, weir_dtype dtype, const weir_param_opts *opts);

/* ---- states: values that later steps read ---- */

typedef struct weir_state_opts {
    size_t size;
    weir_src src;
    int64_t shape[WEIR_DIMS_MAX]; /* ends at the first 0; all 0: a scalar */
    const char *name;
    weir_mesh *mesh;             /* NULL: as by WEIR_ON, else the graph's first */
    weir_sbp sbp[WEIR_AXES_MAX]; /* AUTO: B, or what its first reader prefers */
    weir_init init;              /* that the first steps read; default: zeros */
    int delay;                   /* a step reads the value that was set so many steps before [1] */
} weir_state_opts;

/* Makes a value that lives from step to step: each step reads the value that an earlier step set with weir_state_set(). So
 * a loop over time needs no unrolling:
 *
 *     weir_tensor *h = weir_state(g, WEIR_F32, {batch, dim}, .name = "h");
 *     weir_tensor *next = weir_tanh(weir_add(weir_linear(x, dim), weir_linear(h, dim)));
 *     weir_state_set(h, next);
 *
 * Like a parameter it has a layout and a place, starts with .init, and can be read and written between runs by its name
 * (weir_session_read, weir_session_write); its kind is WEIR_STATE. It exists once a step; all micro-batches of a step read
 * the same value. No gradient flows into earlier steps. A state that is never set is a constant. */
#define weir_state(graph, dtype, ...) \
    weir_state_at(graph, dtype, WEIR_OPTS(weir_state_opts, .shape = __VA_ARGS__))
weir_tensor *weir_state_at(weir_graph *graph, weir_dtype dtype, const weir_state_opts *opts);

/* Sets the value that the step .delay steps later reads. `value` has the state's dtype and shape and must exist once a step.
 * At most once for each state. */
#define weir_state_set(state, value) weir_state_set_at(state, value, WEIR_HERE)
void weir_state_set_at(weir_tensor *state, weir_tensor *value, weir_src src);

/* Replaces rows position .. position + n - 1 of the state by the n `rows` for the next step, as weir_append() (<weir/ops.h>)
 * does. It works in place, so its cost does not grow with the state. Use it in place of weir_state_set(). The state must
 * have .delay 1; this step still reads the state without the new rows. */
#define weir_state_append(state, rows, position) weir_state_append_at(state, rows, position, WEIR_HERE)
void weir_state_append_at(weir_tensor *state, weir_tensor *rows, weir_tensor *position, weir_src src);

/* ---- outputs ---- */

typedef struct weir_fetch_opts {
    size_t size;
    weir_src src;
    const char *name;   /* NULL: the tensor's */
    weir_sink_fn sink;  /* NULL: weir_session_pull() takes the values */
    void *ctx;
    int slots;          /* values kept before the producer waits [2] */
    const char *queue;  /* of a sink: see weir_call_opts */
} weir_fetch_opts;

/* Delivers the whole value of `x`, once per micro-batch or once per step, as often as `x` exists. */
#define weir_fetch(x, ...) weir_fetch_at(x, WEIR_OPTS(weir_fetch_opts, __VA_ARGS__))
void weir_fetch_at(weir_tensor *x, const weir_fetch_opts *opts);

/* ---- explicit layout ---- */

typedef struct weir_shard_opts {
    size_t size;
    weir_src src;
    const char *name;
    weir_sbp sbp[WEIR_AXES_MAX]; /* AUTO entries are deduced */
    weir_mesh *mesh;             /* NULL: stays on its mesh */
} weir_shard_opts;

/* Returns `x` converted to another SBP, another mesh or both. Every conversion is allowed, but integers have no P. */
#define weir_shard(x, ...) weir_shard_at(x, WEIR_OPTS(weir_shard_opts, __VA_ARGS__))
weir_tensor *weir_shard_at(weir_tensor *x, const weir_shard_opts *opts);

/* weir_batch() collects the values of a step's n micro-batches in one tensor {n, shape of x...}, which exists once a step. n
 * must be .micro_batches of weir_compile(). weir_unbatch() is the reverse: from x of shape {n, ...}, which exists once a
 * step, each micro-batch gets its row. Neither has a gradient. */
#define weir_batch(x, n) weir_batch_at(x, n, WEIR_HERE)
weir_tensor *weir_batch_at(weir_tensor *x, int64_t n, weir_src src);
#define weir_unbatch(x) weir_unbatch_at(x, WEIR_HERE)
weir_tensor *weir_unbatch_at(weir_tensor *x, weir_src src);

/* Sets the number of slots of the register of `x`. The compiler then neither raises nor lowers it, and fails if the plan would
 * deadlock with so few. */
#define weir_slots(x, slots) weir_slots_at(x, slots, WEIR_HERE)
void weir_slots_at(weir_tensor *x, int slots, weir_src src);

/* ---- any C function as an op ---- */

#define WEIR_CALL_IN_MAX 64
#define WEIR_CALL_OUT_MAX 8

/* An output of weir_call_many(). With .varies each call may produce a different number of rows, from 0 to shape[0]: the
 * function writes it to *length of the view, which is 0 before. Calls and sinks that read the value find it there; no other op
 * takes such a value. It counts as two of the 8 outputs. */
typedef struct weir_out {
    weir_dtype dtype;
    int64_t shape[WEIR_DIMS_MAX]; /* ends at the first 0; all 0: a scalar */
    bool varies;
    weir_sbp sbp[WEIR_AXES_MAX];  /* see weir_call_opts */
} weir_out;

typedef struct weir_call_opts {
    size_t size;
    weir_src src;
    weir_tensor *in[WEIR_CALL_IN_MAX]; /* ends at the first NULL */
    const char *name;
    weir_dtype dtype;            /* of the one output of weir_call() */
    int64_t shape[WEIR_DIMS_MAX];
    bool varies;
    weir_sbp sbp[WEIR_AXES_MAX];
    weir_out out[WEIR_CALL_OUT_MAX]; /* of weir_call_many(); ends at the first without a dtype */
    weir_sbp in_sbp[WEIR_CALL_IN_MAX][WEIR_AXES_MAX]; /* if any input or output has an SBP, every device of the mesh calls
                                    the function, with its shards of the inputs, for its shards of the outputs (P: its
                                    terms); an SBP that is left out is B. A value that varies must be B */
    void *ctx;                   /* args->host of the call */
    weir_open_fn open;           /* makes args->host_state in each session [none: it is NULL] */
    weir_close_fn close;
    bool skips;                  /* not called if an input that varies is empty: its outputs, which all must vary, are then
                                    empty, too. So an empty value skips every call after a filter */
    const char *queue;           /* one thread calls the sources, sinks and calls of one device that name the same queue; a
                                    slow one delays only its own queue [the device's queue] */
    weir_graph *graph;           /* needed when there are no inputs */
    bool micro;                  /* without inputs: called for every micro-batch, else for every step */
} weir_call_opts;

/* Calls a C function of the program as an op: one output from up to 64 inputs, all whole (B) unless an SBP is given, for
 * example to decode or to sample. The function is called once for every value, in order, on the first device of the mesh,
 * also if nothing reads its output. Each call is an actor. No gradient flows through it.
 *     weir_call(fn, {x, y}, .dtype = WEIR_F32, .shape = {8}, .ctx = &mine)
 *
 * The function may wait, as a source may. Without inputs ({NULL}) it is a source: it is called ahead by a value or two, and
 * WEIR_END ends the run as there. A register between two queues has two slots unless weir_slots() sets another number, so
 * two calls on two queues work at the same time on two values. */
#define weir_call(fn, ...) weir_call_at(fn, WEIR_OPTS(weir_call_opts, .in = __VA_ARGS__))
weir_tensor *weir_call_at(weir_kernel_fn fn, const weir_call_opts *opts);

/* The same with up to 8 outputs, which go to outs[0], outs[1], ... Without outputs (no .out; `outs` may be NULL) the function
 * is called only for its effect, as a sink of several inputs.
 *     weir_tensor *y[2];
 *     weir_call_many(y, fn, {x}, .out = {{.dtype = WEIR_F32, .shape = {8}}, {.dtype = WEIR_I32, .shape = {2}}}); */
#define weir_call_many(outs, fn, ...) \
    weir_call_many_at(outs, fn, WEIR_OPTS(weir_call_opts, .in = __VA_ARGS__))
void weir_call_many_at(weir_tensor **outs, weir_kernel_fn fn, const weir_call_opts *opts);

/* Returns the number of rows of a value that varies, as an i32 scalar that exists as often as the value. NULL if `x` does not
 * vary. */
weir_tensor *weir_length(const weir_tensor *x);

/* ---- queries; for NULL they return NULL, zeros, and true for poisoned ---- */

weir_graph *weir_tensor_graph(const weir_tensor *x);
weir_type weir_tensor_type(const weir_tensor *x);      /* logical; for a poisoned tensor: zeros */
const char *weir_tensor_name(const weir_tensor *x);    /* "h0/q"; owned by the graph */
weir_mesh *weir_tensor_mesh(const weir_tensor *x);
bool weir_tensor_poisoned(const weir_tensor *x);

WEIR_C_END
#endif
