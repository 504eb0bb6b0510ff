/* graph/onnx/fold.c: operators that move or make known elements, and the rules of sizes that their twins on tensors share. Every
 * move is one walk over the result with a stride for each dimension of the source, as a stride of 0 repeats and a negative one
 * reverses. math.c has operators that compute.
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
        memcpy((char *)(uintptr_t)to->data + (size_t)i * bytes, (const char *)from->data + (size_t)at * bytes, bytes);
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

/* ---- rules of sizes ---- */

bool onnx_reshaped(onnx_importer *im, const int64_t *from, int rank, int64_t *to, int to_rank, bool zero_is_zero)
{
    int64_t count = 1, known = 1;
    int open = -1;
    for (int d = 0; d < rank; d++)
        count *= from[d];
    for (int d = 0; d < to_rank; d++) {
        if (!to[d] && !zero_is_zero && d < rank)
            to[d] = from[d];
        if (to[d] < -1 || (to[d] == -1 && open >= 0) || (to[d] > 0 && __builtin_mul_overflow(known, to[d], &known)))
            return ONNX_WRONG(im, "the new shape has a size that is negative, or several sizes that are open");
        if (to[d] == -1)
            open = d;
        else if (!to[d])
            known = 0;
    }
    if (open >= 0 && (known <= 0 || count % known))
        return ONNX_WRONG(im, "%lld elements cannot be divided by the %lld of the sizes that are given", (long long)count, (long long)known);
    if (open >= 0)
        to[open] = count / known;
    return true;
}

int onnx_axes(onnx_importer *im, int input, int rank, int *axes)
{
    int64_t list[ONNX_DIMS_MAX];
    int count = onnx_has_in(im->node, input) ? onnx_integers_in(im, input, list, ONNX_DIMS_MAX)
                                             : onnx_ints(im, "axes", list, ONNX_DIMS_MAX);
    for (int i = 0; i < count; i++)
        if ((axes[i] = onnx_axis(im, list[i], rank)) < 0)
            return -1;
    return count;
}

/* The place of a bound within a dimension; one beyond it is cut. */
static int64_t bound_of(int64_t size, int64_t bound, bool back)
{
    bound += bound < 0 ? size : 0;
    if (bound < 0)
        return back ? -1 : 0;
    return bound >= size ? (back ? size - 1 : size) : bound;
}

/* One axis of a Slice, as NumPy cuts it. */
static onnx_range range_of(int64_t size, int64_t start, int64_t end, int64_t step)
{
    const int64_t first = bound_of(size, start, step < 0), last = bound_of(size, end, step < 0);
    const int64_t way = step > 0 ? last - first : first - last, stride = step > 0 ? step : -step;
    return (onnx_range){first, step, way > 0 ? (way - 1) / stride + 1 : 0};
}

bool onnx_slices(onnx_importer *im, const int64_t *dim, int rank, onnx_range *ranges)
{
    int64_t starts[ONNX_DIMS_MAX], ends[ONNX_DIMS_MAX], axes[ONNX_DIMS_MAX], steps[ONNX_DIMS_MAX];
    const bool inputs = im->node->in.count > 1;
    const int count = inputs ? onnx_integers_in(im, 1, starts, ONNX_DIMS_MAX) : onnx_ints(im, "starts", starts, ONNX_DIMS_MAX);
    const int end_count = inputs ? onnx_integers_in(im, 2, ends, ONNX_DIMS_MAX) : onnx_ints(im, "ends", ends, ONNX_DIMS_MAX);
    const int axis_count = !inputs                      ? onnx_ints(im, "axes", axes, ONNX_DIMS_MAX)
                           : onnx_has_in(im->node, 3) ? onnx_integers_in(im, 3, axes, ONNX_DIMS_MAX) : 0;
    const int step_count = onnx_has_in(im->node, 4) ? onnx_integers_in(im, 4, steps, ONNX_DIMS_MAX) : 0;
    if (im->status)
        return false;
    for (int d = 0; d < rank; d++)
        ranges[d] = (onnx_range){0, 1, dim[d]};
    if (end_count != count || (axis_count && axis_count != count) || (step_count && step_count != count) || count > rank)
        return ONNX_WRONG(im, "%d starts, %d ends, %d axes and %d steps do not fit together", count, end_count, axis_count, step_count);
    for (int i = 0; i < count; i++) {
        const int axis = axis_count ? onnx_axis(im, axes[i], rank) : i;
        const int64_t step = step_count ? steps[i] : 1;
        if (axis < 0)
            return false;
        if (!step || step == INT64_MIN)
            return ONNX_WRONG(im, "a step is %lld", (long long)step);
        ranges[axis] = range_of(dim[axis], starts[i], ends[i], step);
    }
    return true;
}

