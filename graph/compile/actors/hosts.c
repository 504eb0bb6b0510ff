/* graph/compile/actors/hosts.c: see hosts.h.
 *
 * All is counted in steps. A link that carries so many bytes a step has link / bytes of them under way when it is full
 * (Little's law: what is in a queue is its rate times the time in it), a way of it half of that. Actors of a program fire
 * equally often, so the link with the most bytes a step tells how many steps can be under way on any of them. `late` of a
 * group is how many steps it is behind the first: the longest way to it, moved as near to its readers as these allow. A
 * register has to hold what is between the two.
 *
 * Counting each register as if it had the link for itself was rejected: a loss of 64 bytes beside an activation of a MiB
 * would get ten thousand times the slots of that, and could not use them.
 *
 * Where some registers are written once a step and others for each micro-batch, the latter count: the rest comes when
 * those are through.
 */
#include "graph/compile/actors/hosts.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"

/* The most slots of a register, by a link; and of all registers together, which is half of what a plan may have. */
enum { SLOTS_MAX = 4096, SLOTS_ALL = 1 << 23 };

typedef struct crossing {          /* a register that is read on another host */
    int program, from, to;         /* hosts */
    int reg;
    int writes;                    /* a step */
} crossing;

typedef struct hosts {
    compile *c;
    POOL_LIST(crossing) crossings;
    double *under_way;             /* by program: steps */
    double *late;                  /* by group: steps */
    int *order;                    /* groups: who reads in a step comes behind who writes */
    int *loop;                     /* by group: groups of one loop over steps can reach each other */
    int *loop_steps;               /* by loop: steps that it has to go round in, at least */
    bool *loop_crosses;            /* by loop: a host; then to go round takes a round trip at least */
    int count, slots_max;
} hosts;

/* ---- what crosses ---- */

static bool group_pulls(const compile *c, const group *g)
{
    return is_pull(c, &c->phys.op.item[g->pops.item[0]]);
}

static bool read_from_afar(const hosts *x, const reg *r, const group *reader)
{
    return host_of(x->c, reader->device) != host_of(x->c, r->device) || (x->count > 1 && group_pulls(x->c, reader));
}

/* Whether the reader waits for what is written in the same run, and the writer for the reader. */
static bool is_edge(const phys *p, const reg *r, const group *reader)
{
    return r->group >= 0 && p->group.item[r->group].program == reader->program;
}

/* Whether in the same step, too. */
static bool is_edge_now(const phys *p, const reg *r, const group *reader)
{
    return is_edge(p, r, reader) && !r->initial;
}

static void crossing_add(hosts *x, int at, int to)
{
    const reg *r = &x->c->phys.reg.item[at];
    int from = host_of(x->c, r->device);
    crossing *new = from == to ? NULL : POOL_PUSH(&x->c->pool, &x->crossings);
    if (new)
        *new = (crossing){x->c->phys.group.item[r->group].program, from, to, at, reg_writes(x->c, r)};
}

static void crossings_find(hosts *x)
{
    const phys *p = &x->c->phys;
    for (int i = 0; i < p->reg.count; i++) {
        const reg *r = &p->reg.item[i];
        for (int k = 0; k < r->readers.count; k++) {
            const group *reader = &p->group.item[r->readers.item[k]];
            if (!is_edge_now(p, r, reader) || !read_from_afar(x, r, reader))
                continue;
            for (int to = 0; group_pulls(x->c, reader) && to < x->count; to++)
                crossing_add(x, i, to);
            if (!group_pulls(x->c, reader))
                crossing_add(x, i, host_of(x->c, reader->device));
        }
    }
}

/* Those written most often first in a program, by link. */
static int crossing_compare(const void *a, const void *b)
{
    const crossing *x = a, *y = b;
    if (x->program != y->program)
        return x->program - y->program;
    if (x->writes != y->writes)
        return y->writes - x->writes;
    if (x->from != y->from)
        return x->from - y->from;
    return x->to != y->to ? x->to - y->to : x->reg - y->reg;
}

static bool same_link(const crossing *a, const crossing *b)
{
    return a->program == b->program && a->writes == b->writes && a->from == b->from && a->to == b->to;
}

/* The bytes a step of the link that begins at *at, which is moved to the next; each register counts once. */
static double link_bytes(const hosts *x, int *at)
{
    const crossing *all = x->crossings.item, *first = &all[*at];
    double bytes = 0;
    for (int last = NONE; *at < x->crossings.count && same_link(first, &all[*at]); last = all[(*at)++].reg)
        if (all[*at].reg != last)
            bytes += (double)x->c->phys.reg.item[all[*at].reg].slot_bytes * first->writes;
    return bytes;
}

static void links_fill(hosts *x)
{
    const crossing *all = x->crossings.item;
    int count = x->crossings.count;
    if (count)
        qsort(x->crossings.item, (size_t)count, sizeof *all, crossing_compare);
    for (int at = 0; at < count;) {
        int program = all[at].program, writes = all[at].writes;
        double most = 0;
        while (at < count && all[at].program == program && all[at].writes == writes)
            most = fmax(most, link_bytes(x, &at));
        if (most > 0)
            x->under_way[program] = x->c->link / most;
        while (at < count && all[at].program == program)
            at++;
    }
}

