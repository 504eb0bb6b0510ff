/* weir/op.h: what an op is. Built-in ops use this structure too; there is no private way to define one.
 *
 * An op is a set of rules over its inputs and outputs, and a kernel per kind of device:
 *
 *     infer        dtypes and logical shapes of the outputs; refuses wrong inputs with a sentence
 *     signatures   the ways in which it may be split over one mesh axis
 *     grad         builds the backward graph out of other ops, in the DSL
 *     cost         floating-point operations and bytes moved, for local shapes
 *     fits         whether the kernel may be called with shards of these types
 *     workspace    scratch bytes that the kernel needs, for local shapes
 *     reads        the part of an input that a call reads, when that is not all of it
 *     states       private memory that lives as long as the session (an optimizer's moments)
 *     kernel       computes the outputs of one shard from those of its inputs
 *     half         which operands may be in half precision, where that is asked for
 *
 * Attributes are a plain structure whose members are int64_t and double alone (arrays of them too), listed in `fields`,
 * so that a plan can store, print and check them without knowing the op.
 *
 *     static const weir_op op = {.name = "twice", .in_min = 1, .in_max = 1, .out_count = 1,
 *                                .infer = infer, .kernel = {[WEIR_CPU] = kernel}};
 *     weir_op_register(&op); // once; apps/examples/prelu is a whole one
 *     weir_tensor *y = weir_op_apply(&(weir_apply){WEIR_HERE, "twice", &op, g, &x, 1, NULL}, NULL);
 *
 * Signatures. A mesh has one to three axes; each picks one signature by itself. In the signature
 * {.in = {S(0), B}, .out = {S(0)}} of a matrix product over an axis of p devices every device holds a p-th of the rows
 * of A and the whole of B, and makes a p-th of the rows. A signature is a promise: the kernel, run on the local shards
 * that it names, gives local shards of what the whole op gives (terms of the sum for P). Slices differ by at most one
 * element when a size does not divide evenly; a signature that needs more than that says so with `granules`.
 *
 * A kernel runs on a worker thread and must not block, allocate, print, or keep state outside its arguments. Same
 * arguments, same bits. It may be called for a shard that is empty (a dimension of 0).
 *
 * An op that is there for what it does rather than for what it makes says `effect`. It makes in `open` what it keeps from
 * call to call, as a file or a table: once for each of its calls in a plan and each session, so that neither two sessions nor
 * two devices share it. `open` and `close` may wait, allocate and fail.
 */
#ifndef WEIR_OP_H
#define WEIR_OP_H

#include <weir/base.h>

WEIR_C_BEGIN

typedef struct weir_graph weir_graph;
typedef struct weir_tensor weir_tensor;
typedef struct weir_mesh weir_mesh;
typedef struct weir_op weir_op;

/* DISK and PINNED compute nothing, and have no place in a mesh of the program's. A disk is where what a device has no room
 * for waits (weir_compile(.offload)); PINNED is the host's memory beside an accelerator, through which goes what the host
 * gives it and takes from it, and where conversions between devices take place. FAKE is an accelerator that only the
 * library's tests have. On these two an op has the CPU's kernel, and its workspace. */
typedef enum weir_device_kind {
    WEIR_CPU,
    WEIR_CUDA,
    WEIR_DISK,
    WEIR_PINNED,
    WEIR_FAKE,
    WEIR_DEVICE_KINDS
} weir_device_kind;

typedef struct weir_type {
    weir_dtype dtype;
    weir_shape shape;
} weir_type;

/* One member of an attribute structure: `count` words of 8 bytes at `offset`. */
typedef struct weir_field {
    const char *name;
    size_t offset;
    int count;
    bool real; /* double rather than int64_t */
} weir_field; /* WEIR_FIELD_INT(type, member), WEIR_FIELD_REAL(type, member) */

/* The arguments that the rules are asked about. In `infer` out[] is to be filled; elsewhere it is filled. Shapes are logical
 * in infer and signatures, local in fits, cost, workspace and states. All borrowed. */
typedef struct weir_op_args {
    const weir_op *op;
    const weir_type *in;
    int in_count;
    weir_type *out;
    int out_count;
    const void *attrs;
} weir_op_args;

