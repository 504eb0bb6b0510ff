/* graph/time/link.h: how long values take over a link, as it was measured.
 *
 *     once      from the end of the producer's firing to the reader's, on a line on which nothing else is
 *     stream    from the arrival of a value to that of the next, if there is always another one to send: so long each occupies the line
 *     sends     the processor's time that it costs the sending rank
 *     receives  and the receiving one
 *
 * Each is a curve that is known for a few sizes. Between two sizes the time is on a straight line; below the first it is the first's;
 * beyond the last the line of the last two goes on.
 */
#ifndef GRAPH_TIME_LINK_H
#define GRAPH_TIME_LINK_H

#include <stdbool.h>
#include <stdint.h>

enum { TIME_CURVE_POINTS = 8 };

typedef struct time_curve {
    uint32_t count;
    uint64_t bytes[TIME_CURVE_POINTS], ps[TIME_CURVE_POINTS]; /* bytes rise; ps do not fall */
} time_curve;

typedef struct time_link {
    time_curve once, stream, sends, receives; /* of no points: the link was not measured */
} time_link;

/* Carriers of values between ranks that share no memory. "tcp", "tcp+key", ... */
#define TIME_CARRIER_LIST(X) \
    X(TCP, "tcp")            \
    X(TCP_KEY, "tcp+key")    \
    X(UCX, "ucx")            \
    X(UCX_KEY, "ucx+key")
typedef enum time_carrier {
#define X(name, text) TIME_##name,
    TIME_CARRIER_LIST(X)
#undef X
        TIME_CARRIERS
} time_carrier;

/* Where the two ranks are: on one host, or each on its own. */
typedef enum time_apart { TIME_LOOPBACK, TIME_HOSTS, TIME_APARTS } time_apart;

extern const char *const time_carrier_names[TIME_CARRIERS];
extern const char *const time_apart_names[TIME_APARTS];

/* Picoseconds of a value of so many bytes; 0 on a curve without points. */
uint64_t curve_at(const time_curve *curve, uint64_t bytes);

/* Adds a point behind the others. A time below that of the last point, as noise may have it, becomes that. False: there is no room, or the
 * size is not larger. */
bool curve_add(time_curve *curve, uint64_t bytes, uint64_t ps);

#endif
