/* kernels/cuda/moves.h: elements from where they lie to where they belong, on a GPU.
 *
 * A move is a nest (kernels/common/nest.h) over what is moved, with two operands: where it comes from, and where it goes. It is
 * copied in units as large as both sides allow. Where the two sides have different dimensions innermost, square tiles pass
 * through shared memory, so that neither is read or written a line per element. Enqueues and returns; any thread.
 */
#ifndef KERNELS_CUDA_MOVES_H
#define KERNELS_CUDA_MOVES_H

#include "graph/base/dtype.h"
#include "kernels/cuda/walk.h"

/* Moves elements of so many bytes; `from` and `to`: the first element of either side. */
void move_elements(const weir_kernel_args *args, const void *from, void *to, size_t bytes, nest n);

/* `count` elements that lie together, on both sides. */
void move_run(const weir_kernel_args *args, const void *from, void *to, size_t bytes, int64_t count);

void move_zeros(const weir_kernel_args *args, void *to, size_t bytes);

static inline size_t bytes_of(weir_dtype dtype)
{
    return dtype_bytes(dtype);
}

#endif
