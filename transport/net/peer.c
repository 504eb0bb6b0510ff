/* transport/net/peer.c: see the header. */
#define _GNU_SOURCE
#include "transport/net/peer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/plan/spread/spread.h"
#include "graph/plan/form/text.h"

#define NS_PER_S 1000000000
#define CUT_NS 300000000      /* a BYE may be on its way on another connection when one ends */
#define BACKLOG_NS 1200000000 /* the same when there is more to read */

/* ---- neighbours ---- */

/* A rank that reads a register of another, in shared memory or not. */
static void edges_find(struct peers *peers, const weir_plan *plan)
{
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        uint32_t from = plan->spaces[plan->regsts[plan->ports[p].regst.i].space.i].rank;
        uint32_t to = plan_rank_of(plan, plan->ports[p].actor.i);
        uint32_t other = from == peers->me ? to : to == peers->me ? from : peers->me;
        if (other != peers->me && other < peers->count)
            peers->of[other].edge = true;
    }
}

static void neighbours_list(struct peers *peers)
{
    for (uint32_t r = 0; r < peers->count; r++) {
        struct peer *peer = &peers->of[r];
        peer->neighbour = r != peers->me && (peer->edge || r == 0 || peers->me == 0);
        if (peer->neighbour)
            peers->neighbours[peers->neighbours_count++] = r;
    }
}

weir_status peers_open(struct peers *peers, const struct peers_opts *opts)
{
    uint32_t count = opts->count;
    *peers = (struct peers){
        .count = count, .me = opts->me, .liveness_ns = opts->liveness_ns, .lost = opts->lost, .ctx = opts->ctx};
    pthread_mutex_init(&peers->lock, NULL);
    peers->of = calloc(count, sizeof(*peers->of));
    peers->neighbours = calloc(count, sizeof(*peers->neighbours));
    peers->cut = calloc(count, sizeof(*peers->cut));
    if (!peers->of || !peers->neighbours || !peers->cut)
        return error_set(WEIR_E_MEMORY, "no memory for %u ranks", count);
    for (uint32_t r = 0; r < count; r++) {
        peers->of[r].life.actor = UINT32_MAX;
        for (int c = 0; c < CHANNELS; c++)
            peers->of[r].line[c].incoming.fd = -1;
    }
    edges_find(peers, opts->plan);
    neighbours_list(peers);
    return WEIR_OK;
}

void peers_close(struct peers *peers)
{
    if (peers->of)
        explicit_bzero(peers->of, peers->count * sizeof(*peers->of)); /* secrets */
    free(peers->of);
    free(peers->neighbours);
    free(peers->cut);
    pthread_mutex_destroy(&peers->lock);
}

/* ---- states ---- */

/* By state and event; `leaving` makes LEFT of the end of a connection. */
static const uint8_t next_state[PEER_STATES][PEER_EVENTS] = {
    [PEER_ABSENT] = {[PEER_SAYS_HELLO] = PEER_HERE, [PEER_SAYS_BYE] = PEER_PARTING, [PEER_ANSWERS_BYE] = PEER_LEFT,
                     [PEER_WORD_GONE] = PEER_ABSENT, [PEER_CUT] = PEER_ABSENT, [PEER_FAULT] = PEER_LOST},
    [PEER_HERE] = {[PEER_SAYS_HELLO] = PEER_HERE, [PEER_SAYS_BYE] = PEER_PARTING, [PEER_ANSWERS_BYE] = PEER_LEFT,
                   [PEER_WORD_GONE] = PEER_HERE, [PEER_CUT] = PEER_HERE, [PEER_FAULT] = PEER_LOST},
    [PEER_PARTING] = {[PEER_SAYS_HELLO] = PEER_PARTING, [PEER_SAYS_BYE] = PEER_PARTING,
                      [PEER_ANSWERS_BYE] = PEER_PARTING, [PEER_WORD_GONE] = PEER_LEFT, [PEER_CUT] = PEER_LEFT,
                      [PEER_FAULT] = PEER_LEFT},
    [PEER_LEFT] = {PEER_LEFT, PEER_LEFT, PEER_LEFT, PEER_LEFT, PEER_LEFT, PEER_LEFT},
    [PEER_LOST] = {PEER_LOST, PEER_LOST, PEER_LOST, PEER_LOST, PEER_LOST, PEER_LOST},
};

/* A rank that leaves waits for it. */
static bool is_awaited(const struct peer *peer)
{
    return peer_is(peer, PEER_PARTING) ||
           (peer_is_open(peer) && peer->word_said && !peer->cut_ns && (peer->neighbour || !peer->word_gone));
}

static void cut_remove(struct peers *peers, uint32_t rank)
{
    uint32_t i = 0;
    while (i < peers->cut_count && peers->cut[i] != rank)
        i++;
    if (i < peers->cut_count)
        peers->cut[i] = peers->cut[--peers->cut_count];
}

static void cut_add(struct peers *peers, uint32_t rank, int64_t now)
{
    struct peer *peer = &peers->of[rank];
    if (peer->cut_ns)
        return;
    peer->cut_ns = now;
    if (peer->neighbour) /* nothing is awaited of another */
        peers->cut[peers->cut_count++] = rank;
}

static enum peer_state state_after(const struct peers *peers, const struct peer *peer, enum peer_event event)
{
    enum peer_state state = next_state[atomic_load_explicit(&peer->state, memory_order_relaxed)][event];
    bool both = state == PEER_PARTING && (peer->word_gone || !peer->neighbour);
    bool ends = event == PEER_CUT && peers->leaving && (state == PEER_ABSENT || state == PEER_HERE);
    return both || ends ? PEER_LEFT : state;
}

