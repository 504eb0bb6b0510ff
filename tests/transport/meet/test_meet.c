/* tests/transport/meet/test_meet.c: ranks that find each other, or say why not. Each rank is a thread with a ZeroMQ
 * context of its own, on loopback. */
#include "graph/time/rates.h"
#include "tests/support/party.h"
#include "transport/meet/frames.h"
#include "transport/line/wire.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(meeting, .timeout = 60);

/* ---- they meet ---- */

static void meet(uint32_t size, int delay_ms, const char *address)
{
    struct party *party = party_new(size, 20);
    for (uint32_t r = 0; r < size; r++) {
        party->ranks[r].delay_ms = delay_ms * (int)((size - r) % 3);
        strcpy(party->ranks[r].env.address, address);
        party->ranks[r].env.insecure = false;
    }
    party_start(party);
    party_wait(party);
    party_met(party);
    cr_assert_eq(party->report_count, 0, "%s", party->reports);
    party_free(party);
}

Test(meeting, gives_all_ranks_all_cards)
{
    meet(2, 0, "127.0.0.1");
    meet(3, 0, "127.0.0.1");
    meet(8, 0, "localhost");
}

Test(meeting, waits_for_late_ones_whoever_it_is)
{
    meet(3, 300, "127.0.0.1");
    meet(4, 700, "127.0.0.1");
}

/* All at once, with a key. Not one of so many handshakes is to be taken for that of somebody who says nothing. */
Test(meeting, gathers_256_ranks_that_come_at_once)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    meet(256, 0, "127.0.0.1");
    clock_gettime(CLOCK_MONOTONIC, &end);
    cr_log_info("256 ranks met after %ld ms",
                (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000);
}

Test(meeting, is_over_at_once_for_one_rank)
{
    struct cluster_env env = {.size = 1};
    struct meet meet = {.env = &env};
    cr_assert_eq(meet_session(&meet), WEIR_OK);
    cr_assert_neq(meet.session, 0);
}

Test(meeting, can_be_held_again_at_the_same_port)
{
    struct party *party = party_new(3, 20);
    for (int i = 0; i < 5; i++) {
        party_start(party);
        party_wait(party);
        party_met(party);
    }
    party_free(party);
}

/* Somebody else listens at rank 0's port for longer than rank 0 keeps quiet about it. */
Test(meeting, waits_for_its_port_as_long_as_for_ranks)
{
    struct party *party = party_new(2, 20);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(party->ranks[0].env.port)};
    int other = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(other >= 0 && !bind(other, (struct sockaddr *)&address, sizeof address) && !listen(other, 8));
    party_start(party);
    party_pause(3500);
    close(other);
    party_wait(party);
    party_met(party);
    cr_assert_eq(party->report_count, 1, "%s", party->reports);
    cr_assert(strstr(party->reports, "rank 0 waits to meet for '': port "), "%s", party->reports);
    party_free(party);
}

/* ---- they do not ---- */

Test(meeting, names_the_ranks_that_do_not_come_and_those_that_did)
{
    struct party *party = party_new(4, 1);
    party->ranks[2].absent = party->ranks[3].absent = true;
    party->ranks[0].delay_ms = 200;
    party_start(party);
    party_wait(party);
    party_says(party, WEIR_E_TIMEOUT, "2 of 4 ranks have not come to rank 0 at 127.0.0.1, port ");
    party_says(party, WEIR_E_TIMEOUT, ": rank 2, rank 3; here are rank 0 (node0, pid 1000), rank 1 (node1, pid 1001)");
    party_free(party);
}

Test(meeting, says_where_nobody_answers)
{
    struct party *party = party_new(2, 0.5);
    char error[64];
    party->ranks[0].absent = true;
    party_start(party);
    party_wait(party);
    snprintf(error, sizeof error, "nobody answers at 127.0.0.1, port %u, where rank 0 should be",
             party->ranks[1].env.port);
    party_says(party, WEIR_E_TIMEOUT, error);
    party_free(party);
}

/* ---- plans that differ ---- */

struct model {
    int width, micro_batches, line, devices, cores;
    uint64_t seed;
    double deviation;
    bool tanh, extra, moved;
}; /* 0: as rank 0's */

