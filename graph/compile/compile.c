/* graph/compile/compile.c: weir_compile(): the passes in order, and the loop around the last of them.
 *
 * Slots, layout and check depend on each other: fewer slots need less memory, and the game tells which register has too
 * few. So slots are taken away until all fits, which is arithmetic; the plan is written and played; and where it
 * stalls, the register that is short of slots is given them back and is never lowered again: the loop ends. What else
 * is given up for a limit is decided around that (limit.c).
 */
#include "graph/base/base.h"
#include "graph/plan/prove/check.h"
#include "graph/base/error.h"
#include "graph/base/filed.h"
#include "graph/base/locale.h"
#include "graph/base/opts.h"
#include "graph/base/text.h"
#include "graph/compile/actors/hosts.h"
#include "graph/compile/budget/limit.h"
#include "graph/plan/form/text.h"
#include "graph/plan/prove/validate.h"
#include "kernels/common/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "512MiB", "2GB", "1.5 GiB", "4096" */
static bool memory_parse(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    char *end;
    double value = number_read(text, &end);
    while (*end && strchr(" \t\n\v\f\r", *end))
        end++;
    for (size_t u = 0; end != text && u < sizeof units / sizeof *units; u++)
        if (!strcmp(end, units[u].name) && value > 0 && value * units[u].factor < 1e18) {
            *bytes = (uint64_t)(value * units[u].factor);
            return true;
        }
    return false;
}

/* Whether the program does something that is seen outside. */
static bool has_effect(const weir_graph *g, int program)
{
    for (int n = 0; n < g->nodes.count; n++) {
        const graph_node *node = g->nodes.item[n];
        if (node->program == program && graph_acts(node))
            return true;
    }
    return false;
}

/* A plan knows ops by name alone. */
static bool ops_known(const weir_graph *g)
{
    const weir_op *last = NULL;
    for (int n = 0; n < g->nodes.count; n++) {
        const graph_node *node = g->nodes.item[n];
        if (node->op == last || weir_op_find(node->op->name) == (last = node->op))
            continue;
        return error_set(WEIR_E_GRAPH, "%s:%d: %s: the op %s is not registered, or not under this name alone; "
                         "weir_op_register() makes it known", node->src.file ? node->src.file : "?", node->src.line,
                         node->name, node->op->name),
               false;
    }
    return true;
}

/* Main may be without anything where there are others. */
static bool programs_ok(const compile *c)
{
    const weir_graph *g = c->graph;
    const weir_src src = c->opts.src;
    for (int p = 1; p < g->programs.count; p++)
        if (!has_effect(g, p))
            return error_set(WEIR_E_GRAPH, "%s:%d: compile: the program %s fetches nothing, trains nothing and sets nothing",
                             src.file, src.line, g->programs.item[p].name),
                   false;
    if (g->programs.count > 1 || has_effect(g, 0))
        return true;
    return error_set(WEIR_E_GRAPH, "%s:%d: compile: the graph \"%s\" fetches nothing and trains nothing", src.file,
                     src.line, g->name),
           false;
}

/* "disk:/var/tmp" */
static bool offload_parse(compile *c)
{
    const weir_src src = c->opts.src;
    c->offload = filed_place(c->opts.offload);
    return c->offload || error_set(WEIR_E_ARGUMENT, "%s:%d: compile: \"%s\" is no place to offload to; write "
                                   "\"disk:DIRECTORY\"", src.file, src.line, c->opts.offload) == WEIR_OK;
}

static bool options_ok(compile *c)
{
    const weir_src src = c->opts.src;
    const char *mistake = weir_graph_mistake(c->graph);
    if (mistake)
        return error_set(WEIR_E_GRAPH, "%s", mistake), false;
    if (!(c->opts.loss_scale >= 0 && c->opts.loss_scale < INFINITY) || c->opts.loss_scale_steps < 0)
        return error_set(WEIR_E_ARGUMENT,
                         "%s:%d: compile: a .loss_scale of %g, doubled after %d steps; both are 0 or more", src.file,
                         src.line, c->opts.loss_scale, c->opts.loss_scale_steps),
               false;
    if (c->opts.micro_batches < 0 || c->opts.micro_batches > 1 << 16)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: %d micro-batches; from 1 to 65536 can be", src.file, src.line,
                         c->opts.micro_batches),
               false;
    if (c->opts.precision > WEIR_F32 && c->opts.precision != WEIR_BF16 && c->opts.precision != WEIR_F16)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: a precision of %s; f32, bf16 and f16 can be", src.file,
                         src.line, weir_dtype_name(c->opts.precision)),
               false;
    if (c->opts.per_host < 0)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: %d devices per host; 0 or more can be", src.file, src.line,
                         c->opts.per_host),
               false;
    if (c->opts.reduce != WEIR_SAME_BITS && c->opts.reduce != WEIR_FAST)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: no way to reduce has the number %d; there are WEIR_SAME_BITS and WEIR_FAST", src.file, src.line,
                         (int)c->opts.reduce),
               false;
    if (c->opts.link && !link_parse(c->opts.link, &c->link))
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: \"%s\" is no link between hosts; write its bandwidth and round "
                         "trip, as \"10Gbit 200us\"", src.file, src.line, c->opts.link),
               false;
    if (c->opts.offload && !offload_parse(c))
        return false;
    c->micro = c->opts.micro_batches ? c->opts.micro_batches : 1;
    c->memory_max = UINT64_MAX;
    if (c->opts.memory && !memory_parse(c->opts.memory, &c->memory_max))
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: \"%s\" is not an amount of memory; write a number "
                         "above 0 and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, as \"512MiB\"", src.file, src.line, c->opts.memory),
               false;
    return ops_known(c->graph) && programs_ok(c);
}

