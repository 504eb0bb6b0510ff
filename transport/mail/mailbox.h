/* transport/mail/mailbox.h: messages from other threads to one thread: a bounded ring with many senders and one owner.
 *
 *            tail (senders take tickets)              head (owner)
 *     cells  [ . . . . . m m m m . . . . ]            a cell that is 0 is empty
 *
 * A sender takes a ticket and stores its message, which is never 0, into the ticket's cell. The owner takes the
 * message at the head as soon as it is not 0 and puts 0 back. If a sender is slow between the two steps, the owner
 * cannot yet take messages with later tickets. The other senders never wait.
 *
 * The ring cannot be full: the plan bounds the messages that can be under way to an actor (each carries at least one
 * slot of an edge, and an edge has so many slots), and the session computes the capacity from that. It is asserted
 * where the owner looks at the tail anyway, before it sleeps: the tail is the senders' cache line.
 *
 * The ring may lie in memory that other processes see. Then their threads post too: each process has a struct mailbox of its
 * own for the ring; only the owner's takes messages. The owner checks what comes out of such a ring.
 *
 * Orders do not go through the ring. They are bits of a word that lies in this process's own memory, whatever the ring
 * lies in: so no other process can give one, and no order waits behind an empty cell whose sender was killed after it took the
 * ticket. The owner and those who give them agree on their meaning. The word lies on a line that the owner reads anyway when it
 * looks for a message, and that nobody writes to otherwise.
 *
 * The owner sleeps on a futex in the ring (mailbox_sleep()), or, when it has other things to wait for at the same time,
 * in a poll() with an eventfd in it that senders write to (mailbox_asleep()). `asleep` says which, so an owner may do now
 * one, now the other.
 *
 * Owner: the thread that takes; it also waits here. Any thread may post. Messages of one sender arrive in order.
 */
#ifndef TRANSPORT_MAIL_MAILBOX_H
#define TRANSPORT_MAIL_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <weir/base.h>

#include "graph/base/base.h"
#include "transport/mail/bus.h"
#include "transport/mail/spin.h"

/* CALLED: somebody has woken the owner, which has not run since. */
enum mailbox_rest { MAILBOX_AWAKE, MAILBOX_ASLEEP /* on the word */, MAILBOX_ELSEWHERE /* at event_fd */, MAILBOX_CALLED };

/* The part that all sides see. */
struct mailbox_ring {
    _Alignas(APART_BYTES) _Atomic uint32_t asleep; /* enum mailbox_rest: how the owner sleeps, or is about to */
    _Atomic uint32_t number;              /* of a ring that other processes see, for mailbox_ordered() */
    _Atomic int64_t called_ns;            /* when somebody last began to wake the owner */
    _Alignas(APART_BYTES) _Atomic uint64_t tail;   /* next ticket; apart: senders fight for it */
    _Alignas(APART_BYTES) _Atomic uint64_t cells[];
};

struct mailbox {
    _Alignas(APART_BYTES) struct bus_end end; /* first: what the bus sees */
    struct mailbox_ring *ring;
    _Atomic uint64_t *cells; /* the ring's */
    uint64_t mask;           /* of the index: capacity - 1 */
    int event_fd;            /* senders write to it when the owner sleeps elsewhere; borrowed; -1: it never does */
    bool shared;             /* other processes see the ring */
    bool owned;              /* the ring is freed with the mailbox */
    _Atomic uint32_t orders; /* given and not taken */
    _Alignas(APART_BYTES) uint64_t head; /* owner's, as all behind it */
    struct spin spin;        /* how long it spins before it sleeps */
    const struct mailbox_team *team; /* borrowed; NULL: its owner may run on any core */
    _Atomic int core;        /* on which the owner was seen last; owners of the team read it */
};

/* Owners that wait for each other, and have a core each. A kernel may put one that is woken behind one that spins, on one
 * core, and leave the other core idle for milliseconds. So an owner that spins gives way when another one has been called
 * and does not run after a wake-up's time; and one that wakes on the core of another moves to the next. */
struct mailbox_team {
    struct mailbox **members; /* borrowed */
    uint32_t count;
};

