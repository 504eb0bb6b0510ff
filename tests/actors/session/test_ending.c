/* tests/actors/session/test_ending.c: the state of a session's end, by random orders of events against a model that keeps
 * no states, only the list of what has happened.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "actors/ending.h"
#include "tests/support/effort.h"

enum { EVENTS_MAX = 12, ROUNDS = EFFORT(20000, 100000, 100000), FAILERS = 4 };

TestSuite(ending, .timeout = 120);

struct model {
    enum ending_event of[EVENTS_MAX];
    int count, first; /* the event that failed first; -1: none */
};

static bool fails(enum ending_event event)
{
    return event >= ENDING_FAILS_AT_END;
}

static int last_of(const struct model *m, enum ending_event a, enum ending_event b)
{
    int last = -1;
    for (int i = 0; i < m->count; i++)
        if (m->of[i] == a || m->of[i] == b)
            last = i;
    return last;
}

/* A source that failed at the end leaves what was made to be pulled, until something else fails. Values that have come to
 * their end stay so, whatever runs after. */
static enum ending_state expected(const struct model *m)
{
    bool runs = last_of(m, ENDING_BEGINS, ENDING_BEGINS) > last_of(m, ENDING_STOPS, ENDING_ENDS);
    bool harsh = last_of(m, ENDING_FAILS, ENDING_CANCELS) > m->first;
    if (m->first >= 0 && m->of[m->first] == ENDING_CANCELS)
        return ENDING_CANCELLED;
    if (m->first >= 0 && m->of[m->first] == ENDING_FAILS_AT_END && !harsh)
        return ENDING_FAILED_AT_END;
    if (m->first >= 0)
        return ENDING_FAILED;
    return runs ? ENDING_RUNNING : last_of(m, ENDING_ENDS, ENDING_ENDS) >= 0 ? ENDING_ENDED : ENDING_REST;
}

/* The session looks itself whether the values have ended whenever a run is over: after ENDS never STOPS. */
static enum ending_event next_event(const struct model *m, uint32_t *seed)
{
    enum ending_event event = (enum ending_event)((*seed = *seed * 1664525 + 1013904223) >> 16) % ENDING_EVENTS;
    return event == ENDING_STOPS && last_of(m, ENDING_ENDS, ENDING_ENDS) >= 0 ? ENDING_ENDS : event;
}

static void happens(struct ending *e, struct model *m, enum ending_event event)
{
    struct failure failure = {.status = WEIR_E_KERNEL, .culprit = (uint32_t)m->count};
    bool first = fails(event) && m->first < 0;
    snprintf(failure.text, sizeof(failure.text), "sentence %d", m->count);
    m->first = first ? m->count : m->first;
    m->of[m->count++] = event;
    pthread_mutex_lock(&e->lock);
    bool told = fails(event) ? ending_fails(e, event, &failure) : ending_happens(e, event) && false;
    pthread_mutex_unlock(&e->lock);
    cr_assert_eq(told, first, "all are told of the first failure alone");
}

static void expect_as(const struct ending *e, const struct model *m)
{
    char text[32];
    snprintf(text, sizeof(text), "sentence %d", m->first);
    cr_assert_eq(ending_state(e), expected(m));
    cr_assert_eq(ending_failed(e), m->first >= 0);
    cr_assert_eq(ending_failure(e), m->first >= 0 ? WEIR_E_KERNEL : WEIR_OK);
    if (m->first < 0)
        return;
    cr_assert_str_eq(weir_error(), text);
    cr_assert_str_eq(e->failure.text, text, "the first has the word");
    cr_assert_eq(e->failure.culprit, (uint32_t)m->first);
    cr_assert_eq(!ending_failure_for_pull(e), expected(m) == ENDING_FAILED_AT_END);
}

Test(ending, random_events_do_as_a_model_without_states)
{
    uint32_t seed = 7;
    int seen[ENDING_STATES] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        struct ending e = {.open = false};
        struct model m = {.first = -1};
        cr_assert_eq(ending_open(&e), WEIR_OK);
        while (m.count < EVENTS_MAX) {
            happens(&e, &m, next_event(&m, &seed));
            expect_as(&e, &m);
            seen[ending_state(&e)]++;
        }
        ending_close(&e);
    }
    for (int state = 0; state < ENDING_STATES; state++)
        cr_expect_gt(seen[state], ROUNDS / 10, "state %d was reached", state);
}

