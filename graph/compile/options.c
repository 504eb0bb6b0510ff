/* graph/compile/options.c: see the header. */
#include "graph/compile/options.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/filed.h"
#include "graph/base/locale.h"
#include "graph/base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool link_parse(const char *text, double *bytes)
{
    double rate, seconds;
    if (!rate_take(&text, &rate) || *text != ' ')
        return false;
    while (*text == ' ')
        text++;
    if (!time_take(&text, &seconds) || *text)
        return false;
    *bytes = rate / 8 * seconds;
    return rate > 0 && seconds > 0 && rate <= 1e15 && seconds <= 1000;
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

bool options_take(compile *c)
{
    const weir_src src = c->opts.src;
    const char *mistake = weir_graph_mistake(c->graph);
    if (mistake)
        return error_set(WEIR_E_GRAPH, "%s", mistake), false;
    if (c->graph->of_plan)
        return error_set(WEIR_E_GRAPH, "%s:%d: compile: the graph \"%s\" comes from a plan, which does not keep devices and "
                         "functions; compile the graph that the program builds", src.file, src.line, c->graph->name),
               false;
    if (!(c->opts.loss_scale >= 0 && c->opts.loss_scale < INFINITY) || c->opts.loss_scale_steps < 0)
        return error_set(WEIR_E_ARGUMENT,
                         "%s:%d: compile: .loss_scale is %g and .loss_scale_steps is %d; both must be 0 or more", src.file,
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
    if (c->opts.memory && !bytes_parse(c->opts.memory, &c->memory_max))
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: \"%s\" is not an amount of memory; write a number "
                         "above 0 and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, as \"512MiB\"", src.file, src.line, c->opts.memory),
               false;
    return ops_known(c->graph) && programs_ok(c);
}
