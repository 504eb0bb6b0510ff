/* apps/weir/bench/peers/allreduce_bare.c: over sockets a process asks all of them in turn, for what may be sent and what has
 * come, so that no two wait for each other with full buffers. Where each has a core it goes on asking: of 4 bytes, two
 * took 8 us so, and 40 where they slept. Else it sleeps until there is something: four on two cores took 75 us so, and
 * more than a millisecond where they did not. Pieces of 64 KiB to 1 MiB a call were not faster than all that a socket
 * takes.
 */
#include "apps/weir/bench/peers/allreduce_bare.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "apps/weir/bench/peers/sockets.h"
#include "graph/base/error.h"
#include "transport/mail/cores.h"

/* Where the part of a rank begins. */
static size_t part_first(size_t elements, uint32_t rank, uint32_t ranks)
{
    return elements * rank / ranks;
}

static size_t part_count(size_t elements, uint32_t rank, uint32_t ranks)
{
    return part_first(elements, rank + 1, ranks) - part_first(elements, rank, ranks);
}

static void bare_add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* The first sum is written, the others are added. */
static void bare_sum(float *restrict to, const float *restrict a, const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = a[i] + b[i];
}

static void fill_terms(float *in, size_t elements)
{
    for (size_t i = 0; i < elements; i++)
        in[i] = bench_term((int64_t)i);
}

static weir_status check_sums(const float *out, size_t elements, uint32_t ranks)
{
    for (size_t i = 0; i < elements; i++)
        if (out[i] != (float)ranks * bench_term((int64_t)i))
            return error_set(WEIR_E_STATE, "element %zu of the bare loop's sum is %g", i, (double)out[i]);
    return WEIR_OK;
}

/* ---- shared memory ---- */

/* All inputs, then all outputs. */
struct shm {
    struct bench_round round;
    struct bench_team *team;
    float *memory; /* shared */
};

static float *shm_part(const struct shm *shm, uint32_t array, size_t element)
{
    return shm->memory + array * (shm->round.bytes / 4) + element;
}

static bool play_shm(void *side, uint32_t rank, int64_t count)
{
    const struct shm *shm = side;
    uint32_t ranks = shm->team->count;
    size_t elements = shm->round.bytes / 4;
    for (int64_t i = 0; i < count; i++) {
        size_t first = part_first(elements, rank, ranks), own_count = part_count(elements, rank, ranks);
        bench_team_barrier(shm->team);
        float *own = shm_part(shm, ranks + rank, first);
        bare_sum(own, shm_part(shm, 0, first), shm_part(shm, 1, first), own_count);
        for (uint32_t r = 2; r < ranks; r++)
            bare_add(own, shm_part(shm, r, first), own_count);
        bench_team_barrier(shm->team);
        for (uint32_t r = 0; r < ranks; r++) {
            first = part_first(elements, r, ranks);
            if (r != rank)
                memcpy(shm_part(shm, ranks + rank, first), shm_part(shm, ranks + r, first),
                       part_count(elements, r, ranks) * 4);
        }
    }
    return true;
}

static weir_status member_shm(struct bench_team *team, uint32_t rank, void *ctx)
{
    struct shm shm = *(struct shm *)ctx;
    size_t elements = shm.round.bytes / 4;
    shm.team = team;
    bench_team_pin(team, rank);
    fill_terms(shm_part(&shm, rank, 0), elements);
    bench_team_play(team, rank, &shm.round, play_shm, &shm);
    return check_sums(shm_part(&shm, team->count + rank, 0), elements, team->count);
}

weir_status bench_bare_shm(const struct bench_round *round, double *seconds)
{
    size_t bytes = 2 * round->ranks * round->bytes;
    struct shm shm = {.round = *round, .memory = bench_team_memory(bytes)};
    weir_status status = shm.memory ? bench_team_run(round->ranks, member_shm, &shm, seconds)
                                    : error_set(WEIR_E_MEMORY, "no memory for %zu bytes", bytes);
    bench_team_release(shm.memory, bytes);
    return status;
}

/* ---- sockets ---- */

struct tcp {
    struct bench_sockets sockets;
    uint32_t ranks;
    bool spins;
    size_t elements;
    float *in, *out, *came; /* owned. came: the others' terms of the own part, a rank's behind the other's */
};

/* The bytes that are still to go to a peer and to come from it. */
struct flow {
    const char *from;
    char *to;
    size_t send, take;
};

static bool nothing_yet(void)
{
    return errno == EAGAIN || errno == EINTR;
}

