/* tests/test_rendezvous.c: ranks that find each other, or say why not. Each rank is a thread with a ZeroMQ context of
 * its own, on loopback. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>
#include <zmq.h>

#include "transport/meet_frames.h"
#include "transport/rendezvous.h"
#include "transport/wire.h"

TestSuite(rendezvous, .timeout = 60);

enum { RANKS_MAX = 16 };

/* ---- ranks ---- */

struct party;

struct rank {
    struct party *party;
    struct cluster_env env;
    const weir_plan *plan;
    uint32_t devices;
    int delay_ms;
    bool absent;
    pthread_t thread;
    weir_status status; /* what came out */
    char error[1024];
    uint64_t session;
    struct member members[RANKS_MAX];
};

struct party {
    uint32_t size;
    struct rank ranks[RANKS_MAX];
    pthread_mutex_t lock;
    char reports[8192];
    int report_count;
};

static void keep_report(void *ctx, const char *text)
{
    struct party *party = ctx;
    pthread_mutex_lock(&party->lock);
    size_t count = strlen(party->reports);
    snprintf(party->reports + count, sizeof party->reports - count, "%s\n", text);
    party->report_count++;
    pthread_mutex_unlock(&party->lock);
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&address, bytes) &&
              !getsockname(fd, (struct sockaddr *)&address, &bytes));
    close(fd);
    return ntohs(address.sin_port);
}

