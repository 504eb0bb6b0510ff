/* actors/ahead.h: firing on a queue that runs ahead of its device (regst/device.h).
 *
 * A firing enqueues its kernels and a mark, and is counted at once: what it read is let go of, and what it made is
 * published, before the device has begun. That is right for whoever comes later on the same queue, and for nobody else.
 * So each end of an edge has a way of telling the other, fixed when the session is opened:
 *
 *     the other end is on             it is told                      before it touches the slot
 *     NOW    the same queue           at launch                       nothing
 *     AWAIT  a queue that can await   at launch; the ticket of the    its queue awaits that ticket
 *                                     mark lies in `wrote` or `read`
 *     PUT    the same, told by a      when the mark is enqueued; the  its queue awaits that ticket
 *            queue for collectives    ticket lies there, too
 *     LATE   the host, or a process   when the mark has passed        nothing
 *
 * A reader awaits `wrote` of its slot, a producer `read` of the slot that it fills again. Both are words by slot, written
 * before the message leaves and read after it has come: the counters order them. An await is left out when the queue
 * awaited a later ticket of the other before (`known`), or the mark has passed anyway.
 *
 * A queue that awaits a collective stands until all of its members have come, and so does what is enqueued behind that: it
 * must be nothing that a member needs. Where the plan shows that it never is (graph/plan/prove/await.h), queues of the device are
 * told as soon as the device has taken the collective's mark (`put` in regst/device.h), and the host is not on the way from
 * a collective to a kernel, and copies from the host await nothing; else what collectives do is told LATE.
 *
 * PUT and LATE messages wait in rings of the queue, in the order of their tickets; what bounds them is that each holds a
 * slot. They are sent by the thread that launched, which looks at the queue's words between rows of firings, and while it has
 * nothing to fire (actors/worker.c). So every counter keeps its one owner, and the host, the CPU's actors and other
 * processes need to know nothing of all this.
 *
 * A queue has room for so many marks, and kernels. An actor that would need more is *crowded*: a condition fails, which is met
 * when a mark has passed. So the device never holds up the host: a lane that stood there, behind a collective, could not
 * launch what another member needs.
 *
 * A collective of devices (graph/plan/form/plan.h) is one actor of each, on its queue for collectives, whose
 * firing enqueues a *meeting* in the place of a kernel. Such a queue fires in the order of the plan's turns and in no
 * other. It has a list of them, for a step; whoever comes next there is its *head*, and it is one more condition of its
 * actors to be that. A firing passes the turn on, from the last in the list to the first again, of the next step. So the
 * orders in which queues come to their meetings are the same everywhere, however long one member has been ready before
 * another. A run ends between two steps, so each finds the list at its beginning; programs have lists of their own, as
 * only one runs at a time.
 *
 * A launched firing is remembered until its mark has passed: then its time is known, and it is in the trace. If the
 * device fails before, the report names those that were under way.
 *
 * A kernel may say, when it runs, that it was given what it cannot take (weir_refusal). Its results are on their way to
 * others by then: to queues of this session, and from them to hosts and other processes. But whoever is told LATE is told by
 * a mark that passes later. So before anything is told for a mark, the words of all of the session's queues are looked at;
 * once there is something in one, no lane of the session tells or retires any more, and the lane of that queue reports it
 * (ahead_refused()) when the mark of the firing has passed. So what was launched and came after it counts as under way for
 * good.
 *
 * Everything here belongs to the thread of the lane, but for `wrote` and `read` as said.
 */
#ifndef ACTORS_AHEAD_H
#define ACTORS_AHEAD_H

#include "actors/actor.h"
#include "actors/watch/trace.h"
#include "regst/device.h"

enum ahead_delivery { AHEAD_NOW, AHEAD_AWAIT, AHEAD_PUT, AHEAD_LATE };

/* Whether the other end awaits a ticket. */
static inline bool ahead_has_tickets(enum ahead_delivery delivery)
{
    return delivery == AHEAD_AWAIT || delivery == AHEAD_PUT;
}

struct ahead_queue;

/* An edge with such a queue at one end, or at both. */
struct ahead_edge {
    enum ahead_delivery ready; /* how its reader is told that a slot is full */
    enum ahead_delivery free;  /* how its producer is told that one is free */
    struct ahead_queue *producer, *reader; /* borrowed; NULL: it does not run ahead here */
    uint64_t *wrote, *read; /* borrowed; by slot: the ticket of the producer, the reader; only of AWAIT and PUT */
};

/* Told when the mark is enqueued, or has passed: one of the two. */
struct ahead_message {
    uint64_t ticket;
    struct actor_edge *edge; /* a slot is full */
    struct actor_port *port; /* a slot is free */
};

