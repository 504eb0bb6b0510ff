/* tests/actors/session/test_cluster.c: sessions of several ranks on this machine: what each of them sees of the whole.
 * The others' view of one that fails, leaves, dies or stops: test_lost.c. */
#include "actors/cluster/cluster.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/chain.h"
#include "tests/support/ops.h"
#include "tests/support/reference.h"
#include "tests/support/sdf.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(cluster, .timeout = 120);

enum { WAIT_MS = 30000 };

static void no_report(void *ctx, const char *said)
{
    (void)ctx;
    (void)said;
}

/* ---- a model, and all that can be seen of it ---- */

enum { STORY_MAX = 4000000 };

/* Losses and parameters, in the order in which they were seen. */
struct story {
    int count;
    float value[STORY_MAX];
};

struct model {
    text corpus;
    gpt_config config;
    weir_plan *plan;
    struct story *alone;
};

/* A model with parameters of the reference's size, or some conversions would be others; few layers and short
 * sequences. */
static struct model *model_new(layout lies)
{
    struct model *m = calloc(1, sizeof *m);
    cr_assert(m);
    m->corpus = reference_text();
    m->config = reference_gpt(&m->corpus, REFERENCE_FULL);
    m->config.layers = lies.pp > 2 ? lies.pp : 2;
    m->config.seq = 4;
    m->config.layout = lies;
    weir_graph *graph = gpt_train_graph(&m->config);
    m->plan = weir_compile(graph, .micro_batches = lies.micro, .seed = REFERENCE_SEED);
    cr_assert_not_null(m->plan, "%s", weir_error());
    weir_graph_free(graph);
    m->alone = calloc(1, sizeof *m->alone);
    cr_assert(m->alone);
    return m;
}

static void model_free(struct model *m)
{
    weir_plan_free(m->plan);
    text_free(&m->corpus);
    free(m->alone);
    free(m);
}

static weir_status story_run(struct story *story, const struct model *m, weir_session *s, int steps)
{
    weir_status status = weir_session_start(s, steps);
    for (int i = 0; !status && i < steps * m->config.layout.micro; i++)
        status = weir_session_pull(
            s, "loss", &(weir_array){.data = &story->value[story->count++], .dtype = WEIR_F32}, WAIT_MS);
    return status ? status : weir_session_wait(s, WAIT_MS);
}

/* Reads every parameter. With `change` it is written again, changed. */
static weir_status story_params(struct story *story, const struct model *m, weir_session *s, bool change)
{
    weir_status status = WEIR_OK;
    for (int i = 0; !status && i < weir_plan_param_count(m->plan); i++) {
        weir_param_info info;
        float *value = &story->value[story->count];
        status = weir_plan_param(m->plan, i, &info);
        weir_array array = {.data = value, .dtype = info.type.dtype, .shape = info.type.shape}; /* of four bytes each */
        int count = (int)weir_shape_count(&info.type.shape);
        if (story->count + count > STORY_MAX - 1000)
            return WEIR_E_MEMORY;
        if (!status)
            status = weir_session_read(s, info.name, &array);
        for (int k = 0; change && info.type.dtype == WEIR_F32 && k < count; k++)
            value[k] = value[k] * 0.75f + 0.001f * (float)(k % 7);
        if (!status && change)
            status = weir_session_write(s, info.name, &array);
        story->count += count;
    }
    return status;
}

/* Runs, reads, writes, runs twice, reads. */
static weir_status story_tell(struct story *story, const struct model *m, weir_session *s)
{
    weir_status status = story_run(story, m, s, 2);
    if (!status)
        status = story_params(story, m, s, true);
    if (!status)
        status = story_run(story, m, s, 1);
    if (!status)
        status = story_run(story, m, s, 2);
    return status ? status : story_params(story, m, s, false);
}

