/* apps/weir/bench/peers/sockets.c: see the header. All listen before one connects: nobody has to try again. */
#define _GNU_SOURCE
#include "apps/weir/bench/peers/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
}

/* -1: it could not be had. */
static int listener_open(uint16_t *port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, BENCH_TEAM_MAX) ||
        getsockname(fd, (struct sockaddr *)&address, &bytes)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

/* A member that connects says which one it is. */
static bool go_to(struct bench_sockets *sockets, const struct bench_team *team, uint32_t other, uint32_t rank)
{
    struct sockaddr_in address = loopback(team->ports[other]);
    int fd = sockets->fd[other] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address) &&
           send(fd, &rank, sizeof rank, MSG_NOSIGNAL) == sizeof rank;
}

static bool let_in(struct bench_sockets *sockets, const struct bench_team *team, int listener)
{
    uint32_t other = 0;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return false;
    if (recv(fd, &other, sizeof other, MSG_WAITALL) != sizeof other || other >= team->count ||
        sockets->fd[other] >= 0) {
        close(fd);
        errno = EPROTO;
        return false;
    }
    sockets->fd[other] = fd;
    return true;
}

static bool at_once(const struct bench_sockets *sockets, const struct bench_team *team)
{
    bool good = true;
    int one = 1;
    for (uint32_t r = 0; r < team->count && good; r++)
        good = sockets->fd[r] < 0 || !setsockopt(sockets->fd[r], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return good;
}

bool bench_sockets_open(struct bench_sockets *sockets, struct bench_team *team, uint32_t rank)
{
    for (uint32_t r = 0; r < BENCH_TEAM_MAX; r++)
        sockets->fd[r] = -1;
    int listener = listener_open(&team->ports[rank]);
    if (listener < 0)
        return false;
    bench_team_barrier(team);
    bool good = true;
    for (uint32_t r = 0; r < rank && good; r++)
        good = go_to(sockets, team, r, rank);
    for (uint32_t r = rank + 1; r < team->count && good; r++)
        good = let_in(sockets, team, listener);
    close(listener);
    return good && at_once(sockets, team);
}

void bench_sockets_close(struct bench_sockets *sockets)
{
    for (uint32_t r = 0; r < BENCH_TEAM_MAX; r++)
        if (sockets->fd[r] >= 0)
            close(sockets->fd[r]);
}
