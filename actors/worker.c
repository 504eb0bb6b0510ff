/* actors/worker.c: the loop, its clock and its orders. See the header.
 *
 * Two other ways were tried for the outbox. Sending before every firing: a step of columns (weir bench actors) becomes
 * shorter where cores share a cache (stencil 183 to 164 ns) and longer where they do not (417 to 453 ns; a chain's 8 to 11
 * ns). Looking at the clock after every row of two firings or more, or whenever there is nothing to fire: the step of fan2
 * goes from 108 to 137 ns, as that is just when an answer comes.
 *
 * The inner loop looks at the mailbox before each firing, for messages and for orders: two loads of lines that are in
 * the cache as long as nobody writes to them. A message that makes a better actor ready is thus never later than one
 * firing.
 */
#define _GNU_SOURCE
#include "actors/worker.h"

#include <sched.h>
#include <stdlib.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"

#define LONG_NS 300            /* a message does not wait for a firing that takes longer: about what sending it costs */
#define MERGE_NS 2000          /* nor for rows that take longer together, at the most */
#define ROW_NS 1000            /* firings in a row of one actor before the worker chooses again */
#define ROW_MAX 64             /* also of the shortest */
#define ROW_LONG 8             /* after such a row the clock is looked at: 25 ns, which two firings are not worth */
#define PACE_NS 2000           /* a row of firings that takes longer is a slow one */
#define PACE_EVERY 16          /* rows between two looks at the clock */
#define CHEAP_NS 1000          /* a firing that takes longer is measured each time */
#define CLOCK_EVERY 256        /* one of so many cheap firings is measured */
#define NAP_NS 20000           /* sleeps while a device works: at first, */
#define NAP_MAX_NS 200000      /* and after some of them, each twice as long as the one before */
#define HEALTH_NS 1000000      /* between two questions whether its queues are well */
#define COST_MAX_NS 1000000000 /* fits the counters; a second is long enough to be long */

/* Has a copy in worker_run()'s loop and one in worker_turn(): a call would cost 20 instructions a firing. */
#define IN_LOOP static inline __attribute__((always_inline))

/* The forecast of the last measured firing for those to come. */
static void learn_cost(struct actor *actor, int64_t ns, bool all_clocked)
{
    bool cheap = ns <= CHEAP_NS && !all_clocked && !actor->foreign;
    actor->cost_ns = (uint32_t)(ns < 1 ? 1 : ns < COST_MAX_NS && !actor->foreign ? ns : COST_MAX_NS);
    actor->unclocked = cheap ? CLOCK_EVERY - 1 : 0;
    uint32_t row = ROW_NS / actor->cost_ns + 1;
    actor->row = !cheap ? 1 : row < ROW_MAX ? row : ROW_MAX;
}

/* Looks whether the rows since the last time were slow, the waits between them included. */
static void worker_pace(struct worker *worker, int64_t now)
{
    worker->slow = now - worker->paced_ns > (int64_t)worker->rows * PACE_NS;
    worker->paced_ns = now;
    worker->rows = 0;
}

/* One firing with the clock running: learns what it costs, counts it as busy, records it. */
IN_LOOP weir_status fire_clocked(struct worker *worker, struct actor *actor, struct actor_kernel **failed)
{
    weir_status status;
    struct trace_event event = {.step = actor->step, .micro = actor->micro, .actor = actor->id};
    int64_t unmeasured = actor->firing - actor->measured;
    event.start_ns = park_now_ns();
    actor_fire(actor, 1, &status, failed);
    event.ns = park_now_ns() - event.start_ns;
    if (actor->ahead) { /* that was the launch; what it cost the device is known later */
        learn_cost(actor, event.ns, false);
        return status;
    }
    if (actor->cost_ns <= CHEAP_NS && !worker->trace.events)
        actor->busy_ns += (int64_t)actor->cost_ns * unmeasured;
    actor->busy_ns += event.ns;
    actor->measured = actor->firing;
    learn_cost(actor, event.ns, worker->trace.events != NULL);
    if (worker->trace.events)
        trace_add(&worker->trace, event);
    return status;
}

/* Sends what is unsent if the next row would make it wait too long, or nobody knows how long. A message over the wire waits a
 * little also when the pace is slow: sending is what makes it slow, and several cost as much as one. */
