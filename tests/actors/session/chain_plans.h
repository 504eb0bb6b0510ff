/* tests/actors/session/chain_plans.h: chains of actors from a source to a sink, and what these saw, for the suites of sessions. */
#ifndef TESTS_ACTORS_SESSION_CHAIN_PLANS_H
#define TESTS_ACTORS_SESSION_CHAIN_PLANS_H

#include "tests/support/json.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/session.h>

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())
#define FAILS(status, call, part)                                                                \
    do {                                                                                         \
        cr_assert_eq((call), status, "%s", weir_error());                                        \
        cr_assert(strstr(weir_error(), part), "'%s' does not say '%s'", weir_error(), part);     \
    } while (0)

static inline weir_plan *checked(weir_plan *plan)
{
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

/* The values that a sink was given, in order. */
struct seen {
    float value[4096];
    int64_t step[4096];
    int micro[4096];
    int count;
};

static inline weir_status see(void *ctx, const weir_view *value, int64_t step, int micro)
{
    struct seen *seen = ctx;
    cr_assert_lt(seen->count, 4096);
    seen->value[seen->count] = *(const float *)value->data;
    seen->step[seen->count] = step;
    seen->micro[seen->count++] = micro;
    return WEIR_OK;
}

/* 10 * step + micro in every element. */
static inline weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx;
    for (int64_t i = 0; i < dst->shape.dim[0]; i++)
        ((float *)dst->data)[i] = (float)(10 * step + micro);
    return WEIR_OK;
}

#define SOURCE .kernel = "source", .host_kind = 1 + PLAN_SOURCE
#define SINK .kernel = "sink", .host_kind = 1 + PLAN_SINK
#define PUSH .host_kind = 1 + PLAN_PUSH
#define PULL .host_kind = 1 + PLAN_PULL

/* in -> stages that add 1 -> out, over so many devices. */
static inline sdf *chain_begin(uint32_t devices, uint32_t *queues)
{
    test_ops();
    sdf *s = sdf_new("chain", 1);
    for (uint32_t i = 0; i < devices; i++)
        queues[i] = sdf_device(s);
    return s;
}

static inline weir_plan *chain_plan(uint32_t devices, uint32_t stages, uint32_t slots, uint32_t items)
{
    uint32_t queues[8];
    sdf *s = chain_begin(devices, queues);
    uint32_t last = sdf_actor(s, queues[0], "x", SOURCE);
    uint32_t regst = sdf_regst(s, last, .slots = slots, .items = items);
    for (uint32_t i = 0; i < stages; i++) {
        last = sdf_actor(s, queues[i % devices], "stage", .kernel = "test_sum");
        sdf_port(s, last, regst);
        regst = sdf_regst(s, last, .slots = slots, .items = items);
    }
    sdf_port(s, sdf_actor(s, queues[devices - 1], "y", SINK), regst);
    return checked(sdf_plan(s));
}

static inline weir_plan *pipe_plan(uint32_t slots, uint32_t stages)
{
    uint32_t queues[2];
    sdf *s = chain_begin(2, queues);
    uint32_t outside = sdf_outside(s, queues[0]);
    uint32_t x = sdf_actor(s, outside, "x", PUSH);
    uint32_t regst = sdf_regst(s, x, .slots = slots, .items = 4);
    for (uint32_t i = 0; i < stages; i++) {
        uint32_t stage = sdf_actor(s, queues[i % 2], "stage", .kernel = "test_sum");
        sdf_port(s, stage, regst);
        regst = sdf_regst(s, stage, .slots = slots, .items = 4);
    }
    sdf_port(s, sdf_actor(s, outside, "y", PULL), regst);
    return checked(sdf_plan(s));
}

static inline weir_array four(float *value)
{
    return (weir_array){value, WEIR_F32, {1, {4}}};
}

#endif
