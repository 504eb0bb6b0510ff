/* tests/support/byte_game.c: see the header. Markers are a list that is searched through: plans of tests are small. */
#include "tests/support/byte_game.h"
#include "tests/support/mutate_plan.h"
#include "graph/plan/lives/window.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

typedef enum mark_kind { MARK_SLOT, MARK_TEMP, MARK_SCRATCH, MARK_ALWAYS, MARK_ARRIVAL } mark_kind;

typedef struct mark {
    uint32_t space, index, slot; /* index: of the register, tensor, kernel, space or port */
    uint64_t first, end;
    mark_kind kind;
    uint32_t actor; /* of what is in a workspace */
    const char *array;
} mark;

typedef struct game {
    const weir_plan *plan;
    lives *lives;         /* owned: to ask who reads what */
    uint32_t program;     /* of the run that goes on */
    uint32_t *steps;      /* by program: of the runs up to this one */
    uint32_t *steps_all;  /* and of those to come, too: a push may be ahead */
    uint64_t random;
    char *why;
    const arrival *arrivals; /* borrowed */
    uint32_t arrivals_count;
    mark *marks; /* owned, as are all arrays below */
    uint32_t mark_count, mark_room;
    /* by actor */
    uint32_t *fired, *position; /* position: of the kernel that comes next; NEVER: it is not firing */
    /* by queue */
    uint32_t *running, *pace; /* pace: how likely it is to go on */
    /* by port */
    uint32_t *unread, *held, *reading, *last_read, *let_go; /* let_go: slots freed */
    /* by register */
    uint32_t *free, *filled, *writing, *first_write, *last_use, *given, *published;
    uint32_t *first_use, *last_temp; /* by tensor: of temporaries */
    uint32_t **pending; /* by register and slot: readers that have not called their last kernel yet */
} game;

static bool counts(const game *g, uint32_t p)
{
    return plan_port_counts(g->plan, &g->plan->ports[p]);
}

static bool outside(const game *g, uint32_t a)
{
    return g->plan->queues[g->plan->actors[a].queue.i].kind == PLAN_OUTSIDE;
}

static const plan_queue *queue_of(const game *g, uint32_t a)
{
    return &g->plan->queues[g->plan->actors[a].queue.i];
}

/* ---- markers ---- */

static void name_mark(const mark *m, char text[64])
{
    if (m->kind == MARK_SLOT)
        snprintf(text, 64, "%s[%" PRIu32 "] (slot %" PRIu32 ")", m->array, m->index, m->slot);
    else
        snprintf(text, 64, "%s[%" PRIu32 "]", m->array, m->index);
}

/* The validator checks the workspace of one actor's own kernels, and content from the start; the game does not. */
static bool may_meet(const mark *a, const mark *b)
{
    bool temps = (a->kind == MARK_TEMP || a->kind == MARK_SCRATCH) && (b->kind == MARK_TEMP || b->kind == MARK_SCRATCH);
    return a->space != b->space || a->end <= b->first || b->end <= a->first || (temps && a->actor == b->actor);
}

/* A part that is there may lie in the tensor that is now gathered from it, or be a term of the sum that is now written
 * over it, but not the other way round. */
static bool is_gathered(const game *g, const mark *part, const mark *whole)
{
    window w;
    if (part->kind != MARK_SLOT || whole->kind >= MARK_SCRATCH)
        return false;
    if (whole->kind == MARK_SLOT && window_onto(g->plan, g->lives, (plan_regst_id){whole->index}, (plan_regst_id){part->index}, &w))
        return window_lies(g->plan, (plan_regst_id){whole->index}, &w);
    uint32_t maker = whole->kind == MARK_SLOT ? g->plan->regsts[whole->index].producer.i : whole->actor;
    return window_find(g->plan, (plan_regst_id){part->index}, (plan_actor_id){maker}, &w) &&
           window_lies(g->plan, (plan_regst_id){part->index}, &w);
}