/* One way to lie on one mesh axis. in[i] and out[i] are S(dim >= 0), B or P. `granules`, when not 0: the split
 * dimensions consist of that many units which must stay whole (the heads of an attention layer, the rows of a
 * reshape): the signature is used only when the number of devices that it splits over divides `granules`. */
typedef struct weir_signature {
    weir_sbp in[WEIR_ARGS_MAX];
    weir_sbp out[8];
    int64_t granules;
} weir_signature;

/* Collects signatures. Usage in a `signatures` rule:
 *     weir_signature *s = weir_signature_new(list);   // all B; never NULL
 *     s->in[0] = WEIR_S(0); s->out[0] = WEIR_S(0);
 * The all-B signature is always allowed and need not be listed. */
typedef struct weir_signature_list weir_signature_list;
weir_signature *weir_signature_new(weir_signature_list *list);

typedef struct weir_cost {
    double flops;      /* multiply and add are two */
    double bytes;      /* read and written */
} weir_cost;

/* The backward pass of one op application. dout[i] is NULL where no gradient flows into output i; din[i] must be set
 * where needed[i], to a tensor of in[i]'s type, or, where that is half, in f32. Build with the ordinary DSL functions. */
typedef struct weir_grad_args {
    weir_graph *graph;
    weir_src src;
    weir_tensor *const *in;
    int in_count;
    weir_tensor *const *out;
    weir_tensor *const *dout;
    int out_count;
    const void *attrs;
    const bool *needed;
    weir_tensor **din;
} weir_grad_args;

/* The clock of the call, as a device that runs ahead reads it when it gets there: the members of weir_kernel_args of the same
 * names. */
typedef struct weir_clock {
    int64_t firing, step, micro;
} weir_clock;

/* A device that runs ahead notes here that a kernel met a value that it cannot take: an id beyond a table. It can fail the
 * call no more, so it goes on with something harmless (of floats, NaN) and writes here, and the session fails before anything
 * that came of it is told to anybody. To say it: `call` becomes args->call by compare-and-swap, if it is 0; if it is
 * args->call then, `least` becomes the minimum of itself and at << 32 | (uint32_t)value, where the value was found in element
 * `at` of an input (beyond 2^32 - 1: that). The order of threads changes nothing of it. */
typedef struct weir_refusal {
    uint64_t call;  /* 0: nothing was said */
    uint64_t least; /* UINT64_MAX then */
} weir_refusal;

/* One call of a kernel. Views are local shards. */
typedef struct weir_kernel_args {
    const weir_view *in;
    int in_count;
    const weir_view *out;
    int out_count;
    const weir_view *state;
    int state_count;
    const void *attrs;
    void *workspace;    /* 64-byte aligned, at least as many bytes as `workspace` asked for; contents
                           undefined, unless the call continues another */
    size_t workspace_bytes;
    uint64_t key;       /* of this op application in this plan: for weir_philox */
    int64_t firing;     /* how often this kernel ran before, counted from step 0: of a session that begins at a later
                           step as if it had run those before, too */
    int64_t step;       /* the training step it belongs to */
    int micro;          /* the micro-batch within the step; 0 for kernels that run once a step */
    bool accumulate;    /* only for ops with .accumulates: add to out[0] rather than write it */
    bool continues;     /* only for ops with .rows_in: further rows of the call before, which began what they sum up */
    void *host;         /* what a host function was bound with, or the op's .ctx */
    void *host_state;   /* what `open` made for this call in this session; NULL without one */
    void *queue;        /* of a device that runs ahead: where the kernel is to be enqueued (a CUstream); else NULL */
    const weir_clock *clock; /* of a CUDA device: in its memory, as it is when the kernel runs; else NULL */
    weir_refusal *refusal; /* of a CUDA device: where it reaches it; else NULL */
    uint64_t call;      /* which call it is, for that */
    char *error;        /* on failure: one sentence may be written here */
    size_t error_bytes;
} weir_kernel_args;

typedef weir_status (*weir_kernel_fn)(const weir_kernel_args *args);

/* Make and close the state that a function keeps between its calls. open is called by the thread that opens a session, before
 * anything is fired, once for each call that this process makes: `args` is that call, with types, attributes, `key` and
 * `host`, but no view has data. It writes what is to become args->host_state to *state (which is NULL). Anything but WEIR_OK
 * fails weir_session_open() with that status, the user's file and line, and the sentence in args->error. close is called once
 * for each open that returned WEIR_OK, by the thread that closes the session or fails to open it, after the last firing, in
 * the reverse order, whether the session has failed or not. `host` is args->host. Neither may call functions of that session.
 * */
