/* apps/weir/bench/ranks.c: see the header. Nothing of the caller's own cluster counts: place and way are given here. */
#include "apps/weir/bench/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/common/measure.h"
#include "apps/weir/bench/timed.h"

#define LISTEN_US 3000 /* by then rank 0 listens; who comes earlier tries again only after 100 ms */

static bool play_steps(void *session, uint32_t rank, int64_t count)
{
    (void)rank;
    return !weir_session_run(session, count);
}

static void choose_way(enum bench_way way)
{
    unsetenv("WEIR_KEY_FILE");
    setenv("WEIR_INSECURE", way == BENCH_TCP ? "1" : "0", 1);
    unsetenv("WEIR_DEVICES");
    const char *carriers = getenv("WEIR_CARRIER"), *wire = carriers && strstr(carriers, "ucx") ? "ucx" : "tcp";
    setenv("WEIR_CARRIER", way == BENCH_SHM ? "shm,ipc,tcp" : wire, 1);
}

/* All ranks run as many steps. */
static weir_status member_timed(struct bench_team *team, uint32_t rank, const struct bench_ranks *ranks, weir_session *session)
{
    double spread;
    const bench_timed timed = {.session = session, .guess = ranks->guess, .short_s = ranks->short_s, .rounds = ranks->rounds};
    return bench_timed_run(&timed, &team->seconds[rank], &spread);
}

static weir_status member_play(struct bench_team *team, uint32_t rank, const struct bench_ranks *ranks, weir_session *session)
{
    if (ranks->rounds)
        return member_timed(team, rank, ranks, session);
    return bench_team_play(team, rank, &ranks->round, play_steps, session) ? WEIR_OK : WEIR_E_PEER;
}

static weir_status member_session(struct bench_team *team, uint32_t rank, void *ctx)
{
    const struct bench_ranks *ranks = ctx;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", team->port);
    choose_way(ranks->way);
    weir_cluster_opts cluster = {.world_size = (int)team->count, .rank = (int)rank, .address = address};
    if (rank)
        usleep(LISTEN_US);
    weir_session *session = weir_session_open(ranks->plan, .workers = 1, .cluster = cluster);
    if (!session)
        return WEIR_E_PEER; /* the sentence is there */
    bench_team_pin(team, rank); /* now: a session that opens on one core would not spin */
    weir_status status = member_play(team, rank, ranks, session);
    weir_session_close(session);
    return status;
}

weir_status bench_ranks_run(uint32_t count, const struct bench_ranks *ranks, double *seconds)
{
    return bench_team_run(count, member_session, (void *)ranks, seconds);
}
