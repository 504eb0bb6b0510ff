/* tests/regst/test_marks.c: the rules by which actors on queues that run ahead hand slots to each other, as a model of
 * their own, on random graphs.
 *
 * Actors of three queues and of the host fire by counters alone: READY for a slot that was written, FREE for one that
 * was read. A firing on a queue only enqueues: awaits, the kernel, a mark, whose number is the firing's ticket. Where
 * the two ends of an edge are decides when a message leaves:
 *
 *     NOW     at launch: the same queue; and what the host sends, which is done when it sends
 *     AWAIT   at launch, and the ticket lies beside the slot: the other queue awaits it before it reads what was
 *             written, or writes over what was read, unless it awaited that mark or a later one before
 *     LATE    to the host, when the mark has passed
 *
 * and an actor of a queue fires only if the queue has room for its mark. Messages arrive, actors fire and queues go on
 * in any order, drawn from a seed. Every kernel takes from a `begin` to an `end`; in between its inputs must be what it
 * was to read, and before it writes a slot all readers must have ended. All must fire as often as they should. Then
 * each rule is left out, which must be seen: so the model can tell right from wrong.
 */
#include <criterion/criterion.h>

#include "tests/support/effort.h"
#include "tests/support/mutate_plan.h"

enum {
    GRAPHS = EFFORT(2000, 300, 100),
    SEED = 7001,
    QUEUES = 3,
    HOST = QUEUES, /* where an actor is, besides 0 .. QUEUES - 1 */
    ACTORS_MAX = 9,
    EDGES_MAX = 12,
    SLOTS_MAX = 3,
    FIRINGS = 8,
    ENTRIES_MAX = ACTORS_MAX * FIRINGS * (2 + EDGES_MAX)
};

typedef enum rule {
    ALL_KEPT,
    WROTE_NOT_AWAITED,
    READ_NOT_AWAITED,
    TOLD_AT_LAUNCH,
    FREE_TOLD_AT_LAUNCH,
    SKIPPED_TOO_EARLY,
    ROOM_IGNORED
} rule;

enum hand_over { NOW, AWAIT, LATE };

/* A register with one reader. */
struct edge {
    int producer, reader, slots, initial;
    enum hand_over ready, free;             /* how the producer tells the reader, and the reader the producer */
    int arrived, freed;                     /* READY and FREE messages that came */
    uint64_t wrote[SLOTS_MAX], read[SLOTS_MAX]; /* tickets; 0: nothing to await */
    int version[SLOTS_MAX];                 /* what lies in the slot; -1: it is being written */
    int reads_ended;
};

struct actor {
    int place, fired;
};

struct entry {
    enum { KERNEL, AWAITS, MARK } kind;
    int actor, firing, other;
    uint64_t ticket;
};

struct message {
    int edge;
    bool free; /* or READY */
    uint64_t ticket;
};

struct queue {
    struct entry entries[ENTRIES_MAX];
    int first, count;
    bool begun;                                      /* the kernel that is first */
    uint64_t marked, done, marks_max, ring[8];       /* a mark is told by what its place in the ring holds */
    uint64_t known[QUEUES];                          /* the newest mark of each that it awaits */
    struct message late[2 * FIRINGS * EDGES_MAX];    /* in the order of their tickets */
    int late_first, late_count;
};

struct game {
    rule broken;
    uint64_t random;
    struct actor actors[ACTORS_MAX];
    struct edge edges[EDGES_MAX];
    int actor_count, edge_count;
    struct queue queues[QUEUES];
    struct message sent[2 * EDGES_MAX * SLOTS_MAX]; /* and not arrived */
    int sent_count;
    int host_actor;                                 /* under way on the host; -1: none is */
    int awaits, skipped;
    bool wrong;
};

static int below(struct game *g, int limit)
{
    return (int)(mutate_draw(&g->random) % (uint64_t)limit);
}

/* ---- graphs ---- */

static enum hand_over class_of(const struct game *g, int from, int to)
{
    int a = g->actors[from].place, b = g->actors[to].place;
    if (a == b || a == HOST)
        return NOW;
    return b != HOST ? AWAIT : g->broken == TOLD_AT_LAUNCH ? NOW : LATE;
}