typedef weir_status (*weir_open_fn)(const weir_kernel_args *args, void **state);
typedef void (*weir_close_fn)(void *host, void *state);

/* The dtypes of an op in a graph that is compiled for half precision (.precision of weir_compile). Where it computes in half,
 * its f32 inputs are read in half, but for those named by `full_in`, and `infer`, asked about these, says which outputs are
 * half then: a product's, but not the gradient of a weight. Where infer refuses, it computes in f32. */
typedef enum weir_half {
    WEIR_HALF_NEVER,  /* f32 stays f32: sums of squares, losses, whatever nothing is said of */
    WEIR_HALF_FOLLOW, /* in half where an input is: element-wise ops, norms, shapes */
    WEIR_HALF_BETWEEN, /* so too, but only where a product and the like reads the result, or what follows it: softmax,
                         which is half within attention and f32 before a logarithm */
    WEIR_HALF_WANT    /* in half: products, attention, embedding */
} weir_half;

struct weir_op {
    const char *name;           /* unique, as in "matmul" */
    const weir_field *fields;   /* members of the attribute structure */
    int field_count;
    size_t attrs_bytes;
    int in_min, in_max;         /* number of inputs */
    int out_count;
    bool out_fewer;             /* a call may have fewer: infer lowers args->out_count, and `fits` confirms it */

    /* Fills args->out. On refusal writes one sentence ("inner sizes 784 and 512 differ") to `error` and returns
     * false. */
    bool (*infer)(weir_op_args *args, char *error, size_t error_bytes);
    /* Whether the kernel may be called with shards of these types, and these attributes: whatever the values are, it
     * then touches nothing but the elements of its operands and states, and its workspace. A plan may come from
     * anywhere, so this is asked about every call before one is made. out[] is filled, with what the plan says.
     * Refuses as infer does. NULL: infer, asked about the shards, gives exactly out[]. That is right unless attributes
     * hold sizes that get split, or infer refuses what is empty. A kernel may rely on these besides: in each view
     * offset >= 0 and offset + shape <= global (but no two views need agree on where they lie); states and workspace
     * are as the rules below give them; what it writes overlaps nothing else that it is given, but for `inplace`. */
    bool (*fits)(const weir_op_args *local, char *error, size_t error_bytes);
    void (*signatures)(const weir_op_args *args, weir_signature_list *list);       /* NULL: B only */
    void (*grad)(weir_grad_args *args);                                            /* NULL: not differentiable */
    void (*cost)(const weir_op_args *args, weir_cost *cost);                       /* NULL: bytes of all operands */
    size_t (*workspace)(const weir_op_args *args, weir_device_kind kind);          /* NULL: none */
    int (*states)(const weir_op_args *args, weir_type *states);                    /* NULL: none; at most 4, each of
                                                                                      out[0]'s shape, or a scalar */
    const char *state_names[4];                                                    /* "m": of weight by adamw it is
                                                                                      called "weight:adamw.m" [its
                                                                                      number] */
    weir_kernel_fn kernel[WEIR_DEVICE_KINDS];
    /* Writes the sentence of a weir_refusal to call->error, as the CPU's kernel does, and returns E_KERNEL. No view's data
     * is looked at. NULL: no kernel refuses what it is given, but by its status. */
    weir_status (*refused)(const weir_kernel_args *call, int64_t at, int32_t value);
    /* The part of in[input] that this call reads. `call` has in, out and attrs alone, and no view has data. `part`
     * comes as a copy of in[input], and the rule narrows its offset and shape; with a dimension of 0 nothing is read. A
     * part that does not lie within in[input] counts as all of it. Only the part comes from another host: so the kernel must
     * go by the views, give the same bits for in[input] as for the part of it, and be as safe with one as with the other
     * (`fits` is asked about in[input]). Every rank asks for itself and must get the same answer, or the session fails: the
     * rule may depend on nothing but its arguments. In a plan from anywhere these are any views that `fits` lets pass. NULL:
     * all of every input. */
    void (*reads)(const weir_kernel_args *call, int input, weir_view *part);
    /* Where in out[0], counted in elements, the elements of in[input] may lie already, one behind the other: the kernel
     * finds by the addresses that they do, leaves them alone, and writes the rest of out[0]; others may be reading them
     * meanwhile. -1: nowhere. `call` is as for `reads`. In a plan from anywhere that is what keeps the kernel from
     * writing there. NULL: no input may. */
    int64_t (*stays)(const weir_kernel_args *call, int input);
    /* Where in in[input], counted in elements, the elements of out[0] may lie, one behind the other: what the kernel reads
     * of in[input] is there, and each element is read before it is written. Others may be reading the rest of in[input]
     * meanwhile. -1: nowhere. `call` is as for `reads`. NULL: in no input. */
    int64_t (*onto)(const weir_kernel_args *call, int input);

