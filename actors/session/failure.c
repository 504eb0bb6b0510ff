/* actors/session/failure.c: how a session fails, and is cancelled, which is a failure that was wished for.
 *
 * The first failure gives the session its sentence, and all are told: the workers, who waits outside, the other ranks.
 */
#include <stdarg.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/text.h"
#include "transport/mail/park.h"

#define FLIGHT_TEXT_BYTES 4096
#define WAITERS_TEXT_BYTES 1024
#define UNDER_WAY_BYTES 512
#define FAILED_TEXT_BYTES 512

void session_tell_failure(struct weir_session *s)
{
    char waiters[WAITERS_TEXT_BYTES] = "", text[FLIGHT_TEXT_BYTES];
    struct ending *e = &s->ending;
    if (e->reported || ending_state(e) == ENDING_CANCELLED)
        return;
    e->reported = true;
    if (e->failure.culprit != built_rank(&s->built))
        session_waiters(s, e->failure.culprit, waiters, sizeof(waiters));
    if (session_flight_text(s, text, sizeof(text)) || *waiters)
        report_say(&s->observed.report, "%s\n%s%s%s", e->failure.text, waiters,
                   *text ? "the last firings before the failure, oldest first:\n" : "", text);
    report_flush(&s->observed.report); /* the program sees the report before it sees the status */
}

/* ---- what fails ---- */

/* With the lock. A pull of what was made before looks again when something else has failed, too. */
static void fail_locked(struct weir_session *s, enum ending_event event, struct failure *failure)
{
    char raw[sizeof(failure->text)];
    memcpy(raw, failure->text, sizeof(raw));
    foreign_text(raw, failure->text, sizeof(failure->text)); /* names, and what other ranks said */
    bool first = ending_fails(&s->ending, event, failure);
    session_order_outside(s, LANE_FAIL);
    if (!first)
        return;
    session_order(s, LANE_FAIL);
    cluster_fail(s->built.cluster);
}

static void session_fail(struct weir_session *s, enum ending_event event, struct failure *failure)
{
    pthread_mutex_lock(&s->ending.lock);
    fail_locked(s, event, failure);
    pthread_mutex_unlock(&s->ending.lock);
}

static struct failure own_failure(const struct weir_session *s, weir_status status)
{
    return (struct failure){.status = status, .culprit = built_rank(&s->built), .reporter = built_rank(&s->built)};
}

static void describe_at(const struct weir_session *s, const struct actor *actor, const struct actor_kernel *kernel,
                        int64_t step, const char *sentence, char *text, size_t bytes)
{
    const weir_plan *plan = s->plan;
    const plan_kernel *from = &plan->kernels[kernel->id];
    const plan_space *space = &plan->spaces[plan_actor_space(plan, actor->id).i];
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
                         weir_status status, const char *sentence)
{
    struct failure failure = own_failure(s, status);
    session_describe(s, actor, kernel, sentence, failure.text, sizeof(failure.text));
    session_fail(s, ENDING_FAILS, &failure);
}

void session_fail_refused(struct weir_session *s, const struct actor *actor, const struct actor_kernel *kernel,
                          int64_t firing, const weir_refusal *refusal)
{
    const weir_op *op = weir_op_find(plan_text(s->plan, s->plan->kernels[kernel->id].op));
    char sentence[FAILED_TEXT_BYTES] = "a value is out of range";
    weir_kernel_args call = kernel->args;
    struct failure failure = own_failure(s, WEIR_E_KERNEL);
    call.error = sentence;
    call.error_bytes = sizeof(sentence);
    if (op && op->refused)
        op->refused(&call, (int64_t)(refusal->least >> 32), (int32_t)refusal->least);
    describe_at(s, actor, kernel, flight_step(s->plan, actor->id, firing), sentence, failure.text, sizeof(failure.text));
    session_fail(s, ENDING_FAILS, &failure);
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
    struct failure failure = own_failure(s, WEIR_E_KERNEL);
    session_under_way(s, actor->ahead->queue, under_way, sizeof(under_way));
    session_companions(s, actor->id, others, sizeof(others));
    sentence = *sentence ? sentence : weir_error();
    struct text text = {failure.text, sizeof(failure.text), 0, false};
    text_add_actor(&text, s, actor);
    text_add(&text, "%s: the device failed%s%s", plan_text(plan, queue->name), *sentence ? ": " : "", sentence);
    text_add(&text, "%s%s", *under_way ? "; under way were " : "", under_way);
    text_add(&text, "%s%s", *others ? "; the first of them with " : "", others);
    session_fail(s, ENDING_FAILS, &failure);
}

void session_fail_peer(struct weir_session *s, uint32_t culprit, const char *format, ...)
{
    struct failure failure = own_failure(s, WEIR_E_PEER);
    va_list list;
    failure.culprit = culprit;
    va_start(list, format);
    text_vprint(failure.text, sizeof(failure.text), format, list);
    va_end(list);
    session_fail(s, ENDING_FAILS, &failure);
}

/* In the words of another rank. */
static void quote(struct failure *failure, uint32_t from, const char *sentence)
{
    failure->reporter = from;
    failure->skipped = (uint32_t)snprintf(failure->text, sizeof(failure->text), "rank %u reports: ", from);
    snprintf(failure->text + failure->skipped, sizeof(failure->text) - failure->skipped, "%s", sentence);
}

void session_fail_remote(struct weir_session *s, uint32_t from, uint32_t culprit, bool cancelled, const char *sentence)
{
    struct failure failure = {.status = cancelled ? WEIR_E_CANCELLED : WEIR_E_PEER, .culprit = culprit};
    quote(&failure, from, sentence);
    session_fail(s, cancelled ? ENDING_CANCELS : ENDING_FAILS, &failure);
}

void session_fail_at_end(struct weir_session *s)
{
    const struct last_step *last = &s->ending.last;
    struct failure failure = {.status = last->status, .culprit = last->culprit, .reporter = last->from};
    if (last->from == built_rank(&s->built))
        snprintf(failure.text, sizeof(failure.text), "%s", last->text);
    else
        quote(&failure, last->from, last->text);
    fail_locked(s, ENDING_FAILS_AT_END, &failure);
}

weir_status weir_session_cancel(weir_session *s)
{
    weir_status status = s ? caller_check(s, "cancel") : WEIR_OK;
    if (!s || status)
        return status;
    struct failure failure = own_failure(s, WEIR_E_CANCELLED);
    snprintf(failure.text, sizeof(failure.text), "the session was cancelled on rank %u", built_rank(&s->built));
    session_fail(s, ENDING_CANCELS, &failure);
    return WEIR_OK;
}

void session_fail_load(struct weir_session *s, weir_status status, const char *sentence)
{
    struct failure failure = own_failure(s, status);
    snprintf(failure.text, sizeof(failure.text), "weir_session_load: what was being loaded is half there: %s", sentence);
    session_fail(s, ENDING_FAILS, &failure);
}

void session_fail_open(struct weir_session *s, weir_status status, const char *sentence)
{
    struct failure failure = own_failure(s, status);
    snprintf(failure.text, sizeof(failure.text), "%s", sentence);
    session_fail(s, ENDING_FAILS, &failure);
}
