/* actors/ending.c: how a session ends. See ending.h. */
#include "actors/ending.h"

#include "graph/base/error.h"
#include "transport/mail/park.h"

static const uint8_t next_state[ENDING_STATES][ENDING_EVENTS] = {
    [ENDING_REST] = {ENDING_RUNNING, ENDING_REST, ENDING_ENDED, ENDING_FAILED_AT_END, ENDING_FAILED, ENDING_CANCELLED},
    [ENDING_RUNNING] = {ENDING_RUNNING, ENDING_REST, ENDING_ENDED, ENDING_FAILED_AT_END, ENDING_FAILED,
                        ENDING_CANCELLED},
    [ENDING_ENDED] = {ENDING_RUNNING, ENDING_ENDED, ENDING_ENDED, ENDING_FAILED_AT_END, ENDING_FAILED,
                      ENDING_CANCELLED},
    [ENDING_FAILED_AT_END] = {ENDING_FAILED_AT_END, ENDING_FAILED_AT_END, ENDING_FAILED_AT_END, ENDING_FAILED_AT_END,
                              ENDING_FAILED, ENDING_FAILED},
    [ENDING_FAILED] = {ENDING_FAILED, ENDING_FAILED, ENDING_FAILED, ENDING_FAILED, ENDING_FAILED, ENDING_FAILED},
    [ENDING_CANCELLED] = {ENDING_CANCELLED, ENDING_CANCELLED, ENDING_CANCELLED, ENDING_CANCELLED, ENDING_CANCELLED,
                          ENDING_CANCELLED},
};

weir_status ending_open(struct ending *e)
{
    if (pthread_mutex_init(&e->lock, NULL))
        return error_set(WEIR_E_MEMORY, "no memory for a lock");
    e->open = true;
    atomic_init(&e->end, INT64_MAX);
    return WEIR_OK;
}

void ending_close(struct ending *e)
{
    if (e->open)
        pthread_mutex_destroy(&e->lock);
    e->open = false;
}

bool ending_happens(struct ending *e, enum ending_event event)
{
    uint32_t state = atomic_load_explicit(&e->state, memory_order_relaxed); /* the lock's */
    uint32_t next = next_state[state][event];
    if (next == state)
        return false;
    /* release: pairs with the load in ending_state() */
    atomic_store_explicit(&e->state, next, memory_order_release);
    park_wake(&e->state);
    return true;
}

bool ending_fails(struct ending *e, enum ending_event event, const struct failure *failure)
{
    bool first = !ending_failed(e);
    if (first)
        e->failure = *failure;
    ending_happens(e, event);
    return first;
}

bool ending_before(struct ending *e, const struct last_step *last)
{
    int64_t end = atomic_load_explicit(&e->end, memory_order_relaxed); /* the lock's */
    if (last->end > end || (last->end == end && (!last->failed || e->last.failed)))
        return false;
    e->last = *last;
    /* relaxed: the orders that follow publish it */
    atomic_store_explicit(&e->end, last->end, memory_order_relaxed);
    return true;
}

weir_status ending_failure(const struct ending *e)
{
    return ending_failed(e) ? error_set(e->failure.status, "%s", e->failure.text) : WEIR_OK;
}

weir_status ending_failure_for_pull(const struct ending *e)
{
    return ending_state(e) == ENDING_FAILED_AT_END ? WEIR_OK : ending_failure(e);
}

weir_status ending_ended(const struct ending *e, uint32_t rank)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&e->lock;
    struct last_step last;
    if (ending_state(e) < ENDING_ENDED)
        return WEIR_OK;
    pthread_mutex_lock(lock);
    bool ended = ending_state(e) == ENDING_ENDED;
    last = e->last;
    pthread_mutex_unlock(lock);
    if (!ended)
        return ending_failure(e);
    return last.from == rank ? error_set(WEIR_E_END, "%s", last.text)
                             : error_set(WEIR_E_END, "rank %u reports: %s", last.from, last.text);
}

void ending_await_sent(struct ending *e)
{
    if (!e->open)
        return;
    pthread_mutex_lock(&e->lock);
    pthread_mutex_unlock(&e->lock);
}
