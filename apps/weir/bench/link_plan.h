/* apps/weir/bench/link_plan.h: plans of two ranks that pass values, made by hand: two actors on two devices, and nothing but a register,
 * or two, between them. */
#ifndef APPS_WEIR_BENCH_LINK_PLAN_H
#define APPS_WEIR_BENCH_LINK_PLAN_H

#include <weir/weir.h>

/* Ops whose kernels touch no byte, and spin for as long as the shape says: one that writes a value, one that reads one and writes one, one that
 * reads one. */
extern const weir_op bench_link_give, bench_link_pass, bench_link_take;

/* Another one, with a kernel of its own. To be registered. */
#define BENCH_LINK_OP(text, ins, outs, function)                                                                                               \
    {                                                                                                                                          \
        .name = text, .in_min = ins, .in_max = ins, .out_count = outs, .infer = bench_link_infer, .fits = bench_link_fits,                     \
        .kernel = {[WEIR_CPU] = function}                                                                                                      \
    }

typedef struct bench_link_shape {
    size_t bytes;          /* of a value: a multiple of 64 */
    uint32_t slots;        /* of the register */
    const weir_op *first, *second; /* of each device's actor. They have what they read and write as operands */
    int64_t first_us, second_us;   /* for which kernels spin, of the ops above */
    bool reversed;         /* the first one is on rank 1, and its values go to rank 0; not with .back */
    bool back;             /* the second one's values go back, into one slot, which is full at the start */
} bench_link_shape;

/* Registers the ops above on the first call. NULL and weir_error(). */
weir_plan *bench_link_plan(const bench_link_shape *shape);

/* For ops without operands of interest: they fit all, and infer nothing. */
bool bench_link_infer(weir_op_args *args, char *error, size_t error_bytes);
bool bench_link_fits(const weir_op_args *args, char *error, size_t error_bytes);

#endif
