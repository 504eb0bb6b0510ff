/* graph/compile/sbp/teams.c: see the header.
 *
 * teams_through() knows no more than a tensor's layout and the one wanted: each step is found anew from where the last has
 * led, so ways that begin alike share what they have in common. On the user's mesh a conversion is first made one of
 * sums alone or of splits alone, because then the axes that get tiers are those of one kind, and terms, which are not cut,
 * lie on a mesh with tiers as they do on the user's.
 */
#include "graph/compile/sbp/teams.h"

#include <string.h>

typedef struct team_mesh {
    const weir_mesh *home;
    unsigned axes;                 /* of it, those that have tiers: a bit each */
    weir_mesh *mesh;
} team_mesh;

struct teams {
    compile *c;
    POOL_LIST(team_mesh) made;
    POOL_LIST(weir_mesh *) cores;
};

teams *teams_new(compile *c)
{
    teams *x = POOL_NEW(&c->pool, teams, 1);
    if (x)
        *x = (teams){.c = c};
    return x;
}

/* ---- tiers of an axis ---- */

typedef struct factors {
    int size[MESH_AXES_MAX], count, sum;
} factors;

/* Tries all ways to finish `now` with factors of `left` that are no larger than `most`; `left` has none beyond TEAM_MAX. */
static void factors_search(factors now, int left, int most, factors *best)
{
    if (left == 1 && (!best->count || now.count < best->count || (now.count == best->count && now.sum < best->sum)))
        *best = now;
    for (int size = most; size > 1 && left > 1; size--)
        if (left % size == 0) {
            factors next = now;
            next.size[next.count++] = size;
            next.sum += size;
            factors_search(next, left / size, size, best);
        }
}

/* The largest number up to n that is a product of factors up to TEAM_MAX. */
static int smooth_below(int n)
{
    for (;; n--) {
        int left = n;
        for (int p = 2; p <= TEAM_MAX; p++)
            while (left % p == 0)
                left /= p;
        if (left == 1)
            return n;
    }
}

int teams_tiers(int n, int size[MESH_AXES_MAX])
{
    factors best = {.count = 0}, large = {.count = 0};
    int left = n, smooth = 1;
    for (int p = 2; left > 1; p++)
        for (; left % p == 0; left /= p) {
            if (p > TEAM_MAX)
                large.size[large.count++] = p;
            else
                smooth *= p;
        }
    factors_search(large, smooth, TEAM_MAX, &best);
    memcpy(size, best.size, sizeof best.size);
    return best.count;
}

/* Devices from one coordinate of the axis to the next. */
static int stride_of(const weir_mesh *mesh, int axis)
{
    int stride = 1;
    for (int a = axis + 1; a < mesh->axes; a++)
        stride *= mesh->shape[a];
    return stride;
}

/* Whether each run of so many coordinates of the axis is within one host. */
static bool within_host(const weir_mesh *mesh, int axis, int run, int per_host)
{
    int stride = stride_of(mesh, axis);
    for (int at = 0; at < mesh->count; at++)
        if (mesh_coordinate(mesh, at, axis) % run && mesh->device[at] / per_host != mesh->device[at - stride] / per_host)
            return false;
    return true;
}

/* How many neighbours along the axis share a host, in teams of equal size. */
static int run_within_host(const weir_mesh *mesh, int axis, int per_host)
{
    int run = mesh->shape[axis];
    while (run > 1 && (mesh->shape[axis] % run || !within_host(mesh, axis, run, per_host)))
        run--;
    return run;
}

/* The part of the axis that a core would leave out: of each *run coordinates all but the first *kept; false: it needs none.
 * Hosts lose as many devices each, or are left out as wholes. */
static bool axis_core(const teams *x, const weir_mesh *mesh, int axis, int *run, int *kept)
{
    int n = mesh->shape[axis], per_host = x->c->opts.per_host, within = per_host ? run_within_host(mesh, axis, per_host) : n;
    *run = within > 1 && smooth_below(within) < within ? within : n;
    *kept = *run == n && within > 1 ? smooth_below(n / within) * within : smooth_below(*run);
    if (within == n)
        *kept = smooth_below(n);
    return *kept < *run;
}

/* Tiers, innermost first; *inner: of those, how many are within a host. */
static int axis_tiers(const teams *x, const weir_mesh *mesh, int axis, int size[MESH_AXES_MAX], int *inner)
{
    int n = mesh->shape[axis], per_host = x->c->opts.per_host, run = per_host ? run_within_host(mesh, axis, per_host) : n;
    int outer[MESH_AXES_MAX];
    *inner = run > 1 ? teams_tiers(run, size) : 0;
    int runs = run > 1 ? n / run : n, beyond = runs > 1 ? teams_tiers(runs, outer) : 0;
    memcpy(size + *inner, outer, sizeof *outer * (size_t)beyond);
    return *inner + beyond;
}