static inline void flush_before(struct worker *worker, const struct actor *actor)
{
    if (!worker->lane.outbox.count) {
        worker->waited_ns = 0;
        return;
    }
    worker->waited_ns += (int64_t)actor->cost_ns * (worker->slow ? 1 : actor->row);
    if (worker->waited_ns > MERGE_NS || actor->cost_ns > LONG_NS || (worker->slow && !worker->lane.waiter)) {
        lane_flush(&worker->lane, false);
        worker->waited_ns = 0;
    }
}

/* A row of firings by what is known of their length. */
IN_LOOP weir_status fire_row(struct worker *worker, struct actor *actor, struct actor_kernel **failed)
{
    weir_status status;
    uint32_t most = actor->row < actor->unclocked ? actor->row : actor->unclocked;
    uint32_t count = actor_fire(actor, most, &status, failed);
    actor->unclocked -= count;
    if (count >= ROW_LONG && worker->lane.outbox.room)
        worker_pace(worker, park_now_ns());
    return status;
}

static bool worker_ask_health(struct worker *worker);

/* The sentence is the next failure's again. A device that has failed refuses what comes later, which is not the cause. */
static __attribute__((noinline)) void worker_failed(struct worker *worker, const struct actor *actor,
                                                    const struct actor_kernel *kernel, weir_status status)
{
    if (actor->ahead && worker_ask_health(worker))
        worker->flight.failed = true;
    else if (worker->owner->failed(worker->owner, actor, kernel, status, worker->error))
        worker->halted = worker->flight.failed = true;
    worker->error[0] = 0;
}

IN_LOOP void worker_fire(struct worker *worker, struct actor *actor)
{
    struct actor_kernel *failed = NULL;
    weir_status status;
    worker->rows++;
    flush_before(worker, actor);
    flight_record(&worker->flight, actor->id, actor->firing);
    if (LIKELY(actor->unclocked && !worker->slow))
        status = fire_row(worker, actor, &failed);
    else
        status = fire_clocked(worker, actor, &failed);
    if (UNLIKELY(status)) {
        worker_failed(worker, actor, failed, status);
        return;
    }
    worker->running -= actor->left == 0;
    if (UNLIKELY(worker->rows >= PACE_EVERY))
        worker_pace(worker, park_now_ns());
}

/* Whether the actor belongs to the program that runs. */
static bool takes_part(const struct worker *worker, const struct actor *actor)
{
    return actor->program == worker->owner->program;
}

static void actor_begin(struct actor *actor, const struct worker_owner *owner)
{
    if (owner->begins_at >= 0) {
        assert(actor->micro == 0);
        actor->step = owner->begins_at;
        actor->firing = actor->run_start = actor->measured = actor->step * actor->fires;
    }
    /* relaxed: START published it. Another worker's source may have ended the run since, before its first step. */
    actor_allow(actor, actor->fires * atomic_load_explicit(&owner->limit, memory_order_relaxed));
}

/* A run begins: every actor of the program gets its firings. */
static void worker_begin(struct worker *worker)
{
    flight_begin(&worker->flight, worker->owner->steps_end);
    worker->running = 0;
    worker->reported = worker->held = false;
    for (uint32_t i = 0; i < worker->actor_count; i++) {
        struct actor *actor = worker->by_rank[i];
        assert(actor->left == 0);
        actor->run_start = actor->measured = actor->firing;
        actor->busy_ns = 0;
        if (!takes_part(worker, actor))
            continue;
        actor_begin(actor, worker->owner);
        worker->running += actor->left > 0;
    }
}

/* Every actor goes up to so many steps of this run: one that was held may go on, one that is there stands. */
static void worker_allow(struct worker *worker, int64_t steps)
{
    for (uint32_t i = 0; i < worker->actor_count; i++) {
        struct actor *actor = worker->by_rank[i];
        if (!takes_part(worker, actor))
            continue;
        int64_t left = actor->fires * steps - (actor->firing - actor->run_start);
        worker->running -= actor->left > 0;
        actor_allow(actor, left > 0 ? left : 0);
        worker->running += actor->left > 0;
    }
}

/* The step in which an actor stands counts when it has begun to fire in it. */
static int64_t steps_begun(const struct worker *worker)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < worker->actor_count; i++) {
        const struct actor *actor = worker->by_rank[i];
        int64_t steps = (actor->firing - actor->run_start + actor->fires - 1) / actor->fires;
        most = steps > most ? steps : most;
    }
    return most;
}

