/* actors/cluster/cluster.h: a session that is one of several: what it has beside the single one, and what it asks of
 * the others.
 *
 *     open:   environment -> sockets -> plan spread over the ranks          cluster_open()
 *             own lanes and arenas into a segment, when there may be one     cluster_share()
 *             meet; map the segments of this host's ranks; HELLO             cluster_meet()
 *             bus: actors elsewhere -> mailboxes in segments, or the net     cluster_route()
 *             what remote readers find before the first step; a barrier      cluster_begin()
 *     close:  BYE; the network ends before the arenas go                     cluster_leave(), cluster_close()
 *
 *     open.c   open, runs, close                 rounds.c   rounds
 *     meet.c   from sharing to beginning         hooks.c    what the network tells, and is told of a failure
 *     stop.c   how a run ends before its time    gathers.c  which moves of collectives are gathers
 *
 * The session uses the cluster, which sees of it only struct cluster_owner (ranks.c).
 *
 * Rounds. A call that all ranks make together at rest (open, read, write) is a round. Each rank sends its data, then a mark to
 * its neighbours (transport/net/peer.h), and waits for their marks. Every rank is a neighbour of rank 0, which sends its marks
 * last, when it has those of all others. So a round ends on no rank before all ranks have begun it, and data that a neighbour
 * sent before its mark has arrived. A rank is at most one round ahead of another, so early data is bounded. A mark names the
 * kind of the round: ranks that make different calls get an error. A rank that runs sends no mark. So a rank that waits for
 * long asks the ranks whose marks it lacks, and says how many runs it has begun: one that has begun more runs, and not this
 * round, makes other calls.
 *
 * The session's thread runs all of this but the hooks, which the thread at the network's sockets calls
 * (transport/net/net.h).
 */
#ifndef ACTORS_CLUSTER_CLUSTER_H
#define ACTORS_CLUSTER_CLUSTER_H

#include <pthread.h>

#include "actors/lane.h"
#include "actors/cluster/owner.h"
#include "transport/net/share.h"
#include "transport/line/links.h"
#include "transport/net/net.h"

/* The purpose of a round. */
enum round_kind { ROUND_OPEN, ROUND_READ, ROUND_WRITE, ROUND_SAVE, ROUND_LOAD, ROUND_RUN, ROUND_KINDS };

/* A rank says this beside its mark: whether it has come so far, and a sentence if not. */
#define ROUND_NOTE_BYTES 1024
#define ROUND_SURVEY 16 /* in place of `which`, of a save or load: the round finds out what hosts have */
struct round_note {
    uint32_t status; /* weir_status */
    char text[ROUND_NOTE_BYTES];
};

/* A shard (a place in plan->shards) that another rank sent in a round; or, as plan->shards_count + that place, all kept slots
 * of that shard from a snapshot; or a statement (WIRE_STATEMENT). */
struct arrival {
    struct arrival *next;
    uint32_t rank, shard;
    uint64_t round;
    size_t bytes;
    unsigned char data[];
};

/* The messages of this round and the next that have come; [round & 1]. Under the lock, but for `now`, which only the
 * session's thread changes. */
struct rounds {
    pthread_mutex_t lock;
    struct arrival *arrivals; /* owned */
    uint64_t *marked;         /* owned; by rank: the latest round of which its mark came */
    uint64_t *about;          /* owned; by rank: what that mark says that it is for */
    uint64_t about_now;
    struct round_note *notes[2]; /* owned; [round & 1], by rank: what came with its mark */
    struct round_note mine;
    uint32_t marks[2], values[2]; /* how many came */
    uint32_t expected;        /* values that this rank waits for */
    _Atomic uint64_t now;
};

/* The part of a run that a rank has begun: before this step, or all of it (WIRE_WHOLE_RUN). Or how a run ended. */
struct begun {
    uint64_t run;
    int64_t step;
};

