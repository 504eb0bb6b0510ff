/* weir/base.h: the types that every other header uses.
 *
 * Status and error. A call that can fail for a reason outside the program returns a weir_status, or NULL, and leaves
 * one sentence in weir_error(). The sentence belongs to the calling thread and stays until its next failing call. No
 * input, file or peer makes weir call exit() or abort().
 *
 *     weir_status status = weir_session_run(s, 100);
 *     if (status)
 *         fprintf(stderr, "%s: %s\n", weir_status_name(status), weir_error());
 *
 * SBP says how a logical tensor lies on one axis of a mesh (Yuan et al. 2021, arXiv:2110.15032, section 3.1):
 *
 *     S(i)  split: each device holds a slice of dimension i (sizes differ by at most one when it does not divide)
 *     B     broadcast: each device holds the whole
 *     P     partial: each device holds a term; the logical value is their sum
 *     AUTO  (zero, the default) the compiler deduces it
 *
 * Shapes are in elements, outermost dimension first, row-major without gaps. A rank of zero is a scalar.
 */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Code between the two macros is C, in a C++ program too, and is all that the library exports. */
#ifdef __cplusplus
#define WEIR_C_BEGIN extern "C" { _Pragma("GCC visibility push(default)")
#define WEIR_C_END _Pragma("GCC visibility pop") }
#else
#define WEIR_C_BEGIN _Pragma("GCC visibility push(default)")
#define WEIR_C_END _Pragma("GCC visibility pop")
#endif

WEIR_C_BEGIN

/* The version of this header; weir_version() returns that of the library ("0.1.0"; static storage). A program compiled with
 * any of these headers runs with any shared library of the same name, libweir.so.1. */
#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0
const char *weir_version(void);

#define WEIR_DIMS_MAX 6   /* dimensions of a tensor */
#define WEIR_DEVICES_MAX 65536 /* of one kind: cpu:0 up to cpu:65535 */
#define WEIR_AXES_MAX 3   /* axes of a mesh */
#define WEIR_ARGS_MAX 512 /* inputs or outputs of one op */

/* name, what it means */
#define WEIR_STATUS_LIST(X)                                      \
    X(OK, "ok")                                                  \
    X(END, "there are no more values")                           \
    X(E_ARGUMENT, "wrong argument")                              \
    X(E_GRAPH, "the graph has a mistake")                        \
    X(E_PLAN, "the plan is not valid")                           \
    X(E_MEMORY, "not enough memory")                             \
    X(E_IO, "a file cannot be read or written")                  \
    X(E_TIMEOUT, "the time given is over")                       \
    X(E_STATE, "the call does not fit what the object is doing") \
    X(E_KERNEL, "a kernel failed")                               \
    X(E_LIVE, "the plan is not live: it would deadlock")         \
    X(E_UNSUPPORTED, "not supported here")                       \
    X(E_PEER, "another rank is lost, or is not what it should be") \
    X(E_END, "the values have come to their end")                \
    X(E_CANCELLED, "the run was cancelled")                      \
    X(E_WRONG, "the plan does not compute its graph, or a gradient is wrong")

typedef enum weir_status {
#define X(name, text) WEIR_##name,
    WEIR_STATUS_LIST(X)
#undef X
} weir_status;

/* The name of a status ("E_PLAN"); never NULL, static storage. */
const char *weir_status_name(weir_status status);

/* Returns why this thread's last failing call failed; "" if none has. Owned by the library, valid until this thread's next
 * failing call. */
const char *weir_error(void);

/* A place in the user's program, WEIR_HERE. `file` is borrowed and must outlive the graph (a string literal does). */
typedef struct weir_src {
    const char *file;
    int line;
} weir_src;

/* name, C type, bytes. An f16 (IEEE 754 binary16) or bf16 (the upper half of an f32) is its 16 bits. Saved plans have the
 * numbers of this order, so a new dtype comes last. */
#define WEIR_DTYPE_LIST(X) \
    X(F32, float, 4)       \
    X(I32, int32_t, 4)     \
    X(U8, uint8_t, 1)      \
    X(F16, uint16_t, 2)    \
    X(BF16, uint16_t, 2)   \
    X(I64, int64_t, 8)     \
    X(I8, int8_t, 1)

typedef enum weir_dtype {
    WEIR_DTYPE_NONE,
#define X(name, type, bytes) WEIR_##name,
    WEIR_DTYPE_LIST(X)
#undef X
        WEIR_DTYPES
} weir_dtype;

const char *weir_dtype_name(weir_dtype dtype); /* "f32" */
size_t weir_dtype_bytes(weir_dtype dtype);
bool weir_dtype_real(weir_dtype dtype);        /* f32, f16, bf16 */