/* How an owner waits when it waits for more than its mailbox. Returns when there is a message or an order. */
struct mailbox_waiter {
    void (*wait)(struct mailbox_waiter *waiter, struct mailbox *mailbox);
};

/* Room for at least `capacity` messages under way. */
weir_status mailbox_open(struct mailbox *box, uint64_t capacity, struct spin spin);
void mailbox_close(struct mailbox *box);

/* The same in memory that other processes see, zeroed and aligned to APART_BYTES: mailbox_ring_bytes(capacity) of it. The
 * owner opens it first; senders give the same capacity. */
uint64_t mailbox_ring_bytes(uint64_t capacity);
void mailbox_share(struct mailbox *box, void *ring, uint64_t capacity, struct spin spin);

/* Whether the owner may sleep now, in a wait of its own that ends when event_fd is written to; if so it calls
 * mailbox_awake() after it. */
bool mailbox_asleep(struct mailbox *box);
void mailbox_awake(struct mailbox *box);

/* Any thread. Does not block. */
void mailbox_post(struct mailbox *box, struct message message);

/* Posts several in this order, at the price of one. Messages that share a cache line move it once. */
void mailbox_post_many(struct mailbox *box, const struct message *messages, uint32_t count);

/* The two halves of mailbox_post(): the message is there; the owner is woken if it sleeps. */
void mailbox_put(struct mailbox *box, struct message message);
void mailbox_call(struct mailbox *box);

/* Gives orders (bits), on top of those that have not been taken. A thread of the owner's process; does not block. An
 * owner of a shared ring is woken in any case: another process that had begun to wake it may have died over it. */
void mailbox_order(struct mailbox *box, uint32_t orders);

/* Owner only. Waits until there is a message or an order, at most until `deadline` (park_deadline()); false when it is
 * over. At rest: nobody needs it soon, so it spins no longer than a wake-up takes. */
bool mailbox_wait(struct mailbox *box, int64_t deadline);
void mailbox_wait_at_rest(struct mailbox *box);

/* Owner only. Sleeps at once, unless something has come or is about to; false when the deadline is over. */
bool mailbox_sleep(struct mailbox *box, int64_t deadline);

/* Owner only. Takes the orders. */
static inline uint32_t mailbox_orders(struct mailbox *box)
{
    /* relaxed: seldom there is one; acquire: pairs with the addition in mailbox_order() */
    return atomic_load_explicit(&box->orders, memory_order_relaxed)
               ? atomic_exchange_explicit(&box->orders, 0, memory_order_acquire)
               : 0;
}

/* Owner only. Whether a message or an order is there. Two loads from lines that stay in the owner's cache until
 * somebody writes to them. */
static inline bool mailbox_pending(const struct mailbox *box)
{
    /* acquire: pairs with the store in mailbox_put(). relaxed: mailbox_orders() takes them. Both are looked at without
     * a branch between them. */
    uint64_t word = atomic_load_explicit(&box->cells[box->head & box->mask], memory_order_acquire);
    return (word | atomic_load_explicit(&box->orders, memory_order_relaxed)) != 0;
}

/* ThreadSanitizer sees an order only at one address. Ranks that are threads of one process map a shared ring at two addresses:
 * there this function says that a post comes after earlier posts, and a take after all of them. */
#ifdef __SANITIZE_THREAD__
void mailbox_ordered(const struct mailbox *box);
#else
static inline void mailbox_ordered(const struct mailbox *box)
{
    (void)box;
}
#endif

/* Owner only. Takes the next message; false when there is none. */
static inline bool mailbox_take(struct mailbox *box, struct message *message)
{
    _Atomic uint64_t *cell = &box->cells[box->head & box->mask];
    uint64_t word = atomic_load_explicit(cell, memory_order_acquire); /* pairs with the store in mailbox_put() */
    if (!word)
        return false;
    mailbox_ordered(box);
    /* relaxed: whoever uses the cell next knows that it is empty through the messages that gave it the credit to
     * send */
    atomic_store_explicit(cell, 0, memory_order_relaxed);
    box->head++;
    *message = message_unpack(word);
    return true;
}

#endif
