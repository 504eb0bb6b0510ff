/* graph/onnx/fold.c: operators that move or make known elements. Every move is one walk over the result with a stride for each
 * dimension of the source: a stride of 0 repeats and a negative one reverses. math.c has operators that compute.
 */
#include "graph/onnx/fold.h"

#include <string.h>

/* ---- moves ---- */

/* A new array whose element at index i is that of `from` at first + the sum of i[d] * stride[d]. */
static onnx_array *moved(onnx_importer *im, const onnx_array *from, int rank, const int64_t *dim, const int64_t *stride, int64_t first)
{
    onnx_array *to = onnx_array_new(im, from->type, rank, dim);
    const size_t bytes = onnx_type_bytes(from->type);
    int64_t index[ONNX_DIMS_MAX] = {0}, at = first;
    const int64_t count = to ? array_count(to) : 0;
    for (int64_t i = 0; i < count; i++) {
        memcpy((char *)to->data + (size_t)i * bytes, (const char *)from->data + (size_t)at * bytes, bytes);
        for (int d = rank - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < dim[d])
                break;
            at -= dim[d] * stride[d];
            index[d] = 0;
        }
    }
    return to;
}

static void strides_of(const onnx_array *a, int64_t *stride)
{
    int64_t step = 1;
    for (int d = a->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= a->dim[d];
    }
}

/* The same elements with another shape. */
static bool set_reshaped(onnx_importer *im, const onnx_array *from, int rank, const int64_t *dim)
{
    onnx_array *to = POOL_NEW(im->pool, onnx_array, 1);
    if (!to)
        return onnx_no_memory(im);
    *to = (onnx_array){.type = from->type, .rank = rank, .data = from->data};
    for (int d = 0; d < rank && d < ONNX_DIMS_MAX; d++)
        to->dim[d] = dim[d];
    if (array_count(to) != array_count(from))
        return ONNX_WRONG(im, "%lld elements cannot have a shape of %lld", (long long)array_count(from), (long long)array_count(to));
    if (!onnx_set_known(im, 0, to))
        return false;
    onnx_value *in = onnx_in(im, 0), *out = onnx_value_find(im, im->node->out.item[0]);
    if (in && out)
        out->weight = in->weight && in->known == from;
    return true;
}

/* ---- makers ---- */

bool onnx_fold_constant(onnx_importer *im)
{
    const onnx_attribute *a = im->node->attributes.count ? &im->node->attributes.item[0] : NULL;
    if (!a)
        return ONNX_WRONG(im, "it has no value");
    if (!strcmp(a->name, "value") && a->t)
        return onnx_set_known(im, 0, a->t);
    if (!strcmp(a->name, "value_float"))
        return onnx_set_known(im, 0, onnx_scalar(im, ONNX_FLOAT, a->f));
    const bool reals = !strcmp(a->name, "value_floats"), one = !strcmp(a->name, "value_int");
    if (!reals && !one && strcmp(a->name, "value_ints") != 0)
        return ONNX_UNSUPPORTED(im, "a constant given as %s", a->name);
    const int64_t count = one ? 1 : reals ? a->floats.count : a->ints.count;
    onnx_array *array = onnx_array_new(im, reals ? ONNX_FLOAT : ONNX_INT64, one ? 0 : 1, &count);
    for (int64_t i = 0; array && i < count; i++)
        reals ? array_set_real(array, i, a->floats.item[i]) : array_set_integer(array, i, one ? a->i : a->ints.item[i]);
    return onnx_set_known(im, 0, array);
}

bool onnx_fold_constant_of_shape(onnx_importer *im)
{
    int64_t dim[ONNX_DIMS_MAX];
    const int rank = onnx_integers_in(im, 0, dim, ONNX_DIMS_MAX);
    const onnx_attribute *a = onnx_attribute_find(im->node, "value");
    const onnx_array *value = a && a->t ? a->t : onnx_scalar(im, ONNX_FLOAT, 0);
    if (rank < 0 || !value)
        return false;
    if (array_count(value) != 1)
        return ONNX_WRONG(im, "its value has %lld elements, and not 1", (long long)array_count(value));
    return onnx_set_known(im, 0, moved(im, value, rank, dim, (const int64_t[ONNX_DIMS_MAX]){0}, 0));
}