static void worker_hold(struct worker *worker)
{
    bool again = worker->reported;
    worker->held = true;
    worker->reported = false;
    worker->begun = steps_begun(worker);
    worker->running++; /* it is not done */
    worker_allow(worker, worker->begun);
    worker->owner->held(worker->owner, worker->begun, again);
}

/* A worker that is done has nothing to change; and the owner may be about to begin the next run. */
static void worker_limit(struct worker *worker)
{
    const struct worker_owner *owner = worker->owner;
    if (worker->reported)
        return;
    /* relaxed: the order published them; what has changed since comes with another one */
    int64_t limit = atomic_load_explicit(&owner->limit, memory_order_relaxed);
    if (worker->held && !atomic_load_explicit(&owner->hold, memory_order_relaxed)) {
        worker->held = false;
        worker->running--;
    }
    flight_begin(&worker->flight, owner->steps_end - owner->steps + limit);
    worker_allow(worker, worker->held && worker->begun < limit ? worker->begun : limit);
}

/* Changes the firings that are left. */
static void worker_obey_run(struct worker *worker, uint32_t orders)
{
    if (orders & LANE_START)
        worker_begin(worker);
    if (orders & LANE_HOLD)
        worker_hold(worker);
    if (orders & LANE_LIMIT)
        worker_limit(worker);
}

/* False: it is stopped, or is to share its thread. */
static bool worker_obey(struct worker *worker)
{
    uint32_t orders = mailbox_orders(&worker->lane.mailbox);
    if (orders & LANE_FAIL && !worker->heard) {
        worker->halted = worker->heard = true;
        ahead_abort(&worker->ahead);
        worker->owner->halted(worker->owner);
    }
    if (!worker->halted)
        worker_obey_run(worker, orders);
    if (orders & LANE_ASK)
        worker->owner->asked(worker->owner);
    if (orders & LANE_LOOK)
        worker->owner->look(worker->owner, worker->number);
    worker->stopped |= (orders & LANE_STOP) != 0;
    return !(orders & (LANE_STOP | LANE_JOIN));
}

/* Something has passed. */
static void worker_passed(struct worker *worker)
{
    struct actor_kernel *kernel;
    weir_refusal refusal;
    const struct ahead_launch *launch = ahead_refused(&worker->ahead, &kernel, &refusal);
    flight_passed(&worker->flight);
    if (LIKELY(!launch))
        return;
    worker->halted = true;
    worker->owner->refused(worker->owner, launch->actor, kernel, launch->firing, &refusal);
}

/* For queues that run ahead: takes in what has passed. The first in turn without room for a mark waits for one. */
static void worker_look_ahead(struct worker *worker)
{
    uint32_t rank;
    if (ahead_poll(&worker->ahead, worker->trace.events ? &worker->trace : NULL))
        worker_passed(worker);
    while ((rank = ready_first(&worker->lane.ready)) != READY_NONE && ahead_crowds(worker->by_rank[rank]))
        continue;
}

/* Its queues had something to do all the time: are they well? True: they are not, and the worker has halted. */
static bool worker_ask_health(struct worker *worker)
{
    char error[sizeof(worker->error)] = "";
    weir_status status = WEIR_OK;
    const struct ahead_queue *unwell = ahead_unwell(&worker->ahead, &status, error, sizeof(error));
    if (!unwell)
        return false;
    worker_look_ahead(worker); /* what has passed until then is not under way */
    if (ahead_under_way(unwell, 0) && !worker->halted)
        worker->halted = worker->owner->failed(worker->owner, ahead_under_way(unwell, 0)->actor, NULL, status, error);
    return worker->halted;
}

