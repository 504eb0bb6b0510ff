/* graph/onnx/sizes.c: see the header. A size of -1 or 0 in a shape has ONNX's meaning: what is left, and the same as before. */
#include "graph/onnx/sizes.h"

#include <string.h>

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

/* ---- other shapes of the same elements ---- */

/* `count` elements have the sizes `to`, one of which may be open. */
static bool sizes_fit(onnx_importer *im, int64_t count, int64_t *to, int rank)
{
    int64_t known = 1;
    int open = -1;
    for (int d = 0; d < rank; d++) {
        if (to[d] < -1 || (to[d] == -1 && open >= 0) || (to[d] >= 0 && __builtin_mul_overflow(known, to[d], &known)))
            return ONNX_WRONG(im, "the new shape has a size that is negative, or several sizes that are open");
        open = to[d] == -1 ? d : open;
    }
    if (open >= 0 && (known <= 0 || count % known))
        return ONNX_WRONG(im, "%lld elements cannot be divided by the %lld of the sizes that are given", (long long)count, (long long)known);
    if (open >= 0)
        to[open] = count / known;
    return true;
}

static int reshaped(onnx_importer *im, const int64_t *dim, int rank, int64_t *to)
{
    const bool input = onnx_has_in(im->node, 1), zero_is_zero = onnx_int(im, "allowzero", 0);
    const int to_rank = input ? onnx_integers_in(im, 1, to, ONNX_DIMS_MAX) : onnx_ints(im, "shape", to, ONNX_DIMS_MAX);
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= dim[d];
    for (int d = 0; d < to_rank && d < rank; d++)
        if (!to[d] && !zero_is_zero)
            to[d] = dim[d];
    return to_rank >= 0 && sizes_fit(im, count, to, to_rank) ? to_rank : -1;
}

static int flattened(onnx_importer *im, const int64_t *dim, int rank, int64_t *to)
{
    int64_t axis = onnx_int(im, "axis", 1);
    axis += axis < 0 ? rank : 0;
    to[0] = to[1] = 1;
    for (int d = 0; d < rank; d++)
        to[d >= axis] *= dim[d];
    return 2;
}

static int squeezed(onnx_importer *im, const int64_t *dim, int rank, int64_t *to)
{
    int axes[ONNX_DIMS_MAX], to_rank = 0;
    const int count = onnx_axes(im, 1, rank, axes);
    for (int d = 0; d < rank; d++) {
        bool goes = !count && dim[d] == 1;
        for (int i = 0; i < count; i++)
            goes |= axes[i] == d;
        if (!goes)
            to[to_rank++] = dim[d];
    }
    return count < 0 ? -1 : to_rank;
}

/* The axes are of the result, so their number comes first. */
static int unsqueezed(onnx_importer *im, const int64_t *dim, int rank, int64_t *to)
{
    int64_t list[ONNX_DIMS_MAX];
    int axes[ONNX_DIMS_MAX] = {0};
    const int more = onnx_has_in(im->node, 1) ? onnx_integers_in(im, 1, list, ONNX_DIMS_MAX) : onnx_ints(im, "axes", list, ONNX_DIMS_MAX);
    if (more < 0)
        return -1;
    if (rank + more > ONNX_DIMS_MAX)
        return ONNX_UNSUPPORTED(im, "it makes %d dimensions", rank + more), -1;
    if (onnx_axes(im, 1, rank + more, axes) < 0)
        return -1;
    memset(to, 0, sizeof *to * (size_t)(rank + more));
    for (int i = 0; i < more; i++)
        to[axes[i]] = 1;
    for (int d = 0, from = 0; d < rank + more; d++)
        if (!to[d])
            to[d] = from < rank ? dim[from++] : 1;
    return rank + more;
}

int onnx_reshaped(onnx_importer *im, const int64_t *dim, int rank, int64_t *to)
{
    switch (*im->node->op) {
    case 'F': return flattened(im, dim, rank, to);
    case 'S': return squeezed(im, dim, rank, to);
    case 'U': return unsqueezed(im, dim, rank, to);
    default: return reshaped(im, dim, rank, to);
    }
}

int onnx_expanded(onnx_importer *im, const int64_t *dim, int rank, int64_t *to)
{
    int64_t want[ONNX_DIMS_MAX];
    const int count = onnx_integers_in(im, 1, want, ONNX_DIMS_MAX), all = rank > count ? rank : count;
    for (int d = 0; d < all && count >= 0; d++) {
        const int mine = d - (all - rank), theirs = d - (all - count);
        const int64_t have = mine < 0 ? 1 : dim[mine], wanted = theirs < 0 ? 1 : want[theirs];
        if (have != wanted && have != 1 && wanted != 1)
            return ONNX_WRONG(im, "a dimension of %lld does not become %lld", (long long)have, (long long)wanted), -1;
        to[d] = have == 1 ? wanted : have;
    }
    return count < 0 ? -1 : all;
}

/* ---- parts ---- */

/* The place of a bound within a dimension; one beyond it is cut. */
static int64_t bound_of(int64_t size, int64_t bound, bool back)
{
    bound += bound < 0 ? size : 0;
    if (bound < 0)
        return back ? -1 : 0;
    return bound >= size ? (back ? size - 1 : size) : bound;
}

onnx_range onnx_range_of(int64_t size, int64_t start, int64_t end, int64_t step)
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
        ranges[axis] = onnx_range_of(dim[axis], starts[i], ends[i], step);
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
