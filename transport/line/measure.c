/* transport/line/measure.c: see the header. The C library's struct tcp_info ends before what is asked for here, so the
 * kernel's is used, which cannot be had in a file that has the other. */
#include "transport/line/measure.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#define NS_PER_MS 1000000

static bool address_of(int fd, unsigned char address[28])
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);
    memset(&from, 0, sizeof(from));
    if (getpeername(fd, (struct sockaddr *)&from, &bytes) ||
        (from.ss_family != AF_INET && from.ss_family != AF_INET6))
        return false;
    memcpy(address, &from, 28); /* of a sockaddr_in6 all, of a sockaddr_in more than all */
    return true;
}

void watch_connection(struct watched *watched, int fd)
{
    watched->fd = fd >= 0 && address_of(fd, watched->from) ? fd : -1;
}

/* A descriptor that has become another connection's has another address at its other end. */
static bool watched_info(const struct watched *watched, struct tcp_info *info)
{
    socklen_t bytes = sizeof(*info);
    unsigned char from[28];
    return watched->fd >= 0 && address_of(watched->fd, from) && !memcmp(from, watched->from, sizeof(from)) &&
           !getsockopt(watched->fd, IPPROTO_TCP, TCP_INFO, info, &bytes);
}

int64_t watched_received_ns(const struct watched *watched, int64_t now)
{
    struct tcp_info info;
    return watched_info(watched, &info) ? now - (int64_t)info.tcpi_last_data_recv * NS_PER_MS : 0;
}

int64_t watched_sent_ns(const struct watched *watched, int64_t now)
{
    struct tcp_info info;
    return watched_info(watched, &info) ? now - (int64_t)info.tcpi_last_data_sent * NS_PER_MS : 0;
}

void measure_look(struct measure *measure, int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) ||
        bytes < offsetof(struct tcp_info, tcpi_delivery_rate) + sizeof(info.tcpi_delivery_rate))
        return;
    if (info.tcpi_min_rtt && info.tcpi_min_rtt < UINT32_MAX)
        measure->round_trip_us = info.tcpi_min_rtt;
    bool full = !info.tcpi_delivery_rate_app_limited;
    measure->looks[full] += info.tcpi_bytes_acked != measure->delivered;
    measure->delivered = info.tcpi_bytes_acked;
    if (info.tcpi_delivery_rate > measure->most[full])
        measure->most[full] = info.tcpi_delivery_rate;
}
