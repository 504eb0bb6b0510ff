/* tests/actors/test_meetings.c: what accelerators do together, on the fake ones (tests/support/fake.h): all kinds of
 * moves, turns that are kept whoever is ready first, runs that end early, programs, and how it is told that a member
 * does not come. actors/ahead.c is included here, with a variable that leaves one of its rules out, and so is
 * actors/session/queues.c, with one that has collectives awaited which must not be.
 */
enum rule { NONE, WROTE, READ, LATE, FREE, SKIP, ROOM, TURN, PUT };
static enum rule without;
#define AHEAD_WITHOUT(rule) (without == (rule))
#include "actors/ahead.c"

#include "graph/plan/prove/await.h"
static bool await_all_collectives;
static weir_status may_await(const weir_plan *plan, plan_space_id space, bool *may)
{
    weir_status status = plan_may_await(plan, space, may);
    for (uint32_t a = 0; a < plan->actors_count && await_all_collectives; a++)
        may[a] = true;
    return status;
}
#define plan_may_await may_await
#include "actors/session/queues.c"

#include "tests/actors/meeting_plans.h"

TestSuite(meetings, .init = test_ops, .timeout = 120);

static struct device_ops ops;

/* ---- runs that go well ---- */

static void expect_taken(const meetings *m, int64_t steps, const char *what)
{
    cr_expect_eq(m->wrong, 0, "%s: other values", what);
    for (uint32_t l = 0; l < m->lane_count; l++) {
        int64_t firings = steps * (m->lane[l].once ? 1 : m->micro) * m->lane[l].devices;
        cr_expect_eq(m->taken[l], m->lane[l].program ? 0 : firings, "%s: lane %u has taken %d", what, l, (int)m->taken[l]);
    }
}

/* In two runs, the second of which goes on where the first ended. */
static void run_well(meetings *m, const weir_plan *plan, unsigned seed, int workers, const char *what)
{
    m->wrong = 0;
    memset(m->taken, 0, sizeof(m->taken));
    fake_open(&(fake_options){.seed = seed, .delay_us = seed % 3 ? 5 : 0, .kernels_max = seed % 4});
    weir_session *s = opened(plan, workers);
    cr_expect_eq(weir_session_run(s, STEPS - 3), WEIR_OK, "%s: %s", what, weir_error());
    cr_expect_eq(weir_session_run(s, 3), WEIR_OK, "%s: %s", what, weir_error());
    cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    fake_close_well();
    expect_taken(m, STEPS, what);
}

static void runs_well(const meetings_lane *lanes, uint32_t count, uint32_t micro, const uint32_t *turns,
                      uint32_t turn_count, const char *what)
{
    meetings m = {.lane = lanes, .lane_count = count, .micro = micro};
    weir_plan *plan = meetings_plan(&m, turns, turn_count);
    for (unsigned seed = 0; seed < SEEDS; seed++)
        run_well(&m, plan, seed, 1 + (int)seed % 3, what);
    weir_plan_free(plan);
}

