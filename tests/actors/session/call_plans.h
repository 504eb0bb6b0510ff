/* tests/actors/session/call_plans.h: plans that call functions of their program, for the suites of calls. */
#ifndef TESTS_ACTORS_SESSION_CALL_PLANS_H
#define TESTS_ACTORS_SESSION_CALL_PLANS_H

#include "graph/plan/form/plan.h"
#include "tests/support/ranks.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

enum { STEPS = 7, ITEMS = 6, PATIENCE_S = 10 };

static inline weir_plan *compiled(weir_graph *g, int micro)
{
    weir_plan *plan = weir_compile(g, .micro_batches = micro);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static inline weir_session *opened(const weir_plan *plan)
{
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    return s;
}

static inline float *numbers(const weir_view *view)
{
    return view->data;
}

static inline weir_status count_up(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx;
    for (int i = 0; i < ITEMS; i++)
        numbers(dst)[i] = (float)(100 * step + 10 * micro + i);
    return WEIR_OK;
}

static inline weir_status nothing(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

typedef struct heap {
    int64_t values, rows;
    double sum;
} heap;

/* The values of STEPS + 1 steps: in step s the even ones of the first s of 100 s, 100 s + 1, ... */
static inline heap wanted(void)
{
    heap to = {0};
    for (int step = 0; step <= STEPS; step++) {
        to.values++;
        for (int i = 0; i < step % (ITEMS + 1); i += 2) {
            to.rows++;
            to.sum += 100 * step + i;
        }
    }
    return to;
}

#endif
