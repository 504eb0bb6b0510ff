/* apps/weir/bench/peers/sockets.h: a connection over TCP on loopback between each two members of a team, for what is measured
 * without weir.
 *
 *     bench_sockets_open()     all members together: each listens where the system lets it, and says so to the others
 *                              in the team; those of higher rank come
 *     sockets.fd[r]            to member r; blocks; sends at once what it is given (TCP_NODELAY)
 */
#ifndef APPS_WEIR_BENCH_SOCKETS_H
#define APPS_WEIR_BENCH_SOCKETS_H

#include "apps/weir/bench/peers/team.h"

struct bench_sockets {
    int fd[BENCH_TEAM_MAX]; /* -1: to itself, or nobody */
};

/* False, with errno: they could not be had. To be closed then, too. */
bool bench_sockets_open(struct bench_sockets *sockets, struct bench_team *team, uint32_t rank);
void bench_sockets_close(struct bench_sockets *sockets);

#endif
