/* actors/session/failure.c: how a session fails, and is cancelled, which is a failure that was wished for.
 *
 * Whoever is first to claim the failure writes the sentence, makes the state FAILED, and tells all: the workers, who
 * waits outside, the other ranks. session.h has the order in which that is seen.
 */
#include <stdarg.h>
#include <string.h>

#include "actors/session/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/text.h"
#include "transport/mail/park.h"

#define FLIGHT_TEXT_BYTES 4096
#define WAITERS_TEXT_BYTES 1024
#define UNDER_WAY_BYTES 512
#define FAILED_TEXT_BYTES 512

/* ---- what is seen of it ---- */

weir_status session_failure(const weir_session *s)
{
    /* acquire: pairs with the store in session_fail(), after which the sentence does not change */
    if (atomic_load_explicit(&s->state, memory_order_acquire) != SESSION_FAILED)
        return WEIR_OK;
    return error_set(s->failure_status, "%s", s->failure);
}

weir_status session_failure_for_pull(const weir_session *s)
{
    /* acquire: pairs with the store in session_fail(), before which `gentle` was written, and that in
     * claim_failure() */
    if (atomic_load_explicit(&s->state, memory_order_acquire) == SESSION_FAILED && s->gentle &&
        !atomic_load_explicit(&s->harsh, memory_order_acquire))
        return WEIR_OK;
    return session_failure(s);
}

/* Once, and when nothing fires any more. */
void session_tell_failure(struct weir_session *s)
{
    char waiters[WAITERS_TEXT_BYTES] = "", text[FLIGHT_TEXT_BYTES];
    if (s->told || s->failure_status == WEIR_E_CANCELLED)
        return;
    s->told = true;
    if (s->culprit != session_rank(s))
        cluster_waiters(s, s->culprit, waiters, sizeof(waiters));
    if (session_flight_text(s, text, sizeof(text)) || *waiters)
        report_say(&s->report, "%s\n%s%s%s", s->failure, waiters,
                   *text ? "the last firings before the failure, oldest first:\n" : "", text);
    report_flush(&s->report); /* the program sees the report before it sees the status */
}

/* A failure is seen here before the other ranks have been told: the network is not to end in between. */
void session_await_told(struct weir_session *s)
{
    /* acquire: pairs with the store in session_fail() */
    while (atomic_load_explicit(&s->failing, memory_order_acquire) == FAILURE_CLAIMED)
        park_wait(&s->failing, FAILURE_CLAIMED, PARK_FOREVER);
}

/* ---- what fails ---- */

static bool claim_failure(struct weir_session *s)
{
    uint32_t none = FAILURE_NONE;
    /* relaxed: only one wins, nothing else hangs on it */
    if (atomic_compare_exchange_strong_explicit(&s->failing, &none, FAILURE_CLAIMED, memory_order_relaxed,
                                                memory_order_relaxed))
        return true;
    /* release: pairs with the load in session_failure_for_pull() */
    atomic_store_explicit(&s->harsh, true, memory_order_release);
    session_order_outside(s, LANE_FAIL);
    return false;
}

/* The first failure writes the report; then everybody is told. */
static void session_fail(struct weir_session *s, weir_status status, uint32_t culprit)
{
    char raw[sizeof(s->failure)];
    memcpy(raw, s->failure, sizeof(raw));
    foreign_text(raw, s->failure, sizeof(s->failure)); /* names, and what other ranks said */
    s->failure_status = status;
    s->culprit = culprit;
    if (!s->said)
        s->teller = session_rank(s);
    /* release: pairs with the load in session_failure() */
    atomic_store_explicit(&s->state, SESSION_FAILED, memory_order_release);
    park_wake(&s->state);
    session_order(s, LANE_FAIL);
    session_order_outside(s, LANE_FAIL);
    cluster_fail(s, culprit, s->teller, status == WEIR_E_CANCELLED, s->failure + s->said);
    /* release: pairs with the load in session_await_told() */
    atomic_store_explicit(&s->failing, FAILURE_TOLD, memory_order_release);
    park_wake(&s->failing);
}

static void describe_at(const struct weir_session *s, const struct actor *actor, const struct actor_kernel *kernel,
                        int64_t step, const char *sentence, char *text, size_t bytes)
{
    const weir_plan *plan = s->plan;
    const plan_kernel *from = &plan->kernels[kernel->id];
    const plan_space *space = &plan->spaces[plan->queues[plan->actors[actor->id].queue.i].space.i];
    if (!kernel->call && !*sentence)
        sentence = weir_error(); /* what a device says of a call to itself */
    snprintf(text, bytes, "%s:%u: %s (%s) failed on %s in step %lld%s%s", plan_text(plan, from->file), from->line,
             plan_text(plan, from->name), plan_text(plan, from->op), plan_text(plan, space->name),
             (long long)step, *sentence ? ": " : "", sentence);
}

void session_describe(const struct weir_session *s, const struct actor *actor, const struct actor_kernel *kernel,
                      const char *sentence, char *text, size_t bytes)
{
    describe_at(s, actor, kernel, actor->step, sentence, text, bytes);
}