int onnx_splits(onnx_importer *im, int64_t size, int64_t *parts, int room)
{
    const int outs = im->node->out.count;
    int count = onnx_has_in(im->node, 1) ? onnx_integers_in(im, 1, parts, room) : onnx_ints(im, "split", parts, room);
    if (count < 0 || outs > room) {
        ONNX_UNSUPPORTED(im, "it splits into %d parts; at most %d can be", outs, room);
        return -1;
    }
    int64_t sum = 0;
    if (!count) {
        const int64_t part = outs ? (size + outs - 1) / outs : 0;
        for (count = 0; count < outs; count++)
            parts[count] = size - count * part < part ? size - count * part : part;
    }
    for (int i = 0; i < count; i++)
        sum = parts[i] < 0 ? -1 : sum < 0 ? sum : sum + parts[i];
    if (count != outs || sum != size) {
        ONNX_WRONG(im, "%d parts of %lld in all do not make %d outputs of %lld", count, (long long)sum, outs, (long long)size);
        return -1;
    }
    return count;
}

/* ---- makers ---- */

bool onnx_fold_constant(onnx_importer *im, const onnx_node *node)
{
    const onnx_attribute *a = node->attributes.count ? &node->attributes.item[0] : NULL;
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

bool onnx_fold_constant_of_shape(onnx_importer *im, const onnx_node *node)
{
    int64_t dim[ONNX_DIMS_MAX];
    const int rank = onnx_integers_in(im, 0, dim, ONNX_DIMS_MAX);
    const onnx_attribute *a = onnx_attribute_find(node, "value");
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

bool onnx_fold_shape(onnx_importer *im, const onnx_node *node)
{
    int64_t dim[ONNX_DIMS_MAX];
    const int rank = sizes_of(im, dim);
    (void)node;
    if (rank < 0)
        return false;
    const onnx_range range = range_of(rank, onnx_int(im, "start", 0), onnx_int(im, "end", rank), 1);
    onnx_array *sizes = onnx_array_new(im, ONNX_INT64, 1, &range.count);
    for (int64_t i = 0; sizes && i < range.count; i++)
        array_set_integer(sizes, i, dim[range.first + i]);
    return onnx_set_known(im, 0, sizes);
}

bool onnx_fold_size(onnx_importer *im, const onnx_node *node)
{
    int64_t dim[ONNX_DIMS_MAX], count = 1;
    const int rank = sizes_of(im, dim);
    (void)node;
    for (int d = 0; d < rank; d++)
        count *= dim[d];
    onnx_array *size = rank < 0 ? NULL : onnx_array_new(im, ONNX_INT64, 0, NULL);
    if (size)
        array_set_integer(size, 0, count);
    return onnx_set_known(im, 0, size);
}

bool onnx_fold_range(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *start = onnx_known_in(im, 0), *limit = start ? onnx_known_in(im, 1) : NULL, *delta = limit ? onnx_known_in(im, 2) : NULL;
    (void)node;
    if (!delta)
        return false;
    const double from = array_real(start, 0), to = array_real(limit, 0), by = array_real(delta, 0);
    const double wanted = by == 0 ? -1 : (to - from) / by;
    const int64_t count = wanted > 0 ? integer_of(wanted) + ((double)integer_of(wanted) < wanted) : 0;
    if (by == 0)
        return ONNX_WRONG(im, "its step is 0");
    onnx_array *array = onnx_array_new(im, start->type, 1, &count);
    for (int64_t i = 0; array && i < count; i++)
        onnx_type_real(start->type) ? array_set_real(array, i, from + (double)i * by)
                                    : array_set_integer(array, i, array_integer(start, 0) + i * array_integer(delta, 0));
    return onnx_set_known(im, 0, array);
}

bool onnx_fold_eye_like(onnx_importer *im, const onnx_node *node)
{
    int64_t dim[ONNX_DIMS_MAX];
    const int rank = sizes_of(im, dim);
    const onnx_value *in = onnx_in(im, 0);
    const int64_t k = onnx_int(im, "k", 0);
    (void)node;
    if (rank != 2)
        return rank < 0 ? false : ONNX_WRONG(im, "its input has %d dimensions, and not 2", rank);
    onnx_array *eye = onnx_array_new(im, (int)onnx_int(im, "dtype", in->type), 2, dim);
    for (int64_t i = 0; eye && i < dim[0] * dim[1]; i++)
        array_set_real(eye, i, i % dim[1] - i / dim[1] == k);
    return onnx_set_known(im, 0, eye);
}

/* ---- moves of known elements ---- */

bool onnx_fold_identity(onnx_importer *im, const onnx_node *node)
{
    (void)node;
    return onnx_set_same(im, 0, 0);
}

bool onnx_fold_reshape(onnx_importer *im, const onnx_node *node)
{
    int64_t dim[ONNX_DIMS_MAX];
    const onnx_array *a = onnx_known_in(im, 0);
    const int rank = onnx_has_in(node, 1) ? onnx_integers_in(im, 1, dim, ONNX_DIMS_MAX) : onnx_ints(im, "shape", dim, ONNX_DIMS_MAX);
    return a && rank >= 0 && onnx_reshaped(im, a->dim, a->rank, dim, rank, onnx_int(im, "allowzero", 0)) &&
           set_reshaped(im, a, rank, dim);
}

bool onnx_fold_flatten(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t dim[2] = {1, 1}, axis = onnx_int(im, "axis", 1);
    (void)node;
    if (!a)
        return false;
    axis += axis < 0 ? a->rank : 0;
    for (int d = 0; d < a->rank; d++)
        dim[d >= axis] *= a->dim[d];
    return set_reshaped(im, a, 2, dim);
}

bool onnx_fold_squeeze(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int axes[ONNX_DIMS_MAX], rank = 0, count = a ? onnx_axes(im, 1, a->rank, axes) : -1;
    int64_t dim[ONNX_DIMS_MAX];
    (void)node;
    if (count < 0)
        return false;
    for (int d = 0; d < a->rank; d++) {
        bool goes = !count && a->dim[d] == 1;
        for (int i = 0; i < count; i++)
            goes |= axes[i] == d;
        if (!goes)
            dim[rank++] = a->dim[d];
    }
    return set_reshaped(im, a, rank, dim);
}

bool onnx_fold_unsqueeze(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    const int more = onnx_has_in(node, 1) ? onnx_known_in(im, 1) ? (int)array_count(onnx_known_in(im, 1)) : -1
                                          : onnx_ints(im, "axes", (int64_t[ONNX_DIMS_MAX]){0}, ONNX_DIMS_MAX);
    int axes[ONNX_DIMS_MAX];
    int64_t dim[ONNX_DIMS_MAX] = {0};
    if (!a || more < 0)
        return false;
    if (a->rank + more > ONNX_DIMS_MAX)
        return ONNX_UNSUPPORTED(im, "it makes %d dimensions", a->rank + more);
    if (onnx_axes(im, 1, a->rank + more, axes) < 0)
        return false;
    for (int i = 0; i < more; i++)
        dim[axes[i]] = 1;
    for (int d = 0, from = 0; d < a->rank + more; d++)
        if (!dim[d])
            dim[d] = from < a->rank ? a->dim[from++] : 1;
    return set_reshaped(im, a, a->rank + more, dim);
}

bool onnx_fold_transpose(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t perm[ONNX_DIMS_MAX], dim[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX], own[ONNX_DIMS_MAX];
    const int count = onnx_ints(im, "perm", perm, ONNX_DIMS_MAX);
    (void)node;
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

bool onnx_fold_slice(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    onnx_range range[ONNX_DIMS_MAX];
    int64_t dim[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX], first = 0;
    (void)node;
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
        memcpy((char *)(uintptr_t)to->data + (size_t)i * row + (size_t)at * inner, (const char *)from->data + (size_t)i * part, part);
}

bool onnx_fold_concat(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *first = onnx_known_in(im, 0);
    const int axis = first ? onnx_axis(im, onnx_int(im, "axis", 1), first->rank) : -1;
    int64_t dim[ONNX_DIMS_MAX], at = 0;
    if (axis < 0)
        return false;
    memcpy(dim, first->dim, sizeof dim);
    dim[axis] = 0;
    for (int i = 0; i < node->in.count; i++) {
        const onnx_array *a = onnx_known_in(im, i);
        bool alike = a && a->rank == first->rank && a->type == first->type;
        for (int d = 0; alike && d < a->rank; d++)
            alike = d == axis || a->dim[d] == first->dim[d];
        if (!alike)
            return a ? ONNX_WRONG(im, "input %d has another type, or another shape beside the axis", i) : false;
        dim[axis] += a->dim[axis];
    }
    onnx_array *all = onnx_array_new(im, first->type, first->rank, dim);
    for (int i = 0; all && i < node->in.count; i++) {
        put_part(all, onnx_known_in(im, i), axis, at);
        at += onnx_known_in(im, i)->dim[axis];
    }
    return onnx_set_known(im, 0, all);
}

bool onnx_fold_split(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    const int axis = a ? onnx_axis(im, onnx_int(im, "axis", 0), a->rank) : -1;
    int64_t parts[64], dim[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX], at = 0;
    if (axis < 0 || onnx_splits(im, a->dim[axis], parts, 64) < 0)
        return false;
    memcpy(dim, a->dim, sizeof dim);
    strides_of(a, stride);
    for (int i = 0; i < node->out.count; at += parts[i++]) {
        dim[axis] = parts[i];
        if (!onnx_set_known(im, i, moved(im, a, a->rank, dim, stride, at * stride[axis])))
            return false;
    }
    return true;
}

bool onnx_fold_gather(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0), *ids = a ? onnx_known_in(im, 1) : NULL;
    const int axis = ids ? onnx_axis(im, onnx_int(im, "axis", 0), a->rank) : -1;
    int64_t dim[2 * ONNX_DIMS_MAX], inner = 1, outer = 1;
    int rank = 0;
    (void)node;
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
            memcpy((char *)(uintptr_t)to->data + (size_t)(o * count + i) * bytes, (const char *)a->data + (size_t)(o * size + row) * bytes, bytes);
        }
    return onnx_set_known(im, 0, to);
}

bool onnx_fold_expand(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t want[ONNX_DIMS_MAX], dim[ONNX_DIMS_MAX], own[ONNX_DIMS_MAX], stride[ONNX_DIMS_MAX];
    const int count = a ? onnx_integers_in(im, 1, want, ONNX_DIMS_MAX) : -1, rank = a && a->rank > count ? a->rank : count;
    (void)node;
    if (count < 0)
        return false;
    strides_of(a, own);
    for (int d = 0; d < rank; d++) {
        const int mine = d - (rank - a->rank), theirs = d - (rank - count);
        const int64_t have = mine < 0 ? 1 : a->dim[mine], to = theirs < 0 ? 1 : want[theirs];
        if (have != to && have != 1 && to != 1)
            return ONNX_WRONG(im, "a dimension of %lld does not become %lld", (long long)have, (long long)to);
        dim[d] = have == 1 ? to : have;
        stride[d] = mine < 0 || have == 1 ? 0 : own[mine];
    }
    return onnx_set_known(im, 0, moved(im, a, rank, dim, stride, 0));
}

bool onnx_fold_tile(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *a = onnx_known_in(im, 0);
    int64_t times[ONNX_DIMS_MAX], dim[2 * ONNX_DIMS_MAX], own[ONNX_DIMS_MAX], stride[2 * ONNX_DIMS_MAX];
    const int count = a ? onnx_integers_in(im, 1, times, ONNX_DIMS_MAX) : -1;
    (void)node;
    if (count < 0)
        return false;
    if (count != a->rank || 2 * count > ONNX_DIMS_MAX)
        return ONNX_WRONG(im, "it has %d repeats for %d dimensions", count, a->rank);
    strides_of(a, own);
    for (int d = 0; d < count; d++) {
        dim[2 * d] = times[d], stride[2 * d] = 0;
        dim[2 * d + 1] = a->dim[d], stride[2 * d + 1] = own[d];
        times[d] *= a->dim[d];
    }
    onnx_array *all = moved(im, a, 2 * count, dim, stride, 0);
    return all && set_reshaped(im, all, count, times);
}

bool onnx_fold_if(onnx_importer *im, const onnx_node *node)
{
    const onnx_array *condition = onnx_known_in(im, 0);
    const onnx_attribute *branch = onnx_attribute_find(node, condition && array_count(condition) == 1 && array_integer(condition, 0)
                                                                 ? "then_branch" : "else_branch");
    if (!condition)
        return false;
    if (!branch || !branch->g || array_count(condition) != 1)
        return ONNX_WRONG(im, "its condition is not one value, or it has no branch");
    return onnx_inline(im, branch->g);
}