Test(meetings, members_get_what_the_moves_say)
{
    static const struct {
        const char *what;
        plan_collective_kind kind;
        uint32_t devices;
    } table[] = {
        {"send", PLAN_SEND_RECV, 2},
        {"broadcast to three", PLAN_BROADCAST, 4},
        {"all-gather of two", PLAN_ALL_GATHER, 2},
        {"all-gather of four", PLAN_ALL_GATHER, 4},
        {"all-to-all of three", PLAN_ALL_TO_ALL, 3},
        {"all-to-all of four", PLAN_ALL_TO_ALL, 4},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        for (uint32_t micro = 1; micro < 5; micro += 3) {
            meetings_lane lane = meetings_of(table[i].kind, table[i].devices);
            lane.slots = 1 + (uint32_t)i % 3;
            runs_well(&lane, 1, micro, NULL, 0, table[i].what);
        }
}

Test(meetings, many_give_to_one_and_one_gives_several_to_one)
{
    meetings_lane to_one = {.kind = PLAN_ALL_TO_ALL, .devices = 4, .move_count = 3, .moves = {{1, 0, 0, 0}, {2, 0, 0, 1}, {3, 0, 0, 2}}};
    meetings_lane several = {.kind = PLAN_SEND_RECV, .devices = 2, .from = 1, .move_count = 3,
                             .moves = {{0, 1, 2, 0}, {0, 1, 0, 1}, {0, 1, 1, 2}}};
    runs_well(&to_one, 1, 2, NULL, 0, "many to one");
    runs_well(&several, 1, 2, NULL, 0, "several to one");
}

Test(meetings, groups_that_overlap_take_turns)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 4), meetings_of(PLAN_SEND_RECV, 2), meetings_of(PLAN_SEND_RECV, 2),
                             meetings_of(PLAN_ALL_TO_ALL, 3), meetings_of(PLAN_BROADCAST, 4)};
    lanes[1].from = 1;
    lanes[2].from = 2;
    lanes[3].from = 1;
    lanes[4].once = true;
    uint32_t turns[] = {3, 0, 1, 2, 0, 4, 3, 1, 2};
    runs_well(lanes, 5, 2, turns, 9, "overlapping groups");
    runs_well(lanes, 5, 3, NULL, 0, "overlapping groups in plain order");
}

/* ---- turns ---- */

static void drop(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static _Atomic int64_t slow_given, early;

/* Lane 0 has its values late. */
static void slow_gives(meetings *m, uint32_t lane, uint32_t device, int64_t step, int micro)
{
    if (lane || device)
        return;
    sleep_us(20000);
    slow_given = step * m->micro + micro + 1;
}

static void fast_takes(meetings *m, uint32_t lane, uint32_t device, int64_t step, int micro)
{
    (void)device;
    early += lane == 1 && slow_given < step * m->micro + micro + 1;
}

/* Two lanes that share fake:1; how often lane 1 came before lane 0. */
static int64_t overtakes(const uint32_t *turns, uint32_t turn_count, unsigned seed)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 2), meetings_of(PLAN_ALL_GATHER, 2)};
    lanes[1].from = 1;
    meetings m = {.lane = lanes, .lane_count = 2, .micro = 1, .gives = slow_gives, .takes = fast_takes};
    weir_plan *plan = meetings_plan(&m, turns, turn_count);
    slow_given = early = 0;
    run_well(&m, plan, seed, 2 * MEETINGS_DEVICES, "two lanes");
    weir_plan_free(plan);
    return early;
}

Test(meetings, who_is_ready_long_before_its_turn_waits_for_it)
{
    int64_t other_way = 0;
    for (unsigned seed = 0; seed < 4; seed++) {
        cr_expect_eq(overtakes((uint32_t[]){0, 1}, 2, seed), 0);
        other_way += overtakes((uint32_t[]){1, 0}, 2, seed);
    }
    cr_expect_gt(other_way, 0, "nothing would be seen");
}

/* Whether the fake device sees that its members come to different meetings when queues fire as their actors become
 * ready. They may do so in the right order for once, so it is tried until it is seen. */
Test(meetings, a_turn_that_is_not_kept_is_seen)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 3), meetings_of(PLAN_ALL_GATHER, 3), meetings_of(PLAN_ALL_TO_ALL, 3)};
    meetings m = {.lane = lanes, .lane_count = 3, .micro = 1};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    int seen = 0;
    for (unsigned seed = 0; seed < 20 && seen < 2; seed++) {
        without = TURN;
        fake_open(&(fake_options){.seed = seed, .delay_us = 50, .meet_ms = 500});
        weir_session *s = weir_session_open(plan, .workers = 2 * MEETINGS_DEVICES, .stall_s = -1, .report = drop);
        cr_assert_not_null(s, "%s", weir_error());
        bool failed = weir_session_run(s, STEPS) == WEIR_E_KERNEL;
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        seen += fake_close().misuses && failed;
        without = NONE;
    }
    cr_expect_geq(seen, 1);
    weir_plan_free(plan);
}

/* ---- awaits ---- */

