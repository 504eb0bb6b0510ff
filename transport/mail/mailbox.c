/* transport/mail/mailbox.c: see the header.
 *
 * Why tickets: one fetch_add per message and no loop, so a sender is never delayed by others more than by the cache
 * line's travel. A linked list (Vyukov's MPSC queue) would need nodes; a lock would let a sender that lost its core
 * stop all others.
 *
 * Taking the ticket is sequentially consistent because it is one half of a Dekker handshake with the owner that goes
 * to sleep:
 *
 *     sender: take a ticket or set an order; read asleep     owner: asleep = 1; read the next ticket and the orders
 *
 * At least one of them sees what the other wrote, so nothing is slept through. An owner that sees a ticket taken
 * whose message is not there yet gives up its core for a moment rather than sleep. The message itself then needs no
 * fence.
 *
 * Two threads that wait for each other in turn, and each spin for just one wake-up, can keep putting each other to
 * sleep: the one that was woken comes a wake-up late, so the other waits for as long, gives up, and is woken late
 * itself. (Two columns of 44 us of which one firing in five takes 25 us longer: 58 us a step with 0.3 sleeps, where 53
 * are needed.) So an owner that was woken within SPIN_LONG wake-ups is *patient*: its next spins are that long, until
 * one of them was in vain and the sleep after it a long one. Then it is 53 us and one sleep in a hundred steps, for
 * less time of the processor; and who waits for long sleeps as before, after at most SPIN_LONG wake-ups.
 *
 * The messages of a worker to another go as one: for a step of four columns that each read all (weir bench actors) that are
 * eight messages, one cache line, and the step took 210 ns rather than 310. Taken without effect: a bit for the lap in each
 * message, so that the owner need not put zeros back (208 to 215 ns).
 */
#include "transport/mail/mailbox.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "graph/base/error.h"
#include "transport/mail/park.h"

#define CAPACITY_MAX (UINT64_C(1) << 40)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SPIN_LONG 4 /* times a wake-up: what an owner spins that has been woken soon */
#define SPINS_PER_CLOCK 64 /* looks at the cell between two looks at the clock */

static void end_post(struct bus_end *end, struct message message)
{
    mailbox_post((struct mailbox *)end, message);
}

static void end_post_many(struct bus_end *end, const struct message *messages, uint32_t count)
{
    mailbox_post_many((struct mailbox *)end, messages, count);
}

/* Kept out of mailbox_post(): a system call is not worth its registers there. */
static __attribute__((noinline, cold)) void mailbox_wake(struct mailbox *box)
{
    /* seq_cst: before the wake-up, after which the owner may set it again; as an acquire it pairs with the store in
     * fall_asleep(), before which the owner set event_fd */
    uint32_t rest = atomic_exchange_explicit(&box->ring->asleep, MAILBOX_AWAKE, memory_order_seq_cst);
    if (rest == MAILBOX_ELSEWHERE && box->event_fd >= 0) {
        uint64_t one = 1;
        if (write(box->event_fd, &one, sizeof(one)) < 0)
            return; /* the counter is full: it is readable already */
    } else if (box->shared) {
        park_wake_shared(&box->ring->asleep);
    } else {
        park_wake(&box->ring->asleep);
    }
}

static uint64_t ring_size(uint64_t capacity)
{
    uint64_t size = 8;
    while (size < capacity && size < CAPACITY_MAX)
        size *= 2;
    return size;
}

uint64_t mailbox_ring_bytes(uint64_t capacity)
{
    return sizeof(struct mailbox_ring) + ring_size(capacity) * sizeof(uint64_t);
}

static void mailbox_init(struct mailbox *box, struct mailbox_ring *ring, uint64_t capacity, int64_t spin_ns)
{
    *box = (struct mailbox){.end = {.post = end_post, .post_many = end_post_many},
                            .ring = ring,
                            .cells = ring->cells,
                            .mask = ring_size(capacity) - 1,
                            .spin_ns = spin_ns,
                            .event_fd = -1};
}

weir_status mailbox_open(struct mailbox *box, uint64_t capacity, int64_t spin_ns)
{
    uint64_t bytes = (mailbox_ring_bytes(capacity) + 63) / 64 * 64;
    struct mailbox_ring *ring = capacity < CAPACITY_MAX ? aligned_alloc(64, bytes) : NULL;
    memset(box, 0, sizeof(*box));
    if (!ring)
        return error_set(WEIR_E_MEMORY, "no memory for a mailbox of %llu messages", (unsigned long long)capacity);
    memset((void *)ring, 0, bytes);
    mailbox_init(box, ring, capacity, spin_ns);
    box->owned = true;
    return WEIR_OK;
}

void mailbox_share(struct mailbox *box, void *ring, uint64_t capacity, int64_t spin_ns)
{
    mailbox_init(box, ring, capacity, spin_ns);
    box->shared = true;
#ifdef __SANITIZE_THREAD__
    static _Atomic uint32_t rings;
    if (!box->ring->number) /* the owner's is the first */
        box->ring->number = ++rings;
#endif
}

