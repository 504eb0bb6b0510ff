/* weir/graph.h: the DSL. A model is written as C functions of tensors; what they build is a logical graph, which says
 * what is computed and where it is placed, not how it moves.
 *
 *     weir_graph *g = weir_graph_new("tiny");
 *     weir_mesh *m = weir_mesh_new(g, "cpu:0-1", .shape = {2});
 *     weir_tensor *x = weir_input(g, WEIR_F32, {64, 8}, .name = "x", .sbp = {S(0)}, .micro = true);
 *     WEIR_ON(m, .name = "layer%d", .index = 0)
 *         x = weir_relu(weir_linear(x, 16, .name = "up"));
 *     weir_fetch(x, .name = "y");
 *
 * Options are designated initialisers behind the positional arguments; what is left out is zero, and zero is the
 * default. Where the default is another number, WEIR_ZERO says 0.
 *
 * Mistakes stick. A wrong call never returns NULL: it returns a poisoned tensor, and the graph keeps the first
 * mistake with the user's file and line. Everything that is built on a poisoned tensor is poisoned and quiet.
 * weir_compile() reports the mistake, so a program checks once. A call that is given NULL in place of all that could
 * lead to a graph returns NULL and sets weir_error(), and this thread's next weir_compile() reports it, of whatever
 * graph.
 *
 * Placement. An op lives on the mesh of the innermost WEIR_ON around it; outside of any, on that of its first input
 * that is no parameter; inputs and parameters on the graph's first mesh ("cpu:0" when it has none). A tensor that is
 * used on another mesh, or in another SBP than it has, is converted (boxed) by the compiler.
 *
 * Rates. One step runs M micro-batches (an option of weir_compile). A tensor that depends on an input with .micro =
 * true exists once per micro-batch, all others once per step. The shape of a .micro input is that of one micro-batch.
 *
 * A graph and its tensors belong to one thread at a time; weir_graph_free() frees them all at once.
 */
#ifndef WEIR_GRAPH_H
#define WEIR_GRAPH_H

#include <weir/op.h>

WEIR_C_BEGIN

/* A new, empty graph; NULL when there is no memory. `name` is copied. Owned by the caller. */
weir_graph *weir_graph_new(const char *name);
void weir_graph_free(weir_graph *graph);

/* The first mistake made on the graph ("model.c:42: matmul: ..."), or NULL. Owned by the graph. Of NULL: that it is. */
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

/* Places what is built in the statement or block that follows on `mesh` (NULL: as outside), and puts `.name` before its
 * names, joined by '/'. "%d" in the name is replaced by the number .index: WEIR_ON(m, .name = "h%d", .index = i). C takes it without `.index =`.
 * Tensors built there belong to the mesh's graph, or to one that is made there. `break`, `continue` and `return` leave the
 * scope as they should. */
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
    int depth;   /* what was open before */
    int program; /* what was being built before */
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
/* A name without a placement. */
#define WEIR_NAMED(g, ...) WEIR_ON_(WEIR_CAT(weir_scope_, __LINE__), .graph = g, .name = __VA_ARGS__)

/* ---- programs ---- */

typedef struct weir_program_opts {
    size_t size;
    weir_src src;
    bool train; /* it trains, as "main" does: weir_dropout drops, weir_train() may be called [it does not] */
} weir_program_opts;

/* Everything built from here on belongs to the program `name`, up to another call or the end of the scope that the call is
 * in; before the first one to "main". A run runs one program (.program of weir_session_run); all of them share the graph's
 * parameters and states, and nothing else:
 *
 *     weir_tensor *loss = model(g);                 // weir_input(.name = "tokens"), weir_param(.name = "w"), ...
 *     weir_train(loss, weir_adamw());
 *     WEIR_PROGRAM(g, "eval")
 *         weir_fetch(model(g), .name = "loss");     // the same parameters; other tokens
 *
 * A parameter or state that is asked for again in another program, by the same full name, is the one that is there:
 * with its shape and dtype (else that is a mistake), and where, how laid out and how filled the first asked for. One of
 * a program's other names may be that of another program, too: what a program other than main builds is known outside
 * as "eval/loss". So that is what to push, pull and bind.
 *
 * A program that uses another's value reads it as the other's last step left it. No two programs change the same thing (a
 * parameter that one trains, a state that one sets). */
