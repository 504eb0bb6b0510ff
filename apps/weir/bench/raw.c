/* apps/weir/bench/raw.c: see the header. */
#define _GNU_SOURCE
#include "apps/weir/bench/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "graph/base/error.h"

#define CONNECT_TRIES 20000

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

struct line {
    int fd;
    char *bytes;
    size_t count;
};

/* Rank 0 listens, rank 1 comes. -1: neither came to be. */
static int line_open(struct bench_team *team, uint32_t rank)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(team->port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), line;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!rank) {
        bool good = !bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 1);
        line = good ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        close(fd);
    } else {
        int tries = 0;
        while (connect(fd, (struct sockaddr *)&address, sizeof address) && ++tries < CONNECT_TRIES)
            usleep(500);
        line = tries < CONNECT_TRIES ? fd : -1;
    }
    if (line >= 0)
        setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return line;
}

static bool line_send(const struct line *line, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t sent = send(line->fd, line->bytes + done, count - done, MSG_NOSIGNAL);
        if (sent < 0)
            return false;
        done += (size_t)sent;
    }
    return true;
}

static bool line_take(const struct line *line, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t came = recv(line->fd, line->bytes + done, count - done, 0);
        if (came <= 0)
            return false;
        done += (size_t)came;
    }
    return true;
}

static bool play_socket(void *side, uint32_t rank, int64_t count)
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

static bool play_socket_stream(void *side, uint32_t rank, int64_t count)
{
    const struct line *line = side;
    bool good = true;
    for (int64_t i = 0; i < count && good; i++)
        good = rank ? line_take(line, line->count) : line_send(line, line->count);
    return good && (rank ? line_send(line, 1) : line_take(line, 1));
}

static weir_status member_line(struct bench_team *team, uint32_t rank, const struct game *game, bench_play_fn play)
{
    struct line line = {.fd = line_open(team, rank), .bytes = calloc(1, game->round.bytes), .count = game->round.bytes};
    bool good = line.fd >= 0 && line.bytes;
    bench_team_pin(team, rank);
    good = good && bench_team_play(team, rank, &game->round, play, &line);
    free(line.bytes);
    if (line.fd >= 0)
        close(line.fd);
    return good ? WEIR_OK : error_set(WEIR_E_PEER, "a socket failed: %s", strerror(errno));
}

static weir_status member_socket(struct bench_team *team, uint32_t rank, void *ctx)
{
    weir_status status = member_line(team, rank, ctx, play_socket);
    team->seconds[rank] /= 2;
    return status;
}

static weir_status member_socket_stream(struct bench_team *team, uint32_t rank, void *ctx)
{
    return member_line(team, rank, ctx, play_socket_stream);
}

weir_status bench_raw_socket(const struct bench_round *round, double *seconds)
{
    struct game game = {.round = *round};
    return bench_team_run(2, member_socket, &game, seconds);
}

weir_status bench_raw_socket_stream(const struct bench_round *round, double *seconds)
{
    struct game game = {.round = *round};
    return bench_team_run(2, member_socket_stream, &game, seconds);
}