/* Sizes of a value that may be a tensor. */
static int sizes_of(onnx_importer *im, int64_t *dim)
{
    const onnx_value *in = onnx_in(im, 0);
    if (!in)
        return ONNX_WRONG(im, "input 0 is missing"), -1;
    const int rank = in->known ? in->known->rank : onnx_shape(im, in).rank;
    for (int d = 0; d < rank; d++)
        dim[d] = in->known ? in->known->dim[d] : onnx_shape(im, in).dim[d];
    return rank;
}

bool onnx_fold_shape(onnx_importer *im)
{
    int64_t dim[ONNX_DIMS_MAX];
    const int rank = sizes_of(im, dim);
    if (rank < 0)
        return false;
    const onnx_range range = onnx_range_of(rank, onnx_int(im, "start", 0), onnx_int(im, "end", rank), 1);
    onnx_array *sizes = onnx_array_new(im, ONNX_INT64, 1, &range.count);
    for (int64_t i = 0; sizes && i < range.count; i++)
        array_set_integer(sizes, i, dim[range.first + i]);
    return onnx_set_known(im, 0, sizes);
}

bool onnx_fold_size(onnx_importer *im)
{
    int64_t dim[ONNX_DIMS_MAX], count = 1;
    const int rank = sizes_of(im, dim);
    for (int d = 0; d < rank; d++)
        count *= dim[d];
    onnx_array *size = rank < 0 ? NULL : onnx_array_new(im, ONNX_INT64, 0, NULL);
    if (size)
        array_set_integer(size, 0, count);
    return onnx_set_known(im, 0, size);
}

bool onnx_fold_range(onnx_importer *im)
{
    const onnx_array *start = onnx_known_in(im, 0), *limit = start ? onnx_known_in(im, 1) : NULL, *delta = limit ? onnx_known_in(im, 2) : NULL;
    if (!delta)
        return false;
    if (array_count(start) != 1 || array_count(limit) != 1 || array_count(delta) != 1)
        return ONNX_WRONG(im, "its start, limit and step are not one number each");
    const double from = array_real(start, 0), to = array_real(limit, 0), by = array_real(delta, 0);
    const double wanted = by == 0 ? -1 : (to - from) / by;
    const int64_t count = wanted > 0 ? integer_of(wanted) + ((double)integer_of(wanted) < wanted) : 0;
    if (by == 0)
        return ONNX_WRONG(im, "its step is 0");
    onnx_array *array = onnx_array_new(im, start->type, 1, &count);
    for (int64_t i = 0; array && i < count; i++)
        onnx_type_real(start->type) ? array_set_real(array, i, from + (double)i * by)
                                    : array_set_integer(array, i, (int64_t)((uint64_t)array_integer(start, 0) + (uint64_t)i * (uint64_t)array_integer(delta, 0)));
    return onnx_set_known(im, 0, array);
}

bool onnx_fold_eye_like(onnx_importer *im)
{
    int64_t dim[ONNX_DIMS_MAX];
    const int rank = sizes_of(im, dim);
    const onnx_value *in = onnx_in(im, 0);
    const int64_t k = onnx_int(im, "k", 0);
    if (rank != 2)
        return rank < 0 ? false : ONNX_WRONG(im, "its input has %d dimensions, and not 2", rank);
    onnx_array *eye = onnx_array_new(im, (int)onnx_int(im, "dtype", in->type), 2, dim);
    for (int64_t i = 0; eye && i < dim[0] * dim[1]; i++)
        array_set_real(eye, i, i % dim[1] - i / dim[1] == k);
    return onnx_set_known(im, 0, eye);
}

/* ---- moves of known elements ---- */