/* The register's tensor that lies where the gathered one does; PLAN_NONE: none. */
static uint32_t tensor_at(const weir_plan *plan, uint32_t regst, uint64_t place)
{
    const plan_range *tensors = &plan->regsts[regst].tensors;
    for (uint32_t t = tensors->first; t < tensors->first + tensors->count; t++)
        if (plan->regsts[regst].offset + plan->tensors[t].offset == place)
            return t;
    return PLAN_NONE;
}

/* Whether all who have not read what is in the slot have no use for what comes there. */
static bool is_read_elsewhere(const game *g, const mark *slot, const mark *comes)
{
    const weir_plan *plan = g->plan;
    const plan_port *port = &plan->ports[comes->index];
    const plan_tensor *part = &plan->tensors[plan->regsts[port->regst.i].tensors.first];
    window w;
    if (slot->kind != MARK_SLOT || !window_comes(plan, port->regst, port->actor, &w))
        return false;
    uint32_t tensor = tensor_at(plan, slot->index, comes->first - w.at), count;
    const uint32_t *readers = lives_readers(g->lives, (plan_regst_id){slot->index}, &count);
    if (tensor == PLAN_NONE || g->filled[slot->index] || !g->published[slot->index])
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (g->let_go[readers[i]] < g->published[slot->index] &&
            window_is_read(plan, readers[i], (plan_tensor_id){tensor}, w.at, part))
            return false;
    return true;
}

static bool put_mark(game *g, mark m)
{
    if (m.first == m.end)
        return true;
    for (uint32_t i = 0; i < g->mark_count; i++)
        if (!may_meet(&g->marks[i], &m) && !is_gathered(g, &g->marks[i], &m) &&
            !(m.kind == MARK_ARRIVAL && is_read_elsewhere(g, &g->marks[i], &m))) {
            char one[64], other[64];
            name_mark(&g->marks[i], one);
            name_mark(&m, other);
            snprintf(g->why, 256, "%s and %s are needed at once in spaces[%" PRIu32 "]", one, other, m.space);
            return false;
        }
    if (g->mark_count == g->mark_room)
        g->marks = realloc(g->marks, (g->mark_room = 2 * g->mark_room + 64) * sizeof *g->marks);
    g->marks[g->mark_count++] = m;
    return true;
}

static void take_mark(game *g, mark_kind kind, uint32_t index, uint32_t slot)
{
    for (uint32_t i = 0; i < g->mark_count; i++)
        if (g->marks[i].kind == kind && g->marks[i].index == index && g->marks[i].slot == slot) {
            g->marks[i] = g->marks[--g->mark_count];
            return;
        }
}

static mark slot_mark(const game *g, uint32_t r, uint32_t slot)
{
    const plan_regst *regst = &g->plan->regsts[r];
    uint64_t first = regst->offset + slot * regst->slot_bytes;
    return (mark){.space = regst->space.i, .index = r, .slot = slot, .first = first, .end = first + regst->slot_bytes,
                  .kind = MARK_SLOT, .array = "regsts"};
}

static mark temp_mark(const game *g, uint32_t t)
{
    const plan_tensor *tensor = &g->plan->tensors[t];
    uint64_t first = queue_of(g, tensor->owner)->workspace_offset + tensor->offset;
    return (mark){.space = queue_of(g, tensor->owner)->space.i, .index = t, .first = first,
                  .end = first + plan_tensor_bytes(tensor), .kind = MARK_TEMP, .actor = tensor->owner, .array = "tensors"};
}

static mark scratch_mark(const game *g, uint32_t k)
{
    const plan_kernel *kernel = &g->plan->kernels[k];
    uint64_t first = queue_of(g, kernel->actor.i)->workspace_offset + kernel->workspace_offset;
    return (mark){.space = queue_of(g, kernel->actor.i)->space.i, .index = k, .first = first,
                  .end = first + kernel->workspace_bytes, .kind = MARK_SCRATCH, .actor = kernel->actor.i,
                  .array = "kernels"};
}