/* Forward, or back with slots that are full at the start, so that it is live. */
static void add_edge(struct game *g, int from, int to)
{
    struct edge *edge = &g->edges[g->edge_count++];
    *edge = (struct edge){.producer = from, .reader = to, .slots = 1 + below(g, SLOTS_MAX)};
    if (from >= to)
        edge->initial = 1 + below(g, edge->slots);
    edge->arrived = edge->initial;
    edge->ready = class_of(g, from, to);
    edge->free = class_of(g, to, from);
    if (edge->free == LATE && g->broken == FREE_TOLD_AT_LAUNCH)
        edge->free = NOW;
    for (int i = 0; i < edge->slots; i++)
        edge->version[i] = i < edge->initial ? i : -1;
}

static void game_new(struct game *g, uint64_t seed, rule broken)
{
    g->random = seed;
    g->broken = broken;
    g->actor_count = 3 + below(g, ACTORS_MAX - 2);
    g->edge_count = g->sent_count = g->awaits = g->skipped = 0;
    g->host_actor = -1;
    g->wrong = false;
    for (int i = 0; i < g->actor_count; i++)
        g->actors[i] = (struct actor){.place = below(g, QUEUES + 1)};
    for (int i = 1; i < g->actor_count; i++)
        add_edge(g, below(g, i), i);
    for (int more = below(g, EDGES_MAX - ACTORS_MAX); more > 0; more--) {
        int from = below(g, g->actor_count);
        add_edge(g, from, (from + 1 + below(g, g->actor_count - 1)) % g->actor_count);
    }
    for (int q = 0; q < QUEUES; q++) {
        struct queue *queue = &g->queues[q];
        queue->first = queue->count = queue->late_first = queue->late_count = 0;
        queue->begun = false;
        queue->marked = queue->done = 0;
        queue->marks_max = 2 + (uint64_t)below(g, 2);
        memset(queue->known, 0, sizeof queue->known);
    }
}

/* ---- what kernels do ---- */

static void begin(struct game *g, int actor, int firing)
{
    for (struct edge *e = g->edges; e < g->edges + g->edge_count; e++) {
        int written = firing + e->initial;
        if (e->reader == actor && e->version[firing % e->slots] != firing)
            g->wrong = true;
        if (e->producer != actor)
            continue;
        if (e->reads_ended < written - e->slots + 1)
            g->wrong = true;
        e->version[written % e->slots] = -1;
    }
}

static void end(struct game *g, int actor, int firing)
{
    for (struct edge *e = g->edges; e < g->edges + g->edge_count; e++) {
        if (e->reader == actor) {
            if (e->version[firing % e->slots] != firing)
                g->wrong = true;
            e->reads_ended = firing + 1;
        }
        if (e->producer == actor)
            e->version[(firing + e->initial) % e->slots] = firing + e->initial;
    }
}

/* ---- firing ---- */

static void send(struct game *g, struct message message)
{
    g->sent[g->sent_count++] = message;
}

/* From an actor of a queue, or of the host (NULL). */
static void tell(struct game *g, struct queue *queue, enum hand_over how, struct message message)
{
    if (how == LATE)
        queue->late[queue->late_count++] = message;
    else
        send(g, message);
}

static void tell_all(struct game *g, struct queue *queue, int actor, int firing, uint64_t ticket)
{
    for (int i = 0; i < g->edge_count; i++) {
        struct edge *e = &g->edges[i];
        if (e->reader == actor) {
            e->read[firing % e->slots] = e->free == AWAIT ? ticket : 0;
            tell(g, queue, e->free, (struct message){i, true, ticket});
        }
        if (e->producer == actor) {
            e->wrote[(firing + e->initial) % e->slots] = e->ready == AWAIT ? ticket : 0;
            tell(g, queue, e->ready, (struct message){i, false, ticket});
        }
    }
}

static void enqueue(struct queue *queue, struct entry entry)
{
    queue->entries[queue->count++] = entry;
}

