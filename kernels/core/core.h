/* kernels/core/core.h: the ops that the builder and the compiler insert by themselves.
 *
 *     source       -> x             the start of an input; its kernel calls the bound source function
 *     sink       x ->               the end of a fetch; its kernel calls the bound sink function; a value that varies
 *                                   in size has a second input, its length
 *     call    x... -> y...          a user's function; on one device, like source and sink, unless it is split by hand
 *     shard      x -> x             explicit boxing; no kernel: it is gone after the box pass
 *     box     x... -> x             conversion: each input is a shard of the logical tensor (or a term of it), the
 *                                   output is the destination's shard; views say where each lies
 *     copy       x -> x             what a state is set to; where a value has to be its own; and to a disk and back
 *     accumulate x -> y             y = x in the first firing of a fill, y += x in the others
 *     batch      x -> y             one row of y for each micro-batch: this one's
 *     unbatch    x -> y             this micro-batch's row of x
 *     grad_seed  x -> x             the gradient of a step's loss with respect to one micro-batch's: 1 / M, or with a
 *                                   second input, the scale of the loss, that times 1 / M
 *     collective x... -> y...       what a device gives to others and takes from them: its part in a collective, which is the
 *                                   device's own doing (regst/device.h); no kernel
 *
 * Attribute structures hold int64_t and double alone, as weir_op asks.
 */
#ifndef KERNELS_CORE_H
#define KERNELS_CORE_H

#include <weir/op.h>

/* source, and each output of a call: what it makes */
typedef struct typed_attrs {
    int64_t dtype;
    int64_t rank;
    int64_t dim[WEIR_DIMS_MAX];
} typed_attrs;

enum { CALL_OUTS_MAX = 8 };

/* Ends at the first output without a dtype. Bit i: input i, output i varies. Behind the inputs come the lengths of those
 * that do, and likewise behind the outputs: i32 scalars. */
typedef struct call_attrs {
    typed_attrs out[CALL_OUTS_MAX];
    int64_t in_varies, out_varies;
    int64_t skips;  /* not called when an input that varies is empty */
} call_attrs;

/* Inputs come in groups of `terms` that cover the same elements: the first is copied, the others are added to it, in
 * order. `zero`: elements that no input covers exist, and become 0. */
typedef struct box_attrs {
    int64_t terms;
    int64_t zero;
} box_attrs;

/* How many micro-batches come together. */
typedef struct batch_attrs {
    int64_t values;
} batch_attrs;

typedef struct seed_attrs {
    double value; /* set by the lower pass */
    int64_t whole; /* 1: the loss is summed over the micro-batches: 1, not 1 / M. Not the kernel's */
} seed_attrs;

#endif