struct cluster {
    struct cluster_owner *owner; /* borrowed */
    const weir_plan *plan;       /* borrowed; every device has an owner in it */
    struct cluster_env env;
    struct member *members; /* owned; by rank */
    struct net *net;
    struct links links;
    struct share own, *peers; /* peers: owned, by rank */
    bool *mapped, *wired;     /* by rank */
    bool worker_is_free;      /* the only worker may take in what comes over the wire */
    bool *here;               /* by space: this rank's */
    _Atomic int64_t *left;    /* by rank: steps that it had done when it left; -1: it is here */
    _Atomic uint32_t left_count;
    _Atomic int64_t target;   /* steps, of all programs, that the run under way ends after */
    _Atomic int64_t others;   /* of those, the steps of others than main */
    struct rounds rounds;
    uint64_t hold_run;        /* that rank 0 wants held when it begins here; 0: none. Under the lock of owner->ending */
    struct begun *begun;      /* owned; by rank: its last hold; only rank 0 knows those of others. Under the same */
    bool *idle;               /* owned; by rank: it runs nothing, because it has no device of the plan */
    struct begun *over;       /* owned; if this rank is idle: runs that ended elsewhere before they began here.
                                 Under the same */
    uint32_t over_count, over_room;
    _Atomic bool sharing;     /* other ranks may send what registers hold, outside of a run */
    _Atomic uint32_t shared_times; /* how often `sharing` was set */
    _Atomic uint32_t news;    /* changes when a round may be over (a futex word) */
};

/* Of several ranks. *to is set also when it fails, and is to be closed then. The environment's secret is wiped. */
weir_status cluster_open(struct cluster **to, struct cluster_owner *owner, const weir_plan *plan,
                         struct cluster_env *env, const struct report *report);

/* The functions up to cluster_begin() do nothing alone, where the cluster is NULL. Lanes of these sizes; ring_of: by actor,
 * the number of its lane (UINT32_MAX: none here). */
weir_status cluster_share(struct cluster *cluster, const struct lane_size *sizes, uint32_t lanes, const uint32_t *ring_of);

/* `computing`: workers that compute; `free`: a worker may take in what comes over the wire while it waits, when it is the
 * only one. `arenas` get the memory of those whose registers are read where they lie. */
weir_status cluster_meet(struct cluster *cluster, uint32_t computing, bool free, struct arena *arenas);
weir_status cluster_route(struct cluster *cluster, struct arena *arenas, struct bus *bus, struct lane *lane);
weir_status cluster_begin(struct cluster *cluster);
void cluster_leave(struct cluster *cluster, int64_t steps); /* done in all; < 0: the session failed */
void cluster_close(struct cluster *cluster);

/* Whether this host has fewer cores than threads, so that one that spins keeps another from running. After the meeting. */
bool cluster_crowded(const struct cluster *cluster);

/* Steps of all programs before a run of `more` steps; `others` of them are not main's. */
struct cluster_steps {
    int64_t before, others, more;
};

/* A run of the program is about to begin. If it is `another` one than ran last, all ranks begin it together, and ranks that do
 * not share memory are sent the values that they read of others. E_PEER: a rank has left; the session then fails, so that ranks
 * that are no neighbours of it hear of it too. */
weir_status cluster_start(struct cluster *cluster, uint32_t program, bool another, const struct cluster_steps *steps);

/* The session has failed on this rank: tells its neighbours, which tell theirs, and rank 0's are all; ends waits. With
 * the lock of owner->ending. */
void cluster_fail(struct cluster *cluster);

/* Firings of all other ranks as last heard, and the rank that has been silent longest (UINT32_MAX: none for longer
 * than a beat), for how long. Alone: 0, none. */
uint64_t cluster_remote(const struct cluster *cluster, uint32_t *silent_rank, int64_t *silent_ns);
void cluster_send_waits(struct cluster *cluster, uint32_t rank, const void *entries, uint32_t count);

/* ---- stop.c; with the lock of owner->ending; alone they do nothing ---- */

/* wants_hold: whether other ranks want the run that begins to be held. hold_began: this rank holds now. limited: the run ends
 * after `steps` steps of all programs, of which `others` are not main's. */
bool cluster_wants_hold(const struct cluster *cluster);
void cluster_hold_began(struct cluster *cluster);
void cluster_limited(struct cluster *cluster, int64_t steps, int64_t others);

