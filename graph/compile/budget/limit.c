/* graph/compile/budget/limit.c: see limit.h.
 *
 * The search goes along the ladder of recompute.h, whose rungs need ever fewer bytes and ever more seconds, until at its end
 * some tensors are kept after all and it goes on from there. A rung is
 * tried by running the passes behind the box pass and taking slots away until it fits; no plan is kept of that. When
 * the last rung fits, the first that does is found by halving. Slots that a pipeline needs cost more than what crosses
 * between devices, and may cost more than repeating some nodes: so a rung further on, where they stay, is tried too,
 * and the cheaper one wins.
 *
 * Layouts are not monotone: a later rung may need more than one before. So when the last does not fit, limit_grid rungs are
 * tried, always the same, then as many that lead to the one of which the ladder counts the fewest bytes, then those around
 * the smallest. If none fits, the states of updates go to the disk from the smallest on, where there is one. The smallest of
 * all is made a plan of, whose bytes are told when they are too many. Asked for those, the search comes by the same rungs
 * again and ends with the same plan.
 *
 * Rungs are tried with a layout that is found quickly; the plan's is looked for longer, and never larger.
 */
#include "graph/compile/budget/limit.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/compile/backend/backend.h"
#include "graph/compile/budget/recompute.h"
#include "graph/compile/sbp/machine.h"
#include "graph/plan/form/text.h"

#include <stdio.h>
#include <string.h>

int limit_grid = 8;
void (*limit_heard)(double counted, uint64_t bytes);

/* Seconds that a step takes longer for want of slots. A pipeline in which `slots` of `wanted` micro-batches may be
 * under way takes wanted / slots times as long; what lost all but one is waited for, and what lost some of many in part. */
static double slots_seconds(const compile *c, double step)
{
    double waits = 0, slower = 0;
    for (int i = 0; i < c->phys.reg.count; i++) {
        const reg *r = &c->phys.reg.item[i];
        if (r->wanted <= r->slots)
            continue;
        double times = (double)r->wanted / r->slots - 1;
        if (!backend_feeds_pipeline(c, r))
            waits += transfer_seconds(c->rates, r->slot_bytes) * reg_writes(c, r) * (r->wanted - r->slots) / (r->wanted - 1);
        else if (times > slower)
            slower = times;
    }
    return waits + slower * step;
}

/* ---- rungs ---- */

typedef struct outcome {
    int rung;
    bool fits;
    uint64_t bytes;                /* of the largest device: with as many slots as fit, or with as few as can be */
    double seconds;                /* more than without a limit */
    bool slower;                   /* of them, some because slots were taken */
} outcome;

typedef struct search {
    compile *c;
    recompute x;
    double step;                   /* seconds of a step, on one device */
    bool failed;                   /* an error is set */
    backend_outcome of;            /* of the plan that was asked for last */
} search;

static double rung_seconds(const search *s, int at)
{
    return at ? s->x.ladder.item[at - 1].seconds : 0;
}

/* Lays the rung out, in the compilation's pool. */
static bool lay_out(search *s, int at, outcome *o)
{
    backend_outcome of;
    if (!recompute_apply(&s->x, at) || !backend_try(s->c, BACKEND_HASTY, &of))
        return false;
    double waits = slots_seconds(s->c, s->step);
    *o = (outcome){.rung = at, .fits = !of.over, .bytes = of.bytes, .slower = waits > 0, .seconds = rung_seconds(s, at) + waits};
    return true;
}

/* The compilation is as the box pass left it again. */
static void begin_again(search *s)
{
    s->c->ir = s->x.base;
    s->c->phys = (phys){.first = NULL};
}

/* Lays the rung out and forgets all but the outcome. */
static outcome try_rung(search *s, int at)
{
    outcome o = {.rung = at};
    pool kept = s->c->pool;
    s->c->pool = (pool){.head = NULL};
    s->failed |= !lay_out(s, at, &o);
    if (limit_heard && s->x.ladder.count) /* before that there is no count */
        limit_heard(at ? s->x.ladder.item[at - 1].needs : s->x.needs, o.bytes);
    begin_again(s);
    kept.failed |= s->c->pool.failed;
    pool_free(&s->c->pool);
    s->c->pool = kept;
    return o;
}

/* The first rung in (fails, fits] of which `wanted` is true, if there are no steps back on the way. */
static outcome first_that(search *s, int fails, outcome fits, bool (*wanted)(const outcome *))
{
    while (fits.rung - fails > 1 && !s->failed) {
        outcome middle = try_rung(s, fails + (fits.rung - fails) / 2);
        if (wanted(&middle))
            fits = middle;
        else
            fails = middle.rung;
    }
    return fits;
}

