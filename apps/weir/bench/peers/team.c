/* apps/weir/bench/peers/team.c: forks rather than programs of their own, so that a benchmark is one function that can be
 * read from top to bottom. */
#define PORT_FIRST 20000
#define PORTS 10000
#define PORT_TRIES 100
#define _GNU_SOURCE
#include "apps/weir/bench/peers/team.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "graph/base/error.h"
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

#define TURNS_PER_YIELD 2000
#define GAMES 25
#define GAMES_MIN 2
#define COUNT_MIN 2
#define COUNT_MAX 400000
#define FIRST_BYTES (UINT64_C(8) << 20) /* about as many go through a first game */
#define FIRST_MAX 500
#define HUGE_BYTES (2 << 20)

void *bench_team_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *bench_team_own(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_BYTES)
        madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

void bench_team_release(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

/* Below those that the system gives to connections of its own: such a one would be taken again before it is used. */
static uint16_t free_port(void)
{
    for (unsigned try = 0; try < PORT_TRIES; try++) {
        uint16_t port = (uint16_t)(PORT_FIRST + ((unsigned)getpid() * 61u + try) % PORTS);
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool free = fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address);
        if (fd >= 0)
            close(fd);
        if (free)
            return port;
    }
    return 0;
}

void bench_team_pause(uint32_t *turns)
{
    park_pause();
    if (++*turns % TURNS_PER_YIELD == 0)
        sched_yield();
}

void bench_team_barrier(struct bench_team *team)
{
    uint32_t turns = 0;
    /* acq_rel: what a member did before is seen by all behind the barrier; pairs with the load below */
    uint32_t ticket = atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    uint32_t full = (ticket / team->count + 1) * team->count;
    while ((int32_t)(atomic_load_explicit(&team->arrived, memory_order_acquire) - full) < 0)
        bench_team_pause(&turns);
}

double bench_team_longest(struct bench_team *team)
{
    double longest = 0;
    bench_team_barrier(team);
    for (uint32_t r = 0; r < team->count; r++)
        longest = team->seconds[r] > longest ? team->seconds[r] : longest;
    bench_team_barrier(team);
    return longest;
}

int64_t bench_round_count(const struct bench_round *round, double seconds, int64_t count)
{
    double fit = seconds > 0 ? round->round_seconds / GAMES * (double)count / seconds : (double)COUNT_MAX;
    return fit < COUNT_MIN ? COUNT_MIN : fit > COUNT_MAX ? COUNT_MAX : (int64_t)fit;
}

int64_t bench_round_first(const struct bench_round *round)
{
    uint64_t count = FIRST_BYTES / (round->bytes + 1) + 2;
    return count < FIRST_MAX ? (int64_t)count : FIRST_MAX;
}

static bool play_once(struct bench_team *team, uint32_t rank, bench_play_fn play, void *side, int64_t count)
{
    bench_team_barrier(team);
    double start = measure_seconds();
    bool good = play(side, rank, count);
    team->seconds[rank] = measure_seconds() - start;
    return good;
}

bool bench_team_play(struct bench_team *team, uint32_t rank, const struct bench_round *round, bench_play_fn play,
                     void *side)
{
    double games[GAMES], total = 0;
    int played = 0;
    int64_t count = bench_round_first(round);
    if (!play_once(team, rank, play, side, count))
        return false;
    count = bench_round_count(round, bench_team_longest(team), count);
    for (; played < GAMES && (played < GAMES_MIN || total < round->round_seconds); played++) {
        if (!play_once(team, rank, play, side, count))
            return false;
        double longest = bench_team_longest(team);
        games[played] = longest / (double)count;
        total += longest;
    }
    team->seconds[rank] = measure_median(games, played);
    return true;
}

/* The rank'th of `count` equal parts of the cores in `all`. False: there are too few. */
static bool share_of(const cpu_set_t *all, uint32_t rank, uint32_t count, cpu_set_t *share)
{
    int each = CPU_COUNT(all) / (int)count, seen = 0;
    CPU_ZERO(share);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all) && seen++ / (each ? each : 1) == (int)rank)
            CPU_SET(cpu, share);
    return each > 0;
}

void bench_team_pin(const struct bench_team *team, uint32_t rank)
{
    cpu_set_t all, share;
    DIR *threads = opendir("/proc/self/task");
    if (threads && !sched_getaffinity(0, sizeof all, &all) && share_of(&all, rank, team->count, &share))
        for (struct dirent *entry; (entry = readdir(threads));)
            if (entry->d_name[0] != '.')
                sched_setaffinity(atoi(entry->d_name), sizeof share, &share);
    if (threads)
        closedir(threads);
}

/* A member: never returns. */
static void member_run(struct bench_team *team, uint32_t rank, bench_member_fn play, void *ctx)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cores_use(); /* the parent's thread may have been bound */
    weir_status status = play(team, rank, ctx);
    if (status && !team->error[0])
        snprintf(team->error, sizeof team->error, "rank %u of a benchmark: %s", rank, options_error("weir bench"));
    _exit(status ? 1 : 0);
}

/* Waits for all; ends all others when one fails. */
static bool members_wait(pid_t *pids, uint32_t count)
{
    bool good = true;
    for (uint32_t ended = 0; ended < count; ended++) {
        int how = 0;
        pid_t pid = wait(&how);
        bool done = pid > 0 && WIFEXITED(how) && WEXITSTATUS(how) == 0;
        for (uint32_t r = 0; r < count; r++) {
            pids[r] = pids[r] == pid ? 0 : pids[r];
            if (!done && good && pids[r] > 0)
                kill(pids[r], SIGKILL);
        }
        good = good && done;
    }
    return good;
}

static weir_status team_play(struct bench_team *team, bench_member_fn play, void *ctx)
{
    pid_t pids[BENCH_TEAM_MAX] = {0};
    uint32_t started = 0;
    fflush(NULL);
    for (; started < team->count; started++) {
        pids[started] = fork();
        if (pids[started] == 0)
            member_run(team, started, play, ctx);
        if (pids[started] < 0)
            break;
    }
    if (started < team->count)
        for (uint32_t r = 0; r < started; r++)
            kill(pids[r], SIGKILL);
    bool good = members_wait(pids, started);
    if (good && started == team->count)
        return WEIR_OK;
    return error_set(WEIR_E_PEER, "%s", team->error[0]           ? team->error
                                        : started < team->count ? "no processes for a benchmark"
                                                                : "a process of a benchmark was ended");
}

weir_status bench_team_run(uint32_t count, bench_member_fn play, void *ctx, double *seconds)
{
    struct bench_team *team = count <= BENCH_TEAM_MAX ? bench_team_memory(sizeof *team) : NULL;
    *seconds = 0;
    if (!team)
        return error_set(WEIR_E_MEMORY, "no memory for a benchmark of %u processes", count);
    team->count = count;
    team->port = free_port();
    weir_status status = team_play(team, play, ctx);
    for (uint32_t r = 0; r < count; r++)
        *seconds = team->seconds[r] > *seconds ? team->seconds[r] : *seconds;
    bench_team_release(team, sizeof *team);
    return status;
}
