/* tests/actors/session/test_cluster_refused.c: ranks that are refused when they meet, with the reason: descriptors, levels of kernels, carriers. */
#include "graph/base/base.h"
#include "kernels/matmul/amx.h"
#include "tests/support/chain.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(cluster_refused, .timeout = 120);

/* ---- descriptors ---- */

static void open_with_few(struct rank *rank)
{
    const weir_plan *plan = rank->ctx;
    struct rlimit limit = {25, 25};
    setrlimit(RLIMIT_NOFILE, &limit);
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, !s && strstr(weir_error(), "1 neighbours and needs 26 descriptors"), "%s", s ? "open" : weir_error());
}

Test(cluster_refused, too_few_descriptors_are_told_before_anybody_waits)
{
    weir_plan *plan = chain_plan("test_sum", true, STAGES);
    ranks_free(ranks_run(open_with_few, plan, .count = 2));
    weir_plan_free(plan);
}

/* ---- levels of kernels ---- */

/* This process uses the kernels of the build's lowest level, or of the next. A processor that may have AMX has both. */
static void use_level(int number)
{
    amx_pretend(true);
    setenv("WEIR_CPU_LEVEL", op_levels()[number], 1);
}

static void open_with_another_level(struct rank *rank)
{
    const char *const *level = op_levels();
    char wanted[256];
    struct seen seen = {0};
    use_level(rank->number);
    weir_session *s = chain_open(rank, rank->ctx, &seen);
    snprintf(wanted, sizeof wanted, " of level %s, and these round differently: set WEIR_CPU_LEVEL=%s on all ranks",
             level[0], level[0]);
    RANK_IS(rank, !s && strstr(weir_error(), wanted), "%s", s ? "open" : weir_error());
    snprintf(rank->result, 512, "%s", weir_error());
}

static void run_with_the_lower_level(struct rank *rank)
{
    struct seen seen = {0};
    use_level(0);
    weir_session *s = chain_open(rank, rank->ctx, &seen);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 20));
    RANK_OK(rank, weir_session_close(s));
    RANK_IS(rank, !seen.wrong, "%d values are wrong", seen.wrong);
}

/* Each in a process of its own, which has not asked before. */
static void can_use_both(struct rank *rank)
{
    const char *level;
    use_level(1);
    *(bool *)rank->result = op_level(&level) == WEIR_OK;
}

Test(cluster_refused, ranks_of_two_levels_do_not_compute_together_and_say_which_one_to_take)
{
    struct ranks *ranks = ranks_run(can_use_both, NULL, .count = 1, .result_bytes = 1);
    bool both = *(bool *)ranks->rank[0].result;
    ranks_free(ranks);
    if (!both)
        cr_skip_test("this processor has one level");
    weir_plan *plan = chain_plan("test_sum", true, STAGES);
    ranks = ranks_run(open_with_another_level, plan, .count = 2, .result_bytes = 512);
    const char *said[2] = {ranks->rank[0].result, ranks->rank[1].result};
    cr_expect_str_eq(said[0], said[1]);
    cr_expect_eq(strncmp(said[0], "rank 1 (", 8), 0, "%s", said[0]);
    cr_expect_not_null(strstr(said[0], ") has kernels of level "), "%s", said[0]);
    cr_expect_not_null(strstr(said[0], ", rank 0 ("), "%s", said[0]);
    ranks_free(ranks);
    ranks_free(ranks_run(run_with_the_lower_level, plan, .count = 2));
    weir_plan_free(plan);
}

/* ---- carriers ---- */

static void open_with_another_carrier(struct rank *rank)
{
    struct seen seen = {0};
    setenv("WEIR_CARRIER", rank->number ? "ipc,tcp" : "tcp", 1);
    weir_session *s = chain_open(rank, rank->ctx, &seen);
    RANK_IS(rank, !s && strstr(weir_error(), ": WEIR_CARRIER must list the same on all ranks"), "%s",
            s ? "open" : weir_error());
}

Test(cluster_refused, ranks_of_two_carriers_do_not_meet)
{
    weir_plan *plan = chain_plan("test_sum", true, STAGES);
    ranks_free(ranks_run(open_with_another_carrier, plan, .count = 3, .link = RANKS_WIRE));
    weir_plan_free(plan);
}

/* No rank can have a file in memory as large as it would share, so none shares memory. A rank may notice first that the
 * other one has failed. */
static void open_without_a_carrier(struct rank *rank)
{
    struct seen seen = {0};
    char error[64];
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY});
    setenv("WEIR_CARRIER", "shm", 1);
    weir_session *s = chain_open(rank, rank->ctx, &seen);
    snprintf(error, sizeof error, ") and rank %d (", 1 - rank->number);
    *(bool *)rank->result =
        strstr(weir_error(), error) &&
        strstr(weir_error(), ") share no memory, and WEIR_CARRIER=shm allows nothing else that carries register contents "
                             "between them: add tcp or ucx, or on one host ipc, on all ranks");
    RANK_IS(rank, !s && (*(bool *)rank->result || strstr(weir_error(), " ended while the session opened")), "%s",
            s ? "open" : weir_error());
}

Test(cluster_refused, ranks_that_no_carrier_in_the_list_reaches_are_named)
{
    weir_plan *plan = chain_plan("test_sum", true, STAGES);
    struct ranks *ranks = ranks_run(open_without_a_carrier, plan, .count = 2, .result_bytes = sizeof(bool));
    cr_expect(*(bool *)ranks->rank[0].result || *(bool *)ranks->rank[1].result);
    ranks_free(ranks);
    weir_plan_free(plan);
}

/* UCX without a transport that brings anything from one process to another. */
static void open_without_a_transport(struct rank *rank)
{
    struct seen seen = {0};
    setenv("UCX_TLS", "self", 1);
    weir_session *s = chain_open(rank, rank->ctx, &seen);
    RANK_IS(rank, !s && strstr(weir_error(), "over ucx: UCX: "), "%s", s ? "open" : weir_error());
}

Test(cluster_refused, what_ucx_cannot_do_is_told_when_a_session_opens)
{
    weir_plan *plan = chain_plan("test_sum", true, STAGES);
    ranks_free(ranks_run(open_without_a_transport, plan, .count = 2, .link = RANKS_UCX));
    weir_plan_free(plan);
}