#define weir_graph_program(graph, name, ...) \
    weir_graph_program_at(graph, name, WEIR_OPTS(weir_program_opts, __VA_ARGS__))
void weir_graph_program_at(weir_graph *graph, const char *name, const weir_program_opts *opts);

/* The same for the statement or block that follows. */
#define WEIR_PROGRAM(graph, name, ...)              \
    WEIR_IN_(WEIR_CAT(weir_scope_, __LINE__),       \
             weir_program_enter(graph, name, WEIR_OPTS(weir_program_opts, __VA_ARGS__)))
weir_scope weir_program_enter(weir_graph *graph, const char *name, const weir_program_opts *opts);

/* Whether what is built now belongs to a program that trains. */
bool weir_graph_trains(const weir_graph *graph);

/* ---- tensors that come from outside ---- */

/* Fills `dst` (the whole logical tensor) for one micro-batch (or one step, when not .micro). Runs on a thread that
 * calls the sources, sinks and calls of one device and computes nothing, so it may wait for a disk: meanwhile the
 * device works on what came before. It is called in order, and runs ahead by a value or two, or by what a link
 * between hosts asks for (weir_compile(.link)), but not beyond the run.
 * WEIR_END: there is no value for this step, and none for later ones; the session ends before it. Anything else but
 * WEIR_OK fails the session, when the steps before have been finished. */
typedef weir_status (*weir_source_fn)(void *ctx, const weir_view *dst, int64_t step, int micro);
/* The position of a source: what its next values follow from beside the step, so that a session that loads a checkpoint
 * goes on with them. A source that is a function of the step alone needs none; one may still save what it reads, and
 * see in restore whether that is the same. Both are called by the thread that calls weir_session_save() or _load(),
 * while nothing runs; `step` is that of the next value.
 *
 * save writes at most WEIR_SOURCE_BYTES_MAX bytes, and to *count how many. restore is given what save wrote. Anything
 * but WEIR_OK fails the call, and a sentence in `why` says why not; a sentence with WEIR_OK is a remark, and is
 * reported. */
#define WEIR_SOURCE_BYTES_MAX 65536
typedef weir_status (*weir_source_save_fn)(void *ctx, int64_t step, void *bytes, size_t *count);
typedef weir_status (*weir_source_restore_fn)(void *ctx, int64_t step, const void *bytes, size_t count, char *why,
                                              size_t why_bytes);
/* Is given the whole value of a fetched tensor. Runs on the same thread as a source of that device, in order. */
typedef weir_status (*weir_sink_fn)(void *ctx, const weir_view *value, int64_t step, int micro);

typedef struct weir_input_opts {
    size_t size;
    weir_src src;
    int64_t shape[WEIR_DIMS_MAX]; /* ends at the first 0 */
    const char *name;
    weir_sbp sbp[WEIR_AXES_MAX]; /* how it is laid out over its mesh; AUTO: deduced */
    bool micro;                  /* a new value for every micro-batch; else for every step */
    weir_source_fn source;       /* NULL: comes from weir_session_push() */
    void *ctx;
    weir_source_save_fn save;    /* of the source's position [none] */
    weir_source_restore_fn restore;
    const char *queue;           /* of a source: see weir_call_opts */
} weir_input_opts;

/* weir_input(g, WEIR_I32, {8, 128}, .name = "tokens", .micro = true) */
#define weir_input(graph, dtype, ...) \
    weir_input_at(graph, dtype, WEIR_OPTS(weir_input_opts, .shape = __VA_ARGS__))
weir_tensor *weir_input_at(weir_graph *graph, weir_dtype dtype, const weir_input_opts *opts);

/* How a parameter starts: a function of (the seed given to weir_compile, the parameter's name, the element's index).
 * Left out, it is as whatever takes the option says: .init = WEIR_VALUE(0) are zeros everywhere. A number without a kind,
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
} weir_param_opts;

/* A parameter: made once, changed by the optimizer alone. weir_param(g, WEIR_F32, {8, 16}, .name = "w") */
#define weir_param(graph, dtype, ...) \
    weir_param_at(graph, dtype, WEIR_OPTS(weir_param_opts, .shape = __VA_ARGS__))