/* With how many seeds a rule that is left out is seen. */
static int seen_without(enum rule rule)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 3), meetings_of(PLAN_ALL_TO_ALL, 3)};
    meetings m = {.lane = lanes, .lane_count = 2, .micro = 2};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    int seen = 0;
    for (unsigned seed = 0; seed < 8; seed++) {
        m.wrong = 0;
        without = rule;
        fake_open(&(fake_options){.seed = seed, .delay_us = 20});
        weir_session *s = opened(plan, 1 + (int)seed % 3);
        cr_expect_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        without = NONE;
        fake_seen saw = fake_close();
        seen += m.wrong || saw.misuses || *saw.race;
    }
    weir_plan_free(plan);
    return seen;
}

#if EFFORT(1, 0, 0) /* races of the test's own making */
Test(meetings, a_kernel_that_does_not_await_its_collective_is_seen)
{
    cr_expect_eq(seen_without(NONE), 0);
    cr_expect_geq(seen_without(WROTE), 4);
    cr_expect_geq(seen_without(READ), 4);
}
#endif

Test(meetings, an_await_of_a_collective_that_is_not_enqueued_is_seen)
{
    cr_expect_geq(seen_without(PUT), 4);
}

static weir_status give_late(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    sleep_us(2000);
    for (int i = 0; i < MEETINGS_ITEMS; i++)
        ((float *)to->data)[i] = (float)step;
    return WEIR_OK;
}

static weir_status take_late(void *ctx, const weir_view *value, int64_t step, int micro)
{
    int *wrong = ctx;
    (void)micro;
    for (int i = 0; i < MEETINGS_ITEMS; i++)
        *wrong += ((const float *)value->data)[i] != (float)step + 3; /* three sums, each adds 1 */
    return WEIR_OK;
}

static uint32_t copy_of(sdf *s, uint32_t queue, uint32_t regst, uint32_t lies)
{
    uint32_t copy = sdf_actor(s, queue, "copy", .kernel = "copy");
    sdf_port(s, copy, regst);
    return sdf_regst(s, copy, .items = MEETINGS_ITEMS, .lies = lies);
}

static uint32_t sum_of(sdf *s, uint32_t queue, uint32_t regst)
{
    uint32_t sum = sdf_actor(s, queue, "sum", .kernel = "test_sum");
    sdf_port(s, sum, regst);
    return sdf_regst(s, sum, .items = MEETINGS_ITEMS);
}

/* fake:0 gives a value to fake:1 by way of the host, and gets it back in a collective. The kernel that reads it there is ready
 * to be launched before the value is made. */