/* The format of a weight that weir_linear_stored() or weir_embedding_stored() reads. DENSE: elements of f32, f16 or bf16. The others
 * are quantised: blocks of a row, as GGUF files have them, in a tensor of u8 whose last dimension is the bytes of a block. Saved plans
 * have these numbers, so a new format comes last.
 *
 *     format                    elements of a block    bytes of a block
 *     Q4_0 Q4_1 Q5_0 Q5_1 Q8_0  32                     18 20 22 24 34
 *     Q4_K Q6_K                 256                    144 210 */
typedef enum weir_format {
    WEIR_DENSE,
    WEIR_Q4_0,
    WEIR_Q4_1,
    WEIR_Q5_0,
    WEIR_Q5_1,
    WEIR_Q8_0,
    WEIR_Q4_K,
    WEIR_Q6_K
} weir_format;

/* Convert `count` elements of a real dtype to f32 (exact), and from f32 (rounded to the nearest, ties to even: a value too
 * large for f16 becomes infinite, a NaN stays one). `from` and `to` must not overlap. Any thread. */
void weir_to_f32(weir_dtype dtype, const void *from, int64_t count, float *to);
void weir_from_f32(const float *from, int64_t count, weir_dtype dtype, void *to);

typedef struct weir_shape {
    int rank;
    int64_t dim[WEIR_DIMS_MAX];
} weir_shape;

int64_t weir_shape_count(const weir_shape *shape); /* elements; 1 for a scalar; INT64_MAX if there are more */
bool weir_shape_equal(const weir_shape *a, const weir_shape *b);

/* One SBP, see above. WEIR_S(-1) is the last dimension. Plain numbers are no SBP: .sbp = {1} is a mistake. */
typedef int weir_sbp;
enum {
    WEIR_AUTO = 0,
    WEIR_B = 8,
    WEIR_P = 9,
    WEIR_S0 = 16 /* S(i) is 16 + i */
};
#define WEIR_S(i) (WEIR_S0 + (i))
#define WEIR_IS_S(sbp) ((sbp) >= WEIR_S0 - WEIR_DIMS_MAX)
#define WEIR_S_DIM(sbp) ((sbp) - WEIR_S0)

/* An option that is left out is 0 and takes the default in its comment. WEIR_ZERO is the number 0 for an option with another
 * default: .lr = WEIR_ZERO. For a computed value, write .lr = rate ? rate : WEIR_ZERO. (It is the negative zero, which
 * equals 0 but has another sign bit.) */
#define WEIR_ZERO (-0.0)

/* Returns the value of such an option, or `fallback` if it was left out. For DSL functions of your own. */
double weir_option(double given, double fallback);

/* The short names of the papers, for programs that define WEIR_SHORT_NAMES before they include this. */
#ifdef WEIR_SHORT_NAMES
#define S(i) WEIR_S(i)
enum { B = WEIR_B, P = WEIR_P };
#endif

/* Writes "S(0)", "B", "P" or "auto" to `text` (at least 8 bytes) and returns it. */
const char *weir_sbp_text(weir_sbp sbp, char *text);

/* A tensor in the user's memory, for push, pull, read and write: WEIR_ARRAY(data, WEIR_F32, 8, 1) is the address of one.
 * `data` is borrowed for the call. */
typedef struct weir_array {
    void *data;
    weir_dtype dtype;
    weir_shape shape;
} weir_array;

/* A shard in weir's memory, as a kernel, a source or a sink sees it. `shape` is the shape at `data`; `offset` is the index of
 * its first element in the logical tensor, whose shape is `global`. If the number of rows varies (weir_out in
 * <weir/graph.h>), `shape` has the largest number, and *length is the number of rows with values: the writer sets it, readers
 * read it. Borrowed for the call. */
typedef struct weir_view {
    void *data;
    weir_dtype dtype;
    weir_shape shape;
    int64_t offset[WEIR_DIMS_MAX];
    weir_shape global;
    int32_t *length; /* NULL: the number of rows does not vary */
} weir_view;

/* Returns the number of rows of the view that have values; 1 for a scalar. */
static inline int64_t weir_view_rows(const weir_view *view)
{
    return view->length ? *view->length : view->shape.rank ? view->shape.dim[0] : 1;
}

/* Uniform 32-bit words: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") of a 64-bit
 * key and a 128-bit counter. The value at an index depends on nothing else, so every layout draws the same numbers. */
void weir_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4]);

/* One sample of N(0, 1) (Box and Muller 1958) or of U[0, 1) for element `index` of the stream `key`. */
float weir_random_normal(uint64_t key, uint64_t index);
float weir_random_uniform(uint64_t key, uint64_t index);

WEIR_C_END

#include <weir/macros.h>
#endif
