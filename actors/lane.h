/* actors/lane.h: what actors need of the thread that runs them: a mailbox, a set of those that are ready, and an
 * outbox.
 *
 *                 +--------------------- lane ----------------------+
 *     others ---> | mailbox --> actor counters --> ready set        |
 *                 |                   |                             |
 *                 |             outbox (messages to other lanes) ---+---> bus
 *                 +-------------------------------------------------+
 *
 * A worker is a lane and a thread of its own. Each outside actor (a push, a pull) is alone on a lane, which the
 * program's thread runs while it is inside weir_session_push() or weir_session_pull().
 *
 * Outbox. A message to another lane is not sent at once: the line (struct outgoing) of that edge counts up, and goes
 * out as one message when the lane flushes. The worker bounds the delay (actors/worker.h). A line stands in the outbox at
 * most once, so the outbox has as many places as the lane has lines.
 *
 * Orders (enum lane_order) come through the mailbox's own word, from the session and its watch alone; what is in its
 * ring are messages of actors.
 *
 * One owner thread at a time: the one that runs the lane. Only the mailbox is open to others.
 */
#ifndef ACTORS_LANE_H
#define ACTORS_LANE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "actors/ready.h"
#include "transport/mail/mailbox.h"

/* The bits that mailbox_order() gives to a lane. To an outside lane only FAIL and REST, which wake whoever waits there. */
enum lane_order {
    LANE_START = 1,  /* a run begins */
    LANE_FAIL = 2,   /* the session failed: fire no more */
    LANE_STOP = 4,   /* end */
    LANE_LOOK = 8,   /* write down who waits for what (actors/watch/watch.h) */
    LANE_ASK = 16,   /* ask the owner whether the run is to end early */
    LANE_HOLD = 32,  /* say how many steps have been begun, and begin no more */
    LANE_LIMIT = 64, /* the run now ends after a different step */
    LANE_REST = 128, /* the run is over */
    LANE_JOIN = 256  /* another worker has entered the thread (actors/crew.h) */
};

/* A line to an actor on another lane. */
struct outgoing {
    struct bus_end *end;    /* borrowed; NULL: the other end of the edge is on this lane */
    struct message message; /* but for the count */
    uint32_t unsent;
};

struct outbox {
    struct outgoing **lines; /* owned array */
    uint32_t count;
    uint32_t room;
};

struct lane {
    struct mailbox mailbox;
    struct ready ready;
    struct outbox outbox;
    struct mailbox_waiter *waiter; /* borrowed; NULL: waits at its mailbox */
    struct lane_guard *guard; /* borrowed; NULL: nobody but this process's own threads posts here */
    struct ringer *ringer; /* borrowed; outside: of the session's descriptor, where other processes post; NULL: none */
    _Atomic uint32_t used; /* outside: enum lane_use */
    _Atomic int64_t waiting; /* outside: 1 + the step for which a thread waits in push or pull; 0: none does */
};

/* The owner of an outside lane: nobody, a thread in push or pull, one that looks whether that would wait. */
enum lane_use { LANE_UNUSED, LANE_CALLED, LANE_LOOKED_AT };

/* Called for a message that another process was not allowed to post. Called by the lane's owner. */
struct lane_guard {
    uint32_t edge_count; /* of the plan */
    void (*refuse)(struct lane_guard *guard, struct message message);
};

/* The sizes of a lane, counted from the plan before it is opened. */
struct lane_size {
    uint32_t actors;
    uint32_t lines;
    uint64_t messages; /* that can be under way to it */
};

/* `ring`: memory that other processes see for the mailbox's ring; NULL: it gets its own. */
weir_status lane_open(struct lane *lane, const struct lane_size *size, struct spin spin, void *ring);
void lane_close(struct lane *lane);

/* Sends everything in the outbox. `rests`: its waiter waits next. */
void lane_flush(struct lane *lane, bool rests);

/* Puts so many more slots on a line. */
static inline void lane_send(struct lane *lane, struct outgoing *line, uint32_t slots)
{
    if (line->unsent == 0) {
        assert(lane->outbox.count < lane->outbox.room);
        lane->outbox.lines[lane->outbox.count++] = line;
    }
    line->unsent += slots;
}

#endif
