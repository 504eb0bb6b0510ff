/* transport/net/measure.c: see the header. The C library's struct tcp_info ends before what is asked for here, so the
 * kernel's is used, which cannot be had in a file that has the other. */
#include "transport/net/measure.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

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