/* ---- meshes with tiers ---- */

static void tier_push(weir_mesh *to, int axis, int size)
{
    to->home_axis[to->axes] = (unsigned char)axis;
    to->shape[to->axes++] = size;
}

/* Axes, each changed one as its tiers, outermost first: a device's place stays what it is. */
static void mesh_tiers(const teams *x, weir_mesh *to, unsigned changed)
{
    int size[MESH_AXES_MAX], inner;
    to->axes = 0;
    memset(to->shape, 0, sizeof to->shape);
    for (int a = 0; a < to->home->axes; a++) {
        int tiers = changed >> a & 1 ? axis_tiers(x, to->home, a, size, &inner) : 0;
        if (!tiers)
            tier_push(to, a, to->home->shape[a]);
        for (int l = tiers - 1; l >= 0; l--)
            tier_push(to, a, size[l]);
    }
}

/* The axes that do not change are cut first, then those that do, the nearest neighbours first. */
static void mesh_order(weir_mesh *to, unsigned changed)
{
    int at = 0;
    for (int a = 0; a < to->axes; a++)
        if (!(changed >> to->home_axis[a] & 1))
            to->cut[at++] = (unsigned char)a;
    for (int a = to->axes - 1; a >= 0; a--)
        if (changed >> to->home_axis[a] & 1)
            to->cut[at++] = (unsigned char)a;
}

static const weir_mesh *mesh_of(teams *x, const weir_mesh *home, unsigned changed)
{
    for (int i = 0; i < x->made.count; i++)
        if (x->made.item[i].axes == changed && mesh_equal(x->made.item[i].home, home))
            return x->made.item[i].mesh;
    weir_mesh *to = POOL_NEW(&x->c->pool, weir_mesh, 1);
    team_mesh *made = to ? POOL_PUSH(&x->c->pool, &x->made) : NULL;
    if (!made)
        return NULL;
    *to = *home;
    to->home = home;
    to->whole = NULL;
    mesh_tiers(x, to, changed);
    mesh_order(to, changed);
    *made = (team_mesh){home, changed, to};
    return to;
}

/* ---- cores ---- */

static int core_device(const weir_mesh *core, int at)
{
    return core->whole->device[teams_core_place(core, at)];
}

static const weir_mesh *core_of(teams *x, const weir_mesh *whole, int axis, int run, int kept)
{
    for (int i = 0; i < x->cores.count; i++) {
        const weir_mesh *core = x->cores.item[i];
        if (core->core_axis == axis && core->run == run && mesh_equal(core->whole, whole))
            return core;
    }
    weir_mesh *to = POOL_NEW(&x->c->pool, weir_mesh, 1);
    int *device = to ? POOL_NEW(&x->c->pool, int, whole->count) : NULL;
    weir_mesh **at = device ? POOL_PUSH(&x->c->pool, &x->cores) : NULL; /* last: the list has whole ones alone */
    if (!at)
        return NULL;
    *to = *whole;
    to->whole = whole;
    to->core_axis = axis;
    to->run = run;
    to->kept = kept;
    to->shape[axis] = whole->shape[axis] / run * kept;
    to->count = whole->count / whole->shape[axis] * to->shape[axis];
    to->device = device;
    for (int i = 0; i < to->count; i++)
        to->device[i] = core_device(to, i);
    *at = to;
    return to;
}

bool teams_core_is(const weir_mesh *core, const weir_mesh *whole)
{
    return !core->home && core->whole && mesh_equal(core->whole, whole);
}

int teams_core_term(const weir_mesh *core, int k, int *more)
{
    int i = k % core->kept, out = core->run - core->kept, at = k / core->kept * core->run + i;
    *more = i >= core->kept - out ? at + out : NONE;
    return at;
}

int teams_core_place(const weir_mesh *core, int at)
{
    int stride = stride_of(core, core->core_axis), k = mesh_coordinate(core, at, core->core_axis), more;
    int above = at / (stride * core->shape[core->core_axis]) * core->whole->shape[core->core_axis];
    return (above + teams_core_term(core, k, &more)) * stride + at % stride;
}

int teams_core_beside(const weir_mesh *core, int at)
{
    int stride = stride_of(core, core->core_axis), k = mesh_coordinate(core->whole, at, core->core_axis);
    int i = k % core->run, out = core->run - core->kept;
    int above = at / (stride * core->whole->shape[core->core_axis]) * core->shape[core->core_axis];
    return (above + k / core->run * core->kept + (i < core->kept ? i : i - out)) * stride + at % stride;
}