static weir_plan *back_plan(int *wrong)
{
    sdf *s = sdf_new("back", 1);
    uint32_t host[2], compute[2], in[2], out[2], members[2], regst;
    callback_binding *bindings = calloc(2, sizeof(*bindings));
    for (uint32_t d = 0; d < 2; d++) {
        host[d] = sdf_device_of(s, WEIR_PINNED, d, PLAN_COMPUTE);
        compute[d] = sdf_device_of(s, WEIR_FAKE, d, PLAN_COMPUTE);
        in[d] = sdf_queue(s, compute[d], PLAN_COPY_IN);
        out[d] = sdf_queue(s, compute[d], PLAN_COPY_OUT);
        members[d] = sdf_actor(s, sdf_queue(s, compute[d], PLAN_COLLECTIVE), "member", .kernel = "collective");
    }
    regst = sdf_regst(s, members[0], .items = MEETINGS_ITEMS);
    regst = copy_of(s, out[0], sum_of(s, compute[0], regst), 1 + host[0]);
    uint32_t sink = sdf_actor(s, host[0], "sink", .kernel = "sink", .host_kind = 1 + PLAN_SINK);
    sdf_port(s, sink, regst);
    uint32_t source = sdf_actor(s, host[0], "source", .kernel = "source", .host_kind = 1 + PLAN_SOURCE);
    regst = copy_of(s, in[0], sdf_regst(s, source, .items = MEETINGS_ITEMS), 0);
    regst = copy_of(s, out[0], sum_of(s, compute[0], regst), 1 + host[0]);
    sdf_port(s, members[1], copy_of(s, in[1], sum_of(s, host[1], regst), 0));
    sdf_collective(s, PLAN_SEND_RECV, members, 2, (sdf_move[]){{.from = 1, .to = 0}}, 1);
    bindings[0].fn.sink = take_late;
    bindings[0].ctx = wrong;
    bindings[1].fn.source = give_late;
    weir_plan *plan = sdf_plan_bound(s, bindings);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

Test(meetings, a_collective_is_not_awaited_that_needs_what_is_launched_behind)
{
    int wrong = 0;
    weir_plan *plan = back_plan(&wrong);
    for (unsigned seed = 0; seed < 4; seed++)
        for (int all = 0; all < 2; all++) {
            fake_open(&(fake_options){.seed = seed, .delay_us = 20});
            await_all_collectives = all;
            weir_session *s = opened(plan, 1 + (int)seed % 3);
            await_all_collectives = false;
            cr_assert_eq(weir_session_start(s, 10), WEIR_OK);
            cr_expect_eq(weir_session_wait(s, all ? 1000 : 20000), all ? WEIR_E_TIMEOUT : WEIR_OK);
            cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
            fake_close_well();
        }
    cr_expect_eq(wrong, 0);
    weir_plan_free(plan);
}

/* ---- programs, ends ---- */

Test(meetings, programs_have_turns_of_their_own)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 3), meetings_of(PLAN_BROADCAST, 3), meetings_of(PLAN_SEND_RECV, 2),
                             meetings_of(PLAN_ALL_TO_ALL, 3)};
    lanes[2].program = lanes[3].program = 1;
    meetings m = {.lane = lanes, .lane_count = 4, .micro = 2};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    fake_open(&(fake_options){.seed = 5, .delay_us = 3});
    weir_session *s = opened(plan, 2);
    int64_t other = 0;
    for (int i = 1; i < 5; i++) {
        cr_expect_eq(weir_session_run(s, i), WEIR_OK, "%s", weir_error());
        cr_expect_eq(weir_session_run(s, i, .program = "other", .first_step = other), WEIR_OK, "%s", weir_error());
        other += i;
    }
    cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    fake_close_well();
    cr_expect_eq(m.wrong, 0);
    uint32_t count[] = {3, 3, 2, 3};
    for (uint32_t l = 0; l < 4; l++)
        cr_expect_eq(m.taken[l], other * 2 * count[l], "lane %u has taken %d", l, (int)m.taken[l]);
    weir_plan_free(plan);
}

Test(meetings, a_run_that_is_stopped_ends_between_two_steps_and_the_next_one_goes_on)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 3), meetings_of(PLAN_SEND_RECV, 2), meetings_of(PLAN_BROADCAST, 4)};
    lanes[1].from = 1;
    meetings m = {.lane = lanes, .lane_count = 3, .micro = 2};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        m.wrong = 0;
        memset(m.taken, 0, sizeof(m.taken));
        fake_open(&(fake_options){.seed = seed, .delay_us = 10});
        weir_session *s = opened(plan, 1 + (int)seed % 4);
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(weir_session_start(s, 1000000), WEIR_OK, "%s", weir_error());
            sleep_us(500 * (int64_t)(seed % 5));
            weir_session_stop(s);
            cr_expect_eq(weir_session_wait(s, 20000), WEIR_OK, "%s", weir_error());
        }
        int64_t steps = weir_session_step(s);
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        fake_close_well();
        expect_taken(&m, steps, "stopped");
    }
    weir_plan_free(plan);
}

Test(meetings, a_session_begins_at_a_later_step)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 2), meetings_of(PLAN_SEND_RECV, 2)};
    meetings m = {.lane = lanes, .lane_count = 2, .micro = 3};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    fake_open(NULL);
    weir_session *s = weir_session_open(plan, .first_step = 7, .stall_s = -1);
    cr_assert_not_null(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, 4), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    fake_close_well();
    expect_taken(&m, 4, "from step 7");
    weir_plan_free(plan);
}