bool onnx_fold_identity(onnx_importer *im)
{
    return onnx_set_same(im, 0, 0);
}

/* Reshape, Flatten, Squeeze and Unsqueeze. */
bool onnx_fold_reshape(onnx_importer *im)
{
    int64_t dim[ONNX_DIMS_MAX];
    const onnx_array *a = onnx_known_in(im, 0);
    const int rank = a ? onnx_reshaped(im, a->dim, a->rank, dim) : -1;
    return rank >= 0 && set_reshaped(im, a, rank, dim);
}

bool onnx_fold_transpose(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t perm[ONNX_DIMS_MAX], dim[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX], own[ONNX_DIMS_MAX];
    const int count = onnx_ints(im, "perm", perm, ONNX_DIMS_MAX);
    if (!a)
        return false;
    if (count && count != a->rank)
        return ONNX_WRONG(im, "perm has %d entries for %d dimensions", count, a->rank);
    strides_of(a, own);
    for (int d = 0; d < a->rank; d++) {
        const int from = count ? onnx_axis(im, perm[d], a->rank) : a->rank - 1 - d;
        if (from < 0)
            return false;
        dim[d] = a->dim[from];
        stride[d] = own[from];
    }
    return onnx_set_known(im, 0, moved(im, a, a->rank, dim, stride, 0));
}

bool onnx_fold_slice(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    onnx_range range[ONNX_DIMS_MAX];
    int64_t dim[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX], first = 0;
    if (!a || !onnx_slices(im, a->dim, a->rank, range))
        return false;
    strides_of(a, stride);
    for (int d = 0; d < a->rank; d++) {
        first += range[d].first * stride[d];
        stride[d] *= range[d].step;
        dim[d] = range[d].count;
    }
    return onnx_set_known(im, 0, moved(im, a, a->rank, dim, stride, first));
}

/* Copies `from` to the elements of `to` that begin at `at` along the axis. */
static void put_part(const onnx_array *to, const onnx_array *from, int axis, int64_t at)
{
    size_t inner = onnx_type_bytes(to->type);
    int64_t outer = 1;
    for (int d = axis + 1; d < to->rank; d++)
        inner *= (size_t)to->dim[d];
    for (int d = 0; d < axis; d++)
        outer *= to->dim[d];
    const size_t row = (size_t)to->dim[axis] * inner, part = (size_t)from->dim[axis] * inner;
    for (int64_t i = 0; i < outer; i++)
        memcpy((char *)to->data + (size_t)i * row + (size_t)at * inner, (const char *)from->data + (size_t)i * part, part);
}

bool onnx_fold_concat(onnx_importer *im)
{
    const onnx_array *first = onnx_known_in(im, 0);
    const int axis = first ? onnx_axis(im, onnx_int(im, "axis", 1), first->rank) : -1;
    int64_t dim[ONNX_DIMS_MAX], at = 0;
    if (axis < 0)
        return false;
    memcpy(dim, first->dim, sizeof dim);
    dim[axis] = 0;
    for (int i = 0; i < im->node->in.count; i++) {
        const onnx_array *a = onnx_known_in(im, i);
        bool alike = a && a->rank == first->rank && a->type == first->type;
        for (int d = 0; alike && d < a->rank; d++)
            alike = d == axis || a->dim[d] == first->dim[d];
        if (!alike)
            return a ? ONNX_WRONG(im, "input %d has another type, or another shape beside the axis", i) : false;
        dim[axis] += a->dim[axis];
    }
    onnx_array *all = onnx_array_new(im, first->type, first->rank, dim);
    for (int i = 0; all && i < im->node->in.count; i++) {
        put_part(all, onnx_known_in(im, i), axis, at);
        at += onnx_known_in(im, i)->dim[axis];
    }
    return onnx_set_known(im, 0, all);
}