weir_tensor *weir_param_at(weir_graph *graph, weir_dtype dtype, const weir_param_opts *opts);

/* ---- what later steps read ---- */

typedef struct weir_state_opts {
    size_t size;
    weir_src src;
    int64_t shape[WEIR_DIMS_MAX]; /* ends at the first 0; all 0: a scalar */
    const char *name;
    weir_mesh *mesh;             /* NULL: as by WEIR_ON, else the graph's first */
    weir_sbp sbp[WEIR_AXES_MAX]; /* AUTO: B, or what its first reader prefers */
    weir_init init;              /* what the first steps read; default: zeros */
    int delay;                   /* a step reads what was set so many steps before [1] */
} weir_state_opts;

/* A value that lives from step to step: each step reads what an earlier one set it to, with weir_state_set(), so a loop
 * over time is not unrolled:
 *
 *     weir_tensor *h = weir_state(g, WEIR_F32, {batch, dim}, .name = "h");
 *     weir_tensor *next = weir_tanh(weir_add(weir_linear(x, dim), weir_linear(h, dim)));
 *     weir_state_set(h, next);
 *
 * It is what a parameter is, but for who changes it: a register that starts full, laid out and placed like any tensor,
 * read and written between runs by name (weir_session_read, weir_session_write), of kind WEIR_STATE. It exists once a
 * step; all micro-batches of a step read the same value. No gradient flows into it: a step learns from itself alone.
 * One that is never set is a constant. */
#define weir_state(graph, dtype, ...) \
    weir_state_at(graph, dtype, WEIR_OPTS(weir_state_opts, .shape = __VA_ARGS__))
weir_tensor *weir_state_at(weir_graph *graph, weir_dtype dtype, const weir_state_opts *opts);

/* Gives the state what the step that comes .delay steps later reads: `value`, of the state's dtype and shape, which must
 * exist once a step. Once for each state. */
#define weir_state_set(state, value) weir_state_set_at(state, value, WEIR_HERE)
void weir_state_set_at(weir_tensor *state, weir_tensor *value, weir_src src);

/* The next step reads the state as it is, but for its rows position .. position + n - 1, which are `rows`: as
 * weir_append() (<weir/ops.h>) gives it, in place, so what it costs does not grow with the state. In place of
 * weir_state_set(). The state has a .delay of 1; this step still reads it without the new rows. */
#define weir_state_append(state, rows, position) weir_state_append_at(state, rows, position, WEIR_HERE)
void weir_state_append_at(weir_tensor *state, weir_tensor *rows, weir_tensor *position, weir_src src);

/* ---- tensors that go outside ---- */

typedef struct weir_fetch_opts {
    size_t size;
    weir_src src;
    const char *name;   /* NULL: the tensor's */
    weir_sink_fn sink;  /* NULL: taken by weir_session_pull() */
    void *ctx;
    int slots;          /* values kept before the producer waits; 0: 2 */
    const char *queue;  /* of a sink: see weir_call_opts */
} weir_fetch_opts;

/* Delivers the whole value of `x`, once per micro-batch or once per step, as it exists. */
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

/* `x`, converted to another SBP, another mesh or both. P -> S, B, P; any other -> any. */
#define weir_shard(x, ...) weir_shard_at(x, WEIR_OPTS(weir_shard_opts, __VA_ARGS__))
weir_tensor *weir_shard_at(weir_tensor *x, const weir_shard_opts *opts);

/* The values of a step's n micro-batches as one, {n, shape of x...}, that exists once a step: so what reads it is called
 * once for all of them. n is as many as weir_compile() is told (.micro_batches), or that is a mistake there. And the
 * way back: of x, {n, ...}, which exists once a step, each micro-batch has its own row. Neither has a gradient. */
#define weir_batch(x, n) weir_batch_at(x, n, WEIR_HERE)
weir_tensor *weir_batch_at(weir_tensor *x, int64_t n, weir_src src);
#define weir_unbatch(x) weir_unbatch_at(x, WEIR_HERE)
weir_tensor *weir_unbatch_at(weir_tensor *x, weir_src src);

