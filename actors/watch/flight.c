/* actors/watch/flight.c: the recorder's readers. Writing is in the header: it is on the hot path.
 *
 * A row holds the actor's firing rather than its step, which is one load and one store less; step and micro-batch are
 * worked out here, where time does not matter.
 */
#include "actors/watch/flight.h"

#include "graph/base/text.h"

static struct flight_row row_at(const struct flight *flight, uint64_t number)
{
    const struct flight_entry *entry = &flight->entries[number % FLIGHT_FIRINGS];
    /* relaxed: after the load of `fired`, which is an acquire */
    return (struct flight_row){atomic_load_explicit(&entry->actor, memory_order_relaxed),
                               atomic_load_explicit(&entry->firing, memory_order_relaxed)};
}

bool flight_last(const struct flight *flight, struct flight_row *row)
{
    /* acquire: pairs with the store in flight_record() */
    uint64_t fired = atomic_load_explicit(&flight->fired, memory_order_acquire);
    if (fired)
        *row = row_at(flight, fired - 1);
    return fired != 0;
}

/* ---- as text ---- */

/* How many firings row `number` stands for. */
static int64_t row_firings(const struct flight *flight, const struct flight_facts *facts, uint64_t number,
                           uint64_t fired)
{
    struct flight_row row = row_at(flight, number);
    for (uint64_t later = number + 1; later < fired; later++) {
        struct flight_row other = row_at(flight, later);
        if (other.actor == row.actor)
            return other.firing - row.firing;
    }
    bool failed = flight->failed && number + 1 == fired; /* one that the actor has not counted */
    return facts->firing(facts->ctx, row.actor) - row.firing + failed;
}

/* Where a firing is in the run; rows of one place stand together. */
struct place {
    int64_t step, micro; /* micro < 0: it has no micro-batches */
};

static struct place place_of(const struct flight_facts *facts, struct flight_row row)
{
    int64_t fires = facts->plan->actors[row.actor].fires;
    return (struct place){flight_step(facts->plan, row.actor, row.firing),
                          fires > 1 ? row.firing % fires : -1};
}

static void add_place(struct text *to, struct place place)
{
    text_add(to, "step %lld", (long long)place.step);
    if (place.micro >= 0)
        text_add(to, ".%lld", (long long)place.micro);
    text_add(to, ": ");
}

static void add_row(struct text *to, const struct flight *flight, const struct flight_facts *facts, uint64_t number,
                    uint64_t fired)
{
    const weir_plan *plan = facts->plan;
    const plan_actor *actor = &plan->actors[row_at(flight, number).actor];
    int64_t firings = row_firings(flight, facts, number, fired);
    text_add(to, "%s", plan_text(plan, actor->name));
    if (!facts->one_queue)
        text_add(to, " on %s", plan_text(plan, plan->queues[actor->queue.i].name));
    if (firings > 1)
        text_add(to, " (%lld times)", (long long)firings);
    if (flight->failed && number + 1 == fired)
        text_add(to, " (failed)");
}

static void add_rows(struct text *to, const struct flight *flight, const struct flight_facts *facts, uint64_t fired,
                     uint64_t count)
{
    struct place last = {0, 0};
    text_add(to, "worker %u: ", facts->worker);
    for (uint64_t number = fired - count; number < fired; number++) {
        struct place place = place_of(facts, row_at(flight, number));
        bool first = number == fired - count, same = place.step == last.step && place.micro == last.micro;
        text_add(to, "%s", first ? "" : same ? ", " : "; ");
        if (first || !same)
            add_place(to, place);
        last = place;
        add_row(to, flight, facts, number, fired);
    }
    text_add(to, "\n");
}

/* Half as many rows until they fit. */
size_t flight_text(const struct flight *flight, const struct flight_facts *facts, char *bytes, size_t room)
{
    uint64_t fired = atomic_load_explicit(&flight->fired, memory_order_acquire); /* flight_record() */
    bytes[0] = 0;
    for (uint64_t count = fired < FLIGHT_FIRINGS ? fired : FLIGHT_FIRINGS; count; count /= 2) {
        struct text text = {bytes, room, 0, false};
        add_rows(&text, flight, facts, fired, count);
        if (!text.cut)
            return text.used;
    }
    bytes[0] = 0;
    return 0;
}
