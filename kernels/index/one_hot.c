/* kernels/index/one_hot.c: weir_one_hot(), put together from other ops: ids that equal the numbers of places, counted from either end. */
#include "kernels/common/opts.h"
#include "kernels/common/ops.h"
#include "kernels/common/param.h"
#include "kernels/index/ids.h"
#include "kernels/shape/axis.h"
#include "kernels/shape/shape.h"

#include <weir/ops.h>

/* 1 where an id is one of the `depth` numbers from `first` on, which lie along their one dimension that is not 1. */
static weir_tensor *equals(weir_tensor *ids, int64_t first, int64_t depth, const weir_shape *numbers, weir_src src)
{
    weir_tensor *range = NULL;
    WEIR_ON(weir_mesh_for(ids))
        range = weir_range_at(weir_tensor_graph(ids), weir_tensor_type(ids).dtype, depth,
                              WEIR_OPTS_AT(src, weir_range_opts, .start = (double)first));
    return weir_equal_at(ids, shape_reshape(range, numbers, src), WEIR_OPTS_AT(src, weir_op_opts));
}

weir_tensor *weir_one_hot_at(weir_tensor *ids, int64_t depth, int axis, const weir_op_opts *given)
{
    weir_op_opts opts;
    ids = op_opts(ids, "one_hot", given, &opts, sizeof opts);
    const weir_type type = weir_tensor_type(ids);
    const int rank = type.shape.rank + 1, at = axis_of(axis, rank);
    weir_shape wide = {.rank = rank}, numbers = {.rank = rank - at};
    char error[160];
    if (weir_tensor_poisoned(ids))
        return op_of_none(&op_range, ids, opts.src);
    if (!ids_are_right(&type, error, sizeof error) || !axis_is_right(axis, rank, error, sizeof error))
        return weir_mistake(ids, opts.src, "one_hot: %s", error);
    if (rank > WEIR_DIMS_MAX)
        return weir_mistake(ids, opts.src, "one_hot: the result would have more than %d dimensions", WEIR_DIMS_MAX);
    for (int d = 0; d < rank; d++)
        wide.dim[d] = d == at ? 1 : type.shape.dim[d < at ? d : d - 1];
    for (int d = 0; d < numbers.rank; d++)
        numbers.dim[d] = d ? 1 : depth;
    ids = shape_reshape(ids, &wide, opts.src);
    weir_tensor *front = equals(ids, 0, depth, &numbers, opts.src), *end = equals(ids, -depth, depth, &numbers, opts.src);
    return weir_cast_at(weir_or_at(front, end, WEIR_OPTS_AT(opts.src, weir_op_opts)), WEIR_F32,
                        WEIR_OPTS_AT(opts.src, weir_op_opts, .name = opts.name));
}
