/* tests/actors/session/test_ranks.c: how devices are spread over processes changes no bit.
 *
 * The GPT of test_layouts.c, a little shorter in sequence, in every layout: what each step's loss is in one process it
 * is in every rank of many, over shared memory and over sockets. One set of processes opens the sessions of all cases
 * of a layout one after the other.
 */
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = EFFORT(FULL(5, 3), 2, 2) };

enum { MICRO_MAX = 4, CASES = 6, TIMEOUT_MS = 60000 };

struct losses {
    float value[STEPS * MICRO_MAX];
};

struct one_case {
    gpt_config config; /* the sources' context */
    weir_plan *plan;   /* owned */
    struct losses alone;
};

struct cases {
    text corpus;
    struct one_case of[CASES];
};

static const char *pull_all(weir_session *s, int micro, struct losses *losses)
{
    if (weir_session_start(s, STEPS))
        return weir_error();
    for (int i = 0; i < STEPS * micro; i++)
        if (weir_session_pull(s, "loss", &(weir_array){.data = &losses->value[i], .dtype = WEIR_F32}, TIMEOUT_MS))
            return weir_error();
    return weir_session_wait(s, TIMEOUT_MS) ? weir_error() : NULL;
}

static void run_alone(struct one_case *of)
{
    weir_session *s = weir_session_open(of->plan, .cluster.alone = true);
    cr_assert_not_null(s, "%s", weir_error());
    const char *error = pull_all(s, of->config.layout.micro, &of->alone);
    cr_assert_null(error, "%s", error);
    weir_session_close(s);
}

/* A layout, with and without .zero, with one and four micro-batches; and two of these in half precision. */
static struct cases *cases_new(int dp, int tp, int pp)
{
    struct cases *cases = calloc(1, sizeof *cases);
    cr_assert(cases);
    cases->corpus = reference_text();
    for (int i = 0; i < CASES; i++) {
        struct one_case *of = &cases->of[i];
        of->config = reference_gpt(&cases->corpus, REFERENCE_FULL);
        of->config.seq = 8;
        of->config.layout = (layout){dp, tp, pp, i & 1 ? MICRO_MAX : 1, i >> 1 & 1 || i == 4};
        weir_graph *graph = gpt_train_graph(&of->config);
        cr_assert_not_null(graph);
        of->plan = weir_compile(graph, .micro_batches = of->config.layout.micro, .seed = REFERENCE_SEED,
                                .precision = i < 4 ? WEIR_F32 : i == 4 ? WEIR_BF16 : WEIR_F16);
        cr_assert_not_null(of->plan, "%s", weir_error());
        weir_graph_free(graph);
        run_alone(of);
    }
    return cases;
}

static void cases_free(struct cases *cases)
{
    for (int i = 0; i < CASES; i++)
        weir_plan_free(cases->of[i].plan);
    text_free(&cases->corpus);
    free(cases);
}

static bool rank_is_idle(const struct rank *rank, const weir_plan *plan)
{
    int devices = (int)plan->spaces_count, each = (devices + rank->count - 1) / rank->count;
    return rank->number * each >= devices;
}

static void run_case(struct rank *rank, const struct one_case *of)
{
    struct losses losses = {{0}};
    int micro = of->config.layout.micro;
    weir_session *s = weir_session_open(of->plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    if (rank_is_idle(rank, of->plan)) {
        RANK_OK(rank, weir_session_run(s, STEPS));
    } else {
        const char *error = pull_all(s, micro, &losses);
        RANK_IS(rank, !error, "micro %d, zero %d: %s", micro, of->config.layout.zero, error);
        RANK_IS(rank, !memcmp(losses.value, of->alone.value, sizeof losses.value),
                "micro %d, zero %d: other bits: %a and not %a", micro, of->config.layout.zero,
                (double)losses.value[STEPS * micro - 1], (double)of->alone.value[STEPS * micro - 1]);
        ++*(int *)rank->result;
    }
    RANK_OK(rank, weir_session_close(s));
}

static void run_cases(struct rank *rank)
{
    const struct cases *cases = rank->ctx;
    for (int i = 0; i < CASES && !rank->failed; i++)
        run_case(rank, &cases->of[i]);
}

static void agree(struct cases *cases, int count, enum ranks_link link, int idle)
{
    struct ranks *ranks = ranks_run(run_cases, cases, .count = count, .link = link, .result_bytes = sizeof(int),
                                    .seconds = 240);
    for (int r = 0; r < count; r++)
        cr_expect_eq(*(int *)ranks->rank[r].result, r < count - idle ? CASES : 0, "rank %d of %d, link %d: %d", r, count, link, *(int *)ranks->rank[r].result);
    ranks_free(ranks);
}

static void layout_agrees(int dp, int tp, int pp)
{
    struct cases *cases = cases_new(dp, tp, pp);
    for (int count = 2; count <= dp * tp * pp; count *= 2)
        for (int link = RANKS_SHM; link <= (count == 2 ? RANKS_TCP : RANKS_WIRE); link++)
            agree(cases, count, (enum ranks_link)link, 0);
    cases_free(cases);
}

#define LAYOUT(d, t, p)                                                                   \
    Test(ranks, dp##d##_tp##t##_pp##p##_has_the_same_bits_in_any_number, .timeout = 600) \
    {                                                                                     \
        layout_agrees(d, t, p);                                                           \
    }
#if EFFORT(1, 1, 0) /* the next one has both ways of these */
LAYOUT(2, 1, 1)
LAYOUT(1, 2, 1)
LAYOUT(1, 1, 2)
#endif
LAYOUT(2, 1, 2)
#if EFFORT(1, 0, 0)
LAYOUT(2, 2, 2)
#endif
#if EFFORT(FULL(1, 0), 0, 0) /* the rest is the same code, for minutes */
LAYOUT(4, 1, 1)
LAYOUT(1, 4, 1)
LAYOUT(1, 1, 4)
LAYOUT(2, 2, 1)
LAYOUT(1, 2, 2)
#endif

Test(ranks, dp2_pp2_has_the_same_bits_over_ucx, .timeout = 600)
{
    struct cases *cases = cases_new(2, 1, 2);
    agree(cases, 2, RANKS_UCX, 0);
    agree(cases, 4, RANKS_UCX, 0);
    cases_free(cases);
}

/* Two devices a rank: the third has none. */
Test(ranks, three_share_four_devices, .timeout = 120)
{
    struct cases *cases = cases_new(2, 1, 2);
    agree(cases, 3, RANKS_SHM, 1);
    agree(cases, 3, RANKS_WIRE, 1);
    cases_free(cases);
}

Test(ranks, one_more_than_devices_is_idle, .timeout = 120)
{
    struct cases *cases = cases_new(2, 2, 1);
    agree(cases, 5, RANKS_SHM, 1);
    agree(cases, 5, RANKS_WIRE, 1);
    cases_free(cases);
}
