/* tests/actors/session/test_names.c: sessions of the same ranks that open at the same time find the right ones by their
 * names. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "tests/support/ranks.h"

TestSuite(names, .timeout = 120);

enum { SESSIONS = 4, STEPS = 5, WAIT_MS = 30000 };

/* Two devices; the fetch is the sum of eight elements, each times `factor`. */
static weir_plan *plan_new(const char *name, int factor)
{
    weir_graph *g = weir_graph_new(name);
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8}, .name = "x", .sbp = {S(0)});
    weir_fetch(weir_sum(weir_affine(x, factor)), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

struct opener {
    struct rank *rank;
    pthread_t thread;
    int number, delay_ms;
    const char *given; /* .name; NULL: the graph's name differs */
    char error[512];
};

static weir_status use(struct opener *opener, weir_session *session)
{
    int factor = opener->number + 2;
    weir_status status = weir_session_start(session, STEPS);
    for (int step = 0; !status && step < STEPS; step++) {
        float x[8], y = 0;
        for (int i = 0; i < 8; i++)
            x[i] = (float)(step + 1);
        status = weir_session_push(session, "x", &(weir_array){x, WEIR_F32, {1, {8}}}, WAIT_MS);
        if (!status)
            status = weir_session_pull(session, "y", &(weir_array){&y, WEIR_F32, {0}}, WAIT_MS);
        if (!status && y != (float)(8 * (step + 1) * factor)) {
            snprintf(opener->error, sizeof opener->error, "step %d of session %d gives %g", step, opener->number,
                     (double)y);
            return WEIR_OK;
        }
    }
    return status ? status : weir_session_wait(session, WAIT_MS);
}

static void *open_one(void *arg)
{
    struct opener *opener = arg;
    char name[32];
    snprintf(name, sizeof name, "session %d", opener->number);
    ranks_pause(opener->delay_ms);
    weir_plan *plan = plan_new(opener->given ? "graph" : name, opener->number + 2);
    weir_cluster_opts cluster = ranks_cluster(opener->rank);
    cluster.name = opener->given;
    weir_session *session = weir_session_open(plan, .cluster = cluster);
    if (!session || use(opener, session))
        snprintf(opener->error, sizeof opener->error, "session %d: %s", opener->number, weir_error());
    weir_session_close(session);
    weir_plan_free(plan);
    return NULL;
}

/* Rank 0's threads begin with the first session, rank 1's with the last. */
static void open_all(struct rank *rank)
{
    static const char *const given[SESSIONS] = {"first", "second", "third", "fourth"};
    struct opener openers[SESSIONS];
    const bool *names = rank->ctx;
    for (int i = 0; i < SESSIONS; i++) {
        int number = rank->number ? SESSIONS - 1 - i : i;
        openers[i] = (struct opener){.rank = rank, .number = number, .delay_ms = 40 * i,
                                     .given = *names ? given[number] : NULL};
        RANK_IS(rank, !pthread_create(&openers[i].thread, NULL, open_one, &openers[i]), "no thread");
    }
    for (int i = 0; i < SESSIONS; i++)
        pthread_join(openers[i].thread, NULL);
    for (int i = 0; i < SESSIONS; i++)
        RANK_IS(rank, !openers[i].error[0], "%s", openers[i].error);
}

static void at_once(bool names, enum ranks_link link)
{
    ranks_free(ranks_run(open_all, &names, .count = 2, .link = link));
}

Test(names, let_four_threads_of_each_rank_open_at_once)
{
    at_once(true, RANKS_SHM);
    at_once(true, RANKS_WIRE);
}

Test(names, are_those_of_the_graphs_when_none_are_given)
{
    at_once(false, RANKS_SHM);
}

/* Rank 0 opens both at once, rank 1 one after the other: whichever rank 0 begins with lets the other go first. */
static void open_in_turn(struct rank *rank)
{
    struct opener openers[2] = {{.rank = rank, .number = 0, .given = "a"}, {.rank = rank, .number = 1, .given = "b"}};
    openers[1].delay_ms = rank->number ? 0 : 300;
    if (rank->number) {
        open_one(&openers[1]);
        open_one(&openers[0]);
    } else {
        for (int i = 0; i < 2; i++)
            RANK_IS(rank, !pthread_create(&openers[i].thread, NULL, open_one, &openers[i]), "no thread");
        for (int i = 0; i < 2; i++)
            pthread_join(openers[i].thread, NULL);
    }
    for (int i = 0; i < 2; i++)
        RANK_IS(rank, !openers[i].error[0], "%s", openers[i].error);
}

Test(names, let_those_go_first_whose_ranks_have_come)
{
    ranks_free(ranks_run(open_in_turn, NULL, .count = 2, .link = RANKS_WIRE));
}

/* ---- errors ---- */

static void open_other(struct rank *rank)
{
    weir_cluster_opts cluster = ranks_cluster(rank);
    weir_plan *plan = plan_new("graph", 2);
    cluster.name = rank->number ? "eval" : "train";
    setenv("WEIR_JOIN", "6", 1); /* long enough for rank 0 to let others go first in between */
    weir_session *session = weir_session_open(plan, .cluster = cluster);
    RANK_IS(rank, !session, "it opens");
    RANK_IS(rank, strstr(weir_error(), "rank 0 met for 'train', rank 1 wants 'eval'"), "%s", weir_error());
    weir_plan_free(plan);
}

Test(names, that_differ_are_both_named_when_the_time_is_over)
{
    ranks_free(ranks_run(open_other, NULL, .count = 2, .link = RANKS_WIRE));
}

Test(names, have_an_end)
{
    char name[80];
    weir_plan *plan = plan_new("graph", 2);
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    cr_assert_null(weir_session_open(plan, .cluster.name = name));
    cr_assert(strstr(weir_error(), "cluster.name has 64 letters, which are more than 63"), "%s", weir_error());
    name[63] = '\0';
    weir_session *session = weir_session_open(plan, .cluster.name = name);
    cr_assert(session, "%s", weir_error());
    weir_session_close(session);
    weir_plan_free(plan);
}