/* A model in which one thing can be changed; `line` is that of "q". */
static weir_plan *model_new(struct model *model)
{
    weir_graph *g = weir_graph_new("model");
    int width = model->width ? model->width : 6;
    double deviation = model->deviation > 0 ? model->deviation : 0.5;
    model->line = model->moved ? __LINE__ + 5 : __LINE__ + 7;
    WEIR_ON(weir_mesh_new(g, model->devices == 3 ? "cpu:0-2" : "cpu:0-1"))
    {
        weir_tensor *q, *x = weir_relu(weir_input(g, WEIR_F32, {8, 5}, .name = "x", .micro = true));
        if (model->moved)
            q = weir_linear(x, width, .name = "q");
        else
            q = weir_linear(x, width, .name = "q");
        weir_tensor *p = weir_param(g, WEIR_F32, {1, 1}, .name = "p", .init = WEIR_NORMAL(deviation));
        weir_tensor *y = weir_mul(model->tanh ? weir_tanh(q, .name = "a") : weir_relu(q, .name = "a"), p, .name = "m");
        if (model->extra)
            y = weir_neg(y, .name = "n");
        weir_fetch(weir_sum(y, .name = "loss"), .name = "loss");
    }
    weir_rates *rates = model->cores ? rates_new() : NULL;
    if (rates)
        rates->cores = (uint64_t)model->cores;
    weir_plan *plan = weir_compile(g, .micro_batches = model->micro_batches ? model->micro_batches : 2, .seed = model->seed, .rates = rates);
    cr_assert(plan, "%s", weir_error());
    weir_rates_free(rates);
    weir_graph_free(g);
    return plan;
}

/* Three ranks, the last of which has another model; what all of them say begins with `format`, of q's two lines. */
static void differ(struct model other, const char *format)
{
    struct model model = {.tanh = false};
    struct party *party = party_new(3, 20);
    char error[1024];
    weir_plan *plan = model_new(&model), *another = model_new(&other);
    party->ranks[0].plan = party->ranks[1].plan = plan;
    party->ranks[2].plan = another;
    party->ranks[1].delay_ms = 300; /* comes when it is over */
    party_start(party);
    party_wait(party);
    snprintf(error, sizeof error, format, model.line, other.line);
    party_says(party, WEIR_E_PEER, error);
    for (uint32_t r = 0; r < party->size; r++)
        cr_expect_str_eq(party->ranks[r].error, error, "rank %u", r);
    weir_plan_free(plan);
    weir_plan_free(another);
    party_free(party);
}

#define GRAPH "rank 2's graph is not rank 0's: the first op that differs is "
#define HERE " at tests/transport/meet/test_meet.c:"

Test(meeting, lets_ranks_with_the_same_plan_meet)
{
    struct model model = {.tanh = false};
    struct party *party = party_new(3, 20);
    for (uint32_t r = 0; r < party->size; r++) {
        party->ranks[r].plan = r == 1 ? NULL : model_new(&model);
        strcpy(party->ranks[r].env.name, "model"); /* which who has no plan does not know */
    }
    party_start(party);
    party_wait(party);
    party_met(party);
    for (uint32_t r = 0; r < party->size; r++)
        weir_plan_free((weir_plan *)party->ranks[r].plan);
    party_free(party);
}

Test(meeting, names_the_first_op_that_differs)
{
    differ((struct model){.width = 4},
           GRAPH "\"q\": linear" HERE "%d on rank 0, linear" HERE "%d on rank 2 (shapes differ: f32 [8, 5], f32 [5, 6], "
                 "f32 [6] -> f32 [8, 6] on rank 0, f32 [8, 5], f32 [5, 4], f32 [4] -> f32 [8, 4] on rank 2)");
}

Test(meeting, names_the_op_that_differs_though_all_lines_do)
{
    differ((struct model){.width = 4, .moved = true},
           GRAPH "\"q\": linear" HERE "%d on rank 0, linear" HERE "%d on rank 2 (shapes differ: f32 [8, 5], f32 [5, 6], "
                 "f32 [6] -> f32 [8, 6] on rank 0, f32 [8, 5], f32 [5, 4], f32 [4] -> f32 [8, 4] on rank 2)");
    differ((struct model){.moved = true},
           GRAPH "\"q\": linear" HERE "%d on rank 0, linear" HERE "%d on rank 2 (only the places differ)");
}

static void differ_elsewhere(struct model other, const char *format, int offset)
{
    char text[512];
    struct model model = {.tanh = false};
    weir_plan_free(model_new(&model));
    snprintf(text, sizeof text, format, model.line + offset, model.line + offset);
    differ(other, text);
}

