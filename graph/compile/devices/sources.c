/* graph/compile/devices/sources.c: see the header. */
#include "graph/compile/devices/sources.h"
#include "graph/compile/sbp/teams.h"

#include <stdlib.h>
#include <string.h>

/* Which devices of the source a destination device reads, as a set of allowed coordinates per axis. */
typedef struct choice {
    const weir_mesh *mesh;         /* the source's, as it is best seen for this conversion (teams.h) */
    weir_sbp sbp[MESH_AXES_MAX];
    int only[MESH_AXES_MAX];       /* coordinate to take, or -1: all */
    int more[MESH_AXES_MAX];       /* then: another one of which the terms are taken, behind that; -1: none */
    bool none;                     /* this device holds zeros alone */
    bool zero;                     /* the sources may not cover it */
} choice;

/* `first` is looked at first: most meshes with the same devices have them in the same places. */
static int device_position(const weir_mesh *mesh, weir_device_kind kind, int device, int first)
{
    if (mesh->kind == kind && first < mesh->count && mesh->device[first] == device)
        return first;
    for (int at = 0; at < mesh->count && mesh->kind == kind; at++)
        if (mesh->device[at] == device)
            return at;
    return NONE;
}

/* Chooses for a destination that is P on `axis`: of a source in the same place its own term, otherwise the first device takes
 * everything and the others are zero. */
static void choose_partial(choice *ch, const ir_tensor *to, int axis, int at, bool same)
{
    int k = mesh_coordinate(to->mesh, at, axis);
    if (same && ch->sbp[axis] != WEIR_B) {
        ch->only[axis] = k;
        ch->zero |= WEIR_IS_S(ch->sbp[axis]);
    } else if (k) {
        ch->none = true;
    }
}

static int home_axis(const weir_mesh *mesh, int axis)
{
    return mesh->home ? mesh->home_axis[axis] : axis;
}

/* Terms of the user's axis that stay terms from a mesh with tiers of others, or to one. */
static void choose_own_term(choice *ch, const ir_tensor *to, int axis, int at)
{
    for (int a = 0; a < ch->mesh->axes; a++)
        if (home_axis(ch->mesh, a) == home_axis(to->mesh, axis) && ch->sbp[a] == WEIR_P)
            ch->only[a] = mesh_coordinate(to->mesh, at, axis);
}

/* Terms that go to a core stay what they are, but for those of devices that it lacks; and back as they are. */
static void choose_core_term(choice *ch, const ir_tensor *to, int axis, int at, bool into)
{
    int k = mesh_coordinate(to->mesh, at, axis);
    ch->only[axis] = into && axis == to->mesh->core_axis ? teams_core_term(to->mesh, k, &ch->more[axis]) : k;
}

/* The place of the destination's device `at` among the source's, or -1. */
static int place_of(const ir_tensor *from, const choice *ch, const ir_tensor *to, int at)
{
    if (mesh_equal(mesh_home(ch->mesh), mesh_home(to->mesh)))
        return at;
    if (teams_core_is(to->mesh, from->mesh))
        return teams_core_place(to->mesh, at);
    if (teams_core_is(from->mesh, to->mesh))
        return teams_core_beside(from->mesh, at);
    return device_position(ch->mesh, to->mesh->kind, to->mesh->device[at], at);
}

static choice choose_sources(const ir_tensor *from, const ir_tensor *to, int at)
{
    choice ch = {.only = {0}};
    ch.mesh = teams_view(from, to, ch.sbp);
    for (int a = 0; a < MESH_AXES_MAX; a++)
        ch.only[a] = ch.more[a] = NONE;
    bool same = mesh_equal(ch.mesh, to->mesh), tiers = !same && mesh_equal(mesh_home(ch.mesh), mesh_home(to->mesh));
    bool into = teams_core_is(to->mesh, from->mesh), back = teams_core_is(from->mesh, to->mesh);
    int here = place_of(from, &ch, to, at);
    for (int a = 0; a < ch.mesh->axes; a++)
        if (ch.sbp[a] == WEIR_B)
            ch.only[a] = here >= 0 ? mesh_coordinate(ch.mesh, here, a) : at % ch.mesh->shape[a];
    for (int a = 0; a < to->mesh->axes; a++) {
        if (to->sbp[a] == WEIR_P && (into || back))
            choose_core_term(&ch, to, a, at, into);
        else if (to->sbp[a] == WEIR_P && tiers)
            choose_own_term(&ch, to, a, at);
        else if (to->sbp[a] == WEIR_P)
            choose_partial(&ch, to, a, at, same);
    }
    ch.zero |= ch.none;
    return ch;
}

/* The walk over the source's devices that hold something of a destination, axis by axis in the order in which they cut:
 * what a coordinate leaves that does not meet it is not looked at. If several devices have terms of one slice, it finds the
 * first. */
typedef struct source_walk {
    const choice *ch;
    const slice *to;
    int rank;
    int *found, count;             /* places; NULL: how many there are besides `own` */
    int own;
} source_walk;

static int stride_of(const weir_mesh *mesh, int axis)
{
    int stride = 1;
    for (int a = axis + 1; a < mesh->axes; a++)
        stride *= mesh->shape[a];
    return stride;
}

/* The coordinate of the part that has the row so far from the start of what is cut; each part has one at least. */
static int64_t part_with(int64_t row, int64_t rows, int parts)
{
    int64_t each = rows / parts, longer = rows % parts;
    return row < longer * (each + 1) ? row / (each + 1) : longer + (row - longer * (each + 1)) / each;
}