/* Messages that wait, the oldest first. */
struct ahead_ring {
    struct ahead_message *of; /* borrowed */
    uint64_t room, first, end;
};

struct ahead_launch {
    struct actor *actor;
    int64_t firing;
    int64_t ns; /* park_now_ns() */
};

/* The ticket that a launch awaits, for reports alone. */
struct ahead_await {
    uint64_t mark;                /* of the launch */
    const struct ahead_edge *edge;
    const struct ahead_queue *other;
    uint64_t ticket;
};

enum { AHEAD_AWAITS = 64 }; /* of a queue, that are remembered */

/* In what order actors of a queue for collectives fire, step after step. */
struct ahead_turns {
    struct actor **list; /* borrowed; an actor that fires M times a step is in it M times */
    uint32_t count, at;  /* `at`: the head */
};

struct ahead_queue {
    struct device_queue *device; /* owned by the session */
    uint32_t number;             /* of the session's queues that run ahead */
    uint64_t *known;             /* borrowed; by number: the newest ticket of that queue that has been awaited */
    struct ahead_ring put, late;
    struct ahead_launch *launched; /* borrowed; of ticket t at t % marks_max */
    struct ahead_await *awaits;  /* borrowed: the last AHEAD_AWAITS, as a ring */
    uint64_t await_count;
    uint64_t retired;            /* the newest ticket that is known to have passed */
    uint64_t kernels;            /* of the firings behind that */
    int64_t retired_ns;          /* when, as far as the host saw */
    bool stands;                 /* its device's collectives are awaited, by this queue or others */
    struct actor *crowded;       /* the first of those that wait for room */
    struct ahead_turns *turns;   /* borrowed; by program; NULL: it is no queue for collectives */
};

/* The state of an actor on such a queue. */
struct actor_ahead {
    struct ahead_queue *queue;
    struct ahead_edge *const *in;  /* borrowed; by port */
    struct ahead_edge *const *out; /* borrowed; by edge, register after register */
    struct actor *next;            /* crowded, too */
    bool crowded;
    struct ahead_turns *turns;     /* borrowed; that it takes part in; NULL: it waits for no turn */
    const struct device_meeting *meeting; /* borrowed; what it fires instead of its kernel, whose views it has; or NULL */
};

struct ahead_lane {
    struct ahead_queue **queues; /* borrowed */
    uint32_t count;
    struct ahead_queue *const *all; /* borrowed: the session's, of all lanes; of them nothing but their words is touched */
    uint32_t all_count;
};

/* Whether it is another one's turn. */
bool ahead_waits_turn(const struct actor *actor);

/* Conditions that fail of those that actors on such queues alone have. */
uint32_t ahead_unmet(const struct actor *actor);

/* Whether there is no room for the actor's firing; then it waits, and is not ready. */
bool ahead_crowds(struct actor *actor);

/* actor_fire() for such an actor. A kernel that fails does so at its launch; *failed NULL: an await or the mark did. */
uint32_t ahead_fire(struct actor *actor, uint32_t count, weir_status *status, struct actor_kernel **failed);

/* The refusal of a kernel on one of the lane's queues, and in which firing. NULL: nothing, as far as marks have passed. */
const struct ahead_launch *ahead_refused(const struct ahead_lane *ahead, struct actor_kernel **kernel,
                                         weir_refusal *refusal);

/* Tells and retires what has passed. True: there was something. `trace`: where to, or NULL. */
bool ahead_poll(const struct ahead_lane *ahead, struct trace *trace);

/* Whether a mark has passed of which ahead_poll() does not know. Does nothing. */
bool ahead_passed(const struct ahead_lane *ahead);

/* Whether everything that was launched is known to have passed. */
bool ahead_rests(const struct ahead_lane *ahead);

/* Looks whether the queues with something under way are well; if not, one that is not, with its sentence: the first whose
 * oldest firing awaits nothing, as an error of a device is every queue's. */
struct ahead_queue *ahead_unwell(const struct ahead_lane *ahead, weir_status *status, char *error, size_t error_bytes);

/* The ticket that the oldest firing under way still awaits; NULL: nothing. False: that is not remembered. */
bool ahead_awaits(const struct ahead_queue *queue, const struct ahead_await **await);

/* How many firings of the actor are under way. */
uint32_t ahead_launched(const struct actor *actor);

void ahead_abort(const struct ahead_lane *ahead);

/* The oldest firing that is under way, and those after it; NULL: the n-th is not. */
static inline const struct ahead_launch *ahead_under_way(const struct ahead_queue *queue, uint64_t n)
{
    return queue->retired + n < queue->device->marked
               ? &queue->launched[(queue->retired + n + 1) % queue->device->marks_max]
               : NULL;
}

#endif