void peer_happens(struct peers *peers, uint32_t rank, enum peer_event event, int64_t now)
{
    struct peer *peer = &peers->of[rank];
    peers->awaited -= is_awaited(peer);
    peer->word_gone |= event == PEER_WORD_GONE;
    enum peer_state state = state_after(peers, peer, event);
    /* release: pairs with the load in peer_is() */
    atomic_store_explicit(&peer->state, state, memory_order_release);
    if (event == PEER_CUT && peer_is_open(peer))
        cut_add(peers, rank, now);
    if (!peer_is_open(peer))
        cut_remove(peers, rank);
    peers->awaited += is_awaited(peer);
}

void peer_last_word(struct peers *peers, uint32_t rank)
{
    struct peer *peer = &peers->of[rank];
    peers->awaited -= is_awaited(peer);
    peer->word_said = true;
    peers->awaited += is_awaited(peer);
}

void peers_leave(struct peers *peers)
{
    peers->leaving = true;
}

/* ---- verdicts ---- */

void peer_lose(struct peers *peers, uint32_t rank, const char *format, ...)
{
    char how[768];
    va_list list;
    if (peer_is_over(&peers->of[rank]))
        return;
    va_start(list, format);
    text_vprint(how, sizeof(how), format, list);
    va_end(list);
    peer_happens(peers, rank, PEER_FAULT, 0);
    if (peer_is(&peers->of[rank], PEER_LOST) && !peers->leaving)
        peers->lost(peers->ctx, rank, how);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When bytes last came from the peer, of whatever is being received, as far as the system says; 0: it does not. */
static int64_t bytes_ns(const struct peer *peer, int64_t now)
{
    int64_t newest = 0;
    for (int c = 0; c < CHANNELS; c++)
        newest = later(newest, watched_received_ns(&peer->line[c].incoming, now));
    return newest;
}

/* Whether a peer to which the connection has ended says nothing any more; or gives signs of life, and for the whole
 * limit nothing else: then it does not leave, and what was on its way to it may be gone. */
static bool cut_for_good(const struct peers *peers, const struct peer *peer, int64_t now, bool drained)
{
    const struct peer_line *bulk = &peer->line[CHANNEL_BULK];
    int64_t heard_ns = later(atomic_load_explicit(&peer->heard_ns, memory_order_relaxed), peer->cut_ns);
    int64_t bulk_ns = later(bulk->heard_ns, peer->cut_ns), limit_ns = drained ? CUT_NS : BACKLOG_NS;
    if (now - heard_ns > limit_ns && now - bytes_ns(peer, now) > limit_ns)
        return true;
    return now - bulk_ns > peers->liveness_ns &&
           now - watched_received_ns(&bulk->incoming, now) > peers->liveness_ns;
}

void peers_judge_cut(struct peers *peers, int64_t now, bool drained)
{
    for (uint32_t i = peers->cut_count; i-- > 0;) {
        uint32_t rank = peers->cut[i];
        if (cut_for_good(peers, &peers->of[rank], now, drained))
            peer_lose(peers, rank, "its connection ended");
    }
}

bool peer_was_cut(const struct peer *peer, int64_t now)
{
    return peer->cut_ns && now - peer->cut_ns > CUT_NS;
}

void peer_judge_silence(struct peers *peers, uint32_t rank, int64_t now)
{
    struct peer *peer = &peers->of[rank];
    int64_t heard_ns = atomic_load_explicit(&peer->heard_ns, memory_order_relaxed);
    if (!peer_is(peer, PEER_HERE) || now - heard_ns <= peers->liveness_ns)
        return;
    heard_ns = later(heard_ns, bytes_ns(peer, now));
    atomic_store_explicit(&peer->heard_ns, heard_ns, memory_order_relaxed);
    if (now - heard_ns > peers->liveness_ns)
        peer_lose(peers, rank, "nothing was heard from it for %.1f s", (double)(now - heard_ns) * 1e-9);
}

void peer_judge_stuck(struct peers *peers, uint32_t rank, int64_t taken_ns, uint64_t unsent, int64_t now)
{
    char text[PLAN_TEXT_BYTES];
    if (unsent && now - taken_ns > peers->liveness_ns)
        peer_lose(peers, rank, "the connection for register contents to it has taken nothing for %.1f s, and %s wait",
                  (double)(now - taken_ns) * 1e-9, bytes_text(unsent, text));
}

void peer_judge_stranger(struct peers *peers, uint32_t rank, int64_t sent_ns, int64_t now)
{
    struct peer *peer = &peers->of[rank];
    if (!peers->leaving || peer->neighbour || !is_awaited(peer))
        return;
    /* acquire: pairs with the store in word_freed() */
    if (atomic_load_explicit(&peer->word_freed, memory_order_acquire))
        peer_happens(peers, rank, PEER_WORD_GONE, now);
    else if (now - sent_ns > peers->liveness_ns)
        peer_happens(peers, rank, PEER_CUT, now);
}

void peers_forgive(struct peers *peers, int64_t now)
{
    for (uint32_t i = 0; i < peers->neighbours_count; i++)
        atomic_store_explicit(&peers->of[peers->neighbours[i]].heard_ns, now, memory_order_relaxed);
    for (uint32_t i = 0; i < peers->cut_count; i++)
        peers->of[peers->cut[i]].cut_ns = now;
}

/* ---- signs of life ---- */

bool peer_may_sign(struct peer *peer, int64_t now)
{
    if (peer->signs_ns < now - PEER_BACKLOG_NS)
        peer->signs_ns = now - PEER_BACKLOG_NS;
    peer->signs_ns += NS_PER_S / PEER_SIGNS_PER_S;
    return peer->signs_ns <= now;
}