int teams_largest(const weir_mesh *mesh)
{
    int most = 1;
    for (int a = 0; a < mesh->axes; a++)
        most = mesh->shape[a] > most ? mesh->shape[a] : most;
    return most;
}

/* ---- steps ---- */

/* The first of these axes that lacks tiers of at most TEAM_MAX devices, or -1: what it would leave out. */
static int rough_axis(const teams *x, const weir_mesh *mesh, unsigned changed, int *run, int *kept)
{
    for (int a = 0; a < mesh->axes; a++)
        if (changed >> a & 1 && axis_core(x, mesh, a, run, kept))
            return a;
    return NONE;
}

/* Whether a conversion of these axes goes by tiers. */
static bool by_tiers(const teams *x, const weir_mesh *mesh, unsigned changed)
{
    int64_t members = 1;
    int tiers = 0, within = 0, size[MESH_AXES_MAX], inner;
    if (rough_axis(x, mesh, changed, &within, &inner) >= 0)
        return true; /* there are more than TEAM_MAX */
    within = 0;
    for (int a = 0; a < mesh->axes; a++) {
        if (!(changed >> a & 1))
            continue;
        members *= mesh->shape[a];
        tiers += axis_tiers(x, mesh, a, size, &inner);
        within += inner;
    }
    return tiers > 1 && (members > TEAM_MAX || (x->c->opts.per_host && within && within < tiers));
}

static unsigned axes_changed(const weir_mesh *mesh, const weir_sbp *from, const weir_sbp *to)
{
    unsigned changed = 0;
    for (int a = 0; a < mesh->axes; a++)
        changed |= mesh->shape[a] > 1 && from[a] != to[a] ? 1u << a : 0;
    return changed;
}

/* The elements that the splits of a layout leave to the device that has the least. */
static weir_shape shape_left(const weir_shape *shape, const weir_mesh *mesh, const weir_sbp *sbp)
{
    weir_shape left = *shape;
    for (int a = 0; a < mesh->axes; a++)
        if (WEIR_IS_S(sbp[a]))
            left.dim[WEIR_S_DIM(sbp[a])] /= mesh->shape[a];
    return left;
}

/* How terms are added up that are to lie as `to` in the end: where that is everywhere, scattered first if that pays. */
static weir_sbp closed_as(const weir_shape *shape, const weir_mesh *mesh, const weir_sbp *sbp, int axis, weir_sbp to)
{
    if (to != WEIR_B || !scatter_pays(shape))
        return to;
    weir_shape left = shape_left(shape, mesh, sbp);
    return WEIR_S(scatter_dimension(&left, mesh->shape[axis]));
}

/* Converts the next tier of a layout `sbp` of a mesh with tiers towards `to` on its home; false: then it is there. */
static bool tier_step(const weir_shape *shape, const weir_mesh *mesh, weir_sbp *sbp, const weir_sbp *to)
{
    int open = -1, last = -1;
    for (int i = mesh->axes - 1; i >= 0; i--) {
        int a = mesh_cut(mesh, i);
        bool differs = mesh->shape[a] > 1 && sbp[a] != to[mesh->home_axis[a]];
        open = differs && sbp[a] == WEIR_P ? a : open;
        last = differs && last < 0 ? a : last;
    }
    if (open >= 0)
        sbp[open] = closed_as(shape, mesh, sbp, open, to[mesh->home_axis[open]]);
    else if (last >= 0)
        sbp[last] = to[mesh->home_axis[last]];
    for (int a = 0; a < mesh->axes; a++)
        if (mesh->shape[a] > 1 && sbp[a] != to[mesh->home_axis[a]])
            return true;
    return false;
}

/* ---- on one mesh ---- */

/* The part of a conversion that has to go between devices: `to` without what each makes of its own. */
static void without_local(const weir_mesh *mesh, const weir_sbp *from, const weir_sbp *to, weir_sbp *goal)
{
    for (int a = 0; a < mesh->axes; a++)
        goal[a] = from[a] == WEIR_B || to[a] == WEIR_P ? from[a] : to[a];
}

static void sums_alone(const weir_mesh *mesh, const weir_sbp *from, const weir_sbp *goal, weir_sbp *sums)
{
    for (int a = 0; a < mesh->axes; a++)
        sums[a] = from[a] == WEIR_P ? goal[a] : from[a];
}

