/* graph/plan/lives/arrivals.c: see the header.
 *
 * One walk (reach.h) is for as many arrivals as there are columns for: one for who makes the part, and one for each start
 * of a life that has some of its bytes.
 */
#include "graph/plan/lives/arrivals.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "graph/plan/lives/lives_inside.h"
#include "graph/plan/lives/map.h"
#include "graph/plan/lives/window.h"

#define WALKS_MAX 64          /* of a plan; what is left then is not proven */
#define MEETINGS_PER_PART 256 /* parts of the arena that are looked at */

/* Something else that has some of the bytes. */
typedef struct meeting {
    uint32_t part;
    uint32_t next; /* 1 + the next of the same arrival; 0: none */
} meeting;

typedef struct candidate {
    arrival *of;
    window window;
    uint32_t maker, reader; /* actors */
    uint64_t end;           /* byte of the arena */
    uint32_t meetings;      /* 1 + the first; 0: none */
    bool refused;
} candidate;

typedef struct proof {
    const weir_plan *plan;
    lives *lives;             /* owned, as are all arrays */
    candidate *candidates;
    uint32_t count;
    map_part *parts;
    size_t parts_count;
    const map_part **open;
    uint32_t *at;
    meeting *meetings;
    uint32_t meetings_count, meetings_room;
    uint32_t *column;         /* by actor; PLAN_NONE */
    uint32_t columns[REACH_COLUMNS];
    uint32_t columns_count;
} proof;

/* ---- who might ---- */

static bool fires_once(const weir_plan *plan, uint32_t actor)
{
    return actor != PLAN_NONE && plan->actors[actor].fires == 1;
}

static bool candidate_of(const weir_plan *plan, arrival *of, candidate *to)
{
    const plan_port *port = &plan->ports[of->port];
    const plan_regst *regst = &plan->regsts[port->regst.i];
    *to = (candidate){.of = of, .maker = regst->producer.i, .reader = port->actor.i};
    of->proven = false;
    if (!fires_once(plan, to->maker) || !fires_once(plan, to->reader) ||
        plan->actors[to->maker].program.i != plan->actors[to->reader].program.i ||
        !window_comes(plan, port->regst, port->actor, &to->window))
        return false;
    of->within = to->window.tensor;
    of->space = plan_actor_space(plan, to->reader);
    of->place = window_place(plan, &to->window);
    to->end = of->place + plan_tensor_bytes(&plan->tensors[regst->tensors.first]);
    return plan->spaces[of->space.i].kind == WEIR_CPU && of->place % PLAN_ALIGN == 0;
}