Test(meeting, names_an_op_that_is_another_one_or_missing)
{
    differ_elsewhere((struct model){.tanh = true},
                     GRAPH "\"a\": relu" HERE "%d on rank 0, tanh" HERE "%d on rank 2", 2);
    differ_elsewhere((struct model){.extra = true},
                     GRAPH "\"n\": no such op on rank 0, neg" HERE "%d on rank 2", 4);
}

Test(meeting, names_the_value_or_option_that_differs)
{
    differ((struct model){.deviation = 0.25},
           GRAPH "\"p\": initial value on rank 0, initial value on rank 2 (values differ)");
    differ((struct model){.micro_batches = 4, .seed = 7},
           "rank 2 has rank 0's graph, but compiled it with other options, micro-batches: 2 on rank 0 and 4 on rank 2, "
           "seed: 0 on rank 0 and 7 on rank 2");
    differ((struct model){.devices = 3},
           "rank 2 has rank 0's graph, but compiled it with other options, devices: 2 on rank 0 and 3 on rank 2");
}

/* The last line of a file of rates for a machine of 3 cores, of which nothing else is known. */
Test(meeting, names_the_rates_that_differ)
{
    char wanted[256];
    uint64_t hash;
    weir_rates *rates = rates_new();
    cr_assert_not_null(rates);
    rates->cores = 3;
    cr_assert(rates_hash(rates, &hash));
    weir_rates_free(rates);
    snprintf(wanted, sizeof wanted, "rank 2 has rank 0's graph, but compiled it with other options, rates: none on rank 0 and %016llx on rank 2; "
             "give all ranks the same, as weir launch --rates RATES does", (unsigned long long)hash);
    differ((struct model){.cores = 3}, wanted);
}

Test(meeting, names_the_rank_with_other_devices)
{
    struct party *party = party_new(3, 20);
    party->ranks[1].devices = 5;
    party_start(party);
    party_wait(party);
    party_says(party, WEIR_E_PEER, "rank 1 has 5 devices, rank 0 has 2: WEIR_DEVICES must be the same on all ranks");
    party_free(party);
}

/* ---- levels of kernels ---- */

static const char *const levels[] = {"v1", "v3", "v4", NULL}; /* of the build */

/* Three ranks, the last of which is of another level. */
static struct party *party_of_levels(const char *ours, const char *theirs)
{
    struct party *party = party_new(3, 20);
    for (uint32_t r = 0; r < party->size; r++) {
        party->ranks[r].env.level = r == 2 ? theirs : ours;
        party->ranks[r].env.levels = levels;
    }
    party_start(party);
    party_wait(party);
    return party;
}

static void round_differently(const char *ours, const char *theirs, const char *way_out)
{
    struct party *party = party_of_levels(ours, theirs);
    char error[512];
    snprintf(error, sizeof error,
             "rank 2 (node2, pid 1002) has kernels of level %s, rank 0 (node0, pid 1000) of level %s, and these round "
             "differently: %s", theirs, ours, way_out);
    party_says(party, WEIR_E_PEER, error);
    for (uint32_t r = 0; r < party->size; r++)
        cr_expect_str_eq(party->ranks[r].error, error, "rank %u", r);
    party_free(party);
}

Test(meeting, names_the_levels_that_differ_and_the_lower_one)
{
    round_differently("v4", "v3", "set WEIR_CPU_LEVEL=v3 on all ranks");
    round_differently("v1", "v4", "set WEIR_CPU_LEVEL=v1 on all ranks");
}

Test(meeting, knows_no_level_for_ranks_of_different_builds)
{
    round_differently("v4", "native-v4", "no build has both; all ranks need the same one, made with PORTABLE=1 if their "
                                         "processors differ, and the same WEIR_CPU_LEVEL");
}

Test(meeting, lets_ranks_of_one_level_meet)
{
    struct party *party = party_of_levels("v3", "v3");
    party_met(party);
    party_free(party);
}

/* ---- carriers ---- */

Test(meeting, names_the_ranks_whose_carriers_differ)
{
    static const char error[] = "rank 2 (node2, pid 1002) may use the carriers ipc,ucx, rank 0 (node0, pid 1000) ipc: "
                                "WEIR_CARRIER must list the same on all ranks";
    struct party *party = party_new(3, 20);
    for (uint32_t r = 0; r < party->size; r++)
        party->ranks[r].env.carriers = r == 2 ? CLUSTER_IPC | CLUSTER_UCX : CLUSTER_IPC;
    party_start(party);
    party_wait(party);
    party_says(party, WEIR_E_PEER, error);
    for (uint32_t r = 0; r < party->size; r++)
        cr_expect_str_eq(party->ranks[r].error, error, "rank %u", r);
    party_free(party);
}