/* One rank's array does not fit: none waits for it, all say whose it was, and the session goes on. */
static void read_in_two_shapes(struct rank *rank)
{
    struct model *m = rank->ctx;
    weir_param_info info;
    static _Thread_local float value[1 << 16];
    RANK_OK(rank, weir_plan_param(m->plan, 0, &info));
    weir_session *s = weir_session_open(m->plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    weir_array fits = {value, info.type.dtype, info.type.shape}, wrong[] = {fits, fits, fits};
    wrong[0].shape.dim[0]++;
    wrong[1].dtype = WEIR_I32;
    wrong[2].data = NULL;
    for (int culprit = 0; culprit < rank->count; culprit++)
        for (int how = 0; how < 3; how++)
            for (int writes = 0; writes < 2; writes++) {
                weir_array *given = rank->number == culprit ? &wrong[how] : &fits;
                weir_status status = writes ? weir_session_write(s, info.name, given) : weir_session_read(s, info.name, given);
                char said[64] = "weir_session_";
                if (rank->number != culprit)
                    snprintf(said, sizeof(said), "rank %d: weir_session_", culprit);
                RANK_IS(rank, status == WEIR_E_ARGUMENT && !strncmp(weir_error(), said, strlen(said)),
                        "culprit %d, case %d: %d, %s", culprit, how, status, weir_error());
                RANK_OK(rank, weir_session_read(s, info.name, &fits));
            }
    RANK_OK(rank, weir_session_close(s));
}

static void story_alone(struct model *m)
{
    weir_session *s = weir_session_open(m->plan, .cluster.alone = true);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(story_tell(m->alone, m, s), WEIR_OK, "%s", weir_error());
    cr_assert_gt(m->alone->count, 1000);
    weir_session_close(s);
}

static void tell(struct rank *rank, const struct model *m, const weir_plan *plan)
{
    struct story *story = calloc(1, sizeof *story);
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s && story, "%s", weir_error());
    RANK_OK(rank, story_tell(story, m, s));
    int first = 0;
    while (first < story->count && !memcmp(&story->value[first], &m->alone->value[first], sizeof(float)))
        first++;
    RANK_IS(rank, story->count == m->alone->count && first == story->count, "value %d of %d is %a and not %a", first,
            story->count, (double)story->value[first], (double)m->alone->value[first]);
    RANK_OK(rank, weir_session_close(s));
    free(story);
    *(int *)rank->result = first;
}

static void tell_whole(struct rank *rank)
{
    const struct model *m = rank->ctx;
    tell(rank, m, m->plan);
}

static void tell_part(struct rank *rank)
{
    const struct model *m = rank->ctx;
    weir_plan *spread = plan_spread(m->plan, (uint32_t)rank->count, 0);
    weir_plan *part = spread ? plan_part(spread, (uint32_t)rank->number) : NULL;
    weir_plan_free(spread);
    RANK_IS(rank, part, "%s", weir_error());
    tell(rank, m, part);
    weir_plan_free(part);
}

static void stories_agree(layout lies, int count, enum ranks_link link, rank_fn fn)
{
    struct model *m = model_new(lies);
    story_alone(m);
    struct ranks *ranks =
        ranks_run(fn, m, .count = count, .link = link, .kind = RANKS_THREADS, .result_bytes = sizeof(int));
    for (int r = 0; r < count; r++)
        cr_expect_eq(*(int *)ranks->rank[r].result, m->alone->count);
    ranks_free(ranks);
    model_free(m);
}

#define STORIES(name, count, link, fn, ...)               \
    Test(cluster, name)                                   \
    {                                                     \
        stories_agree((layout){__VA_ARGS__}, count, link, fn); \
    }
STORIES(replicas_are_read_and_written_as_one_through_memory, 2, RANKS_SHM, tell_whole, 2, 1, 1, 2, false)
STORIES(replicas_are_read_and_written_as_one_over_wires, 2, RANKS_WIRE, tell_whole, 2, 1, 1, 2, false)
STORIES(zero_shards_are_read_and_written_as_one_through_memory, 4, RANKS_SHM, tell_whole, 4, 1, 1, 1, true)
STORIES(zero_shards_are_read_and_written_as_one_over_wires, 4, RANKS_WIRE, tell_whole, 4, 1, 1, 1, true)
STORIES(stages_and_splits_are_read_and_written_as_one_through_memory, 4, RANKS_SHM, tell_whole, 1, 2, 2, 2, false)
STORIES(stages_and_splits_are_read_and_written_as_one_over_wires, 4, RANKS_WIRE, tell_whole, 1, 2, 2, 2, false)
STORIES(zero_in_stages_is_read_and_written_as_one_over_wires, 2, RANKS_WIRE, tell_whole, 2, 1, 2, 2, true)
/* Ranks without an edge to the owner can read its parameters, too. */
Test(cluster, the_second_and_the_fourth_of_five_stages_are_no_neighbours)
{
    struct model *m = model_new((layout){1, 1, 5, 2, false});
    weir_plan *spread = plan_spread(m->plan, 5, 0);
    struct peers peers;
    cr_assert_eq(peers_open(&peers, &(struct peers_opts){.plan = spread, .count = 5, .me = 1}), WEIR_OK);
    cr_assert(peers.of[0].edge && peers.of[2].edge && !peers.of[3].neighbour);
    peers_close(&peers);
    weir_plan_free(spread);
    model_free(m);
}

