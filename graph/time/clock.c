/* graph/time/clock.c: see the header.
 *
 * Ends of firings and messages are events (graph/time/events.h). Actors that may fire wait in a list of their worker, by priority.
 */
#include "graph/time/clock.h"

#include "graph/base/error.h"
#include "graph/plan/prove/game.h"
#include "graph/time/events.h"
#include "graph/time/order.h"

#include <stdlib.h>
#include <string.h>

enum event_kind { EVENT_END, EVENT_SHARED, EVENT_PASSED, EVENT_READY, EVENT_FREE }; /* of an actor; of a host's first to end; of messages that
                                                                                    the caller knows; of a port */

typedef struct played {
    game game;             /* first: what the game hands out is this */
    const clock_spec *spec;
    clock_result *result;
    events events;         /* owned, as all arrays below */
    uint64_t now;
    uint64_t passed, passed_at; /* the number of the next EVENT_PASSED, earlier ones are void; and its time */
    uint32_t *waiting;     /* per worker: the first actor that waits for it, or PLAN_NONE */
    uint32_t *after;       /* per actor: the next one there */
    bool *busy;            /* per worker */
    uint64_t *began;       /* per worker: its last firing */
    orders orders;         /* of workers that fire in an order of their own */
    share *shares;         /* per host */
    shared *shared;        /* room for a firing of each worker */
    uint64_t *due;         /* per host: the number of its event; earlier ones are void */
    uint32_t *changed;     /* hosts where a firing has begun or ended now */
    uint32_t changed_count;
    bool *is_changed;      /* per host */
    uint32_t *stirred;     /* workers with something new: one has become idle, or somebody waits for it */
    uint32_t stirred_count;
    bool *is_stirred;      /* per worker */
    uint64_t left[CLOCK_STEPS]; /* firings of each step that have not ended */
    uint64_t *places;      /* per worker: firings that it began */
    uint64_t order[CLOCK_STEPS]; /* the sum of a step, */
    uint64_t advance;      /* and what it is more than that of the step before */
    unsigned __int128 ends[CLOCK_STEPS]; /* of a step: the sum of all ends of its firings, */
    uint64_t step_firings; /* and how many it has */
    uint64_t messages[CLOCK_STEPS], rest[CLOCK_STEPS]; /* at the end of a step: under way, and how long they still take together */
    bool over;             /* steps repeat, or it has lasted long enough */
    bool failed;           /* no memory */
} played;

/* ---- events ---- */

static void add_event(played *x, uint64_t time, enum event_kind kind, uint32_t id)
{
    x->failed |= !events_add(&x->events, time, kind, id);
}

static void send_message(played *x, uint32_t port, bool freed, uint64_t takes)
{
    const uint64_t time = x->now + (takes < SHARE_MAX ? takes : SHARE_MAX);
    if (takes != CLOCK_LATER)
        x->failed |= !events_add_message(&x->events, time, freed ? EVENT_FREE : EVENT_READY, port);
}

/* ---- workers ---- */

static uint32_t worker_of(const played *x, uint32_t actor)
{
    const uint32_t queue = x->spec->plan->actors[actor].queue.i;
    return x->spec->plan->queues[queue].kind == PLAN_OUTSIDE ? PLAN_NONE : x->spec->worker[queue];
}

/* A firing begins on the host, or ends: those beside it are settled first. */
static share *change_share(played *x, uint32_t host)
{
    if (!x->is_changed[host]) {
        share_settle(&x->shares[host], x->now);
        x->changed[x->changed_count++] = host;
    }
    x->is_changed[host] = true;
    return &x->shares[host];
}

/* Takes the worker, and the actor from those that wait for it. */
static void occupy(played *x, uint32_t actor, uint32_t worker)
{
    uint32_t *at = &x->waiting[worker];
    while (*at != actor)
        at = &x->after[*at];
    *at = x->after[actor];
    x->busy[worker] = true;
    x->began[worker] = x->now;
    x->places[worker]++;
    if (orders_has(&x->orders, worker))
        orders_pass(&x->orders, worker);
}