#ifdef __SANITIZE_THREAD__
void mailbox_ordered(const struct mailbox *box)
{
    static char places[1 << 16];
    if (!box->shared)
        return;
    char *place = &places[box->ring->number % sizeof(places)];
    __tsan_acquire(place);
    __tsan_release(place);
}
#endif

void mailbox_close(struct mailbox *box)
{
    if (box->owned)
        free((void *)box->ring);
    memset(box, 0, sizeof(*box));
}

static inline void cell_store(struct mailbox *box, uint64_t ticket, struct message message)
{
    uint64_t word = message_pack(message);
    assert(word != 0);
    /* release: pairs with the loads in mailbox_pending() and mailbox_take() */
    atomic_store_explicit(&box->cells[ticket & box->mask], word, memory_order_release);
}

void mailbox_put(struct mailbox *box, struct message message)
{
    mailbox_ordered(box);
    /* seq_cst: pairs with the load in fall_asleep(). It also orders this sender after all earlier ones, and with
     * them after the takes that their credits came from; so the cell is known to be empty (the bound on messages, by
     * counting). */
    uint64_t ticket = atomic_fetch_add_explicit(&box->ring->tail, 1, memory_order_seq_cst);
    cell_store(box, ticket, message);
}

void mailbox_call(struct mailbox *box)
{
    /* seq_cst: pairs with the store in fall_asleep() */
    if (UNLIKELY(atomic_load_explicit(&box->ring->asleep, memory_order_seq_cst)))
        mailbox_wake(box);
}

void mailbox_post(struct mailbox *box, struct message message)
{
    mailbox_put(box, message);
    mailbox_call(box);
}

void mailbox_post_many(struct mailbox *box, const struct message *messages, uint32_t count)
{
    mailbox_ordered(box);
    /* seq_cst, release: as in mailbox_put() */
    uint64_t ticket = atomic_fetch_add_explicit(&box->ring->tail, count, memory_order_seq_cst);
    for (uint32_t i = 0; i < count; i++)
        cell_store(box, ticket + i, messages[i]);
    mailbox_call(box);
}

void mailbox_order(struct mailbox *box, uint32_t orders)
{
    /* seq_cst: pairs with the load in fall_asleep(); as a release with the exchange in mailbox_orders() */
    atomic_fetch_or_explicit(&box->orders, orders, memory_order_seq_cst);
    if (box->shared)
        mailbox_wake(box);
    else
        mailbox_call(box);
}

/* Looks for a message or an order for as long as the budget lasts. */
static bool mailbox_spin(const struct mailbox *box, int64_t start)
{
    if (box->spin_ns <= 0)
        return false;
    int64_t end = start + box->spin_ns * (box->patient ? SPIN_LONG : 1);
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (mailbox_pending(box))
                return true;
            park_pause();
        }
    } while (park_now_ns() < end);
    return false;
}

static bool fall_asleep(struct mailbox *box, enum mailbox_rest rest)
{
    atomic_store_explicit(&box->ring->asleep, rest, memory_order_seq_cst); /* pairs with the load in mailbox_call() */
    /* seq_cst: the other half of the handshake, pairs with the ticket in mailbox_put() and with mailbox_order() */
    uint64_t tail = atomic_load_explicit(&box->ring->tail, memory_order_seq_cst);
    bool ordered = atomic_load_explicit(&box->orders, memory_order_seq_cst) != 0;
    assert((box->shared || tail - box->head <= box->mask + 1) && "the plan's bound on messages under way is wrong");
    if (tail == box->head && !ordered)
        return true;
    if (!mailbox_pending(box))
        sched_yield(); /* the sender is between its two steps */
    mailbox_awake(box);
    return false;
}

bool mailbox_asleep(struct mailbox *box)
{
    return fall_asleep(box, MAILBOX_ELSEWHERE);
}

void mailbox_awake(struct mailbox *box)
{
    atomic_store_explicit(&box->ring->asleep, MAILBOX_AWAKE, memory_order_relaxed);
}

bool mailbox_sleep(struct mailbox *box, int64_t deadline)
{
    if (!fall_asleep(box, MAILBOX_ASLEEP))
        return deadline == PARK_FOREVER || park_now_ns() < deadline;
    bool in_time = box->shared ? park_wait_shared(&box->ring->asleep, MAILBOX_ASLEEP, deadline)
                               : park_wait(&box->ring->asleep, MAILBOX_ASLEEP, deadline);
    mailbox_awake(box);
    return in_time;
}

/* After a sleep: whether it could have been spared by a long spin. The wake-up itself takes about spin_ns. */
static void learn_patience(struct mailbox *box, int64_t start)
{
    box->patient = park_now_ns() - start < (SPIN_LONG + 1) * box->spin_ns;
}

bool mailbox_wait(struct mailbox *box, int64_t deadline)
{
    while (!mailbox_pending(box)) {
        int64_t start = park_now_ns();
        if (mailbox_spin(box, start))
            return true;
        if (!mailbox_sleep(box, deadline))
            return mailbox_pending(box);
        learn_patience(box, start);
    }
    return true;
}