static int compare_candidates(const void *a, const void *b)
{
    const arrival *x = ((const candidate *)a)->of, *y = ((const candidate *)b)->of;
    if (x->space.i != y->space.i)
        return x->space.i < y->space.i ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static bool find_candidates(proof *p, arrival *list, uint32_t count)
{
    p->candidates = malloc((count + (size_t)1) * sizeof(*p->candidates));
    for (uint32_t i = 0; p->candidates && i < count; i++)
        p->count += candidate_of(p->plan, &list[i], &p->candidates[p->count]);
    if (p->candidates && p->count)
        qsort(p->candidates, p->count, sizeof(*p->candidates), compare_candidates);
    return p->candidates;
}

/* ---- what else is there ---- */

static bool open_arrays(proof *p)
{
    const weir_plan *plan = p->plan;
    size_t most = map_most(plan), meetings = MEETINGS_PER_PART * (most + p->count);
    p->meetings_room = meetings < UINT32_MAX / sizeof(meeting) ? (uint32_t)meetings : UINT32_MAX / sizeof(meeting);
    p->parts = malloc(most * sizeof(*p->parts));
    p->open = malloc(most * sizeof(*p->open));
    p->at = malloc((plan->tensors_count + (size_t)1) * sizeof(*p->at));
    p->column = malloc((plan->actors_count + (size_t)1) * sizeof(*p->column));
    p->meetings = calloc(1, sizeof(*p->meetings));
    if (!p->parts || !p->open || !p->at || !p->column || !p->meetings)
        return false;
    memset(p->column, 0xff, (plan->actors_count + (size_t)1) * sizeof(*p->column));
    p->parts_count = map_parts(plan, p->parts, p->at);
    qsort(p->parts, p->parts_count, sizeof(*p->parts), map_compare);
    return true;
}

/* False: no memory. */
static bool add_meeting(proof *p, candidate *c, const map_part *part)
{
    uint32_t number = (uint32_t)(part - p->parts);
    if (p->meetings_count == p->meetings_room) {
        c->refused = true;
        return true;
    }
    if (p->meetings_count && (p->meetings_count & (p->meetings_count - 1)) == 0) {
        meeting *more = realloc(p->meetings, 2 * (size_t)p->meetings_count * sizeof(*more));
        if (!more)
            return false;
        p->meetings = more;
    }
    p->meetings[p->meetings_count++] = (meeting){number, c->meetings};
    c->meetings = p->meetings_count;
    return true;
}

/* Whether the part is what the candidate is gathered into. */
static bool is_whole(const weir_plan *plan, const candidate *c, const map_part *part)
{
    const plan_tensor *whole = &plan->tensors[c->of->within.i];
    return whole->home == PLAN_IN_REGST ? part->kind == MAP_REGST && part->index == whole->owner
                                        : part->kind == MAP_TEMP && part->index == c->of->within.i;
}

/* Both are in ascending order; parts that end before a candidate are of no interest to those behind it. */
static bool find_meetings(proof *p)
{
    size_t next = 0, opened = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        candidate *c = &p->candidates[i];
        uint32_t space = c->of->space.i;
        size_t kept = 0;
        for (; next < p->parts_count && (p->parts[next].space < space ||
                                         (p->parts[next].space == space && p->parts[next].first < c->end)); next++)
            p->open[opened++] = &p->parts[next];
        for (size_t o = 0; o < opened; o++) {
            const map_part *part = p->open[o];
            if (part->space != space || part->end <= c->of->place)
                continue;
            p->open[kept++] = part;
            if (!is_whole(p->plan, c, part) && part->first < c->end && !add_meeting(p, c, part))
                return false;
        }
        opened = kept;
    }
    return true;
}

/* ---- who is reached from where ---- */

static uint32_t column_of(proof *p, uint32_t actor)
{
    if (p->column[actor] == PLAN_NONE) {
        p->columns[p->columns_count] = first_firing(p->lives, actor);
        p->column[actor] = p->columns_count++;
    }
    return p->column[actor];
}

/* From the end of a step's last firing to the start of a step's first. */
static uint32_t distance(const proof *p, uint32_t from, uint32_t to)
{
    const reach *steps = &p->lives->steps;
    uint32_t node = last_firing(p->lives, from), column = p->column[to];
    if (!reach_knows(steps, node))
        return FAR;
    if (from == to)
        return 1;
    return has_bit(reach_now(steps, node), column) ? 0 : has_bit(reach_within(steps, node), column) ? 1 : FAR;
}

/* From there to the end of the firing that makes the part. */
static uint32_t distance_to_come(const proof *p, uint32_t from, const candidate *c)
{
    return from == c->maker ? 0 : distance(p, from, c->maker);
}

/* The actor that begins the life of what is in a part; PLAN_NONE: it is always needed. */
static uint32_t start_of(const weir_plan *plan, const map_part *part)
{
    if (part->kind == MAP_TEMP || part->kind == MAP_SCRATCH)
        return part->life.actor.i;
    return part->kind == MAP_REGST && !plan->regsts[part->index].initial ? plan->regsts[part->index].producer.i
                                                                         : PLAN_NONE;
}

/* ---- the proof ---- */

/* Whether the next part is made only when all have read what was gathered. */
static bool in_turn(const proof *p, const candidate *c)
{
    const plan_tensor *whole = &p->plan->tensors[c->of->within.i];
    uint32_t count = 0;
    const uint32_t *readers =
        whole->home == PLAN_IN_REGST ? lives_readers(p->lives, (plan_regst_id){whole->owner}, &count) : NULL;
    for (uint32_t i = 0; i < count; i++)
        if (distance(p, p->plan->ports[readers[i]].actor.i, c->maker) > 1)
            return false;
    return distance(p, c->reader, c->maker) <= 1;
}

/* The register's tensor that lies where the gathered one does, and has the same elements there; PLAN_NONE: none. */
static uint32_t tensor_beneath(const weir_plan *plan, uint32_t regst, const candidate *c)
{
    const plan_tensor *whole = &plan->tensors[c->window.tensor.i];
    const plan_range *tensors = &plan->regsts[regst].tensors;
    uint64_t first = c->of->place - c->window.at;
    for (uint32_t t = tensors->first; plan->regsts[regst].slots == 1 && t < tensors->first + tensors->count; t++)
        if (plan->regsts[regst].offset + plan->tensors[t].offset == first &&
            plan->tensors[t].dtype == whole->dtype && plan_same_part(&plan->tensors[t], whole))
            return t;
    return PLAN_NONE;
}

