/* weir/op.h: define ops of your own. The built-in ops use the same structure and no private interface.
 *
 * An op is a set of rules over its inputs and outputs, and a kernel for each kind of device:
 *
 *     infer        dtypes and logical shapes of the outputs; refuses wrong inputs with a sentence
 *     signatures   how the op may be split over one mesh axis
 *     grad         builds the backward graph from other ops, in the DSL
 *     cost         floating-point operations and bytes moved, for local shapes
 *     fits         whether the kernel may be called with shards of these types
 *     workspace    scratch bytes that the kernel needs, for local shapes
 *     reads        the part of an input that a call reads, if it does not read all of it
 *     states       private memory that lives as long as the session (an optimizer's moments)
 *     kernel       computes the output shards from the input shards
 *     half         the operands that may have half precision (.precision of weir_compile)
 *     exact        the op over exact numbers, for proofs (weir/exact.h)
 *
 * Attributes are a plain structure whose members are int64_t and double (or arrays of them), listed in `fields`, so that a
 * plan can store, print and check them without knowing the op.
 *
 *     static const weir_op op = {.name = "twice", .in_min = 1, .in_max = 1, .out_count = 1,
 *                                .infer = infer, .kernel = {[WEIR_CPU] = kernel}};
 *     weir_op_register(&op); // once; apps/examples/prelu is a complete op
 *     weir_tensor *y = weir_op_apply(&(weir_apply){WEIR_HERE, "twice", &op, g, &x, 1, NULL}, NULL);
 *
 * Signatures. A mesh has one to three axes, and the compiler chooses a signature for each axis. In the signature
 * {.in = {S(0), B}, .out = {S(0)}} of a matrix product, each of the p devices of an axis has a p-th of the rows of the first
 * input and all of the second, and computes a p-th of the rows of the product. A signature is a promise: on these input
 * shards the kernel computes these shards of the whole op's output (for P: terms of their sum). If a size does not divide
 * evenly, slices differ by at most one element; a signature that cannot use such slices has `granules`.
 *
 * A kernel runs on a worker thread and must not block, allocate, print, or keep state outside its arguments. The same
 * arguments give the same bits. It may be called for an empty shard (a dimension of 0).
 *
 * An op whose purpose is an effect (it writes a file, say) sets `effect`. It makes in `open` what it keeps between its calls,
 * such as a file or a table. Each session calls `open` once for each kernel call that the plan lists, so neither two sessions
 * nor two devices share it. `open` and `close` may wait, allocate and fail.
 */
#ifndef WEIR_OP_H
#define WEIR_OP_H

#include <weir/base.h>

WEIR_C_BEGIN

typedef struct weir_graph weir_graph;
typedef struct weir_tensor weir_tensor;
typedef struct weir_mesh weir_mesh;
typedef struct weir_op weir_op;

/* DISK and PINNED compute nothing, and a program's mesh cannot contain them. A disk holds values for which a device has no
 * room (weir_compile(.offload)). PINNED is host memory beside an accelerator: values to and from the accelerator pass through
 * it, and conversions between accelerators run in it. FAKE is an accelerator that only the library's tests have. On PINNED
 * and FAKE an op has the CPU's kernel and workspace. MAPPED is a part of files on disk beside a CPU, which its kernels read
 * where it is (weir_param(.mapped)); nothing runs there. */