static void pause_ms(int time_ms)
{
    struct timespec pause = {time_ms / 1000, time_ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

static struct party *party_new(uint32_t size, double join_s)
{
    struct party *party = calloc(1, sizeof *party);
    cr_assert(party);
    party->size = size;
    pthread_mutex_init(&party->lock, NULL);
    uint16_t port = free_port();
    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        party->ranks[r].party = party;
        party->ranks[r].devices = 2;
        party->ranks[r].env = (struct cluster_env){
            .rank = r, .size = size, .address = "127.0.0.1", .port = port, .join_ns = (int64_t)(join_s * 1e9)};
    }
    return party;
}

static struct member card_of(const struct rank *rank)
{
    struct member card = {.pid = 1000 + rank->env.rank, .devices = rank->devices, .workers = 3, .segment_fd = -1,
                          .segment_bytes = 1ull << 40, .segment_cookie = UINT64_MAX - rank->env.rank};
    if (rank->env.rank % 2)
        card.segment_fd = (int32_t)rank->env.rank;
    rendezvous_host(card.host, sizeof card.host);
    snprintf(card.name, sizeof card.name, "node%u", rank->env.rank);
    snprintf(card.tcp, sizeof card.tcp, "tcp://127.0.0.1:%u", 5000 + rank->env.rank);
    snprintf(card.ipc, sizeof card.ipc, rank->env.rank ? "ipc://@weir-%u" : "", rank->env.rank);
    return card;
}

static void *rank_run(void *arg)
{
    struct rank *rank = arg;
    struct keys keys;
    struct report report = {keep_report, rank->party};
    pause_ms(rank->delay_ms);
    void *context = zmq_ctx_new();
    rank->status = keys_open(&keys, &rank->env);
    rank->members[rank->env.rank] = card_of(rank);
    struct rendezvous rendezvous = {.zmq_context = context, .env = &rank->env, .keys = &keys, .report = &report,
                                    .plan = rank->plan, .members = rank->members};
    if (rank->status == WEIR_OK)
        rank->status = rendezvous_meet(&rendezvous);
    snprintf(rank->error, sizeof rank->error, "%s", rank->status == WEIR_OK ? "" : weir_error());
    rank->session = rendezvous.session;
    zmq_ctx_term(context);
    return NULL;
}

static void party_start(struct party *party)
{
    for (uint32_t r = 0; r < party->size; r++)
        if (!party->ranks[r].absent)
            cr_assert_eq(pthread_create(&party->ranks[r].thread, NULL, rank_run, &party->ranks[r]), 0);
}

static void party_wait(struct party *party)
{
    for (uint32_t r = 0; r < party->size; r++)
        if (!party->ranks[r].absent)
            pthread_join(party->ranks[r].thread, NULL);
}

static void party_free(struct party *party)
{
    pthread_mutex_destroy(&party->lock);
    free(party);
}

static void check_met(const struct party *party)
{
    for (uint32_t r = 0; r < party->size; r++) {
        const struct rank *rank = &party->ranks[r];
        cr_assert_eq(rank->status, WEIR_OK, "rank %u: %s", r, rank->error);
        cr_assert_neq(rank->session, 0);
        cr_assert_eq(rank->session, party->ranks[0].session);
        for (uint32_t other = 0; other < party->size; other++) {
            struct member card = card_of(&party->ranks[other]);
            cr_assert_arr_eq(&rank->members[other], &card, sizeof card, "card %u at rank %u", other, r);
        }
    }
}

static void expect_all(const struct party *party, weir_status status, const char *error)
{
    for (uint32_t r = 0; r < party->size; r++) {
        const struct rank *rank = &party->ranks[r];
        if (rank->absent)
            continue;
        cr_expect_eq(rank->status, status, "rank %u: %s", r, rank->error);
        cr_expect(strstr(rank->error, error), "rank %u: '%s' does not say '%s'", r, rank->error, error);
    }
}

/* ---- they meet ---- */

static void meet(uint32_t size, int delay_ms, const char *address)
{
    struct party *party = party_new(size, 20);
    for (uint32_t r = 0; r < size; r++) {
        party->ranks[r].delay_ms = delay_ms * (int)((size - r) % 3);
        strcpy(party->ranks[r].env.address, address);
    }
    party_start(party);
    party_wait(party);
    check_met(party);
    cr_assert_eq(party->report_count, 0, "%s", party->reports);
    party_free(party);
}

Test(rendezvous, gives_all_ranks_all_cards)
{
    meet(2, 0, "127.0.0.1");
    meet(3, 0, "127.0.0.1");
    meet(8, 0, "localhost");
}

Test(rendezvous, waits_for_late_ones_whoever_it_is)
{
    meet(3, 300, "127.0.0.1");
    meet(4, 700, "127.0.0.1");
}

Test(rendezvous, is_over_at_once_for_one_rank)
{
    struct cluster_env env = {.size = 1};
    struct rendezvous rendezvous = {.env = &env};
    cr_assert_eq(rendezvous_meet(&rendezvous), WEIR_OK);
    cr_assert_neq(rendezvous.session, 0);
}

Test(rendezvous, can_be_held_again_at_the_same_port)
{
    struct party *party = party_new(3, 20);
    for (int i = 0; i < 5; i++) {
        party_start(party);
        party_wait(party);
        check_met(party);
    }
    party_free(party);
}

/* ---- they do not ---- */

Test(rendezvous, names_the_ranks_that_do_not_come_and_those_that_did)
{
    struct party *party = party_new(4, 1);
    party->ranks[2].absent = party->ranks[3].absent = true;
    party->ranks[0].delay_ms = 200;
    party_start(party);
    party_wait(party);
    expect_all(party, WEIR_E_TIMEOUT, "2 of 4 ranks have not come to rank 0 at 127.0.0.1, port ");
    expect_all(party, WEIR_E_TIMEOUT, ": rank 2, rank 3; here are rank 0 (node0, pid 1000), rank 1 (node1, pid 1001)");
    party_free(party);
}

Test(rendezvous, says_where_nobody_answers)
{
    struct party *party = party_new(2, 0.5);
    char error[64];
    party->ranks[0].absent = true;
    party_start(party);
    party_wait(party);
    snprintf(error, sizeof error, "nobody answers at 127.0.0.1, port %u, where rank 0 should be",
             party->ranks[1].env.port);
    expect_all(party, WEIR_E_TIMEOUT, error);
    party_free(party);
}