static bool put_always(game *g)
{
    const weir_plan *plan = g->plan;
    bool ok = true;
    for (uint32_t s = 0; s < plan->spaces_count && ok; s++)
        ok = put_mark(g, (mark){.space = s, .index = s, .first = plan->spaces[s].snapshot_offset, .kind = MARK_ALWAYS,
                                .end = plan->spaces[s].snapshot_offset + plan->spaces[s].snapshot_bytes, .array = "spaces"});
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        for (uint32_t k = 0; k < plan->regsts[r].slots && ok; k++)
            if (plan->regsts[r].initial || plan->regsts[r].producer.i == PLAN_NONE) {
                mark m = slot_mark(g, r, k);
                m.kind = MARK_ALWAYS;
                ok = put_mark(g, m);
            }
    for (uint32_t t = 0; t < plan->tensors_count && ok; t++)
        if (plan->tensors[t].home == PLAN_IN_STATE) {
            mark m = temp_mark(g, t);
            m.first = plan->tensors[t].offset;
            m.end = m.first + plan_tensor_bytes(&plan->tensors[t]);
            m.kind = MARK_ALWAYS;
            ok = put_mark(g, m);
        }
    return ok;
}

/* ---- who is needed from when to when ---- */

static void see_operand(game *g, uint32_t o, uint32_t position, bool writes)
{
    const plan_operand *operand = &g->plan->operands[o];
    const plan_tensor *tensor = &g->plan->tensors[operand->tensor.i];
    if (operand->port.i != PLAN_NONE) {
        g->last_read[operand->port.i] = position;
    } else if (tensor->home == PLAN_IN_REGST) {
        g->last_use[tensor->owner] = position;
        if (writes && g->first_write[tensor->owner] == NEVER)
            g->first_write[tensor->owner] = position;
    } else if (tensor->home == PLAN_IN_TEMP) {
        g->last_temp[operand->tensor.i] = position;
        if (g->first_use[operand->tensor.i] == NEVER)
            g->first_use[operand->tensor.i] = position;
    }
}

static void see_kernels(game *g)
{
    const weir_plan *plan = g->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        for (uint32_t i = 0; i < plan->actors[a].kernels.count; i++) {
            const plan_kernel *kernel = &plan->kernels[plan->actors[a].kernels.first + i];
            for (uint32_t o = 0; o < kernel->in.count; o++)
                see_operand(g, kernel->in.first + o, i, false);
            for (uint32_t o = 0; o < kernel->out.count; o++)
                see_operand(g, kernel->out.first + o, i, true);
        }
}

/* ---- the game ---- */

static bool always(const game *g, uint32_t r)
{
    return g->plan->regsts[r].initial || g->plan->regsts[r].producer.i == PLAN_NONE;
}

/* A push or pull, whose fires depend on what the program outside does, is bound by what all runs have of it. */
static uint32_t firings(const game *g, uint32_t a)
{
    const plan_actor *actor = &g->plan->actors[a];
    return (outside(g, a) ? g->steps_all : g->steps)[actor->program.i] * actor->fires;
}

static bool may_fire(const game *g, uint32_t a)
{
    const plan_actor *actor = &g->plan->actors[a];
    if (g->position[a] != NEVER || g->fired[a] == firings(g, a))
        return false;
    if (!outside(g, a) && (actor->program.i != g->program || g->running[actor->queue.i] != NEVER))
        return false;
    for (uint32_t p = actor->ports.first; p < actor->ports.first + actor->ports.count; p++)
        if (counts(g, p) && !g->unread[p])
            return false;
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        if (!g->free[r])
            return false;
    return true;
}

/* The register's value is sent to its final place on other ranks. */
static bool put_arrivals(game *g, uint32_t r)
{
    const weir_plan *plan = g->plan;
    for (uint32_t i = 0; i < g->arrivals_count; i++) {
        const arrival *of = &g->arrivals[i];
        if (!of->proven || plan->ports[of->port].regst.i != r)
            continue;
        mark m = {.space = of->space.i, .index = of->port, .first = of->place, .kind = MARK_ARRIVAL, .array = "ports",
                  .end = of->place + plan_tensor_bytes(&plan->tensors[plan->regsts[r].tensors.first])};
        if (!put_mark(g, m))
            return false;
    }
    return true;
}