    int inplace;                /* k + 1: out[0] may share the memory of in[k], of which it then has the number and
                                   width of elements (kernel reads each element before it writes it). 0: never */
    bool accumulates;           /* the kernel honours args->accumulate for out[0] */
    /* Rows, which are all dimensions but the last: inputs and outputs that have rows (bit i: number i, and from 31 on the
     * last bit), and those that have one value for each row. Other inputs are the same for all rows, and so is one of
     * rows_in that has a single row; other outputs are sums over rows. An op with rows_in promises that a kernel called
     * for some rows after the others, of one shard, gives the same bits as called for all of them at once, wherever the
     * rows are cut: so the compiler may put several such ops into one pass over memory. If it has sums, a call with
     * args->continues goes on with those of the call before: they still hold what that call wrote, and the workspace
     * what it left there. So an op may add up in its workspace, with more digits than its output has: the built-in ops
     * add one row after the other in double. All that it keeps there lies at the same place for any number of rows. It has
     * no states. 0: never */
    uint32_t rows_in, rows_out, per_row_in, per_row_out;
    weir_half half;
    uint32_t full_in;           /* bit i: input i stays f32 (a bias, a gain) */
    uint32_t either_in;         /* bit i: input i may be f32 or half, whatever the others are (a table of rows) */
    bool either_out;            /* out[0] may be f32 or half, whatever infer says, as `fits` confirms: terms of a sum (P)
                                   and gradients of weights are f32 then */
    bool effect;                /* it does something beside what it makes: a program has it although nobody reads that, and
                                   calls it once for every value, never again */
    bool actor;                 /* each of its calls is an actor of its own, that fires as soon as its own inputs are there
                                   and hands on at once what it made */
    void *ctx;                  /* args->host of its calls. An op with it, or with `open`, is put into no pass with others */
    weir_open_fn open;          /* NULL: it keeps nothing */
    weir_close_fn close;
    bool cheap;                 /* so fast that a backward pass may compute out[0] again rather than keep it; its
                                   gradient reads its inputs, not out[0] */
};

/* Makes `op` known by name to plans that are loaded from files. `op` is borrowed for the life of the process.
 * Thread-safe. Fails (E_ARGUMENT) when another op has the name or a rule that every op needs is missing. Built-in ops
 * are known. */
weir_status weir_op_register(const weir_op *op);
const weir_op *weir_op_find(const char *name); /* NULL when unknown; weir_error() then names the nearest */

/* Loads a shared object that has ops, so that a program which knows nothing of them can load and run plans that do:
 * `weir run --load FILE` is one. `path` is that of the file. The object defines weir_register_ops(), which calls
 * weir_op_register() for each, and may be called again; what that returns, this returns. It stays for the life of the
 * process.
 *
 * It finds weir's symbols in the program, so link it without libweir, or with the shared libweir if the program is. A program
 * that is linked with libweir.a shows its names (gcc -Wl,--export-dynamic-symbol='weir_*'), as `weir` does.
 * apps/examples/prelu is such an object. E_IO: it cannot be opened. E_ARGUMENT: it has no such function, or that registered
 * nothing with this library. Any thread. */
weir_status weir_op_load(const char *path);

/* Defined by such an object, never by the library. */
weir_status weir_register_ops(void);

/* Applies an op: the one way in which every DSL function adds to a graph. `in` and `attrs` are copied. Outputs go to
 * outs[0..out_count) when outs is not NULL; returns the first. After a mistake all outputs are poisoned tensors: never
 * NULL as long as one input or `graph` is given. */