/* ---- who is behind whom ---- */

/* Kahn's algorithm. */
static void groups_order(hosts *x, int *before)
{
    const phys *p = &x->c->phys;
    int found = 0;
    for (int i = 0; i < p->reg.count; i++)
        for (int k = 0; k < p->reg.item[i].readers.count; k++) {
            int to = p->reg.item[i].readers.item[k];
            before[to] += is_edge_now(p, &p->reg.item[i], &p->group.item[to]);
        }
    for (int g = 0; g < p->group.count; g++)
        if (!before[g])
            x->order[found++] = g;
    for (int at = 0; at < found; at++) {
        const group *from = &p->group.item[x->order[at]];
        for (int i = 0; i < from->regs.count; i++) {
            const reg *r = &p->reg.item[from->regs.item[i]];
            for (int k = 0; k < r->readers.count; k++)
                if (is_edge_now(p, r, &p->group.item[r->readers.item[k]]) && !--before[r->readers.item[k]])
                    x->order[found++] = r->readers.item[k];
        }
    }
    while (found < p->group.count) /* none is on a circle; were one, it would be taken for the first */
        x->order[found++] = 0;
}

/* The length of a way to the reader, in steps. */
static double way(const hosts *x, const reg *r, const group *reader)
{
    return read_from_afar(x, r, reader) ? x->under_way[reader->program] / 2 : 0;
}

/* How late readers of the group can be at the earliest. */
static void readers_wait(hosts *x, int g)
{
    const phys *p = &x->c->phys;
    for (int i = 0; i < p->group.item[g].regs.count; i++) {
        const reg *r = &p->reg.item[p->group.item[g].regs.item[i]];
        for (int k = 0; k < r->readers.count; k++) {
            int to = r->readers.item[k];
            double late = x->late[g] + way(x, r, &p->group.item[to]);
            if (is_edge_now(p, r, &p->group.item[to]) && late > x->late[to])
                x->late[to] = late;
        }
    }
}

/* As late as the readers allow, so that a source need not be ahead of what waits for others anyway. */
static void group_waits(hosts *x, int g)
{
    const phys *p = &x->c->phys;
    double most = INFINITY;
    for (int i = 0; i < p->group.item[g].regs.count; i++) {
        const reg *r = &p->reg.item[p->group.item[g].regs.item[i]];
        for (int k = 0; k < r->readers.count; k++) {
            int to = r->readers.item[k];
            double late = x->late[to] - way(x, r, &p->group.item[to]);
            if (is_edge_now(p, r, &p->group.item[to]) && late < most)
                most = late;
        }
    }
    if (most < INFINITY)
        x->late[g] = most;
}

static bool late_find(hosts *x)
{
    int count = x->c->phys.group.count;
    int *before = POOL_NEW(&x->c->pool, int, count + 1);
    if (!before)
        return false;
    groups_order(x, before);
    for (int i = 0; i < count; i++)
        readers_wait(x, x->order[i]);
    for (int i = count; i-- > 0;)
        group_waits(x, x->order[i]);
    return true;
}

/* ---- loops over steps ---- */

/* Tarjan's algorithm (1972), with a stack of its own. */
typedef struct walk {
    const phys *p;
    int *loop;
    int *found, *low;              /* by group: when it was come by, from 1 on; the first that it leads back to */
    int *reg, *reader;             /* by group: where among its readers the walk is */
    int *path, path_count, *open, open_count;
    int found_count, loops;
} walk;

static int next_reader(walk *w, int g)
{
    const group *of = &w->p->group.item[g];
    for (; w->reg[g] < of->regs.count; w->reg[g]++, w->reader[g] = 0) {
        const reg *r = &w->p->reg.item[of->regs.item[w->reg[g]]];
        while (w->reader[g] < r->readers.count) {
            int to = r->readers.item[w->reader[g]++];
            if (is_edge(w->p, r, &w->p->group.item[to]))
                return to;
        }
    }
    return NONE;
}

static void enter(walk *w, int g)
{
    w->found[g] = w->low[g] = ++w->found_count;
    w->path[w->path_count++] = w->open[w->open_count++] = g;
}

static void leads_back(walk *w, int g, int to)
{
    w->low[g] = to < w->low[g] ? to : w->low[g];
}

static void leave(walk *w)
{
    int g = w->path[--w->path_count], last;
    if (w->path_count)
        leads_back(w, w->path[w->path_count - 1], w->low[g]);
    if (w->low[g] < w->found[g])
        return;
    do {
        last = w->open[--w->open_count];
        w->loop[last] = w->loops;
    } while (last != g);
    w->loops++;
}

static void walk_from(walk *w, int root)
{
    for (enter(w, root); w->path_count;) {
        int g = w->path[w->path_count - 1], to = next_reader(w, g);
        if (to < 0)
            leave(w);
        else if (!w->found[to])
            enter(w, to);
        else if (w->loop[to] < 0)
            leads_back(w, g, w->found[to]);
    }
}

