/* apps/weir/bench/link_plan.h: plans of two ranks that pass values, made by hand: two actors on two devices, and nothing but a register,
 * or two, between them. */
#ifndef APPS_WEIR_BENCH_LINK_PLAN_H
#define APPS_WEIR_BENCH_LINK_PLAN_H

#include <weir/weir.h>

typedef struct bench_link_shape {
    size_t bytes;          /* of a value: a multiple of 64 */
    uint32_t slots;        /* of the register */
    const weir_op *first, *second; /* registered; of each device's actor. They have what they read and write as operands */
    bool reversed;         /* the first one is on rank 1, and its values go to rank 0; not with .back */
    bool back;             /* the second one's values go back, into one slot, which is full at the start */
} bench_link_shape;

/* NULL and weir_error(). */
weir_plan *bench_link_plan(const bench_link_shape *shape);

/* For ops without operands of interest: they fit all, and infer nothing. */
bool bench_link_infer(weir_op_args *args, char *error, size_t error_bytes);
bool bench_link_fits(const weir_op_args *args, char *error, size_t error_bytes);

#endif
