/* graph/onnx/ops_shape.c: operators that move elements. Where the result is the input itself, no op is built. */
#include "graph/onnx/ops.h"

#include <string.h>

weir_tensor *onnx_reshape(onnx_importer *im, weir_tensor *x, int rank, const int64_t *dim, const char *name)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    bool same = shape.rank == rank;
    weir_dims_opts opts = {.size = sizeof opts, .src = im->src, .name = name};
    if (rank > WEIR_DIMS_MAX)
        return ONNX_UNSUPPORTED(im, "the result has %d dimensions; weir has at most %d", rank, WEIR_DIMS_MAX), NULL;
    for (int d = 0; d < rank; d++) {
        if (dim[d] <= 0)
            return ONNX_UNSUPPORTED(im, "the result has no elements; weir has no empty tensors"), NULL;
        same = same && shape.dim[d] == dim[d];
        opts.dims[d] = dim[d];
    }
    return same ? x : weir_reshape_at(x, &opts);
}

weir_tensor *onnx_transpose(onnx_importer *im, weir_tensor *x, const int *perm, const char *name)
{
    weir_dims_opts opts = {.size = sizeof opts, .src = im->src, .name = name};
    bool same = true;
    const int rank = weir_tensor_type(x).shape.rank;
    for (int d = 0; d < rank; d++) {
        opts.dims[d] = perm[d];
        same = same && perm[d] == d;
    }
    return same ? x : weir_transpose_at(x, &opts);
}

bool onnx_op_identity(onnx_importer *im)
{
    return onnx_set_same(im, 0, 0);
}

/* Dropout at inference passes everything on; its mask is all true. */
bool onnx_op_dropout(onnx_importer *im)
{
    const onnx_value *training = onnx_has_in(im->node, 2) ? onnx_in(im, 2) : NULL;
    if (training && (!training->known || array_count(training->known) != 1 || array_integer(training->known, 0)))
        return ONNX_UNSUPPORTED(im, "its training_mode is not known to be false");
    if (!onnx_set_same(im, 0, 0))
        return false;
    if (im->node->out.count < 2 || !*im->node->out.item[1])
        return true;
    const weir_shape shape = onnx_shape(im, onnx_in(im, 0));
    onnx_array *mask = onnx_array_new(im, ONNX_BOOL, shape.rank, shape.dim);
    if (mask)
        memset(mask->data, 1, (size_t)array_count(mask));
    return onnx_set_known(im, 1, mask);
}

/* The shape of input 0. False after a fault. */
static bool shape_in(onnx_importer *im, weir_shape *shape)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    if (x)
        *shape = weir_tensor_type(x).shape;
    return x;
}

/* Reshape, Flatten, Squeeze and Unsqueeze. */
bool onnx_op_reshape(onnx_importer *im)
{
    weir_shape shape = {0};
    int64_t dim[ONNX_DIMS_MAX];
    const int rank = shape_in(im, &shape) ? onnx_reshaped(im, shape.dim, shape.rank, dim) : -1;
    weir_tensor *y = rank < 0 ? NULL : onnx_reshape(im, onnx_tensor_in(im, 0), rank, dim, onnx_out_name(im, 0));
    return y && onnx_set_alike(im, y);
}

bool onnx_op_transpose(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int rank = x ? weir_tensor_type(x).shape.rank : 0;
    int64_t list[ONNX_DIMS_MAX];
    int perm[ONNX_DIMS_MAX];
    const int count = onnx_ints(im, "perm", list, ONNX_DIMS_MAX);
    if (!x)
        return false;
    if (count && count != rank)
        return ONNX_WRONG(im, "perm has %d entries for %d dimensions", count, rank);
    for (int d = 0; d < rank; d++)
        if ((perm[d] = count ? onnx_axis(im, list[d], rank) : rank - 1 - d) < 0)
            return false;
    return onnx_set_alike(im, onnx_transpose(im, x, perm, onnx_out_name(im, 0)));
}

/* A part of x along one axis; x itself if it is all of it. */
static weir_tensor *part_of(onnx_importer *im, weir_tensor *x, int axis, onnx_range range, const char *name)
{
    if (!range.first && range.step == 1 && range.count == weir_tensor_type(x).shape.dim[axis])
        return x;
    return weir_slice_at(x, axis, range.first, range.count, ONNX_OPTS(im, weir_slice_opts, name, .step = range.step));
}