static void await(struct game *g, struct queue *queue, int other, uint64_t ticket)
{
    if (!ticket)
        return;
    g->awaits++;
    if (queue->known[other] + (g->broken == SKIPPED_TOO_EARLY) >= ticket) {
        g->skipped++;
        return;
    }
    queue->known[other] = ticket;
    enqueue(queue, (struct entry){.kind = AWAITS, .other = other, .ticket = ticket});
}

static void await_all(struct game *g, struct queue *queue, int actor, int firing)
{
    for (int i = 0; i < g->edge_count; i++) {
        const struct edge *e = &g->edges[i];
        if (e->reader == actor && e->ready == AWAIT && g->broken != WROTE_NOT_AWAITED)
            await(g, queue, g->actors[e->producer].place, e->wrote[firing % e->slots]);
        if (e->producer == actor && e->free == AWAIT && g->broken != READ_NOT_AWAITED)
            await(g, queue, g->actors[e->reader].place, e->read[(firing + e->initial) % e->slots]);
    }
}

static bool has_what_it_needs(const struct game *g, int actor)
{
    const struct actor *a = &g->actors[actor];
    if (a->fired == FIRINGS)
        return false;
    if (a->place == HOST && g->host_actor >= 0)
        return false;
    if (a->place != HOST && g->broken != ROOM_IGNORED) {
        const struct queue *queue = &g->queues[a->place];
        if (queue->marked - queue->done == queue->marks_max)
            return false;
    }
    for (int i = 0; i < g->edge_count; i++) {
        const struct edge *e = &g->edges[i];
        if (e->reader == actor && e->arrived == a->fired)
            return false;
        if (e->producer == actor && a->fired + e->initial - e->freed == e->slots)
            return false;
    }
    return true;
}

static bool fire(struct game *g, int actor)
{
    if (!has_what_it_needs(g, actor))
        return false;
    struct actor *a = &g->actors[actor];
    int firing = a->fired++;
    if (a->place == HOST) {
        begin(g, actor, firing);
        g->host_actor = actor;
        return true;
    }
    struct queue *queue = &g->queues[a->place];
    await_all(g, queue, actor, firing);
    enqueue(queue, (struct entry){.kind = KERNEL, .actor = actor, .firing = firing});
    enqueue(queue, (struct entry){.kind = MARK, .ticket = ++queue->marked});
    queue->ring[queue->marked % queue->marks_max] = queue->marked;
    tell_all(g, queue, actor, firing, queue->marked);
    return true;
}

/* ---- what else happens ---- */

static bool host_ends(struct game *g)
{
    int actor = g->host_actor, firing = g->actors[actor < 0 ? 0 : actor].fired - 1;
    if (actor < 0)
        return false;
    end(g, actor, firing);
    g->host_actor = -1;
    tell_all(g, NULL, actor, firing, 0);
    return true;
}

static bool goes_on(struct game *g, struct queue *queue)
{
    const struct entry *entry = &queue->entries[queue->first];
    if (queue->first == queue->count || (entry->kind == AWAITS && g->queues[entry->other].done < entry->ticket))
        return false;
    if (entry->kind == KERNEL && !queue->begun) {
        queue->begun = true;
        begin(g, entry->actor, entry->firing);
        return true;
    }
    if (entry->kind == KERNEL)
        end(g, entry->actor, entry->firing);
    if (entry->kind == MARK && queue->done < queue->ring[entry->ticket % queue->marks_max])
        queue->done = queue->ring[entry->ticket % queue->marks_max];
    queue->begun = false;
    queue->first++;
    return true;
}

static bool tells_late(struct game *g, struct queue *queue)
{
    if (queue->late_first == queue->late_count || queue->late[queue->late_first].ticket > queue->done)
        return false;
    send(g, queue->late[queue->late_first++]);
    return true;
}

static bool arrives(struct game *g)
{
    if (!g->sent_count)
        return false;
    int i = below(g, g->sent_count);
    struct edge *e = &g->edges[g->sent[i].edge];
    if (g->sent[i].free)
        e->freed++;
    else
        e->arrived++;
    g->sent[i] = g->sent[--g->sent_count];
    return true;
}