/* The first and last of the parts that dimension d is cut into that can have rows of the destination. */
static void parts_met(const slice *part, const slice *to, int d, int parts, int *first, int *last)
{
    int64_t rows = part->count[d], from = to->start[d] - part->start[d], end = from + to->count[d] - 1;
    *first = 0;
    *last = parts - 1;
    if (rows < parts || !to->count[d])
        return;
    *first = from > 0 ? (int)part_with(from, rows, parts) : 0;
    *last = end < rows - 1 ? (int)part_with(end, rows, parts) : parts - 1;
}

static void walk_sources(source_walk *w, int i, int at, const slice *part)
{
    const choice *ch = w->ch;
    if (!slices_meet(part, w->to, w->rank))
        return;
    if (i == ch->mesh->axes) {
        if (w->found)
            w->found[w->count] = at;
        w->count += w->found || at != w->own;
        return;
    }
    int a = mesh_cut(ch->mesh, i), first = 0, last = 0, stride = stride_of(ch->mesh, a);
    if (WEIR_IS_S(ch->sbp[a]))
        parts_met(part, w->to, WEIR_S_DIM(ch->sbp[a]), ch->mesh->shape[a], &first, &last);
    if (ch->only[a] >= 0)
        first = last = ch->only[a];
    for (int k = first; k <= last; k++) {
        slice next = *part;
        if (WEIR_IS_S(ch->sbp[a]))
            slice_cut(&next, WEIR_S_DIM(ch->sbp[a]), k, ch->mesh->shape[a]);
        walk_sources(w, i + 1, at + k * stride, &next);
    }
}

static int compare_places(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* How many terms of a slice lie along the axis, and how far apart. */
static int terms_along(const choice *ch, int axis, int *apart)
{
    *apart = ch->only[axis] < 0 ? 1 : ch->more[axis] - ch->only[axis];
    if (ch->sbp[axis] != WEIR_P)
        return 1;
    return ch->only[axis] < 0 ? ch->mesh->shape[axis] : ch->more[axis] < 0 ? 1 : 2;
}

static int terms_of(const choice *ch)
{
    int terms = 1;
    for (int a = 0, apart; a < ch->mesh->axes; a++)
        terms *= terms_along(ch, a, &apart);
    return terms;
}

/* Lists the terms of the slice of which the source's device `at` has the first. */
static void list_terms(sources *s, const compile *c, int tensor, int at, int chunk, const choice *ch)
{
    for (int term = 0; term < s->terms; term++) {
        int from = at;
        for (int a = ch->mesh->axes - 1, rest = term; a >= 0; a--) {
            int apart, along = terms_along(ch, a, &apart);
            from += rest % along * apart * stride_of(ch->mesh, a);
            rest /= along;
        }
        s->item[s->count++] = ptensor_at(&c->phys, tensor, from, chunk);
    }
}

static void list_sources(sources *s, const compile *c, int tensor, const slice *to, const choice *ch)
{
    const phys *p = &c->phys;
    const weir_shape *shape = &c->ir.tensors.item[tensor].type.shape;
    source_walk walk = {.ch = ch, .to = to, .rank = shape->rank, .found = s->places};
    slice whole = {.start = {0}};
    memcpy(whole.count, shape->dim, sizeof *whole.count * (size_t)shape->rank);
    if (!ch->none)
        walk_sources(&walk, 0, 0, &whole);
    qsort(walk.found, (size_t)walk.count, sizeof *walk.found, compare_places);
    for (int i = 0; i < walk.count; i++)
        for (int chunk = 0; chunk < p->chunks[tensor]; chunk++)
            if (slices_meet(&p->tensor.item[ptensor_at(p, tensor, walk.found[i], chunk)].part, to, shape->rank))
                list_terms(s, c, tensor, walk.found[i], chunk, ch);
}

bool sources_new(sources *s, compile *c)
{
    int places = 0, most = 0;
    for (int t = 0; t < c->ir.tensors.count; t++) {
        int count = c->ir.tensors.item[t].mesh->count;
        places = count > places ? count : places;
        most = count * c->phys.chunks[t] > most ? count * c->phys.chunks[t] : most;
    }
    *s = (sources){.places = POOL_NEW(&c->pool, int, places + 1), .item = POOL_NEW(&c->pool, int, most + 1)};
    return s->places && s->item;
}

void sources_find(sources *s, const compile *c, int from, int to, int at, const slice *part)
{
    choice ch = choose_sources(&c->ir.tensors.item[from], &c->ir.tensors.item[to], at);
    s->count = 0;
    s->zero = ch.zero;
    s->terms = terms_of(&ch);
    list_sources(s, c, from, part, &ch);
}

/* How many devices besides the destination's `at` hold something of its shard, or a term of it. */
static int sources_away(const ir_tensor *from, const ir_tensor *to, int at)
{
    const weir_shape *shape = &from->type.shape;
    choice ch = choose_sources(from, to, at);
    slice part = slice_of(&to->type.shape, to->mesh, to->sbp, at), whole = {.start = {0}};
    int own = device_position(ch.mesh, to->mesh->kind, to->mesh->device[at], at);
    source_walk walk = {.ch = &ch, .to = &part, .rank = shape->rank, .own = terms_of(&ch) == 1 ? own : -1};
    memcpy(whole.count, shape->dim, sizeof *whole.count * (size_t)shape->rank);
    if (!ch.none)
        walk_sources(&walk, 0, 0, &whole);
    return walk.count;
}

bool sources_local(const ir_tensor *from, const ir_tensor *to)
{
    for (int at = 0; at < to->mesh->count; at++)
        if (sources_away(from, to, at))
            return false;
    return true;
}