typedef enum weir_device_kind {
    WEIR_CPU,
    WEIR_CUDA,
    WEIR_DISK,
    WEIR_PINNED,
    WEIR_FAKE,
    WEIR_MAPPED,
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

/* The arguments of the rules. `infer` fills out[]; for the others it is filled. Shapes are logical in infer and signatures,
 * local in fits, cost, workspace and states. All borrowed. */
typedef struct weir_op_args {
    const weir_op *op;
    const weir_type *in;
    int in_count;
    weir_type *out;
    int out_count;
    const void *attrs;
} weir_op_args;

/* The SBPs of inputs and outputs on one mesh axis: in[i] and out[i] are S(dim >= 0), B or P. If `granules` is not 0, the split
 * dimensions consist of that many units that must stay whole (the heads of an attention layer, the rows of a reshape): the
 * signature is used only if the number of devices on the axis divides `granules`. */
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

/* The backward pass of one node. dout[i] is NULL if no gradient flows into output i. If needed[i], the rule sets din[i] to a
 * tensor of in[i]'s type (f32 if that is half), which it builds with the ordinary DSL functions. */
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

/* The members of weir_kernel_args of the same names, for a kernel that runs later than its call (on a CUDA stream). */
typedef struct weir_clock {
    int64_t firing, step, micro;
} weir_clock;

/* A kernel on an accelerator reports here a value that it cannot take, such as an id outside a table: it runs after its call
 * has returned, so it cannot return a status. It writes harmless outputs (NaN for floats) and
 *
 *     old = compare_and_swap(&refusal->call, 0, args->call);
 *     if (old == 0 || old == args->call)
 *         atomic_min(&refusal->least, min(at, 2^32 - 1) << 32 | (uint32_t)value);    // found in element `at` of an input
 *
 * so the result does not depend on the order of its threads. The session fails before any value that depends on these outputs
 * leaves it. */
typedef struct weir_refusal {
    uint64_t call;  /* 0: no kernel has reported */
    uint64_t least; /* UINT64_MAX before a report */
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
    int64_t firing;     /* earlier runs of this kernel, counted from step 0, also if the session began at a later step */
    int64_t step;       /* the training step it belongs to */
    int micro;          /* the micro-batch within the step; 0 for kernels that run once a step */
    bool accumulate;    /* only for ops with .accumulates: add to out[0] rather than write it */
    bool continues;     /* only for ops with .rows_in: more rows of the previous call's shard; sums go on from that call */
    void *host;         /* the .ctx of the op, or of the program's function */
    void *host_state;   /* that `open` made for this call in this session; NULL without `open` */
    void *queue;        /* on a CUDA device: the stream (CUstream) in which to launch; else NULL */
    const weir_clock *clock; /* on a CUDA device: in device memory, valid while the kernel runs; else NULL */
    weir_refusal *refusal; /* on a CUDA device: reachable by the kernel; else NULL */
    uint64_t call;      /* the number of this call, for `refusal` */
    char *error;        /* on failure: one sentence may be written here */
    size_t error_bytes;
    uint64_t seed;      /* of the oracles of a rule `exact` (weir/exact.h); else 0 */
} weir_kernel_args;

typedef weir_status (*weir_kernel_fn)(const weir_kernel_args *args);

/* Make and close the state that a function keeps between its calls. The thread that opens a session calls open before the first
 * firing, once for each kernel call of this process: `args` has its types, attributes, `key` and `host`, but no view has
 * data. open writes the later args->host_state to *state (which is NULL before). Any status but WEIR_OK fails
 * weir_session_open() with that status, the user's file and line, and the sentence in args->error. The thread that closes the
 * session, or fails to open it, calls close once for each open that returned WEIR_OK, after the last firing, in the reverse
 * order, also if the session has failed. `host` is args->host. Neither may call functions of that session. */
typedef weir_status (*weir_open_fn)(const weir_kernel_args *args, void **state);
typedef void (*weir_close_fn)(void *host, void *state);

/* Whether an op computes in half precision if the graph is compiled for it (.precision of weir_compile). If it does, its f32
 * inputs are converted to half, except those in `full_in`, and `infer` with these inputs gives the dtypes of its outputs
 * (half for a product, f32 for the gradient of a weight). If infer refuses them, the op computes in f32. */
typedef enum weir_half {
    WEIR_HALF_NEVER,  /* f32 stays f32: sums of squares, losses (the default) */
    WEIR_HALF_FOLLOW, /* half if an input is half: elementwise ops, norms, shapes */
    WEIR_HALF_BETWEEN, /* like FOLLOW, but only if an op with WANT reads the result, or an op behind it does: softmax, which is
                         half within attention and f32 before a logarithm */
    WEIR_HALF_WANT    /* half: products, attention, embedding */
} weir_half;

struct weir_op {
    const char *name;           /* unique, as in "matmul" */
    const weir_field *fields;   /* members of the attribute structure */
    int field_count;
    size_t attrs_bytes;
    int in_min, in_max;         /* number of inputs */
    int out_count;
    bool out_fewer;             /* a node may have fewer: infer lowers args->out_count, and `fits` confirms it */

    /* Fills args->out. For wrong inputs it writes one sentence ("inner sizes 784 and 512 differ") to `error` and returns
     * false. */
    bool (*infer)(weir_op_args *args, char *error, size_t error_bytes);
    /* Returns true if the kernel is safe with shards of these types and these attributes: for any values it reads and writes
     * only its operands, its states and its workspace. A plan may come from an untrusted file, so opening a session calls this
     * for every kernel call. out[] is filled from the plan. It refuses as infer does. NULL: the call is safe if infer gives
     * exactly out[] for these inputs. That is right unless attributes contain sizes that are split, or infer refuses empty
     * shapes. A kernel may also rely on this: in each view offset >= 0 and offset + shape <= global (offsets of two views
     * need not agree); states and workspace are as the rules below say; its outputs overlap nothing else, but for
     * `inplace`. */
    bool (*fits)(const weir_op_args *local, char *error, size_t error_bytes);
    void (*signatures)(const weir_op_args *args, weir_signature_list *list);       /* NULL: B only */
    void (*grad)(weir_grad_args *args);                                            /* NULL: not differentiable */
    void (*cost)(const weir_op_args *args, weir_cost *cost);                       /* NULL: bytes of all operands */
    size_t (*workspace)(const weir_op_args *args, weir_device_kind kind);          /* NULL: none */
    int (*states)(const weir_op_args *args, weir_type *states);                    /* NULL: none; at most 4, each of
                                                                                      out[0]'s shape, or a scalar */
    const char *state_names[4];                                                    /* "m": adamw's state of weight is
                                                                                      "weight:adamw.m" [their
                                                                                      numbers] */
    weir_kernel_fn kernel[WEIR_MAPPED]; /* by kind of device; MAPPED runs none */
    /* Writes to call->error the sentence for a weir_refusal, the same as the CPU's kernel writes, and returns E_KERNEL. Must
     * not read any view's data. NULL: the op's kernels never use weir_refusal. */
    weir_status (*refused)(const weir_kernel_args *call, int64_t at, int32_t value);
    /* Narrows `part`, which is a copy of in[input], to the offset and shape that this call reads; with a dimension of 0 it
     * reads nothing. `call` has only in, out and attrs, and no view has data. A part that is not within in[input] counts as all
     * of it. Only the part is received from another host. So the kernel must use the offsets and shapes of its views, give the
     * same bits for in[input] as for the part of it, and be as safe with both (`fits` checks in[input]). Each rank calls this
     * rule by itself and must get the same result, or the session fails: the rule may depend on its arguments only. These may
     * be any views that `fits` allows. NULL: the call reads all of every input. */
    void (*reads)(const weir_kernel_args *call, int input, weir_view *part);
    /* Returns the offset in out[0], in elements, at which the elements of in[input] may already be stored, contiguously, or -1.
     * The kernel then sees by the addresses that they are, does not write to them (other actors may be reading them), and
     * writes only the rest of out[0]. `call` is as for `reads`. NULL: -1 for every input. */
    int64_t (*stays)(const weir_kernel_args *call, int input);
    /* Returns the offset in in[input], in elements, at which out[0] may be stored, contiguously, or -1. The kernel then reads
     * in[input] only there, and reads each element before it writes it. Other actors may be reading the rest of in[input].
     * `call` is as for `reads`. NULL: -1 for every input. */
    int64_t (*onto)(const weir_kernel_args *call, int input);

    int inplace;                /* k + 1: out[0] may share the memory of in[k] if both have the same number and width of
                                   elements; the kernel reads each element before it writes it. 0: never */
    bool accumulates;           /* the kernel honours args->accumulate for out[0] */
    /* Rows are all dimensions but the last. Bit i of rows_in: input i has rows; of per_row_in: input i has one value per row;
     * rows_out and per_row_out: the same for outputs. Bit 31 stands for number 31 and all later ones. An input without a bit,
     * or with a single row, is the same for all rows; an output without a bit is a sum over rows. rows_in = 0: the rest does
     * not apply.
     *
     * An op with rows_in promises: a kernel that is called for the rows of a shard in several calls, cut anywhere, gives the
     * same bits as one call for all rows. So the compiler may put several such ops into one pass over memory. If the op has
     * sums, a call with args->continues adds to those of the previous call: outputs and workspace still have their contents.
     * So an op may add up in its workspace in higher precision than its output has; the built-in ops add one row after the
     * other in double. Sums in the workspace are at the same offset for any number of rows. Such an op has no states. */
    uint32_t rows_in, rows_out, per_row_in, per_row_out;
    weir_half half;
    uint32_t full_in;           /* bit i: input i stays f32 (a bias, a gain) */
    uint32_t either_in;         /* bit i: input i may be f32 or half independently of the others (a table of rows) */
    bool either_out;            /* out[0] may be f32 or half, independently of infer, if `fits` allows it: terms of a sum (P)
                                   and gradients of weights are f32 then */
    bool effect;                /* the call has an effect beside its outputs: it is kept although nothing reads them, and runs
                                   once for every value, never again */
    bool actor;                 /* each of its calls is an actor of its own, which fires as soon as its inputs are there and
                                   passes its outputs on at once */
    void *ctx;                  /* args->host of its calls. An op with ctx or `open` shares no pass over memory with others */
    weir_open_fn open;          /* NULL: it keeps no state between calls */
    weir_close_fn close;
    bool cheap;                 /* so fast that a backward pass may compute out[0] again instead of keeping it; its gradient
                                   reads its inputs, not out[0] */
    /* The op over exact numbers (weir/exact.h), for weir_plan_verify() and weir_gradients_verify(). Views hold weir_exact;
     * workspace, host_state, queue and clock are NULL, and args->seed is set. The rule honours args->accumulate if the op has
     * .accumulates. It returns E_KERNEL, with a sentence in args->error, if the op cannot take the values. NULL: a proof takes the
     * op for a random function of all that it reads, or of each row with .rows_in. */
    weir_kernel_fn exact;
};

/* Registers `op`, so that plans loaded from files find it by its name. `op` is borrowed for the life of the process.
 * Thread-safe. E_ARGUMENT: another op has the name, or a rule that every op needs is missing. Built-in ops are registered.
 *
 * The macro tells the library how many bytes of a weir_op the program knows: members that are newer count as absent. The function
 * of the same name is that of older programs, whose weir_op ends before `exact`. */
weir_status weir_op_register(const weir_op *op);
weir_status weir_op_register_of(const weir_op *op, size_t op_bytes);
#define weir_op_register(...) weir_op_register_of(__VA_ARGS__, sizeof(weir_op))
const weir_op *weir_op_find(const char *name); /* NULL: unknown; weir_error() then names the most similar one */

/* Loads a shared object with ops, so that a program such as `weir run --load FILE` can run plans with ops that it was not built
 * with. The object defines weir_register_ops(), which calls weir_op_register() for each op and may be called more than once;
 * weir_op_load() returns its status. The object stays loaded for the life of the process.
 *
 * The object finds weir's symbols in the program, so link it without libweir, or with the shared libweir if the program uses
 * that. A program linked with libweir.a must export weir's symbols (gcc -Wl,--export-dynamic-symbol='weir_*'), as `weir`
 * does. apps/examples/prelu is such an object. E_IO: the file cannot be opened. E_ARGUMENT: it has no such function, or the
 * function registered nothing with this library. Any thread. */
weir_status weir_op_load(const char *path);

/* Defined by such an object, never by the library. */
weir_status weir_register_ops(void);

/* Applies an op: every DSL function adds to a graph with this call. `in` and `attrs` are copied. Writes the outputs to
 * outs[0..out_count) if outs is not NULL, and returns the first. After a mistake all outputs are poisoned tensors; they are
 * never NULL if there is an input or `graph`. */
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

/* ---- check an op of your own ---- */

#define WEIR_CHECK_IN_MAX 64

typedef struct weir_op_check_opts {
    size_t size;
    weir_src src;
    const void *attrs;         /* as in weir_apply [none] */
    const weir_array *inputs[WEIR_CHECK_IN_MAX]; /* ends at the first NULL. An array without data gets random values: reals
                                  of N(0, 1), i64, i32 and i8 from 0 to 9, u8 0 or 1 */
    double tolerance;          /* of a value v: tolerance * (1 + |v|), and the rounding of halves [1e-4] */
    double gradient_tolerance; /* the same, of a gradient against finite differences of f32 values [0.005] */
    int gradient_outputs;      /* checks the gradient of the first so many outputs [all] */
    int devices;               /* splits each signature over 2, 3, ... up to so many devices, at most 16 [4] */
    uint64_t seed;             /* of the random values [0] */
} weir_op_check_opts;

/* Runs an op's CPU kernel on these inputs, whole and split, and checks the promises of its rules:
 *
 *     the kernel    gives the same bits in each call, whatever ran in between; writes all of its outputs and nothing
 *                   else; reads only its inputs; changes no input; keeps .inplace, .accumulates and .rows_in
 *     signatures    each, on 2, 3, ... devices: the shards together, or the sum of the terms, equal the whole op's output
 *     infer, fits   accept the shards that the signatures make
 *     grad          agrees with finite differences for f32 inputs; at a kink of the function it may be the gradient of
 *                   either side. The ops that it uses are checked in the same way
 *
 *     weir_op_check(&op_prelu, .inputs = {WEIR_ARRAY(NULL, WEIR_F32, 7, 5), WEIR_ARRAY(NULL, WEIR_F32, 5)})
 *
 * Sizes that 2 and 3 do not divide make shards of unequal size, where most mistakes are. The op need not be registered.
 * E_KERNEL: a promise is broken, and weir_error() says which one: "prelu: signature 2 (S(1), B -> S(1)) on 2 devices:
 * element [3, 4] of output 0 is 0.25 split and 0.5 whole; ...". E_ARGUMENT: the op (see weir_op_register()) or the inputs
 * are wrong. E_UNSUPPORTED: the op has no CPU kernel. Around each operand lies as much guarded memory as the largest one has,
 * up to 1 MiB; a kernel that writes beyond that may crash. States are zeros in each call. Builds a graph of its own; any
 * thread. */
#define weir_op_check(op, ...) weir_op_check_at(op, WEIR_OPTS(weir_op_check_opts, __VA_ARGS__))
weir_status weir_op_check_at(const weir_op *op, const weir_op_check_opts *opts);

/* ---- for DSL functions of your own ---- */

/* You need these two to make an op's parameters before you apply it. weir_mesh_for() returns the mesh on which an op applied to
 * `x` now would run: that of the innermost WEIR_ON, else x's. weir_name_for() returns the name for that op: `name`, or if that
 * is NULL a new one ("linear_3"), without the prefix of a WEIR_ON; it lives as long as the graph. */
weir_mesh *weir_mesh_for(weir_tensor *x);
const char *weir_name_for(weir_tensor *x, const char *name, const char *op);

/* Reports a mistake at `src` on the tensor's graph ("model.c:42: reshape: ...") and returns a poisoned tensor of that graph. A
 * graph keeps its first mistake; later ones are dropped. */
weir_tensor *weir_mistake(weir_tensor *near, weir_src src, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

WEIR_C_END
#endif