STORIES(ranks_that_are_no_neighbours_are_read_through_memory, 5, RANKS_SHM, tell_whole, 1, 1, 5, 2, false)
STORIES(ranks_that_are_no_neighbours_are_read_over_wires, 5, RANKS_WIRE, tell_whole, 1, 1, 5, 2, false)
STORIES(parts_of_a_plan_make_the_whole_through_memory, 2, RANKS_SHM, tell_part, 2, 1, 2, 2, true)
STORIES(parts_of_a_plan_make_the_whole_over_wires, 4, RANKS_WIRE, tell_part, 2, 2, 1, 1, false)

Test(cluster, a_read_or_write_that_fits_on_all_ranks_but_one_fails_on_all)
{
    struct model *m = model_new((layout){2, 1, 2, 2, false});
    for (enum ranks_link link = RANKS_SHM; link <= RANKS_WIRE; link++)
        ranks_free(ranks_run(read_in_two_shapes, m, .count = 3, .link = link, .kind = RANKS_THREADS));
    model_free(m);
}

/* ---- chains: known by heart (tests/support/chain.h) ---- */

/* Every rank pushes the same and pulls the same; what is not for it is dropped. */
static void push_and_pull(struct rank *rank)
{
    enum { STEPS = 50 };
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, STEPS));
    for (int step = 0; step < STEPS; step++) {
        float in[ITEMS], out[ITEMS] = {0};
        for (int i = 0; i < ITEMS; i++)
            in[i] = (float)(100 * step + i);
        RANK_OK(rank, weir_session_push(s, "x", &(weir_array){in, WEIR_F32, {1, {ITEMS}}}, WAIT_MS));
        RANK_OK(rank, weir_session_pull(s, "y", &(weir_array){out, WEIR_F32, {1, {ITEMS}}}, WAIT_MS));
        for (int i = 0; i < ITEMS; i++)
            RANK_IS(rank, out[i] == in[i] + STAGES, "step %d, element %d: %g", step, i, (double)out[i]);
        ++*(int *)rank->result;
    }
    RANK_OK(rank, weir_session_wait(s, WAIT_MS));
    RANK_OK(rank, weir_session_close(s));
}

static void push_and_pull_agree(int count, enum ranks_link link)
{
    weir_plan *plan = chain_plan("test_sum", false, STAGES);
    struct ranks *ranks =
        ranks_run(push_and_pull, plan, .count = count, .link = link, .kind = RANKS_THREADS, .result_bytes = sizeof(int));
    for (int r = 0; r < count; r++)
        cr_expect_eq(*(int *)ranks->rank[r].result, 50);
    ranks_free(ranks);
    weir_plan_free(plan);
}

Test(cluster, all_push_and_all_pull_the_same_values_through_memory)
{
    push_and_pull_agree(2, RANKS_SHM);
    push_and_pull_agree(4, RANKS_SHM);
}

Test(cluster, all_push_and_all_pull_the_same_values_over_wires)
{
    push_and_pull_agree(2, RANKS_WIRE);
    push_and_pull_agree(4, RANKS_WIRE);
}

Test(cluster, all_push_and_all_pull_the_same_values_over_ucx)
{
    push_and_pull_agree(2, RANKS_UCX);
    push_and_pull_agree(4, RANKS_UCX);
}

