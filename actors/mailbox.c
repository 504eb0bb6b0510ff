/* actors/mailbox.c: see the header.
 *
 * Why tickets: one fetch_add per message and no loop, so a sender is never delayed by others more than by the cache line's
 * travel. A linked list (Vyukov's MPSC queue) would need nodes; a lock would let a sender that lost its core stop all others.
 *
 * The exchange that stores a message is sequentially consistent because it is one half of a Dekker handshake with the owner
 * that goes to sleep:
 *
 *     sender: cell = message; read asleep          owner: asleep = 1; read cell
 *
 * At least one of them sees what the other wrote, so no message is slept through.
 */
#include "actors/mailbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "actors/park.h"
#include "graph/error.h"

#define CAPACITY_MAX (UINT64_C(1) << 40)
#define SPINS_PER_CLOCK 64 /* looks at the cell between two looks at the clock */

static void end_post(struct bus_end *end, struct message message)
{
    mailbox_post((struct mailbox *)end, message);
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
    /* acq_rel: orders this sender after all earlier ones, and with them after the takes that their credits came from; so the
     * cell is known to be empty (the bound on messages under way, by counting) */
    uint64_t ticket = atomic_fetch_add_explicit(&box->tail, 1, memory_order_acq_rel);
    /* pairs with the loads in mailbox_pending() and mailbox_take(), and with `asleep` in mailbox_sleep() */
    uint64_t old = atomic_exchange_explicit(&box->cells[ticket & box->mask], word, memory_order_seq_cst);
    assert(old == 0 && "the plan's bound on messages under way is wrong");
    (void)old;
    if (atomic_load_explicit(&box->asleep, memory_order_seq_cst)) { /* pairs with the store in mailbox_sleep() */
        atomic_store_explicit(&box->asleep, 0, memory_order_seq_cst);
        park_wake(&box->asleep);
    }
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
    atomic_store_explicit(&box->asleep, 1, memory_order_seq_cst); /* pairs with the load in mailbox_post() */
    bool in_time = true;
    /* seq_cst: the other half of the handshake, pairs with the exchange in mailbox_post() */
    if (!atomic_load_explicit(&box->cells[box->head & box->mask], memory_order_seq_cst))
        in_time = park_wait(&box->asleep, 1, deadline);
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