static void begin(played *x, uint32_t actor, uint32_t worker)
{
    const share_work work = x->spec->duration(x->spec->ctx, actor, x->game.actors[actor].fired);
    const uint32_t host = x->spec->hosts ? x->spec->host_of[worker] : PLAN_NONE;
    occupy(x, actor, worker);
    if (host == PLAN_NONE)
        add_event(x, x->now + (work.ps < SHARE_MAX ? work.ps : SHARE_MAX), EVENT_END, actor);
    else
        share_begin(change_share(x, host), actor, work);
}

static void stir(played *x, uint32_t worker)
{
    if (!x->is_stirred[worker])
        x->stirred[x->stirred_count++] = worker;
    x->is_stirred[worker] = true;
}

static bool goes_first(const plan_actor *actors, uint32_t a, uint32_t b)
{
    return actors[a].priority != actors[b].priority ? actors[a].priority < actors[b].priority : a < b;
}

static void wait_for(played *x, uint32_t actor, uint32_t worker)
{
    uint32_t *at = &x->waiting[worker];
    while (*at != PLAN_NONE && goes_first(x->spec->plan->actors, *at, actor))
        at = &x->after[*at];
    x->after[actor] = *at;
    *at = actor;
    stir(x, worker);
}

static const plan_range *members_of(const played *x, uint32_t actor)
{
    const uint32_t c = x->game.actors[actor].member_of;
    return c == PLAN_NONE ? NULL : &x->spec->plan->collectives[c].members;
}

static void ready(game *g, uint32_t actor)
{
    played *x = (played *)g;
    const plan_range *members = members_of(x, actor);
    const uint32_t worker = worker_of(x, actor);
    if (x->spec->plan->actors[actor].program.i != x->spec->program)
        return;
    if (worker == PLAN_NONE)
        add_event(x, x->now, EVENT_END, actor);
    else if (!members)
        wait_for(x, actor, worker);
    for (uint32_t m = 0; members && m < members->count; m++)
        wait_for(x, x->spec->plan->members[members->first + m].i, worker_of(x, x->spec->plan->members[members->first + m].i));
}

/* The actor that the worker fires next; PLAN_NONE: none may now. */
static uint32_t next_of(const played *x, uint32_t worker)
{
    uint32_t waits = x->waiting[worker];
    if (x->busy[worker] || waits == PLAN_NONE)
        return PLAN_NONE;
    const bool ordered = orders_has(&x->orders, worker);
    const uint32_t next = ordered ? orders_next(&x->orders, worker) : waits;
    while (waits != next && waits != PLAN_NONE)
        waits = x->after[waits];
    return waits;
}

/* The members' firing begins when it is next for all of them; it ends with that of the first. */
static void begin_together(played *x, const plan_range *members)
{
    const plan_actor_id *member = x->spec->plan->members + members->first;
    for (uint32_t m = 0; m < members->count; m++)
        if (next_of(x, worker_of(x, member[m].i)) != member[m].i)
            return;
    for (uint32_t m = 1; m < members->count; m++)
        occupy(x, member[m].i, worker_of(x, member[m].i));
    begin(x, member[0].i, worker_of(x, member[0].i));
}

static void worker_go_on(played *x, uint32_t worker)
{
    x->is_stirred[worker] = false;
    const uint32_t actor = next_of(x, worker);
    if (actor == PLAN_NONE)
        return;
    const plan_range *members = members_of(x, actor);
    if (members)
        begin_together(x, members);
    else
        begin(x, actor, worker);
}

/* Messages within a worker count at once. */
static void tell(game *g, uint32_t port, bool freed)
{
    played *x = (played *)g;
    if (g->ports[port].mark)
        send_message(x, port, freed, x->spec->message(x->spec->ctx, port, freed, x->now));
    else
        game_told(g, port, freed);
}

/* Ports whose register another worker writes. */
static void mark_ports(played *x)
{
    for (uint32_t p = 0; p < x->spec->plan->ports_count; p++) {
        game_port *port = &x->game.ports[p];
        port->mark = port->hold && worker_of(x, port->actor) != worker_of(x, x->game.regsts[port->regst].producer);
    }
}

