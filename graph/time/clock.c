/* graph/time/clock.c: see the header.
 *
 * One heap has all events to come: ends of firings and messages, the earliest first, and at one time in the order in which they
 * were put there. Actors that may fire wait in a list of their worker, by priority.
 */
#include "graph/time/clock.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/prove/game.h"
#include "graph/plan/prove/heap.h"

#include <stdlib.h>
#include <string.h>

enum event_kind { EVENT_END, EVENT_SHARED, EVENT_READY, EVENT_FREE }; /* of an actor; of a host's first to end; of a port */

typedef struct played {
    game game;             /* first: what the game hands out is this */
    const clock_spec *spec;
    clock_result *result;
    heap heap;             /* owned, as all arrays below */
    uint64_t now, number;
    uint32_t *waiting;     /* per worker: the first actor that waits for it, or PLAN_NONE */
    uint32_t *after;       /* per actor: the next one there */
    uint64_t *began;       /* per actor: when it began to fire */
    uint32_t *begun;       /* per actor: its firings that began */
    bool *busy;            /* per worker */
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
    uint64_t *place;       /* per actor: of the firing that it began last */
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
    x->failed |= !heap_push(&x->heap, (heap_event){time, x->number++, kind, id});
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

static void begin_on(played *x, uint32_t actor, uint32_t worker)
{
    const share_work work = x->spec->duration(x->spec->ctx, actor, x->begun[actor]);
    const uint32_t host = x->spec->hosts ? x->spec->host_of[worker] : PLAN_NONE;
    x->busy[worker] = true;
    x->place[actor] = x->places[worker]++;
    if (host == PLAN_NONE)
        add_event(x, x->now + (work.ps < SHARE_MAX ? work.ps : SHARE_MAX), EVENT_END, actor);
    else
        share_begin(change_share(x, host), actor, work);
}

static void begin(played *x, uint32_t actor, uint32_t worker)
{
    x->began[actor] = x->now;
    if (worker == PLAN_NONE)
        add_event(x, x->now, EVENT_END, actor);
    else
        begin_on(x, actor, worker);
    x->begun[actor]++;
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

static void ready(game *g, uint32_t actor)
{
    played *x = (played *)g;
    const uint32_t worker = worker_of(x, actor);
    if (x->spec->plan->actors[actor].program.i != x->spec->program)
        return;
    if (worker == PLAN_NONE) {
        begin(x, actor, worker);
        return;
    }
    uint32_t *at = &x->waiting[worker];
    while (*at != PLAN_NONE && goes_first(x->spec->plan->actors, *at, actor))
        at = &x->after[*at];
    x->after[actor] = *at;
    *at = actor;
    stir(x, worker);
}

static void worker_go_on(played *x, uint32_t worker)
{
    const uint32_t actor = x->waiting[worker];
    x->is_stirred[worker] = false;
    if (x->busy[worker] || actor == PLAN_NONE)
        return;
    x->waiting[worker] = x->after[actor];
    begin(x, actor, worker);
}

static void tell(game *g, uint32_t port, bool freed)
{
    played *x = (played *)g;
    const plan_port *of = &x->spec->plan->ports[port];
    const uint32_t reader = worker_of(x, of->actor.i), producer = worker_of(x, x->spec->plan->regsts[of->regst.i].producer.i);
    if (reader == producer)
        game_told(g, port, freed);
    else {
        const uint64_t takes = x->spec->message(x->spec->ctx, port, freed, x->now);
        add_event(x, x->now + (takes < SHARE_MAX ? takes : SHARE_MAX), freed ? EVENT_FREE : EVENT_READY, port);
    }
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

static void count_messages(played *x, uint32_t step)
{
    for (uint32_t i = 0; i < x->heap.count; i++)
        if (x->heap.events[i].kind != EVENT_END && x->heap.events[i].kind != EVENT_SHARED) {
            x->messages[step]++;
            x->rest[step] += x->heap.events[i].time - x->now;
        }
}

static uint64_t random_of(uint32_t actor, uint32_t firing)
{
    const uint32_t both[] = {actor, firing};
    return hash_more(HASH_START, both, sizeof both) | 1;
}

/* Each firing counts for the step that it is of. */
static void count_end(played *x, uint32_t actor)
{
    const uint32_t firing = x->game.fired[actor] - 1, step = firing / x->spec->plan->actors[actor].fires;
    if (x->spec->fired)
        x->spec->fired(x->spec->ctx, actor, firing, x->began[actor], x->now);
    x->result->firings++;
    x->order[step] += random_of(actor, firing % x->spec->plan->actors[actor].fires) * x->place[actor];
    x->ends[step] += x->now;
    if (--x->left[step])
        return;
    count_messages(x, x->result->steps);
    x->result->end[x->result->steps++] = x->now;
    x->result->repeat = repeats(x);
    x->over = x->result->repeat || (x->result->steps > 2 && x->result->firings > FIRINGS_ENOUGH);
}

static void end(played *x, uint32_t actor)
{
    const uint32_t worker = worker_of(x, actor);
    if (worker != PLAN_NONE) {
        x->busy[worker] = false;
        x->result->busy[worker] += x->now - x->began[actor];
        stir(x, worker);
    }
    const uint32_t c = x->game.member_of[actor];
    game_fire(&x->game, actor);
    if (c == PLAN_NONE) {
        count_end(x, actor);
        return;
    }
    const plan_range *members = &x->spec->plan->collectives[c].members;
    for (uint32_t m = members->first; m < members->first + members->count; m++)
        count_end(x, x->spec->plan->members[m].i);
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
        x->due[host] = x->number;
        if (first != UINT64_MAX)
            add_event(x, first, EVENT_SHARED, host);
    }
}

static void happen(played *x, heap_event e)
{
    if (e.kind == EVENT_END)
        end(x, e.id);
    else if (e.kind == EVENT_SHARED && x->due[e.id] == e.tie)
        end_shared(x, e.id);
    else if (e.kind != EVENT_SHARED)
        game_told(&x->game, e.id, e.kind == EVENT_FREE);
}

static void play(played *x)
{
    game_begin(&x->game);
    for (;;) {
        go_on(x);
        if (!x->heap.count || x->failed || x->over || x->heap.events[0].time > CLOCK_MAX)
            return;
        x->now = x->heap.events[0].time;
        while (x->heap.count && x->heap.events[0].time == x->now)
            happen(x, heap_pop(&x->heap));
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
    x->began = calloc(plan->actors_count + (size_t)1, sizeof *x->began);
    x->begun = calloc(plan->actors_count + (size_t)1, sizeof *x->begun);
    x->busy = calloc(x->spec->workers + (size_t)1, sizeof *x->busy);
    x->places = calloc(x->spec->workers + (size_t)1, sizeof *x->places);
    x->place = calloc(plan->actors_count + (size_t)1, sizeof *x->place);
    x->stirred = calloc(x->spec->workers + (size_t)1, sizeof *x->stirred);
    x->is_stirred = calloc(x->spec->workers + (size_t)1, sizeof *x->is_stirred);
    x->result->busy = calloc(x->spec->workers + (size_t)1, sizeof *x->result->busy);
    if (x->waiting)
        memset(x->waiting, 0xff, x->spec->workers * sizeof *x->waiting);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        for (uint32_t s = 0; s < CLOCK_STEPS && plan->actors[a].program.i == x->spec->program; s++)
            x->left[s] += plan->actors[a].fires;
    x->step_firings = x->left[0];
    return x->waiting && x->after && x->began && x->begun && x->busy && x->places && x->place && x->stirred && x->is_stirred && x->result->busy &&
           shares_new(x) && !game_init(&x->game, plan, false);
}

static void played_free(played *x)
{
    game_free(&x->game);
    free(x->heap.events);
    free(x->waiting);
    free(x->after);
    free(x->began);
    free(x->begun);
    free(x->busy);
    free(x->places);
    free(x->place);
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
    played x = {.spec = spec, .result = result};
    weir_status status = played_new(&x) ? WEIR_OK : WEIR_E_MEMORY;
    if (!status) {
        count_advance(&x);
        x.game.ready = ready;
        x.game.tell = tell;
        x.game.steps = CLOCK_STEPS;
        for (uint32_t r = 0; spec->slots && r < spec->plan->regsts_count; r++)
            game_set_slots(&x.game, r, spec->slots[r]);
        play(&x);
        conclude(&x);
        status = x.failed ? WEIR_E_MEMORY : result->steps ? WEIR_OK : x.heap.count ? WEIR_E_ARGUMENT : WEIR_E_LIVE;
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
