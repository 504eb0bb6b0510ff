/* apps/weir/bench/peers/raw_zmq.c: ZeroMQ alone, on two PAIR sockets over TCP. See raw.h.
 *
 * Messages refer to the sender's buffer, as weir's do; nobody writes to it once its pages are real. The buffer is
 * malloc()'s: from one that begins a page, there and back took ZeroMQ up to four times as long (1 MiB, a Zen 4), and a
 * plain socket no longer. A stream's high-water marks let about AHEAD_BYTES be under way.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "apps/weir/bench/peers/raw.h"
#include "graph/base/error.h"

#define AHEAD_BYTES (8 << 20)
#define AHEAD_MIN 2
#define AHEAD_MAX 1000

struct pair {
    void *context, *socket;
    char *bytes;
    size_t count;
};

/* The one who connects comes when the other listens: ZeroMQ would try again only after 100 ms. */
static bool pair_meet(struct pair *pair, struct bench_team *team, uint32_t rank)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", team->port);
    if (!rank && zmq_bind(pair->socket, endpoint))
        return false;
    bench_team_barrier(team);
    return !rank || !zmq_connect(pair->socket, endpoint);
}

static bool pair_open(struct pair *pair, struct bench_team *team, uint32_t rank, size_t bytes)
{
    int linger = 0, ahead = (int)(AHEAD_BYTES / bytes);
    ahead = ahead < AHEAD_MIN ? AHEAD_MIN : ahead > AHEAD_MAX ? AHEAD_MAX : ahead;
    pair->context = zmq_ctx_new();
    pair->socket = pair->context ? zmq_socket(pair->context, ZMQ_PAIR) : NULL;
    pair->bytes = malloc(bytes);
    pair->count = bytes;
    if (pair->bytes)
        memset(pair->bytes, 1, bytes);
    return pair->socket && pair->bytes && !zmq_setsockopt(pair->socket, ZMQ_LINGER, &linger, sizeof linger) &&
           !zmq_setsockopt(pair->socket, ZMQ_SNDHWM, &ahead, sizeof ahead) &&
           !zmq_setsockopt(pair->socket, ZMQ_RCVHWM, &ahead, sizeof ahead) &&
           pair_meet(pair, team, rank);
}

static void pair_close(struct pair *pair)
{
    if (pair->socket)
        zmq_close(pair->socket);
    if (pair->context)
        zmq_ctx_term(pair->context);
    free(pair->bytes);
}

static bool pair_send(const struct pair *pair, size_t count)
{
    zmq_msg_t message;
    return !zmq_msg_init_data(&message, pair->bytes, count, NULL, NULL) &&
           zmq_msg_send(&message, pair->socket, 0) >= 0;
}

static bool pair_take(const struct pair *pair)
{
    zmq_msg_t message;
    zmq_msg_init(&message);
    bool good = zmq_msg_recv(&message, pair->socket, 0) >= 0;
    zmq_msg_close(&message);
    return good;
}

static bool play_zmq(void *side, uint32_t rank, int64_t count)
{
    const struct pair *pair = side;
    bool good = true;
    for (int64_t i = 0; i < count && good; i++) {
        if (!rank)
            good = pair_send(pair, pair->count);
        good = good && pair_take(pair);
        if (rank)
            good = good && pair_send(pair, pair->count);
    }
    return good;
}

static bool play_zmq_stream(void *side, uint32_t rank, int64_t count)
{
    const struct pair *pair = side;
    bool good = true;
    for (int64_t i = 0; i < count && good; i++)
        good = rank ? pair_take(pair) : pair_send(pair, pair->count);
    return good && (rank ? pair_send(pair, 1) : pair_take(pair));
}

struct zmq_game {
    struct bench_round round;
    bench_play_fn play;
};

static weir_status member_zmq(struct bench_team *team, uint32_t rank, void *ctx)
{
    const struct zmq_game *game = ctx;
    struct pair pair = {0};
    bool good = pair_open(&pair, team, rank, game->round.bytes) && (bench_team_pin(team, rank), true) &&
                bench_team_play(team, rank, &game->round, game->play, &pair);
    int error = errno;
    bench_team_barrier(team); /* what was sent last has arrived */
    pair_close(&pair);
    return good ? WEIR_OK : error_set(WEIR_E_PEER, "ZeroMQ: %s", zmq_strerror(error));
}

weir_status bench_raw_zmq(const struct bench_round *round, double *seconds)
{
    struct zmq_game game = {.round = *round, .play = play_zmq};
    weir_status status = bench_team_run(2, member_zmq, &game, seconds);
    *seconds /= 2;
    return status;
}

weir_status bench_raw_zmq_stream(const struct bench_round *round, double *seconds)
{
    struct zmq_game game = {.round = *round, .play = play_zmq_stream};
    return bench_team_run(2, member_zmq, &game, seconds);
}