/* Ranks but the last leave their values, more than there are slots for, and go when their own actors are done. */
static void pull_on_the_last(struct rank *rank)
{
    enum { VALUES = 5 };
    float value[ITEMS] = {0};
    bool last = rank->number + 1 == rank->count;
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, VALUES));
    for (int i = 0; i < VALUES; i++)
        RANK_OK(rank, weir_session_push(s, "x", &(weir_array){value, WEIR_F32, {1, {ITEMS}}}, WAIT_MS));
    for (int i = 0; i < VALUES && last; i++)
        RANK_OK(rank, weir_session_pull(s, "y", &(weir_array){value, WEIR_F32, {1, {ITEMS}}}, WAIT_MS));
    RANK_OK(rank, weir_session_wait(s, WAIT_MS));
    RANK_OK(rank, weir_session_close(s));
}

/* ---- ops that read a part ---- */

enum { LONG = 5000, TAIL = 7, TAILS = 3 };
static const char *const tails[TAILS] = {"test_tail", "test_wild", "test_blind"};

/* x on device 0 -> ops on device 1 that say what they read of it (tests/support/ops.h) -> out. */
static weir_plan *tails_plan(void)
{
    test_ops();
    sdf *s = sdf_new("tails", 1);
    uint32_t first = sdf_device(s), second = sdf_device(s);
    uint32_t x = sdf_regst(s, sdf_actor(s, sdf_outside(s, first), "x", PUSH), .slots = 2, .items = LONG);
    for (int i = 0; i < TAILS; i++) {
        uint32_t reader = sdf_actor(s, second, "reader", .kernel = tails[i]);
        sdf_port(s, reader, x);
        uint32_t y = sdf_regst(s, reader, .slots = 1, .items = TAIL);
        sdf_port(s, sdf_actor(s, sdf_outside(s, second), tails[i], PULL), y);
    }
    weir_plan *plan = sdf_plan(s);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

static void pull_tails(struct rank *rank)
{
    enum { STEPS = 20 };
    static _Thread_local float in[LONG], out[TAIL];
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, STEPS));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LONG; i++)
            in[i] = (float)(LONG * step + i);
        RANK_OK(rank, weir_session_push(s, "x", &(weir_array){in, WEIR_F32, {1, {LONG}}}, WAIT_MS));
        for (int t = 0; t < TAILS; t++) {
            RANK_OK(rank, weir_session_pull(s, tails[t], &(weir_array){out, WEIR_F32, {1, {TAIL}}}, WAIT_MS));
            for (int i = 0; i < TAIL; i++)
                RANK_IS(rank, out[i] == (t < 2 ? in[LONG - TAIL + i] : 1), "%s, step %d, element %d: %g", tails[t],
                        step, i, (double)out[i]);
        }
    }
    RANK_OK(rank, weir_session_wait(s, WAIT_MS));
    RANK_OK(rank, weir_session_close(s));
}

Test(cluster, an_op_that_reads_a_part_finds_it_wherever_it_runs)
{
    weir_plan *plan = tails_plan();
    ranks_free(ranks_run(pull_tails, plan, .count = 1, .link = RANKS_SHM));
    ranks_free(ranks_run(pull_tails, plan, .count = 2, .link = RANKS_SHM, .kind = RANKS_THREADS));
    ranks_free(ranks_run(pull_tails, plan, .count = 2, .link = RANKS_TCP, .kind = RANKS_THREADS));
    weir_plan_free(plan);
}

Test(cluster, what_a_rank_has_not_pulled_is_dropped_when_it_closes)
{
    weir_plan *plan = chain_plan("test_sum", false, DEVICES);
    for (int link = RANKS_SHM; link <= RANKS_WIRE; link++) {
        struct ranks *ranks =
            ranks_run(pull_on_the_last, plan, .count = 2, .link = (enum ranks_link)link, .kind = RANKS_THREADS);
        ranks_free(ranks);
    }
    weir_plan_free(plan);
}

struct counted {
    int gives, values, wrong, queues;
    int64_t firings;
    uint64_t planned, arenas;
};

