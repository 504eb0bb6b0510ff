/* transport/line/measure.h: what the system knows of a connection.
 *
 * For a line it tells what TCP has found out while it was used (TCP_INFO, tcp(7)): the least round trip of the last minutes,
 * and how much a second was delivered.
 *
 * The latter is what the link can carry only if there was more to send at the time. A stream with two slots delivers two
 * of them a round trip; that says nothing of the link. TCP tells the two apart, but now and then a burst of the one looks
 * like the other. So what is looked at again and again counts by how it was most of the time.
 *
 * Owner: who has the line.
 */
#ifndef TRANSPORT_LINE_MEASURE_H
#define TRANSPORT_LINE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

struct measure {
    uint32_t round_trip_us;              /* 0: not known yet */
    uint64_t most[2];                    /* bytes a second that were delivered; [1]: when there was more to send */
    uint32_t looks[2];                   /* how often it was so, when anything was delivered */
    uint64_t delivered;                  /* bytes, so far */
};

/* Whether there was more to send most of the time; and the bytes a second that it carries, or carried at most. */
static inline bool measure_full(const struct measure *measure)
{
    return measure->looks[1] > measure->looks[0];
}

static inline uint64_t measure_rate(const struct measure *measure)
{
    bool full = measure_full(measure) || measure->most[1] > measure->most[0];
    return measure->most[full];
}

/* A connection of ZeroMQ's, or a line, that is asked when bytes last passed. ZeroMQ owns the descriptor and may close it,
 * and another connection may get its number: so the address at the other end is remembered. */
struct watched {
    int fd; /* borrowed; -1: nothing is known */
    unsigned char from[28];
};

/* A Unix socket tells nothing: it is never slow. */
void watch_connection(struct watched *watched, int fd);

/* When bytes last came, or were last sent; 0: nothing is known. */
int64_t watched_received_ns(const struct watched *watched, int64_t now);
int64_t watched_sent_ns(const struct watched *watched, int64_t now);

/* Looks once more. Nothing changes when the socket is none of TCP's, or its kernel does not say. */
void measure_look(struct measure *measure, int fd);

#endif