static const weir_mesh *through_own(teams *x, const ir_tensor *t, const weir_sbp *sbp, weir_sbp *through)
{
    const weir_mesh *mesh = t->mesh;
    weir_sbp goal[MESH_AXES_MAX] = {0};
    without_local(mesh, t->sbp, sbp, goal);
    unsigned changed = axes_changed(mesh, t->sbp, goal);
    if (!by_tiers(x, mesh, changed))
        return NULL;
    sums_alone(mesh, t->sbp, goal, through);
    unsigned sums = axes_changed(mesh, t->sbp, through);
    if (sums && sums != changed)
        return mesh;
    if (axes_changed(mesh, goal, sbp)) {
        memcpy(through, goal, sizeof goal);
        return mesh;
    }
    int run, kept, rough = rough_axis(x, mesh, changed, &run, &kept);
    if (rough >= 0) {
        memcpy(through, t->sbp, sizeof t->sbp);
        return core_of(x, mesh, rough, run, kept);
    }
    const weir_mesh *in_tiers = mesh_of(x, mesh, changed);
    for (int a = 0; in_tiers && a < in_tiers->axes; a++)
        through[a] = t->sbp[in_tiers->home_axis[a]];
    return in_tiers && tier_step(&t->type.shape, in_tiers, through, sbp) ? in_tiers : NULL;
}

/* ---- to another mesh ---- */

/* The number of shards, or terms of them, of which the first device is to get some. */
static int sources_of_first(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp)
{
    slice to = slice_of(&t->type.shape, mesh, sbp, 0);
    int count = 0;
    for (int at = 0; at < t->mesh->count; at++) {
        bool other = false; /* of several devices that hold the same */
        for (int a = 0; a < t->mesh->axes; a++)
            other |= t->sbp[a] == WEIR_B && mesh_coordinate(t->mesh, at, a);
        slice from = other ? (slice){.start = {0}} : slice_of(&t->type.shape, t->mesh, t->sbp, at);
        count += !other && slices_meet(&from, &to, t->type.shape.rank);
    }
    return count;
}

static bool same_shape(const weir_mesh *a, const weir_mesh *b)
{
    return a->axes == b->axes && !memcmp(a->shape, b->shape, sizeof a->shape);
}

/* Sums are made where the terms are. Splits are gathered there, too, unless they can go over as they are. */
static const weir_mesh *through_other(teams *x, const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp,
                                      weir_sbp *through)
{
    memcpy(through, t->sbp, sizeof t->sbp);
    for (int a = 0; a < t->mesh->axes; a++)
        if (t->sbp[a] == WEIR_P)
            through[a] = closed_as(&t->type.shape, t->mesh, through, a, WEIR_B);
    unsigned sums = axes_changed(t->mesh, t->sbp, through);
    if (sources_of_first(t, mesh, sbp) <= TEAM_MAX && !by_tiers(x, t->mesh, sums))
        return NULL;
    if (sums)
        return t->mesh;
    if (same_shape(t->mesh, mesh))
        return mesh;
    for (int a = 0; a < t->mesh->axes; a++)
        through[a] = WEIR_B;
    return by_tiers(x, t->mesh, axes_changed(t->mesh, t->sbp, through)) ? t->mesh : NULL;
}

const weir_mesh *teams_through(teams *x, const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp,
                               weir_sbp through[MESH_AXES_MAX])
{
    if (mesh->home || teams_core_is(mesh, t->mesh))
        return NULL; /* a step already */
    if (t->mesh->home) {
        memcpy(through, t->sbp, sizeof t->sbp);
        return tier_step(&t->type.shape, t->mesh, through, sbp) ? t->mesh : NULL;
    }
    if (teams_core_is(t->mesh, mesh)) { /* there it becomes what is wanted, and then goes back */
        memcpy(through, sbp, sizeof *sbp * (size_t)mesh->axes);
        return axes_changed(t->mesh, t->sbp, sbp) ? t->mesh : NULL;
    }
    return mesh_equal(t->mesh, mesh) ? through_own(x, t, sbp, through) : through_other(x, t, mesh, sbp, through);
}

const weir_mesh *teams_view(const ir_tensor *from, const ir_tensor *to, weir_sbp sbp[MESH_AXES_MAX])
{
    const weir_mesh *tiers = to->mesh;
    int last = NONE; /* of the axes that cut, as the source's own mesh has them: ascending, and each once */
    bool finer = tiers->home && !from->mesh->home && mesh_equal(tiers->home, from->mesh);
    for (int i = 0; finer && i < tiers->axes; i++) {
        int axis = tiers->home_axis[mesh_cut(tiers, i)];
        if (!WEIR_IS_S(from->sbp[axis]))
            continue;
        finer = axis > last;
        last = axis;
    }
    for (int a = 0; a < MESH_AXES_MAX; a++)
        sbp[a] = finer && a < tiers->axes ? from->sbp[tiers->home_axis[a]] : from->sbp[a];
    return finer ? tiers : from->mesh;
}