static bool does_fit(const outcome *o)
{
    return o->fits;
}

static bool is_no_slower(const outcome *o)
{
    return o->fits && !o->slower;
}

/* Rather than slots some more rungs, where that is cheaper. */
static outcome cheaper(search *s, outcome first, outcome last)
{
    if (!first.slower || last.slower)
        return first;
    outcome kept = first_that(s, first.rung, last, is_no_slower);
    return kept.seconds < first.seconds ? kept : first;
}

/* Rungs that are tried: at most all. */
static int grid_of(const search *s)
{
    return limit_grid <= s->x.ladder.count ? limit_grid : s->x.ladder.count + 1;
}

static int grid_rung(const search *s, int i)
{
    return i ? (int)((int64_t)s->x.ladder.count * i / (grid_of(s) - 1)) : 0;
}

/* The better of `best` and what rung `at`, if there is such a one, comes to: the cheaper of those that fit, or else the
 * smaller. */
static outcome better_of(search *s, outcome best, int at)
{
    if (at < 0 || at > s->x.ladder.count || s->failed)
        return best;
    outcome o = try_rung(s, at);
    return (o.fits && (!best.fits || o.seconds < best.seconds)) || (!best.fits && o.bytes < best.bytes) ? o : best;
}

/* The rung of which the ladder counts the fewest bytes. */
static int least_counted(const search *s)
{
    int least = 0;
    for (int at = 1; at <= s->x.ladder.count; at++) {
        double needs = s->x.ladder.item[at - 1].needs;
        if (needs > 0 && (!least || needs < s->x.ladder.item[least - 1].needs))
            least = at;
    }
    return least;
}

/* The best of the grid, of the rungs that lead to the one that counts the least, and of what is found from there in ever
 * smaller steps. */
static outcome best_of_grid(search *s)
{
    outcome best = {.bytes = UINT64_MAX};
    int least = least_counted(s);
    for (int i = 0; i < grid_of(s); i++)
        best = better_of(s, best, grid_rung(s, i));
    for (int i = 0; i < limit_grid && i < least; i++)
        best = better_of(s, best, least - i);
    for (int step = limit_grid > 1 ? s->x.ladder.count / (limit_grid - 1) / 2 : 0; step > 0; step /= 2) {
        int from = best.rung;
        best = better_of(s, best, from - step);
        best = better_of(s, best, from + step);
    }
    return best;
}

/* Whether nothing has to be given up. */
static bool fits_whole(search *s)
{
    backend_outcome o = {.bytes = 0};
    s->failed |= !backend_try(s->c, BACKEND_WHOLE, &o);
    bool fits = !s->failed && !o.over;
    s->c->whole = fits ? 0 : o.bytes;
    begin_again(s);
    return fits;
}

/* The rung that is taken: of those that are looked at the cheapest that fits, or else the smallest. */
static outcome choose(search *s)
{
    if (fits_whole(s) || s->failed)
        return (outcome){.fits = true};
    s->c->tight = true;
    outcome none = try_rung(s, 0);
    if (s->failed || (none.fits && !none.slower))
        return none;
    if (!recompute_ladder(&s->x))
        return s->failed = true, none;
    outcome last = try_rung(s, s->x.ladder.count);
    if (last.fits)
        return cheaper(s, none.fits ? none : first_that(s, 0, last, does_fit), last);
    outcome best = best_of_grid(s);
    if (best.fits || s->failed || !s->c->offload)
        return best;
    if (!recompute_states(&s->x, best.rung))
        return s->failed = true, none;
    last = try_rung(s, s->x.ladder.count);
    return last.fits ? first_that(s, best.rung, last, does_fit) : best_of_grid(s);
}

/* The plan with the first `at` rungs; NULL: an error, or, with s->of.over, it does not fit when it is live. */
static weir_plan *plan_of(search *s, int at)
{
    s->of = (backend_outcome){.over = false};
    return recompute_apply(&s->x, at) ? backend_plan(s->c, &s->of) : NULL;
}

/* ---- when nothing fits ---- */

/* "parameters 4.0 MiB, activations 12.0 MiB; of which 3.0 MiB are shared" */
static void list_kinds(const weir_plan *plan, int device, char *list, size_t list_bytes)
{
    char text[PLAN_TEXT_BYTES];
    plan_space_id space = {(uint32_t)device};
    uint64_t bytes[PLAN_MEMS], shared = plan_bytes_shared(plan, space);
    plan_bytes_by_kind(plan, space, bytes);
    size_t at = 0;
    for (uint32_t k = 0; k < PLAN_MEMS; k++)
        if (bytes[k] && at < list_bytes)
            at += (size_t)snprintf(list + at, list_bytes - at, "%s%s %s", at ? ", " : "", mem_text(k),
                                   bytes_text(bytes[k], text));
    if (shared && at < list_bytes)
        snprintf(list + at, list_bytes - at, "; of which %s are shared", bytes_text(shared, text));
}

