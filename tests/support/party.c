/* tests/support/party.c: see the header. */
#include "tests/support/party.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

void party_report(void *ctx, const char *text)
{
    struct party *party = ctx;
    pthread_mutex_lock(&party->lock);
    size_t count = strlen(party->reports);
    snprintf(party->reports + count, sizeof party->reports - count, "%s\n", text);
    party->report_count++;
    pthread_mutex_unlock(&party->lock);
}

static uint16_t party_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&address, bytes) &&
              !getsockname(fd, (struct sockaddr *)&address, &bytes));
    close(fd);
    return ntohs(address.sin_port);
}

void party_pause(int time_ms)
{
    struct timespec pause = {time_ms / 1000, time_ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

struct party *party_new(uint32_t size, double join_s)
{
    struct party *party = calloc(1, sizeof *party);
    cr_assert(party);
    party->size = size;
    pthread_mutex_init(&party->lock, NULL);
    uint16_t port = party_port();
    for (uint32_t r = 0; r < PARTY_MAX; r++) {
        party->ranks[r].party = party;
        party->ranks[r].devices = 2;
        party->ranks[r].workers = 3;
        party->ranks[r].env = (struct cluster_env){
            .rank = r, .size = size, .address = "127.0.0.1", .port = port, .join_ns = (int64_t)(join_s * 1e9),
            .insecure = true}; /* what unknown peers say is read */
    }
    return party;
}

struct member party_card(const struct rank *rank)
{
    struct member card = {.pid = 1000 + rank->env.rank, .devices = rank->devices, .workers = rank->workers,
                          .segment_fd = -1,
                          .segment_bytes = 1ull << 40, .segment_cookie = UINT64_MAX - rank->env.rank};
    if (rank->env.rank % 2)
        card.segment_fd = (int32_t)rank->env.rank;
    meet_host(card.host, sizeof card.host);
    snprintf(card.name, sizeof card.name, "node%u", rank->env.rank);
    snprintf(card.tcp, sizeof card.tcp, "tcp://127.0.0.1:%u", 5000 + rank->env.rank);
    snprintf(card.ipc, sizeof card.ipc, rank->env.rank ? "ipc://@weir-%u" : "", rank->env.rank);
    return card;
}

void *party_run(void *arg)
{
    struct rank *rank = arg;
    struct keys keys;
    struct report report = {party_report, rank->party, NULL};
    party_pause(rank->delay_ms);
    void *context = zmq_ctx_new();
    rank->status = keys_open(&keys, &rank->env);
    rank->members[rank->env.rank] = party_card(rank);
    struct meet meet = {.zmq_context = context, .env = &rank->env, .keys = &keys, .report = &report,
                                    .plan = rank->plan, .members = rank->members};
    if (rank->status == WEIR_OK)
        rank->status = meet_session(&meet);
    snprintf(rank->error, sizeof rank->error, "%s", rank->status == WEIR_OK ? "" : weir_error());
    rank->session = meet.session;
    zmq_ctx_term(context);
    return NULL;
}

void party_start(struct party *party)
{
    for (uint32_t r = 0; r < party->size; r++)
        if (!party->ranks[r].absent)
            cr_assert_eq(pthread_create(&party->ranks[r].thread, NULL, party_run, &party->ranks[r]), 0);
}

void party_wait(struct party *party)
{
    for (uint32_t r = 0; r < party->size; r++)
        if (!party->ranks[r].absent)
            pthread_join(party->ranks[r].thread, NULL);
}

void party_free(struct party *party)
{
    pthread_mutex_destroy(&party->lock);
    free(party);
}

void party_met(const struct party *party)
{
    for (uint32_t r = 0; r < party->size; r++) {
        const struct rank *rank = &party->ranks[r];
        cr_assert_eq(rank->status, WEIR_OK, "rank %u: %s", r, rank->error);
        cr_assert_neq(rank->session, 0);
        cr_assert_eq(rank->session, party->ranks[0].session);
    }
    for (uint32_t other = 0; other < party->size; other++) {
        struct member card = party_card(&party->ranks[other]);
        for (uint32_t r = 0; r < party->size; r++)
            cr_assert_arr_eq(&party->ranks[r].members[other], &card, sizeof card, "card %u at rank %u", other, r);
    }
}

void party_says(const struct party *party, weir_status status, const char *error)
{
    for (uint32_t r = 0; r < party->size; r++) {
        const struct rank *rank = &party->ranks[r];
        if (rank->absent)
            continue;
        cr_expect_eq(rank->status, status, "rank %u: %s", r, rank->error);
        cr_expect(strstr(rank->error, error), "rank %u: '%s' does not say '%s'", r, rank->error, error);
    }
}