bool onnx_op_slice(onnx_importer *im)
{
    onnx_range range[ONNX_DIMS_MAX];
    weir_shape shape = {0};
    if (!shape_in(im, &shape) || !onnx_slices(im, shape.dim, shape.rank, range))
        return false;
    weir_tensor *x = onnx_tensor_in(im, 0);
    for (int d = 0; d < shape.rank; d++) {
        if (!range[d].count)
            return ONNX_UNSUPPORTED(im, "the result has no elements; weir has no empty tensors");
        x = part_of(im, x, d, range[d], onnx_name(im));
    }
    return onnx_set_alike(im, x);
}

static weir_tensor *concat(onnx_importer *im, int axis, weir_tensor *const *x, int count, const char *name)
{
    weir_concat_opts opts = {.size = sizeof opts, .src = im->src, .name = name};
    memcpy(opts.x, x, sizeof *x * (size_t)count);
    return count == 1 ? x[0] : weir_concat_at(axis, &opts);
}

/* More parts than one op takes are put together in rounds. */
weir_tensor *onnx_concat(onnx_importer *im, int axis, weir_tensor **x, int count, const char *name)
{
    enum { MOST = sizeof((weir_concat_opts *)0)->x / sizeof(weir_tensor *) };
    while (count > MOST) {
        int made = 0;
        for (int i = 0; i < count; i += MOST)
            x[made++] = concat(im, axis, x + i, count - i < MOST ? count - i : MOST, onnx_name(im));
        count = made;
    }
    return concat(im, axis, x, count, name);
}

bool onnx_op_concat(onnx_importer *im)
{
    weir_tensor **x = POOL_NEW(im->pool, weir_tensor *, im->node->in.count + 1);
    int count = 0, rank = 0;
    for (int i = 0; x && i < im->node->in.count; i++) {
        const onnx_value *value = onnx_in(im, i);
        if (value && value->known && !array_count(value->known))
            continue; /* nothing to put there */
        if (!(x[count] = onnx_tensor_in(im, i)))
            return false;
        rank = weir_tensor_type(x[count++]).shape.rank;
    }
    const int axis = x && count ? onnx_axis(im, onnx_int(im, "axis", 1), rank) : -1;
    if (axis < 0)
        return im->status ? false : ONNX_WRONG(im, "it has no inputs");
    return onnx_set_alike(im, onnx_concat(im, axis, x, count, onnx_out_name(im, 0)));
}

bool onnx_op_split(onnx_importer *im)
{
    weir_shape shape = {0};
    int64_t parts[WEIR_ARGS_MAX], at = 0;
    const int axis = shape_in(im, &shape) ? onnx_axis(im, onnx_int(im, "axis", 0), shape.rank) : -1;
    if (axis < 0 || onnx_splits(im, shape.dim[axis], parts, WEIR_ARGS_MAX) < 0)
        return false;
    for (int i = 0; i < im->node->out.count; at += parts[i++]) {
        if (!parts[i])
            return ONNX_UNSUPPORTED(im, "output %d has no elements; weir has no empty tensors", i);
        weir_tensor *part = part_of(im, onnx_tensor_in(im, 0), axis, (onnx_range){at, 1, parts[i]}, onnx_out_name(im, i));
        if (!onnx_set_tensor(im, i, part, onnx_in(im, 0)->type))
            return false;
    }
    return true;
}

/* One known index is a slice. */
bool onnx_op_gather(onnx_importer *im)
{
    weir_shape shape = {0};
    const onnx_value *ids = onnx_in(im, 1);
    const int axis = ids && shape_in(im, &shape) ? onnx_axis(im, onnx_int(im, "axis", 0), shape.rank) : -1;
    int64_t dim[ONNX_DIMS_MAX + WEIR_DIMS_MAX];
    int rank = 0;
    if (axis < 0)
        return im->status ? false : ONNX_WRONG(im, "it takes two inputs");
    if (!ids->known || array_count(ids->known) != 1) {
        weir_tensor *y = onnx_gather(im, axis);
        return y && onnx_set_alike(im, y);
    }
    const int64_t id = array_integer(ids->known, 0), at = id < 0 ? id + shape.dim[axis] : id;
    if (at < 0 || at >= shape.dim[axis])
        return ONNX_WRONG(im, "index %lld is not one of %lld", (long long)id, (long long)shape.dim[axis]);
    for (int d = 0; d < axis; d++)
        dim[rank++] = shape.dim[d];
    for (int d = 0; d < ids->known->rank; d++)
        dim[rank++] = 1;
    for (int d = axis + 1; d < shape.rank; d++)
        dim[rank++] = shape.dim[d];
    weir_tensor *part = part_of(im, onnx_tensor_in(im, 0), axis, (onnx_range){at, 1, 1}, onnx_name(im));
    weir_tensor *y = onnx_reshape(im, part, rank, dim, onnx_out_name(im, 0));
    return y && onnx_set_alike(im, y);
}

