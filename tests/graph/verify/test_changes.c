/* tests/graph/verify/test_changes.c: plans that were changed at random and are still valid. No change that matters goes by unseen.
 *
 * Two judges say whether a change matters, and neither uses the field. One plays plans in double precision (tests/support/referee.h);
 * it shares the rules of ops with the proof. The other is the library itself, which runs the plan with its kernels in f32.
 */
#include "tests/graph/verify/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/referee.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/sample_plan.h"

TestSuite(changes, .timeout = FULL(6000, 600));

#if EFFORT(1, 0, 0)

enum { SEED = 4711, WORDS = FULL(200, 20), TRIES_MAX = 2000000, CHANGES = FULL(20000, 1000) };

static uint64_t firings(const weir_plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        sum += plan->actors[a].fires;
    return sum;
}

/* Whether a valid plan is live, runs in a time like that of the other, and has the same ends. */
static bool runs(const weir_plan *plan, const weir_plan *base)
{
    return !weir_plan_check(plan) && plan->graph == base->graph && plan->hosts_count == base->hosts_count &&
           plan->micro_batches == base->micro_batches && firings(plan) <= 2 * firings(base);
}

/* ---- single words of encoded plans ---- */

struct tally {
    int tried, valid, differ, caught, missed, strict;
};

static void try_word(const char *what, const weir_graph *g, const weir_plan *base, const referee *j, uint64_t *random, struct tally *t)
{
    weir_plan *plan = plan_copy(base);
    cr_assert_not_null(plan);
    const uint64_t before = *random;
    mutate_word(plan, random);
    t->tried++;
    if (!plan_validate(plan) && runs(plan, base)) {
        const bool differs = referee_differs(j, plan, SEED);
        const weir_status status = weir_plan_verify(g, plan, .seed = SEED);
        t->valid++;
        t->differ += differs;
        t->caught += differs && status;
        t->missed += differs && !status;
        t->strict += !differs && status;
        if (differs && !status)
            fprintf(stderr, "%s: the change of random number %#llx goes by unseen\n", what, (unsigned long long)before);
    }
    weir_plan_free(plan);
}

/* The last number counts those that are refused although no data set shows a difference: other names or first values of parameters,
 * a rate that differs in its last digits, and the like. */
static void try_words(const char *what, weir_graph *g, int micro, weir_dtype precision)
{
    weir_plan *base = weir_compile(g, .micro_batches = micro, .precision = precision);
    struct tally t = {0};
    uint64_t random = SEED;
    cr_assert(base, "%s: %s", what, weir_error());
    referee *j = referee_new(base, RUN_CLASSES);
    cr_assert_not_null(j);
    while (t.differ < WORDS && t.tried < TRIES_MAX)
        try_word(what, g, base, j, &random, &t);
    fprintf(stderr, "%s: %d words changed, %d plans valid, %d different, %d caught, %d missed; %d strictly refused\n", what, t.tried,
            t.valid, t.differ, t.caught, t.missed, t.strict);
    cr_expect_eq(t.differ, WORDS);
    cr_expect_leq(t.missed * 1000, t.differ, "%s: %d changes that matter are missed", what, t.missed);
    referee_free(j);
    weir_plan_free(base);
    weir_graph_free(g);
}

#define WORDS_OF(name, graph, micro, precision)         \
    Test(changes, of_a_word_of_##name##_are_caught)     \
    {                                                   \
        try_words(#name, graph, micro, precision);      \
    }
WORDS_OF(rows, mlp(DATA, true), 2, WEIR_F32)
WORDS_OF(columns, mlp(TENSOR, false), 3, WEIR_F32)
WORDS_OF(zero, gpt((layout){.dp = 2, .zero = true}), 2, WEIR_F32)
WORDS_OF(half, gpt((layout){.tp = 2}), 2, WEIR_F16)
WORDS_OF(odd_ops, odd(3, false, false), 2, WEIR_F32)

/* ---- the other judge ---- */

/* Whether two runs came to other values. */
static bool differ(const run *a, const run *b)
{
    bool other = a->count != b->count;
    for (int e = 0; !other && e < a->count; e++) {
        other = strcmp(a->entry[e].name, b->entry[e].name) || a->entry[e].count != b->entry[e].count;
        for (int64_t i = 0; !other && i < a->entry[e].count; i++) {
            const double x = a->entry[e].value[i], y = b->entry[e].value[i];
            other = !(fabs(x - y) <= 1e-2 * (1 + fabs(x))) && !(isnan(x) && isnan(y));
        }
    }
    return other;
}

Test(changes, that_change_what_kernels_compute_are_caught)
{
    weir_graph *g = mlp(DATA, true);
    weir_plan *compiled = weir_compile(g, .micro_batches = 2), *base = mutate_room(compiled);
    uint64_t random = SEED;
    int judged = 0, missed = 0;
    cr_assert(base, "%s", weir_error());
    cr_assert_eq(weir_plan_verify(g, base), WEIR_OK, "%s", weir_error());
    run right = run_plan(base, 3, 2);
    for (int i = 0; i < CHANGES; i++) {
        weir_plan *plan = plan_copy(base);
        mutate_plan(plan, &random);
        const bool valid = mutate_tighten(plan) && runs(plan, base);
        const weir_status status = valid ? weir_plan_verify(g, plan, .rounds = 1) : WEIR_E_PLAN;
        if (!status) {
            run other = run_plan(plan, 3, 2);
            missed += differ(&right, &other);
            if (differ(&right, &other))
                fprintf(stderr, "change %d goes by unseen\n", i);
            run_free(&other);
        }
        judged += status == WEIR_OK || status == WEIR_E_WRONG;
        weir_plan_free(plan);
    }
    fprintf(stderr, "%d changes that are valid, %d that matter missed\n", judged, missed);
    cr_expect_gt(judged, 0);
    cr_expect_eq(missed, 0);
    run_free(&right);
    weir_plan_free(base);
    weir_plan_free(compiled);
    weir_graph_free(g);
}
#endif
