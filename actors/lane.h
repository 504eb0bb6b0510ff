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
 * out as one message when the lane flushes. What bounds the delay is the worker's business (actors/worker.h). A line
 * stands in the outbox at most once, so the outbox has as many places as the lane has lines.
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

/* A line to an actor on another lane. */
struct outgoing {
    struct bus_end *end;    /* borrowed; NULL: the other end of the edge is on this lane */
    struct message message; /* all but the count */
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
    _Atomic int64_t waiting; /* outside: 1 + the step for which a thread waits in push or pull; 0: none does */
    uint32_t orders; /* bits 1 << MESSAGE_START, FAIL, STOP that came and have not been obeyed */
};

/* Who hears of a message that another process may not have posted. Called by the lane's owner. */
struct lane_guard {
    uint32_t actor_count;
    void (*refuse)(struct lane_guard *guard, struct message message);
};

/* What a lane will have to hold, counted from the plan before it is opened. */
struct lane_size {
    uint32_t actors;
    uint32_t lines;
    uint64_t messages; /* that can be under way to it */
};

/* Messages that the lane's mailbox has room for. */
uint64_t lane_messages(const struct lane_size *size);

/* `ring`: memory that other processes see for the mailbox's ring; NULL: it gets its own. */
weir_status lane_open(struct lane *lane, const struct lane_size *size, int64_t spin_ns, void *ring);
void lane_close(struct lane *lane);

/* Sends everything in the outbox. */
void lane_flush(struct lane *lane);

/* Puts one more slot on a line. */
static inline void lane_send(struct lane *lane, struct outgoing *line)
{
    if (line->unsent++ == 0) {
        assert(lane->outbox.count < lane->outbox.room);
        lane->outbox.lines[lane->outbox.count++] = line;
    }
}

#endif
