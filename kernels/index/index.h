/* kernels/index/index.h: elements and slices picked by ids, and the gradients of that.
 *
 *     gather                x [outside, rows, inside], ids [n]      -> [outside, n, inside]       slices along an axis
 *     gather_nd             x [batch, rows, inside], ids [batch, n, k] -> [batch, n, inside]      rows are k dimensions
 *     gather_elements       x, ids -> elements at the places of ids; along the axis an id tells the place
 *     ..._grad              ids, dy -> dx: each slice, or element, of dx is the sum of those of dy that were picked from it
 *
 * An id below 0 counts from the end. One that is out of range is refused, on every device alike. Where the indexed dimension is split,
 * a device gives zeros for ids that lie elsewhere, so the results are terms of a sum.
 *
 * A gradient adds in double, in the order of the ids: the bits do not depend on timing. It accumulates over micro-batches. Pure
 * functions; any thread.
 */
#ifndef KERNELS_INDEX_INDEX_H
#define KERNELS_INDEX_INDEX_H

#include <weir/op.h>

#include "graph/base/formula.h"
#include "kernels/common/view.h"

typedef struct index_attrs {
    int64_t axis; /* may be negative; of gather_nd the number of batch dimensions */
} index_attrs;

/* And the logical shape of x. */
typedef struct index_grad_attrs {
    int64_t axis;
    int64_t dim[WEIR_DIMS_MAX];
    int64_t rank;
} index_grad_attrs;

/* A call of gather, gather_nd or their gradients, as x is seen by it. */
typedef struct index_sizes {
    int64_t outside, inside;
    int64_t rows, first;    /* of x here, and the first one's number */
    int64_t count;          /* slices that are picked, for each outside */
    int64_t id_step;        /* ids from one outside to the next; 0: all have the same */
    int parts;              /* ids of a slice */
    int64_t size[WEIR_DIMS_MAX]; /* whole sizes of the indexed dimensions: an id is below, and not below -size */
} index_sizes;

/* `x`: the tensor that ids pick from, or its gradient. `size`: of the axis, whole. */
static inline index_sizes gather_sizes(const weir_view *x, const weir_view *ids, int axis, int64_t size)
{
    index_sizes z = {};
    z.outside = shape_size(&x->shape, 0, axis);
    z.inside = shape_size(&x->shape, axis + 1, x->shape.rank);
    z.rows = x->shape.dim[axis];
    z.first = x->offset[axis];
    z.count = shape_size(&ids->shape, 0, ids->shape.rank);
    z.parts = 1;
    z.size[0] = size;
    return z;
}

static inline index_sizes gather_nd_sizes(const weir_view *x, const weir_view *ids, int batch)
{
    index_sizes z = {};
    z.parts = (int)ids->shape.dim[ids->shape.rank - 1];
    z.outside = shape_size(&x->shape, 0, batch);
    z.rows = shape_size(&x->shape, batch, batch + z.parts);
    z.inside = shape_size(&x->shape, batch + z.parts, x->shape.rank);
    z.count = shape_size(&ids->shape, batch, ids->shape.rank - 1);
    z.id_step = z.count;
    for (int p = 0; p < z.parts; p++)
        z.size[p] = x->shape.dim[batch + p];
    return z;
}

/* Whether the id is one of `size` places, -1 being the last; then it becomes that place. */
FORMULA bool place_of(int64_t *id, int64_t size)
{
    if (*id < -size || *id >= size)
        return false;
    *id += *id < 0 ? size : 0;
    return true;
}

/* An id in the 32 bits of a weir_refusal. */
FORMULA int32_t id_said(int64_t id)
{
    return (int32_t)(id < INT32_MIN ? INT32_MIN : id > INT32_MAX ? INT32_MAX : id);
}

#endif