/* "; 3.0 MiB arrive from other hosts" */
static void list_arriving(const pdevice *d, char *list, size_t list_bytes)
{
    char text[PLAN_TEXT_BYTES];
    size_t at = strlen(list);
    if (d->arriving)
        snprintf(list + at, list_bytes - at, "; %s arrive from other hosts", bytes_text(d->arriving, text));
}

static void advise(char *list, size_t bytes, const char *what)
{
    size_t used = strlen(list);
    snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", what);
}

static bool is_split_or_gathered(const weir_tensor *parameter, int axis)
{
    return WEIR_IS_S(parameter->sbp[axis]) || parameter->zero[axis];
}

/* Whether some parameter that trains lies whole on several devices. */
static bool zero_helps(const weir_graph *g)
{
    for (int t = 0; t < g->tensors.count; t++) {
        const weir_tensor *x = g->tensors.item[t];
        for (int a = 0; !x->node && x->update && !x->delay && a < x->mesh->axes; a++)
            if (x->mesh->shape[a] > 1 && !is_split_or_gathered(x, a))
                return true;
    }
    return false;
}

static bool has_micro(const weir_graph *g)
{
    for (int t = 0; t < g->tensors.count; t++)
        if (g->tensors.item[t]->micro)
            return true;
    return false;
}

/* Lists the options that would make it less and have not been asked for. Forward is computed again already, as far as that
 * helps. */
static const char *advice(const compile *c, char *list, size_t bytes)
{
    const weir_graph *g = c->graph;
    *list = '\0';
    if (has_micro(g))
        advise(list, bytes, "more and smaller .micro_batches");
    else if (g->loss)
        advise(list, bytes, "inputs with .micro = true and more .micro_batches");
    if (zero_helps(g))
        advise(list, bytes, ".zero of weir_train() over a data axis");
    if (!c->offload && g->loss)
        advise(list, bytes, ".offload = \"disk:DIRECTORY\"");
    if (c->opts.precision <= WEIR_F32)
        advise(list, bytes, ".precision = WEIR_BF16");
    if (c->opts.snapshot)
        advise(list, bytes, "no .snapshot");
    advise(list, bytes, "more devices");
    return list;
}

static void report(const compile *c, const weir_plan *plan, const backend_outcome *o, uint64_t asked)
{
    char list[500] = "", help[300], needs[PLAN_TEXT_BYTES], more[PLAN_TEXT_BYTES];
    const pdevice *d = &c->phys.device.item[o->device];
    list_kinds(plan, o->device, list, sizeof list);
    list_arriving(d, list, sizeof list);
    error_set(WEIR_E_MEMORY, "%s:%d: compile: %s:%d needs at least %s, %s more than the limit of %s: %s. The smallest "
              "limit that would do is %llu B. What may make it less: %s", c->opts.src.file, c->opts.src.line,
              device_kind_name(d->kind), d->index,
              bytes_text(o->bytes, needs), bytes_text(o->bytes - asked, more), c->opts.memory, list,
              (unsigned long long)o->bytes, advice(c, help, sizeof help));
}

/* Says what would do: what the smallest rung needs at least. A plan is made of it, so that whoever asks for that gets
 * one. */
static void refuse(search *s, int at)
{
    uint64_t asked = s->c->memory_max;
    s->c->memory_max = s->of.bytes;
    weir_plan *plan = plan_of(s, at);
    if (plan)
        report(s->c, plan, &s->of, asked);
    else if (s->of.over)
        error_set(WEIR_E_MEMORY, "%s:%d: compile: no plan that fits in %s can run without a deadlock; a larger .memory may", s->c->opts.src.file,
                  s->c->opts.src.line, s->c->opts.memory);
    weir_plan_free(plan);
}

weir_plan *limit_plan(compile *c)
{
    search s = {.c = c};
    if (!recompute_begin(&s.x, c))
        return NULL;
    for (int n = 0; n < c->ir.node_count; n++)
        s.step += node_seconds(c->rates, &c->ir, &c->ir.node[n]) * (c->ir.node[n].micro ? c->micro : 1);
    outcome taken = choose(&s);
    c->longer = s.step > 0 ? taken.seconds / s.step : 0;
    weir_plan *plan = s.failed ? NULL : plan_of(&s, taken.rung);
    if (!plan && !s.failed && s.of.over)
        refuse(&s, taken.rung);
    return plan;
}
