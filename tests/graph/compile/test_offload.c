/* tests/graph/compile/test_offload.c: what a limit leaves no room for waits on a disk, and comes back with every bit.
 *
 * Plans are compiled with ever smaller limits and a disk, in the layouts that a model can have, and trained beside the
 * plan without a limit. The plan shows which tensors are moved: registers in the space of a disk. Tests' models are
 * small, so the sizes worth moving, and the estimated time of a copy, are shrunk for them.
 */
#include "graph/base/filed.h"
#include "graph/compile/actors/passes.h"
#include "graph/compile/budget/offload.h"
#include "graph/plan/form/plan.h"
#include "tests/support/byte_game.h"
#include "tests/support/effort.h"
#include "tests/support/folder.h"
#include "tests/support/learner.h"
#include "tests/support/proven.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = EFFORT(3, 2, 2), LIMITS = 2 };

static void small_models(void)
{
    folder_make();
    group_own_bytes = 4096;
    offload_window = 0.1;
}

TestSuite(offload, .init = small_models, .fini = folder_remove);

static uint64_t largest(const weir_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].kind != WEIR_DISK && plan->spaces[s].bytes > most)
            most = plan->spaces[s].bytes;
    return most;
}

static uint64_t filed(const weir_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].kind == WEIR_DISK ? plan->spaces[s].bytes : 0;
    return bytes;
}

static weir_plan *compile_gpt(const gpt_config *config, uint64_t bytes, const char *offload)
{
    char limit[32];
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)bytes);
    weir_graph *g = gpt_train_graph(config);
    weir_plan *plan = weir_compile(g, .micro_batches = config->layout.micro, .seed = REFERENCE_SEED,
                                   .memory = bytes ? limit : NULL, .offload = offload);
    weir_graph_free(g);
    return plan;
}

static uint64_t smallest(const gpt_config *config, const char *offload)
{
    static const char words[] = "The smallest limit that would do is ";
    cr_assert_null(compile_gpt(config, 1, offload), "a plan in one byte");
    const char *said = strstr(weir_error(), words);
    cr_assert_not_null(said, "%s", weir_error());
    return strtoull(said + strlen(words), NULL, 10);
}

/* ---- in every layout ---- */

static void same_bits(const weir_plan *loose, const weir_plan *tight, int workers, const char *what)
{
    run want = run_plan(loose, STEPS, 1), got = run_plan(tight, STEPS, workers);
    run_near(&got, &want, 0, what);
    run_free(&got);
    run_free(&want);
}

static void loses_the_same(layout l)
{
    char disk[300], why[256];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    text corpus = reference_text();
    gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
    config.layout = l;
    weir_plan *loose = compile_gpt(&config, 0, disk);
    cr_assert_not_null(loose, "%s", weir_error());
    cr_expect_eq(filed(loose), 0, "without a limit nothing is moved");
    uint64_t least = smallest(&config, disk), most = 0;
    for (int i = 0; i < LIMITS; i++) {
        uint64_t bytes = least + (largest(loose) - least) * (uint64_t)i / LIMITS;
        weir_plan *tight = compile_gpt(&config, bytes, disk);
        cr_assert_not_null(tight, "%s", weir_error());
        cr_expect_leq(largest(tight), bytes);
        cr_expect(byte_game_all(tight, bytes, 3, why), "%s", why);
        same_bits(loose, tight, 1 + i, "a limit with a disk");
        cr_expect_eq(tight->limits->moved > 0, filed(tight) > 0);
        most = filed(tight) > most ? filed(tight) : most;
        weir_plan_free(tight);
    }
    cr_expect_gt(most, 0, "nothing was moved");
    cr_expect_eq(folder_entries(folder_path(".")), 0, "a file is left");
    weir_plan_free(loose);
    text_free(&corpus);
}