/* From here on the arrivals are parts of the register, or of the temporary. */
static void take_arrivals(game *g, plan_home home, uint32_t index)
{
    for (uint32_t i = 0; i < g->arrivals_count; i++) {
        uint32_t t = g->arrivals[i].within.i;
        const plan_tensor *whole = &g->plan->tensors[t];
        if (g->arrivals[i].proven && whole->home == home && (home == PLAN_IN_REGST ? whole->owner : t) == index)
            take_mark(g, MARK_ARRIVAL, g->arrivals[i].port, 0);
    }
}

/* Marks what is needed from this kernel on; without kernels a firing is one. */
static bool begin_kernel(game *g, uint32_t a, uint32_t position)
{
    const plan_actor *actor = &g->plan->actors[a];
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++) {
        uint32_t from = g->first_write[r] == NEVER ? 0 : g->first_write[r];
        if (from == position)
            take_arrivals(g, PLAN_IN_REGST, r);
        if (from == position && !g->filled[r] && !always(g, r) && !put_mark(g, slot_mark(g, r, g->writing[r])))
            return false;
    }
    for (uint32_t t = actor->temps.first; t < actor->temps.first + actor->temps.count; t++) {
        if (g->first_use[t] == position)
            take_arrivals(g, PLAN_IN_TEMP, t);
        if (g->first_use[t] == position && !put_mark(g, temp_mark(g, t)))
            return false;
    }
    return !actor->kernels.count || put_mark(g, scratch_mark(g, actor->kernels.first + position));
}

static void slot_done(game *g, uint32_t r, uint32_t slot)
{
    if (!always(g, r))
        take_mark(g, MARK_SLOT, r, slot);
}

static uint32_t last_of(uint32_t last, const plan_actor *actor)
{
    return last != NEVER ? last : actor->kernels.count ? actor->kernels.count - 1 : 0;
}

static uint32_t readers_of(const game *g, uint32_t r)
{
    uint32_t readers = 0;
    for (uint32_t p = 0; p < g->plan->ports_count; p++)
        readers += g->plan->ports[p].regst.i == r && counts(g, p);
    return readers;
}

static void end_kernel(game *g, uint32_t a, uint32_t position)
{
    const plan_actor *actor = &g->plan->actors[a];
    if (actor->kernels.count)
        take_mark(g, MARK_SCRATCH, actor->kernels.first + position, 0);
    for (uint32_t t = actor->temps.first; t < actor->temps.first + actor->temps.count; t++)
        if (g->first_use[t] != NEVER && g->last_temp[t] == position)
            take_mark(g, MARK_TEMP, t, 0);
    for (uint32_t p = actor->ports.first; p < actor->ports.first + actor->ports.count; p++) {
        const plan_port *port = &g->plan->ports[p];
        if (!counts(g, p) || last_of(g->last_read[p], actor) != position || g->held[p] + 1 < port->hold)
            continue;
        if (!--g->pending[port->regst.i][g->reading[p]])
            slot_done(g, port->regst.i, g->reading[p]);
    }
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        if (!readers_of(g, r) && last_of(g->last_use[r], actor) == position && g->filled[r] + 1 == g->plan->regsts[r].fill)
            slot_done(g, r, g->writing[r]);
}

static void publish(game *g, uint32_t r)
{
    const plan_regst *regst = &g->plan->regsts[r];
    uint32_t readers = 0;
    g->filled[r] = 0;
    g->published[r]++;
    for (uint32_t p = 0; p < g->plan->ports_count; p++)
        if (g->plan->ports[p].regst.i == r && counts(g, p)) {
            g->unread[p]++;
            readers++;
        }
    g->free[r] -= readers > 0;
    g->pending[r][g->writing[r]] = readers;
    g->writing[r] = (g->writing[r] + 1) % regst->slots;
}

/* The register's slots are free again up to what its slowest reader has let go. */
static void let_go(game *g, uint32_t p)
{
    uint32_t r = g->plan->ports[p].regst.i, least = UINT32_MAX;
    g->unread[p]--;
    g->held[p] = 0;
    g->reading[p] = (g->reading[p] + 1) % g->plan->regsts[r].slots;
    g->let_go[p]++;
    for (uint32_t q = 0; q < g->plan->ports_count; q++)
        if (g->plan->ports[q].regst.i == r && counts(g, q) && g->let_go[q] < least)
            least = g->let_go[q];
    g->free[r] += least - g->given[r];
    g->given[r] = least;
}

