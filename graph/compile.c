/* graph/compile.c: weir_compile(): the passes in order, and the loop around the last of them.
 *
 * Slots, layout and check depend on each other: the game tells which register has too few slots, and more slots need more
 * memory. So a plan is written, played, and written again with one register changed until it is live and fits. Slots only
 * rise until it is live, then only fall, and a register that cannot fall is not tried twice: the loop ends.
 */
#include "graph/check.h"
#include "graph/error.h"
#include "graph/ir.h"

#include <ctype.h>
#include <inttypes.h>
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
    double value = strtod(text, &end);
    while (isspace((unsigned char)*end))
        end++;
    for (size_t u = 0; end != text && u < sizeof units / sizeof *units; u++)
        if (!strcmp(end, units[u].name) && value > 0 && value * units[u].factor < 1e18) {
            *bytes = (uint64_t)(value * units[u].factor);
            return true;
        }
    return false;
}

static bool options_ok(compile *c)
{
    const weir_src src = c->opts.src;
    const char *mistake = weir_graph_mistake(c->graph);
    if (mistake)
        return error_set(WEIR_E_GRAPH, "%s", mistake), false;
    if (c->opts.micro_batches < 0 || c->opts.micro_batches > 1 << 16)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: %d micro-batches; from 1 to 65536 can be", src.file, src.line,
                         c->opts.micro_batches),
               false;
    c->micro = c->opts.micro_batches ? c->opts.micro_batches : 1;
    c->memory_max = UINT64_MAX;
    if (c->opts.memory && !memory_parse(c->opts.memory, &c->memory_max))
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: \"%s\" is not an amount of memory; write \"512MiB\" or \"2GB\"",
                         src.file, src.line, c->opts.memory),
               false;
    for (int n = 0; n < c->graph->nodes.count; n++)
        if (c->graph->nodes.item[n]->host || c->graph->nodes.item[n]->updates)
            return true;
    return error_set(WEIR_E_GRAPH, "%s:%d: compile: the graph \"%s\" fetches nothing and trains nothing", src.file,
                     src.line, c->graph->name),
           false;
}

static reg *reg_of(compile *c, plan_regst_id id)
{
    for (int r = 0; r < c->phys.reg.count; r++)
        if (c->phys.reg.item[r].plan_id == id.i)
            return &c->phys.reg.item[r];
    return NULL;
}

static weir_plan *write(compile *c, check_result *result)
{
    weir_plan *plan = pass_layout(c) ? pass_emit(c) : NULL;
    if (!plan)
        return NULL;
    if (plan_validate(plan) != WEIR_OK || check_play(plan, result) != WEIR_OK) {
        weir_plan_free(plan);
        return NULL;
    }
    return plan;
}

/* Writes plans with more slots until one is live. */
static weir_plan *make_live(compile *c)
{
    for (;;) {
        check_result result;
        weir_plan *plan = write(c, &result);
        if (!plan || result.live)
            return plan;
        weir_plan_free(plan);
        reg *r = result.short_of.i == PLAN_NONE ? NULL : reg_of(c, result.short_of);
        if (!r || r->fixed || r->slots >= c->micro * 2) {
            error_set(WEIR_E_LIVE, "%s:%d: compile: %s", c->opts.src.file, c->opts.src.line, result.text);
            return NULL;
        }
        r->slots++;
    }
}

/* The register whose loss of a slot gives the device most; NULL when none can lose one. */
static reg *reg_to_lower(compile *c, int device)
{
    reg *best = NULL;
    for (int i = 0; i < c->phys.reg.count; i++) {
        reg *r = &c->phys.reg.item[i];
        if (r->device == device && !r->fixed && r->slots > 1 && r->slot_bytes &&
            (!best || r->slot_bytes > best->slot_bytes))
            best = r;
    }
    return best;
}

static int device_over(const compile *c)
{
    for (int d = 0; d < c->phys.device.count; d++)
        if (c->phys.device.item[d].bytes > c->memory_max)
            return d;
    return -1;
}

static void report_memory(compile *c, const weir_plan *plan, int device)
{
    static const char *const names[] = {
#define X(name, text) text,
        PLAN_MEM_LIST(X)
#undef X
    };
    uint64_t bytes[PLAN_MEMS];
    char list[400] = "";
    size_t at = 0;
    plan_bytes_by_kind(plan, (plan_space_id){(uint32_t)device}, bytes);
    for (int k = 0; k < PLAN_MEMS; k++)
        if (bytes[k])
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s %.1f MB", at ? ", " : "", names[k],
                                   (double)bytes[k] / 1e6);
    bool saved = bytes[PLAN_ACTIVATION] + bytes[PLAN_WORKSPACE] >= bytes[PLAN_PARAMETER] + bytes[PLAN_STATE];
    error_set(WEIR_E_MEMORY,
              "%s:%d: compile: %s needs %.1f MB, %.1f MB more than the limit of %s: %s. %s would make it smaller",
              c->opts.src.file, c->opts.src.line, plan_text(plan, plan->spaces[device].name),
              (double)plan->spaces[device].bytes / 1e6, (double)(plan->spaces[device].bytes - c->memory_max) / 1e6,
              c->opts.memory, list,
              saved ? "Smaller micro-batches" : "More devices, or .zero over a data axis,");
}

/* Takes slots away until every device is within the limit. Takes `plan` over. */
static weir_plan *make_fit(compile *c, weir_plan *plan)
{
    for (int device; plan && (device = device_over(c)) >= 0;) {
        reg *r = reg_to_lower(c, device);
        if (!r) {
            report_memory(c, plan, device);
            weir_plan_free(plan);
            return NULL;
        }
        check_result result;
        r->slots--;
        weir_plan *less = write(c, &result);
        if (less && result.live) {
            weir_plan_free(plan);
            plan = less;
            continue;
        }
        weir_plan_free(less);
        r->slots++;
        r->fixed = true; /* for this compilation: it cannot be lowered */
        if (!pass_layout(c)) {
            weir_plan_free(plan);
            return NULL;
        }
    }
    return plan;
}

static weir_plan *run_passes(compile *c)
{
    bool (*const passes[])(compile *) = {ir_new,     pass_shard, pass_box,   pass_lower,
                                         pass_group, pass_slots, pass_order};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        if (!passes[i](c))
            return NULL;
    return make_fit(c, make_live(c));
}

weir_plan *weir_compile_at(const weir_graph *graph, weir_compile_opts opts)
{
    if (!graph) {
        error_set(WEIR_E_ARGUMENT, "%s:%d: compile: the graph is NULL", opts.src.file, opts.src.line);
        return NULL;
    }
    compile c = {.graph = graph, .opts = opts};
    weir_plan *plan = options_ok(&c) ? run_passes(&c) : NULL;
    pool_free(&c.pool);
    return plan;
}