void session_fail_kernel(struct weir_session *s, const struct actor *actor, const struct actor_kernel *kernel,
                         const char *sentence)
{
    if (!claim_failure(s))
        return;
    session_describe(s, actor, kernel, sentence, s->failure, sizeof(s->failure));
    session_fail(s, WEIR_E_KERNEL, session_rank(s));
}

void session_fail_refused(struct weir_session *s, const struct actor *actor, const struct actor_kernel *kernel,
                          int64_t firing, const weir_refusal *refusal)
{
    const weir_op *op = weir_op_find(plan_text(s->plan, s->plan->kernels[kernel->id].op));
    char sentence[FAILED_TEXT_BYTES] = "a value is out of range";
    weir_kernel_args call = kernel->args;
    if (!claim_failure(s))
        return;
    call.error = sentence;
    call.error_bytes = sizeof(sentence);
    if (op && op->refused)
        op->refused(&call, (int64_t)(refusal->least >> 32), (int32_t)refusal->least);
    describe_at(s, actor, kernel, flight_step(s->plan, actor->id, firing), sentence, s->failure, sizeof(s->failure));
    session_fail(s, WEIR_E_KERNEL, session_rank(s));
}

/* "model.c:17: up (linear) in step 3 on ", of the actor's oldest firing that is under way. */
static void text_add_actor(struct text *text, const struct weir_session *s, const struct actor *actor)
{
    const weir_plan *plan = s->plan;
    const struct ahead_launch *launch = NULL;
    for (uint64_t n = 0; (launch = ahead_under_way(actor->ahead->queue, n)) && launch->actor != actor; n++)
        continue;
    const plan_kernel *from = actor->kernel_count ? &plan->kernels[actor->kernels->id] : NULL;
    if (from)
        text_add(text, "%s:%u: %s (%s) in step %lld on ", plan_text(plan, from->file), from->line,
                 plan_text(plan, from->name), plan_text(plan, from->op),
                 (long long)flight_step(plan, actor->id, launch ? launch->firing : actor->firing));
}

void session_fail_queue(struct weir_session *s, const struct actor *actor, const char *sentence)
{
    const weir_plan *plan = s->plan;
    const plan_queue *queue = &plan->queues[plan->actors[actor->id].queue.i];
    char under_way[UNDER_WAY_BYTES], others[UNDER_WAY_BYTES];
    if (!claim_failure(s))
        return;
    session_under_way(s, actor->ahead->queue, under_way, sizeof(under_way));
    session_companions(s, actor->id, others, sizeof(others));
    sentence = *sentence ? sentence : weir_error();
    struct text text = {s->failure, sizeof(s->failure), 0, false};
    text_add_actor(&text, s, actor);
    text_add(&text, "%s: the device failed%s%s", plan_text(plan, queue->name), *sentence ? ": " : "", sentence);
    text_add(&text, "%s%s", *under_way ? "; under way were " : "", under_way);
    text_add(&text, "%s%s", *others ? "; the first of them with " : "", others);
    session_fail(s, WEIR_E_KERNEL, session_rank(s));
}

void session_fail_peer(struct weir_session *s, uint32_t culprit, const char *format, ...)
{
    va_list list;
    if (!claim_failure(s))
        return;
    va_start(list, format);
    text_vprint(s->failure, sizeof(s->failure), format, list);
    va_end(list);
    session_fail(s, WEIR_E_PEER, culprit);
}

/* In the words of another rank. */
static void quote(struct weir_session *s, uint32_t from, const char *sentence)
{
    s->teller = from;
    s->said = (uint32_t)snprintf(s->failure, sizeof(s->failure), "rank %u reports: ", from);
    snprintf(s->failure + s->said, sizeof(s->failure) - s->said, "%s", sentence);
}

void session_fail_told(struct weir_session *s, uint32_t from, uint32_t culprit, bool cancelled, const char *sentence)
{
    if (!claim_failure(s))
        return;
    quote(s, from, sentence);
    session_fail(s, cancelled ? WEIR_E_CANCELLED : WEIR_E_PEER, culprit);
}

void session_fail_at_end(struct weir_session *s, const struct last_step *last)
{
    bool own = last->from == session_rank(s);
    if (!claim_failure(s))
        return;
    s->gentle = true;
    if (own)
        snprintf(s->failure, sizeof(s->failure), "%s", last->text);
    else
        quote(s, last->from, last->text);
    session_fail(s, own ? WEIR_E_KERNEL : WEIR_E_PEER, last->culprit);
}

weir_status weir_session_cancel(weir_session *s)
{
    weir_status status = s ? caller_check(s, "cancel") : WEIR_OK;
    if (!s || status || !claim_failure(s))
        return status;
    snprintf(s->failure, sizeof(s->failure), "the session was cancelled on rank %u", session_rank(s));
    session_fail(s, WEIR_E_CANCELLED, session_rank(s));
    return WEIR_OK;
}

void session_fail_load(struct weir_session *s, weir_status status, const char *sentence)
{
    if (!claim_failure(s))
        return;
    snprintf(s->failure, sizeof(s->failure), "weir_session_load: what was being loaded is half there: %s", sentence);
    session_fail(s, status, session_rank(s));
}

void session_fail_open(struct weir_session *s, weir_status status, const char *sentence)
{
    if (!claim_failure(s))
        return;
    snprintf(s->failure, sizeof(s->failure), "%s", sentence);
    session_fail(s, status, session_rank(s));
}
