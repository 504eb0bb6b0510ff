/* graph/time/link.c: see the header. */
#include "graph/time/link.h"

#define PS_MOST (UINT64_MAX >> 8) /* 20 hours: sums of times stay below 2^64 */

const char *const time_carrier_names[TIME_CARRIERS] = {
#define X(name, text) text,
    TIME_CARRIER_LIST(X)
#undef X
};
const char *const time_apart_names[TIME_APARTS] = {"loopback", "hosts"};

uint64_t curve_at(const time_curve *c, uint64_t bytes)
{
    uint32_t i = 1;
    if (!c->count || bytes <= c->bytes[0] || c->count == 1)
        return c->count ? c->ps[0] : 0;
    while (i + 1 < c->count && bytes > c->bytes[i])
        i++;
    const unsigned __int128 rise = (unsigned __int128)(bytes - c->bytes[i - 1]) * (c->ps[i] - c->ps[i - 1]);
    const unsigned __int128 ps = c->ps[i - 1] + rise / (c->bytes[i] - c->bytes[i - 1]);
    return ps < PS_MOST ? (uint64_t)ps : PS_MOST;
}

bool curve_add(time_curve *c, uint64_t bytes, uint64_t ps)
{
    if (c->count == TIME_CURVE_POINTS || (c->count && bytes <= c->bytes[c->count - 1]))
        return false;
    c->bytes[c->count] = bytes;
    c->ps[c->count] = c->count && ps < c->ps[c->count - 1] ? c->ps[c->count - 1] : ps;
    c->count++;
    return true;
}