/* From the last of the ends of a register's life, as far as these bytes go. */
static uint32_t regst_ends(const proof *p, uint32_t regst, const candidate *c)
{
    const weir_plan *plan = p->plan;
    const plan_tensor *part = &plan->tensors[plan->regsts[plan->ports[c->of->port].regst.i].tensors.first];
    uint32_t count, beneath = tensor_beneath(plan, regst, c);
    const uint32_t *readers = lives_readers(p->lives, (plan_regst_id){regst}, &count);
    uint32_t most = distance_to_come(p, plan->regsts[regst].producer.i, c);
    for (uint32_t i = 0; i < count && most < FAR; i++) {
        if (beneath != PLAN_NONE && !window_is_read(plan, readers[i], (plan_tensor_id){beneath}, c->window.at, part))
            continue;
        uint32_t each = distance_to_come(p, plan->ports[readers[i]].actor.i, c);
        most = each > most ? each : most;
    }
    return most;
}

static bool is_apart(const proof *p, const candidate *c, const map_part *part)
{
    const weir_plan *plan = p->plan;
    uint32_t start = start_of(plan, part);
    if (start == PLAN_NONE)
        return false;
    bool outside = p->lives->touch.outside[plan->ports[c->of->port].regst.i] ||
                   (part->kind == MAP_REGST && p->lives->touch.outside[part->index]);
    if (plan->actors[start].program.i != plan->actors[c->maker].program.i)
        return !outside;
    uint32_t there = part->kind == MAP_REGST ? regst_ends(p, part->index, c) : distance_to_come(p, start, c);
    return there < FAR && there + distance(p, c->reader, start) <= 1;
}

static void judge(const proof *p, candidate *c)
{
    bool proven = !c->refused && in_turn(p, c);
    for (uint32_t m = c->meetings; proven && m; m = p->meetings[m - 1].next)
        proven = is_apart(p, c, &p->parts[p->meetings[m - 1].part]);
    c->of->proven = proven;
}

/* Whether there are columns left for it; those that it needs are taken then. */
static bool take_columns(proof *p, const candidate *c)
{
    uint32_t most = 1, start;
    for (uint32_t m = c->meetings; m; m = p->meetings[m - 1].next)
        most++;
    if (p->columns_count + most > REACH_COLUMNS)
        return false;
    column_of(p, c->maker);
    for (uint32_t m = c->meetings; m; m = p->meetings[m - 1].next)
        if ((start = start_of(p->plan, &p->parts[p->meetings[m - 1].part])) != PLAN_NONE)
            column_of(p, start);
    return true;
}

/* As many as one walk can be for; returns where the next is to go on. */
static uint32_t prove_some(proof *p, uint32_t first)
{
    uint32_t end = first;
    p->columns_count = 0;
    memset(p->column, 0xff, p->plan->actors_count * sizeof(*p->column));
    while (end < p->count && take_columns(p, &p->candidates[end]))
        end++;
    if (end == first)
        return first + 1; /* too many for any walk */
    if (!reach_walk(&p->lives->steps, p->columns, p->columns_count))
        return PLAN_NONE;
    for (uint32_t i = first; i < end; i++)
        judge(p, &p->candidates[i]);
    return end;
}

static bool prove_all(proof *p)
{
    uint32_t next = 0;
    for (int walks = 0; walks < WALKS_MAX && next < p->count; walks++)
        next = prove_some(p, next);
    return next != PLAN_NONE;
}

weir_status arrivals_prove(const weir_plan *plan, arrival *list, uint32_t count)
{
    proof p = {.plan = plan};
    bool ok = find_candidates(&p, list, count);
    if (ok && p.count) {
        p.lives = lives_new(plan);
        ok = p.lives && open_arrays(&p) && find_meetings(&p) && prove_all(&p);
    }
    lives_free(p.lives);
    free(p.candidates);
    free(p.parts);
    free(p.open);
    free(p.at);
    free(p.column);
    free(p.meetings);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory to prove where what comes from other hosts may lie");
}