/* Messages that the caller knows about have passed. */
static void take_passed(played *x)
{
    uint32_t port;
    uint64_t takes;
    x->passed_at = UINT64_MAX;
    for (bool freed; x->spec->take(x->spec->ctx, x->now, &port, &freed, &takes);)
        send_message(x, port, freed, takes);
}

static void watch_passed(played *x)
{
    const uint64_t next = x->spec->next(x->spec->ctx, x->now);
    if (next == x->passed_at)
        return;
    x->passed_at = next;
    x->passed = x->events.number;
    if (next != UINT64_MAX)
        add_event(x, next, EVENT_PASSED, 0);
}

/* ---- steps ---- */

static uint64_t length(const clock_result *r, uint32_t step)
{
    return r->end[step] - r->end[step - 1];
}

enum { MILLION = 1000000, FIRINGS_ENOUGH = 4000000 };

/* To a millionth: caches may keep a little more in one step than in another. */
static bool alike(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) <= b / MILLION;
}

/* By how much the firings of a step end before it, all together: this grows as long as some still run further ahead from step to step. */
static unsigned __int128 ahead(const played *x, uint32_t step)
{
    return (unsigned __int128)x->step_firings * x->result->end[step] - x->ends[step];
}

/* Bursts between gaps look alike; the gap is at another place among the messages under way. */
static bool messages_repeat(const played *x, uint32_t s, uint32_t n)
{
    const uint64_t now = x->rest[s], before = x->rest[s - n];
    return x->messages[s] == x->messages[s - n] && (now > before ? now - before : before - now) <= length(x->result, s) / MILLION * x->messages[s];
}

static bool step_repeats(const played *x, uint32_t s, uint32_t n)
{
    const unsigned __int128 now = ahead(x, s), before = ahead(x, s - n);
    const uint64_t one = length(x->result, s);
    return messages_repeat(x, s, n) && alike(one, length(x->result, s - n)) && x->order[s] - x->order[s - n] == n * x->advance &&
           (now > before ? now - before : before - now) <= (unsigned __int128)(one / MILLION) * x->step_firings;
}

/* How many steps repeat: the last ones are as those before them, and those as the ones before these. 0: none. */
static uint32_t repeats(const played *x)
{
    const uint32_t steps = x->result->steps;
    for (uint32_t n = 1; n <= CLOCK_REPEAT && 3 * n < steps; n++) {
        uint32_t s = steps - 1;
        while (s >= steps - 2 * n && step_repeats(x, s, n))
            s--;
        if (s < steps - 2 * n)
            return n;
    }
    return 0;
}

static void count_message(played *x, uint32_t step, const heap_event *e)
{
    if (e->kind != EVENT_READY && e->kind != EVENT_FREE)
        return;
    x->messages[step]++;
    x->rest[step] += e->time - x->now;
}

static void count_messages(played *x, uint32_t step)
{
    const events *e = &x->events;
    for (size_t i = 0; i < e->heap.count; i++)
        count_message(x, step, &e->heap.events[i]);
    for (uint32_t r = 0; r < e->runs; r++)
        for (size_t i = 0; i < e->run[r].count; i++)
            count_message(x, step, events_at(&e->run[r], i));
    if (x->spec->count)
        x->spec->count(x->spec->ctx, x->now, &x->messages[step], &x->rest[step]);
}

static uint64_t random_of(uint32_t actor, uint32_t firing)
{
    const uint64_t x = ((uint64_t)actor << 32 | firing) * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9) | 1;
}

/* Each firing counts for the step that it is of. The program's own actors have no worker; their firings take no time. */
static void count_end(played *x, uint32_t actor)
{
    const uint32_t fires = x->game.actors[actor].fires, firing = x->game.actors[actor].fired - 1, step = firing / fires;
    const uint32_t worker = worker_of(x, actor);
    if (x->spec->fired)
        x->spec->fired(x->spec->ctx, actor, firing, worker == PLAN_NONE ? x->now : x->began[worker], x->now);
    x->result->firings++;
    if (worker != PLAN_NONE)
        x->order[step] += random_of(actor, firing - step * fires) * x->places[worker];
    x->ends[step] += x->now;
    if (--x->left[step])
        return;
    count_messages(x, x->result->steps);
    x->result->end[x->result->steps++] = x->now;
    x->result->repeat = repeats(x);
    x->over = x->result->repeat || (x->result->steps > 2 && x->result->firings > FIRINGS_ENOUGH);
}