static void count_calls(struct rank *rank)
{
    struct counted *counted = rank->result;
    struct seen seen = {0};
    weir_session_stats stats;
    weir_session *s = chain_open(rank, rank->ctx, &seen);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 30));
    RANK_OK(rank, weir_session_run(s, 20));
    weir_session_get_stats(s, &stats);
    *counted = (struct counted){seen.gives, seen.values, seen.wrong, stats.queue_count, 0, stats.planned_bytes,
                                stats.arena_bytes};
    for (int q = 0; q < stats.queue_count; q++)
        counted->firings += stats.queue[q].firings;
    RANK_IS(rank, stats.steps == 50, "%lld steps", (long long)stats.steps);
    RANK_OK(rank, weir_session_close(s));
}

/* The bytes that arrive at all of so many ranks that share no memory. */
static uint64_t bytes_arriving(const weir_plan *plan, int ranks)
{
    weir_plan *spread = plan_spread(plan, (uint32_t)ranks, 0);
    cr_assert_not_null(spread, "%s", weir_error());
    uint64_t bytes = 0;
    for (int r = 0; r < ranks; r++) {
        struct links links;
        bool wired[8] = {false};
        for (int other = 0; other < ranks; other++)
            wired[other] = other != r;
        cr_assert_eq(links_open(&links, spread, (uint32_t)r, wired), WEIR_OK, "%s", weir_error());
        bytes += links.receive_bytes;
        links_close(&links);
    }
    weir_plan_free(spread);
    return bytes;
}

static void expect_counts(const struct ranks *ranks, const weir_plan *plan, uint64_t arriving)
{
    struct counted sum = {0};
    for (int r = 0; r < ranks->count; r++) {
        const struct counted *counted = ranks->rank[r].result;
        cr_expect_eq(counted->gives, r == 0 ? 50 : 0, "rank %d's source was called %d times", r, counted->gives);
        cr_expect_eq(counted->values, r == ranks->count - 1 ? 50 : 0, "rank %d's sink was called %d times", r,
                     counted->values);
        cr_expect_eq(counted->wrong, 0);
        cr_expect_eq(counted->planned, counted->arenas);
        cr_expect_gt(counted->firings, 0);
        sum.firings += counted->firings;
        sum.arenas += counted->arenas;
    }
    cr_expect_eq(sum.arenas, weir_plan_bytes(plan, -1) + arriving);
    cr_expect_eq(sum.firings, 20 * (STAGES + 2), "%lld firings in the last run", (long long)sum.firings);
}

Test(cluster, hosts_are_called_by_their_owner_alone_and_each_rank_counts_its_own)
{
    weir_plan *plan = chain_plan("test_sum", true, STAGES);
    for (int link = RANKS_SHM; link <= RANKS_WIRE; link++) {
        struct ranks *ranks = ranks_run(count_calls, plan, .count = 4, .link = (enum ranks_link)link,
                                        .kind = RANKS_THREADS, .result_bytes = sizeof(struct counted));
        uint64_t arriving = link == RANKS_SHM ? 0 : bytes_arriving(plan, 4);
        cr_expect(link == RANKS_SHM || arriving > 0);
        expect_counts(ranks, plan, arriving);
        ranks_free(ranks);
    }
    weir_plan_free(plan);
}

/* ---- what lies between them ---- */

enum { ROW = 1 << 14 };