static bool end_firing(game *g, uint32_t a)
{
    const plan_actor *actor = &g->plan->actors[a];
    g->fired[a]++;
    g->position[a] = NEVER;
    if (!outside(g, a))
        g->running[actor->queue.i] = NEVER;
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        if (++g->filled[r] == g->plan->regsts[r].fill)
            publish(g, r);
    for (uint32_t p = actor->ports.first; p < actor->ports.first + actor->ports.count; p++)
        if (counts(g, p) && ++g->held[p] == g->plan->ports[p].hold)
            let_go(g, p);
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        if (!g->filled[r] && !put_arrivals(g, r))
            return false;
    return true;
}

/* The actor begins to fire, or calls its next kernel, or is done. Between the two halves of a kernel others move. */
static bool move(game *g, uint32_t a)
{
    const plan_actor *actor = &g->plan->actors[a];
    uint32_t kernels = actor->kernels.count ? actor->kernels.count : 1;
    if (g->position[a] == NEVER) {
        g->position[a] = 0;
        if (!outside(g, a))
            g->running[actor->queue.i] = a;
        return begin_kernel(g, a, 0);
    }
    end_kernel(g, a, g->position[a]);
    if (++g->position[a] < kernels)
        return begin_kernel(g, a, g->position[a]);
    return end_firing(g, a);
}

/* One of those that can move, the paces of their queues being weights; NEVER: none can. */
static uint32_t choose(game *g)
{
    uint64_t sum = 0;
    uint32_t chosen = NEVER;
    for (uint32_t a = 0; a < g->plan->actors_count; a++) {
        if (g->position[a] == NEVER && !may_fire(g, a))
            continue;
        uint64_t weight = g->pace[g->plan->actors[a].queue.i];
        sum += weight;
        if (mutate_draw(&g->random) % sum < weight)
            chosen = a;
    }
    return chosen;
}

static void set_up(game *g)
{
    const weir_plan *plan = g->plan;
    memset(g->position, 0xff, plan->actors_count * sizeof *g->position);
    memset(g->running, 0xff, plan->queues_count * sizeof *g->running);
    memset(g->last_read, 0xff, plan->ports_count * sizeof *g->last_read);
    memset(g->first_write, 0xff, plan->regsts_count * sizeof *g->first_write);
    memset(g->last_use, 0xff, plan->regsts_count * sizeof *g->last_use);
    memset(g->first_use, 0xff, plan->tensors_count * sizeof *g->first_use);
    for (uint32_t q = 0; q < plan->queues_count; q++)
        g->pace[q] = 1u << mutate_draw(&g->random) % 4 * 5; /* some all but stand still while others can move */
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        uint32_t readers = readers_of(g, r);
        g->pending[r] = calloc(regst->slots, sizeof **g->pending);
        g->free[r] = readers ? regst->slots - regst->initial : regst->slots;
        g->writing[r] = regst->initial % regst->slots;
        for (uint32_t k = 0; k < regst->initial; k++)
            g->pending[r][k] = readers;
    }
    for (uint32_t p = 0; p < plan->ports_count; p++)
        g->unread[p] = plan->regsts[plan->ports[p].regst.i].initial;
    see_kernels(g);
}

static uint32_t *numbers(uint32_t count)
{
    return calloc(count + (size_t)1, sizeof(uint32_t));
}

static void game_new(game *g)
{
    uint32_t actors = g->plan->actors_count, ports = g->plan->ports_count, regsts = g->plan->regsts_count;
    g->fired = numbers(actors), g->position = numbers(actors);
    g->running = numbers(g->plan->queues_count), g->pace = numbers(g->plan->queues_count);
    g->unread = numbers(ports), g->held = numbers(ports), g->reading = numbers(ports);
    g->last_read = numbers(ports), g->let_go = numbers(ports);
    g->free = numbers(regsts), g->filled = numbers(regsts), g->writing = numbers(regsts), g->given = numbers(regsts);
    g->published = numbers(regsts);
    g->first_write = numbers(regsts), g->last_use = numbers(regsts);
    g->first_use = numbers(g->plan->tensors_count), g->last_temp = numbers(g->plan->tensors_count);
    g->pending = calloc(regsts + (size_t)1, sizeof *g->pending);
    g->steps = numbers(g->plan->programs_count), g->steps_all = numbers(g->plan->programs_count);
}