/* ---- debug runs, what is told of a run ---- */

Test(meetings, trace_and_statistics_have_them_and_a_poisoned_run_has_the_same_values)
{
    char path[] = "/tmp/weir-test-meetings-XXXXXX";
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 2), meetings_of(PLAN_SEND_RECV, 2)};
    meetings m = {.lane = lanes, .lane_count = 2, .micro = 2};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    weir_session_stats stats;
    int found = 0;
    close(mkstemp(path));
    fake_open(&(fake_options){.seed = 2});
    weir_session *s = weir_session_open(plan, .poison = true, .trace = path);
    cr_assert_not_null(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    weir_session_get_stats(s, &stats);
    for (int q = 0; q < stats.queue_count; q++) {
        bool one = !strcmp(stats.queue[q].name, "collective fake:0") || !strcmp(stats.queue[q].name, "collective fake:1");
        found += one && stats.queue[q].firings == 2 * 2 * STEPS && stats.queue[q].busy > 0;
    }
    cr_expect_eq(found, 2);
    cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    fake_close_well();
    expect_taken(&m, STEPS, "poisoned");
    char *text = json_read(path);
    cr_expect(json_valid(text));
    cr_expect_eq(json_count(text, "\"name\": \"member 1 of 0\""), 2 * STEPS);
    free(text);
    remove(path);
    weir_plan_free(plan);
}

/* ---- two processes ---- */

enum { WORKERS = EFFORT(0, 0, 1), LOST_STEP = 3 }; /* as in tests/actors/test_fake.c */

struct shared {
    const weir_plan *plan;
    meetings *m;
    struct fake_board *board;
    uint64_t seed;
    bool lost; /* rank 1 is, in the middle */
    enum ranks_link link;
};

/* The records of a rank. */
struct rank_seen {
    int wrong, taken[MEETINGS_LANES];
};

static void meet_as_rank(struct rank *rank)
{
    const struct shared *shared = rank->ctx;
    struct rank_seen *seen = rank->result;
    char told[REPORTED] = "";
    fake_open(&(fake_options){.seed = shared->seed + (uint64_t)rank->number, .delay_us = 5, .shared = true,
                              .board = shared->board});
    weir_session *s = weir_session_open(shared->plan, .workers = WORKERS, .cluster = ranks_cluster(rank), .report = tell,
                                        .report_ctx = told);
    RANK_IS(rank, s, "%s", weir_error());
    if (shared->lost) {
        RANK_IS(rank, weir_session_run(s, STEPS) == WEIR_E_PEER, "%s", weir_error());
        RANK_IS(rank, strstr(weir_error(), "rank 1"), "%s", weir_error());
        RANK_IS(rank, strstr(told, "of 2 to come") || strstr(told, "of 3 to come"), "%s", told);
    } else {
        RANK_OK(rank, weir_session_run(s, STEPS - 3));
        RANK_OK(rank, weir_session_run(s, 3));
    }
    RANK_OK(rank, weir_session_close(s));
    fake_seen device = fake_close();
    RANK_IS(rank, !device.misuses, "%s", device.misuse);
    RANK_IS(rank, !*device.race, "%s", device.race);
    seen->wrong = shared->m->wrong;
    for (uint32_t l = 0; l < shared->m->lane_count; l++)
        seen->taken[l] = shared->m->taken[l];
}

/* All devices, those of one rank, and two of which each is one rank's. */
static void lanes_of_ranks(meetings_lane lanes[3])
{
    lanes[0] = meetings_of(PLAN_ALL_GATHER, 4);
    lanes[1] = meetings_of(PLAN_ALL_GATHER, 2);
    lanes[2] = meetings_of(PLAN_SEND_RECV, 2);
    lanes[2].from = 1;
}

