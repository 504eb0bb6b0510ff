/* regst/cuda/kernels.h: what the driver itself runs on a device; and the built-in ops' kernels by name. */
#ifndef REGST_CUDA_KERNELS_H
#define REGST_CUDA_KERNELS_H

#include <weir/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SUM_MAX = 32 }; /* members of a group that add */

/* What is added: element i of each, in the order of the members, in f32 whatever the dtype. */
struct sum_terms {
    const void *of[SUM_MAX];
    int count;
};

/* Bytes that are copied, and which chunk of all is the first of them. */
struct move_part {
    void *to;
    const void *from;
    uint64_t bytes, first;
};
enum { MOVES_MAX = 64, MOVE_CHUNK = 32 << 10 };
struct move_parts {
    struct move_part of[MOVES_MAX];
    uint64_t chunks;
    int count;
};

/* One more. */
static inline void move_parts_add(struct move_parts *parts, void *to, const void *from, uint64_t bytes)
{
    const struct move_part part = {to, from, bytes, parts->chunks};
    parts->of[parts->count++] = part;
    parts->chunks += (bytes + MOVE_CHUNK - 1) / MOVE_CHUNK;
}

/* All enqueue on args->queue, and use of the arguments only that, .error and .error_bytes. */
weir_status kernels_set_clock(const weir_kernel_args *args, weir_clock *clock, weir_clock value);
weir_status kernels_sum(const weir_kernel_args *args, const struct sum_terms *terms, weir_dtype dtype, void *out,
                        int64_t items);
weir_status kernels_move(const weir_kernel_args *args, const struct move_parts *parts);

#ifdef __cplusplus
}
#endif
#endif
