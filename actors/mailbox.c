/* actors/mailbox.c: see the header.
 *
 * Why tickets: one fetch_add per message and no loop, so a sender is never delayed by others more than by the cache
 * line's travel. A linked list (Vyukov's MPSC queue) would need nodes; a lock would let a sender that lost its core
 * stop all others.
 *
 * Taking the ticket is sequentially consistent because it is one half of a Dekker handshake with the owner that goes
 * to sleep:
 *
 *     sender: take a ticket; read asleep          owner: asleep = 1; read the next ticket
 *
 * At least one of them sees what the other wrote, so no message is slept through. An owner that sees a ticket taken
 * whose message is not there yet gives up its core for a moment rather than sleep. The message itself then needs no
 * fence.
 */
#include "actors/mailbox.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "actors/park.h"
#include "graph/error.h"

#define CAPACITY_MAX (UINT64_C(1) << 40)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SPINS_PER_CLOCK 64 /* looks at the cell between two looks at the clock */

static void end_post(struct bus_end *end, struct message message)
{
    mailbox_post((struct mailbox *)end, message);
}

/* Kept out of mailbox_post(): a system call is not worth its registers there. */
static __attribute__((noinline, cold)) void mailbox_wake(struct mailbox *box)
{
    atomic_store_explicit(&box->asleep, 0, memory_order_seq_cst);
    park_wake(&box->asleep);
}

weir_status mailbox_open(struct mailbox *box, uint64_t capacity, int64_t spin_ns)
{
    uint64_t size = 8;
    while (size < capacity && size < CAPACITY_MAX)
        size *= 2;
    memset(box, 0, sizeof(*box));
    box->end.post = end_post;
    box->mask = size - 1;
    box->spin_ns = spin_ns;
    box->cells = capacity < CAPACITY_MAX ? aligned_alloc(64, size * sizeof(*box->cells)) : NULL;
    if (!box->cells)
        return error_set(WEIR_E_MEMORY, "no memory for a mailbox of %llu messages", (unsigned long long)capacity);
    memset((void *)box->cells, 0, size * sizeof(*box->cells));
    return WEIR_OK;
}

void mailbox_close(struct mailbox *box)
{
    free((void *)box->cells);
    box->cells = NULL;
}

void mailbox_post(struct mailbox *box, struct message message)
{
    uint64_t word = message_pack(message);
    assert(word != 0);
    /* seq_cst: pairs with the load in mailbox_sleep(). It also orders this sender after all earlier ones, and with
     * them after the takes that their credits came from; so the cell is known to be empty (the bound on messages, by
     * counting). */
    uint64_t ticket = atomic_fetch_add_explicit(&box->tail, 1, memory_order_seq_cst);
    /* release: pairs with the loads in mailbox_pending() and mailbox_take() */
    atomic_store_explicit(&box->cells[ticket & box->mask], word, memory_order_release);
    /* seq_cst: pairs with the store in mailbox_sleep() */
    if (UNLIKELY(atomic_load_explicit(&box->asleep, memory_order_seq_cst)))
        mailbox_wake(box);
}

/* Looks for a message for as long as the budget lasts. */
static bool mailbox_spin(const struct mailbox *box)
{
    if (box->spin_ns <= 0)
        return false;
    int64_t end = park_now_ns() + box->spin_ns;
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (mailbox_pending(box))
                return true;
            park_pause();
        }
    } while (park_now_ns() < end);
    return false;
}

/* Sleeps unless a message has come meanwhile; false when the deadline is over. */
static bool mailbox_sleep(struct mailbox *box, int64_t deadline)
{
    bool in_time = true;
    atomic_store_explicit(&box->asleep, 1, memory_order_seq_cst); /* pairs with the load in mailbox_post() */
    /* seq_cst: the other half of the handshake, pairs with the ticket in mailbox_post() */
    uint64_t tail = atomic_load_explicit(&box->tail, memory_order_seq_cst);
    assert(tail - box->head <= box->mask + 1 && "the plan's bound on messages under way is wrong");
    if (tail == box->head)
        in_time = park_wait(&box->asleep, 1, deadline);
    else if (!mailbox_pending(box))
        sched_yield(); /* the sender is between its two steps */
    atomic_store_explicit(&box->asleep, 0, memory_order_relaxed);
    return in_time;
}

bool mailbox_wait(struct mailbox *box, int64_t deadline)
{
    while (!mailbox_pending(box) && !mailbox_spin(box))
        if (!mailbox_sleep(box, deadline))
            return mailbox_pending(box);
    return true;
}