bool onnx_op_expand(onnx_importer *im)
{
    int64_t dim[ONNX_DIMS_MAX];
    weir_shape shape = {0};
    const int rank = shape_in(im, &shape) ? onnx_expanded(im, shape.dim, shape.rank, dim) : -1;
    weir_dims_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_out_name(im, 0)};
    if (rank < 0)
        return false;
    if (rank > WEIR_DIMS_MAX)
        return ONNX_UNSUPPORTED(im, "the result has %d dimensions; weir has at most %d", rank, WEIR_DIMS_MAX);
    for (int d = 0; d < rank; d++)
        if (dim[d] < 1)
            return ONNX_UNSUPPORTED(im, "the result has no elements; weir has no empty tensors");
    memcpy(opts.dims, dim, sizeof *dim * (size_t)rank);
    return onnx_set_alike(im, weir_expand_at(onnx_tensor_in(im, 0), &opts));
}

bool onnx_op_tile(onnx_importer *im)
{
    int64_t times[ONNX_DIMS_MAX];
    weir_shape shape = {0};
    if (!shape_in(im, &shape) || onnx_integers_in(im, 1, times, ONNX_DIMS_MAX) != shape.rank)
        return im->status ? false : ONNX_WRONG(im, "it does not have one repeat for each of %d dimensions", shape.rank);
    weir_tensor *x = onnx_tensor_in(im, 0);
    for (int d = 0; d < shape.rank; d++) {
        if (times[d] < 1 || times[d] > WEIR_ARGS_MAX)
            return ONNX_UNSUPPORTED(im, "it repeats dimension %d %lld times; 1 to %d can be", d, (long long)times[d], WEIR_ARGS_MAX);
        weir_tensor **copies = POOL_NEW(im->pool, weir_tensor *, times[d]);
        for (int64_t i = 0; copies && i < times[d]; i++)
            copies[i] = x;
        x = copies ? onnx_concat(im, d, copies, (int)times[d], onnx_name(im)) : NULL;
    }
    return onnx_set_alike(im, x);
}

/* DepthToSpace and SpaceToDepth: a reshape to [batch, ...], a transpose and a reshape. */
bool onnx_op_depth(onnx_importer *im)
{
    static const int dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3}, space[] = {0, 3, 5, 1, 2, 4};
    const bool to_space = *im->node->op == 'D', by_column = strcmp(onnx_text(im, "mode", "DCR"), "DCR") != 0;
    const int64_t b = onnx_int(im, "blocksize", 0);
    weir_shape s = {0};
    if (!shape_in(im, &s))
        return false;
    if (s.rank != 4 || b < 1 || b > 1 << 15 || (to_space ? s.dim[1] % (b * b) : s.dim[2] % b || s.dim[3] % b))
        return ONNX_WRONG(im, "its input does not have four dimensions that a blocksize of %lld divides", (long long)b);
    const int64_t depth = s.dim[1] / (b * b), parts[3][6] = {{s.dim[0], b, b, depth, s.dim[2], s.dim[3]},
                                                             {s.dim[0], depth, b, b, s.dim[2], s.dim[3]},
                                                             {s.dim[0], s.dim[1], s.dim[2] / b, b, s.dim[3] / b, b}};
    const int64_t spread[] = {s.dim[0], depth, s.dim[2] * b, s.dim[3] * b}, packed[] = {s.dim[0], s.dim[1] * b * b, s.dim[2] / b, s.dim[3] / b};
    weir_tensor *x = onnx_reshape(im, onnx_tensor_in(im, 0), 6, parts[to_space ? by_column : 2], onnx_name(im));
    x = x ? onnx_transpose(im, x, !to_space ? space : by_column ? crd : dcr, onnx_name(im)) : NULL;
    x = x ? onnx_reshape(im, x, 4, to_space ? spread : packed, onnx_out_name(im, 0)) : NULL;
    return x && onnx_set_alike(im, x);
}
