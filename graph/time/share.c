/* graph/time/share.c: see the header. */
#include "graph/time/share.h"

#include <string.h>

#define PS_S UINT64_C(1000000000000)

/* a * b / c, at most SHARE_MAX. */
static uint64_t scaled(uint64_t a, uint64_t b, uint64_t c)
{
    const unsigned __int128 all = (unsigned __int128)a * b;
    return all / SHARE_MAX >= c ? SHARE_MAX : (uint64_t)(all / c);
}

void share_settle(share *s, uint64_t now)
{
    const uint64_t passed = now - s->since;
    for (uint32_t i = 0; i < s->count; i++) {
        shared *f = &s->firings[i];
        const uint64_t done = f->pace == SHARE_ONE ? passed : scaled(passed, SHARE_ONE, f->pace);
        f->left -= done < f->left ? done : f->left;
    }
    s->since = now;
}

void share_begin(share *s, uint32_t actor, share_work work)
{
    work.ps = work.ps < SHARE_MAX ? work.ps : SHARE_MAX;
    s->firings[s->count++] = (shared){actor, work, work.ps, SHARE_ONE};
}

bool share_end(share *s, uint32_t *actor)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (!s->firings[i].left) {
            *actor = s->firings[i].actor;
            memmove(&s->firings[i], &s->firings[i + 1], (--s->count - i) * sizeof *s->firings);
            return true;
        }
    return false;
}

/* SHARE_ONEths of the memory's bandwidth that it takes while it goes on alone. */
static uint64_t stream_of(const share *s, const share_work *w)
{
    const uint64_t bytes_s = w->ps && s->host.bytes_s ? scaled(w->bytes, PS_S, w->ps) : 0;
    return bytes_s < s->host.bytes_s ? scaled(bytes_s, SHARE_ONE, s->host.bytes_s) : s->host.bytes_s ? SHARE_ONE : 0;
}

static bool crowded(const share *s)
{
    return s->count > s->host.cores;
}

/* SHARE_ONEths of the bandwidth that others take, whose streams add up to `streams`. */
static uint64_t streams_beside(const share *s, uint64_t streams)
{
    const uint64_t runs = crowded(s) ? scaled(streams, s->host.cores, s->count) : streams;
    return runs < SHARE_ONE ? runs : SHARE_ONE;
}

/* SHARE_ONEths of the other cores that are busy. */
static uint64_t busy_beside(const share *s)
{
    return s->count >= s->host.cores ? SHARE_ONE : scaled(s->count - 1, SHARE_ONE, s->host.cores - 1);
}

static uint64_t pace_of(const share *s, const share_work *w, uint64_t streams)
{
    uint64_t pace = SHARE_ONE;
    if (w->stream_ps && w->ps)
        pace += scaled(w->stream_ps, streams_beside(s, streams - stream_of(s, w)), w->ps);
    if (w->busy_ps && w->ps && s->host.cores > 1)
        pace += scaled(w->busy_ps, busy_beside(s), w->ps);
    return crowded(s) ? scaled(pace, s->count, s->host.cores) : pace;
}

/* How long the rest takes at that pace, rounded up. */
static uint64_t rest_of(const shared *f)
{
    const unsigned __int128 rest = ((unsigned __int128)f->left * f->pace + SHARE_ONE - 1) / SHARE_ONE;
    return rest < SHARE_MAX ? (uint64_t)rest : SHARE_MAX;
}

uint64_t share_pace(share *s)
{
    uint64_t streams = 0, first = UINT64_MAX;
    for (uint32_t i = 0; i < s->count; i++)
        streams += stream_of(s, &s->firings[i].work);
    for (uint32_t i = 0; i < s->count; i++) {
        shared *f = &s->firings[i];
        f->pace = pace_of(s, &f->work, streams);
        const uint64_t end = s->since + (f->pace == SHARE_ONE ? f->left : rest_of(f));
        first = end < first ? end : first;
    }
    return first;
}