/* Its worker is idle, and one that it launches something on has that. */
static void release(played *x, uint32_t actor)
{
    bool ok = true;
    const uint32_t worker = worker_of(x, actor), launched = orders_launch(&x->orders, actor, &ok);
    if (worker != PLAN_NONE) {
        x->busy[worker] = false;
        x->result->busy[worker] += x->now - x->began[worker];
        stir(x, worker);
    }
    if (launched != PLAN_NONE)
        stir(x, launched);
    x->failed |= !ok;
}

static void end(played *x, uint32_t actor)
{
    const plan_range *members = members_of(x, actor);
    const plan_actor_id *member = members ? x->spec->plan->members + members->first : &(plan_actor_id){actor};
    const uint32_t count = members ? members->count : 1;
    for (uint32_t m = 0; m < count; m++)
        release(x, member[m].i);
    game_fire(&x->game, actor);
    for (uint32_t m = 0; m < count; m++)
        count_end(x, member[m].i);
}

static void end_shared(played *x, uint32_t host)
{
    share *of = change_share(x, host);
    for (uint32_t actor; share_end(of, &actor);)
        end(x, actor);
}

/* Idle workers begin what they may; then firings that share a host go on at other speeds. */
static void go_on(played *x)
{
    while (x->stirred_count)
        worker_go_on(x, x->stirred[--x->stirred_count]);
    while (x->changed_count) {
        const uint32_t host = x->changed[--x->changed_count];
        const uint64_t first = share_pace(&x->shares[host]);
        x->is_changed[host] = false;
        x->due[host] = x->events.number;
        if (first != UINT64_MAX)
            add_event(x, first, EVENT_SHARED, host);
    }
    if (x->spec->next)
        watch_passed(x);
}

static void happen(played *x, heap_event e)
{
    if (e.kind == EVENT_END)
        end(x, e.id);
    else if (e.kind == EVENT_SHARED && x->due[e.id] == e.tie)
        end_shared(x, e.id);
    else if (e.kind == EVENT_PASSED && x->passed == e.tie)
        take_passed(x);
    else if (e.kind == EVENT_READY || e.kind == EVENT_FREE)
        game_told(&x->game, e.id, e.kind == EVENT_FREE);
}

static void play(played *x)
{
    heap_event e;
    game_begin(&x->game);
    for (;;) {
        go_on(x);
        if (x->failed || x->over || !events_take(&x->events, CLOCK_MAX, &e))
            return;
        x->now = e.time;
        do
            happen(x, e);
        while (events_take(&x->events, x->now, &e));
    }
}

static void conclude(played *x)
{
    clock_result *r = x->result;
    r->span = x->now;
    const uint32_t from = r->repeat ? r->steps - 1 - r->repeat : r->steps / 2;
    if (r->steps == 1)
        r->period = r->end[0];
    else if (r->steps)
        r->period = (r->end[r->steps - 1] - r->end[from]) / (r->steps - 1 - from);
}

/* A firing's place advances by all firings of its worker in a step. */
static void count_advance(played *x)
{
    const weir_plan *plan = x->spec->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (worker_of(x, a) != PLAN_NONE && plan->actors[a].program.i == x->spec->program)
            x->places[worker_of(x, a)] += plan->actors[a].fires;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        for (uint32_t n = 0; worker_of(x, a) != PLAN_NONE && plan->actors[a].program.i == x->spec->program && n < plan->actors[a].fires; n++)
            x->advance += random_of(a, n) * x->places[worker_of(x, a)];
    memset(x->places, 0, x->spec->workers * sizeof *x->places);
}