/* ---- unknown peers ---- */

/* A socket that speaks ZeroMQ with rank 0 and says what it likes. */
struct outsider {
    void *context, *socket;
};

static struct outsider outsider_new(const struct party *party)
{
    struct outsider outsider = {.context = zmq_ctx_new()};
    char endpoint[64];
    int linger = 0, patience_ms = 10000;
    outsider.socket = zmq_socket(outsider.context, ZMQ_DEALER);
    zmq_setsockopt(outsider.socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(outsider.socket, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", party->ranks[0].env.port);
    cr_assert_eq(zmq_connect(outsider.socket, endpoint), 0);
    return outsider;
}

static void outsider_free(struct outsider *outsider)
{
    zmq_close(outsider->socket);
    zmq_ctx_term(outsider->context);
}

static struct meet_frame join_of(const struct party *party, uint32_t rank)
{
    struct meet_frame frame = {.kind = MEET_JOIN};
    frame.join.plan_version = PLAN_VERSION;
    frame.join.rank = rank;
    frame.join.size = party->size;
    frame.join.card = party_card(&party->ranks[rank]);
    return frame;
}

/* Sends a frame, and checks that it is refused with these words. */
static void is_refused(const struct party *party, const struct meet_frame *frame, const char *error)
{
    unsigned char bytes[MEET_FRAME_MAX];
    static struct meet_frame answer;
    struct outsider outsider = outsider_new(party);
    zmq_send(outsider.socket, bytes, meet_encode(frame, bytes), 0);
    int count = zmq_recv(outsider.socket, bytes, sizeof bytes, 0);
    cr_assert(count > 0, "no answer");
    cr_assert_eq(meet_decode(bytes, (size_t)count, &answer), WEIR_OK, "%s", weir_error());
    cr_assert_eq(answer.kind, MEET_REFUSE);
    cr_assert(strstr(answer.refuse.text, error), "'%s' does not say '%s'", answer.refuse.text, error);
    outsider_free(&outsider);
}

/* Three ranks of which the last is late, so that others can try before. */
static struct party *party_with_door(int delay_ms)
{
    struct party *party = party_new(3, 20);
    party->ranks[2].delay_ms = delay_ms;
    party_start(party);
    return party;
}

Test(meeting, refuses_unknown_peers_and_goes_on)
{
    struct party *party = party_with_door(1500);
    static struct meet_frame frame;
    frame = join_of(party, 2);
    frame.version = WIRE_VERSION + 1;
    is_refused(party, &frame, "it speaks version ");
    frame = join_of(party, 2);
    frame.join.plan_version++;
    is_refused(party, &frame, "its plans are of version ");
    frame = join_of(party, 2);
    frame.join.size = 5;
    is_refused(party, &frame, "it says that there are 5 ranks, rank 0 that there are 3");
    frame = join_of(party, 2);
    frame.join.rank = 3;
    is_refused(party, &frame, "it says that it is rank 3 of 3");
    frame.join.rank = 0;
    is_refused(party, &frame, "it says that it is rank 0 of 3");
    party_wait(party);
    party_met(party);
    cr_assert(strstr(party->reports, "rank 0 refused a peer at 127.0.0.1 that wants to join: it speaks version "), "%s",
              party->reports);
    cr_assert_leq(party->report_count, 3, "%s", party->reports);
    party_free(party);
}

/* ---- generations ---- */

/* A process that is left from before the restart: it ends, and so does its rank 0, or it is refused by the new one. */
Test(meeting, refuses_an_older_generation_and_goes_on)
{
    struct party *party = party_new(3, 20);
    static struct meet_frame frame;
    for (uint32_t r = 0; r < 3; r++)
        party->ranks[r].env.generation = 4;
    party->ranks[2].delay_ms = 1000;
    party_start(party);
    frame = join_of(party, 2);
    frame.join.generation = 3;
    is_refused(party, &frame, "rank 2 (node2, pid 1002) is of generation 3, which is over: rank 0 is of generation 4");
    strcpy(frame.join.name, "another");
    is_refused(party, &frame, "is of generation 3, which is over");
    party_wait(party);
    party_met(party);
    cr_assert(strstr(party->reports, "rank 0 refused a peer at 127.0.0.1 that wants to join: rank 2 (node2, "), "%s",
              party->reports);
    party_free(party);
}

/* Generation 1 comes to the port where generation 0 still waits for its third rank. */
Test(meeting, of_an_older_generation_ends_when_a_newer_one_comes)
{
    struct party *old = party_new(3, 20), *anew = party_new(2, 20);
    old->ranks[2].absent = true;
    for (uint32_t r = 0; r < 2; r++) {
        anew->ranks[r].env.port = old->ranks[0].env.port;
        anew->ranks[r].env.generation = 1;
    }
    anew->ranks[0].delay_ms = 1500;
    anew->ranks[1].delay_ms = 500;
    party_start(old);
    party_start(anew);
    party_wait(old);
    party_wait(anew);
    party_says(old, WEIR_E_PEER, "generation 0 of the ranks is over: rank 1 (node1, pid 1001) is of generation 1");
    party_met(anew);
    party_free(old);
    party_free(anew);
}

/* ---- ranks that are taken ---- */

Test(meeting, refuses_a_rank_that_is_taken)
{
    struct party *party = party_with_door(1500);
    static struct meet_frame frame;
    party_pause(500);
    frame = join_of(party, 1);
    frame.join.card.pid = 77;
    is_refused(party, &frame, "rank 1 is here already (node1, pid 1001), and node1, pid 77, says that it is rank 1, too");
    party_wait(party);
    party_met(party);
    party_free(party);
}

Test(meeting, says_in_the_end_whom_it_refused)
{
    struct party *party = party_new(2, 1.5);
    static struct meet_frame frame;
    party->ranks[1].absent = true;
    party_start(party);
    frame = join_of(party, 1);
    frame.join.size = 3;
    is_refused(party, &frame, "there are 3 ranks");
    party_wait(party);
    party_says(party, WEIR_E_TIMEOUT, "1 of 2 ranks have not come to rank 0 at 127.0.0.1");
    party_says(party, WEIR_E_TIMEOUT, "; refused: it says that there are 3 ranks, rank 0 that there are 2");
    party_free(party);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Bytes without a meaning, and frames that are almost right, in one part or several. */
Test(meeting, ignores_garbage)
{
    struct party *party = party_with_door(1500);
    struct outsider outsider = outsider_new(party);
    unsigned char bytes[MEET_FRAME_MAX];
    static struct meet_frame frame;
    uint32_t seed = (uint32_t)time(NULL), state = seed;
    cr_log_info("seed %u", seed);
    for (int i = 0; i < 2000; i++) {
        frame = join_of(party, 2);
        frame.join.rank = 9 * (uint32_t)(i % 2); /* if it is a JOIN after all, then no good one */
        frame.join.size = 9;
        size_t count = meet_encode(&frame, bytes);
        if (i % 3)
            bytes[next_random(&state) % count] = (unsigned char)next_random(&state);
        else
            for (size_t b = 0; b < count; b++)
                bytes[b] = (unsigned char)next_random(&state);
        for (int parts = i % 5; parts > 3; parts--)
            zmq_send(outsider.socket, bytes, count, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        zmq_send(outsider.socket, bytes, next_random(&state) % 4 ? count : next_random(&state) % count, ZMQ_DONTWAIT);
    }
    party_wait(party);
    party_met(party);
    cr_assert(party->report_count >= 1 && party->report_count <= 3, "%d: %s", party->report_count, party->reports);
    outsider_free(&outsider);
    party_free(party);
}

Test(meeting, is_not_stopped_by_connections_that_say_nothing)
{
    struct party *party = party_with_door(800);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(party->ranks[0].env.port)};
    int silent[200], connected = 0;
    party_pause(200);
    for (int i = 0; i < 200; i++) {
        silent[i] = socket(AF_INET, SOCK_STREAM, 0);
        connected += !connect(silent[i], (struct sockaddr *)&address, sizeof address);
        if (i % 2)
            connected += 0 * (int)write(silent[i], "GET / HTTP/1.1\r\n\r\n", 18);
    }
    cr_assert_eq(connected, 200);
    party_wait(party);
    party_met(party);
    for (int i = 0; i < 200; i++)
        close(silent[i]);
    party_free(party);
}