/* cluster_follows(): true if this rank is idle and has not been told how the run ended. Else *most is the step before which the
 * run ended, or INT64_MAX if this rank is not idle. cluster_tell_over(): the run is over here; tells the idle ranks. */
bool cluster_follows(struct cluster *cluster, int64_t *most);
void cluster_tell_over(struct cluster *cluster, int64_t step);

/* All workers hold, and have begun the steps before this one. True: so do all ranks, and the hold is over. */
bool cluster_held(struct cluster *cluster, int64_t step);
bool cluster_rank_left(struct cluster *cluster); /* the same, when a rank has left */

int64_t cluster_due(const struct cluster *cluster); /* no rank may leave before it has done so many; needs no lock */
void cluster_tell_end(struct cluster *cluster, const struct last_step *last);

/* A round: begin, send any number, end (which waits, for so many shards of others too), take what came, close.
 * `which`: the parameter, or the program, that it is about. */
void cluster_round_begin(struct cluster *cluster, enum round_kind kind, uint32_t which);
weir_status cluster_round_send(struct cluster *cluster, uint32_t shard, const void *data, size_t bytes);
weir_status cluster_round_send_to(struct cluster *cluster, uint32_t rank, uint32_t shard, const void *data,
                                  size_t bytes);
weir_status cluster_round_end(struct cluster *cluster, uint32_t shards);

/* say, before the end of the round: this rank's status, with weir_error() if it is not OK. said, after the end: OK if all ranks
 * are OK, else one rank's status on all of them; the error is then "rank 2: ..." on the others. *word (of ROUND_NOTE_BYTES) is
 * rank 0's, given to all; it may be NULL. */
void cluster_round_say(struct cluster *cluster, weir_status mine, const char *word);
weir_status cluster_round_said(struct cluster *cluster, weir_status mine, char *word);

/* A whole round of that alone. */
weir_status cluster_agree(struct cluster *cluster, enum round_kind kind, uint32_t which, weir_status mine, char *word);

/* A whole round, in which every other rank's statement goes to rank 0, where `take` is called with each. */
typedef void (*cluster_take_fn)(void *ctx, uint32_t rank, const void *data, size_t bytes);
weir_status cluster_collect(struct cluster *cluster, enum round_kind kind, const void *mine, size_t bytes,
                            cluster_take_fn take, void *ctx);

/* A whole round, in which rank 0's statement goes to all: `take` is called with it on every rank but rank 0. */
weir_status cluster_spread(struct cluster *cluster, enum round_kind kind, const void *mine, size_t bytes,
                           cluster_take_fn take, void *ctx);

const struct arrival *cluster_round_find(struct cluster *cluster, uint32_t rank, uint32_t shard);
void cluster_round_close(struct cluster *cluster);

/* Allows others to send slots that no actor has published. Set before this rank's mark of the round that sends them, cleared at
 * the end of that round. */
void cluster_sharing(struct cluster *cluster, bool on);

/* Sends the published slots of a register again to those who cannot see them. At rest, within a round. */
weir_status cluster_share_regst(struct cluster *cluster, uint32_t regst);

/* ---- between these files ---- */

extern const struct net_hooks cluster_hooks; /* but ctx */
void cluster_news(struct cluster *cluster);  /* a round may be over */
bool cluster_take_hold(struct cluster *cluster, uint32_t rank, const struct wire_frame *frame); /* false: it may not */
bool cluster_take_end(struct cluster *cluster, const struct wire_frame *frame);                 /* say that */
bool cluster_round_take(struct cluster *cluster, uint32_t rank, uint32_t shard, uint64_t round, const void *data,
                        size_t bytes); /* false: the rank may not send that */
weir_status rounds_open(struct rounds *rounds, uint32_t ranks);
void rounds_close(struct rounds *rounds); /* also a zeroed one */
uint64_t cluster_fired(const struct cluster *cluster); /* firings of others, as far as was heard */

/* The session cannot go on, and rank `culprit` is why. */
void cluster_lost(struct cluster *cluster, uint32_t culprit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
