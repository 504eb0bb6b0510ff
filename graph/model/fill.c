/* graph/model/fill.c: constants and ranges (kernels/shape/fill.h), which a graph has without any input. */
#include "graph/model/build.h"
#include "kernels/common/ops.h"
#include "kernels/shape/fill.h"

#include <string.h>
#include <weir/ops.h>

weir_tensor *weir_constant_at(weir_graph *graph, weir_dtype dtype, const weir_constant_opts *given)
{
    weir_constant_opts opts;
    constant_attrs attrs = {.dtype = dtype};
    const bool read = graph_opts(graph, "constant", given, &opts, sizeof opts);
    while (attrs.rank < WEIR_DIMS_MAX && opts.dims[attrs.rank])
        attrs.rank++;
    for (int d = (int)attrs.rank; d < WEIR_DIMS_MAX && graph && read; d++)
        if (opts.dims[d])
            graph_mistake(graph, opts.src, "constant: dimension %d is 0, and %lld follows it; a dimension is at least 1",
                          (int)attrs.rank, (long long)opts.dims[d]);
    memcpy(attrs.dim, opts.dims, sizeof attrs.dim);
    attrs.value = opts.value;
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_constant, graph, NULL, 0, &attrs}, NULL);
}

weir_tensor *weir_range_at(weir_graph *graph, weir_dtype dtype, int64_t count, const weir_range_opts *given)
{
    weir_range_opts opts;
    graph_opts(graph, "range", given, &opts, sizeof opts);
    const steps_attrs attrs = {dtype, count, opts.start, weir_option(opts.step, 1)};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_range, graph, NULL, 0, &attrs}, NULL);
}