#define GPT(d, t, p, m, z)                                                         \
    Test(offload, gpt_dp##d##_tp##t##_pp##p##_micro##m##_zero_##z, .timeout = 120) \
    {                                                                              \
        loses_the_same((layout){d, t, p, m, z});                                   \
    }
GPT(1, 1, 2, 4, false)
#if EFFORT(1, 0, 0) /* the rest is the same code, for minutes */
GPT(2, 1, 1, 1, true)
GPT(1, 2, 1, 1, false)
#if FULL(1, 0)
GPT(1, 1, 1, 1, false)
GPT(1, 1, 1, 4, false)
GPT(2, 1, 2, 2, true)
#endif
#endif

/* ---- what lives from step to step ---- */

static weir_plan *learner_tight(struct learner_opts opts, const char *disk)
{
    char limit[32];
    opts.compile.offload = disk;
    opts.compile.memory = "1";
    cr_assert_null(learner_plan_at(opts));
    const char *said = strstr(weir_error(), "would do is ");
    cr_assert_not_null(said, "%s", weir_error());
    snprintf(limit, sizeof limit, "%llu", strtoull(said + 12, NULL, 10));
    opts.compile.memory = limit;
    weir_plan *plan = learner_plan_at(opts);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* States that lie on a disk. */
static int filed_states(const weir_plan *plan)
{
    int count = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        count += plan->regsts[r].kind == PLAN_STATE && plan->spaces[plan->regsts[r].space.i].kind == WEIR_DISK;
    return count;
}

/* Trains to `steps`; from a checkpoint, and to one, where they are named. */
static struct learned learn(const weir_plan *plan, int64_t steps, const char *from, const char *to)
{
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    if (from)
        cr_assert_eq(weir_session_load(s, from), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, steps), WEIR_OK, "%s", weir_error());
    if (to)
        cr_assert_eq(weir_session_save(s, to), WEIR_OK, "%s", weir_error());
    struct learned now = learned_read(s);
    cr_assert_geq(now.count, 0, "%s", weir_error());
    weir_session_close(s);
    return now;
}

/* Training with states on a disk, all the way and from a checkpoint of a plan without, and back. */
static void learns_the_same(struct learner_opts opts)
{
    char disk[300];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    group_own_bytes = 64;
    weir_plan *loose = learner_plan_at(opts), *tight = learner_tight(opts, disk);
    cr_expect_gt(filed_states(tight), 0, "no state is on the disk");
    struct learned want = learn(loose, 4, NULL, NULL), got = learn(tight, 4, NULL, NULL);
    const char *differs = learned_differs(&got, &want, 0);
    cr_expect_null(differs, "%s", differs);
    learned_free(&got);
    for (int way = 0; way < 2; way++) {
        const char *path = folder_path("kept-%d", way);
        struct learned half = learn(way ? loose : tight, 2, NULL, path);
        got = learn(way ? tight : loose, 2, path, NULL);
        differs = learned_differs(&got, &want, 0);
        cr_expect_null(differs, "from a checkpoint, %d: %s", way, differs);
        learned_free(&half);
        learned_free(&got);
    }
    learned_free(&want);
    weir_plan_free(loose);
    weir_plan_free(tight);
}

Test(offload, states_of_adamw_come_and_go, .timeout = 60)
{
    learns_the_same((struct learner_opts){.dp = 1, .tp = 1, .pp = 1, .micro = 1});
}

Test(offload, states_are_split_over_devices, .timeout = 60)
{
    learns_the_same((struct learner_opts){.dp = 2, .tp = 1, .pp = 1, .micro = 2, .zero = true});
    learns_the_same((struct learner_opts){.dp = 1, .tp = 2, .pp = 2, .micro = 2});
}

Test(offload, states_of_halves_too, .timeout = 60)
{
    learns_the_same((struct learner_opts){.dp = 1, .tp = 1, .pp = 1, .micro = 1, .compile.precision = WEIR_F16});
}

/* ---- over ranks ---- */

static void train_rank(struct rank *rank)
{
    const weir_plan *plan = rank->ctx;
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_IS(rank, weir_session_start(s, STEPS) == WEIR_OK, "%s", weir_error());
    for (int i = 0; i < STEPS; i++) {
        weir_array one = {.data = (float *)rank->result + i, .dtype = WEIR_F32};
        RANK_IS(rank, weir_session_pull(s, "loss", &one, 20000) == WEIR_OK, "%s", weir_error());
    }
    RANK_IS(rank, weir_session_wait(s, 20000) == WEIR_OK, "%s", weir_error());
    weir_session_close(s);
}

static void over_ranks(enum ranks_link link)
{
    char disk[300];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    text corpus = reference_text();
    gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
    config.layout = (layout){2, 1, 1, 1, true};
    weir_plan *loose = compile_gpt(&config, 0, NULL), *tight = compile_gpt(&config, smallest(&config, disk), disk);
    cr_assert_not_null(tight, "%s", weir_error());
    cr_assert_gt(filed(tight), 0);
    run alone = run_plan(loose, STEPS, 1);
    const run_entry *want = run_find(&alone, "loss");
    struct ranks *ranks = ranks_run(train_rank, tight, .count = 2, .link = link, .result_bytes = STEPS * sizeof(float));
    for (int i = 0; i < STEPS; i++)
        cr_expect_eq(((float *)ranks->rank[0].result)[i], (float)want->value[i], "step %d", i);
    ranks_free(ranks);
    run_free(&alone);
    weir_plan_free(loose);
    weir_plan_free(tight);
    text_free(&corpus);
}

Test(offload, ranks_that_share_memory_have_disks_of_their_own, .timeout = 60)
{
    over_ranks(RANKS_SHM);
}

#if EFFORT(1, 0, 0) /* how ranks without shared memory send is not the disk's affair */
Test(offload, ranks_that_share_none_too, .timeout = 60)
{
    over_ranks(RANKS_TCP);
}
#endif

/* ---- mistakes ---- */

static weir_plan *tight_plan(const char *offload)
{
    text corpus = reference_text();
    gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
    config.layout = (layout){1, 1, 1, 1, false};
    weir_plan *plan = compile_gpt(&config, smallest(&config, offload), offload);
    text_free(&corpus);
    return plan;
}

Test(offload, a_place_that_is_none_is_refused_with_the_line_of_the_call, .timeout = 120)
{
    text corpus = reference_text();
    gpt_config config = reference_gpt(&corpus, REFERENCE_FULL);
    config.layout = (layout){1, 1, 1, 1, false};
    const char *wrong[] = {"", "disk", "disk:", "tape:/tmp", "/tmp"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_null(compile_gpt(&config, 0, wrong[i]), "%s", wrong[i]);
        cr_expect_not_null(strstr(weir_error(), "test_offload.c:"), "%s", weir_error());
        cr_expect_not_null(strstr(weir_error(), "is no place to offload to"), "%s", weir_error());
    }
    text_free(&corpus);
}

Test(offload, a_directory_that_is_not_there_is_named_when_a_session_is_opened, .timeout = 120)
{
    weir_plan *plan = tight_plan("disk:/nowhere/at/all");
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_null(weir_session_open(plan));
    cr_expect_not_null(strstr(weir_error(), "disk:0"), "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), "/nowhere/at/all"), "%s", weir_error());
    weir_plan_free(plan);
}

Test(offload, a_session_may_name_another_directory, .timeout = 120)
{
    char disk[300];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    weir_plan *plan = tight_plan("disk:/nowhere/at/all");
    weir_session *s = weir_session_open(plan, .offload = disk);
    cr_assert_not_null(s, "%s", weir_error());
    weir_session_close(s);
    cr_expect_null(weir_session_open(plan, .offload = "somewhere"));
    cr_expect_not_null(strstr(weir_error(), "\"somewhere\" is no place to offload to"), "%s", weir_error());
    setenv("WEIR_OFFLOAD", disk, 1);
    s = weir_session_open(plan);
    cr_expect_not_null(s, "%s", weir_error());
    weir_session_close(s);
    unsetenv("WEIR_OFFLOAD");
    weir_plan_free(plan);
}

Test(offload, a_disk_is_no_device_of_a_mesh, .timeout = 120)
{
    weir_graph *g = weir_graph_new("disk");
    weir_mesh_new(g, "disk:0");
    cr_expect_not_null(weir_graph_mistake(g));
    weir_graph_free(g);
}

/* ---- memory in a file ---- */

Test(offload, what_is_copied_into_a_file_comes_back, .timeout = 120)
{
    enum { BYTES = 3 << 20 };
    void *memory;
    char error[100] = "", *from = malloc(BYTES), *to = calloc(1, BYTES);
    for (int i = 0; i < BYTES; i++)
        from[i] = (char)(i * 31 >> 3);
    cr_assert_eq(filed_new(folder_path("."), BYTES, &memory), WEIR_OK, "%s", weir_error());
    cr_expect_eq(folder_entries(folder_path(".")), 0, "it has no name");
    cr_expect_eq(((char *)memory)[BYTES - 1], 0, "it begins with zeros");
    cr_expect_eq(filed_copy((char *)memory + 100, from, BYTES - 100, error, sizeof error), WEIR_OK, "%s", error);
    cr_expect_eq(memcmp((char *)memory + 100, from, BYTES - 100), 0, "who follows the pointer sees it");
    cr_expect_eq(filed_copy(to, (char *)memory + 100, BYTES - 100, error, sizeof error), WEIR_OK, "%s", error);
    cr_expect_eq(memcmp(to, from, BYTES - 100), 0);
    ((char *)memory)[7] = 'x';
    cr_expect_eq(filed_copy(to, (char *)memory + 7, 1, error, sizeof error), WEIR_OK, "%s", error);
    cr_expect_eq(*to, 'x', "and what it writes is copied");
    filed_free(memory);
    cr_expect_eq(filed_copy(to, from, BYTES, error, sizeof error), WEIR_OK, "plain memory");
    cr_expect_eq(memcmp(to, from, BYTES), 0);
    free(from);
    free(to);
}

Test(offload, a_file_that_there_is_no_room_for_is_refused, .timeout = 120)
{
    void *memory;
    cr_expect_eq(filed_new(folder_path("."), UINT64_C(1) << 60, &memory), WEIR_E_IO);
    cr_expect_not_null(strstr(weir_error(), folder_path(".")), "%s", weir_error());
    cr_expect_eq(folder_entries(folder_path(".")), 0, "a file is left");
}
