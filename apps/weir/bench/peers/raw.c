/* apps/weir/bench/peers/raw.c: see the header. */
#define _GNU_SOURCE
#include "apps/weir/bench/peers/raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "apps/weir/bench/peers/sockets.h"
#include "graph/base/error.h"

struct game {
    struct bench_round round;
    void *memory; /* shared */
};

/* ---- shared memory ---- */

struct words {
    _Alignas(64) _Atomic uint64_t there;
    _Alignas(64) _Atomic uint64_t back;
};

static bool play_ring(void *side, uint32_t rank, int64_t count)
{
    struct words *words = side;
    _Atomic uint64_t *mine = rank ? &words->back : &words->there, *other = rank ? &words->there : &words->back;
    uint32_t turns = 0;
    uint64_t at = atomic_load_explicit(mine, memory_order_relaxed); /* own word */
    for (int64_t i = 0; i < count; i++) {
        if (!rank)
            atomic_store_explicit(mine, ++at, memory_order_release); /* pairs with the load below */
        /* acquire: pairs with the store of the other side */
        while (atomic_load_explicit(other, memory_order_acquire) != at + rank)
            bench_team_pause(&turns);
        if (rank)
            atomic_store_explicit(mine, ++at, memory_order_release); /* pairs with the load above */
    }
    return true;
}

static weir_status member_ring(struct bench_team *team, uint32_t rank, void *ctx)
{
    struct game *game = ctx;
    bench_team_pin(team, rank);
    bench_team_play(team, rank, &game->round, play_ring, game->memory);
    team->seconds[rank] /= 2;
    return WEIR_OK;
}

struct copy {
    const void *from;
    void *to;
    size_t bytes;
};

static bool play_copy(void *side, uint32_t rank, int64_t count)
{
    struct copy *copy = side;
    for (int64_t i = 0; rank && i < count; i++) {
        memcpy(copy->to, copy->from, copy->bytes);
        __asm__ volatile("" ::"r"(copy->to) : "memory"); /* each copy counts */
    }
    return true;
}

static weir_status member_copy(struct bench_team *team, uint32_t rank, void *ctx)
{
    struct game *game = ctx;
    struct copy copy = {.from = game->memory, .to = malloc(game->round.bytes), .bytes = game->round.bytes};
    if (!copy.to)
        return error_set(WEIR_E_MEMORY, "no memory for %zu bytes", copy.bytes);
    bench_team_pin(team, rank);
    memset(rank ? copy.to : game->memory, 1, copy.bytes);
    bench_team_play(team, rank, &game->round, play_copy, &copy);
    free(copy.to);
    return WEIR_OK;
}

static weir_status run_shared(const struct bench_round *round, size_t bytes, bench_member_fn member, double *seconds)
{
    struct game game = {.round = *round, .memory = bench_team_memory(bytes)};
    weir_status status = game.memory ? bench_team_run(2, member, &game, seconds)
                                     : error_set(WEIR_E_MEMORY, "no memory for %zu bytes", bytes);
    bench_team_release(game.memory, bytes);
    return status;
}

weir_status bench_raw_ring(const struct bench_round *round, double *seconds)
{
    struct bench_round words = {.bytes = sizeof(struct words), .round_seconds = round->round_seconds};
    return run_shared(&words, sizeof(struct words), member_ring, seconds);
}

weir_status bench_raw_copy(const struct bench_round *round, double *seconds)
{
    return run_shared(round, round->bytes, member_copy, seconds);
}

/* ---- TCP ---- */

/* The bytes lie as a register's slot does, and what comes is taken where it is to lie. */
struct line {
    int fd;
    int how; /* MSG_DONTWAIT: asks again and again, and sleeps never; 0: the system wakes it */
    char *bytes;
    size_t count;
};

/* Whether a call that did nothing is to be made again. */
static bool line_again(uint32_t *turns)
{
    bool again = errno == EAGAIN || errno == EINTR;
    if (again)
        bench_team_pause(turns);
    return again;
}

static bool line_send(const struct line *line, size_t count)
{
    uint32_t turns = 0;
    for (size_t done = 0; done < count;) {
        ssize_t sent = send(line->fd, line->bytes + done, count - done, MSG_NOSIGNAL | line->how);
        if (sent < 0 && !line_again(&turns))
            return false;
        done += sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool line_take(const struct line *line, size_t count)
{
    uint32_t turns = 0;
    for (size_t done = 0; done < count;) {
        ssize_t came = recv(line->fd, line->bytes + done, count - done, line->how);
        if (came == 0 || (came < 0 && !line_again(&turns)))
            return false;
        done += came > 0 ? (size_t)came : 0;
    }
    return true;
}

static bool play_rally(void *side, uint32_t rank, int64_t count)
{
    const struct line *line = side;
    bool good = true;
    for (int64_t i = 0; i < count && good; i++) {
        if (!rank)
            good = line_send(line, line->count);
        good = good && line_take(line, line->count);
        if (rank)
            good = good && line_send(line, line->count);
    }
    return good;
}

static bool play_stream(void *side, uint32_t rank, int64_t count)
{
    const struct line *line = side;
    bool good = true;
    for (int64_t i = 0; i < count && good; i++)
        good = rank ? line_take(line, line->count) : line_send(line, line->count);
    return good && (rank ? line_send(line, 1) : line_take(line, 1));
}

struct line_game {
    struct bench_round round;
    bench_play_fn play;
    int how;
};

static weir_status member_line(struct bench_team *team, uint32_t rank, void *ctx)
{
    const struct line_game *game = ctx;
    struct bench_sockets sockets;
    struct line line = {.how = game->how, .bytes = bench_team_own(game->round.bytes), .count = game->round.bytes};
    bool good = bench_sockets_open(&sockets, team, rank) && line.bytes;
    line.fd = sockets.fd[!rank];
    bench_team_pin(team, rank);
    good = good && bench_team_play(team, rank, &game->round, game->play, &line);
    int error = errno;
    bench_team_release(line.bytes, line.count);
    bench_sockets_close(&sockets);
    return good ? WEIR_OK : error_set(WEIR_E_PEER, "a socket failed: %s", strerror(error));
}

static weir_status run_line(const struct bench_round *round, bench_play_fn play, int how, double *seconds)
{
    struct line_game game = {.round = *round, .play = play, .how = how};
    weir_status status = bench_team_run(2, member_line, &game, seconds);
    *seconds /= play == play_rally ? 2 : 1;
    return status;
}

weir_status bench_raw_socket(const struct bench_round *round, double *seconds)
{
    return run_line(round, play_rally, 0, seconds);
}

weir_status bench_raw_spin(const struct bench_round *round, double *seconds)
{
    return run_line(round, play_rally, MSG_DONTWAIT, seconds);
}

weir_status bench_raw_socket_stream(const struct bench_round *round, double *seconds)
{
    return run_line(round, play_stream, 0, seconds);
}

weir_status bench_raw_spin_stream(const struct bench_round *round, double *seconds)
{
    return run_line(round, play_stream, MSG_DONTWAIT, seconds);
}