/* Each rank's device reads a shard of the one before, over steps that are not ordered. */
static weir_plan *ring_plan(const char *link)
{
    weir_graph *g = weir_graph_new("ring");
    weir_mesh *from = weir_mesh_new(g, "cpu:0-1"), *to = weir_mesh_new(g, "cpu:1,0");
    weir_tensor *x = weir_param(g, WEIR_F32, {2 * ROW}, .name = "x", .mesh = from, .sbp = {WEIR_S(0)},
                                .init = WEIR_UNIFORM(-1, 1));
    weir_fetch(weir_mean(weir_shard(weir_affine(x, 2), .mesh = to, .sbp = {WEIR_S(0)})), .name = "mean");
    weir_plan *plan = weir_compile(g, .link = link);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

struct asking {
    weir_plan *plan;
    weir_status wanted;
};

/* Runs, and asks what it ran over. */
static void ask_for_the_link(struct rank *rank)
{
    enum { STEPS = 40 };
    const struct asking *asking = rank->ctx;
    weir_link *link = rank->result, none;
    float mean, first = 0;
    weir_session *s = weir_session_open(asking->plan, .cluster = ranks_cluster(rank), .report = no_report);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, STEPS));
    for (int step = 0; step < STEPS; step++) {
        RANK_OK(rank, weir_session_pull(s, "mean", &(weir_array){&mean, WEIR_F32, {0}}, WAIT_MS));
        first = step ? first : mean;
        RANK_IS(rank, mean == first, "%g, not %g", (double)mean, (double)first);
    }
    RANK_OK(rank, weir_session_wait(s, WAIT_MS));
    weir_status status = weir_session_link(s, 1 - rank->number, link);
    RANK_IS(rank, status == asking->wanted, "%s: %s", weir_status_name(status), weir_error());
    RANK_IS(rank, weir_session_link(s, rank->number, &none) == WEIR_E_ARGUMENT, "a link to itself");
    RANK_IS(rank, weir_session_link(s, 2, &none) == WEIR_E_ARGUMENT, "a link to nobody");
    RANK_IS(rank, weir_session_link(s, -1, &none) == WEIR_E_ARGUMENT, "a link to nobody");
    RANK_OK(rank, weir_session_close(s));
    RANK_IS(rank, weir_session_link(s, 1 - rank->number, &none) == WEIR_E_STATE, "a session that was closed");
}

static struct ranks *ask(const char *of, enum ranks_link over, weir_status wanted)
{
    struct asking asking = {ring_plan(of), wanted};
    struct ranks *ranks =
        ranks_run(ask_for_the_link, &asking, .count = 2, .link = over, .result_bytes = sizeof(weir_link));
    weir_plan_free(asking.plan);
    return ranks;
}

Test(cluster, a_link_is_measured_and_the_next_plan_takes_what_was_measured)
{
    ranks_free(ask(NULL, RANKS_SHM, WEIR_E_ARGUMENT));
    ranks_free(ask(NULL, RANKS_WIRE, WEIR_E_UNSUPPORTED));
    struct ranks *ranks = ask(NULL, RANKS_TCP, WEIR_OK);
    for (int r = 0; r < 2; r++) {
        const weir_link *link = ranks->rank[r].result;
        unsigned long long rate;
        unsigned us;
        char unit[8];
        cr_expect_eq(sscanf(link->text, "%llu%7[A-Za-z] %uus", &rate, unit, &us), 3, "%s", link->text);
        cr_expect_eq((double)us, round(link->round_trip_s * 1e6), "%s", link->text);
        cr_expect(link->bytes_per_s > 0 && link->round_trip_s > 0, "%s", link->text);
        ranks_free(ask(link->text, RANKS_TCP, WEIR_OK));
    }
    ranks_free(ranks);
}

/* ---- ranks with nothing to exchange ---- */

/* On device 1 x, which device 0 reads; on device 3 w, which 2 reads: ranks 1 and 3 are no neighbours. */
static weir_plan *apart_plan(void)
{
    weir_graph *g = weir_graph_new("apart");
    weir_mesh *on[4];
    char device[16];
    for (int i = 0; i < 4; i++) {
        snprintf(device, sizeof device, "cpu:%d", i);
        on[i] = weir_mesh_new(g, device);
    }
    weir_tensor *x = weir_param(g, WEIR_F32, {ITEMS}, .name = "x", .mesh = on[1], .init = WEIR_VALUE(1));
    weir_tensor *w = weir_param(g, WEIR_F32, {ITEMS}, .name = "w", .mesh = on[3], .init = WEIR_VALUE(2));
    weir_tensor *passed = weir_shard(weir_affine(w, 2), .mesh = on[2]);
    weir_tensor *both = weir_add(weir_shard(weir_affine(x, 2), .mesh = on[0]),
                                 weir_shard(weir_affine(passed, 2), .mesh = on[0]));
    weir_fetch(weir_mean(both), .name = "mean");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* All read x, so rank 1 sends it to rank 3, which then is the first to go. */
static void read_and_close_in_turn(struct rank *rank)
{
    static const int pause_ms[4] = {6000, 1000, 6000, 0};
    float x[ITEMS];
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank), .report = no_report);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_read(s, "x", &(weir_array){x, WEIR_F32, {1, {ITEMS}}}));
    ranks_pause(pause_ms[rank->number]);
    double start = ranks_seconds();
    RANK_OK(rank, weir_session_close(s));
    *(double *)rank->result = ranks_seconds() - start;
}