/* Fixes the number of slots of the register that will hold `x` (the credit of its producer). The compiler then neither
 * raises nor lowers it, and refuses the plan when it cannot be live with so few. */
#define weir_slots(x, slots) weir_slots_at(x, slots, WEIR_HERE)
void weir_slots_at(weir_tensor *x, int slots, weir_src src);

/* ---- any C function as an op ---- */

#define WEIR_CALL_IN_MAX 64
#define WEIR_CALL_OUT_MAX 8

/* An output of weir_call_many(). One that varies has from call to call another number of rows, from 0 to shape[0]: the
 * function writes it to *length of the view, where it finds 0. Calls that read the value, and sinks, find it there; no
 * other op takes such a value. It counts as two of the 8 outputs. */
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
    weir_sbp in_sbp[WEIR_CALL_IN_MAX][WEIR_AXES_MAX]; /* if any SBP is given, of an input or an output, the function is
                                    called on every device of the mesh, with its part of each input, for its part of each
                                    output, or its term (P); what is left out is B. A value that varies is B */
    void *ctx;                   /* args->host of the call */
    weir_open_fn open;           /* makes args->host_state, for each session anew [none: it is NULL] */
    weir_close_fn close;
    bool skips;                  /* not called when an input that varies is empty: what it makes, all of which varies, is
                                    then empty, too. So a filter stops what it lets not pass */
    const char *queue;           /* sources, sinks and calls of one device that name the same queue are called by one
                                    thread, and those of another queue hold them up in nothing [the device's own] */
    weir_graph *graph;           /* needed when there are no inputs */
    bool micro;                  /* without inputs: called for every micro-batch, else for every step */
} weir_call_opts;

/* One output from up to 64 inputs, all whole (B) unless an SBP is given: a stage of one's own, such as decoding or
 * sampling. Called once for every value, in order, on the first device of the mesh; it is called although nobody may read
 * what it makes. Each call is an actor of its own. No gradient flows through it.
 *     weir_call(fn, {x, y}, .dtype = WEIR_F32, .shape = {8}, .ctx = &mine)
 *
 * The function may wait, as a source may. Without inputs ({NULL}) it is a source: called ahead by a value or two, and
 * WEIR_END from it ends the run as there. A register that it hands to another queue, or reads of one, has two slots unless
 * weir_slots() says otherwise: so two calls on two queues work at the same time on two values. */
#define weir_call(fn, ...) weir_call_at(fn, WEIR_OPTS(weir_call_opts, .in = __VA_ARGS__))
weir_tensor *weir_call_at(weir_kernel_fn fn, const weir_call_opts *opts);

/* The same with up to 8 outputs, which go to outs[0], outs[1], ... With none (no .out; `outs` may be NULL) it is there for
 * its effect alone, as a sink of several inputs is.
 *     weir_tensor *y[2];
 *     weir_call_many(y, fn, {x}, .out = {{.dtype = WEIR_F32, .shape = {8}}, {.dtype = WEIR_I32, .shape = {2}}}); */
#define weir_call_many(outs, fn, ...) \
    weir_call_many_at(outs, fn, WEIR_OPTS(weir_call_opts, .in = __VA_ARGS__))
void weir_call_many_at(weir_tensor **outs, weir_kernel_fn fn, const weir_call_opts *opts);

/* How many rows of a value that varies are there: an i32 scalar that exists as often as it. NULL of one that does not
 * vary. */
weir_tensor *weir_length(const weir_tensor *x);

/* ---- queries; of NULL: NULL, zeros, and that it is poisoned ---- */

weir_graph *weir_tensor_graph(const weir_tensor *x);
weir_type weir_tensor_type(const weir_tensor *x);      /* logical; of a poisoned tensor: zeros */
const char *weir_tensor_name(const weir_tensor *x);    /* "h0/q"; owned by the graph */
weir_mesh *weir_tensor_mesh(const weir_tensor *x);
bool weir_tensor_poisoned(const weir_tensor *x);

WEIR_C_END
#endif