/* Each host has room for firings of all its workers. */
static bool shares_new(played *x)
{
    const clock_spec *spec = x->spec;
    uint32_t first = 0;
    x->shares = calloc(spec->hosts + (size_t)1, sizeof *x->shares);
    x->due = calloc(spec->hosts + (size_t)1, sizeof *x->due);
    x->changed = calloc(spec->hosts + (size_t)1, sizeof *x->changed);
    x->is_changed = calloc(spec->hosts + (size_t)1, sizeof *x->is_changed);
    x->shared = calloc(spec->workers + (size_t)1, sizeof *x->shared);
    if (!x->shares || !x->due || !x->changed || !x->is_changed || !x->shared)
        return false;
    for (uint32_t w = 0; w < spec->workers && spec->hosts; w++)
        if (spec->host_of[w] != PLAN_NONE)
            x->shares[spec->host_of[w]].count++;
    for (uint32_t h = 0; h < spec->hosts; h++) {
        const uint32_t room = x->shares[h].count;
        x->shares[h] = (share){.host = spec->host[h], .firings = x->shared + first};
        first += room;
    }
    return true;
}

static bool played_new(played *x)
{
    const weir_plan *plan = x->spec->plan;
    x->waiting = malloc((x->spec->workers + (size_t)1) * sizeof *x->waiting);
    x->after = calloc(plan->actors_count + (size_t)1, sizeof *x->after);
    x->began = calloc(x->spec->workers + (size_t)1, sizeof *x->began);
    x->busy = calloc(x->spec->workers + (size_t)1, sizeof *x->busy);
    x->places = calloc(x->spec->workers + (size_t)1, sizeof *x->places);
    x->stirred = calloc(x->spec->workers + (size_t)1, sizeof *x->stirred);
    x->is_stirred = calloc(x->spec->workers + (size_t)1, sizeof *x->is_stirred);
    x->result->busy = calloc(x->spec->workers + (size_t)1, sizeof *x->result->busy);
    if (x->waiting)
        memset(x->waiting, 0xff, x->spec->workers * sizeof *x->waiting);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        for (uint32_t s = 0; s < CLOCK_STEPS && plan->actors[a].program.i == x->spec->program; s++)
            x->left[s] += plan->actors[a].fires;
    x->step_firings = x->left[0];
    return x->waiting && x->after && x->began && x->busy && x->places && x->stirred && x->is_stirred && x->result->busy &&
           shares_new(x) && !game_init(&x->game, plan, false);
}

static void played_free(played *x)
{
    game_free(&x->game);
    orders_close(&x->orders, x->spec->workers);
    events_free(&x->events);
    free(x->waiting);
    free(x->after);
    free(x->began);
    free(x->busy);
    free(x->places);
    free(x->stirred);
    free(x->is_stirred);
    free(x->shares);
    free(x->due);
    free(x->changed);
    free(x->is_changed);
    free(x->shared);
}

weir_status clock_play(const clock_spec *spec, clock_result *result)
{
    *result = (clock_result){0};
    played x = {.spec = spec, .result = result, .passed_at = UINT64_MAX};
    weir_status status = played_new(&x) ? WEIR_OK : WEIR_E_MEMORY;
    if (!status && spec->launches)
        status = orders_open(&x.orders, spec->plan, spec->program, spec->worker, spec->workers, spec->launches);
    if (!status) {
        count_advance(&x);
        mark_ports(&x);
        x.game.ready = ready;
        x.game.tell = tell;
        x.game.steps = CLOCK_STEPS;
        for (uint32_t r = 0; spec->slots && r < spec->plan->regsts_count; r++)
            game_set_slots(&x.game, r, spec->slots[r]);
        play(&x);
        conclude(&x);
        status = x.failed ? WEIR_E_MEMORY : result->steps ? WEIR_OK : events_any(&x.events) ? WEIR_E_ARGUMENT : WEIR_E_LIVE;
    }
    played_free(&x);
    if (status == WEIR_E_MEMORY)
        error_set(status, "no memory to play the plan against a clock");
    else if (status == WEIR_E_ARGUMENT)
        error_set(status, "a step takes longer than 50 days by these rates");
    else if (status)
        error_set(status, "no step of the program ends; weir check says why");
    return status;
}