Test(cluster, who_closes_does_not_wait_for_one_that_it_sent_a_value_and_that_has_gone)
{
    weir_plan *plan = apart_plan();
    struct ranks *ranks =
        ranks_run(read_and_close_in_turn, plan, .count = 4, .link = RANKS_TCP, .result_bytes = sizeof(double));
    double seconds = *(double *)ranks->rank[1].result;
    cr_expect_lt(seconds, 4, "rank 1 took %.2f s to close", seconds);
    ranks_free(ranks);
    weir_plan_free(plan);
}

/* Rank 3 has gone; rank 0, which hears of it, takes its time before it closes. */
static void run_after_one_has_gone(struct rank *rank)
{
    weir_session *s = weir_session_open(rank->ctx, .cluster = ranks_cluster(rank), .report = no_report);
    RANK_IS(rank, s, "%s", weir_error());
    if (rank->number != 3) {
        ranks_pause(500);
        double start = ranks_seconds();
        weir_status status = weir_session_run(s, 1000);
        RANK_IS(rank, status == WEIR_E_PEER && strstr(weir_error(), "rank 3 (pid "), "%d: %s", status, weir_error());
        *(double *)rank->result = ranks_seconds() - start;
        ranks_pause(rank->number == 0 ? 6000 : 0);
    }
    RANK_OK(rank, weir_session_close(s));
}

Test(cluster, a_rank_that_has_gone_is_told_to_those_that_are_not_its_neighbours)
{
    weir_plan *plan = apart_plan();
    struct ranks *ranks =
        ranks_run(run_after_one_has_gone, plan, .count = 4, .link = RANKS_TCP, .result_bytes = sizeof(double));
    double seconds = *(double *)ranks->rank[1].result;
    cr_expect_lt(seconds, 5, "rank 1 heard of it after %.2f s", seconds);
    ranks_free(ranks);
    weir_plan_free(plan);
}

/* ---- nothing is left ---- */

static int segments_mapped(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:weir") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* A thread that was joined may be seen for a moment more. */
static int threads_left(int wanted)
{
    for (int i = 0; i < 1000 && ranks_threads() != wanted; i++)
        ranks_pause(1);
    return ranks_threads();
}

static void open_run_close(struct rank *rank)
{
    int descriptors = ranks_descriptors(), threads = 0;
    for (int i = 0; i < 5; i++) {
        struct seen seen = {0};
        weir_session *s = chain_open(rank, rank->ctx, &seen);
        RANK_IS(rank, s, "%s", weir_error());
        RANK_OK(rank, weir_session_run(s, 20));
        double start = ranks_seconds();
        RANK_OK(rank, weir_session_close(s));
        RANK_IS(rank, ranks_seconds() - start < 2, "closing took %.2f s", ranks_seconds() - start);
        RANK_IS(rank, ranks_descriptors() == descriptors, "%d descriptors were open, now %d", descriptors,
                ranks_descriptors());
        if (!i) { /* a library's own thread, which starts after the fork, may stay */
            ranks_pause(100);
            threads = ranks_threads();
        }
        RANK_IS(rank, threads_left(threads) == threads, "there were %d threads, now %d", threads, ranks_threads());
        RANK_IS(rank, !segments_mapped(), "%d segments are mapped", segments_mapped());
        ++*(int *)rank->result;
    }
}

static void leaves_nothing(enum ranks_link link)
{
    weir_plan *plan = chain_plan("test_sum", true, STAGES);
    struct ranks *ranks = ranks_run(open_run_close, plan, .count = 4, .link = link, .result_bytes = sizeof(int));
    for (int r = 0; r < 4; r++)
        cr_expect_eq(*(int *)ranks->rank[r].result, 5);
    ranks_free(ranks);
    weir_plan_free(plan);
}

Test(cluster, sessions_in_a_row_leave_no_descriptor_thread_or_memory)
{
    BOTH_LINKS (link)
        leaves_nothing(link);
}

Test(cluster, sessions_in_a_row_over_ucx_leave_no_descriptor_thread_or_memory)
{
    leaves_nothing(RANKS_UCX);
}