static void ranks_meet(enum ranks_link link)
{
    meetings_lane lanes[3];
    lanes_of_ranks(lanes);
    meetings m = {.lane = lanes, .lane_count = 3, .micro = 2};
    struct shared shared = {.m = &m, .plan = meetings_plan(&m, NULL, 0), .link = link};
    for (shared.seed = 0; shared.seed < SEEDS / 2; shared.seed++) {
        shared.board = fake_board_new();
        struct ranks *ranks = ranks_run(meet_as_rank, &shared, .count = 2, .link = link,
                                        .result_bytes = sizeof(struct rank_seen));
        const struct rank_seen *one = ranks->rank[0].result, *other = ranks->rank[1].result;
        cr_expect_eq(one->wrong + other->wrong, 0);
        for (uint32_t l = 0; l < 3; l++)
            cr_expect_eq(one->taken[l] + other->taken[l], 2 * STEPS * (int)lanes[l].devices);
        ranks_free(ranks);
        fake_board_free(shared.board);
    }
    weir_plan_free((weir_plan *)shared.plan);
}

Test(meetings, two_processes_that_share_memory_meet)
{
    ranks_meet(RANKS_SHM);
}

Test(meetings, two_processes_over_sockets_meet)
{
    ranks_meet(RANKS_WIRE);
}

static void dies(meetings *m, uint32_t lane, uint32_t device, int64_t step, int micro)
{
    (void)m, (void)micro;
    if (!lane && device == 3 && step == LOST_STEP)
        kill(getpid(), SIGKILL);
}

Test(meetings, a_rank_that_is_lost_is_told_with_who_waited_for_it_to_come)
{
    meetings_lane lanes[3];
    lanes_of_ranks(lanes);
    meetings m = {.lane = lanes, .lane_count = 3, .micro = 2, .gives = dies};
    struct shared shared = {.m = &m, .plan = meetings_plan(&m, NULL, 0), .board = fake_board_new(), .lost = true};
    struct ranks *ranks = ranks_run(meet_as_rank, &shared, .count = 2, .result_bytes = sizeof(struct rank_seen), .may_die = 2);
    cr_expect_eq(ranks->rank[1].signal, SIGKILL);
    ranks_free(ranks);
    fake_board_free(shared.board);
    weir_plan_free((weir_plan *)shared.plan);
}

/* ---- kinds that cannot, or do not ---- */

static void expect_not_opened(const weir_plan *plan, const char *why)
{
    device_register(WEIR_FAKE, &ops);
    weir_session *s = weir_session_open(plan, .stall_s = -1);
    cr_expect_null(s);
    cr_expect(strstr(weir_error(), why), "'%s' does not say '%s'", weir_error(), why);
    if (s)
        weir_session_close(s);
    fake_close_well();
}

static int joined, joins;

static weir_status join_once(struct device_queue *queue, const struct device_group_id *id, uint32_t place, uint32_t count,
                             uint32_t here, struct device_group **group)
{
    (void)queue, (void)id, (void)here;
    struct device_group *made = joined++ < joins ? calloc(1, sizeof(*made)) : NULL;
    if (made)
        *made = (struct device_group){.self = place, .count = count};
    *group = made;
    return made ? WEIR_OK : error_set(WEIR_E_UNSUPPORTED, "nobody is to be seen");
}

static void leave(struct device_group *group)
{
    joined = -1;
    free(group);
}

Test(meetings, a_kind_that_does_nothing_together_is_refused_at_open)
{
    meetings m;
    weir_plan *plan = pair_plan(&m);
    fake_open(NULL);
    ops = *device_find(WEIR_FAKE);
    ops.group_new = NULL;
    expect_not_opened(plan, "the plan has collectives, and fake:0 cannot take part: devices of its kind do nothing together");
    weir_plan_free(plan);
}

Test(meetings, a_group_that_cannot_be_joined_fails_the_open_and_those_that_were_are_left)
{
    meetings m;
    weir_plan *plan = pair_plan(&m);
    fake_open(NULL);
    ops = *device_find(WEIR_FAKE);
    ops.group_new = join_once;
    ops.group_free = leave;
    joined = 0, joins = 1;
    expect_not_opened(plan, "nobody is to be seen");
    cr_expect_eq(joined, -1, "the first one was left");
    weir_plan_free(plan);
}
