/* tests/support/party.h: ranks that meet, each a thread with a ZeroMQ context of its own, on loopback. */
#ifndef TESTS_SUPPORT_PARTY_H
#define TESTS_SUPPORT_PARTY_H

#include <pthread.h>
#include <weir/weir.h>

#include "transport/meet/meet.h"

enum { PARTY_MAX = 256 };

struct party;

struct rank {
    struct party *party;
    struct cluster_env env;
    const weir_plan *plan;
    uint32_t devices, workers;
    int delay_ms;
    bool absent;
    pthread_t thread;
    weir_status status; /* what came out */
    char error[1024];
    uint64_t session;
    struct member members[PARTY_MAX];
};

struct party {
    uint32_t size;
    struct rank ranks[PARTY_MAX];
    pthread_mutex_t lock;
    char reports[8192];
    int report_count;
};

/* Keeps it, with the party as ctx. */
void party_report(void *ctx, const char *text);

void party_pause(int time_ms);

/* Ranks of a session on loopback, plain, that are still to be started; they wait `join_s` for each other. */
struct party *party_new(uint32_t size, double join_s);

/* The rank's own description. */
struct member party_card(const struct rank *rank);

/* Each as a thread, but for those that are absent. */
void party_start(struct party *party);

void party_wait(struct party *party);

void party_free(struct party *party);

/* All have met, and all have all cards. */
void party_met(const struct party *party);

/* All ended with this status and an error in which this stands. */
void party_says(const struct party *party, weir_status status, const char *error);

/* The function of each of these threads; a struct rank. */
void *party_run(void *arg);

#endif
