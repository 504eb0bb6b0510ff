/* graph/compile/sbp/sums.c: see the header. Devices of a group have the same part of the tensor, each a term of it. */
#include "graph/compile/sbp/sums.h"

#include <string.h>

static bool is_term(const ir_tensor *t, int axis)
{
    return t->sbp[axis] == WEIR_P && t->mesh->shape[axis] > 1;
}

/* Whether devices of the mesh may add by themselves at all. */
static bool may_add(const compile *c, const ir_tensor *t)
{
    return c->opts.reduce == WEIR_FAST && device_is_accelerator(t->mesh->kind) && !t->mesh->home && !t->mesh->whole &&
           t->type.dtype == WEIR_F32 && weir_shape_count(&t->type.shape) > 0;
}

int sum_stride(const weir_mesh *mesh, int axis)
{
    int stride = 1;
    for (int a = axis + 1; a < mesh->axes; a++)
        stride *= mesh->shape[a];
    return stride;
}

/* Members of a collective come by rising device. */
static bool rises(const weir_mesh *mesh, int axis)
{
    int stride = sum_stride(mesh, axis);
    for (int at = 0; at < mesh->count; at++)
        if (mesh_coordinate(mesh, at, axis) && mesh->device[at] < mesh->device[at - stride])
            return false;
    return true;
}

/* Whether a part is the k-th of n of the whole as it lies in memory. */
static bool is_kth(const slice *part, const slice *whole, int rank, int k, int n)
{
    int64_t items = 1, all = 1, first = 0;
    int last = NONE;
    for (int d = 0; d < rank; d++) {
        int64_t from = part->start[d] - whole->start[d];
        if (from < 0 || from + part->count[d] > whole->count[d])
            return false;
        first = first * whole->count[d] + from;
        items *= part->count[d];
        all *= whole->count[d];
        last = part->count[d] != whole->count[d] ? d : last;
    }
    for (int d = 0; d < last; d++)
        if (part->count[d] != 1)
            return false;
    return items > 0 && items * n == all && first == items * k;
}

/* Whether the sum along the axis can be left so. */
static bool parts_fit(const ir_tensor *from, const weir_sbp *sbp, int axis)
{
    const weir_mesh *mesh = from->mesh;
    const weir_shape *shape = &from->type.shape;
    for (int at = 0; at < mesh->count; at++) {
        slice whole = slice_of(shape, mesh, from->sbp, at), part = slice_of(shape, mesh, sbp, at);
        if (!is_kth(&part, &whole, shape->rank, mesh_coordinate(mesh, at, axis), mesh->shape[axis]))
            return false;
    }
    return true;
}

/* Whether the sum along the axis is left as `how` says. */
static bool adds_to(const ir_tensor *t, int axis, weir_sbp how, weir_sbp *sbp)
{
    if (!rises(t->mesh, axis))
        return false;
    memcpy(sbp, t->sbp, sizeof *sbp * WEIR_AXES_MAX);
    sbp[axis] = how;
    return how == WEIR_B || (WEIR_IS_S(how) && parts_fit(t, sbp, axis));
}

/* Or over the first dimension that can be. */
static bool scatters(const ir_tensor *t, int axis, weir_sbp how, weir_sbp *sbp)
{
    if (adds_to(t, axis, how, sbp))
        return true;
    for (int d = 0; d < t->type.shape.rank && scatter_pays(&t->type.shape); d++)
        if (adds_to(t, axis, WEIR_S(d), sbp))
            return true;
    return false;
}

bool sum_first(const compile *c, const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, weir_sbp *between)
{
    bool same = mesh_equal(t->mesh, mesh);
    if (!may_add(c, t) || mesh->kind != t->mesh->kind || mesh->home || mesh->whole)
        return false;
    for (int a = 0; a < t->mesh->axes; a++) /* a part of the sum is all that goes to another mesh, too */
        if (is_term(t, a) && (!same || WEIR_IS_S(sbp[a])) && scatters(t, a, same ? sbp[a] : WEIR_S(0), between))
            return true;
    for (int a = 0; a < t->mesh->axes; a++)
        if (is_term(t, a) && same && sbp[a] == WEIR_B && adds_to(t, a, WEIR_B, between))
            return true;
    return false;
}

/* The one axis on which the two differ, where the first is terms; -1: it is none such. */
int sum_axis(const ir_tensor *from, const ir_tensor *to)
{
    int axis = NONE;
    for (int a = 0; a < from->mesh->axes; a++) {
        if (from->mesh->shape[a] == 1 || from->sbp[a] == to->sbp[a])
            continue;
        if (axis >= 0 || from->sbp[a] != WEIR_P)
            return NONE;
        axis = a;
    }
    return axis;
}

bool sum_is(const compile *c, const ir_tensor *from, const ir_tensor *to, plan_collective_kind *kind)
{
    weir_sbp sbp[WEIR_AXES_MAX];
    if (!may_add(c, from) || !mesh_equal(from->mesh, to->mesh) || to->mesh->home || to->mesh->whole)
        return false;
    int axis = sum_axis(from, to);
    if (axis < 0 || !adds_to(from, axis, to->sbp[axis], sbp))
        return false;
    *kind = to->sbp[axis] == WEIR_B ? PLAN_ALL_REDUCE : PLAN_REDUCE_SCATTER;
    return true;
}