static void game_free(game *g)
{
    uint32_t *const all[] = {g->fired, g->position, g->running, g->pace, g->unread, g->held, g->reading, g->last_read,
                             g->let_go, g->free, g->filled, g->writing, g->given, g->published, g->first_write, g->last_use,
                             g->first_use, g->last_temp, g->steps, g->steps_all};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (uint32_t r = 0; r < g->plan->regsts_count; r++)
        free(g->pending[r]);
    free(g->pending);
    lives_free(g->lives);
    free(g->marks);
}

/* Whether all that workers do in this run is done; a push or pull may be anywhere. */
static bool run_over(const game *g)
{
    for (uint32_t a = 0; a < g->plan->actors_count; a++)
        if (!outside(g, a) && (g->position[a] != NEVER || g->fired[a] < firings(g, a)))
            return false;
    return true;
}

static bool finished(const game *g)
{
    for (uint32_t a = 0; a < g->plan->actors_count; a++)
        if (g->fired[a] < firings(g, a))
            return snprintf(g->why, 256, "actors[%" PRIu32 "] waits for ever", a), false;
    for (uint32_t i = 0; i < g->mark_count; i++)
        if (g->marks[i].kind != MARK_ALWAYS)
            return snprintf(g->why, 256, "%s[%" PRIu32 "] is still needed at the end", g->marks[i].array, g->marks[i].index),
                   false;
    return true;
}

/* Moves until the run is over, or (NULL) until nobody can. */
static bool play_run(game *g, const byte_run *run)
{
    if (run) {
        g->program = run->program;
        g->steps[run->program] += run->steps;
    }
    while (!run || !run_over(g)) {
        uint32_t a = choose(g);
        if (a == NEVER)
            return true;
        if (!move(g, a))
            return false;
    }
    return true;
}

static bool play(game g, const byte_run *runs, uint32_t count)
{
    const weir_plan *plan = g.plan;
    char *why = g.why;
    *why = '\0';
    game_new(&g);
    g.lives = lives_new(plan);
    set_up(&g);
    for (uint32_t i = 0; i < count; i++)
        g.steps_all[runs[i].program] += runs[i].steps;
    bool ok = put_always(&g);
    for (uint32_t i = 0; ok && i < count; i++)
        ok = play_run(&g, &runs[i]);
    ok = ok && play_run(&g, NULL) && finished(&g);
    game_free(&g);
    return ok;
}

bool byte_game_play(const weir_plan *plan, const byte_run *runs, uint32_t count, uint64_t seed, char why[256])
{
    return play((game){.plan = plan, .random = seed, .why = why}, runs, count);
}

bool byte_game_arrivals(const weir_plan *plan, const arrival *list, uint32_t count, uint64_t seed, int games,
                        char why[256])
{
    enum { RUNS = 4 };
    bool ok = true;
    for (int i = 0; i < games && ok; i++) {
        byte_run runs[RUNS];
        uint32_t runs_count = plan->programs_count > 1 ? RUNS : 1;
        for (uint32_t r = 0; r < runs_count; r++) {
            runs[r].program = (uint32_t)(mutate_draw(&seed) % plan->programs_count);
            runs[r].steps = 1 + (uint32_t)(mutate_draw(&seed) % 4);
        }
        ok = play((game){.plan = plan, .random = mutate_draw(&seed), .why = why, .arrivals = list, .arrivals_count = count},
                  runs, runs_count);
    }
    return ok;
}

bool byte_game_all(const weir_plan *plan, uint64_t seed, int games, char why[256])
{
    return byte_game_arrivals(plan, NULL, 0, seed, games, why);
}