/* The step that counts is the lowest that was told; of the same step a failure. */
Test(ending, of_several_ends_the_first_step_counts)
{
    uint32_t seed = 3;
    for (int round = 0; round < ROUNDS; round++) {
        struct ending e = {.open = false};
        int64_t least = INT64_MAX;
        bool failed = false;
        cr_assert_eq(ending_open(&e), WEIR_OK);
        for (int i = 0; i < EVENTS_MAX; i++) {
            uint32_t bits = (seed = seed * 1664525 + 1013904223) >> 16;
            struct last_step last = {.end = bits & 7, .failed = bits >> 3 & 1, .from = (uint32_t)i};
            bool news = last.end < least || (last.end == least && last.failed && !failed);
            least = news ? last.end : least;
            failed = news ? last.failed : failed;
            cr_assert_eq(ending_before(&e, &last), news);
            cr_assert_eq(atomic_load(&e.end), least);
            cr_assert_eq(e.last.failed, failed);
        }
        ending_close(&e);
    }
}

Test(ending, the_end_of_values_is_told_in_the_words_of_the_rank_that_has_the_source)
{
    struct ending e = {.open = false};
    cr_assert_eq(ending_open(&e), WEIR_OK);
    struct last_step last = {.end = 3, .from = 2, .text = "m.c:4: x has come to its end"};
    ending_before(&e, &last);
    cr_expect_eq(ending_ended(&e, 2), WEIR_OK, "steps before it are still to be done");
    ending_happens(&e, ENDING_ENDS);
    cr_expect_eq(ending_ended(&e, 2), WEIR_E_END);
    cr_expect_str_eq(weir_error(), "m.c:4: x has come to its end");
    cr_expect_eq(ending_ended(&e, 0), WEIR_E_END);
    cr_expect_str_eq(weir_error(), "rank 2 reports: m.c:4: x has come to its end");
    ending_happens(&e, ENDING_BEGINS);
    cr_expect_eq(ending_ended(&e, 0), WEIR_OK, "another program runs");
    ending_close(&e);
}

/* ---- several threads ---- */

struct failer {
    struct ending *ending;
    uint32_t number;
    int firsts;
};

static void *fail(void *argument)
{
    struct failer *f = argument;
    struct failure failure = {.status = WEIR_E_IO, .culprit = f->number, .reporter = f->number};
    memset(failure.text, 'a' + (int)f->number, sizeof(failure.text) - 1);
    pthread_mutex_lock(&f->ending->lock);
    f->firsts = ending_fails(f->ending, f->number & 1 ? ENDING_FAILS : ENDING_CANCELS, &failure);
    pthread_mutex_unlock(&f->ending->lock);
    return NULL;
}

Test(ending, of_several_threads_one_writes_the_sentence)
{
    for (int round = 0; round < ROUNDS / 100; round++) {
        struct ending e = {.open = false};
        struct failer failers[FAILERS];
        pthread_t threads[FAILERS];
        int firsts = 0;
        cr_assert_eq(ending_open(&e), WEIR_OK);
        for (uint32_t i = 0; i < FAILERS; i++) {
            failers[i] = (struct failer){&e, i, 0};
            cr_assert_eq(pthread_create(&threads[i], NULL, fail, &failers[i]), 0);
        }
        while (!ending_failed(&e))
            continue;
        char first = e.failure.text[0];
        ending_await_sent(&e);
        for (uint32_t i = 0; i < FAILERS; i++) {
            pthread_join(threads[i], NULL);
            firsts += failers[i].firsts;
        }
        cr_assert_eq(firsts, 1);
        cr_assert_eq(first, 'a' + (int)e.failure.culprit);
        cr_assert_eq(strspn(e.failure.text, (char[]){first, 0}), sizeof(e.failure.text) - 1, "it is of one hand");
        ending_close(&e);
    }
}
