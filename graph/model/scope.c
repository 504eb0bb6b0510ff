/* graph/model/scope.c: where in a program something is built: the scopes and programs around it.
 *
 * Scopes are the graph's, so they place what is built on it whatever thread builds; but which scope stands around a line
 * of a program is the thread's. The two together tell a graph that is built within another one's scope by mistake from
 * one that was made there.
 */
#include "graph/base/opts.h"
#include "graph/model/build.h"

#include <string.h>
#include <time.h>

/* The innermost scope that is open in this thread. The graph is compared, and never looked at: it may be gone. */
static _Thread_local struct {
    const weir_graph *graph;
    int64_t since_ns;
} around;

/* Tells which of a graph and a scope was there first, whatever threads they are of: a scope is meant for what is older. */
int64_t graph_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- scopes ---- */

weir_mesh *graph_scope_mesh(const weir_graph *g)
{
    return g->scopes.count ? g->scopes.item[g->scopes.count - 1].mesh : NULL;
}

const char *graph_scope_prefix(const weir_graph *g)
{
    return g->scopes.count ? g->scopes.item[g->scopes.count - 1].prefix : "";
}

static weir_scope scope_push(weir_graph *g, weir_mesh *mesh, const char *prefix)
{
    weir_scope opened = {g, g->scopes.count, g->program, false, around.graph, around.since_ns};
    graph_scope *scope = POOL_PUSH(&g->pool, &g->scopes);
    if (scope)
        *scope = (graph_scope){.mesh = mesh, .prefix = prefix ? prefix : ""};
    around.graph = g;
    around.since_ns = graph_now_ns();
    return opened;
}

weir_scope graph_scope_on(weir_mesh *mesh)
{
    return scope_push(mesh->graph, mesh, graph_scope_prefix(mesh->graph));
}

weir_scope graph_scope_absolute(weir_graph *graph, weir_mesh *mesh, const char *prefix)
{
    return scope_push(graph, mesh, prefix);
}

weir_scope weir_scope_enter(const weir_scope_opts *given)
{
    weir_scope_opts opts;
    weir_mesh *on = given ? given->mesh : NULL;
    weir_graph *g = on ? on->graph : given ? given->graph : NULL;
    graph_opts(g, "scope", given, &opts, sizeof opts);
    if (!g) {
        graph_mistake(NULL, opts.src, "the mesh is NULL, and so is the graph: nothing can be placed or named here");
        return (weir_scope){.done = false};
    }
    if (opts.graph && opts.graph != g)
        graph_mistake(opts.graph, opts.src, "the mesh belongs to another graph");
    weir_mesh *mesh = opts.mesh ? opts.mesh : graph_scope_mesh(g);
    const char *prefix = graph_scope_prefix(g);
    const char *number = opts.name ? strstr(opts.name, "%d") : NULL;
    if (number)
        prefix = pool_text(&g->pool, "%s%.*s%lld%s/", prefix, (int)(number - opts.name), opts.name,
                           (long long)opts.index, number + 2);
    else if (opts.name && *opts.name)
        prefix = pool_text(&g->pool, "%s%s/", prefix, opts.name);
    return scope_push(g, mesh, prefix);
}

void weir_scope_leave(weir_scope *scope)
{
    if (!scope || !scope->graph)
        return;
    around.graph = scope->outer;
    around.since_ns = scope->outer_since_ns;
    if (scope->graph->scopes.count <= scope->depth)
        return;
    scope->graph->scopes.count = scope->depth;
    scope->graph->program = scope->program;
}

bool graph_scope_ok(weir_graph *g, weir_src src, const char *what)
{
    if (!around.graph || around.graph == g || g->made_ns >= around.since_ns)
        return true;
    graph_mistake(g, src, "%s: the WEIR_ON, WEIR_NAMED or WEIR_PROGRAM around it is another graph's", what);
    return false;
}

/* ---- programs ---- */

enum { PROGRAMS_MAX = 32 };

static bool program_name_ok(const char *name)
{
    return name && *name && strlen(name) < 64 && !strchr(name, '/') && !strchr(name, ':');
}

static int program_find(const weir_graph *g, const char *name)
{
    for (int p = 0; p < g->programs.count; p++)
        if (!strcmp(g->programs.item[p].name, name))
            return p;
    return -1;
}

static int program_new(weir_graph *g, const char *name, const weir_program_opts *opts)
{
    if (g->programs.count == PROGRAMS_MAX) {
        graph_mistake(g, opts->src, "program: a graph may have at most %d programs", PROGRAMS_MAX);
        return -1;
    }
    const char *copy = pool_text(&g->pool, "%s", name), *prefix = pool_text(&g->pool, "%s/", name);
    graph_program *made = POOL_PUSH(&g->pool, &g->programs);
    if (!made || !copy || !prefix)
        return -1;
    *made = (graph_program){.name = copy, .prefix = prefix};
    return g->programs.count - 1;
}

void weir_graph_program_at(weir_graph *g, const char *name, const weir_program_opts *given)
{
    weir_program_opts opts;
    if (!graph_opts(g, "program", given, &opts, sizeof opts))
        return;
    if (!g || !program_name_ok(name)) {
        graph_mistake(g, opts.src, g ? "program: a name must have 1 to 63 bytes, without '/' and ':'"
                                      : "program: the graph is NULL");
        return;
    }
    int program = program_find(g, name);
    if (program < 0)
        program = program_new(g, name, &opts);
    if (program < 0)
        return;
    g->program = program;
    g->programs.item[program].trains |= opts.train;
    g->programs.item[program].averages |= opts.averages;
}

weir_scope weir_program_enter(weir_graph *g, const char *name, const weir_program_opts *opts)
{
    weir_scope scope = {.graph = NULL};
    if (g)
        scope = scope_push(g, graph_scope_mesh(g), graph_scope_prefix(g));
    weir_graph_program_at(g, name, opts);
    return scope;
}

bool weir_graph_trains(const weir_graph *g)
{
    return g && g->programs.count && graph_program_now(g)->trains;
}
