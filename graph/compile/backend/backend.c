/* graph/compile/backend/backend.c: the loop around offsets, emit and check.
 *
 * Slots, offsets and check depend on each other: fewer slots need less memory, and the game tells which register has too
 * few. So slots are taken away until all fits, which is arithmetic (fit.c); the plan is written and played; and where it
 * stalls, the register that is short of slots is given them back and is never lowered again: the loop ends. With rates the loop
 * begins with slots that a prediction found (pace.c).
 */
#include "graph/compile/backend/backend.h"

#include "graph/base/error.h"
#include "graph/base/text.h"
#include "graph/compile/actors/hosts.h"
#include "graph/compile/actors/passes.h"
#include "graph/compile/backend/emit.h"
#include "graph/compile/backend/fit.h"
#include "graph/compile/backend/pace.h"
#include "graph/compile/devices/passes.h"
#include "graph/compile/memory/offsets.h"
#include "graph/plan/form/text.h"
#include "graph/plan/prove/check.h"
#include "graph/plan/prove/validate.h"

static reg *reg_of(compile *c, plan_regst_id id)
{
    for (int r = 0; r < c->phys.reg.count; r++)
        if (c->phys.reg.item[r].plan_id == id.i)
            return &c->phys.reg.item[r];
    return NULL;
}

static bool no_memory(compile *c)
{
    c->pool.failed = true;
    return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
}

void backend_blame_call(const compile *c, weir_status status)
{
    error_set(status, "%s:%d: compile: %s", c->opts.src.file, c->opts.src.line, weir_error());
}

/* ---- more than there can be ---- */

#define SUM_MAX 0x1p62 /* below it no sum of sizes wraps 64 bits, with all that is added on the way */

static double slots_of(const compile *c, const ptensor *t)
{
    return t->reg >= 0 && t->reg < c->phys.reg.count ? (double)c->phys.reg.item[t->reg].slots : 1;
}

/* The bytes of all its slots; of what lies in another tensor none. */
static double bytes_of(const compile *c, const ptensor *t)
{
    return t->alias == NONE && t->within == NONE ? (double)t->bytes * slots_of(c, t) : 0;
}

static const char *large_text(double bytes, char text[PLAN_TEXT_BYTES])
{
    if (bytes < 0x1p63)
        return bytes_text((uint64_t)bytes, text);
    text_print(text, PLAN_TEXT_BYTES, "%.1f EiB", bytes / 0x1p60);
    return text;
}

static bool too_large(const compile *c, int device, double bytes)
{
    const pdevice *d = &c->phys.device.item[device];
    const ptensor *largest = NULL;
    char needs[PLAN_TEXT_BYTES], most[PLAN_TEXT_BYTES], can[PLAN_TEXT_BYTES];
    for (int i = 0; i < c->phys.tensor.count; i++) {
        const ptensor *t = &c->phys.tensor.item[i];
        if (t->device == device && (!largest || bytes_of(c, t) > bytes_of(c, largest)))
            largest = t;
    }
    if (!largest) /* it has nothing */
        return true;
    const ir_tensor *of = &c->ir.tensors.item[largest->tensor];
    error_set(WEIR_E_MEMORY, "%s:%d: compile: %s:%d needs %s, but a process can map no more than %s; the largest is \"%s\" "
              "(%s:%d), %s. Smaller tensors, or more devices that share them, may do", c->opts.src.file, c->opts.src.line,
              device_kind_name(d->kind), d->index, large_text(bytes, needs), bytes_text(PLAN_BYTES_MAX, can), of->name,
              of->src.file ? of->src.file : "?", of->src.line,
              large_text((double)largest->bytes * slots_of(c, largest), most));
    return false;
}

/* When there are shards, and when registers have slots: what follows adds up sizes. All tensors and states of a device are
 * counted as if none shared memory: in a double, as 64 bits may be too few. */
static bool check_sums(compile *c)
{
    double *bytes = POOL_NEW(&c->pool, double, c->phys.device.count + 1);
    if (!bytes)
        return false;
    for (int i = 0; i < c->phys.tensor.count; i++)
        bytes[c->phys.tensor.item[i].device] += bytes_of(c, &c->phys.tensor.item[i]);
    for (int i = 0; i < c->phys.state.count; i++)
        bytes[c->phys.op.item[c->phys.state.item[i].pop].device] += (double)c->phys.state.item[i].bytes;
    for (int d = 0; d < c->phys.device.count; d++)
        if (bytes[d] >= SUM_MAX)
            return too_large(c, d, bytes[d]);
    return true;
}

/* When all has its place. */
static bool check_spaces(const compile *c)
{
    for (int d = 0; d < c->phys.device.count; d++)
        if (c->phys.device.item[d].kind != WEIR_DISK && c->phys.device.item[d].bytes > PLAN_BYTES_MAX)
            return too_large(c, d, (double)c->phys.device.item[d].bytes);
    return true;
}

