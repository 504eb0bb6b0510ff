/* graph/compile/sources.c: see the header. */
#include "graph/compile/sources.h"

static int device_position(const weir_mesh *mesh, weir_device_kind kind, int device)
{
    for (int at = 0; at < mesh->count && mesh->kind == kind; at++)
        if (mesh->device[at] == device)
            return at;
    return -1;
}

/* What a destination that is P on `axis` takes there: of a source in the same place its own term, otherwise the first
 * device takes everything and the others are zero. */
static void choose_partial(sources_choice *ch, const ir_tensor *from, const ir_tensor *to, int axis, int at, bool same)
{
    int k = mesh_coordinate(to->mesh, at, axis);
    if (same && from->sbp[axis] != WEIR_B) {
        ch->only[axis] = k;
        ch->zero |= WEIR_IS_S(from->sbp[axis]);
    } else if (k) {
        ch->none = true;
    }
}

sources_choice sources_choose(const ir_tensor *from, const ir_tensor *to, int at)
{
    sources_choice ch = {.only = {-1, -1, -1}};
    bool same = mesh_equal(from->mesh, to->mesh);
    int here = same ? at : device_position(from->mesh, to->mesh->kind, to->mesh->device[at]);
    for (int a = 0; a < from->mesh->axes; a++)
        if (from->sbp[a] == WEIR_B)
            ch.only[a] = here >= 0 ? mesh_coordinate(from->mesh, here, a) : at % from->mesh->shape[a];
    for (int a = 0; a < to->mesh->axes; a++)
        if (to->sbp[a] == WEIR_P)
            choose_partial(&ch, from, to, a, at, same);
    ch.zero |= ch.none;
    return ch;
}

static bool slices_meet(const slice *a, const slice *b, int rank)
{
    for (int d = 0; d < rank; d++)
        if (a->start[d] + a->count[d] <= b->start[d] || b->start[d] + b->count[d] <= a->start[d])
            return false;
    return true;
}

/* Whether the device `at` of the source is the first of the devices that hold terms of the same slice. */
static bool first_term(const ir_tensor *from, const sources_choice *ch, int at)
{
    for (int a = 0; a < from->mesh->axes; a++)
        if (from->sbp[a] == WEIR_P && mesh_coordinate(from->mesh, at, a) != (ch->only[a] >= 0 ? ch->only[a] : 0))
            return false;
    return true;
}

static bool taken(const ir_tensor *from, const sources_choice *ch, int at)
{
    for (int a = 0; a < from->mesh->axes; a++)
        if (ch->only[a] >= 0 && mesh_coordinate(from->mesh, at, a) != ch->only[a])
            return false;
    return !ch->none;
}

static bool same_slice_coordinates(const ir_tensor *from, int a, int b)
{
    for (int x = 0; x < from->mesh->axes; x++)
        if (from->sbp[x] != WEIR_P && mesh_coordinate(from->mesh, a, x) != mesh_coordinate(from->mesh, b, x))
            return false;
    return true;
}

/* Lists the terms of the slice that the source's device `at` has a term of; returns how many are listed then. */
static int list_terms(const compile *c, int tensor, int at, int chunk, const sources_choice *ch, int *list, int count)
{
    const ir_tensor *from = &c->ir.tensors.item[tensor];
    for (int term = 0; term < from->mesh->count; term++)
        if (taken(from, ch, term) && same_slice_coordinates(from, at, term))
            list[count++] = ptensor_at(&c->phys, tensor, term, chunk);
    return count;
}

int sources_list(const compile *c, int tensor, const ptensor *to, const sources_choice *ch, int *list, int *terms)
{
    const ir_tensor *from = &c->ir.tensors.item[tensor];
    int count = 0, rank = from->type.shape.rank;
    *terms = 1;
    for (int a = 0; a < from->mesh->axes; a++)
        if (from->sbp[a] == WEIR_P && ch->only[a] < 0)
            *terms *= from->mesh->shape[a];
    for (int at = 0; at < from->mesh->count; at++)
        for (int chunk = 0; chunk < c->phys.chunks[tensor] && taken(from, ch, at) && first_term(from, ch, at); chunk++)
            if (slices_meet(&c->phys.tensor.item[ptensor_at(&c->phys, tensor, at, chunk)].part, &to->part, rank))
                count = list_terms(c, tensor, at, chunk, ch, list, count);
    return count;
}

bool sources_local(const ir_tensor *from, const ir_tensor *to)
{
    for (int at = 0; at < to->mesh->count; at++) {
        sources_choice ch = sources_choose(from, to, at);
        slice part = slice_of(&to->type.shape, to->mesh, to->sbp, at);
        for (int k = 0; k < from->mesh->count; k++) {
            slice has = slice_of(&from->type.shape, from->mesh, from->sbp, k);
            bool here = from->mesh->kind == to->mesh->kind && from->mesh->device[k] == to->mesh->device[at];
            if (!here && taken(from, &ch, k) && slices_meet(&has, &part, from->type.shape.rank))
                return false;
        }
    }
    return true;
}