/* Nothing to fire while devices work: until a mark passes, or something comes. */
static void worker_await_device(struct worker *worker)
{
    struct mailbox *mailbox = &worker->lane.mailbox;
    int64_t now = park_now_ns(), spun = spin_until(&mailbox->spin, now);
    if (now - worker->asked_ns >= HEALTH_NS) {
        worker->asked_ns = now;
        worker_ask_health(worker);
        sched_yield(); /* one that always spins comes by here, too */
    }
    for (; now < spun; now = park_now_ns()) {
        if (mailbox_pending(mailbox) || ahead_passed(&worker->ahead) || now - worker->asked_ns >= HEALTH_NS)
            return; /* and comes again */
        park_pause();
    }
    for (int64_t nap = NAP_NS; !worker->halted; nap = nap < NAP_MAX_NS ? 2 * nap : nap) {
        mailbox_sleep(mailbox, now + nap);
        if (mailbox_pending(mailbox) || ahead_passed(&worker->ahead))
            return;
        now = park_now_ns();
        if (now - worker->asked_ns >= HEALTH_NS)
            return; /* and comes again */
    }
}

/* The run is over for it. */
static void worker_done(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->actor_count; i++)
        actor_check(worker->by_rank[i]);
    worker->reported = true;
    worker->owner->done(worker->owner);
}

static inline bool worker_is_done(const struct worker *worker)
{
    return !worker->running && !worker->reported && !worker->halted;
}

/* Nothing to fire. */
static void worker_idle(struct worker *worker)
{
    lane_flush(&worker->lane, worker->lane.waiter && !worker->ahead.count);
    if (!worker->halted && !ahead_rests(&worker->ahead)) {
        worker_await_device(worker);
        return;
    }
    if (worker_is_done(worker))
        worker_done(worker);
    if (worker->lane.waiter)
        worker->lane.waiter->wait(worker->lane.waiter, &worker->lane.mailbox);
    else if (worker->reported)
        mailbox_wait_at_rest(&worker->lane.mailbox);
    else
        mailbox_wait(&worker->lane.mailbox, PARK_FOREVER);
}

/* Something has come. When the session has failed, counters stay as they are: the report of who waited for whom looks
 * at them from another thread. So messages are dropped then, one at a time, for whoever broke the session may go on
 * posting. False: it is stopped, or is to share its thread. */
static __attribute__((noinline)) bool worker_hear(struct worker *worker)
{
    struct message dropped;
    if (UNLIKELY(worker->halted))
        mailbox_take(&worker->lane.mailbox, &dropped);
    else
        lane_drain(&worker->lane, worker->ends);
    return worker_obey(worker);
}

static void worker_loop(struct worker *worker)
{
    struct lane *lane = &worker->lane;
    for (;;) {
        if (UNLIKELY(mailbox_pending(&lane->mailbox)) && !worker_hear(worker))
            return;
        if (UNLIKELY(worker->ahead.count) && !worker->halted)
            worker_look_ahead(worker);
        uint32_t rank = ready_first(&lane->ready);
        if (LIKELY(rank != READY_NONE && !worker->halted))
            worker_fire(worker, worker->by_rank[rank]);
        else
            worker_idle(worker);
    }
}

static void worker_open(struct worker *worker)
{
    worker->opened = true;
    weir_status status = worker->owner->open(worker->owner, worker->number);
    if (!status)
        return;
    worker->halted = true;
    worker->owner->failed(worker->owner, NULL, NULL, status, weir_error());
}

void worker_run(struct worker *worker)
{
    if (!worker->opened)
        worker_open(worker);
    worker_loop(worker);
    if (worker->stopped && !worker->heard && !ahead_rests(&worker->ahead))
        ahead_abort(&worker->ahead);
}

/* Messages that are unsent at its end are sent: others' turns may take long. */
bool worker_turn(struct worker *worker)
{
    struct lane *lane = &worker->lane;
    bool busy = !worker->opened;
    assert(!worker->ahead.count);
    if (!worker->opened)
        worker_open(worker);
    for (int i = 0; i < WORKER_TURN; i++) {
        bool heard = mailbox_pending(&lane->mailbox);
        if (heard)
            worker_hear(worker);
        uint32_t rank = worker->halted ? READY_NONE : ready_first(&lane->ready);
        busy |= heard || rank != READY_NONE;
        if (worker->stopped || (rank == READY_NONE && !heard))
            break;
        if (rank != READY_NONE)
            worker_fire(worker, worker->by_rank[rank]);
    }
    lane_flush(lane, false);
    if (worker_is_done(worker) && !worker->stopped)
        worker_done(worker);
    return busy;
}

void worker_close(struct worker *worker)
{
    lane_close(&worker->lane);
    trace_close(&worker->trace);
    look_close(&worker->look);
    free(worker->by_rank);
    worker->by_rank = NULL;
}