/* One of the things that can happen, counted from `at`; false: nothing can. */
static bool happens(struct game *g, int at)
{
    int ways = g->actor_count + 2 * QUEUES + 2;
    for (int i = 0; i < ways; i++) {
        int way = (at + i) % ways - g->actor_count;
        bool did = way < 0            ? fire(g, way + g->actor_count)
                   : way < QUEUES     ? goes_on(g, &g->queues[way])
                   : way < 2 * QUEUES ? tells_late(g, &g->queues[way - QUEUES])
                   : way & 1          ? arrives(g)
                                      : host_ends(g);
        if (did)
            return true;
    }
    return false;
}

/* Plays it to its end; false: something was wrong, or it got stuck. Queues differ in how fast they are, and most are
 * slower than the host. */
static bool game_plays(struct game *g)
{
    int ways = g->actor_count + 2 * QUEUES + 2, at, slow[QUEUES];
    for (int q = 0; q < QUEUES; q++)
        slow[q] = below(g, 12);
    do {
        at = below(g, ways);
        int queue = at - g->actor_count;
        if (queue >= 0 && queue < QUEUES && below(g, 12) < slow[queue])
            at = below(g, g->actor_count);
    } while (happens(g, at) && !g->wrong);
    for (int i = 0; i < g->actor_count && !g->wrong; i++)
        if (g->actors[i].fired != FIRINGS)
            g->wrong = true;
    for (int q = 0; q < QUEUES && !g->wrong; q++)
        if (g->queues[q].first != g->queues[q].count || g->queues[q].done != g->queues[q].marked)
            g->wrong = true;
    return !g->wrong;
}

/* How many of the graphs go wrong. */
static int count_wrong(rule broken, int *awaits, int *skipped)
{
    static struct game game;
    int wrong = 0;
    *awaits = *skipped = 0;
    for (int i = 0; i < GRAPHS; i++) {
        game_new(&game, SEED + (uint64_t)i * 1000003, broken);
        wrong += !game_plays(&game);
        *awaits += game.awaits;
        *skipped += game.skipped;
    }
    cr_log_info("seed %d: %d of %d graphs go wrong; %d awaits, %d skipped", SEED, wrong, GRAPHS, *awaits, *skipped);
    return wrong;
}

TestSuite(marks, .timeout = 60);

Test(marks, hand_slots_over_in_every_order)
{
    int awaits, skipped;
    cr_expect_eq(count_wrong(ALL_KEPT, &awaits, &skipped), 0);
    cr_expect_gt(awaits, 20 * GRAPHS);
    cr_expect(skipped > awaits / 5 && skipped < awaits, "%d of %d awaits were skipped", skipped, awaits);
}

/* Each rule is needed: without it at least a fourth of the graphs goes wrong. */
static void expect_wrong_without(rule broken)
{
    int awaits, skipped, wrong = count_wrong(broken, &awaits, &skipped);
    cr_expect_gt(wrong, GRAPHS / 4, "%d of %d graphs go wrong", wrong, GRAPHS);
}

Test(marks, go_wrong_when_what_was_written_is_not_awaited)
{
    expect_wrong_without(WROTE_NOT_AWAITED);
}

Test(marks, go_wrong_when_what_was_read_is_not_awaited)
{
    expect_wrong_without(READ_NOT_AWAITED);
}

Test(marks, go_wrong_when_the_host_is_told_at_launch)
{
    expect_wrong_without(TOLD_AT_LAUNCH);
}

Test(marks, go_wrong_when_the_host_is_told_at_launch_that_a_slot_is_free)
{
    expect_wrong_without(FREE_TOLD_AT_LAUNCH);
}

Test(marks, go_wrong_when_an_await_is_skipped_too_early)
{
    expect_wrong_without(SKIPPED_TOO_EARLY);
}

Test(marks, go_wrong_when_room_is_ignored)
{
    expect_wrong_without(ROOM_IGNORED);
}
