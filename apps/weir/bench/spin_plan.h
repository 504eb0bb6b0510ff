/* apps/weir/bench/spin_plan.h: plans of kernels that spin for a known time of their thread's processor: stages on devices, one after the
 * other ("spin0", "spin1", ...), between a source and a sink. */
#ifndef APPS_WEIR_BENCH_SPIN_PLAN_H
#define APPS_WEIR_BENCH_SPIN_PLAN_H

#include <weir/weir.h>

#define SPIN_OP "bench_spin"

enum { SPIN_STAGES = 4 };

typedef struct spin_shape {
    int devices, stages;     /* a stage is on devices 0 .. devices - 1, or, in turn, on one of them */
    int64_t us[SPIN_STAGES]; /* of each stage */
    int micro, slots;        /* 0: as the compiler chooses */
    enum { SPIN_ALONE, SPIN_SPLIT, SPIN_GATHERED } parts; /* SPLIT: all devices have a part of each stage, and the last gathers; GATHERED: each
                                gathers */
} spin_shape;

/* Registers the op on the first call. NULL and weir_error(). */
weir_plan *spin_plan(const spin_shape *shape, const char *name);

#endif
