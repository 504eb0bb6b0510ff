/* transport/mail/bus.h: where a message for an actor goes. The bus is a table from actors to ends; an end takes
 * messages.
 *
 *     actor id --> bus_end: a worker's mailbox           (transport/mail/mailbox.h)
 *                           the mailbox of an outside actor (a push or pull, drained by the program's own thread)
 *                           a connection to another process
 *
 * Messages between actors of one worker do not come here: their sender knows that it owns both (bus_same()) and
 * changes the counters itself.
 *
 * The table is filled before the first message and does not change while messages flow; then any thread may read it.
 * Ends are borrowed: whoever made one keeps it until the bus has gone.
 */
#ifndef TRANSPORT_MAIL_BUS_H
#define TRANSPORT_MAIL_BUS_H

#include <stdbool.h>
#include <weir/base.h>

#include "transport/mail/message.h"

/* The part of an end that its senders see; the end embeds it. `post` may be called by any thread, does not block and
 * cannot fail: the plan bounds how many messages can be under way. `post_many` is the same
 * for several; NULL: there is nothing to be gained by it. Where `flush` is not NULL, what was posted may stay
 * until the sender calls it, which it does when it has no more to post for now. `rests`: it has nothing else to do either,
 * and waits next as its mailbox_waiter does, which may go on with what is left. */
struct bus_end {
    void (*post)(struct bus_end *end, struct message message);
    void (*post_many)(struct bus_end *end, const struct message *messages, uint32_t count);
    void (*flush)(struct bus_end *end, bool rests);
};

struct bus {
    struct bus_end **ends; /* owned array, borrowed ends; by actor id */
    uint32_t actor_count;
};

weir_status bus_open(struct bus *bus, uint32_t actor_count);
void bus_close(struct bus *bus);

void bus_attach(struct bus *bus, uint32_t actor, struct bus_end *end);

static inline struct bus_end *bus_find(const struct bus *bus, uint32_t actor)
{
    return bus->ends[actor];
}

/* Whether one thread owns both actors. */
static inline bool bus_same(const struct bus *bus, uint32_t a, uint32_t b)
{
    return bus->ends[a] == bus->ends[b];
}

/* Sends to the actor, which is at that end of message.edge. Senders that send often keep the end instead. */
static inline void bus_post(const struct bus *bus, uint32_t actor, struct message message)
{
    struct bus_end *end = bus->ends[actor];
    end->post(end, message);
    if (end->flush)
        end->flush(end, false);
}

#endif