bool onnx_fold_split(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    const int axis = a ? onnx_axis(im, onnx_int(im, "axis", 0), a->rank) : -1;
    int64_t parts[64], dim[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX], at = 0;
    if (axis < 0 || onnx_splits(im, a->dim[axis], parts, 64) < 0)
        return false;
    memcpy(dim, a->dim, sizeof dim);
    strides_of(a, stride);
    for (int i = 0; i < im->node->out.count; at += parts[i++]) {
        dim[axis] = parts[i];
        if (!onnx_set_known(im, i, moved(im, a, a->rank, dim, stride, at * stride[axis])))
            return false;
    }
    return true;
}

bool onnx_fold_gather(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0), *ids = a ? onnx_known_in(im, 1) : NULL;
    const int axis = ids ? onnx_axis(im, onnx_int(im, "axis", 0), a->rank) : -1;
    int64_t dim[2 * ONNX_DIMS_MAX], inner = 1, outer = 1;
    int rank = 0;
    if (axis < 0)
        return false;
    for (int d = 0; d < axis; d++)
        outer *= dim[rank++] = a->dim[d];
    for (int d = 0; d < ids->rank; d++)
        dim[rank++] = ids->dim[d];
    for (int d = axis + 1; d < a->rank; d++)
        inner *= dim[rank++] = a->dim[d];
    onnx_array *to = onnx_array_new(im, a->type, rank, dim);
    const int64_t count = array_count(ids), size = a->dim[axis];
    const size_t bytes = (size_t)inner * onnx_type_bytes(a->type);
    for (int64_t o = 0; to && o < outer; o++)
        for (int64_t i = 0; i < count; i++) {
            const int64_t id = array_integer(ids, i), row = id < 0 ? id + size : id;
            if (row < 0 || row >= size)
                return ONNX_WRONG(im, "index %lld is not one of %lld", (long long)id, (long long)size);
            memcpy((char *)to->data + (size_t)(o * count + i) * bytes, (const char *)a->data + (size_t)(o * size + row) * bytes, bytes);
        }
    return onnx_set_known(im, 0, to);
}

bool onnx_fold_expand(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t dim[ONNX_DIMS_MAX], own[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX] = {0};
    const int rank = a ? onnx_expanded(im, a->dim, a->rank, dim) : -1;
    if (rank < 0)
        return false;
    strides_of(a, own);
    for (int d = 0; d < a->rank; d++)
        stride[d + rank - a->rank] = a->dim[d] == 1 ? 0 : own[d];
    return onnx_set_known(im, 0, moved(im, a, rank, dim, stride, 0));
}

bool onnx_fold_tile(onnx_importer *im)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t times[ONNX_DIMS_MAX], dim[2 * ONNX_DIMS_MAX], own[ONNX_DIMS_MAX], stride[2 * ONNX_DIMS_MAX] = {0};
    const int count = a ? onnx_integers_in(im, 1, times, ONNX_DIMS_MAX) : -1;
    if (count < 0)
        return false;
    if (count != a->rank || 2 * count > ONNX_DIMS_MAX)
        return ONNX_WRONG(im, "it has %d repeats for %d dimensions", count, a->rank);
    strides_of(a, own);
    for (int d = 0; d < count; d++) {
        dim[2 * d] = times[d];
        dim[2 * d + 1] = a->dim[d];
        stride[2 * d + 1] = own[d];
    }
    onnx_array *all = moved(im, a, 2 * count, dim, stride, 0);
    for (int d = 0; all && d < count; d++)
        times[d] *= a->dim[d];
    return all && set_reshaped(im, all, count, times);
}

bool onnx_fold_if(onnx_importer *im)
{
    const onnx_array *condition = onnx_known_in(im, 0);
    const onnx_attribute *branch = onnx_attribute_find(im->node, condition && array_count(condition) == 1 && array_integer(condition, 0)
                                                                 ? "then_branch" : "else_branch");
    if (!condition)
        return false;
    if (!branch || !branch->g || array_count(condition) != 1)
        return ONNX_WRONG(im, "its condition is not one value, or it has no branch");
    return onnx_inline(im, branch->g);
}
