/* graph/check/check.h: the parts of weir_op_check(), which holds an op to what its rules promise (<weir/op.h>).
 *
 *     check.c    the graph: the op between parameters that hold the inputs, and its gradient; which is asked what
 *     call.c     one call of a kernel, in memory of its own with margins; what holds for every call
 *     split.c    the signatures: the same call in parts, on devices that are played one after the other
 *     slope.c    the gradient against finite differences
 *
 * A *trial* is one application of an op, with the values of its inputs. Nothing here goes through a plan or a session: the
 * trial is of what the compiler relies on. tests/support/shard_check.h plays the signatures of built-in ops with it, too.
 * All memory is a pool's, of the check or of one call. One thread; a function that returns false has set the error.
 */
#ifndef GRAPH_CHECK_CHECK_H
#define GRAPH_CHECK_CHECK_H

#include "graph/base/pool.h"

#include <weir/op.h>

typedef struct trial {
    const weir_op *op;
    const void *attrs;
    weir_src src;          /* of the call of weir_op_check(), */
    weir_status *status;   /* and what it will return */
    const char *asked;     /* the op that it was called for, of which this one may be a part of the gradient */
    char where[320];       /* "", or "signature 2 (S(1), B -> S(1)) on 3 devices: " */
    double tolerance;
    weir_kernel_fn kernel; /* that is called, */
    weir_device_kind kind; /* and of which kind it is: the CPU, but for tests of an accelerator's kernels, which take the
                              host's memory there */
    uint64_t key;          /* of all random numbers */
    int64_t firing, step;
    size_t margin;         /* bytes around each operand: as many as the largest has, so that a kernel that takes the
                              whole for its part reads and writes in bounds, and is found out */
    int in_count, out_count;
    weir_view *in, *out;   /* those of `in` have data; those of `out` when it was made */
} trial;

/* Sets the error: E_KERNEL, "model.c:12: op_check: prelu: signature 2 (...) on 2 devices: ...". False. */
bool trial_broken(const trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same: E_MEMORY. */
bool trial_no_memory(const trial *t);

/* The margin that its operands need. */
size_t trial_margin(const trial *t);

/* ---- values ---- */

static inline size_t view_bytes(const weir_view *view)
{
    return (size_t)weir_shape_count(&view->shape) * weir_dtype_bytes(view->dtype);
}
double view_get(const weir_view *view, int64_t i);
void view_set(const weir_view *view, int64_t i, double value);
/* "element [3, 4] of ", and "" of a scalar. */
const char *element_text(const weir_view *view, int64_t i, char *text, size_t bytes);
/* Whether they are within tolerance * scale; NaN is near NaN, and an infinity to itself. */
bool values_near(double a, double b, double tolerance, double scale);

/* ---- call.c ---- */

/* Calls the kernel once; t->out gets data, of the pool. */
bool trial_run(trial *t, pool *p);

/* The same, and tries all that holds for a call: see call.c. */
bool trial_hold(trial *t, pool *p);

/* ---- split.c ---- */

/* Tries a signature, the `number`-th that the op lists. `whole` has been run. */
bool trial_split(const trial *whole, const weir_signature *s, int number, int devices);

/* ---- slope.c ---- */

/* Tries a gradient of sum(weights * out[output]) with respect to in[input], which is NULL where it is zero. Both are of the
 * types of what they belong to. */
typedef struct slope {
    int input, output;
    const weir_view *weights, *gradient;
    double tolerance;
} slope;
bool trial_slope(const trial *t, const slope *s);

#endif