/* The register of the plan written last. */
static reg *reg_of(compile *c, plan_regst_id id)
{
    for (int r = 0; r < c->phys.reg.count; r++)
        if (c->phys.reg.item[r].plan_id == id.i)
            return &c->phys.reg.item[r];
    return NULL;
}

/* What went wrong has no line of the user's but that of the call. */
static void blame_call(const compile *c, weir_status status)
{
    error_set(status, "%s:%d: compile: %s", c->opts.src.file, c->opts.src.line, weir_error());
}

/* ---- more than there can be ---- */

#define SUM_MAX 0x1p62 /* below it no sum of sizes wraps 64 bits, with all that is added on the way */

static double slots_of(const compile *c, const ptensor *t)
{
    return t->reg >= 0 && t->reg < c->phys.reg.count ? (double)c->phys.reg.item[t->reg].slots : 1;
}

/* Bytes of all tensors and states of a device, as if none shared memory: in a double, as 64 bits may be too few. *largest:
 * the ptensor that has most of them. */
static double bytes_in_all(const compile *c, int device, const ptensor **largest)
{
    double bytes = 0, most = -1;
    for (int i = 0; i < c->phys.tensor.count; i++) {
        const ptensor *t = &c->phys.tensor.item[i];
        double own = t->device == device && t->alias < 0 && !t->within ? (double)t->bytes * slots_of(c, t) : 0;
        bytes += own;
        *largest = own > most ? t : *largest;
        most = own > most ? own : most;
    }
    for (int i = 0; i < c->phys.state.count; i++)
        if (c->phys.op.item[c->phys.state.item[i].pop].device == device)
            bytes += (double)c->phys.state.item[i].bytes;
    return bytes;
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
    bytes_in_all(c, device, &largest);
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

/* When there are shards, and when registers have slots: what follows adds up sizes. */
static bool check_sums(compile *c)
{
    const ptensor *largest = NULL;
    for (int d = 0; d < c->phys.device.count; d++) {
        double bytes = bytes_in_all(c, d, &largest);
        if (bytes >= SUM_MAX)
            return too_large(c, d, bytes);
    }
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
    blame_call(c, status);
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

weir_plan *compile_plan(compile *c)
{
    for (;;) {
        check_result result;
        if (!limit_fit(c))
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

static bool run(compile *c, bool (*const *passes)(compile *))
{
    for (; *passes; passes++)
        if (!(*passes)(c))
            return false;
    return true;
}

bool compile_devices(compile *c)
{
    static bool (*const passes[])(compile *) = {pass_copies, pass_lower, check_sums, pass_families, pass_group, pass_sequence,
                                                pass_batch, pass_epilogue, pass_fuse, pass_tie, pass_slots, check_sums, pass_order,
                                                measure_snapshots, NULL};
    c->phys = (phys){.temps_found = false};
    return run(c, passes);
}

static weir_plan *run_passes(compile *c)
{
    static bool (*const passes[])(compile *) = {ir_new,     pass_scale, pass_precision, pass_rules,
                                                pass_shard, pass_casts, pass_fold,      pass_box, NULL};
    if (!run(c, passes))
        return NULL;
    if (c->memory_max < UINT64_MAX)
        return limit_plan(c);
    return compile_devices(c) ? compile_plan(c) : NULL;
}

weir_plan *weir_compile_at(const weir_graph *graph, const weir_compile_opts *given)
{
    weir_compile_opts opts;
    const bool stray = graph_stray_report(), memory = graph && graph->pool.failed; /* then NULL is what came of that */
    if ((stray && !memory) || opts_read(&opts, sizeof opts, given, "compile"))
        return NULL;
    if (!graph) {
        error_set(WEIR_E_ARGUMENT, "%s:%d: compile: the graph is NULL", opts.src.file, opts.src.line);
        return NULL;
    }
    compile c = {.graph = graph, .opts = opts};
    weir_plan *plan = options_ok(&c) ? run_passes(&c) : NULL;
    if (!plan && c.pool.failed)
        blame_call(&c, WEIR_E_MEMORY);
    offsets_forget(&c);
    pool_free(&c.pool);
    return plan;
}
