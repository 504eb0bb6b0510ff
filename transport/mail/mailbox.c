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
 * The messages of a worker to another go as one: for a step of four columns that each read all (weir bench actors) that are
 * eight messages, one cache line, and the step took 210 ns rather than 310. Taken without effect: a bit for the lap in each
 * message, so that the owner need not put zeros back (208 to 215 ns).
 */
#define _GNU_SOURCE
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
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

#define CAPACITY_MAX (UINT64_C(1) << 40)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SPINS_PER_CLOCK 64 /* looks at the cell between two looks at the clock */

static void end_post(struct bus_end *end, struct message message)
{
    mailbox_post((struct mailbox *)end, message);
}

static void end_post_many(struct bus_end *end, const struct message *messages, uint32_t count)
{
    mailbox_post_many((struct mailbox *)end, messages, count);
}

static bool is_asleep(uint32_t rest)
{
    return rest == MAILBOX_ASLEEP || rest == MAILBOX_ELSEWHERE;
}

/* Whether the owner was asleep, and nobody else has called it: `*rest` is how it sleeps. */
static bool call_owner(struct mailbox_ring *ring, uint32_t *rest)
{
    *rest = atomic_load_explicit(&ring->asleep, memory_order_relaxed);
    if (!is_asleep(*rest))
        return false;
    /* relaxed: the owner reads it behind the wake-up; one that it reads too early is from before its sleep */
    atomic_store_explicit(&ring->called_ns, park_now_ns(), memory_order_relaxed);
    /* seq_cst: before the wake-up, after which the owner may set it again; as an acquire it pairs with the store in
     * fall_asleep(), before which the owner set event_fd */
    while (!atomic_compare_exchange_weak_explicit(&ring->asleep, rest, MAILBOX_CALLED, memory_order_seq_cst,
                                                  memory_order_relaxed))
        if (!is_asleep(*rest))
            return false;
    return true;
}

/* `again`: also an owner that has been called. Kept out of mailbox_post(): a system call is not worth its registers there. */
static __attribute__((noinline, cold)) void mailbox_wake(struct mailbox *box, bool again)
{
    uint32_t rest;
    if (!call_owner(box->ring, &rest) && !again)
        return;
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

static void mailbox_init(struct mailbox *box, struct mailbox_ring *ring, uint64_t capacity, struct spin spin)
{
    *box = (struct mailbox){.end = {.post = end_post, .post_many = end_post_many},
                            .ring = ring,
                            .cells = ring->cells,
                            .mask = ring_size(capacity) - 1,
                            .event_fd = -1,
                            .spin = spin};
}

weir_status mailbox_open(struct mailbox *box, uint64_t capacity, struct spin spin)
{
    uint64_t bytes = (mailbox_ring_bytes(capacity) + APART_BYTES - 1) / APART_BYTES * APART_BYTES;
    struct mailbox_ring *ring = capacity < CAPACITY_MAX ? aligned_alloc(APART_BYTES, bytes) : NULL;
    memset(box, 0, sizeof(*box));
    if (!ring)
        return error_set(WEIR_E_MEMORY, "no memory for a mailbox of %llu messages", (unsigned long long)capacity);
    memset((void *)ring, 0, bytes);
    mailbox_init(box, ring, capacity, spin);
    box->owned = true;
    return WEIR_OK;
}

void mailbox_share(struct mailbox *box, void *ring, uint64_t capacity, struct spin spin)
{
    mailbox_init(box, ring, capacity, spin);
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
        mailbox_wake(box, false);
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
        mailbox_wake(box, true);
    else
        mailbox_call(box);
}

/* ---- a team ---- */

/* Whether one has been called and does not run. relaxed: it is a hint. */
static bool team_awaits(const struct mailbox *box)
{
    for (uint32_t i = 0; i < box->team->count; i++)
        if (atomic_load_explicit(&box->team->members[i]->ring->asleep, memory_order_relaxed) == MAILBOX_CALLED)
            return true;
    return false;
}

static void team_tell_core(struct mailbox *box)
{
    atomic_store_explicit(&box->core, sched_getcpu(), memory_order_relaxed);
}

/* The owner has just been woken: moves it where another one that is awake was on the same core. */
static void team_spread(struct mailbox *box)
{
    const int core = sched_getcpu();
    atomic_store_explicit(&box->core, core, memory_order_relaxed);
    for (uint32_t i = 0; i < box->team->count; i++) {
        const struct mailbox *other = box->team->members[i];
        if (other == box || atomic_load_explicit(&other->core, memory_order_relaxed) != core ||
            atomic_load_explicit(&other->ring->asleep, memory_order_relaxed) != MAILBOX_AWAKE)
            continue;
        cores_leave(core);
        team_tell_core(box);
        return;
    }
}

/* ---- waiting ---- */

/* Looks for a message or an order until `end`. */
static bool mailbox_spin(struct mailbox *box, int64_t start, int64_t end)
{
    int64_t yield = start + SPIN_YIELD_NS;
    for (int64_t now = start; now < end; now = park_now_ns()) {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (mailbox_pending(box))
                return true;
            park_pause();
        }
        if (box->team)
            team_tell_core(box);
        if (now >= yield || (box->team && now - start > box->spin.wake_ns && team_awaits(box))) {
            sched_yield();
            yield = now + SPIN_YIELD_NS;
        }
    }
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

static bool wait_as(struct mailbox *box, struct spin *spin, int64_t deadline)
{
    while (!mailbox_pending(box)) {
        int64_t start = park_now_ns(), end = spin_until(spin, start);
        if (mailbox_spin(box, start, end < deadline ? end : deadline)) {
            spin_met(spin);
            return true;
        }
        if (!mailbox_sleep(box, deadline))
            return mailbox_pending(box);
        /* relaxed: the sleep ended behind the store */
        spin_slept(spin, start, atomic_load_explicit(&box->ring->called_ns, memory_order_relaxed), park_now_ns());
        if (box->team)
            team_spread(box);
    }
    return true;
}

bool mailbox_wait(struct mailbox *box, int64_t deadline)
{
    return wait_as(box, &box->spin, deadline);
}

void mailbox_wait_at_rest(struct mailbox *box)
{
    struct spin least = spin_fixed(box->spin.least_ns);
    wait_as(box, &least, PARK_FOREVER);
}