static void loop_measure(hosts *x, const reg *r)
{
    const phys *p = &x->c->phys;
    for (int k = 0; r->group >= 0 && k < r->readers.count; k++) {
        const group *reader = &p->group.item[r->readers.item[k]];
        int loop = x->loop[r->group];
        if (x->loop[r->readers.item[k]] != loop || !is_edge(p, r, reader))
            continue;
        if (r->initial && r->initial < x->loop_steps[loop])
            x->loop_steps[loop] = r->initial;
        x->loop_crosses[loop] |= read_from_afar(x, r, reader);
    }
}

static bool loops_find(hosts *x)
{
    const phys *p = &x->c->phys;
    struct pool *memory = &x->c->pool;
    size_t count = (size_t)p->group.count + 1;
    walk w = {.p = p, .loop = x->loop};
    int **lists[] = {&w.found, &w.low, &w.reg, &w.reader, &w.path, &w.open, &x->loop_steps};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!(*lists[i] = POOL_NEW(memory, int, count)))
            return false;
    x->loop_crosses = POOL_NEW(memory, bool, count);
    if (!x->loop_crosses)
        return false;
    for (int g = 0; g < p->group.count; g++) {
        x->loop[g] = NONE;
        x->loop_steps[g] = INT_MAX;
    }
    for (int g = 0; g < p->group.count; g++)
        if (!w.found[g])
            walk_from(&w, g);
    for (int i = 0; i < p->reg.count; i++)
        loop_measure(x, &p->reg.item[i]);
    return true;
}

/* ---- slots ---- */

static int loop_in_trip(const hosts *x, int loop)
{
    return x->loop_crosses[loop] && x->loop_steps[loop] < SLOTS_MAX ? x->loop_steps[loop] + 1 : SLOTS_MAX;
}

/* For how many steps there can be something to hold at once. */
static int steps_most(const hosts *x, int from, int to)
{
    if (x->loop[from] == x->loop[to])
        return x->loop_steps[x->loop[from]] < SLOTS_MAX ? x->loop_steps[x->loop[from]] : SLOTS_MAX;
    int writer = loop_in_trip(x, x->loop[from]), reader = loop_in_trip(x, x->loop[to]);
    return writer < reader ? writer : reader;
}

/* Slots that one reader asks for. A pipeline keeps a micro-batch more for each whole one that is under way: that is
 * memory, and less than a slot's time does not stop it. */
static int reader_slots(const hosts *x, const reg *r, int reader)
{
    const phys *p = &x->c->phys;
    const group *from = &p->group.item[r->group], *to = &p->group.item[reader];
    double writes = reg_writes(x->c, r), between = (x->late[reader] - x->late[r->group]) * writes, slots = r->slots;
    if (read_from_afar(x, r, to))
        slots = ceil(between + way(x, r, to) * writes - 1e-6) + 1;
    else if (from->phase == PLAN_FORWARD && to->phase == PLAN_BACKWARD)
        slots += floor(between + 1e-6);
    else
        slots += ceil(between - 1e-6);
    double most = steps_most(x, r->group, reader) * writes;
    slots = slots < most ? slots : most;
    return slots < x->slots_max ? (int)slots : x->slots_max;
}

static void reg_raise(const hosts *x, reg *r)
{
    int most = r->slots;
    for (int k = 0; k < r->readers.count; k++) {
        int reader = r->readers.item[k];
        int slots = is_edge_now(&x->c->phys, r, &x->c->phys.group.item[reader]) ? reader_slots(x, r, reader) : 0;
        most = slots > most ? slots : most;
    }
    r->ahead = most - r->slots;
    r->slots = most;
}

static int hosts_count(const compile *c)
{
    int count = 0;
    for (int d = 0; d < c->phys.device.count; d++)
        count = host_of(c, d) >= count ? host_of(c, d) + 1 : count;
    return count;
}

static bool hosts_open(hosts *x)
{
    const phys *p = &x->c->phys;
    struct pool *memory = &x->c->pool;
    size_t groups = (size_t)p->group.count + 1, regs = (size_t)p->reg.count + 1;
    x->count = hosts_count(x->c);
    x->slots_max = regs > SLOTS_ALL / SLOTS_MAX ? (int)(SLOTS_ALL / regs) : SLOTS_MAX;
    x->under_way = POOL_NEW(memory, double, x->c->graph->programs.count + 1);
    x->late = POOL_NEW(memory, double, groups);
    x->order = POOL_NEW(memory, int, groups);
    x->loop = POOL_NEW(memory, int, groups);
    return x->under_way && x->late && x->order && x->loop;
}

bool hosts_slots(compile *c)
{
    hosts x = {.c = c};
    if (!c->link)
        return true;
    if (hosts_open(&x))
        crossings_find(&x);
    if (c->pool.failed || !loops_find(&x))
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
    links_fill(&x);
    if (!late_find(&x))
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
    for (int i = 0; i < c->phys.reg.count; i++)
        if (slots_are_free(&c->phys.reg.item[i]))
            reg_raise(&x, &c->phys.reg.item[i]);
    return true;
}
