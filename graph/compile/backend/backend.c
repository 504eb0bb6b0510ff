/* graph/compile/backend/backend.c: the loop around offsets, emit and check.
 *
 * Slots, offsets and check depend on each other: fewer slots need less memory, and the game tells which register has too
 * few. So slots are taken away until all fits, which is arithmetic (fit.c); the plan is written and played; and where it
 * stalls, the register that is short of slots is given them back and is never lowered again: the loop ends.
 */
#include "graph/compile/backend/backend.h"

#include "graph/base/error.h"
#include "graph/base/text.h"
#include "graph/plan/form/text.h"
#include "graph/plan/prove/check.h"
#include "graph/plan/prove/validate.h"

/* The register of the plan written last. */
static reg *reg_of(compile *c, plan_regst_id id)
{
    for (int r = 0; r < c->phys.reg.count; r++)
        if (c->phys.reg.item[r].plan_id == id.i)
            return &c->phys.reg.item[r];
    return NULL;
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
    return t->alias < 0 && !t->within ? (double)t->bytes * slots_of(c, t) : 0;
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

/* NULL: there is no memory. */
static weir_plan *emit(compile *c)
{
    weir_plan *plan = pass_emit(c);
    c->pool.failed |= !plan;
    return plan;
}

static weir_plan *write(compile *c, check_result *result)
{
    weir_plan *plan = emit_laid_out(c);
    if (plan && !check_spaces(c)) {
        offsets_forget(c);
        weir_plan_free(plan);
        return NULL;
    }
    weir_status status = plan_validate_knowing(plan, c->known);
    offsets_forget(c);
    if (!status)
        status = check_play(plan, result);
    if (!status)
        return plan;
    backend_blame_call(c, status);
    weir_plan_free(plan);
    return NULL;
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

weir_plan *backend_plan(compile *c)
{
    for (;;) {
        check_result result;
        if (!backend_fit(c))
            return NULL;
        weir_plan *plan = write(c, &result);
        if (!plan || result.live)
            return plan;
        weir_plan_free(plan);
        if (!raise_short(c, &result))
            return NULL;
    }
}

/* How large each device's snapshot is, which a plan without one tells: it depends on shards and slots that are full at
 * the start, not on those that are taken away. */
static bool measure_snapshots(compile *c)
{
    if (!c->opts.snapshot)
        return true;
    weir_plan *plan = emit(c);
    uint64_t *bytes = POOL_NEW(&c->pool, uint64_t, c->phys.device.count + 1);
    bool ok = plan && bytes && plan_snapshot_bytes(plan, bytes) == WEIR_OK;
    for (int d = 0; ok && d < c->phys.device.count; d++)
        c->phys.device.item[d].snapshot = bytes[d];
    weir_plan_free(plan);
    c->pool.failed |= !ok;
    return ok;
}

bool backend_devices(compile *c)
{
    static bool (*const passes[])(compile *) = {pass_copies, pass_lower, check_sums, pass_families, pass_group, pass_sequence,
                                                pass_batch, pass_epilogue, pass_fuse, pass_tie, pass_slots, check_sums, pass_order,
                                                measure_snapshots, NULL};
    c->phys = (phys){.temps_found = false};
    return passes_run(c, passes);
}
