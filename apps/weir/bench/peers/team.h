/* apps/weir/bench/peers/team.h: a few processes that measure something together.
 *
 *     parent: bench_team_run(2, play, &game, &seconds)      forks the members, waits for all, takes the longest time
 *     member: play(team, rank, &game): set up; bench_team_pin(); bench_team_barrier(); work;
 *             team->seconds[rank] = what it took
 *
 * Members are forks of the caller, so they see what it had prepared, each a copy of its own; what they share is the
 * team and whatever lies in memory that was mapped shared before. A member that fails ends the others. None outlives the
 * caller. The caller should have no threads that hold locks.
 */
#ifndef APPS_WEIR_BENCH_TEAM_H
#define APPS_WEIR_BENCH_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#define BENCH_TEAM_MAX 64

struct bench_team {
    _Alignas(64) _Atomic uint32_t arrived; /* at the barrier, since the first one */
    _Alignas(64) uint32_t count;
    uint16_t port;                         /* nobody listens there */
    uint16_t ports[BENCH_TEAM_MAX];        /* where each member listens: sockets.h */
    double seconds[BENCH_TEAM_MAX];        /* each member's result */
    char error[512];                       /* of the first that failed */
};

typedef weir_status (*bench_member_fn)(struct bench_team *team, uint32_t rank, void *ctx);

/* `seconds`: the longest of the members'. */
weir_status bench_team_run(uint32_t count, bench_member_fn play, void *ctx, double *seconds);

/* Waits, spinning, until all members are here. */
void bench_team_barrier(struct bench_team *team);

/* The longest of the members' results so far, the same for all of them: waits for all to be here, twice. */
double bench_team_longest(struct bench_team *team);

/* Gives this member's threads, as many as it has by now, a share of the cores of their own; does nothing when there are
 * fewer cores than members. */
void bench_team_pin(const struct bench_team *team, uint32_t rank);

/* One turn of a spin loop; gives the core away now and then, as there may be fewer cores than members. */
void bench_team_pause(uint32_t *turns);

/* The measure that is repeated: hand-offs of so many bytes, for about so long. */
struct bench_round {
    uint32_t ranks; /* among so many, where that is no part of what is measured */
    size_t bytes;
    double round_seconds;
};

/* Does a member's part of `count` of them; false: it failed. */
typedef bool (*bench_play_fn)(void *side, uint32_t rank, int64_t count);

/* Plays a game of a few hand-offs, whose time says how many those may have that count: some tens of short ones, since a
 * member that loses its core for a moment then spoils one of them. Leaves the median of seconds per hand-off, of which
 * each is the slowest member's, in team->seconds[rank]. All members call it together. */
bool bench_team_play(struct bench_team *team, uint32_t rank, const struct bench_round *round, bench_play_fn play,
                     void *side);

/* How many hand-offs fit into a game when `count` took `seconds`; and how many to begin with, to find that out. */
int64_t bench_round_count(const struct bench_round *round, double seconds, int64_t count);
int64_t bench_round_first(const struct bench_round *round);

/* Memory that the members will see, zeroed; NULL when there is none. */
void *bench_team_memory(size_t bytes);

/* Memory of a member's own, zeroed, as a session's arenas are: the pages are real, and large ones where it is large. With
 * calloc()'s the system would send the one page of zeros over and over. */
void *bench_team_own(size_t bytes);
void bench_team_release(void *memory, size_t bytes);

#endif