/* ---- a plan, while it is looked for ---- */

typedef struct draft {
    compile *c;
    offsets offsets;
    weir_plan *plan;               /* owned, until it is handed out */
    lives *known;                  /* owned: of that plan, with the slots that offsets were found for last */
} draft;

static bool find_offsets(draft *b)
{
    lives_free(b->known);
    b->known = emit_slots(b->c, b->plan) ? lives_new(b->plan) : NULL;
    if (!b->known || !offsets_find(&b->offsets, b->plan, b->known))
        return no_memory(b->c);
    hosts_arriving(b->c);
    return true;
}

/* Whether the plan is valid, which is an error else; `result` is how its game ends. */
static bool play(draft *b, check_result *result)
{
    emit_offsets(b->c, b->plan);
    weir_status status = plan_validate_knowing(b->plan, b->known);
    if (!status)
        status = check_play(b->plan, result);
    if (status)
        backend_blame_call(b->c, status);
    return !status;
}

/* Gives the register that the game found too small what it needs, for good; false when that cannot help. */
static bool raise_short(compile *c, const check_result *result)
{
    reg *r = result->short_of.i == PLAN_NONE ? NULL : reg_of(c, result->short_of);
    if (!r || r->fixed || r->slots > 2 * c->micro) {
        error_set(WEIR_E_LIVE, "%s:%d: compile: %s", c->opts.src.file, c->opts.src.line, result->text);
        return false;
    }
    r->slots = result->slots_needed > (uint32_t)r->slots ? (int)result->slots_needed : r->slots + 1;
    r->needed = true;
    return true;
}

/* How large each device's snapshot is, which the plan tells: it depends on shards and slots that are full at the start, not on
 * those that are taken away. */
static bool measure_snapshots(draft *b)
{
    compile *c = b->c;
    if (!c->opts.snapshot)
        return true;
    uint64_t *bytes = POOL_NEW(&c->pool, uint64_t, c->phys.device.count + 1);
    if (!bytes || plan_snapshot_bytes(b->plan, bytes))
        return no_memory(c);
    for (int d = 0; d < c->phys.device.count; d++)
        c->phys.device.item[d].snapshot = b->plan->spaces[d].snapshot_bytes = bytes[d];
    return true;
}

/* Ended by draft_end() in any case. */
static bool draft_begin(draft *b, compile *c, bool hasty)
{
    *b = (draft){.c = c};
    c->phys = (phys){.first = NULL};
    if (!passes_run(c, device_passes) || !check_sums(c) || !passes_run(c, actor_passes) || !check_sums(c))
        return false;
    b->plan = emit_plan(c);
    return b->plan && offsets_begin(&b->offsets, c, hasty) ? measure_snapshots(b) : no_memory(c);
}

static void draft_end(draft *b)
{
    lives_free(b->known);
    weir_plan_free(b->plan);
}

/* Slots whose loss costs the least go first, until all fits or none is left that may go. */
static bool fit(draft *b, backend_outcome *o)
{
    do {
        if (!find_offsets(b))
            return false;
        *o = fit_outcome(b->c);
    } while (o->over && fit_lower(b->c));
    return true;
}

bool backend_try(compile *c, backend_effort effort, backend_outcome *o)
{
    draft b;
    bool ok = draft_begin(&b, c, effort == BACKEND_HASTY) && (effort == BACKEND_HASTY ? fit(&b, o) : find_offsets(&b));
    if (ok)
        *o = fit_outcome(c);
    draft_end(&b);
    return ok;
}

/* With rates: the slots with which steps are the shortest, of those that fit in the limit. */
static bool pace_draft(draft *b)
{
    compile *c = b->c;
    pace p = {.c = NULL};
    bool ok = emit_slots(c, b->plan) ? pace_begin(&p, c, b->plan) : no_memory(c), fits = false;
    while (ok && !fits && pace_next(&p)) {
        ok = check_sums(c) && (c->memory_max == UINT64_MAX || find_offsets(b));
        fits = ok && !fit_outcome(c).over;
    }
    pace_end(&p);
    return ok;
}

weir_plan *backend_plan(compile *c, backend_outcome *o)
{
    draft b;
    weir_plan *plan = NULL;
    bool ok = draft_begin(&b, c, false) && (!c->rates || pace_draft(&b));
    *o = (backend_outcome){.over = false};
    while (ok && !plan) {
        check_result result;
        ok = fit(&b, o) && !o->over && check_spaces(c) && play(&b, &result) && (result.live || raise_short(c, &result));
        if (ok && result.live) {
            plan = b.plan;
            b.plan = NULL;
        }
    }
    draft_end(&b);
    return plan;
}