static bool flow_send(struct flow *flow, int fd, bool *moved)
{
    ssize_t sent = send(fd, flow->from, flow->send, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        return nothing_yet();
    flow->from += sent;
    flow->send -= (size_t)sent;
    *moved = true;
    return true;
}

static bool flow_take(struct flow *flow, int fd, bool *moved)
{
    ssize_t came = recv(fd, flow->to, flow->take, MSG_DONTWAIT);
    if (came <= 0)
        return came < 0 && nothing_yet();
    flow->to += came;
    flow->take -= (size_t)came;
    *moved = true;
    return true;
}

/* Once to each peer; `left`: there is more to do. */
static bool flows_turn(const struct tcp *tcp, struct flow *flows, bool *moved, bool *left)
{
    bool good = true;
    for (uint32_t r = 0; r < tcp->ranks && good; r++) {
        struct flow *flow = &flows[r];
        good = !flow->send || flow_send(flow, tcp->sockets.fd[r], moved);
        good = good && (!flow->take || flow_take(flow, tcp->sockets.fd[r], moved));
        *left = *left || flow->send || flow->take;
    }
    return good;
}

static bool flows_wait(const struct tcp *tcp, const struct flow *flows)
{
    struct pollfd polls[BENCH_TEAM_MAX];
    nfds_t count = 0;
    for (uint32_t r = 0; r < tcp->ranks; r++)
        if (flows[r].send || flows[r].take)
            polls[count++] = (struct pollfd){
                tcp->sockets.fd[r], (short)((flows[r].send ? POLLOUT : 0) | (flows[r].take ? POLLIN : 0)), 0};
    return poll(polls, count, -1) >= 0 || errno == EINTR;
}

static bool exchange(const struct tcp *tcp, struct flow *flows)
{
    uint32_t turns = 0;
    for (bool left = true, good = true; left;) {
        bool moved = left = false;
        good = flows_turn(tcp, flows, &moved, &left);
        if (good && left && !moved && tcp->spins)
            bench_team_pause(&turns);
        else if (good && left && !moved)
            good = flows_wait(tcp, flows);
        if (!good)
            return false;
    }
    return true;
}

/* Every other's part of the terms there, the own part's from there. */
static bool terms_scatter(const struct tcp *tcp, uint32_t rank)
{
    struct flow flows[BENCH_TEAM_MAX] = {0};
    size_t own_bytes = part_count(tcp->elements, rank, tcp->ranks) * 4;
    char *to = (char *)tcp->came;
    for (uint32_t r = 0; r < tcp->ranks; r++)
        if (r != rank) {
            flows[r] = (struct flow){(const char *)(tcp->in + part_first(tcp->elements, r, tcp->ranks)), to,
                                     part_count(tcp->elements, r, tcp->ranks) * 4, own_bytes};
            to += own_bytes;
        }
    return exchange(tcp, flows);
}

static bool sums_gather(const struct tcp *tcp, uint32_t rank)
{
    struct flow flows[BENCH_TEAM_MAX] = {0};
    const char *own = (const char *)(tcp->out + part_first(tcp->elements, rank, tcp->ranks));
    for (uint32_t r = 0; r < tcp->ranks; r++)
        if (r != rank)
            flows[r] = (struct flow){own, (char *)(tcp->out + part_first(tcp->elements, r, tcp->ranks)),
                                     part_count(tcp->elements, rank, tcp->ranks) * 4,
                                     part_count(tcp->elements, r, tcp->ranks) * 4};
    return exchange(tcp, flows);
}

static bool play_tcp(void *side, uint32_t rank, int64_t count)
{
    const struct tcp *tcp = side;
    size_t first = part_first(tcp->elements, rank, tcp->ranks), own = part_count(tcp->elements, rank, tcp->ranks);
    for (int64_t i = 0; i < count; i++) {
        if (!terms_scatter(tcp, rank))
            return false;
        bare_sum(tcp->out + first, tcp->in + first, tcp->came, own);
        for (uint32_t r = 2; r < tcp->ranks; r++)
            bare_add(tcp->out + first, tcp->came + (r - 1) * own, own);
        if (!sums_gather(tcp, rank))
            return false;
    }
    return true;
}

static weir_status tcp_play(struct tcp *tcp, struct bench_team *team, uint32_t rank, const struct bench_round *round)
{
    bool good = bench_sockets_open(&tcp->sockets, team, rank) && bench_team_play(team, rank, round, play_tcp, tcp);
    weir_status status = good ? check_sums(tcp->out, tcp->elements, team->count)
                              : error_set(WEIR_E_PEER, "a socket failed: %s", strerror(errno));
    bench_sockets_close(&tcp->sockets);
    return status;
}

static weir_status member_tcp(struct bench_team *team, uint32_t rank, void *ctx)
{
    const struct bench_round *round = ctx;
    size_t elements = round->bytes / 4;
    size_t came_bytes = (part_count(elements, rank, team->count) * (team->count - 1) + 1) * 4; /* never 0 */
    bench_team_pin(team, rank);
    struct tcp tcp = {.ranks = team->count, .spins = cores_count() >= (int)team->count, .elements = elements,
                      .in = bench_team_own(round->bytes), .out = bench_team_own(round->bytes),
                      .came = bench_team_own(came_bytes)};
    weir_status status = WEIR_E_MEMORY;
    if (tcp.in && tcp.out && tcp.came) {
        fill_terms(tcp.in, elements);
        status = tcp_play(&tcp, team, rank, round);
    } else {
        error_set(status, "no memory for sums of %zu bytes", round->bytes);
    }
    bench_team_release(tcp.in, round->bytes);
    bench_team_release(tcp.out, round->bytes);
    bench_team_release(tcp.came, came_bytes);
    return status;
}

weir_status bench_bare_tcp(const struct bench_round *round, double *seconds)
{
    return bench_team_run(round->ranks, member_tcp, (void *)round, seconds);
}