typedef struct weir_apply {
    weir_src src;
    const char *name;       /* NULL: the op's name, made unique */
    const weir_op *op;
    weir_graph *graph;      /* only needed when there are no inputs */
    weir_tensor *const *in;
    int in_count;
    const void *attrs;
} weir_apply;
weir_tensor *weir_op_apply_of(const weir_apply *apply, size_t apply_bytes, weir_tensor **outs);
static inline weir_tensor *weir_op_apply(const weir_apply *apply, weir_tensor **outs)
{
    return weir_op_apply_of(apply, sizeof *apply, outs); /* as many bytes as this header knows */
}

/* ---- whether an op keeps its promises ---- */

#define WEIR_CHECK_IN_MAX 64

typedef struct weir_op_check_opts {
    size_t size;
    weir_src src;
    const void *attrs;         /* as weir_apply takes them [none] */
    const weir_array *inputs[WEIR_CHECK_IN_MAX]; /* ends at the first NULL. An array without data gets random values: reals
                                  of N(0, 1), i32 from 0 to 9, u8 0 or 1 */
    double tolerance;          /* of a value v: tolerance * (1 + |v|), and the rounding of halves [1e-4] */
    double gradient_tolerance; /* the same of a gradient against finite differences of f32 values [0.005] */
    int gradient_outputs;      /* of the first so many outputs the gradient is tried [all] */
    int devices;               /* each signature is split over 2 devices, 3, up to so many, at most 16 [4] */
    uint64_t seed;             /* of the random values [0] */
} weir_op_check_opts;

/* Runs an op's CPU kernel on these inputs, whole and split, and holds it to what the rules of the op promise:
 *
 *     the kernel    gives the same bits in each call, whatever was called between; writes all of its outputs and nothing
 *                   else; reads nothing beside its inputs; changes no input; keeps .inplace, .accumulates and .rows_in
 *     signatures    each, on 2 devices, 3, ...: the parts together, or the sum of the terms, are what the whole op gives
 *     infer, fits   take the parts that the signatures make
 *     grad          gives what finite differences give, for inputs that are f32; where a function has a kink the gradient
 *                   is that of one of its sides. The ops that the gradient is made of are held to their own promises
 *
 *     weir_op_check(&op_prelu, .inputs = {WEIR_ARRAY(NULL, WEIR_F32, 7, 5), WEIR_ARRAY(NULL, WEIR_F32, 5)})
 *
 * Sizes that 2 and 3 do not divide make parts of unequal size; that is where most mistakes are. The op need not be
 * registered. E_KERNEL: a promise is broken, and weir_error() says which: "prelu: signature 2 (S(1), B -> S(1)) on 2
 * devices: element [3, 4] of output 0 is 0.25 split and 0.5 whole; ...". E_ARGUMENT: the op, as
 * weir_op_register() says, or the inputs are wrong. E_UNSUPPORTED: it has no kernel for the CPU. It keeps around each operand
 * as much memory as the largest has, up to 1 MiB; a kernel that goes further than that may crash. States are zeros in each
 * call. Builds a graph of its own; any thread. */
#define weir_op_check(op, ...) weir_op_check_at(op, WEIR_OPTS(weir_op_check_opts, __VA_ARGS__))
weir_status weir_op_check_at(const weir_op *op, const weir_op_check_opts *opts);

/* ---- for DSL functions of one's own ---- */

/* For an op's parameters, which are to be made before it is applied. The mesh on which an op applied to `x` now would
 * live: that of the innermost WEIR_ON, else x's. And the name that it is to be given: `name`, or when that is NULL a
 * fresh one after the op ("linear_3"), which lives as long as the graph; without the prefix of a WEIR_ON. */
weir_mesh *weir_mesh_for(weir_tensor *x);
const char *weir_name_for(weir_tensor *x, const char *name, const char *op);

/* Reports a mistake of the user's at `src` on the tensor's graph ("model.c:42: reshape: ..."), and returns a poisoned
 * tensor of it. The first mistake of a graph stays, later ones are dropped. */
weir_tensor *weir_mistake(weir_tensor *near, weir_src src, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

WEIR_C_END
#endif
