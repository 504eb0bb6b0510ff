/* tests/graph/compile/limited_plans.h: plans within limits, for the suites of limits. */
#ifndef TESTS_GRAPH_COMPILE_LIMITED_PLANS_H
#define TESTS_GRAPH_COMPILE_LIMITED_PLANS_H

#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/reference.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef weir_plan *(*compile_fn)(const void *model, const char *limit);

enum { LADDER = EFFORT(FULL(3, 2), 1, 1), MODELS = EFFORT(FULL(8, 6), 3, 3), STEPS = 3 };

static inline uint64_t largest(const weir_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        most = plan->spaces[s].bytes > most ? plan->spaces[s].bytes : most;
    return most;
}

static inline weir_plan *within(compile_fn compile, const void *model, uint64_t bytes)
{
    char limit[32];
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)bytes);
    return compile(model, limit);
}

/* The smallest limit, as the refusal of 1 byte tells it. */
static inline uint64_t smallest(compile_fn compile, const void *model)
{
    static const char words[] = "The smallest limit that would do is ";
    weir_plan *plan = within(compile, model, 1);
    cr_assert_null(plan, "a plan in one byte");
    const char *said = strstr(weir_error(), words);
    cr_assert_not_null(said, "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "parameters "), "%s", weir_error());
    char *end;
    uint64_t bytes = strtoull(said + strlen(words), &end, 10);
    cr_assert_eq(strncmp(end, " B.", 3), 0, "%s", said);
    return bytes;
}

/* Repetitions in the plan, of the op, or (NULL) of any. */
static inline int repeated(const weir_plan *plan, const char *op)
{
    int count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const char *name = plan_text(plan, plan->kernels[k].name);
        size_t length = strlen(name);
        count += length > 6 && !strcmp(name + length - 6, ".again") &&
                 (!op || !strcmp(op, plan_text(plan, plan->kernels[k].op)));
    }
    return count;
}

/* Limit `at` of LADDER, from the smallest up. */
static inline uint64_t limit_at(uint64_t least, uint64_t most, int at)
{
    return least + (most - least) * (uint64_t)at / LADDER;
}

/* weir_plan_limited() names what the limit cost, and nothing else. */
static inline void tells(const weir_plan *plan, uint64_t bytes, bool whole)
{
    char said[160], again[32];
    cr_expect_eq(weir_plan_limited(plan, said, sizeof said), !whole);
    cr_expect_eq(plan->limits_count, !whole);
    if (whole)
        return;
    snprintf(again, sizeof again, ": %d kernel", (int)plan->limits->again);
    cr_expect_leq((int)plan->limits->again, repeated(plan, NULL), "an author may repeat, too");
    cr_expect_not_null(strstr(said, again), "%s, not %s", said, again);
    cr_expect_eq(plan->limits->bytes, bytes);
    cr_expect_gt(plan->limits->whole, bytes);
    cr_expect_geq(plan->limits->longer, 0);
}

/* A plan within the limit, which is kept. */
static inline weir_plan *kept(compile_fn compile, const void *model, uint64_t bytes)
{
    weir_plan *plan = within(compile, model, bytes);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_leq(largest(plan), bytes);
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    tells(plan, bytes, !plan->limits_count || bytes >= plan->limits->whole);
    return plan;
}

typedef struct gpt_model {
    gpt_config config;
    weir_dtype precision;
} gpt_model;

static inline weir_plan *compile_gpt(const void *model, const char *limit)
{
    const gpt_model *gpt = model;
    weir_graph *g = gpt_train_graph(&gpt->config);
    weir_plan *plan = weir_compile(g, .micro_batches = gpt->config.layout.micro, .seed = REFERENCE_SEED,
                                   .precision = gpt->precision, .memory = limit);
    weir_graph_free(g);
    return plan;
}

#endif
